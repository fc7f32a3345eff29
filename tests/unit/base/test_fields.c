#include "common/fields/fields.h"

#include <stdio.h>

#include "tests/unit/base/main.h"

/* A text of len times c; valid until the next call. */
static const char *many(char c, size_t len)
{
    static char buf[8192];

    ck_assert_uint_lt(len, sizeof buf);
    memset(buf, c, len);
    buf[len] = 0;
    return buf;
}

static void judge(enum berth_code code, bool good, const struct berth_error *err)
{
    ck_assert_int_eq(code, good ? BERTH_OK : BERTH_INVALID_ARGUMENT);
    if (!good) {
        ck_assert_int_eq(err->reason, BERTH_REASON_FIELD_INVALID);
        ck_assert_str_eq(err->field, "a.b");
        ck_assert_str_ne(err->rule, "");
    }
}

/* Values that more than one rule judges; what each says about them. */
static const struct {
    const char *value;
    bool id, label, env, text; /* text: 1 to 10 characters */
} word_rows[] = {
    {NULL, false, false, false, false},
    {"", false, false, false, false},
    {"a", true, true, true, true},
    {"A-Z._09", true, true, false, true},
    {"_", true, true, true, true},
    {"A_9", true, true, true, true},
    {"9A", true, true, false, true},
    {".", false, true, false, true},
    {"..", false, true, false, true},
    {"...", true, true, false, true},
    {".a", true, true, false, true},
    {"-", true, true, false, true},
    {"a/b", false, true, false, true},
    {"../a", false, true, false, true},
    {"a b", false, false, false, true},
    {" a", false, false, false, true},
    {"a:b", false, false, false, true},
    {"a{b}", false, false, false, true},
    {"a=b", false, false, false, true},
    {"a\n", false, false, false, false},
    {"a\tb", false, false, false, false},
    {"a\x7f", false, false, false, false},
    {"a\xc2\x85", false, false, false, false}, /* a control character beyond ASCII */
    {"\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9", false,
     false, false, true},                    /* 10 characters, 20 bytes */
    {"\xd0\xb0", false, false, false, true}, /* looks like an a */
    {"a\xff", false, false, false, false},
    {"\xc3", false, false, false, false},
    {"\xed\xa0\x80", false, false, false, false},
    {"\xf4\x90\x80\x80", false, false, false, false},
    {"\xc0\x80", false, false, false, false},
    {"12345678901", true, true, false, false},
};

/* One value, each rule's verdict. */
START_TEST(berth_check__words)
{
    const char *value = word_rows[_i].value;
    bool empty = !value || !*value;
    struct berth_error err = {0};

    judge(berth_check_id("a.b", value, &err), word_rows[_i].id, &err);
    judge(berth_check_id_or_empty("a.b", value, &err), word_rows[_i].id || empty, &err);
    judge(berth_check_label_key("a.b", value, &err), word_rows[_i].label, &err);
    judge(berth_check_env_name("a.b", value, &err), word_rows[_i].env, &err);
    judge(berth_check_text("a.b", value, 1, 10, &err), word_rows[_i].text, &err);
}
END_TEST

static const struct {
    size_t len;
    bool good;
} length_rows[] = {{1, true}, {127, true}, {128, true}, {129, false}, {8191, false}};

/* Ids and keys end at 128. */
START_TEST(berth_check__lengths)
{
    const char *value = many('a', length_rows[_i].len);
    struct berth_error err = {0};

    judge(berth_check_id("a.b", value, &err), length_rows[_i].good, &err);
    judge(berth_check_label_key("a.b", value, &err), length_rows[_i].good, &err);
    judge(berth_check_env_name("a.b", value, &err), length_rows[_i].good, &err);
    judge(berth_check_text("a.b", value, 0, 128, &err), length_rows[_i].good, &err);
}
END_TEST

/* An empty text is fine where the least is 0, absent or not. */
START_TEST(berth_check_text__least_is_zero__empty_ok)
{
    struct berth_error err = {0};

    judge(berth_check_text("a.b", "", 0, 0, &err), true, &err);
    judge(berth_check_text("a.b", NULL, 0, 5, &err), true, &err);
    judge(berth_check_text("a.b", "x", 0, 0, &err), false, &err);
    judge(berth_check_text("a.b", "x", 2, 5, &err), false, &err);
}
END_TEST

static const struct {
    const char *path;
    bool good;
} path_rows[] = {
    {"/", true},      {"/a", true},      {"/a/b.c/..d/.e", true}, {"/ /\t", true},
    {"/\xff", true},  {"/...", true},    {NULL, false},           {"", false},
    {"a", false},     {"./a", false},    {"//", false},           {"/a/", false},
    {"/a//b", false}, {"/.", false},     {"/..", false},          {"/a/.", false},
    {"/a/..", false}, {"/a/./b", false}, {"/a/../b", false},      {"/./", false},
    {"//a", false},   {"/../a", false},
};

/* Absolute and clean, so that the same file has one name. */
START_TEST(berth_check_path__rows)
{
    struct berth_error err = {0};

    judge(berth_check_path("a.b", path_rows[_i].path, &err), path_rows[_i].good, &err);
}
END_TEST

/* Components end at 255 bytes, paths at 4096. */
START_TEST(berth_check_path__lengths)
{
    static char path[8300];
    struct berth_error err = {0};

    snprintf(path, sizeof path, "/%s", many('x', 255));
    judge(berth_check_path("a.b", path, &err), true, &err);
    snprintf(path, sizeof path, "/a/%s/b", many('x', 256));
    judge(berth_check_path("a.b", path, &err), false, &err);
    for (size_t i = 0; i < 4098; i++)
        path[i] = i % 16 == 0 ? '/' : 'x';
    path[4096] = 0;
    ck_assert_uint_eq(strlen(path), 4096);
    judge(berth_check_path("a.b", path, &err), true, &err);
    path[4096] = '/';
    path[4097] = 'x';
    path[4098] = 0;
    judge(berth_check_path("a.b", path, &err), false, &err);
}
END_TEST

static const struct {
    int64_t seconds;
    int32_t nanos;
    int64_t max_ms, ms; /* ms -1: refused */
} duration_rows[] = {
    {0, 0, 0, 0},
    {0, 1, 0, -1},
    {0, 1, 1, 1},
    {0, 1000000, 1, 1},
    {0, 1000001, 1, -1},
    {1, 0, 1000, 1000},
    {1, 1, 1000, -1},
    {1, 999999999, 2000, 2000},
    {1, 1000000000, INT64_MAX, -1},
    {1, INT32_MAX, INT64_MAX, -1},
    {-1, 0, INT64_MAX, -1},
    {0, -1, INT64_MAX, -1},
    {1, -1, INT64_MAX, -1},
    {-1, 1, INT64_MAX, -1},
    {0, INT32_MIN, INT64_MAX, -1},
    {INT64_MIN, 0, INT64_MAX, -1},
    {INT64_MAX, 0, INT64_MAX, -1},
    {INT64_MAX / 1000, 0, INT64_MAX, INT64_MAX / 1000 * 1000},
    {INT64_MAX / 1000, 807000000, INT64_MAX, INT64_MAX},
    {INT64_MAX / 1000, 807000001, INT64_MAX, -1},
    {INT64_MAX / 1000 + 1, 0, INT64_MAX, -1},
};

/* Never negative, rounded up to a millisecond, no overflow anywhere. */
START_TEST(berth_check_duration__rows)
{
    struct berth_error err = {0};
    int64_t ms = 42;
    enum berth_code code =
        berth_check_duration("a.b", duration_rows[_i].seconds, duration_rows[_i].nanos,
                             duration_rows[_i].max_ms, &ms, &err);

    judge(code, duration_rows[_i].ms >= 0, &err);
    ck_assert_int_eq(ms, duration_rows[_i].ms >= 0 ? duration_rows[_i].ms : 42);
}
END_TEST

static const struct {
    int value;
    bool zero_ok, good;
} enum_rows[] = {{0, true, true},           {0, false, false},
                 {1, false, true},          {3, true, true},
                 {4, true, false},          {-1, true, false},
                 {2147483647, true, false}, {-2147483647 - 1, true, false}};

/* 0..3 are known; unknown numbers arrive as they are and are refused here. */
START_TEST(berth_check_enum__rows)
{
    struct berth_error err = {0};

    judge(berth_check_enum("a.b", enum_rows[_i].value, 3, enum_rows[_i].zero_ok, &err),
          enum_rows[_i].good, &err);
    judge(berth_check_enum_entry("a.b", enum_rows[_i].value, 3, &err),
          enum_rows[_i].good && enum_rows[_i].value, &err);
    if (enum_rows[_i].value == 0) /* it is given */
        ck_assert_str_eq(err.text, "a.b: must be one of the known values");
}
END_TEST

static const struct {
    int32_t value;
    uint32_t size; /* 0: refused */
} page_rows[] = {{0, 50},           {1, 1},  {50, 50},      {1000, 1000}, {1001, 1000},
                 {INT32_MAX, 1000}, {-1, 0}, {INT32_MIN, 0}};

/* 0 is the default, too much is cut, negative is refused. */
START_TEST(berth_check_page_size__rows)
{
    struct berth_error err = {0};
    uint32_t size = 0;

    judge(berth_check_page_size("a.b", page_rows[_i].value, &size, &err),
          page_rows[_i].size > 0, &err);
    ck_assert_uint_eq(size, page_rows[_i].size);
}
END_TEST

/* An absent message is refused, a present one is not looked into. */
START_TEST(berth_check_present__null__refused)
{
    struct berth_error err = {0};

    judge(berth_check_present("a.b", NULL, &err), false, &err);
    judge(berth_check_present("a.b", &err, &err), true, &err);
}
END_TEST

static const struct {
    const char *bytes;
    size_t size;
    bool valid;
    const char *lossy;
} utf8_rows[] = {
    {"", 0, true, ""},
    {"abc", 3, true, "abc"},
    {"a\0b", 3, false,
     "a\xef\xbf\xbd"
     "b"},
    {"\xc3\xa9", 2, true, "\xc3\xa9"},
    {"\xc3\xa9", 1, false, "\xef\xbf\xbd"},
    {"\xe2\x82\xac", 3, true, "\xe2\x82\xac"},
    {"\xe2\x82\xac", 2, false, "\xef\xbf\xbd\xef\xbf\xbd"},
    {"\xf0\x9f\x98\x80!", 5, true, "\xf0\x9f\x98\x80!"},
    {"\xf0\x9f\x98", 3, false, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
    {"\x80", 1, false, "\xef\xbf\xbd"},
    {"\xc1\xbf", 2, false, "\xef\xbf\xbd\xef\xbf\xbd"},
    {"\xe0\x9f\xbf", 3, false, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
    {"\xe0\xa0\x80", 3, true, "\xe0\xa0\x80"},
    {"\xed\x9f\xbf", 3, true, "\xed\x9f\xbf"},
    {"\xed\xa0\x80", 3, false, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
    {"\xee\x80\x80", 3, true, "\xee\x80\x80"},
    {"\xf0\x8f\xbf\xbf", 4, false, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
    {"\xf4\x8f\xbf\xbf", 4, true, "\xf4\x8f\xbf\xbf"},
    {"\xf4\x90\x80\x80", 4, false, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
    {"\xff\xfe", 2, false, "\xef\xbf\xbd\xef\xbf\xbd"},
};

/* The well-formed sequences of the Unicode standard's table 3-7, and their neighbours. */
START_TEST(berth_utf8__rows)
{
    size_t size = utf8_rows[_i].size;
    char *exact = malloc(size + 1); /* so that a sanitizer sees a look beyond the end */
    char *lossy;

    memcpy(exact, utf8_rows[_i].bytes, size);
    exact = realloc(exact, size ? size : 1);
    ck_assert_int_eq(berth_utf8_valid(exact, size), utf8_rows[_i].valid);
    lossy = berth_utf8_lossy(exact, size);
    ck_assert_str_eq(lossy, utf8_rows[_i].lossy);
    free(lossy);
    free(exact);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("fields");

    tcase_add_loop_test(tcase, berth_check__words, 0, (int)BERTH_COUNT(word_rows));
    tcase_add_loop_test(tcase, berth_check__lengths, 0, (int)BERTH_COUNT(length_rows));
    tcase_add_test(tcase, berth_check_text__least_is_zero__empty_ok);
    tcase_add_loop_test(tcase, berth_check_path__rows, 0, (int)BERTH_COUNT(path_rows));
    tcase_add_test(tcase, berth_check_path__lengths);
    tcase_add_loop_test(tcase, berth_check_duration__rows, 0, (int)BERTH_COUNT(duration_rows));
    tcase_add_loop_test(tcase, berth_check_enum__rows, 0, (int)BERTH_COUNT(enum_rows));
    tcase_add_loop_test(tcase, berth_check_page_size__rows, 0, (int)BERTH_COUNT(page_rows));
    tcase_add_test(tcase, berth_check_present__null__refused);
    tcase_add_loop_test(tcase, berth_utf8__rows, 0, (int)BERTH_COUNT(utf8_rows));
    return run_case("common/fields", tcase);
}
