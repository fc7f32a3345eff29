/* local_catalog.c - snapshots and templates of the local backend. */
#include <stdio.h>

#include "common/json/json.h"
#include "services/adapter-local/local_impl.h"

/* ------------------------------------------------------------------ snapshots */

enum berth_code local_snapshot(struct adapter *local, const char *id, const char *name,
                               const struct adapter_pairs *metadata,
                               const struct adapter_grant *grant, int64_t deadline_ms,
                               struct adapter_snapshot *ret, struct berth_error *err)
{
    BERTH_AUTO(json_decref) json_t *answer = NULL;
    struct snapshot_record record;
    char snapshot_id[ADAPTER_ID_SIZE];
    json_t *request = local_with(local_about(id, grant), "name", json_string(name));
    enum berth_code code;

    if (request)
        request = local_with(request, "metadata", adapter_pairs_to_json(metadata));
    code = spawn_client_call(local->spawner, "snapshot", request, deadline_ms, NULL, NULL,
                             &answer, err);
    if (!code)
        code =
            berth_json_get_str(answer, "snapshot_id", snapshot_id, sizeof snapshot_id, "", err);
    if (!code)
        code = snapshot_load(&local->store, snapshot_id, &record, err);
    if (code)
        return code;
    *ret = record.info;
    record.info.metadata = (struct adapter_pairs){0};
    snapshot_record_deinit(&record);
    return BERTH_OK;
}

enum berth_code local_list_snapshots(struct adapter *local, int64_t deadline_ms,
                                     struct adapter_snapshot **ret, size_t *ret_n,
                                     bool *ret_complete, struct berth_error *err)
{
    BERTH_AUTO(free) struct adapter_snapshot *snapshots = NULL;
    bool complete = true;
    char **ids = NULL;
    size_t n_ids = 0, n = 0;
    enum berth_code code = store_list(local->store.snapshots_fd, &ids, &n_ids, err);

    (void)deadline_ms;
    if (!code) {
        snapshots = calloc(n_ids + 1, sizeof *snapshots);
        if (!snapshots)
            code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    for (size_t i = 0; !code && i < n_ids; i++) {
        struct snapshot_record record;
        enum berth_code read = snapshot_load(&local->store, ids[i], &record, NULL);

        if (read)
            complete = complete && read == BERTH_NOT_FOUND;
        else {
            if (!record.deleted) {
                snapshots[n++] = record.info;
                record.info.metadata = (struct adapter_pairs){0};
            }
            snapshot_record_deinit(&record);
        }
    }
    store_list_free(ids, n_ids);
    if (code)
        return code;
    *ret = BERTH_STEAL(snapshots);
    *ret_n = n;
    *ret_complete = complete;
    return BERTH_OK;
}

enum berth_code local_delete_snapshot(struct adapter *local, const char *id,
                                      const struct adapter_grant *grant, int64_t deadline_ms,
                                      struct adapter_removed *ret, struct berth_error *err)
{
    BERTH_AUTO(json_decref) json_t *answer = NULL;
    json_t *request =
        json_pack("{s:s, s:I, s:I}", "snapshot_id", id, "fence", (json_int_t)grant->fence,
                  "not_after_ms", (json_int_t)grant->not_after_ms);
    enum berth_code code = spawn_client_call(local->spawner, "delete_snapshot", request,
                                             deadline_ms, NULL, NULL, &answer, err);

    if (!code)
        *ret = (struct adapter_removed){
            .existed = json_is_true(json_object_get(answer, "existed")),
            .in_use = json_is_true(json_object_get(answer, "in_use")),
        };
    return code;
}

/* ------------------------------------------------------------------ templates */

enum berth_code local_list_templates(struct adapter *local, int64_t deadline_ms,
                                     struct adapter_template **ret, size_t *ret_n,
                                     struct berth_error *err)
{
    (void)deadline_ms;
    return template_list(&local->store, ret, ret_n, err);
}

enum berth_code local_build_template(struct adapter *local, const char *name,
                                     adapter_progress_fn progress, void *arg,
                                     int64_t deadline_ms, struct adapter_template *ret,
                                     struct berth_error *err)
{
    char layer[STORE_PATH_MAX];
    enum berth_code code =
        spawn_client_call(local->spawner, "build_template", json_pack("{s:s}", "name", name),
                          deadline_ms, progress, arg, NULL, err);

    return code ? code : template_load(&local->store, name, ret, layer, err);
}

enum berth_code local_delete_template(struct adapter *local, const char *id,
                                      int64_t deadline_ms, bool *ret_existed,
                                      struct berth_error *err)
{
    BERTH_AUTO(json_decref) json_t *answer = NULL;
    enum berth_code code = spawn_client_call(local->spawner, "delete_template",
                                             json_pack("{s:s}", "template_id", id), deadline_ms,
                                             NULL, NULL, &answer, err);

    if (!code)
        *ret_existed = json_is_true(json_object_get(answer, "existed"));
    return code;
}
