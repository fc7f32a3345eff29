#include "tests/component/rpc/echo.h"

#include <check.h>
#include <poll.h>
#include <stdio.h>

#include "common/time/time.h"

extern const uint8_t berth_descriptors[], berth_descriptors_end[]; /* of the tests' protos */

static EchoResponse *new_response(void)
{
    EchoResponse *response = malloc(sizeof *response);

    ck_assert_ptr_nonnull(response);
    berth__testing__v1__echo_response__init(response);
    return response;
}

static void set_bytes(ProtobufCBinaryData *to, const void *data, size_t size)
{
    if (size == 0)
        return;
    to->data = malloc(size);
    ck_assert_ptr_nonnull(to->data);
    memcpy(to->data, data, size);
    to->len = size;
}

static EchoResponse *answer(const struct berth_call *call, const EchoRequest *req)
{
    EchoResponse *response = new_response();
    int64_t left_ms = berth_call_left_ms(call);
    size_t size = 0;
    const void *metadata = berth_call_metadata(call, "echo-bin", &size);

    response->text = strdup(req->text);
    response->left_ms = left_ms == INT64_MAX ? -1 : left_ms;
    response->is_peer = berth_call_is_peer(call);
    response->peer_name = strdup(berth_call_peer_name(call));
    response->traceparent = strdup(berth_call_traceparent(call));
    set_bytes(&response->metadata, metadata, size);
    if (req->response_bytes) {
        response->payload.data = calloc(1, req->response_bytes);
        response->payload.len = req->response_bytes;
    } else {
        set_bytes(&response->payload, req->payload.data, req->payload.len);
    }
    return response;
}

static enum berth_code as_asked(const EchoRequest *req, struct berth_error *err)
{
    (void)berth_fail(err, berth_reason_from_name(req->fail_reason), "as asked: %s", req->text);
    BERTH_ERROR_SET(err, resource, "things/1");
    BERTH_ERROR_SET(err, sandbox_id, "sb-1");
    err->retry_after_ms = 250;
    return err->code;
}

static enum berth_code unary(void *service, struct berth_call *call,
                             const ProtobufCMessage *message, ProtobufCMessage **ret_resp,
                             struct berth_error *err)
{
    struct echo *echo = service;
    const EchoRequest *req = (const EchoRequest *)message;
    int64_t end_ms = berth_tick_ms() + req->hold_ms;

    atomic_fetch_add(&echo->n_entered, 1);
    while (berth_tick_ms() < end_ms && !berth_call_cancelled(call) &&
           !atomic_load(&echo->release))
        (void)poll(NULL, 0, 1);
    if (*req->fail_reason)
        return as_asked(req, err);
    *ret_resp = &answer(call, req)->base;
    return BERTH_OK;
}

struct deferred {
    struct echo *echo;
    struct berth_call *call;
    const EchoRequest *req;
};

static void answer_later(void *arg)
{
    struct deferred *deferred = arg;
    ProtobufCMessage *response = NULL;
    struct berth_error err = {0};
    enum berth_code code =
        unary(deferred->echo, deferred->call, &deferred->req->base, &response, &err);

    berth_call_answer(deferred->call, code, response, &err);
    free(deferred);
}

static enum berth_code defer(void *service, struct berth_call *call,
                             const ProtobufCMessage *message, ProtobufCMessage **ret_resp,
                             struct berth_error *err)
{
    struct echo *echo = service;
    struct deferred *deferred = calloc(1, sizeof *deferred);

    (void)ret_resp;
    (void)err;
    ck_assert_ptr_nonnull(deferred);
    *deferred = (struct deferred){echo, berth_call_ref(call), (const EchoRequest *)message};
    berth_pool_submit_must(echo->later, answer_later, deferred);
    return BERTH_DEFERRED;
}

/* ------------------------------------------------------------------- evented */

enum { LATE_MS = 30 };

struct echo_stream {
    struct echo *echo;
    unsigned n_in, n_out, n_wanted;
    bool half_closed;
    EchoRequest *first;
    struct berth_stream *stream;
    struct berth_timer *later; /* calls with "late" or "never" in their metadata */
    struct berth_buf *waiting; /* Bidi: read, and not yet written */
};

static void on_cancelled(void *ctx, struct berth_stream *stream)
{
    struct echo_stream *state = ctx;

    atomic_fetch_add(&state->echo->n_cancelled, 1);
    berth_stream_finish(stream, BERTH_CANCELLED, NULL);
}

static void on_closed(void *ctx, struct berth_stream *stream, const struct berth_status *status)
{
    struct echo_stream *state = ctx;

    (void)stream;
    atomic_store(&state->echo->last_closed, (int)status->code);
    atomic_fetch_add(&state->echo->n_closed, 1);
    if (state->first)
        protobuf_c_message_free_unpacked(&state->first->base, NULL);
    berth_buf_unref(state->waiting);
    berth_timer_cancel(state->later);
    free(state);
}

static EchoRequest *take_request(struct berth_stream *stream, struct berth_buf *msg)
{
    struct berth_error err = {0};
    ProtobufCMessage *message = NULL;
    enum berth_code code =
        berth_buf_decode(&berth__testing__v1__echo_request__descriptor, msg, &message, &err);

    berth_buf_unref(msg);
    if (code)
        berth_stream_finish(stream, code, &err);
    return (EchoRequest *)message;
}

static void write_response(struct echo_stream *state, struct berth_stream *stream)
{
    EchoResponse *response = answer(berth_stream_call(stream), state->first);

    response->count = state->n_in ? state->n_in : state->n_out;
    ck_assert(berth_stream_write(stream, berth_buf_pack(&response->base)));
    protobuf_c_message_free_unpacked(&response->base, NULL);
}

static void server_next(void *ctx, struct berth_stream *stream)
{
    struct echo_stream *state = ctx;
    struct berth_error err = {0};

    if (state->n_out > 0)
        atomic_fetch_add(&state->echo->n_written, 1);
    if (state->n_out < state->first->count) {
        state->n_out++;
        write_response(state, stream);
    } else if (*state->first->fail_reason) {
        berth_stream_finish(stream, as_asked(state->first, &err), &err);
    } else {
        berth_stream_finish(stream, BERTH_OK, NULL);
    }
}

static void server_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct echo_stream *state = ctx;

    if (!msg) {
        berth_stream_finish(stream, BERTH_INVALID_ARGUMENT, NULL);
        return;
    }
    state->first = take_request(stream, msg);
    if (state->first)
        server_next(state, stream);
}

static void client_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct echo_stream *state = ctx;

    ck_assert_ptr_null(state->later); /* nothing comes that was not asked for */
    if (msg) {
        state->n_in++;
        if (state->first)
            protobuf_c_message_free_unpacked(&state->first->base, NULL);
        state->first = take_request(stream, msg);
        berth_stream_read(stream);
        return;
    }
    atomic_fetch_add(&state->echo->n_half_closed, 1);
    if (state->first)
        write_response(state, stream);
    berth_stream_finish(stream, BERTH_OK, NULL);
}

/* One message in hand at most: the next is read when it has been written. */
static void bidi_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct echo_stream *state = ctx;

    if (!msg) {
        atomic_fetch_add(&state->echo->n_half_closed, 1);
        berth_stream_finish(stream, BERTH_OK, NULL);
        return;
    }
    ck_assert(berth_stream_write(stream, msg));
}

static void bidi_written(void *ctx, struct berth_stream *stream)
{
    struct echo_stream *state = ctx;

    atomic_fetch_add(&state->echo->n_written, 1);
    berth_stream_read(stream);
}

static void evented_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct echo_stream *state = ctx;
    struct berth_error err = {0};

    if (!msg)
        return;
    state->first = take_request(stream, msg);
    if (!state->first)
        return;
    if (*state->first->fail_reason) {
        berth_stream_finish(stream, as_asked(state->first, &err), &err);
        return;
    }
    write_response(state, stream);
    berth_stream_finish(stream, BERTH_OK, NULL);
}

static const struct berth_stream_ops server_ops = {.message = server_message,
                                                   .written = server_next,
                                                   .closed = on_closed,
                                                   .cancelled = on_cancelled};
static const struct berth_stream_ops client_ops = {
    .message = client_message, .closed = on_closed, .cancelled = on_cancelled};
static const struct berth_stream_ops bidi_ops = {.message = bidi_message,
                                                 .written = bidi_written,
                                                 .closed = on_closed,
                                                 .cancelled = on_cancelled};
/* Without .cancelled: the runtime finishes such calls itself. */
static const struct berth_stream_ops evented_ops = {.message = evented_message,
                                                    .closed = on_closed};

static void ask_late(void *arg)
{
    struct echo_stream *state = arg;

    state->later = NULL;
    berth_stream_read(state->stream);
}

static void finish_unasked(void *arg)
{
    struct echo_stream *state = arg;

    state->later = NULL;
    berth_stream_finish(state->stream, BERTH_OK, NULL);
}

static enum berth_code open_stream(struct echo *echo, struct berth_stream *stream,
                                   const struct berth_stream_ops *ops,
                                   const struct berth_stream_ops **ret_ops, void **ret_ctx)
{
    struct echo_stream *state = calloc(1, sizeof *state);
    size_t size;

    ck_assert_ptr_nonnull(state);
    state->echo = echo;
    *ret_ops = ops;
    *ret_ctx = state;
    state->stream = stream;
    if (berth_call_metadata(berth_stream_call(stream), "late", &size))
        state->later = berth_loop_timer(berth_stream_loop(stream), LATE_MS, ask_late, state);
    else if (berth_call_metadata(berth_stream_call(stream), "never", &size))
        state->later =
            berth_loop_timer(berth_stream_loop(stream), LATE_MS, finish_unasked, state);
    else
        berth_stream_read(stream);
    return BERTH_OK;
}

#define OPEN(name)                                                                             \
    static enum berth_code open_##name(void *service, struct berth_stream *stream,             \
                                       const struct berth_stream_ops **ret_ops,                \
                                       void **ret_ctx, struct berth_error *err)                \
    {                                                                                          \
        size_t size;                                                                           \
        if (berth_call_metadata(berth_stream_call(stream), "refuse", &size))                   \
            return berth_fail(err, BERTH_REASON_QUOTA_EXCEEDED, NULL);                         \
        return open_stream(service, stream, &name##_ops, ret_ops, ret_ctx);                    \
    }
OPEN(server)
OPEN(client)
OPEN(bidi)
OPEN(evented)

#define REQUEST &berth__testing__v1__echo_request__descriptor
const struct berth_method echo_methods[] = {
    {ECHO_PATH("Unary"), REQUEST, unary, NULL, 0},
    {ECHO_PATH("Deferred"), REQUEST, defer, NULL, 0},
    {ECHO_PATH("Priority"), REQUEST, unary, NULL, BERTH_METHOD_PRIORITY},
    {ECHO_PATH("Quick"), REQUEST, unary, NULL, BERTH_METHOD_QUICK},
    {ECHO_PATH("PeerOnly"), REQUEST, unary, NULL, BERTH_METHOD_PEER_ONLY},
    {ECHO_PATH("Server"), REQUEST, NULL, open_server, 0},
    {ECHO_PATH("Client"), REQUEST, NULL, open_client, 0},
    {ECHO_PATH("Bidi"), REQUEST, NULL, open_bidi, BERTH_METHOD_UNGUARDED},
    {ECHO_PATH("Evented"), REQUEST, NULL, open_evented, 0},
};
const size_t n_echo_methods = BERTH_COUNT(echo_methods);

/* -------------------------------------------------------------------- server */

void echo_server_start(struct echo_server *server, const struct berth_server_options *options,
                       const char *path)
{
    static const char *const services[] = {"berth.testing.v1.EchoService"};
    struct berth_server_options mine = options ? *options : (struct berth_server_options){0};
    struct echo *echo = &server->echo;
    struct berth_error err = {0};
    int port = 0;

    *server = (struct echo_server){0};
    berth_rpc_init();
    ck_assert_msg(!berth_loop_new(&server->loop, &err), "%s", err.text);
    ck_assert_msg(!berth_loop_start(server->loop, "echo-loop", &err), "%s", err.text);
    mine.loop = server->loop;
    ck_assert_msg(!berth_pool_new("echo-later", 4, 64, &echo->later, &err), "%s", err.text);
    ck_assert_msg(!berth_server_new(&mine, &echo->server, &err), "%s", err.text);
    ck_assert_msg(!berth_server_add(echo->server, echo_methods, n_echo_methods, echo, &err),
                  "%s", err.text);
    ck_assert(!berth_health_add(echo->server, &err));
    ck_assert_msg(!berth_reflection_add(echo->server, berth_descriptors,
                                        (size_t)(berth_descriptors_end - berth_descriptors),
                                        services, BERTH_COUNT(services), &err),
                  "%s", err.text);
    ck_assert_msg(!berth_server_listen(echo->server, "127.0.0.1:0", &port, &err), "%s",
                  err.text);
    snprintf(server->address, sizeof server->address, "127.0.0.1:%d", port);
    if (path) {
        snprintf(server->address, sizeof server->address, "unix:%s", path);
        ck_assert_msg(!berth_server_listen(echo->server, server->address, NULL, &err), "%s",
                      err.text);
    }
    if (mine.tls) {
        ck_assert_msg(!berth_server_listen_tls(echo->server, "127.0.0.1:0", &port, &err), "%s",
                      err.text);
        snprintf(server->tls_address, sizeof server->tls_address, "127.0.0.1:%d", port);
    }
    ck_assert_msg(!berth_server_start(echo->server, &err), "%s", err.text);
}

void echo_server_stop(struct echo_server *server, int64_t grace_ms)
{
    berth_server_stop(server->echo.server, grace_ms);
    server->echo.server = berth_server_free(server->echo.server);
    server->echo.later = berth_pool_free(server->echo.later);
    server->loop = berth_loop_free(server->loop);
    berth_rpc_done();
}
