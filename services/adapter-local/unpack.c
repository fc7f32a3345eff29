/* unpack.c - a tar into /workspace. The directories down to the entry at hand are open, each
 * opened below the one before; one that is left gets its mode and time, so that neither stands
 * in the way of what goes into it. What is there already gives way, but for directories. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/xattr.h>

#include "services/adapter-local/carry.h"

enum { NAME_SIZE = 256, MODE_OPEN = 0700 };

struct level {
    int fd;
    char *name; /* owned; NULL: the workspace itself */
    mode_t mode;
    struct timespec mtime;
    bool timed; /* mtime is to be set */
};

struct adapter_unpack {
    struct local_root root; /* owned */
    struct tar_reader *reader;
    struct level levels[CARRY_LEVELS_MAX];
    size_t n_levels;
    uint64_t entries;

    /* The file that is being written. */
    int fd;
    char name[NAME_SIZE]; /* in the directory on top */
    char *path;           /* owned: of the entry, for what is told */
    uint64_t size;
    mode_t mode;
    struct timespec mtime;
    bool skipped; /* its content is not wanted */
    bool missed;  /* it is not there at all */

    bool moved;
    struct adapter_carried carried;

    /* Of those that write into the same sandbox. */
    struct adapter *adapter;
    char sandbox_id[ADAPTER_ROUTE_ID_SIZE];
    uint64_t fence;
    pthread_mutex_t mutex; /* held while it works */
    bool superseded;       /* under mutex: a later one has begun */
    struct adapter_unpack *next;
};

/* ------------------------------------------------------------ one at a time */

static pthread_mutex_t list_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct adapter_unpack *unpacks;

/* When it returns no earlier one writes any more. */
static enum berth_code enlist(struct adapter_unpack *unpack, struct berth_error *err)
{
    enum berth_code code = BERTH_OK;

    pthread_mutex_lock(&list_mutex);
    for (struct adapter_unpack *other = unpacks; other && !code; other = other->next) {
        if (other->adapter != unpack->adapter ||
            strcmp(other->sandbox_id, unpack->sandbox_id) != 0)
            continue;
        pthread_mutex_lock(&other->mutex);
        if (other->superseded)
            ;
        else if (unpack->moved && unpack->fence >= other->fence)
            other->superseded = true;
        else
            code = berth_fail(err, BERTH_REASON_CONFLICT,
                              "another workspace is being unpacked into the sandbox");
        pthread_mutex_unlock(&other->mutex);
    }
    if (!code) {
        unpack->next = unpacks;
        unpacks = unpack;
    }
    pthread_mutex_unlock(&list_mutex);
    return code;
}

static void delist(struct adapter_unpack *unpack)
{
    struct adapter_unpack **slot = &unpacks;

    pthread_mutex_lock(&list_mutex);
    while (*slot && *slot != unpack)
        slot = &(*slot)->next;
    if (*slot)
        *slot = unpack->next;
    pthread_mutex_unlock(&list_mutex);
}

/* ------------------------------------------------------------------------- levels */

static void lose(struct adapter_unpack *unpack, const char *reason)
{
    unpack->missed = true;
    adapter_carried_lose(&unpack->carried, unpack->path, reason);
}

static int top_fd(const struct adapter_unpack *unpack)
{
    return unpack->levels[unpack->n_levels - 1].fd;
}

static void leave_level(struct adapter_unpack *unpack)
{
    struct level *level = &unpack->levels[--unpack->n_levels];
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, level->mtime};

    if (!level->name) /* whatever the tar says of the workspace itself, it stays of use */
        level->mode |= MODE_OPEN;
    (void)fchmod(level->fd, level->mode);
    if (level->timed)
        (void)futimens(level->fd, times);
    close(level->fd);
    free(level->name);
}

/* A directory that is to be kept as it is but for what goes into it. Takes fd. */
static bool push_level(struct adapter_unpack *unpack, int fd, const char *name)
{
    struct level *level = &unpack->levels[unpack->n_levels];
    struct stat st;

    *level = (struct level){.fd = fd, .name = name ? strdup(name) : NULL};
    if ((name && !level->name) || fstat(fd, &st) < 0) {
        close(fd);
        free(level->name);
        return false;
    }
    level->mode = st.st_mode & 01777;
    level->mtime = st.st_mtim;
    level->timed = true;
    if ((st.st_mode & MODE_OPEN) != MODE_OPEN)
        (void)fchmod(fd, level->mode | MODE_OPEN);
    unpack->n_levels++;
    return true;
}

/* A directory in the one on top, also one that is closed to its own user. -1 and errno. */
static int open_dir(struct adapter_unpack *unpack, const char *name)
{
    int fd = carry_open(top_fd(unpack), name, O_RDONLY | O_DIRECTORY, 0), path_fd;
    char path[48];
    struct stat st;

    if (fd >= 0 || errno != EACCES)
        return fd;
    path_fd = carry_open(top_fd(unpack), name, O_PATH | O_DIRECTORY, 0);
    if (path_fd < 0)
        return -1;
    snprintf(path, sizeof path, "/proc/self/fd/%d", path_fd);
    if (fstat(path_fd, &st) == 0 && chmod(path, (st.st_mode & 01777) | MODE_OPEN) == 0) {
        fd = carry_open(path_fd, ".", O_RDONLY | O_DIRECTORY, 0);
        if (fd >= 0)
            (void)fchmod(fd,
                         st.st_mode & 01777); /* push_level() notes it, and opens it again */
    } else {
        errno = EACCES;
    }
    close(path_fd);
    return fd;
}

static bool enter(struct adapter_unpack *unpack, const char *name)
{
    int fd = open_dir(unpack, name);

    if (fd < 0 && errno == ENOENT && mkdirat(top_fd(unpack), name, 0700) == 0) {
        fd = open_dir(unpack, name);
        if (fd >= 0)
            (void)fchmod(fd, 0755);
    }
    if (fd < 0) {
        lose(unpack, errno == EXDEV    ? "on another file system"
                     : errno == EACCES ? "its directory is closed to the session's user"
                                       : "what should be its directory is none");
        return false;
    }
    if (!push_level(unpack, fd, name)) {
        lose(unpack, "its directory cannot be opened");
        return false;
    }
    return true;
}

/* The next component from *at on, which is moved behind it. False: there is none. */
static bool next_name(const char **at, const char **ret, size_t *ret_size)
{
    for (;;) {
        *at += strspn(*at, "/");
        *ret_size = strcspn(*at, "/");
        *ret = *at;
        if (*ret_size == 0)
            return false;
        *at += *ret_size;
        if (*ret_size != 1 || **ret != '.')
            return true;
    }
}

/* The read-only directory itself. */
static bool is_input(const struct adapter_unpack *unpack, const char *path)
{
    const char *at = path, *name;
    size_t size;

    return !unpack->moved && next_name(&at, &name, &size) && size == 5 &&
           memcmp(name, "input", 5) == 0 && !next_name(&at, &name, &size);
}

/* May the path be followed? Says why not. */
static const char *judge_path(const struct adapter_unpack *unpack, const char *path)
{
    const char *at = path, *name;
    size_t size, n = 0;

    while (next_name(&at, &name, &size)) {
        if (size == 2 && memcmp(name, "..", 2) == 0)
            return "its path leads out of the workspace";
        if (size >= NAME_SIZE)
            return "a name in its path is longer than 255 bytes";
        if (n++ == 0 && !unpack->moved && size == 5 && memcmp(name, "input", 5) == 0)
            return CARRY_DIR "/input is read-only";
    }
    return n >= CARRY_LEVELS_MAX ? "more than 510 directories deep" : NULL;
}

/* Open the directories down to the one that holds path, close the others. ret_name: its last
 * component; "": the workspace itself. */
static bool go_to(struct adapter_unpack *unpack, const char *path, char ret_name[NAME_SIZE])
{
    const char *at = path, *name, *why = judge_path(unpack, path);
    char component[NAME_SIZE];
    size_t size, depth = 1;

    ret_name[0] = 0;
    if (why) {
        lose(unpack, why);
        return false;
    }
    while (next_name(&at, &name, &size)) {
        if (ret_name[0]) { /* it was not the last one */
            const struct level *level = &unpack->levels[depth];

            snprintf(component, sizeof component, "%s", ret_name);
            if (depth >= unpack->n_levels || strcmp(level->name, component) != 0) {
                while (unpack->n_levels > depth)
                    leave_level(unpack);
                if (!enter(unpack, component))
                    return false;
            }
            depth++;
        }
        snprintf(ret_name, NAME_SIZE, "%.*s", (int)size, name);
    }
    while (unpack->n_levels > depth)
        leave_level(unpack);
    return true;
}

/* ------------------------------------------------------------------------ entries */

static bool clear_name(struct adapter_unpack *unpack, const char *name)
{
    if (unlinkat(top_fd(unpack), name, 0) == 0 || errno == ENOENT)
        return true;
    if ((errno == EISDIR || errno == EPERM) &&
        unlinkat(top_fd(unpack), name, AT_REMOVEDIR) == 0)
        return true;
    lose(unpack, "something in its place cannot be removed");
    return false;
}

static void set_xattrs(struct adapter_unpack *unpack, int fd, const struct tar_entry *entry)
{
    for (size_t i = 0; i < entry->n_xattrs; i++) {
        const struct tar_xattr *xattr = &entry->xattrs[i];

        if (fsetxattr(fd, xattr->name, xattr->value, xattr->size, 0) < 0)
            adapter_carried_lose(&unpack->carried, unpack->path, "an extended attribute of it");
    }
}

static struct timespec time_of(const struct tar_entry *entry)
{
    return (struct timespec){.tv_sec = entry->mtime_s, .tv_nsec = entry->mtime_ns};
}

/* A full disk ends it all; what one entry alone cannot have is told. */
static enum berth_code fail_or_lose(struct adapter_unpack *unpack, int why,
                                    struct berth_error *err)
{
    if (why == ENOSPC || why == EDQUOT || why == EIO || why == EMFILE || why == ENFILE ||
        why == ENOMEM)
        return place_fail(err, why, unpack->path);
    lose(unpack, strerrordesc_np(why) ? strerrordesc_np(why) : "it cannot be made");
    return BERTH_OK;
}

static enum berth_code begin_dir(struct adapter_unpack *unpack, const char *name,
                                 const struct tar_entry *entry, struct berth_error *err)
{
    struct level *level;
    struct stat st;

    if (name[0]) {
        if (fstatat(top_fd(unpack), name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            !S_ISDIR(st.st_mode) && !clear_name(unpack, name))
            return BERTH_OK;
        if (mkdirat(top_fd(unpack), name, 0700) < 0 && errno != EEXIST)
            return fail_or_lose(unpack, errno, err);
        if (!enter(unpack, name))
            return BERTH_OK;
    }
    level = &unpack->levels[unpack->n_levels - 1];
    level->mode = entry->mode & 01777;
    level->mtime = time_of(entry);
    level->timed = true;
    set_xattrs(unpack, level->fd, entry);
    return BERTH_OK;
}

static enum berth_code begin_file(struct adapter_unpack *unpack, const char *name,
                                  const struct tar_entry *entry, struct berth_error *err)
{
    int fd = carry_open(top_fd(unpack), name, O_WRONLY | O_CREAT | O_EXCL, 0600);

    if (fd < 0 && errno == EEXIST) {
        if (!clear_name(unpack, name)) {
            unpack->skipped = true;
            return BERTH_OK;
        }
        fd = carry_open(top_fd(unpack), name, O_WRONLY | O_CREAT | O_EXCL, 0600);
    }
    if (fd < 0) {
        unpack->skipped = true;
        return fail_or_lose(unpack, errno, err);
    }
    unpack->fd = fd;
    unpack->size = entry->size;
    unpack->mode = entry->mode & 0777;
    unpack->mtime = time_of(entry);
    snprintf(unpack->name, sizeof unpack->name, "%s", name);
    set_xattrs(unpack, fd, entry);
    return BERTH_OK;
}

static enum berth_code make_symlink(struct adapter_unpack *unpack, const char *name,
                                    const struct tar_entry *entry, struct berth_error *err)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, time_of(entry)};

    if (!clear_name(unpack, name))
        return BERTH_OK;
    if (symlinkat(entry->target, top_fd(unpack), name) < 0)
        return fail_or_lose(unpack, errno, err);
    (void)utimensat(top_fd(unpack), name, times, AT_SYMLINK_NOFOLLOW);
    return BERTH_OK;
}

/* The directory that holds the entry named by path, opened from the workspace on. -1: none. */
static int open_parent(struct adapter_unpack *unpack, const char *path,
                       char ret_name[NAME_SIZE])
{
    const char *at = path, *name;
    int fd = carry_open(unpack->levels[0].fd, ".", O_PATH | O_DIRECTORY, 0);
    size_t size;

    ret_name[0] = 0;
    while (fd >= 0 && next_name(&at, &name, &size)) {
        if (ret_name[0]) {
            int down = carry_open(fd, ret_name, O_PATH | O_DIRECTORY, 0);

            close(fd);
            fd = down;
        }
        snprintf(ret_name, NAME_SIZE, "%.*s", (int)size, name);
    }
    return fd;
}

static enum berth_code make_hardlink(struct adapter_unpack *unpack, const char *name,
                                     const struct tar_entry *entry, struct berth_error *err)
{
    BERTH_AUTO(close) int from_fd = -1;
    char from[NAME_SIZE];
    struct stat st, now;

    if (!judge_path(unpack, entry->target))
        from_fd = open_parent(unpack, entry->target, from);
    if (from_fd < 0 || !from[0] || fstatat(from_fd, from, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
        S_ISDIR(st.st_mode)) {
        lose(unpack, "a link to what was not carried");
        return BERTH_OK;
    }
    if (fstatat(top_fd(unpack), name, &now, AT_SYMLINK_NOFOLLOW) == 0 &&
        now.st_dev == st.st_dev && now.st_ino == st.st_ino)
        return BERTH_OK; /* that one already; or it names itself */
    if (!clear_name(unpack, name))
        return BERTH_OK;
    if (linkat(from_fd, from, top_fd(unpack), name, 0) < 0)
        return fail_or_lose(unpack, errno, err);
    return BERTH_OK;
}

static enum berth_code begin_entry(struct adapter_unpack *unpack, const struct tar_entry *entry,
                                   struct berth_error *err)
{
    char name[NAME_SIZE];

    unpack->skipped = unpack->missed = false;
    free(unpack->path);
    unpack->path = strdup(entry->path);
    if (!unpack->path)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (++unpack->entries > ADAPTER_WORKSPACE_FILES_MAX)
        return berth_fail(err, BERTH_REASON_QUOTA_EXCEEDED,
                          "the workspace has more than %d files", ADAPTER_WORKSPACE_FILES_MAX);
    if (entry->kind == TAR_OTHER) {
        lose(unpack, "a device, FIFO or socket");
        return BERTH_OK;
    }
    if (entry->kind == TAR_DIR && is_input(unpack, entry->path))
        return BERTH_OK; /* it is there, and is to stay as it is */
    unpack->skipped = !go_to(unpack, entry->path, name);
    if (unpack->skipped)
        return BERTH_OK;
    if (entry->kind == TAR_DIR)
        return begin_dir(unpack, name, entry, err);
    if (!name[0]) {
        lose(unpack, "the workspace is a directory");
        unpack->skipped = true;
        return BERTH_OK;
    }
    switch (entry->kind) {
    case TAR_SYMLINK:
        return make_symlink(unpack, name, entry, err);
    case TAR_HARDLINK:
        return make_hardlink(unpack, name, entry, err);
    default:
        return begin_file(unpack, name, entry, err);
    }
}

static enum berth_code on_begin(void *ctx, const struct tar_entry *entry,
                                struct berth_error *err)
{
    struct adapter_unpack *unpack = ctx;
    enum berth_code code = begin_entry(unpack, entry, err);

    if (!code && !unpack->missed)
        unpack->carried.files++;
    return code;
}

static enum berth_code on_data(void *ctx, uint64_t offset, const uint8_t *data, size_t size,
                               struct berth_error *err)
{
    struct adapter_unpack *unpack = ctx;

    if (unpack->skipped || unpack->fd < 0)
        return BERTH_OK;
    unpack->carried.size_bytes += size;
    while (size > 0) {
        ssize_t done = pwrite(unpack->fd, data, size, (off_t)offset);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return place_fail(err, errno == EFBIG ? ENOSPC : errno, unpack->path);
        data += done;
        size -= (size_t)done;
        offset += (uint64_t)done;
    }
    return BERTH_OK;
}

static enum berth_code on_end(void *ctx, struct berth_error *err)
{
    struct adapter_unpack *unpack = ctx;
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, unpack->mtime};
    struct stat st;

    if (unpack->fd < 0)
        return BERTH_OK;
    /* Holes at its end. */
    if (fstat(unpack->fd, &st) == 0 && (uint64_t)st.st_size < unpack->size &&
        ftruncate(unpack->fd, (off_t)unpack->size) < 0)
        return place_fail(err, errno == EFBIG ? ENOSPC : errno, unpack->path);
    (void)fchmod(unpack->fd, unpack->mode);
    (void)futimens(unpack->fd, times);
    close(unpack->fd);
    unpack->fd = -1;
    return BERTH_OK;
}

/* --------------------------------------------------------------------------- calls */

static enum berth_code begin_work(struct adapter_unpack *unpack, struct place *place,
                                  struct berth_error *err)
{
    enum berth_code code;

    pthread_mutex_lock(&unpack->mutex);
    if (unpack->superseded)
        code = berth_fail(err, BERTH_REASON_CONFLICT,
                          "a later move of a workspace into the sandbox has begun");
    else
        code = place_enter(&unpack->root, place, err);
    if (code)
        pthread_mutex_unlock(&unpack->mutex);
    return code;
}

static void end_work(struct adapter_unpack *unpack, struct place *place)
{
    place_leave(place);
    pthread_mutex_unlock(&unpack->mutex);
}

enum berth_code local_write_unpack(struct adapter_unpack *unpack, const uint8_t *data,
                                   size_t size, struct berth_error *err)
{
    struct place place = {0};
    enum berth_code code = begin_work(unpack, &place, err);

    if (code)
        return code;
    code = tar_reader_feed(unpack->reader, data, size, err);
    end_work(unpack, &place);
    return code;
}

enum berth_code local_end_unpack(struct adapter_unpack *unpack, struct berth_error *err)
{
    struct place place = {0};
    enum berth_code code = begin_work(unpack, &place, err);

    if (code)
        return code;
    code = tar_reader_end(unpack->reader, err);
    while (code == BERTH_OK && unpack->n_levels > 0)
        leave_level(unpack);
    end_work(unpack, &place);
    return code;
}

static enum berth_code open_workspace(struct adapter_unpack *unpack, struct berth_error *err)
{
    BERTH_AUTO(place_leave) struct place place = {0};
    int fd;
    enum berth_code code = place_enter(&unpack->root, &place, err);

    if (code)
        return code;
    fd = carry_open(unpack->root.fd, CARRY_DIR + 1, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return carry_no_workspace(errno, err);
    return push_level(unpack, fd, NULL) ? BERTH_OK
                                        : berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

static void unpack_free(struct adapter_unpack *unpack)
{
    struct place place = {0};

    pthread_mutex_lock(&unpack->mutex);
    if (unpack->root.fd >= 0 && place_enter(&unpack->root, &place, NULL) == BERTH_OK) {
        if (unpack->fd >= 0 && !unpack->superseded)
            unlinkat(top_fd(unpack), unpack->name, 0);
        while (!unpack->superseded && unpack->n_levels > 0)
            leave_level(unpack);
        place_leave(&place);
    }
    while (unpack->n_levels > 0) {
        struct level *level = &unpack->levels[--unpack->n_levels];

        close(level->fd);
        free(level->name);
    }
    pthread_mutex_unlock(&unpack->mutex);
    closep(&unpack->fd);
    closep(&unpack->root.fd);
    tar_reader_free(unpack->reader);
    pthread_mutex_destroy(&unpack->mutex);
    adapter_carried_deinit(&unpack->carried);
    free(unpack->path);
    free(unpack);
    carry_end();
}

enum berth_code local_open_unpack(struct adapter *adapter, const struct adapter_route *route,
                                  bool moved, struct adapter_unpack **ret,
                                  struct berth_error *err)
{
    static const struct tar_sink sink = {on_begin, on_data, on_end};
    struct adapter_unpack *unpack;
    enum berth_code code = carry_begin(err);

    if (code)
        return code;
    unpack = calloc(1, sizeof *unpack);
    if (!unpack) {
        carry_end();
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    pthread_mutex_init(&unpack->mutex, NULL);
    unpack->root.fd = unpack->fd = -1;
    unpack->adapter = adapter;
    unpack->moved = moved;
    unpack->fence = route->fence;
    snprintf(unpack->sandbox_id, sizeof unpack->sandbox_id, "%s", route->sandbox_id);
    unpack->reader = tar_reader_new(&sink, unpack);
    if (!unpack->reader)
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (!code)
        code = local_open_root(adapter, route->sandbox_id, &unpack->root, err);
    if (!code)
        code = enlist(unpack, err);
    if (code) {
        unpack_free(unpack);
        return code;
    }
    /* After that, so that a fence seen since has ended this one. */
    if (moved)
        code = local_check_fence(adapter, route->sandbox_id, route->fence, err);
    if (!code)
        code = open_workspace(unpack, err);
    if (code) {
        local_close_unpack(unpack);
        return code;
    }
    *ret = unpack;
    return BERTH_OK;
}

const struct adapter_carried *local_unpacked(const struct adapter_unpack *unpack)
{
    return &unpack->carried;
}

void local_close_unpack(struct adapter_unpack *unpack)
{
    if (!unpack)
        return;
    delist(unpack);
    unpack_free(unpack);
}

const struct adapter_workspace_ops local_workspace_ops = {.open_pack = local_open_pack,
                                                          .read_pack = local_read_pack,
                                                          .packed = local_packed,
                                                          .close_pack = local_close_pack,
                                                          .open_unpack = local_open_unpack,
                                                          .write_unpack = local_write_unpack,
                                                          .end_unpack = local_end_unpack,
                                                          .unpacked = local_unpacked,
                                                          .close_unpack = local_close_unpack};
