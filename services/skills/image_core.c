/* image_core.c - may it be made live, and how does an operation go on? Pure. */
#include "services/skills/image.h"

/* The config's lock stands for this operation in this process. Its time is not looked at:
 * whoever takes it over writes another one. */
static bool has_lock(const struct ledger *now, const struct image_claim *claim)
{
    BERTH_AUTO(json_decref) json_t *lock = json_loads(now->lock, 0, NULL);
    const char *operation_id = json_string_value(json_object_get(lock, "op"));
    const char *owner = json_string_value(json_object_get(lock, "owner"));

    return operation_id && owner && strcmp(operation_id, claim->operation_id) == 0 &&
           strcmp(owner, claim->owner) == 0;
}

static const struct berth_snapshot_row *find_row(const struct ledger *now, const char *row_id)
{
    for (size_t i = 0; i < now->n_rows; i++)
        if (strcmp(now->rows[i].row_id, row_id) == 0)
            return &now->rows[i];
    return NULL;
}

static bool is_active(const struct berth_snapshot_row *row, const char *operation_id)
{
    return row && row->snapshot_id[0] && strcmp(row->state, "active") == 0 &&
           strcmp(row->operation_id, operation_id) == 0;
}

/* A generation is used once, so it would do; the snapshot is what was really booted. */
static bool is_same_image(const struct berth_image_pointer *a,
                          const struct berth_image_pointer *b)
{
    return a->generation == b->generation && strcmp(a->snapshot_id, b->snapshot_id) == 0 &&
           strcmp(a->account, b->account) == 0;
}

enum image_verdict image_judge_flip(const struct ledger *now, const struct image_claim *claim)
{
    const struct berth_config_doc *config = &now->config;

    if (!config->exists || strcmp(config->state, "active") != 0)
        return IMAGE_NO_CONFIG;
    if (strcmp(config->image.operation_id, claim->operation_id) == 0)
        return IMAGE_IS_FLIPPED;
    if (!has_lock(now, claim))
        return IMAGE_LOCK_LOST;
    if (!config->account[0] || strcmp(config->account, claim->account) != 0)
        return IMAGE_ACCOUNT_CHANGED;
    if (!is_same_image(&config->image, claim->booted))
        return IMAGE_MOVED;
    if (claim->row_id[0] && !is_active(find_row(now, claim->row_id), claim->operation_id))
        return IMAGE_ROW_LOST;
    return IMAGE_MAY_FLIP;
}

enum image_start image_judge_start(struct ledger *now, const char *operation_id,
                                   const char *row_id)
{
    const struct berth_config_doc *config = &now->config;
    const struct berth_snapshot_row *row = row_id[0] ? ledger_find(now, row_id) : NULL;

    if (strcmp(config->image.operation_id, operation_id) == 0)
        return IMAGE_START_ENDED;
    if (!row || strcmp(row->operation_id, operation_id) != 0)
        return IMAGE_START_ANEW;
    if (strcmp(row->state, "building") == 0)
        return IMAGE_START_SETTLE;
    if (is_active(row, operation_id) && row->base_generation == config->image.generation &&
        strcmp(row->account, config->account) == 0)
        return IMAGE_START_FLIP;
    return IMAGE_START_ANEW;
}

bool image_is_bloated(const struct berth_snapshot_row *live, const struct image_growth *growth)
{
    uint64_t bytes =
        live->image_bytes > growth->slack_bytes ? live->image_bytes - growth->slack_bytes : 0;

    /* Where nothing can be gained, nothing is done. By division, so that nothing runs over. */
    if (growth->max_bytes && live->image_bytes > growth->max_bytes &&
        bytes / 5 > live->skills_bytes / 4)
        return true;
    return growth->factor && bytes / growth->factor > live->skills_bytes;
}
