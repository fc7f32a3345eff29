/* acquire.c - the Acquire call, and the callers that wait for a lock. */
#include "services/binding/binding.h"

#include <stdio.h>

#include "common/records/keys.h"
#include "common/time/time.h"
#include "services/binding/decode.h"
#include "services/binding/encode.h"

enum {
    GIVE_UP_EARLY_MS = 100, /* before the caller's deadline, so that it hears why */
    TRIES_MAX = 64,
};

/* One Acquire. While it waits it is owned by park, and its call is referenced. */
struct acquire {
    struct binding_waiter waiter; /* first, so that one is the other */
    struct berth_call *call;
    struct binding_acquire_request req; /* strings borrowed from the call's request */
    bool must_queue;                    /* others wait already: no overtaking */
};

static enum berth_code rule(void *arg, struct binding_view *view, struct binding_plan *plan,
                            struct berth_error *err)
{
    const struct acquire *acquire = arg;

    return binding_acquire(view, &acquire->req.want, plan, err);
}

/* A newcomer that would be granted the lock goes behind those who wait for it. */
static enum berth_code polite_rule(void *arg, struct binding_view *view,
                                   struct binding_plan *plan, struct berth_error *err)
{
    const struct acquire *acquire = arg;
    enum berth_code code = binding_acquire(view, &acquire->req.want, plan, err);
    bool granted = !code && plan->decision != BINDING_USE && plan->decision != BINDING_NONE &&
                   plan->decision != BINDING_DECIDE_WAIT;

    if (!granted || !acquire->must_queue)
        return code;
    view->doc.dirty = 0; /* undo: the view is only good for waiting from here on */
    binding_plan_deinit(plan);
    plan->decision = BINDING_DECIDE_WAIT;
    return BERTH_OK;
}

static void count(struct binding *binding, enum binding_decision decision)
{
    if (decision == BINDING_USE || decision == BINDING_NONE)
        atomic_fetch_add(&binding->n_used, 1);
    else if (decision != BINDING_DECIDE_WAIT)
        atomic_fetch_add(&binding->n_granted, 1);
}

static const char *key_of(char buf[BERTH_KEY_MAX], const struct binding_ref *ref)
{
    return berth_key_session(buf, ref->tenant_id, ref->session_id);
}

void binding_wake(struct binding *binding, const struct binding_ref *ref)
{
    char key[BERTH_KEY_MAX];

    binding_park_kick(binding->park, key_of(key, ref));
}

static int64_t give_up_tick(const struct binding *binding, const struct berth_call *call)
{
    int64_t left_ms = berth_call_left_ms(call);
    int64_t early_ms = left_ms / 4 < GIVE_UP_EARLY_MS ? left_ms / 4 : GIVE_UP_EARLY_MS;

    left_ms =
        left_ms - early_ms < binding->max_wait_ms ? left_ms - early_ms : binding->max_wait_ms;
    return berth_tick_ms() + left_ms;
}

static enum berth_code wait_for_lock(struct binding *binding, struct acquire *acquire,
                                     struct berth_error *err)
{
    bool must_queue = acquire->must_queue; /* acquire may be gone once it is parked */
    char key[BERTH_KEY_MAX];
    enum berth_code code;

    acquire->waiter.give_up_tick = give_up_tick(binding, acquire->call);
    berth_call_ref(acquire->call);
    code =
        binding_park_add(binding->park, key_of(key, &acquire->req.ref), &acquire->waiter, err);
    if (code) {
        berth_call_unref(acquire->call);
        free(acquire);
        return code;
    }
    atomic_fetch_add(&binding->n_waited, 1);
    if (must_queue)
        binding_park_kick(binding->park, key);
    return BERTH_DEFERRED;
}

enum berth_code binding_rpc_acquire(void *service, struct berth_call *call,
                                    const ProtobufCMessage *req, ProtobufCMessage **ret_resp,
                                    struct berth_error *err)
{
    struct binding *binding = service;
    struct acquire *acquire = calloc(1, sizeof *acquire);
    struct binding_view view;
    struct binding_plan plan = {0};
    enum binding_decision decision;
    char key[BERTH_KEY_MAX];
    enum berth_code code;

    if (!acquire)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    acquire->call = call;
    code = binding_decode_acquire((const Berth__Binding__V1__AcquireRequest *)req,
                                  &acquire->req, err);
    if (!code) {
        /* A delete is heard at once, so that nothing new begins. */
        acquire->must_queue = acquire->req.want.kind != BINDING_WANT_DELETE &&
                              binding_park_has(binding->park, key_of(key, &acquire->req.ref));
        code = binding_store_run(binding->store, &acquire->req.ref, polite_rule, acquire, &view,
                                 &plan, err);
    }
    if (code) {
        free(acquire);
        return code;
    }
    decision = plan.decision;
    count(binding, decision);
    if (decision != BINDING_DECIDE_WAIT)
        code = binding_encode_acquire(&acquire->req.ref, &view, &plan,
                                      acquire->req.want.turn_token, ret_resp, err);
    binding_plan_deinit(&plan);
    binding_view_deinit(&view);
    if (decision == BINDING_DECIDE_WAIT)
        return wait_for_lock(binding, acquire, err);
    free(acquire);
    return code;
}

/* ---------------------------------------------------------------- those who wait */

static void answer(struct binding *binding, struct acquire *acquire, enum berth_code code,
                   ProtobufCMessage *resp, const struct berth_error *err)
{
    if (code && err->reason == BERTH_REASON_LOCK_WAIT)
        atomic_fetch_add(&binding->n_gave_up, 1);
    berth_call_answer(acquire->call, code, resp, err);
    free(acquire);
}

/* Is there no point in looking for this one any more? */
static enum berth_code is_over(struct binding *binding, const struct acquire *acquire,
                               struct berth_error *err)
{
    if (berth_call_cancelled(acquire->call))
        return berth_fail(err, BERTH_REASON_CANCELLED, NULL);
    if (binding->server && berth_server_stopping(binding->server))
        return berth_fail(err, BERTH_REASON_DRAINING, NULL);
    if (berth_tick_ms() >= acquire->waiter.give_up_tick)
        return berth_fail(err, BERTH_REASON_LOCK_WAIT, NULL);
    return BERTH_OK;
}

/* What all waiters of a session share during one look: read once. */
struct shared_view {
    struct binding_view view;
    bool read;
};

static void forget_view(struct shared_view *shared)
{
    if (shared->read)
        binding_view_deinit(&shared->view);
    shared->read = false;
}

/* *ret_wait: it has to go on waiting. */
static enum berth_code decide(struct binding *binding, struct acquire *acquire,
                              struct shared_view *shared, bool *ret_wait,
                              ProtobufCMessage **ret_resp, struct berth_error *err)
{
    const struct binding_ref *ref = &acquire->req.ref;
    struct binding_plan plan = {0};
    enum berth_code code = BERTH_OK;
    bool again = true;

    *ret_wait = false;
    /* Where a config would be chosen for a new record, it is this caller's. */
    if (shared->read && shared->view.doc.session.state != BINDING_STATE_ACTIVE)
        forget_view(shared);
    if (!shared->read) {
        code = binding_store_read(binding->store, ref, &shared->view, err);
        if (code)
            return code;
        shared->read = true;
    }
    shared->view.session_id = ref->session_id;
    for (int i = 0; !code && again && i < TRIES_MAX; i++)
        code = binding_store_decide(binding->store, ref, &shared->view, rule, acquire, &plan,
                                    &again, err);
    if (!code && again)
        code = berth_fail(err, BERTH_REASON_CONFLICT, NULL);
    if (code) {
        forget_view(shared);
        return code;
    }
    *ret_wait = plan.decision == BINDING_DECIDE_WAIT;
    count(binding, plan.decision);
    if (!*ret_wait)
        code = binding_encode_acquire(ref, &shared->view, &plan, acquire->req.want.turn_token,
                                      ret_resp, err);
    binding_plan_deinit(&plan);
    return code;
}

/* The view must not outlive the request that its session_id is borrowed from; it is dropped at
 * the end of the look, while between two waiters it takes the next one's. */
struct binding_waiter *binding_look(void *ctx, const char *key, struct binding_waiter *waiters)
{
    struct binding *binding = ctx;
    struct shared_view shared = {.read = false};
    struct binding_waiter *left = NULL, **end = &left;

    (void)key;
    while (waiters) {
        struct acquire *acquire = (struct acquire *)waiters;
        ProtobufCMessage *resp = NULL;
        struct berth_error err = {0};
        bool wait = false;
        enum berth_code code;

        waiters = waiters->next;
        code = is_over(binding, acquire, &err);
        if (!code)
            code = decide(binding, acquire, &shared, &wait, &resp, &err);
        if (wait) {
            acquire->waiter.next = NULL;
            *end = &acquire->waiter;
            end = &acquire->waiter.next;
        } else {
            answer(binding, acquire, code, resp, &err);
        }
    }
    forget_view(&shared);
    return left;
}
