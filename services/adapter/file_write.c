/* file_write.c - WriteFile: open, data, done. While one message is being written by a worker
 * the next one is received, and no more. What does not end in a done that is right leaves
 * nothing. */
#include "common/crypto/crypto.h"
#include "common/data/data.h"
#include "services/adapter/convert.h"
#include "services/adapter/file_rpc.h"

typedef Berth__Data__V1__WriteFileRequest WriteFileRequest;

struct write_call {
    const struct adapter_service *service;
    struct berth_stream *stream; /* NULL: closed */
    struct file_job job;
    struct adapter_route route;
    struct adapter_writer *writer;
    struct berth_sha256 *hash;
    uint64_t announced;     /* open.size_bytes; 0: not said */
    uint64_t size;          /* bytes written */
    struct berth_buf *msg;  /* being worked on, and */
    WriteFileRequest *now;  /* decoded, where it had to be */
    bool opened, ended;     /* open was taken; the answer or a status is out */
    bool asked;             /* a message is being received */
    bool has_next;          /* next is there: received while a worker was busy */
    struct berth_buf *next; /* NULL with has_next: half-closed */
    struct berth_buf *answer;
    enum berth_code code;
    struct berth_error err;
};

static void take_message(struct write_call *call, struct berth_buf *msg);

static void drop_now(struct write_call *call)
{
    if (call->now)
        protobuf_c_message_free_unpacked(&call->now->base, NULL);
    call->now = NULL;
    call->msg = berth_buf_unref(call->msg);
}

static void call_free(void *arg)
{
    struct write_call *call = arg;

    drop_now(call);
    berth_sha256_free(call->hash);
    berth_buf_unref(call->next);
    berth_buf_unref(call->answer);
    free(call);
}

static void fail(struct write_call *call, enum berth_code code, const struct berth_error *err)
{
    call->ended = true;
    if (call->stream)
        berth_stream_finish(call->stream, code, err);
}

static void receive(struct write_call *call)
{
    if (call->asked || call->has_next || call->ended)
        return;
    call->asked = true;
    berth_stream_read(call->stream);
}

/* ------------------------------------------------------------------- on a worker */

static void work_open(void *arg)
{
    struct write_call *call = arg;
    const Berth__Data__V1__WriteFileOpen *open = call->now->open;
    struct adapter_write_open how = {.path = open->path,
                                     .mode = open->mode,
                                     .size_bytes = open->size_bytes,
                                     .create_only = open->create_only,
                                     .if_etag = open->if_etag};

    call->announced = open->size_bytes;
    call->code = call->service->ops->files->open_write(call->service->adapter, &call->route,
                                                       &how, &call->writer, &call->err);
}

static void write_data(struct write_call *call, const uint8_t *data, size_t size)
{
    if (size > BERTH_DATA_CHUNK_MAX) {
        call->code =
            berth_fail_field(&call->err, "data", "at most %d bytes", BERTH_DATA_CHUNK_MAX);
        return;
    }
    call->code = call->service->ops->files->write(call->writer, data, size, &call->err);
    if (call->code)
        return;
    berth_sha256_add(call->hash, data, size);
    call->size += size;
}

static enum berth_code check_done(struct write_call *call,
                                  const Berth__Data__V1__FileDone *done,
                                  struct berth_error *err)
{
    uint8_t sha256[32];

    if (done->size_bytes != call->size)
        return berth_fail_field(err, "done.size_bytes", "%llu, as many as were sent",
                                (unsigned long long)call->size);
    if (call->announced && call->announced != call->size)
        return berth_fail_field(err, "open.size_bytes", "%llu, as many as were sent",
                                (unsigned long long)call->size);
    berth_sha256_end(call->hash, sha256);
    if (done->sha256.len != 0 &&
        (done->sha256.len != sizeof sha256 || memcmp(done->sha256.data, sha256, 32) != 0))
        return berth_fail_field(err, "done.sha256", "the SHA-256 of what was sent, or empty");
    return BERTH_OK;
}

static void work_commit(void *arg)
{
    struct write_call *call = arg;
    Berth__Data__V1__WriteFileResponse resp = BERTH__DATA__V1__WRITE_FILE_RESPONSE__INIT;
    struct adapter_file file = {0};

    call->code = check_done(call, call->now->done, &call->err);
    if (call->code == BERTH_OK)
        call->code = call->service->ops->files->commit(call->writer, &file, &call->err);
    if (call->code)
        return;
    resp.entry = convert_file(&file);
    adapter_file_deinit(&file);
    if (resp.entry)
        call->answer = berth_buf_pack(&resp.base);
    if (!call->answer)
        call->code = berth_fail(&call->err, BERTH_REASON_OUTCOME_UNKNOWN,
                                "written, but no memory for the answer");
    if (resp.entry)
        protobuf_c_message_free_unpacked(&resp.entry->base, NULL);
}

/* A message after open: data as it lies there, anything else decoded. */
static void work_message(void *arg)
{
    struct write_call *call = arg;
    const uint8_t *bytes = berth_buf_data(call->msg), *data;
    ProtobufCMessage *message = NULL;
    size_t size;

    if (!bytes) {
        call->code = berth_fail(&call->err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        return;
    }
    if (file_data_view(bytes, berth_buf_size(call->msg), &data, &size)) {
        write_data(call, data, size);
        return;
    }
    call->code = berth_buf_decode(&berth__data__v1__write_file_request__descriptor, call->msg,
                                  &message, &call->err);
    if (call->code)
        return;
    call->now = (WriteFileRequest *)message;
    switch (call->now->message_case) {
    case BERTH__DATA__V1__WRITE_FILE_REQUEST__MESSAGE_DATA:
        write_data(call, call->now->data.data, call->now->data.len);
        break;
    case BERTH__DATA__V1__WRITE_FILE_REQUEST__MESSAGE_DONE:
        work_commit(call);
        break;
    default:
        call->code = berth_fail_field(&call->err, "message", "data or done after open");
    }
}

static void work_close(void *arg)
{
    struct write_call *call = arg;

    call->service->ops->files->close_write(call->writer);
    call->writer = NULL;
}

/* ----------------------------------------------------------------------- the loop */

/* The stream is closed and no worker is busy. */
static void let_go(struct write_call *call)
{
    if (call->writer)
        (void)!file_job_start(&call->job, false, work_close, call_free, NULL);
    else
        call_free(call);
}

static void on_job(void *arg)
{
    struct write_call *call = arg;

    drop_now(call);
    if (!call->stream) {
        let_go(call);
        return;
    }
    if (call->code) {
        fail(call, call->code, &call->err);
    } else if (call->answer) {
        call->ended = true;
        berth_stream_answer(call->stream, BERTH_STEAL(call->answer));
    } else if (call->has_next && !call->ended) {
        call->has_next = false;
        take_message(call, BERTH_STEAL(call->next));
    }
}

static enum berth_code judge_open(struct write_call *call, struct berth_error *err)
{
    enum berth_code code = adapter_route_read(berth_stream_call(call->stream),
                                              call->service->ops->backend, &call->route, err);

    if (code == BERTH_OK)
        code = berth_data_check(&call->now->base, NULL, err);
    if (code)
        return code;
    call->hash = berth_sha256_new();
    if (!call->hash)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    call->opened = true;
    return file_job_start(&call->job, true, work_open, on_job, err);
}

static enum berth_code judge(struct write_call *call, struct berth_buf *msg,
                             struct berth_error *err)
{
    ProtobufCMessage *message = NULL;
    enum berth_code code;

    if (!msg)
        return berth_fail_field(err, "done", "must be the last message");
    if (call->opened) {
        call->msg = berth_buf_ref(msg);
        return file_job_start(&call->job, false, work_message, on_job, err);
    }
    code =
        berth_buf_decode(&berth__data__v1__write_file_request__descriptor, msg, &message, err);
    if (code)
        return code;
    call->now = (WriteFileRequest *)message;
    return judge_open(call, err);
}

/* msg: taken; NULL: the caller half-closed. No worker is busy. */
static void take_message(struct write_call *call, struct berth_buf *msg)
{
    struct berth_error err = {0};
    enum berth_code code = judge(call, msg, &err);

    berth_buf_unref(msg);
    if (code)
        fail(call, code, &err);
    else
        receive(call);
}

static void on_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct write_call *call = ctx;

    (void)stream;
    call->asked = false;
    if (call->ended) {
        berth_buf_unref(msg);
    } else if (call->job.busy) {
        call->next = msg;
        call->has_next = true;
    } else {
        take_message(call, msg);
    }
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
    struct write_call *call = ctx;

    (void)stream;
    (void)status;
    call->stream = NULL;
    if (!call->job.busy)
        let_go(call);
}

static const struct berth_stream_ops stream_ops = {
    .message = on_message, .closed = on_closed, .cancelled = on_cancelled};

enum berth_code file_open_write(void *service, struct berth_stream *stream,
                                const struct berth_stream_ops **ret_ops, void **ret_ctx,
                                struct berth_error *err)
{
    struct write_call *call = calloc(1, sizeof *call);

    if (!call)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    call->service = service;
    call->stream = stream;
    call->job = (struct file_job){
        .pool = call->service->runtime->pool, .loop = berth_stream_loop(stream), .arg = call};
    *ret_ops = &stream_ops;
    *ret_ctx = call;
    receive(call);
    return BERTH_OK;
}
