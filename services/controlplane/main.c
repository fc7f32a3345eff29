/* controlplane - configs, tenants, sessions, templates: what tenants call.
 *
 * Called by: everybody; dataplane, skills and reaper (InternalService).
 * Calls:     binding (sessions, locks, turns), adapters (everything about sandboxes), Redis
 *            (tenants and configs only).
 * Files:     *_rpc.c decode, check, act, encode, one per service; checks.c, config_check.c,
 *            policy.c, plan.c and net.c hold every rule, pure; resolve.c is the way from a
 * session to its sandbox, holder*.c the work under its lock; config*.c the records; cache.c,
 *            bulkhead.c, locks.c, verified.c what all of them lean on; keys.c and census.c
 *            the suite's keys and what is sealed under them.
 */
#include <stdio.h>

#include "common/ids/ids.h"
#include "common/log/log.h"
#include "common/records/deployment.h"
#include "common/redis/settings.h"
#include "services/controlplane/changes.h"
#include "services/controlplane/config_ops.h"
#include "services/controlplane/controlplane.h"
#include "services/controlplane/events.h"
#include "services/controlplane/keys.h"
#include "services/controlplane/recover.h"
#include "services/controlplane/token_store.h"

struct settings {
    struct berth_redis_settings redis;
    char *key_file, *key_command, *suite_key;
    char *journal;
    bool journal_skip_damaged;
    char *binding;
    char *dataplane;
    struct berth_adapter_settings adapters;
    int64_t verify_interval, resolve_timeout;
    int64_t backend_calls;
    char *allow_private_targets;
    int64_t event_heartbeat;
};

#define KEY(field, type, value, doc)                                                           \
    {                                                                                          \
#field, BERTH_CONFIG_##type, offsetof(struct settings, field), value, doc              \
    }

static const struct berth_config_key keys[] = {
    BERTH_REDIS_KEYS(struct settings, redis, "16"),
    KEY(key_file, STR, "/etc/berth/suite.key",
        "the suite's keys, a line \"<id> <64 hex digits>\" each: the first seals credentials "
        "and "
        "endpoints, all open; mode 0600; read again when it changes"),
    KEY(key_command, STR, "",
        "in place of key_file: absolute path of a program, and arguments, that prints them "
        "within 10s; asked again at SIGHUP"),
    KEY(suite_key, SECRET, "",
        "in place of key_file: the keys themselves, commas between, for BERTH_SUITE_KEY in the "
        "environment, where they are wiped once read. Who starts us sees them all the same: "
        "a file or a command is better"),
    KEY(journal, STR, "/var/lib/berth/controlplane.journal",
        "file that every tenant, token and config is written to as well, sealed under the "
        "suite's keys, and read back from when Redis has lost them; one per replica; empty: "
        "none"),
    KEY(journal_skip_damaged, BOOL, "false",
        "go on where the journal is damaged, without the entries that stood there"),
    KEY(binding, STR, "", "target of binding; empty: its socket in run_dir"),
    KEY(dataplane, STR, "",
        "target of the data plane that moves workspaces; empty: its socket in run_dir; off: "
        "none"),
    BERTH_ADAPTER_KEYS(struct settings, adapters),
    KEY(verify_interval, MS, "30s",
        "how long a sandbox counts as running after it was seen, where the config names "
        "nothing"),
    KEY(resolve_timeout, MS, "2m", "longest resolve, whatever the caller allows"),
    KEY(backend_calls, INT, "24",
        "backend calls at once, at most, leaving 8 of the workers free; 16 of them for one "
        "endpoint"),
    KEY(allow_private_targets, STR, "config",
        "who may let configs reach private addresses: \"config\": each by its "
        "allow_private_endpoints; \"never\": none, whatever it says"),
    KEY(event_heartbeat, MS, "15s", "silence of WatchEvents before it gives a sign of life"),
};
#undef KEY

enum {
    WORKERS_FREE = 8,
    LISTEN_CONNECTIONS = 4, /* below that none can be spared for listening */
    EVENT_BLOCK_MS = 250,
};

static const char *const services[] = {
    "berth.control.v1.ConfigService",   "berth.control.v1.SessionService",
    "berth.control.v1.TemplateService", "berth.control.v1.TenantService",
    "berth.control.v1.InternalService", "berth.control.v1.EventService",
};

/* ------------------------------------------------------------------------ life */

static void cp_free(struct cp *cp)
{
    if (!cp)
        return;
    cp->events = cp_events_free(cp->events);
    /* Jobs first: they use everything else, and reads of the cache make jobs. */
    cp->keys = cp_keys_free(cp->keys);
    cp->recover = cp_recover_free(cp->recover);
    cp->records = berth_records_free(cp->records);
    cp_cache_quiet(cp->cache);
    cp->bulkhead = cp_bulkhead_free(cp->bulkhead);
    cp->changes = cp_changes_free(cp->changes);
    cp->auth = berth_auth_free(cp->auth);
    cp->cache = cp_cache_free(cp->cache);
    cp->locks = cp_locks_free(cp->locks);
    cp->binding = berth_channel_free(cp->binding);
    cp->mover = berth_channel_free(cp->mover);
    berth_adapters_close(&cp->adapters);
    cp->verified = cp_verified_free(cp->verified);
    cp->keyring = berth_keyring_free(cp->keyring);
    cp->redis = berth_redis_free(cp->redis);
    free(cp);
}
BERTH_DEFINE_AUTO(struct cp *, cp_free)

static enum berth_code open_peers(struct cp *cp, const struct settings *c,
                                  struct berth_error *err)
{
    enum berth_code code =
        berth_peer_channel(cp->runtime, "binding", c->binding, NULL, &cp->binding, err);

    if (!code && strcmp(c->dataplane, "off") != 0)
        code =
            berth_peer_channel(cp->runtime, "dataplane", c->dataplane, NULL, &cp->mover, err);
    if (!code)
        code = berth_adapters_open(cp->runtime, &c->adapters, 0, &cp->adapters, err);
    return code;
}

static enum berth_code make_parts(struct cp *cp, const struct settings *c,
                                  struct berth_error *err)
{
    const struct cp_cache_options cache_options = {
        .redis = cp->redis,
        .pool = cp->runtime->pool,
        .in_use = cp_config_in_use,
        .in_use_arg = cp,
    };
    const struct cp_bulkhead_options bulkhead_options = {.max_running =
                                                             (unsigned)c->backend_calls};
    const struct berth_auth_options auth_options = {
        .look = cp_token_look, .arg = cp, .loop = cp->runtime->loop};
    enum berth_code code = cp_cache_new(&cache_options, &cp->cache, err);

    if (!code)
        code = berth_auth_new(&auth_options, &cp->auth, err);

    if (!code)
        code = cp_bulkhead_new(cp->runtime->pool, &bulkhead_options, &cp->bulkhead, err);
    if (!code)
        code = cp_locks_new(cp->runtime->loop, cp->runtime->pool, cp->binding, &cp->locks, err);
    if (!code)
        code =
            cp_events_new(cp, c->event_heartbeat,
                          c->redis.timeout_ms / 3 < EVENT_BLOCK_MS ? c->redis.timeout_ms / 3 + 1
                                                                   : EVENT_BLOCK_MS,
                          &cp->events, err);
    cp->verified = cp_verified_new();
    if (!code && !cp->verified)
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    return code;
}

static enum berth_code open_records(struct cp *cp, const struct settings *c,
                                    struct berth_error *err)
{
    const struct berth_records_options options = {
        .redis = cp->redis,
        .keyring = cp->keyring,
        .deployment = cp->runtime->deployment,
        .name = cp->owner,
        .path = c->journal,
        .skip_damaged = c->journal_skip_damaged,
    };

    return berth_records_new(&options, &cp->records, err);
}

/* Another's store stops the start, and so does a key that is missing; a store that is away does
 * not. */
static enum berth_code check_store(struct cp *cp, struct berth_error *err)
{
    struct berth_error why = {0};
    enum berth_code code = berth_records_claim(cp->records, &why);

    if (code == BERTH_INVALID_ARGUMENT) {
        if (err)
            *err = why;
        return code;
    }
    atomic_store(&cp->store_checked, code == BERTH_OK);
    if (!code)
        code = cp_keys_check(cp->keys, &why);
    if (code == BERTH_INVALID_ARGUMENT) {
        if (err)
            *err = why;
        return code;
    }
    if (code)
        berth_warn("the store cannot be reached, serving all the same and trying again",
                   "error", why.text);
    return BERTH_OK;
}

static enum berth_code start(const void *config, const struct berth_runtime *runtime,
                             void **ret_service, struct berth_error *err)
{
    const struct settings *c = config;
    const struct berth_key_source source = {
        .file = c->key_file, .text = c->suite_key, .command = c->key_command};
    BERTH_AUTO(cp_free) struct cp *cp = calloc(1, sizeof *cp);
    char id[9];
    enum berth_code code;

    if (!cp)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (c->backend_calls < 1 || c->backend_calls + WORKERS_FREE > (int64_t)runtime->n_workers)
        return berth_fail_field(err, "backend_calls", "must be 1 to workers - %d",
                                WORKERS_FREE);
    if (c->resolve_timeout < 1000)
        return berth_fail_field(err, "resolve_timeout", "must be at least 1 second");
    if (strcmp(c->allow_private_targets, "config") != 0 &&
        strcmp(c->allow_private_targets, "never") != 0)
        return berth_fail_field(err, "allow_private_targets", "must be config or never");
    cp->no_private_targets = strcmp(c->allow_private_targets, "never") == 0;
    if (c->event_heartbeat < 100)
        return berth_fail_field(err, "event_heartbeat", "must be at least 100ms");
    cp->runtime = runtime;
    cp->verify_interval_ms = c->verify_interval;
    cp->resolve_timeout_ms = c->resolve_timeout;
    snprintf(cp->owner, sizeof cp->owner, "controlplane %ld.%s", (long)getpid(),
             berth_id_hex(id, 4));
    code = berth_redis_open(&c->redis, &cp->redis, err);
    if (!code)
        code = cp_keys_new(cp, &source, &cp->keys, err);
    if (!code)
        code = open_records(cp, c, err);
    if (!code)
        code = open_peers(cp, c, err);
    if (!code)
        code = make_parts(cp, c, err);
    if (!code)
        code = check_store(cp, err);
    if (!code)
        code = cp_changes_new(
            cp, c->redis.connections < LISTEN_CONNECTIONS ? 0 : c->redis.timeout_ms / 2,
            &cp->changes, err);
    if (!code)
        code = berth_records_start(cp->records, err);
    if (!code)
        code = cp_recover_new(cp, &cp->recover, err);
    if (!code)
        code = cp_keys_run(cp->keys, err);
    if (code)
        return code;
    berth_server_set_gate(runtime->server, berth_auth_gate(cp->auth));
    *ret_service = BERTH_STEAL(cp);
    return BERTH_OK;
}

static void stop(void *service)
{
    struct cp *cp = service;

    /* Locks on their way back. They have a deadline each. */
    while (atomic_load(&cp->background) > 0)
        usleep(1000);
    cp_free(cp);
}

static enum berth_code ready(void *service, struct berth_error *err)
{
    struct cp *cp = service;
    enum berth_code code = cp_enter(cp, err);

    if (!code)
        code = berth_epoch_check(cp->redis, err);
    if (!code)
        code = cp_keys_check(cp->keys, err);
    if (!code && !berth_channel_ready(cp->binding, 500))
        code = berth_fail(err, BERTH_REASON_PEER_UNAVAILABLE, "binding cannot be reached");
    return code;
}

static char *metrics(void *service)
{
    struct cp *cp = service;
    BERTH_AUTO(free) char *of_keys = cp_keys_metrics(cp->keys);
    BERTH_AUTO(free) char *of_records = berth_records_metrics(cp->records);
    BERTH_AUTO(free) char *of_resolves = cp_figures_metrics(&cp->figures);
    unsigned running, queued;
    char *text = NULL;

    cp_bulkhead_count(cp->bulkhead, &running, &queued);
    if (asprintf(&text,
                 "# HELP berth_backend_calls Work for backends: running and waiting.\n"
                 "# TYPE berth_backend_calls gauge\n"
                 "berth_backend_calls{state=\"running\"} %u\n"
                 "berth_backend_calls{state=\"waiting\"} %u\n"
                 "# HELP berth_event_watchers Callers of WatchEvents now.\n"
                 "# TYPE berth_event_watchers gauge\n"
                 "berth_event_watchers %u\n%s%s%s",
                 running, queued, cp_events_watchers(cp->events), of_keys ? of_keys : "",
                 of_records ? of_records : "", of_resolves ? of_resolves : "") < 0)
        return NULL;
    return text;
}

static enum berth_code reload(void *service, struct berth_error *err)
{
    struct cp *cp = service;

    return cp_keys_reload(cp->keys, err);
}

/* ------------------------------------------------------------------- commands */

/* What a command works with. */
static enum berth_code open_both(const struct settings *c, struct berth_redis **ret_redis,
                                 struct berth_keyring **ret_keyring, struct berth_error *err)
{
    const struct berth_key_source source = {
        .file = c->key_file, .text = c->suite_key, .command = c->key_command};
    enum berth_code code = berth_redis_open(&c->redis, ret_redis, err);

    return code ? code : berth_keyring_load(&source, ret_keyring, err);
}

/* A journal with records in it: this is no first start, the store was lost. */
static enum berth_code check_journal(const struct settings *c, const char *deployment,
                                     struct berth_error *err)
{
    BERTH_AUTO(berth_redis_free) struct berth_redis *redis = NULL;
    BERTH_AUTO(berth_keyring_free) struct berth_keyring *keyring = NULL;
    BERTH_AUTO(berth_journal_free) struct berth_journal *journal = NULL;
    struct berth_journal_options options = {
        .path = c->journal, .deployment = deployment, .read_only = true};
    struct berth_journal_count count;
    enum berth_code code;

    if (!*c->journal || access(c->journal, F_OK) != 0)
        return BERTH_OK;
    code = open_both(c, &redis, &keyring, err);
    options.keyring = keyring;
    if (!code)
        code = berth_journal_open(&options, &journal, NULL, err);
    if (code)
        return code;
    berth_journal_count(journal, &count);
    if (count.n_live > 0)
        return berth_fail_field(err, "init",
                                "%s has %zu records of this deployment: a store that was lost "
                                "is recovered by a start without --init",
                                c->journal, count.n_live);
    return BERTH_OK;
}

/* --init: a deployment's first start. */
static enum berth_code init(const void *config, const char *deployment, struct berth_error *err)
{
    BERTH_AUTO(berth_redis_free) struct berth_redis *redis = NULL;
    enum berth_code code =
        berth_redis_open(&((const struct settings *)config)->redis, &redis, err);

    if (!code)
        code = check_journal(config, deployment, err);
    return code ? code : berth_deployment_init(redis, deployment, err);
}

static void tell_count(const char *what, const char *path, const struct berth_backup_count *n)
{
    printf("%s %s: %zu tenants, %zu configs\n", what, path, n->n_tenants, n->n_configs);
}

static enum berth_code export_records(const void *config, const char *deployment,
                                      const char *path, struct berth_error *err)
{
    BERTH_AUTO(berth_redis_free) struct berth_redis *redis = NULL;
    BERTH_AUTO(berth_keyring_free) struct berth_keyring *keyring = NULL;
    struct berth_backup_count count;
    enum berth_code code = open_both(config, &redis, &keyring, err);

    if (!code)
        code = berth_records_export(redis, keyring, deployment, path, &count, err);
    if (!code)
        tell_count("exported to", path, &count);
    return code;
}

static enum berth_code import_from(const void *config, const char *deployment, const char *path,
                                   bool over, struct berth_error *err)
{
    BERTH_AUTO(berth_redis_free) struct berth_redis *redis = NULL;
    BERTH_AUTO(berth_keyring_free) struct berth_keyring *keyring = NULL;
    struct berth_backup_count count;
    enum berth_code code = open_both(config, &redis, &keyring, err);

    if (!code)
        code = berth_records_import(redis, keyring, deployment, path, over, &count, err);
    if (!code)
        tell_count("imported from", path, &count);
    return code;
}

static enum berth_code import_records(const void *config, const char *deployment,
                                      const char *path, struct berth_error *err)
{
    return import_from(config, deployment, path, false, err);
}

static enum berth_code import_over(const void *config, const char *deployment, const char *path,
                                   struct berth_error *err)
{
    return import_from(config, deployment, path, true, err);
}

static enum berth_code recover_without(const void *config, const char *deployment,
                                       const char *what, struct berth_error *err)
{
    BERTH_AUTO(berth_redis_free) struct berth_redis *redis = NULL;
    enum berth_code code =
        berth_redis_open(&((const struct settings *)config)->redis, &redis, err);

    if (!code)
        code = berth_deployment_check(redis, deployment, err);
    if (!code)
        code = berth_recovery_without(redis, what, err);
    if (!code)
        printf("recovery goes on without %s\n", what);
    return code;
}

static const struct berth_command commands[] = {
    {"--export", "FILE", "write every record into FILE, sealed under the suite's key,",
     export_records},
    {"--import", "FILE", "bring the records of FILE into an empty store", import_records},
    {"--import-over", "FILE", "the same, in place of all that is in the store", import_over},
    {"--recover-without", "WHAT",
     "recover though a journal (its id) or a config (TENANT/CONFIG) will not come back,",
     recover_without},
};

int main(int argc, char **argv)
{
    size_t n_methods;
    const struct berth_method *methods = cp_methods(&n_methods);
    const struct berth_service service = {
        .name = "controlplane",
        .doc = "configs, tenants, sessions and templates",
        .port = 7400,
        .keys = keys,
        .n_keys = BERTH_COUNT(keys),
        .config_size = sizeof(struct settings),
        .methods = methods,
        .n_methods = n_methods,
        .services = services,
        .n_services = BERTH_COUNT(services),
        .start = start,
        .ready = ready,
        .metrics = metrics,
        .reload = reload,
        .stop = stop,
        .init = init,
        .commands = commands,
        .n_commands = BERTH_COUNT(commands),
    };

    return berth_service_main(&service, argc, argv);
}
