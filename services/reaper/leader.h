/* leader.h - the one replica that sweeps: a lease in Redis (HASH berth:reaper), renewed on a
 * thread of its own. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/errors/errors.h"
#include "common/redis/redis.h"

struct reaper_leader;

/* name: of this replica, for people; at most 64 characters. Nothing is written into a store
 * that is not the deployment's (yet). */
BERTH_MUST_CHECK enum berth_code reaper_leader_new(struct berth_redis *redis,
                                                   const char *deployment, const char *name,
                                                   int64_t lease_ms, struct reaper_leader **ret,
                                                   struct berth_error *err);
/* Gives the lease back. NULL is fine. */
struct reaper_leader *reaper_leader_free(struct reaper_leader *leader);

/* 0: not leading. Otherwise a number that changes with every term; believed for a part of the
 * lease from the last renewal on, by our monotonic clock. */
uint64_t reaper_leader_term(struct reaper_leader *leader);
/* Try now whether the lease is to be had. */
uint64_t reaper_leader_try(struct reaper_leader *leader);
/* Who leads, as far as is known; "" nobody. buf holds 65 bytes; returns buf. */
const char *reaper_leader_name(struct reaper_leader *leader, char buf[65]);
/* This replica's name. */
const char *reaper_leader_self(const struct reaper_leader *leader);
