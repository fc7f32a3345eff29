#include "tests/component/rpc/certs.h"

#include <check.h>
#include <dirent.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HOUR = 3600, N_PATHS = 32, FILE_MAX = 1 << 16 };

struct certs_authority {
    X509 *certificate;
    EVP_PKEY *key;
    bool root;
};

static char folder[64];

void certs_open(void)
{
    /* As berth_rpc_init does, before the first key is made. */
    OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
    snprintf(folder, sizeof folder, "/tmp/berth-certs-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

void certs_close(void)
{
    DIR *entries = opendir(folder);
    const struct dirent *entry;

    while (entries && (entry = readdir(entries)))
        if (entry->d_name[0] != '.')
            (void)unlink(certs_path(entry->d_name));
    if (entries)
        closedir(entries);
    (void)rmdir(folder);
}

const char *certs_path(const char *name)
{
    static char paths[N_PATHS][384];
    static unsigned at;
    char *path = paths[at++ % N_PATHS];

    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

/* ------------------------------------------------------------------------- files */

static FILE *begin_file(void)
{
    FILE *file = fopen(certs_path("new"), "w");

    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fchmod(fileno(file), 0600), 0);
    return file;
}

static void end_file(FILE *file, const char *name, const char *suffix)
{
    char full[256];

    snprintf(full, sizeof full, "%s%s", name, suffix);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(rename(certs_path("new"), certs_path(full)), 0);
}

void certs_write(const char *name, const char *text)
{
    FILE *file = begin_file();

    fputs(text, file);
    end_file(file, name, "");
}

static void append_file(char *text, const char *name)
{
    FILE *in = fopen(certs_path(name), "r");

    ck_assert_ptr_nonnull(in);
    ck_assert_uint_gt(fread(text + strlen(text), 1, FILE_MAX - 1 - strlen(text), in), 0);
    fclose(in);
}

void certs_join(const char *from, const char *more, const char *to)
{
    char *text = calloc(1, FILE_MAX);

    ck_assert_ptr_nonnull(text);
    append_file(text, from);
    if (more)
        append_file(text, more);
    certs_write(to, text);
    free(text);
}

void certs_copy(const char *from, const char *to)
{
    certs_join(from, NULL, to);
}

/* ------------------------------------------------------------------ certificates */

static void add_extension(X509 *certificate, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX ctx;
    X509_EXTENSION *extension;

    X509V3_set_ctx_nodb(&ctx);
    X509V3_set_ctx(&ctx, issuer, certificate, NULL, NULL, 0);
    extension = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    ck_assert_msg(extension != NULL, "%s", value);
    ck_assert_int_eq(X509_add_ext(certificate, extension, -1), 1);
    X509_EXTENSION_free(extension);
}

/* Without extensions and signature. */
static X509 *begin_certificate(const char *common_name, const X509 *issuer, EVP_PKEY *key,
                               int from_seconds, int until_seconds)
{
    static long serial;
    X509 *certificate = X509_new();
    X509_NAME *name;

    ck_assert_ptr_nonnull(certificate);
    X509_set_version(certificate, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), (long)getpid() * 1000 + ++serial);
    X509_gmtime_adj(X509_getm_notBefore(certificate), from_seconds);
    X509_gmtime_adj(X509_getm_notAfter(certificate), until_seconds);
    X509_set_pubkey(certificate, key);
    name = X509_get_subject_name(certificate);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)common_name, -1,
                               -1, 0);
    X509_set_issuer_name(certificate, issuer ? X509_get_subject_name(issuer) : name);
    return certificate;
}

struct certs_authority *certs_authority_new(const char *name,
                                            const struct certs_authority *parent)
{
    struct certs_authority *authority = calloc(1, sizeof *authority);
    FILE *file;

    ck_assert_ptr_nonnull(authority);
    authority->root = !parent;
    authority->key = EVP_EC_gen("P-256");
    authority->certificate = begin_certificate(name, parent ? parent->certificate : NULL,
                                               authority->key, -HOUR, HOUR);
    add_extension(authority->certificate, parent ? parent->certificate : authority->certificate,
                  NID_basic_constraints, "critical,CA:TRUE");
    ck_assert_int_gt(
        X509_sign(authority->certificate, parent ? parent->key : authority->key, EVP_sha256()),
        0);
    file = begin_file();
    PEM_write_X509(file, authority->certificate);
    end_file(file, name, ".pem");
    return authority;
}

void certs_authority_free(struct certs_authority *authority)
{
    X509_free(authority->certificate);
    EVP_PKEY_free(authority->key);
    free(authority);
}

static void write_pair(const char *name, X509 *certificate, EVP_PKEY *key,
                       const struct certs_authority *issuer)
{
    FILE *file = begin_file();

    PEM_write_X509(file, certificate);
    if (issuer && !issuer->root)
        PEM_write_X509(file, issuer->certificate);
    end_file(file, name, ".pem");
    file = begin_file();
    PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL);
    end_file(file, name, ".key");
}

void certs_issue(const char *name, const struct certs_options *options)
{
    const struct certs_authority *issuer = options->issuer;
    EVP_PKEY *key =
        options->rsa_bits ? EVP_RSA_gen((unsigned)options->rsa_bits) : EVP_EC_gen("P-256");
    X509 *certificate =
        begin_certificate(options->common_name ? options->common_name : "test",
                          issuer ? issuer->certificate : NULL, key,
                          options->from_seconds ? options->from_seconds : -HOUR,
                          options->until_seconds ? options->until_seconds : HOUR);
    X509 *parent = issuer ? issuer->certificate : certificate;

    add_extension(certificate, parent, NID_basic_constraints, "critical,CA:FALSE");
    add_extension(certificate, parent, NID_ext_key_usage,
                  options->usage ? options->usage : "serverAuth,clientAuth");
    if (options->sans)
        add_extension(certificate, parent, NID_subject_alt_name, options->sans);
    ck_assert_int_gt(X509_sign(certificate, issuer ? issuer->key : key, EVP_sha256()), 0);
    write_pair(name, certificate, key, issuer);
    X509_free(certificate);
    EVP_PKEY_free(key);
}
