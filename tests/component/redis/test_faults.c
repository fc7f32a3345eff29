/* The store goes away in all the ways it can, under load. */
#include <check.h>
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "common/time/time.h"
#include "tests/lib/redis_server.h"

#define KEY "berth:{t}:s/1"

enum { N_THREADS = 8, WITHIN_MS = 1000, DEADLINE_MS = 20000 };

static struct redis_server server;
static struct berth_redis *redis;

static void setup(void)
{
    const struct redis_server_options options = {.keep = true, .tcp = true};

    redis_server_start(&server, &options);
    redis = redis_server_client(&server, NULL);
}

static void teardown(void)
{
    redis = berth_redis_free(redis);
    redis_server_stop(&server);
}

static int count_files(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int n = 0;

    while (readdir(folder))
        n++;
    closedir(folder);
    return n;
}

/* One read and one compare-and-set that adds one to the field n. */
static enum berth_code add_one(struct berth_redis *client, bool *ret_applied,
                               struct berth_error *err)
{
    const struct berth_redis_get get = {.key = KEY};
    BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
    struct berth_doc doc = {0};
    char rev[17], n[24];
    int64_t now_ms;
    enum berth_code code = berth_redis_read(client, &get, 1, &now_ms, &doc, err);

    *ret_applied = false;
    if (code)
        return code;
    snprintf(n, sizeof n, "%lld", strtoll(berth_doc_get(&doc, "n"), NULL, 10) + 1);
    berth_cas_expect(cas, KEY, berth_doc_get(&doc, "rev"));
    berth_cas_write(cas, "HSET", KEY, "rev", berth_rev_new(rev), "n", n, NULL);
    berth_doc_deinit(&doc);
    return berth_cas_run(client, cas, false, ret_applied, NULL, NULL, err);
}

static int64_t stored(void)
{
    struct berth_reply *reply = redis_run(redis, "HGET", KEY, "n", NULL);
    int64_t n = reply->string ? strtoll(reply->string, NULL, 10) : 0;

    berth_reply_free(reply);
    return n;
}

struct load {
    atomic_bool stop;
    atomic_int applied, unknown, unavailable, other;
};

static void *add_many(void *arg)
{
    struct load *load = arg;

    while (!load->stop) {
        struct berth_error err = {0};
        bool applied;
        enum berth_code code = add_one(redis, &applied, &err);

        if (code == BERTH_OK)
            load->applied += applied;
        else if (err.reason == BERTH_REASON_OUTCOME_UNKNOWN)
            load->unknown++;
        else if (err.reason == BERTH_REASON_STORE_UNAVAILABLE)
            load->unavailable++;
        else
            load->other++;
    }
    return NULL;
}

static void start_load(struct load *load, pthread_t *threads)
{
    for (int i = 0; i < N_THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, add_many, load), 0);
}

static void stop_load(struct load *load, pthread_t *threads)
{
    load->stop = true;
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
}

/* Waits until n more have been applied. */
static void wait_applied(struct load *load, int n)
{
    int64_t until_tick = berth_tick_ms() + DEADLINE_MS;
    int goal = load->applied + n;

    while (load->applied < goal) {
        ck_assert_int_lt(berth_tick_ms(), until_tick);
        usleep(1000);
    }
}

/* Every answer is true: what was said to be applied is there, and nothing more than that and
 * what was said to be unknown. */
static void check_truth(const struct load *load)
{
    ck_assert_int_eq(load->other, 0);
    ck_assert_int_ge(stored(), load->applied);
    ck_assert_int_le(stored(), load->applied + load->unknown);
}

/* Threads on one counter: each applied write counts exactly once. */
START_TEST(berth_cas_run__many_threads__no_write_lost)
{
    struct load load = {0};
    pthread_t threads[N_THREADS];

    start_load(&load, threads);
    wait_applied(&load, 300);
    stop_load(&load, threads);
    ck_assert_int_eq(load.unknown + load.unavailable + load.other, 0);
    ck_assert_int_eq(stored(), load.applied);
}
END_TEST

/* Connections killed by the dozen under load: no lie, no crash, no descriptor left over. */
START_TEST(redis__client_kill_storm__answers_stay_true)
{
    BERTH_AUTO(berth_redis_free)
    struct berth_redis *killer = redis_server_client(&server, NULL);
    struct load load = {0};
    pthread_t threads[N_THREADS];
    int files = count_files();

    start_load(&load, threads);
    for (int i = 0; i < 40; i++) {
        wait_applied(&load, 3);
        berth_reply_free(
            redis_run(killer, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes", NULL));
    }
    wait_applied(&load, 20);
    stop_load(&load, threads);
    check_truth(&load);
    ck_assert_int_le(count_files(), files + 17); /* the pool at its largest, and the killer */
}
END_TEST

/* kill -9 and a restart: calls fail at once in between, and go on by themselves afterwards. */
START_TEST(redis__server_killed_and_restarted__recovers)
{
    struct load load = {0};
    pthread_t threads[N_THREADS];
    struct berth_error err = {0};
    int64_t begin;

    start_load(&load, threads);
    for (int round = 0; round < 2; round++) {
        wait_applied(&load, 50);
        redis_server_kill(&server);
        begin = berth_tick_ms();
        while (load.unavailable == 0)
            ck_assert_int_lt(berth_tick_ms() - begin, DEADLINE_MS);
        begin = berth_tick_ms();
        for (int i = 0; i < 200; i++)
            ck_assert_int_eq(berth_redis_ping(redis, &err), BERTH_UNAVAILABLE);
        ck_assert_int_lt(berth_tick_ms() - begin, WITHIN_MS);
        redis_server_again(&server);
        load.unavailable = 0;
    }
    wait_applied(&load, 50);
    stop_load(&load, threads);
    check_truth(&load);
}
END_TEST

/* Milliseconds that a read and a compare-and-set take to fail; the better of three, since a
 * busy machine may be late. */
static int64_t time_to_fail(enum berth_reason *ret_write_reason)
{
    int64_t best = INT64_MAX;

    for (int try = 0; try < 3 && best >= WITHIN_MS; try++) {
        BERTH_AUTO(berth_redis_free)
        struct berth_redis *fresh = redis_server_client(&server, NULL);
        BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
        struct berth_error err = {0};
        bool applied;
        int64_t begin = berth_tick_ms(), took;

        berth_cas_write(cas, "HSET", KEY, "x", "y", NULL);
        ck_assert_int_ne(berth_cas_run(fresh, cas, false, &applied, NULL, NULL, &err),
                         BERTH_OK);
        *ret_write_reason = err.reason;
        took = berth_tick_ms() - begin;
        best = best < took ? best : took;
    }
    return best;
}

/* A stopped process still accepts connections: it is away all the same, within a second, and
 * nothing was sent to it. */
START_TEST(redis__server_stopped__new_connection_unavailable_within_a_second)
{
    enum berth_reason reason = BERTH_REASON_NONE;

    redis_server_pause(&server);
    ck_assert_int_lt(time_to_fail(&reason), WITHIN_MS);
    ck_assert_int_eq(reason, BERTH_REASON_STORE_UNAVAILABLE);
    redis_server_resume(&server);
}
END_TEST

/* On a connection that was good a moment ago the write was sent: its outcome is not known, a
 * read is just unavailable, both within a second. */
START_TEST(redis__client_pause__outcome_unknown_within_a_second)
{
    const struct berth_redis_get get = {.key = KEY};
    struct berth_doc doc = {0};
    struct berth_error err = {0};
    int64_t now_ms, begin, best = INT64_MAX;
    bool applied;

    for (int try = 0; try < 3 && best >= WITHIN_MS; try++) {
        BERTH_AUTO(berth_redis_free) struct berth_redis *one = NULL;
        const struct berth_redis_options options = {.max_connections = 1};
        int64_t took;

        one = redis_server_client(&server, &options);
        ck_assert_int_eq(berth_redis_ping(one, NULL), BERTH_OK);
        berth_reply_free(redis_run(redis, "CLIENT", "PAUSE", "100000", "ALL", NULL));
        begin = berth_tick_ms();
        ck_assert_int_eq(add_one(one, &applied, &err), BERTH_UNAVAILABLE); /* its read */
        took = berth_tick_ms() - begin;
        redis_server_kill(&server);
        redis_server_again(&server);
        best = best < took ? best : took;
    }
    ck_assert_int_lt(best, WITHIN_MS);
    for (best = INT64_MAX; best >= WITHIN_MS;) {
        BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
        int64_t took;

        while (berth_redis_read(redis, &get, 1, &now_ms, &doc, NULL) != BERTH_OK)
            usleep(1000);
        berth_cas_expect(cas, KEY, berth_doc_get(&doc, "rev"));
        berth_cas_write(cas, "HSET", KEY, "rev", "next", NULL);
        berth_doc_deinit(&doc);
        berth_reply_free(redis_run(redis, "CLIENT", "PAUSE", "100000", "WRITE", NULL));
        begin = berth_tick_ms();
        ck_assert_int_eq(berth_cas_run(redis, cas, false, &applied, NULL, NULL, &err),
                         BERTH_UNKNOWN);
        ck_assert_int_eq(err.reason, BERTH_REASON_OUTCOME_UNKNOWN);
        took = berth_tick_ms() - begin;
        best = took;
        redis_server_kill(&server);
        redis_server_again(&server);
    }
}
END_TEST

struct blocked {
    struct berth_redis *redis;
    atomic_int done, unavailable, unknown;
};

static void *block(void *arg)
{
    struct blocked *blocked = arg;
    const char *argv[] = {"BLPOP", "nothing", "0.4"};
    struct berth_reply *reply = NULL;
    struct berth_error err = {0};

    if (berth_redis_call(blocked->redis, 3, argv, NULL, &reply, &err) == BERTH_OK)
        blocked->done++;
    blocked->unavailable += err.reason == BERTH_REASON_STORE_UNAVAILABLE;
    blocked->unknown += err.reason == BERTH_REASON_OUTCOME_UNKNOWN;
    berth_reply_free(reply);
    return NULL;
}

/* The pool never grows over its limit, and who waits in vain for a connection is told so. */
START_TEST(redis__all_connections_busy__unavailable)
{
    const struct berth_redis_options options = {.max_connections = 2,
                                                .command_timeout_ms = 600};
    struct blocked blocked = {.redis = redis_server_client(&server, &options)};
    pthread_t threads[N_THREADS];
    struct berth_reply *reply;

    for (int i = 0; i < N_THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, block, &blocked), 0);
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    ck_assert_int_ge(blocked.done, 2);
    ck_assert_int_eq(blocked.done + blocked.unavailable + blocked.unknown, N_THREADS);
    reply = redis_run(redis, "INFO", "clients", NULL);
    ck_assert(strstr(reply->string, "connected_clients:1\r") ||
              strstr(reply->string, "connected_clients:2\r") ||
              strstr(reply->string, "connected_clients:3\r"));
    berth_reply_free(reply);
    berth_redis_free(blocked.redis);
}
END_TEST

/* -------------------------------------------------------------------------- replicas */

/* A durable write waits for its replica; without it the outcome is not known, though the write
 * is there. A write that is not durable does not wait. */
START_TEST(berth_cas_run__durable__waits_for_replica)
{
    struct redis_server replica;
    char port[8];
    const char *extra[] = {"--replicaof", "127.0.0.1", port, "--repl-diskless-sync-delay",
                           "0",           NULL};
    const struct redis_server_options options = {.extra = extra};
    const struct berth_redis_options waits = {.wait_replicas = 1, .command_timeout_ms = 3000};
    BERTH_AUTO(berth_redis_free)
    struct berth_redis *client = redis_server_client(&server, &waits);
    int64_t until_tick = berth_tick_ms() + DEADLINE_MS, in_sync = 0;

    berth_reply_free(redis_run(redis, "CONFIG", "SET", "repl-diskless-sync-delay", "0", NULL));
    snprintf(port, sizeof port, "%d", server.port % 65536);
    redis_server_start(&replica, &options);
    while (in_sync < 1) {
        struct berth_reply *reply = redis_run(redis, "WAIT", "1", "100", NULL);

        in_sync = reply->integer;
        berth_reply_free(reply);
        ck_assert_int_lt(berth_tick_ms(), until_tick);
    }
    for (int i = 0; i < 3; i++) {
        static const enum berth_code expected[] = {BERTH_OK, BERTH_UNKNOWN, BERTH_OK};
        BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
        struct berth_error err = {0};
        bool applied = false;
        char value[24];

        if (i == 1)
            redis_server_pause(&replica);
        snprintf(value, sizeof value, "%d", i);
        berth_cas_write(cas, "HSET", KEY, "n", value, NULL);
        ck_assert_int_eq(berth_cas_run(client, cas, i < 2, &applied, NULL, NULL, &err),
                         expected[i]);
        ck_assert_int_eq(stored(), i);
    }
    redis_server_resume(&replica);
    redis_server_stop(&replica);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redis/faults");
    TCase *tcase = tcase_create("faults");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_set_timeout(tcase, 100);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, berth_cas_run__many_threads__no_write_lost);
    tcase_add_test(tcase, redis__client_kill_storm__answers_stay_true);
    tcase_add_test(tcase, redis__server_killed_and_restarted__recovers);
    tcase_add_test(tcase, redis__server_stopped__new_connection_unavailable_within_a_second);
    tcase_add_test(tcase, redis__client_pause__outcome_unknown_within_a_second);
    tcase_add_test(tcase, redis__all_connections_busy__unavailable);
    tcase_add_test(tcase, berth_cas_run__durable__waits_for_replica);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
