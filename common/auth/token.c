#include "common/auth/token.h"

#include <string.h>
#include <strings.h>

#include "common/crypto/crypto.h"
#include "common/ids/ids.h"

enum { SECRET_LEN = 40, E2B_LEN = 40, PREFIX_LEN = 4 };

static const char BASE36[] = "abcdefghijklmnopqrstuvwxyz0123456789";
static const char HEX[] = "0123456789abcdef";

/* Looks at every character, so that the time does not tell which one is wrong. */
static bool all_of(const char *text, size_t len, const char *allowed)
{
    bool all = true;

    for (size_t i = 0; i < len; i++)
        all &= text[i] != 0 && strchr(allowed, text[i]) != NULL;
    return all;
}

static bool is_brt(const char *text, size_t size)
{
    return size == PREFIX_LEN + BERTH_TOKEN_ID_LEN + 1 + SECRET_LEN &&
           memcmp(text, "brt_", PREFIX_LEN) == 0 &&
           text[PREFIX_LEN + BERTH_TOKEN_ID_LEN] == '_' &&
           all_of(text + PREFIX_LEN, BERTH_TOKEN_ID_LEN, BASE36) &&
           all_of(text + size - SECRET_LEN, SECRET_LEN, BASE36);
}

static bool is_e2b(const char *text, size_t size)
{
    return size == PREFIX_LEN + E2B_LEN && memcmp(text, "e2b_", PREFIX_LEN) == 0 &&
           all_of(text + PREFIX_LEN, E2B_LEN, HEX);
}

bool berth_token_parse(const char *text, size_t size, struct berth_token *ret)
{
    if (!is_brt(text, size) && !is_e2b(text, size))
        return false;
    memcpy(ret->id, text + PREFIX_LEN, BERTH_TOKEN_ID_LEN);
    ret->id[BERTH_TOKEN_ID_LEN] = 0;
    berth_sha256_once(text, size, ret->hash);
    return true;
}

bool berth_token_parse_header(const char *value, size_t size, struct berth_token *ret)
{
    static const char scheme[] = "bearer ";
    const size_t len = sizeof scheme - 1;

    return size > len && strncasecmp(value, scheme, len) == 0 &&
           berth_token_parse(value + len, size - len, ret);
}

void berth_token_make(bool e2b_shape, char text[BERTH_TOKEN_SIZE], struct berth_token *ret)
{
    size_t size =
        e2b_shape ? PREFIX_LEN + E2B_LEN : PREFIX_LEN + BERTH_TOKEN_ID_LEN + 1 + SECRET_LEN;

    memcpy(text, e2b_shape ? "e2b_" : "brt_", PREFIX_LEN);
    if (e2b_shape) {
        berth_id_hex(text + PREFIX_LEN, E2B_LEN / 2);
    } else {
        berth_id_base36(text + PREFIX_LEN, BERTH_TOKEN_ID_LEN);
        text[PREFIX_LEN + BERTH_TOKEN_ID_LEN] = '_';
        berth_id_base36(text + PREFIX_LEN + BERTH_TOKEN_ID_LEN + 1, SECRET_LEN);
    }
    (void)berth_token_parse(text, size, ret);
}

bool berth_token_id_valid(const char *id)
{
    return strlen(id) == BERTH_TOKEN_ID_LEN && all_of(id, BERTH_TOKEN_ID_LEN, BASE36);
}
