/* Addresses as text and as 4 or 16 bytes: one reading each, and nothing better for what carries
 * something worse inside. Accepted: what is public. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "common/http/address.h"
#include "tests/fuzz/fuzz.h"

static void need(bool promise)
{
    if (!promise)
        abort();
}

static bool judge(const struct berth_address *address)
{
    struct berth_address_verdict verdict = berth_address_judge(address);
    char text[BERTH_ADDRESS_TEXT_SIZE];
    struct sockaddr_in in = {.sin_family = AF_INET};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};
    struct berth_address again;
    struct berth_error err;

    need(verdict.what && *verdict.what);
    if (address->family == AF_INET)
        memcpy(&in.sin_addr, address->bytes, 4);
    else
        memcpy(&in6.sin6_addr, address->bytes, 16);
    need(berth_address_from_sockaddr(
        address->family == AF_INET ? (struct sockaddr *)&in : (struct sockaddr *)&in6, &again));
    need(memcmp(&again, address, sizeof again) == 0);
    need(berth_address_parse(berth_address_format(text, address), &again));
    need(memcmp(&again, address, sizeof again) == 0);
    need((berth_address_check("a", address, false, &err) == BERTH_OK) ==
         (verdict.klass == BERTH_ADDRESS_PUBLIC));
    need((berth_address_check("a", address, true, &err) == BERTH_OK) ==
         (verdict.klass != BERTH_ADDRESS_NEVER));
    return verdict.klass == BERTH_ADDRESS_PUBLIC;
}

/* What the last four bytes say alone, behind the prefixes that hand them on. */
static void wrap(const uint8_t *bytes)
{
    static const char *const prefixes[] = {"::ffff:0:0", "::ffff:0:0:0",
                                           "64:ff9b::", "2606:4700::5efe:0:0"};
    struct berth_address inner = {.family = AF_INET}, outer;

    memcpy(inner.bytes, bytes, 4);
    for (size_t i = 0; i < BERTH_COUNT(prefixes); i++) {
        need(berth_address_parse(prefixes[i], &outer));
        memcpy(outer.bytes + 12, bytes, 4);
        need(berth_address_judge(&outer).klass == berth_address_judge(&inner).klass);
    }
}

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    struct berth_address address = {.family = size == 4 ? AF_INET : AF_INET6};
    char text[64];

    if (size == 4 || size == 16) {
        memcpy(address.bytes, data, size);
        wrap(data + size - 4);
        return judge(&address);
    }
    if (size >= sizeof text || memchr(data, 0, size))
        return false;
    memcpy(text, data, size);
    text[size] = 0;
    return berth_address_parse(text, &address) && judge(&address);
}
