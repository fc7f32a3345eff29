/* cases.c - numbers and texts are those of gRPC's doc/interop-test-descriptions. */
#include "tests/conformance/rpc/cases.h"

#include <stdio.h>

#include "common/time/time.h"
#include "tests/conformance/rpc/service.h"
#include "tests/conformance/rpc/stream.h"

typedef Grpc__Testing__SimpleRequest SimpleRequest;
typedef Grpc__Testing__SimpleResponse SimpleResponse;
typedef Grpc__Testing__StreamingOutputCallRequest OutputRequest;
typedef Grpc__Testing__StreamingOutputCallResponse OutputResponse;

#define SIMPLE_INIT GRPC__TESTING__SIMPLE_REQUEST__INIT
#define OUTPUT_INIT GRPC__TESTING__STREAMING_OUTPUT_CALL_REQUEST__INIT
#define UNARY INTEROP_PATH("UnaryCall")
#define DUPLEX INTEROP_PATH("FullDuplexCall")

enum {
    LARGE_REQUEST = 271828,
    LARGE_RESPONSE = 314159,
    N_SIZES = 4,
    TIMEOUT_MS = 20000,
    PATIENCE_MS = 60000
};
static const int32_t request_sizes[N_SIZES] = {27182, 8, 1828, 45904};
static const int32_t response_sizes[N_SIZES] = {31415, 9, 2653, 58979};
static const char special_text[] =
    "\t\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP "
    "\U0001f608\t\n";
static const char plain_text[] = "test status message";

#define EXPECT(condition, ...)                                                                 \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            snprintf(client->why, sizeof client->why, __VA_ARGS__);                            \
            return false;                                                                      \
        }                                                                                      \
    } while (0)

/* ------------------------------------------------------------------- plumbing */

static bool call(struct interop_client *client, const char *path, const ProtobufCMessage *req,
                 const ProtobufCMessageDescriptor *type, ProtobufCMessage **ret)
{
    const struct berth_call_options options = {.timeout_ms = TIMEOUT_MS};
    struct berth_error err = {0};
    enum berth_code code =
        berth_channel_call(client->channel, path, req, type, &options, ret, &err);

    EXPECT(code == BERTH_OK, "%s: %s: %s", path, berth_code_name(code), err.text);
    return true;
}

static struct wire_stream *open_with(struct interop_client *client, const char *path,
                                     const struct berth_metadata *metadata, size_t n_metadata,
                                     int64_t timeout_ms)
{
    const struct berth_call_options options = {
        .timeout_ms = timeout_ms, .metadata = metadata, .n_metadata = n_metadata};

    return wire_open(client->channel, client->loop, path, &options);
}

static struct wire_stream *open_plain(struct interop_client *client, const char *path)
{
    return open_with(client, path, NULL, 0, TIMEOUT_MS);
}

static bool ended_with(struct interop_client *client, struct wire_stream *wire,
                       enum berth_code code, const char *message)
{
    struct wire_end end;

    EXPECT(wire_end(wire, &end), "the call did not end");
    EXPECT(end.code == code, "ended with %s, not %s: %s", berth_code_name(end.code),
           berth_code_name(code), end.message);
    EXPECT(!message || strcmp(end.message, message) == 0, "the message is '%s', not '%s'",
           end.message, message);
    return true;
}

static bool zeros(const ProtobufCBinaryData *body)
{
    for (size_t i = 0; i < body->len; i++)
        if (body->data[i])
            return false;
    return true;
}

static bool read_output(struct interop_client *client, struct wire_stream *wire, int32_t size)
{
    struct berth_buf *buf = wire_read(wire);
    ProtobufCMessage *message = NULL;
    const OutputResponse *resp;
    size_t len;
    bool fits;

    EXPECT(buf, "no answer of %d bytes", size);
    fits = berth_buf_decode(&grpc__testing__streaming_output_call_response__descriptor, buf,
                            &message, NULL) == BERTH_OK;
    berth_buf_unref(buf);
    EXPECT(fits, "an answer cannot be read");
    resp = (const OutputResponse *)message;
    len = resp->payload ? resp->payload->body.len : 0;
    fits = len == (size_t)size && (!resp->payload || zeros(&resp->payload->body));
    protobuf_c_message_free_unpacked(message, NULL);
    EXPECT(fits, "an answer of %zu bytes, not %d zeros", len, size);
    return true;
}

static bool write_output(struct wire_stream *wire, int32_t request_size, int32_t response_size)
{
    Grpc__Testing__ResponseParameters parameters = GRPC__TESTING__RESPONSE_PARAMETERS__INIT;
    Grpc__Testing__ResponseParameters *list = &parameters;
    OutputRequest req = OUTPUT_INIT;
    bool written;

    parameters.size = response_size;
    req.n_response_parameters = 1;
    req.response_parameters = &list;
    req.payload = interop_payload((size_t)request_size);
    written = wire_write(wire, &req.base);
    protobuf_c_message_free_unpacked(&req.payload->base, NULL);
    return written;
}

static bool large_call(struct interop_client *client, Grpc__Testing__BoolValue *compressed)
{
    SimpleRequest req = SIMPLE_INIT;
    ProtobufCMessage *message = NULL;
    const SimpleResponse *resp;
    bool fits;

    req.response_size = LARGE_RESPONSE;
    req.response_compressed = compressed;
    req.payload = interop_payload(LARGE_REQUEST);
    fits =
        call(client, UNARY, &req.base, &grpc__testing__simple_response__descriptor, &message);
    protobuf_c_message_free_unpacked(&req.payload->base, NULL);
    if (!fits)
        return false;
    resp = (const SimpleResponse *)message;
    fits = resp->payload && resp->payload->body.len == LARGE_RESPONSE &&
           zeros(&resp->payload->body);
    protobuf_c_message_free_unpacked(message, NULL);
    EXPECT(fits, "the answer is not %d zeros", LARGE_RESPONSE);
    return true;
}

/* ------------------------------------------------------------------ the cases */

static bool empty_unary(struct interop_client *client)
{
    Grpc__Testing__Empty req = GRPC__TESTING__EMPTY__INIT;
    ProtobufCMessage *resp = NULL;

    if (!call(client, INTEROP_PATH("EmptyCall"), &req.base, &grpc__testing__empty__descriptor,
              &resp))
        return false;
    protobuf_c_message_free_unpacked(resp, NULL);
    return true;
}

static bool large_unary(struct interop_client *client)
{
    return large_call(client, NULL);
}

/* The answer comes compressed, then plain, where the server can do that. */
static bool server_compressed_unary(struct interop_client *client)
{
    Grpc__Testing__BoolValue compressed = GRPC__TESTING__BOOL_VALUE__INIT;

    compressed.value = true;
    if (!large_call(client, &compressed))
        return false;
    compressed.value = false;
    return large_call(client, &compressed);
}

static bool client_streaming(struct interop_client *client)
{
    struct wire_stream *wire = open_plain(client, INTEROP_PATH("StreamingInputCall"));
    ProtobufCMessage *message = NULL;
    struct berth_buf *buf;
    int32_t sum = -1;

    for (size_t i = 0; i < N_SIZES; i++) {
        Grpc__Testing__StreamingInputCallRequest req =
            GRPC__TESTING__STREAMING_INPUT_CALL_REQUEST__INIT;

        req.payload = interop_payload((size_t)request_sizes[i]);
        (void)wire_write(wire, &req.base);
        protobuf_c_message_free_unpacked(&req.payload->base, NULL);
    }
    wire_half_close(wire);
    buf = wire_read(wire);
    if (buf && !berth_buf_decode(&grpc__testing__streaming_input_call_response__descriptor, buf,
                                 &message, NULL))
        sum = ((Grpc__Testing__StreamingInputCallResponse *)message)->aggregated_payload_size;
    berth_buf_unref(buf);
    if (message)
        protobuf_c_message_free_unpacked(message, NULL);
    if (!ended_with(client, wire, BERTH_OK, NULL))
        return false;
    EXPECT(sum == 74922, "%d bytes were counted, not 74922", sum);
    return true;
}

static bool stream_down(struct interop_client *client, bool compressed)
{
    struct wire_stream *wire = open_plain(client, INTEROP_PATH("StreamingOutputCall"));
    Grpc__Testing__BoolValue wanted = GRPC__TESTING__BOOL_VALUE__INIT;
    Grpc__Testing__ResponseParameters parameters[N_SIZES], *list[N_SIZES];
    OutputRequest req = OUTPUT_INIT;

    wanted.value = true;
    for (size_t i = 0; i < N_SIZES; i++) {
        grpc__testing__response_parameters__init(&parameters[i]);
        parameters[i].size = response_sizes[i];
        parameters[i].compressed = compressed ? &wanted : NULL;
        list[i] = &parameters[i];
    }
    req.n_response_parameters = N_SIZES;
    req.response_parameters = list;
    (void)wire_write(wire, &req.base);
    wire_half_close(wire);
    for (size_t i = 0; i < N_SIZES; i++)
        if (!read_output(client, wire, response_sizes[i]))
            return false;
    return ended_with(client, wire, BERTH_OK, NULL);
}

static bool server_streaming(struct interop_client *client)
{
    return stream_down(client, false);
}

static bool server_compressed_streaming(struct interop_client *client)
{
    return stream_down(client, true);
}

static bool ping_pong(struct interop_client *client)
{
    struct wire_stream *wire = open_plain(client, DUPLEX);

    for (size_t i = 0; i < N_SIZES; i++) {
        EXPECT(write_output(wire, request_sizes[i], response_sizes[i]), "not sent");
        if (!read_output(client, wire, response_sizes[i]))
            return false;
    }
    wire_half_close(wire);
    return ended_with(client, wire, BERTH_OK, NULL);
}

static bool empty_stream(struct interop_client *client)
{
    struct wire_stream *wire = open_plain(client, DUPLEX);
    struct berth_buf *buf;

    wire_half_close(wire);
    buf = wire_read(wire);
    EXPECT(!buf, "an answer to nothing");
    return ended_with(client, wire, BERTH_OK, NULL);
}

static bool echoed(struct interop_client *client, const char *path, bool unary)
{
    static const uint8_t binary[] = {0xab, 0xab, 0xab};
    static const struct berth_metadata metadata[] = {
        {INTEROP_INITIAL_KEY, "test_initial_metadata_value", 27},
        {INTEROP_TRAILING_KEY, binary, sizeof binary}};
    struct wire_stream *wire =
        open_with(client, path, metadata, BERTH_COUNT(metadata), TIMEOUT_MS);
    struct wire_end end;

    if (unary) {
        SimpleRequest req = SIMPLE_INIT;

        req.response_size = LARGE_RESPONSE;
        req.payload = interop_payload(LARGE_REQUEST);
        (void)wire_write(wire, &req.base);
        protobuf_c_message_free_unpacked(&req.payload->base, NULL);
    } else {
        (void)write_output(wire, LARGE_REQUEST, LARGE_RESPONSE);
    }
    wire_half_close(wire);
    EXPECT(wire_end(wire, &end), "the call did not end");
    EXPECT(end.code == BERTH_OK, "%s: %s", berth_code_name(end.code), end.message);
    EXPECT(strcmp(end.initial, "test_initial_metadata_value") == 0, "%s: initial metadata '%s'",
           path, end.initial);
    EXPECT(strcmp(end.trailing, "ababab") == 0, "%s: trailing metadata '%s'", path,
           end.trailing);
    return true;
}

static bool custom_metadata(struct interop_client *client)
{
    return echoed(client, UNARY, true) && echoed(client, DUPLEX, false);
}

static bool status_by_unary(struct interop_client *client, const char *text)
{
    Grpc__Testing__EchoStatus status = GRPC__TESTING__ECHO_STATUS__INIT;
    struct wire_stream *wire = open_plain(client, UNARY);
    SimpleRequest req = SIMPLE_INIT;

    status.code = BERTH_UNKNOWN;
    status.message = (char *)(uintptr_t)text;
    req.response_status = &status;
    (void)wire_write(wire, &req.base);
    wire_half_close(wire);
    return ended_with(client, wire, BERTH_UNKNOWN, text);
}

static bool status_code_and_message(struct interop_client *client)
{
    Grpc__Testing__EchoStatus status = GRPC__TESTING__ECHO_STATUS__INIT;
    OutputRequest req = OUTPUT_INIT;
    struct wire_stream *wire;

    if (!status_by_unary(client, plain_text))
        return false;
    wire = open_plain(client, DUPLEX);
    status.code = BERTH_UNKNOWN;
    status.message = (char *)(uintptr_t)plain_text;
    req.response_status = &status;
    (void)wire_write(wire, &req.base);
    wire_half_close(wire);
    return ended_with(client, wire, BERTH_UNKNOWN, plain_text);
}

static bool special_status_message(struct interop_client *client)
{
    return status_by_unary(client, special_text);
}

static bool refused(struct interop_client *client, const char *path)
{
    struct wire_stream *wire = open_plain(client, path);
    Grpc__Testing__Empty req = GRPC__TESTING__EMPTY__INIT;

    (void)wire_write(wire, &req.base);
    wire_half_close(wire);
    return ended_with(client, wire, BERTH_UNIMPLEMENTED, NULL);
}

static bool unimplemented_method(struct interop_client *client)
{
    return refused(client, INTEROP_PATH("UnimplementedCall"));
}

static bool unimplemented_service(struct interop_client *client)
{
    return refused(client, "/grpc.testing.UnimplementedService/UnimplementedCall");
}

static bool cancel_after_begin(struct interop_client *client)
{
    struct wire_stream *wire = open_plain(client, INTEROP_PATH("StreamingInputCall"));

    wire_begin(wire);
    wire_cancel(wire);
    return ended_with(client, wire, BERTH_CANCELLED, NULL);
}

static bool cancel_after_first_response(struct interop_client *client)
{
    struct wire_stream *wire = open_plain(client, DUPLEX);

    EXPECT(write_output(wire, request_sizes[0], response_sizes[0]), "not sent");
    if (!read_output(client, wire, response_sizes[0]))
        return false;
    wire_cancel(wire);
    return ended_with(client, wire, BERTH_CANCELLED, NULL);
}

static bool timeout_on_sleeping_server(struct interop_client *client)
{
    struct wire_stream *wire = open_with(client, DUPLEX, NULL, 0, 1);
    OutputRequest req = OUTPUT_INIT;

    req.payload = interop_payload((size_t)request_sizes[0]);
    (void)wire_write(wire, &req.base);
    protobuf_c_message_free_unpacked(&req.payload->base, NULL);
    return ended_with(client, wire, BERTH_DEADLINE_EXCEEDED, NULL);
}

/* Not one of gRPC's: calls until one is answered, for a minute. Each failure must say that
 * nobody was there; how fast to try again is the channel's own affair. */
static bool keep_asking(struct interop_client *client)
{
    const struct berth_call_options options = {.timeout_ms = TIMEOUT_MS};
    Grpc__Testing__Empty req = GRPC__TESTING__EMPTY__INIT;
    int64_t end_ms = berth_tick_ms() + PATIENCE_MS;
    ProtobufCMessage *resp = NULL;

    for (;;) {
        struct berth_error err = {0};
        enum berth_code code =
            berth_channel_call(client->channel, INTEROP_PATH("EmptyCall"), &req.base,
                               &grpc__testing__empty__descriptor, &options, &resp, &err);

        if (code == BERTH_OK)
            break;
        EXPECT(code == BERTH_UNAVAILABLE || code == BERTH_UNKNOWN, "%s: %s",
               berth_code_name(code), err.text);
        EXPECT(berth_tick_ms() < end_ms, "not answered in a minute: %s", err.text);
        (void)berth_channel_ready(client->channel, TIMEOUT_MS);
    }
    protobuf_c_message_free_unpacked(resp, NULL);
    return true;
}

const struct interop_case interop_cases[] = {
    {"empty_unary", empty_unary},
    {"large_unary", large_unary},
    {"client_streaming", client_streaming},
    {"server_streaming", server_streaming},
    {"ping_pong", ping_pong},
    {"empty_stream", empty_stream},
    {"custom_metadata", custom_metadata},
    {"status_code_and_message", status_code_and_message},
    {"special_status_message", special_status_message},
    {"unimplemented_method", unimplemented_method},
    {"unimplemented_service", unimplemented_service},
    {"cancel_after_begin", cancel_after_begin},
    {"cancel_after_first_response", cancel_after_first_response},
    {"timeout_on_sleeping_server", timeout_on_sleeping_server},
    {"server_compressed_unary", server_compressed_unary},
    {"server_compressed_streaming", server_compressed_streaming},
    {"keep_asking", keep_asking},
};
const size_t n_interop_cases = BERTH_COUNT(interop_cases);
