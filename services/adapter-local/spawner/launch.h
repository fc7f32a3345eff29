/* launch.h - start one command inside the sandbox: one clone, one setns(). */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "services/adapter-local/spawner/supervisor.h"
#include "services/adapter-local/spawner/tree.h"

/* Everything is made before the clone; the child allocates nothing. */
struct launch {
    const struct supervisor_env *env;
    const struct tree *tree;
    char *const *args; /* NULL at the end */
    char *const *vars; /* environment, NULL at the end */
    const char *path;  /* value of PATH in vars; where args[0] is looked for */
    const char *cwd;
    bool root;
    const sigset_t *ignored; /* signals that the supervisor ignores */
    int own_pids_fd;         /* the process namespace of the supervisor */
    int stdin_fd, stdout_fd, stderr_fd;
};

/* What the child says through the status pipe, in whole records. The pipe is closed when the
 * command runs, or never will. */
enum launch_kind {
    LAUNCH_INNER = 1, /* value: its process id as the sandbox sees it; execve() is next */
    LAUNCH_FAILED = 2 /* value: enum launch_step; error: errno */
};
enum launch_step {
    LAUNCH_STEP_CGROUP = 1,
    LAUNCH_STEP_FDS,
    LAUNCH_STEP_LIMITS,
    LAUNCH_STEP_SETNS,
    LAUNCH_STEP_IDS,
    LAUNCH_STEP_CONFINE,
    LAUNCH_STEP_CWD,
    LAUNCH_STEP_EXEC,
};
struct launch_record {
    int32_t kind, value, error;
};

/**
 * launch() - begin to start a command
 * @ret_status_fd: read end of the status pipe, non-blocking; owned by the caller
 * @ret_pid:       the command, a child of the caller; as the caller sees it
 *
 * Returns 0 or an errno (nothing is started then).
 */
int launch(const struct launch *launch, int *ret_status_fd, pid_t *ret_pid);

/* "the program", "the working directory", ...: what a failed step was about. */
const char *launch_step_text(int step);
