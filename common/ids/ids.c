#include "common/ids/ids.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

void berth_random(void *buf, size_t size)
{
    uint8_t *at = buf;

    while (size > 0) {
        ssize_t got = getrandom(at, size, 0);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            abort();
        at += got;
        size -= (size_t)got;
    }
}

char *berth_id_base36(char *buf, size_t n_chars)
{
    static const char digits[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    enum {
        FAIR = 252
    }; /* the largest multiple of 36 in a byte: what is above is thrown away */
    uint8_t pool[64];
    size_t used = sizeof pool, n = 0;

    while (n < n_chars) {
        if (used == sizeof pool) {
            berth_random(pool, sizeof pool);
            used = 0;
        }
        if (pool[used] < FAIR)
            buf[n++] = digits[pool[used] % 36];
        used++;
    }
    buf[n] = 0;
    return buf;
}

char *berth_id_hex(char *buf, size_t n_bytes)
{
    /* The bytes go into the upper half of buf; each pair of digits is written at or below it.
     */
    berth_random(buf + n_bytes, n_bytes);
    return berth_hex(buf, buf + n_bytes, n_bytes);
}

char *berth_hex(char *buf, const void *data, size_t size)
{
    static const char digits[] = "0123456789abcdef";
    const uint8_t *bytes = data;

    for (size_t i = 0; i < size; i++) {
        uint8_t byte = bytes[i];

        buf[2 * i] = digits[byte >> 4];
        buf[2 * i + 1] = digits[byte & 15];
    }
    buf[2 * size] = 0;
    return buf;
}
