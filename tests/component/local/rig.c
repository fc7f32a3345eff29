#include "tests/component/local/rig.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "common/ids/ids.h"
#include "common/json/json.h"
#include "common/time/time.h"
#include "services/adapter-local/spawner/io.h"
#include "services/adapter-local/spawner/net.h"
#include "services/adapter-local/spawner/nft.h"
#include "services/adapter-local/spawner/slot.h"
#include "services/adapter-local/spawner/supervisor.h"

#define PLACE "/var/tmp"

enum { CALL_MS = 60000, HOUR_MS = 3600 * 1000 };

static char prefix[64]; /* of the names of this program's stores */

static const char *program(const char *variable)
{
    const char *path = getenv(variable);

    if (!path) {
        printf("SKIP: %s is not set (run by meson)\n", variable);
        _exit(77);
    }
    return path;
}

/* ----------------------------------------------------------------------- store */

static void make_tiny(struct rig *rig)
{
    static const char *const dirs[] = {"tiny",
                                       "tiny/rootfs",
                                       "tiny/rootfs/etc",
                                       "tiny/rootfs/usr",
                                       "tiny/rootfs/usr/bin",
                                       "tiny/rootfs/home"};
    struct adapter_template info = {.create_ms = 1};
    int fd;

    for (size_t i = 0; i < BERTH_COUNT(dirs); i++)
        ck_assert_int_eq(mkdirat(rig->store.templates_fd, dirs[i], 0755), 0);
    ck_assert_int_eq(mkdirat(rig->store.templates_fd, "tiny/rootfs/workspace", 0755), 0);
    ck_assert_int_eq(fchownat(rig->store.templates_fd, "tiny/rootfs/workspace", 1000, 1000, 0),
                     0);
    fd = io_open_dir(rig->store.templates_fd, "tiny/rootfs/etc");
    ck_assert_int_eq(io_replace(fd, "base-file", "from the image\n", 15, false, NULL), 0);
    close(fd);
    fd = io_open_dir(rig->store.templates_fd, "tiny");
    ck_assert_int_eq(template_save(fd, &info, NULL), 0);
    close(fd);
}

void rig_start(struct rig *rig)
{
    struct berth_error err = {0};
    const char *templates = getenv("BERTH_TEST_TEMPLATES");
    json_t *open = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I}", "state_dir", rig->dir, "template_dirs",
        templates ? templates : "", "network_cidr", RIG_CIDR, "resolvers", rig->resolvers,
        "slots_dir", RIG_SLOTS, "supervisor",
        rig->supervisor ? rig->supervisor : program("BERTH_LOCAL_SUPERVISOR"),
        "measure_every_ms", (json_int_t)(rig->measure_ms ? rig->measure_ms : HOUR_MS),
        "ended_keep_ms", (json_int_t)(rig->ended_keep_ms ? rig->ended_keep_ms : INT64_MAX));

    if (spawn_client_new(program("BERTH_LOCAL_SPAWNER"), open, &rig->client, &err)) {
        printf("SKIP: %s\n", err.text);
        fflush(stdout);
        _exit(77);
    }
}

void rig_stop(struct rig *rig)
{
    rig->client = spawn_client_free(rig->client);
}

void rig_open(struct rig *rig)
{
    char random[9];
    struct berth_error err = {0};

    snprintf(rig->dir, sizeof rig->dir, "%s/%s%s", PLACE, prefix, berth_id_base36(random, 8));
    ck_assert_msg(store_open(rig->dir, "", &rig->store, &err) == BERTH_OK, "%s", err.text);
    ck_assert_int_eq(cgroup_discover_self(&rig->host, NULL), BERTH_OK);
    make_tiny(rig);
    rig_start(rig);
}

/* Of sandboxes without a directory, too. */
static void remove_groups(const struct cgroup_host *host, const char *store)
{
    char path[512], **ids = NULL;
    size_t n = 0;
    int fd;

    snprintf(path, sizeof path, "%s/%s", host->unified, store);
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || store_list(fd, &ids, &n, NULL))
        return;
    for (size_t i = 0; i < n; i++) {
        struct cgroup group = {.host = host, .store = store, .id = ids[i]};
        struct stat st;

        if (fstatat(fd, ids[i], &st, 0) == 0 && S_ISDIR(st.st_mode))
            (void)!cgroup_destroy(&group, berth_tick_ms() + 5000, NULL);
    }
    close(fd);
    store_list_free(ids, n);
}

static void remove_store(const char *dir)
{
    struct store store;
    struct cgroup_host host;
    char name[64], link[16], **ids = NULL;
    size_t n = 0;
    int place_fd;

    if (store_open(dir, "", &store, NULL) || cgroup_discover_self(&host, NULL))
        return;
    store_cgroup_name(&store, name);
    (void)!store_list(store.sandboxes_fd, &ids, &n, NULL);
    for (size_t i = 0; i < n; i++) {
        struct cgroup group = {.host = &host, .store = name, .id = ids[i]};
        struct record record;

        (void)!cgroup_destroy(&group, berth_tick_ms() + 5000, NULL);
        if (record_load(&store, ids[i], &record, NULL))
            continue;
        store_link_name(&store, record.slot, link);
        (void)!net_link_down(link, NULL);
        slot_forget(RIG_SLOTS, record.slot);
        record_deinit(&record);
    }
    store_list_free(ids, n);
    remove_groups(&host, name);
    cgroup_forget_store(&host, name);
    snprintf(name, sizeof name, "berth_%s", store.tag);
    (void)!nft_remove(name, NULL);
    store_close(&store);
    place_fd = open(PLACE, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    (void)io_remove_tree(place_fd, strrchr(dir, '/') + 1);
    close(place_fd);
}

void rig_close(struct rig *rig)
{
    char **ids = NULL;
    size_t n = 0;

    if (!rig->client)
        rig_start(rig);
    ck_assert_int_eq(store_list(rig->store.sandboxes_fd, &ids, &n, NULL), BERTH_OK);
    for (size_t i = 0; i < n; i++) {
        struct record record = {.slot = -1};
        int slot;

        (void)!record_load(&rig->store, ids[i], &record, NULL);
        slot = record.slot;
        record_deinit(&record);
        rig_delete(rig, ids[i], UINT64_MAX >> 1);
        ck_assert_str_eq(rig_leftovers(rig, ids[i], slot), "");
    }
    store_list_free(ids, n);
    rig_stop(rig);
    store_close(&rig->store);
    remove_store(rig->dir);
}

void rig_main(void)
{
    if (geteuid() != 0) {
        printf("SKIP: not root\n");
        _exit(77);
    }
    snprintf(prefix, sizeof prefix, "berth-local-%ld-", (long)getpid());
}

void rig_finish(void)
{
    DIR *dir = opendir(PLACE);
    struct dirent *entry;
    char path[512];

    while (dir && (entry = readdir(dir)))
        if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0) {
            snprintf(path, sizeof path, "%s/%s", PLACE, entry->d_name);
            remove_store(path);
        }
    if (dir)
        closedir(dir);
}

/* The spawner is the one child of ours that is not a test's own. */
pid_t rig_spawner_pid(const struct rig *rig)
{
    char path[64], text[4096], *at = text;

    (void)rig;
    snprintf(path, sizeof path, "/proc/self/task/%ld/children", (long)getpid());
    /* The thread of the client starts later ones. */
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *entry;
    pid_t found = 0;

    while (tasks && (entry = readdir(tasks))) {
        snprintf(path, sizeof path, "/proc/self/task/%.20s/children", entry->d_name);
        if (entry->d_name[0] == '.' || io_read(AT_FDCWD, path, text, sizeof text) <= 0)
            continue;
        for (at = text; *at;) {
            char comm_path[64], comm[64];
            long pid = strtol(at, &at, 10);

            at += strspn(at, " \n");
            snprintf(comm_path, sizeof comm_path, "/proc/%ld/comm", pid);
            if (io_read(AT_FDCWD, comm_path, comm, sizeof comm) > 0 &&
                strncmp(comm, "berth-local-spa", 15) == 0)
                found = (pid_t)pid;
        }
    }
    if (tasks)
        closedir(tasks);
    return found;
}

/* ------------------------------------------------------------------ operations */

json_t *rig_about(const char *id, uint64_t fence)
{
    return json_pack("{s:s, s:I}", "sandbox_id", id, "fence", (json_int_t)fence);
}

enum berth_code rig_call(struct rig *rig, const char *op, json_t *request, json_t **answer,
                         struct berth_error *err)
{
    return spawn_client_call(rig->client, op, request, berth_tick_ms() + CALL_MS, NULL, NULL,
                             answer, err);
}

enum berth_code rig_create(struct rig *rig, const struct rig_wish *wish,
                           char id[ADAPTER_ID_SIZE], struct berth_error *err)
{
    BERTH_AUTO(json_decref) json_t *answer = NULL;
    struct adapter_image image = {.kind = wish->snapshot ? ADAPTER_IMAGE_SNAPSHOT
                                                         : ADAPTER_IMAGE_TEMPLATE};
    struct adapter_network network = {.egress = wish->egress ? ADAPTER_OPEN : ADAPTER_CLOSED,
                                      .inbound = wish->inbound ? ADAPTER_OPEN : ADAPTER_CLOSED};
    struct adapter_timeouts timeouts = {.idle_ms = 1000};
    struct adapter_resources resources = {
        .memory_bytes = wish->memory ? wish->memory : 256 << 20,
        .max_processes = wish->processes ? wish->processes : 64,
        .cpu_millis = 1000,
        .max_open_files = 256};
    json_t *request;
    enum berth_code code;

    snprintf(image.id, sizeof image.id, "%s",
             wish->snapshot   ? wish->snapshot
             : wish->template ? wish->template
                              : "tiny");
    request = json_pack("{s:s, s:s, s:I, s:I, s:o, s:{s:s}, s:{s:s}, s:o, s:o, s:o}", "key",
                        wish->key ? wish->key : "key", "attempt",
                        wish->attempt ? wish->attempt : "aa", "fence", (json_int_t)wish->fence,
                        "not_after_ms", (json_int_t)wish->not_after_ms, "image",
                        adapter_image_to_json(&image), "metadata", "berth.session", "s1", "env",
                        "NAME", "value", "network", adapter_network_to_json(&network),
                        "timeouts", adapter_timeouts_to_json(&timeouts), "resources",
                        adapter_resources_to_json(&resources));
    code = rig_call(rig, "create", request, &answer, err);
    if (!code)
        code = berth_json_get_str(answer, "sandbox_id", id, ADAPTER_ID_SIZE, "", err);
    return code;
}

void rig_make(struct rig *rig, const struct rig_wish *wish, char id[ADAPTER_ID_SIZE])
{
    struct berth_error err = {0};

    ck_assert_msg(rig_create(rig, wish, id, &err) == BERTH_OK, "create: %s", err.text);
}

void rig_delete(struct rig *rig, const char *id, uint64_t fence)
{
    struct berth_error err = {0};

    ck_assert_msg(rig_call(rig, "delete", rig_about(id, fence), NULL, &err) == BERTH_OK,
                  "delete: %s", err.text);
}

void rig_snapshot(struct rig *rig, const char *id, const char *name,
                  char snapshot[ADAPTER_ID_SIZE])
{
    BERTH_AUTO(json_decref) json_t *answer = NULL;
    struct berth_error err = {0};
    json_t *request = rig_about(id, 1);

    json_object_set_new(request, "name", json_string(name));
    ck_assert_msg(rig_call(rig, "snapshot", request, &answer, &err) == BERTH_OK, "snapshot: %s",
                  err.text);
    ck_assert_int_eq(
        berth_json_get_str(answer, "snapshot_id", snapshot, ADAPTER_ID_SIZE, "", NULL),
        BERTH_OK);
}

void rig_record(struct rig *rig, const char *id, struct record *ret)
{
    struct berth_error err = {0};

    ck_assert_msg(record_load(&rig->store, id, ret, &err) == BERTH_OK, "record: %s", err.text);
}

enum adapter_state rig_state(struct rig *rig, const char *id)
{
    struct adapter_sandbox sandbox;
    struct record record;
    enum adapter_state state;

    rig_record(rig, id, &record);
    ck_assert_int_eq(record_describe(&rig->store, &record, &sandbox, NULL), BERTH_OK);
    state = sandbox.state;
    adapter_sandbox_deinit(&sandbox);
    record_deinit(&record);
    return state;
}

struct cgroup rig_group(struct rig *rig, const char *id)
{
    static char name[32];

    store_cgroup_name(&rig->store, name);
    return (struct cgroup){.host = &rig->host, .store = name, .id = id};
}

void rig_path(struct rig *rig, const char *id, const char *below, char path[512])
{
    snprintf(path, 512, "%s/sandboxes/%s/upper/%s", rig->dir, id, below);
}

/* ---------------------------------------------------------------------- inside */

struct entry {
    pid_t init;
    int box_fd;
    enum rig_as as;
    int (*fn)(void *arg);
    void *arg;
};

static void enter(const struct entry *entry)
{
    int pidfd = (int)syscall(SYS_pidfd_open, entry->init, 0);
    int namespaces = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;
    unsigned id = entry->as == RIG_USER ? 1000 : 0;

    if (entry->as == RIG_NETWORK)
        namespaces = CLONE_NEWNET;
    else if (entry->as != RIG_BARE)
        namespaces |= CLONE_NEWUSER;
    if (pidfd < 0 || setns(pidfd, namespaces) < 0)
        _exit(250);
    if (!(namespaces & CLONE_NEWUSER))
        return;
    if (syscall(SYS_setgroups, 0, NULL) < 0 || syscall(SYS_setresgid, 0, 0, 0) < 0 ||
        syscall(SYS_setresuid, 0, 0, 0) < 0 || supervisor_confine() < 0 ||
        syscall(SYS_setresgid, id, id, id) < 0 || syscall(SYS_setresuid, id, id, id) < 0)
        _exit(251);
}

/* A child in the box's cgroup, in the namespaces; a second one so that the pid namespace
 * counts. stay: the first one lives as long, and reaps it: a dead process nobody reaps holds up
 * the end of its pid namespace. */
static pid_t start(const struct entry *entry, bool stay)
{
    struct clone_args args = {
        .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (uint64_t)entry->box_fd};
    int fds[2];
    pid_t inner = 0;
    long outer;

    ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
    outer = syscall(SYS_clone3, &args, sizeof args);
    if (outer == 0) {
        struct clone_args second = {.flags = stay ? 0 : CLONE_PARENT,
                                    .exit_signal = stay ? SIGCHLD : 0};

        enter(entry);
        inner = (pid_t)syscall(SYS_clone3, &second, sizeof second);
        if (inner == 0)
            _exit(entry->fn(entry->arg) & 0xff);
        if (write(fds[1], &inner, sizeof inner) != sizeof inner)
            _exit(1);
        close(fds[1]);
        if (stay)
            waitpid(inner, NULL, __WALL);
        _exit(0);
    }
    close(fds[1]);
    ck_assert_int_gt(outer, 0);
    ck_assert_int_eq(read(fds[0], &inner, sizeof inner), sizeof inner);
    close(fds[0]);
    if (!stay)
        ck_assert_int_eq(waitpid((pid_t)outer, NULL, 0), (pid_t)outer);
    ck_assert_int_gt(inner, 0);
    return inner;
}

static pid_t start_inside(struct rig *rig, const char *id, enum rig_as as, int (*fn)(void *arg),
                          void *arg, bool stay)
{
    struct cgroup group = rig_group(rig, id);
    struct cgroup_fds cgroup;
    struct record record;
    struct entry entry = {.as = as, .fn = fn, .arg = arg};
    pid_t pid;

    rig_record(rig, id, &record);
    ck_assert_int_eq(cgroup_open(&group, &cgroup, NULL), BERTH_OK);
    entry.init = record.init_pid;
    entry.box_fd = cgroup.box_fd;
    fflush(stdout);
    pid = start(&entry, stay);
    cgroup_fds_close(&cgroup);
    record_deinit(&record);
    return pid;
}

int rig_inside(struct rig *rig, const char *id, enum rig_as as, int (*fn)(void *arg), void *arg)
{
    pid_t pid = start_inside(rig, id, as, fn, arg, false);
    int status;

    ck_assert_int_eq(waitpid(pid, &status, __WALL), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

pid_t rig_start_inside(struct rig *rig, const char *id, enum rig_as as, int (*fn)(void *arg),
                       void *arg)
{
    return start_inside(rig, id, as, fn, arg, true);
}

/* ------------------------------------------------------------------------ looks */

bool rig_until(bool (*cond)(void *arg), void *arg, int limit_ms)
{
    int64_t deadline_ms = berth_tick_ms() + limit_ms;

    while (!cond(arg)) {
        if (berth_tick_ms() >= deadline_ms)
            return cond(arg);
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    return true;
}

bool rig_pid_lives(pid_t pid)
{
    return io_process_start(pid) != 0;
}

static bool mentions(const char *file, const char *what)
{
    char *text = malloc(1 << 20);
    bool found;

    ck_assert_ptr_nonnull(text);
    found = io_read(AT_FDCWD, file, text, 1 << 20) > 0 && strstr(text, what);
    free(text);
    return found;
}

/* A process with the sandbox's id in its command line or mounts: a supervisor, or one inside.
 */
static bool has_process(const char *id)
{
    DIR *dir = opendir("/proc");
    struct dirent *entry;
    bool found = false;

    while (dir && !found && (entry = readdir(dir))) {
        char path[300], text[4096];
        ssize_t n;

        if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
            continue;
        snprintf(path, sizeof path, "/proc/%s/cmdline", entry->d_name);
        n = io_read(AT_FDCWD, path, text, sizeof text);
        found = n > 0 && memmem(text, (size_t)n, id, strlen(id));
    }
    if (dir)
        closedir(dir);
    return found;
}

const char *rig_leftovers(struct rig *rig, const char *id, int slot)
{
    static const char *const groups[] = {"unified", "memory", "pids", "cpu"};
    char path[512], name[32], link[16];

    store_cgroup_name(&rig->store, name);
    for (size_t i = 0; i < BERTH_COUNT(groups); i++) {
        snprintf(path, sizeof path, "/sys/fs/cgroup/%s/%s/%s", groups[i], name, id);
        if (access(path, F_OK) == 0)
            return "a control group";
    }
    if (faccessat(rig->store.sandboxes_fd, id, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return "its directory";
    if (mentions("/proc/self/mountinfo", id))
        return "a mount";
    if (has_process(id))
        return "a process";
    if (slot >= 0) {
        store_link_name(&rig->store, slot, link);
        if (net_link_exists(link))
            return "a network link";
    }
    return "";
}
