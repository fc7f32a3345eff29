#include "services/skills/bundle/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/base.h"
#include "common/base/utf8.h"

enum { SHOWN_MAX = 12 }; /* bytes that one character becomes, at most: \u{10ffff} */

size_t text_len(const char *text, size_t size)
{
    size_t len = 0;

    for (size_t at = 0; at < size; len++) {
        uint32_t point;
        size_t step = berth_utf8_step(text + at, size - at, &point);

        at += step ? step : 1;
    }
    return len;
}

size_t text_bad_byte(const char *text, size_t size)
{
    size_t at = 0;

    while (at < size) {
        uint32_t point;
        size_t step = berth_utf8_step(text + at, size - at, &point);

        if (step == 0 || point == 0)
            return at;
        at += step;
    }
    return size;
}

bool text_is_hidden(uint32_t point)
{
    static const struct {
        uint32_t from, to;
    } ranges[] = {
        {0x0, 0x8},         {0xb, 0x1f},        {0x7f, 0x9f},        {0xad, 0xad},
        {0x34f, 0x34f},     {0x61c, 0x61c},     {0x115f, 0x1160},    {0x17b4, 0x17b5},
        {0x180b, 0x180f},   {0x200b, 0x200f},   {0x2028, 0x202e},    {0x2060, 0x206f},
        {0x2800, 0x2800},   {0x3164, 0x3164},   {0xe000, 0xf8ff},    {0xfe00, 0xfe0d},
        {0xfeff, 0xfeff},   {0xffa0, 0xffa0},   {0xfff0, 0xfffb},    {0xfffe, 0xffff},
        {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0000, 0x10ffff},
    };

    for (size_t i = 0; i < BERTH_COUNT(ranges); i++)
        if (point >= ranges[i].from && point <= ranges[i].to)
            return true;
    return false;
}

static bool begins_tag(const char *text, size_t left)
{
    char next;

    if (left < 2 || *text != '<')
        return false;
    next = text[1];
    return next == '/' || next == '!' || next == '?' || (next >= 'a' && next <= 'z') ||
           (next >= 'A' && next <= 'Z');
}

bool text_has_hidden(const char *text, size_t size)
{
    for (size_t at = 0; at < size;) {
        uint32_t point;
        size_t step = berth_utf8_step(text + at, size - at, &point);

        if (step == 0 || text_is_hidden(point))
            return true;
        at += step;
    }
    return false;
}

bool text_is_suspicious(const char *text, size_t size)
{
    for (size_t at = 0; at < size; at++)
        if (begins_tag(text + at, size - at))
            return true;
    return text_has_hidden(text, size);
}

/* One character into buf; returns how many bytes. */
static size_t show_one(char *buf, const char *text, size_t step, uint32_t point,
                       bool many_lines)
{
    bool is_break = point == '\n' || point == '\t';

    if (step == 0)
        return (size_t)snprintf(buf, SHOWN_MAX, "\\x{%02x}", (unsigned char)*text);
    if (point == '<' || point == '>')
        return (size_t)snprintf(buf, SHOWN_MAX, "&%ct;", point == '<' ? 'l' : 'g');
    if (point == '&')
        return (size_t)snprintf(buf, SHOWN_MAX, "&amp;");
    if (text_is_hidden(point) || (is_break && !many_lines))
        return (size_t)snprintf(buf, SHOWN_MAX, "\\u{%x}", (unsigned)point);
    memcpy(buf, text, step);
    return step;
}

char *text_show(const char *text, size_t size, size_t max_len, bool many_lines)
{
    static const char more[] = "...";
    size_t len = text_len(text, size), used = 0;
    char *out;

    len = len < max_len ? len : max_len;
    out = malloc(len * SHOWN_MAX + sizeof more);
    if (!out)
        return NULL;
    for (size_t at = 0; at < size; len--) {
        uint32_t point = 0;
        size_t step = berth_utf8_step(text + at, size - at, &point);

        if (len == 0) {
            memcpy(out + used, more, sizeof more);
            return out;
        }
        used += show_one(out + used, text + at, step, point, many_lines);
        at += step ? step : 1;
    }
    out[used] = 0;
    return out;
}
