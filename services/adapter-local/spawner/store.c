/* store.c - the directory itself: layout, identity, names, locks. */
#include "services/adapter-local/spawner/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "common/ids/ids.h"
#include "common/json/json.h"
#include "common/time/time.h"
#include "services/adapter-local/spawner/io.h"

enum { LIST_MAX = 100000, SMALL_MAX = 4096 };

static enum berth_code read_boot(struct store *store, struct berth_error *err)
{
    char id[64] = "";
    struct stat st;

    if (io_read(AT_FDCWD, "/proc/sys/kernel/random/boot_id", id, sizeof id) < 0 ||
        stat("/proc/self/ns/pid", &st) < 0)
        return io_fail(err, "read the boot id");
    id[strcspn(id, "\n")] = 0;
    snprintf(store->boot, sizeof store->boot, "%s/%lu", id, (unsigned long)st.st_ino);
    return BERTH_OK;
}

/* The store's name for itself: made once, by whoever comes first. */
static enum berth_code read_identity(struct store *store, struct berth_error *err)
{
    BERTH_AUTO(json_decref) json_t *root = NULL;
    char text[SMALL_MAX], hex[33];
    enum berth_code code;
    ssize_t size = io_read(store->fd, "store.json", text, sizeof text);

    if (size < 0 && errno == ENOENT) {
        char fresh[64];

        berth_id_hex(hex, 16);
        snprintf(fresh, sizeof fresh, ".store.%ld", (long)getpid());
        size = snprintf(text, sizeof text,
                        "{\"uuid\":\"%.8s-%.4s-4%.3s-a%.3s-%.12s\",\"version\":1}\n", hex,
                        hex + 8, hex + 13, hex + 17, hex + 20);
        code = io_replace(store->fd, fresh, text, (size_t)size, true, err);
        if (code)
            return code;
        /* link() fails where another process was faster: its file stands. */
        if (linkat(store->fd, fresh, store->fd, "store.json", 0) < 0 && errno != EEXIST)
            return io_fail(err, "make store.json");
        unlinkat(store->fd, fresh, 0);
        size = io_read(store->fd, "store.json", text, sizeof text);
    }
    if (size < 0)
        return io_fail(err, "read store.json");
    code = berth_json_parse(text, (size_t)size, sizeof text, &root, err);
    if (!code)
        code = berth_json_get_str(root, "uuid", store->uuid, sizeof store->uuid, "", err);
    if (!code && strlen(store->uuid) != 36)
        code = berth_fail(err, BERTH_REASON_FIELD_INVALID, "no uuid");
    if (code)
        return berth_wrap(err, code, "store.json");
    memcpy(store->tag, store->uuid, 8);
    return BERTH_OK;
}

static enum berth_code split_template_dirs(struct store *store, const char *dirs,
                                           struct berth_error *err)
{
    while (*dirs) {
        size_t len = strcspn(dirs, ":");

        if (len && (dirs[0] != '/' || len >= STORE_PATH_MAX / 2))
            return berth_fail_field(err, "template_dirs", "absolute paths, separated by ':'");
        if (len && store->n_template_dirs == STORE_TEMPLATE_DIRS_MAX)
            return berth_fail_field(err, "template_dirs", "at most %d",
                                    STORE_TEMPLATE_DIRS_MAX);
        if (len) {
            store->template_dirs[store->n_template_dirs] = strndup(dirs, len);
            if (!store->template_dirs[store->n_template_dirs])
                return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
            store->n_template_dirs++;
        }
        dirs += len + (dirs[len] == ':');
    }
    return BERTH_OK;
}

static int make_parents(const char *path)
{
    char part[STORE_PATH_MAX];

    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
        if (mkdir(part, 0755) < 0 && errno != EEXIST)
            return -1;
    }
    return 0;
}

enum berth_code store_open(const char *path, const char *template_dirs, struct store *ret,
                           struct berth_error *err)
{
    struct store store = {.fd = -1,
                          .sandboxes_fd = -1,
                          .snapshots_fd = -1,
                          .templates_fd = -1,
                          .keys_fd = -1,
                          .trash_fd = -1};
    struct {
        const char *name;
        int *fd;
    } dirs[] = {{"sandboxes", &store.sandboxes_fd},
                {"snapshots", &store.snapshots_fd},
                {"templates", &store.templates_fd},
                {"keys", &store.keys_fd},
                {"trash", &store.trash_fd}};
    enum berth_code code = BERTH_OK;

    if (path[0] != '/' || strlen(path) >= sizeof store.path / 2)
        return berth_fail_field(err, "state_dir", "an absolute path of at most %d bytes",
                                STORE_PATH_MAX / 2 - 1);
    snprintf(store.path, sizeof store.path, "%s", path);
    if (make_parents(path) < 0)
        return io_fail(err, "make %s", path);
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return io_fail(err, "make %s", path);
    store.fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (store.fd < 0)
        return io_fail(err, "open %s", path);
    if (fchmod(store.fd, 0700) < 0)
        code = io_fail(err, "chmod %s", path);
    for (size_t i = 0; !code && i < BERTH_COUNT(dirs); i++) {
        *dirs[i].fd = io_make_dir(store.fd, dirs[i].name, 0700);
        if (*dirs[i].fd < 0)
            code = io_fail(err, "make %s/%s", path, dirs[i].name);
    }
    if (!code)
        code = split_template_dirs(&store, template_dirs, err);
    if (!code)
        code = read_identity(&store, err);
    if (!code)
        code = read_boot(&store, err);
    if (code) {
        store_close(&store);
        return code;
    }
    *ret = store;
    return BERTH_OK;
}

void store_close(struct store *store)
{
    int *fds[] = {&store->fd,           &store->sandboxes_fd, &store->snapshots_fd,
                  &store->templates_fd, &store->keys_fd,      &store->trash_fd};

    for (size_t i = 0; i < BERTH_COUNT(fds); i++) {
        if (*fds[i] >= 0)
            close(*fds[i]);
        *fds[i] = -1;
    }
    for (size_t i = 0; i < store->n_template_dirs; i++)
        free(store->template_dirs[i]);
    store->n_template_dirs = 0;
}

bool store_id_ok(const char *text)
{
    size_t len = strlen(text);

    if (len == 0 || len >= ADAPTER_ID_SIZE || text[0] == '.')
        return false;
    return strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
           len;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

enum berth_code store_list(int dir_fd, char ***ret, size_t *ret_n, struct berth_error *err)
{
    int fd = io_open_dir(dir_fd, ".");
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    char **names = NULL;
    size_t n = 0, room = 0;

    if (!dir) {
        if (fd >= 0)
            close(fd);
        return io_fail(err, "list the store");
    }
    while (n < LIST_MAX && (entry = readdir(dir))) {
        if (!store_id_ok(entry->d_name))
            continue;
        if (n == room) {
            char **more = realloc(names, (room = room ? room * 2 : 64) * sizeof *names);

            if (!more)
                break;
            names = more;
        }
        names[n] = strdup(entry->d_name);
        if (!names[n])
            break;
        n++;
    }
    if (entry) {
        closedir(dir);
        store_list_free(names, n);
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    closedir(dir);
    if (n)
        qsort(names, n, sizeof *names, by_name);
    *ret = names;
    *ret_n = n;
    return BERTH_OK;
}

void store_list_free(char **names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
}

enum berth_code record_lock(const struct store *store, const char *id, int64_t deadline_ms,
                            struct record_lock *ret, struct berth_error *err)
{
    struct record_lock lock = {-1, -1};
    struct stat held, now;
    enum berth_code code;

    lock.dir_fd = store_id_ok(id) ? io_open_dir(store->sandboxes_fd, id) : -1;
    if (lock.dir_fd >= 0)
        lock.lock_fd =
            openat(lock.dir_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (lock.lock_fd < 0) {
        bool absent = lock.dir_fd < 0 || errno == ENOENT;

        record_unlock(&lock);
        return absent ? berth_fail(err, BERTH_REASON_SANDBOX_NOT_FOUND, NULL)
                      : io_fail(err, "lock sandbox %s", id);
    }
    code = io_lock(lock.lock_fd, deadline_ms, "the sandbox", err);
    if (code) {
        record_unlock(&lock);
        return code;
    }
    /* While we waited it may have been deleted. */
    if (fstat(lock.dir_fd, &held) < 0 ||
        fstatat(store->sandboxes_fd, id, &now, AT_SYMLINK_NOFOLLOW) < 0 ||
        held.st_ino != now.st_ino) {
        record_unlock(&lock);
        return berth_fail(err, BERTH_REASON_SANDBOX_NOT_FOUND, NULL);
    }
    *ret = lock;
    return BERTH_OK;
}

void record_unlock(struct record_lock *lock)
{
    if (lock->lock_fd >= 0)
        close(lock->lock_fd);
    if (lock->dir_fd >= 0)
        close(lock->dir_fd);
    *lock = (struct record_lock){-1, -1};
}

enum berth_code store_trash(const struct store *store, int dir_fd, const char *name,
                            struct berth_error *err)
{
    char target[ADAPTER_ID_SIZE + 32], random[9];

    snprintf(target, sizeof target, "%s.%s", name, berth_id_base36(random, 8));
    if (renameat(dir_fd, name, store->trash_fd, target) < 0 && errno != ENOENT)
        return io_fail(err, "move %s to the trash", name);
    return BERTH_OK;
}

void store_cgroup_name(const struct store *store, char ret[32])
{
    snprintf(ret, 32, "berth-%s", store->tag);
}

void store_link_name(const struct store *store, int slot, char ret[16])
{
    if (slot < 0)
        snprintf(ret, 16, "b%.7s-", store->tag);
    else
        snprintf(ret, 16, "b%.7s-%u", store->tag, (unsigned)slot % 1000000);
}
