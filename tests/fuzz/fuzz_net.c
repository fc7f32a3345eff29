/* Entries of a network policy: an address, a network, a domain, or nothing; never two of them.
 */
#include <stdlib.h>
#include <string.h>

#include "services/controlplane/net.h"
#include "tests/fuzz/fuzz.h"

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    char text[512];
    struct cp_net net;
    bool is_net, is_domain;

    if (size >= sizeof text || memchr(data, 0, size))
        return false;
    memcpy(text, data, size);
    text[size] = 0;
    is_net = cp_net_parse(text, &net);
    is_domain = cp_domain_valid(text);
    if (is_net && is_domain)
        abort();
    if (is_net && (!cp_net_covers(&net, &net) || !cp_net_overlaps(&net, &net)))
        abort();
    if (is_domain && !cp_domain_covers(text, text))
        abort();
    return is_net || is_domain;
}
