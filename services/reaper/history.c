#include "services/reaper/history.h"

#include <pthread.h>

#include "common/messages/messages.h"
#include "common/time/time.h"

enum {
    SWEEPS_MAX = 2048,
    ITEMS_MAX = 8192, /* of all sweeps: the items of the oldest go first */
};
#define KEEP_MS ((int64_t)24 * 3600 * 1000)

struct entry {
    Berth__Reaper__V1__GetSweepResponse *sweep; /* owned */
    int64_t tick_ms;
};

struct reaper_history {
    pthread_mutex_t mutex;
    struct entry entries[SWEEPS_MAX]; /* a ring */
    size_t first, n;
    size_t n_items;
};

struct reaper_history *reaper_history_new(void)
{
    struct reaper_history *history = calloc(1, sizeof *history);

    if (history)
        pthread_mutex_init(&history->mutex, NULL);
    return history;
}

static struct entry *entry_at(struct reaper_history *history, size_t i)
{
    return &history->entries[(history->first + i) % SWEEPS_MAX];
}

static void drop_items(struct reaper_history *history, struct entry *entry)
{
    for (size_t i = 0; i < entry->sweep->n_items; i++)
        berth_message_free(entry->sweep->items[i]);
    free(entry->sweep->items);
    history->n_items -= entry->sweep->n_items;
    entry->sweep->items = NULL;
    entry->sweep->n_items = 0;
}

static void drop_oldest(struct reaper_history *history)
{
    struct entry *entry = entry_at(history, 0);

    drop_items(history, entry);
    entry->sweep = berth_message_free(entry->sweep);
    history->first = (history->first + 1) % SWEEPS_MAX;
    history->n--;
}

struct reaper_history *reaper_history_free(struct reaper_history *history)
{
    if (!history)
        return NULL;
    while (history->n)
        drop_oldest(history);
    pthread_mutex_destroy(&history->mutex);
    free(history);
    return NULL;
}

static void trim(struct reaper_history *history, int64_t tick_ms)
{
    while (history->n == SWEEPS_MAX ||
           (history->n && tick_ms - entry_at(history, 0)->tick_ms > KEEP_MS))
        drop_oldest(history);
    for (size_t i = 0; i < history->n && history->n_items > ITEMS_MAX; i++)
        drop_items(history, entry_at(history, i));
}

void reaper_history_add(struct reaper_history *history, Berth__Reaper__V1__Sweep *sweep,
                        Berth__Reaper__V1__SweepItem **items, size_t n_items)
{
    Berth__Reaper__V1__GetSweepResponse *kept =
        berth_message_new(&berth__reaper__v1__get_sweep_response__descriptor);
    int64_t tick_ms = berth_tick_ms();

    if (!kept) { /* it is not remembered */
        for (size_t i = 0; i < n_items; i++)
            berth_message_free(items[i]);
        free(items);
        berth_message_free(sweep);
        return;
    }
    kept->sweep = sweep;
    kept->items = items;
    kept->n_items = n_items;
    pthread_mutex_lock(&history->mutex);
    trim(history, tick_ms);
    *entry_at(history, history->n++) = (struct entry){.sweep = kept, .tick_ms = tick_ms};
    history->n_items += n_items;
    pthread_mutex_unlock(&history->mutex);
}

enum berth_code reaper_history_get(struct reaper_history *history, const char *id,
                                   Berth__Reaper__V1__GetSweepResponse **ret,
                                   struct berth_error *err)
{
    enum berth_code code = BERTH_OK;

    pthread_mutex_lock(&history->mutex);
    *ret = NULL;
    for (size_t i = history->n; i-- > 0 && !*ret && !code;) {
        const struct entry *entry = entry_at(history, i);

        if (*id && strcmp(entry->sweep->sweep->sweep_id, id) != 0)
            continue;
        *ret = berth_message_copy(entry->sweep);
        if (!*ret)
            code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    pthread_mutex_unlock(&history->mutex);
    if (!code && !*ret)
        code = berth_fail(err, BERTH_REASON_OPERATION_NOT_FOUND, "no such sweep here");
    return code;
}
