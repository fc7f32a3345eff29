/* key_command.c - asks a program for the suite's keys: no shell, a bounded answer in a bounded
 * time, and nothing of ours in its environment. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include "common/crypto/keyring.h"
#include "common/time/time.h"

enum { TIMEOUT_MS = 10000, ARGS_MAX = 32, COMMAND_MAX = 1024, ENV_MAX = 1024 };

extern char **environ;

static enum berth_code refuse(struct berth_error *err, const char *why)
{
    return berth_fail(err, BERTH_REASON_FIELD_INVALID, "key command: %s", why);
}

/* Words of command, in place. 0: too many. */
static size_t split(char *command, char *ret_args[ARGS_MAX + 1])
{
    size_t n = 0;
    char *at = command;

    for (;;) {
        at += strspn(at, " ");
        if (!*at)
            break;
        if (n == ARGS_MAX)
            return 0;
        ret_args[n++] = at;
        at += strcspn(at, " ");
        if (*at)
            *at++ = 0;
    }
    ret_args[n] = NULL;
    return n;
}

/* Our environment without our settings: there may be secrets among them. */
static void clean_environment(char *ret_env[ENV_MAX + 1])
{
    size_t n = 0;

    for (char **each = environ; *each && n < ENV_MAX; each++)
        if (strncmp(*each, "BERTH_", 6) != 0)
            ret_env[n++] = *each;
    ret_env[n] = NULL;
}

static int spawn(char *const *args, int out, pid_t *ret)
{
    char *env[ENV_MAX + 1];
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none, all;
    int failed;

    clean_environment(env);
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out, 1);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                        POSIX_SPAWN_SETPGROUP);
    failed = posix_spawn(ret, args[0], &actions, &attr, args, env);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    return failed;
}

/* Until its end, NULL; otherwise what is wrong. */
static const char *read_all(int fd, int64_t end_tick, char *buf, size_t size, size_t *ret_size)
{
    size_t done = 0;

    for (;;) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        int64_t left_ms = end_tick - berth_tick_ms();
        ssize_t n;

        if (left_ms <= 0)
            return "it did not end within 10 s";
        if (poll(&ready, 1, (int)left_ms) <= 0)
            continue;
        if (done == size)
            return "it prints too much";
        n = read(fd, buf + done, size - done);
        if (n < 0 && errno != EINTR)
            return "its output cannot be read";
        if (n == 0)
            break;
        done += n > 0 ? (size_t)n : 0;
    }
    *ret_size = done;
    return NULL;
}

/* Whether it ended well by then; it is gone in any case. */
static const char *reap(pid_t pid, int64_t end_tick, const char *why)
{
    int status = 0;
    pid_t ended = 0;

    while (!why && (ended = waitpid(pid, &status, WNOHANG)) == 0) {
        if (berth_tick_ms() >= end_tick)
            why = "it did not end within 10 s";
        else
            usleep(1000); /* it has closed its output: it is about to end */
    }
    if (ended == 0) {
        kill(-pid, SIGKILL);
        waitpid(pid, &status, 0);
        return why;
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? NULL : "it failed; run it by hand";
}

enum berth_code key_command_run(const char *command, char *buf, size_t size, size_t *ret_size,
                                struct berth_error *err)
{
    char words[COMMAND_MAX], *args[ARGS_MAX + 1];
    int64_t end_tick = berth_tick_ms() + TIMEOUT_MS;
    const char *why;
    size_t done = 0;
    int ends[2], failed;
    pid_t pid;

    if (command[0] != '/' || strlen(command) >= sizeof words)
        return refuse(err, "wanted the absolute path of a program and its arguments");
    memcpy(words, command, strlen(command) + 1);
    if (split(words, args) == 0)
        return refuse(err, "too many arguments");
    if (pipe2(ends, O_CLOEXEC) < 0)
        return refuse(err, strerror(errno));
    failed = spawn(args, ends[1], &pid);
    close(ends[1]);
    if (failed) {
        close(ends[0]);
        return refuse(err, strerror(failed));
    }
    why = reap(pid, end_tick, read_all(ends[0], end_tick, buf, size, &done));
    close(ends[0]);
    if (why)
        return refuse(err, why);
    *ret_size = done;
    return BERTH_OK;
}
