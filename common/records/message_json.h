/* message_json.h - a protobuf-c message as a JSON object, for the documents kept in Redis.
 *
 * Members are named as in the .proto. Zero scalars, empty strings, lists and maps, and absent
 * messages are left out; the chosen member of a oneof is always there. Enums are their names
 * (unknown numbers are numbers), bytes are lower-case hex, maps with string keys are objects.
 */
#pragma once

#include <protobuf-c/protobuf-c.h>

#include "common/errors/errors.h"
#include "common/json/json.h"

/* Owned object. NULL: no memory, a string that is not UTF-8, or nested deeper than 32. */
json_t *berth_message_to_json(const ProtobufCMessage *message);

/* The reverse; *ret is freed with protobuf_c_message_free_unpacked(m, NULL). Unknown members
 * are passed over. No rule but the type is checked. Errors: FIELD_INVALID naming the member of
 * the wrong type; OUT_OF_MEMORY. */
BERTH_MUST_CHECK enum berth_code berth_message_from_json(const json_t *object,
                                                         const ProtobufCMessageDescriptor *type,
                                                         ProtobufCMessage **ret,
                                                         struct berth_error *err);
