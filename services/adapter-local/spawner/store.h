/* store.h - the directory where sandboxes, snapshots and templates live, and its records. The
 * adapter reads it, the spawner's children write it.
 *
 *   store.json                     uuid
 *   templates/<id>/                rootfs/, meta.json; .build-* while being built
 *   snapshots/<id>/                layer/, meta.json; .build-* while being made
 *   sandboxes/<id>/                meta.json, lock, active, stored, upper/, work/, mnt/,
 * sup.sock, supervisor.log keys/<unique_key>.json         fence, attempt, sandbox; kept 24 h
 * after delete trash/                         removed in the background
 *
 * All of it is mode 0700: what a sandbox's root writes (set-user-id files, too) has owner 0 on
 * disk and must not be reachable by anybody on the host. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "services/adapter-local/spawner/rules.h"
#include "services/adapter/types.h"

enum {
    STORE_LAYERS_MAX = 16,    /* deeper snapshots are flattened */
    STORE_META_MAX = 5 << 20, /* bytes of one meta.json */
    STORE_PATH_MAX = 1024,    /* of the state directory and of a layer */
    STORE_TEMPLATE_DIRS_MAX = 8,
    STORE_UID_BASE = 524288, /* host uid of sandbox uid 0 in slot 0 */
    STORE_UID_COUNT = 65536
};

struct store {
    int fd; /* the state directory */
    int sandboxes_fd, snapshots_fd, templates_fd, keys_fd, trash_fd;
    char path[STORE_PATH_MAX];
    char uuid[37];
    char tag[9];   /* first 8 digits of uuid: names on the host */
    char boot[96]; /* this boot and pid namespace: pids of another one mean nothing */
    char *template_dirs[STORE_TEMPLATE_DIRS_MAX]; /* further templates, read only */
    size_t n_template_dirs;
};

/**
 * store_open() - open a state directory, making it where it is new
 * @path:          absolute
 * @template_dirs: further template directories, absolute, separated by ':'; "" = none
 *
 * Errors: FIELD_INVALID (not absolute, too long), INTERNAL_BUG, DISK_FULL.
 */
BERTH_MUST_CHECK enum berth_code store_open(const char *path, const char *template_dirs,
                                            struct store *ret, struct berth_error *err);
void store_close(struct store *store);

/* ---------------------------------------------------------------- sandboxes */

enum record_state {
    RECORD_CREATING = 1, /* without a lock holder: a crash cut the create short */
    RECORD_READY,        /* ran; whether it still does is told by its supervisor's pid */
    RECORD_DELETING      /* without a lock holder: the delete must be finished */
};

/* sandboxes/<id>/meta.json */
struct record {
    char id[ADAPTER_ID_SIZE];
    char key[ADAPTER_KEY_SIZE];
    char attempt[ADAPTER_ATTEMPT_SIZE];
    uint64_t fence;
    enum record_state state;
    bool paused; /* wanted so; a freeze for a snapshot is not */
    bool ended;  /* its supervisor was seen dead and what it held on the host was removed */
    int64_t create_ms;
    struct adapter_image image;
    struct adapter_pairs metadata, env;
    struct adapter_network network;
    struct adapter_timeouts timeouts;
    struct adapter_resources resources; /* in force */
    char *layers[STORE_LAYERS_MAX];     /* top first; absolute, or relative to the store */
    size_t n_layers;
    char cidr[20];       /* the /30 of slots is cut from this network */
    char resolvers[256]; /* upstreams of the forwarder, by spaces; "" = the host's */
    int slot;            /* uid range and network of the sandbox while it runs */
    char boot[96];       /* store.boot when it was started */
    pid_t supervisor_pid, init_pid;
    uint64_t supervisor_start, init_start; /* clock ticks: a reused pid has another one */
};

void record_deinit(struct record *record);
/* Errors: SANDBOX_NOT_FOUND, also of a record that a power cut tore; INTERNAL_BUG when
 * meta.json cannot be read. */
BERTH_MUST_CHECK enum berth_code record_load(const struct store *store, const char *id,
                                             struct record *ret, struct berth_error *err);
/* Atomic: one or the other after any crash of processes. durable: survives a power cut; else
 * the record may be the one before, or torn, then. */
BERTH_MUST_CHECK enum berth_code record_save(const struct store *store,
                                             const struct record *record, bool durable,
                                             struct berth_error *err);
/* record_save() in two halves: only the second changes what others read, and takes less time.
 */
BERTH_MUST_CHECK enum berth_code record_draft(const struct store *store,
                                              const struct record *record, bool durable,
                                              struct berth_error *err);
BERTH_MUST_CHECK enum berth_code
record_publish(const struct store *store, const struct record *record, struct berth_error *err);
/* Does its supervisor live, right now? */
bool record_alive(const struct store *store, const struct record *record);
/* Names of all sandboxes, sorted, owned: free each and the array. */
BERTH_MUST_CHECK enum berth_code store_list(int dir_fd, char ***ret, size_t *ret_n,
                                            struct berth_error *err);
void store_list_free(char **names, size_t n);
/* Is text an id this store could have made (and safe as a file name)? */
bool store_id_ok(const char *text);

/* A sandbox's directory with its lock held (flock, so a crash lets go). {-1, -1} is empty. */
struct record_lock {
    int dir_fd, lock_fd;
};
/* Errors: SANDBOX_NOT_FOUND, BACKEND_TIMEOUT. */
BERTH_MUST_CHECK enum berth_code record_lock(const struct store *store, const char *id,
                                             int64_t deadline_ms, struct record_lock *ret,
                                             struct berth_error *err);
void record_unlock(struct record_lock *lock);

/* Around a freeze or a thaw of our own: what is frozen without the mark and the record's word
 * was frozen by somebody else, and what a crash leaves marked is thawed by the sweep. */
void record_mark_freeze(const struct store *store, const char *id, bool on);
bool record_freeze_marked(const struct store *store, const char *id);

/* sandboxes/<id>/stored: what it has written over its image, as it was when last measured. */
struct stored {
    uint64_t bytes;
    int64_t begin_ms; /* wall clock at the beginning of it */
};
/* False: it was never measured. */
bool stored_load(int dir_fd, struct stored *ret);
BERTH_MUST_CHECK enum berth_code stored_save(int dir_fd, const struct stored *stored,
                                             struct berth_error *err);

/* What the world is told about a sandbox: state from its record and its processes. *ret is
 * owned: adapter_sandbox_deinit(). */
BERTH_MUST_CHECK enum berth_code record_describe(const struct store *store,
                                                 const struct record *record,
                                                 struct adapter_sandbox *ret,
                                                 struct berth_error *err);

/* --------------------------------------------------------------------- keys */

/* keys/<key>.json with its lock held. */
struct key_lock {
    int fd; /* -1: not held */
    char name[ADAPTER_KEY_SIZE + 8];
    struct key_record record; /* as stored; all zero: new */
};
BERTH_MUST_CHECK enum berth_code key_lock(const struct store *store, const char *key,
                                          int64_t deadline_ms, struct key_lock *ret,
                                          struct berth_error *err);
/* Write lock->record, durably. */
BERTH_MUST_CHECK enum berth_code key_save(const struct store *store, struct key_lock *lock,
                                          struct berth_error *err);
/* The same in two steps: everybody sees it after the first, and it survives a power cut after
 * the second. A cut between them may leave an empty key. */
BERTH_MUST_CHECK enum berth_code key_put(const struct store *store, struct key_lock *lock,
                                         struct berth_error *err);
BERTH_MUST_CHECK enum berth_code key_sync(const struct key_lock *lock, struct berth_error *err);
void key_unlock(struct key_lock *lock);

/* -------------------------------------------------------- snapshots, templates */

/* snapshots/<id>/meta.json */
struct snapshot_record {
    struct adapter_snapshot info;
    uint64_t fence;
    bool deleted;                   /* hidden; its layer stays while something boots from it */
    char *layers[STORE_LAYERS_MAX]; /* top first, its own included */
    size_t n_layers;
};
void snapshot_record_deinit(struct snapshot_record *record);
/* Errors: SNAPSHOT_NOT_FOUND (deleted ones are found: look at .deleted). */
BERTH_MUST_CHECK enum berth_code snapshot_load(const struct store *store, const char *id,
                                               struct snapshot_record *ret,
                                               struct berth_error *err);
BERTH_MUST_CHECK enum berth_code snapshot_save(int dir_fd, const struct snapshot_record *record,
                                               struct berth_error *err);

/* Looks in templates/ and then in the further directories. *ret_layer is the rootfs, absolute
 * or relative to the store. Errors: TEMPLATE_NOT_FOUND. */
BERTH_MUST_CHECK enum berth_code template_load(const struct store *store, const char *id,
                                               struct adapter_template *ret,
                                               char ret_layer[STORE_PATH_MAX],
                                               struct berth_error *err);
BERTH_MUST_CHECK enum berth_code template_save(int dir_fd, const struct adapter_template *info,
                                               struct berth_error *err);
/* All there are, sorted, owned: free(). */
BERTH_MUST_CHECK enum berth_code template_list(const struct store *store,
                                               struct adapter_template **ret, size_t *ret_n,
                                               struct berth_error *err);

/* Move sandboxes/<id> (or another directory) into trash/, where it is removed later. */
BERTH_MUST_CHECK enum berth_code store_trash(const struct store *store, int dir_fd,
                                             const char *name, struct berth_error *err);

/* ---------------------------------------------------------------- host names */

/* Name of the cgroup directory of the store and of a sandbox in it. */
void store_cgroup_name(const struct store *store, char ret[32]);
/* veth of a slot: at most 15 characters; the prefix alone with slot < 0. */
void store_link_name(const struct store *store, int slot, char ret[16]);
