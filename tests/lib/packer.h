/* packer.h - archives for tests, made at run time by libarchive. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum pack_format { PACK_ZIP, PACK_TAR, PACK_TAR_GZ, PACK_TAR_ZST, PACK_FORMATS };

struct pack_file {
    const char *path;
    const char *content; /* NULL: a folder, or as kind says */
    size_t size;         /* 0: strlen(content) */
    mode_t mode;         /* 0: 0644, of a folder 0755 */
    char kind;           /* 0: file or folder; 'l' symbolic link, 'h' hard link (to content);
                            'c' device, 'p' FIFO */
    bool raw_name;       /* zip: without the flag that says UTF-8 */
};

/* The archive of files[0..n) in this order; owned. mtime: of all of them. options: of
 * libarchive ("zip:encryption=traditional"), or NULL. */
void *pack_archive(enum pack_format format, const struct pack_file *files, size_t n, long mtime,
                   const char *options, size_t *ret_size);

/* An empty file in memory. */
int pack_spool(void);
