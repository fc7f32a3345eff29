/* keyring.h - the keys themselves; for common/crypto only. */
#pragma once

#include "common/crypto/crypto.h"

enum { KEYS_MAX = 16, KEY_ID_MAX = 16, KEY_SIZE = 32 };

struct berth_keyring {
    size_t n_keys; /* at least 1; the first one seals */
    struct keyring_key {
        char id[KEY_ID_MAX + 1];
        uint8_t secret[KEY_SIZE];
    } keys[KEYS_MAX];
};

/* NULL: no such key. */
const struct keyring_key *keyring_find(const struct berth_keyring *keyring, const char *id,
                                       size_t id_len);
