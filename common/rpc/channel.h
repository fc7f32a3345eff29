/* channel.h - the client's side: channels, and what all calls on them share. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "common/rpc/buf.h"
#include "common/rpc/core.h"
#include "common/rpc/status.h"
#include "common/rpc/tls.h"

enum { RPC_CALL_METADATA_MAX = 16 };

struct rpc_retired {
    struct rpc_retired *next;
    grpc_channel *core;
    int64_t tick_ms;
};

struct berth_channel {
    atomic_uint refs;
    char *target; /* as the core has it */
    enum berth_reason unavailable;
    unsigned max_in_flight; /* 0: no limit */
    atomic_uint in_flight;
    atomic_int_fast64_t warn_tick; /* not before, about a peer that cannot be reached */

    struct berth_tls *tls; /* NULL: plaintext, and then core never changes */
    char *server_name;     /* NULL: the host of target */
    pthread_mutex_t mutex; /* with TLS, all below */
    grpc_channel *core;
    uint64_t generation;         /* of the certificates that core has */
    struct rpc_retired *retired; /* cores of the time before, the latest first */
};

struct berth_channel *rpc_channel_ref(struct berth_channel *channel);

/* Metadata ready to be sent. One more than a caller may give: the request's traceparent, the
 * answer's error details. */
struct rpc_call_metadata {
    grpc_metadata entries[RPC_CALL_METADATA_MAX + 1];
    size_t n;
};

/* Errors: FIELD_INVALID (no room, or not allowed in HTTP/2). */
BERTH_MUST_CHECK enum berth_code rpc_call_metadata_add(struct rpc_call_metadata *metadata,
                                                       const struct berth_metadata *from,
                                                       struct berth_error *err);

/* Errors: FIELD_INVALID (too many, or not allowed in HTTP/2). */
BERTH_MUST_CHECK enum berth_code
rpc_call_metadata_init(struct rpc_call_metadata *metadata,
                       const struct berth_call_options *options, struct berth_error *err);
void rpc_call_metadata_deinit(struct rpc_call_metadata *metadata);

/* Of what was received: the first value of a key, borrowed, or NULL. */
const void *rpc_metadata_find(const grpc_metadata_array *metadata, const char *key,
                              size_t *ret_size);

/* What callers are told of a call that could not be sent: nothing of where the peer is. why,
 * the core's, goes to the log, now and then. Static text. */
const char *rpc_channel_unsent(struct berth_channel *channel, const char *why);

/* The caller's timeout (0: default_ms), no later than the parent's deadline. */
int64_t rpc_call_timeout_ms(const struct berth_call_options *options, int64_t default_ms);

grpc_call *rpc_channel_create_call(struct berth_channel *channel, grpc_completion_queue *queue,
                                   const char *path, gpr_timespec deadline);

/* Whether a call that ended in UNAVAILABLE got as far as a connection. */
bool rpc_call_was_sent(const struct berth_channel *channel, grpc_call *call);
