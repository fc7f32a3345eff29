/* launcher.h - a thread of the supervisor that is in the sandbox's v1 control groups and under
 * the seccomp filter of commands, while the rest of the process is not. What it forks has both
 * from its first instruction. Joining a v1 group waits for an RCU grace period (5 to 15 ms
 * here), and the kernel compiles a filter in 0.1 ms: this way it happens once per sandbox,
 * while other things are set up, and not once per command. */
#pragma once

#include <stddef.h>

#include "common/errors/errors.h"

struct launcher;

/* tasks_fd: `tasks` of each group, for writing (n may be 0); borrowed until the thread has
 * joined, which launcher_run() waits for. The thread lives as long as the process. */
BERTH_MUST_CHECK enum berth_code launcher_new(const int *tasks_fd, size_t n,
                                              struct launcher **ret, struct berth_error *err);
/* Run fn(arg) on the thread and return what it returns; from any thread, one at a time.
 * -1 with errno when the groups could not be joined. errno is carried over. */
long launcher_run(struct launcher *launcher, long (*fn)(void *arg), void *arg);
