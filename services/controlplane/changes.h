/* changes.h - what has changed in the records: dropped here from what is kept in memory, told
 * to the other control planes through Redis, and to the services that keep some of it
 * (InternalService.WatchChanges). */
#pragma once

#include "common/records/changes.h"
#include "services/controlplane/controlplane.h"

struct cp_changes;

/* listen_ms: how long one call to Redis waits for word; 0: not at all, others' changes count
 * within 5 s. cp's cache and gate are there already. */
BERTH_MUST_CHECK enum berth_code cp_changes_new(struct cp *cp, int64_t listen_ms,
                                                struct cp_changes **ret,
                                                struct berth_error *err);
/* Before cp's cache, gate and store go. NULL is fine. */
struct cp_changes *cp_changes_free(struct cp_changes *changes);

/* After a write of ours. id NULL: a tenant. */
void cp_changed(struct cp *cp, enum berth_change_kind kind, const char *tenant, const char *id);
