/* config_findings.h - everything that is wrong with a config at once, as CheckConfig tells it.
 * Pure. Each false: no memory. */
#pragma once

#include <stdbool.h>

#include "berth/control/v1/control.pb-c.h"
#include "common/errors/errors.h"

enum { CP_FINDINGS_MAX = 64 };

/* One error more, as a call would fail with it. */
bool cp_find_error(Berth__Control__V1__CheckConfigResponse *out, const struct berth_error *why);

/* Every field that breaks a rule of its own. config is changed: what is wrong is taken out.
 * *ret_reachable: what says which backend and where is right. */
bool cp_find_faults(Berth__Control__V1__SandboxConfig *config,
                    Berth__Control__V1__CheckConfigResponse *out, bool *ret_reachable);
/* Every capability that the config asks for and the backend lacks; config is changed. */
bool cp_find_missing(Berth__Control__V1__SandboxConfig *config,
                     const Berth__Common__V1__Capabilities *caps,
                     Berth__Control__V1__CheckConfigResponse *out);
/* What would be taken and may not be meant. caps NULL: not known. */
bool cp_find_warnings(const Berth__Control__V1__SandboxConfig *config,
                      const Berth__Common__V1__Capabilities *caps, int64_t now_ms,
                      Berth__Control__V1__CheckConfigResponse *out);
