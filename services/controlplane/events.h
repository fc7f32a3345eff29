/* events.h - those who watch events of tenants. */
#pragma once

#include <stdint.h>

#include "common/errors/errors.h"

struct cp;
struct cp_events;

/* heartbeat_ms: of silence before a sign of life. block_ms: cp_feed_new().
 * Errors: OUT_OF_MEMORY. */
BERTH_MUST_CHECK enum berth_code cp_events_new(struct cp *cp, int64_t heartbeat_ms,
                                               int64_t block_ms, struct cp_events **ret,
                                               struct berth_error *err);
/* After the last stream has closed. NULL is fine. */
struct cp_events *cp_events_free(struct cp_events *events);
/* How many watch now. */
unsigned cp_events_watchers(const struct cp_events *events);
