/* test_seen.c - since when a sandbox is in its plight: one clock for each, bounded. */
#include <check.h>
#include <stdio.h>

#include "services/reaper/seen.h"

enum { MAX = 1000 };

static struct reaper_seen *seen;

static void open_seen(void)
{
    seen = reaper_seen_new(MAX);
    ck_assert_ptr_nonnull(seen);
}

static void close_seen(void)
{
    seen = reaper_seen_free(seen);
}

/* The clock runs from the first sight, and begins anew with another plight. */
START_TEST(seen_for__same_plight__counted_from_first_sight)
{
    ck_assert_int_eq(reaper_seen_look(seen, "a", 1, 5), -1);
    ck_assert_int_eq(reaper_seen_for(seen, "a", 1, 100), 0);
    ck_assert_int_eq(reaper_seen_for(seen, "a", 1, 150), 50);
    ck_assert_int_eq(reaper_seen_look(seen, "a", 1, 170), 70);
    ck_assert_int_eq(reaper_seen_look(seen, "a", 2, 170), -1);
    ck_assert_int_eq(reaper_seen_for(seen, "a", 2, 200), 0);
    ck_assert_int_eq(reaper_seen_for(seen, "a", 1, 210), 0);
}
END_TEST

/* Whoever was not there at one look has to begin anew; so has everybody after forget. */
START_TEST(seen_turn__not_seen_meanwhile__forgotten)
{
    (void)reaper_seen_for(seen, "a", 1, 100);
    (void)reaper_seen_for(seen, "b", 1, 100);
    reaper_seen_turn(seen);
    (void)reaper_seen_for(seen, "a", 1, 200);
    reaper_seen_turn(seen);
    ck_assert_uint_eq(reaper_seen_count(seen), 1);
    ck_assert_int_eq(reaper_seen_for(seen, "b", 1, 300), 0);
    ck_assert_int_eq(reaper_seen_for(seen, "a", 1, 300), 200);
    reaper_seen_forget(seen);
    ck_assert_int_eq(reaper_seen_for(seen, "a", 1, 400), 0);
}
END_TEST

/* More than there is room for are never seen for long: nothing is done to them. */
START_TEST(seen_for__full__others_stay_young)
{
    char who[24];

    for (int tick = 1; tick <= 2; tick++) {
        for (int i = 0; i < 2 * MAX; i++) {
            snprintf(who, sizeof who, "box-%d", i);
            ck_assert_int_eq(reaper_seen_for(seen, who, 1, tick), i < MAX ? tick - 1 : 0);
        }
        reaper_seen_turn(seen);
    }
    ck_assert_uint_eq(reaper_seen_count(seen), MAX);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("reaper/seen");
    TCase *tcase = tcase_create("seen");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(tcase, open_seen, close_seen);
    tcase_add_test(tcase, seen_for__same_plight__counted_from_first_sight);
    tcase_add_test(tcase, seen_turn__not_seen_meanwhile__forgotten);
    tcase_add_test(tcase, seen_for__full__others_stay_young);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
