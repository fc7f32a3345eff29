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
    int user_fd; /* sandbox_user_ns(uid_base) */
    unsigned uid_base;
    int box_fd;                /* the cgroup init starts in */
    struct launcher *launcher; /* forks init into the v1 groups and the network namespace it is
                                  in; NULL: no groups, and a new namespace */
    const char *nameserver;    /* for /etc/resolv.conf; "" = no names */
    uint64_t tmp_bytes, shm_bytes;
    char *title; /* our own command line, which init overwrites: it names paths of the host */
    size_t title_size;
};

/* An init that is at work. The namespaces in which it was born are there. */
struct sandbox_birth {
    pid_t pid;
    int pidfd;     /* owned by the caller, also after sandbox_await() */
    int report_fd; /* owned until sandbox_await() */
};

/**
 * sandbox_start() - start init, which builds its root file system
 *
 * The caller is root on the host. The new init is its child and is killed when the thread that
 * forked it ends. Init is pid 1 of its own pid, mount, network, ipc, uts and user namespaces
 * and in the box cgroup; it only reaps. On success sandbox_await() must follow; meanwhile the
 * caller can do other things.
 *
 * Errors: OUT_OF_MEMORY, BACKEND_CAPACITY, INTERNAL_BUG; the text names the step.
 */
BERTH_MUST_CHECK enum berth_code sandbox_start(const struct sandbox_plan *plan,
                                               struct sandbox_birth *ret,
                                               struct berth_error *err);

/* Wait until init is ready. On failure it is dead and was waited for, and birth->pid is 0.
 * Errors: DISK_FULL, OUT_OF_MEMORY, BACKEND_CAPACITY, INTERNAL_BUG; the text names the step. */
BERTH_MUST_CHECK enum berth_code sandbox_await(struct sandbox_birth *birth,
                                               struct berth_error *err);

/* Make a user namespace mapping 65536 ids from base on. *ret is owned. */
BERTH_MUST_CHECK enum berth_code sandbox_user_ns(unsigned base, int *ret,
                                                 struct berth_error *err);
