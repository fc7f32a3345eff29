#include "common/svc/address.h"

#include <arpa/inet.h>
#include <stdbool.h>
#include <sys/un.h>

enum { HOST_MAX = 64 };

static const char RULE[] = "must be a loopback address with a port (127.0.0.1:7400, "
                           "[::1]:7400) or unix:/path: without "
                           "TLS and tokens nothing else may be listened on";

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

enum berth_code svc_parse_loopback(const char *field, const char *text,
                                   struct sockaddr_storage *ret, struct berth_error *err)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    char host[HOST_MAX];
    const char *port;
    in_port_t number;

    memset(ret, 0, sizeof *ret);
    if (split(text, host, &port) && read_port(port, &number)) {
        v4.sin_port = v6.sin6_port = number;
        if (*text != '[' && inet_pton(AF_INET, host, &v4.sin_addr) == 1 &&
            ntohl(v4.sin_addr.s_addr) >> 24 == 127) {
            memcpy(ret, &v4, sizeof v4);
            return BERTH_OK;
        }
        if (*text == '[' && inet_pton(AF_INET6, host, &v6.sin6_addr) == 1 &&
            IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr)) {
            memcpy(ret, &v6, sizeof v6);
            return BERTH_OK;
        }
    }
    return berth_fail_field(err, field, "%s", RULE);
}

enum berth_code svc_check_listen(const char *field, const char *text, struct berth_error *err)
{
    struct sockaddr_storage ignored;

    if (strncmp(text, "unix:/", 6) != 0)
        return svc_parse_loopback(field, text, &ignored, err);
    if (strlen(text + 5) >= sizeof((struct sockaddr_un *)0)->sun_path)
        return berth_fail_field(err, field, "the socket's path is too long");
    return BERTH_OK;
}
