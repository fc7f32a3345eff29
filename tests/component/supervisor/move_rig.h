/* move_rig.h - a data plane with a blob store before the rig's adapter, and MoveWorkspace as
 * plain functions. */
#pragma once

#include "common/time/time.h"
#include "services/dataplane/dataplane.h"
#include "tests/component/supervisor/file_calls.h"

enum { MOVE_BLOB_MAX = 8 << 20, MOVE_WAIT_MS = 10000 };

/* Poll until the condition holds; the deadline is for a broken build only. */
#define WAIT_FOR(condition)                                                                    \
    do {                                                                                       \
        int64_t wait_end = berth_tick_ms() + MOVE_WAIT_MS;                                     \
        while (!(condition)) {                                                                 \
            ck_assert_msg(berth_tick_ms() < wait_end, "never: %s", #condition);                \
            usleep(500);                                                                       \
        }                                                                                      \
    } while (0)

/* Where the blobs of the rig's session lie. */
extern char move_dir[128];

/* After files_open(). */
void move_open(void);
void move_close(void);

enum move_kind { MOVE_OUT, MOVE_IN, MOVE_REMOVE };
struct move {
    enum move_kind kind;
    const char *blob;
    uint64_t fence;       /* 0: 1 */
    int64_t not_after_ms; /* from now; 0: a minute */
};
/* How it ended; *ret: its last message, owned. ret may be NULL. */
enum berth_reason move_it(const struct move *move,
                          Berth__Data__V1__MoveWorkspaceResponse **ret);

/* One that is only begun. Ended by move_end(); cancel: given up first. */
struct move_call;
struct move_call *move_begin(const struct move *move);
enum berth_reason move_end(struct move_call *call, bool cancel,
                           Berth__Data__V1__MoveWorkspaceResponse **ret);
