/* reaper - reconciles what exists against what is owned, and puts to rest what nobody uses.
 *
 * Called by: operators (ReaperService); it works by itself.
 * Calls:     controlplane (targets; whatever needs a session's lock), binding (who owns what),
 *            adapters (what exists), Redis (the lease of the one that leads).
 * Files:     verdict.c is the rule; sweep_list.c, sweep_own.c and sweep_act.c read, compare and
 *            do, sweep.c is the whole; seen.c counts grace, leader.c the lease; usage.c what is
 *            used; history.c what was done. */
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "common/ids/ids.h"
#include "common/log/log.h"
#include "common/records/deployment.h"
#include "common/redis/settings.h"
#include "services/reaper/history.h"
#include "services/reaper/sweep.h"
#include "services/reaper/usage.h"

enum { MINUTE_MS = 60 * 1000, DAY_MS = 24 * 60 * MINUTE_MS };

struct settings {
    struct berth_redis_settings redis;
    char *controlplane, *binding;
    struct berth_adapter_settings adapters;
    int64_t interval, grace, duplicate_grace, lease, act_timeout;
    int64_t budget;
};

#define KEY(field, type, value, doc)                                                           \
    {                                                                                          \
#field, BERTH_CONFIG_##type, offsetof(struct settings, field), value, doc              \
    }

static const struct berth_config_key keys[] = {
    BERTH_REDIS_KEYS(struct settings, redis, "4"),
    KEY(controlplane, STR, "", "target of controlplane; empty: its socket in run_dir"),
    KEY(binding, STR, "", "target of binding; empty: its socket in run_dir"),
    BERTH_ADAPTER_KEYS(struct settings, adapters),
    KEY(interval, MS, "60s", "between sweeps, give or take a tenth"),
    KEY(grace, MS, "10m", "age, and time seen unowned, before anything is done to a sandbox"),
    KEY(duplicate_grace, MS, "24h", "time a second sandbox of a session is kept"),
    KEY(budget, INT, "500", "acts of one sweep, at most"),
    KEY(lease, MS, "15s", "of the one replica that sweeps"),
    KEY(act_timeout, MS, "15s", "of one act; what was begun goes on"),
};
#undef KEY

static const char *const services[] = {"berth.reaper.v1.ReaperService"};

bool reaper_is_stopping(struct reaper *reaper)
{
    bool stopping;

    pthread_mutex_lock(&reaper->mutex);
    stopping = reaper->stopping;
    pthread_mutex_unlock(&reaper->mutex);
    return stopping;
}

/* ------------------------------------------------------------------- by itself */

static void sweep_by_itself(struct reaper *reaper)
{
    const struct sweep_request request = {
        .tenant_id = "", .config_id = "", .budget = reaper->budget};
    Berth__Reaper__V1__SweepItem **items = NULL;
    Berth__Reaper__V1__Sweep *told = NULL;
    struct berth_error err = {0};
    size_t n_items = 0;

    if (!reaper_leader_term(reaper->leader))
        return;
    if (reaper_sweep(reaper, &request, &told, &items, &n_items, &err))
        berth_warn("no sweep, trying again", "error", err.text);
    else
        reaper_history_add(reaper->history, told, items, n_items);
}

/* Give or take a tenth, so that replicas and deployments do not go in step. */
static int64_t jittered(int64_t interval_ms)
{
    uint16_t random;

    berth_random(&random, sizeof random);
    return interval_ms - interval_ms / 10 + interval_ms * random / (5 * 65536LL);
}

static void *run(void *arg)
{
    struct reaper *reaper = arg;

    pthread_mutex_lock(&reaper->mutex);
    while (!reaper->stopping) {
        int64_t wait_ms = jittered(reaper->interval_ms);
        struct timespec until;
        int status = 0;

        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += wait_ms / 1000;
        until.tv_nsec += wait_ms % 1000 * 1000000;
        if (until.tv_nsec >= 1000000000) {
            until.tv_sec++;
            until.tv_nsec -= 1000000000;
        }
        while (!reaper->stopping && status == 0)
            status = pthread_cond_timedwait(&reaper->wake, &reaper->mutex, &until);
        if (reaper->stopping)
            break;
        pthread_mutex_unlock(&reaper->mutex);
        sweep_by_itself(reaper);
        pthread_mutex_lock(&reaper->mutex);
    }
    pthread_mutex_unlock(&reaper->mutex);
    return NULL;
}

/* ------------------------------------------------------------------------- life */

static void reaper_free(struct reaper *reaper)
{
    if (!reaper)
        return;
    pthread_mutex_lock(&reaper->mutex);
    reaper->stopping = true;
    pthread_cond_signal(&reaper->wake);
    pthread_mutex_unlock(&reaper->mutex);
    if (reaper->started)
        pthread_join(reaper->thread, NULL);
    reaper_leader_free(reaper->leader);
    reaper_history_free(reaper->history);
    reaper_usage_free(reaper->usage);
    reaper_seen_free(reaper->seen);
    berth_channel_free(reaper->controlplane);
    berth_channel_free(reaper->binding);
    berth_adapters_close(&reaper->adapters);
    berth_redis_free(reaper->redis);
    pthread_cond_destroy(&reaper->wake);
    pthread_mutex_destroy(&reaper->mutex);
    pthread_mutex_destroy(&reaper->counting);
    pthread_mutex_destroy(&reaper->sweeping);
    free(reaper);
}
BERTH_DEFINE_AUTO(struct reaper *, reaper_free)

static struct reaper *reaper_new(void)
{
    struct reaper *reaper = calloc(1, sizeof *reaper);
    pthread_condattr_t attr;

    if (!reaper)
        return NULL;
    pthread_mutex_init(&reaper->sweeping, NULL);
    pthread_mutex_init(&reaper->counting, NULL);
    pthread_mutex_init(&reaper->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&reaper->wake, &attr);
    pthread_condattr_destroy(&attr);
    reaper->seen = reaper_seen_new(REAPER_SEEN_MAX);
    reaper->usage = reaper_usage_new();
    reaper->history = reaper_history_new();
    if (reaper->seen && reaper->usage && reaper->history)
        return reaper;
    reaper_free(reaper);
    return NULL;
}

static enum berth_code check(const struct settings *c, struct berth_error *err)
{
    if (c->interval < 50 || c->interval > DAY_MS)
        return berth_fail_field(err, "interval", "must be 50 ms to 24 h");
    if (c->grace < 100 || c->grace > 30LL * DAY_MS)
        return berth_fail_field(err, "grace", "must be 100 ms to 30 days");
    if (c->budget < 1 || c->budget > 100000)
        return berth_fail_field(err, "budget", "must be 1 to 100000");
    if (c->lease < 600 || c->lease > 10 * MINUTE_MS)
        return berth_fail_field(err, "lease", "must be 600 ms to 10 min");
    if (c->act_timeout < 100 || c->act_timeout > 60 * MINUTE_MS)
        return berth_fail_field(err, "act_timeout", "must be 100 ms to 1 h");
    return BERTH_OK;
}

static enum berth_code open_peers(struct reaper *reaper, const struct settings *c,
                                  struct berth_error *err)
{
    enum berth_code code = berth_peer_channel(reaper->runtime, "controlplane", c->controlplane,
                                              NULL, &reaper->controlplane, err);

    if (!code)
        code = berth_peer_channel(reaper->runtime, "binding", c->binding, NULL,
                                  &reaper->binding, err);
    if (!code)
        code = berth_adapters_open(reaper->runtime, &c->adapters, 0, &reaper->adapters, err);
    return code;
}

/* Another's store stops the start; one that is away does not. */
static enum berth_code check_store(struct reaper *reaper, struct berth_error *err)
{
    struct berth_error why = {0};
    enum berth_code code =
        berth_deployment_check(reaper->redis, reaper->runtime->deployment, &why);

    if (code == BERTH_INVALID_ARGUMENT) {
        if (err)
            *err = why;
        return code;
    }
    atomic_store(&reaper->store_checked, code == BERTH_OK);
    if (code)
        berth_warn("the store cannot be reached, serving all the same and trying again",
                   "error", why.text);
    return BERTH_OK;
}

/* "<host>/<pid>-<random>". */
static void make_name(char buf[65])
{
    char host[33] = "", random[9];

    (void)gethostname(host, sizeof host - 1);
    snprintf(buf, 65, "%s/%d-%s", host, (int)getpid(), berth_id_hex(random, 4));
}

static enum berth_code start(const void *config, const struct berth_runtime *runtime,
                             void **ret_service, struct berth_error *err)
{
    const struct settings *c = config;
    BERTH_AUTO(reaper_free) struct reaper *reaper = reaper_new();
    char name[65];
    enum berth_code code;

    if (!reaper)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    reaper->runtime = runtime;
    reaper->limits =
        (struct reaper_limits){.grace_ms = c->grace, .duplicate_grace_ms = c->duplicate_grace};
    reaper->interval_ms = c->interval;
    reaper->act_timeout_ms = c->act_timeout;
    reaper->budget = (uint32_t)c->budget;
    make_name(name);
    code = check(c, err);
    if (!code)
        code = berth_redis_open(&c->redis, &reaper->redis, err);
    if (!code)
        code = open_peers(reaper, c, err);
    if (!code)
        code = check_store(reaper, err);
    if (!code)
        code = reaper_leader_new(reaper->redis, runtime->deployment, name, c->lease,
                                 &reaper->leader, err);
    if (code)
        return code;
    reaper->started = pthread_create(&reaper->thread, NULL, run, reaper) == 0;
    if (!reaper->started)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, "no thread for the sweeps");
    *ret_service = BERTH_STEAL(reaper);
    return BERTH_OK;
}

static void stop(void *service)
{
    reaper_free(service);
}

static char *metrics(void *service)
{
    return reaper_metrics(service);
}

static enum berth_code ready(void *service, struct berth_error *err)
{
    struct reaper *reaper = service;
    enum berth_code code = reaper_enter(reaper, err);

    if (!code)
        code = berth_epoch_check(reaper->redis, err);
    if (!code && !berth_channel_ready(reaper->controlplane, 500))
        code = berth_fail(err, BERTH_REASON_PEER_UNAVAILABLE, "controlplane cannot be reached");
    if (!code && !berth_channel_ready(reaper->binding, 500))
        code = berth_fail(err, BERTH_REASON_PEER_UNAVAILABLE, "binding cannot be reached");
    return code;
}

int main(int argc, char **argv)
{
    const struct berth_service service = {
        .name = "reaper",
        .doc = "Reconciles what exists against what is owned; rests and reclaims what is idle.",
        .port = 7404,
        .internal = true,
        .keys = keys,
        .n_keys = BERTH_COUNT(keys),
        .config_size = sizeof(struct settings),
        .methods = reaper_methods,
        .n_methods = reaper_n_methods,
        .services = services,
        .n_services = BERTH_COUNT(services),
        .start = start,
        .ready = ready,
        .metrics = metrics,
        .stop = stop,
    };

    return berth_service_main(&service, argc, argv);
}
