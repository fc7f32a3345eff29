/* stream_server.c - the server's side of an evented call. */
#include "common/rpc/server.h"
#include "common/rpc/stream.h"

enum { HALF_CLOSE_WAIT_MS = 5 };

struct server_stream {
    struct berth_stream stream; /* first: the two are cast into each other */
    bool finishing;             /* a status is set, and sent when the write in flight is over */
    bool finished;              /* it is on its way */
    bool void_end;              /* the caller went away before */
    bool cut;                   /* the status is set, whatever the handler ends with */
    enum berth_reason cut_reason;
    bool judged; /* the gate has seen the first message */
    struct rpc_status status;
    struct rpc_tag close_tag;
};

static struct server_stream *of(struct berth_stream *stream)
{
    return (struct server_stream *)stream;
}

bool rpc_server_stream_ended(const struct berth_stream *stream)
{
    return ((const struct server_stream *)stream)->finishing;
}

void rpc_server_stream_initial(struct berth_stream *stream, grpc_op *op)
{
    rpc_call_initial_op(stream->call, op);
}

static void on_finished(void *owner, bool ok)
{
    (void)ok;
    rpc_stream_settle(owner);
}

static void send_status(struct server_stream *server_stream)
{
    struct berth_stream *stream = &server_stream->stream;
    grpc_op ops[2];
    size_t skip = stream->sent_initial ? 1 : 0;
    grpc_metadata trailing;

    server_stream->finished = true;
    stream->sent_initial = true;
    rpc_call_initial_op(stream->call, &ops[0]);
    rpc_call_status_op(stream->call, &server_stream->status, &trailing, &ops[1]);
    rpc_stream_start(stream, ops + skip, 2 - skip, &stream->end_tag, on_finished);
}

/* With the status set. err: for the log, may be NULL. */
static void finish(struct server_stream *server_stream, const struct berth_error *err)
{
    struct berth_stream *stream = &server_stream->stream;
    char *text = grpc_slice_to_c_string(server_stream->status.message);

    server_stream->finishing = true;
    stream->mute = true;
    rpc_call_note_end(stream->call, server_stream->status.code, err,
                      err && *err->text ? err->text : text);
    gpr_free(text);
    if (!stream->writing)
        send_status(server_stream);
}

static void finish_cut(struct server_stream *server_stream)
{
    const struct berth_error err = {.code = server_stream->status.code,
                                    .reason = server_stream->cut_reason};

    finish(server_stream, &err);
}

void berth_stream_finish(struct berth_stream *stream, enum berth_code code,
                         const struct berth_error *err)
{
    struct server_stream *server_stream = of(stream);

    if (server_stream->finishing)
        return;
    if (server_stream->cut) {
        finish_cut(server_stream);
        return;
    }
    rpc_status_encode(code, err, stream->call->method->def.path, stream->call->request_id,
                      &server_stream->status);
    finish(server_stream, err);
}

void berth_stream_finish_status(struct berth_stream *stream, const struct berth_status *status)
{
    struct server_stream *server_stream = of(stream);
    struct berth_error err = {0};

    if (server_stream->finishing)
        return;
    if (server_stream->cut) {
        finish_cut(server_stream);
        return;
    }
    rpc_status_copy(status, &server_stream->status);
    if (status->code)
        (void)berth_status_to_error(status, &err);
    finish(server_stream, &err);
}

void berth_stream_answer(struct berth_stream *stream, struct berth_buf *msg)
{
    struct server_stream *server_stream = of(stream);
    grpc_byte_buffer *bytes;
    grpc_metadata trailing;
    grpc_op ops[3];
    size_t n = 0;

    if (!berth_stream_can_write(stream)) {
        berth_buf_unref(msg);
        return;
    }
    rpc_status_encode(BERTH_OK, NULL, stream->call->method->def.path, stream->call->request_id,
                      &server_stream->status);
    server_stream->finishing = server_stream->finished = true;
    stream->mute = true;
    rpc_call_note_end(stream->call, BERTH_OK, NULL, "");
    if (!stream->sent_initial)
        rpc_stream_initial_op(stream, &ops[n++]);
    bytes = rpc_buf_bytes(msg);
    ops[n] = (grpc_op){.op = GRPC_OP_SEND_MESSAGE};
    ops[n++].data.send_message.send_message = bytes;
    rpc_call_status_op(stream->call, &server_stream->status, &trailing, &ops[n++]);
    rpc_stream_start(stream, ops, n, &stream->end_tag, on_finished);
    rpc_stream_initial_sent(stream);
    grpc_byte_buffer_destroy(bytes);
    berth_buf_unref(msg);
}

void rpc_server_stream_wrote(struct berth_stream *stream)
{
    if (of(stream)->finishing && !of(stream)->finished)
        send_status(of(stream));
}

void rpc_server_stream_cancel(struct berth_stream *stream)
{
    berth_stream_finish(stream, BERTH_CANCELLED, NULL);
}

/* Decoded for the gate alone: handlers decode for themselves. */
static enum berth_code judge(struct server_stream *server_stream, struct berth_buf *msg,
                             struct berth_error *err)
{
    struct berth_call *call = server_stream->stream.call;
    ProtobufCMessage *first = NULL;
    enum berth_code code;

    if (server_stream->judged || !call->user)
        return BERTH_OK; /* the gate keeps nothing with a call of a peer */
    server_stream->judged = true;
    code = berth_buf_decode(call->method->def.request, msg, &first, err);
    if (code)
        return code;
    code = berth_call_judge(call, first, err);
    protobuf_c_message_free_unpacked(first, NULL);
    return code;
}

bool rpc_server_stream_message_ok(struct berth_stream *stream, struct berth_buf *msg)
{
    const struct berth_method *def = &stream->call->method->def;
    struct berth_error err = {0};
    enum berth_code code;

    if (def->flags & BERTH_METHOD_UNGUARDED)
        return true;
    code = rpc_buf_check(def->request, msg, &err);
    if (!code)
        code = judge(of(stream), msg, &err);
    if (code)
        berth_stream_finish(stream, code, &err);
    return !code;
}

/* -------------------------------------------------- half-closed, or gone away? */

static void tell_half_close(struct berth_stream *stream)
{
    stream->reading = false;
    if (!stream->mute)
        stream->ops->message(stream->ctx, stream, NULL);
}

static void on_probed(void *owner, bool ok)
{
    if (ok)
        tell_half_close(owner); /* else on_close is about to say that it was cancelled */
    rpc_stream_settle(owner);
}

static void on_waited(void *owner)
{
    tell_half_close(owner);
    rpc_stream_settle(owner);
}

/* The core says "no message" both when the caller half-closed and when it went away, and news
 * of the latter may come a moment later. A cut-off upload must not pass for a whole one: try an
 * operation that a broken call refuses. Where the headers are out already there is none left to
 * try; then all that can be done is to give that news time to come. */
void rpc_server_stream_read_end(struct berth_stream *stream)
{
    grpc_op op;

    stream->reading = true; /* no other read until this one is answered */
    if (!stream->sent_initial) {
        stream->sent_initial = true;
        rpc_call_initial_op(stream->call, &op);
        rpc_stream_start(stream, &op, 1, &stream->probe_tag, on_probed);
        return;
    }
    if (berth_loop_timer(stream->loop, HALF_CLOSE_WAIT_MS, on_waited, stream))
        stream->n_ops++;
    else
        tell_half_close(stream);
}

/* ----------------------------------------------------------------- begin and end */

static void on_close(void *owner, bool ok)
{
    struct berth_stream *stream = owner;

    (void)ok;
    if (stream->call->core_cancelled) {
        atomic_store(&stream->call->cancelled, true);
        of(stream)->void_end = true;
        if (!of(stream)->finishing && !of(stream)->cut) {
            stream->mute = true;
            if (stream->ops->cancelled)
                stream->ops->cancelled(stream->ctx, stream);
            else
                berth_stream_finish(stream, BERTH_CANCELLED, NULL);
        }
    }
    rpc_stream_settle(stream);
}

bool berth_call_is_open(const struct berth_call *call)
{
    return call->stream != NULL;
}

void berth_call_cut(struct berth_call *call, enum berth_code code,
                    const struct berth_error *err)
{
    struct berth_stream *stream = call->stream;

    if (!stream)
        return;
    if (of(stream)->finishing ||
        stream->mute) { /* it may hang on a caller that does not read */
        (void)grpc_call_cancel(stream->core, NULL);
        return;
    }
    rpc_status_encode(code, err, call->method->def.path, call->request_id, &of(stream)->status);
    of(stream)->cut = true;
    of(stream)->cut_reason = err ? err->reason : BERTH_REASON_NONE;
    stream->mute = true;
    atomic_store(&call->cancelled, true);
    if (stream->ops->cancelled)
        stream->ops->cancelled(stream->ctx, stream);
    else
        berth_stream_finish(stream, code, err);
}

static void begin(void *arg)
{
    struct berth_stream *stream = arg;
    const struct rpc_method *method = stream->call->method;
    struct berth_error err = {0};
    grpc_op op = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};
    enum berth_code code;

    stream->call->stream = stream;
    op.data.recv_close_on_server.cancelled = &stream->call->core_cancelled;
    rpc_stream_start(stream, &op, 1, &of(stream)->close_tag, on_close);
    code = method->def.open(method->service, stream, &stream->ops, &stream->ctx, &err);
    if (code) {
        berth_stream_finish(stream, code, &err);
        stream->ops = NULL; /* the handler is not told of calls it refused */
    }
    rpc_stream_settle(stream);
}

void rpc_stream_begin(struct berth_call *call)
{
    struct server_stream *server_stream = calloc(1, sizeof *server_stream);
    struct berth_stream *stream = &server_stream->stream;
    struct berth_error err = {0};

    if (!server_stream) {
        enum berth_code code = berth_fail(&err, BERTH_REASON_OUT_OF_MEMORY, NULL);

        rpc_unary_finish(call, code, NULL, &err);
        berth_call_unref(call);
        return;
    }
    stream->call = call;
    stream->core = call->core;
    stream->loop = call->server->loop;
    stream->reading = stream->unasked = true;
    stream->n_ops = 2; /* begin() and the first read */
    /* From here: the loop would have to wake this thread for it, and be woken once more. It is
     * this thread that sees the completion, so the loop gets it after begin(). */
    rpc_stream_read_early(stream);
    rpc_run_on_loop(stream->loop, &call->post, begin, stream);
}

void rpc_server_stream_close(struct berth_stream *stream)
{
    struct server_stream *server_stream = of(stream);
    struct berth_call *call = stream->call;

    call->stream = NULL;
    if (stream->ops && stream->ops->closed) {
        char *message = grpc_slice_to_c_string(server_stream->status.message);
        struct berth_status status = {
            .code = server_stream->void_end ? BERTH_CANCELLED : server_stream->status.code,
            .message = message,
        };

        if (GRPC_SLICE_LENGTH(server_stream->status.details) > 0) {
            status.details = GRPC_SLICE_START_PTR(server_stream->status.details);
            status.details_size = GRPC_SLICE_LENGTH(server_stream->status.details);
        }
        stream->ops->closed(stream->ctx, stream, &status);
        gpr_free(message);
    }
    if (stream->received) /* nobody asked for it */
        grpc_byte_buffer_destroy(stream->received);
    rpc_status_deinit(&server_stream->status);
    free(server_stream);
    berth_call_unref(call);
}
