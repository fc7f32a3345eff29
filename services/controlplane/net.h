/* net.h - addresses, networks and domain names of a network policy. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* An IPv4 or IPv6 network; an address is one of full length. */
struct cp_net {
    int family; /* AF_INET, AF_INET6 */
    uint8_t address[16];
    unsigned prefix_bits;
};

/* "192.0.2.0/24", "2001:db8::1". Strict: four plain decimal parts, no zone, no bits set behind
 * the prefix. */
bool cp_net_parse(const char *text, struct cp_net *ret);
bool cp_net_covers(const struct cp_net *outer, const struct cp_net *inner);
bool cp_net_overlaps(const struct cp_net *a, const struct cp_net *b);

/* "example.org", "*.example.org": labels of 1..63 letters, digits and inner hyphens, 253 in
 * all, the last one not a number. */
bool cp_domain_valid(const char *text);
/* Same name, or outer is a wildcard above inner. Letter case does not count. */
bool cp_domain_covers(const char *outer, const char *inner);
