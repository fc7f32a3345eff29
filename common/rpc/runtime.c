/* runtime.c - the process-wide half: the core's start and end, the client queue and its thread.
 */
#include <errno.h>
#include <grpc/support/log.h>
#include <malloc.h>
#include <openssl/crypto.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/resource.h>

#include "common/log/log.h"
#include "common/rpc/core.h"
#include "common/rpc/writes.h"
#include "common/time/time.h"

enum {
    MALLOC_ARENAS = 4,
    CORE_LINES_PER_SECOND = 10,
    NOFILE_WANTED = 65536,  /* raised to this where the hard limit allows */
    PEER_FD_BASE_MAX = 8192 /* keeps the kernel's table of descriptors small */
};

static struct {
    pthread_mutex_t mutex; /* all but the delays */
    pthread_cond_t idle;
    unsigned n_users;
    bool has_core; /* grpc_init() has been called, for good */
    unsigned n_calls;
    grpc_completion_queue *queue;
    pthread_t thread;
    struct rpc_pluck_queue *plucks;
    atomic_int peer_fd_base;
    struct rpc_delay *delays; /* sorted; the client thread's own */
} runtime = {.mutex = PTHREAD_MUTEX_INITIALIZER, .idle = PTHREAD_COND_INITIALIZER};

static _Thread_local bool is_poller;

/* The core has an error to report of every handshake that fails, and anybody can make one fail:
 * false when the second's share of lines is used up. */
static bool may_log_core(unsigned *ret_missed)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static int64_t second;
    static unsigned n_logged, n_missed;
    int64_t now = berth_tick_ms() / 1000;
    bool may;

    pthread_mutex_lock(&mutex);
    *ret_missed = 0;
    if (now != second) {
        *ret_missed = n_missed;
        second = now;
        n_logged = n_missed = 0;
    }
    may = n_logged < CORE_LINES_PER_SECOND;
    if (may)
        n_logged++;
    else
        n_missed++;
    pthread_mutex_unlock(&mutex);
    return may;
}

static void core_log(gpr_log_func_args *args)
{
    unsigned n_missed;

    if (args->severity != GPR_LOG_SEVERITY_ERROR) {
        berth_debug("grpc core", "text", args->message);
        return;
    }
    if (!may_log_core(&n_missed))
        return;
    if (n_missed)
        berth_warn("too many errors of grpc core to log, left out", "lines",
                   BERTH_I64(n_missed));
    berth_warn("grpc core reports an error, going on", "text", args->message);
}

static void ignore_sigpipe(void)
{
    struct sigaction action;

    if (sigaction(SIGPIPE, NULL, &action) < 0 || action.sa_handler != SIG_DFL)
        return;
    action = (struct sigaction){.sa_handler = SIG_IGN};
    (void)sigaction(SIGPIPE, &action, NULL);
}

static void raise_nofile(void)
{
    struct rlimit limit;
    rlim_t half;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    if (limit.rlim_cur < NOFILE_WANTED && limit.rlim_cur < limit.rlim_max) {
        struct rlimit more = limit;

        more.rlim_cur = limit.rlim_max < NOFILE_WANTED ? limit.rlim_max : NOFILE_WANTED;
        if (setrlimit(RLIMIT_NOFILE, &more) == 0)
            limit = more;
    }
    half = limit.rlim_cur / 2;
    atomic_store(&runtime.peer_fd_base, half < PEER_FD_BASE_MAX ? (int)half : PEER_FD_BASE_MAX);
}

int rpc_peer_fd_base(void)
{
    return atomic_load(&runtime.peer_fd_base);
}

void rpc_start_batch(grpc_call *call, const grpc_op *ops, size_t n_ops, struct rpc_tag *tag)
{
    grpc_call_error error;

    RPC_TSAN_RELEASE(tag);
    error = grpc_call_start_batch(call, ops, n_ops, tag, NULL);
    if (error != GRPC_CALL_OK) {
        fprintf(stderr, "grpc_call_start_batch: %s\n", grpc_call_error_to_string(error));
        abort();
    }
}

static void run_tag(void *arg)
{
    struct rpc_tag *tag = arg;

    tag->fn(tag->owner, tag->ok);
}

void rpc_complete(const grpc_event *event)
{
    struct rpc_tag *tag = event->tag;

    RPC_TSAN_ACQUIRE(tag);
    tag->ok = event->success != 0;
    if (!tag->loop)
        tag->fn(tag->owner, tag->ok);
    else if (tag->heavy)
        berth_loop_post_entry(tag->loop, &tag->post, run_tag, tag);
    else
        rpc_run_on_loop(tag->loop, &tag->post, run_tag, tag);
}

void rpc_run_on_loop(struct berth_loop *loop, struct berth_post *post, berth_loop_fn fn,
                     void *arg)
{
    if (is_poller)
        berth_loop_run_entry(loop, post, fn, arg);
    else
        berth_loop_post_entry(loop, post, fn, arg);
}

gpr_timespec rpc_deadline(int64_t after_ms)
{
    if (after_ms == INT64_MAX)
        return gpr_inf_future(GPR_CLOCK_MONOTONIC);
    return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                        gpr_time_from_millis(after_ms, GPR_TIMESPAN));
}

/* ----------------------------------------------------------- the one poller */

void rpc_client_delay(struct rpc_delay *delay, int64_t after_ms, void (*fn)(void *),
                      void *owner)
{
    struct rpc_delay **slot = &runtime.delays;

    *delay =
        (struct rpc_delay){.tick_ms = berth_tick_ms() + after_ms, .fn = fn, .owner = owner};
    while (*slot && (*slot)->tick_ms <= delay->tick_ms)
        slot = &(*slot)->next;
    delay->next = *slot;
    *slot = delay;
}

static void run_delays(void)
{
    while (runtime.delays && runtime.delays->tick_ms <= berth_tick_ms()) {
        struct rpc_delay *delay = runtime.delays;

        runtime.delays = delay->next;
        delay->fn(delay->owner);
    }
}

static int64_t wait_ms(void)
{
    int64_t ms;

    if (rpc_writes_held())
        return 0;
    ms = runtime.delays ? runtime.delays->tick_ms - berth_tick_ms() : INT64_MAX;
    return ms < 0 ? 0 : ms;
}

static void *poll_thread(void *arg)
{
    grpc_completion_queue *queue = arg;

    is_poller = true;
    for (;;) {
        grpc_event event = grpc_completion_queue_next(queue, rpc_deadline(wait_ms()), NULL);

        /* What the core writes by itself while it waits is not held: nobody would flush. */
        rpc_writes_gather(true);
        if (event.type == GRPC_QUEUE_SHUTDOWN)
            return NULL;
        if (event.type == GRPC_OP_COMPLETE)
            rpc_complete(&event);
        else
            rpc_writes_flush();
        run_delays();
        rpc_writes_gather(rpc_writes_held());
    }
}

grpc_completion_queue *rpc_queue(void)
{
    return runtime.queue;
}

void rpc_client_call_begun(void)
{
    pthread_mutex_lock(&runtime.mutex);
    runtime.n_calls++;
    pthread_mutex_unlock(&runtime.mutex);
}

void rpc_client_call_ended(void)
{
    pthread_mutex_lock(&runtime.mutex);
    if (--runtime.n_calls == 0)
        pthread_cond_broadcast(&runtime.idle);
    pthread_mutex_unlock(&runtime.mutex);
}

/* ----------------------------------------------------------- blocking calls */

struct rpc_pluck_queue *rpc_pluck_take(void)
{
    struct rpc_pluck_queue *queue;

    pthread_mutex_lock(&runtime.mutex);
    queue = runtime.plucks;
    if (queue)
        runtime.plucks = queue->next;
    pthread_mutex_unlock(&runtime.mutex);
    if (queue)
        return queue;
    queue = calloc(1, sizeof *queue);
    if (queue)
        queue->core = grpc_completion_queue_create_for_pluck(NULL);
    return queue;
}

void rpc_pluck_give(struct rpc_pluck_queue *queue)
{
    pthread_mutex_lock(&runtime.mutex);
    queue->next = runtime.plucks;
    runtime.plucks = queue;
    pthread_mutex_unlock(&runtime.mutex);
}

static void free_plucks(void)
{
    struct rpc_pluck_queue *queue = runtime.plucks, *next;

    for (; queue; queue = next) {
        next = queue->next;
        grpc_completion_queue_shutdown(queue->core);
        while (grpc_completion_queue_pluck(queue->core, NULL,
                                           gpr_inf_future(GPR_CLOCK_REALTIME), NULL)
                   .type != GRPC_QUEUE_SHUTDOWN) {
        }
        grpc_completion_queue_destroy(queue->core);
        free(queue);
    }
    runtime.plucks = NULL;
}

/* ------------------------------------------------------------- init and done */

/* Messages are up to 4 MiB. By default malloc maps and unmaps each large one, and the kernel
 * clears every page of it each time: half of what a relay of 1 MiB chunks costs. What is freed
 * is kept, up to two messages per arena. */
static void tune_malloc(void)
{
    (void)mallopt(M_MMAP_THRESHOLD, 2 * BERTH_RPC_MESSAGE_MAX);
    (void)mallopt(M_TRIM_THRESHOLD, 2 * BERTH_RPC_MESSAGE_MAX);
    (void)mallopt(M_ARENA_MAX, MALLOC_ARENAS);
}

void berth_rpc_init(void)
{
    sigset_t all, old;

    pthread_mutex_lock(&runtime.mutex);
    if (runtime.n_users++ == 0) {
        ignore_sigpipe();
        raise_nofile();
        tune_malloc();
        gpr_set_log_function(core_log);
        /* The core's own threads must not take the process's signals either. */
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        if (!runtime.has_core) {
            runtime.has_core = true;
            /* Threads of core may still run when the process ends: what they hold of OpenSSL
             * (a random generator each) must not be taken down under them by its atexit. */
            OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
            grpc_init();
        }
        runtime.queue = grpc_completion_queue_create_for_next(NULL);
        if (pthread_create(&runtime.thread, NULL, poll_thread, runtime.queue) != 0) {
            fputs("berth_rpc_init: no thread\n", stderr);
            abort();
        }
        pthread_setname_np(runtime.thread, "rpc-poll");
        pthread_sigmask(SIG_SETMASK, &old, NULL);
    }
    pthread_mutex_unlock(&runtime.mutex);
}

void berth_rpc_done(void)
{
    pthread_mutex_lock(&runtime.mutex);
    if (--runtime.n_users == 0) {
        while (runtime.n_calls > 0)
            pthread_cond_wait(&runtime.idle, &runtime.mutex);
        grpc_completion_queue_shutdown(runtime.queue);
        pthread_join(runtime.thread, NULL);
        grpc_completion_queue_destroy(runtime.queue);
        runtime.queue = NULL;
        free_plucks();
        /* No grpc_shutdown(): after a socket once was full it waits for a poll of 10 seconds
         * inside the core. A process that comes here is about to exit. */
    }
    pthread_mutex_unlock(&runtime.mutex);
}
