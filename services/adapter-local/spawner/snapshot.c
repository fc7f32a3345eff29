/* snapshot.c - the writable layer of a sandbox, copied while it is frozen, as a layer that
 * others boot from. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "common/ids/ids.h"
#include "common/json/json.h"
#include "common/time/time.h"
#include "services/adapter-local/spawner/io.h"
#include "services/adapter-local/spawner/spawner.h"

enum { FREEZE_MS = 5000, THAW_MS = 10000, ID_CHARS = 16, IN_SNAPSHOT_READY = 2 };

/* The directory a snapshot grows in, hidden until it is whole. */
struct build {
    char id[ADAPTER_ID_SIZE];
    char hidden[ADAPTER_ID_SIZE + 16];
    int dir_fd, lock_fd;
};

static void build_abandon(const struct spawner *spawner, struct build *build)
{
    if (build->dir_fd >= 0) {
        close(build->dir_fd);
        (void)io_remove_tree(spawner->store.snapshots_fd, build->hidden);
    }
    if (build->lock_fd >= 0)
        close(build->lock_fd);
    build->dir_fd = build->lock_fd = -1;
}

static enum berth_code build_start(const struct spawner *spawner, struct build *build,
                                   struct berth_error *err)
{
    char random[ID_CHARS + 1];

    build->lock_fd = -1;
    snprintf(build->id, sizeof build->id, "snap-%s", berth_id_base36(random, ID_CHARS));
    snprintf(build->hidden, sizeof build->hidden, ".build-%s", build->id);
    build->dir_fd = io_make_dir(spawner->store.snapshots_fd, build->hidden, 0700);
    if (build->dir_fd >= 0)
        build->lock_fd = io_make_lock(build->dir_fd);
    return build->lock_fd < 0 ? io_fail(err, "make a snapshot") : BERTH_OK;
}

/* cp knows reflinks, holes, hard links and every attribute, trusted.overlay.* among them. */
static enum berth_code copy_tree(const char *from, const char *to, int64_t deadline_ms,
                                 struct berth_error *err)
{
    const char *const argv[] = {"cp", "-a", "--reflink=auto", "--", from, to, NULL};
    enum berth_code code = io_run(argv, NULL, deadline_ms, NULL, NULL, err);

    if (code && err && strstr(err->text, "No space left"))
        return berth_fail(err, BERTH_REASON_DISK_FULL,
                          "the host's disk is full (copy of the sandbox's files)");
    return code;
}

static enum berth_code copy_upper(const struct spawner *spawner, const struct record *record,
                                  const struct build *build, int64_t deadline_ms,
                                  struct berth_error *err)
{
    struct cgroup group = {
        .host = &spawner->host, .store = spawner->cgroup_name, .id = record->id};
    int64_t freeze_ms = berth_tick_ms() + FREEZE_MS;
    char from[STORE_PATH_MAX + 128], to[STORE_PATH_MAX + 128];
    enum berth_code code = BERTH_OK;

    snprintf(from, sizeof from, "%s/sandboxes/%s/upper", spawner->store.path, record->id);
    snprintf(to, sizeof to, "%s/snapshots/%s/layer", spawner->store.path, build->hidden);
    if (!record->paused) {
        record_mark_freeze(&spawner->store, record->id, true);
        code =
            cgroup_freeze(&group, true, freeze_ms < deadline_ms ? freeze_ms : deadline_ms, err);
    }
    if (code)
        return code;
    code = copy_tree(from, to, deadline_ms, err);
    if (!record->paused) {
        enum berth_code thawed =
            cgroup_freeze(&group, false, berth_tick_ms() + THAW_MS, code ? NULL : err);

        if (!thawed)
            record_mark_freeze(&spawner->store, record->id, false);
        code = code ? code : thawed;
    }
    return code;
}

/* ----------------------------------------------------------------- flatten */

/* In a child with mounts of its own: all layers merged, copied out as one. By paths:
 * descriptors opened before are of mounts that are not in the new namespace. */
static enum berth_code copy_merged(const struct spawner *spawner, const struct build *build,
                                   char *const *layers, size_t n_layers, int64_t deadline_ms,
                                   struct berth_error *err)
{
    char options[512] = "lowerdir=", to[STORE_PATH_MAX + 128];
    size_t used = strlen(options);
    int store_fd;

    snprintf(to, sizeof to, "%s/snapshots/%s/mnt", spawner->store.path, build->hidden);
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
        return io_fail(err, "make a mount namespace");
    store_fd = open(spawner->store.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (store_fd < 0 || mkdir(to, 0700) < 0 ||
        mount("stage", to, "tmpfs", MS_NOSUID | MS_NODEV, NULL) < 0 || chdir(to) < 0)
        return io_fail(err, "make a stage");
    for (size_t i = 0; i < n_layers; i++) {
        int fd = open_tree(store_fd, layers[i],
                           OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW);
        char name[16];

        snprintf(name, sizeof name, "l%u", (unsigned)i % 1000);
        if (fd < 0 || mkdir(name, 0700) < 0 ||
            move_mount(fd, "", AT_FDCWD, name, MOVE_MOUNT_F_EMPTY_PATH) < 0)
            return io_fail(err, "mount layer %s", layers[i]);
        close(fd);
        used +=
            (size_t)snprintf(options + used, sizeof options - used, "%s%s", i ? ":" : "", name);
    }
    if (mkdir("root", 0700) < 0 || mount("overlay", "root", "overlay", MS_RDONLY, options) < 0)
        return io_fail(err, "mount the layers");
    snprintf(to, sizeof to, "%s/snapshots/%s/flat", spawner->store.path, build->hidden);
    return copy_tree("root", to, deadline_ms, err);
}

static enum berth_code merge(const struct spawner *spawner, const struct build *build,
                             char *const *layers, size_t n_layers, int64_t deadline_ms,
                             struct berth_error *err)
{
    struct berth_error answer = {0};
    int fds[2];
    ssize_t n;
    pid_t pid;

    if (pipe2(fds, O_CLOEXEC) < 0)
        return io_fail(err, "pipe");
    pid = fork();
    if (pid == 0) {
        (void)!copy_merged(spawner, build, layers, n_layers, deadline_ms, &answer);
        _exit(write(fds[1], &answer, sizeof answer) == sizeof answer ? 0 : 1);
    }
    close(fds[1]);
    do
        n = pid < 0 ? -1 : read(fds[0], &answer, sizeof answer);
    while (n < 0 && pid > 0 && errno == EINTR);
    close(fds[0]);
    if (pid > 0)
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
    if (n != sizeof answer)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "the layers could not be merged");
    if (answer.code && err)
        *err = answer;
    return answer.code;
}

/* Deep stacks make every look-up slow: beyond the limit the new layer takes everything in. */
static enum berth_code flatten(const struct spawner *spawner, const struct build *build,
                               char *const *layers, size_t n_layers, int64_t deadline_ms,
                               struct berth_error *err)
{
    enum berth_code code = merge(spawner, build, layers, n_layers, deadline_ms, err);

    if (code)
        return code;
    if (renameat(build->dir_fd, "layer", build->dir_fd, "parts") < 0 ||
        renameat(build->dir_fd, "flat", build->dir_fd, "layer") < 0)
        return io_fail(err, "flatten the layers");
    (void)io_remove_tree(build->dir_fd, "parts");
    (void)unlinkat(build->dir_fd, "mnt", AT_REMOVEDIR);
    return BERTH_OK;
}

/* --------------------------------------------------------------- operation */

static enum berth_code set_layers(const struct spawner *spawner, const struct record *record,
                                  const struct build *build, struct snapshot_record *snapshot,
                                  int64_t deadline_ms, struct berth_error *err)
{
    char own[STORE_PATH_MAX];
    size_t n = 0;

    snprintf(own, sizeof own, "snapshots/%s/layer", build->id);
    if (record->n_layers + 1 > STORE_LAYERS_MAX) {
        char hidden[STORE_PATH_MAX];
        char *all[STORE_LAYERS_MAX + 1];
        enum berth_code code;

        snprintf(hidden, sizeof hidden, "snapshots/%s/layer", build->hidden);
        all[0] = hidden;
        for (size_t i = 0; i < record->n_layers; i++)
            all[i + 1] = record->layers[i];
        code = flatten(spawner, build, all, record->n_layers + 1, deadline_ms, err);
        if (code)
            return code;
    } else {
        n = record->n_layers;
    }
    for (size_t i = 0; i < n + 1; i++) {
        snapshot->layers[i] = strdup(i ? record->layers[i - 1] : own);
        if (!snapshot->layers[i])
            return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        snapshot->n_layers = i + 1;
    }
    return BERTH_OK;
}

/* Whole and on disk before it has its name. */
static enum berth_code publish(const struct spawner *spawner, struct build *build,
                               struct snapshot_record *snapshot, struct berth_error *err)
{
    int64_t bytes = io_tree_bytes(build->dir_fd, "layer");
    enum berth_code code;

    snapshot->info.size_bytes = bytes < 0 ? 0 : (uint64_t)bytes;
    snapshot->info.create_ms = berth_now_ms();
    if (syncfs(build->dir_fd) < 0)
        return io_fail(err, "sync the snapshot");
    code = snapshot_save(build->dir_fd, snapshot, err);
    if (code)
        return code;
    (void)unlinkat(build->dir_fd, "lock", 0);
    if (renameat(spawner->store.snapshots_fd, build->hidden, spawner->store.snapshots_fd,
                 build->id) < 0 ||
        fsync(spawner->store.snapshots_fd) < 0)
        return io_fail(err, "publish the snapshot");
    return BERTH_OK;
}

/* A repeat after a lost answer: the snapshot of this name, if it is of this sandbox. */
static enum berth_code find_by_name(const struct spawner *spawner, const char *name,
                                    const char *sandbox_id, char id[ADAPTER_ID_SIZE],
                                    struct berth_error *err)
{
    char **names = NULL;
    size_t n = 0;
    enum berth_code code = store_list(spawner->store.snapshots_fd, &names, &n, err);

    id[0] = 0;
    for (size_t i = 0; !code && i < n && !id[0]; i++) {
        struct snapshot_record record;

        if (snapshot_load(&spawner->store, names[i], &record, NULL))
            continue;
        if (!record.deleted && strcmp(record.info.name, name) == 0) {
            snprintf(id, ADAPTER_ID_SIZE, "%s", record.info.id);
            if (strcmp(record.info.source_sandbox_id, sandbox_id) != 0)
                code = berth_fail(err, BERTH_REASON_CONFLICT,
                                  "a snapshot of another sandbox has this name");
        }
        snapshot_record_deinit(&record);
    }
    store_list_free(names, n);
    return code;
}

static enum berth_code make(const struct spawner *spawner, const struct operation *op,
                            struct record *record, struct snapshot_record *snapshot,
                            struct berth_error *err)
{
    struct build build = {.dir_fd = -1, .lock_fd = -1};
    enum berth_code code = build_start(spawner, &build, err);

    if (!code)
        code = copy_upper(spawner, record, &build, op->deadline_ms, err);
    if (!code)
        code = set_layers(spawner, record, &build, snapshot, op->deadline_ms, err);
    if (!code)
        code = publish(spawner, &build, snapshot, err);
    if (code) {
        build_abandon(spawner, &build);
        return code;
    }
    snprintf(snapshot->info.id, sizeof snapshot->info.id, "%s", build.id);
    close(build.dir_fd);
    close(build.lock_fd);
    return BERTH_OK;
}

enum berth_code spawner_snapshot(const struct spawner *spawner, struct operation *op,
                                 struct berth_error *err)
{
    struct snapshot_record snapshot = {.info = {.state = IN_SNAPSHOT_READY}};
    struct record_lock lock = {-1, -1};
    struct record record = {0};
    char id[ADAPTER_ID_SIZE] = "", found[ADAPTER_ID_SIZE];
    enum berth_code code;

    code = berth_json_get_str(op->request, "sandbox_id", id, sizeof id, "", err);
    if (!code)
        code = berth_json_get_str(op->request, "name", snapshot.info.name,
                                  sizeof snapshot.info.name, "", err);
    if (!code)
        code = adapter_pairs_from_json(json_object_get(op->request, "metadata"),
                                       &snapshot.info.metadata, err);
    if (!code)
        code = record_lock(&spawner->store, id, op->deadline_ms, &lock, err);
    if (!code)
        code = record_load(&spawner->store, id, &record, err);
    if (!code)
        code = operation_grant(op, &snapshot.fence, err);
    if (!code && !record_alive(&spawner->store, &record))
        code = berth_fail(err, BERTH_REASON_SANDBOX_TERMINAL, NULL);
    snprintf(snapshot.info.source_sandbox_id, sizeof snapshot.info.source_sandbox_id, "%s", id);
    /* With the sandbox's lock held: two repeats cannot both find nothing. */
    if (!code)
        code = find_by_name(spawner, snapshot.info.name, id, found, err);
    if (!code && found[0])
        snprintf(snapshot.info.id, sizeof snapshot.info.id, "%s", found);
    else if (!code)
        code = make(spawner, op, &record, &snapshot, err);
    if (code)
        BERTH_ERROR_SET(err, sandbox_id, id);
    else if (json_object_set_new(op->answer, "snapshot_id", json_string(snapshot.info.id)) < 0)
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    snapshot_record_deinit(&snapshot);
    record_deinit(&record);
    record_unlock(&lock);
    return code;
}

enum berth_code spawner_delete_snapshot(const struct spawner *spawner, struct operation *op,
                                        struct berth_error *err)
{
    struct snapshot_record record = {0};
    char id[ADAPTER_ID_SIZE] = "";
    bool existed = false;
    uint64_t fence;
    enum berth_code code =
        berth_json_get_str(op->request, "snapshot_id", id, sizeof id, "", err);

    if (!code)
        code = operation_grant(op, &fence, err);
    if (!code)
        code = snapshot_load(&spawner->store, id, &record, err);
    if (code == BERTH_NOT_FOUND) {
        code = BERTH_OK;
    } else if (!code && !record.deleted) {
        BERTH_AUTO(close) int dir_fd = io_open_dir(spawner->store.snapshots_fd, id);

        if (!rules_fence_passes(record.fence, fence))
            code = berth_fail(err, BERTH_REASON_FENCE_STALE, NULL);
        else {
            /* Its files stay while something boots from them; the sweep looks after that. */
            record.deleted = true;
            record.fence = fence;
            existed = true;
            code = snapshot_save(dir_fd, &record, err);
        }
    }
    if (!code && (json_object_set_new(op->answer, "existed", json_boolean(existed)) < 0 ||
                  json_object_set_new(
                      op->answer, "in_use",
                      json_boolean(existed && spawner_snapshot_needed(spawner, id))) < 0))
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    snapshot_record_deinit(&record);
    return code;
}
