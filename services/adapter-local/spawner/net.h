/* net.h - a sandbox's network: its own namespace, and, with egress open, one veth pair with a
 * /30 between it and the host. */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/errors/errors.h"

enum { NET_PREFIX_MIN = 8, NET_PREFIX_MAX = 28 };

/* A network that slots are cut from. Host byte order. */
struct net_cidr {
    uint32_t base;
    unsigned prefix;
};

/* The two addresses of a slot, host byte order and as text. */
struct net_pair {
    uint32_t gateway, address;
    char gateway_text[INET_ADDRSTRLEN], address_text[INET_ADDRSTRLEN];
};

/* "10.213.0.0/16": base address without host bits, prefix NET_PREFIX_MIN..NET_PREFIX_MAX.
 * Errors: FIELD_INVALID (network_cidr). */
BERTH_MUST_CHECK enum berth_code net_parse_cidr(const char *text, struct net_cidr *ret,
                                                struct berth_error *err);
/* How many slots fit. */
unsigned net_slots(const struct net_cidr *cidr);
void net_pair_of(const struct net_cidr *cidr, unsigned slot, struct net_pair *ret);

/* Does an interface of this host, other than sandboxes' ("b" + 7 hex digits + "-..."), use a
 * part of cidr? Errors: FIELD_INVALID (network_cidr) naming the interface. */
BERTH_MUST_CHECK enum berth_code net_check_free(const struct net_cidr *cidr,
                                                struct berth_error *err);

/* A new network namespace with loopback up; the caller (single-threaded) stays where it is.
 * *ret_fd is owned. */
BERTH_MUST_CHECK enum berth_code net_make_ns(int *ret_fd, struct berth_error *err);

/* The same, and the calling thread stays in it; the process's other threads do not come along.
 */
BERTH_MUST_CHECK enum berth_code net_enter_new_ns(struct berth_error *err);

/* Make the pair: host end named link with pair->gateway, other end eth0 in ns_fd with
 * pair->address and a default route. What is half made is removed on failure. An old link of
 * the same name is replaced. Single-threaded callers only. */
BERTH_MUST_CHECK enum berth_code
net_link_up(const char *link, int ns_fd, const struct net_pair *pair, struct berth_error *err);
/* Wait until packets pass between the two ends; before, the kernel drops them, and a first
 * connection would take a second more. Gives up after a while. Single-threaded callers only. */
void net_link_await(const char *link, int ns_fd);
/* Remove the pair by its host end; fine when it is not there. */
BERTH_MUST_CHECK enum berth_code net_link_down(const char *link, struct berth_error *err);
bool net_link_exists(const char *link);
