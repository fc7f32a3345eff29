/* test_carry.c - a workspace between two sandboxes: noted with the write that condemns the
 * first, bound with nothing until it is in the second, kept until that one is in use. */
#include "tests/unit/binding/bench.h"

#include <stdio.h>

static struct bench bench;

static void setup(void)
{
    bench_init(&bench);
    bench_create(&bench, ATTEMPT("1"), "sb1", 0);
    bench_flip(&bench, 2);
}

static void teardown(void)
{
    bench_deinit(&bench);
}

static struct binding_carry stored(void)
{
    struct binding_carry carry;
    struct binding_doc doc;

    bench_doc(&bench, &doc);
    carry = doc.carry;
    carry.json = NULL;
    binding_doc_deinit(&doc);
    return carry;
}

static struct binding_loss loss(void)
{
    struct binding_loss loss;
    struct binding_doc doc;

    bench_doc(&bench, &doc);
    loss = doc.loss;
    loss.json = NULL;
    binding_doc_deinit(&doc);
    return loss;
}

static enum berth_reason condemn(const char *attempt, uint64_t fence, const char *sandbox_id,
                                 const char *blob_id)
{
    struct binding_change change = bench_change(BINDING_CHANGE_INTEND, attempt, fence);

    change.intent.kind = BINDING_INTENT_DELETE;
    snprintf(change.intent.sandbox_id, sizeof change.intent.sandbox_id, "%s", sandbox_id);
    change.carry_blob_id = blob_id;
    change.carry_lost_count = 3;
    change.carry_lost_names = "fifo";
    change.keep_lock = true;
    return bench_commit(&bench, change).reason;
}

static void gone(const char *attempt, uint64_t fence, const char *sandbox_id)
{
    struct binding_change change = bench_change(BINDING_CHANGE_GONE, attempt, fence);

    change.sandbox_id = sandbox_id;
    change.keep_lock = true;
    ck_reason(bench_commit(&bench, change).reason, "");
}

static struct outcome bind(const char *attempt, uint64_t fence, const char *sandbox_id,
                           enum binding_carry_outcome carried)
{
    struct binding_change change = bench_change(BINDING_CHANGE_BIND, attempt, fence);

    change.bound = bench_bound(sandbox_id, 2);
    change.carry_outcome = carried;
    change.carry_lost_count = 5; /* the import's */
    change.carry_lost_names = "x, y";
    return bench_commit(&bench, change);
}

static uint64_t rebuild(const char *attempt)
{
    struct outcome got = bench_acquire(&bench, bench_want(BINDING_WANT_ENSURE, attempt));

    ck_reason(got.reason, "");
    ck_assert_int_eq(got.decision, BINDING_REBUILD);
    return got.fence;
}

static bool forget(const char *blob_id)
{
    struct binding_view view;
    struct binding_plan plan = {0};
    bool wrote;

    bench_read(&bench, &view);
    ck_assert_int_eq(binding_carry_forget(&view, blob_id, NULL), BERTH_OK);
    wrote = view.doc.dirty != 0;
    ck_assert(bench_write(&bench, &view, &plan));
    binding_doc_deinit(&view.doc);
    return wrote;
}

/* The reason, and whether it was written so that a replica has it. */
static enum berth_reason confirm(const char *blob_id, bool *ret_durable)
{
    struct binding_view view;
    struct binding_plan plan = {0};
    struct berth_error err = {0};
    enum berth_code code;

    bench_read(&bench, &view);
    code = binding_carry_confirm(&view, blob_id, &plan, &err);
    *ret_durable = plan.durable && view.doc.dirty != 0;
    ck_assert(bench_write(&bench, &view, &plan));
    binding_doc_deinit(&view.doc);
    return code ? err.reason : BERTH_REASON_NONE;
}

/* The whole way: the loss names no workspace but what was left behind, and the tar is forgotten
 * only by its name. */
START_TEST(rebuild__carried__no_workspace_lost)
{
    uint64_t fence = rebuild(ATTEMPT("2"));
    struct outcome got;

    ck_reason(condemn(ATTEMPT("2"), fence, "sb1", "blob"), "");
    ck_assert_str_eq(stored().sandbox_id, "sb1");
    ck_assert_str_eq(stored().into, "");
    gone(ATTEMPT("2"), fence, "sb1");
    ck_assert(loss().memory && loss().packages && !loss().workspace);
    ck_assert_uint_eq(loss().entries, 3);
    ck_assert_str_eq(stored().lost_names, "fifo");
    got = bind(ATTEMPT("2"), fence, "sb2", BINDING_CARRY_UNPACKED);
    ck_reason(got.reason, "");
    ck_assert_int_eq(got.replaced, BINDING_LOSS_REBUILT);
    ck_assert_str_eq(stored().into, "sb2");
    ck_assert_uint_eq(stored().lost_count, 5);
    ck_assert_str_eq(stored().lost_names, "x, y");
    ck_assert_uint_eq(loss().entries, 5);
    ck_assert_str_eq(bench.events, "CREATED REBUILT ");
    ck_assert(!forget("another"));
    ck_assert(stored().set);
    ck_assert(forget("blob"));
    ck_assert(!stored().set);
    ck_assert(!forget("blob"));
}
END_TEST

/* Nothing is bound while a workspace waits, unless it is in it, or is gone for good: a loss. */
START_TEST(bind__workspace_waits__only_with_it)
{
    uint64_t fence = rebuild(ATTEMPT("2"));

    ck_reason(condemn(ATTEMPT("2"), fence, "sb1", "blob"), "");
    gone(ATTEMPT("2"), fence, "sb1");
    ck_reason(bind(ATTEMPT("2"), fence, "sb2", BINDING_CARRY_NONE).reason, "CONFLICT");
    ck_assert(!forget("blob"));
    ck_reason(bind(ATTEMPT("2"), fence, "sb2", BINDING_CARRY_GONE).reason, "");
    ck_assert(loss().workspace);
    ck_assert(!stored().set);
}
END_TEST

/* The holder dies after it condemned: the next one knows of the tar, and that it was a rebuild.
 */
START_TEST(condemn__holder_dies__next_one_carries_on)
{
    uint64_t fence = rebuild(ATTEMPT("2"));
    struct outcome got;

    ck_reason(condemn(ATTEMPT("2"), fence, "sb1", "blob"), "");
    bench.now_ms += LOCK + 1;
    got = bench_acquire(&bench, bench_want(BINDING_WANT_ENSURE, ATTEMPT("3")));
    ck_assert_int_eq(got.decision, BINDING_ADOPT_OR_CREATE);
    gone(ATTEMPT("3"), got.fence, "sb1");
    ck_assert_int_eq(loss().cause, BINDING_LOSS_REBUILT);
    ck_assert(!loss().workspace);
    ck_reason(bind(ATTEMPT("3"), got.fence, "sb2", BINDING_CARRY_NONE).reason, "CONFLICT");
    ck_reason(bind(ATTEMPT("3"), got.fence, "sb2", BINDING_CARRY_UNPACKED).reason, "");
}
END_TEST

/* What is exported is what is bound, and only by who may take it away. */
START_TEST(condemn__not_for_a_rebuild_or_not_bound__no_carry)
{
    struct outcome got = bench_acquire(&bench, bench_want(BINDING_WANT_DELETE, ATTEMPT("2")));

    ck_reason(condemn(ATTEMPT("2"), got.fence, "sb1", "blob"), "CONFLICT");
    ck_reason(condemn(ATTEMPT("2"), got.fence, "sb9", "blob"), "CONFLICT");
    ck_assert(!stored().set);
}
END_TEST

/* The new sandbox dies before anybody is known to have used it: the tar waits again, and that
 * its workspace was lost is told all the same. */
START_TEST(gone__unpacked_into__waits_again)
{
    uint64_t fence = rebuild(ATTEMPT("2"));
    struct outcome got;

    ck_reason(condemn(ATTEMPT("2"), fence, "sb1", "blob"), "");
    gone(ATTEMPT("2"), fence, "sb1");
    ck_reason(bind(ATTEMPT("2"), fence, "sb2", BINDING_CARRY_UNPACKED).reason, "");
    got = bench_acquire(&bench, bench_want(BINDING_WANT_RESUME, ATTEMPT("3")));
    gone(ATTEMPT("3"), got.fence, "sb2");
    ck_assert_str_eq(stored().into, "");
    ck_assert(loss().workspace);
    ck_reason(bench_abort(&bench, ATTEMPT("3"), got.fence).reason, "");
    got = bench_acquire(&bench, bench_want(BINDING_WANT_ENSURE, ATTEMPT("4")));
    ck_reason(bind(ATTEMPT("4"), got.fence, "sb3", BINDING_CARRY_NONE).reason, "CONFLICT");
    ck_reason(bind(ATTEMPT("4"), got.fence, "sb3", BINDING_CARRY_UNPACKED).reason, "");
}
END_TEST

/* The tar may go when a replica knows where it was unpacked; not while it waits. */
START_TEST(confirm__unpacked__written_for_a_replica)
{
    uint64_t fence = rebuild(ATTEMPT("2"));
    bool durable;

    ck_reason(confirm("blob", &durable), "CONFLICT");
    ck_reason(condemn(ATTEMPT("2"), fence, "sb1", "blob"), "");
    gone(ATTEMPT("2"), fence, "sb1");
    ck_reason(confirm("blob", &durable), "CONFLICT");
    ck_assert(!durable);
    ck_reason(bind(ATTEMPT("2"), fence, "sb2", BINDING_CARRY_UNPACKED).reason, "");
    ck_reason(confirm("another", &durable), "CONFLICT");
    ck_reason(confirm("blob", &durable), "");
    ck_assert(durable);
    ck_assert_str_eq(stored().into, "sb2");
}
END_TEST

static void setup_empty(void)
{
    bench_init(&bench);
}

/* The index was lost while a workspace waited, and it was found: it is kept until that sandbox
 * is used, and that the rest is gone is told. */
START_TEST(bind__found_after_the_index_was_lost__kept_and_told)
{
    struct outcome got = bench_acquire(&bench, bench_want(BINDING_WANT_ENSURE, ATTEMPT("1")));
    struct binding_change change = bench_change(BINDING_CHANGE_BIND, ATTEMPT("1"), got.fence);

    change.bound = bench_bound("sb1", 0);
    change.carry_outcome = BINDING_CARRY_UNPACKED;
    change.carry_blob_id = "blob";
    got = bench_commit(&bench, change);
    ck_reason(got.reason, "");
    ck_assert_str_eq(stored().into, "sb1");
    ck_assert(loss().memory && loss().packages && !loss().workspace);
    ck_assert_int_eq(loss().open, BINDING_LOSS_NONE);
    ck_assert(forget("blob"));
}
END_TEST

/* It was found, and is not what was written. */
START_TEST(bind__found_and_unreadable__workspace_told_as_lost)
{
    struct outcome got = bench_acquire(&bench, bench_want(BINDING_WANT_ENSURE, ATTEMPT("1")));

    ck_reason(bind(ATTEMPT("1"), got.fence, "sb1", BINDING_CARRY_GONE).reason, "");
    ck_assert(loss().workspace);
    ck_assert(!stored().set);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("binding/carry");
    TCase *tcase = tcase_create("carry"), *fresh = tcase_create("fresh");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, rebuild__carried__no_workspace_lost);
    tcase_add_test(tcase, bind__workspace_waits__only_with_it);
    tcase_add_test(tcase, condemn__holder_dies__next_one_carries_on);
    tcase_add_test(tcase, condemn__not_for_a_rebuild_or_not_bound__no_carry);
    tcase_add_test(tcase, gone__unpacked_into__waits_again);
    tcase_add_test(tcase, confirm__unpacked__written_for_a_replica);
    tcase_add_checked_fixture(fresh, setup_empty, teardown);
    tcase_add_test(fresh, bind__found_after_the_index_was_lost__kept_and_told);
    tcase_add_test(fresh, bind__found_and_unreadable__workspace_told_as_lost);
    suite_add_tcase(suite, tcase);
    suite_add_tcase(suite, fresh);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
