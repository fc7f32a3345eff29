/* utf8.h - one step of reading UTF-8, for everything that has to judge or repair text. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Length (1..4) of the well-formed sequence at text, with its code point in *ret_point; 0 when
 * the bytes there (left of them, at least 1) are not one: cut short, overlong, a surrogate, or
 * beyond U+10FFFF. NUL is an ordinary character here. */
static inline size_t berth_utf8_step(const void *text, size_t left, uint32_t *ret_point)
{
    const uint8_t *s = text;
    uint32_t point, least;
    size_t len;

    if (s[0] < 0x80) {
        *ret_point = s[0];
        return 1;
    }
    if (s[0] >= 0xC2 && s[0] < 0xE0) {
        len = 2, point = s[0] & 0x1Fu, least = 0x80;
    } else if (s[0] >= 0xE0 && s[0] < 0xF0) {
        len = 3, point = s[0] & 0x0Fu, least = 0x800;
    } else if (s[0] >= 0xF0 && s[0] < 0xF5) {
        len = 4, point = s[0] & 0x07u, least = 0x10000;
    } else {
        return 0;
    }
    if (left < len)
        return 0;
    for (size_t i = 1; i < len; i++) {
        if ((s[i] & 0xC0) != 0x80)
            return 0;
        point = point << 6 | (s[i] & 0x3Fu);
    }
    if (point < least || point > 0x10FFFF || (point >= 0xD800 && point < 0xE000))
        return 0;
    *ret_point = point;
    return len;
}
