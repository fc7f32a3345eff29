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
    struct berth_snapshot_row row;
};

/* The sandbox stays protected; end: no longer. Errors: those of RenewUse. */
enum berth_code making_renew_use(struct making *m, bool end, struct berth_error *err);
/* Our sign of life in the row. Errors: CONFLICT: the row is no build of ours any more. */
BERTH_MUST_CHECK enum berth_code making_beat(struct making *m, struct berth_error *err);

/* The backend's CreateSnapshot, under the row's planned name. It may take minutes: use token
 * and row are kept alive meanwhile. *ret is owned. Errors: OVERLOADED; the adapter's. */
BERTH_MUST_CHECK enum berth_code
making_ask_backend(struct making *m, Berth__Backend__V1__CreateSnapshotResponse **ret,
                   struct berth_error *err);
