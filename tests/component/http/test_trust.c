/* test_trust.c - whose TLS servers are believed, and who we are to them. */
#include <check.h>
#include <stdio.h>

#include "common/http/http.h"
#include "tests/component/http/names.h"
#include "tests/component/http/server.h"
#include "tests/component/http/tls.h"

enum { DAY_S = 24 * 60 * 60 };

static struct berth_http *http;
static struct berth_http_client *client;
static struct berth_http_response response;
static struct berth_error err;
static struct server server;
static struct identity ca, other_ca, leaf, mine;
static SSL_CTX *tls;

static void open_all(void)
{
    static const char *const answers[] = {"127.0.0.1"};

    names_clear();
    names_set("api.example", answers, 1);
    identity_make(&ca, NULL, "test authority", NULL, -DAY_S, DAY_S);
    identity_make(&other_ca, NULL, "another authority", NULL, -DAY_S, DAY_S);
    ck_assert_int_eq(berth_http_new(NULL, &http, &err), BERTH_OK);
}

static void close_all(void)
{
    client = berth_http_client_free(client);
    http = berth_http_free(http);
    berth_http_response_deinit(&response);
    identity_free(&ca);
    identity_free(&other_ca);
}

static void serve(const struct identity *client_ca, int version)
{
    tls = tls_context(&leaf, client_ca, version);
    server_open(&server, 0, NULL, tls, say_hello);
}

static void stop(void)
{
    client = berth_http_client_free(client);
    server_close(&server);
    SSL_CTX_free(tls);
    identity_free(&leaf);
    identity_free(&mine);
}

static enum berth_reason get(const char *scheme, const char *host,
                             struct berth_http_target target)
{
    char url[128];
    struct berth_http_request request = {.method = "GET", .url = url, .total_ms = 5000};

    snprintf(url, sizeof url, "%s://%s:%u/", scheme, host, server.port);
    target.allow_private = true;
    client = berth_http_client_free(client);
    ck_assert_msg(berth_http_client_new(http, &target, &client, &err) == BERTH_OK, "%s",
                  err.text);
    berth_http_response_deinit(&response);
    return berth_http_call(client, &request, &response, &err) ? err.reason : BERTH_REASON_NONE;
}

/* What the server shows, whom we trust, and whether a request goes out. */
static const struct {
    const char *name;
    enum { BY_CA, BY_OTHER, BY_ITSELF } issuer;
    const char *alt_name, *host;
    long from_s, until_s;
    int version;
    bool own_ca; /* ours, instead of the system's */
    bool fine;
    const char *says; /* the error */
} rows[] = {
    {"good", BY_CA, "DNS:api.example", "api.example", -DAY_S, DAY_S, 0, true, true, NULL},
    {"address", BY_CA, "IP:127.0.0.1", "127.0.0.1", -DAY_S, DAY_S, 0, true, true, NULL},
    {"1.2", BY_CA, "DNS:api.example", "api.example", -DAY_S, DAY_S, TLS1_2_VERSION, true, true,
     NULL},
    {"1.3", BY_CA, "DNS:api.example", "api.example", -DAY_S, DAY_S, TLS1_3_VERSION, true, true,
     NULL},
    {"1.1", BY_CA, "DNS:api.example", "api.example", -DAY_S, DAY_S, TLS1_1_VERSION, true, false,
     "SSL"},
    {"system's anchors only", BY_CA, "DNS:api.example", "api.example", -DAY_S, DAY_S, 0, false,
     false, "unable to get local issuer certificate"},
    {"another authority", BY_OTHER, "DNS:api.example", "api.example", -DAY_S, DAY_S, 0, true,
     false, "unable to get local issuer certificate"},
    {"signs itself", BY_ITSELF, "DNS:api.example", "api.example", -DAY_S, DAY_S, 0, true, false,
     "self-signed certificate"},
    {"another name", BY_CA, "DNS:evil.example", "api.example", -DAY_S, DAY_S, 0, true, false,
     "no alternative certificate subject name"},
    {"a longer name", BY_CA, "DNS:api.example.evil", "api.example", -DAY_S, DAY_S, 0, true,
     false, "no alternative certificate subject name"},
    {"name by address", BY_CA, "DNS:api.example", "127.0.0.1", -DAY_S, DAY_S, 0, true, false,
     "no alternative certificate subject name"},
    {"address by name", BY_CA, "IP:127.0.0.1", "api.example", -DAY_S, DAY_S, 0, true, false,
     "no alternative certificate subject name"},
    {"expired", BY_CA, "DNS:api.example", "api.example", -2 * DAY_S, -DAY_S, 0, true, false,
     "certificate has expired"},
    {"not yet", BY_CA, "DNS:api.example", "api.example", DAY_S, 2 * DAY_S, 0, true, false,
     "not yet valid"},
};

START_TEST(get__server_certificate__judged)
{
    const struct identity *const issuers[] = {&ca, &other_ca, NULL};
    enum berth_reason reason;

    identity_make(&leaf, issuers[rows[_i].issuer], "server", rows[_i].alt_name, rows[_i].from_s,
                  rows[_i].until_s);
    serve(NULL, rows[_i].version);
    reason = get("https", rows[_i].host,
                 (struct berth_http_target){.ca_pem = rows[_i].own_ca ? ca.cert_pem : NULL});
    ck_assert_msg((reason == BERTH_REASON_NONE) == rows[_i].fine, "%s: %s", rows[_i].name,
                  err.text);
    ck_assert_uint_eq(server_requests(&server), rows[_i].fine);
    if (!rows[_i].fine) {
        ck_assert_int_eq(reason, BERTH_REASON_BACKEND_UNAVAILABLE); /* nothing was sent */
        ck_assert_msg(strstr(err.text, rows[_i].says) != NULL, "%s: %s", rows[_i].name,
                      err.text);
    }
    stop();
}
END_TEST

/* A server that wants to know who asks. */
START_TEST(get__client_certificate__shown_where_given)
{
    struct berth_http_target target = {.ca_pem = ca.cert_pem};

    identity_make(&leaf, &ca, "server", "DNS:api.example", -DAY_S, DAY_S);
    serve(&ca, 0);
    ck_assert_int_eq(get("https", "api.example", target), BERTH_REASON_BACKEND_UNAVAILABLE);
    identity_make(&mine, &other_ca, "client", "DNS:client", -DAY_S, DAY_S);
    target.cert_pem = mine.cert_pem;
    target.key_pem = mine.key_pem;
    ck_assert_int_eq(get("https", "api.example", target), BERTH_REASON_BACKEND_UNAVAILABLE);
    identity_free(&mine);
    identity_make(&mine, &ca, "client", "DNS:client", -DAY_S, DAY_S);
    target.cert_pem = mine.cert_pem;
    target.key_pem = mine.key_pem;
    ck_assert_msg(get("https", "api.example", target) == BERTH_REASON_NONE, "%s", err.text);
    ck_assert_uint_eq(server_requests(&server), 1);
    target.key_pem = leaf.key_pem; /* of somebody else */
    ck_assert_int_eq(get("https", "api.example", target), BERTH_REASON_BACKEND_UNAVAILABLE);
    target.key_pem = NULL;
    ck_assert_int_eq(berth_http_client_new(http, &target, &client, &err),
                     BERTH_INVALID_ARGUMENT);
    ck_assert_str_eq(err.field, "client_key_pem");
    stop();
}
END_TEST

/* Anchors that are none make nobody trusted; https to a plaintext server does not become http.
 */
START_TEST(get__no_trust_to_be_had__refused)
{
    identity_make(&leaf, &ca, "server", "DNS:api.example", -DAY_S, DAY_S);
    serve(NULL, 0);
    ck_assert_int_eq(
        get("https", "api.example",
            (struct berth_http_target){.ca_pem = "-----BEGIN CERTIFICATE-----\nx\n"}),
        BERTH_REASON_BACKEND_UNAVAILABLE);
    ck_assert_int_eq(
        get("http", "api.example", (struct berth_http_target){.ca_pem = ca.cert_pem}),
        BERTH_REASON_BACKEND_UNAVAILABLE);
    stop();
    server_open(&server, 0, NULL, NULL, say_hello);
    ck_assert_int_eq(
        get("https", "api.example", (struct berth_http_target){.ca_pem = ca.cert_pem}),
        BERTH_REASON_BACKEND_UNAVAILABLE);
    ck_assert_uint_eq(server_requests(&server), 0);
    client = berth_http_client_free(client);
    server_close(&server);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http/trust");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int failed;

    if (!net_enter()) {
        puts("SKIP: no network namespace of its own");
        return 77;
    }
    tcase_add_checked_fixture(all, open_all, close_all);
    tcase_set_timeout(all, 60);
    tcase_add_loop_test(all, get__server_certificate__judged, 0, (int)BERTH_COUNT(rows));
    tcase_add_test(all, get__client_certificate__shown_where_given);
    tcase_add_test(all, get__no_trust_to_be_had__refused);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
