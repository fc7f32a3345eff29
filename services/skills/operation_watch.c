/* operation_watch.c - SkillService.WatchOperation. */
#include "berth/skills/v1/skills.pb-c.h"
#include "common/fields/fields.h"
#include "common/messages/messages.h"
#include "services/skills/operation_feed.h"
#include "services/skills/operation_rpc.h"

typedef Berth__Skills__V1__WatchOperationRequest WatchOperationRequest;

enum { WATCHES_MAX = 1000, WATCHES_OF_TENANT = 100, TICK_MS = 250 };

/* One caller. Lives on the loop thread, but for `enter`, which asks the store on a worker while
 * the loop leaves the watch alone. Freed when the stream is closed, nothing is on a worker, and
 * the feed has let go. */
struct watch {
    struct skills_watches *watches;
    struct watch *next, **slot;  /* of all watches */
    struct berth_stream *stream; /* NULL: closed */
    WatchOperationRequest *request;
    bool entering, asking, finished;
    struct operation_ask ask;
    struct operation_page *page; /* being sent; NULL: none */
    size_t at;                   /* in the page */

    /* Of `enter`. */
    enum berth_code code;
    struct berth_error err;
};

struct skills_watches {
    struct skills *skills;
    struct operation_feed *feed;
    /* The loop thread's. */
    struct watch *first;
    unsigned n;
    struct berth_timer *timer;
};

static void free_if_over(struct watch *watch)
{
    struct skills_watches *watches = watch->watches;

    if (watch->stream || watch->entering || watch->asking)
        return;
    *watch->slot = watch->next;
    if (watch->next)
        watch->next->slot = watch->slot;
    if (--watches->n == 0)
        watches->timer = berth_timer_cancel(watches->timer);
    operation_page_unref(watch->page);
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

static void ask_on(struct watch *watch)
{
    struct berth_error err;
    enum berth_code code;

    watch->asking = true;
    code = operation_feed_ask(watch->watches->feed, &watch->ask, &err);
    if (code) {
        watch->asking = false;
        finish(watch, code, &err);
    }
}

/* The next message of the page; at its end the next page. */
static void send_on(struct watch *watch)
{
    while (watch->page && !watch->finished && berth_stream_can_write(watch->stream)) {
        struct operation_page *page = watch->page;

        if (watch->at < page->n_messages) {
            (void)berth_stream_write(watch->stream, berth_buf_ref(page->messages[watch->at++]));
            continue;
        }
        watch->ask.begin = false;
        watch->ask.after = page->seq;
        watch->ask.log_at = page->log_at;
        watch->ask.told_state = page->told_state;
        if (page->is_last)
            finish(watch, BERTH_OK, NULL);
        else
            ask_on(watch);
        watch->page = operation_page_unref(page);
    }
}

static void on_page(struct operation_ask *ask, struct operation_page *page,
                    enum berth_code code, const struct berth_error *err)
{
    struct watch *watch = (struct watch *)((char *)ask - offsetof(struct watch, ask));
    struct berth_error why;

    watch->asking = false;
    if (!code && watch->stream && !watch->finished && ask->begin) {
        code = operation_check_reach(berth_stream_call(watch->stream), &page->operation, &why);
        err = &why;
    }
    if (code) {
        finish(watch, code, err);
    } else if (watch->stream && !watch->finished) {
        page->refs++;
        watch->page = page;
        watch->at = 0;
        send_on(watch);
    }
    free_if_over(watch);
}

/* The end of all watches once the server stops. */
static void tick(void *arg)
{
    struct skills_watches *watches = arg;
    struct berth_error err;

    watches->timer = berth_loop_timer(watches->skills->runtime->loop, TICK_MS, tick, watches);
    if (!berth_server_stopping(watches->skills->runtime->server))
        return;
    for (struct watch *watch = watches->first; watch; watch = watch->next)
        finish(watch, berth_fail(&err, BERTH_REASON_DRAINING, NULL), &err);
}

/* ---------------------------------------------------------------------- beginning */

static enum berth_code check_request(struct watch *watch, struct berth_error *err)
{
    const WatchOperationRequest *req = watch->request;
    unsigned of_tenant = 0;
    enum berth_code code = berth_check_id("tenant_id", req->tenant_id, err);

    if (!code)
        code = berth_check_id("operation_id", req->operation_id, err);
    if (!code && req->after_seq >= INT64_MAX)
        code = berth_fail_field(err, "after_seq", "must be below 2^63 - 1");
    if (code)
        return code;
    for (const struct watch *other = watch->watches->first; other; other = other->next)
        if (other != watch && other->request && !other->finished &&
            strcmp(other->request->tenant_id, req->tenant_id) == 0)
            of_tenant++;
    if (of_tenant >= WATCHES_OF_TENANT)
        return berth_fail(err, BERTH_REASON_OVERLOADED,
                          "tenant '%s' watches operations %u times here, which is the most",
                          req->tenant_id, of_tenant);
    watch->ask = (struct operation_ask){.tenant = req->tenant_id,
                                        .operation_id = req->operation_id,
                                        .after = req->after_seq,
                                        .begin = true,
                                        .done = on_page};
    return BERTH_OK;
}

static void entered(void *arg)
{
    struct watch *watch = arg;

    watch->entering = false;
    if (watch->code)
        finish(watch, watch->code, &watch->err);
    else if (watch->stream && !watch->finished)
        ask_on(watch);
    free_if_over(watch);
}

static void enter(void *arg)
{
    struct watch *watch = arg;
    struct skills *skills = watch->watches->skills;

    watch->code = skills_enter(skills, &watch->err);
    berth_loop_post(skills->runtime->loop, entered, watch);
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
    code = berth_buf_decode(&berth__skills__v1__watch_operation_request__descriptor, msg,
                            &message, &err);
    berth_buf_unref(msg);
    if (!code) {
        watch->request = (WatchOperationRequest *)message;
        code = check_request(watch, &err);
    }
    if (!code) {
        /* From here to entered() the worker owns code and err. */
        watch->entering = true;
        code = berth_pool_submit(watch->watches->skills->runtime->pool, enter, watch, &err);
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
    if (watch->asking && operation_feed_take_back(watch->watches->feed, &watch->ask))
        watch->asking = false;
    free_if_over(watch);
}

static const struct berth_stream_ops ops = {
    .message = on_request,
    .written = on_written,
    .closed = on_closed,
    .cancelled = on_cancelled,
};

static enum berth_code watch_operation(void *service, struct berth_stream *stream,
                                       const struct berth_stream_ops **ret_ops, void **ret_ctx,
                                       struct berth_error *err)
{
    struct skills *skills = service;
    struct skills_watches *watches = skills->watches;
    struct watch *watch;

    if (watches->n >= WATCHES_MAX)
        return berth_fail(err, BERTH_REASON_OVERLOADED,
                          "%d callers watch operations, which is the most", WATCHES_MAX);
    watch = calloc(1, sizeof *watch);
    if (!watch)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (!watches->timer)
        watches->timer = berth_loop_timer(skills->runtime->loop, TICK_MS, tick, watches);
    *watch = (struct watch){
        .watches = watches, .next = watches->first, .slot = &watches->first, .stream = stream};
    if (watch->next)
        watch->next->slot = &watch->next;
    watches->first = watch;
    watches->n++;
    *ret_ops = &ops;
    *ret_ctx = watch;
    berth_stream_read(stream);
    return BERTH_OK;
}

/* ------------------------------------------------------------------------- life */

enum berth_code skills_watches_new(struct skills *skills, struct skills_watches **ret,
                                   struct berth_error *err)
{
    struct skills_watches *watches = calloc(1, sizeof *watches);

    if (watches) {
        watches->skills = skills;
        watches->feed = operation_feed_new(skills);
    }
    if (!watches || !watches->feed) {
        free(watches);
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    *ret = watches;
    return BERTH_OK;
}

struct skills_watches *skills_watches_free(struct skills_watches *watches)
{
    if (!watches)
        return NULL;
    operation_feed_free(watches->feed);
    free(watches);
    return NULL;
}

const struct berth_method skills_watch_methods[] = {
    {"/berth.skills.v1.SkillService/WatchOperation",
     &berth__skills__v1__watch_operation_request__descriptor, .open = watch_operation},
};
const size_t skills_n_watch_methods = BERTH_COUNT(skills_watch_methods);
