#include "services/adapter-local/spawner/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#include "common/time/time.h"
#include "services/adapter-local/spawner/io.h"

enum {
    REAP_MS = 1000,    /* for a supervisor to reap its sandbox */
    WAIT_MIN_US = 100, /* between two looks at an event */
    WAIT_MAX_US = 50000,
    PATH_SIZE = 512,
    CPU_PERIOD_US = 100000,
    CPU_QUOTA_MIN_US = 1000,
    MOUNTINFO_MAX = 1 << 20,
    MAKE_TRIES = 5
};

static const char *const controllers[CGROUP_N_CONTROLLERS] = {
    [CGROUP_MEMORY] = "memory", [CGROUP_PIDS] = "pids", [CGROUP_CPU] = "cpu"};

/* --------------------------------------------------------------- discovery */

static bool has_word(const char *list, const char *word, const char *separators)
{
    size_t len = strlen(word);

    for (const char *at = list; *at; at += strspn(at, separators)) {
        size_t n = strcspn(at, separators);

        if (n == len && strncmp(at, word, len) == 0)
            return true;
        at += n;
    }
    return false;
}

/* One line of mountinfo: "36 25 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory". */
static void read_mount(const char *line, struct cgroup_host *host)
{
    char point[CGROUP_PATH_MAX], type[32], options[512];
    const char *rest = strstr(line, " - ");

    if (!rest || sscanf(line, "%*s %*s %*s %*s %255s", point) != 1 ||
        sscanf(rest, " - %31s %*s %511s", type, options) != 2)
        return;
    /* A mount over an earlier one hides it: the last one counts. */
    if (strcmp(type, "cgroup2") == 0) {
        snprintf(host->unified, sizeof host->unified, "%s", point);
        return;
    }
    for (size_t i = 0; strcmp(type, "cgroup") == 0 && i < CGROUP_N_CONTROLLERS; i++)
        if (has_word(options, controllers[i], ","))
            snprintf(host->v1[i], sizeof host->v1[i], "%s", point);
}

enum berth_code cgroup_discover(const char *mountinfo, struct cgroup_host *ret,
                                struct berth_error *err)
{
    struct cgroup_host host = {0};
    char path[PATH_SIZE], unified[256] = "";
    char line[2048];

    for (const char *at = mountinfo; *at;) {
        size_t len = strcspn(at, "\n");

        snprintf(line, sizeof line, "%.*s", (int)len, at);
        read_mount(line, &host);
        at += len + (at[len] == '\n');
    }
    if (!host.unified[0])
        return berth_fail(
            err, BERTH_REASON_CAPABILITY_MISSING,
            "no cgroup2 hierarchy is mounted (mkdir /sys/fs/cgroup/unified and mount "
            "-t cgroup2 none there, or boot with systemd.unified_cgroup_hierarchy)");
    snprintf(path, sizeof path, "%s/cgroup.controllers", host.unified);
    if (io_read(AT_FDCWD, path, unified, sizeof unified) < 0)
        return io_fail(err, "read %s", path);
    for (size_t i = 0; i < CGROUP_N_CONTROLLERS; i++)
        if (!host.v1[i][0] && !has_word(unified, controllers[i], " \n"))
            return berth_fail(err, BERTH_REASON_CAPABILITY_MISSING,
                              "the %s controller is in no cgroup hierarchy of this host (in a "
                              "container: give it the host's /sys/fs/cgroup, writable)",
                              controllers[i]);
    *ret = host;
    return BERTH_OK;
}

enum berth_code cgroup_discover_self(struct cgroup_host *ret, struct berth_error *err)
{
    BERTH_AUTO(free) char *text = malloc(MOUNTINFO_MAX);

    if (!text)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (io_read(AT_FDCWD, "/proc/self/mountinfo", text, MOUNTINFO_MAX) < 0)
        return io_fail(err, "read /proc/self/mountinfo");
    return cgroup_discover(text, ret, err);
}

/* ------------------------------------------------------------------ making */

static void unified_path(const struct cgroup *group, const char *below, char path[PATH_SIZE])
{
    snprintf(path, PATH_SIZE, "%s/%s/%s%s", group->host->unified, group->store, group->id,
             below);
}

static void v1_path(const struct cgroup *group, int controller, char path[PATH_SIZE])
{
    snprintf(path, PATH_SIZE, "%s/%s/%s", group->host->v1[controller], group->store, group->id);
}

static enum berth_code make_dir(const char *path, struct berth_error *err)
{
    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        return io_fail(err, "make cgroup %s", path);
    return BERTH_OK;
}

static enum berth_code set(const char *dir, const char *file, const char *value,
                           struct berth_error *err)
{
    char path[PATH_SIZE + 64];

    snprintf(path, sizeof path, "%s/%s", dir, file);
    if (io_write(AT_FDCWD, path, value) < 0)
        return io_fail(err, "write %s to %s", value, path);
    return BERTH_OK;
}

/* As set(), but a kernel without the file will do. */
static enum berth_code set_if_there(const char *dir, const char *file, const char *value,
                                    struct berth_error *err)
{
    char path[PATH_SIZE + 64];

    snprintf(path, sizeof path, "%s/%s", dir, file);
    return access(path, F_OK) < 0 ? BERTH_OK : set(dir, file, value, err);
}

/* Hand the unified ones of our controllers down to the children of dir. */
static enum berth_code delegate(const struct cgroup_host *host, const char *dir,
                                struct berth_error *err)
{
    enum berth_code code = BERTH_OK;

    for (size_t i = 0; !code && i < CGROUP_N_CONTROLLERS; i++) {
        char word[16];

        if (host->v1[i][0])
            continue;
        snprintf(word, sizeof word, "+%s", controllers[i]);
        code = set(dir, "cgroup.subtree_control", word, err);
    }
    return code;
}

static const char *number(char buf[32], uint64_t value, const char *none)
{
    if (value)
        snprintf(buf, 32, "%llu", (unsigned long long)value);
    else
        snprintf(buf, 32, "%s", none);
    return buf;
}

static enum berth_code limit_memory(const struct cgroup *group, const char *box, uint64_t bytes,
                                    struct berth_error *err)
{
    char path[PATH_SIZE], text[32];
    enum berth_code code;

    if (!group->host->v1[CGROUP_MEMORY][0]) {
        code = set(box, "memory.max", number(text, bytes, "max"), err);
        return code ? code : set_if_there(box, "memory.swap.max", bytes ? "0" : "max", err);
    }
    if (!bytes)
        return BERTH_OK;
    v1_path(group, CGROUP_MEMORY, path);
    code = set(path, "memory.limit_in_bytes", number(text, bytes, "-1"), err);
    /* Memory and swap together no more than memory: no swap. */
    return code ? code : set_if_there(path, "memory.memsw.limit_in_bytes", text, err);
}

static enum berth_code limit_cpu(const struct cgroup *group, const char *box, uint32_t millis,
                                 struct berth_error *err)
{
    uint64_t quota = (uint64_t)millis * CPU_PERIOD_US / 1000;
    char path[PATH_SIZE], text[64], one[32];
    enum berth_code code;

    if (millis && quota < CPU_QUOTA_MIN_US)
        quota = CPU_QUOTA_MIN_US;
    if (!group->host->v1[CGROUP_CPU][0]) {
        snprintf(text, sizeof text, "%s %d", number(one, quota, "max"), CPU_PERIOD_US);
        return set(box, "cpu.max", text, err);
    }
    if (!quota)
        return BERTH_OK;
    v1_path(group, CGROUP_CPU, path);
    snprintf(text, sizeof text, "%d", CPU_PERIOD_US);
    code = set(path, "cpu.cfs_period_us", text, err);
    return code ? code : set(path, "cpu.cfs_quota_us", number(one, quota, "-1"), err);
}

static enum berth_code limit_pids(const struct cgroup *group, const char *box, uint32_t max,
                                  struct berth_error *err)
{
    char path[PATH_SIZE], text[32];

    if (group->host->v1[CGROUP_PIDS][0])
        v1_path(group, CGROUP_PIDS, path);
    else
        snprintf(path, sizeof path, "%s", box);
    return set(path, "pids.max", number(text, max, "max"), err);
}

static enum berth_code make_v1(const struct cgroup *group, struct berth_error *err)
{
    const struct cgroup_host *host = group->host;
    enum berth_code code = BERTH_OK;
    char path[PATH_SIZE];

    for (int i = 0; !code && i < CGROUP_N_CONTROLLERS; i++) {
        if (!host->v1[i][0])
            continue;
        snprintf(path, sizeof path, "%s/%s", host->v1[i], group->store);
        code = make_dir(path, err);
        v1_path(group, i, path);
        if (!code)
            code = make_dir(path, err);
    }
    return code;
}

static enum berth_code make_sup(const struct cgroup *group, struct berth_error *err)
{
    const struct cgroup_host *host = group->host;
    char store[PATH_SIZE], own[PATH_SIZE], below[PATH_SIZE];
    enum berth_code code;

    snprintf(store, sizeof store, "%s/%s", host->unified, group->store);
    unified_path(group, "", own);
    code = make_dir(store, err);
    if (!code)
        code = make_dir(own, err);
    if (!code)
        code = delegate(host, host->unified, err);
    if (!code)
        code = delegate(host, store, err);
    if (!code)
        code = delegate(host, own, err);
    unified_path(group, "/sup", below);
    return code ? code : make_dir(below, err);
}

static enum berth_code make_groups(const struct cgroup *group, struct berth_error *err)
{
    enum berth_code code = make_sup(group, err);
    char box[PATH_SIZE];

    unified_path(group, "/box", box);
    if (!code)
        code = make_dir(box, err);
    return code ? code : make_v1(group, err);
}

enum berth_code cgroup_make_sup(const struct cgroup *group, int *ret_sup_fd,
                                struct berth_error *err)
{
    enum berth_code code = BERTH_OK;
    char path[PATH_SIZE];
    int fd = -1;

    unified_path(group, "/sup", path);
    /* As in cgroup_make(). */
    for (int i = 0; fd < 0 && i < MAKE_TRIES; i++) {
        code = make_sup(group, err);
        fd = code ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    if (fd < 0)
        return code ? code : io_fail(err, "open cgroup %s", path);
    *ret_sup_fd = fd;
    return BERTH_OK;
}

enum berth_code cgroup_make(const struct cgroup *group, const struct adapter_resources *limits,
                            struct berth_error *err)
{
    enum berth_code code = BERTH_OK;
    char box[PATH_SIZE];

    /* cgroup_forget_store() may take a directory away between two steps: again, then. */
    for (int i = 0; i == 0 || (code && i < MAKE_TRIES); i++)
        code = make_groups(group, err);
    unified_path(group, "/box", box);
    if (!code)
        code = limit_memory(group, box, limits->memory_bytes, err);
    if (!code)
        code = limit_pids(group, box, limits->max_processes, err);
    if (!code)
        code = limit_cpu(group, box, limits->cpu_millis, err);
    return code;
}

enum berth_code cgroup_open(const struct cgroup *group, struct cgroup_fds *ret,
                            struct berth_error *err)
{
    struct cgroup_fds fds = {.sup_fd = -1, .box_fd = -1, .memory_fd = -1};
    char path[PATH_SIZE];

    unified_path(group, "/sup", path);
    fds.sup_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    unified_path(group, "/box", path);
    fds.box_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    fds.memory_is_v2 = !group->host->v1[CGROUP_MEMORY][0];
    if (!fds.memory_is_v2)
        v1_path(group, CGROUP_MEMORY, path);
    fds.memory_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fds.sup_fd < 0 || fds.box_fd < 0 || fds.memory_fd < 0)
        goto failed;
    for (int i = 0; i < CGROUP_N_CONTROLLERS; i++) {
        bool seen = !group->host->v1[i][0];

        for (int k = 0; k < i; k++)
            seen = seen || strcmp(group->host->v1[k], group->host->v1[i]) == 0;
        if (seen)
            continue;
        snprintf(path, sizeof path, "%s/%s/%s/tasks", group->host->v1[i], group->store,
                 group->id);
        fds.v1_tasks_fd[fds.n_v1] = open(path, O_WRONLY | O_CLOEXEC);
        if (fds.v1_tasks_fd[fds.n_v1] < 0)
            goto failed;
        fds.n_v1++;
    }
    *ret = fds;
    return BERTH_OK;

failed:;
    enum berth_code code = io_fail(err, "open cgroup %s", path);

    cgroup_fds_close(&fds);
    return code;
}

void cgroup_fds_close(struct cgroup_fds *fds)
{
    int *single[] = {&fds->sup_fd, &fds->box_fd, &fds->memory_fd};

    for (size_t i = 0; i < BERTH_COUNT(single); i++) {
        if (*single[i] >= 0)
            close(*single[i]);
        *single[i] = -1;
    }
    while (fds->n_v1 > 0)
        close(fds->v1_tasks_fd[--fds->n_v1]);
}

/* -------------------------------------------------------------- operations */

/* Wait until the line "<key> <value>" stands in cgroup.events of dir. */
static enum berth_code wait_event(const char *dir, const char *key, int value,
                                  int64_t deadline_ms, struct berth_error *err)
{
    BERTH_AUTO(close) int fd = -1;
    char path[PATH_SIZE + 32], wanted[32];
    long wait_us = WAIT_MIN_US;

    snprintf(path, sizeof path, "%s/cgroup.events", dir);
    snprintf(wanted, sizeof wanted, "%s %d", key, value);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? berth_fail(err, BERTH_REASON_SANDBOX_TERMINAL, NULL)
                               : io_fail(err, "open %s", path);
    for (;;) {
        struct pollfd polled = {.fd = fd, .events = POLLPRI};
        int64_t left = deadline_ms - berth_tick_ms();
        char text[256];
        ssize_t n = pread(fd, text, sizeof text - 1, 0);

        if (n < 0 && errno == ENODEV)
            return berth_fail(err, BERTH_REASON_SANDBOX_TERMINAL, NULL);
        if (n < 0 && errno != EINTR)
            return io_fail(err, "read %s", path);
        text[n < 0 ? 0 : n] = 0;
        if (strstr(text, wanted))
            return BERTH_OK;
        if (left <= 0)
            return berth_fail(err, BERTH_REASON_BACKEND_TIMEOUT,
                              "the sandbox's processes did not reach \"%s\"", wanted);
        /* The kernel holds such notices back for 10 ms after the last one, which is longer than
         * most changes take: look again by oneself, ever more seldom. */
        (void)ppoll(&polled, 1, &(struct timespec){.tv_nsec = wait_us * 1000}, NULL);
        wait_us = wait_us < WAIT_MAX_US ? 2 * wait_us : WAIT_MAX_US;
    }
}

enum berth_code cgroup_freeze(const struct cgroup *group, bool frozen, int64_t deadline_ms,
                              struct berth_error *err)
{
    char box[PATH_SIZE], path[PATH_SIZE + 32];
    enum berth_code code;

    unified_path(group, "/box", box);
    snprintf(path, sizeof path, "%s/cgroup.freeze", box);
    if (io_write(AT_FDCWD, path, frozen ? "1" : "0") < 0)
        return errno == ENOENT ? berth_fail(err, BERTH_REASON_SANDBOX_TERMINAL, NULL)
                               : io_fail(err, "write %s", path);
    code = wait_event(box, "frozen", frozen, deadline_ms, err);
    if (code && frozen)
        (void)io_write(AT_FDCWD, path, "0");
    return code;
}

bool cgroup_is_frozen(const struct cgroup *group)
{
    char path[PATH_SIZE], text[16];

    unified_path(group, "/box/cgroup.freeze", path);
    return io_read(AT_FDCWD, path, text, sizeof text) > 0 && text[0] == '1';
}

/* rmdir of a group and what is below it; absent is fine. A just emptied group can be busy for a
 * moment. */
static enum berth_code remove_group(const char *path, int depth, int64_t deadline_ms,
                                    struct berth_error *err)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    enum berth_code code = BERTH_OK;

    if (!dir)
        return errno == ENOENT ? BERTH_OK : io_fail(err, "list %s", path);
    while (!code && depth > 0 && (entry = readdir(dir))) {
        char below[PATH_SIZE + 256];

        if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
            continue;
        if (snprintf(below, sizeof below, "%s/%s", path, entry->d_name) < (int)sizeof below)
            code = remove_group(below, depth - 1, deadline_ms, err);
    }
    closedir(dir);
    while (!code && rmdir(path) < 0 && errno != ENOENT) {
        if (errno != EBUSY || berth_tick_ms() >= deadline_ms)
            return io_fail(err, "remove %s", path);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return code;
}

enum berth_code cgroup_destroy(const struct cgroup *group, int64_t deadline_ms,
                               struct berth_error *err)
{
    char own[PATH_SIZE], path[PATH_SIZE + 32];
    enum berth_code code = BERTH_OK;

    unified_path(group, "", own);
    /* First what is in the box: the supervisor reaps it and ends by itself. Dead together, they
     * would be zombies of pid 1, and the sandbox's init cannot end before the last is reaped.
     */
    snprintf(path, sizeof path, "%s/box/cgroup.kill", own);
    if (io_write(AT_FDCWD, path, "1") == 0) {
        int64_t soon_ms = berth_tick_ms() + REAP_MS;

        (void)!wait_event(own, "populated", 0, soon_ms < deadline_ms ? soon_ms : deadline_ms,
                          NULL);
    }
    snprintf(path, sizeof path, "%s/cgroup.kill", own);
    if (io_write(AT_FDCWD, path, "1") == 0) {
        code = wait_event(own, "populated", 0, deadline_ms, err);
        if (code && err && err->reason == BERTH_REASON_SANDBOX_TERMINAL)
            code = BERTH_OK;
    } else if (errno != ENOENT) {
        code = io_fail(err, "write %s", path);
    }
    if (!code)
        code = remove_group(own, 3, deadline_ms, err);
    for (int i = 0; !code && i < CGROUP_N_CONTROLLERS; i++) {
        if (!group->host->v1[i][0])
            continue;
        v1_path(group, i, path);
        code = remove_group(path, 1, deadline_ms, err);
    }
    return code;
}

void cgroup_forget_store(const struct cgroup_host *host, const char *store)
{
    char path[PATH_SIZE];

    snprintf(path, sizeof path, "%s/%s", host->unified, store);
    (void)rmdir(path);
    for (int i = 0; i < CGROUP_N_CONTROLLERS; i++) {
        if (!host->v1[i][0])
            continue;
        snprintf(path, sizeof path, "%s/%s", host->v1[i], store);
        (void)rmdir(path);
    }
}
