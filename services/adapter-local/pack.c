/* pack.c - a workspace as a tar, read piece by piece: the tree is walked as far as the next
 * piece needs. What the sandbox changes meanwhile cannot lead out of it, and is told. */
#include <dirent.h>
#include <errno.h>
#include <linux/openat2.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

#include "services/adapter-local/carry.h"

enum {
    LINKS_MAX = 65536, /* files with several names that are remembered */
    LINK_SLOTS = 2 * LINKS_MAX,
    LINK_BYTES_MAX = 16 << 20, /* of their paths */
    LIST_MAX = 64 << 10,       /* names of attributes */
};

struct level {
    DIR *dir;
    size_t path_size; /* of pack->path, for the directory itself */
    bool closed;      /* to its owner, the user, who could open it: looked into as who may */
};

/* The first name of a file that has several. */
struct link {
    dev_t dev;
    ino_t ino;
    char *path; /* owned; NULL: a free slot */
};

struct adapter_pack {
    struct local_root root; /* owned */
    struct level levels[CARRY_LEVELS_MAX];
    size_t n_levels;
    char *path; /* owned: below the workspace, as the tar says it */
    size_t path_size;
    struct link *links; /* owned: a hash table, made with the first one */
    size_t n_links, link_bytes;

    uint8_t *head; /* owned: what comes before the content */
    size_t head_size, head_at;
    int fd; /* of the file whose content comes, or -1 */
    struct tar_part *parts;
    size_t n_parts, part;
    uint64_t part_at, stored; /* stored: bytes of content in all */
    size_t padding;
    bool shortened;    /* the file has fewer bytes than it had */
    bool ended;        /* the last zeros are out, or on their way */
    char *xattr_names; /* owned, LIST_MAX */
    uint8_t *xattr_values;
    struct adapter_carried carried;
};

/* ------------------------------------------------------------------------ shared */

static atomic_int n_calls;

enum berth_code carry_begin(struct berth_error *err)
{
    if (atomic_fetch_add(&n_calls, 1) < CARRY_CALLS_MAX)
        return BERTH_OK;
    atomic_fetch_sub(&n_calls, 1);
    return berth_fail(err, BERTH_REASON_OVERLOADED, "over %d workspaces on their way at once",
                      CARRY_CALLS_MAX);
}

void carry_end(void)
{
    atomic_fetch_sub(&n_calls, 1);
}

int carry_open(int dir_fd, const char *name, uint64_t flags, mode_t mode)
{
    struct open_how how = {.flags = flags | O_NOFOLLOW | O_CLOEXEC,
                           .mode = mode,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS |
                                      RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV};
    int fd;

    do
        fd = (int)syscall(SYS_openat2, dir_fd, name, &how, sizeof how);
    while (fd < 0 && (errno == EINTR || errno == EAGAIN));
    return fd;
}

enum berth_code carry_no_workspace(int why, struct berth_error *err)
{
    if (why == ENOENT || why == ENOTDIR || why == ELOOP || why == EXDEV)
        return berth_fail(err, BERTH_REASON_NOT_A_DIRECTORY, "the sandbox has no " CARRY_DIR);
    return place_fail(err, why, CARRY_DIR);
}

/* -------------------------------------------------------------------------- path */

/* Append a component. False: too long, or no memory. */
static bool push_name(struct adapter_pack *pack, const char *name)
{
    size_t size = strlen(name);

    if (pack->path_size + 1 + size > TAR_PATH_MAX)
        return false;
    if (pack->path_size > 0)
        pack->path[pack->path_size++] = '/';
    memcpy(pack->path + pack->path_size, name, size + 1);
    pack->path_size += size;
    return true;
}

static void cut_path(struct adapter_pack *pack, size_t size)
{
    pack->path_size = size;
    pack->path[size] = 0;
}

static void lose(struct adapter_pack *pack, const char *reason)
{
    adapter_carried_lose(&pack->carried, pack->path, reason);
}

/* ------------------------------------------------------------------------- links */

static struct link *slot_of(struct adapter_pack *pack, const struct stat *st)
{
    size_t at = ((size_t)st->st_ino * 0x9e3779b97f4a7c15U ^ (size_t)st->st_dev) % LINK_SLOTS;

    while (pack->links[at].path &&
           (pack->links[at].dev != st->st_dev || pack->links[at].ino != st->st_ino))
        at = (at + 1) % LINK_SLOTS;
    return &pack->links[at];
}

/* The name under which the file has been packed; NULL: not yet, and from now on it has. */
static const char *find_link(struct adapter_pack *pack, const struct stat *st)
{
    struct link *slot;

    if (st->st_nlink < 2)
        return NULL;
    if (!pack->links)
        pack->links = calloc(LINK_SLOTS, sizeof *pack->links);
    if (!pack->links)
        return NULL;
    slot = slot_of(pack, st);
    if (slot->path)
        return slot->path;
    if (pack->n_links == LINKS_MAX || pack->link_bytes + pack->path_size > LINK_BYTES_MAX) {
        lose(pack, "too many files with several names: each name has its own copy");
        return NULL;
    }
    slot->path = strdup(pack->path);
    if (!slot->path)
        return NULL;
    slot->dev = st->st_dev;
    slot->ino = st->st_ino;
    pack->n_links++;
    pack->link_bytes += pack->path_size + 1;
    return NULL;
}

/* ------------------------------------------------------------------------ opening */

static bool is_users(const struct adapter_pack *pack, const struct stat *st)
{
    return st->st_uid == pack->root.uid_base + 1000;
}

/* Back to be the user. */
static void enter_again(const struct adapter_pack *pack, struct place *place)
{
    int why = errno;

    if (place_enter(&pack->root, place, NULL) != BERTH_OK)
        abort(); /* the rest must not be read as anybody else */
    errno = why;
}

/* As the user; and what belongs to the user but is closed to them, as who may read it all: the
 * user could open it to themselves. */
static int open_entry(const struct adapter_pack *pack, struct place *place, int dir_fd,
                      const char *name, const struct stat *st, uint64_t flags)
{
    int fd = carry_open(dir_fd, name, flags, 0);

    if (fd >= 0 || errno != EACCES || !is_users(pack, st) || !place->root)
        return fd;
    place_leave(place);
    fd = carry_open(dir_fd, name, flags, 0);
    enter_again(pack, place);
    return fd;
}

static const char *why_not_opened(int why)
{
    switch (why) {
    case EACCES:
    case EPERM:
        return "not readable by the session's user";
    case EXDEV:
        return "on another file system";
    case ENOENT:
    case ELOOP:
    case ENOTDIR:
        return "changed while it was read";
    default:
        return "it cannot be opened";
    }
}

/* -------------------------------------------------------------------------- heads */

static void read_xattrs(struct adapter_pack *pack, int fd, struct tar_xattr *xattrs,
                        size_t *ret_n)
{
    ssize_t size = flistxattr(fd, pack->xattr_names, LIST_MAX);
    size_t used = 0, n = 0;

    for (ssize_t at = 0; at < size; at += (ssize_t)strlen(pack->xattr_names + at) + 1) {
        const char *name = pack->xattr_names + at;
        ssize_t got;

        if (strncmp(name, "user.", 5) != 0)
            continue;
        if (n == TAR_XATTRS_MAX || strchr(name, '=')) {
            lose(pack, "an extended attribute of it");
            continue;
        }
        got = fgetxattr(fd, name, pack->xattr_values + used, TAR_XATTR_BYTES - used);
        if (got < 0 || used + (size_t)got + strlen(name) + 1 > TAR_XATTR_BYTES) {
            lose(pack, "an extended attribute of it");
            continue;
        }
        xattrs[n++] = (struct tar_xattr){name, pack->xattr_values + used, (size_t)got};
        used += (size_t)got + strlen(name) + 1;
    }
    *ret_n = n;
}

static struct tar_entry entry_of(const struct adapter_pack *pack, const struct stat *st,
                                 enum tar_kind kind)
{
    return (struct tar_entry){.kind = kind,
                              .path = pack->path_size ? pack->path : ".",
                              .target = "",
                              .mode = st->st_mode & (S_ISDIR(st->st_mode) ? 01777 : 0777),
                              .mtime_s = st->st_mtim.tv_sec,
                              .mtime_ns = (uint32_t)st->st_mtim.tv_nsec};
}

static enum berth_code put_head(struct adapter_pack *pack, const struct tar_entry *entry,
                                struct berth_error *err)
{
    free(pack->head);
    pack->head = NULL;
    pack->head_at = pack->head_size = 0;
    if (++pack->carried.files > ADAPTER_WORKSPACE_FILES_MAX)
        return berth_fail(err, BERTH_REASON_QUOTA_EXCEEDED,
                          "the workspace has more than %d files", ADAPTER_WORKSPACE_FILES_MAX);
    return tar_head(entry, &pack->head, &pack->head_size, err);
}

/* Where a sparse file has bytes. From so many pieces on the rest counts as one. */
static bool find_parts(struct adapter_pack *pack, const struct stat *st)
{
    off_t at = 0, end = st->st_size;

    pack->n_parts = 0;
    while (at < end) {
        off_t data = lseek(pack->fd, at, SEEK_DATA), hole;

        if (data < 0)
            return errno == ENXIO; /* a hole up to the end */
        hole = lseek(pack->fd, data, SEEK_HOLE);
        if (hole < 0 || data < at || hole <= data)
            return false;
        if (hole > end || pack->n_parts == TAR_PARTS_MAX - 1)
            hole = end;
        if (data >= end)
            break;
        pack->parts[pack->n_parts++] =
            (struct tar_part){(uint64_t)data, (uint64_t)(hole - data)};
        at = hole;
    }
    return true;
}

static enum berth_code begin_file(struct adapter_pack *pack, int fd, const struct stat *st,
                                  struct berth_error *err)
{
    struct tar_xattr xattrs[TAR_XATTRS_MAX];
    struct tar_entry entry = entry_of(pack, st, TAR_FILE);

    pack->fd = fd;
    pack->shortened = false;
    entry.size = (uint64_t)st->st_size;
    read_xattrs(pack, fd, xattrs, &entry.n_xattrs);
    entry.xattrs = xattrs;
    if (st->st_blocks * 512 < st->st_size && find_parts(pack, st) &&
        !(pack->n_parts == 1 && pack->parts[0].size == entry.size)) {
        entry.sparse = true;
        entry.parts = pack->parts;
        entry.n_parts = pack->n_parts;
    } else {
        pack->parts[0] = (struct tar_part){0, entry.size};
        pack->n_parts = entry.size > 0;
    }
    pack->part = 0;
    pack->part_at = pack->stored = 0;
    for (size_t i = 0; i < pack->n_parts; i++)
        pack->stored += pack->parts[i].size;
    pack->padding = tar_padding(pack->stored);
    pack->carried.size_bytes += pack->stored;
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    return put_head(pack, &entry, err);
}

static enum berth_code pack_link(struct adapter_pack *pack, int dir_fd, const char *name,
                                 const struct stat *st, struct berth_error *err)
{
    struct tar_entry entry = entry_of(pack, st, TAR_SYMLINK);
    char target[PATH_MAX + 1];
    ssize_t size = readlinkat(dir_fd, name, target, sizeof target - 1);

    if (size < 0) {
        lose(pack, why_not_opened(errno == EINVAL ? ENOENT : errno));
        return BERTH_OK;
    }
    target[size] = 0;
    entry.target = target;
    return put_head(pack, &entry, err);
}

/* ------------------------------------------------------------------------ the walk */

/* Takes fd. */
static enum berth_code enter_dir(struct adapter_pack *pack, int fd, struct berth_error *err)
{
    struct tar_xattr xattrs[TAR_XATTRS_MAX];
    struct tar_entry entry;
    struct stat st;
    DIR *dir;

    if (fstat(fd, &st) < 0 || !(dir = fdopendir(fd))) {
        close(fd);
        lose(pack, "it cannot be opened");
        return BERTH_OK;
    }
    pack->levels[pack->n_levels++] = (struct level){
        dir, pack->path_size, is_users(pack, &st) && (st.st_mode & 0500) != 0500};
    entry = entry_of(pack, &st, TAR_DIR);
    read_xattrs(pack, fd, xattrs, &entry.n_xattrs);
    entry.xattrs = xattrs;
    return put_head(pack, &entry, err);
}

static enum berth_code pack_dir(struct adapter_pack *pack, struct place *place, int dir_fd,
                                const char *name, const struct stat *st,
                                struct berth_error *err)
{
    int fd;

    if (pack->n_levels == CARRY_LEVELS_MAX - 1) { /* a file in it is one deeper */
        lose(pack, "more than 510 directories deep");
        return BERTH_OK;
    }
    fd = open_entry(pack, place, dir_fd, name, st, O_RDONLY | O_DIRECTORY);
    if (fd < 0) {
        lose(pack, why_not_opened(errno));
        return BERTH_OK;
    }
    return enter_dir(pack, fd, err);
}

static enum berth_code pack_file(struct adapter_pack *pack, struct place *place, int dir_fd,
                                 const char *name, const struct stat *st,
                                 struct berth_error *err)
{
    const char *first;
    struct tar_entry entry;
    struct stat now;
    int fd;

    fd = open_entry(pack, place, dir_fd, name, st, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &now) < 0) {
        lose(pack, why_not_opened(errno));
        closep(&fd);
        return BERTH_OK;
    }
    if (!S_ISREG(now.st_mode)) { /* it was a moment ago */
        lose(pack, "changed while it was read");
        close(fd);
        return BERTH_OK;
    }
    first = find_link(pack, &now);
    if (!first)
        return begin_file(pack, fd, &now, err);
    close(fd);
    entry = entry_of(pack, &now, TAR_HARDLINK);
    entry.target = first;
    return put_head(pack, &entry, err);
}

/* One entry of the directory on top. */
static enum berth_code pack_found(struct adapter_pack *pack, struct place *place,
                                  const char *name, struct berth_error *err)
{
    const struct level *level = &pack->levels[pack->n_levels - 1];
    int dir_fd = dirfd(level->dir);
    struct stat st;

    cut_path(pack, level->path_size);
    if (!push_name(pack, name)) {
        lose(pack, "its path is too long");
        return BERTH_OK;
    }
    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        lose(pack, why_not_opened(errno));
        return BERTH_OK;
    }
    if (level->closed && !is_users(pack, &st)) {
        lose(pack, why_not_opened(EACCES));
        return BERTH_OK;
    }
    if (S_ISDIR(st.st_mode))
        return pack_dir(pack, place, dir_fd, name, &st, err);
    if (S_ISLNK(st.st_mode))
        return pack_link(pack, dir_fd, name, &st, err);
    if (S_ISREG(st.st_mode))
        return pack_file(pack, place, dir_fd, name, &st, err);
    lose(pack, "a device, FIFO or socket");
    return BERTH_OK;
}

static enum berth_code pack_entry(struct adapter_pack *pack, struct place *place,
                                  const char *name, struct berth_error *err)
{
    bool closed = pack->levels[pack->n_levels - 1].closed;
    enum berth_code code;

    if (closed)
        place_leave(place);
    code = pack_found(pack, place, name, err);
    if (closed)
        enter_again(pack, place);
    return code;
}

/* Go on until there is something to be read. */
static enum berth_code walk(struct adapter_pack *pack, struct place *place,
                            struct berth_error *err)
{
    enum berth_code code = BERTH_OK;

    while (code == BERTH_OK && !pack->head && pack->n_levels > 0) {
        struct level *level = &pack->levels[pack->n_levels - 1];
        struct dirent *entry;

        errno = 0;
        entry = readdir(level->dir);
        if (entry && (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0))
            continue;
        if (entry) {
            code = pack_entry(pack, place, entry->d_name, err);
            continue;
        }
        cut_path(pack, level->path_size);
        if (errno)
            return place_fail(err, errno, CARRY_DIR);
        closedir(level->dir);
        pack->n_levels--;
    }
    if (code == BERTH_OK && !pack->head && !pack->ended) {
        pack->ended = true;
        pack->padding = TAR_END_SIZE;
    }
    return code;
}

/* ------------------------------------------------------------------------- content */

/* A file that has become shorter is filled up with zeros. */
static enum berth_code read_part(struct adapter_pack *pack, uint8_t *buf, size_t size,
                                 size_t *ret_size, struct berth_error *err)
{
    const struct tar_part *part = &pack->parts[pack->part];
    uint64_t left = part->size - pack->part_at;
    ssize_t got;

    if (size > left)
        size = (size_t)left;
    do
        got = pread(pack->fd, buf, size, (off_t)(part->offset + pack->part_at));
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return place_fail(err, errno, pack->path);
    if (got == 0) {
        if (!pack->shortened)
            lose(pack, "shortened while it was read");
        pack->shortened = true;
        memset(buf, 0, size);
        got = (ssize_t)size;
    }
    pack->part_at += (uint64_t)got;
    if (pack->part_at == part->size) {
        pack->part++;
        pack->part_at = 0;
    }
    *ret_size = (size_t)got;
    return BERTH_OK;
}

static size_t take_head(struct adapter_pack *pack, uint8_t *buf, size_t size)
{
    size_t n = pack->head_size - pack->head_at < size ? pack->head_size - pack->head_at : size;

    memcpy(buf, pack->head + pack->head_at, n);
    pack->head_at += n;
    return n;
}

static void end_entry(struct adapter_pack *pack)
{
    free(pack->head);
    pack->head = NULL;
    closep(&pack->fd);
    pack->fd = -1;
    pack->n_parts = pack->part = 0;
}

static enum berth_code read_some(struct adapter_pack *pack, struct place *place, uint8_t *buf,
                                 size_t size, size_t *ret_size, struct berth_error *err)
{
    size_t n;

    *ret_size = 0;
    if (!pack->head && pack->padding == 0 && !pack->ended)
        return walk(pack, place, err);
    if (pack->head && pack->head_at < pack->head_size) {
        *ret_size = take_head(pack, buf, size);
        return BERTH_OK;
    }
    if (pack->part < pack->n_parts)
        return read_part(pack, buf, size, ret_size, err);
    n = pack->padding < size ? pack->padding : size;
    memset(buf, 0, n);
    pack->padding -= n;
    *ret_size = n;
    if (pack->padding == 0)
        end_entry(pack);
    return BERTH_OK;
}

static bool is_over(const struct adapter_pack *pack)
{
    return pack->ended && pack->padding == 0;
}

enum berth_code local_read_pack(struct adapter_pack *pack, uint8_t *buf, size_t size,
                                size_t *ret_size, struct berth_error *err)
{
    BERTH_AUTO(place_leave) struct place place = {0};
    size_t done = 0;
    enum berth_code code = place_enter(&pack->root, &place, err);

    while (code == BERTH_OK && done < size && !is_over(pack)) {
        size_t got = 0;

        code = read_some(pack, &place, buf + done, size - done, &got, err);
        done += got;
    }
    *ret_size = done;
    return code;
}

/* ---------------------------------------------------------------------------- life */

static enum berth_code open_workspace(struct adapter_pack *pack, struct berth_error *err)
{
    BERTH_AUTO(place_leave) struct place place = {0};
    int fd;
    enum berth_code code = place_enter(&pack->root, &place, err);

    if (code)
        return code;
    fd = carry_open(pack->root.fd, CARRY_DIR + 1, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return carry_no_workspace(errno, err);
    return enter_dir(pack, fd, err);
}

enum berth_code local_open_pack(struct adapter *adapter, const struct adapter_route *route,
                                struct adapter_pack **ret, struct berth_error *err)
{
    struct adapter_pack *pack;
    enum berth_code code = carry_begin(err);

    if (code)
        return code;
    pack = calloc(1, sizeof *pack);
    if (!pack) {
        carry_end();
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    pack->root.fd = pack->fd = -1;
    pack->path = calloc(1, TAR_PATH_MAX + 1);
    pack->parts = calloc(TAR_PARTS_MAX, sizeof *pack->parts);
    pack->xattr_names = malloc(LIST_MAX);
    pack->xattr_values = malloc(TAR_XATTR_BYTES);
    if (!pack->path || !pack->parts || !pack->xattr_names || !pack->xattr_values)
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (code == BERTH_OK)
        code = local_open_root(adapter, route->sandbox_id, &pack->root, err);
    if (code == BERTH_OK)
        code = open_workspace(pack, err);
    if (code) {
        local_close_pack(pack);
        return code;
    }
    *ret = pack;
    return BERTH_OK;
}

const struct adapter_carried *local_packed(const struct adapter_pack *pack)
{
    return &pack->carried;
}

void local_close_pack(struct adapter_pack *pack)
{
    if (!pack)
        return;
    while (pack->n_levels > 0)
        closedir(pack->levels[--pack->n_levels].dir);
    end_entry(pack);
    closep(&pack->root.fd);
    for (size_t i = 0; pack->links && i < LINK_SLOTS; i++)
        free(pack->links[i].path);
    free(pack->links);
    free(pack->path);
    free(pack->parts);
    free(pack->xattr_names);
    free(pack->xattr_values);
    adapter_carried_deinit(&pack->carried);
    free(pack);
    carry_end();
}
