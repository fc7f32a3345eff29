/* The guard in front of protobuf-c, and that what passes it is packed and read back the same.
 * The same bytes also play the details of a status. */
#include "berth/testing/v1/echo.pb-c.h"
#include "common/rpc/rpc.h"
#include "tests/fuzz/fuzz.h"

static void read_as_status(const uint8_t *data, size_t size)
{
    struct berth_status status = {
        .code = BERTH_ABORTED, .message = "text", .details = data, .details_size = size};
    struct berth_error err = {0};

    if (berth_status_to_error(&status, &err) != err.code || err.code == BERTH_OK)
        abort();
    if (berth_reason_code(err.reason) != err.code)
        abort();
}

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    const ProtobufCMessageDescriptor *type = &berth__testing__v1__echo_request__descriptor;
    ProtobufCMessage *message = NULL, *again = NULL;
    struct berth_error err = {0};
    uint8_t *packed, *repacked;
    size_t packed_size;

    read_as_status(data, size);
    if (berth_decode(type, data, size, &message, &err)) {
        if (message || err.reason == BERTH_REASON_NONE)
            abort();
        return false;
    }
    packed_size = protobuf_c_message_get_packed_size(message);
    packed = malloc(packed_size + 1);
    repacked = malloc(packed_size + 1);
    if (!packed || !repacked)
        abort();
    protobuf_c_message_pack(message, packed);
    /* The canonical form may be longer, and so beyond a limit that the original just met. */
    if (berth_decode(type, packed, packed_size, &again, &err) == BERTH_OK) {
        if (protobuf_c_message_get_packed_size(again) != packed_size)
            abort();
        protobuf_c_message_pack(again, repacked);
        if (memcmp(packed, repacked, packed_size) != 0)
            abort();
        protobuf_c_message_free_unpacked(again, NULL);
    } else if (err.reason != BERTH_REASON_MESSAGE_TOO_LARGE) {
        abort();
    }
    protobuf_c_message_free_unpacked(message, NULL);
    free(packed);
    free(repacked);
    return true;
}
