/* prune.h - which snapshots of skill images may go. Pure. */
#pragma once

#include "services/skills/ledger.h"

enum prune_verdict {
    PRUNE_NOT_OURS,   /* a user's, or nothing that has a snapshot any more */
    PRUNE_SUPERSEDED, /* it goes */
    PRUNE_LIVE,
    PRUNE_TOO_YOUNG,
    PRUNE_IN_USE,
    PRUNE_SHARED,
    PRUNE_ACCOUNT_CHANGED,
    PRUNE_BUILDING,
    PRUNE_CONDEMNED,
};

/* used: somebody outside of this ledger names it. */
enum prune_verdict prune_judge(const struct ledger *ledger,
                               const struct berth_snapshot_row *row, int64_t retention_ms,
                               bool used);
/* As PruneItem.reason; static. */
const char *prune_reason(enum prune_verdict verdict);
