/* image_flip.c - the point of no return: one compare-and-set that makes an image live. */
#include <inttypes.h>
#include <stdio.h>

#include "common/ids/ids.h"
#include "common/records/event.h"
#include "common/records/keys.h"
#include "services/skills/image.h"

enum { FIELD_SIZE = 64, PLACE_SIZE = 192 };

/* What is written, over the ledger as read. */
struct change {
    const struct ledger *ledger;
    const struct image_flip *flip;
    struct berth_cas *cas;
    char key[BERTH_KEY_MAX];
    struct berth_snapshot_row row; /* that becomes live; row_id "": none */
    struct berth_image_pointer image;
    json_t *before, *after; /* owned: lists */
};

static enum berth_code no_memory(struct berth_error *err)
{
    return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

static enum berth_code refuse(enum image_verdict verdict, struct berth_error *err)
{
    switch (verdict) {
    case IMAGE_NO_CONFIG:
        return berth_fail(err, BERTH_REASON_CONFIG_NOT_FOUND, NULL);
    case IMAGE_LOCK_LOST:
        return berth_fail(err, BERTH_REASON_LOCK_LOST, NULL);
    case IMAGE_ACCOUNT_CHANGED:
        return berth_fail(err, BERTH_REASON_ACCOUNT_CHANGED,
                          "the config has another account now");
    case IMAGE_MOVED:
        return berth_fail(err, BERTH_REASON_GENERATION_MOVED, NULL);
    default:
        return berth_fail(err, BERTH_REASON_CONFLICT, "the row of the ledger is not active");
    }
}

/* ------------------------------------------------------------------------ the rows */

static enum berth_code write_row(struct change *c, const struct berth_snapshot_row *row,
                                 struct berth_error *err)
{
    BERTH_AUTO(free) char *json = berth_snapshot_row_format(row);
    char field[FIELD_SIZE];

    if (!json)
        return no_memory(err);
    snprintf(field, sizeof field, "row:%s", row->row_id);
    berth_cas_write(c->cas, "HSET", c->key, field, json, NULL);
    return BERTH_OK;
}

/* The same snapshot once more, under a number of its own. */
static enum berth_code publish_again(struct change *c, struct berth_error *err)
{
    BERTH_AUTO(free) char *list = NULL;
    char index[BERTH_KEY_MAX], field[FIELD_SIZE], place[PLACE_SIZE];
    enum berth_code code = image_format(c->after, &list, err);

    if (code)
        return code;
    snprintf(field, sizeof field, "skills:%s", c->row.row_id);
    snprintf(place, sizeof place, "%s/%s", c->ledger->config_id, c->row.row_id);
    berth_cas_write(c->cas, "HSET", c->key, field, list, NULL);
    berth_cas_write(c->cas, "HSET", berth_key_snapshot_index(index, c->ledger->tenant_id),
                    c->row.snapshot_id, place, NULL);
    return write_row(c, &c->row, err);
}

static enum berth_code supersede(struct change *c, struct berth_error *err)
{
    enum berth_code code = BERTH_OK;

    for (size_t i = 0; !code && i < c->ledger->n_rows; i++) {
        struct berth_snapshot_row row = c->ledger->rows[i];

        if (strcmp(row.origin, "skills") != 0 || strcmp(row.state, "active") != 0 ||
            strcmp(row.row_id, c->row.row_id) == 0)
            continue;
        snprintf(row.state, sizeof row.state, "superseded");
        row.supersede_ms = c->ledger->now_ms;
        code = write_row(c, &row, err);
    }
    return code;
}

static const struct berth_snapshot_row *find(const struct change *c, const char *row_id)
{
    for (size_t i = 0; *row_id && i < c->ledger->n_rows; i++)
        if (strcmp(c->ledger->rows[i].row_id, row_id) == 0)
            return &c->ledger->rows[i];
    return NULL;
}

/* May its snapshot be published once more? */
static enum berth_code check_again(const struct change *c, const struct berth_snapshot_row *row,
                                   struct berth_error *err)
{
    if (!row || !row->snapshot_id[0] || strcmp(row->origin, "skills") != 0 ||
        (strcmp(row->state, "active") != 0 && strcmp(row->state, "superseded") != 0))
        return berth_fail(err, BERTH_REASON_SNAPSHOT_NOT_FOUND,
                          "there is no snapshot of that generation (any more)");
    if (strcmp(row->account, c->ledger->config.account) != 0)
        return berth_fail(err, BERTH_REASON_IMAGE_OWNER_MISMATCH, NULL);
    return BERTH_OK;
}

/* The row that becomes live. */
static enum berth_code choose_row(struct change *c, struct berth_error *err)
{
    bool again = c->flip->again[0] != 0;
    const struct berth_snapshot_row *row =
        find(c, again ? c->flip->again : c->flip->claim.row_id);
    enum berth_code code = again ? check_again(c, row, err) : BERTH_OK;

    if (code || !row)
        return code;
    c->row = *row;
    if (!again)
        return BERTH_OK;
    berth_id_base36(c->row.row_id, LEDGER_ROW_ID_LEN);
    c->row.generation = c->ledger->config.next_generation;
    c->row.base_generation = c->ledger->config.image.generation;
    c->row.create_ms = c->ledger->now_ms;
    c->row.supersede_ms = 0;
    snprintf(c->row.state, sizeof c->row.state, "active");
    snprintf(c->row.operation_id, sizeof c->row.operation_id, "%s",
             c->flip->claim.operation_id);
    snprintf(c->row.created_by, sizeof c->row.created_by, "%s", c->flip->created_by);
    return BERTH_OK;
}

/* ---------------------------------------------------------------------- the pointer */

static void make_pointer(struct change *c)
{
    const struct berth_config_doc *config = &c->ledger->config;
    struct berth_image_pointer *image = &c->image;

    *image = config->image;
    image->generation = c->row.row_id[0] ? c->row.generation : config->next_generation;
    if (!config->new_sessions_only)
        image->rebuild_before = image->generation;
    image->build_ms = c->ledger->now_ms;
    snprintf(image->snapshot_id, sizeof image->snapshot_id, "%s", c->row.snapshot_id);
    snprintf(image->account, sizeof image->account, "%s", config->account);
    snprintf(image->row_id, sizeof image->row_id, "%s", c->row.row_id);
    snprintf(image->operation_id, sizeof image->operation_id, "%s",
             c->flip->claim.operation_id);
    if (c->flip->base_template_id[0])
        snprintf(image->base_template_id, sizeof image->base_template_id, "%s",
                 c->flip->base_template_id);
}

static enum berth_code write_pointer(struct change *c, struct berth_error *err)
{
    BERTH_AUTO(free) char *json = berth_image_pointer_format(&c->image);
    char rev[17], next[24];

    if (!json)
        return no_memory(err);
    berth_cas_write(c->cas, "HSET", c->key, "rev", berth_rev_new(rev), "image", json, NULL);
    if (c->image.generation < c->ledger->config.next_generation)
        return BERTH_OK;
    snprintf(next, sizeof next, "%" PRIu64, c->image.generation + 1);
    berth_cas_write(c->cas, "HSET", c->key, "next_generation", next, NULL);
    return BERTH_OK;
}

/* ------------------------------------------------------------------------ the events */

static enum berth_code add_event(struct change *c, const char *kind, const json_t *skill,
                                 struct berth_error *err)
{
    BERTH_AUTO(json_decref) json_t *attributes = json_object();
    const struct berth_event event = {
        .kind = kind, .config_id = c->ledger->config_id, .attributes = attributes};
    json_t *generation = json_sprintf("%" PRIu64, c->image.generation);

    if (json_object_set(attributes, "skill_name", json_object_get(skill, "name")) < 0 ||
        json_object_set(attributes, "bundle", json_object_get(skill, "bundle")) < 0 ||
        json_object_set_new(attributes, "operation_id",
                            json_string(c->flip->claim.operation_id)) < 0 ||
        json_object_set_new(attributes, "generation", generation) < 0)
        return no_memory(err);
    return berth_event_write(c->cas, c->ledger->tenant_id, &event, err);
}

static bool is_in(const json_t *list, const json_t *skill)
{
    const json_t *there = image_find(list, json_string_value(json_object_get(skill, "name")));

    return there &&
           json_equal(json_object_get(there, "bundle"), json_object_get(skill, "bundle"));
}

static enum berth_code add_events(struct change *c, struct berth_error *err)
{
    enum berth_code code = BERTH_OK;

    for (size_t i = 0; !code && i < json_array_size(c->after); i++) {
        const json_t *skill = json_array_get(c->after, i);

        if (!is_in(c->before, skill))
            code = add_event(c, "SKILL_INSTALLED", skill, err);
    }
    for (size_t i = 0; !code && i < json_array_size(c->before); i++) {
        const json_t *skill = json_array_get(c->before, i);

        if (!image_find(c->after, json_string_value(json_object_get(skill, "name"))))
            code = add_event(c, "SKILL_REMOVED", skill, err);
    }
    return code;
}

/* --------------------------------------------------------------------- all of it */

static enum berth_code fill(struct change *c, struct berth_error *err)
{
    const char *again = c->flip->again;
    enum berth_code code = image_wanted(c->ledger, &c->before, err);

    if (!code)
        code = image_list(c->ledger, *again ? again : c->flip->claim.row_id, &c->after, err);
    if (!code)
        code = choose_row(c, err);
    if (code)
        return code;
    make_pointer(c);
    berth_cas_expect(c->cas, c->key, c->ledger->config.rev);
    code = write_pointer(c, err);
    if (!code && *again)
        code = publish_again(c, err);
    if (!code)
        code = supersede(c, err);
    return code ? code : add_events(c, err);
}

static enum berth_code run(struct skills *skills, const struct ledger *ledger,
                           const struct image_flip *flip, struct berth_image_pointer *ret,
                           bool *ret_applied, struct berth_error *err)
{
    struct change c = {.ledger = ledger, .flip = flip, .cas = berth_cas_new()};
    const char *const keys[] = {berth_key_config(c.key, ledger->tenant_id, ledger->config_id)};
    enum berth_code code = c.cas ? fill(&c, err) : no_memory(err);

    if (!code)
        code = berth_records_run(skills->records, c.cas, keys, 1, ret_applied, err);
    *ret = c.image;
    json_decref(c.before);
    json_decref(c.after);
    berth_cas_free(c.cas);
    return code;
}

enum berth_code image_flip(struct skills *skills, const char *tenant, const char *config_id,
                           const struct image_flip *flip, struct berth_image_pointer *ret,
                           struct berth_error *err)
{
    for (int i = 0; i < SK_CAS_TRIES; i++) {
        struct ledger ledger = {0};
        enum image_verdict verdict;
        bool applied = false;
        enum berth_code code = ledger_read(skills->redis, tenant, config_id, &ledger, err);

        if (code)
            return code;
        verdict = image_judge_flip(&ledger, &flip->claim);
        if (verdict == IMAGE_IS_FLIPPED) {
            *ret = ledger.config.image;
            applied = true;
        } else if (verdict == IMAGE_MAY_FLIP) {
            code = run(skills, &ledger, flip, ret, &applied, err);
        } else {
            code = refuse(verdict, err);
        }
        ledger_deinit(&ledger);
        if (code || applied)
            return code;
    }
    return berth_fail(err, BERTH_REASON_CONFLICT,
                      "too many others wrote to the config's ledger at once");
}
