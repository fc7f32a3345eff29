#include "common/records/tenant_doc.h"

#include <limits.h>
#include <stdio.h>

#include "common/json/json.h"

enum { TENANT_JSON_MAX = 64 * 1024 };

const char *const berth_tenant_fields[] = {"rev", "tenant", "default_config", "disabled"};
const size_t berth_n_tenant_fields = BERTH_COUNT(berth_tenant_fields);

static enum berth_code broken(const struct berth_doc *doc, const char *why,
                              struct berth_error *err)
{
    return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "%s: %s", doc->key ? doc->key : "tenant",
                      why);
}

static enum berth_code read_u32(const json_t *object, const char *key, uint32_t *ret,
                                struct berth_error *err)
{
    int64_t value;
    enum berth_code code = berth_json_get_int(object, key, 0, UINT32_MAX, 0, &value, err);

    if (!code)
        *ret = (uint32_t)value;
    return code;
}

static enum berth_code read_quotas(const json_t *root, struct berth_tenant_quotas *ret,
                                   struct berth_error *err)
{
    const json_t *quotas = json_object_get(root, "quotas");
    struct berth_tenant_quotas read = {0};
    int64_t bytes;
    enum berth_code code;

    if (!quotas || json_is_null(quotas)) {
        *ret = read;
        return BERTH_OK;
    }
    if (!json_is_object(quotas))
        return berth_fail(err, BERTH_REASON_FIELD_INVALID, "quotas: not an object");
    code = read_u32(quotas, "sessions", &read.sessions, err);
    if (!code)
        code = read_u32(quotas, "running_sandboxes", &read.running_sandboxes, err);
    if (!code)
        code = read_u32(quotas, "snapshots", &read.snapshots, err);
    if (!code)
        code = read_u32(quotas, "concurrent_commands", &read.concurrent_commands, err);
    if (!code)
        code = read_u32(quotas, "requests_per_second", &read.requests_per_second, err);
    if (!code)
        code = berth_json_get_int(quotas, "stored_bytes", 0, INT64_MAX, 0, &bytes, err);
    if (code)
        return code;
    read.stored_bytes = (uint64_t)bytes;
    *ret = read;
    return BERTH_OK;
}

static enum berth_code read_json(const char *text, struct berth_tenant_doc *out,
                                 struct berth_error *err)
{
    BERTH_AUTO(json_decref) json_t *root = NULL;
    enum berth_code code;

    code = berth_json_parse(text, strlen(text), TENANT_JSON_MAX, &root, err);
    if (!code)
        code = read_quotas(root, &out->quotas, err);
    if (!code)
        code = berth_json_get_int(root, "create_ms", 0, INT64_MAX, 0, &out->create_ms, err);
    if (!code)
        code = berth_json_get_int(root, "update_ms", 0, INT64_MAX, 0, &out->update_ms, err);
    if (!code)
        code = berth_json_get_str(root, "create_request_id", out->create_request_id,
                                  sizeof out->create_request_id, "", err);
    if (!code)
        code = berth_json_get_str(root, "created_by", out->created_by, sizeof out->created_by,
                                  "", err);
    return code;
}

enum berth_code berth_tenant_doc_parse(const struct berth_doc *doc,
                                       struct berth_tenant_doc *ret, struct berth_error *err)
{
    struct berth_tenant_doc out = {.exists = doc->exists};
    struct berth_error why = {0};
    const char *disabled, *rev, *config;

    if (!doc->exists) {
        *ret = out;
        return BERTH_OK;
    }
    rev = berth_doc_get(doc, "rev");
    if (strlen(rev) != sizeof out.rev - 1)
        return broken(doc, "rev is not 16 characters", err);
    memcpy(out.rev, rev, sizeof out.rev);

    /* A rev alone is no record (berth_cas_settle). */
    if (!berth_doc_has(doc, "disabled") && !berth_doc_has(doc, "default_config") &&
        !berth_doc_has(doc, "tenant")) {
        out.exists = false;
        *ret = out;
        return BERTH_OK;
    }
    disabled = berth_doc_get(doc, "disabled");
    if (strcmp(disabled, "0") != 0 && strcmp(disabled, "1") != 0)
        return broken(doc, "disabled is neither 0 nor 1", err);
    out.disabled = disabled[0] == '1';

    config = berth_doc_get(doc, "default_config");
    if (strlen(config) >= sizeof out.default_config)
        return broken(doc, "default_config is too long", err);
    snprintf(out.default_config, sizeof out.default_config, "%s", config);

    if (read_json(berth_doc_get(doc, "tenant"), &out, &why))
        return broken(doc, why.text, err);
    *ret = out;
    return BERTH_OK;
}

char *berth_tenant_doc_format(const struct berth_tenant_doc *tenant)
{
    const struct berth_tenant_quotas *q = &tenant->quotas;
    BERTH_AUTO(json_decref) json_t *root = NULL;

    root = json_pack("{s:I,s:I,s:s,s:s,s:{s:I,s:I,s:I,s:I,s:I,s:I}}", "create_ms",
                     (json_int_t)tenant->create_ms, "update_ms", (json_int_t)tenant->update_ms,
                     "create_request_id", tenant->create_request_id, "created_by",
                     tenant->created_by, "quotas", "sessions", (json_int_t)q->sessions,
                     "running_sandboxes", (json_int_t)q->running_sandboxes, "snapshots",
                     (json_int_t)q->snapshots, "stored_bytes", (json_int_t)q->stored_bytes,
                     "concurrent_commands", (json_int_t)q->concurrent_commands,
                     "requests_per_second", (json_int_t)q->requests_per_second);
    return root ? berth_json_format(root) : NULL;
}
