/* history.h - the sweeps of the last 24 hours, and what they did; bounded. Thread-safe. */
#pragma once

#include <stddef.h>

#include "berth/reaper/v1/reaper.pb-c.h"
#include "common/errors/errors.h"

struct reaper_history;

/* NULL: no memory. */
struct reaper_history *reaper_history_new(void);
struct reaper_history *reaper_history_free(struct reaper_history *history);
/* Takes sweep, items and the array. */
void reaper_history_add(struct reaper_history *history, Berth__Reaper__V1__Sweep *sweep,
                        Berth__Reaper__V1__SweepItem **items, size_t n_items);
/* id "": the last one. *ret is owned. Errors: OPERATION_NOT_FOUND, OUT_OF_MEMORY. */
BERTH_MUST_CHECK enum berth_code reaper_history_get(struct reaper_history *history,
                                                    const char *id,
                                                    Berth__Reaper__V1__GetSweepResponse **ret,
                                                    struct berth_error *err);
