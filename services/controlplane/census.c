#include "services/controlplane/census.h"

#include <jansson.h>
#include <stdio.h>

#include "common/messages/messages.h"
#include "common/records/keys.h"
#include "services/controlplane/binding.h"
#include "services/controlplane/config_store.h"

enum { READ_MANY = 32, PAGE_SIZE = 256 };

void cp_census_add(struct cp_census *census, enum cp_sealed what, const char *key_id,
                   const char *tenant, const char *id)
{
    static const char *const names[CP_N_SEALED] = {"config", "the endpoint of session",
                                                   "the journal of"};
    struct cp_census_row *row = census->rows, *end = census->rows + census->n_rows;

    while (row < end && strcmp(row->key_id, key_id) != 0)
        row++;
    if (row == end && census->n_rows == CP_CENSUS_ROWS_MAX) {
        row--; /* the last one counts for all that have no room */
        snprintf(row->key_id, sizeof row->key_id, "?");
    } else if (row == end) {
        census->n_rows++;
        *row = (struct cp_census_row){0};
        snprintf(row->key_id, sizeof row->key_id, "%s", key_id);
        snprintf(row->example, sizeof row->example, "%s %s/%s", names[what], tenant, id);
    }
    row->n[what]++;
}

struct walk {
    struct cp *cp;
    cp_census_fn fn;
    void *arg;
    bool over;
};

static void tell(struct walk *walk, const char *tenant, const char *config_id,
                 const struct berth_doc *doc)
{
    char key_id[BERTH_KEY_ID_SIZE];

    for (size_t i = 0; !walk->over && i < doc->n_fields; i++)
        if (strcmp(doc->fields[i].name, "credentials") == 0 &&
            berth_sealed_key_id(doc->fields[i].value, doc->fields[i].size, key_id))
            walk->over = !walk->fn(walk->arg, CP_SEALED_CONFIG, tenant, config_id, key_id);
}

static enum berth_code walk_some(struct walk *walk, const char *tenant,
                                 struct berth_reply *const *ids, size_t n,
                                 struct berth_error *err)
{
    static const char *const fields[] = {"rev", "credentials"};
    char keys[READ_MANY][BERTH_KEY_MAX];
    struct berth_redis_get gets[READ_MANY] = {{0}};
    struct berth_doc docs[READ_MANY] = {{0}};
    int64_t now_ms;
    enum berth_code code;

    for (size_t i = 0; i < n; i++)
        gets[i] =
            (struct berth_redis_get){.key = berth_key_config(keys[i], tenant, ids[i]->string),
                                     .fields = fields,
                                     .n_fields = BERTH_COUNT(fields)};
    code = berth_redis_read(walk->cp->redis, gets, n, &now_ms, docs, err);
    for (size_t i = 0; !code && i < n; i++) {
        tell(walk, tenant, ids[i]->string, &docs[i]);
        berth_doc_deinit(&docs[i]);
    }
    return code;
}

static enum berth_code walk_tenant(struct walk *walk, const char *tenant,
                                   struct berth_error *err)
{
    char after[160] = "";
    enum berth_code code = BERTH_OK;
    size_t n = PAGE_SIZE;

    while (!code && !walk->over && n == PAGE_SIZE) {
        BERTH_AUTO(berth_reply_free) struct berth_reply *ids = NULL;

        code = cp_config_ids(walk->cp, tenant, after, PAGE_SIZE, &ids, err);
        if (code)
            return code;
        n = ids->n_items;
        for (size_t at = 0; !code && !walk->over && at < n; at += READ_MANY)
            code = walk_some(walk, tenant, ids->items + at,
                             n - at < READ_MANY ? n - at : READ_MANY, err);
        if (n > 0)
            snprintf(after, sizeof after, "%s", ids->items[n - 1]->string);
    }
    return code;
}

static enum berth_code walk_sessions(struct walk *walk, const char *tenant,
                                     struct berth_error *err)
{
    Berth__Common__V1__PageRequest page = BERTH__COMMON__V1__PAGE_REQUEST__INIT;
    Berth__Binding__V1__ListBindingsRequest req =
        BERTH__BINDING__V1__LIST_BINDINGS_REQUEST__INIT;
    Berth__Binding__V1__ListBindingsResponse *resp = NULL;
    BERTH_AUTO(free) char *token = NULL;
    enum berth_code code;

    req.tenant_id = (char *)tenant;
    req.page = &page;
    page.page_size = PAGE_SIZE;
    do {
        page.page_token = (char *)(token ? token : "");
        code = cp_binding_call(
            walk->cp, NULL, "/berth.binding.v1.BindingService/ListBindings", &req.base,
            &berth__binding__v1__list_bindings_response__descriptor, false, &resp, err);
        if (code)
            return code;
        for (size_t i = 0; !walk->over && i < resp->n_sessions; i++) {
            const Berth__Binding__V1__BoundSession *row = resp->sessions[i];

            if (*row->endpoint_key_id && row->session && row->session->ref)
                walk->over = !walk->fn(walk->arg, CP_SEALED_ENDPOINT, tenant,
                                       row->session->ref->session_id, row->endpoint_key_id);
        }
        free(token);
        token = strdup(resp->next_page_token);
        berth_message_free(resp);
        if (!token)
            return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    } while (!walk->over && *token);
    return BERTH_OK;
}

/* What the writers of journals have said of themselves. */
static void tell_journal(struct walk *walk, const char *id, const char *text)
{
    json_t *object = json_loads(text, 0, NULL), *key;
    const char *name = json_string_value(json_object_get(object, "name"));
    size_t i;

    json_array_foreach(json_object_get(object, "keys"), i, key)
    {
        if (!walk->over && json_is_string(key))
            walk->over = !walk->fn(walk->arg, CP_SEALED_JOURNAL, name ? name : "?", id,
                                   json_string_value(key));
    }
    json_decref(object);
}

static enum berth_code walk_journals(struct walk *walk, struct berth_error *err)
{
    static const char *const argv[] = {"HGETALL", BERTH_KEY_JOURNALS};
    BERTH_AUTO(berth_reply_free) struct berth_reply *all = NULL;
    enum berth_code code = berth_redis_call(walk->cp->redis, 2, argv, NULL, &all, err);

    if (code == BERTH_UNKNOWN)
        return berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE, NULL);
    for (size_t i = 0; !code && i + 1 < all->n_items; i += 2)
        tell_journal(walk, all->items[i]->string, all->items[i + 1]->string);
    return code;
}

enum berth_code cp_census_walk(struct cp *cp, bool sessions, cp_census_fn fn, void *arg,
                               struct berth_error *err)
{
    BERTH_AUTO(berth_reply_free) struct berth_reply *tenants = NULL;
    struct walk walk = {.cp = cp, .fn = fn, .arg = arg};
    enum berth_code code = cp_tenant_ids(cp, &tenants, err);

    for (size_t i = 0; !code && !walk.over && i < tenants->n_items; i++) {
        code = walk_tenant(&walk, tenants->items[i]->string, err);
        if (!code && sessions && !walk.over)
            code = walk_sessions(&walk, tenants->items[i]->string, err);
    }
    return code || walk.over ? code : walk_journals(&walk, err);
}

static bool count(void *arg, enum cp_sealed what, const char *tenant, const char *id,
                  const char *key_id)
{
    cp_census_add(arg, what, key_id, tenant, id);
    return true;
}

enum berth_code cp_census_take(struct cp *cp, bool sessions, struct cp_census *ret,
                               struct berth_error *err)
{
    *ret = (struct cp_census){0};
    return cp_census_walk(cp, sessions, count, ret, err);
}

enum berth_code cp_census_check(const struct cp_census *census,
                                const struct berth_keyring *keyring, struct berth_error *err)
{
    for (size_t i = 0; i < census->n_rows; i++) {
        const struct cp_census_row *row = &census->rows[i];

        if (!berth_keyring_has(keyring, row->key_id))
            return berth_fail_field(err, "key_file",
                                    "key '%s' is still needed: %s is sealed under it "
                                    "(%zu in all)",
                                    row->key_id, row->example,
                                    row->n[CP_SEALED_CONFIG] + row->n[CP_SEALED_ENDPOINT] +
                                        row->n[CP_SEALED_JOURNAL]);
    }
    return BERTH_OK;
}
