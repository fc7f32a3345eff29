/* records.h - records in Redis, and their journal: what each writer of records (controlplane,
 * skills) does besides the compare-and-set itself.
 *
 * Order: compare-and-set, then the documents are read back whole with Redis' time, then they
 * are appended, then the caller is answered. A journal that went first would tell of writes
 * that were refused, at a time that nobody knows. Crash points: before the compare-and-set
 * nothing has happened. Between it and the append nobody was answered; Redis has the record,
 * and if Redis keeps it for a minute the check below (of this process after its restart, or of
 * any other writer) appends it. After the append it outlives Redis. An append that fails makes
 * the answer OUTCOME_UNKNOWN, and the check tries again.
 *
 * An entry is the whole document as Redis had it in a later millisecond than the write, so two
 * journals can only have entries of equal time that say the same: "the newest wins" needs no
 * tie-break. A deletion leaves a mark in Redis (berth:{tenant}:gone, in the same
 * compare-and-set as the DEL), for absence is not a fact: a record that the journal has and
 * Redis does not is taken for deleted only with the mark, and put back without it.
 *
 * A thread looks once a second at berth:epoch and once a minute, while it is there, at every
 * record: all journals have everything in the end, whoever wrote it. While the epoch is missing
 * it puts back what its journal has (restore.c). */
#pragma once

#include "common/journal/journal.h"
#include "common/redis/redis.h"

struct berth_records;

/* As settings of a service. Borrowed. */
struct berth_records_options {
    struct berth_redis *redis;
    const struct berth_keyring *keyring;
    const char *deployment;
    const char *name; /* of the process, for people */
    const char *path; /* of the journal; "": none, and a warning */
    bool skip_damaged;
    int64_t look_ms;  /* 0: 1 s */
    int64_t check_ms; /* 0: 60 s */
};

/* Opens the journal. Does not ask Redis. Errors: FIELD_INVALID (journal); DISK_FULL. */
BERTH_MUST_CHECK enum berth_code berth_records_new(const struct berth_records_options *options,
                                                   struct berth_records **ret,
                                                   struct berth_error *err);
/* Starts the thread. Errors: OVERLOADED. */
BERTH_MUST_CHECK enum berth_code berth_records_start(struct berth_records *records,
                                                     struct berth_error *err);
struct berth_records *berth_records_free(struct berth_records *records);
BERTH_DEFINE_AUTO(struct berth_records *, berth_records_free)

/* Like berth_deployment_check(); but a store with nothing of its own is taken for one that lost
 * it where there is a journal with records in it, and gets its deployment's id back. Errors:
 * FIELD_INVALID (deployment); STORE_UNAVAILABLE. */
BERTH_MUST_CHECK enum berth_code berth_records_claim(struct berth_records *records,
                                                     struct berth_error *err);

/* A durable compare-and-set that changes the records at keys (all of one tenant), and is
 * journaled. Errors: as of berth_cas_run(); nothing was written: INDEX_RECOVERING while the
 * index is lost, STORE_UNAVAILABLE while the journal is broken; OUTCOME_UNKNOWN where it could
 * not be journaled. */
BERTH_MUST_CHECK enum berth_code berth_records_run(struct berth_records *records,
                                                   struct berth_cas *cas,
                                                   const char *const *keys, size_t n_keys,
                                                   bool *ret_applied, struct berth_error *err);
/* Add to a compare-and-set that DELs config_id's document, or makes it: that it is gone, or is
 * there again. */
void berth_records_mark_gone(struct berth_cas *cas, const char *tenant, const char *config_id);
void berth_records_mark_there(struct berth_cas *cas, const char *tenant, const char *config_id);

/* A record that is in no document of Redis (an inbound token), as of time_ms by Redis' clock:
 * one fsync. doc NULL: it is not needed any more. Errors: as of berth_journal_append(). */
BERTH_MUST_CHECK enum berth_code berth_records_keep(struct berth_records *records,
                                                    const char *key,
                                                    const struct berth_doc *doc,
                                                    int64_t time_ms, struct berth_error *err);

/* From now on under next, which is taken: the journal is written anew under its first key
 * before keyring, which the records were made with, holds it. Errors: as of compact. */
BERTH_MUST_CHECK enum berth_code berth_records_rekey(struct berth_records *records,
                                                     struct berth_keyring *keyring,
                                                     struct berth_keyring *next,
                                                     struct berth_error *err);
/* The same where keyring has changed already. */
BERTH_MUST_CHECK enum berth_code berth_records_reseal(struct berth_records *records,
                                                      struct berth_error *err);

/* Look and check now, on the caller's thread; for tests and for what cannot wait. */
BERTH_MUST_CHECK enum berth_code berth_records_check(struct berth_records *records,
                                                     struct berth_error *err);

/* Prometheus text; owned. NULL: no memory. */
char *berth_records_metrics(struct berth_records *records);

/* ------------------------------------------------------------------- recovery */

/* HASH, there while the index is being recovered: lost_ms (Redis' time of the first look that
 * found it lost), writer:<journal> (its name; every journal known to any of them),
 * restored:<journal> (Redis' time at which all it had was put back). */
#define BERTH_KEY_RECOVERY "berth:recovery"
/* HASH of the writers' journals: id -> JSON: name, seen_ms, keys (ids of suite keys). */
#define BERTH_KEY_JOURNALS "berth:journals"
/* Of a tenant's document: Redis' time of the loss. */
#define BERTH_FIELD_RECOVERING "recovering"

/* Are all journals read back? *ret_missing names one that is not. Also false before anybody has
 * begun. Errors: STORE_UNAVAILABLE. */
BERTH_MUST_CHECK enum berth_code berth_recovery_read_back(struct berth_redis *redis,
                                                          bool *ret_done, int64_t *ret_lost_ms,
                                                          char ret_missing[128],
                                                          struct berth_error *err);
/* By the operator: the journal of this id will not come back; or, "<tenant>/<config>", this
 * config's backend will not. Errors: FIELD_INVALID where nobody waits for it. */
BERTH_MUST_CHECK enum berth_code
berth_recovery_without(struct berth_redis *redis, const char *what, struct berth_error *err);
/* A config could not be listed: its tenant's sessions without a record are not made until it
 * was. And it was. */
BERTH_MUST_CHECK enum berth_code berth_recovery_mark(struct berth_redis *redis,
                                                     const char *tenant, const char *config_id,
                                                     bool recovering, struct berth_error *err);
/* SET of "<tenant>/<config>" that are marked. */
#define BERTH_KEY_UNLISTED "berth:recovery:unlisted"

/* -------------------------------------------------------------------- backups */

struct berth_backup_count {
    size_t n_tenants, n_configs, n_tokens, n_other;
};
/* Every record into a new file, a journal under the suite key. Errors: FIELD_INVALID (export)
 * where there is such a file; INDEX_RECOVERING; STORE_UNAVAILABLE; DISK_FULL. */
BERTH_MUST_CHECK enum berth_code berth_records_export(struct berth_redis *redis,
                                                      const struct berth_keyring *keyring,
                                                      const char *deployment, const char *path,
                                                      struct berth_backup_count *ret,
                                                      struct berth_error *err);
/* And back, from a backup or from any writer's journal. The store must be empty, unless over
 * says that what is there may be written over. Then the index counts as lost: it is recovered
 * by the running suite. Errors: FIELD_INVALID (import). */
BERTH_MUST_CHECK enum berth_code berth_records_import(struct berth_redis *redis,
                                                      const struct berth_keyring *keyring,
                                                      const char *deployment, const char *path,
                                                      bool over, struct berth_backup_count *ret,
                                                      struct berth_error *err);
