#include "common/config/parse.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "common/base/utf8.h"
#include "common/time/time.h"

enum { TEXT_MAX = 4096, SECRET_FILE_MAX = 64 << 10 };

const char *config_wanted(enum berth_config_type type)
{
    static const char *const wanted[] = {
        [BERTH_CONFIG_STR] = "must be a text",
        [BERTH_CONFIG_INT] = "must be a whole number",
        [BERTH_CONFIG_MS] = "must be a duration with a unit: 250ms, 5s, 10m, 24h or 7d",
        [BERTH_CONFIG_BYTES] = "must be a size: 4096, 64KiB, 16MiB, 1GiB or 1TiB",
        [BERTH_CONFIG_BOOL] = "must be true or false",
        [BERTH_CONFIG_SECRET] = "must be a text",
    };

    return wanted[type];
}

static enum berth_code refuse(struct berth_error *err, const char *why)
{
    return berth_fail(err, BERTH_REASON_FIELD_INVALID, "%s", why);
}

/* Digits at text, at most INT64_MAX; *ret_end stands behind them. */
static bool read_digits(const char *text, int64_t *ret, const char **ret_end)
{
    int64_t number = 0;

    if (*text < '0' || *text > '9')
        return false;
    for (; *text >= '0' && *text <= '9'; text++) {
        int digit = *text - '0';

        if (number > (INT64_MAX - digit) / 10)
            return false;
        number = number * 10 + digit;
    }
    *ret = number;
    *ret_end = text;
    return true;
}

static bool parse_int(const char *text, int64_t *ret)
{
    const char *end;

    if (!read_digits(text + (*text == '-'), ret, &end) || *end)
        return false;
    if (*text == '-')
        *ret = -*ret;
    return true;
}

static bool parse_bytes(const char *text, int64_t *ret)
{
    static const struct {
        const char *suffix;
        int shift;
    } units[] = {{"", 0}, {"B", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}};
    const char *end;

    if (!read_digits(text, ret, &end))
        return false;
    for (size_t i = 0; i < BERTH_COUNT(units); i++) {
        if (strcmp(end, units[i].suffix) != 0)
            continue;
        if (*ret > INT64_MAX >> units[i].shift)
            return false;
        *ret <<= units[i].shift;
        return true;
    }
    return false;
}

static bool parse_bool(const char *text, bool *ret)
{
    *ret = strcmp(text, "true") == 0;
    return *ret || strcmp(text, "false") == 0;
}

/* NULL, or what is wrong. Control characters would forge lines of logs and of --print-settings.
 */
static const char *judge_text(const char *text, size_t max)
{
    size_t left = strlen(text);

    if (left > max)
        return "too long";
    while (left > 0) {
        uint32_t point;
        size_t step = berth_utf8_step(text, left, &point);

        if (step == 0)
            return "must be UTF-8";
        if (point < 0x20 || (point >= 0x7F && point < 0xA0))
            return "must hold no control characters";
        text += step;
        left -= step;
    }
    return NULL;
}

static enum berth_code copy_text(const char *text, char **ret, struct berth_error *err)
{
    const char *why = judge_text(text, TEXT_MAX);

    if (why)
        return refuse(err, why);
    *ret = strdup(text);
    return *ret ? BERTH_OK : berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

/* "@/path": what the file holds, without the newline at its end. */
static enum berth_code read_secret(const char *text, char **ret, struct berth_error *err)
{
    char *secret = NULL;
    const char *why;
    size_t size = 0;
    enum berth_code code;

    if (strncmp(text, "@/", 2) != 0)
        return copy_text(text, ret, err);
    code = config_read_file(text + 1, SECRET_FILE_MAX, &secret, &size, err);
    if (code)
        return code;
    if (size > 0 && secret[size - 1] == '\n')
        secret[--size] = 0;
    why = strlen(secret) != size ? "a NUL in the file" : judge_text(secret, SECRET_FILE_MAX);
    if (why) {
        explicit_bzero(secret, size);
        free(secret);
        return refuse(err, why);
    }
    *ret = secret;
    return BERTH_OK;
}

enum berth_code config_parse(enum berth_config_type type, const char *text,
                             struct config_value *ret, struct berth_error *err)
{
    struct config_value value = {0};
    enum berth_code code = BERTH_OK;
    bool good = true;

    switch (type) {
    case BERTH_CONFIG_STR:
        code = copy_text(text, &value.text, err);
        break;
    case BERTH_CONFIG_SECRET:
        code = read_secret(text, &value.text, err);
        break;
    case BERTH_CONFIG_INT:
        good = parse_int(text, &value.number);
        break;
    case BERTH_CONFIG_MS:
        good = berth_parse_duration(text, &value.number, NULL) == BERTH_OK;
        break;
    case BERTH_CONFIG_BYTES:
        good = parse_bytes(text, &value.number);
        break;
    case BERTH_CONFIG_BOOL:
        good = parse_bool(text, &value.flag);
        break;
    }
    if (!good)
        return refuse(err, config_wanted(type));
    if (!code)
        *ret = value;
    return code;
}

enum berth_code config_read_file(const char *path, size_t max_size, char **ret,
                                 size_t *ret_size, struct berth_error *err)
{
    BERTH_AUTO(close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    BERTH_AUTO(free) char *text = NULL;
    size_t size = 0, room;
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return berth_fail(err, BERTH_REASON_FIELD_INVALID, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return berth_fail(err, BERTH_REASON_FIELD_INVALID, "%s: not a regular file", path);
    room = (size_t)st.st_size < max_size ? (size_t)st.st_size : max_size;
    text = malloc(room + 2);
    if (!text)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    while (size <= room) { /* one byte more than it should have */
        ssize_t n = read(fd, text + size, room + 1 - size);

        if (n < 0)
            return berth_fail(err, BERTH_REASON_FIELD_INVALID, "%s: %s", path, strerror(errno));
        if (n == 0)
            break;
        size += (size_t)n;
    }
    if (size > room)
        return berth_fail(err, BERTH_REASON_FIELD_INVALID, "%s: more than %zu bytes", path,
                          room);
    text[size] = 0;
    *ret_size = size;
    *ret = BERTH_STEAL(text);
    return BERTH_OK;
}
