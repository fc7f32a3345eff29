/* reading.c - ReadFile: a regular file, once opened always the same one. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "services/adapter-local/files.h"

struct adapter_reader {
    int fd;
    uint64_t at, end;
    bool strict; /* the caller wants one state of the file: if_etag */
    char etag[33];
    char *path;
};

static enum berth_code check_kind(const struct stat *st, const char *path,
                                  struct berth_error *err)
{
    if (S_ISREG(st->st_mode))
        return BERTH_OK;
    (void)berth_fail(err, BERTH_REASON_NOT_A_FILE, NULL);
    BERTH_ERROR_SET(err, resource, path);
    return berth_reason_code(BERTH_REASON_NOT_A_FILE);
}

static enum berth_code fail_changed(struct berth_error *err, const char *path)
{
    (void)berth_fail(err, BERTH_REASON_FILE_CHANGED, NULL);
    BERTH_ERROR_SET(err, resource, path);
    return berth_reason_code(BERTH_REASON_FILE_CHANGED);
}

enum berth_code local_open_read(struct adapter *adapter, const struct adapter_route *route,
                                const char *path, uint64_t offset, uint64_t length,
                                const char *if_etag, struct adapter_reader **ret,
                                struct adapter_file *ret_file, struct berth_error *err)
{
    BERTH_AUTO(local_visit_end) struct local_visit visit = {0};
    BERTH_AUTO(close) int path_fd = -1;
    struct adapter_reader *reader;
    struct stat st;
    enum berth_code code = local_visit_begin(adapter, route, &visit, err);

    if (code == BERTH_OK)
        code = place_find(&visit.place, path, true, &path_fd, err);
    if (code)
        return code;
    /* Its kind is known before it is opened: no FIFO waits, no device is touched. */
    if (fstat(path_fd, &st) < 0)
        return place_fail(err, errno, path);
    code = check_kind(&st, path, err);
    if (code)
        return code;
    reader = calloc(1, sizeof *reader);
    if (!reader)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    reader->path = strdup(path);
    reader->fd = place_reopen(path_fd, O_RDONLY);
    if (reader->fd < 0)
        code = place_fail(err, errno, path);
    else if (!reader->path)
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    else if (fstat(reader->fd, &st) < 0)
        code = place_fail(err, errno, path);
    if (code == BERTH_OK) {
        uint64_t size = (uint64_t)st.st_size;

        place_etag(&st, reader->etag);
        reader->strict = if_etag[0] != 0;
        reader->at = offset < size ? offset : size;
        reader->end = length == 0 || length > size - reader->at ? size : reader->at + length;
        if (reader->strict && strcmp(if_etag, reader->etag) != 0)
            code = fail_changed(err, path);
    }
    if (code == BERTH_OK)
        code = place_describe(&visit.place, reader->fd, path, ret_file, err);
    if (code) {
        local_close_read(reader);
        return code;
    }
    (void)posix_fadvise(reader->fd, (off_t)reader->at, 0, POSIX_FADV_SEQUENTIAL);
    *ret = reader;
    return BERTH_OK;
}

enum berth_code local_read(struct adapter_reader *reader, uint8_t *buf, size_t size,
                           size_t *ret_size, struct berth_error *err)
{
    size_t wanted = reader->end - reader->at < size ? (size_t)(reader->end - reader->at) : size;
    size_t done = 0;
    char etag[33];
    struct stat st;

    while (done < wanted) {
        ssize_t got = pread(reader->fd, buf + done, wanted - done, (off_t)(reader->at + done));

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return place_fail(err, errno, reader->path);
        if (got == 0)
            return fail_changed(err, reader->path); /* it was longer */
        done += (size_t)got;
    }
    if (done == 0 && reader->strict) {
        if (fstat(reader->fd, &st) < 0)
            return place_fail(err, errno, reader->path);
        place_etag(&st, etag);
        if (strcmp(etag, reader->etag) != 0)
            return fail_changed(err, reader->path);
    }
    reader->at += done;
    *ret_size = done;
    return BERTH_OK;
}

void local_close_read(struct adapter_reader *reader)
{
    if (!reader)
        return;
    closep(&reader->fd);
    free(reader->path);
    free(reader);
}
