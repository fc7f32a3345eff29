/* files.c - stat, make_dir, move; the table. */
#include "services/adapter-local/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

enum berth_code local_visit_begin(struct adapter *adapter, const struct adapter_route *route,
                                  struct local_visit *ret, struct berth_error *err)
{
    enum berth_code code = local_open_root(adapter, route->sandbox_id, &ret->root, err);

    if (code)
        return code;
    code = place_enter(&ret->root, &ret->place, err);
    if (code) {
        close(ret->root.fd);
        ret->root.fd = -1;
    }
    return code;
}

void local_visit_end(struct local_visit *visit)
{
    int why = errno;

    if (!visit->place.root)
        return;
    place_leave(&visit->place);
    close(visit->root.fd);
    errno = why;
}

static enum berth_code local_stat(struct adapter *adapter, const struct adapter_route *route,
                                  const char *path, bool with_sha256,
                                  const struct adapter_patience *patience,
                                  struct adapter_file *ret, struct berth_error *err)
{
    BERTH_AUTO(local_visit_end) struct local_visit visit = {0};
    BERTH_AUTO(close) int fd = -1;
    struct adapter_file file;
    enum berth_code code = local_visit_begin(adapter, route, &visit, err);

    if (code == BERTH_OK)
        code = place_find(&visit.place, path, false, &fd, err);
    if (code == BERTH_OK)
        code = place_describe(&visit.place, fd, path, &file, err);
    if (code)
        return code;
    if (with_sha256 && file.type == BERTH__DATA__V1__FILE_TYPE__FILE_TYPE_REGULAR) {
        code = place_hash(fd, patience, file.sha256, err);
        file.has_sha256 = code == BERTH_OK;
    }
    if (code) {
        BERTH_ERROR_SET(err, resource, path);
        adapter_file_deinit(&file);
        return code;
    }
    *ret = file;
    return BERTH_OK;
}

static enum berth_code local_make_dir(struct adapter *adapter,
                                      const struct adapter_route *route, const char *path,
                                      struct adapter_file *ret, bool *ret_created,
                                      struct berth_error *err)
{
    BERTH_AUTO(local_visit_end) struct local_visit visit = {0};
    BERTH_AUTO(close) int fd = -1;
    bool created = false;
    enum berth_code code = local_visit_begin(adapter, route, &visit, err);

    if (code)
        return code;
    code = place_find(&visit.place, path, true, &fd, err);
    if (code == BERTH_NOT_FOUND)
        code = place_make_dirs(&visit.place, path, &fd, &created, err);
    if (code == BERTH_OK)
        code = place_describe(&visit.place, fd, path, ret, err);
    if (code)
        return code;
    if (ret->type != BERTH__DATA__V1__FILE_TYPE__FILE_TYPE_DIRECTORY) {
        adapter_file_deinit(ret);
        return place_fail(err, EEXIST, path);
    }
    *ret_created = created;
    return BERTH_OK;
}

/* What moving may meet, in our words. */
static enum berth_code fail_move(struct berth_error *err, int why, const char *target)
{
    if (why == EINVAL)
        return berth_fail_field(err, "target", "not below source");
    if (why == EXDEV) {
        (void)berth_fail(err, BERTH_REASON_NOT_A_FILE,
                         "it lies on another file system; copy it instead");
        BERTH_ERROR_SET(err, resource, target);
        return berth_reason_code(BERTH_REASON_NOT_A_FILE);
    }
    return place_fail(err, why, target);
}

static enum berth_code local_move(struct adapter *adapter, const struct adapter_route *route,
                                  const char *source, const char *target, bool overwrite,
                                  struct adapter_file *ret, struct berth_error *err)
{
    BERTH_AUTO(local_visit_end) struct local_visit visit = {0};
    BERTH_AUTO(close) int from_fd = -1;
    BERTH_AUTO(close) int to_fd = -1;
    BERTH_AUTO(close) int fd = -1;
    const char *from, *to;
    enum berth_code code = local_visit_begin(adapter, route, &visit, err);

    if (code == BERTH_OK)
        code = place_parent(&visit.place, source, &from_fd, &from, err);
    if (code == BERTH_OK)
        code = place_parent(&visit.place, target, &to_fd, &to, err);
    if (code == BERTH_OK) {
        fd = openat(from_fd, from, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
            code = place_fail(err, errno, source);
    }
    if (code == BERTH_OK)
        code = place_check_storage(fd, err);
    if (code == BERTH_OK)
        code = place_check_writable(&visit.place, source, from_fd, fd, err);
    if (code == BERTH_OK)
        code = place_check_writable(&visit.place, target, to_fd, -1, err);
    if (code)
        return code;
    if (renameat2(from_fd, from, to_fd, to, overwrite ? 0 : RENAME_NOREPLACE) < 0)
        return fail_move(err, errno, target);
    return place_describe(&visit.place, fd, target, ret, err);
}

const struct adapter_file_ops local_file_ops = {.stat = local_stat,
                                                .list = local_list,
                                                .make_dir = local_make_dir,
                                                .move = local_move,
                                                .remove = local_remove,
                                                .open_read = local_open_read,
                                                .read = local_read,
                                                .close_read = local_close_read,
                                                .open_write = local_open_write,
                                                .write = local_write,
                                                .commit = local_commit,
                                                .close_write = local_close_write};
