/* ring.h - what one stream of a command printed, as far as it is kept: the head (never dropped)
 * and the tail, in chunks that are events with a sequence number. Pure: no clock, no
 * descriptors. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RING_CHUNK_MAX = 256 << 10 };

struct ring_chunk {
    uint64_t seq;
    uint64_t start; /* bytes of this stream before it */
    uint32_t size, room;
    uint8_t data[];
};

/* A growing circular array of chunks, oldest first. */
struct ring_deque {
    struct ring_chunk **slots;
    size_t cap, first, n;
    size_t held; /* bytes, with what a chunk costs */
};

struct ring {
    struct ring_deque head, tail;
    uint64_t total;      /* bytes printed, kept or not */
    uint64_t kept_end;   /* bytes before the end of the newest chunk */
    uint64_t head_bytes; /* the head takes bytes up to this one; 0: no head */
    uint64_t shared_seq; /* chunks up to this one were handed out: they do not grow any more */
    size_t join_max;     /* writes are joined into chunks of this size; 0: never */
};

/* Bytes of memory in use. */
size_t ring_held(const struct ring *ring);

/**
 * ring_append() - take what was printed
 * @data, @size: 1..RING_CHUNK_MAX bytes; copied
 * @next_seq:    number for a new chunk; raised by one if one was made
 * @may_join:    the newest chunk of the whole command is this ring's: small writes are joined
 *
 * False without memory: the bytes count as printed and are not kept.
 */
bool ring_append(struct ring *ring, const void *data, size_t size, uint64_t *next_seq,
                 bool may_join);
/* Count size bytes as printed without keeping them. */
void ring_skip(struct ring *ring, size_t size);

/* Drop the oldest chunks of the tail until at most max bytes of memory are in use, but none
 * with a number of keep_seq or more, and never the newest. */
void ring_shrink(struct ring *ring, size_t max, uint64_t keep_seq);

/* Drop the oldest chunks of the tail as long as size bytes remain in it. */
void ring_keep_tail(struct ring *ring, uint64_t size);

/* The oldest kept chunk with a number of seq or more; NULL: none. Borrowed until it is dropped
 * or grows: say ring_share() before handing it out. */
struct ring_chunk *ring_find(const struct ring *ring, uint64_t seq);
void ring_share(struct ring *ring, const struct ring_chunk *chunk);
/* The newest kept chunk with a number of at most seq; NULL: none. */
const struct ring_chunk *ring_before(const struct ring *ring, uint64_t seq);

/* Drop every chunk; the counts stay. */
void ring_clear(struct ring *ring);
