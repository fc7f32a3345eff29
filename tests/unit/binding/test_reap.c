/* test_reap.c - what the reaper's wants may do to a session, and what ends in use. */
#include "tests/unit/binding/bench.h"

#define IDLE (30 * MINUTE)

static void open_bound(struct bench *bench)
{
    bench_init(bench);
    bench_create(bench, ATTEMPT("a"), "sb1", 1);
    bench->now_ms += IDLE;
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
    ck_assert_ptr_nonnull(strstr(bench.events, "REAPED "));
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
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
