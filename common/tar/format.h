/* format.h - a tar header as it lies in the file. */
#pragma once

#include <stdint.h>

struct tar_header {
    char name[100];
    char mode[8];
    char uid[8];
    char gid[8];
    char size[12];
    char mtime[12];
    char checksum[8];
    char type;
    char link[100];
    char magic[6]; /* "ustar" */
    char version[2];
    char uname[32];
    char gname[32];
    char major[8];
    char minor[8];
    char prefix[155];
    char rest[12];
};
_Static_assert(sizeof(struct tar_header) == 512, "a block");

/* Sum of the bytes of a header, its own field counted as blanks. */
unsigned tar_checksum(const struct tar_header *header);
