/* url.h - which URLs, hosts and domains a tenant may set. Pure: no name is looked up here; the
 * answers of the resolver are judged when they are dialled (http.h).
 *
 * A URL is taken apart by one parser, ours, and put together again for whoever dials it, so
 * that nobody can read it differently. What is not plain is refused, not repaired:
 *  - bytes: only what RFC 3986 allows; '%' with two hex digits. So no space, control, '\' or
 *    character beyond ASCII (internationalised names: in their xn-- form)
 *  - scheme http or https, and what the rules name besides, with "://"; no user, no fragment
 *  - host: labels of 1..63 letters, digits and inner hyphens, 253 in all, no '%', no trailing
 *    dot; or four plain decimal parts; or IPv6 in brackets without a zone. A name that ends in
 *    a number is no name: octal, hex, short and one-number IPv4 forms are refused
 *  - port 1..65535 in decimal, not empty
 *  - a literal address as address.h judges it; names that mean this host (localhost), this link
 *    (.local, .internal) or metadata by what they say already. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "common/errors/errors.h"
#include "common/http/address.h"

enum { BERTH_URL_MAX = 2048, BERTH_HOST_MAX = 253 };

enum berth_url_scheme {
    BERTH_URL_HTTP = 1,
    BERTH_URL_HTTPS = 2,
    BERTH_URL_SOCKS5 = 4, /* of a proxy */
    BERTH_URL_UNIX = 8,   /* "unix:/clean/absolute/path", a socket of this host: private */
};

struct berth_url_rules {
    unsigned schemes; /* of enum berth_url_scheme */
    bool base;        /* paths are put behind it: no query, no "." or ".." part */
    bool allow_private;
};

struct berth_url {
    enum berth_url_scheme scheme;
    char host[BERTH_HOST_MAX + 1]; /* lower case, IPv6 without brackets; "" for unix */
    bool is_address;
    struct berth_address address; /* where is_address */
    unsigned port;                /* always set, but for unix */
    bool default_port;
    const char *rest; /* path and query, inside the text given; "" or begins with '/' or '?' */
};

/**
 * berth_url_parse() - take a URL apart and judge it
 * @field:   proto path, for errors
 * @text:    borrowed as long as @ret_url
 * @rules:   what is allowed there
 * @ret_url: set on success only
 *
 * Errors: FIELD_INVALID where it is no plain URL, ENDPOINT_REFUSED where it is one that may not
 * be dialled; both name field and rule, and never quote the URL beyond its host.
 */
BERTH_MUST_CHECK enum berth_code berth_url_parse(const char *field, const char *text,
                                                 const struct berth_url_rules *rules,
                                                 struct berth_url *ret_url,
                                                 struct berth_error *err);
/* A host name by the rules above, whatever it says. */
bool berth_host_is_name(const char *text);

/* A URL's rules for the domain under which sandboxes have their names: a name, no address, no
 * port.
 */
BERTH_MUST_CHECK enum berth_code berth_domain_check(const char *field, const char *text,
                                                    bool allow_private,
                                                    struct berth_error *err);

enum { BERTH_ORIGIN_SIZE = BERTH_HOST_MAX + 24 };

/* "https://host:port" or "https://[::1]:port", the port only where it is not the scheme's own:
 * what may be logged of a URL. Returns buf. */
const char *berth_url_origin(char buf[BERTH_ORIGIN_SIZE], const struct berth_url *url);
