#include "services/controlplane/config_store.h"

#include <stdio.h>

#include "common/records/deployment.h"
#include "common/records/event.h"
#include "common/records/keys.h"
#include "services/controlplane/changes.h"

void cp_config_read_deinit(struct cp_config_read *read)
{
    read->config = cp_config_unref(read->config);
}

static enum berth_code decode(struct cp *cp, const struct berth_doc docs[2], const char *tenant,
                              const char *config_id, int64_t now_ms, struct cp_config_read *out,
                              struct berth_error *err)
{
    struct berth_error why;
    enum berth_code code = berth_tenant_doc_parse(&docs[0], &out->tenant, err);

    if (code)
        return code;
    if (!out->tenant.exists) {
        code = berth_epoch_check(cp->redis, err);
        return code ? code
                    : berth_fail(err, BERTH_REASON_TENANT_NOT_FOUND, "no tenant '%s'", tenant);
    }
    snprintf(out->rev, sizeof out->rev, "%s", berth_doc_get(&docs[1], "rev"));
    code = cp_config_decode(&docs[1], tenant, config_id, &out->config, &why);
    if (code && code != BERTH_NOT_FOUND) {
        if (err)
            *err = why;
        return code;
    }
    if (out->config)
        out->config->read_ms = now_ms;
    return BERTH_OK;
}

enum berth_code cp_config_read(struct cp *cp, const char *tenant, const char *config_id,
                               struct cp_config_read *ret, struct berth_error *err)
{
    char tenant_key[BERTH_KEY_MAX], config_key[BERTH_KEY_MAX];
    const struct berth_redis_get gets[] = {
        {.key = berth_key_tenant(tenant_key, tenant),
         .fields = berth_tenant_fields,
         .n_fields = berth_n_tenant_fields},
        {.key = berth_key_config(config_key, tenant, config_id)},
    };
    struct cp_config_read out = {0};
    struct berth_doc docs[2];
    int64_t now_ms;
    enum berth_code code = berth_redis_read(cp->redis, gets, 2, &now_ms, docs, err);

    if (code)
        return code;
    code = decode(cp, docs, tenant, config_id, now_ms, &out, err);
    berth_doc_deinit(&docs[0]);
    berth_doc_deinit(&docs[1]);
    if (!code)
        *ret = out;
    return code;
}

static enum berth_code add_event(struct berth_cas *cas, const char *tenant,
                                 const char *config_id, const char *change,
                                 struct berth_error *err)
{
    BERTH_AUTO(json_decref) json_t *attributes = json_pack("{s:s}", "change", change);
    const struct berth_event event = {
        .kind = "CONFIG_CHANGED",
        .config_id = config_id,
        .attributes = attributes,
    };

    return attributes ? berth_event_write(cas, tenant, &event, err)
                      : berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

static enum berth_code run(struct cp *cp, struct berth_cas *cas, const char *tenant,
                           const char *config_id, bool *ret_applied, struct berth_error *err)
{
    char key[BERTH_KEY_MAX];
    const char *const keys[] = {berth_key_config(key, tenant, config_id)};
    enum berth_code code = berth_records_run(cp->records, cas, keys, 1, ret_applied, err);

    cp_changed(cp, BERTH_CHANGE_CONFIG, tenant, config_id);
    return code;
}

static enum berth_code store(struct cp *cp, struct berth_cas *cas,
                             const struct cp_config_read *read, const struct cp_config *config,
                             const char *state, const char *change, bool *ret_applied,
                             struct berth_error *err)
{
    const char *tenant = config->tenant_id;
    char key[BERTH_KEY_MAX];
    enum berth_code code;

    berth_cas_expect(cas, berth_key_config(key, tenant, config->config_id), read->rev);
    berth_cas_expect(cas, berth_key_tenant(key, tenant), read->tenant.rev);
    code = cp_config_write(cas, config, state, err);
    if (code)
        return code;
    berth_cas_write(cas, "ZADD", berth_key_index_configs(key, tenant), "0", config->config_id,
                    NULL);
    if (!*read->rev)
        berth_records_mark_there(cas, tenant, config->config_id);
    code = add_event(cas, tenant, config->config_id, change, err);
    return code ? code : run(cp, cas, tenant, config->config_id, ret_applied, err);
}

enum berth_code cp_config_store(struct cp *cp, const struct cp_config_read *read,
                                const struct cp_config *config, const char *state,
                                const char *change, bool *ret_applied, struct berth_error *err)
{
    BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();

    if (!cas)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    return store(cp, cas, read, config, state, change, ret_applied, err);
}

enum berth_code cp_config_store_new(struct cp *cp, const struct cp_config_read *read,
                                    const struct cp_config *config,
                                    const struct cp_request *request,
                                    const ProtobufCMessage *answer, bool *ret_applied,
                                    struct berth_error *err)
{
    BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
    enum berth_code code;

    if (!cas)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    code = cp_request_write(cas, request, answer, err);
    return code ? code : store(cp, cas, read, config, "active", "created", ret_applied, err);
}

enum berth_code cp_config_remove(struct cp *cp, const struct cp_config_read *read,
                                 bool *ret_applied, struct berth_error *err)
{
    BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
    const char *tenant = read->config->tenant_id, *config_id = read->config->config_id;
    char key[BERTH_KEY_MAX];
    enum berth_code code;

    if (!cas)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    berth_cas_expect(cas, berth_key_config(key, tenant, config_id), read->rev);
    berth_cas_write(cas, "DEL", key, NULL);
    berth_cas_when_full(cas);
    berth_records_mark_gone(cas, tenant, config_id);
    berth_cas_expect(cas, berth_key_tenant(key, tenant), read->tenant.rev);
    berth_cas_write(cas, "ZREM", berth_key_index_configs(key, tenant), config_id, NULL);
    code = add_event(cas, tenant, config_id, "deleted", err);
    return code ? code : run(cp, cas, tenant, config_id, ret_applied, err);
}

/* ---------------------------------------------------------------------- close */

static enum berth_code read_again(struct cp *cp, struct cp_config_read *read,
                                  struct berth_error *err)
{
    struct cp_config_read fresh;
    enum berth_code code =
        cp_config_read(cp, read->config->tenant_id, read->config->config_id, &fresh, err);

    if (code)
        return code;
    if (!fresh.config) {
        cp_config_read_deinit(&fresh);
        return berth_fail(err, BERTH_REASON_CONFIG_NOT_FOUND, NULL);
    }
    cp_config_read_deinit(read);
    *read = fresh;
    return BERTH_OK;
}

static enum berth_code count_sessions(struct cp *cp, const struct cp_config *config,
                                      int64_t *ret, struct berth_error *err)
{
    char key[BERTH_KEY_MAX];
    const char *const argv[] = {
        "ZCARD", berth_key_index_config(key, config->tenant_id, config->config_id)};
    BERTH_AUTO(berth_reply_free) struct berth_reply *reply = NULL;
    enum berth_code code =
        berth_redis_call(cp->redis, BERTH_COUNT(argv), argv, NULL, &reply, err);

    if (code == BERTH_UNKNOWN)
        return berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE, NULL);
    if (!code)
        *ret = reply->integer;
    return code;
}

static enum berth_code check_unused(struct cp *cp, const struct cp_config_read *read,
                                    struct berth_error *err)
{
    int64_t n_sessions = 0;
    enum berth_code code = count_sessions(cp, read->config, &n_sessions, err);

    if (code)
        return code;
    if (n_sessions > 0 || read->config->live_snapshots > 0 || read->config->operations > 0)
        return berth_fail(err, BERTH_REASON_CONFIG_IN_USE,
                          "%lld sessions, %u snapshots and %zu operations use it",
                          (long long)n_sessions, read->config->live_snapshots,
                          read->config->operations);
    return BERTH_OK;
}

enum berth_code cp_config_close(struct cp *cp, struct cp_config_read *read,
                                struct berth_error *err)
{
    struct berth_error ignored;
    bool applied = false;
    enum berth_code code = check_unused(cp, read, err); /* the common answer, without a write */

    if (!code)
        code = cp_config_store(cp, read, read->config, "deleting", "closed", &applied, err);
    if (!code && !applied)
        code = berth_fail(err, BERTH_REASON_CONFLICT, NULL);
    if (code)
        return code;
    /* From here on no session can be pinned to it: what is not there now will not be. */
    code = read_again(cp, read, err);
    if (!code)
        code = check_unused(cp, read, err);
    if (code && cp_config_store(cp, read, read->config, "active", "opened", &applied, &ignored))
        return code; /* the next update or delete finds it closed, and goes on from there */
    return code;
}

/* ----------------------------------------------------------------------- list */

enum berth_code cp_config_ids(struct cp *cp, const char *tenant, const char *after,
                              uint32_t size, struct berth_reply **ret, struct berth_error *err)
{
    char key[BERTH_KEY_MAX], from[160], limit[16];
    const char *const argv[] = {
        "ZRANGEBYLEX", berth_key_index_configs(key, tenant), from, "+", "LIMIT", "0", limit};
    enum berth_code code;

    snprintf(from, sizeof from, "%s%s", *after ? "(" : "-", after);
    snprintf(limit, sizeof limit, "%u", size);
    code = berth_redis_call(cp->redis, BERTH_COUNT(argv), argv, NULL, ret, err);
    if (code == BERTH_UNKNOWN)
        return berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE, NULL);
    return code;
}

static int compare_ids(const void *a, const void *b)
{
    const struct berth_reply *const *x = a, *const *y = b;

    return strcmp((*x)->string, (*y)->string);
}

enum berth_code cp_tenant_ids(struct cp *cp, struct berth_reply **ret, struct berth_error *err)
{
    const char *const argv[] = {"SMEMBERS", BERTH_KEY_TENANTS};
    enum berth_code code = berth_redis_call(cp->redis, BERTH_COUNT(argv), argv, NULL, ret, err);

    if (code == BERTH_UNKNOWN)
        return berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE, NULL);
    if (!code)
        qsort((*ret)->items, (*ret)->n_items, sizeof *(*ret)->items, compare_ids);
    return code;
}
