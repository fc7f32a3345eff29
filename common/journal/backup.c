/* backup.c - every record into a file, and back. The file is a journal like any other. */
#include <stdio.h>

#include "common/journal/records_impl.h"
#include "common/records/deployment.h"

struct export
{
    struct berth_redis *redis;
    struct berth_journal *journal;
    struct berth_backup_count *count;
};

static void count_one(struct berth_backup_count *count, const char *key)
{
    char tenant[RECORDS_ID_MAX + 1], id[RECORDS_ID_MAX + 1];

    switch (record_kind_of(key, tenant, id)) {
    case RECORD_TENANT:
        count->n_tenants += strcmp(tenant, RECORDS_DEPLOYMENT_TENANT) != 0;
        break;
    case RECORD_CONFIG:
        count->n_configs++;
        break;
    default:
        count->n_other++;
        break;
    }
}

static enum berth_code export_one(void *arg, const char *key, const char *rev,
                                  struct berth_error *err)
{
    struct export *x = arg;

    (void)rev;
    count_one(x->count, key);
    return records_append(x->redis, x->journal, &key, 1, -1, err);
}

enum berth_code berth_records_export(struct berth_redis *redis,
                                     const struct berth_keyring *keyring,
                                     const char *deployment, const char *path,
                                     struct berth_backup_count *ret, struct berth_error *err)
{
    const struct berth_journal_options options = {
        .path = path, .deployment = deployment, .keyring = keyring, .must_be_new = true};
    BERTH_AUTO(berth_journal_free) struct berth_journal *journal = NULL;
    struct export x = {.redis = redis, .count = ret};
    enum berth_code code = berth_deployment_check(redis, deployment, err);

    *ret = (struct berth_backup_count){0};
    if (!code)
        code = berth_epoch_check(redis, err);
    if (!code)
        code = berth_journal_open(&options, &journal, NULL, err);
    x.journal = journal;
    if (!code)
        code = records_walk(redis, export_one, &x, err);
    return code;
}

struct import {
    struct berth_redis *redis;
    struct berth_backup_count *count;
};

static enum berth_code import_one(void *arg, const struct berth_journal_entry *entry,
                                  struct berth_error *err)
{
    struct import *m = arg;
    char tenant[RECORDS_ID_MAX + 1], id[RECORDS_ID_MAX + 1];
    bool wrote;
    enum berth_code code;

    if (entry->deleted || record_kind_of(entry->key, tenant, id) == RECORD_JOURNALS)
        return BERTH_OK; /* who writes journals today is not in a backup */
    code = record_restore(m->redis, entry, &wrote, err);
    if (!code)
        count_one(m->count, entry->key);
    return code;
}

/* What is there goes: sessions and events, too, which are found and begin anew. */
static enum berth_code make_room(struct berth_redis *redis, const char *deployment, bool over,
                                 struct berth_error *err)
{
    BERTH_AUTO(berth_reply_free) struct berth_reply *size = NULL;
    BERTH_AUTO(berth_reply_free) struct berth_reply *flushed = NULL;
    struct berth_error why = {0};
    enum berth_code code = record_call(redis, &size, err, "DBSIZE", NULL);

    if (code || size->integer == 0)
        return code;
    code = berth_deployment_check(redis, deployment, &why);
    if (code == BERTH_INVALID_ARGUMENT && record_is_emptied(redis))
        return BERTH_OK;
    if (code) {
        if (err)
            *err = why;
        return code; /* not even told to: it is another's */
    }
    if (!over)
        return berth_fail_field(err, "import",
                                "the store is not empty (%lld keys); --import-over replaces "
                                "what is in it",
                                (long long)size->integer);
    return record_call(redis, &flushed, err, "FLUSHDB", NULL);
}

enum berth_code berth_records_import(struct berth_redis *redis,
                                     const struct berth_keyring *keyring,
                                     const char *deployment, const char *path, bool over,
                                     struct berth_backup_count *ret, struct berth_error *err)
{
    const struct berth_journal_options options = {
        .path = path, .deployment = deployment, .keyring = keyring, .read_only = true};
    BERTH_AUTO(berth_journal_free) struct berth_journal *journal = NULL;
    BERTH_AUTO(berth_reply_free) struct berth_reply *set = NULL;
    struct berth_journal_report report = {0};
    struct import m = {.redis = redis, .count = ret};
    enum berth_code code = berth_journal_open(&options, &journal, &report, err);

    *ret = (struct berth_backup_count){0};
    if (!code && report.cut_bytes > 0)
        code = berth_fail_field(err, "import", "%s: its end is missing", path);
    if (!code)
        code = make_room(redis, deployment, over, err);
    if (!code)
        code =
            record_call(redis, &set, err, "SET", BERTH_KEY_DEPLOYMENT, deployment, "NX", NULL);
    if (!code)
        code = berth_journal_walk(journal, import_one, &m, err);
    /* Also where no journal is kept the running suite goes on from here. */
    return code ? code : records_begin(redis, err);
}
