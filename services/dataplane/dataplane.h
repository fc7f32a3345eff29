/* dataplane.h - the parts of the data plane. All but dataplane_new(), _free(), _ready() and
 * _metrics() run on the loop thread, and all state belongs to it. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "berth/common/v1/common.pb-c.h"
#include "berth/control/v1/control.pb-c.h"
#include "common/auth/auth.h"
#include "common/data/data.h"
#include "common/errors/errors.h"
#include "common/loop/loop.h"
#include "common/rpc/rpc.h"

enum {
    DP_BACKENDS_MAX = 8,
    DP_BACKEND_NAME_MAX = 24,
    DP_ROUTE_MAX = 48 << 10, /* bytes of a packed DataPlaneEndpoint: it travels as metadata */
    DP_KEPT_MAX = 4,         /* messages kept for one repeat, and */
    DP_KEPT_BYTES_MAX = 256 << 10, /* their bytes, the first (always kept) not counted */
    DP_USE_CALLS_MAX = 256,        /* RenewUse calls in flight */
};

/* ------------------------------------------------------------------ peers */

/* A service that is called. Streams are spread over connections, since one HTTP/2 connection
 * carries a limited number and would let the rest wait without a word. */
struct dp_peer;

/* Asked for one more connection when those there are carry all the streams they may. */
typedef enum berth_code (*dp_connect_fn)(void *arg, struct berth_channel **ret,
                                         struct berth_error *err);

BERTH_MUST_CHECK enum berth_code dp_peer_new(dp_connect_fn connect, void *arg,
                                             struct dp_peer **ret, struct berth_error *err);
struct dp_peer *dp_peer_free(struct dp_peer *peer);
/* The first connection, for readiness; borrowed. */
struct berth_channel *dp_peer_channel(struct dp_peer *peer);

/* ---------------------------------------------------------------- service */

struct dataplane_options {
    struct berth_loop *loop; /* borrowed; runs until dataplane_free() has returned */
    struct berth_pool *pool; /* the same: for files of the blob store; NULL: there is none */
    int64_t max_streams;     /* calls at once; more are OVERLOADED */
    int64_t use_after_ms;    /* age from which a stream holds a use token */
    int64_t use_renew_ms;
    int64_t resolve_timeout_ms;
    int64_t
        stall_ms; /* how long an adapter may owe an answer, besides the command's own time */
};

struct dp_stream;
struct dp_use;
struct dp_linger;
struct blobs;

struct dp_backend {
    char name[DP_BACKEND_NAME_MAX];
    struct dp_peer *adapter; /* owned */
};

struct dp_counters {
    atomic_uint_fast64_t streams, streams_total, bytes_in, bytes_out, resolves,
        resolve_failures, retries, uses, use_failures, refused, stalled, losses_told,
        workspaces_out, workspaces_in, workspaces_failed, blobs_swept;
};

struct dataplane {
    struct dataplane_options options;
    struct dp_peer *controlplane; /* owned */
    struct dp_backend backends[DP_BACKENDS_MAX];
    size_t n_backends;
    struct dp_counters counters;

    /* The loop's. */
    struct dp_stream *streams; /* all, doubly linked */
    struct dp_use *uses;       /* all, doubly linked */
    struct dp_use *due, **due_end;
    struct dp_linger *lingers; /* all, doubly linked */
    unsigned n_lingers, n_looks;
    unsigned n_use_calls;
    bool use_failing; /* the last RenewUse failed; to log changes only */
    unsigned n_unary; /* unary calls that have not closed */
    unsigned n_moves; /* MoveWorkspace and sweeps of the blob store */
    struct berth_timer *blob_sweep;
    struct blobs *blobs; /* owned; NULL: CAPABILITY_MISSING */
    struct berth_timer *sweep;
    void (*drained)(void *arg); /* set while dataplane_free() waits */
    void *drained_arg;
    void *owner; /* whoever made it; not looked at */
};

/* Takes controlplane. Add the backends before the first call. */
BERTH_MUST_CHECK enum berth_code dataplane_new(const struct dataplane_options *options,
                                               struct dp_peer *controlplane,
                                               struct dataplane **ret, struct berth_error *err);
/* Takes adapter, also on failure. Errors: FIELD_INVALID for too many or too long a name. */
BERTH_MUST_CHECK enum berth_code dataplane_add_backend(struct dataplane *dp, const char *name,
                                                       struct dp_peer *adapter,
                                                       struct berth_error *err);
/* The blob store, taken; swept from now on. Once, before the first call. */
void dataplane_set_blobs(struct dataplane *dp, struct blobs *blobs);
/* No call may be open. Waits (at most a second) until use tokens are given back. Not from the
 * loop. NULL is fine. */
struct dataplane *dataplane_free(struct dataplane *dp);
BERTH_DEFINE_AUTO(struct dataplane *, dataplane_free)

/* Prometheus text; owned. Any thread. */
char *dataplane_metrics(struct dataplane *dp);

extern const struct berth_method dataplane_methods[];
extern const size_t n_dataplane_methods;

/* ---------------------------------------------------------------- methods */

enum dp_method_flags {
    DP_CLIENT_STREAM = 1, /* messages after the first are forwarded */
    DP_READ_ONLY = 2,     /* a repeat does no harm: a broken connection is UNAVAILABLE */
    DP_NO_STALL = 4,      /* silence is normal for any length of time */
    DP_MANY_ANSWERS = 8,  /* the adapter's messages are a stream */
    DP_TELLS_LOSS = 16,   /* the (first) answer has a place for what the session lost */
};

struct dp_method {
    const char *path;
    const ProtobufCMessageDescriptor *request;
    const ProtobufCMessageDescriptor *response; /* one message of it */
    Berth__Control__V1__ResolveMode mode;
    unsigned flags;
};

/* pump.c: a call has come. */
enum berth_code dp_stream_open(struct dataplane *dp, const struct dp_method *method,
                               struct berth_stream *caller,
                               const struct berth_stream_ops **ret_ops, void **ret_ctx,
                               struct berth_error *err);
/* move.c: MoveWorkspace. */
enum berth_code dp_move_open(void *service, struct berth_stream *stream,
                             const struct berth_stream_ops **ret_ops, void **ret_ctx,
                             struct berth_error *err);
/* Look after streams that are old or stalled. */
void dp_streams_sweep(struct dataplane *dp, int64_t tick_ms);
/* Arm the sweep if there is anything to look after. */
void dp_sweep_arm(struct dataplane *dp);

/* ------------------------------------------------------------ calls (unary) */

/* A unary call to a peer as an evented stream. fn is called once, on the loop, never from
 * inside dp_unary_start(); code BERTH_OK: resp is taken. Otherwise status is as received
 * (borrowed), or NULL when err was made here. */
typedef void (*dp_unary_fn)(void *arg, enum berth_code code, ProtobufCMessage *resp,
                            const struct berth_status *status, const struct berth_error *err);
struct dp_unary;

/* NULL: no memory or no connection; err is filled and fn is not called. */
struct dp_unary *dp_unary_start(struct dataplane *dp, struct dp_peer *peer, const char *path,
                                const ProtobufCMessage *req,
                                const ProtobufCMessageDescriptor *resp_type,
                                const struct berth_call_options *options, dp_unary_fn fn,
                                void *arg, struct berth_error *err);
/* fn will not be called any more. */
void dp_unary_cancel(struct dp_unary *call);

/* A stream on one of peer's connections. Give the slot back with dp_peer_done() when it closed.
 */
struct berth_stream *dp_peer_stream(struct dp_peer *peer, const char *path,
                                    const struct berth_call_options *options,
                                    struct berth_loop *loop, const struct berth_stream_ops *ops,
                                    void *ctx, unsigned *ret_slot, struct berth_error *err);
void dp_peer_done(struct dp_peer *peer, unsigned slot);

/* ----------------------------------------------------------------- routes */

/* What a resolve answered, judged. */
struct dp_route {
    struct dp_peer *adapter; /* borrowed from the service */
    char *sandbox_id;        /* owned */
    uint8_t *packed;         /* owned: berth-route-bin */
    size_t packed_size;
    struct dp_policy {
        int64_t timeout_ms, timeout_max_ms; /* 0 = none, no maximum */
        bool root;
    } policy;
    Berth__Control__V1__SandboxLoss *loss; /* owned; not told yet, or NULL */
};
void dp_route_deinit(struct dp_route *route);

/**
 * dp_route_decode() - judge an answer of ResolveRoute
 *
 * Errors: CAPABILITY_MISSING for a data plane that is not an adapter's; ADAPTER_UNAVAILABLE for
 * a backend that has no adapter here; INTERNAL_BUG for an answer that does not validate.
 */
BERTH_MUST_CHECK enum berth_code
dp_route_decode(const struct dataplane *dp,
                const Berth__Control__V1__ResolveRouteResponse *resp, struct dp_route *ret,
                struct berth_error *err);

/* An answer of the adapter that means: this sandbox is not (or no longer) where the session is.
 */
bool dp_reason_is_misrouted(enum berth_reason reason);

/* ------------------------------------------------------------------ rules */

/* Is this a session of the suite's own (sk.*)? */
bool dp_session_is_reserved(const char *session_id);
/* Such a session is for peers, and for an external installer, whose token is for that one. */
bool dp_may_reach(const struct berth_principal *principal, bool is_peer,
                  const char *session_id);

/**
 * dp_command_judge() - hold a command against what its config allows, and complete it
 * @command: an absent timeout becomes the default
 * @detach:  0s (none) is allowed
 *
 * Errors: ROOT_REFUSED; FIELD_INVALID on command.timeout; OUT_OF_MEMORY.
 */
BERTH_MUST_CHECK enum berth_code dp_command_judge(Berth__Data__V1__Command *command,
                                                  bool detach, const struct dp_policy *policy,
                                                  int64_t *ret_timeout_ms,
                                                  struct berth_error *err);

/* Gives the command a fresh exec_id if it has none. */
BERTH_MUST_CHECK enum berth_code dp_command_name(Berth__Data__V1__Command *command,
                                                 struct berth_error *err);

/**
 * dp_status_judge() - what a call that ended badly at the adapter means to the caller
 * @flags:  of the method
 * @status: as received, not OK
 * @detail: of whom it is said ("exec_id ..."), or ""
 *
 * Returns true when the status is to be passed on as it is: it carries our ErrorInfo
 * (common/rpc puts one on calls that were never sent). Otherwise err says what to answer: a
 * bare NOT_FOUND or UNIMPLEMENTED is ADAPTER_UNAVAILABLE and frees nothing; a broken connection
 * is ADAPTER_UNAVAILABLE where a repeat does no harm, else OUTCOME_UNKNOWN.
 */
bool dp_status_judge(unsigned flags, const struct berth_status *status, const char *detail,
                     struct berth_error *err);

/* -------------------------------------------------------------- use tokens */

/* Say from now on that sandbox_id of session is in use. NULL: no memory (the stream goes on).
 */
struct dp_use *dp_use_begin(struct dataplane *dp, const Berth__Common__V1__SessionRef *session,
                            const char *sandbox_id);
/* The stream has ended: the token is given back, and the use is freed later. NULL is fine. */
void dp_use_end(struct dp_use *use);
void dp_uses_sweep(struct dataplane *dp, int64_t tick_ms);
/* Give up what is still to be said. */
void dp_uses_abandon(struct dataplane *dp);

/* linger.c: the stream of a detached command has ended, the command perhaps not: what the
 * stream knows of it, and its use, go over to one that looks after it. */
void dp_linger_begin(struct dp_stream *s);
void dp_lingers_sweep(struct dataplane *dp, int64_t tick_ms);
void dp_lingers_abandon(struct dataplane *dp);

/* Tell dataplane_free() when nothing is open any more. */
void dp_check_drained(struct dataplane *dp);
