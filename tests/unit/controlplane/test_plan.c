/* test_plan.c - what the holder of a lock does next, for everything a crash can have left
 * behind. A little world stands in for binding and backend; a trace says the steps. */
#include <check.h>
#include <stdio.h>

#include "services/controlplane/plan.h"

enum { NOW = 1000000, TRACE_SIZE = 512, STEPS_MAX = 64 };

static const uint8_t mine[PLAN_ATTEMPT_SIZE] = {1}, theirs[PLAN_ATTEMPT_SIZE] = {2},
                     third[PLAN_ATTEMPT_SIZE] = {3};

static struct plan_state start(enum plan_want want, enum plan_decision decision)
{
    struct plan_state s = {.want = want,
                           .decision = decision,
                           .keyed = true,
                           .now_ms = NOW,
                           .auto_resume = true,
                           .create_horizon_ms = 100};

    memcpy(s.attempt, mine, sizeof mine);
    return s;
}

static void intend(struct plan_state *s, enum plan_intent_kind kind, const uint8_t *attempt,
                   const char *sandbox_id)
{
    struct plan_intent intent = {.kind = kind, .same_account = true, .not_after_ms = NOW};

    memcpy(intent.attempt, attempt, PLAN_ATTEMPT_SIZE);
    snprintf(intent.sandbox_id, sizeof intent.sandbox_id, "%s", sandbox_id);
    plan_note_intent(s, &intent);
}

static void bind_box(struct plan_state *s, const char *id)
{
    s->bound = s->same_account = s->running = true;
    snprintf(s->sandbox_id, sizeof s->sandbox_id, "%s", id);
}

static void candidate(struct plan_state *s, const char *id, const uint8_t *attempt,
                      int64_t create_ms)
{
    struct plan_candidate *at = &s->candidates[s->n_candidates++];

    *at = (struct plan_candidate){.create_ms = create_ms};
    memcpy(at->attempt, attempt, PLAN_ATTEMPT_SIZE);
    snprintf(at->sandbox_id, sizeof at->sandbox_id, "%s", id);
}

/* The world: what the backend holds (by tags), and what it says of the bound one. */
struct world {
    struct plan_candidate boxes[4];
    size_t n_boxes;
    enum plan_seen seen;
    bool used;    /* while it was being stilled */
    bool no_room; /* a workspace cannot be exported */
};

static void apply(struct plan_state *s, const struct plan_step *step, struct world *world)
{
    switch (step->kind) {
    case PLAN_STEP_CONDEMN:
        intend(s, PLAN_INTENT_DELETE, mine, step->sandbox_id);
        break;
    case PLAN_STEP_DELETE:
        for (size_t i = 0; i < world->n_boxes; i++)
            if (strcmp(world->boxes[i].sandbox_id, step->sandbox_id) == 0)
                world->boxes[i] = world->boxes[--world->n_boxes];
        plan_note_gone(s, step->sandbox_id);
        break;
    case PLAN_STEP_LIST:
        s->listed = true;
        s->list_ms = s->now_ms;
        s->n_candidates = 0;
        for (size_t i = 0; i < world->n_boxes; i++)
            candidate(s, world->boxes[i].sandbox_id, world->boxes[i].attempt,
                      world->boxes[i].create_ms);
        break;
    case PLAN_STEP_SETTLE:
        plan_note_settled(s, step->attempt);
        break;
    case PLAN_STEP_GET:
        s->seen = world->seen;
        break;
    case PLAN_STEP_GONE:
        plan_note_gone(s, step->sandbox_id);
        break;
    case PLAN_STEP_INTEND_CREATE:
        intend(s, PLAN_INTENT_CREATE, mine, "");
        break;
    case PLAN_STEP_STILL:
        s->stilled = true;
        s->used = world->used;
        s->seen = world->seen;
        break;
    case PLAN_STEP_INTEND_PAUSE:
        intend(s, PLAN_INTENT_PAUSE, mine, step->sandbox_id);
        break;
    case PLAN_STEP_EXPORT:
        s->seen = world->seen;
        s->export_failed = world->no_room;
        s->exported = !world->no_room && world->seen != PLAN_SEEN_GONE;
        break;
    case PLAN_STEP_STILL_OTHER:
        plan_note_stilled(s, step->sandbox_id);
        break;
    default:
        break;
    }
}

static bool ends(enum plan_step_kind kind)
{
    return kind == PLAN_STEP_FAIL || kind == PLAN_STEP_NOTHING_BOUND ||
           kind == PLAN_STEP_KEEP || kind == PLAN_STEP_CONNECT || kind == PLAN_STEP_ADOPT ||
           kind == PLAN_STEP_CREATE || kind == PLAN_STEP_PAUSE || kind == PLAN_STEP_TOMBSTONE ||
           kind == PLAN_STEP_REST || kind == PLAN_STEP_REAPED || kind == PLAN_STEP_NOTE ||
           kind == PLAN_STEP_TELL_OTHER;
}

/* "condemn S1, delete S1, intend-create, create" */
static const char *trace(struct plan_state s, struct world world)
{
    static char text[TRACE_SIZE];
    size_t len = 0;

    for (int i = 0; i < STEPS_MAX; i++) {
        struct plan_step step = plan_next(&s);
        const char *about =
            step.kind == PLAN_STEP_FAIL ? berth_reason_name(step.reason) : step.sandbox_id;

        len += (size_t)snprintf(text + len, sizeof text - len, "%s%s%s%s", i ? ", " : "",
                                plan_step_name(step.kind), *about ? " " : "", about);
        if (ends(step.kind))
            return text;
        apply(&s, &step, &world);
    }
    ck_abort_msg("no end: %s", text);
    return text;
}

/* -------------------------------------------------------------------- create */

/* A new session on a keyed backend: the grant wrote the intent, nothing has to be looked for.
 */
START_TEST(create__keyed_and_new__at_once)
{
    struct plan_state s = start(PLAN_ENSURE, PLAN_DO_CREATE);

    intend(&s, PLAN_INTENT_CREATE, mine, "");
    ck_assert_str_eq(trace(s, (struct world){0}), "create");
}
END_TEST

/* Where create is not keyed nothing is made without a whole list and an intent. */
START_TEST(create__not_keyed__listed_and_intended_first)
{
    struct plan_state s = start(PLAN_ENSURE, PLAN_DO_CREATE);

    s.keyed = false;
    ck_assert_str_eq(trace(s, (struct world){0}), "list, intend-create, create");
}
END_TEST

/* What a crash can leave of an earlier create, and what the next holder does about it. */
static const struct {
    const char *what;
    bool keyed, landed;
    int64_t now_ms;
    const char *trace;
} inherited[] = {
    {"never sent, or refused and not noted", true, false, NOW, "list, settle, create"},
    {"answer lost, it is there", true, true, NOW, "list, adopt S1"},
    {"not keyed, may still land", false, false, NOW, "list, fail CREATE_UNSETTLED"},
    {"not keyed, the horizon's last moment", false, false, NOW + 100,
     "list, fail CREATE_UNSETTLED"},
    {"not keyed, past the horizon", false, false, NOW + 101,
     "list, settle, intend-create, create"},
    {"not keyed, it is there", false, true, NOW, "list, adopt S1"},
};

START_TEST(create__inherited_intent__settled_or_found)
{
    struct plan_state s = start(PLAN_ENSURE, PLAN_DO_CREATE);
    struct world world = {0};

    s.keyed = inherited[_i].keyed;
    s.now_ms = inherited[_i].now_ms;
    intend(&s, PLAN_INTENT_CREATE, theirs, "");
    if (s.keyed)
        intend(&s, PLAN_INTENT_CREATE, mine, "");
    if (inherited[_i].landed) {
        world.boxes[0] = (struct plan_candidate){.sandbox_id = "S1", .create_ms = 5};
        memcpy(world.boxes[0].attempt, theirs, PLAN_ATTEMPT_SIZE);
        world.n_boxes = 1;
    }
    ck_assert_str_eq(trace(s, world), inherited[_i].trace);
}
END_TEST

/* A create may have landed between a list and the horizon: such a list settles nothing. */
START_TEST(create__listed_before_the_horizon__listed_again)
{
    struct plan_state s = start(PLAN_ENSURE, PLAN_DO_CREATE);

    s.keyed = false;
    s.listed = true;
    s.list_ms = NOW + 100;
    s.now_ms = NOW + 101;
    intend(&s, PLAN_INTENT_CREATE, theirs, "");
    ck_assert_str_eq(trace(s, (struct world){0}), "list, settle, intend-create, create");
    s.list_ms = NOW + 101;
    ck_assert_str_eq(trace(s, (struct world){0}), "settle, intend-create, create");
}
END_TEST

/* How long to wait for an unsettled create is said. */
START_TEST(create__unsettled__retry_time_told)
{
    struct plan_state s = start(PLAN_ENSURE, PLAN_DO_CREATE);

    s.keyed = false;
    s.listed = true;
    s.now_ms = NOW + 40;
    intend(&s, PLAN_INTENT_CREATE, theirs, "");
    ck_assert_int_eq(plan_next(&s).retry_after_ms, 61);
}
END_TEST

/* Which of S1 (made at 30), S2 (at 10), S3 (at 20) is adopted (F17). Words: what is known of
 * one, its number behind it. */
static const struct {
    const char *what;
    const char *trace;
} several[] = {
    {"", "adopt S2"}, /* the oldest */
    {"fence 1", "adopt S1"},
    {"fence 1, last 3", "adopt S3"},
    {"fence 1, last 3, other 2", "adopt S2"},
    {"fence 1, last 3, other 2, own 1", "adopt S1"},
    {"fence 1, last 3, own 1, intent 3", "adopt S3"},
    {"last 1, other 3", "adopt S3"},
    {"own 3, other 2", "adopt S3"},
    {"same age", "adopt S1"},
    {"pause", "still-other S1, still-other S3, adopt S2"},
    {"pause, sleeps 1", "still-other S3, adopt S2"},
    {"pause, other 3, intent 2", "still-other S1, adopt S2"}, /* never what a turn uses */
};

static bool says(const char *what, const char *word, size_t i)
{
    char text[32];

    snprintf(text, sizeof text, "%s %zu", word, i + 1);
    return strstr(what, text) != NULL;
}

START_TEST(adopt__several__best_known_one_others_rest)
{
    static const enum plan_want wants[] = {PLAN_ENSURE, PLAN_ADOPT};
    const char *what = several[_i].what;

    for (size_t w = 0; w < BERTH_COUNT(wants); w++) {
        struct plan_state s = start(wants[w], PLAN_DO_CREATE);

        s.listed = true;
        s.can_pause = strstr(what, "pause") != NULL;
        candidate(&s, "S1", third, 30);
        candidate(&s, "S2", third, strstr(what, "same age") ? 30 : 10);
        candidate(&s, "S3", theirs, strstr(what, "same age") ? 30 : 20);
        for (size_t i = 0; i < 3; i++) {
            struct plan_candidate *c = &s.candidates[i];

            c->fence = says(what, "fence", i) ? 7 : 3;
            c->last = says(what, "last", i);
            c->named = says(what, "own", i) ? 1 : says(what, "other", i) ? 2 : 0;
            c->runs = !says(what, "sleeps", i);
            if (says(what, "intent", i)) {
                intend(&s, PLAN_INTENT_CREATE, theirs, "");
                memcpy(c->attempt, theirs, PLAN_ATTEMPT_SIZE);
                if (i != 2)
                    memcpy(s.candidates[2].attempt, third, PLAN_ATTEMPT_SIZE);
            }
        }
        ck_assert_msg(strcmp(trace(s, (struct world){0}), several[_i].trace) == 0, "%s: %s",
                      what, trace(s, (struct world){0}));
    }
}
END_TEST

/* Nothing new in a cordoned config; what is found is adopted all the same. */
START_TEST(create__cordoned__refused)
{
    struct plan_state s = start(PLAN_ENSURE, PLAN_DO_CREATE);

    s.cordoned = true;
    intend(&s, PLAN_INTENT_CREATE, mine, "");
    ck_assert_str_eq(trace(s, (struct world){0}), "fail CONFIG_CORDONED");
    s.listed = true;
    candidate(&s, "S1", third, 1);
    ck_assert_str_eq(trace(s, (struct world){0}), "adopt S1");
}
END_TEST

/* A condemned sandbox is deleted before anything else, and never adopted. */
START_TEST(create__inherited_condemned__deleted_first)
{
    struct plan_state s = start(PLAN_ENSURE, PLAN_DO_CREATE);
    struct world world = {.boxes = {{.sandbox_id = "S1"}}, .n_boxes = 1};

    s.keyed = false;
    intend(&s, PLAN_INTENT_DELETE, theirs, "S1");
    ck_assert_str_eq(trace(s, world), "delete S1, list, intend-create, create");
}
END_TEST

/* An intent of another account cannot be settled from here: nothing is touched. */
START_TEST(any__intent_of_another_account__account_changed)
{
    struct plan_state s = start(PLAN_ENSURE, PLAN_DO_CREATE);

    intend(&s, PLAN_INTENT_DELETE, theirs, "S1");
    s.intents[0].same_account = false;
    ck_assert_str_eq(trace(s, (struct world){0}), "fail ACCOUNT_CHANGED");
    s.intents[0].kind = PLAN_INTENT_CREATE;
    s.listed = true;
    ck_assert_str_eq(trace(s, (struct world){0}), "fail ACCOUNT_CHANGED");
}
END_TEST

/* More intents than fit: the known ones are settled, the rest is the next holder's. */
START_TEST(any__more_intents_than_fit__unsettled)
{
    struct plan_state s = start(PLAN_ENSURE, PLAN_DO_CREATE);

    s.more_creates = true;
    intend(&s, PLAN_INTENT_CREATE, theirs, "");
    ck_assert_str_eq(trace(s, (struct world){0}), "list, settle, fail CREATE_UNSETTLED");
    s = start(PLAN_ENSURE, PLAN_DO_VERIFY);
    bind_box(&s, "S1");
    s.more_deletes = true;
    intend(&s, PLAN_INTENT_DELETE, theirs, "S9");
    ck_assert_str_eq(trace(s, (struct world){0}), "delete S9, fail CREATE_UNSETTLED");
}
END_TEST

/* -------------------------------------------------------------------- verify */

static const struct {
    enum plan_want want;
    enum plan_seen seen;
    bool paused, auto_resume;
    const char *trace;
} verify[] = {
    {PLAN_ENSURE, PLAN_SEEN_RUNNING, false, true, "get S1, connect S1"},
    {PLAN_ENSURE, PLAN_SEEN_PAUSED, true, true, "get S1, connect S1"},
    {PLAN_EXISTING, PLAN_SEEN_PAUSED, true, true, "get S1, connect S1"},
    {PLAN_ENSURE, PLAN_SEEN_PAUSED, true, false, "get S1, fail SANDBOX_PAUSED"},
    {PLAN_ENSURE, PLAN_SEEN_PAUSED, false, false, "get S1, fail SANDBOX_PAUSED"},
    {PLAN_EXISTING, PLAN_SEEN_RUNNING, true, false, "get S1, fail SANDBOX_PAUSED"},
    {PLAN_RESUME, PLAN_SEEN_PAUSED, true, false, "get S1, connect S1"},
    {PLAN_ENSURE, PLAN_SEEN_TRANSITIONING, false, true, "get S1, fail SANDBOX_TRANSITIONING"},
    {PLAN_ENSURE, PLAN_SEEN_UNKNOWN, false, true, "get S1, fail SANDBOX_TRANSITIONING"},
    {PLAN_ENSURE, PLAN_SEEN_GONE, false, true, "get S1, gone S1, intend-create, create"},
    {PLAN_EXISTING, PLAN_SEEN_GONE, false, true, "get S1, gone S1, nothing-bound"},
    {PLAN_RESUME, PLAN_SEEN_GONE, true, true, "get S1, gone S1, nothing-bound"},
};

START_TEST(verify__what_is_seen__decides)
{
    struct plan_state s = start(verify[_i].want, PLAN_DO_VERIFY);

    bind_box(&s, "S1");
    s.paused = verify[_i].paused;
    s.auto_resume = verify[_i].auto_resume;
    ck_assert_str_eq(trace(s, (struct world){.seen = verify[_i].seen}), verify[_i].trace);
}
END_TEST

/* Bound under another account than the config has now: a 404 would prove nothing. */
START_TEST(verify__other_account__nothing_touched)
{
    struct plan_state s = start(PLAN_ENSURE, PLAN_DO_VERIFY);

    bind_box(&s, "S1");
    s.same_account = false;
    ck_assert_str_eq(trace(s, (struct world){0}), "fail ACCOUNT_CHANGED");
}
END_TEST

/* ------------------------------------------------------------------- rebuild */

/* Condemn, delete, create anew; a crash after each goes on from there. */
START_TEST(rebuild__drop__condemned_deleted_created)
{
    struct plan_state s = start(PLAN_ENSURE, PLAN_DO_REBUILD);

    bind_box(&s, "S1");
    ck_assert_str_eq(trace(s, (struct world){0}),
                     "condemn S1, delete S1, intend-create, create");
    /* Crashed after condemning: binding grants ADOPT-OR-CREATE, the intent is inherited. */
    s = start(PLAN_ENSURE, PLAN_DO_CREATE);
    bind_box(&s, "S1");
    intend(&s, PLAN_INTENT_DELETE, theirs, "S1");
    intend(&s, PLAN_INTENT_CREATE, mine, "");
    ck_assert_str_eq(trace(s, (struct world){0}), "delete S1, create");
    /* Crashed after the delete was noted. */
    s = start(PLAN_ENSURE, PLAN_DO_CREATE);
    intend(&s, PLAN_INTENT_CREATE, mine, "");
    ck_assert_str_eq(trace(s, (struct world){0}), "create");
}
END_TEST

/* A workspace that nobody can carry, or a cordon, keeps the old one; one that does not run is
 * looked at first. */
START_TEST(rebuild__cannot__kept)
{
    struct plan_state s = start(PLAN_ENSURE, PLAN_DO_REBUILD);

    bind_box(&s, "S1");
    s.must_carry = true;
    ck_assert_str_eq(trace(s, (struct world){0}), "keep S1");
    s.must_carry = false;
    s.cordoned = true;
    ck_assert_str_eq(trace(s, (struct world){0}), "keep S1");
    s.running = false;
    ck_assert_str_eq(trace(s, (struct world){.seen = PLAN_SEEN_PAUSED}), "get S1, connect S1");
}
END_TEST

/* The workspace is exported before its sandbox is condemned; where that fails it stays. */
START_TEST(rebuild__carry__exported_first_or_kept)
{
    struct plan_state s = start(PLAN_ENSURE, PLAN_DO_REBUILD);

    bind_box(&s, "S1");
    s.must_carry = s.can_carry = true;
    ck_assert_str_eq(trace(s, (struct world){0}),
                     "export S1, condemn S1, delete S1, intend-create, create");
    ck_assert_str_eq(trace(s, (struct world){.no_room = true}), "export S1, connect S1");
    ck_assert_str_eq(trace(s, (struct world){.seen = PLAN_SEEN_GONE}),
                     "export S1, gone S1, intend-create, create");
    s.paused = true;
    s.auto_resume = false;
    ck_assert_str_eq(trace(s, (struct world){.no_room = true, .seen = PLAN_SEEN_PAUSED}),
                     "export S1, fail SANDBOX_PAUSED");
    s.paused = false;
    s.must_carry = false;
    ck_assert_str_eq(trace(s, (struct world){0}),
                     "condemn S1, delete S1, intend-create, create");
    s.must_carry = s.cordoned = true;
    ck_assert_str_eq(trace(s, (struct world){0}), "keep S1");
}
END_TEST

/* So does an idle kill; a workspace that cannot be exported keeps its sandbox. */
START_TEST(idle_kill__carry__exported_first_or_woken)
{
    struct plan_state s = start(PLAN_IDLE_KILL, PLAN_DO_PAUSE);

    bind_box(&s, "S1");
    s.must_carry = s.can_carry = true;
    ck_assert_str_eq(trace(s, (struct world){0}),
                     "still S1, export S1, condemn S1, delete S1, reaped");
    ck_assert_str_eq(trace(s, (struct world){.no_room = true}),
                     "still S1, export S1, connect S1");
    ck_assert_str_eq(trace(s, (struct world){.used = true}), "still S1, connect S1");
}
END_TEST

/* --------------------------------------------------------------------- pause */

START_TEST(pause__intent_first__then_paused)
{
    struct plan_state s = start(PLAN_PAUSE, PLAN_DO_PAUSE);

    bind_box(&s, "S1");
    ck_assert_str_eq(trace(s, (struct world){0}), "intend-pause S1, pause S1");
    intend(&s, PLAN_INTENT_PAUSE, mine, "S1");
    ck_assert_str_eq(trace(s, (struct world){0}), "pause S1");
    s.seen = PLAN_SEEN_GONE; /* said by the pause itself */
    ck_assert_str_eq(trace(s, (struct world){0}), "gone S1, nothing-bound");
}
END_TEST

/* -------------------------------------------------------------------- delete */

START_TEST(delete__every_crash_point__ends_in_a_tombstone)
{
    struct plan_state s = start(PLAN_DELETE, PLAN_DO_DELETE);
    struct world world = {.boxes = {{.sandbox_id = "S1"}}, .n_boxes = 1};

    /* As granted: the bound one is condemned by the grant. */
    bind_box(&s, "S1");
    intend(&s, PLAN_INTENT_DELETE, mine, "S1");
    ck_assert_str_eq(trace(s, world), "delete S1, list, tombstone");
    /* As it would be without. */
    s.n_intents = 0;
    ck_assert_str_eq(trace(s, world), "condemn S1, delete S1, list, tombstone");
    /* Crashed after the delete was noted. */
    s = start(PLAN_DELETE, PLAN_DO_DELETE);
    ck_assert_str_eq(trace(s, (struct world){0}), "list, tombstone");
    /* The binding was lost, the sandbox is there: found by its tags. */
    ck_assert_str_eq(trace(s, world), "list, condemn S1, delete S1, tombstone");
    /* A create in flight. */
    intend(&s, PLAN_INTENT_CREATE, theirs, "");
    ck_assert_str_eq(trace(s, (struct world){0}), "list, settle, tombstone");
    s.keyed = false;
    ck_assert_str_eq(trace(s, (struct world){0}), "list, fail CREATE_UNSETTLED");
    s.now_ms = NOW + 101;
    ck_assert_str_eq(trace(s, (struct world){0}), "list, settle, tombstone");
}
END_TEST

/* Nothing is bound, and the caller did not ask for more. */
START_TEST(existing__nothing_bound__said)
{
    struct plan_state s = start(PLAN_EXISTING, PLAN_DO_VERIFY);

    ck_assert_str_eq(trace(s, (struct world){0}), "nothing-bound");
}
END_TEST

/* ------------------------------------------------------------------ the reaper's */

/* What is there, and what the reaper's lock does about it. It never creates, and deletes only
 * what an intent condemns or what it has stilled itself. */
static const struct {
    const char *what;
    enum plan_want want;
    const char *trace;
} reaper_rows[] = {
    {"nothing", PLAN_ADOPT, "list, nothing-bound"},
    {"box", PLAN_ADOPT, "list, adopt S1"},
    {"create box", PLAN_ADOPT, "list, adopt S1"},
    {"create", PLAN_ADOPT, "list, settle, nothing-bound"},
    {"create, not keyed", PLAN_ADOPT, "list, fail CREATE_UNSETTLED"},
    {"delete", PLAN_ADOPT, "delete S9, list, nothing-bound"},
    {"bound", PLAN_ADOPT, "nothing-bound"},
    {"bound create", PLAN_ADOPT, "list, settle, nothing-bound"},
    {"bound create box, not keyed", PLAN_ADOPT, "list, settle, nothing-bound"},
    {"bound create, not keyed", PLAN_ADOPT, "list, fail CREATE_UNSETTLED"},
    {"bound delete", PLAN_REAP, "delete S9, reaped"},
    {"delete", PLAN_REAP, "delete S9, reaped"},
    {"bound", PLAN_IDLE_PAUSE, "still S0, rest S0"},
    {"bound used", PLAN_IDLE_PAUSE, "still S0, connect S0"},
    {"bound gone", PLAN_IDLE_PAUSE, "still S0, gone S0, reaped"},
    {"bound", PLAN_IDLE_KILL, "still S0, condemn S0, delete S0, reaped"},
    {"bound used", PLAN_IDLE_KILL, "still S0, connect S0"},
    {"nothing", PLAN_IDLE_KILL, "reaped"},
    {"bound", PLAN_OBSERVE, "get S0, nothing-bound"},
    {"bound, sleeps", PLAN_OBSERVE, "get S0, note S0"},
    {"bound, sleeps, known", PLAN_OBSERVE, "get S0, nothing-bound"},
    {"bound, known", PLAN_OBSERVE, "get S0, note S0"},
    {"bound, ends", PLAN_OBSERVE, "get S0, note S0"},
    {"bound, ends, sleeps, known", PLAN_OBSERVE, "get S0, nothing-bound"},
    {"bound gone", PLAN_OBSERVE, "get S0, gone S0, reaped"},
    {"bound, between", PLAN_OBSERVE, "get S0, nothing-bound"},
    {"nothing", PLAN_OBSERVE, "reaped"},
    {"bound, other", PLAN_STILL, "still-other S5, tell-other S5"},
};

START_TEST(reaper__each_want__its_steps)
{
    const char *what = reaper_rows[_i].what;
    struct plan_state s = start(reaper_rows[_i].want, PLAN_DO_CREATE);
    struct world world = {.seen = strstr(what, "gone") ? PLAN_SEEN_GONE : PLAN_SEEN_RUNNING,
                          .used = strstr(what, "used") != NULL};

    s.keyed = !strstr(what, "not keyed");
    if (strstr(what, "sleeps"))
        world.seen = PLAN_SEEN_PAUSED;
    if (strstr(what, "between"))
        world.seen = PLAN_SEEN_TRANSITIONING;
    if (strncmp(what, "bound", 5) == 0)
        bind_box(&s, "S0");
    s.paused = strstr(what, "known") != NULL;
    s.ends_soon = strstr(what, "ends") != NULL;
    if (strstr(what, "other"))
        snprintf(s.other_id, sizeof s.other_id, "S5");
    if (strstr(what, "create"))
        intend(&s, PLAN_INTENT_CREATE, theirs, "");
    if (strstr(what, "delete"))
        intend(&s, PLAN_INTENT_DELETE, theirs, "S9");
    if (strstr(what, "box")) {
        world.boxes[0] = (struct plan_candidate){.sandbox_id = "S1", .create_ms = 5};
        memcpy(world.boxes[0].attempt, theirs, PLAN_ATTEMPT_SIZE);
        world.n_boxes = 1;
    }
    ck_assert_msg(strcmp(trace(s, world), reaper_rows[_i].trace) == 0, "%s: %s", what,
                  trace(s, world));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("controlplane/plan");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int failed;

    tcase_add_test(all, create__keyed_and_new__at_once);
    tcase_add_test(all, create__not_keyed__listed_and_intended_first);
    tcase_add_loop_test(all, create__inherited_intent__settled_or_found, 0,
                        (int)BERTH_COUNT(inherited));
    tcase_add_test(all, create__listed_before_the_horizon__listed_again);
    tcase_add_test(all, create__unsettled__retry_time_told);
    tcase_add_loop_test(all, adopt__several__best_known_one_others_rest, 0,
                        (int)BERTH_COUNT(several));
    tcase_add_test(all, create__cordoned__refused);
    tcase_add_test(all, create__inherited_condemned__deleted_first);
    tcase_add_test(all, any__intent_of_another_account__account_changed);
    tcase_add_test(all, any__more_intents_than_fit__unsettled);
    tcase_add_loop_test(all, verify__what_is_seen__decides, 0, (int)BERTH_COUNT(verify));
    tcase_add_test(all, verify__other_account__nothing_touched);
    tcase_add_test(all, rebuild__drop__condemned_deleted_created);
    tcase_add_test(all, rebuild__cannot__kept);
    tcase_add_test(all, rebuild__carry__exported_first_or_kept);
    tcase_add_test(all, idle_kill__carry__exported_first_or_woken);
    tcase_add_test(all, pause__intent_first__then_paused);
    tcase_add_test(all, delete__every_crash_point__ends_in_a_tombstone);
    tcase_add_test(all, existing__nothing_bound__said);
    tcase_add_loop_test(all, reaper__each_want__its_steps, 0, (int)BERTH_COUNT(reaper_rows));
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
