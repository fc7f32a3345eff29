/* stream_client.c - the client's side of an evented call. */
#include <stdio.h>

#include "common/rpc/channel.h"
#include "common/rpc/stream.h"

enum { DEADLINE_SLACK_MS = 10 }; /* leaves it to the core to end the call first */

struct client_stream {
    struct berth_stream stream; /* first: the two are cast into each other */
    struct berth_channel *channel;
    struct rpc_call_metadata *metadata; /* not sent yet */
    bool half_close;                    /* wanted, when the write in flight is over */
    bool half_closed;
    bool has_status;
    struct berth_timer *deadline;
    grpc_metadata_array initial, trailing;
    grpc_status_code code;
    grpc_slice message;
};

static struct client_stream *of(struct berth_stream *stream)
{
    return (struct client_stream *)stream;
}

bool rpc_client_stream_ended(const struct berth_stream *stream)
{
    return ((const struct client_stream *)stream)->has_status;
}

static void on_half_closed(void *owner, bool ok)
{
    (void)ok; /* a call that is over says so by its status */
    rpc_stream_settle(owner);
}

void rpc_client_stream_wrote(struct berth_stream *stream)
{
    struct client_stream *client_stream = of(stream);
    grpc_op ops[2];
    size_t n = 0;

    if (!client_stream->half_close || client_stream->half_closed || client_stream->has_status)
        return;
    client_stream->half_closed = true;
    if (!stream->sent_initial)
        rpc_stream_initial_op(stream, &ops[n++]);
    ops[n++] = (grpc_op){.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT};
    rpc_stream_start(stream, ops, n, &stream->probe_tag, on_half_closed);
    rpc_stream_initial_sent(stream);
}

void rpc_client_stream_closed(struct berth_stream *stream)
{
    of(stream)->half_close = of(stream)->half_closed = true;
}

void rpc_client_stream_initial(struct berth_stream *stream, grpc_op *op)
{
    struct rpc_call_metadata *metadata = of(stream)->metadata;

    *op = (grpc_op){.op = GRPC_OP_SEND_INITIAL_METADATA};
    op->data.send_initial_metadata.count = metadata->n;
    op->data.send_initial_metadata.metadata = metadata->entries;
}

void rpc_client_stream_initial_sent(struct berth_stream *stream)
{
    struct client_stream *client_stream = of(stream);

    if (client_stream->metadata)
        rpc_call_metadata_deinit(client_stream->metadata);
    free(client_stream->metadata);
    client_stream->metadata = NULL;
}

void berth_stream_half_close(struct berth_stream *stream)
{
    of(stream)->half_close = true;
    if (!stream->writing)
        rpc_client_stream_wrote(stream);
}

/* The core keeps the status back until every message that came has been read. */
void rpc_client_stream_drain(struct berth_stream *stream)
{
    stream->mute = true;
    berth_stream_read(stream);
}

/* The core ends the call by itself, but a reader that stands still would not hear of it. */
static void on_deadline(void *arg)
{
    struct client_stream *client_stream = arg;

    client_stream->deadline = NULL;
    if (!client_stream->has_status)
        rpc_client_stream_drain(&client_stream->stream);
}

static void on_status(void *owner, bool ok)
{
    struct berth_stream *stream = owner;

    (void)ok;
    of(stream)->has_status = true;
    rpc_stream_settle(stream);
}

struct berth_stream *berth_channel_stream(struct berth_channel *channel, const char *path,
                                          const struct berth_call_options *options,
                                          struct berth_loop *loop,
                                          const struct berth_stream_ops *ops, void *ctx)
{
    struct client_stream *client_stream = calloc(1, sizeof *client_stream);
    grpc_op batch[2] = {
        {.op = GRPC_OP_RECV_INITIAL_METADATA},
        {.op = GRPC_OP_RECV_STATUS_ON_CLIENT},
    };
    struct rpc_call_metadata *metadata = calloc(1, sizeof *metadata);
    int64_t timeout_ms = rpc_call_timeout_ms(options, INT64_MAX);
    struct berth_stream *stream;
    bool valid;

    if (!client_stream || !metadata) {
        free(client_stream);
        free(metadata);
        return NULL;
    }
    stream = &client_stream->stream;
    stream->ops = ops;
    stream->ctx = ctx;
    stream->loop = loop;
    client_stream->channel = rpc_channel_ref(channel);
    client_stream->metadata = metadata;
    grpc_metadata_array_init(&client_stream->initial);
    grpc_metadata_array_init(&client_stream->trailing);
    client_stream->message = grpc_empty_slice();
    rpc_client_call_begun();
    valid = rpc_call_metadata_init(metadata, options, NULL) == BERTH_OK;
    stream->core =
        rpc_channel_create_call(channel, rpc_queue(), path, rpc_deadline(timeout_ms));
    if (timeout_ms != INT64_MAX)
        client_stream->deadline =
            berth_loop_timer(loop, timeout_ms + DEADLINE_SLACK_MS, on_deadline, client_stream);
    if (!valid)
        (void)grpc_call_cancel_with_status(stream->core, GRPC_STATUS_INVALID_ARGUMENT,
                                           "request metadata is not valid", NULL);
    batch[0].data.recv_initial_metadata.recv_initial_metadata = &client_stream->initial;
    batch[1].data.recv_status_on_client.trailing_metadata = &client_stream->trailing;
    batch[1].data.recv_status_on_client.status = &client_stream->code;
    batch[1].data.recv_status_on_client.status_details = &client_stream->message;
    rpc_stream_start(stream, batch, BERTH_COUNT(batch), &stream->end_tag, on_status);
    return stream;
}

void rpc_client_stream_close(struct berth_stream *stream)
{
    struct client_stream *client_stream = of(stream);
    char *message = grpc_slice_to_c_string(client_stream->message);
    grpc_slice unsent = grpc_empty_slice();
    struct berth_status status;

    rpc_status_view(client_stream->code, message, &client_stream->trailing, &status);
    if (status.code == BERTH_UNAVAILABLE && !status.details &&
        !rpc_call_was_sent(client_stream->channel, stream->core)) {
        status.message = rpc_channel_unsent(client_stream->channel, message);
        unsent = rpc_status_unsent_details(client_stream->channel->unavailable, status.message);
        status.code = berth_reason_code(client_stream->channel->unavailable);
        status.details = GRPC_SLICE_START_PTR(unsent);
        status.details_size = GRPC_SLICE_LENGTH(unsent);
    }
    client_stream->deadline = berth_timer_cancel(client_stream->deadline);
    if (stream->ops->closed)
        stream->ops->closed(stream->ctx, stream, &status);
    rpc_client_stream_initial_sent(stream); /* or never */
    grpc_slice_unref(unsent);
    gpr_free(message);
    grpc_slice_unref(client_stream->message);
    grpc_metadata_array_destroy(&client_stream->initial);
    grpc_metadata_array_destroy(&client_stream->trailing);
    grpc_call_unref(stream->core);
    berth_channel_free(client_stream->channel);
    free(client_stream);
    rpc_client_call_ended();
}

const void *berth_stream_metadata(const struct berth_stream *stream,
                                  enum berth_metadata_kind kind, const char *key,
                                  size_t *ret_size)
{
    const struct client_stream *client_stream = (const struct client_stream *)stream;

    return rpc_metadata_find(kind == BERTH_METADATA_INITIAL ? &client_stream->initial
                                                            : &client_stream->trailing,
                             key, ret_size);
}
