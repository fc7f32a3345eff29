/* internal.h - an open journal; for common/journal only. */
#pragma once

#include <pthread.h>

#include "common/journal/frame.h"
#include "common/journal/journal.h"

/* The newest entry of a key. */
struct journal_item {
    char *key;
    bool deleted;
    int64_t time_ms;
    uint64_t sequence;
    size_t offset, sealed_size; /* of what is sealed, in the file */
    char key_id[BERTH_KEY_ID_SIZE];
    struct journal_item *next; /* in the order they came */
};

struct berth_journal {
    char *path;
    const struct berth_keyring *keyring;
    struct journal_head head;
    char id_hex[2 * JOURNAL_ID_SIZE + 1];
    int64_t compact_bytes;
    bool read_only;
    int lock_fd;

    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t synced;
    int fd;
    bool syncing, broken;
    uint64_t sequence, synced_sequence;
    size_t end;        /* where the next frame goes */
    size_t live_bytes; /* of the newest entries */
    void *tree;        /* tsearch: items by key */
    struct journal_item *items, *last_item;
    uint64_t n_appends, n_syncs, n_compactions;
};

/* What an entry is bound to. *ret is owned. */
enum berth_code journal_associated(const struct journal_head *head, uint64_t sequence,
                                   uint8_t **ret, size_t *ret_size, struct berth_error *err);
/* A frame of one entry. *ret is owned. */
enum berth_code journal_seal(const struct berth_keyring *keyring,
                             const struct journal_head *head, uint64_t sequence,
                             const struct journal_entry *entry, uint8_t **ret, size_t *ret_size,
                             struct berth_error *err);
struct journal_item *journal_item_find(struct berth_journal *journal, const char *key);
/* Takes note of an entry if it is the newest of its key. False: no memory. */
bool journal_item_note(struct berth_journal *journal, const struct journal_entry *entry,
                       uint64_t sequence, size_t offset, const uint8_t *sealed,
                       size_t sealed_size);
void journal_items_free(struct berth_journal *journal);
/* What was sealed of an item; with the mutex held. *ret_plain is owned, ret borrows from it. */
enum berth_code journal_item_open(struct berth_journal *journal,
                                  const struct journal_item *item, uint8_t **ret_plain,
                                  size_t *ret_size, struct journal_entry *ret,
                                  struct berth_error *err);

/* All of it, whatever write() takes at once. False: errno. */
bool journal_write_all(int fd, const uint8_t *data, size_t size, size_t offset);
/* The entry of path in its directory is on the disk. */
enum berth_code journal_sync_dir(const char *path, struct berth_error *err);
enum berth_code journal_io_error(const char *what, const char *path, int error,
                                 struct berth_error *err);

/* With the mutex held, and nobody syncing. */
enum berth_code journal_compact(struct berth_journal *journal, const struct berth_keyring *keys,
                                struct berth_error *err);
