#include "services/controlplane/judge.h"

#include <stdio.h>

#include "common/records/keys.h"
#include "common/records/message_json.h"
#include "services/controlplane/policy.h"

typedef Berth__Common__V1__SessionSpec SessionSpec;

bool cp_spec_asks(const SessionSpec *spec)
{
    return spec && (spec->image || spec->n_labels || spec->n_env || spec->network ||
                    spec->timeouts || spec->resources || spec->n_volumes);
}

bool cp_spec_differs(const SessionSpec *asked, const SessionSpec *has)
{
    BERTH_AUTO(free) uint8_t *one = NULL, *other = NULL;
    BERTH_AUTO(json_decref) json_t *one_json = NULL, *other_json = NULL;
    SessionSpec pinned;
    size_t size;

    if (!cp_spec_asks(asked) || !has)
        return false;
    pinned = *asked;
    pinned.config_id = has->config_id;
    size = berth__common__v1__session_spec__get_packed_size(has);
    if (berth__common__v1__session_spec__get_packed_size(&pinned) == size) {
        one = malloc(size + 1);
        other = malloc(size + 1);
        if (one && other) {
            berth__common__v1__session_spec__pack(has, one);
            berth__common__v1__session_spec__pack(&pinned, other);
            if (memcmp(one, other, size) == 0)
                return false;
        }
    }
    /* Maps may stand in another order. */
    one_json = berth_message_to_json(&has->base);
    other_json = berth_message_to_json(&pinned.base);
    return one_json && other_json && !json_equal(one_json, other_json);
}

/* A config's list of volumes is what its sessions may mount. */
static enum berth_code check_volumes(const struct cp_config *config, const SessionSpec *spec,
                                     struct berth_error *err)
{
    for (size_t i = 0; i < spec->n_volumes; i++) {
        bool found = false;

        for (size_t k = 0; k < config->settings->n_volumes; k++)
            if (strcmp(config->settings->volumes[k]->volume, spec->volumes[i]->volume) == 0)
                found = true;
        if (!found)
            return berth_fail(err, BERTH_REASON_VOLUME_NOT_FOUND,
                              "the config does not list volume '%s'", spec->volumes[i]->volume);
    }
    return BERTH_OK;
}

static enum berth_code over(const char *field, uint64_t wanted, uint64_t max,
                            struct berth_error *err)
{
    char path[64];

    if (!max || wanted <= max)
        return BERTH_OK;
    snprintf(path, sizeof path, "spec.resources.%s", field);
    return berth_fail_field(err, path, "the backend gives at most %llu",
                            (unsigned long long)max);
}

static enum berth_code check_resources(const struct cp_config *config,
                                       const Berth__Common__V1__Resources *wanted,
                                       struct berth_error *err)
{
    const Berth__Common__V1__Resources *max = config->info->max_resources;
    enum berth_code code;

    if (!wanted || !max)
        return BERTH_OK;
    code = over("cpu_millis", wanted->cpu_millis, max->cpu_millis, err);
    if (!code)
        code = over("memory_bytes", wanted->memory_bytes, max->memory_bytes, err);
    if (!code)
        code = over("disk_bytes", wanted->disk_bytes, max->disk_bytes, err);
    if (!code)
        code = over("max_processes", wanted->max_processes, max->max_processes, err);
    if (!code)
        code = over("max_open_files", wanted->max_open_files, max->max_open_files, err);
    return code;
}

enum berth_code cp_judge_wishes(const struct cp_config *config, const SessionSpec *spec,
                                struct berth_error *err)
{
    const Berth__Common__V1__Capabilities *caps = config->info->capabilities;
    enum berth_code code =
        cp_policy_check_narrow(config->settings->network, spec->network, err);

    if (!code)
        code = cp_policy_check_capable(caps, spec->network, spec->timeouts, spec->resources,
                                       spec->n_volumes, err);
    if (!code && spec->image &&
        spec->image->source_case == BERTH__COMMON__V1__IMAGE__SOURCE_SNAPSHOT_ID &&
        !(caps->snapshots && caps->snapshots->supported))
        code = cp_missing("snapshots", "spec.image", err);
    if (!code)
        code = check_resources(config, spec->resources, err);
    return code ? code : check_volumes(config, spec, err);
}

/* -------------------------------------------------------------------- image */

static enum berth_code no_snapshot(const char *snapshot_id, struct berth_error *err)
{
    return berth_fail(err, BERTH_REASON_SNAPSHOT_NOT_FOUND, "no snapshot '%s'", snapshot_id);
}

/* "<config>/<row>" of a snapshot of this tenant. */
static enum berth_code find_row(struct cp *cp, const char *tenant, const char *snapshot_id,
                                char *config_id, size_t size, char *field, size_t field_size,
                                struct berth_error *err)
{
    char key[BERTH_KEY_MAX];
    const char *const fields[] = {snapshot_id};
    const struct berth_redis_get get = {
        .key = berth_key_snapshot_index(key, tenant), .fields = fields, .n_fields = 1};
    struct berth_doc doc;
    const char *place, *slash;
    int64_t now_ms;
    enum berth_code code = berth_redis_read(cp->redis, &get, 1, &now_ms, &doc, err);

    if (code)
        return code;
    place = berth_doc_get(&doc, snapshot_id);
    slash = strchr(place, '/');
    if (!slash || (size_t)(slash - place) >= size) {
        code = no_snapshot(snapshot_id, err);
    } else {
        snprintf(config_id, size, "%.*s", (int)(slash - place), place);
        snprintf(field, field_size, "row:%s", slash + 1);
    }
    berth_doc_deinit(&doc);
    return code;
}

static enum berth_code judge_snapshot(struct cp *cp, const struct cp_config *config,
                                      const char *snapshot_id, struct berth_error *err)
{
    char config_id[129], row_field[64], key[BERTH_KEY_MAX];
    const char *const fields[] = {row_field};
    struct berth_redis_get get = {.key = key, .fields = fields, .n_fields = 1};
    struct berth_snapshot_row row;
    struct berth_doc doc;
    int64_t now_ms;
    enum berth_code code = find_row(cp, config->tenant_id, snapshot_id, config_id,
                                    sizeof config_id, row_field, sizeof row_field, err);

    if (code)
        return code;
    berth_key_config(key, config->tenant_id, config_id);
    code = berth_redis_read(cp->redis, &get, 1, &now_ms, &doc, err);
    if (code)
        return code;
    if (!berth_doc_has(&doc, row_field))
        code = no_snapshot(snapshot_id, err);
    else
        code = berth_snapshot_row_parse(berth_doc_get(&doc, row_field), &row, err);
    berth_doc_deinit(&doc);
    if (code)
        return code;
    if (strcmp(row.state, "active") != 0 || strcmp(row.snapshot_id, snapshot_id) != 0)
        return no_snapshot(snapshot_id, err);
    if (strcmp(row.account, config->doc.account) != 0)
        return berth_fail(err, BERTH_REASON_IMAGE_OWNER_MISMATCH,
                          "snapshot '%s' lives in another account than config '%s'",
                          snapshot_id, config->config_id);
    return BERTH_OK;
}

enum berth_code cp_judge_spec(struct cp *cp, const char *tenant, const SessionSpec *spec,
                              struct berth_error *err)
{
    BERTH_AUTO(cp_config_unref) struct cp_config *config = NULL;
    struct berth_tenant_doc doc;
    enum berth_code code = cp_cache_tenant(cp->cache, tenant, &doc, err);
    const char *config_id = *spec->config_id ? spec->config_id : doc.default_config;

    if (code)
        return code;
    if (!*config_id)
        return BERTH_OK;
    code = cp_cache_config(cp->cache, tenant, config_id, &config, err);
    if (code == BERTH_NOT_FOUND)
        return BERTH_OK;
    if (!code)
        code = cp_judge_wishes(config, spec, err);
    if (!code && spec->image &&
        spec->image->source_case == BERTH__COMMON__V1__IMAGE__SOURCE_SNAPSHOT_ID)
        code = judge_snapshot(cp, config, spec->image->snapshot_id, err);
    return code;
}
