/* operation_others.c - what others than its owner do with an operation. */
#include <stdio.h>

#include "berth/skills/v1/skills.pb-c.h"
#include "services/skills/operation_impl.h"

/* One change of a document that others may write, too. */
struct change {
    struct operation operation; /* as it stands */
    /* What is to become of it: *ret_write false: nothing. leaves: the queue. */
    enum berth_code (*decide)(struct change *change, bool *ret_write, struct berth_error *err);
    bool leaves;
    bool ok;
    const char *message;
    int64_t now_ms;
};

static enum berth_code write_change(struct skills *skills, const struct change *change,
                                    const struct operation_place *place, const char *rev,
                                    bool *ret_applied, struct berth_error *err)
{
    BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
    BERTH_AUTO(json_decref) json_t *queue = NULL;
    const struct operation *operation = &change->operation;
    enum berth_code code = BERTH_OK;

    if (!cas)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (change->leaves && place->rev[0]) {
        queue = operation_ids_without(place->queue, operation->operation_id);
        operation_expect_place(cas, operation, place);
        code = operation_write_queue(cas, operation, queue, err);
    }
    if (!code)
        code = operation_write(cas, rev, operation, err);
    berth_cas_when_full(cas);
    return code ? code : operation_run(skills, cas, true, ret_applied, err);
}

static enum berth_code try_change(struct skills *skills, struct change *change, bool *ret_done,
                                  struct berth_error *err)
{
    char tenant[sizeof change->operation.tenant_id], config_id[sizeof tenant];
    struct operation_place place = {0};
    struct operation_seen seen = {0};
    bool write = false;
    enum berth_code code;

    memcpy(tenant, change->operation.tenant_id, sizeof tenant);
    memcpy(config_id, change->operation.config_id, sizeof config_id);
    code = operation_look(skills, tenant, config_id, change->operation.operation_id, &place,
                          &seen, err);
    if (code)
        return code;
    if (seen.rev[0]) {
        operation_deinit(&change->operation);
        change->operation = seen.operation;
        seen.operation.findings = NULL;
        change->now_ms = place.now_ms;
        change->leaves = false;
        code = change->decide(change, &write, err);
        *ret_done = !code && !write;
        if (write)
            code = write_change(skills, change, &place, seen.rev, ret_done, err);
    } else {
        code = berth_fail(err, BERTH_REASON_OPERATION_NOT_FOUND, "no operation '%s'",
                          change->operation.operation_id);
    }
    operation_place_deinit(&place);
    operation_seen_deinit(&seen);
    return code;
}

/* change->operation is owned by the caller on BERTH_OK only. */
static enum berth_code make_change(struct skills *skills, const char *tenant,
                                   const char *operation_id, struct change *change,
                                   struct berth_error *err)
{
    bool done = false;
    enum berth_code code =
        operation_read(skills, tenant, operation_id, &change->operation, err);

    if (code)
        return code;
    for (int i = 0; !code && !done && i < OPERATION_TRIES; i++) {
        operation_yield(i);
        code = try_change(skills, change, &done, err);
    }
    if (!code && !done)
        code = operation_contended(err);
    if (code)
        operation_deinit(&change->operation);
    return code;
}

/* ----------------------------------------------------------------------- cancel */

static enum berth_code decide_cancel(struct change *change, bool *ret_write,
                                     struct berth_error *err)
{
    struct operation *operation = &change->operation;

    if (operation->state == STATE(DONE) || operation->step >= STEP(FLIPPED))
        return berth_fail(err, BERTH_REASON_OPERATION_ENDED,
                          "the image has been published already");
    if (operation_has_ended(operation) || operation->cancel)
        return BERTH_OK;
    operation->cancel = true;
    *ret_write = true;
    if (operation->state == STATE(QUEUED)) {
        operation->state = STATE(CANCELLED);
        operation->end_ms = change->now_ms;
        snprintf(operation->message, sizeof operation->message, "cancelled while it waited");
        change->leaves = true;
    }
    return BERTH_OK;
}

enum berth_code operation_cancel(struct skills *skills, const char *tenant,
                                 const char *operation_id, struct operation *ret,
                                 struct berth_error *err)
{
    struct change change = {.decide = decide_cancel};
    enum berth_code code = make_change(skills, tenant, operation_id, &change, err);

    if (!code)
        *ret = change.operation;
    return code;
}

/* ----------------------------------------------------------------------- finish */

static enum berth_code decide_finish(struct change *change, bool *ret_write,
                                     struct berth_error *err)
{
    struct operation *operation = &change->operation;
    enum berth_code code;

    if (!operation->external_installer)
        return berth_fail_field(err, "operation_id",
                                "must be that of an installation with external_installer");
    if (operation->finished && operation->finished_ok == change->ok &&
        strncmp(operation->finish_message, change->message,
                sizeof operation->finish_message - 1) == 0)
        return BERTH_OK;
    if (operation_has_ended(operation))
        return berth_fail(err, BERTH_REASON_OPERATION_ENDED, NULL);
    if (operation->finished)
        return berth_fail(err, BERTH_REASON_CONFLICT, "it was finished in another way before");
    if (operation->state != STATE(RUNNING) || operation->step != STEP(EXTERNAL_INSTALLER)) {
        code = berth_fail(err, BERTH_REASON_CONFLICT, "it does not wait for an installer now");
        if (err)
            err->retry_after_ms = 1000;
        return code;
    }
    operation->finished = true;
    operation->finished_ok = change->ok;
    snprintf(operation->finish_message, sizeof operation->finish_message, "%s",
             change->message);
    *ret_write = true;
    return BERTH_OK;
}

enum berth_code operation_finish(struct skills *skills, const char *tenant,
                                 const char *operation_id, bool ok, const char *message,
                                 struct operation *ret, struct berth_error *err)
{
    struct change change = {.decide = decide_finish, .ok = ok, .message = message};
    enum berth_code code = make_change(skills, tenant, operation_id, &change, err);

    if (!code)
        *ret = change.operation;
    return code;
}

/* ---------------------------------------------------------------------- waiting */

static enum berth_code members(struct skills *skills, const char *key, struct berth_reply **ret,
                               struct berth_error *err)
{
    const char *const argv[] = {"SMEMBERS", key};
    enum berth_code code =
        berth_redis_call(skills->redis, BERTH_COUNT(argv), argv, NULL, ret, err);

    return code == BERTH_UNKNOWN ? berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE, NULL) : code;
}

/* The set is changed with the queue, so that only what Redis has lost leaves it too full. */
static enum berth_code forget(struct skills *skills, const char *tenant, const char *config_id,
                              const struct operation_place *place, struct berth_error *err)
{
    BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
    char key[BERTH_KEY_MAX], queues[BERTH_KEY_MAX];
    bool applied;

    if (!cas)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    berth_cas_expect(cas, berth_key_config(key, tenant, config_id), place->rev);
    berth_cas_write(cas, "SREM", berth_key_queues(queues, tenant), config_id, NULL);
    berth_cas_when_full(cas);
    return berth_cas_run(skills->redis, cas, false, &applied, NULL, NULL, err);
}

static enum berth_code each_of(struct skills *skills, const char *tenant,
                               void (*fn)(void *arg, const char *tenant, const char *config_id),
                               void *arg, struct berth_error *err)
{
    BERTH_AUTO(berth_reply_free) struct berth_reply *configs = NULL;
    char key[BERTH_KEY_MAX];
    enum berth_code code = members(skills, berth_key_queues(key, tenant), &configs, err);

    for (size_t i = 0; !code && i < configs->n_items; i++) {
        const char *config_id = configs->items[i]->string;
        struct operation_place place = {0};

        code = operation_look(skills, tenant, config_id, NULL, &place, NULL, err);
        if (code)
            break;
        if (json_array_size(place.queue) == 0)
            code = forget(skills, tenant, config_id, &place, err);
        else if (place.lock.until_ms <= place.now_ms)
            fn(arg, tenant, config_id);
        operation_place_deinit(&place);
    }
    return code;
}

enum berth_code operation_each_waiting(struct skills *skills,
                                       void (*fn)(void *arg, const char *tenant,
                                                  const char *config_id),
                                       void *arg, struct berth_error *err)
{
    BERTH_AUTO(berth_reply_free) struct berth_reply *tenants = NULL;
    enum berth_code code = members(skills, BERTH_KEY_TENANTS, &tenants, err);

    for (size_t i = 0; !code && i < tenants->n_items; i++)
        code = each_of(skills, tenants->items[i]->string, fn, arg, err);
    return code;
}
