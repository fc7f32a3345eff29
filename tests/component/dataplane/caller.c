#include <check.h>
#include <stdio.h>

#include "common/time/time.h"
#include "tests/component/dataplane/rig.h"

static void flush(struct caller *caller)
{
    struct berth_buf *msg = NULL;
    bool half_close = false;

    if (!caller->stream || !berth_stream_can_write(caller->stream))
        return;
    pthread_mutex_lock(&caller->rig->mutex);
    if (caller->n_queued > 0) {
        msg = caller->queue[0];
        caller->n_queued--;
        memmove(caller->queue, caller->queue + 1, caller->n_queued * sizeof caller->queue[0]);
    } else if (caller->flood) {
        msg = some_bytes(CHUNK, caller->n_sent);
    } else {
        half_close = caller->half_close;
        caller->half_close = false;
    }
    if (msg) {
        caller->n_sent++;
        caller->sent_bytes += berth_buf_size(msg);
    }
    pthread_mutex_unlock(&caller->rig->mutex);
    if (msg)
        (void)berth_stream_write(caller->stream, msg);
    else if (half_close)
        berth_stream_half_close(caller->stream);
}

static void on_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct caller *caller = ctx;
    bool more;

    if (!msg)
        return;
    pthread_mutex_lock(&caller->rig->mutex);
    caller->bytes += berth_buf_size(msg);
    caller->sum = sum_of(caller->sum, berth_buf_data(msg), berth_buf_size(msg));
    if (caller->n_messages < LOG_MAX)
        caller->messages[caller->n_messages] = berth_buf_ref(msg);
    caller->n_messages++;
    more = caller->auto_read;
    pthread_mutex_unlock(&caller->rig->mutex);
    berth_buf_unref(msg);
    if (more)
        berth_stream_read(stream);
}

static void on_written(void *ctx, struct berth_stream *stream)
{
    (void)stream;
    flush(ctx);
}

static void on_closed(void *ctx, struct berth_stream *stream, const struct berth_status *status)
{
    struct caller *caller = ctx;

    (void)stream;
    pthread_mutex_lock(&caller->rig->mutex);
    caller->stream = NULL;
    snprintf(caller->text, sizeof caller->text, "%s", status->message);
    caller->status = (struct berth_status){.code = status->code, .message = caller->text};
    if (status->details) {
        ck_assert_uint_le(status->details_size, sizeof caller->details);
        memcpy(caller->details, status->details, status->details_size);
        caller->status.details = caller->details;
        caller->status.details_size = status->details_size;
    }
    caller->ended = true;
    pthread_mutex_unlock(&caller->rig->mutex);
}

static const struct berth_stream_ops ops = {
    .message = on_message, .written = on_written, .closed = on_closed};

struct begin {
    struct caller *caller;
    const char *path;
    int64_t timeout_ms;
};

static void begin(void *arg)
{
    struct begin *begin = arg;
    const struct berth_call_options options = {.timeout_ms = begin->timeout_ms};
    struct caller *caller = begin->caller;

    caller->stream = berth_channel_stream(caller->rig->channel, begin->path, &options,
                                          caller->rig->caller_loop, &ops, caller);
    ck_assert_ptr_nonnull(caller->stream);
    flush(caller);
    if (caller->auto_read)
        berth_stream_read(caller->stream);
    free(begin);
}

struct caller *caller_new(struct rig *rig, const char *path, struct berth_buf *first,
                          bool half_close, bool auto_read, int64_t timeout_ms)
{
    struct caller *caller = calloc(1, sizeof *caller);
    struct begin *arg = calloc(1, sizeof *arg);

    caller->rig = rig;
    caller->auto_read = auto_read;
    caller->half_close = half_close;
    if (first)
        caller->queue[caller->n_queued++] = first;
    *arg = (struct begin){caller, path, timeout_ms};
    berth_loop_post(rig->caller_loop, begin, arg);
    return caller;
}

static void do_flush(void *arg)
{
    flush(arg);
}

void caller_send(struct caller *caller, struct berth_buf *msg)
{
    pthread_mutex_lock(&caller->rig->mutex);
    ck_assert_uint_lt(caller->n_queued, LOG_MAX);
    caller->queue[caller->n_queued++] = msg;
    pthread_mutex_unlock(&caller->rig->mutex);
    berth_loop_post(caller->rig->caller_loop, do_flush, caller);
}

void caller_half_close(struct caller *caller)
{
    pthread_mutex_lock(&caller->rig->mutex);
    caller->half_close = true;
    pthread_mutex_unlock(&caller->rig->mutex);
    berth_loop_post(caller->rig->caller_loop, do_flush, caller);
}

void caller_flood(struct caller *caller)
{
    pthread_mutex_lock(&caller->rig->mutex);
    caller->flood = true;
    pthread_mutex_unlock(&caller->rig->mutex);
    berth_loop_post(caller->rig->caller_loop, do_flush, caller);
}

static void do_read(void *arg)
{
    struct caller *caller = arg;

    if (caller->stream)
        berth_stream_read(caller->stream);
}

void caller_read_all(struct caller *caller)
{
    pthread_mutex_lock(&caller->rig->mutex);
    caller->auto_read = true;
    pthread_mutex_unlock(&caller->rig->mutex);
    berth_loop_post(caller->rig->caller_loop, do_read, caller);
}

static void do_cancel(void *arg)
{
    struct caller *caller = arg;

    if (caller->stream)
        berth_stream_cancel(caller->stream);
}

/* The last thing that is posted for a caller. */
static void do_give_up(void *arg)
{
    struct caller *caller = arg;

    do_cancel(caller);
    pthread_mutex_lock(&caller->rig->mutex);
    caller->given_up = true;
    pthread_mutex_unlock(&caller->rig->mutex);
}

void caller_cancel(struct caller *caller)
{
    berth_loop_post(caller->rig->caller_loop, do_cancel, caller);
}

static bool is_set(struct caller *caller, const bool *flag)
{
    bool set;

    pthread_mutex_lock(&caller->rig->mutex);
    set = *flag;
    pthread_mutex_unlock(&caller->rig->mutex);
    return set;
}

bool caller_ended(struct caller *caller)
{
    return is_set(caller, &caller->ended);
}

enum berth_code caller_wait(struct caller *caller, struct berth_error *err)
{
    struct berth_error scratch = {0};

    WAIT_UNTIL(caller_ended(caller));
    if (caller->status.code == BERTH_OK)
        return BERTH_OK;
    return berth_status_to_error(&caller->status, err ? err : &scratch);
}

struct caller *caller_free(struct caller *caller)
{
    berth_loop_post(caller->rig->caller_loop, do_give_up, caller);
    WAIT_UNTIL(caller_ended(caller) && is_set(caller, &caller->given_up));
    for (unsigned i = 0; i < caller->n_messages && i < LOG_MAX; i++)
        berth_buf_unref(caller->messages[i]);
    for (unsigned i = 0; i < caller->n_queued; i++)
        berth_buf_unref(caller->queue[i]);
    free(caller);
    return NULL;
}

/* ----------------------------------------------------------- first messages */

static Berth__Common__V1__SessionRef *the_session(void)
{
    static Berth__Common__V1__SessionRef session;

    berth__common__v1__session_ref__init(&session);
    session.tenant_id = (char *)"default";
    session.session_id = (char *)"s1";
    return &session;
}

static Berth__Data__V1__Command *the_command(const char *exec_id)
{
    static Berth__Data__V1__Command command;

    berth__data__v1__command__init(&command);
    command.run_case = BERTH__DATA__V1__COMMAND__RUN_SHELL;
    command.shell = (char *)"true";
    command.exec_id = (char *)exec_id;
    return &command;
}

struct berth_buf *a_run(const char *exec_id)
{
    Berth__Data__V1__RunRequest req = BERTH__DATA__V1__RUN_REQUEST__INIT;

    req.session = the_session();
    req.command = the_command(exec_id);
    return berth_buf_pack(&req.base);
}

struct berth_buf *an_exec(const char *exec_id)
{
    Berth__Data__V1__ExecRequest req = BERTH__DATA__V1__EXEC_REQUEST__INIT;

    req.session = the_session();
    req.command = the_command(exec_id);
    req.turn_token = (char *)"turn-1";
    return berth_buf_pack(&req.base);
}

struct berth_buf *a_detached(const char *exec_id, int64_t timeout_s)
{
    Berth__Data__V1__ExecRequest req = BERTH__DATA__V1__EXEC_REQUEST__INIT;
    Google__Protobuf__Duration timeout = GOOGLE__PROTOBUF__DURATION__INIT;

    req.session = the_session();
    req.command = the_command(exec_id);
    req.command->timeout = &timeout;
    timeout.seconds = timeout_s;
    req.detach = true;
    return berth_buf_pack(&req.base);
}

struct berth_buf *a_stat(void)
{
    Berth__Data__V1__StatRequest req = BERTH__DATA__V1__STAT_REQUEST__INIT;

    req.session = the_session();
    req.path = (char *)"/workspace/a";
    return berth_buf_pack(&req.base);
}

struct berth_buf *a_read(void)
{
    Berth__Data__V1__ReadFileRequest req = BERTH__DATA__V1__READ_FILE_REQUEST__INIT;

    req.session = the_session();
    req.path = (char *)"/workspace/a";
    return berth_buf_pack(&req.base);
}

struct berth_buf *a_write(void)
{
    Berth__Data__V1__WriteFileRequest req = BERTH__DATA__V1__WRITE_FILE_REQUEST__INIT;
    Berth__Data__V1__WriteFileOpen open = BERTH__DATA__V1__WRITE_FILE_OPEN__INIT;

    open.session = the_session();
    open.path = (char *)"/workspace/a";
    req.message_case = BERTH__DATA__V1__WRITE_FILE_REQUEST__MESSAGE_OPEN;
    req.open = &open;
    return berth_buf_pack(&req.base);
}
