/* test_gate_read.c - what comes out of the sandbox in answer to the gate's questions. */
#include <check.h>
#include <stdlib.h>

#include "common/base/base.h"
#include "services/skills/work/gate_read.h"

#define SUM "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define ANSWER(text) text, sizeof text - 1

static const struct {
    const char *text;
    size_t size;
    bool is_whole;
    enum gate_state states[3];
} rows[] = {
    {ANSWER("0 ok 0 \0"
            "1 bad 3 invalid syntax\0"
            "2 odd 0 \0"),
     true,
     {GATE_OK, GATE_BAD, GATE_ODD}},
    {ANSWER("2 ok 0 \0"
            "0 ok 0 \0"),
     true,
     {GATE_OK, GATE_UNSAID, GATE_OK}},
    {ANSWER(""), true, {GATE_UNSAID, GATE_UNSAID, GATE_UNSAID}},
    /* the parser died in the middle of a word: what is whole counts, the rest is not said */
    {ANSWER("0 ok 0 \0"
            "1 ok 0"),
     false,
     {GATE_OK, GATE_UNSAID, GATE_UNSAID}},
    {ANSWER("0 ok 0 \0"
            "Segmentation fault\n"),
     false,
     {GATE_OK, GATE_UNSAID, GATE_UNSAID}},
    /* nobody talks a bad one into a good one */
    {ANSWER("0 bad 1 x\0"
            "0 ok 0 \0"
            "1 ok 0 \0"),
     false,
     {GATE_BAD, GATE_UNSAID, GATE_UNSAID}},
    {ANSWER("3 ok 0 \0"
            "0 ok 0 \0"),
     false,
     {GATE_UNSAID, GATE_UNSAID, GATE_UNSAID}},
    {ANSWER("-1 ok 0 \0"), false, {GATE_UNSAID, GATE_UNSAID, GATE_UNSAID}},
    {ANSWER("4294967296 ok 0 \0"), false, {GATE_UNSAID, GATE_UNSAID, GATE_UNSAID}},
    {ANSWER("0 okay 0 \0"), false, {GATE_UNSAID, GATE_UNSAID, GATE_UNSAID}},
    {ANSWER("0 ok\0"), false, {GATE_UNSAID, GATE_UNSAID, GATE_UNSAID}},
    {ANSWER(" 0 ok 0 \0"), false, {GATE_UNSAID, GATE_UNSAID, GATE_UNSAID}},
    {ANSWER("\0\0\0"), false, {GATE_UNSAID, GATE_UNSAID, GATE_UNSAID}},
};

/* What is not told right, or not at all, was not judged. */
START_TEST(gate_read__any_answer__only_what_is_said_counts)
{
    struct gate_record records[3];

    ck_assert_int_eq(gate_read(rows[_i].text, rows[_i].size, records, 3), rows[_i].is_whole);
    for (size_t i = 0; i < 3; i++)
        ck_assert_msg(records[i].state == rows[_i].states[i], "row %d, record %zu: %d", _i, i,
                      (int)records[i].state);
}
END_TEST

/* Line and text stand in the record. */
START_TEST(gate_read__bad_one__line_and_text)
{
    struct gate_record record;

    ck_assert(gate_read("0 bad 17 unexpected 3 EOF\0", 26, &record, 1));
    ck_assert_uint_eq(record.line, 17);
    ck_assert_str_eq(record.text, "unexpected 3 EOF");
}
END_TEST

/* The shells' own complaints. */
START_TEST(gate_shell_line__both_shells__line)
{
    ck_assert_uint_eq(gate_shell_line("./a.sh: 3: Syntax error: \"fi\" unexpected"), 3);
    ck_assert_uint_eq(gate_shell_line("./a b: c.sh: line 12: syntax error near"), 12);
    ck_assert_uint_eq(gate_shell_line("./x: 99999999999999: no"), 0);
    ck_assert_uint_eq(gate_shell_line("nothing"), 0);
    ck_assert_uint_eq(gate_shell_line(": "), 0);
}
END_TEST

/* Sums count in the order asked, of the names asked, and all of them. */
START_TEST(gate_read_sums__any_answer__all_or_nothing)
{
    static const char *const names[] = {"./a\nb", "./c"};
    static const char whole[] = SUM "  ./a\nb\0" SUM " *./c";
    uint8_t sums[2][32];

    ck_assert(gate_read_sums(whole, sizeof whole, names, 2, sums));
    ck_assert_uint_eq(sums[1][0], 0xe3);
    ck_assert_uint_eq(sums[1][31], 0x55);
    for (size_t size = 0; size < sizeof whole; size++)
        ck_assert(!gate_read_sums(whole, size, names, 2, sums));
    ck_assert(!gate_read_sums(whole, sizeof whole, names, 1, sums));
    ck_assert(!gate_read_sums(ANSWER(SUM "  ./c\0" SUM "  ./a\nb\0"), names, 2, sums));
    ck_assert(!gate_read_sums(ANSWER("E" SUM "  ./c\0"), names + 1, 1, sums));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gate_read");
    TCase *tc = tcase_create("all");
    SRunner *runner;
    int failed;

    tcase_add_loop_test(tc, gate_read__any_answer__only_what_is_said_counts, 0,
                        (int)BERTH_COUNT(rows));
    tcase_add_test(tc, gate_read__bad_one__line_and_text);
    tcase_add_test(tc, gate_shell_line__both_shells__line);
    tcase_add_test(tc, gate_read_sums__any_answer__all_or_nothing);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
