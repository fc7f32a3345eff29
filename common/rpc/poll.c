/* poll.c - the threads that take turns at the process's queue.
 *
 * One of them polls: it sees to the sockets and to every completion. Where a completion begins
 * work that may block, waking a worker for it would cost more than most of such work. So the
 * thread that has it does it itself, in a worker's place (the pool counts it as one of its
 * own), and it is the polling that another thread is woken for. Whoever is first polls on:
 * often it is the same thread, done before the other one has come. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>

#include "common/rpc/core.h"
#include "common/rpc/writes.h"
#include "common/time/time.h"

struct turn_thread {
    struct turn_thread *next;
    pthread_t thread;
};

/* What the thread that polls leaves off for. */
struct work {
    struct berth_pool *pool;
    berth_pool_fn fn; /* NULL: nothing */
    void *arg;
};

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t called, ended;
    struct turn_thread *threads;
    unsigned n_idle;
    unsigned n_called; /* woken or started, and not there yet */
    bool taken;        /* somebody polls */
    bool over;         /* the queue is shut down */

    /* of the thread that polls */
    grpc_completion_queue *queue;
    struct rpc_delay *delays; /* sorted */
    struct work work;
} turn = {.mutex = PTHREAD_MUTEX_INITIALIZER,
          .called = PTHREAD_COND_INITIALIZER,
          .ended = PTHREAD_COND_INITIALIZER};

static _Thread_local bool is_polling;

/* ------------------------------------------------------------------- delays */

void rpc_client_delay(struct rpc_delay *delay, int64_t after_ms, void (*fn)(void *),
                      void *owner)
{
    struct rpc_delay **slot = &turn.delays;

    *delay =
        (struct rpc_delay){.tick_ms = berth_tick_ms() + after_ms, .fn = fn, .owner = owner};
    while (*slot && (*slot)->tick_ms <= delay->tick_ms)
        slot = &(*slot)->next;
    delay->next = *slot;
    *slot = delay;
}

static void run_delays(void)
{
    while (turn.delays && turn.delays->tick_ms <= berth_tick_ms()) {
        struct rpc_delay *delay = turn.delays;

        turn.delays = delay->next;
        delay->fn(delay->owner);
    }
}

static int64_t wait_ms(void)
{
    int64_t ms;

    if (rpc_writes_held())
        return 0;
    ms = turn.delays ? turn.delays->tick_ms - berth_tick_ms() : INT64_MAX;
    return ms < 0 ? 0 : ms;
}

/* ------------------------------------------------------------------ a turn */

/* Until there is work to do, or false: the queue is shut down. */
static bool poll_queue(void)
{
    is_polling = true;
    while (!turn.work.fn) {
        grpc_event event =
            grpc_completion_queue_next(turn.queue, rpc_deadline(wait_ms()), NULL);

        if (event.type == GRPC_QUEUE_SHUTDOWN)
            break;
        /* What the core writes by itself while it waits is not held: nobody would flush. */
        rpc_writes_gather(true);
        if (event.type == GRPC_OP_COMPLETE)
            rpc_complete(&event);
        else
            rpc_writes_flush();
        run_delays();
        if (turn.work.fn)
            rpc_writes_flush();
        rpc_writes_gather(rpc_writes_held());
    }
    is_polling = false;
    return turn.work.fn != NULL;
}

static void *take_turns(void *arg);

/* With the mutex held. False: no thread can be made. */
static bool start_thread(void)
{
    struct turn_thread *thread = calloc(1, sizeof *thread);
    sigset_t all, old;
    int error;

    if (!thread)
        return false;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    error = pthread_create(&thread->thread, NULL, take_turns, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error) {
        free(thread);
        return false;
    }
    pthread_setname_np(thread->thread, "rpc-poll");
    thread->next = turn.threads;
    turn.threads = thread;
    turn.n_called++;
    return true;
}

/* With the mutex held: somebody else may poll now. There is somebody, see rpc_run_here(). */
static void step_down(void)
{
    turn.taken = false;
    if (turn.n_called > 0)
        return;
    turn.n_called++;
    pthread_cond_signal(&turn.called);
}

/* With the mutex held: one of those that were called is there. No matter which: another one may
 * have been quicker. */
static void come(void)
{
    if (turn.n_called > 0)
        turn.n_called--;
}

/* With the mutex held. */
static void wait_for_turn(void)
{
    while (turn.taken && !turn.over) {
        turn.n_idle++;
        while (turn.n_called == 0 && !turn.over)
            pthread_cond_wait(&turn.called, &turn.mutex);
        turn.n_idle--;
        come();
    }
}

static void *take_turns(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&turn.mutex);
    come();
    for (;;) {
        struct work work;

        wait_for_turn();
        if (turn.over)
            break;
        turn.taken = true;
        pthread_mutex_unlock(&turn.mutex);
        if (!poll_queue()) {
            pthread_mutex_lock(&turn.mutex);
            turn.over = true;
            pthread_cond_broadcast(&turn.called);
            pthread_cond_broadcast(&turn.ended);
            break;
        }
        pthread_mutex_lock(&turn.mutex);
        work = turn.work;
        turn.work.fn = NULL;
        step_down();
        pthread_mutex_unlock(&turn.mutex);
        work.fn(work.arg);
        berth_pool_leave(work.pool);
        pthread_mutex_lock(&turn.mutex);
    }
    pthread_mutex_unlock(&turn.mutex);
    return NULL;
}

bool rpc_run_here(struct berth_pool *pool, berth_pool_fn fn, void *arg)
{
    bool somebody;

    if (!is_polling || turn.work.fn || !berth_pool_enter(pool))
        return false;
    pthread_mutex_lock(&turn.mutex);
    somebody = turn.n_idle > 0 || turn.n_called > 0 || start_thread();
    pthread_mutex_unlock(&turn.mutex);
    if (somebody)
        turn.work = (struct work){pool, fn, arg};
    else
        berth_pool_leave(pool);
    return somebody;
}

bool rpc_poll_start(grpc_completion_queue *queue)
{
    bool started;

    pthread_mutex_lock(&turn.mutex);
    turn.queue = queue;
    turn.taken = turn.over = false;
    turn.n_called = 0;
    started = start_thread();
    pthread_mutex_unlock(&turn.mutex);
    return started;
}

void rpc_poll_join(void)
{
    struct turn_thread *thread, *next;

    pthread_mutex_lock(&turn.mutex);
    while (!turn.over) /* until then there may be more threads */
        pthread_cond_wait(&turn.ended, &turn.mutex);
    thread = turn.threads;
    turn.threads = NULL;
    pthread_mutex_unlock(&turn.mutex);
    for (; thread; thread = next) {
        next = thread->next;
        pthread_join(thread->thread, NULL);
        free(thread);
    }
}
