/* workspace_in.c - ImportWorkspace: open, pieces of the tar, done. While a worker unpacks one
 * message the next ones are received, up to HELD_BYTES_MAX. */
#include <stdatomic.h>

#include "common/crypto/crypto.h"
#include "common/data/data.h"
#include "services/adapter/workspace.h"

enum { HELD_BYTES_MAX = 4 << 20, HELD_MAX = 16 };

typedef Berth__Data__V1__ImportWorkspaceRequest ImportWorkspaceRequest;

struct batch {
    struct berth_buf *msgs[HELD_MAX];
    unsigned n;
    size_t bytes;
};

struct import_call {
    const struct adapter_service *service;
    struct berth_stream *stream; /* NULL: closed */
    struct file_job job;
    struct adapter_route route;
    struct adapter_unpack *unpack;
    struct berth_sha256 *hash; /* NULL: whoever moves it counts for itself */
    uint64_t size;             /* bytes of the tar */
    struct batch waiting, now; /* received, in order; the worker's */
    bool done;                 /* the worker's: the message was seen */
    bool opened, asked, half_closed, ended;
    atomic_bool given_up; /* the worker shall know */
    struct berth_buf *answer;
    enum berth_code code;
    struct berth_error err;
};

static const struct adapter_workspace_ops *ops_of(const struct import_call *call)
{
    return call->service->ops->workspace;
}

static void batch_drop(struct batch *batch)
{
    for (unsigned i = 0; i < batch->n; i++)
        berth_buf_unref(batch->msgs[i]);
    batch->n = 0;
    batch->bytes = 0;
}

static void call_free(void *arg)
{
    struct import_call *call = arg;

    berth_sha256_free(call->hash);
    batch_drop(&call->now);
    batch_drop(&call->waiting);
    berth_buf_unref(call->answer);
    free(call);
}

static void fail(struct import_call *call, enum berth_code code, const struct berth_error *err)
{
    call->ended = true;
    atomic_store(&call->given_up, true);
    batch_drop(&call->waiting);
    if (call->stream)
        berth_stream_finish(call->stream, code, err);
}

/* ------------------------------------------------------------------- on a worker */

static void work_open(void *arg)
{
    struct import_call *call = arg;

    call->code = ops_of(call)->open_unpack(call->service->adapter, &call->route,
                                           call->hash == NULL, &call->unpack, &call->err);
}

static enum berth_code unpack_bytes(struct import_call *call, const uint8_t *data, size_t size,
                                    struct berth_error *err)
{
    if (call->hash)
        berth_sha256_add(call->hash, data, size);
    call->size += size;
    return ops_of(call)->write_unpack(call->unpack, data, size, err);
}

static enum berth_code check_chunk(const struct import_call *call, size_t size,
                                   struct berth_error *err)
{
    if (call->done)
        return berth_fail_field(err, "tar_data", "none after done");
    return size > BERTH_DATA_CHUNK_MAX
               ? berth_fail_field(err, "tar_data", "at most %d bytes", BERTH_DATA_CHUNK_MAX)
               : BERTH_OK;
}

static size_t header_size(const struct berth_buf *msg)
{
    struct iovec pieces[FILE_HEADER_MAX];
    size_t n = berth_buf_pieces(msg, 0, pieces, FILE_HEADER_MAX), size = 0;
    uint8_t head[FILE_HEADER_MAX];

    for (size_t i = 0; i < n; i++)
        for (size_t at = 0; at < pieces[i].iov_len && size < sizeof head; at++)
            head[size++] = ((const uint8_t *)pieces[i].iov_base)[at];
    return file_header_size(head, size, berth_buf_size(msg));
}

/* A message that is nothing but content, from header on. In one piece: the core's own are so
 * small that each would cost a write. */
static enum berth_code unpack_content(struct import_call *call, struct berth_buf *msg,
                                      size_t header, struct berth_error *err)
{
    size_t size = berth_buf_size(msg) - header;
    const uint8_t *bytes;
    enum berth_code code = check_chunk(call, size, err);

    if (code)
        return code;
    bytes = berth_buf_data(msg);
    return bytes ? unpack_bytes(call, bytes + header, size, err)
                 : berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

static enum berth_code take_done(struct import_call *call,
                                 const Berth__Data__V1__FileDone *done, struct berth_error *err)
{
    uint8_t sha256[32];

    if (call->done)
        return berth_fail_field(err, "done", "must be the last message");
    call->done = true;
    if (done->size_bytes && done->size_bytes != call->size)
        return berth_fail_field(err, "done.size_bytes", "%llu, as many as were sent",
                                (unsigned long long)call->size);
    if (!call->hash)
        return BERTH_OK;
    berth_sha256_end(call->hash, sha256);
    if (done->sha256.len != 0 &&
        (done->sha256.len != sizeof sha256 || memcmp(done->sha256.data, sha256, 32) != 0))
        return berth_fail_field(err, "done.sha256", "the SHA-256 of what was sent, or empty");
    return BERTH_OK;
}

static enum berth_code end_import(struct import_call *call, struct berth_error *err)
{
    Berth__Data__V1__ImportWorkspaceResponse resp =
        BERTH__DATA__V1__IMPORT_WORKSPACE_RESPONSE__INIT;
    const struct adapter_carried *carried = ops_of(call)->unpacked(call->unpack);
    enum berth_code code = ops_of(call)->end_unpack(call->unpack, err);

    if (code)
        return code;
    resp.files = carried->files;
    resp.size_bytes = carried->size_bytes;
    resp.lost_count = carried->lost_count;
    if (workspace_lost(carried, &resp.lost, &resp.n_lost)) {
        call->answer = berth_buf_pack(&resp.base);
        workspace_free_lost(resp.lost, resp.n_lost);
    }
    return call->answer ? BERTH_OK
                        : berth_fail(err, BERTH_REASON_OUTCOME_UNKNOWN,
                                     "unpacked, but no memory for the answer");
}

static enum berth_code unpack_message(struct import_call *call, struct berth_buf *msg,
                                      struct berth_error *err)
{
    ProtobufCMessage *message = NULL;
    const ImportWorkspaceRequest *req;
    size_t header = header_size(msg);
    enum berth_code code;

    if (header > 0)
        return unpack_content(call, msg, header, err);
    code = berth_buf_decode(&berth__data__v1__import_workspace_request__descriptor, msg,
                            &message, err);
    if (code)
        return code;
    req = (const ImportWorkspaceRequest *)message;
    switch (req->message_case) {
    case BERTH__DATA__V1__IMPORT_WORKSPACE_REQUEST__MESSAGE_TAR_DATA:
        code = check_chunk(call, req->tar_data.len, err);
        if (code == BERTH_OK)
            code = unpack_bytes(call, req->tar_data.data, req->tar_data.len, err);
        break;
    case BERTH__DATA__V1__IMPORT_WORKSPACE_REQUEST__MESSAGE_DONE:
        code = take_done(call, req->done, err);
        break;
    default:
        code = berth_fail_field(err, "message", "tar_data or done after open");
    }
    protobuf_c_message_free_unpacked(message, NULL);
    return code;
}

/* Up to the first message that ends the call. */
static void work_batch(void *arg)
{
    struct import_call *call = arg;

    for (unsigned i = 0; i < call->now.n; i++) {
        if (call->code || atomic_load(&call->given_up))
            break;
        call->code = unpack_message(call, call->now.msgs[i], &call->err);
        call->now.msgs[i] = berth_buf_unref(call->now.msgs[i]);
    }
}

/* Done was the last message. */
static void work_end(void *arg)
{
    struct import_call *call = arg;

    call->code = end_import(call, &call->err);
}

static void work_close(void *arg)
{
    struct import_call *call = arg;

    ops_of(call)->close_unpack(call->unpack);
    call->unpack = NULL;
}

/* ----------------------------------------------------------------------- the loop */

/* The stream is closed and no worker is busy. */
static void let_go(struct import_call *call)
{
    if (call->unpack)
        (void)!file_job_start(&call->job, false, work_close, call_free, NULL);
    else
        call_free(call);
}

static void receive(struct import_call *call)
{
    const struct batch *waiting = &call->waiting, *now = &call->now;

    if (call->asked || call->half_closed || waiting->n + now->n >= HELD_MAX ||
        waiting->bytes + now->bytes >= HELD_BYTES_MAX)
        return;
    call->asked = true;
    berth_stream_read(call->stream);
}

static void on_job(void *arg);

/* Have what waits unpacked, and receive more. */
static void go_on(struct import_call *call)
{
    struct berth_error err = {0};

    if (call->ended)
        return;
    if (!call->job.busy && call->waiting.n > 0) {
        call->now = call->waiting;
        call->waiting.n = 0;
        call->waiting.bytes = 0;
        (void)!file_job_start(&call->job, false, work_batch, on_job, NULL);
    } else if (!call->job.busy && call->half_closed && call->done) {
        (void)!file_job_start(&call->job, false, work_end, on_job, NULL);
    } else if (!call->job.busy && call->half_closed) {
        fail(call, berth_fail_field(&err, "done", "must be the last message"), &err);
        return;
    }
    receive(call);
}

static void on_closed_up(void *arg)
{
    struct import_call *call = arg;

    if (!call->stream) {
        call_free(call);
        return;
    }
    call->ended = true;
    if (call->code)
        fail(call, call->code, &call->err);
    else
        berth_stream_answer(call->stream, BERTH_STEAL(call->answer));
}

static void on_job(void *arg)
{
    struct import_call *call = arg;

    batch_drop(&call->now);
    if (!call->stream)
        let_go(call);
    else if (!call->code && !call->answer)
        go_on(call);
    else if (call->unpack) /* the next one may begin as soon as the caller hears of the end */
        (void)!file_job_start(&call->job, false, work_close, on_closed_up, NULL);
    else
        on_closed_up(call);
}

static enum berth_code take_open(struct import_call *call, struct berth_buf *msg,
                                 struct berth_error *err)
{
    const struct berth_call *of = berth_stream_call(call->stream);
    ProtobufCMessage *message = NULL;
    enum berth_code code;

    if (!msg)
        return berth_fail_field(err, "done", "must be the last message");
    code = berth_buf_decode(&berth__data__v1__import_workspace_request__descriptor, msg,
                            &message, err);
    if (code)
        return code;
    code = adapter_route_read(of, call->service->ops->backend, &call->route, err);
    if (code == BERTH_OK)
        code = berth_data_check(message, NULL, err);
    protobuf_c_message_free_unpacked(message, NULL);
    if (code)
        return code;
    if (!workspace_is_moved(of)) {
        call->hash = berth_sha256_new();
        if (!call->hash)
            return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    call->opened = true;
    return file_job_start(&call->job, true, work_open, on_job, err);
}

static void on_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct import_call *call = ctx;
    struct berth_error err = {0};
    enum berth_code code = BERTH_OK;

    (void)stream;
    call->asked = false;
    if (call->ended) {
        berth_buf_unref(msg);
        return;
    }
    if (!call->opened) {
        code = take_open(call, msg, &err);
        berth_buf_unref(msg);
    } else if (msg) {
        call->waiting.msgs[call->waiting.n++] = msg;
        call->waiting.bytes += berth_buf_size(msg);
    } else {
        call->half_closed = true;
    }
    if (code)
        fail(call, code, &err);
    else
        go_on(call);
}

static void on_cancelled(void *ctx, struct berth_stream *stream)
{
    struct berth_error err = {0};
    enum berth_code code = berth_fail(&err, BERTH_REASON_CANCELLED, NULL);

    (void)stream;
    fail(ctx, code, &err);
}

static void on_closed(void *ctx, struct berth_stream *stream, const struct berth_status *status)
{
    struct import_call *call = ctx;

    (void)stream;
    (void)status;
    call->stream = NULL;
    if (!call->job.busy)
        let_go(call);
}

static const struct berth_stream_ops stream_ops = {
    .message = on_message, .closed = on_closed, .cancelled = on_cancelled};

enum berth_code workspace_open_import(void *service, struct berth_stream *stream,
                                      const struct berth_stream_ops **ret_ops, void **ret_ctx,
                                      struct berth_error *err)
{
    const struct adapter_service *s = service;
    struct import_call *call;

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
    receive(call);
    return BERTH_OK;
}
