/* run.c - io_run(): a child program under a deadline, its output read line by line. */
#include "services/adapter-local/spawner/io.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "common/time/time.h"

/* A cancelling signal may come just before the wait. */
enum { LINE_MAX_SIZE = 512, POLL_MS = 500, TERM_MS = 5000 };

volatile sig_atomic_t io_cancelled;

struct lines {
    io_line_fn fn;
    void *arg;
    char line[LINE_MAX_SIZE]; /* being collected; what is longer is cut */
    size_t len;
    char last[LINE_MAX_SIZE];
    bool stopped;
};

static void take(struct lines *lines, const char *data, size_t size)
{
    for (size_t i = 0; i < size && !lines->stopped; i++) {
        if (data[i] != '\n' && data[i] != '\r') {
            if (lines->len + 1 < sizeof lines->line)
                lines->line[lines->len++] = data[i];
            continue;
        }
        if (lines->len == 0)
            continue;
        lines->line[lines->len] = 0;
        lines->len = 0;
        memcpy(lines->last, lines->line, sizeof lines->last);
        if (lines->fn && !lines->fn(lines->arg, lines->line))
            lines->stopped = true;
    }
}

/* The child of io_run(): a group of its own, told to end when we do. */
static _Noreturn void become(const char *const *argv, char *const *env, int out_fd,
                             pid_t parent)
{
    struct sigaction action = {.sa_handler = SIG_DFL};
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    sigset_t none;

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
    if (getppid() != parent)
        _exit(127);
    for (int i = 1; i < NSIG; i++)
        sigaction(i, &action, NULL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (dup2(null_fd, 0) < 0 || dup2(out_fd, 1) < 0 || dup2(out_fd, 2) < 0)
        _exit(127);
    if (env)
        environ = (char **)env;
    execvp(argv[0], (char *const *)argv);
    dprintf(2, "%s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

/* First by word, so that it can clean up; then for good. */
static void end_program(pid_t pid, int pid_fd)
{
    struct pollfd polled = {.fd = pid_fd, .events = POLLIN};

    kill(-pid, SIGTERM);
    if (poll(&polled, 1, TERM_MS) <= 0)
        kill(-pid, SIGKILL);
}

enum berth_code io_run(const char *const *argv, char *const *env, int64_t deadline_ms,
                       io_line_fn line, void *arg, struct berth_error *err)
{
    BERTH_AUTO(close) int read_fd = -1;
    BERTH_AUTO(close) int pid_fd = -1;
    struct lines lines = {.fn = line, .arg = arg};
    bool timed_out = false, exited = false;
    pid_t parent = getpid(), pid;
    int fds[2], status = 0;

    if (pipe2(fds, O_CLOEXEC) < 0)
        return io_fail(err, "pipe");
    read_fd = fds[0];
    pid = fork();
    if (pid == 0)
        become(argv, env, fds[1], parent);
    close(fds[1]);
    if (pid < 0)
        return io_fail(err, "start %s", argv[0]);
    setpgid(pid, pid);
    pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);

    /* The end of the program ends it, even if something it started holds the pipe. */
    while (!exited && !lines.stopped && !timed_out && !io_cancelled) {
        struct pollfd polls[] = {{.fd = read_fd, .events = POLLIN},
                                 {.fd = pid_fd, .events = POLLIN}};
        int64_t left = deadline_ms - berth_tick_ms();
        char buf[4096];
        ssize_t n;

        if (left <= 0) {
            timed_out = true;
            break;
        }
        if (poll(polls, 2, left > POLL_MS ? POLL_MS : (int)left) < 0 && errno != EINTR)
            break;
        exited = polls[1].revents != 0;
        while (poll(&polls[0], 1, 0) > 0 && (n = read(read_fd, buf, sizeof buf)) > 0)
            take(&lines, buf, (size_t)n);
        if (!exited && polls[0].revents & POLLHUP && !(polls[0].revents & POLLIN))
            poll(&polls[1], 1, left > POLL_MS ? POLL_MS : (int)left);
    }
    if (!exited)
        end_program(pid, pid_fd);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    take(&lines, "\n", 1);
    if (lines.stopped || (io_cancelled && !exited))
        return berth_fail(err, BERTH_REASON_CANCELLED, "%s was stopped", argv[0]);
    if (timed_out)
        return berth_fail(err, BERTH_REASON_BACKEND_TIMEOUT, "%s took too long", argv[0]);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return BERTH_OK;
    return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "%s failed with %s %d: %s", argv[0],
                      WIFEXITED(status) ? "status" : "signal",
                      WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status), lines.last);
}
