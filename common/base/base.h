/* base.h - the few language helpers every file may use. */
#pragma once

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BERTH_MUST_CHECK __attribute__((warn_unused_result))
#define BERTH_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define BERTH_SENTINEL __attribute__((sentinel))
#define BERTH_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* BERTH_AUTO(free_fn) variable: run free_fn when the variable leaves scope. Always
 * initialise the variable on the line that declares it. */
#define BERTH_AUTO(free_fn) __attribute__((cleanup(free_fn##p)))

/* Write once, in the header that declares free_fn. */
#define BERTH_DEFINE_AUTO(type, free_fn)                                                       \
    static inline void free_fn##p(type *slot)                                                  \
    {                                                                                          \
        if (*slot)                                                                             \
            free_fn(*slot);                                                                    \
    }

/* Hand ownership over: yields the pointer and leaves NULL behind. */
#ifdef __cppcheck__ /* cannot parse a cast to __typeof__ */
#define BERTH_STEAL(ptr) berth_steal(&(ptr))
#else
#define BERTH_STEAL(ptr) ((__typeof__(ptr))berth_steal(&(ptr)))
#endif

static inline void *berth_steal(void *slot)
{
    void *taken, *none = NULL;

    memcpy(&taken, slot, sizeof taken);
    memcpy(slot, &none, sizeof none);
    return taken;
}

static inline void freep(void *slot)
{
    free(berth_steal(slot));
}

static inline void closep(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}
