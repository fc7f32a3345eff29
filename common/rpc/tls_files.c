#include "common/rpc/tls_files.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>

enum { FILE_MAX = 1 << 20, CERTIFICATES_MAX = 1024 };

static enum berth_code fail(struct berth_error *err, const char *path, const char *why)
{
    return berth_fail(err, BERTH_REASON_FIELD_INVALID, "%s: %s", path, why);
}

/* With what OpenSSL has to say. Its queue is left empty: the core reads it, too. */
static enum berth_code fail_openssl(struct berth_error *err, const char *path, const char *what)
{
    const char *why = ERR_reason_error_string(ERR_peek_last_error());

    ERR_clear_error();
    return berth_fail(err, BERTH_REASON_FIELD_INVALID, "%s: %s%s%s", path, what,
                      why ? ": " : "", why ? why : "");
}

/* Owned text; NULL with errno. A pipe or a device is not waited for. */
static char *read_text(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat info;
    char *text = NULL;
    size_t len = 0;
    ssize_t n = 1;

    if (fd < 0)
        return NULL;
    if (fstat(fd, &info) == 0 && !S_ISREG(info.st_mode))
        errno = EINVAL;
    else if (info.st_size > FILE_MAX)
        errno = EFBIG;
    else
        text = calloc(1, FILE_MAX + 1);
    while (text && n > 0 && len < FILE_MAX) {
        n = read(fd, text + len, FILE_MAX - len);
        len += n > 0 ? (size_t)n : 0;
    }
    close(fd);
    if (text && n >= 0 && strlen(text) == len)
        return text;
    if (text && n >= 0)
        errno = EINVAL; /* holds a NUL */
    OPENSSL_cleanse(text ? text : "", text ? len : 0);
    free(text);
    return NULL;
}

static int no_password(char *buf, int size, int writing, void *arg)
{
    (void)buf, (void)size, (void)writing, (void)arg;
    return 0; /* instead of a question on the terminal */
}

static int64_t to_ms(const ASN1_TIME *time)
{
    struct tm parts = {0};

    return ASN1_TIME_to_tm(time, &parts) ? (int64_t)timegm(&parts) * 1000 : 0;
}

/* The next certificate of bio; NULL at the end (*ret_bad false) or where one is broken. */
static X509 *next_certificate(BIO *bio, bool *ret_bad)
{
    X509 *certificate = PEM_read_bio_X509(bio, NULL, no_password, NULL);

    *ret_bad = !certificate && ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE;
    if (!certificate && !*ret_bad)
        ERR_clear_error();
    return certificate;
}

static enum berth_code check_ca(const char *path, const char *pem, struct berth_error *err)
{
    BIO *bio = BIO_new_mem_buf(pem, -1);
    X509 *certificate;
    bool bad = !bio;
    int n = 0;

    while (bio && (certificate = next_certificate(bio, &bad))) {
        X509_free(certificate);
        if (++n > CERTIFICATES_MAX)
            break;
    }
    BIO_free(bio);
    if (bad)
        return fail_openssl(err, path, "cannot read a certificate");
    if (n == 0 || n > CERTIFICATES_MAX)
        return fail(err, path, n ? "too many certificates" : "holds no certificate");
    return BERTH_OK;
}

/* The chain goes into ctx; the first one is described in ret. */
static enum berth_code use_chain(SSL_CTX *ctx, const char *path, struct rpc_tls_pems *ret,
                                 struct berth_error *err)
{
    BIO *bio = BIO_new_mem_buf(ret->cert, -1);
    X509 *certificate;
    bool bad = !bio;
    int n = 0;

    while (bio && !bad && n <= CERTIFICATES_MAX &&
           (certificate = next_certificate(bio, &bad))) {
        if (n++ == 0) {
            ret->not_before_ms = to_ms(X509_get0_notBefore(certificate));
            ret->not_after_ms = to_ms(X509_get0_notAfter(certificate));
            X509_NAME_oneline(X509_get_subject_name(certificate), ret->subject,
                              sizeof ret->subject);
            bad = SSL_CTX_use_certificate(ctx, certificate) != 1;
        } else {
            bad = SSL_CTX_add1_chain_cert(ctx, certificate) != 1;
        }
        X509_free(certificate);
    }
    BIO_free(bio);
    if (bad)
        return fail_openssl(err, path, "cannot use the certificate");
    if (n == 0 || n > CERTIFICATES_MAX)
        return fail(err, path, n ? "too many certificates" : "holds no certificate");
    return BERTH_OK;
}

static enum berth_code check_pair(const char *cert, const char *key, struct rpc_tls_pems *ret,
                                  struct berth_error *err)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_method());
    BIO *bio = BIO_new_mem_buf(ret->key, -1);
    EVP_PKEY *private = bio ? PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL) : NULL;
    enum berth_code code;

    if (!private)
        code = fail_openssl(err, key, "cannot read the private key");
    else if (!ctx)
        code = fail_openssl(err, cert, "cannot use the certificate");
    else
        code = use_chain(ctx, cert, ret, err);
    if (!code &&
        (SSL_CTX_use_PrivateKey(ctx, private) != 1 || SSL_CTX_check_private_key(ctx) != 1)) {
        ERR_clear_error();
        code = berth_fail(err, BERTH_REASON_FIELD_INVALID,
                          "%s: the private key is not that of %s", key, cert);
    }
    EVP_PKEY_free(private);
    BIO_free(bio);
    SSL_CTX_free(ctx);
    return code;
}

enum berth_code rpc_tls_pems_read(const char *cert, const char *key, const char *ca,
                                  struct rpc_tls_pems *ret, struct berth_error *err)
{
    struct rpc_tls_pems pems = {0};
    const char *paths[] = {cert, key, ca};
    char **texts[] = {&pems.cert, &pems.key, &pems.ca};
    enum berth_code code = BERTH_OK;

    for (size_t i = 0; i < BERTH_COUNT(paths) && !code; i++)
        if (paths[i] && !(*texts[i] = read_text(paths[i])))
            code = fail(err, paths[i], strerror(errno));
    if (!code && cert)
        code = check_pair(cert, key, &pems, err);
    if (!code && ca)
        code = check_ca(ca, pems.ca, err);
    if (code)
        rpc_tls_pems_deinit(&pems);
    else
        *ret = pems;
    return code;
}

void rpc_tls_pems_deinit(struct rpc_tls_pems *pems)
{
    if (pems->key)
        OPENSSL_cleanse(pems->key, strlen(pems->key));
    free(pems->cert);
    free(pems->key);
    free(pems->ca);
    *pems = (struct rpc_tls_pems){0};
}
