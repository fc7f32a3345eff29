/* check.c - once a minute: every record there is, against the journal. */
#include <jansson.h>
#include <search.h>
#include <stdio.h>

#include "common/journal/frame.h"
#include "common/journal/records_impl.h"
#include "common/log/log.h"
#include "common/records/deployment.h"
#include "common/time/time.h"

enum { READ_MANY = 32 };
#define UNSEEN_MS                                                                              \
    ((int64_t)30 * 24 * 3600 * 1000) /* a journal that nobody has written since                \
                                      */

/* ------------------------------------------------------------------------- walk */

struct walk {
    struct berth_redis *redis;
    record_fn fn;
    void *arg;
};

static enum berth_code tell_some(struct walk *walk, char keys[][BERTH_KEY_MAX], size_t n,
                                 struct berth_error *err)
{
    static const char *const fields[] = {"rev"};
    struct berth_redis_get gets[READ_MANY] = {{0}};
    struct berth_doc docs[READ_MANY] = {{0}};
    int64_t now_ms;
    enum berth_code code;

    for (size_t i = 0; i < n; i++)
        gets[i] = (struct berth_redis_get){.key = keys[i], .fields = fields, .n_fields = 1};
    code = berth_redis_read(walk->redis, gets, n, &now_ms, docs, err);
    if (code)
        return code;
    for (size_t i = 0; i < n; i++) {
        const char *rev = berth_doc_get(&docs[i], "rev");

        if (!code && *rev)
            code = walk->fn(walk->arg, keys[i], rev, err);
        berth_doc_deinit(&docs[i]);
    }
    return code;
}

static enum berth_code walk_tenant(struct walk *walk, const char *tenant,
                                   struct berth_error *err)
{
    BERTH_AUTO(berth_reply_free) struct berth_reply *ids = NULL;
    char keys[READ_MANY][BERTH_KEY_MAX];
    size_t n = 1;
    enum berth_code code =
        record_call(walk->redis, &ids, err, "ZRANGE", berth_key_index_configs(keys[0], tenant),
                    "0", "-1", NULL);

    berth_key_tenant(keys[0], tenant);
    for (size_t i = 0; !code && i < ids->n_items; i++) {
        if (strlen(ids->items[i]->string) > RECORDS_ID_MAX)
            continue;
        berth_key_config(keys[n++], tenant, ids->items[i]->string);
        if (n < READ_MANY)
            continue;
        code = tell_some(walk, keys, n, err);
        n = 0;
    }
    return code || n == 0 ? code : tell_some(walk, keys, n, err);
}

enum berth_code records_walk(struct berth_redis *redis, record_fn fn, void *arg,
                             struct berth_error *err)
{
    struct walk walk = {redis, fn, arg};
    BERTH_AUTO(berth_reply_free) struct berth_reply *tenants = NULL;
    enum berth_code code =
        record_call(redis, &tenants, err, "SMEMBERS", BERTH_KEY_TENANTS, NULL);

    if (!code)
        code = walk_tenant(&walk, RECORDS_DEPLOYMENT_TENANT, err);
    for (size_t i = 0; !code && i < tenants->n_items; i++)
        if (strlen(tenants->items[i]->string) <= RECORDS_ID_MAX)
            code = walk_tenant(&walk, tenants->items[i]->string, err);
    return code;
}

/* ------------------------------------------------------------------------ check */

struct check {
    struct berth_records *records;
    void *seen; /* tsearch: keys that are in Redis */
};

static int compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* The rev of what the journal has; "": nothing. */
static enum berth_code journaled_rev(struct berth_records *records, const char *key,
                                     char ret[17], struct berth_error *err)
{
    struct berth_doc doc = {0};
    uint8_t *data;
    size_t size;
    int64_t time_ms;
    enum berth_code code =
        berth_journal_find(records->journal, key, &data, &size, &time_ms, err);

    ret[0] = 0;
    if (code || !data)
        return code;
    code = journal_doc_read(data, size, &doc, err);
    if (!code)
        snprintf(ret, 17, "%s", berth_doc_get(&doc, "rev"));
    berth_doc_deinit(&doc);
    berth_wipe(data, size);
    free(data);
    return code;
}

static enum berth_code check_one(void *arg, const char *key, const char *rev,
                                 struct berth_error *err)
{
    struct check *check = arg;
    char known[17], *copy = strdup(key);
    enum berth_code code;

    if (!copy || !tsearch(copy, &check->seen, compare)) {
        free(copy);
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    code = journaled_rev(check->records, key, known, err);
    if (code || strcmp(known, rev) == 0)
        return code;
    return records_append(check->records->redis, check->records->journal, &key, 1, -1, err);
}

/* The mark that a delete leaves behind; 0: there is none. */
static enum berth_code read_gone(struct berth_records *records, const char *tenant,
                                 const char *id, int64_t *ret_ms, struct berth_error *err)
{
    char key[BERTH_KEY_MAX];
    BERTH_AUTO(berth_reply_free) struct berth_reply *reply = NULL;
    enum berth_code code = record_call(records->redis, &reply, err, "HGET",
                                       record_key_gone(key, tenant), id, NULL);

    if (!code)
        *ret_ms = reply->type == BERTH_REPLY_STRING ? strtoll(reply->string, NULL, 10) : 0;
    return code;
}

/* In the journal, and not in Redis: deleted by somebody, or lost. */
static enum berth_code check_absent(void *arg, const struct berth_journal_entry *entry,
                                    struct berth_error *err)
{
    struct check *check = arg;
    char tenant[RECORDS_ID_MAX + 1], id[RECORDS_ID_MAX + 1];
    enum record_kind kind = record_kind_of(entry->key, tenant, id);
    int64_t gone_ms = 0;
    bool wrote = false;
    enum berth_code code = BERTH_OK;

    if (entry->deleted || (kind != RECORD_TENANT && kind != RECORD_CONFIG) ||
        tfind(entry->key, &check->seen, compare))
        return BERTH_OK;
    if (kind == RECORD_CONFIG)
        code = read_gone(check->records, tenant, id, &gone_ms, err);
    if (!code && gone_ms > entry->time_ms) {
        const struct berth_journal_entry gone = {
            .key = entry->key, .deleted = true, .time_ms = gone_ms + 1};

        return berth_journal_append(check->records->journal, &gone, 1, err);
    }
    if (!code)
        code = record_restore(check->records->redis, entry, &wrote, err);
    if (!code && wrote)
        code = record_mark_late(check->records->redis, entry->key, err);
    if (!code && wrote)
        berth_warn("a record was in the journal and not in the store, put it back", "key",
                   entry->key);
    return code;
}

enum berth_code berth_records_check(struct berth_records *records, struct berth_error *err)
{
    struct check check = {.records = records};
    enum berth_code code;

    if (!records->journal)
        return BERTH_OK;
    code = berth_epoch_check(records->redis, err);
    if (!code && berth_journal_check(records->journal, NULL))
        code = berth_journal_compact(records->journal, NULL, err); /* it may be sound again */
    if (!code)
        code = records_register(records, err);
    if (!code)
        code = records_walk(records->redis, check_one, &check, err);
    if (!code)
        code = berth_journal_walk(records->journal, check_absent, &check, err);
    if (check.seen)
        tdestroy(check.seen, free);
    pthread_mutex_lock(&records->mutex);
    records->n_checked += !code;
    pthread_mutex_unlock(&records->mutex);
    return code;
}

/* --------------------------------------------------------------------- register */

static char *describe(struct berth_records *records)
{
    struct berth_journal_count count;
    json_t *keys = json_array(), *object;
    char *text;

    berth_journal_count(records->journal, &count);
    for (size_t i = 0; keys && i < count.n_keys; i++)
        json_array_append_new(keys, json_string(count.keys[i].key_id));
    object = json_pack("{s:s,s:I,s:o}", "name", records->name, "seen_ms",
                       (json_int_t)berth_now_ms(), "keys", keys);
    text = object ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    return text;
}

static int64_t seen_ms(const char *text)
{
    json_t *object = json_loads(text, 0, NULL);
    int64_t value = json_integer_value(json_object_get(object, "seen_ms"));

    json_decref(object);
    return value;
}

/* Names of the journals that are registered, "id name" each, as a document. */
static enum berth_code note_members(struct berth_records *records,
                                    const struct berth_reply *all, struct berth_error *err)
{
    struct berth_doc doc = {.exists = true,
                            .fields = calloc(all->n_items / 2 + 1, sizeof *doc.fields)};
    uint8_t *data = NULL, *known = NULL;
    size_t size = 0, known_size = 0;
    int64_t time_ms;
    enum berth_code code = BERTH_OK;

    if (!doc.fields)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    for (size_t i = 0; i + 1 < all->n_items; i += 2)
        if (seen_ms(all->items[i + 1]->string) >= berth_now_ms() - UNSEEN_MS)
            doc.fields[doc.n_fields++] =
                (struct berth_doc_field){all->items[i]->string, (char *)"", 0};
    data = journal_doc_write(&doc, NULL, &size);
    free(doc.fields);
    if (!data)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    code = berth_journal_find(records->journal, BERTH_KEY_JOURNALS, &known, &known_size,
                              &time_ms, err);
    if (!code && (!known || known_size != size || memcmp(known, data, size) != 0)) {
        const struct berth_journal_entry entry = {.key = BERTH_KEY_JOURNALS,
                                                  .time_ms = berth_now_ms(),
                                                  .doc = data,
                                                  .doc_size = size};

        code = berth_journal_append(records->journal, &entry, 1, err);
    }
    free(known);
    free(data);
    return code;
}

enum berth_code records_register(struct berth_records *records, struct berth_error *err)
{
    BERTH_AUTO(free) char *text = describe(records);
    BERTH_AUTO(berth_reply_free) struct berth_reply *set = NULL;
    BERTH_AUTO(berth_reply_free) struct berth_reply *all = NULL;
    enum berth_code code;

    if (!text)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    code = record_call(records->redis, &set, err, "HSET", BERTH_KEY_JOURNALS,
                       berth_journal_id(records->journal), text, NULL);
    if (!code)
        code = record_call(records->redis, &all, err, "HGETALL", BERTH_KEY_JOURNALS, NULL);
    return code ? code : note_members(records, all, err);
}
