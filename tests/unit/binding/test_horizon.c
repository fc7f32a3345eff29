/* test_horizon.c - backends that are neither keyed nor fenced: what was sent before a loss, and
 * what an inherited create may still do, is waited for by the store's clock. */
#include "tests/unit/binding/bench.h"

enum { HORIZON = 90 * 1000 };

static void open_unfenced(struct bench *bench)
{
    bench_init(bench);
    bench->config.keyed_create = false;
    bench->config.create_horizon_ms = HORIZON;
}

/* Each row: how long ago which loss was, and whether something may be created or adopted. */
static const struct {
    int64_t failover_ago, index_ago; /* 0: never */
    bool fenced;
    bool unsettled;
} loss_rows[] = {
    {0, 0, false, false},
    {1, 0, false, true},
    {LOCK + HORIZON, 0, false, true}, /* the last moment */
    {LOCK + HORIZON + 1, 0, false, false},
    {1, 0, true, false},
    {0, 1, false, true},
    {0, LOCK + HORIZON, false, true},
    {0, LOCK + HORIZON + 1, false, false},
    {0, 1, true, false},
    {2 * LOCK + HORIZON, LOCK, false, true}, /* the later one counts */
};

static void lose(struct bench *bench, int row)
{
    bench->config.fenced = loss_rows[row].fenced;
    if (loss_rows[row].failover_ago)
        bench->lost_ms = bench->now_ms - loss_rows[row].failover_ago;
    if (loss_rows[row].index_ago)
        bench->tenant.lost_ms = bench->now_ms - loss_rows[row].index_ago;
}

/* Nothing is created or adopted while a call of before may land; a bound one is used. */
START_TEST(acquire__after_a_loss__waits_for_the_call_horizon)
{
    static const enum binding_want_kind wants[] = {BINDING_WANT_ENSURE, BINDING_WANT_ADOPT};
    const char *expected = loss_rows[_i].unsettled ? "CREATE_UNSETTLED" : "";
    struct bench bench;

    for (size_t i = 0; i < BERTH_COUNT(wants); i++) {
        open_unfenced(&bench);
        lose(&bench, _i);
        ck_reason(bench_acquire(&bench, bench_want(wants[i], ATTEMPT("a"))).reason, expected);
        ck_assert_int_eq(bench.exists, !loss_rows[_i].unsettled);
        bench_deinit(&bench);
    }
    open_unfenced(&bench);
    bench_create(&bench, ATTEMPT("a"), "sb1", 1);
    lose(&bench, _i);
    ck_assert_int_eq(bench_ensure(&bench, ATTEMPT("b"), "").decision, BINDING_USE);
    bench_deinit(&bench);
}
END_TEST

/* A holder of before the loss writes no create intent either. */
START_TEST(intend__after_a_loss__waits_for_the_call_horizon)
{
    struct bench bench;
    struct binding_change change;
    struct outcome got;

    open_unfenced(&bench);
    got = bench_ensure(&bench, ATTEMPT("a"), "");
    ck_assert_int_eq(got.decision, BINDING_ADOPT_OR_CREATE);
    lose(&bench, _i);
    change = bench_change(BINDING_CHANGE_INTEND, ATTEMPT("a"), got.fence);
    change.intent.kind = BINDING_INTENT_CREATE;
    change.keep_lock = true;
    ck_reason(bench_commit(&bench, change).reason,
              loss_rows[_i].unsettled ? "CREATE_UNSETTLED" : "");
    bench_deinit(&bench);
}
END_TEST

/* Each row: when an inherited create is said to be settled, and whether it is. */
static const struct {
    const char *what;
    bool keyed, landed, other_account;
    int64_t later; /* than the end of the lock of the create */
    const char *reason;
} settle_rows[] = {
    {"at once", false, false, false, 0, "CREATE_UNSETTLED"},
    {"last moment", false, false, false, HORIZON, "CREATE_UNSETTLED"},
    {"past it", false, false, false, HORIZON + 1, ""},
    {"found", false, true, false, 0, ""},
    {"keyed", true, false, false, 0, ""},
    {"no proof in another account", false, false, true, HORIZON + 1, "ACCOUNT_CHANGED"},
    {"nor where it is keyed", true, false, true, 0, "ACCOUNT_CHANGED"},
};

/* The holder's word on the time counts for nothing: neither what it says of the intent... */
START_TEST(settled__inherited__only_past_its_horizon)
{
    struct bench bench;
    struct binding_change change;
    struct outcome got;
    int64_t end_ms;

    open_unfenced(&bench);
    got = bench_ensure(&bench, ATTEMPT("a"), "");
    change = bench_change(BINDING_CHANGE_INTEND, ATTEMPT("a"), got.fence);
    change.intent.kind = BINDING_INTENT_CREATE;
    change.intent.not_after_ms = 1;
    change.keep_lock = true;
    ck_reason(bench_commit(&bench, change).reason, "");
    bench.now_ms += LOCK / 2;
    ck_reason(bench_renew_lock(&bench, ATTEMPT("a"), got.fence).reason, "");
    end_ms = bench.now_ms + LOCK;
    ck_reason(bench_abort(&bench, ATTEMPT("a"), got.fence).reason, "");

    bench.config.keyed_create = settle_rows[_i].keyed;
    bench.now_ms = end_ms + settle_rows[_i].later;
    if (settle_rows[_i].other_account)
        snprintf(bench.config.account, sizeof bench.config.account, OTHER_ACCOUNT);
    got = bench_ensure(&bench, ATTEMPT("b"), "");
    change = bench_change(BINDING_CHANGE_SETTLED, ATTEMPT("b"), got.fence);
    change.attempt = ATTEMPT("a");
    change.landed = settle_rows[_i].landed;
    change.keep_lock = true;
    got = bench_commit(&bench, change);
    ck_assert_msg(strcmp(berth_reason_name(got.reason), settle_rows[_i].reason) == 0, "%s: %s",
                  settle_rows[_i].what, berth_reason_name(got.reason));
    bench_deinit(&bench);
}
END_TEST

/* ... nor is its own create, refused or never sent, waited for. */
START_TEST(settled__own_create__at_once)
{
    struct bench bench;
    struct binding_change change;
    struct outcome got;

    open_unfenced(&bench);
    got = bench_ensure(&bench, ATTEMPT("a"), "");
    change = bench_change(BINDING_CHANGE_INTEND, ATTEMPT("a"), got.fence);
    change.intent.kind = BINDING_INTENT_CREATE;
    change.keep_lock = true;
    ck_reason(bench_commit(&bench, change).reason, "");
    change = bench_change(BINDING_CHANGE_SETTLED, ATTEMPT("a"), got.fence);
    change.attempt = ATTEMPT("a");
    got = bench_commit(&bench, change);
    ck_reason(got.reason, "");
    ck_assert_uint_eq(got.n_intents, 0);
    bench_deinit(&bench);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("binding/horizon");
    TCase *tcase = tcase_create("horizon");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_loop_test(tcase, acquire__after_a_loss__waits_for_the_call_horizon, 0,
                        (int)BERTH_COUNT(loss_rows));
    tcase_add_loop_test(tcase, intend__after_a_loss__waits_for_the_call_horizon, 0,
                        (int)BERTH_COUNT(loss_rows));
    tcase_add_loop_test(tcase, settled__inherited__only_past_its_horizon, 0,
                        (int)BERTH_COUNT(settle_rows));
    tcase_add_test(tcase, settled__own_create__at_once);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
