#include "services/controlplane/net.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/http/url.h"

enum { NET_TEXT_MAX = 64 };

static unsigned family_bits(int family)
{
    return family == AF_INET ? 32 : 128;
}

/* Decimal digits only, no leading zero, at most max. */
static bool parse_number(const char *text, unsigned max, unsigned *ret)
{
    unsigned value = 0;

    if (!*text || (text[0] == '0' && text[1]))
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return false;
        value = value * 10 + (unsigned)(*text - '0');
        if (value > max)
            return false;
    }
    *ret = value;
    return true;
}

static bool tail_is_zero(const struct cp_net *net)
{
    for (unsigned bit = net->prefix_bits; bit < family_bits(net->family); bit++)
        if (net->address[bit / 8] & (0x80 >> bit % 8))
            return false;
    return true;
}

bool cp_net_parse(const char *text, struct cp_net *ret)
{
    struct cp_net net = {0};
    char copy[NET_TEXT_MAX];
    char *slash;
    int size = snprintf(copy, sizeof copy, "%s", text);

    if (size <= 0 || (size_t)size >= sizeof copy)
        return false;
    slash = strchr(copy, '/');
    if (slash)
        *slash++ = 0;
    net.family = strchr(copy, ':') ? AF_INET6 : AF_INET;
    if (inet_pton(net.family, copy, net.address) != 1)
        return false;
    net.prefix_bits = family_bits(net.family);
    if (slash && !parse_number(slash, family_bits(net.family), &net.prefix_bits))
        return false;
    if (!tail_is_zero(&net))
        return false;
    *ret = net;
    return true;
}

static bool same_bits(const struct cp_net *a, const struct cp_net *b, unsigned n_bits)
{
    for (unsigned bit = 0; bit < n_bits; bit++)
        if ((a->address[bit / 8] ^ b->address[bit / 8]) & (0x80 >> bit % 8))
            return false;
    return true;
}

bool cp_net_covers(const struct cp_net *outer, const struct cp_net *inner)
{
    return outer->family == inner->family && outer->prefix_bits <= inner->prefix_bits &&
           same_bits(outer, inner, outer->prefix_bits);
}

bool cp_net_overlaps(const struct cp_net *a, const struct cp_net *b)
{
    return cp_net_covers(a, b) || cp_net_covers(b, a);
}

bool cp_domain_valid(const char *text)
{
    bool wildcard = strncmp(text, "*.", 2) == 0;

    return strlen(text) <= BERTH_HOST_MAX && berth_host_is_name(wildcard ? text + 2 : text);
}

bool cp_domain_covers(const char *outer, const char *inner)
{
    size_t outer_len, inner_len;

    if (strcasecmp(outer, inner) == 0)
        return true;
    if (strncmp(outer, "*.", 2) != 0)
        return false;
    outer++; /* ".example.org" must be a true suffix */
    outer_len = strlen(outer);
    inner_len = strlen(inner);
    return inner_len > outer_len && strcasecmp(inner + inner_len - outer_len, outer) == 0;
}
