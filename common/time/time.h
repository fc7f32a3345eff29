/* time.h - clocks and durations. now_ms is the wall clock, tick_ms the monotonic one. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/errors/errors.h"

int64_t berth_now_ms(void);  /* wall clock, milliseconds since the Unix epoch */
int64_t berth_tick_ms(void); /* monotonic, milliseconds since some fixed point */
int64_t berth_tick_ns(void); /* monotonic, nanoseconds */

/* "250ms", "5s", "10m", "24h", "7d"; a bare number is refused. Not negative, at most 100 years.
 * Errors: FIELD_INVALID. */
BERTH_MUST_CHECK enum berth_code berth_parse_duration(const char *text, int64_t *ret_ms,
                                                      struct berth_error *err);

/* "2026-11-30T22:51:19.123Z". buf holds at least 32 bytes; returns buf. */
const char *berth_format_time(char buf[32], int64_t wall_ms);
