/* test_token_lookups.c - whose a token is: who may ask, and what is said without a store. */
#include <stdio.h>

#include "tests/component/controlplane/town.h"

#define INTROSPECT "/berth.control.v1.InternalService/IntrospectToken"
#define ANSWER (&berth__control__v1__introspect_token_response__descriptor)

enum { SECRET_SIZE = 64 };

static struct town town;

static void open_town(void)
{
    town_open(&town, &(struct town_options){.planes = 1});
}

static void close_town(void)
{
    town_close(&town);
}

static enum berth_reason get_tenant(const char *secret)
{
    Berth__Control__V1__GetTenantRequest req = BERTH__CONTROL__V1__GET_TENANT_REQUEST__INIT;

    req.tenant_id = (char *)"t1";
    return town_call_as(town.outside, secret, "/berth.control.v1.TenantService/GetTenant", &req,
                        &berth__control__v1__get_tenant_response__descriptor, WAIT_MS, NULL,
                        NULL);
}

/* Only services of the suite ask whose a token is; a wrong secret is no token. */
START_TEST(introspect__right_and_wrong_secret__told_to_peers)
{
    Berth__Control__V1__IntrospectTokenRequest req =
        BERTH__CONTROL__V1__INTROSPECT_TOKEN_REQUEST__INIT;
    Berth__Control__V1__IntrospectTokenResponse *resp;
    Berth__Control__V1__Token wanted = BERTH__CONTROL__V1__TOKEN__INIT;
    Berth__Control__V1__Scope scope = BERTH__CONTROL__V1__SCOPE__SCOPE_ADMIN;
    char secret[SECRET_SIZE], admin[SECRET_SIZE];

    wanted.deployment = true;
    wanted.scopes = &scope;
    wanted.n_scopes = 1;
    ck_assert_int_eq(town_token(&town, &wanted, admin, NULL), BERTH_REASON_NONE);
    town_tenant_token(&town, "t1", BERTH__CONTROL__V1__SCOPE__SCOPE_USE, secret);
    req.secret = secret;
    ck_assert_int_eq(
        town_call_as(town.outside, admin, INTROSPECT, &req, ANSWER, WAIT_MS, NULL, NULL),
        BERTH_REASON_PEER_ONLY);
    ck_assert_int_eq(town_call(town.control[0], INTROSPECT, &req, ANSWER, WAIT_MS, &resp, NULL),
                     BERTH_REASON_NONE);
    ck_assert_str_eq(resp->token->tenant_id, "t1");
    ck_assert_uint_eq(resp->secret_sha256.len, 32);
    berth_message_free(resp);
    secret[50] = secret[50] == 'a' ? 'b' : 'a';
    ck_assert_int_eq(town_call(town.control[0], INTROSPECT, &req, ANSWER, WAIT_MS, NULL, NULL),
                     BERTH_REASON_TOKEN_NOT_FOUND);
}
END_TEST

/* A store that was lost says nothing of tokens: unavailable, never "not valid". */
START_TEST(token__epoch_missing__unavailable)
{
    char secret[SECRET_SIZE], unknown[SECRET_SIZE];

    town_tenant_token(&town, "t1", BERTH__CONTROL__V1__SCOPE__SCOPE_READ, secret);
    memcpy(unknown, secret, sizeof unknown);
    memcpy(unknown + 4, "zzzzzzzzzzzz", 12);
    town_lose_epoch(&town);
    ck_assert_int_eq(get_tenant(unknown), BERTH_REASON_INDEX_RECOVERING);
    berth_reply_free(redis_run(town.store, "SET", "berth:epoch", "1", NULL));
    ck_assert_int_eq(get_tenant(unknown), BERTH_REASON_TOKEN_INVALID);
    ck_assert_int_eq(get_tenant(secret), BERTH_REASON_NONE);
}
END_TEST

/* The installer's own sessions are given by the suite, not by a tenant's admin. */
START_TEST(create_token__installers_session__peers_only)
{
    Berth__Control__V1__CreateTokenRequest req = BERTH__CONTROL__V1__CREATE_TOKEN_REQUEST__INIT;
    Berth__Control__V1__Scope scope = BERTH__CONTROL__V1__SCOPE__SCOPE_ADMIN;
    Berth__Control__V1__Token token = BERTH__CONTROL__V1__TOKEN__INIT;
    char secret[SECRET_SIZE], other[SECRET_SIZE];

    town_tenant_token(&town, "t1", scope, secret);
    token.tenant_id = (char *)"t1";
    token.scopes = &scope;
    token.n_scopes = 1;
    token.session_id = (char *)"sk.a1";
    req.token = &token;
    ck_assert_int_eq(town_call_as(town.outside, secret,
                                  "/berth.control.v1.TenantService/CreateToken", &req,
                                  &berth__control__v1__create_token_response__descriptor,
                                  WAIT_MS, NULL, NULL),
                     BERTH_REASON_RESERVED_KEY);
    ck_assert_int_eq(town_token(&town, &token, other, NULL), BERTH_REASON_NONE);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("controlplane/token_lookups");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(all, open_town, close_town);
    tcase_set_timeout(all, 120);
    tcase_add_test(all, introspect__right_and_wrong_secret__told_to_peers);
    tcase_add_test(all, token__epoch_missing__unavailable);
    tcase_add_test(all, create_token__installers_session__peers_only);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed > 0;
}
