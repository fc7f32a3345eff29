/* Commands, replies, addresses and logins, against a real redis-server. */
#include <check.h>
#include <stdio.h>

#include "common/time/time.h"
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

/* Bytes are bytes: NULs, line ends and what is no UTF-8, both ways, and a NUL behind them. */
START_TEST(berth_redis_call__binary_words__exact)
{
    static const char value[] = "\0a\r\n\xff$3\r\n\0";
    const char *argv[] = {"SET", "k", value};
    const size_t sizes[] = {3, 1, sizeof value};
    struct berth_reply *reply = NULL;

    ck_assert_int_eq(berth_redis_call(redis, 3, argv, sizes, &reply, NULL), BERTH_OK);
    berth_reply_free(reply);
    reply = redis_run(redis, "GET", "k", NULL);
    ck_assert_uint_eq(reply->size, sizeof value);
    ck_assert_mem_eq(reply->string, value, sizeof value);
    ck_assert_int_eq(reply->string[reply->size], 0);
    berth_reply_free(reply);
}
END_TEST

/* An argument is one argument, whatever is in it: nothing is ever split or interpreted. */
START_TEST(berth_redis_call__spaces_and_formats__one_word)
{
    struct berth_reply *reply;

    berth_reply_free(redis_run(redis, "SET", "a b", "%s %d\r\nDEL \"a b\"", NULL));
    reply = redis_run(redis, "GET", "a b", NULL);
    ck_assert_str_eq(reply->string, "%s %d\r\nDEL \"a b\"");
    berth_reply_free(reply);
}
END_TEST

/* Empty strings are not absent ones. */
START_TEST(berth_redis_call__empty_value__empty_string)
{
    struct berth_reply *reply;

    berth_reply_free(redis_run(redis, "SET", "", "", NULL));
    reply = redis_run(redis, "GET", "", NULL);
    ck_assert_int_eq(reply->type, BERTH_REPLY_STRING);
    ck_assert_uint_eq(reply->size, 0);
    ck_assert_str_eq(reply->string, "");
    berth_reply_free(reply);
}
END_TEST

/* Larger than any buffer on the way. */
START_TEST(berth_redis_call__one_megabyte__whole)
{
    enum { SIZE = 1 << 20 };
    BERTH_AUTO(free) char *value = malloc(SIZE);
    const char *argv[] = {"SET", "k", value};
    const size_t sizes[] = {3, 1, SIZE};
    struct berth_reply *reply = NULL;

    for (size_t i = 0; i < SIZE; i++)
        value[i] = (char)(i * 7);
    ck_assert_int_eq(berth_redis_call(redis, 3, argv, sizes, &reply, NULL), BERTH_OK);
    berth_reply_free(reply);
    reply = redis_run(redis, "GET", "k", NULL);
    ck_assert_uint_eq(reply->size, SIZE);
    ck_assert_mem_eq(reply->string, value, SIZE);
    berth_reply_free(reply);
}
END_TEST

/* An error leaves the connection usable. */
START_TEST(berth_redis_call__wrongtype__internal_and_goes_on)
{
    const char *argv[] = {"GET", "list"};
    struct berth_reply *reply = NULL;
    struct berth_error err = {0};

    berth_reply_free(redis_run(redis, "LPUSH", "list", "x", NULL));
    ck_assert_int_eq(berth_redis_call(redis, 2, argv, NULL, &reply, &err), BERTH_INTERNAL);
    ck_assert_ptr_nonnull(strstr(err.text, "another type"));
    ck_assert_ptr_null(reply);
    ck_assert_int_eq(berth_redis_ping(redis, NULL), BERTH_OK);
}
END_TEST

/* A server that is set to refuse for want of memory is an absent store. */
START_TEST(berth_redis_call__out_of_memory__unavailable)
{
    const char *argv[] = {"SET", "k", "v"};
    struct berth_reply *reply = NULL;
    struct berth_error err = {0};

    berth_reply_free(redis_run(redis, "CONFIG", "SET", "maxmemory", "1", NULL));
    ck_assert_int_eq(berth_redis_call(redis, 3, argv, NULL, &reply, &err), BERTH_UNAVAILABLE);
    ck_assert_int_eq(err.reason, BERTH_REASON_STORE_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(err.text, "memory"));
}
END_TEST

/* ---------------------------------------------------------------------- addresses */

static const struct {
    const char *url;
    bool good;
} url_rows[] = {
    {"redis://127.0.0.1", true},
    {"redis://127.0.0.1/", true},
    {"redis://host.example:6380", true},
    {"redis://[::1]:6380/3", true},
    {"redis://[::1]", true},
    {"redis://h:1/65535", true},
    {"unix:/run/redis.sock", true},
    {"unix:/run/redis.sock?db=5", true},
    {"", false},
    {NULL, false},
    {"127.0.0.1:6379", false},
    {"rediss://host", false},
    {"http://host", false},
    {"REDIS://host", false},
    {"redis://", false},
    {"redis://:6379", false},
    {"redis:///0", false},
    {"redis://h:", false},
    {"redis://h:0", false},
    {"redis://h:65536", false},
    {"redis://h:99999999999", false},
    {"redis://h:12x", false},
    {"redis://h:-1", false},
    {"redis://h/65536", false},
    {"redis://h/x", false},
    {"redis://h/-1", false},
    {"redis://h/1/2", false},
    {"redis://h?db=1", false},
    {"redis://user:pass@h", false},
    {"redis://[::1", false},
    {"redis://[]", false},
    {"redis://[::1]x", false},
    {"unix:", false},
    {"unix:relative.sock", false},
    {"unix:/s?db=", false},
    {"unix:/s?db=65536", false},
    {"sentinel:m@a", true},
    {"sentinel:m@a:1,b,[::1]:3/7", true},
    {"sentinel:m@1,2,3,4,5,6,7,8", true},
    {"sentinel:m@1,2,3,4,5,6,7,8,9", false},
    {"sentinel:a", false},
    {"sentinel:@a", false},
    {"sentinel:m@", false},
    {"sentinel:m@a,", false},
    {"sentinel:m@a,,b", false},
    {"sentinel:m@a:0", false},
    {"sentinel:m@a/x", false},
    {"sentinel:m@u:pass@a", false},
    {"sentinel:m/n@a", false},
    {"unix:/s?database=1", false},
    {"unix:/"
     "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
     "aaaaaaaaaaaaaaaaaaaaaa",
     false},
};

/* Each form of url, and each way to get it wrong. */
START_TEST(berth_redis_new__url_forms)
{
    const struct berth_redis_options options = {.url = url_rows[_i].url};
    BERTH_AUTO(berth_redis_free) struct berth_redis *client = NULL;
    struct berth_error err = {0};
    enum berth_code code = berth_redis_new(&options, &client, &err);

    ck_assert_int_eq(code, url_rows[_i].good ? BERTH_OK : BERTH_INVALID_ARGUMENT);
    ck_assert(url_rows[_i].good == (client != NULL));
    ck_assert_ptr_null(strstr(err.text, "pass@")); /* the url may hold a password: not shown */
}
END_TEST

/* The slots that the cluster specification and redis-cli give. */
START_TEST(berth_redis_slot__known_keys)
{
    ck_assert_uint_eq(berth_redis_slot("123456789"), 12739);
    ck_assert_uint_eq(berth_redis_slot("foo"), 12182);
    ck_assert_uint_eq(berth_redis_slot("bar"), 5061);
    ck_assert_uint_eq(berth_redis_slot(""), 0);
    ck_assert_uint_eq(berth_redis_slot("x{bar}y"), 5061);
    ck_assert_uint_eq(berth_redis_slot("{bar}{foo}"), 5061);
    ck_assert_uint_ne(berth_redis_slot("foo{}bar"), berth_redis_slot("bar"));
    ck_assert_uint_eq(berth_redis_slot("foo{{bar}}zap"), berth_redis_slot("x{{bar}"));
    ck_assert_uint_ne(berth_redis_slot("foo{bar"), 5061);
}
END_TEST

/* By TCP, into the database that the url names. */
START_TEST(berth_redis_new__tcp_and_database__used)
{
    const struct redis_server_options with_tcp = {.tcp = true};
    struct redis_server other;
    struct berth_redis_options options = {0};
    BERTH_AUTO(berth_redis_free) struct berth_redis *tcp = NULL, *socket = NULL, *named = NULL;
    struct berth_reply *reply;
    char url[128];

    redis_server_start(&other, &with_tcp);
    snprintf(url, sizeof url, "%s/3", other.tcp_url);
    options.url = url;
    tcp = redis_server_client(&other, &options);
    berth_reply_free(redis_run(tcp, "SET", "k", "in three", NULL));
    snprintf(url, sizeof url, "%s?db=3", other.url);
    socket = redis_server_client(&other, &options);
    reply = redis_run(socket, "GET", "k", NULL);
    ck_assert_str_eq(reply->string, "in three");
    berth_reply_free(reply);
    snprintf(url, sizeof url, "redis://localhost:%d/3", other.port); /* a name, looked up */
    named = redis_server_client(&other, &options);
    reply = redis_run(named, "GET", "k", NULL);
    ck_assert_str_eq(reply->string, "in three");
    berth_reply_free(reply);
    redis_server_stop(&other);
}
END_TEST

/* ------------------------------------------------------------------------- logins */

static const struct {
    const char *user, *password; /* of the server */
    const char *our_user, *our_password;
    bool good;
} login_rows[] = {
    {NULL, "sesame", NULL, "sesame", true},        {NULL, "sesame", "default", "sesame", true},
    {NULL, "sesame", NULL, "Sesame", false},       {NULL, "sesame", NULL, NULL, false},
    {"berth", "sesame", "berth", "sesame", true},  {"berth", "sesame", NULL, "sesame", false},
    {"berth", "sesame", "other", "sesame", false}, {"berth", "sesame", "berth", "", false},
    {"berth", "sesame", NULL, NULL, false},
};

/* Password or ACL user: the right ones come in, the others learn that it is the credentials. */
START_TEST(berth_redis_new__login)
{
    const struct redis_server_options locked = {.username = login_rows[_i].user,
                                                .password = login_rows[_i].password};
    struct redis_server other;
    struct berth_redis_options options = {.username = login_rows[_i].our_user,
                                          .password = login_rows[_i].our_password};
    BERTH_AUTO(berth_redis_free) struct berth_redis *client = NULL;
    struct berth_error err = {0};

    redis_server_start(&other, &locked);
    options.url = other.url;
    ck_assert_int_eq(berth_redis_new(&options, &client, NULL), BERTH_OK);
    ck_assert_int_eq(berth_redis_ping(client, &err),
                     login_rows[_i].good ? BERTH_OK : BERTH_UNAVAILABLE);
    if (!login_rows[_i].good) {
        ck_assert_int_eq(err.reason, BERTH_REASON_STORE_UNAVAILABLE);
        ck_assert_ptr_nonnull(strstr(err.text, "credentials"));
        ck_assert_ptr_null(strstr(err.text, "esame"));
    }
    redis_server_stop(&other);
}
END_TEST

/* A user without the right to a command is told so, as an absent store: nothing was done. */
START_TEST(berth_redis_call__noperm__unavailable)
{
    const char *argv[] = {"SET", "k", "v"};
    struct berth_redis_options options = {
        .url = server.url, .username = "reader", .password = "p"};
    BERTH_AUTO(berth_redis_free) struct berth_redis *reader = NULL;
    struct berth_reply *reply = NULL;
    struct berth_error err = {0};

    berth_reply_free(redis_run(redis, "ACL", "SETUSER", "reader", "on", ">p", "~*", "+@read",
                               "+script", "+ping", "+info", NULL));
    reader = redis_server_client(&server, &options);
    ck_assert_int_eq(berth_redis_ping(reader, NULL), BERTH_OK);
    ck_assert_int_eq(berth_redis_call(reader, 3, argv, NULL, &reply, &err), BERTH_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(err.text, "credentials"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redis/redis");
    TCase *calls = tcase_create("call"), *alone = tcase_create("address");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_set_timeout(calls, 30);
    tcase_set_timeout(alone, 30);
    tcase_add_checked_fixture(calls, setup, teardown);
    tcase_add_test(calls, berth_redis_call__each_reply_type__as_sent);
    tcase_add_test(calls, berth_redis_call__binary_words__exact);
    tcase_add_test(calls, berth_redis_call__spaces_and_formats__one_word);
    tcase_add_test(calls, berth_redis_call__empty_value__empty_string);
    tcase_add_test(calls, berth_redis_call__one_megabyte__whole);
    tcase_add_test(calls, berth_redis_call__wrongtype__internal_and_goes_on);
    tcase_add_test(calls, berth_redis_call__out_of_memory__unavailable);
    tcase_add_test(calls, berth_redis_call__noperm__unavailable);
    tcase_add_loop_test(alone, berth_redis_new__url_forms, 0, (int)BERTH_COUNT(url_rows));
    tcase_add_test(alone, berth_redis_slot__known_keys);
    tcase_add_test(alone, berth_redis_new__tcp_and_database__used);
    tcase_add_loop_test(alone, berth_redis_new__login, 0, (int)BERTH_COUNT(login_rows));
    suite_add_tcase(suite, calls);
    suite_add_tcase(suite, alone);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
