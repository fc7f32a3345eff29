#include "tests/component/http/tls.h"

#include <check.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>

static char *text_of(BIO *bio)
{
    char *data, *text;
    long size = BIO_get_mem_data(bio, &data);

    text = malloc((size_t)size + 1);
    memcpy(text, data, (size_t)size);
    text[size] = 0;
    BIO_free(bio);
    return text;
}

static void extend(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX context;
    X509_EXTENSION *extension;

    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, issuer, cert, NULL, NULL, 0);
    extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    ck_assert_ptr_nonnull(extension);
    X509_add_ext(cert, extension, -1);
    X509_EXTENSION_free(extension);
}

void identity_make(struct identity *identity, const struct identity *issuer, const char *name,
                   const char *alt_name, long from_s, long until_s)
{
    static long serial = 1;
    X509 *cert = X509_new();
    X509_NAME *subject = X509_get_subject_name(cert);
    BIO *bio;

    identity->key = EVP_EC_gen("P-256");
    identity->cert = cert;
    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), serial++);
    X509_gmtime_adj(X509_getm_notBefore(cert), from_s);
    X509_gmtime_adj(X509_getm_notAfter(cert), until_s);
    X509_set_pubkey(cert, identity->key);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1,
                               0);
    X509_set_issuer_name(cert, issuer ? X509_get_subject_name(issuer->cert) : subject);
    if (alt_name)
        extend(cert, issuer ? issuer->cert : cert, NID_subject_alt_name, alt_name);
    else
        extend(cert, cert, NID_basic_constraints, "critical,CA:TRUE");
    ck_assert_int_gt(X509_sign(cert, issuer ? issuer->key : identity->key, EVP_sha256()), 0);
    bio = BIO_new(BIO_s_mem());
    PEM_write_bio_X509(bio, cert);
    identity->cert_pem = text_of(bio);
    bio = BIO_new(BIO_s_mem());
    PEM_write_bio_PrivateKey(bio, identity->key, NULL, NULL, 0, NULL, NULL);
    identity->key_pem = text_of(bio);
}

void identity_free(struct identity *identity)
{
    X509_free(identity->cert);
    EVP_PKEY_free(identity->key);
    free(identity->cert_pem);
    free(identity->key_pem);
    *identity = (struct identity){0};
}

SSL_CTX *tls_context(const struct identity *identity, const struct identity *client_ca,
                     int version)
{
    SSL_CTX *tls = SSL_CTX_new(TLS_server_method());

    SSL_CTX_use_certificate(tls, identity->cert);
    SSL_CTX_use_PrivateKey(tls, identity->key);
    if (version) {
        SSL_CTX_set_cipher_list(tls, "ALL:@SECLEVEL=0"); /* or 1.1 cannot be had at all */
        SSL_CTX_set_min_proto_version(tls, version);
        SSL_CTX_set_max_proto_version(tls, version);
    }
    if (client_ca) {
        X509_STORE_add_cert(SSL_CTX_get_cert_store(tls), client_ca->cert);
        SSL_CTX_set_verify(tls, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    }
    return tls;
}
