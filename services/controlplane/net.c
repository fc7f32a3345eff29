#include "services/controlplane/net.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/base/base.h"

enum { DOMAIN_MAX = 253, LABEL_MAX = 63, NET_TEXT_MAX = 64 };

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

bool cp_net_is_private(const struct cp_net *net)
{
    static const char *const ranges[] = {
        "0.0.0.0/8",      "10.0.0.0/8",    "100.64.0.0/10", "127.0.0.0/8",
        "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",  "192.168.0.0/16",
        "198.18.0.0/15",  "224.0.0.0/3",   "::/96",         "::ffff:0:0/96",
        "64:ff9b::/96",   "fc00::/7",      "fe80::/10",     "ff00::/8",
    };

    for (size_t i = 0; i < BERTH_COUNT(ranges); i++) {
        struct cp_net range;

        if (cp_net_parse(ranges[i], &range) && cp_net_overlaps(&range, net))
            return true;
    }
    return false;
}

static bool label_valid(const char *label, size_t len)
{
    if (len == 0 || len > LABEL_MAX || label[0] == '-' || label[len - 1] == '-')
        return false;
    for (size_t i = 0; i < len; i++)
        if (!isascii(label[i]) || !(isalnum((unsigned char)label[i]) || label[i] == '-'))
            return false;
    return true;
}

bool cp_domain_valid(const char *text)
{
    const char *label = strncmp(text, "*.", 2) == 0 ? text + 2 : text;

    if (strlen(text) > DOMAIN_MAX)
        return false;
    for (;;) {
        size_t len = strcspn(label, ".");

        if (!label_valid(label, len))
            return false;
        if (!label[len])
            return strspn(label, "0123456789") < len;
        label += len + 1;
    }
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
