/* tar.h - the tar format, both ways, without I/O: pax (POSIX.1-2001) as GNU tar and others
 * write it, with nanoseconds, long names, user.* attributes and sparse files (GNU.sparse.1.0).
 * What is read may come from anybody: every number is checked, and memory is bounded. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/errors/errors.h"

enum {
    TAR_BLOCK = 512,
    TAR_PATH_MAX = 64 << 10,    /* bytes of a path or the target of a link */
    TAR_XATTRS_MAX = 64,        /* attributes of one file */
    TAR_XATTR_BYTES = 64 << 10, /* of all names and values of one file */
    TAR_PARTS_MAX = 16384,      /* pieces of a sparse file */
    TAR_META_MAX = 512 << 10,   /* bytes of one extended header, or of a map of pieces */
};

enum tar_kind {
    TAR_FILE,
    TAR_DIR,
    TAR_SYMLINK,
    TAR_HARDLINK, /* target: the path of an earlier entry */
    TAR_OTHER,    /* a device, a FIFO, whatever is not known */
};

struct tar_xattr {
    const char *name; /* "user.x" */
    const uint8_t *value;
    size_t size;
};

/* A piece of a sparse file that holds bytes. */
struct tar_part {
    uint64_t offset, size;
};

/* One member. Everything is borrowed. */
struct tar_entry {
    enum tar_kind kind;
    const char *path;   /* as bytes; a string */
    const char *target; /* of links, else "" */
    uint64_t size;      /* of the file, holes counted */
    uint32_t mode;      /* 0..07777 */
    int64_t mtime_s;
    uint32_t mtime_ns;
    const struct tar_xattr *xattrs;
    size_t n_xattrs;
    bool sparse; /* only parts have bytes, in this order, not overlapping */
    const struct tar_part *parts;
    size_t n_parts;
};

/* ---------------------------------------------------------------------- write */

/* Bytes before the content of an entry, to be freed. Behind it comes the content (of a sparse
 * file: of its parts, one behind the other), then tar_padding() zeros.
 * Errors: OUT_OF_MEMORY; FIELD_INVALID over the limits above. */
BERTH_MUST_CHECK enum berth_code tar_head(const struct tar_entry *entry, uint8_t **ret,
                                          size_t *ret_size, struct berth_error *err);
/* Zeros up to the next block. */
static inline size_t tar_padding(uint64_t size)
{
    return (size_t)((TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK);
}
/* The end: so many zeros. */
enum { TAR_END_SIZE = 2 * TAR_BLOCK };

/* ----------------------------------------------------------------------- read */

/* What the reader finds. Whatever they return but BERTH_OK ends the reading. */
struct tar_sink {
    enum berth_code (*begin)(void *ctx, const struct tar_entry *entry, struct berth_error *err);
    /* Only between begin and end of a TAR_FILE; what lies between is a hole. */
    enum berth_code (*data)(void *ctx, uint64_t offset, const uint8_t *data, size_t size,
                            struct berth_error *err);
    enum berth_code (*end)(void *ctx, struct berth_error *err);
};

struct tar_reader;

struct tar_reader *tar_reader_new(const struct tar_sink *sink, void *ctx); /* NULL: no memory */
struct tar_reader *tar_reader_free(struct tar_reader *reader);             /* NULL is fine */
BERTH_DEFINE_AUTO(struct tar_reader *, tar_reader_free)
/* The next bytes, as many as there are. After an error there is no going on.
 * Errors: FIELD_INVALID (field "tar"), OUT_OF_MEMORY, and what the sink says. */
BERTH_MUST_CHECK enum berth_code tar_reader_feed(struct tar_reader *reader, const uint8_t *data,
                                                 size_t size, struct berth_error *err);
/* No more bytes. Errors: FIELD_INVALID when it was cut off, but for between two entries (some
 * writers make no end), or there were none. */
BERTH_MUST_CHECK enum berth_code tar_reader_end(struct tar_reader *reader,
                                                struct berth_error *err);
