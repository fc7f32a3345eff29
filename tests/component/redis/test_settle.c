/* test_settle.c - a write that timed out while the server held it back: settled, it is either
 * there or never will be. */
#include <check.h>
#include <stdio.h>

#include "common/time/time.h"
#include "tests/lib/redis_server.h"

#define KEY "berth:{t}:s/1"
#define OTHER "berth:{t}:t"
#define REV "00000000000000aa"

enum { SHORT_MS = 200, DEADLINE_MS = 20000 };

static struct redis_server server;
static struct berth_redis *admin, *redis;

static void setup(void)
{
    redis_server_start(&server, NULL);
    admin = redis_server_client(&server, NULL);
    redis = redis_server_client(&server,
                                &(struct berth_redis_options){.command_timeout_ms = SHORT_MS});
    ck_assert_int_eq(berth_redis_ping(redis, NULL), BERTH_OK);
}

static void teardown(void)
{
    redis = berth_redis_free(redis);
    admin = berth_redis_free(admin);
    redis_server_stop(&server);
}

static void field(const char *key, const char *name, char ret[32])
{
    struct berth_reply *reply = redis_run(admin, "HGET", key, name, NULL);

    snprintf(ret, 32, "%s", reply->string ? reply->string : "");
    berth_reply_free(reply);
}

/* Each row: of the document that is written, what was there, and whether it goes; another
 * document that was there and is only compared. */
static const struct {
    const char *old_rev;
    bool deletes, with_other;
} rows[] = {
    {REV, false, false},
    {REV, true, false},
    {"", false, false},
    {"", false, true},
};

/* What the row says is there, and the write that it is about. */
static void prepare(struct berth_cas *cas, int row, char rev[17])
{
    if (rows[row].old_rev[0])
        berth_reply_free(redis_run(admin, "HSET", KEY, "rev", REV, NULL));
    if (rows[row].with_other) {
        berth_reply_free(redis_run(admin, "HSET", OTHER, "rev", REV, NULL));
        berth_cas_expect(cas, OTHER, REV);
    }
    berth_cas_expect(cas, KEY, rows[row].old_rev);
    if (rows[row].deletes)
        berth_cas_write(cas, "DEL", KEY, NULL);
    else
        berth_cas_write(cas, "HSET", KEY, "rev", berth_rev_new(rev), "n", "1", NULL);
}

/* Held back by CLIENT PAUSE until after the time-out. Whatever is answered then stays true. */
START_TEST(cas_settle__paused_write__there_or_never)
{
    BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
    int64_t until_tick = berth_tick_ms() + DEADLINE_MS;
    enum berth_outcome outcome = BERTH_OUTCOME_OVERTAKEN;
    struct berth_error err = {0};
    char rev[17], now[32];
    bool applied = false;

    prepare(cas, _i, rev);
    berth_reply_free(redis_run(admin, "CLIENT", "PAUSE", "600", "WRITE", NULL));
    ck_assert_int_eq(berth_cas_run(redis, cas, false, &applied, NULL, NULL, &err),
                     BERTH_UNKNOWN);
    /* Not to be settled while it lasts, and nobody waits for that. */
    ck_assert_int_eq(berth_cas_settle(redis, cas, false, &outcome, &err), BERTH_UNKNOWN);
    while (berth_cas_settle(redis, cas, false, &outcome, &err) != BERTH_OK)
        ck_assert_int_lt(berth_tick_ms(), until_tick);
    /* Its connection is dead, or it has been run: what it left is all that will be. */
    field(KEY, "rev", now);
    if (rows[_i].deletes)
        ck_assert((outcome == BERTH_OUTCOME_APPLIED) == !now[0]);
    else if (outcome == BERTH_OUTCOME_APPLIED)
        ck_assert_str_eq(now, rev);
    else
        ck_assert_str_ne(now, rev);
    ck_assert_int_ne(outcome, BERTH_OUTCOME_OVERTAKEN);
}
END_TEST

/* Run once, and once more: it comes too late. */
START_TEST(cas_settle__not_applied__cannot_be_any_more)
{
    BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
    enum berth_outcome outcome = BERTH_OUTCOME_APPLIED;
    char rev[17], now[32];
    bool applied = true;

    prepare(cas, _i, rev);
    ck_assert_int_eq(berth_cas_settle(redis, cas, false, &outcome, NULL), BERTH_OK);
    ck_assert_int_eq(outcome, BERTH_OUTCOME_REFUSED);
    ck_assert_int_eq(berth_cas_run(redis, cas, false, &applied, NULL, NULL, NULL), BERTH_OK);
    ck_assert(!applied);
    field(KEY, "n", now);
    ck_assert_str_eq(now, "");
}
END_TEST

/* Applied, and somebody else has written since: said to be so. */
START_TEST(cas_settle__written_over__overtaken)
{
    BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
    enum berth_outcome outcome = BERTH_OUTCOME_APPLIED;
    struct berth_error err = {0};
    char rev[17];
    bool applied = false;

    berth_cas_expect(cas, KEY, "");
    berth_cas_write(cas, "HSET", KEY, "rev", berth_rev_new(rev), NULL);
    ck_assert_int_eq(berth_cas_run(redis, cas, false, &applied, NULL, NULL, NULL), BERTH_OK);
    ck_assert_int_eq(berth_cas_settle(redis, cas, false, &outcome, NULL), BERTH_OK);
    ck_assert_int_eq(outcome, BERTH_OUTCOME_APPLIED);
    berth_reply_free(redis_run(admin, "HSET", KEY, "rev", REV, NULL));
    ck_assert_int_eq(berth_cas_settle(redis, cas, false, &outcome, NULL), BERTH_OK);
    ck_assert_int_eq(outcome, BERTH_OUTCOME_OVERTAKEN);
    redis_server_kill(&server);
    ck_assert_int_eq(berth_cas_settle(redis, cas, false, &outcome, &err), BERTH_UNKNOWN);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redis/settle");
    TCase *tcase = tcase_create("settle");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, cas_settle__paused_write__there_or_never, 0,
                        (int)BERTH_COUNT(rows));
    tcase_add_loop_test(tcase, cas_settle__not_applied__cannot_be_any_more, 0,
                        (int)BERTH_COUNT(rows));
    tcase_add_test(tcase, cas_settle__written_over__overtaken);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
