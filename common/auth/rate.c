#include "common/auth/rate.h"

#include <pthread.h>

enum { SLOTS = 4096, PROBES = 8, MS_PER_S = 1000 };

/* Tenants that called lately. Who is pushed out begins anew, with all that he may have at once:
 * more tenants than slots get more, never less. */
struct slot {
    uint64_t name; /* hash of the tenant; 0: free */
    int64_t level; /* thousandths of calls */
    int64_t tick_ms;
};

struct berth_rate {
    pthread_mutex_t mutex;
    struct slot slots[SLOTS];
};

struct berth_rate *berth_rate_new(void)
{
    struct berth_rate *rate = calloc(1, sizeof *rate);

    if (rate)
        pthread_mutex_init(&rate->mutex, NULL);
    return rate;
}

struct berth_rate *berth_rate_free(struct berth_rate *rate)
{
    if (!rate)
        return NULL;
    pthread_mutex_destroy(&rate->mutex);
    free(rate);
    return NULL;
}

static uint64_t hash(const char *text)
{
    uint64_t value = 14695981039346656037U;

    for (; *text; text++)
        value = (value ^ (unsigned char)*text) * 1099511628211U;
    return value ? value : 1;
}

/* With the mutex held. */
static struct slot *find(struct berth_rate *rate, uint64_t name, int64_t full, int64_t tick_ms)
{
    struct slot *oldest = NULL;

    for (size_t i = 0; i < PROBES; i++) {
        struct slot *slot = &rate->slots[(name + i) % SLOTS];

        if (slot->name == name)
            return slot;
        if (!oldest || !slot->name || (oldest->name && slot->tick_ms < oldest->tick_ms))
            oldest = slot;
    }
    *oldest = (struct slot){.name = name, .level = full, .tick_ms = tick_ms};
    return oldest;
}

int64_t berth_rate_take(struct berth_rate *rate, const char *tenant_id, uint32_t per_s,
                        int64_t tick_ms)
{
    int64_t full = (int64_t)per_s * MS_PER_S, wait_ms = 0;
    struct slot *slot;

    pthread_mutex_lock(&rate->mutex);
    slot = find(rate, hash(tenant_id), full, tick_ms);
    if (tick_ms - slot->tick_ms >= MS_PER_S)
        slot->level = full;
    else if (tick_ms > slot->tick_ms)
        slot->level += (tick_ms - slot->tick_ms) * per_s;
    if (slot->level > full)
        slot->level = full;
    if (tick_ms > slot->tick_ms)
        slot->tick_ms = tick_ms;
    if (slot->level >= MS_PER_S)
        slot->level -= MS_PER_S;
    else
        wait_ms = (MS_PER_S - slot->level + per_s - 1) / per_s;
    pthread_mutex_unlock(&rate->mutex);
    return wait_ms;
}
