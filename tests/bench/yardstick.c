/* yardstick.c - echo, source and sink. */
#include "tests/bench/relay.h"

#include "berth/common/v1/common.pb-c.h"

enum { CHUNK_MAX = 4 << 20 };

static enum berth_code echo(void *service, struct berth_call *call,
                            const ProtobufCMessage *message, ProtobufCMessage **ret,
                            struct berth_error *err)
{
    const Berth__Common__V1__SessionRef *req = (const Berth__Common__V1__SessionRef *)message;
    Berth__Common__V1__SessionRef *resp = calloc(1, sizeof *resp);

    (void)service;
    (void)call;
    if (!resp)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    berth__common__v1__session_ref__init(resp);
    resp->tenant_id = strdup(req->tenant_id);
    resp->session_id = strdup(req->session_id);
    *ret = &resp->base;
    return BERTH_OK;
}

/* -------------------------------------------------------------- source and sink */

struct flow {
    bool sink, begun;
    uint32_t left;
    struct berth_buf *chunk;
};

static void flow_write(struct flow *flow, struct berth_stream *stream)
{
    if (flow->left == 0) {
        berth_stream_finish(stream, BERTH_OK, NULL);
        return;
    }
    flow->left--;
    (void)berth_stream_write(stream, berth_buf_ref(flow->chunk));
}

static uint32_t number(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
           (uint32_t)at[3] << 24;
}

static void source_begin(struct flow *flow, struct berth_stream *stream, struct berth_buf *msg)
{
    struct berth_error err = {0};
    const uint8_t *data = berth_buf_data(msg);
    uint8_t *bytes = NULL;
    uint32_t size = 0;

    if (berth_buf_size(msg) == 8)
        size = number(data + 4);
    if (size > 0 && size <= CHUNK_MAX)
        bytes = malloc(size);
    if (!bytes) {
        berth_stream_finish(stream, berth_fail_field(&err, "request", "messages, size"), &err);
        return;
    }
    memset(bytes, 'x', size);
    flow->chunk = berth_buf_new(bytes, size);
    flow->left = number(data);
    free(bytes);
    flow_write(flow, stream);
}

static void flow_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct flow *flow = ctx;

    if (!flow->sink) {
        if (msg && !flow->begun)
            source_begin(flow, stream, msg);
        flow->begun = true;
    } else if (msg) {
        berth_stream_read(stream);
    } else {
        flow->chunk = berth_buf_new("", 0);
        flow->left = 1;
        flow_write(flow, stream);
    }
    berth_buf_unref(msg);
}

static void flow_written(void *ctx, struct berth_stream *stream)
{
    flow_write(ctx, stream);
}

static void flow_closed(void *ctx, struct berth_stream *stream,
                        const struct berth_status *status)
{
    struct flow *flow = ctx;

    (void)stream;
    (void)status;
    berth_buf_unref(flow->chunk);
    free(flow);
}

static const struct berth_stream_ops flow_ops = {
    .message = flow_message, .written = flow_written, .closed = flow_closed};

static enum berth_code flow_open(struct berth_stream *stream, bool sink,
                                 const struct berth_stream_ops **ret_ops, void **ret_ctx,
                                 struct berth_error *err)
{
    struct flow *flow = calloc(1, sizeof *flow);

    if (!flow)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    flow->sink = sink;
    *ret_ops = &flow_ops;
    *ret_ctx = flow;
    berth_stream_read(stream);
    return BERTH_OK;
}

static enum berth_code open_source(void *service, struct berth_stream *stream,
                                   const struct berth_stream_ops **ret_ops, void **ret_ctx,
                                   struct berth_error *err)
{
    (void)service;
    return flow_open(stream, false, ret_ops, ret_ctx, err);
}

static enum berth_code open_sink(void *service, struct berth_stream *stream,
                                 const struct berth_stream_ops **ret_ops, void **ret_ctx,
                                 struct berth_error *err)
{
    (void)service;
    return flow_open(stream, true, ret_ops, ret_ctx, err);
}

const struct berth_method bench_yardsticks[] = {
    {BENCH_ECHO, &berth__common__v1__session_ref__descriptor, echo, NULL, 0},
    {BENCH_SOURCE, &berth__common__v1__session_ref__descriptor, NULL, open_source,
     BERTH_METHOD_UNGUARDED},
    {BENCH_SINK, &berth__common__v1__session_ref__descriptor, NULL, open_sink,
     BERTH_METHOD_UNGUARDED},
};
const size_t n_bench_yardsticks = BERTH_COUNT(bench_yardsticks);
const struct berth_method bench_quick_echo = {
    BENCH_ECHO, &berth__common__v1__session_ref__descriptor, echo, NULL, BERTH_METHOD_QUICK};
