/* compact.c - the whole file anew: the newest entry of each key, beside the old one, then over
 * it. Before the rename the old file is all there; after it the new one is. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "common/journal/internal.h"

/* How long a deletion must be remembered: by then every writer's journal has learnt of it. */
#define DELETED_KEPT_MS ((int64_t)90 * 24 * 3600 * 1000)

/* Where each item is in the new file. */
struct moved {
    uint64_t sequence;
    size_t offset, sealed_size;
    char key_id[BERTH_KEY_ID_SIZE];
};

struct rewrite {
    struct berth_journal *journal;
    const struct berth_keyring *keyring;
    struct journal_head head;
    const char *path;
    int fd;
    size_t end;
    uint64_t sequence;
    struct moved *moved;
};

static int64_t newest(const struct berth_journal *journal)
{
    int64_t time_ms = 0;

    for (const struct journal_item *item = journal->items; item; item = item->next)
        if (item->time_ms > time_ms)
            time_ms = item->time_ms;
    return time_ms;
}

static enum berth_code rewrite_item(struct rewrite *r, const struct journal_item *item,
                                    struct moved *moved, struct berth_error *err)
{
    BERTH_AUTO(free) uint8_t *frame = NULL;
    struct journal_entry entry;
    uint8_t *plain;
    size_t plain_size, size;
    enum berth_code code =
        journal_item_open(r->journal, item, &plain, &plain_size, &entry, err);

    if (code)
        return code;
    entry.time_ms = item->time_ms;
    code = journal_seal(r->keyring, &r->head, r->sequence + 1, &entry, &frame, &size, err);
    berth_wipe(plain, plain_size);
    free(plain);
    if (code)
        return code;
    if (!journal_write_all(r->fd, frame, size, r->end))
        return journal_io_error("write", r->path, errno, err);
    *moved = (struct moved){.sequence = ++r->sequence,
                            .offset = r->end + JOURNAL_FRAME_HEAD,
                            .sealed_size = size - JOURNAL_FRAME_HEAD};
    (void)berth_sealed_key_id(frame + JOURNAL_FRAME_HEAD, size - JOURNAL_FRAME_HEAD,
                              moved->key_id);
    r->end += size;
    return BERTH_OK;
}

static enum berth_code rewrite_all(struct rewrite *r, struct berth_error *err)
{
    int64_t oldest = newest(r->journal) - DELETED_KEPT_MS;
    uint8_t head[JOURNAL_HEAD_SIZE];
    size_t i = 0;
    enum berth_code code = BERTH_OK;

    journal_head_write(head, &r->head);
    if (!journal_write_all(r->fd, head, sizeof head, 0))
        return journal_io_error("write", r->path, errno, err);
    r->end = sizeof head;
    for (const struct journal_item *item = r->journal->items; item && !code;
         item = item->next, i++)
        if (!item->deleted || item->time_ms >= oldest)
            code = rewrite_item(r, item, &r->moved[i], err);
    if (!code && fsync(r->fd) < 0)
        code = journal_io_error("fsync", r->path, errno, err);
    return code;
}

/* The new file is the journal from here on. */
static void take_over(struct rewrite *r)
{
    struct berth_journal *journal = r->journal;
    size_t i = 0;

    if (journal->fd >= 0)
        close(journal->fd);
    journal->fd = r->fd;
    journal->head = r->head;
    journal->end = r->end;
    journal->sequence = journal->synced_sequence = r->sequence;
    journal->live_bytes = 0;
    journal->broken = false;
    journal->n_compactions++;
    for (struct journal_item *item = journal->items; item; item = item->next, i++) {
        const struct moved *moved = &r->moved[i];

        /* A deletion that is forgotten stays as an item until the journal is opened again; it
         * has no place in the file, and needs none. */
        item->sequence = moved->sequence;
        item->offset = moved->offset;
        item->sealed_size = moved->sealed_size;
        memcpy(item->key_id, moved->key_id, sizeof item->key_id);
        if (moved->sequence)
            journal->live_bytes += JOURNAL_FRAME_HEAD + moved->sealed_size;
    }
    pthread_cond_broadcast(&journal->synced);
}

static size_t count_items(const struct berth_journal *journal)
{
    size_t n = 0;

    for (const struct journal_item *item = journal->items; item; item = item->next)
        n++;
    return n;
}

enum berth_code journal_compact(struct berth_journal *journal, const struct berth_keyring *keys,
                                struct berth_error *err)
{
    BERTH_AUTO(free) char *path = NULL;
    BERTH_AUTO(free) struct moved *moved = calloc(count_items(journal) + 1, sizeof *moved);
    struct rewrite r = {.journal = journal, .keyring = keys, .head = journal->head};
    enum berth_code code;

    if (!moved || asprintf(&path, "%s.new", journal->path) < 0)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    r.path = path;
    r.moved = moved;
    /* The sequence goes on: a frame of the old file is none of the new one. */
    r.head.base = r.sequence = journal->sequence + 1;
    r.fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (r.fd < 0)
        return journal_io_error("open", path, errno, err);
    code = fchmod(r.fd, 0600) < 0 ? journal_io_error("chmod", path, errno, err)
                                  : rewrite_all(&r, err);
    if (!code && rename(path, journal->path) < 0)
        code = journal_io_error("rename", path, errno, err);
    if (code) {
        (void)unlink(path);
        close(r.fd);
        return code;
    }
    take_over(&r);
    code = journal_sync_dir(journal->path, err);
    if (code)
        journal->broken = true; /* after a crash the old file might be there */
    return code;
}
