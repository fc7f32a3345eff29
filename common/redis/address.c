/* address.c - the url of the store, and the slot of a key. */
#include <stdio.h>

#include "common/redis/internal.h"

static const char UNIX_PREFIX[] = "unix:", TCP_PREFIX[] = "redis://";
enum { DB_MAX = 65535, SLOTS = 16384 };

static enum berth_code refuse(struct berth_error *err, const char *why)
{
    return berth_fail(err, BERTH_REASON_FIELD_INVALID,
                      "redis url: %s; wanted redis://host[:port][/db] or unix:/path[?db=n]",
                      why);
}

/* All of text is a number of at most max; "" is not one. */
static bool read_number(const char *text, unsigned max, unsigned *ret)
{
    unsigned number = 0;

    if (!*text)
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return false;
        number = number * 10 + (unsigned)(*text - '0');
        if (number > max)
            return false;
    }
    *ret = number;
    return true;
}

static enum berth_code parse_unix(const char *path, struct redis_address *ret,
                                  struct berth_error *err)
{
    const char *query = strchr(path, '?');
    size_t len = query ? (size_t)(query - path) : strlen(path);

    if (*path != '/')
        return refuse(err, "the socket's path must be absolute");
    if (len >= sizeof ret->un.sun_path)
        return refuse(err, "the socket's path is too long");
    if (query && (strncmp(query, "?db=", 4) != 0 || !read_number(query + 4, DB_MAX, &ret->db)))
        return refuse(err, "only ?db=0..65535 may follow the path");
    ret->is_unix = true;
    ret->un.sun_family = AF_UNIX;
    memcpy(ret->un.sun_path, path, len);
    snprintf(ret->shown, sizeof ret->shown, "unix:%s", ret->un.sun_path);
    return BERTH_OK;
}

static enum berth_code parse_tcp(const char *rest, struct redis_address *ret,
                                 struct berth_error *err)
{
    const char *end, *host = rest;
    unsigned port = 6379;
    size_t len;
    char text[8];

    if (strchr(rest, '@'))
        return refuse(err, "user and password are settings of their own");
    if (*rest == '[') {
        host = rest + 1;
        end = strchr(host, ']');
        if (!end)
            return refuse(err, "no ']' behind the address");
        len = (size_t)(end++ - host);
    } else {
        len = strcspn(host, ":/?#");
        end = host + len;
    }
    if (len == 0 || len >= sizeof ret->host)
        return refuse(err, "no host, or one that is too long");
    memcpy(ret->host, host, len);
    if (*end == ':') {
        size_t digits = strcspn(++end, "/");

        if (digits >= sizeof text)
            return refuse(err, "the port must be 1..65535");
        memcpy(text, end, digits);
        text[digits] = 0;
        if (!read_number(text, 65535, &port) || port == 0)
            return refuse(err, "the port must be 1..65535");
        end += digits;
    }
    if (*end == '/' && end[1] && !read_number(end + 1, DB_MAX, &ret->db))
        return refuse(err, "the database must be 0..65535");
    if (*end && *end != '/')
        return refuse(err, "something else stands behind the host");
    snprintf(ret->port, sizeof ret->port, "%u", port % 65536);
    snprintf(ret->shown, sizeof ret->shown, "%s:%s", ret->host, ret->port);
    return BERTH_OK;
}

enum berth_code redis_parse_url(const char *url, struct redis_address *ret,
                                struct berth_error *err)
{
    struct redis_address address = {0};
    enum berth_code code;

    if (!url)
        return refuse(err, "none given");
    if (strncmp(url, UNIX_PREFIX, strlen(UNIX_PREFIX)) == 0)
        code = parse_unix(url + strlen(UNIX_PREFIX), &address, err);
    else if (strncmp(url, TCP_PREFIX, strlen(TCP_PREFIX)) == 0)
        code = parse_tcp(url + strlen(TCP_PREFIX), &address, err);
    else
        return refuse(err, "unknown scheme");
    if (!code)
        *ret = address;
    return code;
}

/* CRC16-CCITT (XMODEM), as the Redis Cluster specification wants it. */
static unsigned crc16(const char *bytes, size_t size)
{
    unsigned crc = 0;

    for (size_t i = 0; i < size; i++) {
        crc ^= (unsigned)(unsigned char)bytes[i] << 8;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1) & 0xFFFF;
    }
    return crc;
}

unsigned berth_redis_slot(const char *key)
{
    const char *open = strchr(key, '{');
    const char *close = open ? strchr(open, '}') : NULL;

    if (close && close > open + 1)
        return crc16(open + 1, (size_t)(close - open - 1)) % SLOTS;
    return crc16(key, strlen(key)) % SLOTS;
}
