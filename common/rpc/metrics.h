/* metrics.h - what is counted of each method, and its Prometheus text. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "common/base/base.h"

enum { RPC_N_CODES = 17, RPC_N_BUCKETS = 15 };

struct rpc_metrics { /* of one method */
    atomic_uint_fast64_t calls[RPC_N_CODES];
    atomic_uint_fast64_t buckets[RPC_N_BUCKETS]; /* the last is for everything slower */
    atomic_uint_fast64_t sum_us;
    atomic_int_fast64_t in_flight;
};

void rpc_metrics_done(struct rpc_metrics *metrics, unsigned code, int64_t ns);

/* A text that grows. data is NULL once memory ran out. */
struct rpc_text {
    char *data;
    size_t len, size;
};

void rpc_text_add(struct rpc_text *text, const char *fmt, ...) BERTH_PRINTF(2, 3);
/* Of all methods of a server, by family as Prometheus wants it. */
void rpc_metrics_text(struct rpc_text *text, const char *const *methods,
                      struct rpc_metrics *const *metrics, size_t n);
