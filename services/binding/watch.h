/* watch.h - is the store still the one it was: its server, its clock, its deployment, its
 * index? Whoever would create, rebuild or reap asks first. Thread-safe. */
#pragma once

#include "common/redis/redis.h"

struct binding_watch;

/* quarantine_ms: how long nothing is created or reaped after a change was seen; unsure_ms: how
 * long the store may not know turns that run. redis is borrowed. */
BERTH_MUST_CHECK enum berth_code
binding_watch_new(struct berth_redis *redis, const char *deployment, int64_t quarantine_ms,
                  int64_t unsure_ms, struct binding_watch **ret, struct berth_error *err);
struct binding_watch *binding_watch_free(struct binding_watch *watch);
BERTH_DEFINE_AUTO(struct binding_watch *, binding_watch_free)

/* Redis' time now_ms was taken between two ticks of ours. A jump of more than five seconds
 * against our monotonic clock begins a quarantine. */
void binding_watch_clock(struct binding_watch *watch, int64_t now_ms, int64_t before_tick,
                         int64_t after_tick);
/* After an answer of Redis at its time now_ms: a server not met before is asked which one
 * binding knew last, and told that it is this one. So a process that has just started learns of
 * a failover that it has not seen. Costs two trips for each server, otherwise none. */
void binding_watch_meet(struct binding_watch *watch, int64_t now_ms);
/* The index is whole: absence may be believed, and things be created. One trip.
 * Errors: INDEX_RECOVERING, STORE_UNAVAILABLE. */
BERTH_MUST_CHECK enum berth_code binding_watch_whole(struct binding_watch *watch,
                                                     struct berth_error *err);
/* Another server than before, or a jump of the clock, was seen less than quarantine_ms ago.
 * Asks nobody. */
bool binding_watch_quarantined(struct binding_watch *watch);
/* The same, less than unsure_ms ago. */
bool binding_watch_unsure(struct binding_watch *watch);
/* Redis' time, now_ms being the present one, of the last failover or restart that was seen: it
 * may have lost its last writes. 0: none was. Asks nobody. */
int64_t binding_watch_lost(struct binding_watch *watch, int64_t now_ms);
/* The number of the server that was last looked at (berth_redis_servers). */
uint64_t binding_watch_servers(struct binding_watch *watch);
/* Errors: STORE_UNAVAILABLE: it does not answer, was never initialised, or is another
 * deployment's (*ret_wrong, may be NULL). */
BERTH_MUST_CHECK enum berth_code binding_watch_ready(struct binding_watch *watch,
                                                     bool *ret_wrong, struct berth_error *err);
