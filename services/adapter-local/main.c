/* adapter-local - sandboxes of this host, made of namespaces.
 *
 * Called by: controlplane, skills, reaper (berth.backend.v1), dataplane (commands and files).
 * Calls:     berth-local-spawner, which it starts, and the supervisors of sandboxes.
 * Files:     ../adapter/ serves and checks; local.c reads the store; spawn_client.c asks the
 *            spawner for every change; spawner/ is the other programs. */
#include "common/svc/svc.h"
#include "services/adapter-local/local.h"

#include <stdio.h>

struct settings {
    char *state_dir;
    char *template_dirs;
    char *network_cidr;
    char *resolvers;
    char *slots_dir;
    char *spawner;
    char *supervisor;
    char *key_file;
    int64_t default_cpu_millis;
    int64_t default_memory;
    int64_t default_processes;
    int64_t default_open_files;
    int64_t measure_interval;
    int64_t ended_keep;
};

#define KEY(field, type, value, doc)                                                           \
    {                                                                                          \
#field, BERTH_CONFIG_##type, offsetof(struct settings, field), value, doc              \
    }

static const struct berth_config_key keys[] = {
    KEY(state_dir, STR, "/var/lib/berth/local",
        "where sandboxes, snapshots and templates are kept; ext4, xfs or btrfs, only for us"),
    KEY(template_dirs, STR, "", "more directories with templates, only read; by ':'"),
    KEY(network_cidr, STR, "10.213.0.0/16",
        "private network of the sandboxes of this host; each takes a /30"),
    KEY(resolvers, STR, "",
        "resolvers that sandboxes' names are asked of, by blanks; empty: the host's"),
    KEY(slots_dir, STR, "/run/berth/slots", "lock files, the same for all stores of a host"),
    KEY(spawner, STR, "", "path of berth-local-spawner; empty: beside this program"),
    KEY(supervisor, STR, "", "path of berth-local-supervisor; empty: beside this program"),
    KEY(key_file, STR, "", "the suite's key; not read, this backend has no credentials"),
    KEY(default_cpu_millis, INT, "2000", "of a sandbox that names none; 1000 is one processor"),
    KEY(default_memory, BYTES, "2GiB", "of a sandbox that names none; /tmp counts, too"),
    KEY(default_processes, INT, "1024", "of a sandbox that names none; threads count, too"),
    KEY(default_open_files, INT, "4096", "of each process of a sandbox that names none"),
    KEY(measure_interval, MS, "60s",
        "at most so often is measured what sandboxes have stored; 10 ms to 24 h"),
    KEY(ended_keep, MS, "24h",
        "so long the files of a sandbox that has ended are kept, if nobody deletes it; up to "
        "366 days"),
};
#undef KEY

static enum berth_code open_local(const struct settings *c, struct adapter **ret,
                                  struct berth_error *err)
{
    const struct {
        const char *name;
        int64_t value;
    } limits[] = {{"default_cpu_millis", c->default_cpu_millis},
                  {"default_processes", c->default_processes},
                  {"default_open_files", c->default_open_files}};
    struct local_options options = {
        .state_dir = c->state_dir,
        .template_dirs = c->template_dirs,
        .network_cidr = c->network_cidr,
        .resolvers = c->resolvers,
        .slots_dir = c->slots_dir,
        .spawner = c->spawner,
        .supervisor = c->supervisor,
        .measure_ms = c->measure_interval,
        .ended_keep_ms = c->ended_keep,
        .defaults = {.cpu_millis = (uint32_t)c->default_cpu_millis,
                     .memory_bytes = (uint64_t)c->default_memory,
                     .max_processes = (uint32_t)c->default_processes,
                     .max_open_files = (uint32_t)c->default_open_files},
    };

    for (size_t i = 0; i < BERTH_COUNT(limits); i++)
        if (limits[i].value < 1 || limits[i].value > INT32_MAX)
            return berth_fail_field(err, limits[i].name, "must be 1 to %d", INT32_MAX);
    if (c->measure_interval < 10 || c->measure_interval > 24 * 3600 * 1000)
        return berth_fail_field(err, "measure_interval", "must be 10 ms to 24 h");
    if (c->ended_keep < 0 || c->ended_keep > 366LL * 24 * 3600 * 1000)
        return berth_fail_field(err, "ended_keep", "must be 0 ms to 366 days");
    if (c->default_memory < 16 << 20)
        return berth_fail_field(err, "default_memory", "must be at least 16MiB");
    return local_new(&options, ret, err);
}

static enum berth_code start(const void *config, const struct berth_runtime *runtime,
                             void **ret_service, struct berth_error *err)
{
    struct adapter_service *service = calloc(1, sizeof *service);
    enum berth_code code;

    if (!service)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    service->ops = &local_ops;
    service->runtime = runtime;
    code = open_local(config, &service->adapter, err);
    if (code) {
        free(service);
        return code;
    }
    *ret_service = service;
    return BERTH_OK;
}

static enum berth_code ready(void *service, struct berth_error *err)
{
    const struct adapter_service *s = service;

    return s->ops->ready(s->adapter, err);
}

static char *metrics(void *service)
{
    const struct adapter_service *s = service;

    return local_metrics(s->adapter);
}

static void stop(void *service)
{
    struct adapter_service *s = service;

    local_free(s->adapter);
    free(s);
}

/* --probe [--<key>=<value>...]: try this host and the settings, say how it went, and end. */
static int probe(int argc, char **argv)
{
    const char *overrides[64];
    struct berth_error err = {0};
    struct adapter *local = NULL;
    struct settings settings;
    size_t n = 0;

    for (int i = 2; i < argc && n < BERTH_COUNT(overrides); i++)
        overrides[n++] = strncmp(argv[i], "--", 2) == 0 ? argv[i] + 2 : argv[i];
    if (berth_config_load(keys, BERTH_COUNT(keys), NULL, overrides, n, &settings, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 2;
    }
    if (open_local(&settings, &local, &err))
        fprintf(stderr, "%s\n", err.text);
    else
        printf("this host can run sandboxes\n");
    berth_config_deinit(keys, BERTH_COUNT(keys), &settings);
    local_free(local);
    return err.code ? 1 : 0;
}

enum { METHODS_MAX = 64 };

static size_t append(struct berth_method *to, size_t n, const struct berth_method *from,
                     size_t n_from)
{
    for (size_t i = 0; i < n_from && n < METHODS_MAX; i++)
        to[n++] = from[i];
    return n;
}

int main(int argc, char **argv)
{
    static const char *const services[] = {
        "berth.backend.v1.BackendService",  "berth.backend.v1.SnapshotService",
        "berth.backend.v1.TemplateService", "berth.data.v1.ProcessService",
        "berth.data.v1.FileService",        "berth.data.v1.WorkspaceService"};
    static struct berth_method methods[METHODS_MAX];
    struct berth_service service = {
        .name = "adapter-local",
        .doc = "Sandboxes of this host: namespaces, overlay, control groups.",
        .port = 7410,
        .internal = true,
        .keys = keys,
        .n_keys = BERTH_COUNT(keys),
        .config_size = sizeof(struct settings),
        .methods = methods,
        .services = services,
        .n_services = BERTH_COUNT(services),
        .start = start,
        .ready = ready,
        .metrics = metrics,
        .stop = stop,
    };
    size_t n = 0;

    if (argc >= 2 && strcmp(argv[1], "--probe") == 0)
        return probe(argc, argv);
    n = append(methods, n, adapter_backend_methods, n_adapter_backend_methods);
    n = append(methods, n, adapter_catalog_methods, n_adapter_catalog_methods);
    n = append(methods, n, adapter_process_methods, n_adapter_process_methods);
    n = append(methods, n, adapter_file_methods, n_adapter_file_methods);
    n = append(methods, n, adapter_workspace_methods, n_adapter_workspace_methods);
    service.n_methods = n;
    return berth_service_main(&service, argc, argv);
}
