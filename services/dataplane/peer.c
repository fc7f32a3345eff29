/* peer.c - a called service: its connections, and unary calls as evented streams. */
#include "services/dataplane/dataplane.h"

#include "common/rpc/rpc.h"

enum {
    PEER_CONNECTIONS_MAX = 32,
    PEER_STREAMS_MAX = 1024, /* per connection; servers allow 2048 and let the rest wait */
};

struct dp_peer {
    dp_connect_fn connect;
    void *arg;
    struct dp_connection {
        struct berth_channel *channel;
        unsigned n_streams;
    } connections[PEER_CONNECTIONS_MAX];
    unsigned n_connections;
};

enum berth_code dp_peer_new(dp_connect_fn connect, void *arg, struct dp_peer **ret,
                            struct berth_error *err)
{
    struct dp_peer *peer = calloc(1, sizeof *peer);
    enum berth_code code;

    if (!peer)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    peer->connect = connect;
    peer->arg = arg;
    /* The first at once, so that a bad address shows at start. */
    code = connect(arg, &peer->connections[0].channel, err);
    if (code) {
        free(peer);
        return code;
    }
    peer->n_connections = 1;
    *ret = peer;
    return BERTH_OK;
}

struct dp_peer *dp_peer_free(struct dp_peer *peer)
{
    if (!peer)
        return NULL;
    for (unsigned i = 0; i < peer->n_connections; i++)
        berth_channel_free(peer->connections[i].channel);
    free(peer);
    return NULL;
}

struct berth_channel *dp_peer_channel(struct dp_peer *peer)
{
    return peer->connections[0].channel;
}

struct berth_stream *dp_peer_stream(struct dp_peer *peer, const char *path,
                                    const struct berth_call_options *options,
                                    struct berth_loop *loop, const struct berth_stream_ops *ops,
                                    void *ctx, unsigned *ret_slot, struct berth_error *err)
{
    struct dp_connection *connection;
    struct berth_stream *stream;
    unsigned slot = 0;

    while (slot < peer->n_connections && peer->connections[slot].n_streams >= PEER_STREAMS_MAX)
        slot++;
    if (slot == PEER_CONNECTIONS_MAX) {
        (void)berth_fail(err, BERTH_REASON_OVERLOADED, NULL);
        return NULL;
    }
    connection = &peer->connections[slot];
    if (slot == peer->n_connections) {
        if (peer->connect(peer->arg, &connection->channel, err))
            return NULL;
        peer->n_connections++;
    }
    stream = berth_channel_stream(connection->channel, path, options, loop, ops, ctx);
    if (!stream) {
        (void)berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        return NULL;
    }
    connection->n_streams++;
    *ret_slot = slot;
    return stream;
}

void dp_peer_done(struct dp_peer *peer, unsigned slot)
{
    peer->connections[slot].n_streams--;
}

/* ------------------------------------------------------------------ unary */

struct dp_unary {
    struct dataplane *dp;
    struct dp_peer *peer;
    unsigned slot;
    struct berth_stream *stream;
    const ProtobufCMessageDescriptor *resp_type;
    struct berth_buf *answer;
    dp_unary_fn fn; /* NULL: cancelled */
    void *arg;
};

static void unary_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct dp_unary *call = ctx;

    (void)stream;
    if (!call->answer)
        call->answer = msg;
    else
        berth_buf_unref(msg);
}

static void unary_written(void *ctx, struct berth_stream *stream)
{
    (void)ctx;
    (void)stream;
}

static void unary_closed(void *ctx, struct berth_stream *stream,
                         const struct berth_status *status)
{
    struct dp_unary *call = ctx;
    struct dataplane *dp = call->dp;
    ProtobufCMessage *resp = NULL;
    struct berth_error err = {0};
    enum berth_code code = status->code;
    bool received = code != BERTH_OK;

    (void)stream;
    dp_peer_done(call->peer, call->slot);
    if (call->fn && code == BERTH_OK) {
        if (call->answer)
            code = berth_buf_decode(call->resp_type, call->answer, &resp, &err);
        else
            code = berth_fail(&err, BERTH_REASON_INTERNAL_BUG,
                              "a peer answered without a message");
    }
    if (call->fn)
        call->fn(call->arg, code, resp, received ? status : NULL, &err);
    berth_buf_unref(call->answer);
    free(call);
    dp->n_unary--;
    dp_check_drained(dp);
}

static const struct berth_stream_ops unary_ops = {
    .message = unary_message, .written = unary_written, .closed = unary_closed};

struct dp_unary *dp_unary_start(struct dataplane *dp, struct dp_peer *peer, const char *path,
                                const ProtobufCMessage *req,
                                const ProtobufCMessageDescriptor *resp_type,
                                const struct berth_call_options *options, dp_unary_fn fn,
                                void *arg, struct berth_error *err)
{
    struct berth_buf *packed = berth_buf_pack(req);
    struct dp_unary *call = calloc(1, sizeof *call);

    if (!packed || !call) {
        berth_buf_unref(packed);
        free(call);
        (void)berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        return NULL;
    }
    *call =
        (struct dp_unary){.dp = dp, .peer = peer, .resp_type = resp_type, .fn = fn, .arg = arg};
    call->stream = dp_peer_stream(peer, path, options, dp->options.loop, &unary_ops, call,
                                  &call->slot, err);
    if (!call->stream) {
        berth_buf_unref(packed);
        free(call);
        return NULL;
    }
    (void)berth_stream_write_last(call->stream, packed);
    berth_stream_read(call->stream);
    dp->n_unary++;
    return call;
}

void dp_unary_cancel(struct dp_unary *call)
{
    call->fn = NULL;
    berth_stream_cancel(call->stream);
}
