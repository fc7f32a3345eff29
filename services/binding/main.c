/* binding - who may use which sandbox, who may change that, and until when.
 *
 * Called by: controlplane, skills, reaper (all of BindingService).
 * Calls:     Redis.
 * Files:     decode.c and encode.c know the messages, rpc.c, acquire.c and list.c the calls;
 *            core*.c hold every rule; doc*.c the document, store.c every key; watch.c sees a
 *            failover; park.c keeps callers that wait for a lock. */
#include "common/log/log.h"
#include "common/redis/settings.h"
#include "common/svc/svc.h"
#include "services/binding/binding.h"

enum { HOUR_MS = 3600 * 1000 };

struct settings {
    struct berth_redis_settings redis;
    int64_t lock_lease;
    int64_t turn_lease;
    int64_t turn_lease_min;
    int64_t use_lease;
    int64_t tombstone;
    int64_t quarantine;
    int64_t turn_renewal;
    int64_t max_wait;
    int64_t max_waiters;
};

#define KEY(field, type, value, doc)                                                           \
    {                                                                                          \
#field, BERTH_CONFIG_##type, offsetof(struct settings, field), value, doc              \
    }

static const struct berth_config_key keys[] = {
    BERTH_REDIS_KEYS(struct settings, redis, "16"),
    KEY(lock_lease, MS, "60s", "lease of a lifecycle lock; holders renew it"),
    KEY(turn_lease, MS, "30m", "lease of a turn that names none"),
    KEY(turn_lease_min, MS, "1m", "shortest lease of a turn"),
    KEY(use_lease, MS, "2m", "lease of a stream's use token"),
    KEY(tombstone, MS, "24h", "how long a deleted session is remembered"),
    KEY(quarantine, MS, "60s", "how long nothing is created after Redis failed over"),
    KEY(turn_renewal, MS, "10m",
        "how often turns are renewed: so long after that none is disturbed"),
    KEY(max_wait, MS, "10m", "longest wait for a lock, whatever the caller allows"),
    KEY(max_waiters, INT, "8192", "callers that may wait for locks at once"),
};
#undef KEY

static enum berth_code check(const struct settings *c, struct berth_error *err)
{
    if (c->lock_lease < 100 || c->lock_lease > HOUR_MS)
        return berth_fail_field(err, "lock_lease", "must be 100 ms to 1 h");
    if (c->use_lease < 100 || c->use_lease > 24 * HOUR_MS)
        return berth_fail_field(err, "use_lease", "must be 100 ms to 24 h");
    if (c->turn_lease_min < 1 || c->turn_lease < c->turn_lease_min ||
        c->turn_lease > 24 * HOUR_MS)
        return berth_fail_field(err, "turn_lease", "must be turn_lease_min to 24 h");
    if (c->tombstone < 1)
        return berth_fail_field(err, "tombstone", "must be at least 1 ms");
    if (c->max_waiters < 1 || c->max_waiters > 1000000)
        return berth_fail_field(err, "max_waiters", "must be 1 to 1000000");
    return BERTH_OK;
}

/* Another deployment's store is never touched; one that is away or empty is waited for. */
static enum berth_code check_store(struct binding *binding, struct berth_error *err)
{
    struct berth_error why = {0};
    bool wrong = false;

    if (binding_store_ready(binding->store, &wrong, &why) == BERTH_OK)
        return BERTH_OK;
    if (wrong) {
        if (err)
            *err = why;
        return why.code;
    }
    berth_warn("the store cannot be used yet, waiting for it", "why", why.text);
    return BERTH_OK;
}

static enum berth_code start(const void *settings, const struct berth_runtime *runtime,
                             void **ret_service, struct berth_error *err)
{
    const struct settings *c = settings;
    BERTH_AUTO(berth_redis_free) struct berth_redis *redis = NULL;
    BERTH_AUTO(binding_free) struct binding *binding = NULL;
    enum berth_code code = check(c, err);

    if (!code)
        code = berth_redis_open(&c->redis, &redis, err);
    if (!code) {
        const struct binding_options options = {
            .store = {.redis = redis,
                      .deployment = runtime->deployment,
                      .limits = {.lock_ms = c->lock_lease,
                                 .turn_ms = c->turn_lease,
                                 .turn_min_ms = c->turn_lease_min,
                                 .turn_max_ms = 24 * HOUR_MS,
                                 .use_ms = c->use_lease,
                                 .tombstone_ms = c->tombstone},
                      .quarantine_ms = c->quarantine,
                      .unsure_ms = c->turn_renewal},
            .server = runtime->server,
            .pool = runtime->pool,
            .max_wait_ms = c->max_wait,
            .max_waiters = (size_t)c->max_waiters,
        };

        code = binding_new(&options, &binding, err);
    }
    if (code)
        return code;
    binding->redis = BERTH_STEAL(redis);
    code = check_store(binding, err);
    if (code)
        return code;
    *ret_service = BERTH_STEAL(binding);
    return BERTH_OK;
}

static void stop(void *service)
{
    binding_free(service);
}

static enum berth_code ready(void *service, struct berth_error *err)
{
    const struct binding *binding = service;

    return binding_store_ready(binding->store, NULL, err);
}

static char *metrics(void *service)
{
    return binding_metrics(service);
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"berth.binding.v1.BindingService"};
    const struct berth_service service = {
        .name = "binding",
        .doc =
            "Owns the identity of sessions: which sandbox is whose, and who may change that.",
        .port = 7403,
        .internal = true,
        .keys = keys,
        .n_keys = BERTH_COUNT(keys),
        .config_size = sizeof(struct settings),
        .methods = binding_methods,
        .n_methods = n_binding_methods,
        .services = names,
        .n_services = BERTH_COUNT(names),
        .start = start,
        .ready = ready,
        .metrics = metrics,
        .stop = stop,
    };

    return berth_service_main(&service, argc, argv);
}
