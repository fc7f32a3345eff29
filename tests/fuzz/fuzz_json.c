/* The strict JSON parser, and that what it accepts is written and read back the same. */
#include "common/json/json.h"
#include "tests/fuzz/fuzz.h"

#include "common/fields/fields.h"

enum { SIZE_LIMIT = 64 << 10 };

static void read_members(const json_t *json)
{
    char buf[16];
    int64_t number;
    bool flag;

    if (berth_json_get_str(json, "s", buf, sizeof buf, "", NULL) == BERTH_OK &&
        strlen(buf) >= sizeof buf)
        abort();
    if (berth_json_get_int(json, "i", -5, 5, 0, &number, NULL) == BERTH_OK &&
        (number < -5 || number > 5))
        abort();
    if (berth_json_get_bool(json, "b", false, &flag, NULL) == BERTH_OK && flag && !json)
        abort();
}

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    BERTH_AUTO(json_decref) json_t *json = NULL, *again = NULL;
    BERTH_AUTO(free) char *text = NULL;
    struct berth_error err = {0};

    if (berth_json_parse((const char *)data, size, SIZE_LIMIT, &json, &err)) {
        if (json || !berth_utf8_valid(err.text, strlen(err.text)))
            abort();
        return false;
    }
    read_members(json);
    text = berth_json_format(json);
    if (!text)
        abort();
    if (berth_json_parse(text, strlen(text), 8 * SIZE_LIMIT, &again, &err) ||
        !json_equal(json, again))
        abort();
    return true;
}
