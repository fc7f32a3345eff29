#include "common/log/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#include "common/json/json.h"
#include "tests/unit/base/main.h"

enum { OUT_MAX = 1 << 20, N_THREADS = 8, N_LINES = 200 };

static FILE *caught;

/* Standard error goes into a file from here on. */
static void catch_lines(void)
{
    caught = tmpfile();
    ck_assert_ptr_nonnull(caught);
    ck_assert_int_ge(dup2(fileno(caught), STDERR_FILENO), 0);
}

/* What was written, NUL-terminated. */
static const char *lines(void)
{
    static char out[OUT_MAX];
    ssize_t n = pread(fileno(caught), out, sizeof out - 1, 0);

    ck_assert_int_ge(n, 0);
    out[n] = 0;
    return out;
}

/* The one line written, parsed; owned. */
static json_t *line(void)
{
    const char *text = lines(), *end = strchr(text, '\n');
    json_t *json = NULL;
    struct berth_error err = {0};

    ck_assert_ptr_nonnull(end);
    ck_assert_int_eq(end[1], 0);
    ck_assert_msg(berth_json_parse(text, (size_t)(end - text), OUT_MAX, &json, &err) ==
                      BERTH_OK,
                  "%s: %s", err.text, text);
    return json;
}

static const char *get(const json_t *json, const char *key)
{
    return json_string_value(json_object_get(json, key));
}

/* The members every line has, then the caller's, numbers as text. */
START_TEST(berth_log__fields__one_json_object)
{
    json_t *json;

    berth_log_setup("binding", BERTH_LOG_INFO);
    catch_lines();
    berth_info("lease granted", "holder", "a", "fence", BERTH_I64(INT64_MIN));
    json = line();
    ck_assert_str_eq(get(json, "level"), "info");
    ck_assert_str_eq(get(json, "svc"), "binding");
    ck_assert_str_eq(get(json, "msg"), "lease granted");
    ck_assert_str_eq(get(json, "holder"), "a");
    ck_assert_str_eq(get(json, "fence"), "-9223372036854775808");
    ck_assert_uint_eq(strlen(get(json, "ts")), strlen("2026-11-30T22:51:19.123Z"));
    ck_assert_ptr_null(json_object_get(json, "cut"));
    json_decref(json);
}
END_TEST

static const struct {
    const char *value, *read_back;
} value_rows[] = {
    {"", ""},
    {"plain", "plain"},
    {"\"\\/", "\"\\/"},
    {"a\nb\tc\rd\x01\x1f", "a\nb\tc\rd\x01\x1f"},
    {"\x7f", "\x7f"},
    {"\xc2\x85", "\xc2\x85"},
    {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
    {"\xff", "\xef\xbf\xbd"},
    {"a\xc3", "a\xef\xbf\xbd"},
    {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
    {"\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"},
    {"{\"level\":\"error\"}\n{}", "{\"level\":\"error\"}\n{}"},
};

/* Whatever a value holds, the line stays one line of JSON that reads back the same. */
START_TEST(berth_log__hostile_value__still_one_line)
{
    json_t *json;

    berth_log_setup("s", BERTH_LOG_DEBUG);
    catch_lines();
    berth_warn("m", "key", value_rows[_i].value, value_rows[_i].value, "as a key");
    json = line();
    ck_assert_str_eq(get(json, "key"), value_rows[_i].read_back);
    ck_assert_str_eq(get(json, value_rows[_i].read_back), "as a key");
    json_decref(json);
}
END_TEST

/* A long value is cut with an ellipsis; too many of them leave whole members and say so. */
START_TEST(berth_log__too_long__cut_and_still_json)
{
    char big[9000];
    json_t *json;

    memset(big, '"', sizeof big - 1);
    big[sizeof big - 1] = 0;
    berth_log_setup("s", BERTH_LOG_INFO);
    catch_lines();
    berth_info(big, "a", big, "b", big, "c", big, "d", big, "e", "short");
    ck_assert_uint_le(strlen(lines()), 4096);
    json = line();
    ck_assert_str_eq(get(json, "a") + strlen(get(json, "a")) - 3, "...");
    ck_assert(json_is_true(json_object_get(json, "cut")));
    ck_assert_ptr_null(json_object_get(json, "e"));
    json_decref(json);
}
END_TEST

/* Levels below the lowest are not written; errno survives a call. */
START_TEST(berth_log__below_lowest__nothing)
{
    berth_log_setup("s", BERTH_LOG_WARN);
    catch_lines();
    errno = ENOTTY;
    berth_debug("no");
    berth_info("no");
    ck_assert_str_eq(lines(), "");
    berth_log_error("yes");
    ck_assert_int_eq(errno, ENOTTY);
    ck_assert_str_ne(lines(), "");
}
END_TEST

/* A NULL value ends the list: no crash where a caller has nothing to say. */
START_TEST(berth_log__null_value__ends_list)
{
    json_t *json;

    berth_log_setup("s", BERTH_LOG_INFO);
    catch_lines();
    berth_info("m", "a", (char *)NULL, "b", "c");
    json = line();
    ck_assert_uint_eq(json_object_size(json), 4);
    json_decref(json);
}
END_TEST

/* The length that makes the line exactly full, and those around it. */
START_TEST(berth_log__around_the_limit__never_over)
{
    char value[2][1100];

    berth_log_setup("s", BERTH_LOG_INFO);
    for (size_t len = 800; len < 1030; len++) {
        json_t *json;

        memset(value[0], 'x', len);
        value[0][len] = 0;
        memset(value[1], '\n', len);
        value[1][len] = 0;
        catch_lines();
        berth_info("m", "a", value[0], "b", value[1], "c", value[0], "d", value[0]);
        ck_assert_uint_le(strlen(lines()), 4096);
        json = line();
        json_decref(json);
        fclose(caught);
    }
}
END_TEST

static void *write_lines(void *arg)
{
    for (int i = 0; i < N_LINES; i++)
        berth_info("from a thread", "thread", arg, "line", BERTH_I64(i));
    return NULL;
}

/* Lines of many threads never mix. */
START_TEST(berth_log__threads__whole_lines)
{
    pthread_t threads[N_THREADS];
    const char *at;
    int n = 0;

    berth_log_setup("s", BERTH_LOG_INFO);
    catch_lines();
    for (int i = 0; i < N_THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, write_lines, "t"), 0);
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    for (at = lines(); *at; n++) {
        const char *end = strchr(at, '\n');
        json_t *json = NULL;

        ck_assert_ptr_nonnull(end);
        ck_assert_int_eq(berth_json_parse(at, (size_t)(end - at), 4096, &json, NULL), BERTH_OK);
        json_decref(json);
        at = end + 1;
    }
    ck_assert_int_eq(n, N_THREADS * N_LINES);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("log");

    tcase_add_test(tcase, berth_log__fields__one_json_object);
    tcase_add_loop_test(tcase, berth_log__hostile_value__still_one_line, 0,
                        (int)BERTH_COUNT(value_rows));
    tcase_add_test(tcase, berth_log__too_long__cut_and_still_json);
    tcase_add_test(tcase, berth_log__below_lowest__nothing);
    tcase_add_test(tcase, berth_log__null_value__ends_list);
    tcase_add_test(tcase, berth_log__around_the_limit__never_over);
    tcase_add_test(tcase, berth_log__threads__whole_lines);
    return run_case("common/log", tcase);
}
