/* bulkhead.h - keeps backend calls from taking every worker (design section 12): work for one
 * endpoint waits in that endpoint's own queue, at most 16 of it run at once, and all of it
 * together leaves 8 workers free. A job that waits holds no worker. Thread-safe. */
#pragma once

#include "common/errors/errors.h"
#include "common/pool/pool.h"

struct cp_bulkhead;

struct cp_bulkhead_options {
    unsigned max_running;  /* of all endpoints */
    unsigned per_endpoint; /* 0: 16 */
    unsigned max_queued;   /* of one endpoint; 0: 1024 */
};

BERTH_MUST_CHECK enum berth_code cp_bulkhead_new(struct berth_pool *pool,
                                                 const struct cp_bulkhead_options *options,
                                                 struct cp_bulkhead **ret,
                                                 struct berth_error *err);
/* Waits until everything that was submitted has run. NULL is fine. */
struct cp_bulkhead *cp_bulkhead_free(struct cp_bulkhead *bulkhead);
BERTH_DEFINE_AUTO(struct cp_bulkhead *, cp_bulkhead_free)

/* Run fn(arg) on a worker when the endpoint has room. endpoint: any text that names it; copied.
 * Errors: OVERLOADED when max_queued are waiting there (fn is not called); OUT_OF_MEMORY. */
BERTH_MUST_CHECK enum berth_code cp_bulkhead_submit(struct cp_bulkhead *bulkhead,
                                                    const char *endpoint, berth_pool_fn fn,
                                                    void *arg, struct berth_error *err);

/* Running and waiting jobs, for metrics and tests. */
void cp_bulkhead_count(struct cp_bulkhead *bulkhead, unsigned *ret_running,
                       unsigned *ret_queued);
