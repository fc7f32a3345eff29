/* Commands, replies and the pool, against a real redis-server. */
#include <check.h>

#include "tests/lib/redis_server.h"

static struct redis_server server;
static struct berth_redis *redis;

static void setup(void)
{
    redis_server_start(&server, NULL);
    redis = redis_server_client(&server, NULL);
}

static void teardown(void)
{
    redis = berth_redis_free(redis);
    redis_server_stop(&server);
}

/* Every kind of reply arrives as itself. */
START_TEST(berth_redis_call__each_reply_type__as_sent)
{
    struct berth_reply *reply;

    reply = redis_run(redis, "SET", "k", "v", NULL);
    ck_assert_int_eq(reply->type, BERTH_REPLY_STRING);
    ck_assert_str_eq(reply->string, "OK");
    berth_reply_free(reply);
    reply = redis_run(redis, "GET", "nothing", NULL);
    ck_assert_int_eq(reply->type, BERTH_REPLY_NIL);
    berth_reply_free(reply);
    reply = redis_run(redis, "INCRBY", "n", "-9223372036854775808", NULL);
    ck_assert_int_eq(reply->type, BERTH_REPLY_INTEGER);
    ck_assert_int_eq(reply->integer, INT64_MIN);
    berth_reply_free(reply);
    reply = redis_run(redis, "MGET", "k", "nothing", NULL);
    ck_assert_int_eq(reply->type, BERTH_REPLY_ARRAY);
    ck_assert_uint_eq(reply->n_items, 2);
    ck_assert_str_eq(reply->items[0]->string, "v");
    ck_assert_int_eq(reply->items[1]->type, BERTH_REPLY_NIL);
    berth_reply_free(reply);
    reply = redis_run(redis, "KEYS", "no*", NULL);
    ck_assert_int_eq(reply->type, BERTH_REPLY_ARRAY);
    ck_assert_uint_eq(reply->n_items, 0);
    berth_reply_free(reply);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redis/redis");
    TCase *tcase = tcase_create("call");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, berth_redis_call__each_reply_type__as_sent);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
