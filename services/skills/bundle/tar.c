#include "services/skills/bundle/tar.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <stdio.h>

#include "services/skills/bundle/locale.h"

enum { BLOCK = 128 << 10, CHANGED = 946684800 }; /* 2000-01-01; zip knows no year before 1980 */

struct writer {
    const struct bundle *bundle;
    const char *prefix;
    struct archive *archive;
    struct archive_entry *entry;
    uint8_t *block;
    char before[2 * BUNDLE_PATH_MAX]; /* path that was written last */
    bundle_sink_fn sink;
    void *arg;
    enum berth_code code; /* of the sink */
    struct berth_error *err;
};

static la_ssize_t on_write(struct archive *archive, void *arg, const void *data, size_t size)
{
    struct writer *writer = arg;

    if (!writer->code)
        writer->code = writer->sink(writer->arg, data, size, writer->err);
    if (!writer->code)
        return (la_ssize_t)size;
    archive_set_error(archive, EIO, "the sink has failed");
    return -1;
}

static enum berth_code failed(struct writer *writer)
{
    const char *why = archive_error_string(writer->archive);

    if (writer->code)
        return writer->code;
    return berth_fail(writer->err, BERTH_REASON_INTERNAL_BUG, "write a tar: %s",
                      why ? why : "unknown");
}

static enum berth_code write_header(struct writer *writer, const char *path, bool is_directory,
                                    bool is_executable, uint64_t size)
{
    struct archive_entry *entry = archive_entry_clear(writer->entry);

    archive_entry_set_pathname(entry, path);
    archive_entry_set_filetype(entry, is_directory ? AE_IFDIR : AE_IFREG);
    archive_entry_set_perm(entry, is_directory || is_executable ? 0755 : 0644);
    archive_entry_set_uid(entry, 0);
    archive_entry_set_gid(entry, 0);
    archive_entry_set_uname(entry, "root");
    archive_entry_set_gname(entry, "root");
    archive_entry_set_mtime(entry, CHANGED, 0);
    archive_entry_set_size(entry, (la_int64_t)size);
    return archive_write_header(writer->archive, entry) == ARCHIVE_OK ? BERTH_OK
                                                                      : failed(writer);
}

/* The folders of path that the one before it was not in. */
static enum berth_code write_folders(struct writer *writer, const char *path)
{
    char folder[sizeof writer->before];
    enum berth_code code = BERTH_OK;

    for (size_t at = 0; !code && path[at]; at++) {
        if (path[at] != '/' || strncmp(writer->before, path, at + 1) == 0 ||
            (strncmp(writer->before, path, at) == 0 && writer->before[at] == 0))
            continue;
        snprintf(folder, sizeof folder, "%.*s", (int)at, path);
        code = write_header(writer, folder, true, false, 0);
    }
    return code;
}

static enum berth_code write_content(struct writer *writer, const struct bundle_entry *entry)
{
    for (uint64_t done = 0; done < entry->size;) {
        size_t want = entry->size - done < BLOCK ? (size_t)(entry->size - done) : BLOCK;
        ssize_t n =
            pread(writer->bundle->spool_fd, writer->block, want, (off_t)(entry->offset + done));

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return berth_fail(writer->err, BERTH_REASON_INTERNAL_BUG, "read the spool: %s",
                              n < 0 ? strerror(errno) : "it is too short");
        if (archive_write_data(writer->archive, writer->block, (size_t)n) != n)
            return failed(writer);
        done += (uint64_t)n;
    }
    return BERTH_OK;
}

static enum berth_code write_entries(struct writer *writer)
{
    enum berth_code code = BERTH_OK;

    for (size_t i = 0; !code && i < writer->bundle->n_entries; i++) {
        const struct bundle_entry *entry = &writer->bundle->entries[i];
        char path[sizeof writer->before];

        if (entry->is_directory && !bundle_is_empty_directory(writer->bundle, i))
            continue; /* comes with what is in it */
        snprintf(path, sizeof path, "%s%s%s", writer->prefix, *writer->prefix ? "/" : "",
                 entry->path);
        code = write_folders(writer, path);
        if (!code)
            code = write_header(writer, path, entry->is_directory, entry->is_executable,
                                entry->size);
        if (!code && !entry->is_directory)
            code = write_content(writer, entry);
        snprintf(writer->before, sizeof writer->before, "%s", path);
    }
    return code;
}

static enum berth_code write_all(struct writer *writer)
{
    enum berth_code code;

    if (archive_write_set_format_pax_restricted(writer->archive) != ARCHIVE_OK ||
        archive_write_set_bytes_per_block(writer->archive, BLOCK) != ARCHIVE_OK ||
        archive_write_set_bytes_in_last_block(writer->archive, 1) != ARCHIVE_OK ||
        archive_write_open(writer->archive, writer, NULL, on_write, NULL) != ARCHIVE_OK)
        return failed(writer);
    code = write_entries(writer);
    if (!code && archive_write_close(writer->archive) != ARCHIVE_OK)
        code = failed(writer);
    return code;
}

enum berth_code bundle_write_tar(const struct bundle *bundle, const char *prefix,
                                 bundle_sink_fn sink, void *arg, struct berth_error *err)
{
    struct writer writer = {
        .bundle = bundle, .prefix = prefix, .sink = sink, .arg = arg, .err = err};
    struct utf8_locale locale;
    enum berth_code code;

    if (strlen(prefix) > BUNDLE_NAME_MAX)
        return berth_fail_field(err, "prefix", "at most %d bytes", BUNDLE_NAME_MAX);
    writer.archive = archive_write_new();
    writer.entry = archive_entry_new();
    writer.block = malloc(BLOCK);
    if (writer.archive && writer.entry && writer.block && utf8_locale_enter(&locale)) {
        code = write_all(&writer);
        utf8_locale_leave(&locale);
    } else {
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    if (writer.archive) {
        if (code) /* nothing more is written */
            archive_write_fail(writer.archive);
        archive_write_free(writer.archive);
    }
    archive_entry_free(writer.entry);
    free(writer.block);
    return code;
}
