/* keyring.c - reads the key file. No text of it ever gets into an error. */
#include "common/crypto/keyring.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>

enum { FILE_MAX = KEYS_MAX * 128 };

static enum berth_code refuse(struct berth_error *err, const char *path, size_t line,
                              const char *why)
{
    if (line == 0)
        return berth_fail(err, BERTH_REASON_FIELD_INVALID, "key file %s: %s", path, why);
    return berth_fail(err, BERTH_REASON_FIELD_INVALID, "key file %s, line %zu: %s", path, line,
                      why);
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

static bool read_hex(const char *text, uint8_t *secret)
{
    for (size_t i = 0; i < KEY_SIZE; i++) {
        int high = hex_digit(text[2 * i]), low = high < 0 ? -1 : hex_digit(text[2 * i + 1]);

        if (low < 0)
            return false;
        secret[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

/* NULL, or what is wrong with the line. */
static const char *read_line(struct berth_keyring *keyring, const char *line, size_t len)
{
    size_t id_len = 0;
    struct keyring_key *key;

    while (id_len < len && line[id_len] &&
           strchr("abcdefghijklmnopqrstuvwxyz0123456789-", line[id_len]))
        id_len++;
    if (id_len == 0 || id_len > KEY_ID_MAX)
        return "wanted a key id: 1 to 16 characters of [a-z0-9-]";
    if (len != id_len + 1 + 2 * KEY_SIZE || line[id_len] != ' ')
        return "wanted one space and 64 hex digits behind the key id";
    if (keyring->n_keys == KEYS_MAX)
        return "more than 16 keys";
    if (keyring_find(keyring, line, id_len))
        return "this key id stands there twice";
    key = &keyring->keys[keyring->n_keys];
    memcpy(key->id, line, id_len);
    key->id[id_len] = 0;
    if (!read_hex(line + id_len + 1, key->secret))
        return "wanted one space and 64 hex digits behind the key id";
    keyring->n_keys++;
    return NULL;
}

static enum berth_code read_lines(struct berth_keyring *keyring, const char *path,
                                  const char *text, size_t size, struct berth_error *err)
{
    size_t at = 0, number = 0;

    while (at < size) {
        const char *end = memchr(text + at, '\n', size - at);
        size_t len = end ? (size_t)(end - text) - at : size - at;
        const char *why = len > 0 ? read_line(keyring, text + at, len) : NULL;

        number++;
        if (why)
            return refuse(err, path, number, why);
        at += len + 1;
    }
    return keyring->n_keys > 0 ? BERTH_OK : refuse(err, path, 0, "no key in it");
}

static enum berth_code read_file(const char *path, char *buf, size_t size, size_t *ret_size,
                                 struct berth_error *err)
{
    BERTH_AUTO(close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    size_t done = 0;

    if (fd < 0 || fstat(fd, &st) < 0)
        return refuse(err, path, 0, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return refuse(err, path, 0, "not a regular file");
    if (st.st_mode & (S_IRWXG | S_IRWXO))
        return refuse(err, path, 0, "others may read it; chmod it to 0600 or 0400");
    if (st.st_uid != 0 && st.st_uid != geteuid())
        return refuse(err, path, 0, "it belongs to another user");
    while (done < size) {
        ssize_t n = read(fd, buf + done, size - done);

        if (n < 0)
            return refuse(err, path, 0, strerror(errno));
        if (n == 0)
            break;
        done += (size_t)n;
    }
    if (done == size)
        return refuse(err, path, 0, "too large");
    *ret_size = done;
    return BERTH_OK;
}

enum berth_code berth_keyring_load(const char *path, struct berth_keyring **ret,
                                   struct berth_error *err)
{
    BERTH_AUTO(berth_keyring_free) struct berth_keyring *keyring = calloc(1, sizeof *keyring);
    char text[FILE_MAX];
    size_t size = 0;
    enum berth_code code;

    if (!keyring)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    code = read_file(path, text, sizeof text, &size, err);
    if (!code)
        code = read_lines(keyring, path, text, size, err);
    berth_wipe(text, sizeof text);
    if (!code)
        *ret = BERTH_STEAL(keyring);
    return code;
}

struct berth_keyring *berth_keyring_free(struct berth_keyring *keyring)
{
    berth_wipe(keyring, keyring ? sizeof *keyring : 0);
    free(keyring);
    return NULL;
}

const struct keyring_key *keyring_find(const struct berth_keyring *keyring, const char *id,
                                       size_t id_len)
{
    for (size_t i = 0; i < keyring->n_keys; i++)
        if (strlen(keyring->keys[i].id) == id_len &&
            memcmp(keyring->keys[i].id, id, id_len) == 0)
            return &keyring->keys[i];
    return NULL;
}
