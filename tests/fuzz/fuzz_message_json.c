/* A stored config read into its message: what is accepted is written and read back the same. */
#include "common/messages/messages.h"
#include "common/records/message_json.h"
#include "tests/fuzz/fuzz.h"

#include "berth/control/v1/control.pb-c.h"

enum { SIZE_LIMIT = 64 << 10 };

static ProtobufCMessage *read_config(const json_t *json)
{
    struct berth_error err = {0};
    ProtobufCMessage *message = NULL;

    if (berth_message_from_json(json, &berth__control__v1__sandbox_config__descriptor, &message,
                                &err)) {
        if (message || !err.code)
            abort();
        return NULL;
    }
    return message;
}

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    BERTH_AUTO(json_decref) json_t *json = NULL, *once = NULL, *twice = NULL;
    ProtobufCMessage *message, *again;

    if (berth_json_parse((const char *)data, size, SIZE_LIMIT, &json, NULL))
        return false;
    message = read_config(json);
    if (!message)
        return false;
    once = berth_message_to_json(message);
    again = once ? read_config(once) : NULL;
    twice = again ? berth_message_to_json(again) : NULL;
    if (!twice || !json_equal(once, twice))
        abort();
    berth_message_free(message);
    berth_message_free(again);
    return true;
}
