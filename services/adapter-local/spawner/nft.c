#include "services/adapter-local/spawner/nft.h"

#include <errno.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <nftables/libnftables.h>
#include <stdio.h>
#include <sys/socket.h>

/* Never reachable from a sandbox, whatever its policy says: private and shared networks,
 * loopback, link-local (with the usual metadata address), multicast and broadcast, and the
 * metadata addresses of vendors outside of those. */
#define DENIED                                                                                 \
    "0.0.0.0/8, 10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 169.254.0.0/16, 172.16.0.0/12, "       \
    "192.168.0.0/16, 224.0.0.0/4, 255.255.255.255, 192.0.0.192, 168.63.129.16"

/* $T table, $P interface prefix, $C network of the sandboxes, $O open interfaces. Prerouting
 * sees a packet whether it is for the host or to be forwarded; conntrack has judged it by then.
 */
static const char template[] =
    "add table inet $T\n"
    "delete table inet $T\n"
    "table inet $T {\n"
    "  set open { type ifname; $O }\n"
    "  chain from_sandbox {\n"
    "    meta nfproto ipv6 drop\n"
    "    fib saddr . iif oif missing drop\n"
    "    fib saddr type local drop\n"
    "    meta l4proto { tcp, udp } th dport 53 fib daddr . iif type local accept\n"
    "    ct state { established, related } accept\n"
    "    fib daddr type local reject with icmpx admin-prohibited\n"
    "    ip daddr { " DENIED " } reject with icmpx admin-prohibited\n"
    "    ip daddr $C reject with icmpx admin-prohibited\n"
    "    fib daddr type != unicast drop\n"
    "    accept\n"
    "  }\n"
    "  chain prerouting {\n"
    "    type filter hook prerouting priority -150; policy accept;\n"
    "    iifname \"$P*\" jump from_sandbox\n"
    "  }\n"
    "  chain to_sandbox {\n"
    "    meta nfproto ipv6 drop\n"
    "    ct state { established, related } accept\n"
    "    drop\n"
    "  }\n"
    "  chain forward {\n"
    "    type filter hook forward priority 0; policy accept;\n"
    "    oifname \"$P*\" jump to_sandbox\n"
    "  }\n"
    "  chain output {\n"
    "    type filter hook output priority 0; policy accept;\n"
    "    oifname @open accept\n"
    "    oifname \"$P*\" jump to_sandbox\n"
    "  }\n"
    "  chain postrouting {\n"
    "    type nat hook postrouting priority 100; policy accept;\n"
    "    ip saddr $C oifname != \"$P*\" masquerade\n"
    "  }\n"
    "}\n";

char *nft_rules(const char *table, const char *prefix, const char *cidr,
                const char *const *open, size_t n_open)
{
    size_t size = 0;
    char *text = NULL;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return NULL;
    for (const char *at = template; *at; at++) {
        if (*at != '$') {
            fputc(*at, out);
            continue;
        }
        switch (*++at) {
        case 'T':
            fputs(table, out);
            break;
        case 'P':
            fputs(prefix, out);
            break;
        case 'C':
            fputs(cidr, out);
            break;
        default:
            for (size_t i = 0; i < n_open; i++)
                fprintf(out, "%s\"%s\"", i ? ", " : "elements = { ", open[i]);
            fputs(n_open ? " }" : "", out);
        }
    }
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

static enum berth_code run(const char *commands, struct berth_error *err)
{
    struct nft_ctx *nft = nft_ctx_new(NFT_CTX_DEFAULT);
    enum berth_code code = BERTH_OK;

    if (!nft)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (nft_ctx_buffer_error(nft) || nft_ctx_buffer_output(nft))
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    else if (nft_run_cmd_from_buffer(nft, commands))
        code = berth_fail(err, BERTH_REASON_INTERNAL_BUG, "nftables: %s",
                          nft_ctx_get_error_buffer(nft));
    nft_ctx_free(nft);
    return code;
}

enum berth_code nft_install(const char *rules, struct berth_error *err)
{
    return run(rules, err);
}

enum berth_code nft_set_inbound(const char *table, const char *link, bool open,
                                struct berth_error *err)
{
    char commands[256];
    size_t len = 0;

    /* Adding an element that is there succeeds; so "add, then delete" succeeds in either case.
     */
    len += (size_t)snprintf(commands, sizeof commands, "add element inet %s open { \"%s\" }\n",
                            table, link);
    if (!open)
        snprintf(commands + len, sizeof commands - len,
                 "delete element inet %s open { \"%s\" }\n", table, link);
    return run(commands, err);
}

enum berth_code nft_remove(const char *table, struct berth_error *err)
{
    char commands[128];

    snprintf(commands, sizeof commands, "add table inet %s\ndelete table inet %s\n", table,
             table);
    return run(commands, err);
}

/* --------------------------------------------------------------------- watching */

int nft_watch(void)
{
    struct sockaddr_nl address = {.nl_family = AF_NETLINK,
                                  .nl_groups = 1U << (NFNLGRP_NFTABLES - 1)};
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_NETFILTER);

    if (fd < 0)
        return -1;
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0) {
        int number = errno;

        close(fd);
        errno = number;
        return -1;
    }
    return fd;
}

/* Does the message name the table? */
static bool names(const struct nlmsghdr *header, const char *table)
{
    const char *at = (const char *)NLMSG_DATA(header) + NLMSG_ALIGN(sizeof(struct nfgenmsg));
    const char *end = (const char *)header + header->nlmsg_len;
    size_t size = strlen(table) + 1;

    while (at + NLA_HDRLEN <= end) {
        const struct nlattr *attr = (const void *)at;

        if (attr->nla_len < NLA_HDRLEN || at + attr->nla_len > end)
            return false;
        if ((attr->nla_type & NLA_TYPE_MASK) == NFTA_TABLE_NAME)
            return attr->nla_len == NLA_HDRLEN + size &&
                   memcmp(at + NLA_HDRLEN, table, size) == 0;
        at += NLA_ALIGN(attr->nla_len);
    }
    return false;
}

bool nft_watch_lost(int fd, const char *table)
{
    static union {
        struct nlmsghdr header;
        char bytes[65536];
    } buf;
    bool lost = false;

    for (;;) {
        ssize_t n = recv(fd, &buf, sizeof buf, 0);
        size_t left = n < 0 ? 0 : (size_t)n;

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return lost || errno == ENOBUFS; /* some were missed: assume the worst */
        for (struct nlmsghdr *at = &buf.header; NLMSG_OK(at, left); at = NLMSG_NEXT(at, left)) {
            if (at->nlmsg_type == (NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_DELTABLE))
                lost = lost || names(at, table);
            if (at->nlmsg_type == (NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWTABLE) &&
                names(at, table))
                lost = false;
        }
    }
}
