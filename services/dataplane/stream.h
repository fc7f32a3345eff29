/* stream.h - one call in progress, shared by first.c (until it has a route) and pump.c (from
 * then on). The loop thread's. */
#pragma once

#include "services/dataplane/dataplane.h"

struct dp_stream {
    struct dataplane *dp;
    struct dp_stream *prev, *next;
    const struct dp_method *method;

    struct berth_stream *caller;
    struct dp_unary *resolve;
    struct berth_stream *sandbox;
    struct dp_peer *adapter; /* of sandbox */
    unsigned slot;

    Berth__Control__V1__ResolveRouteRequest *route_req; /* NULL until the first message came */
    ProtobufCMessage *first;           /* decoded, until it is judged against the route */
    Berth__Data__V1__Command *command; /* in first, or NULL */
    char *sandbox_id;
    char *exec_id; /* for texts; NULL: starts nothing */

    /* What the adapter shall get, [0] is the first message: those below n_sent went to the
     * stream that is open, and are kept as long as the call is repeatable; of the others there
     * is one at most. */
    struct berth_buf *kept[DP_KEPT_MAX + 1];
    unsigned n_kept, n_sent;
    size_t kept_bytes;
    struct berth_buf *held; /* from the adapter, waits for the caller */

    Berth__Control__V1__SandboxLoss *loss; /* of the route, until told; or NULL */
    struct dp_unary *telling;              /* held waits for it */

    struct dp_use *use;
    int64_t opened_tick_ms; /* when the adapter's stream was opened; 0: not yet */
    int64_t asked_tick_ms;  /* since when the adapter owes us something; 0: it does not */
    int64_t stall_ms;       /* 0: may owe for ever */

    uint8_t *packed; /* the route, of a detached command with a time limit; or NULL */
    size_t packed_size;

    bool detach;
    bool limited;    /* it has a time limit */
    bool over;       /* the adapter has told the end of it */
    bool repeatable; /* everything that was sent is kept */
    bool repeated;   /* once is enough */
    bool caller_reading;
    bool caller_done; /* half-closed */
    bool half_closed; /* the adapter was told so */
    bool stalled;
    bool finished; /* the caller has its status */

    /* The adapter's status, while held is still to be written. */
    struct berth_status *end;
};

/* first.c: decode and check the first message (taken). */
BERTH_MUST_CHECK enum berth_code
dp_stream_take_first(struct dp_stream *s, struct berth_buf *msg, struct berth_error *err);
/* first.c: ask for a route, then open the adapter's stream, or fail. */
void dp_stream_resolve(struct dp_stream *s);

/* loss.c: what the session lost is put into held (the first answer), where that has a place,
 * and the control plane is told so: true, and dp_stream_told() follows. */
bool dp_stream_tell_loss(struct dp_stream *s);
/* pump.c: held may go out. */
void dp_stream_told(struct dp_stream *s);

/* pump.c: the message that was judged is not needed decoded any more. */
void dp_stream_drop_first(struct dp_stream *s);
/* pump.c: send kept[0] to where route leads, and begin to pump. */
BERTH_MUST_CHECK enum berth_code
dp_stream_open_sandbox(struct dp_stream *s, struct dp_route *route, struct berth_error *err);
/* pump.c: end the call. Once; later ends are ignored. */
void dp_stream_fail(struct dp_stream *s, enum berth_code code, const struct berth_error *err);
void dp_stream_pass(struct dp_stream *s, const struct berth_status *status);
/* pump.c: at the end of every callback that may have been the last. */
void dp_stream_free_if_over(struct dp_stream *s);
