#include "common/time/time.h"

#include <time.h>

#include "tests/unit/base/main.h"

static const struct {
    const char *text;
    int64_t ms; /* -1: refused */
} duration_rows[] = {
    {"0ms", 0},
    {"0s", 0},
    {"1ms", 1},
    {"250ms", 250},
    {"5s", 5000},
    {"007s", 7000},
    {"10m", 600000},
    {"24h", 86400000},
    {"7d", 604800000},
    {"36500d", INT64_C(3153600000000)},
    {"36501d", -1},
    {"3153600000000ms", INT64_C(3153600000000)},
    {"3153600000001ms", -1},
    {"9223372036854775807d", -1},
    {"9223372036854775808ms", -1},
    {"99999999999999999999999s", -1},
    {"", -1},
    {NULL, -1},
    {"0", -1},
    {"10", -1},
    {"s", -1},
    {"-1s", -1},
    {"+1s", -1},
    {" 1s", -1},
    {"1 s", -1},
    {"1s ", -1},
    {"1S", -1},
    {"1.5s", -1},
    {"1e3s", -1},
    {"0x10s", -1},
    {"1sec", -1},
    {"1m30s", -1},
    {"1us", -1},
    {"\xd9\xa1s", -1}, /* a digit, but not one of ours */
};

/* Numbers with a unit, and nothing else; refusals leave the output alone. */
START_TEST(berth_parse_duration__rows)
{
    struct berth_error err = {0};
    int64_t ms = 42;
    enum berth_code code = berth_parse_duration(duration_rows[_i].text, &ms, &err);

    if (duration_rows[_i].ms < 0) {
        ck_assert_int_eq(code, BERTH_INVALID_ARGUMENT);
        ck_assert_int_eq(err.reason, BERTH_REASON_FIELD_INVALID);
        ck_assert_int_eq(ms, 42);
    } else {
        ck_assert_int_eq(code, BERTH_OK);
        ck_assert_int_eq(ms, duration_rows[_i].ms);
    }
}
END_TEST

static const struct {
    int64_t ms;
    const char *text;
} time_rows[] = {
    {0, "1970-01-01T00:00:00.000Z"},
    {1, "1970-01-01T00:00:00.001Z"},
    {-1, "1969-12-31T23:59:59.999Z"},
    {-1000, "1969-12-31T23:59:59.000Z"},
    {INT64_C(1796079079123), "2026-11-30T22:51:19.123Z"},
    {INT64_C(951782400000), "2000-02-29T00:00:00.000Z"},
    {INT64_C(253402300799999), "9999-12-31T23:59:59.999Z"},
    {INT64_C(253402300800000), "9999-12-31T23:59:59.999Z"},
    {INT64_MAX, "9999-12-31T23:59:59.999Z"},
    {INT64_C(-62167219200000), "0000-01-01T00:00:00.000Z"},
    {INT64_MIN, "0000-01-01T00:00:00.000Z"},
};

/* RFC 3339 in UTC, with milliseconds; what does not fit is the nearest that does. */
START_TEST(berth_format_time__rows)
{
    char buf[32];

    ck_assert_str_eq(berth_format_time(buf, time_rows[_i].ms), time_rows[_i].text);
}
END_TEST

/* The clocks are the ones they say they are. */
START_TEST(berth_now_ms__against_time__same_clock)
{
    int64_t tick = berth_tick_ms(), ns = berth_tick_ns();

    ck_assert_int_le(llabs(berth_now_ms() / 1000 - (int64_t)time(NULL)), 1);
    ck_assert_int_ge(berth_tick_ms(), tick);
    ck_assert_int_ge(berth_tick_ns(), ns);
    ck_assert_int_le(llabs(ns / 1000000 - tick), 1000);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("time");

    tcase_add_loop_test(tcase, berth_parse_duration__rows, 0, (int)BERTH_COUNT(duration_rows));
    tcase_add_loop_test(tcase, berth_format_time__rows, 0, (int)BERTH_COUNT(time_rows));
    tcase_add_test(tcase, berth_now_ms__against_time__same_clock);
    return run_case("common/time", tcase);
}
