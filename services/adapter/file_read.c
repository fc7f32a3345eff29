/* file_read.c - ReadFile: entry, data, done. While one chunk is on its way the next one is
 * read, by a worker; two chunks are all the memory a stream takes. */
#include "common/crypto/crypto.h"
#include "common/data/data.h"
#include "services/adapter/convert.h"
#include "services/adapter/file_rpc.h"

enum { CHUNK_SIZE = 1 << 20 };

typedef Berth__Data__V1__ReadFileRequest ReadFileRequest;
typedef Berth__Data__V1__ReadFileResponse ReadFileResponse;

struct read_call {
    const struct adapter_service *service;
    struct berth_stream *stream; /* NULL: closed */
    struct file_job job;
    struct adapter_route route;
    ReadFileRequest *req;
    struct adapter_reader *reader;
    struct berth_sha256 *hash;
    uint64_t size; /* bytes read */
    /* What the last job brought; for the loop when it is over. */
    struct berth_buf *ready; /* next message; waits until the one before is out */
    bool last;               /* it is FileDone */
    enum berth_code code;
    struct berth_error err;
};

static void call_free(struct read_call *call)
{
    if (call->reader)
        call->service->ops->files->close_read(call->reader);
    if (call->req)
        protobuf_c_message_free_unpacked(&call->req->base, NULL);
    berth_sha256_free(call->hash);
    berth_buf_unref(call->ready);
    free(call);
}

static struct berth_buf *pack(ReadFileResponse *resp, struct read_call *call)
{
    struct berth_buf *buf = berth_buf_pack(&resp->base);

    if (!buf)
        call->code = berth_fail(&call->err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    return buf;
}

/* On a worker. */
static void work_open(void *arg)
{
    struct read_call *call = arg;
    ReadFileResponse resp = BERTH__DATA__V1__READ_FILE_RESPONSE__INIT;
    struct adapter_file file = {0};

    call->code = call->service->ops->files->open_read(
        call->service->adapter, &call->route, call->req->path, call->req->offset,
        call->req->length, call->req->if_etag, &call->reader, &file, &call->err);
    if (call->code)
        return;
    call->hash = berth_sha256_new();
    resp.message_case = BERTH__DATA__V1__READ_FILE_RESPONSE__MESSAGE_ENTRY;
    resp.entry = convert_file(&file);
    adapter_file_deinit(&file);
    if (call->hash && resp.entry)
        call->ready = pack(&resp, call);
    else
        call->code = berth_fail(&call->err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (resp.entry)
        protobuf_c_message_free_unpacked(&resp.entry->base, NULL);
}

static void work_done(struct read_call *call)
{
    ReadFileResponse resp = BERTH__DATA__V1__READ_FILE_RESPONSE__INIT;
    Berth__Data__V1__FileDone done = BERTH__DATA__V1__FILE_DONE__INIT;
    uint8_t sha256[32];

    berth_sha256_end(call->hash, sha256);
    done.size_bytes = call->size;
    done.sha256 = (ProtobufCBinaryData){sizeof sha256, sha256};
    resp.message_case = BERTH__DATA__V1__READ_FILE_RESPONSE__MESSAGE_DONE;
    resp.done = &done;
    call->last = true;
    call->ready = pack(&resp, call);
}

/* The file is read to where it will be sent from, behind room for the header. */
static void work_read(void *arg)
{
    struct read_call *call = arg;
    uint8_t *bytes = malloc(FILE_HEADER_MAX + CHUNK_SIZE), *data;
    size_t size, header;

    if (!bytes) {
        call->code = berth_fail(&call->err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        return;
    }
    data = bytes + FILE_HEADER_MAX;
    call->code =
        call->service->ops->files->read(call->reader, data, CHUNK_SIZE, &size, &call->err);
    if (call->code || size == 0) {
        free(bytes);
        if (!call->code)
            work_done(call);
        return;
    }
    berth_sha256_add(call->hash, data, size);
    call->size += size;
    header = file_header_before(data, size);
    call->ready = berth_buf_take(bytes, FILE_HEADER_MAX - header, header + size);
    if (!call->ready)
        call->code = berth_fail(&call->err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

static void on_job(void *arg);

/* Send what is ready, and have the next one read meanwhile. */
static void go_on(struct read_call *call)
{
    if (!call->ready || !berth_stream_can_write(call->stream))
        return;
    if (call->last) {
        berth_stream_answer(call->stream, BERTH_STEAL(call->ready));
        return;
    }
    berth_stream_write(call->stream, BERTH_STEAL(call->ready));
    (void)!file_job_start(&call->job, false, work_read, on_job, NULL);
}

static void on_job(void *arg)
{
    struct read_call *call = arg;

    if (!call->stream) {
        call_free(call);
        return;
    }
    if (call->code)
        berth_stream_finish(call->stream, call->code, &call->err);
    else
        go_on(call);
}

static enum berth_code begin(struct read_call *call, struct berth_buf *msg,
                             struct berth_error *err)
{
    ProtobufCMessage *request = NULL;
    enum berth_code code;

    if (!msg)
        return berth_fail_field(err, "request", "must be there");
    code =
        berth_buf_decode(&berth__data__v1__read_file_request__descriptor, msg, &request, err);
    if (code)
        return code;
    call->req = (ReadFileRequest *)request;
    code = adapter_route_read(berth_stream_call(call->stream), call->service->ops->backend,
                              &call->route, err);
    if (code == BERTH_OK)
        code = berth_data_check(request, NULL, err);
    if (code == BERTH_OK)
        code = file_job_start(&call->job, true, work_open, on_job, err);
    return code;
}

static void on_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct berth_error err = {0};
    enum berth_code code = begin(ctx, msg, &err);

    berth_buf_unref(msg);
    if (code)
        berth_stream_finish(stream, code, &err);
}

static void on_written(void *ctx, struct berth_stream *stream)
{
    struct read_call *call = ctx;

    (void)stream;
    if (!call->job.busy && call->code == BERTH_OK)
        go_on(call);
}

static void on_cancelled(void *ctx, struct berth_stream *stream)
{
    struct berth_error err = {0};
    enum berth_code code = berth_fail(&err, BERTH_REASON_CANCELLED, NULL);

    (void)ctx;
    berth_stream_finish(stream, code, &err);
}

static void on_closed(void *ctx, struct berth_stream *stream, const struct berth_status *status)
{
    struct read_call *call = ctx;

    (void)stream;
    (void)status;
    call->stream = NULL;
    if (!call->job.busy)
        call_free(call);
}

static const struct berth_stream_ops stream_ops = {.message = on_message,
                                                   .written = on_written,
                                                   .closed = on_closed,
                                                   .cancelled = on_cancelled};

enum berth_code file_open_read(void *service, struct berth_stream *stream,
                               const struct berth_stream_ops **ret_ops, void **ret_ctx,
                               struct berth_error *err)
{
    struct read_call *call = calloc(1, sizeof *call);

    if (!call)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    call->service = service;
    call->stream = stream;
    call->job = (struct file_job){
        .pool = call->service->runtime->pool, .loop = berth_stream_loop(stream), .arg = call};
    *ret_ops = &stream_ops;
    *ret_ctx = call;
    berth_stream_read(stream);
    return BERTH_OK;
}
