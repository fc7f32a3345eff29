#include "tests/component/rpc/raw.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/time/time.h"

enum { CONNECTIONS_MAX = 512, TLS_WAIT_SECONDS = 10, HTTP2_SETTINGS = 4, HTTP2_HEADER = 9 };

uint16_t port_of(const char *address)
{
    return (uint16_t)strtoul(strrchr(address, ':') + 1, NULL, 10);
}

int raw_connect(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

bool hung_up(int fd, int64_t wait_ms)
{
    int64_t end_ms = berth_tick_ms() + wait_ms;
    char bytes[256];

    while (berth_tick_ms() < end_ms) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};

        if (poll(&wait, 1, 100) <= 0)
            continue;
        if (recv(fd, bytes, sizeof bytes, 0) <= 0)
            return true;
    }
    return false;
}

/* ---------------------------------------------------------------------- floods */

static int hold(int commands, int answers, unsigned n)
{
    int fds[CONNECTIONS_MAX];
    uint16_t port;
    char byte;

    if (read(commands, &port, sizeof port) != sizeof port)
        return 1;
    for (unsigned i = 0; i < n; i++)
        fds[i] = raw_connect(port);
    if (write(answers, "x", 1) != 1 || read(commands, &byte, 1) != 0)
        return 1;
    for (unsigned i = 0; i < n; i++)
        close(fds[i]);
    return 0;
}

void flood_fork(struct flood *flood, unsigned n)
{
    int commands[2], answers[2];

    ck_assert_uint_le(n, CONNECTIONS_MAX);
    ck_assert_int_eq(pipe(commands), 0);
    ck_assert_int_eq(pipe(answers), 0);
    flood->child = fork();
    ck_assert_int_ge(flood->child, 0);
    if (flood->child == 0) {
        close(commands[1]);
        _exit(hold(commands[0], answers[1], n));
    }
    flood->commands = commands[1];
    flood->answers = answers[0];
    close(commands[0]);
    close(answers[1]);
}

void flood_begin(struct flood *flood, uint16_t port)
{
    char byte;

    ck_assert_int_eq(write(flood->commands, &port, sizeof port), sizeof port);
    ck_assert_int_eq(read(flood->answers, &byte, 1), 1);
}

void flood_end(struct flood *flood)
{
    int status = 0;

    close(flood->commands);
    close(flood->answers);
    ck_assert_int_eq(waitpid(flood->child, &status, 0), flood->child);
    ck_assert_int_eq(status, 0);
}

/* ----------------------------------------------------------------- TLS by hand */

static void set_alpn(SSL *ssl, const char *name)
{
    unsigned char wire[64];
    size_t len = strlen(name);

    if (len == 0)
        return;
    wire[0] = (unsigned char)len;
    memcpy(wire + 1, name, len);
    ck_assert_int_eq(SSL_set_alpn_protos(ssl, wire, (unsigned)len + 1), 0);
}

static int keep_session(SSL *ssl, SSL_SESSION *session)
{
    SSL_SESSION **slot = SSL_get_ex_data(ssl, 0);

    if (!slot)
        return 0;
    SSL_SESSION_free(*slot);
    *slot = session;
    return 1;
}

/* The server begins with SETTINGS, once it is content with us. */
static bool speaks_http2(SSL *ssl)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
    unsigned char header[HTTP2_HEADER];
    size_t n = 0, got;

    if (SSL_write(ssl, preface, sizeof preface - 1) <= 0)
        return false;
    while (n < sizeof header) {
        if (SSL_read_ex(ssl, header + n, sizeof header - n, &got) != 1)
            return false;
        n += got;
    }
    return header[3] == HTTP2_SETTINGS;
}

/* The server's own SETTINGS may come; then, the end. */
static bool is_cut_off(SSL *ssl)
{
    char bytes[256];
    int n;

    while ((n = SSL_read(ssl, bytes, sizeof bytes)) > 0)
        ;
    return SSL_get_error(ssl, n) != SSL_ERROR_WANT_READ && errno != EAGAIN;
}

const char *tls_by_hand(uint16_t port, const struct tls_by_hand *how)
{
    const struct timeval patience = {.tv_sec = TLS_WAIT_SECONDS};
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    const char *version = "";
    int fd = raw_connect(port);
    SSL *ssl;

    ck_assert_ptr_nonnull(ctx);
    ck_assert_int_ge(fd, 0);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    SSL_CTX_set_security_level(ctx, 0); /* or TLS 1.0 and 1.1 would not be tried */
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_CLIENT);
    SSL_CTX_sess_set_new_cb(ctx, keep_session);
    ck_assert_int_eq(SSL_CTX_set_min_proto_version(ctx, how->min_version), 1);
    ck_assert_int_eq(SSL_CTX_set_max_proto_version(ctx, how->max_version), 1);
    if (how->cert) {
        ck_assert_int_eq(SSL_CTX_use_certificate_chain_file(ctx, how->cert), 1);
        ck_assert_int_eq(SSL_CTX_use_PrivateKey_file(ctx, how->key, SSL_FILETYPE_PEM), 1);
    }
    ssl = SSL_new(ctx);
    ck_assert_ptr_nonnull(ssl);
    SSL_set_ex_data(ssl, 0, how->ret_session);
    SSL_set_fd(ssl, fd);
    set_alpn(ssl, how->alpn ? how->alpn : "h2");
    if (how->session)
        ck_assert_int_eq(SSL_set_session(ssl, how->session), 1);
    if (SSL_connect(ssl) == 1 && (how->silent ? is_cut_off(ssl) : speaks_http2(ssl))) {
        version = SSL_get_version(ssl);
        if (how->ret_resumed)
            *how->ret_resumed = SSL_session_reused(ssl);
        (void)SSL_shutdown(ssl);
    }
    ERR_clear_error();
    SSL_free(ssl);
    SSL_CTX_free(ctx);
    close(fd);
    return version;
}
