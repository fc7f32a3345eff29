/* token_doc.h - the document of a token: the field token:<id> of berth:{<tenant>}:t, JSON.
 * Those of the deployment itself stand in the hash of the tenant ".", which no tenant can be.
 * The key berth:token/<id> says whose it is. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/errors/errors.h"

#define BERTH_TOKEN_FIELD "token:"
#define BERTH_DEPLOYMENT_TENANT "."

enum { BERTH_TOKEN_SCOPES_MAX = 4 };

struct berth_token_doc {
    char token_id[13];
    uint8_t hash[32];                   /* SHA-256 of the whole token */
    int scopes[BERTH_TOKEN_SCOPES_MAX]; /* 1 to 4, numbers of Scope */
    unsigned n_scopes;
    char session_id[129], config_id[129]; /* "": all */
    int64_t create_ms, expire_ms;         /* 0: never */
    char created_by[129];
};

/* Errors: INTERNAL_BUG when it does not validate (unknown members are fine). */
BERTH_MUST_CHECK enum berth_code berth_token_doc_parse(const char *token_id, const char *json,
                                                       struct berth_token_doc *ret,
                                                       struct berth_error *err);
/* Owned. NULL: no memory. */
char *berth_token_doc_format(const struct berth_token_doc *token);
