/* test_event_page.c - the cursor of an event stream. */
#include <check.h>

#include "services/controlplane/event_page.h"

static const struct {
    const char *text;
    uint64_t ms, seq;
} good[] = {
    {"0", 0, 0},
    {"0-0", 0, 0},
    {"0-1", 0, 1},
    {"1700000000000-0", 1700000000000, 0},
    {"18446744073709551615-18446744073709551615", UINT64_MAX, UINT64_MAX},
};

/* What was given out is understood. */
START_TEST(cursor__as_given_out__read)
{
    struct cp_cursor cursor;

    ck_assert_int_eq(cp_cursor_parse("c", good[_i].text, &cursor, NULL), BERTH_OK);
    ck_assert_uint_eq(cursor.ms, good[_i].ms);
    ck_assert_uint_eq(cursor.seq, good[_i].seq);
}
END_TEST

static const char *const bad[] = {
    "",
    "-",
    "1",
    "00x",
    "1-",
    "-1",
    "1--1",
    "1-1-1",
    " 1-1",
    "1-1 ",
    "+1-1",
    "0x1-1",
    "18446744073709551616-0",
    "0-18446744073709551616",
    "$",
    "*",
    "(1-1",
};

/* Nothing of what Redis would take besides, and no number that does not fit. */
START_TEST(cursor__anything_else__refused)
{
    struct cp_cursor cursor;

    ck_assert_int_eq(cp_cursor_parse("c", bad[_i], &cursor, NULL), BERTH_INVALID_ARGUMENT);
}
END_TEST

/* Written as read. */
START_TEST(cursor__written_and_read__the_same)
{
    const struct cp_cursor cursor = {.ms = 12, .seq = 34};
    struct cp_cursor again;
    char buf[CP_CURSOR_MAX];

    ck_assert_str_eq(cp_cursor_format(buf, cursor), "12-34");
    ck_assert_int_eq(cp_cursor_parse("c", buf, &again, NULL), BERTH_OK);
    ck_assert_int_eq(cp_cursor_order(cursor, again), 0);
    ck_assert_str_eq(cp_cursor_format(buf, (struct cp_cursor){0}), "0");
}
END_TEST

/* By time, then by number. */
START_TEST(cursor__two__ordered)
{
    const struct cp_cursor a = {.ms = 1, .seq = 9}, b = {.ms = 2, .seq = 0},
                           c = {.ms = 2, .seq = 1};

    ck_assert_int_lt(cp_cursor_order(a, b), 0);
    ck_assert_int_lt(cp_cursor_order(b, c), 0);
    ck_assert_int_gt(cp_cursor_order(c, a), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("controlplane/event_page");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int failed;

    tcase_add_loop_test(all, cursor__as_given_out__read, 0, (int)BERTH_COUNT(good));
    tcase_add_loop_test(all, cursor__anything_else__refused, 0, (int)BERTH_COUNT(bad));
    tcase_add_test(all, cursor__written_and_read__the_same);
    tcase_add_test(all, cursor__two__ordered);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
