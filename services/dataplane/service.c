/* service.c - the data plane as a whole: start, the sweep once a second, figures, the end. */
#include "services/dataplane/dataplane.h"

#include <pthread.h>
#include <stdio.h>

#include "common/time/time.h"
#include "services/dataplane/blobs.h"

enum {
    SWEEP_MIN_MS = 10,
    SWEEP_MAX_MS = 1000,
    DRAIN_MS = 1000,
    BLOB_SWEEP_EVERY_MS = 10 * 60 * 1000
};

enum berth_code dataplane_new(const struct dataplane_options *options,
                              struct dp_peer *controlplane, struct dataplane **ret,
                              struct berth_error *err)
{
    struct dataplane *dp = calloc(1, sizeof *dp);

    if (!dp)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    dp->options = *options;
    dp->controlplane = controlplane;
    dp->due_end = &dp->due;
    *ret = dp;
    return BERTH_OK;
}

enum berth_code dataplane_add_backend(struct dataplane *dp, const char *name,
                                      struct dp_peer *adapter, struct berth_error *err)
{
    struct dp_backend *backend = &dp->backends[dp->n_backends];

    if (dp->n_backends == DP_BACKENDS_MAX || strlen(name) >= sizeof backend->name) {
        dp_peer_free(adapter);
        return berth_fail_field(err, "backends", "at most %d, names of at most %d characters",
                                DP_BACKENDS_MAX, DP_BACKEND_NAME_MAX - 1);
    }
    snprintf(backend->name, sizeof backend->name, "%s", name);
    backend->adapter = adapter;
    dp->n_backends++;
    return BERTH_OK;
}

/* ------------------------------------------------------------------ sweep */

/* Often enough for the shortest of the times that are looked after. */
static int64_t sweep_every_ms(const struct dataplane *dp)
{
    int64_t every_ms = dp->options.use_after_ms;

    if (every_ms > dp->options.use_renew_ms)
        every_ms = dp->options.use_renew_ms;
    if (every_ms > dp->options.stall_ms)
        every_ms = dp->options.stall_ms;
    every_ms /= 4;
    if (every_ms < SWEEP_MIN_MS)
        return SWEEP_MIN_MS;
    return every_ms > SWEEP_MAX_MS ? SWEEP_MAX_MS : every_ms;
}

static void sweep(void *arg)
{
    struct dataplane *dp = arg;
    int64_t tick_ms = berth_tick_ms();

    dp->sweep = NULL;
    dp_streams_sweep(dp, tick_ms);
    dp_uses_sweep(dp, tick_ms);
    dp_lingers_sweep(dp, tick_ms);
    dp_sweep_arm(dp);
}

void dp_sweep_arm(struct dataplane *dp)
{
    if (!dp->sweep && !dp->drained && (dp->streams || dp->uses || dp->lingers))
        dp->sweep = berth_loop_timer(dp->options.loop, sweep_every_ms(dp), sweep, dp);
}

/* ------------------------------------------------------------- the blob store */

static void sweep_blobs(void *arg);

static void blobs_swept(void *arg)
{
    struct dataplane *dp = arg;

    dp->n_moves--;
    if (!dp->drained)
        dp->blob_sweep =
            berth_loop_timer(dp->options.loop, BLOB_SWEEP_EVERY_MS, sweep_blobs, dp);
    dp_check_drained(dp);
}

static void work_sweep(void *arg)
{
    struct dataplane *dp = arg;
    unsigned n = blobs_sweep(dp->blobs);

    atomic_fetch_add_explicit(&dp->counters.blobs_swept, n, memory_order_relaxed);
    berth_loop_post(dp->options.loop, blobs_swept, dp);
}

static void sweep_blobs(void *arg)
{
    struct dataplane *dp = arg;

    dp->blob_sweep = NULL;
    dp->n_moves++;
    berth_pool_submit_must(dp->options.pool, work_sweep, dp);
}

static void begin_sweeping(void *arg)
{
    struct dataplane *dp = arg;

    if (!dp->drained)
        sweep_blobs(dp);
}

void dataplane_set_blobs(struct dataplane *dp, struct blobs *blobs)
{
    dp->blobs = blobs;
    berth_loop_post(dp->options.loop, begin_sweeping, dp);
}

/* -------------------------------------------------------------------- end */

struct drain {
    struct dataplane *dp;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool over;
    bool abandon; /* time is up */
};

void dp_check_drained(struct dataplane *dp)
{
    if (dp->drained && !dp->streams && !dp->uses && dp->n_unary == 0 && dp->n_moves == 0)
        dp->drained(dp->drained_arg);
}

static void drain_over(void *arg)
{
    struct drain *drain = arg;

    drain->dp->drained = NULL;
    pthread_mutex_lock(&drain->mutex);
    drain->over = true;
    pthread_cond_signal(&drain->cond);
    pthread_mutex_unlock(&drain->mutex);
}

static void drain_timeout(void *arg)
{
    struct dataplane *dp = arg;

    dp->sweep = NULL;
    dp_uses_abandon(dp);
}

static void drain_begin(void *arg)
{
    struct drain *drain = arg;
    struct dataplane *dp = drain->dp;

    dp_lingers_abandon(dp);
    berth_timer_cancel(dp->sweep);
    dp->blob_sweep = berth_timer_cancel(dp->blob_sweep);
    dp->drained_arg = drain;
    dp->drained = drain_over;
    dp->sweep = berth_loop_timer(dp->options.loop, DRAIN_MS, drain_timeout, dp);
    dp_check_drained(dp);
}

static void drain_end(void *arg)
{
    struct drain *drain = arg;

    drain->dp->sweep = berth_timer_cancel(drain->dp->sweep);
    drain_over(drain);
}

static void run_on_loop(struct drain *drain, berth_loop_fn fn)
{
    drain->over = false;
    berth_loop_post(drain->dp->options.loop, fn, drain);
    pthread_mutex_lock(&drain->mutex);
    while (!drain->over)
        pthread_cond_wait(&drain->cond, &drain->mutex);
    pthread_mutex_unlock(&drain->mutex);
}

struct dataplane *dataplane_free(struct dataplane *dp)
{
    struct drain drain = {
        .dp = dp, .mutex = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};

    if (!dp)
        return NULL;
    /* Where no call ever came the loop may not even run. */
    if (atomic_load(&dp->counters.streams_total) > 0 || dp->blobs) {
        run_on_loop(&drain, drain_begin);
        run_on_loop(&drain, drain_end);
    }
    pthread_mutex_destroy(&drain.mutex);
    pthread_cond_destroy(&drain.cond);
    for (size_t i = 0; i < dp->n_backends; i++)
        dp_peer_free(dp->backends[i].adapter);
    dp_peer_free(dp->controlplane);
    blobs_free(dp->blobs);
    free(dp);
    return NULL;
}

/* ---------------------------------------------------------------- figures */

static unsigned long long value_of(atomic_uint_fast64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

char *dataplane_metrics(struct dataplane *dp)
{
    struct dp_counters *c = &dp->counters;
    const struct {
        const char *name, *type, *help;
        unsigned long long value;
    } rows[] = {
        {"streams", "gauge", "Calls in progress.", value_of(&c->streams)},
        {"streams_total", "counter", "Calls begun.", value_of(&c->streams_total)},
        {"streams_refused_total", "counter", "Calls over max_streams.", value_of(&c->refused)},
        {"in_bytes_total", "counter", "Message bytes from callers.", value_of(&c->bytes_in)},
        {"out_bytes_total", "counter", "Message bytes to callers.", value_of(&c->bytes_out)},
        {"resolves_total", "counter", "Routes asked for.", value_of(&c->resolves)},
        {"resolve_failures_total", "counter", "Routes not got.",
         value_of(&c->resolve_failures)},
        {"retries_total", "counter", "Calls tried again elsewhere.", value_of(&c->retries)},
        {"uses_total", "counter", "Use tokens renewed or given back.", value_of(&c->uses)},
        {"use_failures_total", "counter", "RenewUse calls that failed.",
         value_of(&c->use_failures)},
        {"losses_told_total", "counter", "Answers that told what a session lost.",
         value_of(&c->losses_told)},
        {"workspaces_out_total", "counter", "Workspaces moved into the blob store.",
         value_of(&c->workspaces_out)},
        {"workspaces_in_total", "counter", "Workspaces moved out of the blob store.",
         value_of(&c->workspaces_in)},
        {"workspaces_failed_total", "counter", "Workspaces not moved.",
         value_of(&c->workspaces_failed)},
        {"blobs_swept_total", "counter", "Files that broken off moves left, or old ones.",
         value_of(&c->blobs_swept)},
        {"stalled_total", "counter", "Calls an adapter left unanswered.",
         value_of(&c->stalled)},
    };
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return NULL;
    for (size_t i = 0; i < BERTH_COUNT(rows); i++)
        fprintf(out, "# HELP berth_dataplane_%s %s\n# TYPE berth_dataplane_%s %s\n%s%s %llu\n",
                rows[i].name, rows[i].help, rows[i].name, rows[i].type, "berth_dataplane_",
                rows[i].name, rows[i].value);
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}
