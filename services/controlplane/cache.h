/* cache.h - tenants and configs in memory. Nothing older than 5 s is handed out, so that a kill
 * switch holds within 5 s; what is in use is read again in the background before that, so that
 * a warm call waits for no Redis trip of ours. Thread-safe, bounded. */
#pragma once

#include "common/errors/errors.h"
#include "common/pool/pool.h"
#include "common/records/tenant_doc.h"
#include "common/redis/redis.h"
#include "services/controlplane/config.h"

struct cp_cache;

struct cp_cache_options {
    struct berth_redis *redis;
    struct berth_pool *pool;
    int64_t max_age_ms;     /* 0: 5 s */
    int64_t refresh_age_ms; /* 0: half of max_age_ms */
    /* A config was read again because it is in use; on a worker. Optional. */
    void (*in_use)(void *arg, struct cp_config *config);
    void *in_use_arg;
};

BERTH_MUST_CHECK enum berth_code cp_cache_new(const struct cp_cache_options *options,
                                              struct cp_cache **ret, struct berth_error *err);
/* No more reads in the background; returns when those under way have ended. NULL is fine. */
void cp_cache_quiet(struct cp_cache *cache);
/* As cp_cache_quiet() first. NULL is fine. */
struct cp_cache *cp_cache_free(struct cp_cache *cache);
BERTH_DEFINE_AUTO(struct cp_cache *, cp_cache_free)

/* Errors: TENANT_NOT_FOUND, INDEX_RECOVERING (not found, and the index is not whole: absence
 * says nothing), STORE_UNAVAILABLE, INTERNAL_BUG. */
BERTH_MUST_CHECK enum berth_code cp_cache_tenant(struct cp_cache *cache, const char *tenant,
                                                 struct berth_tenant_doc *ret,
                                                 struct berth_error *err);

/* *ret is a reference. Errors: CONFIG_NOT_FOUND, INDEX_RECOVERING, STORE_UNAVAILABLE,
 * INTERNAL_BUG. */
BERTH_MUST_CHECK enum berth_code cp_cache_config(struct cp_cache *cache, const char *tenant,
                                                 const char *config_id, struct cp_config **ret,
                                                 struct berth_error *err);

/* A reference, if it is in memory and not too old; else NULL. Never waits. */
struct cp_config *cp_cache_config_now(struct cp_cache *cache, const char *tenant,
                                      const char *config_id);

/* Read it anew at the next use: after a write of our own. config_id NULL: the tenant. */
void cp_cache_forget(struct cp_cache *cache, const char *tenant, const char *config_id);
void cp_cache_forget_all(struct cp_cache *cache);
