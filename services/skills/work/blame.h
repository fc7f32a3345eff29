/* blame.h - why an installer failed, read out of what it printed last: pip, uv, npm, apt. Pure.
 * What it prints may be anything. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum blame_kind {
    BLAME_OTHER,
    BLAME_NO_NETWORK,  /* no index could be reached */
    BLAME_CERTIFICATE, /* one that nobody here vouches for */
    BLAME_NO_PACKAGE,  /* no such package, or not in that version */
    BLAME_CONFLICT,    /* versions that exclude each other */
    BLAME_LOCK,        /* the lock does not fit its manifest */
    BLAME_BUILD,       /* the package's own build or install script */
    BLAME_DISK,
    BLAME_MEMORY,
};

enum { BLAME_PACKAGE_MAX = 200, BLAME_LINE_MAX = 240 };

struct blame {
    enum blame_kind kind;
    char package[BLAME_PACKAGE_MAX + 1]; /* as the tool names it; "": it does not */
    char line[BLAME_LINE_MAX + 1];       /* the line that says most */
};

/* text: the end of what was printed, size bytes. */
void blame_read(const char *text, size_t size, struct blame *ret);
bool blame_is_disk(const char *text);
/* Did something in it fail for want of a network? (apt-get update ends well all the same.) */
bool blame_is_offline(const char *text, size_t size);
/* Who one is in front of an index stays unsaid: what stands between "://" and the last "@" of
 * its host becomes asterisks. */
void blame_mask(char *text, size_t size);
/* "no package index could be reached". Static string. */
const char *blame_text(enum blame_kind kind);
