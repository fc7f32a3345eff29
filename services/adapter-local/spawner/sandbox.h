/* sandbox.h - make the inside of a sandbox and start its init. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "common/errors/errors.h"
#include "services/adapter-local/spawner/launcher.h"

/* All borrowed for the length of the call. */
struct sandbox_plan {
    /* Paths, not descriptors: those would be of mounts outside of the new namespace. */
    const char *store;         /* relative layers start here */
    const char *dir;           /* the sandbox's directory: upper, work, mnt; absolute */
    const char *const *layers; /* top first */
    size_t n_layers;
    unsigned uid_base;
    int net_fd;                /* the sandbox's network namespace */
    int box_fd;                /* the cgroup init starts in */
    struct launcher *launcher; /* forks init into the v1 groups; NULL: not needed */
    const char *nameserver;    /* for /etc/resolv.conf; "" = no names */
    uint64_t tmp_bytes, shm_bytes;
};

/**
 * sandbox_start() - build the root file system, start init in it
 *
 * The caller is root on the host. The new init is its child and is killed when the thread that
 * forked it ends. Init is pid 1 of its own pid, mount, ipc, uts and user
 * namespaces, in plan->net_fd's network and in the box cgroup; it only reaps.
 *
 * Errors: DISK_FULL, OUT_OF_MEMORY, BACKEND_CAPACITY, INTERNAL_BUG; the text names the step.
 */
BERTH_MUST_CHECK enum berth_code sandbox_start(const struct sandbox_plan *plan, pid_t *ret_pid,
                                               int *ret_pidfd, struct berth_error *err);

/* Make a user namespace mapping 65536 ids from base on. *ret is owned. */
BERTH_MUST_CHECK enum berth_code sandbox_user_ns(unsigned base, int *ret,
                                                 struct berth_error *err);
