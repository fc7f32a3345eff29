/* operation_run.c - by who carries an operation out: the lock, and what is said under it. */
#include <stdio.h>

#include "berth/skills/v1/skills.pb-c.h"
#include "common/crypto/crypto.h"
#include "common/ids/ids.h"
#include "common/log/log.h"
#include "common/time/time.h"
#include "services/skills/operation_impl.h"

void operation_grant_deinit(struct operation_grant *grant)
{
    operation_deinit(&grant->operation);
    json_decref(grant->env);
    grant->env = NULL;
}

/* ------------------------------------------------------------------------- take */

static enum berth_code write_lock(struct skills *skills, struct berth_cas *cas,
                                  const struct operation *operation,
                                  const struct operation_place *place, struct berth_error *err)
{
    BERTH_AUTO(free)
    char *lock = operation_format_lock(operation->operation_id, operation->owner,
                                       place->now_ms + skills->build_lease_ms);
    char key[BERTH_KEY_MAX];

    if (!lock)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    berth_key_config(key, operation->tenant_id, operation->config_id);
    berth_cas_write(cas, "HSET", key, "lock", lock, NULL);
    return BERTH_OK;
}

/* An id whose document is lost, or that has ended, holds up nobody. */
static enum berth_code drop_first(struct skills *skills, const struct operation *operation,
                                  const struct operation_place *place, struct berth_error *err)
{
    BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
    BERTH_AUTO(json_decref)
    json_t *queue = operation_ids_without(place->queue, operation->operation_id);
    bool applied;
    enum berth_code code;

    if (!cas)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    operation_expect_place(cas, operation, place);
    code = operation_write_queue(cas, operation, queue, err);
    berth_cas_when_full(cas);
    return code ? code : operation_run(skills, cas, true, &applied, err);
}

static enum berth_code write_take(struct skills *skills, const struct operation *operation,
                                  const struct operation_place *place, const char *rev,
                                  bool *ret_applied, struct berth_error *err)
{
    BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
    enum berth_code code;

    if (!cas)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    operation_expect_place(cas, operation, place);
    code = write_lock(skills, cas, operation, place, err);
    if (!code)
        code = operation_write(cas, rev, operation, err);
    berth_cas_when_full(cas);
    return code ? code : operation_run(skills, cas, true, ret_applied, err);
}

/* The number of the newest entry; those of a former owner count on. */
static enum berth_code read_seq(struct skills *skills, const struct operation *operation,
                                uint64_t *ret, struct berth_error *err)
{
    char key[BERTH_KEY_MAX];
    const char *const argv[] = {
        "XREVRANGE",
        berth_key_operation_log(key, operation->tenant_id, operation->operation_id),
        "+",
        "-",
        "COUNT",
        "1"};
    BERTH_AUTO(berth_reply_free) struct berth_reply *reply = NULL;
    enum berth_code code =
        berth_redis_call(skills->redis, BERTH_COUNT(argv), argv, NULL, &reply, err);

    if (code == BERTH_UNKNOWN)
        return berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE, NULL);
    if (!code)
        *ret = reply->n_items == 1 && reply->items[0]->n_items == 2
                   ? strtoull(reply->items[0]->items[0]->string, NULL, 10)
                   : 0;
    return code;
}

static enum berth_code open_env(struct skills *skills, const struct operation_seen *seen,
                                json_t **ret, struct berth_error *err)
{
    const struct operation *operation = &seen->operation;
    BERTH_AUTO(free) uint8_t *plain = NULL;
    char key[BERTH_KEY_MAX];
    size_t size = 0;
    enum berth_code code;

    if (!seen->env)
        return BERTH_OK;
    if (!skills->keyring)
        return berth_fail(err, BERTH_REASON_BACKEND_AUTHENTICATION, "no keys are kept");
    berth_key_operation(key, operation->tenant_id, operation->operation_id);
    code = berth_open_sealed(skills->keyring, seen->env, seen->env_size, key, strlen(key),
                             &plain, &size, err);
    if (code)
        return code;
    *ret = json_loadb((const char *)plain, size, 0, NULL);
    berth_wipe(plain, size);
    return json_is_object(*ret)
               ? BERTH_OK
               : berth_fail(err, BERTH_REASON_INTERNAL_BUG, "its environment is no object");
}

/* What is taken and cannot be begun is ended: the queue goes on. */
static enum berth_code fail_at_once(struct skills *skills, struct operation_grant *grant,
                                    const struct berth_error *why, struct berth_error *err)
{
    struct operation *operation = &grant->operation;

    operation->state = STATE(FAILED);
    snprintf(operation->reason, sizeof operation->reason, "%s", berth_reason_name(why->reason));
    snprintf(operation->message, sizeof operation->message,
             "its environment cannot be read: %s", why->text);
    return operation_end(skills, grant, err);
}

enum looked { LOOKED_AGAIN, LOOKED_NOTHING, LOOKED_TAKEN };

/* The first one is not as the queue said, or somebody else's, or ours now. */
static enum berth_code take_first(struct skills *skills, const struct operation_place *place,
                                  struct operation_seen *seen, const char *owner,
                                  const char *tenant, const char *config_id, const char *id,
                                  enum looked *ret, struct berth_error *err)
{
    struct operation gone = {0}, *operation = &seen->operation;
    bool applied = false;
    enum berth_code code;

    *ret = LOOKED_AGAIN;
    if (!seen->rev[0] || operation_has_ended(operation)) {
        snprintf(gone.tenant_id, sizeof gone.tenant_id, "%s", tenant);
        snprintf(gone.config_id, sizeof gone.config_id, "%s", config_id);
        snprintf(gone.operation_id, sizeof gone.operation_id, "%s", id);
        return drop_first(skills, &gone, place, err);
    }
    snprintf(operation->owner, sizeof operation->owner, "%s", owner);
    operation->state = STATE(RUNNING);
    operation->starts++;
    operation->beat_ms = place->now_ms;
    /* What was said to an earlier start is over with its session. */
    operation->finished = operation->finished_ok = false;
    operation->finish_message[0] = 0;
    code = write_take(skills, operation, place, seen->rev, &applied, err);
    if (!code && applied)
        *ret = LOOKED_TAKEN;
    return code;
}

static enum berth_code try_take(struct skills *skills, const char *tenant,
                                const char *config_id, const char *owner,
                                struct operation_seen *seen, enum looked *ret,
                                struct berth_error *err)
{
    struct operation_place place = {0}, again = {0};
    char id[OPERATION_ID_SIZE];
    enum berth_code code = operation_look(skills, tenant, config_id, NULL, &place, NULL, err);

    *ret = LOOKED_NOTHING;
    if (code)
        return code;
    snprintf(id, sizeof id, "%s",
             json_array_size(place.queue) ? json_string_value(json_array_get(place.queue, 0))
                                          : "");
    operation_place_deinit(&place);
    if (!*id)
        return BERTH_OK;
    code = operation_look(skills, tenant, config_id, id, &again, seen, err);
    if (code)
        return code;
    if (!json_array_size(again.queue) ||
        strcmp(json_string_value(json_array_get(again.queue, 0)), id) != 0)
        *ret = LOOKED_AGAIN;
    else if (strcmp(again.lock.owner, owner) == 0 && strcmp(again.lock.op, id) == 0)
        *ret = LOOKED_TAKEN; /* a write of before whose answer was lost */
    else if (again.lock.until_ms <= again.now_ms)
        code = take_first(skills, &again, seen, owner, tenant, config_id, id, ret, err);
    operation_place_deinit(&again);
    return code;
}

enum berth_code operation_take(struct skills *skills, const char *tenant, const char *config_id,
                               struct operation_grant *ret, bool *ret_taken,
                               struct berth_error *err)
{
    struct operation_grant grant = {0};
    struct berth_error why = {0};
    enum looked looked = LOOKED_AGAIN;
    enum berth_code code = BERTH_OK;
    char owner[33];

    *ret_taken = false;
    berth_id_hex(owner, (sizeof owner - 1) / 2);
    for (int i = 0; !code && looked == LOOKED_AGAIN && i < OPERATION_TRIES; i++) {
        struct operation_seen seen = {0};

        operation_yield(i);
        grant.sent_tick = berth_tick_ms();
        code = try_take(skills, tenant, config_id, owner, &seen, &looked, err);
        if (!code && looked == LOOKED_TAKEN) {
            grant.operation = seen.operation;
            seen.operation.findings = NULL;
            code = open_env(skills, &seen, &grant.env, &why);
            if (code)
                code = fail_at_once(skills, &grant, &why, err);
            else
                *ret_taken = true;
            if (!*ret_taken) {
                operation_grant_deinit(&grant);
                grant = (struct operation_grant){0};
                looked = LOOKED_AGAIN;
                berth_id_hex(owner, (sizeof owner - 1) / 2);
            }
        }
        operation_seen_deinit(&seen);
    }
    if (!code && looked == LOOKED_AGAIN)
        code = operation_contended(err);
    if (!code && *ret_taken)
        code = read_seq(skills, &grant.operation, &grant.seq, err);
    if (code && *ret_taken) { /* nobody would renew it */
        operation_leave(skills, &grant);
        operation_grant_deinit(&grant);
        *ret_taken = false;
    }
    if (*ret_taken)
        *ret = grant;
    return code;
}

/* ------------------------------------------------------------------------- beat */

static bool is_mine(const struct operation_grant *grant, const struct operation_place *place)
{
    return strcmp(place->lock.op, grant->operation.operation_id) == 0 &&
           strcmp(place->lock.owner, grant->operation.owner) == 0;
}

static enum berth_code lost(struct berth_error *err)
{
    return berth_fail(err, BERTH_REASON_LOCK_LOST, "the operation is another's now");
}

/* What others may have written meanwhile. */
static void learn(struct operation *mine, const struct operation *there)
{
    mine->cancel = there->cancel;
    mine->finished = there->finished;
    mine->finished_ok = there->finished_ok;
    memcpy(mine->finish_message, there->finish_message, sizeof mine->finish_message);
}

static enum berth_code write_beat(struct skills *skills, const struct operation_grant *grant,
                                  const struct operation_place *place, const char *rev,
                                  bool *ret_applied, struct berth_error *err)
{
    BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
    const struct operation *operation = &grant->operation;
    enum berth_code code;

    if (!cas)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    operation_expect_place(cas, operation, place);
    code = write_lock(skills, cas, operation, place, err);
    if (!code)
        code = operation_write(cas, rev, operation, err);
    berth_cas_when_full(cas); /* a full store must not lose locks */
    return code ? code : operation_run(skills, cas, false, ret_applied, err);
}

static void say(struct skills *skills, struct operation_grant *grant, const char *field,
                const void *data, size_t size)
{
    char key[BERTH_KEY_MAX], id[32], at[24], kept[16];
    const char *const argv[] = {"XADD", key, "MAXLEN", kept, id, "at", at, field, data};
    size_t sizes[BERTH_COUNT(argv)];
    BERTH_AUTO(berth_reply_free) struct berth_reply *reply = NULL;

    berth_key_operation_log(key, grant->operation.tenant_id, grant->operation.operation_id);
    snprintf(id, sizeof id, "%llu-0", (unsigned long long)++grant->seq);
    snprintf(at, sizeof at, "%lld", (long long)berth_now_ms());
    snprintf(kept, sizeof kept, "%d", OPERATION_LINES_MAX);
    for (size_t i = 0; i + 1 < BERTH_COUNT(argv); i++)
        sizes[i] = strlen(argv[i]);
    sizes[BERTH_COUNT(argv) - 1] = size;
    (void)!berth_redis_call(skills->redis, BERTH_COUNT(argv), argv, sizes, &reply, NULL);
}

void operation_say(struct skills *skills, struct operation_grant *grant, const void *data,
                   size_t size)
{
    for (size_t at = 0; at < size; at += OPERATION_ENTRY_MAX)
        say(skills, grant, "out", (const char *)data + at,
            size - at < OPERATION_ENTRY_MAX ? size - at : OPERATION_ENTRY_MAX);
}

static void say_progress(struct skills *skills, struct operation_grant *grant)
{
    BERTH_AUTO(free) char *text = operation_format(&grant->operation);

    if (text)
        say(skills, grant, "op", text, strlen(text));
}

enum berth_code operation_beat(struct skills *skills, struct operation_grant *grant,
                               struct berth_error *err)
{
    struct operation *operation = &grant->operation;
    bool done = false, moved = false;
    enum berth_code code = BERTH_OK;

    for (int i = 0; !code && !done && i < OPERATION_TRIES; i++) {
        struct operation_place place = {0};
        struct operation_seen seen = {0};
        int64_t tick;

        operation_yield(i);
        tick = berth_tick_ms();
        code = operation_look(skills, operation->tenant_id, operation->config_id,
                              operation->operation_id, &place, &seen, err);
        if (code)
            return code;
        if (!is_mine(grant, &place) || !seen.rev[0]) {
            code = lost(err);
        } else {
            learn(operation, &seen.operation);
            operation->beat_ms = place.now_ms;
            moved = moved || seen.operation.step != operation->step ||
                    seen.operation.percent != operation->percent;
            code = write_beat(skills, grant, &place, seen.rev, &done, err);
        }
        if (done)
            grant->sent_tick = tick;
        operation_place_deinit(&place);
        operation_seen_deinit(&seen);
    }
    if (!code && !done)
        code = operation_contended(err);
    if (!code && moved)
        say_progress(skills, grant);
    return code;
}

/* -------------------------------------------------------------------------- end */

/* The last failures, one of each skill. */
static enum berth_code write_failed(struct skills *skills, struct berth_cas *cas,
                                    const struct operation *operation,
                                    const struct operation_place *place,
                                    struct berth_error *err)
{
    BERTH_AUTO(json_decref) json_t *failed = json_array();
    BERTH_AUTO(free) char *text = NULL;
    struct operation_seen *seen = NULL;
    char key[BERTH_KEY_MAX];
    size_t n = 0;
    bool good = failed != NULL;
    enum berth_code code;

    if (operation->state == STATE(CANCELLED) || !*operation->skill_name)
        return BERTH_OK;
    code = operation_look_all(skills, operation->tenant_id, place->failed, &seen, &n, err);
    if (code)
        return code;
    if (operation->state == STATE(FAILED))
        good = good && json_array_append_new(failed, json_string(operation->operation_id)) == 0;
    for (size_t i = 0; i < n; i++) {
        const struct operation *other = &seen[i].operation;

        if (good && strcmp(other->skill_name, operation->skill_name) != 0 &&
            json_array_size(failed) < OPERATION_FAILED_MAX)
            good = json_array_append_new(failed, json_string(other->operation_id)) == 0;
    }
    operation_seen_free_all(seen, n);
    text = good ? json_dumps(failed, JSON_COMPACT) : NULL;
    if (!text)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    berth_key_config(key, operation->tenant_id, operation->config_id);
    if (json_array_size(failed) > 0)
        berth_cas_write(cas, "HSET", key, "failed", text, NULL);
    else
        berth_cas_write(cas, "HDEL", key, "failed", NULL);
    return BERTH_OK;
}

static enum berth_code write_end(struct skills *skills, const struct operation *operation,
                                 const struct operation_place *place, const char *rev,
                                 bool *ret_applied, struct berth_error *err)
{
    BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
    BERTH_AUTO(json_decref)
    json_t *queue = operation_ids_without(place->queue, operation->operation_id);
    char key[BERTH_KEY_MAX];
    enum berth_code code;

    if (!cas)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    operation_expect_place(cas, operation, place);
    berth_key_config(key, operation->tenant_id, operation->config_id);
    berth_cas_write(cas, "HDEL", key, "lock", NULL);
    code = operation_write_queue(cas, operation, queue, err);
    if (!code)
        code = write_failed(skills, cas, operation, place, err);
    if (!code)
        code = operation_write(cas, rev, operation, err);
    berth_cas_when_full(cas);
    return code ? code : operation_run(skills, cas, true, ret_applied, err);
}

enum berth_code operation_end(struct skills *skills, struct operation_grant *grant,
                              struct berth_error *err)
{
    struct operation *operation = &grant->operation;
    bool done = false;
    enum berth_code code = BERTH_OK;

    if (!operation_has_ended(operation))
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "an operation ends without an end");
    for (int i = 0; !code && !done && i < OPERATION_TRIES; i++) {
        struct operation_place place = {0};
        struct operation_seen seen = {0};

        operation_yield(i);
        code = operation_look(skills, operation->tenant_id, operation->config_id,
                              operation->operation_id, &place, &seen, err);
        if (code)
            return code;
        if (is_mine(grant, &place) && seen.rev[0]) {
            learn(operation, &seen.operation);
            operation->end_ms = operation->beat_ms = place.now_ms;
            code = write_end(skills, operation, &place, seen.rev, &done, err);
        } else if (seen.rev[0] && operation_has_ended(&seen.operation) &&
                   strcmp(seen.operation.owner, operation->owner) == 0) {
            done = true; /* a write of before whose answer was lost */
        } else {
            code = lost(err);
        }
        operation_place_deinit(&place);
        operation_seen_deinit(&seen);
    }
    return code || done ? code : operation_contended(err);
}

void operation_leave(struct skills *skills, struct operation_grant *grant)
{
    const struct operation *operation = &grant->operation;
    struct berth_error err = {0};
    bool done = false;
    enum berth_code code = BERTH_OK;

    for (int i = 0; !code && !done && i < OPERATION_TRIES; i++) {
        BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
        struct operation_place place = {0};
        char key[BERTH_KEY_MAX];

        operation_yield(i);
        code = cas ? operation_look(skills, operation->tenant_id, operation->config_id, NULL,
                                    &place, NULL, &err)
                   : berth_fail(&err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        if (!code && is_mine(grant, &place)) {
            operation_expect_place(cas, operation, &place);
            berth_key_config(key, operation->tenant_id, operation->config_id);
            berth_cas_write(cas, "HDEL", key, "lock", NULL);
            berth_cas_when_full(cas);
            code = operation_run(skills, cas, true, &done, &err);
        } else {
            done = true;
        }
        operation_place_deinit(&place);
    }
    if (code)
        berth_warn("a config's lock was not given back, and runs out", "config",
                   operation->config_id, "error", err.text);
}
