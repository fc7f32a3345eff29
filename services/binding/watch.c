#include "services/binding/watch.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>

#include "common/log/log.h"
#include "common/records/keys.h"
#include "common/time/time.h"

enum { JUMP_MS = 5000 };

struct binding_watch {
    struct berth_redis *redis;
    char *deployment;
    int64_t quarantine_ms, unsure_ms;

    pthread_mutex_t mutex; /* guards all below */
    bool clock_known;
    int64_t clock_offset; /* Redis' time less our tick */
    int64_t quarantine_until_tick, unsure_until_tick;
    bool lost; /* another server was seen */
    int64_t lost_tick;
    uint64_t servers; /* so far, when we last looked; 0: none yet */
    uint64_t met;     /* the same, when we last asked whom binding knew */
};

enum berth_code binding_watch_new(struct berth_redis *redis, const char *deployment,
                                  int64_t quarantine_ms, int64_t unsure_ms,
                                  struct binding_watch **ret, struct berth_error *err)
{
    BERTH_AUTO(binding_watch_free) struct binding_watch *watch = calloc(1, sizeof *watch);

    if (!watch)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    pthread_mutex_init(&watch->mutex, NULL);
    watch->redis = redis;
    watch->quarantine_ms = quarantine_ms;
    watch->unsure_ms = unsure_ms;
    watch->deployment = strdup(deployment);
    if (!watch->deployment)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    *ret = BERTH_STEAL(watch);
    return BERTH_OK;
}

struct binding_watch *binding_watch_free(struct binding_watch *watch)
{
    if (!watch)
        return NULL;
    pthread_mutex_destroy(&watch->mutex);
    free(watch->deployment);
    free(watch);
    return NULL;
}

/* Called with the mutex held. */
static void begin_quarantine(struct binding_watch *watch)
{
    watch->quarantine_until_tick = berth_tick_ms() + watch->quarantine_ms;
    watch->unsure_until_tick = berth_tick_ms() + watch->unsure_ms;
}

void binding_watch_clock(struct binding_watch *watch, int64_t now_ms, int64_t before_tick,
                         int64_t after_tick)
{
    int64_t low = now_ms - after_tick, high = now_ms - before_tick;
    int64_t jump = 0;

    pthread_mutex_lock(&watch->mutex);
    if (watch->clock_known && watch->clock_offset < low - JUMP_MS)
        jump = low - watch->clock_offset;
    if (watch->clock_known && watch->clock_offset > high + JUMP_MS)
        jump = high - watch->clock_offset;
    /* Drift is followed; so is a jump, once it has been acted on. */
    if (!watch->clock_known || watch->clock_offset < low)
        watch->clock_offset = low;
    else if (watch->clock_offset > high)
        watch->clock_offset = high;
    watch->clock_known = true;
    if (jump)
        begin_quarantine(watch);
    pthread_mutex_unlock(&watch->mutex);
    if (jump)
        berth_warn("the store's clock jumped, creating nothing for a while", "jump_ms",
                   BERTH_I64(jump));
}

/* A plain command that reads: whatever kept it from being answered, the store is away. */
static enum berth_code ask(struct binding_watch *watch, size_t argc, const char *const *argv,
                           struct berth_reply **ret, struct berth_error *err)
{
    struct berth_error why = {0};

    if (berth_redis_call(watch->redis, argc, argv, NULL, ret, &why))
        return berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE, "%s", why.text);
    return BERTH_OK;
}

/* Each connection has asked its server who it is; here it only has to be counted. Called with
 * the mutex held. */
static bool look_at_server(struct binding_watch *watch)
{
    uint64_t servers = berth_redis_servers(watch->redis);
    bool changed = servers > 1 && servers != watch->servers;

    watch->servers = servers;
    if (changed) {
        begin_quarantine(watch);
        watch->lost = true;
        watch->lost_tick = berth_tick_ms();
    }
    return changed;
}

/* Since when it is master by a failover; 0: it is not, or nobody knows; -1: not to be had now.
 * Nothing is left in a store that is not ours yet: it may be found empty, and recovered. */
static int64_t master_since(struct binding_watch *watch, int64_t now_ms)
{
    static const char *const get[] = {"MGET", BERTH_KEY_SERVER, BERTH_KEY_DEPLOYMENT};
    BERTH_AUTO(berth_reply_free) struct berth_reply *stored = NULL, *done = NULL;
    char run_id[BERTH_REDIS_RUN_ID_SIZE], text[BERTH_REDIS_RUN_ID_SIZE + 24];
    const char *const set[] = {"SET", BERTH_KEY_SERVER, text};
    bool promoted = berth_redis_server(watch->redis, run_id), known;
    const struct berth_reply *mark;
    int64_t since;

    if (ask(watch, 3, get, &stored, NULL) || stored->n_items != 2 ||
        stored->items[1]->type != BERTH_REPLY_STRING ||
        strcmp(stored->items[1]->string, watch->deployment) != 0)
        return -1;
    mark = stored->items[0];
    known = mark->type == BERTH_REPLY_STRING && mark->size > sizeof run_id;
    if (known && strncmp(mark->string, run_id, sizeof run_id - 1) == 0)
        return strtoll(mark->string + sizeof run_id, NULL, 10);
    since = known && promoted ? now_ms : 0;
    snprintf(text, sizeof text, "%s %" PRId64, run_id, since);
    return ask(watch, 3, set, &done, NULL) ? -1 : since;
}

static void later(int64_t *until_tick, int64_t tick)
{
    if (tick > *until_tick)
        *until_tick = tick;
}

void binding_watch_meet(struct binding_watch *watch, int64_t now_ms)
{
    uint64_t servers = berth_redis_servers(watch->redis);
    int64_t since, tick;
    bool met;

    pthread_mutex_lock(&watch->mutex);
    met = watch->met == servers;
    pthread_mutex_unlock(&watch->mutex);
    if (met)
        return;
    since = master_since(watch, now_ms);
    if (since > now_ms) /* the clock was set back */
        since = now_ms;
    tick = berth_tick_ms() + since - now_ms;
    pthread_mutex_lock(&watch->mutex);
    if (since >= 0)
        watch->met = servers;
    if (since > 0) {
        later(&watch->quarantine_until_tick, tick + watch->quarantine_ms);
        later(&watch->unsure_until_tick, tick + watch->unsure_ms);
        watch->lost_tick = watch->lost && watch->lost_tick > tick ? watch->lost_tick : tick;
        watch->lost = true;
    }
    pthread_mutex_unlock(&watch->mutex);
}

enum berth_code binding_watch_whole(struct binding_watch *watch, struct berth_error *err)
{
    static const char *const argv[] = {"GET", BERTH_KEY_EPOCH};
    BERTH_AUTO(berth_reply_free) struct berth_reply *reply = NULL;
    enum berth_code code = ask(watch, 2, argv, &reply, err);

    if (code)
        return code;
    if (reply->type != BERTH_REPLY_STRING)
        return berth_fail(err, BERTH_REASON_INDEX_RECOVERING, NULL);
    return BERTH_OK;
}

uint64_t binding_watch_servers(struct binding_watch *watch)
{
    uint64_t servers;

    pthread_mutex_lock(&watch->mutex);
    servers = watch->servers;
    pthread_mutex_unlock(&watch->mutex);
    return servers;
}

bool binding_watch_quarantined(struct binding_watch *watch)
{
    int64_t until;
    bool changed;

    pthread_mutex_lock(&watch->mutex);
    changed = look_at_server(watch);
    until = watch->quarantine_until_tick;
    pthread_mutex_unlock(&watch->mutex);
    if (changed)
        berth_warn("the store is another server than before, creating nothing for a while");
    return until && berth_tick_ms() < until;
}

bool binding_watch_unsure(struct binding_watch *watch)
{
    int64_t until;

    pthread_mutex_lock(&watch->mutex);
    until = watch->unsure_until_tick;
    pthread_mutex_unlock(&watch->mutex);
    return until && berth_tick_ms() < until;
}

int64_t binding_watch_lost(struct binding_watch *watch, int64_t now_ms)
{
    int64_t lost_ms = 0;

    pthread_mutex_lock(&watch->mutex);
    if (watch->lost)
        lost_ms = now_ms - (berth_tick_ms() - watch->lost_tick);
    pthread_mutex_unlock(&watch->mutex);
    return lost_ms;
}

enum berth_code binding_watch_ready(struct binding_watch *watch, bool *ret_wrong,
                                    struct berth_error *err)
{
    static const char *const argv[] = {"GET", BERTH_KEY_DEPLOYMENT};
    BERTH_AUTO(berth_reply_free) struct berth_reply *reply = NULL;
    enum berth_code code;

    if (ret_wrong)
        *ret_wrong = false;
    code = ask(watch, 2, argv, &reply, err);
    if (code)
        return code;
    (void)binding_watch_quarantined(watch);
    if (reply->type != BERTH_REPLY_STRING)
        return berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE,
                          "the store was never initialised (no " BERTH_KEY_DEPLOYMENT ")");
    if (strcmp(reply->string, watch->deployment) != 0) {
        if (ret_wrong)
            *ret_wrong = true;
        return berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE,
                          "the store is deployment '%s', not '%s'", reply->string,
                          watch->deployment);
    }
    return BERTH_OK;
}
