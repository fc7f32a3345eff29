/* tls.h - certificates made on the spot. */
#pragma once

#include <openssl/ssl.h>

struct identity {
    X509 *cert;
    EVP_PKEY *key;
    char *cert_pem, *key_pem;
};

/* issuer NULL: signs itself. alt_name: "DNS:a.example", "IP:127.0.0.1"; NULL: an authority.
 * Valid from now + from_s to now + until_s. */
void identity_make(struct identity *identity, const struct identity *issuer, const char *name,
                   const char *alt_name, long from_s, long until_s);
void identity_free(struct identity *identity);
/* client_ca: clients must have a certificate of it; NULL: need none. version 0: any. */
SSL_CTX *tls_context(const struct identity *identity, const struct identity *client_ca,
                     int version);
