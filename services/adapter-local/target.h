/* target.h - how data calls reach a sandbox of this store. */
#pragma once

#include "common/errors/errors.h"

struct adapter;

/* The sandbox's directory in the store. Never blocks on the sandbox.
 * Errors: SANDBOX_NOT_FOUND. */
BERTH_MUST_CHECK enum berth_code local_open_dir(struct adapter *adapter, const char *id,
                                                int *ret_dir_fd, struct berth_error *err);

/* Nobody answers at its sup.sock. Never BERTH_OK.
 * Errors: SANDBOX_NOT_FOUND, SANDBOX_TERMINAL (its processes are gone), BACKEND_UNAVAILABLE. */
enum berth_code local_why_silent(struct adapter *adapter, const char *id,
                                 struct berth_error *err);

/* The file tree as the sandbox sees it. */
struct local_root {
    int fd;            /* O_PATH of its root directory; owned: close() */
    unsigned uid_base; /* host uid of its uid 0 */
};
/* Notes that the sandbox is used. Works on a paused one. Errors: as local_why_silent(). */
BERTH_MUST_CHECK enum berth_code local_open_root(struct adapter *adapter, const char *id,
                                                 struct local_root *ret,
                                                 struct berth_error *err);

/* Errors: FENCE_STALE where the sandbox has seen a higher one; as local_why_silent(). */
BERTH_MUST_CHECK enum berth_code local_check_fence(struct adapter *adapter, const char *id,
                                                   uint64_t fence, struct berth_error *err);
