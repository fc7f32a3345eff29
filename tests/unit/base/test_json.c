/* The verdicts on whole texts are in tests/corpus/json; this is what a verdict cannot show. */
#include "common/json/json.h"

#include "tests/unit/base/main.h"

static json_t *parse(const char *text)
{
    json_t *json = NULL;

    ck_assert_int_eq(berth_json_parse(text, strlen(text), 4096, &json, NULL), BERTH_OK);
    return json;
}

static const struct {
    const char *text, *says;
} error_rows[] = {
    {"{\n\n\"secret\":\"sesame\",,}", "line 3:"},
    {"{\"secret\":\"sesame\"", "line 1: it ends too early"},
    {"{\"sesame\":1,\"sesame\":2}", "twice"},
    {"{\"sesame\":1} sesame", "more behind"},
    {"[\"sesame\"]", "not a JSON object"},
    {"{\"secret\":\"sesame\xff\"}", "UTF-8"},
    {"{\"secret\":\"sesame\\u0000\"}", "NUL"},
    {"{\"secret\":99999999999999999999}", "too large"},
};

/* The error says where and why, and never what stood there: it may be a password. */
START_TEST(berth_json_parse__wrong__named_not_quoted)
{
    struct berth_error err = {0};
    json_t *json = NULL;
    const char *text = error_rows[_i].text;

    ck_assert_int_eq(berth_json_parse(text, strlen(text), 4096, &json, &err),
                     BERTH_INVALID_ARGUMENT);
    ck_assert_ptr_null(json);
    ck_assert_msg(strstr(err.text, error_rows[_i].says) != NULL, "%s", err.text);
    ck_assert_ptr_null(strstr(err.text, "sesame"));
}
END_TEST

/* The limit of size is the caller's, and inclusive. */
START_TEST(berth_json_parse__size_limit__inclusive)
{
    json_t *json = NULL;

    ck_assert_int_eq(berth_json_parse("{ }", 3, 3, &json, NULL), BERTH_OK);
    json_decref(json);
    ck_assert_int_eq(berth_json_parse("{ }", 3, 2, &json, NULL), BERTH_INVALID_ARGUMENT);
    ck_assert_int_eq(berth_json_parse(NULL, 0, 2, &json, NULL), BERTH_INVALID_ARGUMENT);
}
END_TEST

/* The same object is always the same text. */
START_TEST(berth_json_format__any_order__sorted_and_compact)
{
    json_t *json = parse("{ \"b\" : [1, {\"d\":1, \"c\":2}], \"a\":\"\\u00e9\" }");
    char *text = berth_json_format(json);

    ck_assert_str_eq(text, "{\"a\":\"\xc3\xa9\",\"b\":[1,{\"c\":2,\"d\":1}]}");
    free(text);
    json_decref(json);
}
END_TEST

static const struct {
    const char *text, *absent;
    enum berth_code code;
    const char *got; /* buf holds 5 bytes */
} str_rows[] = {
    {"{\"k\":\"abcd\"}", "d", BERTH_OK, "abcd"},
    {"{\"k\":\"abcde\"}", "d", BERTH_INVALID_ARGUMENT, "kept"},
    {"{\"k\":\"\"}", "d", BERTH_OK, ""},
    {"{\"k\":null}", "d", BERTH_OK, "d"},
    {"{}", "d", BERTH_OK, "d"},
    {"{}", "", BERTH_OK, ""},
    {"{}", NULL, BERTH_INVALID_ARGUMENT, "kept"},
    {"{\"k\":null}", NULL, BERTH_INVALID_ARGUMENT, "kept"},
    {"{\"k\":1}", "d", BERTH_INVALID_ARGUMENT, "kept"},
    {"{\"k\":true}", "d", BERTH_INVALID_ARGUMENT, "kept"},
    {"{\"k\":[]}", "d", BERTH_INVALID_ARGUMENT, "kept"},
    {"{\"k\":{}}", NULL, BERTH_INVALID_ARGUMENT, "kept"},
};

/* A string member, its default, and each way to be none; the buffer is written on success only.
 */
START_TEST(berth_json_get_str__rows)
{
    json_t *json = parse(str_rows[_i].text);
    char buf[5] = "kept";
    struct berth_error err = {0};

    ck_assert_int_eq(berth_json_get_str(json, "k", buf, sizeof buf, str_rows[_i].absent, &err),
                     str_rows[_i].code);
    ck_assert_str_eq(buf, str_rows[_i].got);
    if (str_rows[_i].code)
        ck_assert_str_eq(err.field, "k");
    json_decref(json);
}
END_TEST

static const struct {
    const char *text;
    int64_t min, max;
    enum berth_code code;
    int64_t got;
} int_rows[] = {
    {"{\"k\":5}", 0, 5, BERTH_OK, 5},
    {"{\"k\":0}", 0, 5, BERTH_OK, 0},
    {"{\"k\":6}", 0, 5, BERTH_INVALID_ARGUMENT, 42},
    {"{\"k\":-1}", 0, 5, BERTH_INVALID_ARGUMENT, 42},
    {"{\"k\":9223372036854775807}", INT64_MIN, INT64_MAX, BERTH_OK, INT64_MAX},
    {"{\"k\":-9223372036854775808}", INT64_MIN, INT64_MAX, BERTH_OK, INT64_MIN},
    {"{\"k\":5.0}", 0, 5, BERTH_INVALID_ARGUMENT, 42},
    {"{\"k\":\"5\"}", 0, 5, BERTH_INVALID_ARGUMENT, 42},
    {"{\"k\":true}", 0, 5, BERTH_INVALID_ARGUMENT, 42},
    {"{\"k\":null}", 0, 5, BERTH_OK, 7},
    {"{}", 0, 5, BERTH_OK, 7}, /* the default is the caller's: its range is not checked */
};

START_TEST(berth_json_get_int__rows)
{
    json_t *json = parse(int_rows[_i].text);
    int64_t got = 42;

    ck_assert_int_eq(
        berth_json_get_int(json, "k", int_rows[_i].min, int_rows[_i].max, 7, &got, NULL),
        int_rows[_i].code);
    ck_assert_int_eq(got, int_rows[_i].got);
    json_decref(json);
}
END_TEST

static const struct {
    const char *text;
    enum berth_code code;
    bool got;
} bool_rows[] = {
    {"{\"k\":false}", BERTH_OK, false},
    {"{\"k\":true}", BERTH_OK, true},
    {"{\"k\":null}", BERTH_OK, true},
    {"{}", BERTH_OK, true},
    {"{\"k\":0}", BERTH_INVALID_ARGUMENT, true},
    {"{\"k\":\"false\"}", BERTH_INVALID_ARGUMENT, true},
};

/* Only true and false are booleans; the default here is true. */
START_TEST(berth_json_get_bool__rows)
{
    json_t *json = parse(bool_rows[_i].text);
    bool got = true;

    ck_assert_int_eq(berth_json_get_bool(json, "k", true, &got, NULL), bool_rows[_i].code);
    ck_assert_int_eq(got, bool_rows[_i].got);
    json_decref(json);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("json");

    tcase_add_loop_test(tcase, berth_json_parse__wrong__named_not_quoted, 0,
                        (int)BERTH_COUNT(error_rows));
    tcase_add_test(tcase, berth_json_parse__size_limit__inclusive);
    tcase_add_test(tcase, berth_json_format__any_order__sorted_and_compact);
    tcase_add_loop_test(tcase, berth_json_get_str__rows, 0, (int)BERTH_COUNT(str_rows));
    tcase_add_loop_test(tcase, berth_json_get_int__rows, 0, (int)BERTH_COUNT(int_rows));
    tcase_add_loop_test(tcase, berth_json_get_bool__rows, 0, (int)BERTH_COUNT(bool_rows));
    return run_case("common/json", tcase);
}
