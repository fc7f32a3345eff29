/* server.h - an HTTP server that does what its script says, well or badly, at every address of
 * the test's own network namespace. */
#pragma once

#include <openssl/ssl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct peer {
    int fd;
    SSL *ssl; /* NULL: plaintext */
    struct server *server;
};

/* head: the request's, with a NUL behind. The connection is closed afterwards unless it returns
 * true: then the next request of the connection follows. */
typedef bool (*server_fn)(struct peer *peer, const char *head);

struct server {
    int fd;
    unsigned short port;
    server_fn handle;
    SSL_CTX *tls;
    pthread_t thread;
    char path[108]; /* of a unix socket */

    pthread_mutex_t mutex; /* the rest */
    unsigned n_connections, n_requests, n_open;
    char last_address[64]; /* that the last client dialled */
    char last_head[4096];
};

/* A network of our own, in which every address is us. False: not possible here, print SKIP. */
bool net_enter(void);

/* port 0: any. path: a unix socket instead. */
void server_open(struct server *server, unsigned short port, const char *path, SSL_CTX *tls,
                 server_fn handle);
void server_close(struct server *server);
unsigned server_requests(struct server *server);
unsigned server_connections(struct server *server);
void server_last(struct server *server, char address[64], char head[4096]);

/* False: the other side has gone. */
bool say(struct peer *peer, const char *text);
bool say_bytes(struct peer *peer, const void *data, size_t size);
/* Until the other side has closed, or a second has passed. */
void linger(struct peer *peer);

/* 200 with the body "hello", keeping the connection. */
bool say_hello(struct peer *peer, const char *head);
