#include "common/records/deployment.h"

#include <stdio.h>

#include "common/records/keys.h"
#include "common/time/time.h"

static enum berth_code call(struct berth_redis *redis, size_t argc, const char *const *argv,
                            struct berth_reply **ret, struct berth_error *err)
{
    enum berth_code code = berth_redis_call(redis, argc, argv, NULL, ret, err);

    if (code == BERTH_UNKNOWN)
        return berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE, "the answer did not come");
    return code;
}

static enum berth_code get(struct berth_redis *redis, const char *key, char *buf, size_t size,
                           struct berth_error *err)
{
    const char *const argv[] = {"GET", key};
    BERTH_AUTO(berth_reply_free) struct berth_reply *reply = NULL;
    enum berth_code code = call(redis, BERTH_COUNT(argv), argv, &reply, err);

    if (!code)
        snprintf(buf, size, "%s", reply->type == BERTH_REPLY_STRING ? reply->string : "");
    return code;
}

enum berth_code berth_deployment_check(struct berth_redis *redis, const char *deployment,
                                       struct berth_error *err)
{
    char stored[128];
    enum berth_code code = get(redis, BERTH_KEY_DEPLOYMENT, stored, sizeof stored, err);

    if (code)
        return code;
    if (!stored[0])
        return berth_fail_field(err, "deployment",
                                "the store is nobody's yet: a deployment's first start says "
                                "--init; if this store was in use, it has lost its content");
    if (strcmp(stored, deployment) != 0)
        return berth_fail_field(err, "deployment", "the store belongs to deployment '%s'",
                                stored);
    return BERTH_OK;
}

static enum berth_code set_if_absent(struct berth_redis *redis, const char *key,
                                     const char *value, struct berth_error *err)
{
    const char *const argv[] = {"SET", key, value, "NX"};
    BERTH_AUTO(berth_reply_free) struct berth_reply *reply = NULL;

    return call(redis, BERTH_COUNT(argv), argv, &reply, err);
}

enum berth_code berth_deployment_init(struct berth_redis *redis, const char *deployment,
                                      struct berth_error *err)
{
    const char *const argv[] = {"DBSIZE"};
    BERTH_AUTO(berth_reply_free) struct berth_reply *reply = NULL;
    char stored[128], now[24];
    enum berth_code code = get(redis, BERTH_KEY_DEPLOYMENT, stored, sizeof stored, err);

    if (!code)
        code = call(redis, BERTH_COUNT(argv), argv, &reply, err);
    if (code)
        return code;
    /* Only our own id: an --init that was cut short. */
    if (reply->integer > 0 && !(reply->integer == 1 && strcmp(stored, deployment) == 0))
        return berth_fail_field(err, "init", "the store is not empty (%lld keys)",
                                (long long)reply->integer);
    code = set_if_absent(redis, BERTH_KEY_DEPLOYMENT, deployment, err);
    if (!code)
        code = berth_deployment_check(redis, deployment, err);
    snprintf(now, sizeof now, "%lld", (long long)berth_now_ms());
    if (!code)
        code = set_if_absent(redis, BERTH_KEY_EPOCH, now, err);
    return code;
}

enum berth_code berth_epoch_check(struct berth_redis *redis, struct berth_error *err)
{
    char stored[32];
    enum berth_code code = get(redis, BERTH_KEY_EPOCH, stored, sizeof stored, err);

    if (!code && !stored[0])
        return berth_fail(err, BERTH_REASON_INDEX_RECOVERING,
                          "the index is not whole: nothing is created until it is recovered");
    return code;
}

enum berth_code berth_epoch_lost(struct berth_redis *redis, bool *ret, struct berth_error *err)
{
    char stored[48];
    enum berth_code code = get(redis, BERTH_KEY_EPOCH, stored, sizeof stored, err);

    if (!code)
        *ret = !stored[0] || strstr(stored, BERTH_EPOCH_RECOVERED);
    return code;
}
