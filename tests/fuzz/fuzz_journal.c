/* A journal's file. Sealed is plain here, so that everything behind the seal is met, too. What
 * is accepted can be written again, byte for byte. */
#include "common/journal/frame.h"
#include "tests/fuzz/fuzz.h"

static enum journal_opened open_plain(void *arg, const struct journal_frame *frame,
                                      uint8_t **ret, size_t *ret_size)
{
    (void)arg;
    if (frame->sealed[0] == 'L')
        return JOURNAL_NO_KEY;
    *ret = malloc(frame->sealed_size);
    if (!*ret)
        return JOURNAL_NO_MEMORY;
    memcpy(*ret, frame->sealed, frame->sealed_size);
    *ret_size = frame->sealed_size;
    return JOURNAL_OPENED;
}

static void check_doc(const struct journal_entry *entry, bool *good)
{
    struct berth_doc doc = {0};
    uint8_t *again;
    size_t size;

    if (entry->deleted)
        return;
    if (journal_doc_read(entry->doc, entry->doc_size, &doc, NULL)) {
        *good = false;
        return;
    }
    again = journal_doc_write(&doc, NULL, &size);
    if (again && (size != entry->doc_size || memcmp(again, entry->doc, size) != 0))
        abort();
    free(again);
    berth_doc_deinit(&doc);
}

static bool note(void *arg, const struct journal_frame *frame,
                 const struct journal_entry *entry)
{
    size_t size;
    uint8_t *again = journal_entry_write(entry, &size);

    if (again && (size != frame->sealed_size || memcmp(again, frame->sealed, size) != 0))
        abort();
    free(again);
    check_doc(entry, arg);
    return true;
}

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    bool good = true;
    const struct journal_reader reader = {&good, open_plain, note};
    struct journal_head head;
    struct journal_scan scan, skipped;
    uint8_t again[JOURNAL_HEAD_SIZE];

    if (!journal_head_read(data, size, &head))
        return false;
    journal_head_write(again, &head);
    if (memcmp(again, data, sizeof again) != 0)
        abort();
    journal_scan(data, size, head.base, &reader, false, &scan);
    if (scan.end < JOURNAL_HEAD_SIZE || scan.end > size ||
        (scan.state == JOURNAL_WHOLE && scan.end != size))
        abort();
    if (scan.state == JOURNAL_DAMAGED) {
        journal_scan(data, size, head.base, &reader, true, &skipped);
        if (skipped.state == JOURNAL_DAMAGED || skipped.n_frames < scan.n_frames ||
            skipped.n_damages == 0)
            abort();
    }
    return good && scan.state == JOURNAL_WHOLE;
}
