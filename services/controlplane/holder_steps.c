#include "services/controlplane/holder_steps.h"

#include <stdio.h>

#include "common/messages/messages.h"
#include "common/time/time.h"
#include "services/controlplane/backend.h"
#include "services/controlplane/inbound.h"

typedef Berth__Backend__V1__DeleteSandboxRequest DeleteSandboxRequest;
typedef Berth__Backend__V1__GetSandboxRequest GetSandboxRequest;
typedef Berth__Backend__V1__GetSandboxResponse GetSandboxResponse;
typedef Berth__Backend__V1__PauseSandboxRequest PauseSandboxRequest;
typedef Berth__Binding__V1__Binding Binding;
typedef Berth__Binding__V1__CommitRequest CommitRequest;
typedef Berth__Binding__V1__CommitResponse CommitResponse;
typedef Berth__Binding__V1__Intent Intent;
typedef Berth__Common__V1__Sandbox Sandbox;

#define BACKEND "/berth.backend.v1.BackendService/"

enum {
    CALL_MAX_MS = 120000, /* of a call that changes something; the lock ends earlier */
    CALL_MIN_MS = 100,    /* less of the lock left: not sent any more */
};

/* ------------------------------------------------------------------- commits */

enum berth_code cp_holder_commit(struct cp_holder *h, CommitRequest *req, bool keep_lock,
                                 Binding **ret_bound, struct berth_error *err)
{
    struct berth_call_options options = {.timeout_ms = CP_CALL_TIMEOUT_MS, .idempotent = true};
    ProtobufCMessage *message;
    CommitResponse *resp;
    enum berth_code code;

    req->session = (Berth__Common__V1__SessionRef *)cp_lock_ref(h->lock);
    req->lock = (Berth__Binding__V1__Lock *)cp_lock_grant(h->lock);
    req->keep_lock = keep_lock;
    code = berth_channel_call(h->cp->binding, "/berth.binding.v1.BindingService/Commit",
                              &req->base, &berth__binding__v1__commit_response__descriptor,
                              &options, &message, err);
    if (code)
        return code;
    if (!keep_lock)
        h->released = true;
    resp = (CommitResponse *)message;
    if (ret_bound)
        *ret_bound = BERTH_STEAL(resp->binding);
    berth_message_free(h->loss);
    h->loss = BERTH_STEAL(resp->loss);
    berth_message_free(resp);
    return BERTH_OK;
}

static enum berth_code commit_intent(struct cp_holder *h, const struct plan_intent *intent,
                                     Berth__Binding__V1__IntentKind kind,
                                     struct berth_error *err)
{
    CommitRequest req = BERTH__BINDING__V1__COMMIT_REQUEST__INIT;
    Intent wire = BERTH__BINDING__V1__INTENT__INIT;
    Berth__Binding__V1__Carry carry = BERTH__BINDING__V1__CARRY__INIT;
    Google__Protobuf__Timestamp not_after = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    enum berth_code code;

    not_after.seconds = intent->not_after_ms / 1000;
    not_after.nanos = (int32_t)(intent->not_after_ms % 1000 * 1000000);
    wire.kind = kind;
    wire.attempt = (ProtobufCBinaryData){PLAN_ATTEMPT_SIZE, (uint8_t *)intent->attempt};
    wire.sandbox_id = (char *)intent->sandbox_id;
    wire.account = h->config->target->fingerprint;
    wire.fence = cp_lock_grant(h->lock)->fence;
    wire.not_after_time = &not_after;
    req.change_case = BERTH__BINDING__V1__COMMIT_REQUEST__CHANGE_INTEND;
    req.intend = &wire;
    if (intent->kind == PLAN_INTENT_DELETE && h->plan.exported) {
        carry.blob_id = h->blob_id;
        carry.lost_count = h->carry_lost;
        carry.lost_names = h->carry_names;
        req.carry = &carry;
    }
    code = cp_holder_commit(h, &req, true, NULL, err);
    if (!code)
        plan_note_intent(&h->plan, intent);
    return code;
}

int64_t cp_holder_now_ms(const struct cp_holder *h)
{
    return h->clock_ms + (berth_tick_ms() - h->clock_tick);
}

struct plan_intent cp_new_intent(struct cp_holder *h, enum plan_intent_kind kind,
                                 const char *sandbox_id)
{
    struct plan_intent intent = {
        .kind = kind,
        .same_account = true,
        .not_after_ms = cp_holder_now_ms(h) + cp_lock_left_ms(h->lock),
    };

    memcpy(intent.attempt, h->plan.attempt, PLAN_ATTEMPT_SIZE);
    snprintf(intent.sandbox_id, sizeof intent.sandbox_id, "%s", sandbox_id);
    return intent;
}

enum berth_code cp_step_intend(struct cp_holder *h, enum plan_intent_kind kind,
                               const char *sandbox_id, struct berth_error *err)
{
    struct plan_intent intent = cp_new_intent(h, kind, sandbox_id);

    return commit_intent(h, &intent,
                         kind == PLAN_INTENT_CREATE
                             ? BERTH__BINDING__V1__INTENT_KIND__INTENT_KIND_CREATE
                             : BERTH__BINDING__V1__INTENT_KIND__INTENT_KIND_PAUSE,
                         err);
}

enum berth_code cp_step_condemn(struct cp_holder *h, const char *sandbox_id,
                                struct berth_error *err)
{
    struct plan_intent intent = cp_new_intent(h, PLAN_INTENT_DELETE, sandbox_id);
    struct berth_error why = {0};
    enum berth_code code =
        commit_intent(h, &intent, BERTH__BINDING__V1__INTENT_KIND__INTENT_KIND_DELETE, &why);

    /* A stream has told of itself while the sandbox was being stilled. */
    if (why.reason == BERTH_REASON_CONFLICT && h->want == PLAN_IDLE_KILL) {
        h->plan.used = true;
        return BERTH_OK;
    }
    if (code && err)
        *err = why;
    return code;
}

enum berth_code cp_step_settle(struct cp_holder *h, const uint8_t *attempt, bool landed,
                               struct berth_error *err)
{
    CommitRequest req = BERTH__BINDING__V1__COMMIT_REQUEST__INIT;
    enum berth_code code;

    req.change_case = BERTH__BINDING__V1__COMMIT_REQUEST__CHANGE_SETTLED_ATTEMPT;
    req.settled_attempt = (ProtobufCBinaryData){PLAN_ATTEMPT_SIZE, (uint8_t *)attempt};
    req.settled_landed = landed;
    code = cp_holder_commit(h, &req, true, NULL, err);
    if (!code)
        plan_note_settled(&h->plan, attempt);
    return code;
}

enum berth_code cp_step_gone(struct cp_holder *h, const char *sandbox_id,
                             struct berth_error *err)
{
    CommitRequest req = BERTH__BINDING__V1__COMMIT_REQUEST__INIT;
    enum berth_code code;

    req.change_case = BERTH__BINDING__V1__COMMIT_REQUEST__CHANGE_GONE_SANDBOX_ID;
    req.gone_sandbox_id = (char *)sandbox_id;
    code = cp_holder_commit(h, &req, true, NULL, err);
    if (code)
        return code;
    plan_note_gone(&h->plan, sandbox_id);
    if (h->grant->binding && strcmp(h->grant->binding->sandbox_id, sandbox_id) == 0)
        cp_inbound_drop(h->cp, cp_lock_ref(h->lock), cp_lock_grant(h->lock)->fence);
    if (h->plan.n_candidates == 0 && h->more_found) {
        h->more_found = false;
        h->plan.listed = false;
    }
    return BERTH_OK;
}

enum berth_code cp_step_tombstone(struct cp_holder *h, struct berth_error *err)
{
    CommitRequest req = BERTH__BINDING__V1__COMMIT_REQUEST__INIT;

    cp_carry_discard(h);
    req.change_case = BERTH__BINDING__V1__COMMIT_REQUEST__CHANGE_DELETE_SESSION;
    req.delete_session = true;
    return cp_holder_commit(h, &req, false, NULL, err);
}

/* ------------------------------------------------------------- adapter calls */

/* Until when a call that changes something may take effect: well before the lock may be lost.
 * False: it must not be sent any more. */
bool cp_begin_call(struct cp_holder *h, int64_t *ret_left_ms,
                   Google__Protobuf__Timestamp *not_after, struct berth_error *err)
{
    int64_t left_ms = cp_lock_left_ms(h->lock), until_ms;

    if (left_ms > CALL_MAX_MS)
        left_ms = CALL_MAX_MS;
    if (left_ms < CALL_MIN_MS) {
        (void)berth_fail(err, BERTH_REASON_LOCK_LOST, NULL);
        return false;
    }
    until_ms = cp_holder_now_ms(h) + left_ms;
    google__protobuf__timestamp__init(not_after);
    not_after->seconds = until_ms / 1000;
    not_after->nanos = (int32_t)(until_ms % 1000 * 1000000);
    *ret_left_ms = left_ms;
    return true;
}

enum berth_code cp_adapter_call(struct cp_holder *h, const char *path,
                                const ProtobufCMessage *req,
                                const ProtobufCMessageDescriptor *resp_type, int64_t timeout_ms,
                                void *ret, struct berth_error *err)
{
    return cp_backend_call(h->cp, h->config->target->backend, path, req, resp_type, timeout_ms,
                           h->traceparent, ret, err);
}

/* Is the error about the sandbox that was asked for, and says that it is gone? */
bool cp_says_gone(const struct berth_error *err, const char *sandbox_id)
{
    return cp_is_gone(err) && (!err->sandbox_id[0] || strcmp(err->sandbox_id, sandbox_id) == 0);
}

enum berth_code cp_step_delete(struct cp_holder *h, const char *sandbox_id,
                               struct berth_error *err)
{
    DeleteSandboxRequest req = BERTH__BACKEND__V1__DELETE_SANDBOX_REQUEST__INIT;
    Google__Protobuf__Timestamp not_after;
    struct berth_error why;
    int64_t left_ms;
    void *resp = NULL;
    enum berth_code code;

    if (!cp_begin_call(h, &left_ms, &not_after, err))
        return BERTH_ABORTED;
    req.target = h->config->target;
    req.sandbox_id = (char *)sandbox_id;
    req.fence = cp_lock_grant(h->lock)->fence;
    req.not_after_time = &not_after;
    code = cp_adapter_call(h, BACKEND "DeleteSandbox", &req.base,
                           &berth__backend__v1__delete_sandbox_response__descriptor, left_ms,
                           &resp, &why);
    berth_message_free(resp);
    if (code && !cp_says_gone(&why, sandbox_id)) {
        if (err)
            *err = why;
        return code;
    }
    return cp_step_gone(h, sandbox_id, err);
}

static enum plan_seen seen_of(const Sandbox *sandbox)
{
    switch (sandbox ? sandbox->state : 0) {
    case BERTH__COMMON__V1__SANDBOX_STATE__SANDBOX_STATE_RUNNING:
        return PLAN_SEEN_RUNNING;
    case BERTH__COMMON__V1__SANDBOX_STATE__SANDBOX_STATE_PAUSED:
        return PLAN_SEEN_PAUSED;
    case BERTH__COMMON__V1__SANDBOX_STATE__SANDBOX_STATE_TRANSITIONING:
        return PLAN_SEEN_TRANSITIONING;
    case BERTH__COMMON__V1__SANDBOX_STATE__SANDBOX_STATE_TERMINAL:
        return PLAN_SEEN_GONE;
    default:
        return PLAN_SEEN_UNKNOWN;
    }
}

static int64_t last_use_ms(const struct cp_holder *h, const Sandbox *sandbox)
{
    int64_t active_ms = berth_timestamp_ms(sandbox->last_active_time, 0);

    return h->calls_only ? berth_timestamp_ms(sandbox->last_call_time, active_ms) : active_ms;
}

enum berth_code cp_step_get(struct cp_holder *h, struct berth_error *err)
{
    GetSandboxRequest req = BERTH__BACKEND__V1__GET_SANDBOX_REQUEST__INIT;
    GetSandboxResponse *resp = NULL;
    struct berth_error why;
    enum berth_code code;

    req.target = h->config->target;
    req.sandbox_id = h->plan.sandbox_id;
    code = cp_adapter_call(h, BACKEND "GetSandbox", &req.base,
                           &berth__backend__v1__get_sandbox_response__descriptor,
                           CP_CALL_TIMEOUT_MS, &resp, &why);
    if (code && !cp_says_gone(&why, h->plan.sandbox_id)) {
        if (err)
            *err = why;
        return code;
    }
    h->plan.seen = code ? PLAN_SEEN_GONE : seen_of(resp->sandbox);
    if (!code && resp->sandbox && last_use_ms(h, resp->sandbox) > h->unless_active_after_ms)
        h->plan.used = true;
    berth_message_free(resp);
    return BERTH_OK;
}

enum berth_code cp_step_list(struct cp_holder *h, struct berth_error *err)
{
    int64_t list_ms = cp_holder_now_ms(h);
    enum berth_code code = cp_list_candidates(h, err);

    if (!code) {
        h->plan.listed = true;
        h->plan.list_ms = list_ms;
    }
    return code;
}

/* ------------------------------------------------------------- pause and keep */

enum berth_code cp_holder_pause(struct cp_holder *h, const char *sandbox_id, bool *ret_gone,
                                struct berth_error *err)
{
    PauseSandboxRequest req = BERTH__BACKEND__V1__PAUSE_SANDBOX_REQUEST__INIT;
    Google__Protobuf__Timestamp not_after;
    struct berth_error why;
    int64_t left_ms;
    void *resp = NULL;
    enum berth_code code;

    *ret_gone = false;
    if (!cp_begin_call(h, &left_ms, &not_after, err))
        return BERTH_ABORTED;
    req.target = h->config->target;
    req.sandbox_id = (char *)sandbox_id;
    req.fence = cp_lock_grant(h->lock)->fence;
    req.not_after_time = &not_after;
    code = cp_adapter_call(h, BACKEND "PauseSandbox", &req.base,
                           &berth__backend__v1__pause_sandbox_response__descriptor, left_ms,
                           &resp, &why);
    berth_message_free(resp);
    if (code && cp_says_gone(&why, sandbox_id)) {
        *ret_gone = true;
        return BERTH_OK;
    }
    if (code && err)
        *err = why;
    return code;
}

enum berth_code cp_pause_sandbox(struct cp_holder *h, struct berth_error *err)
{
    bool gone;
    enum berth_code code = cp_holder_pause(h, h->plan.sandbox_id, &gone, err);

    if (!code && gone)
        h->plan.seen = PLAN_SEEN_GONE;
    return code;
}

enum berth_code cp_step_rest(struct cp_holder *h, struct berth_error *err)
{
    CommitRequest done = BERTH__BINDING__V1__COMMIT_REQUEST__INIT;
    Binding change = BERTH__BINDING__V1__BINDING__INIT;

    h->outcome = CP_PAUSED;
    change.sandbox_id = h->plan.sandbox_id;
    change.fence = cp_lock_grant(h->lock)->fence;
    change.account = h->config->target->fingerprint;
    change.power = BERTH__BINDING__V1__POWER__POWER_PAUSED;
    done.change_case = BERTH__BINDING__V1__COMMIT_REQUEST__CHANGE_PATCH;
    done.patch = &change;
    return cp_holder_commit(h, &done, false, &h->bound, err);
}

enum berth_code cp_step_pause(struct cp_holder *h, bool *ret_done, struct berth_error *err)
{
    enum berth_code code = cp_pause_sandbox(h, err);

    if (code || h->plan.seen == PLAN_SEEN_GONE)
        return code;
    *ret_done = true;
    return cp_step_rest(h, err);
}

/* Binding hands it out no more. A call that was let in just before has started by the time of
 * the pause, and shows in its last use; or finds it paused, and resolves again. */
enum berth_code cp_step_still(struct cp_holder *h, struct berth_error *err)
{
    const Berth__Common__V1__PauseCapability *pause = h->config->info->capabilities->pause;
    enum berth_code code = BERTH_OK;

    if (!h->plan.paused && pause && pause->supported)
        code = cp_pause_sandbox(h, err);
    if (!code && h->plan.seen != PLAN_SEEN_GONE)
        code = cp_step_get(h, err);
    h->plan.stilled = !code;
    return code;
}

/* A stale sandbox whose workspace nobody can carry over stays in use; the turn's token names
 * it. Told once in a while, and once for each turn. */
enum berth_code cp_step_keep(struct cp_holder *h, struct berth_error *err)
{
    enum { TELL_EVERY_MS = 10 * 60 * 1000 };
    const Berth__Common__V1__SessionRef *ref = cp_lock_ref(h->lock);
    CommitRequest req = BERTH__BINDING__V1__COMMIT_REQUEST__INIT;
    Berth__Binding__V1__EventDraft draft = BERTH__BINDING__V1__EVENT_DRAFT__INIT;
    Berth__Binding__V1__EventDraft *drafts[] = {&draft};
    Binding change = BERTH__BINDING__V1__BINDING__INIT;
    int64_t tick = berth_tick_ms();

    change.sandbox_id = h->plan.sandbox_id;
    change.fence = cp_lock_grant(h->lock)->fence;
    change.account = h->config->target->fingerprint;
    change.power = h->grant->binding->power;
    draft.kind = (char *)"REBUILD_DEFERRED";
    req.change_case = BERTH__BINDING__V1__COMMIT_REQUEST__CHANGE_PATCH;
    req.patch = &change;
    req.turn_token = (char *)h->turn_token;
    req.events = drafts;
    req.n_events =
        *h->turn_token ||
        !cp_verified_since(h->cp->verified, "deferred", ref->tenant_id, ref->session_id,
                           h->plan.sandbox_id, tick - TELL_EVERY_MS);
    if (req.n_events)
        cp_verified_note(h->cp->verified, "deferred", ref->tenant_id, ref->session_id,
                         h->plan.sandbox_id, tick);
    h->outcome = CP_USED;
    return cp_holder_commit(h, &req, false, &h->bound, err);
}
