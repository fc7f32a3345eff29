/* event_rpc.c - EventService: a tenant's events, from a cursor on and as they happen. */
#include <stdio.h>

#include "berth/control/v1/control.pb-c.h"
#include "common/fields/fields.h"
#include "common/messages/messages.h"
#include "common/time/time.h"
#include "services/controlplane/controlplane.h"
#include "services/controlplane/event_feed.h"
#include "services/controlplane/events.h"

typedef Berth__Control__V1__WatchEventsRequest WatchEventsRequest;
typedef Berth__Control__V1__WatchEventsResponse WatchEventsResponse;

enum { WATCHES_MAX = 1000, WATCHES_OF_TENANT = 100, KINDS_MAX = 64, TICK_MS = 250 };

/* One caller. Lives on the loop thread, but for `enter`, which reads the tenant on a worker
 * while the loop leaves the watch alone. Freed when the stream is closed, nothing is on a
 * worker, and the feed has let go. */
struct watch {
    struct cp_events *events;
    struct watch *next, **slot;  /* of all watches */
    struct berth_stream *stream; /* NULL: closed */
    WatchEventsRequest *request;
    uint64_t kinds; /* a bit each; 0: all */
    bool entering, asking, live, finished;
    struct cp_ask ask;
    struct cp_page *page; /* being sent; NULL: none */
    size_t at;            /* in the page */
    int64_t spoke_tick;

    /* Of `enter`. */
    enum berth_code code;
    struct berth_error err;
};

struct cp_events {
    struct cp *cp;
    struct cp_feed *feed;
    int64_t heartbeat_ms;
    /* The loop thread's. */
    struct watch *watches;
    unsigned n_watches;
    struct berth_timer *timer;
    atomic_uint count; /* of watches, for metrics */
};

static void free_if_over(struct watch *watch)
{
    struct cp_events *events = watch->events;

    if (watch->stream || watch->entering || watch->asking)
        return;
    *watch->slot = watch->next;
    if (watch->next)
        watch->next->slot = watch->slot;
    events->n_watches--;
    atomic_store(&events->count, events->n_watches);
    if (!events->n_watches)
        events->timer = berth_timer_cancel(events->timer);
    cp_page_unref(watch->page);
    berth_message_free(watch->request);
    free(watch);
}

static void finish(struct watch *watch, enum berth_code code, const struct berth_error *err)
{
    if (!watch->stream || watch->finished)
        return;
    watch->finished = true;
    berth_stream_finish(watch->stream, code, err);
}

/* ------------------------------------------------------------------- what is sent */

static bool is_wanted(const struct watch *watch, const struct cp_page_event *event)
{
    const char *session = watch->request->session_id;

    return event->response && (!watch->kinds || (watch->kinds >> event->kind & 1)) &&
           (!*session || strcmp(event->session_id, session) == 0);
}

static void ask_on(struct watch *watch)
{
    struct berth_error err;
    enum berth_code code;

    watch->asking = true;
    code = cp_feed_ask(watch->events->feed, &watch->ask, &err);
    if (code) {
        watch->asking = false;
        finish(watch, code, &err);
    }
}

/* The next event of the page; at its end the next page. */
static void send_on(struct watch *watch)
{
    while (watch->page && !watch->finished && berth_stream_can_write(watch->stream)) {
        const struct cp_page_event *event;

        if (watch->at == watch->page->n_events) {
            watch->page = cp_page_unref(watch->page);
            ask_on(watch);
            return;
        }
        event = &watch->page->events[watch->at++];
        watch->ask.after = event->cursor;
        if (!is_wanted(watch, event))
            continue;
        watch->spoke_tick = berth_tick_ms();
        (void)berth_stream_write(watch->stream, berth_buf_ref(event->response));
    }
}

/* Also what tells a caller at the beginning where it stands. */
static void send_heartbeat(struct watch *watch)
{
    WatchEventsResponse response = BERTH__CONTROL__V1__WATCH_EVENTS_RESPONSE__INIT;
    char cursor[CP_CURSOR_MAX];
    struct berth_buf *buf;

    response.message_case = BERTH__CONTROL__V1__WATCH_EVENTS_RESPONSE__MESSAGE_HEARTBEAT_CURSOR;
    response.heartbeat_cursor = (char *)cp_cursor_format(cursor, watch->ask.after);
    buf = berth_buf_pack(&response.base);
    if (!buf)
        return; /* the next one may fit */
    watch->spoke_tick = berth_tick_ms();
    (void)berth_stream_write(watch->stream, buf);
}

static void on_page(struct cp_ask *ask, struct cp_page *page, enum berth_code code,
                    const struct berth_error *err)
{
    struct watch *watch = (struct watch *)((char *)ask - offsetof(struct watch, ask));

    watch->asking = false;
    if (code) {
        finish(watch, code, err);
    } else if (watch->stream && !watch->finished) {
        watch->live = true;
        if (ask->begin) {
            ask->at_end = ask->from_now; /* the newest is where the stream ends */
            ask->begin = ask->from_now = false;
            send_heartbeat(watch);
            ask_on(watch);
        } else {
            page->refs++;
            ask->at_end = page->is_last;
            watch->page = page;
            watch->at = 0;
            send_on(watch);
        }
    }
    free_if_over(watch);
}

/* Heartbeats, and the end of all watches once the server stops. */
static void tick(void *arg)
{
    struct cp_events *events = arg;
    bool stopping = berth_server_stopping(events->cp->runtime->server);
    int64_t now_tick = berth_tick_ms();
    struct berth_error err;

    events->timer = berth_loop_timer(events->cp->runtime->loop, TICK_MS, tick, events);
    for (struct watch *watch = events->watches; watch; watch = watch->next) {
        if (stopping)
            finish(watch, berth_fail(&err, BERTH_REASON_DRAINING, NULL), &err);
        else if (watch->stream && watch->live && !watch->finished && !watch->page &&
                 now_tick - watch->spoke_tick >= events->heartbeat_ms &&
                 berth_stream_can_write(watch->stream))
            send_heartbeat(watch);
    }
}

/* ---------------------------------------------------------------------- beginning */

static enum berth_code check_request(struct watch *watch, struct berth_error *err)
{
    const WatchEventsRequest *req = watch->request;
    enum berth_code code = berth_check_id("tenant_id", req->tenant_id, err);

    if (!code)
        code = berth_check_id_or_empty("session_id", req->session_id, err);
    if (!code && req->n_kinds > KINDS_MAX)
        code = berth_fail_field(err, "kinds", "must have at most %d entries", KINDS_MAX);
    for (size_t i = 0; !code && i < req->n_kinds; i++) {
        code = berth_check_enum_entry("kinds", (int)req->kinds[i],
                                      BERTH__CONTROL__V1__EVENT_KIND__EVENT_KIND_IMAGE_MISSING,
                                      err);
        if (!code)
            watch->kinds |= (uint64_t)1 << req->kinds[i];
    }
    watch->ask.from_now = !*req->after_cursor;
    if (!code && *req->after_cursor)
        code = cp_cursor_parse("after_cursor", req->after_cursor, &watch->ask.after, err);
    return code;
}

static enum berth_code check_room(const struct watch *watch, struct berth_error *err)
{
    const struct cp_events *events = watch->events;
    unsigned of_tenant = 0;

    for (const struct watch *other = events->watches; other; other = other->next)
        if (other != watch && other->request && !other->finished &&
            strcmp(other->request->tenant_id, watch->request->tenant_id) == 0)
            of_tenant++;
    if (of_tenant >= WATCHES_OF_TENANT)
        return berth_fail(err, BERTH_REASON_OVERLOADED,
                          "tenant '%s' watches its events %u times here, which is the most",
                          watch->request->tenant_id, of_tenant);
    return BERTH_OK;
}

static void entered(void *arg)
{
    struct watch *watch = arg;

    watch->entering = false;
    if (watch->code) {
        finish(watch, watch->code, &watch->err);
    } else if (watch->stream && !watch->finished) {
        watch->ask.tenant = watch->request->tenant_id;
        watch->ask.begin = true;
        watch->ask.done = on_page;
        ask_on(watch);
    }
    free_if_over(watch);
}

/* On a worker: the tenant may have to be read. */
static void enter(void *arg)
{
    struct watch *watch = arg;

    watch->code =
        cp_enter_tenant(watch->events->cp, watch->request->tenant_id, false, &watch->err);
    berth_loop_post(watch->events->cp->runtime->loop, entered, watch);
}

static void on_request(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct watch *watch = ctx;
    ProtobufCMessage *message;
    struct berth_error err = {0};
    enum berth_code code;

    if (!msg) {
        if (!watch->request)
            finish(watch, berth_fail_field(&err, "tenant_id", "there was no request"), &err);
        return;
    }
    if (watch->request) {
        berth_buf_unref(msg);
        finish(watch, berth_fail_field(&err, "tenant_id", "there was a second request"), &err);
        return;
    }
    code = berth_buf_decode(&berth__control__v1__watch_events_request__descriptor, msg,
                            &message, &err);
    berth_buf_unref(msg);
    if (!code) {
        watch->request = (WatchEventsRequest *)message;
        code = check_request(watch, &err);
    }
    if (!code)
        code = check_room(watch, &err);
    if (!code) {
        /* From here to entered() the worker owns code and err. */
        watch->entering = true;
        code = berth_pool_submit(watch->events->cp->runtime->pool, enter, watch, &err);
        watch->entering = code == BERTH_OK;
    }
    if (code)
        finish(watch, code, &err);
    else
        berth_stream_read(stream); /* the half-close */
}

static void on_written(void *ctx, struct berth_stream *stream)
{
    (void)stream;
    send_on(ctx);
}

static void on_cancelled(void *ctx, struct berth_stream *stream)
{
    struct berth_error err;

    (void)stream;
    finish(ctx, berth_fail(&err, BERTH_REASON_CANCELLED, NULL), &err);
}

static void on_closed(void *ctx, struct berth_stream *stream, const struct berth_status *status)
{
    struct watch *watch = ctx;

    (void)stream;
    (void)status;
    watch->stream = NULL;
    if (watch->asking && cp_feed_take_back(watch->events->feed, &watch->ask))
        watch->asking = false;
    free_if_over(watch);
}

static const struct berth_stream_ops ops = {
    .message = on_request,
    .written = on_written,
    .closed = on_closed,
    .cancelled = on_cancelled,
};

static enum berth_code watch_events(void *service, struct berth_stream *stream,
                                    const struct berth_stream_ops **ret_ops, void **ret_ctx,
                                    struct berth_error *err)
{
    struct cp *cp = service;
    struct cp_events *events = cp->events;
    struct watch *watch;

    if (events->n_watches >= WATCHES_MAX)
        return berth_fail(err, BERTH_REASON_OVERLOADED,
                          "%d callers watch events, which is the most", WATCHES_MAX);
    if (!events->timer)
        events->timer = berth_loop_timer(cp->runtime->loop, TICK_MS, tick, events);
    watch = calloc(1, sizeof *watch);
    if (!watch)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    *watch = (struct watch){
        .events = events, .next = events->watches, .slot = &events->watches, .stream = stream};
    if (watch->next)
        watch->next->slot = &watch->next;
    events->watches = watch;
    events->n_watches++;
    atomic_store(&events->count, events->n_watches);
    *ret_ops = &ops;
    *ret_ctx = watch;
    berth_stream_read(stream);
    return BERTH_OK;
}

/* ------------------------------------------------------------------------- life */

enum berth_code cp_events_new(struct cp *cp, int64_t heartbeat_ms, int64_t block_ms,
                              struct cp_events **ret, struct berth_error *err)
{
    struct cp_events *events = calloc(1, sizeof *events);

    if (events) {
        events->cp = cp;
        events->heartbeat_ms = heartbeat_ms;
        events->feed = cp_feed_new(cp->redis, cp->runtime->loop, block_ms);
    }
    if (!events || !events->feed) {
        free(events);
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    *ret = events;
    return BERTH_OK;
}

struct cp_events *cp_events_free(struct cp_events *events)
{
    if (!events)
        return NULL;
    cp_feed_free(events->feed);
    free(events);
    return NULL;
}

unsigned cp_events_watchers(const struct cp_events *events)
{
    return atomic_load(&events->count);
}

const struct berth_method cp_event_methods[] = {
    {"/berth.control.v1.EventService/WatchEvents",
     &berth__control__v1__watch_events_request__descriptor, .open = watch_events},
};
const size_t cp_n_event_methods = BERTH_COUNT(cp_event_methods);
