#include "common/records/message_json.h"

#include <limits.h>
#include <stdbool.h>

#include "common/ids/ids.h"

enum { DEPTH_MAX = 32 };

typedef const ProtobufCFieldDescriptor field_type;

static json_t *message_to_json(const ProtobufCMessage *message, int depth);
static enum berth_code message_from_json(const json_t *object,
                                         const ProtobufCMessageDescriptor *type, int depth,
                                         ProtobufCMessage **ret, struct berth_error *err);

/* protobuf-c does not say which message is the entry of a map; its shape and name do. */
static bool is_map(field_type *field)
{
    const ProtobufCMessageDescriptor *type = field->descriptor;
    size_t len;

    if (field->label != PROTOBUF_C_LABEL_REPEATED || field->type != PROTOBUF_C_TYPE_MESSAGE)
        return false;
    len = strlen(type->short_name);
    return type->n_fields == 2 && len > 5 && strcmp(type->short_name + len - 5, "Entry") == 0 &&
           strcmp(type->fields[0].name, "key") == 0 &&
           strcmp(type->fields[1].name, "value") == 0 &&
           type->fields[0].type == PROTOBUF_C_TYPE_STRING;
}

static size_t element_size(field_type *field)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return 8;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    case PROTOBUF_C_TYPE_BOOL:
        return sizeof(protobuf_c_boolean);
    default:
        return 4;
    }
}

/* ------------------------------------------------------------------ to JSON */

static json_t *bytes_to_json(const ProtobufCBinaryData *bytes)
{
    BERTH_AUTO(free) char *hex = malloc(2 * bytes->len + 1);

    if (!hex)
        return NULL;
    hex[0] = 0;
    if (bytes->len)
        berth_hex(hex, bytes->data, bytes->len);
    return json_string(hex);
}

static json_t *value_to_json(field_type *field, const void *at, int depth)
{
    const ProtobufCEnumValue *name;

    switch (field->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
        return json_integer(*(const int32_t *)at);
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        return json_integer(*(const uint32_t *)at);
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        return json_integer(*(const int64_t *)at);
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64: /* above INT64_MAX: wraps, and wraps back */
        return json_integer((json_int_t) * (const uint64_t *)at);
    case PROTOBUF_C_TYPE_FLOAT:
        return json_real(*(const float *)at);
    case PROTOBUF_C_TYPE_DOUBLE:
        return json_real(*(const double *)at);
    case PROTOBUF_C_TYPE_BOOL:
        return json_boolean(*(const protobuf_c_boolean *)at);
    case PROTOBUF_C_TYPE_ENUM:
        name = protobuf_c_enum_descriptor_get_value(field->descriptor, *(const int *)at);
        return name ? json_string(name->name) : json_integer(*(const int *)at);
    case PROTOBUF_C_TYPE_STRING:
        return json_string(*(char *const *)at ? *(char *const *)at : "");
    case PROTOBUF_C_TYPE_BYTES:
        return bytes_to_json(at);
    case PROTOBUF_C_TYPE_MESSAGE:
        return message_to_json(*(ProtobufCMessage *const *)at, depth + 1);
    }
    return NULL;
}

static bool is_zero(field_type *field, const void *at)
{
    static const char zeros[sizeof(double)];

    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
        return !*(char *const *)at || **(char *const *)at == 0;
    case PROTOBUF_C_TYPE_BYTES:
        return ((const ProtobufCBinaryData *)at)->len == 0;
    case PROTOBUF_C_TYPE_MESSAGE:
        return *(void *const *)at == NULL;
    default:
        return memcmp(at, zeros, element_size(field)) == 0;
    }
}

static json_t *map_to_json(void *const *entries, size_t n, int depth)
{
    BERTH_AUTO(json_decref) json_t *object = json_object();

    for (size_t i = 0; object && i < n; i++) {
        const ProtobufCMessage *entry = entries[i];
        field_type *fields = entry->descriptor->fields;
        const char *at = entries[i];
        const char *key = *(char *const *)(at + fields[0].offset);

        if (json_object_set_new(object, key ? key : "",
                                value_to_json(&fields[1], at + fields[1].offset, depth)))
            return NULL;
    }
    return BERTH_STEAL(object);
}

static json_t *list_to_json(field_type *field, const char *data, size_t n, int depth)
{
    BERTH_AUTO(json_decref) json_t *list = json_array();

    for (size_t i = 0; list && i < n; i++)
        if (json_array_append_new(list,
                                  value_to_json(field, data + i * element_size(field), depth)))
            return NULL;
    return BERTH_STEAL(list);
}

/* *ret NULL and true: the field is left out. False: out of memory. */
static bool field_to_json(field_type *field, const char *message, int depth, json_t **ret)
{
    const char *at = message + field->offset;

    *ret = NULL;
    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        size_t n = *(const size_t *)(message + field->quantifier_offset);

        if (n == 0)
            return true;
        *ret = is_map(field) ? map_to_json(*(void *const *const *)at, n, depth)
                             : list_to_json(field, *(const char *const *)at, n, depth);
    } else if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
        if (*(const uint32_t *)(message + field->quantifier_offset) != field->id)
            return true;
        *ret = value_to_json(field, at, depth);
    } else {
        if (is_zero(field, at))
            return true;
        *ret = value_to_json(field, at, depth);
    }
    return *ret != NULL;
}

static json_t *message_to_json(const ProtobufCMessage *message, int depth)
{
    BERTH_AUTO(json_decref) json_t *object = NULL;

    if (!message || depth > DEPTH_MAX || !(object = json_object()))
        return NULL;
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        field_type *field = &message->descriptor->fields[i];
        json_t *value;

        if (!field_to_json(field, (const char *)message, depth, &value))
            return NULL;
        if (value && json_object_set_new(object, field->name, value))
            return NULL;
    }
    return BERTH_STEAL(object);
}

json_t *berth_message_to_json(const ProtobufCMessage *message)
{
    return message_to_json(message, 0);
}

/* ---------------------------------------------------------------- from JSON */

static enum berth_code wrong_type(field_type *field, const char *wanted,
                                  struct berth_error *err)
{
    return berth_fail_field(err, field->name, "must be %s", wanted);
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static enum berth_code bytes_from_json(field_type *field, const json_t *json,
                                       ProtobufCBinaryData *ret, struct berth_error *err)
{
    const char *text = json_string_value(json);
    size_t len = text ? json_string_length(json) : 1;
    uint8_t *data;

    if (len % 2)
        return wrong_type(field, "a string of hex digits", err);
    if (!(data = malloc(len / 2 + 1)))
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    for (size_t i = 0; i < len / 2; i++) {
        int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);

        if (high < 0 || low < 0) {
            free(data);
            return wrong_type(field, "a string of hex digits", err);
        }
        data[i] = (uint8_t)(high << 4 | low);
    }
    *ret = (ProtobufCBinaryData){.len = len / 2, .data = data};
    return BERTH_OK;
}

static enum berth_code enum_from_json(field_type *field, const json_t *json, int *ret,
                                      struct berth_error *err)
{
    const ProtobufCEnumValue *value;

    if (json_is_integer(json) && json_integer_value(json) >= INT_MIN &&
        json_integer_value(json) <= INT_MAX) {
        *ret = (int)json_integer_value(json);
        return BERTH_OK;
    }
    value = json_is_string(json) ? protobuf_c_enum_descriptor_get_value_by_name(
                                       field->descriptor, json_string_value(json))
                                 : NULL;
    if (!value)
        return wrong_type(field, "the name of a known value", err);
    *ret = value->value;
    return BERTH_OK;
}

static enum berth_code int_from_json(field_type *field, const json_t *json, int64_t min,
                                     int64_t max, int64_t *ret, struct berth_error *err)
{
    if (!json_is_integer(json) || json_integer_value(json) < min ||
        json_integer_value(json) > max)
        return wrong_type(field, "an integer in the range of its type", err);
    *ret = json_integer_value(json);
    return BERTH_OK;
}

static enum berth_code value_from_json(field_type *field, const json_t *json, int depth,
                                       void *at, struct berth_error *err)
{
    enum berth_code code;
    int64_t number = 0;
    char *copy;

    switch (field->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
        if (!(code = int_from_json(field, json, INT32_MIN, INT32_MAX, &number, err)))
            *(int32_t *)at = (int32_t)number;
        return code;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        if (!(code = int_from_json(field, json, 0, UINT32_MAX, &number, err)))
            *(uint32_t *)at = (uint32_t)number;
        return code;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        if (!(code = int_from_json(field, json, INT64_MIN, INT64_MAX, &number, err)))
            *(int64_t *)at = number;
        return code;
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_DOUBLE:
        if (!json_is_number(json))
            return wrong_type(field, "a number", err);
        if (field->type == PROTOBUF_C_TYPE_FLOAT)
            *(float *)at = (float)json_number_value(json);
        else
            *(double *)at = json_number_value(json);
        return BERTH_OK;
    case PROTOBUF_C_TYPE_BOOL:
        if (!json_is_boolean(json))
            return wrong_type(field, "true or false", err);
        *(protobuf_c_boolean *)at = json_is_true(json);
        return BERTH_OK;
    case PROTOBUF_C_TYPE_ENUM:
        return enum_from_json(field, json, at, err);
    case PROTOBUF_C_TYPE_STRING:
        if (!json_is_string(json))
            return wrong_type(field, "a string", err);
        if (!(copy = strdup(json_string_value(json))))
            return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        *(char **)at = copy;
        return BERTH_OK;
    case PROTOBUF_C_TYPE_BYTES:
        return bytes_from_json(field, json, at, err);
    case PROTOBUF_C_TYPE_MESSAGE:
        return message_from_json(json, field->descriptor, depth + 1, at, err);
    }
    return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "%s: unknown type", field->name);
}

static enum berth_code entry_from_json(const ProtobufCMessageDescriptor *type, const char *key,
                                       const json_t *value, int depth, void *at,
                                       struct berth_error *err)
{
    char *entry = calloc(1, type->sizeof_message);
    char *copy = strdup(key);

    if (!entry || !copy) {
        free(entry);
        free(copy);
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    protobuf_c_message_init(type, entry);
    *(char **)(entry + type->fields[0].offset) = copy;
    *(char **)at = entry; /* freed with the message, filled or not */
    return value_from_json(&type->fields[1], value, depth, entry + type->fields[1].offset, err);
}

static enum berth_code repeated_from_json(field_type *field, json_t *json, int depth,
                                          char *message, struct berth_error *err)
{
    bool map = is_map(field);
    size_t n = map ? json_object_size(json) : json_array_size(json), size = element_size(field);
    size_t *ret_n = (size_t *)(message + field->quantifier_offset), i;
    enum berth_code code;
    const char *key;
    json_t *value;
    char *list;

    if (map ? !json_is_object(json) : !json_is_array(json))
        return wrong_type(field, map ? "an object" : "a list", err);
    if (n == 0)
        return BERTH_OK;
    if (!(list = calloc(n, size)))
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    *(char **)(message + field->offset) = list;
    if (!map) {
        json_array_foreach(json, i, value)
        {
            if ((code = value_from_json(field, value, depth, list + i * size, err)))
                return code;
            *ret_n = i + 1;
        }
        return BERTH_OK;
    }
    json_object_foreach(json, key, value)
    {
        code = entry_from_json(field->descriptor, key, value, depth, list + *ret_n * size, err);
        if (*(char **)(list + *ret_n * size))
            ++*ret_n;
        if (code)
            return code;
    }
    return BERTH_OK;
}

static enum berth_code fields_from_json(const json_t *object,
                                        const ProtobufCMessageDescriptor *type, int depth,
                                        char *message, struct berth_error *err)
{
    enum berth_code code;

    for (unsigned i = 0; i < type->n_fields; i++) {
        field_type *field = &type->fields[i];
        json_t *json = json_object_get(object, field->name);

        if (!json || json_is_null(json))
            continue;
        if (field->label == PROTOBUF_C_LABEL_REPEATED) {
            code = repeated_from_json(field, json, depth, message, err);
        } else if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
            uint32_t *chosen = (uint32_t *)(message + field->quantifier_offset);

            if (*chosen)
                return wrong_type(field, "the only member of its group", err);
            code = value_from_json(field, json, depth, message + field->offset, err);
            if (!code)
                *chosen = field->id;
        } else {
            code = value_from_json(field, json, depth, message + field->offset, err);
        }
        if (code)
            return code;
    }
    return BERTH_OK;
}

static enum berth_code message_from_json(const json_t *object,
                                         const ProtobufCMessageDescriptor *type, int depth,
                                         ProtobufCMessage **ret, struct berth_error *err)
{
    ProtobufCMessage *message;
    enum berth_code code;

    if (!json_is_object(object) || depth > DEPTH_MAX)
        return berth_fail_field(err, type->short_name, "must be an object, at most %d deep",
                                DEPTH_MAX);
    if (!(message = calloc(1, type->sizeof_message)))
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    protobuf_c_message_init(type, message);
    code = fields_from_json(object, type, depth, (char *)message, err);
    if (code) {
        protobuf_c_message_free_unpacked(message, NULL);
        return code;
    }
    *ret = message;
    return BERTH_OK;
}

enum berth_code berth_message_from_json(const json_t *object,
                                        const ProtobufCMessageDescriptor *type,
                                        ProtobufCMessage **ret, struct berth_error *err)
{
    return message_from_json(object, type, 0, ret, err);
}
