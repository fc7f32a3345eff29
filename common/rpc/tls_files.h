/* tls_files.h - certificates and keys as they are in files, and whether they hold together. */
#pragma once

#include <stdint.h>

#include "common/errors/errors.h"

/* PEM texts, owned; NULL where there is no such file. */
struct rpc_tls_pems {
    char *cert, *key, *ca;
    char subject[128]; /* of the own certificate, for logs; "" without one */
    int64_t not_before_ms, not_after_ms;
};

/* cert and key are paths, both or none; ca may be NULL. Checked: every certificate can be read,
 * the key belongs to the first one of cert, and OpenSSL agrees to serve with them. Whether it
 * is time for them is the caller's to judge. Errors: FIELD_INVALID naming the file. */
BERTH_MUST_CHECK enum berth_code rpc_tls_pems_read(const char *cert, const char *key,
                                                   const char *ca, struct rpc_tls_pems *ret,
                                                   struct berth_error *err);
void rpc_tls_pems_deinit(struct rpc_tls_pems *pems); /* wipes the key */
