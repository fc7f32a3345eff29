#include <check.h>
#include <stdio.h>

#include "common/time/time.h"
#include "services/adapter/decode.h"
#include "services/adapter/encode.h"

typedef Berth__Backend__V1__CreateSandboxRequest CreateSandboxRequest;
typedef Berth__Backend__V1__CreateSandboxRequest__MetadataEntry MetadataEntry;
typedef Berth__Backend__V1__CreateSandboxRequest__EnvEntry EnvEntry;

/* A backend that can do little: what it lacks must be refused, not dropped. */
static const struct adapter_info info = {
    .pause = true,
    .egress_switch = true,
    .inbound_switch = true,
    .resources = true,
    .max_resources = {.cpu_millis = 4000, .memory_bytes = 1 << 30, .max_processes = 100},
};

/* A request that passes, with room for whatever a case changes. */
static struct fixture {
    CreateSandboxRequest req;
    Berth__Common__V1__BackendTarget target;
    Berth__Common__V1__Image image;
    Berth__Common__V1__NetworkPolicy network;
    Berth__Common__V1__TimeoutPolicy timeouts;
    Google__Protobuf__Duration idle, other;
    Google__Protobuf__Timestamp not_after;
    Berth__Common__V1__Resources resources;
    MetadataEntry metadata;
    EnvEntry env;
    MetadataEntry *metadata_list[300];
    EnvEntry *env_list[1100];
    char *strings[1];
    Berth__Common__V1__EgressRule rule, *rules[1];
    Berth__Common__V1__VolumeMount volume, *volumes[1];
    char big[(64 << 10) + 2];
} f;

static void setup(void)
{
    memset(&f, 0, sizeof f);
    berth__backend__v1__create_sandbox_request__init(&f.req);
    berth__common__v1__backend_target__init(&f.target);
    berth__common__v1__image__init(&f.image);
    berth__common__v1__network_policy__init(&f.network);
    berth__common__v1__timeout_policy__init(&f.timeouts);
    google__protobuf__duration__init(&f.idle);
    google__protobuf__duration__init(&f.other);
    google__protobuf__timestamp__init(&f.not_after);
    berth__common__v1__resources__init(&f.resources);
    berth__backend__v1__create_sandbox_request__metadata_entry__init(&f.metadata);
    berth__backend__v1__create_sandbox_request__env_entry__init(&f.env);
    berth__common__v1__egress_rule__init(&f.rule);
    berth__common__v1__volume_mount__init(&f.volume);
    f.target.backend = "local";
    f.image.source_case = BERTH__COMMON__V1__IMAGE__SOURCE_TEMPLATE_ID;
    f.image.template_id = "base";
    f.network.egress = BERTH__COMMON__V1__SWITCH__SWITCH_OPEN;
    f.network.inbound = BERTH__COMMON__V1__SWITCH__SWITCH_CLOSED;
    f.network.dns = BERTH__COMMON__V1__DNS_MODE__DNS_MODE_POLICY;
    f.idle.seconds = 1800;
    f.timeouts.idle = &f.idle;
    f.timeouts.on_idle = BERTH__COMMON__V1__IDLE_ACTION__IDLE_ACTION_PAUSE;
    f.timeouts.auto_resume = BERTH__COMMON__V1__SWITCH__SWITCH_OPEN;
    f.metadata.key = "berth.session";
    f.metadata.value = "s";
    f.env.key = "NAME";
    f.env.value = "value";
    for (size_t i = 0; i < BERTH_COUNT(f.metadata_list); i++)
        f.metadata_list[i] = &f.metadata;
    for (size_t i = 0; i < BERTH_COUNT(f.env_list); i++)
        f.env_list[i] = &f.env;
    f.strings[0] = "10.0.0.0/8";
    f.rules[0] = &f.rule;
    f.volumes[0] = &f.volume;
    f.req.target = &f.target;
    f.req.image = &f.image;
    f.req.network = &f.network;
    f.req.timeouts = &f.timeouts;
    f.req.unique_key = "key";
    f.req.fence = 7;
    f.req.attempt = (ProtobufCBinaryData){.len = 2, .data = (uint8_t *)"\x01\xff"};
    f.req.n_metadata = 1;
    f.req.metadata = f.metadata_list;
    f.req.n_env = 1;
    f.req.env = f.env_list;
}

static const char *fill(size_t len)
{
    memset(f.big, 'a', len);
    f.big[len] = 0;
    return f.big;
}

static enum berth_code decode(struct berth_error *err)
{
    struct decoded_create decoded;
    enum berth_code code = decode_create(&f.req, "local", &info, &decoded, err);

    if (!code)
        decode_create_deinit(&decoded);
    return code;
}

/* All that is said arrives. */
START_TEST(decode_create__good_request__carried_over)
{
    struct decoded_create decoded;
    struct berth_error err = {0};

    f.resources.memory_bytes = 5 << 20;
    f.req.resources = &f.resources;
    f.other.nanos = 1;
    f.timeouts.warn_before = &f.other;
    ck_assert_msg(decode_create(&f.req, "local", &info, &decoded, &err) == BERTH_OK, "%s",
                  err.text);
    ck_assert_str_eq(decoded.create.unique_key, "key");
    ck_assert_str_eq(decoded.create.attempt, "01ff");
    ck_assert_uint_eq(decoded.create.fence, 7);
    ck_assert_int_eq(decoded.create.image.kind, ADAPTER_IMAGE_TEMPLATE);
    ck_assert_str_eq(decoded.create.image.id, "base");
    ck_assert_int_eq(decoded.create.network.egress, ADAPTER_OPEN);
    ck_assert_int_eq(decoded.create.network.inbound, ADAPTER_CLOSED);
    ck_assert_int_eq(decoded.create.timeouts.idle_ms, 1800000);
    ck_assert_int_eq(decoded.create.timeouts.warn_before_ms, 1);
    ck_assert_int_eq(decoded.create.timeouts.max_paused_ms, ADAPTER_INHERIT);
    ck_assert_uint_eq(decoded.create.resources.memory_bytes, 5 << 20);
    ck_assert_str_eq(adapter_pairs_get(&decoded.create.metadata, "berth.session"), "s");
    ck_assert_str_eq(adapter_pairs_get(&decoded.create.env, "NAME"), "value");
    decode_create_deinit(&decoded);
}
END_TEST

/* One change each; the field that must be named; ok: it still passes. */
static void no_target(void)
{
    f.req.target = NULL;
}
static void other_backend(void)
{
    f.target.backend = "docker";
}
static void no_backend(void)
{
    f.target.backend = "";
}
static void bad_config(void)
{
    f.target.config_id = "a/b";
}
static void short_fingerprint(void)
{
    f.target.fingerprint = (ProtobufCBinaryData){31, (uint8_t *)f.big};
}
static void no_image(void)
{
    f.req.image = NULL;
}
static void no_source(void)
{
    f.image.source_case = BERTH__COMMON__V1__IMAGE__SOURCE__NOT_SET;
}
static void empty_template(void)
{
    f.image.template_id = "";
}
static void long_template(void)
{
    f.image.template_id = (char *)fill(72);
}
static void longest_template(void)
{
    f.image.template_id = (char *)fill(71);
}
static void control_template(void)
{
    f.image.template_id = "a\nb";
}
static void no_key(void)
{
    f.req.unique_key = "";
}
static void long_key(void)
{
    f.req.unique_key = (char *)fill(129);
}
static void path_key(void)
{
    f.req.unique_key = "../x";
}
static void dots_key(void)
{
    f.req.unique_key = "..";
}
static void no_attempt(void)
{
    f.req.attempt.len = 0;
}
static void long_attempt(void)
{
    f.req.attempt = (ProtobufCBinaryData){65, (uint8_t *)f.big};
}
static void longest_attempt(void)
{
    f.req.attempt = (ProtobufCBinaryData){64, (uint8_t *)f.big};
}
static void no_network(void)
{
    f.req.network = NULL;
}
static void unset_egress(void)
{
    f.network.egress = 0;
}
static void unset_inbound(void)
{
    f.network.inbound = 0;
}
static void unknown_egress(void)
{
    f.network.egress = 3;
}
static void negative_dns(void)
{
    f.network.dns = -1;
}
static void unknown_dns(void)
{
    f.network.dns = 4;
}
static void unset_dns(void)
{
    f.network.dns = 0;
}
static void no_timeouts(void)
{
    f.req.timeouts = NULL;
}
static void no_idle(void)
{
    f.timeouts.idle = NULL;
}
static void negative_idle(void)
{
    f.idle.seconds = -1;
}
static void huge_idle(void)
{
    f.idle.seconds = INT64_MAX;
}
static void bad_nanos(void)
{
    f.idle.nanos = 1000000000;
}
static void never_idle(void)
{
    f.idle.seconds = 0;
}
static void unset_on_idle(void)
{
    f.timeouts.on_idle = 0;
}
static void unknown_on_idle(void)
{
    f.timeouts.on_idle = 3;
}
static void unset_auto_resume(void)
{
    f.timeouts.auto_resume = 0;
}
static void much_memory(void)
{
    f.req.resources = &f.resources;
    f.resources.memory_bytes = UINT64_MAX;
}
static void most_memory(void)
{
    f.req.resources = &f.resources;
    f.resources.memory_bytes = 1 << 30;
}
static void much_cpu(void)
{
    f.req.resources = &f.resources;
    f.resources.cpu_millis = 4001;
}
static void some_disk(void)
{
    f.req.resources = &f.resources;
    f.resources.disk_bytes = 1;
}
static void many_tags(void)
{
    f.req.n_metadata = 257;
}
static void most_tags(void)
{
    f.req.n_metadata = 256;
}
static void empty_tag(void)
{
    f.metadata.key = "";
}
static void strange_tag(void)
{
    f.metadata.key = "a b";
}
static void control_tag(void)
{
    f.metadata.value = "a\x01";
}
static void latin_tag(void)
{
    f.metadata.value = "\xe4";
}
static void long_tag(void)
{
    f.metadata.value = (char *)fill(1025);
}
static void many_env(void)
{
    f.req.n_env = 1025;
}
static void digit_env(void)
{
    f.env.key = "1A";
}
static void empty_env_value(void)
{
    f.env.value = "";
}
static void lines_env(void)
{
    f.env.value = "a\nb\x01";
}
static void latin_env(void)
{
    f.env.value = "\xe4";
}
static void long_env(void)
{
    f.env.value = (char *)fill((64 << 10) + 1);
}
static void longest_env(void)
{
    f.env.value = (char *)fill(64 << 10);
}
static void total_env(void)
{
    f.env.value = (char *)fill(64 << 10);
    f.req.n_env = 9;
}
static void epoch(void)
{
    f.req.not_after_time = &f.not_after;
}
static void negative_time(void)
{
    f.req.not_after_time = &f.not_after;
    f.not_after.seconds = -1;
}
static void huge_time(void)
{
    f.req.not_after_time = &f.not_after;
    f.not_after.seconds = INT64_MAX;
}

static const struct {
    void (*change)(void);
    const char *field; /* NULL: passes */
} cases[] = {
    {no_target, "target"},
    {other_backend, "target.backend"},
    {no_backend, "target.backend"},
    {bad_config, "target.config_id"},
    {short_fingerprint, "target.fingerprint"},
    {no_image, "image"},
    {no_source, "image.source"},
    {empty_template, "image.template_id"},
    {long_template, "image.template_id"},
    {longest_template, NULL},
    {control_template, "image.template_id"},
    {no_key, "unique_key"},
    {long_key, "unique_key"},
    {path_key, "unique_key"},
    {dots_key, "unique_key"},
    {no_attempt, "attempt"},
    {long_attempt, "attempt"},
    {longest_attempt, NULL},
    {no_network, "network"},
    {unset_egress, "network.egress"},
    {unset_inbound, "network.inbound"},
    {unknown_egress, "network.egress"},
    {negative_dns, "network.dns"},
    {unknown_dns, "network.dns"},
    {unset_dns, NULL},
    {no_timeouts, "timeouts"},
    {no_idle, "timeouts.idle"},
    {negative_idle, "timeouts.idle"},
    {huge_idle, "timeouts.idle"},
    {bad_nanos, "timeouts.idle"},
    {never_idle, NULL},
    {unset_on_idle, "timeouts.on_idle"},
    {unknown_on_idle, "timeouts.on_idle"},
    {unset_auto_resume, "timeouts.auto_resume"},
    {much_memory, "resources.memory_bytes"},
    {most_memory, NULL},
    {much_cpu, "resources.cpu_millis"},
    {many_tags, "metadata"},
    {most_tags, NULL},
    {empty_tag, "metadata"},
    {strange_tag, "metadata"},
    {control_tag, "metadata"},
    {latin_tag, "metadata"},
    {long_tag, "metadata"},
    {many_env, "env"},
    {digit_env, "env"},
    {empty_env_value, NULL},
    {lines_env, NULL},
    {latin_env, "env"},
    {long_env, "env"},
    {longest_env, NULL},
    {total_env, "env"},
    {epoch, "not_after_time"},
    {negative_time, "not_after_time"},
    {huge_time, "not_after_time"},
};

START_TEST(decode_create__one_field_changed__named_or_passed)
{
    struct berth_error err = {0};
    enum berth_code code;

    cases[_i].change();
    code = decode(&err);
    if (!cases[_i].field) {
        ck_assert_msg(code == BERTH_OK, "case %d: %s", _i, err.text);
        return;
    }
    ck_assert_msg(code == BERTH_INVALID_ARGUMENT, "case %d: %d", _i, code);
    ck_assert_int_eq(err.reason, BERTH_REASON_FIELD_INVALID);
    ck_assert_str_eq(err.field, cases[_i].field);
}
END_TEST

static void allow_list(void)
{
    f.network.n_allow_out = 1;
    f.network.allow_out = f.strings;
}
static void deny_list(void)
{
    f.network.n_deny_out = 1;
    f.network.deny_out = f.strings;
}
static void rule_list(void)
{
    f.network.n_rules = 1;
    f.network.rules = f.rules;
}
static void resolvers(void)
{
    f.network.n_dns_servers = 1;
    f.network.dns_servers = f.strings;
}
static void no_names(void)
{
    f.network.dns = BERTH__COMMON__V1__DNS_MODE__DNS_MODE_CLOSED;
}
static void names_alone(void)
{
    f.network.dns = BERTH__COMMON__V1__DNS_MODE__DNS_MODE_OPEN;
    f.network.egress = BERTH__COMMON__V1__SWITCH__SWITCH_CLOSED;
}
static void volume(void)
{
    f.req.n_volumes = 1;
    f.req.volumes = f.volumes;
}

static const struct {
    void (*change)(void);
    const char *capability;
} wishes[] = {
    {allow_list, "network.cidr"},
    {deny_list, "network.cidr"},
    {rule_list, "network.l7"},
    {resolvers, "network.dns_servers"},
    {no_names, "network.dns_policy"},
    {names_alone, "network.dns_policy"},
    {volume, "volumes"},
    {some_disk, "disk_limit"},
};

/* What the backend cannot keep is CAPABILITY_MISSING, and says which. */
START_TEST(decode_create__beyond_the_backend__capability_missing)
{
    struct berth_error err = {0};

    wishes[_i].change();
    ck_assert_int_eq(decode(&err), BERTH_UNIMPLEMENTED);
    ck_assert_int_eq(err.reason, BERTH_REASON_CAPABILITY_MISSING);
    ck_assert_str_eq(err.resource, wishes[_i].capability);
}
END_TEST

START_TEST(decode_create__not_after_passed__deadline)
{
    struct berth_error err = {0};

    f.req.not_after_time = &f.not_after;
    f.not_after.seconds = berth_now_ms() / 1000 - 2;
    ck_assert_int_eq(decode(&err), BERTH_DEADLINE_EXCEEDED);
    ck_assert_int_eq(err.reason, BERTH_REASON_DEADLINE);
    f.not_after.seconds += 3600;
    ck_assert_int_eq(decode(&err), BERTH_OK);
}
END_TEST

START_TEST(decode_snapshot_name__names__accepted_or_refused)
{
    static const struct {
        const char *name;
        bool good;
    } names[] = {{"a", true},    {"berth-sk-0123456789abcdef-g7-x", true},
                 {"", false},    {"A", false},
                 {"a.b", false}, {"-a", false},
                 {"a_b", false}, {"a b", false}};

    for (size_t i = 0; i < BERTH_COUNT(names); i++)
        ck_assert_msg((decode_snapshot_name("name", names[i].name, NULL) == BERTH_OK) ==
                          names[i].good,
                      "'%s'", names[i].name);
    ck_assert_int_eq(decode_snapshot_name("name", fill(63), NULL), BERTH_OK);
    ck_assert_int_ne(decode_snapshot_name("name", fill(64), NULL), BERTH_OK);
}
END_TEST

/* ----------------------------------------------------------------------- encode */

/* The endpoint names its target, without credentials. */
START_TEST(encode_endpoint__target_with_credentials__left_out)
{
    Berth__Common__V1__DataPlaneEndpoint *endpoint;

    f.target.sealed_credentials = (ProtobufCBinaryData){6, (uint8_t *)"secret"};
    f.target.config_id = "c";
    endpoint = encode_endpoint(&f.target, "s1", 9);
    ck_assert_ptr_nonnull(endpoint);
    ck_assert_str_eq(endpoint->sandbox_id, "s1");
    ck_assert_str_eq(endpoint->target->config_id, "c");
    ck_assert_uint_eq(endpoint->fence, 9);
    ck_assert_uint_eq(endpoint->target->sealed_credentials.len, 0);
    protobuf_c_message_free_unpacked(&endpoint->base, NULL);
}
END_TEST

/* Absent means not known; 0 means never. */
START_TEST(encode_sandbox__unknown_times__absent)
{
    struct adapter_sandbox from = {.id = "s1",
                                   .state = ADAPTER_PAUSED,
                                   .image = {ADAPTER_IMAGE_SNAPSHOT, "snap", 3},
                                   .create_ms = 1500,
                                   .timeouts = {.idle_ms = 0,
                                                .max_lifetime_ms = ADAPTER_INHERIT,
                                                .max_paused_ms = 1500,
                                                .warn_before_ms = ADAPTER_INHERIT}};
    Berth__Common__V1__Sandbox *to;

    ck_assert_int_eq(adapter_pairs_add(&from.metadata, "k", "v", NULL), BERTH_OK);
    to = encode_sandbox("local", &from);
    ck_assert_ptr_nonnull(to);
    ck_assert_int_eq(to->state, BERTH__COMMON__V1__SANDBOX_STATE__SANDBOX_STATE_PAUSED);
    ck_assert_str_eq(to->image->snapshot_id, "snap");
    ck_assert_int_eq(to->create_time->seconds, 1);
    ck_assert_int_eq(to->create_time->nanos, 500000000);
    ck_assert_ptr_null(to->end_time);
    ck_assert_ptr_null(to->last_active_time);
    ck_assert_int_eq(to->timeouts->idle->seconds, 0);
    ck_assert_ptr_null(to->timeouts->max_lifetime);
    ck_assert_int_eq(to->timeouts->max_paused->nanos, 500000000);
    ck_assert_str_eq(to->metadata[0]->value, "v");
    protobuf_c_message_free_unpacked(&to->base, NULL);
    adapter_sandbox_deinit(&from);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("adapter/decode");
    TCase *tcase = tcase_create("decode");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, decode_create__good_request__carried_over);
    tcase_add_loop_test(tcase, decode_create__one_field_changed__named_or_passed, 0,
                        (int)BERTH_COUNT(cases));
    tcase_add_loop_test(tcase, decode_create__beyond_the_backend__capability_missing, 0,
                        (int)BERTH_COUNT(wishes));
    tcase_add_test(tcase, decode_create__not_after_passed__deadline);
    tcase_add_test(tcase, decode_snapshot_name__names__accepted_or_refused);
    tcase_add_test(tcase, encode_endpoint__target_with_credentials__left_out);
    tcase_add_test(tcase, encode_sandbox__unknown_times__absent);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
