/* policy.h - what a session gets: its own wishes over its config's over the built-in defaults
 * (design section 7), everything explicit. Pure. */
#pragma once

#include "berth/common/v1/common.pb-c.h"
#include "berth/control/v1/control.pb-c.h"
#include "common/errors/errors.h"

#define CP_IDLE_DEFAULT_MS ((int64_t)30 * 60 * 1000)
#define CP_MAX_PAUSED_DEFAULT_MS ((int64_t)14 * 24 * 60 * 60 * 1000)

/* All set, all owned. */
struct cp_policy {
    Berth__Common__V1__NetworkPolicy *network;  /* both switches and dns set */
    Berth__Common__V1__TimeoutPolicy *timeouts; /* idle, on_idle, auto_resume, max_paused set */
    Berth__Common__V1__Resources *resources;
};
void cp_policy_deinit(struct cp_policy *policy);

/* Never wider than the config, also where the config was narrowed after the session was made.
 * spec and its members, and caps, may be NULL.
 * Errors: OUT_OF_MEMORY. */
BERTH_MUST_CHECK enum berth_code
cp_policy_resolve(const Berth__Control__V1__SandboxConfig *config,
                  const Berth__Common__V1__SessionSpec *spec,
                  const Berth__Common__V1__Capabilities *caps, struct cp_policy *ret,
                  struct berth_error *err);

/* May a session of this config ask for this network? NULL: yes.
 * Errors: NETWORK_POLICY_INVALID naming what would be wider. */
BERTH_MUST_CHECK enum berth_code
cp_policy_check_narrow(const Berth__Common__V1__NetworkPolicy *config,
                       const Berth__Common__V1__NetworkPolicy *session,
                       struct berth_error *err);

/* Can the backend do what is asked? Any of network, timeouts, resources may be NULL; what they
 * leave open asks for nothing.
 * Errors: CAPABILITY_MISSING, resource naming the capability ("network.cidr"). */
BERTH_MUST_CHECK enum berth_code
cp_policy_check_capable(const Berth__Common__V1__Capabilities *caps,
                        const Berth__Common__V1__NetworkPolicy *network,
                        const Berth__Common__V1__TimeoutPolicy *timeouts,
                        const Berth__Common__V1__Resources *resources, size_t n_volumes,
                        struct berth_error *err);

/* CAPABILITY_MISSING for one capability by name. */
enum berth_code cp_missing(const char *capability, const char *what, struct berth_error *err);
