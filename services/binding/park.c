#include "services/binding/park.h"

#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "common/time/time.h"

enum { BUCKETS = 1024, FIRST_MS = 5, MOST_MS = 100 };

/* All waiters of one session. */
struct queue {
    struct binding_park *park;
    struct queue *next_in_bucket;
    struct binding_waiter *first, **end;
    int64_t due_tick;
    int64_t wait_ms; /* until the look after the next */
    size_t place;    /* in the heap; used while not looking */
    bool looking;
    bool kicked; /* while looking: look again at once */
    struct berth_work work;
    char key[];
};

struct binding_park {
    struct binding_park_options options;
    pthread_t thread;
    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t changed;
    bool stopping;
    size_t n_waiters;
    size_t n_looking;
    struct queue *buckets[BUCKETS];
    struct queue **heap; /* those not looking, the earliest first */
    size_t n_heap, heap_size;
};

/* -------------------------------------------------------------------------- heap */

static void set_place(struct binding_park *park, size_t at, struct queue *queue)
{
    park->heap[at] = queue;
    queue->place = at;
}

static void sift_up(struct binding_park *park, size_t at)
{
    struct queue *queue = park->heap[at];

    while (at > 0 && park->heap[(at - 1) / 2]->due_tick > queue->due_tick) {
        set_place(park, at, park->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    set_place(park, at, queue);
}

static void sift_down(struct binding_park *park, size_t at)
{
    struct queue *queue = park->heap[at];

    for (;;) {
        size_t child = 2 * at + 1;

        if (child + 1 < park->n_heap &&
            park->heap[child + 1]->due_tick < park->heap[child]->due_tick)
            child++;
        if (child >= park->n_heap || park->heap[child]->due_tick >= queue->due_tick)
            break;
        set_place(park, at, park->heap[child]);
        at = child;
    }
    set_place(park, at, queue);
}

/* There is room: each queue has had its place made when it was made. */
static void heap_push(struct binding_park *park, struct queue *queue)
{
    set_place(park, park->n_heap++, queue);
    sift_up(park, queue->place);
}

static void heap_remove(struct binding_park *park, struct queue *queue)
{
    size_t at = queue->place;
    struct queue *last = park->heap[--park->n_heap];

    if (last == queue)
        return;
    set_place(park, at, last);
    sift_up(park, at);
    sift_down(park, last->place);
}

static bool heap_reserve(struct binding_park *park, size_t n)
{
    struct queue **grown;

    if (n <= park->heap_size)
        return true;
    grown = realloc(park->heap, 2 * n * sizeof *grown);
    if (!grown)
        return false;
    park->heap = grown;
    park->heap_size = 2 * n;
    return true;
}

/* ------------------------------------------------------------------------ queues */

static struct queue **find(struct binding_park *park, const char *key)
{
    uint32_t hash = 2166136261U;
    struct queue **slot;

    for (const char *c = key; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619U;
    slot = &park->buckets[hash % BUCKETS];
    while (*slot && strcmp((*slot)->key, key) != 0)
        slot = &(*slot)->next_in_bucket;
    return slot;
}

/* With the mutex held; NULL: no memory. */
static struct queue *make(struct binding_park *park, struct queue **slot, const char *key)
{
    size_t size = strlen(key) + 1;
    struct queue *queue = calloc(1, sizeof *queue + size);

    if (!queue || !heap_reserve(park, park->n_heap + park->n_looking + 1)) {
        free(queue);
        return NULL;
    }
    memcpy(queue->key, key, size);
    queue->park = park;
    queue->end = &queue->first;
    queue->wait_ms = park->options.first_ms;
    queue->due_tick = berth_tick_ms() + queue->wait_ms;
    *slot = queue;
    heap_push(park, queue);
    return queue;
}

static void drop(struct binding_park *park, struct queue *queue)
{
    struct queue **slot = find(park, queue->key);

    *slot = queue->next_in_bucket;
    free(queue);
}

static size_t count(const struct binding_waiter *waiters)
{
    size_t n = 0;

    for (; waiters; waiters = waiters->next)
        n++;
    return n;
}

/* Next look: after a growing pause, but not later than somebody's time is up. */
static void schedule(struct binding_park *park, struct queue *queue)
{
    int64_t now = berth_tick_ms();

    queue->wait_ms = queue->kicked ? park->options.first_ms : queue->wait_ms * 3 / 2 + 1;
    if (queue->wait_ms > park->options.most_ms)
        queue->wait_ms = park->options.most_ms;
    queue->due_tick = queue->kicked ? now : now + queue->wait_ms;
    for (const struct binding_waiter *w = queue->first; w; w = w->next)
        if (w->give_up_tick < queue->due_tick)
            queue->due_tick = w->give_up_tick;
    queue->kicked = false;
    heap_push(park, queue);
}

/* On the pool: one look for all that wait now; who comes meanwhile is behind them. */
static void look(void *arg)
{
    struct queue *queue = arg;
    struct binding_park *park = queue->park;
    struct binding_waiter *waiters, *left, **end;
    size_t n;

    pthread_mutex_lock(&park->mutex);
    waiters = queue->first;
    queue->first = NULL;
    queue->end = &queue->first;
    pthread_mutex_unlock(&park->mutex);

    n = count(waiters);
    left = waiters ? park->options.look(park->options.ctx, queue->key, waiters) : NULL;

    pthread_mutex_lock(&park->mutex);
    park->n_waiters -= n - count(left);
    for (end = &left; *end;)
        end = &(*end)->next;
    *end = queue->first;
    if (!queue->first)
        queue->end = left ? end : &queue->first;
    queue->first = left;
    queue->looking = false;
    park->n_looking--;
    if (queue->first)
        schedule(park, queue);
    else
        drop(park, queue);
    pthread_cond_broadcast(&park->changed);
    pthread_mutex_unlock(&park->mutex);
}

static void wait_until(struct binding_park *park, int64_t until_tick)
{
    struct timespec until = {.tv_sec = until_tick / 1000,
                             .tv_nsec = until_tick % 1000 * 1000000};

    pthread_cond_timedwait(&park->changed, &park->mutex, &until);
}

static void *keep_time(void *arg)
{
    struct binding_park *park = arg;

    pthread_mutex_lock(&park->mutex);
    while (!park->stopping) {
        struct queue *queue = park->n_heap ? park->heap[0] : NULL;

        if (!queue) {
            pthread_cond_wait(&park->changed, &park->mutex);
        } else if (queue->due_tick > berth_tick_ms()) {
            wait_until(park, queue->due_tick);
        } else {
            heap_remove(park, queue);
            queue->looking = true;
            park->n_looking++;
            pthread_mutex_unlock(&park->mutex);
            berth_pool_submit_entry_must(park->options.pool, &queue->work, look, queue);
            pthread_mutex_lock(&park->mutex);
        }
    }
    pthread_mutex_unlock(&park->mutex);
    return NULL;
}

/* ------------------------------------------------------------------------- public */

enum berth_code binding_park_new(const struct binding_park_options *options,
                                 struct binding_park **ret, struct berth_error *err)
{
    struct binding_park *park = calloc(1, sizeof *park);
    pthread_condattr_t attr;

    if (!park)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    park->options = *options;
    if (!park->options.first_ms)
        park->options.first_ms = FIRST_MS;
    if (!park->options.most_ms)
        park->options.most_ms = MOST_MS;
    pthread_mutex_init(&park->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&park->changed, &attr);
    pthread_condattr_destroy(&attr);
    if (pthread_create(&park->thread, NULL, keep_time, park) != 0) {
        pthread_cond_destroy(&park->changed);
        pthread_mutex_destroy(&park->mutex);
        free(park);
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, "no thread for waiting callers");
    }
    pthread_setname_np(park->thread, "binding-park");
    *ret = park;
    return BERTH_OK;
}

struct binding_park *binding_park_free(struct binding_park *park)
{
    if (!park)
        return NULL;
    pthread_mutex_lock(&park->mutex);
    while (park->n_looking > 0)
        pthread_cond_wait(&park->changed, &park->mutex);
    park->stopping = true;
    pthread_cond_broadcast(&park->changed);
    pthread_mutex_unlock(&park->mutex);
    pthread_join(park->thread, NULL);
    pthread_cond_destroy(&park->changed);
    pthread_mutex_destroy(&park->mutex);
    free(park->heap);
    free(park);
    return NULL;
}

enum berth_code binding_park_add(struct binding_park *park, const char *key,
                                 struct binding_waiter *waiter, struct berth_error *err)
{
    enum berth_code code = BERTH_OK;
    struct queue **slot, *queue;

    waiter->next = NULL;
    pthread_mutex_lock(&park->mutex);
    slot = find(park, key);
    queue = *slot;
    if (park->n_waiters >= park->options.max_waiters)
        code = berth_fail(err, BERTH_REASON_OVERLOADED, "%zu callers wait for locks",
                          park->n_waiters);
    else if (!queue && !(queue = make(park, slot, key)))
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (!code) {
        *queue->end = waiter;
        queue->end = &waiter->next;
        park->n_waiters++;
        if (!queue->looking && waiter->give_up_tick < queue->due_tick) {
            queue->due_tick = waiter->give_up_tick;
            sift_up(park, queue->place);
        }
        pthread_cond_broadcast(&park->changed);
    }
    pthread_mutex_unlock(&park->mutex);
    return code;
}

/* With the mutex held. */
static void kick(struct binding_park *park, struct queue *queue)
{
    if (queue->looking) {
        queue->kicked = true;
        return;
    }
    queue->due_tick = berth_tick_ms();
    queue->wait_ms = park->options.first_ms;
    sift_up(park, queue->place);
    pthread_cond_broadcast(&park->changed);
}

void binding_park_kick(struct binding_park *park, const char *key)
{
    struct queue *queue;

    pthread_mutex_lock(&park->mutex);
    queue = *find(park, key);
    if (queue)
        kick(park, queue);
    pthread_mutex_unlock(&park->mutex);
}

bool binding_park_has(struct binding_park *park, const char *key)
{
    bool has;

    pthread_mutex_lock(&park->mutex);
    has = *find(park, key) != NULL;
    pthread_mutex_unlock(&park->mutex);
    return has;
}

size_t binding_park_count(struct binding_park *park)
{
    size_t n;

    pthread_mutex_lock(&park->mutex);
    n = park->n_waiters;
    pthread_mutex_unlock(&park->mutex);
    return n;
}
