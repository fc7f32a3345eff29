/* launch.c - the child side runs between clone3() and execve(): raw system calls where glibc's
 * wrappers look at the state of threads that do not exist there, no memory allocation. */
#include "services/adapter-local/spawner/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    STATUS_FD = 3, /* in the child, after the others were closed */
    INIT_FD = 4,
    FIRST_OTHER_FD = 5,
    USER_ID = 1000,
    OOM_SCORE = 500, /* a command goes before the services of the host do */
    PATH_SIZE = 4096 + 256,
};

/* All but that of processes, into which a command is born. */
enum {
    OTHER_NAMESPACES = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS
};

static void report(int fd, int kind, int value, int error)
{
    struct launch_record record = {kind, value, error};
    ssize_t done = write(fd, &record, sizeof record);

    (void)done; /* nobody to tell */
}

static _Noreturn void fail(int fd, enum launch_step step)
{
    report(fd, LAUNCH_FAILED, step, errno);
    _exit(127);
}

static pid_t clone_raw(uint64_t flags, int exit_signal, int cgroup_fd)
{
    struct clone_args args = {.flags = flags, .exit_signal = (uint64_t)exit_signal};

    if (flags & CLONE_INTO_CGROUP)
        args.cgroup = (uint64_t)cgroup_fd;
    return (pid_t)syscall(SYS_clone3, &args, sizeof args);
}

/* Descriptors 0 to 4, and no others. */
static bool keep_fds(const struct launch *launch, int *status_fd)
{
    int status = fcntl(*status_fd, F_DUPFD_CLOEXEC, FIRST_OTHER_FD);
    int init = fcntl(launch->env->init_pidfd, F_DUPFD_CLOEXEC, FIRST_OTHER_FD);

    if (status < 0 || init < 0 || dup2(launch->stdin_fd, 0) < 0 ||
        dup2(launch->stdout_fd, 1) < 0 || dup2(launch->stderr_fd, 2) < 0 ||
        dup3(status, STATUS_FD, O_CLOEXEC) < 0)
        return false;
    *status_fd = STATUS_FD;
    return dup3(init, INIT_FD, O_CLOEXEC) >= 0 &&
           syscall(SYS_close_range, FIRST_OTHER_FD, ~0U, 0) == 0;
}

static bool set_limits(const struct launch *launch)
{
    struct rlimit none = {0, 0}, files;
    rlim_t wanted = launch->env->max_open_files;
    int fd;

    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return false;
    if (wanted > 0 && wanted < files.rlim_max)
        files.rlim_max = wanted;
    files.rlim_cur = files.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &files) < 0 || setrlimit(RLIMIT_CORE, &none) < 0)
        return false;
    umask(022);
    fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        char text[16];
        int size = snprintf(text, sizeof text, "%d", OOM_SCORE);
        ssize_t done = write(fd, text, (size_t)size);

        (void)done; /* a host without it goes without it */
        close(fd);
    }
    return true;
}

static bool set_ids(unsigned id)
{
    gid_t group = id;

    return syscall(SYS_setgroups, 1, &group) == 0 && syscall(SYS_setresgid, id, id, id) == 0 &&
           syscall(SYS_setresuid, id, id, id) == 0;
}

/* execve() along PATH as execvp() does, but a file that is no program is an error, not a shell
 * script. Returns with errno. */
static void run(const struct launch *launch)
{
    const char *name = launch->args[0];
    size_t name_len = strlen(name);
    int why = ENOENT;
    char path[PATH_SIZE];

    if (strchr(name, '/')) {
        execve(name, launch->args, launch->vars);
        return;
    }
    for (const char *dir = launch->path; dir; dir = strchr(dir, ':')) {
        size_t len;

        dir += *dir == ':';
        len = strcspn(dir, ":");
        if (len == 0 || len + name_len + 2 > sizeof path)
            continue;
        memcpy(path, dir, len);
        path[len] = '/';
        memcpy(path + len + 1, name, name_len + 1);
        execve(path, launch->args, launch->vars);
        if (errno == EACCES)
            why = EACCES;
        else if (errno != ENOENT && errno != ENOTDIR)
            return;
    }
    errno = why;
}

/* CLONE_CLEAR_SIGHAND leaves ignored signals ignored. */
static void reset_signals(const struct launch *launch)
{
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigset_t none;

    for (int i = 1; i < NSIG; i++) {
        if (sigismember(launch->ignored, i) == 1)
            sigaction(i, &action, NULL);
    }
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* The right to what only root of the sandbox may, and then the rest of it, given up. */
static void give_up_rights(const struct launch *launch)
{
    int (*confine)(void) = launch->env->filtered ? supervisor_drop_rights : supervisor_confine;
    bool confined_first = !launch->root;

    if (confined_first && confine() < 0)
        fail(STATUS_FD, LAUNCH_STEP_CONFINE);
    if (!set_ids(launch->root ? 0 : USER_ID))
        fail(STATUS_FD, LAUNCH_STEP_IDS);
    if (!confined_first && confine() < 0)
        fail(STATUS_FD, LAUNCH_STEP_CONFINE);
}

/* The child: process of the sandbox's, on the host in all else, until setns(). */
static _Noreturn void become_command(const struct launch *launch, int status_fd)
{
    for (int i = 0; i < launch->env->n_v1; i++) {
        if (write(launch->env->v1_procs_fd[i], "0", 1) != 1)
            fail(status_fd, LAUNCH_STEP_CGROUP);
    }
    /* Nobody inside may look into this process while it still is a copy of the supervisor. Up
     * to here nobody could, either: it has the ids of the host's root. */
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    if (!keep_fds(launch, &status_fd))
        fail(status_fd, LAUNCH_STEP_FDS);
    if (!set_limits(launch))
        fail(status_fd, LAUNCH_STEP_LIMITS);
    reset_signals(launch);
    if (setns(INIT_FD, OTHER_NAMESPACES) < 0)
        fail(status_fd, LAUNCH_STEP_SETNS);
    setsid();
    if (!set_ids(0))
        fail(status_fd, LAUNCH_STEP_IDS);
    give_up_rights(launch);
    if (chdir(launch->cwd) < 0)
        fail(status_fd, LAUNCH_STEP_CWD);
    report(status_fd, LAUNCH_INNER, (int)syscall(SYS_getpid), 0);
    run(launch);
    fail(status_fd, LAUNCH_STEP_EXEC);
}

struct birth {
    const struct launch *launch;
    int status_fd;
};

/* The calling thread's children are born into the sandbox's process namespace, and this one
 * only: the thread itself stays where it is, and could start no thread otherwise. */
static long clone_command(void *arg)
{
    const struct birth *birth = arg;
    const struct launch *launch = birth->launch;
    pid_t pid;
    int why;

    if (setns(launch->env->init_pidfd, CLONE_NEWPID) < 0)
        return -1;
    pid = clone_raw(CLONE_CLEAR_SIGHAND | CLONE_INTO_CGROUP, SIGCHLD, launch->tree->fd);
    if (pid == 0)
        become_command(launch, birth->status_fd);
    why = errno;
    (void)setns(launch->own_pids_fd, CLONE_NEWPID); /* to where it is: cannot fail */
    errno = why;
    return pid;
}

int launch(const struct launch *launch, int *ret_status_fd, pid_t *ret_pid)
{
    int status[2];
    pid_t pid;

    if (pipe2(status, O_CLOEXEC) < 0)
        return errno;
    pid = (pid_t)supervisor_in_box(launch->env, clone_command,
                                   &(struct birth){launch, status[1]});
    if (pid < 0) {
        int why = errno;

        close(status[0]);
        close(status[1]);
        return why;
    }
    close(status[1]);
    fcntl(status[0], F_SETFL, O_NONBLOCK);
    *ret_status_fd = status[0];
    *ret_pid = pid;
    return 0;
}

const char *launch_step_text(int step)
{
    switch (step) {
    case LAUNCH_STEP_CGROUP:
        return "joining the sandbox's limits";
    case LAUNCH_STEP_FDS:
        return "setting up its descriptors";
    case LAUNCH_STEP_LIMITS:
        return "setting its limits";
    case LAUNCH_STEP_SETNS:
        return "entering the sandbox";
    case LAUNCH_STEP_IDS:
        return "taking its account";
    case LAUNCH_STEP_CONFINE:
        return "giving up privileges";
    case LAUNCH_STEP_CWD:
        return "the working directory";
    default:
        return "the program";
    }
}
