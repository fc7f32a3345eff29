#include "services/controlplane/plan.h"

#include <stdio.h>

static struct plan_step step(enum plan_step_kind kind)
{
    return (struct plan_step){.kind = kind};
}

static struct plan_step step_on(enum plan_step_kind kind, const char *sandbox_id)
{
    struct plan_step out = {.kind = kind};

    snprintf(out.sandbox_id, sizeof out.sandbox_id, "%s", sandbox_id);
    return out;
}

static struct plan_step fail(enum berth_reason reason)
{
    return (struct plan_step){.kind = PLAN_STEP_FAIL, .reason = reason};
}

static bool is_mine(const struct plan_state *s, const struct plan_intent *intent)
{
    return memcmp(intent->attempt, s->attempt, PLAN_ATTEMPT_SIZE) == 0;
}

static const struct plan_intent *find_intent(const struct plan_state *s,
                                             enum plan_intent_kind kind, const char *sandbox_id)
{
    for (size_t i = 0; i < s->n_intents; i++)
        if (s->intents[i].kind == kind &&
            (!sandbox_id || strcmp(s->intents[i].sandbox_id, sandbox_id) == 0))
            return &s->intents[i];
    return NULL;
}

static const struct plan_intent *find_create(const struct plan_state *s, bool mine)
{
    for (size_t i = 0; i < s->n_intents; i++)
        if (s->intents[i].kind == PLAN_INTENT_CREATE && is_mine(s, &s->intents[i]) == mine)
            return &s->intents[i];
    return NULL;
}

/* An inherited create that is not among the candidates: settled once it can no longer land, by
 * a list begun after that. An older list may have missed it. */
static struct plan_step settle(const struct plan_state *s, const struct plan_intent *intent)
{
    int64_t until_ms = intent->not_after_ms + s->create_horizon_ms;
    struct plan_step out = step(PLAN_STEP_SETTLE);

    if (!intent->same_account)
        return fail(BERTH_REASON_ACCOUNT_CHANGED);
    if (!s->keyed && s->now_ms <= until_ms) {
        out = fail(BERTH_REASON_CREATE_UNSETTLED);
        out.retry_after_ms = until_ms - s->now_ms + 1;
        return out;
    }
    if (!s->keyed && s->list_ms <= until_ms)
        return step(PLAN_STEP_LIST);
    memcpy(out.attempt, intent->attempt, PLAN_ATTEMPT_SIZE);
    return out;
}

static bool is_intended(const struct plan_state *s, const struct plan_candidate *candidate)
{
    for (size_t i = 0; i < s->n_intents; i++)
        if (s->intents[i].kind == PLAN_INTENT_CREATE &&
            memcmp(s->intents[i].attempt, candidate->attempt, PLAN_ATTEMPT_SIZE) == 0)
            return true;
    return false;
}

/* Is a to be adopted rather than b (F17)? Who a create intent names, nothing else having been
 * bound since; who a turn uses; who was bound last; who was at last connected to; who is the
 * oldest. Any order will do between two that are alike in all of it, as long as it is one. */
static bool is_better(const struct plan_state *s, const struct plan_candidate *a,
                      const struct plan_candidate *b)
{
    bool intended = is_intended(s, a);

    if (intended != is_intended(s, b))
        return intended;
    if (a->named != b->named)
        return a->named && (!b->named || a->named < b->named);
    if (a->last != b->last)
        return a->last;
    if (a->fence != b->fence)
        return a->fence > b->fence;
    if (a->create_ms != b->create_ms)
        return a->create_ms < b->create_ms;
    return strcmp(a->sandbox_id, b->sandbox_id) < 0;
}

/* One of at least one is adopted, none is deleted; those that nobody uses do not run on beside
 * it. */
static struct plan_step adopt(const struct plan_state *s)
{
    const struct plan_candidate *best = &s->candidates[0];

    for (size_t i = 1; i < s->n_candidates; i++)
        if (is_better(s, &s->candidates[i], best))
            best = &s->candidates[i];
    for (size_t i = 0; i < s->n_candidates; i++) {
        const struct plan_candidate *other = &s->candidates[i];

        if (other != best && s->can_pause && other->runs && !other->named && !other->stilled)
            return step_on(PLAN_STEP_STILL_OTHER, other->sandbox_id);
    }
    return step_on(PLAN_STEP_ADOPT, best->sandbox_id);
}

static struct plan_step next_verify(const struct plan_state *s)
{
    switch (s->seen) {
    case PLAN_UNSEEN:
        return step_on(PLAN_STEP_GET, s->sandbox_id);
    case PLAN_SEEN_GONE:
        return step_on(PLAN_STEP_GONE, s->sandbox_id);
    case PLAN_SEEN_TRANSITIONING:
    case PLAN_SEEN_UNKNOWN:
        return fail(BERTH_REASON_SANDBOX_TRANSITIONING);
    case PLAN_SEEN_PAUSED:
    case PLAN_SEEN_RUNNING:
        break;
    }
    if ((s->paused || s->seen == PLAN_SEEN_PAUSED) && s->want != PLAN_RESUME && !s->auto_resume)
        return fail(BERTH_REASON_SANDBOX_PAUSED);
    return step_on(PLAN_STEP_CONNECT, s->sandbox_id);
}

/* It goes only when its workspace is safe. One that was frozen for that, in vain, is woken. */
static struct plan_step next_rebuild(const struct plan_state *s)
{
    if (s->cordoned || (s->must_carry && !s->can_carry))
        return s->running ? step_on(PLAN_STEP_KEEP, s->sandbox_id) : next_verify(s);
    if (!s->must_carry || s->exported)
        return step_on(PLAN_STEP_CONDEMN, s->sandbox_id);
    if (s->seen == PLAN_SEEN_GONE)
        return step_on(PLAN_STEP_GONE, s->sandbox_id);
    if (s->export_failed && s->paused) /* and was before */
        return next_verify(s);
    return step_on(s->export_failed ? PLAN_STEP_CONNECT : PLAN_STEP_EXPORT, s->sandbox_id);
}

static struct plan_step next_bound(const struct plan_state *s)
{
    if (!s->same_account)
        return fail(BERTH_REASON_ACCOUNT_CHANGED);
    switch (s->decision) {
    case PLAN_DO_REBUILD:
        return next_rebuild(s);
    case PLAN_DO_DELETE:
        return step_on(PLAN_STEP_CONDEMN, s->sandbox_id);
    case PLAN_DO_PAUSE:
        if (s->seen == PLAN_SEEN_GONE)
            return step_on(PLAN_STEP_GONE, s->sandbox_id);
        return step_on(find_intent(s, PLAN_INTENT_PAUSE, s->sandbox_id)
                           ? PLAN_STEP_PAUSE
                           : PLAN_STEP_INTEND_PAUSE,
                       s->sandbox_id);
    case PLAN_DO_VERIFY:
    case PLAN_DO_CREATE:
        break;
    }
    return next_verify(s);
}

static struct plan_step next_delete(const struct plan_state *s)
{
    const struct plan_intent *create;

    if (!s->listed)
        return step(PLAN_STEP_LIST);
    if (s->n_candidates > 0)
        return step_on(PLAN_STEP_CONDEMN, s->candidates[0].sandbox_id);
    create = find_intent(s, PLAN_INTENT_CREATE, NULL);
    if (create)
        return settle(s, create);
    return s->more_creates ? fail(BERTH_REASON_CREATE_UNSETTLED) : step(PLAN_STEP_TOMBSTONE);
}

static struct plan_step next_create(const struct plan_state *s)
{
    const struct plan_intent *inherited = find_create(s, false);

    if (!s->listed && (!s->keyed || inherited || s->must_list))
        return step(PLAN_STEP_LIST);
    if (s->n_candidates > 0)
        return adopt(s);
    if (inherited)
        return settle(s, inherited);
    if (s->more_creates) /* those known are settled: the next holder sees the rest */
        return fail(BERTH_REASON_CREATE_UNSETTLED);
    if (s->cordoned)
        return fail(BERTH_REASON_CONFIG_CORDONED);
    return step(find_create(s, true) ? PLAN_STEP_CREATE : PLAN_STEP_INTEND_CREATE);
}

/* The reaper's resolve: as next_create(), but nothing is created. */
static struct plan_step next_adopt(const struct plan_state *s)
{
    const struct plan_intent *inherited = find_create(s, false);

    if (!s->listed)
        return step(PLAN_STEP_LIST);
    if (s->n_candidates > 0)
        return adopt(s);
    if (inherited)
        return settle(s, inherited);
    return s->more_creates ? fail(BERTH_REASON_CREATE_UNSETTLED)
                           : step(PLAN_STEP_NOTHING_BOUND);
}

static bool has_landed(const struct plan_state *s, const struct plan_intent *create)
{
    for (size_t i = 0; i < s->n_candidates; i++)
        if (memcmp(s->candidates[i].attempt, create->attempt, PLAN_ATTEMPT_SIZE) == 0)
            return true;
    return false;
}

/* Something is bound, and creates from before are not settled. One that has landed beside it is
 * a duplicate, which goes its own way. */
static struct plan_step next_settle(const struct plan_state *s)
{
    const struct plan_intent *create = find_create(s, false);
    struct plan_step out;

    if (!create)
        return step(PLAN_STEP_NOTHING_BOUND);
    if (!s->listed)
        return step(PLAN_STEP_LIST);
    if (!has_landed(s, create))
        return settle(s, create);
    out = step(PLAN_STEP_SETTLE);
    out.landed = true;
    memcpy(out.attempt, create->attempt, PLAN_ATTEMPT_SIZE);
    return out;
}

/* Paused first, then looked at: who got through before the pause is seen, and goes on. */
static struct plan_step next_idle(const struct plan_state *s)
{
    if (!s->same_account)
        return fail(BERTH_REASON_ACCOUNT_CHANGED);
    if (s->seen == PLAN_SEEN_GONE)
        return step_on(PLAN_STEP_GONE, s->sandbox_id);
    if (s->used)
        return step_on(PLAN_STEP_CONNECT, s->sandbox_id);
    if (!s->stilled)
        return step_on(PLAN_STEP_STILL, s->sandbox_id);
    if (s->want != PLAN_IDLE_KILL)
        return step_on(PLAN_STEP_REST, s->sandbox_id);
    if (!s->must_carry || !s->can_carry || s->exported)
        return step_on(PLAN_STEP_CONDEMN, s->sandbox_id);
    return step_on(s->export_failed ? PLAN_STEP_CONNECT : PLAN_STEP_EXPORT, s->sandbox_id);
}

/* Gone is proven here; all else is written down as it was seen. */
static struct plan_step next_observe(const struct plan_state *s)
{
    if (!s->same_account)
        return fail(BERTH_REASON_ACCOUNT_CHANGED);
    switch (s->seen) {
    case PLAN_UNSEEN:
        return step_on(PLAN_STEP_GET, s->sandbox_id);
    case PLAN_SEEN_GONE:
        return step_on(PLAN_STEP_GONE, s->sandbox_id);
    case PLAN_SEEN_PAUSED:
        return s->paused ? step(PLAN_STEP_NOTHING_BOUND)
                         : step_on(PLAN_STEP_NOTE, s->sandbox_id);
    case PLAN_SEEN_RUNNING:
        return s->paused || s->ends_soon ? step_on(PLAN_STEP_NOTE, s->sandbox_id)
                                         : step(PLAN_STEP_NOTHING_BOUND);
    default:
        return step(PLAN_STEP_NOTHING_BOUND);
    }
}

static struct plan_step next_reaping(const struct plan_state *s)
{
    switch (s->want) {
    case PLAN_ADOPT:
        return s->bound ? next_settle(s) : next_adopt(s);
    case PLAN_IDLE_PAUSE:
    case PLAN_IDLE_KILL:
        return s->bound ? next_idle(s) : step(PLAN_STEP_REAPED);
    case PLAN_OBSERVE:
        return s->bound ? next_observe(s) : step(PLAN_STEP_REAPED);
    case PLAN_STILL:
        return step_on(s->other_stilled ? PLAN_STEP_TELL_OTHER : PLAN_STEP_STILL_OTHER,
                       s->other_id);
    default:
        return step(PLAN_STEP_REAPED);
    }
}

struct plan_step plan_next(const struct plan_state *s)
{
    const struct plan_intent *condemned = find_intent(s, PLAN_INTENT_DELETE, NULL);

    if (condemned)
        return condemned->same_account ? step_on(PLAN_STEP_DELETE, condemned->sandbox_id)
                                       : fail(BERTH_REASON_ACCOUNT_CHANGED);
    if (s->more_deletes)
        return fail(BERTH_REASON_CREATE_UNSETTLED);
    if (s->want >= PLAN_ADOPT)
        return next_reaping(s);
    if (s->bound)
        return next_bound(s);
    if (s->want == PLAN_DELETE)
        return next_delete(s);
    if (s->want == PLAN_ENSURE)
        return next_create(s);
    return step(PLAN_STEP_NOTHING_BOUND);
}

/* -------------------------------------------------------------------- notes */

void plan_note_intent(struct plan_state *s, const struct plan_intent *intent)
{
    if (s->n_intents < PLAN_INTENTS_MAX)
        s->intents[s->n_intents++] = *intent;
}

static void drop_intent(struct plan_state *s, size_t at)
{
    s->intents[at] = s->intents[--s->n_intents];
}

void plan_note_stilled(struct plan_state *s, const char *sandbox_id)
{
    for (size_t i = 0; i < s->n_candidates; i++)
        if (strcmp(s->candidates[i].sandbox_id, sandbox_id) == 0)
            s->candidates[i].stilled = true;
    if (strcmp(s->other_id, sandbox_id) == 0)
        s->other_stilled = true;
}

void plan_note_settled(struct plan_state *s, const uint8_t attempt[PLAN_ATTEMPT_SIZE])
{
    for (size_t i = s->n_intents; i-- > 0;)
        if (s->intents[i].kind == PLAN_INTENT_CREATE &&
            memcmp(s->intents[i].attempt, attempt, PLAN_ATTEMPT_SIZE) == 0)
            drop_intent(s, i);
}

void plan_note_gone(struct plan_state *s, const char *sandbox_id)
{
    for (size_t i = s->n_intents; i-- > 0;)
        if (s->intents[i].kind != PLAN_INTENT_CREATE &&
            strcmp(s->intents[i].sandbox_id, sandbox_id) == 0)
            drop_intent(s, i);
    for (size_t i = s->n_candidates; i-- > 0;)
        if (strcmp(s->candidates[i].sandbox_id, sandbox_id) == 0)
            s->candidates[i] = s->candidates[--s->n_candidates];
    if (s->bound && strcmp(s->sandbox_id, sandbox_id) == 0) {
        s->bound = false;
        s->seen = PLAN_UNSEEN;
        s->sandbox_id[0] = 0;
    }
}

const char *plan_step_name(enum plan_step_kind kind)
{
    static const char *const names[] = {
        [PLAN_STEP_FAIL] = "fail",
        [PLAN_STEP_NOTHING_BOUND] = "nothing-bound",
        [PLAN_STEP_KEEP] = "keep",
        [PLAN_STEP_CONDEMN] = "condemn",
        [PLAN_STEP_DELETE] = "delete",
        [PLAN_STEP_LIST] = "list",
        [PLAN_STEP_SETTLE] = "settle",
        [PLAN_STEP_GET] = "get",
        [PLAN_STEP_GONE] = "gone",
        [PLAN_STEP_CONNECT] = "connect",
        [PLAN_STEP_ADOPT] = "adopt",
        [PLAN_STEP_INTEND_CREATE] = "intend-create",
        [PLAN_STEP_CREATE] = "create",
        [PLAN_STEP_INTEND_PAUSE] = "intend-pause",
        [PLAN_STEP_PAUSE] = "pause",
        [PLAN_STEP_TOMBSTONE] = "tombstone",
        [PLAN_STEP_STILL] = "still",
        [PLAN_STEP_REST] = "rest",
        [PLAN_STEP_REAPED] = "reaped",
        [PLAN_STEP_EXPORT] = "export",
        [PLAN_STEP_NOTE] = "note",
        [PLAN_STEP_STILL_OTHER] = "still-other",
        [PLAN_STEP_TELL_OTHER] = "tell-other",
    };

    return names[kind];
}
