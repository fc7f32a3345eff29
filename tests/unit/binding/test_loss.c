/* test_loss.c - what a session loses unasked is noted by the write that takes it, stays until a
 * client was told, and is told once. */
#include "tests/unit/binding/bench.h"

#include <stdio.h>

static struct bench bench;

static void setup(void)
{
    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "sb1", 0);
}

static void teardown(void)
{
    bench_deinit(&bench);
}

static struct outcome grant(enum binding_want_kind kind, const char *attempt)
{
    struct outcome got = bench_acquire(&bench, bench_want(kind, attempt));

    ck_reason(got.reason, "");
    return got;
}

static struct outcome gone(const char *attempt, uint64_t fence, const char *sandbox_id)
{
    struct binding_change change = bench_change(BINDING_CHANGE_GONE, attempt, fence);
    struct outcome got;

    change.sandbox_id = sandbox_id;
    change.keep_lock = true;
    got = bench_commit(&bench, change);
    ck_reason(got.reason, "");
    return got;
}

static struct outcome bind(const char *attempt, uint64_t fence, const char *sandbox_id)
{
    struct binding_change change = bench_change(BINDING_CHANGE_BIND, attempt, fence);
    struct outcome got;

    change.bound = bench_bound(sandbox_id, bench.config.image.generation);
    got = bench_commit(&bench, change);
    ck_reason(got.reason, "");
    return got;
}

static struct binding_loss stored(void)
{
    struct binding_loss loss;
    struct binding_doc doc;

    bench_doc(&bench, &doc);
    loss = doc.loss;
    loss.json = NULL;
    binding_doc_deinit(&doc);
    return loss;
}

/* Lose sandbox_id by a look at it, and give the lock back: what Stat or Pause of a dead one do.
 */
static void lose(const char *attempt, const char *sandbox_id)
{
    struct outcome got = grant(BINDING_WANT_RESUME, attempt);

    ck_assert_int_eq(gone(attempt, got.fence, sandbox_id).lost, BINDING_LOSS_GONE);
    ck_reason(bench_abort(&bench, attempt, got.fence).reason, "");
}

/* Freed by a call that makes nothing, the loss stays for the one that does; the new sandbox is
 * told as REPLACED, and one report is enough. */
START_TEST(gone__freed_by_a_look__pending_until_told_once)
{
    struct outcome got;
    struct binding_loss loss;

    lose(ATTEMPT("2"), "sb1");
    loss = stored();
    ck_assert(loss.set && loss.memory && loss.workspace && loss.packages);
    ck_assert_int_eq(loss.cause, BINDING_LOSS_GONE);
    ck_assert_int_eq(loss.open, BINDING_LOSS_GONE);
    ck_assert_str_eq(loss.sandbox_id, "sb1");
    ck_assert_uint_eq(loss.number, 1);
    ck_assert_int_eq(loss.lost_ms, NOW);
    ck_assert_int_eq(loss.told_ms, 0);

    got = grant(BINDING_WANT_ENSURE, ATTEMPT("3"));
    got = bind(ATTEMPT("3"), got.fence, "sb2");
    ck_assert_int_eq(got.replaced, BINDING_LOSS_GONE);
    ck_assert_str_eq(bench.events, "CREATED LOST REPLACED ");
    loss = stored();
    ck_assert(loss.set && !loss.open && !loss.told_ms);

    /* The warm path reads it and writes nothing. */
    got = bench_ensure(&bench, ATTEMPT("4"), "");
    ck_assert(got.decision == BINDING_USE && !got.wrote);

    bench.now_ms++;
    ck_assert(!bench_told(&bench, 2).wrote); /* another one */
    got = bench_told(&bench, 1);
    ck_reason(got.reason, "");
    ck_assert(got.wrote);
    ck_assert_int_eq(stored().told_ms, NOW + 1);
    ck_assert(!bench_told(&bench, 1).wrote);
    ck_assert_str_eq(bench.events, "CREATED LOST REPLACED ");
}
END_TEST

/* Each row: how the bound sandbox came to be gone, and what is noted of it. */
static const struct {
    const char *how;
    enum binding_loss_cause cause;
    const char *events;
} ways[] = {
    {"looked at", BINDING_LOSS_GONE, "CREATED LOST REPLACED "},
    {"rebuilt", BINDING_LOSS_REBUILT, "CREATED REBUILT "},
    {"found gone by a rebuild", BINDING_LOSS_GONE, "CREATED LOST REPLACED "},
    {"reaped", BINDING_LOSS_REAPED, "CREATED REAPED REPLACED "},
    {"condemned by a holder that died", BINDING_LOSS_REBUILT, "CREATED REBUILT "},
    {"condemned by a holder that died, reaped", BINDING_LOSS_REBUILT, "CREATED REBUILT "},
    {"deleted", BINDING_LOSS_NONE, "CREATED SESSION_DELETED CREATED "},
};

static struct outcome condemn(const char *attempt, uint64_t fence)
{
    struct binding_change change = bench_change(BINDING_CHANGE_INTEND, attempt, fence);

    change.intent.kind = BINDING_INTENT_DELETE;
    snprintf(change.intent.sandbox_id, sizeof change.intent.sandbox_id, "sb1");
    change.keep_lock = true;
    return bench_commit(&bench, change);
}

/* Up to the point at which nothing is bound; the fence of the lock that is still held, or 0. */
static uint64_t lose_by(const char *how)
{
    struct binding_want reap = bench_want(BINDING_WANT_REAP, ATTEMPT("2"));
    struct binding_change tombstone;
    struct outcome got;

    if (strstr(how, "rebuil") || strstr(how, "holder")) {
        bench_flip(&bench, 1);
        got = grant(BINDING_WANT_ENSURE, ATTEMPT("2"));
        ck_assert_int_eq(got.decision, BINDING_REBUILD);
        if (!strstr(how, "found"))
            ck_reason(condemn(ATTEMPT("2"), got.fence).reason, "");
        if (strstr(how, "holder")) {
            bench.now_ms += LOCK;
            if (strstr(how, "reaped")) {
                reap = bench_want(BINDING_WANT_REAP, ATTEMPT("b"));
                reap.reap_sandbox_id = "sb1";
                got = bench_acquire(&bench, reap);
                ck_assert_int_eq(got.decision, BINDING_DELETE);
            } else {
                got = grant(BINDING_WANT_ENSURE, ATTEMPT("b"));
                ck_assert_int_eq(got.decision, BINDING_ADOPT_OR_CREATE);
            }
            (void)gone(ATTEMPT("b"), got.fence, "sb1");
            ck_reason(bench_abort(&bench, ATTEMPT("b"), got.fence).reason, "");
            return 0;
        }
        (void)gone(ATTEMPT("2"), got.fence, "sb1");
        return got.fence;
    }
    if (strcmp(how, "reaped") == 0) {
        reap.reap_sandbox_id = "sb1";
        reap.unless_active_after_ms = NOW + 1;
        got = bench_acquire(&bench, reap);
        ck_assert_int_eq(got.decision, BINDING_DELETE);
    } else if (strcmp(how, "deleted") == 0) {
        got = grant(BINDING_WANT_DELETE, ATTEMPT("2"));
    } else {
        lose(ATTEMPT("2"), "sb1");
        return 0;
    }
    (void)gone(ATTEMPT("2"), got.fence, "sb1");
    if (strcmp(how, "deleted") == 0) {
        tombstone = bench_change(BINDING_CHANGE_DELETE_SESSION, ATTEMPT("2"), got.fence);
        ck_reason(bench_commit(&bench, tombstone).reason, "");
    } else {
        ck_reason(bench_abort(&bench, ATTEMPT("2"), got.fence).reason, "");
    }
    return 0;
}

START_TEST(gone__each_way__noted_with_its_cause)
{
    struct binding_want again = bench_want(BINDING_WANT_ENSURE, ATTEMPT("3"));
    uint64_t fence = lose_by(ways[_i].how);
    struct binding_loss loss = stored();
    const char *attempt = ATTEMPT("2");

    ck_assert_int_eq(loss.cause, ways[_i].cause);
    ck_assert_int_eq(loss.open, ways[_i].cause);
    if (!fence) {
        again.recreate = true;
        attempt = ATTEMPT("3");
        fence = bench_acquire(&bench, again).fence;
    }
    ck_assert_int_eq(bind(attempt, fence, "sb2").replaced, ways[_i].cause);
    loss = stored();
    ck_assert_int_eq(loss.set, ways[_i].cause != BINDING_LOSS_NONE);
    ck_assert_int_eq(loss.open, BINDING_LOSS_NONE);
    ck_assert_str_eq(bench.events, ways[_i].events);
}
END_TEST

/* What is lost before anybody was told adds up to the gravest; what is lost after that begins
 * anew, with the next number. */
START_TEST(gone__again_before_told__added_up)
{
    struct binding_loss loss;
    struct outcome got;

    lose(ATTEMPT("2"), "sb1");
    got = grant(BINDING_WANT_ENSURE, ATTEMPT("3"));
    (void)bind(ATTEMPT("3"), got.fence, "sb2");
    bench_flip(&bench, 1);
    got = grant(BINDING_WANT_ENSURE, ATTEMPT("4"));
    ck_reason(condemn(ATTEMPT("4"), got.fence).reason, "");
    bench.now_ms++;
    /* Another one is condemned; the bound one is found gone. */
    (void)gone(ATTEMPT("4"), got.fence, "sb2");
    loss = stored();
    ck_assert_uint_eq(loss.number, 2);
    ck_assert_int_eq(loss.cause, BINDING_LOSS_GONE);
    ck_assert_str_eq(loss.sandbox_id, "sb2");
    /* Told of the first only: the second is still to be told. */
    ck_assert(!bench_told(&bench, 1).wrote);
    ck_assert(bench_told(&bench, 2).wrote);
    (void)bind(ATTEMPT("4"), got.fence, "sb3");

    got = grant(BINDING_WANT_RESUME, ATTEMPT("5"));
    {
        struct binding_change patch =
            bench_change(BINDING_CHANGE_PATCH, ATTEMPT("5"), got.fence);

        patch.bound = bench_bound("sb3", 1);
        patch.memory_lost = true;
        ck_assert_int_eq(bench_commit(&bench, patch).lost, BINDING_LOSS_MEMORY);
    }
    loss = stored();
    ck_assert_uint_eq(loss.number, 3);
    ck_assert_int_eq(loss.cause, BINDING_LOSS_MEMORY);
    ck_assert(loss.memory && !loss.workspace && !loss.packages && !loss.open && !loss.told_ms);
    lose(ATTEMPT("6"), "sb3");
    loss = stored();
    ck_assert_uint_eq(loss.number, 4);
    ck_assert_int_eq(loss.cause, BINDING_LOSS_GONE);
    ck_assert(loss.workspace && loss.open);
}
END_TEST

/* Adopted without its memory is told as that, not as replaced. */
START_TEST(bind__adopted_without_memory__memory_only)
{
    struct binding_change change;
    struct binding_loss loss;
    struct outcome got;

    bench_deinit(&bench);
    bench_init(&bench);
    got = grant(BINDING_WANT_ENSURE, ATTEMPT("1"));
    change = bench_change(BINDING_CHANGE_BIND, ATTEMPT("1"), got.fence);
    change.bound = bench_bound("sb1", 0);
    change.bound.origin = BINDING_ADOPTED;
    change.memory_lost = true;
    got = bench_commit(&bench, change);
    ck_assert_int_eq(got.lost, BINDING_LOSS_MEMORY);
    ck_assert_int_eq(got.replaced, BINDING_LOSS_NONE);
    loss = stored();
    ck_assert(loss.memory && !loss.workspace && !loss.open);
    ck_assert_str_eq(bench.events, "ADOPTED ");
}
END_TEST

/* A loss that is still to be told goes with its session: the next one of that name lost
 * nothing, and a report that comes late is fine. */
START_TEST(delete__pending_loss__forgotten)
{
    struct binding_want again = bench_want(BINDING_WANT_ENSURE, ATTEMPT("4"));
    struct outcome got;

    lose(ATTEMPT("2"), "sb1");
    got = grant(BINDING_WANT_DELETE, ATTEMPT("3"));
    ck_assert(stored().set);
    ck_reason(bench_commit(&bench,
                           bench_change(BINDING_CHANGE_DELETE_SESSION, ATTEMPT("3"), got.fence))
                  .reason,
              "");
    ck_assert_ptr_null(bench.value[BINDING_PART_LOSS]);
    ck_reason(bench_told(&bench, 1).reason, "");
    again.recreate = true;
    got = bench_acquire(&bench, again);
    ck_assert_int_eq(bind(ATTEMPT("4"), got.fence, "sb2").replaced, BINDING_LOSS_NONE);
    ck_assert(!stored().set);
}
END_TEST

/* A session that is not there cannot have been told. */
START_TEST(told__no_record__not_found)
{
    bench_deinit(&bench);
    bench_init(&bench);
    ck_reason(bench_told(&bench, 1).reason, "SESSION_NOT_FOUND");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("binding/loss");
    TCase *tc = tcase_create("loss");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, gone__freed_by_a_look__pending_until_told_once);
    tcase_add_loop_test(tc, gone__each_way__noted_with_its_cause, 0, (int)BERTH_COUNT(ways));
    tcase_add_test(tc, gone__again_before_told__added_up);
    tcase_add_test(tc, bind__adopted_without_memory__memory_only);
    tcase_add_test(tc, delete__pending_loss__forgotten);
    tcase_add_test(tc, told__no_record__not_found);
    suite_add_tcase(suite, tc);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
