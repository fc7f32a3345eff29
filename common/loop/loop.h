/* loop.h - one thread, one epoll: file descriptors, timers, and work posted by other threads.
 * Everything that is watched, timed or posted runs as on one thread, the loop's, one callback
 * at a time; only posting and berth_loop_quit() may come from elsewhere. While that thread
 * sleeps another one may take its turn (berth_loop_run_entry()): "on the loop thread" means on
 * the one whose turn it is. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/errors/errors.h"

struct berth_loop;
struct berth_watch; /* a watched descriptor; owned by the loop until berth_loop_unwatch() */
struct berth_timer; /* a pending timer; owned by the loop until it has fired or is cancelled */

typedef void (*berth_loop_fn)(void *arg);
/* events: EPOLLIN, EPOLLOUT, EPOLLHUP, EPOLLERR as seen. */
typedef void (*berth_watch_fn)(void *arg, uint32_t events);

BERTH_MUST_CHECK enum berth_code berth_loop_new(struct berth_loop **ret,
                                                struct berth_error *err);
/* Stops and joins the thread if it runs. Work still queued is dropped. NULL is fine. */
struct berth_loop *berth_loop_free(struct berth_loop *loop);
BERTH_DEFINE_AUTO(struct berth_loop *, berth_loop_free)

/* Start the loop's thread. Name: at most 15 characters, seen in ps. */
BERTH_MUST_CHECK enum berth_code berth_loop_start(struct berth_loop *loop, const char *name,
                                                  struct berth_error *err);
/* Returns when the thread has ended; work posted before is run first. Not from the loop. */
void berth_loop_stop(struct berth_loop *loop);
/* Instead of start and stop, for a process without threads: run on the calling thread until
 * berth_loop_quit(), which may be called from callbacks and from other threads. */
void berth_loop_run(struct berth_loop *loop);
void berth_loop_quit(struct berth_loop *loop);
/* True on the thread whose turn it is. */
bool berth_loop_is_current(const struct berth_loop *loop);

/* Run fn(arg) on the loop, soon, in order of posting per thread. From any thread. It cannot be
 * refused: the process aborts where there is not even memory for the queue entry. */
void berth_loop_post(struct berth_loop *loop, berth_loop_fn fn, void *arg);

/* The same without allocating: the entry belongs to the caller and is in use until fn has been
 * called (fn may free it). One entry is never posted twice at once. */
struct berth_post {
    struct berth_post *next;
    berth_loop_fn fn;
    void *arg;
};
void berth_loop_post_entry(struct berth_loop *loop, struct berth_post *entry, berth_loop_fn fn,
                           void *arg);

/* As berth_loop_post_entry(); where the loop sleeps, it is not woken for that: this thread
 * takes its turn, and runs what is posted, before this returns. To wake a thread costs more
 * than a small callback. Not with a lock held that a callback might want. */
void berth_loop_run_entry(struct berth_loop *loop, struct berth_post *entry, berth_loop_fn fn,
                          void *arg);

/* On the loop thread only. events as for epoll_ctl (level-triggered). fd stays the caller's. */
BERTH_MUST_CHECK enum berth_code berth_loop_watch(struct berth_loop *loop, int fd,
                                                  uint32_t events, berth_watch_fn fn, void *arg,
                                                  struct berth_watch **ret,
                                                  struct berth_error *err);
void berth_watch_set(struct berth_watch *watch, uint32_t events);
/* No callback comes after this returned. Call before closing the fd. NULL is fine. */
struct berth_watch *berth_loop_unwatch(struct berth_watch *watch);

/* On the loop thread only. Fires once, after_ms (>= 0) milliseconds from now; the handle is
 * void once fn has been called. NULL when out of memory. */
struct berth_timer *berth_loop_timer(struct berth_loop *loop, int64_t after_ms,
                                     berth_loop_fn fn, void *arg);
struct berth_timer *berth_timer_cancel(struct berth_timer *timer);
