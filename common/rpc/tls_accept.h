/* tls_accept.h - the core's TLS, on connections that we have accepted ourselves.
 *
 * grpc_server_add_channel_from_fd() takes no TLS credentials. What does is the way by which
 * C++ servers take connections from elsewhere: a port named "external:..." whose handler the
 * core leaves in an argument of the server. The handler is a C++ object; see tls_accept.c. */
#pragma once

#include "common/rpc/core.h"
#include "common/rpc/tls.h"

struct rpc_fd_handler;

struct rpc_tls_door {
    struct berth_tls *tls; /* NULL: no TLS here */
    enum berth_tls_clients clients;
    uint64_t generation;            /* that the core has */
    struct rpc_fd_handler *handler; /* the core's, gone with the server; NULL: not open */
};

/* tls may be NULL. Errors: FIELD_INVALID when it lacks what serving like this needs. */
BERTH_MUST_CHECK enum berth_code rpc_tls_door_init(struct rpc_tls_door *door,
                                                   struct berth_tls *tls,
                                                   enum berth_tls_clients clients,
                                                   struct berth_error *err);
/* For grpc_server_create(); door stays where it is until _deinit(). */
grpc_arg rpc_tls_door_arg(struct rpc_tls_door *door);
/* Between grpc_server_create() and grpc_server_start(). */
BERTH_MUST_CHECK enum berth_code
rpc_tls_door_open(struct rpc_tls_door *door, grpc_server *server, struct berth_error *err);
/* Takes fd, a connected socket. Between start and shutdown of the server. */
void rpc_tls_door_take(struct rpc_tls_door *door, int fd);
/* After the last _take(). */
void rpc_tls_door_deinit(struct rpc_tls_door *door);
