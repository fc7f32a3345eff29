/* pump.c - one call from its first message to its status: judge, resolve, open the same method
 * at the adapter, then pass messages both ways undecoded.
 *
 * Back-pressure: towards the adapter the next message is asked for when the last one is out of
 * our hands; towards the caller one message may be on its way and one held. So a stream keeps
 * at most two messages, besides those few that are kept for a repeat until the adapter's first
 * answer.
 *
 * A call is repeated once, at another sandbox or the same one resumed, when the adapter says
 * that the route is wrong before it delivered anything, and only if everything that was sent is
 * kept.
 *
 * Life: a dp_stream lives until the caller's stream, the adapter's stream and the resolve have
 * all closed; each of the three pointers is NULL from then on. */
#include "services/dataplane/stream.h"

#include <stdio.h>

#include "common/fields/fields.h"
#include "common/messages/messages.h"
#include "common/time/time.h"

/* ------------------------------------------------------------ end of life */

/* No repeat from here on: what was sent need not be kept. */
static void drop_sent(struct dp_stream *s)
{
    for (unsigned i = 0; i < s->n_sent; i++)
        s->kept[i] = berth_buf_unref(s->kept[i]);
    s->repeatable = false;
}

static void drop_kept(struct dp_stream *s)
{
    s->n_sent = s->n_kept;
    drop_sent(s);
}

void dp_stream_drop_first(struct dp_stream *s)
{
    if (s->first)
        protobuf_c_message_free_unpacked(s->first, NULL);
    s->first = NULL;
    s->command = NULL;
}

static struct berth_status *status_free(struct berth_status *status)
{
    if (!status)
        return NULL;
    free((char *)status->message);
    free((uint8_t *)status->details);
    free(status);
    return NULL;
}

static void stream_unlink(struct dp_stream *s)
{
    if (s->prev)
        s->prev->next = s->next;
    else
        s->dp->streams = s->next;
    if (s->next)
        s->next->prev = s->prev;
}

void dp_stream_free_if_over(struct dp_stream *s)
{
    if (s->caller || s->resolve || s->telling || s->sandbox)
        return;
    stream_unlink(s);
    atomic_fetch_sub_explicit(&s->dp->counters.streams, 1, memory_order_relaxed);
    if (s->packed && !s->over)
        dp_linger_begin(s);
    dp_use_end(s->use);
    dp_stream_drop_first(s);
    drop_kept(s);
    berth_buf_unref(s->held);
    status_free(s->end);
    berth_message_free(s->loss);
    if (s->route_req)
        berth__control__v1__resolve_route_request__free_unpacked(s->route_req, NULL);
    free(s->sandbox_id);
    free(s->exec_id);
    free(s->packed);
    dp_check_drained(s->dp);
    free(s);
}

/* Let go of everything but the caller. */
static void let_go(struct dp_stream *s)
{
    if (s->resolve) {
        dp_unary_cancel(s->resolve);
        s->resolve = NULL;
    }
    if (s->telling) {
        dp_unary_cancel(s->telling);
        s->telling = NULL;
    }
    if (s->sandbox)
        berth_stream_cancel(s->sandbox);
    s->held = berth_buf_unref(s->held);
    drop_kept(s);
    dp_stream_drop_first(s);
}

void dp_stream_fail(struct dp_stream *s, enum berth_code code, const struct berth_error *err)
{
    if (s->finished)
        return;
    s->finished = true;
    let_go(s);
    if (s->caller)
        berth_stream_finish(s->caller, code, err);
}

void dp_stream_pass(struct dp_stream *s, const struct berth_status *status)
{
    if (s->finished)
        return;
    s->finished = true;
    let_go(s);
    if (s->caller)
        berth_stream_finish_status(s->caller, status);
}

/* -------------------------------------------------------- towards the adapter */

/* The adapter owes an answer from now on, if it did not already. */
static void ask(struct dp_stream *s)
{
    s->asked_tick_ms = berth_tick_ms();
}

static void read_caller(struct dp_stream *s)
{
    if (s->caller_reading)
        return;
    s->caller_reading = true;
    berth_stream_read(s->caller);
}

static void half_close(struct dp_stream *s)
{
    s->half_closed = true;
    ask(s);
    berth_stream_half_close(s->sandbox);
}

/* Send the next message if there is one and the last is out of our hands. When none waits, the
 * caller is asked for one. */
static void send_next(struct dp_stream *s)
{
    struct berth_buf **slot = &s->kept[s->n_sent], *msg;
    size_t size;

    if (s->n_sent == s->n_kept || !s->sandbox || !berth_stream_can_write(s->sandbox))
        return;
    size = s->n_sent > 0 ? berth_buf_size(*slot) : 0; /* the first is always kept */
    s->kept_bytes += size;
    if (s->repeatable && (s->n_sent >= DP_KEPT_MAX || s->kept_bytes > DP_KEPT_BYTES_MAX))
        drop_sent(s);
    s->n_sent++;
    ask(s);
    msg = s->repeatable ? berth_buf_ref(*slot) : BERTH_STEAL(*slot);
    if (!(s->method->flags & DP_CLIENT_STREAM)) {
        s->half_closed = true;
        (void)berth_stream_write_last(s->sandbox, msg);
        return;
    }
    (void)berth_stream_write(s->sandbox, msg);
    if (!s->caller_done && s->n_sent == s->n_kept)
        read_caller(s);
}

/* A message of the caller after the first; taken. */
static void forward(struct dp_stream *s, struct berth_buf *msg)
{
    atomic_fetch_add_explicit(&s->dp->counters.bytes_in, berth_buf_size(msg),
                              memory_order_relaxed);
    if (!s->repeatable && s->n_sent == s->n_kept)
        s->n_sent = s->n_kept = 0;
    s->kept[s->n_kept++] = msg;
    send_next(s);
}

static void sandbox_written(void *ctx, struct berth_stream *stream)
{
    struct dp_stream *s = ctx;

    (void)stream;
    if (s->finished || s->half_closed)
        return;
    if (s->n_sent < s->n_kept)
        send_next(s);
    else if (s->caller_done)
        half_close(s);
    else
        s->asked_tick_ms = 0; /* the caller is slow, not the adapter */
}

/* ---------------------------------------------------------- towards the caller */

static void deliver(struct dp_stream *s, struct berth_buf *msg)
{
    atomic_fetch_add_explicit(&s->dp->counters.bytes_out, berth_buf_size(msg),
                              memory_order_relaxed);
    (void)berth_stream_write(s->caller, msg);
}

/* The one message of a unary answer, and OK. */
static void answer(struct dp_stream *s, struct berth_buf *msg)
{
    atomic_fetch_add_explicit(&s->dp->counters.bytes_out, berth_buf_size(msg),
                              memory_order_relaxed);
    s->finished = true;
    berth_stream_answer(s->caller, msg);
    let_go(s);
}

static void sandbox_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct dp_stream *s = ctx;

    if (!msg || s->finished) {
        berth_buf_unref(msg);
        return;
    }
    drop_sent(s);
    s->asked_tick_ms = 0;
    if (!(s->method->flags & DP_MANY_ANSWERS)) {
        /* The only one: it goes out with the status, in one piece. That comes without being
         * asked for, and to ask for more would have us woken twice more for nothing. */
        s->held = msg;
        ask(s);
        return;
    }
    if (s->loss) { /* only the first one can tell it */
        s->held = msg;
        if (dp_stream_tell_loss(s))
            return;
        s->loss = berth_message_free(s->loss);
        deliver(s, BERTH_STEAL(s->held));
    } else if (!berth_stream_can_write(s->caller)) {
        s->held = msg;
        return;
    } else {
        deliver(s, msg);
    }
    ask(s);
    berth_stream_read(stream);
}

static void deliver_held(struct dp_stream *s)
{
    deliver(s, BERTH_STEAL(s->held));
    if (s->sandbox) {
        ask(s);
        berth_stream_read(s->sandbox);
    } else if (s->end) {
        dp_stream_pass(s, s->end);
    }
}

static void caller_written(void *ctx, struct berth_stream *stream)
{
    struct dp_stream *s = ctx;

    (void)stream;
    if (!s->finished && s->held && !s->telling)
        deliver_held(s);
}

void dp_stream_told(struct dp_stream *s)
{
    if (!s->finished && s->held) {
        if (s->method->flags & DP_MANY_ANSWERS)
            deliver_held(s);
        else
            answer(s, BERTH_STEAL(s->held));
    }
    dp_stream_free_if_over(s);
}

/* A copy, since the received one ends with the callback. NULL: no memory. */
static struct berth_status *status_copy(const struct berth_status *status)
{
    struct berth_status *copy = calloc(1, sizeof *copy);

    if (!copy)
        return NULL;
    copy->code = status->code;
    copy->message = strdup(status->message);
    if (status->details) {
        uint8_t *details = malloc(status->details_size + 1);

        if (details)
            memcpy(details, status->details, status->details_size);
        copy->details = details;
        copy->details_size = status->details_size;
    }
    if (!copy->message || (status->details && !copy->details))
        return status_free(copy);
    return copy;
}

/* Is this an answer after which the call may be tried at the session's present sandbox? */
static bool may_repeat(const struct dp_stream *s, const struct berth_status *status)
{
    struct berth_error err = {0};

    if (s->finished || !s->repeatable || s->repeated || !status->details)
        return false;
    (void)berth_status_to_error(status, &err);
    return dp_reason_is_misrouted(err.reason);
}

static void sandbox_ended(struct dp_stream *s, const struct berth_status *status)
{
    struct berth_error err = {0};
    char detail[BERTH_ID_MAX + 32] = "";

    s->over = status->code == BERTH_OK;
    if (s->stalled) {
        dp_stream_fail(s,
                       berth_fail(&err, BERTH_REASON_BACKEND_TIMEOUT,
                                  "the adapter did not answer in time"),
                       &err);
        return;
    }
    if (status->code != BERTH_OK) {
        if (s->exec_id)
            snprintf(detail, sizeof detail, "exec_id '%s'", s->exec_id);
        if (!dp_status_judge(s->method->flags, status, detail, &err)) {
            if (s->sandbox_id)
                berth_error_set(err.sandbox_id, sizeof err.sandbox_id, s->sandbox_id);
            dp_stream_fail(s, err.code, &err);
            return;
        }
    }
    if (s->held && !(s->method->flags & DP_MANY_ANSWERS) && status->code == BERTH_OK) {
        if (!dp_stream_tell_loss(s))
            answer(s, BERTH_STEAL(s->held));
        return;
    }
    if (!s->held || !(s->method->flags & DP_MANY_ANSWERS)) {
        dp_stream_pass(s, status);
        return;
    }
    s->end = status_copy(status);
    if (!s->end)
        dp_stream_fail(s, berth_fail(&err, BERTH_REASON_OUT_OF_MEMORY, NULL), &err);
}

static void sandbox_closed(void *ctx, struct berth_stream *stream,
                           const struct berth_status *status)
{
    struct dp_stream *s = ctx;

    (void)stream;
    s->sandbox = NULL;
    s->asked_tick_ms = 0;
    dp_peer_done(s->adapter, s->slot);
    if (may_repeat(s, status)) {
        s->repeated = true;
        dp_use_end(s->use);
        s->use = NULL;
        atomic_fetch_add_explicit(&s->dp->counters.retries, 1, memory_order_relaxed);
        dp_stream_resolve(s);
    } else if (!s->finished) {
        sandbox_ended(s, status);
    }
    dp_stream_free_if_over(s);
}

static const struct berth_stream_ops sandbox_ops = {
    .message = sandbox_message, .written = sandbox_written, .closed = sandbox_closed};

enum berth_code dp_stream_open_sandbox(struct dp_stream *s, struct dp_route *route,
                                       struct berth_error *err)
{
    struct berth_metadata metadata = {"berth-route-bin", route->packed, route->packed_size};
    struct berth_call_options options = {
        .parent = berth_stream_call(s->caller), .metadata = &metadata, .n_metadata = 1};

    free(s->sandbox_id);
    s->sandbox_id = BERTH_STEAL(route->sandbox_id);
    s->sandbox = dp_peer_stream(route->adapter, s->method->path, &options, s->dp->options.loop,
                                &sandbox_ops, s, &s->slot, err);
    if (!s->sandbox)
        return err->code;
    if (s->detach && s->limited) {
        free(s->packed);
        s->packed = BERTH_STEAL(route->packed);
        s->packed_size = route->packed_size;
    }
    s->adapter = route->adapter;
    s->opened_tick_ms = berth_tick_ms();
    s->n_sent = 0;
    s->half_closed = false;
    s->kept_bytes = 0;
    send_next(s);
    berth_stream_read(s->sandbox);
    dp_sweep_arm(s->dp);
    return BERTH_OK;
}

/* -------------------------------------------------------------- the caller */

static void caller_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct dp_stream *s = ctx;
    struct berth_error err = {0};
    enum berth_code code;

    (void)stream;
    s->caller_reading = false;
    if (s->finished) {
        berth_buf_unref(msg);
        return;
    }
    if (!s->route_req) {
        if (!msg) {
            dp_stream_fail(s, berth_fail_field(&err, "request", "a message must be sent"),
                           &err);
            return;
        }
        code = dp_stream_take_first(s, msg, &err);
        if (code)
            dp_stream_fail(s, code, &err);
        else
            dp_stream_resolve(s);
        return;
    }
    if (!msg) {
        s->caller_done = true;
        /* Else sandbox_written() says so after the last message. */
        if (s->sandbox && s->n_sent == s->n_kept && berth_stream_can_write(s->sandbox))
            half_close(s);
        return;
    }
    forward(s, msg);
}

/* The caller went away, or its deadline passed. */
static void caller_cancelled(void *ctx, struct berth_stream *stream)
{
    struct dp_stream *s = ctx;
    struct berth_error err = {0};

    (void)stream;
    dp_stream_fail(s, berth_fail(&err, BERTH_REASON_CANCELLED, NULL), &err);
}

static void caller_closed(void *ctx, struct berth_stream *stream,
                          const struct berth_status *status)
{
    struct dp_stream *s = ctx;

    (void)stream;
    (void)status;
    s->caller = NULL;
    s->finished = true;
    let_go(s);
    dp_stream_free_if_over(s);
}

static const struct berth_stream_ops caller_ops = {.message = caller_message,
                                                   .written = caller_written,
                                                   .closed = caller_closed,
                                                   .cancelled = caller_cancelled};

enum berth_code dp_stream_open(struct dataplane *dp, const struct dp_method *method,
                               struct berth_stream *caller,
                               const struct berth_stream_ops **ret_ops, void **ret_ctx,
                               struct berth_error *err)
{
    struct dp_stream *s;

    if (atomic_load_explicit(&dp->counters.streams, memory_order_relaxed) >=
        (uint64_t)dp->options.max_streams) {
        atomic_fetch_add_explicit(&dp->counters.refused, 1, memory_order_relaxed);
        return berth_fail(err, BERTH_REASON_OVERLOADED, "over %lld calls at once",
                          (long long)dp->options.max_streams);
    }
    s = calloc(1, sizeof *s);
    if (!s)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    s->dp = dp;
    s->method = method;
    s->caller = caller;
    s->stall_ms = method->flags & DP_NO_STALL ? 0 : dp->options.stall_ms;
    s->next = dp->streams;
    if (s->next)
        s->next->prev = s;
    dp->streams = s;
    atomic_fetch_add_explicit(&dp->counters.streams, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&dp->counters.streams_total, 1, memory_order_relaxed);
    read_caller(s);
    *ret_ops = &caller_ops;
    *ret_ctx = s;
    return BERTH_OK;
}

void dp_streams_sweep(struct dataplane *dp, int64_t tick_ms)
{
    for (struct dp_stream *s = dp->streams; s; s = s->next) {
        if (!s->sandbox || s->finished)
            continue;
        if (!s->use && tick_ms - s->opened_tick_ms >= dp->options.use_after_ms)
            s->use = dp_use_begin(dp, s->route_req->session, s->sandbox_id);
        if (s->stall_ms && s->asked_tick_ms && !s->stalled &&
            tick_ms - s->asked_tick_ms >= s->stall_ms) {
            s->stalled = true;
            atomic_fetch_add_explicit(&dp->counters.stalled, 1, memory_order_relaxed);
            berth_stream_cancel(s->sandbox);
        }
    }
}
