/* config.h - a service's settings: one table gives name, type, default and place. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/errors/errors.h"

enum berth_config_type {
    BERTH_CONFIG_STR,
    BERTH_CONFIG_INT,   /* int64_t */
    BERTH_CONFIG_MS,    /* int64_t milliseconds: "250ms", "5s", "10m" */
    BERTH_CONFIG_BYTES, /* int64_t bytes: "64KiB", "1GiB", "4096" */
    BERTH_CONFIG_BOOL,  /* bool: true, false */
    BERTH_CONFIG_SECRET /* a string that is never printed; "@/path" reads the file. On the
                           command line "@/path" is the only form, since anybody can read that
                         */
};

struct berth_config_key {
    const char *name; /* JSON key; also BERTH_<NAME> in the environment and --<name>= (there '-'
                         counts as '_') */
    enum berth_config_type type;
    size_t offset;     /* of a char *, int64_t or bool inside the service's struct */
    const char *value; /* default as text; NULL: must be given */
    const char *doc;   /* printed by --help */
};

/* Defaults, then the JSON file (json_path NULL: none; unknown keys refused), then the
 * environment (where a secret is wiped as soon as it was read), then overrides ("name=value", n
 * of them). Strings in out are owned by out; free with berth_config_deinit(). Nothing is left
 * behind in out on failure. Errors: FIELD_INVALID naming the key and where its value came from,
 * never the value. */
BERTH_MUST_CHECK enum berth_code berth_config_load(const struct berth_config_key *keys,
                                                   size_t n_keys, const char *json_path,
                                                   const char *const *overrides,
                                                   size_t n_overrides, void *out,
                                                   struct berth_error *err);
void berth_config_deinit(const struct berth_config_key *keys, size_t n_keys, void *out);
/* One line per key for --help, or per value (secrets as "set"/"unset") with out not NULL.
 * Owned string. */
char *berth_config_describe(const struct berth_config_key *keys, size_t n_keys,
                            const void *out);
