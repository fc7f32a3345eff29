/* test_checks.c - the edges of every field that a session may bring. */
#include <check.h>
#include <stdio.h>

#include "google/protobuf/duration.pb-c.h"
#include "services/controlplane/checks.h"

typedef Berth__Common__V1__SessionSpec SessionSpec;
typedef Berth__Common__V1__NetworkPolicy NetworkPolicy;

static struct berth_error err;

/* The field that was blamed; "" when all was well. */
static const char *blamed(enum berth_code code)
{
    if (!code)
        return "";
    ck_assert_msg(code == BERTH_INVALID_ARGUMENT, "%s", err.text);
    return err.field;
}

static const char *text_of(size_t len)
{
    static char text[1 << 18];

    ck_assert_uint_lt(len, sizeof text);
    memset(text, 'a', len);
    text[len] = 0;
    return text;
}

/* ----------------------------------------------------------------------- ids */

static const struct {
    const char *tenant, *session;
    bool reserved_ok;
    const char *field; /* blamed */
} refs[] = {
    {"t", "s", false, ""},
    {"", "s", false, "session.tenant_id"},
    {"t", "", false, "session.session_id"},
    {"..", "s", false, "session.tenant_id"},
    {"t", ".", false, "session.session_id"},
    {"t/x", "s", false, "session.tenant_id"},
    {"t", "s s", false, "session.session_id"},
    {"t{", "s", false, "session.tenant_id"},
    {"t", "sk.1", false, "session.session_id"},
    {"t", "sk.1", true, ""},
    {"t", "skate", false, ""},
};

START_TEST(check_ref__edges__refused_by_name)
{
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;

    ref.tenant_id = (char *)refs[_i].tenant;
    ref.session_id = (char *)refs[_i].session;
    ck_assert_str_eq(blamed(cp_check_ref("session", &ref, refs[_i].reserved_ok, &err)),
                     refs[_i].field);
}
END_TEST

/* Missing, and too long by one. */
START_TEST(check_ref__missing_and_long__refused)
{
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;

    ck_assert_str_eq(blamed(cp_check_ref("session", NULL, false, &err)), "session");
    ref.tenant_id = (char *)"t";
    ref.session_id = (char *)text_of(128);
    ck_assert_str_eq(blamed(cp_check_ref("session", &ref, false, &err)), "");
    ref.session_id = (char *)text_of(129);
    ck_assert_str_eq(blamed(cp_check_ref("session", &ref, false, &err)), "session.session_id");
}
END_TEST

START_TEST(check_image__sources__exactly_one)
{
    Berth__Common__V1__Image image = BERTH__COMMON__V1__IMAGE__INIT;

    ck_assert_str_eq(blamed(cp_check_image("spec.image", NULL, &err)), "");
    ck_assert_str_eq(blamed(cp_check_image("spec.image", &image, &err)), "spec.image");
    image.source_case = BERTH__COMMON__V1__IMAGE__SOURCE_TEMPLATE_ID;
    image.template_id = (char *)"";
    ck_assert_str_eq(blamed(cp_check_image("spec.image", &image, &err)),
                     "spec.image.template_id");
    image.template_id = (char *)"team/alias:tag";
    ck_assert_str_eq(blamed(cp_check_image("spec.image", &image, &err)), "");
    image.template_id = (char *)text_of(129);
    ck_assert_str_eq(blamed(cp_check_image("spec.image", &image, &err)),
                     "spec.image.template_id");
    image.template_id = (char *)"base";
    image.generation = 1;
    ck_assert_str_eq(blamed(cp_check_image("spec.image", &image, &err)),
                     "spec.image.generation");
}
END_TEST

/* ------------------------------------------------------------- labels and env */

static const struct {
    const char *key;
    size_t value_len;
    bool good;
} labels[] = {{"team", 256, true},        {"team", 257, false}, {"", 1, false},
              {"berth.tenant", 1, false}, {"a b", 1, false},    {"\xc3\xa4", 1, false},
              {"berthed", 0, true}};

START_TEST(check_labels__edges__refused)
{
    Berth__Common__V1__SessionSpec__LabelsEntry entry =
        BERTH__COMMON__V1__SESSION_SPEC__LABELS_ENTRY__INIT;
    Berth__Common__V1__SessionSpec__LabelsEntry *list[CP_LABELS_MAX + 1];

    entry.key = (char *)labels[_i].key;
    entry.value = (char *)text_of(labels[_i].value_len);
    for (size_t i = 0; i < BERTH_COUNT(list); i++)
        list[i] = &entry;
    ck_assert_str_eq(blamed(cp_check_labels("spec.labels", list, 1, &err)),
                     labels[_i].good ? "" : "spec.labels");
    ck_assert_str_eq(blamed(cp_check_labels("spec.labels", list, CP_LABELS_MAX + 1, &err)),
                     "spec.labels");
}
END_TEST

START_TEST(check_env__edges__refused)
{
    size_t total = 0;

    ck_assert_str_eq(
        blamed(cp_check_env("spec.env", "A_1", text_of(CP_ENV_VALUE_MAX), &total, &err)), "");
    total = 0;
    ck_assert_str_eq(
        blamed(cp_check_env("spec.env", "A", text_of(CP_ENV_VALUE_MAX + 1), &total, &err)),
        "spec.env");
    ck_assert_str_eq(blamed(cp_check_env("spec.env", "1A", "", &total, &err)), "spec.env");
    ck_assert_str_eq(blamed(cp_check_env("spec.env", "A=B", "", &total, &err)), "spec.env");
    ck_assert_str_eq(blamed(cp_check_env("spec.env", "", "", &total, &err)), "spec.env");
    ck_assert_str_eq(blamed(cp_check_env("spec.env", "BERTH_X", "", &total, &err)), "spec.env");
    ck_assert_str_eq(berth_reason_name(err.reason), "RESERVED_KEY");
    total = CP_ENV_BYTES_MAX - 4;
    ck_assert_str_eq(blamed(cp_check_env("spec.env", "AB", "", &total, &err)), "");
    ck_assert_str_eq(blamed(cp_check_env("spec.env", "A", "", &total, &err)), "spec.env");
}
END_TEST

/* ------------------------------------------------------------------- network */

START_TEST(check_network__enums_and_lists__refused_by_name)
{
    char *list[] = {(char *)"192.0.2.0/24", (char *)"192.0.2.1/24"};
    NetworkPolicy network = BERTH__COMMON__V1__NETWORK_POLICY__INIT;

    ck_assert_str_eq(blamed(cp_check_network("spec.network", NULL, &err)), "");
    ck_assert_str_eq(blamed(cp_check_network("spec.network", &network, &err)), "");
    for (int bad = 3; bad <= 99; bad += 96) {
        network.egress = (Berth__Common__V1__Switch)bad;
        ck_assert_str_eq(blamed(cp_check_network("spec.network", &network, &err)),
                         "spec.network.egress");
        network.egress = 0;
        network.inbound = (Berth__Common__V1__Switch)-bad;
        ck_assert_str_eq(blamed(cp_check_network("spec.network", &network, &err)),
                         "spec.network.inbound");
        network.inbound = 0;
    }
    network.dns = (Berth__Common__V1__DnsMode)4;
    ck_assert_str_eq(blamed(cp_check_network("spec.network", &network, &err)),
                     "spec.network.dns");
    network.dns = 0;
    network.allow_out = list;
    network.n_allow_out = 2;
    ck_assert_str_eq(blamed(cp_check_network("spec.network", &network, &err)),
                     "spec.network.allow_out[1]");
    list[1] = (char *)"example.org";
    ck_assert_str_eq(blamed(cp_check_network("spec.network", &network, &err)),
                     "spec.network.allow_out");
    ck_assert_str_eq(berth_reason_name(err.reason), "NETWORK_POLICY_INVALID");
    network.egress = BERTH__COMMON__V1__SWITCH__SWITCH_CLOSED;
    ck_assert_str_eq(blamed(cp_check_network("spec.network", &network, &err)), "");
    network.deny_out = list;
    network.n_deny_out = 2;
    ck_assert_str_eq(blamed(cp_check_network("spec.network", &network, &err)),
                     "spec.network.deny_out[1]");
    network.n_deny_out = 0;
    network.dns_servers = list;
    network.n_dns_servers = 1;
    ck_assert_str_eq(blamed(cp_check_network("spec.network", &network, &err)),
                     "spec.network.dns_servers[0]");
    list[0] = (char *)"10.0.0.53";
    ck_assert_str_eq(blamed(cp_check_network("spec.network", &network, &err)), "");
    network.n_allow_out = 0; /* private, and not allowed */
    ck_assert_str_eq(blamed(cp_check_network("spec.network", &network, &err)),
                     "spec.network.dns_servers[0]");
}
END_TEST

START_TEST(check_network__rules__judged_then_not_served)
{
    Berth__Common__V1__EgressRule rule = BERTH__COMMON__V1__EGRESS_RULE__INIT;
    Berth__Common__V1__EgressRule *rules[] = {&rule};
    Berth__Common__V1__HeaderInjection inject = BERTH__COMMON__V1__HEADER_INJECTION__INIT;
    Berth__Common__V1__HeaderInjection *injects[] = {&inject};
    char *methods[] = {(char *)"get"};
    NetworkPolicy network = BERTH__COMMON__V1__NETWORK_POLICY__INIT;

    network.rules = rules;
    network.n_rules = 1;
    ck_assert_str_eq(blamed(cp_check_network("n", &network, &err)), "n.rules[0].host");
    rule.host = (char *)"api.example";
    rule.scheme = (char *)"ftp";
    ck_assert_str_eq(blamed(cp_check_network("n", &network, &err)), "n.rules[0].scheme");
    rule.scheme = (char *)"https";
    rule.port = 65536;
    ck_assert_str_eq(blamed(cp_check_network("n", &network, &err)), "n.rules[0].port");
    rule.port = 443;
    rule.methods = methods;
    rule.n_methods = 1;
    ck_assert_str_eq(blamed(cp_check_network("n", &network, &err)), "n.rules[0].methods[0]");
    methods[0] = (char *)"GET";
    rule.path = (char *)"v1";
    ck_assert_str_eq(blamed(cp_check_network("n", &network, &err)), "n.rules[0].path");
    rule.path = (char *)"/v1";
    rule.inject = injects;
    rule.n_inject = 1;
    ck_assert_str_eq(blamed(cp_check_network("n", &network, &err)),
                     "n.rules[0].inject[0].header");
    inject.header = (char *)"Authorization";
    inject.format = (char *)"Bearer x";
    ck_assert_str_eq(blamed(cp_check_network("n", &network, &err)),
                     "n.rules[0].inject[0].format");
    inject.format = (char *)"Bearer ${SECRET}";
    inject.sealed_value = (ProtobufCBinaryData){1, (uint8_t *)"x"};
    ck_assert_str_eq(blamed(cp_check_network("n", &network, &err)),
                     "n.rules[0].inject[0].sealed_value");
    inject.sealed_value.len = 0;
    ck_assert_int_eq(cp_check_network("n", &network, &err), BERTH_UNIMPLEMENTED);
    ck_assert_str_eq(err.resource, "network.l7");
}
END_TEST

/* --------------------------------------------------------- timeouts, resources */

static const struct {
    int64_t seconds;
    int32_t nanos;
    bool idle, lifetime, warn; /* is it good there? */
} durations[] = {
    {0, 0, true, true, true},
    {-1, 0, false, false, false},
    {0, -1, false, false, false},
    {0, 1000000000, false, false, false},
    {1, -1, false, false, false},
    {0, 1, false, true, true}, /* idle: at least a second */
    {0, 999000000, false, true, true},
    {0, 999999999, true, true, true}, /* rounds up to one */
    {1, 0, true, true, true},
    {86400, 0, true, true, true},
    {86401, 0, true, true, false},
    {365 * 86400, 0, true, true, false},
    {365 * 86400 + 1, 0, false, false, false},
    {INT64_MAX, 999999999, false, false, false},
    {INT64_MIN, 0, false, false, false},
};

START_TEST(check_timeouts__durations__bounded)
{
    Google__Protobuf__Duration duration = GOOGLE__PROTOBUF__DURATION__INIT;
    Berth__Common__V1__TimeoutPolicy timeouts = BERTH__COMMON__V1__TIMEOUT_POLICY__INIT;

    duration.seconds = durations[_i].seconds;
    duration.nanos = durations[_i].nanos;
    timeouts.idle = &duration;
    ck_assert_str_eq(blamed(cp_check_timeouts("t", &timeouts, &err)),
                     durations[_i].idle ? "" : "t.idle");
    timeouts.idle = NULL;
    timeouts.max_lifetime = &duration;
    ck_assert_str_eq(blamed(cp_check_timeouts("t", &timeouts, &err)),
                     durations[_i].lifetime ? "" : "t.max_lifetime");
    timeouts.max_lifetime = NULL;
    timeouts.max_paused = &duration;
    ck_assert_str_eq(blamed(cp_check_timeouts("t", &timeouts, &err)),
                     durations[_i].lifetime ? "" : "t.max_paused");
    timeouts.max_paused = NULL;
    timeouts.warn_before = &duration;
    ck_assert_str_eq(blamed(cp_check_timeouts("t", &timeouts, &err)),
                     durations[_i].warn ? "" : "t.warn_before");
}
END_TEST

START_TEST(check_timeouts__enums__refused_by_name)
{
    Berth__Common__V1__TimeoutPolicy timeouts = BERTH__COMMON__V1__TIMEOUT_POLICY__INIT;

    timeouts.on_idle = (Berth__Common__V1__IdleAction)3;
    ck_assert_str_eq(blamed(cp_check_timeouts("t", &timeouts, &err)), "t.on_idle");
    timeouts.on_idle = 0;
    timeouts.auto_resume = (Berth__Common__V1__Switch)-1;
    ck_assert_str_eq(blamed(cp_check_timeouts("t", &timeouts, &err)), "t.auto_resume");
}
END_TEST

START_TEST(check_resources__edges__refused_by_name)
{
    Berth__Common__V1__Resources r = BERTH__COMMON__V1__RESOURCES__INIT;

    r.cpu_millis = 1024000;
    r.memory_bytes = 16 << 20;
    r.disk_bytes = (uint64_t)1 << 50;
    r.max_processes = 4194304;
    r.max_open_files = 1073741816;
    ck_assert_str_eq(blamed(cp_check_resources("r", &r, &err)), "");
    r.cpu_millis++;
    ck_assert_str_eq(blamed(cp_check_resources("r", &r, &err)), "r.cpu_millis");
    r.cpu_millis = 0;
    r.memory_bytes = 1;
    ck_assert_str_eq(blamed(cp_check_resources("r", &r, &err)), "r.memory_bytes");
    r.memory_bytes = UINT64_MAX;
    ck_assert_str_eq(blamed(cp_check_resources("r", &r, &err)), "r.memory_bytes");
    r.memory_bytes = 0;
    r.disk_bytes++;
    ck_assert_str_eq(blamed(cp_check_resources("r", &r, &err)), "r.disk_bytes");
    r.disk_bytes = 0;
    r.max_processes = UINT32_MAX;
    ck_assert_str_eq(blamed(cp_check_resources("r", &r, &err)), "r.max_processes");
    r.max_processes = 0;
    r.max_open_files++;
    ck_assert_str_eq(blamed(cp_check_resources("r", &r, &err)), "r.max_open_files");
}
END_TEST

static const struct {
    const char *volume, *path, *field;
} volumes[] = {
    {"data", "/data", ""},
    {"", "/data", "v[0].volume"},
    {"data", "", "v[0].path"},
    {"data", "data", "v[0].path"},
    {"data", "/a//b", "v[0].path"},
    {"data", "/a/../b", "v[0].path"},
    {"data", "/a/", "v[0].path"},
    {"data", "/", "v[0].path"},
    {"data", "/opt", "v[0].path"},
    {"data", "/opt/berth", "v[0].path"},
    {"data", "/opt/berth/skills/x", "v[0].path"},
    {"data", "/opt/berthed", ""},
    {"data", "/opt/b", ""},
};

START_TEST(check_volumes__paths__clean_and_not_ours)
{
    Berth__Common__V1__VolumeMount mount = BERTH__COMMON__V1__VOLUME_MOUNT__INIT;
    Berth__Common__V1__VolumeMount *list[] = {&mount, &mount};

    mount.volume = (char *)volumes[_i].volume;
    mount.path = (char *)volumes[_i].path;
    ck_assert_str_eq(blamed(cp_check_volumes("v", list, 1, &err)), volumes[_i].field);
    if (!*volumes[_i].field)
        ck_assert_str_eq(blamed(cp_check_volumes("v", list, 2, &err)), "v[1].path");
}
END_TEST

/* A spec is its parts. */
START_TEST(check_spec__parts__blamed_with_their_path)
{
    SessionSpec spec = BERTH__COMMON__V1__SESSION_SPEC__INIT;
    Berth__Common__V1__TimeoutPolicy timeouts = BERTH__COMMON__V1__TIMEOUT_POLICY__INIT;

    ck_assert_str_eq(blamed(cp_check_spec("spec", NULL, &err)), "");
    ck_assert_str_eq(blamed(cp_check_spec("spec", &spec, &err)), "");
    spec.config_id = (char *)"a b";
    ck_assert_str_eq(blamed(cp_check_spec("spec", &spec, &err)), "spec.config_id");
    spec.config_id = (char *)"";
    timeouts.on_idle = (Berth__Common__V1__IdleAction)7;
    spec.timeouts = &timeouts;
    ck_assert_str_eq(blamed(cp_check_spec("spec", &spec, &err)), "spec.timeouts.on_idle");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("controlplane/checks");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int failed;

    tcase_add_loop_test(all, check_ref__edges__refused_by_name, 0, (int)BERTH_COUNT(refs));
    tcase_add_test(all, check_ref__missing_and_long__refused);
    tcase_add_test(all, check_image__sources__exactly_one);
    tcase_add_loop_test(all, check_labels__edges__refused, 0, (int)BERTH_COUNT(labels));
    tcase_add_test(all, check_env__edges__refused);
    tcase_add_test(all, check_network__enums_and_lists__refused_by_name);
    tcase_add_test(all, check_network__rules__judged_then_not_served);
    tcase_add_loop_test(all, check_timeouts__durations__bounded, 0,
                        (int)BERTH_COUNT(durations));
    tcase_add_test(all, check_timeouts__enums__refused_by_name);
    tcase_add_test(all, check_resources__edges__refused_by_name);
    tcase_add_loop_test(all, check_volumes__paths__clean_and_not_ours, 0,
                        (int)BERTH_COUNT(volumes));
    tcase_add_test(all, check_spec__parts__blamed_with_their_path);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
