#include "services/skills/ledger.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/crypto/crypto.h"
#include "common/ids/ids.h"
#include "common/records/deployment.h"
#include "common/records/event.h"
#include "common/records/keys.h"

enum {
    ROW_PREFIX_LEN = 4,
    ROW_FIELD_SIZE = 64,
    PLACE_SIZE = 192,
    SETTLE_MS = 60000, /* after not_after: nothing of a build can land any more */
};

void ledger_deinit(struct ledger *ledger)
{
    for (size_t i = 0; i < ledger->n_lists; i++)
        free(ledger->lists[i].text);
    free(ledger->lists);
    free(ledger->rows);
    free(ledger->lock);
    free(ledger->queue);
    ledger->lists = NULL;
    ledger->rows = NULL;
    ledger->lock = ledger->queue = NULL;
    ledger->n_lists = ledger->n_rows = 0;
}

#define BUILD_PREFIX "b:"
#define LIST_PREFIX "skills:"

/* ----------------------------------------------------------------------- read */

static bool take_list(const struct berth_doc_field *field, struct ledger *out)
{
    struct ledger_list *list = &out->lists[out->n_lists];

    snprintf(list->row_id, sizeof list->row_id, "%s", field->name + strlen(LIST_PREFIX));
    list->text = strdup(field->value);
    out->n_lists += list->text != NULL;
    return list->text != NULL;
}

static enum berth_code read_rows(const struct berth_doc *doc, struct ledger *out,
                                 struct berth_error *err)
{
    out->rows = calloc(doc->n_fields + 1, sizeof *out->rows);
    out->lists = calloc(doc->n_fields + 1, sizeof *out->lists);
    out->lock = strdup(berth_doc_get(doc, "lock"));
    out->queue = strdup(berth_doc_get(doc, "queue"));
    if (!out->rows || !out->lists || !out->lock || !out->queue)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    for (size_t i = 0; i < doc->n_fields; i++) {
        enum berth_code code;

        if (strncmp(doc->fields[i].name, LIST_PREFIX, strlen(LIST_PREFIX)) == 0 &&
            !take_list(&doc->fields[i], out))
            return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        if (strncmp(doc->fields[i].name, "row:", ROW_PREFIX_LEN) != 0)
            continue;
        code = berth_snapshot_row_parse(doc->fields[i].value, &out->rows[out->n_rows], err);
        if (code)
            return berth_wrap(err, code, "%s: %s", doc->key, doc->fields[i].name);
        out->n_rows++;
    }
    return BERTH_OK;
}

enum berth_code ledger_check_tenant(struct berth_redis *redis, const char *tenant_id,
                                    const struct berth_tenant_doc *tenant,
                                    struct berth_error *err)
{
    enum berth_code code;

    if (!tenant->exists) {
        code = berth_epoch_check(redis, err);
        return code ? code
                    : berth_fail(err, BERTH_REASON_TENANT_NOT_FOUND, "no tenant '%s'",
                                 tenant_id);
    }
    if (tenant->disabled)
        return berth_fail(err, BERTH_REASON_TENANT_DISABLED, "tenant '%s' is disabled",
                          tenant_id);
    return BERTH_OK;
}

enum berth_code ledger_read(struct berth_redis *redis, const char *tenant,
                            const char *config_id, struct ledger *ret, struct berth_error *err)
{
    char tenant_key[BERTH_KEY_MAX], config_key[BERTH_KEY_MAX];
    const struct berth_redis_get gets[] = {
        {.key = berth_key_tenant(tenant_key, tenant),
         .fields = berth_tenant_fields,
         .n_fields = berth_n_tenant_fields},
        {.key = berth_key_config(config_key, tenant, config_id)},
    };
    struct ledger out = {0};
    struct berth_doc docs[2];
    enum berth_code code = berth_redis_read(redis, gets, 2, &out.now_ms, docs, err);

    if (code)
        return code;
    snprintf(out.tenant_id, sizeof out.tenant_id, "%s", tenant);
    snprintf(out.config_id, sizeof out.config_id, "%s", config_id);
    code = berth_tenant_doc_parse(&docs[0], &out.tenant, err);
    if (!code && !out.tenant.exists) {
        code = berth_epoch_check(redis, err);
        if (!code)
            code = berth_fail(err, BERTH_REASON_TENANT_NOT_FOUND, "no tenant '%s'", tenant);
    }
    if (!code)
        code = berth_config_doc_parse(&docs[1], &out.config, err);
    if (!code)
        code = read_rows(&docs[1], &out, err);
    berth_doc_deinit(&docs[0]);
    berth_doc_deinit(&docs[1]);
    if (code)
        ledger_deinit(&out);
    else
        *ret = out;
    return code;
}

struct berth_snapshot_row *ledger_find(struct ledger *ledger, const char *row_id)
{
    for (size_t i = 0; i < ledger->n_rows; i++)
        if (strcmp(ledger->rows[i].row_id, row_id) == 0)
            return &ledger->rows[i];
    return NULL;
}

struct berth_snapshot_row *ledger_find_generation(struct ledger *ledger, uint64_t generation)
{
    for (size_t i = 0; generation && i < ledger->n_rows; i++)
        if (ledger->rows[i].generation == generation)
            return &ledger->rows[i];
    return NULL;
}

/* Another row that keeps the snapshot; an active one before others. NULL: there is none. */
static const struct berth_snapshot_row *keeper(const struct ledger *ledger,
                                               const struct berth_snapshot_row *row)
{
    const struct berth_snapshot_row *found = NULL;

    for (size_t i = 0; row->snapshot_id[0] && i < ledger->n_rows; i++) {
        const struct berth_snapshot_row *other = &ledger->rows[i];

        if (strcmp(other->row_id, row->row_id) == 0 ||
            strcmp(other->snapshot_id, row->snapshot_id) != 0 ||
            strcmp(other->state, "deleted") == 0 || strcmp(other->state, "abandoned") == 0)
            continue;
        if (!found || strcmp(other->state, "active") == 0)
            found = other;
    }
    return found;
}

bool ledger_is_shared(const struct ledger *ledger, const struct berth_snapshot_row *row)
{
    return keeper(ledger, row) != NULL;
}

bool ledger_is_live(const struct ledger *ledger, const struct berth_snapshot_row *row)
{
    const struct berth_image_pointer *image = &ledger->config.image;

    return strcmp(image->row_id, row->row_id) == 0 ||
           (image->snapshot_id[0] && strcmp(image->snapshot_id, row->snapshot_id) == 0);
}

bool ledger_is_orphan(const struct ledger *ledger, const struct berth_snapshot_row *row,
                      int64_t lease_ms)
{
    return strcmp(row->state, "building") == 0 &&
           (row->owner[0] ? ledger->now_ms - row->beat_ms > lease_ms
                          : ledger_is_settled(ledger, row));
}

bool ledger_is_settled(const struct ledger *ledger, const struct berth_snapshot_row *row)
{
    return ledger->now_ms > row->not_after_ms + SETTLE_MS;
}

enum berth_code ledger_locate(struct berth_redis *redis, const char *tenant,
                              const char *snapshot_id, char ret_config[129], char ret_row[33],
                              struct berth_error *err)
{
    char tenant_key[BERTH_KEY_MAX], index_key[BERTH_KEY_MAX];
    const char *const fields[] = {snapshot_id};
    const struct berth_redis_get gets[] = {
        {.key = berth_key_tenant(tenant_key, tenant),
         .fields = berth_tenant_fields,
         .n_fields = berth_n_tenant_fields},
        {.key = berth_key_snapshot_index(index_key, tenant), .fields = fields, .n_fields = 1},
    };
    struct berth_tenant_doc doc;
    struct berth_doc docs[2];
    const char *place, *slash;
    int64_t now_ms;
    enum berth_code code = berth_redis_read(redis, gets, 2, &now_ms, docs, err);

    if (code)
        return code;
    code = berth_tenant_doc_parse(&docs[0], &doc, err);
    if (!code)
        code = ledger_check_tenant(redis, tenant, &doc, err);
    place = berth_doc_get(&docs[1], snapshot_id);
    slash = strchr(place, '/');
    if (!code && (!slash || slash - place > 128 || strlen(slash + 1) > 32))
        code =
            berth_fail(err, BERTH_REASON_SNAPSHOT_NOT_FOUND, "no snapshot '%s'", snapshot_id);
    if (!code) {
        snprintf(ret_config, 129, "%.*s", (int)(slash - place), place);
        snprintf(ret_row, 33, "%s", slash + 1);
    }
    berth_doc_deinit(&docs[0]);
    berth_doc_deinit(&docs[1]);
    return code;
}

enum berth_code ledger_configs(struct berth_redis *redis, const char *tenant,
                               struct berth_reply **ret, struct berth_error *err)
{
    char key[BERTH_KEY_MAX];
    const char *const argv[] = {"ZRANGE", berth_key_index_configs(key, tenant), "0", "-1"};
    enum berth_code code = berth_redis_call(redis, BERTH_COUNT(argv), argv, NULL, ret, err);

    if (code == BERTH_UNKNOWN)
        return berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE, NULL);
    return code;
}

/* ---------------------------------------------------------------------- write */

static enum berth_code add_event(struct berth_cas *cas, const struct ledger *ledger,
                                 const struct berth_snapshot_row *row, const char *kind,
                                 struct berth_error *err)
{
    BERTH_AUTO(json_decref)
    json_t *attributes = json_pack("{s:s,s:s,s:s}", "snapshot_id", row->snapshot_id, "row_id",
                                   row->row_id, "display_name", row->display_name);
    const struct berth_event event = {
        .kind = kind,
        .session_id = row->source_session,
        .config_id = ledger->config_id,
        .attributes = attributes,
    };

    return attributes ? berth_event_write(cas, ledger->tenant_id, &event, err)
                      : berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

static enum berth_code write_row(struct berth_cas *cas, const struct ledger *ledger,
                                 const struct berth_snapshot_row *row,
                                 enum ledger_change change, struct berth_error *err)
{
    BERTH_AUTO(free) char *json = berth_snapshot_row_format(row);
    char key[BERTH_KEY_MAX], index[BERTH_KEY_MAX], field[ROW_FIELD_SIZE], place[PLACE_SIZE];
    const struct berth_snapshot_row *kept = keeper(ledger, row);
    char list[ROW_FIELD_SIZE], rev[17];

    if (!json)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    berth_key_config(key, ledger->tenant_id, ledger->config_id);
    berth_key_snapshot_index(index, ledger->tenant_id);
    snprintf(field, sizeof field, "row:%s", row->row_id);
    snprintf(place, sizeof place, "%s/%s", ledger->config_id, row->row_id);
    berth_cas_expect(cas, key, ledger->config.rev);
    berth_cas_write(cas, "HSET", key, "rev", berth_rev_new(rev), NULL);
    switch (change) {
    case LEDGER_PUBLISH:
        berth_cas_write(cas, "HSET", index, row->snapshot_id, place, NULL);
        berth_cas_write(cas, "HSET", key, field, json, NULL);
        return add_event(cas, ledger, row, "SNAPSHOT_CREATED", err);
    case LEDGER_REMOVE:
        snprintf(list, sizeof list, LIST_PREFIX "%s", row->row_id);
        berth_cas_write(cas, "HDEL", key, field, list, NULL);
        if (!row->snapshot_id[0])
            return BERTH_OK;
        if (kept) {
            snprintf(place, sizeof place, "%s/%s", ledger->config_id, kept->row_id);
            berth_cas_write(cas, "HSET", index, row->snapshot_id, place, NULL);
            return BERTH_OK;
        }
        berth_cas_write(cas, "HDEL", index, row->snapshot_id, NULL);
        return add_event(cas, ledger, row, "SNAPSHOT_DELETED", err);
    case LEDGER_BUILD:
    case LEDGER_KEEP:
        berth_cas_write(cas, "HSET", key, field, json, NULL);
        return BERTH_OK;
    }
    return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "unknown change");
}

/* It counts as one that is being made until it is in the index, or given up. */
static void write_quota(struct berth_cas *cas, const struct ledger *ledger,
                        const struct berth_snapshot_row *row, enum ledger_change change,
                        const struct ledger_quota *quota)
{
    char key[BERTH_KEY_MAX], field[ROW_FIELD_SIZE], rev[17];

    berth_key_quota(key, ledger->tenant_id);
    snprintf(field, sizeof field, BUILD_PREFIX "%s", row->row_id);
    if (change == LEDGER_BUILD) {
        if (quota)
            berth_cas_expect(cas, key, quota->rev);
        berth_cas_write(cas, "HSET", key, "rev", berth_rev_new(rev), field, ledger->config_id,
                        NULL);
        berth_cas_write(cas, "PERSIST", key, NULL);
    } else if (strcmp(row->state, "building") != 0) {
        berth_cas_write(cas, "HDEL", key, field, NULL);
    }
}

/* What is being made first: one that is published in between counts twice, none not at all. */
enum berth_code ledger_count(struct berth_redis *redis, const char *tenant,
                             struct ledger_quota *ret, struct berth_error *err)
{
    char key[BERTH_KEY_MAX], index[BERTH_KEY_MAX];
    const struct berth_redis_get get = {.key = berth_key_quota(key, tenant)};
    const char *const argv[] = {"HLEN", berth_key_snapshot_index(index, tenant)};
    BERTH_AUTO(berth_reply_free) struct berth_reply *reply = NULL;
    struct berth_doc doc;
    int64_t now_ms;
    enum berth_code code = berth_redis_read(redis, &get, 1, &now_ms, &doc, err);

    if (code)
        return code;
    *ret = (struct ledger_quota){0};
    snprintf(ret->rev, sizeof ret->rev, "%s", berth_doc_get(&doc, "rev"));
    for (size_t i = 0; i < doc.n_fields; i++)
        ret->n += strncmp(doc.fields[i].name, BUILD_PREFIX, strlen(BUILD_PREFIX)) == 0;
    berth_doc_deinit(&doc);
    code = berth_redis_call(redis, BERTH_COUNT(argv), argv, NULL, &reply, err);
    if (code == BERTH_UNKNOWN)
        return berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE, NULL);
    if (!code && (reply->type != BERTH_REPLY_INTEGER || reply->integer < 0))
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "the index of snapshots has no size");
    if (!code)
        ret->n += (uint64_t)reply->integer;
    return code;
}

static enum berth_code run_write(struct berth_records *records, struct berth_cas *cas,
                                 const struct ledger *ledger,
                                 const struct berth_snapshot_row *row,
                                 enum ledger_change change, const struct ledger_quota *quota,
                                 bool *ret_applied, struct berth_error *err)
{
    char key[BERTH_KEY_MAX];
    const char *const keys[] = {berth_key_config(key, ledger->tenant_id, ledger->config_id)};
    enum berth_code code = write_row(cas, ledger, row, change, err);

    write_quota(cas, ledger, row, change, quota);
    if (change != LEDGER_BUILD) /* a store that is full takes what is there, or goes */
        berth_cas_when_full(cas);
    return code ? code : berth_records_run(records, cas, keys, 1, ret_applied, err);
}

enum berth_code ledger_write(struct berth_records *records, const struct ledger *ledger,
                             const struct berth_snapshot_row *row, enum ledger_change change,
                             const struct ledger_quota *quota, bool *ret_applied,
                             struct berth_error *err)
{
    BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();

    if (!cas)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    return run_write(records, cas, ledger, row, change, quota, ret_applied, err);
}

enum berth_code ledger_build_image(struct berth_records *records, const struct ledger *ledger,
                                   const struct berth_snapshot_row *row, const char *list,
                                   const struct ledger_quota *quota, bool *ret_applied,
                                   struct berth_error *err)
{
    BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
    char key[BERTH_KEY_MAX], field[ROW_FIELD_SIZE], next[24];

    if (!cas)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (row->generation != ledger->config.next_generation)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "not the next generation");
    berth_key_config(key, ledger->tenant_id, ledger->config_id);
    snprintf(field, sizeof field, LIST_PREFIX "%s", row->row_id);
    snprintf(next, sizeof next, "%" PRIu64, row->generation + 1);
    berth_cas_write(cas, "HSET", key, "next_generation", next, field, list, NULL);
    return run_write(records, cas, ledger, row, LEDGER_BUILD, quota, ret_applied, err);
}

static void make_name(char buf[LEDGER_NAME_SIZE], const char *tenant, const char *config_id,
                      const char *kind, const char *tail)
{
    const char *const parts[] = {tenant, config_id};
    uint8_t digest[32];
    char hex[17];

    berth_fingerprint(parts, BERTH_COUNT(parts), digest);
    snprintf(buf, LEDGER_NAME_SIZE, "berth-%s-%s-%s", kind, berth_hex(hex, digest, 8), tail);
}

void ledger_planned_name(char buf[LEDGER_NAME_SIZE], const char *tenant, const char *config_id,
                         const char *row_id)
{
    make_name(buf, tenant, config_id, "us", row_id);
}

void ledger_image_name(char buf[LEDGER_NAME_SIZE], const char *tenant, const char *config_id,
                       uint64_t generation, const char *row_id)
{
    char tail[48];

    snprintf(tail, sizeof tail, "g%" PRIu64 "-%s", generation, row_id);
    make_name(buf, tenant, config_id, "sk", tail);
}
