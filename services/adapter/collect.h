/* collect.h - head and tail of a stream within a limit, for Run. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct collect {
    size_t max;           /* bytes kept: half of it head, the rest tail */
    uint64_t total;       /* bytes printed, kept or not */
    bool gap;             /* something is missing between head and tail */
    uint8_t *head, *tail; /* owned; grow as needed */
    size_t head_size, head_room;
    size_t tail_size, tail_room, tail_at; /* the tail is circular when tail_size is its limit */
};

/* max: at least 2. */
void collect_init(struct collect *collect, size_t max);
void collect_deinit(struct collect *collect);
/* False: out of memory; the bytes count as missing. */
bool collect_add(struct collect *collect, const void *data, size_t size);
/* dropped bytes are missing here. */
void collect_gap(struct collect *collect, uint64_t dropped);

/* What was kept, as one owned block of *ret_size bytes (and a NUL behind). Where something is
 * missing both halves are cut at the border of a UTF-8 character; *ret_gap_at is where in the
 * block, *ret_missing how many bytes (0: none, *ret_gap_at is then *ret_size).
 * max: of the block, cuts further. NULL: out of memory. */
uint8_t *collect_take(const struct collect *collect, size_t max, size_t *ret_size,
                      size_t *ret_gap_at, uint64_t *ret_missing);

/* The block as text: bad bytes replaced, what is missing said in a line of its own. At most max
 * bytes (at least 256). Owned. NULL: out of memory. */
char *collect_text(const uint8_t *block, size_t size, size_t gap_at, uint64_t missing,
                   size_t max);
