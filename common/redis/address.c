/* address.c - the url of the store, and the slot of a key. */
#include <stdio.h>

#include "common/redis/internal.h"

static const char UNIX_PREFIX[] = "unix:", TCP_PREFIX[] = "redis://",
                  ASK_PREFIX[] = "sentinel:";
enum { DB_MAX = 65535, SLOTS = 16384 };

static enum berth_code refuse(struct berth_error *err, const char *why)
{
    return berth_fail(err, BERTH_REASON_FIELD_INVALID,
                      "redis url: %s; wanted redis://host[:port][/db], unix:/path[?db=n] or "
                      "sentinel:name@host[:port],...[/db]",
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

static void set_shown(struct redis_address *address)
{
    snprintf(address->shown, sizeof address->shown, "%s:%s", address->host, address->port);
}

/* host[:port] up to a comma, a slash or the end; *ret_end is what stands there. */
static enum berth_code parse_host(const char *rest, unsigned port, struct redis_address *ret,
                                  const char **ret_end, struct berth_error *err)
{
    const char *end, *host = rest;
    size_t len;
    char text[8];

    if (*rest == '[') {
        host = rest + 1;
        end = strchr(host, ']');
        if (!end)
            return refuse(err, "no ']' behind the address");
        len = (size_t)(end++ - host);
    } else {
        len = strcspn(host, ":/?#,@");
        end = host + len;
    }
    if (len == 0 || len >= sizeof ret->host)
        return refuse(err, "no host, or one that is too long");
    memcpy(ret->host, host, len);
    if (*end == ':') {
        size_t digits = strcspn(++end, "/,");

        if (digits >= sizeof text)
            return refuse(err, "the port must be 1..65535");
        memcpy(text, end, digits);
        text[digits] = 0;
        if (!read_number(text, 65535, &port) || port == 0)
            return refuse(err, "the port must be 1..65535");
        end += digits;
    }
    snprintf(ret->port, sizeof ret->port, "%u", port % 65536);
    set_shown(ret);
    *ret_end = end;
    return BERTH_OK;
}

static enum berth_code parse_db(const char *end, unsigned *ret, struct berth_error *err)
{
    if (*end && *end != '/')
        return refuse(err, "something else stands behind the host");
    if (*end && end[1] && !read_number(end + 1, DB_MAX, ret))
        return refuse(err, "the database must be 0..65535");
    return BERTH_OK;
}

static enum berth_code parse_tcp(const char *rest, struct redis_address *ret,
                                 struct berth_error *err)
{
    const char *end;
    enum berth_code code;

    if (strchr(rest, '@'))
        return refuse(err, "user and password are settings of their own");
    code = parse_host(rest, 6379, ret, &end, err);
    return code ? code : parse_db(end, &ret->db, err);
}

/* name@host[:port],host[:port]/db */
static enum berth_code parse_sentinels(const char *rest, struct redis_source *ret,
                                       struct berth_error *err)
{
    const char *at = strchr(rest, '@'), *end = at;
    size_t len = at ? (size_t)(at - rest) : 0;
    enum berth_code code = BERTH_OK;
    unsigned db = 0;

    if (len == 0 || len >= sizeof ret->master || memchr(rest, '/', len))
        return refuse(err, "the Sentinels' name of the master must stand before an '@'");
    memcpy(ret->master, rest, len);
    do {
        if (ret->n == REDIS_SENTINELS_MAX)
            return refuse(err, "more than eight Sentinels");
        code = parse_host(end + 1, 26379, &ret->at[ret->n++], &end, err);
    } while (!code && *end == ',');
    if (!code)
        code = parse_db(end, &db, err);
    for (size_t i = 0; i < ret->n; i++)
        ret->at[i].db = db; /* of the master that it names */
    return code;
}

bool redis_set_address(struct redis_address *ret, const char *host, const char *port,
                       unsigned db)
{
    unsigned number = 0;

    *ret = (struct redis_address){.db = db};
    if (!*host || strlen(host) >= sizeof ret->host || !read_number(port, 65535, &number) ||
        number == 0)
        return false;
    memcpy(ret->host, host, strlen(host));
    snprintf(ret->port, sizeof ret->port, "%u", number % 65536);
    set_shown(ret);
    return true;
}

enum berth_code redis_parse_url(const char *url, struct redis_source *ret,
                                struct berth_error *err)
{
    struct redis_source source = {.n = 0};
    enum berth_code code;

    if (!url)
        return refuse(err, "none given");
    if (strncmp(url, ASK_PREFIX, strlen(ASK_PREFIX)) == 0) {
        code = parse_sentinels(url + strlen(ASK_PREFIX), &source, err);
    } else {
        source.n = 1;
        if (strncmp(url, UNIX_PREFIX, strlen(UNIX_PREFIX)) == 0)
            code = parse_unix(url + strlen(UNIX_PREFIX), &source.at[0], err);
        else if (strncmp(url, TCP_PREFIX, strlen(TCP_PREFIX)) == 0)
            code = parse_tcp(url + strlen(TCP_PREFIX), &source.at[0], err);
        else
            code = refuse(err, "unknown scheme");
    }
    if (!code)
        *ret = source;
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
