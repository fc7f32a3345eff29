/* tls.h - struct berth_tls as the files of common/rpc see it, and who is at the other end. */
#pragma once

#include <grpc/grpc_security.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/rpc/rpc.h"

struct berth_tls *rpc_tls_ref(struct berth_tls *tls);
bool rpc_tls_has_cert(const struct berth_tls *tls);
bool rpc_tls_has_ca(const struct berth_tls *tls);

/* Grows by one whenever other certificates came into use; never 0. Any thread. */
uint64_t rpc_tls_generation(struct berth_tls *tls);
/* Of what is in use now, and which generation that is. NULL: the core does not take it. */
grpc_ssl_server_certificate_config *rpc_tls_server_config(struct berth_tls *tls,
                                                          uint64_t *ret_generation);
grpc_channel_credentials *rpc_tls_channel_credentials(struct berth_tls *tls,
                                                      uint64_t *ret_generation);

/* The authorities in use, PEM; owned. NULL: none, or no memory. */
char *rpc_tls_authorities(struct berth_tls *tls);

struct rpc_tls_stats {
    int64_t not_after_ms; /* of the own certificate; 0: there is none */
    uint64_t n_reloads, n_failures;
};
struct rpc_tls_stats rpc_tls_stats(struct berth_tls *tls);

/* Names of certificates that count as services of the suite. Owned copies. */
struct rpc_peer_sans {
    char **names;
    size_t n;
};
BERTH_MUST_CHECK enum berth_code rpc_peer_sans_init(struct rpc_peer_sans *sans,
                                                    const char *const *names, size_t n,
                                                    struct berth_error *err);
void rpc_peer_sans_deinit(struct rpc_peer_sans *sans);
/* A URI stands for itself only: a DNS name that reads like one is none. */
bool rpc_peer_sans_has(const struct rpc_peer_sans *sans, const char *name, bool is_uri);
/* The caller by its verified certificate: the name that is on the list (*ret_peer), or else its
 * first URI, or DNS name. Owned; NULL: no certificate, or none of these names. */
char *rpc_tls_caller(grpc_call *core, const struct rpc_peer_sans *sans, bool *ret_peer);
