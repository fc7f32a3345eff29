#include "services/adapter/edge.h"

#include "common/fields/fields.h"
#include "common/time/time.h"
#include "services/adapter/decode.h"

int64_t edge_deadline(const struct berth_call *call, int64_t default_ms)
{
    int64_t left_ms = berth_call_left_ms(call);

    return berth_tick_ms() + (left_ms < default_ms ? left_ms : default_ms);
}

enum berth_code edge_failed(const struct adapter_service *service, const char *sandbox_id,
                            enum berth_code code, struct berth_error *err)
{
    BERTH_ERROR_SET(err, backend, service->ops->backend);
    if (err && !err->sandbox_id[0])
        BERTH_ERROR_SET(err, sandbox_id, sandbox_id);
    return code;
}

enum berth_code edge_answer(ProtobufCMessage *resp, ProtobufCMessage **ret_resp,
                            struct berth_error *err)
{
    if (!resp)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    *ret_resp = resp;
    return BERTH_OK;
}

enum berth_code edge_answer_whole(ProtobufCMessage *resp, bool whole,
                                  ProtobufCMessage **ret_resp, struct berth_error *err)
{
    if (resp && !whole) {
        protobuf_c_message_free_unpacked(resp, NULL);
        resp = NULL;
    }
    return edge_answer(resp, ret_resp, err);
}

enum berth_code edge_check_sandbox(const struct adapter_service *service,
                                   const Berth__Common__V1__BackendTarget *target,
                                   const char *sandbox_id, struct berth_error *err)
{
    enum berth_code code = decode_target(target, service->ops->backend, err);

    return code ? code : berth_check_id("sandbox_id", sandbox_id, err);
}

enum berth_code edge_check_page(const Berth__Common__V1__PageRequest *page, uint32_t *ret_size,
                                const char **ret_after, struct berth_error *err)
{
    enum berth_code code;

    *ret_after = "";
    code = berth_check_page_size("page.page_size", page ? page->page_size : 0, ret_size, err);
    if (!code && page)
        code = berth_check_id_or_empty("page.page_token", page->page_token, err);
    if (!code && page)
        *ret_after = page->page_token;
    return code;
}
