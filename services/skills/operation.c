/* operation.c - reading operations and their place in the config; what every write of them has
 * in common. */
#include "services/skills/operation.h"

#include <stdio.h>
#include <time.h>

#include "berth/skills/v1/skills.pb-c.h"
#include "common/ids/ids.h"
#include "common/json/json.h"
#include "common/records/deployment.h"
#include "services/skills/operation_impl.h"

enum { LOOKS_MAX = 64 };

#define YIELD_NS 500000

bool operation_has_ended(const struct operation *operation)
{
    return operation->state == STATE(DONE) || operation->state == STATE(FAILED) ||
           operation->state == STATE(CANCELLED);
}

/* ------------------------------------------------------------------------- look */

void operation_place_deinit(struct operation_place *place)
{
    json_decref(place->queue);
    json_decref(place->failed);
    place->queue = place->failed = NULL;
}

void operation_seen_deinit(struct operation_seen *seen)
{
    operation_deinit(&seen->operation);
    free(seen->env);
    seen->env = NULL;
}

static enum berth_code read_place(const struct berth_doc *doc, struct operation_place *out,
                                  struct berth_error *err)
{
    enum berth_code code = operation_parse_ids(berth_doc_get(doc, "queue"), &out->queue, err);

    if (!code)
        code = operation_parse_ids(berth_doc_get(doc, "failed"), &out->failed, err);
    if (!code)
        code = operation_parse_lock(berth_doc_get(doc, "lock"), out, err);
    if (code)
        return berth_wrap(err, code, "%s", doc->key);
    snprintf(out->rev, sizeof out->rev, "%s", berth_doc_get(doc, "rev"));
    out->exists = strcmp(berth_doc_get(doc, "state"), "active") == 0;
    return BERTH_OK;
}

static enum berth_code read_seen(const struct berth_doc *doc, struct operation_seen *out,
                                 struct berth_error *err)
{
    const char *text = berth_doc_get(doc, "doc");
    enum berth_code code;

    if (!berth_doc_has(doc, "doc"))
        return BERTH_OK;
    code = operation_parse(text, strlen(text), &out->operation, err);
    if (code)
        return berth_wrap(err, code, "%s", doc->key);
    snprintf(out->rev, sizeof out->rev, "%s", berth_doc_get(doc, "rev"));
    for (size_t i = 0; i < doc->n_fields; i++) {
        const struct berth_doc_field *field = &doc->fields[i];

        if (strcmp(field->name, "env") != 0 || field->size == 0)
            continue;
        out->env = malloc(field->size);
        if (!out->env) {
            operation_seen_deinit(out);
            return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        }
        memcpy(out->env, field->value, field->size);
        out->env_size = field->size;
    }
    return BERTH_OK;
}

enum berth_code operation_look(struct skills *skills, const char *tenant, const char *config_id,
                               const char *id, struct operation_place *ret_place,
                               struct operation_seen *ret_seen, struct berth_error *err)
{
    static const char *const fields[] = {"rev", "state", "queue", "failed", "lock"};
    char config_key[BERTH_KEY_MAX], key[BERTH_KEY_MAX];
    const struct berth_redis_get gets[] = {
        {.key = berth_key_config(config_key, tenant, config_id),
         .fields = fields,
         .n_fields = BERTH_COUNT(fields)},
        {.key = berth_key_operation(key, tenant, id ? id : "")},
    };
    size_t n = id ? 2 : 1;
    struct operation_place place = {0};
    struct operation_seen seen = {0};
    struct berth_doc docs[2] = {0};
    enum berth_code code = berth_redis_read(skills->redis, gets, n, &place.now_ms, docs, err);

    if (code)
        return code;
    code = read_place(&docs[0], &place, err);
    if (!code && id)
        code = read_seen(&docs[1], &seen, err);
    for (size_t i = 0; i < n; i++)
        berth_doc_deinit(&docs[i]);
    if (code) {
        operation_place_deinit(&place);
        operation_seen_deinit(&seen);
        return code;
    }
    *ret_place = place;
    if (id)
        *ret_seen = seen;
    return BERTH_OK;
}

void operation_seen_free_all(struct operation_seen *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        operation_seen_deinit(&list[i]);
    free(list);
}

enum berth_code operation_look_all(struct skills *skills, const char *tenant, const json_t *ids,
                                   struct operation_seen **ret, size_t *ret_n,
                                   struct berth_error *err)
{
    char keys[LOOKS_MAX][BERTH_KEY_MAX];
    struct berth_redis_get gets[LOOKS_MAX] = {{0}};
    struct berth_doc docs[LOOKS_MAX] = {0};
    struct operation_seen *list;
    size_t n = json_array_size(ids), n_seen = 0;
    int64_t now_ms;
    enum berth_code code = BERTH_OK;

    if (n > LOOKS_MAX)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "a queue of %zu operations", n);
    list = calloc(n + 1, sizeof *list);
    if (!list)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    for (size_t i = 0; i < n; i++)
        gets[i].key =
            berth_key_operation(keys[i], tenant, json_string_value(json_array_get(ids, i)));
    if (n > 0)
        code = berth_redis_read(skills->redis, gets, n, &now_ms, docs, err);
    for (size_t i = 0; i < n; i++) {
        if (!code)
            code = read_seen(&docs[i], &list[n_seen], err);
        n_seen += !code && list[n_seen].rev[0];
        berth_doc_deinit(&docs[i]);
    }
    if (code) {
        operation_seen_free_all(list, n_seen);
        return code;
    }
    *ret = list;
    *ret_n = n_seen;
    return BERTH_OK;
}

enum berth_code operation_read(struct skills *skills, const char *tenant,
                               const char *operation_id, struct operation *ret,
                               struct berth_error *err)
{
    char key[BERTH_KEY_MAX];
    const struct berth_redis_get get = {.key = berth_key_operation(key, tenant, operation_id)};
    struct operation_seen seen = {0};
    struct berth_doc doc;
    int64_t now_ms;
    enum berth_code code = berth_redis_read(skills->redis, &get, 1, &now_ms, &doc, err);

    if (code)
        return code;
    code = read_seen(&doc, &seen, err);
    berth_doc_deinit(&doc);
    if (!code && !seen.rev[0]) {
        code = berth_epoch_check(skills->redis, err);
        if (!code)
            code = berth_fail(err, BERTH_REASON_OPERATION_NOT_FOUND, "no operation '%s'",
                              operation_id);
    }
    if (!code) {
        *ret = seen.operation;
        seen.operation.findings = NULL;
    }
    operation_seen_deinit(&seen);
    return code;
}

/* ------------------------------------------------------------------------- list */

void operation_list_free(struct operation *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        operation_deinit(&list[i]);
    free(list);
}

static void add_all(struct operation_seen *seen, size_t n, struct operation *list,
                    size_t *n_list)
{
    for (size_t i = 0; i < n; i++) {
        list[(*n_list)++] = seen[i].operation;
        seen[i].operation.findings = NULL;
    }
}

enum berth_code operation_list(struct skills *skills, const char *tenant, const char *config_id,
                               struct operation **ret, size_t *ret_n, struct berth_error *err)
{
    struct operation_place place = {0};
    struct operation_seen *queued = NULL, *failed = NULL;
    struct operation *list = NULL;
    size_t n_queued = 0, n_failed = 0, n = 0;
    enum berth_code code = operation_look(skills, tenant, config_id, NULL, &place, NULL, err);

    if (code)
        return code;
    code = operation_look_all(skills, tenant, place.queue, &queued, &n_queued, err);
    if (!code)
        code = operation_look_all(skills, tenant, place.failed, &failed, &n_failed, err);
    if (!code && !(list = calloc(n_queued + n_failed + 1, sizeof *list)))
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (!code) {
        add_all(queued, n_queued, list, &n);
        add_all(failed, n_failed, list, &n);
        *ret = list;
        *ret_n = n;
    }
    operation_seen_free_all(queued, n_queued);
    operation_seen_free_all(failed, n_failed);
    operation_place_deinit(&place);
    return code;
}

/* ------------------------------------------------------------------------ write */

void operation_expect_place(struct berth_cas *cas, const struct operation *operation,
                            const struct operation_place *place)
{
    char key[BERTH_KEY_MAX], rev[17];

    berth_key_config(key, operation->tenant_id, operation->config_id);
    berth_cas_expect(cas, key, place->rev);
    berth_cas_write(cas, "HSET", key, "rev", berth_rev_new(rev), NULL);
}

enum berth_code operation_write_queue(struct berth_cas *cas, const struct operation *operation,
                                      const json_t *queue, struct berth_error *err)
{
    BERTH_AUTO(free) char *text = queue ? json_dumps(queue, JSON_COMPACT) : NULL;
    char key[BERTH_KEY_MAX], queues[BERTH_KEY_MAX];

    if (!text)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    berth_key_config(key, operation->tenant_id, operation->config_id);
    berth_key_queues(queues, operation->tenant_id);
    if (json_array_size(queue) > 0) {
        berth_cas_write(cas, "HSET", key, "queue", text, NULL);
        berth_cas_write(cas, "SADD", queues, operation->config_id, NULL);
    } else {
        berth_cas_write(cas, "HDEL", key, "queue", NULL);
        berth_cas_write(cas, "SREM", queues, operation->config_id, NULL);
    }
    return BERTH_OK;
}

enum berth_code operation_write(struct berth_cas *cas, const char *rev,
                                const struct operation *operation, struct berth_error *err)
{
    BERTH_AUTO(free) char *text = operation_format(operation);
    char key[BERTH_KEY_MAX], log[BERTH_KEY_MAX], fresh[17], kept[24];

    if (!text)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    snprintf(kept, sizeof kept, "%lld", (long long)OPERATION_KEPT_MS);
    berth_key_operation(key, operation->tenant_id, operation->operation_id);
    berth_key_operation_log(log, operation->tenant_id, operation->operation_id);
    berth_cas_expect(cas, key, rev);
    berth_cas_write(cas, "HSET", key, "rev", berth_rev_new(fresh), "doc", text, NULL);
    berth_cas_write(cas, "PEXPIRE", log, kept, NULL);
    if (operation_has_ended(operation)) {
        berth_cas_write(cas, "HDEL", key, "env", NULL);
        berth_cas_write(cas, "PEXPIRE", key, kept, NULL);
    }
    return BERTH_OK;
}

enum berth_code operation_run(struct skills *skills, struct berth_cas *cas, bool durable,
                              bool *ret_applied, struct berth_error *err)
{
    enum berth_outcome outcome = BERTH_OUTCOME_REFUSED;
    struct berth_error why = {0};
    enum berth_code code =
        berth_cas_run(skills->redis, cas, durable, ret_applied, NULL, NULL, &why);

    if (code && why.reason == BERTH_REASON_OUTCOME_UNKNOWN) {
        code = berth_cas_settle(skills->redis, cas, durable, &outcome, &why);
        *ret_applied = outcome == BERTH_OUTCOME_APPLIED;
    }
    if (code && err)
        *err = why;
    return code;
}

void operation_yield(int n_tries)
{
    uint32_t random;
    struct timespec pause = {0};

    if (n_tries == 0)
        return;
    berth_random(&random, sizeof random);
    pause.tv_nsec = random % ((n_tries < 10 ? n_tries : 10) * YIELD_NS);
    nanosleep(&pause, NULL);
}

enum berth_code operation_contended(struct berth_error *err)
{
    enum berth_code code =
        berth_fail(err, BERTH_REASON_CONFLICT, "too many others write to the config at once");

    if (err)
        err->retry_after_ms = 100;
    return code;
}
