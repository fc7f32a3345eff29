/* The `authorization` header: one of the two shapes of a token behind one word, or nothing. */
#include <stdlib.h>
#include <string.h>

#include "common/auth/token.h"
#include "tests/fuzz/fuzz.h"

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    struct berth_token token, again;

    if (!berth_token_parse_header((const char *)data, size, &token))
        return false;
    /* What was accepted has an id, ends where the header ends, and no byte of it is let be. */
    if (!berth_token_id_valid(token.id) || size < 7 + 44 || size > 7 + BERTH_TOKEN_SIZE ||
        !memmem(data, size, token.id, BERTH_TOKEN_ID_LEN))
        abort();
    if (!berth_token_parse((const char *)data + 7, size - 7, &again) ||
        memcmp(&token, &again, sizeof token) != 0)
        abort();
    if (berth_token_parse((const char *)data + 7, size - 8, &again))
        abort();
    return true;
}
