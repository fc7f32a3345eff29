/* backend.c - calls to the control plane, to binding and to adapters. */
#include "berth/backend/v1/backend.pb-c.h"
#include "common/records/deployment.h"
#include "services/reaper/reaper.h"

enum berth_code reaper_enter(struct reaper *reaper, struct berth_error *err)
{
    enum berth_code code;

    if (atomic_load_explicit(&reaper->store_checked, memory_order_acquire))
        return BERTH_OK;
    code = berth_deployment_check(reaper->redis, reaper->runtime->deployment, err);
    if (code == BERTH_INVALID_ARGUMENT)
        return berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE,
                          "the store is not this deployment's");
    if (!code)
        atomic_store_explicit(&reaper->store_checked, true, memory_order_release);
    return code;
}

enum berth_code reaper_call(struct berth_channel *channel, const char *path,
                            const ProtobufCMessage *req,
                            const ProtobufCMessageDescriptor *resp_type, int64_t timeout_ms,
                            void *ret, struct berth_error *err)
{
    const struct berth_call_options options = {.timeout_ms = timeout_ms};
    ProtobufCMessage *resp;
    enum berth_code code =
        berth_channel_call(channel, path, req, resp_type, &options, &resp, err);

    if (!code)
        memcpy(ret, &resp, sizeof resp);
    return code;
}

enum berth_code reaper_adapter_call(struct reaper *reaper, const char *backend,
                                    const char *path, const ProtobufCMessage *req,
                                    const ProtobufCMessageDescriptor *resp_type, void *ret,
                                    struct berth_error *err)
{
    struct berth_channel *channel = berth_adapters_find(&reaper->adapters, backend);

    if (channel)
        return reaper_call(channel, path, req, resp_type, REAPER_CALL_TIMEOUT_MS, ret, err);
    return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "no adapter for backend '%s'", backend);
}
