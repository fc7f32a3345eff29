/* records_impl.h - for common/journal only. */
#pragma once

#include <pthread.h>

#include "common/journal/records.h"
#include "common/records/keys.h"
#include "common/records/token_doc.h"

enum { RECORDS_ID_MAX = 128 };
#define RECORDS_DEPLOYMENT_TENANT BERTH_DEPLOYMENT_TENANT

struct berth_records {
    struct berth_redis *redis;
    const struct berth_keyring *keyring;
    struct berth_journal *journal; /* NULL: none */
    char deployment[65];
    char name[64];
    int64_t look_ms, check_ms;
    pthread_t thread;
    bool running;

    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t wake;
    bool stopping, due;
    bool recovering;
    uint64_t n_restored, n_checked;

    /* Of the thread alone. */
    char epoch[32];    /* as last seen; "": not yet, or lost */
    int64_t n_members; /* journals that were registered when we last looked */
};

/* What a journal's key is. */
enum record_kind {
    RECORD_OTHER, /* none of Redis' documents */
    RECORD_TENANT,
    RECORD_CONFIG,
    RECORD_INBOUND,
    RECORD_JOURNALS,
};
/* The parts of a key; "" where it has none. */
enum record_kind record_kind_of(const char *key, char tenant[RECORDS_ID_MAX + 1],
                                char id[RECORDS_ID_MAX + 1]);
const char *record_key_gone(char *buf, const char *tenant);

/* What is to be done with a document of Redis, given the newest entry of one journal. Pure.
 * restored: the field of that name, "<ms> <rev>", which a live write leaves behind; gone_ms:
 * when it was marked as gone; 0: it is not. */
enum record_do { RECORD_LEAVE, RECORD_WRITE, RECORD_REMOVE };
enum record_do record_judge(bool exists, const char *rev, const char *restored, int64_t gone_ms,
                            bool entry_deleted, int64_t entry_ms);

/* One command whose answer is read; an answer that did not come is STORE_UNAVAILABLE. */
enum berth_code record_call(struct berth_redis *redis, struct berth_reply **ret,
                            struct berth_error *err, ...) BERTH_SENTINEL;

/* A store that is nobody's has nothing in it but what our own processes write when it is
 * emptied under them. */
bool record_is_emptied(struct berth_redis *redis);
/* Put one entry back. *ret_wrote: something was written. */
enum berth_code record_restore(struct berth_redis *redis,
                               const struct berth_journal_entry *entry, bool *ret_wrote,
                               struct berth_error *err);
/* What was put back while the index counts as whole: a config is listed before its tenant's new
 * sessions are made. */
enum berth_code record_mark_late(struct berth_redis *redis, const char *key,
                                 struct berth_error *err);
/* A recovery has begun, if it had not. */
enum berth_code records_begin(struct berth_redis *redis, struct berth_error *err);
/* All of the journal, and that it is done. */
enum berth_code records_restore(struct berth_records *records, struct berth_error *err);
/* Register the journal, and journal who is registered. */
enum berth_code records_register(struct berth_records *records, struct berth_error *err);

/* Calls fn with the key of every record there is in Redis, and its rev. */
typedef enum berth_code (*record_fn)(void *arg, const char *key, const char *rev,
                                     struct berth_error *err);
enum berth_code records_walk(struct berth_redis *redis, record_fn fn, void *arg,
                             struct berth_error *err);
/* The documents at keys, whole, as entries: read in a later millisecond than after_ms. */
enum berth_code records_append(struct berth_redis *redis, struct berth_journal *journal,
                               const char *const *keys, size_t n_keys, int64_t after_ms,
                               struct berth_error *err);
