/* test_rules.c - who may call what, and what a token's request may name. */
#include <check.h>
#include <stdio.h>

#include "berth/control/v1/control.pb-c.h"
#include "berth/data/v1/data.pb-c.h"
#include "berth/skills/v1/skills.pb-c.h"
#include "common/auth/rules.h"
#include "services/controlplane/controlplane.h"
#include "services/dataplane/dataplane.h"
#include "services/skills/skills.h"

#define CONTROL "/berth.control.v1."
#define SESSIONS CONTROL "SessionService/"
#define TENANTS CONTROL "TenantService/"

enum { NOW = 1000000 };

static struct berth_principal principal(enum berth_scope scope)
{
    return (struct berth_principal){.tenant_id = "t1", .scope = scope};
}

static enum berth_reason admit(const char *path, const struct berth_principal *who)
{
    struct berth_error err = {0};

    ck_assert_ptr_nonnull(berth_rule_find(path));
    ck_assert(!berth_rule_admit(berth_rule_find(path), who, NOW, &err) == !err.reason);
    return err.reason;
}

static enum berth_reason judge(const char *path, const struct berth_principal *who,
                               const void *request, struct berth_error *ret_err)
{
    struct berth_error err = {0};

    ck_assert_ptr_nonnull(berth_rule_find(path));
    ck_assert(!berth_rule_judge(berth_rule_find(path), who, request, &err) == !err.reason);
    if (ret_err)
        *ret_err = err;
    return err.reason;
}

/* ----------------------------------------------------------------------- table */

static void check_table(const struct berth_method *methods, size_t n)
{
    ck_assert_uint_gt(n, 0);
    for (size_t i = 0; i < n; i++) {
        const struct berth_rule *rule = berth_rule_find(methods[i].path);

        ck_assert_msg(rule != NULL, "%s has no rule: nobody may call it", methods[i].path);
        ck_assert_msg(!(rule->flags & BERTH_RULE_PEER) ==
                          !(methods[i].flags & BERTH_METHOD_PEER_ONLY),
                      "%s: PEER_ONLY here and there", methods[i].path);
        ck_assert_msg(rule->scope != BERTH_SCOPE_NONE, "%s: for any token", methods[i].path);
    }
}

/* Every method that a public service registers has a rule. */
START_TEST(rule_find__every_registered_method__there)
{
    size_t n;
    const struct berth_method *methods = cp_methods(&n);

    check_table(methods, n);
    check_table(dataplane_methods, n_dataplane_methods);
    check_table(skills_snapshot_methods, skills_n_snapshot_methods);
}
END_TEST

/* What has no rule is not found: the gate refuses it to everybody. */
START_TEST(rule_find__unknown_method__none)
{
    ck_assert_ptr_null(berth_rule_find(""));
    ck_assert_ptr_null(berth_rule_find(SESSIONS "StealSession"));
    ck_assert_ptr_null(berth_rule_find(SESSIONS "GetSessio"));
    ck_assert_ptr_null(berth_rule_find(SESSIONS "GetSessions"));
    ck_assert_ptr_null(berth_rule_find("/berth.binding.v1.BindingService/Acquire"));
    ck_assert_ptr_nonnull(
        berth_rule_find("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"));
    ck_assert_ptr_nonnull(
        berth_rule_find("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"));
}
END_TEST

/* ----------------------------------------------------------------------- admit */

static const struct {
    const char *path;
    enum berth_scope needs;
} scopes[] = {
    {SESSIONS "GetSession", BERTH_SCOPE_READ},
    {SESSIONS "ListSessions", BERTH_SCOPE_READ},
    {SESSIONS "ResolveSession", BERTH_SCOPE_USE},
    {SESSIONS "DeleteSession", BERTH_SCOPE_USE},
    {CONTROL "ConfigService/GetConfig", BERTH_SCOPE_READ},
    {CONTROL "ConfigService/CreateConfig", BERTH_SCOPE_ADMIN},
    {CONTROL "TemplateService/BuildTemplate", BERTH_SCOPE_ADMIN},
    {TENANTS "CreateToken", BERTH_SCOPE_ADMIN},
    {TENANTS "ListTokens", BERTH_SCOPE_ADMIN},
    {"/berth.data.v1.ProcessService/Run", BERTH_SCOPE_USE},
    {"/berth.data.v1.ProcessService/Attach", BERTH_SCOPE_READ},
    {"/berth.data.v1.FileService/ReadFile", BERTH_SCOPE_READ},
    {"/berth.data.v1.FileService/WriteFile", BERTH_SCOPE_USE},
    {"/berth.skills.v1.SnapshotService/GetSnapshot", BERTH_SCOPE_READ},
    {"/berth.skills.v1.SnapshotService/CreateSnapshot", BERTH_SCOPE_USE},
    {"/berth.skills.v1.SkillService/InstallSkill", BERTH_SCOPE_INSTALL},
};

/* Each scope includes the smaller ones and nothing of the larger ones. */
START_TEST(rule_admit__each_scope__as_far_as_it_reaches)
{
    for (int scope = BERTH_SCOPE_READ; scope <= BERTH_SCOPE_ADMIN; scope++) {
        struct berth_principal who = principal((enum berth_scope)scope);

        ck_assert_msg(admit(scopes[_i].path, &who) ==
                          ((enum berth_scope)scope >= scopes[_i].needs
                               ? BERTH_REASON_NONE
                               : BERTH_REASON_SCOPE_MISSING),
                      "%s with scope %d", scopes[_i].path, scope);
    }
}
END_TEST

/* The end of a token is exclusive: at expire_ms it is over. */
START_TEST(rule_admit__expiry__to_the_millisecond)
{
    struct berth_principal who = principal(BERTH_SCOPE_ADMIN);

    who.expire_ms = NOW + 1;
    ck_assert_int_eq(admit(SESSIONS "GetSession", &who), BERTH_REASON_NONE);
    who.expire_ms = NOW;
    ck_assert_int_eq(admit(SESSIONS "GetSession", &who), BERTH_REASON_TOKEN_INVALID);
    who.expire_ms = 0;
    ck_assert_int_eq(admit(SESSIONS "GetSession", &who), BERTH_REASON_NONE);
}
END_TEST

/* Tenants are made and listed with a token of the deployment only. */
START_TEST(rule_admit__tenants_own_admin__makes_no_tenant)
{
    struct berth_principal who = principal(BERTH_SCOPE_ADMIN);

    ck_assert_int_eq(admit(TENANTS "CreateTenant", &who), BERTH_REASON_SCOPE_MISSING);
    ck_assert_int_eq(admit(TENANTS "ListTenants", &who), BERTH_REASON_SCOPE_MISSING);
    who.deployment = true;
    who.tenant_id[0] = 0;
    ck_assert_int_eq(admit(TENANTS "CreateTenant", &who), BERTH_REASON_NONE);
    ck_assert_int_eq(admit(TENANTS "ListTenants", &who), BERTH_REASON_NONE);
    who.scope = BERTH_SCOPE_READ;
    ck_assert_int_eq(admit(TENANTS "CreateTenant", &who), BERTH_REASON_SCOPE_MISSING);
    ck_assert_int_eq(admit(TENANTS "ListTenants", &who), BERTH_REASON_NONE);
}
END_TEST

/* A disabled tenant may end what runs, and nothing else. */
START_TEST(rule_admit__tenant_disabled__only_ends)
{
    static const char *const goes_on[] = {"PauseSession", "DeleteSession", "EndTurn"};
    struct berth_principal who = principal(BERTH_SCOPE_ADMIN);
    char path[96];

    who.tenant_disabled = true;
    for (size_t i = 0; i < BERTH_COUNT(scopes); i++)
        if (strcmp(scopes[i].path, SESSIONS "DeleteSession") != 0)
            ck_assert_int_eq(admit(scopes[i].path, &who), BERTH_REASON_TENANT_DISABLED);
    for (size_t i = 0; i < BERTH_COUNT(goes_on); i++) {
        snprintf(path, sizeof path, SESSIONS "%s", goes_on[i]);
        ck_assert_int_eq(admit(path, &who), BERTH_REASON_NONE);
    }
}
END_TEST

/* A token for one session or config makes no tokens, which would be for more. */
START_TEST(rule_admit__bound_token__no_tokens_no_tenant)
{
    static const char *const methods[] = {"CreateToken", "ListTokens", "RevokeToken",
                                          "GetTenant", "UpdateTenant"};
    char path[96];

    for (size_t i = 0; i < BERTH_COUNT(methods); i++) {
        struct berth_principal who = principal(BERTH_SCOPE_ADMIN);

        snprintf(path, sizeof path, TENANTS "%s", methods[i]);
        ck_assert_int_eq(admit(path, &who), BERTH_REASON_NONE);
        snprintf(who.session_id, sizeof who.session_id, "s1");
        ck_assert_int_eq(admit(path, &who), BERTH_REASON_SCOPE_MISSING);
        who.session_id[0] = 0;
        snprintf(who.config_id, sizeof who.config_id, "c1");
        ck_assert_int_eq(admit(path, &who), BERTH_REASON_SCOPE_MISSING);
    }
}
END_TEST

/* ----------------------------------------------------------------------- judge */

/* Another tenant is not there, whether it is or not, and wherever it is named. */
START_TEST(rule_judge__other_tenant__not_found)
{
    struct berth_principal who = principal(BERTH_SCOPE_ADMIN);
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    Berth__Control__V1__ResolveSessionRequest resolve =
        BERTH__CONTROL__V1__RESOLVE_SESSION_REQUEST__INIT;
    Berth__Control__V1__UpdateSessionRequest update =
        BERTH__CONTROL__V1__UPDATE_SESSION_REQUEST__INIT;
    Berth__Control__V1__Session session = BERTH__CONTROL__V1__SESSION__INIT;
    Berth__Control__V1__GetConfigRequest config = BERTH__CONTROL__V1__GET_CONFIG_REQUEST__INIT;
    Berth__Data__V1__WriteFileRequest write = BERTH__DATA__V1__WRITE_FILE_REQUEST__INIT;
    Berth__Data__V1__WriteFileOpen open = BERTH__DATA__V1__WRITE_FILE_OPEN__INIT;
    struct berth_error err;

    ref.tenant_id = (char *)"t2";
    ref.session_id = (char *)"s1";
    resolve.session = &ref;
    ck_assert_int_eq(judge(SESSIONS "ResolveSession", &who, &resolve, &err),
                     BERTH_REASON_TENANT_NOT_FOUND);
    ck_assert_str_eq(err.text, "no tenant 't2'");
    update.session = &session;
    session.ref = &ref; /* one level further down */
    ck_assert_int_eq(judge(SESSIONS "UpdateSession", &who, &update, NULL),
                     BERTH_REASON_TENANT_NOT_FOUND);
    config.tenant_id = (char *)"t2";
    ck_assert_int_eq(judge(CONTROL "ConfigService/GetConfig", &who, &config, NULL),
                     BERTH_REASON_TENANT_NOT_FOUND);
    open.session = &ref; /* in a oneof */
    write.open = &open;
    write.message_case = BERTH__DATA__V1__WRITE_FILE_REQUEST__MESSAGE_OPEN;
    ck_assert_int_eq(judge("/berth.data.v1.FileService/WriteFile", &who, &write, NULL),
                     BERTH_REASON_TENANT_NOT_FOUND);
    ref.tenant_id = config.tenant_id = (char *)"t1";
    ck_assert_int_eq(judge(SESSIONS "ResolveSession", &who, &resolve, NULL), BERTH_REASON_NONE);
    ck_assert_int_eq(judge(SESSIONS "UpdateSession", &who, &update, NULL), BERTH_REASON_NONE);
    ck_assert_int_eq(judge(CONTROL "ConfigService/GetConfig", &who, &config, NULL),
                     BERTH_REASON_NONE);
    ck_assert_int_eq(judge("/berth.data.v1.FileService/WriteFile", &who, &write, NULL),
                     BERTH_REASON_NONE);
}
END_TEST

/* A prefix, another case and a longer name are other tenants. */
START_TEST(rule_judge__almost_the_tenant__not_found)
{
    static const char *const names[] = {"t", "t11", "T1", "t1.", "t2"};
    struct berth_principal who = principal(BERTH_SCOPE_ADMIN);
    Berth__Control__V1__GetTenantRequest req = BERTH__CONTROL__V1__GET_TENANT_REQUEST__INIT;

    for (size_t i = 0; i < BERTH_COUNT(names); i++) {
        req.tenant_id = (char *)names[i];
        ck_assert_int_eq(judge(TENANTS "GetTenant", &who, &req, NULL),
                         BERTH_REASON_TENANT_NOT_FOUND);
    }
}
END_TEST

/* Naming no tenant is naming none of one's own. */
START_TEST(rule_judge__no_tenant_named__refused)
{
    struct berth_principal who = principal(BERTH_SCOPE_ADMIN);
    Berth__Control__V1__ListTokensRequest req = BERTH__CONTROL__V1__LIST_TOKENS_REQUEST__INIT;
    Berth__Control__V1__ResolveSessionRequest resolve =
        BERTH__CONTROL__V1__RESOLVE_SESSION_REQUEST__INIT;

    ck_assert_int_eq(judge(TENANTS "ListTokens", &who, &req, NULL), BERTH_REASON_FIELD_INVALID);
    ck_assert_int_eq(judge(SESSIONS "ResolveSession", &who, &resolve, NULL),
                     BERTH_REASON_FIELD_INVALID);
    who.deployment = true;
    who.tenant_id[0] = 0;
    req.deployment = true;
    ck_assert_int_eq(judge(TENANTS "ListTokens", &who, &req, NULL), BERTH_REASON_NONE);
    req.tenant_id = (char *)"anybody";
    ck_assert_int_eq(judge(TENANTS "ListTokens", &who, &req, NULL), BERTH_REASON_NONE);
}
END_TEST

/* What is the deployment's own, whatever tenant stands beside it and however deep it stands. */
START_TEST(rule_judge__tenants_token_asks_for_the_deployments__scope_missing)
{
    static const char *const tenants[] = {"", "t1"};
    struct berth_principal who = principal(BERTH_SCOPE_ADMIN);
    Berth__Control__V1__Token token = BERTH__CONTROL__V1__TOKEN__INIT;
    Berth__Control__V1__CreateTokenRequest make =
        BERTH__CONTROL__V1__CREATE_TOKEN_REQUEST__INIT;
    Berth__Control__V1__ListTokensRequest list = BERTH__CONTROL__V1__LIST_TOKENS_REQUEST__INIT;
    Berth__Control__V1__RevokeTokenRequest end = BERTH__CONTROL__V1__REVOKE_TOKEN_REQUEST__INIT;

    make.token = &token;
    token.deployment = list.deployment = end.deployment = true;
    for (size_t i = 0; i < BERTH_COUNT(tenants); i++) {
        token.tenant_id = list.tenant_id = end.tenant_id = (char *)tenants[i];
        ck_assert_int_eq(judge(TENANTS "CreateToken", &who, &make, NULL),
                         BERTH_REASON_SCOPE_MISSING);
        ck_assert_int_eq(judge(TENANTS "ListTokens", &who, &list, NULL),
                         BERTH_REASON_SCOPE_MISSING);
        ck_assert_int_eq(judge(TENANTS "RevokeToken", &who, &end, NULL),
                         BERTH_REASON_SCOPE_MISSING);
    }
    who.deployment = true;
    who.tenant_id[0] = 0;
    ck_assert_int_eq(judge(TENANTS "CreateToken", &who, &make, NULL), BERTH_REASON_NONE);
    who = principal(BERTH_SCOPE_ADMIN);
    token.deployment = false;
    ck_assert_int_eq(judge(TENANTS "CreateToken", &who, &make, NULL), BERTH_REASON_NONE);
}
END_TEST

/* A token for one session: that one, and nothing that is not about a session. */
START_TEST(rule_judge__session_bound__that_session_only)
{
    struct berth_principal who = principal(BERTH_SCOPE_ADMIN);
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    Berth__Data__V1__RunRequest run = BERTH__DATA__V1__RUN_REQUEST__INIT;
    Berth__Control__V1__GetSessionRequest get = BERTH__CONTROL__V1__GET_SESSION_REQUEST__INIT;
    Berth__Control__V1__GetConfigRequest config = BERTH__CONTROL__V1__GET_CONFIG_REQUEST__INIT;
    Berth__Control__V1__ListSessionsRequest list =
        BERTH__CONTROL__V1__LIST_SESSIONS_REQUEST__INIT;
    Berth__Skills__V1__GetSnapshotRequest snapshot =
        BERTH__SKILLS__V1__GET_SNAPSHOT_REQUEST__INIT;

    snprintf(who.session_id, sizeof who.session_id, "s1");
    ref.tenant_id = (char *)"t1";
    ref.session_id = (char *)"s1";
    run.session = &ref;
    ck_assert_int_eq(judge("/berth.data.v1.ProcessService/Run", &who, &run, NULL),
                     BERTH_REASON_NONE);
    ref.session_id = (char *)"s2";
    ck_assert_int_eq(judge("/berth.data.v1.ProcessService/Run", &who, &run, NULL),
                     BERTH_REASON_SESSION_NOT_FOUND);
    get.tenant_id = config.tenant_id = list.tenant_id = snapshot.tenant_id = (char *)"t1";
    get.key_case = BERTH__CONTROL__V1__GET_SESSION_REQUEST__KEY_ALIAS;
    get.alias = (char *)"aaaaaaaaaaaaaaaaaaaa";
    ck_assert_int_eq(judge(SESSIONS "GetSession", &who, &get, NULL),
                     BERTH_REASON_SESSION_NOT_FOUND);
    config.config_id = (char *)"c1";
    ck_assert_int_eq(judge(CONTROL "ConfigService/GetConfig", &who, &config, NULL),
                     BERTH_REASON_CONFIG_NOT_FOUND);
    snapshot.snapshot_id = (char *)"x";
    ck_assert_int_eq(
        judge("/berth.skills.v1.SnapshotService/GetSnapshot", &who, &snapshot, NULL),
        BERTH_REASON_SNAPSHOT_NOT_FOUND);
    ck_assert_int_eq(judge(SESSIONS "ListSessions", &who, &list, NULL),
                     BERTH_REASON_SCOPE_MISSING);
}
END_TEST

/* An operation is looked at by its handler, where the table says so, and only there. */
START_TEST(rule_judge__bound_and_an_operation__left_to_the_handler)
{
    struct berth_principal of_session = principal(BERTH_SCOPE_INSTALL);
    struct berth_principal of_config = principal(BERTH_SCOPE_INSTALL);
    Berth__Skills__V1__FinishInstallationRequest finish =
        BERTH__SKILLS__V1__FINISH_INSTALLATION_REQUEST__INIT;
    static const char *const methods[] = {"FinishInstallation", "CancelOperation",
                                          "GetOperation", "WatchOperation"};
    char path[96];

    snprintf(of_session.session_id, sizeof of_session.session_id, "sk.a");
    snprintf(of_config.config_id, sizeof of_config.config_id, "c1");
    finish.tenant_id = (char *)"t1";
    for (size_t i = 0; i < BERTH_COUNT(methods); i++) {
        snprintf(path, sizeof path, "/berth.skills.v1.SkillService/%s", methods[i]);
        finish.operation_id = (char *)"o1";
        ck_assert_int_eq(judge(path, &of_session, &finish, NULL), BERTH_REASON_NONE);
        ck_assert_int_eq(judge(path, &of_config, &finish, NULL), BERTH_REASON_NONE);
        finish.operation_id = (char *)"";
        ck_assert_int_eq(judge(path, &of_session, &finish, NULL), BERTH_REASON_SCOPE_MISSING);
        ck_assert_int_eq(judge(path, &of_config, &finish, NULL), BERTH_REASON_SCOPE_MISSING);
    }
    finish.operation_id = (char *)"o1";
    ck_assert_int_eq(judge(SESSIONS "GetSession", &of_session, &finish, NULL),
                     BERTH_REASON_SCOPE_MISSING);
    finish.tenant_id = (char *)"t2";
    ck_assert_int_eq(
        judge("/berth.skills.v1.SkillService/GetOperation", &of_session, &finish, NULL),
        BERTH_REASON_TENANT_NOT_FOUND);
}
END_TEST

/* A token for one config: that one, its sessions (which the handler looks at), and no list of
 * more. */
START_TEST(rule_judge__config_bound__that_config_only)
{
    struct berth_principal who = principal(BERTH_SCOPE_ADMIN);
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    Berth__Common__V1__SessionSpec spec = BERTH__COMMON__V1__SESSION_SPEC__INIT;
    Berth__Control__V1__ResolveSessionRequest resolve =
        BERTH__CONTROL__V1__RESOLVE_SESSION_REQUEST__INIT;
    Berth__Control__V1__ListSessionsRequest list =
        BERTH__CONTROL__V1__LIST_SESSIONS_REQUEST__INIT;
    Berth__Data__V1__TerminalRequest terminal = BERTH__DATA__V1__TERMINAL_REQUEST__INIT;
    Berth__Data__V1__TerminalOpen open = BERTH__DATA__V1__TERMINAL_OPEN__INIT;

    snprintf(who.config_id, sizeof who.config_id, "c1");
    ref.tenant_id = list.tenant_id = (char *)"t1";
    ref.session_id = (char *)"s1";
    resolve.session = &ref;
    ck_assert_int_eq(judge(SESSIONS "ResolveSession", &who, &resolve, NULL), BERTH_REASON_NONE);
    resolve.spec = &spec;
    spec.config_id = (char *)"c2";
    ck_assert_int_eq(judge(SESSIONS "ResolveSession", &who, &resolve, NULL),
                     BERTH_REASON_CONFIG_NOT_FOUND);
    spec.config_id = (char *)"c1";
    ck_assert_int_eq(judge(SESSIONS "ResolveSession", &who, &resolve, NULL), BERTH_REASON_NONE);
    ck_assert_int_eq(judge(SESSIONS "ListSessions", &who, &list, NULL),
                     BERTH_REASON_SCOPE_MISSING);
    list.config_id = (char *)"c2";
    ck_assert_int_eq(judge(SESSIONS "ListSessions", &who, &list, NULL),
                     BERTH_REASON_CONFIG_NOT_FOUND);
    list.config_id = (char *)"c1";
    ck_assert_int_eq(judge(SESSIONS "ListSessions", &who, &list, NULL), BERTH_REASON_NONE);
    /* Where the handler does not look, it is not let through. */
    open.session = &ref;
    terminal.open = &open;
    terminal.message_case = BERTH__DATA__V1__TERMINAL_REQUEST__MESSAGE_OPEN;
    ck_assert_uint_eq(berth_rule_find("/berth.data.v1.ProcessService/Terminal")->flags &
                          BERTH_RULE_CHECKS_CONFIG,
                      0);
    ck_assert_int_eq(judge("/berth.data.v1.ProcessService/Terminal", &who, &terminal, NULL),
                     BERTH_REASON_SESSION_NOT_FOUND);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("auth/rules");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int failed;

    tcase_add_test(all, rule_find__every_registered_method__there);
    tcase_add_test(all, rule_find__unknown_method__none);
    tcase_add_loop_test(all, rule_admit__each_scope__as_far_as_it_reaches, 0,
                        (int)BERTH_COUNT(scopes));
    tcase_add_test(all, rule_admit__expiry__to_the_millisecond);
    tcase_add_test(all, rule_admit__tenants_own_admin__makes_no_tenant);
    tcase_add_test(all, rule_admit__tenant_disabled__only_ends);
    tcase_add_test(all, rule_admit__bound_token__no_tokens_no_tenant);
    tcase_add_test(all, rule_judge__other_tenant__not_found);
    tcase_add_test(all, rule_judge__almost_the_tenant__not_found);
    tcase_add_test(all, rule_judge__no_tenant_named__refused);
    tcase_add_test(all, rule_judge__tenants_token_asks_for_the_deployments__scope_missing);
    tcase_add_test(all, rule_judge__session_bound__that_session_only);
    tcase_add_test(all, rule_judge__bound_and_an_operation__left_to_the_handler);
    tcase_add_test(all, rule_judge__config_bound__that_config_only);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed > 0;
}
