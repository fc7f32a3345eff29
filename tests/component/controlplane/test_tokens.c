/* test_tokens.c - tokens over real gRPC and Redis: made, shown once, good for what they say,
 * gone within five seconds everywhere. Peers' channels with a token count as that token. */
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "services/controlplane/controlplane.h"
#include "tests/component/controlplane/town.h"

#define CONTROL(name) (&berth__control__v1__##name##__descriptor)
#define CONFIGS "/berth.control.v1.ConfigService/"
#define SESSIONS "/berth.control.v1.SessionService/"
#define TENANTS "/berth.control.v1.TenantService/"
#define SNAPSHOTS "/berth.skills.v1.SnapshotService/"

#define READ BERTH__CONTROL__V1__SCOPE__SCOPE_READ
#define USE BERTH__CONTROL__V1__SCOPE__SCOPE_USE
#define ADMIN BERTH__CONTROL__V1__SCOPE__SCOPE_ADMIN

enum { GONE_MS = 5000, SLACK_MS = 1500, SECRET_SIZE = 64, ID_SIZE = 13 };

typedef Berth__Control__V1__Token Token;

static struct town town;

static void open_town(void)
{
    town_open(&town, &(struct town_options){.planes = 2, .skills = true});
}

static void open_deaf_town(void)
{
    town_open(&town, &(struct town_options){.planes = 2, .skills = true, .deaf = true});
}

static void close_town(void)
{
    town_close(&town);
}

/* ----------------------------------------------------------------------- calls */

static enum berth_reason call(const char *secret, const char *path, const void *req,
                              const ProtobufCMessageDescriptor *type, void *ret)
{
    return town_call_as(town.outside, secret, path, req, type, WAIT_MS, ret, NULL);
}

static enum berth_reason get_tenant(struct berth_channel *channel, const char *secret,
                                    const char *tenant)
{
    Berth__Control__V1__GetTenantRequest req = BERTH__CONTROL__V1__GET_TENANT_REQUEST__INIT;

    req.tenant_id = (char *)tenant;
    return town_call_as(channel, secret, TENANTS "GetTenant", &req,
                        CONTROL(get_tenant_response), WAIT_MS, NULL, NULL);
}

static enum berth_reason list_snapshots(const char *secret, const char *tenant)
{
    Berth__Skills__V1__ListSnapshotsRequest req =
        BERTH__SKILLS__V1__LIST_SNAPSHOTS_REQUEST__INIT;

    req.tenant_id = (char *)tenant;
    return town_call_as(town.snap, secret, SNAPSHOTS "ListSnapshots", &req,
                        &berth__skills__v1__list_snapshots_response__descriptor, WAIT_MS, NULL,
                        NULL);
}

static enum berth_reason resolve(const char *secret, const char *session, const char *config,
                                 Resolved **ret)
{
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    SessionSpec spec = BERTH__COMMON__V1__SESSION_SPEC__INIT;
    Berth__Control__V1__ResolveSessionRequest req =
        BERTH__CONTROL__V1__RESOLVE_SESSION_REQUEST__INIT;

    ref.tenant_id = (char *)"t1";
    ref.session_id = (char *)session;
    req.session = &ref;
    if (config) {
        spec.config_id = (char *)config;
        req.spec = &spec;
    }
    return call(secret, SESSIONS "ResolveSession", &req, CONTROL(resolve_session_response),
                ret);
}

/* Pause, Resume, Delete, BeginTurn ("Begin"): their requests begin alike. */
static enum berth_reason act(const char *secret, const char *verb, const char *session)
{
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    Berth__Control__V1__PauseSessionRequest req =
        BERTH__CONTROL__V1__PAUSE_SESSION_REQUEST__INIT;
    bool begin = strcmp(verb, "Begin") == 0;
    char path[96];

    ref.tenant_id = (char *)"t1";
    ref.session_id = (char *)session;
    req.session = &ref;
    snprintf(path, sizeof path, SESSIONS "%s%s", verb, begin ? "Turn" : "Session");
    return call(secret, path, &req,
                begin ? CONTROL(begin_turn_response) : CONTROL(delete_session_response), NULL);
}

static enum berth_reason get_session(const char *secret, const char *session)
{
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    Berth__Control__V1__GetSessionRequest req = BERTH__CONTROL__V1__GET_SESSION_REQUEST__INIT;

    ref.tenant_id = (char *)"t1";
    ref.session_id = (char *)session;
    req.key_case = BERTH__CONTROL__V1__GET_SESSION_REQUEST__KEY_SESSION;
    req.session = &ref;
    return call(secret, SESSIONS "GetSession", &req, CONTROL(get_session_response), NULL);
}

static enum berth_reason end_token(const char *secret, const char *tenant, const char *id)
{
    Berth__Control__V1__RevokeTokenRequest req = BERTH__CONTROL__V1__REVOKE_TOKEN_REQUEST__INIT;

    req.tenant_id = (char *)tenant;
    req.token_id = (char *)id;
    return call(secret, TENANTS "RevokeToken", &req, CONTROL(revoke_token_response), NULL);
}

static Token token_of(const char *tenant, Berth__Control__V1__Scope *scope)
{
    Token token = BERTH__CONTROL__V1__TOKEN__INIT;

    token.tenant_id = (char *)tenant;
    token.scopes = scope;
    token.n_scopes = 1;
    return token;
}

static void make_deployment(char *secret)
{
    Berth__Control__V1__Scope scope = ADMIN;
    Token token = token_of("", &scope);

    token.deployment = true;
    ck_assert_int_eq(town_token(&town, &token, secret, NULL), BERTH_REASON_NONE);
}

/* Polls until the three processes answer reason, and says how long that took. */
static int64_t until_everywhere(const char *secret, enum berth_reason reason)
{
    int64_t begin_tick = berth_tick_ms();

    while (get_tenant(town.outside, secret, "t1") != reason ||
           get_tenant(town.control[1], secret, "t1") != reason ||
           list_snapshots(secret, "t1") != reason) {
        ck_assert_int_lt(berth_tick_ms(), begin_tick + WAIT_MS);
        usleep(20000);
    }
    return berth_tick_ms() - begin_tick;
}

/* ----------------------------------------------------------------------- tests */

/* Every method of the control plane refuses who shows nothing, over TCP, health alone excepted.
 */
START_TEST(every_method__no_token__refused)
{
    size_t n;
    const struct berth_method *methods = cp_methods(&n);
    Berth__Control__V1__GetTenantRequest empty = BERTH__CONTROL__V1__GET_TENANT_REQUEST__INIT;

    ck_assert_uint_gt(n, 20);
    for (size_t i = 0; i < n; i++) {
        enum berth_reason reason = town_call(town.outside, methods[i].path, &empty,
                                             CONTROL(get_tenant_response), WAIT_MS, NULL, NULL);

        ck_assert_msg(reason == (methods[i].flags & BERTH_METHOD_PEER_ONLY
                                     ? BERTH_REASON_PEER_ONLY
                                     : BERTH_REASON_TOKEN_INVALID),
                      "%s: %s", methods[i].path, berth_reason_name(reason));
    }
}
END_TEST

/* The secret is in the answer and nowhere else: not in the store, not in a list, not in a log.
 */
START_TEST(create_token__secret__kept_nowhere)
{
    Berth__Control__V1__ListTokensRequest req = BERTH__CONTROL__V1__LIST_TOKENS_REQUEST__INIT;
    Berth__Control__V1__ListTokensResponse *resp;
    Berth__Control__V1__Scope scope = USE;
    Token token = token_of("t1", &scope);
    char secret[SECRET_SIZE], id[ID_SIZE], field[32], key[64];
    const char *stored;

    ck_assert_int_eq(town_token(&town, &token, secret, id), BERTH_REASON_NONE);
    ck_assert_int_eq(strncmp(secret, "brt_", 4), 0);
    ck_assert_ptr_nonnull(strstr(secret, id));
    snprintf(field, sizeof field, "token:%s", id);
    stored = town_field(&town, "berth:{t1}:t", field);
    ck_assert_ptr_nonnull(strstr(stored, "sha256"));
    ck_assert_ptr_null(strstr(stored, secret + 17));
    snprintf(key, sizeof key, "berth:token/%s", id);
    {
        struct berth_reply *reply = redis_run(town.store, "GET", key, NULL);

        ck_assert_str_eq(reply->string, "t1");
        berth_reply_free(reply);
    }
    req.tenant_id = (char *)"t1";
    ck_assert_int_eq(town_call(town.control[0], TENANTS "ListTokens", &req,
                               CONTROL(list_tokens_response), WAIT_MS, &resp, NULL),
                     BERTH_REASON_NONE);
    ck_assert_uint_eq(resp->n_tokens, 1);
    ck_assert_str_eq(resp->tokens[0]->token_id, id);
    ck_assert_int_eq(strncmp(resp->tokens[0]->created_by, "peer/uid:", 9), 0);
    ck_assert_ptr_nonnull(resp->tokens[0]->create_time);
    berth_message_free(resp);
}
END_TEST

static int64_t n_claims(void)
{
    struct berth_reply *reply = redis_run(town.store, "KEYS", "berth:token/*", NULL);
    int64_t n = (int64_t)reply->n_items;

    berth_reply_free(reply);
    return n;
}

/* What could not be made leaves nothing behind; what was revoked, neither. */
START_TEST(create_token__no_such_tenant__nothing_left)
{
    Berth__Control__V1__Scope scope = READ;
    Token token = token_of("nobodys", &scope);
    char admin[SECRET_SIZE], secret[SECRET_SIZE], id[ID_SIZE];

    town_tenant_token(&town, "t1", ADMIN, admin);
    ck_assert_int_eq(n_claims(), 1);
    ck_assert_int_eq(town_token(&town, &token, secret, NULL), BERTH_REASON_TENANT_NOT_FOUND);
    ck_assert_int_eq(n_claims(), 1);
    token.tenant_id = (char *)"t1";
    ck_assert_int_eq(town_token(&town, &token, secret, id), BERTH_REASON_NONE);
    ck_assert_int_eq(n_claims(), 2);
    ck_assert_int_eq(end_token(admin, "t1", id), BERTH_REASON_NONE);
    ck_assert_int_eq(n_claims(), 1);
}
END_TEST

/* Lists go by pages and show one's own tenant's tokens only. */
START_TEST(list_tokens__pages__own_ones)
{
    Berth__Control__V1__ListTokensRequest req = BERTH__CONTROL__V1__LIST_TOKENS_REQUEST__INIT;
    Berth__Common__V1__PageRequest page = BERTH__COMMON__V1__PAGE_REQUEST__INIT;
    Berth__Control__V1__ListTokensResponse *resp;
    char admin[SECRET_SIZE], secret[SECRET_SIZE], after[ID_SIZE] = "";
    size_t seen = 0;

    town_tenant_token(&town, "t1", ADMIN, admin);
    for (int i = 0; i < 6; i++)
        town_tenant_token(&town, i % 2 ? "t1" : "t2", READ, secret);
    req.tenant_id = (char *)"t1";
    req.page = &page;
    page.page_size = 3;
    do {
        page.page_token = after;
        ck_assert_int_eq(
            call(admin, TENANTS "ListTokens", &req, CONTROL(list_tokens_response), &resp),
            BERTH_REASON_NONE);
        for (size_t i = 0; i < resp->n_tokens; i++)
            ck_assert_str_eq(resp->tokens[i]->tenant_id, "t1");
        seen += resp->n_tokens;
        snprintf(after, sizeof after, "%s", resp->next_page_token);
        berth_message_free(resp);
    } while (after[0]);
    ck_assert_uint_eq(seen, 4);
    req.tenant_id = (char *)"t2";
    ck_assert_int_eq(
        call(admin, TENANTS "ListTokens", &req, CONTROL(list_tokens_response), NULL),
        BERTH_REASON_TENANT_NOT_FOUND);
}
END_TEST

/* Revoked: gone in this process at once, and in every other within five seconds. */
START_TEST(revoke_token__in_use_everywhere__gone_within_five_seconds)
{
    Berth__Control__V1__Scope scope = READ;
    Token token = token_of("t1", &scope);
    char admin[SECRET_SIZE], secret[SECRET_SIZE], id[ID_SIZE];
    int64_t took_ms;

    town_tenant_token(&town, "t1", ADMIN, admin);
    ck_assert_int_eq(town_token(&town, &token, secret, id), BERTH_REASON_NONE);
    (void)until_everywhere(secret, BERTH_REASON_NONE);
    ck_assert_int_eq(end_token(admin, "t1", id), BERTH_REASON_NONE);
    ck_assert_int_eq(get_tenant(town.outside, secret, "t1"), BERTH_REASON_TOKEN_INVALID);
    took_ms = until_everywhere(secret, BERTH_REASON_TOKEN_INVALID);
    ck_assert_int_le(took_ms, GONE_MS + SLACK_MS);
    ck_assert_int_eq(end_token(admin, "t1", id), BERTH_REASON_TOKEN_NOT_FOUND);
    ck_assert_int_eq(end_token(admin, "t1", "aaaaaaaaaaaa"), BERTH_REASON_TOKEN_NOT_FOUND);
}
END_TEST

/* By a service, at the first of the two. */
static void end_by_peer(const char *tenant_id, const char *id)
{
    Berth__Control__V1__RevokeTokenRequest req = BERTH__CONTROL__V1__REVOKE_TOKEN_REQUEST__INIT;

    req.tenant_id = (char *)tenant_id;
    req.token_id = (char *)id;
    ck_assert_int_eq(town_call(town.control[0], TENANTS "RevokeToken", &req,
                               CONTROL(revoke_token_response), WAIT_MS, NULL, NULL),
                     BERTH_REASON_NONE);
}

static void disable(const char *tenant_id, bool disabled)
{
    Berth__Control__V1__UpdateTenantRequest req =
        BERTH__CONTROL__V1__UPDATE_TENANT_REQUEST__INIT;
    Berth__Control__V1__Tenant tenant = BERTH__CONTROL__V1__TENANT__INIT;
    Google__Protobuf__FieldMask mask = GOOGLE__PROTOBUF__FIELD_MASK__INIT;
    char *paths[] = {(char *)"disabled"};

    mask.paths = paths;
    mask.n_paths = 1;
    tenant.tenant_id = (char *)tenant_id;
    tenant.disabled = disabled;
    req.tenant = &tenant;
    req.update_mask = &mask;
    ck_assert_int_eq(town_call(town.control[0], TENANTS "UpdateTenant", &req,
                               CONTROL(update_tenant_response), WAIT_MS, NULL, NULL),
                     BERTH_REASON_NONE);
}

/* What one process changes is told to the others: another control plane through Redis, other
 * services by theirs. The best of two: the machine may be busy. */
START_TEST(change__in_use_everywhere__counts_at_once)
{
    enum { AT_ONCE_MS = 1000 };
    Berth__Control__V1__Scope scope = READ;
    Token token = token_of("t1", &scope);
    char secret[SECRET_SIZE], id[ID_SIZE];
    int64_t revoked_ms = INT64_MAX, disabled_ms = INT64_MAX;

    for (int i = 0; i < 2 && (revoked_ms > AT_ONCE_MS || disabled_ms > AT_ONCE_MS); i++) {
        int64_t took_ms;

        ck_assert_int_eq(town_token(&town, &token, secret, id), BERTH_REASON_NONE);
        (void)until_everywhere(secret, BERTH_REASON_NONE);
        disable("t1", true);
        took_ms = until_everywhere(secret, BERTH_REASON_TENANT_DISABLED);
        disabled_ms = took_ms < disabled_ms ? took_ms : disabled_ms;
        disable("t1", false);
        (void)until_everywhere(secret, BERTH_REASON_NONE);
        end_by_peer("t1", id);
        took_ms = until_everywhere(secret, BERTH_REASON_TOKEN_INVALID);
        revoked_ms = took_ms < revoked_ms ? took_ms : revoked_ms;
    }
    ck_assert_int_le(disabled_ms, AT_ONCE_MS);
    ck_assert_int_le(revoked_ms, AT_ONCE_MS);
}
END_TEST

/* A control plane that ends does not wait for those who watch it, and they come back. */
START_TEST(watch__control_plane_stops__not_held_up)
{
    enum { STOP_MS = 5000 };
    Berth__Control__V1__Scope scope = READ;
    Token token = token_of("t1", &scope);
    int64_t begin_tick = berth_tick_ms();
    char secret[SECRET_SIZE], other[SECRET_SIZE], id[ID_SIZE];
    int status = -1;

    /* Once what is revoked is out, skills watches. */
    ck_assert_int_eq(town_token(&town, &token, secret, NULL), BERTH_REASON_NONE);
    ck_assert_int_eq(town_token(&town, &token, other, id), BERTH_REASON_NONE);
    ck_assert_int_eq(list_snapshots(secret, "t1"), BERTH_REASON_NONE);
    ck_assert_int_eq(list_snapshots(other, "t1"), BERTH_REASON_NONE);
    end_by_peer("t1", id);
    while (list_snapshots(other, "t1") != BERTH_REASON_TOKEN_INVALID)
        ck_assert_int_lt(berth_tick_ms(), begin_tick + WAIT_MS);
    begin_tick = berth_tick_ms();
    ck_assert_int_eq(kill(town.planes[0].pid, SIGTERM), 0);
    while (waitpid(town.planes[0].pid, &status, WNOHANG) == 0) {
        ck_assert_int_lt(berth_tick_ms(), begin_tick + STOP_MS);
        usleep(5000);
    }
    ck_assert_int_eq(status, 0);
    process_start(&town.planes[0]);
    town_wait_ready(&town);
    ck_assert_int_eq(list_snapshots(secret, "t1"), BERTH_REASON_NONE);
}
END_TEST

/* Another tenant's admin neither sees nor ends a token. */
START_TEST(revoke_token__of_another_tenant__not_found)
{
    Berth__Control__V1__Scope scope = READ;
    Token token = token_of("t2", &scope);
    char admin[SECRET_SIZE], secret[SECRET_SIZE], id[ID_SIZE];

    town_tenant_token(&town, "t1", ADMIN, admin);
    ck_assert_int_eq(town_token(&town, &token, secret, id), BERTH_REASON_NONE);
    ck_assert_int_eq(end_token(admin, "t1", id), BERTH_REASON_TOKEN_NOT_FOUND);
    ck_assert_int_eq(end_token(admin, "t2", id), BERTH_REASON_TENANT_NOT_FOUND);
    ck_assert_int_eq(get_tenant(town.outside, secret, "t2"), BERTH_REASON_NONE);
}
END_TEST

/* At its end a token is over, everywhere, whoever knew it. */
START_TEST(token__expired__refused)
{
    Berth__Control__V1__Scope scope = READ;
    Token token = token_of("t1", &scope);
    char secret[SECRET_SIZE];
    int64_t end_ms = berth_now_ms() + 1500;

    token.expire_time = berth_timestamp(end_ms);
    ck_assert_int_eq(town_token(&town, &token, secret, NULL), BERTH_REASON_NONE);
    (void)until_everywhere(secret, BERTH_REASON_NONE);
    (void)until_everywhere(secret, BERTH_REASON_TOKEN_INVALID);
    ck_assert_int_ge(berth_now_ms(), end_ms);
    ck_assert_int_lt(berth_now_ms(), end_ms + SLACK_MS);
    ck_assert_int_eq(town_token(&town, &token, secret, NULL), BERTH_REASON_FIELD_INVALID);
    berth_message_free(token.expire_time);
}
END_TEST

/* Scopes reach as far as they say, over real calls. */
START_TEST(token__each_scope__as_far_as_it_reaches)
{
    Berth__Control__V1__CreateConfigRequest make =
        BERTH__CONTROL__V1__CREATE_CONFIG_REQUEST__INIT;
    SandboxConfig settings = BERTH__CONTROL__V1__SANDBOX_CONFIG__INIT;
    char secrets[5][SECRET_SIZE], name[16];

    for (int scope = 1; scope <= 4; scope++)
        town_tenant_token(&town, "t1", (Berth__Control__V1__Scope)scope, secrets[scope]);
    settings.tenant_id = (char *)"t1";
    settings.config_id = name;
    settings.backend = (char *)"local";
    make.config = &settings;
    for (int scope = 1; scope <= 4; scope++) {
        snprintf(name, sizeof name, "c1-%d", scope);
        ck_assert_int_eq(get_tenant(town.outside, secrets[scope], "t1"), BERTH_REASON_NONE);
        ck_assert_int_eq(resolve(secrets[scope], "s1", NULL, NULL),
                         scope >= 2 ? BERTH_REASON_NONE : BERTH_REASON_SCOPE_MISSING);
        ck_assert_int_eq(get_session(secrets[scope], "s1"),
                         scope >= 2 ? BERTH_REASON_NONE : BERTH_REASON_SESSION_NOT_FOUND);
        ck_assert_int_eq(call(secrets[scope], CONFIGS "CreateConfig", &make,
                              CONTROL(create_config_response), NULL),
                         scope >= 4 ? BERTH_REASON_NONE : BERTH_REASON_SCOPE_MISSING);
    }
}
END_TEST

/* A tenant's own admin is not the deployment's. */
START_TEST(tenant_admin__of_one_tenant__not_of_the_deployment)
{
    Berth__Control__V1__CreateTenantRequest create =
        BERTH__CONTROL__V1__CREATE_TENANT_REQUEST__INIT;
    Berth__Control__V1__UpdateTenantRequest update =
        BERTH__CONTROL__V1__UPDATE_TENANT_REQUEST__INIT;
    Berth__Control__V1__CreateTokenRequest make =
        BERTH__CONTROL__V1__CREATE_TOKEN_REQUEST__INIT;
    Berth__Control__V1__ListTokensRequest list = BERTH__CONTROL__V1__LIST_TOKENS_REQUEST__INIT;
    Berth__Control__V1__ListTenantsRequest tenants =
        BERTH__CONTROL__V1__LIST_TENANTS_REQUEST__INIT;
    Berth__Control__V1__Tenant tenant = BERTH__CONTROL__V1__TENANT__INIT;
    Berth__Control__V1__Quotas quotas = BERTH__CONTROL__V1__QUOTAS__INIT;
    Berth__Control__V1__Scope scope = ADMIN;
    Token token = token_of("", &scope);
    char admin[SECRET_SIZE], deployment[SECRET_SIZE];

    town_tenant_token(&town, "t1", ADMIN, admin);
    make_deployment(deployment);
    tenant.tenant_id = (char *)"t3";
    create.tenant = &tenant;
    ck_assert_int_eq(
        call(admin, TENANTS "CreateTenant", &create, CONTROL(create_tenant_response), NULL),
        BERTH_REASON_SCOPE_MISSING);
    ck_assert_int_eq(
        call(admin, TENANTS "ListTenants", &tenants, CONTROL(list_tenants_response), NULL),
        BERTH_REASON_SCOPE_MISSING);
    token.deployment = true;
    make.token = &token;
    ck_assert_int_eq(
        call(admin, TENANTS "CreateToken", &make, CONTROL(create_token_response), NULL),
        BERTH_REASON_SCOPE_MISSING);
    token.tenant_id = (char *)"t1";
    ck_assert_int_eq(
        call(admin, TENANTS "CreateToken", &make, CONTROL(create_token_response), NULL),
        BERTH_REASON_SCOPE_MISSING);
    list.deployment = true;
    list.tenant_id = (char *)"t1";
    ck_assert_int_eq(
        call(admin, TENANTS "ListTokens", &list, CONTROL(list_tokens_response), NULL),
        BERTH_REASON_SCOPE_MISSING);
    tenant.tenant_id = (char *)"t1";
    update.tenant = &tenant;
    tenant.quotas = &quotas;
    ck_assert_int_eq(
        call(admin, TENANTS "UpdateTenant", &update, CONTROL(update_tenant_response), NULL),
        BERTH_REASON_SCOPE_MISSING);
    tenant.quotas = NULL;
    tenant.default_config_id = (char *)"c1";
    ck_assert_int_eq(
        call(admin, TENANTS "UpdateTenant", &update, CONTROL(update_tenant_response), NULL),
        BERTH_REASON_NONE);
    /* The deployment's may do all of it, for every tenant. */
    tenant = (Berth__Control__V1__Tenant)BERTH__CONTROL__V1__TENANT__INIT;
    tenant.tenant_id = (char *)"t3";
    ck_assert_int_eq(call(deployment, TENANTS "CreateTenant", &create,
                          CONTROL(create_tenant_response), NULL),
                     BERTH_REASON_NONE);
    token.tenant_id = (char *)"";
    ck_assert_int_eq(
        call(deployment, TENANTS "CreateToken", &make, CONTROL(create_token_response), NULL),
        BERTH_REASON_NONE);
    list.tenant_id = (char *)"";
    ck_assert_int_eq(
        call(deployment, TENANTS "ListTokens", &list, CONTROL(list_tokens_response), NULL),
        BERTH_REASON_NONE);
    ck_assert_int_eq(get_tenant(town.outside, deployment, "t3"), BERTH_REASON_NONE);
    ck_assert_int_eq(get_tenant(town.outside, deployment, "t4"), BERTH_REASON_TENANT_NOT_FOUND);
}
END_TEST

/* Disabled within five seconds in every process; what runs may be ended. */
START_TEST(tenant__disabled__tokens_refused_within_five_seconds)
{
    char secret[SECRET_SIZE];

    town_tenant_token(&town, "t1", USE, secret);
    ck_assert_int_eq(resolve(secret, "s1", NULL, NULL), BERTH_REASON_NONE);
    (void)until_everywhere(secret, BERTH_REASON_NONE);
    disable("t1", true);
    ck_assert_int_le(until_everywhere(secret, BERTH_REASON_TENANT_DISABLED),
                     GONE_MS + SLACK_MS);
    ck_assert_int_eq(resolve(secret, "s1", NULL, NULL), BERTH_REASON_TENANT_DISABLED);
    ck_assert_int_eq(act(secret, "Pause", "s1"), BERTH_REASON_NONE);
    ck_assert_int_eq(act(secret, "Delete", "s1"), BERTH_REASON_NONE);
}
END_TEST

/* A token for one session is good for that one. */
START_TEST(token__for_one_session__everything_else_not_found)
{
    Berth__Control__V1__GetConfigRequest config = BERTH__CONTROL__V1__GET_CONFIG_REQUEST__INIT;
    Berth__Control__V1__Scope scope = ADMIN;
    Token token = token_of("t1", &scope);
    char secret[SECRET_SIZE];

    (void)town_box(&town, "s2", NULL);
    token.session_id = (char *)"s1";
    ck_assert_int_eq(town_token(&town, &token, secret, NULL), BERTH_REASON_NONE);
    ck_assert_int_eq(resolve(secret, "s1", NULL, NULL), BERTH_REASON_NONE);
    ck_assert_int_eq(resolve(secret, "s2", NULL, NULL), BERTH_REASON_SESSION_NOT_FOUND);
    ck_assert_int_eq(get_session(secret, "s2"), BERTH_REASON_SESSION_NOT_FOUND);
    ck_assert_int_eq(act(secret, "Delete", "s2"), BERTH_REASON_SESSION_NOT_FOUND);
    ck_assert_int_eq(act(secret, "Begin", "s1"), BERTH_REASON_NONE);
    config.tenant_id = (char *)"t1";
    config.config_id = (char *)"c1";
    ck_assert_int_eq(
        call(secret, CONFIGS "GetConfig", &config, CONTROL(get_config_response), NULL),
        BERTH_REASON_CONFIG_NOT_FOUND);
    ck_assert_int_eq(get_tenant(town.outside, secret, "t1"), BERTH_REASON_SCOPE_MISSING);
    ck_assert_int_eq(list_snapshots(secret, "t1"), BERTH_REASON_SCOPE_MISSING);
    ck_assert_uint_eq(fake_alive(town.fake), 2);
}
END_TEST

static void make_config(const char *id)
{
    Berth__Control__V1__CreateConfigRequest make =
        BERTH__CONTROL__V1__CREATE_CONFIG_REQUEST__INIT;
    SandboxConfig settings = BERTH__CONTROL__V1__SANDBOX_CONFIG__INIT;

    settings.tenant_id = (char *)"t1";
    settings.config_id = (char *)id;
    settings.backend = (char *)"local";
    make.config = &settings;
    ck_assert_int_eq(town_call(town.control[0], CONFIGS "CreateConfig", &make,
                               CONTROL(create_config_response), WAIT_MS, NULL, NULL),
                     BERTH_REASON_NONE);
}

static enum berth_reason snapshot(const char *secret, const char *session, char ret_id[129])
{
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    Berth__Skills__V1__CreateSnapshotRequest req =
        BERTH__SKILLS__V1__CREATE_SNAPSHOT_REQUEST__INIT;
    Berth__Skills__V1__CreateSnapshotResponse *resp;
    enum berth_reason reason;

    ref.tenant_id = (char *)"t1";
    ref.session_id = (char *)session;
    req.session = &ref;
    reason = town_call_as(town.snap, secret, SNAPSHOTS "CreateSnapshot", &req,
                          &berth__skills__v1__create_snapshot_response__descriptor, WAIT_MS,
                          &resp, NULL);
    if (!reason) {
        snprintf(ret_id, 129, "%s", resp->snapshot->snapshot_id);
        ck_assert_int_eq(strncmp(resp->snapshot->created_by, "peer/uid:", 9), 0);
        berth_message_free(resp);
    }
    return reason;
}

static enum berth_reason touch_snapshot(const char *secret, const char *verb, const char *id)
{
    Berth__Skills__V1__GetSnapshotRequest req = BERTH__SKILLS__V1__GET_SNAPSHOT_REQUEST__INIT;
    char path[96];

    req.tenant_id = (char *)"t1";
    req.snapshot_id = (char *)id;
    snprintf(path, sizeof path, SNAPSHOTS "%sSnapshot", verb);
    return town_call_as(town.snap, secret, path, &req,
                        &berth__skills__v1__delete_snapshot_response__descriptor, WAIT_MS, NULL,
                        NULL);
}

/* A token for one config is good for that one, its sessions and its snapshots; what it makes is
 * of it. */
START_TEST(token__for_one_config__everything_else_not_found)
{
    static const char *const verbs[] = {"Pause", "Resume", "Delete", "Begin"};
    Berth__Control__V1__Scope scope = ADMIN;
    Token token = token_of("t1", &scope);
    char secret[SECRET_SIZE], other[129], ignored[129];
    Resolved *resolved;

    make_config("c2");
    (void)town_box(&town, "of-c1", NULL);
    ck_assert_int_eq(snapshot(NULL, "of-c1", other), BERTH_REASON_NONE);
    token.config_id = (char *)"c2";
    ck_assert_int_eq(town_token(&town, &token, secret, NULL), BERTH_REASON_NONE);

    ck_assert_int_eq(resolve(secret, "mine", NULL, &resolved), BERTH_REASON_NONE);
    ck_assert_str_eq(resolved->session->spec->config_id, "c2");
    berth_message_free(resolved);
    ck_assert_int_eq(resolve(secret, "mine", "c1", NULL), BERTH_REASON_CONFIG_NOT_FOUND);
    ck_assert_int_eq(resolve(secret, "of-c1", NULL, NULL), BERTH_REASON_SESSION_NOT_FOUND);
    ck_assert_int_eq(get_session(secret, "of-c1"), BERTH_REASON_SESSION_NOT_FOUND);
    ck_assert_int_eq(get_session(secret, "mine"), BERTH_REASON_NONE);
    for (size_t i = 0; i < BERTH_COUNT(verbs); i++)
        ck_assert_int_eq(act(secret, verbs[i], "of-c1"), BERTH_REASON_SESSION_NOT_FOUND);
    ck_assert_int_eq(snapshot(secret, "of-c1", ignored), BERTH_REASON_SESSION_NOT_FOUND);
    ck_assert_int_eq(touch_snapshot(secret, "Get", other), BERTH_REASON_SNAPSHOT_NOT_FOUND);
    ck_assert_int_eq(touch_snapshot(secret, "Delete", other), BERTH_REASON_SNAPSHOT_NOT_FOUND);
    ck_assert_int_eq(touch_snapshot(NULL, "Delete", other), BERTH_REASON_NONE);
    ck_assert_int_eq(act(secret, "Delete", "mine"), BERTH_REASON_NONE);
    ck_assert_uint_eq(fake_alive(town.fake), 1);
}
END_TEST

/* A gateway key is a token like another. */
START_TEST(create_token__e2b_shape__works)
{
    Berth__Control__V1__CreateTokenRequest req = BERTH__CONTROL__V1__CREATE_TOKEN_REQUEST__INIT;
    Berth__Control__V1__CreateTokenResponse *resp;
    Berth__Control__V1__Scope scope = USE;
    Token token = token_of("t1", &scope);
    char admin[SECRET_SIZE];

    town_tenant_token(&town, "t1", ADMIN, admin);
    req.token = &token;
    req.e2b_shape = true;
    ck_assert_int_eq(
        call(admin, TENANTS "CreateToken", &req, CONTROL(create_token_response), &resp),
        BERTH_REASON_NONE);
    ck_assert_int_eq(strncmp(resp->secret, "e2b_", 4), 0);
    ck_assert_uint_eq(strlen(resp->secret), 44);
    ck_assert_int_eq(strncmp(resp->token->created_by, "token/", 6), 0);
    ck_assert_int_eq(resolve(resp->secret, "s1", NULL, NULL), BERTH_REASON_NONE);
    berth_message_free(resp);
}
END_TEST

/* Who made it stands on session, config and tenant; what a client says of it is ignored. */
START_TEST(created_by__made_with_a_token__its_id)
{
    Berth__Control__V1__CreateConfigRequest make =
        BERTH__CONTROL__V1__CREATE_CONFIG_REQUEST__INIT;
    Berth__Control__V1__CreateConfigResponse *made;
    Berth__Control__V1__CreateTenantRequest create =
        BERTH__CONTROL__V1__CREATE_TENANT_REQUEST__INIT;
    Berth__Control__V1__CreateTenantResponse *created;
    Berth__Control__V1__Tenant tenant = BERTH__CONTROL__V1__TENANT__INIT;
    SandboxConfig settings = BERTH__CONTROL__V1__SANDBOX_CONFIG__INIT;
    Berth__Control__V1__Scope scope = ADMIN;
    Token token = token_of("", &scope);
    char secret[SECRET_SIZE], id[ID_SIZE], actor[32];
    Resolved *resolved;

    token.deployment = true;
    ck_assert_int_eq(town_token(&town, &token, secret, id), BERTH_REASON_NONE);
    snprintf(actor, sizeof actor, "token/%s", id);
    ck_assert_int_eq(resolve(secret, "s1", NULL, &resolved), BERTH_REASON_NONE);
    ck_assert_str_eq(resolved->session->created_by, actor);
    berth_message_free(resolved);
    settings.tenant_id = (char *)"t1";
    settings.config_id = (char *)"c9";
    settings.backend = (char *)"local";
    settings.created_by = (char *)"somebody";
    make.config = &settings;
    ck_assert_int_eq(
        call(secret, CONFIGS "CreateConfig", &make, CONTROL(create_config_response), &made),
        BERTH_REASON_NONE);
    ck_assert_str_eq(made->config->created_by, actor);
    berth_message_free(made);
    tenant.tenant_id = (char *)"t9";
    tenant.created_by = (char *)"somebody";
    create.tenant = &tenant;
    ck_assert_int_eq(call(secret, TENANTS "CreateTenant", &create,
                          CONTROL(create_tenant_response), &created),
                     BERTH_REASON_NONE);
    ck_assert_str_eq(created->tenant->created_by, actor);
    berth_message_free(created);
}
END_TEST

static int64_t commands(void)
{
    struct berth_reply *reply = redis_run(town.store, "INFO", "commandstats", NULL);
    static const char *const counted[] = {
        "cmdstat_evalsha_ro:calls=", "cmdstat_get:calls=", "cmdstat_evalsha:calls="};
    int64_t n = 0;

    for (size_t i = 0; i < BERTH_COUNT(counted); i++) {
        const char *at = strstr(reply->string, counted[i]);

        n += at ? strtol(at + strlen(counted[i]), NULL, 10) : 0;
    }
    berth_reply_free(reply);
    return n;
}

/* A warm resolve with a token costs the one round trip to Redis that it costs without. The
 * readiness checks and what is read again in the background every 2.5 s may come on top. */
START_TEST(resolve__warm_with_token__one_round_trip)
{
    enum { N = 300, BESIDE_MAX = 60 };
    char secret[SECRET_SIZE];
    int64_t before, extra;

    town_tenant_token(&town, "t1", USE, secret);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(resolve(secret, "s1", NULL, NULL), BERTH_REASON_NONE);
    before = commands();
    for (int i = 0; i < N; i++)
        ck_assert_int_eq(resolve(secret, "s1", NULL, NULL), BERTH_REASON_NONE);
    extra = commands() - before - N;
    ck_assert_int_ge(extra, 0);
    ck_assert_int_le(extra, BESIDE_MAX);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("controlplane/tokens");
    TCase *all = tcase_create("all"), *deaf = tcase_create("deaf");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(all, open_town, close_town);
    tcase_set_timeout(all, 120);
    tcase_add_test(all, every_method__no_token__refused);
    tcase_add_test(all, create_token__secret__kept_nowhere);
    tcase_add_test(all, create_token__no_such_tenant__nothing_left);
    tcase_add_test(all, list_tokens__pages__own_ones);
    tcase_add_test(all, change__in_use_everywhere__counts_at_once);
    tcase_add_test(all, watch__control_plane_stops__not_held_up);
    tcase_add_test(all, revoke_token__of_another_tenant__not_found);
    tcase_add_test(all, token__expired__refused);
    tcase_add_test(all, token__each_scope__as_far_as_it_reaches);
    tcase_add_test(all, tenant_admin__of_one_tenant__not_of_the_deployment);
    tcase_add_test(all, token__for_one_session__everything_else_not_found);
    tcase_add_test(all, token__for_one_config__everything_else_not_found);
    tcase_add_test(all, create_token__e2b_shape__works);
    tcase_add_test(all, created_by__made_with_a_token__its_id);
    tcase_add_test(all, resolve__warm_with_token__one_round_trip);
    suite_add_tcase(suite, all);
    tcase_add_checked_fixture(deaf, open_deaf_town, close_town);
    tcase_set_timeout(deaf, 120);
    tcase_add_test(deaf, revoke_token__in_use_everywhere__gone_within_five_seconds);
    tcase_add_test(deaf, tenant__disabled__tokens_refused_within_five_seconds);
    suite_add_tcase(suite, deaf);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed > 0;
}
