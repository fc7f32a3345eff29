/* bench.h - one session in memory: documents are stored as they would be in Redis and read
 * back, compared by rev, under a clock that only the test moves. */
#pragma once

#include <check.h>

#include "services/binding/core.h"

enum { NOW = 1000000000, MINUTE = 60 * 1000, LOCK = MINUTE, TURN = 30 * MINUTE };

#define ACCOUNT "00000000000000000000000000000000000000000000000000000000000000aa"
#define OTHER_ACCOUNT "00000000000000000000000000000000000000000000000000000000000000bb"
/* Attempts: 32 hex digits that end in a letter. */
#define ATTEMPT(letter) "0000000000000000000000000000000" letter
#define SECRET "0123456789abcdefghijkl"

struct bench {
    int64_t now_ms;
    bool quarantine, unsure;
    int64_t lost_ms;
    const char *session_id;
    struct binding_tenant tenant;
    struct berth_config_doc config;
    char config_id[129];

    /* What is stored. */
    bool exists;
    bool expires; /* PEXPIRE */
    char rev[17];
    char *value[BINDING_N_PARTS];
    size_t size[BINDING_N_PARTS];
    unsigned n_revs;
    bool indexed;
    char events[4096]; /* kinds in order, each followed by a space */
};

/* A tenant, an active config "c1" with keyed create, no session. */
void bench_init(struct bench *bench);
void bench_deinit(struct bench *bench);
/* One more document that is read but not written here: flip to a generation. */
void bench_flip(struct bench *bench, uint64_t generation);

void bench_read(struct bench *bench, struct binding_view *view);
/* What the store does with a decided view: refused when the rev is not the stored one. Frees
 * plan, not view. */
bool bench_write(struct bench *bench, struct binding_view *view, struct binding_plan *plan);
/* The stored document, decoded; to be deinit'ed. */
void bench_doc(struct bench *bench, struct binding_doc *doc);

/* Requests with defaults; change what matters. */
struct binding_want bench_want(enum binding_want_kind kind, const char *attempt);
struct binding_change bench_change(enum binding_change_kind kind, const char *attempt,
                                   uint64_t fence);
/* Fields of a sandbox to bind or patch. */
struct binding_bound bench_bound(const char *sandbox_id, uint64_t generation);

/* Read, decide, write; the reason, BERTH_REASON_NONE when it went well. Aborts when refused. */
struct outcome {
    enum berth_reason reason;
    enum binding_decision decision;
    enum berth_reason refused; /* commit */
    uint64_t fence;            /* of the lock as stored afterwards */
    bool wrote;
    bool durable;
    bool needs_whole;
    bool protected, stale, turn_running;
    char bound[129];
    size_t n_intents, n_tokens;
    int64_t due_ms;
    char token[BINDING_TOKEN_MAX + 1];
    int64_t expire_ms;
    enum binding_loss_cause lost, replaced; /* of the plan */
};
struct outcome bench_acquire(struct bench *bench, struct binding_want want);
struct outcome bench_commit(struct bench *bench, struct binding_change change);
struct outcome bench_abort(struct bench *bench, const char *attempt, uint64_t fence);
struct outcome bench_renew_lock(struct bench *bench, const char *attempt, uint64_t fence);
struct outcome bench_begin(struct bench *bench, const char *turn_id);
struct outcome bench_renew_turn(struct bench *bench, const char *token);
struct outcome bench_end(struct bench *bench, const char *token);
struct outcome bench_use(struct bench *bench, const char *token, const char *sandbox_id,
                         bool end);

/* A client was told of the loss of this number. */
struct outcome bench_told(struct bench *bench, uint64_t number);

/* Shorthands for the usual steps; each aborts when it does not go well. */
struct outcome bench_ensure(struct bench *bench, const char *attempt, const char *turn_token);
void bench_create(struct bench *bench, const char *attempt, const char *sandbox_id,
                  uint64_t generation);
void bench_adopt(struct bench *bench, const char *attempt, const char *sandbox_id,
                 uint64_t generation);

#define ck_reason(got, name) ck_assert_str_eq(berth_reason_name(got), name)
