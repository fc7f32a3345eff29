/* address.h - which concrete addresses a tenant's endpoint may have. Pure.
 *
 * An address is judged by the most specific range of the tables in address.c (each names its
 * source), and by every IPv4 address that it carries inside (mapped, translated, NAT64, 6to4,
 * Teredo, ISATAP): it is at least as forbidden as what it leads to. What is in no range and in
 * no allocated space is forbidden. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "common/errors/errors.h"

/* From harmless to hopeless: the worse of two is the greater. */
enum berth_address_class {
    BERTH_ADDRESS_PUBLIC,
    BERTH_ADDRESS_PRIVATE, /* only with the config's own switch; loopback is one of them */
    BERTH_ADDRESS_NEVER,   /* link-local, metadata, multicast, unspecified, reserved */
};

struct berth_address {
    int family; /* AF_INET, AF_INET6 */
    uint8_t bytes[16];
};

struct berth_address_verdict {
    enum berth_address_class klass;
    const char *what; /* "loopback", "cloud metadata", "public", ...; static */
};

enum { BERTH_ADDRESS_TEXT_SIZE = 46 };

/* Four plain decimal parts without leading zeros, or IPv6 of RFC 4291 without a zone. Nothing
 * else, however it is meant. */
bool berth_address_parse(const char *text, struct berth_address *ret);
/* False: neither IPv4 nor IPv6. A zone index is not looked at: it stands only where the
 * address is link-local or multicast, and those are never allowed. */
bool berth_address_from_sockaddr(const struct sockaddr *from, struct berth_address *ret);
/* As inet_ntop writes it; returns buf. */
const char *berth_address_format(char buf[BERTH_ADDRESS_TEXT_SIZE],
                                 const struct berth_address *address);

struct berth_address_verdict berth_address_judge(const struct berth_address *address);

/* May it be dialled? Errors: ENDPOINT_REFUSED naming field and rule. */
BERTH_MUST_CHECK enum berth_code berth_address_check(const char *field,
                                                     const struct berth_address *address,
                                                     bool allow_private,
                                                     struct berth_error *err);
