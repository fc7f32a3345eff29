/* item.c - the newest entry of each key, and how an entry is sealed and opened. */
#include <errno.h>
#include <search.h>
#include <stdio.h>

#include "common/journal/internal.h"
#include "common/records/target.h"

/* -------------------------------------------------------------------- seal, open */

enum berth_code journal_associated(const struct journal_head *head, uint64_t sequence,
                                   uint8_t **ret, size_t *ret_size, struct berth_error *err)
{
    char id[2 * JOURNAL_ID_SIZE + 1], number[24];
    const char *const parts[] = {"journal", head->deployment, id, number};

    for (size_t i = 0; i < JOURNAL_ID_SIZE; i++)
        snprintf(id + 2 * i, 3, "%02x", head->id[i]);
    snprintf(number, sizeof number, "%llu", (unsigned long long)sequence);
    return berth_associated(parts, BERTH_COUNT(parts), ret, ret_size, err);
}

enum berth_code journal_seal(const struct berth_keyring *keyring,
                             const struct journal_head *head, uint64_t sequence,
                             const struct journal_entry *entry, uint8_t **ret, size_t *ret_size,
                             struct berth_error *err)
{
    BERTH_AUTO(free) uint8_t *associated = NULL;
    BERTH_AUTO(free) uint8_t *sealed = NULL;
    size_t plain_size, sealed_size, associated_size;
    uint8_t *plain = journal_entry_write(entry, &plain_size), *frame;
    enum berth_code code;

    if (!plain)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, "no room for a journal's entry");
    code = journal_associated(head, sequence, &associated, &associated_size, err);
    if (!code)
        code = berth_seal(keyring, plain, plain_size, associated, associated_size, &sealed,
                          &sealed_size, err);
    berth_wipe(plain, plain_size);
    free(plain);
    if (code)
        return code;
    frame = malloc(JOURNAL_FRAME_HEAD + sealed_size);
    if (!frame)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    journal_frame_head_write(frame, sealed_size, sequence);
    memcpy(frame + JOURNAL_FRAME_HEAD, sealed, sealed_size);
    *ret = frame;
    *ret_size = JOURNAL_FRAME_HEAD + sealed_size;
    return BERTH_OK;
}

static enum berth_code read_sealed(const struct berth_journal *journal,
                                   const struct journal_item *item, uint8_t *to,
                                   struct berth_error *err)
{
    size_t done = 0;

    while (done < item->sealed_size) {
        ssize_t n = pread(journal->fd, to + done, item->sealed_size - done,
                          (off_t)(item->offset + done));

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return journal_io_error("read", journal->path, n < 0 ? errno : EIO, err);
        done += (size_t)n;
    }
    return BERTH_OK;
}

enum berth_code journal_item_open(struct berth_journal *journal,
                                  const struct journal_item *item, uint8_t **ret_plain,
                                  size_t *ret_size, struct journal_entry *ret,
                                  struct berth_error *err)
{
    BERTH_AUTO(free) uint8_t *associated = NULL;
    BERTH_AUTO(free) uint8_t *sealed = malloc(item->sealed_size);
    size_t associated_size;
    enum berth_code code;

    if (!sealed)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    code = read_sealed(journal, item, sealed, err);
    if (!code)
        code = journal_associated(&journal->head, item->sequence, &associated, &associated_size,
                                  err);
    if (!code)
        code = berth_open_sealed(journal->keyring, sealed, item->sealed_size, associated,
                                 associated_size, ret_plain, ret_size, err);
    if (!code && !journal_entry_read(*ret_plain, *ret_size, ret)) {
        free(*ret_plain);
        code = berth_fail(err, BERTH_REASON_INTERNAL_BUG, "an entry of the journal is not one");
    }
    return code;
}

/* ------------------------------------------------------------------------ items */

static int compare(const void *a, const void *b)
{
    const struct journal_item *x = a, *y = b;

    return strcmp(x->key, y->key);
}

struct journal_item *journal_item_find(struct berth_journal *journal, const char *key)
{
    const struct journal_item wanted = {.key = (char *)key};
    struct journal_item *const *found = tfind(&wanted, &journal->tree, compare);

    return found ? *found : NULL;
}

static struct journal_item *add_item(struct berth_journal *journal, const char *key,
                                     size_t key_size)
{
    struct journal_item *item = calloc(1, sizeof *item);

    if (item)
        item->key = strndup(key, key_size);
    if (!item || !item->key || !tsearch(item, &journal->tree, compare)) {
        if (item)
            free(item->key);
        free(item);
        return NULL;
    }
    if (journal->last_item)
        journal->last_item->next = item;
    else
        journal->items = item;
    journal->last_item = item;
    return item;
}

bool journal_item_note(struct berth_journal *journal, const struct journal_entry *entry,
                       uint64_t sequence, size_t offset, const uint8_t *sealed,
                       size_t sealed_size)
{
    BERTH_AUTO(free) char *key = strndup(entry->key, entry->key_size);
    struct journal_item *item = key ? journal_item_find(journal, key) : NULL;

    if (!key)
        return false;
    if (item && entry->time_ms < item->time_ms)
        return true; /* not the newest */
    if (item && item->sequence)
        journal->live_bytes -= JOURNAL_FRAME_HEAD + item->sealed_size;
    if (!item)
        item = add_item(journal, entry->key, entry->key_size);
    if (!item)
        return false;
    item->deleted = entry->deleted;
    item->time_ms = entry->time_ms;
    item->sequence = sequence;
    item->offset = offset;
    item->sealed_size = sealed_size;
    (void)berth_sealed_key_id(sealed, sealed_size, item->key_id);
    journal->live_bytes += JOURNAL_FRAME_HEAD + sealed_size;
    return true;
}

static void keep_node(void *node)
{
    (void)node; /* the list frees it */
}

void journal_items_free(struct berth_journal *journal)
{
    if (journal->tree)
        tdestroy(journal->tree, keep_node);
    journal->tree = NULL;
    while (journal->items) {
        struct journal_item *item = journal->items;

        journal->items = item->next;
        free(item->key);
        free(item);
    }
    journal->last_item = NULL;
}
