/* create.c - one sandbox per key, from nothing to running, or nothing left of it. */
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "common/ids/ids.h"
#include "common/json/json.h"
#include "common/time/time.h"
#include "services/adapter-local/spawner/io.h"
#include "services/adapter-local/spawner/message.h"
#include "services/adapter-local/spawner/nft.h"
#include "services/adapter-local/spawner/slot.h"
#include "services/adapter-local/spawner/spawner.h"

enum { ID_CHARS = 20, UNDO_MS = 5000, CHILD_FD = 10 };

/* ------------------------------------------------------------------ request */

static enum berth_code decode(const struct operation *op, struct record *want,
                              struct berth_error *err)
{
    const json_t *request = op->request;
    enum berth_code code;

    code = berth_json_get_str(request, "key", want->key, sizeof want->key, "", err);
    if (!code)
        code = berth_json_get_str(request, "attempt", want->attempt, sizeof want->attempt, "",
                                  err);
    if (!code)
        code = adapter_image_from_json(json_object_get(request, "image"), &want->image, err);
    if (!code)
        code =
            adapter_pairs_from_json(json_object_get(request, "metadata"), &want->metadata, err);
    if (!code)
        code = adapter_pairs_from_json(json_object_get(request, "env"), &want->env, err);
    if (!code)
        code =
            adapter_network_from_json(json_object_get(request, "network"), &want->network, err);
    if (!code)
        code = adapter_timeouts_from_json(json_object_get(request, "timeouts"), &want->timeouts,
                                          err);
    if (!code)
        code = adapter_resources_from_json(json_object_get(request, "resources"),
                                           &want->resources, err);
    if (!code)
        code = operation_grant(op, &want->fence, err);
    if (!code && (!want->key[0] || !want->attempt[0]))
        code = berth_fail(err, BERTH_REASON_FIELD_INVALID, "create: no key or no attempt");
    return code;
}

static enum berth_code add_layer(struct record *want, const char *layer,
                                 struct berth_error *err)
{
    if (want->n_layers == STORE_LAYERS_MAX)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "too many layers");
    want->layers[want->n_layers] = strdup(layer);
    if (!want->layers[want->n_layers])
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    want->n_layers++;
    return BERTH_OK;
}

static enum berth_code find_layers(const struct spawner *spawner, struct record *want,
                                   struct berth_error *err)
{
    struct snapshot_record snapshot = {0};
    struct adapter_template info;
    char layer[STORE_PATH_MAX];
    enum berth_code code;

    if (want->image.kind == ADAPTER_IMAGE_TEMPLATE) {
        code = template_load(&spawner->store, want->image.id, &info, layer, err);
        if (code == BERTH_NOT_FOUND)
            return berth_fail(err, BERTH_REASON_TEMPLATE_INVALID, "there is no template '%s'",
                              want->image.id);
        return code ? code : add_layer(want, layer, err);
    }
    code = snapshot_load(&spawner->store, want->image.id, &snapshot, err);
    if (!code && snapshot.deleted)
        code = berth_fail(err, BERTH_REASON_SNAPSHOT_NOT_FOUND, NULL);
    for (size_t i = 0; !code && i < snapshot.n_layers; i++)
        code = add_layer(want, snapshot.layers[i], err);
    snapshot_record_deinit(&snapshot);
    return code;
}

/* ------------------------------------------------------------------ on disk */

/* A directory under a hidden name until its lock is held: a sweep must never see it unlocked.
 */
static enum berth_code make_directory(const struct spawner *spawner, const char *id,
                                      struct record_lock *ret, struct berth_error *err)
{
    struct record_lock lock = {-1, -1};
    char hidden[ADAPTER_ID_SIZE + 8];
    enum berth_code code = BERTH_OK;
    int parent = spawner->store.sandboxes_fd;

    snprintf(hidden, sizeof hidden, ".new-%s", id);
    lock.dir_fd = io_make_dir(parent, hidden, 0700);
    if (lock.dir_fd >= 0)
        lock.lock_fd = io_make_lock(lock.dir_fd);
    if (lock.lock_fd < 0)
        code = io_fail(err, "make the sandbox's directory");
    if (!code && renameat(parent, hidden, parent, id) < 0)
        code = io_fail(err, "make the sandbox's directory");
    if (code) {
        record_unlock(&lock);
        (void)io_remove_tree(parent, hidden);
        return code;
    }
    *ret = lock;
    return BERTH_OK;
}

/* What init needs of it; "upper" becomes the root directory of the sandbox. */
static enum berth_code fill_directory(int dir_fd, struct berth_error *err)
{
    return mkdirat(dir_fd, "work", 0700) < 0 || mkdirat(dir_fd, "mnt", 0700) < 0 ||
                   mkdirat(dir_fd, "upper", 0755) < 0 || fchmodat(dir_fd, "upper", 0755, 0) < 0
               ? io_fail(err, "fill the sandbox's directory")
               : BERTH_OK;
}

/* --------------------------------------------------------------- supervisor */

/* The descriptors of a supervisor in the making. */
struct birth {
    int dir_fd, slot_fd; /* borrowed */
    int status_fd;       /* where it will say how it went; owned */
    int go_fd;           /* where it is told to begin; owned */
};

static void birth_deinit(struct birth *birth)
{
    closep(&birth->status_fd);
    closep(&birth->go_fd);
    birth->status_fd = birth->go_fd = -1;
}

/* birth: of the child's ends. */
static _Noreturn void exec_supervisor(const struct spawner *spawner,
                                      const struct record *record, struct birth birth)
{
    char slot[16];
    const char *const argv[] = {"berth-local-supervisor", spawner->store.path, record->id, slot,
                                NULL};
    const char *const env[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL};
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    int log_fd =
        openat(birth.dir_fd, "supervisor.log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    sigset_t none;

    snprintf(slot, sizeof slot, "%d", record->slot);
    setsid();
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    birth.status_fd = fcntl(birth.status_fd, F_DUPFD_CLOEXEC, CHILD_FD);
    birth.slot_fd = fcntl(birth.slot_fd, F_DUPFD_CLOEXEC, CHILD_FD);
    birth.go_fd = fcntl(birth.go_fd, F_DUPFD_CLOEXEC, CHILD_FD);
    if (dup2(null_fd, 0) < 0 || dup2(log_fd, 1) < 0 || dup2(log_fd, 2) < 0 ||
        dup2(birth.status_fd, 3) < 0 || dup2(birth.slot_fd, 4) < 0 || dup2(birth.go_fd, 5) < 0)
        _exit(127);
    execve(spawner->supervisor_path, (char *const *)argv, (char *const *)env);
    dprintf(3, "{\"ok\":false,\"reason\":\"INTERNAL_BUG\",\"text\":\"exec supervisor: %s\"}",
            strerror(errno));
    _exit(127);
}

/* What a supervisor says: a line with its init's number, then one of JSON. Or the latter alone;
 * or nothing, when it died. */
struct status {
    int fd;
    char text[2048];
    size_t used;
    bool ended;
};

/* Up to the end, or of the first line only. */
static enum berth_code read_status(struct status *status, bool whole, int64_t deadline_ms,
                                   struct berth_error *err)
{
    while (!status->ended && (whole || !memchr(status->text, '\n', status->used))) {
        struct pollfd polled = {.fd = status->fd, .events = POLLIN};
        int64_t left = deadline_ms - berth_tick_ms();
        ssize_t n;

        if (left <= 0)
            return berth_fail(err, BERTH_REASON_BACKEND_TIMEOUT,
                              "the sandbox did not start in time");
        if (poll(&polled, 1, left > 1000 ? 1000 : (int)left) <= 0)
            continue;
        n = read(status->fd, status->text + status->used,
                 sizeof status->text - 1 - status->used);
        if (n < 0 && errno == EINTR)
            continue;
        status->ended = n <= 0;
        status->used += n > 0 ? (size_t)n : 0;
    }
    status->text[status->used] = 0;
    return BERTH_OK;
}

/* From the first line: everything but that it is ready. */
static enum berth_code draft_ready(const struct spawner *spawner, const char *text,
                                   struct record *record, struct berth_error *err)
{
    int init_pid;

    if (sscanf(text, "%9d\n", &init_pid) != 1)
        return BERTH_OK; /* it says why it has none */
    record->state = RECORD_READY;
    record->init_pid = init_pid;
    record->init_start = io_process_start(record->init_pid);
    record->supervisor_start = io_process_start(record->supervisor_pid);
    /* Not synced: this has to survive our processes, not the host's power. With that goes the
     * sandbox, whose writable layer is never synced either, and its record then only says that
     * it is dead; torn or still "creating" it says the same, and the sweep removes it. */
    return record_draft(&spawner->store, record, false, err);
}

/* Killed, by the kernel for want of memory or by somebody. What was made so far is undone, so
 * that this is no more than a create that did not happen. */
static enum berth_code died(struct berth_error *err, const char *what)
{
    return berth_fail(err, BERTH_REASON_BACKEND_UNAVAILABLE, "%s died at its start", what);
}

static enum berth_code judge_status(const char *text, const struct record *record,
                                    struct berth_error *err)
{
    BERTH_AUTO(json_decref) json_t *status = NULL;
    const char *line = strchr(text, '\n');
    enum berth_code code;

    line = line ? line + 1 : text;
    if (!*line)
        return died(err, "the supervisor");
    if (berth_json_parse(line, strlen(line), strlen(line), &status, NULL))
        return died(err, "the supervisor");
    code = message_check(status, err);
    if (!code && (!record->init_start || !record->supervisor_start))
        code = died(err, "the sandbox");
    return code;
}

/* It begins with what needs no record, and waits to be told to go on. */
static enum berth_code start_supervisor(const struct spawner *spawner, struct record *record,
                                        struct birth *birth, struct berth_error *err)
{
    struct cgroup group = {
        .host = &spawner->host, .store = spawner->cgroup_name, .id = record->id};
    struct clone_args args = {.flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD};
    BERTH_AUTO(close) int sup_fd = -1;
    enum berth_code code = cgroup_make_sup(&group, &sup_fd, err);
    int status[2], go[2];
    long pid;

    if (code)
        return code;
    if (pipe2(status, O_CLOEXEC) < 0)
        return io_fail(err, "pipe");
    birth->status_fd = status[0];
    if (pipe2(go, O_CLOEXEC) < 0) {
        code = io_fail(err, "pipe");
        close(status[1]);
        return code;
    }
    birth->go_fd = go[1];
    args.cgroup = (uint64_t)sup_fd;
    pid = syscall(SYS_clone3, &args, sizeof args);
    if (pid == 0) {
        struct birth own = *birth;

        own.status_fd = status[1];
        own.go_fd = go[0];
        exec_supervisor(spawner, record, own);
    }
    code = pid < 0 ? io_fail(err, "start the supervisor") : BERTH_OK;
    close(status[1]);
    close(go[0]);
    if (!code)
        record->supervisor_pid = (pid_t)pid;
    return code;
}

static enum berth_code finish(const struct spawner *spawner, const struct key_lock *key,
                              struct record *record, const struct birth *birth,
                              int64_t deadline_ms, struct berth_error *err)
{
    struct cgroup group = {
        .host = &spawner->host, .store = spawner->cgroup_name, .id = record->id};
    bool inbound = record->network.inbound == ADAPTER_OPEN;
    enum berth_code code = cgroup_make(&group, &record->resources, err);
    struct status status = {.fd = birth->status_fd};
    char link[16];

    store_link_name(&spawner->store, record->slot, link);
    if (!code && inbound)
        code = nft_set_inbound(spawner->table, link, true, err);
    /* Where it has died its status says more. */
    if (!code)
        (void)!write(birth->go_fd, "", 1);
    /* While it works: the fence must outlive the power once this create has been answered. */
    if (!code)
        code = key_sync(key, err);
    if (!code)
        code = read_status(&status, false, deadline_ms, err);
    if (!code)
        code = draft_ready(spawner, status.text, record, err);
    if (!code)
        code = read_status(&status, true, deadline_ms, err);
    if (!code)
        code = judge_status(status.text, record, err);
    return code ? code : record_publish(&spawner->store, record, err);
}

/* Make the sandbox that record describes; its id and place are chosen here. */
static enum berth_code make(const struct spawner *spawner, struct key_lock *key,
                            struct record *record, int64_t deadline_ms, struct berth_error *err)
{
    struct record_lock lock = {-1, -1};
    BERTH_AUTO(close) int slot_fd = -1;
    struct birth birth = {-1, -1, -1, -1};
    enum berth_code code;

    berth_id_base36(record->id, ID_CHARS);
    record->state = RECORD_CREATING;
    record->create_ms = berth_now_ms();
    snprintf(record->cidr, sizeof record->cidr, "%s", spawner->cidr_text);
    snprintf(record->resolvers, sizeof record->resolvers, "%s", spawner->resolvers);
    snprintf(record->boot, sizeof record->boot, "%s", spawner->store.boot);

    code = find_layers(spawner, record, err);
    if (!code)
        code = slot_take(spawner->slots_dir, net_slots(&spawner->cidr), &record->slot, &slot_fd,
                         err);
    if (!code)
        code = make_directory(spawner, record->id, &lock, err);
    if (code)
        return code;

    birth.dir_fd = lock.dir_fd;
    birth.slot_fd = slot_fd;
    code = start_supervisor(spawner, record, &birth, err);
    if (!code)
        code = fill_directory(lock.dir_fd, err);
    if (!code)
        code = record_save(&spawner->store, record, false, err);
    if (!code) {
        key->record.fence = record->fence;
        snprintf(key->record.attempt, sizeof key->record.attempt, "%s", record->attempt);
        snprintf(key->record.sandbox_id, sizeof key->record.sandbox_id, "%s", record->id);
        key->record.delete_ms = 0;
        code = key_put(&spawner->store, key, err);
    }
    if (!code)
        code = finish(spawner, key, record, &birth, deadline_ms, err);
    birth_deinit(&birth);
    if (code) {
        /* What cannot be undone now is left to the sweep; the record still says creating. */
        close(slot_fd);
        slot_fd = -1;
        record->state = RECORD_CREATING;
        if (host_release(spawner, record->id, record->slot,
                         record->network.inbound == ADAPTER_OPEN, berth_tick_ms() + UNDO_MS,
                         NULL) == BERTH_OK &&
            store_trash(&spawner->store, spawner->store.sandboxes_fd, record->id, NULL) ==
                BERTH_OK) {
            key->record.sandbox_id[0] = 0;
            (void)!key_save(&spawner->store, key, NULL);
        }
    }
    record_unlock(&lock);
    return code;
}

/* ------------------------------------------------------------------ verdict */

/* What became of the sandbox a key names, and how high its fence stands. */
static enum berth_code look_up(const struct spawner *spawner, const char *id,
                               enum key_sandbox *ret, uint64_t *ret_fence,
                               struct berth_error *err)
{
    struct record record = {0};
    enum berth_code code;

    *ret = KEY_SANDBOX_ABSENT;
    *ret_fence = 0;
    if (!id[0])
        return BERTH_OK;
    code = record_load(&spawner->store, id, &record, err);
    if (code == BERTH_NOT_FOUND)
        return BERTH_OK;
    if (code)
        return code;
    /* We hold the key's lock, so nobody is creating it any more: a crash left it. */
    *ret = record_alive(&spawner->store, &record) ? KEY_SANDBOX_ALIVE : KEY_SANDBOX_DEAD;
    if (record.state == RECORD_CREATING)
        *ret = KEY_SANDBOX_ABSENT;
    *ret_fence = record.fence;
    record_deinit(&record);
    return BERTH_OK;
}

/* Remove a dead predecessor, or what a crash left of one. */
static enum berth_code clear(const struct spawner *spawner, const char *id, int64_t deadline_ms,
                             struct berth_error *err)
{
    struct record_lock lock = {-1, -1};
    struct record record = {.slot = -1};
    enum berth_code code = record_lock(&spawner->store, id, deadline_ms, &lock, err);

    if (code == BERTH_NOT_FOUND)
        return BERTH_OK;
    if (code)
        return code;
    if (record_load(&spawner->store, id, &record, NULL))
        record = (struct record){.slot = -1};
    code = host_release(spawner, id, record.slot, record.network.inbound == ADAPTER_OPEN,
                        deadline_ms, err);
    if (!code)
        code = store_trash(&spawner->store, spawner->store.sandboxes_fd, id, err);
    record_deinit(&record);
    record_unlock(&lock);
    return code;
}

static enum berth_code create_under_key(const struct spawner *spawner, struct operation *op,
                                        struct key_lock *key, struct record *want,
                                        struct berth_error *err)
{
    enum key_sandbox sandbox;
    uint64_t sandbox_fence;
    enum key_verdict verdict;
    enum berth_code code =
        look_up(spawner, key->record.sandbox_id, &sandbox, &sandbox_fence, err);

    if (code)
        return code;
    verdict =
        rules_judge_create(&key->record, sandbox, sandbox_fence, want->fence, want->attempt);
    switch (verdict) {
    case KEY_SAME:
        snprintf(want->id, sizeof want->id, "%s", key->record.sandbox_id);
        return BERTH_OK;
    case KEY_STALE:
        code = berth_fail(err, BERTH_REASON_FENCE_STALE, NULL);
        break;
    case KEY_EXISTS:
        /* The fence is remembered: no create of an earlier grant may pass later. */
        key->record.fence = want->fence;
        code = key_save(&spawner->store, key, err);
        if (!code)
            code = berth_fail(err, BERTH_REASON_SANDBOX_EXISTS, NULL);
        break;
    case KEY_GONE:
        code = berth_fail(err, BERTH_REASON_SANDBOX_TERMINAL,
                          "the sandbox this attempt made is gone");
        break;
    case KEY_REPLACE:
    case KEY_CREATE:
        if (key->record.sandbox_id[0] && !key->record.delete_ms)
            code = clear(spawner, key->record.sandbox_id, op->deadline_ms, err);
        return code ? code : make(spawner, key, want, op->deadline_ms, err);
    }
    BERTH_ERROR_SET(err, sandbox_id, key->record.sandbox_id);
    return code;
}

enum berth_code spawner_create(const struct spawner *spawner, struct operation *op,
                               struct berth_error *err)
{
    struct record want = {0};
    struct key_lock key = {.fd = -1};
    enum berth_code code = decode(op, &want, err);
    uint64_t fence;

    if (!code)
        code = key_lock(&spawner->store, want.key, op->deadline_ms, &key, err);
    /* Waiting for the key may have taken the time the grant gave. */
    if (!code)
        code = operation_grant(op, &fence, err);
    if (!code)
        code = create_under_key(spawner, op, &key, &want, err);
    if (!code && json_object_set_new(op->answer, "sandbox_id", json_string(want.id)) < 0)
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    key_unlock(&key);
    record_deinit(&want);
    op->afterwards = spawner_empty_trash;
    return code;
}
