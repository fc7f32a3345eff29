#include "tests/conformance/rpc/service.h"

typedef Grpc__Testing__SimpleRequest SimpleRequest;
typedef Grpc__Testing__SimpleResponse SimpleResponse;
typedef Grpc__Testing__StreamingOutputCallRequest OutputRequest;
typedef Grpc__Testing__StreamingOutputCallResponse OutputResponse;

enum { SIZE_MAX_BYTES = 4 << 20, US_PER_MS = 1000 };

Grpc__Testing__Payload *interop_payload(size_t size)
{
    Grpc__Testing__Payload *payload = calloc(1, sizeof *payload);

    if (!payload)
        return NULL;
    grpc__testing__payload__init(payload);
    payload->body.data = calloc(1, size ? size : 1);
    payload->body.len = payload->body.data ? size : 0;
    return payload;
}

/* ---------------------------------------------------------------- unary calls */

/* What gRPC's tests call custom metadata: sent back as it came. */
static enum berth_code echo_metadata(struct berth_call *call, struct berth_error *err)
{
    static const char *const keys[] = {INTEROP_INITIAL_KEY, INTEROP_TRAILING_KEY};
    enum berth_code code = BERTH_OK;

    for (size_t i = 0; i < BERTH_COUNT(keys) && !code; i++) {
        struct berth_metadata entry = {.key = keys[i]};

        entry.value = berth_call_metadata(call, keys[i], &entry.size);
        if (entry.value)
            code = berth_call_add_metadata(
                call, i == 0 ? BERTH_METADATA_INITIAL : BERTH_METADATA_TRAILING, &entry, err);
    }
    return code;
}

static enum berth_code empty_call(void *service, struct berth_call *call,
                                  const ProtobufCMessage *req, ProtobufCMessage **ret_resp,
                                  struct berth_error *err)
{
    Grpc__Testing__Empty *resp = calloc(1, sizeof *resp);

    (void)service;
    (void)call;
    (void)req;
    if (!resp)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    grpc__testing__empty__init(resp);
    *ret_resp = &resp->base;
    return BERTH_OK;
}

static enum berth_code unary_call(void *service, struct berth_call *call,
                                  const ProtobufCMessage *message, ProtobufCMessage **ret_resp,
                                  struct berth_error *err)
{
    const SimpleRequest *req = (const SimpleRequest *)message;
    const Grpc__Testing__EchoStatus *status = req->response_status;
    SimpleResponse *resp;
    enum berth_code code;

    (void)service;
    code = echo_metadata(call, err);
    if (code)
        return code;
    if (status && status->code != 0) {
        *err = (struct berth_error){.code = (enum berth_code)status->code};
        berth_error_set(err->text, sizeof err->text, status->message);
        return err->code;
    }
    if (req->response_size < 0 || req->response_size > SIZE_MAX_BYTES)
        return berth_fail_field(err, "response_size", "0 to 4 MiB");
    resp = calloc(1, sizeof *resp);
    if (!resp)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    grpc__testing__simple_response__init(resp);
    resp->payload = interop_payload((size_t)req->response_size);
    if (req->fill_server_id)
        resp->server_id = strdup("berth");
    *ret_resp = &resp->base;
    return BERTH_OK;
}

/* -------------------------------------------------------------------- streams */

enum kind { OUTPUT, FULL, HALF };

struct output { /* a call whose answers are told by its requests */
    enum kind kind;
    struct berth_stream *stream;
    struct berth_timer *timer;
    OutputRequest **requests; /* not answered yet; the first one from parameter `next` on */
    size_t n_requests, next;
    bool half_closed, serving;
};

static void serve(struct output *output);

static void send_answer(void *arg)
{
    struct output *output = arg;
    OutputResponse resp = GRPC__TESTING__STREAMING_OUTPUT_CALL_RESPONSE__INIT;
    Grpc__Testing__ResponseParameters *parameters =
        output->requests[0]->response_parameters[output->next];
    struct berth_error err = {0};

    output->timer = NULL;
    if (parameters->size < 0 || parameters->size > SIZE_MAX_BYTES) {
        berth_stream_finish(output->stream, berth_fail_field(&err, "size", "0 to 4 MiB"), &err);
        return;
    }
    output->next++;
    resp.payload = interop_payload((size_t)parameters->size);
    (void)berth_stream_write(output->stream, berth_buf_pack(&resp.base));
    protobuf_c_message_free_unpacked(&resp.payload->base, NULL);
}

/* The request in front is answered: away with it. */
static void drop_request(struct output *output)
{
    grpc__testing__streaming_output_call_request__free_unpacked(output->requests[0], NULL);
    output->n_requests--;
    memmove(output->requests, output->requests + 1,
            output->n_requests * sizeof(OutputRequest *));
    output->next = 0;
}

/* Goes on until there is something to wait for. */
static void serve(struct output *output)
{
    output->serving = true;
    while (output->n_requests > 0) {
        const OutputRequest *req = output->requests[0];

        if (req->response_status && req->response_status->code != 0) {
            const struct berth_status status = {.code =
                                                    (enum berth_code)req->response_status->code,
                                                .message = req->response_status->message};

            berth_stream_finish_status(output->stream, &status);
            return;
        }
        if (output->next < req->n_response_parameters) {
            int64_t wait_us = req->response_parameters[output->next]->interval_us;

            if (wait_us > 0)
                output->timer = berth_loop_timer(berth_stream_loop(output->stream),
                                                 wait_us / US_PER_MS, send_answer, output);
            else
                send_answer(output);
            return;
        }
        drop_request(output);
    }
    output->serving = false;
    if (output->half_closed || output->kind == OUTPUT)
        berth_stream_finish(output->stream, BERTH_OK, NULL);
    else
        berth_stream_read(output->stream);
}

static bool keep_request(struct output *output, struct berth_buf *msg)
{
    OutputRequest **requests =
        realloc(output->requests, (output->n_requests + 1) * sizeof(OutputRequest *));
    ProtobufCMessage *request = NULL;
    struct berth_error err = {0};
    enum berth_code code;

    if (requests)
        output->requests = requests;
    code = requests
               ? berth_buf_decode(&grpc__testing__streaming_output_call_request__descriptor,
                                  msg, &request, &err)
               : berth_fail(&err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (code) {
        berth_stream_finish(output->stream, code, &err);
        return false;
    }
    output->requests[output->n_requests++] = (OutputRequest *)request;
    return true;
}

static void output_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct output *output = ctx;
    bool kept = msg && keep_request(output, msg);

    if (!msg)
        output->half_closed = true;
    if (kept && output->kind == HALF)
        berth_stream_read(stream);
    else if (kept || !msg)
        serve(output);
    berth_buf_unref(msg);
}

static void output_written(void *ctx, struct berth_stream *stream)
{
    (void)stream;
    serve(ctx);
}

static void output_closed(void *ctx, struct berth_stream *stream,
                          const struct berth_status *status)
{
    struct output *output = ctx;

    (void)stream;
    (void)status;
    output->timer = berth_timer_cancel(output->timer);
    while (output->n_requests > 0)
        drop_request(output);
    free(output->requests);
    free(output);
}

static void output_cancelled(void *ctx, struct berth_stream *stream)
{
    struct output *output = ctx;

    output->timer = berth_timer_cancel(output->timer);
    berth_stream_finish(stream, BERTH_CANCELLED, NULL);
}

static const struct berth_stream_ops output_ops = {.message = output_message,
                                                   .written = output_written,
                                                   .closed = output_closed,
                                                   .cancelled = output_cancelled};

static enum berth_code open_output(struct berth_stream *stream, enum kind kind,
                                   const struct berth_stream_ops **ret_ops, void **ret_ctx,
                                   struct berth_error *err)
{
    enum berth_code code = echo_metadata(berth_stream_call(stream), err);
    struct output *output;

    if (code)
        return code;
    output = calloc(1, sizeof *output);
    if (!output)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    *output = (struct output){.kind = kind, .stream = stream};
    *ret_ops = &output_ops;
    *ret_ctx = output;
    berth_stream_read(stream);
    return BERTH_OK;
}

#define OPEN(name, kind)                                                                       \
    static enum berth_code name(void *service, struct berth_stream *stream,                    \
                                const struct berth_stream_ops **ret_ops, void **ret_ctx,       \
                                struct berth_error *err)                                       \
    {                                                                                          \
        (void)service;                                                                         \
        return open_output(stream, kind, ret_ops, ret_ctx, err);                               \
    }
OPEN(streaming_output, OUTPUT)
OPEN(full_duplex, FULL)
OPEN(half_duplex, HALF)

/* --------------------------------------------------------- the streamed upload */

struct input {
    int64_t size;
};

static void input_end(struct input *input, struct berth_stream *stream)
{
    Grpc__Testing__StreamingInputCallResponse resp =
        GRPC__TESTING__STREAMING_INPUT_CALL_RESPONSE__INIT;

    resp.aggregated_payload_size = (int32_t)input->size;
    berth_stream_answer(stream, berth_buf_pack(&resp.base));
}

static void input_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    Grpc__Testing__StreamingInputCallRequest *req;
    ProtobufCMessage *message = NULL;
    struct input *input = ctx;
    struct berth_error err = {0};
    enum berth_code code;

    if (!msg) {
        input_end(input, stream);
        return;
    }
    code = berth_buf_decode(&grpc__testing__streaming_input_call_request__descriptor, msg,
                            &message, &err);
    berth_buf_unref(msg);
    if (code) {
        berth_stream_finish(stream, code, &err);
        return;
    }
    req = (Grpc__Testing__StreamingInputCallRequest *)message;
    if (req->payload)
        input->size += (int64_t)req->payload->body.len;
    protobuf_c_message_free_unpacked(message, NULL);
    berth_stream_read(stream);
}

static void input_closed(void *ctx, struct berth_stream *stream,
                         const struct berth_status *status)
{
    (void)stream;
    (void)status;
    free(ctx);
}

static const struct berth_stream_ops input_ops = {.message = input_message,
                                                  .closed = input_closed};

static enum berth_code streaming_input(void *service, struct berth_stream *stream,
                                       const struct berth_stream_ops **ret_ops, void **ret_ctx,
                                       struct berth_error *err)
{
    struct input *input = calloc(1, sizeof *input);

    (void)service;
    if (!input)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    *ret_ops = &input_ops;
    *ret_ctx = input;
    berth_stream_read(stream);
    return BERTH_OK;
}

#define OUTPUT_TYPE &grpc__testing__streaming_output_call_request__descriptor
const struct berth_method interop_methods[] = {
    {INTEROP_PATH("EmptyCall"), &grpc__testing__empty__descriptor, empty_call, NULL, 0},
    {INTEROP_PATH("UnaryCall"), &grpc__testing__simple_request__descriptor, unary_call, NULL,
     0},
    {INTEROP_PATH("CacheableUnaryCall"), &grpc__testing__simple_request__descriptor, unary_call,
     NULL, 0},
    {INTEROP_PATH("StreamingInputCall"),
     &grpc__testing__streaming_input_call_request__descriptor, NULL, streaming_input, 0},
    {INTEROP_PATH("StreamingOutputCall"), OUTPUT_TYPE, NULL, streaming_output, 0},
    {INTEROP_PATH("FullDuplexCall"), OUTPUT_TYPE, NULL, full_duplex, 0},
    {INTEROP_PATH("HalfDuplexCall"), OUTPUT_TYPE, NULL, half_duplex, 0},
};
const size_t n_interop_methods = BERTH_COUNT(interop_methods);
