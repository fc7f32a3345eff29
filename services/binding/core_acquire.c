/* core_acquire.c - what a caller may do with a session: use it at once, take the lock for
 * something, or wait. */
#include "services/binding/core.h"

#include <stdio.h>

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Nothing a caller could be handed: no binding, or a condemned one. */
static bool nothing_bound(const struct binding_doc *doc)
{
    return !doc->bound.set || binding_condemned(doc, doc->bound.sandbox_id);
}

static bool is_failed(const struct binding_doc *doc, const struct binding_want *want)
{
    return want->failed_sandbox_id[0] && doc->bound.set &&
           strcmp(doc->bound.sandbox_id, want->failed_sandbox_id) == 0;
}

/* --------------------------------------------------------------- before the lock */

static enum berth_code check_tenant(const struct binding_view *view,
                                    const struct binding_want *want, struct berth_error *err)
{
    if (!view->tenant.exists)
        return berth_fail(err, BERTH_REASON_TENANT_NOT_FOUND, NULL);
    /* What frees or settles goes on for a disabled tenant. */
    if (view->tenant.disabled &&
        (want->kind == BINDING_WANT_ENSURE || want->kind == BINDING_WANT_EXISTING ||
         want->kind == BINDING_WANT_RESUME))
        return berth_fail(err, BERTH_REASON_TENANT_DISABLED, NULL);
    return BERTH_OK;
}

static enum berth_code check_record(const struct binding_view *view,
                                    const struct binding_want *want, struct berth_error *err)
{
    switch (view->doc.session.state) {
    case BINDING_STATE_NONE:
        if ((want->kind == BINDING_WANT_ENSURE && !want->must_exist) ||
            want->kind >= BINDING_WANT_REAP)
            return BERTH_OK;
        return berth_fail(err, BERTH_REASON_SESSION_NOT_FOUND, NULL);
    case BINDING_STATE_DELETED:
        if (want->kind >= BINDING_WANT_REAP ||
            (want->kind == BINDING_WANT_ENSURE && want->recreate))
            return BERTH_OK;
        if (want->kind == BINDING_WANT_ENSURE)
            return berth_fail(err, BERTH_REASON_SESSION_DELETED, "the session was deleted");
        return berth_fail(err, BERTH_REASON_SESSION_NOT_FOUND, NULL);
    case BINDING_STATE_DELETING:
        if (want->kind == BINDING_WANT_DELETE || want->kind >= BINDING_WANT_REAP)
            return BERTH_OK;
        return berth_fail(err, BERTH_REASON_SESSION_DELETED, "the session is being deleted");
    default:
        if (want->must_be_new)
            return berth_fail(err, BERTH_REASON_SESSION_EXISTS, NULL);
        return BERTH_OK;
    }
}

/* The config that a new session is to be pinned to. */
static enum berth_code check_new_config(const struct binding_view *view,
                                        struct berth_error *err)
{
    if (view->tenant.recovering)
        return berth_fail(err, BERTH_REASON_INDEX_RECOVERING,
                          "a config of the tenant could not be listed yet");
    if (!view->config_id[0])
        return berth_fail(err, BERTH_REASON_CONFIG_NOT_FOUND,
                          "no config named, and the tenant has no default");
    if (!view->config.exists || strcmp(view->config.state, "deleting") == 0)
        return berth_fail(err, BERTH_REASON_CONFIG_NOT_FOUND, "no config '%s'",
                          view->config_id);
    if (binding_cordoned(view))
        return berth_fail(err, BERTH_REASON_CONFIG_CORDONED, "config '%s' is cordoned",
                          view->config_id);
    return BERTH_OK;
}

/* A resolve with a turn's token renews it, but writes only when half the lease is gone. */
static enum berth_code keep_turn(struct binding_view *view, const struct binding_want *want,
                                 struct berth_error *err)
{
    struct binding_token *token = NULL;
    enum berth_code code;

    if (!want->turn_token[0])
        return BERTH_OK;
    code = binding_check_turn(view, want->turn_token, &token, err);
    if (!code && !token)
        code = binding_believe_turn(view, want->turn_token, &token, err);
    if (code)
        return code;
    if (token->deadline_ms - view->now_ms < token->lease_ms / 2) {
        token->deadline_ms = view->now_ms + token->lease_ms;
        binding_doc_touch(&view->doc, BINDING_PART_TURNS);
    }
    if (binding_believe_use(view, token))
        binding_doc_touch(&view->doc, BINDING_PART_TURNS);
    return BERTH_OK;
}

/* ------------------------------------------------------------------------ grants */

/* The lock, under the caller's attempt. Fences never go back, whatever the clock does. */
static void take_lock(struct binding_view *view, const struct binding_want *want,
                      enum binding_decision op)
{
    struct binding_doc *doc = &view->doc;
    struct binding_lock *lock = &doc->lock;
    uint64_t fence = max_u64(doc->fence, want->seen_fence);

    fence = max_u64(fence, view->now_ms > 0 ? (uint64_t)view->now_ms : 0);
    if (doc->bound.set)
        fence = max_u64(fence, doc->bound.fence);
    for (size_t i = 0; i < doc->n_intents; i++)
        fence = max_u64(fence, doc->intents[i].fence);

    doc->fence = fence + 1;
    json_decref(lock->json);
    *lock = (struct binding_lock){.set = true};
    lock->op = op;
    lock->want = want->kind;
    lock->fence = doc->fence;
    lock->lease_ms = view->limits->lock_ms;
    lock->until_ms = view->now_ms + lock->lease_ms;
    snprintf(lock->token, sizeof lock->token, "%s", want->attempt);
    snprintf(lock->owner, sizeof lock->owner, "%s", want->owner);
    binding_doc_touch(doc, BINDING_PART_LOCK);
    binding_doc_touch(doc, BINDING_PART_FENCE);
}

/* An intent of the lock just taken. */
static enum berth_code add_intent(struct binding_view *view, enum binding_intent_kind kind,
                                  const char *sandbox_id, const char *account,
                                  struct berth_error *err)
{
    struct binding_doc *doc = &view->doc;
    struct binding_intent *intent;
    enum berth_code code = binding_doc_add_intent(doc, &intent, err);

    if (code)
        return code;
    intent->kind = kind;
    intent->fence = doc->lock.fence;
    intent->not_after_ms = doc->lock.until_ms;
    snprintf(intent->attempt, sizeof intent->attempt, "%s", doc->lock.token);
    snprintf(intent->sandbox_id, sizeof intent->sandbox_id, "%s", sandbox_id);
    snprintf(intent->account, sizeof intent->account, "%s", account);
    return BERTH_OK;
}

static enum berth_code condemn(struct binding_view *view, const char *sandbox_id,
                               const char *account, enum binding_why why,
                               struct berth_error *err)
{
    enum berth_code code;

    if (binding_condemned(&view->doc, sandbox_id))
        return BERTH_OK;
    code = add_intent(view, BINDING_INTENT_DELETE, sandbox_id, account, err);
    if (!code)
        view->doc.intents[view->doc.n_intents - 1].why = why;
    return code;
}

static enum berth_code refuse_quarantine(const struct binding_view *view,
                                         struct berth_error *err)
{
    if (view->quarantine)
        return berth_fail(err, BERTH_REASON_QUARANTINE, NULL);
    return BERTH_OK;
}

/* A record for a session that has none, or whose tombstone gives way. Fence and intents of a
 * tombstone are inherited. */
static enum berth_code make_record(struct binding_view *view, const struct binding_want *want,
                                   struct binding_plan *plan, struct berth_error *err)
{
    static const Berth__Common__V1__SessionSpec empty = BERTH__COMMON__V1__SESSION_SPEC__INIT;
    struct binding_session *s = &view->doc.session;
    const Berth__Common__V1__SessionSpec *spec = want->spec_if_new ? want->spec_if_new : &empty;
    enum berth_code code;

    if (s->config_id[0] && spec->config_id[0] && strcmp(s->config_id, spec->config_id) != 0)
        return berth_fail(err, BERTH_REASON_CREATE_UNSETTLED,
                          "backend calls of the deleted session are not settled at '%s'",
                          s->config_id);
    code = binding_doc_set_spec(&view->doc, spec, view->config_id, err);
    if (code)
        return code;
    s->state = BINDING_STATE_ACTIVE;
    s->create_ms = view->now_ms;
    s->deleting_ms = 0;
    s->version = 1;
    s->never_bound = true;
    binding_doc_drop_loss(&view->doc);
    binding_doc_drop_carry(&view->doc);
    snprintf(s->config_id, sizeof s->config_id, "%s", view->config_id);
    snprintf(s->created_by, sizeof s->created_by, "%s", want->created_by);
    snprintf(s->alias, sizeof s->alias, "%s", want->new_alias);
    binding_doc_touch(&view->doc, BINDING_PART_CONFIG);
    view->doc.active_ms = view->now_ms;
    binding_doc_touch(&view->doc, BINDING_PART_TURNS);
    plan->index_add = true;
    plan->pins_config = true;
    plan->persist = view->doc.rev[0] != '\0';
    return BERTH_OK;
}

static bool same_spec(const Berth__Common__V1__SessionSpec *have,
                      const Berth__Common__V1__SessionSpec *given)
{
    Berth__Common__V1__SessionSpec pinned = *given;
    size_t size = berth__common__v1__session_spec__get_packed_size(have);
    BERTH_AUTO(free) uint8_t *one = NULL, *other = NULL;

    pinned.config_id = have->config_id;
    if (berth__common__v1__session_spec__get_packed_size(&pinned) != size)
        return false;
    one = malloc(size + 1);
    other = malloc(size + 1);
    if (!one || !other)
        return false;
    berth__common__v1__session_spec__pack(have, one);
    berth__common__v1__session_spec__pack(&pinned, other);
    return memcmp(one, other, size) == 0;
}

/* A session that never had a sandbox, and for which none can be on its way, takes the spec of
 * whoever creates now: what an earlier caller got wrong must not stick. Its config stays. */
static enum berth_code take_spec(struct binding_view *view, const struct binding_want *want,
                                 struct berth_error *err)
{
    struct binding_session *s = &view->doc.session;
    const Berth__Common__V1__SessionSpec *spec = want->spec_if_new;
    enum berth_code code;

    if (!spec || !s->never_bound || view->doc.bound.set || view->doc.n_intents ||
        (spec->config_id[0] && strcmp(spec->config_id, s->config_id) != 0) ||
        same_spec(s->spec, spec))
        return BERTH_OK;
    code = binding_doc_set_spec(&view->doc, spec, s->config_id, err);
    if (!code)
        s->version++;
    return code;
}

static enum berth_code grant_create(struct binding_view *view, const struct binding_want *want,
                                    struct binding_plan *plan, struct berth_error *err)
{
    enum berth_code code = refuse_quarantine(view, err);

    if (code)
        return code;
    if (view->doc.session.state != BINDING_STATE_ACTIVE) {
        code = check_new_config(view, err);
        if (!code)
            code = make_record(view, want, plan, err);
    } else if (!view->config.exists) {
        code =
            berth_fail(err, BERTH_REASON_CONFIG_NOT_FOUND, "no config '%s'", view->config_id);
    } else {
        code = take_spec(view, want, err);
    }
    if (!code)
        code = binding_check_calls_out(view, err);
    /* A turn that is believed now may not be any more when its sandbox is bound. */
    if (!code)
        code = keep_turn(view, want, err);
    if (code)
        return code;
    take_lock(view, want, BINDING_ADOPT_OR_CREATE);
    if (view->config.keyed_create)
        code = add_intent(view, BINDING_INTENT_CREATE, "", view->config.account, err);
    plan->needs_whole = true;
    plan->begins = true;
    plan->decision = BINDING_ADOPT_OR_CREATE;
    return code;
}

static enum berth_code grant_use(struct binding_view *view, const struct binding_want *want,
                                 struct binding_plan *plan, struct berth_error *err)
{
    if (nothing_bound(&view->doc)) {
        plan->decision = BINDING_NONE;
        return BERTH_OK;
    }
    take_lock(view, want, BINDING_VERIFY);
    plan->decision = BINDING_VERIFY;
    return keep_turn(view, want, err);
}

static enum berth_code grant_ensure(struct binding_view *view, const struct binding_want *want,
                                    struct binding_plan *plan, struct berth_error *err)
{
    if (nothing_bound(&view->doc))
        return grant_create(view, want, plan, err);
    if (binding_stale(view) && !binding_protected(view)) {
        /* No intent yet: the holder condemns once the workspace is exported. */
        take_lock(view, want, BINDING_REBUILD);
        plan->needs_whole = true;
        plan->begins = true;
        plan->decision = BINDING_REBUILD;
        return BERTH_OK;
    }
    return grant_use(view, want, plan, err);
}

static enum berth_code grant_pause(struct binding_view *view, const struct binding_want *want,
                                   struct binding_plan *plan, struct berth_error *err)
{
    struct binding_bound *bound = &view->doc.bound;

    if (nothing_bound(&view->doc)) {
        plan->decision = BINDING_NONE;
        return BERTH_OK;
    }
    take_lock(view, want, BINDING_PAUSE);
    bound->power = BINDING_PAUSING;
    binding_doc_touch(&view->doc, BINDING_PART_BINDING);
    plan->decision = BINDING_PAUSE;
    return add_intent(view, BINDING_INTENT_PAUSE, bound->sandbox_id, bound->account, err);
}

static enum berth_code grant_delete(struct binding_view *view, const struct binding_want *want,
                                    struct binding_plan *plan, struct berth_error *err)
{
    take_lock(view, want, BINDING_DELETE);
    plan->decision = BINDING_DELETE;
    if (!view->doc.bound.set)
        return BERTH_OK;
    return condemn(view, view->doc.bound.sandbox_id, view->doc.bound.account,
                   BINDING_WHY_NOT_SAID, err);
}

/* Positive evidence that the sandbox may go; never an absence. */
static bool may_reap(const struct binding_view *view, const struct binding_want *want)
{
    const struct binding_doc *doc = &view->doc;
    const struct binding_bound *bound = &doc->bound;
    const char *id = want->reap_sandbox_id;

    if (binding_condemned(doc, id))
        return true;
    if (doc->session.state == BINDING_STATE_DELETING ||
        doc->session.state == BINDING_STATE_DELETED)
        return true;
    if (!bound->set || binding_named(view, id, 0))
        return false;
    if (strcmp(bound->sandbox_id, id) != 0)
        return bound->account[0] && strcmp(bound->account, want->reap_account) == 0;
    return want->unless_active_after_ms && doc->active_ms <= want->unless_active_after_ms &&
           !binding_protected(view) && !binding_turn_running(view);
}

static enum berth_code grant_reap(struct binding_view *view, const struct binding_want *want,
                                  struct binding_plan *plan, struct berth_error *err)
{
    enum berth_code code;

    if (!may_reap(view, want)) {
        plan->decision = BINDING_NONE;
        return BERTH_OK;
    }
    code = refuse_quarantine(view, err);
    if (code)
        return code;
    take_lock(view, want, BINDING_DELETE);
    plan->decision = BINDING_DELETE;
    plan->needs_whole = true;
    /* A settled tombstone has no config any more: that of the sandbox has the account. */
    if (!view->doc.session.config_id[0]) {
        snprintf(view->doc.session.config_id, sizeof view->doc.session.config_id, "%s",
                 view->config_id);
        binding_doc_touch(&view->doc, BINDING_PART_CONFIG);
    }
    return condemn(view, want->reap_sandbox_id, want->reap_account, BINDING_WHY_REAPED, err);
}

/* What is found by its tags is bound; the lock cannot create. A cordon does not matter: nothing
 * new is made. While the index recovers this is how it does. */
static enum berth_code grant_adopt(struct binding_view *view, const struct binding_want *want,
                                   struct binding_plan *plan, struct berth_error *err)
{
    enum berth_code code;

    if (!binding_may_adopt(view)) {
        plan->decision = BINDING_NONE;
        return BERTH_OK;
    }
    code = refuse_quarantine(view, err);
    if (!code && (!view->config.exists || strcmp(view->config.state, "deleting") == 0))
        code =
            berth_fail(err, BERTH_REASON_CONFIG_NOT_FOUND, "no config '%s'", view->config_id);
    if (!code)
        code = binding_check_calls_out(view, err);
    if (!code && view->doc.session.state == BINDING_STATE_NONE)
        code = make_record(view, want, plan, err);
    if (code)
        return code;
    take_lock(view, want, BINDING_ADOPT_OR_CREATE);
    plan->decision = BINDING_ADOPT_OR_CREATE;
    return BERTH_OK;
}

/* Nothing is handed out from here on; the holder looks once more whether it is used. */
static enum berth_code grant_idle(struct binding_view *view, const struct binding_want *want,
                                  struct binding_plan *plan, struct berth_error *err)
{
    if (!binding_may_idle(view, want)) {
        plan->decision = BINDING_NONE;
        return BERTH_OK;
    }
    plan->needs_whole = true;
    if (view->doc.bound.power != BINDING_PAUSED)
        return grant_pause(view, want, plan, err);
    take_lock(view, want, BINDING_PAUSE);
    plan->decision = BINDING_PAUSE;
    return BERTH_OK;
}

/* A look under the lock. What came of it says the holder. */
static enum berth_code grant_look(struct binding_view *view, const struct binding_want *want,
                                  struct binding_plan *plan, struct berth_error *err)
{
    bool still = want->kind == BINDING_WANT_STILL;
    enum berth_code code = still ? refuse_quarantine(view, err) : BERTH_OK;

    if (code)
        return code;
    plan->decision = BINDING_NONE;
    if (still ? !binding_may_still(view, want) : !binding_may_observe(view, want))
        return BERTH_OK;
    take_lock(view, want, BINDING_VERIFY);
    plan->decision = BINDING_VERIFY;
    plan->needs_whole = still;
    return BERTH_OK;
}

/* ------------------------------------------------------------------------ Acquire */

/* The same attempt again: its answer was lost. */
static enum berth_code repeat(struct binding_view *view, struct binding_plan *plan,
                              struct berth_error *err)
{
    struct binding_lock *lock = &view->doc.lock;

    if (lock->done)
        return berth_fail(err, BERTH_REASON_LOCK_LOST, "this attempt has ended");
    /* Written again, so that a grant whose answer was "not confirmed" is confirmed by this. */
    lock->until_ms = view->now_ms + lock->lease_ms;
    binding_doc_touch(&view->doc, BINDING_PART_LOCK);
    plan->durable = true;
    plan->decision = lock->op;
    return BERTH_OK;
}

/* Bound, running, neither condemned nor reported as failed, and not to be rebuilt now. */
static bool may_use(const struct binding_view *view, const struct binding_want *want)
{
    const struct binding_doc *doc = &view->doc;

    if (want->kind != BINDING_WANT_ENSURE && want->kind != BINDING_WANT_EXISTING)
        return false;
    if (nothing_bound(doc) || doc->bound.power != BINDING_RUNNING || is_failed(doc, want))
        return false;
    return want->kind == BINDING_WANT_EXISTING || !binding_stale(view) ||
           binding_protected(view);
}

static enum berth_code use(struct binding_view *view, const struct binding_want *want,
                           struct binding_plan *plan, struct berth_error *err)
{
    enum berth_code code = keep_turn(view, want, err);

    if (code)
        return code;
    if (want->kind == BINDING_WANT_ENSURE)
        binding_name_tokens(view, want->turn_token, view->doc.bound.sandbox_id);
    if (view->doc.dirty & 1U << BINDING_PART_TURNS)
        view->doc.active_ms = view->now_ms;
    plan->durable = view->doc.dirty != 0;
    plan->decision = BINDING_USE;
    return BERTH_OK;
}

/* State DELETING is set without the lock: turns and commits are refused from then on. */
static void begin_delete(struct binding_view *view)
{
    struct binding_session *s = &view->doc.session;

    if (s->state != BINDING_STATE_ACTIVE)
        return;
    s->state = BINDING_STATE_DELETING;
    s->deleting_ms = view->now_ms;
    binding_doc_touch(&view->doc, BINDING_PART_SESSION);
}

static enum berth_code grant_finish(struct binding_view *view, const struct binding_want *want,
                                    struct binding_plan *plan, struct berth_error *err)
{
    if (!binding_may_finish(view, want)) {
        plan->decision = BINDING_NONE;
        return BERTH_OK;
    }
    begin_delete(view);
    return grant_delete(view, want, plan, err);
}

static enum berth_code grant(struct binding_view *view, const struct binding_want *want,
                             struct binding_plan *plan, struct berth_error *err)
{
    switch (want->kind) {
    case BINDING_WANT_ENSURE:
        return grant_ensure(view, want, plan, err);
    case BINDING_WANT_PAUSE:
        return grant_pause(view, want, plan, err);
    case BINDING_WANT_DELETE:
        return grant_delete(view, want, plan, err);
    case BINDING_WANT_REAP:
        return grant_reap(view, want, plan, err);
    case BINDING_WANT_ADOPT:
        return grant_adopt(view, want, plan, err);
    case BINDING_WANT_IDLE:
        return grant_idle(view, want, plan, err);
    case BINDING_WANT_FINISH:
        return grant_finish(view, want, plan, err);
    case BINDING_WANT_OBSERVE:
    case BINDING_WANT_STILL:
        return grant_look(view, want, plan, err);
    default:
        return grant_use(view, want, plan, err);
    }
}

enum berth_code binding_acquire(struct binding_view *view, const struct binding_want *want,
                                struct binding_plan *plan, struct berth_error *err)
{
    struct binding_doc *doc = &view->doc;
    struct binding_token *token;
    enum berth_code code = check_tenant(view, want, err);

    if (code)
        return code;
    binding_cut(view);
    if (doc->lock.set && strcmp(doc->lock.token, want->attempt) == 0)
        return repeat(view, plan, err);
    code = check_record(view, want, err);
    if (!code && want->turn_token[0])
        code = binding_check_turn(view, want->turn_token, &token, err);
    if (code)
        return code;
    if (may_use(view, want))
        return use(view, want, plan, err);
    if (want->kind == BINDING_WANT_PAUSE && doc->bound.set &&
        binding_named(view, doc->bound.sandbox_id, BINDING_TURN))
        return berth_fail(err, BERTH_REASON_TURN_RUNNING, NULL);
    if (want->kind == BINDING_WANT_DELETE)
        begin_delete(view);
    if (binding_locked(view, NULL)) {
        plan->decision = BINDING_DECIDE_WAIT;
        plan->durable = doc->dirty != 0;
        return BERTH_OK;
    }
    plan->durable = true;
    return grant(view, want, plan, err);
}
