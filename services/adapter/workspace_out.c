/* workspace_out.c - ExportWorkspace: pieces of the tar, then done. While one piece is on its
 * way the next one is made, by a worker; two are all the memory a stream takes. */
#include "common/crypto/crypto.h"
#include "common/data/data.h"
#include "services/adapter/workspace.h"

enum {
    CHUNK_SIZE = 1 << 20,
    TAR_TAG = 1 << 3 | 2 /* field 1, length-delimited */
};

typedef Berth__Data__V1__ExportWorkspaceResponse ExportWorkspaceResponse;

struct export_call {
    const struct adapter_service *service;
    struct berth_stream *stream; /* NULL: closed */
    struct file_job job;
    struct adapter_route route;
    struct adapter_pack *pack;
    struct berth_sha256 *hash; /* NULL: whoever moves it counts for itself */
    uint64_t size;             /* bytes of the tar */
    struct berth_buf *ready;   /* next message; waits until the one before is out */
    bool last;                 /* it is done */
    enum berth_code code;
    struct berth_error err;
};

static const struct adapter_workspace_ops *ops_of(const struct export_call *call)
{
    return call->service->ops->workspace;
}

static void call_free(void *arg)
{
    struct export_call *call = arg;

    berth_sha256_free(call->hash);
    berth_buf_unref(call->ready);
    free(call);
}

/* ------------------------------------------------------------------- on a worker */

static void work_done(struct export_call *call)
{
    ExportWorkspaceResponse resp;
    Berth__Data__V1__FileDone done = BERTH__DATA__V1__FILE_DONE__INIT;
    const struct adapter_carried *carried = ops_of(call)->packed(call->pack);
    uint8_t sha256[32];

    berth__data__v1__export_workspace_response__init(&resp);
    done.size_bytes = call->size;
    if (call->hash) {
        berth_sha256_end(call->hash, sha256);
        done.sha256 = (ProtobufCBinaryData){sizeof sha256, sha256};
    }
    resp.message_case = BERTH__DATA__V1__EXPORT_WORKSPACE_RESPONSE__MESSAGE_DONE;
    resp.done = &done;
    resp.files = carried->files;
    resp.lost_count = carried->lost_count;
    call->last = true;
    if (workspace_lost(carried, &resp.lost, &resp.n_lost)) {
        call->ready = berth_buf_pack(&resp.base);
        workspace_free_lost(resp.lost, resp.n_lost);
    }
    if (!call->ready)
        call->code = berth_fail(&call->err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

/* The tar is made where it will be sent from, behind room for the header. */
static void work_read(void *arg)
{
    struct export_call *call = arg;
    uint8_t *bytes = malloc(FILE_HEADER_MAX + CHUNK_SIZE), *data;
    size_t size = 0, header;

    if (!bytes) {
        call->code = berth_fail(&call->err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        return;
    }
    data = bytes + FILE_HEADER_MAX;
    call->code = ops_of(call)->read_pack(call->pack, data, CHUNK_SIZE, &size, &call->err);
    if (call->code || size == 0) {
        free(bytes);
        if (!call->code)
            work_done(call);
        return;
    }
    if (call->hash)
        berth_sha256_add(call->hash, data, size);
    call->size += size;
    header = file_header_before(data, size);
    data[-(ptrdiff_t)header] = TAR_TAG;
    call->ready = berth_buf_take(bytes, FILE_HEADER_MAX - header, header + size);
    if (!call->ready)
        call->code = berth_fail(&call->err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

static void work_open(void *arg)
{
    struct export_call *call = arg;

    call->code =
        ops_of(call)->open_pack(call->service->adapter, &call->route, &call->pack, &call->err);
    if (!call->code)
        work_read(call);
}

static void work_close(void *arg)
{
    struct export_call *call = arg;

    ops_of(call)->close_pack(call->pack);
}

/* ----------------------------------------------------------------------- the loop */

/* The stream is closed and no worker is busy. */
static void let_go(struct export_call *call)
{
    if (call->pack)
        (void)!file_job_start(&call->job, false, work_close, call_free, NULL);
    else
        call_free(call);
}

static void on_job(void *arg);

/* Send what is ready, and have the next one made meanwhile. */
static void go_on(struct export_call *call)
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
    struct export_call *call = arg;

    if (!call->stream)
        let_go(call);
    else if (call->code)
        berth_stream_finish(call->stream, call->code, &call->err);
    else
        go_on(call);
}

static enum berth_code begin(struct export_call *call, struct berth_buf *msg,
                             struct berth_error *err)
{
    const struct berth_call *of = berth_stream_call(call->stream);
    ProtobufCMessage *request = NULL;
    enum berth_code code;

    if (!msg)
        return berth_fail_field(err, "request", "must be there");
    code = berth_buf_decode(&berth__data__v1__export_workspace_request__descriptor, msg,
                            &request, err);
    if (code)
        return code;
    code = adapter_route_read(of, call->service->ops->backend, &call->route, err);
    if (code == BERTH_OK)
        code = berth_data_check(request, NULL, err);
    protobuf_c_message_free_unpacked(request, NULL);
    if (code == BERTH_OK && !workspace_is_moved(of)) {
        call->hash = berth_sha256_new();
        if (!call->hash)
            code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    return code ? code : file_job_start(&call->job, true, work_open, on_job, err);
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
    struct export_call *call = ctx;

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
    struct export_call *call = ctx;

    (void)stream;
    (void)status;
    call->stream = NULL;
    if (!call->job.busy)
        let_go(call);
}

static const struct berth_stream_ops stream_ops = {.message = on_message,
                                                   .written = on_written,
                                                   .closed = on_closed,
                                                   .cancelled = on_cancelled};

enum berth_code workspace_open_export(void *service, struct berth_stream *stream,
                                      const struct berth_stream_ops **ret_ops, void **ret_ctx,
                                      struct berth_error *err)
{
    const struct adapter_service *s = service;
    struct export_call *call;

    if (!s->ops->workspace)
        return berth_fail(err, BERTH_REASON_CAPABILITY_MISSING, "workspaces");
    call = calloc(1, sizeof *call);
    if (!call)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    call->service = s;
    call->stream = stream;
    call->job = (struct file_job){
        .pool = s->runtime->pool, .loop = berth_stream_loop(stream), .arg = call};
    *ret_ops = &stream_ops;
    *ret_ctx = call;
    berth_stream_read(stream);
    return BERTH_OK;
}
