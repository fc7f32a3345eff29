/* cgroup.h - the control groups of a sandbox.
 *
 * In the unified hierarchy <store>/<id>/ holds `sup` (the supervisor) and `box` (init and all
 * commands): freezing and killing happen there. Limits hang on `box`, too, where memory, pids
 * and cpu are unified controllers; where they are still on v1 hierarchies (hybrid hosts), on
 * <store>/<id> in each of those, and every process of the box must be put there as well. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/errors/errors.h"
#include "services/adapter/types.h"

enum { CGROUP_PATH_MAX = 256, CGROUP_N_CONTROLLERS = 3 };
enum cgroup_controller { CGROUP_MEMORY, CGROUP_PIDS, CGROUP_CPU };

/* Where a host keeps what. Mount points. */
struct cgroup_host {
    char unified[CGROUP_PATH_MAX];
    char v1[CGROUP_N_CONTROLLERS][CGROUP_PATH_MAX]; /* "": the controller is unified */
};

/* One sandbox's groups. Borrowed strings. */
struct cgroup {
    const struct cgroup_host *host;
    const char *store; /* store_cgroup_name() */
    const char *id;
};

/**
 * cgroup_discover() - find the hierarchies
 * @mountinfo: text of /proc/self/mountinfo
 *
 * Errors: CAPABILITY_MISSING saying which hierarchy is not there and what to do.
 */
BERTH_MUST_CHECK enum berth_code cgroup_discover(const char *mountinfo, struct cgroup_host *ret,
                                                 struct berth_error *err);
/* The same for this process. */
BERTH_MUST_CHECK enum berth_code cgroup_discover_self(struct cgroup_host *ret,
                                                      struct berth_error *err);

/* Make the groups (they may exist) and set the limits; 0 in limits: none. */
BERTH_MUST_CHECK enum berth_code cgroup_make(const struct cgroup *group,
                                             const struct adapter_resources *limits,
                                             struct berth_error *err);

/* Only what the supervisor starts in: cgroup_make() makes the rest later. *ret_sup_fd is
 * owned. */
BERTH_MUST_CHECK enum berth_code cgroup_make_sup(const struct cgroup *group, int *ret_sup_fd,
                                                 struct berth_error *err);

/* Descriptors of a made group; -1 where there is none. */
struct cgroup_fds {
    int sup_fd, box_fd;
    int n_v1;
    int v1_tasks_fd[CGROUP_N_CONTROLLERS]; /* tasks, for writing: a thread joins by "0" */
    int memory_fd;
    bool memory_is_v2;
};
BERTH_MUST_CHECK enum berth_code cgroup_open(const struct cgroup *group, struct cgroup_fds *ret,
                                             struct berth_error *err);
void cgroup_fds_close(struct cgroup_fds *fds);

/* Freeze or thaw box; returns when the kernel says it is so. Errors: BACKEND_TIMEOUT (a freeze
 * is taken back), SANDBOX_TERMINAL (no such group). */
BERTH_MUST_CHECK enum berth_code cgroup_freeze(const struct cgroup *group, bool frozen,
                                               int64_t deadline_ms, struct berth_error *err);
/* Is a freeze asked for? False where there is no group. */
bool cgroup_is_frozen(const struct cgroup *group);

/* Kill every process of sup and box, wait until they are gone, remove the groups. Fine when
 * there is nothing. Errors: BACKEND_TIMEOUT. */
BERTH_MUST_CHECK enum berth_code cgroup_destroy(const struct cgroup *group, int64_t deadline_ms,
                                                struct berth_error *err);
/* Remove the store's own group when it is empty; not an error when it is not. */
void cgroup_forget_store(const struct cgroup_host *host, const char *store);
