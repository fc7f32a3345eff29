#include "tests/lib/packer.h"

#include <archive.h>
#include <archive_entry.h>
#include <check.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { SIZE_MAX_PACKED = 64 << 20 };

static mode_t mode_of(const struct pack_file *file)
{
    if (file->mode)
        return file->mode;
    return file->content || file->kind ? 0644 : 0755;
}

static void add(struct archive *archive, const struct pack_file *file, long mtime)
{
    struct archive_entry *entry = archive_entry_new();
    bool is_file = file->content && !file->kind;
    size_t size = is_file ? file->size ? file->size : strlen(file->content) : 0;
    /* A name without the flag is one that libarchive cannot tell to be UTF-8. */
    locale_t locale = newlocale(LC_CTYPE_MASK, file->raw_name ? "C" : "C.UTF-8", (locale_t)0);
    locale_t before = uselocale(locale);

    archive_entry_set_pathname(entry, file->path);
    archive_entry_set_mtime(entry, mtime, 0);
    archive_entry_set_uid(entry, 1234);
    archive_entry_set_uname(entry, "somebody");
    archive_entry_set_perm(entry, mode_of(file));
    archive_entry_set_filetype(entry, file->kind == 'l'             ? AE_IFLNK
                                      : file->kind == 'c'           ? AE_IFCHR
                                      : file->kind == 'p'           ? AE_IFIFO
                                      : file->kind || file->content ? AE_IFREG
                                                                    : AE_IFDIR);
    if (file->kind == 'l')
        archive_entry_set_symlink(entry, file->content);
    if (file->kind == 'h')
        archive_entry_set_hardlink(entry, file->content);
    archive_entry_set_size(entry, (la_int64_t)size);
    ck_assert_int_ge(archive_write_header(archive, entry), ARCHIVE_WARN);
    if (size > 0)
        ck_assert_int_eq(archive_write_data(archive, file->content, size), (la_ssize_t)size);
    archive_entry_free(entry);
    uselocale(before);
    freelocale(locale);
}

void *pack_archive(enum pack_format format, const struct pack_file *files, size_t n, long mtime,
                   const char *options, size_t *ret_size)
{
    struct archive *archive = archive_write_new();
    uint8_t *packed;
    void *cut;

    *ret_size = 0;
    packed = malloc(SIZE_MAX_PACKED);
    ck_assert(archive && packed);
    if (format == PACK_ZIP)
        ck_assert_int_eq(archive_write_set_format_zip(archive), ARCHIVE_OK);
    else
        ck_assert_int_eq(archive_write_set_format_pax_restricted(archive), ARCHIVE_OK);
    if (format == PACK_TAR_GZ)
        ck_assert_int_eq(archive_write_add_filter_gzip(archive), ARCHIVE_OK);
    if (format == PACK_TAR_ZST)
        ck_assert_int_eq(archive_write_add_filter_zstd(archive), ARCHIVE_OK);
    if (options)
        ck_assert_int_eq(archive_write_set_options(archive, options), ARCHIVE_OK);
    if (options)
        (void)archive_write_set_passphrase(archive, "secret");
    ck_assert_int_eq(archive_write_open_memory(archive, packed, SIZE_MAX_PACKED, ret_size),
                     ARCHIVE_OK);
    for (size_t i = 0; i < n; i++)
        add(archive, &files[i], mtime);
    ck_assert_int_eq(archive_write_close(archive), ARCHIVE_OK);
    archive_write_free(archive);
    cut = realloc(packed, *ret_size + 1);
    ck_assert_ptr_nonnull(cut);
    return cut;
}

int pack_spool(void)
{
    int fd = memfd_create("spool", MFD_CLOEXEC);

    ck_assert_int_ge(fd, 0);
    return fd;
}
