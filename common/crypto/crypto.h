/* crypto.h - AES-256-GCM under named keys, and SHA-256, by OpenSSL. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/errors/errors.h"

enum { BERTH_KEYS_MAX = 16, BERTH_KEY_ID_SIZE = 17 };

/* The suite key(s): "<key-id> <64 hex digits>", one per line (a comma ends a line, too); the
 * first one seals, all open. key-id: 1..16 of [a-z0-9-], at most 16 keys. Thread-safe. */
struct berth_keyring;

/* Where they are. Exactly one member is not empty; borrowed. */
struct berth_key_source {
    const char *file;    /* a path; the file must belong to us or root, and be readable by
                            nobody else (mode 0600 or 0400) */
    const char *text;    /* the keys themselves, from the environment */
    const char *command; /* absolute path of a program and its arguments, separated by spaces,
                            no shell: what it prints within 10 s, at most 4 KiB. It gets our
                            environment without BERTH_* */
};
/* Errors: FIELD_INVALID; never a byte of a key in its text. */
BERTH_MUST_CHECK enum berth_code berth_keyring_load(const struct berth_key_source *source,
                                                    struct berth_keyring **ret,
                                                    struct berth_error *err);
/* The same form from memory; name is for errors. Errors: FIELD_INVALID. */
BERTH_MUST_CHECK enum berth_code berth_keyring_parse(const char *name, const char *text,
                                                     size_t size, struct berth_keyring **ret,
                                                     struct berth_error *err);
struct berth_keyring *berth_keyring_free(struct berth_keyring *keyring); /* wipes */
BERTH_DEFINE_AUTO(struct berth_keyring *, berth_keyring_free)

/* Rotation: from now on keyring holds what from holds; from is freed. What is being sealed or
 * opened meanwhile goes on under what was there. */
void berth_keyring_adopt(struct berth_keyring *keyring, struct berth_keyring *from);
/* The same keys in the same order. */
bool berth_keyring_equal(const struct berth_keyring *a, const struct berth_keyring *b);

/* Ids in order, the one that seals first; returns how many. */
size_t berth_keyring_ids(const struct berth_keyring *keyring,
                         char ret[BERTH_KEYS_MAX][BERTH_KEY_ID_SIZE]);
bool berth_keyring_has(const struct berth_keyring *keyring, const char *id);

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
/* The id of the key that it says it is sealed under. False: not in a form known here. */
bool berth_sealed_key_id(const void *sealed, size_t sealed_size, char ret[BERTH_KEY_ID_SIZE]);

/* HMAC-SHA-256 under a key derived from the key `id` for one purpose: nothing is learned from
 * it without the key, and one purpose's value is worth nothing for another's. id "": the key
 * that seals. False: there is no such key. */
bool berth_keyring_mac(const struct berth_keyring *keyring, const char *id, const char *purpose,
                       const void *data, size_t size, uint8_t ret[32]);

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
