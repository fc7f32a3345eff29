/* journal.h - an append-only file of records, sealed under the suite key: what is read back
 * when Redis has lost what only Redis knew (design section 1).
 *
 * One writer per file (a lock beside it), mode 0600. An append returns when it is on the disk;
 * those that come at the same time share one fsync. Only the newest entry of a key counts: by
 * Redis' time, and among equals the one appended later. A deletion is an entry.
 *
 * After a crash: a tail that is not whole was never answered for, and is cut (and told). Bad
 * bytes with good frames behind them, and a last frame that is whole but that nobody vouches
 * for, are damage (or another key by the same id): the file is refused, naming the offset,
 * unless skip_damaged says that what stood there may be lost. A frame under a key that is not
 * there is refused, too, naming the key. A write or fsync that fails is an error to its
 * callers; nothing more is appended until the whole file could be written anew
 * (berth_journal_compact).
 *
 * The file is written anew (beside it, then renamed over it) with the newest entry of each key
 * alone when it has grown to twice that, and under the first key when the keys have changed:
 * no entry then needs an older one. Thread-safe. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/crypto/crypto.h"
#include "common/errors/errors.h"

struct berth_journal;

struct berth_journal_options {
    const char *path;                    /* its directory is made (0700) if only that lacks */
    const char *deployment;              /* whose records these are */
    const struct berth_keyring *keyring; /* borrowed; may change while in use */
    int64_t compact_bytes;               /* never compacted below that; 0: 4 MiB */
    bool skip_damaged;
    bool must_be_new; /* there must be no file yet */
    bool read_only;   /* no lock, nothing is cut; for backups */
};

/* What opening found. */
struct berth_journal_report {
    bool made;        /* there was no file */
    size_t cut_bytes; /* of a torn tail */
    size_t n_damages, lost_bytes;
    size_t n_entries;
};

/* Errors: FIELD_INVALID (journal) for a file that is locked, another deployment's, damaged,
 * sealed under a key that is not there, or no journal; DISK_FULL; OUT_OF_MEMORY. */
BERTH_MUST_CHECK enum berth_code berth_journal_open(const struct berth_journal_options *options,
                                                    struct berth_journal **ret,
                                                    struct berth_journal_report *ret_report,
                                                    struct berth_error *err);
struct berth_journal *berth_journal_free(struct berth_journal *journal);
BERTH_DEFINE_AUTO(struct berth_journal *, berth_journal_free)

struct berth_journal_entry {
    const char *key;
    bool deleted;
    int64_t time_ms;    /* Redis' time; what is appended is never older than what is there */
    const uint8_t *doc; /* frame.h says its form */
    size_t doc_size;
};

/* All of them or none, durable. Errors: DISK_FULL, STORE_UNAVAILABLE (the journal is broken);
 * OUTCOME_UNKNOWN (it may be on the disk, and may not); OUT_OF_MEMORY. */
BERTH_MUST_CHECK enum berth_code berth_journal_append(struct berth_journal *journal,
                                                      const struct berth_journal_entry *entries,
                                                      size_t n, struct berth_error *err);

/* Would an append be tried? Errors: STORE_UNAVAILABLE. */
BERTH_MUST_CHECK enum berth_code berth_journal_check(struct berth_journal *journal,
                                                     struct berth_error *err);

/* The newest entry of key: *ret_doc is owned (wipe what is secret), NULL where there is none or
 * it is deleted. Errors: INTERNAL_BUG, OUT_OF_MEMORY. */
BERTH_MUST_CHECK enum berth_code berth_journal_find(struct berth_journal *journal,
                                                    const char *key, uint8_t **ret_doc,
                                                    size_t *ret_size, int64_t *ret_time_ms,
                                                    struct berth_error *err);

/* Is there one that is not a deletion? */
bool berth_journal_has(struct berth_journal *journal, const char *key);

/* The newest entry of each key, in no order, as it was when the walk began. */
typedef enum berth_code (*berth_journal_fn)(void *arg, const struct berth_journal_entry *entry,
                                            struct berth_error *err);
BERTH_MUST_CHECK enum berth_code berth_journal_walk(struct berth_journal *journal,
                                                    berth_journal_fn fn, void *arg,
                                                    struct berth_error *err);

/* Write the file anew; with next (NULL: the journal's own keys) sealed under its first key.
 * Errors: as of append. */
BERTH_MUST_CHECK enum berth_code berth_journal_compact(struct berth_journal *journal,
                                                       const struct berth_keyring *next,
                                                       struct berth_error *err);

struct berth_journal_count {
    size_t n_live, n_deleted;
    int64_t bytes;
    uint64_t n_appends, n_syncs, n_compactions;
    bool broken;
    /* Entries by the key they are sealed under. */
    size_t n_keys;
    struct {
        char key_id[BERTH_KEY_ID_SIZE];
        size_t n;
    } keys[BERTH_KEYS_MAX + 1];
};
void berth_journal_count(struct berth_journal *journal, struct berth_journal_count *ret);
/* 32 hex digits: names this journal for its whole life. */
const char *berth_journal_id(const struct berth_journal *journal);
