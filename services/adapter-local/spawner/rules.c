#include "services/adapter-local/spawner/rules.h"

#include <string.h>

enum key_verdict rules_judge_create(const struct key_record *key, enum key_sandbox sandbox,
                                    uint64_t sandbox_fence, uint64_t fence, const char *attempt)
{
    bool named = key->sandbox_id[0] != 0;
    bool mine = named && strcmp(key->attempt, attempt) == 0;

    if (fence < key->fence || fence < sandbox_fence)
        return KEY_STALE;
    if (!named)
        return KEY_CREATE;
    if (key->delete_ms)
        return mine ? KEY_GONE : KEY_CREATE;
    switch (sandbox) {
    case KEY_SANDBOX_ALIVE:
        return mine ? KEY_SAME : KEY_EXISTS;
    case KEY_SANDBOX_DEAD:
        return mine ? KEY_GONE : KEY_REPLACE;
    case KEY_SANDBOX_ABSENT:
        break; /* named, not deleted and not there: a create that a crash cut short */
    }
    return KEY_CREATE;
}

bool rules_key_expired(const struct key_record *key, enum key_sandbox sandbox,
                       int64_t touched_ms, int64_t now_ms)
{
    int64_t since = key->delete_ms ? key->delete_ms : touched_ms;

    if (key->sandbox_id[0] && !key->delete_ms && sandbox != KEY_SANDBOX_ABSENT)
        return false;
    return now_ms - since >= RULES_KEY_KEPT_MS;
}

bool rules_fence_passes(uint64_t stored, uint64_t asked)
{
    return asked >= stored;
}

bool rules_too_late(int64_t not_after_ms, int64_t now_ms)
{
    return not_after_ms && now_ms > not_after_ms;
}
