/* test_sentinel.c - the master is asked for at a Sentinel, and followed when it moves. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "common/time/time.h"
#include "tests/lib/redis_server.h"

#define KEY "berth:{t}:s/1"

enum { DEADLINE_MS = 30000, N_THREADS = 4, FOLLOWS_MS = 3000 };

static struct redis_server master, replica;
static struct redis_sentinel sentinel;
static struct berth_redis *redis; /* by the Sentinel */
static char url[128], replica_port[16];
static const char *replica_args[] = {"--replicaof", "127.0.0.1",
                                     replica_port,  "--masterauth",
                                     "sesame",      "--repl-diskless-sync-delay",
                                     "0",           NULL};
static const char *const master_args[] = {"--masterauth", "sesame",
                                          "--repl-diskless-sync-delay", "0", NULL};

static void setup(void)
{
    const struct redis_server_options first = {
        .tcp = true, .password = "sesame", .extra = master_args};
    const struct redis_server_options second = {
        .tcp = true, .password = "sesame", .extra = replica_args};
    struct berth_redis_options options = {
        .url = url, .password = "sesame", .sentinel_password = "open", .wait_replicas = 0};

    redis_server_start(&master, &first);
    snprintf(replica_port, sizeof replica_port, "%d", master.port);
    redis_server_start(&replica, &second);
    redis_sentinel_start(&sentinel, &master, "open", 1);
    /* The first of the two is not there, and somebody else is at the second. */
    snprintf(url, sizeof url, "sentinel:m@127.0.0.1:1,127.0.0.1:%d,127.0.0.1:%d", master.port,
             sentinel.port);
    ck_assert_int_eq(berth_redis_new(&options, &redis, NULL), BERTH_OK);
}

static void teardown(void)
{
    redis = berth_redis_free(redis);
    redis_sentinel_stop(&sentinel);
    redis_server_stop(&replica);
    redis_server_stop(&master);
}

/* The port of the server that answers; 0: none does. */
static int answering(void)
{
    const char *argv[] = {"INFO", "server"};
    BERTH_AUTO(berth_reply_free) struct berth_reply *reply = NULL;
    const char *port;

    if (berth_redis_call(redis, 2, argv, NULL, &reply, NULL) != BERTH_OK)
        return 0;
    port = strstr(reply->string, "tcp_port:");
    return port ? (int)strtol(port + strlen("tcp_port:"), NULL, 10) : 0;
}

static void await_port(int port)
{
    int64_t until_tick = berth_tick_ms() + DEADLINE_MS;

    while (answering() != port) {
        ck_assert_int_lt(berth_tick_ms(), until_tick);
        usleep(5000);
    }
}

/* Writers that count what they were told had been written. */
static atomic_bool stop;
static atomic_int applied, unknown, other;

static void *write_on(void *arg)
{
    (void)arg;
    while (!stop) {
        BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
        struct berth_error err = {0};
        char rev[17];
        bool done = false;
        enum berth_code code;

        berth_cas_write(cas, "SADD", KEY, berth_rev_new(rev), NULL);
        code = berth_cas_run(redis, cas, false, &done, NULL, NULL, &err);
        if (code == BERTH_OK)
            applied += done;
        else if (code == BERTH_UNKNOWN)
            unknown++;
        else if (code != BERTH_UNAVAILABLE)
            other++;
    }
    return NULL;
}

/* Killed: the Sentinel makes the replica master, and all goes on there, seen as another server.
 */
START_TEST(sentinel__master_killed__replica_followed)
{
    pthread_t threads[N_THREADS];
    int before;

    await_port(master.port);
    ck_assert_uint_eq(berth_redis_servers(redis), 1);
    for (int i = 0; i < N_THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, write_on, NULL), 0);
    while (applied < 100)
        usleep(1000);
    redis_server_kill(&master);
    await_port(replica.port);
    ck_assert_uint_eq(berth_redis_servers(redis), 2);
    before = applied;
    while (applied < before + 100)
        usleep(1000);
    stop = true;
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    ck_assert_int_eq(other, 0);
    ck_assert_uint_eq(berth_redis_servers(redis), 2);
}
END_TEST

/* Told by the Sentinel, while the old one is alive: followed. */
START_TEST(sentinel__failed_over_by_hand__followed)
{
    await_port(master.port);
    redis_sentinel_failover(&sentinel, "open");
    await_port(replica.port);
    ck_assert_uint_eq(berth_redis_servers(redis), 2);
}
END_TEST

/* A master that was replaced behind a partition, does not know it and goes on answering: left
 * all the same, and soon. */
START_TEST(sentinel__old_master_still_answers__left)
{
    BERTH_AUTO(berth_redis_free) struct berth_redis *direct = NULL;
    int64_t begin;

    await_port(master.port);
    direct = redis_server_client(&replica, &(struct berth_redis_options){.any_role = true});
    berth_reply_free(redis_run(direct, "REPLICAOF", "NO", "ONE", NULL));
    ck_assert_int_eq(answering(), master.port);
    redis_sentinel_move(&sentinel, &replica, "open");
    begin = berth_tick_ms();
    await_port(replica.port);
    ck_assert_int_lt(berth_tick_ms() - begin, FOLLOWS_MS);
    ck_assert_uint_eq(berth_redis_servers(redis), 2);
}
END_TEST

/* A Sentinel with another password, and one that does not know the name. */
START_TEST(sentinel__wrong_password_or_name__unavailable)
{
    struct berth_redis_options options = {
        .url = url, .password = "sesame", .sentinel_password = "wrong"};
    BERTH_AUTO(berth_redis_free) struct berth_redis *wrong = NULL, *unknown_name = NULL;
    struct berth_error err = {0};
    char other_url[128];

    ck_assert_int_eq(berth_redis_new(&options, &wrong, NULL), BERTH_OK);
    ck_assert_int_eq(berth_redis_ping(wrong, &err), BERTH_UNAVAILABLE);
    ck_assert_msg(strstr(err.text, "credentials"), "%s", err.text);
    snprintf(other_url, sizeof other_url, "sentinel:n@127.0.0.1:%d", sentinel.port);
    options.url = other_url;
    options.sentinel_password = "open";
    ck_assert_int_eq(berth_redis_new(&options, &unknown_name, NULL), BERTH_OK);
    ck_assert_int_eq(berth_redis_ping(unknown_name, &err), BERTH_UNAVAILABLE);
    ck_assert_msg(strstr(err.text, "knows no master of that name"), "%s", err.text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redis/sentinel");
    TCase *tcase = tcase_create("sentinel");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, sentinel__master_killed__replica_followed);
    tcase_add_test(tcase, sentinel__old_master_still_answers__left);
    tcase_add_test(tcase, sentinel__failed_over_by_hand__followed);
    tcase_add_test(tcase, sentinel__wrong_password_or_name__unavailable);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
