#include "services/adapter-local/spawner/ring.h"

#include <stdlib.h>
#include <string.h>

enum { DEQUE_MIN = 8 };

static size_t chunk_cost(const struct ring_chunk *chunk)
{
    /* The slot and malloc's own header count, too. */
    return sizeof *chunk + chunk->room + 4 * sizeof(void *);
}

static struct ring_chunk *at(const struct ring_deque *deque, size_t i)
{
    return deque->slots[(deque->first + i) % deque->cap];
}

static bool push(struct ring_deque *deque, struct ring_chunk *chunk)
{
    if (deque->n == deque->cap) {
        size_t cap = deque->cap ? 2 * deque->cap : DEQUE_MIN;
        struct ring_chunk **slots = malloc(cap * sizeof *slots);

        if (!slots)
            return false;
        for (size_t i = 0; i < deque->n; i++)
            slots[i] = at(deque, i);
        free(deque->slots);
        deque->slots = slots;
        deque->cap = cap;
        deque->first = 0;
    }
    deque->slots[(deque->first + deque->n) % deque->cap] = chunk;
    deque->n++;
    deque->held += chunk_cost(chunk);
    return true;
}

static void drop_oldest(struct ring_deque *deque)
{
    struct ring_chunk *chunk = at(deque, 0);

    deque->held -= chunk_cost(chunk);
    deque->first = (deque->first + 1) % deque->cap;
    deque->n--;
    free(chunk);
}

static struct ring_chunk *newest(const struct ring_deque *deque)
{
    return deque->n > 0 ? at(deque, deque->n - 1) : NULL;
}

size_t ring_held(const struct ring *ring)
{
    return ring->head.held + ring->tail.held;
}

static bool joined(struct ring *ring, struct ring_deque *deque, const void *data, size_t size)
{
    struct ring_chunk *chunk = newest(deque);
    size_t room;

    if (!chunk || chunk->seq <= ring->shared_seq || chunk->start + chunk->size != ring->total ||
        chunk->size + size > ring->join_max)
        return false;
    if (chunk->size + size > chunk->room) {
        struct ring_chunk *bigger;

        room = 2 * (chunk->size + size);
        if (room > ring->join_max)
            room = ring->join_max;
        bigger = realloc(chunk, sizeof *chunk + room);
        if (!bigger)
            return false;
        deque->held += room - bigger->room;
        bigger->room = (uint32_t)room;
        chunk = bigger;
        deque->slots[(deque->first + deque->n - 1) % deque->cap] = chunk;
    }
    memcpy(chunk->data + chunk->size, data, size);
    chunk->size += (uint32_t)size;
    ring_skip(ring, size);
    ring->kept_end = ring->total;
    return true;
}

bool ring_append(struct ring *ring, const void *data, size_t size, uint64_t *next_seq,
                 bool may_join)
{
    bool to_head = ring->total < ring->head_bytes;
    struct ring_deque *deque = to_head ? &ring->head : &ring->tail;
    struct ring_chunk *chunk;

    if (to_head && ring->total + size > ring->head_bytes) {
        /* The border between head and tail lies in the middle of this write. */
        size_t part = (size_t)(ring->head_bytes - ring->total);
        bool kept = ring_append(ring, data, part, next_seq, may_join);

        return ring_append(ring, (const uint8_t *)data + part, size - part, next_seq, false) &&
               kept;
    }
    if (may_join && joined(ring, deque, data, size))
        return true;
    chunk = malloc(sizeof *chunk + size);
    if (!chunk) {
        ring_skip(ring, size);
        return false;
    }
    *chunk = (struct ring_chunk){
        .seq = *next_seq, .start = ring->total, .size = (uint32_t)size, .room = (uint32_t)size};
    memcpy(chunk->data, data, size);
    ring_skip(ring, size);
    if (!push(deque, chunk)) {
        free(chunk);
        return false;
    }
    ring->kept_end = ring->total;
    ++*next_seq;
    return true;
}

void ring_skip(struct ring *ring, size_t size)
{
    ring->total += size;
}

void ring_shrink(struct ring *ring, size_t max, uint64_t keep_seq)
{
    while (ring->tail.n > 1 && ring_held(ring) > max && at(&ring->tail, 0)->seq < keep_seq)
        drop_oldest(&ring->tail);
}

void ring_keep_tail(struct ring *ring, uint64_t size)
{
    while (ring->tail.n > 0) {
        const struct ring_chunk *oldest = at(&ring->tail, 0);

        if (ring->kept_end - oldest->start - oldest->size < size)
            break;
        drop_oldest(&ring->tail);
    }
}

/* Number of chunks below seq. */
static size_t count_below(const struct ring_deque *deque, uint64_t seq)
{
    size_t low = 0, high = deque->n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (at(deque, middle)->seq < seq)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct ring_chunk *ring_find(const struct ring *ring, uint64_t seq)
{
    size_t i = count_below(&ring->head, seq);

    if (i < ring->head.n)
        return at(&ring->head, i);
    i = count_below(&ring->tail, seq);
    return i < ring->tail.n ? at(&ring->tail, i) : NULL;
}

const struct ring_chunk *ring_before(const struct ring *ring, uint64_t seq)
{
    size_t i;

    if (seq == UINT64_MAX)
        seq--;
    i = count_below(&ring->tail, seq + 1);
    if (i > 0)
        return at(&ring->tail, i - 1);
    i = count_below(&ring->head, seq + 1);
    return i > 0 ? at(&ring->head, i - 1) : NULL;
}

void ring_share(struct ring *ring, const struct ring_chunk *chunk)
{
    if (chunk->seq > ring->shared_seq)
        ring->shared_seq = chunk->seq;
}

static void clear(struct ring_deque *deque)
{
    while (deque->n > 0)
        drop_oldest(deque);
    free(deque->slots);
    *deque = (struct ring_deque){0};
}

void ring_clear(struct ring *ring)
{
    clear(&ring->head);
    clear(&ring->tail);
}
