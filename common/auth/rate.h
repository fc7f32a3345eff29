/* rate.h - how often a tenant may call, per process. Bounded; thread-safe. */
#pragma once

#include <stdint.h>

#include "common/base/base.h"

struct berth_rate;

struct berth_rate *berth_rate_new(void); /* NULL: no memory */
struct berth_rate *berth_rate_free(struct berth_rate *rate);
BERTH_DEFINE_AUTO(struct berth_rate *, berth_rate_free)

/* One call of a tenant that may have per_s (> 0) of them a second, and as many at once. 0: go
 * on; else the milliseconds until there is room again. */
int64_t berth_rate_take(struct berth_rate *rate, const char *tenant_id, uint32_t per_s,
                        int64_t tick_ms);
