/* tls.c - TLS on a connection's socket, which never blocks. Files are read for each connection,
 * so that a new certificate is taken up without a restart. OpenSSL may raise SIGPIPE, which the
 * services ignore. */
#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>

#include "common/redis/internal.h"

static enum berth_code fail(struct berth_error *err, const char *what)
{
    ERR_clear_error(); /* its texts name files and hosts, and help nobody else */
    return berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE, "redis tls: %s", what);
}

static enum berth_code make_context(const struct redis_tls_files *files, SSL_CTX **ret,
                                    struct berth_error *err)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    const char *wrong = NULL;

    if (!ctx)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    if (SSL_CTX_load_verify_file(ctx, files->ca) != 1)
        wrong = "the file of authorities cannot be used";
    else if (files->cert && SSL_CTX_use_certificate_chain_file(ctx, files->cert) != 1)
        wrong = "the certificate cannot be used";
    else if (files->cert &&
             (SSL_CTX_use_PrivateKey_file(ctx, files->key, SSL_FILETYPE_PEM) != 1 ||
              SSL_CTX_check_private_key(ctx) != 1))
        wrong = "the private key cannot be used";
    if (wrong) {
        SSL_CTX_free(ctx);
        return fail(err, wrong);
    }
    *ret = ctx;
    return BERTH_OK;
}

/* The certificate must be that of the host as we were told it. */
static bool expect_host(SSL *ssl, const char *host)
{
    unsigned char address[16];

    if (inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set_tlsext_host_name(ssl, host) == 1 && SSL_set1_host(ssl, host) == 1;
}

/* What poll() has to wait for; 0: it has failed. */
static short wanted(SSL *ssl, int result)
{
    switch (SSL_get_error(ssl, result)) {
    case SSL_ERROR_WANT_READ:
        return POLLIN;
    case SSL_ERROR_WANT_WRITE:
        return POLLOUT;
    default:
        return 0;
    }
}

static enum berth_code handshake(SSL *ssl, int fd, int64_t until_tick, struct berth_error *err)
{
    for (;;) {
        int done;
        short events;

        ERR_clear_error();
        done = SSL_connect(ssl);
        if (done == 1)
            return BERTH_OK;
        events = wanted(ssl, done);
        if (!events && SSL_get_verify_result(ssl) != X509_V_OK)
            return fail(err, X509_verify_cert_error_string(SSL_get_verify_result(ssl)));
        if (!events)
            return fail(err, "the handshake failed");
        if (!redis_wait_for(fd, events, until_tick))
            return fail(err, "no answer to the handshake");
    }
}

enum berth_code redis_tls_open(const struct redis_tls_files *files, const char *host, int fd,
                               int64_t until_tick, struct ssl_st **ret, struct berth_error *err)
{
    SSL_CTX *ctx = NULL;
    SSL *ssl = NULL;
    enum berth_code code = make_context(files, &ctx, err);

    if (code)
        return code;
    ssl = SSL_new(ctx);
    SSL_CTX_free(ctx); /* ssl has its own reference */
    if (!ssl || !expect_host(ssl, host) || SSL_set_fd(ssl, fd) != 1)
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    else
        code = handshake(ssl, fd, until_tick, err);
    if (code)
        SSL_free(ssl);
    else
        *ret = ssl;
    return code;
}

void redis_tls_close(struct ssl_st *ssl)
{
    if (!ssl)
        return;
    ERR_clear_error();
    (void)SSL_shutdown(ssl); /* one way, without waiting */
    SSL_free(ssl);
}

/* As recv() and send(): -1 with EAGAIN, and *ret_events then says what to wait for. */
static ssize_t as_errno(SSL *ssl, int result, short *ret_events)
{
    if (result > 0)
        return result;
    if (SSL_get_error(ssl, result) == SSL_ERROR_ZERO_RETURN)
        return 0;
    *ret_events = wanted(ssl, result);
    errno = *ret_events ? EAGAIN : ECONNRESET;
    return -1;
}

ssize_t redis_tls_recv(struct ssl_st *ssl, void *buf, size_t size, short *ret_events)
{
    ERR_clear_error();
    return as_errno(ssl, SSL_read(ssl, buf, (int)size), ret_events);
}

ssize_t redis_tls_send(struct ssl_st *ssl, const void *buf, size_t size, short *ret_events)
{
    ERR_clear_error();
    return as_errno(ssl, SSL_write(ssl, buf, (int)(size < 1 << 30 ? size : 1 << 30)),
                    ret_events);
}
