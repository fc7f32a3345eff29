#include "services/adapter-local/local_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

#include "common/json/json.h"
#include "common/time/time.h"
#include "services/adapter-local/carry.h"
#include "services/adapter-local/files.h"
#include "services/adapter-local/process.h"

enum { MAX_PROCESSES = 32768, CREATE_HORIZON_MS = 60 * 1000 };

/* Numbers of berth.common.v1. */
enum { ISOLATION_NAMESPACE = 2, TIMEOUT_MODEL_NONE = 3, DATA_PLANE_ADAPTER = 1 };

/* ----------------------------------------------------------------------- life */

static void read_maximum(struct adapter *local)
{
    struct sysinfo host = {0};
    struct rlimit files = {0};
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);

    (void)sysinfo(&host);
    (void)getrlimit(RLIMIT_NOFILE, &files);
    local->max = (struct adapter_resources){
        .cpu_millis = cpus > 0 ? (uint32_t)cpus * 1000 : 1000,
        .memory_bytes = (uint64_t)host.totalram * host.mem_unit,
        .max_processes = MAX_PROCESSES,
        .max_open_files = files.rlim_max > INT32_MAX ? INT32_MAX : (uint32_t)files.rlim_max,
    };
}

static uint64_t at_most(uint64_t value, uint64_t max)
{
    return value < max ? value : max;
}

static void set_defaults(struct adapter *local, const struct adapter_resources *defaults)
{
    const struct adapter_resources *max = &local->max;

    local->defaults = (struct adapter_resources){
        .cpu_millis = (uint32_t)at_most(defaults->cpu_millis, max->cpu_millis),
        .memory_bytes = at_most(defaults->memory_bytes, max->memory_bytes),
        .max_processes = (uint32_t)at_most(defaults->max_processes, max->max_processes),
        .max_open_files = (uint32_t)at_most(defaults->max_open_files, max->max_open_files),
    };
}

/* The path of a program: as set, or beside our own. */
static enum berth_code find_program(const char *set, const char *name, char *path, size_t size,
                                    struct berth_error *err)
{
    char own[STORE_PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", own, sizeof own - 1);
    char *slash;

    if (len < 0)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "read /proc/self/exe: %s",
                          strerror(errno));
    own[len] = 0;
    slash = strrchr(own, '/');
    if (slash)
        *slash = 0;
    len = *set ? snprintf(path, size, "%s", set) : snprintf(path, size, "%s/%s", own, name);
    if (len < 0 || (size_t)len >= size || path[0] != '/')
        return berth_fail_field(err, name, "an absolute path");
    return BERTH_OK;
}

enum berth_code local_new(const struct local_options *options, struct adapter **ret,
                          struct berth_error *err)
{
    BERTH_AUTO(local_free) struct adapter *local = NULL;
    char spawner[STORE_PATH_MAX], supervisor[STORE_PATH_MAX];
    enum berth_code code;
    json_t *open;

    code = find_program(options->spawner, "berth-local-spawner", spawner, sizeof spawner, err);
    if (!code)
        code = find_program(options->supervisor, "berth-local-supervisor", supervisor,
                            sizeof supervisor, err);
    if (code)
        return code;
    local = calloc(1, sizeof *local);
    if (!local)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    local->store.fd = -1;
    code = store_open(options->state_dir, options->template_dirs, &local->store, err);
    if (code) {
        free(BERTH_STEAL(local));
        return code;
    }
    store_cgroup_name(&local->store, local->cgroup_name);
    if (cgroup_discover_self(&local->host, NULL))
        local->host.unified[0] = 0; /* the spawner says what is missing */
    read_maximum(local);
    set_defaults(local, &options->defaults);
    open = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I}", "state_dir",
                     options->state_dir, "template_dirs", options->template_dirs,
                     "network_cidr", options->network_cidr, "resolvers", options->resolvers,
                     "slots_dir", options->slots_dir, "supervisor", supervisor,
                     "measure_every_ms", (json_int_t)options->measure_ms, "ended_keep_ms",
                     (json_int_t)options->ended_keep_ms);
    if (!open)
        return berth_fail(err, BERTH_REASON_FIELD_INVALID, "settings must be UTF-8");
    code = spawn_client_new(spawner, open, &local->spawner, err);
    if (code)
        return code;
    *ret = BERTH_STEAL(local);
    return BERTH_OK;
}

struct adapter *local_free(struct adapter *local)
{
    if (!local)
        return NULL;
    spawn_client_free(local->spawner);
    store_close(&local->store);
    free(local);
    return NULL;
}

static void info(struct adapter *local, struct adapter_info *ret)
{
    *ret = (struct adapter_info){
        .isolation = ISOLATION_NAMESPACE,
        .timeout_model = TIMEOUT_MODEL_NONE,
        .data_plane = DATA_PLANE_ADAPTER,
        .commands = true,
        .files = true,
        .root_commands = true,
        .pause = true,
        .pause_keeps_memory = true,
        .snapshots = true,
        .snapshot_names_listed = true,
        .snapshot_host_bound = true,
        .egress_switch = true,
        .inbound_switch = true,
        .live_update = true,
        .templates_build = true,
        .keyed_create = true,
        .resources = true,
        .fenced = true,
        .max_resources = local->max,
        .create_horizon_ms = CREATE_HORIZON_MS,
    };
    snprintf(ret->account_id, sizeof ret->account_id, "%s", local->store.uuid);
}

static enum berth_code ready(struct adapter *local, struct berth_error *err)
{
    return spawn_client_ready(local->spawner, err);
}

char *local_metrics(struct adapter *local)
{
    unsigned count[ADAPTER_UNKNOWN + 1] = {0};
    struct adapter_sandbox *list = NULL;
    bool complete;
    size_t n = 0;
    char *text = NULL;

    if (local_ops.list(local, 0, &list, &n, &complete, NULL) == BERTH_OK)
        for (size_t i = 0; i < n; i++) {
            count[list[i].state]++;
            adapter_sandbox_deinit(&list[i]);
        }
    free(list);
    if (asprintf(&text,
                 "# TYPE berth_local_sandboxes gauge\n"
                 "berth_local_sandboxes{state=\"running\"} %u\n"
                 "berth_local_sandboxes{state=\"paused\"} %u\n"
                 "berth_local_sandboxes{state=\"terminal\"} %u\n"
                 "# TYPE berth_local_spawner_restarts_total counter\n"
                 "berth_local_spawner_restarts_total %u\n",
                 count[ADAPTER_RUNNING], count[ADAPTER_PAUSED], count[ADAPTER_TERMINAL],
                 spawn_client_restarts(local->spawner)) < 0)
        return NULL;
    return text;
}

/* ----------------------------------------------------------------------- read */

/* As its record says, and whether somebody else has frozen it. */
static enum berth_code describe(const struct adapter *local, const struct record *record,
                                struct adapter_sandbox *ret, struct berth_error *err)
{
    const struct cgroup group = {
        .host = &local->host, .store = local->cgroup_name, .id = record->id};
    enum berth_code code = record_describe(&local->store, record, ret, err);

    if (!code && ret->state == ADAPTER_RUNNING && local->host.unified[0] &&
        cgroup_is_frozen(&group) && !record_freeze_marked(&local->store, record->id)) {
        ret->state = ADAPTER_PAUSED;
        snprintf(ret->raw_state, sizeof ret->raw_state, "frozen by others");
    }
    return code;
}

static enum berth_code get(struct adapter *local, const char *id, int64_t deadline_ms,
                           struct adapter_sandbox *ret, struct berth_error *err)
{
    struct record record;
    enum berth_code code = record_load(&local->store, id, &record, err);

    (void)deadline_ms;
    if (code)
        return code;
    code = describe(local, &record, ret, err);
    record_deinit(&record);
    return code;
}

static void free_sandboxes(struct adapter_sandbox *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        adapter_sandbox_deinit(&list[i]);
    free(list);
}

static enum berth_code list(struct adapter *local, int64_t deadline_ms,
                            struct adapter_sandbox **ret, size_t *ret_n, bool *ret_complete,
                            struct berth_error *err)
{
    struct adapter_sandbox *sandboxes = NULL;
    bool complete = true;
    char **ids = NULL;
    size_t n_ids = 0, n = 0;
    enum berth_code code = store_list(local->store.sandboxes_fd, &ids, &n_ids, err);

    (void)deadline_ms;
    if (!code) {
        sandboxes = calloc(n_ids + 1, sizeof *sandboxes);
        if (!sandboxes)
            code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    for (size_t i = 0; !code && i < n_ids; i++) {
        struct record record;
        enum berth_code read = record_load(&local->store, ids[i], &record, err);

        if (read == BERTH_RESOURCE_EXHAUSTED)
            code = read;
        /* Gone meanwhile is no gap; one that cannot be read is. */
        else if (read)
            complete = complete && read == BERTH_NOT_FOUND;
        else {
            if (record.state != RECORD_DELETING)
                code = describe(local, &record, &sandboxes[n], err);
            n += !code && record.state != RECORD_DELETING;
            record_deinit(&record);
        }
    }
    store_list_free(ids, n_ids);
    if (code) {
        free_sandboxes(sandboxes, n);
        return code;
    }
    *ret = sandboxes;
    *ret_n = n;
    *ret_complete = complete;
    return BERTH_OK;
}

/* -------------------------------------------------------------------- changes */

json_t *local_about(const char *id, const struct adapter_grant *grant)
{
    return json_pack("{s:s, s:I, s:I}", "sandbox_id", id, "fence", (json_int_t)grant->fence,
                     "not_after_ms", (json_int_t)grant->not_after_ms);
}

json_t *local_with(json_t *request, const char *key, json_t *value)
{
    if (json_object_set_new(request, key, value) == 0)
        return request;
    json_decref(request);
    return NULL;
}

/* Ask, then say how the sandbox is now. */
static enum berth_code change(struct adapter *local, const char *op, const char *id,
                              json_t *request, int64_t deadline_ms, json_t **ret_answer,
                              struct adapter_sandbox *ret, struct berth_error *err)
{
    enum berth_code code = spawn_client_call(local->spawner, op, request, deadline_ms, NULL,
                                             NULL, ret_answer, err);

    return code ? code : get(local, id, deadline_ms, ret, err);
}

static struct adapter_resources decide_resources(const struct adapter *local,
                                                 const struct adapter_resources *want)
{
    const struct adapter_resources *defaults = &local->defaults;

    return (struct adapter_resources){
        .cpu_millis = want->cpu_millis ? want->cpu_millis : defaults->cpu_millis,
        .memory_bytes = want->memory_bytes ? want->memory_bytes : defaults->memory_bytes,
        .max_processes = want->max_processes ? want->max_processes : defaults->max_processes,
        .max_open_files =
            want->max_open_files ? want->max_open_files : defaults->max_open_files,
    };
}

static enum berth_code create(struct adapter *local, const struct adapter_create *want,
                              int64_t deadline_ms, struct adapter_sandbox *ret,
                              struct berth_error *err)
{
    BERTH_AUTO(json_decref) json_t *answer = NULL;
    struct adapter_resources resources = decide_resources(local, &want->resources);
    char id[ADAPTER_ID_SIZE];
    enum berth_code code;
    json_t *request = json_pack(
        "{s:s, s:s, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "key", want->unique_key,
        "attempt", want->attempt, "fence", (json_int_t)want->fence, "not_after_ms",
        (json_int_t)want->not_after_ms, "image", adapter_image_to_json(&want->image),
        "metadata", adapter_pairs_to_json(&want->metadata), "env",
        adapter_pairs_to_json(&want->env), "network", adapter_network_to_json(&want->network),
        "timeouts", adapter_timeouts_to_json(&want->timeouts), "resources",
        adapter_resources_to_json(&resources));
    code = spawn_client_call(local->spawner, "create", request, deadline_ms, NULL, NULL,
                             &answer, err);
    if (!code)
        code = berth_json_get_str(answer, "sandbox_id", id, sizeof id, "", err);
    if (!code)
        code = get(local, id, deadline_ms, ret, err);
    return code;
}

static enum berth_code connect(struct adapter *local, const char *id,
                               const struct adapter_grant *grant,
                               const struct adapter_timeouts *timeouts, int64_t deadline_ms,
                               struct adapter_sandbox *ret, bool *ret_resumed,
                               struct berth_error *err)
{
    BERTH_AUTO(json_decref) json_t *answer = NULL;
    json_t *request = local_about(id, grant);
    enum berth_code code;

    if (timeouts)
        request = local_with(request, "timeouts", adapter_timeouts_to_json(timeouts));
    code = change(local, "connect", id, request, deadline_ms, &answer, ret, err);
    if (!code)
        *ret_resumed = json_is_true(json_object_get(answer, "resumed"));
    return code;
}

static enum berth_code pause_sandbox(struct adapter *local, const char *id,
                                     const struct adapter_grant *grant, int64_t deadline_ms,
                                     struct adapter_sandbox *ret, struct berth_error *err)
{
    return change(local, "pause", id, local_about(id, grant), deadline_ms, NULL, ret, err);
}

/* There is no end here that could be shortened: extend_only says nothing. */
static enum berth_code set_timeout(struct adapter *local, const char *id,
                                   const struct adapter_grant *grant,
                                   const struct adapter_timeouts *timeouts, bool extend_only,
                                   int64_t deadline_ms, struct adapter_sandbox *ret,
                                   struct berth_error *err)
{
    (void)extend_only;
    return change(
        local, "set_timeout", id,
        local_with(local_about(id, grant), "timeouts", adapter_timeouts_to_json(timeouts)),
        deadline_ms, NULL, ret, err);
}

static enum berth_code set_network(struct adapter *local, const char *id,
                                   const struct adapter_grant *grant,
                                   const struct adapter_network *network, int64_t deadline_ms,
                                   struct adapter_sandbox *ret, struct berth_error *err)
{
    return change(
        local, "set_network", id,
        local_with(local_about(id, grant), "network", adapter_network_to_json(network)),
        deadline_ms, NULL, ret, err);
}

static enum berth_code destroy(struct adapter *local, const char *id,
                               const struct adapter_grant *grant,
                               int64_t unless_active_after_ms, int64_t deadline_ms,
                               bool *ret_existed, struct berth_error *err)
{
    BERTH_AUTO(json_decref) json_t *answer = NULL;
    json_t *request = local_with(local_about(id, grant), "unless_active_after_ms",
                                 json_integer(unless_active_after_ms));
    enum berth_code code = spawn_client_call(local->spawner, "delete", request, deadline_ms,
                                             NULL, NULL, &answer, err);

    if (!code)
        *ret_existed = json_is_true(json_object_get(answer, "existed"));
    return code;
}

const struct adapter_ops local_ops = {
    .backend = "local",
    .info = info,
    .ready = ready,
    .create = create,
    .connect = connect,
    .get = get,
    .list = list,
    .pause = pause_sandbox,
    .set_timeout = set_timeout,
    .set_network = set_network,
    .destroy = destroy,
    .snapshot = local_snapshot,
    .list_snapshots = local_list_snapshots,
    .delete_snapshot = local_delete_snapshot,
    .list_templates = local_list_templates,
    .build_template = local_build_template,
    .delete_template = local_delete_template,
    .process = &local_process_ops,
    .files = &local_file_ops,
    .workspace = &local_workspace_ops,
};
