#include "services/controlplane/event_feed.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "common/records/keys.h"
#include "common/time/time.h"

enum {
    PAGE_EVENTS = 64,
    RETRY_MS = 200,
    GIVE_UP_MS = 5000, /* of reads that fail, before watchers are told */
};

struct cp_feed {
    struct berth_redis *redis;
    struct berth_loop *loop;
    char block[16];   /* milliseconds */
    pthread_t reader; /* reads pages */
    pthread_t waiter; /* waits where streams end */
    bool running;     /* the loop thread's */
    atomic_int delivering;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    struct cp_ask *asks;
    bool stop;
};

/* What one read says to those who asked for it. */
struct delivery {
    struct cp_feed *feed;
    struct cp_ask *asks;
    struct cp_page *page;
    enum berth_code code;
    struct berth_error err;
};

static void deliver(void *arg)
{
    struct delivery *delivery = arg;

    for (struct cp_ask *ask = delivery->asks, *next; ask; ask = next) {
        next = ask->next;
        ask->next = NULL;
        ask->done(ask, delivery->page, delivery->code, &delivery->err);
    }
    cp_page_unref(delivery->page);
    atomic_fetch_sub(&delivery->feed->delivering, 1);
    free(delivery);
}

/* page is taken. */
static void send(struct cp_feed *feed, struct cp_ask *asks, struct cp_page *page,
                 enum berth_code code, const struct berth_error *err)
{
    struct delivery *delivery = calloc(1, sizeof *delivery);

    if (!delivery)
        abort(); /* as berth_loop_post(): there is nobody left to tell */
    *delivery = (struct delivery){.feed = feed,
                                  .asks = asks,
                                  .page = page,
                                  .code = code,
                                  .err = code ? *err : delivery->err};
    atomic_fetch_add(&feed->delivering, 1);
    berth_loop_post(feed->loop, deliver, delivery);
}

static bool same(const struct cp_ask *a, const struct cp_ask *b)
{
    return a->begin == b->begin && a->from_now == b->from_now &&
           cp_cursor_order(a->after, b->after) == 0 && strcmp(a->tenant, b->tenant) == 0;
}

/* Out of the list: the first that is not at the end of its stream, with all that stand where it
 * does. NULL: there is none. Locked. */
static struct cp_ask *take_group(struct cp_feed *feed)
{
    struct cp_ask *group = NULL;
    struct cp_ask **slot = &feed->asks;

    while (*slot) {
        struct cp_ask *ask = *slot;

        if (ask->at_end || (group && !same(group, ask))) {
            slot = &ask->next;
            continue;
        }
        *slot = ask->next;
        ask->next = group;
        group = ask;
    }
    return group;
}

/* Back into the list. */
static void put_back(struct cp_feed *feed, struct cp_ask *group, bool at_end)
{
    pthread_mutex_lock(&feed->mutex);
    while (group) {
        struct cp_ask *ask = group;

        group = ask->next;
        ask->next = feed->asks;
        ask->at_end = at_end;
        feed->asks = ask;
    }
    pthread_cond_broadcast(&feed->changed);
    pthread_mutex_unlock(&feed->mutex);
}

/* Where watching begins. A cursor that is ahead of the stream is of another one: it was lost.
 */
static enum berth_code judge_begin(struct cp_feed *feed, struct cp_ask *group,
                                   struct cp_page **ret_page, struct berth_error *err)
{
    struct cp_cursor newest;
    enum berth_code code = cp_page_newest(feed->redis, group->tenant, &newest, err);

    if (!code && !group->from_now && cp_cursor_order(group->after, newest) > 0)
        code =
            berth_fail(err, BERTH_REASON_CURSOR_EXPIRED,
                       "the cursor is not of this stream, which ends before it; \"0\" begins "
                       "with the oldest kept");
    for (struct cp_ask *ask = group; !code && ask; ask = ask->next)
        if (ask->from_now)
            ask->after = newest;
    if (!code) {
        *ret_page = calloc(1, sizeof **ret_page);
        if (!*ret_page)
            return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        (*ret_page)->refs = 1;
    }
    return code;
}

/* Reads for one group. Returns false when the store cannot be read and they still wait. */
static bool serve(struct cp_feed *feed, struct cp_ask *group, bool patient)
{
    struct cp_page *page = NULL;
    struct berth_error err = {0};
    enum berth_code code = group->begin ? judge_begin(feed, group, &page, &err)
                                        : cp_page_read(feed->redis, group->tenant, group->after,
                                                       PAGE_EVENTS, &page, &err);

    if (code == BERTH_UNAVAILABLE && patient) {
        put_back(feed, group, false);
        return false;
    }
    if (!code && !page->n_events && !group->begin) {
        cp_page_unref(page);
        put_back(feed, group, true);
        return true;
    }
    send(feed, group, page, code, &err);
    return code != BERTH_UNAVAILABLE;
}

/* ----------------------------------------------------- the ends of all streams */

struct ends {
    size_t n;
    struct end {
        char key[BERTH_KEY_MAX], id[CP_CURSOR_MAX];
        char tenant[130];
        struct cp_cursor after; /* the lowest of its watchers */
    } * items;
};

/* Of those who are at the end of their stream; each tenant once. Locked. */
static bool collect_ends(const struct cp_feed *feed, struct ends *ret)
{
    size_t n = 0;

    for (struct cp_ask *ask = feed->asks; ask; ask = ask->next)
        n += ask->at_end;
    ret->n = 0;
    ret->items = n ? calloc(n, sizeof *ret->items) : NULL;
    if (!ret->items)
        return n == 0;
    for (struct cp_ask *ask = feed->asks; ask; ask = ask->next) {
        size_t i = 0;
        struct end *end;

        if (!ask->at_end)
            continue;

        while (i < ret->n && strcmp(ret->items[i].tenant, ask->tenant) != 0)
            i++;
        end = &ret->items[i];
        if (i == ret->n) {
            ret->n++;
            snprintf(end->tenant, sizeof end->tenant, "%s", ask->tenant);
            berth_key_events(end->key, ask->tenant);
            end->after = ask->after;
        } else if (cp_cursor_order(ask->after, end->after) < 0) {
            end->after = ask->after;
        }
    }
    return true;
}

/* Which of the keys are in the answer: [[key, entries], ...]; NIL: none. */
static void wake(struct cp_feed *feed, const struct ends *ends, const struct berth_reply *reply)
{
    pthread_mutex_lock(&feed->mutex);
    for (size_t i = 0; i < reply->n_items; i++) {
        const struct berth_reply *item = reply->items[i];
        const char *key =
            item->n_items == 2 && item->items[0]->string ? item->items[0]->string : "";
        size_t k = 0;

        while (k < ends->n && strcmp(ends->items[k].key, key) != 0)
            k++;
        for (struct cp_ask *ask = feed->asks; k < ends->n && ask; ask = ask->next)
            if (strcmp(ask->tenant, ends->items[k].tenant) == 0)
                ask->at_end = false;
    }
    pthread_cond_broadcast(&feed->changed);
    pthread_mutex_unlock(&feed->mutex);
}

/* One read over the streams of all tenants (on one server: streams of a Redis Cluster would
 * have to be read shard by shard), which waits for a moment. Returns false when it could not be
 * done.
 */
static bool wait_at_ends(struct cp_feed *feed, struct ends *ends)
{
    BERTH_AUTO(berth_reply_free) struct berth_reply *reply = NULL;
    BERTH_AUTO(free) const char **argv = calloc(2 * ends->n + 6, sizeof *argv);
    size_t argc = 0;
    struct berth_error err;

    if (!argv)
        return false;
    argv[argc++] = "XREAD";
    argv[argc++] = "COUNT";
    argv[argc++] = "1";
    argv[argc++] = "BLOCK";
    argv[argc++] = feed->block;
    argv[argc++] = "STREAMS";
    for (size_t i = 0; i < ends->n; i++)
        argv[argc++] = ends->items[i].key;
    for (size_t i = 0; i < ends->n; i++)
        argv[argc++] = cp_cursor_format(ends->items[i].id, ends->items[i].after);
    if (berth_redis_call(feed->redis, argc, argv, NULL, &reply, &err))
        return false;
    if (reply->type == BERTH_REPLY_ARRAY)
        wake(feed, ends, reply);
    return true;
}

/* ----------------------------------------------------------------- the threads */

/* Locked. */
static void pause_a_moment(struct cp_feed *feed)
{
    int64_t until_ms = berth_now_ms() + RETRY_MS;
    const struct timespec until = {.tv_sec = until_ms / 1000,
                                   .tv_nsec = until_ms % 1000 * 1000000};

    while (!feed->stop && pthread_cond_timedwait(&feed->changed, &feed->mutex, &until) == 0)
        ;
}

/* Those who wait at the ends are told by way of a read, which fails or finds nothing. */
static void *run_waiter(void *arg)
{
    struct cp_feed *feed = arg;

    pthread_mutex_lock(&feed->mutex);
    while (!feed->stop) {
        struct ends ends = {0};
        bool good = collect_ends(feed, &ends);

        if (good && !ends.n) {
            free(ends.items);
            pthread_cond_wait(&feed->changed, &feed->mutex);
            continue;
        }
        pthread_mutex_unlock(&feed->mutex);
        good = good && wait_at_ends(feed, &ends);
        free(ends.items);
        pthread_mutex_lock(&feed->mutex);
        if (!good) {
            for (struct cp_ask *ask = feed->asks; ask; ask = ask->next)
                ask->at_end = false;
            pthread_cond_broadcast(&feed->changed);
            pause_a_moment(feed);
        }
    }
    pthread_mutex_unlock(&feed->mutex);
    return NULL;
}

static void *run_reader(void *arg)
{
    struct cp_feed *feed = arg;
    int64_t failing_since = 0;

    pthread_mutex_lock(&feed->mutex);
    while (!feed->stop) {
        struct cp_ask *group = take_group(feed);
        bool patient = !failing_since || berth_tick_ms() - failing_since < GIVE_UP_MS;

        if (!group) {
            pthread_cond_wait(&feed->changed, &feed->mutex);
            continue;
        }
        pthread_mutex_unlock(&feed->mutex);
        if (serve(feed, group, patient))
            failing_since = 0;
        else if (!failing_since)
            failing_since = berth_tick_ms();
        pthread_mutex_lock(&feed->mutex);
        if (failing_since)
            pause_a_moment(feed);
    }
    pthread_mutex_unlock(&feed->mutex);
    return NULL;
}

static void stop_threads(struct cp_feed *feed)
{
    pthread_mutex_lock(&feed->mutex);
    feed->stop = true;
    pthread_cond_broadcast(&feed->changed);
    pthread_mutex_unlock(&feed->mutex);
    pthread_join(feed->reader, NULL);
    if (feed->running)
        pthread_join(feed->waiter, NULL);
    feed->running = false;
}

static bool start_threads(struct cp_feed *feed)
{
    if (pthread_create(&feed->reader, NULL, run_reader, feed) != 0)
        return false;
    if (pthread_create(&feed->waiter, NULL, run_waiter, feed) != 0) {
        stop_threads(feed);
        feed->stop = false;
        return false;
    }
    pthread_setname_np(feed->reader, "events");
    pthread_setname_np(feed->waiter, "events-end");
    feed->running = true;
    return true;
}

enum berth_code cp_feed_ask(struct cp_feed *feed, struct cp_ask *ask, struct berth_error *err)
{
    if (!feed->running && !start_threads(feed))
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "no thread can be started");
    pthread_mutex_lock(&feed->mutex);
    ask->next = feed->asks;
    feed->asks = ask;
    pthread_cond_broadcast(&feed->changed);
    pthread_mutex_unlock(&feed->mutex);
    return BERTH_OK;
}

bool cp_feed_take_back(struct cp_feed *feed, struct cp_ask *ask)
{
    struct cp_ask **slot = &feed->asks;
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

struct cp_feed *cp_feed_new(struct berth_redis *redis, struct berth_loop *loop,
                            int64_t block_ms)
{
    struct cp_feed *feed = calloc(1, sizeof *feed);

    if (!feed)
        return NULL;
    feed->redis = redis;
    feed->loop = loop;
    snprintf(feed->block, sizeof feed->block, "%lld", (long long)block_ms);
    pthread_mutex_init(&feed->mutex, NULL);
    pthread_cond_init(&feed->changed, NULL);
    return feed;
}

struct cp_feed *cp_feed_free(struct cp_feed *feed)
{
    if (!feed)
        return NULL;
    if (feed->running)
        stop_threads(feed);
    while (atomic_load(&feed->delivering) > 0)
        usleep(1000);
    pthread_cond_destroy(&feed->changed);
    pthread_mutex_destroy(&feed->mutex);
    free(feed);
    return NULL;
}
