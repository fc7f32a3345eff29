#include "services/skills/work/flow.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "common/messages/messages.h"
#include "common/time/time.h"

enum {
    LOOK_EVERY_MS = 200,
    QUEUE_MAX = 8, /* messages that the worker has not taken yet */
    AGAIN_MIN_MS = 100,
    AGAIN_MAX_MS = 2000,
};

struct flow {
    const struct flow_patience *patience;
    struct berth_channel *channel;
    const char *path;
    int64_t end_tick;
    struct berth_stream *stream; /* the loop's */

    pthread_mutex_t mutex; /* for all below */
    pthread_cond_t cond;
    struct berth_buf *out; /* to be written */
    bool out_is_last;
    bool is_writing; /* out is on its way */
    bool is_begun, is_over;
    bool is_paused; /* the queue was full: nothing has been asked for */
    bool give_up;
    unsigned posted; /* callbacks that are still to come */
    struct berth_buf *queue[QUEUE_MAX];
    unsigned n_queue;
    enum berth_code code; /* of the end */
    struct berth_error err;
};

/* ----------------------------------------------------------------------- the loop */

static void end_posted(struct flow *flow)
{
    pthread_mutex_lock(&flow->mutex);
    flow->posted--;
    pthread_cond_signal(&flow->cond);
    pthread_mutex_unlock(&flow->mutex);
}

static void on_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct flow *flow = ctx;
    bool go_on;

    if (!msg)
        return;
    pthread_mutex_lock(&flow->mutex);
    flow->queue[flow->n_queue++] = msg; /* one was asked for, so there is room */
    go_on = flow->n_queue < QUEUE_MAX;
    flow->is_paused = !go_on;
    pthread_cond_signal(&flow->cond);
    pthread_mutex_unlock(&flow->mutex);
    if (go_on)
        berth_stream_read(stream);
}

static void on_written(void *ctx, struct berth_stream *stream)
{
    struct flow *flow = ctx;

    (void)stream;
    pthread_mutex_lock(&flow->mutex);
    flow->is_writing = false;
    pthread_cond_signal(&flow->cond);
    pthread_mutex_unlock(&flow->mutex);
}

static void on_closed(void *ctx, struct berth_stream *stream, const struct berth_status *status)
{
    struct flow *flow = ctx;

    (void)stream;
    pthread_mutex_lock(&flow->mutex);
    flow->stream = NULL;
    if (status->code)
        flow->code = berth_status_to_error(status, &flow->err);
    flow->is_over = true;
    pthread_cond_signal(&flow->cond);
    pthread_mutex_unlock(&flow->mutex);
}

static const struct berth_stream_ops ops = {
    .message = on_message, .written = on_written, .closed = on_closed};

static void do_write(void *arg)
{
    struct flow *flow = arg;
    const struct berth_call_options options = {0};
    struct berth_buf *out = BERTH_STEAL(flow->out);
    bool begins = !flow->is_begun;

    if (begins) {
        flow->is_begun = true;
        flow->stream = berth_channel_stream(flow->channel, flow->path, &options,
                                            flow->patience->loop, &ops, flow);
        if (!flow->stream) {
            pthread_mutex_lock(&flow->mutex);
            flow->code = berth_fail(&flow->err, BERTH_REASON_OUT_OF_MEMORY, NULL);
            flow->is_over = true;
            pthread_mutex_unlock(&flow->mutex);
        }
    }
    if (!flow->stream)
        berth_buf_unref(out);
    else if (flow->out_is_last)
        (void)berth_stream_write_last(flow->stream, out); /* the end tells */
    else
        (void)berth_stream_write(flow->stream, out);
    if (flow->stream && begins)
        berth_stream_read(flow->stream);
    end_posted(flow);
}

static void do_read(void *arg)
{
    struct flow *flow = arg;

    if (flow->stream)
        berth_stream_read(flow->stream);
    end_posted(flow);
}

static void do_cancel(void *arg)
{
    struct flow *flow = arg;

    if (flow->stream)
        berth_stream_cancel(flow->stream);
    end_posted(flow);
}

/* --------------------------------------------------------------------- the worker */

struct flow *flow_new(const struct flow_patience *patience, struct berth_channel *channel,
                      const char *path, int64_t end_tick)
{
    struct flow *flow = calloc(1, sizeof *flow);
    pthread_condattr_t attr;

    if (!flow)
        return NULL;
    flow->patience = patience;
    flow->channel = channel;
    flow->path = path;
    flow->end_tick = end_tick;
    pthread_mutex_init(&flow->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&flow->cond, &attr);
    pthread_condattr_destroy(&attr);
    return flow;
}

/* Under the mutex. */
static void post(struct flow *flow, berth_loop_fn fn)
{
    flow->posted++;
    berth_loop_post(flow->patience->loop, fn, flow);
}

static void wait_a_while(struct flow *flow, int64_t wait_ms)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += wait_ms * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_cond_timedwait(&flow->cond, &flow->mutex, &until);
}

struct flow *flow_free(struct flow *flow)
{
    if (!flow)
        return NULL;
    pthread_mutex_lock(&flow->mutex);
    if (flow->is_writing || flow->posted || (flow->is_begun && !flow->is_over))
        post(flow, do_cancel);
    while (flow->posted || (flow->is_begun && !flow->is_over)) {
        while (flow->n_queue > 0)
            berth_buf_unref(flow->queue[--flow->n_queue]);
        wait_a_while(flow, LOOK_EVERY_MS);
    }
    pthread_mutex_unlock(&flow->mutex);
    while (flow->n_queue > 0)
        berth_buf_unref(flow->queue[--flow->n_queue]);
    berth_buf_unref(flow->out);
    pthread_cond_destroy(&flow->cond);
    pthread_mutex_destroy(&flow->mutex);
    free(flow);
    return NULL;
}

static enum berth_code look(const struct flow_patience *patience, int64_t end_tick,
                            struct berth_error *err)
{
    if (patience->stopped && patience->stopped(patience->arg))
        return berth_fail(err, BERTH_REASON_CANCELLED, "it was stopped");
    if (berth_tick_ms() >= end_tick)
        return berth_fail(err, BERTH_REASON_DEADLINE, NULL);
    return BERTH_OK;
}

/* The same without the mutex while others are asked. */
static enum berth_code look_unlocked(struct flow *flow, struct berth_error *err)
{
    enum berth_code code;

    pthread_mutex_unlock(&flow->mutex);
    code = look(flow->patience, flow->end_tick, err);
    pthread_mutex_lock(&flow->mutex);
    return code;
}

static enum berth_code end_of(const struct flow *flow, struct berth_error *err)
{
    if (flow->code && err)
        *err = flow->err;
    return flow->code;
}

enum berth_code flow_send(struct flow *flow, struct berth_buf *msg, bool is_last,
                          struct berth_error *err)
{
    enum berth_code code = BERTH_OK;

    if (!msg)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    pthread_mutex_lock(&flow->mutex);
    code = look_unlocked(flow, err);
    while (!code && flow->is_writing && !flow->is_over) {
        wait_a_while(flow, LOOK_EVERY_MS);
        code = look_unlocked(flow, err);
    }
    if (!code && flow->is_over) {
        code = end_of(flow, err);
        if (!code)
            code = berth_fail(err, BERTH_REASON_PEER_UNAVAILABLE,
                              "the call ended before all was sent");
    }
    if (!code) {
        flow->out = BERTH_STEAL(msg);
        flow->out_is_last = is_last;
        flow->is_writing = true;
        post(flow, do_write);
    }
    pthread_mutex_unlock(&flow->mutex);
    berth_buf_unref(msg);
    return code;
}

static struct berth_buf *take_first(struct flow *flow)
{
    struct berth_buf *msg;

    if (flow->n_queue == 0)
        return NULL;
    msg = flow->queue[0];
    memmove(flow->queue, flow->queue + 1, --flow->n_queue * sizeof *flow->queue);
    if (flow->is_paused && !flow->is_over) {
        flow->is_paused = false;
        post(flow, do_read);
    }
    return msg;
}

enum berth_code flow_next(struct flow *flow, int64_t quiet_ms, struct berth_buf **ret,
                          struct berth_error *err)
{
    int64_t quiet_tick = berth_tick_ms() + quiet_ms;
    enum berth_code code = BERTH_OK;

    pthread_mutex_lock(&flow->mutex);
    code = look_unlocked(flow, err);
    while (!code && flow->n_queue == 0 && !flow->is_over) {
        wait_a_while(flow, LOOK_EVERY_MS);
        code = look_unlocked(flow, err);
        if (!code && quiet_ms > 0 && flow->n_queue == 0 && !flow->is_over &&
            berth_tick_ms() >= quiet_tick)
            code = berth_fail(err, BERTH_REASON_PEER_UNAVAILABLE, "nothing came for %lld ms",
                              (long long)quiet_ms);
    }
    if (!code) {
        struct berth_buf *msg = take_first(flow);

        if (!msg)
            code = end_of(flow, err);
        if (!code)
            *ret = msg;
    }
    pthread_mutex_unlock(&flow->mutex);
    return code;
}

bool flow_has_next(struct flow *flow)
{
    bool has;

    pthread_mutex_lock(&flow->mutex);
    has = flow->n_queue > 0;
    pthread_mutex_unlock(&flow->mutex);
    return has;
}

enum berth_code flow_pause(const struct flow_patience *patience, int64_t pause_ms,
                           int64_t end_tick, struct berth_error *err)
{
    int64_t until = berth_tick_ms() + pause_ms;
    enum berth_code code;
    int64_t left;

    while ((code = look(patience, end_tick, err)) == BERTH_OK &&
           (left = until - berth_tick_ms()) > 0) {
        const struct timespec nap = {.tv_nsec = (left < LOOK_EVERY_MS ? left : LOOK_EVERY_MS) *
                                                1000000L};

        (void)nanosleep(&nap, NULL);
    }
    return code;
}

/* One try. */
static enum berth_code call_once(const struct flow_patience *patience,
                                 struct berth_channel *channel, const char *path,
                                 const ProtobufCMessage *req,
                                 const ProtobufCMessageDescriptor *resp_type, int64_t end_tick,
                                 ProtobufCMessage **ret, struct berth_error *err)
{
    BERTH_AUTO(flow_free) struct flow *flow = flow_new(patience, channel, path, end_tick);
    BERTH_AUTO(berth_buf_unref) struct berth_buf *msg = NULL;
    struct berth_buf *more = NULL;
    enum berth_code code;

    if (!flow)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    code = flow_send(flow, berth_buf_pack(req), true, err);
    if (!code)
        code = flow_next(flow, 0, &msg, err);
    if (!code && msg)
        code = flow_next(flow, 0, &more, err); /* the status */
    berth_buf_unref(more);
    if (!code && !msg)
        code =
            berth_fail(err, BERTH_REASON_OUTCOME_UNKNOWN, "%s ended without an answer", path);
    return code ? code : berth_buf_decode(resp_type, msg, ret, err);
}

enum berth_code flow_call(const struct flow_patience *patience, struct berth_channel *channel,
                          const char *path, const ProtobufCMessage *req,
                          const ProtobufCMessageDescriptor *resp_type, int64_t end_tick,
                          void *ret, struct berth_error *err)
{
    int64_t pause_ms = AGAIN_MIN_MS;
    ProtobufCMessage *resp = NULL;
    struct berth_error why = {0};
    enum berth_code code, waited;

    for (;;) {
        code = call_once(patience, channel, path, req, resp_type, end_tick, &resp, &why);
        if (code != BERTH_UNAVAILABLE && code != BERTH_UNKNOWN)
            break;
        waited = flow_pause(patience, pause_ms, end_tick, err);
        if (waited == BERTH_CANCELLED)
            return waited;
        if (waited)
            break; /* what kept it from an answer says more than the deadline */
        pause_ms = pause_ms * 2 < AGAIN_MAX_MS ? pause_ms * 2 : AGAIN_MAX_MS;
    }
    if (!code)
        memcpy(ret, &resp, sizeof resp);
    else if (err)
        *err = why;
    return code;
}
