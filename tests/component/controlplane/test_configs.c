/* test_configs.c - tenants, configs and templates: what is kept, what is refused, what is told.
 */
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/component/controlplane/town.h"

#define TYPE(name) (&berth__control__v1__##name##__descriptor)
#define CONFIGS "/berth.control.v1.ConfigService/"
#define TENANTS "/berth.control.v1.TenantService/"

typedef Berth__Control__V1__CreateConfigRequest CreateConfigRequest;
typedef Berth__Control__V1__Credentials Credentials;
typedef Berth__Control__V1__DeleteConfigRequest DeleteConfigRequest;
typedef Berth__Control__V1__GetConfigRequest GetConfigRequest;
typedef Berth__Control__V1__GetConfigResponse GetConfigResponse;
typedef Berth__Control__V1__Tenant Tenant;
typedef Berth__Control__V1__UpdateConfigRequest UpdateConfigRequest;
typedef Berth__Control__V1__UpdateTenantRequest UpdateTenantRequest;

static struct town town;

static void open_town(void)
{
    town_open(&town, &(struct town_options){0});
}

static void close_town(void)
{
    town_close(&town);
}

static enum berth_reason call(const char *path, const void *req,
                              const ProtobufCMessageDescriptor *type, void *ret)
{
    return town_call(town.control[0], path, req, type, WAIT_MS, ret, NULL);
}

static SandboxConfig settings(const char *id)
{
    SandboxConfig config = BERTH__CONTROL__V1__SANDBOX_CONFIG__INIT;

    config.tenant_id = (char *)"t1";
    config.config_id = (char *)id;
    config.backend = (char *)"local";
    return config;
}

static enum berth_reason create(SandboxConfig *config, const char *request_id,
                                SandboxConfig **ret)
{
    CreateConfigRequest req = BERTH__CONTROL__V1__CREATE_CONFIG_REQUEST__INIT;
    Berth__Control__V1__CreateConfigResponse *resp = NULL;
    enum berth_reason reason;

    req.config = config;
    req.request_id = (char *)request_id;
    reason = call(CONFIGS "CreateConfig", &req, TYPE(create_config_response), &resp);
    if (!reason && ret)
        *ret = BERTH_STEAL(resp->config);
    berth_message_free(resp);
    return reason;
}

static SandboxConfig *get(const char *id)
{
    GetConfigRequest req = BERTH__CONTROL__V1__GET_CONFIG_REQUEST__INIT;
    GetConfigResponse *resp = NULL;
    SandboxConfig *config;

    req.tenant_id = (char *)"t1";
    req.config_id = (char *)id;
    ck_assert_int_eq(call(CONFIGS "GetConfig", &req, TYPE(get_config_response), &resp),
                     BERTH_REASON_NONE);
    config = BERTH_STEAL(resp->config);
    berth_message_free(resp);
    return config;
}

static enum berth_reason update(SandboxConfig *config, const char *path)
{
    UpdateConfigRequest req = BERTH__CONTROL__V1__UPDATE_CONFIG_REQUEST__INIT;
    Google__Protobuf__FieldMask mask = GOOGLE__PROTOBUF__FIELD_MASK__INIT;
    char *paths[] = {(char *)path};

    mask.paths = paths;
    mask.n_paths = path != NULL;
    req.config = config;
    req.update_mask = &mask;
    return call(CONFIGS "UpdateConfig", &req, TYPE(update_config_response), NULL);
}

static enum berth_reason delete_config(const char *id, bool force)
{
    DeleteConfigRequest req = BERTH__CONTROL__V1__DELETE_CONFIG_REQUEST__INIT;

    req.tenant_id = (char *)"t1";
    req.config_id = (char *)id;
    req.force = force;
    return call(CONFIGS "DeleteConfig", &req, TYPE(delete_config_response), NULL);
}

/* Credentials are sealed in the store, never shown, kept by masked and absent ones, and the
 * target carries them to the adapter sealed. */
START_TEST(config__credentials__sealed_and_write_only)
{
    SandboxConfig config = settings("sealed"), *made = NULL, *got;
    Credentials credentials = BERTH__CONTROL__V1__CREDENTIALS__INIT;
    char before[4096];

    credentials.api_key = (char *)"very-secret-key";
    config.credentials = &credentials;
    ck_assert_int_eq(create(&config, "", &made), BERTH_REASON_NONE);
    ck_assert(made->credentials_set && !made->credentials);
    ck_assert_uint_eq(strlen(made->fingerprint), 64);
    berth_message_free(made);
    ck_assert_ptr_null(
        strstr(town_field(&town, "berth:{t1}:c/sealed", "settings"), "secret-key"));
    snprintf(before, sizeof before, "%s",
             town_field(&town, "berth:{t1}:c/sealed", "credentials"));
    ck_assert_uint_gt(strlen(before), 0);

    /* A change of something else, and one that masks the key, keep it. */
    config.credentials = NULL;
    config.name = (char *)"renamed";
    ck_assert_int_eq(update(&config, "name"), BERTH_REASON_NONE);
    credentials.api_key = (char *)"********";
    config.credentials = &credentials;
    ck_assert_int_eq(update(&config, "credentials"), BERTH_REASON_NONE);
    got = get("sealed");
    ck_assert(got->credentials_set);
    ck_assert_str_eq(got->name, "renamed");
    berth_message_free(got);

    /* A key does not follow its config to another address. */
    config.credentials = NULL;
    config.api_url = (char *)"https://elsewhere.example";
    ck_assert_int_eq(update(&config, "api_url"), BERTH_REASON_FIELD_INVALID);
}
END_TEST

/* Where a config may lead is judged as it will be stored: neither half of a change of address
 * and switch gets round the other. */
START_TEST(config__endpoint__judged_with_its_own_switch)
{
    SandboxConfig config = settings("private");

    config.api_url = (char *)"http://127.0.0.1:3000";
    ck_assert_int_eq(create(&config, "", NULL), BERTH_REASON_ENDPOINT_REFUSED);
    config.allow_private_endpoints = true;
    ck_assert_int_eq(create(&config, "", NULL), BERTH_REASON_NONE);
    config.api_url = (char *)"http://10.0.0.1:3000";
    ck_assert_int_eq(update(&config, "api_url"), BERTH_REASON_NONE);
    config.allow_private_endpoints = false; /* not in the mask: the stored switch counts */
    config.api_url = (char *)"http://10.0.0.2:3000";
    ck_assert_int_eq(update(&config, "api_url"), BERTH_REASON_NONE);
    ck_assert_int_eq(update(&config, "allow_private_endpoints"), BERTH_REASON_ENDPOINT_REFUSED);
    config.api_url = (char *)"http://169.254.169.254";
    config.allow_private_endpoints = true;
    ck_assert_int_eq(update(&config, "api_url"), BERTH_REASON_ENDPOINT_REFUSED);
    config.api_url = (char *)"https://api.example";
    config.allow_private_endpoints = false;
    ck_assert_int_eq(update(&config, "*"), BERTH_REASON_NONE);
    config.proxy_url = (char *)"http://10.0.0.1:3128";
    config.allow_private_endpoints = true; /* not in the mask */
    ck_assert_int_eq(update(&config, "proxy_url"), BERTH_REASON_ENDPOINT_REFUSED);
}
END_TEST

/* The same request again gets the first answer; another one is refused. */
START_TEST(create_config__repeated__idempotent_by_request_id)
{
    SandboxConfig config = settings("c2"), *made = NULL;

    ck_assert_int_eq(create(&config, "r1", &made), BERTH_REASON_NONE);
    berth_message_free(made);
    ck_assert_int_eq(create(&config, "r1", &made), BERTH_REASON_NONE);
    berth_message_free(made);
    ck_assert_int_eq(create(&config, "r2", NULL), BERTH_REASON_CONFIG_EXISTS);
    ck_assert_int_eq(create(&config, "", NULL), BERTH_REASON_CONFIG_EXISTS);
    config.name = (char *)"another";
    ck_assert_int_eq(create(&config, "r1", NULL), BERTH_REASON_REQUEST_ID_REUSED);
}
END_TEST

/* Without an id it is made from the name. */
START_TEST(create_config__no_id__made_from_the_name)
{
    SandboxConfig config = settings(""), *made = NULL;

    config.name = (char *)"My first Config!";
    ck_assert_int_eq(create(&config, "", &made), BERTH_REASON_NONE);
    ck_assert_str_eq(made->config_id, "my-first-config");
    ck_assert_str_eq(made->template_id, "base");
    berth_message_free(made);
    config.name = (char *)"\xc3\xa4\xc3\xb6";
    ck_assert_int_eq(create(&config, "", NULL), BERTH_REASON_FIELD_INVALID);
}
END_TEST

/* What a client says about the server's own fields is passed over. */
START_TEST(config__server_owned_fields__ignored)
{
    SandboxConfig config = settings("c2"), *made = NULL, *got;
    Berth__Control__V1__ImagePointer image = BERTH__CONTROL__V1__IMAGE_POINTER__INIT;

    image.snapshot_id = (char *)"somebody-elses";
    image.generation = 7;
    image.usable = true;
    config.image = &image;
    config.fingerprint = (char *)"f00d";
    config.etag = (char *)"0123456789abcdef";
    config.created_by = (char *)"me";
    config.credentials_set = true;
    ck_assert_int_eq(create(&config, "", &made), BERTH_REASON_NONE);
    ck_assert(!made->image && !made->credentials_set);
    ck_assert_str_ne(made->fingerprint, "f00d");
    ck_assert_str_ne(made->etag, "0123456789abcdef");
    ck_assert_int_eq(strncmp(made->created_by, "peer/uid:", 9), 0);
    config.etag = made->etag;
    ck_assert_int_eq(update(&config, "image"), BERTH_REASON_NONE);
    got = get("c2");
    ck_assert_ptr_null(got->image);
    berth_message_free(got);
    berth_message_free(made);
}
END_TEST

/* Masks, etags and what cannot be changed. */
START_TEST(update_config__mask_and_etag__kept)
{
    SandboxConfig config = settings("c2"), *made = NULL, *got;
    Berth__Common__V1__TimeoutPolicy timeouts = BERTH__COMMON__V1__TIMEOUT_POLICY__INIT;
    Google__Protobuf__Duration idle = GOOGLE__PROTOBUF__DURATION__INIT;
    Berth__Common__V1__Resources resources = BERTH__COMMON__V1__RESOURCES__INIT;

    ck_assert_int_eq(create(&config, "", &made), BERTH_REASON_NONE);
    idle.seconds = 60;
    timeouts.idle = &idle;
    config.timeouts = &timeouts;
    config.root_commands = true; /* not in the mask */
    config.etag = made->etag;
    ck_assert_int_eq(update(&config, "timeouts"), BERTH_REASON_NONE);
    ck_assert_int_eq(update(&config, "timeouts"), BERTH_REASON_ETAG_MISMATCH);
    config.etag = (char *)"";
    got = get("c2");
    ck_assert_int_eq(got->timeouts->idle->seconds, 60);
    ck_assert(!got->root_commands);
    berth_message_free(got);
    ck_assert_int_eq(update(&config, "no_such_field"), BERTH_REASON_FIELD_INVALID);
    ck_assert_int_eq(update(&config, "root_commands"), BERTH_REASON_CAPABILITY_MISSING);
    resources.disk_bytes = 1 << 30;
    config.resources = &resources;
    ck_assert_int_eq(update(&config, "resources"), BERTH_REASON_CAPABILITY_MISSING);
    config.backend = (char *)"docker";
    ck_assert_int_eq(update(&config, "backend"), BERTH_REASON_FIELD_INVALID);
    config = settings("never");
    ck_assert_int_eq(update(&config, "name"), BERTH_REASON_CONFIG_NOT_FOUND);
    berth_message_free(made);
}
END_TEST

/* A config with sessions keeps its account and cannot be deleted; without, it can. */
START_TEST(config__in_use__identity_kept_and_not_deleted)
{
    SandboxConfig config = settings("c2");
    SessionSpec spec = BERTH__COMMON__V1__SESSION_SPEC__INIT;
    SandboxConfig *got;

    ck_assert_int_eq(create(&config, "", NULL), BERTH_REASON_NONE);
    spec.config_id = (char *)"c2";
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "s1", &spec, NULL, NULL), BERTH_REASON_NONE);
    ck_assert_int_eq(delete_config("c2", false), BERTH_REASON_CONFIG_IN_USE);
    ck_assert_int_eq(delete_config("c2", true), BERTH_REASON_CAPABILITY_MISSING);
    snprintf(town.fake->account_id, sizeof town.fake->account_id, "store-2");
    ck_assert_int_eq(update(&config, "options"), BERTH_REASON_CONFIG_IN_USE);
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "s1", NULL, NULL, NULL), BERTH_REASON_NONE);
    snprintf(town.fake->account_id, sizeof town.fake->account_id, "store-1");
    ck_assert_int_eq(town_act(&town, "Delete", "t1", "s1"), BERTH_REASON_NONE);

    got = get("c2");
    snprintf(town.fake->account_id, sizeof town.fake->account_id, "store-2");
    ck_assert_int_eq(update(&config, "options"), BERTH_REASON_NONE);
    ck_assert_str_ne(town_field(&town, "berth:{t1}:c/c2", "account"), got->fingerprint);
    berth_message_free(got);
    ck_assert_int_eq(delete_config("c2", false), BERTH_REASON_NONE);
    ck_assert_int_eq(delete_config("c2", false), BERTH_REASON_CONFIG_NOT_FOUND);
    ck_assert_int_eq(delete_config("c1", false), BERTH_REASON_CONFIG_IN_USE); /* the default */
}
END_TEST

/* Operations of skills that wait or run hold the config, and settings written meanwhile leave
 * what is the installer's alone. */
START_TEST(config__operations_wait__kept_and_not_deleted)
{
    static const char *const fields[] = {"queue", "lock", "failed", "skills:r1", "next"};
    SandboxConfig config = settings("c2");

    ck_assert_int_eq(create(&config, "", NULL), BERTH_REASON_NONE);
    for (size_t i = 0; i < BERTH_COUNT(fields); i++)
        berth_reply_free(
            redis_run(town.store, "HSET", "berth:{t1}:c/c2", fields[i], "[\"one\"]", NULL));
    config.cordoned = true;
    ck_assert_int_eq(update(&config, "cordoned"), BERTH_REASON_NONE);
    ck_assert_int_eq(delete_config("c2", false), BERTH_REASON_CONFIG_IN_USE);
    snprintf(town.fake->account_id, sizeof town.fake->account_id, "store-2");
    ck_assert_int_eq(update(&config, "options"), BERTH_REASON_CONFIG_IN_USE);
    for (size_t i = 0; i < BERTH_COUNT(fields); i++)
        ck_assert_str_eq(town_field(&town, "berth:{t1}:c/c2", fields[i]), "[\"one\"]");
    berth_reply_free(redis_run(town.store, "HDEL", "berth:{t1}:c/c2", "queue", NULL));
    ck_assert_int_eq(delete_config("c2", false), BERTH_REASON_NONE);
}
END_TEST

/* A cordoned config makes nothing new; what is there goes on. */
START_TEST(config__cordoned__nothing_new)
{
    SandboxConfig config = settings("c1");
    int64_t end_tick = berth_tick_ms() + WAIT_MS;

    (void)town_box(&town, "s1", NULL);
    config.cordoned = true;
    ck_assert_int_eq(update(&config, "cordoned"), BERTH_REASON_NONE);
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "s2", NULL, NULL, NULL),
                     BERTH_REASON_CONFIG_CORDONED);
    (void)town_box(&town, "s1", NULL);
    config.cordoned = false;
    ck_assert_int_eq(update(&config, "cordoned"), BERTH_REASON_NONE);
    while (town_resolve(&town, 0, "t1", "s2", NULL, NULL, NULL))
        ck_assert_int_lt(berth_tick_ms(), end_tick);
}
END_TEST

/* CheckConfig says what is wrong in words, and changes nothing. */
START_TEST(check_config__good_and_bad__told)
{
    Berth__Control__V1__CheckConfigRequest req = BERTH__CONTROL__V1__CHECK_CONFIG_REQUEST__INIT;
    Berth__Control__V1__CheckConfigResponse *resp = NULL;
    SandboxConfig config = settings("tried");

    req.tenant_id = (char *)"t1";
    req.target_case = BERTH__CONTROL__V1__CHECK_CONFIG_REQUEST__TARGET_CONFIG_ID;
    req.config_id = (char *)"c1";
    ck_assert_int_eq(call(CONFIGS "CheckConfig", &req, TYPE(check_config_response), &resp),
                     BERTH_REASON_NONE);
    ck_assert_msg(resp->ok, "%s", resp->message);
    berth_message_free(resp);
    req.target_case = BERTH__CONTROL__V1__CHECK_CONFIG_REQUEST__TARGET_CONFIG;
    req.config = &config;
    config.template_id = (char *)"no-such";
    ck_assert_int_eq(call(CONFIGS "CheckConfig", &req, TYPE(check_config_response), &resp),
                     BERTH_REASON_NONE);
    ck_assert(!resp->ok && strlen(resp->message) > 0);
    berth_message_free(resp);
    fake_script(town.fake, FAKE_GET_INFO, FAKE_REFUSE, BERTH_REASON_BACKEND_AUTHENTICATION, 1);
    ck_assert_int_eq(call(CONFIGS "CheckConfig", &req, TYPE(check_config_response), &resp),
                     BERTH_REASON_NONE);
    ck_assert(!resp->ok);
    berth_message_free(resp);
}
END_TEST

/* Capabilities of a config and of a session, and none of another tenant's. */
START_TEST(get_capabilities__of_config_and_session__told)
{
    Berth__Control__V1__GetCapabilitiesRequest req =
        BERTH__CONTROL__V1__GET_CAPABILITIES_REQUEST__INIT;
    Berth__Control__V1__GetCapabilitiesResponse *resp = NULL;

    (void)town_box(&town, "s1", NULL);
    req.tenant_id = (char *)"t1";
    req.of_case = BERTH__CONTROL__V1__GET_CAPABILITIES_REQUEST__OF_CONFIG_ID;
    req.config_id = (char *)"c1";
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(
            call(CONFIGS "GetCapabilities", &req, TYPE(get_capabilities_response), &resp),
            BERTH_REASON_NONE);
        ck_assert_str_eq(resp->backend, "local");
        ck_assert(resp->capabilities->keyed_create && resp->n_features > 0);
        berth_message_free(resp);
        req.of_case = BERTH__CONTROL__V1__GET_CAPABILITIES_REQUEST__OF_SESSION_ID;
        req.session_id = (char *)"s1";
    }
    req.tenant_id = (char *)"t2";
    ck_assert_int_eq(
        call(CONFIGS "GetCapabilities", &req, TYPE(get_capabilities_response), NULL),
        BERTH_REASON_SESSION_NOT_FOUND);
}
END_TEST

/* A disabled tenant is refused within 5 s; what frees goes on. */
START_TEST(tenant__disabled__refused_within_five_seconds)
{
    UpdateTenantRequest req = BERTH__CONTROL__V1__UPDATE_TENANT_REQUEST__INIT;
    Tenant tenant = BERTH__CONTROL__V1__TENANT__INIT;
    int64_t tick;

    (void)town_box(&town, "s1", NULL);
    tenant.tenant_id = (char *)"t1";
    tenant.disabled = true;
    req.tenant = &tenant;
    ck_assert_int_eq(call(TENANTS "UpdateTenant", &req, TYPE(update_tenant_response), NULL),
                     BERTH_REASON_NONE);
    tick = berth_tick_ms();
    while (town_resolve(&town, 0, "t1", "s1", NULL, NULL, NULL) != BERTH_REASON_TENANT_DISABLED)
        ck_assert_int_lt(berth_tick_ms() - tick, 5500);
    ck_assert_int_eq(town_act(&town, "Delete", "t1", "s1"), BERTH_REASON_NONE);
    ck_assert_uint_eq(fake_alive(town.fake), 0);
}
END_TEST

/* Tenants: made once, changed by etag, never pointed at a config that is not there. */
START_TEST(tenant__create_and_update__rules_kept)
{
    UpdateTenantRequest req = BERTH__CONTROL__V1__UPDATE_TENANT_REQUEST__INIT;
    Berth__Control__V1__UpdateTenantResponse *resp = NULL;
    Berth__Control__V1__CreateTenantRequest make =
        BERTH__CONTROL__V1__CREATE_TENANT_REQUEST__INIT;
    Berth__Control__V1__ListTenantsRequest list =
        BERTH__CONTROL__V1__LIST_TENANTS_REQUEST__INIT;
    Berth__Control__V1__ListTenantsResponse *all = NULL;
    Berth__Control__V1__Quotas quotas = BERTH__CONTROL__V1__QUOTAS__INIT;
    Tenant tenant = BERTH__CONTROL__V1__TENANT__INIT;

    tenant.tenant_id = (char *)"t1";
    make.tenant = &tenant;
    ck_assert_int_eq(call(TENANTS "CreateTenant", &make, TYPE(create_tenant_response), NULL),
                     BERTH_REASON_TENANT_EXISTS);
    tenant.tenant_id = (char *)"t3";
    tenant.default_config_id = (char *)"c1";
    ck_assert_int_eq(call(TENANTS "CreateTenant", &make, TYPE(create_tenant_response), NULL),
                     BERTH_REASON_FIELD_INVALID);
    tenant.default_config_id = (char *)"";
    make.request_id = (char *)"r1";
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(
            call(TENANTS "CreateTenant", &make, TYPE(create_tenant_response), NULL),
            BERTH_REASON_NONE);
    quotas.sessions = 9;
    tenant.quotas = &quotas;
    ck_assert_int_eq(call(TENANTS "CreateTenant", &make, TYPE(create_tenant_response), NULL),
                     BERTH_REASON_REQUEST_ID_REUSED);
    req.tenant = &tenant;
    ck_assert_int_eq(call(TENANTS "UpdateTenant", &req, TYPE(update_tenant_response), &resp),
                     BERTH_REASON_NONE);
    ck_assert_uint_eq(resp->tenant->quotas->sessions, 9);
    tenant.etag = (char *)"0000000000000000";
    ck_assert_int_eq(call(TENANTS "UpdateTenant", &req, TYPE(update_tenant_response), NULL),
                     BERTH_REASON_ETAG_MISMATCH);
    tenant.etag = resp->tenant->etag;
    tenant.default_config_id = (char *)"no-such";
    ck_assert_int_eq(call(TENANTS "UpdateTenant", &req, TYPE(update_tenant_response), NULL),
                     BERTH_REASON_CONFIG_NOT_FOUND);
    berth_message_free(resp);
    tenant.etag = (char *)"";
    tenant.tenant_id = (char *)"t9";
    ck_assert_int_eq(call(TENANTS "UpdateTenant", &req, TYPE(update_tenant_response), NULL),
                     BERTH_REASON_TENANT_NOT_FOUND);
    ck_assert_int_eq(call(TENANTS "ListTenants", &list, TYPE(list_tenants_response), &all),
                     BERTH_REASON_NONE);
    ck_assert_uint_eq(all->n_tenants, 3);
    ck_assert_str_eq(all->tenants[0]->tenant_id, "t1");
    berth_message_free(all);
}
END_TEST

static const struct {
    const char *path;  /* NULL: no mask */
    uint32_t sessions; /* given, with nothing else; there were 9 */
    uint32_t sessions_then, snapshots_then;
} quota_rows[] = {
    {NULL, 5, 5, 7},
    {NULL, 0, 9, 7},
    {"quotas.sessions", 5, 5, 7},
    {"quotas.sessions", 0, 0, 7},
    {"quotas.snapshots", 5, 9, 0},
    {"quotas", 5, 5, 0},
};

/* A quota that is not named stays; without a mask those are named that are set. */
START_TEST(update_tenant__some_quotas__the_others_stay)
{
    Berth__Control__V1__UpdateTenantRequest req =
        BERTH__CONTROL__V1__UPDATE_TENANT_REQUEST__INIT;
    Berth__Control__V1__UpdateTenantResponse *resp = NULL;
    Berth__Control__V1__Quotas quotas = BERTH__CONTROL__V1__QUOTAS__INIT;
    Google__Protobuf__FieldMask mask = GOOGLE__PROTOBUF__FIELD_MASK__INIT;
    Tenant tenant = BERTH__CONTROL__V1__TENANT__INIT;
    char *paths[] = {(char *)"quotas"};

    tenant.tenant_id = (char *)"t1";
    tenant.quotas = &quotas;
    req.tenant = &tenant;
    mask.paths = paths;
    mask.n_paths = 1;
    for (size_t i = 0; i < BERTH_COUNT(quota_rows); i++) {
        paths[0] = (char *)"quotas";
        req.update_mask = &mask;
        quotas.sessions = 9;
        quotas.snapshots = 7;
        quotas.stored_bytes = INT64_MAX;
        ck_assert_int_eq(call(TENANTS "UpdateTenant", &req, TYPE(update_tenant_response), NULL),
                         BERTH_REASON_NONE);
        quotas = (Berth__Control__V1__Quotas)BERTH__CONTROL__V1__QUOTAS__INIT;
        quotas.sessions = quota_rows[i].sessions;
        paths[0] = (char *)quota_rows[i].path;
        req.update_mask = paths[0] ? &mask : NULL;
        ck_assert_int_eq(
            call(TENANTS "UpdateTenant", &req, TYPE(update_tenant_response), &resp),
            BERTH_REASON_NONE);
        ck_assert_uint_eq(resp->tenant->quotas->sessions, quota_rows[i].sessions_then);
        ck_assert_uint_eq(resp->tenant->quotas->snapshots, quota_rows[i].snapshots_then);
        ck_assert_uint_eq(resp->tenant->quotas->stored_bytes,
                          quota_rows[i].snapshots_then == 0 && quota_rows[i].sessions_then == 5
                              ? 0
                              : INT64_MAX);
        berth_message_free(resp);
    }
    paths[0] = (char *)"quotas.no_such";
    req.update_mask = &mask;
    ck_assert_int_eq(call(TENANTS "UpdateTenant", &req, TYPE(update_tenant_response), NULL),
                     BERTH_REASON_FIELD_INVALID);
}
END_TEST

/* Lists and targets come in pages that end. */
START_TEST(list__configs_and_targets__paged)
{
    Berth__Control__V1__ListConfigsRequest req = BERTH__CONTROL__V1__LIST_CONFIGS_REQUEST__INIT;
    Berth__Control__V1__ListConfigsResponse *resp = NULL;
    Berth__Control__V1__ListTargetsRequest ask = BERTH__CONTROL__V1__LIST_TARGETS_REQUEST__INIT;
    Berth__Control__V1__ListTargetsResponse *targets = NULL;
    Berth__Common__V1__PageRequest page = BERTH__COMMON__V1__PAGE_REQUEST__INIT;
    char name[16], token[300] = "";
    size_t n = 0;

    for (int i = 2; i < 6; i++) {
        SandboxConfig config;

        snprintf(name, sizeof name, "c%d", i);
        config = settings(name);
        ck_assert_int_eq(create(&config, "", NULL), BERTH_REASON_NONE);
    }
    page.page_size = 2;
    req.tenant_id = (char *)"t1";
    req.page = &page;
    do {
        page.page_token = token;
        ck_assert_int_eq(call(CONFIGS "ListConfigs", &req, TYPE(list_configs_response), &resp),
                         BERTH_REASON_NONE);
        n += resp->n_configs;
        snprintf(token, sizeof token, "%s", resp->next_page_token);
        berth_message_free(resp);
    } while (token[0]);
    ck_assert_uint_eq(n, 5);
    n = 0;
    ask.page = &page;
    do {
        page.page_token = token;
        ck_assert_int_eq(call("/berth.control.v1.InternalService/ListTargets", &ask,
                              TYPE(list_targets_response), &targets),
                         BERTH_REASON_NONE);
        n += targets->n_targets;
        for (size_t i = 0; i < targets->n_targets; i++)
            ck_assert_uint_eq(targets->targets[i]->target->fingerprint.len, 32);
        snprintf(token, sizeof token, "%s", targets->next_page_token);
        berth_message_free(targets);
    } while (token[0]);
    ck_assert_uint_eq(n, 6);
}
END_TEST

/* ----------------------------------------------------------------- templates */

struct build {
    struct berth_loop *loop;
    struct berth_channel *channel;
    struct berth_buf *request;
    pthread_mutex_t mutex;
    unsigned n_steps;
    bool over;
    enum berth_code code;
};

static void on_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct build *build = ctx;

    if (!msg)
        return;
    build->n_steps++;
    berth_buf_unref(msg);
    berth_stream_read(stream);
}

static void on_written(void *ctx, struct berth_stream *stream)
{
    (void)ctx;
    (void)stream;
}

static void on_closed(void *ctx, struct berth_stream *stream, const struct berth_status *status)
{
    struct build *build = ctx;

    (void)stream;
    pthread_mutex_lock(&build->mutex);
    build->over = true;
    build->code = status->code;
    if (status->code)
        fprintf(stderr, "# build: %d %s\n", (int)status->code, status->message);
    pthread_mutex_unlock(&build->mutex);
}

static void start_build(void *arg)
{
    static const struct berth_stream_ops ops = {
        .message = on_message, .written = on_written, .closed = on_closed};
    struct build *build = arg;
    struct berth_stream *stream =
        berth_channel_stream(build->channel, "/berth.control.v1.TemplateService/BuildTemplate",
                             NULL, build->loop, &ops, build);

    (void)berth_stream_write(stream, build->request);
    berth_stream_half_close(stream);
    berth_stream_read(stream);
}

static enum berth_code run_build(const char *config_id, unsigned *ret_steps)
{
    Berth__Control__V1__BuildTemplateRequest req =
        BERTH__CONTROL__V1__BUILD_TEMPLATE_REQUEST__INIT;
    struct build build = {.channel = town.control[0], .mutex = PTHREAD_MUTEX_INITIALIZER};
    int64_t end_tick = berth_tick_ms() + WAIT_MS;
    bool over = false;

    req.tenant_id = (char *)"t1";
    req.config_id = (char *)config_id;
    req.name = (char *)"base2";
    build.request = berth_buf_pack(&req.base);
    ck_assert_int_eq(berth_loop_new(&build.loop, NULL), BERTH_OK);
    ck_assert_int_eq(berth_loop_start(build.loop, "build", NULL), BERTH_OK);
    berth_loop_post(build.loop, start_build, &build);
    while (!over) {
        ck_assert_int_lt(berth_tick_ms(), end_tick);
        usleep(1000);
        pthread_mutex_lock(&build.mutex);
        over = build.over;
        pthread_mutex_unlock(&build.mutex);
    }
    berth_loop_free(build.loop);
    *ret_steps = build.n_steps;
    return build.code;
}

/* A build is handed on with every step of its progress; templates are asked for by config. */
START_TEST(templates__build_and_get__forwarded)
{
    Berth__Control__V1__GetTemplateRequest req = BERTH__CONTROL__V1__GET_TEMPLATE_REQUEST__INIT;
    Berth__Control__V1__GetTemplateResponse *resp = NULL;
    unsigned steps = 0;

    ck_assert_int_eq(run_build("c1", &steps), BERTH_OK);
    ck_assert_uint_eq(steps, 3);
    ck_assert_int_eq(run_build("no-such", &steps), BERTH_NOT_FOUND);
    ck_assert_int_eq(run_build("", &steps), BERTH_INVALID_ARGUMENT);
    req.tenant_id = (char *)"t1";
    req.config_id = (char *)"c1";
    req.template_id = (char *)"base";
    ck_assert_int_eq(call("/berth.control.v1.TemplateService/GetTemplate", &req,
                          TYPE(get_template_response), &resp),
                     BERTH_REASON_NONE);
    ck_assert_str_eq(resp->template_->template_id, "base");
    berth_message_free(resp);
    req.template_id = (char *)"none";
    ck_assert_int_eq(call("/berth.control.v1.TemplateService/GetTemplate", &req,
                          TYPE(get_template_response), NULL),
                     BERTH_REASON_TEMPLATE_NOT_FOUND);
}
END_TEST

/* ---------------------------------------------------------------- deployment */

static int exit_status(struct process *process)
{
    int status;

    process_start(process);
    ck_assert_int_eq(waitpid(process->pid, &status, 0), process->pid);
    process->pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* --init takes an empty store only, and none of which there is a journal: that one was lost.
 * Another deployment's store stops the start. */
START_TEST(deployment__init_and_mismatch__refused_where_it_must)
{
    struct process *second = &town.planes[1];

    *second = town.planes[0];
    second->pid = 0;
    snprintf(second->run_dir, sizeof second->run_dir, "%s/second", town.dir);
    ck_assert_int_eq(mkdir(second->run_dir, 0755), 0);
    snprintf(second->texts[1], sizeof second->texts[1], "--run_dir=%s", second->run_dir);
    snprintf(second->texts[second->n_args++], sizeof second->texts[0], "--init");
    ck_assert_int_ne(exit_status(second), 0); /* in use */
    second->n_args--;
    snprintf(second->texts[2], sizeof second->texts[2], "--deployment=another");
    ck_assert_int_ne(exit_status(second), 0);

    process_kill(&town.planes[0]); /* it would take the store for its own that was emptied */
    berth_reply_free(redis_run(town.store, "FLUSHALL", NULL));
    ck_assert_int_ne(exit_status(second), 0); /* nobody's: it may have been emptied */
    second->n_args++;
    snprintf(second->texts[2], sizeof second->texts[2], "--deployment=test");
    ck_assert_int_ne(exit_status(second), 0); /* emptied: there is the journal */
    snprintf(second->texts[2], sizeof second->texts[2], "--deployment=another");
    for (size_t i = 0; i < second->n_args; i++)
        if (strncmp(second->texts[i], "--journal=", strlen("--journal=")) == 0)
            snprintf(second->texts[i], sizeof second->texts[i], "--journal=%s/second.journal",
                     town.dir);
    ck_assert_int_eq(exit_status(second), 0);
    berth_reply_free(redis_run(town.store, "FLUSHALL", NULL));
    snprintf(second->texts[2], sizeof second->texts[2], "--deployment=test");
    ck_assert_int_eq(exit_status(second), 0);
    ck_assert_int_ne(exit_status(second), 0); /* once */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("controlplane/configs");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(all, open_town, close_town);
    tcase_set_timeout(all, 60);
    tcase_add_test(all, config__credentials__sealed_and_write_only);
    tcase_add_test(all, config__endpoint__judged_with_its_own_switch);
    tcase_add_test(all, create_config__repeated__idempotent_by_request_id);
    tcase_add_test(all, create_config__no_id__made_from_the_name);
    tcase_add_test(all, config__server_owned_fields__ignored);
    tcase_add_test(all, update_config__mask_and_etag__kept);
    tcase_add_test(all, config__in_use__identity_kept_and_not_deleted);
    tcase_add_test(all, config__operations_wait__kept_and_not_deleted);
    tcase_add_test(all, config__cordoned__nothing_new);
    tcase_add_test(all, check_config__good_and_bad__told);
    tcase_add_test(all, get_capabilities__of_config_and_session__told);
    tcase_add_test(all, tenant__disabled__refused_within_five_seconds);
    tcase_add_test(all, update_tenant__some_quotas__the_others_stay);
    tcase_add_test(all, tenant__create_and_update__rules_kept);
    tcase_add_test(all, list__configs_and_targets__paged);
    tcase_add_test(all, templates__build_and_get__forwarded);
    tcase_add_test(all, deployment__init_and_mismatch__refused_where_it_must);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
