/* redis_proxy.h - a unix socket between the service and Redis that loses what the test tells it
 * to.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

enum proxy_loss {
    PROXY_LOSE_NONE,
    PROXY_LOSE_REQUEST, /* the next compare-and-set never arrives */
    PROXY_LOSE_REPLY,   /* the next compare-and-set takes effect, its answer is lost */
    PROXY_HOLD_REQUEST, /* the next compare-and-set arrives at proxy_release(), nobody waits for
                           it */
};

struct proxy {
    char path[128]; /* where it listens */
    char url[160];
    char target[128]; /* path of Redis' socket */
    int listener;
    int stop[2]; /* a byte ends the thread, or releases what is held */
    pthread_t thread;
    atomic_int loss;     /* enum proxy_loss; NONE again once it has happened */
    atomic_int lost;     /* how often */
    atomic_int released; /* replies to what was held */
};

void proxy_start(struct proxy *proxy, const char *folder, const char *target);
/* What was held goes to Redis; returns once it has been answered. */
void proxy_release(struct proxy *proxy);
void proxy_stop(struct proxy *proxy);
