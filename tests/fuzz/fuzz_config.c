/* Settings: a file, or with '=' as the first byte one override of the command line. What is
 * refused must leave no trace, and no error may show a value. */
#include <stdio.h>
#include <sys/mman.h>

#include "common/config/config.h"
#include "common/fields/fields.h"
#include "tests/fuzz/fuzz.h"

struct settings {
    char *name;
    int64_t number, period, limit;
    bool flag;
    char *secret;
};

#define KEY(field, type, value)                                                                \
    {                                                                                          \
#field, BERTH_CONFIG_##type, offsetof(struct settings, field), value, "doc"            \
    }

static const struct berth_config_key keys[] = {
    KEY(name, STR, "n"),       KEY(number, INT, "7"),   KEY(period, MS, "5s"),
    KEY(limit, BYTES, "1KiB"), KEY(flag, BOOL, "true"), KEY(secret, SECRET, "")};

static enum berth_code load(const uint8_t *data, size_t size, struct settings *out,
                            struct berth_error *err)
{
    static int fd = -1;
    static char path[32];
    char override[256];
    const char *overrides[] = {override};

    if (size > 0 && data[0] == '=') {
        snprintf(override, sizeof override, "%.*s", (int)(size - 1), (const char *)data + 1);
        if (strstr(override, "@/"))
            return BERTH_INVALID_ARGUMENT; /* no files of this machine */
        return berth_config_load(keys, BERTH_COUNT(keys), NULL, overrides, 1, out, err);
    }
    if (memmem(data, size, "@/", 2) || memmem(data, size, "\\", 1))
        return BERTH_INVALID_ARGUMENT;
    if (fd < 0) {
        fd = memfd_create("fuzz", MFD_CLOEXEC);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (ftruncate(fd, 0) < 0 || pwrite(fd, data, size, 0) != (ssize_t)size)
        abort();
    return berth_config_load(keys, BERTH_COUNT(keys), path, NULL, 0, out, err);
}

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    static const struct settings none;
    struct settings settings = {0};
    struct berth_error err = {0};
    char *text;

    if (load(data, size, &settings, &err)) {
        if (memcmp(&settings, &none, sizeof none) != 0)
            abort();
        return false;
    }
    if (settings.period < 0 || settings.limit < 0 ||
        !berth_utf8_valid(settings.name, strlen(settings.name)) || strchr(settings.name, '\n'))
        abort();
    text = berth_config_describe(keys, BERTH_COUNT(keys), &settings);
    if (!text || (*settings.secret && strlen(settings.secret) > 12 &&
                  strstr(text, settings.secret) && !strstr(settings.name, settings.secret)))
        abort();
    free(text);
    berth_config_deinit(keys, BERTH_COUNT(keys), &settings);
    return true;
}
