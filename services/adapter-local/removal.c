/* removal.c - Remove, whole trees too: nothing is followed, descriptors and stack are bounded
 * whatever the depth. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "common/ids/ids.h"
#include "services/adapter-local/files.h"

enum {
    LEVELS_MAX = 64,       /* directories open at once; what is deeper is moved up first */
    LEVELS_HARD_MAX = 512, /* where it cannot be moved */
    ROUNDS_MAX = 1000,     /* of looking again while somebody puts new files in */
    NAME_SIZE = 32,
};

struct removal {
    int top_fd; /* the directory being removed */
    const char *path;
    const struct adapter_patience *patience;
};

/* Is it gone, as far as removing is concerned? */
static bool gone(int why)
{
    return why == ENOENT;
}

/* Move a directory that lies too deep to the top, where a later round finds it. */
static bool move_up(const struct removal *removal, int dir_fd, const char *name)
{
    char to[NAME_SIZE], id[17];

    snprintf(to, sizeof to, ".berth-rm-%s", berth_id_base36(id, 16));
    return renameat(dir_fd, name, removal->top_fd, to) == 0;
}

static enum berth_code empty(const struct removal *removal, int dir_fd, unsigned level,
                             struct berth_error *err);

/* One entry of dir_fd, with what is below it. */
static enum berth_code remove_entry(const struct removal *removal, int dir_fd, const char *name,
                                    unsigned level, struct berth_error *err)
{
    enum berth_code code = place_patience(removal->patience, err);
    int fd;

    if (code)
        return code;
    if (unlinkat(dir_fd, name, 0) == 0 || gone(errno))
        return BERTH_OK;
    if (errno != EISDIR && errno != EPERM)
        return place_fail(err, errno, removal->path);
    if (unlinkat(dir_fd, name, AT_REMOVEDIR) == 0 || gone(errno))
        return BERTH_OK;
    if (errno != ENOTEMPTY && errno != EEXIST)
        return place_fail(err, errno, removal->path);
    if (level >= LEVELS_MAX && move_up(removal, dir_fd, name))
        return BERTH_OK;
    if (level >= LEVELS_HARD_MAX)
        return place_fail(err, ENAMETOOLONG, removal->path);
    fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return gone(errno) ? BERTH_OK : place_fail(err, errno, removal->path);
    code = place_check_storage(fd, err);
    if (code == BERTH_OK)
        code = empty(removal, fd, level + 1, err);
    close(fd);
    if (code == BERTH_OK && unlinkat(dir_fd, name, AT_REMOVEDIR) < 0 && !gone(errno))
        code = place_fail(err, errno, removal->path);
    return code;
}

/* One pass over dir_fd. *ret_n: entries seen. */
static enum berth_code pass(const struct removal *removal, int dir_fd, unsigned level,
                            unsigned *ret_n, struct berth_error *err)
{
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    enum berth_code code = BERTH_OK;
    struct dirent *entry;

    *ret_n = 0;
    if (!dir) {
        code = gone(errno) ? BERTH_OK : place_fail(err, errno, removal->path);
        closep(&fd);
        return code;
    }
    while (code == BERTH_OK && (entry = readdir(dir))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        ++*ret_n;
        code = remove_entry(removal, dir_fd, entry->d_name, level, err);
    }
    closedir(dir);
    return code;
}

static enum berth_code empty(const struct removal *removal, int dir_fd, unsigned level,
                             struct berth_error *err)
{
    enum berth_code code = BERTH_OK;
    unsigned n = 1;

    for (int i = 0; code == BERTH_OK && n > 0 && i < ROUNDS_MAX; i++)
        code = pass(removal, dir_fd, level, &n, err);
    return code;
}

static enum berth_code remove_tree(int parent_fd, const char *name, const char *path,
                                   const struct adapter_patience *patience,
                                   struct berth_error *err)
{
    BERTH_AUTO(close)
    int top_fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct removal removal = {.top_fd = top_fd, .path = path, .patience = patience};
    enum berth_code code;

    if (top_fd < 0)
        return place_fail(err, errno, path);
    code = place_check_storage(top_fd, err);
    if (code == BERTH_OK)
        code = empty(&removal, top_fd, 1, err);
    if (code == BERTH_OK && unlinkat(parent_fd, name, AT_REMOVEDIR) < 0)
        code = place_fail(err, errno, path);
    return code;
}

enum berth_code local_remove(struct adapter *adapter, const struct adapter_route *route,
                             const char *path, bool recursive,
                             const struct adapter_patience *patience, bool *ret_existed,
                             struct berth_error *err)
{
    BERTH_AUTO(local_visit_end) struct local_visit visit = {0};
    BERTH_AUTO(close) int parent_fd = -1;
    BERTH_AUTO(close) int fd = -1;
    const char *name;
    struct stat st;
    enum berth_code code = local_visit_begin(adapter, route, &visit, err);

    if (code)
        return code;
    code = place_parent(&visit.place, path, &parent_fd, &name, err);
    if (code == BERTH_OK) {
        fd = openat(parent_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
            code = place_fail(err, errno, path);
    }
    if (code == BERTH_NOT_FOUND) {
        *ret_existed = false;
        return BERTH_OK;
    }
    if (code == BERTH_OK)
        code = place_check_storage(fd, err);
    if (code == BERTH_OK)
        code = place_check_writable(&visit.place, path, parent_fd, fd, err);
    if (code)
        return code;
    if (fstat(fd, &st) < 0)
        return place_fail(err, errno, path);
    if (!S_ISDIR(st.st_mode)) {
        if (unlinkat(parent_fd, name, 0) < 0 && !gone(errno))
            return place_fail(err, errno, path);
    } else if (unlinkat(parent_fd, name, AT_REMOVEDIR) < 0 && !gone(errno)) {
        int why = errno == EEXIST ? ENOTEMPTY : errno;

        if (why != ENOTEMPTY || !recursive)
            return place_fail(err, why, path);
        code = remove_tree(parent_fd, name, path, patience, err);
        if (code)
            return code;
    }
    *ret_existed = true;
    return BERTH_OK;
}
