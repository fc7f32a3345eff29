/* read.h - an archive of strangers into a struct bundle, by libarchive. Nothing is ever written
 * under a name that stands in the archive. */
#pragma once

#include <stdatomic.h>

#include "services/skills/bundle/bundle.h"

struct bundle_limits {
    uint64_t total_bytes; /* of all entries together, declared and real */
    uint64_t file_bytes;  /* of one */
    uint64_t n_entries;   /* folders and litter included */
    uint64_t ratio;       /* real size : size of the archive, beyond free_bytes */
    uint64_t free_bytes;
};
/* 512 MiB, 64 MiB, 20000 entries, 200 : 1 beyond 16 MiB. */
extern const struct bundle_limits bundle_limits;

/* The archive: a file (fd >= 0, read from its start; at least size bytes) or memory. */
struct bundle_source {
    int fd;
    const void *data;
    uint64_t size;
    enum bundle_format format;          /* ANY: told from the first bytes */
    const struct bundle_limits *limits; /* NULL: bundle_limits */
    const atomic_bool *stop;            /* NULL, or: true: give up soon */
};

/**
 * bundle_read() - read, judge and lay out
 * @spool_fd: an empty file that contents are written to, kept as long as the bundle
 * @findings: what is added decides: findings_refuse()
 * @ret:      set on BERTH_OK, also when refused; empty when the archive could not be read to
 * its end
 *
 * zip, or tar plain, with gzip or with zstd. Either the skill's files stand at the root of the
 * archive, or all of them in one folder.
 *
 * Errors (of this machine, not of the archive): OUT_OF_MEMORY, DISK_FULL, CANCELLED,
 * INTERNAL_BUG.
 */
BERTH_MUST_CHECK enum berth_code bundle_read(const struct bundle_source *source, int spool_fd,
                                             struct findings *findings, struct bundle *ret,
                                             struct berth_error *err);

/* For read.c; in layout.c. From the archive's root to the skill's: strips the wrapping folder,
 * sorts, and says what collides. Entries without a place are dropped. */
BERTH_MUST_CHECK enum berth_code
bundle_lay_out(struct bundle *bundle, struct findings *findings, struct berth_error *err);
