/* dial.c - what libcurl is told, and its way to a socket. */
#include <stdio.h>
#include <strings.h>
#include <sys/socket.h>

#include "common/http/internal.h"

enum { LOW_SPEED_BYTES = 1, PIN_SIZE = BERTH_HOST_MAX + 16, KEEPALIVE_S = 60, PINNED_S = 3600 };

static enum berth_code no_memory(struct berth_error *err)
{
    return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

static bool append(struct curl_slist **list, const char *text)
{
    struct curl_slist *longer = curl_slist_append(*list, text);

    if (longer)
        *list = longer;
    return longer != NULL;
}

/* -------------------------------------------------------------------- the guards */

static bool may_dial(struct berth_http_exchange *exchange, const struct berth_address *address)
{
    struct berth_error err;

    if (berth_address_check("url", address, exchange->client->allow_private, &err) == BERTH_OK)
        return true;
    if (!exchange->code) {
        exchange->code = err.code;
        exchange->err = err;
    }
    return false;
}

curl_socket_t http_open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct berth_http_exchange *exchange = arg;
    struct berth_address concrete;

    if (purpose != CURLSOCKTYPE_IPCXN)
        return CURL_SOCKET_BAD;
    if (address->family != AF_UNIX || !exchange->client->socket_path)
        if (!berth_address_from_sockaddr(&address->addr, &concrete) ||
            !may_dial(exchange, &concrete))
            return CURL_SOCKET_BAD;
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

int http_before_request(void *arg, char *peer_ip, char *local_ip, int peer_port, int local_port)
{
    struct berth_http_exchange *exchange = arg;
    struct berth_address peer;

    (void)local_ip, (void)peer_port, (void)local_port;
    if (!exchange->client->socket_path &&
        (!berth_address_parse(peer_ip, &peer) || !may_dial(exchange, &peer)))
        return CURL_PREREQFUNC_ABORT;
    /* libcurl begins again by itself where a pooled connection turns out to be closed. */
    if (exchange->sent && !http_repeatable(&exchange->request)) {
        http_exchange_fail(exchange, BERTH_REASON_OUTCOME_UNKNOWN,
                           "the connection was closed without an answer");
        return CURL_PREREQFUNC_ABORT;
    }
    exchange->sent = true;
    return CURL_PREREQFUNC_OK;
}

/* All names are pinned, so what libcurl wants to look up can only be an address: it asks for
 * these as well. Anything else is a pin that is missing. */
static int before_lookup(void *resolver, void *reserved, void *arg)
{
    const struct berth_http_exchange *exchange = arg;
    const struct berth_http_client *client = exchange->client;

    (void)resolver, (void)reserved;
    if (client->has_proxy)
        return !client->proxy.is_address && client->proxy.scheme != BERTH_URL_SOCKS5;
    if (client->has_gateway)
        return !client->gateway.is_address;
    return !exchange->url.is_address;
}

/* ------------------------------------------------------------------------- options */

/* Shorter than a hundred lines of if: the first that fails decides. */
#define SET(option, value)                                                                     \
    do {                                                                                       \
        CURLcode result = curl_easy_setopt(easy, option, value);                               \
        if (result == CURLE_OUT_OF_MEMORY)                                                     \
            return no_memory(err);                                                             \
        if (result)                                                                            \
            return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "libcurl: " #option ": %s",      \
                              curl_easy_strerror(result));                                     \
    } while (0)

static enum berth_code set_protocol(CURL *easy, struct berth_http_exchange *exchange,
                                    struct berth_error *err)
{
    char origin[BERTH_ORIGIN_SIZE], url[BERTH_URL_MAX + BERTH_ORIGIN_SIZE];

    snprintf(url, sizeof url, "%s%s", berth_url_origin(origin, &exchange->url),
             exchange->url.rest);
    SET(CURLOPT_URL, url);
    SET(CURLOPT_PATH_AS_IS, 1L);
    SET(CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
#if LIBCURL_VERSION_NUM >= 0x075500
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
#else
    SET(CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_HTTP09_ALLOWED, 0L);
    SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_TCP_KEEPALIVE, 1L);
    SET(CURLOPT_TCP_KEEPIDLE, (long)KEEPALIVE_S);
    SET(CURLOPT_USERAGENT, "berth/" BERTH_VERSION);
    SET(CURLOPT_ERRORBUFFER, exchange->error_text);
    SET(CURLOPT_PRIVATE, (void *)exchange);
    return BERTH_OK;
}

static enum berth_code set_guards(CURL *easy, struct berth_http_exchange *exchange,
                                  struct berth_error *err)
{
    SET(CURLOPT_OPENSOCKETFUNCTION, http_open_socket);
    SET(CURLOPT_OPENSOCKETDATA, exchange);
    SET(CURLOPT_PREREQFUNCTION, http_before_request);
    SET(CURLOPT_PREREQDATA, exchange);
    SET(CURLOPT_RESOLVER_START_FUNCTION, before_lookup);
    SET(CURLOPT_RESOLVER_START_DATA, exchange);
    SET(CURLOPT_DNS_CACHE_TIMEOUT, (long)PINNED_S);
    return BERTH_OK;
}

static enum berth_code set_way(CURL *easy, const struct berth_http_client *client,
                               struct berth_error *err)
{
    char origin[BERTH_ORIGIN_SIZE];

    SET(CURLOPT_PROXY, client->has_proxy ? berth_url_origin(origin, &client->proxy) : "");
    SET(CURLOPT_NOPROXY, "");
    if (client->has_proxy) {
        SET(CURLOPT_PROXYPORT, (long)client->proxy.port);
        SET(CURLOPT_HTTPPROXYTUNNEL, 1L);
        SET(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    }
    if (client->socket_path)
        SET(CURLOPT_UNIX_SOCKET_PATH, client->socket_path);
    return BERTH_OK;
}

static struct curl_blob blob_of(char *pem)
{
    return (struct curl_blob){.data = pem, .len = strlen(pem), .flags = CURL_BLOB_NOCOPY};
}

static enum berth_code set_trust(CURL *easy, const struct berth_http_client *client,
                                 struct berth_error *err)
{
    SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    SET(CURLOPT_SSL_VERIFYPEER, 1L);
    SET(CURLOPT_SSL_VERIFYHOST, 2L);
    SET(CURLOPT_PROXY_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    SET(CURLOPT_PROXY_SSL_VERIFYPEER, 1L);
    SET(CURLOPT_PROXY_SSL_VERIFYHOST, 2L);
    if (client->ca_pem) { /* and nobody else */
        struct curl_blob blob = blob_of(client->ca_pem);

        SET(CURLOPT_CAPATH, NULL);
        SET(CURLOPT_CAINFO, NULL);
        SET(CURLOPT_CAINFO_BLOB, &blob);
        SET(CURLOPT_PROXY_CAPATH, NULL);
        SET(CURLOPT_PROXY_CAINFO, NULL);
        SET(CURLOPT_PROXY_CAINFO_BLOB, &blob);
    }
    if (client->cert_pem) {
        struct curl_blob cert = blob_of(client->cert_pem);
        struct curl_blob key = blob_of(client->key_pem);

        SET(CURLOPT_SSLCERT_BLOB, &cert);
        SET(CURLOPT_SSLKEY_BLOB, &key);
    }
    return BERTH_OK;
}

static long whole_seconds(int64_t ms)
{
    return (long)((ms + 999) / 1000);
}

static enum berth_code set_limits(CURL *easy, const struct berth_http_exchange *exchange,
                                  struct berth_error *err)
{
    int64_t idle_ms =
        exchange->request.idle_ms ? exchange->request.idle_ms : BERTH_HTTP_IDLE_MS;

    SET(CURLOPT_CONNECTTIMEOUT_MS, (long)exchange->client->connect_ms);
    if (idle_ms > 0) {
        SET(CURLOPT_LOW_SPEED_LIMIT, (long)LOW_SPEED_BYTES);
        SET(CURLOPT_LOW_SPEED_TIME, whole_seconds(idle_ms));
    }
    return BERTH_OK;
}

static enum berth_code set_body(CURL *easy, struct berth_http_exchange *exchange,
                                struct berth_error *err)
{
    const struct berth_http_request *request = &exchange->request;

    if (request->source) {
        SET(CURLOPT_UPLOAD, 1L);
        SET(CURLOPT_READFUNCTION, http_give_body);
        SET(CURLOPT_READDATA, exchange);
        SET(CURLOPT_INFILESIZE_LARGE, (curl_off_t)request->source_size);
    } else if (request->body_size > 0 || strcmp(request->method, "POST") == 0 ||
               strcmp(request->method, "PUT") == 0) {
        SET(CURLOPT_POST, 1L);
        SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body_size);
        SET(CURLOPT_POSTFIELDS, request->body_size ? request->body : "");
    } else if (strcmp(request->method, "HEAD") == 0) {
        SET(CURLOPT_NOBODY, 1L);
    }
    SET(CURLOPT_CUSTOMREQUEST, request->method);
    SET(CURLOPT_HEADERFUNCTION, http_take_head);
    SET(CURLOPT_HEADERDATA, exchange);
    SET(CURLOPT_WRITEFUNCTION, http_take_body);
    SET(CURLOPT_WRITEDATA, exchange);
    return BERTH_OK;
}

/* A header that could end the head, or say another length than the true one, is our own bug. */
static bool header_valid(const struct berth_http_header *header)
{
    static const char token[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "!#$%&'*+-.^_`|~";
    static const char *const ours[] = {"Content-Length", "Transfer-Encoding", "Connection",
                                       "Expect"};

    if (!*header->name || strspn(header->name, token) != strlen(header->name))
        return false;
    for (const char *at = header->value; *at; at++)
        if ((unsigned char)*at < 0x20 ? *at != '\t' : *at == 0x7f)
            return false;
    for (size_t i = 0; i < BERTH_COUNT(ours); i++)
        if (strcasecmp(header->name, ours[i]) == 0)
            return false;
    return true;
}

static enum berth_code set_headers(CURL *easy, struct berth_http_exchange *exchange,
                                   struct berth_error *err)
{
    const struct berth_http_request *request = &exchange->request;
    bool typed = false;

    for (size_t i = 0; i < request->n_headers; i++) {
        const struct berth_http_header *header = &request->headers[i];
        char *line = NULL;
        bool added;

        if (!header_valid(header))
            return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "request header %zu of %zu", i,
                              request->n_headers);
        /* "Name;" is libcurl's way to write one without a value. */
        if (asprintf(&line, *header->value ? "%s: %s" : "%s;", header->name, header->value) < 0)
            return no_memory(err);
        added = append(&exchange->headers, line);
        free(line);
        if (!added)
            return no_memory(err);
        typed |= strcasecmp(header->name, "Content-Type") == 0;
    }
    if (!append(&exchange->headers, "Expect:") ||
        !append(&exchange->headers, "Accept-Encoding:"))
        return no_memory(err);
    if (!typed && !append(&exchange->headers, "Content-Type:"))
        return no_memory(err);
    SET(CURLOPT_HTTPHEADER, exchange->headers);
    SET(CURLOPT_HEADEROPT, (long)CURLHEADER_SEPARATE); /* none of them for a proxy */
    return BERTH_OK;
}

enum berth_code http_set_options(struct berth_http_exchange *exchange, struct berth_error *err)
{
    CURL *easy = exchange->easy;
    enum berth_code code = set_protocol(easy, exchange, err);

    if (!code)
        code = set_guards(easy, exchange, err);
    if (!code)
        code = set_way(easy, exchange->client, err);
    if (!code)
        code = set_trust(easy, exchange->client, err);
    if (!code)
        code = set_limits(easy, exchange, err);
    if (!code)
        code = set_body(easy, exchange, err);
    return code ? code : set_headers(easy, exchange, err);
}

/* ----------------------------------------------------------------------------- pins */

static const char *bracketed(char buf[BERTH_ADDRESS_TEXT_SIZE + 2],
                             const struct berth_address *address)
{
    char text[BERTH_ADDRESS_TEXT_SIZE];
    bool is_ip6 = address->family == AF_INET6;

    snprintf(buf, BERTH_ADDRESS_TEXT_SIZE + 2, "%s%s%s", is_ip6 ? "[" : "",
             berth_address_format(text, address), is_ip6 ? "]" : "");
    return buf;
}

/* "+host:port:address,address": kept for PINNED_S, replaced by the next call's. */
static enum berth_code pin(struct berth_http_exchange *exchange, const struct berth_url *url,
                           const struct http_lookup *lookup, struct berth_error *err)
{
    char text[PIN_SIZE + HTTP_ANSWERS_MAX * (BERTH_ADDRESS_TEXT_SIZE + 3)];
    char address[BERTH_ADDRESS_TEXT_SIZE + 2];
    size_t len = (size_t)snprintf(text, sizeof text, "+%s:%u:", url->host, url->port);

    for (size_t i = 0; i < lookup->n_answers; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%s", i ? "," : "",
                                bracketed(address, &lookup->answers[i]));
    return append(&exchange->pins, text) ? BERTH_OK : no_memory(err);
}

/* Whatever host the URL names, go to that one. */
static enum berth_code lead(struct berth_http_exchange *exchange, const char *host,
                            unsigned port, struct berth_error *err)
{
    char text[PIN_SIZE + 8];

    snprintf(text, sizeof text, "::%s:%u", host, port);
    return append(&exchange->connect_to, text) ? BERTH_OK : no_memory(err);
}

/* Behind a proxy the first answer is the one asked for. */
static enum berth_code lead_to_address(struct berth_http_exchange *exchange,
                                       struct berth_error *err)
{
    const struct http_lookup *lookup = exchange->lookups[HTTP_TARGET];
    char text[BERTH_ADDRESS_TEXT_SIZE + 2];

    return lead(exchange,
                bracketed(text, lookup ? &lookup->answers[0] : &exchange->url.address),
                exchange->url.port, err);
}

enum berth_code http_set_pins(struct berth_http_exchange *exchange, struct berth_error *err)
{
    const struct berth_http_client *client = exchange->client;
    const struct berth_url *via = client->has_proxy ? &client->proxy : &client->gateway;
    const struct http_lookup *target = exchange->lookups[HTTP_TARGET];
    char text[BERTH_ADDRESS_TEXT_SIZE + 2];
    CURL *easy = exchange->easy;
    enum berth_code code = BERTH_OK;

    if (client->socket_path)
        return BERTH_OK;
    if (target && !client->has_proxy)
        code = pin(exchange, &exchange->url, target, err);
    if (!code && exchange->lookups[HTTP_VIA])
        code = pin(exchange, via, exchange->lookups[HTTP_VIA], err);
    if (!code && client->has_proxy)
        code = lead_to_address(exchange, err);
    if (!code && client->has_gateway)
        code = lead(exchange, via->is_address ? bracketed(text, &via->address) : via->host,
                    via->port, err);
    if (code)
        return code;
    SET(CURLOPT_RESOLVE, exchange->pins);
    SET(CURLOPT_CONNECT_TO, exchange->connect_to);
    return BERTH_OK;
}
