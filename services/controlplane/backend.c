#include "services/controlplane/backend.h"

#include <stdio.h>

#include "common/messages/messages.h"

enum { ENDPOINT_SIZE = 2200 };

enum berth_code cp_adapter_find(struct cp *cp, const char *backend, struct berth_channel **ret,
                                struct berth_error *err)
{
    *ret = berth_adapters_find(&cp->adapters, backend);
    return *ret ? BERTH_OK
                : berth_fail_field(err, "config.backend", "must be local, docker, e2b or cube");
}

enum berth_code cp_backend_call(struct cp *cp, const char *backend, const char *path,
                                const ProtobufCMessage *req,
                                const ProtobufCMessageDescriptor *resp_type, int64_t timeout_ms,
                                const char *traceparent, void *ret_resp,
                                struct berth_error *err)
{
    struct berth_metadata trace = {.key = "traceparent", .value = traceparent};
    struct berth_call_options options = {.timeout_ms = timeout_ms};
    struct berth_channel *adapter = NULL;
    ProtobufCMessage *resp;
    enum berth_code code = cp_adapter_find(cp, backend, &adapter, err);

    if (code)
        return code;
    if (traceparent && *traceparent) {
        trace.size = strlen(traceparent);
        options.metadata = &trace;
        options.n_metadata = 1;
    }
    code = berth_channel_call(adapter, path, req, resp_type, &options, &resp, err);
    if (code) {
        BERTH_ERROR_SET(err, backend, backend);
        return code;
    }
    memcpy(ret_resp, &resp, sizeof resp);
    return BERTH_OK;
}

enum berth_code cp_backend_info(struct cp *cp, const Berth__Common__V1__BackendTarget *target,
                                const char *traceparent,
                                Berth__Backend__V1__GetInfoResponse **ret,
                                struct berth_error *err)
{
    Berth__Backend__V1__GetInfoRequest req = BERTH__BACKEND__V1__GET_INFO_REQUEST__INIT;
    Berth__Backend__V1__GetInfoResponse *info;
    enum berth_code code;

    req.target = (Berth__Common__V1__BackendTarget *)target;
    code = cp_backend_call(cp, target->backend, "/berth.backend.v1.BackendService/GetInfo",
                           &req.base, &berth__backend__v1__get_info_response__descriptor,
                           CP_CALL_TIMEOUT_MS, traceparent, &info, err);
    if (code)
        return code;
    if (!info->capabilities) {
        berth_message_free(info);
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "adapter for %s: no capabilities",
                          target->backend);
    }
    *ret = info;
    return BERTH_OK;
}

void cp_backend_endpoint(char *buf, size_t size, const char *backend, const char *api_url)
{
    snprintf(buf, size, "%s %s", backend, api_url);
}

bool cp_is_refusal(enum berth_code code)
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
    case BERTH_UNAUTHENTICATED:
    case BERTH_UNAVAILABLE: /* by contract: nothing was done (design 2.2) */
        return true;
    default:
        return false;
    }
}

bool cp_is_gone(const struct berth_error *err)
{
    return err->code == BERTH_NOT_FOUND && (err->reason == BERTH_REASON_SANDBOX_NOT_FOUND ||
                                            err->reason == BERTH_REASON_SANDBOX_TERMINAL);
}

struct deferred {
    struct cp *cp;
    struct berth_call *call;
    const ProtobufCMessage *req;
    berth_unary_fn fn;
};

static void run_deferred(void *arg)
{
    struct deferred *job = arg;
    ProtobufCMessage *resp = NULL;
    struct berth_error err = {0};
    enum berth_code code;

    if (berth_call_left_ms(job->call) == 0 || berth_call_cancelled(job->call))
        code = berth_fail(&err, BERTH_REASON_DEADLINE, "it waited too long for the backend");
    else
        code = job->fn(job->cp, job->call, job->req, &resp, &err);
    berth_call_answer(job->call, code, resp, &err);
    free(job);
}

enum berth_code cp_defer(struct cp *cp, struct berth_call *call, const ProtobufCMessage *req,
                         const char *backend, const char *api_url, berth_unary_fn fn,
                         struct berth_error *err)
{
    struct deferred *job = calloc(1, sizeof *job);
    char endpoint[ENDPOINT_SIZE];
    enum berth_code code;

    if (!job)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    *job = (struct deferred){.cp = cp, .call = berth_call_ref(call), .req = req, .fn = fn};
    cp_backend_endpoint(endpoint, sizeof endpoint, backend, api_url);
    code = cp_bulkhead_submit(cp->bulkhead, endpoint, run_deferred, job, err);
    if (!code)
        return BERTH_DEFERRED;
    berth_call_unref(call);
    free(job);
    return code;
}
