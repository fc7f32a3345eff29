/* rules.h - who may create and change what in a store. Pure: no clock, no files. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "services/adapter/types.h"

enum { RULES_KEY_KEPT_MS = 24 * 60 * 60 * 1000 }; /* a key outlives its sandbox by this */

/* What keys/<unique_key>.json says. sandbox_id "" : none (its create failed, or key is new). */
struct key_record {
    uint64_t fence; /* highest one a create came with, or the sandbox had when it was deleted */
    char attempt[ADAPTER_ATTEMPT_SIZE]; /* of the create that made (or makes) sandbox_id */
    char sandbox_id[ADAPTER_ID_SIZE];
    int64_t delete_ms; /* wall clock; 0: not deleted */
};

/* What became of the sandbox a key names. */
enum key_sandbox { KEY_SANDBOX_ABSENT, KEY_SANDBOX_ALIVE, KEY_SANDBOX_DEAD };

enum key_verdict {
    KEY_CREATE,  /* nothing there: make one */
    KEY_SAME,    /* a repeat: answer key_record.sandbox_id */
    KEY_EXISTS,  /* another attempt's sandbox is there */
    KEY_REPLACE, /* another attempt's sandbox is there, but dead: remove it, then make one */
    KEY_STALE,   /* fenced off */
    KEY_GONE     /* a repeat, but its sandbox is dead or deleted: never make a second one */
};

/**
 * rules_judge_create() - may this create make a sandbox?
 * @key:           as stored; all zero where there is none
 * @sandbox:       what became of key->sandbox_id
 * @sandbox_fence: the highest fence that sandbox has seen; 0 where it is absent
 * @fence:         the caller's
 * @attempt:       the caller's, hex
 *
 * A lower fence loses in every case, even a repeat: its holder was superseded.
 */
enum key_verdict rules_judge_create(const struct key_record *key, enum key_sandbox sandbox,
                                    uint64_t sandbox_fence, uint64_t fence,
                                    const char *attempt);

/* May a key record be forgotten? Only when its sandbox was deleted long enough ago, or when its
 * create failed long enough ago (touched_ms: last write). */
bool rules_key_expired(const struct key_record *key, enum key_sandbox sandbox,
                       int64_t touched_ms, int64_t now_ms);

/* Equal passes, lower does not. */
bool rules_fence_passes(uint64_t stored, uint64_t asked);

/* Has the caller's time run out? not_after_ms 0: never. */
bool rules_too_late(int64_t not_after_ms, int64_t now_ms);
