/* fields.h - the checks every decode function makes, so that one rule has one text everywhere.
 * protobuf-c hands over absent strings as "" and absent messages as NULL. `field` is the proto
 * path ("session.tenant_id"). All fail with FIELD_INVALID naming field and rule. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/errors/errors.h"

enum { BERTH_ID_MAX = 128 };

/* 1..128 of [A-Za-z0-9._-]; "." and ".." are refused. */
BERTH_MUST_CHECK enum berth_code berth_check_id(const char *field, const char *value,
                                                struct berth_error *err);
/* As above, or "". */
BERTH_MUST_CHECK enum berth_code berth_check_id_or_empty(const char *field, const char *value,
                                                         struct berth_error *err);
/* min..max characters (code points) of UTF-8 without control characters. */
BERTH_MUST_CHECK enum berth_code berth_check_text(const char *field, const char *value,
                                                  size_t min_len, size_t max_len,
                                                  struct berth_error *err);
/* A message that must be there. */
BERTH_MUST_CHECK enum berth_code berth_check_present(const char *field, const void *message,
                                                     struct berth_error *err);
/* An enum number: one of 0..max known values, 0 only if zero_ok. */
BERTH_MUST_CHECK enum berth_code berth_check_enum(const char *field, int value, int max,
                                                  bool zero_ok, struct berth_error *err);
/* An entry of a list of enum numbers: one of 1..max. It is there, so 0 is not one that is
 * missing. */
BERTH_MUST_CHECK enum berth_code berth_check_enum_entry(const char *field, int value, int max,
                                                        struct berth_error *err);
/* A google.protobuf.Duration given as its parts: not negative, nanos 0..999999999, at most
 * max_ms. *ret_ms rounds up to a whole millisecond. */
BERTH_MUST_CHECK enum berth_code berth_check_duration(const char *field, int64_t seconds,
                                                      int32_t nanos, int64_t max_ms,
                                                      int64_t *ret_ms, struct berth_error *err);
/* An absolute, clean path: starts with '/', no "//", no "." or ".." component, no trailing '/'
 * but "/" itself, 1..4096 bytes, no component over 255 bytes. */
BERTH_MUST_CHECK enum berth_code berth_check_path(const char *field, const char *value,
                                                  struct berth_error *err);
/* Label or env key, 1..128 bytes: [A-Za-z0-9._/-] (label) or a shell name
 * [A-Za-z_][A-Za-z0-9_]* (env). */
BERTH_MUST_CHECK enum berth_code berth_check_label_key(const char *field, const char *value,
                                                       struct berth_error *err);
BERTH_MUST_CHECK enum berth_code berth_check_env_name(const char *field, const char *value,
                                                      struct berth_error *err);
/* page_size: 0 -> 50, over 1000 -> 1000, negative refused. */
BERTH_MUST_CHECK enum berth_code berth_check_page_size(const char *field, int32_t value,
                                                       uint32_t *ret_size,
                                                       struct berth_error *err);

/* Is value valid UTF-8 without NUL (size bytes)? */
bool berth_utf8_valid(const void *value, size_t size);
/* Owned copy of size bytes as valid UTF-8: each bad byte and NUL becomes U+FFFD. */
char *berth_utf8_lossy(const void *value, size_t size);
