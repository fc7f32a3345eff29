#include "services/skills/operation_feed.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "common/time/time.h"

enum {
    POLL_MS = 100,
    GIVE_UP_MS = 5000, /* of reads that fail, before watchers are told */
};

struct operation_feed {
    struct skills *skills;
    pthread_t thread;
    bool running; /* the loop thread's */
    atomic_int delivering;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    struct operation_ask *asks;
    bool stop;
};

/* What one read says to those who asked for it. */
struct delivery {
    struct operation_feed *feed;
    struct operation_ask *asks;
    struct operation_page *page;
    enum berth_code code;
    struct berth_error err;
};

static void deliver(void *arg)
{
    struct delivery *delivery = arg;

    for (struct operation_ask *ask = delivery->asks, *next; ask; ask = next) {
        next = ask->next;
        ask->next = NULL;
        ask->done(ask, delivery->page, delivery->code, &delivery->err);
    }
    operation_page_unref(delivery->page);
    atomic_fetch_sub(&delivery->feed->delivering, 1);
    free(delivery);
}

/* page is taken. */
static void send(struct operation_feed *feed, struct operation_ask *asks,
                 struct operation_page *page, enum berth_code code,
                 const struct berth_error *err)
{
    struct delivery *delivery = calloc(1, sizeof *delivery);

    if (!delivery)
        abort(); /* as berth_loop_post(): there is nobody left to tell */
    *delivery = (struct delivery){.feed = feed, .asks = asks, .page = page, .code = code};
    if (code)
        delivery->err = *err;
    atomic_fetch_add(&feed->delivering, 1);
    berth_loop_post(feed->skills->runtime->loop, deliver, delivery);
}

static bool same(const struct operation_ask *a, const struct operation_ask *b)
{
    return a->begin == b->begin && a->after == b->after && a->log_at == b->log_at &&
           a->told_state == b->told_state && strcmp(a->operation_id, b->operation_id) == 0 &&
           strcmp(a->tenant, b->tenant) == 0;
}

/* Out of the list: the first that does not wait, with all that stand where it does, waiting or
 * not. NULL: there is none. Locked. */
static struct operation_ask *take_group(struct operation_feed *feed)
{
    struct operation_ask *first = feed->asks, *group = NULL;
    struct operation_ask **slot = &feed->asks;

    while (first && first->waits)
        first = first->next;
    while (first && *slot) {
        struct operation_ask *ask = *slot;

        if (!same(first, ask)) {
            slot = &ask->next;
            continue;
        }
        *slot = ask->next;
        ask->next = group;
        group = ask;
    }
    return group;
}

/* Back into the list, until the next look. */
static void put_back(struct operation_feed *feed, struct operation_ask *group)
{
    pthread_mutex_lock(&feed->mutex);
    while (group) {
        struct operation_ask *ask = group;

        group = ask->next;
        ask->waits = true;
        ask->next = feed->asks;
        feed->asks = ask;
    }
    pthread_mutex_unlock(&feed->mutex);
}

/* False: the store cannot be read. */
static bool serve(struct operation_feed *feed, struct operation_ask *group, bool patient)
{
    struct operation_page *page = NULL;
    struct berth_error err = {0};
    enum berth_code code = operation_page_read(feed->skills, group, &page, &err);

    if ((code == BERTH_UNAVAILABLE && patient) || (!code && !page))
        put_back(feed, group);
    else
        send(feed, group, page, code, &err);
    return code != BERTH_UNAVAILABLE;
}

/* Until the next look is due, or there is something new; then all are looked at. Locked. */
static void wait_a_moment(struct operation_feed *feed)
{
    struct timespec until;

    if (!feed->asks) {
        pthread_cond_wait(&feed->changed, &feed->mutex);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)POLL_MS * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    if (pthread_cond_timedwait(&feed->changed, &feed->mutex, &until) == 0)
        return;
    for (struct operation_ask *ask = feed->asks; ask; ask = ask->next)
        ask->waits = false;
}

static void *run(void *arg)
{
    struct operation_feed *feed = arg;
    int64_t failing_since = 0;

    pthread_mutex_lock(&feed->mutex);
    while (!feed->stop) {
        struct operation_ask *group = take_group(feed);
        bool patient = !failing_since || berth_tick_ms() - failing_since < GIVE_UP_MS;

        if (!group) {
            wait_a_moment(feed);
            continue;
        }
        pthread_mutex_unlock(&feed->mutex);
        if (serve(feed, group, patient))
            failing_since = 0;
        else if (!failing_since)
            failing_since = berth_tick_ms();
        pthread_mutex_lock(&feed->mutex);
    }
    pthread_mutex_unlock(&feed->mutex);
    return NULL;
}

enum berth_code operation_feed_ask(struct operation_feed *feed, struct operation_ask *ask,
                                   struct berth_error *err)
{
    if (!feed->running && pthread_create(&feed->thread, NULL, run, feed) != 0)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "no thread can be started");
    feed->running = true;
    pthread_mutex_lock(&feed->mutex);
    ask->waits = false;
    ask->next = feed->asks;
    feed->asks = ask;
    pthread_cond_broadcast(&feed->changed);
    pthread_mutex_unlock(&feed->mutex);
    return BERTH_OK;
}

bool operation_feed_take_back(struct operation_feed *feed, struct operation_ask *ask)
{
    struct operation_ask **slot = &feed->asks;
    bool found;

    pthread_mutex_lock(&feed->mutex);
    while (*slot && *slot != ask)
        slot = &(*slot)->next;
    found = *slot != NULL;
    if (found) {
        *slot = ask->next;
        ask->next = NULL;
    }
    pthread_mutex_unlock(&feed->mutex);
    return found;
}

struct operation_feed *operation_feed_new(struct skills *skills)
{
    struct operation_feed *feed = calloc(1, sizeof *feed);
    pthread_condattr_t attr;

    if (!feed)
        return NULL;
    feed->skills = skills;
    pthread_mutex_init(&feed->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&feed->changed, &attr);
    pthread_condattr_destroy(&attr);
    return feed;
}

struct operation_feed *operation_feed_free(struct operation_feed *feed)
{
    if (!feed)
        return NULL;
    if (feed->running) {
        pthread_mutex_lock(&feed->mutex);
        feed->stop = true;
        pthread_cond_broadcast(&feed->changed);
        pthread_mutex_unlock(&feed->mutex);
        pthread_join(feed->thread, NULL);
    }
    while (atomic_load(&feed->delivering) > 0)
        usleep(1000);
    pthread_cond_destroy(&feed->changed);
    pthread_mutex_destroy(&feed->mutex);
    free(feed);
    return NULL;
}
