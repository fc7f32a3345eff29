/* test_lock.c - who gets the lock: races, waiting, lost answers, leases. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "common/time/time.h"
#include "tests/component/binding/house.h"

static struct house house;

static void setup(void)
{
    house_open(&house, &(struct house_options){.lock_ms = 60000});
}

static void setup_short(void)
{
    house_open(&house, &(struct house_options){.lock_ms = 300});
}

static void teardown(void)
{
    house_close(&house);
}

/* ------------------------------------------------------------------------- races */

struct racer {
    unsigned number;
    pthread_t thread;
    struct grant grant;
    enum berth_reason bound;
};

static atomic_int n_granted;

/* Ask; who is granted the create, makes the sandbox and binds it. */
static void *race(void *arg)
{
    struct racer *racer = arg;
    int replica = (int)racer->number % REPLICAS;

    /* An answer that did not come is asked for again, under the same attempt. */
    do
        racer->grant =
            house_acquire(&house, replica, (struct want){"s", .attempt = 100 + racer->number});
    while (racer->grant.reason == BERTH_REASON_STORE_UNAVAILABLE ||
           racer->grant.reason == BERTH_REASON_OUTCOME_UNKNOWN);
    if (racer->grant.reason || racer->grant.decision == BINDING_USE)
        return NULL;
    atomic_fetch_add(&n_granted, 1);
    racer->bound = house_bind(&house, replica, "s", &racer->grant, "the-one");
    return NULL;
}

static void run_race(struct racer *racers, unsigned n)
{
    atomic_store(&n_granted, 0);
    for (unsigned i = 0; i < n; i++) {
        racers[i] = (struct racer){.number = i};
        ck_assert_int_eq(pthread_create(&racers[i].thread, NULL, race, &racers[i]), 0);
    }
    for (unsigned i = 0; i < n; i++)
        pthread_join(racers[i].thread, NULL);
}

static void check_race(const struct racer *racers, unsigned n)
{
    ck_assert_int_eq(atomic_load(&n_granted), 1);
    for (unsigned i = 0; i < n; i++) {
        ck_reason(racers[i].grant.reason, "");
        ck_reason(racers[i].bound, "");
        if (racers[i].grant.decision == BINDING_USE)
            ck_assert_str_eq(racers[i].grant.bound, "the-one");
    }
}

/* 64 callers of two replicas want one new session: one makes the sandbox, all get it. */
START_TEST(acquire__64_race_for_new_session__one_grant)
{
    static struct racer racers[64];

    run_race(racers, BERTH_COUNT(racers));
    check_race(racers, BERTH_COUNT(racers));
}
END_TEST

/* The same while Redis holds every command back for a while. */
START_TEST(acquire__64_race_while_store_pauses__one_grant)
{
    static struct racer racers[64];

    house_ask(&house, "CLIENT", "PAUSE", "300", "ALL", NULL);
    run_race(racers, BERTH_COUNT(racers));
    check_race(racers, BERTH_COUNT(racers));
}
END_TEST

/* ----------------------------------------------------------------------- waiting */

struct waiting {
    struct berth_pool *pool;
    atomic_int n_done;
    atomic_int n_ok;
};

static void on_answer(void *arg, enum berth_code code, ProtobufCMessage *resp,
                      const struct berth_error *err)
{
    struct waiting *waiting = arg;

    (void)err;
    if (!code) {
        atomic_fetch_add(&waiting->n_ok,
                         ((AcquireResponse *)resp)->decision == (int)BINDING_USE);
        protobuf_c_message_free_unpacked(resp, NULL);
    }
    atomic_fetch_add(&waiting->n_done, 1);
}

static void ask_many(struct waiting *waiting, int n, int replica, int64_t timeout_ms)
{
    const struct berth_call_options options = {.timeout_ms = timeout_ms};

    ck_assert_int_eq(berth_pool_new("answers", 2, 4096, &waiting->pool, NULL), BERTH_OK);
    for (int i = 0; i < n; i++) {
        struct acquire_parts parts;
        AcquireRequest req;

        house_fill_acquire((struct want){"s", .attempt = 1000 + (unsigned)i}, &parts, &req);
        berth_channel_call_async(house.replica[replica].channel, METHOD("Acquire"), &req.base,
                                 &berth__binding__v1__acquire_response__descriptor, &options,
                                 waiting->pool, on_answer, waiting);
    }
}

/* A thousand wait for one lock and hold no worker: others are served; all are let in when it is
 * given back, by one look. */
START_TEST(acquire__1000_wait__no_worker_held_and_all_wake)
{
    struct waiting waiting = {0};
    struct grant holder = house_acquire(&house, 0, (struct want){"s", .attempt = 1});
    int64_t begin;

    ask_many(&waiting, 1000, 0, WAIT_MS);
    await(binding_park_count(house.replica[0].binding->park) == 1000);
    begin = berth_tick_ms();
    house_make(&house, "other", "o1");
    ck_assert_int_lt(berth_tick_ms() - begin, 2000);
    ck_assert_int_eq(atomic_load(&waiting.n_done), 0);
    ck_reason(house_bind(&house, 0, "s", &holder, "the-one"), "");
    await(atomic_load(&waiting.n_done) == 1000);
    ck_assert_int_eq(atomic_load(&waiting.n_ok), 1000);
    berth_pool_free(waiting.pool);
}
END_TEST

/* The number behind "cmdstat_<name>:calls=" in INFO commandstats; 0: never called. */
static long calls_of(const char *name)
{
    const char *stats = house_ask(&house, "INFO", "commandstats", NULL), *at;
    char word[64];

    snprintf(word, sizeof word, "cmdstat_%s:calls=", name);
    at = strstr(stats, word);
    return at ? strtol(at + strlen(word), NULL, 10) : 0;
}

/* Two hundred wait at two replicas while the holder works: it is served as if nobody did, and
 * Redis is asked as often as two would ask. */
START_TEST(acquire__200_wait_at_two_replicas__no_herd)
{
    enum { RENEWALS = 10, WORK_MS = 100, LOOKS = 20 }; /* looks of a replica in that time */
    struct waiting waiting[REPLICAS] = {{0}};
    struct grant holder = house_acquire(&house, 0, (struct want){"s", .attempt = 1});
    int64_t quickest = INT64_MAX;
    long looked;

    for (int i = 0; i < REPLICAS; i++)
        ask_many(&waiting[i], 100, i, WAIT_MS);
    for (int i = 0; i < REPLICAS; i++)
        await(binding_park_count(house.replica[i].binding->park) == 100);
    house_ask(&house, "CONFIG", "RESETSTAT", NULL);
    for (int i = 0; i < RENEWALS; i++) {
        int64_t begin = berth_tick_ms(), took;

        ck_reason(house_renew_lock(&house, i % REPLICAS, "s", &holder, NULL), "");
        took = berth_tick_ms() - begin;
        quickest = took < quickest ? took : quickest;
        await(berth_tick_ms() - begin >= WORK_MS);
    }
    looked = calls_of("evalsha_ro") - RENEWALS;
    ck_assert_int_le(looked, (long)REPLICAS * LOOKS);
    ck_assert_int_eq(calls_of("evalsha"), RENEWALS);
    ck_assert_int_le(quickest, 20);

    house_ask(&house, "CONFIG", "RESETSTAT", NULL);
    ck_reason(house_bind(&house, 0, "s", &holder, "the-one"), "");
    for (int i = 0; i < REPLICAS; i++)
        await(atomic_load(&waiting[i].n_done) == 100);
    ck_assert_int_le(calls_of("evalsha_ro"), 10);
    ck_assert_int_eq(calls_of("evalsha"), 1);
    for (int i = 0; i < REPLICAS; i++) {
        ck_assert_int_eq(atomic_load(&waiting[i].n_ok), 100);
        berth_pool_free(waiting[i].pool);
    }
}
END_TEST

/* The lock is given back at one replica; who waits at the other sees it. */
START_TEST(acquire__given_back_at_other_replica__woken)
{
    struct waiting waiting = {0};
    struct grant holder = house_acquire(&house, 0, (struct want){"s", .attempt = 1});

    ask_many(&waiting, 3, 1, WAIT_MS);
    await(binding_park_count(house.replica[1].binding->park) == 3);
    ck_reason(house_bind(&house, 0, "s", &holder, "the-one"), "");
    await(atomic_load(&waiting.n_done) == 3);
    ck_assert_int_eq(atomic_load(&waiting.n_ok), 3);
    berth_pool_free(waiting.pool);
}
END_TEST

/* Told so by the service, or, on a busy machine, by one's own clock first. */
static bool waited_in_vain(const struct grant *grant)
{
    return grant->reason == BERTH_REASON_LOCK_WAIT || grant->reason == BERTH_REASON_DEADLINE;
}

/* Whose time is up is told why, before its deadline ends the call. */
START_TEST(acquire__deadline_while_waiting__lock_wait)
{
    struct grant holder = house_acquire(&house, 0, (struct want){"s", .attempt = 1}), got;
    int64_t begin = berth_tick_ms();

    ck_reason(holder.reason, "");
    got = house_acquire(&house, 0, (struct want){"s", .attempt = 2, .timeout_ms = 1500});
    ck_reason(got.reason, "LOCK_WAIT");
    ck_assert_int_ge(berth_tick_ms() - begin, 1000);
    await(binding_park_count(house.replica[0].binding->park) == 0);
}
END_TEST

struct caller {
    struct berth_stream *stream;
    struct acquire_parts parts;
    AcquireRequest req;
    atomic_int closed;
};

static void no_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    (void)ctx;
    (void)stream;
    berth_buf_unref(msg);
}

static void no_written(void *ctx, struct berth_stream *stream)
{
    (void)ctx;
    berth_stream_half_close(stream);
}

static void is_closed(void *ctx, struct berth_stream *stream, const struct berth_status *status)
{
    struct caller *caller = ctx;

    (void)stream;
    atomic_store(&caller->closed, 1 + (int)status->code);
}

static const struct berth_stream_ops caller_ops = {no_message, no_written, is_closed, NULL};

static void start_call(void *arg)
{
    struct caller *caller = arg;
    const struct berth_call_options options = {0};

    caller->stream = berth_channel_stream(house.replica[0].channel, METHOD("Acquire"), &options,
                                          house.replica[0].loop, &caller_ops, caller);
    ck_assert(berth_stream_write(caller->stream, berth_buf_pack(&caller->req.base)));
    berth_stream_read(caller->stream);
}

static void cancel_call(void *arg)
{
    struct caller *caller = arg;

    berth_stream_cancel(caller->stream);
}

/* Who goes away is not kept waiting, and takes no lock. */
START_TEST(acquire__cancelled_while_waiting__forgotten)
{
    struct grant holder = house_acquire(&house, 0, (struct want){"s", .attempt = 1});
    struct caller caller = {0};

    ck_reason(holder.reason, "");
    house_fill_acquire((struct want){"s", .attempt = 2}, &caller.parts, &caller.req);
    berth_loop_post(house.replica[0].loop, start_call, &caller);
    await(binding_park_count(house.replica[0].binding->park) == 1);
    berth_loop_post(house.replica[0].loop, cancel_call, &caller);
    await(binding_park_count(house.replica[0].binding->park) == 0);
    await(atomic_load(&caller.closed) == 1 + BERTH_CANCELLED);
    ck_reason(house_abort(&house, 0, "s", &holder), "");
    ck_assert_int_eq(house_acquire(&house, 0, (struct want){"s", .attempt = 3}).decision,
                     BINDING_ADOPT_OR_CREATE);
}
END_TEST

/* A delete is heard while a create goes on: turns are refused at once, the create condemned. */
START_TEST(acquire__delete_during_create__heard_at_once)
{
    struct grant holder = house_acquire(&house, 0, (struct want){"s", .attempt = 1}), got;
    char token[160];

    got = house_acquire(
        &house, 1,
        (struct want){"s", .kind = BINDING_WANT_DELETE, .attempt = 2, .timeout_ms = 400});
    ck_assert(waited_in_vain(&got));
    ck_reason(house_begin(&house, 0, "s", "t", token), "SESSION_DELETED");
    ck_reason(house_bind(&house, 0, "s", &holder, "late"), "SESSION_DELETED");
    ck_reason(house_abort(&house, 0, "s", &holder), "");
    got =
        house_acquire(&house, 1, (struct want){"s", .kind = BINDING_WANT_DELETE, .attempt = 3});
    ck_assert_int_eq(got.decision, BINDING_DELETE);
    ck_assert_uint_eq(got.n_intents, 1);
    ck_reason(house_gone(&house, 1, "s", &got, "late", true), "");
    ck_reason(house_tombstone(&house, 1, "s", &got), "");
    ck_reason(house_acquire(&house, 0, (struct want){"s", .attempt = 4}).reason,
              "SESSION_DELETED");
}
END_TEST

/* A server that shuts down sends those who wait away. */
START_TEST(acquire__server_stops_while_waiting__draining)
{
    struct grant holder = house_acquire(&house, 0, (struct want){"s", .attempt = 1});
    struct waiting waiting = {0};

    ck_reason(holder.reason, "");
    ask_many(&waiting, 5, 1, WAIT_MS);
    await(binding_park_count(house.replica[1].binding->park) == 5);
    berth_server_stop(house.replica[1].server, WAIT_MS);
    await(atomic_load(&waiting.n_done) == 5);
    ck_assert_int_eq(atomic_load(&waiting.n_ok), 0);
    berth_pool_free(waiting.pool);
}
END_TEST

/* ------------------------------------------------------------- lost answers, leases */

/* The same attempt gets the same grant, at any replica, as often as it asks. */
START_TEST(acquire__attempt_repeated__same_grant)
{
    struct grant first = house_acquire(&house, 0, (struct want){"s", .attempt = 7}), again;

    for (int i = 0; i < 4; i++) {
        again = house_acquire(&house, i % REPLICAS, (struct want){"s", .attempt = 7});
        ck_reason(again.reason, "");
        ck_assert_int_eq(again.decision, BINDING_ADOPT_OR_CREATE);
        ck_assert_uint_eq(again.fence, first.fence);
        ck_assert_uint_eq(again.n_intents, 1);
        ck_assert_str_eq(again.alias, first.alias);
        ck_assert_str_eq(again.boots, "base");
        ck_assert(again.keyed);
    }
    ck_reason(house_bind(&house, 0, "s", &first, "sb"), "");
    /* So does its Commit. */
    ck_reason(house_bind(&house, 1, "s", &first, "sb"), "");
    ck_reason(house_acquire(&house, 0, (struct want){"s", .attempt = 7}).reason, "LOCK_LOST");
}
END_TEST

/* A holder that stalls past its lease: the next is let in with a higher fence, the first can
 * neither commit nor renew. */
START_TEST(lock__lease_over__taken_over_and_first_fenced)
{
    struct grant first = house_acquire(&house, 0, (struct want){"s", .attempt = 1}), second;

    second = house_acquire(&house, 1, (struct want){"s", .attempt = 2});
    ck_reason(second.reason, "");
    ck_assert_int_eq(second.decision, BINDING_ADOPT_OR_CREATE);
    ck_assert_uint_gt(second.fence, first.fence);
    ck_assert_uint_eq(second.n_intents, 2);
    ck_reason(house_bind(&house, 0, "s", &first, "a"), "LOCK_LOST");
    ck_reason(house_renew_lock(&house, 0, "s", &first, NULL), "LOCK_LOST");
    ck_reason(house_bind(&house, 1, "s", &second, "b"), "");
}
END_TEST

/* A holder that renews keeps its lock for as long as it does; also when a renewal is late. */
START_TEST(lock__renewed__kept)
{
    struct grant first = house_acquire(&house, 0, (struct want){"s", .attempt = 1}), got;
    int64_t lease_ms = 0, until = berth_tick_ms() + 1000;

    while (berth_tick_ms() < until) {
        got = house_acquire(&house, 1, (struct want){"s", .attempt = 2, .timeout_ms = 100});
        ck_assert(waited_in_vain(&got));
        ck_reason(house_renew_lock(&house, 0, "s", &first, &lease_ms), "");
        ck_assert_int_eq(lease_ms, 300);
    }
    usleep(400000);
    ck_reason(house_renew_lock(&house, 0, "s", &first, NULL), "");
    ck_reason(house_bind(&house, 0, "s", &first, "sb"), "");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("binding/lock");
    TCase *tc = tcase_create("lock"), *leases = tcase_create("leases");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, acquire__64_race_for_new_session__one_grant);
    tcase_add_test(tc, acquire__64_race_while_store_pauses__one_grant);
    tcase_add_test(tc, acquire__1000_wait__no_worker_held_and_all_wake);
    tcase_add_test(tc, acquire__200_wait_at_two_replicas__no_herd);
    tcase_add_test(tc, acquire__given_back_at_other_replica__woken);
    tcase_add_test(tc, acquire__deadline_while_waiting__lock_wait);
    tcase_add_test(tc, acquire__cancelled_while_waiting__forgotten);
    tcase_add_test(tc, acquire__delete_during_create__heard_at_once);
    tcase_add_test(tc, acquire__server_stops_while_waiting__draining);
    tcase_add_test(tc, acquire__attempt_repeated__same_grant);
    suite_add_tcase(suite, tc);
    tcase_add_checked_fixture(leases, setup_short, teardown);
    tcase_set_timeout(leases, 60);
    tcase_add_test(leases, lock__lease_over__taken_over_and_first_fenced);
    tcase_add_test(leases, lock__renewed__kept);
    suite_add_tcase(suite, leases);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
