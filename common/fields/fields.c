#include "common/fields/fields.h"

#include "common/base/utf8.h"

enum {
    LABEL_KEY_MAX = 128,
    ENV_NAME_MAX = 128,
    PATH_MAX_LEN = 4096,
    COMPONENT_MAX_LEN = 255,
    PAGE_DEFAULT = 50,
    PAGE_MAX = 1000,
    NANOS = 1000000000
};

static bool is_alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* All characters alphanumeric or one of extra, 1..max of them. */
static bool made_of(const char *value, const char *extra, size_t max)
{
    size_t len = 0;

    for (; value && value[len]; len++)
        if (len == max || !(is_alnum(value[len]) || strchr(extra, value[len])))
            return false;
    return len > 0;
}

static bool is_dots(const char *value)
{
    return strcmp(value, ".") == 0 || strcmp(value, "..") == 0;
}

enum berth_code berth_check_id(const char *field, const char *value, struct berth_error *err)
{
    if (!made_of(value, "._-", BERTH_ID_MAX) || is_dots(value))
        return berth_fail_field(
            err, field, "must be 1 to %d characters of [A-Za-z0-9._-], not \".\" or \"..\"",
            BERTH_ID_MAX);
    return BERTH_OK;
}

enum berth_code berth_check_id_or_empty(const char *field, const char *value,
                                        struct berth_error *err)
{
    return !value || !*value ? BERTH_OK : berth_check_id(field, value, err);
}

enum berth_code berth_check_text(const char *field, const char *value, size_t min_len,
                                 size_t max_len, struct berth_error *err)
{
    const char *at = value ? value : "";
    size_t left = strlen(at), len = 0;

    while (left > 0) {
        uint32_t point;
        size_t step = berth_utf8_step(at, left, &point);

        if (step == 0)
            return berth_fail_field(err, field, "must be UTF-8");
        if (point < 0x20 || (point >= 0x7F && point < 0xA0))
            return berth_fail_field(err, field, "must hold no control characters");
        at += step;
        left -= step;
        len++;
    }
    if (len < min_len || len > max_len)
        return berth_fail_field(err, field, "must be %zu to %zu characters", min_len, max_len);
    return BERTH_OK;
}

enum berth_code berth_check_present(const char *field, const void *message,
                                    struct berth_error *err)
{
    return message ? BERTH_OK : berth_fail_field(err, field, "must be given");
}

enum berth_code berth_check_enum(const char *field, int value, int max, bool zero_ok,
                                 struct berth_error *err)
{
    if (value == 0)
        return zero_ok ? BERTH_OK : berth_fail_field(err, field, "must be given");
    return berth_check_enum_entry(field, value, max, err);
}

enum berth_code berth_check_enum_entry(const char *field, int value, int max,
                                       struct berth_error *err)
{
    if (value < 1 || value > max)
        return berth_fail_field(err, field, "must be one of the known values");
    return BERTH_OK;
}

enum berth_code berth_check_duration(const char *field, int64_t seconds, int32_t nanos,
                                     int64_t max_ms, int64_t *ret_ms, struct berth_error *err)
{
    int64_t part_ms = ((int64_t)nanos + 999999) / 1000000;

    if (seconds < 0 || nanos < 0 || nanos >= NANOS)
        return berth_fail_field(err, field, "must be a duration that is not negative");
    if (seconds > max_ms / 1000 || seconds * 1000 > max_ms - part_ms)
        return berth_fail_field(err, field, "must be at most %lld ms", (long long)max_ms);
    *ret_ms = seconds * 1000 + part_ms;
    return BERTH_OK;
}

static bool clean_component(const char *at, size_t len)
{
    if (len == 0 || len > COMPONENT_MAX_LEN)
        return false;
    return !(at[0] == '.' && (len == 1 || (len == 2 && at[1] == '.')));
}

static bool clean_path(const char *value)
{
    if (!value || value[0] != '/' || strnlen(value, PATH_MAX_LEN + 1) > PATH_MAX_LEN)
        return false;
    if (!value[1])
        return true;
    while (*value) { /* stands on a '/' */
        size_t len = strcspn(++value, "/");

        if (!clean_component(value, len))
            return false;
        value += len;
    }
    return true;
}

enum berth_code berth_check_path(const char *field, const char *value, struct berth_error *err)
{
    if (!clean_path(value))
        return berth_fail_field(
            err, field,
            "must be an absolute path without empty, \".\" or \"..\" parts, at "
            "most %d bytes, %d bytes a part",
            PATH_MAX_LEN, COMPONENT_MAX_LEN);
    return BERTH_OK;
}

enum berth_code berth_check_label_key(const char *field, const char *value,
                                      struct berth_error *err)
{
    if (!made_of(value, "._/-", LABEL_KEY_MAX))
        return berth_fail_field(
            err, field, "keys must be 1 to %d characters of [A-Za-z0-9._/-]", LABEL_KEY_MAX);
    return BERTH_OK;
}

enum berth_code berth_check_env_name(const char *field, const char *value,
                                     struct berth_error *err)
{
    if (!made_of(value, "_", ENV_NAME_MAX) || (value[0] >= '0' && value[0] <= '9'))
        return berth_fail_field(err, field,
                                "names must be 1 to %d characters, [A-Za-z_][A-Za-z0-9_]*",
                                ENV_NAME_MAX);
    return BERTH_OK;
}

enum berth_code berth_check_page_size(const char *field, int32_t value, uint32_t *ret_size,
                                      struct berth_error *err)
{
    if (value < 0)
        return berth_fail_field(err, field, "must not be negative");
    *ret_size = value == 0 ? PAGE_DEFAULT : value > PAGE_MAX ? PAGE_MAX : (uint32_t)value;
    return BERTH_OK;
}

bool berth_utf8_valid(const void *value, size_t size)
{
    const uint8_t *at = value;

    while (size > 0) {
        uint32_t point;
        size_t step = berth_utf8_step(at, size, &point);

        if (step == 0 || point == 0)
            return false;
        at += step;
        size -= step;
    }
    return true;
}

char *berth_utf8_lossy(const void *value, size_t size)
{
    const uint8_t *at = value;
    char *text, *end;

    if (size > (SIZE_MAX - 1) / 3)
        return NULL;
    text = end = malloc(size * 3 + 1);
    while (text && size > 0) {
        uint32_t point;
        size_t step = berth_utf8_step(at, size, &point);
        bool good = step > 0 && point != 0;
        size_t used = good ? step : 1;

        memcpy(end, good ? (const char *)at : "\xEF\xBF\xBD", good ? step : 3);
        end += good ? step : 3;
        at += used;
        size -= used;
    }
    if (text)
        *end = 0;
    return text;
}
