/* blobs.h - the blob store, for now a directory: <blob_dir>/<tenant>/<session>/<id>.tar,
 * nobody's but ours. A blob takes its name when it is whole and synced; its size and SHA-256
 * stand behind its content. Not encrypted: the sandboxes' own files lie on the same host as
 * they are.
 *
 * All but blobs_new() and blobs_free() may be called from any thread, and block. */
#pragma once

#include <stdint.h>

#include "berth/common/v1/common.pb-c.h"
#include "common/errors/errors.h"

struct blobs;
struct blob; /* one that is being written or read */

struct blobs_options {
    const char *dir;
    uint64_t max_bytes; /* of one blob */
    int64_t keep_ms;    /* what is older is removed; 0: never */
};

/* Makes the directory with mode 0700. Errors: FIELD_INVALID naming blob_dir: it cannot be used,
 * or others may look into it. */
BERTH_MUST_CHECK enum berth_code blobs_new(const struct blobs_options *options,
                                           struct blobs **ret, struct berth_error *err);
struct blobs *blobs_free(struct blobs *blobs); /* NULL is fine */

/* Session's parts and id are checked ids. Errors: DISK_FULL, STORE_UNAVAILABLE. */
BERTH_MUST_CHECK enum berth_code blob_create(struct blobs *blobs,
                                             const Berth__Common__V1__SessionRef *session,
                                             const char *id, struct blob **ret,
                                             struct berth_error *err);
/* Errors: QUOTA_EXCEEDED (over max_bytes), DISK_FULL. */
BERTH_MUST_CHECK enum berth_code blob_write(struct blob *blob, const void *data, size_t size,
                                            struct berth_error *err);
/* It takes its name, unless the wall clock is past not_after_ms. Errors: DEADLINE, DISK_FULL.
 */
BERTH_MUST_CHECK enum berth_code blob_commit(struct blob *blob, int64_t not_after_ms,
                                             struct berth_error *err);

/* Errors: FILE_NOT_FOUND; FILE_CHANGED (not as it was written). */
BERTH_MUST_CHECK enum berth_code blob_open(struct blobs *blobs,
                                           const Berth__Common__V1__SessionRef *session,
                                           const char *id, struct blob **ret,
                                           struct berth_error *err);
/* The id of the blob of the highest fence that an id names, at most up_to_fence; into: a
 * sandbox that it must not have been unpacked into. Errors: FILE_NOT_FOUND. */
enum { BLOB_ID_SIZE = 129 };
BERTH_MUST_CHECK enum berth_code blob_find(struct blobs *blobs,
                                           const Berth__Common__V1__SessionRef *session,
                                           uint64_t up_to_fence, const char *into,
                                           char ret_id[BLOB_ID_SIZE], struct berth_error *err);
/* All of it was unpacked into this sandbox, which is noted beside it, synced. Errors:
 * DISK_FULL, STORE_UNAVAILABLE. */
BERTH_MUST_CHECK enum berth_code blob_note_unpacked(struct blob *blob, const char *into,
                                                    struct berth_error *err);
/* *ret_size 0: all of it was read, and is what was written: compared, but for what this process
 * wrote within the last minute and nobody has touched since. Errors: FILE_CHANGED. */
BERTH_MUST_CHECK enum berth_code blob_read(struct blob *blob, void *buf, size_t size,
                                           size_t *ret_size, struct berth_error *err);

/* Bytes so far, and (after commit, or when all was read) the digest. */
uint64_t blob_size(const struct blob *blob);
const uint8_t *blob_sha256(const struct blob *blob);
/* Without blob_commit() before: nothing is left of it. NULL is fine. */
void blob_close(struct blob *blob);

/* The blob, if it is there, and whatever of the session is older: a move that was broken off
 * after its end. Errors: STORE_UNAVAILABLE. */
BERTH_MUST_CHECK enum berth_code blob_remove(struct blobs *blobs,
                                             const Berth__Common__V1__SessionRef *session,
                                             const char *id, struct berth_error *err);
/* Remove what killed writers left, and what is older than keep_ms. Returns how many. */
unsigned blobs_sweep(struct blobs *blobs);
