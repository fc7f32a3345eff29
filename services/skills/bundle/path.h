/* path.h - names of entries, as archives tell them. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "services/skills/bundle/findings.h"

enum {
    BUNDLE_NAME_MAX = 255,  /* bytes of one component */
    BUNDLE_PATH_MAX = 1024, /* bytes of a whole path */
    BUNDLE_DEPTH_MAX = 16,  /* components */
};

/**
 * path_clean() - judge the name of an entry
 * @raw:    as it stands in the archive; NULL: not readable as text
 * @buf:    the path relative to the archive's root, without "." and "//"; "" for the root
 *
 * Returns false and *ret_why when the entry is not to be had under any name.
 */
BERTH_MUST_CHECK bool path_clean(const char *raw, char buf[BUNDLE_PATH_MAX + 1],
                                 enum finding_code *ret_why);
/* For people: "a component is '..'". Static string. */
const char *path_reason(enum finding_code why);

/* Left behind by macOS or Windows: __MACOSX, .DS_Store, ._x, Thumbs.db, desktop.ini. */
bool path_is_litter(const char *path);
/* In a Python environment (.venv, anywhere), which is good for the machine it was made on. */
bool path_is_environment(const char *path);
/* zip, tar, and what else is an archive by its name. */
bool path_is_archive(const char *path);

/* What stands behind the last '/'. Borrowed from path. */
const char *path_base(const char *path);
