#include "services/controlplane/bulkhead.h"

#include <pthread.h>

enum { PER_ENDPOINT = 16, MAX_QUEUED = 1024 };

struct job {
    struct job *next;
    struct cp_bulkhead *bulkhead;
    struct endpoint *endpoint;
    berth_pool_fn fn;
    void *arg;
};

/* Lives while it has anything running or waiting. */
struct endpoint {
    struct endpoint *next;
    unsigned running, queued;
    struct job *first, **last;
    char name[];
};

struct cp_bulkhead {
    struct berth_pool *pool;
    struct cp_bulkhead_options options;
    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t idle;
    struct endpoint *endpoints; /* a ring in spirit: the one served goes to the end */
    unsigned running, queued;
};

enum berth_code cp_bulkhead_new(struct berth_pool *pool,
                                const struct cp_bulkhead_options *options,
                                struct cp_bulkhead **ret, struct berth_error *err)
{
    struct cp_bulkhead *bulkhead = calloc(1, sizeof *bulkhead);

    if (!bulkhead)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    bulkhead->pool = pool;
    bulkhead->options = *options;
    if (!bulkhead->options.per_endpoint)
        bulkhead->options.per_endpoint = PER_ENDPOINT;
    if (!bulkhead->options.max_queued)
        bulkhead->options.max_queued = MAX_QUEUED;
    if (!bulkhead->options.max_running)
        bulkhead->options.max_running = 1;
    pthread_mutex_init(&bulkhead->mutex, NULL);
    pthread_cond_init(&bulkhead->idle, NULL);
    *ret = bulkhead;
    return BERTH_OK;
}

struct cp_bulkhead *cp_bulkhead_free(struct cp_bulkhead *bulkhead)
{
    if (!bulkhead)
        return NULL;
    pthread_mutex_lock(&bulkhead->mutex);
    while (bulkhead->running + bulkhead->queued > 0)
        pthread_cond_wait(&bulkhead->idle, &bulkhead->mutex);
    pthread_mutex_unlock(&bulkhead->mutex);
    pthread_mutex_destroy(&bulkhead->mutex);
    pthread_cond_destroy(&bulkhead->idle);
    free(bulkhead);
    return NULL;
}

static struct endpoint **find(struct cp_bulkhead *bulkhead, const char *name)
{
    struct endpoint **at = &bulkhead->endpoints;

    while (*at && strcmp((*at)->name, name) != 0)
        at = &(*at)->next;
    return at;
}

static struct endpoint *find_or_add(struct cp_bulkhead *bulkhead, const char *name)
{
    struct endpoint **at = find(bulkhead, name);

    if (!*at) {
        size_t size = strlen(name) + 1;

        *at = calloc(1, sizeof **at + size);
        if (*at) {
            memcpy((*at)->name, name, size);
            (*at)->last = &(*at)->first;
        }
    }
    return *at;
}

static void unlink_endpoint(struct cp_bulkhead *bulkhead, struct endpoint *endpoint)
{
    *find(bulkhead, endpoint->name) = endpoint->next;
}

/* The next job that may run now, or NULL. Its endpoint goes behind the others. */
static struct job *take(struct cp_bulkhead *bulkhead)
{
    struct endpoint *endpoint = bulkhead->endpoints;
    struct endpoint **end;
    struct job *job;

    if (bulkhead->running >= bulkhead->options.max_running)
        return NULL;
    while (endpoint &&
           (!endpoint->first || endpoint->running >= bulkhead->options.per_endpoint))
        endpoint = endpoint->next;
    if (!endpoint)
        return NULL;
    job = endpoint->first;
    endpoint->first = job->next;
    if (!endpoint->first)
        endpoint->last = &endpoint->first;
    endpoint->queued--;
    endpoint->running++;
    bulkhead->queued--;
    bulkhead->running++;
    unlink_endpoint(bulkhead, endpoint);
    endpoint->next = NULL;
    for (end = &bulkhead->endpoints; *end; end = &(*end)->next)
        ;
    *end = endpoint;
    return job;
}

static void run_job(void *arg);

/* Called with the mutex held. The pool takes what was promised, whatever its queue. */
static void start_jobs(struct cp_bulkhead *bulkhead)
{
    struct job *job;

    while ((job = take(bulkhead)))
        berth_pool_submit_must(bulkhead->pool, run_job, job);
}

static void run_job(void *arg)
{
    struct job *job = arg;
    struct cp_bulkhead *bulkhead = job->bulkhead;
    struct endpoint *endpoint = job->endpoint;

    job->fn(job->arg);
    free(job);

    pthread_mutex_lock(&bulkhead->mutex);
    endpoint->running--;
    bulkhead->running--;
    if (endpoint->running + endpoint->queued == 0) {
        unlink_endpoint(bulkhead, endpoint);
        free(endpoint);
    }
    start_jobs(bulkhead);
    if (bulkhead->running + bulkhead->queued == 0)
        pthread_cond_broadcast(&bulkhead->idle);
    pthread_mutex_unlock(&bulkhead->mutex);
}

enum berth_code cp_bulkhead_submit(struct cp_bulkhead *bulkhead, const char *endpoint,
                                   berth_pool_fn fn, void *arg, struct berth_error *err)
{
    struct job *job = calloc(1, sizeof *job);
    enum berth_code code = BERTH_OK;
    struct endpoint *place;

    pthread_mutex_lock(&bulkhead->mutex);
    place = job ? find_or_add(bulkhead, endpoint) : NULL;
    if (!place) {
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    } else if (place->queued >= bulkhead->options.max_queued) {
        code = berth_fail(err, BERTH_REASON_OVERLOADED, "%u calls wait for backend %s already",
                          place->queued, endpoint);
    } else {
        *job = (struct job){.bulkhead = bulkhead, .endpoint = place, .fn = fn, .arg = arg};
        *place->last = job;
        place->last = &job->next;
        place->queued++;
        bulkhead->queued++;
        start_jobs(bulkhead);
    }
    pthread_mutex_unlock(&bulkhead->mutex);
    if (code)
        free(job);
    return code;
}

void cp_bulkhead_count(struct cp_bulkhead *bulkhead, unsigned *ret_running,
                       unsigned *ret_queued)
{
    pthread_mutex_lock(&bulkhead->mutex);
    *ret_running = bulkhead->running;
    *ret_queued = bulkhead->queued;
    pthread_mutex_unlock(&bulkhead->mutex);
}
