/* First messages of the data plane: the guarded decode and the field rules, as every caller
 * meets them. The first byte chooses the type of the rest. */
#include "common/data/data.h"
#include "common/rpc/rpc.h"
#include "tests/fuzz/fuzz.h"

static const ProtobufCMessageDescriptor *const types[] = {
    &berth__data__v1__run_request__descriptor,
    &berth__data__v1__exec_request__descriptor,
    &berth__data__v1__attach_request__descriptor,
    &berth__data__v1__send_input_request__descriptor,
    &berth__data__v1__signal_request__descriptor,
    &berth__data__v1__list_processes_request__descriptor,
    &berth__data__v1__stat_request__descriptor,
    &berth__data__v1__list_dir_request__descriptor,
    &berth__data__v1__make_dir_request__descriptor,
    &berth__data__v1__move_request__descriptor,
    &berth__data__v1__remove_request__descriptor,
    &berth__data__v1__read_file_request__descriptor,
    &berth__data__v1__write_file_request__descriptor,
};

static void check_promises(const struct berth_data_request *request)
{
    if (!request->session || request->session->tenant_id[0] == 0 ||
        request->session->session_id[0] == 0)
        abort();
    if (request->command &&
        request->command->run_case == BERTH__DATA__V1__COMMAND__RUN__NOT_SET)
        abort();
}

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    struct berth_data_request request;
    struct berth_error err = {0};
    ProtobufCMessage *message = NULL;
    enum berth_code code;

    if (size == 0)
        return false;
    if (berth_decode(types[data[0] % BERTH_COUNT(types)], data + 1, size - 1, &message, &err))
        return false;
    code = berth_data_check(message, &request, &err);
    if (code == BERTH_OK)
        check_promises(&request);
    else if (err.reason != BERTH_REASON_FIELD_INVALID || err.field[0] == 0)
        abort();
    protobuf_c_message_free_unpacked(message, NULL);
    return code == BERTH_OK;
}
