#include "services/adapter/collect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/base.h"
#include "common/fields/fields.h"

enum { ROOM_MIN = 4096, UTF8_MAX = 4, MARK_SIZE = 64 };

void collect_init(struct collect *collect, size_t max)
{
    *collect = (struct collect){.max = max};
}

void collect_deinit(struct collect *collect)
{
    free(collect->head);
    free(collect->tail);
    *collect = (struct collect){0};
}

static bool make_room(uint8_t **buf, size_t *room, size_t wanted, size_t limit)
{
    size_t size = *room ? *room : ROOM_MIN;
    uint8_t *bigger;

    if (wanted <= *room)
        return true;
    while (size < wanted)
        size *= 2;
    if (size > limit)
        size = limit;
    bigger = realloc(*buf, size);
    if (!bigger)
        return false;
    *buf = bigger;
    *room = size;
    return true;
}

/* data: not empty. */
static bool add_tail(struct collect *collect, const uint8_t *data, size_t size)
{
    size_t limit = collect->max - collect->max / 2, n;

    if (size > limit) {
        data += size - limit;
        size = limit;
        collect->gap = true;
    }
    /* Linear while it grows, circular when it is full. */
    n = limit - collect->tail_size < size ? limit - collect->tail_size : size;
    if (n > 0) {
        if (!make_room(&collect->tail, &collect->tail_room, collect->tail_size + n, limit))
            return false;
        memcpy(collect->tail + collect->tail_size, data, n);
        collect->tail_size += n;
    }
    for (data += n, size -= n; size > 0; data += n, size -= n) {
        n = limit - collect->tail_at < size ? limit - collect->tail_at : size;
        memcpy(collect->tail + collect->tail_at, data, n);
        collect->tail_at = (collect->tail_at + n) % limit;
        collect->gap = true;
    }
    return true;
}

bool collect_add(struct collect *collect, const void *data, size_t size)
{
    size_t limit = collect->max / 2, n = 0;

    collect->total += size;
    if (!collect->gap && collect->head_size < limit) {
        n = limit - collect->head_size < size ? limit - collect->head_size : size;
        if (!make_room(&collect->head, &collect->head_room, collect->head_size + n, limit)) {
            collect->gap = true;
            return false;
        }
        memcpy(collect->head + collect->head_size, data, n);
        collect->head_size += n;
    }
    if (n == size)
        return true;
    if (!add_tail(collect, (const uint8_t *)data + n, size - n)) {
        collect->gap = true;
        return false;
    }
    return true;
}

void collect_gap(struct collect *collect, uint64_t dropped)
{
    collect->total += dropped;
    collect->gap = true;
    /* What came before it in the tail lies before the gap: the head has it, or it is missing,
     * too. */
    if (collect->tail_size > 0 && dropped > 0)
        collect->tail_size = collect->tail_at = 0;
}

static bool continues(uint8_t byte)
{
    return (byte & 0xC0) == 0x80;
}

/* Size without a character that is cut at the end. */
static size_t cut_end(const uint8_t *data, size_t size)
{
    size_t start = size;

    while (start > 0 && size - start < UTF8_MAX - 1 && continues(data[start - 1]))
        start--;
    if (start == 0)
        return size;
    start--; /* the first byte of the last character */
    if ((data[start] >= 0xF0 && size - start < 4) ||
        (data[start] >= 0xE0 && size - start < 3) || (data[start] >= 0xC0 && size - start < 2))
        return start;
    return size;
}

/* Bytes of a character that began before data. */
static size_t cut_begin(const uint8_t *data, size_t size)
{
    size_t n = 0;

    while (n < size && n < UTF8_MAX - 1 && continues(data[n]))
        n++;
    return n;
}

static void copy_tail(const struct collect *collect, size_t skip, uint8_t *to)
{
    size_t size = collect->tail_size, first = size - collect->tail_at;

    /* In order of printing: from tail_at to the end, then from the beginning. */
    if (skip < first) {
        memcpy(to, collect->tail + collect->tail_at + skip, first - skip);
        memcpy(to + first - skip, collect->tail, collect->tail_at);
    } else {
        memcpy(to, collect->tail + (skip - first), size - skip);
    }
}

uint8_t *collect_take(const struct collect *collect, size_t max, size_t *ret_size,
                      size_t *ret_gap_at, uint64_t *ret_missing)
{
    size_t head = collect->head_size, tail = collect->tail_size, skip;
    uint8_t *block = malloc(head + tail + 1);

    if (!block)
        return NULL;
    if (head > 0)
        memcpy(block, collect->head, head);
    if (tail > 0)
        copy_tail(collect, 0, block + head);
    if (!collect->gap && head + tail <= max) {
        *ret_size = *ret_gap_at = head + tail;
        *ret_missing = 0;
        block[head + tail] = 0;
        return block;
    }
    if (!collect->gap) {
        /* One piece that is too long: its own two ends. */
        tail = head + tail;
        head = max / 2;
        memmove(block + head, block + tail - (max - head), max - head);
        tail = max - head;
    } else if (head + tail > max) {
        size_t keep_head = head < max / 2 ? head : max / 2, keep_tail = max - keep_head;

        if (keep_tail > tail)
            keep_tail = tail;
        memmove(block + keep_head, block + head + tail - keep_tail, keep_tail);
        head = keep_head;
        tail = keep_tail;
    }
    skip = cut_begin(block + head, tail);
    *ret_gap_at = cut_end(block, head);
    memmove(block + *ret_gap_at, block + head + skip, tail - skip);
    *ret_size = *ret_gap_at + tail - skip;
    *ret_missing = collect->total - *ret_size;
    block[*ret_size] = 0;
    return block;
}

/* At most max bytes from one end of text, at the border of a character. */
static size_t fit_begin(const char *text, size_t len, size_t max)
{
    return len <= max ? len : cut_end((const uint8_t *)text, max);
}

static size_t fit_end(const char *text, size_t len, size_t max)
{
    size_t from = len - max;

    return len <= max ? len : max - cut_begin((const uint8_t *)text + from, max);
}

char *collect_text(const uint8_t *block, size_t size, size_t gap_at, uint64_t missing,
                   size_t max)
{
    BERTH_AUTO(free) char *head = berth_utf8_lossy(block, gap_at);
    BERTH_AUTO(free) char *tail = berth_utf8_lossy(block + gap_at, size - gap_at);
    size_t head_len, tail_len, room, all;
    char mark[MARK_SIZE] = "", *text;

    if (!head || !tail)
        return NULL;
    head_len = strlen(head);
    tail_len = strlen(tail);
    all = head_len + tail_len;
    room = max - MARK_SIZE;
    if (all > room) {
        head_len = fit_begin(head, head_len, room / 2);
        if (missing == 0) { /* one piece so far; take its end from there */
            free(tail);
            tail = strdup(head);
            if (!tail)
                return NULL;
            tail_len = strlen(tail);
        }
        tail_len = fit_end(tail, tail_len, room - head_len);
        missing += missing == 0 || all > head_len + tail_len ? all - head_len - tail_len : 0;
    }
    if (missing > 0)
        snprintf(mark, sizeof mark, "\n[... %llu bytes left out ...]\n",
                 (unsigned long long)missing);
    text = malloc(head_len + strlen(mark) + tail_len + 1);
    if (!text)
        return NULL;
    memcpy(text, head, head_len);
    memcpy(text + head_len, mark, strlen(mark));
    memcpy(text + head_len + strlen(mark), tail + strlen(tail) - tail_len, tail_len);
    text[head_len + strlen(mark) + tail_len] = 0;
    return text;
}
