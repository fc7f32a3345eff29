#include "services/controlplane/recover.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "common/log/log.h"
#include "common/messages/messages.h"
#include "common/records/deployment.h"
#include "common/records/keys.h"
#include "common/time/time.h"
#include "services/controlplane/config.h"
#include "services/controlplane/config_store.h"

enum {
    LOOK_MS = 1000,
    AGAIN_MS = 5000, /* a config that could not be listed */
    TRIES = 3,       /* before the others go on without it */
    LEASE_MS = 60000,
    SETTLE_MS =
        3000, /* from the loss on: by then every writer that runs has said that it takes part */
    PAGE_SIZE = 256,
};

#define LEADER_KEY "berth:recovery:leader"

struct cp_recover {
    struct cp *cp;
    pthread_t thread;
    pthread_mutex_t mutex; /* for all below */
    pthread_cond_t wake;
    bool stopping;

    /* Of the thread alone. */
    char waits_for[128]; /* as last logged */
    int64_t again_tick;
};

static enum berth_code call(struct cp *cp, struct berth_reply **ret, size_t argc,
                            const char *const *argv, struct berth_error *err)
{
    enum berth_code code = berth_redis_call(cp->redis, argc, argv, NULL, ret, err);

    if (code == BERTH_UNKNOWN)
        return berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE, NULL);
    return code;
}

/* False: the end. */
static bool wait_a_moment(struct cp_recover *recover)
{
    struct timespec until;
    bool go_on;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += LOOK_MS / 1000;
    pthread_mutex_lock(&recover->mutex);
    while (!recover->stopping &&
           pthread_cond_timedwait(&recover->wake, &recover->mutex, &until) == 0)
        ;
    go_on = !recover->stopping;
    pthread_mutex_unlock(&recover->mutex);
    return go_on;
}

/* ------------------------------------------------------------------------- lease */

/* One is enough. Two would do each other's work again and no harm: each adoption is under its
 * session's lock. */
static bool lead(struct cp *cp)
{
    char ms[16];
    const char *const take[] = {"SET", LEADER_KEY, cp->owner, "NX", "PX", ms};
    const char *const look[] = {"GET", LEADER_KEY};
    const char *const keep[] = {"PEXPIRE", LEADER_KEY, ms};
    BERTH_AUTO(berth_reply_free) struct berth_reply *taken = NULL;
    BERTH_AUTO(berth_reply_free) struct berth_reply *holder = NULL;
    BERTH_AUTO(berth_reply_free) struct berth_reply *kept = NULL;

    snprintf(ms, sizeof ms, "%d", LEASE_MS);
    if (call(cp, &taken, BERTH_COUNT(take), take, NULL))
        return false;
    if (taken->type == BERTH_REPLY_STRING)
        return true;
    return !call(cp, &holder, BERTH_COUNT(look), look, NULL) &&
           holder->type == BERTH_REPLY_STRING && strcmp(holder->string, cp->owner) == 0 &&
           !call(cp, &kept, BERTH_COUNT(keep), keep, NULL);
}

static void step_down(struct cp *cp)
{
    const char *const argv[] = {"DEL", LEADER_KEY};
    BERTH_AUTO(berth_reply_free) struct berth_reply *reply = NULL;

    (void)!call(cp, &reply, BERTH_COUNT(argv), argv, NULL);
}

/* ------------------------------------------------------------------- one config */

static enum berth_code redis_now(struct cp *cp, int64_t *ret, struct berth_error *err)
{
    static const char *const argv[] = {"TIME"};
    BERTH_AUTO(berth_reply_free) struct berth_reply *reply = NULL;
    enum berth_code code = call(cp, &reply, 1, argv, err);

    if (!code && reply->n_items == 2)
        *ret = strtoll(reply->items[0]->string, NULL, 10) * 1000 +
               strtoll(reply->items[1]->string, NULL, 10) / 1000;
    return code;
}

/* What was sent before the loss may still take effect where no fence refuses it. Binding knows
 * from the mark when that was, and lets nothing be adopted too early. */
static enum berth_code mark_unfenced(struct cp *cp, const char *tenant, const char *config_id,
                                     bool *ret_marked, struct berth_error *err)
{
    BERTH_AUTO(cp_config_unref) struct cp_config *config = NULL;

    *ret_marked = false;
    if (cp_cache_config(cp->cache, tenant, config_id, &config, NULL) || config->doc.fenced)
        return BERTH_OK; /* one that cannot be read shows when it is listed */
    *ret_marked = true;
    return berth_recovery_mark(cp->redis, tenant, config_id, true, err);
}

static enum berth_code recover_config(struct cp_recover *recover, const char *tenant,
                                      const char *config_id, struct berth_error *err)
{
    uint32_t found = 0, adopted = 0;
    struct berth_error why = {0};
    enum berth_code code =
        cp_recover_target(recover->cp, tenant, config_id, &found, &adopted, &why);

    if (code && why.reason == BERTH_REASON_CONFIG_NOT_FOUND)
        return BERTH_OK; /* deleted since: no session was left in it */
    if (code)
        berth_warn("a config could not be recovered, trying again", "tenant", tenant, "config",
                   config_id, "error", why.text);
    else
        berth_info("a config is recovered", "tenant", tenant, "config", config_id, "found",
                   BERTH_I64(found), "adopted", BERTH_I64(adopted));
    if (code && err)
        *err = why;
    return code;
}

/* --------------------------------------------------------------------- the pass */

/* A few tries; then it is marked, and the others go on. */
static enum berth_code pass_config(struct cp_recover *recover, const char *tenant,
                                   const char *config_id, struct berth_error *err)
{
    struct berth_redis *redis = recover->cp->redis;
    struct berth_error why = {0};
    bool marked;
    enum berth_code code = mark_unfenced(recover->cp, tenant, config_id, &marked, err);

    if (code)
        return code;
    for (int i = 0; i < TRIES; i++) {
        (void)lead(recover->cp);
        if (recover_config(recover, tenant, config_id, &why) == BERTH_OK)
            return marked ? berth_recovery_mark(redis, tenant, config_id, false, err)
                          : BERTH_OK;
        if (why.reason == BERTH_REASON_STORE_UNAVAILABLE ||
            why.reason == BERTH_REASON_PEER_UNAVAILABLE ||
            why.reason == BERTH_REASON_QUARANTINE) {
            if (err)
                *err = why;
            return why.code; /* not the backend's fault */
        }
        if (why.reason == BERTH_REASON_CREATE_UNSETTLED)
            break;
        if (!wait_a_moment(recover))
            return berth_fail(err, BERTH_REASON_DRAINING, NULL);
    }
    return berth_recovery_mark(redis, tenant, config_id, true, err);
}

static enum berth_code pass_tenant(struct cp_recover *recover, const char *tenant,
                                   struct berth_error *err)
{
    char after[160] = "";
    size_t n = PAGE_SIZE;
    enum berth_code code = BERTH_OK;

    while (!code && n == PAGE_SIZE) {
        BERTH_AUTO(berth_reply_free) struct berth_reply *ids = NULL;

        code = cp_config_ids(recover->cp, tenant, after, PAGE_SIZE, &ids, err);
        if (code)
            return code;
        n = ids->n_items;
        for (size_t i = 0; !code && i < n; i++)
            code = pass_config(recover, tenant, ids->items[i]->string, err);
        if (n > 0)
            snprintf(after, sizeof after, "%.158s", ids->items[n - 1]->string);
    }
    return code;
}

static enum berth_code set_epoch(struct cp *cp, struct berth_error *err)
{
    char now[48];
    int64_t now_ms = 0;
    const char *const set[] = {"SET", BERTH_KEY_EPOCH, now, "NX"};
    const char *const done[] = {"DEL", BERTH_KEY_RECOVERY};
    BERTH_AUTO(berth_reply_free) struct berth_reply *reply = NULL;
    BERTH_AUTO(berth_reply_free) struct berth_reply *deleted = NULL;
    enum berth_code code = redis_now(cp, &now_ms, err);

    snprintf(now, sizeof now, "%" PRId64 BERTH_EPOCH_RECOVERED, now_ms);
    if (!code)
        code = call(cp, &reply, BERTH_COUNT(set), set, err);
    return code ? code : call(cp, &deleted, BERTH_COUNT(done), done, err);
}

static enum berth_code pass(struct cp_recover *recover, struct berth_error *err)
{
    struct cp *cp = recover->cp;
    BERTH_AUTO(berth_reply_free) struct berth_reply *tenants = NULL;
    enum berth_code code = cp_tenant_ids(cp, &tenants, err);

    for (size_t i = 0; !code && i < tenants->n_items; i++)
        code = pass_tenant(recover, tenants->items[i]->string, err);
    if (!code)
        code = set_epoch(cp, err);
    if (!code)
        berth_info("the index is recovered", "tenants", BERTH_I64((int64_t)tenants->n_items));
    return code;
}

static void recover_all(struct cp_recover *recover)
{
    struct cp *cp = recover->cp;
    char missing[128] = "";
    struct berth_error err = {0};
    int64_t now_ms = 0, lost_ms = 0;
    bool done = false;

    if (berth_recovery_read_back(cp->redis, &done, &lost_ms, missing, &err))
        return;
    if (!done && !*missing)
        snprintf(missing, sizeof missing, "any");
    if (*missing && strcmp(missing, recover->waits_for) != 0)
        berth_warn("recovery waits for a journal to be read back", "journal", missing);
    memcpy(recover->waits_for, missing, sizeof missing);
    if (redis_now(cp, &now_ms, &err) || now_ms < lost_ms + SETTLE_MS)
        return;
    if (!done || !lead(cp))
        return;
    if (pass(recover, &err))
        berth_warn("the index is not recovered yet, trying again", "error", err.text);
    step_down(cp);
}

/* ----------------------------------------------------------- what was left over */

static void recover_left(struct cp_recover *recover)
{
    static const char *const argv[] = {"SMEMBERS", BERTH_KEY_UNLISTED};
    struct cp *cp = recover->cp;
    BERTH_AUTO(berth_reply_free) struct berth_reply *left = NULL;
    struct berth_error err = {0};

    recover->again_tick = berth_tick_ms() + AGAIN_MS;
    if (call(cp, &left, BERTH_COUNT(argv), argv, &err) || left->n_items == 0 || !lead(cp))
        return;
    for (size_t i = 0; i < left->n_items; i++) {
        char *member = left->items[i]->string, *slash = strchr(member, '/');

        if (!slash)
            continue;
        *slash = 0;
        if (recover_config(recover, member, slash + 1, &err) == BERTH_OK &&
            berth_recovery_mark(cp->redis, member, slash + 1, false, &err))
            berth_warn("a config is recovered and still marked, trying again", "error",
                       err.text);
    }
    step_down(cp);
}

static void look(struct cp_recover *recover)
{
    static const char *const argv[] = {"GET", BERTH_KEY_EPOCH};
    BERTH_AUTO(berth_reply_free) struct berth_reply *epoch = NULL;

    if (cp_enter(recover->cp, NULL) || call(recover->cp, &epoch, BERTH_COUNT(argv), argv, NULL))
        return; /* readiness tells */
    if (epoch->type != BERTH_REPLY_STRING)
        recover_all(recover);
    else if (berth_tick_ms() >= recover->again_tick)
        recover_left(recover);
}

static void *run(void *arg)
{
    struct cp_recover *recover = arg;

    do {
        look(recover);
    } while (wait_a_moment(recover));
    return NULL;
}

enum berth_code cp_recover_new(struct cp *cp, struct cp_recover **ret, struct berth_error *err)
{
    struct cp_recover *recover = calloc(1, sizeof *recover);
    pthread_condattr_t clock;

    if (!recover)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    recover->cp = cp;
    pthread_mutex_init(&recover->mutex, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&recover->wake, &clock);
    pthread_condattr_destroy(&clock);
    if (pthread_create(&recover->thread, NULL, run, recover) != 0) {
        free(recover);
        return berth_fail(err, BERTH_REASON_OVERLOADED, "no thread for the recovery");
    }
    *ret = recover;
    return BERTH_OK;
}

struct cp_recover *cp_recover_free(struct cp_recover *recover)
{
    if (!recover)
        return NULL;
    pthread_mutex_lock(&recover->mutex);
    recover->stopping = true;
    pthread_cond_signal(&recover->wake);
    pthread_mutex_unlock(&recover->mutex);
    pthread_join(recover->thread, NULL);
    pthread_cond_destroy(&recover->wake);
    pthread_mutex_destroy(&recover->mutex);
    free(recover);
    return NULL;
}
