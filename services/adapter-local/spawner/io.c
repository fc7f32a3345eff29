#include "services/adapter-local/spawner/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include "common/time/time.h"

enum { LOCK_POLL_MAX_MS = 20, TREE_DEPTH_MAX = 4096, DRAFT_NAME_SIZE = 300 };

enum berth_code io_fail(struct berth_error *err, const char *fmt, ...)
{
    int number = errno;
    char what[256];
    va_list args;

    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);

    if (number == ENOSPC || number == EDQUOT)
        return berth_fail(err, BERTH_REASON_DISK_FULL, "the host's disk is full (%s)", what);
    if (number == ENOMEM)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, "the host is out of memory (%s)",
                          what);
    if (number == EAGAIN || number == EMFILE || number == ENFILE)
        return berth_fail(err, BERTH_REASON_BACKEND_CAPACITY,
                          "the host has no more processes or open files to give (%s)", what);
    return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "%s: %s", what, strerror(number));
}

/* Up to size - 1 bytes and a NUL; EFBIG when there are more. */
static ssize_t read_all(int fd, char *buf, size_t size)
{
    size_t used = 0;
    ssize_t n;

    while (used < size && (n = read(fd, buf + used, size - used)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        used += (size_t)n;
    }
    if (used == size) {
        errno = EFBIG;
        return -1;
    }
    buf[used] = 0;
    return (ssize_t)used;
}

ssize_t io_read(int dir_fd, const char *name, char *buf, size_t size)
{
    int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : read_all(fd, buf, size);
    int number = errno;

    if (fd >= 0)
        close(fd);
    errno = number;
    return n;
}

ssize_t io_read_whole(int dir_fd, const char *name, size_t max, char **ret)
{
    BERTH_AUTO(close)
    int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    BERTH_AUTO(free) char *text = NULL;
    struct stat st;
    ssize_t size;

    if (fd < 0 || fstat(fd, &st) < 0)
        return -1;
    if (st.st_size < 0 || (size_t)st.st_size > max) {
        errno = EFBIG;
        return -1;
    }
    text = malloc((size_t)st.st_size + 2);
    size = text ? read_all(fd, text, (size_t)st.st_size + 2) : -1;
    if (size >= 0)
        *ret = BERTH_STEAL(text);
    return size;
}

int io_write(int dir_fd, const char *name, const char *text)
{
    int fd = openat(dir_fd, name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    size_t size = strlen(text);
    ssize_t n;
    int number;

    if (fd < 0)
        return -1;
    do
        n = write(fd, text, size);
    while (n < 0 && errno == EINTR);
    number = n < 0 ? errno : EIO;
    close(fd);
    errno = number;
    return n == (ssize_t)size ? 0 : -1;
}

static int write_all(int fd, const char *data, size_t size)
{
    while (size) {
        ssize_t n = write(fd, data, size);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        data += n;
        size -= (size_t)n;
    }
    return 0;
}

static void draft_name(const char *name, char ret[DRAFT_NAME_SIZE])
{
    snprintf(ret, DRAFT_NAME_SIZE, ".%s.%ld", name, (long)getpid());
}

enum berth_code io_draft(int dir_fd, const char *name, const char *data, size_t size,
                         bool durable, struct berth_error *err)
{
    BERTH_AUTO(close) int fd = -1;
    char draft[DRAFT_NAME_SIZE];
    enum berth_code code;

    draft_name(name, draft);
    fd = openat(dir_fd, draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return io_fail(err, "create %s", name);
    if (write_all(fd, data, size) < 0 || (durable && fsync(fd) < 0)) {
        code = io_fail(err, "write %s", name);
        unlinkat(dir_fd, draft, 0);
        return code;
    }
    return BERTH_OK;
}

enum berth_code io_publish(int dir_fd, const char *name, struct berth_error *err)
{
    char draft[DRAFT_NAME_SIZE];
    enum berth_code code;

    draft_name(name, draft);
    if (renameat(dir_fd, draft, dir_fd, name) < 0) {
        code = io_fail(err, "write %s", name);
        unlinkat(dir_fd, draft, 0);
        return code;
    }
    return BERTH_OK;
}

enum berth_code io_replace(int dir_fd, const char *name, const char *data, size_t size,
                           bool durable, struct berth_error *err)
{
    enum berth_code code = io_draft(dir_fd, name, data, size, durable, err);

    return code ? code : io_publish(dir_fd, name, err);
}

int io_open_dir(int dir_fd, const char *name)
{
    return openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

int io_make_dir(int dir_fd, const char *name, mode_t mode)
{
    if (mkdirat(dir_fd, name, mode) < 0 && errno != EEXIST)
        return -1;
    return io_open_dir(dir_fd, name);
}

int io_make_lock(int dir_fd)
{
    int fd = openat(dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    char path[64];

    if (fd < 0)
        return -1;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0 ||
        linkat(AT_FDCWD, path, dir_fd, "lock", AT_SYMLINK_FOLLOW) < 0) {
        int number = errno;

        close(fd);
        errno = number;
        return -1;
    }
    return fd;
}

enum berth_code io_lock(int fd, int64_t deadline_ms, const char *what, struct berth_error *err)
{
    long wait_ms = 1;

    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return io_fail(err, "lock %s", what);
        if (berth_tick_ms() >= deadline_ms)
            return berth_fail(err, BERTH_REASON_BACKEND_TIMEOUT,
                              "%s is still busy with another call", what);
        nanosleep(&(struct timespec){.tv_nsec = wait_ms * 1000000}, NULL);
        wait_ms = wait_ms * 2 > LOCK_POLL_MAX_MS ? LOCK_POLL_MAX_MS : wait_ms * 2;
    }
    return BERTH_OK;
}

/* Removes what is in the directory fd (taken). The depth of a hostile tree is bounded by moving
 * what lies too deep up to the top, where the next round finds it. */
static int remove_content(int top_fd, int fd, dev_t dev, int depth)
{
    DIR *dir = fdopendir(fd);
    struct dirent *entry;
    int result = 0;

    if (!dir) {
        close(fd);
        return -1;
    }
    while (result == 0 && (entry = readdir(dir))) {
        struct stat st;
        int child;

        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (unlinkat(dirfd(dir), entry->d_name, 0) == 0 || errno == ENOENT)
            continue;
        if (errno != EISDIR && errno != EPERM) {
            result = -1;
            break;
        }
        if (unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR) == 0)
            continue;
        if (depth >= 64) {
            char name[64];
            static unsigned moved;

            snprintf(name, sizeof name, ".deep.%ld.%u", (long)getpid(), moved++);
            result = renameat(dirfd(dir), entry->d_name, top_fd, name);
            continue;
        }
        child = io_open_dir(dirfd(dir), entry->d_name);
        if (child < 0 || fstat(child, &st) < 0 || st.st_dev != dev) {
            if (child >= 0) {
                close(child);
                errno = EXDEV;
            }
            result = -1;
            break;
        }
        result = remove_content(top_fd, child, dev, depth + 1);
        if (result == 0)
            result = unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR);
    }
    closedir(dir);
    return result;
}

int io_remove_tree(int dir_fd, const char *name)
{
    struct stat st;

    if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return -1;
    for (int round = 0; round < TREE_DEPTH_MAX; round++) {
        BERTH_AUTO(close) int top_fd = io_open_dir(dir_fd, name);
        int fd = top_fd < 0 ? -1 : io_open_dir(top_fd, ".");

        if (fd < 0)
            return errno == ENOENT ? 0 : -1;
        if (fstat(fd, &st) < 0) {
            close(fd);
            return -1;
        }
        if (remove_content(top_fd, fd, st.st_dev, 0) < 0)
            return -1;
        if (unlinkat(dir_fd, name, AT_REMOVEDIR) == 0)
            return 0;
        if (errno != ENOTEMPTY && errno != EEXIST)
            return -1;
    }
    errno = ELOOP;
    return -1;
}

static int64_t content_bytes(int fd, dev_t dev, int depth)
{
    DIR *dir = fdopendir(fd);
    struct dirent *entry;
    int64_t total = 0;

    if (!dir) {
        close(fd);
        return -1;
    }
    while (total >= 0 && (entry = readdir(dir))) {
        struct stat st;
        int64_t below;
        int child;

        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            st.st_dev != dev)
            continue;
        /* Each link of a file counts for its part: together they count once. */
        total += (int64_t)st.st_blocks * 512 /
                 (S_ISDIR(st.st_mode) || st.st_nlink < 2 ? 1 : (int64_t)st.st_nlink);
        if (!S_ISDIR(st.st_mode) || depth >= 512)
            continue;
        child = io_open_dir(dirfd(dir), entry->d_name);
        below = child < 0 ? 0 : content_bytes(child, dev, depth + 1);
        total = below < 0 ? -1 : total + below;
    }
    closedir(dir);
    return total;
}

int64_t io_tree_bytes(int dir_fd, const char *name)
{
    int fd = io_open_dir(dir_fd, name);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    return content_bytes(fd, st.st_dev, 0);
}

uint64_t io_process_start(pid_t pid)
{
    char path[64], stat[1024];
    unsigned long long start;
    const char *rest;
    char state;

    if (pid <= 0)
        return 0;
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    if (io_read(AT_FDCWD, path, stat, sizeof stat) <= 0)
        return 0;
    /* The name in parentheses may hold anything; the last ')' ends it. */
    rest = strrchr(stat, ')');
    if (!rest || sscanf(rest + 1,
                        " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                        "%*s %*s %llu",
                        &state, &start) != 2)
        return 0;
    return state == 'Z' || state == 'X' ? 0 : start;
}
