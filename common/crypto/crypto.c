/* crypto.c - sealing by AES-256-GCM. Header and caller's data are both authenticated. */
#include "common/crypto/crypto.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "common/crypto/keyring.h"
#include "common/ids/ids.h"

enum {
    VERSION = 1,
    NONCE_SIZE = 12,
    TAG_SIZE = 16,
    PLAIN_MAX = 16 << 20, /* bytes; also of the associated data */
};

static inline void EVP_CIPHER_CTX_freep(EVP_CIPHER_CTX **slot)
{
    EVP_CIPHER_CTX_free(*slot);
}

void berth_wipe(void *data, size_t size)
{
    if (data)
        OPENSSL_cleanse(data, size);
}

int berth_equal_secret(const void *a, const void *b, size_t size)
{
    return CRYPTO_memcmp(a, b, size) == 0;
}

/* The first step either way. Sizes are at most PLAIN_MAX. */
static EVP_CIPHER_CTX *begin(bool encrypt, const struct keyring_key *key, const uint8_t *nonce,
                             const uint8_t *header, size_t header_size, const void *associated,
                             size_t associated_size)
{
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    int done;

    if (ctx &&
        EVP_CipherInit_ex(ctx, EVP_aes_256_gcm(), NULL, key->secret, nonce, encrypt) == 1 &&
        EVP_CipherUpdate(ctx, NULL, &done, header, (int)header_size) == 1 &&
        (associated_size == 0 ||
         EVP_CipherUpdate(ctx, NULL, &done, associated, (int)associated_size) == 1))
        return ctx;
    EVP_CIPHER_CTX_free(ctx);
    return NULL;
}

enum berth_code berth_seal(const struct berth_keyring *keyring, const void *plain,
                           size_t plain_size, const void *associated, size_t associated_size,
                           uint8_t **ret, size_t *ret_size, struct berth_error *err)
{
    struct keyring_key key;
    size_t id_len, header_size;
    BERTH_AUTO(EVP_CIPHER_CTX_free) EVP_CIPHER_CTX *ctx = NULL;
    BERTH_AUTO(free) uint8_t *sealed = NULL;
    uint8_t *nonce, *text;
    int done = 0, last = 0;

    if (plain_size > PLAIN_MAX || associated_size > PLAIN_MAX)
        return berth_fail(err, BERTH_REASON_FIELD_INVALID, "seal: more than %d bytes",
                          PLAIN_MAX);
    (void)keyring_copy_key(keyring, "", 0, &key); /* the first one is always there */
    id_len = strlen(key.id);
    header_size = 2 + id_len;
    sealed = malloc(header_size + NONCE_SIZE + plain_size + TAG_SIZE);
    if (!sealed)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    sealed[0] = VERSION;
    sealed[1] = (uint8_t)id_len;
    memcpy(sealed + 2, key.id, id_len);
    nonce = sealed + header_size;
    text = nonce + NONCE_SIZE;
    berth_random(nonce, NONCE_SIZE);
    ctx = begin(true, &key, nonce, sealed, header_size, associated, associated_size);
    berth_wipe(&key, sizeof key);
    if (!ctx ||
        (plain_size > 0 && EVP_CipherUpdate(ctx, text, &done, plain, (int)plain_size) != 1) ||
        EVP_CipherFinal_ex(ctx, text + done, &last) != 1 ||
        EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_GET_TAG, TAG_SIZE, text + plain_size) != 1)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, "seal: OpenSSL failed");
    *ret_size = header_size + NONCE_SIZE + plain_size + TAG_SIZE;
    *ret = BERTH_STEAL(sealed);
    return BERTH_OK;
}

static enum berth_code refuse(struct berth_error *err, const char *why)
{
    return berth_fail(err, BERTH_REASON_BACKEND_AUTHENTICATION, "sealed data: %s", why);
}

enum berth_code berth_open_sealed(const struct berth_keyring *keyring, const void *sealed,
                                  size_t sealed_size, const void *associated,
                                  size_t associated_size, uint8_t **ret, size_t *ret_size,
                                  struct berth_error *err)
{
    const uint8_t *bytes = sealed;
    size_t id_len = sealed_size > 1 ? bytes[1] : 0, header_size = 2 + id_len, size;
    BERTH_AUTO(EVP_CIPHER_CTX_free) EVP_CIPHER_CTX *ctx = NULL;
    struct keyring_key key;
    uint8_t tag[TAG_SIZE], *plain;
    const uint8_t *text;
    int done = 0, last = 0;
    bool good;

    if (sealed_size < header_size + NONCE_SIZE + TAG_SIZE || bytes[0] != VERSION)
        return refuse(err, "not in a form that is known here");
    size = sealed_size - header_size - NONCE_SIZE - TAG_SIZE;
    if (size > PLAIN_MAX || associated_size > PLAIN_MAX)
        return refuse(err, "too large");
    if (id_len == 0 || !keyring_copy_key(keyring, (const char *)bytes + 2, id_len, &key))
        return refuse(err, "sealed under a key that is not among the suite's keys");
    text = bytes + header_size + NONCE_SIZE;
    plain = malloc(size + 1);
    ctx = begin(false, &key, bytes + header_size, bytes, header_size, associated,
                associated_size);
    berth_wipe(&key, sizeof key);
    if (!plain || !ctx) {
        free(plain);
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    memcpy(tag, text + size, TAG_SIZE);
    good = (size == 0 || EVP_CipherUpdate(ctx, plain, &done, text, (int)size) == 1) &&
           EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_SET_TAG, TAG_SIZE, tag) == 1 &&
           EVP_CipherFinal_ex(ctx, plain + done, &last) == 1;
    if (!good) {
        berth_wipe(plain, size); /* decrypted, but nobody vouches for it */
        free(plain);
        return refuse(err, "changed, or meant for something else");
    }
    plain[size] = 0;
    *ret = plain;
    *ret_size = size;
    return BERTH_OK;
}

bool berth_sealed_key_id(const void *sealed, size_t sealed_size, char ret[BERTH_KEY_ID_SIZE])
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
    const uint8_t *bytes = sealed;
    size_t id_len = sealed_size > 1 ? bytes[1] : 0;

    if (id_len == 0 || id_len > KEY_ID_MAX || bytes[0] != VERSION ||
        sealed_size < 2 + id_len + NONCE_SIZE + TAG_SIZE)
        return false;
    memcpy(ret, bytes + 2, id_len);
    ret[id_len] = 0;
    return strspn(ret, allowed) == id_len;
}
