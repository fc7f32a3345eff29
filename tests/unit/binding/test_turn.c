#include "tests/unit/binding/bench.h"

#include <stdio.h>

/* Begin makes a token from the id; a repeat is the same turn with a later end. */
START_TEST(begin_turn__repeat__same_token_later_end)
{
    struct bench bench;
    struct outcome first, again;

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "sb1", 0);
    first = bench_begin(&bench, "turn-1");
    ck_reason(first.reason, "");
    ck_assert_str_eq(first.token, "turn-1." SECRET);
    ck_assert_int_eq(first.expire_ms, NOW + TURN);
    ck_assert(first.durable && first.turn_running && !first.protected);
    bench.now_ms += MINUTE;
    again = bench_begin(&bench, "turn-1");
    ck_assert_str_eq(again.token, first.token);
    ck_assert_int_eq(again.expire_ms, NOW + MINUTE + TURN);
    ck_assert_uint_eq(again.n_tokens, 1);
    ck_assert_str_eq(bench.events, "CREATED TURN_BEGUN ");
    bench_deinit(&bench);
}
END_TEST

/* Where a turn may begin. */
static const struct {
    const char *what, *reason;
} begin_rows[] = {
    {"active", ""},
    {"locked", ""},
    {"quarantine", ""},
    {"no tenant", "TENANT_NOT_FOUND"},
    {"disabled", "TENANT_DISABLED"},
    {"no session", "SESSION_NOT_FOUND"},
    {"deleting", "SESSION_DELETED"},
    {"tombstone", "SESSION_NOT_FOUND"},
};

START_TEST(begin_turn__session_state__allowed_or_not)
{
    const char *what = begin_rows[_i].what;
    struct binding_change change;
    struct bench bench;
    struct outcome got;

    bench_init(&bench);
    if (strcmp(what, "no session") != 0)
        bench_create(&bench, ATTEMPT("1"), "sb1", 0);
    bench.quarantine = strcmp(what, "quarantine") == 0;
    bench.tenant.exists = strcmp(what, "no tenant") != 0;
    if (strcmp(what, "locked") == 0)
        (void)bench_acquire(&bench, bench_want(BINDING_WANT_RESUME, ATTEMPT("2")));
    if (strcmp(what, "deleting") == 0 || strcmp(what, "tombstone") == 0) {
        got = bench_acquire(&bench, bench_want(BINDING_WANT_DELETE, ATTEMPT("2")));
        change = bench_change(BINDING_CHANGE_GONE, ATTEMPT("2"), got.fence);
        change.sandbox_id = "sb1";
        change.keep_lock = true;
        ck_reason(bench_commit(&bench, change).reason, "");
        change = bench_change(BINDING_CHANGE_DELETE_SESSION, ATTEMPT("2"), got.fence);
        if (strcmp(what, "tombstone") == 0)
            ck_reason(bench_commit(&bench, change).reason, "");
    }
    bench.tenant.disabled = strcmp(what, "disabled") == 0;
    ck_reason(bench_begin(&bench, "t").reason, begin_rows[_i].reason);
    bench_deinit(&bench);
}
END_TEST

/* Each row: lease asked, lease given. */
static const struct {
    int64_t asked, given;
} lease_rows[] = {{0, TURN},
                  {MINUTE - 1, MINUTE},
                  {MINUTE, MINUTE},
                  {24 * 60 * MINUTE, 24 * 60 * MINUTE},
                  {24 * 60 * MINUTE + 1, 24 * 60 * MINUTE}};

START_TEST(begin_turn__lease__bounded)
{
    struct binding_view view;
    struct binding_plan plan = {0};
    struct bench bench;

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "sb1", 0);
    bench_read(&bench, &view);
    ck_assert_int_eq(binding_begin_turn(&view, "t", lease_rows[_i].asked, SECRET, &plan, NULL),
                     BERTH_OK);
    ck_assert_int_eq(plan.expire_ms, NOW + lease_rows[_i].given);
    binding_plan_deinit(&plan);
    binding_doc_deinit(&view.doc);
    bench_deinit(&bench);
}
END_TEST

/* The first resolve of a turn names the sandbox in it, and only the first writes. */
START_TEST(acquire__first_of_turn__names_sandbox_once)
{
    struct bench bench;
    struct outcome turn, got;

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "sb1", 0);
    turn = bench_begin(&bench, "t");
    got = bench_ensure(&bench, ATTEMPT("2"), turn.token);
    ck_assert_int_eq(got.decision, BINDING_USE);
    ck_assert(got.wrote && got.durable && got.protected);
    got = bench_ensure(&bench, ATTEMPT("3"), turn.token);
    ck_assert(!got.wrote);
    bench_deinit(&bench);
}
END_TEST

/* A resolve with a token spends for that turn; one without for all that have none yet. */
START_TEST(acquire__token_or_none__spends_one_or_all)
{
    struct bench bench;
    struct binding_doc doc;
    struct outcome a;

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "sb1", 0);
    a = bench_begin(&bench, "a");
    (void)bench_begin(&bench, "b");
    (void)bench_begin(&bench, "c");
    ck_assert(bench_ensure(&bench, ATTEMPT("2"), a.token).wrote);
    bench_doc(&bench, &doc);
    ck_assert_str_eq(doc.tokens[0].sandbox_id, "sb1");
    ck_assert_str_eq(doc.tokens[1].sandbox_id, "");
    ck_assert_str_eq(doc.tokens[2].sandbox_id, "");
    binding_doc_deinit(&doc);
    ck_assert(bench_ensure(&bench, ATTEMPT("3"), "").wrote);
    bench_doc(&bench, &doc);
    ck_assert_str_eq(doc.tokens[1].sandbox_id, "sb1");
    ck_assert_str_eq(doc.tokens[2].sandbox_id, "sb1");
    binding_doc_deinit(&doc);
    bench_deinit(&bench);
}
END_TEST

/* Reading what is bound arms nothing. */
START_TEST(acquire__existing__spends_nothing)
{
    struct bench bench;

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "sb1", 0);
    (void)bench_begin(&bench, "a");
    ck_assert(!bench_acquire(&bench, bench_want(BINDING_WANT_EXISTING, ATTEMPT("2"))).wrote);
    bench_deinit(&bench);
}
END_TEST

/* A resolve with the token renews the turn when half its lease is gone, not before. */
START_TEST(acquire__with_token__renews_at_half)
{
    struct bench bench;
    struct outcome turn, got;

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "sb1", 0);
    turn = bench_begin(&bench, "t");
    (void)bench_ensure(&bench, ATTEMPT("2"), turn.token);
    bench.now_ms = NOW + TURN / 2;
    ck_assert(!bench_ensure(&bench, ATTEMPT("3"), turn.token).wrote);
    bench.now_ms++;
    got = bench_ensure(&bench, ATTEMPT("4"), turn.token);
    ck_assert(got.wrote);
    ck_assert_int_eq(got.due_ms, bench.now_ms + TURN);
    bench_deinit(&bench);
}
END_TEST

/* A turn that has run out. Each row: what has happened to its sandbox, the answer. */
static const struct {
    const char *what, *reason;
} late_rows[] = {
    {"nothing", ""},
    {"never used", "TURN_EXPIRED"},
    {"rebuild going on", "TURN_EXPIRED"},
    {"look going on", ""},
    {"pause going on", "TURN_EXPIRED"},
    {"condemned", "TURN_EXPIRED"},
    {"replaced", "TURN_EXPIRED"},
    {"tidied away", "TURN_EXPIRED"},
    {"tidied away, quarantine", ""},
};

START_TEST(renew_turn__late__taken_up_only_if_nothing_was_torn_down)
{
    const char *what = late_rows[_i].what;
    struct binding_want reap = bench_want(BINDING_WANT_REAP, ATTEMPT("8"));
    struct bench bench;
    struct outcome turn, got;

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "sb1", 1);
    turn = bench_begin(&bench, "t");
    if (strcmp(what, "never used") != 0)
        ck_assert(bench_ensure(&bench, ATTEMPT("2"), turn.token).wrote);
    bench.now_ms += TURN;
    if (strcmp(what, "condemned") == 0 || strcmp(what, "replaced") == 0) {
        /* The token is kept out of the tidying here, as if the write had not seen its end. */
        struct binding_view view;
        struct binding_plan plan = {0};

        reap.reap_sandbox_id = "sb1";
        reap.unless_active_after_ms = bench.now_ms;
        bench_read(&bench, &view);
        ck_assert_int_eq(binding_acquire(&view, &reap, &plan, NULL), BERTH_OK);
        ck_assert_int_eq(plan.decision, BINDING_DELETE);
        if (strcmp(what, "replaced") == 0) {
            view.doc.n_intents = 0;
            snprintf(view.doc.bound.sandbox_id, sizeof view.doc.bound.sandbox_id, "sb2");
            binding_doc_touch(&view.doc, BINDING_PART_BINDING);
        }
        ck_assert(bench_write(&bench, &view, &plan));
        binding_doc_deinit(&view.doc);
    }
    if (strstr(what, "going on")) {
        struct binding_view view;
        struct binding_plan plan = {0};
        struct binding_want want = bench_want(what[0] == 'l'   ? BINDING_WANT_RESUME
                                              : what[0] == 'p' ? BINDING_WANT_PAUSE
                                                               : BINDING_WANT_ENSURE,
                                              ATTEMPT("3"));

        bench_flip(&bench, 2);
        bench_read(&bench, &view);
        ck_assert_int_eq(binding_acquire(&view, &want, &plan, NULL), BERTH_OK);
        ck_assert(bench_write(&bench, &view, &plan));
        binding_doc_deinit(&view.doc);
    }
    if (strncmp(what, "tidied", 6) == 0)
        ck_reason(bench_use(&bench, "u", "sb1", false).reason, "");
    bench.quarantine = strstr(what, "quarantine") != NULL;
    got = bench_renew_turn(&bench, turn.token);
    ck_reason(got.reason, late_rows[_i].reason);
    if (!got.reason) {
        ck_assert_int_eq(got.expire_ms, bench.now_ms + TURN);
        ck_assert(got.protected);
    }
    bench_deinit(&bench);
}
END_TEST

/* A failover may forget which sandbox a turn uses: a renewal names the bound one again, or the
 * next install would rebuild it under the turn. Otherwise a renewal spends nothing. */
START_TEST(renew_turn__name_forgotten__named_while_young)
{
    for (int young = 0; young <= 1; young++) {
        struct bench bench;
        struct outcome turn;

        bench_init(&bench);
        bench_create(&bench, ATTEMPT("1"), "sb1", 1);
        turn = bench_begin(&bench, "t");
        bench.quarantine = young;
        ck_reason(bench_renew_turn(&bench, turn.token).reason, "");
        bench.quarantine = false;
        bench_flip(&bench, 2);
        ck_assert_int_eq(bench_ensure(&bench, ATTEMPT("2"), "").decision,
                         young ? BINDING_USE : BINDING_REBUILD);
        bench_deinit(&bench);
    }
}
END_TEST

/* A turn that is believed when a create is granted is known from then on: by the time its
 * sandbox is bound nothing might be believed any more. */
START_TEST(acquire__believed_turn_creates__registered_at_once)
{
    struct bench bench;
    struct outcome got;

    bench_init(&bench);
    got = bench_ensure(&bench, ATTEMPT("1"), "");
    ck_reason(bench_abort(&bench, ATTEMPT("1"), got.fence).reason, "");
    bench.unsure = true;
    got = bench_ensure(&bench, ATTEMPT("2"), "t." SECRET);
    ck_assert_int_eq(got.decision, BINDING_ADOPT_OR_CREATE);
    ck_assert_uint_eq(got.n_tokens, 1);
    bench_deinit(&bench);
}
END_TEST

/* Quarantine is over, but a turn that the store forgot may not have called yet: nothing is
 * rebuilt or reaped under it. */
START_TEST(acquire__turn_may_be_forgotten__sandbox_kept)
{
    struct binding_want reap = bench_want(BINDING_WANT_REAP, ATTEMPT("8"));
    struct bench bench;

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "sb1", 1);
    bench_flip(&bench, 2);
    bench.unsure = true;
    ck_assert_int_eq(bench_ensure(&bench, ATTEMPT("2"), "").decision, BINDING_USE);
    reap.reap_sandbox_id = "sb1";
    reap.unless_active_after_ms = bench.now_ms;
    ck_assert_int_eq(bench_acquire(&bench, reap).decision, BINDING_NONE);
    bench.unsure = false;
    ck_assert_int_eq(bench_ensure(&bench, ATTEMPT("3"), "").decision, BINDING_REBUILD);
    bench_deinit(&bench);
}
END_TEST

/* The write that named what a turn uses was forgotten, and all that the turn asks for before
 * the doubt is over has to look first: it is named again by that, and nothing rebuilt under it.
 */
START_TEST(acquire__name_forgotten__named_by_a_look)
{
    struct binding_want want = bench_want(BINDING_WANT_ENSURE, ATTEMPT("2"));
    struct bench bench;
    struct outcome turn, got;

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "sb1", 1);
    turn = bench_begin(&bench, "t");
    bench_flip(&bench, 2);
    bench.unsure = true;
    want.turn_token = turn.token;
    want.failed_sandbox_id = "sb1";
    got = bench_acquire(&bench, want);
    ck_assert_int_eq(got.decision, BINDING_VERIFY);
    ck_reason(bench_abort(&bench, ATTEMPT("2"), got.fence).reason, "");
    bench.unsure = false;
    ck_assert_int_eq(bench_ensure(&bench, ATTEMPT("3"), "").decision, BINDING_USE);
    bench_deinit(&bench);
}
END_TEST

/* A turn that expired and was tidied away is not taken for a forgotten one while its sandbox is
 * being torn down. */
START_TEST(renew_turn__tidied_and_condemned__refused_in_quarantine)
{
    struct binding_want reap = bench_want(BINDING_WANT_REAP, ATTEMPT("8"));
    struct bench bench;
    struct outcome turn;

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "sb1", 1);
    turn = bench_begin(&bench, "t");
    ck_assert(bench_ensure(&bench, ATTEMPT("2"), turn.token).wrote);
    bench.now_ms += TURN;
    reap.reap_sandbox_id = "sb1";
    reap.unless_active_after_ms = bench.now_ms;
    ck_assert_int_eq(bench_acquire(&bench, reap).decision, BINDING_DELETE);
    bench.quarantine = true;
    ck_reason(bench_renew_turn(&bench, turn.token).reason, "TURN_EXPIRED");
    bench_deinit(&bench);
}
END_TEST

/* A turn that ran out is dropped by whoever writes next, and told. */
START_TEST(finish__expired_turn__dropped_and_told)
{
    struct bench bench;
    struct outcome got;

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "sb1", 0);
    (void)bench_begin(&bench, "t");
    bench.now_ms += TURN;
    got = bench_ensure(&bench, ATTEMPT("2"), "");
    ck_assert(!got.wrote && got.n_tokens == 1); /* USE writes nothing, nor for that */
    got = bench_begin(&bench, "u");
    ck_assert_uint_eq(got.n_tokens, 1);
    ck_assert_ptr_nonnull(strstr(bench.events, "TURN_EXPIRED "));
    bench_deinit(&bench);
}
END_TEST

/* A turn of the same name that cannot be taken up begins anew, with another token. */
START_TEST(begin_turn__same_id_after_loss__anew)
{
    struct bench bench;
    struct outcome got;

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "sb1", 0);
    (void)bench_begin(&bench, "t");
    bench.now_ms += TURN;
    got = bench_begin(&bench, "t");
    ck_reason(got.reason, "");
    ck_assert_uint_eq(got.n_tokens, 1);
    ck_assert_str_eq(bench.events, "CREATED TURN_BEGUN TURN_EXPIRED TURN_BEGUN ");
    bench_deinit(&bench);
}
END_TEST

/* End takes the turn away and is content when there is none. */
START_TEST(end_turn__once_and_again__content)
{
    struct bench bench;
    struct outcome turn, got;

    bench_init(&bench);
    ck_reason(bench_end(&bench, "t." SECRET).reason, "SESSION_NOT_FOUND");
    bench_create(&bench, ATTEMPT("1"), "sb1", 0);
    turn = bench_begin(&bench, "t");
    (void)bench_ensure(&bench, ATTEMPT("2"), turn.token);
    got = bench_end(&bench, turn.token);
    ck_assert(got.wrote && !got.protected && got.n_tokens == 0);
    got = bench_end(&bench, turn.token);
    ck_reason(got.reason, "");
    ck_assert(!got.wrote);
    ck_assert_str_eq(bench.events, "CREATED TURN_BEGUN TURN_ENDED ");
    bench_deinit(&bench);
}
END_TEST

/* A use keeps the bound sandbox for two minutes from each renewal; others it cannot name. */
START_TEST(renew_use__bound_sandbox__protected_for_its_lease)
{
    struct bench bench;
    struct outcome got;

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "sb1", 0);
    ck_reason(bench_use(&bench, "u", "sb2", false).reason, "TURN_EXPIRED");
    got = bench_use(&bench, "u", "sb1", false);
    ck_assert_int_eq(got.expire_ms, NOW + 2 * MINUTE);
    ck_assert(got.protected && !got.turn_running);
    bench_flip(&bench, 5);
    bench.now_ms += 2 * MINUTE - 1;
    ck_assert_int_eq(bench_ensure(&bench, ATTEMPT("2"), "").decision, BINDING_USE);
    ck_reason(bench_use(&bench, "u", "sb1", false).reason, "");
    bench.now_ms += MINUTE;
    ck_assert_int_eq(bench_ensure(&bench, ATTEMPT("2"), "").decision, BINDING_USE);
    got = bench_use(&bench, "u", "sb1", true);
    ck_assert_uint_eq(got.n_tokens, 0);
    ck_assert_int_eq(bench_ensure(&bench, ATTEMPT("2"), "").decision, BINDING_REBUILD);
    bench_deinit(&bench);
}
END_TEST

/* Ending a use that is not there is a sign of life, written once a minute. */
START_TEST(renew_use__end_of_unknown__activity_once_a_minute)
{
    struct bench bench;

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "sb1", 0);
    ck_assert(!bench_use(&bench, "u", "", true).wrote);
    bench.now_ms += MINUTE;
    ck_assert(bench_use(&bench, "u", "", true).wrote);
    ck_assert(!bench_use(&bench, "u", "", true).wrote);
    bench_deinit(&bench);
}
END_TEST

/* More tokens than a session may have are refused, and nothing is lost by it. */
START_TEST(renew_use__too_many__quota)
{
    struct bench bench;
    struct outcome got = {0};
    char token[16];

    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "sb1", 0);
    for (int i = 0; i < BINDING_TOKENS_MAX; i++) {
        snprintf(token, sizeof token, "u%d", i);
        got = bench_use(&bench, token, "sb1", false);
        ck_reason(got.reason, "");
    }
    ck_assert_uint_eq(got.n_tokens, BINDING_TOKENS_MAX);
    ck_reason(bench_use(&bench, "more", "sb1", false).reason, "QUOTA_EXCEEDED");
    ck_reason(bench_begin(&bench, "t").reason, "QUOTA_EXCEEDED");
    ck_reason(bench_use(&bench, "u0", "sb1", true).reason, "");
    ck_reason(bench_begin(&bench, "t").reason, "");
    bench_deinit(&bench);
}
END_TEST

/* Each row: what stands against taking a sandbox away whose inbound token is lost. */
static const char *const unreachable_rows[] = {"nothing", "a use",      "a turn",
                                               "a lock",  "quarantine", "adopted just now"};

/* The token was there, and a connect did not find it again. */
static void lose_token(struct bench *bench)
{
    struct outcome got = bench_acquire(bench, bench_want(BINDING_WANT_RESUME, ATTEMPT("2")));
    struct binding_change change = bench_change(BINDING_CHANGE_PATCH, ATTEMPT("2"), got.fence);

    change.bound = bench_bound("sb1", 0);
    change.bound.inbound_lost = true;
    ck_reason(bench_commit(bench, change).reason, "");
}

/* Condemned by the next turn that begins while nobody is at work, and by nothing else; that
 * turn has another one, and is told why. */
START_TEST(begin__inbound_token_lost__condemned_when_idle)
{
    const char *against = unreachable_rows[_i];
    struct binding_change change;
    struct bench bench;
    struct outcome got;

    bench_init(&bench);
    if (strcmp(against, "adopted just now") == 0)
        bench_adopt(&bench, ATTEMPT("1"), "sb1", 0);
    else
        bench_create(&bench, ATTEMPT("1"), "sb1", 0);
    if (strcmp(against, "a turn") == 0)
        (void)bench_begin(&bench, "before");
    lose_token(&bench);
    if (strcmp(against, "a use") == 0)
        (void)bench_use(&bench, "u", "sb1", false);
    if (strcmp(against, "a lock") == 0)
        (void)bench_acquire(&bench, bench_want(BINDING_WANT_RESUME, ATTEMPT("3")));
    bench.quarantine = strcmp(against, "quarantine") == 0;
    got = bench_ensure(&bench, ATTEMPT("4"), "");
    ck_assert_int_eq(got.decision, BINDING_USE); /* without a turn it goes on */
    ck_assert_uint_eq(got.n_intents, 0);
    got = bench_begin(&bench, "t");
    ck_reason(got.reason, "");
    ck_assert(got.durable);
    ck_assert_uint_eq(got.n_intents, strcmp(against, "nothing") == 0);
    if (got.n_intents) {
        got = bench_ensure(&bench, ATTEMPT("5"), got.token);
        ck_assert_int_eq(got.decision, BINDING_ADOPT_OR_CREATE);
        change = bench_change(BINDING_CHANGE_GONE, ATTEMPT("5"), got.fence);
        change.sandbox_id = "sb1";
        ck_assert_int_eq(bench_commit(&bench, change).lost, BINDING_LOSS_GONE);
        ck_assert_str_eq(bench.events, "CREATED TURN_BEGUN LOST ");
    }
    bench_deinit(&bench);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("binding/turn");
    TCase *tc = tcase_create("turn");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, begin_turn__repeat__same_token_later_end);
    tcase_add_loop_test(tc, begin_turn__session_state__allowed_or_not, 0,
                        (int)BERTH_COUNT(begin_rows));
    tcase_add_loop_test(tc, begin_turn__lease__bounded, 0, (int)BERTH_COUNT(lease_rows));
    tcase_add_test(tc, acquire__first_of_turn__names_sandbox_once);
    tcase_add_test(tc, acquire__token_or_none__spends_one_or_all);
    tcase_add_test(tc, acquire__existing__spends_nothing);
    tcase_add_test(tc, acquire__with_token__renews_at_half);
    tcase_add_loop_test(tc, renew_turn__late__taken_up_only_if_nothing_was_torn_down, 0,
                        (int)BERTH_COUNT(late_rows));
    tcase_add_test(tc, renew_turn__name_forgotten__named_while_young);
    tcase_add_test(tc, acquire__believed_turn_creates__registered_at_once);
    tcase_add_test(tc, acquire__turn_may_be_forgotten__sandbox_kept);
    tcase_add_test(tc, acquire__name_forgotten__named_by_a_look);
    tcase_add_test(tc, renew_turn__tidied_and_condemned__refused_in_quarantine);
    tcase_add_test(tc, finish__expired_turn__dropped_and_told);
    tcase_add_test(tc, begin_turn__same_id_after_loss__anew);
    tcase_add_test(tc, end_turn__once_and_again__content);
    tcase_add_test(tc, renew_use__bound_sandbox__protected_for_its_lease);
    tcase_add_test(tc, renew_use__end_of_unknown__activity_once_a_minute);
    tcase_add_test(tc, renew_use__too_many__quota);
    tcase_add_loop_test(tc, begin__inbound_token_lost__condemned_when_idle, 0,
                        (int)BERTH_COUNT(unreachable_rows));
    suite_add_tcase(suite, tc);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
