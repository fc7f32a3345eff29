/* lookup.c - a name lookup that can be given up. The resolver has no deadline of its own, so it
 * runs on a thread; whoever is late leaves it there, and the next who asks for the same name
 * waits for that thread instead of starting another. */
#include <netdb.h>
#include <pthread.h>
#include <time.h>

#include "common/redis/internal.h"

struct lookup {
    char host[REDIS_HOST_MAX], port[6];
    unsigned n_refs; /* the thread's, and one per waiter */
    bool done;
    int error;
    struct redis_endpoints found;
    struct lookup *next; /* in `running` until done */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards all lookups */
static pthread_cond_t changed;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct lookup *running;

static void init(void)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&changed, &attr);
    pthread_condattr_destroy(&attr);
}

/* With the mutex held. */
static void unref(struct lookup *lookup)
{
    if (--lookup->n_refs == 0)
        free(lookup);
}

static int resolve(const char *host, const char *port, int flags, struct redis_endpoints *ret)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | flags};
    struct addrinfo *list = NULL;
    int error = getaddrinfo(host, port, &hints, &list);

    ret->n = 0;
    if (error)
        return error;
    for (struct addrinfo *at = list; at && ret->n < REDIS_ENDPOINTS_MAX; at = at->ai_next) {
        memcpy(&ret->at[ret->n].address, at->ai_addr, at->ai_addrlen);
        ret->at[ret->n++].size = at->ai_addrlen;
    }
    freeaddrinfo(list);
    return 0;
}

static void *run(void *arg)
{
    struct lookup *lookup = arg, **slot = &running;
    struct redis_endpoints found;
    int error = resolve(lookup->host, lookup->port, 0, &found);

    pthread_mutex_lock(&mutex);
    lookup->error = error;
    lookup->found = found;
    lookup->done = true;
    while (*slot != lookup)
        slot = &(*slot)->next;
    *slot = lookup->next;
    unref(lookup);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
    return NULL;
}

/* The running one for this name, or a new one. With the mutex held. NULL: none can be started.
 */
static struct lookup *join_or_start(const struct redis_address *address)
{
    struct lookup *lookup = running;
    pthread_attr_t attr;
    pthread_t thread;
    int error;

    while (lookup && (strcmp(lookup->host, address->host) != 0 ||
                      strcmp(lookup->port, address->port) != 0))
        lookup = lookup->next;
    if (lookup) {
        lookup->n_refs++;
        return lookup;
    }
    lookup = calloc(1, sizeof *lookup);
    if (!lookup)
        return NULL;
    memcpy(lookup->host, address->host, sizeof lookup->host);
    memcpy(lookup->port, address->port, sizeof lookup->port);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    error = pthread_create(&thread, &attr, run, lookup);
    pthread_attr_destroy(&attr);
    if (error) {
        free(lookup);
        return NULL;
    }
    lookup->n_refs = 2;
    lookup->next = running;
    running = lookup;
    return lookup;
}

/* EAI_AGAIN: no answer before until_tick. */
static int wait_for_answer(const struct redis_address *address, int64_t until_tick,
                           struct redis_endpoints *ret)
{
    struct timespec until = {.tv_sec = until_tick / 1000,
                             .tv_nsec = until_tick % 1000 * 1000000};
    struct lookup *lookup;
    int error = EAI_AGAIN;

    pthread_once(&once, init);
    pthread_mutex_lock(&mutex);
    lookup = join_or_start(address);
    if (lookup) {
        while (!lookup->done && pthread_cond_timedwait(&changed, &mutex, &until) == 0)
            ;
        if (lookup->done) {
            error = lookup->error;
            *ret = lookup->found;
        }
        unref(lookup);
    }
    pthread_mutex_unlock(&mutex);
    return error;
}

int redis_look_up(const struct redis_address *address, int64_t until_tick,
                  struct redis_endpoints *ret)
{
    int error = resolve(address->host, address->port, AI_NUMERICHOST, ret); /* asks nobody */

    return error == EAI_NONAME ? wait_for_answer(address, until_tick, ret) : error;
}
