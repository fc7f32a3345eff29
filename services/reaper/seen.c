#include "services/reaper/seen.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/crypto/crypto.h"

enum { KEY_SIZE = 16, SLOTS_MIN = 64 };

struct entry {
    uint8_t key[KEY_SIZE]; /* of SHA-256 over who; not all zero: in use */
    int64_t since_tick;
    int plight;
    unsigned look; /* in which it was seen last */
};

struct reaper_seen {
    struct entry *slots; /* open addressing; n_slots is a power of two */
    size_t n_slots, n_used, max;
    unsigned look;
};

struct reaper_seen *reaper_seen_new(size_t max)
{
    struct reaper_seen *seen = calloc(1, sizeof *seen);

    if (!seen)
        return NULL;
    seen->max = max;
    seen->n_slots = SLOTS_MIN;
    seen->slots = calloc(seen->n_slots, sizeof *seen->slots);
    if (!seen->slots)
        return reaper_seen_free(seen);
    return seen;
}

struct reaper_seen *reaper_seen_free(struct reaper_seen *seen)
{
    if (!seen)
        return NULL;
    free(seen->slots);
    free(seen);
    return NULL;
}

static void make_key(uint8_t key[KEY_SIZE], const char *who)
{
    uint8_t hash[32];

    berth_sha256_once(who, strlen(who), hash);
    memcpy(key, hash, KEY_SIZE);
    key[0] |= 1;
}

static bool is_free(const struct entry *entry)
{
    return !entry->key[0];
}

/* Where it is, or where it would go. There is always a free slot. */
static struct entry *find(const struct reaper_seen *seen, const uint8_t key[KEY_SIZE])
{
    size_t at;

    memcpy(&at, key + 1, sizeof at);
    for (;; at++) {
        struct entry *entry = &seen->slots[at & (seen->n_slots - 1)];

        if (is_free(entry) || memcmp(entry->key, key, KEY_SIZE) == 0)
            return entry;
    }
}

/* Move what keep says to another table. False: no memory, and nothing has changed. */
static bool rebuild(struct reaper_seen *seen, size_t n_slots, bool only_current)
{
    struct reaper_seen next = *seen;

    next.n_slots = n_slots;
    next.n_used = 0;
    next.slots = calloc(n_slots, sizeof *next.slots);
    if (!next.slots)
        return false;
    for (size_t i = 0; i < seen->n_slots; i++) {
        const struct entry *entry = &seen->slots[i];

        if (is_free(entry) || (only_current && entry->look != seen->look))
            continue;
        *find(&next, entry->key) = *entry;
        next.n_used++;
    }
    free(seen->slots);
    *seen = next;
    return true;
}

void reaper_seen_forget(struct reaper_seen *seen)
{
    memset(seen->slots, 0, seen->n_slots * sizeof *seen->slots);
    seen->n_used = 0;
}

int64_t reaper_seen_for(struct reaper_seen *seen, const char *who, int plight, int64_t tick_ms)
{
    uint8_t key[KEY_SIZE];
    struct entry *entry;

    make_key(key, who);
    entry = find(seen, key);
    if (is_free(entry)) {
        if (seen->n_used >= seen->max)
            return 0;
        if (2 * (seen->n_used + 1) > seen->n_slots) {
            if (!rebuild(seen, 2 * seen->n_slots, false))
                return 0;
            entry = find(seen, key);
        }
        memcpy(entry->key, key, KEY_SIZE);
        entry->plight = plight;
        entry->since_tick = tick_ms;
        seen->n_used++;
    } else if (entry->plight != plight) {
        entry->plight = plight;
        entry->since_tick = tick_ms;
    }
    entry->look = seen->look;
    return tick_ms - entry->since_tick;
}

int64_t reaper_seen_look(const struct reaper_seen *seen, const char *who, int plight,
                         int64_t tick_ms)
{
    uint8_t key[KEY_SIZE];
    const struct entry *entry;

    make_key(key, who);
    entry = find(seen, key);
    if (is_free(entry) || entry->plight != plight)
        return -1;
    return tick_ms - entry->since_tick;
}

void reaper_seen_turn(struct reaper_seen *seen)
{
    size_t n_slots = SLOTS_MIN, n = 0;

    for (size_t i = 0; i < seen->n_slots; i++)
        n += !is_free(&seen->slots[i]) && seen->slots[i].look == seen->look;
    while (n_slots < 4 * n)
        n_slots *= 2;
    if (n != seen->n_used)
        (void)rebuild(seen, n_slots, true); /* without memory for it: at the next turn */
    seen->look++;
}

size_t reaper_seen_count(const struct reaper_seen *seen)
{
    return seen->n_used;
}
