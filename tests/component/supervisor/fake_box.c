#include "tests/component/supervisor/fake_box.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "common/time/time.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#define UNIFIED "/sys/fs/cgroup/unified"
#define MEMORY "/sys/fs/cgroup/memory"

static void skip(const char *why)
{
    printf("SKIP: %s: %s\n", why, strerror(errno));
    fflush(stdout);
    _exit(77);
}

static bool write_file(const char *path, const char *text)
{
    BERTH_AUTO(close) int fd = open(path, O_WRONLY | O_CLOEXEC);

    return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
}

/* Process 1 of the box: mounts its own /proc, waits for children it was left. */
static void be_init(int go_fd, int ready_fd)
{
    char c;

    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0 ||
        unshare(CLONE_NEWUSER) < 0)
        _exit(1);
    if (write(ready_fd, "u", 1) != 1 || read(go_fd, &c, 1) != 1)
        _exit(1);
    if (syscall(SYS_setresgid, 0, 0, 0) < 0 || syscall(SYS_setresuid, 0, 0, 0) < 0)
        _exit(1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (write(ready_fd, "r", 1) != 1)
        _exit(1);
    close(ready_fd);
    close(go_fd);
    for (;;) {
        sigset_t set;
        siginfo_t info;

        sigemptyset(&set);
        sigaddset(&set, SIGCHLD);
        sigprocmask(SIG_BLOCK, &set, NULL);
        while (waitpid(-1, NULL, WNOHANG) > 0) {
        }
        sigwaitinfo(&set, &info);
    }
}

static pid_t start_init(const char *cgroup)
{
    struct clone_args args = {.flags = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC |
                                       CLONE_NEWUTS | CLONE_NEWNET | CLONE_INTO_CGROUP,
                              .exit_signal = SIGCHLD};
    BERTH_AUTO(close) int cgroup_fd = open(cgroup, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int go[2], ready[2];
    char path[64], text[64], c;
    pid_t pid;

    args.cgroup = (uint64_t)cgroup_fd;
    if (pipe2(go, O_CLOEXEC) < 0 || pipe2(ready, O_CLOEXEC) < 0)
        return -1;
    pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
    if (pid == 0)
        be_init(go[0], ready[1]);
    close(ready[1]);
    if (pid < 0 || read(ready[0], &c, 1) != 1)
        return -1;
    snprintf(text, sizeof text, "0 %d 65536\n", FAKE_BOX_UID_BASE);
    snprintf(path, sizeof path, "/proc/%d/uid_map", pid);
    if (!write_file(path, text))
        return -1;
    snprintf(path, sizeof path, "/proc/%d/gid_map", pid);
    if (!write_file(path, text) || write(go[1], "g", 1) != 1 || read(ready[0], &c, 1) != 1)
        return -1;
    close(go[0]);
    close(go[1]);
    close(ready[0]);
    return pid;
}

/* What confine.c does for real ones. */
__attribute__((weak)) int supervisor_drop_rights(void)
{
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

__attribute__((weak)) int supervisor_confine(void)
{
    return supervisor_drop_rights();
}

static void be_supervisor(struct fake_box *box, const struct engine_limits *limits,
                          int ready_fd, int listen_fd)
{
    static const char *const vars[] = {"BERTH_TEST=box", NULL};
    struct supervisor_env env = {.sandbox_id = "test",
                                 .uid_base = FAKE_BOX_UID_BASE,
                                 .root_fd = -1,
                                 .dir_fd = -1,
                                 .active_fd = -1,
                                 .memory_fd = -1,
                                 .listen_fd = listen_fd,
                                 .environ = vars,
                                 .max_open_files = 1024};
    struct berth_error err = {0};
    char path[256];
    int log_fd, null_fd;

    setsid();
    env.init_pid = start_init(box->cgroup);
    if (env.init_pid < 0)
        skip("namespaces");
    env.init_pidfd = (int)syscall(SYS_pidfd_open, env.init_pid, 0);
    env.box_fd = open(box->cgroup, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (box->memory[0]) {
        env.memory_fd = open(box->memory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        snprintf(path, sizeof path, "%s/cgroup.procs", box->memory);
        env.v1_procs_fd[env.n_v1++] = open(path, O_WRONLY | O_CLOEXEC);
    }
    snprintf(path, sizeof path, "%s/active", box->dir);
    env.active_fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    snprintf(path, sizeof path, "%s/log", box->dir);
    log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    null_fd = open("/dev/null", O_RDWR);
    dup2(null_fd, 0);
    dup2(log_fd, 1);
    dup2(log_fd, 2);
    close(log_fd);
    close(null_fd);
    if (berth_loop_new(&env.loop, &err) != BERTH_OK ||
        write(ready_fd, &env.init_pid, sizeof env.init_pid) != sizeof env.init_pid)
        _exit(1);
    close(ready_fd);
    if (engine_serve(&env, limits ? limits : &engine_default_limits, &err) != BERTH_OK) {
        fprintf(stderr, "%s\n", err.text);
        _exit(1);
    }
    berth_loop_free(env.loop);
#ifdef __SANITIZE_ADDRESS__
    __lsan_do_leak_check();
#endif
    _exit(0);
}

static void join_path(char *buf, size_t size, const char *root, const char *name)
{
    snprintf(buf, size, "%s/%s", root, name);
}

static int bind_socket(const char *dir)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    snprintf(address.sun_path, sizeof address.sun_path, "%s/sup.sock", dir);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(listen(fd, 4096), 0);
    return fd;
}

void fake_box_open(struct fake_box *box, const struct engine_limits *limits,
                   uint64_t memory_bytes)
{
    char name[48], path[256], text[32];
    int ready[2], listen_fd;

    *box = (struct fake_box){0};
    if (geteuid() != 0) {
        errno = EPERM;
        skip("needs root");
    }
    snprintf(name, sizeof name, "berth-test-%d", getpid());
    join_path(box->cgroup, sizeof box->cgroup, UNIFIED, name);
    if (mkdir(box->cgroup, 0755) < 0 && errno != EEXIST) {
        join_path(box->cgroup, sizeof box->cgroup, "/sys/fs/cgroup", name);
        if (mkdir(box->cgroup, 0755) < 0 && errno != EEXIST)
            skip("cgroups");
    }
    if (memory_bytes > 0) {
        join_path(box->memory, sizeof box->memory, MEMORY, name);
        if (mkdir(box->memory, 0755) < 0 && errno != EEXIST)
            skip("memory cgroup");
        snprintf(path, sizeof path, "%s/memory.limit_in_bytes", box->memory);
        snprintf(text, sizeof text, "%llu", (unsigned long long)memory_bytes);
        ck_assert(write_file(path, text));
    }
    snprintf(box->dir, sizeof box->dir, "/tmp/berth-box-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(box->dir));
    listen_fd = bind_socket(box->dir);
    ck_assert_int_eq(pipe2(ready, O_CLOEXEC), 0);
    fflush(NULL);
    box->supervisor = fork();
    if (box->supervisor == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ready[0]);
        be_supervisor(box, limits, ready[1], listen_fd);
    }
    close(ready[1]);
    close(listen_fd);
    if (read(ready[0], &box->init, sizeof box->init) != sizeof box->init) {
        int status;

        waitpid(box->supervisor, &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
            exit(77);
        ck_abort_msg("the supervisor did not start");
    }
    close(ready[0]);
}

/* Show what the supervisor said. */
static void print_log(const struct fake_box *box)
{
    char path[128], line[512];
    FILE *file;

    snprintf(path, sizeof path, "%s/log", box->dir);
    file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        fputs(line, stderr);
    if (file)
        fclose(file);
}

/* The children's cgroups first. */
static bool remove_cgroup(const char *dir)
{
    int64_t until = berth_tick_ms() + 5000;
    char name[32];

    while (rmdir(dir) < 0 && errno != ENOENT) {
        BERTH_AUTO(close) int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        for (int i = 1; i < 4000; i++) {
            snprintf(name, sizeof name, "x%d", i);
            unlinkat(fd, name, AT_REMOVEDIR);
        }
        if (berth_tick_ms() > until)
            return false;
        poll(NULL, 0, 5);
    }
    return true;
}

static void remove_box(const struct fake_box *box)
{
    char path[128];

    ck_assert(remove_cgroup(box->cgroup));
    if (box->memory[0])
        ck_assert(remove_cgroup(box->memory));
    snprintf(path, sizeof path, "%s/sup.sock", box->dir);
    unlink(path);
    snprintf(path, sizeof path, "%s/log", box->dir);
    unlink(path);
    rmdir(box->dir);
}

void fake_box_close(struct fake_box *box)
{
    int status = 0;

    kill(box->init, SIGKILL);
    ck_assert_int_eq(waitpid(box->supervisor, &status, 0), box->supervisor);
    if (status != 0)
        print_log(box);
    ck_assert_msg(status == 0, "supervisor: wait status %x", status);
    remove_box(box);
}

void fake_box_bury(struct fake_box *box)
{
    int status = 0;

    ck_assert_int_eq(waitpid(box->supervisor, &status, 0), box->supervisor);
    ck_assert_int_eq(WTERMSIG(status), SIGKILL);
    remove_box(box);
}

void fake_box_freeze(struct fake_box *box, bool freeze)
{
    const char *wanted = freeze ? "frozen 1" : "frozen 0";
    int64_t until = berth_tick_ms() + 5000;
    char path[256], buf[256];

    snprintf(path, sizeof path, "%s/cgroup.freeze", box->cgroup);
    ck_assert(write_file(path, freeze ? "1" : "0"));
    snprintf(path, sizeof path, "%s/cgroup.events", box->cgroup);
    for (;;) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t got = read(fd, buf, sizeof buf - 1);

        close(fd);
        buf[got > 0 ? got : 0] = 0;
        if (strstr(buf, wanted))
            return;
        ck_assert_int_lt(berth_tick_ms(), until);
        poll(NULL, 0, 1);
    }
}

/* Lines of cgroup.procs, and of those of the commands' cgroups. */
static int count_procs(const char *dir)
{
    char path[300], line[64];
    int n = 0;
    FILE *file;

    snprintf(path, sizeof path, "%s/cgroup.procs", dir);
    file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        n++;
    if (file)
        fclose(file);
    return n;
}

int fake_box_count(const struct fake_box *box)
{
    int n = count_procs(box->cgroup);
    char dir[256];

    for (int i = 1; i < 4000; i++) {
        snprintf(dir, sizeof dir, "%s/x%d", box->cgroup, i);
        if (access(dir, F_OK) == 0)
            n += count_procs(dir);
    }
    return n;
}

int fake_box_fds(const struct fake_box *box)
{
    char path[64];
    int n = 0;

    for (int fd = 0; fd < 20000; fd++) {
        snprintf(path, sizeof path, "/proc/%d/fd/%d", box->supervisor, fd);
        n += faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    }
    return n;
}

long fake_box_rss_kib(const struct fake_box *box)
{
    char path[64], line[256];
    long kib = 0;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/status", box->supervisor);
    file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, "VmRSS:", 6) == 0)
            kib = strtol(line + 6, NULL, 10);
    }
    if (file)
        fclose(file);
    return kib;
}
