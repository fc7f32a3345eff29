/* backend.c - calls to the control plane and to adapters. */
#include <stdio.h>

#include "berth/backend/v1/backend.pb-c.h"
#include "berth/control/v1/control.pb-c.h"
#include "common/ids/ids.h"
#include "common/messages/messages.h"
#include "common/records/deployment.h"
#include "common/time/time.h"
#include "services/skills/skills.h"

typedef Berth__Backend__V1__ListSnapshotsRequest ListSnapshotsRequest;
typedef Berth__Backend__V1__ListSnapshotsResponse ListSnapshotsResponse;
typedef Berth__Common__V1__BackendTarget BackendTarget;
typedef Berth__Control__V1__ListTargetsResponse ListTargetsResponse;

enum { PAGES_MAX = 1000, PAGE_SIZE = 1000, TOKEN_MAX = 4096 };

enum berth_code skills_enter(struct skills *skills, struct berth_error *err)
{
    enum berth_code code;

    if (atomic_load_explicit(&skills->store_checked, memory_order_acquire))
        return BERTH_OK;
    code = berth_deployment_check(skills->redis, skills->runtime->deployment, err);
    if (code == BERTH_INVALID_ARGUMENT)
        return berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE,
                          "the store is not this deployment's");
    if (!code)
        atomic_store_explicit(&skills->store_checked, true, memory_order_release);
    return code;
}

enum berth_code skills_control_call(struct skills *skills, const struct berth_call *call,
                                    const char *path, const ProtobufCMessage *req,
                                    const ProtobufCMessageDescriptor *resp_type, void *ret,
                                    struct berth_error *err)
{
    const struct berth_call_options options = {.timeout_ms = SK_CALL_TIMEOUT_MS,
                                               .parent = call};
    ProtobufCMessage *resp;
    enum berth_code code =
        berth_channel_call(skills->controlplane, path, req, resp_type, &options, &resp, err);

    if (!code)
        memcpy(ret, &resp, sizeof resp);
    return code;
}

static enum berth_code call_adapter(struct skills *skills, const struct berth_call *call,
                                    const char *backend, const char *path,
                                    const ProtobufCMessage *req,
                                    const ProtobufCMessageDescriptor *resp_type,
                                    int64_t timeout_ms, void *ret, struct berth_error *err)
{
    const char *trace = call ? berth_call_traceparent(call) : "";
    const struct berth_metadata metadata = {
        .key = "traceparent", .value = trace, .size = strlen(trace)};
    /* Not the caller's deadline: what was begun is brought to an end. */
    const struct berth_call_options options = {
        .timeout_ms = timeout_ms, .metadata = &metadata, .n_metadata = *trace != 0};
    struct berth_channel *channel = berth_adapters_find(&skills->adapters, backend);
    ProtobufCMessage *resp;
    enum berth_code code;

    if (!channel)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "no adapter for backend '%s'",
                          backend);
    code = berth_channel_call(channel, path, req, resp_type, &options, &resp, err);
    if (!code)
        memcpy(ret, &resp, sizeof resp);
    else
        BERTH_ERROR_SET(err, backend, backend);
    return code;
}

enum berth_code skills_adapter_call(struct skills *skills, const struct berth_call *call,
                                    const char *backend, const char *path,
                                    const ProtobufCMessage *req,
                                    const ProtobufCMessageDescriptor *resp_type,
                                    int64_t timeout_ms, void *ret, struct berth_error *err)
{
    enum berth_code code;

    if (atomic_fetch_add(&skills->n_calls, 1) >= skills->max_calls)
        code = berth_fail(err, BERTH_REASON_OVERLOADED, "%u backend calls are under way",
                          skills->max_calls);
    else
        code = call_adapter(skills, call, backend, path, req, resp_type, timeout_ms, ret, err);
    atomic_fetch_sub(&skills->n_calls, 1);
    return code;
}

bool skills_is_refusal(enum berth_code code)
{
    switch (code) {
    case BERTH_INVALID_ARGUMENT:
    case BERTH_NOT_FOUND:
    case BERTH_ALREADY_EXISTS:
    case BERTH_PERMISSION_DENIED:
    case BERTH_RESOURCE_EXHAUSTED:
    case BERTH_FAILED_PRECONDITION:
    case BERTH_ABORTED:
    case BERTH_UNIMPLEMENTED:
    case BERTH_UNAVAILABLE:
        return true;
    default:
        return false;
    }
}

bool skills_same_account(const BackendTarget *target, const char *account)
{
    char hex[65] = "";

    if (target->fingerprint.len == 32)
        berth_hex(hex, target->fingerprint.data, target->fingerprint.len);
    return hex[0] && strcmp(hex, account) == 0;
}

enum berth_code skills_target(struct skills *skills, const char *tenant, const char *config_id,
                              BackendTarget **ret, struct berth_error *err)
{
    Berth__Control__V1__ListTargetsRequest req = BERTH__CONTROL__V1__LIST_TARGETS_REQUEST__INIT;
    ListTargetsResponse *resp = NULL;
    enum berth_code code;

    req.tenant_id = (char *)tenant;
    req.config_id = (char *)config_id;
    code = skills_control_call(
        skills, NULL, "/berth.control.v1.InternalService/ListTargets", &req.base,
        &berth__control__v1__list_targets_response__descriptor, &resp, err);
    if (code)
        return code;
    if (resp->n_targets != 1 || !resp->targets[0]->target)
        code = berth_fail(err, BERTH_REASON_CONFIG_NOT_FOUND, "no config '%s'", config_id);
    else
        *ret = BERTH_STEAL(resp->targets[0]->target);
    berth_message_free(resp);
    return code;
}

static enum berth_code read_page(const ListSnapshotsResponse *page, const char *name,
                                 struct skills_found *ret, struct berth_error *err)
{
    if (!page->complete)
        return berth_fail(err, BERTH_REASON_BACKEND_UNAVAILABLE,
                          "the list of snapshots is not whole");
    for (size_t i = 0; i < page->n_snapshots; i++) {
        const Berth__Common__V1__Snapshot *snapshot = page->snapshots[i];

        for (size_t k = 0; k < snapshot->n_names; k++) {
            if (strcmp(snapshot->names[k], name) != 0)
                continue;
            snprintf(ret->snapshot_id, sizeof ret->snapshot_id, "%s", snapshot->snapshot_id);
            ret->state = (int)snapshot->state;
            ret->size_bytes = snapshot->size_bytes;
        }
    }
    return BERTH_OK;
}

enum berth_code skills_find_by_name(struct skills *skills, BackendTarget *target,
                                    const char *name, struct skills_found *ret,
                                    struct berth_error *err)
{
    Berth__Common__V1__PageRequest page = BERTH__COMMON__V1__PAGE_REQUEST__INIT;
    ListSnapshotsRequest req = BERTH__BACKEND__V1__LIST_SNAPSHOTS_REQUEST__INIT;
    BERTH_AUTO(free) char *token = NULL;
    enum berth_code code = BERTH_OK;
    bool last = false;

    *ret = (struct skills_found){0};
    req.target = target;
    req.name_prefix = (char *)name;
    req.page = &page;
    page.page_size = PAGE_SIZE;
    for (int pages = 0; !code && !last && !ret->snapshot_id[0]; pages++) {
        ListSnapshotsResponse *resp = NULL;

        page.page_token = token ? token : (char *)"";
        code = skills_adapter_call(skills, NULL, target->backend,
                                   "/berth.backend.v1.SnapshotService/ListSnapshots", &req.base,
                                   &berth__backend__v1__list_snapshots_response__descriptor,
                                   SK_CALL_TIMEOUT_MS, &resp, err);
        if (!code)
            code = read_page(resp, name, ret, err);
        last = !code && !*resp->next_page_token;
        if (!code && !last) {
            if (pages == PAGES_MAX || strlen(resp->next_page_token) > TOKEN_MAX ||
                (token && strcmp(token, resp->next_page_token) == 0))
                code = berth_fail(err, BERTH_REASON_BACKEND_UNAVAILABLE,
                                  "the pages of the list of snapshots do not end");
            free(token);
            token = strdup(resp->next_page_token);
            if (!code && !token)
                code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        }
        berth_message_free(resp);
    }
    return code;
}

enum berth_code skills_delete_at(struct skills *skills, BackendTarget *target,
                                 const char *snapshot_id, bool *ret_in_use,
                                 struct berth_error *err)
{
    Berth__Backend__V1__DeleteSnapshotRequest req =
        BERTH__BACKEND__V1__DELETE_SNAPSHOT_REQUEST__INIT;
    Google__Protobuf__Timestamp not_after = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    struct berth_error why;
    Berth__Backend__V1__DeleteSnapshotResponse *resp = NULL;
    enum berth_code code;

    not_after.seconds = (berth_now_ms() + SK_CALL_TIMEOUT_MS) / 1000;
    req.target = target;
    req.snapshot_id = (char *)snapshot_id;
    /* The ledger has condemned it for ever: later than every grant it was made with. */
    req.fence = INT64_MAX;
    req.not_after_time = &not_after;
    code = skills_adapter_call(skills, NULL, target->backend,
                               "/berth.backend.v1.SnapshotService/DeleteSnapshot", &req.base,
                               &berth__backend__v1__delete_snapshot_response__descriptor,
                               SK_CALL_TIMEOUT_MS, &resp, &why);
    if (!code && ret_in_use)
        *ret_in_use = resp->in_use;
    berth_message_free(resp);
    if (code && why.reason == BERTH_REASON_SNAPSHOT_NOT_FOUND)
        return BERTH_OK;
    if (code && err)
        *err = why;
    return code;
}
