/* operation_queue.c - a new operation into its config's queue. */
#include <stdio.h>

#include "berth/skills/v1/skills.pb-c.h"
#include "common/crypto/crypto.h"
#include "common/ids/ids.h"
#include "common/records/deployment.h"
#include "services/skills/chain.h"
#include "services/skills/ledger.h"
#include "services/skills/operation_impl.h"

#define REQUEST_KEPT_MS "86400000" /* 24 hours */
#define METHOD "SkillService"

/* What its request id was used for; without one (key "") nothing. */
struct request {
    char key[BERTH_KEY_MAX];
    char digest[65];
    char rev[17];
    bool used;
    char used_digest[65], used_operation[OPERATION_ID_SIZE];
};

/* One operation on its way into the queue. */
struct queueing {
    struct skills *skills;
    struct operation *operation;
    const uint8_t *env;
    size_t env_size;
    struct request request;
};

/* ----------------------------------------------------------------- environment */

static enum berth_code seal_env(struct skills *skills, const struct operation *operation,
                                const json_t *env, uint8_t **ret, size_t *ret_size,
                                struct berth_error *err)
{
    char key[BERTH_KEY_MAX];
    char *text;
    enum berth_code code;

    if (json_object_size(env) == 0)
        return BERTH_OK;
    if (!skills->keyring)
        return berth_fail_field(err, "env",
                                "must be empty where no keys are kept (setting journal)");
    text = json_dumps(env, JSON_COMPACT);
    if (!text)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    berth_key_operation(key, operation->tenant_id, operation->operation_id);
    code =
        berth_seal(skills->keyring, text, strlen(text), key, strlen(key), ret, ret_size, err);
    berth_wipe(text, strlen(text));
    free(text);
    return code;
}

/* ------------------------------------------------------------------- request id */

/* What tells two requests apart. The values of the environment are compared only where there is
 * a key to hide them under. */
static enum berth_code digest_of(struct skills *skills, const struct operation *operation,
                                 const json_t *env, char ret[65], struct berth_error *err)
{
    char *values = json_dumps(env ? env : json_null(), JSON_SORT_KEYS | JSON_ENCODE_ANY);
    char numbers[128], marks[65] = "";
    const char *const parts[] = {operation->config_id,
                                 operation->skill_name,
                                 operation->bundle,
                                 operation->created_by,
                                 numbers,
                                 marks};
    uint8_t mac[32];

    if (!values)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (skills->keyring &&
        berth_keyring_mac(skills->keyring, "", "operation env", values, strlen(values), mac))
        berth_hex(marks, mac, sizeof mac);
    berth_wipe(values, strlen(values));
    free(values);
    snprintf(numbers, sizeof numbers, "%d %llu %d %d %lld", operation->kind,
             (unsigned long long)operation->from_generation, operation->allow_warnings,
             operation->external_installer, (long long)operation->time_limit_ms);
    berth_fingerprint(parts, BERTH_COUNT(parts), mac);
    berth_hex(ret, mac, sizeof mac);
    return BERTH_OK;
}

static enum berth_code begin_request(struct skills *skills, const struct operation *operation,
                                     const json_t *env, struct request *ret,
                                     struct berth_error *err)
{
    char name[33];
    uint8_t hash[32];

    if (!*operation->request_id)
        return BERTH_OK;
    berth_sha256_once(operation->request_id, strlen(operation->request_id), hash);
    berth_key_request(ret->key, operation->tenant_id, berth_hex(name, hash, 16));
    return digest_of(skills, operation, env, ret->digest, err);
}

static enum berth_code look_request(struct skills *skills, struct request *request,
                                    struct berth_error *err)
{
    const struct berth_redis_get get = {.key = request->key};
    struct berth_doc doc;
    int64_t now_ms;
    enum berth_code code;

    if (!*request->key)
        return BERTH_OK;
    code = berth_redis_read(skills->redis, &get, 1, &now_ms, &doc, err);
    if (code)
        return code;
    snprintf(request->rev, sizeof request->rev, "%s", berth_doc_get(&doc, "rev"));
    request->used = berth_doc_has(&doc, "method");
    request->used_digest[0] = request->used_operation[0] = 0;
    if (strcmp(berth_doc_get(&doc, "method"), METHOD) == 0) {
        snprintf(request->used_digest, sizeof request->used_digest, "%s",
                 berth_doc_get(&doc, "digest"));
        snprintf(request->used_operation, sizeof request->used_operation, "%s",
                 berth_doc_get(&doc, "operation"));
    }
    berth_doc_deinit(&doc);
    return BERTH_OK;
}

static void write_request(struct berth_cas *cas, const struct queueing *q)
{
    const struct request *request = &q->request;
    char rev[17];

    if (!*request->key)
        return;
    berth_cas_expect(cas, request->key, request->rev);
    berth_cas_write(cas, "HSET", request->key, "rev", berth_rev_new(rev), "method", METHOD,
                    "digest", request->digest, "operation", q->operation->operation_id, NULL);
    berth_cas_write(cas, "PEXPIRE", request->key, REQUEST_KEPT_MS, NULL);
}

/* -------------------------------------------------------------------- the queue */

static bool changes_a_skill(const struct operation *operation)
{
    return operation->kind == KIND(INSTALL) || operation->kind == KIND(UNINSTALL);
}

static bool is_overtaken(const struct operation *by, const struct operation *waiting)
{
    return changes_a_skill(by) && changes_a_skill(waiting) && waiting->state == STATE(QUEUED) &&
           strcmp(by->skill_name, waiting->skill_name) == 0;
}

static enum berth_code overtake(struct berth_cas *cas, const struct queueing *q,
                                struct operation_seen *waiting, int64_t now_ms,
                                struct berth_error *err)
{
    struct operation *operation = &waiting->operation;

    operation->state = STATE(CANCELLED);
    operation->end_ms = now_ms;
    snprintf(operation->message, sizeof operation->message, "overtaken by %s",
             q->operation->operation_id);
    return operation_write(cas, waiting->rev, operation, err);
}

/* The queue as it is to be: those that are there and not overtaken, then the new one. */
static enum berth_code join(struct berth_cas *cas, const struct queueing *q,
                            struct operation_seen *seen, size_t n_seen,
                            const struct operation_place *place, struct berth_error *err)
{
    BERTH_AUTO(json_decref) json_t *queue = json_array();
    bool good = queue != NULL;
    enum berth_code code = BERTH_OK;

    for (size_t i = 0; !code && good && i < n_seen; i++) {
        if (is_overtaken(q->operation, &seen[i].operation))
            code = overtake(cas, q, &seen[i], place->now_ms, err);
        else
            good =
                json_array_append_new(queue, json_string(seen[i].operation.operation_id)) == 0;
    }
    if (code)
        return code;
    if (good && json_array_size(queue) >= OPERATION_QUEUE_MAX)
        return berth_fail(err, BERTH_REASON_OVERLOADED, "%d operations of the config wait",
                          OPERATION_QUEUE_MAX);
    if (!good || json_array_append_new(queue, json_string(q->operation->operation_id)) < 0)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    return operation_write_queue(cas, q->operation, queue, err);
}

static enum berth_code write_all(struct queueing *q, const struct operation_place *place,
                                 bool *ret_applied, struct berth_error *err)
{
    BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
    struct operation_seen *seen = NULL;
    char key[BERTH_KEY_MAX];
    size_t n_seen = 0;
    enum berth_code code;

    if (!cas)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    code = operation_look_all(q->skills, q->operation->tenant_id, place->queue, &seen, &n_seen,
                              err);
    q->operation->create_ms = place->now_ms;
    operation_expect_place(cas, q->operation, place);
    if (!code)
        code = join(cas, q, seen, n_seen, place, err);
    if (!code)
        code = operation_write(cas, "", q->operation, err);
    berth_key_operation(key, q->operation->tenant_id, q->operation->operation_id);
    if (!code && q->env)
        berth_cas_hset(cas, key, "env", q->env, q->env_size);
    write_request(cas, q);
    if (!code)
        code = operation_run(q->skills, cas, true, ret_applied, err);
    operation_seen_free_all(seen, n_seen);
    return code;
}

static enum berth_code give_earlier(struct queueing *q, struct berth_error *err)
{
    struct operation earlier;
    enum berth_code code;

    if (strcmp(q->request.used_digest, q->request.digest) != 0)
        return berth_fail(err, BERTH_REASON_REQUEST_ID_REUSED, NULL);
    code = operation_read(q->skills, q->operation->tenant_id, q->request.used_operation,
                          &earlier, err);
    if (code)
        return code;
    operation_deinit(q->operation);
    *q->operation = earlier;
    return BERTH_OK;
}

static enum berth_code try_once(struct queueing *q, bool *ret_done, bool *ret_is_repeat,
                                struct berth_error *err)
{
    struct operation *operation = q->operation;
    struct operation_place place = {0};
    struct operation_seen mine = {0};
    enum berth_code code = look_request(q->skills, &q->request, err);

    if (!code)
        code = operation_look(q->skills, operation->tenant_id, operation->config_id,
                              operation->operation_id, &place, &mine, err);
    if (code)
        return code;
    if (mine.rev[0]) { /* a write of before whose answer was lost */
        *ret_done = true;
    } else if (q->request.used) {
        code = give_earlier(q, err);
        *ret_done = *ret_is_repeat = !code;
    } else if (!place.exists) {
        code = berth_fail(err, BERTH_REASON_CONFIG_NOT_FOUND, "no config '%s'",
                          operation->config_id);
    } else {
        code = write_all(q, &place, ret_done, err);
    }
    operation_place_deinit(&place);
    operation_seen_deinit(&mine);
    return code;
}

enum berth_code operation_repeat(struct skills *skills, struct operation *operation,
                                 const json_t *env, bool *ret_is_repeat,
                                 struct berth_error *err)
{
    struct queueing q = {.skills = skills, .operation = operation};
    enum berth_code code = begin_request(skills, operation, env, &q.request, err);

    *ret_is_repeat = false;
    if (!code)
        code = look_request(skills, &q.request, err);
    if (!code && q.request.used) {
        code = give_earlier(&q, err);
        *ret_is_repeat = !code;
    }
    return code;
}

enum berth_code operation_queue(struct skills *skills, struct operation *operation,
                                const json_t *env, bool *ret_is_repeat, struct berth_error *err)
{
    struct queueing q = {.skills = skills, .operation = operation};
    BERTH_AUTO(free) uint8_t *sealed = NULL;
    bool done = false;
    enum berth_code code;

    berth_id_hex(operation->operation_id, (OPERATION_ID_SIZE - 1) / 2);
    operation->state = STATE(QUEUED);
    operation->step = STEP(ACCEPTED);
    if (operation->external_installer) {
        berth_id_base36(operation->row_id, LEDGER_ROW_ID_LEN);
        snprintf(operation->session_id, sizeof operation->session_id, "sk.%s",
                 operation->row_id);
    }
    *ret_is_repeat = false;
    code = berth_epoch_check(skills->redis, err); /* absence says nothing while it is lost */
    if (!code)
        code = begin_request(skills, operation, env, &q.request, err);
    if (!code)
        code = seal_env(skills, operation, env, &sealed, &q.env_size, err);
    q.env = sealed;
    for (int i = 0; !code && !done && i < OPERATION_TRIES; i++) {
        operation_yield(i);
        code = try_once(&q, &done, ret_is_repeat, err);
    }
    if (!code && done)
        skills_chain_kick(skills, operation->tenant_id, operation->config_id);
    return code || done ? code : operation_contended(err);
}
