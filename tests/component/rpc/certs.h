/* certs.h - certificates as the tests need them, made by libcrypto, in a folder of their own.
 */
#pragma once

#include <stdbool.h>

struct certs_authority;

struct certs_options {
    const struct certs_authority *issuer; /* NULL: signed by itself */
    const char *sans;                     /* "DNS:a.example,URI:spiffe://berth/a"; NULL: none */
    const char *common_name;              /* NULL: "test" */
    const char *usage;                    /* "serverAuth", "clientAuth"; NULL: both */
    int from_seconds, until_seconds;      /* from now; 0: an hour ago, in an hour */
    int rsa_bits;                         /* 0: P-256 */
};

/* Makes the folder; removed with all files by _close(). */
void certs_open(void);
void certs_close(void);
/* "<folder>/<name>"; static, good for the next 32 calls. */
const char *certs_path(const char *name);

/* parent NULL: a root. Its certificate is written to <name>.pem. Owned. */
struct certs_authority *certs_authority_new(const char *name,
                                            const struct certs_authority *parent);
void certs_authority_free(struct certs_authority *authority);

/* Writes <name>.pem (with the issuer's own certificate behind it where the issuer is no root)
 * and <name>.key, each in one step. */
void certs_issue(const char *name, const struct certs_options *options);

/* Writes text, or what is in one or two files (more may be NULL), in one step. */
void certs_write(const char *name, const char *text);
void certs_copy(const char *from, const char *to);
void certs_join(const char *from, const char *more, const char *to);
