/* test_config.c - configs as records: sealing, accounts, messages as JSON. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>

#include "common/messages/messages.h"
#include "common/records/message_json.h"
#include "common/records/target.h"
#include "common/records/tenant_doc.h"
#include "services/controlplane/config.h"

typedef Berth__Common__V1__BackendTarget BackendTarget;
typedef Berth__Control__V1__Credentials Credentials;
typedef Berth__Control__V1__SandboxConfig SandboxConfig;

static struct berth_keyring *keyring(void)
{
    static const char line[] =
        "k1 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n";
    struct berth_keyring *ring = NULL;

    ck_assert_int_eq(berth_keyring_parse("test", line, sizeof line - 1, &ring, NULL), BERTH_OK);
    return ring;
}

static BackendTarget target_of(void)
{
    BackendTarget target = BERTH__COMMON__V1__BACKEND_TARGET__INIT;

    target.tenant_id = (char *)"t";
    target.config_id = (char *)"c";
    target.backend = (char *)"e2b";
    target.api_url = (char *)"https://api.example";
    return target;
}

/* Sealed credentials open for exactly the target they were sealed for. */
START_TEST(seal__target_changed__does_not_open)
{
    struct berth_keyring *ring = keyring();
    BackendTarget target = target_of(), other;
    Credentials given = BERTH__CONTROL__V1__CREDENTIALS__INIT, *opened = NULL;

    given.api_key = (char *)"secret";
    ck_assert_int_eq(cp_config_seal(ring, &target, &given, &target.sealed_credentials, NULL),
                     BERTH_OK);
    ck_assert_int_eq(cp_config_open(ring, &target, &opened, NULL), BERTH_OK);
    ck_assert_str_eq(opened->api_key, "secret");
    cp_credentials_free(opened);
    for (int i = 0; i < 7; i++) {
        other = target;
        switch (i) {
        case 0:
            other.tenant_id = (char *)"t2";
            break;
        case 1:
            other.config_id = (char *)"c2";
            break;
        case 2:
            other.backend = (char *)"cube";
            break;
        case 3:
            other.api_url = (char *)"https://evil.example";
            break;
        case 4:
            other.domain = (char *)"evil.example";
            break;
        case 5:
            other.proxy_url = (char *)"http://evil.example";
            break;
        default:
            other.allow_private = true;
        }
        ck_assert_int_ne(cp_config_open(ring, &other, &opened, NULL), BERTH_OK);
    }
    free(target.sealed_credentials.data);
    berth_keyring_free(ring);
}
END_TEST

/* No credentials are no bytes, and open as none. */
START_TEST(seal__nothing__empty)
{
    struct berth_keyring *ring = keyring();
    BackendTarget target = target_of();
    Credentials *opened = NULL;

    ck_assert_int_eq(cp_config_seal(ring, &target, NULL, &target.sealed_credentials, NULL),
                     BERTH_OK);
    ck_assert_uint_eq(target.sealed_credentials.len, 0);
    ck_assert_int_eq(cp_config_open(ring, &target, &opened, NULL), BERTH_OK);
    ck_assert_str_eq(opened->api_key, "");
    cp_credentials_free(opened);
    berth_keyring_free(ring);
}
END_TEST

/* The account follows from backend, account key and URL; without a key there is none. */
START_TEST(account__parts__apart_and_never_empty)
{
    uint8_t a[32], b[32];
    struct berth_error err;

    ck_assert_int_eq(cp_config_account("local", "", "uuid", a, NULL), BERTH_OK);
    ck_assert_int_eq(cp_config_account("docker", "", "uuid", b, NULL), BERTH_OK);
    ck_assert_mem_ne(a, b, sizeof a);
    ck_assert_int_eq(cp_config_account("local", "https://x", "uuid", b, NULL), BERTH_OK);
    ck_assert_mem_ne(a, b, sizeof a);
    ck_assert_int_eq(cp_config_account("local", "", "", b, &err), BERTH_FAILED_PRECONDITION);
    ck_assert_str_eq(berth_reason_name(err.reason), "FINGERPRINT_EMPTY");
}
END_TEST

/* A message comes back from JSON as it went in, unset members stay unset. */
START_TEST(message_json__round_trip__same)
{
    char *list[] = {(char *)"192.0.2.0/24", (char *)"a\"b"};
    SandboxConfig config = BERTH__CONTROL__V1__SANDBOX_CONFIG__INIT;
    Berth__Control__V1__SandboxConfig__EnvEntry entry =
        BERTH__CONTROL__V1__SANDBOX_CONFIG__ENV_ENTRY__INIT;
    Berth__Control__V1__SandboxConfig__EnvEntry *env[] = {&entry};
    Berth__Common__V1__NetworkPolicy network = BERTH__COMMON__V1__NETWORK_POLICY__INIT;
    Berth__Common__V1__Resources resources = BERTH__COMMON__V1__RESOURCES__INIT;
    Google__Protobuf__Duration zero = GOOGLE__PROTOBUF__DURATION__INIT;
    ProtobufCMessage *back = NULL;
    SandboxConfig *read;
    json_t *json;

    config.name = (char *)"n\xc3\xa4me";
    network.egress = BERTH__COMMON__V1__SWITCH__SWITCH_CLOSED;
    network.allow_out = list;
    network.n_allow_out = 2;
    config.network = &network;
    resources.memory_bytes = UINT64_MAX;
    config.resources = &resources;
    entry.key = (char *)"K";
    entry.value = (char *)"";
    config.env = env;
    config.n_env = 1;
    config.verify_interval = &zero; /* "every time", not "nothing said" */
    config.root_commands = true;
    json = berth_message_to_json(&config.base);
    ck_assert_ptr_nonnull(json);
    ck_assert_ptr_null(json_object_get(json, "cordoned"));
    ck_assert_int_eq(berth_message_from_json(json, config.base.descriptor, &back, NULL),
                     BERTH_OK);
    read = (SandboxConfig *)back;
    ck_assert_str_eq(read->name, config.name);
    ck_assert_int_eq(read->network->egress, network.egress);
    ck_assert_str_eq(read->network->allow_out[1], "a\"b");
    ck_assert_uint_eq(read->resources->memory_bytes, UINT64_MAX);
    ck_assert_str_eq(read->env[0]->key, "K");
    ck_assert_ptr_nonnull(read->verify_interval);
    ck_assert_ptr_null(read->command_timeout);
    ck_assert(read->root_commands);
    berth_message_free(read);
    json_decref(json);
}
END_TEST

static const char *const bad_json[] = {
    "{\"name\": 1}",
    "{\"network\": []}",
    "{\"network\": {\"egress\": \"SWITCH_AJAR\"}}",
    "{\"network\": {\"allow_out\": \"x\"}}",
    "{\"network\": {\"allow_out\": [1]}}",
    "{\"env\": {\"K\": 1}}",
    "{\"env\": [\"K\"]}",
    "{\"resources\": {\"cpu_millis\": -1}}",
    "{\"resources\": {\"cpu_millis\": 4294967296}}",
    "{\"root_commands\": \"yes\"}",
    "{\"verify_interval\": {\"nanos\": 1.5}}",
};

START_TEST(message_from_json__wrong_types__refused)
{
    json_t *json = json_loads(bad_json[_i], 0, NULL);
    ProtobufCMessage *message = NULL;

    ck_assert_ptr_nonnull(json);
    ck_assert_int_eq(berth_message_from_json(
                         json, &berth__control__v1__sandbox_config__descriptor, &message, NULL),
                     BERTH_INVALID_ARGUMENT);
    ck_assert_ptr_null(message);
    json_decref(json);
}
END_TEST

/* What this version does not know is passed over. */
START_TEST(message_from_json__unknown_members__passed_over)
{
    json_t *json =
        json_loads("{\"name\": \"n\", \"later\": {\"x\": 1}, \"network\": null}", 0, NULL);
    ProtobufCMessage *message = NULL;

    ck_assert_int_eq(berth_message_from_json(
                         json, &berth__control__v1__sandbox_config__descriptor, &message, NULL),
                     BERTH_OK);
    ck_assert_str_eq(((SandboxConfig *)message)->name, "n");
    berth_message_free(message);
    json_decref(json);
}
END_TEST

/* A tenant's document: what does not validate is an error, never "absent". */
START_TEST(tenant_doc__fields__checked)
{
    struct berth_doc_field fields[] = {
        {(char *)"rev", (char *)"0123456789abcdef", 16},
        {(char *)"tenant", (char *)"{\"quotas\":{\"sessions\":3}}", 25},
        {(char *)"default_config", (char *)"c1", 2},
        {(char *)"disabled", (char *)"1", 1},
    };
    struct berth_doc doc = {
        .key = (char *)"k", .exists = true, .n_fields = 4, .fields = fields};
    struct berth_tenant_doc tenant;

    ck_assert_int_eq(berth_tenant_doc_parse(&doc, &tenant, NULL), BERTH_OK);
    ck_assert(tenant.exists && tenant.disabled && tenant.quotas.sessions == 3);
    ck_assert_str_eq(tenant.default_config, "c1");
    fields[3].value = (char *)"yes";
    ck_assert_int_eq(berth_tenant_doc_parse(&doc, &tenant, NULL), BERTH_INTERNAL);
    fields[3].value = (char *)"0";
    fields[1].value = (char *)"{\"quotas\":{\"sessions\":-3}}";
    ck_assert_int_eq(berth_tenant_doc_parse(&doc, &tenant, NULL), BERTH_INTERNAL);
    fields[1].value = (char *)"[]";
    ck_assert_int_eq(berth_tenant_doc_parse(&doc, &tenant, NULL), BERTH_INTERNAL);
    fields[1].value = (char *)"{}";
    fields[0].value = (char *)"short";
    ck_assert_int_eq(berth_tenant_doc_parse(&doc, &tenant, NULL), BERTH_INTERNAL);
    doc.exists = false;
    ck_assert_int_eq(berth_tenant_doc_parse(&doc, &tenant, NULL), BERTH_OK);
    ck_assert(!tenant.exists);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("controlplane/config");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int failed;

    tcase_add_test(all, seal__target_changed__does_not_open);
    tcase_add_test(all, seal__nothing__empty);
    tcase_add_test(all, account__parts__apart_and_never_empty);
    tcase_add_test(all, message_json__round_trip__same);
    tcase_add_loop_test(all, message_from_json__wrong_types__refused, 0,
                        (int)BERTH_COUNT(bad_json));
    tcase_add_test(all, message_from_json__unknown_members__passed_over);
    tcase_add_test(all, tenant_doc__fields__checked);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
