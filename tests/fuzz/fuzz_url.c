/* Endpoints as a tenant writes them. What is accepted must mean the same to libcurl and to the
 * resolver as it does to us, before and after we put it together again. */
#include <arpa/inet.h>
#include <curl/curl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/http/url.h"
#include "tests/fuzz/fuzz.h"

static void need(bool promise)
{
    if (!promise)
        abort();
}

/* The resolver's own idea of a number: none for a name, the same one for an address. */
static void compare_resolver(const struct berth_url *url)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM}, *list;
    struct berth_address address;
    struct in_addr in;

    if (!url->is_address) {
        need(inet_aton(url->host, &in) == 0);
        need(getaddrinfo(url->host, NULL, &hints, &list) != 0);
        return;
    }
    need(getaddrinfo(url->host, NULL, &hints, &list) == 0);
    need(berth_address_from_sockaddr(list->ai_addr, &address));
    need(address.family == url->address.family);
    need(memcmp(address.bytes, url->address.bytes, address.family == AF_INET ? 4 : 16) == 0);
    freeaddrinfo(list);
}

static void compare_curl(const char *text, const struct berth_url *url)
{
    CURLU *theirs = curl_url();
    char *host = NULL, *port = NULL, *user = NULL;
    char bracketed[BERTH_HOST_MAX + 3], digits[12];

    need(theirs != NULL);
    need(curl_url_set(theirs, CURLUPART_URL, text, 0) == CURLUE_OK);
    need(curl_url_get(theirs, CURLUPART_HOST, &host, 0) == CURLUE_OK);
    need(curl_url_get(theirs, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK);
    need(curl_url_get(theirs, CURLUPART_USER, &user, 0) == CURLUE_NO_USER);
    snprintf(digits, sizeof digits, "%u", url->port);
    need(strcmp(port, digits) == 0);
    if (*host == '[') { /* theirs keeps the spelling: compare what it means */
        struct berth_address address;

        need(url->is_address && url->address.family == AF_INET6);
        host[strlen(host) - 1] = 0;
        need(berth_address_parse(host + 1, &address));
        need(memcmp(&address, &url->address, sizeof address) == 0);
    } else {
        snprintf(bracketed, sizeof bracketed, "%s", url->host);
        need(strcasecmp(host, bracketed) == 0);
    }
    curl_free(host);
    curl_free(port);
    curl_url_cleanup(theirs);
}

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    struct berth_url_rules rules = {.schemes = BERTH_URL_HTTP | BERTH_URL_HTTPS |
                                               BERTH_URL_SOCKS5 | BERTH_URL_UNIX};
    char text[4096], again[4096], origin[BERTH_ORIGIN_SIZE];
    struct berth_url url, second;
    struct berth_error err;
    bool closed, open;

    if (size >= sizeof text || memchr(data, 0, size))
        return false;
    memcpy(text, data, size);
    text[size] = 0;
    (void)!berth_domain_check("d", text, true, &err);
    closed = berth_url_parse("u", text, &rules, &url, &err) == BERTH_OK;
    need(closed || *err.rule);
    rules.allow_private = true;
    open = berth_url_parse("u", text, &rules, &url, &err) == BERTH_OK;
    need(open || !closed);
    rules.base = true;
    need(berth_url_parse("u", text, &rules, &second, &err) != BERTH_OK || open);
    rules.base = false;
    if (berth_host_is_name(text))
        need(berth_domain_check("d", text, true, &err) == BERTH_OK ||
             err.reason == BERTH_REASON_ENDPOINT_REFUSED);
    if (!open || url.scheme == BERTH_URL_UNIX)
        return closed;
    need(!url.is_address || berth_address_judge(&url.address).klass <=
                                (closed ? BERTH_ADDRESS_PUBLIC : BERTH_ADDRESS_PRIVATE));
    compare_resolver(&url);
    if (url.scheme != BERTH_URL_SOCKS5)
        compare_curl(text, &url);
    snprintf(again, sizeof again, "%s%s", berth_url_origin(origin, &url), url.rest);
    need(berth_url_parse("u", again, &rules, &second, &err) == BERTH_OK);
    need(strcmp(url.host, second.host) == 0 && url.port == second.port &&
         url.scheme == second.scheme && strcmp(url.rest, second.rest) == 0);
    return closed;
}
