/* file_write.c - WriteFile: open, data, done. What has been received is written in batches:
 * while a worker writes one, the next messages are received and wait, up to HELD_BYTES_MAX; no
 * more are asked for meanwhile. What does not end in a done that is right leaves nothing. */
#include <stdatomic.h>

#include "common/crypto/crypto.h"
#include "common/data/data.h"
#include "services/adapter/convert.h"
#include "services/adapter/file_rpc.h"

enum {
    /* Of messages that are held, waiting or being written: at this much the caller waits. One
     * message more may be held, which was asked for before. */
    HELD_BYTES_MAX = 4 << 20,
    HELD_MAX = 64,    /* the same in messages */
    PIECES_MAX = 256, /* in one write */
};

typedef Berth__Data__V1__WriteFileRequest WriteFileRequest;

struct batch {
    struct berth_buf *msgs[HELD_MAX];
    unsigned n;
    size_t bytes;
};

struct write_call {
    const struct adapter_service *service;
    struct berth_stream *stream; /* NULL: closed */
    struct file_job job;
    struct adapter_route route;
    struct adapter_writer *writer;
    struct berth_sha256 *hash;
    WriteFileRequest *open; /* until it was carried out */
    uint64_t announced;     /* open.size_bytes; 0: not said */
    uint64_t size;          /* bytes written */
    struct batch waiting;   /* received, in order */
    struct batch now;       /* the worker's, as long as it is busy */
    bool opened;            /* open was taken */
    bool asked;             /* a message is being received */
    bool half_closed;       /* none will come */
    bool ended;             /* the answer or a status is out, and */
    atomic_bool given_up;   /* the worker shall know */
    struct berth_buf *answer;
    enum berth_code code;
    struct berth_error err;
};

static void batch_drop(struct batch *batch)
{
    for (unsigned i = 0; i < batch->n; i++)
        berth_buf_unref(batch->msgs[i]);
    batch->n = 0;
    batch->bytes = 0;
}

static void drop_open(struct write_call *call)
{
    if (call->open)
        protobuf_c_message_free_unpacked(&call->open->base, NULL);
    call->open = NULL;
}

static void call_free(void *arg)
{
    struct write_call *call = arg;

    drop_open(call);
    berth_sha256_free(call->hash);
    batch_drop(&call->now);
    batch_drop(&call->waiting);
    berth_buf_unref(call->answer);
    free(call);
}

static void fail(struct write_call *call, enum berth_code code, const struct berth_error *err)
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
    struct write_call *call = arg;
    const Berth__Data__V1__WriteFileOpen *open = call->open->open;
    struct adapter_write_open how = {.path = open->path,
                                     .mode = open->mode,
                                     .size_bytes = open->size_bytes,
                                     .create_only = open->create_only,
                                     .if_etag = open->if_etag};

    call->announced = open->size_bytes;
    call->code = call->service->ops->files->open_write(call->service->adapter, &call->route,
                                                       &how, &call->writer, &call->err);
}

/* pieces: used up. */
static enum berth_code write_pieces(struct write_call *call, struct iovec *pieces, size_t n,
                                    struct berth_error *err)
{
    size_t size = 0;
    enum berth_code code;

    for (size_t i = 0; i < n; i++) {
        berth_sha256_add(call->hash, pieces[i].iov_base, pieces[i].iov_len);
        size += pieces[i].iov_len;
    }
    code = call->service->ops->files->write(call->writer, pieces, (int)n, err);
    if (code == BERTH_OK)
        call->size += size;
    return code;
}

static enum berth_code check_chunk(size_t size, struct berth_error *err)
{
    return size > BERTH_DATA_CHUNK_MAX
               ? berth_fail_field(err, "data", "at most %d bytes", BERTH_DATA_CHUNK_MAX)
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

/* A message that is nothing but content, from header on: as it lies there. */
static enum berth_code write_content(struct write_call *call, const struct berth_buf *msg,
                                     size_t header, struct berth_error *err)
{
    enum berth_code code = check_chunk(berth_buf_size(msg) - header, err);
    struct iovec pieces[PIECES_MAX];
    size_t n;

    for (size_t first = 0; code == BERTH_OK; first += n) {
        n = berth_buf_pieces(msg, first, pieces, PIECES_MAX);
        if (n == 0)
            break;
        for (size_t i = 0; i < n && header > 0; i++) {
            size_t cut = header < pieces[i].iov_len ? header : pieces[i].iov_len;

            pieces[i].iov_base = (uint8_t *)pieces[i].iov_base + cut;
            pieces[i].iov_len -= cut;
            header -= cut;
        }
        code = write_pieces(call, pieces, n, err);
    }
    return code;
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

static enum berth_code commit(struct write_call *call, const Berth__Data__V1__FileDone *done,
                              struct berth_error *err)
{
    Berth__Data__V1__WriteFileResponse resp = BERTH__DATA__V1__WRITE_FILE_RESPONSE__INIT;
    struct adapter_file file = {0};
    enum berth_code code = check_done(call, done, err);

    if (code == BERTH_OK)
        code = call->service->ops->files->commit(call->writer, &file, err);
    if (code)
        return code;
    resp.entry = convert_file(&file);
    adapter_file_deinit(&file);
    if (resp.entry)
        call->answer = berth_buf_pack(&resp.base);
    if (resp.entry)
        protobuf_c_message_free_unpacked(&resp.entry->base, NULL);
    return call->answer ? BERTH_OK
                        : berth_fail(err, BERTH_REASON_OUTCOME_UNKNOWN,
                                     "written, but no memory for the answer");
}

/* A message after open that has to be decoded. */
static enum berth_code carry_out(struct write_call *call, const WriteFileRequest *req,
                                 struct berth_error *err)
{
    struct iovec piece;
    enum berth_code code;

    switch (req->message_case) {
    case BERTH__DATA__V1__WRITE_FILE_REQUEST__MESSAGE_DATA:
        piece = (struct iovec){req->data.data, req->data.len};
        code = check_chunk(req->data.len, err);
        return code ? code : write_pieces(call, &piece, 1, err);
    case BERTH__DATA__V1__WRITE_FILE_REQUEST__MESSAGE_DONE:
        return commit(call, req->done, err);
    default:
        return berth_fail_field(err, "message", "data or done after open");
    }
}

static enum berth_code write_message(struct write_call *call, struct berth_buf *msg,
                                     struct berth_error *err)
{
    ProtobufCMessage *message = NULL;
    size_t header = header_size(msg);
    enum berth_code code;

    if (header > 0)
        return write_content(call, msg, header, err);
    code =
        berth_buf_decode(&berth__data__v1__write_file_request__descriptor, msg, &message, err);
    if (code)
        return code;
    code = carry_out(call, (const WriteFileRequest *)message, err);
    protobuf_c_message_free_unpacked(message, NULL);
    return code;
}

/* Up to the first message that ends the call. */
static void work_batch(void *arg)
{
    struct write_call *call = arg;

    for (unsigned i = 0; i < call->now.n; i++) {
        if (call->code || call->answer || atomic_load(&call->given_up))
            break;
        call->code = write_message(call, call->now.msgs[i], &call->err);
        call->now.msgs[i] = berth_buf_unref(call->now.msgs[i]);
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

static void receive(struct write_call *call)
{
    const struct batch *waiting = &call->waiting, *now = &call->now;

    if (call->asked || call->half_closed || waiting->n + now->n >= HELD_MAX ||
        waiting->bytes + now->bytes >= HELD_BYTES_MAX)
        return;
    call->asked = true;
    berth_stream_read(call->stream);
}

static void on_job(void *arg);

/* Have what waits written, and receive more. */
static void go_on(struct write_call *call)
{
    struct berth_error err = {0};

    if (call->ended)
        return;
    if (!call->job.busy && call->waiting.n > 0) {
        call->now = call->waiting;
        call->waiting.n = 0;
        call->waiting.bytes = 0;
        (void)!file_job_start(&call->job, false, work_batch, on_job, NULL);
    } else if (!call->job.busy && call->half_closed) {
        fail(call, berth_fail_field(&err, "done", "must be the last message"), &err);
        return;
    }
    receive(call);
}

static void on_job(void *arg)
{
    struct write_call *call = arg;

    batch_drop(&call->now);
    drop_open(call);
    if (!call->stream) {
        let_go(call);
    } else if (call->code) {
        fail(call, call->code, &call->err);
    } else if (call->answer) {
        call->ended = true;
        berth_stream_answer(call->stream, BERTH_STEAL(call->answer));
    } else {
        go_on(call);
    }
}

static enum berth_code take_open(struct write_call *call, struct berth_buf *msg,
                                 struct berth_error *err)
{
    ProtobufCMessage *message = NULL;
    enum berth_code code;

    if (!msg)
        return berth_fail_field(err, "done", "must be the last message");
    code =
        berth_buf_decode(&berth__data__v1__write_file_request__descriptor, msg, &message, err);
    if (code)
        return code;
    call->open = (WriteFileRequest *)message;
    code = adapter_route_read(berth_stream_call(call->stream), call->service->ops->backend,
                              &call->route, err);
    if (code == BERTH_OK)
        code = berth_data_check(message, NULL, err);
    if (code)
        return code;
    call->hash = berth_sha256_new();
    if (!call->hash)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    call->opened = true;
    return file_job_start(&call->job, true, work_open, on_job, err);
}

static void on_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct write_call *call = ctx;
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
