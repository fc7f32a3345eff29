/* config_check.h - the rules of a SandboxConfig as a client sends it, and which of its fields
 * an update takes over. Pure. */
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

/* Of a whole config, as it will be stored: where its api_url, domain and proxy_url lead. Names
 * are not looked up: whoever dials judges every answer. Errors: FIELD_INVALID,
 * ENDPOINT_REFUSED. */
BERTH_MUST_CHECK enum berth_code
cp_config_check_endpoint(const Berth__Control__V1__SandboxConfig *config,
                         struct berth_error *err);

/* What the account is and how it is reached; a change of these asks the adapter again. */
enum cp_config_change {
    CP_CHANGE_NONE = 0,
    CP_CHANGE_ANY = 1,
    CP_CHANGE_TARGET = 2,      /* options or credentials, too */
    CP_CHANGE_ENDPOINT = 4,    /* what sealed credentials are bound to */
    CP_CHANGE_CREDENTIALS = 8, /* credentials are named by the mask */
    CP_CHANGE_POLICY = 16,     /* what the backend has to be capable of */
};

/* Every path is a field of a config, or the mask is "*". */
BERTH_MUST_CHECK enum berth_code cp_config_check_mask(const Google__Protobuf__FieldMask *mask,
                                                      struct berth_error *err);

/**
 * cp_config_apply() - take the fields named by mask over
 * @into:  the stored settings, changed in place
 * @from:  what the client sent, already checked
 * @mask:  NULL or empty: every field that is set in from; "*": every field a client may write
 * @ret_changes: enum cp_config_change bits
 *
 * Fields of the server in the mask are passed over. Credentials are not copied.
 *
 * Errors: FIELD_INVALID for an unknown path and for an immutable field that differs;
 * OUT_OF_MEMORY.
 */
BERTH_MUST_CHECK enum berth_code cp_config_apply(Berth__Control__V1__SandboxConfig *into,
                                                 const Berth__Control__V1__SandboxConfig *from,
                                                 const Google__Protobuf__FieldMask *mask,
                                                 unsigned *ret_changes,
                                                 struct berth_error *err);

/* Fill in what was left open and is stored explicitly: template, rollout, workspace_on_rebuild.
 * False: no memory. */
bool cp_config_defaults(Berth__Control__V1__SandboxConfig *config);

/* Credentials as stored after a change: an empty or masked ("***") member keeps the stored one.
 * False: no memory. */
bool cp_credentials_merge(Berth__Control__V1__Credentials *stored,
                          const Berth__Control__V1__Credentials *given);
