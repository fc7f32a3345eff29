#include "services/dataplane/blobs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#include "common/crypto/crypto.h"
#include "common/ids/ids.h"
#include "common/time/time.h"

#define SUFFIX ".tar"
#define INTO ".into" /* beside <id>.tar: the sandbox that it was unpacked into last */
#define TMP ".tmp-"  /* no id begins with it: the sweep goes by that and by age */
#define MAGIC "BERTHWS1"

enum {
    NAME_SIZE = 160,
    FLUSH_SIZE = 16 << 20,
    TRIES_MAX = 16,            /* a directory that is removed while it is made */
    TMP_KEEP_MS = 3600 * 1000, /* since it was written to */
    TICK_MAX_MS = 20,
    FRESH_MAX = 16,
    FRESH_MS = 60 * 1000, /* what was written here so lately is still in memory */
};

/* A blob as it was when this process had written it. */
struct fresh {
    dev_t dev;
    ino_t ino;
    off_t size;
    struct timespec changed; /* st_ctim: no write passes it by */
    int64_t tick_ms;         /* 0: none */
};

struct blobs {
    int fd;
    uint64_t max_bytes;
    int64_t keep_ms;
    pthread_mutex_t mutex; /* for all below */
    struct fresh fresh[FRESH_MAX];
    unsigned next_fresh;
};

/* Behind the content. */
struct trailer {
    char magic[8];
    uint8_t size[8]; /* little endian */
    uint8_t sha256[32];
};

struct blob {
    struct blobs *blobs;
    int dir_fd, fd;
    char tmp[NAME_SIZE], name[NAME_SIZE]; /* tmp "": it is being read, or has its name */
    struct berth_sha256 *hash;
    uint64_t size, end; /* end: of one that is read */
    uint64_t flushed;   /* this much is on its way to the disk */
    bool fresh;         /* it is read as it was written a moment ago: nothing to compare */
    uint8_t sha256[32];
};

static enum berth_code fail_io(struct berth_error *err, const char *what)
{
    int why = errno;

    if (why == ENOSPC || why == EDQUOT || why == EFBIG)
        return berth_fail(err, BERTH_REASON_DISK_FULL, "the blob store is full");
    return berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE, "blob store: %s: %s", what,
                      strerror(why));
}

/* -------------------------------------------------------------------------- store */

enum berth_code blobs_new(const struct blobs_options *options, struct blobs **ret,
                          struct berth_error *err)
{
    struct blobs *blobs;
    struct stat st;
    int fd;

    if (mkdir(options->dir, 0700) < 0 && errno != EEXIST)
        return berth_fail_field(err, "blob_dir", "%s: %s", options->dir, strerror(errno));
    fd = open(options->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0) {
        int why = errno;

        closep(&fd);
        return berth_fail_field(err, "blob_dir", "%s: %s", options->dir, strerror(why));
    }
    if (st.st_uid != geteuid() || (st.st_mode & 0077)) {
        close(fd);
        return berth_fail_field(err, "blob_dir", "%s must be ours, and closed to others",
                                options->dir);
    }
    blobs = calloc(1, sizeof *blobs);
    if (!blobs) {
        close(fd);
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    *blobs =
        (struct blobs){.fd = fd, .max_bytes = options->max_bytes, .keep_ms = options->keep_ms};
    pthread_mutex_init(&blobs->mutex, NULL);
    *ret = blobs;
    return BERTH_OK;
}

struct blobs *blobs_free(struct blobs *blobs)
{
    if (!blobs)
        return NULL;
    close(blobs->fd);
    pthread_mutex_destroy(&blobs->mutex);
    free(blobs);
    return NULL;
}

/* ------------------------------------------------------------------ just written */

/* Whatever is written from here on has a later st_ctim, which goes by the kernel's ticks. */
static void pass_tick(const struct timespec *changed)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    struct timespec now;

    for (int i = 0; i < TICK_MAX_MS; i++) {
        clock_gettime(CLOCK_REALTIME_COARSE, &now);
        if (now.tv_sec != changed->tv_sec || now.tv_nsec > changed->tv_nsec)
            return;
        nanosleep(&moment, NULL);
    }
}

static void note_fresh(struct blob *blob)
{
    struct blobs *blobs = blob->blobs;
    struct stat st;

    if (fstat(blob->fd, &st) < 0)
        return;
    pass_tick(&st.st_ctim);
    pthread_mutex_lock(&blobs->mutex);
    blobs->fresh[blobs->next_fresh++ % FRESH_MAX] =
        (struct fresh){st.st_dev, st.st_ino, st.st_size, st.st_ctim, berth_tick_ms()};
    pthread_mutex_unlock(&blobs->mutex);
}

/* Nobody has touched it since this process wrote it, a moment ago. */
static bool is_fresh(struct blobs *blobs, const struct stat *st)
{
    int64_t since_ms = berth_tick_ms() - FRESH_MS;
    bool found = false;

    pthread_mutex_lock(&blobs->mutex);
    for (size_t i = 0; i < FRESH_MAX && !found; i++) {
        const struct fresh *fresh = &blobs->fresh[i];

        found = fresh->tick_ms && fresh->tick_ms > since_ms && fresh->dev == st->st_dev &&
                fresh->ino == st->st_ino && fresh->size == st->st_size &&
                fresh->changed.tv_sec == st->st_ctim.tv_sec &&
                fresh->changed.tv_nsec == st->st_ctim.tv_nsec;
    }
    pthread_mutex_unlock(&blobs->mutex);
    return found;
}

static int open_dir(int dir_fd, const char *name)
{
    return openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* The session's directory; made when make is set. -1 and errno. */
static int open_session(const struct blobs *blobs, const Berth__Common__V1__SessionRef *session,
                        bool make)
{
    int fd = -1;

    for (int i = 0; i < TRIES_MAX && fd < 0; i++) {
        BERTH_AUTO(close) int tenant_fd = -1;

        if (make && mkdirat(blobs->fd, session->tenant_id, 0700) == 0)
            (void)fsync(blobs->fd);
        tenant_fd = open_dir(blobs->fd, session->tenant_id);
        if (tenant_fd >= 0 && make && mkdirat(tenant_fd, session->session_id, 0700) == 0)
            (void)fsync(tenant_fd);
        if (tenant_fd >= 0)
            fd = open_dir(tenant_fd, session->session_id);
        if (fd < 0 && (!make || errno != ENOENT)) /* else the sweep was faster */
            break;
    }
    return fd;
}

static struct blob *blob_new(struct blobs *blobs, const char *id)
{
    struct blob *blob = calloc(1, sizeof *blob);

    if (!blob)
        return NULL;
    blob->blobs = blobs;
    blob->dir_fd = blob->fd = -1;
    snprintf(blob->name, sizeof blob->name, "%s" SUFFIX, id);
    blob->hash = berth_sha256_new();
    if (!blob->hash) {
        free(blob);
        return NULL;
    }
    return blob;
}

void blob_close(struct blob *blob)
{
    if (!blob)
        return;
    if (blob->tmp[0])
        unlinkat(blob->dir_fd, blob->tmp, 0);
    closep(&blob->fd);
    closep(&blob->dir_fd);
    berth_sha256_free(blob->hash);
    free(blob);
}

uint64_t blob_size(const struct blob *blob)
{
    return blob->size;
}

const uint8_t *blob_sha256(const struct blob *blob)
{
    return blob->sha256;
}

/* -------------------------------------------------------------------------- write */

enum berth_code blob_create(struct blobs *blobs, const Berth__Common__V1__SessionRef *session,
                            const char *id, struct blob **ret, struct berth_error *err)
{
    struct blob *blob = blob_new(blobs, id);
    char random[17];

    if (!blob)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    for (int i = 0; i < TRIES_MAX && blob->fd < 0; i++) {
        closep(&blob->dir_fd);
        blob->dir_fd = open_session(blobs, session, true);
        if (blob->dir_fd < 0)
            break;
        snprintf(blob->tmp, sizeof blob->tmp, TMP "%s", berth_id_base36(random, 16));
        blob->fd = openat(blob->dir_fd, blob->tmp,
                          O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (blob->fd < 0 && errno != ENOENT) /* else the sweep was faster */
            break;
    }
    if (blob->fd < 0) {
        enum berth_code code = fail_io(err, "it cannot be written");

        blob->tmp[0] = 0;
        blob_close(blob);
        return code;
    }
    *ret = blob;
    return BERTH_OK;
}

static bool write_all(int fd, const void *data, size_t size)
{
    const uint8_t *at = data;

    while (size > 0) {
        ssize_t done = write(fd, at, size);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return false;
        at += done;
        size -= (size_t)done;
    }
    return true;
}

enum berth_code blob_write(struct blob *blob, const void *data, size_t size,
                           struct berth_error *err)
{
    if (size > blob->blobs->max_bytes - blob->size)
        return berth_fail(err, BERTH_REASON_QUOTA_EXCEEDED,
                          "the workspace is larger than blob_max, %llu bytes",
                          (unsigned long long)blob->blobs->max_bytes);
    if (!write_all(blob->fd, data, size))
        return fail_io(err, "write");
    berth_sha256_add(blob->hash, data, size);
    blob->size += size;
    if (blob->size - blob->flushed >= FLUSH_SIZE) { /* so that the sync at the end is short */
        (void)sync_file_range(blob->fd, (off_t)blob->flushed,
                              (off_t)(blob->size - blob->flushed), SYNC_FILE_RANGE_WRITE);
        blob->flushed = blob->size;
    }
    return BERTH_OK;
}

static struct trailer make_trailer(const struct blob *blob)
{
    struct trailer trailer = {.magic = {0}};

    memcpy(trailer.magic, MAGIC, sizeof trailer.magic);
    for (unsigned i = 0; i < sizeof trailer.size; i++)
        trailer.size[i] = (uint8_t)(blob->size >> 8 * i);
    memcpy(trailer.sha256, blob->sha256, sizeof trailer.sha256);
    return trailer;
}

enum berth_code blob_commit(struct blob *blob, int64_t not_after_ms, struct berth_error *err)
{
    struct trailer trailer;

    berth_sha256_end(blob->hash, blob->sha256);
    trailer = make_trailer(blob);
    if (!write_all(blob->fd, &trailer, sizeof trailer) || fsync(blob->fd) < 0)
        return fail_io(err, "write");
    if (berth_now_ms() > not_after_ms)
        return berth_fail(err, BERTH_REASON_DEADLINE, NULL);
    if (renameat(blob->dir_fd, blob->tmp, blob->dir_fd, blob->name) < 0)
        return fail_io(err, "rename");
    blob->tmp[0] = 0;
    if (fsync(blob->dir_fd) < 0)
        return fail_io(err, "sync");
    note_fresh(blob);
    return BERTH_OK;
}

/* --------------------------------------------------------------------------- read */

static enum berth_code fail_changed(struct berth_error *err)
{
    return berth_fail(err, BERTH_REASON_FILE_CHANGED, "the blob is not what was written");
}

static enum berth_code read_trailer(struct blob *blob, struct berth_error *err)
{
    struct trailer trailer;
    struct stat st;
    uint64_t size = 0;

    if (fstat(blob->fd, &st) < 0)
        return fail_io(err, "stat");
    if (!S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof trailer)
        return fail_changed(err);
    blob->end = (uint64_t)st.st_size - sizeof trailer;
    if (pread(blob->fd, &trailer, sizeof trailer, (off_t)blob->end) != sizeof trailer)
        return fail_io(err, "read");
    for (unsigned i = 0; i < sizeof trailer.size; i++)
        size |= (uint64_t)trailer.size[i] << 8 * i;
    if (memcmp(trailer.magic, MAGIC, sizeof trailer.magic) != 0 || size != blob->end)
        return fail_changed(err);
    memcpy(blob->sha256, trailer.sha256, sizeof trailer.sha256);
    blob->fresh = is_fresh(blob->blobs, &st);
    return BERTH_OK;
}

enum berth_code blob_open(struct blobs *blobs, const Berth__Common__V1__SessionRef *session,
                          const char *id, struct blob **ret, struct berth_error *err)
{
    struct blob *blob = blob_new(blobs, id);
    enum berth_code code;

    if (!blob)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    blob->dir_fd = open_session(blobs, session, false);
    if (blob->dir_fd >= 0)
        blob->fd = openat(blob->dir_fd, blob->name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (blob->fd >= 0)
        code = read_trailer(blob, err);
    else if (errno == ENOENT)
        code = berth_fail(err, BERTH_REASON_FILE_NOT_FOUND, "there is no such blob");
    else
        code = fail_io(err, "open");
    if (code) {
        blob_close(blob);
        return code;
    }
    (void)posix_fadvise(blob->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    *ret = blob;
    return BERTH_OK;
}

enum berth_code blob_read(struct blob *blob, void *buf, size_t size, size_t *ret_size,
                          struct berth_error *err)
{
    uint8_t sha256[32];
    ssize_t got = 0;

    if (size > blob->end - blob->size)
        size = (size_t)(blob->end - blob->size);
    *ret_size = 0;
    if (size == 0 && blob->fresh)
        return BERTH_OK;
    if (size == 0) {
        berth_sha256_end(blob->hash, sha256);
        return memcmp(sha256, blob->sha256, sizeof sha256) == 0 ? BERTH_OK : fail_changed(err);
    }
    do
        got = read(blob->fd, buf, size);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return fail_io(err, "read");
    if (got == 0)
        return fail_changed(err);
    if (!blob->fresh)
        berth_sha256_add(blob->hash, buf, (size_t)got);
    blob->size += (uint64_t)got;
    *ret_size = (size_t)got;
    return BERTH_OK;
}

/* --------------------------------------------------------------------------- find */

/* The id in a blob's file name. */
static bool id_of(const char *name, char ret_id[BLOB_ID_SIZE])
{
    size_t len = strlen(name), suffix = strlen(SUFFIX);

    if (len <= suffix || len - suffix >= BLOB_ID_SIZE || name[0] == '.' ||
        strcmp(name + len - suffix, SUFFIX) != 0)
        return false;
    snprintf(ret_id, BLOB_ID_SIZE, "%.*s", (int)(len - suffix), name);
    return true;
}

/* 0: it names none. */
static uint64_t fence_of(const char *id)
{
    enum { DIGITS = 16 };

    if (strspn(id, "0123456789abcdef") != DIGITS || id[DIGITS] != '-')
        return 0;
    return strtoull(id, NULL, 16);
}

static bool is_unpacked(int dir_fd, const char *id, const char *into)
{
    char name[NAME_SIZE], noted[NAME_SIZE];
    BERTH_AUTO(close) int fd = -1;
    ssize_t size;

    snprintf(name, sizeof name, "%s" INTO, id);
    fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    size = fd >= 0 ? read(fd, noted, sizeof noted - 1) : -1;
    if (size < 0)
        return false;
    noted[size] = 0;
    return strcmp(noted, into) == 0;
}

enum berth_code blob_find(struct blobs *blobs, const Berth__Common__V1__SessionRef *session,
                          uint64_t up_to_fence, const char *into, char ret_id[BLOB_ID_SIZE],
                          struct berth_error *err)
{
    int fd = open_session(blobs, session, false);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    char id[BLOB_ID_SIZE], best[BLOB_ID_SIZE] = "";
    struct dirent *entry;
    bool waits;

    if (!dir) {
        enum berth_code code = errno == ENOENT ? BERTH_OK : fail_io(err, "open");

        closep(&fd);
        return code ? code : berth_fail(err, BERTH_REASON_FILE_NOT_FOUND, NULL);
    }
    while ((entry = readdir(dir)))
        if (id_of(entry->d_name, id) && fence_of(id) > fence_of(best) &&
            fence_of(id) <= up_to_fence)
            memcpy(best, id, sizeof best);
    waits = best[0] && !is_unpacked(dirfd(dir), best, into);
    closedir(dir);
    if (!waits)
        return berth_fail(err, BERTH_REASON_FILE_NOT_FOUND, "no blob of the session waits");
    memcpy(ret_id, best, sizeof best);
    return BERTH_OK;
}

enum berth_code blob_note_unpacked(struct blob *blob, const char *into, struct berth_error *err)
{
    char name[NAME_SIZE];
    BERTH_AUTO(close) int fd = -1;

    snprintf(name, sizeof name, "%.*s" INTO, (int)(strlen(blob->name) - strlen(SUFFIX)),
             blob->name);
    fd =
        openat(blob->dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || !write_all(fd, into, strlen(into)) || fsync(fd) < 0 ||
        fsync(blob->dir_fd) < 0)
        return fail_io(err, "write");
    return BERTH_OK;
}

/* ------------------------------------------------------------------------- remove */

static int64_t changed_ms(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000 + st->st_mtim.tv_nsec / 1000000;
}

/* Remove the files in dir_fd that were written last before their time. */
static unsigned remove_older(int dir_fd, int64_t tmp_ms, int64_t blob_ms)
{
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    unsigned n = 0;
    struct dirent *entry;

    if (!dir) {
        closep(&fd);
        return 0;
    }
    while ((entry = readdir(dir))) {
        int64_t before_ms = strncmp(entry->d_name, TMP, strlen(TMP)) == 0 ? tmp_ms : blob_ms;
        struct stat st;

        if (fstatat(dir_fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            !S_ISDIR(st.st_mode) && changed_ms(&st) < before_ms)
            n += unlinkat(dir_fd, entry->d_name, 0) == 0;
    }
    closedir(dir);
    return n;
}

enum berth_code blob_remove(struct blobs *blobs, const Berth__Common__V1__SessionRef *session,
                            const char *id, struct berth_error *err)
{
    BERTH_AUTO(close) int dir_fd = open_session(blobs, session, false);
    BERTH_AUTO(close) int tenant_fd = -1;
    char name[NAME_SIZE];
    struct stat st;

    if (dir_fd < 0)
        return errno == ENOENT ? BERTH_OK : fail_io(err, "open");
    snprintf(name, sizeof name, "%s" SUFFIX, id);
    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        (void)remove_older(dir_fd, changed_ms(&st), changed_ms(&st));
        if (unlinkat(dir_fd, name, 0) < 0 && errno != ENOENT)
            return fail_io(err, "remove");
    } else if (errno != ENOENT) {
        return fail_io(err, "remove");
    }
    snprintf(name, sizeof name, "%s" INTO, id);
    (void)unlinkat(dir_fd, name, 0); /* last: without it the tar would wait */
    /* Each goes when it is empty. */
    tenant_fd = open_dir(blobs->fd, session->tenant_id);
    if (tenant_fd >= 0 && unlinkat(tenant_fd, session->session_id, AT_REMOVEDIR) == 0)
        (void)unlinkat(blobs->fd, session->tenant_id, AT_REMOVEDIR);
    return BERTH_OK;
}

/* Sweep the directories in dir_fd; levels 0: their files are looked at. */
static unsigned sweep_below(int dir_fd, int levels, int64_t tmp_ms, int64_t blob_ms)
{
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    unsigned n = 0;
    struct dirent *entry;

    if (!dir) {
        closep(&fd);
        return 0;
    }
    while ((entry = readdir(dir))) {
        BERTH_AUTO(close) int below = -1;

        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        below = open_dir(dir_fd, entry->d_name);
        if (below < 0)
            continue;
        n += levels > 0 ? sweep_below(below, levels - 1, tmp_ms, blob_ms)
                        : remove_older(below, tmp_ms, blob_ms);
        (void)unlinkat(dir_fd, entry->d_name, AT_REMOVEDIR);
    }
    closedir(dir);
    return n;
}

unsigned blobs_sweep(struct blobs *blobs)
{
    int64_t now_ms = berth_now_ms();

    return sweep_below(blobs->fd, 1, now_ms - TMP_KEEP_MS,
                       blobs->keep_ms ? now_ms - blobs->keep_ms : 0);
}
