/* tls_sight.h - a look at what goes through TLS connections of our servers, at the place where
 * it is not encrypted: the core calls SSL_read() and SSL_write(), which tls_sight.c defines in
 * their place and passes on. Two things are ended there, that the core has no means for:
 *
 * - floods of frames, as frames.h judges them, of whoever is no service of the suite;
 * - connections whose certificate is of an authority that was withdrawn meanwhile, with the
 * next byte in either direction: at the latest with the next ping (keepalive_ms). The core
 * knows no GOAWAY for a single connection; calls on it end as they do when a line breaks.
 *
 * A process may have more servers than one: what one of them still accepts goes on. */
#pragma once

#include "common/rpc/tls.h"

/* A server begins, both borrowed until _remove(). False: no memory. */
bool rpc_tls_sight_add(struct berth_tls *tls, const struct rpc_peer_sans *sans);
void rpc_tls_sight_remove(const struct berth_tls *tls, const struct rpc_peer_sans *sans);

/* Other authorities are in use: connections that stand are judged anew. */
void rpc_tls_sight_changed(void);
