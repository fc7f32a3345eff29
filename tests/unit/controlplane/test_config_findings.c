/* test_config_findings.c - all that is wrong with a config, at once. */
#include <check.h>
#include <stdio.h>

#include "common/messages/messages.h"
#include "services/controlplane/config_findings.h"

typedef Berth__Control__V1__CheckConfigResponse CheckConfigResponse;
typedef Berth__Control__V1__ConfigFinding ConfigFinding;
typedef Berth__Control__V1__SandboxConfig SandboxConfig;

static SandboxConfig *config;
static CheckConfigResponse *out;

static void setup(void)
{
    config = berth_message_new(&berth__control__v1__sandbox_config__descriptor);
    out = berth_message_new(&berth__control__v1__check_config_response__descriptor);
    ck_assert(berth_set_string(&config->config_id, "c") &&
              berth_set_string(&config->tenant_id, "t") &&
              berth_set_string(&config->backend, "local"));
}

static void teardown(void)
{
    berth_message_free(config);
    berth_message_free(out);
}

static const ConfigFinding *found(const char *field)
{
    for (size_t i = 0; i < out->n_findings; i++)
        if (strcmp(out->findings[i]->field, field) == 0)
            return out->findings[i];
    return NULL;
}

static size_t count(const char *field)
{
    size_t n = 0;

    for (size_t i = 0; i < out->n_findings; i++)
        n += strcmp(out->findings[i]->field, field) == 0;
    return n;
}

/* A good config has no faults. */
START_TEST(faults__good__none)
{
    bool reachable = false;

    ck_assert(cp_find_faults(config, out, &reachable));
    ck_assert_uint_eq(out->n_findings, 0);
    ck_assert(reachable);
    ck_assert_str_eq(out->message, "");
}
END_TEST

/* Faults of every kind of field, all told, each with its rule. */
START_TEST(faults__many_fields__all_told)
{
    static const char *const fields[] = {
        "config.name",
        "config.template_id",
        "config.network.allow_out[1]",
        "config.network.dns",
        "config.timeouts.idle",
        "config.timeouts.max_paused",
        "config.rollout",
        "config.resources.cpu_millis",
        "config.resources.memory_bytes",
        "config.volumes[0].path",
        "config.env",
        "config.verify_interval",
    };
    char *nets[] = {(char *)"192.0.2.0/24", (char *)"192.0.2.1/24", (char *)"!"};
    Berth__Common__V1__VolumeMount volume = BERTH__COMMON__V1__VOLUME_MOUNT__INIT;
    Berth__Common__V1__VolumeMount *volumes[] = {&volume};
    Berth__Common__V1__NetworkPolicy network = BERTH__COMMON__V1__NETWORK_POLICY__INIT;
    SandboxConfig bad = *config, *copy;
    char name[102];
    bool reachable = false;

    memset(name, 'x', 101);
    name[101] = 0;
    bad.name = name;
    bad.template_id = (char *)"a b";
    bad.rollout = (Berth__Control__V1__Rollout)9;
    network.allow_out = nets;
    network.n_allow_out = 3;
    network.dns = (Berth__Common__V1__DnsMode)77;
    bad.network = &network;
    volume.volume = (char *)"v";
    volume.path = (char *)"/opt/berth/x";
    bad.volumes = volumes;
    bad.n_volumes = 1;
    bad.timeouts = berth_message_new(&berth__common__v1__timeout_policy__descriptor);
    bad.timeouts->idle = berth_duration(1);
    bad.timeouts->max_paused = berth_duration(-5000);
    bad.resources = berth_message_new(&berth__common__v1__resources__descriptor);
    bad.resources->cpu_millis = 2000000;
    bad.resources->memory_bytes = 1;
    bad.verify_interval = berth_duration(-1000);
    copy = berth_message_copy(&bad);
    ck_assert(berth_set_map(&copy->n_env, &copy->env,
                            &berth__control__v1__sandbox_config__env_entry__descriptor,
                            "BERTH_X", "1"));
    ck_assert(cp_find_faults(copy, out, &reachable));
    for (size_t i = 0; i < BERTH_COUNT(fields); i++) {
        ck_assert_msg(found(fields[i]) != NULL, "%s is not told", fields[i]);
        ck_assert_uint_gt(strlen(found(fields[i])->rule), 0);
        ck_assert_uint_gt(strlen(found(fields[i])->reason), 0);
    }
    ck_assert_str_eq(found("config.env")->reason, "RESERVED_KEY");
    ck_assert_uint_eq(count("config.network.allow_out[1]"), 2); /* the next one moved up */
    ck_assert_uint_eq(out->n_findings, BERTH_COUNT(fields) + 1);
    ck_assert(reachable);
    ck_assert_uint_gt(strlen(out->message), 0);
    berth_message_free(copy);
    berth_message_free(bad.timeouts);
    berth_message_free(bad.resources);
    berth_message_free(bad.verify_interval);
}
END_TEST

/* What must be there and is not, and what says where the backend is: it cannot be asked then.
 */
START_TEST(faults__identity__told_and_not_reachable)
{
    bool reachable = true;

    ck_assert(berth_set_string(&config->config_id, "") &&
              berth_set_string(&config->backend, "") &&
              berth_set_string(&config->tenant_id, "a/b") &&
              berth_set_string(&config->api_url, "gopher://x") &&
              berth_set_string(&config->proxy_url, "unix:/x"));
    config->credentials = berth_message_new(&berth__control__v1__credentials__descriptor);
    ck_assert(berth_set_string(&config->credentials->api_key, "***") &&
              berth_set_string(&config->credentials->ca_pem, "none"));
    ck_assert(cp_find_faults(config, out, &reachable));
    ck_assert(found("config.config_id") && found("config.backend") &&
              found("config.tenant_id") && found("config.api_url") &&
              found("config.proxy_url") && found("config.credentials.api_key") &&
              found("config.credentials.ca_pem"));
    ck_assert_uint_eq(out->n_findings, 7);
    ck_assert(!reachable);
}
END_TEST

/* However many there are, the answer is bounded. */
START_TEST(faults__more_than_there_is_room_for__bounded)
{
    bool reachable;

    config->network = berth_message_new(&berth__common__v1__network_policy__descriptor);
    for (int i = 0; i < 200; i++)
        ck_assert(berth_add_string(&config->network->n_deny_out, &config->network->deny_out,
                                   "not a net"));
    ck_assert(cp_find_faults(config, out, &reachable));
    ck_assert_uint_eq(out->n_findings, CP_FINDINGS_MAX);
}
END_TEST

/* What the backend cannot do is told per capability, with the field that asks for it. */
START_TEST(missing__nothing_can_be_done__each_told)
{
    Berth__Common__V1__Capabilities caps = BERTH__COMMON__V1__CAPABILITIES__INIT;
    static const char *const rows[][2] = {
        {"config.root_commands", "root_commands"},
        {"config.network.egress", "network.egress_switch"},
        {"config.network.inbound", "network.inbound_switch"},
        {"config.network.allow_out", "network.domains"},
        {"config.network.dns_servers", "network.dns_servers"},
        {"config.timeouts.on_idle", "pause"},
        {"config.resources", "resources"},
        {"config.resources.disk_bytes", "disk_limit"},
        {"config.volumes", "volumes"},
    };

    config->root_commands = true;
    config->network = berth_message_new(&berth__common__v1__network_policy__descriptor);
    config->network->egress = BERTH__COMMON__V1__SWITCH__SWITCH_CLOSED;
    config->network->inbound = BERTH__COMMON__V1__SWITCH__SWITCH_CLOSED;
    config->timeouts = berth_message_new(&berth__common__v1__timeout_policy__descriptor);
    config->timeouts->on_idle = BERTH__COMMON__V1__IDLE_ACTION__IDLE_ACTION_PAUSE;
    config->resources = berth_message_new(&berth__common__v1__resources__descriptor);
    config->resources->cpu_millis = 1;
    config->resources->disk_bytes = 1;
    ck_assert(
        berth_add_string(&config->network->n_allow_out, &config->network->allow_out,
                         "example.org") &&
        berth_add_string(&config->network->n_dns_servers, &config->network->dns_servers,
                         "192.0.2.1") &&
        berth_add_message(&config->n_volumes, &config->volumes,
                          berth_message_new(&berth__common__v1__volume_mount__descriptor)));
    ck_assert(cp_find_missing(config, &caps, out));
    for (size_t i = 0; i < BERTH_COUNT(rows); i++) {
        ck_assert_msg(found(rows[i][0]) != NULL, "%s", rows[i][0]);
        ck_assert_str_eq(found(rows[i][0])->capability, rows[i][1]);
        ck_assert_str_eq(found(rows[i][0])->reason, "CAPABILITY_MISSING");
    }
    ck_assert_uint_eq(out->n_findings, BERTH_COUNT(rows));
}
END_TEST

/* What would be taken, and perhaps not meant. */
START_TEST(warnings__each__told)
{
    Berth__Common__V1__Capabilities caps = BERTH__COMMON__V1__CAPABILITIES__INIT;

    ck_assert(cp_find_warnings(config, NULL, 5000, out));
    ck_assert_uint_eq(out->n_findings, 0);
    ck_assert(berth_set_string(&config->api_url, "http://plain.example"));
    config->timeouts = berth_message_new(&berth__common__v1__timeout_policy__descriptor);
    config->timeouts->idle = berth_duration(0);
    config->command_timeout_max = berth_duration(1000);
    config->cordoned = true;
    config->cordon_expire_time = berth_timestamp(5000);
    ck_assert(cp_find_warnings(config, &caps, 5000, out));
    ck_assert(found("config.api_url") && found("config.timeouts.idle") &&
              found("config.command_timeout_max") && found("config.cordon_expire_time") &&
              found("config.timeouts.on_idle") && found(""));
    ck_assert_uint_eq(out->n_findings, 6);
    ck_assert_int_eq(out->findings[0]->severity,
                     BERTH__CONTROL__V1__FINDING_SEVERITY__FINDING_SEVERITY_WARNING);
    ck_assert_str_eq(out->message, "");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("controlplane/config_findings");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, faults__good__none);
    tcase_add_test(all, faults__many_fields__all_told);
    tcase_add_test(all, faults__identity__told_and_not_reachable);
    tcase_add_test(all, faults__more_than_there_is_room_for__bounded);
    tcase_add_test(all, missing__nothing_can_be_done__each_told);
    tcase_add_test(all, warnings__each__told);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
