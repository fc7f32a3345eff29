/* The event loop: posts, timers, descriptors, and its two ways to run. */
#include "common/loop/loop.h"

#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/time/time.h"

enum { N_POSTS = 10000, N_TIMERS = 500 };

static struct berth_loop *loop;
static struct berth_error err;
static int order[N_TIMERS + 8], n_order;
static int fds[2];

static void setup(void)
{
    ck_assert(!berth_loop_new(&loop, &err));
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    n_order = 0;
}

static void teardown(void)
{
    loop = berth_loop_free(loop);
    close(fds[0]);
    close(fds[1]);
}

static void quit(void *arg)
{
    (void)arg;
    berth_loop_quit(loop);
}

static void note(void *arg)
{
    order[n_order++] = (int)(intptr_t)arg;
}

static void count(void *arg)
{
    atomic_fetch_add((atomic_uint *)arg, 1);
}

static void *post_many(void *arg)
{
    for (int i = 0; i < N_POSTS; i++)
        berth_loop_post(loop, count, arg);
    return NULL;
}

/* Posts of several threads all run, and stop waits for them. */
START_TEST(berth_loop_post__many_threads__all_run)
{
    pthread_t threads[4];
    atomic_uint n = 0;

    ck_assert(!berth_loop_start(loop, "test-loop", &err));
    for (size_t i = 0; i < BERTH_COUNT(threads); i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, post_many, &n), 0);
    for (size_t i = 0; i < BERTH_COUNT(threads); i++)
        pthread_join(threads[i], NULL);
    berth_loop_stop(loop);
    ck_assert_uint_eq(atomic_load(&n), N_POSTS * BERTH_COUNT(threads));
}
END_TEST

static void post_more(void *arg)
{
    note(arg);
    berth_loop_post(loop, note, (void *)(intptr_t)((intptr_t)arg + 10));
}

/* Posts run in order, those made by posts after them, all before run returns. */
START_TEST(berth_loop_run__posts__in_order)
{
    static const int expected[] = {1, 2, 11, 12};

    berth_loop_post(loop, post_more, (void *)1);
    berth_loop_post(loop, post_more, (void *)2);
    berth_loop_post(loop, quit, NULL);
    berth_loop_run(loop);
    ck_assert_int_eq(n_order, 4);
    ck_assert_int_eq(memcmp(order, expected, sizeof expected), 0);
}
END_TEST

static void add_timers(void *arg)
{
    struct berth_timer *timers[N_TIMERS];
    int64_t start_ms = berth_tick_ms();

    (void)arg;
    for (int i = 0; i < N_TIMERS; i++) { /* 0..9 ms, in an order of no meaning */
        intptr_t due_ms = (intptr_t)(berth_tick_ms() - start_ms) + i * 7919 % 10;

        timers[i] = berth_loop_timer(loop, i * 7919 % 10, note, (void *)due_ms);
        ck_assert_ptr_nonnull(timers[i]);
    }
    for (int i = 0; i < N_TIMERS; i += 2)
        ck_assert_ptr_null(berth_timer_cancel(timers[i]));
    ck_assert_ptr_nonnull(berth_loop_timer(loop, 50, quit, NULL));
}

/* Timers fire by time, and those that were cancelled do not. */
START_TEST(berth_loop_timer__many__by_time)
{
    berth_loop_post(loop, add_timers, NULL);
    berth_loop_run(loop);
    ck_assert_int_eq(n_order, N_TIMERS / 2);
    for (int i = 1; i < n_order; i++)
        ck_assert_int_le(order[i - 1], order[i] + 1); /* the clock is read twice */
    ck_assert_ptr_null(berth_timer_cancel(NULL));
}
END_TEST

static struct berth_timer *victim;

static void cancel_victim(void *arg)
{
    note(arg);
    victim = berth_timer_cancel(victim);
}

static void add_victim(void *arg)
{
    (void)arg;
    berth_loop_timer(loop, 1, cancel_victim, (void *)1);
    victim = berth_loop_timer(loop, 1, note, (void *)2);
    berth_loop_timer(loop, 5, quit, NULL);
}

/* A timer may cancel another that is due as well. */
START_TEST(berth_timer_cancel__by_a_timer__not_fired)
{
    berth_loop_post(loop, add_victim, NULL);
    berth_loop_run(loop);
    ck_assert_int_eq(n_order, 1);
}
END_TEST

static struct berth_watch *watches[2];

static void unwatch_both(void *arg, uint32_t events)
{
    (void)events;
    note(arg);
    for (int i = 0; i < 2; i++)
        watches[i] = berth_loop_unwatch(watches[i]);
    berth_loop_timer(loop, 5, quit, NULL);
}

static void watch_both(void *arg)
{
    (void)arg;
    for (int i = 0; i < 2; i++)
        ck_assert(!berth_loop_watch(loop, fds[i], EPOLLOUT, unwatch_both, (void *)(intptr_t)i,
                                    &watches[i], &err));
}

/* After unwatch no callback comes, not even for an event that was seen already. */
START_TEST(berth_loop_unwatch__inside_callback__no_more_events)
{
    berth_loop_post(loop, watch_both, NULL);
    berth_loop_run(loop);
    ck_assert_int_eq(n_order, 1);
    ck_assert_ptr_null(berth_loop_unwatch(NULL));
}
END_TEST

static void on_readable(void *arg, uint32_t events)
{
    char byte;

    (void)arg;
    if (events & EPOLLIN)
        ck_assert_int_eq(read(fds[0], &byte, 1), 1);
    note((void *)(intptr_t)events);
    if (n_order == 1) {
        berth_watch_set(watches[0], 0);
        ck_assert_int_eq(write(fds[1], "x", 1), 1);
        berth_loop_timer(loop, 5, quit, NULL);
    }
}

static void watch_one(void *arg)
{
    (void)arg;
    ck_assert(!berth_loop_watch(loop, fds[0], EPOLLIN, on_readable, NULL, &watches[0], &err));
}

/* With no events asked for, a readable descriptor is left alone. */
START_TEST(berth_watch_set__nothing__quiet)
{
    ck_assert_int_eq(write(fds[1], "x", 1), 1);
    berth_loop_post(loop, watch_one, NULL);
    berth_loop_run(loop);
    ck_assert_int_eq(n_order, 1);
    ck_assert_int_eq(order[0], EPOLLIN);
}
END_TEST

/* A descriptor that cannot be watched is an error. */
START_TEST(berth_loop_watch__bad_descriptor__refused)
{
    struct berth_watch *watch = NULL;

    ck_assert(berth_loop_watch(loop, -1, EPOLLIN, on_readable, NULL, &watch, &err));
    ck_assert_ptr_null(watch);
}
END_TEST

static void note_current(void *arg)
{
    atomic_store((atomic_bool *)arg, berth_loop_is_current(loop));
    quit(NULL);
}

/* The loop knows its own thread, and may be run and started again. */
START_TEST(berth_loop__run_then_start__knows_its_thread)
{
    atomic_bool current = false;

    ck_assert(!berth_loop_is_current(loop));
    for (int i = 0; i < 2; i++) {
        berth_loop_post(loop, note_current, &current);
        berth_loop_run(loop);
        ck_assert(atomic_load(&current));
        ck_assert(!berth_loop_is_current(loop));
    }
    ck_assert(!berth_loop_start(loop, "test-loop", &err));
    ck_assert(!berth_loop_is_current(loop));
    berth_loop_stop(loop);
    berth_loop_stop(loop);
}
END_TEST

/* A loop that never ran is freed with what was queued. */
START_TEST(berth_loop_free__queued__dropped)
{
    berth_loop_post(loop, note, NULL);
    loop = berth_loop_free(loop);
    ck_assert_int_eq(n_order, 0);
    ck_assert_ptr_null(berth_loop_free(NULL));
}
END_TEST

/* -------------------------------------------------------------------- turns */

struct turn {
    struct berth_post entry;
    berth_loop_fn fn;
    _Atomic(pthread_t) runner; /* 0: not yet */
};

static void run_turn(void *arg)
{
    struct turn *turn = arg;

    ck_assert(berth_loop_is_current(loop));
    if (turn->fn)
        turn->fn(turn);
    atomic_store(&turn->runner, pthread_self());
}

static bool runs_here(struct turn *turn)
{
    berth_loop_run_entry(loop, &turn->entry, run_turn, turn);
    while (!atomic_load(&turn->runner))
        usleep(100);
    return pthread_equal(atomic_load(&turn->runner), pthread_self());
}

/* fn once, as soon as the loop was found asleep and its turn could be taken. */
static void take_turn(berth_loop_fn fn)
{
    int64_t end_tick = berth_tick_ms() + 10000;
    struct turn turn = {.fn = fn};

    while (!runs_here(&(struct turn){.fn = NULL}))
        ck_assert_int_lt(berth_tick_ms(), end_tick);
    if (fn)
        (void)runs_here(&turn);
    ck_assert(!berth_loop_is_current(loop));
}

static atomic_uint n_fired;

static void set_timer(void *arg)
{
    (void)arg;
    ck_assert_ptr_nonnull(berth_loop_timer(loop, 5, count, &n_fired));
}

/* A loop that sleeps for want of anything to do is woken for a timer that is set in its place.
 */
START_TEST(berth_loop_run_entry__sets_a_timer__fires_in_time)
{
    int64_t begin_tick = berth_tick_ms();

    ck_assert(!berth_loop_start(loop, "test-loop", &err));
    take_turn(NULL);
    take_turn(set_timer);
    while (!atomic_load(&n_fired)) {
        ck_assert_int_lt(berth_tick_ms(), begin_tick + 10000);
        usleep(500);
    }
    berth_loop_stop(loop);
}
END_TEST

static struct {
    bool inside;
    unsigned n, next[4];
} once; /* of whose turn it is */

static void enter_once(void *arg)
{
    unsigned thread = (unsigned)(uintptr_t)arg % 4, number = (unsigned)(uintptr_t)arg / 4;

    ck_assert(!once.inside && berth_loop_is_current(loop));
    once.inside = true;
    ck_assert_uint_eq(once.next[thread]++, number);
    once.n++;
    once.inside = false;
}

static void *run_many(void *arg)
{
    static struct berth_post entries[4][N_POSTS];
    uintptr_t thread = (uintptr_t)arg;

    for (uintptr_t i = 0; i < N_POSTS; i++)
        (i % 3 ? berth_loop_run_entry : berth_loop_post_entry)(
            loop, &entries[thread][i], enter_once, (void *)(i * 4 + thread));
    return NULL;
}

/* Whoever runs it, one at a time, each thread's in order, and none is left. */
START_TEST(berth_loop_run_entry__many_threads__one_at_a_time_in_order)
{
    pthread_t threads[4];

    memset(&once, 0, sizeof once);
    ck_assert(!berth_loop_start(loop, "test-loop", &err));
    for (uintptr_t i = 0; i < BERTH_COUNT(threads); i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, run_many, (void *)i), 0);
    for (size_t i = 0; i < BERTH_COUNT(threads); i++)
        pthread_join(threads[i], NULL);
    berth_loop_stop(loop);
    ck_assert_uint_eq(once.n, N_POSTS * BERTH_COUNT(threads));
}
END_TEST

static struct berth_watch *watched;
static atomic_uint n_told;

static void tell(void *arg, uint32_t events)
{
    (void)arg;
    (void)events;
    berth_watch_set(watched, 0);
    atomic_fetch_add(&n_told, 1);
}

static void begin_watch(void *arg)
{
    (void)arg;
    ck_assert(!berth_loop_watch(loop, fds[0], EPOLLIN, tell, NULL, &watched, &err));
}

static void end_watch(void *arg)
{
    (void)arg;
    watched = berth_loop_unwatch(watched);
}

/* A descriptor that is ready, and let go of in the loop's place: nothing is told of it any
 * more, and what the loop has seen already is passed over. */
START_TEST(berth_loop_run_entry__unwatches__nothing_told)
{
    ck_assert(!berth_loop_start(loop, "test-loop", &err));
    for (int i = 0; i < 200; i++) {
        char byte;
        unsigned n;

        take_turn(begin_watch);
        ck_assert_int_eq(write(fds[1], "x", 1), 1);
        take_turn(end_watch);
        n = atomic_load(&n_told);
        take_turn(NULL);
        ck_assert_uint_eq(atomic_load(&n_told), n);
        ck_assert_int_eq(read(fds[0], &byte, 1), 1);
    }
    berth_loop_stop(loop);
}
END_TEST

/* A loop that has ended runs nothing, on no thread. */
START_TEST(berth_loop_run_entry__stopped__not_run)
{
    struct turn turn = {.fn = NULL};

    ck_assert(!berth_loop_start(loop, "test-loop", &err));
    take_turn(NULL);
    berth_loop_stop(loop);
    berth_loop_run_entry(loop, &turn.entry, run_turn, &turn);
    loop = berth_loop_free(loop);
    ck_assert(!atomic_load(&turn.runner));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("common/loop");
    TCase *tcase = tcase_create("loop");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, berth_loop_post__many_threads__all_run);
    tcase_add_test(tcase, berth_loop_run__posts__in_order);
    tcase_add_test(tcase, berth_loop_timer__many__by_time);
    tcase_add_test(tcase, berth_timer_cancel__by_a_timer__not_fired);
    tcase_add_test(tcase, berth_loop_unwatch__inside_callback__no_more_events);
    tcase_add_test(tcase, berth_watch_set__nothing__quiet);
    tcase_add_test(tcase, berth_loop_watch__bad_descriptor__refused);
    tcase_add_test(tcase, berth_loop__run_then_start__knows_its_thread);
    tcase_add_test(tcase, berth_loop_free__queued__dropped);
    tcase_add_test(tcase, berth_loop_run_entry__sets_a_timer__fires_in_time);
    tcase_add_test(tcase, berth_loop_run_entry__many_threads__one_at_a_time_in_order);
    tcase_add_test(tcase, berth_loop_run_entry__unwatches__nothing_told);
    tcase_add_test(tcase, berth_loop_run_entry__stopped__not_run);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
