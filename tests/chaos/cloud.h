/* cloud.h - a sandbox backend that somebody else runs, as bad as they come: what is asked of it
 * may take effect late, twice, or without an answer, and a list may lag behind. What becomes of
 * the n-th create of a key follows from the seed alone. Everything it does is in its log.
 *
 * A line of the log: "<monotonic ns> <what> <sandbox id> <session> <attempt>", what being
 * made, gone, paused, resumed, or (id "-") listed with how many and for how long in ns. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "services/adapter/adapter.h"

/* How a call is treated. */
enum cloud_fate {
    CLOUD_OBEY,
    CLOUD_SLOW,     /* takes effect at some time while the caller waits */
    CLOUD_LOST,     /* takes effect, and the answer is lost */
    CLOUD_LATE,     /* no answer, and takes effect some time later */
    CLOUD_REPEATED, /* takes effect twice, now and late */
    CLOUD_REFUSED,
};

/* Lies that a test must see. */
enum cloud_lie {
    CLOUD_HONEST,
    CLOUD_LATER_THAN_TOLD, /* creates land long after the horizon */
    CLOUD_DELETES_NOTHING, /* a delete is answered, and nothing done */
};

struct cloud_options {
    uint64_t seed;
    bool keyed;         /* one sandbox per key, fences compared, nothing late */
    unsigned trouble;   /* of a thousand calls, how many go wrong */
    int64_t horizon_ms; /* of a late create */
    int64_t create_ms;  /* how long a create takes */
    enum cloud_lie lie;
    const char *log_path;
    const char *calm_path; /* nothing goes wrong any more once this file is there */
};

/* Errors: FIELD_INVALID (log), OUT_OF_MEMORY. */
BERTH_MUST_CHECK enum berth_code cloud_new(const struct cloud_options *options,
                                           struct adapter **ret, struct berth_error *err);
struct adapter *cloud_free(struct adapter *cloud);

/* The fate of the n-th call of a kind about a key: a pure function. */
enum cloud_fate cloud_fate(uint64_t seed, unsigned trouble, const char *kind, const char *key,
                           uint64_t n, uint64_t *ret_dice);

extern const struct adapter_ops cloud_ops;
