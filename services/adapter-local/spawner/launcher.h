/* launcher.h - a thread of the supervisor that is in the sandbox's v1 control groups and
 * network namespace and under the seccomp filter of commands, while the rest of the process is
 * not. What it forks has all of them from its first instruction. Entering takes time (a network
 * namespace 0.6 ms here, compiling a filter 0.1 ms, joining a v1 group up to 15 ms on kernels
 * that wait for a grace period there): this way it happens once per sandbox, while other things
 * are set up, and not once per command. */
#pragma once

#include "common/errors/errors.h"

struct launcher;

/* The thread lives as long as the process. Errors: OUT_OF_MEMORY, BACKEND_CAPACITY. */
BERTH_MUST_CHECK enum berth_code launcher_new(struct launcher **ret, struct berth_error *err);
/* Start fn(arg) on the thread, one at a time: launcher_end() must follow, from the same
 * thread. */
void launcher_begin(struct launcher *launcher, long (*fn)(void *arg), void *arg);
/* Wait for it and return what it returned. errno is carried over. */
long launcher_end(struct launcher *launcher);
/* Both. */
long launcher_run(struct launcher *launcher, long (*fn)(void *arg), void *arg);
