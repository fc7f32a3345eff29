/* server.h - the server and one call on it, as the files of common/rpc see them. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "common/rpc/accept.h"
#include "common/rpc/channel.h"
#include "common/rpc/core.h"
#include "common/rpc/metrics.h"
#include "common/rpc/status.h"
#include "common/rpc/tls_accept.h"
#include "common/rpc/trace.h"

/* Besides enum berth_method_flags: also served to non-peers and while draining. */
enum { RPC_METHOD_ALWAYS = 1 << 16 };

struct rpc_method {
    struct berth_method def;
    void *service;
    struct rpc_metrics metrics;
};

struct rpc_health;
struct rpc_reflection;

struct berth_server {
    struct berth_loop *loop;
    struct berth_pool *pool, *priority_pool;
    bool peers_only, insecure_dev;
    const struct berth_gate *gate; /* NULL: none */

    struct rpc_method **methods; /* sorted by path once started */
    size_t n_methods;
    struct rpc_method unknown;
    struct rpc_health *health;
    struct rpc_reflection *reflection;

    grpc_server *core;
    bool started, stopped;
    struct rpc_acceptor *acceptor;
    void (*on_drain)(void *arg); /* or NULL */
    void *on_drain_arg;
    struct rpc_tls_door door;
    struct rpc_peer_sans peer_sans;
    struct rpc_tag shutdown_tag;
    atomic_bool draining;       /* new calls are answered DRAINING */
    atomic_bool shutting;       /* no more calls are asked for */
    atomic_size_t queued_bytes; /* of requests that wait for a worker */
    atomic_size_t unread_bytes; /* of unary answers that the callers have not taken yet */
    atomic_uint_fast64_t n_overloaded;

    pthread_mutex_t mutex; /* all below */
    pthread_cond_t changed;
    size_t n_asked; /* calls that the core was asked for and has not handed over */
    size_t n_live;  /* calls accepted and not freed */
    bool core_stopped, acceptor_stopped;
    int64_t log_second; /* bounded logging: the second that n_logged counts in */
    unsigned n_logged, n_not_logged;
};

struct berth_call {
    struct berth_server *server;
    grpc_call *core;
    const struct rpc_method *method; /* never NULL once accepted */
    grpc_call_details details;
    grpc_metadata_array metadata;
    atomic_uint refs; /* one per operation in flight, handler and user */
    atomic_bool cancelled, answered;
    bool is_peer, finished;
    int fd;              /* of a plaintext connection of a non-peer, else -1 */
    unsigned connection; /* its number, see frames.h */
    char *peer_name;     /* NULL: nobody vouches for one */
    void *user;          /* of the gate */
    void (*release_user)(void *user);
    int core_cancelled;
    int64_t start_ns;
    char request_id[RPC_REQUEST_ID_SIZE];
    char traceparent[RPC_TRACEPARENT_SIZE];

    struct rpc_call_metadata *answer[2]; /* by enum berth_metadata_kind; NULL: none */

    struct rpc_tag new_tag, close_tag, receive_tag, finish_tag;
    grpc_byte_buffer *received;

    /* unary */
    struct berth_work work;
    size_t queued_size, unread_size;
    ProtobufCMessage *request;
    /* evented */
    struct berth_post post;
    struct berth_stream *stream; /* NULL: not begun, or closed */
};

/* server.c */
void rpc_server_ask(struct berth_server *server); /* for one more call */
/* Add one method; flags may hold RPC_METHOD_ALWAYS. */
BERTH_MUST_CHECK enum berth_code rpc_server_add(struct berth_server *server,
                                                const struct berth_method *method,
                                                void *service, struct berth_error *err);

/* call.c: what all calls have in common */
struct berth_call *rpc_call_new(struct berth_server *server);
void rpc_call_accept(struct berth_call *call); /* it has arrived: who, what, since when */
/* Counts and logs the end of a call. */
void rpc_call_note_end(struct berth_call *call, enum berth_code code,
                       const struct berth_error *err, const char *text);
/* Fill the operation that sends a status; trailing is room for one entry, in use until the
 * batch has been started. */
void rpc_call_status_op(const struct berth_call *call, const struct rpc_status *status,
                        grpc_metadata *trailing, grpc_op *op);
void rpc_call_initial_op(const struct berth_call *call, grpc_op *op);

/* unary.c */
void rpc_unary_begin(struct berth_call *call); /* takes one ref */
/* Ends a call that has sent nothing yet: response (borrowed) or error. Once. */
void rpc_unary_finish(struct berth_call *call, enum berth_code code,
                      const ProtobufCMessage *response, const struct berth_error *err);

/* stream_server.c */
void rpc_stream_begin(struct berth_call *call); /* takes one ref */

/* health.c, reflection.c */
void rpc_health_drain(struct berth_server *server); /* loop thread: end all watches */
void rpc_health_free(struct rpc_health *health);
void rpc_reflection_free(struct rpc_reflection *reflection);
