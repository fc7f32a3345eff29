/* stream.h - what server and client streams share. All of it on the stream's loop thread. */
#pragma once

#include "common/rpc/buf.h"
#include "common/rpc/core.h"
#include "common/rpc/status.h"

enum { RPC_MESSAGE_HEAVY = 16 << 10 };

struct berth_stream {
    const struct berth_stream_ops *ops; /* NULL: nobody listens (refused at open) */
    void *ctx;
    struct berth_loop *loop;
    grpc_call *core;
    struct berth_call *call; /* server side; NULL on the client */
    unsigned n_ops;          /* operations in flight: the stream lives as long */
    bool reading, writing;
    bool heavy;   /* a message was large */
    bool unasked; /* the read in flight, or over, is one nobody has asked for yet */
    bool early;   /* it is over */
    bool early_ok;
    struct berth_post early_post;
    bool sent_initial;
    bool mute; /* nothing but .closed is told any more */
    grpc_byte_buffer *received;
    struct rpc_tag read_tag, write_tag, probe_tag, end_tag;
};

/* Start operations that belong to the stream; fn must call rpc_stream_settle() last. */
void rpc_stream_start(struct berth_stream *stream, const grpc_op *ops, size_t n_ops,
                      struct rpc_tag *tag, void (*fn)(void *stream, bool ok));
/* Server side, before the handler is asked: read the first message, which mostly is there, and
 * keep it until the handler wants it. n_ops counts it already. On the queue's thread. */
void rpc_stream_read_early(struct berth_stream *stream);
/* One operation is over; when it was the last and the end is known: .closed, and away with it.
 */
void rpc_stream_settle(struct berth_stream *stream);

/* The metadata that goes before everything else; in the batch of the first write, so that all
 * of it is one write to the socket. Call _sent after that batch was started. */
void rpc_stream_initial_op(struct berth_stream *stream, grpc_op *op);
void rpc_stream_initial_sent(struct berth_stream *stream);

/* The two sides' parts of the public functions. */
void rpc_server_stream_read_end(struct berth_stream *stream); /* a read found no message */
bool rpc_server_stream_message_ok(struct berth_stream *stream, struct berth_buf *msg);
void rpc_server_stream_wrote(struct berth_stream *stream); /* a write is over */
void rpc_server_stream_initial(struct berth_stream *stream, grpc_op *op);
bool rpc_server_stream_ended(const struct berth_stream *stream);
void rpc_server_stream_close(struct berth_stream *stream); /* tell and free */
void rpc_server_stream_cancel(struct berth_stream *stream);
void rpc_client_stream_wrote(struct berth_stream *stream);
bool rpc_client_stream_ended(const struct berth_stream *stream);
void rpc_client_stream_closed(struct berth_stream *stream); /* half-closed with a message */
void rpc_client_stream_initial(struct berth_stream *stream, grpc_op *op);
void rpc_client_stream_initial_sent(struct berth_stream *stream);
void rpc_client_stream_drain(struct berth_stream *stream); /* drop messages up to the status */
void rpc_client_stream_close(struct berth_stream *stream);
