#include "common/pool/pool.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>

struct berth_pool {
    char name[12];
    unsigned n_max, max_queued;
    pthread_mutex_t mutex; /* all below */
    pthread_cond_t wake;
    struct berth_work *first, **last;
    unsigned n_queued, n_threads, n_waiting, n_busy;
    bool stop;
    pthread_t threads[];
};

struct owned_work { /* what the allocating variants make */
    struct berth_work entry;
    berth_pool_fn fn;
    void *arg;
};

enum berth_code berth_pool_new(const char *name, unsigned n_workers, unsigned max_queued,
                               struct berth_pool **ret, struct berth_error *err)
{
    struct berth_pool *pool = calloc(1, sizeof *pool + n_workers * sizeof pool->threads[0]);

    if (!pool)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    snprintf(pool->name, sizeof pool->name, "%s", name);
    pool->n_max = n_workers;
    pool->max_queued = max_queued;
    pool->last = &pool->first;
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->wake, NULL);
    *ret = pool;
    return BERTH_OK;
}

static void *worker(void *arg)
{
    struct berth_pool *pool = arg;

    pthread_mutex_lock(&pool->mutex);
    for (;;) {
        struct berth_work *entry;

        while (!pool->first && !pool->stop) {
            pool->n_waiting++;
            pthread_cond_wait(&pool->wake, &pool->mutex);
            pool->n_waiting--;
        }
        entry = pool->first;
        if (!entry)
            break;
        pool->first = entry->next;
        if (!pool->first)
            pool->last = &pool->first;
        pool->n_queued--;
        pool->n_busy++;
        pthread_mutex_unlock(&pool->mutex);
        entry->fn(entry->arg);
        pthread_mutex_lock(&pool->mutex);
        pool->n_busy--;
    }
    pthread_mutex_unlock(&pool->mutex);
    return NULL;
}

/* With the mutex held. False: no thread could be made. */
static bool start_worker(struct berth_pool *pool)
{
    char name[16];
    sigset_t all, old;
    int error;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    error = pthread_create(&pool->threads[pool->n_threads], NULL, worker, pool);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error)
        return false;
    snprintf(name, sizeof name, "%.11s-%u", pool->name, pool->n_threads % 1000);
    pthread_setname_np(pool->threads[pool->n_threads], name);
    pool->n_threads++;
    return true;
}

/* With the mutex held. False: there is nobody who could ever run it. */
static bool push(struct berth_pool *pool, struct berth_work *entry)
{
    /* Each entry in the queue has a claim on one of the threads that are not busy. */
    bool wanted =
        pool->n_threads - pool->n_busy <= pool->n_queued && pool->n_threads < pool->n_max;

    if (wanted && !pool->stop && !start_worker(pool) && pool->n_threads == 0)
        return false;
    entry->next = NULL;
    *pool->last = entry;
    pool->last = &entry->next;
    pool->n_queued++;
    if (pool->n_waiting > 0)
        pthread_cond_signal(&pool->wake);
    return true;
}

enum berth_code berth_pool_submit_entry(struct berth_pool *pool, struct berth_work *entry,
                                        berth_pool_fn fn, void *arg, struct berth_error *err)
{
    bool room, pushed = false;

    entry->fn = fn;
    entry->arg = arg;
    pthread_mutex_lock(&pool->mutex);
    /* Work that a worker can take at once does not wait. */
    room = pool->n_queued < pool->max_queued + (pool->n_max - pool->n_busy);
    if (room)
        pushed = push(pool, entry);
    pthread_mutex_unlock(&pool->mutex);
    if (!pushed)
        return berth_fail(err, BERTH_REASON_OVERLOADED,
                          room ? "no worker thread could be started"
                               : "too much work is queued");
    return BERTH_OK;
}

void berth_pool_submit_entry_must(struct berth_pool *pool, struct berth_work *entry,
                                  berth_pool_fn fn, void *arg)
{
    bool pushed;

    entry->fn = fn;
    entry->arg = arg;
    pthread_mutex_lock(&pool->mutex);
    pushed = push(pool, entry);
    pthread_mutex_unlock(&pool->mutex);
    if (!pushed)
        fn(arg); /* no thread at all: the caller's is the only one there is */
}

static void run_owned(void *arg)
{
    struct owned_work *work = arg;
    berth_pool_fn fn = work->fn;
    void *fn_arg = work->arg;

    free(work);
    fn(fn_arg);
}

enum berth_code berth_pool_submit(struct berth_pool *pool, berth_pool_fn fn, void *arg,
                                  struct berth_error *err)
{
    struct owned_work *work = malloc(sizeof *work);
    enum berth_code code;

    if (!work)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    *work = (struct owned_work){.fn = fn, .arg = arg};
    code = berth_pool_submit_entry(pool, &work->entry, run_owned, work, err);
    if (code)
        free(work);
    return code;
}

void berth_pool_submit_must(struct berth_pool *pool, berth_pool_fn fn, void *arg)
{
    struct owned_work *work = malloc(sizeof *work);

    if (!work) {
        fputs("berth_pool_submit_must: out of memory\n", stderr);
        abort();
    }
    *work = (struct owned_work){.fn = fn, .arg = arg};
    berth_pool_submit_entry_must(pool, &work->entry, run_owned, work);
}

unsigned berth_pool_queued(struct berth_pool *pool)
{
    unsigned n;

    pthread_mutex_lock(&pool->mutex);
    n = pool->n_queued;
    pthread_mutex_unlock(&pool->mutex);
    return n;
}

struct berth_pool *berth_pool_free(struct berth_pool *pool)
{
    if (!pool)
        return NULL;
    pthread_mutex_lock(&pool->mutex);
    pool->stop = true;
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->mutex);
    for (unsigned i = 0; i < pool->n_threads; i++)
        pthread_join(pool->threads[i], NULL);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->mutex);
    free(pool);
    return NULL;
}
