/* test_usage.c - seconds and bytes of each tenant and config, by samples. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services/reaper/usage.h"

static void has(const struct reaper_usage *usage, const char *line, int wanted)
{
    char *text = reaper_usage_metrics(usage);

    ck_assert_ptr_nonnull(text);
    ck_assert_msg(!strstr(text, line) == !wanted, "%s: %s", line, text);
    free(text);
}

/* What is found stands for the time since the last look, and no longer than is believed. */
START_TEST(usage_add__looks__time_since_the_last_one)
{
    struct reaper_usage *usage = reaper_usage_new();

    for (int i = 0; i < 3; i++) {
        reaper_usage_begin(usage, 1000 + i * (i == 2 ? 500000 : 1500), 60000);
        reaper_usage_keep(usage, "t1", "c1");
        reaper_usage_keep(usage, "t1", "c0");
        reaper_usage_add(usage, "t1", "c1", false, 10);
        reaper_usage_add(usage, "t1", "c1", false, 20);
        reaper_usage_add(usage, "t1", "c1", true, 5);
        reaper_usage_add(usage, "t2", "c1", true, 5);
        reaper_usage_add_snapshots(usage, "t1", "c1", 2048);
        reaper_usage_add_snapshots(usage, "t2", "c1", 2048);
        reaper_usage_end(usage);
    }
    has(usage, "running_seconds_total{tenant=\"t1\",config=\"c1\"} 123.000\n", 1);
    has(usage, "paused_seconds_total{tenant=\"t1\",config=\"c1\"} 61.500\n", 1);
    has(usage, "berth_sandboxes_running{tenant=\"t1\",config=\"c1\"} 2\n", 1);
    has(usage, "berth_sandboxes_paused{tenant=\"t1\",config=\"c1\"} 1\n", 1);
    has(usage, "sandbox_stored_bytes{tenant=\"t1\",config=\"c1\"} 35\n", 1);
    has(usage, "snapshot_stored_bytes{tenant=\"t1\",config=\"c1\"} 2048\n", 1);
    has(usage, "snapshot_stored_byte_seconds_total{tenant=\"t1\",config=\"c1\"} 125952\n", 1);
    has(usage, "berth_sandboxes_running{tenant=\"t1\",config=\"c0\"} 0\n", 1);
    has(usage, "t2", 0);
    reaper_usage_free(usage);
}
END_TEST

/* A config that is not there any more is not told of for ever. */
START_TEST(usage_end__config_gone__forgotten)
{
    struct reaper_usage *usage = reaper_usage_new();

    reaper_usage_begin(usage, 1, 1000);
    reaper_usage_keep(usage, "t1", "c1");
    reaper_usage_end(usage);
    has(usage, "t1", 1);
    reaper_usage_begin(usage, 2, 1000);
    reaper_usage_end(usage);
    has(usage, "t1", 0);
    reaper_usage_free(usage);
}
END_TEST

/* More configs than have lines of their own: the rest is one, and none of it is lost. */
START_TEST(usage_add__too_many_configs__other)
{
    struct reaper_usage *usage = reaper_usage_new();
    const struct reaper_used before = {.running_ms = 500};
    char config[16];

    for (int look = 0; look < 2; look++) {
        reaper_usage_begin(usage, 1000 + look * 1000, 60000);
        for (int i = 0; i < REAPER_USAGE_MAX + 2; i++) {
            snprintf(config, sizeof config, "c%d", i);
            reaper_usage_keep(usage, "t1", config);
            reaper_usage_add(usage, "t1", config, false, 2048);
        }
        reaper_usage_end(usage);
    }
    has(usage, "config=\"c1001\"", 0);
    has(usage, "berth_sandboxes_running{tenant=\"(other)\",config=\"(other)\"} 2\n", 1);
    has(usage, "running_seconds_total{tenant=\"(other)\",config=\"(other)\"} 2.000\n", 1);
    has(usage, "byte_seconds_total{tenant=\"t1\",config=\"c1\"} 2048\n", 1);
    reaper_usage_load(usage, "t1", "c1", &before); /* as read back */
    has(usage, "running_seconds_total{tenant=\"t1\",config=\"c1\"} 1.500\n", 1);
    reaper_usage_restart(usage, 3000);
    has(usage, "c1", 0);
    reaper_usage_free(usage);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("reaper/usage");
    TCase *tcase = tcase_create("usage");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_test(tcase, usage_add__looks__time_since_the_last_one);
    tcase_add_test(tcase, usage_end__config_gone__forgotten);
    tcase_add_test(tcase, usage_add__too_many_configs__other);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
