#include "services/binding/quota.h"

#include <stdio.h>

#include "common/records/keys.h"

/* A plain command that reads; the store is away whatever kept it from being answered. */
static enum berth_code ask(struct berth_redis *redis, const char *const *argv, size_t argc,
                           enum berth_reply_type type, struct berth_reply **ret,
                           struct berth_error *err)
{
    enum berth_code code = berth_redis_call(redis, argc, argv, NULL, ret, err);

    if (code == BERTH_UNKNOWN)
        return berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE, NULL);
    if (!code && (*ret)->type != type)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "%s: not what it should be", argv[1]);
    return code;
}

/* Of all configs; one that is deleted meanwhile counts or does not. */
static enum berth_code count(struct berth_redis *redis, const char *tenant_id, uint64_t *ret,
                             struct berth_error *err)
{
    char key[BERTH_KEY_MAX];
    const char *const list[] = {"ZRANGE", berth_key_index_configs(key, tenant_id), "0", "-1"};
    BERTH_AUTO(berth_reply_free) struct berth_reply *configs = NULL;
    enum berth_code code =
        ask(redis, list, BERTH_COUNT(list), BERTH_REPLY_ARRAY, &configs, err);

    *ret = 0;
    for (size_t i = 0; !code && i < configs->n_items; i++) {
        char index[BERTH_KEY_MAX];
        const char *const argv[] = {
            "ZCARD", berth_key_index_config(index, tenant_id, configs->items[i]->string)};
        BERTH_AUTO(berth_reply_free) struct berth_reply *size = NULL;

        code = ask(redis, argv, BERTH_COUNT(argv), BERTH_REPLY_INTEGER, &size, err);
        if (!code)
            *ret += (uint64_t)size->integer;
    }
    return code;
}

enum berth_code binding_quota_check(struct berth_redis *redis, const char *tenant_id,
                                    uint32_t max_sessions, char *ret_rev,
                                    struct berth_error *err)
{
    static const char *const fields[] = {"rev"};
    char key[BERTH_KEY_MAX];
    const struct berth_redis_get get = {
        .key = berth_key_quota(key, tenant_id), .fields = fields, .n_fields = 1};
    struct berth_doc doc;
    uint64_t n = 0;
    int64_t now_ms;
    enum berth_code code = berth_redis_read(redis, &get, 1, &now_ms, &doc, err);

    if (code)
        return code;
    snprintf(ret_rev, 17, "%s", berth_doc_get(&doc, "rev"));
    berth_doc_deinit(&doc);
    code = count(redis, tenant_id, &n, err);
    if (!code && n >= max_sessions)
        code = berth_fail(err, BERTH_REASON_QUOTA_EXCEEDED,
                          "sessions: the tenant may have %u, and has %llu", max_sessions,
                          (unsigned long long)n);
    return code;
}
