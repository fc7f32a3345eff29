#include "tests/component/controlplane/config_calls.h"

#include <stdio.h>

#define TYPE(name) (&berth__control__v1__##name##__descriptor)
#define CONFIGS "/berth.control.v1.ConfigService/"

struct town town;
struct berth_error err;

void open_town(void)
{
    town_open(&town, &(struct town_options){.planes = 2});
}

void close_town(void)
{
    town_close(&town);
}

int run_town_case(const char *name, TCase *tcase)
{
    Suite *suite = suite_create(name);
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(tcase, open_town, close_town);
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

SandboxConfig config_of(const char *id)
{
    SandboxConfig config = BERTH__CONTROL__V1__SANDBOX_CONFIG__INIT;

    config.tenant_id = (char *)"t1";
    config.config_id = (char *)id;
    config.backend = (char *)"local";
    return config;
}

enum berth_reason config_create_at(unsigned plane, SandboxConfig *config,
                                   const char *request_id, SandboxConfig **ret)
{
    Berth__Control__V1__CreateConfigRequest req =
        BERTH__CONTROL__V1__CREATE_CONFIG_REQUEST__INIT;
    Berth__Control__V1__CreateConfigResponse *resp = NULL;
    enum berth_reason reason;

    req.config = config;
    req.request_id = (char *)request_id;
    reason = town_call(town.control[plane], CONFIGS "CreateConfig", &req,
                       TYPE(create_config_response), WAIT_MS, &resp, ret ? NULL : &err);
    if (!reason && ret)
        *ret = BERTH_STEAL(resp->config);
    berth_message_free(resp);
    return reason;
}

enum berth_reason config_create(SandboxConfig *config, const char *request_id)
{
    return config_create_at(0, config, request_id, NULL);
}

/* Owned. */
SandboxConfig *config_get(const char *id)
{
    Berth__Control__V1__GetConfigRequest req = BERTH__CONTROL__V1__GET_CONFIG_REQUEST__INIT;
    Berth__Control__V1__GetConfigResponse *resp = NULL;
    SandboxConfig *config;

    req.tenant_id = (char *)"t1";
    req.config_id = (char *)id;
    if (town_call(town.control[1], CONFIGS "GetConfig", &req, TYPE(get_config_response),
                  WAIT_MS, &resp, &err))
        return NULL;
    config = BERTH_STEAL(resp->config);
    berth_message_free(resp);
    return config;
}

/* paths: up to NULL. */
enum berth_reason config_update_at(unsigned plane, SandboxConfig *config, char **paths,
                                   struct berth_error *ret_err)
{
    Berth__Control__V1__UpdateConfigRequest req =
        BERTH__CONTROL__V1__UPDATE_CONFIG_REQUEST__INIT;
    Google__Protobuf__FieldMask mask = GOOGLE__PROTOBUF__FIELD_MASK__INIT;

    mask.paths = paths;
    while (paths[mask.n_paths])
        mask.n_paths++;
    req.config = config;
    req.update_mask = &mask;
    return town_call(town.control[plane], CONFIGS "UpdateConfig", &req,
                     TYPE(update_config_response), WAIT_MS, NULL, ret_err);
}

enum berth_reason config_update(SandboxConfig *config, const char *path)
{
    char *paths[] = {(char *)path, NULL};

    return config_update_at(0, config, paths, &err);
}

enum berth_reason config_delete(const char *id, const char *etag)
{
    Berth__Control__V1__DeleteConfigRequest req =
        BERTH__CONTROL__V1__DELETE_CONFIG_REQUEST__INIT;

    req.tenant_id = (char *)"t1";
    req.config_id = (char *)id;
    req.etag = (char *)etag;
    return town_call(town.control[0], CONFIGS "DeleteConfig", &req,
                     TYPE(delete_config_response), WAIT_MS, NULL, &err);
}

CheckConfigResponse *config_check(SandboxConfig *config, const char *id)
{
    Berth__Control__V1__CheckConfigRequest req = BERTH__CONTROL__V1__CHECK_CONFIG_REQUEST__INIT;
    CheckConfigResponse *resp = NULL;

    req.tenant_id = (char *)"t1";
    if (config) {
        req.target_case = BERTH__CONTROL__V1__CHECK_CONFIG_REQUEST__TARGET_CONFIG;
        req.config = config;
    } else {
        req.target_case = BERTH__CONTROL__V1__CHECK_CONFIG_REQUEST__TARGET_CONFIG_ID;
        req.config_id = (char *)id;
    }
    ck_assert_msg(!town_call(town.control[0], CONFIGS "CheckConfig", &req,
                             TYPE(check_config_response), WAIT_MS, &resp, &err),
                  "%s", err.text);
    return resp;
}

const ConfigFinding *config_finding(const CheckConfigResponse *resp, const char *field)
{
    for (size_t i = 0; i < resp->n_findings; i++)
        if (strcmp(resp->findings[i]->field, field) == 0)
            return resp->findings[i];
    return NULL;
}

int64_t store_ms(void)
{
    struct berth_reply *reply = redis_run(town.store, "TIME", NULL);
    int64_t now_ms = strtoll(reply->items[0]->string, NULL, 10) * 1000 +
                     strtoll(reply->items[1]->string, NULL, 10) / 1000;

    berth_reply_free(reply);
    return now_ms;
}

int64_t n_keys(const char *pattern)
{
    struct berth_reply *reply = redis_run(town.store, "KEYS", pattern, NULL);
    int64_t n = (int64_t)reply->n_items;

    berth_reply_free(reply);
    return n;
}
