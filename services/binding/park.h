/* park.h - callers that wait for a session's lock. They hold no worker: one thread keeps the
 * time, and one job per session looks for all its waiters at once, in the order they came. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/pool/pool.h"

struct binding_park;

/* Embedded in what waits; its members belong to park between park_add() and the answer. */
struct binding_waiter {
    struct binding_waiter *next;
    int64_t give_up_tick; /* set before binding_park_add() */
};

/* A look at one session for all that wait for it. waiters: a list in the order they came.
 * Answers each that can be answered (also those whose time is up or whose caller is gone) and
 * returns the list of those that go on waiting, in the same order. May block. */
typedef struct binding_waiter *(*binding_look_fn)(void *ctx, const char *key,
                                                  struct binding_waiter *waiters);

struct binding_park_options {
    struct berth_pool *pool; /* borrowed: looks run here */
    binding_look_fn look;
    void *ctx;
    int64_t first_ms; /* until the first look; 0: 5 */
    int64_t most_ms;  /* between looks, which grow apart; 0: 100 */
    size_t max_waiters;
};

BERTH_MUST_CHECK enum berth_code binding_park_new(const struct binding_park_options *options,
                                                  struct binding_park **ret,
                                                  struct berth_error *err);
/* Nobody may wait any more, and none be added. */
struct binding_park *binding_park_free(struct binding_park *park);
BERTH_DEFINE_AUTO(struct binding_park *, binding_park_free)

/* key is copied. Errors: OVERLOADED when max_waiters wait already; OUT_OF_MEMORY. */
BERTH_MUST_CHECK enum berth_code binding_park_add(struct binding_park *park, const char *key,
                                                  struct binding_waiter *waiter,
                                                  struct berth_error *err);
/* Something about the session has changed here: look now. */
void binding_park_kick(struct binding_park *park, const char *key);
/* Somebody waits for the session: who comes later has to queue. */
bool binding_park_has(struct binding_park *park, const char *key);
size_t binding_park_count(struct binding_park *park);
