/* core_commit.c - what a holder writes under its lock. Every change proves the lock by token
 * and fence; a lock that has run out but still stands is good, since nobody else was granted
 * one. */
#include "services/binding/core.h"

#include <stdio.h>

static enum berth_code conflict(struct berth_error *err, const char *why)
{
    return berth_fail(err, BERTH_REASON_CONFLICT, "%s", why);
}

static bool is_mine(const struct binding_doc *doc, const char *token, uint64_t fence)
{
    return doc->lock.set && doc->lock.fence == fence && strcmp(doc->lock.token, token) == 0;
}

static void release(struct binding_doc *doc, enum binding_done done)
{
    doc->lock.done = done;
    binding_doc_touch(doc, BINDING_PART_LOCK);
}

static enum binding_done done_of(enum binding_change_kind kind)
{
    return (enum binding_done)(BINDING_DONE_BIND + (kind - BINDING_CHANGE_BIND));
}

/* Remove the intents of a kind that name the sandbox. */
static void drop_naming(struct binding_doc *doc, enum binding_intent_kind kind,
                        const char *sandbox_id)
{
    for (size_t i = doc->n_intents; i-- > 0;)
        if (doc->intents[i].kind == kind && strcmp(doc->intents[i].sandbox_id, sandbox_id) == 0)
            binding_doc_remove_intent(doc, i);
}

static void drop_create(struct binding_doc *doc, const char *attempt)
{
    for (size_t i = doc->n_intents; i-- > 0;)
        if (doc->intents[i].kind == BINDING_INTENT_CREATE &&
            strcmp(doc->intents[i].attempt, attempt) == 0)
            binding_doc_remove_intent(doc, i);
}

static enum berth_code put_intent(struct binding_doc *doc, const struct binding_intent *from,
                                  struct berth_error *err)
{
    struct binding_intent *intent;
    enum berth_code code;

    for (size_t i = 0; i < doc->n_intents; i++) {
        intent = &doc->intents[i];
        if (intent->kind != from->kind || strcmp(intent->sandbox_id, from->sandbox_id) != 0 ||
            (from->kind == BINDING_INTENT_CREATE &&
             strcmp(intent->attempt, from->attempt) != 0))
            continue;
        /* There already: it may take effect later than was said. */
        if (from->not_after_ms > intent->not_after_ms)
            intent->not_after_ms = from->not_after_ms;
        binding_doc_touch(doc, BINDING_PART_INTENTS);
        return BERTH_OK;
    }
    code = binding_doc_add_intent(doc, &intent, err);
    if (!code)
        *intent = *from;
    return code;
}

/* -------------------------------------------------------------------------- bind */

/* After a loss a turn may be known to its caller only; commits of an adoption believe it. */
static enum berth_code spend_tokens(struct binding_view *view, const char *turn_token,
                                    struct berth_error *err)
{
    struct binding_doc *doc = &view->doc;
    struct binding_token *token =
        turn_token[0] ? binding_find_token(doc, turn_token, BINDING_TURN) : NULL;

    if (turn_token[0] && !token && binding_young(view)) {
        struct binding_token *unused;
        enum berth_code code = binding_check_turn(view, turn_token, &unused, NULL);

        return code ? BERTH_OK : binding_believe_turn(view, turn_token, &unused, err);
    }
    if (token)
        token->deadline_ms = view->now_ms + token->lease_ms;
    /* Turns that used the sandbox this one stands in for go on with it. */
    for (size_t i = 0; i < doc->n_tokens; i++) {
        struct binding_token *other = &doc->tokens[i];

        if (other->kind == BINDING_TURN && other->sandbox_id[0])
            snprintf(other->sandbox_id, sizeof other->sandbox_id, "%s", doc->bound.sandbox_id);
    }
    binding_name_tokens(view, turn_token, doc->bound.sandbox_id);
    doc->active_ms = view->now_ms;
    binding_doc_touch(doc, BINDING_PART_TURNS);
    return BERTH_OK;
}

/* What is bound stands in for a lost one, told as such, or is the first. */
static const char *bind_event(const struct binding_doc *doc)
{
    if (doc->bound.origin == BINDING_ADOPTED)
        return "ADOPTED";
    if (doc->loss.open == BINDING_LOSS_REBUILT)
        return "REBUILT";
    return doc->loss.open ? "REPLACED" : "CREATED";
}

/* How many entries of a workspace were left behind, and the first few. Takes attributes. */
static json_t *add_left(json_t *attributes, const struct binding_carry *carry)
{
    char count[24];

    snprintf(count, sizeof count, "%llu", (unsigned long long)carry->lost_count);
    if (attributes && json_object_set_new(attributes, "left_behind", json_string(count)) == 0 &&
        json_object_set_new(attributes, "left_names", json_string(carry->lost_names)) == 0)
        return attributes;
    json_decref(attributes);
    return NULL;
}

static enum berth_code tell_bound(struct binding_view *view, struct binding_plan *plan,
                                  struct berth_error *err)
{
    struct binding_doc *doc = &view->doc;
    const char *event = bind_event(doc);
    json_t *attributes = NULL;

    if (doc->loss.open) {
        bool carried = strcmp(doc->carry.into, doc->bound.sandbox_id) == 0;

        attributes = json_pack("{s:s,s:s,s:s}", "cause", binding_loss_word(doc->loss.open),
                               "replaces", doc->loss.sandbox_id, "workspace",
                               !carried                ? "lost"
                               : doc->carry.lost_count ? "carried in part"
                                                       : "carried");
        if (carried && doc->carry.lost_count)
            attributes = add_left(attributes, &doc->carry);
        plan->replaced = doc->loss.open;
        binding_loss_close(doc);
    }
    return binding_plan_event(plan, event, doc->bound.sandbox_id, attributes, err);
}

static enum berth_code set_bound(struct binding_view *view, const struct binding_bound *from,
                                 struct berth_error *err)
{
    struct binding_doc *doc = &view->doc;
    enum berth_code code;

    binding_doc_unbind(doc);
    code = binding_doc_set_endpoint(doc, from->endpoint, from->endpoint_size, err);
    if (code)
        return code;
    {
        uint8_t *endpoint = doc->bound.endpoint;
        size_t size = doc->bound.endpoint_size;

        doc->bound = *from;
        doc->bound.endpoint = endpoint;
        doc->bound.endpoint_size = size;
        doc->bound.json = NULL;
    }
    doc->bound.set = true;
    doc->bound.fence = doc->lock.fence;
    if (!doc->bound.create_ms)
        doc->bound.create_ms = view->now_ms;
    if (!doc->bound.power)
        doc->bound.power = BINDING_RUNNING;
    doc->bound.adopt_ms = from->origin == BINDING_ADOPTED ? view->now_ms : 0;
    return BERTH_OK;
}

static enum berth_code bind(struct binding_view *view, const struct binding_change *change,
                            struct binding_plan *plan, enum berth_reason *ret_refused,
                            struct berth_error *err)
{
    struct binding_doc *doc = &view->doc;
    const struct binding_bound *from = &change->bound;
    const char *attempt = from->attempt[0] ? from->attempt : doc->lock.token;
    enum berth_code code;

    if (strcmp(from->config_id, doc->session.config_id) != 0)
        return berth_fail_field(err, "bind.config_id", "must be the session's config, '%s'",
                                doc->session.config_id);
    if (doc->session.state != BINDING_STATE_ACTIVE) {
        struct binding_intent intent = {.kind = BINDING_INTENT_DELETE,
                                        .fence = doc->lock.fence,
                                        .not_after_ms = doc->lock.until_ms};

        snprintf(intent.attempt, sizeof intent.attempt, "%s", doc->lock.token);
        snprintf(intent.sandbox_id, sizeof intent.sandbox_id, "%s", from->sandbox_id);
        snprintf(intent.account, sizeof intent.account, "%s", from->account);
        code = put_intent(doc, &intent, err);
        if (code)
            return code;
        drop_create(doc, attempt);
        *ret_refused = BERTH_REASON_SESSION_DELETED;
        return BERTH_OK;
    }
    if (binding_condemned(doc, from->sandbox_id))
        return conflict(err, "the sandbox is condemned");
    if (doc->bound.set && strcmp(doc->bound.sandbox_id, from->sandbox_id) != 0)
        return conflict(err, "another sandbox is bound");

    code = binding_carry_in(view, from->sandbox_id, change, plan, err);
    if (!code)
        code = set_bound(view, from, err);
    if (code)
        return code;
    drop_create(doc, attempt);
    drop_create(doc, doc->lock.token);
    drop_naming(doc, BINDING_INTENT_PAUSE, from->sandbox_id);
    if (doc->session.never_bound) {
        doc->session.never_bound = false;
        binding_doc_touch(doc, BINDING_PART_SESSION);
    }
    code = spend_tokens(view, change->turn_token, err);
    if (!code)
        code = tell_bound(view, plan, err);
    if (!code && change->memory_lost)
        binding_loss_note(view, BINDING_LOSS_MEMORY, from->sandbox_id, false, plan);
    return code;
}

/* ------------------------------------------------------------------- gone, patch */

/* Not found proves something only under the account the sandbox was made with. */
static enum berth_code check_account(const struct binding_view *view, const char *account,
                                     struct berth_error *err)
{
    if (!view->config.exists)
        return berth_fail(err, BERTH_REASON_CONFIG_NOT_FOUND, "no config '%s'",
                          view->doc.session.config_id);
    if (strcmp(account, view->config.account) != 0)
        return berth_fail(err, BERTH_REASON_ACCOUNT_CHANGED, NULL);
    return BERTH_OK;
}

/* The lock is the reaper's, for taking a sandbox away. */
static bool is_reaping(const struct binding_doc *doc)
{
    return doc->lock.want == BINDING_WANT_REAP || doc->lock.want == BINDING_WANT_IDLE;
}

/* Why it was condemned, by this holder or by one that came no further: its intent says so. One
 * written by an earlier version does not, and goes for what this holder is at. NOT_SAID also of
 * what was not condemned: a rebuild, too, may find it gone. */
static enum binding_why why_gone(const struct binding_doc *doc, const char *id)
{
    for (size_t i = 0; i < doc->n_intents; i++)
        if (doc->intents[i].kind == BINDING_INTENT_DELETE && doc->intents[i].why &&
            strcmp(doc->intents[i].sandbox_id, id) == 0)
            return doc->intents[i].why;
    if (!binding_condemned(doc, id))
        return BINDING_WHY_NOT_SAID;
    if (is_reaping(doc))
        return doc->lock.want == BINDING_WANT_IDLE ? BINDING_WHY_IDLE : BINDING_WHY_REAPED;
    if (doc->lock.op == BINDING_REBUILD)
        return BINDING_WHY_REBUILT;
    if (!binding_carry_waits(doc) || strcmp(doc->carry.sandbox_id, id) != 0)
        return BINDING_WHY_NOT_SAID;
    return doc->carry.cause == BINDING_LOSS_REBUILT ? BINDING_WHY_REBUILT : BINDING_WHY_REAPED;
}

/* Why a bound sandbox that is proven gone is a loss; NONE: it was to go with its session. */
static enum binding_loss_cause loss_cause(const struct binding_doc *doc, enum binding_why why)
{
    if (doc->session.state != BINDING_STATE_ACTIVE)
        return BINDING_LOSS_NONE;
    switch (why) {
    case BINDING_WHY_REBUILT:
        return BINDING_LOSS_REBUILT;
    case BINDING_WHY_IDLE:
    case BINDING_WHY_REAPED:
        return BINDING_LOSS_REAPED;
    default:
        return BINDING_LOSS_GONE;
    }
}

/* What is told of one that is gone; what stands in for a rebuilt one tells of that itself. */
static enum berth_code tell_gone(struct binding_plan *plan, const char *id,
                                 enum binding_why why, enum binding_loss_cause cause,
                                 bool timed_out, struct berth_error *err)
{
    if (why == BINDING_WHY_IDLE || why == BINDING_WHY_REAPED)
        return binding_plan_event(plan, why == BINDING_WHY_IDLE ? "KILLED" : "REAPED", id, NULL,
                                  err);
    if (cause == BINDING_LOSS_GONE && why == BINDING_WHY_INBOUND_LOST)
        return binding_plan_event(plan, "LOST", id,
                                  json_pack("{s:s}", "reason", "INBOUND_TOKEN_LOST"), err);
    if (cause == BINDING_LOSS_GONE)
        return binding_plan_found(plan, timed_out ? "TIMED_OUT" : "LOST", id, err);
    return BERTH_OK;
}

static enum berth_code gone(struct binding_view *view, const struct binding_change *change,
                            struct binding_plan *plan, struct berth_error *err)
{
    struct binding_doc *doc = &view->doc;
    const char *id = change->sandbox_id;
    bool bound = doc->bound.set && strcmp(doc->bound.sandbox_id, id) == 0;
    enum binding_why why = why_gone(doc, id);
    enum binding_loss_cause cause = bound ? loss_cause(doc, why) : BINDING_LOSS_NONE;
    bool carried;
    bool timed_out = bound && doc->bound.end_ms && doc->bound.end_ms <= view->now_ms;
    enum berth_code code = BERTH_OK;

    if (bound)
        code = check_account(view, doc->bound.account, err);
    for (size_t i = 0; !code && i < doc->n_intents; i++)
        if (strcmp(doc->intents[i].sandbox_id, id) == 0)
            code = check_account(view, doc->intents[i].account, err);
    if (code)
        return code;
    carried = bound && binding_carry_keeps(view, id);
    if (cause)
        binding_loss_note(view, cause, id, carried, plan);
    if (bound)
        binding_doc_unbind(doc);
    drop_naming(doc, BINDING_INTENT_CREATE, id);
    drop_naming(doc, BINDING_INTENT_DELETE, id);
    drop_naming(doc, BINDING_INTENT_PAUSE, id);
    for (size_t i = doc->n_tokens; i-- > 0;)
        if (doc->tokens[i].kind == BINDING_USE_TOKEN &&
            strcmp(doc->tokens[i].sandbox_id, id) == 0)
            binding_doc_remove_token(doc, i);
    return tell_gone(plan, id, why, cause, timed_out, err);
}

/* What became of the power of the bound one, and who did it: we, or its backend. */
static enum berth_code tell_power(struct binding_view *view,
                                  const struct binding_change *change,
                                  enum binding_power before, struct binding_plan *plan,
                                  struct berth_error *err)
{
    const struct binding_bound *bound = &view->doc.bound;
    const char *id = bound->sandbox_id;
    bool paused = bound->power == BINDING_PAUSED && before != BINDING_PAUSED;
    bool resumed = bound->power == BINDING_RUNNING && before == BINDING_PAUSED;
    enum berth_code code = BERTH_OK;

    if (view->doc.lock.want == BINDING_WANT_OBSERVE && (paused || resumed))
        return binding_plan_found(plan, paused ? "PAUSED" : "RESUMED", id, err);
    if (bound->power == BINDING_RUNNING && before == BINDING_RUNNING && change->was_paused) {
        code = binding_plan_found(plan, "PAUSED", id, err);
        resumed = true;
    }
    if (!code && paused)
        code = binding_plan_event(plan, "PAUSED", id, NULL, err);
    if (!code && resumed)
        code = binding_plan_event(plan, "RESUMED", id, NULL, err);
    return code;
}

/* Once for each end. */
static enum berth_code tell_end(struct binding_view *view, int64_t end_ms,
                                struct binding_plan *plan, struct berth_error *err)
{
    struct binding_bound *bound = &view->doc.bound;

    if (!end_ms || bound->told_ms == end_ms || bound->power != BINDING_RUNNING)
        return BERTH_OK;
    bound->told_ms = end_ms;
    return binding_plan_event(
        plan, "ABOUT_TO_TIME_OUT", bound->sandbox_id,
        json_pack("{s:o}", "end_ms", json_sprintf("%lld", (long long)end_ms)), err);
}

static enum berth_code patch(struct binding_view *view, const struct binding_change *change,
                             struct binding_plan *plan, struct berth_error *err)
{
    struct binding_doc *doc = &view->doc;
    struct binding_bound *bound = &doc->bound;
    const struct binding_bound *from = &change->bound;
    enum binding_power before = bound->power;
    enum berth_code code = binding_check_active(view, err);

    if (code)
        return code;
    if (!bound->set || strcmp(bound->sandbox_id, from->sandbox_id) != 0)
        return conflict(err, "the sandbox is not the bound one");
    if (binding_condemned(doc, from->sandbox_id))
        return conflict(err, "the sandbox is condemned");
    if (from->endpoint_size) {
        code = binding_doc_set_endpoint(doc, from->endpoint, from->endpoint_size, err);
        if (code)
            return code;
        bound->inbound_lost = from->inbound_lost;
    }
    if (from->end_ms)
        bound->end_ms = from->end_ms;
    if (from->power)
        bound->power = from->power;
    bound->fence = doc->lock.fence;
    binding_doc_touch(doc, BINDING_PART_BINDING);
    if (bound->power != BINDING_PAUSING)
        drop_naming(doc, BINDING_INTENT_PAUSE, bound->sandbox_id);

    /* Being resumed, or paused on somebody's word, is use; a pause for want of it is none. */
    if ((bound->power == BINDING_RUNNING && before == BINDING_PAUSED) ||
        (bound->power == BINDING_PAUSED && doc->lock.want == BINDING_WANT_PAUSE)) {
        doc->active_ms = view->now_ms;
        binding_doc_touch(doc, BINDING_PART_TURNS);
    }
    /* A resolve that had to look first uses the sandbox from here on; a pause does not. */
    if (bound->power == BINDING_RUNNING && doc->lock.want == BINDING_WANT_ENSURE)
        code = spend_tokens(view, change->turn_token, err);
    if (!code && change->memory_lost)
        binding_loss_note(view, BINDING_LOSS_MEMORY, bound->sandbox_id, false, plan);
    if (!code)
        code = tell_power(view, change, before, plan, err);
    if (!code)
        code = tell_end(view, change->ends_soon_ms, plan, err);
    return code;
}

/* ----------------------------------------------------------------------- intents */

/* Condemn: the last moment at which a sandbox can still be spared. */
static enum berth_code check_condemn(const struct binding_view *view, const char *id,
                                     struct berth_error *err)
{
    const struct binding_doc *doc = &view->doc;

    if (binding_condemned(doc, id) || doc->session.state != BINDING_STATE_ACTIVE)
        return BERTH_OK;
    if (doc->bound.set && strcmp(doc->bound.sandbox_id, id) == 0) {
        if (doc->lock.want == BINDING_WANT_IDLE)
            return binding_protected(view) || binding_turn_running(view)
                       ? conflict(err, "the sandbox is in use")
                       : BERTH_OK;
        if (doc->lock.op != BINDING_REBUILD)
            return conflict(err, "the sandbox is bound and not to be rebuilt");
        if (!binding_stale(view))
            return conflict(err, "the sandbox is not stale any more");
        if (binding_protected(view))
            return conflict(err, "the sandbox is in use");
        return BERTH_OK;
    }
    if (binding_named(view, id, 0))
        return conflict(err, "the sandbox is in use");
    return BERTH_OK;
}

static enum binding_why why_condemned(const struct binding_doc *doc, const char *id)
{
    if (is_reaping(doc))
        return doc->lock.want == BINDING_WANT_IDLE ? BINDING_WHY_IDLE : BINDING_WHY_REAPED;
    return doc->lock.op == BINDING_REBUILD && doc->bound.set &&
                   strcmp(doc->bound.sandbox_id, id) == 0
               ? BINDING_WHY_REBUILT
               : BINDING_WHY_NOT_SAID;
}

static enum berth_code intend(struct binding_view *view, const struct binding_change *change,
                              struct binding_plan *plan, struct berth_error *err)
{
    struct binding_doc *doc = &view->doc;
    struct binding_intent intent = change->intent;
    enum berth_code code = BERTH_OK;

    if (!intent.attempt[0])
        snprintf(intent.attempt, sizeof intent.attempt, "%s", doc->lock.token);
    if (!intent.account[0])
        snprintf(intent.account, sizeof intent.account, "%s",
                 doc->bound.set && strcmp(doc->bound.sandbox_id, intent.sandbox_id) == 0
                     ? doc->bound.account
                     : view->config.account);
    if (!intent.not_after_ms)
        intent.not_after_ms = doc->lock.until_ms;
    intent.fence = doc->lock.fence;

    switch (intent.kind) {
    case BINDING_INTENT_CREATE:
        code = binding_check_active(view, err);
        if (!code && doc->lock.want != BINDING_WANT_ENSURE)
            code = conflict(err, "the lock was not granted for what may create");
        if (!code && strcmp(intent.attempt, doc->lock.token) != 0)
            code = berth_fail_field(err, "intend.attempt", "must be the lock's token");
        if (!code && view->quarantine)
            code = berth_fail(err, BERTH_REASON_QUARANTINE, NULL);
        if (!code)
            code = binding_check_calls_out(view, err);
        /* By the store's clock, whatever the holder's says; renewals of the lock move it. */
        intent.not_after_ms = doc->lock.until_ms;
        plan->needs_whole = true;
        plan->begins = true;
        break;
    case BINDING_INTENT_DELETE:
        code = check_condemn(view, intent.sandbox_id, err);
        intent.why = why_condemned(doc, intent.sandbox_id);
        if (!code && change->carry_blob_id)
            code = binding_carry_out(view, intent.sandbox_id, change, err);
        break;
    case BINDING_INTENT_PAUSE:
        code = binding_check_active(view, err);
        if (code)
            break;
        if (!doc->bound.set || strcmp(doc->bound.sandbox_id, intent.sandbox_id) != 0)
            return conflict(err, "the sandbox is not the bound one");
        if (binding_named(view, intent.sandbox_id, BINDING_TURN))
            return berth_fail(err, BERTH_REASON_TURN_RUNNING, NULL);
        doc->bound.power = BINDING_PAUSING;
        binding_doc_touch(doc, BINDING_PART_BINDING);
        break;
    }
    return code ? code : put_intent(doc, &intent, err);
}

/* Its own create a holder knows to be refused or not sent. One that it inherited, and has not
 * found, may land until its horizon where create is not keyed. */
static enum berth_code settled(struct binding_view *view, const struct binding_change *change,
                               struct berth_error *err)
{
    struct binding_doc *doc = &view->doc;
    bool sure = change->landed || strcmp(change->attempt, doc->lock.token) == 0;

    for (size_t i = 0; !sure && i < doc->n_intents; i++) {
        const struct binding_intent *intent = &doc->intents[i];
        int64_t until_ms = intent->not_after_ms + view->config.create_horizon_ms;
        enum berth_code code;

        if (intent->kind != BINDING_INTENT_CREATE ||
            strcmp(intent->attempt, change->attempt) != 0)
            continue;
        code = check_account(view, intent->account, err);
        if (!code && !view->config.keyed_create && view->now_ms <= until_ms) {
            code = berth_fail(err, BERTH_REASON_CREATE_UNSETTLED, NULL);
            if (err)
                err->retry_after_ms = until_ms - view->now_ms + 1;
        }
        if (code)
            return code;
    }
    drop_create(doc, change->attempt);
    return BERTH_OK;
}

/* -------------------------------------------------------------------- tombstone */

static enum berth_code delete_session(struct binding_view *view, struct binding_plan *plan,
                                      struct berth_error *err)
{
    struct binding_doc *doc = &view->doc;

    if (doc->session.state == BINDING_STATE_ACTIVE)
        return conflict(err, "the session is not being deleted");
    if (doc->bound.set)
        return conflict(err, "the session's sandbox is not known to be gone");
    for (size_t i = 0; i < doc->n_intents; i++)
        if (doc->intents[i].kind == BINDING_INTENT_DELETE)
            return conflict(err, "a sandbox of the session is not known to be gone");
    plan->index_remove = true;
    snprintf(plan->alias_old, sizeof plan->alias_old, "%s", doc->session.alias);
    snprintf(plan->config_old, sizeof plan->config_old, "%s", doc->session.config_id);
    while (doc->n_tokens)
        binding_doc_remove_token(doc, doc->n_tokens - 1);
    binding_doc_drop_spec(doc);
    binding_doc_drop_loss(doc);
    binding_doc_drop_carry(doc);
    doc->session.state = BINDING_STATE_DELETED;
    doc->active_ms = 0;
    binding_doc_touch(doc, BINDING_PART_SESSION);
    binding_doc_touch(doc, BINDING_PART_TURNS);
    return binding_plan_event(plan, "SESSION_DELETED", "", NULL, err);
}

/* -------------------------------------------------------------------- the calls */

static enum berth_code change_doc(struct binding_view *view,
                                  const struct binding_change *change,
                                  struct binding_plan *plan, enum berth_reason *ret_refused,
                                  struct berth_error *err)
{
    switch (change->kind) {
    case BINDING_CHANGE_BIND:
        return bind(view, change, plan, ret_refused, err);
    case BINDING_CHANGE_GONE:
        return gone(view, change, plan, err);
    case BINDING_CHANGE_PATCH:
        return patch(view, change, plan, err);
    case BINDING_CHANGE_INTEND:
        return intend(view, change, plan, err);
    case BINDING_CHANGE_SETTLED:
        return settled(view, change, err);
    case BINDING_CHANGE_DELETE_SESSION:
        return delete_session(view, plan, err);
    }
    return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "unknown change");
}

/* The drafts come last, so that what binding itself saw is told first. */
static enum berth_code add_drafts(const struct binding_view *view,
                                  const struct binding_change *change,
                                  struct binding_plan *plan, struct berth_error *err)
{
    enum berth_code code = BERTH_OK;

    for (size_t i = 0; !code && i < change->n_drafts; i++)
        code = binding_plan_event(plan, change->drafts[i].kind, view->doc.bound.sandbox_id,
                                  json_incref(change->drafts[i].attributes), err);
    return code;
}

enum berth_code binding_commit(struct binding_view *view, const struct binding_change *change,
                               struct binding_plan *plan, enum berth_reason *ret_refused,
                               struct berth_error *err)
{
    struct binding_doc *doc = &view->doc;
    enum berth_reason refused = BERTH_REASON_NONE;
    enum berth_code code;

    *ret_refused = BERTH_REASON_NONE;
    if (!is_mine(doc, change->token, change->fence))
        return berth_fail(err, BERTH_REASON_LOCK_LOST, NULL);
    if (doc->lock.done) {
        /* Its answer was lost: it has been done, and the lock given back with it. */
        if (doc->lock.done == done_of(change->kind) && !change->keep_lock) {
            binding_doc_touch(doc, BINDING_PART_LOCK); /* confirms what was not confirmed */
            plan->durable = true;
            return BERTH_OK;
        }
        return berth_fail(err, BERTH_REASON_LOCK_LOST, "the lock was given back");
    }
    binding_cut(view);
    code = change_doc(view, change, plan, &refused, err);
    if (!code)
        code = add_drafts(view, change, plan, err);
    if (code)
        return code;
    plan->durable = true;
    if (!change->keep_lock && !refused)
        release(doc, done_of(change->kind));
    *ret_refused = refused;
    return BERTH_OK;
}

enum berth_code binding_abort(struct binding_view *view, const char *token, uint64_t fence,
                              struct binding_plan *plan, struct berth_error *err)
{
    (void)plan;
    (void)err;
    if (!is_mine(&view->doc, token, fence) || view->doc.lock.done)
        return BERTH_OK;
    binding_cut(view);
    release(&view->doc, BINDING_DONE_ABORT);
    return BERTH_OK;
}

enum berth_code binding_renew_lock(struct binding_view *view, const char *token, uint64_t fence,
                                   struct binding_plan *plan, struct berth_error *err)
{
    struct binding_doc *doc = &view->doc;
    struct binding_lock *lock = &doc->lock;

    (void)plan;
    if (!is_mine(doc, token, fence)) {
        /* A failover may have forgotten the grant. Nobody was granted one since: it stands. */
        if (!view->quarantine || doc->session.state == BINDING_STATE_NONE ||
            doc->fence > fence || binding_locked(view, NULL))
            return berth_fail(err, BERTH_REASON_LOCK_LOST, NULL);
        json_decref(lock->json);
        *lock = (struct binding_lock){
            .set = true, .op = BINDING_VERIFY, .want = BINDING_WANT_EXISTING, .fence = fence};
        snprintf(lock->token, sizeof lock->token, "%s", token);
        doc->fence = fence;
        binding_doc_touch(doc, BINDING_PART_FENCE);
    } else if (lock->done) {
        return berth_fail(err, BERTH_REASON_LOCK_LOST, "the lock was given back");
    }
    binding_cut(view);
    lock->lease_ms = view->limits->lock_ms;
    lock->until_ms = view->now_ms + lock->lease_ms;
    binding_doc_touch(doc, BINDING_PART_LOCK);
    /* A create may be sent until then; who settles it must wait that long. */
    for (size_t i = 0; i < doc->n_intents; i++) {
        struct binding_intent *intent = &doc->intents[i];

        if (intent->kind != BINDING_INTENT_CREATE || strcmp(intent->attempt, token) != 0)
            continue;
        if (intent->not_after_ms < lock->until_ms) {
            intent->not_after_ms = lock->until_ms;
            binding_doc_touch(doc, BINDING_PART_INTENTS);
        }
    }
    return BERTH_OK;
}
