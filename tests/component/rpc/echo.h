/* echo.h - the EchoService of the tests, and a server with it in this process. */
#pragma once

#include <stdatomic.h>

#include "berth/testing/v1/echo.pb-c.h"
#include "common/rpc/rpc.h"

typedef Berth__Testing__V1__EchoRequest EchoRequest;
typedef Berth__Testing__V1__EchoResponse EchoResponse;

#define ECHO_REQUEST_INIT BERTH__TESTING__V1__ECHO_REQUEST__INIT
#define ECHO_RESPONSE_TYPE &berth__testing__v1__echo_response__descriptor
#define ECHO_PATH(method) "/berth.testing.v1.EchoService/" method

/* What the handlers saw; read by the tests. */
struct echo {
    struct berth_server *server;
    struct berth_pool *later; /* answers Deferred */
    atomic_uint n_entered;    /* unary handlers begun */
    atomic_uint n_cancelled;  /* evented calls that were told so */
    atomic_uint n_closed;     /* evented calls that have ended */
    atomic_int last_closed;   /* status code of the last of them */
    atomic_uint n_written;    /* messages that Server and Bidi got rid of */
    atomic_uint n_half_closed;
    atomic_bool release; /* ends every hold_ms */
};

extern const struct berth_method echo_methods[];
extern const size_t n_echo_methods;

/* A running server with its loop. */
struct echo_server {
    struct echo echo;
    struct berth_loop *loop;
    char address[160];    /* the first one it listens on */
    char tls_address[32]; /* where options have a tls */
};

/* options may be NULL; its loop is filled in. Listens on loopback TCP and, where path is not
 * NULL, on "unix:<path>" (which then is the address). Fails the test when it cannot. */
void echo_server_start(struct echo_server *server, const struct berth_server_options *options,
                       const char *path);
void echo_server_stop(struct echo_server *server, int64_t grace_ms);
