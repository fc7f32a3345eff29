#include "common/journal/records_impl.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "common/journal/frame.h"
#include "common/log/log.h"
#include "common/records/deployment.h"
#include "common/time/time.h"

enum { LOOK_MS = 1000, CHECK_MS = 60000, KEYS_AT_ONCE = 32, LATER_TRIES = 20 };

/* ------------------------------------------------------------------------- keys */

static bool take_part(const char **at, const char *end, char ret[RECORDS_ID_MAX + 1])
{
    size_t len = (size_t)(end - *at);

    if (len == 0 || len > RECORDS_ID_MAX)
        return false;
    memcpy(ret, *at, len);
    ret[len] = 0;
    *at = end;
    return true;
}

enum record_kind record_kind_of(const char *key, char tenant[RECORDS_ID_MAX + 1],
                                char id[RECORDS_ID_MAX + 1])
{
    const char *at = key + strlen("berth:{"), *end;

    tenant[0] = id[0] = 0;
    if (strcmp(key, BERTH_KEY_JOURNALS) == 0)
        return RECORD_JOURNALS;
    if (strncmp(key, "berth:{", strlen("berth:{")) != 0)
        return RECORD_OTHER;
    end = strstr(at, "}:");
    if (!end || !take_part(&at, end, tenant))
        return RECORD_OTHER;
    at += 2;
    if (strcmp(at, "t") == 0)
        return RECORD_TENANT;
    if (strncmp(at, "c/", 2) == 0) {
        at += 2;
        return take_part(&at, at + strlen(at), id) ? RECORD_CONFIG : RECORD_OTHER;
    }
    if (strncmp(at, "in/", 3) == 0) {
        at += 3;
        return take_part(&at, at + strlen(at), id) ? RECORD_INBOUND : RECORD_OTHER;
    }
    return RECORD_OTHER;
}

const char *record_key_gone(char *buf, const char *tenant)
{
    snprintf(buf, BERTH_KEY_MAX, "berth:{%s}:gone", tenant);
    return buf;
}

void berth_records_mark_gone(struct berth_cas *cas, const char *tenant, const char *config_id)
{
    char key[BERTH_KEY_MAX], rev[17];

    berth_cas_write(cas, "HSET", record_key_gone(key, tenant), "rev", berth_rev_new(rev),
                    config_id, "$NOW", NULL);
}

void berth_records_mark_there(struct berth_cas *cas, const char *tenant, const char *config_id)
{
    char key[BERTH_KEY_MAX], rev[17];

    berth_cas_write(cas, "HSET", record_key_gone(key, tenant), "rev", berth_rev_new(rev), NULL);
    berth_cas_write(cas, "HDEL", key, config_id, NULL);
}

enum berth_code record_call(struct berth_redis *redis, struct berth_reply **ret,
                            struct berth_error *err, ...)
{
    const char *argv[16], *word;
    size_t argc = 0;
    struct berth_error why = {0};
    enum berth_code code;
    va_list args;

    va_start(args, err);
    while (argc < BERTH_COUNT(argv) && (word = va_arg(args, const char *)))
        argv[argc++] = word;
    va_end(args);
    code = berth_redis_call(redis, argc, argv, NULL, ret, &why);
    if (code == BERTH_UNKNOWN)
        code = berth_fail(&why, BERTH_REASON_STORE_UNAVAILABLE, "the answer did not come");
    if (code && err)
        *err = why;
    return code;
}

/* ----------------------------------------------------------------------- append */

/* What tells of a recovery, is a lock or waits for one is none of the record: operations are
 * not journaled, and one that is lost must not hold up those that follow. */
static bool is_not_kept(const char *field)
{
    return strcmp(field, "restored") == 0 || strcmp(field, BERTH_FIELD_RECOVERING) == 0 ||
           strcmp(field, "lock") == 0 || strcmp(field, "queue") == 0;
}

/* Read until Redis' clock shows a later millisecond. */
static enum berth_code read_later(struct berth_redis *redis, const struct berth_redis_get *gets,
                                  size_t n, int64_t after_ms, int64_t *ret_now_ms,
                                  struct berth_doc *docs, struct berth_error *err)
{
    enum berth_code code = BERTH_OK;

    for (int i = 0; i < LATER_TRIES; i++) {
        const struct timespec pause = {.tv_nsec = 300000};

        code = berth_redis_read(redis, gets, n, ret_now_ms, docs, err);
        /* A clock that went back is not waited for: the journal sees to the order. */
        if (code || *ret_now_ms != after_ms || i + 1 == LATER_TRIES)
            return code;
        for (size_t k = 0; k < n; k++)
            berth_doc_deinit(&docs[k]);
        nanosleep(&pause, NULL);
    }
    return code;
}

static enum berth_code append_docs(struct berth_journal *journal, const char *const *keys,
                                   const struct berth_doc *docs, size_t n, int64_t now_ms,
                                   struct berth_error *err)
{
    struct berth_journal_entry entries[KEYS_AT_ONCE] = {{0}};
    uint8_t *data[KEYS_AT_ONCE] = {NULL};
    enum berth_code code = BERTH_OK;

    for (size_t i = 0; i < n; i++) {
        entries[i] = (struct berth_journal_entry){
            .key = keys[i], .deleted = !docs[i].exists, .time_ms = now_ms};
        if (docs[i].exists)
            entries[i].doc = data[i] =
                journal_doc_write(&docs[i], is_not_kept, &entries[i].doc_size);
        if (docs[i].exists && !data[i])
            code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    if (!code)
        code = berth_journal_append(journal, entries, n, err);
    for (size_t i = 0; i < n; i++)
        free(data[i]);
    return code;
}

enum berth_code records_append(struct berth_redis *redis, struct berth_journal *journal,
                               const char *const *keys, size_t n_keys, int64_t after_ms,
                               struct berth_error *err)
{
    struct berth_redis_get gets[KEYS_AT_ONCE] = {{0}};
    struct berth_doc docs[KEYS_AT_ONCE] = {{0}};
    int64_t now_ms;
    enum berth_code code;

    if (n_keys > KEYS_AT_ONCE)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "too many records at once");
    for (size_t i = 0; i < n_keys; i++)
        gets[i].key = keys[i];
    code = read_later(redis, gets, n_keys, after_ms, &now_ms, docs, err);
    if (code)
        return code;
    code = append_docs(journal, keys, docs, n_keys, now_ms, err);
    for (size_t i = 0; i < n_keys; i++)
        berth_doc_deinit(&docs[i]);
    return code;
}

static void look_soon(struct berth_records *records)
{
    pthread_mutex_lock(&records->mutex);
    records->due = true;
    pthread_cond_signal(&records->wake);
    pthread_mutex_unlock(&records->mutex);
}

enum berth_code berth_records_run(struct berth_records *records, struct berth_cas *cas,
                                  const char *const *keys, size_t n_keys, bool *ret_applied,
                                  struct berth_error *err)
{
    struct berth_error why = {0};
    int64_t now_ms;
    enum berth_code code = BERTH_OK;

    if (records->journal)
        code = berth_journal_check(records->journal, err);
    /* While the index is lost a newer entry may still come from another journal. */
    if (!code)
        code = berth_epoch_check(records->redis, err);
    if (code)
        return code;
    code = berth_cas_run_settled(records->redis, cas, true, ret_applied, &now_ms, err);
    if (code == BERTH_UNKNOWN)
        look_soon(records);
    if (code || !*ret_applied || !records->journal)
        return code;
    code = records_append(records->redis, records->journal, keys, n_keys, now_ms, &why);
    if (!code)
        return BERTH_OK;
    look_soon(records);
    berth_log_error("a record was written and is not in the journal, trying again", "key",
                    keys[0], "error", why.text);
    return berth_fail(err, BERTH_REASON_OUTCOME_UNKNOWN,
                      "it is written, and not in the journal: %s", why.text);
}

enum berth_code berth_records_keep(struct berth_records *records, const char *key,
                                   const struct berth_doc *doc, int64_t time_ms,
                                   struct berth_error *err)
{
    if (!records->journal || (!doc && !berth_journal_has(records->journal, key)))
        return BERTH_OK;
    return append_docs(records->journal, &key, doc ? doc : &(struct berth_doc){0}, 1, time_ms,
                       err);
}

/* ------------------------------------------------------------------------- keys */

enum berth_code berth_records_reseal(struct berth_records *records, struct berth_error *err)
{
    char ids[BERTH_KEYS_MAX][BERTH_KEY_ID_SIZE];
    struct berth_journal_count count;
    bool due = false;
    enum berth_code code = BERTH_OK;

    if (!records->journal)
        return BERTH_OK;
    (void)berth_keyring_ids(records->keyring, ids);
    berth_journal_count(records->journal, &count);
    for (size_t i = 0; i < count.n_keys; i++)
        due = due || strcmp(count.keys[i].key_id, ids[0]) != 0;
    if (due)
        code = berth_journal_compact(records->journal, NULL, err);
    if (!code && due)
        code = records_register(records, err);
    return code;
}

enum berth_code berth_records_rekey(struct berth_records *records,
                                    struct berth_keyring *keyring, struct berth_keyring *next,
                                    struct berth_error *err)
{
    enum berth_code code =
        records->journal ? berth_journal_compact(records->journal, next, err) : BERTH_OK;

    if (code) {
        berth_keyring_free(next);
        return code;
    }
    berth_keyring_adopt(keyring, next);
    look_soon(records);
    return BERTH_OK;
}

/* ----------------------------------------------------------------------- thread */

static void set_recovering(struct berth_records *records, bool recovering)
{
    pthread_mutex_lock(&records->mutex);
    records->recovering = recovering;
    pthread_mutex_unlock(&records->mutex);
}

/* A journal that is new is known to all others a second later: recovery has to wait for it. */
static bool learn_members(struct berth_records *records)
{
    BERTH_AUTO(berth_reply_free) struct berth_reply *n = NULL;

    if (record_call(records->redis, &n, NULL, "HLEN", BERTH_KEY_JOURNALS, NULL))
        return false;
    if (n->integer == records->n_members)
        return true;
    if (records_register(records, NULL))
        return false;
    records->n_members = n->integer > 0 ? n->integer : 1;
    return true;
}

/* True: there is nothing to wait for until the next minute. */
static bool look(struct berth_records *records, bool check_due)
{
    BERTH_AUTO(berth_reply_free) struct berth_reply *epoch = NULL;
    struct berth_error err = {0};
    bool there;
    enum berth_code code =
        record_call(records->redis, &epoch, &err, "GET", BERTH_KEY_EPOCH, NULL);

    if (code)
        return false; /* readiness tells */
    there = epoch->type == BERTH_REPLY_STRING;
    set_recovering(records, !there);
    if (there && !learn_members(records))
        return false;
    if (!there || (records->epoch[0] && strcmp(records->epoch, epoch->string) != 0)) {
        records->epoch[0] = 0;
        code = records_restore(records, &err);
    } else if (check_due) {
        code = berth_records_check(records, &err);
    } else {
        return true;
    }
    if (code)
        berth_warn("records and journal were not brought together, trying again", "error",
                   err.text);
    if (!code && there)
        snprintf(records->epoch, sizeof records->epoch, "%s", epoch->string);
    return !code && there;
}

/* False: the end. */
static bool wait_a_moment(struct berth_records *records, bool *ret_due)
{
    struct timespec until;
    bool go_on;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += records->look_ms / 1000;
    until.tv_nsec += records->look_ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&records->mutex);
    while (!records->stopping && !records->due &&
           pthread_cond_timedwait(&records->wake, &records->mutex, &until) == 0)
        ;
    go_on = !records->stopping;
    *ret_due = records->due;
    records->due = false;
    pthread_mutex_unlock(&records->mutex);
    return go_on;
}

static void *run(void *arg)
{
    struct berth_records *records = arg;
    int64_t next_tick = 0;
    bool due = true;

    do {
        bool check_due = due || berth_tick_ms() >= next_tick;

        if (look(records, check_due) && check_due)
            next_tick = berth_tick_ms() + records->check_ms;
    } while (wait_a_moment(records, &due));
    return NULL;
}

/* ------------------------------------------------------------------------- life */

static void tell_opened(const struct berth_records *records,
                        const struct berth_journal_report *report)
{
    if (report->cut_bytes > 0)
        berth_warn("the journal ended in the middle of an entry that nobody was answered for, "
                   "cutting it off",
                   "bytes", BERTH_I64((int64_t)report->cut_bytes));
    if (report->n_damages > 0)
        berth_log_error("the journal is damaged, and it was said to go on: entries are lost",
                        "damages", BERTH_I64((int64_t)report->n_damages), "bytes",
                        BERTH_I64((int64_t)report->lost_bytes));
    berth_info(report->made ? "made a journal" : "opened the journal", "journal",
               berth_journal_id(records->journal), "entries",
               BERTH_I64((int64_t)report->n_entries));
}

enum berth_code berth_records_new(const struct berth_records_options *options,
                                  struct berth_records **ret, struct berth_error *err)
{
    const struct berth_journal_options journal = {
        .path = options->path,
        .deployment = options->deployment,
        .keyring = options->keyring,
        .skip_damaged = options->skip_damaged,
    };
    BERTH_AUTO(berth_records_free) struct berth_records *records = calloc(1, sizeof *records);
    struct berth_journal_report report;
    pthread_condattr_t clock;
    enum berth_code code = BERTH_OK;

    if (!records)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    pthread_mutex_init(&records->mutex, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&records->wake, &clock);
    pthread_condattr_destroy(&clock);
    records->redis = options->redis;
    records->keyring = options->keyring;
    records->look_ms = options->look_ms ? options->look_ms : LOOK_MS;
    records->check_ms = options->check_ms ? options->check_ms : CHECK_MS;
    snprintf(records->deployment, sizeof records->deployment, "%s", options->deployment);
    snprintf(records->name, sizeof records->name, "%s", options->name);
    if (*options->path) {
        code = berth_journal_open(&journal, &records->journal, &report, err);
        if (!code)
            tell_opened(records, &report);
    } else {
        berth_warn("no journal is kept: what Redis loses is lost");
    }
    if (!code)
        *ret = BERTH_STEAL(records);
    return code;
}

enum berth_code berth_records_start(struct berth_records *records, struct berth_error *err)
{
    if (!records->journal)
        return BERTH_OK;
    if (pthread_create(&records->thread, NULL, run, records) != 0)
        return berth_fail(err, BERTH_REASON_OVERLOADED, "no thread for the records");
    records->running = true;
    return BERTH_OK;
}

struct berth_records *berth_records_free(struct berth_records *records)
{
    if (!records)
        return NULL;
    pthread_mutex_lock(&records->mutex);
    records->stopping = true;
    pthread_cond_signal(&records->wake);
    pthread_mutex_unlock(&records->mutex);
    if (records->running)
        pthread_join(records->thread, NULL);
    berth_journal_free(records->journal);
    pthread_cond_destroy(&records->wake);
    pthread_mutex_destroy(&records->mutex);
    free(records);
    return NULL;
}

bool record_is_emptied(struct berth_redis *redis)
{
    BERTH_AUTO(berth_reply_free) struct berth_reply *scan = NULL;
    const struct berth_reply *keys;

    if (record_call(redis, &scan, NULL, "SCAN", "0", "COUNT", "1000", NULL) ||
        scan->n_items != 2 || strcmp(scan->items[0]->string, "0") != 0)
        return false;
    keys = scan->items[1];
    for (size_t i = 0; i < keys->n_items; i++)
        if (strncmp(keys->items[i]->string, "berth:", strlen("berth:")) != 0 ||
            strcmp(keys->items[i]->string, BERTH_KEY_DEPLOYMENT) == 0)
            return false;
    return true;
}

enum berth_code berth_records_claim(struct berth_records *records, struct berth_error *err)
{
    BERTH_AUTO(berth_reply_free) struct berth_reply *set = NULL;
    struct berth_journal_count count = {0};
    struct berth_error why = {0};
    enum berth_code code = berth_deployment_check(records->redis, records->deployment, &why);

    if (records->journal)
        berth_journal_count(records->journal, &count);
    if (code == BERTH_INVALID_ARGUMENT && count.n_live > 0) {
        code = BERTH_OK;
        if (record_is_emptied(records->redis)) {
            berth_log_error("the store has lost its content, recovering it from the journals");
            code = record_call(records->redis, &set, &why, "SET", BERTH_KEY_DEPLOYMENT,
                               records->deployment, "NX", NULL);
        }
        if (!code) /* another writer may have been faster */
            code = berth_deployment_check(records->redis, records->deployment, &why);
    }
    if (code && err)
        *err = why;
    return code;
}

char *berth_records_metrics(struct berth_records *records)
{
    struct berth_journal_count count = {0};
    uint64_t n_restored, n_checked;
    bool recovering;
    char *text = NULL;

    pthread_mutex_lock(&records->mutex);
    recovering = records->recovering;
    n_restored = records->n_restored;
    n_checked = records->n_checked;
    pthread_mutex_unlock(&records->mutex);
    if (records->journal)
        berth_journal_count(records->journal, &count);
    if (asprintf(&text,
                 "# HELP berth_index_recovering The index was lost and is being recovered.\n"
                 "# TYPE berth_index_recovering gauge\n"
                 "berth_index_recovering %d\n"
                 "# HELP berth_journal_entries Records in the journal.\n"
                 "# TYPE berth_journal_entries gauge\n"
                 "berth_journal_entries{state=\"live\"} %zu\n"
                 "berth_journal_entries{state=\"deleted\"} %zu\n"
                 "# HELP berth_journal_bytes Size of the journal.\n"
                 "# TYPE berth_journal_bytes gauge\n"
                 "berth_journal_bytes %lld\n"
                 "# HELP berth_journal_broken A write failed: records cannot be changed.\n"
                 "# TYPE berth_journal_broken gauge\n"
                 "berth_journal_broken %d\n"
                 "# HELP berth_journal_appends_total Entries appended.\n"
                 "# TYPE berth_journal_appends_total counter\n"
                 "berth_journal_appends_total %llu\n"
                 "# HELP berth_journal_syncs_total Times the disk was waited for.\n"
                 "# TYPE berth_journal_syncs_total counter\n"
                 "berth_journal_syncs_total %llu\n"
                 "# HELP berth_records_restored_total Records put back from the journal.\n"
                 "# TYPE berth_records_restored_total counter\n"
                 "berth_records_restored_total %llu\n"
                 "# HELP berth_records_checks_total Looks at all records.\n"
                 "# TYPE berth_records_checks_total counter\n"
                 "berth_records_checks_total %llu\n",
                 recovering, count.n_live, count.n_deleted, (long long)count.bytes,
                 count.broken, (unsigned long long)count.n_appends,
                 (unsigned long long)count.n_syncs, (unsigned long long)n_restored,
                 (unsigned long long)n_checked) < 0)
        return NULL;
    return text;
}
