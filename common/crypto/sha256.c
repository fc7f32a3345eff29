/* sha256.c - by OpenSSL's low-level functions: they need no memory and cannot fail. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#include "common/crypto/crypto.h"

struct berth_sha256 {
    SHA256_CTX ctx;
};

struct berth_sha256 *berth_sha256_new(void)
{
    struct berth_sha256 *hash = malloc(sizeof *hash);

    if (hash)
        SHA256_Init(&hash->ctx);
    return hash;
}

struct berth_sha256 *berth_sha256_free(struct berth_sha256 *hash)
{
    berth_wipe(hash, hash ? sizeof *hash : 0);
    free(hash);
    return NULL;
}

void berth_sha256_add(struct berth_sha256 *hash, const void *data, size_t size)
{
    SHA256_Update(&hash->ctx, data, size);
}

void berth_sha256_end(struct berth_sha256 *hash, uint8_t ret[32])
{
    SHA256_Final(ret, &hash->ctx);
    SHA256_Init(&hash->ctx);
}

void berth_sha256_once(const void *data, size_t size, uint8_t ret[32])
{
    SHA256_CTX ctx;

    SHA256_Init(&ctx);
    SHA256_Update(&ctx, data, size);
    SHA256_Final(ret, &ctx);
}

void berth_fingerprint(const char *const *parts, size_t n_parts, uint8_t ret[32])
{
    SHA256_CTX ctx;

    SHA256_Init(&ctx);
    for (size_t i = 0; i < n_parts; i++) {
        uint64_t len = strlen(parts[i]);
        uint8_t prefix[8];

        for (int byte = 0; byte < 8; byte++)
            prefix[byte] = (uint8_t)(len >> (56 - 8 * byte));
        SHA256_Update(&ctx, prefix, sizeof prefix);
        SHA256_Update(&ctx, parts[i], len);
    }
    SHA256_Final(ret, &ctx);
}
