#include "services/controlplane/token_store.h"

#include <stdio.h>

#include "common/crypto/crypto.h"
#include "common/records/deployment.h"
#include "common/records/keys.h"
#include "common/time/time.h"
#include "services/controlplane/changes.h"

#define KEPT_EXPIRED_MS ((int64_t)24 * 60 * 60 * 1000)

enum { FIELD_SIZE = sizeof BERTH_TOKEN_FIELD + BERTH_TOKEN_ID_LEN };

static bool is_deployment(const char *tenant)
{
    return strcmp(tenant, BERTH_DEPLOYMENT_TENANT) == 0;
}

static const char *field_of(char buf[FIELD_SIZE], const char *token_id)
{
    snprintf(buf, FIELD_SIZE, BERTH_TOKEN_FIELD "%s", token_id);
    return buf;
}

/* A plain command. An answer that did not come: nothing is known to be wrong with a repeat. */
static enum berth_code run(struct cp *cp, size_t argc, const char *const *argv,
                           struct berth_reply **ret, struct berth_error *err)
{
    enum berth_code code = berth_redis_call(cp->redis, argc, argv, NULL, ret, err);

    return code == BERTH_UNKNOWN ? berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE, NULL) : code;
}

/* ----------------------------------------------------------------------- find */

/* *ret_tenant "": nobody's. */
static enum berth_code find_tenant(struct cp *cp, const char *token_id, char ret_tenant[129],
                                   struct berth_error *err)
{
    char key[BERTH_KEY_MAX];
    const char *const argv[] = {"GET", berth_key_token(key, token_id)};
    BERTH_AUTO(berth_reply_free) struct berth_reply *reply = NULL;
    enum berth_code code = run(cp, BERTH_COUNT(argv), argv, &reply, err);

    ret_tenant[0] = 0;
    if (!code && reply->type == BERTH_REPLY_STRING && reply->size <= 128)
        snprintf(ret_tenant, 129, "%s", reply->string);
    return code;
}

static void fill(struct berth_principal *out, const struct berth_token_doc *doc,
                 const char *tenant)
{
    *out = (struct berth_principal){.deployment = is_deployment(tenant),
                                    .expire_ms = doc->expire_ms};
    memcpy(out->token.id, doc->token_id, sizeof out->token.id);
    memcpy(out->token.hash, doc->hash, sizeof out->token.hash);
    memcpy(out->session_id, doc->session_id, sizeof out->session_id);
    memcpy(out->config_id, doc->config_id, sizeof out->config_id);
    if (!out->deployment)
        snprintf(out->tenant_id, sizeof out->tenant_id, "%s", tenant);
    for (unsigned i = 0; i < doc->n_scopes; i++)
        if (doc->scopes[i] > (int)out->scope)
            out->scope = (enum berth_scope)doc->scopes[i];
}

static enum berth_code read_one(struct cp *cp, const char *tenant, const char *token_id,
                                struct berth_principal *ret, bool *ret_found,
                                struct berth_error *err)
{
    char key[BERTH_KEY_MAX], field[FIELD_SIZE];
    const char *const fields[] = {field_of(field, token_id), "disabled", "max_calls",
                                  "max_commands"};
    const struct berth_redis_get get = {.key = berth_key_tenant(key, tenant),
                                        .fields = fields,
                                        .n_fields = BERTH_COUNT(fields)};
    struct berth_token_doc token = {0};
    struct berth_doc doc;
    int64_t now_ms;
    enum berth_code code = berth_redis_read(cp->redis, &get, 1, &now_ms, &doc, err);

    if (code)
        return code;
    *ret_found = berth_doc_has(&doc, field);
    if (*ret_found)
        code = berth_token_doc_parse(token_id, berth_doc_get(&doc, field), &token, err);
    if (*ret_found && !code) {
        fill(ret, &token, tenant);
        ret->tenant_disabled = strcmp(berth_doc_get(&doc, "disabled"), "1") == 0;
        ret->calls_per_second = (uint32_t)strtoul(berth_doc_get(&doc, "max_calls"), NULL, 10);
        ret->max_commands = (uint32_t)strtoul(berth_doc_get(&doc, "max_commands"), NULL, 10);
        *ret_found = !token.expire_ms || berth_now_ms() < token.expire_ms;
    }
    berth_doc_deinit(&doc);
    return code;
}

enum berth_code cp_token_find(struct cp *cp, const char *token_id, struct berth_principal *ret,
                              bool *ret_found, struct berth_error *err)
{
    char tenant[129];
    bool found = false;
    enum berth_code code = cp_enter(cp, err);

    if (!code)
        code = find_tenant(cp, token_id, tenant, err);
    if (!code && tenant[0])
        code = read_one(cp, tenant, token_id, ret, &found, err);
    if (!code && !found)
        code = berth_epoch_check(cp->redis, err);
    if (!code)
        *ret_found = found;
    return code;
}

struct job {
    struct cp *cp;
    struct berth_auth_look *look;
    char token_id[BERTH_TOKEN_ID_SIZE];
};

static void run_look(void *arg)
{
    struct job *job = arg;
    struct berth_principal found;
    struct berth_error err = {0};
    bool there = false;
    enum berth_code code = cp_token_find(job->cp, job->token_id, &found, &there, &err);

    berth_auth_found(job->look, code, there ? &found : NULL, &err);
    free(job);
}

void cp_token_look(void *arg, const char *token_id, struct berth_auth_look *look)
{
    struct cp *cp = arg;
    struct job *job = calloc(1, sizeof *job);
    struct berth_error err = {0};
    enum berth_code code;

    if (job) {
        *job = (struct job){.cp = cp, .look = look};
        snprintf(job->token_id, sizeof job->token_id, "%s", token_id);
        code = berth_pool_submit(cp->runtime->pool, run_look, job, &err);
    } else {
        code = berth_fail(&err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    if (code) {
        free(job);
        berth_auth_found(look, code, NULL, &err);
    }
}

/* ----------------------------------------------------------------------- list */

static int compare(const void *a, const void *b)
{
    const struct berth_token_doc *x = a, *y = b;

    return strcmp(x->token_id, y->token_id);
}

static enum berth_code decode_all(const struct berth_doc *doc, struct berth_token_doc **ret,
                                  size_t *ret_n, struct berth_error *err)
{
    struct berth_token_doc *list = calloc(doc->n_fields + 1, sizeof *list);
    const size_t prefix = strlen(BERTH_TOKEN_FIELD);
    enum berth_code code = BERTH_OK;
    size_t n = 0;

    if (!list)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    for (size_t i = 0; !code && i < doc->n_fields; i++)
        if (strncmp(doc->fields[i].name, BERTH_TOKEN_FIELD, prefix) == 0)
            code = berth_token_doc_parse(doc->fields[i].name + prefix, doc->fields[i].value,
                                         &list[n++], err);
    if (code) {
        free(list);
        return code;
    }
    qsort(list, n, sizeof *list, compare);
    *ret = list;
    *ret_n = n;
    return BERTH_OK;
}

/* ret_rev: of the document, "" where there is none yet (the deployment's). */
static enum berth_code read_all(struct cp *cp, const char *tenant, char ret_rev[17],
                                struct berth_token_doc **ret, size_t *ret_n,
                                struct berth_error *err)
{
    char key[BERTH_KEY_MAX];
    const struct berth_redis_get get = {.key = berth_key_tenant(key, tenant)};
    struct berth_doc doc;
    int64_t now_ms;
    enum berth_code code = berth_redis_read(cp->redis, &get, 1, &now_ms, &doc, err);

    if (code)
        return code;
    if (!doc.exists && !is_deployment(tenant)) {
        code = berth_epoch_check(cp->redis, err);
        if (!code)
            code = berth_fail(err, BERTH_REASON_TENANT_NOT_FOUND, "no tenant '%s'", tenant);
    }
    snprintf(ret_rev, 17, "%s", berth_doc_get(&doc, "rev"));
    if (!code)
        code = decode_all(&doc, ret, ret_n, err);
    berth_doc_deinit(&doc);
    return code;
}

enum berth_code cp_token_list(struct cp *cp, const char *tenant, struct berth_token_doc **ret,
                              size_t *ret_n, struct berth_error *err)
{
    char rev[17];

    return read_all(cp, tenant, rev, ret, ret_n, err);
}

/* ----------------------------------------------------------------- add, remove */

/* Before the document: what names a document that never came is nobody's. *ret_taken: somebody
 * has this id. */
static enum berth_code claim(struct cp *cp, const char *tenant,
                             const struct berth_token_doc *doc, bool *ret_taken,
                             struct berth_error *err)
{
    char key[BERTH_KEY_MAX], until[24];
    const char *argv[6] = {"SET", berth_key_token(key, doc->token_id), tenant, "NX"};
    BERTH_AUTO(berth_reply_free) struct berth_reply *reply = NULL;
    size_t n = 4;
    enum berth_code code;

    if (doc->expire_ms) {
        snprintf(until, sizeof until, "%lld", (long long)(doc->expire_ms + KEPT_EXPIRED_MS));
        argv[n++] = "PXAT";
        argv[n++] = until;
    }
    code = run(cp, n, argv, &reply, err);
    if (!code)
        *ret_taken = reply->type == BERTH_REPLY_NIL;
    return code;
}

/* Those that have expired long ago go with the next write. */
static size_t prune(struct berth_cas *cas, const char *key, const struct berth_token_doc *list,
                    size_t n)
{
    int64_t now_ms = berth_now_ms();
    size_t n_left = n;
    char field[FIELD_SIZE];

    for (size_t i = 0; i < n; i++) {
        if (!list[i].expire_ms || list[i].expire_ms + KEPT_EXPIRED_MS > now_ms)
            continue;
        berth_cas_write(cas, "HDEL", key, field_of(field, list[i].token_id), NULL);
        n_left--;
    }
    return n_left;
}

static enum berth_code try_add(struct cp *cp, const char *tenant,
                               const struct berth_token_doc *token, bool *ret_applied,
                               struct berth_error *err)
{
    BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
    BERTH_AUTO(free) char *json = berth_token_doc_format(token);
    BERTH_AUTO(free) struct berth_token_doc *list = NULL;
    char key[BERTH_KEY_MAX], rev[17], field[FIELD_SIZE];
    const char *const keys[] = {key};
    size_t n = 0;
    enum berth_code code = read_all(cp, tenant, rev, &list, &n, err);

    if (code)
        return code;
    if (!cas || !json)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    berth_cas_expect(cas, berth_key_tenant(key, tenant), rev);
    if (prune(cas, key, list, n) >= CP_TOKENS_MAX)
        return berth_fail(err, BERTH_REASON_QUOTA_EXCEEDED,
                          "tokens: the tenant may have %d, and has %zu", CP_TOKENS_MAX, n);
    berth_cas_write(cas, "HSET", key, "rev", berth_rev_new(rev),
                    field_of(field, token->token_id), json, NULL);
    return berth_records_run(cp->records, cas, keys, 1, ret_applied, err);
}

/* Best effort: without its document it is nobody's. */
static void unclaim(struct cp *cp, const char *token_id)
{
    char key[BERTH_KEY_MAX];
    const char *const argv[] = {"DEL", berth_key_token(key, token_id)};
    BERTH_AUTO(berth_reply_free) struct berth_reply *reply = NULL;

    (void)run(cp, BERTH_COUNT(argv), argv, &reply, NULL);
}

/* Before an id is claimed: is there such a tenant? */
static enum berth_code check_there(struct cp *cp, const char *tenant, struct berth_error *err)
{
    struct berth_token_doc *list = NULL;
    char rev[17];
    size_t n = 0;
    enum berth_code code = read_all(cp, tenant, rev, &list, &n, err);

    free(list);
    return code;
}

enum berth_code cp_token_add(struct cp *cp, const char *tenant, bool e2b_shape,
                             struct berth_token_doc *doc, char text[BERTH_TOKEN_SIZE],
                             struct berth_error *err)
{
    struct berth_token token;
    bool taken = true, applied = false;
    enum berth_code code = check_there(cp, tenant, err);

    for (int i = 0; i < CP_CAS_TRIES && !code && taken; i++) {
        berth_token_make(e2b_shape, text, &token);
        memcpy(doc->token_id, token.id, sizeof doc->token_id);
        memcpy(doc->hash, token.hash, sizeof doc->hash);
        code = claim(cp, tenant, doc, &taken, err);
    }
    if (!code && taken)
        code = berth_fail(err, BERTH_REASON_CONFLICT, NULL);
    for (int i = 0; i < CP_CAS_TRIES && !code && !applied; i++)
        code = try_add(cp, tenant, doc, &applied, err);
    if (!code && !applied)
        code = berth_fail(err, BERTH_REASON_CONFLICT, NULL);
    if (!code) {
        cp_cache_forget(cp->cache, tenant, NULL);
        return BERTH_OK;
    }
    berth_wipe(text, BERTH_TOKEN_SIZE);
    if (!taken)
        unclaim(cp, doc->token_id);
    return code;
}

static enum berth_code try_remove(struct cp *cp, const char *tenant, const char *token_id,
                                  bool *ret_applied, struct berth_error *err)
{
    BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
    BERTH_AUTO(free) struct berth_token_doc *list = NULL;
    char key[BERTH_KEY_MAX], rev[17], field[FIELD_SIZE];
    const char *const keys[] = {key};
    bool found = false;
    size_t n = 0;
    enum berth_code code = read_all(cp, tenant, rev, &list, &n, err);

    if (code)
        return code;
    for (size_t i = 0; i < n; i++)
        found |= strcmp(list[i].token_id, token_id) == 0;
    if (!found)
        return berth_fail(err, BERTH_REASON_TOKEN_NOT_FOUND, "no token '%s'", token_id);
    if (!cas)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    berth_cas_expect(cas, berth_key_tenant(key, tenant), rev);
    berth_cas_write(cas, "HSET", key, "rev", berth_rev_new(rev), NULL);
    berth_cas_write(cas, "HDEL", key, field_of(field, token_id), NULL);
    berth_cas_when_full(cas);
    return berth_records_run(cp->records, cas, keys, 1, ret_applied, err);
}

enum berth_code cp_token_remove(struct cp *cp, const char *tenant, const char *token_id,
                                struct berth_error *err)
{
    bool applied = false;
    enum berth_code code = BERTH_OK;

    for (int i = 0; i < CP_CAS_TRIES && !code && !applied; i++)
        code = try_remove(cp, tenant, token_id, &applied, err);
    if (!code && !applied)
        code = berth_fail(err, BERTH_REASON_CONFLICT, NULL);
    cp_changed(cp, BERTH_CHANGE_TOKEN,
               strcmp(tenant, BERTH_DEPLOYMENT_TENANT) == 0 ? "" : tenant, token_id);
    if (code)
        return code;
    unclaim(cp, token_id);
    cp_cache_forget(cp->cache, tenant, NULL);
    return BERTH_OK;
}
