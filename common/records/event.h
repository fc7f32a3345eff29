/* event.h - an entry of a tenant's event stream, berth:{<tenant>}:ev, written in the same
 * compare-and-set as the change it tells of.
 *
 * Fields: kind (an EventKind without its prefix), event_id, session, config, sandbox, seq,
 * at_ms (Redis' time of the write), observe_ms (the same, where it was seen later than it
 * happened), attributes (JSON object of strings); those that would be empty are left out. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/errors/errors.h"
#include "common/redis/redis.h"

enum { BERTH_EVENTS_KEPT = 100000 }; /* of a tenant, about */

/* All borrowed; NULL counts as "". */
struct berth_event {
    const char *kind;
    const char *session_id;
    const char *config_id;
    const char *sandbox_id;
    uint64_t session_seq; /* 0: not an event of a session */
    const json_t *attributes;
    bool observed;
};

/* With a new event_id of 128 random bits. Errors: OUT_OF_MEMORY (what does not fit in cas
 * itself shows when that is run). */
BERTH_MUST_CHECK enum berth_code berth_event_write(struct berth_cas *cas, const char *tenant,
                                                   const struct berth_event *event,
                                                   struct berth_error *err);
