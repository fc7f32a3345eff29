#include "common/http/url.h"

#include <stdio.h>
#include <strings.h>

#include "common/fields/fields.h"

#define ALPHA "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGIT "0123456789"
#define HEX DIGIT "abcdefABCDEF"

enum { LABEL_MAX = 63, PORT_MAX = 65535 };

static const struct {
    const char *name; /* with what must follow */
    enum berth_url_scheme scheme;
    unsigned port;
} schemes[] = {
    {"http://", BERTH_URL_HTTP, 80},
    {"https://", BERTH_URL_HTTPS, 443},
    {"socks5://", BERTH_URL_SOCKS5, 1080},
    {"unix:", BERTH_URL_UNIX, 0},
};

static enum berth_code refuse(const char *field, const char *rule, struct berth_error *err)
{
    enum berth_code code =
        berth_fail(err, BERTH_REASON_ENDPOINT_REFUSED, "%s: %s", field, rule);

    BERTH_ERROR_SET(err, field, field);
    BERTH_ERROR_SET(err, rule, rule);
    return code;
}

/* --------------------------------------------------------------------- bytes */

static enum berth_code check_bytes(const char *field, const char *text, struct berth_error *err)
{
    static const char allowed[] = ALPHA DIGIT "-._~:/?#[]@!$&'()*+,;=%";
    size_t len = strnlen(text, BERTH_URL_MAX + 1);

    if (len > BERTH_URL_MAX)
        return berth_fail_field(err, field, "must be at most %d characters", BERTH_URL_MAX);
    if (strspn(text, allowed) != len)
        return berth_fail_field(err, field,
                                "must hold only the characters of a URL: no space, control, "
                                "'\\', '\"', or character beyond ASCII");
    for (const char *at = strchr(text, '%'); at; at = strchr(at + 1, '%'))
        if (strspn(at + 1, HEX) < 2)
            return berth_fail_field(err, field, "must have two hex digits behind each '%%'");
    return BERTH_OK;
}

/* ---------------------------------------------------------------------- host */

/* As resolvers and browsers see it: a last label that is a number makes an IPv4 address. */
static bool ends_in_number(const char *host)
{
    const char *last = strrchr(host, '.');

    last = last ? last + 1 : host;
    if (last[0] == '0' && (last[1] == 'x' || last[1] == 'X'))
        return last[2 + strspn(last + 2, HEX)] == 0;
    return *last && last[strspn(last, DIGIT)] == 0;
}

static bool label_valid(const char *label, size_t len)
{
    return len > 0 && len <= LABEL_MAX && label[0] != '-' && label[len - 1] != '-' &&
           strspn(label, ALPHA DIGIT "-") >= len;
}

static enum berth_code check_labels(const char *field, const char *host,
                                    struct berth_error *err)
{
    for (const char *label = host;;) {
        size_t len = strcspn(label, ".");

        if (len == 0 && label != host && !*label)
            return berth_fail_field(err, field, "must have a host without a dot at its end");
        if (!label_valid(label, len))
            return berth_fail_field(err, field,
                                    "must have a host of labels of 1 to %d letters, digits and "
                                    "inner hyphens",
                                    LABEL_MAX);
        if (!label[len])
            return BERTH_OK;
        label += len + 1;
    }
}

/* Is name the same as, or below, domain? */
static bool is_under(const char *name, const char *domain)
{
    size_t len = strlen(name), domain_len = strlen(domain);

    return len >= domain_len && strcasecmp(name + len - domain_len, domain) == 0 &&
           (len == domain_len || name[len - domain_len - 1] == '.');
}

/* What a name says without being looked up. Its addresses are judged at each dial all the same;
 * this is for an early and clear answer. */
static enum berth_code judge_name(const char *field, const char *host, bool allow_private,
                                  struct berth_error *err)
{
    /* RFC 6761, RFC 6762, and the domain reserved by ICANN for private use. */
    static const char *const private[] = {"localhost", "localdomain", "local", "internal"};
    /* Google, AWS, Tencent, Equinix; the two short ones by the clouds' search domains. */
    static const char *const never[] = {
        "metadata.google.internal",
        "metadata.goog",
        "metadata",
        "instance-data",
        "instance-data.ec2.internal",
        "metadata.tencentyun.com",
        "metadata.platformequinix.com",
    };

    for (size_t i = 0; i < BERTH_COUNT(never); i++)
        if (strcasecmp(host, never[i]) == 0)
            return refuse(field, "the host names cloud metadata: never allowed", err);
    for (size_t i = 0; i < BERTH_COUNT(private) && !allow_private; i++)
        if (is_under(host, private[i]))
            return refuse(field, "the host is a local name: only with allow_private_endpoints",
                          err);
    return BERTH_OK;
}

static enum berth_code parse_ip6(const char *field, struct berth_url *url,
                                 struct berth_error *err)
{
    if (strchr(url->host, '%'))
        return berth_fail_field(err, field, "must have an address without a zone");
    if (!strchr(url->host, ':') || !berth_address_parse(url->host, &url->address))
        return berth_fail_field(err, field, "must have an IPv6 address in the brackets");
    url->is_address = true;
    return BERTH_OK;
}

static enum berth_code parse_plain_host(const char *field, struct berth_url *url,
                                        struct berth_error *err)
{
    if (strchr(url->host, '%'))
        return berth_fail_field(err, field, "must have a host without percent-encoding");
    if (!ends_in_number(url->host))
        return check_labels(field, url->host, err);
    if (!berth_address_parse(url->host, &url->address))
        return berth_fail_field(err, field,
                                "must have a host that does not end in a number, or an IPv4 "
                                "address of four plain decimal parts");
    url->is_address = true;
    return BERTH_OK;
}

static void copy_lower(char *to, const char *from, size_t len)
{
    for (size_t i = 0; i < len; i++)
        to[i] = (char)(from[i] >= 'A' && from[i] <= 'Z' ? from[i] - 'A' + 'a' : from[i]);
    to[len] = 0;
}

/* text: as far as len, what stands between "://" and path, query or end. *ret_host_len: how
 * much of it is host. */
static enum berth_code parse_host(const char *field, const char *text, size_t len,
                                  struct berth_url *url, size_t *ret_host_len,
                                  struct berth_error *err)
{
    bool brackets = *text == '[';
    const char *end = memchr(text, brackets ? ']' : ':', len);
    size_t host_len = end ? (size_t)(end - text) : len;
    enum berth_code code;

    if (brackets && !end)
        return berth_fail_field(err, field, "must have a ']' behind the address");
    *ret_host_len = host_len + brackets;
    text += brackets;
    host_len -= brackets;
    if (host_len == 0)
        return berth_fail_field(err, field, "must have a host");
    if (host_len > BERTH_HOST_MAX)
        return berth_fail_field(err, field, "must have a host of at most %d characters",
                                BERTH_HOST_MAX);
    copy_lower(url->host, text, host_len);
    code = brackets ? parse_ip6(field, url, err) : parse_plain_host(field, url, err);
    if (!code && url->is_address)
        (void)berth_address_format(url->host, &url->address);
    return code;
}

static enum berth_code parse_port(const char *field, const char *text, size_t len,
                                  struct berth_url *url, struct berth_error *err)
{
    unsigned port = 0;

    if (len == 0)
        return BERTH_OK; /* the scheme's own */
    if (text[0] != ':' || len < 2 || len > 6 || text[1] == '0' ||
        strspn(text + 1, DIGIT) < len - 1)
        return berth_fail_field(err, field, "must have a port of 1 to %d, or none", PORT_MAX);
    for (size_t i = 1; i < len; i++)
        port = port * 10 + (unsigned)(text[i] - '0');
    if (port > PORT_MAX)
        return berth_fail_field(err, field, "must have a port of 1 to %d, or none", PORT_MAX);
    url->default_port = port == url->port;
    url->port = port;
    return BERTH_OK;
}

/* ----------------------------------------------------------------------- URL */

static enum berth_code parse_scheme(const char *field, const char *text, unsigned allowed,
                                    struct berth_url *url, const char **ret_rest,
                                    struct berth_error *err)
{
    for (size_t i = 0; i < BERTH_COUNT(schemes); i++) {
        size_t len = strlen(schemes[i].name);

        if (!(schemes[i].scheme & allowed) || strncasecmp(text, schemes[i].name, len) != 0)
            continue;
        url->scheme = schemes[i].scheme;
        url->port = schemes[i].port;
        url->default_port = true;
        *ret_rest = text + len;
        return BERTH_OK;
    }
    return berth_fail_field(err, field, "must begin with https://%s%s%s",
                            allowed & BERTH_URL_HTTP ? " or http://" : "",
                            allowed & BERTH_URL_SOCKS5 ? " or socks5://" : "",
                            allowed & BERTH_URL_UNIX ? " or unix:/" : "");
}

static bool has_dots(const char *path)
{
    while (*path == '/') {
        size_t len = strcspn(++path, "/?"), dots = 0, at = 0;

        /* "%2e" is a dot to those who decode first. */
        for (; at < len; dots++) {
            if (path[at] == '.')
                at++;
            else if (strncasecmp(path + at, "%2e", 3) == 0)
                at += 3;
            else
                break;
        }
        if (at == len && (dots == 1 || dots == 2))
            return true;
        path += len;
    }
    return false;
}

static enum berth_code check_rest(const char *field, const char *rest, bool base,
                                  struct berth_error *err)
{
    size_t path_len = strcspn(rest, "?");

    if (strchr(rest, '#'))
        return berth_fail_field(err, field, "must have no fragment ('#')");
    if (strcspn(rest, "[]") < path_len)
        return berth_fail_field(err, field, "must have '[' and ']' only around an address");
    if (base && rest[path_len])
        return berth_fail_field(err, field, "must have no query ('?')");
    if (base && has_dots(rest))
        return berth_fail_field(err, field, "must have no \".\" or \"..\" in its path");
    return BERTH_OK;
}

static enum berth_code parse_unix(const char *field, const char *path, bool allow_private,
                                  struct berth_url *url, struct berth_error *err)
{
    enum berth_code code = berth_check_path(field, path, err);

    if (!code && strchr(path, '%'))
        code = berth_fail_field(err, field, "must have no '%%' in a path of this host");
    if (!code && !allow_private)
        code = refuse(field, "a socket of this host: only with allow_private_endpoints", err);
    url->rest = path;
    return code;
}

static enum berth_code parse_authority(const char *field, const char *text, size_t len,
                                       struct berth_url *url, struct berth_error *err)
{
    size_t host_len = 0;
    enum berth_code code;

    if (memchr(text, '@', len))
        return berth_fail_field(err, field, "must have no user or password ('@')");
    code = parse_host(field, text, len, url, &host_len, err);
    return code ? code : parse_port(field, text + host_len, len - host_len, url, err);
}

static enum berth_code judge_host(const char *field, const struct berth_url *url,
                                  bool allow_private, struct berth_error *err)
{
    return url->is_address ? berth_address_check(field, &url->address, allow_private, err)
                           : judge_name(field, url->host, allow_private, err);
}

enum berth_code berth_url_parse(const char *field, const char *text,
                                const struct berth_url_rules *rules, struct berth_url *ret_url,
                                struct berth_error *err)
{
    struct berth_url url = {0};
    const char *at = NULL;
    size_t authority_len;
    enum berth_code code = check_bytes(field, text, err);

    if (!code)
        code = parse_scheme(field, text, rules->schemes, &url, &at, err);
    if (code)
        return code;
    if (url.scheme == BERTH_URL_UNIX) {
        code = parse_unix(field, at, rules->allow_private, &url, err);
    } else {
        authority_len = strcspn(at, "/?#");
        url.rest = at + authority_len;
        code = parse_authority(field, at, authority_len, &url, err);
        if (!code)
            code = check_rest(field, url.rest, rules->base, err);
        if (!code)
            code = judge_host(field, &url, rules->allow_private, err);
    }
    if (!code)
        *ret_url = url;
    return code;
}

bool berth_host_is_name(const char *text)
{
    return strnlen(text, BERTH_HOST_MAX + 1) <= BERTH_HOST_MAX && !ends_in_number(text) &&
           check_labels("", text, NULL) == BERTH_OK;
}

enum berth_code berth_domain_check(const char *field, const char *text, bool allow_private,
                                   struct berth_error *err)
{
    enum berth_code code;

    if (!*text || strlen(text) > BERTH_HOST_MAX)
        return berth_fail_field(err, field, "must be a name of 1 to %d characters",
                                BERTH_HOST_MAX);
    if (ends_in_number(text))
        return berth_fail_field(err, field, "must be a name that does not end in a number");
    code = check_labels(field, text, err);
    return code ? code : judge_name(field, text, allow_private, err);
}

const char *berth_url_origin(char buf[BERTH_ORIGIN_SIZE], const struct berth_url *url)
{
    const char *scheme = "";
    bool brackets = url->is_address && url->address.family == AF_INET6;
    int len;

    for (size_t i = 0; i < BERTH_COUNT(schemes); i++)
        if (schemes[i].scheme == url->scheme)
            scheme = schemes[i].name;
    len = snprintf(buf, BERTH_ORIGIN_SIZE, "%s%s%s%s", scheme, brackets ? "[" : "", url->host,
                   brackets ? "]" : "");
    if (url->port && !url->default_port)
        snprintf(buf + len, BERTH_ORIGIN_SIZE - (size_t)len, ":%u", url->port);
    return buf;
}
