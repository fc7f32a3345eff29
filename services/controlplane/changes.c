#include "services/controlplane/changes.h"

#include <stdio.h>

#include "berth/control/v1/control.pb-c.h"
#include "common/loop/loop.h"
#include "common/messages/messages.h"

typedef Berth__Control__V1__WatchChangesResponse WatchChangesResponse;

enum { QUEUE_MAX = 32, WATCHERS_MAX = 1024 };

/* Somebody who is told. Of the loop thread, all of it. */
struct watcher {
    struct watcher *prev, *next;
    struct cp_changes *changes;
    struct berth_stream *stream;
    struct berth_change queue[QUEUE_MAX];
    unsigned n_queued;
    bool asked; /* its request has come */
};

struct cp_changes {
    atomic_uint refs; /* the control plane's, one per watcher, one per word on its way */
    struct cp *cp;    /* not on the loop thread */
    struct berth_loop *loop;
    struct berth_changes *heard;
    struct watcher *watchers; /* the loop thread's, like what follows */
    unsigned n_watchers;
};

static struct cp_changes *changes_ref(struct cp_changes *changes)
{
    atomic_fetch_add_explicit(&changes->refs, 1, memory_order_relaxed);
    return changes;
}

static void changes_unref(struct cp_changes *changes)
{
    if (atomic_fetch_sub_explicit(&changes->refs, 1, memory_order_acq_rel) == 1)
        free(changes);
}

/* --------------------------------------------------------------------- watchers */

static void tell_next(struct watcher *watcher)
{
    WatchChangesResponse out = BERTH__CONTROL__V1__WATCH_CHANGES_RESPONSE__INIT;
    struct berth_change *change = &watcher->queue[0];
    struct berth_buf *packed;

    if (!watcher->asked || watcher->n_queued == 0 || !berth_stream_can_write(watcher->stream))
        return;
    /* In the proto's order, after "unspecified". */
    out.kind = (Berth__Control__V1__ChangeKind)(change->kind + 1);
    out.tenant_id = change->tenant_id;
    out.id = change->id;
    packed = berth_buf_pack(&out.base);
    if (!packed) {
        berth_stream_cancel(watcher->stream);
        return;
    }
    (void)berth_stream_write(watcher->stream, packed);
    memmove(watcher->queue, watcher->queue + 1, --watcher->n_queued * sizeof *watcher->queue);
}

/* Who does not keep up is told that anything may have changed. */
static void queue(struct watcher *watcher, const struct berth_change *change)
{
    if (watcher->n_queued == QUEUE_MAX) {
        watcher->n_queued = 1;
        watcher->queue[0] = (struct berth_change){.kind = BERTH_CHANGE_ALL};
    } else {
        watcher->queue[watcher->n_queued++] = *change;
    }
    tell_next(watcher);
}

static void on_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    static const struct berth_change all = {.kind = BERTH_CHANGE_ALL};
    struct watcher *watcher = ctx;
    struct berth_error err = {0};

    if (!msg) {
        berth_stream_finish(stream, berth_fail_field(&err, "request", "a message must be sent"),
                            &err);
        return;
    }
    berth_buf_unref(msg); /* it has no fields */
    watcher->asked = true;
    watcher->n_queued = 0;
    queue(watcher, &all);
}

static void on_written(void *ctx, struct berth_stream *stream)
{
    (void)stream;
    tell_next(ctx);
}

static void on_closed(void *ctx, struct berth_stream *stream, const struct berth_status *status)
{
    struct watcher *watcher = ctx;
    struct cp_changes *changes = watcher->changes;

    (void)stream;
    (void)status;
    if (watcher->prev)
        watcher->prev->next = watcher->next;
    else
        changes->watchers = watcher->next;
    if (watcher->next)
        watcher->next->prev = watcher->prev;
    changes->n_watchers--;
    free(watcher);
    changes_unref(changes);
}

static void on_cancelled(void *ctx, struct berth_stream *stream)
{
    struct berth_error err = {0};

    (void)ctx;
    berth_stream_finish(stream, berth_fail(&err, BERTH_REASON_CANCELLED, NULL), &err);
}

static enum berth_code watch_changes(void *service, struct berth_stream *stream,
                                     const struct berth_stream_ops **ret_ops, void **ret_ctx,
                                     struct berth_error *err)
{
    static const struct berth_stream_ops ops = {.message = on_message,
                                                .written = on_written,
                                                .closed = on_closed,
                                                .cancelled = on_cancelled};
    struct cp_changes *changes = ((struct cp *)service)->changes;
    struct watcher *watcher;

    if (changes->n_watchers >= WATCHERS_MAX)
        return berth_fail(err, BERTH_REASON_OVERLOADED, "over %d watch for changes",
                          WATCHERS_MAX);
    watcher = calloc(1, sizeof *watcher);
    if (!watcher)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    watcher->changes = changes_ref(changes);
    watcher->stream = stream;
    watcher->next = changes->watchers;
    if (watcher->next)
        watcher->next->prev = watcher;
    changes->watchers = watcher;
    changes->n_watchers++;
    *ret_ops = &ops;
    *ret_ctx = watcher;
    berth_stream_read(stream);
    return BERTH_OK;
}

/* We end: nobody is kept waiting for us. */
static void drain(void *arg)
{
    struct cp_changes *changes = arg;
    struct berth_error err = {0};
    enum berth_code code = berth_fail(&err, BERTH_REASON_DRAINING, NULL);

    for (struct watcher *watcher = changes->watchers; watcher; watcher = watcher->next)
        berth_stream_finish(watcher->stream, code, &err);
}

/* ------------------------------------------------------------------------- word */

struct word {
    struct cp_changes *changes;
    struct berth_change change;
};

static void pass_on(void *arg)
{
    struct word *word = arg;

    for (struct watcher *watcher = word->changes->watchers; watcher; watcher = watcher->next)
        if (watcher->asked)
            queue(watcher, &word->change);
    changes_unref(word->changes);
    free(word);
}

static void take(void *arg, const struct berth_change *change)
{
    struct cp_changes *changes = arg;
    struct cp *cp = changes->cp;
    struct word *word = malloc(sizeof *word);

    switch (change->kind) {
    case BERTH_CHANGE_ALL:
        cp_cache_forget_all(cp->cache);
        berth_auth_forget_tenant(cp->auth, NULL);
        break;
    case BERTH_CHANGE_TENANT:
        cp_cache_forget(cp->cache, change->tenant_id, NULL);
        berth_auth_forget_tenant(cp->auth, change->tenant_id);
        break;
    case BERTH_CHANGE_CONFIG:
        cp_cache_forget(cp->cache, change->tenant_id, change->id);
        break;
    case BERTH_CHANGE_TOKEN:
        berth_auth_forget(cp->auth, change->id);
        break;
    }
    if (!word)
        return; /* a hint: it counts within 5 s */
    *word = (struct word){.changes = changes_ref(changes), .change = *change};
    berth_loop_post(changes->loop, pass_on, word);
}

void cp_changed(struct cp *cp, enum berth_change_kind kind, const char *tenant, const char *id)
{
    struct berth_change change = {.kind = kind};

    snprintf(change.tenant_id, sizeof change.tenant_id, "%s", tenant);
    snprintf(change.id, sizeof change.id, "%s", id ? id : "");
    take(cp->changes, &change);
    berth_change_tell(cp->redis, &change);
}

/* ------------------------------------------------------------------------- life */

enum berth_code cp_changes_new(struct cp *cp, int64_t listen_ms, struct cp_changes **ret,
                               struct berth_error *err)
{
    struct cp_changes *changes = calloc(1, sizeof *changes);
    enum berth_code code = BERTH_OK;

    if (!changes)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    atomic_init(&changes->refs, 1);
    changes->cp = cp;
    changes->loop = cp->runtime->loop;
    if (listen_ms > 0)
        code = berth_changes_new(cp->redis, listen_ms, take, changes, &changes->heard, err);
    if (code) {
        free(changes);
        return code;
    }
    berth_server_on_drain(cp->runtime->server, drain, changes);
    *ret = changes;
    return BERTH_OK;
}

struct cp_changes *cp_changes_free(struct cp_changes *changes)
{
    if (!changes)
        return NULL;
    berth_changes_free(changes->heard);
    changes_unref(changes);
    return NULL;
}

const struct berth_method cp_changes_methods[] = {
    {"/berth.control.v1.InternalService/WatchChanges",
     &berth__control__v1__watch_changes_request__descriptor, .open = watch_changes,
     .flags = BERTH_METHOD_PEER_ONLY},
};
const size_t cp_n_changes_methods = BERTH_COUNT(cp_changes_methods);
