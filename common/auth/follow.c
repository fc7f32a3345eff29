#include "common/auth/follow.h"

#include <pthread.h>
#include <stdatomic.h>

#include "berth/control/v1/control.pb-c.h"
#include "common/loop/loop.h"

typedef Berth__Control__V1__WatchChangesResponse WatchChangesResponse;

/* A control plane that does not know the call is asked less often. */
enum { RETRY_MS = 1000, RETRY_UNSERVED_MS = 30000 };

struct berth_follow {
    struct berth_channel *controlplane;
    struct berth_loop *loop;
    struct berth_auth *auth;
    atomic_bool begun;
    /* Of the loop thread. */
    struct berth_stream *stream;
    struct berth_timer *retry;
    bool stopping;

    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool over;
};

static void open_stream(void *arg);

static void end(struct berth_follow *follow)
{
    pthread_mutex_lock(&follow->mutex);
    follow->over = true;
    pthread_cond_signal(&follow->cond);
    pthread_mutex_unlock(&follow->mutex);
}

static void take(struct berth_follow *follow, const WatchChangesResponse *change)
{
    switch (change->kind) {
    case BERTH__CONTROL__V1__CHANGE_KIND__CHANGE_KIND_TOKEN:
        berth_auth_forget(follow->auth, change->id);
        break;
    case BERTH__CONTROL__V1__CHANGE_KIND__CHANGE_KIND_TENANT:
        berth_auth_forget_tenant(follow->auth, change->tenant_id);
        break;
    case BERTH__CONTROL__V1__CHANGE_KIND__CHANGE_KIND_CONFIG:
        break; /* nothing of it is kept */
    default:   /* all, and what we do not know */
        berth_auth_forget_tenant(follow->auth, NULL);
        break;
    }
}

static void on_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct berth_follow *follow = ctx;
    ProtobufCMessage *change;

    if (!msg)
        return;
    if (berth_buf_decode(&berth__control__v1__watch_changes_response__descriptor, msg, &change,
                         NULL) == BERTH_OK) {
        take(follow, (const WatchChangesResponse *)change);
        protobuf_c_message_free_unpacked(change, NULL);
    } else {
        berth_auth_forget_tenant(follow->auth, NULL);
    }
    berth_buf_unref(msg);
    berth_stream_read(stream);
}

static void on_closed(void *ctx, struct berth_stream *stream, const struct berth_status *status)
{
    struct berth_follow *follow = ctx;

    (void)stream;
    follow->stream = NULL;
    if (follow->stopping)
        end(follow);
    else
        follow->retry = berth_loop_timer(
            follow->loop, status->code == BERTH_UNIMPLEMENTED ? RETRY_UNSERVED_MS : RETRY_MS,
            open_stream, follow);
}

static void open_stream(void *arg)
{
    static const struct berth_stream_ops ops = {.message = on_message, .closed = on_closed};
    static const struct berth_call_options options = {0};
    static const Berth__Control__V1__WatchChangesRequest req =
        BERTH__CONTROL__V1__WATCH_CHANGES_REQUEST__INIT;
    struct berth_follow *follow = arg;
    struct berth_buf *packed;

    follow->retry = NULL;
    if (follow->stopping)
        return;
    packed = berth_buf_pack(&req.base);
    if (packed)
        follow->stream = berth_channel_stream(follow->controlplane,
                                              "/berth.control.v1.InternalService/WatchChanges",
                                              &options, follow->loop, &ops, follow);
    if (!follow->stream) {
        berth_buf_unref(packed);
        follow->retry = berth_loop_timer(follow->loop, RETRY_MS, open_stream, follow);
        return;
    }
    (void)berth_stream_write_last(follow->stream, packed);
    berth_stream_read(follow->stream);
}

static void stop(void *arg)
{
    struct berth_follow *follow = arg;

    follow->stopping = true;
    follow->retry = berth_timer_cancel(follow->retry);
    if (follow->stream)
        berth_stream_cancel(follow->stream);
    else
        end(follow);
}

enum berth_code berth_follow_new(struct berth_channel *controlplane, struct berth_loop *loop,
                                 struct berth_auth *auth, struct berth_follow **ret,
                                 struct berth_error *err)
{
    struct berth_follow *follow = calloc(1, sizeof *follow);

    if (!follow)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    follow->controlplane = controlplane;
    follow->loop = loop;
    follow->auth = auth;
    pthread_mutex_init(&follow->mutex, NULL);
    pthread_cond_init(&follow->cond, NULL);
    *ret = follow;
    return BERTH_OK;
}

void berth_follow_begin(struct berth_follow *follow)
{
    if (!atomic_load_explicit(&follow->begun, memory_order_relaxed) &&
        !atomic_exchange(&follow->begun, true))
        berth_loop_post(follow->loop, open_stream, follow);
}

struct berth_follow *berth_follow_free(struct berth_follow *follow)
{
    if (!follow)
        return NULL;
    if (atomic_load(&follow->begun)) {
        berth_loop_post(follow->loop, stop, follow);
        pthread_mutex_lock(&follow->mutex);
        while (!follow->over)
            pthread_cond_wait(&follow->cond, &follow->mutex);
        pthread_mutex_unlock(&follow->mutex);
    }
    pthread_mutex_destroy(&follow->mutex);
    pthread_cond_destroy(&follow->cond);
    free(follow);
    return NULL;
}
