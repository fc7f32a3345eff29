#include "services/adapter-local/spawner/nft.h"

#include <nftables/libnftables.h>
#include <stdio.h>

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
