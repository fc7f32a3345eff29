/* frame.h - the bytes of a journal. Pure: no file, no key, no clock.
 *
 * A file is a head and frames. Head: "berth-journal 1\n", 16 bytes that name the journal, the
 * sequence before the first frame (8 bytes), the deployment's id filled up with NULs to 64
 * bytes. Frame: 4 magic bytes, length of what is sealed (4 bytes), sequence (8 bytes, one more
 * each), what is sealed. Numbers are big-endian. Sealed is an entry: version 1, flags (1:
 * deleted), Redis' time in ms (8 bytes), length of the key (2 bytes), key, document. A document
 * is a Redis hash: number of fields (4 bytes), each: length and name (2 bytes), length and
 * value (4 bytes).
 *
 * The AEAD is the checksum: it vouches for the entry, for the file and deployment it belongs to
 * and for its sequence, so that no frame can be left out, moved or taken from elsewhere. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/errors/errors.h"
#include "common/redis/redis.h"

enum {
    JOURNAL_MAGIC_SIZE = 16,
    JOURNAL_ID_SIZE = 16,
    JOURNAL_BASE_SIZE = 8,
    JOURNAL_DEPLOYMENT_SIZE = 64,
    JOURNAL_HEAD_SIZE =
        JOURNAL_MAGIC_SIZE + JOURNAL_ID_SIZE + JOURNAL_BASE_SIZE + JOURNAL_DEPLOYMENT_SIZE,
    JOURNAL_FRAME_HEAD = 16,
    JOURNAL_SEALED_MAX = 17 << 20, /* bytes of one frame, sealed */
    JOURNAL_KEY_MAX = 1024,
    JOURNAL_FIELDS_MAX = 1 << 20,
};

struct journal_head {
    uint8_t id[JOURNAL_ID_SIZE];
    uint64_t base; /* sequence before the first frame */
    char deployment[JOURNAL_DEPLOYMENT_SIZE + 1];
};
void journal_head_write(uint8_t ret[JOURNAL_HEAD_SIZE], const struct journal_head *head);
/* False: not the head of a journal. */
bool journal_head_read(const uint8_t *data, size_t size, struct journal_head *ret);

struct journal_entry {
    bool deleted;
    int64_t time_ms;
    const char *key; /* not NUL-terminated */
    size_t key_size;
    const uint8_t *doc; /* empty where deleted */
    size_t doc_size;
};
/* Owned. NULL: no memory, or a key or document that is too large. */
uint8_t *journal_entry_write(const struct journal_entry *entry, size_t *ret_size);
/* ret borrows from plain. False: not an entry. */
bool journal_entry_read(const uint8_t *plain, size_t size, struct journal_entry *ret);

/* A Redis hash as a document, without the fields for which skip says true (NULL: none).
 * Owned. NULL: no memory, or too large. */
uint8_t *journal_doc_write(const struct berth_doc *doc, bool (*skip)(const char *field),
                           size_t *ret_size);
/* ret is to be deinit'ed; its key is NULL. Errors: INTERNAL_BUG, OUT_OF_MEMORY. */
BERTH_MUST_CHECK enum berth_code journal_doc_read(const uint8_t *data, size_t size,
                                                  struct berth_doc *ret,
                                                  struct berth_error *err);

void journal_frame_head_write(uint8_t ret[JOURNAL_FRAME_HEAD], size_t sealed_size,
                              uint64_t sequence);

struct journal_frame {
    size_t offset; /* of its head, in the file */
    uint64_t sequence;
    const uint8_t *sealed;
    size_t sealed_size;
};

enum journal_opened {
    JOURNAL_OPENED,
    JOURNAL_CHANGED, /* nobody vouches for these bytes */
    JOURNAL_NO_KEY,  /* sealed under a key that is not there */
    JOURNAL_NO_MEMORY,
};

/* What a scan asks of its caller. */
struct journal_reader {
    void *arg;
    /* JOURNAL_OPENED: *ret is what was sealed, owned by the scan. */
    enum journal_opened (*open)(void *arg, const struct journal_frame *frame, uint8_t **ret,
                                size_t *ret_size);
    /* Each entry in the order of the file. False: no memory. */
    bool (*entry)(void *arg, const struct journal_frame *frame,
                  const struct journal_entry *entry);
};

enum journal_state {
    JOURNAL_WHOLE,
    JOURNAL_TORN,    /* what was appended last is not whole: end is where to cut */
    JOURNAL_DAMAGED, /* good frames follow behind bytes that are not, or the last frame is whole
                        and nobody vouches for it: at */
    JOURNAL_LOCKED,  /* the frame at `at` is sealed under a key that is not there */
    JOURNAL_FAILED,  /* no memory */
};

struct journal_scan {
    enum journal_state state;
    size_t at;         /* offset of the first thing that is not right */
    size_t end;        /* offset behind the last good frame */
    uint64_t sequence; /* of the last good frame; base: none */
    size_t n_frames, n_damages, lost_bytes;
};

/* Read all frames behind the head. With skip, bytes that are damaged are passed over and
 * counted, and the state tells of them only by n_damages. */
void journal_scan(const uint8_t *data, size_t size, uint64_t base,
                  const struct journal_reader *reader, bool skip, struct journal_scan *ret);
