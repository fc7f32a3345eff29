#include "common/loop/timers.h"

#include <assert.h>

enum { HEAP_MIN = 16 };

static bool earlier(const struct berth_timer *a, const struct berth_timer *b)
{
    if (a->tick_ms != b->tick_ms)
        return a->tick_ms < b->tick_ms;
    return a->sequence < b->sequence;
}

static void place(struct berth_timers *timers, size_t index, struct berth_timer *timer)
{
    timers->heap[index] = timer;
    timer->index = index;
}

static void move_up(struct berth_timers *timers, size_t index)
{
    struct berth_timer *timer = timers->heap[index];

    while (index > 0) {
        size_t parent = (index - 1) / 2;

        if (!earlier(timer, timers->heap[parent]))
            break;
        place(timers, index, timers->heap[parent]);
        index = parent;
    }
    place(timers, index, timer);
}

static void move_down(struct berth_timers *timers, size_t index)
{
    struct berth_timer *timer = timers->heap[index];

    for (;;) {
        size_t child = 2 * index + 1;

        if (child >= timers->n_heap)
            break;
        if (child + 1 < timers->n_heap && earlier(timers->heap[child + 1], timers->heap[child]))
            child++;
        if (!earlier(timers->heap[child], timer))
            break;
        place(timers, index, timers->heap[child]);
        index = child;
    }
    place(timers, index, timer);
}

void berth_timers_deinit(struct berth_timers *timers)
{
    for (size_t i = 0; i < timers->n_heap; i++)
        free(timers->heap[i]);
    free(timers->heap);
}

struct berth_timer *berth_timers_add(struct berth_timers *timers, int64_t tick_ms,
                                     berth_loop_fn fn, void *arg)
{
    struct berth_timer *timer = malloc(sizeof *timer);

    if (!timer)
        return NULL;
    if (timers->n_heap == timers->heap_size) {
        size_t size = timers->heap_size ? 2 * timers->heap_size : HEAP_MIN;
        struct berth_timer **heap = realloc(timers->heap, size * sizeof(struct berth_timer *));

        if (!heap) {
            free(timer);
            return NULL;
        }
        timers->heap = heap;
        timers->heap_size = size;
    }
    *timer = (struct berth_timer){
        .tick_ms = tick_ms,
        .sequence = timers->next_sequence++,
        .timers = timers,
        .fn = fn,
        .arg = arg,
    };
    place(timers, timers->n_heap++, timer);
    move_up(timers, timer->index);
    return timer;
}

void berth_timers_remove(struct berth_timer *timer)
{
    struct berth_timers *timers = timer->timers;
    size_t index = timer->index;
    struct berth_timer *last = timers->heap[--timers->n_heap];

    assert(timers->heap[index] == timer || last == timer);
    if (last != timer) {
        place(timers, index, last);
        move_up(timers, index);
        move_down(timers, last->index);
    }
    free(timer);
}

int64_t berth_timers_wait_ms(const struct berth_timers *timers, int64_t tick_ms)
{
    if (timers->n_heap == 0)
        return -1;
    if (timers->heap[0]->tick_ms <= tick_ms)
        return 0;
    return timers->heap[0]->tick_ms - tick_ms;
}

void berth_timers_fire(struct berth_timers *timers, int64_t tick_ms)
{
    uint64_t end = timers->next_sequence;

    while (timers->n_heap > 0 && timers->heap[0]->tick_ms <= tick_ms &&
           timers->heap[0]->sequence < end) {
        struct berth_timer *timer = timers->heap[0];
        berth_loop_fn fn = timer->fn;
        void *arg = timer->arg;

        berth_timers_remove(timer);
        fn(arg);
    }
}
