#include "common/http/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>

/* The ranges. Sources:
 *  [4] IANA IPv4 Special-Purpose Address Registry (RFC 6890), and what its rows cite
 *  [6] IANA IPv6 Special-Purpose Address Registry, IPv6 Address Space and Multicast registries
 *  [v] documentation of the vendor named
 * "Globally reachable: false" there, but forwardable inside a site: PRIVATE. Not forwardable,
 * not a host's, or a vendor's metadata service: NEVER. The longest range that fits decides. */
struct range {
    uint8_t prefix[16];
    unsigned bits;
    struct berth_address_verdict verdict;
    enum { NOTHING, LAST_4, AFTER_2, TEREDO, LOCAL_NAT64 } inside; /* an IPv4 address, where */
};

#define PUBLIC(name)                                                                           \
    {                                                                                          \
        BERTH_ADDRESS_PUBLIC, name                                                             \
    }
#define PRIVATE(name)                                                                          \
    {                                                                                          \
        BERTH_ADDRESS_PRIVATE, name                                                            \
    }
#define NEVER(name)                                                                            \
    {                                                                                          \
        BERTH_ADDRESS_NEVER, name                                                              \
    }

static const struct range ranges4[] = {
    {{0}, 0, PUBLIC("public")},
    {{0}, 8, NEVER("unspecified (this network)")},          /* [4] RFC 791: 0.0.0.0 is us */
    {{10}, 8, PRIVATE("private")},                          /* [4] RFC 1918 */
    {{100, 64}, 10, PRIVATE("shared (carrier-grade NAT)")}, /* [4] RFC 6598 */
    {{100, 100, 100, 200}, 32, NEVER("cloud metadata")},    /* [v] Alibaba Cloud ECS */
    {{127}, 8, PRIVATE("loopback")},                        /* [4] RFC 1122 */
    {{168, 63, 129, 16}, 32, NEVER("cloud metadata")},      /* [v] Azure, WireServer */
    {{169, 254}, 16, NEVER("link-local")}, /* [4] RFC 3927; metadata of most clouds */
    {{169, 254, 169, 254},
     32,
     NEVER("cloud metadata")},                         /* [v] AWS, Azure, Google, Oracle, ... */
    {{169, 254, 170, 2}, 32, NEVER("cloud metadata")}, /* [v] AWS ECS task credentials */
    {{172, 16}, 12, PRIVATE("private")},               /* [4] RFC 1918 */
    {{192, 0, 0}, 24, NEVER("reserved (IETF protocols)")},   /* [4] RFC 6890 */
    {{192, 0, 0, 192}, 32, NEVER("cloud metadata")},         /* [v] Oracle Cloud Classic */
    {{192, 0, 2}, 24, NEVER("reserved (documentation)")},    /* [4] RFC 5737 */
    {{192, 88, 99}, 24, NEVER("reserved (6to4 relays)")},    /* [4] RFC 7526 */
    {{192, 168}, 16, PRIVATE("private")},                    /* [4] RFC 1918 */
    {{198, 18}, 15, PRIVATE("private (benchmarking)")},      /* [4] RFC 2544 */
    {{198, 51, 100}, 24, NEVER("reserved (documentation)")}, /* [4] RFC 5737 */
    {{203, 0, 113}, 24, NEVER("reserved (documentation)")},  /* [4] RFC 5737 */
    {{224}, 4, NEVER("multicast")},                          /* [4] RFC 5771 */
    {{240}, 4, NEVER("reserved")},                           /* [4] RFC 1112 */
    {{255, 255, 255, 255}, 32, NEVER("broadcast")},          /* [4] RFC 919 */
};

static const struct range ranges6[] = {
    {{0}, 0, NEVER("reserved (not allocated)")},    /* [6] only 2000::/3 is given out */
    {{0}, 96, NEVER("reserved (IPv4-compatible)")}, /* [6] RFC 4291 */
    {{0}, 128, NEVER("unspecified")},               /* [6] RFC 4291 */
    {{[15] = 1}, 128, PRIVATE("loopback")},         /* [6] RFC 4291 */
    {{[10] = 0xff, 0xff}, 96, PUBLIC("IPv4-mapped"), LAST_4},               /* [6] RFC 4291 */
    {{[8] = 0xff, 0xff}, 96, PUBLIC("IPv4-translated"), LAST_4},            /* RFC 2765 */
    {{0, 0x64, 0xff, 0x9b}, 96, PUBLIC("NAT64"), LAST_4},                   /* [6] RFC 6052 */
    {{0, 0x64, 0xff, 0x9b, 0, 1}, 48, PRIVATE("local NAT64"), LOCAL_NAT64}, /* [6] RFC 8215 */
    {{0x20}, 3, PUBLIC("public")},                                          /* [6] RFC 4291 */
    {{0x20, 0x01}, 23, NEVER("reserved (IETF protocols)")},                 /* [6] RFC 2928 */
    {{0x20, 0x01, 0, 0}, 32, PUBLIC("Teredo"), TEREDO},                     /* [6] RFC 4380 */
    {{0x20, 0x01, 0, 2, 0, 0}, 48, PRIVATE("private (benchmarking)")},      /* [6] RFC 5180 */
    {{0x20, 0x01, 0x0d, 0xb8}, 32, NEVER("reserved (documentation)")},      /* [6] RFC 3849 */
    {{0x20, 0x02}, 16, PUBLIC("6to4"), AFTER_2},                            /* [6] RFC 3056 */
    {{0x3f, 0xff}, 20, NEVER("reserved (documentation)")},                  /* [6] RFC 9637 */
    {{0xfc}, 7, PRIVATE("private (unique local)")},                         /* [6] RFC 4193 */
    {{0xfd, 0, 0x0e, 0xc2}, 32, NEVER("cloud metadata")}, /* [v] AWS EC2, EKS */
    {{0xfd, 0x20, 0, 0xce, [14] = 2, 0x54}, 128, NEVER("cloud metadata")}, /* [v] Google */
    {{0xfd, 0, 0, 0x42, [15] = 0x42}, 128, NEVER("cloud metadata")},       /* [v] Scaleway */
    {{0xfd, 0, 0xa9, 0xfe, 0xa9, 0xfe, [15] = 1},
     128,
     NEVER("cloud metadata")},                                          /* [v] Linode */
    {{0xfd, 0, 1, 0, [12] = 1, 0, 2, 0}, 128, NEVER("cloud metadata")}, /* [v] Alibaba */
    {{0xfe, 0x80}, 10, NEVER("link-local")},                            /* [6] RFC 4291 */
    {{0xfe, 0xc0}, 10, NEVER("reserved (site-local)")},                 /* [6] RFC 3879 */
    {{0xff}, 8, NEVER("multicast")},                                    /* [6] RFC 4291 */
};

/* At the end of an IPv6 address these decide alone, whatever stands in front: Oracle serves
 * metadata at fd00:c1::a9fe:a9fe, OpenStack at fe80::a9fe:a9fe, and a site's own NAT64 prefix
 * (RFC 6052) leads to 169.254.169.254 itself. */
static const uint8_t METADATA4[] = {169, 254, 169, 254};

bool berth_address_parse(const char *text, struct berth_address *ret)
{
    struct berth_address address = {.family = strchr(text, ':') ? AF_INET6 : AF_INET};

    if (inet_pton(address.family, text, address.bytes) != 1)
        return false;
    *ret = address;
    return true;
}

bool berth_address_from_sockaddr(const struct sockaddr *from, struct berth_address *ret)
{
    struct berth_address address = {.family = from->sa_family};

    switch (from->sa_family) {
    case AF_INET:
        memcpy(address.bytes, &((const struct sockaddr_in *)from)->sin_addr, 4);
        break;
    case AF_INET6:
        memcpy(address.bytes, &((const struct sockaddr_in6 *)from)->sin6_addr, 16);
        break;
    default:
        return false;
    }
    *ret = address;
    return true;
}

const char *berth_address_format(char buf[BERTH_ADDRESS_TEXT_SIZE],
                                 const struct berth_address *address)
{
    if (!inet_ntop(address->family, address->bytes, buf, BERTH_ADDRESS_TEXT_SIZE))
        *buf = 0;
    return buf;
}

static bool in_range(const struct range *range, const uint8_t *bytes)
{
    unsigned whole = range->bits / 8, rest = range->bits % 8;
    unsigned mask = rest ? 0xff00U >> rest & 0xff : 0;

    return memcmp(range->prefix, bytes, whole) == 0 &&
           (!rest || ((range->prefix[whole] ^ bytes[whole]) & mask) == 0);
}

static const struct range *find(const struct range *ranges, size_t n, const uint8_t *bytes)
{
    const struct range *best = NULL;

    for (size_t i = 0; i < n; i++)
        if (in_range(&ranges[i], bytes) && (!best || ranges[i].bits >= best->bits))
            best = &ranges[i];
    return best; /* the tables begin with what always fits */
}

static struct berth_address_verdict judge4(const uint8_t *bytes)
{
    return find(ranges4, BERTH_COUNT(ranges4), bytes)->verdict;
}

static void worsen(struct berth_address_verdict *verdict, const uint8_t *inner)
{
    struct berth_address_verdict other = judge4(inner);

    if (other.klass > verdict->klass)
        *verdict = other;
}

/* RFC 6052 puts the address behind /48, /56, /64 or /96, around the byte 8, and which of them a
 * site uses is not written anywhere. A candidate that begins with 0 is padding of another one.
 */
static void worsen_local_nat64(struct berth_address_verdict *verdict, const uint8_t *b)
{
    const uint8_t candidates[][4] = {{b[6], b[7], b[9], b[10]},
                                     {b[7], b[9], b[10], b[11]},
                                     {b[9], b[10], b[11], b[12]},
                                     {b[12], b[13], b[14], b[15]}};

    for (size_t i = 0; i < BERTH_COUNT(candidates); i++)
        if (candidates[i][0] != 0)
            worsen(verdict, candidates[i]);
}

static bool is_isatap(const uint8_t *b)
{
    return (b[8] & 0xfd) == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe; /* RFC 5214 */
}

static void worsen_teredo(struct berth_address_verdict *verdict, const uint8_t *b)
{
    const uint8_t client[] = {b[12] ^ 0xff, b[13] ^ 0xff, b[14] ^ 0xff, b[15] ^ 0xff};

    worsen(verdict, b + 4); /* its server */
    worsen(verdict, client);
}

static struct berth_address_verdict judge6(const uint8_t *b)
{
    const struct range *range = find(ranges6, BERTH_COUNT(ranges6), b);
    struct berth_address_verdict verdict = range->verdict;

    if (memcmp(b + 12, METADATA4, sizeof METADATA4) == 0)
        return (struct berth_address_verdict)NEVER("cloud metadata");
    switch (range->inside) {
    case NOTHING:
        break;
    case LAST_4:
        worsen(&verdict, b + 12);
        break;
    case AFTER_2:
        worsen(&verdict, b + 2);
        break;
    case TEREDO:
        worsen_teredo(&verdict, b);
        break;
    case LOCAL_NAT64:
        worsen_local_nat64(&verdict, b);
        break;
    }
    if (is_isatap(b))
        worsen(&verdict, b + 12);
    return verdict;
}

struct berth_address_verdict berth_address_judge(const struct berth_address *address)
{
    if (address->family == AF_INET)
        return judge4(address->bytes);
    if (address->family == AF_INET6)
        return judge6(address->bytes);
    return (struct berth_address_verdict)NEVER("no IP address");
}

enum berth_code berth_address_check(const char *field, const struct berth_address *address,
                                    bool allow_private, struct berth_error *err)
{
    struct berth_address_verdict verdict = berth_address_judge(address);
    char text[BERTH_ADDRESS_TEXT_SIZE], rule[128];
    enum berth_code code;

    if (verdict.klass == BERTH_ADDRESS_PUBLIC ||
        (verdict.klass == BERTH_ADDRESS_PRIVATE && allow_private))
        return BERTH_OK;
    if (snprintf(rule, sizeof rule,
                 verdict.klass == BERTH_ADDRESS_PRIVATE
                     ? "%s is %s: only with allow_private_endpoints"
                     : "%s is %s: never allowed",
                 berth_address_format(text, address), verdict.what) < 0)
        *rule = 0;
    code = berth_fail(err, BERTH_REASON_ENDPOINT_REFUSED, "%s: %s", field, rule);
    BERTH_ERROR_SET(err, field, field);
    BERTH_ERROR_SET(err, rule, rule);
    return code;
}
