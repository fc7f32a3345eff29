#include "services/controlplane/keep_alive.h"

#include <stdio.h>

#include "common/log/log.h"
#include "common/messages/messages.h"
#include "common/time/time.h"
#include "services/controlplane/backend.h"
#include "services/controlplane/binding.h"
#include "services/controlplane/policy.h"

typedef Berth__Backend__V1__GetSandboxResponse GetSandboxResponse;
typedef Berth__Backend__V1__SetTimeoutRequest SetTimeoutRequest;
typedef Berth__Binding__V1__GetBindingResponse GetBindingResponse;

enum { LOOK_EVERY_MS = 30000, ENDPOINT_SIZE = 2200 };

struct alive {
    struct cp *cp;
    Berth__Common__V1__SessionRef *ref;
    int64_t until_ms;
    GetBindingResponse *got;
    struct cp_config *config;
};

static void alive_free(struct alive *alive)
{
    struct cp *cp = alive->cp;

    cp_config_unref(alive->config);
    berth_message_free(alive->got);
    berth_message_free(alive->ref);
    free(alive);
    atomic_fetch_sub(&cp->background, 1);
}

static void warn(const struct alive *alive, const struct berth_error *err)
{
    berth_warn("the backend's end of a sandbox in use was not pushed, trying again", "session",
               alive->ref->session_id, "error", err->text);
}

/* At the backend, in its bulkhead. */
static enum berth_code push(struct alive *alive, int64_t idle_ms,
                            Berth__Common__V1__TimeoutPolicy *timeouts, struct berth_error *err)
{
    SetTimeoutRequest req = BERTH__BACKEND__V1__SET_TIMEOUT_REQUEST__INIT;
    Google__Protobuf__Duration *before = timeouts->idle;
    void *resp = NULL;
    enum berth_code code;

    timeouts->idle = berth_duration(idle_ms);
    if (!timeouts->idle) {
        timeouts->idle = before;
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    berth_message_free(before);
    req.target = alive->config->target;
    req.sandbox_id = alive->got->binding->sandbox_id;
    req.timeouts = timeouts;
    req.extend_only = true;
    req.fence = alive->got->binding->fence;
    code = cp_backend_call(alive->cp, alive->config->target->backend,
                           "/berth.backend.v1.BackendService/SetTimeout", &req.base,
                           &berth__backend__v1__set_timeout_response__descriptor,
                           CP_CALL_TIMEOUT_MS, "", &resp, err);
    berth_message_free(resp);
    return code;
}

static void look_at_end(void *arg)
{
    struct alive *alive = arg;
    Berth__Backend__V1__GetSandboxRequest req = BERTH__BACKEND__V1__GET_SANDBOX_REQUEST__INIT;
    GetSandboxResponse *seen = NULL;
    struct cp_policy policy = {0};
    struct berth_error err = {0};
    int64_t now_ms = berth_now_ms(), end_ms, idle_ms;
    enum berth_code code;

    req.target = alive->config->target;
    req.sandbox_id = alive->got->binding->sandbox_id;
    code = cp_backend_call(alive->cp, alive->config->target->backend,
                           "/berth.backend.v1.BackendService/GetSandbox", &req.base,
                           &berth__backend__v1__get_sandbox_response__descriptor,
                           CP_CALL_TIMEOUT_MS, "", &seen, &err);
    if (!code)
        code = cp_policy_resolve(alive->config->settings, alive->got->session->spec,
                                 alive->config->info->capabilities, &policy, &err);
    end_ms = !code && seen->sandbox ? berth_timestamp_ms(seen->sandbox->end_time, 0) : 0;
    idle_ms = code ? 0 : berth_duration_ms(policy.timeouts->idle, 0);
    if (end_ms && idle_ms && end_ms - now_ms < idle_ms / 2) {
        if (alive->until_ms - now_ms > idle_ms)
            idle_ms = alive->until_ms - now_ms;
        code = push(alive, idle_ms, policy.timeouts, &err);
    }
    if (code)
        warn(alive, &err);
    cp_policy_deinit(&policy);
    berth_message_free(seen);
    alive_free(alive);
}

static bool has_timer(const struct cp_config *config)
{
    switch (config->info->capabilities->timeout_model) {
    case BERTH__COMMON__V1__TIMEOUT_MODEL__TIMEOUT_MODEL_SLIDING:
    case BERTH__COMMON__V1__TIMEOUT_MODEL__TIMEOUT_MODEL_FIXED:
        return true;
    default:
        return false;
    }
}

/* On a worker: what is bound, and where. */
static void look_at_binding(void *arg)
{
    struct alive *alive = arg;
    char endpoint[ENDPOINT_SIZE];
    struct berth_error err = {0};
    enum berth_code code = cp_binding_get(alive->cp, alive->ref, &alive->got, &err);

    if (!code)
        code = cp_session_config(alive->cp, alive->got->session, &alive->config, &err);
    if (!code && alive->config && alive->got->binding && has_timer(alive->config)) {
        cp_backend_endpoint(endpoint, sizeof endpoint, alive->config->target->backend,
                            alive->config->target->api_url);
        code = cp_bulkhead_submit(alive->cp->bulkhead, endpoint, look_at_end, alive, &err);
        if (!code)
            return;
    }
    if (code)
        warn(alive, &err);
    alive_free(alive);
}

void cp_keep_alive(struct cp *cp, const Berth__Common__V1__SessionRef *ref, int64_t until_ms)
{
    int64_t tick = berth_tick_ms();
    struct alive *alive;

    if (cp_verified_since(cp->verified, "alive", ref->tenant_id, ref->session_id, "",
                          tick - LOOK_EVERY_MS))
        return;
    alive = calloc(1, sizeof *alive);
    if (!alive)
        return; /* the next renewal */
    atomic_fetch_add(&cp->background, 1);
    alive->cp = cp;
    alive->until_ms = until_ms;
    alive->ref = berth_message_copy(ref);
    if (!alive->ref || berth_pool_submit(cp->runtime->pool, look_at_binding, alive, NULL)) {
        alive_free(alive);
        return;
    }
    cp_verified_note(cp->verified, "alive", ref->tenant_id, ref->session_id, "", tick);
}
