/* rules_plan.c - the holder's plan and the local adapter's key, as the model asks them. */
#include "tests/model/rules.h"

#include <stdio.h>

#include "services/adapter-local/spawner/rules.h"
#include "services/binding/doc.h"
#include "services/controlplane/plan.h"
#include "tests/model/words.h"

#define SAME(word, value) _Static_assert((word) == (int)(value), "words.h")
SAME(WAIT, BINDING_DECIDE_WAIT);
SAME(USE, BINDING_USE);
SAME(NOTHING, BINDING_NONE);
SAME(VERIFY, BINDING_VERIFY);
SAME(REBUILD, BINDING_REBUILD);
SAME(CREATE, BINDING_ADOPT_OR_CREATE);
SAME(PAUSE, BINDING_PAUSE);
SAME(DELETE, BINDING_DELETE);
SAME(ENSURE, BINDING_WANT_ENSURE);
SAME(EXISTING, BINDING_WANT_EXISTING);
SAME(WANT_PAUSE, BINDING_WANT_PAUSE);
SAME(RESUME, BINDING_WANT_RESUME);
SAME(WANT_DELETE, BINDING_WANT_DELETE);
SAME(REAP, BINDING_WANT_REAP);
SAME(ADOPT, BINDING_WANT_ADOPT);
SAME(IDLE, BINDING_WANT_IDLE);
SAME(FINISH, BINDING_WANT_FINISH);
SAME(OBSERVE, BINDING_WANT_OBSERVE);
SAME(STILL, BINDING_WANT_STILL);
SAME(TO_KILL, PLAN_IDLE_KILL);
SAME(TO_KILL, PLAN_IDLE_PAUSE + 1);
SAME(DO_FAIL, PLAN_STEP_FAIL);
SAME(DO_NOTHING, PLAN_STEP_NOTHING_BOUND);
SAME(DO_KEEP, PLAN_STEP_KEEP);
SAME(DO_CONDEMN, PLAN_STEP_CONDEMN);
SAME(DO_DELETE, PLAN_STEP_DELETE);
SAME(DO_LIST, PLAN_STEP_LIST);
SAME(DO_SETTLE, PLAN_STEP_SETTLE);
SAME(DO_GET, PLAN_STEP_GET);
SAME(DO_GONE, PLAN_STEP_GONE);
SAME(DO_CONNECT, PLAN_STEP_CONNECT);
SAME(DO_ADOPT, PLAN_STEP_ADOPT);
SAME(DO_INTEND_CREATE, PLAN_STEP_INTEND_CREATE);
SAME(DO_CREATE, PLAN_STEP_CREATE);
SAME(DO_INTEND_PAUSE, PLAN_STEP_INTEND_PAUSE);
SAME(DO_PAUSE, PLAN_STEP_PAUSE);
SAME(DO_TOMBSTONE, PLAN_STEP_TOMBSTONE);
SAME(DO_STILL, PLAN_STEP_STILL);
SAME(DO_REST, PLAN_STEP_REST);
SAME(DO_REAPED, PLAN_STEP_REAPED);
SAME(DO_NOTE, PLAN_STEP_NOTE);
SAME(DO_STILL_OTHER, PLAN_STEP_STILL_OTHER);
SAME(DO_TELL_OTHER, PLAN_STEP_TELL_OTHER);

enum { LISTED = 5, NOW = 10 };

static void name_sandbox(char *ret, size_t size, unsigned s)
{
    snprintf(ret, size, s ? "s%u" : "", s);
}

union model_holder model_grant(union model_doc doc, unsigned decision, unsigned want,
                               unsigned failed, unsigned gen, unsigned turn)
{
    static const enum plan_decision decisions[] = {
        [BINDING_VERIFY] = PLAN_DO_VERIFY,          [BINDING_REBUILD] = PLAN_DO_REBUILD,
        [BINDING_ADOPT_OR_CREATE] = PLAN_DO_CREATE, [BINDING_PAUSE] = PLAN_DO_PAUSE,
        [BINDING_DELETE] = PLAN_DO_DELETE,
    };
    static const enum plan_want wants[] = {
        [BINDING_WANT_ENSURE] = PLAN_ENSURE, [BINDING_WANT_EXISTING] = PLAN_EXISTING,
        [BINDING_WANT_PAUSE] = PLAN_PAUSE,   [BINDING_WANT_RESUME] = PLAN_RESUME,
        [BINDING_WANT_DELETE] = PLAN_DELETE, [BINDING_WANT_REAP] = PLAN_REAP,
        [BINDING_WANT_ADOPT] = PLAN_ADOPT,   [BINDING_WANT_IDLE] = PLAN_IDLE_PAUSE,
        [BINDING_WANT_FINISH] = PLAN_DELETE, [BINDING_WANT_OBSERVE] = PLAN_OBSERVE,
        [BINDING_WANT_STILL] = PLAN_STILL,
    };
    union model_holder h = {.all = 0};

    h.want = wants[want] & 15;
    h.decision = decisions[decision] & 7;
    h.attempt = doc.lock_attempt;
    h.fence = doc.lock_fence;
    h.believed = 1;
    h.bound = doc.bound;
    h.paused = doc.bound && doc.power == BINDING_PAUSED;
    h.running = doc.bound && doc.power == BINDING_RUNNING && doc.bound != failed;
    h.condemned = doc.condemned;
    h.pausing = doc.pausing;
    h.creates = doc.creates;
    h.gen = gen & 3;
    h.turn = turn & 1;
    h.failed = failed & 3;
    return h;
}

union model_beside model_grant_beside(union model_doc doc, unsigned want, unsigned s)
{
    union model_beside b = {.all = 0};

    b.turn = doc.turn_live ? doc.turn_uses : 0;
    b.use = doc.use_live ? doc.use_uses : 0;
    b.other = want == BINDING_WANT_STILL ? s & 3 : 0;
    return b;
}

static void add_intent(struct plan_state *plan, enum plan_intent_kind kind, unsigned s,
                       unsigned attempt, int64_t until_ms)
{
    struct plan_intent intent = {.kind = kind, .same_account = true, .not_after_ms = until_ms};

    intent.attempt[0] = (uint8_t)attempt;
    name_sandbox(intent.sandbox_id, sizeof intent.sandbox_id, s);
    plan_note_intent(plan, &intent);
}

static void unpack(union model_holder h, union model_beside b, unsigned attempts,
                   unsigned fences, unsigned unsettled, struct plan_state *plan)
{
    plan->want = (enum plan_want)h.want;
    plan->decision = (enum plan_decision)h.decision;
    plan->attempt[0] = h.attempt;
    plan->now_ms = NOW;
    plan->list_ms = LISTED;
    plan->auto_resume = true;
    plan->bound = h.bound != 0;
    plan->same_account = true;
    plan->paused = h.paused;
    plan->running = h.running;
    plan->seen = (enum plan_seen)h.seen;
    plan->stilled = h.stilled;
    plan->used = h.used;
    plan->must_list = h.must_list;
    plan->listed = h.listed;
    plan->can_pause = b.pauses;
    plan->other_stilled = b.stilled >> b.other & 1;
    name_sandbox(plan->sandbox_id, sizeof plan->sandbox_id, h.bound);
    name_sandbox(plan->other_id, sizeof plan->other_id, b.other);
    for (unsigned s = 1; s <= MODEL_SANDBOXES; s++) {
        struct plan_candidate *found = &plan->candidates[plan->n_candidates];

        if (h.condemned & 1U << s)
            add_intent(plan, PLAN_INTENT_DELETE, s, 0, 0);
        if (h.pausing & 1U << s)
            add_intent(plan, PLAN_INTENT_PAUSE, s, 0, 0);
        if (!(h.found & 1U << s))
            continue;
        found->create_ms = s; /* numbered in the order of their creation */
        found->attempt[0] = attempts >> 4 * s & 15;
        found->fence = fences >> 4 * s & 15;
        found->named = s == b.turn ? 1 : s == b.use ? 2 : 0;
        found->runs = b.runs >> s & 1;
        found->stilled = b.stilled >> s & 1;
        name_sandbox(found->sandbox_id, sizeof found->sandbox_id, s);
        plan->n_candidates++;
    }
    for (unsigned attempt = 1; attempt <= MODEL_ATTEMPTS; attempt++)
        if (h.creates & 1U << attempt)
            add_intent(plan, PLAN_INTENT_CREATE, 0, attempt,
                       unsettled & 1U << attempt ? NOW
                       : h.open & 1U << attempt  ? LISTED
                                                 : 0);
}

/* The plan's lists are long: it is cleared once, and after each use only as far as used. */
union model_step model_plan(union model_holder holder, union model_beside beside,
                            unsigned attempts, unsigned fences, unsigned unsettled,
                            unsigned keyed)
{
    static struct plan_state plan;
    struct plan_step step;
    union model_step ret = {.all = 0};

    unpack(holder, beside, attempts, fences, unsettled, &plan);
    plan.keyed = keyed != 0;
    step = plan_next(&plan);
    ret.kind = step.kind & 31;
    ret.s = step.sandbox_id[0] ? (unsigned)(step.sandbox_id[1] - '0') & 3 : 0;
    ret.attempt = step.attempt[0] & 15;
    plan.n_candidates = plan.n_intents = 0;
    return ret;
}

void model_note_gone(union model_holder *h, unsigned s)
{
    static struct plan_state plan;
    char name[4];

    unpack(*h, (union model_beside){.all = 0}, 0, 0, 0, &plan);
    name_sandbox(name, sizeof name, s);
    plan_note_gone(&plan, name);
    h->condemned = h->pausing = h->found = 0;
    for (size_t i = 0; i < plan.n_intents; i++) {
        unsigned of = (unsigned)(plan.intents[i].sandbox_id[1] - '0');

        if (plan.intents[i].kind == PLAN_INTENT_DELETE)
            h->condemned |= 1U << of & 15;
        else if (plan.intents[i].kind == PLAN_INTENT_PAUSE)
            h->pausing |= 1U << of & 15;
    }
    for (size_t i = 0; i < plan.n_candidates; i++)
        h->found |= 1U << (plan.candidates[i].sandbox_id[1] - '0') & 15;
    if (!plan.bound)
        h->bound = h->paused = h->running = 0;
    h->seen = plan.seen & 7;
    plan.n_candidates = plan.n_intents = 0;
}

enum model_verdict model_judge_create(unsigned key_fence, unsigned key_s, unsigned key_attempt,
                                      unsigned key_deleted, unsigned alive, unsigned s_fence,
                                      unsigned fence, unsigned attempt)
{
    static const enum model_verdict verdicts[] = {
        [KEY_CREATE] = MODEL_MAKE,     [KEY_SAME] = MODEL_EXISTS, [KEY_EXISTS] = MODEL_EXISTS,
        [KEY_REPLACE] = MODEL_REPLACE, [KEY_STALE] = MODEL_STALE, [KEY_GONE] = MODEL_NEVER,
    };
    struct key_record key = {.fence = key_fence, .delete_ms = key_deleted};
    char name[3];

    name_sandbox(key.sandbox_id, sizeof key.sandbox_id, key_s);
    if (key_attempt)
        snprintf(key.attempt, sizeof key.attempt, "%02x", key_attempt & 0xff);
    snprintf(name, sizeof name, "%02x", attempt & 0xff);
    return verdicts[rules_judge_create(&key,
                                       !key_s  ? KEY_SANDBOX_ABSENT
                                       : alive ? KEY_SANDBOX_ALIVE
                                               : KEY_SANDBOX_DEAD,
                                       s_fence, fence, name)];
}

int model_fence_passes(unsigned stored, unsigned asked)
{
    return rules_fence_passes(stored, asked);
}
