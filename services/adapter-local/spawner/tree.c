#include "services/adapter-local/spawner/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/base.h"

enum {
    PROCS_MAX = 4096,    /* processes that one signal reaches */
    KILL_ROUNDS_MAX = 64 /* without cgroup.kill: rounds of killing a frozen tree */
};

static bool write_at(int dir_fd, const char *name, const char *value)
{
    BERTH_AUTO(close) int fd = openat(dir_fd, name, O_WRONLY | O_CLOEXEC);
    ssize_t size = (ssize_t)strlen(value);

    return fd >= 0 && write(fd, value, (size_t)size) == size;
}

/* The file's first size - 1 bytes as a string; "" when it cannot be read. */
static const char *read_fd(int fd, char *buf, size_t size)
{
    ssize_t got = fd >= 0 ? pread(fd, buf, size - 1, 0) : -1;

    buf[got > 0 ? got : 0] = 0;
    return buf;
}

static int open_at(int dir_fd, const char *name)
{
    return dir_fd < 0 ? -1 : openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
}

/* The same of a file that is open already, or else is opened for this. */
static const char *read_at(int fd, int dir_fd, const char *name, char *buf, size_t size)
{
    BERTH_AUTO(close) int opened = fd < 0 ? openat(dir_fd, name, O_RDONLY | O_CLOEXEC) : -1;

    return read_fd(fd < 0 ? opened : fd, buf, size);
}

/* Number behind "key " at the beginning of a line; -1: not there. */
static int64_t value_of(const char *text, const char *key)
{
    size_t len = strlen(key);

    for (const char *line = text; line; line = strchr(line, '\n')) {
        if (*line == '\n')
            line++;
        if (strncmp(line, key, len) == 0 && line[len] == ' ')
            return strtoll(line + len + 1, NULL, 10);
    }
    return -1;
}

int tree_make(int box_fd, uint64_t number, struct tree *ret)
{
    struct tree tree = {.box_fd = box_fd, .events_fd = -1, .cpu_fd = -1};

    snprintf(tree.name, sizeof tree.name, "x%llu", (unsigned long long)number);
    if (mkdirat(box_fd, tree.name, 0755) < 0)
        return errno;
    tree.fd = openat(box_fd, tree.name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (tree.fd < 0) {
        int why = errno;

        unlinkat(box_fd, tree.name, AT_REMOVEDIR);
        return why;
    }
    *ret = tree;
    return 0;
}

/* Process ids in the cgroup, at most max of them. */
static int read_procs(const struct tree *tree, pid_t *pids, int max)
{
    int fd = openat(tree->fd, "cgroup.procs", O_RDONLY | O_CLOEXEC);
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    char line[32];
    int n = 0;

    if (!file) {
        if (fd >= 0)
            close(fd);
        return 0;
    }
    while (n < max && fgets(line, sizeof line, file)) {
        pid_t pid = (pid_t)strtol(line, NULL, 10);

        if (pid > 1)
            pids[n++] = pid;
    }
    fclose(file);
    return n;
}

static bool holds(const pid_t *pids, int n, pid_t pid)
{
    for (int i = 0; i < n; i++) {
        if (pids[i] == pid)
            return true;
    }
    return false;
}

int tree_signal(const struct tree *tree, int signal)
{
    BERTH_AUTO(free) pid_t *before = calloc(PROCS_MAX, sizeof *before);
    BERTH_AUTO(free) pid_t *after = calloc(PROCS_MAX, sizeof *after);
    BERTH_AUTO(free) int *fds = calloc(PROCS_MAX, sizeof *fds);
    int n, n_after, reached = 0;

    if (tree->fd < 0 || !before || !after || !fds)
        return 0;
    /* A number read from cgroup.procs may belong to a stranger a moment later. One that stands
     * there again after its pidfd was opened does not. */
    n = read_procs(tree, before, PROCS_MAX);
    for (int i = 0; i < n; i++)
        fds[i] = (int)syscall(SYS_pidfd_open, before[i], 0);
    n_after = read_procs(tree, after, PROCS_MAX);
    for (int i = 0; i < n; i++) {
        if (fds[i] < 0)
            continue;
        if (holds(after, n_after, before[i]) &&
            syscall(SYS_pidfd_send_signal, fds[i], signal, NULL, 0) == 0)
            reached++;
        close(fds[i]);
    }
    return reached;
}

bool tree_populated(const struct tree *tree)
{
    char buf[128];

    return tree->fd >= 0 &&
           value_of(read_at(tree->events_fd, tree->fd, "cgroup.events", buf, sizeof buf),
                    "populated") == 1;
}

void tree_kill(struct tree *tree)
{
    tree->killed = true;
    if (tree->fd < 0 || write_at(tree->fd, "cgroup.kill", "1"))
        return;
    /* Linux before 5.14: what is frozen cannot fork, and dies of SIGKILL all the same. */
    for (int i = 0; i < KILL_ROUNDS_MAX && tree_populated(tree); i++) {
        write_at(tree->fd, "cgroup.freeze", "1");
        if (tree_signal(tree, SIGKILL) == 0)
            break;
    }
    write_at(tree->fd, "cgroup.freeze", "0");
}

int64_t tree_cpu_us(const struct tree *tree)
{
    char buf[512];
    int64_t us = -1;

    if (tree->fd >= 0)
        us = value_of(read_at(tree->cpu_fd, tree->fd, "cpu.stat", buf, sizeof buf),
                      "usage_usec");
    return us < 0 ? -1 : us - tree->cpu_before_us;
}

bool tree_recycle(struct tree *tree)
{
    int64_t used_us = tree_cpu_us(tree);

    if (tree->killed || used_us < 0)
        return false;
    if (tree->events_fd < 0)
        tree->events_fd = open_at(tree->fd, "cgroup.events");
    if (tree->cpu_fd < 0)
        tree->cpu_fd = open_at(tree->fd, "cpu.stat");
    tree->cpu_before_us += used_us;
    return true;
}

void tree_close(struct tree *tree)
{
    if (tree->fd < 0)
        return;
    closep(&tree->fd);
    closep(&tree->events_fd);
    closep(&tree->cpu_fd);
    tree->fd = tree->events_fd = tree->cpu_fd = -1;
}

bool tree_remove(int box_fd, const char *name)
{
    return unlinkat(box_fd, name, AT_REMOVEDIR) == 0 || errno == ENOENT;
}

void box_files_open(int box_fd, int memory_fd, bool memory_is_v2, struct box_files *ret)
{
    ret->freeze_fd = open_at(box_fd, "cgroup.freeze");
    ret->events_fd = open_at(box_fd, "cgroup.events");
    ret->oom_fd = open_at(memory_fd, memory_is_v2 ? "memory.events" : "memory.oom_control");
}

void box_files_close(struct box_files *files)
{
    closep(&files->freeze_fd);
    closep(&files->events_fd);
    closep(&files->oom_fd);
    *files = (struct box_files){-1, -1, -1};
}

bool box_frozen(const struct box_files *files)
{
    char buf[128];

    return read_fd(files->freeze_fd, buf, sizeof buf)[0] == '1' ||
           value_of(read_fd(files->events_fd, buf, sizeof buf), "frozen") == 1;
}

bool box_init_dying(pid_t init_pid)
{
    enum { FLAGS_FIELD = 9, PF_EXITING = 4 };
    char path[48], buf[512];
    const char *at;

    snprintf(path, sizeof path, "/proc/%d/stat", init_pid);
    at = strrchr(read_at(-1, AT_FDCWD, path, buf, sizeof buf),
                 ')'); /* end of the name, field 2 */
    for (int field = 2; at && field < FLAGS_FIELD; field++)
        at = strchr(at + 1, ' ');
    return !at || (strtoul(at, NULL, 10) & PF_EXITING) != 0;
}

int64_t box_oom_kills(const struct box_files *files)
{
    char buf[512];
    int64_t n = value_of(read_fd(files->oom_fd, buf, sizeof buf), "oom_kill");

    return n > 0 ? n : 0;
}
