/* test_loss_rpc.c - what a session lost, over the wire and over two replicas: known to both
 * from the write that frees the binding, until one of them hears that it was told. */
#include <stdio.h>

#include "common/time/time.h"
#include "tests/component/binding/house.h"

typedef Berth__Binding__V1__GetBindingResponse GetBindingResponse;

static struct proxy proxy;
static struct house house;

static void setup(void)
{
    house_open(&house, &(struct house_options){.proxy = &proxy});
    house_make(&house, "s", "sb1");
}

static void teardown(void)
{
    house_close(&house);
}

/* What an Acquire of this replica is told; the number of the loss, 0: of none. */
static uint64_t seen_by(int replica, unsigned attempt)
{
    struct acquire_parts parts;
    AcquireRequest req;
    AcquireResponse *resp = NULL;
    uint64_t number;

    house_fill_acquire((struct want){"s", .attempt = attempt}, &parts, &req);
    ck_reason(house_call(&house, replica, METHOD("Acquire"), &req.base,
                         &berth__binding__v1__acquire_response__descriptor, 0, &resp),
              "");
    number = resp->loss ? resp->loss->number : 0;
    if (resp->loss) {
        ck_assert_int_eq(resp->loss->cause, BERTH__BINDING__V1__LOSS_CAUSE__LOSS_CAUSE_GONE);
        ck_assert(resp->loss->memory && resp->loss->workspace && resp->loss->packages);
        ck_assert_str_eq(resp->loss->sandbox_id, "sb1");
        ck_assert_ptr_nonnull(resp->loss->lost_time);
        ck_assert_ptr_null(resp->loss->told_time);
    }
    protobuf_c_message_free_unpacked(&resp->base, NULL);
    return number;
}

static enum berth_reason told(int replica, const char *session, uint64_t number)
{
    Berth__Binding__V1__LossToldRequest req = BERTH__BINDING__V1__LOSS_TOLD_REQUEST__INIT;
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;

    ref.tenant_id = (char *)"t1";
    ref.session_id = (char *)session;
    req.session = &ref;
    req.number = number;
    return house_call(&house, replica, METHOD("LossTold"), &req.base,
                      &berth__binding__v1__loss_told_response__descriptor, 0, NULL);
}

static GetBindingResponse *get(void)
{
    Berth__Binding__V1__GetBindingRequest req = BERTH__BINDING__V1__GET_BINDING_REQUEST__INIT;
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    GetBindingResponse *got = NULL;

    ref.tenant_id = (char *)"t1";
    ref.session_id = (char *)"s";
    req.session = &ref;
    ck_reason(house_call(&house, 1, METHOD("GetBinding"), &req.base,
                         &berth__binding__v1__get_binding_response__descriptor, 0, &got),
              "");
    return got;
}

/* Free the binding, and bind another one. */
static void replace(void)
{
    struct grant grant =
        house_acquire(&house, 0, (struct want){"s", .kind = BINDING_WANT_RESUME, .attempt = 2});

    ck_reason(house_gone(&house, 0, "s", &grant, "sb1", false), "");
    ck_assert_str_ne(house_field(&house, "s", "loss"), "");
    grant = house_acquire(&house, 1, (struct want){"s", .attempt = 3});
    ck_assert_int_eq(grant.decision, BINDING_ADOPT_OR_CREATE);
    ck_reason(house_bind(&house, 1, "s", &grant, "sb2"), "");
}

/* Both replicas tell it until one hears that it was told; after that a read still shows it. */
START_TEST(loss_told__at_one_replica__quiet_at_both)
{
    BERTH_AUTO(free) char *figures = NULL, *other = NULL;
    GetBindingResponse *got;

    ck_assert_uint_eq(seen_by(1, 10), 0);
    replace();
    ck_assert_uint_eq(seen_by(0, 11), 1);
    ck_assert_uint_eq(seen_by(1, 12), 1);
    ck_reason(told(0, "s", 2), "");
    ck_assert_uint_eq(seen_by(1, 13), 1);
    ck_reason(told(0, "s", 1), "");
    ck_reason(told(1, "s", 1), "");
    ck_assert_uint_eq(seen_by(0, 14), 0);
    ck_assert_uint_eq(seen_by(1, 15), 0);
    got = get();
    ck_assert_uint_eq(got->loss->number, 1);
    ck_assert_ptr_nonnull(got->loss->told_time);
    protobuf_c_message_free_unpacked(&got->base, NULL);

    figures = binding_metrics(house.replica[0].binding);
    ck_assert_ptr_nonnull(strstr(figures, "berth_binding_losses_total{cause=\"gone\"} 1\n"));
    ck_assert_ptr_nonnull(strstr(figures, "berth_binding_losses_total{cause=\"memory\"} 0\n"));
    other = binding_metrics(house.replica[1].binding);
    ck_assert_ptr_nonnull(
        strstr(other, "berth_binding_replacements_total{cause=\"gone\"} 1\n"));
}
END_TEST

/* What is asked wrongly is refused, and changes nothing. */
START_TEST(loss_told__wrong__refused)
{
    replace();
    ck_reason(told(0, "s", 0), "FIELD_INVALID");
    ck_reason(told(0, "never", 1), "SESSION_NOT_FOUND");
    ck_reason(told(0, "", 1), "FIELD_INVALID");
    ck_assert_uint_eq(seen_by(0, 11), 1);
}
END_TEST

/* The report's request or its answer is lost on the way to Redis: it is settled, once. */
START_TEST(loss_told__outcome_not_known__settled)
{
    replace();
    atomic_store(&proxy.loss, _i ? PROXY_LOSE_REPLY : PROXY_LOSE_REQUEST);
    ck_reason(told(0, "s", 1), "");
    ck_assert_int_eq(atomic_load(&proxy.lost), 1);
    ck_assert_uint_eq(seen_by(1, 11), 0);
}
END_TEST

/* The write that frees the binding is one with the note: whichever way its answer is lost, it
 * is there, and once. */
START_TEST(gone__outcome_not_known__noted_once)
{
    struct grant grant =
        house_acquire(&house, 0, (struct want){"s", .kind = BINDING_WANT_RESUME, .attempt = 2});

    atomic_store(&proxy.loss, _i ? PROXY_LOSE_REPLY : PROXY_LOSE_REQUEST);
    ck_reason(house_gone(&house, 0, "s", &grant, "sb1", false), "");
    ck_assert_int_eq(atomic_load(&proxy.lost), 1);
    ck_assert_uint_eq(seen_by(1, 11), 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("binding/loss_rpc");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(all, setup, teardown);
    tcase_set_timeout(all, 60);
    tcase_add_test(all, loss_told__at_one_replica__quiet_at_both);
    tcase_add_test(all, loss_told__wrong__refused);
    tcase_add_loop_test(all, loss_told__outcome_not_known__settled, 0, 2);
    tcase_add_loop_test(all, gone__outcome_not_known__noted_once, 0, 2);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
