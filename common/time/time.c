#include "common/time/time.h"

#include <stdio.h>
#include <time.h>

static const struct {
    const char *suffix;
    int64_t ms;
} units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}};

static const int64_t DURATION_MAX_MS = INT64_C(100) * 365 * 86400000;

static int64_t read_ns(clockid_t clock)
{
    struct timespec ts;

    clock_gettime(clock, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

int64_t berth_now_ms(void)
{
    return read_ns(CLOCK_REALTIME) / 1000000;
}

int64_t berth_tick_ms(void)
{
    return read_ns(CLOCK_MONOTONIC) / 1000000;
}

int64_t berth_tick_ns(void)
{
    return read_ns(CLOCK_MONOTONIC);
}

static enum berth_code refuse(struct berth_error *err, const char *why)
{
    return berth_fail(err, BERTH_REASON_FIELD_INVALID,
                      "%s; wanted a whole number with a unit: 250ms, 5s, 10m, 24h or 7d", why);
}

enum berth_code berth_parse_duration(const char *text, int64_t *ret_ms, struct berth_error *err)
{
    const char *at = text;
    int64_t number = 0;

    if (!text || *text < '0' || *text > '9')
        return refuse(err, "not a duration");
    for (; *at >= '0' && *at <= '9'; at++) {
        number = number * 10 + (*at - '0');
        if (number > DURATION_MAX_MS)
            return refuse(err, "more than 100 years");
    }
    for (size_t i = 0; i < BERTH_COUNT(units); i++) {
        if (strcmp(at, units[i].suffix) != 0)
            continue;
        if (number > DURATION_MAX_MS / units[i].ms)
            return refuse(err, "more than 100 years");
        *ret_ms = number * units[i].ms;
        return BERTH_OK;
    }
    return refuse(err, *at ? "unknown unit" : "a number without a unit");
}

const char *berth_format_time(char buf[32], int64_t wall_ms)
{
    int64_t seconds = wall_ms / 1000;
    int ms = (int)(wall_ms % 1000);
    struct tm tm;
    time_t when;

    if (ms < 0) {
        ms += 1000;
        seconds--;
    }
    when = (time_t)seconds;
    if (!gmtime_r(&when, &tm) || tm.tm_year > 8099 || tm.tm_year < -1900) {
        snprintf(buf, 32, "%s",
                 wall_ms < 0 ? "0000-01-01T00:00:00.000Z" : "9999-12-31T23:59:59.999Z");
        return buf;
    }
    snprintf(buf, 32, "%04u-%02u-%02uT%02u:%02u:%02u.%03uZ",
             (unsigned)(tm.tm_year + 1900) % 10000, (unsigned)(tm.tm_mon + 1) % 100,
             (unsigned)tm.tm_mday % 100, (unsigned)tm.tm_hour % 100, (unsigned)tm.tm_min % 100,
             (unsigned)tm.tm_sec % 100, (unsigned)ms % 1000);
    return buf;
}
