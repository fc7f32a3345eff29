/* tenant_rpc.c - TenantService: tenants are records, each one hash. */
#include <stdio.h>

#include "common/fields/fields.h"
#include "common/ids/ids.h"
#include "common/messages/messages.h"
#include "common/records/deployment.h"
#include "common/records/keys.h"
#include "common/time/time.h"
#include "services/controlplane/changes.h"
#include "services/controlplane/checks.h"
#include "services/controlplane/config_ops.h"

typedef Berth__Control__V1__CreateTenantRequest CreateTenantRequest;
typedef Berth__Control__V1__CreateTenantResponse CreateTenantResponse;
typedef Berth__Control__V1__GetTenantRequest GetTenantRequest;
typedef Berth__Control__V1__GetTenantResponse GetTenantResponse;
typedef Berth__Control__V1__ListTenantsRequest ListTenantsRequest;
typedef Berth__Control__V1__ListTenantsResponse ListTenantsResponse;
typedef Berth__Control__V1__Quotas Quotas;
typedef Berth__Control__V1__Tenant Tenant;
typedef Berth__Control__V1__UpdateTenantRequest UpdateTenantRequest;
typedef Berth__Control__V1__UpdateTenantResponse UpdateTenantResponse;

enum { ETAG_MAX = 64 };

#define REQUEST_ID_KEPT_MS ((int64_t)24 * 60 * 60 * 1000)

static enum berth_code no_memory(struct berth_error *err)
{
    return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

/* ----------------------------------------------------------- check, show, read */

static enum berth_code check_tenant(const Tenant *tenant, struct berth_error *err)
{
    enum berth_code code = berth_check_present("tenant", tenant, err);

    if (!code)
        code = berth_check_id("tenant.tenant_id", tenant->tenant_id, err);
    if (!code)
        code =
            berth_check_id_or_empty("tenant.default_config_id", tenant->default_config_id, err);
    if (!code)
        code = berth_check_text("tenant.etag", tenant->etag, 0, ETAG_MAX, err);
    if (!code && tenant->quotas && tenant->quotas->stored_bytes > INT64_MAX)
        code = berth_fail_field(err, "tenant.quotas.stored_bytes", "must be at most 2^63 - 1");
    return code;
}

#define QUOTA(member)                                                                          \
    {                                                                                          \
#member, offsetof(Quotas, member), offsetof(struct berth_tenant_quotas, member),       \
            sizeof(((Quotas *)NULL)->member)                                                   \
    }

static const struct {
    const char *name;
    size_t from, into, size;
} limits[] = {
    QUOTA(sessions),     QUOTA(running_sandboxes),   QUOTA(snapshots),
    QUOTA(stored_bytes), QUOTA(concurrent_commands), QUOTA(requests_per_second),
};
#undef QUOTA

/* One of them; from may be NULL: all 0. */
static void take_quota(struct berth_tenant_quotas *into, const Quotas *from, size_t at)
{
    static const Quotas none = BERTH__CONTROL__V1__QUOTAS__INIT;

    memcpy((char *)into + limits[at].into,
           (const char *)(from ? from : &none) + limits[at].from, limits[at].size);
}

static bool is_set(const Quotas *from, size_t at)
{
    static const char zeros[sizeof(uint64_t)];

    return memcmp((const char *)from + limits[at].from, zeros, limits[at].size) != 0;
}

static void read_quotas(const Quotas *from, struct berth_tenant_quotas *ret)
{
    *ret = (struct berth_tenant_quotas){0};
    for (size_t i = 0; i < BERTH_COUNT(limits); i++)
        take_quota(ret, from, i);
}

static Tenant *show(const char *tenant_id, const struct berth_tenant_doc *doc)
{
    Tenant *out = berth_message_new(&berth__control__v1__tenant__descriptor);

    if (!out)
        return NULL;
    out->quotas = berth_message_new(&berth__control__v1__quotas__descriptor);
    if (!out->quotas || !berth_set_string(&out->tenant_id, tenant_id) ||
        !berth_set_string(&out->default_config_id, doc->default_config) ||
        !berth_set_string(&out->created_by, doc->created_by) ||
        !berth_set_string(&out->etag, doc->rev))
        return berth_message_free(out);
    out->disabled = doc->disabled;
    out->quotas->sessions = doc->quotas.sessions;
    out->quotas->running_sandboxes = doc->quotas.running_sandboxes;
    out->quotas->snapshots = doc->quotas.snapshots;
    out->quotas->stored_bytes = doc->quotas.stored_bytes;
    out->quotas->concurrent_commands = doc->quotas.concurrent_commands;
    out->quotas->requests_per_second = doc->quotas.requests_per_second;
    return out;
}

/* config_id "": no config is read. */
static enum berth_code read_tenant(struct cp *cp, const char *tenant, const char *config_id,
                                   struct berth_tenant_doc *ret, char ret_config_rev[17],
                                   struct berth_error *err)
{
    static const char *const rev[] = {"rev", "state"};
    char key[BERTH_KEY_MAX], config_key[BERTH_KEY_MAX];
    struct berth_redis_get gets[2] = {{.key = berth_key_tenant(key, tenant),
                                       .fields = berth_tenant_fields,
                                       .n_fields = berth_n_tenant_fields}};
    struct berth_doc docs[2] = {0};
    size_t n = *config_id ? 2 : 1;
    int64_t now_ms;
    enum berth_code code;

    if (*config_id)
        gets[1] =
            (struct berth_redis_get){.key = berth_key_config(config_key, tenant, config_id),
                                     .fields = rev,
                                     .n_fields = BERTH_COUNT(rev)};
    code = berth_redis_read(cp->redis, gets, n, &now_ms, docs, err);
    if (code)
        return code;
    code = berth_tenant_doc_parse(&docs[0], ret, err);
    if (n == 2 && !code)
        snprintf(ret_config_rev, 17, "%s",
                 strcmp(berth_doc_get(&docs[1], "state"), "active") == 0
                     ? berth_doc_get(&docs[1], "rev")
                     : "");
    for (size_t i = 0; i < n; i++)
        berth_doc_deinit(&docs[i]);
    return code;
}

static enum berth_code must_exist(struct cp *cp, const char *tenant,
                                  const struct berth_tenant_doc *doc, struct berth_error *err)
{
    enum berth_code code;

    if (doc->exists)
        return BERTH_OK;
    code = berth_epoch_check(cp->redis, err);
    return code ? code
                : berth_fail(err, BERTH_REASON_TENANT_NOT_FOUND, "no tenant '%s'", tenant);
}

/* Write doc over what had rev ("": nothing), given that the default config still has its own.
 */
static enum berth_code store(struct cp *cp, const char *tenant, const char *rev,
                             const char *config_rev, struct berth_tenant_doc *doc,
                             bool *ret_applied, struct berth_error *err)
{
    BERTH_AUTO(berth_cas_free) struct berth_cas *cas = berth_cas_new();
    BERTH_AUTO(free) char *json = berth_tenant_doc_format(doc);
    char key[BERTH_KEY_MAX], config_key[BERTH_KEY_MAX], max_sessions[16], max_calls[16];
    char max_commands[16];
    const char *const keys[] = {key};
    enum berth_code code;

    if (!cas || !json)
        return no_memory(err);
    /* By themselves for who does not read the whole document. */
    snprintf(max_sessions, sizeof max_sessions, "%u", doc->quotas.sessions);
    snprintf(max_calls, sizeof max_calls, "%u", doc->quotas.requests_per_second);
    snprintf(max_commands, sizeof max_commands, "%u", doc->quotas.concurrent_commands);
    berth_cas_expect(cas, berth_key_tenant(key, tenant), rev);
    if (*config_rev)
        berth_cas_expect(cas, berth_key_config(config_key, tenant, doc->default_config),
                         config_rev);
    berth_cas_write(cas, "HSET", key, "rev", berth_rev_new(doc->rev), "tenant", json,
                    "default_config", doc->default_config, "disabled",
                    doc->disabled ? "1" : "0", "max_sessions", max_sessions, "max_calls",
                    max_calls, "max_commands", max_commands, NULL);
    /* What was left of a write that had to be settled would expire. */
    berth_cas_write(cas, "PERSIST", key, NULL);
    code = berth_records_run(cp->records, cas, keys, 1, ret_applied, err);
    cp_changed(cp, BERTH_CHANGE_TENANT, tenant, NULL);
    return code;
}

/* The set of tenants is a hint: added to before the tenant is written, never removed from. */
static enum berth_code add_hint(struct cp *cp, const char *tenant, struct berth_error *err)
{
    const char *const argv[] = {"SADD", BERTH_KEY_TENANTS, tenant};
    BERTH_AUTO(berth_reply_free) struct berth_reply *reply = NULL;

    return berth_redis_call(cp->redis, BERTH_COUNT(argv), argv, NULL, &reply, err);
}

/* ------------------------------------------------------------- CreateTenant */

static enum berth_code judge_existing(const struct berth_tenant_doc *doc,
                                      const CreateTenantRequest *req, struct berth_error *err)
{
    struct berth_tenant_quotas quotas;

    if (!*req->request_id || strcmp(doc->create_request_id, req->request_id) != 0 ||
        berth_now_ms() - doc->create_ms > REQUEST_ID_KEPT_MS)
        return berth_fail(err, BERTH_REASON_TENANT_EXISTS, "tenant '%s' exists",
                          req->tenant->tenant_id);
    read_quotas(req->tenant->quotas, &quotas);
    if (doc->create_ms == doc->update_ms &&
        (memcmp(&quotas, &doc->quotas, sizeof quotas) != 0 ||
         doc->disabled != !!req->tenant->disabled))
        return berth_fail(err, BERTH_REASON_REQUEST_ID_REUSED, NULL);
    return BERTH_OK;
}

static enum berth_code create(struct cp *cp, const CreateTenantRequest *req, const char *actor,
                              struct berth_tenant_doc *ret, struct berth_error *err)
{
    const char *tenant = req->tenant->tenant_id;

    for (int i = 0; i < CP_CAS_TRIES; i++) {
        struct berth_tenant_doc doc;
        bool applied = false;
        char rev[sizeof doc.rev];
        enum berth_code code = read_tenant(cp, tenant, "", &doc, NULL, err);

        if (!code && doc.exists) {
            code = judge_existing(&doc, req, err);
            if (!code)
                *ret = doc;
            return code;
        }
        if (!code)
            code = berth_epoch_check(cp->redis, err);
        if (!code)
            code = add_hint(cp, tenant, err);
        if (code)
            return code;
        doc.create_ms = doc.update_ms = berth_now_ms();
        doc.disabled = req->tenant->disabled;
        read_quotas(req->tenant->quotas, &doc.quotas);
        snprintf(doc.create_request_id, sizeof doc.create_request_id, "%s", req->request_id);
        snprintf(doc.created_by, sizeof doc.created_by, "%s", actor);
        memcpy(rev, doc.rev, sizeof rev);
        code = store(cp, tenant, rev, "", &doc, &applied, err);
        if (code || applied) {
            if (!code)
                *ret = doc;
            return code;
        }
    }
    return berth_fail(err, BERTH_REASON_CONFLICT, NULL);
}

CP_HANDLER(create_tenant)
{
    struct cp *cp = service;
    const CreateTenantRequest *req = (const CreateTenantRequest *)message;
    struct berth_tenant_doc doc;
    CreateTenantResponse *out;
    char actor[BERTH_ACTOR_SIZE];
    enum berth_code code = check_tenant(req->tenant, err);

    if (!code && *req->tenant->default_config_id)
        code = berth_fail_field(err, "tenant.default_config_id",
                                "must be empty: a new tenant has no configs yet");
    if (!code)
        code = cp_check_request_id(req->request_id, err);
    if (!code)
        code = cp_enter(cp, err);
    if (!code)
        code = create(cp, req, berth_actor(call, actor), &doc, err);
    if (code)
        return code;
    out = berth_message_new(&berth__control__v1__create_tenant_response__descriptor);
    if (!out || !(out->tenant = show(req->tenant->tenant_id, &doc))) {
        berth_message_free(out);
        return no_memory(err);
    }
    *ret_resp = &out->base;
    return BERTH_OK;
}

/* ------------------------------------------------------- GetTenant, ListTenants */

CP_HANDLER(get_tenant)
{
    struct cp *cp = service;
    const GetTenantRequest *req = (const GetTenantRequest *)message;
    struct berth_tenant_doc doc;
    GetTenantResponse *out;
    enum berth_code code = berth_check_id("tenant_id", req->tenant_id, err);

    (void)call;
    if (!code)
        code = cp_enter(cp, err);
    if (!code)
        code = read_tenant(cp, req->tenant_id, "", &doc, NULL, err);
    if (!code)
        code = must_exist(cp, req->tenant_id, &doc, err);
    if (code)
        return code;
    out = berth_message_new(&berth__control__v1__get_tenant_response__descriptor);
    if (!out || !(out->tenant = show(req->tenant_id, &doc))) {
        berth_message_free(out);
        return no_memory(err);
    }
    *ret_resp = &out->base;
    return BERTH_OK;
}

static enum berth_code add_shown(struct cp *cp, const char *tenant, ListTenantsResponse *out,
                                 struct berth_error *err)
{
    struct berth_tenant_doc doc;
    enum berth_code code = read_tenant(cp, tenant, "", &doc, NULL, err);

    if (!code && doc.exists &&
        !berth_add_message(&out->n_tenants, &out->tenants, show(tenant, &doc)))
        code = no_memory(err);
    return code;
}

CP_HANDLER(list_tenants)
{
    struct cp *cp = service;
    const ListTenantsRequest *req = (const ListTenantsRequest *)message;
    BERTH_AUTO(berth_reply_free) struct berth_reply *ids = NULL;
    ListTenantsResponse *out;
    const char *after;
    uint32_t size = 0;
    size_t i;
    enum berth_code code = cp_check_page(req->page, &size, &after, err);

    (void)call;
    if (!code)
        code = cp_enter(cp, err);
    if (!code)
        code = cp_tenant_ids(cp, &ids, err);
    if (code)
        return code;
    out = berth_message_new(&berth__control__v1__list_tenants_response__descriptor);
    if (!out)
        return no_memory(err);
    for (i = 0; i < ids->n_items && strcmp(ids->items[i]->string, after) <= 0; i++)
        ;
    for (; !code && i < ids->n_items && out->n_tenants < size; i++)
        code = add_shown(cp, ids->items[i]->string, out, err);
    if (!code && i < ids->n_items &&
        !berth_set_string(&out->next_page_token, ids->items[i - 1]->string))
        code = no_memory(err);
    if (code)
        berth_message_free(out);
    else
        *ret_resp = &out->base;
    return code;
}

/* ------------------------------------------------------------- UpdateTenant */

/* "quotas", or one of them as "quotas.sessions". */
static bool names_quotas(const char *path)
{
    return strncmp(path, "quotas", 6) == 0 && (path[6] == '\0' || path[6] == '.');
}

static bool apply_quotas(struct berth_tenant_doc *doc, const Quotas *from, const char *path)
{
    if (!path[6]) {
        read_quotas(from, &doc->quotas);
        return true;
    }
    for (size_t i = 0; i < BERTH_COUNT(limits); i++)
        if (strcmp(path + 7, limits[i].name) == 0) {
            take_quota(&doc->quotas, from, i);
            return true;
        }
    return false;
}

static enum berth_code apply_path(struct berth_tenant_doc *doc, const Tenant *from,
                                  const char *path, bool *names_config, struct berth_error *err)
{
    if (strcmp(path, "default_config_id") == 0) {
        snprintf(doc->default_config, sizeof doc->default_config, "%s",
                 from->default_config_id);
        *names_config = true;
    } else if (strcmp(path, "disabled") == 0) {
        doc->disabled = from->disabled;
    } else if (names_quotas(path) && apply_quotas(doc, from->quotas, path)) {
        return BERTH_OK;
    } else if (strcmp(path, "tenant_id") != 0 && strcmp(path, "usage") != 0 &&
               strcmp(path, "etag") != 0) {
        return berth_fail_field(err, "update_mask", "'%.40s' is not a field of a tenant", path);
    }
    return BERTH_OK;
}

/* Without a mask: every field that is set, and of the quotas those that are. */
static enum berth_code apply(struct berth_tenant_doc *doc, const UpdateTenantRequest *req,
                             bool *names_config, struct berth_error *err)
{
    const Google__Protobuf__FieldMask *mask = req->update_mask;
    const Tenant *from = req->tenant;
    enum berth_code code = BERTH_OK;

    if (!mask || mask->n_paths == 0) {
        if (*from->default_config_id)
            code = apply_path(doc, from, "default_config_id", names_config, err);
        if (!code && from->disabled)
            code = apply_path(doc, from, "disabled", names_config, err);
        for (size_t i = 0; from->quotas && i < BERTH_COUNT(limits); i++)
            if (is_set(from->quotas, i))
                take_quota(&doc->quotas, from->quotas, i);
        return code;
    }
    for (size_t i = 0; !code && i < mask->n_paths; i++)
        code = apply_path(doc, from, mask->paths[i], names_config, err);
    return code;
}

static enum berth_code try_update(struct cp *cp, const UpdateTenantRequest *req,
                                  struct berth_tenant_doc *doc, bool *ret_applied,
                                  struct berth_error *err)
{
    const Tenant *from = req->tenant;
    char config_rev[17] = "", old_rev[17];
    bool names_config = false;
    enum berth_code code =
        read_tenant(cp, from->tenant_id, from->default_config_id, doc, config_rev, err);

    if (!code)
        code = must_exist(cp, from->tenant_id, doc, err);
    if (code)
        return code;
    if (*from->etag && strcmp(from->etag, doc->rev) != 0)
        return berth_fail(err, BERTH_REASON_ETAG_MISMATCH, "tenant '%s' has etag %s",
                          from->tenant_id, doc->rev);
    memcpy(old_rev, doc->rev, sizeof old_rev);
    code = apply(doc, req, &names_config, err);
    if (code)
        return code;
    if (names_config && doc->default_config[0] && !config_rev[0])
        return berth_fail(err, BERTH_REASON_CONFIG_NOT_FOUND, "no config '%s'",
                          doc->default_config);
    doc->update_ms = berth_now_ms();
    return store(cp, from->tenant_id, old_rev, names_config ? config_rev : "", doc, ret_applied,
                 err);
}

static bool sets_limits(const UpdateTenantRequest *req)
{
    const Google__Protobuf__FieldMask *mask = req->update_mask;
    bool sets = false;

    if (!mask || mask->n_paths == 0)
        return req->tenant->disabled || req->tenant->quotas;
    for (size_t i = 0; i < mask->n_paths; i++)
        sets |= strcmp(mask->paths[i], "disabled") == 0 || names_quotas(mask->paths[i]);
    return sets;
}

/* A tenant does not lift its own limits. */
static enum berth_code check_reach(const struct berth_call *call,
                                   const UpdateTenantRequest *req, struct berth_error *err)
{
    const struct berth_principal *who = berth_principal_of(call);

    if (!who || who->deployment || !sets_limits(req))
        return BERTH_OK;
    return berth_fail(err, BERTH_REASON_SCOPE_MISSING,
                      "disabled and quotas take a token of the deployment");
}

/* An unknown path is told before anything is looked up. */
static enum berth_code check_mask(const UpdateTenantRequest *req, struct berth_error *err)
{
    struct berth_tenant_doc scratch = {0};
    bool names_config;

    return apply(&scratch, req, &names_config, err);
}

CP_HANDLER(update_tenant)
{
    struct cp *cp = service;
    const UpdateTenantRequest *req = (const UpdateTenantRequest *)message;
    struct berth_tenant_doc doc = {0};
    UpdateTenantResponse *out;
    bool applied = false;
    enum berth_code code = check_tenant(req->tenant, err);

    if (!code)
        code = check_mask(req, err);
    if (!code)
        code = check_reach(call, req, err);
    if (!code)
        code = cp_enter(cp, err);
    for (int i = 0; i < CP_CAS_TRIES && !code && !applied; i++)
        code = try_update(cp, req, &doc, &applied, err);
    if (!code && !applied)
        code = berth_fail(err, BERTH_REASON_CONFLICT, NULL);
    if (code)
        return code;
    out = berth_message_new(&berth__control__v1__update_tenant_response__descriptor);
    if (!out || !(out->tenant = show(req->tenant->tenant_id, &doc))) {
        berth_message_free(out);
        return no_memory(err);
    }
    *ret_resp = &out->base;
    return BERTH_OK;
}

const struct berth_method cp_tenant_methods[] = {
    {"/berth.control.v1.TenantService/CreateTenant",
     &berth__control__v1__create_tenant_request__descriptor, .unary = create_tenant},
    {"/berth.control.v1.TenantService/GetTenant",
     &berth__control__v1__get_tenant_request__descriptor, .unary = get_tenant},
    {"/berth.control.v1.TenantService/ListTenants",
     &berth__control__v1__list_tenants_request__descriptor, .unary = list_tenants},
    {"/berth.control.v1.TenantService/UpdateTenant",
     &berth__control__v1__update_tenant_request__descriptor, .unary = update_tenant},
};
const size_t cp_n_tenant_methods = BERTH_COUNT(cp_tenant_methods);
