/* timers.h - the pending timers of one loop: a binary heap by time, first in first out within
 * one millisecond. Not for users of the loop. */
#pragma once

#include "common/loop/loop.h"

struct berth_timer {
    int64_t tick_ms;   /* when it fires */
    uint64_t sequence; /* order among equals */
    size_t index;      /* place in the heap */
    struct berth_timers *timers;
    berth_loop_fn fn;
    void *arg;
};

struct berth_timers {
    struct berth_timer **heap;
    size_t n_heap, heap_size;
    uint64_t next_sequence;
};

void berth_timers_deinit(struct berth_timers *timers);
/* NULL: out of memory. */
struct berth_timer *berth_timers_add(struct berth_timers *timers, int64_t tick_ms,
                                     berth_loop_fn fn, void *arg);
void berth_timers_remove(struct berth_timer *timer);
/* Milliseconds to the first timer, 0 when it is due, -1 when there is none. */
int64_t berth_timers_wait_ms(const struct berth_timers *timers, int64_t tick_ms);
/* Fire what is due at tick_ms. Timers added meanwhile wait for the next call. */
void berth_timers_fire(struct berth_timers *timers, int64_t tick_ms);
