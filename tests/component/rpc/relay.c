#include "tests/component/rpc/relay.h"

#include <check.h>
#include <stdio.h>

#include "tests/component/rpc/echo.h"

/* Two calls tied together: what one side gave us is what the other has to take before we ask
 * for more, so that at most one message waits in each direction. */
struct pair {
    struct berth_stream *down, *up; /* NULL: closed */
};

static void settle(struct pair *pair)
{
    if (!pair->down && !pair->up)
        free(pair);
}

static void down_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct pair *pair = ctx;

    (void)stream;
    if (!pair->up)
        berth_buf_unref(msg);
    else if (msg)
        (void)berth_stream_write(pair->up, msg);
    else
        berth_stream_half_close(pair->up);
}

static void down_written(void *ctx, struct berth_stream *stream)
{
    struct pair *pair = ctx;

    (void)stream;
    if (pair->up)
        berth_stream_read(pair->up);
}

static void down_cancelled(void *ctx, struct berth_stream *stream)
{
    struct pair *pair = ctx;

    if (pair->up)
        berth_stream_cancel(pair->up); /* finished when that has closed */
    else
        berth_stream_finish(stream, BERTH_CANCELLED, NULL);
}

static void down_closed(void *ctx, struct berth_stream *stream,
                        const struct berth_status *status)
{
    struct pair *pair = ctx;

    (void)stream;
    (void)status;
    pair->down = NULL;
    settle(pair);
}

static void up_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct pair *pair = ctx;

    (void)stream;
    if (msg && pair->down)
        (void)berth_stream_write(pair->down, msg);
    else
        berth_buf_unref(msg);
}

static void up_written(void *ctx, struct berth_stream *stream)
{
    struct pair *pair = ctx;

    (void)stream;
    if (pair->down)
        berth_stream_read(pair->down);
}

static void up_closed(void *ctx, struct berth_stream *stream, const struct berth_status *status)
{
    struct pair *pair = ctx;

    (void)stream;
    pair->up = NULL;
    if (pair->down)
        berth_stream_finish_status(pair->down, status);
    settle(pair);
}

static const struct berth_stream_ops down_ops = {.message = down_message,
                                                 .written = down_written,
                                                 .closed = down_closed,
                                                 .cancelled = down_cancelled};
static const struct berth_stream_ops up_ops = {
    .message = up_message, .written = up_written, .closed = up_closed};

static enum berth_code open_relay(struct relay *relay, const char *path,
                                  struct berth_stream *stream,
                                  const struct berth_stream_ops **ret_ops, void **ret_ctx,
                                  struct berth_error *err)
{
    const struct berth_call_options options = {.parent = berth_stream_call(stream)};
    struct pair *pair = calloc(1, sizeof *pair);

    if (!pair)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    pair->down = stream;
    pair->up = berth_channel_stream(relay->upstream, path, &options, berth_stream_loop(stream),
                                    &up_ops, pair);
    if (!pair->up) {
        free(pair);
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    *ret_ops = &down_ops;
    *ret_ctx = pair;
    berth_stream_read(pair->down);
    berth_stream_read(pair->up);
    return BERTH_OK;
}

#define OPEN(name)                                                                             \
    static enum berth_code open_##name(void *service, struct berth_stream *stream,             \
                                       const struct berth_stream_ops **ret_ops,                \
                                       void **ret_ctx, struct berth_error *err)                \
    {                                                                                          \
        return open_relay(service, ECHO_PATH(#name), stream, ret_ops, ret_ctx, err);           \
    }
OPEN(Unary)
OPEN(Server)
OPEN(Client)
OPEN(Bidi)
OPEN(Missing)

#define METHOD(name)                                                                           \
    {                                                                                          \
        ECHO_PATH(#name), &berth__testing__v1__echo_request__descriptor, NULL, open_##name,    \
            BERTH_METHOD_UNGUARDED                                                             \
    }
static const struct berth_method methods[] = {METHOD(Unary), METHOD(Server), METHOD(Client),
                                              METHOD(Bidi), METHOD(Missing)};

void relay_start(struct relay *relay, const char *upstream)
{
    struct berth_server_options options = {0};
    struct berth_error err = {0};
    int port = 0;

    *relay = (struct relay){0};
    berth_rpc_init();
    ck_assert(!berth_loop_new(&relay->loop, &err));
    ck_assert(!berth_loop_start(relay->loop, "relay-loop", &err));
    options.loop = relay->loop;
    ck_assert(!berth_channel_new(upstream, NULL, &relay->upstream, &err));
    ck_assert(!berth_server_new(&options, &relay->server, &err));
    ck_assert(!berth_server_add(relay->server, methods, BERTH_COUNT(methods), relay, &err));
    ck_assert_msg(!berth_server_listen(relay->server, "127.0.0.1:0", &port, &err), "%s",
                  err.text);
    snprintf(relay->address, sizeof relay->address, "127.0.0.1:%d", port);
    ck_assert(!berth_server_start(relay->server, &err));
}

void relay_stop(struct relay *relay)
{
    relay->server = berth_server_free(relay->server);
    relay->upstream = berth_channel_free(relay->upstream);
    relay->loop = berth_loop_free(relay->loop);
    berth_rpc_done();
}
