#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "common/time/time.h"
#include "services/adapter-local/spawner/io.h"
#include "services/adapter-local/spawner/slot.h"
#include "services/adapter-local/spawner/spawner.h"

enum {
    RELEASE_MS = 10000,
    THAW_MS = 5000,
    HIDDEN_GRACE_S = 10,   /* between a directory and its lock lie microseconds */
    SNAPSHOT_GRACE_S = 120 /* longer than a create that has found it takes to be recorded */
};

/* ---------------------------------------------------------------- sandboxes */

/* The key of a sandbox that is gone: let the next create pass, remember the fence. Only if
 * nobody has the key just now; a create that has it looks for itself. */
static void settle_key(const struct spawner *spawner, const struct record *record, bool deleted)
{
    struct key_lock key = {.fd = -1};

    if (key_lock(&spawner->store, record->key, berth_tick_ms(), &key, NULL))
        return;
    if (strcmp(key.record.sandbox_id, record->id) == 0) {
        if (record->fence > key.record.fence)
            key.record.fence = record->fence;
        if (deleted)
            key.record.delete_ms = berth_now_ms();
        else
            key.record.sandbox_id[0] = 0;
        (void)!key_save(&spawner->store, &key, NULL);
    }
    key_unlock(&key);
}

static void remove_sandbox(const struct spawner *spawner, const char *id,
                           const struct record *record)
{
    if (host_release(spawner, id, record ? record->slot : -1,
                     record && record->network.inbound == ADAPTER_OPEN,
                     berth_tick_ms() + RELEASE_MS, NULL))
        return;
    if (record)
        settle_key(spawner, record, record->state == RECORD_DELETING);
    (void)!store_trash(&spawner->store, spawner->store.sandboxes_fd, id, NULL);
}

/* Has it been dead for so long that nobody will come for its files? Its session has heard of it
 * long ago, or is one that nobody knows any more. */
static bool is_stale(const struct spawner *spawner, const struct record *record)
{
    BERTH_AUTO(close) int dir_fd = io_open_dir(spawner->store.sandboxes_fd, record->id);
    struct stat st;

    return record->ended && dir_fd >= 0 &&
           fstatat(dir_fd, "meta.json", &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           berth_now_ms() - (int64_t)st.st_mtim.tv_sec * 1000 - st.st_mtim.tv_nsec / 1000000 >=
               spawner->ended_keep_ms;
}

/* One sandbox, its lock held. */
static void settle(const struct spawner *spawner, const char *id)
{
    struct cgroup group = {.host = &spawner->host, .store = spawner->cgroup_name, .id = id};
    struct berth_error err = {0};
    struct record record;

    if (record_load(&spawner->store, id, &record, &err)) {
        /* No record: a create cut short. One that cannot be read is left for a person. */
        if (err.reason == BERTH_REASON_SANDBOX_NOT_FOUND)
            remove_sandbox(spawner, id, NULL);
        return;
    }
    if (record.state != RECORD_READY) {
        remove_sandbox(spawner, id, &record);
    } else if (record_alive(&spawner->store, &record)) {
        /* What a crash left of our own; what others have frozen is theirs until it is used. */
        if (record_freeze_marked(&spawner->store, id) &&
            (record.paused || !cgroup_is_frozen(&group) ||
             cgroup_freeze(&group, false, berth_tick_ms() + THAW_MS, NULL) == BERTH_OK))
            record_mark_freeze(&spawner->store, id, false);
    } else if (!record.ended &&
               host_release(spawner, id, record.slot, record.network.inbound == ADAPTER_OPEN,
                            berth_tick_ms() + RELEASE_MS, NULL) == BERTH_OK) {
        record.ended = true;
        (void)!record_save(&spawner->store, &record, false, NULL);
    } else if (is_stale(spawner, &record)) {
        /* As if deleted: this attempt must not make another one. */
        record.state = RECORD_DELETING;
        remove_sandbox(spawner, id, &record);
    }
    record_deinit(&record);
}

static void sweep_sandboxes(const struct spawner *spawner)
{
    char **ids = NULL;
    size_t n = 0;

    if (store_list(spawner->store.sandboxes_fd, &ids, &n, NULL))
        return;
    for (size_t i = 0; i < n; i++) {
        struct record_lock lock = {-1, -1};

        if (record_lock(&spawner->store, ids[i], berth_tick_ms(), &lock, NULL))
            continue;
        settle(spawner, ids[i]);
        record_unlock(&lock);
    }
    store_list_free(ids, n);
}

/* --------------------------------------------------- what no record speaks of */

static bool sandbox_is_there(const struct spawner *spawner, const char *id)
{
    char hidden[ADAPTER_ID_SIZE + 8];

    snprintf(hidden, sizeof hidden, ".new-%s", id);
    return faccessat(spawner->store.sandboxes_fd, id, F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
           faccessat(spawner->store.sandboxes_fd, hidden, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Groups are listed before directories are looked for, and made after them: one without a
 * directory belongs to nobody. */
static void sweep_cgroups(const struct spawner *spawner)
{
    char path[512];
    char **names = NULL;
    size_t n = 0;
    BERTH_AUTO(close) int fd = -1;

    snprintf(path, sizeof path, "%s/%s", spawner->host.unified, spawner->cgroup_name);
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || store_list(fd, &names, &n, NULL))
        return;
    for (size_t i = 0; i < n; i++) {
        struct cgroup group = {
            .host = &spawner->host, .store = spawner->cgroup_name, .id = names[i]};
        struct stat st;

        if (fstatat(fd, names[i], &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode) ||
            sandbox_is_there(spawner, names[i]))
            continue;
        (void)!cgroup_destroy(&group, berth_tick_ms() + RELEASE_MS, NULL);
    }
    store_list_free(names, n);
    cgroup_forget_store(&spawner->host, spawner->cgroup_name);
}

/* Of a slot that nobody holds: one who tries the host (probe.c), and may be of a spawner that
 * has just followed ours, has a link without a record. */
static void remove_link(const struct spawner *spawner, const char *name, unsigned slot)
{
    int fd = -1;

    if (slot >= net_slots(&spawner->cidr)) {
        (void)!net_link_down(name, NULL);
    } else if (slot_try(spawner->slots_dir, slot, &fd)) {
        (void)!net_link_down(name, NULL);
        close(fd);
        slot_forget(spawner->slots_dir, (int)slot);
    }
}

/* Likewise: a link is made after the record that names its slot. */
static void sweep_links(const struct spawner *spawner)
{
    struct if_nameindex *list = if_nameindex();
    char **ids = NULL;
    bool *used = calloc(net_slots(&spawner->cidr), sizeof *used);
    size_t n = 0;

    if (list && used && store_list(spawner->store.sandboxes_fd, &ids, &n, NULL) == BERTH_OK) {
        for (size_t i = 0; i < n; i++) {
            struct record record;

            if (record_load(&spawner->store, ids[i], &record, NULL))
                continue;
            if (!record.ended && record.slot < (int)net_slots(&spawner->cidr))
                used[record.slot] = true;
            record_deinit(&record);
        }
        for (struct if_nameindex *at = list; at->if_name; at++) {
            size_t len = strlen(spawner->prefix);
            unsigned slot;

            if (strncmp(at->if_name, spawner->prefix, len) == 0 &&
                sscanf(at->if_name + len, "%u", &slot) == 1 &&
                (slot >= net_slots(&spawner->cidr) || !used[slot]))
                remove_link(spawner, at->if_name, slot);
        }
    }
    store_list_free(ids, n);
    free(used);
    if (list)
        if_freenameindex(list);
}

/* Hidden directories (".new-*", ".build-*") whose maker has died: their lock is free. */
static void sweep_hidden(const struct spawner *spawner, int parent_fd, const char *prefix)
{
    int fd = io_open_dir(parent_fd, ".");
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        BERTH_AUTO(close) int made_fd = -1;
        BERTH_AUTO(close) int lock_fd = -1;
        struct stat st;

        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
            continue;
        made_fd = io_open_dir(parent_fd, entry->d_name);
        lock_fd = made_fd < 0 ? -1 : openat(made_fd, "lock", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        /* Just made, its lock still to come: not yet. Once there, a lock is held from the
         * start. */
        if (made_fd < 0 || (lock_fd < 0 && fstat(made_fd, &st) == 0 &&
                            berth_now_ms() / 1000 - st.st_mtim.tv_sec < HIDDEN_GRACE_S))
            continue;
        if (lock_fd >= 0 && flock(lock_fd, LOCK_EX | LOCK_NB) < 0)
            continue;
        (void)!store_trash(&spawner->store, parent_fd, entry->d_name, NULL);
    }
    if (dir)
        closedir(dir);
}

/* --------------------------------------------------------- snapshots, keys */

static bool refers(char *const *layers, size_t n, const char *snapshot_id)
{
    char layer[STORE_PATH_MAX];

    snprintf(layer, sizeof layer, "snapshots/%s/layer", snapshot_id);
    for (size_t i = 0; i < n; i++)
        if (strcmp(layers[i], layer) == 0)
            return true;
    return false;
}

/* Does a sandbox, or another snapshot that is not itself on its way out, need its layer? */
static bool is_needed(const struct spawner *spawner, const char *id, char *const *sandboxes,
                      size_t n_sandboxes, char *const *snapshots, size_t n_snapshots)
{
    bool needed = false;

    for (size_t i = 0; i < n_sandboxes && !needed; i++) {
        struct record record;

        if (record_load(&spawner->store, sandboxes[i], &record, NULL))
            continue;
        needed = refers(record.layers, record.n_layers, id);
        record_deinit(&record);
    }
    for (size_t i = 0; i < n_snapshots && !needed; i++) {
        struct snapshot_record record;

        if (strcmp(snapshots[i], id) == 0 ||
            snapshot_load(&spawner->store, snapshots[i], &record, NULL))
            continue;
        needed = refers(record.layers, record.n_layers, id);
        snapshot_record_deinit(&record);
    }
    return needed;
}

bool spawner_snapshot_needed(const struct spawner *spawner, const char *id)
{
    char **sandboxes = NULL, **snapshots = NULL;
    size_t n_sandboxes = 0, n_snapshots = 0;
    bool needed =
        store_list(spawner->store.sandboxes_fd, &sandboxes, &n_sandboxes, NULL) == BERTH_OK &&
        store_list(spawner->store.snapshots_fd, &snapshots, &n_snapshots, NULL) == BERTH_OK &&
        is_needed(spawner, id, sandboxes, n_sandboxes, snapshots, n_snapshots);

    store_list_free(sandboxes, n_sandboxes);
    store_list_free(snapshots, n_snapshots);
    return needed;
}

/* A create between find_layers() and its record would not be seen: deleted snapshots wait until
 * every create that might have found them has ended. */
static void sweep_snapshots(const struct spawner *spawner)
{
    char **sandboxes = NULL, **snapshots = NULL;
    size_t n_sandboxes = 0, n_snapshots = 0;

    if (store_list(spawner->store.sandboxes_fd, &sandboxes, &n_sandboxes, NULL) == BERTH_OK &&
        store_list(spawner->store.snapshots_fd, &snapshots, &n_snapshots, NULL) == BERTH_OK)
        for (size_t i = 0; i < n_snapshots; i++) {
            BERTH_AUTO(close)
            int dir_fd = io_open_dir(spawner->store.snapshots_fd, snapshots[i]);
            struct snapshot_record record;
            struct stat st;
            bool old;

            if (dir_fd < 0 || fstatat(dir_fd, "meta.json", &st, AT_SYMLINK_NOFOLLOW) < 0 ||
                snapshot_load(&spawner->store, snapshots[i], &record, NULL))
                continue;
            old =
                record.deleted && berth_now_ms() / 1000 - st.st_mtim.tv_sec > SNAPSHOT_GRACE_S;
            snapshot_record_deinit(&record);
            if (old && !is_needed(spawner, snapshots[i], sandboxes, n_sandboxes, snapshots,
                                  n_snapshots))
                (void)!store_trash(&spawner->store, spawner->store.snapshots_fd, snapshots[i],
                                   NULL);
        }
    store_list_free(sandboxes, n_sandboxes);
    store_list_free(snapshots, n_snapshots);
}

static void sweep_keys(const struct spawner *spawner)
{
    char **names = NULL;
    size_t n = 0;

    if (store_list(spawner->store.keys_fd, &names, &n, NULL))
        return;
    for (size_t i = 0; i < n; i++) {
        struct key_lock lock = {.fd = -1};
        char key[ADAPTER_KEY_SIZE];
        size_t len = strlen(names[i]);
        struct stat st;

        if (len <= 5 || len - 5 >= sizeof key || strcmp(names[i] + len - 5, ".json") != 0)
            continue;
        /* Written at its delete at the latest, so a young file needs no lock and no reading:
         * there may be a day's worth of keys, and a sweep follows every delete. */
        if (fstatat(spawner->store.keys_fd, names[i], &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            berth_now_ms() - (int64_t)st.st_mtim.tv_sec * 1000 < RULES_KEY_KEPT_MS)
            continue;
        snprintf(key, sizeof key, "%.*s", (int)(len - 5), names[i]);
        if (key_lock(&spawner->store, key, berth_tick_ms(), &lock, NULL))
            continue;
        if (fstat(lock.fd, &st) == 0 &&
            rules_key_expired(&lock.record,
                              lock.record.sandbox_id[0] &&
                                      sandbox_is_there(spawner, lock.record.sandbox_id)
                                  ? KEY_SANDBOX_ALIVE
                                  : KEY_SANDBOX_ABSENT,
                              (int64_t)st.st_mtim.tv_sec * 1000, berth_now_ms()))
            (void)unlinkat(spawner->store.keys_fd, names[i], 0);
        key_unlock(&lock);
    }
    store_list_free(names, n);
}

void spawner_empty_trash(const struct spawner *spawner)
{
    int fd = io_open_dir(spawner->store.trash_fd, ".");
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;

    /* Several may do this at once: what one has removed is absent for the other. */
    while (dir && (entry = readdir(dir)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            (void)io_remove_tree(spawner->store.trash_fd, entry->d_name);
    if (dir)
        closedir(dir);
}

void spawner_sweep(const struct spawner *spawner)
{
    sweep_hidden(spawner, spawner->store.sandboxes_fd, ".new-");
    sweep_sandboxes(spawner);
    sweep_cgroups(spawner);
    sweep_links(spawner);
    sweep_hidden(spawner, spawner->store.snapshots_fd, ".build-");
    sweep_hidden(spawner, spawner->store.templates_fd, ".build-");
    sweep_snapshots(spawner);
    sweep_keys(spawner);
    spawner_empty_trash(spawner);
}
