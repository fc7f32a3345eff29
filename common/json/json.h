/* json.h - jansson with the limits and the strictness that stored and foreign JSON need. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/errors/errors.h"

/* Parse exactly one object of size bytes: no duplicate keys, nothing behind it, at most 64
 * deep, at most max_size bytes. Errors: FIELD_INVALID ("line 3: ..."; never quotes the input,
 * which may hold a secret), OUT_OF_MEMORY. */
BERTH_MUST_CHECK enum berth_code berth_json_parse(const char *text, size_t size,
                                                  size_t max_size, json_t **ret,
                                                  struct berth_error *err);
/* Compact, keys sorted; owned string. NULL: no memory. */
char *berth_json_format(const json_t *json);

/* Members. Absent or null: the default (a string with absent NULL must be there). Wrong type,
 * out of range or too long for buf: FIELD_INVALID naming key; the output is then left alone. */
BERTH_MUST_CHECK enum berth_code berth_json_get_str(const json_t *object, const char *key,
                                                    char *buf, size_t size, const char *absent,
                                                    struct berth_error *err);
BERTH_MUST_CHECK enum berth_code berth_json_get_int(const json_t *object, const char *key,
                                                    int64_t min, int64_t max, int64_t absent,
                                                    int64_t *ret, struct berth_error *err);
BERTH_MUST_CHECK enum berth_code berth_json_get_bool(const json_t *object, const char *key,
                                                     bool absent, bool *ret,
                                                     struct berth_error *err);
