/* test_config_secrets.c - credentials of configs, cordons, and CheckConfig. */
#include <stdio.h>

#include "tests/component/controlplane/config_calls.h"

/* ------------------------------------------------------------------- credentials */

static const char pem[] = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";

static void make_sealed(SandboxConfig *config, Credentials *credentials)
{
    *config = config_of("sealed");
    *credentials = (Credentials)BERTH__CONTROL__V1__CREDENTIALS__INIT;
    config->api_url = (char *)"https://1.1.1.1";
    credentials->api_key = (char *)"a-secret";
    credentials->ca_pem = (char *)pem;
    config->credentials = credentials;
    ck_assert_msg(!config_create(config, "request"), "%s", err.text);
}

static size_t shown_members(char ret_mark[32])
{
    SandboxConfig *got = config_get("sealed");
    size_t n = got->n_credentials_members;

    ck_assert_ptr_null(got->credentials);
    ck_assert_int_eq(got->credentials_set, n > 0);
    ck_assert_uint_eq(strlen(got->credentials_fingerprint), n > 0 ? 16 : 0);
    snprintf(ret_mark, 32, "%s", got->credentials_fingerprint);
    berth_message_free(got);
    return n;
}

/* "set", by name, and a fingerprint that changes with the value and with nothing else. */
START_TEST(credentials__shown__set_and_fingerprint)
{
    SandboxConfig config;
    Credentials credentials;
    char first[32], mark[32];

    make_sealed(&config, &credentials);
    ck_assert_uint_eq(shown_members(first), 2);
    credentials.api_key = (char *)"********";
    ck_assert_int_eq(config_update(&config, "credentials"), BERTH_REASON_NONE);
    ck_assert_uint_eq(shown_members(mark), 2);
    ck_assert_str_eq(mark, first);
    config.name = (char *)"renamed";
    config.credentials = NULL;
    ck_assert_int_eq(config_update(&config, "*"), BERTH_REASON_NONE);
    shown_members(mark);
    ck_assert_str_eq(mark, first);
    credentials.api_key = (char *)"b-secret";
    config.credentials = &credentials;
    ck_assert_int_eq(config_update(&config, "credentials"), BERTH_REASON_NONE);
    ck_assert_uint_eq(shown_members(mark), 2);
    ck_assert_str_ne(mark, first);
    credentials.api_key = (char *)"a-secret"; /* the first value again */
    ck_assert_int_eq(config_update(&config, "credentials"), BERTH_REASON_NONE);
    shown_members(mark);
    ck_assert_str_eq(mark, first);
}
END_TEST

/* Only a member that is named by itself is cleared, one by one or all. */
START_TEST(credentials__named_and_empty__cleared)
{
    SandboxConfig config;
    Credentials credentials;
    char mark[32];
    char *all[] = {(char *)"credentials.api_key", (char *)"credentials.ca_pem", NULL};

    make_sealed(&config, &credentials);
    config.credentials = NULL;
    ck_assert_int_eq(config_update(&config, "credentials"), BERTH_REASON_NONE);
    ck_assert_uint_eq(shown_members(mark), 2);
    ck_assert_int_eq(config_update(&config, "credentials.ca_pem"), BERTH_REASON_NONE);
    ck_assert_uint_eq(shown_members(mark), 1);
    ck_assert_int_eq(config_update_at(0, &config, all, &err), BERTH_REASON_NONE);
    ck_assert_uint_eq(shown_members(mark), 0);
    ck_assert_str_eq(town_field(&town, "berth:{t1}:c/sealed", "credentials"), "");
}
END_TEST

/* A mask stands for a value that is stored: at a create there is none. */
START_TEST(credentials__masked_at_create__refused)
{
    SandboxConfig config = config_of("c2");
    Credentials credentials = BERTH__CONTROL__V1__CREDENTIALS__INIT;

    credentials.api_key = (char *)"***";
    config.credentials = &credentials;
    ck_assert_int_eq(config_create(&config, ""), BERTH_REASON_FIELD_INVALID);
    ck_assert_str_eq(err.field, "config.credentials.api_key");
}
END_TEST

/* A sealed key does not follow its config to another place: each member has to come along. */
START_TEST(credentials__endpoint_changes__given_again_or_refused)
{
    SandboxConfig config;
    Credentials credentials;
    char mark[32], *url[] = {(char *)"api_url", NULL};
    char *both[] = {(char *)"api_url", (char *)"credentials", NULL};
    char *named[] = {(char *)"api_url", (char *)"credentials.api_key",
                     (char *)"credentials.ca_pem", NULL};

    make_sealed(&config, &credentials);
    config.api_url = (char *)"https://1.0.0.1";
    ck_assert_int_eq(config_update_at(0, &config, url, &err), BERTH_REASON_FIELD_INVALID);
    ck_assert_str_eq(err.field, "config.credentials.api_key");
    ck_assert_ptr_nonnull(strstr(err.rule, "must be given again"));
    credentials.api_key = (char *)"***";
    ck_assert_int_eq(config_update_at(0, &config, both, &err), BERTH_REASON_FIELD_INVALID);
    ck_assert_str_eq(err.field, "config.credentials.api_key");
    credentials.api_key = (char *)"new-secret";
    credentials.ca_pem = (char *)"";
    ck_assert_int_eq(config_update_at(0, &config, both, &err), BERTH_REASON_FIELD_INVALID);
    ck_assert_str_eq(err.field, "config.credentials.ca_pem");
    ck_assert_int_eq(config_update_at(0, &config, named, &err), BERTH_REASON_NONE);
    ck_assert_uint_eq(shown_members(mark), 1); /* the other was taken away by name */
    /* As a whole, with the endpoint as it is: no need. */
    config.credentials = NULL;
    ck_assert_int_eq(config_update(&config, "*"), BERTH_REASON_NONE);
    ck_assert_uint_eq(shown_members(mark), 1);
}
END_TEST

/* Whoever can write the store cannot point a sealed key elsewhere either: it does not open. */
START_TEST(credentials__endpoint_changed_in_the_store__do_not_open)
{
    SandboxConfig config;
    Credentials credentials;
    char text[2048], *at;
    CheckConfigResponse *resp;

    make_sealed(&config, &credentials);
    snprintf(text, sizeof text, "%s", town_field(&town, "berth:{t1}:c/sealed", "settings"));
    at = strstr(text, "1.1.1.1");
    ck_assert_ptr_nonnull(at);
    memcpy(at, "1.0.0.1", 7);
    berth_reply_free(
        redis_run(town.store, "HSET", "berth:{t1}:c/sealed", "settings", text, NULL));
    config.credentials = NULL;
    config.api_url = (char *)"";
    ck_assert_int_eq(config_update(&config, "credentials"),
                     BERTH_REASON_BACKEND_AUTHENTICATION);
    resp = config_check(NULL, "sealed");
    ck_assert(!resp->ok);
    ck_assert_str_eq(resp->findings[0]->reason, "BACKEND_AUTHENTICATION");
    berth_message_free(resp);
}
END_TEST

/* -------------------------------------------------------------------------- cordon */

static void set_cordon(bool on, int64_t until_ms)
{
    SandboxConfig config = config_of("c1");
    char *paths[] = {(char *)"cordoned", (char *)"cordon_expire_time", NULL};

    config.cordoned = on;
    config.cordon_expire_time = until_ms ? berth_timestamp(until_ms) : NULL;
    ck_assert_int_eq(config_update_at(0, &config, paths, &err), BERTH_REASON_NONE);
    berth_message_free(config.cordon_expire_time);
}

/* The lease ends by the store's clock, without anybody writing; every replica sees the cordon
 * at once, since binding judges it where it reads it. */
START_TEST(cordon__with_lease__ends_by_itself)
{
    int64_t end_tick = berth_tick_ms() + WAIT_MS, until_ms;
    SandboxConfig *got;
    char rev[32];

    (void)town_box(&town, "s1", NULL);
    until_ms = store_ms() + 3000;
    set_cordon(true, until_ms);
    ck_assert_int_eq(town_resolve(&town, 1, "t1", "s2", NULL, NULL, NULL),
                     BERTH_REASON_CONFIG_CORDONED);
    got = config_get("c1");
    ck_assert(got->cordoned);
    berth_message_free(got);
    (void)town_box(&town, "s1", NULL); /* what is there goes on */
    snprintf(rev, sizeof rev, "%s", town_field(&town, "berth:{t1}:c/c1", "rev"));
    while (town_resolve(&town, 1, "t1", "s2", NULL, NULL, NULL)) {
        ck_assert_int_lt(berth_tick_ms(), end_tick);
        usleep(20000);
    }
    ck_assert_int_ge(store_ms(), until_ms);
    ck_assert_str_eq(town_field(&town, "berth:{t1}:c/c1", "rev"), rev);
    got = config_get("c1");
    ck_assert(!got->cordoned);
    berth_message_free(got);
}
END_TEST

/* A session that is there gets no new sandbox in a cordon, on any replica, and gets one at once
 * when it is lifted. */
START_TEST(cordon__sandbox_lost__not_replaced_until_lifted)
{
    (void)town_box(&town, "s1", NULL);
    set_cordon(true, 0);
    fake_kill(town.fake, fake_only(town.fake)->id);
    for (unsigned plane = 0; plane < 2; plane++) {
        Berth__Control__V1__Session *session = NULL;
        enum berth_reason reason;

        (void)town_get(&town, "t1", "s1", true, &session); /* looks: it is seen to be gone */
        berth_message_free(session);
        reason = town_act(&town, "Resume", "t1", "s1");
        ck_assert(reason == BERTH_REASON_CONFIG_CORDONED ||
                  reason == BERTH_REASON_SANDBOX_NOT_FOUND);
        ck_assert_int_eq(town_resolve(&town, plane, "t1", "s1", NULL, NULL, NULL),
                         BERTH_REASON_CONFIG_CORDONED);
    }
    ck_assert_uint_eq(fake_alive(town.fake), 0);
    set_cordon(false, 0);
    ck_assert_int_eq(town_resolve(&town, 1, "t1", "s1", NULL, NULL, NULL), BERTH_REASON_NONE);
    ck_assert_uint_eq(fake_alive(town.fake), 1);
}
END_TEST

/* One that is over when it is set does nothing. */
START_TEST(cordon__already_over__nothing)
{
    set_cordon(true, store_ms() - 1);
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "s1", NULL, NULL, NULL), BERTH_REASON_NONE);
}
END_TEST

/* --------------------------------------------------------------------- CheckConfig */

/* Faults of several fields, what the backend cannot do, and a warning, in one answer; nothing
 * is written by asking. */
START_TEST(check_config__several_faults__all_told_nothing_written)
{
    SandboxConfig config = config_of("tried");
    Berth__Common__V1__TimeoutPolicy timeouts = BERTH__COMMON__V1__TIMEOUT_POLICY__INIT;
    Google__Protobuf__Duration negative = GOOGLE__PROTOBUF__DURATION__INIT;
    int64_t before = n_keys("*");
    CheckConfigResponse *resp;

    town.fake->no_pause = true;
    negative.seconds = -1;
    config.verify_interval = &negative;
    config.template_id = (char *)"no such";
    config.root_commands = true;
    timeouts.on_idle = BERTH__COMMON__V1__IDLE_ACTION__IDLE_ACTION_PAUSE;
    config.timeouts = &timeouts;
    config.cordoned = true;
    resp = config_check(&config, NULL);
    ck_assert(!resp->ok && *resp->message);
    ck_assert_str_eq(config_finding(resp, "config.template_id")->reason, "FIELD_INVALID");
    ck_assert_uint_gt(strlen(config_finding(resp, "config.template_id")->rule), 0);
    ck_assert_ptr_nonnull(config_finding(resp, "config.verify_interval"));
    ck_assert_str_eq(config_finding(resp, "config.timeouts.on_idle")->reason,
                     "CAPABILITY_MISSING");
    ck_assert_str_eq(config_finding(resp, "config.timeouts.on_idle")->capability, "pause");
    ck_assert_str_eq(config_finding(resp, "config.root_commands")->capability, "root_commands");
    ck_assert_int_eq(config_finding(resp, "config.cordoned")->severity,
                     BERTH__CONTROL__V1__FINDING_SEVERITY__FINDING_SEVERITY_WARNING);
    berth_message_free(resp);

    config = config_of("tried");
    config.cordoned = true;
    config.timeouts = NULL;
    resp = config_check(&config, NULL); /* warnings alone: it would be taken */
    ck_assert_msg(resp->ok, "%s", resp->message);
    ck_assert_str_eq(resp->message, "");
    ck_assert_ptr_nonnull(
        config_finding(resp, "config.timeouts.on_idle")); /* no pause: killed */
    berth_message_free(resp);
    ck_assert_int_eq(n_keys("*"), before);
    ck_assert_ptr_null(config_get("tried"));
}
END_TEST

/* A backend that there is not, a tenant that is not the asker's. */
START_TEST(check_config__wrong_backend_and_tenant__told)
{
    SandboxConfig config = config_of("tried");
    CheckConfigResponse *resp;
    size_t asked;

    asked = fake_count(town.fake, FAKE_GET_INFO);
    config.backend = (char *)"cloud";
    config.tenant_id = (char *)"t2";
    resp = config_check(&config, NULL);
    ck_assert(!resp->ok);
    ck_assert(config_finding(resp, "config.backend") &&
              config_finding(resp, "config.tenant_id"));
    berth_message_free(resp);
    ck_assert_uint_eq(fake_count(town.fake, FAKE_GET_INFO), asked);
}
END_TEST

/* The stored one: its account has become another. */
START_TEST(check_config__stored_account_changed__told)
{
    CheckConfigResponse *resp = config_check(NULL, "c1");

    ck_assert_msg(resp->ok, "%s", resp->message);
    berth_message_free(resp);
    snprintf(town.fake->account_id, sizeof town.fake->account_id, "another");
    resp = config_check(NULL, "c1");
    ck_assert(!resp->ok);
    ck_assert_str_eq(resp->findings[0]->reason, "ACCOUNT_CHANGED");
    berth_message_free(resp);
}
END_TEST

int main(void)
{
    TCase *all = tcase_create("all");

    tcase_add_test(all, credentials__shown__set_and_fingerprint);
    tcase_add_test(all, credentials__named_and_empty__cleared);
    tcase_add_test(all, credentials__masked_at_create__refused);
    tcase_add_test(all, credentials__endpoint_changes__given_again_or_refused);
    tcase_add_test(all, credentials__endpoint_changed_in_the_store__do_not_open);
    tcase_add_test(all, cordon__with_lease__ends_by_itself);
    tcase_add_test(all, cordon__sandbox_lost__not_replaced_until_lifted);
    tcase_add_test(all, cordon__already_over__nothing);
    tcase_add_test(all, check_config__several_faults__all_told_nothing_written);
    tcase_add_test(all, check_config__wrong_backend_and_tenant__told);
    tcase_add_test(all, check_config__stored_account_changed__told);
    return run_town_case("controlplane/config_secrets", all);
}
