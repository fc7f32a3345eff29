/* making.h - one snapshot that is being made: what snapshot_make.c and making.c share. */
#pragma once

#include "berth/backend/v1/backend.pb-c.h"
#include "berth/control/v1/control.pb-c.h"
#include "services/skills/snapshot_make.h"

struct making {
    struct skills *skills;
    struct berth_call *call;
    const struct snapshot_wish *wish;
    Berth__Control__V1__ResolveRouteResponse *route; /* owned */
    const char *config_id;
    struct {
        char snapshot_id[129];
        uint64_t generation;
    } parent; /* what the sandbox has booted from, as far as it is known */
    struct berth_snapshot_row row;
};

/* The session's sandbox, of a backend that has snapshots. */
enum berth_code making_route(struct making *m, struct berth_error *err);
/* Read, change the row of a build of ours, write. Errors: CONFLICT: it is ours no more. */
enum berth_code making_change_row(struct making *m, enum ledger_change change,
                                  struct berth_error *err);
/* The row is there, building: ask the backend and publish what it made; a lost answer is looked
 * up by the planned name. Abandoned where it fails. Errors: the adapter's; OUTCOME_UNKNOWN. */
enum berth_code making_build(struct making *m, struct berth_error *err);
/* The snapshot is there: the row is active. */
enum berth_code making_publish(struct making *m, const struct skills_found *found,
                               struct berth_error *err);
void making_give_up(struct making *m); /* abandoned; logged where that fails */
/* May the tenant have one more? Errors: QUOTA_EXCEEDED. */
enum berth_code making_check_limit(struct skills *skills, const char *tenant, uint32_t limit,
                                   struct ledger_quota *ret, struct berth_error *err);

/* The sandbox stays protected; end: no longer. Errors: those of RenewUse. */
enum berth_code making_renew_use(struct making *m, bool end, struct berth_error *err);
/* Our sign of life in the row. Errors: CONFLICT: the row is no build of ours any more. */
BERTH_MUST_CHECK enum berth_code making_beat(struct making *m, struct berth_error *err);

/* The backend's CreateSnapshot, under the row's planned name. It may take minutes: use token
 * and row are kept alive meanwhile. *ret is owned. Errors: OVERLOADED; the adapter's. */
BERTH_MUST_CHECK enum berth_code
making_ask_backend(struct making *m, Berth__Backend__V1__CreateSnapshotResponse **ret,
                   struct berth_error *err);
