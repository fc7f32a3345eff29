/* test_states.c - a real server in each state in which it refuses: what we make of it, and that
 * all is well again once it is. */
#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

#include "common/time/time.h"
#include "tests/lib/redis_server.h"

#define KEY "berth:{t}:s/1"

enum { DEADLINE_MS = 20000, WITHIN_MS = 1000 };

static struct redis_server server;
static struct berth_redis *admin; /* looks and sets, whatever the state */
static struct berth_redis *redis; /* the one that is judged */

static void start(const struct redis_server_options *options)
{
    redis_server_start(&server, options);
    admin = redis_server_client(&server, &(struct berth_redis_options){.any_role = true});
    redis = redis_server_client(&server, NULL);
}

static void stop(void)
{
    redis = berth_redis_free(redis);
    admin = berth_redis_free(admin);
    redis_server_stop(&server);
}

static void run(const char *a, const char *b, const char *c, const char *d)
{
    berth_reply_free(redis_run(admin, a, b, c, d, NULL));
}

static enum berth_code read_one(struct berth_error *err)
{
    const struct berth_redis_get get = {.key = KEY};
    struct berth_doc doc = {0};
    int64_t now_ms;
    enum berth_code code = berth_redis_read(redis, &get, 1, &now_ms, &doc, err);

    berth_doc_deinit(&doc);
    return code;
}

static enum berth_code write_one(bool when_full, struct berth_error *err)
{
    BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
    bool applied;

    berth_cas_write(cas, "HSET", KEY, "n", "1", NULL);
    if (when_full)
        berth_cas_when_full(cas);
    return berth_cas_run(redis, cas, false, &applied, NULL, NULL, err);
}

/* Our text, and nothing of Redis' own. */
static void check_refused(enum berth_code code, const struct berth_error *err, const char *word)
{
    ck_assert_int_eq(code, BERTH_UNAVAILABLE);
    ck_assert_str_eq(berth_reason_name(err->reason), "STORE_UNAVAILABLE");
    ck_assert_msg(strstr(err->text, word), "%s", err->text);
}

static void check_well(void)
{
    struct berth_error err = {0};
    int64_t until_tick = berth_tick_ms() + DEADLINE_MS;

    while (write_one(false, &err) != BERTH_OK || read_one(&err) != BERTH_OK) {
        ck_assert_msg(berth_tick_ms() < until_tick, "%s", err.text);
        usleep(2000);
    }
}

/* Full: what is new is refused, what releases goes on, and so do reads. */
START_TEST(redis__out_of_memory__only_what_is_new_refused)
{
    struct berth_error err = {0};

    start(NULL);
    check_well();
    run("CONFIG", "SET", "maxmemory", "1");
    check_refused(write_one(false, &err), &err, "out of memory");
    ck_assert_int_eq(write_one(true, &err), BERTH_OK);
    ck_assert_int_eq(read_one(&err), BERTH_OK);
    /* A new connection can be made, too. */
    berth_redis_free(redis);
    redis = redis_server_client(&server, NULL);
    check_refused(write_one(false, &err), &err, "out of memory");
    ck_assert_int_eq(write_one(true, &err), BERTH_OK);
    run("CONFIG", "SET", "maxmemory", "0");
    check_well();
    stop();
}
END_TEST

/* A master that becomes a replica under an open connection: neither written to nor, once that
 * has shown, read from. */
START_TEST(redis__made_a_replica__refused)
{
    struct berth_error err = {0};

    start(NULL);
    check_well();
    run("CONFIG", "SET", "replica-serve-stale-data", "yes");
    run("REPLICAOF", "127.0.0.1", "1", NULL);
    check_refused(write_one(false, &err), &err, "replica");
    check_refused(read_one(&err), &err, "replica");
    run("REPLICAOF", "NO", "ONE", NULL);
    check_well();
    /* Its data may be somebody else's by now. */
    ck_assert_uint_eq(berth_redis_servers(redis), 1 + 1);
    run("CONFIG", "SET", "replica-serve-stale-data", "no");
    run("REPLICAOF", "127.0.0.1", "1", NULL);
    check_refused(read_one(&err), &err, "replica"); /* MASTERDOWN */
    stop();
}
END_TEST

/* Replicas that are wanted and not there, and a disk that cannot be written to. */
START_TEST(redis__no_replicas_or_disk__writes_refused)
{
    struct berth_error err = {0};
    char dump[128];
    int64_t until_tick = berth_tick_ms() + DEADLINE_MS;
    enum berth_code code;

    start(NULL);
    check_well();
    run("CONFIG", "SET", "min-replicas-to-write", "1");
    check_refused(write_one(true, &err), &err, "too few replicas");
    ck_assert_int_eq(read_one(&err), BERTH_OK);
    run("CONFIG", "SET", "min-replicas-to-write", "0");
    check_well();
    snprintf(dump, sizeof dump, "%s/dump.rdb", server.folder);
    ck_assert_int_eq(mkdir(dump, 0700), 0);
    run("CONFIG", "SET", "save", "3600 100000");
    run("BGSAVE", NULL, NULL, NULL);
    while ((code = write_one(true, &err)) == BERTH_OK && berth_tick_ms() < until_tick)
        usleep(2000);
    check_refused(code, &err, "disk");
    ck_assert_int_eq(read_one(&err), BERTH_OK);
    run("CONFIG", "SET", "save", "");
    check_well();
    stop();
}
END_TEST

/* Credentials taken away from an open connection, and from one to come. */
START_TEST(redis__credentials_taken_away__refused)
{
    const struct redis_server_options options = {.username = "berth", .password = "sesame"};
    struct berth_error err = {0};

    start(&options);
    check_well();
    run("ACL", "SETUSER", "berth", "-evalsha"); /* NOPERM */
    check_refused(write_one(false, &err), &err, "ACL");
    run("ACL", "SETUSER", "berth", "+evalsha");
    check_well();
    run("ACL", "SETUSER", "berth", "<sesame"); /* WRONGPASS */
    berth_redis_free(redis);
    redis = redis_server_client(&server, NULL);
    check_refused(write_one(false, &err), &err, "credentials");
    ck_assert_ptr_null(strstr(err.text, "sesame"));
    check_refused(read_one(&err), &err, "credentials"); /* while it backs off */
    run("ACL", "SETUSER", "berth", ">sesame");
    check_well();
    stop();
}
END_TEST

/* A script of somebody's that does not end: at first the server does not answer, then it says
 * BUSY; nobody waits longer than a second. */
static void *loop_for_ever(void *arg)
{
    struct berth_redis *client = arg;
    const char *argv[] = {"EVAL", "while true do end", "0"};
    struct berth_reply *reply = NULL;

    if (berth_redis_call(client, 3, argv, NULL, &reply, NULL) == BERTH_OK)
        berth_reply_free(reply);
    return NULL;
}

static int64_t time_both(struct berth_error *err)
{
    int64_t begin = berth_tick_ms(), middle;

    (void)write_one(false, err);
    middle = berth_tick_ms();
    (void)read_one(err);
    return middle - begin > berth_tick_ms() - middle ? middle - begin
                                                     : berth_tick_ms() - middle;
}

START_TEST(redis__script_that_never_ends__unavailable_within_a_second)
{
    const struct berth_redis_options patient = {.command_timeout_ms = DEADLINE_MS};
    BERTH_AUTO(berth_redis_free) struct berth_redis *villain = NULL;
    struct berth_error err = {0};
    int64_t until_tick = berth_tick_ms() + DEADLINE_MS, best = INT64_MAX;
    pthread_t thread;

    start(NULL);
    villain = redis_server_client(&server, &patient);
    check_well();
    run("CONFIG", "SET", "busy-reply-threshold", "1200");
    ck_assert_int_eq(pthread_create(&thread, NULL, loop_for_ever, villain), 0);
    while (write_one(false, &err) == BERTH_OK)
        ck_assert_int_lt(berth_tick_ms(), until_tick);
    while (!strstr(err.text, "busy with a script")) {
        int64_t took = time_both(&err);

        best = took < best ? took : best; /* a busy machine may be late */
        ck_assert_int_lt(berth_tick_ms(), until_tick);
    }
    ck_assert_int_lt(best, WITHIN_MS);
    check_refused(read_one(&err), &err, "busy with a script");
    check_refused(write_one(true, &err), &err, "busy with a script");
    run("SCRIPT", "KILL", NULL, NULL);
    pthread_join(thread, NULL);
    check_well();
    stop();
}
END_TEST

/* Starting: it loads its data, and says so. */
START_TEST(redis__loading__unavailable_until_loaded)
{
    static const char *const slow[] = {"--key-load-delay", "2000",
                                       "--loading-process-events-interval-bytes", "1024", NULL};
    struct berth_error err = {0};
    int64_t until_tick = berth_tick_ms() + DEADLINE_MS;
    bool seen = false;

    start(NULL);
    check_well();
    run("DEBUG", "POPULATE", "300", NULL);
    run("SAVE", NULL, NULL, NULL);
    redis_server_kill(&server);
    server.options.extra = slow;
    redis_server_launch(&server);
    while (read_one(&err) != BERTH_OK) {
        seen = seen || strstr(err.text, "still loads its data");
        ck_assert_msg(berth_tick_ms() < until_tick, "%s", err.text);
    }
    ck_assert(seen);
    stop();
}
END_TEST

/* Decided on one server, not written to the next. */
START_TEST(cas_only_on__another_server__not_written)
{
    BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
    struct berth_error err = {0};
    bool applied = false;
    uint64_t before;

    start(NULL);
    check_well();
    before = berth_redis_servers(redis);
    berth_cas_write(cas, "HSET", KEY, "n", "2", NULL);
    berth_cas_only_on(cas, before);
    ck_assert_int_eq(berth_cas_run(redis, cas, false, &applied, NULL, NULL, &err), BERTH_OK);
    redis_server_kill(&server);
    redis_server_again(&server);
    check_well();
    check_refused(berth_cas_run(redis, cas, false, &applied, NULL, NULL, &err), &err,
                  "another server");
    ck_assert_uint_eq(berth_redis_servers(redis), before + 1);
    stop();
}
END_TEST

/* What no command of ours can bring about. */
START_TEST(redis__transaction_given_up__a_bug_of_ours)
{
    const struct berth_redis_options one = {.max_connections = 1};
    const char *multi[] = {"MULTI"}, *wrong[] = {"GET"}, *exec[] = {"EXEC"};
    struct berth_reply *reply = NULL;
    struct berth_error err = {0};

    start(NULL);
    berth_redis_free(redis);
    redis = redis_server_client(&server, &one);
    ck_assert_int_eq(berth_redis_call(redis, 1, multi, NULL, &reply, &err), BERTH_OK);
    reply = berth_reply_free(reply);
    ck_assert_int_eq(berth_redis_call(redis, 1, wrong, NULL, &reply, &err), BERTH_INTERNAL);
    ck_assert_int_eq(berth_redis_call(redis, 1, exec, NULL, &reply, &err), BERTH_INTERNAL);
    ck_assert_ptr_nonnull(strstr(err.text, "transaction"));
    check_well(); /* on a connection that is in none */
    stop();
}
END_TEST

/* More clients than it takes. */
START_TEST(redis__too_many_clients__unavailable)
{
    struct berth_error err = {0};

    start(NULL);
    run("PING", NULL, NULL, NULL);
    run("CONFIG", "SET", "maxclients", "1");
    check_refused(read_one(&err), &err, "too many clients");
    run("CONFIG", "SET", "maxclients", "100");
    check_well();
    stop();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redis/states");
    TCase *tcase = tcase_create("states");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, redis__out_of_memory__only_what_is_new_refused);
    tcase_add_test(tcase, redis__made_a_replica__refused);
    tcase_add_test(tcase, redis__no_replicas_or_disk__writes_refused);
    tcase_add_test(tcase, redis__credentials_taken_away__refused);
    tcase_add_test(tcase, redis__script_that_never_ends__unavailable_within_a_second);
    tcase_add_test(tcase, redis__loading__unavailable_until_loaded);
    tcase_add_test(tcase, cas_only_on__another_server__not_written);
    tcase_add_test(tcase, redis__transaction_given_up__a_bug_of_ours);
    tcase_add_test(tcase, redis__too_many_clients__unavailable);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
