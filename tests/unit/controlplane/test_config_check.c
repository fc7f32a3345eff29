/* test_config_check.c - the edges of a config's fields, and what an update takes over. */
#include <check.h>
#include <stdio.h>

#include "common/messages/messages.h"
#include "google/protobuf/duration.pb-c.h"
#include "services/controlplane/config.h"
#include "services/controlplane/config_apply.h"
#include "services/controlplane/config_check.h"

typedef Berth__Control__V1__Credentials Credentials;
typedef Berth__Control__V1__SandboxConfig SandboxConfig;

static struct berth_error err;

static SandboxConfig good(void)
{
    SandboxConfig config = BERTH__CONTROL__V1__SANDBOX_CONFIG__INIT;

    config.tenant_id = (char *)"t";
    config.config_id = (char *)"c";
    config.backend = (char *)"local";
    return config;
}

static const char *blamed(const SandboxConfig *config, bool partial)
{
    enum berth_code code = cp_check_config(config, partial, &err);

    return code ? err.field : "";
}

static const char *text_of(size_t len)
{
    static char text[1 << 20];

    memset(text, 'a', len);
    text[len] = 0;
    return text;
}

/* Each string at its longest, and one more. */
static const struct {
    const char *field;
    size_t offset, max;
    const char *head;
} strings[] = {
    {"config.tenant_id", offsetof(SandboxConfig, tenant_id), 128, ""},
    {"config.config_id", offsetof(SandboxConfig, config_id), 128, ""},
    {"config.name", offsetof(SandboxConfig, name), 100, ""},
    {"config.backend", offsetof(SandboxConfig, backend), 32, ""},
    {"config.api_url", offsetof(SandboxConfig, api_url), 2048, "https://a.example/"},
    {"config.proxy_url", offsetof(SandboxConfig, proxy_url), 2048, "socks5://a.example/"},
    {"config.template_id", offsetof(SandboxConfig, template_id), 128, ""},
    {"config.etag", offsetof(SandboxConfig, etag), 64, ""},
};

START_TEST(check_config__string_lengths__bounded)
{
    SandboxConfig config = good();
    char *text = (char *)text_of(strings[_i].max);

    memcpy(text, strings[_i].head, strlen(strings[_i].head));
    *(char **)((char *)&config + strings[_i].offset) = text;
    ck_assert_str_eq(blamed(&config, false), "");
    text[strings[_i].max] = 'a';
    text[strings[_i].max + 1] = 0;
    ck_assert_str_eq(blamed(&config, false), strings[_i].field);
}
END_TEST

enum verdict { FINE, BAD, REFUSED };

static enum verdict judge(const SandboxConfig *config, bool partial, const char *field)
{
    if (cp_check_config(config, partial, &err) == BERTH_OK)
        return FINE;
    ck_assert_str_eq(err.field, field);
    return err.reason == BERTH_REASON_ENDPOINT_REFUSED ? REFUSED : BAD;
}

/* Where each field may lead with the switch off (all spellings: tests/unit/http). */
static const struct {
    const char *url;
    enum verdict api, proxy;
    bool private; /* all that is refused is allowed with the switch on */
} urls[] = {
    {"https://a.example", FINE, FINE, false},
    {"http://a.example", FINE, FINE, false},
    {"https://a.example/v1", FINE, FINE, false},
    {"unix:/run/docker.sock", REFUSED, BAD, true},
    {"socks5://a.example:1080", BAD, FINE, false},
    {"ftp://a.example", BAD, BAD, false},
    {"a.example", BAD, BAD, false},
    {"https://u:p@a.example", BAD, BAD, false},
    {"https://a b", BAD, BAD, false},
    {"https://a\\b", BAD, BAD, false},
    {"https://a.example?x", BAD, BAD, false},
    {"javascript:x", BAD, BAD, false},
    {"http://127.0.0.1:2375", REFUSED, REFUSED, true},
    {"http://10.0.0.1", REFUSED, REFUSED, true},
    {"http://localhost:3000", REFUSED, REFUSED, true},
    {"http://169.254.169.254", REFUSED, REFUSED, false},
    {"http://[::ffff:a9fe:a9fe]", REFUSED, REFUSED, false},
    {"http://metadata.google.internal", REFUSED, REFUSED, false},
    {"http://2852039166", BAD, BAD, false},
    {"http://0.0.0.0", REFUSED, REFUSED, false},
};

START_TEST(check_config__urls__judged_by_the_switch)
{
    for (int on = 0; on < 2; on++) {
        SandboxConfig config = good();
        enum verdict api = urls[_i].api, proxy = urls[_i].proxy;

        config.allow_private_endpoints = on;
        api = on && urls[_i].private && api == REFUSED ? FINE : api;
        proxy = on && urls[_i].private && proxy == REFUSED ? FINE : proxy;
        config.api_url = (char *)urls[_i].url;
        ck_assert_int_eq(judge(&config, false, "config.api_url"), api);
        config.api_url = (char *)"";
        config.proxy_url = (char *)urls[_i].url;
        ck_assert_int_eq(judge(&config, false, "config.proxy_url"), proxy);
    }
}
END_TEST

/* Where skills' packages come from: as a proxy, but not by SOCKS; folders that are one. */
START_TEST(check_config__skill_urls__judged_by_the_switch)
{
    static const char *const fields[] = {"config.skills.python_index_url",
                                         "config.skills.npm_registry",
                                         "config.skills.proxy_url"};

    for (int on = 0; on < 2; on++) {
        enum verdict wanted = urls[_i].proxy;

        if (strncmp(urls[_i].url, "socks5", 6) == 0)
            wanted = BAD;
        else if (on && urls[_i].private && wanted == REFUSED)
            wanted = FINE;
        for (int k = 0; k < 3; k++) {
            Berth__Control__V1__SkillPolicy policy = BERTH__CONTROL__V1__SKILL_POLICY__INIT;
            SandboxConfig config = good();
            char **slots[] = {&policy.python_index_url, &policy.npm_registry,
                              &policy.proxy_url};

            config.allow_private_endpoints = on;
            config.skills = &policy;
            *slots[k] = (char *)urls[_i].url;
            ck_assert_int_eq(judge(&config, false, fields[k]), wanted);
            ck_assert_int_eq(cp_config_check_endpoint(&config, NULL) == BERTH_OK,
                             wanted == FINE);
        }
    }
}
END_TEST

START_TEST(check_config__skill_folders_and_hosts__plain)
{
    Berth__Control__V1__SkillPolicy policy = BERTH__CONTROL__V1__SKILL_POLICY__INIT;
    SandboxConfig config = good();

    config.skills = &policy;
    policy.wheel_dir = (char *)"/srv/wheels";
    policy.npm_cache_dir = (char *)"/srv/npm";
    policy.no_proxy = (char *)"localhost,.example.org,[::1]:8080,10.0.0.0/8";
    ck_assert_str_eq(blamed(&config, false), "");
    policy.wheel_dir = (char *)"wheels";
    ck_assert_str_eq(blamed(&config, false), "config.skills.wheel_dir");
    policy.wheel_dir = (char *)"/";
    ck_assert_str_eq(blamed(&config, false), "config.skills.wheel_dir");
    policy.wheel_dir = (char *)"";
    policy.npm_cache_dir = (char *)"/srv/../etc";
    ck_assert_str_eq(blamed(&config, false), "config.skills.npm_cache_dir");
    policy.npm_cache_dir = (char *)"";
    policy.no_proxy = (char *)"a b";
    ck_assert_str_eq(blamed(&config, false), "config.skills.no_proxy");
}
END_TEST

/* The domain is a name that sandboxes' names are made of. */
START_TEST(check_config__domain__a_name)
{
    SandboxConfig config = good();

    config.domain = (char *)"cube.app";
    ck_assert_int_eq(judge(&config, false, "config.domain"), FINE);
    config.domain = (char *)"127.0.0.1";
    ck_assert_int_eq(judge(&config, false, "config.domain"), BAD);
    config.domain = (char *)"cube.app/x";
    ck_assert_int_eq(judge(&config, false, "config.domain"), BAD);
    config.domain = (char *)"metadata.google.internal";
    config.allow_private_endpoints = true;
    ck_assert_int_eq(judge(&config, false, "config.domain"), REFUSED);
    config.domain = (char *)"cube.internal";
    ck_assert_int_eq(judge(&config, false, "config.domain"), FINE);
    config.allow_private_endpoints = false;
    ck_assert_int_eq(judge(&config, false, "config.domain"), REFUSED);
}
END_TEST

/* An update that leaves the stored switch alone is judged when it has been merged. */
START_TEST(check_config__update__judged_as_merged)
{
    SandboxConfig config = good();

    config.api_url = (char *)"http://127.0.0.1:3000";
    ck_assert_int_eq(judge(&config, true, "config.api_url"), FINE);
    ck_assert_int_eq(cp_config_check_endpoint(&config, &err), BERTH_INVALID_ARGUMENT);
    ck_assert_int_eq(err.reason, BERTH_REASON_ENDPOINT_REFUSED);
    ck_assert_str_eq(err.field, "config.api_url");
    config.allow_private_endpoints = true;
    ck_assert_int_eq(cp_config_check_endpoint(&config, &err), BERTH_OK);
    config.api_url = (char *)"http://169.254.169.254";
    ck_assert_int_eq(judge(&config, true, "config.api_url"), REFUSED);
}
END_TEST

START_TEST(check_config__missing__refused_by_name)
{
    SandboxConfig config = good();

    ck_assert_str_eq(blamed(NULL, false), "config");
    config.tenant_id = (char *)"";
    ck_assert_str_eq(blamed(&config, false), "config.tenant_id");
    config = good();
    config.backend = (char *)"";
    ck_assert_str_eq(blamed(&config, false), "config.backend");
    ck_assert_str_eq(blamed(&config, true), ""); /* an update may leave it out */
    config = good();
    config.config_id = (char *)"";
    ck_assert_str_eq(blamed(&config, false), "config.config_id");
    ck_assert_str_eq(blamed(&config, true), "config.config_id");
    config.name = (char *)"n";
    ck_assert_str_eq(blamed(&config, false), "");
}
END_TEST

START_TEST(check_config__enums_and_durations__refused_by_name)
{
    SandboxConfig config = good();
    Google__Protobuf__Duration duration = GOOGLE__PROTOBUF__DURATION__INIT;
    Google__Protobuf__Duration shorter = GOOGLE__PROTOBUF__DURATION__INIT;
    Google__Protobuf__Timestamp when = GOOGLE__PROTOBUF__TIMESTAMP__INIT;

    config.rollout = (Berth__Control__V1__Rollout)3;
    ck_assert_str_eq(blamed(&config, false), "config.rollout");
    config = good();
    config.workspace_on_rebuild = (Berth__Control__V1__WorkspaceOnRebuild)-1;
    ck_assert_str_eq(blamed(&config, false), "config.workspace_on_rebuild");
    config = good();
    duration.seconds = -1;
    config.verify_interval = &duration;
    ck_assert_str_eq(blamed(&config, false), "config.verify_interval");
    duration.seconds = 86401;
    ck_assert_str_eq(blamed(&config, false), "config.verify_interval");
    config = good();
    config.command_timeout = &duration;
    ck_assert_str_eq(blamed(&config, false), "");
    shorter.seconds = 60;
    config.command_timeout_max = &shorter;
    ck_assert_str_eq(blamed(&config, false), "config.command_timeout");
    duration.seconds = 0; /* none at all is more than the most */
    ck_assert_str_eq(blamed(&config, false), "config.command_timeout");
    duration.seconds = 30 * 86400 + 1;
    ck_assert_str_eq(blamed(&config, false), "config.command_timeout");
    config = good();
    when.nanos = 1000000000;
    config.cordon_expire_time = &when;
    ck_assert_str_eq(blamed(&config, false), "config.cordon_expire_time");
}
END_TEST

START_TEST(check_config__credentials__bounded)
{
    SandboxConfig config = good();
    Credentials credentials = BERTH__CONTROL__V1__CREDENTIALS__INIT;

    config.credentials = &credentials;
    credentials.api_key = (char *)text_of(4097);
    ck_assert_str_eq(blamed(&config, false), "config.credentials.api_key");
    credentials.api_key = (char *)"";
    credentials.ca_pem = (char *)"not a pem";
    ck_assert_str_eq(blamed(&config, false), "config.credentials.ca_pem");
    credentials.ca_pem =
        (char *)"-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
    ck_assert_str_eq(blamed(&config, false), "");
    credentials.client_key_pem = (char *)text_of(65 * 1024);
    ck_assert_str_eq(blamed(&config, false), "config.credentials.client_key_pem");
}
END_TEST

/* -------------------------------------------------------------------- updates */

static SandboxConfig *stored(void)
{
    SandboxConfig config = good();

    config.name = (char *)"old";
    config.api_url = (char *)"https://old.example";
    config.etag = (char *)"e1";
    config.root_commands = true;
    return berth_message_copy(&config);
}

static unsigned apply(SandboxConfig *into, const SandboxConfig *from, const char *path)
{
    char *paths[] = {(char *)path};
    Google__Protobuf__FieldMask mask = GOOGLE__PROTOBUF__FIELD_MASK__INIT;
    unsigned changes = 0;

    mask.paths = paths;
    mask.n_paths = 1;
    ck_assert_int_eq(cp_config_apply(into, from, path ? &mask : NULL, &changes, &err),
                     BERTH_OK);
    return changes;
}

/* Without a mask what is set is taken; with one what is named, also where that clears it. */
START_TEST(apply__masks__take_what_they_name)
{
    SandboxConfig *into = stored();
    SandboxConfig from = good();

    from.name = (char *)"new";
    from.etag = (char *)"forged";
    from.created_by = (char *)"forged";
    ck_assert_uint_eq(apply(into, &from, NULL), CP_CHANGE_ANY);
    ck_assert_str_eq(into->name, "new");
    ck_assert_str_eq(into->api_url, "https://old.example");
    ck_assert_str_eq(into->etag, "e1");
    ck_assert_str_eq(into->created_by, "");
    ck_assert(into->root_commands);
    ck_assert_uint_eq(apply(into, &from, "api_url"),
                      CP_CHANGE_ANY | CP_CHANGE_TARGET | CP_CHANGE_ENDPOINT);
    ck_assert_str_eq(into->api_url, "");
    ck_assert_uint_eq(apply(into, &from, "etag"), CP_CHANGE_NONE);
    ck_assert_str_eq(into->etag, "e1");
    ck_assert_uint_ne(apply(into, &from, "*") & CP_CHANGE_POLICY, 0);
    ck_assert(!into->root_commands);
    ck_assert_str_eq(into->config_id, "c");
    ck_assert_str_eq(into->etag, "e1");
    berth_message_free(into);
}
END_TEST

START_TEST(apply__unknown_and_immutable__refused)
{
    SandboxConfig *into = stored();
    SandboxConfig from = good();
    char *paths[] = {(char *)"no_such"};
    Google__Protobuf__FieldMask mask = GOOGLE__PROTOBUF__FIELD_MASK__INIT;
    unsigned changes;

    mask.paths = paths;
    mask.n_paths = 1;
    ck_assert_int_eq(cp_config_apply(into, &from, &mask, &changes, &err),
                     BERTH_INVALID_ARGUMENT);
    ck_assert_str_eq(err.field, "update_mask");
    from.backend = (char *)"docker";
    ck_assert_int_eq(cp_config_apply(into, &from, NULL, &changes, &err),
                     BERTH_INVALID_ARGUMENT);
    ck_assert_str_eq(err.field, "config.backend");
    berth_message_free(into);
}
END_TEST

/* Empty and masked members keep what is stored. */
START_TEST(credentials_merge__masked__kept)
{
    Credentials *kept = berth_message_new(&berth__control__v1__credentials__descriptor);
    Credentials given = BERTH__CONTROL__V1__CREDENTIALS__INIT;

    ck_assert(berth_set_string(&kept->api_key, "secret") &&
              berth_set_string(&kept->ca_pem, "ca"));
    given.api_key = (char *)"********";
    given.client_key_pem = (char *)"new";
    ck_assert(cp_credentials_merge(kept, &given, CP_CHANGE_CREDENTIALS));
    ck_assert(cp_credentials_merge(kept, NULL, CP_CHANGE_CREDENTIALS));
    ck_assert_str_eq(kept->api_key, "secret");
    ck_assert_str_eq(kept->ca_pem, "ca");
    ck_assert_str_eq(kept->client_key_pem, "new");
    given.api_key = (char *)"other";
    ck_assert(cp_credentials_merge(kept, &given, CP_CHANGE_CREDENTIALS));
    ck_assert_str_eq(kept->api_key, "other");
    cp_credentials_free(kept);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("controlplane/config_check");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int failed;

    tcase_add_loop_test(all, check_config__string_lengths__bounded, 0,
                        (int)BERTH_COUNT(strings));
    tcase_add_loop_test(all, check_config__skill_urls__judged_by_the_switch, 0,
                        (int)BERTH_COUNT(urls));
    tcase_add_test(all, check_config__skill_folders_and_hosts__plain);
    tcase_add_loop_test(all, check_config__urls__judged_by_the_switch, 0,
                        (int)BERTH_COUNT(urls));
    tcase_add_test(all, check_config__domain__a_name);
    tcase_add_test(all, check_config__update__judged_as_merged);
    tcase_add_test(all, check_config__missing__refused_by_name);
    tcase_add_test(all, check_config__enums_and_durations__refused_by_name);
    tcase_add_test(all, check_config__credentials__bounded);
    tcase_add_test(all, apply__masks__take_what_they_name);
    tcase_add_test(all, apply__unknown_and_immutable__refused);
    tcase_add_test(all, credentials_merge__masked__kept);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
