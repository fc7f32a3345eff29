/* raw.h - connections to a server without gRPC on our side: bytes, floods, and TLS by hand. */
#pragma once

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

uint16_t port_of(const char *address);
int raw_connect(uint16_t port); /* to loopback; -1 with errno */
/* True: the other end has hung up, within wait_ms; what it says before does not matter. */
bool hung_up(int fd, int64_t wait_ms);

/* A process of its own that holds n connections, so that they cost us nothing. Start it before
 * there are threads. */
struct flood {
    pid_t child;
    int commands, answers;
};
void flood_fork(struct flood *flood, unsigned n);
void flood_begin(struct flood *flood, uint16_t port); /* returns when all are connected */
void flood_end(struct flood *flood);

/* What a TLS client of this kind gets: the version agreed upon ("TLSv1.3"; static) if the
 * server then speaks HTTP/2, "" if it refuses. */
struct tls_by_hand {
    int min_version, max_version; /* TLS1_2_VERSION...; 0: any */
    const char *alpn;             /* NULL: "h2"; "": none */
    const char *cert, *key;       /* paths; NULL: none */
    SSL_SESSION *session;         /* to resume; NULL: none */
    SSL_SESSION **ret_session;    /* what the server offered, owned; NULL: not wanted */
    bool *ret_resumed;            /* may be NULL */
    bool silent; /* says nothing after the handshake, and waits to be cut off */
};
const char *tls_by_hand(uint16_t port, const struct tls_by_hand *how);
