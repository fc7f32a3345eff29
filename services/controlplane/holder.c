/* holder.c - the executor: one step after the other until one of them ends the run. */
#include "services/controlplane/holder.h"

#include <stdio.h>

#include "common/log/log.h"
#include "common/messages/messages.h"
#include "common/time/time.h"
#include "services/controlplane/backend.h"
#include "services/controlplane/holder_steps.h"
#include "services/controlplane/names.h"
#include "services/controlplane/policy.h"

typedef Berth__Binding__V1__AcquireResponse AcquireResponse;
typedef Berth__Binding__V1__Binding Binding;
typedef Berth__Binding__V1__Intent Intent;

enum { STEPS_MAX = 512 };

/* ---------------------------------------------------------------- the grant */

static bool same_account(const struct cp_config *config, const ProtobufCBinaryData *account)
{
    const ProtobufCBinaryData *now = &config->target->fingerprint;

    return account->len == now->len && account->len > 0 &&
           memcmp(account->data, now->data, now->len) == 0;
}

static void read_attempt(uint8_t ret[PLAN_ATTEMPT_SIZE], const ProtobufCBinaryData *bytes)
{
    memset(ret, 0, PLAN_ATTEMPT_SIZE);
    if (bytes->len == PLAN_ATTEMPT_SIZE)
        memcpy(ret, bytes->data, PLAN_ATTEMPT_SIZE);
}

static enum plan_decision read_decision(Berth__Binding__V1__Decision decision)
{
    switch (decision) {
    case BERTH__BINDING__V1__DECISION__DECISION_REBUILD:
        return PLAN_DO_REBUILD;
    case BERTH__BINDING__V1__DECISION__DECISION_ADOPT_OR_CREATE:
        return PLAN_DO_CREATE;
    case BERTH__BINDING__V1__DECISION__DECISION_PAUSE:
        return PLAN_DO_PAUSE;
    case BERTH__BINDING__V1__DECISION__DECISION_DELETE:
        return PLAN_DO_DELETE;
    default:
        return PLAN_DO_VERIFY;
    }
}

static void read_intent(const struct cp_holder *h, const Intent *from, struct plan_intent *ret)
{
    *ret = (struct plan_intent){
        .kind = from->kind == BERTH__BINDING__V1__INTENT_KIND__INTENT_KIND_DELETE
                    ? PLAN_INTENT_DELETE
                : from->kind == BERTH__BINDING__V1__INTENT_KIND__INTENT_KIND_PAUSE
                    ? PLAN_INTENT_PAUSE
                    : PLAN_INTENT_CREATE,
        .same_account = same_account(h->config, &from->account),
        .not_after_ms = berth_timestamp_ms(from->not_after_time, 0),
    };
    read_attempt(ret->attempt, &from->attempt);
    snprintf(ret->sandbox_id, sizeof ret->sandbox_id, "%s", from->sandbox_id);
}

/* What condemns comes first: it must never be what did not fit. */
static void read_intents(struct cp_holder *h)
{
    const AcquireResponse *grant = h->grant;
    struct plan_intent intent;

    for (int deletes = 1; deletes >= 0; deletes--) {
        for (size_t i = 0; i < grant->n_intents; i++) {
            read_intent(h, grant->intents[i], &intent);
            if ((intent.kind == PLAN_INTENT_DELETE) != deletes)
                continue;
            if (h->plan.n_intents < PLAN_INTENTS_MAX)
                plan_note_intent(&h->plan, &intent);
            else if (deletes)
                h->plan.more_deletes = true;
            else
                h->plan.more_creates = true;
        }
    }
}

static void read_grant(struct cp_holder *h)
{
    const AcquireResponse *grant = h->grant;
    struct cp_policy policy;
    struct plan_state *plan = &h->plan;

    *plan = (struct plan_state){
        .want = h->want,
        .decision = read_decision(grant->decision),
        .keyed = grant->keyed_create,
        .cordoned = grant->cordoned,
        .create_horizon_ms = h->config->doc.create_horizon_ms,
        .must_carry = h->config->settings->workspace_on_rebuild !=
                      BERTH__CONTROL__V1__WORKSPACE_ON_REBUILD__WORKSPACE_ON_REBUILD_DROP,
        .can_carry = h->cp->mover != NULL,
        .auto_resume = true,
        .ends_soon = h->ends_soon_ms > 0,
        .can_pause = h->config->info->capabilities->pause &&
                     h->config->info->capabilities->pause->supported,
    };
    if (h->other_sandbox_id)
        snprintf(plan->other_id, sizeof plan->other_id, "%s", h->other_sandbox_id);
    read_attempt(plan->attempt, &grant->lock->token);
    h->clock_ms = berth_timestamp_ms(grant->lock->read_time, berth_now_ms());
    h->clock_tick = berth_tick_ms();
    if (!cp_policy_resolve(h->config->settings, grant->session ? grant->session->spec : NULL,
                           h->config->info->capabilities, &policy, NULL)) {
        plan->auto_resume =
            policy.timeouts->auto_resume != BERTH__COMMON__V1__SWITCH__SWITCH_CLOSED;
        cp_policy_deinit(&policy);
    }
    if (grant->binding) {
        plan->bound = true;
        plan->same_account = same_account(h->config, &grant->binding->account);
        plan->paused = grant->binding->power == BERTH__BINDING__V1__POWER__POWER_PAUSED;
        plan->running = grant->binding->power == BERTH__BINDING__V1__POWER__POWER_RUNNING &&
                        strcmp(grant->binding->sandbox_id, h->failed_sandbox_id) != 0;
        snprintf(plan->sandbox_id, sizeof plan->sandbox_id, "%s", grant->binding->sandbox_id);
    }
    read_intents(h);
    if (h->n_found > 0)
        cp_take_candidates(h);
}

/* ------------------------------------------------------------------- steps */

static enum berth_code run_step(struct cp_holder *h, const struct plan_step *step,
                                bool *ret_done, struct berth_error *err)
{
    switch (step->kind) {
    case PLAN_STEP_FAIL:
        (void)berth_fail(err, step->reason, NULL);
        BERTH_ERROR_SET(err, sandbox_id, h->plan.sandbox_id);
        if (err)
            err->retry_after_ms = step->retry_after_ms;
        return err ? err->code : BERTH_INTERNAL;
    case PLAN_STEP_NOTHING_BOUND:
        h->outcome = CP_NOTHING_BOUND;
        *ret_done = true;
        return BERTH_OK;
    case PLAN_STEP_KEEP:
        *ret_done = true;
        return cp_step_keep(h, err);
    case PLAN_STEP_CONDEMN:
        return cp_step_condemn(h, step->sandbox_id, err);
    case PLAN_STEP_DELETE:
        return cp_step_delete(h, step->sandbox_id, err);
    case PLAN_STEP_LIST:
        return cp_step_list(h, err);
    case PLAN_STEP_SETTLE:
        return cp_step_settle(h, step->attempt, step->landed, err);
    case PLAN_STEP_GET:
        return cp_step_get(h, err);
    case PLAN_STEP_GONE:
        return cp_step_gone(h, step->sandbox_id, err);
    case PLAN_STEP_CONNECT:
        return cp_step_connect(h, ret_done, err);
    case PLAN_STEP_ADOPT:
        return cp_step_adopt(h, step->sandbox_id, ret_done, err);
    case PLAN_STEP_INTEND_CREATE:
        return cp_step_intend(h, PLAN_INTENT_CREATE, "", err);
    case PLAN_STEP_CREATE:
        return cp_step_create(h, ret_done, err);
    case PLAN_STEP_INTEND_PAUSE:
        return cp_step_intend(h, PLAN_INTENT_PAUSE, step->sandbox_id, err);
    case PLAN_STEP_PAUSE:
        return cp_step_pause(h, ret_done, err);
    case PLAN_STEP_TOMBSTONE:
        *ret_done = true;
        h->outcome = CP_DELETED;
        return cp_step_tombstone(h, err);
    case PLAN_STEP_STILL:
        return cp_step_still(h, err);
    case PLAN_STEP_REST:
        *ret_done = true;
        return cp_step_rest(h, err);
    case PLAN_STEP_EXPORT:
        return cp_step_export(h, err);
    case PLAN_STEP_REAPED:
        h->outcome = CP_REAPED;
        *ret_done = true;
        return BERTH_OK;
    case PLAN_STEP_NOTE:
        *ret_done = true;
        return cp_step_note(h, err);
    case PLAN_STEP_STILL_OTHER:
        return cp_step_still_other(h, step->sandbox_id, err);
    case PLAN_STEP_TELL_OTHER:
        *ret_done = true;
        return cp_step_tell_other(h, step->sandbox_id, err);
    }
    return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "unknown step");
}

static bool anything_condemned(const struct cp_holder *h)
{
    for (size_t i = 0; i < h->plan.n_intents; i++)
        if (h->plan.intents[i].kind == PLAN_INTENT_DELETE)
            return true;
    return false;
}

static enum berth_code run_steps(struct cp_holder *h, struct berth_error *err)
{
    bool done = false;

    for (int i = 0; i < STEPS_MAX; i++) {
        struct plan_step step;
        enum berth_code code;

        if (cp_lock_left_ms(h->lock) == 0)
            return berth_fail(err, BERTH_REASON_LOCK_LOST, NULL);
        if (h->doomed && !anything_condemned(h))
            return berth_fail(err, h->doomed, NULL);
        h->plan.now_ms = cp_holder_now_ms(h);
        step = plan_next(&h->plan);
        berth_debug("holder step", "session", cp_lock_ref(h->lock)->session_id, "step",
                    plan_step_name(step.kind), "sandbox", step.sandbox_id);
        code = run_step(h, &step, &done, err);
        if (code || done)
            return code;
    }
    return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "the holder does not come to an end");
}

enum berth_code cp_holder_run(struct cp_holder *h, struct berth_error *err)
{
    enum berth_code code;

    read_grant(h);
    if (h->grant->loss && !(h->loss = berth_message_copy(h->grant->loss)))
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    else
        code = run_steps(h, err);
    if (!h->released)
        cp_release(h->cp, cp_lock_ref(h->lock), cp_lock_grant(h->lock), !h->create_sent);
    return code;
}

void cp_holder_deinit(struct cp_holder *h)
{
    h->bound = berth_message_free(h->bound);
    h->loss = berth_message_free(h->loss);
}

/* ------------------------------------------------------------------ release */

static void released(void *arg, enum berth_code code, ProtobufCMessage *resp,
                     const struct berth_error *err)
{
    struct cp *cp = arg;

    if (code && code != BERTH_ABORTED) /* it runs out by itself */
        berth_warn("a lock was not given back, it runs out by itself", "error", err->text);
    berth_message_free(resp);
    atomic_fetch_sub(&cp->background, 1);
}

void cp_release(struct cp *cp, const Berth__Common__V1__SessionRef *ref,
                const Berth__Binding__V1__Lock *lock, bool never_sent)
{
    struct berth_call_options options = {.timeout_ms = CP_CALL_TIMEOUT_MS};
    Berth__Binding__V1__AbortRequest abort = BERTH__BINDING__V1__ABORT_REQUEST__INIT;
    Berth__Binding__V1__CommitRequest settle = BERTH__BINDING__V1__COMMIT_REQUEST__INIT;

    atomic_fetch_add(&cp->background, 1);
    if (never_sent) {
        settle.session = (Berth__Common__V1__SessionRef *)ref;
        settle.lock = (Berth__Binding__V1__Lock *)lock;
        settle.change_case = BERTH__BINDING__V1__COMMIT_REQUEST__CHANGE_SETTLED_ATTEMPT;
        settle.settled_attempt = lock->token;
        berth_channel_call_async(cp->binding, "/berth.binding.v1.BindingService/Commit",
                                 &settle.base, &berth__binding__v1__commit_response__descriptor,
                                 &options, cp->runtime->pool, released, cp);
        return;
    }
    abort.session = (Berth__Common__V1__SessionRef *)ref;
    abort.lock = (Berth__Binding__V1__Lock *)lock;
    berth_channel_call_async(cp->binding, "/berth.binding.v1.BindingService/Abort", &abort.base,
                             &berth__binding__v1__abort_response__descriptor, &options,
                             cp->runtime->pool, released, cp);
}
