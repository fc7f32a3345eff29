/* writing.c - WriteFile: bytes go into a file without a name, which takes its own when all of
 * them are there. Whoever looks sees the old file or the new one. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/statvfs.h>

#include "common/ids/ids.h"
#include "services/adapter-local/files.h"

enum { DEFAULT_MODE = 0644, NAME_SIZE = 32 };

struct adapter_writer {
    struct local_root root; /* owned */
    int dir_fd;             /* O_PATH of the directory it will be in */
    int fd;
    char *path;
    const char *name; /* in path */
    mode_t mode;
    bool create_only;
    char if_etag[129];
    char tmp[NAME_SIZE]; /* its name for now; "": it has none */
    bool committed;
};

static enum berth_code fail_reason(struct berth_error *err, enum berth_reason reason,
                                   const char *path)
{
    (void)berth_fail(err, reason, NULL);
    BERTH_ERROR_SET(err, resource, path);
    return berth_reason_code(reason);
}

/* What is there under the name now: may it be replaced? *ret_mode: of a file that is there. */
static enum berth_code check_target(const struct adapter_writer *writer, mode_t *ret_mode,
                                    struct berth_error *err)
{
    char etag[33] = "";
    struct stat st;

    if (fstatat(writer->dir_fd, writer->name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno != ENOENT)
            return place_fail(err, errno, writer->path);
        return writer->if_etag[0] ? fail_reason(err, BERTH_REASON_FILE_CHANGED, writer->path)
                                  : BERTH_OK;
    }
    if (writer->create_only)
        return fail_reason(err, BERTH_REASON_FILE_EXISTS, writer->path);
    if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
        return fail_reason(err, BERTH_REASON_NOT_A_FILE, writer->path);
    if (S_ISREG(st.st_mode)) {
        *ret_mode = st.st_mode & 07777;
        place_etag(&st, etag);
    }
    if (writer->if_etag[0] && strcmp(writer->if_etag, etag) != 0)
        return fail_reason(err, BERTH_REASON_FILE_CHANGED, writer->path);
    return BERTH_OK;
}

static enum berth_code check_room(const struct adapter_writer *writer, uint64_t size,
                                  struct berth_error *err)
{
    struct statvfs fs;

    if (size == 0 || fstatvfs(writer->dir_fd, &fs) < 0 || fs.f_frsize == 0)
        return BERTH_OK;
    return size / fs.f_frsize >= fs.f_bavail
               ? fail_reason(err, BERTH_REASON_DISK_FULL, writer->path)
               : BERTH_OK;
}

static enum berth_code open_file(struct adapter_writer *writer, struct berth_error *err)
{
    char id[17];

    writer->fd = openat(writer->dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (writer->fd >= 0)
        return BERTH_OK;
    if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)
        return place_fail(err, errno, writer->path);
    snprintf(writer->tmp, sizeof writer->tmp, ".berth-tmp-%s", berth_id_base36(id, 16));
    writer->fd = openat(writer->dir_fd, writer->tmp,
                        O_CREAT | O_EXCL | O_NOFOLLOW | O_RDWR | O_CLOEXEC, 0600);
    if (writer->fd >= 0)
        return BERTH_OK;
    writer->tmp[0] = 0;
    return place_fail(err, errno, writer->path);
}

static enum berth_code prepare(struct adapter_writer *writer,
                               const struct adapter_write_open *open, struct berth_error *err)
{
    BERTH_AUTO(place_leave) struct place place = {0};
    char *slash = strrchr(writer->path, '/');
    mode_t mode = DEFAULT_MODE;
    bool created;
    enum berth_code code = place_enter(&writer->root, &place, err);

    if (code)
        return code;
    writer->name = slash + 1;
    if (writer->name[0] == 0)
        return fail_reason(err, BERTH_REASON_NOT_A_FILE, writer->path);
    code = place_check_writable(&place, writer->path, writer->root.fd, -1, err);
    if (code)
        return code;
    *slash = 0;
    code = place_make_dirs(&place, slash == writer->path ? "/" : writer->path, &writer->dir_fd,
                           &created, err);
    *slash = '/';
    if (code == BERTH_OK)
        code = place_check_writable(&place, writer->path, writer->dir_fd, -1, err);
    if (code == BERTH_OK)
        code = check_target(writer, &mode, err);
    if (code == BERTH_OK)
        code = check_room(writer, open->size_bytes, err);
    writer->mode = open->mode ? open->mode : mode;
    return code ? code : open_file(writer, err);
}

enum berth_code local_open_write(struct adapter *adapter, const struct adapter_route *route,
                                 const struct adapter_write_open *open,
                                 struct adapter_writer **ret, struct berth_error *err)
{
    struct adapter_writer *writer = calloc(1, sizeof *writer);
    enum berth_code code;

    if (!writer)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    writer->dir_fd = writer->fd = writer->root.fd = -1;
    writer->create_only = open->create_only;
    writer->path = strdup(open->path);
    snprintf(writer->if_etag, sizeof writer->if_etag, "%s", open->if_etag);
    if (!writer->path)
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    else
        code = local_open_root(adapter, route->sandbox_id, &writer->root, err);
    if (code == BERTH_OK)
        code = prepare(writer, open, err);
    if (code) {
        local_close_write(writer);
        return code;
    }
    *ret = writer;
    return BERTH_OK;
}

enum berth_code local_write(struct adapter_writer *writer, struct iovec *pieces, int n_pieces,
                            struct berth_error *err)
{
    while (n_pieces > 0) {
        ssize_t done = writev(writer->fd, pieces, n_pieces);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return place_fail(err, errno == EFBIG ? ENOSPC : errno, writer->path);
        for (; n_pieces > 0 && (size_t)done >= pieces->iov_len; pieces++, n_pieces--)
            done -= (ssize_t)pieces->iov_len;
        if (n_pieces > 0) {
            pieces->iov_base = (uint8_t *)pieces->iov_base + done;
            pieces->iov_len -= (size_t)done;
        }
    }
    return BERTH_OK;
}

/* Give the file a name of its own in the directory; fails with EEXIST where there is one. */
static int link_as(const struct adapter_writer *writer, const char *name)
{
    char self[48];

    if (writer->tmp[0])
        return renameat2(writer->dir_fd, writer->tmp, writer->dir_fd, name, RENAME_NOREPLACE);
    snprintf(self, sizeof self, "/proc/self/fd/%d", writer->fd);
    return linkat(AT_FDCWD, self, writer->dir_fd, name, AT_SYMLINK_FOLLOW);
}

static enum berth_code take_name(struct adapter_writer *writer, struct berth_error *err)
{
    char tmp[NAME_SIZE], id[17];

    if (writer->create_only) {
        if (link_as(writer, writer->name) == 0)
            return BERTH_OK;
        return place_fail(err, errno, writer->path);
    }
    if (!writer->tmp[0]) {
        snprintf(tmp, sizeof tmp, ".berth-tmp-%s", berth_id_base36(id, 16));
        if (link_as(writer, tmp) < 0)
            return place_fail(err, errno, writer->path);
        memcpy(writer->tmp, tmp, sizeof tmp);
    }
    if (renameat(writer->dir_fd, writer->tmp, writer->dir_fd, writer->name) < 0)
        return place_fail(err, errno == ENOTEMPTY || errno == EEXIST ? EISDIR : errno,
                          writer->path);
    return BERTH_OK;
}

enum berth_code local_commit(struct adapter_writer *writer, struct adapter_file *ret,
                             struct berth_error *err)
{
    BERTH_AUTO(place_leave) struct place place = {0};
    mode_t unused = 0;
    enum berth_code code = place_enter(&writer->root, &place, err);

    if (code == BERTH_OK)
        code = check_target(writer, &unused, err);
    if (code)
        return code;
    if (fchmod(writer->fd, writer->mode) < 0)
        return place_fail(err, errno, writer->path);
    code = take_name(writer, err);
    if (code)
        return code;
    writer->committed = true;
    return place_describe(&place, writer->fd, writer->path, ret, err);
}

void local_close_write(struct adapter_writer *writer)
{
    struct place place = {0};

    if (!writer)
        return;
    if (writer->tmp[0] && !writer->committed &&
        place_enter(&writer->root, &place, NULL) == BERTH_OK) {
        unlinkat(writer->dir_fd, writer->tmp, 0);
        place_leave(&place);
    }
    closep(&writer->fd);
    closep(&writer->dir_fd);
    closep(&writer->root.fd);
    free(writer->path);
    free(writer);
}
