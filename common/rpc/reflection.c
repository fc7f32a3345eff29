/* reflection.c - grpc.reflection v1 and v1alpha, which are the same on the wire. */
#include "common/rpc/server.h"
#include "common/rpc/symbols.h"
#include "grpc/reflection/v1/reflection.pb-c.h"

typedef Grpc__Reflection__V1__ServerReflectionRequest ReflectionRequest;
typedef Grpc__Reflection__V1__ServerReflectionResponse ReflectionResponse;
typedef Grpc__Reflection__V1__ServiceResponse ServiceResponse;

#define ASKED(name) GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##name
#define ANSWER(name) GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_##name
#define V1 "grpc.reflection.v1.ServerReflection"
#define V1_ALPHA "grpc.reflection.v1alpha.ServerReflection"

enum { EXTENSIONS_MAX = 256 };

struct rpc_reflection {
    struct rpc_symbols symbols;
    ServiceResponse *services;
    ServiceResponse **service_list;
    size_t n_services;
    ProtobufCBinaryData *files; /* room for one answer; loop thread */
};

/* ------------------------------------------------------------------- answers */

static struct berth_buf *pack_error(ReflectionResponse *response, enum berth_code code,
                                    const char *text)
{
    Grpc__Reflection__V1__ErrorResponse error = GRPC__REFLECTION__V1__ERROR_RESPONSE__INIT;

    error.error_code = (int32_t)code;
    error.error_message = (char *)(uintptr_t)text;
    response->message_response_case = ANSWER(ERROR_RESPONSE);
    response->error_response = &error;
    return berth_buf_pack(&response->base);
}

static struct berth_buf *pack_file(struct rpc_reflection *reflection,
                                   ReflectionResponse *response, int file,
                                   const char *not_found)
{
    Grpc__Reflection__V1__FileDescriptorResponse files =
        GRPC__REFLECTION__V1__FILE_DESCRIPTOR_RESPONSE__INIT;

    if (file == RPC_NO_FILE)
        return pack_error(response, BERTH_NOT_FOUND, not_found);
    files.n_file_descriptor_proto =
        rpc_symbols_closure(&reflection->symbols, file, reflection->files);
    files.file_descriptor_proto = reflection->files;
    response->message_response_case = ANSWER(FILE_DESCRIPTOR_RESPONSE);
    response->file_descriptor_response = &files;
    return berth_buf_pack(&response->base);
}

static struct berth_buf *pack_extensions(const struct rpc_reflection *reflection,
                                         ReflectionResponse *response, const char *type)
{
    Grpc__Reflection__V1__ExtensionNumberResponse numbers =
        GRPC__REFLECTION__V1__EXTENSION_NUMBER_RESPONSE__INIT;
    int32_t list[EXTENSIONS_MAX];

    if (rpc_symbols_find(&reflection->symbols, type) == RPC_NO_FILE)
        return pack_error(response, BERTH_NOT_FOUND, "no such type");
    numbers.base_type_name = (char *)(uintptr_t)type;
    numbers.n_extension_number =
        rpc_symbols_extensions(&reflection->symbols, type, list, EXTENSIONS_MAX);
    numbers.extension_number = list;
    response->message_response_case = ANSWER(ALL_EXTENSION_NUMBERS_RESPONSE);
    response->all_extension_numbers_response = &numbers;
    return berth_buf_pack(&response->base);
}

static struct berth_buf *pack_services(const struct rpc_reflection *reflection,
                                       ReflectionResponse *response)
{
    Grpc__Reflection__V1__ListServiceResponse list =
        GRPC__REFLECTION__V1__LIST_SERVICE_RESPONSE__INIT;

    list.n_service = reflection->n_services;
    list.service = reflection->service_list;
    response->message_response_case = ANSWER(LIST_SERVICES_RESPONSE);
    response->list_services_response = &list;
    return berth_buf_pack(&response->base);
}

/* NULL: out of memory. */
static struct berth_buf *answer(struct rpc_reflection *reflection, ReflectionRequest *req)
{
    const struct rpc_symbols *symbols = &reflection->symbols;
    ReflectionResponse response = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;

    response.valid_host = req->host;
    response.original_request = req;
    switch (req->message_request_case) {
    case ASKED(FILE_BY_FILENAME):
        return pack_file(reflection, &response,
                         rpc_symbols_file(symbols, req->file_by_filename), "no such file");
    case ASKED(FILE_CONTAINING_SYMBOL):
        return pack_file(reflection, &response,
                         rpc_symbols_find(symbols, req->file_containing_symbol),
                         "no such symbol");
    case ASKED(FILE_CONTAINING_EXTENSION):
        return pack_file(
            reflection, &response,
            rpc_symbols_extension(symbols, req->file_containing_extension->containing_type,
                                  req->file_containing_extension->extension_number),
            "no such extension");
    case ASKED(ALL_EXTENSION_NUMBERS_OF_TYPE):
        return pack_extensions(reflection, &response, req->all_extension_numbers_of_type);
    case ASKED(LIST_SERVICES):
        return pack_services(reflection, &response);
    default:
        return pack_error(&response, BERTH_INVALID_ARGUMENT, "nothing is asked for");
    }
}

/* -------------------------------------------------------------------- stream */

static void on_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    ProtobufCMessage *request;
    struct berth_error err = {0};
    struct berth_buf *buf;
    enum berth_code code;

    if (!msg) {
        berth_stream_finish(stream, BERTH_OK, NULL);
        return;
    }
    code = berth_buf_decode(&grpc__reflection__v1__server_reflection_request__descriptor, msg,
                            &request, &err);
    berth_buf_unref(msg);
    if (!code) {
        buf = answer(ctx, (ReflectionRequest *)request);
        protobuf_c_message_free_unpacked(request, NULL);
        if (buf)
            (void)berth_stream_write(stream, buf);
        else
            code = berth_fail(&err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    if (code)
        berth_stream_finish(stream, code, &err);
}

static void on_written(void *ctx, struct berth_stream *stream)
{
    (void)ctx;
    berth_stream_read(stream); /* one question at a time */
}

static const struct berth_stream_ops reflection_ops = {.message = on_message,
                                                       .written = on_written};

static enum berth_code open_info(void *service, struct berth_stream *stream,
                                 const struct berth_stream_ops **ret_ops, void **ret_ctx,
                                 struct berth_error *err)
{
    (void)err;
    *ret_ops = &reflection_ops;
    *ret_ctx = service;
    berth_stream_read(stream);
    return BERTH_OK;
}

/* -------------------------------------------------------------------- set up */

static enum berth_code init(struct rpc_reflection *reflection, const uint8_t *set, size_t size,
                            const char *const *services, size_t n_services,
                            struct berth_error *err)
{
    static const char *const own[] = {"grpc.health.v1.Health", V1, V1_ALPHA};
    enum berth_code code = rpc_symbols_init(&reflection->symbols, set, size, err);
    size_t n = n_services + BERTH_COUNT(own);

    if (code)
        return code;
    reflection->services = calloc(n, sizeof *reflection->services);
    reflection->service_list = calloc(n, sizeof(ServiceResponse *));
    reflection->files = calloc(reflection->symbols.n_files + 1, sizeof *reflection->files);
    if (!reflection->services || !reflection->service_list || !reflection->files)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    for (size_t i = 0; i < n; i++) {
        ServiceResponse *service = &reflection->services[i];
        const char *name = i < n_services ? services[i] : own[i - n_services];

        grpc__reflection__v1__service_response__init(service);
        service->name = (char *)(uintptr_t)name;
        reflection->service_list[i] = service;
    }
    reflection->n_services = n;
    return BERTH_OK;
}

enum berth_code berth_reflection_add(struct berth_server *server, const uint8_t *descriptor_set,
                                     size_t size, const char *const *services,
                                     size_t n_services, struct berth_error *err)
{
    static const struct berth_method methods[] = {
        {"/" V1 "/ServerReflectionInfo",
         &grpc__reflection__v1__server_reflection_request__descriptor, NULL, open_info, 0},
        {"/" V1_ALPHA "/ServerReflectionInfo",
         &grpc__reflection__v1__server_reflection_request__descriptor, NULL, open_info, 0},
    };
    struct rpc_reflection *reflection = calloc(1, sizeof *reflection);
    enum berth_code code;

    if (!reflection)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    server->reflection = reflection;
    code = init(reflection, descriptor_set, size, services, n_services, err);
    if (code)
        return code;
    return berth_server_add(server, methods, BERTH_COUNT(methods), reflection, err);
}

void rpc_reflection_free(struct rpc_reflection *reflection)
{
    if (!reflection)
        return;
    rpc_symbols_deinit(&reflection->symbols);
    free(reflection->services);
    free(reflection->service_list);
    free(reflection->files);
    free(reflection);
}
