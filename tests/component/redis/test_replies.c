/* What a client makes of answers, and of none, that a scripted peer gives. */
#include <check.h>
#include <unistd.h>

#include "common/redis/redis.h"
#include "common/time/time.h"
#include "tests/component/redis/peer.h"

enum { SHORT_MS = 250, WITHIN_MS = 1000 };

static struct berth_redis *client_of(const struct peer *peer)
{
    const struct berth_redis_options options = {.url = peer->url,
                                                .command_timeout_ms = SHORT_MS,
                                                .connect_timeout_ms = SHORT_MS,
                                                .username = "user",
                                                .password = "secret"};
    struct berth_redis *redis = NULL;

    ck_assert_int_eq(berth_redis_new(&options, &redis, NULL), BERTH_OK);
    return redis;
}

static enum berth_code call(struct berth_redis *redis, struct berth_error *err)
{
    const char *argv[] = {"GET", "k"};
    struct berth_reply *reply = NULL;
    enum berth_code code = berth_redis_call(redis, 2, argv, NULL, &reply, err);

    if (!code)
        berth_reply_free(reply);
    else
        ck_assert_ptr_null(reply);
    return code;
}

static enum berth_code read_one(struct berth_redis *redis, struct berth_error *err)
{
    const struct berth_redis_get get = {.key = "k"};
    struct berth_doc doc = {0};
    int64_t now_ms;
    enum berth_code code = berth_redis_read(redis, &get, 1, &now_ms, &doc, err);

    berth_doc_deinit(&doc);
    return code;
}

static enum berth_code cas_one(struct berth_redis *redis, struct berth_error *err)
{
    BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
    struct berth_doc doc = {0};
    bool applied = false;
    enum berth_code code;

    berth_cas_expect(cas, "k", "");
    berth_cas_write(cas, "HSET", "k", "rev", "1", NULL);
    code = berth_cas_run(redis, cas, false, &applied, NULL, &doc, err);
    berth_doc_deinit(&doc);
    return code;
}

static const struct {
    const char *answer;
    enum berth_reason reason;
} error_rows[] = {
    {"-LOADING Redis is loading the dataset in memory\r\n", BERTH_REASON_STORE_UNAVAILABLE},
    {"-READONLY You can't write against a read only replica.\r\n",
     BERTH_REASON_STORE_UNAVAILABLE},
    {"-CLUSTERDOWN The cluster is down\r\n", BERTH_REASON_STORE_UNAVAILABLE},
    {"-TRYAGAIN later\r\n", BERTH_REASON_STORE_UNAVAILABLE},
    {"-BUSY Redis is busy running a script.\r\n", BERTH_REASON_STORE_UNAVAILABLE},
    {"-MASTERDOWN Link with MASTER is down\r\n", BERTH_REASON_STORE_UNAVAILABLE},
    {"-MISCONF Redis is configured to save\r\n", BERTH_REASON_STORE_UNAVAILABLE},
    {"-NOREPLICAS Not enough good replicas to write.\r\n", BERTH_REASON_STORE_UNAVAILABLE},
    {"-OOM command not allowed\r\n", BERTH_REASON_STORE_UNAVAILABLE},
    {"-NOAUTH Authentication required.\r\n", BERTH_REASON_STORE_UNAVAILABLE},
    {"-WRONGPASS invalid username-password pair\r\n", BERTH_REASON_STORE_UNAVAILABLE},
    {"-NOPERM this user has no permissions\r\n", BERTH_REASON_STORE_UNAVAILABLE},
    {"-MOVED 3999 127.0.0.1:6381\r\n", BERTH_REASON_STORE_UNAVAILABLE},
    {"-ASK 3999 127.0.0.1:6381\r\n", BERTH_REASON_STORE_UNAVAILABLE},
    {"-NOSCRIPT No matching script\r\n", BERTH_REASON_STORE_UNAVAILABLE},
    {"-UNBLOCKED force unblock\r\n", BERTH_REASON_STORE_UNAVAILABLE},
    {"-ERR max number of clients reached\r\n", BERTH_REASON_STORE_UNAVAILABLE},
    {"-ERR Error running script: Script killed by user with SCRIPT KILL.\r\n",
     BERTH_REASON_STORE_UNAVAILABLE},
    {"-WRONGTYPE Operation against a key\r\n", BERTH_REASON_INTERNAL_BUG},
    {"-EXECABORT Transaction discarded\r\n", BERTH_REASON_INTERNAL_BUG},
    {"-CROSSSLOT Keys in request\r\n", BERTH_REASON_INTERNAL_BUG},
    {"-ERR syntax error\r\n", BERTH_REASON_INTERNAL_BUG},
    {"-LOADINGX not the same word\r\n", BERTH_REASON_INTERNAL_BUG},
    {"-\r\n", BERTH_REASON_INTERNAL_BUG},
    {"*2\r\n+OK\r\n-LOADING inside\r\n", BERTH_REASON_STORE_UNAVAILABLE},
};

/* An error reply becomes an error with the reason its first word stands for, on every path. */
START_TEST(redis__error_reply__mapped)
{
    struct peer peer = {.answer = error_rows[_i].answer};
    struct berth_redis *redis;
    struct berth_error err = {0};

    peer_start(&peer);
    redis = client_of(&peer);
    ck_assert_int_ne(call(redis, &err), BERTH_OK);
    ck_assert_str_eq(berth_reason_name(err.reason), berth_reason_name(error_rows[_i].reason));
    ck_assert_int_ne(read_one(redis, &err), BERTH_OK);
    ck_assert_str_eq(berth_reason_name(err.reason), berth_reason_name(error_rows[_i].reason));
    ck_assert_int_ne(cas_one(redis, &err), BERTH_OK);
    ck_assert_str_eq(berth_reason_name(err.reason), berth_reason_name(error_rows[_i].reason));
    /* Answered is answered: nothing is sent twice, but to another server than a replica. */
    if (strncmp(peer.answer, "-READONLY", 9) == 0)
        ck_assert_int_eq(peer.n_commands, 6);
    else if (strncmp(peer.answer, "-NOSCRIPT", 9) != 0)
        ck_assert_int_eq(peer.n_commands, 3);
    berth_redis_free(redis);
    peer_stop(&peer);
}
END_TEST

/* Redis' own text, which may repeat arguments, never gets into ours. */
START_TEST(redis__unknown_error__text_not_shown)
{
    struct peer peer = {
        .answer = "-ERR unknown command 'FOO', with args beginning with: 'sesame' \r\n"};
    struct berth_redis *redis;
    struct berth_error err = {0};

    peer_start(&peer);
    redis = client_of(&peer);
    ck_assert_int_eq(call(redis, &err), BERTH_INTERNAL);
    ck_assert_ptr_null(strstr(err.text, "FOO"));
    ck_assert_ptr_null(strstr(err.text, "sesame"));
    berth_redis_free(redis);
    peer_stop(&peer);
}
END_TEST

static const struct {
    const char *answer;
    size_t size;
    int drip_ms, close_after;
} broken_rows[] = {
    {"", 0, 0, 0},                                               /* silence */
    {"", 0, 0, 1},                                               /* closed */
    {"$10\r\nabc", 0, 0, 0},                                     /* stops half-way */
    {"$10\r\nabc", 0, 0, 1},                                     /* closed half-way */
    {"*2\r\n:1\r\n", 0, 0, 1},                                   /* closed in an array */
    {"$2000\r\n.", 0, 0, 1},                                     /* much promised */
    {"+A simple string that comes in too slowly\r\n", 0, 60, 0}, /* one byte at a time */
    {"%1\r\n+a\r\n+b\r\n", 0, 0, 0},        /* RESP3, which nobody asked for */
    {"hello\r\n", 0, 0, 0},                 /* not Redis at all */
    {"*1000000000\r\n", 0, 0, 0},           /* an array nobody can hold */
    {"$999999999999\r\n", 0, 0, 1},         /* a string nobody can hold */
    {"$-7\r\n", 0, 0, 0},                   /* a negative length */
    {":99999999999999999999\r\n", 0, 0, 0}, /* not an int64 */
    {"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n", 0, 0, 0}, /* deep */
};

/* No whole answer: it is not known whether a write took effect, it is known that a read did
 * not, and both are over in time. */
START_TEST(redis__broken_answer__unknown_for_writes_unavailable_for_reads)
{
    struct peer peer = {.answer = broken_rows[_i].answer,
                        .drip_ms = broken_rows[_i].drip_ms,
                        .close_after = broken_rows[_i].close_after};
    struct berth_redis *redis;
    struct berth_error err = {0};
    int64_t begin, best[2] = {INT64_MAX, INT64_MAX};

    peer_start(&peer);
    redis = client_of(&peer);
    for (int try = 0; try < 3; try++) { /* a busy machine may be late once */
        begin = berth_tick_ms();
        ck_assert_int_eq(cas_one(redis, &err), BERTH_UNKNOWN);
        ck_assert_int_eq(err.reason, BERTH_REASON_OUTCOME_UNKNOWN);
        best[0] = best[0] < berth_tick_ms() - begin ? best[0] : berth_tick_ms() - begin;
        begin = berth_tick_ms();
        ck_assert_int_eq(read_one(redis, &err), BERTH_UNAVAILABLE);
        ck_assert_int_eq(err.reason, BERTH_REASON_STORE_UNAVAILABLE);
        best[1] = best[1] < berth_tick_ms() - begin ? best[1] : berth_tick_ms() - begin;
        if (best[0] < WITHIN_MS && best[1] < WITHIN_MS)
            break;
    }
    ck_assert_int_lt(best[0], WITHIN_MS);
    ck_assert_int_lt(best[1], WITHIN_MS);
    berth_redis_free(redis);
    peer_stop(&peer);
}
END_TEST

static const char *const odd_rows[] = {
    ":1\r\n",
    "$2\r\nOK\r\n",
    "$-1\r\n",
    "*-1\r\n",
    "*0\r\n",
    "*1\r\n:1\r\n",
    "*2\r\n$1\r\n1\r\n:5\r\n",
    "*2\r\n:1\r\n$-1\r\n",
    "*2\r\n:7\r\n*0\r\n",
    "*3\r\n:0\r\n:5\r\n*1\r\n+a\r\n",
    "*3\r\n:0\r\n:5\r\n*2\r\n+a\r\n:1\r\n",
    "*2\r\n:5\r\n*2\r\n+k\r\n:1\r\n",
    "*2\r\n:5\r\n*3\r\n+k\r\n:1\r\n*1\r\n+a\r\n",
    "*2\r\n:5\r\n*3\r\n+k\r\n+1\r\n*0\r\n",
    "*2\r\n:5\r\n*3\r\n$-1\r\n:1\r\n*0\r\n",
};

/* A whole answer of another shape than the script's is a bug, and nothing is read through it.
 */
START_TEST(redis__odd_answer__internal)
{
    struct peer peer = {.answer = odd_rows[_i]};
    struct berth_redis *redis;
    struct berth_error err = {0};
    enum berth_code read_code, cas_code;

    peer_start(&peer);
    redis = client_of(&peer);
    read_code = read_one(redis, &err);
    cas_code = cas_one(redis, &err);
    ck_assert_int_eq(read_code, BERTH_INTERNAL);
    ck_assert(cas_code == BERTH_INTERNAL || strncmp(odd_rows[_i], "*2\r\n:5", 7) == 0);
    berth_redis_free(redis);
    peer_stop(&peer);
}
END_TEST

/* A peer that takes the connection and hangs up is not asked again and again: the pauses grow,
 * and calls in between fail at once. */
START_TEST(redis__logins_refused__backs_off_and_fails_at_once)
{
    struct peer peer = {.refuse_logins = 1};
    struct berth_redis *redis;
    struct berth_error err = {0};
    int64_t begin;
    int n = 0;

    peer_start(&peer);
    redis = client_of(&peer);
    for (begin = berth_tick_ms(); berth_tick_ms() < begin + 600; n++) {
        ck_assert_int_eq(call(redis, &err), BERTH_UNAVAILABLE);
        ck_assert_int_eq(err.reason, BERTH_REASON_STORE_UNAVAILABLE);
    }
    ck_assert_int_gt(n, 1000);
    ck_assert_int_ge(peer.n_connections, 2);
    ck_assert_int_le(peer.n_connections, 8); /* 50, 100, 200, 400 ms, less a quarter */
    berth_redis_free(redis);
    peer_stop(&peer);
}
END_TEST

/* Nobody there: the same, for each way to be absent. */
START_TEST(redis__nobody_listens__unavailable)
{
    static const char *const urls[] = {"unix:/nonexistent/redis.sock", "redis://127.0.0.1:1",
                                       "redis://[::1]:1", "redis://no-such-host.invalid:6379"};
    const struct berth_redis_options options = {.url = urls[_i]};
    struct berth_redis *redis = NULL;
    struct berth_error err = {0};
    int64_t begin = berth_tick_ms();

    ck_assert_int_eq(berth_redis_new(&options, &redis, NULL), BERTH_OK);
    ck_assert_int_eq(berth_redis_ping(redis, &err), BERTH_UNAVAILABLE);
    ck_assert_int_eq(err.reason, BERTH_REASON_STORE_UNAVAILABLE);
    ck_assert_int_eq(cas_one(redis, &err), BERTH_UNAVAILABLE);
    ck_assert_int_eq(err.reason, BERTH_REASON_STORE_UNAVAILABLE);
    ck_assert_int_lt(berth_tick_ms() - begin, 2 * WITHIN_MS);
    berth_redis_free(redis);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redis/replies");
    TCase *tcase = tcase_create("replies");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_set_timeout(tcase, 30);
    tcase_add_loop_test(tcase, redis__error_reply__mapped, 0, (int)BERTH_COUNT(error_rows));
    tcase_add_test(tcase, redis__unknown_error__text_not_shown);
    tcase_add_loop_test(tcase, redis__broken_answer__unknown_for_writes_unavailable_for_reads,
                        0, (int)BERTH_COUNT(broken_rows));
    tcase_add_loop_test(tcase, redis__odd_answer__internal, 0, (int)BERTH_COUNT(odd_rows));
    tcase_add_test(tcase, redis__logins_refused__backs_off_and_fails_at_once);
    tcase_add_loop_test(tcase, redis__nobody_listens__unavailable, 0, 4);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
