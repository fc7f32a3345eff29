/* test_tls.c - Redis by TLS: only the right server is spoken to, and only by who may. */
#include <check.h>
#include <signal.h>
#include <stdio.h>

#include "tests/component/rpc/certs.h"
#include "tests/lib/redis_server.h"

static struct redis_server server;
static int port;

static void setup(void)
{
    struct certs_authority *ca, *other;
    char text[16], files[3][128];
    const char *extra[] = {"--tls-port",
                           text,
                           "--tls-cert-file",
                           files[0],
                           "--tls-key-file",
                           files[1],
                           "--tls-ca-cert-file",
                           files[2],
                           "--tls-auth-clients",
                           "yes",
                           NULL};

    certs_open();
    ca = certs_authority_new("ca", NULL);
    other = certs_authority_new("other", NULL);
    certs_issue("server",
                &(struct certs_options){.issuer = ca, .sans = "IP:127.0.0.1,DNS:localhost"});
    certs_issue("misnamed", &(struct certs_options){.issuer = ca, .sans = "DNS:elsewhere"});
    certs_issue("client", &(struct certs_options){.issuer = ca});
    certs_issue("stranger", &(struct certs_options){.issuer = other});
    certs_authority_free(ca);
    certs_authority_free(other);
    port = redis_free_port();
    snprintf(text, sizeof text, "%d", port);
    snprintf(files[0], sizeof files[0], "%s", certs_path("server.pem"));
    snprintf(files[1], sizeof files[1], "%s", certs_path("server.key"));
    snprintf(files[2], sizeof files[2], "%s", certs_path("ca.pem"));
    redis_server_start(&server, &(struct redis_server_options){.extra = extra});
}

static void teardown(void)
{
    redis_server_stop(&server);
    certs_close();
}

static struct berth_redis *client_of(const char *host, const char *ca, const char *own)
{
    char url[64], files[3][128] = {""}, name[32];
    const struct berth_redis_options options = {.url = url,
                                                .tls_ca = files[0],
                                                .tls_cert = files[1],
                                                .tls_key = files[2],
                                                .connect_timeout_ms = 5000,
                                                .command_timeout_ms = 5000};
    struct berth_redis *client = NULL;

    snprintf(url, sizeof url, "redis://%s:%d", host, port);
    if (ca)
        snprintf(files[0], sizeof files[0], "%s", certs_path(ca));
    if (own) {
        snprintf(name, sizeof name, "%s.pem", own);
        snprintf(files[1], sizeof files[1], "%s", certs_path(name));
        snprintf(name, sizeof name, "%s.key", own);
        snprintf(files[2], sizeof files[2], "%s", certs_path(name));
    }
    ck_assert_int_eq(berth_redis_new(&options, &client, NULL), BERTH_OK);
    return client;
}

static const struct {
    const char *host, *ca, *own;
    bool good;
} rows[] = {
    {"127.0.0.1", "ca.pem", "client", true},
    {"localhost", "ca.pem", "client", true},
    {"127.0.0.1", "other.pem", "client", false}, /* an authority of somebody else's */
    {"127.0.0.1", "ca.pem", "stranger", false},
    {"127.0.0.1", "ca.pem", NULL, false},
    {"127.0.0.1", "none.pem", "client", false},
    {"127.0.0.1", NULL, NULL, false}, /* in the clear */
};

/* Each way to come, right or wrong. */
START_TEST(redis_tls__certificates__only_the_right_ones)
{
    BERTH_AUTO(berth_redis_free)
    struct berth_redis *client = client_of(rows[_i].host, rows[_i].ca, rows[_i].own);
    struct berth_error err = {0};

    ck_assert_msg(berth_redis_ping(client, &err) ==
                      (rows[_i].good ? BERTH_OK : BERTH_UNAVAILABLE),
                  "%s", err.text);
    ck_assert_ptr_null(strstr(err.text, ".pem"));
}
END_TEST

/* The right authority, the name of another host. */
START_TEST(redis_tls__other_host__refused)
{
    BERTH_AUTO(berth_redis_free)
    struct berth_redis *admin = redis_server_client(&server, NULL);
    BERTH_AUTO(berth_redis_free)
    struct berth_redis *client = client_of("127.0.0.1", "ca.pem", "client");
    char cert[128], key[128];
    struct berth_error err = {0};

    snprintf(cert, sizeof cert, "%s", certs_path("misnamed.pem"));
    snprintf(key, sizeof key, "%s", certs_path("misnamed.key"));
    berth_reply_free(
        redis_run(admin, "CONFIG", "SET", "tls-cert-file", cert, "tls-key-file", key, NULL));
    ck_assert_int_eq(berth_redis_ping(client, &err), BERTH_UNAVAILABLE);
    ck_assert_msg(strstr(err.text, "mismatch"), "%s", err.text);
}
END_TEST

/* More than a record and a socket take at once goes there and back, byte by byte the same. */
START_TEST(redis_tls__eight_megabytes__whole)
{
    enum { SIZE = 8 << 20 };
    BERTH_AUTO(berth_redis_free)
    struct berth_redis *client = client_of("127.0.0.1", "ca.pem", "client");
    BERTH_AUTO(berth_reply_free) struct berth_reply *set = NULL, *got = NULL;
    BERTH_AUTO(free) char *data = malloc(SIZE);
    const char *set_argv[] = {"SET", "k", data}, *get_argv[] = {"GET", "k"};
    const size_t sizes[] = {3, 1, SIZE};

    ck_assert_ptr_nonnull(data);
    for (size_t i = 0; i < SIZE; i++)
        data[i] = (char)(i * 2654435761U >> 13);
    ck_assert_int_eq(berth_redis_call(client, 3, set_argv, sizes, &set, NULL), BERTH_OK);
    ck_assert_int_eq(berth_redis_call(client, 2, get_argv, NULL, &got, NULL), BERTH_OK);
    ck_assert_uint_eq(got->size, SIZE);
    ck_assert_int_eq(memcmp(got->string, data, SIZE), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redis/tls");
    TCase *tcase = tcase_create("tls");
    SRunner *runner = srunner_create(suite);
    int failed;

    signal(SIGPIPE, SIG_IGN); /* as each service does */
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, redis_tls__certificates__only_the_right_ones, 0,
                        (int)BERTH_COUNT(rows));
    tcase_add_test(tcase, redis_tls__other_host__refused);
    tcase_add_test(tcase, redis_tls__eight_megabytes__whole);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
