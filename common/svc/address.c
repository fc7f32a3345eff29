#include "common/svc/address.h"

#include <arpa/inet.h>
#include <sys/un.h>

enum { HOST_MAX = 64 };

static const char LOOPBACK_RULE[] =
    "must be a loopback address with a port (127.0.0.1:7400, [::1]:7400)";
static const char LISTEN_RULE[] =
    "must be a loopback address with a port (127.0.0.1:7400, [::1]:7400) or unix:/path; any "
    "other address needs tls_cert and tls_key";
static const char TLS_RULE[] =
    "must be a numeric address with a port (0.0.0.0:7400, [::]:7400) or unix:/path";

static bool read_port(const char *text, in_port_t *ret)
{
    unsigned port = 0;

    if (!*text)
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return false;
        port = port * 10 + (unsigned)(*text - '0');
        if (port > 65535)
            return false;
    }
    *ret = htons((uint16_t)port);
    return true;
}

/* Splits "host:port" or "[host]:port". */
static bool split(const char *text, char *host, const char **ret_port)
{
    bool bracket = *text == '[';
    const char *begin = text + bracket, *end = strchr(begin, bracket ? ']' : ':');
    size_t len = end ? (size_t)(end - begin) : 0;

    if (len == 0 || len >= HOST_MAX)
        return false;
    memcpy(host, begin, len);
    host[len] = 0;
    end += bracket;
    *ret_port = end + 1;
    return *end == ':';
}

/* False: not a numeric address with a port. */
static bool parse(const char *text, struct sockaddr_storage *ret)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    char host[HOST_MAX];
    const char *port;
    in_port_t number;

    memset(ret, 0, sizeof *ret);
    if (!split(text, host, &port) || !read_port(port, &number))
        return false;
    v4.sin_port = v6.sin6_port = number;
    if (*text == '[') {
        memcpy(ret, &v6, sizeof v6);
        return inet_pton(AF_INET6, host, &((struct sockaddr_in6 *)ret)->sin6_addr) == 1;
    }
    memcpy(ret, &v4, sizeof v4);
    return inet_pton(AF_INET, host, &((struct sockaddr_in *)ret)->sin_addr) == 1;
}

static bool is_loopback(const struct sockaddr_storage *address)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;

    return address->ss_family == AF_INET ? ntohl(v4->sin_addr.s_addr) >> 24 == 127
                                         : IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

enum berth_code svc_parse_loopback(const char *field, const char *text,
                                   struct sockaddr_storage *ret, struct berth_error *err)
{
    if (!parse(text, ret) || !is_loopback(ret))
        return berth_fail_field(err, field, "%s", LOOPBACK_RULE);
    return BERTH_OK;
}

enum berth_code svc_check_listen(const char *field, const char *text, bool beyond,
                                 struct berth_error *err)
{
    struct sockaddr_storage address;

    if (strncmp(text, "unix:/", 6) == 0) {
        if (strlen(text + 5) >= sizeof((struct sockaddr_un *)0)->sun_path)
            return berth_fail_field(err, field, "the socket's path is too long");
        return BERTH_OK;
    }
    if (!parse(text, &address) || (!beyond && !is_loopback(&address)))
        return berth_fail_field(err, field, "%s", beyond ? TLS_RULE : LISTEN_RULE);
    return BERTH_OK;
}

bool svc_is_unix(const char *address)
{
    return strncmp(address, "unix:", 5) == 0;
}

bool svc_is_on_this_machine(const char *address)
{
    struct sockaddr_storage parsed;

    return svc_is_unix(address) || strncmp(address, "localhost:", 10) == 0 ||
           (parse(address, &parsed) && is_loopback(&parsed));
}
