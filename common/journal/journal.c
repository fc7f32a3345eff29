#include "common/journal/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "common/ids/ids.h"
#include "common/journal/internal.h"

enum { COMPACT_BYTES = 4 << 20 };

/* ------------------------------------------------------------------------ files */

enum berth_code journal_io_error(const char *what, const char *path, int error,
                                 struct berth_error *err)
{
    enum berth_reason reason = error == ENOSPC || error == EDQUOT
                                   ? BERTH_REASON_DISK_FULL
                                   : BERTH_REASON_STORE_UNAVAILABLE;

    return berth_fail(err, reason, "journal %s: %s: %s", path, what, strerror(error));
}

static enum berth_code refuse(const struct berth_journal *journal, struct berth_error *err,
                              const char *why)
{
    return berth_fail_field(err, "journal", "%s: %s", journal->path, why);
}

bool journal_write_all(int fd, const uint8_t *data, size_t size, size_t offset)
{
    size_t done = 0;

    while (done < size) {
        ssize_t n = pwrite(fd, data + done, size - done, (off_t)(offset + done));

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

static char *directory_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    if (!slash)
        return strdup(".");
    return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

enum berth_code journal_sync_dir(const char *path, struct berth_error *err)
{
    BERTH_AUTO(free) char *name = directory_of(path);
    BERTH_AUTO(close) int fd = name ? open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

    if (fd < 0 || fsync(fd) < 0)
        return journal_io_error("fsync of its directory", path, errno, err);
    return BERTH_OK;
}

/* The lock stands beside the file, which is replaced now and then. */
static enum berth_code take_lock(struct berth_journal *journal, struct berth_error *err)
{
    BERTH_AUTO(free) char *dir = directory_of(journal->path);
    BERTH_AUTO(free) char *name = NULL;

    if (!dir || asprintf(&name, "%s.lock", journal->path) < 0)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (mkdir(dir, 0700) < 0 && errno != EEXIST)
        return refuse(journal, err, strerror(errno));
    journal->lock_fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (journal->lock_fd < 0)
        return refuse(journal, err, strerror(errno));
    if (flock(journal->lock_fd, LOCK_EX | LOCK_NB) < 0)
        return refuse(journal, err,
                      errno == EWOULDBLOCK ? "another process writes it" : strerror(errno));
    return BERTH_OK;
}

static enum berth_code make_file(struct berth_journal *journal, const char *deployment,
                                 struct berth_error *err)
{
    berth_random(journal->head.id, sizeof journal->head.id);
    snprintf(journal->head.deployment, sizeof journal->head.deployment, "%s", deployment);
    return journal_compact(journal, journal->keyring, err);
}

/* ------------------------------------------------------------------------- read */

static enum journal_opened open_frame(void *arg, const struct journal_frame *frame,
                                      uint8_t **ret, size_t *ret_size)
{
    struct berth_journal *journal = arg;
    BERTH_AUTO(free) uint8_t *associated = NULL;
    struct berth_error err = {0};
    char key_id[BERTH_KEY_ID_SIZE];
    size_t associated_size;

    if (!berth_sealed_key_id(frame->sealed, frame->sealed_size, key_id))
        return JOURNAL_CHANGED;
    if (!berth_keyring_has(journal->keyring, key_id))
        return JOURNAL_NO_KEY;
    if (journal_associated(&journal->head, frame->sequence, &associated, &associated_size,
                           NULL))
        return JOURNAL_NO_MEMORY;
    if (berth_open_sealed(journal->keyring, frame->sealed, frame->sealed_size, associated,
                          associated_size, ret, ret_size, &err))
        return err.reason == BERTH_REASON_OUT_OF_MEMORY ? JOURNAL_NO_MEMORY : JOURNAL_CHANGED;
    return JOURNAL_OPENED;
}

static bool note_frame(void *arg, const struct journal_frame *frame,
                       const struct journal_entry *entry)
{
    return journal_item_note(arg, entry, frame->sequence, frame->offset + JOURNAL_FRAME_HEAD,
                             frame->sealed, frame->sealed_size);
}

static enum berth_code judge(struct berth_journal *journal, const uint8_t *data,
                             const struct journal_scan *scan, struct berth_error *err)
{
    char key_id[BERTH_KEY_ID_SIZE] = "";

    switch (scan->state) {
    case JOURNAL_WHOLE:
    case JOURNAL_TORN:
        return BERTH_OK;
    case JOURNAL_DAMAGED:
        return berth_fail_field(err, "journal",
                                "%s: damaged at offset %zu (%zu bytes), or sealed under "
                                "another key of the same id; journal_skip_damaged leaves out "
                                "for ever what stands there",
                                journal->path, scan->at, scan->lost_bytes);
    case JOURNAL_LOCKED:
        (void)berth_sealed_key_id(data + scan->at + JOURNAL_FRAME_HEAD, BERTH_KEY_ID_SIZE + 64,
                                  key_id);
        return berth_fail_field(err, "journal",
                                "%s: the entry at offset %zu is sealed under key '%s', which "
                                "is not among the suite's keys",
                                journal->path, scan->at, key_id);
    case JOURNAL_FAILED:
        break;
    }
    return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

static enum berth_code scan_file(struct berth_journal *journal, const uint8_t *data,
                                 size_t size, const struct berth_journal_options *options,
                                 struct berth_journal_report *report, struct berth_error *err)
{
    const struct journal_reader reader = {journal, open_frame, note_frame};
    struct journal_scan scan;
    enum berth_code code;

    if (!journal_head_read(data, size, &journal->head))
        return refuse(journal, err, "not a journal");
    if (strcmp(journal->head.deployment, options->deployment) != 0)
        return berth_fail_field(err, "journal", "%s: belongs to deployment '%s'", journal->path,
                                journal->head.deployment);
    journal_scan(data, size, journal->head.base, &reader, options->skip_damaged, &scan);
    code = judge(journal, data, &scan, err);
    journal->sequence = journal->synced_sequence = scan.sequence;
    journal->end = scan.end;
    report->cut_bytes = size - scan.end;
    report->n_damages = scan.n_damages;
    report->lost_bytes = scan.lost_bytes;
    report->n_entries = scan.n_frames;
    return code;
}

static enum berth_code read_file(struct berth_journal *journal,
                                 const struct berth_journal_options *options,
                                 struct berth_journal_report *report, struct berth_error *err)
{
    struct stat st;
    void *data;
    enum berth_code code;

    if (fstat(journal->fd, &st) < 0)
        return refuse(journal, err, strerror(errno));
    if (!S_ISREG(st.st_mode) || st.st_size < JOURNAL_HEAD_SIZE)
        return refuse(journal, err, "not a journal");
    if (st.st_mode & (S_IRWXG | S_IRWXO))
        return refuse(journal, err, "others may read it; chmod it to 0600");
    data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, journal->fd, 0);
    if (data == MAP_FAILED)
        return refuse(journal, err, strerror(errno));
    code = scan_file(journal, data, (size_t)st.st_size, options, report, err);
    munmap(data, (size_t)st.st_size);
    if (code || options->read_only)
        return code;
    if (report->cut_bytes > 0 &&
        (ftruncate(journal->fd, (off_t)journal->end) < 0 || fsync(journal->fd) < 0))
        return journal_io_error("cut", journal->path, errno, err);
    /* What could not be read is not to be met again. */
    return report->n_damages > 0 ? journal_compact(journal, journal->keyring, err) : BERTH_OK;
}

enum berth_code berth_journal_open(const struct berth_journal_options *options,
                                   struct berth_journal **ret,
                                   struct berth_journal_report *ret_report,
                                   struct berth_error *err)
{
    BERTH_AUTO(berth_journal_free) struct berth_journal *journal = calloc(1, sizeof *journal);
    struct berth_journal_report report = {0};
    enum berth_code code = BERTH_OK;

    if (!journal)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    journal->fd = journal->lock_fd = -1;
    pthread_mutex_init(&journal->mutex, NULL);
    pthread_cond_init(&journal->synced, NULL);
    journal->keyring = options->keyring;
    journal->read_only = options->read_only;
    journal->compact_bytes = options->compact_bytes ? options->compact_bytes : COMPACT_BYTES;
    journal->path = strdup(options->path);
    if (!journal->path)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (!options->read_only)
        code = take_lock(journal, err);
    if (code)
        return code;
    journal->fd =
        open(journal->path, (options->read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NOFOLLOW);
    if (journal->fd >= 0 && options->must_be_new)
        return refuse(journal, err, "there is such a file already");
    report.made = journal->fd < 0;
    if (journal->fd >= 0)
        code = read_file(journal, options, &report, err);
    else if (errno == ENOENT && !options->read_only)
        code = make_file(journal, options->deployment, err);
    else
        code = refuse(journal, err, strerror(errno));
    if (code)
        return code;
    for (size_t i = 0; i < JOURNAL_ID_SIZE; i++)
        snprintf(journal->id_hex + 2 * i, 3, "%02x", journal->head.id[i]);
    if (ret_report)
        *ret_report = report;
    *ret = BERTH_STEAL(journal);
    return BERTH_OK;
}

struct berth_journal *berth_journal_free(struct berth_journal *journal)
{
    if (!journal)
        return NULL;
    journal_items_free(journal);
    if (journal->fd >= 0)
        close(journal->fd);
    if (journal->lock_fd >= 0)
        close(journal->lock_fd);
    pthread_cond_destroy(&journal->synced);
    pthread_mutex_destroy(&journal->mutex);
    free(journal->path);
    free(journal);
    return NULL;
}

const char *berth_journal_id(const struct berth_journal *journal)
{
    return journal->id_hex;
}

/* ----------------------------------------------------------------------- append */

static enum berth_code broken(const struct berth_journal *journal, struct berth_error *err)
{
    return berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE,
                      "journal %s: a write failed, and it could not be written anew yet",
                      journal->path);
}

enum berth_code berth_journal_check(struct berth_journal *journal, struct berth_error *err)
{
    bool is_broken;

    pthread_mutex_lock(&journal->mutex);
    is_broken = journal->broken;
    pthread_mutex_unlock(&journal->mutex);
    return is_broken ? broken(journal, err) : BERTH_OK;
}

struct batch {
    uint8_t *data;
    size_t size;
    struct batch_frame {
        struct journal_entry entry;
        size_t at, size; /* of the frame, in data */
    } * frames;
};

static void batch_deinit(struct batch *batch)
{
    free(batch->data);
    free(batch->frames);
}

static enum berth_code add_frame(struct berth_journal *journal, struct batch *batch, size_t i,
                                 const struct berth_journal_entry *from,
                                 struct berth_error *err)
{
    const struct journal_item *before = journal_item_find(journal, from->key);
    struct journal_entry *entry = &batch->frames[i].entry;
    BERTH_AUTO(free) uint8_t *frame = NULL;
    size_t size;
    uint8_t *more;
    enum berth_code code;

    *entry = (struct journal_entry){.deleted = from->deleted,
                                    .time_ms = from->time_ms,
                                    .key = from->key,
                                    .key_size = strlen(from->key),
                                    .doc = from->doc,
                                    .doc_size = from->deleted ? 0 : from->doc_size};
    /* Redis' clock went back: what is appended is newer all the same. */
    if (before && entry->time_ms < before->time_ms)
        entry->time_ms = before->time_ms + 1;
    code = journal_seal(journal->keyring, &journal->head, journal->sequence + 1 + i, entry,
                        &frame, &size, err);
    if (code)
        return code;
    more = realloc(batch->data, batch->size + size);
    if (!more)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    batch->data = more;
    memcpy(batch->data + batch->size, frame, size);
    batch->frames[i].at = batch->size;
    batch->frames[i].size = size;
    batch->size += size;
    return BERTH_OK;
}

/* With the mutex held. */
static enum berth_code write_batch(struct berth_journal *journal,
                                   const struct berth_journal_entry *entries, size_t n,
                                   struct berth_error *err)
{
    struct batch batch = {.frames = calloc(n, sizeof *batch.frames)};
    enum berth_code code =
        batch.frames ? BERTH_OK : berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);

    for (size_t i = 0; !code && i < n; i++)
        code = add_frame(journal, &batch, i, &entries[i], err);
    if (!code && !journal_write_all(journal->fd, batch.data, batch.size, journal->end)) {
        code = journal_io_error("write", journal->path, errno, err);
        if (ftruncate(journal->fd, (off_t)journal->end) < 0)
            journal->broken = true; /* half a frame in its way */
    }
    for (size_t i = 0; !code && i < n; i++) {
        const struct batch_frame *frame = &batch.frames[i];

        if (!journal_item_note(journal, &frame->entry, journal->sequence + 1 + i,
                               journal->end + frame->at + JOURNAL_FRAME_HEAD,
                               batch.data + frame->at + JOURNAL_FRAME_HEAD,
                               frame->size - JOURNAL_FRAME_HEAD)) {
            journal->broken = true; /* it is in the file, and not among the items */
            code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        }
    }
    if (!code) {
        journal->sequence += n;
        journal->end += batch.size;
    }
    batch_deinit(&batch);
    return code;
}

/* With the mutex held: one syncs for all that were written by then, the others wait. */
static void sync_up_to(struct berth_journal *journal, uint64_t sequence)
{
    while (journal->synced_sequence < sequence && !journal->broken) {
        uint64_t upto = journal->sequence;
        int fd = journal->fd, status;

        if (journal->syncing) {
            pthread_cond_wait(&journal->synced, &journal->mutex);
            continue;
        }
        journal->syncing = true;
        pthread_mutex_unlock(&journal->mutex);
        status = fdatasync(fd);
        pthread_mutex_lock(&journal->mutex);
        journal->syncing = false;
        journal->n_syncs++;
        if (status < 0)
            journal->broken = true; /* what the kernel has dropped cannot be known */
        else if (journal->synced_sequence < upto)
            journal->synced_sequence = upto;
        pthread_cond_broadcast(&journal->synced);
    }
}

static void wait_for_sync(struct berth_journal *journal)
{
    while (journal->syncing)
        pthread_cond_wait(&journal->synced, &journal->mutex);
}

/* Not being able to is not the appender's failure: what it wrote is on the disk. */
static void compact_if_large(struct berth_journal *journal)
{
    if ((int64_t)journal->end < journal->compact_bytes ||
        journal->end < JOURNAL_HEAD_SIZE + 2 * journal->live_bytes)
        return;
    wait_for_sync(journal);
    if (!journal->broken && (int64_t)journal->end >= journal->compact_bytes &&
        journal->end >= JOURNAL_HEAD_SIZE + 2 * journal->live_bytes)
        (void)journal_compact(journal, journal->keyring, NULL);
}

enum berth_code berth_journal_append(struct berth_journal *journal,
                                     const struct berth_journal_entry *entries, size_t n,
                                     struct berth_error *err)
{
    uint64_t sequence;
    enum berth_code code;

    if (n == 0)
        return BERTH_OK;
    pthread_mutex_lock(&journal->mutex);
    code = journal->broken ? broken(journal, err) : write_batch(journal, entries, n, err);
    if (!code) {
        sequence = journal->sequence;
        journal->n_appends += n;
        sync_up_to(journal, sequence);
        if (journal->synced_sequence < sequence)
            code = berth_fail(err, BERTH_REASON_OUTCOME_UNKNOWN,
                              "journal %s: fsync failed: it may be kept, and may not",
                              journal->path);
        else
            compact_if_large(journal);
    }
    pthread_mutex_unlock(&journal->mutex);
    return code;
}

enum berth_code berth_journal_compact(struct berth_journal *journal,
                                      const struct berth_keyring *next, struct berth_error *err)
{
    enum berth_code code;

    pthread_mutex_lock(&journal->mutex);
    wait_for_sync(journal);
    code = journal_compact(journal, next ? next : journal->keyring, err);
    pthread_mutex_unlock(&journal->mutex);
    return code;
}

/* ------------------------------------------------------------------------- ask */

enum berth_code berth_journal_find(struct berth_journal *journal, const char *key,
                                   uint8_t **ret_doc, size_t *ret_size, int64_t *ret_time_ms,
                                   struct berth_error *err)
{
    const struct journal_item *item;
    struct journal_entry entry;
    uint8_t *plain = NULL;
    size_t size = 0;
    enum berth_code code = BERTH_OK;

    *ret_doc = NULL;
    *ret_size = 0;
    pthread_mutex_lock(&journal->mutex);
    item = journal_item_find(journal, key);
    *ret_time_ms = item ? item->time_ms : 0;
    if (item && !item->deleted)
        code = journal_item_open(journal, item, &plain, &size, &entry, err);
    pthread_mutex_unlock(&journal->mutex);
    if (code || !plain)
        return code;
    memmove(plain, entry.doc, entry.doc_size);
    *ret_doc = plain;
    *ret_size = entry.doc_size;
    return BERTH_OK;
}

bool berth_journal_has(struct berth_journal *journal, const char *key)
{
    const struct journal_item *item;
    bool has;

    pthread_mutex_lock(&journal->mutex);
    item = journal_item_find(journal, key);
    has = item && !item->deleted;
    pthread_mutex_unlock(&journal->mutex);
    return has;
}

static enum berth_code walk_one(struct berth_journal *journal, const char *key,
                                berth_journal_fn fn, void *arg, struct berth_error *err)
{
    struct berth_journal_entry entry = {.key = key};
    uint8_t *doc;
    enum berth_code code =
        berth_journal_find(journal, key, &doc, &entry.doc_size, &entry.time_ms, err);

    if (code)
        return code;
    entry.deleted = !doc;
    entry.doc = doc;
    code = fn(arg, &entry, err);
    berth_wipe(doc, entry.doc_size);
    free(doc);
    return code;
}

enum berth_code berth_journal_walk(struct berth_journal *journal, berth_journal_fn fn,
                                   void *arg, struct berth_error *err)
{
    const struct journal_item *item, *last;
    enum berth_code code = BERTH_OK;

    pthread_mutex_lock(&journal->mutex);
    item = journal->items;
    last = journal->last_item;
    pthread_mutex_unlock(&journal->mutex);
    while (item && !code) { /* items are never freed while it is open, and keep their keys */
        bool done = item == last;

        code = walk_one(journal, item->key, fn, arg, err);
        item = done ? NULL : item->next;
    }
    return code;
}

void berth_journal_count(struct berth_journal *journal, struct berth_journal_count *ret)
{
    *ret = (struct berth_journal_count){0};
    pthread_mutex_lock(&journal->mutex);
    for (const struct journal_item *item = journal->items; item; item = item->next) {
        size_t k = 0;

        item->deleted ? ret->n_deleted++ : ret->n_live++;
        while (k < ret->n_keys && strcmp(ret->keys[k].key_id, item->key_id) != 0)
            k++;
        if (k == BERTH_COUNT(ret->keys))
            k--; /* more keys than there can be: the last one counts for all */
        if (k == ret->n_keys) {
            memcpy(ret->keys[k].key_id, item->key_id, sizeof item->key_id);
            ret->n_keys++;
        }
        ret->keys[k].n++;
    }
    ret->bytes = (int64_t)journal->end;
    ret->n_appends = journal->n_appends;
    ret->n_syncs = journal->n_syncs;
    ret->n_compactions = journal->n_compactions;
    ret->broken = journal->broken;
    pthread_mutex_unlock(&journal->mutex);
}
