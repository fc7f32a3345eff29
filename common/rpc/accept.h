/* accept.h - our own accept loop: the core's closes its listener for good at the first EMFILE.
 *
 * The core names a connection by its descriptor, "fd:17", and closes the descriptor when it
 * likes, after which the number is used again. So who a caller is must follow from the number
 * alone: connections from peers are moved to numbers from rpc_peer_fd_base() on, and no other
 * connection may have such a number. (With TLS the core names the address instead, and knows
 * the certificate.) */
#pragma once

#include "common/rpc/core.h"

struct rpc_acceptor;
struct rpc_tls_door;

struct rpc_acceptor_options {
    struct berth_loop *loop;
    grpc_server *server;
    struct rpc_tls_door *door; /* of the server; borrowed */
    unsigned max_connections;
    bool private_sockets;      /* mode 0600 instead of 0666 */
    const unsigned *peer_uids; /* copied */
    size_t n_peer_uids;
};

BERTH_MUST_CHECK enum berth_code rpc_acceptor_new(const struct rpc_acceptor_options *options,
                                                  struct rpc_acceptor **ret,
                                                  struct berth_error *err);
/* As berth_server_listen() and _listen_tls(). Connections wait in the kernel until _start(). */
BERTH_MUST_CHECK enum berth_code rpc_acceptor_listen(struct rpc_acceptor *acceptor,
                                                     const char *address, bool tls,
                                                     int *ret_port, struct berth_error *err);
/* On the loop thread, both. stop closes the listeners and removes their socket files. */
BERTH_MUST_CHECK enum berth_code rpc_acceptor_start(struct rpc_acceptor *acceptor,
                                                    struct berth_error *err);
void rpc_acceptor_stop(struct rpc_acceptor *acceptor);
/* Stopped before, or never started. NULL is fine. */
struct rpc_acceptor *rpc_acceptor_free(struct rpc_acceptor *acceptor);

/* Any thread. */
/* The uid behind a peer's descriptor; UINT_MAX: not known. Where that number was used again
 * meanwhile it may be the later peer's: good for logs, and both are peers. */
unsigned rpc_acceptor_peer_uid(struct rpc_acceptor *acceptor, int fd);
unsigned rpc_acceptor_connections(struct rpc_acceptor *acceptor);
uint64_t rpc_acceptor_refused(struct rpc_acceptor *acceptor);
uint64_t rpc_acceptor_evicted(struct rpc_acceptor *acceptor);
