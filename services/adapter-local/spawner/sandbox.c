#include "services/adapter-local/spawner/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "services/adapter-local/spawner/io.h"
#include "services/adapter-local/spawner/supervisor.h"

enum { TTY_GID = 5, ID_COUNT = 65536 };

/* What init says to its parent: errno 0 = ready. */
struct report {
    int number;
    char step[120];
};

/* State of init while it builds; lives in the child only. */
struct build {
    const struct sandbox_plan *plan;
    int user_fd;
    int report_fd;
    int root_fd; /* of the merged tree */
    int dev_fd;
    int proc_fd; /* a second, detached mount of the sandbox's proc, without masks */
};

static _Noreturn void give_up(const struct build *b, const char *fmt, ...) BERTH_PRINTF(2, 3);

/* Tell the parent which step failed; there is nobody else to tell. */
static _Noreturn void give_up(const struct build *b, const char *fmt, ...)
{
    struct report report = {.number = errno ? errno : EINVAL};
    va_list args;

    va_start(args, fmt);
    vsnprintf(report.step, sizeof report.step, fmt, args);
    va_end(args);
    (void)!write(b->report_fd, &report, sizeof report);
    _exit(1);
}

/* A path that no symlink of a hostile image can bend. */
static int open_below(int dir_fd, const char *path, uint64_t flags)
{
    struct open_how how = {.flags = flags | O_CLOEXEC,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};

    return (int)syscall(SYS_openat2, dir_fd, path, &how, sizeof how);
}

/* ------------------------------------------------------------ file systems */

struct option {
    const char *key;
    char value[32];
};

/* A new, detached mount. */
static int new_mount(const struct build *b, const char *type, const struct option *options,
                     size_t n_options, unsigned attributes)
{
    BERTH_AUTO(close) int context = fsopen(type, FSOPEN_CLOEXEC);
    int fd;

    if (context < 0)
        give_up(b, "open file system %s", type);
    for (size_t i = 0; i < n_options; i++)
        if (fsconfig(context, FSCONFIG_SET_STRING, options[i].key, options[i].value, 0) < 0)
            give_up(b, "set %s of %s", options[i].key, type);
    if (fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        give_up(b, "create file system %s", type);
    fd = fsmount(context, FSMOUNT_CLOEXEC, attributes);
    if (fd < 0)
        give_up(b, "mount %s", type);
    return fd;
}

static int new_tmpfs(const struct build *b, uint64_t bytes, const char *mode,
                     unsigned attributes)
{
    struct option options[] = {{"mode", ""}, {"size", ""}, {"uid", ""}, {"gid", ""}};

    snprintf(options[0].value, sizeof options[0].value, "%s", mode);
    snprintf(options[1].value, sizeof options[1].value, "%llu", (unsigned long long)bytes);
    snprintf(options[2].value, sizeof options[2].value, "%u", b->plan->uid_base);
    snprintf(options[3].value, sizeof options[3].value, "%u", b->plan->uid_base);
    return new_mount(b, "tmpfs", options, BERTH_COUNT(options), attributes);
}

/* Put a detached mount on target (an existing path below dir_fd). */
static void attach(const struct build *b, int mount_fd, int dir_fd, const char *target)
{
    BERTH_AUTO(close) int fd = open_below(dir_fd, target, O_PATH);

    if (fd < 0 ||
        move_mount(mount_fd, "", fd, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
        give_up(b, "mount on /%s", target);
}

/* A copy of the mount at path, as a detached mount. */
static int clone_tree(const struct build *b, int dir_fd, const char *path)
{
    int fd = open_tree(dir_fd, path,
                       OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW |
                           (*path ? 0 : AT_EMPTY_PATH));

    if (fd < 0)
        give_up(b, "clone the mount of %s", path);
    return fd;
}

static void set_attributes(const struct build *b, int fd, uint64_t attributes, int user_fd,
                           const char *what)
{
    struct mount_attr attr = {.attr_set = attributes};

    if (user_fd >= 0) {
        attr.attr_set |= MOUNT_ATTR_IDMAP;
        attr.userns_fd = (uint64_t)user_fd;
    }
    if (mount_setattr(fd, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0)
        give_up(b, "%s %s", user_fd >= 0 ? "map the ids of" : "restrict", what);
}

/* ------------------------------------------------------------- merged tree */

/* Files are made as the sandbox's root from here on, with root's power kept: the overlay takes
 * the owner of its work directory from the mounting task, and one the ids of the mounts do not
 * know makes it silently read-only. */
static void become_owner(const struct build *b)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];

    setfsgid(b->plan->uid_base);
    setfsuid(b->plan->uid_base);
    if (syscall(SYS_capget, &header, data) < 0)
        give_up(b, "read capabilities");
    data[0].effective = data[0].permitted;
    data[1].effective = data[1].permitted;
    if (syscall(SYS_capset, &header, data) < 0)
        give_up(b, "raise capabilities");
}

static void mount_layers(const struct build *b, int store_fd, char *lower, size_t size)
{
    size_t used = 0;

    for (size_t i = 0; i < b->plan->n_layers; i++) {
        BERTH_AUTO(close) int fd = clone_tree(b, store_fd, b->plan->layers[i]);
        char name[16];

        snprintf(name, sizeof name, "l%u", (unsigned)i % 1000);
        set_attributes(b, fd, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
                       b->user_fd, b->plan->layers[i]);
        if (mkdir(name, 0700) < 0)
            give_up(b, "mkdir %s", name);
        if (move_mount(fd, "", AT_FDCWD, name, MOVE_MOUNT_F_EMPTY_PATH) < 0)
            give_up(b, "mount layer %s", b->plan->layers[i]);
        used += (size_t)snprintf(lower + used, size - used, "%s%s", i ? ":" : "", name);
    }
}

/* Everything is put together on a small tmpfs under short names: mount(2) takes one page of
 * options. The sandbox never sees it. */
static void build_root(struct build *b)
{
    BERTH_AUTO(close) int stage_fd = -1;
    BERTH_AUTO(close) int rw_fd = -1;
    BERTH_AUTO(close) int store_fd = -1;
    BERTH_AUTO(close) int dir_fd = -1;
    char lower[256], options[512];
    struct statvfs st;

    if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
        give_up(b, "make mounts private");
    store_fd = open(b->plan->store, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    dir_fd = open(b->plan->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (store_fd < 0 || dir_fd < 0)
        give_up(b, "open the sandbox's directory");
    stage_fd = new_mount(b, "tmpfs", NULL, 0, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    if (move_mount(stage_fd, "", dir_fd, "mnt", MOVE_MOUNT_F_EMPTY_PATH) < 0)
        give_up(b, "mount the stage");
    if (fchdir(stage_fd) < 0)
        give_up(b, "enter the stage");

    mount_layers(b, store_fd, lower, sizeof lower);
    rw_fd = clone_tree(b, dir_fd, "");
    set_attributes(b, rw_fd, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, b->user_fd,
                   "the writable layer");
    if (mkdir("rw", 0700) < 0 || mkdir("root", 0700) < 0)
        give_up(b, "mkdir in the stage");
    if (move_mount(rw_fd, "", AT_FDCWD, "rw", MOVE_MOUNT_F_EMPTY_PATH) < 0)
        give_up(b, "mount the writable layer");

    become_owner(b);
    /* volatile: nothing is synced for a tree that does not outlive its processes anyway.
     * redirect_dir: rename(2) of a directory that came with the image works. */
    snprintf(options, sizeof options,
             "lowerdir=%s,upperdir=rw/upper,workdir=rw/work,redirect_dir=on,index=off,"
             "metacopy=off,volatile",
             lower);
    if (mount("overlay", "root", "overlay", MS_NOSUID | MS_NODEV, options) < 0)
        give_up(b, "mount the overlay");
    b->root_fd = open("root", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (b->root_fd < 0 || fstatvfs(b->root_fd, &st) < 0)
        give_up(b, "open the root");
    if (st.f_flag & ST_RDONLY) {
        errno = EROFS;
        give_up(b, "the overlay came up read-only");
    }
}

/* ---------------------------------------------------------- /dev, /proc, ... */

static void make_mount_points(const struct build *b)
{
    static const struct {
        const char *name;
        mode_t mode;
    } points[] = {{"proc", 0555}, {"sys", 0555}, {"dev", 0755}, {"tmp", 01777}, {"etc", 0755}};

    for (size_t i = 0; i < BERTH_COUNT(points); i++) {
        if (mkdirat(b->root_fd, points[i].name, points[i].mode) < 0 && errno != EEXIST)
            give_up(b, "make /%s", points[i].name);
    }
}

static void bind_device(const struct build *b, const char *name)
{
    BERTH_AUTO(close) int node_fd = -1;
    BERTH_AUTO(close) int fd = -1;
    char path[32];

    snprintf(path, sizeof path, "/dev/%s", name);
    fd = openat(b->dev_fd, name, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
    if (fd < 0)
        give_up(b, "make %s", path);
    node_fd = clone_tree(b, AT_FDCWD, path);
    set_attributes(b, node_fd, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, -1, path);
    attach(b, node_fd, b->dev_fd, name);
}

static void build_dev(struct build *b)
{
    static const char *const devices[] = {"null", "zero", "full", "random", "urandom", "tty"};
    static const char *const links[][2] = {{"pts/ptmx", "ptmx"},
                                           {"/proc/self/fd", "fd"},
                                           {"/proc/self/fd/0", "stdin"},
                                           {"/proc/self/fd/1", "stdout"},
                                           {"/proc/self/fd/2", "stderr"}};
    BERTH_AUTO(close) int pts_fd = -1;
    BERTH_AUTO(close) int shm_fd = -1;
    struct option options[] = {{"ptmxmode", "0666"}, {"mode", "0620"}, {"gid", ""}};

    /* No MOUNT_ATTR_NODEV here: its device nodes are the point. Nobody inside can make others.
     */
    b->dev_fd = new_tmpfs(b, 65536, "755", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
    attach(b, b->dev_fd, b->root_fd, "dev");
    if (mkdirat(b->dev_fd, "pts", 0755) < 0 || mkdirat(b->dev_fd, "shm", 01777) < 0)
        give_up(b, "fill /dev");
    for (size_t i = 0; i < BERTH_COUNT(devices); i++)
        bind_device(b, devices[i]);
    for (size_t i = 0; i < BERTH_COUNT(links); i++)
        if (symlinkat(links[i][0], b->dev_fd, links[i][1]) < 0)
            give_up(b, "make /dev/%s", links[i][1]);

    snprintf(options[2].value, sizeof options[2].value, "%u", b->plan->uid_base + TTY_GID);
    pts_fd = new_mount(b, "devpts", options, BERTH_COUNT(options),
                       MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
    attach(b, pts_fd, b->dev_fd, "pts");
    shm_fd = new_tmpfs(b, b->plan->shm_bytes, "1777",
                       MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    attach(b, shm_fd, b->dev_fd, "shm");
}

/* Files and directories that tell of the host. Root of the sandbox owns none of them and could
 * not write there; this is a second lock. What this kernel does not have is passed over. */
static void mask(const struct build *b)
{
    static const char *const files[] = {
        "proc/kcore",      "proc/keys",          "proc/key-users",
        "proc/timer_list", "proc/sched_debug",   "proc/kmsg",
        "proc/kallsyms",   "proc/latency_stats", "proc/sysrq-trigger"};
    static const char *const dirs[] = {
        "proc/acpi",          "proc/scsi",        "proc/asound",
        "sys/firmware",       "sys/fs",           "sys/power",
        "sys/module",         "sys/kernel/debug", "sys/kernel/tracing",
        "sys/kernel/security"};
    static const char *const frozen[] = {"proc/sys", "proc/irq", "proc/bus", "proc/fs"};
    const unsigned attributes =
        MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
    /* Left open until init closes everything: to take a detached mount away waits for a grace
     * period, and nobody has to wait for that. */
    int empty_fd = new_tmpfs(b, 4096, "555", attributes);

    for (size_t i = 0; i < BERTH_COUNT(files) + BERTH_COUNT(dirs) + BERTH_COUNT(frozen); i++) {
        size_t k = i;
        const char *path = k < BERTH_COUNT(files) ? files[k] : NULL;
        BERTH_AUTO(close) int target_fd = -1;
        BERTH_AUTO(close) int cover_fd = -1;

        k -= path ? 0 : BERTH_COUNT(files);
        if (!path && k < BERTH_COUNT(dirs))
            path = dirs[k];
        else if (!path)
            path = frozen[k - BERTH_COUNT(dirs)];
        target_fd = open_below(b->root_fd, path, O_PATH);
        if (target_fd < 0)
            continue;
        if (i < BERTH_COUNT(files))
            cover_fd = clone_tree(b, AT_FDCWD, "/dev/null");
        else if (k < BERTH_COUNT(dirs))
            cover_fd = clone_tree(b, empty_fd, "");
        else
            cover_fd = clone_tree(b, target_fd, "");
        if (i >= BERTH_COUNT(files) && k >= BERTH_COUNT(dirs))
            set_attributes(b, cover_fd, attributes, -1, path);
        if (move_mount(cover_fd, "", target_fd, "",
                       MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
            give_up(b, "cover /%s", path);
    }
}

static void build_kernel_views(struct build *b)
{
    const unsigned attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
    BERTH_AUTO(close) int proc_fd = new_mount(b, "proc", NULL, 0, attributes);
    BERTH_AUTO(close)
    int sys_fd = new_mount(b, "sysfs", NULL, 0, attributes | MOUNT_ATTR_RDONLY);
    BERTH_AUTO(close)
    int tmp_fd = new_tmpfs(b, b->plan->tmp_bytes, "1777", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);

    b->proc_fd = clone_tree(b, proc_fd, "");
    attach(b, proc_fd, b->root_fd, "proc");
    attach(b, sys_fd, b->root_fd, "sys");
    attach(b, tmp_fd, b->root_fd, "tmp");
    mask(b);
}

/* A file of the sandbox like any other, replaced at each start: a snapshot brings along the one
 * of the sandbox it was taken of. */
static void write_file(const struct build *b, int dir_fd, const char *name, const char *text)
{
    size_t len = strlen(text);
    BERTH_AUTO(close) int fd = -1;

    unlinkat(dir_fd, ".new.berth", 0);
    fd = openat(dir_fd, ".new.berth", O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC,
                0644);
    if (fd < 0 || write(fd, text, len) != (ssize_t)len || fchmod(fd, 0644) < 0 ||
        renameat(dir_fd, ".new.berth", dir_fd, name) < 0)
        give_up(b, "write /etc/%s", name);
}

/* Login shells set PATH anew; what exec.c puts in front of it comes back after that. */
static const char profile[] =
    "if [ \"${EUID:-$(id -u)}\" -ne 0 ]; then\n"
    "    PATH=${BERTH_PATH:+$BERTH_PATH:}$PATH\n"
    "    "
    "PATH=${BERTH_SKILL_DIR:+$BERTH_SKILL_DIR/.venv/bin:$BERTH_SKILL_DIR/node_modules/.bin:}"
    "$PATH\n"
    "fi\n";

static void write_etc(const struct build *b)
{
    BERTH_AUTO(close) int etc_fd = open_below(b->root_fd, "etc", O_RDONLY | O_DIRECTORY);
    BERTH_AUTO(close) int profile_fd = -1;
    char text[128];

    if (etc_fd < 0)
        give_up(b, "open /etc");
    snprintf(text, sizeof text, "%s%s\n",
             b->plan->nameserver[0] ? "nameserver " : "# no network", b->plan->nameserver);
    write_file(b, etc_fd, "resolv.conf", text);
    profile_fd = open_below(b->root_fd, "etc/profile.d", O_RDONLY | O_DIRECTORY);
    if (profile_fd >= 0) /* an image without it has its own ways */
        write_file(b, profile_fd, "berth.sh", profile);
}

/* ------------------------------------------------------------------- init */

static void enter_root(const struct build *b)
{
    if (fchdir(b->root_fd) < 0 || syscall(SYS_pivot_root, ".", ".") < 0)
        give_up(b, "pivot_root");
    if (umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
        give_up(b, "leave the old root");
    if (sethostname("berth", 5) < 0)
        give_up(b, "set the host name");
}

/* Last: all other namespaces stay the host's, so that root of the sandbox owns none of them. */
static void enter_user_ns(const struct build *b)
{
    if (setns(b->user_fd, CLONE_NEWUSER) < 0)
        give_up(b, "enter the user namespace");
    /* Raw: glibc's would look for the threads our parent had. */
    if (syscall(SYS_setgroups, 0, NULL) < 0 || syscall(SYS_setresgid, 0, 0, 0) < 0 ||
        syscall(SYS_setresuid, 0, 0, 0) < 0)
        give_up(b, "become root of the user namespace");
    /* The kernel takes this limit for the namespace of whoever opens the file. */
    if (io_write(b->proc_fd, "sys/user/max_user_namespaces", "0") < 0)
        give_up(b, "forbid nested user namespaces");
}

static _Noreturn void reap_for_ever(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (;;) {
        siginfo_t info;

        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        sigwaitinfo(&set, &info);
    }
}

static _Noreturn void run_init(struct build *b)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}};
    struct report ready = {0};

    umask(0);
    setsid();
    build_root(b);
    make_mount_points(b);
    write_etc(b);
    build_dev(b);
    build_kernel_views(b);
    enter_root(b);
    enter_user_ns(b);

    umask(022);
    if (supervisor_confine() < 0 || syscall(SYS_capset, &header, none) < 0)
        give_up(b, "drop capabilities");
    /* After the last change of credentials, which clears it. */
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        give_up(b, "tie init to its supervisor");
    prctl(PR_SET_NAME, "berth-init", 0, 0, 0);
    if (b->plan->title_size > sizeof "init") {
        memset(b->plan->title, 0, b->plan->title_size);
        memcpy(b->plan->title, "init", sizeof "init");
    }
    /* Fails when the supervisor has died before the line above could tell. */
    if (write(b->report_fd, &ready, sizeof ready) != sizeof ready)
        _exit(1);
    close_range(0, ~0U, 0);
    reap_for_ever();
}

static enum berth_code read_report(int report_fd, struct berth_error *err)
{
    struct report report;
    ssize_t n;

    do
        n = read(report_fd, &report, sizeof report);
    while (n < 0 && errno == EINTR);
    if (n != sizeof report)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "init died while it was set up");
    if (report.number == 0)
        return BERTH_OK;
    report.step[sizeof report.step - 1] = 0;
    errno = report.number;
    return io_fail(err, "%s", report.step);
}

static void reap(pid_t pid)
{
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

enum berth_code sandbox_user_ns(unsigned base, int *ret, struct berth_error *err)
{
    char map[64], path[64];
    enum berth_code code = BERTH_OK;
    int dir_fd, fd = -1;
    long pid = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, NULL);

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        for (;;)
            pause();
    }
    if (pid < 0)
        return io_fail(err, "clone into a user namespace");
    snprintf(path, sizeof path, "/proc/%ld", pid);
    snprintf(map, sizeof map, "0 %u %d\n", base, ID_COUNT);
    dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0 || io_write(dir_fd, "uid_map", map) < 0 ||
        io_write(dir_fd, "gid_map", map) < 0)
        code = io_fail(err, "map ids of the user namespace");
    if (!code) {
        fd = openat(dir_fd, "ns/user", O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            code = io_fail(err, "open the user namespace");
    }
    if (dir_fd >= 0)
        close(dir_fd);
    kill((pid_t)pid, SIGKILL);
    reap((pid_t)pid);
    if (!code)
        *ret = fd;
    return code;
}

struct start {
    struct build *build;
    int read_fd, pidfd;
};

static long clone_init(void *arg)
{
    struct start *start = arg;
    struct clone_args args = {
        .flags = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_PIDFD |
                 CLONE_INTO_CGROUP,
        .pidfd = (uint64_t)(uintptr_t)&start->pidfd,
        .cgroup = (uint64_t)start->build->plan->box_fd,
        .exit_signal = SIGCHLD,
    };
    long pid;

    if (!start->build->plan->launcher)
        args.flags |= CLONE_NEWNET;
    pid = syscall(SYS_clone3, &args, sizeof args);
    if (pid == 0) {
        close(start->read_fd);
        run_init(start->build);
    }
    return pid;
}

enum berth_code sandbox_start(const struct sandbox_plan *plan, struct sandbox_birth *ret,
                              struct berth_error *err)
{
    struct build build = {
        .plan = plan, .user_fd = plan->user_fd, .root_fd = -1, .dev_fd = -1, .proc_fd = -1};
    struct start start = {.build = &build, .pidfd = -1};
    enum berth_code code = BERTH_OK;
    int fds[2];
    long pid;

    if (pipe2(fds, O_CLOEXEC) < 0)
        return io_fail(err, "pipe");
    start.read_fd = fds[0];
    build.report_fd = fds[1];
    pid =
        plan->launcher ? launcher_run(plan->launcher, clone_init, &start) : clone_init(&start);
    if (pid < 0)
        code = io_fail(err, "clone init");
    close(fds[1]);
    if (code) {
        close(fds[0]);
        return code;
    }
    *ret = (struct sandbox_birth){.pid = (pid_t)pid, .pidfd = start.pidfd, .report_fd = fds[0]};
    return BERTH_OK;
}

enum berth_code sandbox_await(struct sandbox_birth *birth, struct berth_error *err)
{
    enum berth_code code = read_report(birth->report_fd, err);

    close(birth->report_fd);
    birth->report_fd = -1;
    if (code) {
        kill(birth->pid, SIGKILL);
        reap(birth->pid);
        birth->pid = 0;
    }
    return code;
}
