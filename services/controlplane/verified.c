#include "services/controlplane/verified.h"

#include <pthread.h>

#include "common/crypto/crypto.h"

enum { N_SLOTS = 1 << 14 };

struct slot {
    uint64_t key;
    int64_t tick_ms;
};

struct cp_verified {
    pthread_mutex_t mutex;
    struct slot slots[N_SLOTS];
};

struct cp_verified *cp_verified_new(void)
{
    struct cp_verified *verified = calloc(1, sizeof *verified);

    if (verified)
        pthread_mutex_init(&verified->mutex, NULL);
    return verified;
}

struct cp_verified *cp_verified_free(struct cp_verified *verified)
{
    if (verified)
        pthread_mutex_destroy(&verified->mutex);
    free(verified);
    return NULL;
}

/* 64 bits that a client cannot aim at somebody else's slot with. */
static uint64_t key_of(const char *what, const char *tenant, const char *session,
                       const char *sandbox_id)
{
    const char *const parts[] = {what, tenant, session, sandbox_id};
    uint8_t digest[32];
    uint64_t key;

    berth_fingerprint(parts, BERTH_COUNT(parts), digest);
    memcpy(&key, digest, sizeof key);
    return key ? key : 1;
}

void cp_verified_note(struct cp_verified *verified, const char *what, const char *tenant,
                      const char *session, const char *sandbox_id, int64_t tick_ms)
{
    uint64_t key = key_of(what, tenant, session, sandbox_id);
    struct slot *slot = &verified->slots[key % N_SLOTS];

    pthread_mutex_lock(&verified->mutex);
    if (slot->key != key || slot->tick_ms < tick_ms)
        *slot = (struct slot){.key = key, .tick_ms = tick_ms};
    pthread_mutex_unlock(&verified->mutex);
}

bool cp_verified_since(struct cp_verified *verified, const char *what, const char *tenant,
                       const char *session, const char *sandbox_id, int64_t since_tick_ms)
{
    uint64_t key = key_of(what, tenant, session, sandbox_id);
    const struct slot *slot = &verified->slots[key % N_SLOTS];
    bool known;

    pthread_mutex_lock(&verified->mutex);
    known = slot->key == key && slot->tick_ms >= since_tick_ms;
    pthread_mutex_unlock(&verified->mutex);
    return known;
}
