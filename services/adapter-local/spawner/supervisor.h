/* supervisor.h - the boundary inside berth-local-supervisor: sandbox.c and main_supervisor.c
 * make the sandbox, then hand it to supervisor_serve(), the command engine, for the rest of its
 * life. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/errors/errors.h"
#include "common/loop/loop.h"

enum { SUPERVISOR_MAX_V1 = 4 };

/* One supervisor serves one sandbox. Descriptors are close-on-exec, open until the process
 * ends, and borrowed like all strings. The process is root in the host's namespaces (not in the
 * sandbox's), single-threaded until loop is started, leader of its own session, its stdin is
 * /dev/null, stdout and stderr go to <sandbox dir>/supervisor.log. */
struct supervisor_env {
    const char *sandbox_id;
    struct berth_loop *loop; /* not started. dns.c has registered its descriptors (posted) */

    /* Parent of init is this process: it must be waited for by pid, never by waitpid(-1). Its
     * end is the end of the sandbox: supervisor_serve() then returns. setns(init_pidfd, all of
     * NEWUSER NEWNS NEWPID NEWNET NEWIPC NEWUTS) in one call enters the sandbox. */
    pid_t init_pid;
    int init_pidfd;
    int root_fd;       /* O_PATH of the sandbox's root directory as its init sees it */
    unsigned uid_base; /* sandbox uid u is host uid uid_base + u (65536 of them); gids alike */

    int dir_fd;    /* the sandbox's own directory: sup.sock, meta.json, active, ... */
    int listen_fd; /* sup.sock: bound, listening, non-blocking, SOCK_STREAM */
    int active_fd; /* its mtime: last use; its atime: last call, command or file access */

    /* Cgroups. box_fd is the sandbox's directory in the unified hierarchy: init is in it,
     * commands go into children made below it (clone3 CLONE_INTO_CGROUP); cgroup.freeze on it
     * pauses the sandbox (cgroup.freeze or cgroup.events say so), cgroup.kill kills it.
     * Limits hang on box_fd where memory, pids and cpu are unified controllers. Where they are
     * not, processes must be in v1 groups, too: what supervisor_in_box() forks is. */
    int box_fd;
    struct launcher *launcher; /* NULL: nothing to join */
    bool filtered;             /* what supervisor_in_box() forks has the seccomp filter */
    /* Groups a new process must still write "0" to; none under berth-local-supervisor. */
    int n_v1;
    int v1_procs_fd[SUPERVISOR_MAX_V1];
    /* Directory that counts kills for lack of memory: memory.events "oom_kill N" (v2) or
     * memory.oom_control "oom_kill N" (v1). -1: no memory controller. */
    int memory_fd;
    bool memory_is_v2;

    const char *const *environ; /* of CreateSandbox, "NAME=value", NULL at the end */
    uint64_t max_open_files;    /* RLIMIT_NOFILE of commands, within our own hard limit */
};

/**
 * supervisor_serve() - serve sup.sock until the sandbox ends
 * @env: borrowed until it returns
 *
 * Starts env->loop, runs commands, answers the adapter. Returns when init has ended (killed,
 * out of memory) or when the loop cannot go on; the caller then kills what is left and exits.
 *
 * Errors: INTERNAL_BUG, OUT_OF_MEMORY: the engine could not be started.
 */
BERTH_MUST_CHECK enum berth_code supervisor_serve(const struct supervisor_env *env,
                                                  struct berth_error *err);

/* Run fn(arg), which forks, on the thread that is in the sandbox's v1 groups (launcher.h), and
 * return what it returns; errno is carried over. The child is a copy of that thread, in a
 * process that had several: raw system calls for set*id. Children are this process's as any
 * others. */
long supervisor_in_box(const struct supervisor_env *env, long (*fn)(void *arg), void *arg);

/* For a command's child process, inside the sandbox, after setns() and the set*id() calls of a
 * root command or before those of a user's: bounding set cut to what a container may keep,
 * ambient and inheritable sets emptied, seccomp filter, no_new_privs. Async-signal-safe.
 * Returns 0 or -1 with errno. (confine.c) */
int supervisor_confine(void);
/* The two halves of it: all but the filter, and the filter alone, for the calling thread and
 * what it forks from now on. The kernel takes 0.1 ms to compile one: too long for each command.
 */
int supervisor_drop_rights(void);
int supervisor_filter(void);
