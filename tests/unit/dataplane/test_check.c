#include <check.h>
#include <stdio.h>

#include "services/dataplane/dataplane.h"

/* ------------------------------------------------------------------ commands */

/* Each row: what the command says, what the config says, what comes out (-1: refused). */
static const struct {
    int64_t asked_ms; /* -1: nothing */
    bool detach;
    int64_t default_ms, max_ms, given_ms;
} timeout_rows[] = {
    {-1, false, 5000, 0, 5000},
    {-1, false, 5000, 5000, 5000},
    {-1, false, 5000, 4000, 4000}, /* a default over the maximum is cut */
    {-1, false, 0, 4000, 4000},    /* no default: the maximum */
    {-1, false, 0, 0, BERTH_DATA_TIMEOUT_MAX_MS},
    {-1, true, 0, 0, 0},
    {-1, true, 0, 4000, 4000},
    {1, false, 5000, 0, 1},
    {4000, false, 1000, 4000, 4000},
    {4001, false, 1000, 4000, -1},
    {4001, false, 1000, 0, 4001},
    {0, true, 1000, 4000, 0}, /* 0s = none, for what is detached */
    {0, false, 1000, 4000, -1},
};

START_TEST(dp_command_judge__timeouts)
{
    Berth__Data__V1__Command *command = calloc(1, sizeof *command);
    struct dp_policy policy = {.timeout_ms = timeout_rows[_i].default_ms,
                               .timeout_max_ms = timeout_rows[_i].max_ms};
    struct berth_error err = {0};
    int64_t given_ms = -7;
    enum berth_code code;

    berth__data__v1__command__init(command);
    if (timeout_rows[_i].asked_ms >= 0) {
        command->timeout = calloc(1, sizeof *command->timeout);
        google__protobuf__duration__init(command->timeout);
        command->timeout->seconds = timeout_rows[_i].asked_ms / 1000;
        command->timeout->nanos = (int32_t)(timeout_rows[_i].asked_ms % 1000) * 1000000;
    }
    code = dp_command_judge(command, timeout_rows[_i].detach, &policy, &given_ms, &err);
    if (timeout_rows[_i].given_ms < 0) {
        ck_assert_int_eq(code, BERTH_INVALID_ARGUMENT);
        ck_assert_str_eq(err.field, "command.timeout");
        ck_assert_int_eq(given_ms, -7);
    } else {
        ck_assert_int_eq(code, BERTH_OK);
        ck_assert_int_eq(given_ms, timeout_rows[_i].given_ms);
        ck_assert_ptr_nonnull(command->timeout);
        ck_assert_int_eq(command->timeout->seconds * 1000 + command->timeout->nanos / 1000000,
                         given_ms);
    }
    berth__data__v1__command__free_unpacked(command, NULL);
}
END_TEST

/* Root is for maintenance sessions and configs that say so; user and unset are for all. */
START_TEST(dp_command_judge__root__only_where_allowed)
{
    Google__Protobuf__Duration timeout = GOOGLE__PROTOBUF__DURATION__INIT;
    Berth__Data__V1__Command command = BERTH__DATA__V1__COMMAND__INIT;
    struct dp_policy policy = {0};
    struct berth_error err = {0};
    int64_t ms;

    timeout.seconds = 1;
    command.timeout = &timeout;
    ck_assert_int_eq(dp_command_judge(&command, false, &policy, &ms, &err), BERTH_OK);
    command.account = BERTH__DATA__V1__ACCOUNT__ACCOUNT_USER;
    ck_assert_int_eq(dp_command_judge(&command, false, &policy, &ms, &err), BERTH_OK);
    command.account = BERTH__DATA__V1__ACCOUNT__ACCOUNT_ROOT;
    ck_assert_int_eq(dp_command_judge(&command, false, &policy, &ms, &err),
                     BERTH_PERMISSION_DENIED);
    ck_assert_int_eq(err.reason, BERTH_REASON_ROOT_REFUSED);
    policy.root = true;
    ck_assert_int_eq(dp_command_judge(&command, false, &policy, &ms, &err), BERTH_OK);
}
END_TEST

/* The suite's own sessions: peers, and a token for that very one that may install. */
START_TEST(dp_may_reach__reserved__peers_and_its_installer)
{
    struct berth_principal principal = {.scope = BERTH_SCOPE_INSTALL, .session_id = "sk.a"};

    ck_assert(dp_may_reach(NULL, true, "sk.a"));
    ck_assert(dp_may_reach(&principal, false, "sk.a"));
    ck_assert(!dp_may_reach(&principal, false, "sk.b"));
    ck_assert(!dp_may_reach(NULL, false, "sk.a"));
    ck_assert(dp_may_reach(&principal, false, "a"));
    principal.scope = BERTH_SCOPE_USE;
    ck_assert(!dp_may_reach(&principal, false, "sk.a"));
    principal = (struct berth_principal){.scope = BERTH_SCOPE_ADMIN, .deployment = true};
    ck_assert(!dp_may_reach(&principal, false, "sk.a"));
}
END_TEST

/* A command without an exec_id gets one of its own; a given one is kept. */
START_TEST(dp_command_name__missing__made_and_unique)
{
    Berth__Data__V1__Command a = BERTH__DATA__V1__COMMAND__INIT;
    Berth__Data__V1__Command b = BERTH__DATA__V1__COMMAND__INIT;

    ck_assert_int_eq(dp_command_name(&a, NULL), BERTH_OK);
    ck_assert_int_eq(dp_command_name(&b, NULL), BERTH_OK);
    ck_assert_uint_eq(strlen(a.exec_id), 24);
    ck_assert_str_ne(a.exec_id, b.exec_id);
    free(a.exec_id);
    free(b.exec_id);
    a.exec_id = (char *)"mine";
    ck_assert_int_eq(dp_command_name(&a, NULL), BERTH_OK);
    ck_assert_str_eq(a.exec_id, "mine");
}
END_TEST

START_TEST(dp_session_is_reserved__prefix_only)
{
    ck_assert(dp_session_is_reserved("sk."));
    ck_assert(dp_session_is_reserved("sk.a1"));
    ck_assert(!dp_session_is_reserved("sk"));
    ck_assert(!dp_session_is_reserved("sky.a"));
    ck_assert(!dp_session_is_reserved("a.sk.b"));
}
END_TEST

/* ------------------------------------------------------------------ statuses */

/* Each row: a status without our ErrorInfo, and what the caller hears. */
static const struct {
    enum berth_code code;
    unsigned flags;
    enum berth_reason reason;
} status_rows[] = {
    {BERTH_NOT_FOUND, 0, BERTH_REASON_ADAPTER_UNAVAILABLE},
    {BERTH_UNIMPLEMENTED, 0, BERTH_REASON_ADAPTER_UNAVAILABLE},
    {BERTH_UNAVAILABLE, 0, BERTH_REASON_OUTCOME_UNKNOWN},
    {BERTH_UNAVAILABLE, DP_READ_ONLY, BERTH_REASON_ADAPTER_UNAVAILABLE},
    {BERTH_CANCELLED, 0, BERTH_REASON_OUTCOME_UNKNOWN},
    {BERTH_INTERNAL, 0, BERTH_REASON_OUTCOME_UNKNOWN},
    {BERTH_UNKNOWN, DP_READ_ONLY, BERTH_REASON_ADAPTER_UNAVAILABLE},
    {BERTH_DEADLINE_EXCEEDED, 0, BERTH_REASON_DEADLINE},
    {BERTH_RESOURCE_EXHAUSTED, 0, BERTH_REASON_MESSAGE_TOO_LARGE},
};

START_TEST(dp_status_judge__bare__reason)
{
    const struct berth_status status = {.code = status_rows[_i].code, .message = "said so"};
    struct berth_error err = {0};

    ck_assert(!dp_status_judge(status_rows[_i].flags, &status, "exec_id 'e1'", &err));
    ck_assert_int_eq(err.reason, status_rows[_i].reason);
    if (err.reason == BERTH_REASON_OUTCOME_UNKNOWN)
        ck_assert_ptr_nonnull(strstr(err.text, "exec_id 'e1'"));
}
END_TEST

/* Details that are not ours are as good as none. */
START_TEST(dp_status_judge__foreign_details__bare)
{
    const struct berth_status status = {.code = BERTH_NOT_FOUND,
                                        .message = "",
                                        .details = (const uint8_t *)"\xff\xff\xff",
                                        .details_size = 3};
    struct berth_error err = {0};

    ck_assert(!dp_status_judge(0, &status, "", &err));
    ck_assert_int_eq(err.reason, BERTH_REASON_ADAPTER_UNAVAILABLE);
}
END_TEST

/* ------------------------------------------------------------------ routes */

static struct dataplane dp;
static struct dp_peer *const adapter = (struct dp_peer *)&dp; /* only its address is used */
static Berth__Control__V1__ResolveRouteResponse resp;
static Berth__Common__V1__DataPlaneEndpoint endpoint;
static Berth__Common__V1__BackendTarget target;
static Google__Protobuf__Duration duration;

static void setup(void)
{
    memset(&dp, 0, sizeof dp);
    snprintf(dp.backends[0].name, sizeof dp.backends[0].name, "local");
    dp.backends[0].adapter = adapter;
    dp.n_backends = 1;
    berth__control__v1__resolve_route_response__init(&resp);
    berth__common__v1__data_plane_endpoint__init(&endpoint);
    berth__common__v1__backend_target__init(&target);
    google__protobuf__duration__init(&duration);
    endpoint.kind = BERTH__COMMON__V1__DATA_PLANE_KIND__DATA_PLANE_KIND_ADAPTER;
    endpoint.sandbox_id = (char *)"sb-1";
    endpoint.target = &target;
    target.backend = (char *)"local";
    resp.endpoint = &endpoint;
}

/* A config's limit on its commands is not one on those that prepare its image. */
START_TEST(dp_route_decode__maintenance__no_limit_of_the_config)
{
    struct dp_route route;

    duration.seconds = 3;
    resp.command_timeout_max = &duration;
    ck_assert_int_eq(dp_route_decode(&dp, &resp, &route, NULL), BERTH_OK);
    ck_assert_int_eq(route.policy.timeout_max_ms, 3000);
    dp_route_deinit(&route);
    resp.maintenance = true;
    ck_assert_int_eq(dp_route_decode(&dp, &resp, &route, NULL), BERTH_OK);
    ck_assert_int_eq(route.policy.timeout_max_ms, 0);
    dp_route_deinit(&route);
}
END_TEST

/* A good route carries the endpoint whole and the command policy. */
START_TEST(dp_route_decode__good__packed_and_policy)
{
    struct dp_route route;
    Berth__Common__V1__DataPlaneEndpoint *again;

    duration.seconds = 3;
    resp.command_timeout = &duration;
    resp.maintenance = true;
    endpoint.fence = UINT64_MAX;
    ck_assert_int_eq(dp_route_decode(&dp, &resp, &route, NULL), BERTH_OK);
    ck_assert_ptr_eq(route.adapter, adapter);
    ck_assert_str_eq(route.sandbox_id, "sb-1");
    ck_assert_int_eq(route.policy.timeout_ms, 3000);
    ck_assert_int_eq(route.policy.timeout_max_ms, 0);
    ck_assert(route.policy.root);
    again =
        berth__common__v1__data_plane_endpoint__unpack(NULL, route.packed_size, route.packed);
    ck_assert_uint_eq(again->fence, UINT64_MAX);
    berth__common__v1__data_plane_endpoint__free_unpacked(again, NULL);
    dp_route_deinit(&route);
}
END_TEST

static void no_endpoint(void)
{
    resp.endpoint = NULL;
}
static void no_sandbox(void)
{
    endpoint.sandbox_id = (char *)"";
}
static void no_target(void)
{
    endpoint.target = NULL;
}
static void no_kind(void)
{
    endpoint.kind = BERTH__COMMON__V1__DATA_PLANE_KIND__DATA_PLANE_KIND_UNSPECIFIED;
}
static void unknown_kind(void)
{
    endpoint.kind = (Berth__Common__V1__DataPlaneKind)99;
}
static void other_backend(void)
{
    target.backend = (char *)"localhost";
}
static void bad_timeout(void)
{
    duration.seconds = -1;
    resp.command_timeout_max = &duration;
}
static void huge_route(void)
{
    static char credentials[DP_ROUTE_MAX + 1];

    target.sealed_credentials =
        (ProtobufCBinaryData){sizeof credentials, (uint8_t *)credentials};
}

static const struct {
    void (*spoil)(void);
    enum berth_reason reason;
} route_rows[] = {
    {no_endpoint, BERTH_REASON_INTERNAL_BUG},
    {no_sandbox, BERTH_REASON_INTERNAL_BUG},
    {no_target, BERTH_REASON_INTERNAL_BUG},
    {no_kind, BERTH_REASON_CAPABILITY_MISSING},
    {unknown_kind, BERTH_REASON_CAPABILITY_MISSING},
    {other_backend, BERTH_REASON_ADAPTER_UNAVAILABLE},
    {bad_timeout, BERTH_REASON_INTERNAL_BUG},
    {huge_route, BERTH_REASON_INTERNAL_BUG},
};

/* Each row: an answer that cannot be used, and why. */
START_TEST(dp_route_decode__of_no_use__reason)
{
    struct dp_route route = {.packed_size = 42};
    struct berth_error err = {0};

    route_rows[_i].spoil();
    ck_assert_int_ne(dp_route_decode(&dp, &resp, &route, &err), BERTH_OK);
    ck_assert_int_eq(err.reason, route_rows[_i].reason);
    ck_assert_uint_eq(route.packed_size, 42);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("dataplane/check");
    TCase *check = tcase_create("check");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(check, setup, NULL);
    tcase_add_loop_test(check, dp_command_judge__timeouts, 0, (int)BERTH_COUNT(timeout_rows));
    tcase_add_test(check, dp_command_judge__root__only_where_allowed);
    tcase_add_test(check, dp_command_name__missing__made_and_unique);
    tcase_add_test(check, dp_session_is_reserved__prefix_only);
    tcase_add_test(check, dp_may_reach__reserved__peers_and_its_installer);
    tcase_add_loop_test(check, dp_status_judge__bare__reason, 0, (int)BERTH_COUNT(status_rows));
    tcase_add_test(check, dp_status_judge__foreign_details__bare);
    tcase_add_test(check, dp_route_decode__good__packed_and_policy);
    tcase_add_test(check, dp_route_decode__maintenance__no_limit_of_the_config);
    tcase_add_loop_test(check, dp_route_decode__of_no_use__reason, 0,
                        (int)BERTH_COUNT(route_rows));
    suite_add_tcase(suite, check);

    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
