/* move.c - MoveWorkspace: between an adapter's WorkspaceService and the blob store. Each side
 * is asked for more when the other has taken what there was: two pieces are all that is held.
 *
 * Life: a dp_move lives until the caller's stream, the adapter's stream and the worker are all
 * done with it. */
#include "services/dataplane/move.h"

#include "common/messages/messages.h"
#include "common/time/time.h"

enum { LOOK_EVERY_MS = 250, TELL_EVERY_MS = 1000 };

#define WORKSPACE "/berth.data.v1.WorkspaceService/"

static bool is_export(const struct dp_move *move)
{
    return move->req->direction_case ==
           BERTH__DATA__V1__MOVE_WORKSPACE_REQUEST__DIRECTION_EXPORT_FROM;
}

/* -------------------------------------------------------------------- end of life */

static void move_free(struct dp_move *move)
{
    struct dataplane *dp = move->dp;

    berth_timer_cancel(move->timer);
    berth_buf_unref(move->in);
    berth_buf_unref(move->out);
    berth_buf_unref(move->next);
    berth_buf_unref(move->answer);
    for (size_t i = 0; i < move->result.n_lost; i++)
        berth_message_free(move->result.lost[i]);
    free(move->result.lost);
    if (move->result.blob_id != (char *)protobuf_c_empty_string)
        free(move->result.blob_id);
    berth_message_free(move->req);
    free(move);
    dp->n_moves--;
    dp_check_drained(dp);
}

static void job_done(void *arg)
{
    struct dp_move *move = arg;

    move->busy = false;
    move->done(move);
}

static void job_work(void *arg)
{
    struct dp_move *move = arg;

    move->work(move);
    berth_loop_post(move->dp->options.loop, job_done, move);
}

static void start_work(struct dp_move *move, void (*work)(struct dp_move *move),
                       void (*done)(struct dp_move *move))
{
    move->work = work;
    move->done = done;
    move->busy = true;
    berth_pool_submit_must(move->dp->options.pool, job_work, move);
}

static void free_if_over(struct dp_move *move)
{
    if (move->caller || move->sandbox || move->busy)
        return;
    if (move->blob)
        start_work(move, dp_move_close, free_if_over);
    else
        move_free(move);
}

static void finish(struct dp_move *move, enum berth_code code, const struct berth_error *err)
{
    if (move->finished)
        return;
    move->finished = true;
    atomic_fetch_add_explicit(&move->dp->counters.workspaces_failed, 1, memory_order_relaxed);
    if (move->sandbox)
        berth_stream_cancel(move->sandbox);
    if (move->caller)
        berth_stream_finish(move->caller, code, err);
}

/* The work that just ended, if it failed or nobody waits any more. */
static bool stopped(struct dp_move *move)
{
    if (move->code && !move->finished)
        finish(move, move->code, &move->err);
    if (!move->finished)
        return false;
    free_if_over(move);
    return true;
}

/* ---------------------------------------------------------------------- the caller */

static void send_answer(struct dp_move *move)
{
    struct dp_counters *counters = &move->dp->counters;

    if (move->finished || !move->answer || !berth_stream_can_write(move->caller))
        return;
    move->finished = true;
    if (move->blob)
        atomic_fetch_add_explicit(is_export(move) ? &counters->workspaces_out
                                                  : &counters->workspaces_in,
                                  1, memory_order_relaxed);
    berth_stream_answer(move->caller, BERTH_STEAL(move->answer));
}

static void answer(struct dp_move *move)
{
    Berth__Data__V1__FileDone done = BERTH__DATA__V1__FILE_DONE__INIT;
    MoveWorkspaceResponse resp = move->result;
    struct berth_error err = {0};

    if (move->blob) {
        done.size_bytes = resp.moved_bytes = blob_size(move->blob);
        done.sha256 = (ProtobufCBinaryData){32, (uint8_t *)(uintptr_t)blob_sha256(move->blob)};
    }
    resp.done = &done;
    move->answer = berth_buf_pack(&resp.base);
    if (!move->answer)
        finish(move, berth_fail(&err, BERTH_REASON_OUT_OF_MEMORY, NULL), &err);
    send_answer(move);
}

/* Progress, once in a while. */
static void tell(struct dp_move *move)
{
    MoveWorkspaceResponse resp = BERTH__DATA__V1__MOVE_WORKSPACE_RESPONSE__INIT;
    int64_t tick_ms = berth_tick_ms();
    struct berth_buf *packed;

    if (tick_ms - move->told_tick_ms < TELL_EVERY_MS || !berth_stream_can_write(move->caller))
        return;
    move->told_tick_ms = tick_ms;
    resp.moved_bytes = blob_size(move->blob);
    packed = berth_buf_pack(&resp.base);
    if (packed)
        (void)berth_stream_write(move->caller, packed);
}

/* --------------------------------------------------------------------- the adapter */

static void ask(struct dp_move *move)
{
    move->asked_tick_ms = berth_tick_ms();
}

static void write_next(struct dp_move *move);
static void pump(struct dp_move *move);

static void committed(struct dp_move *move)
{
    if (!stopped(move))
        answer(move);
}

/* The adapter has sent all, and all is written. */
static void end_export(struct dp_move *move)
{
    struct berth_error err = {0};

    if (move->has_result)
        start_work(move, dp_move_commit, committed);
    else
        finish(move,
               berth_fail(&err, BERTH_REASON_ADAPTER_UNAVAILABLE,
                          "an adapter ended a workspace before its end"),
               &err);
}

static void written(struct dp_move *move)
{
    if (stopped(move))
        return;
    tell(move);
    if (move->next)
        write_next(move);
    else if (move->sandbox_ok)
        end_export(move);
}

static void write_next(struct dp_move *move)
{
    move->in = BERTH_STEAL(move->next);
    start_work(move, dp_move_write, written);
    if (move->sandbox) {
        ask(move);
        berth_stream_read(move->sandbox);
    }
}

static void take_answer(struct dp_move *move, struct berth_buf *msg)
{
    ProtobufCMessage *message = NULL;
    Berth__Data__V1__ImportWorkspaceResponse *resp;
    struct berth_error err = {0};
    enum berth_code code = berth_buf_decode(
        &berth__data__v1__import_workspace_response__descriptor, msg, &message, &err);

    if (code) {
        finish(move, code, &err);
        return;
    }
    resp = (Berth__Data__V1__ImportWorkspaceResponse *)message;
    dp_move_take_result(move, resp->files, resp->lost_count, &resp->lost, &resp->n_lost);
    berth_message_free(message);
}

static void sandbox_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct dp_move *move = ctx;

    (void)stream;
    move->asked_tick_ms = 0;
    if (!msg || move->finished) {
        berth_buf_unref(msg);
        return;
    }
    if (!is_export(move)) {
        if (!move->has_result)
            take_answer(move, msg);
        berth_buf_unref(msg);
        ask(move);
        berth_stream_read(stream); /* its end */
        return;
    }
    move->next = msg;
    if (!move->busy)
        write_next(move);
}

static void sandbox_written(void *ctx, struct berth_stream *stream)
{
    struct dp_move *move = ctx;

    (void)stream;
    if (!move->finished && !is_export(move))
        pump(move);
}

static void sandbox_failed(struct dp_move *move, const struct berth_status *status)
{
    struct berth_error err = {0};

    if (!dp_status_judge(DP_READ_ONLY, status, "", &err)) {
        finish(move, err.code, &err);
        return;
    }
    (void)berth_status_to_error(status, &err);
    finish(move, err.code, &err);
}

static void sandbox_closed(void *ctx, struct berth_stream *stream,
                           const struct berth_status *status)
{
    struct dp_move *move = ctx;
    struct berth_error err = {0};

    (void)stream;
    move->sandbox = NULL;
    move->asked_tick_ms = 0;
    dp_peer_done(move->adapter, move->slot);
    if (!move->finished && status->code != BERTH_OK) {
        sandbox_failed(move, status);
    } else if (!move->finished && is_export(move)) {
        move->sandbox_ok = true;
        if (!move->busy && !move->next)
            end_export(move);
    } else if (!move->finished && move->has_result && move->sent_done && !move->busy) {
        start_work(move, dp_move_note, committed);
    } else if (!move->finished) {
        finish(move,
               berth_fail(&err, BERTH_REASON_ADAPTER_UNAVAILABLE,
                          "an adapter ended a workspace before its end"),
               &err);
    }
    free_if_over(move);
}

static const struct berth_stream_ops sandbox_ops = {
    .message = sandbox_message, .written = sandbox_written, .closed = sandbox_closed};

static bool open_sandbox(struct dp_move *move, const char *path)
{
    Berth__Control__V1__ResolveRouteResponse resolved =
        BERTH__CONTROL__V1__RESOLVE_ROUTE_RESPONSE__INIT;
    struct berth_metadata metadata[] = {{"berth-route-bin", NULL, 0},
                                        {"berth-workspace-moved", "1", 1}};
    struct berth_call_options options = {
        .parent = berth_stream_call(move->caller), .metadata = metadata, .n_metadata = 2};
    struct dp_route route = {0};
    struct berth_error err = {0};
    enum berth_code code;

    resolved.endpoint = is_export(move) ? move->req->export_from : move->req->import_into;
    code = dp_route_decode(move->dp, &resolved, &route, &err);
    if (!code) {
        metadata[0].value = route.packed;
        metadata[0].size = route.packed_size;
        move->adapter = route.adapter;
        move->sandbox = dp_peer_stream(route.adapter, path, &options, move->dp->options.loop,
                                       &sandbox_ops, move, &move->slot, &err);
        code = move->sandbox ? BERTH_OK : err.code;
    }
    dp_route_deinit(&route);
    if (code)
        finish(move, code, &err);
    return code == BERTH_OK;
}

/* -------------------------------------------------------------------------- export */

static void created(struct dp_move *move)
{
    Berth__Data__V1__ExportWorkspaceRequest req =
        BERTH__DATA__V1__EXPORT_WORKSPACE_REQUEST__INIT;
    struct berth_buf *packed;

    if (stopped(move) || !open_sandbox(move, WORKSPACE "ExportWorkspace"))
        return;
    req.session = move->req->session;
    packed = berth_buf_pack(&req.base);
    if (!packed) {
        struct berth_error err = {0};

        finish(move, berth_fail(&err, BERTH_REASON_OUT_OF_MEMORY, NULL), &err);
        return;
    }
    (void)berth_stream_write_last(move->sandbox, packed);
    ask(move);
    berth_stream_read(move->sandbox);
}

/* -------------------------------------------------------------------------- import */

static void have_read(struct dp_move *move)
{
    if (stopped(move))
        return;
    tell(move);
    pump(move);
}

static struct berth_buf *pack_part(const Berth__Data__V1__ImportWorkspaceRequest *req)
{
    return berth_buf_pack(&req->base);
}

/* The next message to the adapter, if the one before is out of our hands. */
static void pump(struct dp_move *move)
{
    Berth__Data__V1__ImportWorkspaceRequest req;
    Berth__Data__V1__FileDone done = BERTH__DATA__V1__FILE_DONE__INIT;
    struct berth_buf *packed;

    if (!move->sandbox || move->busy || move->sent_done ||
        !berth_stream_can_write(move->sandbox))
        return;
    ask(move);
    if (move->out) {
        (void)berth_stream_write(move->sandbox, BERTH_STEAL(move->out));
        start_work(move, dp_move_read, have_read);
        return;
    }
    if (!move->all_read)
        return;
    berth__data__v1__import_workspace_request__init(&req);
    done.size_bytes = blob_size(move->blob);
    req.message_case = BERTH__DATA__V1__IMPORT_WORKSPACE_REQUEST__MESSAGE_DONE;
    req.done = &done;
    packed = pack_part(&req);
    move->sent_done = packed != NULL;
    if (packed)
        (void)berth_stream_write_last(move->sandbox, packed);
    else
        berth_stream_cancel(move->sandbox);
}

static void opened(struct dp_move *move)
{
    Berth__Data__V1__ImportWorkspaceRequest req;
    Berth__Data__V1__ImportOpen open = BERTH__DATA__V1__IMPORT_OPEN__INIT;
    struct berth_buf *packed;

    if (stopped(move) || !open_sandbox(move, WORKSPACE "ImportWorkspace"))
        return;
    berth__data__v1__import_workspace_request__init(&req);
    open.session = move->req->session;
    req.message_case = BERTH__DATA__V1__IMPORT_WORKSPACE_REQUEST__MESSAGE_OPEN;
    req.open = &open;
    packed = pack_part(&req);
    if (packed)
        (void)berth_stream_write(move->sandbox, packed);
    else
        berth_stream_cancel(move->sandbox);
    ask(move);
    berth_stream_read(move->sandbox);
}

/* --------------------------------------------------------------------- from its start */

static void look(void *arg)
{
    struct dp_move *move = arg;
    struct berth_error err = {0};

    move->timer = NULL;
    if (move->finished)
        return;
    if (berth_now_ms() > move->not_after_ms)
        finish(move, berth_fail(&err, BERTH_REASON_DEADLINE, NULL), &err);
    else if (move->asked_tick_ms && move->sandbox &&
             berth_tick_ms() - move->asked_tick_ms > move->dp->options.stall_ms)
        finish(move,
               berth_fail(&err, BERTH_REASON_BACKEND_TIMEOUT,
                          "the adapter did not answer in time"),
               &err);
    else
        move->timer = berth_loop_timer(move->dp->options.loop, LOOK_EVERY_MS, look, move);
}

static enum berth_code begin(struct dp_move *move, struct berth_buf *msg,
                             struct berth_error *err)
{
    ProtobufCMessage *message = NULL;
    enum berth_code code;

    if (!msg)
        return berth_fail_field(err, "request", "a message must be sent");
    code = berth_buf_decode(&berth__data__v1__move_workspace_request__descriptor, msg, &message,
                            err);
    if (code)
        return code;
    move->req = (MoveWorkspaceRequest *)message;
    code = berth_data_check(message, NULL, err);
    if (code)
        return code;
    if (!move->dp->blobs)
        return berth_fail(err, BERTH_REASON_CAPABILITY_MISSING,
                          "blob_dir is not set: workspaces cannot be moved");
    move->not_after_ms = berth_timestamp_ms(move->req->not_after_time, 0);
    if (berth_now_ms() > move->not_after_ms)
        return berth_fail(err, BERTH_REASON_DEADLINE, NULL);
    move->told_tick_ms = berth_tick_ms();
    look(move);
    if (move->req->direction_case == BERTH__DATA__V1__MOVE_WORKSPACE_REQUEST__DIRECTION_REMOVE)
        start_work(move, dp_move_remove, committed);
    else if (is_export(move))
        start_work(move, dp_move_create, created);
    else
        start_work(move, dp_move_open_blob, opened);
    return BERTH_OK;
}

static void caller_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct dp_move *move = ctx;
    struct berth_error err = {0};
    enum berth_code code;

    (void)stream;
    code = move->req || move->finished ? BERTH_OK : begin(move, msg, &err);
    berth_buf_unref(msg);
    if (code)
        finish(move, code, &err);
}

static void caller_written(void *ctx, struct berth_stream *stream)
{
    (void)stream;
    send_answer(ctx);
}

static void caller_cancelled(void *ctx, struct berth_stream *stream)
{
    struct berth_error err = {0};
    enum berth_code code = berth_fail(&err, BERTH_REASON_CANCELLED, NULL);

    (void)stream;
    finish(ctx, code, &err);
}

static void caller_closed(void *ctx, struct berth_stream *stream,
                          const struct berth_status *status)
{
    struct dp_move *move = ctx;

    (void)stream;
    (void)status;
    move->caller = NULL;
    move->finished = true;
    if (move->sandbox)
        berth_stream_cancel(move->sandbox);
    free_if_over(move);
}

static const struct berth_stream_ops caller_ops = {.message = caller_message,
                                                   .written = caller_written,
                                                   .closed = caller_closed,
                                                   .cancelled = caller_cancelled};

enum berth_code dp_move_open(void *service, struct berth_stream *stream,
                             const struct berth_stream_ops **ret_ops, void **ret_ctx,
                             struct berth_error *err)
{
    struct dataplane *dp = service;
    struct dp_move *move = calloc(1, sizeof *move);

    if (!move)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    move->dp = dp;
    move->caller = stream;
    berth__data__v1__move_workspace_response__init(&move->result);
    dp->n_moves++;
    atomic_fetch_add_explicit(&dp->counters.streams_total, 1, memory_order_relaxed);
    *ret_ops = &caller_ops;
    *ret_ctx = move;
    berth_stream_read(stream);
    return BERTH_OK;
}
