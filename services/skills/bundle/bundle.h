/* bundle.h - the files of one skill, as read out of an archive: relative to the skill's own
 * root, sorted, judged. Contents lie one behind the other in a spool file.
 *
 * In order: bundle_read() (read.h), skill_read() (skill.h), plan_make() (plan.h); all three in
 * one: bundle_judge() (judge.h). What is accepted is sent on as bundle_write_tar() (tar.h) and
 * known by bundle_digest(). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/errors/errors.h"
#include "services/skills/bundle/findings.h"
#include "services/skills/bundle/path.h"

enum bundle_format { BUNDLE_FORMAT_ANY, BUNDLE_FORMAT_ZIP, BUNDLE_FORMAT_TAR };

struct bundle_entry {
    char *path; /* owned; "scripts/run.py", never "" */
    bool is_directory;
    bool is_executable;
    uint64_t size, offset; /* of its content, in the spool */
    uint8_t sha256[32];    /* of its content */
};

struct bundle {
    int spool_fd;                 /* borrowed; -1: none */
    struct bundle_entry *entries; /* by strcmp() of their paths, so folders come before what is
                                     in them. Directories: only those told by the archive */
    size_t n_entries;
    size_t n_files;
    uint64_t total_bytes; /* of all files */
    char *folder;         /* the wrapping folder that was stripped; NULL: there was none */
};

/* Zeroed (spool_fd -1) is empty. The spool stays the caller's. */
void bundle_deinit(struct bundle *bundle);

/* The entry of this very path; NULL: none. Borrowed. */
const struct bundle_entry *bundle_find(const struct bundle *bundle, const char *path);

/* The content of a file, owned, with a NUL behind it; its size is entry->size.
 * Errors: OUT_OF_MEMORY; INTERNAL_BUG where the spool cannot be read. */
BERTH_MUST_CHECK enum berth_code bundle_load(const struct bundle *bundle,
                                             const struct bundle_entry *entry, char **ret,
                                             struct berth_error *err);

/**
 * bundle_digest() - what identifies a bundle's content
 *
 * SHA-256 over the sorted paths, run bits and contents of all files and the paths of empty
 * folders. It does not depend on the archive's format, order, times, owners, litter, wrapping
 * folder, or on whether folders were told.
 *
 * Errors: OUT_OF_MEMORY.
 */
BERTH_MUST_CHECK enum berth_code bundle_digest(const struct bundle *bundle, uint8_t ret[32],
                                               struct berth_error *err);

/* Is directory entry i without anything in it? */
bool bundle_is_empty_directory(const struct bundle *bundle, size_t i);
