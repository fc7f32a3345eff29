/* keyring.h - the keys themselves; for common/crypto only. */
#pragma once

#include <pthread.h>

#include "common/crypto/crypto.h"

enum { KEYS_MAX = BERTH_KEYS_MAX, KEY_ID_MAX = BERTH_KEY_ID_SIZE - 1, KEY_SIZE = 32 };
enum { KEY_TEXT_MAX = KEYS_MAX * 256 }; /* bytes of a source's text */

struct keyring_key {
    char id[KEY_ID_MAX + 1];
    uint8_t secret[KEY_SIZE];
};

/* Behind a pointer, so that who may only use a keyring may lock it. */
struct keyring_ring {
    pthread_mutex_t mutex;
    size_t n_keys; /* at least 1; the first one seals */
    struct keyring_key keys[KEYS_MAX];
};

struct berth_keyring {
    struct keyring_ring *ring;
};

/* A copy of a key, to be wiped; id_len 0: the first one. False: no such key. */
bool keyring_copy_key(const struct berth_keyring *keyring, const char *id, size_t id_len,
                      struct keyring_key *ret);

/* What a key command prints; at most KEY_TEXT_MAX bytes into buf. Errors: FIELD_INVALID. */
enum berth_code key_command_run(const char *command, char *buf, size_t size, size_t *ret_size,
                                struct berth_error *err);
