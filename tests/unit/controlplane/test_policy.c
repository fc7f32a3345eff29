/* test_policy.c - what a session gets, what it may ask for, and what a backend must be able to.
 */
#include <check.h>

#include "common/messages/messages.h"
#include "services/controlplane/policy.h"

#define OPEN BERTH__COMMON__V1__SWITCH__SWITCH_OPEN
#define CLOSED BERTH__COMMON__V1__SWITCH__SWITCH_CLOSED
#define DNS(name) BERTH__COMMON__V1__DNS_MODE__DNS_MODE_##name
#define PAUSE BERTH__COMMON__V1__IDLE_ACTION__IDLE_ACTION_PAUSE
#define KILL BERTH__COMMON__V1__IDLE_ACTION__IDLE_ACTION_KILL

typedef Berth__Common__V1__Capabilities Capabilities;
typedef Berth__Common__V1__NetworkPolicy NetworkPolicy;
typedef Berth__Common__V1__SessionSpec SessionSpec;
typedef Berth__Common__V1__TimeoutPolicy TimeoutPolicy;
typedef Berth__Control__V1__SandboxConfig SandboxConfig;

static struct cp_policy resolve(const SandboxConfig *config, const SessionSpec *spec,
                                const Capabilities *caps)
{
    struct cp_policy policy = {0};

    ck_assert_int_eq(cp_policy_resolve(config, spec, caps, &policy, NULL), BERTH_OK);
    return policy;
}

/* Nothing said: every field that has to be explicit is. */
START_TEST(resolve__nothing_said__built_in_defaults)
{
    SandboxConfig config = BERTH__CONTROL__V1__SANDBOX_CONFIG__INIT;
    Capabilities caps = BERTH__COMMON__V1__CAPABILITIES__INIT;
    Berth__Common__V1__PauseCapability pause = BERTH__COMMON__V1__PAUSE_CAPABILITY__INIT;
    struct cp_policy policy = resolve(&config, NULL, NULL);

    ck_assert_int_eq(policy.network->egress, OPEN);
    ck_assert_int_eq(policy.network->inbound, CLOSED);
    ck_assert_int_eq(policy.network->dns, DNS(POLICY));
    ck_assert_int_eq(policy.timeouts->idle->seconds, 1800);
    ck_assert_int_eq(policy.timeouts->on_idle, KILL);
    ck_assert_int_eq(policy.timeouts->auto_resume, OPEN);
    ck_assert_int_eq(policy.timeouts->max_paused->seconds, 14 * 24 * 3600);
    ck_assert_ptr_null(policy.timeouts->max_lifetime);
    cp_policy_deinit(&policy);

    caps.pause = &pause;
    pause.supported = true; /* without memory: kill */
    policy = resolve(&config, NULL, &caps);
    ck_assert_int_eq(policy.timeouts->on_idle, KILL);
    cp_policy_deinit(&policy);
    pause.keeps_memory = true;
    policy = resolve(&config, NULL, &caps);
    ck_assert_int_eq(policy.timeouts->on_idle, PAUSE);
    cp_policy_deinit(&policy);
}
END_TEST

/* Each member by itself: session over config over built-in; 0 is a word, too. */
START_TEST(resolve__timeouts__session_over_config)
{
    SandboxConfig config = BERTH__CONTROL__V1__SANDBOX_CONFIG__INIT;
    SessionSpec spec = BERTH__COMMON__V1__SESSION_SPEC__INIT;
    TimeoutPolicy base = BERTH__COMMON__V1__TIMEOUT_POLICY__INIT;
    TimeoutPolicy own = BERTH__COMMON__V1__TIMEOUT_POLICY__INIT;
    Google__Protobuf__Duration minute = GOOGLE__PROTOBUF__DURATION__INIT;
    Google__Protobuf__Duration never = GOOGLE__PROTOBUF__DURATION__INIT;
    struct cp_policy policy;

    minute.seconds = 60;
    base.idle = &minute;
    base.max_lifetime = &minute;
    base.on_idle = KILL;
    own.idle = &never;
    config.timeouts = &base;
    spec.timeouts = &own;
    policy = resolve(&config, &spec, NULL);
    ck_assert_int_eq(policy.timeouts->idle->seconds, 0);
    ck_assert_int_eq(policy.timeouts->max_lifetime->seconds, 60);
    ck_assert_int_eq(policy.timeouts->on_idle, KILL);
    cp_policy_deinit(&policy);
}
END_TEST

/* A config that was narrowed after a session was made narrows the session as well. */
START_TEST(resolve__config_narrower_than_session__never_wider)
{
    char *allowed[] = {(char *)"example.org"},
         *wanted[] = {(char *)"example.org", (char *)"evil.example"};
    char *denied[] = {(char *)"192.0.2.0/24"};
    SandboxConfig config = BERTH__CONTROL__V1__SANDBOX_CONFIG__INIT;
    SessionSpec spec = BERTH__COMMON__V1__SESSION_SPEC__INIT;
    NetworkPolicy base = BERTH__COMMON__V1__NETWORK_POLICY__INIT;
    NetworkPolicy own = BERTH__COMMON__V1__NETWORK_POLICY__INIT;
    struct cp_policy policy;

    base.egress = CLOSED;
    base.allow_out = allowed;
    base.n_allow_out = 1;
    base.deny_out = denied;
    base.n_deny_out = 1;
    base.dns = DNS(CLOSED);
    own.egress = own.inbound = OPEN;
    own.dns = DNS(OPEN);
    own.allow_out = wanted;
    own.n_allow_out = 2;
    config.network = &base;
    spec.network = &own;
    policy = resolve(&config, &spec, NULL);
    ck_assert_int_eq(policy.network->egress, CLOSED);
    ck_assert_int_eq(policy.network->inbound, CLOSED);
    ck_assert_int_eq(policy.network->dns, DNS(CLOSED));
    ck_assert_uint_eq(policy.network->n_allow_out, 1);
    ck_assert_str_eq(policy.network->allow_out[0], "example.org");
    ck_assert_uint_eq(policy.network->n_deny_out, 1);
    cp_policy_deinit(&policy);
}
END_TEST

/* A session that says nothing about egress keeps the config's list; one that closes it starts
 * from nothing. */
START_TEST(resolve__allow_list__inherited_or_own)
{
    char *allowed[] = {(char *)"example.org"};
    SandboxConfig config = BERTH__CONTROL__V1__SANDBOX_CONFIG__INIT;
    SessionSpec spec = BERTH__COMMON__V1__SESSION_SPEC__INIT;
    NetworkPolicy base = BERTH__COMMON__V1__NETWORK_POLICY__INIT;
    NetworkPolicy own = BERTH__COMMON__V1__NETWORK_POLICY__INIT;
    struct cp_policy policy;

    base.egress = CLOSED;
    base.allow_out = allowed;
    base.n_allow_out = 1;
    config.network = &base;
    own.inbound = CLOSED;
    spec.network = &own;
    policy = resolve(&config, &spec, NULL);
    ck_assert_uint_eq(policy.network->n_allow_out, 1);
    cp_policy_deinit(&policy);
    own.egress = CLOSED;
    policy = resolve(&config, &spec, NULL);
    ck_assert_uint_eq(policy.network->n_allow_out, 0);
    cp_policy_deinit(&policy);
}
END_TEST

/* Each row: a config's policy, a session's, and whether it may ask for that. */
static const struct {
    int base_egress, base_inbound, base_dns;
    const char *base_allow, *base_deny;
    int egress, inbound, dns;
    const char *allow;
    bool may;
} narrow[] = {
    {0, 0, 0, NULL, NULL, CLOSED, CLOSED, DNS(CLOSED), NULL, true},
    {0, 0, 0, NULL, NULL, OPEN, 0, 0, NULL, true},
    {CLOSED, 0, 0, NULL, NULL, OPEN, 0, 0, NULL, false},
    {0, 0, 0, NULL, NULL, 0, OPEN, 0, NULL, false}, /* built-in: closed */
    {0, OPEN, 0, NULL, NULL, 0, OPEN, 0, NULL, true},
    {0, 0, 0, NULL, NULL, 0, 0, DNS(OPEN), NULL, false},
    {0, 0, DNS(CLOSED), NULL, NULL, 0, 0, DNS(POLICY), NULL, false},
    {CLOSED, 0, 0, "192.0.2.0/24", NULL, 0, 0, 0, "192.0.2.7", true},
    {CLOSED, 0, 0, "192.0.2.0/24", NULL, 0, 0, 0, "192.0.0.0/16", false},
    {CLOSED, 0, 0, "*.example.org", NULL, 0, 0, 0, "files.example.org", true},
    {CLOSED, 0, 0, "*.example.org", NULL, 0, 0, 0, "evil.example", false},
    {0, 0, 0, NULL, "192.0.2.0/24", CLOSED, 0, 0, "192.0.2.7", false}, /* would undo a deny */
    {0, 0, 0, NULL, "192.0.2.0/24", CLOSED, 0, 0, "198.51.100.7", true},
    {0, 0, 0, NULL, "192.0.2.0/24", CLOSED, 0, 0, "example.org", false}, /* may resolve to it */
    {0, 0, 0, "192.0.2.7", "192.0.2.0/24", CLOSED, 0, 0, "192.0.2.7", true},
};

START_TEST(check_narrow__rows__never_wider)
{
    char *base_allow[] = {(char *)narrow[_i].base_allow},
         *base_deny[] = {(char *)narrow[_i].base_deny};
    char *allow[] = {(char *)narrow[_i].allow};
    NetworkPolicy base = BERTH__COMMON__V1__NETWORK_POLICY__INIT;
    NetworkPolicy own = BERTH__COMMON__V1__NETWORK_POLICY__INIT;
    struct berth_error err;
    enum berth_code code;

    base.egress = (Berth__Common__V1__Switch)narrow[_i].base_egress;
    base.inbound = (Berth__Common__V1__Switch)narrow[_i].base_inbound;
    base.dns = (Berth__Common__V1__DnsMode)narrow[_i].base_dns;
    base.allow_out = base_allow;
    base.n_allow_out = narrow[_i].base_allow != NULL;
    base.deny_out = base_deny;
    base.n_deny_out = narrow[_i].base_deny != NULL;
    own.egress = (Berth__Common__V1__Switch)narrow[_i].egress;
    own.inbound = (Berth__Common__V1__Switch)narrow[_i].inbound;
    own.dns = (Berth__Common__V1__DnsMode)narrow[_i].dns;
    own.allow_out = allow;
    own.n_allow_out = narrow[_i].allow != NULL;
    code = cp_policy_check_narrow(&base, &own, &err);
    ck_assert_int_eq(code == BERTH_OK, narrow[_i].may);
    if (code)
        ck_assert_str_eq(berth_reason_name(err.reason), "NETWORK_POLICY_INVALID");
}
END_TEST

/* What is asked for and cannot be done is named. */
START_TEST(check_capable__missing__named)
{
    char *domain[] = {(char *)"example.org"}, *net[] = {(char *)"192.0.2.0/24"};
    Capabilities caps = BERTH__COMMON__V1__CAPABILITIES__INIT;
    NetworkPolicy network = BERTH__COMMON__V1__NETWORK_POLICY__INIT;
    TimeoutPolicy timeouts = BERTH__COMMON__V1__TIMEOUT_POLICY__INIT;
    Berth__Common__V1__Resources resources = BERTH__COMMON__V1__RESOURCES__INIT;
    struct berth_error err;

    ck_assert_int_eq(cp_policy_check_capable(&caps, &network, &timeouts, &resources, 0, &err),
                     BERTH_OK);
    network.egress = CLOSED;
    ck_assert_int_eq(cp_policy_check_capable(&caps, &network, NULL, NULL, 0, &err),
                     BERTH_UNIMPLEMENTED);
    ck_assert_str_eq(err.resource, "network.egress_switch");
    network.egress = 0;
    network.allow_out = domain;
    network.n_allow_out = 1;
    ck_assert_int_eq(cp_policy_check_capable(&caps, &network, NULL, NULL, 0, &err),
                     BERTH_UNIMPLEMENTED);
    ck_assert_str_eq(err.resource, "network.domains");
    network.allow_out = net;
    ck_assert_int_eq(cp_policy_check_capable(&caps, &network, NULL, NULL, 0, &err),
                     BERTH_UNIMPLEMENTED);
    ck_assert_str_eq(err.resource, "network.cidr");
    timeouts.on_idle = PAUSE;
    ck_assert_int_eq(cp_policy_check_capable(&caps, NULL, &timeouts, NULL, 0, &err),
                     BERTH_UNIMPLEMENTED);
    ck_assert_str_eq(err.resource, "pause");
    resources.max_processes = 10;
    ck_assert_int_eq(cp_policy_check_capable(&caps, NULL, NULL, &resources, 0, &err),
                     BERTH_UNIMPLEMENTED);
    ck_assert_str_eq(err.resource, "resources");
    caps.resources = true;
    resources.disk_bytes = 1;
    ck_assert_int_eq(cp_policy_check_capable(&caps, NULL, NULL, &resources, 0, &err),
                     BERTH_UNIMPLEMENTED);
    ck_assert_str_eq(err.resource, "disk_limit");
    caps.disk_limit = true;
    ck_assert_int_eq(cp_policy_check_capable(&caps, NULL, NULL, &resources, 0, &err), BERTH_OK);
    ck_assert_int_eq(cp_policy_check_capable(&caps, NULL, NULL, NULL, 1, &err),
                     BERTH_UNIMPLEMENTED);
    ck_assert_str_eq(err.resource, "volumes");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("controlplane/policy");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int failed;

    tcase_add_test(all, resolve__nothing_said__built_in_defaults);
    tcase_add_test(all, resolve__timeouts__session_over_config);
    tcase_add_test(all, resolve__config_narrower_than_session__never_wider);
    tcase_add_test(all, resolve__allow_list__inherited_or_own);
    tcase_add_loop_test(all, check_narrow__rows__never_wider, 0, (int)BERTH_COUNT(narrow));
    tcase_add_test(all, check_capable__missing__named);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
