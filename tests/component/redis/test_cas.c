/* Documents: the one read, and the compare-and-set, against a real redis-server. */
#include <check.h>
#include <stdio.h>

#include "common/time/time.h"
#include "tests/lib/redis_server.h"

#define KEY_S "berth:{t}:s/1"
#define KEY_C "berth:{t}:c/1"
#define KEY_DUE "berth:{t}:i/due"
#define KEY_EV "berth:{t}:ev"
#define KEY_SET "berth:{t}:set"

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

static bool run(struct berth_cas *cas)
{
    bool applied = false;
    struct berth_error err = {0};

    ck_assert_msg(berth_cas_run(redis, cas, false, &applied, NULL, NULL, &err) == BERTH_OK,
                  "%s", err.text);
    berth_cas_free(cas);
    return applied;
}

/* Puts rev and one field into a hash that is not there. */
static void make(const char *key, const char *rev, const char *field, const char *value)
{
    struct berth_cas *cas = berth_cas_new();

    berth_cas_expect(cas, key, "");
    berth_cas_write(cas, "HSET", key, "rev", rev, field, value, NULL);
    ck_assert(run(cas));
}

static char *get_string(const char *command, const char *key, const char *field)
{
    struct berth_reply *reply = field ? redis_run(redis, command, key, field, NULL)
                                      : redis_run(redis, command, key, NULL);
    char *text = reply->string ? strdup(reply->string) : NULL;

    berth_reply_free(reply);
    return text;
}

static int64_t get_integer(const char *command, const char *key)
{
    struct berth_reply *reply = redis_run(redis, command, key, NULL);
    int64_t number = reply->integer;

    berth_reply_free(reply);
    return number;
}

/* ---------------------------------------------------------------------------- CAS */

/* All commands that are allowed, in one go, on documents that are as expected. */
START_TEST(berth_cas_run__as_expected__all_written)
{
    struct berth_cas *cas = berth_cas_new();
    BERTH_AUTO(free) char *text = NULL;

    make(KEY_S, "r1", "gone", "x");
    make("berth:{t}:s/2", "r1", "x", "y");
    berth_cas_expect(cas, KEY_S, "r1");
    berth_cas_expect(cas, KEY_C, "");
    berth_cas_write(cas, "HSET", KEY_S, "rev", "r2", "a", "1", NULL);
    berth_cas_write(cas, "HDEL", KEY_S, "gone", NULL);
    berth_cas_write(cas, "PEXPIRE", KEY_S, "100000", NULL);
    berth_cas_write(cas, "DEL", "berth:{t}:s/2", NULL);
    berth_cas_write(cas, "ZADD", KEY_DUE, "12", "s1", "-3", "s2", NULL);
    berth_cas_write(cas, "ZREM", KEY_DUE, "s2", NULL);
    berth_cas_write(cas, "SADD", KEY_SET, "m", "n", NULL);
    berth_cas_write(cas, "SREM", KEY_SET, "n", NULL);
    berth_cas_write(cas, "XADD", KEY_EV, "MAXLEN", "~", "100", "*", "type", "made", NULL);
    berth_cas_write(cas, "SET", "berth:{t}:x", "v", "PX", "50000", NULL);
    ck_assert(run(cas));
    text = get_string("HGET", KEY_S, "a");
    ck_assert_str_eq(text, "1");
    ck_assert_int_eq(get_integer("HLEN", KEY_S), 2);
    ck_assert_int_gt(get_integer("PTTL", KEY_S), 0);
    ck_assert_int_eq(get_integer("EXISTS", "berth:{t}:s/2"), 0);
    ck_assert_int_eq(get_integer("ZCARD", KEY_DUE), 1);
    ck_assert_int_eq(get_integer("SCARD", KEY_SET), 1);
    ck_assert_int_eq(get_integer("XLEN", KEY_EV), 1);
    ck_assert_int_gt(get_integer("PTTL", "berth:{t}:x"), 0);
}
END_TEST

static const struct {
    const char *stored, *expected; /* rev; stored "" = no document */
    bool applied;
} rev_rows[] = {
    {"", "", true},      {"", "r1", false},    {"r1", "r1", true},  {"r1", "", false},
    {"r1", "r2", false}, {"r1", "r1 ", false}, {"r1", "R1", false},
};

/* Only the very rev lets a write through, and no rev is a rev of its own. */
START_TEST(berth_cas_run__rev__compared)
{
    struct berth_cas *cas = berth_cas_new();

    if (*rev_rows[_i].stored)
        make(KEY_S, rev_rows[_i].stored, "f", "v");
    berth_cas_expect(cas, KEY_S, rev_rows[_i].expected);
    berth_cas_write(cas, "HSET", KEY_S, "rev", "new", NULL);
    berth_cas_write(cas, "SADD", KEY_SET, "member", NULL);
    ck_assert(run(cas) == rev_rows[_i].applied);
    ck_assert_int_eq(get_integer("EXISTS", KEY_SET), rev_rows[_i].applied);
}
END_TEST

/* Refused for one of two documents: nothing is written, and both come back as they are. */
START_TEST(berth_cas_run__one_has_changed__nothing_written_fresh_documents)
{
    BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
    struct berth_doc docs[2] = {0};
    int64_t now_ms = 0;
    bool applied = true;

    make(KEY_S, "r1", "a", "1");
    make(KEY_C, "r9", "b", "2");
    berth_cas_expect(cas, KEY_S, "r1");
    berth_cas_expect(cas, KEY_C, "r8");
    berth_cas_write(cas, "HSET", KEY_S, "rev", "r2", "a", "changed", NULL);
    ck_assert_int_eq(berth_cas_run(redis, cas, false, &applied, &now_ms, docs, NULL), BERTH_OK);
    ck_assert(!applied);
    ck_assert(docs[0].exists && docs[1].exists);
    ck_assert_str_eq(docs[0].key, KEY_S);
    ck_assert_str_eq(berth_doc_get(&docs[0], "a"), "1");
    ck_assert_str_eq(berth_doc_get(&docs[1], "rev"), "r9");
    ck_assert_str_eq(berth_doc_get(&docs[1], "b"), "2");
    ck_assert_int_gt(now_ms, 1500000000000);
    berth_doc_deinit(&docs[0]);
    berth_doc_deinit(&docs[1]);
}
END_TEST

/* An absent document comes back as absent; an applied write gives empty ones. */
START_TEST(berth_cas_run__absent_document__not_exists)
{
    BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
    struct berth_doc docs[1] = {0};
    bool applied = true;

    berth_cas_expect(cas, KEY_S, "r1");
    berth_cas_write(cas, "HSET", KEY_S, "rev", "r2", NULL);
    ck_assert_int_eq(berth_cas_run(redis, cas, false, &applied, NULL, docs, NULL), BERTH_OK);
    ck_assert(!applied && !docs[0].exists);
    ck_assert_str_eq(docs[0].key, KEY_S);
    ck_assert_str_eq(berth_doc_get(&docs[0], "rev"), "");
    berth_doc_deinit(&docs[0]);
}
END_TEST

/* A comparison without a write is allowed: it is how an unknown outcome is settled. */
START_TEST(berth_cas_run__only_expectations__compared)
{
    struct berth_cas *cas = berth_cas_new();

    make(KEY_S, "r1", "a", "1");
    berth_cas_expect(cas, KEY_S, "r1");
    ck_assert(run(cas));
}
END_TEST

/* $NOW is Redis' clock, in every place; other words and binary values are left alone. */
START_TEST(berth_cas_run__now__redis_time)
{
    struct berth_cas *cas = berth_cas_new();
    BERTH_AUTO(free) char *now = NULL, *score = NULL, *like = NULL, *raw = NULL;
    int64_t wall_ms = berth_now_ms();

    berth_cas_write(cas, "HSET", KEY_S, "now", "$NOW", "like", "$NOW ", NULL);
    berth_cas_hset(cas, KEY_S, "raw", "$NOW", 4);
    berth_cas_write(cas, "ZADD", KEY_DUE, "$NOW", "s1", NULL);
    ck_assert(run(cas));
    now = get_string("HGET", KEY_S, "now");
    score = get_string("ZSCORE", KEY_DUE, "s1");
    like = get_string("HGET", KEY_S, "like");
    raw = get_string("HGET", KEY_S, "raw");
    ck_assert_str_eq(now, score);
    ck_assert_int_le(llabs(strtoll(now, NULL, 10) - wall_ms), 60000);
    ck_assert_str_eq(like, "$NOW ");
    ck_assert_str_eq(raw, "$NOW");
}
END_TEST

/* Values are bytes; the marks that words carry on their way never show. */
START_TEST(berth_cas_hset__binary_values__exact)
{
    static const char value[] = "\0=$\r\n\xff{}\0";
    struct berth_cas *cas = berth_cas_new();
    struct berth_redis_get get = {.key = KEY_S};
    struct berth_doc doc = {0};
    int64_t now_ms;

    berth_cas_hset(cas, KEY_S, "bytes", value, sizeof value);
    berth_cas_hset(cas, KEY_S, "none", "", 0);
    berth_cas_write(cas, "HSET", KEY_S, "=", "$", "$", "=", NULL);
    ck_assert(run(cas));
    ck_assert_int_eq(berth_redis_read(redis, &get, 1, &now_ms, &doc, NULL), BERTH_OK);
    ck_assert_uint_eq(doc.n_fields, 4);
    for (size_t i = 0; i < doc.n_fields; i++)
        if (strcmp(doc.fields[i].name, "bytes") == 0) {
            ck_assert_uint_eq(doc.fields[i].size, sizeof value);
            ck_assert_mem_eq(doc.fields[i].value, value, sizeof value);
        }
    ck_assert(berth_doc_has(&doc, "none"));
    ck_assert_str_eq(berth_doc_get(&doc, "none"), "");
    ck_assert_str_eq(berth_doc_get(&doc, "="), "$");
    ck_assert_str_eq(berth_doc_get(&doc, "$"), "=");
    ck_assert(!berth_doc_has(&doc, "absent"));
    berth_doc_deinit(&doc);
}
END_TEST

/* A key of another kind among the written ones: refused before the first write, since Redis
 * does not undo a script. */
START_TEST(berth_cas_run__wrongtype_in_last_write__nothing_written)
{
    BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
    struct berth_error err = {0};
    bool applied = false;

    berth_reply_free(redis_run(redis, "LPUSH", KEY_DUE, "a list", NULL));
    berth_cas_write(cas, "HSET", KEY_S, "a", "1", NULL);
    berth_cas_write(cas, "ZADD", KEY_DUE, "1", "s1", NULL);
    ck_assert_int_eq(berth_cas_run(redis, cas, false, &applied, NULL, NULL, &err),
                     BERTH_INTERNAL);
    ck_assert_ptr_nonnull(strstr(err.text, "another type"));
    ck_assert(!applied);
    ck_assert_int_eq(get_integer("EXISTS", KEY_S), 0);
}
END_TEST

/* A document that is not even a hash is an error, never an absent one. */
START_TEST(berth_cas_run__expected_key_is_a_list__internal)
{
    BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
    struct berth_redis_get get = {.key = KEY_S};
    struct berth_doc doc = {0};
    struct berth_error err = {0};
    int64_t now_ms;
    bool applied = false;

    berth_reply_free(redis_run(redis, "LPUSH", KEY_S, "a list", NULL));
    berth_cas_expect(cas, KEY_S, "");
    berth_cas_write(cas, "HSET", KEY_S, "rev", "1", NULL);
    ck_assert_int_eq(berth_cas_run(redis, cas, false, &applied, NULL, NULL, &err),
                     BERTH_INTERNAL);
    ck_assert_int_eq(berth_redis_read(redis, &get, 1, &now_ms, &doc, &err), BERTH_INTERNAL);
}
END_TEST

/* With no room left Redis refuses the whole script, not its third command. */
START_TEST(berth_cas_run__out_of_memory__nothing_written)
{
    BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
    struct berth_error err = {0};
    bool applied = false;

    berth_reply_free(redis_run(redis, "SADD", KEY_SET, "m", NULL));
    berth_reply_free(redis_run(redis, "CONFIG", "SET", "maxmemory", "1", NULL));
    berth_cas_write(cas, "SREM", KEY_SET, "m", NULL); /* would be let through by itself */
    berth_cas_write(cas, "HSET", KEY_S, "a", "1", NULL);
    ck_assert_int_eq(berth_cas_run(redis, cas, false, &applied, NULL, NULL, &err),
                     BERTH_UNAVAILABLE);
    ck_assert_int_eq(get_integer("EXISTS", KEY_SET), 1);
}
END_TEST

/* Each mistake of a caller: refused before anything is sent (there is no server to send to). */
static void cross_slot(struct berth_cas *cas)
{
    berth_cas_expect(cas, KEY_S, "");
    berth_cas_write(cas, "HSET", "berth:{u}:s/1", "a", "b", NULL);
}
static void cross_slot_untagged(struct berth_cas *cas)
{
    berth_cas_expect(cas, KEY_S, "");
    berth_cas_write(cas, "SADD", "berth:tenants", "t", NULL);
}
static void nothing(struct berth_cas *cas)
{
    (void)cas;
}
static void no_new_rev(struct berth_cas *cas)
{
    berth_cas_expect(cas, KEY_S, "r1");
    berth_cas_write(cas, "HSET", KEY_S, "a", "b", NULL);
}
static void no_new_rev_hdel(struct berth_cas *cas)
{
    berth_cas_expect(cas, KEY_S, "r1");
    berth_cas_write(cas, "HDEL", KEY_S, "a", NULL);
}
static void twice_expected(struct berth_cas *cas)
{
    berth_cas_expect(cas, KEY_S, "r1");
    berth_cas_expect(cas, KEY_S, "r1");
}
static void not_allowed(struct berth_cas *cas)
{
    berth_cas_write(cas, "FLUSHALL", KEY_S, NULL);
}
static void lower_case(struct berth_cas *cas)
{
    berth_cas_write(cas, "hset", KEY_S, "a", "b", NULL);
}
static void odd_pairs(struct berth_cas *cas)
{
    berth_cas_write(cas, "HSET", KEY_S, "a", NULL);
}
static void no_member(struct berth_cas *cas)
{
    berth_cas_write(cas, "ZREM", KEY_DUE, NULL);
}
static void score_is_text(struct berth_cas *cas)
{
    berth_cas_write(cas, "ZADD", KEY_DUE, "soon", "s1", NULL);
}
static void del_with_words(struct berth_cas *cas)
{
    berth_cas_write(cas, "DEL", KEY_S, "berth:{u}:s/1", NULL);
}
static void stream_without_limit(struct berth_cas *cas)
{
    berth_cas_write(cas, "XADD", KEY_EV, "*", "a", "b", NULL);
}
static void stream_with_id(struct berth_cas *cas)
{
    berth_cas_write(cas, "XADD", KEY_EV, "MAXLEN", "100", "5-1", "a", "b", NULL);
}
static void stream_odd_pairs(struct berth_cas *cas)
{
    berth_cas_write(cas, "XADD", KEY_EV, "MAXLEN", "~", "100", "*", "a", NULL);
}
static void set_with_nx(struct berth_cas *cas)
{
    berth_cas_write(cas, "SET", "berth:{t}:x", "v", "NX", NULL);
}
static void set_px_zero(struct berth_cas *cas)
{
    berth_cas_write(cas, "SET", "berth:{t}:x", "v", "PX", "0", NULL);
}
static void expire_not_a_number(struct berth_cas *cas)
{
    berth_cas_write(cas, "PEXPIRE", KEY_S, "1h", NULL);
}

static void (*const mistakes[])(struct berth_cas *cas) = {cross_slot,
                                                          cross_slot_untagged,
                                                          nothing,
                                                          no_new_rev,
                                                          no_new_rev_hdel,
                                                          twice_expected,
                                                          not_allowed,
                                                          lower_case,
                                                          odd_pairs,
                                                          no_member,
                                                          score_is_text,
                                                          del_with_words,
                                                          stream_without_limit,
                                                          stream_with_id,
                                                          stream_odd_pairs,
                                                          set_with_nx,
                                                          set_px_zero,
                                                          expire_not_a_number};

START_TEST(berth_cas_run__mistake__refused_before_sending)
{
    const struct berth_redis_options options = {.url = "unix:/nonexistent/redis.sock"};
    BERTH_AUTO(berth_redis_free) struct berth_redis *nowhere = NULL;
    BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
    struct berth_error err = {0};
    bool applied = false;

    ck_assert_int_eq(berth_redis_new(&options, &nowhere, NULL), BERTH_OK);
    mistakes[_i](cas);
    ck_assert_int_eq(berth_cas_run(nowhere, cas, false, &applied, NULL, NULL, &err),
                     BERTH_INTERNAL);
    ck_assert_ptr_nonnull(strstr(err.text, "not sent"));
}
END_TEST

/* --------------------------------------------------------------------------- read */

/* Documents, a key made from a field of an earlier one, its fallback, and absence. */
START_TEST(berth_redis_read__derived_keys__followed)
{
    static const char *const only[] = {"rev", "absent", "b"};
    const struct berth_redis_get gets[] = {
        {.key = KEY_S},
        {.prefix = "berth:{t}:c/", .from = 0, .field = "config", .fallback = ""},
        {.prefix = "berth:{t}:c/",
         .from = 0,
         .field = "none",
         .fallback = "1",
         .fields = only,
         .n_fields = 3},
        {.prefix = "berth:{t}:c/", .from = 0, .field = "none", .fallback = ""},
        {.prefix = "berth:{t}:c/", .from = 3, .field = "any", .fallback = NULL},
        {.key = "berth:{t}:nothing", .fields = only, .n_fields = 3},
    };
    struct berth_doc docs[BERTH_COUNT(gets)] = {0};
    int64_t now_ms = 0;

    make(KEY_S, "r1", "config", "1");
    make(KEY_C, "r2", "b", "2");
    ck_assert_int_eq(berth_redis_read(redis, gets, BERTH_COUNT(gets), &now_ms, docs, NULL),
                     BERTH_OK);
    ck_assert_int_le(llabs(now_ms - berth_now_ms()), 60000);
    ck_assert_str_eq(docs[0].key, KEY_S);
    ck_assert_str_eq(berth_doc_get(&docs[0], "config"), "1");
    ck_assert_str_eq(docs[1].key, KEY_C);
    ck_assert_str_eq(berth_doc_get(&docs[1], "rev"), "r2");
    ck_assert_str_eq(docs[2].key, KEY_C);
    ck_assert(docs[2].exists);
    ck_assert_uint_eq(docs[2].n_fields, 2);
    ck_assert_str_eq(berth_doc_get(&docs[2], "b"), "2");
    ck_assert(!berth_doc_has(&docs[2], "absent"));
    ck_assert(!docs[3].exists && !*docs[3].key);
    ck_assert(!docs[4].exists && !*docs[4].key);
    ck_assert(!docs[5].exists);
    for (size_t i = 0; i < BERTH_COUNT(gets); i++)
        berth_doc_deinit(&docs[i]);
}
END_TEST

/* Whatever it reads, it is one command to Redis. */
START_TEST(berth_redis_read__two_documents__one_round_trip)
{
    const struct berth_redis_get gets[] = {
        {.key = KEY_S},
        {.prefix = "berth:{t}:c/", .from = 0, .field = "config", .fallback = "1"}};
    struct berth_doc docs[2] = {0};
    struct berth_reply *reply;
    int64_t now_ms;

    make(KEY_S, "r1", "config", "1");
    berth_reply_free(redis_run(redis, "CONFIG", "RESETSTAT", NULL));
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(berth_redis_read(redis, gets, 2, &now_ms, docs, NULL), BERTH_OK);
        berth_doc_deinit(&docs[0]);
        berth_doc_deinit(&docs[1]);
    }
    reply = redis_run(redis, "INFO", "stats", NULL);
    /* RESETSTAT itself is counted, INFO is not yet. The commands inside the script are. */
    ck_assert_ptr_nonnull(strstr(reply->string, "total_connections_received:0"));
    berth_reply_free(reply);
    reply = redis_run(redis, "INFO", "commandstats", NULL);
    ck_assert_ptr_nonnull(strstr(reply->string, "cmdstat_evalsha_ro:calls=3"));
    ck_assert_ptr_null(strstr(reply->string, "cmdstat_script"));
    berth_reply_free(reply);
}
END_TEST

static const struct berth_redis_get bad_gets[][2] = {
    {{.key = KEY_S}, {.key = "berth:{u}:s/1"}},
    {{.key = KEY_S}, {.prefix = "berth:{u}:c/", .field = "config"}},
    {{.key = KEY_S}, {.prefix = "berth:t:c/", .field = "config"}},
    {{.key = KEY_S}, {.prefix = "berth:{}:c/", .field = "config"}},
    {{.key = KEY_S}, {.prefix = "berth:{t}:c/", .from = 1, .field = "config"}},
    {{.prefix = "berth:{t}:c/", .from = 0, .field = "config"}, {.key = KEY_S}},
    {{.key = KEY_S}, {.prefix = "berth:{t}:c/"}},
    {{.key = KEY_S}, {0}},
};

/* Two slots, or a key that cannot be made: refused before anything is sent. */
START_TEST(berth_redis_read__bad_gets__refused_before_sending)
{
    const struct berth_redis_options options = {.url = "unix:/nonexistent/redis.sock"};
    BERTH_AUTO(berth_redis_free) struct berth_redis *nowhere = NULL;
    struct berth_doc docs[2] = {0};
    struct berth_error err = {0};
    int64_t now_ms;

    ck_assert_int_eq(berth_redis_new(&options, &nowhere, NULL), BERTH_OK);
    ck_assert_int_eq(berth_redis_read(nowhere, bad_gets[_i], 2, &now_ms, docs, &err),
                     BERTH_INTERNAL);
    ck_assert_ptr_nonnull(strstr(err.text, "not sent"));
    ck_assert_int_eq(berth_redis_read(nowhere, bad_gets[_i], 0, &now_ms, docs, &err),
                     BERTH_INTERNAL);
}
END_TEST

/* The server forgets its scripts (restart, SCRIPT FLUSH): they are loaded again, unseen. */
START_TEST(berth_redis_read__noscript__loaded_again)
{
    const struct berth_redis_get get = {.key = KEY_S};
    struct berth_doc doc = {0};
    int64_t now_ms;

    make(KEY_S, "r1", "a", "1");
    for (int i = 0; i < 2; i++) {
        berth_reply_free(redis_run(redis, "SCRIPT", "FLUSH", NULL));
        ck_assert_int_eq(berth_redis_read(redis, &get, 1, &now_ms, &doc, NULL), BERTH_OK);
        ck_assert_str_eq(berth_doc_get(&doc, "a"), "1");
        berth_doc_deinit(&doc);
        berth_reply_free(redis_run(redis, "SCRIPT", "FLUSH", NULL));
        make(i == 0 ? "berth:{t}:s/8" : "berth:{t}:s/9", "r1", "a", "1");
    }
}
END_TEST

/* A fresh rev is 16 hex digits, and never the same. */
START_TEST(berth_rev_new__twice__differ)
{
    char a[17], b[17];

    ck_assert_uint_eq(strspn(berth_rev_new(a), "0123456789abcdef"), 16);
    ck_assert_str_ne(a, berth_rev_new(b));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redis/cas");
    TCase *cas = tcase_create("cas"), *alone = tcase_create("mistakes");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_set_timeout(cas, 30);
    tcase_add_checked_fixture(cas, setup, teardown);
    tcase_add_test(cas, berth_cas_run__as_expected__all_written);
    tcase_add_loop_test(cas, berth_cas_run__rev__compared, 0, (int)BERTH_COUNT(rev_rows));
    tcase_add_test(cas, berth_cas_run__one_has_changed__nothing_written_fresh_documents);
    tcase_add_test(cas, berth_cas_run__absent_document__not_exists);
    tcase_add_test(cas, berth_cas_run__only_expectations__compared);
    tcase_add_test(cas, berth_cas_run__now__redis_time);
    tcase_add_test(cas, berth_cas_hset__binary_values__exact);
    tcase_add_test(cas, berth_cas_run__wrongtype_in_last_write__nothing_written);
    tcase_add_test(cas, berth_cas_run__expected_key_is_a_list__internal);
    tcase_add_test(cas, berth_cas_run__out_of_memory__nothing_written);
    tcase_add_test(cas, berth_redis_read__derived_keys__followed);
    tcase_add_test(cas, berth_redis_read__two_documents__one_round_trip);
    tcase_add_test(cas, berth_redis_read__noscript__loaded_again);
    tcase_add_loop_test(alone, berth_cas_run__mistake__refused_before_sending, 0,
                        (int)BERTH_COUNT(mistakes));
    tcase_add_loop_test(alone, berth_redis_read__bad_gets__refused_before_sending, 0,
                        (int)BERTH_COUNT(bad_gets));
    tcase_add_test(alone, berth_rev_new__twice__differ);
    suite_add_tcase(suite, cas);
    suite_add_tcase(suite, alone);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
