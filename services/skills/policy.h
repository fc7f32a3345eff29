/* policy.h - what a config says about where skills' packages come from (SandboxConfig.skills),
 * for plan_make(). Blocking: one round trip to Redis. */
#pragma once

#include "services/skills/bundle/plan.h"
#include "services/skills/skills.h"

/* Zeroed is: nothing is said. */
struct skills_policy {
    struct plan_policy plan; /* borrows from settings */
    ProtobufCMessage *settings;
};
void skills_policy_deinit(struct skills_policy *policy);

/* Errors: CONFIG_NOT_FOUND; STORE_UNAVAILABLE; INTERNAL_BUG (the document). */
BERTH_MUST_CHECK enum berth_code skills_policy_read(struct skills *skills, const char *tenant,
                                                    const char *config_id,
                                                    struct skills_policy *ret,
                                                    struct berth_error *err);
