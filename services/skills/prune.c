#include "services/skills/prune.h"

const char *prune_reason(enum prune_verdict verdict)
{
    static const char *const names[] = {
        [PRUNE_NOT_OURS] = "",
        [PRUNE_SUPERSEDED] = "SUPERSEDED",
        [PRUNE_LIVE] = "LIVE",
        [PRUNE_TOO_YOUNG] = "TOO_YOUNG",
        [PRUNE_IN_USE] = "IN_USE",
        [PRUNE_SHARED] = "SHARED",
        [PRUNE_ACCOUNT_CHANGED] = "ACCOUNT_CHANGED",
        [PRUNE_BUILDING] = "BUILDING",
        [PRUNE_CONDEMNED] = "CONDEMNED",
    };

    return names[verdict];
}

/* Another row names the same snapshot, and does not go before this one: of images that were
 * published again and have all had their time the older rows go first, and the snapshot with
 * the last. */
static bool is_kept(const struct ledger *ledger, const struct berth_snapshot_row *row)
{
    for (size_t i = 0; i < ledger->n_rows; i++) {
        const struct berth_snapshot_row *other = &ledger->rows[i];

        if (strcmp(other->row_id, row->row_id) == 0 ||
            strcmp(other->snapshot_id, row->snapshot_id) != 0 ||
            strcmp(other->state, "deleted") == 0 || strcmp(other->state, "abandoned") == 0)
            continue;
        if (strcmp(other->state, "superseded") != 0 || other->generation < row->generation)
            return true;
    }
    return false;
}

enum prune_verdict prune_judge(const struct ledger *ledger,
                               const struct berth_snapshot_row *row, int64_t retention_ms,
                               bool used)
{
    if (strcmp(row->origin, "skills") != 0 || strcmp(row->state, "abandoned") == 0)
        return PRUNE_NOT_OURS;
    if (strcmp(row->state, "building") == 0)
        return PRUNE_BUILDING;
    if (strcmp(row->state, "deleted") == 0)
        return PRUNE_CONDEMNED;
    /* Active and not (yet) live: it is about to be. */
    if (ledger_is_live(ledger, row) || strcmp(row->state, "superseded") != 0)
        return PRUNE_LIVE;
    if (is_kept(ledger, row))
        return PRUNE_SHARED;
    if (used)
        return PRUNE_IN_USE;
    if (!row->account[0] || strcmp(row->account, ledger->config.account) != 0)
        return PRUNE_ACCOUNT_CHANGED;
    if (ledger->now_ms - row->supersede_ms < retention_ms)
        return PRUNE_TOO_YOUNG;
    return PRUNE_SUPERSEDED;
}
