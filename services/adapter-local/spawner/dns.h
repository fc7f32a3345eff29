/* dns.h - a small forwarder: names asked at a sandbox's gateway address are asked of the host's
 * resolvers, which may be private and out of the sandbox's reach. It does not cache or look at
 * what is asked. Everything is bounded; what does not fit is dropped, as resolvers expect. */
#pragma once

#include "common/errors/errors.h"
#include "common/loop/loop.h"

enum {
    DNS_UPSTREAMS_MAX = 3, /* as in resolv.conf(5) */
    DNS_QUERIES_MAX = 128, /* over UDP, waiting for an answer */
    DNS_STREAMS_MAX = 16,  /* TCP connections */
    DNS_TRY_MS = 2000,     /* then the next upstream */
    DNS_STREAM_MS = 10000  /* a TCP connection lives no longer */
};

struct dns;

/**
 * dns_new() - bind the forwarder
 * @loop:      borrowed; its callbacks run there once it is started
 * @address:   IPv4 address to serve on; need not exist yet
 * @port:      0 picks one (tests)
 * @upstreams: addresses, optionally "address:port" ("[v6]:port"), by spaces; "" = the host's
 *             resolv.conf, read again when it changes
 *
 * Not before the loop runs is anything answered. Errors: INTERNAL_BUG (in use), OUT_OF_MEMORY.
 */
BERTH_MUST_CHECK enum berth_code dns_new(struct berth_loop *loop, const char *address, int port,
                                         const char *upstreams, const char *resolv_conf,
                                         struct dns **ret, struct berth_error *err);
int dns_port(const struct dns *dns);
/* After the loop has stopped. */
struct dns *dns_free(struct dns *dns);
