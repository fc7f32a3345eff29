/* restore.c - what a journal has, back into Redis. Every writer does this with its own;
 * whichever comes last, the newest entry of a key stands, and whatever was written live stands
 * over all. */
#include <inttypes.h>
#include <stdio.h>

#include "common/journal/frame.h"
#include "common/journal/records_impl.h"
#include "common/log/log.h"
#include "common/records/config_doc.h"
#include "common/records/deployment.h"
#include "common/time/time.h"

enum { TRIES = 8, MARKER_SIZE = 48, PLACE_SIZE = 192 };

enum record_do record_judge(bool exists, const char *rev, const char *restored, int64_t gone_ms,
                            bool entry_deleted, int64_t entry_ms)
{
    const char *space = strchr(restored, ' ');
    int64_t known_ms = gone_ms;

    if (exists) {
        int64_t restored_ms = space ? strtoll(restored, NULL, 10) : 0;

        if (!space || strcmp(space + 1, rev) != 0)
            return RECORD_LEAVE; /* written since, by somebody who saw it */
        if (restored_ms > known_ms)
            known_ms = restored_ms;
    }
    if (known_ms > 0 && entry_ms <= known_ms)
        return RECORD_LEAVE;
    if (!entry_deleted)
        return RECORD_WRITE;
    return RECORD_REMOVE;
}

/* One entry being put back. */
struct back {
    struct berth_redis *redis;
    const struct berth_journal_entry *entry;
    struct berth_doc doc; /* of the entry */
    enum record_kind kind;
    char tenant[RECORDS_ID_MAX + 1], id[RECORDS_ID_MAX + 1];
    char gone_key[BERTH_KEY_MAX];
    /* As Redis has it. */
    bool exists, gone_marked;
    char rev[17], gone_rev[17];
};

static enum berth_code read_there(struct back *b, enum record_do *ret, struct berth_error *err)
{
    const char *const fields[] = {"rev", "restored"};
    const char *const gone_fields[] = {"rev", b->id};
    const struct berth_redis_get gets[] = {
        {.key = b->entry->key, .fields = fields, .n_fields = 2},
        {.key = b->gone_key, .fields = gone_fields, .n_fields = b->id[0] ? 2 : 1},
    };
    struct berth_doc docs[2];
    int64_t now_ms;
    enum berth_code code = berth_redis_read(b->redis, gets, 2, &now_ms, docs, err);
    const char *gone;

    if (code)
        return code;
    gone = b->id[0] ? berth_doc_get(&docs[1], b->id) : "";
    snprintf(b->rev, sizeof b->rev, "%s", berth_doc_get(&docs[0], "rev"));
    snprintf(b->gone_rev, sizeof b->gone_rev, "%s", berth_doc_get(&docs[1], "rev"));
    b->exists = b->rev[0] != 0;
    b->gone_marked = gone[0] != 0;
    *ret = record_judge(b->exists, b->rev, berth_doc_get(&docs[0], "restored"),
                        strtoll(gone, NULL, 10), b->entry->deleted, b->entry->time_ms);
    berth_doc_deinit(&docs[0]);
    berth_doc_deinit(&docs[1]);
    return BERTH_OK;
}

/* Snapshots are found by their ids, too: the index follows from the rows. Of those that name
 * the same one, the active row is found. */
static void index_row(const struct back *b, struct berth_cas *cas,
                      const struct berth_doc_field *field, bool active)
{
    char key[BERTH_KEY_MAX], place[PLACE_SIZE];
    struct berth_snapshot_row row;

    if (strncmp(field->name, "row:", 4) != 0 ||
        berth_snapshot_row_parse(field->value, &row, NULL) || !row.snapshot_id[0] ||
        (strcmp(row.state, "active") == 0) != active)
        return;
    snprintf(place, sizeof place, "%s/%s", b->id, row.row_id);
    berth_cas_write(cas, "HSET", berth_key_snapshot_index(key, b->tenant), row.snapshot_id,
                    place, NULL);
}

static void write_doc(const struct back *b, struct berth_cas *cas)
{
    char key[BERTH_KEY_MAX], marker[MARKER_SIZE], rev[17];

    if (b->exists)
        berth_cas_write(cas, "DEL", b->entry->key, NULL);
    for (size_t i = 0; i < b->doc.n_fields; i++) {
        berth_cas_hset(cas, b->entry->key, b->doc.fields[i].name, b->doc.fields[i].value,
                       b->doc.fields[i].size);
    }
    for (size_t i = 0; b->kind == RECORD_CONFIG && i < 2 * b->doc.n_fields; i++)
        index_row(b, cas, &b->doc.fields[i % b->doc.n_fields], i >= b->doc.n_fields);
    snprintf(marker, sizeof marker, "%" PRId64 " %s", b->entry->time_ms,
             berth_doc_get(&b->doc, "rev"));
    berth_cas_hset(cas, b->entry->key, "restored", marker, strlen(marker));
    if (b->kind == RECORD_CONFIG)
        berth_cas_write(cas, "ZADD", berth_key_index_configs(key, b->tenant), "0", b->id, NULL);
    if (b->gone_marked) {
        berth_cas_write(cas, "HSET", b->gone_key, "rev", berth_rev_new(rev), NULL);
        berth_cas_write(cas, "HDEL", b->gone_key, b->id, NULL);
    }
}

/* Remembered even where there was nothing: an older entry of another journal may follow. */
static void remove_doc(const struct back *b, struct berth_cas *cas)
{
    char key[BERTH_KEY_MAX], at[24], rev[17];

    snprintf(at, sizeof at, "%" PRId64, b->entry->time_ms);
    if (b->exists)
        berth_cas_write(cas, "DEL", b->entry->key, NULL);
    if (b->kind == RECORD_CONFIG)
        berth_cas_write(cas, "ZREM", berth_key_index_configs(key, b->tenant), b->id, NULL);
    berth_cas_write(cas, "HSET", b->gone_key, "rev", berth_rev_new(rev), b->id, at, NULL);
}

static enum berth_code try_back(struct back *b, bool *ret_done, bool *ret_wrote,
                                struct berth_error *err)
{
    BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
    enum record_do what = RECORD_LEAVE;
    int64_t now_ms;
    enum berth_code code = read_there(b, &what, err);

    if (code)
        return code;
    *ret_done = what == RECORD_LEAVE || (what == RECORD_REMOVE && !b->id[0]);
    if (*ret_done)
        return BERTH_OK;
    if (!cas)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    berth_cas_expect(cas, b->entry->key, b->rev);
    berth_cas_expect(cas, b->gone_key, b->gone_rev);
    if (what == RECORD_WRITE)
        write_doc(b, cas);
    else
        remove_doc(b, cas);
    code = berth_cas_run_settled(b->redis, cas, true, ret_done, &now_ms, err);
    *ret_wrote = !code && *ret_done && what == RECORD_WRITE;
    return code;
}

/* What names a token's tenant, outside the tenant's slot. */
static enum berth_code restore_tokens(const struct back *b, struct berth_error *err)
{
    const size_t prefix = strlen(BERTH_TOKEN_FIELD);
    enum berth_code code = BERTH_OK;

    for (size_t i = 0; !code && i < b->doc.n_fields; i++) {
        const char *name = b->doc.fields[i].name;
        BERTH_AUTO(berth_reply_free) struct berth_reply *reply = NULL;
        char key[BERTH_KEY_MAX];

        if (strncmp(name, BERTH_TOKEN_FIELD, prefix) == 0 &&
            strlen(name + prefix) <= RECORDS_ID_MAX)
            code = record_call(b->redis, &reply, err, "SET",
                               berth_key_token(key, name + prefix), b->tenant, "NX", NULL);
    }
    return code;
}

static enum berth_code restore_doc(struct back *b, bool *ret_wrote, struct berth_error *err)
{
    BERTH_AUTO(berth_reply_free) struct berth_reply *hint = NULL;
    bool done = false;
    enum berth_code code = BERTH_OK;

    /* The set of tenants is a hint: added to before the tenant is written. */
    if (strcmp(b->tenant, RECORDS_DEPLOYMENT_TENANT) != 0)
        code = record_call(b->redis, &hint, err, "SADD", BERTH_KEY_TENANTS, b->tenant, NULL);
    for (int i = 0; !code && !done && i < TRIES; i++)
        code = try_back(b, &done, ret_wrote, err);
    if (!code && !done)
        code = berth_fail(err, BERTH_REASON_CONFLICT, NULL);
    if (!code && b->kind == RECORD_TENANT)
        code = restore_tokens(b, err);
    return code;
}

/* Whose journals have to be read back. */
static enum berth_code restore_members(struct berth_redis *redis, const struct berth_doc *doc,
                                       struct berth_error *err)
{
    enum berth_code code = BERTH_OK;

    for (size_t i = 0; !code && i < doc->n_fields; i++) {
        BERTH_AUTO(berth_reply_free) struct berth_reply *reply = NULL;
        char field[RECORDS_ID_MAX + 16];

        snprintf(field, sizeof field, "writer:%s", doc->fields[i].name);
        code = record_call(redis, &reply, err, "HSETNX", BERTH_KEY_RECOVERY, field, "?", NULL);
    }
    return code;
}

enum berth_code record_restore(struct berth_redis *redis,
                               const struct berth_journal_entry *entry, bool *ret_wrote,
                               struct berth_error *err)
{
    struct back b = {.redis = redis, .entry = entry};
    enum berth_code code = BERTH_OK;

    *ret_wrote = false;
    b.kind = record_kind_of(entry->key, b.tenant, b.id);
    if (b.kind == RECORD_OTHER)
        return BERTH_OK;
    record_key_gone(b.gone_key, b.tenant);
    if (!entry->deleted)
        code = journal_doc_read(entry->doc, entry->doc_size, &b.doc, err);
    if (code)
        return code;
    code = b.kind == RECORD_JOURNALS ? restore_members(redis, &b.doc, err)
                                     : restore_doc(&b, ret_wrote, err);
    berth_doc_deinit(&b.doc);
    return code;
}

/* A config that comes when the pass is over was not listed by it. */
enum berth_code record_mark_late(struct berth_redis *redis, const char *key,
                                 struct berth_error *err)
{
    char tenant[RECORDS_ID_MAX + 1], id[RECORDS_ID_MAX + 1];

    if (record_kind_of(key, tenant, id) != RECORD_CONFIG)
        return BERTH_OK;
    return berth_recovery_mark(redis, tenant, id, true, err);
}

/* --------------------------------------------------------------- a whole journal */

struct all {
    struct berth_redis *redis;
    bool late; /* the index counts as whole already */
    uint64_t n;
};

static enum berth_code restore_one(void *arg, const struct berth_journal_entry *entry,
                                   struct berth_error *err)
{
    struct all *all = arg;
    bool wrote;
    enum berth_code code = record_restore(all->redis, entry, &wrote, err);

    if (!code && wrote && all->late)
        code = record_mark_late(all->redis, entry->key, err);
    all->n += !code && wrote;
    return code ? berth_wrap(err, code, "%s", entry->key) : BERTH_OK;
}

static enum berth_code redis_time(struct berth_redis *redis, char ret[24],
                                  struct berth_error *err)
{
    BERTH_AUTO(berth_reply_free) struct berth_reply *reply = NULL;
    enum berth_code code = record_call(redis, &reply, err, "TIME", NULL);

    if (!code && reply->n_items == 2)
        snprintf(ret, 24, "%lld",
                 strtoll(reply->items[0]->string, NULL, 10) * 1000 +
                     strtoll(reply->items[1]->string, NULL, 10) / 1000);
    return code;
}

enum berth_code records_begin(struct berth_redis *redis, struct berth_error *err)
{
    BERTH_AUTO(berth_reply_free) struct berth_reply *lost = NULL;
    char now[24] = "0";
    enum berth_code code = redis_time(redis, now, err);

    if (!code)
        code =
            record_call(redis, &lost, err, "HSETNX", BERTH_KEY_RECOVERY, "lost_ms", now, NULL);
    if (!code && lost->integer == 1)
        berth_log_error("the index is lost: reading the records back");
    return code;
}

/* Says that we take part, before anything of ours can be waited for in vain. */
static enum berth_code begin(struct berth_records *records, struct berth_error *err)
{
    BERTH_AUTO(berth_reply_free) struct berth_reply *me = NULL;
    char field[RECORDS_ID_MAX + 16];
    enum berth_code code = records_begin(records->redis, err);

    snprintf(field, sizeof field, "writer:%s", berth_journal_id(records->journal));
    if (!code)
        code = record_call(records->redis, &me, err, "HSET", BERTH_KEY_RECOVERY, field,
                           records->name, NULL);
    return code;
}

enum berth_code records_restore(struct berth_records *records, struct berth_error *err)
{
    struct all all = {.redis = records->redis};
    char field[RECORDS_ID_MAX + 16], now[24] = "0";
    BERTH_AUTO(berth_reply_free) struct berth_reply *done = NULL;
    BERTH_AUTO(berth_reply_free) struct berth_reply *said = NULL;
    bool recovering;
    enum berth_code code = berth_records_claim(records, err);

    snprintf(field, sizeof field, "restored:%s", berth_journal_id(records->journal));
    pthread_mutex_lock(&records->mutex);
    recovering = records->recovering; /* not: an epoch that came without us */
    pthread_mutex_unlock(&records->mutex);
    if (!code && recovering)
        code =
            record_call(records->redis, &done, err, "HEXISTS", BERTH_KEY_RECOVERY, field, NULL);
    if (code || (recovering && done->integer == 1))
        return code;
    code = redis_time(records->redis, now, err);
    if (!code && recovering)
        code = begin(records, err);
    all.late = !recovering;
    if (!code)
        code = berth_journal_walk(records->journal, restore_one, &all, err);
    if (!code && recovering)
        code = record_call(records->redis, &said, err, "HSET", BERTH_KEY_RECOVERY, field, now,
                           NULL);
    if (code)
        return code;
    berth_info("records are read back from the journal", "n", BERTH_I64((int64_t)all.n));
    pthread_mutex_lock(&records->mutex);
    records->n_restored += all.n;
    pthread_mutex_unlock(&records->mutex);
    return BERTH_OK;
}

/* --------------------------------------------------------------------- recovery */

static const char *field_of(const struct berth_reply *all, const char *name)
{
    for (size_t i = 0; i + 1 < all->n_items; i += 2)
        if (strcmp(all->items[i]->string, name) == 0)
            return all->items[i + 1]->string;
    return NULL;
}

enum berth_code berth_recovery_read_back(struct berth_redis *redis, bool *ret_done,
                                         int64_t *ret_lost_ms, char ret_missing[128],
                                         struct berth_error *err)
{
    BERTH_AUTO(berth_reply_free) struct berth_reply *all = NULL;
    enum berth_code code = record_call(redis, &all, err, "HGETALL", BERTH_KEY_RECOVERY, NULL);
    const char *lost;

    if (code)
        return code;
    lost = field_of(all, "lost_ms");
    *ret_lost_ms = lost ? strtoll(lost, NULL, 10) : 0;
    *ret_done = lost != NULL;
    ret_missing[0] = 0;
    for (size_t i = 0; i + 1 < all->n_items; i += 2) {
        const char *name = all->items[i]->string, *id = name + strlen("writer:");
        char restored[RECORDS_ID_MAX + 16];

        if (strncmp(name, "writer:", strlen("writer:")) != 0)
            continue;
        snprintf(restored, sizeof restored, "restored:%s", id);
        if (field_of(all, restored))
            continue;
        *ret_done = false;
        snprintf(ret_missing, 128, "%s %s", id, all->items[i + 1]->string);
    }
    return BERTH_OK;
}

/* When the index was lost; now, where nobody wrote it down. */
static enum berth_code lost_time(struct berth_redis *redis, char ret[24],
                                 struct berth_error *err)
{
    BERTH_AUTO(berth_reply_free) struct berth_reply *lost = NULL;
    enum berth_code code =
        record_call(redis, &lost, err, "HGET", BERTH_KEY_RECOVERY, "lost_ms", NULL);

    if (code || lost->type != BERTH_REPLY_STRING)
        return code ? code : redis_time(redis, ret, err);
    snprintf(ret, 24, "%s", lost->string);
    return BERTH_OK;
}

/* The field that binding reads with every session. */
static enum berth_code mark_tenant(struct berth_redis *redis, const char *tenant,
                                   bool recovering, struct berth_error *err)
{
    static const char *const fields[] = {"rev", BERTH_FIELD_RECOVERING};
    char key[BERTH_KEY_MAX], rev[17], lost[24] = "0";
    const struct berth_redis_get get = {
        .key = berth_key_tenant(key, tenant), .fields = fields, .n_fields = 2};
    bool applied = false;

    if (recovering) {
        enum berth_code code = lost_time(redis, lost, err);

        if (code)
            return code;
    }
    for (int i = 0; i < TRIES && !applied; i++) {
        BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
        struct berth_doc doc;
        int64_t now_ms;
        bool is_marked;
        enum berth_code code = berth_redis_read(redis, &get, 1, &now_ms, &doc, err);

        if (code)
            return code;
        snprintf(rev, sizeof rev, "%s", berth_doc_get(&doc, "rev"));
        is_marked = berth_doc_has(&doc, BERTH_FIELD_RECOVERING);
        berth_doc_deinit(&doc);
        if (!rev[0] || is_marked == recovering)
            return BERTH_OK;
        berth_cas_expect(cas, key, rev);
        berth_cas_write(cas, "HSET", key, "rev", berth_rev_new(rev), NULL);
        if (recovering)
            berth_cas_write(cas, "HSET", key, BERTH_FIELD_RECOVERING, lost, NULL);
        else
            berth_cas_write(cas, "HDEL", key, BERTH_FIELD_RECOVERING, NULL);
        code = berth_cas_run_settled(redis, cas, true, &applied, &now_ms, err);
        if (code)
            return code;
    }
    return applied ? BERTH_OK : berth_fail(err, BERTH_REASON_CONFLICT, NULL);
}

static bool has_member_of(const struct berth_reply *members, const char *tenant)
{
    size_t len = strlen(tenant);

    for (size_t i = 0; i < members->n_items; i++)
        if (strncmp(members->items[i]->string, tenant, len) == 0 &&
            members->items[i]->string[len] == '/')
            return true;
    return false;
}

enum berth_code berth_recovery_mark(struct berth_redis *redis, const char *tenant,
                                    const char *config_id, bool recovering,
                                    struct berth_error *err)
{
    BERTH_AUTO(berth_reply_free) struct berth_reply *changed = NULL;
    BERTH_AUTO(berth_reply_free) struct berth_reply *left = NULL;
    char member[2 * RECORDS_ID_MAX + 2];
    enum berth_code code = recovering ? mark_tenant(redis, tenant, true, err) : BERTH_OK;

    snprintf(member, sizeof member, "%.128s/%.128s", tenant, config_id);
    if (!code)
        code = record_call(redis, &changed, err, recovering ? "SADD" : "SREM",
                           BERTH_KEY_UNLISTED, member, NULL);
    if (code || recovering)
        return code;
    code = record_call(redis, &left, err, "SMEMBERS", BERTH_KEY_UNLISTED, NULL);
    if (!code && !has_member_of(left, tenant))
        code = mark_tenant(redis, tenant, false, err);
    return code;
}

static enum berth_code without_config(struct berth_redis *redis, const char *what,
                                      const char *slash, struct berth_error *err)
{
    BERTH_AUTO(berth_reply_free) struct berth_reply *there = NULL;
    char tenant[RECORDS_ID_MAX + 1];
    enum berth_code code =
        record_call(redis, &there, err, "SISMEMBER", BERTH_KEY_UNLISTED, what, NULL);

    if (!code && there->integer == 0)
        return berth_fail_field(err, "recover_without", "config '%s' is not waited for", what);
    snprintf(tenant, sizeof tenant, "%.*s", (int)(slash - what), what);
    return code ? code : berth_recovery_mark(redis, tenant, slash + 1, false, err);
}

enum berth_code berth_recovery_without(struct berth_redis *redis, const char *what,
                                       struct berth_error *err)
{
    BERTH_AUTO(berth_reply_free) struct berth_reply *there = NULL;
    BERTH_AUTO(berth_reply_free) struct berth_reply *said = NULL;
    const char *slash = strchr(what, '/');
    char field[RECORDS_ID_MAX + 16];
    enum berth_code code;

    if (slash)
        return without_config(redis, what, slash, err);
    snprintf(field, sizeof field, "writer:%.128s", what);
    code = record_call(redis, &there, err, "HEXISTS", BERTH_KEY_RECOVERY, field, NULL);
    if (!code && there->integer == 0)
        return berth_fail_field(err, "recover_without", "no journal '%s' is waited for", what);
    snprintf(field, sizeof field, "restored:%.128s", what);
    if (!code)
        code =
            record_call(redis, &said, err, "HSET", BERTH_KEY_RECOVERY, field, "given up", NULL);
    return code;
}
