/* write.c - heads of entries. Everything that does not fit the old fields goes into a pax
 * header before them. */
#include <inttypes.h>
#include <stdio.h>

#include "common/tar/format.h"
#include "common/tar/tar.h"

#define XATTR_KEY "SCHILY.xattr."

enum { OLD_SIZE_MAX_BITS = 33, USER_ID = 1000 };

struct text {
    char *bytes;
    size_t size, room;
    bool failed;
};

static void add_bytes(struct text *text, const void *bytes, size_t size)
{
    if (text->failed)
        return;
    if (size > text->room - text->size) {
        size_t room = 2 * (text->room + size) + 256;
        char *grown = realloc(text->bytes, room);

        if (!grown) {
            text->failed = true;
            return;
        }
        text->bytes = grown;
        text->room = room;
    }
    if (size > 0)
        memcpy(text->bytes + text->size, bytes, size);
    text->size += size;
}

static void add_zeros(struct text *text, size_t size)
{
    static const char zeros[TAR_BLOCK];

    for (; size > TAR_BLOCK; size -= TAR_BLOCK)
        add_bytes(text, zeros, TAR_BLOCK);
    add_bytes(text, zeros, size);
}

/* "<length of all of this> key=value\n" */
static void add_record(struct text *text, const char *key, const char *name, const void *value,
                       size_t size)
{
    size_t rest = strlen(key) + strlen(name) + size + 3, len = rest + 1;
    char digits[24];

    for (int i = 0; i < 3; i++)
        len = rest + (size_t)snprintf(digits, sizeof digits, "%zu", len);
    add_bytes(text, digits, strlen(digits));
    add_bytes(text, " ", 1);
    add_bytes(text, key, strlen(key));
    add_bytes(text, name, strlen(name));
    add_bytes(text, "=", 1);
    add_bytes(text, value, size);
    add_bytes(text, "\n", 1);
}

static void add_number(struct text *text, const char *key, uint64_t value)
{
    char digits[24];

    add_record(text, key, "", digits,
               (size_t)snprintf(digits, sizeof digits, "%" PRIu64, value));
}

static void put_octal(char *field, size_t size, uint64_t value)
{
    for (size_t i = size - 1; i-- > 0; value >>= 3)
        field[i] = (char)('0' + (value & 7));
    field[size - 1] = 0;
}

unsigned tar_checksum(const struct tar_header *header)
{
    const uint8_t *bytes = (const uint8_t *)header;
    unsigned sum = 0;

    for (size_t i = 0; i < sizeof *header; i++)
        sum +=
            i >= offsetof(struct tar_header, checksum) && i < offsetof(struct tar_header, type)
                ? ' '
                : bytes[i];
    return sum;
}

static void add_header(struct text *text, char type, const char *name, const char *link,
                       uint64_t size, uint32_t mode, int64_t mtime_s)
{
    struct tar_header header = {0};

    memcpy(header.name, name, strnlen(name, sizeof header.name));
    memcpy(header.link, link, strnlen(link, sizeof header.link));
    put_octal(header.mode, sizeof header.mode, mode & 07777);
    put_octal(header.uid, sizeof header.uid, USER_ID);
    put_octal(header.gid, sizeof header.gid, USER_ID);
    put_octal(header.size, sizeof header.size, size >> OLD_SIZE_MAX_BITS ? 0 : size);
    put_octal(header.mtime, sizeof header.mtime,
              mtime_s < 0 || mtime_s >> OLD_SIZE_MAX_BITS ? 0 : (uint64_t)mtime_s);
    header.type = type;
    memcpy(header.magic, "ustar", sizeof header.magic);
    memcpy(header.version, "00", sizeof header.version);
    memcpy(header.uname, "user", 4);
    memcpy(header.gname, "user", 4);
    put_octal(header.checksum, sizeof header.checksum - 1, tar_checksum(&header));
    header.checksum[sizeof header.checksum - 1] = ' ';
    add_bytes(text, &header, sizeof header);
}

static char type_of(enum tar_kind kind)
{
    static const char types[] = {[TAR_FILE] = '0',
                                 [TAR_DIR] = '5',
                                 [TAR_SYMLINK] = '2',
                                 [TAR_HARDLINK] = '1',
                                 [TAR_OTHER] = '6'};

    return types[kind];
}

/* The time as a decimal; -1.25 s is one and a quarter before the epoch. */
static void add_mtime(struct text *text, int64_t s, uint32_t ns)
{
    char digits[48];
    const char *sign = "";

    if (s < 0) {
        sign = "-";
        s = -s;
        if (ns > 0) {
            s--;
            ns = 1000000000 - ns;
        }
    }
    add_record(
        text, "mtime", "", digits,
        (size_t)snprintf(digits, sizeof digits, "%s%" PRId64 ".%09" PRIu32, sign, s, ns));
}

/* The map of a sparse file: count, then offset and size of each part; whole blocks. */
static void add_map(struct text *text, const struct tar_entry *entry)
{
    char line[64];
    size_t n = entry->n_parts;
    bool ends = n > 0 && entry->parts[n - 1].offset + entry->parts[n - 1].size == entry->size;

    add_bytes(text, line, (size_t)snprintf(line, sizeof line, "%zu\n", n + !ends));
    for (size_t i = 0; i < n; i++)
        add_bytes(text, line,
                  (size_t)snprintf(line, sizeof line, "%" PRIu64 "\n%" PRIu64 "\n",
                                   entry->parts[i].offset, entry->parts[i].size));
    if (!ends)
        add_bytes(text, line,
                  (size_t)snprintf(line, sizeof line, "%" PRIu64 "\n0\n", entry->size));
    add_zeros(text, tar_padding(text->size));
}

static void add_pax(struct text *pax, const struct tar_entry *entry, uint64_t stored)
{
    size_t path_size = strlen(entry->path), target_size = strlen(entry->target);

    if (entry->sparse) {
        add_number(pax, "GNU.sparse.major", 1);
        add_number(pax, "GNU.sparse.minor", 0);
        add_record(pax, "GNU.sparse.name", "", entry->path, path_size);
        add_number(pax, "GNU.sparse.realsize", entry->size);
    } else if (path_size > sizeof((struct tar_header *)0)->name) {
        add_record(pax, "path", "", entry->path, path_size);
    }
    if (target_size > sizeof((struct tar_header *)0)->link)
        add_record(pax, "linkpath", "", entry->target, target_size);
    if (stored >> OLD_SIZE_MAX_BITS)
        add_number(pax, "size", stored);
    if (entry->mtime_ns > 0 || entry->mtime_s < 0 || entry->mtime_s >> OLD_SIZE_MAX_BITS)
        add_mtime(pax, entry->mtime_s, entry->mtime_ns);
    for (size_t i = 0; i < entry->n_xattrs; i++)
        add_record(pax, XATTR_KEY, entry->xattrs[i].name, entry->xattrs[i].value,
                   entry->xattrs[i].size);
}

enum berth_code tar_head(const struct tar_entry *entry, uint8_t **ret, size_t *ret_size,
                         struct berth_error *err)
{
    struct text out = {0}, pax = {0}, map = {0};
    uint64_t stored = entry->kind == TAR_FILE ? entry->size : 0;

    if (strlen(entry->path) > TAR_PATH_MAX || strlen(entry->target) > TAR_PATH_MAX ||
        entry->n_parts > TAR_PARTS_MAX || entry->n_xattrs > TAR_XATTRS_MAX)
        return berth_fail_field(err, "tar", "an entry is over the limits");
    if (entry->sparse) {
        add_map(&map, entry);
        stored = map.size;
        for (size_t i = 0; i < entry->n_parts; i++)
            stored += entry->parts[i].size;
    }
    add_pax(&pax, entry, stored);
    if (pax.size > 0) {
        add_header(&out, 'x', "PaxHeader/entry", "", pax.size, 0644, 0);
        add_bytes(&out, pax.bytes, pax.size);
        add_zeros(&out, tar_padding(pax.size));
    }
    add_header(&out, type_of(entry->kind), entry->sparse ? "GNUSparseFile.0/file" : entry->path,
               entry->target, stored, entry->mode, entry->mtime_s);
    add_bytes(&out, map.bytes, map.size);
    free(pax.bytes);
    free(map.bytes);
    if (out.failed || pax.failed || map.failed) {
        free(out.bytes);
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    *ret = (uint8_t *)out.bytes;
    *ret_size = out.size;
    return BERTH_OK;
}
