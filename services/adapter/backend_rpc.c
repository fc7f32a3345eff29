/* backend_rpc.c - BackendService over any backend: check, call the table, encode. */
#include "services/adapter/adapter.h"
#include "services/adapter/decode.h"
#include "services/adapter/edge.h"
#include "services/adapter/encode.h"

#include "berth/backend/v1/backend.pb-c.h"
#include "common/fields/fields.h"

typedef Berth__Backend__V1__GetInfoRequest GetInfoRequest;
typedef Berth__Backend__V1__CreateSandboxRequest CreateSandboxRequest;
typedef Berth__Backend__V1__CreateSandboxResponse CreateSandboxResponse;
typedef Berth__Backend__V1__ConnectSandboxRequest ConnectSandboxRequest;
typedef Berth__Backend__V1__ConnectSandboxResponse ConnectSandboxResponse;
typedef Berth__Backend__V1__GetSandboxRequest GetSandboxRequest;
typedef Berth__Backend__V1__GetSandboxResponse GetSandboxResponse;
typedef Berth__Backend__V1__ListSandboxesRequest ListSandboxesRequest;
typedef Berth__Backend__V1__ListSandboxesResponse ListSandboxesResponse;
typedef Berth__Backend__V1__PauseSandboxRequest PauseSandboxRequest;
typedef Berth__Backend__V1__PauseSandboxResponse PauseSandboxResponse;
typedef Berth__Backend__V1__SetTimeoutRequest SetTimeoutRequest;
typedef Berth__Backend__V1__SetTimeoutResponse SetTimeoutResponse;
typedef Berth__Backend__V1__SetNetworkRequest SetNetworkRequest;
typedef Berth__Backend__V1__SetNetworkResponse SetNetworkResponse;
typedef Berth__Backend__V1__DeleteSandboxRequest DeleteSandboxRequest;
typedef Berth__Backend__V1__DeleteSandboxResponse DeleteSandboxResponse;

enum { TOKEN_MAX = 4096 };

static enum berth_code get_info(void *service, struct berth_call *call,
                                const ProtobufCMessage *message, ProtobufCMessage **ret_resp,
                                struct berth_error *err)
{
    const struct adapter_service *s = service;
    const GetInfoRequest *req = (const GetInfoRequest *)message;
    Berth__Backend__V1__GetInfoResponse *resp;
    struct adapter_info info = {0};
    enum berth_code code = BERTH_OK;

    (void)call;
    if (req->target)
        code = decode_target(req->target, s->ops->backend, err);
    if (code)
        return edge_failed(s, "", code, err);
    s->ops->info(s->adapter, &info);
    resp = encode_info(s->ops->backend, &info);
    return edge_answer(resp ? &resp->base : NULL, ret_resp, err);
}

static enum berth_code create_sandbox(void *service, struct berth_call *call,
                                      const ProtobufCMessage *message,
                                      ProtobufCMessage **ret_resp, struct berth_error *err)
{
    const struct adapter_service *s = service;
    const CreateSandboxRequest *req = (const CreateSandboxRequest *)message;
    struct adapter_sandbox sandbox = {0};
    struct adapter_info info = {0};
    struct decoded_create decoded;
    CreateSandboxResponse *resp;
    enum berth_code code;

    s->ops->info(s->adapter, &info);
    code = decode_create(req, s->ops->backend, &info, &decoded, err);
    if (code)
        return edge_failed(s, "", code, err);
    code = s->ops->create(s->adapter, &decoded.create, edge_deadline(call, EDGE_CALL_MS),
                          &sandbox, err);
    decode_create_deinit(&decoded);
    if (code)
        return edge_failed(s, "", code, err);

    resp = calloc(1, sizeof *resp);
    if (resp) {
        berth__backend__v1__create_sandbox_response__init(resp);
        resp->sandbox = encode_sandbox(s->ops->backend, &sandbox);
        resp->endpoint = encode_endpoint(req->target, sandbox.id, req->fence);
    }
    adapter_sandbox_deinit(&sandbox);
    return edge_answer_whole(resp ? &resp->base : NULL, resp && resp->sandbox && resp->endpoint,
                             ret_resp, err);
}

static enum berth_code connect_sandbox(void *service, struct berth_call *call,
                                       const ProtobufCMessage *message,
                                       ProtobufCMessage **ret_resp, struct berth_error *err)
{
    const struct adapter_service *s = service;
    const ConnectSandboxRequest *req = (const ConnectSandboxRequest *)message;
    struct adapter_sandbox sandbox = {0};
    struct adapter_timeouts timeouts;
    struct adapter_info info = {0};
    struct adapter_grant grant;
    ConnectSandboxResponse *resp;
    bool resumed = false;
    enum berth_code code;

    s->ops->info(s->adapter, &info);
    code = edge_check_sandbox(s, req->target, req->sandbox_id, err);
    if (!code)
        code = berth_check_text("traffic_token", req->traffic_token, 0, TOKEN_MAX, err);
    if (!code && req->timeouts)
        code = decode_timeouts(req->timeouts, &info, false, &timeouts, err);
    if (!code)
        code = decode_grant(req->fence, req->not_after_time, &grant, err);
    if (!code)
        code = s->ops->connect(s->adapter, req->sandbox_id, &grant,
                               req->timeouts ? &timeouts : NULL,
                               edge_deadline(call, EDGE_CALL_MS), &sandbox, &resumed, err);
    if (code)
        return edge_failed(s, req->sandbox_id, code, err);

    resp = calloc(1, sizeof *resp);
    if (resp) {
        berth__backend__v1__connect_sandbox_response__init(resp);
        resp->resumed = resumed;
        resp->memory_lost = resumed && !info.pause_keeps_memory;
        resp->sandbox = encode_sandbox(s->ops->backend, &sandbox);
        resp->endpoint = encode_endpoint(req->target, sandbox.id, grant.fence);
    }
    adapter_sandbox_deinit(&sandbox);
    return edge_answer_whole(resp ? &resp->base : NULL, resp && resp->sandbox && resp->endpoint,
                             ret_resp, err);
}

static enum berth_code get_sandbox(void *service, struct berth_call *call,
                                   const ProtobufCMessage *message, ProtobufCMessage **ret_resp,
                                   struct berth_error *err)
{
    const struct adapter_service *s = service;
    const GetSandboxRequest *req = (const GetSandboxRequest *)message;
    struct adapter_sandbox sandbox = {0};
    GetSandboxResponse *resp;
    enum berth_code code = edge_check_sandbox(s, req->target, req->sandbox_id, err);

    if (!code)
        code = s->ops->get(s->adapter, req->sandbox_id, edge_deadline(call, EDGE_CALL_MS),
                           &sandbox, err);
    if (code)
        return edge_failed(s, req->sandbox_id, code, err);

    resp = calloc(1, sizeof *resp);
    if (resp) {
        berth__backend__v1__get_sandbox_response__init(resp);
        resp->sandbox = encode_sandbox(s->ops->backend, &sandbox);
    }
    adapter_sandbox_deinit(&sandbox);
    return edge_answer_whole(resp ? &resp->base : NULL, resp && resp->sandbox, ret_resp, err);
}

/* ------------------------------------------------------------------------ list */

struct filter {
    struct adapter_pairs metadata;
    const Berth__Common__V1__SandboxState *states;
    size_t n_states;
    const char *after; /* id; "" = from the start */
};

static bool passes(const struct filter *filter, const struct adapter_sandbox *sandbox)
{
    bool state = filter->n_states == 0;

    for (size_t i = 0; i < filter->n_states && !state; i++)
        state = (int)filter->states[i] == (int)sandbox->state;
    if (!state || strcmp(sandbox->id, filter->after) <= 0)
        return false;
    for (size_t i = 0; i < filter->metadata.n; i++) {
        const char *value = adapter_pairs_get(&sandbox->metadata, filter->metadata.keys[i]);

        if (!value || strcmp(value, filter->metadata.values[i]) != 0)
            return false;
    }
    return true;
}

static enum berth_code encode_page(const char *backend, const struct filter *filter,
                                   const struct adapter_sandbox *list, size_t n, uint32_t size,
                                   bool complete, ProtobufCMessage **ret_resp,
                                   struct berth_error *err)
{
    ListSandboxesResponse *resp = calloc(1, sizeof *resp);
    bool whole = resp != NULL;
    size_t last = 0;

    if (resp) {
        berth__backend__v1__list_sandboxes_response__init(resp);
        resp->complete = complete;
        resp->sandboxes = calloc(size, sizeof *resp->sandboxes);
        whole = resp->sandboxes != NULL;
    }
    for (size_t i = 0; whole && i < n; i++) {
        if (!passes(filter, &list[i]))
            continue;
        if (resp->n_sandboxes == size) {
            whole = encode_string(&resp->next_page_token, list[last].id);
            break;
        }
        resp->sandboxes[resp->n_sandboxes] = encode_sandbox(backend, &list[i]);
        whole = resp->sandboxes[resp->n_sandboxes] != NULL;
        resp->n_sandboxes += whole;
        last = i;
    }
    return edge_answer_whole(resp ? &resp->base : NULL, whole, ret_resp, err);
}

static enum berth_code decode_filter(const ListSandboxesRequest *req, struct filter *filter,
                                     uint32_t *size, struct berth_error *err)
{
    enum berth_code code = edge_check_page(req->page, size, &filter->after, err);

    for (size_t i = 0; !code && i < req->n_states; i++)
        code = berth_check_enum_entry("states", (int)req->states[i],
                                      BERTH__COMMON__V1__SANDBOX_STATE__SANDBOX_STATE_UNKNOWN,
                                      err);
    filter->states = req->states;
    filter->n_states = req->n_states;
    return code ? code : decode_metadata_filter(req, &filter->metadata, err);
}

static enum berth_code list_sandboxes(void *service, struct berth_call *call,
                                      const ProtobufCMessage *message,
                                      ProtobufCMessage **ret_resp, struct berth_error *err)
{
    const struct adapter_service *s = service;
    const ListSandboxesRequest *req = (const ListSandboxesRequest *)message;
    struct filter filter = {.after = ""};
    struct adapter_sandbox *list = NULL;
    bool complete = false;
    uint32_t size;
    size_t n = 0;
    enum berth_code code = decode_target(req->target, s->ops->backend, err);

    if (!code)
        code = decode_filter(req, &filter, &size, err);
    if (!code)
        code = s->ops->list(s->adapter, edge_deadline(call, EDGE_CALL_MS), &list, &n, &complete,
                            err);
    if (!code)
        code = encode_page(s->ops->backend, &filter, list, n, size, complete, ret_resp, err);
    for (size_t i = 0; i < n; i++)
        adapter_sandbox_deinit(&list[i]);
    free(list);
    decode_pairs_deinit(&filter.metadata);
    return code ? edge_failed(s, "", code, err) : BERTH_OK;
}

/* --------------------------------------------------------------------- changes */

static enum berth_code pause_sandbox(void *service, struct berth_call *call,
                                     const ProtobufCMessage *message,
                                     ProtobufCMessage **ret_resp, struct berth_error *err)
{
    const struct adapter_service *s = service;
    const PauseSandboxRequest *req = (const PauseSandboxRequest *)message;
    struct adapter_sandbox sandbox = {0};
    struct adapter_grant grant;
    PauseSandboxResponse *resp;
    enum berth_code code = edge_check_sandbox(s, req->target, req->sandbox_id, err);

    if (!code)
        code = decode_grant(req->fence, req->not_after_time, &grant, err);
    if (!code && !s->ops->pause)
        code = decode_missing(err, "sandbox_id", "pause");
    if (!code)
        code = s->ops->pause(s->adapter, req->sandbox_id, &grant,
                             edge_deadline(call, EDGE_CALL_MS), &sandbox, err);
    if (code)
        return edge_failed(s, req->sandbox_id, code, err);

    resp = calloc(1, sizeof *resp);
    if (resp) {
        berth__backend__v1__pause_sandbox_response__init(resp);
        resp->sandbox = encode_sandbox(s->ops->backend, &sandbox);
    }
    adapter_sandbox_deinit(&sandbox);
    return edge_answer_whole(resp ? &resp->base : NULL, resp && resp->sandbox, ret_resp, err);
}

static enum berth_code set_timeout(void *service, struct berth_call *call,
                                   const ProtobufCMessage *message, ProtobufCMessage **ret_resp,
                                   struct berth_error *err)
{
    const struct adapter_service *s = service;
    const SetTimeoutRequest *req = (const SetTimeoutRequest *)message;
    struct adapter_sandbox sandbox = {0};
    struct adapter_timeouts timeouts;
    struct adapter_info info = {0};
    struct adapter_grant grant;
    SetTimeoutResponse *resp;
    enum berth_code code = edge_check_sandbox(s, req->target, req->sandbox_id, err);

    s->ops->info(s->adapter, &info);
    if (!code)
        code = decode_timeouts(req->timeouts, &info, false, &timeouts, err);
    if (!code)
        code = decode_grant(req->fence, req->not_after_time, &grant, err);
    if (!code)
        code = s->ops->set_timeout(s->adapter, req->sandbox_id, &grant, &timeouts,
                                   req->extend_only, edge_deadline(call, EDGE_CALL_MS),
                                   &sandbox, err);
    if (code)
        return edge_failed(s, req->sandbox_id, code, err);

    resp = calloc(1, sizeof *resp);
    if (resp) {
        berth__backend__v1__set_timeout_response__init(resp);
        resp->sandbox = encode_sandbox(s->ops->backend, &sandbox);
    }
    adapter_sandbox_deinit(&sandbox);
    return edge_answer_whole(resp ? &resp->base : NULL, resp && resp->sandbox, ret_resp, err);
}

static enum berth_code set_network(void *service, struct berth_call *call,
                                   const ProtobufCMessage *message, ProtobufCMessage **ret_resp,
                                   struct berth_error *err)
{
    const struct adapter_service *s = service;
    const SetNetworkRequest *req = (const SetNetworkRequest *)message;
    struct adapter_sandbox sandbox = {0};
    struct adapter_network network;
    struct adapter_info info = {0};
    struct adapter_grant grant;
    SetNetworkResponse *resp;
    enum berth_code code = edge_check_sandbox(s, req->target, req->sandbox_id, err);

    s->ops->info(s->adapter, &info);
    if (!code)
        code = decode_network(req->network, &info, &network, err);
    if (!code)
        code = decode_grant(req->fence, req->not_after_time, &grant, err);
    if (!code && !info.live_update)
        code = decode_missing(err, "network", "network.live_update");
    if (!code)
        code = s->ops->set_network(s->adapter, req->sandbox_id, &grant, &network,
                                   edge_deadline(call, EDGE_CALL_MS), &sandbox, err);
    if (code)
        return edge_failed(s, req->sandbox_id, code, err);

    resp = calloc(1, sizeof *resp);
    if (resp) {
        berth__backend__v1__set_network_response__init(resp);
        resp->sandbox = encode_sandbox(s->ops->backend, &sandbox);
    }
    adapter_sandbox_deinit(&sandbox);
    return edge_answer_whole(resp ? &resp->base : NULL, resp && resp->sandbox, ret_resp, err);
}

static enum berth_code delete_sandbox(void *service, struct berth_call *call,
                                      const ProtobufCMessage *message,
                                      ProtobufCMessage **ret_resp, struct berth_error *err)
{
    const struct adapter_service *s = service;
    const DeleteSandboxRequest *req = (const DeleteSandboxRequest *)message;
    int64_t unless_active_after_ms = 0;
    struct adapter_grant grant;
    DeleteSandboxResponse *resp;
    bool existed = false;
    enum berth_code code = edge_check_sandbox(s, req->target, req->sandbox_id, err);

    if (!code)
        code = decode_time("unless_active_after", req->unless_active_after,
                           &unless_active_after_ms, err);
    if (!code)
        code = decode_grant(req->fence, req->not_after_time, &grant, err);
    if (!code)
        code = s->ops->destroy(s->adapter, req->sandbox_id, &grant, unless_active_after_ms,
                               edge_deadline(call, EDGE_CALL_MS), &existed, err);
    if (code)
        return edge_failed(s, req->sandbox_id, code, err);

    resp = calloc(1, sizeof *resp);
    if (resp) {
        berth__backend__v1__delete_sandbox_response__init(resp);
        resp->existed = existed;
    }
    return edge_answer(resp ? &resp->base : NULL, ret_resp, err);
}

#define METHOD(name, type, fn)                                                                 \
    {                                                                                          \
        .path = "/berth.backend.v1.BackendService/" name,                                      \
        .request = &berth__backend__v1__##type##__descriptor, .unary = fn                      \
    }

const struct berth_method adapter_backend_methods[] = {
    METHOD("GetInfo", get_info_request, get_info),
    METHOD("CreateSandbox", create_sandbox_request, create_sandbox),
    METHOD("ConnectSandbox", connect_sandbox_request, connect_sandbox),
    METHOD("GetSandbox", get_sandbox_request, get_sandbox),
    METHOD("ListSandboxes", list_sandboxes_request, list_sandboxes),
    METHOD("PauseSandbox", pause_sandbox_request, pause_sandbox),
    METHOD("SetTimeout", set_timeout_request, set_timeout),
    METHOD("SetNetwork", set_network_request, set_network),
    METHOD("DeleteSandbox", delete_sandbox_request, delete_sandbox),
};
const size_t n_adapter_backend_methods = BERTH_COUNT(adapter_backend_methods);
