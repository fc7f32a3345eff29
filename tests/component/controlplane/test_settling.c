/* test_settling.c - records whose write was lost on the way, by half or as a whole: done once,
 * and a write that arrives late does nothing. */
#include <stdio.h>

#include "tests/component/controlplane/town.h"

static struct town town;
static struct proxy proxy;

#define TENANTS "/berth.control.v1.TenantService/"
#define CONFIGS "/berth.control.v1.ConfigService/"

static enum berth_reason call(const char *path, const void *req,
                              const ProtobufCMessageDescriptor *type)
{
    struct berth_error err = {0};
    enum berth_reason reason = town_call(town.control[0], path, req, type, WAIT_MS, NULL, &err);

    ck_assert_msg(!reason, "%s: %s", path, err.text);
    return reason;
}

static void create_tenant(const char *id)
{
    Berth__Control__V1__Tenant tenant = BERTH__CONTROL__V1__TENANT__INIT;
    Berth__Control__V1__CreateTenantRequest req =
        BERTH__CONTROL__V1__CREATE_TENANT_REQUEST__INIT;

    tenant.tenant_id = (char *)id;
    req.tenant = &tenant;
    call(TENANTS "CreateTenant", &req, &berth__control__v1__create_tenant_response__descriptor);
}

static void update_tenant(const char *id)
{
    Berth__Control__V1__Tenant tenant = BERTH__CONTROL__V1__TENANT__INIT;
    Berth__Control__V1__UpdateTenantRequest req =
        BERTH__CONTROL__V1__UPDATE_TENANT_REQUEST__INIT;

    tenant.tenant_id = (char *)id;
    tenant.disabled = true;
    req.tenant = &tenant;
    call(TENANTS "UpdateTenant", &req, &berth__control__v1__update_tenant_response__descriptor);
}

static void create_config(const char *id)
{
    Berth__Control__V1__CreateConfigRequest req =
        BERTH__CONTROL__V1__CREATE_CONFIG_REQUEST__INIT;
    SandboxConfig config = BERTH__CONTROL__V1__SANDBOX_CONFIG__INIT;

    config.tenant_id = (char *)"t1";
    config.config_id = (char *)id;
    config.backend = (char *)"local";
    req.config = &config;
    call(CONFIGS "CreateConfig", &req, &berth__control__v1__create_config_response__descriptor);
}

static void update_config(const char *id)
{
    Berth__Control__V1__UpdateConfigRequest req =
        BERTH__CONTROL__V1__UPDATE_CONFIG_REQUEST__INIT;
    SandboxConfig config = BERTH__CONTROL__V1__SANDBOX_CONFIG__INIT;
    char *path = (char *)"name";
    Google__Protobuf__FieldMask mask = GOOGLE__PROTOBUF__FIELD_MASK__INIT;

    config.tenant_id = (char *)"t1";
    config.config_id = (char *)id;
    config.name = (char *)"another";
    mask.paths = &path;
    mask.n_paths = 1;
    req.config = &config;
    req.update_mask = &mask;
    call(CONFIGS "UpdateConfig", &req, &berth__control__v1__update_config_response__descriptor);
}

static void delete_config(const char *id)
{
    Berth__Control__V1__DeleteConfigRequest req =
        BERTH__CONTROL__V1__DELETE_CONFIG_REQUEST__INIT;

    req.tenant_id = (char *)"t1";
    req.config_id = (char *)id;
    call(CONFIGS "DeleteConfig", &req, &berth__control__v1__delete_config_response__descriptor);
}

static void create_token(const char *tenant)
{
    char secret[64];

    town_tenant_token(&town, tenant, BERTH__CONTROL__V1__SCOPE__SCOPE_READ, secret);
}

static long exists(const char *key)
{
    struct berth_reply *reply = redis_run(town.store, "EXISTS", key, NULL);
    long there = (long)reply->integer;

    berth_reply_free(reply);
    return there;
}

static long expires(const char *key)
{
    struct berth_reply *reply = redis_run(town.store, "PTTL", key, NULL);
    long ms = (long)reply->integer;

    berth_reply_free(reply);
    return ms;
}

/* Each row: what is written, about an id that begins so, into a tenant's document or a
 * config's. */
static const struct {
    void (*write)(const char *id);
    const char *start;
    bool is_config, gone;
} rows[] = {
    {create_tenant, "a", false, false}, {update_tenant, "a", false, false},
    {create_config, "b", true, false},  {update_config, "b", true, false},
    {create_token, "t", false, false},  {delete_config, "b", true, true},
};

START_TEST(record__outcome_not_known__settled_and_done_once)
{
    static const enum proxy_loss losses[] = {PROXY_LOSE_REQUEST, PROXY_LOSE_REPLY,
                                             PROXY_HOLD_REQUEST};

    town_open(&town, &(struct town_options){.proxy = &proxy});
    for (int loss = 0; loss < (int)BERTH_COUNT(losses); loss++)
        for (size_t i = 0; i < BERTH_COUNT(rows); i++) {
            char id[32], key[96], rev[32];
            int lost = atomic_load(&proxy.lost);

            snprintf(id, sizeof id, "%s%d", rows[i].start, loss + 1);
            if (rows[i].write == create_token)
                snprintf(id, sizeof id, "t1");
            if (rows[i].is_config)
                snprintf(key, sizeof key, "berth:{t1}:c/%s", id);
            else
                snprintf(key, sizeof key, "berth:{%s}:t", id);
            atomic_store(&proxy.loss, losses[loss]);
            rows[i].write(id);
            ck_assert_int_eq(atomic_load(&proxy.lost), lost + 1);
            ck_assert_int_eq(exists(key), !rows[i].gone);
            ck_assert_int_eq(expires(key), rows[i].gone ? -2 : -1);
            if (losses[loss] != PROXY_HOLD_REQUEST)
                continue;
            snprintf(rev, sizeof rev, "%s", town_field(&town, key, "rev"));
            proxy_release(&proxy);
            ck_assert_str_eq(town_field(&town, key, "rev"), rev);
        }
    town_close(&town);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("controlplane/settling");
    TCase *tcase = tcase_create("settling");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, record__outcome_not_known__settled_and_done_once);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
