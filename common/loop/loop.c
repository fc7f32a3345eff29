#include "common/loop/loop.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "common/loop/timers.h"
#include "common/time/time.h"

enum {
    EVENTS_MAX = 64,
    SLEEP_MAX_MS = 60000,
    ROUNDS_MAX = 8, /* of posts that posts make, on a thread that has other things to do */
};

struct berth_watch {
    struct berth_loop *loop;
    int fd;
    bool dead;
    berth_watch_fn fn;
    void *arg;
    struct berth_watch *next, **slot; /* in loop->watches or, dead, in loop->dead */
};

struct berth_loop {
    int epoll_fd, wake_fd;
    struct berth_timers timers;
    struct berth_watch *watches; /* alive */
    struct berth_watch *dead;    /* freed when the batch of events that may name them is over */

    pthread_t thread;
    bool started;
    atomic_bool quit;
    /* Held by whoever runs callbacks, and so guards all above and below but for posts; the
     * loop's thread lets go of it while it sleeps. */
    pthread_mutex_t turn;
    bool alive;                /* somebody will wake: the loop's thread is there */
    int64_t until_tick;        /* it sleeps no longer */
    _Atomic(pthread_t) runner; /* valid while running */
    atomic_bool running;

    pthread_mutex_t mutex; /* the two below */
    struct berth_post *first, **last;
};

struct owned_post { /* what berth_loop_post() allocates */
    struct berth_post entry;
    berth_loop_fn fn;
    void *arg;
};

static enum berth_code fail_errno(struct berth_error *err, const char *what)
{
    return berth_fail(err, berth_reason_from_errno(errno), "%s: %s", what, strerror(errno));
}

enum berth_code berth_loop_new(struct berth_loop **ret, struct berth_error *err)
{
    struct berth_loop *loop = calloc(1, sizeof *loop);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    enum berth_code code;

    if (!loop)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    pthread_mutex_init(&loop->mutex, NULL);
    pthread_mutex_init(&loop->turn, NULL);
    loop->last = &loop->first;
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    loop->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (loop->epoll_fd < 0 || loop->wake_fd < 0 ||
        epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, loop->wake_fd, &event) < 0) {
        code = fail_errno(err, "new loop");
        berth_loop_free(loop);
        return code;
    }
    *ret = loop;
    return BERTH_OK;
}

static void run_owned(void *arg)
{
    struct owned_post *post = arg;
    berth_loop_fn fn = post->fn;
    void *fn_arg = post->arg;

    free(post);
    fn(fn_arg);
}

static void free_dead(struct berth_loop *loop)
{
    while (loop->dead) {
        struct berth_watch *next = loop->dead->next;

        free(loop->dead);
        loop->dead = next;
    }
}

struct berth_loop *berth_loop_free(struct berth_loop *loop)
{
    if (!loop)
        return NULL;
    berth_loop_stop(loop);
    free_dead(loop);
    for (struct berth_post *entry = loop->first, *next; entry; entry = next) {
        next = entry->next;
        if (entry->fn == run_owned)
            free(entry->arg);
    }
    for (struct berth_watch *watch = loop->watches, *next; watch; watch = next) {
        next = watch->next;
        free(watch);
    }
    free_dead(loop); /* unwatched after the thread had ended */
    berth_timers_deinit(&loop->timers);
    closep(&loop->epoll_fd);
    closep(&loop->wake_fd);
    pthread_mutex_destroy(&loop->mutex);
    pthread_mutex_destroy(&loop->turn);
    free(loop);
    return NULL;
}

static void wake(struct berth_loop *loop)
{
    uint64_t one = 1;
    ssize_t n;

    do
        n = write(loop->wake_fd, &one, sizeof one);
    while (n < 0 && errno == EINTR); /* EAGAIN: the counter is full, the loop wakes anyway */
}

/* True: nobody else sees to it that posts are run. */
static bool link_post(struct berth_loop *loop, struct berth_post *entry, berth_loop_fn fn,
                      void *arg)
{
    bool was_empty;

    *entry = (struct berth_post){.fn = fn, .arg = arg};
    pthread_mutex_lock(&loop->mutex);
    was_empty = !loop->first;
    *loop->last = entry;
    loop->last = &entry->next;
    pthread_mutex_unlock(&loop->mutex);
    return was_empty && !berth_loop_is_current(loop);
}

void berth_loop_post_entry(struct berth_loop *loop, struct berth_post *entry, berth_loop_fn fn,
                           void *arg)
{
    if (link_post(loop, entry, fn, arg))
        wake(loop);
}

void berth_loop_post(struct berth_loop *loop, berth_loop_fn fn, void *arg)
{
    struct owned_post *post = malloc(sizeof *post);

    if (!post) {
        fputs("berth_loop_post: out of memory\n", stderr);
        abort();
    }
    *post = (struct owned_post){.fn = fn, .arg = arg};
    berth_loop_post_entry(loop, &post->entry, run_owned, post);
}

static bool run_posts(struct berth_loop *loop)
{
    struct berth_post *entry, *next;

    pthread_mutex_lock(&loop->mutex);
    entry = loop->first;
    loop->first = NULL;
    loop->last = &loop->first;
    pthread_mutex_unlock(&loop->mutex);
    if (!entry)
        return false;
    for (; entry; entry = next) {
        next = entry->next;
        entry->fn(entry->arg);
    }
    return true;
}

static bool has_posts(struct berth_loop *loop)
{
    bool has;

    pthread_mutex_lock(&loop->mutex);
    has = loop->first != NULL;
    pthread_mutex_unlock(&loop->mutex);
    return has;
}

/* ---------------------------------------------------------------------- turns */

static void begin_turn(struct berth_loop *loop)
{
    atomic_store(&loop->runner, pthread_self());
    atomic_store(&loop->running, true);
}

static void end_turn(struct berth_loop *loop)
{
    atomic_store(&loop->running, false);
    pthread_mutex_unlock(&loop->turn);
}

/* In the place of the loop's thread, which sleeps or is about to. */
static void run_for(struct berth_loop *loop)
{
    int64_t left_ms;

    begin_turn(loop);
    for (int i = 0; i < ROUNDS_MAX && run_posts(loop); i++) {
    }
    left_ms = berth_timers_wait_ms(&loop->timers, berth_tick_ms());
    if (has_posts(loop) || (left_ms >= 0 && berth_tick_ms() + left_ms < loop->until_tick)) {
        loop->until_tick = INT64_MIN; /* once is enough */
        wake(loop);
    }
    end_turn(loop);
}

void berth_loop_run_entry(struct berth_loop *loop, struct berth_post *entry, berth_loop_fn fn,
                          void *arg)
{
    bool ours = link_post(loop, entry, fn, arg);
    bool mine = !berth_loop_is_current(loop) && pthread_mutex_trylock(&loop->turn) == 0;

    if (mine && loop->alive) {
        run_for(loop);
        return;
    }
    if (mine)
        pthread_mutex_unlock(&loop->turn);
    if (ours)
        wake(loop);
}

static int wait_ms(struct berth_loop *loop)
{
    int64_t ms;

    if (atomic_load(&loop->quit) || has_posts(loop))
        return 0;
    ms = berth_timers_wait_ms(&loop->timers, berth_tick_ms());
    return ms >= 0 && ms < SLEEP_MAX_MS ? (int)ms : SLEEP_MAX_MS;
}

static void run_events(struct berth_loop *loop)
{
    struct epoll_event events[EVENTS_MAX];
    int n, ms = wait_ms(loop);

    loop->until_tick = berth_tick_ms() + ms;
    end_turn(loop);
    n = epoll_wait(loop->epoll_fd, events, EVENTS_MAX, ms);
    pthread_mutex_lock(&loop->turn);
    begin_turn(loop);
    for (int i = 0; i < n; i++) {
        struct berth_watch *watch = events[i].data.ptr;
        uint64_t count;

        if (watch) {
            if (!watch->dead) /* also since it was seen */
                watch->fn(watch->arg, events[i].events);
        } else if (read(loop->wake_fd, &count, sizeof count) < 0) {
            assert(errno == EAGAIN || errno == EINTR);
        }
    }
    free_dead(loop);
}

void berth_loop_run(struct berth_loop *loop)
{
    pthread_mutex_lock(&loop->turn);
    begin_turn(loop);
    loop->alive = true;
    while (!atomic_load(&loop->quit)) {
        run_posts(loop);
        run_events(loop);
        berth_timers_fire(&loop->timers, berth_tick_ms());
    }
    /* What was posted before the end still runs, and what that posts in turn. */
    while (run_posts(loop)) {
    }
    loop->alive = false;
    atomic_store(&loop->quit, false);
    end_turn(loop);
}

void berth_loop_quit(struct berth_loop *loop)
{
    atomic_store(&loop->quit, true);
    wake(loop);
}

static void *loop_thread(void *arg)
{
    berth_loop_run(arg);
    return NULL;
}

enum berth_code berth_loop_start(struct berth_loop *loop, const char *name,
                                 struct berth_error *err)
{
    sigset_t all, old;
    int error;

    assert(!loop->started);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    error = pthread_create(&loop->thread, NULL, loop_thread, loop);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error) {
        errno = error;
        return fail_errno(err, "start loop");
    }
    pthread_setname_np(loop->thread, name);
    loop->started = true;
    return BERTH_OK;
}

void berth_loop_stop(struct berth_loop *loop)
{
    if (!loop->started)
        return;
    berth_loop_quit(loop);
    pthread_join(loop->thread, NULL);
    loop->started = false;
}

bool berth_loop_is_current(const struct berth_loop *loop)
{
    return atomic_load(&loop->running) &&
           pthread_equal(atomic_load(&loop->runner), pthread_self());
}

enum berth_code berth_loop_watch(struct berth_loop *loop, int fd, uint32_t events,
                                 berth_watch_fn fn, void *arg, struct berth_watch **ret,
                                 struct berth_error *err)
{
    struct berth_watch *watch = calloc(1, sizeof *watch);
    struct epoll_event event = {.events = events, .data.ptr = watch};

    if (!watch)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    *watch = (struct berth_watch){.loop = loop, .fd = fd, .fn = fn, .arg = arg};
    if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0) {
        enum berth_code code = fail_errno(err, "watch");

        free(watch);
        return code;
    }
    watch->next = loop->watches;
    watch->slot = &loop->watches;
    if (watch->next)
        watch->next->slot = &watch->next;
    loop->watches = watch;
    *ret = watch;
    return BERTH_OK;
}

void berth_watch_set(struct berth_watch *watch, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = watch};
    int failed = epoll_ctl(watch->loop->epoll_fd, EPOLL_CTL_MOD, watch->fd, &event);

    assert(!failed); /* fails only for a descriptor closed before berth_loop_unwatch() */
    (void)failed;
}

struct berth_watch *berth_loop_unwatch(struct berth_watch *watch)
{
    struct berth_loop *loop;

    if (!watch)
        return NULL;
    loop = watch->loop;
    (void)epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
    *watch->slot = watch->next;
    if (watch->next)
        watch->next->slot = watch->slot;
    watch->dead = true;
    watch->next = loop->dead;
    loop->dead = watch;
    return NULL;
}

struct berth_timer *berth_loop_timer(struct berth_loop *loop, int64_t after_ms,
                                     berth_loop_fn fn, void *arg)
{
    return berth_timers_add(&loop->timers, berth_tick_ms() + after_ms, fn, arg);
}

struct berth_timer *berth_timer_cancel(struct berth_timer *timer)
{
    if (timer)
        berth_timers_remove(timer);
    return NULL;
}
