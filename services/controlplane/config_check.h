/* config_check.h - the rules of a SandboxConfig as a client sends it. Pure. */
#pragma once

#include <stdbool.h>

#include "berth/control/v1/control.pb-c.h"
#include "common/errors/errors.h"

enum { CP_CONFIG_NAME_MAX = 100, CP_OPTIONS_MAX = 64, CP_CA_PEMS_MAX = 16 };

#define CP_TEMPLATE_DEFAULT "base"
#define CP_COMMAND_TIMEOUT_DEFAULT_MS ((int64_t)10 * 60 * 1000)
#define CP_COMMAND_TIMEOUT_MAX_DEFAULT_MS ((int64_t)24 * 60 * 60 * 1000)

/* Everything that needs no backend. Output-only fields are passed over. partial: an update,
 * where what a config must have may be absent. Field paths begin with "config". Errors:
 * FIELD_INVALID, ENDPOINT_REFUSED, RESERVED_KEY, NETWORK_POLICY_INVALID, CAPABILITY_MISSING
 * (what nothing serves yet). */
BERTH_MUST_CHECK enum berth_code
cp_check_config(const Berth__Control__V1__SandboxConfig *config, bool partial,
                struct berth_error *err);

/* The operator's veto over the private switch; never: no config may have it on.
 * Errors: ENDPOINT_REFUSED. */
BERTH_MUST_CHECK enum berth_code
cp_config_check_veto(const Berth__Control__V1__SandboxConfig *config, bool never,
                     struct berth_error *err);

/* Of a whole config, as it will be stored: where its api_url, domain and proxy_url lead. Names
 * are not looked up: whoever dials judges every answer. Errors: FIELD_INVALID,
 * ENDPOINT_REFUSED. */
BERTH_MUST_CHECK enum berth_code
cp_config_check_endpoint(const Berth__Control__V1__SandboxConfig *config,
                         struct berth_error *err);
