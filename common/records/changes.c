#include "common/records/changes.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>

#include "common/log/log.h"
#include "common/records/keys.h"

enum { PAUSE_MS = 500, ID_SIZE = 48 };

#define KEPT "1000"

static const char *const kinds[] = {
    [BERTH_CHANGE_ALL] = "all",
    [BERTH_CHANGE_TENANT] = "tenant",
    [BERTH_CHANGE_CONFIG] = "config",
    [BERTH_CHANGE_TOKEN] = "token",
};

struct berth_changes {
    struct berth_redis *redis;
    char block_ms[24];
    berth_change_fn fn;
    void *arg;
    char last[ID_SIZE]; /* the entry read last; "": to be found out */
    bool deaf;          /* told in the log */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    bool stopping;
};

/* ------------------------------------------------------------------------- tell */

static enum berth_code add(struct berth_redis *redis, const char *kind, const char *tenant,
                           const char *id, struct berth_error *err)
{
    const char *const argv[] = {"XADD", BERTH_KEY_CHANGES, "MAXLEN", "~",  KEPT, "*", "kind",
                                kind,   "tenant",          tenant,   "id", id};
    struct berth_reply *reply = NULL;
    enum berth_code code = berth_redis_call(redis, BERTH_COUNT(argv), argv, NULL, &reply, err);

    berth_reply_free(reply);
    return code;
}

void berth_change_tell(struct berth_redis *redis, const struct berth_change *change)
{
    struct berth_error err;

    if (add(redis, kinds[change->kind], change->tenant_id, change->id, &err))
        berth_warn("a change could not be told, it counts within 5 s", "kind",
                   kinds[change->kind], "tenant", change->tenant_id, "id", change->id, "error",
                   err.text);
}

/* ----------------------------------------------------------------------- listen */

static bool is_stopping(struct berth_changes *changes)
{
    bool stopping;

    pthread_mutex_lock(&changes->mutex);
    stopping = changes->stopping;
    pthread_mutex_unlock(&changes->mutex);
    return stopping;
}

static void pause_a_while(struct berth_changes *changes)
{
    struct timespec until;
    int status = 0;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += PAUSE_MS * 1000000L;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&changes->mutex);
    while (!changes->stopping && status == 0)
        status = pthread_cond_timedwait(&changes->wake, &changes->mutex, &until);
    pthread_mutex_unlock(&changes->mutex);
}

static const char *member(const struct berth_reply *fields, const char *name)
{
    for (size_t i = 0; i + 1 < fields->n_items; i += 2)
        if (fields->items[i]->type == BERTH_REPLY_STRING &&
            fields->items[i + 1]->type == BERTH_REPLY_STRING &&
            strcmp(fields->items[i]->string, name) == 0)
            return fields->items[i + 1]->string;
    return "";
}

/* One entry: its id, and its fields. False: it is none. */
static bool take(struct berth_changes *changes, const struct berth_reply *entry)
{
    struct berth_change change = {.kind = BERTH_CHANGE_ALL};
    const char *kind;

    if (entry->type != BERTH_REPLY_ARRAY || entry->n_items != 2 ||
        entry->items[0]->type != BERTH_REPLY_STRING ||
        entry->items[1]->type != BERTH_REPLY_ARRAY ||
        snprintf(changes->last, sizeof changes->last, "%s", entry->items[0]->string) >= ID_SIZE)
        return false;
    kind = member(entry->items[1], "kind");
    if (!*kind) /* only somebody who wakes himself up */
        return true;
    for (size_t i = 0; i < BERTH_COUNT(kinds); i++)
        if (strcmp(kind, kinds[i]) == 0)
            change.kind = (enum berth_change_kind)i;
    if (snprintf(change.tenant_id, sizeof change.tenant_id, "%s",
                 member(entry->items[1], "tenant")) >= (int)sizeof change.tenant_id ||
        snprintf(change.id, sizeof change.id, "%s", member(entry->items[1], "id")) >=
            (int)sizeof change.id)
        change = (struct berth_change){.kind = BERTH_CHANGE_ALL};
    changes->fn(changes->arg, &change);
    return true;
}

/* From here on nothing is missed, and what came before is taken as changed. */
static enum berth_code begin(struct berth_changes *changes, struct berth_error *err)
{
    static const char *const argv[] = {"XREVRANGE", BERTH_KEY_CHANGES, "+", "-", "COUNT", "1"};
    static const struct berth_change all = {.kind = BERTH_CHANGE_ALL};
    BERTH_AUTO(berth_reply_free) struct berth_reply *reply = NULL;
    enum berth_code code =
        berth_redis_call(changes->redis, BERTH_COUNT(argv), argv, NULL, &reply, err);
    const char *id = "0-0";

    if (code)
        return code;
    if (reply->type == BERTH_REPLY_ARRAY && reply->n_items == 1 &&
        reply->items[0]->type == BERTH_REPLY_ARRAY && reply->items[0]->n_items == 2 &&
        reply->items[0]->items[0]->type == BERTH_REPLY_STRING)
        id = reply->items[0]->items[0]->string;
    snprintf(changes->last, sizeof changes->last, "%s", id);
    changes->fn(changes->arg, &all);
    return BERTH_OK;
}

static enum berth_code read_on(struct berth_changes *changes, struct berth_error *err)
{
    const char *const argv[] = {"XREAD",           "COUNT",           "64",
                                "BLOCK",           changes->block_ms, "STREAMS",
                                BERTH_KEY_CHANGES, changes->last};
    BERTH_AUTO(berth_reply_free) struct berth_reply *reply = NULL;
    const struct berth_reply *list;
    enum berth_code code =
        berth_redis_call(changes->redis, BERTH_COUNT(argv), argv, NULL, &reply, err);

    if (code || reply->type == BERTH_REPLY_NIL)
        return code;
    /* One stream: its name, and its entries. */
    list =
        reply->n_items == 1 && reply->items[0]->n_items == 2 ? reply->items[0]->items[1] : NULL;
    if (!list || list->type != BERTH_REPLY_ARRAY)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "XREAD answered no list of entries");
    for (size_t i = 0; i < list->n_items; i++)
        if (!take(changes, list->items[i]))
            return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "XREAD answered a broken entry");
    return BERTH_OK;
}

static void *run(void *arg)
{
    struct berth_changes *changes = arg;

    while (!is_stopping(changes)) {
        struct berth_error err;
        enum berth_code code = changes->last[0] ? read_on(changes, &err) : begin(changes, &err);

        if (code && !changes->deaf)
            berth_warn("changes of records are not heard of, they count within 5 s", "error",
                       err.text);
        if (!code && changes->deaf)
            berth_info("changes of records are heard of again");
        changes->deaf = code != BERTH_OK;
        if (!code)
            continue;
        changes->last[0] = '\0';
        pause_a_while(changes);
    }
    return NULL;
}

enum berth_code berth_changes_new(struct berth_redis *redis, int64_t block_ms,
                                  berth_change_fn fn, void *arg, struct berth_changes **ret,
                                  struct berth_error *err)
{
    struct berth_changes *changes = calloc(1, sizeof *changes);
    pthread_condattr_t attr;

    if (!changes)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    changes->redis = redis;
    changes->fn = fn;
    changes->arg = arg;
    snprintf(changes->block_ms, sizeof changes->block_ms, "%lld",
             (long long)(block_ms > 0 ? block_ms : 1));
    pthread_mutex_init(&changes->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&changes->wake, &attr);
    pthread_condattr_destroy(&attr);
    if (pthread_create(&changes->thread, NULL, run, changes)) {
        free(changes);
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, "no thread to listen for changes");
    }
    *ret = changes;
    return BERTH_OK;
}

struct berth_changes *berth_changes_free(struct berth_changes *changes)
{
    if (!changes)
        return NULL;
    pthread_mutex_lock(&changes->mutex);
    changes->stopping = true;
    pthread_cond_signal(&changes->wake);
    pthread_mutex_unlock(&changes->mutex);
    (void)!add(changes->redis, "", "", "", NULL); /* ends its wait */
    pthread_join(changes->thread, NULL);
    pthread_mutex_destroy(&changes->mutex);
    pthread_cond_destroy(&changes->wake);
    free(changes);
    return NULL;
}
