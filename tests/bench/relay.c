/* relay.c - a bare relay: no decoding, no rules. */
#include "tests/bench/relay.h"

#include "berth/common/v1/common.pb-c.h"

#define ROUTE_KEY "berth-route-bin"

struct relay {
    struct berth_channel *channel;
    const char *path;
    bool streams_in, begun, half_close, finished;
    struct berth_stream *caller, *callee;
    struct berth_buf *held;    /* from the callee, waits for the caller */
    struct berth_buf *waiting; /* from the caller, waits for the callee */
    struct berth_status end;   /* once the callee closed while something is held */
    bool has_end;
};

static void free_if_over(struct relay *relay)
{
    if (relay->caller || relay->callee)
        return;
    berth_buf_unref(relay->held);
    berth_buf_unref(relay->waiting);
    free(relay);
}

static void callee_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct relay *relay = ctx;

    if (!msg || relay->finished) {
        berth_buf_unref(msg);
    } else if (!berth_stream_can_write(relay->caller)) {
        relay->held = msg;
    } else {
        (void)berth_stream_write(relay->caller, msg);
        berth_stream_read(stream);
    }
}

/* Send a message of the caller and ask for the next; or keep it until the last is gone. */
static void send_in(struct relay *relay, struct berth_buf *msg)
{
    if (!berth_stream_can_write(relay->callee)) {
        relay->waiting = msg;
        return;
    }
    (void)berth_stream_write(relay->callee, msg);
    if (relay->streams_in && !relay->half_close)
        berth_stream_read(relay->caller);
}

static void callee_written(void *ctx, struct berth_stream *stream)
{
    struct relay *relay = ctx;

    if (relay->finished)
        return;
    if (relay->waiting)
        send_in(relay, BERTH_STEAL(relay->waiting));
    else if (relay->half_close)
        berth_stream_half_close(stream);
}

static void callee_closed(void *ctx, struct berth_stream *stream,
                          const struct berth_status *status)
{
    struct relay *relay = ctx;

    (void)stream;
    relay->callee = NULL;
    if (relay->held && !relay->finished) {
        relay->end = (struct berth_status){.code = status->code, .message = ""};
        relay->has_end = true;
    } else if (!relay->finished) {
        relay->finished = true;
        berth_stream_finish_status(relay->caller, status);
    }
    free_if_over(relay);
}

static const struct berth_stream_ops callee_ops = {
    .message = callee_message, .written = callee_written, .closed = callee_closed};

static void begin(struct relay *relay, struct berth_buf *first)
{
    struct berth_call *call = berth_stream_call(relay->caller);
    struct berth_metadata route = {.key = ROUTE_KEY};
    struct berth_call_options options = {.parent = call};

    route.value = berth_call_metadata(call, ROUTE_KEY, &route.size);
    if (route.value) {
        options.metadata = &route;
        options.n_metadata = 1;
    }
    relay->begun = true;
    relay->callee = berth_channel_stream(relay->channel, relay->path, &options,
                                         berth_stream_loop(relay->caller), &callee_ops, relay);
    if (!relay->callee) {
        berth_buf_unref(first);
        berth_stream_cancel(relay->caller);
        return;
    }
    send_in(relay, first);
    if (!relay->streams_in)
        berth_stream_half_close(relay->callee);
    berth_stream_read(relay->callee);
}

static void caller_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct relay *relay = ctx;

    (void)stream;
    if (relay->finished) {
        berth_buf_unref(msg);
    } else if (msg && !relay->begun) {
        begin(relay, msg);
    } else if (msg && relay->callee) {
        send_in(relay, msg);
    } else if (msg) {
        berth_buf_unref(msg);
    } else {
        relay->half_close = true;
        if (relay->callee && !relay->waiting)
            berth_stream_half_close(relay->callee);
    }
}

static void caller_written(void *ctx, struct berth_stream *stream)
{
    struct relay *relay = ctx;

    if (relay->finished || !relay->held)
        return;
    (void)berth_stream_write(stream, BERTH_STEAL(relay->held));
    if (relay->callee) {
        berth_stream_read(relay->callee);
    } else if (relay->has_end) {
        relay->finished = true;
        berth_stream_finish_status(stream, &relay->end);
    }
}

static void caller_closed(void *ctx, struct berth_stream *stream,
                          const struct berth_status *status)
{
    struct relay *relay = ctx;

    (void)stream;
    (void)status;
    relay->caller = NULL;
    relay->finished = true;
    if (relay->callee)
        berth_stream_cancel(relay->callee);
    free_if_over(relay);
}

static const struct berth_stream_ops caller_ops = {
    .message = caller_message, .written = caller_written, .closed = caller_closed};

static enum berth_code open_relay(struct berth_channel *channel, const char *path,
                                  bool streams_in, struct berth_stream *stream,
                                  const struct berth_stream_ops **ret_ops, void **ret_ctx,
                                  struct berth_error *err)
{
    struct relay *relay = calloc(1, sizeof *relay);

    if (!relay)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    *relay = (struct relay){
        .channel = channel, .path = path, .streams_in = streams_in, .caller = stream};
    *ret_ops = &caller_ops;
    *ret_ctx = relay;
    berth_stream_read(stream);
    return BERTH_OK;
}

#define RELAY(name, path, streams_in)                                                          \
    static enum berth_code open_##name(void *service, struct berth_stream *stream,             \
                                       const struct berth_stream_ops **ret_ops,                \
                                       void **ret_ctx, struct berth_error *err)                \
    {                                                                                          \
        return open_relay(service, path, streams_in, stream, ret_ops, ret_ctx, err);           \
    }
RELAY(echo, BENCH_ECHO, false)
RELAY(source, BENCH_SOURCE, false)
RELAY(sink, BENCH_SINK, true)
RELAY(read_file, BENCH_READ_FILE, false)
RELAY(write_file, BENCH_WRITE_FILE, true)

#define METHOD(name, path)                                                                     \
    {                                                                                          \
        path, &berth__common__v1__session_ref__descriptor, NULL, open_##name,                  \
            BERTH_METHOD_UNGUARDED                                                             \
    }
const struct berth_method bench_relays[] = {
    METHOD(echo, BENCH_ECHO),
    METHOD(source, BENCH_SOURCE),
    METHOD(sink, BENCH_SINK),
    METHOD(read_file, BENCH_READ_FILE),
    METHOD(write_file, BENCH_WRITE_FILE),
};
const size_t n_bench_relays = BERTH_COUNT(bench_relays);
