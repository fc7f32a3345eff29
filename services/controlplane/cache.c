#include "services/controlplane/cache.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

#include "common/log/log.h"
#include "common/records/deployment.h"
#include "common/records/keys.h"
#include "common/time/time.h"

enum { MAX_AGE_MS = 5000, N_BUCKETS = 1024, ENTRIES_MAX = 8192, ID_SIZE = 129 };

/* A tenant (config_id "") or one of its configs. */
struct entry {
    struct entry *next;
    char tenant_id[ID_SIZE], config_id[ID_SIZE];
    int64_t loaded_tick; /* INT64_MIN: to be read anew */
    bool refreshing;
    struct berth_tenant_doc tenant;
    struct cp_config *config;
};

struct cp_cache {
    struct cp_cache_options options;
    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t quiet;
    bool stopping;
    int64_t forgotten_tick; /* what was begun to be read before it may be old */
    unsigned refreshing;
    unsigned n_entries, sweep;
    struct entry *buckets[N_BUCKETS];
};

/* What was read, before it is stored or handed out. */
struct loaded {
    struct berth_tenant_doc tenant;
    struct cp_config *config;
};

enum berth_code cp_cache_new(const struct cp_cache_options *options, struct cp_cache **ret,
                             struct berth_error *err)
{
    struct cp_cache *cache = calloc(1, sizeof *cache);

    if (!cache)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    cache->options = *options;
    if (!cache->options.max_age_ms)
        cache->options.max_age_ms = MAX_AGE_MS;
    if (!cache->options.refresh_age_ms)
        cache->options.refresh_age_ms = cache->options.max_age_ms / 2;
    pthread_mutex_init(&cache->mutex, NULL);
    pthread_cond_init(&cache->quiet, NULL);
    *ret = cache;
    return BERTH_OK;
}

static void free_entry(struct entry *entry)
{
    cp_config_unref(entry->config);
    free(entry);
}

void cp_cache_quiet(struct cp_cache *cache)
{
    if (!cache)
        return;
    pthread_mutex_lock(&cache->mutex);
    cache->stopping = true;
    while (cache->refreshing > 0)
        pthread_cond_wait(&cache->quiet, &cache->mutex);
    pthread_mutex_unlock(&cache->mutex);
}

struct cp_cache *cp_cache_free(struct cp_cache *cache)
{
    if (!cache)
        return NULL;
    cp_cache_quiet(cache);
    for (size_t i = 0; i < N_BUCKETS; i++) {
        while (cache->buckets[i]) {
            struct entry *entry = cache->buckets[i];

            cache->buckets[i] = entry->next;
            free_entry(entry);
        }
    }
    pthread_mutex_destroy(&cache->mutex);
    pthread_cond_destroy(&cache->quiet);
    free(cache);
    return NULL;
}

/* -------------------------------------------------------------------- table */

static unsigned hash(const char *tenant, const char *config_id)
{
    unsigned value = 2166136261U;

    for (; *tenant; tenant++)
        value = (value ^ (unsigned char)*tenant) * 16777619U;
    value = (value ^ '/') * 16777619U;
    for (; *config_id; config_id++)
        value = (value ^ (unsigned char)*config_id) * 16777619U;
    return value % N_BUCKETS;
}

static struct entry *find(struct cp_cache *cache, const char *tenant, const char *config_id)
{
    struct entry *entry = cache->buckets[hash(tenant, config_id)];

    while (entry &&
           (strcmp(entry->tenant_id, tenant) != 0 || strcmp(entry->config_id, config_id) != 0))
        entry = entry->next;
    return entry;
}

static void remove_entry(struct cp_cache *cache, struct entry *entry)
{
    struct entry **at = &cache->buckets[hash(entry->tenant_id, entry->config_id)];

    while (*at != entry)
        at = &(*at)->next;
    *at = entry->next;
    cache->n_entries--;
    free_entry(entry);
}

/* Full: whole buckets go, one after the other, until there is room again. */
static void make_room(struct cp_cache *cache)
{
    for (unsigned i = 0; i < N_BUCKETS && cache->n_entries >= ENTRIES_MAX; i++) {
        struct entry *entry = cache->buckets[cache->sweep++ % N_BUCKETS];

        while (entry) {
            struct entry *next = entry->next;

            if (!entry->refreshing)
                remove_entry(cache, entry);
            entry = next;
        }
    }
}

static struct entry *find_or_add(struct cp_cache *cache, const char *tenant,
                                 const char *config_id)
{
    struct entry *entry = find(cache, tenant, config_id);
    unsigned at = hash(tenant, config_id);

    if (entry)
        return entry;
    make_room(cache);
    entry = calloc(1, sizeof *entry);
    if (!entry)
        return NULL;
    snprintf(entry->tenant_id, sizeof entry->tenant_id, "%s", tenant);
    snprintf(entry->config_id, sizeof entry->config_id, "%s", config_id);
    entry->loaded_tick = INT64_MIN;
    entry->next = cache->buckets[at];
    cache->buckets[at] = entry;
    cache->n_entries++;
    return entry;
}

/* Whatever was read last stands, also when an older read ends later: both were true when read,
 * and the age counts from the start of the read. One that began before a change was heard of is
 * not kept. */
static void store(struct cp_cache *cache, const char *tenant, const char *config_id,
                  const struct loaded *loaded, int64_t tick)
{
    struct entry *entry;

    pthread_mutex_lock(&cache->mutex);
    entry = tick > cache->forgotten_tick ? find_or_add(cache, tenant, config_id) : NULL;
    if (entry && entry->loaded_tick < tick) {
        entry->loaded_tick = tick;
        entry->tenant = loaded->tenant;
        cp_config_unref(entry->config);
        entry->config = loaded->config ? cp_config_ref(loaded->config) : NULL;
    }
    pthread_mutex_unlock(&cache->mutex);
}

/* With the mutex held. */
static void forget(struct cp_cache *cache, struct entry *entry)
{
    entry->loaded_tick = INT64_MIN;
    if (!entry->refreshing)
        remove_entry(cache, entry);
}

void cp_cache_forget(struct cp_cache *cache, const char *tenant, const char *config_id)
{
    struct entry *entry;

    pthread_mutex_lock(&cache->mutex);
    cache->forgotten_tick = berth_tick_ms();
    entry = find(cache, tenant, config_id ? config_id : "");
    if (entry)
        forget(cache, entry);
    pthread_mutex_unlock(&cache->mutex);
}

void cp_cache_forget_all(struct cp_cache *cache)
{
    pthread_mutex_lock(&cache->mutex);
    cache->forgotten_tick = berth_tick_ms();
    for (size_t i = 0; i < N_BUCKETS; i++) {
        struct entry *entry = cache->buckets[i];

        while (entry) {
            struct entry *next = entry->next;

            forget(cache, entry);
            entry = next;
        }
    }
    pthread_mutex_unlock(&cache->mutex);
}

/* --------------------------------------------------------------------- load */

static enum berth_code load_tenant(struct cp_cache *cache, const struct berth_doc *doc,
                                   const char *tenant, struct berth_tenant_doc *ret,
                                   struct berth_error *err)
{
    enum berth_code code = berth_tenant_doc_parse(doc, ret, err);

    if (code || ret->exists)
        return code;
    code = berth_epoch_check(cache->options.redis, err);
    return code ? code
                : berth_fail(err, BERTH_REASON_TENANT_NOT_FOUND, "no tenant '%s'", tenant);
}

static enum berth_code load_config(struct cp_cache *cache, const struct berth_doc *doc,
                                   const char *tenant, const char *config_id,
                                   struct cp_config **ret, struct berth_error *err)
{
    struct berth_error why;
    enum berth_code code = cp_config_decode(doc, tenant, config_id, ret, &why);

    if (code == BERTH_NOT_FOUND) {
        code = berth_epoch_check(cache->options.redis, err);
        if (code)
            return code;
        code = why.code;
    }
    if (code && err)
        *err = why;
    return code;
}

static enum berth_code load(struct cp_cache *cache, const char *tenant, const char *config_id,
                            struct loaded *ret, struct berth_error *err)
{
    char key[BERTH_KEY_MAX];
    struct berth_redis_get get = {.key = key};
    struct berth_doc doc;
    int64_t now_ms;
    enum berth_code code;

    if (*config_id) {
        berth_key_config(key, tenant, config_id);
        get.fields = cp_config_fields;
        get.n_fields = cp_n_config_fields;
    } else {
        berth_key_tenant(key, tenant);
        get.fields = berth_tenant_fields;
        get.n_fields = berth_n_tenant_fields;
    }
    code = berth_redis_read(cache->options.redis, &get, 1, &now_ms, &doc, err);
    if (code)
        return code;
    code = *config_id ? load_config(cache, &doc, tenant, config_id, &ret->config, err)
                      : load_tenant(cache, &doc, tenant, &ret->tenant, err);
    berth_doc_deinit(&doc);
    return code;
}

struct refresh {
    struct cp_cache *cache;
    char tenant_id[ID_SIZE], config_id[ID_SIZE];
};

static void refresh_done(struct cp_cache *cache, const struct refresh *job)
{
    struct entry *entry;

    pthread_mutex_lock(&cache->mutex);
    entry = find(cache, job->tenant_id, job->config_id);
    if (entry)
        entry->refreshing = false;
    if (--cache->refreshing == 0)
        pthread_cond_broadcast(&cache->quiet);
    pthread_mutex_unlock(&cache->mutex);
}

static void run_refresh(void *arg)
{
    struct refresh *job = arg;
    struct cp_cache *cache = job->cache;
    struct loaded loaded = {0};
    struct berth_error err;
    int64_t tick = berth_tick_ms();
    enum berth_code code = load(cache, job->tenant_id, job->config_id, &loaded, &err);

    if (!code) {
        store(cache, job->tenant_id, job->config_id, &loaded, tick);
        if (loaded.config && cache->options.in_use)
            cache->options.in_use(cache->options.in_use_arg, loaded.config);
        cp_config_unref(loaded.config);
    } else if (code == BERTH_NOT_FOUND) {
        cp_cache_forget(cache, job->tenant_id, job->config_id);
    } /* else: it ages, and the next use says why it cannot be read */
    refresh_done(cache, job);
    free(job);
}

/* Called with the mutex held. Not being able to is fine: the entry ages. */
static void start_refresh(struct cp_cache *cache, struct entry *entry)
{
    struct refresh *job = calloc(1, sizeof *job);

    if (!job)
        return;
    job->cache = cache;
    memcpy(job->tenant_id, entry->tenant_id, ID_SIZE);
    memcpy(job->config_id, entry->config_id, ID_SIZE);
    entry->refreshing = true;
    cache->refreshing++;
    if (berth_pool_submit(cache->options.pool, run_refresh, job, NULL)) {
        entry->refreshing = false;
        cache->refreshing--;
        free(job);
    }
}

static bool get_fresh(struct cp_cache *cache, const char *tenant, const char *config_id,
                      struct loaded *ret)
{
    int64_t tick = berth_tick_ms();
    struct entry *entry;
    bool fresh;

    pthread_mutex_lock(&cache->mutex);
    entry = find(cache, tenant, config_id);
    fresh = entry && entry->loaded_tick >= tick - cache->options.max_age_ms;
    if (fresh) {
        ret->tenant = entry->tenant;
        ret->config = entry->config ? cp_config_ref(entry->config) : NULL;
        if (!cache->stopping && !entry->refreshing &&
            entry->loaded_tick < tick - cache->options.refresh_age_ms)
            start_refresh(cache, entry);
    }
    pthread_mutex_unlock(&cache->mutex);
    return fresh;
}

static enum berth_code get(struct cp_cache *cache, const char *tenant, const char *config_id,
                           struct loaded *ret, struct berth_error *err)
{
    int64_t tick = berth_tick_ms();
    enum berth_code code;

    if (get_fresh(cache, tenant, config_id, ret))
        return BERTH_OK;
    code = load(cache, tenant, config_id, ret, err);
    if (!code)
        store(cache, tenant, config_id, ret, tick);
    return code;
}

enum berth_code cp_cache_tenant(struct cp_cache *cache, const char *tenant,
                                struct berth_tenant_doc *ret, struct berth_error *err)
{
    struct loaded loaded = {0};
    enum berth_code code = get(cache, tenant, "", &loaded, err);

    if (!code)
        *ret = loaded.tenant;
    return code;
}

struct cp_config *cp_cache_config_now(struct cp_cache *cache, const char *tenant,
                                      const char *config_id)
{
    struct loaded loaded = {0};

    return get_fresh(cache, tenant, config_id, &loaded) ? loaded.config : NULL;
}

enum berth_code cp_cache_config(struct cp_cache *cache, const char *tenant,
                                const char *config_id, struct cp_config **ret,
                                struct berth_error *err)
{
    struct loaded loaded = {0};
    enum berth_code code = get(cache, tenant, config_id, &loaded, err);

    if (!code)
        *ret = loaded.config;
    return code;
}
