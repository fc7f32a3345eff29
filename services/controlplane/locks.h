/* locks.h - keeps the session locks that this process holds: renewed every third of the lease
 * (20 s of 60 s) by a timer, believed until (the last renewal sent) + lease - margin by the
 * monotonic clock (protocol section 3, HOLDER). Thread-safe. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "berth/binding/v1/binding.pb-c.h"
#include "common/errors/errors.h"
#include "common/loop/loop.h"
#include "common/pool/pool.h"
#include "common/rpc/rpc.h"

struct cp_locks;
struct cp_lock; /* one lock held; from cp_lock_hold() to cp_lock_drop() */

enum {
    CP_LOCK_MARGIN =
        12, /* this part of the lease (5 s of 60) is not believed: clocks run apart */
};

/* channel: to binding. */
BERTH_MUST_CHECK enum berth_code cp_locks_new(struct berth_loop *loop, struct berth_pool *pool,
                                              struct berth_channel *channel,
                                              struct cp_locks **ret, struct berth_error *err);
/* Every lock must have been dropped. Not from the loop. NULL is fine. */
struct cp_locks *cp_locks_free(struct cp_locks *locks);
BERTH_DEFINE_AUTO(struct cp_locks *, cp_locks_free)

/* Start to keep a lock as granted. sent_tick: when the grant was asked for. ref and grant are
 * copied. NULL: no memory. */
struct cp_lock *cp_lock_hold(struct cp_locks *locks, const Berth__Common__V1__SessionRef *ref,
                             const Berth__Binding__V1__Lock *grant, int64_t sent_tick);
/* Stop renewing. Does not release it in binding: Commit or Abort does. NULL is fine. */
void cp_lock_drop(struct cp_lock *lock);

/* How long the lock is still believed to be ours; 0: not any more. */
int64_t cp_lock_left_ms(const struct cp_lock *lock);
/* Borrowed until the drop. */
const Berth__Common__V1__SessionRef *cp_lock_ref(const struct cp_lock *lock);
const Berth__Binding__V1__Lock *cp_lock_grant(const struct cp_lock *lock);
