/* Records between a real Redis and their journals: what one has lost comes back from the
 * others. */
#include "tests/unit/base/main.h"

#include <stdio.h>

#include "common/journal/records_impl.h"
#include "tests/lib/redis_server.h"

#define KEYS "k1 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n"
#define TENANT "berth:{t}:t"
#define CONFIG "berth:{t}:c/x"

static char dir[] = "/tmp/berth-records-XXXXXX";
static struct redis_server server;
static struct berth_redis *redis;
static struct berth_keyring *keyring;

static void ask(const char *command, const char *key, const char *a, const char *b,
                const char *c, const char *d)
{
    berth_reply_free(redis_run(redis, command, key, a, b, c, d, NULL));
}

static void set_up(void)
{
    const struct redis_server_options options = {.keep = true};

    ck_assert_ptr_nonnull(mkdtemp(dir));
    redis_server_start(&server, &options);
    redis = redis_server_client(&server, NULL);
    ck_assert_int_eq(berth_keyring_parse("keys", KEYS, strlen(KEYS), &keyring, NULL), BERTH_OK);
    ask("SET", "berth:deployment", "test", NULL, NULL, NULL);
    ask("SET", "berth:epoch", "1", NULL, NULL, NULL);
    ask("SADD", "berth:tenants", "t", NULL, NULL, NULL);
}

static void tear_down(void)
{
    char command[96];

    snprintf(command, sizeof command, "%s", dir);
    berth_keyring_free(keyring);
    berth_redis_free(redis);
    redis_server_stop(&server);
    for (int i = 0; i < 4; i++) {
        static const char *const tails[] = {"", ".lock"};

        for (int k = 0; k < 2; k++) {
            snprintf(command, sizeof command, "%s/%d%s", dir, i, tails[k]);
            remove(command);
        }
    }
    rmdir(dir);
}

static const char *path_of(char buf[96], int number)
{
    snprintf(buf, 96, "%s/%d", dir, number);
    return buf;
}

static struct berth_records *open_one(int number)
{
    char path[96];
    const struct berth_records_options options = {.redis = redis,
                                                  .keyring = keyring,
                                                  .deployment = "test",
                                                  .name = "writer",
                                                  .path = path_of(path, number)};
    struct berth_records *records = NULL;

    ck_assert_int_eq(berth_records_new(&options, &records, NULL), BERTH_OK);
    return records;
}

static char *get(const char *key, const char *field)
{
    struct berth_reply *reply = redis_run(redis, "HGET", key, field, NULL);
    char *text = reply->type == BERTH_REPLY_STRING ? strdup(reply->string) : NULL;

    berth_reply_free(reply);
    return text;
}

static void check_field(const char *key, const char *field, const char *wanted)
{
    BERTH_AUTO(free) char *text = get(key, field);

    if (wanted)
        ck_assert_msg(text && strcmp(text, wanted) == 0, "%s %s: %s", key, field, text);
    else
        ck_assert_msg(!text, "%s %s: %s", key, field, text);
}

/* Writes as a service does, over whatever is there. */
static enum berth_code write_record(struct berth_records *records, const char *key,
                                    const char *value, struct berth_error *err)
{
    BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
    BERTH_AUTO(free) char *before = get(key, "rev");
    char rev[17];
    const char *const keys[] = {key};
    bool applied = false;
    enum berth_code code;

    berth_cas_expect(cas, key, before ? before : "");
    if (value) {
        berth_cas_write(cas, "HSET", key, "rev", berth_rev_new(rev), "value", value,
                        "token:abc", "{}", NULL);
        if (strcmp(key, CONFIG) == 0)
            berth_cas_write(cas, "ZADD", "berth:{t}:i/configs", "0", "x", NULL);
        berth_records_mark_there(cas, "t", "x");
    } else {
        berth_cas_write(cas, "DEL", key, NULL);
        berth_cas_write(cas, "ZREM", "berth:{t}:i/configs", "x", NULL);
        berth_records_mark_gone(cas, "t", "x");
    }
    code = berth_records_run(records, cas, keys, 1, &applied, err);
    ck_assert(code || applied);
    return code;
}

static void put(struct berth_records *records, const char *key, const char *value)
{
    struct berth_error err = {0};

    ck_assert_msg(write_record(records, key, value, &err) == BERTH_OK, "%s", err.text);
}

static void lose(void)
{
    ask("FLUSHALL", NULL, NULL, NULL, NULL, NULL);
}

static void restore(struct berth_records *records)
{
    struct berth_error err = {0};

    records->recovering = true;
    ck_assert_msg(records_restore(records, &err) == BERTH_OK, "%s", err.text);
}

/* ----------------------------------------------------------------------- judging */

static const struct {
    bool exists;
    const char *restored;
    int64_t gone_ms;
    bool deleted;
    int64_t entry_ms;
    enum record_do wanted;
} judge_rows[] = {
    {false, "", 0, false, 5, RECORD_WRITE},
    {false, "", 5, false, 5, RECORD_LEAVE}, /* deleted at the time of the entry, or later */
    {false, "", 4, false, 5, RECORD_WRITE},
    {false, "", 0, true, 5, RECORD_REMOVE},
    {true, "", 0, false, 5, RECORD_LEAVE}, /* live */
    {true, "4 other", 0, false, 5, RECORD_LEAVE},
    {true, "4 r", 0, false, 5, RECORD_WRITE},
    {true, "5 r", 0, false, 5, RECORD_LEAVE},
    {true, "6 r", 0, false, 5, RECORD_LEAVE},
    {true, "4 r", 0, true, 5, RECORD_REMOVE},
    {true, "", 0, true, 5, RECORD_LEAVE},
};

/* The newest entry stands, and over all of them what was written live. */
START_TEST(record_judge__each_row)
{
    ck_assert_int_eq(record_judge(judge_rows[_i].exists, judge_rows[_i].exists ? "r" : "",
                                  judge_rows[_i].restored, judge_rows[_i].gone_ms,
                                  judge_rows[_i].deleted, judge_rows[_i].entry_ms),
                     judge_rows[_i].wanted);
}
END_TEST

/* -------------------------------------------------------------------------- tests */

/* All that was answered for is back after a loss, with what is found by it; it is the same
 * document; who has restored is told. */
START_TEST(restore__store_emptied__records_are_back)
{
    struct berth_records *records = open_one(0);
    BERTH_AUTO(free) char *rev = NULL;
    struct berth_reply *reply;
    char missing[128];
    int64_t lost_ms;
    bool done;

    ck_assert_int_eq(berth_records_check(records, NULL), BERTH_OK);
    put(records, TENANT, "one");
    put(records, CONFIG, "two");
    put(records, CONFIG, "three");
    /* Operations are not journaled: nothing may wait for one that is lost. */
    ask("HSET", CONFIG, "lock", "{}", "queue", "[]");
    put(records, CONFIG, "three");
    rev = get(CONFIG, "rev");
    lose();
    restore(records);
    check_field(CONFIG, "lock", NULL);
    check_field(CONFIG, "queue", NULL);
    check_field(TENANT, "value", "one");
    check_field(CONFIG, "value", "three");
    check_field(CONFIG, "rev", rev);
    reply = redis_run(redis, "GET", "berth:token/abc", NULL);
    ck_assert_str_eq(reply->string, "t");
    berth_reply_free(reply);
    reply = redis_run(redis, "ZSCORE", "berth:{t}:i/configs", "x", NULL);
    ck_assert_int_eq(reply->type, BERTH_REPLY_STRING);
    berth_reply_free(reply);
    reply = redis_run(redis, "GET", "berth:deployment", NULL);
    ck_assert_str_eq(reply->string, "test");
    berth_reply_free(reply);
    ck_assert_int_eq(berth_recovery_read_back(redis, &done, &lost_ms, missing, NULL), BERTH_OK);
    ck_assert(done && lost_ms > 0);
    berth_records_free(records);
}
END_TEST

/* Two journals, restored in either order: of each record the newest entry of both stands, a
 * deletion, too, and it is waited for both. */
START_TEST(restore__two_journals__newest_of_all)
{
    struct berth_records *both[2] = {open_one(0), open_one(1)};
    char missing[128];
    int64_t lost_ms;
    bool done;

    ck_assert_int_eq(berth_records_check(both[0], NULL), BERTH_OK);
    put(both[0], TENANT, "old");
    put(both[0], CONFIG, "old");
    put(both[1], TENANT, "new");
    put(both[1], CONFIG, NULL);
    ck_assert_int_eq(records_register(both[1], NULL), BERTH_OK);
    ck_assert_int_eq(records_register(both[0], NULL), BERTH_OK);
    lose();
    restore(both[_i]);
    ck_assert_int_eq(berth_recovery_read_back(redis, &done, &lost_ms, missing, NULL), BERTH_OK);
    ck_assert(!done && strstr(missing, berth_journal_id(both[!_i]->journal)));
    restore(both[!_i]);
    ck_assert_int_eq(berth_recovery_read_back(redis, &done, &lost_ms, missing, NULL), BERTH_OK);
    ck_assert(done);
    check_field(TENANT, "value", "new");
    check_field(CONFIG, "value", NULL);
    berth_records_free(both[0]);
    berth_records_free(both[1]);
}
END_TEST

/* A journal that will not come back holds everything up until the operator says so. */
START_TEST(recovery__journal_missing__until_given_up)
{
    struct berth_records *both[2] = {open_one(0), open_one(1)};
    char missing[128];
    int64_t lost_ms;
    bool done;

    ck_assert_int_eq(records_register(both[1], NULL), BERTH_OK);
    ck_assert_int_eq(records_register(both[0], NULL), BERTH_OK);
    lose();
    restore(both[0]);
    ck_assert_int_eq(berth_recovery_without(redis, "nobody", NULL), BERTH_INVALID_ARGUMENT);
    ck_assert_int_eq(berth_recovery_without(redis, berth_journal_id(both[1]->journal), NULL),
                     BERTH_OK);
    ck_assert_int_eq(berth_recovery_read_back(redis, &done, &lost_ms, missing, NULL), BERTH_OK);
    ck_assert(done);
    berth_records_free(both[0]);
    berth_records_free(both[1]);
}
END_TEST

/* What somebody changed after it was restored stays, whatever a journal that comes late has. */
START_TEST(restore__changed_since__left_alone)
{
    struct berth_records *both[2] = {open_one(0), open_one(1)};

    put(both[0], TENANT, "old");
    put(both[1], TENANT, "newer");
    lose();
    restore(both[0]);
    check_field(TENANT, "value", "old");
    ask("SET", "berth:epoch", "2", NULL, NULL, NULL);
    put(both[0], TENANT, "live");
    restore(both[1]);
    check_field(TENANT, "value", "live");
    berth_records_free(both[0]);
    berth_records_free(both[1]);
}
END_TEST

/* While the index is lost no record is changed: a newer entry may still come. */
START_TEST(records_run__index_lost__refused)
{
    struct berth_records *records = open_one(0);
    struct berth_error err = {0};

    put(records, TENANT, "one");
    lose();
    restore(records);
    (void)!write_record(records, TENANT, "two", &err);
    ck_assert_int_eq(err.reason, BERTH_REASON_INDEX_RECOVERING);
    check_field(TENANT, "value", "one");
    berth_records_free(records);
}
END_TEST

/* Written and not journaled (a crash in between, or another writer): the check appends it. A
 * record that went with its mark is a deletion, one that went without is put back. */
START_TEST(check__store_and_journal_differ__brought_together)
{
    struct berth_records *records = open_one(0);
    uint8_t *doc;
    size_t size;
    int64_t time_ms;

    put(records, CONFIG, "one");
    ask("HSET", TENANT, "rev", "0123456789abcdef", "value", "x");
    ck_assert_int_eq(berth_records_check(records, NULL), BERTH_OK);
    ck_assert_int_eq(berth_journal_find(records->journal, TENANT, &doc, &size, &time_ms, NULL),
                     BERTH_OK);
    ck_assert_ptr_nonnull(doc);
    free(doc);
    ask("DEL", CONFIG, NULL, NULL, NULL, NULL);
    ask("ZREM", "berth:{t}:i/configs", "x", NULL, NULL, NULL);
    ck_assert_int_eq(berth_records_check(records, NULL), BERTH_OK);
    check_field(CONFIG, "value", "one");
    ask("DEL", CONFIG, NULL, NULL, NULL, NULL);
    ask("ZREM", "berth:{t}:i/configs", "x", NULL, NULL, NULL);
    ask("HSET", "berth:{t}:gone", "rev", "0123456789abcdef", "x", "9999999999999");
    ck_assert_int_eq(berth_records_check(records, NULL), BERTH_OK);
    check_field(CONFIG, "value", NULL);
    ck_assert_int_eq(berth_journal_find(records->journal, CONFIG, &doc, &size, &time_ms, NULL),
                     BERTH_OK);
    ck_assert_ptr_null(doc);
    /* Nothing of this where the index is lost: there absence says nothing at all. */
    lose();
    ck_assert_int_eq(berth_records_check(records, NULL), BERTH_UNAVAILABLE);
    berth_records_free(records);
}
END_TEST

/* A backup goes into an empty store alone, unless it is told to replace what is there. */
START_TEST(import__store_not_empty__refused_unless_told)
{
    struct berth_records *records = open_one(0);
    struct berth_backup_count count;
    struct berth_error err = {0};
    char path[96];

    put(records, TENANT, "one");
    put(records, CONFIG, "two");
    ck_assert_int_eq(
        berth_records_export(redis, keyring, "test", path_of(path, 3), &count, NULL), BERTH_OK);
    ck_assert(count.n_tenants == 1 && count.n_configs == 1);
    ck_assert_int_eq(berth_records_export(redis, keyring, "test", path, &count, NULL),
                     BERTH_INVALID_ARGUMENT); /* it is there already */
    put(records, TENANT, "changed");
    ck_assert_int_eq(berth_records_import(redis, keyring, "test", path, false, &count, &err),
                     BERTH_INVALID_ARGUMENT);
    ck_assert_msg(strstr(err.text, "not empty") != NULL, "%s", err.text);
    check_field(TENANT, "value", "changed");
    ck_assert_int_eq(berth_records_import(redis, keyring, "test", path, true, &count, NULL),
                     BERTH_OK);
    check_field(TENANT, "value", "one");
    check_field(CONFIG, "value", "two");
    lose();
    ck_assert_int_eq(berth_records_import(redis, keyring, "test", path, false, &count, NULL),
                     BERTH_OK);
    check_field(TENANT, "value", "one");
    lose();
    ask("SET", "berth:deployment", "another", NULL, NULL, NULL);
    ck_assert_int_eq(berth_records_import(redis, keyring, "test", path, true, &count, NULL),
                     BERTH_INVALID_ARGUMENT);
    berth_records_free(records);
}
END_TEST

/* An empty store is recovered only by who has a journal with records in it. */
START_TEST(claim__store_emptied__only_with_a_journal)
{
    struct berth_records *records = open_one(0);

    lose();
    ck_assert_int_eq(berth_records_claim(records, NULL), BERTH_INVALID_ARGUMENT);
    ask("SET", "berth:deployment", "test", NULL, NULL, NULL);
    ask("SET", "berth:epoch", "1", NULL, NULL, NULL);
    put(records, TENANT, "one");
    lose();
    ask("SET", "berth:reaper", "a lease", NULL, NULL, NULL); /* a process that goes on */
    ck_assert_int_eq(berth_records_claim(records, NULL), BERTH_OK);
    lose();
    ask("SET", "theirs", "x", NULL, NULL, NULL);
    ck_assert_int_eq(berth_records_claim(records, NULL), BERTH_INVALID_ARGUMENT);
    lose();
    ask("SET", "berth:deployment", "another", NULL, NULL, NULL);
    ck_assert_int_eq(berth_records_claim(records, NULL), BERTH_INVALID_ARGUMENT);
    berth_records_free(records);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("records");

    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_set_timeout(tcase, 30);
    tcase_add_loop_test(tcase, record_judge__each_row, 0, (int)BERTH_COUNT(judge_rows));
    tcase_add_test(tcase, restore__store_emptied__records_are_back);
    tcase_add_loop_test(tcase, restore__two_journals__newest_of_all, 0, 2);
    tcase_add_test(tcase, recovery__journal_missing__until_given_up);
    tcase_add_test(tcase, restore__changed_since__left_alone);
    tcase_add_test(tcase, records_run__index_lost__refused);
    tcase_add_test(tcase, check__store_and_journal_differ__brought_together);
    tcase_add_test(tcase, import__store_not_empty__refused_unless_told);
    tcase_add_test(tcase, claim__store_emptied__only_with_a_journal);
    return run_case("journal/records", tcase);
}
