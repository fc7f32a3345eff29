/* changes.h - what has changed in the records, told through Redis to all who keep some of them
 * in memory. A stream, so that who was away for a moment misses nothing. A hint: nothing is
 * kept for longer than 5 s without having been read again, so that a change that nobody could
 * tell counts by then. */
#pragma once

#include <stdint.h>

#include "common/redis/redis.h"

enum berth_change_kind {
    BERTH_CHANGE_ALL, /* anything may have changed: nobody was listening for a while */
    BERTH_CHANGE_TENANT,
    BERTH_CHANGE_CONFIG,
    BERTH_CHANGE_TOKEN,
};

struct berth_change {
    enum berth_change_kind kind;
    char tenant_id[129];
    char id[129]; /* of a config or a token; "": none */
};

/* Tell all who listen, ourselves included. What cannot be told is logged. */
void berth_change_tell(struct berth_redis *redis, const struct berth_change *change);

struct berth_changes;
typedef void (*berth_change_fn)(void *arg, const struct berth_change *change);

/* Listen, on a thread that calls fn. Holds one of redis' connections, for calls of block_ms,
 * which must be less than a command may take. */
BERTH_MUST_CHECK enum berth_code berth_changes_new(struct berth_redis *redis, int64_t block_ms,
                                                   berth_change_fn fn, void *arg,
                                                   struct berth_changes **ret,
                                                   struct berth_error *err);
/* fn is not called any more when it returns. NULL is fine. */
struct berth_changes *berth_changes_free(struct berth_changes *changes);
BERTH_DEFINE_AUTO(struct berth_changes *, berth_changes_free)
