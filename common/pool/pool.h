/* pool.h - a bounded set of worker threads with a bounded queue; work that blocks belongs here.
 */
#pragma once

#include "common/errors/errors.h"

struct berth_pool;
typedef void (*berth_pool_fn)(void *arg);

/* Threads are started as work comes, up to n_workers, and stay. name: at most 11 characters. */
BERTH_MUST_CHECK enum berth_code berth_pool_new(const char *name, unsigned n_workers,
                                                unsigned max_queued, struct berth_pool **ret,
                                                struct berth_error *err);
/* Runs what is queued, joins the workers. NULL is fine. */
struct berth_pool *berth_pool_free(struct berth_pool *pool);
BERTH_DEFINE_AUTO(struct berth_pool *, berth_pool_free)

/* Run fn(arg) on a worker, later. From any thread; never blocks.
 * Errors: OVERLOADED when max_queued are waiting (fn is not called). */
BERTH_MUST_CHECK enum berth_code berth_pool_submit(struct berth_pool *pool, berth_pool_fn fn,
                                                   void *arg, struct berth_error *err);
/* Work that must not be refused: answers that are already promised. Ignores max_queued. */
void berth_pool_submit_must(struct berth_pool *pool, berth_pool_fn fn, void *arg);

/* The same two without allocating: the entry belongs to the caller and is in use until fn has
 * been called (fn may free it). */
struct berth_work {
    struct berth_work *next;
    berth_pool_fn fn;
    void *arg;
};
BERTH_MUST_CHECK enum berth_code berth_pool_submit_entry(struct berth_pool *pool,
                                                         struct berth_work *entry,
                                                         berth_pool_fn fn, void *arg,
                                                         struct berth_error *err);
void berth_pool_submit_entry_must(struct berth_pool *pool, struct berth_work *entry,
                                  berth_pool_fn fn, void *arg);

/* How many wait for a worker just now. */
unsigned berth_pool_queued(struct berth_pool *pool);
