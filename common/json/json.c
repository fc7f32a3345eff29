#include "common/json/json.h"

#include <inttypes.h>

enum { DEPTH_MAX = 64 };

/* jansson itself allows 2048 levels and its clean-up is recursive: count before it starts. */
static bool too_deep(const char *text, size_t size)
{
    bool in_string = false;
    size_t depth = 0;

    for (size_t i = 0; i < size; i++) {
        char c = text[i];

        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > DEPTH_MAX)
                return true;
        } else if ((c == '}' || c == ']') && depth > 0) {
            depth--;
        }
    }
    return false;
}

/* jansson's own text quotes the input, which may hold a secret; this one does not. */
static const char *why_not(const json_error_t *why)
{
    switch (json_error_code(why)) {
    case json_error_out_of_memory:
        return "out of memory";
    case json_error_premature_end_of_input:
        return "it ends too early";
    case json_error_end_of_input_expected:
        return "there is more behind the object";
    case json_error_invalid_utf8:
        return "not UTF-8";
    case json_error_duplicate_key:
        return "a key stands there twice";
    case json_error_numeric_overflow:
        return "a number is too large";
    case json_error_null_character:
    case json_error_null_byte_in_key:
        return "a NUL in a string";
    default:
        return "not JSON";
    }
}

enum berth_code berth_json_parse(const char *text, size_t size, size_t max_size, json_t **ret,
                                 struct berth_error *err)
{
    json_error_t why;
    json_t *json;

    if (size > max_size)
        return berth_fail(err, BERTH_REASON_FIELD_INVALID, "JSON: more than %zu bytes",
                          max_size);
    if (too_deep(text, size))
        return berth_fail(err, BERTH_REASON_FIELD_INVALID, "JSON: nested deeper than %d",
                          DEPTH_MAX);
    json = json_loadb(text ? text : "", size, JSON_REJECT_DUPLICATES, &why);
    if (!json && json_error_code(&why) == json_error_out_of_memory)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (!json)
        return berth_fail(err, BERTH_REASON_FIELD_INVALID, "line %d: %s", why.line,
                          why_not(&why));
    if (!json_is_object(json)) {
        json_decref(json);
        return berth_fail(err, BERTH_REASON_FIELD_INVALID, "line 1: not a JSON object");
    }
    *ret = json;
    return BERTH_OK;
}

char *berth_json_format(const json_t *json)
{
    return json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
}

/* NULL: absent or null. */
static const json_t *member(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    return json_is_null(value) ? NULL : value;
}

enum berth_code berth_json_get_str(const json_t *object, const char *key, char *buf,
                                   size_t size, const char *absent, struct berth_error *err)
{
    const json_t *value = member(object, key);
    const char *text = value ? json_string_value(value) : absent;
    size_t len;

    if (!value && !absent)
        return berth_fail_field(err, key, "must be there");
    if (!text)
        return berth_fail_field(err, key, "must be a string");
    len = strlen(text);
    if (len >= size)
        return berth_fail_field(err, key, "at most %zu bytes", size - 1);
    memcpy(buf, text, len + 1);
    return BERTH_OK;
}

enum berth_code berth_json_get_int(const json_t *object, const char *key, int64_t min,
                                   int64_t max, int64_t absent, int64_t *ret,
                                   struct berth_error *err)
{
    const json_t *value = member(object, key);
    int64_t number;

    if (!value) {
        *ret = absent;
        return BERTH_OK;
    }
    if (!json_is_integer(value))
        return berth_fail_field(err, key, "must be a whole number");
    number = json_integer_value(value);
    if (number < min || number > max)
        return berth_fail_field(err, key, "from %" PRId64 " to %" PRId64, min, max);
    *ret = number;
    return BERTH_OK;
}

enum berth_code berth_json_get_bool(const json_t *object, const char *key, bool absent,
                                    bool *ret, struct berth_error *err)
{
    const json_t *value = member(object, key);

    if (value && !json_is_boolean(value))
        return berth_fail_field(err, key, "must be true or false");
    *ret = value ? json_is_true(value) : absent;
    return BERTH_OK;
}
