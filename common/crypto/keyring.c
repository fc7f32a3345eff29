/* keyring.c - reads the keys, and keeps them. No text of them ever gets into an error. */
#include "common/crypto/keyring.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/stat.h>

static enum berth_code refuse(struct berth_error *err, const char *name, size_t line,
                              const char *why)
{
    if (line == 0)
        return berth_fail(err, BERTH_REASON_FIELD_INVALID, "%s: %s", name, why);
    return berth_fail(err, BERTH_REASON_FIELD_INVALID, "%s, line %zu: %s", name, line, why);
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

static const struct keyring_key *find(const struct keyring_ring *ring, const char *id,
                                      size_t id_len)
{
    for (size_t i = 0; i < ring->n_keys; i++)
        if (strlen(ring->keys[i].id) == id_len && memcmp(ring->keys[i].id, id, id_len) == 0)
            return &ring->keys[i];
    return NULL;
}

/* NULL, or what is wrong with the line. */
static const char *read_line(struct keyring_ring *ring, const char *line, size_t len)
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
    if (ring->n_keys == KEYS_MAX)
        return "more than 16 keys";
    if (find(ring, line, id_len))
        return "this key id stands there twice";
    key = &ring->keys[ring->n_keys];
    memcpy(key->id, line, id_len);
    key->id[id_len] = 0;
    if (!read_hex(line + id_len + 1, key->secret))
        return "wanted one space and 64 hex digits behind the key id";
    ring->n_keys++;
    return NULL;
}

static size_t line_len(const char *text, size_t size)
{
    size_t len = 0;

    while (len < size && text[len] != '\n' && text[len] != ',')
        len++;
    return len;
}

static enum berth_code read_lines(struct keyring_ring *ring, const char *name, const char *text,
                                  size_t size, struct berth_error *err)
{
    size_t at = 0, number = 0;

    while (at < size) {
        size_t len = line_len(text + at, size - at);
        const char *why = len > 0 ? read_line(ring, text + at, len) : NULL;

        number++;
        if (why)
            return refuse(err, name, number, why);
        at += len + 1;
    }
    return ring->n_keys > 0 ? BERTH_OK : refuse(err, name, 0, "no key in it");
}

static enum berth_code read_file(const char *path, const char *name, char *buf, size_t size,
                                 size_t *ret_size, struct berth_error *err)
{
    BERTH_AUTO(close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    size_t done = 0;

    if (fd < 0 || fstat(fd, &st) < 0)
        return refuse(err, name, 0, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return refuse(err, name, 0, "not a regular file");
    if (st.st_mode & (S_IRWXG | S_IRWXO))
        return refuse(err, name, 0, "others may read it; chmod it to 0600 or 0400");
    if (st.st_uid != 0 && st.st_uid != geteuid())
        return refuse(err, name, 0, "it belongs to another user");
    while (done < size) {
        ssize_t n = read(fd, buf + done, size - done);

        if (n < 0)
            return refuse(err, name, 0, strerror(errno));
        if (n == 0)
            break;
        done += (size_t)n;
    }
    if (done == size)
        return refuse(err, name, 0, "too large");
    *ret_size = done;
    return BERTH_OK;
}

/* ----------------------------------------------------------------------- life */

static struct berth_keyring *keyring_new(void)
{
    struct berth_keyring *keyring = calloc(1, sizeof *keyring);

    if (keyring)
        keyring->ring = calloc(1, sizeof *keyring->ring);
    if (!keyring || !keyring->ring) {
        free(keyring);
        return NULL;
    }
    pthread_mutex_init(&keyring->ring->mutex, NULL);
    return keyring;
}

enum berth_code berth_keyring_parse(const char *name, const char *text, size_t size,
                                    struct berth_keyring **ret, struct berth_error *err)
{
    BERTH_AUTO(berth_keyring_free) struct berth_keyring *keyring = keyring_new();
    enum berth_code code;

    if (!keyring)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    code = size < KEY_TEXT_MAX ? read_lines(keyring->ring, name, text, size, err)
                               : refuse(err, name, 0, "too large");
    if (!code)
        *ret = BERTH_STEAL(keyring);
    return code;
}

enum berth_code berth_keyring_load(const struct berth_key_source *source,
                                   struct berth_keyring **ret, struct berth_error *err)
{
    char text[KEY_TEXT_MAX], name[256];
    size_t size = 0;
    enum berth_code code;

    if (source->text && *source->text)
        return berth_keyring_parse("the suite key", source->text, strlen(source->text), ret,
                                   err);
    if (source->command && *source->command) {
        snprintf(name, sizeof name, "what the key command prints");
        code = key_command_run(source->command, text, sizeof text, &size, err);
    } else {
        snprintf(name, sizeof name, "key file %s", source->file ? source->file : "");
        code = read_file(source->file ? source->file : "", name, text, sizeof text, &size, err);
    }
    if (!code)
        code = berth_keyring_parse(name, text, size, ret, err);
    berth_wipe(text, sizeof text);
    return code;
}

struct berth_keyring *berth_keyring_free(struct berth_keyring *keyring)
{
    if (keyring) {
        pthread_mutex_destroy(&keyring->ring->mutex);
        berth_wipe(keyring->ring, sizeof *keyring->ring);
        free(keyring->ring);
        free(keyring);
    }
    return NULL;
}

/* -------------------------------------------------------------------- rotation */

void berth_keyring_adopt(struct berth_keyring *keyring, struct berth_keyring *from)
{
    struct keyring_ring *ring = keyring->ring;

    pthread_mutex_lock(&ring->mutex);
    ring->n_keys = from->ring->n_keys;
    memcpy(ring->keys, from->ring->keys, sizeof ring->keys);
    pthread_mutex_unlock(&ring->mutex);
    berth_keyring_free(from);
}

static size_t copy_keys(const struct berth_keyring *keyring, struct keyring_key ret[KEYS_MAX])
{
    size_t n;

    pthread_mutex_lock(&keyring->ring->mutex);
    n = keyring->ring->n_keys;
    memcpy(ret, keyring->ring->keys, sizeof keyring->ring->keys);
    pthread_mutex_unlock(&keyring->ring->mutex);
    return n;
}

bool berth_keyring_equal(const struct berth_keyring *a, const struct berth_keyring *b)
{
    struct keyring_key x[KEYS_MAX], y[KEYS_MAX];
    size_t n = copy_keys(a, x);
    bool equal = n == copy_keys(b, y);

    for (size_t i = 0; equal && i < n; i++)
        equal = strcmp(x[i].id, y[i].id) == 0 &&
                berth_equal_secret(x[i].secret, y[i].secret, KEY_SIZE);
    berth_wipe(x, sizeof x);
    berth_wipe(y, sizeof y);
    return equal;
}

size_t berth_keyring_ids(const struct berth_keyring *keyring,
                         char ret[BERTH_KEYS_MAX][BERTH_KEY_ID_SIZE])
{
    struct keyring_key keys[KEYS_MAX];
    size_t n = copy_keys(keyring, keys);

    for (size_t i = 0; i < n; i++)
        memcpy(ret[i], keys[i].id, sizeof keys[i].id);
    berth_wipe(keys, sizeof keys);
    return n;
}

bool keyring_copy_key(const struct berth_keyring *keyring, const char *id, size_t id_len,
                      struct keyring_key *ret)
{
    const struct keyring_key *key;

    pthread_mutex_lock(&keyring->ring->mutex);
    key = id_len > 0 ? find(keyring->ring, id, id_len) : &keyring->ring->keys[0];
    if (key)
        *ret = *key;
    pthread_mutex_unlock(&keyring->ring->mutex);
    return key != NULL;
}

bool berth_keyring_has(const struct berth_keyring *keyring, const char *id)
{
    struct keyring_key key;
    bool there = *id && keyring_copy_key(keyring, id, strlen(id), &key);

    berth_wipe(&key, sizeof key);
    return there;
}

bool berth_keyring_mac(const struct berth_keyring *keyring, const char *id, const char *purpose,
                       const void *data, size_t size, uint8_t ret[32])
{
    uint8_t derived[32];
    struct keyring_key key;
    bool there = keyring_copy_key(keyring, id, strlen(id), &key) &&
                 HMAC(EVP_sha256(), key.secret, KEY_SIZE, (const uint8_t *)purpose,
                      strlen(purpose), derived, NULL) &&
                 HMAC(EVP_sha256(), derived, sizeof derived, data, size, ret, NULL);

    berth_wipe(&key, sizeof key);
    berth_wipe(derived, sizeof derived);
    return there;
}
