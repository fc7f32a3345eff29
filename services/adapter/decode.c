#include "services/adapter/decode.h"

#include <stdio.h>

#include "common/fields/fields.h"
#include "common/ids/ids.h"
#include "common/time/time.h"

#define DURATION_MAX_MS (3660LL * 24 * 3600 * 1000)

enum { TIME_MAX_S_HALF = 0x7fffffff, OPTIONS_MAX = 64, URL_MAX = 2048, IMAGE_ID_MAX = 71 };

#define OPEN BERTH__COMMON__V1__SWITCH__SWITCH_OPEN
#define CLOSED BERTH__COMMON__V1__SWITCH__SWITCH_CLOSED

enum berth_code decode_missing(struct berth_error *err, const char *field,
                               const char *capability)
{
    enum berth_code code =
        berth_fail(err, BERTH_REASON_CAPABILITY_MISSING,
                   "%s: the backend lacks the capability %s", field, capability);

    BERTH_ERROR_SET(err, resource, capability);
    BERTH_ERROR_SET(err, field, field);
    return code;
}

/* -------------------------------------------------------------------- target */

enum berth_code decode_target(const Berth__Common__V1__BackendTarget *target,
                              const char *backend, struct berth_error *err)
{
    const struct {
        const char *field, *value;
    } urls[] = {{"target.api_url", target ? target->api_url : ""},
                {"target.domain", target ? target->domain : ""},
                {"target.proxy_url", target ? target->proxy_url : ""}};
    enum berth_code code = berth_check_present("target", target, err);

    if (!code && strcmp(target->backend, backend) != 0)
        code =
            berth_fail_field(err, "target.backend", "must be %s: this is its adapter", backend);
    if (!code)
        code = berth_check_id_or_empty("target.config_id", target->config_id, err);
    if (!code)
        code = berth_check_id_or_empty("target.tenant_id", target->tenant_id, err);
    for (size_t i = 0; !code && i < BERTH_COUNT(urls); i++)
        code = berth_check_text(urls[i].field, urls[i].value, 0, URL_MAX, err);
    if (!code && target->fingerprint.len != 0 && target->fingerprint.len != 32)
        code = berth_fail_field(err, "target.fingerprint", "must be 32 bytes, or absent");
    if (!code && target->n_options > OPTIONS_MAX)
        code = berth_fail_field(err, "target.options", "must be at most %d", OPTIONS_MAX);
    return code;
}

/* ----------------------------------------------------------- times and grants */

enum berth_code decode_time(const char *field, const Google__Protobuf__Timestamp *time,
                            int64_t *ret_ms, struct berth_error *err)
{
    *ret_ms = 0;
    if (!time)
        return BERTH_OK;
    if (time->seconds < 0 || time->seconds / 128 > TIME_MAX_S_HALF || time->nanos < 0 ||
        time->nanos > 999999999 || (time->seconds == 0 && time->nanos == 0))
        return berth_fail_field(err, field, "must be a time after 1970");
    *ret_ms = time->seconds * 1000 + time->nanos / 1000000;
    return BERTH_OK;
}

static enum berth_code check_in_time(int64_t not_after_ms, struct berth_error *err)
{
    if (not_after_ms && berth_now_ms() > not_after_ms)
        return berth_fail(err, BERTH_REASON_DEADLINE,
                          "not_after_time has passed; nothing was done");
    return BERTH_OK;
}

enum berth_code decode_grant(uint64_t fence, const Google__Protobuf__Timestamp *not_after,
                             struct adapter_grant *ret, struct berth_error *err)
{
    struct adapter_grant grant = {.fence = fence};
    enum berth_code code = decode_time("not_after_time", not_after, &grant.not_after_ms, err);

    if (!code)
        code = check_in_time(grant.not_after_ms, err);
    if (!code)
        *ret = grant;
    return code;
}

/* ------------------------------------------------------------------- policies */

static enum berth_code decode_duration(const char *field,
                                       const Google__Protobuf__Duration *duration,
                                       int64_t *ret_ms, struct berth_error *err)
{
    *ret_ms = ADAPTER_INHERIT;
    if (!duration)
        return BERTH_OK;
    return berth_check_duration(field, duration->seconds, duration->nanos, DURATION_MAX_MS,
                                ret_ms, err);
}

enum berth_code decode_timeouts(const Berth__Common__V1__TimeoutPolicy *policy,
                                const struct adapter_info *info, bool whole,
                                struct adapter_timeouts *ret, struct berth_error *err)
{
    struct adapter_timeouts t = {0};
    enum berth_code code = berth_check_present("timeouts", policy, err);

    if (!code && whole)
        code = berth_check_present("timeouts.idle", policy->idle, err);
    if (!code)
        code = decode_duration("timeouts.idle", policy->idle, &t.idle_ms, err);
    if (!code)
        code = decode_duration("timeouts.max_lifetime", policy->max_lifetime,
                               &t.max_lifetime_ms, err);
    if (!code)
        code =
            decode_duration("timeouts.max_paused", policy->max_paused, &t.max_paused_ms, err);
    if (!code)
        code = decode_duration("timeouts.warn_before", policy->warn_before, &t.warn_before_ms,
                               err);
    if (!code)
        code = berth_check_enum("timeouts.on_idle", (int)policy->on_idle,
                                BERTH__COMMON__V1__IDLE_ACTION__IDLE_ACTION_KILL, !whole, err);
    if (!code)
        code = berth_check_enum("timeouts.auto_resume", (int)policy->auto_resume, CLOSED,
                                !whole, err);
    if (!code && !info->pause &&
        policy->on_idle == BERTH__COMMON__V1__IDLE_ACTION__IDLE_ACTION_PAUSE)
        code = decode_missing(err, "timeouts.on_idle", "pause");
    if (code)
        return code;
    t.on_idle = (int)policy->on_idle;
    t.auto_resume = (int)policy->auto_resume;
    *ret = t;
    return BERTH_OK;
}

/* What the backend cannot keep is refused, never dropped. */
static enum berth_code check_capable(const Berth__Common__V1__NetworkPolicy *policy,
                                     const struct adapter_info *info, struct berth_error *err)
{
    bool open_names =
        policy->dns == BERTH__COMMON__V1__DNS_MODE__DNS_MODE_OPEN && policy->egress == CLOSED;

    if (policy->egress == CLOSED && !info->egress_switch)
        return decode_missing(err, "network.egress", "network.egress_switch");
    if (policy->inbound == CLOSED && !info->inbound_switch)
        return decode_missing(err, "network.inbound", "network.inbound_switch");
    if (policy->n_allow_out > 0 && !info->cidr && !info->domains)
        return decode_missing(err, "network.allow_out", "network.cidr");
    if (policy->n_deny_out > 0 && !info->cidr)
        return decode_missing(err, "network.deny_out", "network.cidr");
    if (policy->n_rules > 0 && !info->l7)
        return decode_missing(err, "network.rules", "network.l7");
    if ((open_names || policy->dns == BERTH__COMMON__V1__DNS_MODE__DNS_MODE_CLOSED) &&
        !info->dns_policy)
        return decode_missing(err, "network.dns", "network.dns_policy");
    if (policy->n_dns_servers > 0 && !info->dns_servers)
        return decode_missing(err, "network.dns_servers", "network.dns_servers");
    return BERTH_OK;
}

enum berth_code decode_network(const Berth__Common__V1__NetworkPolicy *policy,
                               const struct adapter_info *info, struct adapter_network *ret,
                               struct berth_error *err)
{
    enum berth_code code = berth_check_present("network", policy, err);

    if (!code)
        code = berth_check_enum("network.egress", (int)policy->egress, CLOSED, false, err);
    if (!code)
        code = berth_check_enum("network.inbound", (int)policy->inbound, CLOSED, false, err);
    if (!code)
        code = berth_check_enum("network.dns", (int)policy->dns,
                                BERTH__COMMON__V1__DNS_MODE__DNS_MODE_CLOSED, true, err);
    if (!code)
        code = check_capable(policy, info, err);
    if (code)
        return code;
    *ret = (struct adapter_network){.egress = (int)policy->egress,
                                    .inbound = (int)policy->inbound,
                                    .dns = (int)policy->dns};
    return BERTH_OK;
}

static enum berth_code check_at_most(const char *field, uint64_t value, uint64_t max,
                                     struct berth_error *err)
{
    if (max && value > max)
        return berth_fail_field(err, field, "must be at most %llu on this backend",
                                (unsigned long long)max);
    return value > INT64_MAX ? berth_fail_field(err, field, "is too large") : BERTH_OK;
}

static enum berth_code decode_resources(const Berth__Common__V1__Resources *resources,
                                        const struct adapter_info *info,
                                        struct adapter_resources *ret, struct berth_error *err)
{
    const struct adapter_resources *max = &info->max_resources;
    enum berth_code code;

    *ret = (struct adapter_resources){0};
    if (!resources)
        return BERTH_OK;
    if (!info->resources && (resources->cpu_millis || resources->memory_bytes ||
                             resources->max_processes || resources->max_open_files))
        return decode_missing(err, "resources", "resources");
    if (!info->disk_limit && resources->disk_bytes)
        return decode_missing(err, "resources.disk_bytes", "disk_limit");
    code = check_at_most("resources.cpu_millis", resources->cpu_millis, max->cpu_millis, err);
    if (!code)
        code = check_at_most("resources.memory_bytes", resources->memory_bytes,
                             max->memory_bytes, err);
    if (!code)
        code =
            check_at_most("resources.disk_bytes", resources->disk_bytes, max->disk_bytes, err);
    if (!code)
        code = check_at_most("resources.max_processes", resources->max_processes,
                             max->max_processes, err);
    if (!code)
        code = check_at_most("resources.max_open_files", resources->max_open_files,
                             max->max_open_files, err);
    if (code)
        return code;
    *ret = (struct adapter_resources){
        .cpu_millis = resources->cpu_millis,
        .memory_bytes = resources->memory_bytes,
        .disk_bytes = resources->disk_bytes,
        .max_processes = resources->max_processes,
        .max_open_files = resources->max_open_files,
    };
    return BERTH_OK;
}

/* ---------------------------------------------------------------------- pairs */

void decode_pairs_deinit(struct adapter_pairs *pairs)
{
    free(pairs->keys);
    free(pairs->values);
    *pairs = (struct adapter_pairs){0};
}

/* All entries of a map<string, string> have this shape. */
struct entry {
    ProtobufCMessage base;
    char *key, *value;
};

static enum berth_code borrow_pairs(const char *field, void *entries, size_t n, size_t max,
                                    struct adapter_pairs *ret, struct berth_error *err)
{
    struct entry *const *from = entries;

    if (n > max)
        return berth_fail_field(err, field, "must be at most %zu", max);
    *ret = (struct adapter_pairs){0};
    if (n == 0)
        return BERTH_OK;
    ret->keys = calloc(n, sizeof *ret->keys);
    ret->values = calloc(n, sizeof *ret->values);
    if (!ret->keys || !ret->values) {
        decode_pairs_deinit(ret);
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    for (; ret->n < n; ret->n++) {
        ret->keys[ret->n] = from[ret->n]->key;
        ret->values[ret->n] = from[ret->n]->value;
    }
    return BERTH_OK;
}

static bool is_metadata_key(const char *key)
{
    size_t len = strlen(key);

    return len >= 1 && len <= ADAPTER_METADATA_KEY_MAX &&
           strspn(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/-") ==
               len;
}

static enum berth_code take_metadata(void *entries, size_t n, struct adapter_pairs *ret,
                                     struct berth_error *err)
{
    enum berth_code code = borrow_pairs("metadata", entries, n, ADAPTER_METADATA_MAX, ret, err);

    for (size_t i = 0; !code && i < ret->n; i++) {
        if (!is_metadata_key(ret->keys[i]))
            code = berth_fail_field(err, "metadata",
                                    "keys must be 1 to %d characters of [A-Za-z0-9._/-]",
                                    ADAPTER_METADATA_KEY_MAX);
        if (!code)
            code = berth_check_text("metadata", ret->values[i], 0, ADAPTER_METADATA_VALUE_MAX,
                                    err);
    }
    if (code)
        decode_pairs_deinit(ret);
    return code;
}

static enum berth_code take_env(void *entries, size_t n, struct adapter_pairs *ret,
                                struct berth_error *err)
{
    enum berth_code code = borrow_pairs("env", entries, n, ADAPTER_ENV_MAX, ret, err);
    size_t bytes = 0;

    for (size_t i = 0; !code && i < ret->n; i++) {
        size_t len = strlen(ret->values[i]);

        bytes += strlen(ret->keys[i]) + len;
        code = berth_check_env_name("env", ret->keys[i], err);
        if (!code && !berth_utf8_valid(ret->values[i], len))
            code = berth_fail_field(err, "env", "values must be UTF-8");
        if (!code && len > ADAPTER_ENV_VALUE_MAX)
            code = berth_fail_field(err, "env", "values must be at most %d bytes",
                                    ADAPTER_ENV_VALUE_MAX);
    }
    if (!code && bytes > ADAPTER_ENV_BYTES_MAX)
        code = berth_fail_field(err, "env", "must be at most %d bytes in all",
                                ADAPTER_ENV_BYTES_MAX);
    if (code)
        decode_pairs_deinit(ret);
    return code;
}

enum berth_code decode_snapshot_metadata(const Berth__Backend__V1__CreateSnapshotRequest *req,
                                         struct adapter_pairs *ret, struct berth_error *err)
{
    return take_metadata(req->metadata, req->n_metadata, ret, err);
}

enum berth_code decode_metadata_filter(const Berth__Backend__V1__ListSandboxesRequest *req,
                                       struct adapter_pairs *ret, struct berth_error *err)
{
    return take_metadata(req->metadata, req->n_metadata, ret, err);
}

/* --------------------------------------------------------------------- create */

static enum berth_code decode_image(const Berth__Common__V1__Image *image,
                                    struct adapter_image *ret, struct berth_error *err)
{
    enum berth_code code = berth_check_present("image", image, err);
    const char *field, *id;

    if (code)
        return code;
    switch (image->source_case) {
    case BERTH__COMMON__V1__IMAGE__SOURCE_TEMPLATE_ID:
        ret->kind = ADAPTER_IMAGE_TEMPLATE;
        field = "image.template_id";
        id = image->template_id;
        break;
    case BERTH__COMMON__V1__IMAGE__SOURCE_SNAPSHOT_ID:
        ret->kind = ADAPTER_IMAGE_SNAPSHOT;
        field = "image.snapshot_id";
        id = image->snapshot_id;
        break;
    default:
        return berth_fail_field(err, "image.source", "must be given");
    }
    code = berth_check_text(field, id, 1, IMAGE_ID_MAX, err);
    if (code)
        return code;
    if (snprintf(ret->id, sizeof ret->id, "%s", id) >= (int)sizeof ret->id)
        return berth_fail_field(err, field, "must be at most %d bytes", IMAGE_ID_MAX);
    ret->generation = image->generation;
    return BERTH_OK;
}

enum berth_code decode_create(const Berth__Backend__V1__CreateSandboxRequest *req,
                              const char *backend, const struct adapter_info *info,
                              struct decoded_create *ret, struct berth_error *err)
{
    struct adapter_create *create = &ret->create;
    struct adapter_grant grant = {0};
    enum berth_code code;

    *ret = (struct decoded_create){0};
    code = decode_target(req->target, backend, err);
    if (!code)
        code = decode_image(req->image, &create->image, err);
    if (!code)
        code = berth_check_id("unique_key", req->unique_key, err);
    if (!code && (req->attempt.len < 1 || req->attempt.len > ADAPTER_ATTEMPT_MAX))
        code = berth_fail_field(err, "attempt", "must be 1 to %d bytes", ADAPTER_ATTEMPT_MAX);
    if (!code)
        code = decode_network(req->network, info, &create->network, err);
    if (!code)
        code = decode_timeouts(req->timeouts, info, true, &create->timeouts, err);
    if (!code)
        code = decode_resources(req->resources, info, &create->resources, err);
    if (!code && req->n_volumes > 0 && !info->volumes)
        code = decode_missing(err, "volumes", "volumes");
    if (!code)
        code = take_metadata(req->metadata, req->n_metadata, &create->metadata, err);
    if (!code)
        code = take_env(req->env, req->n_env, &create->env, err);
    if (!code)
        code = decode_grant(req->fence, req->not_after_time, &grant, err);
    if (code) {
        decode_create_deinit(ret);
        return code;
    }
    create->unique_key = req->unique_key;
    create->fence = grant.fence;
    create->not_after_ms = grant.not_after_ms;
    berth_hex(ret->attempt, req->attempt.data, req->attempt.len);
    create->attempt = ret->attempt;
    return BERTH_OK;
}

void decode_create_deinit(struct decoded_create *decoded)
{
    decode_pairs_deinit(&decoded->create.metadata);
    decode_pairs_deinit(&decoded->create.env);
}

enum berth_code decode_snapshot_name(const char *field, const char *name,
                                     struct berth_error *err)
{
    size_t len = strlen(name);

    if (len < 1 || len > ADAPTER_SNAPSHOT_NAME_MAX || name[0] == '-' ||
        strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != len)
        return berth_fail_field(err, field,
                                "must be 1 to %d characters of [a-z0-9-], not '-' first",
                                ADAPTER_SNAPSHOT_NAME_MAX);
    return BERTH_OK;
}
