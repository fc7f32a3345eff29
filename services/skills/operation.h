/* operation.h - changes of a config's image: documents op/<id>, the config's queue, and what
 * each has said. Blocking.
 *
 * op/<id> HASH: rev, doc (JSON of struct operation), and of an install `env` (sealed). The
 * config's document has `queue` (JSON array of operation ids, oldest first; the first is the
 * one that may run) and `lock` (JSON: op, owner, until_ms by Redis' clock). Putting an
 * operation into the queue, taking the lock, renewing it and leaving the queue are each one
 * compare-and-set of both documents. What an operation says is the stream opl/<id>, whose
 * entries are numbered by its owner (`<seq>-0`), so that two owners cannot both go on.
 * Ended operations are kept for OPERATION_KEPT_MS. The config's document also has `failed`
 * (JSON array of operation ids, newest first): the last failed INSTALL or UNINSTALL of a skill,
 * until one of that skill is done. None of it is journaled but `failed`: what Redis has lost
 * was never queued. The set berth:{tenant}:i/queues names the configs that have a queue. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "services/skills/skills.h"

enum {
    OPERATION_ID_SIZE = 33,
    OPERATION_QUEUE_MAX = 64,      /* of one config; more: OVERLOADED */
    OPERATION_LINES_MAX = 2000,    /* entries of opl/<id>; the oldest go */
    OPERATION_ENTRY_MAX = 4 << 10, /* bytes of output in one */
    OPERATION_FINDINGS_MAX = 300,
};
#define OPERATION_KEPT_MS ((int64_t)7 * 24 * 60 * 60 * 1000)

/* As OperationKind, OperationState and Step of skills.proto, by value. */
struct operation {
    char operation_id[OPERATION_ID_SIZE];
    char tenant_id[129], config_id[129];
    int kind, state, step;
    unsigned percent; /* of the whole */
    char skill_name[257];
    char bundle[65];          /* hex content digest of the bundle in the blob store; "": none */
    uint64_t from_generation; /* ROLLBACK: whose image is published again */
    char request_id[129];
    char created_by[129];
    bool allow_warnings;
    bool external_installer;
    bool finished, finished_ok; /* FinishInstallation was said */
    char finish_message[1025];
    int64_t time_limit_ms;
    bool cancel;     /* was asked for */
    unsigned starts; /* how often somebody began it: after a crash it is begun again */
    char owner[33];  /* the grant of the last start; random */
    /* What it has come to. Of one with an external installer row_id and session_id are chosen
     * when it is queued, for its first start: its token is for that session, so it cannot be
     * begun a second time. */
    char row_id[33]; /* ledger row of the present start */
    uint64_t generation;
    char snapshot_id[129];
    char session_id[129]; /* maintenance session, sk.<row_id>; "": none is left */
    bool unchanged;
    uint32_t sessions_marked, sessions_not_marked;
    json_t *findings; /* owned: array of {code, severity, file, line, message}; NULL: none */
    char reason[64];  /* of a failure, as ErrorInfo.reason; "": none */
    char message[1025];
    int64_t create_ms, beat_ms, end_ms; /* Redis' clock */
};
void operation_deinit(struct operation *operation);

bool operation_has_ended(const struct operation *operation);

/* Queue a new one; fills operation_id, state, create_ms. env: object of strings, sealed; NULL
 * or empty: none; FIELD_INVALID (env) where the process has no keys to seal it under.
 * An INSTALL or UNINSTALL of the same skill that still waits in the queue is CANCELLED in the
 * same write ("overtaken by <id>"). With a request_id used within 24 hours the earlier
 * operation is given back, and *ret_is_repeat is set. Errors: CONFIG_NOT_FOUND, OVERLOADED,
 * REQUEST_ID_REUSED, STORE_UNAVAILABLE, OUTCOME_UNKNOWN. */
BERTH_MUST_CHECK enum berth_code operation_queue(struct skills *skills,
                                                 struct operation *operation, const json_t *env,
                                                 bool *ret_is_repeat, struct berth_error *err);
/* Only the look for an earlier one of its request_id, before anything else is judged: an
 * operation that is done has changed what its repeat would be judged by. */
BERTH_MUST_CHECK enum berth_code operation_repeat(struct skills *skills,
                                                  struct operation *operation,
                                                  const json_t *env, bool *ret_is_repeat,
                                                  struct berth_error *err);
/* Errors: OPERATION_NOT_FOUND (another tenant's too), STORE_UNAVAILABLE. */
BERTH_MUST_CHECK enum berth_code operation_read(struct skills *skills, const char *tenant,
                                                const char *operation_id, struct operation *ret,
                                                struct berth_error *err);

/* What of a config wait or runs, in that order, then the failures that are remembered, newest
 * first. *ret is owned: operation_list_free(). */
BERTH_MUST_CHECK enum berth_code operation_list(struct skills *skills, const char *tenant,
                                                const char *config_id, struct operation **ret,
                                                size_t *ret_n, struct berth_error *err);
void operation_list_free(struct operation *list, size_t n); /* NULL is fine */

/* ---- by who carries it out */

/* A grant of the config's lock to one operation. */
struct operation_grant {
    struct operation operation;
    json_t *env;       /* owned: object; NULL: none */
    uint64_t seq;      /* of the last entry said */
    int64_t sent_tick; /* monotonic, when the last renewal that went well was sent */
};
void operation_grant_deinit(struct operation_grant *grant);

/* The first of the config's queue, if nobody has it now (no lock, or one whose time is over).
 * *ret_taken false: there is nothing to do. RUNNING from here on; starts is one more. */
BERTH_MUST_CHECK enum berth_code operation_take(struct skills *skills, const char *tenant,
                                                const char *config_id,
                                                struct operation_grant *ret, bool *ret_taken,
                                                struct berth_error *err);
/* Write the operation as it is now, prolong the lock, learn of cancel and finished (set in
 * grant->operation). Says step and percent, too, when they have changed. Errors: LOCK_LOST;
 * STORE_UNAVAILABLE, OUTCOME_UNKNOWN (it may be tried again). */
BERTH_MUST_CHECK enum berth_code
operation_beat(struct skills *skills, struct operation_grant *grant, struct berth_error *err);
/* An entry of output. Lost output is no error; a lost lock is found by the next beat. */
void operation_say(struct skills *skills, struct operation_grant *grant, const void *data,
                   size_t size);
/* DONE, FAILED or CANCELLED, as set: out of the queue, the lock given up. Repeatable.
 * Errors: LOCK_LOST. */
BERTH_MUST_CHECK enum berth_code
operation_end(struct skills *skills, struct operation_grant *grant, struct berth_error *err);
/* Give the lock up and leave the operation first in the queue (shutdown). */
void operation_leave(struct skills *skills, struct operation_grant *grant);
/* Is `lock`, a field of c/<config> as read, this grant's? (For who writes that document over
 * what he read: the flip.) */
bool operation_holds(const struct operation_grant *grant, const char *lock);

/* ---- by others */

/* Sets `cancel`, of a queued one CANCELLED at once. Ended: OPERATION_ENDED where the
 * flip is done, else no change. *ret: as it then stands. */
BERTH_MUST_CHECK enum berth_code operation_cancel(struct skills *skills, const char *tenant,
                                                  const char *operation_id,
                                                  struct operation *ret,
                                                  struct berth_error *err);
/* A token for the maintenance session of an external installer, as CreateToken makes it: scope
 * install, until expire_ms (wall clock). secret: 64 bytes; to be wiped. It is told by
 * InstallSkill, once, to who queued the operation. Errors: those of CreateToken. */
BERTH_MUST_CHECK enum berth_code operation_make_token(struct skills *skills,
                                                      const struct berth_call *call,
                                                      const struct operation *operation,
                                                      int64_t expire_ms, char secret[64],
                                                      struct berth_error *err);
/* FinishInstallation: a repeat of the same word is fine. Errors: FIELD_INVALID (operation_id):
 * it is none of an external installer; CONFLICT: it does not wait for one now, or another word
 * was said; OPERATION_ENDED. */
BERTH_MUST_CHECK enum berth_code operation_finish(struct skills *skills, const char *tenant,
                                                  const char *operation_id, bool ok,
                                                  const char *message, struct operation *ret,
                                                  struct berth_error *err);
/* Configs of the tenants with something in their queue that nobody carries out; for the janitor
 * and at start. Calls fn for each. */
BERTH_MUST_CHECK enum berth_code
operation_each_waiting(struct skills *skills,
                       void (*fn)(void *arg, const char *tenant, const char *config_id),
                       void *arg, struct berth_error *err);
