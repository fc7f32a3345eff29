/* skills - skills installed into images, snapshots of sessions, and the ledger of all
 * snapshots.
 *
 * Called by: everybody (SnapshotService, SkillService).
 * Calls:     controlplane (routes, use tokens, targets, maintenance sessions), dataplane (what
 *            is done in those), adapters (snapshots), Redis (the ledger: rows in c/<config> and
 *            i/snapshot).
 * Files:     snapshot_rpc.c decodes and encodes; snapshot_make.c makes one; ledger.c knows
 *            every key; backend.c the peers; janitor.c finishes what was left behind. upload.c
 *            receives a bundle, bundle/ judges it, install.c answers; operation*.c queue what
 *            is to be done, chain*.c carry it out in the sandbox of work/, image*.c make it
 *            live; blobs.c keeps bundles; catalog*.c say what an image holds, prune*.c free
 *            those of before.
 */
#include <stdio.h>

#include "common/ids/ids.h"
#include "common/log/log.h"
#include "common/records/deployment.h"
#include "common/redis/settings.h"
#include "services/skills/blobs.h"
#include "services/skills/catalog.h"
#include "services/skills/chain.h"
#include "services/skills/janitor.h"
#include "services/skills/operation_rpc.h"
#include "services/skills/skills.h"
#include "services/skills/upload.h"

struct settings {
    struct berth_redis_settings redis;
    char *key_file, *key_command, *suite_key;
    char *journal;
    bool journal_skip_damaged;
    char *controlplane, *dataplane, *binding;
    struct berth_adapter_settings adapters;
    int64_t snapshot_timeout, build_lease, janitor_interval;
    int64_t backend_calls;
    char *spool;
    int64_t bundle_bytes, uploads, upload_idle, upload_timeout;
    char *blob_dir;
    int64_t operations, operation_timeout, command_timeout;
    int64_t image_growth, image_slack, image_max;
};

#define KEY(field, type, value, doc)                                                           \
    {                                                                                          \
#field, BERTH_CONFIG_##type, offsetof(struct settings, field), value, doc              \
    }

static const struct berth_config_key keys[] = {
    BERTH_REDIS_KEYS(struct settings, redis, "16"),
    KEY(key_file, STR, "/etc/berth/suite.key",
        "the suite's keys, as of controlplane: they seal the journal; mode 0600; read again "
        "when "
        "it changes"),
    KEY(key_command, STR, "",
        "in place of key_file, as of controlplane; asked again at SIGHUP"),
    KEY(suite_key, SECRET, "", "in place of key_file: the keys themselves, commas between"),
    KEY(journal, STR, "/var/lib/berth/skills.journal",
        "file that every row of the ledger is written to as well, sealed under the suite's "
        "keys, "
        "and read back from when Redis has lost them; one per replica; empty: none"),
    KEY(journal_skip_damaged, BOOL, "false",
        "go on where the journal is damaged, without the entries that stood there"),
    KEY(controlplane, STR, "", "target of controlplane; empty: its socket in run_dir"),
    KEY(dataplane, STR, "",
        "target of the data plane, by which skills are installed; empty: its socket in "
        "run_dir"),
    KEY(binding, STR, "", "target of binding; empty: its socket in run_dir"),
    BERTH_ADAPTER_KEYS(struct settings, adapters),
    KEY(snapshot_timeout, MS, "10m", "longest time a backend gets to make a snapshot"),
    KEY(build_lease, MS, "15s",
        "a build whose process gives no sign of life so long is taken over"),
    KEY(janitor_interval, MS, "60s", "how often unfinished builds and deletes are looked at"),
    KEY(backend_calls, INT, "24", "backend calls at once, at most, leaving 8 workers free"),
    KEY(spool, STR, "/var/tmp",
        "folder for bundles that are being judged, and what they unpack to (up to 512 MiB "
        "each): nameless files, gone with the process"),
    KEY(bundle_bytes, INT, "134217728", "bytes of a bundle as it is sent, at most"),
    KEY(uploads, INT, "4", "bundles received and judged at once, at most"),
    KEY(upload_idle, MS, "30s", "an upload of which nothing comes for so long is given up"),
    KEY(upload_timeout, MS, "10m", "an upload that is not whole by then is given up"),
    KEY(blob_dir, STR, "",
        "folder that bundles and the logs of operations are kept in, shared by replicas; "
        "empty: "
        "nothing can be installed"),
    KEY(operations, INT, "8",
        "changes of images carried out at once, at most; one at a time of each config"),
    KEY(operation_timeout, MS, "1h",
        "longest time for one of them; what is left to an external installer comes on top"),
    KEY(command_timeout, MS, "15m", "longest time for one command of an installation"),
    KEY(image_growth, INT, "4",
        "an image whose layers are so many times as big as its skills is built anew from the "
        "base template by the next operation; 0: never"),
    KEY(image_slack, INT, "268435456", "bytes of layers that are left out of that"),
    KEY(image_max, INT, "17179869184",
        "bytes of layers from which on that is done where they are a quarter more than the "
        "skills; 0: never"),
};
#undef KEY

enum { WORKERS_FREE = 8, PER_ADAPTER = 16 };

static const char *const services[] = {"berth.skills.v1.SkillService",
                                       "berth.skills.v1.SnapshotService"};

/* One table of both services. */
static const struct berth_method *all_methods(size_t *ret_n)
{
    static struct berth_method all[32];
    size_t n = 0;

    for (size_t i = 0; i < skills_n_snapshot_methods && n < BERTH_COUNT(all); i++)
        all[n++] = skills_snapshot_methods[i];
    for (size_t i = 0; i < skills_n_install_methods && n < BERTH_COUNT(all); i++)
        all[n++] = skills_install_methods[i];
    for (size_t i = 0; i < skills_n_operation_methods && n < BERTH_COUNT(all); i++)
        all[n++] = skills_operation_methods[i];
    for (size_t i = 0; i < skills_n_watch_methods && n < BERTH_COUNT(all); i++)
        all[n++] = skills_watch_methods[i];
    for (size_t i = 0; i < skills_n_catalog_methods && n < BERTH_COUNT(all); i++)
        all[n++] = skills_catalog_methods[i];
    for (size_t i = 0; i < skills_n_prune_methods && n < BERTH_COUNT(all); i++)
        all[n++] = skills_prune_methods[i];
    *ret_n = n;
    return all;
}

static void skills_free(struct skills *skills)
{
    if (!skills)
        return;
    skills->follow = berth_follow_free(skills->follow);
    skills->auth = berth_auth_free(skills->auth);
    skills->watches = skills_watches_free(skills->watches);
    skills->janitor = skills_janitor_free(skills->janitor);
    skills->chain = skills_chain_free(skills->chain);
    skills->blobs = skills_blobs_free(skills->blobs);
    skills->binding = berth_channel_free(skills->binding);
    skills->controlplane = berth_channel_free(skills->controlplane);
    skills->dataplane = berth_channel_free(skills->dataplane);
    berth_adapters_close(&skills->adapters);
    skills->records = berth_records_free(skills->records);
    skills->keyring = berth_keyring_free(skills->keyring);
    skills->redis = berth_redis_free(skills->redis);
    free(skills);
}
BERTH_DEFINE_AUTO(struct skills *, skills_free)

static enum berth_code open_peers(struct skills *skills, const struct settings *c,
                                  struct berth_error *err)
{
    enum berth_code code = berth_peer_channel(skills->runtime, "controlplane", c->controlplane,
                                              NULL, &skills->controlplane, err);

    if (!code)
        code = berth_peer_channel(skills->runtime, "dataplane", c->dataplane, NULL,
                                  &skills->dataplane, err);
    code =
        berth_peer_channel(skills->runtime, "binding", c->binding, NULL, &skills->binding, err);
    if (!code)
        code = berth_adapters_open(skills->runtime, &c->adapters, PER_ADAPTER,
                                   &skills->adapters, err);
    return code;
}

static enum berth_code open_records(struct skills *skills, const struct settings *c,
                                    struct berth_error *err)
{
    struct berth_records_options options = {
        .redis = skills->redis,
        .deployment = skills->runtime->deployment,
        .name = "skills",
        .path = c->journal,
        .skip_damaged = c->journal_skip_damaged,
    };
    enum berth_code code = BERTH_OK;

    skills->key_source = (struct berth_key_source){
        .file = c->key_file, .text = c->suite_key, .command = c->key_command};
    if (*skills->key_source.text || *skills->key_source.command)
        skills->key_source.file = "";
    (void)stat(skills->key_source.file, &skills->keys_seen); /* before it is read */
    if (*c->journal)
        code = berth_keyring_load(&skills->key_source, &skills->keyring, err);
    options.keyring = skills->keyring;
    return code ? code : berth_records_new(&options, &skills->records, err);
}

/* Another's store stops the start; one that is away does not. */
static enum berth_code check_store(struct skills *skills, struct berth_error *err)
{
    struct berth_error why = {0};
    enum berth_code code = berth_records_claim(skills->records, &why);

    if (code == BERTH_INVALID_ARGUMENT) {
        if (err)
            *err = why;
        return code;
    }
    atomic_store(&skills->store_checked, code == BERTH_OK);
    if (code)
        berth_warn("the store cannot be reached, serving all the same and trying again",
                   "error", why.text);
    return BERTH_OK;
}

static enum berth_code make_gate(struct skills *skills, struct berth_error *err)
{
    const struct berth_auth_options options = {.look = berth_introspect_look,
                                               .arg = &skills->introspect,
                                               .loop = skills->runtime->loop};
    enum berth_code code = berth_auth_new(&options, &skills->auth, err);

    skills->introspect = (struct berth_introspect){.controlplane = skills->controlplane,
                                                   .pool = skills->runtime->pool};
    if (!code)
        code = berth_follow_new(skills->controlplane, skills->runtime->loop, skills->auth,
                                &skills->follow, err);
    if (code)
        return code;
    skills->introspect.follow = skills->follow;
    berth_server_set_gate(skills->runtime->server, berth_auth_gate(skills->auth));
    return BERTH_OK;
}

static enum berth_code check_chain(const struct settings *c, struct berth_error *err)
{
    if (c->operations < 1 || c->operations > 64)
        return berth_fail_field(err, "operations", "must be 1 to 64");
    if (c->operation_timeout < 1000)
        return berth_fail_field(err, "operation_timeout", "must be at least 1 second");
    if (c->command_timeout < 1000)
        return berth_fail_field(err, "command_timeout", "must be at least 1 second");
    if (c->image_growth < 0 || c->image_slack < 0 || c->image_max < 0)
        return berth_fail_field(err, "image_growth", "must not be negative");
    return BERTH_OK;
}

static enum berth_code make_chain(struct skills *skills, const struct settings *c,
                                  struct berth_error *err)
{
    const struct skills_chain_options options = {
        .max_running = (unsigned)c->operations,
        .timeout_ms = c->operation_timeout,
        .step_timeout_ms = c->command_timeout,
        .growth = {.factor = (uint64_t)c->image_growth,
                   .slack_bytes = (uint64_t)c->image_slack,
                   .max_bytes = (uint64_t)c->image_max},
    };
    enum berth_code code = check_chain(c, err);

    if (!code && *c->blob_dir)
        code = skills_blobs_new(c->blob_dir, &skills->blobs, err);
    else if (!code)
        berth_warn("blob_dir is not set: bundles are judged, and not installed");
    return code ? code : skills_chain_new(skills, &options, &skills->chain, err);
}

static enum berth_code start(const void *config, const struct berth_runtime *runtime,
                             void **ret_service, struct berth_error *err)
{
    const struct settings *c = config;
    BERTH_AUTO(skills_free) struct skills *skills = calloc(1, sizeof *skills);
    enum berth_code code;

    if (!skills)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (c->backend_calls < 1 || c->backend_calls + WORKERS_FREE > (int64_t)runtime->n_workers)
        return berth_fail_field(err, "backend_calls", "must be 1 to workers - %d",
                                WORKERS_FREE);
    if (c->snapshot_timeout < 1000)
        return berth_fail_field(err, "snapshot_timeout", "must be at least 1 second");
    if (c->build_lease < 300)
        return berth_fail_field(err, "build_lease", "must be at least 300 ms");
    if (c->janitor_interval < 10)
        return berth_fail_field(err, "janitor_interval", "must be at least 10 ms");
    if (c->bundle_bytes < 1 || c->bundle_bytes > 1 << 30)
        return berth_fail_field(err, "bundle_bytes", "must be 1 to 1 GiB");
    if (c->uploads < 1 || c->uploads + WORKERS_FREE > (int64_t)runtime->n_workers)
        return berth_fail_field(err, "uploads", "must be 1 to workers - %d", WORKERS_FREE);
    if (c->upload_idle < 100)
        return berth_fail_field(err, "upload_idle", "must be at least 100 ms");
    if (c->upload_timeout < 100)
        return berth_fail_field(err, "upload_timeout", "must be at least 100 ms");
    skills->upload_timeout_ms = c->upload_timeout;
    skills->spool = c->spool;
    skills->bundle_bytes = (uint64_t)c->bundle_bytes;
    skills->max_uploads = (unsigned)c->uploads;
    skills->upload_idle_ms = c->upload_idle;
    skills->runtime = runtime;
    skills->snapshot_timeout_ms = c->snapshot_timeout;
    skills->build_lease_ms = c->build_lease;
    berth_id_hex(skills->owner, (sizeof skills->owner - 1) / 2);
    skills->max_calls = (unsigned)c->backend_calls;
    code = berth_redis_open(&c->redis, &skills->redis, err);
    if (!code)
        code = open_records(skills, c, err);
    if (!code)
        code = open_peers(skills, c, err);
    if (!code)
        code = make_gate(skills, err);
    if (!code)
        code = skills_watches_new(skills, &skills->watches, err);
    if (!code)
        code = check_store(skills, err);
    if (!code)
        code = berth_records_start(skills->records, err);
    if (!code)
        code = make_chain(skills, c, err);
    if (!code)
        code = skills_chain_start(skills->chain, err);
    if (!code)
        code = skills_janitor_new(skills, c->janitor_interval, &skills->janitor, err);
    if (code)
        return code;
    *ret_service = BERTH_STEAL(skills);
    return BERTH_OK;
}

static void stop(void *service)
{
    skills_free(service);
}

static enum berth_code reload(void *service, struct berth_error *err)
{
    return skills_keys_reload(service, err);
}

static char *metrics(void *service)
{
    const struct skills *skills = service;

    return berth_records_metrics(skills->records);
}

static enum berth_code ready(void *service, struct berth_error *err)
{
    struct skills *skills = service;
    enum berth_code code = skills_enter(skills, err);

    skills_keys_look(skills);
    if (!code)
        code = berth_epoch_check(skills->redis, err);
    if (!code && !berth_channel_ready(skills->controlplane, 500))
        code = berth_fail(err, BERTH_REASON_PEER_UNAVAILABLE, "controlplane cannot be reached");
    return code;
}

int main(int argc, char **argv)
{
    size_t n_methods;
    const struct berth_method *methods = all_methods(&n_methods);
    const struct berth_service service = {
        .name = "skills",
        .doc = "skills in images, snapshots of sessions, and the ledger of all",
        .port = 7402,
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
    };

    return berth_service_main(&service, argc, argv);
}
