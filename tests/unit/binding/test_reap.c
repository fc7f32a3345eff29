/* test_reap.c - what the reaper's wants may do to a session, and what ends in use. */
#include "tests/unit/binding/bench.h"

#define IDLE (30 * MINUTE)

static void open_bound(struct bench *bench)
{
    bench_init(bench);
    bench_create(bench, ATTEMPT("a"), "sb1", 1);
    bench->now_ms += IDLE;
}

/* A use token that names a sandbox which is not the bound one: of the time before a failover
 * forgot a commit. */
static void use_elsewhere(struct bench *bench, const char *sandbox_id)
{
    struct binding_view view;
    struct binding_plan plan = {0};
    struct binding_token *token;

    bench_read(bench, &view);
    ck_assert_int_eq(binding_doc_add_token(&view.doc, &token, NULL), BERTH_OK);
    token->kind = BINDING_USE_TOKEN;
    token->lease_ms = 2 * MINUTE;
    token->deadline_ms = bench->now_ms + token->lease_ms;
    snprintf(token->token, sizeof token->token, "u");
    snprintf(token->sandbox_id, sizeof token->sandbox_id, "%s", sandbox_id);
    ck_assert(bench_write(bench, &view, &plan));
    binding_doc_deinit(&view.doc);
}

static struct binding_want want_of(const struct bench *bench, enum binding_want_kind kind,
                                   const char *attempt)
{
    struct binding_want want = bench_want(kind, attempt);

    want.reap_sandbox_id = "sb1";
    want.reap_account = ACCOUNT;
    want.unless_active_after_ms = bench->now_ms - IDLE;
    return want;
}

/* Each row: what is so, what IDLE is told. Nothing rests under a turn, a use, an adoption. */
static const struct {
    const char *what;
    enum binding_decision decision;
} idle_rows[] = {
    {"unused", BINDING_PAUSE},
    {"turn", BINDING_NONE},
    {"begun, nothing used", BINDING_NONE},
    {"use", BINDING_NONE},
    {"active since", BINDING_NONE},
    {"other sandbox", BINDING_NONE},
    {"other account", BINDING_NONE},
    {"no time given", BINDING_NONE},
    {"quarantine", BINDING_NONE},
    {"pause left", BINDING_PAUSE},
    {"pause left, turn", BINDING_NONE},
};

START_TEST(acquire__idle__only_what_nobody_uses)
{
    const char *what = idle_rows[_i].what;
    struct bench bench;
    struct binding_want want;
    struct outcome got;

    open_bound(&bench);
    want = want_of(&bench, BINDING_WANT_IDLE, ATTEMPT("b"));
    if (strstr(what, "pause left")) {
        got = bench_acquire(&bench, bench_want(BINDING_WANT_PAUSE, ATTEMPT("c")));
        ck_reason(bench_abort(&bench, ATTEMPT("c"), got.fence).reason, "");
        want.unless_active_after_ms = 0;
    }
    if (strstr(what, "turn") || strstr(what, "begun"))
        ck_reason(bench_begin(&bench, "t").reason, "");
    if (strcmp(what, "turn") == 0)
        bench_ensure(&bench, ATTEMPT("d"), "");
    if (strcmp(what, "use") == 0)
        ck_reason(bench_use(&bench, "u", "sb1", false).reason, "");
    if (strstr(what, "turn") || strstr(what, "begun") || strcmp(what, "use") == 0)
        want.unless_active_after_ms = bench.now_ms; /* so that it is not the activity */
    if (strcmp(what, "active since") == 0)
        want.unless_active_after_ms--;
    if (strcmp(what, "other sandbox") == 0)
        want.reap_sandbox_id = "sb2";
    if (strcmp(what, "other account") == 0)
        want.reap_account = OTHER_ACCOUNT;
    if (strcmp(what, "no time given") == 0)
        want.unless_active_after_ms = 0;
    bench.quarantine = strcmp(what, "quarantine") == 0;
    got = bench_acquire(&bench, want);
    ck_reason(got.reason, "");
    ck_assert_int_eq(got.decision, idle_rows[_i].decision);
    bench_deinit(&bench);
}
END_TEST

/* The last look of an idle kill: a use that told of itself in between spares the sandbox. */
START_TEST(condemn__idle__spared_by_a_use)
{
    struct bench bench;
    struct outcome got;
    struct binding_change change;

    open_bound(&bench);
    got = bench_acquire(&bench, want_of(&bench, BINDING_WANT_IDLE, ATTEMPT("b")));
    ck_assert_int_eq(got.decision, BINDING_PAUSE);
    ck_reason(bench_use(&bench, "u", "sb1", false).reason, "");
    change = bench_change(BINDING_CHANGE_INTEND, ATTEMPT("b"), got.fence);
    change.keep_lock = true;
    change.intent.kind = BINDING_INTENT_DELETE;
    snprintf(change.intent.sandbox_id, sizeof change.intent.sandbox_id, "sb1");
    ck_reason(bench_commit(&bench, change).reason, "CONFLICT");
    ck_reason(bench_use(&bench, "u", "sb1", true).reason, "");
    ck_reason(bench_commit(&bench, change).reason, "");
    bench_deinit(&bench);
}
END_TEST

/* What an idle kill takes is a loss, told as reaped. */
START_TEST(gone__idle_kill__told_as_reaped)
{
    struct bench bench;
    struct outcome got;
    struct binding_change change;

    open_bound(&bench);
    got = bench_acquire(&bench, want_of(&bench, BINDING_WANT_IDLE, ATTEMPT("b")));
    change = bench_change(BINDING_CHANGE_INTEND, ATTEMPT("b"), got.fence);
    change.keep_lock = true;
    change.intent.kind = BINDING_INTENT_DELETE;
    snprintf(change.intent.sandbox_id, sizeof change.intent.sandbox_id, "sb1");
    ck_reason(bench_commit(&bench, change).reason, "");
    change = bench_change(BINDING_CHANGE_GONE, ATTEMPT("b"), got.fence);
    change.sandbox_id = "sb1";
    got = bench_commit(&bench, change);
    ck_reason(got.reason, "");
    ck_assert_int_eq(got.lost, BINDING_LOSS_REAPED);
    ck_assert_ptr_nonnull(strstr(bench.events, "KILLED "));
    bench_deinit(&bench);
}
END_TEST

/* Adoption: where nothing is bound and nobody deletes; the lock cannot create. */
START_TEST(acquire__adopt__only_the_unbound)
{
    struct bench bench;
    struct outcome got;
    struct binding_want want = bench_want(BINDING_WANT_ADOPT, ATTEMPT("b"));
    struct binding_change change;

    bench_init(&bench);
    got = bench_acquire(&bench, want); /* no record: it is made */
    ck_assert_int_eq(got.decision, BINDING_ADOPT_OR_CREATE);
    ck_assert_uint_eq(got.n_intents, 0);
    change = bench_change(BINDING_CHANGE_INTEND, ATTEMPT("b"), got.fence);
    change.keep_lock = true;
    change.intent.kind = BINDING_INTENT_CREATE;
    ck_reason(bench_commit(&bench, change).reason, "CONFLICT");
    ck_reason(bench_abort(&bench, ATTEMPT("b"), got.fence).reason, "");
    bench_create(&bench, ATTEMPT("c"), "sb1", 1);
    want.attempt = ATTEMPT("d");
    ck_assert_int_eq(bench_acquire(&bench, want).decision, BINDING_NONE);
    got = bench_acquire(&bench, bench_want(BINDING_WANT_DELETE, ATTEMPT("e")));
    ck_reason(bench_abort(&bench, ATTEMPT("e"), got.fence).reason, "");
    want.attempt = ATTEMPT("f");
    ck_assert_int_eq(bench_acquire(&bench, want).decision, BINDING_NONE);
    bench_deinit(&bench);
}
END_TEST

/* In quarantine nothing is adopted. */
START_TEST(acquire__adopt_in_quarantine__refused)
{
    struct bench bench;

    bench_init(&bench);
    bench.quarantine = true;
    ck_reason(bench_acquire(&bench, bench_want(BINDING_WANT_ADOPT, ATTEMPT("b"))).reason,
              "QUARANTINE");
    bench_deinit(&bench);
}
END_TEST

/* Deleting an active session takes a long pause; one that is being deleted takes nothing. */
START_TEST(acquire__finish__deleting_or_paused_and_unused)
{
    struct bench bench;
    struct outcome got;
    struct binding_want want;
    struct binding_change change;

    open_bound(&bench);
    want = want_of(&bench, BINDING_WANT_FINISH, ATTEMPT("b"));
    ck_assert_int_eq(bench_acquire(&bench, want).decision, BINDING_NONE); /* it runs */
    got = bench_acquire(&bench, want_of(&bench, BINDING_WANT_IDLE, ATTEMPT("c")));
    change = bench_change(BINDING_CHANGE_PATCH, ATTEMPT("c"), got.fence);
    change.bound = bench_bound("sb1", 1);
    change.bound.power = BINDING_PAUSED;
    ck_reason(bench_commit(&bench, change).reason, "");
    want.unless_active_after_ms--;
    ck_assert_int_eq(bench_acquire(&bench, want).decision, BINDING_NONE); /* used since */
    want.unless_active_after_ms++;
    got = bench_acquire(&bench, want);
    ck_assert_int_eq(got.decision, BINDING_DELETE);
    ck_reason(bench_abort(&bench, ATTEMPT("b"), got.fence).reason, "");
    want.attempt = ATTEMPT("d");
    want.reap_sandbox_id = want.reap_account = "";
    want.unless_active_after_ms = 0;
    ck_assert_int_eq(bench_acquire(&bench, want).decision, BINDING_DELETE); /* deleting */
    bench_deinit(&bench);
}
END_TEST

/* A pause on somebody's word is use, one for want of it is not: max_paused counts from there.
 */
START_TEST(patch__paused__activity_by_whose_word)
{
    for (int asked = 0; asked <= 1; asked++) {
        struct bench bench;
        struct binding_change change;
        struct binding_doc doc;
        struct outcome got;

        open_bound(&bench);
        got = bench_acquire(&bench, asked ? bench_want(BINDING_WANT_PAUSE, ATTEMPT("b"))
                                          : want_of(&bench, BINDING_WANT_IDLE, ATTEMPT("b")));
        change = bench_change(BINDING_CHANGE_PATCH, ATTEMPT("b"), got.fence);
        change.bound = bench_bound("sb1", 1);
        change.bound.power = BINDING_PAUSED;
        ck_reason(bench_commit(&bench, change).reason, "");
        bench_doc(&bench, &doc);
        ck_assert_int_eq(doc.active_ms, asked ? bench.now_ms : bench.now_ms - IDLE);
        binding_doc_deinit(&doc);
        bench_deinit(&bench);
    }
}
END_TEST

/* A settled tombstone has no config; what is reaped for it is deleted in its sandbox's. */
START_TEST(acquire__reap_for_a_tombstone__deleted_and_settled)
{
    struct bench bench;
    struct outcome got;
    struct binding_want want;
    struct binding_change change;

    open_bound(&bench);
    got = bench_acquire(&bench, bench_want(BINDING_WANT_DELETE, ATTEMPT("b")));
    change = bench_change(BINDING_CHANGE_GONE, ATTEMPT("b"), got.fence);
    change.sandbox_id = "sb1";
    change.keep_lock = true;
    ck_reason(bench_commit(&bench, change).reason, "");
    ck_reason(bench_commit(&bench,
                           bench_change(BINDING_CHANGE_DELETE_SESSION, ATTEMPT("b"), got.fence))
                  .reason,
              "");
    want = want_of(&bench, BINDING_WANT_REAP, ATTEMPT("c"));
    want.reap_sandbox_id = "sb9";
    got = bench_acquire(&bench, want);
    ck_assert_int_eq(got.decision, BINDING_DELETE);
    ck_assert(!bench.expires);
    change = bench_change(BINDING_CHANGE_GONE, ATTEMPT("c"), got.fence);
    change.sandbox_id = "sb9";
    ck_reason(bench_commit(&bench, change).reason, "");
    ck_assert(bench.expires);
    bench_deinit(&bench);
}
END_TEST

/* ---------------------------------------------------- what the backend did by itself */

/* Each row: what is so, and whether the reaper may look, and pause one beside it. */
static const struct {
    const char *what;
    enum binding_decision look, still;
} look_rows[] = {
    {"bound", BINDING_VERIFY, BINDING_VERIFY},
    {"turn", BINDING_VERIFY, BINDING_VERIFY},
    {"quarantine", BINDING_VERIFY, BINDING_NONE},
    {"pause left", BINDING_NONE, BINDING_VERIFY},
    {"other account", BINDING_NONE, BINDING_NONE},
    {"condemned", BINDING_NONE, BINDING_NONE},
    {"deleting", BINDING_NONE, BINDING_NONE},
    {"named by a use", BINDING_VERIFY, BINDING_NONE},
};

START_TEST(acquire__observe_and_still__only_what_is_so)
{
    const char *what = look_rows[_i].what;
    enum binding_decision expected[] = {look_rows[_i].look, look_rows[_i].still};

    for (int still = 0; still < 2; still++) {
        struct bench bench;
        struct binding_want want;
        struct outcome got;

        open_bound(&bench);
        want = want_of(&bench, still ? BINDING_WANT_STILL : BINDING_WANT_OBSERVE, ATTEMPT("b"));
        if (still)
            want.reap_sandbox_id = "sb2";
        if (strcmp(what, "turn") == 0)
            ck_reason(bench_begin(&bench, "t").reason, "");
        if (strcmp(what, "quarantine") == 0)
            bench.quarantine = true;
        if (strcmp(what, "other account") == 0)
            want.reap_account = OTHER_ACCOUNT;
        if (strcmp(what, "named by a use") == 0)
            use_elsewhere(&bench, "sb2");
        if (strcmp(what, "pause left") == 0) {
            got = bench_acquire(&bench, bench_want(BINDING_WANT_PAUSE, ATTEMPT("c")));
            ck_reason(bench_abort(&bench, ATTEMPT("c"), got.fence).reason, "");
        }
        if (strcmp(what, "condemned") == 0 || strcmp(what, "deleting") == 0) {
            got = bench_acquire(&bench, bench_want(BINDING_WANT_DELETE, ATTEMPT("c")));
            ck_reason(bench_abort(&bench, ATTEMPT("c"), got.fence).reason, "");
        }
        got = bench_acquire(&bench, want);
        ck_assert_msg(got.reason == BERTH_REASON_QUARANTINE || got.decision == expected[still],
                      "%s, %d: %d", what, still, got.decision);
        ck_assert_int_eq(got.reason == BERTH_REASON_QUARANTINE,
                         still && strcmp(what, "quarantine") == 0);
        bench_deinit(&bench);
    }
}
END_TEST

static struct outcome note(struct bench *bench, const char *attempt, enum binding_power power,
                           int64_t ends_soon_ms)
{
    struct outcome got = bench_acquire(bench, want_of(bench, BINDING_WANT_OBSERVE, attempt));
    struct binding_change change = bench_change(BINDING_CHANGE_PATCH, attempt, got.fence);

    ck_assert_int_eq(got.decision, BINDING_VERIFY);
    change.bound = (struct binding_bound){.power = power};
    snprintf(change.bound.sandbox_id, sizeof change.bound.sandbox_id, "sb1");
    change.ends_soon_ms = ends_soon_ms;
    bench->events[0] = 0;
    return bench_commit(bench, change);
}

/* Each change is told once; one that is paused is looked at before it is used; an end that
 * comes near is told once, a later one again. */
START_TEST(patch__observed__each_change_told_once)
{
    struct bench bench;

    open_bound(&bench);
    ck_reason(note(&bench, ATTEMPT("b"), BINDING_PAUSED, 0).reason, "");
    ck_assert_str_eq(bench.events, "PAUSED ");
    ck_reason(note(&bench, ATTEMPT("c"), BINDING_PAUSED, 0).reason, "");
    ck_assert_str_eq(bench.events, "");
    ck_assert_int_eq(bench_ensure(&bench, ATTEMPT("d"), "").decision, BINDING_VERIFY);
    bench.now_ms += LOCK + 1;
    ck_reason(note(&bench, ATTEMPT("e"), BINDING_RUNNING, 0).reason, "");
    ck_assert_str_eq(bench.events, "RESUMED ");
    ck_assert_int_eq(bench_ensure(&bench, ATTEMPT("f"), "").decision, BINDING_USE);
    ck_reason(note(&bench, ATTEMPT("1"), BINDING_RUNNING, NOW + 1).reason, "");
    ck_assert_str_eq(bench.events, "ABOUT_TO_TIME_OUT ");
    ck_reason(note(&bench, ATTEMPT("2"), BINDING_RUNNING, NOW + 1).reason, "");
    ck_assert_str_eq(bench.events, "");
    ck_reason(note(&bench, ATTEMPT("3"), BINDING_RUNNING, NOW + 2).reason, "");
    ck_assert_str_eq(bench.events, "ABOUT_TO_TIME_OUT ");
    ck_reason(note(&bench, ATTEMPT("4"), BINDING_PAUSED, NOW + 3).reason, "");
    ck_assert_str_eq(bench.events, "PAUSED ");
    bench_deinit(&bench);
}
END_TEST

/* Found paused by the next call, before any sweep: told as done by somebody, then as resumed.
 */
START_TEST(patch__found_paused__told_then_resumed)
{
    struct bench bench;
    struct binding_want want = bench_want(BINDING_WANT_ENSURE, ATTEMPT("b"));
    struct binding_change change;
    struct outcome got;

    open_bound(&bench);
    want.failed_sandbox_id = "sb1";
    got = bench_acquire(&bench, want);
    ck_assert_int_eq(got.decision, BINDING_VERIFY);
    change = bench_change(BINDING_CHANGE_PATCH, ATTEMPT("b"), got.fence);
    change.bound = bench_bound("sb1", 1);
    change.was_paused = true;
    bench.events[0] = 0;
    ck_reason(bench_commit(&bench, change).reason, "");
    ck_assert_str_eq(bench.events, "PAUSED RESUMED ");
    bench_deinit(&bench);
}
END_TEST

/* Gone is a loss, told by the next answer; after its end it has timed out. */
START_TEST(gone__observed__lost_or_timed_out)
{
    static const char *const kinds[] = {"LOST ", "TIMED_OUT "};
    struct bench bench;
    struct binding_change change;
    struct outcome got;

    bench_init(&bench);
    got = bench_ensure(&bench, ATTEMPT("a"), "");
    change = bench_change(BINDING_CHANGE_BIND, ATTEMPT("a"), got.fence);
    change.bound = bench_bound("sb1", 1);
    change.bound.end_ms = bench.now_ms + 2 * IDLE;
    ck_reason(bench_commit(&bench, change).reason, "");
    bench.now_ms += IDLE + (_i ? IDLE : 0);
    got = bench_acquire(&bench, want_of(&bench, BINDING_WANT_OBSERVE, ATTEMPT("b")));
    change = bench_change(BINDING_CHANGE_GONE, ATTEMPT("b"), got.fence);
    change.sandbox_id = "sb1";
    bench.events[0] = 0;
    got = bench_commit(&bench, change);
    ck_reason(got.reason, "");
    ck_assert_int_eq(got.lost, BINDING_LOSS_GONE);
    ck_assert_str_eq(bench.events, kinds[_i]);
    bench_deinit(&bench);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("binding/reap");
    TCase *tcase = tcase_create("reap");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_loop_test(tcase, acquire__idle__only_what_nobody_uses, 0,
                        (int)BERTH_COUNT(idle_rows));
    tcase_add_test(tcase, condemn__idle__spared_by_a_use);
    tcase_add_test(tcase, gone__idle_kill__told_as_reaped);
    tcase_add_test(tcase, acquire__adopt__only_the_unbound);
    tcase_add_test(tcase, acquire__adopt_in_quarantine__refused);
    tcase_add_test(tcase, acquire__finish__deleting_or_paused_and_unused);
    tcase_add_test(tcase, patch__paused__activity_by_whose_word);
    tcase_add_test(tcase, acquire__reap_for_a_tombstone__deleted_and_settled);
    tcase_add_loop_test(tcase, acquire__observe_and_still__only_what_is_so, 0,
                        (int)BERTH_COUNT(look_rows));
    tcase_add_test(tcase, patch__observed__each_change_told_once);
    tcase_add_test(tcase, patch__found_paused__told_then_resumed);
    tcase_add_loop_test(tcase, gone__observed__lost_or_timed_out, 0, 2);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
