#include "services/controlplane/mover.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "common/log/log.h"
#include "common/messages/messages.h"
#include "common/time/time.h"
#include "services/controlplane/binding.h"

enum {
    MOVE_MAX_MS = 30 * 60 * 1000, /* of one workspace */
    REMOVE_MAX_MS = 10000,
    LOOK_EVERY_MS = 200,
    FORGET_EVERY_MS = 2000,
};

typedef Berth__Data__V1__MoveWorkspaceRequest MoveWorkspaceRequest;
typedef Berth__Data__V1__MoveWorkspaceResponse MoveWorkspaceResponse;

/* One call: begun by a worker, carried on by the loop. */
struct moving {
    struct cp *cp;
    const struct berth_call_options *options;
    struct berth_buf *request;
    struct berth_stream *stream; /* the loop's */
    struct berth_buf *last;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool over;       /* under mutex: the stream is closed */
    bool cancelling; /* under mutex: do_cancel() is still to come. With the two nothing else
                        touches this any more */
    enum berth_code code;
    struct berth_error err;
};

/* ----------------------------------------------------------------------- the loop */

static void set_over(struct moving *moving)
{
    pthread_mutex_lock(&moving->mutex);
    moving->over = true;
    pthread_cond_signal(&moving->cond);
    pthread_mutex_unlock(&moving->mutex);
}

static void on_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct moving *moving = ctx;

    if (!msg)
        return;
    berth_buf_unref(moving->last);
    moving->last = msg;
    berth_stream_read(stream);
}

static void on_written(void *ctx, struct berth_stream *stream)
{
    (void)ctx;
    (void)stream;
}

static void on_closed(void *ctx, struct berth_stream *stream, const struct berth_status *status)
{
    struct moving *moving = ctx;

    (void)stream;
    moving->stream = NULL;
    if (status->code)
        moving->code = berth_status_to_error(status, &moving->err);
    set_over(moving);
}

static const struct berth_stream_ops ops = {
    .message = on_message, .written = on_written, .closed = on_closed};

static void do_begin(void *arg)
{
    struct moving *moving = arg;

    moving->stream =
        berth_channel_stream(moving->cp->mover, "/berth.data.v1.InternalService/MoveWorkspace",
                             moving->options, moving->cp->runtime->loop, &ops, moving);
    if (!moving->stream) {
        moving->code = berth_fail(&moving->err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        set_over(moving);
        return;
    }
    (void)berth_stream_write_last(moving->stream, BERTH_STEAL(moving->request));
    berth_stream_read(moving->stream);
}

static void do_cancel(void *arg)
{
    struct moving *moving = arg;

    if (moving->stream)
        berth_stream_cancel(moving->stream);
    pthread_mutex_lock(&moving->mutex);
    moving->cancelling = false;
    pthread_cond_signal(&moving->cond);
    pthread_mutex_unlock(&moving->mutex);
}

/* --------------------------------------------------------------------- the worker */

static void wait_a_while(struct moving *moving)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += LOOK_EVERY_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_cond_timedwait(&moving->cond, &moving->mutex, &until);
}

/* Until the call is over. What need not go on is cancelled; *ret_why says why. */
static void wait_for(struct moving *moving, const struct cp_lock *lock,
                     enum berth_reason *ret_why)
{
    pthread_mutex_lock(&moving->mutex);
    while (!moving->over || moving->cancelling) {
        wait_a_while(moving);
        if (moving->over || *ret_why)
            continue;
        if (lock && cp_lock_left_ms(lock) == 0)
            *ret_why = BERTH_REASON_LOCK_LOST;
        else if (berth_server_stopping(moving->cp->runtime->server))
            *ret_why = BERTH_REASON_DRAINING;
        if (!*ret_why)
            continue;
        moving->cancelling = true;
        berth_loop_post(moving->cp->runtime->loop, do_cancel, moving);
    }
    pthread_mutex_unlock(&moving->mutex);
}

static struct berth_buf *pack(const struct cp_move *move, int64_t until_ms)
{
    MoveWorkspaceRequest req = BERTH__DATA__V1__MOVE_WORKSPACE_REQUEST__INIT;
    Google__Protobuf__Timestamp not_after = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    Berth__Common__V1__DataPlaneEndpoint *endpoint =
        (Berth__Common__V1__DataPlaneEndpoint *)move->endpoint;

    not_after.seconds = until_ms / 1000;
    not_after.nanos = (int32_t)(until_ms % 1000 * 1000000);
    req.session = (Berth__Common__V1__SessionRef *)move->session;
    if (move->blob_id)
        req.blob_id = (char *)move->blob_id;
    else
        req.up_to_fence = move->up_to_fence;
    req.not_after_time = &not_after;
    switch (move->direction) {
    case CP_MOVE_OUT:
        req.direction_case = BERTH__DATA__V1__MOVE_WORKSPACE_REQUEST__DIRECTION_EXPORT_FROM;
        req.export_from = endpoint;
        break;
    case CP_MOVE_IN:
        req.direction_case = BERTH__DATA__V1__MOVE_WORKSPACE_REQUEST__DIRECTION_IMPORT_INTO;
        req.import_into = endpoint;
        break;
    case CP_MOVE_REMOVE:
        req.direction_case = BERTH__DATA__V1__MOVE_WORKSPACE_REQUEST__DIRECTION_REMOVE;
        req.remove = true;
        break;
    }
    return berth_buf_pack(&req.base);
}

static enum berth_code take_last(struct moving *moving, MoveWorkspaceResponse **ret,
                                 struct berth_error *err)
{
    ProtobufCMessage *message = NULL;
    enum berth_code code;

    if (!moving->last)
        return berth_fail(err, BERTH_REASON_PEER_UNAVAILABLE,
                          "the data plane ended a move without a word");
    code = berth_buf_decode(&berth__data__v1__move_workspace_response__descriptor, moving->last,
                            &message, err);
    if (code)
        return code;
    if (!((MoveWorkspaceResponse *)message)->done) {
        berth_message_free(message);
        return berth_fail(err, BERTH_REASON_PEER_UNAVAILABLE,
                          "the data plane ended a move before its end");
    }
    *ret = (MoveWorkspaceResponse *)message;
    return BERTH_OK;
}

enum berth_code cp_move(struct cp *cp, const struct cp_move *move, MoveWorkspaceResponse **ret,
                        struct berth_error *err)
{
    int64_t max_ms = move->direction == CP_MOVE_REMOVE ? REMOVE_MAX_MS : MOVE_MAX_MS;
    struct berth_metadata trace = {"traceparent", move->traceparent, 0};
    struct berth_call_options options = {.timeout_ms = max_ms};
    struct moving moving = {.cp = cp, .options = &options, .mutex = PTHREAD_MUTEX_INITIALIZER};
    enum berth_reason why = BERTH_REASON_NONE;
    pthread_condattr_t attr;
    enum berth_code code;

    if (!cp->mover)
        return berth_fail(err, BERTH_REASON_CAPABILITY_MISSING,
                          "there is no data plane that moves workspaces");
    if (move->traceparent && *move->traceparent) {
        trace.size = strlen(move->traceparent);
        options.metadata = &trace;
        options.n_metadata = 1;
    }
    moving.request = pack(move, berth_now_ms() + max_ms);
    if (!moving.request)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&moving.cond, &attr);
    pthread_condattr_destroy(&attr);
    berth_loop_post(cp->runtime->loop, do_begin, &moving);
    wait_for(&moving, move->lock, &why);
    pthread_cond_destroy(&moving.cond);
    code = moving.code;
    if (code && why)
        code = berth_fail(err, why, NULL);
    else if (code && err)
        *err = moving.err;
    else if (!code)
        code = take_last(&moving, ret, err);
    berth_buf_unref(moving.request);
    berth_buf_unref(moving.last);
    return code;
}

/* ----------------------------------------------------------------- not needed any more */

struct forgotten {
    struct cp *cp;
    Berth__Common__V1__SessionRef *session;
    Berth__Binding__V1__Carry *carry;
};

static enum berth_code forget_carry(const struct forgotten *forgotten, bool confirm,
                                    struct berth_error *err)
{
    Berth__Binding__V1__ForgetCarryRequest req = BERTH__BINDING__V1__FORGET_CARRY_REQUEST__INIT;
    Berth__Binding__V1__ForgetCarryResponse *resp = NULL;
    enum berth_code code;

    req.session = forgotten->session;
    req.blob_id = forgotten->carry->blob_id;
    req.confirm = confirm;
    code = cp_binding_call(forgotten->cp, NULL, "/berth.binding.v1.BindingService/ForgetCarry",
                           &req.base, &berth__binding__v1__forget_carry_response__descriptor,
                           true, &resp, err);
    berth_message_free(resp);
    return code;
}

/* The tar goes only when no failover can forget any more that it was unpacked; then the word of
 * it: what is cut off in between is done again. */
static void forget(void *arg)
{
    struct forgotten *forgotten = arg;
    struct cp *cp = forgotten->cp;
    const struct cp_move move = {.direction = CP_MOVE_REMOVE,
                                 .session = forgotten->session,
                                 .blob_id = forgotten->carry->blob_id};
    MoveWorkspaceResponse *removed = NULL;
    struct berth_error err = {0};
    enum berth_code code = forget_carry(forgotten, true, &err);

    if (!code)
        code = cp_move(cp, &move, &removed, &err);
    berth_message_free(removed);
    if (!code)
        code = forget_carry(forgotten, false, &err);
    if (code && err.reason != BERTH_REASON_CONFLICT) /* another replica was here, or it waits */
        berth_warn("a workspace that was carried is kept for now", "session",
                   forgotten->session->session_id, "blob", forgotten->carry->blob_id, "error",
                   err.text);
    berth_message_free(forgotten->session);
    berth_message_free(forgotten->carry);
    free(forgotten);
    atomic_fetch_sub(&cp->background, 1);
}

void cp_carry_used(struct cp *cp, const Berth__Common__V1__SessionRef *session,
                   const Berth__Binding__V1__Carry *carry)
{
    int64_t tick = berth_tick_ms();
    struct forgotten *forgotten;

    if (!cp->mover ||
        cp_verified_since(cp->verified, "carried", session->tenant_id, session->session_id,
                          carry->into_sandbox_id, tick - FORGET_EVERY_MS))
        return;
    cp_verified_note(cp->verified, "carried", session->tenant_id, session->session_id,
                     carry->into_sandbox_id, tick);
    forgotten = calloc(1, sizeof *forgotten);
    if (!forgotten)
        return; /* the next use tries again */
    forgotten->cp = cp;
    forgotten->session = berth_message_copy(session);
    forgotten->carry = berth_message_copy(carry);
    atomic_fetch_add(&cp->background, 1);
    if (forgotten->session && forgotten->carry &&
        berth_pool_submit(cp->runtime->pool, forget, forgotten, NULL) == BERTH_OK)
        return;
    berth_message_free(forgotten->session);
    berth_message_free(forgotten->carry);
    free(forgotten);
    atomic_fetch_sub(&cp->background, 1);
}
