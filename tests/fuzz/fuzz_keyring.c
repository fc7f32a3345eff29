/* The suite's keys as text. What is accepted seals and opens, and can be read again; no error
 * shows a digit of a key. */
#include "common/crypto/crypto.h"
#include "tests/fuzz/fuzz.h"

static bool shows(const char *error, const uint8_t *data, size_t size)
{
    size_t n_hex = 0;

    for (size_t i = 0; i < size; i++) {
        n_hex = data[i] && strchr("0123456789abcdefABCDEF", data[i]) ? n_hex + 1 : 0;
        if (n_hex >= 16 && memmem(error, strlen(error), data + i - 15, 16))
            return true;
    }
    return false;
}

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    char ids[BERTH_KEYS_MAX][BERTH_KEY_ID_SIZE], id[BERTH_KEY_ID_SIZE];
    struct berth_keyring *keyring = NULL;
    struct berth_error err = {0};
    uint8_t *sealed = NULL, *opened = NULL;
    size_t sealed_size, opened_size = 0, n;

    /* Also what is sealed comes from outside: its head is parsed. */
    if (berth_sealed_key_id(data, size, id) && (!*id || strlen(id) >= sizeof id))
        abort();
    if (berth_keyring_parse("keys", (const char *)data, size, &keyring, &err)) {
        if (keyring || shows(err.text, data, size))
            abort();
        return false;
    }
    n = berth_keyring_ids(keyring, ids);
    if (n == 0 || n > BERTH_KEYS_MAX || !berth_keyring_has(keyring, ids[n - 1]))
        abort();
    if (berth_open_sealed(keyring, data, size, "", 0, &opened, &opened_size, NULL) == BERTH_OK)
        abort(); /* the text of a key is nothing that was ever sealed */
    if (berth_seal(keyring, "x", 1, "", 0, &sealed, &sealed_size, NULL) ||
        !berth_sealed_key_id(sealed, sealed_size, id) || strcmp(id, ids[0]) != 0 ||
        berth_open_sealed(keyring, sealed, sealed_size, "", 0, &opened, &opened_size, NULL) ||
        opened_size != 1)
        abort();
    free(sealed);
    free(opened);
    berth_keyring_free(keyring);
    return true;
}
