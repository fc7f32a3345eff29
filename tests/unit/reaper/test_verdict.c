/* test_verdict.c - what is to become of a sandbox: every row of the rule. */
#include <check.h>
#include <string.h>

#include "services/reaper/verdict.h"

enum { NOW = 1000000000, MINUTE = 60 * 1000, HOUR = 60 * MINUTE, GRACE = 10 * MINUTE };

static const struct reaper_limits limits = {.grace_ms = GRACE,
                                            .duplicate_grace_ms = 24 * (int64_t)HOUR};

/* Ours, an hour old, of an active session that has nothing bound. */
static struct reaper_facts unowned(void)
{
    return (struct reaper_facts){
        .tags = REAPER_TAGS_OURS, .create_ms = NOW - HOUR, .session = REAPER_ACTIVE};
}

/* The session's own, used half an hour ago; it rests after that long. */
static struct reaper_facts owned(void)
{
    struct reaper_facts facts = unowned();

    facts.bound = facts.bound_here = facts.same_account = true;
    facts.active_ms = NOW - 30 * MINUTE;
    facts.policy = (struct reaper_policy){.idle_ms = 30 * MINUTE,
                                          .max_paused_ms = 14 * 24 * (int64_t)HOUR};
    return facts;
}

static void spoil(struct reaper_facts *f, const char *what)
{
    if (strstr(what, "no tags"))
        f->tags = REAPER_TAGS_NONE;
    if (strstr(what, "foreign"))
        f->tags = REAPER_TAGS_FOREIGN;
    if (strstr(what, "later"))
        f->tags = REAPER_TAGS_LATER;
    if (strstr(what, "old account"))
        f->tags = REAPER_TAGS_OLD_ACCOUNT;
    if (strstr(what, "unreadable"))
        f->session = REAPER_UNREADABLE;
    if (strstr(what, "no record"))
        f->session = REAPER_NO_RECORD;
    if (strstr(what, "deleting"))
        f->session = REAPER_DELETING;
    if (strstr(what, "tombstone"))
        f->session = REAPER_DELETED;
    if (strstr(what, "ageless"))
        f->create_ms = 0;
    if (strstr(what, "ended"))
        f->ended = true;
    if (strstr(what, "elsewhere"))
        f->elsewhere = true;
    if (strstr(what, "condemned"))
        f->condemned = true;
    if (strstr(what, "second"))
        f->bound = f->same_account = true;
    if (strstr(what, "other account"))
        f->same_account = false;
}

/* What nobody owns. Nothing is reaped because something is absent. */
static const struct {
    const char *what;
    enum reaper_why why;
    enum reaper_act act;
} unowned_rows[] = {
    {"no tags", REAPER_KEEP_UNTAGGED, REAPER_ACT_NONE},
    {"foreign", REAPER_KEEP_FOREIGN, REAPER_ACT_NONE},
    {"foreign, tombstone", REAPER_KEEP_FOREIGN, REAPER_ACT_NONE},
    {"later", REAPER_KEEP_UNREADABLE, REAPER_ACT_NONE},
    {"old account", REAPER_OLD_TARGET, REAPER_ACT_NONE},
    {"old account, tombstone", REAPER_OLD_TARGET, REAPER_ACT_NONE},
    {"unreadable", REAPER_KEEP_UNREADABLE, REAPER_ACT_NONE},
    {"unreadable, condemned", REAPER_KEEP_UNREADABLE, REAPER_ACT_NONE},
    {"no record", REAPER_ADOPT, REAPER_ACT_ADOPT},
    {"no record, ageless", REAPER_KEEP_UNKNOWN_AGE, REAPER_ACT_NONE},
    {"no record, ended", REAPER_KEEP_ENDED, REAPER_ACT_NONE},
    {"unbound", REAPER_ADOPT, REAPER_ACT_ADOPT},
    {"unbound, elsewhere", REAPER_OLD_TARGET, REAPER_ACT_NONE},
    {"unbound, condemned", REAPER_CONDEMNED, REAPER_ACT_REAP},
    {"deleting", REAPER_SESSION_DELETED, REAPER_ACT_FINISH_DELETE},
    {"tombstone", REAPER_SESSION_DELETED, REAPER_ACT_REAP},
    {"tombstone, ended", REAPER_SESSION_DELETED, REAPER_ACT_REAP},
    {"tombstone, ageless", REAPER_KEEP_UNKNOWN_AGE, REAPER_ACT_NONE},
    {"second", REAPER_DUPLICATE, REAPER_ACT_REAP},
    {"second, ageless", REAPER_KEEP_UNKNOWN_AGE, REAPER_ACT_NONE},
    {"second, other account", REAPER_OLD_TARGET, REAPER_ACT_NONE},
    {"second, condemned", REAPER_CONDEMNED, REAPER_ACT_REAP},
};

START_TEST(judge__unowned__evidence_or_left_alone)
{
    struct reaper_facts facts = unowned();
    struct reaper_verdict got;

    spoil(&facts, unowned_rows[_i].what);
    got = reaper_judge(&facts, &limits, NOW);
    ck_assert_msg(got.why == unowned_rows[_i].why && got.act == unowned_rows[_i].act,
                  "%s: %s, act %d", unowned_rows[_i].what, reaper_why_name(got.why), got.act);
}
END_TEST

/* Grace is waited for twice: by our clock from first sight, and by age; a second one's longer.
 */
START_TEST(judge__unowned__only_after_its_grace)
{
    struct reaper_facts facts = unowned();
    struct reaper_verdict got = reaper_judge(&facts, &limits, NOW);

    ck_assert_int_eq(got.hold_ms, GRACE);
    ck_assert_int_eq(got.ripe_ms, facts.create_ms + GRACE);
    spoil(&facts, "tombstone");
    got = reaper_judge(&facts, &limits, NOW);
    ck_assert_int_eq(got.hold_ms, GRACE);
    ck_assert_int_eq(got.ripe_ms, facts.create_ms + GRACE);
    facts = unowned();
    spoil(&facts, "second");
    got = reaper_judge(&facts, &limits, NOW);
    ck_assert_int_eq(got.hold_ms, limits.duplicate_grace_ms);
    ck_assert_int_eq(got.ripe_ms, facts.create_ms + GRACE);
}
END_TEST

static void use(struct reaper_facts *f, const char *what)
{
    if (strstr(what, "in use"))
        f->in_use = true;
    if (strstr(what, "just now"))
        f->active_ms = NOW - 9999;
    if (strstr(what, "a moment ago"))
        f->active_ms = NOW - 30 * MINUTE + 1;
    if (strstr(what, "timer"))
        f->policy.timer = true;
    if (strstr(what, "kill"))
        f->policy.kill = true;
    if (strstr(what, "never idle"))
        f->policy.idle_ms = 0;
    if (strstr(what, "soon idle"))
        f->policy.idle_ms = 1;
    if (strstr(what, "paused"))
        f->paused = true;
    if (strstr(what, "for long"))
        f->active_ms = f->create_ms = NOW - f->policy.max_paused_ms - f->policy.idle_ms;
    if (strstr(what, "not quite"))
        f->active_ms = f->create_ms += 1;
    if (strstr(what, "for ever"))
        f->policy.max_paused_ms = 0;
    if (strstr(what, "lived"))
        f->policy.max_lifetime_ms = HOUR;
    if (strstr(what, "still young"))
        f->create_ms++;
}

/* What was left running keeps a sandbox awake, but not beyond its lifetime: only a call does.
 */
START_TEST(judge__runs_by_itself__lifetime_ends_it)
{
    struct reaper_facts facts = owned();
    struct reaper_verdict got;

    facts.call_ms = facts.active_ms;
    facts.active_ms = NOW;
    ck_assert_int_eq(reaper_judge(&facts, &limits, NOW).act, REAPER_ACT_NONE);
    use(&facts, "lived");
    got = reaper_judge(&facts, &limits, NOW);
    ck_assert_int_eq(got.why, REAPER_MAX_LIFETIME);
    ck_assert(got.calls_only);
    ck_assert_int_ge(got.unless_active_after_ms, facts.call_ms);
    facts.call_ms = NOW - 9999;
    ck_assert_int_eq(reaper_judge(&facts, &limits, NOW).act, REAPER_ACT_NONE);
}
END_TEST

/* The session's own: nothing under a turn, a command or a stream. */
static const struct {
    const char *what;
    enum reaper_why why;
    enum reaper_act act;
} owned_rows[] = {
    {"idle", REAPER_IDLE, REAPER_ACT_IDLE_PAUSE},
    {"idle, kill", REAPER_IDLE, REAPER_ACT_IDLE_KILL},
    {"idle, in use", REAPER_KEEP_BOUND, REAPER_ACT_NONE},
    {"idle, timer", REAPER_KEEP_BOUND, REAPER_ACT_NONE},
    {"idle but used a moment ago", REAPER_KEEP_BOUND, REAPER_ACT_NONE},
    {"soon idle, used just now", REAPER_KEEP_BOUND, REAPER_ACT_NONE},
    {"soon idle", REAPER_IDLE, REAPER_ACT_IDLE_PAUSE},
    {"never idle", REAPER_KEEP_BOUND, REAPER_ACT_NONE},
    {"paused", REAPER_KEEP_BOUND, REAPER_ACT_NONE},
    {"paused for long", REAPER_MAX_PAUSED, REAPER_ACT_FINISH_DELETE},
    {"paused for long, not quite", REAPER_KEEP_BOUND, REAPER_ACT_NONE},
    {"paused for ever", REAPER_KEEP_BOUND, REAPER_ACT_NONE},
    {"paused for long, in use", REAPER_KEEP_BOUND, REAPER_ACT_NONE},
    {"lived", REAPER_MAX_LIFETIME, REAPER_ACT_IDLE_KILL},
    {"lived, in use", REAPER_KEEP_BOUND, REAPER_ACT_NONE},
    {"lived, used just now", REAPER_KEEP_BOUND, REAPER_ACT_NONE},
    {"lived, still young, never idle", REAPER_KEEP_BOUND, REAPER_ACT_NONE},
    {"lived, timer", REAPER_KEEP_BOUND, REAPER_ACT_NONE},
};

START_TEST(judge__owned__policy_and_never_in_use)
{
    struct reaper_facts facts = owned();
    struct reaper_verdict got;

    use(&facts, owned_rows[_i].what);
    got = reaper_judge(&facts, &limits, NOW);
    if (got.ripe_ms > NOW) /* it is coming: nothing is done yet */
        got = (struct reaper_verdict){.why = REAPER_KEEP_BOUND};
    ck_assert_msg(got.why == owned_rows[_i].why && got.act == owned_rows[_i].act,
                  "%s: %s, act %d", owned_rows[_i].what, reaper_why_name(got.why), got.act);
    if (got.act) {
        ck_assert_int_ge(got.unless_active_after_ms, facts.active_ms);
        ck_assert_int_lt(got.unless_active_after_ms, NOW);
        ck_assert_int_gt(got.hold_ms, 0);
        ck_assert_int_le(got.hold_ms, GRACE);
    }
}
END_TEST

/* A limit is coming for as long as it has to be seen, and is over on time, not a grace later.
 */
START_TEST(judge__idle__seen_coming_and_over_on_time)
{
    struct reaper_facts facts = owned();
    struct reaper_verdict got;

    facts.active_ms = NOW - 20 * MINUTE;
    got = reaper_judge(&facts, &limits, NOW);
    ck_assert_int_eq(got.why, REAPER_IDLE);
    ck_assert_int_eq(got.hold_ms, GRACE);
    ck_assert_int_eq(got.ripe_ms, NOW + 10 * MINUTE);
    ck_assert_int_eq(reaper_judge(&facts, &limits, NOW - 1).why, REAPER_KEEP_BOUND);
}
END_TEST

/* Each row: session, bound, deletes, creates, pauses; what is done. */
static const struct {
    struct reaper_due due;
    enum reaper_act act;
} due_rows[] = {
    {{REAPER_DELETING, true, true, true, true}, REAPER_ACT_FINISH_DELETE},
    {{REAPER_DELETED, false, true, false, false}, REAPER_ACT_REAP},
    {{REAPER_DELETED, false, false, true, false}, REAPER_ACT_NONE},
    {{REAPER_ACTIVE, true, true, false, false}, REAPER_ACT_REAP},
    {{REAPER_ACTIVE, false, true, false, false}, REAPER_ACT_ADOPT},
    {{REAPER_ACTIVE, false, false, true, false}, REAPER_ACT_ADOPT},
    {{REAPER_ACTIVE, true, false, true, false}, REAPER_ACT_ADOPT},
    {{REAPER_ACTIVE, true, false, false, true}, REAPER_ACT_IDLE_PAUSE},
    {{REAPER_ACTIVE, true, false, false, false}, REAPER_ACT_NONE},
    {{REAPER_NO_RECORD, false, true, true, true}, REAPER_ACT_NONE},
    {{REAPER_UNREADABLE, true, true, true, true}, REAPER_ACT_NONE},
};

START_TEST(judge_due__each_plight__brought_to_an_end)
{
    ck_assert_int_eq(reaper_judge_due(&due_rows[_i].due).act, due_rows[_i].act);
}
END_TEST

/* What was not written down yet, and is worth a look. */
static const struct {
    const char *what;
    bool look;
} look_rows[] = {
    {"runs", false},
    {"sleeps", true},
    {"sleeps, known", false},
    {"runs, known", true},
    {"between, known", false},
    {"ended", true},
    {"ended, condemned", false},
    {"sleeps, pausing", false},
    {"sleeps, second", false},
    {"sleeps, deleting", false},
    {"sleeps, old account", false},
    {"runs, ends", true},
    {"runs, ends, told", false},
    {"runs, ends, no warning", false},
    {"runs, ends later", false},
    {"sleeps, known, ends", false},
};

START_TEST(must_look__what_is_not_written_down)
{
    const char *what = look_rows[_i].what;
    struct reaper_facts f = owned();

    f.policy.timer = true; /* it ends at end_ms */
    spoil(&f, what);
    f.bound_here = !strstr(what, "second");
    f.runs = strstr(what, "runs") != NULL;
    f.sleeps = strstr(what, "sleeps") != NULL;
    f.paused = strstr(what, "known") != NULL;
    f.pausing = strstr(what, "pausing") != NULL;
    f.policy.warn_ms = strstr(what, "no warning") ? 0 : MINUTE;
    if (strstr(what, "ends"))
        f.end_ms = NOW + (strstr(what, "later") ? MINUTE + 1 : MINUTE);
    f.told_ms = strstr(what, "told") ? f.end_ms : 0;
    ck_assert_msg(reaper_must_look(&f, NOW) == look_rows[_i].look, "%s", what);
}
END_TEST

/* When it ends where policy ends it: idle, or too old, whichever comes first; not in use. */
START_TEST(end__no_timer__by_policy)
{
    struct reaper_facts f = owned();

    ck_assert_int_eq(reaper_end_ms(&f), NOW);
    f.policy.max_lifetime_ms = HOUR - 1;
    ck_assert_int_eq(reaper_end_ms(&f), NOW - 1);
    f.in_use = true;
    ck_assert_int_eq(reaper_end_ms(&f), 0);
    f.end_ms = NOW + 5;
    ck_assert_int_eq(reaper_end_ms(&f), NOW + 5);
    f.policy.timer = true;
    f.in_use = false;
    ck_assert_int_eq(reaper_end_ms(&f), NOW + 5);
}
END_TEST

/* A second one rests while its own grace runs: only where it runs, and can be paused. */
START_TEST(meanwhile__second__rests)
{
    static const char *const no[] = {
        "second, other account", "second, condemned", "second, deleting", "unbound",
        "second, sleeps",        "second, cannot",    "second, foreign"};
    struct reaper_facts f = unowned();
    struct reaper_verdict got;

    spoil(&f, "second");
    f.runs = f.policy.can_pause = true;
    got = reaper_meanwhile(&f, &limits);
    ck_assert_int_eq(got.act, REAPER_ACT_STILL);
    ck_assert_int_eq(got.why, REAPER_DUPLICATE);
    ck_assert_int_eq(got.hold_ms, GRACE);
    ck_assert_int_eq(got.ripe_ms, f.create_ms + GRACE);
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) {
        f = unowned();
        spoil(&f, no[i]);
        f.runs = !strstr(no[i], "sleeps");
        f.policy.can_pause = !strstr(no[i], "cannot");
        ck_assert_msg(reaper_meanwhile(&f, &limits).act == REAPER_ACT_NONE, "%s", no[i]);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("reaper/verdict");
    TCase *tcase = tcase_create("judge");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_loop_test(tcase, judge__unowned__evidence_or_left_alone, 0,
                        sizeof unowned_rows / sizeof unowned_rows[0]);
    tcase_add_test(tcase, judge__unowned__only_after_its_grace);
    tcase_add_test(tcase, judge__runs_by_itself__lifetime_ends_it);
    tcase_add_loop_test(tcase, judge__owned__policy_and_never_in_use, 0,
                        sizeof owned_rows / sizeof owned_rows[0]);
    tcase_add_test(tcase, judge__idle__seen_coming_and_over_on_time);
    tcase_add_loop_test(tcase, judge_due__each_plight__brought_to_an_end, 0,
                        sizeof due_rows / sizeof due_rows[0]);
    tcase_add_loop_test(tcase, must_look__what_is_not_written_down, 0,
                        sizeof look_rows / sizeof look_rows[0]);
    tcase_add_test(tcase, end__no_timer__by_policy);
    tcase_add_test(tcase, meanwhile__second__rests);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
