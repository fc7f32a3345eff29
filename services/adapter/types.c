#include "services/adapter/types.h"

#include "common/json/json.h"

void adapter_pairs_deinit(struct adapter_pairs *pairs)
{
    for (size_t i = 0; i < pairs->n; i++) {
        free(pairs->keys[i]);
        free(pairs->values[i]);
    }
    free(pairs->keys);
    free(pairs->values);
    *pairs = (struct adapter_pairs){0};
}

void adapter_sandbox_deinit(struct adapter_sandbox *sandbox)
{
    adapter_pairs_deinit(&sandbox->metadata);
    *sandbox = (struct adapter_sandbox){0};
}

void adapter_snapshot_deinit(struct adapter_snapshot *snapshot)
{
    adapter_pairs_deinit(&snapshot->metadata);
    *snapshot = (struct adapter_snapshot){0};
}

enum berth_code adapter_pairs_add(struct adapter_pairs *pairs, const char *key,
                                  const char *value, struct berth_error *err)
{
    char **keys = realloc(pairs->keys, (pairs->n + 1) * sizeof *keys);
    char **values;

    if (!keys)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    pairs->keys = keys;
    values = realloc(pairs->values, (pairs->n + 1) * sizeof *values);
    if (!values)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    pairs->values = values;

    keys[pairs->n] = strdup(key);
    values[pairs->n] = strdup(value);
    if (!keys[pairs->n] || !values[pairs->n]) {
        free(keys[pairs->n]);
        free(values[pairs->n]);
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    pairs->n++;
    return BERTH_OK;
}

const char *adapter_pairs_get(const struct adapter_pairs *pairs, const char *key)
{
    for (size_t i = 0; i < pairs->n; i++)
        if (strcmp(pairs->keys[i], key) == 0)
            return pairs->values[i];
    return NULL;
}

json_t *adapter_pairs_to_json(const struct adapter_pairs *pairs)
{
    json_t *json = json_object();

    for (size_t i = 0; json && i < pairs->n; i++)
        if (json_object_set_new(json, pairs->keys[i], json_string(pairs->values[i])) < 0) {
            json_decref(json);
            json = NULL;
        }
    return json;
}

enum berth_code adapter_pairs_from_json(const json_t *json, struct adapter_pairs *ret,
                                        struct berth_error *err)
{
    struct adapter_pairs pairs = {0};
    enum berth_code code;
    const char *key;
    json_t *value;

    if (json && !json_is_object(json))
        return berth_fail(err, BERTH_REASON_FIELD_INVALID, "not an object of strings");
    json_object_foreach((json_t *)json, key, value)
    {
        if (json_is_string(value))
            code = adapter_pairs_add(&pairs, key, json_string_value(value), err);
        else
            code = berth_fail(err, BERTH_REASON_FIELD_INVALID, "%s: not a string", key);
        if (code) {
            adapter_pairs_deinit(&pairs);
            return code;
        }
    }
    *ret = pairs;
    return BERTH_OK;
}

json_t *adapter_image_to_json(const struct adapter_image *image)
{
    return json_pack("{s:i, s:s, s:I}", "kind", (int)image->kind, "id", image->id, "generation",
                     (json_int_t)image->generation);
}

enum berth_code adapter_image_from_json(const json_t *json, struct adapter_image *ret,
                                        struct berth_error *err)
{
    struct adapter_image image = {0};
    int64_t kind, generation;
    enum berth_code code;

    code = berth_json_get_int(json, "kind", 0, ADAPTER_IMAGE_SNAPSHOT, 0, &kind, err);
    if (!code)
        code =
            berth_json_get_int(json, "generation", INT64_MIN, INT64_MAX, 0, &generation, err);
    if (!code)
        code = berth_json_get_str(json, "id", image.id, sizeof image.id, "", err);
    if (code)
        return code;
    image.kind = (enum adapter_image_kind)kind;
    image.generation = (uint64_t)generation;
    *ret = image;
    return BERTH_OK;
}

json_t *adapter_timeouts_to_json(const struct adapter_timeouts *t)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:i, s:i}", "idle_ms", (json_int_t)t->idle_ms,
                     "max_lifetime_ms", (json_int_t)t->max_lifetime_ms, "max_paused_ms",
                     (json_int_t)t->max_paused_ms, "warn_before_ms",
                     (json_int_t)t->warn_before_ms, "on_idle", t->on_idle, "auto_resume",
                     t->auto_resume);
}

enum berth_code adapter_timeouts_from_json(const json_t *json, struct adapter_timeouts *ret,
                                           struct berth_error *err)
{
    struct adapter_timeouts t = {0};
    int64_t on_idle, auto_resume;
    const struct {
        const char *key;
        int64_t min, absent, *ret;
    } members[] = {
        {"idle_ms", ADAPTER_INHERIT, ADAPTER_INHERIT, &t.idle_ms},
        {"max_lifetime_ms", ADAPTER_INHERIT, ADAPTER_INHERIT, &t.max_lifetime_ms},
        {"max_paused_ms", ADAPTER_INHERIT, ADAPTER_INHERIT, &t.max_paused_ms},
        {"warn_before_ms", ADAPTER_INHERIT, ADAPTER_INHERIT, &t.warn_before_ms},
        {"on_idle", 0, 0, &on_idle},
        {"auto_resume", 0, 0, &auto_resume},
    };

    for (size_t i = 0; i < BERTH_COUNT(members); i++) {
        enum berth_code code =
            berth_json_get_int(json, members[i].key, members[i].min, INT64_MAX,
                               members[i].absent, members[i].ret, err);
        if (code)
            return code;
    }
    t.on_idle = (int)on_idle;
    t.auto_resume = (int)auto_resume;
    *ret = t;
    return BERTH_OK;
}

json_t *adapter_network_to_json(const struct adapter_network *network)
{
    return json_pack("{s:i, s:i, s:i}", "egress", network->egress, "inbound", network->inbound,
                     "dns", network->dns);
}

enum berth_code adapter_network_from_json(const json_t *json, struct adapter_network *ret,
                                          struct berth_error *err)
{
    int64_t egress, inbound, dns;
    enum berth_code code;

    code = berth_json_get_int(json, "egress", 0, ADAPTER_CLOSED, 0, &egress, err);
    if (!code)
        code = berth_json_get_int(json, "inbound", 0, ADAPTER_CLOSED, 0, &inbound, err);
    if (!code)
        code = berth_json_get_int(json, "dns", 0, 3, 0, &dns, err);
    if (code)
        return code;
    *ret = (struct adapter_network){
        .egress = (int)egress, .inbound = (int)inbound, .dns = (int)dns};
    return BERTH_OK;
}

json_t *adapter_resources_to_json(const struct adapter_resources *r)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "cpu_millis", (json_int_t)r->cpu_millis,
                     "max_processes", (json_int_t)r->max_processes, "max_open_files",
                     (json_int_t)r->max_open_files, "memory_bytes", (json_int_t)r->memory_bytes,
                     "disk_bytes", (json_int_t)r->disk_bytes);
}

enum berth_code adapter_resources_from_json(const json_t *json, struct adapter_resources *ret,
                                            struct berth_error *err)
{
    int64_t cpu, processes, files, memory, disk;
    const struct {
        const char *key;
        int64_t max, *ret;
    } members[] = {
        {"cpu_millis", UINT32_MAX, &cpu},       {"max_processes", UINT32_MAX, &processes},
        {"max_open_files", UINT32_MAX, &files}, {"memory_bytes", INT64_MAX, &memory},
        {"disk_bytes", INT64_MAX, &disk},
    };

    for (size_t i = 0; i < BERTH_COUNT(members); i++) {
        enum berth_code code =
            berth_json_get_int(json, members[i].key, 0, members[i].max, 0, members[i].ret, err);
        if (code)
            return code;
    }
    *ret = (struct adapter_resources){
        .cpu_millis = (uint32_t)cpu,
        .max_processes = (uint32_t)processes,
        .max_open_files = (uint32_t)files,
        .memory_bytes = (uint64_t)memory,
        .disk_bytes = (uint64_t)disk,
    };
    return BERTH_OK;
}
