/* read.c - what comes out of libarchive, entry by entry. Names and kinds are judged before a
 * byte of content is taken; sizes by what is declared, and again by what comes. */
#include "services/skills/bundle/read.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>

#include "common/crypto/crypto.h"
#include "services/skills/bundle/locale.h"
#include "services/skills/bundle/text.h"

enum { BLOCK = 128 << 10 };

const struct bundle_limits bundle_limits = {
    .total_bytes = 512ull << 20,
    .file_bytes = 64ull << 20,
    .n_entries = 20000,
    .ratio = 200,
    .free_bytes = 16ull << 20,
};

struct reader {
    const struct bundle_source *source;
    const struct bundle_limits *limits;
    struct archive *archive;
    struct findings *findings;
    struct bundle *bundle;
    struct berth_sha256 *hash;
    uint8_t *block;
    uint64_t n_seen, declared, real;
    bool at_end; /* or no more to be had */
};

static void archive_freep(struct archive **archive)
{
    if (*archive)
        archive_read_free(*archive);
}

/* The archive is not read on: a finding says why. */
#define STOP(reader, ...)                                                                      \
    do {                                                                                       \
        findings_add((reader)->findings, __VA_ARGS__);                                         \
        (reader)->at_end = true;                                                               \
    } while (0)

static void damaged(struct reader *reader, const char *path)
{
    const char *why = archive_error_string(reader->archive);

    STOP(reader, FINDING_ARCHIVE_DAMAGED, path, 0, "cannot be read: %s", why ? why : "unknown");
}

/* ------------------------------------------------------------------------ content */

static enum berth_code spool(struct reader *reader, const uint8_t *data, size_t size,
                             uint64_t at, struct berth_error *err)
{
    while (size > 0) {
        ssize_t n = pwrite(reader->bundle->spool_fd, data, size, (off_t)at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return berth_fail(err,
                              n < 0 ? berth_reason_from_errno(errno) : BERTH_REASON_DISK_FULL,
                              "write the spool: %s", n < 0 ? strerror(errno) : "no room");
        data += n;
        size -= (size_t)n;
        at += (uint64_t)n;
    }
    return BERTH_OK;
}

static bool is_stopped(const struct reader *reader, enum berth_code *ret_code,
                       struct berth_error *err)
{
    if (!reader->source->stop || !atomic_load(reader->source->stop))
        return false;
    *ret_code = berth_fail(err, BERTH_REASON_CANCELLED, NULL);
    return true;
}

/* More came than may come? Says so. */
static bool is_over(struct reader *reader, const char *path, uint64_t file_size)
{
    const struct bundle_limits *limits = reader->limits;

    if (file_size > limits->file_bytes)
        STOP(reader, FINDING_FILE_TOO_LARGE, path, 0,
             "holds more than %llu bytes, the limit of one file",
             (unsigned long long)limits->file_bytes);
    else if (reader->real > limits->total_bytes)
        STOP(reader, FINDING_ARCHIVE_TOO_LARGE, path, 0,
             "with this file the bundle holds more than %llu bytes, the limit of all files",
             (unsigned long long)limits->total_bytes);
    else if (reader->real > limits->free_bytes &&
             reader->real / limits->ratio > reader->source->size)
        STOP(reader, FINDING_ARCHIVE_BOMB, path, 0,
             "with this file the bundle unpacks to more than %llu times its size, the limit",
             (unsigned long long)limits->ratio);
    return reader->at_end;
}

static enum berth_code take_content(struct reader *reader, struct bundle_entry *entry,
                                    struct berth_error *err)
{
    enum berth_code code = BERTH_OK;

    entry->offset = reader->bundle->total_bytes;
    for (;;) {
        la_ssize_t n = archive_read_data(reader->archive, reader->block, BLOCK);

        if (is_stopped(reader, &code, err))
            return code;
        if (n < 0) {
            damaged(reader, entry->path);
            return BERTH_OK;
        }
        if (n == 0)
            break;
        reader->real += (uint64_t)n;
        if (is_over(reader, entry->path, entry->size + (uint64_t)n))
            return BERTH_OK;
        code = spool(reader, reader->block, (size_t)n, entry->offset + entry->size, err);
        if (code)
            return code;
        berth_sha256_add(reader->hash, reader->block, (size_t)n);
        entry->size += (uint64_t)n;
    }
    berth_sha256_end(reader->hash, entry->sha256);
    reader->bundle->total_bytes += entry->size;
    return BERTH_OK;
}

/* ------------------------------------------------------------------------- entries */

static bool add_entry(struct bundle *bundle, const struct bundle_entry *entry)
{
    size_t n = bundle->n_entries;

    if ((n & (n - 1)) == 0) { /* full at each power of two */
        struct bundle_entry *bigger =
            realloc(bundle->entries, (n ? 2 * n : 1) * sizeof *bigger);

        if (!bigger)
            return false;
        bundle->entries = bigger;
    }
    bundle->entries[bundle->n_entries++] = *entry;
    return true;
}

/* What is neither a file nor a folder. Says so. */
static bool is_refused_kind(struct reader *reader, struct archive_entry *entry,
                            const char *path)
{
    mode_t kind = archive_entry_filetype(entry);

    if (archive_entry_hardlink(entry))
        findings_add(reader->findings, FINDING_HARD_LINK, path, 0,
                     "is a hard link; only files and folders are taken");
    else if (kind == AE_IFLNK || archive_entry_symlink(entry))
        findings_add(reader->findings, FINDING_SYMLINK, path, 0,
                     "is a symbolic link; only files and folders are taken");
    else if (kind != AE_IFREG && kind != AE_IFDIR)
        findings_add(reader->findings, FINDING_SPECIAL_FILE, path, 0,
                     "is a device, a FIFO or a socket; only files and folders are taken");
    else
        return false;
    return true;
}

/* The sizes that the archive declares, litter's too: what is skipped is unpacked all the same.
 */
static bool is_declared_too_large(struct reader *reader, struct archive_entry *entry,
                                  const char *path)
{
    const struct bundle_limits *limits = reader->limits;
    int64_t size = archive_entry_size_is_set(entry) ? archive_entry_size(entry) : 0;

    if (size < 0 || (uint64_t)size > limits->file_bytes) {
        STOP(reader, FINDING_FILE_TOO_LARGE, path, 0,
             "is declared with %lld bytes; the limit of one file is %llu", (long long)size,
             (unsigned long long)limits->file_bytes);
        return true;
    }
    reader->declared += (uint64_t)size;
    if (reader->declared > limits->total_bytes) {
        STOP(reader, FINDING_ARCHIVE_TOO_LARGE, path, 0,
             "with this file the bundle declares more than %llu bytes, the limit of all files",
             (unsigned long long)limits->total_bytes);
        return true;
    }
    if (reader->declared > limits->free_bytes &&
        reader->declared / limits->ratio > reader->source->size) {
        STOP(reader, FINDING_ARCHIVE_BOMB, path, 0,
             "with this file the bundle declares more than %llu times its size, the limit",
             (unsigned long long)limits->ratio);
        return true;
    }
    return false;
}

/* Things that are passed over, each kind said once. */
static bool is_ignored(struct reader *reader, const char *path)
{
    if (path_is_litter(path)) {
        if (!findings_has(reader->findings, FINDING_LITTER_IGNORED))
            findings_add(reader->findings, FINDING_LITTER_IGNORED, path, 0,
                         "left behind by an operating system: ignored, as all of its kind");
        return true;
    }
    if (path_is_environment(path)) {
        if (!findings_has(reader->findings, FINDING_ENVIRONMENT_DROPPED))
            findings_add(reader->findings, FINDING_ENVIRONMENT_DROPPED, path, 0,
                         "a Python environment only works where it was made: dropped whole");
        return true;
    }
    return false;
}

static enum berth_code take(struct reader *reader, struct archive_entry *from, const char *path,
                            struct berth_error *err)
{
    struct bundle_entry entry = {.is_directory = archive_entry_filetype(from) == AE_IFDIR};
    enum berth_code code = BERTH_OK;

    if (text_has_hidden(path, strlen(path)))
        findings_add(reader->findings, FINDING_PATH_HIDDEN, path, 0,
                     "invisible characters stand in the name; it is kept");
    entry.is_executable = !entry.is_directory && (archive_entry_perm(from) & 0111) != 0;
    entry.path = strdup(path);
    if (entry.path && !entry.is_directory)
        code = take_content(reader, &entry, err);
    if (!code && reader->at_end) { /* cut short: no part of the bundle */
        free(entry.path);
        return BERTH_OK;
    }
    if (!code && (!entry.path || !add_entry(reader->bundle, &entry)))
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (code)
        free(entry.path);
    return code;
}

static enum berth_code judge(struct reader *reader, struct archive_entry *entry,
                             struct berth_error *err)
{
    const char *raw = archive_entry_pathname(entry);
    char path[BUNDLE_PATH_MAX + 1];
    enum finding_code why = 0;
    bool clean = path_clean(raw, path, &why);
    const char *shown = clean ? path : raw;

    if (is_declared_too_large(reader, entry, shown))
        return BERTH_OK;
    if (clean && is_ignored(reader, path))
        return BERTH_OK;
    if (!clean)
        findings_add(reader->findings, why, shown, 0, "%s", path_reason(why));
    if (is_refused_kind(reader, entry, shown) || !clean)
        return BERTH_OK;
    if (archive_entry_is_encrypted(entry)) {
        findings_add(reader->findings, FINDING_ARCHIVE_ENCRYPTED, path, 0,
                     "is encrypted; pack the bundle without a password");
        return BERTH_OK;
    }
    if (!*path) {
        if (archive_entry_filetype(entry) != AE_IFDIR)
            findings_add(reader->findings, FINDING_PATH_ESCAPES, "", 0,
                         "a file without a name");
        return BERTH_OK;
    }
    return take(reader, entry, path, err);
}

static enum berth_code read_entries(struct reader *reader, struct berth_error *err)
{
    enum berth_code code = BERTH_OK;

    while (!code && !reader->at_end) {
        struct archive_entry *entry;
        int status = archive_read_next_header(reader->archive, &entry);

        if (status == ARCHIVE_EOF)
            break;
        if (status != ARCHIVE_OK && status != ARCHIVE_WARN) {
            damaged(reader, NULL);
            break;
        }
        if (is_stopped(reader, &code, err))
            break;
        if (++reader->n_seen > reader->limits->n_entries) {
            STOP(reader, FINDING_TOO_MANY_ENTRIES, NULL, 0, "more than %llu entries, the limit",
                 (unsigned long long)reader->limits->n_entries);
            break;
        }
        code = judge(reader, entry, err);
    }
    return code;
}

/* ------------------------------------------------------------------------- opening */

static const uint8_t zip[] = {'P', 'K'};

static enum berth_code first_bytes(const struct bundle_source *source, uint8_t ret[4],
                                   struct berth_error *err)
{
    memset(ret, 0, 4);
    if (source->size < 4)
        return BERTH_OK;
    if (source->fd < 0)
        memcpy(ret, source->data, 4);
    else if (pread(source->fd, ret, 4, 0) != 4)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "read the upload: %s",
                          strerror(errno));
    return BERTH_OK;
}

/* How often a central header's signature stands in the archive: libarchive reads them all into
 * memory before it tells of the first entry. */
static enum berth_code count_headers(struct reader *reader, uint64_t *ret,
                                     struct berth_error *err)
{
    static const uint8_t signature[4] = {'P', 'K', 1, 2};
    const struct bundle_source *source = reader->source;
    const size_t overlap = sizeof signature - 1;
    uint64_t n = 0;

    for (uint64_t at = 0; at + sizeof signature <= source->size;) {
        size_t size = source->size - at < BLOCK ? (size_t)(source->size - at) : BLOCK;
        const uint8_t *block = reader->block, *found;

        if (source->fd < 0)
            block = (const uint8_t *)source->data + at;
        else if (pread(source->fd, reader->block, size, (off_t)at) != (ssize_t)size)
            return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "read the upload: %s",
                              strerror(errno));
        for (const uint8_t *from = block;
             (found = memmem(from, size - (size_t)(from - block), signature, sizeof signature));
             from = found + sizeof signature)
            n++;
        at += size > overlap ? size - overlap : size;
    }
    *ret = n;
    return BERTH_OK;
}

/* Those of stored archives in it count as well, and may be as many again. */
static enum berth_code check_headers(struct reader *reader, struct berth_error *err)
{
    uint64_t limit = 2 * reader->limits->n_entries, n = 0;
    enum berth_code code = count_headers(reader, &n, err);

    if (!code && n > limit)
        STOP(reader, FINDING_TOO_MANY_ENTRIES, NULL, 0,
             "more than %llu entries, the limit, or more than that in archives inside of it",
             (unsigned long long)reader->limits->n_entries);
    return code;
}

/* One format and at most one filter, by the first bytes: libarchive is not left to guess, which
 * would unpack what is packed many times over. */
static int set_up(struct archive *archive, const uint8_t first[4], enum bundle_format format)
{
    static const uint8_t gzip[] = {0x1f, 0x8b}, zstd[] = {0x28, 0xb5, 0x2f, 0xfd};
    int status;

    if (memcmp(first, zip, sizeof zip) == 0)
        return format == BUNDLE_FORMAT_TAR ? ARCHIVE_FAILED
                                           : archive_read_support_format_zip_seekable(archive);
    if (format == BUNDLE_FORMAT_ZIP)
        return ARCHIVE_FAILED;
    status = archive_read_support_format_tar(archive);
    if (status == ARCHIVE_OK && memcmp(first, gzip, sizeof gzip) == 0)
        status = archive_read_append_filter(archive, ARCHIVE_FILTER_GZIP);
    else if (status == ARCHIVE_OK && memcmp(first, zstd, sizeof zstd) == 0)
        status = archive_read_append_filter(archive, ARCHIVE_FILTER_ZSTD);
    else if (status == ARCHIVE_OK)
        status = archive_read_append_filter(archive, ARCHIVE_FILTER_NONE);
    return status;
}

static enum berth_code open_archive(struct reader *reader, struct berth_error *err)
{
    const struct bundle_source *source = reader->source;
    uint8_t first[4];
    enum berth_code code = first_bytes(source, first, err);
    int status;

    if (!code && memcmp(first, zip, sizeof zip) == 0)
        code = check_headers(reader, err);
    if (code || reader->at_end)
        return code;
    status = set_up(reader->archive, first, source->format);
    if (status == ARCHIVE_OK && source->fd < 0)
        status = archive_read_open_memory(reader->archive, source->data, (size_t)source->size);
    else if (status == ARCHIVE_OK && lseek(source->fd, 0, SEEK_SET) == 0)
        status = archive_read_open_fd(reader->archive, source->fd, BLOCK);
    if (status != ARCHIVE_OK) {
        const char *said = source->format == BUNDLE_FORMAT_ZIP   ? ", as announced"
                           : source->format == BUNDLE_FORMAT_TAR ? " (announced: tar)"
                                                                 : "";

        STOP(reader, FINDING_ARCHIVE_FORMAT, NULL, 0, "not a %s%s",
             source->format == BUNDLE_FORMAT_ZIP ? "zip" : "zip, tar, tar.gz or tar.zst", said);
    }
    return BERTH_OK;
}

static enum berth_code read_in_locale(struct reader *reader, struct berth_error *err)
{
    enum berth_code code = open_archive(reader, err);

    if (!code)
        code = read_entries(reader, err);
    if (!code &&
        reader->at_end) { /* nothing can be said of the rest, so nothing of the whole */
        int spool_fd = reader->bundle->spool_fd;

        bundle_deinit(reader->bundle);
        reader->bundle->spool_fd = spool_fd;
    }
    if (code || reader->at_end)
        return code;
    if (reader->bundle->n_entries == 0) {
        findings_add(reader->findings, FINDING_ARCHIVE_EMPTY, NULL, 0,
                     "there is no file in it");
        return BERTH_OK;
    }
    return bundle_lay_out(reader->bundle, reader->findings, err);
}

enum berth_code bundle_read(const struct bundle_source *source, int spool_fd,
                            struct findings *findings, struct bundle *ret,
                            struct berth_error *err)
{
    BERTH_AUTO(archive_free) struct archive *archive = archive_read_new();
    BERTH_AUTO(berth_sha256_free) struct berth_sha256 *hash = berth_sha256_new();
    BERTH_AUTO(free) uint8_t *block = malloc(BLOCK);
    struct bundle bundle = {.spool_fd = spool_fd};
    struct reader reader = {.source = source,
                            .limits = source->limits ? source->limits : &bundle_limits,
                            .archive = archive,
                            .findings = findings,
                            .bundle = &bundle,
                            .hash = hash,
                            .block = block};
    struct utf8_locale locale;
    enum berth_code code;

    if (!archive || !hash || !block || !utf8_locale_enter(&locale))
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    code = read_in_locale(&reader, err);
    utf8_locale_leave(&locale);
    if (code)
        bundle_deinit(&bundle);
    else
        *ret = bundle;
    return code;
}
