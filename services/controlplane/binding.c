#include "services/controlplane/binding.h"

#include "common/messages/messages.h"

enum berth_code cp_binding_call(struct cp *cp, struct berth_call *call, const char *path,
                                const ProtobufCMessage *req,
                                const ProtobufCMessageDescriptor *resp_type, bool idempotent,
                                void *ret, struct berth_error *err)
{
    const struct berth_call_options options = {
        .timeout_ms = CP_CALL_TIMEOUT_MS, .parent = call, .idempotent = idempotent};
    ProtobufCMessage *resp;
    enum berth_code code =
        berth_channel_call(cp->binding, path, req, resp_type, &options, &resp, err);

    if (!code)
        memcpy(ret, &resp, sizeof resp);
    return code;
}

enum berth_code cp_binding_get(struct cp *cp, const Berth__Common__V1__SessionRef *ref,
                               Berth__Binding__V1__GetBindingResponse **ret,
                               struct berth_error *err)
{
    Berth__Binding__V1__GetBindingRequest req = BERTH__BINDING__V1__GET_BINDING_REQUEST__INIT;
    Berth__Binding__V1__GetBindingResponse *got;
    enum berth_code code;

    req.session = (Berth__Common__V1__SessionRef *)ref;
    code = cp_binding_call(cp, NULL, "/berth.binding.v1.BindingService/GetBinding", &req.base,
                           &berth__binding__v1__get_binding_response__descriptor, false, &got,
                           err);
    if (code)
        return code;
    if (!got->session || !got->session->ref) {
        berth_message_free(got);
        return berth_fail(err, BERTH_REASON_SESSION_NOT_FOUND, NULL);
    }
    *ret = got;
    return BERTH_OK;
}

enum berth_code cp_loss_told(struct cp *cp, const Berth__Common__V1__SessionRef *ref,
                             uint64_t number, struct berth_error *err)
{
    Berth__Binding__V1__LossToldRequest req = BERTH__BINDING__V1__LOSS_TOLD_REQUEST__INIT;
    Berth__Binding__V1__LossToldResponse *resp;
    enum berth_code code;

    req.session = (Berth__Common__V1__SessionRef *)ref;
    req.number = number;
    code =
        cp_binding_call(cp, NULL, "/berth.binding.v1.BindingService/LossTold", &req.base,
                        &berth__binding__v1__loss_told_response__descriptor, true, &resp, err);
    if (!code)
        berth_message_free(resp);
    return code;
}

enum berth_code cp_session_config(struct cp *cp,
                                  const Berth__Binding__V1__SessionRecord *record,
                                  struct cp_config **ret, struct berth_error *err)
{
    *ret = NULL;
    if (!record->spec || !*record->spec->config_id)
        return BERTH_OK;
    return cp_cache_config(cp->cache, record->ref->tenant_id, record->spec->config_id, ret,
                           err);
}
