/* flow.h - one call to a peer, of any shape, as seen by a worker that may have to give it up at
 * any moment. The stream itself lives on the loop; the worker waits beside it and asks every
 * now and then whether it is still wanted. */
#pragma once

#include "common/rpc/rpc.h"

struct flow;

/* Who waits, and until when. Borrowed as long as the flow lives. */
struct flow_patience {
    struct berth_loop *loop;
    bool (*stopped)(void *arg); /* asked about five times a second */
    void *arg;
};

/* Begin a call. end_tick: it is given up then (DEADLINE). NULL: out of memory. */
struct flow *flow_new(const struct flow_patience *patience, struct berth_channel *channel,
                      const char *path, int64_t end_tick);
/* Gives up what has not ended, and waits for that. NULL is fine. */
struct flow *flow_free(struct flow *flow);
BERTH_DEFINE_AUTO(struct flow *, flow_free)

/* Send one message (taken, also on failure; NULL: out of memory); is_last: and nothing more.
 * Waits for the one before it. The first one begins the call.
 * Errors: CANCELLED, DEADLINE; the call's own, where it has ended. */
BERTH_MUST_CHECK enum berth_code flow_send(struct flow *flow, struct berth_buf *msg,
                                           bool is_last, struct berth_error *err);

/* The next message, owned; NULL: there are no more, and the call ended well. With quiet_ms
 * nothing for so long is the end, too (PEER_UNAVAILABLE); 0: it may take what it takes.
 * Errors: as flow_send(). */
BERTH_MUST_CHECK enum berth_code flow_next(struct flow *flow, int64_t quiet_ms,
                                           struct berth_buf **ret, struct berth_error *err);
/* Has flow_next() something at once? */
bool flow_has_next(struct flow *flow);

/* Wait, unless it is not wanted any more. Errors: CANCELLED, DEADLINE. */
BERTH_MUST_CHECK enum berth_code flow_pause(const struct flow_patience *patience,
                                            int64_t pause_ms, int64_t end_tick,
                                            struct berth_error *err);

/* A unary call that may be repeated: while the peer is away it is, until end_tick.
 * *ret is owned. Errors: CANCELLED, DEADLINE; the call's. */
BERTH_MUST_CHECK enum berth_code
flow_call(const struct flow_patience *patience, struct berth_channel *channel, const char *path,
          const ProtobufCMessage *req, const ProtobufCMessageDescriptor *resp_type,
          int64_t end_tick, void *ret, struct berth_error *err);
