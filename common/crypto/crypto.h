/* crypto.h - AES-256-GCM under named keys, and SHA-256, by OpenSSL. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/errors/errors.h"

/* The suite key(s): a file of lines "<key-id> <64 hex digits>"; the first one seals, all open.
 * key-id: 1..16 of [a-z0-9-], at most 16 keys. The file must belong to us or root and must not
 * be readable by others (mode 0600 or 0400). Errors: FIELD_INVALID. */
struct berth_keyring;
BERTH_MUST_CHECK enum berth_code
berth_keyring_load(const char *path, struct berth_keyring **ret, struct berth_error *err);
struct berth_keyring *berth_keyring_free(struct berth_keyring *keyring); /* wipes */
BERTH_DEFINE_AUTO(struct berth_keyring *, berth_keyring_free)

/* Sealed form: version byte 1, key-id length, key-id, 12-byte nonce, ciphertext, 16-byte tag.
 * associated data is authenticated, not stored; so is all before the nonce. *ret is owned.
 * Errors: FIELD_INVALID over 16 MiB. */
BERTH_MUST_CHECK enum berth_code berth_seal(const struct berth_keyring *keyring,
                                            const void *plain, size_t plain_size,
                                            const void *associated, size_t associated_size,
                                            uint8_t **ret, size_t *ret_size,
                                            struct berth_error *err);
/* *ret is owned, NUL-terminated beyond its size; wipe it with berth_wipe() before free.
 * Errors: BACKEND_AUTHENTICATION when the key is unknown or anything was changed. */
BERTH_MUST_CHECK enum berth_code berth_open_sealed(const struct berth_keyring *keyring,
                                                   const void *sealed, size_t sealed_size,
                                                   const void *associated,
                                                   size_t associated_size, uint8_t **ret,
                                                   size_t *ret_size, struct berth_error *err);
void berth_wipe(void *data, size_t size);

/* Streaming SHA-256. */
struct berth_sha256;
struct berth_sha256 *berth_sha256_new(void); /* NULL: no memory */
struct berth_sha256 *berth_sha256_free(struct berth_sha256 *hash);
BERTH_DEFINE_AUTO(struct berth_sha256 *, berth_sha256_free)
void berth_sha256_add(struct berth_sha256 *hash, const void *data, size_t size);
void berth_sha256_end(struct berth_sha256 *hash, uint8_t ret[32]); /* may then be used anew */
void berth_sha256_once(const void *data, size_t size, uint8_t ret[32]);

/* SHA-256 over parts, each preceded by its length as 8 big-endian bytes, so that ("ab","c") and
 * ("a","bc") differ. This is how every fingerprint in Berth is computed. */
void berth_fingerprint(const char *const *parts, size_t n_parts, uint8_t ret[32]);

/* Equal in constant time. */
int berth_equal_secret(const void *a, const void *b, size_t size);
