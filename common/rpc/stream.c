/* stream.c - reading and writing messages, the same on both sides of a call. */
#include "common/rpc/stream.h"

static bool ended(const struct berth_stream *stream)
{
    return stream->call ? rpc_server_stream_ended(stream) : rpc_client_stream_ended(stream);
}

void rpc_stream_start(struct berth_stream *stream, const grpc_op *ops, size_t n_ops,
                      struct rpc_tag *tag, void (*fn)(void *stream, bool ok))
{
    *tag = (struct rpc_tag){
        .loop = stream->loop, .heavy = stream->heavy, .fn = fn, .owner = stream};
    stream->n_ops++;
    rpc_start_batch(stream->core, ops, n_ops, tag);
}

void rpc_stream_settle(struct berth_stream *stream)
{
    if (--stream->n_ops > 0 || !ended(stream))
        return;
    if (stream->call)
        rpc_server_stream_close(stream);
    else
        rpc_client_stream_close(stream);
}

struct berth_call *berth_stream_call(struct berth_stream *stream)
{
    return stream->call;
}

struct berth_loop *berth_stream_loop(struct berth_stream *stream)
{
    return stream->loop;
}

/* ------------------------------------------------------------------- reading */

static void take_read(struct berth_stream *stream, bool ok)
{
    struct berth_buf *msg = NULL;
    bool none = !ok || !stream->received;

    stream->reading = false;
    if (stream->received)
        msg = rpc_buf_take(BERTH_STEAL(stream->received));
    stream->heavy = stream->heavy || (msg && berth_buf_size(msg) > RPC_MESSAGE_HEAVY);
    if (stream->mute) {
        berth_buf_unref(msg);
        if (!none && !stream->call)
            rpc_client_stream_drain(stream);
    } else if (none) {
        berth_buf_unref(msg);
        if (stream->call)
            rpc_server_stream_read_end(stream);
        else
            stream->ops->message(stream->ctx, stream, NULL);
    } else if (!msg) {
        berth_stream_cancel(stream); /* out of memory */
    } else if (stream->call && !rpc_server_stream_message_ok(stream, msg)) {
        berth_buf_unref(msg);
    } else {
        stream->ops->message(stream->ctx, stream, msg);
    }
    rpc_stream_settle(stream);
}

static void on_read(void *owner, bool ok)
{
    take_read(owner, ok);
}

static void on_early_read(void *owner, bool ok)
{
    struct berth_stream *stream = owner;

    if (!stream->unasked || stream->mute) {
        take_read(stream, ok);
        return;
    }
    stream->early = true;
    stream->early_ok = ok;
    rpc_stream_settle(stream);
}

void rpc_stream_read_early(struct berth_stream *stream)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};

    op.data.recv_message.recv_message = &stream->received;
    stream->read_tag =
        (struct rpc_tag){.loop = stream->loop, .fn = on_early_read, .owner = stream};
    rpc_start_batch(stream->core, &op, 1, &stream->read_tag);
}

static void take_early(void *arg)
{
    struct berth_stream *stream = arg;

    take_read(stream, stream->early_ok);
}

/* The first read has been under way since before the handler was asked. */
static void ask_early(struct berth_stream *stream)
{
    stream->unasked = false;
    if (!stream->early)
        return;
    stream->n_ops++;
    berth_loop_post_entry(stream->loop, &stream->early_post, take_early, stream);
}

void berth_stream_read(struct berth_stream *stream)
{
    bool first = !stream->call && !stream->sent_initial;
    grpc_op ops[2];
    size_t n = 0;

    if (ended(stream))
        return;
    if (stream->unasked)
        ask_early(stream);
    if (stream->reading)
        return;
    stream->reading = true;
    if (first) /* a client that only listens: the call begins here */
        rpc_stream_initial_op(stream, &ops[n++]);
    ops[n] = (grpc_op){.op = GRPC_OP_RECV_MESSAGE};
    ops[n++].data.recv_message.recv_message = &stream->received;
    rpc_stream_start(stream, ops, n, &stream->read_tag, on_read);
    if (first)
        rpc_stream_initial_sent(stream);
}

/* ------------------------------------------------------------------- writing */

static void on_written(void *owner, bool ok)
{
    struct berth_stream *stream = owner;

    stream->writing = false;
    if (ok && !stream->mute && stream->ops->written)
        stream->ops->written(stream->ctx, stream);
    if (!stream->writing) {
        if (stream->call)
            rpc_server_stream_wrote(stream);
        else
            rpc_client_stream_wrote(stream);
    }
    rpc_stream_settle(stream);
}

bool berth_stream_can_write(const struct berth_stream *stream)
{
    return !stream->writing && !stream->mute && !ended(stream);
}

static bool write_message(struct berth_stream *stream, struct berth_buf *msg, bool last)
{
    grpc_op ops[3];
    grpc_byte_buffer *bytes;
    size_t n = 0;

    if (!berth_stream_can_write(stream)) {
        berth_buf_unref(msg);
        return false;
    }
    if (!stream->sent_initial)
        rpc_stream_initial_op(stream, &ops[n++]);
    bytes = rpc_buf_bytes(msg);
    ops[n] = (grpc_op){.op = GRPC_OP_SEND_MESSAGE};
    ops[n++].data.send_message.send_message = bytes;
    if (last)
        ops[n++] = (grpc_op){.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT};
    stream->writing = true;
    stream->heavy = stream->heavy || berth_buf_size(msg) > RPC_MESSAGE_HEAVY;
    rpc_stream_start(stream, ops, n, &stream->write_tag, on_written);
    rpc_stream_initial_sent(stream);
    grpc_byte_buffer_destroy(bytes);
    berth_buf_unref(msg);
    return true;
}

bool berth_stream_write(struct berth_stream *stream, struct berth_buf *msg)
{
    return write_message(stream, msg, false);
}

bool berth_stream_write_last(struct berth_stream *stream, struct berth_buf *msg)
{
    bool written = write_message(stream, msg, true);

    if (written)
        rpc_client_stream_closed(stream);
    return written;
}

void rpc_stream_initial_op(struct berth_stream *stream, grpc_op *op)
{
    if (stream->call)
        rpc_server_stream_initial(stream, op);
    else
        rpc_client_stream_initial(stream, op);
}

void rpc_stream_initial_sent(struct berth_stream *stream)
{
    if (!stream->sent_initial && !stream->call)
        rpc_client_stream_initial_sent(stream);
    stream->sent_initial = true;
}

void berth_stream_cancel(struct berth_stream *stream)
{
    if (ended(stream))
        return;
    if (stream->call)
        rpc_server_stream_cancel(stream);
    (void)grpc_call_cancel(stream->core, NULL);
    if (!stream->call)
        rpc_client_stream_drain(stream);
}
