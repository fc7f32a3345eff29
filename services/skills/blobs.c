#include "services/skills/blobs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "common/ids/ids.h"
#include "common/time/time.h"
#include "services/skills/bundle/tar.h"

#define TMP ".tmp-" /* no name begins with it */

enum {
    NAME_SIZE = 160,
    TRIES_MAX = 16, /* a directory that is swept while it is made */
    TMP_KEEP_MS = 3600 * 1000,
};

enum kind { BUNDLES, LOGS, N_KINDS };

struct skills_blobs {
    int fds[N_KINDS];
};

static const char *const folders[N_KINDS] = {"bundles", "logs"};
static const char *const suffixes[N_KINDS] = {".tar", ".log"};

static enum berth_code fail_io(struct berth_error *err, const char *what)
{
    int why = errno;

    if (why == ENOSPC || why == EDQUOT || why == EFBIG)
        return berth_fail(err, BERTH_REASON_DISK_FULL, "the blob store is full");
    return berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE, "blob store: %s: %s", what,
                      strerror(why));
}

/* ------------------------------------------------------------------------- folders */

static int open_dir(int dir_fd, const char *name)
{
    return openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Made where it is not there. -1 and errno. */
static int make_dir(int dir_fd, const char *name)
{
    if (mkdirat(dir_fd, name, 0700) == 0)
        (void)fsync(dir_fd);
    return open_dir(dir_fd, name);
}

struct skills_blobs *skills_blobs_free(struct skills_blobs *blobs)
{
    for (size_t i = 0; blobs && i < N_KINDS; i++)
        closep(&blobs->fds[i]);
    free(blobs);
    return NULL;
}

enum berth_code skills_blobs_new(const char *dir, struct skills_blobs **ret,
                                 struct berth_error *err)
{
    BERTH_AUTO(close) int fd = make_dir(AT_FDCWD, dir);
    struct skills_blobs *blobs;
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return berth_fail_field(err, "blob_dir", "%s: %s", dir, strerror(errno));
    if (st.st_uid != geteuid() || (st.st_mode & 0077))
        return berth_fail_field(err, "blob_dir", "%s must be ours, and closed to others", dir);
    blobs = calloc(1, sizeof *blobs);
    if (!blobs)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    for (size_t i = 0; i < N_KINDS; i++)
        blobs->fds[i] = -1;
    for (size_t i = 0; i < N_KINDS; i++) {
        blobs->fds[i] = make_dir(fd, folders[i]);
        if (blobs->fds[i] < 0) {
            int why = errno;

            skills_blobs_free(blobs);
            return berth_fail_field(err, "blob_dir", "%s/%s: %s", dir, folders[i],
                                    strerror(why));
        }
    }
    *ret = blobs;
    return BERTH_OK;
}

/* ----------------------------------------------------------------------------- put */

struct writer {
    int fd;
};

static enum berth_code write_all(void *arg, const void *data, size_t size,
                                 struct berth_error *err)
{
    const struct writer *writer = arg;
    const char *at = data;

    while (size > 0) {
        ssize_t done = write(writer->fd, at, size);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return fail_io(err, "write");
        at += done;
        size -= (size_t)done;
    }
    return BERTH_OK;
}

/* A new file in the tenant's folder, which the sweep may take away at any time. */
static enum berth_code open_tmp(const struct skills_blobs *blobs, const char *tenant,
                                int *ret_dir, int *ret_fd, char tmp[NAME_SIZE],
                                struct berth_error *err)
{
    char random[17];

    for (int i = 0; i < TRIES_MAX; i++) {
        int dir = make_dir(blobs->fds[BUNDLES], tenant), fd = -1;

        snprintf(tmp, NAME_SIZE, TMP "%s", berth_id_base36(random, 16));
        if (dir >= 0)
            fd = openat(dir, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd >= 0) {
            *ret_dir = dir;
            *ret_fd = fd;
            return BERTH_OK;
        }
        if (errno != ENOENT) {
            enum berth_code code = fail_io(err, "it cannot be written");

            closep(&dir);
            return code;
        }
        closep(&dir);
    }
    return fail_io(err, "it cannot be written");
}

enum berth_code skills_blobs_put(struct skills_blobs *blobs, const char *tenant,
                                 const struct bundle *bundle, const char *prefix,
                                 const char *digest, struct berth_error *err)
{
    BERTH_AUTO(close) int dir = -1;
    BERTH_AUTO(close) int fd = -1;
    char tmp[NAME_SIZE], name[NAME_SIZE];
    struct writer writer;
    enum berth_code code = open_tmp(blobs, tenant, &dir, &fd, tmp, err);

    if (code)
        return code;
    writer.fd = fd;
    snprintf(name, sizeof name, "%s%s", digest, suffixes[BUNDLES]);
    code = bundle_write_tar(bundle, prefix, write_all, &writer, err);
    if (!code && fsync(fd) < 0)
        code = fail_io(err, "sync");
    if (!code && renameat(dir, tmp, dir, name) < 0)
        code = fail_io(err, "rename");
    if (code) {
        unlinkat(dir, tmp, 0);
        return code;
    }
    return fsync(dir) < 0 ? fail_io(err, "sync") : BERTH_OK;
}

/* ---------------------------------------------------------------------------- open */

static enum berth_code open_blob(const struct skills_blobs *blobs, enum kind kind,
                                 const char *tenant, const char *id, int *ret_fd,
                                 uint64_t *ret_size, struct berth_error *err)
{
    BERTH_AUTO(close) int dir = open_dir(blobs->fds[kind], tenant);
    char name[NAME_SIZE];
    struct stat st;
    int fd = -1;

    snprintf(name, sizeof name, "%s%s", id, suffixes[kind]);
    if (dir >= 0)
        fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? berth_fail(err, BERTH_REASON_FILE_NOT_FOUND,
                                            "it is not in the blob store (any more)")
                               : fail_io(err, "open");
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return fail_io(err, "stat");
    }
    *ret_fd = fd;
    *ret_size = (uint64_t)st.st_size;
    return BERTH_OK;
}

enum berth_code skills_blobs_open(struct skills_blobs *blobs, const char *tenant,
                                  const char *digest, int *ret_fd, uint64_t *ret_size,
                                  struct berth_error *err)
{
    return open_blob(blobs, BUNDLES, tenant, digest, ret_fd, ret_size, err);
}

/* ---------------------------------------------------------------------------- logs */

void skills_log_add(struct skills_blobs *blobs, const char *tenant, const char *operation_id,
                    const void *data, size_t size)
{
    BERTH_AUTO(close) int dir = make_dir(blobs->fds[LOGS], tenant);
    BERTH_AUTO(close) int fd = -1;
    struct writer writer;
    char name[NAME_SIZE];
    struct stat st;

    snprintf(name, sizeof name, "%s%s", operation_id, suffixes[LOGS]);
    if (dir >= 0)
        fd = openat(dir, name, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size >= SKILLS_LOG_MAX)
        return;
    if (size > (size_t)(SKILLS_LOG_MAX - st.st_size))
        size = (size_t)(SKILLS_LOG_MAX - st.st_size);
    writer.fd = fd;
    if (write_all(&writer, data, size, NULL))
        return; /* as said: best effort */
}

enum berth_code skills_log_open(struct skills_blobs *blobs, const char *tenant,
                                const char *operation_id, int *ret_fd, uint64_t *ret_size,
                                struct berth_error *err)
{
    return open_blob(blobs, LOGS, tenant, operation_id, ret_fd, ret_size, err);
}

/* --------------------------------------------------------------------------- sweep */

static DIR *read_dir(int dir_fd)
{
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;

    if (!dir)
        closep(&fd);
    return dir;
}

struct sweep {
    int64_t before_ms, tmp_ms;
    const char *suffix;
    skills_keep_fn keep; /* NULL: by age alone */
    void *arg;
};

/* May this one go? */
static bool is_over(const struct sweep *sweep, const char *name, const struct stat *st)
{
    int64_t changed_ms = (int64_t)st->st_mtim.tv_sec * 1000 + st->st_mtim.tv_nsec / 1000000;
    size_t len = strlen(name), tail = strlen(sweep->suffix);
    char id[NAME_SIZE];

    if (!S_ISREG(st->st_mode))
        return false;
    if (strncmp(name, TMP, strlen(TMP)) == 0)
        return changed_ms < sweep->tmp_ms;
    if (changed_ms >= sweep->before_ms || len <= tail || len >= sizeof id ||
        strcmp(name + len - tail, sweep->suffix) != 0)
        return false;
    snprintf(id, sizeof id, "%.*s", (int)(len - tail), name);
    return !sweep->keep || !sweep->keep(sweep->arg, id);
}

static unsigned sweep_folder(int parent_fd, const char *tenant, const struct sweep *sweep)
{
    BERTH_AUTO(close) int fd = open_dir(parent_fd, tenant);
    DIR *dir = fd >= 0 ? read_dir(fd) : NULL;
    const struct dirent *entry;
    unsigned n = 0;
    struct stat st;

    if (!dir)
        return 0;
    while ((entry = readdir(dir)))
        if (fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            is_over(sweep, entry->d_name, &st))
            n += unlinkat(fd, entry->d_name, 0) == 0;
    closedir(dir);
    (void)unlinkat(parent_fd, tenant, AT_REMOVEDIR); /* where it is empty */
    return n;
}

unsigned skills_blobs_sweep(struct skills_blobs *blobs, const char *tenant, int64_t bundle_ms,
                            int64_t log_ms, skills_keep_fn keep, void *arg)
{
    const int64_t tmp_ms = berth_now_ms() - TMP_KEEP_MS;
    const struct sweep bundles = {bundle_ms, tmp_ms, suffixes[BUNDLES], keep, arg};
    const struct sweep logs = {log_ms, tmp_ms, suffixes[LOGS], NULL, NULL};

    return sweep_folder(blobs->fds[BUNDLES], tenant, &bundles) +
           sweep_folder(blobs->fds[LOGS], tenant, &logs);
}

void skills_blobs_tenants(struct skills_blobs *blobs, void (*fn)(void *arg, const char *tenant),
                          void *arg)
{
    for (size_t i = 0; i < N_KINDS; i++) {
        DIR *dir = read_dir(blobs->fds[i]);
        const struct dirent *entry;

        while (dir && (entry = readdir(dir)))
            if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
                fn(arg, entry->d_name);
        if (dir)
            closedir(dir);
    }
}
