/* token.h - what a token looks like: a public id by which it is found, and a secret of which
 * only the hash is ever kept. Pure but for random bytes.
 *
 *   brt_<12 of [a-z0-9]>_<40 of [a-z0-9]>   206 random bits
 *   e2b_<40 of [0-9a-f]>                    for E2B SDKs: the first 12 are the id, 112 bits */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    BERTH_TOKEN_ID_LEN = 12,
    BERTH_TOKEN_ID_SIZE = BERTH_TOKEN_ID_LEN + 1,
    BERTH_TOKEN_HASH_SIZE = 32,
    BERTH_TOKEN_SIZE = 64, /* of the longest, with NUL */
};

struct berth_token {
    char id[BERTH_TOKEN_ID_SIZE];
    uint8_t hash[BERTH_TOKEN_HASH_SIZE]; /* SHA-256 of the whole text */
};

/* False: not of one of the two shapes; *ret is left alone. */
bool berth_token_parse(const char *text, size_t size, struct berth_token *ret);

/* The value of an `authorization` header: "Bearer <token>", the word in any case, one space. */
bool berth_token_parse_header(const char *value, size_t size, struct berth_token *ret);

/* A new one. text holds the secret: wipe it after use. */
void berth_token_make(bool e2b_shape, char text[BERTH_TOKEN_SIZE], struct berth_token *ret);

/* 12 of [a-z0-9]? */
bool berth_token_id_valid(const char *id);
