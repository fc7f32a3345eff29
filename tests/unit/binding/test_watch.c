#include "services/binding/watch.h"

#include <check.h>
#include <stdio.h>

static struct berth_redis *redis;
static struct binding_watch *watch;

/* Redis is never asked here: nobody listens at that path. */
static void setup(void)
{
    const struct berth_redis_options options = {.url = "unix:/nonexistent/redis.sock"};

    ck_assert_int_eq(berth_redis_new(&options, &redis, NULL), BERTH_OK);
    ck_assert_int_eq(binding_watch_new(redis, "test", 60000, 600000, &watch, NULL), BERTH_OK);
}

static void teardown(void)
{
    watch = binding_watch_free(watch);
    redis = berth_redis_free(redis);
}

enum { MINUTE = 60000, WALL = 1000000000 };

/* Each row: Redis' time later by, our ticks before and after later by, a jump or not. */
static const struct {
    int64_t wall, before, after;
    bool jump;
} rows[] = {
    {MINUTE, MINUTE, MINUTE, false},
    {MINUTE + 4900, MINUTE, MINUTE, false}, /* drift of that size is followed */
    {MINUTE + 5100, MINUTE, MINUTE, true},  /* ahead */
    {MINUTE - 5100, MINUTE, MINUTE, true},  /* back */
    {8 * 60 * MINUTE, MINUTE, MINUTE, true},
    {-8 * 60 * MINUTE, MINUTE, MINUTE, true},
    {MINUTE, MINUTE, 3 * MINUTE, false}, /* we were stopped while we waited */
    {2 * MINUTE, MINUTE, 3 * MINUTE, false},
    {4 * MINUTE, MINUTE, 3 * MINUTE, true},
};

/* A jump against our own clock begins a quarantine; a slow answer does not. */
START_TEST(watch_clock__jump__quarantine)
{
    binding_watch_clock(watch, WALL, 1000, 1001);
    ck_assert(!binding_watch_quarantined(watch));
    binding_watch_clock(watch, WALL + rows[_i].wall, 1000 + rows[_i].before,
                        1001 + rows[_i].after);
    ck_assert_int_eq(binding_watch_quarantined(watch), rows[_i].jump);
    ck_assert_int_eq(binding_watch_unsure(watch), rows[_i].jump);
}
END_TEST

/* A slow clock that drifts for days is no jump. */
START_TEST(watch_clock__drift__followed)
{
    for (int64_t i = 0; i < 10000; i++)
        binding_watch_clock(watch, WALL + i * 1001, i * 1000, i * 1000 + 1);
    ck_assert(!binding_watch_quarantined(watch));
}
END_TEST

/* A store that is away is said to be away, by every question. */
START_TEST(watch__store_away__unavailable)
{
    struct berth_error err = {0};
    bool wrong = true;

    ck_assert_int_eq(binding_watch_whole(watch, &err), BERTH_UNAVAILABLE);
    ck_assert_str_eq(berth_reason_name(err.reason), "STORE_UNAVAILABLE");
    ck_assert(!binding_watch_quarantined(watch));
    ck_assert_int_eq(binding_watch_ready(watch, &wrong, &err), BERTH_UNAVAILABLE);
    ck_assert(!wrong);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("binding/watch");
    TCase *tc = tcase_create("watch");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_loop_test(tc, watch_clock__jump__quarantine, 0, (int)BERTH_COUNT(rows));
    tcase_add_test(tc, watch_clock__drift__followed);
    tcase_add_test(tc, watch__store_away__unavailable);
    suite_add_tcase(suite, tc);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
