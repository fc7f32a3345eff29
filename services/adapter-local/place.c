#include "services/adapter-local/place.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/fsuid.h>
#include <sys/statfs.h>
#include <sys/syscall.h>

#include "common/crypto/crypto.h"

enum {
    USER_ID = 1000,
    NOBODY_ID = 65534,
    ID_COUNT = 65536,
    RETRIES_MAX = 256, /* names moved while a path was resolved */
    DEPTH_MAX = 4096,  /* directories above one */
    PATH_SIZE = 4097,
    HASH_CHUNK = 256 << 10,
};

#define INPUT_DIR "/workspace/input"
#define SKILLS_DIR "/opt/berth/skills"

static bool is_in_skills(const char *path)
{
    size_t len = strlen(SKILLS_DIR);

    return strncmp(path, SKILLS_DIR, len) == 0 && (path[len] == 0 || path[len] == '/');
}

enum berth_code place_fail(struct berth_error *err, int error_number, const char *path)
{
    bool refused = error_number == EACCES || error_number == EPERM || error_number == EROFS;
    enum berth_code code;

    if (refused && is_in_skills(path))
        code = berth_fail(err, berth_reason_from_errno(error_number),
                          "%s: '%s': skills are read-only; what a session adds goes to "
                          "/workspace, packages to /workspace/.packages (pip install, npm "
                          "install -g)",
                          strerror(error_number), path);
    else if (error_number == ELOOP)
        code = berth_fail(err, BERTH_REASON_NOT_A_FILE, "a loop of symbolic links: '%s'", path);
    else
        code = berth_fail(err, berth_reason_from_errno(error_number), "%s: '%s'",
                          strerror(error_number), path);
    BERTH_ERROR_SET(err, resource, path);
    return code;
}

enum berth_code place_patience(const struct adapter_patience *patience, struct berth_error *err)
{
    if (patience && patience->over(patience->arg))
        return berth_fail(err, BERTH_REASON_DEADLINE, NULL);
    return BERTH_OK;
}

/* ---------------------------------------------------------------------- identity */

static bool be(unsigned uid, unsigned gid)
{
    setfsgid(gid);
    setfsuid(uid); /* the file capabilities go with 0, and come back with it */
    return (unsigned)setfsuid((uid_t)-1) == uid && (unsigned)setfsgid((gid_t)-1) == gid;
}

enum berth_code place_enter(const struct local_root *root, struct place *ret,
                            struct berth_error *err)
{
    unsigned id = root->uid_base + USER_ID;

    if (!be(id, id)) {
        be(geteuid(), getegid());
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "cannot act as uid %u", id);
    }
    ret->root = root;
    return BERTH_OK;
}

void place_leave(struct place *place)
{
    if (place->root && !be(geteuid(), getegid()))
        abort(); /* this thread must never serve anybody else with that identity */
    place->root = NULL;
}

/* --------------------------------------------------------------------- resolving */

static int open_below(const struct place *place, const char *path, uint64_t flags)
{
    struct open_how how = {.flags = flags | O_CLOEXEC,
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};

    for (int i = 0; i < RETRIES_MAX; i++) {
        int fd = (int)syscall(SYS_openat2, place->root->fd, path, &how, sizeof how);

        if (fd >= 0 || (errno != EAGAIN && errno != EINTR))
            return fd;
    }
    return -1;
}

enum berth_code place_check_storage(int fd, struct berth_error *err)
{
    struct statfs fs;

    if (fstatfs(fd, &fs) < 0)
        return berth_fail(err, berth_reason_from_errno(errno),
                          "its file system cannot be looked at: %s", strerror(errno));
    switch ((unsigned long)fs.f_type) {
    case PROC_SUPER_MAGIC:
    case SYSFS_MAGIC:
    case CGROUP_SUPER_MAGIC:
    case CGROUP2_SUPER_MAGIC:
    case DEBUGFS_MAGIC:
    case TRACEFS_MAGIC:
    case SECURITYFS_MAGIC:
    case BPF_FS_MAGIC:
    case DEVPTS_SUPER_MAGIC:
    case 0x65735543: /* fusectl */
    case 0x19800202: /* mqueue */
        return berth_fail(err, BERTH_REASON_FILE_ACCESS_DENIED, "not a file system for files");
    default:
        return BERTH_OK;
    }
}

static enum berth_code find(const struct place *place, const char *path, uint64_t flags,
                            int *ret_fd, struct berth_error *err)
{
    int fd = open_below(place, path, O_PATH | flags);
    enum berth_code code;

    if (fd < 0)
        return place_fail(err, errno, path);
    code = place_check_storage(fd, err);
    if (code) {
        close(fd);
        BERTH_ERROR_SET(err, resource, path);
        return code;
    }
    *ret_fd = fd;
    return BERTH_OK;
}

enum berth_code place_find(const struct place *place, const char *path, bool follow,
                           int *ret_fd, struct berth_error *err)
{
    return find(place, path, follow ? 0 : O_NOFOLLOW, ret_fd, err);
}

/* The directory part of path: "/" or without the '/' at its end. */
static const char *split(const char *path, char dir[PATH_SIZE])
{
    const char *slash = strrchr(path, '/');
    size_t len = (size_t)(slash - path);

    snprintf(dir, PATH_SIZE, "%.*s", len > 0 ? (int)len : 1, path);
    return slash + 1;
}

enum berth_code place_parent(const struct place *place, const char *path, int *ret_dir_fd,
                             const char **ret_name, struct berth_error *err)
{
    char dir[PATH_SIZE];
    const char *name = split(path, dir);
    enum berth_code code;

    if (name[0] == 0)
        return place_fail(err, EACCES, path);
    code = find(place, dir, O_DIRECTORY, ret_dir_fd, err);
    if (code == BERTH_OK)
        *ret_name = name;
    return code;
}

/* One more directory below dir_fd, if it is not there. */
static enum berth_code make_one(int dir_fd, const char *name, const char *path,
                                bool *ret_created, struct berth_error *err)
{
    int fd;

    if (mkdirat(dir_fd, name, 0755) < 0)
        return errno == EEXIST ? BERTH_OK : place_fail(err, errno, path);
    *ret_created = true;
    /* Whatever the umask. By descriptor: the name may be another thing by now. */
    fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0) {
        (void)fchmod(fd, 0755);
        close(fd);
    }
    return BERTH_OK;
}

enum berth_code place_make_dirs(const struct place *place, const char *path, int *ret_dir_fd,
                                bool *ret_created, struct berth_error *err)
{
    enum berth_code code = find(place, path, O_DIRECTORY, ret_dir_fd, err);
    char prefix[PATH_SIZE];
    int dir_fd = -1;

    *ret_created = false;
    if (code != BERTH_NOT_FOUND)
        return code;
    /* From the top, each prefix resolved anew, so that links are followed as the sandbox would.
     */
    code = find(place, "/", O_DIRECTORY, &dir_fd, err);
    for (const char *at = path + 1; code == BERTH_OK && at; at = strchr(at, '/')) {
        size_t len;
        char name[256];
        int fd = -1;

        at += *at == '/';
        len = strcspn(at, "/");
        snprintf(name, sizeof name, "%.*s", (int)len, at);
        snprintf(prefix, sizeof prefix, "%.*s", (int)(at + len - path), path);
        code = find(place, prefix, O_DIRECTORY, &fd, err);
        if (code == BERTH_NOT_FOUND) {
            code = place_check_writable(place, path, dir_fd, -1, err);
            if (code == BERTH_OK)
                code = make_one(dir_fd, name, path, ret_created, err);
            if (code == BERTH_OK)
                code = find(place, prefix, O_DIRECTORY, &fd, err);
        }
        close(dir_fd);
        dir_fd = fd;
    }
    if (code) {
        closep(&dir_fd);
        return code;
    }
    *ret_dir_fd = dir_fd;
    return BERTH_OK;
}

int place_reopen(int path_fd, int flags)
{
    char path[48];

    snprintf(path, sizeof path, "/proc/self/fd/%d", path_fd);
    return open(path, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

/* -------------------------------------------------------------------- read-only */

static bool same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Is dir_fd the directory of *wanted, or somewhere below it? */
static bool is_below(const struct place *place, int dir_fd, const struct stat *wanted)
{
    int fd = openat(dir_fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct stat st, root;
    bool below = false;

    if (fstat(place->root->fd, &root) < 0)
        root = (struct stat){0};
    for (int i = 0; fd >= 0 && i < DEPTH_MAX; i++) {
        int up;

        if (fstat(fd, &st) < 0)
            break;
        below = same(&st, wanted);
        if (below || same(&st, &root))
            break;
        up = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        close(fd);
        fd = up;
    }
    closep(&fd);
    return below;
}

enum berth_code place_check_writable(const struct place *place, const char *path, int dir_fd,
                                     int moved_fd, struct berth_error *err)
{
    BERTH_AUTO(close) int input_fd = open_below(place, INPUT_DIR, O_PATH | O_DIRECTORY);
    size_t len = strlen(INPUT_DIR);
    bool inside = strncmp(path, INPUT_DIR, len) == 0 && (path[len] == 0 || path[len] == '/');
    struct stat input, moved;

    if (!inside && input_fd >= 0 && fstat(input_fd, &input) == 0) {
        inside = is_below(place, dir_fd, &input);
        /* What holds it must not go either. */
        if (!inside && moved_fd >= 0 && fstat(moved_fd, &moved) == 0 && S_ISDIR(moved.st_mode))
            inside = is_below(place, input_fd, &moved);
    }
    if (!inside)
        return BERTH_OK;
    (void)berth_fail(err, BERTH_REASON_PATH_READ_ONLY, INPUT_DIR " is read-only");
    BERTH_ERROR_SET(err, resource, path);
    return berth_reason_code(BERTH_REASON_PATH_READ_ONLY);
}

/* ------------------------------------------------------------------- description */

void place_etag(const struct stat *st, char ret[33])
{
    uint64_t parts[4] = {(uint64_t)st->st_ino, (uint64_t)st->st_mtim.tv_sec,
                         (uint64_t)st->st_mtim.tv_nsec, (uint64_t)st->st_size};
    uint8_t digest[32];

    berth_sha256_once(parts, sizeof parts, digest);
    for (int i = 0; i < 16; i++)
        snprintf(ret + 2 * i, 3, "%02x", digest[i]);
}

static uint32_t inner_id(const struct place *place, unsigned id)
{
    unsigned inner = id - place->root->uid_base;

    return inner < ID_COUNT ? inner : NOBODY_ID;
}

static int type_of(mode_t mode)
{
    return S_ISREG(mode)   ? BERTH__DATA__V1__FILE_TYPE__FILE_TYPE_REGULAR
           : S_ISDIR(mode) ? BERTH__DATA__V1__FILE_TYPE__FILE_TYPE_DIRECTORY
           : S_ISLNK(mode) ? BERTH__DATA__V1__FILE_TYPE__FILE_TYPE_SYMLINK
                           : BERTH__DATA__V1__FILE_TYPE__FILE_TYPE_OTHER;
}

enum berth_code place_describe(const struct place *place, int fd, const char *path,
                               struct adapter_file *ret, struct berth_error *err)
{
    struct adapter_file file = {0};
    char target[PATH_SIZE];
    struct stat st;
    ssize_t len = 0;

    if (fstat(fd, &st) < 0)
        return place_fail(err, errno, path);
    if (S_ISLNK(st.st_mode)) {
        len = readlinkat(fd, "", target, sizeof target - 1);
        target[len > 0 ? len : 0] = 0;
    }
    file.path = strdup(path);
    if (S_ISLNK(st.st_mode))
        file.link_target = strdup(target);
    if (!file.path || (S_ISLNK(st.st_mode) && !file.link_target)) {
        adapter_file_deinit(&file);
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    file.type = type_of(st.st_mode);
    file.size_bytes = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
    file.mode = st.st_mode & 07777;
    file.uid = inner_id(place, st.st_uid);
    file.gid = inner_id(place, st.st_gid);
    file.modify_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    if (S_ISREG(st.st_mode))
        place_etag(&st, file.etag);
    *ret = file;
    return BERTH_OK;
}

enum berth_code place_hash(int path_fd, const struct adapter_patience *patience,
                           uint8_t ret[32], struct berth_error *err)
{
    BERTH_AUTO(berth_sha256_free) struct berth_sha256 *hash = berth_sha256_new();
    BERTH_AUTO(free) uint8_t *buf = malloc(HASH_CHUNK);
    BERTH_AUTO(close) int fd = place_reopen(path_fd, O_RDONLY);
    enum berth_code code = BERTH_OK;
    ssize_t got = 1;

    if (fd < 0)
        return place_fail(err, errno, "");
    if (!hash || !buf)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    while (got > 0 && code == BERTH_OK) {
        got = read(fd, buf, HASH_CHUNK);
        if (got < 0 && errno == EINTR) {
            got = 1;
            continue;
        }
        if (got < 0)
            return place_fail(err, errno, "");
        berth_sha256_add(hash, buf, (size_t)got);
        code = place_patience(patience, err);
    }
    if (code == BERTH_OK)
        berth_sha256_end(hash, ret);
    return code;
}
