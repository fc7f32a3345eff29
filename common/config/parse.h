/* parse.h - the text of one setting into its value; for common/config only. */
#pragma once

#include <stdbool.h>

#include "common/config/config.h"

struct config_value {
    char *text; /* owned; STR and SECRET */
    int64_t number;
    bool flag;
};

/* "must be true or false", by type. Static string. */
const char *config_wanted(enum berth_config_type type);

/* Errors: FIELD_INVALID whose text never holds the value, OUT_OF_MEMORY. */
enum berth_code config_parse(enum berth_config_type type, const char *text,
                             struct config_value *ret, struct berth_error *err);

/* All of a regular file of at most max_size bytes, NUL-terminated; owned.
 * Errors: FIELD_INVALID naming path. */
enum berth_code config_read_file(const char *path, size_t max_size, char **ret,
                                 size_t *ret_size, struct berth_error *err);
