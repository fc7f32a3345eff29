#include "services/controlplane/resolve.h"

#include <stdio.h>

#include "common/ids/ids.h"
#include "common/log/log.h"
#include "common/messages/messages.h"
#include "common/time/time.h"
#include "services/controlplane/backend.h"
#include "services/controlplane/binding.h"
#include "services/controlplane/config_check.h"
#include "services/controlplane/mover.h"

typedef Berth__Binding__V1__AcquireRequest AcquireRequest;
typedef Berth__Binding__V1__AcquireResponse AcquireResponse;
typedef Berth__Binding__V1__GetBindingResponse GetBindingResponse;
typedef Berth__Common__V1__SessionSpec SessionSpec;

enum {
    ROUNDS_MAX = 8, /* of Acquire, when the lock was lost or a sandbox was seen to fail */
    TRACE_SIZE = 64,
    SANDBOX_ID_SIZE = 129,
    ENDPOINT_SIZE = 2200,
    FORGET_TIMEOUT_MS = 2000,
};

struct resolve {
    struct cp *cp;
    struct berth_call *call;
    struct cp_resolve_request request;
    char traceparent[TRACE_SIZE];
    char actor[BERTH_ACTOR_SIZE]; /* created_by of a new session */
    int64_t deadline_tick;
    unsigned rounds;
    char failed_sandbox_id[SANDBOX_ID_SIZE];
    uint8_t attempt[PLAN_ATTEMPT_SIZE];
    int64_t sent_tick; /* of the Acquire that was answered last */
    AcquireResponse *grant;
    struct cp_config *config;
    struct cp_lock *lock;
    SessionSpec reaped;     /* of a record that the reaper makes */
    struct berth_work work; /* with what Acquire brought, for a worker */
    enum berth_code code;
    struct berth_error err;
};

static void acquire(struct resolve *r);

/* --------------------------------------------------------------------- answer */

static void resolve_free(struct resolve *r)
{
    cp_lock_drop(r->lock);
    berth_message_free(r->grant);
    cp_config_unref(r->config);
    free(r);
}

/* Is it one of those that a client waits for to use its session? */
static bool is_resolve(const struct resolve *r)
{
    return r->request.want == PLAN_ENSURE || r->request.want == PLAN_EXISTING;
}

static void answer_error(struct resolve *r, const struct berth_error *err)
{
    if (is_resolve(r))
        cp_figure_failure(&r->cp->figures, err);
    berth_call_answer(r->call, err->code, NULL, err);
    resolve_free(r);
}

/* The loss is told with this answer: said before it goes out, so that the next call does not
 * tell it again. Not where nobody waits any more; and where it cannot be said it is told again.
 */
static void note_told(struct resolve *r, const struct cp_resolved *resolved)
{
    struct berth_error err = {0};

    if (!r->request.tells || !resolved->loss || berth_call_cancelled(r->call))
        return;
    if (cp_loss_told(r->cp, r->request.session, resolved->loss->number, &err))
        berth_warn("what a session lost is told, and will be told again", "session",
                   r->request.session->session_id, "error", err.text);
}

static void answer(struct resolve *r, const struct cp_resolved *resolved)
{
    ProtobufCMessage *resp = NULL;
    struct berth_error err = {0};
    enum berth_code code = r->request.answer(r->cp, resolved, &resp, &err);

    if (is_resolve(r))
        cp_figure(&r->cp->figures, resolved->outcome <= CP_REPLACED
                                       ? (enum cp_figure)resolved->outcome
                                       : CP_FIGURE_NOTHING);
    if (!code)
        note_told(r, resolved);
    berth_call_answer(r->call, code, resp, &err);
    resolve_free(r);
}

enum berth_code cp_no_sandbox(struct berth_error *err)
{
    return berth_fail(err, BERTH_REASON_SANDBOX_NOT_FOUND, "the session has no sandbox");
}

/* What was lost and never told outweighs what this call did. */
static enum cp_outcome outcome_of(enum cp_outcome outcome, const Berth__Binding__V1__Loss *loss)
{
    if (!loss || outcome > CP_REPLACED) /* no sandbox is answered */
        return outcome;
    switch (loss->cause) {
    case BERTH__BINDING__V1__LOSS_CAUSE__LOSS_CAUSE_MEMORY:
        return outcome == CP_USED ? CP_RESUMED : outcome;
    case BERTH__BINDING__V1__LOSS_CAUSE__LOSS_CAUSE_REBUILT:
        return CP_REBUILT;
    default:
        return CP_REPLACED;
    }
}

static void answer_used(struct resolve *r)
{
    const Berth__Binding__V1__Carry *carry = r->grant->carry;
    const struct cp_resolved resolved = {
        .record = r->grant->session,
        .binding = r->grant->binding,
        .config = r->config,
        .spec = r->request.spec,
        .outcome = outcome_of(CP_USED, r->grant->loss),
        .loss = r->grant->loss,
        .stale = r->grant->stale,
        .turn_running = r->grant->turn_running,
    };

    if (carry && strcmp(carry->into_sandbox_id, r->grant->binding->sandbox_id) == 0)
        cp_carry_used(r->cp, r->request.session, carry);
    answer(r, &resolved);
}

static void answer_nothing(struct resolve *r)
{
    const struct cp_resolved resolved = {
        .record = r->grant->session, .config = r->config, .outcome = CP_NOTHING_BOUND};

    answer(r, &resolved);
}

/* ----------------------------------------------------- a delete that is repeated */

/* DeleteSession of a tombstone is a repeat, and fine. */
static void on_tombstone(void *arg, enum berth_code code, ProtobufCMessage *resp,
                         const struct berth_error *err)
{
    struct resolve *r = arg;
    GetBindingResponse *got = (GetBindingResponse *)resp;
    const struct cp_resolved resolved = {.outcome = CP_DELETED};
    bool deleted =
        !code && got->session &&
        got->session->state == BERTH__COMMON__V1__SESSION_STATE__SESSION_STATE_DELETED;
    struct berth_error why;

    berth_message_free(resp);
    if (deleted) {
        answer(r, &resolved);
    } else if (code) {
        answer_error(r, err);
    } else {
        (void)berth_fail(&why, BERTH_REASON_SESSION_NOT_FOUND, NULL);
        answer_error(r, &why);
    }
}

static void ask_for_tombstone(struct resolve *r)
{
    Berth__Binding__V1__GetBindingRequest req = BERTH__BINDING__V1__GET_BINDING_REQUEST__INIT;
    struct berth_call_options options = {.timeout_ms = CP_CALL_TIMEOUT_MS, .parent = r->call};

    req.session = (Berth__Common__V1__SessionRef *)r->request.session;
    berth_channel_call_async(r->cp->binding, "/berth.binding.v1.BindingService/GetBinding",
                             &req.base, &berth__binding__v1__get_binding_response__descriptor,
                             &options, r->cp->runtime->pool, on_tombstone, r);
}

/* ------------------------------------------------------- an answer that was lost */

struct forgotten {
    struct cp *cp;
    Berth__Common__V1__SessionRef *session;
};

static void on_forgotten(void *arg, enum berth_code code, ProtobufCMessage *resp,
                         const struct berth_error *err)
{
    struct forgotten *forgotten = arg;
    AcquireResponse *grant = (AcquireResponse *)resp;

    (void)err;
    if (!code && grant->lock)
        cp_release(forgotten->cp, forgotten->session, grant->lock, true);
    berth_message_free(resp);
    berth_message_free(forgotten->session);
    atomic_fetch_sub(&forgotten->cp->background, 1);
    free(forgotten);
}

static void fill_acquire(const struct resolve *r, AcquireRequest *req)
{
    static const Berth__Binding__V1__Want wants[] = {
        [PLAN_ENSURE] = BERTH__BINDING__V1__WANT__WANT_ENSURE,
        [PLAN_EXISTING] = BERTH__BINDING__V1__WANT__WANT_EXISTING,
        [PLAN_PAUSE] = BERTH__BINDING__V1__WANT__WANT_PAUSE,
        [PLAN_RESUME] = BERTH__BINDING__V1__WANT__WANT_RESUME,
        [PLAN_DELETE] = BERTH__BINDING__V1__WANT__WANT_DELETE,
        [PLAN_ADOPT] = BERTH__BINDING__V1__WANT__WANT_ADOPT,
        [PLAN_REAP] = BERTH__BINDING__V1__WANT__WANT_REAP,
        [PLAN_IDLE_PAUSE] = BERTH__BINDING__V1__WANT__WANT_IDLE,
        [PLAN_IDLE_KILL] = BERTH__BINDING__V1__WANT__WANT_IDLE,
        [PLAN_OBSERVE] = BERTH__BINDING__V1__WANT__WANT_OBSERVE,
        [PLAN_STILL] = BERTH__BINDING__V1__WANT__WANT_STILL,
    };

    req->session = (Berth__Common__V1__SessionRef *)r->request.session;
    req->want = wants[r->request.want];
    req->owner = r->cp->owner;
    req->attempt = (ProtobufCBinaryData){sizeof r->attempt, (uint8_t *)r->attempt};
    req->turn_token = (char *)r->request.turn_token;
    req->failed_sandbox_id = (char *)r->failed_sandbox_id;
    req->spec_if_new = (Berth__Common__V1__SessionSpec *)r->request.spec;
    req->created_by = (char *)r->actor;
    req->must_be_new = r->request.must_be_new && r->rounds <= 1;
    req->must_exist = r->request.must_exist;
    req->recreate = r->request.recreate;
    if (!r->request.config_id)
        return;
    if (r->request.want == PLAN_DELETE)
        req->want = BERTH__BINDING__V1__WANT__WANT_FINISH;
    req->spec_if_new = (SessionSpec *)&r->reaped;
    req->reap_sandbox_id = (char *)r->request.reap_sandbox_id;
    req->reap_account = r->request.reap_account;
    req->unless_active_after = (Google__Protobuf__Timestamp *)r->request.unless_active_after;
}

/* The lock may have been granted to nobody: ask again by the same attempt, and give it back. */
static void forget(struct resolve *r)
{
    struct berth_call_options options = {.timeout_ms = FORGET_TIMEOUT_MS};
    struct forgotten *forgotten = calloc(1, sizeof *forgotten);
    AcquireRequest req = BERTH__BINDING__V1__ACQUIRE_REQUEST__INIT;

    if (!forgotten)
        return; /* it runs out by itself */
    forgotten->cp = r->cp;
    forgotten->session = berth_message_copy(r->request.session);
    if (!forgotten->session) {
        free(forgotten);
        return;
    }
    fill_acquire(r, &req);
    atomic_fetch_add(&r->cp->background, 1);
    berth_channel_call_async(r->cp->binding, "/berth.binding.v1.BindingService/Acquire",
                             &req.base, &berth__binding__v1__acquire_response__descriptor,
                             &options, r->cp->runtime->pool, on_forgotten, forgotten);
}

/* ----------------------------------------------------------------- USE, looked at */

static bool lately_seen(const struct resolve *r)
{
    const Berth__Common__V1__SessionRef *ref = r->request.session;
    int64_t interval_ms =
        berth_duration_ms(r->config->settings->verify_interval, r->cp->verify_interval_ms);

    return cp_verified_since(r->cp->verified, "", ref->tenant_id, ref->session_id,
                             r->grant->binding->sandbox_id, r->sent_tick - interval_ms + 1);
}

static void acquire_again(struct resolve *r, const char *failed_sandbox_id,
                          const struct berth_error *why)
{
    if (r->rounds >= ROUNDS_MAX || berth_tick_ms() >= r->deadline_tick ||
        berth_call_cancelled(r->call)) {
        answer_error(r, why);
        return;
    }
    cp_lock_drop(BERTH_STEAL(r->lock));
    r->grant = berth_message_free(r->grant);
    r->config = cp_config_unref(r->config);
    if (failed_sandbox_id)
        snprintf(r->failed_sandbox_id, sizeof r->failed_sandbox_id, "%s", failed_sandbox_id);
    acquire(r);
}

/* Look at a bound sandbox that nobody here has seen for a while. On a worker, in the bulkhead.
 */
static void verify_use(void *arg)
{
    struct resolve *r = arg;
    Berth__Backend__V1__GetSandboxRequest req = BERTH__BACKEND__V1__GET_SANDBOX_REQUEST__INIT;
    Berth__Backend__V1__GetSandboxResponse *resp = NULL;
    const Berth__Common__V1__SessionRef *ref = r->request.session;
    char sandbox_id[SANDBOX_ID_SIZE];
    struct berth_error err = {0};
    enum berth_code code;
    int64_t tick = berth_tick_ms();
    int state;

    if (lately_seen(r)) { /* by another call, while this one waited */
        answer_used(r);
        return;
    }
    snprintf(sandbox_id, sizeof sandbox_id, "%s", r->grant->binding->sandbox_id);
    req.target = r->config->target;
    req.sandbox_id = sandbox_id;
    code = cp_backend_call(r->cp, r->config->target->backend,
                           "/berth.backend.v1.BackendService/GetSandbox", &req.base,
                           &berth__backend__v1__get_sandbox_response__descriptor,
                           CP_CALL_TIMEOUT_MS, r->traceparent, &resp, &err);
    state = !code && resp->sandbox ? (int)resp->sandbox->state : 0;
    berth_message_free(resp);
    if (state == BERTH__COMMON__V1__SANDBOX_STATE__SANDBOX_STATE_RUNNING) {
        cp_verified_note(r->cp->verified, "", ref->tenant_id, ref->session_id, sandbox_id,
                         tick);
        answer_used(r);
        return;
    }
    if (code && !cp_is_gone(&err)) {
        answer_error(r, &err);
        return;
    }
    /* Gone, paused by somebody else, or not to be told: the holder finds out under the lock. */
    (void)berth_fail(&err, BERTH_REASON_SANDBOX_TRANSITIONING, NULL);
    acquire_again(r, sandbox_id, &err);
}

/* ------------------------------------------------------------- work under the lock */

/* Whatever a holder was told after it lost its lock, somebody else may know better by now. */
static bool again(const struct resolve *r, const struct berth_error *err)
{
    return err->reason == BERTH_REASON_LOCK_LOST || err->reason == BERTH_REASON_CONFLICT ||
           cp_lock_left_ms(r->lock) == 0;
}

static void run_holder(void *arg)
{
    struct resolve *r = arg;
    struct cp_holder holder = {
        .cp = r->cp,
        .config = r->config,
        .lock = r->lock,
        .grant = r->grant,
        .traceparent = r->traceparent,
        .turn_token = r->request.turn_token,
        .failed_sandbox_id = r->failed_sandbox_id,
        .want = r->request.want,
        .other_sandbox_id = r->request.want == PLAN_STILL ? r->request.reap_sandbox_id : NULL,
        .unless_active_after_ms = berth_timestamp_ms(
            r->request.unless_active_after, r->request.config_id ? berth_now_ms() : INT64_MAX),
        .calls_only = r->request.calls_only,
        .ends_soon_ms = berth_timestamp_ms(r->request.ends_soon_time, 0),
    };
    struct berth_error err = {0};
    enum berth_code code = cp_holder_run(&holder, &err);
    struct cp_resolved resolved;

    if (code) {
        cp_holder_deinit(&holder);
        if (again(r, &err))
            acquire_again(r, NULL, &err);
        else
            answer_error(r, &err);
        return;
    }
    resolved = (struct cp_resolved){
        .record = r->grant->session,
        .binding = holder.bound,
        .config = r->config,
        .spec = r->request.spec,
        .outcome = outcome_of(holder.outcome, holder.loss),
        .loss = holder.loss,
        .stale = r->grant->stale && holder.outcome == CP_USED,
        .turn_running = r->grant->turn_running,
    };
    answer(r, &resolved);
    cp_holder_deinit(&holder);
}

/* -------------------------------------------------------------------- Acquire */

/* A session stays with its config: naming another one is a mistake worth telling. */
static enum berth_code check_pin(const struct resolve *r, struct berth_error *err)
{
    const char *wanted = r->request.spec ? r->request.spec->config_id : "";
    const char *pinned = r->grant->session->spec ? r->grant->session->spec->config_id : "";

    if (*wanted && strcmp(wanted, pinned) != 0)
        return berth_fail(err, BERTH_REASON_CONFIG_PINNED,
                          "the session is pinned to config '%s'", pinned);
    return BERTH_OK;
}

static enum berth_code submit(struct resolve *r, berth_pool_fn fn, struct berth_error *err)
{
    char endpoint[ENDPOINT_SIZE];

    cp_backend_endpoint(endpoint, sizeof endpoint, r->config->target->backend,
                        r->config->target->api_url);
    return cp_bulkhead_submit(r->cp->bulkhead, endpoint, fn, r, err);
}

/* The config whose backend is asked: the session's own, or where the reaper saw the sandbox. */
static enum berth_code find_config(struct resolve *r, struct berth_error *err)
{
    const Berth__Binding__V1__SessionRecord *session = r->grant->session;
    const char *config_id = r->request.config_id;
    enum berth_code code = BERTH_OK;

    if (!config_id) {
        if (!session || !session->ref || !session->spec)
            return berth_fail(err, BERTH_REASON_INTERNAL_BUG,
                              "binding answers without a record");
        config_id = session->spec->config_id;
        code = check_pin(r, err);
    } else if (r->request.want != PLAN_REAP && session && session->spec) {
        config_id = session->spec->config_id;
    }
    return code ? code
                : cp_cache_config(r->cp->cache, r->request.session->tenant_id, config_id,
                                  &r->config, err);
}

static enum berth_code go_on(struct resolve *r, struct berth_error *err)
{
    AcquireResponse *grant = r->grant;
    enum berth_code code = find_config(r, err);

    if (!code && r->config) /* one of the time before the veto */
        code = cp_config_check_veto(r->config->settings, r->cp->no_private_targets, err);
    if (code)
        return code;
    if (grant->decision == BERTH__BINDING__V1__DECISION__DECISION_USE && grant->binding) {
        if (!lately_seen(r))
            return submit(r, verify_use, err);
        answer_used(r);
        return BERTH_OK;
    }
    if (grant->decision == BERTH__BINDING__V1__DECISION__DECISION_NONE) {
        answer_nothing(r);
        return BERTH_OK;
    }
    if (!grant->lock)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "binding answers without a lock");
    r->lock = cp_lock_hold(r->cp->locks, r->request.session, grant->lock, r->sent_tick);
    if (!r->lock)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    return submit(r, run_holder, err);
}

/* On a worker. */
static void acquired(void *arg)
{
    struct resolve *r = arg;
    const struct berth_error *failure = &r->err;
    struct berth_error err = {0};
    enum berth_code code = r->code;

    if (code && r->request.want == PLAN_DELETE && !r->request.config_id &&
        failure->reason == BERTH_REASON_SESSION_NOT_FOUND) {
        ask_for_tombstone(r);
        return;
    }
    if (code) {
        if (code == BERTH_DEADLINE_EXCEEDED || code == BERTH_UNKNOWN || code == BERTH_CANCELLED)
            forget(r);
        answer_error(r, failure);
        return;
    }
    code = go_on(r, &err);
    if (!code)
        return;
    if (r->grant->lock)
        cp_release(r->cp, r->request.session, r->grant->lock, true);
    answer_error(r, &err);
}

/* A bound sandbox that was seen lately, of a config that is in memory, and nobody to be told of
 * anything first: go_on() would not wait either. */
static bool is_plain_use(struct resolve *r)
{
    const AcquireResponse *grant = r->grant;

    if (!r->request.quick || r->request.config_id || (r->request.tells && grant->loss) ||
        grant->decision != BERTH__BINDING__V1__DECISION__DECISION_USE || !grant->binding ||
        !grant->session || !grant->session->ref || !grant->session->spec || check_pin(r, NULL))
        return false;
    r->config = cp_cache_config_now(r->cp->cache, r->request.session->tenant_id,
                                    grant->session->spec->config_id);
    if (r->config && lately_seen(r) &&
        cp_config_check_veto(r->config->settings, r->cp->no_private_targets, NULL) == BERTH_OK)
        return true;
    r->config = cp_config_unref(r->config);
    return false;
}

/* On the thread that serves the sockets. What a warm call needs is answered here; all else goes
 * to a worker, since it may have to wait. */
static void on_acquired(void *arg, enum berth_code code, ProtobufCMessage *resp,
                        const struct berth_error *failure)
{
    struct resolve *r = arg;

    r->code = code;
    r->grant = (AcquireResponse *)resp;
    if (code) {
        r->err = *failure;
    } else if (is_plain_use(r)) {
        answer_used(r);
        return;
    }
    berth_pool_submit_entry_must(r->cp->runtime->pool, &r->work, acquired, r);
}

static void acquire(struct resolve *r)
{
    int64_t left_ms = r->deadline_tick - berth_tick_ms();
    struct berth_call_options options = {.timeout_ms = left_ms > 0 ? left_ms : 1,
                                         .parent = r->call};
    AcquireRequest req = BERTH__BINDING__V1__ACQUIRE_REQUEST__INIT;

    if (r->request.max_wait_ms && options.timeout_ms > r->request.max_wait_ms)
        options.timeout_ms = r->request.max_wait_ms;
    r->rounds++;
    berth_random(r->attempt, sizeof r->attempt);
    fill_acquire(r, &req);
    r->sent_tick = berth_tick_ms();
    berth_channel_call_async(r->cp->binding, "/berth.binding.v1.BindingService/Acquire",
                             &req.base, &berth__binding__v1__acquire_response__descriptor,
                             &options, NULL, on_acquired, r);
}

enum berth_code cp_resolve(struct cp *cp, struct berth_call *call,
                           const struct cp_resolve_request *request, struct berth_error *err)
{
    struct resolve *r = calloc(1, sizeof *r);
    int64_t left_ms = berth_call_left_ms(call);

    if (!r)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (left_ms > cp->resolve_timeout_ms)
        left_ms = cp->resolve_timeout_ms;
    r->cp = cp;
    r->call = berth_call_ref(call);
    r->request = *request;
    r->deadline_tick = berth_tick_ms() + left_ms;
    berth__common__v1__session_spec__init(&r->reaped);
    if (request->config_id)
        r->reaped.config_id = (char *)request->config_id;
    berth_actor(call, r->actor);
    snprintf(r->traceparent, sizeof r->traceparent, "%s", berth_call_traceparent(call));
    snprintf(r->failed_sandbox_id, sizeof r->failed_sandbox_id, "%s",
             request->failed_sandbox_id);
    acquire(r);
    return BERTH_DEFERRED;
}
