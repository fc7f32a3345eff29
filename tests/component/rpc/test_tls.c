/* TLS and mutual TLS: who gets in, and who is whom. Every row is a real handshake. */
#include <check.h>
#include <stdio.h>

#include "common/time/time.h"
#include "tests/component/rpc/certs.h"
#include "tests/component/rpc/client.h"
#include "tests/component/rpc/raw.h"

enum { SOON_MS = 4000, HOUR = 3600 };

static struct certs_authority *ours, *theirs;
static struct echo_server server;

static void setup(void)
{
    certs_open();
    ours = certs_authority_new("ours", NULL);
    theirs = certs_authority_new("theirs", NULL);
}

static void teardown(void)
{
    certs_authority_free(ours);
    certs_authority_free(theirs);
    certs_close();
}

/* name NULL: no certificate of its own. */
static struct berth_tls *load(const char *name, const char *authorities)
{
    char cert[32], key[32];
    struct berth_tls_options options = {0};
    struct berth_error err = {0};
    struct berth_tls *tls;

    snprintf(cert, sizeof cert, "%s.pem", name ? name : "");
    snprintf(key, sizeof key, "%s.key", name ? name : "");
    if (name) {
        options.cert = certs_path(cert);
        options.key = certs_path(key);
    }
    if (authorities)
        options.authorities = certs_path(authorities);
    ck_assert_msg(!berth_tls_new(&options, &tls, &err), "%s", err.text);
    return tls;
}

/* Serves with server.pem, which has every name that the tests use. */
static void start(enum berth_tls_clients clients, const char *const *peer_sans, size_t n)
{
    BERTH_AUTO(berth_tls_free) struct berth_tls *tls = load("server", "ours.pem");
    const struct berth_server_options options = {
        .tls = tls, .tls_clients = clients, .peer_sans = peer_sans, .n_peer_sans = n};

    echo_server_start(&server, &options, NULL);
}

static void issue_server(void)
{
    const struct certs_options options = {.issuer = ours,
                                          .sans = "IP:127.0.0.1,DNS:server.example"};

    certs_issue("server", &options);
}

/* One call with a fresh channel; the answer (owned) or NULL with err. Never slow. */
static EchoResponse *call_with(struct berth_tls *tls, const char *server_name, const char *path,
                               struct berth_error *err)
{
    const struct berth_channel_options options = {.tls = tls, .server_name = server_name};
    int64_t start_ms = berth_tick_ms();
    struct berth_channel *channel;
    EchoResponse *resp;

    *err = (struct berth_error){0};
    ck_assert_msg(
        !berth_channel_new(tls ? server.tls_address : server.address, &options, &channel, err),
        "%s", err->text);
    (void)echo_call(channel, path, NULL, NULL, &resp, err);
    berth_channel_free(channel);
    ck_assert_int_lt(berth_tick_ms() - start_ms, SOON_MS);
    return resp;
}

/* ---------------------------------------------------- the server's certificate */

/* Each row: the server's certificate, the name that is asked for, what the refusal says. */
static const struct {
    const char *sans, *common_name, *usage;
    enum { OURS, THEIRS, ITSELF, BETWEEN } issuer;
    int from_seconds, until_seconds, rsa_bits;
    const char *server_name; /* NULL: the target's host, 127.0.0.1 */
    bool refused;
} server_rows[] = {
    {.sans = "IP:127.0.0.1"},
    {.sans = "IP:127.0.0.1", .rsa_bits = 2048},
    {.sans = "IP:127.0.0.1", .issuer = BETWEEN},
    {.sans = "DNS:a.example,DNS:b.example", .server_name = "b.example"},
    {.sans = "DNS:B.Example", .server_name = "b.example"},
    {.sans = "DNS:*.suite.example", .server_name = "b.suite.example"},
    {.sans = "IP:127.0.0.1", .until_seconds = 30},
    {.sans = "IP:127.0.0.1", .issuer = THEIRS, .refused = true},
    {.sans = "IP:127.0.0.1", .issuer = ITSELF, .refused = true},
    {.sans = "IP:127.0.0.2", .refused = true},
    {.sans = "DNS:127.0.0.1.example", .refused = true},
    {.sans = NULL, .common_name = "127.0.0.1", .refused = true},
    {.sans = "DNS:a.example",
     .common_name = "b.example",
     .server_name = "b.example",
     .refused = true},
    {.sans = "DNS:a.example", .server_name = "b.example", .refused = true},
    {.sans = "DNS:*.suite.example", .server_name = "a.b.suite.example", .refused = true},
    {.sans = "DNS:*.suite.example", .server_name = "suite.example", .refused = true},
    {.sans = "IP:127.0.0.1",
     .from_seconds = -2 * HOUR,
     .until_seconds = -HOUR,
     .refused = true},
    {.sans = "IP:127.0.0.1", .from_seconds = HOUR, .until_seconds = 2 * HOUR, .refused = true},
    {.sans = "IP:127.0.0.1", .usage = "clientAuth", .refused = true},
};

/* A client goes to the server it was told to, by a certificate that is good now, or nowhere. */
START_TEST(server_certificate__each_kind__as_the_row_says)
{
    struct certs_authority *between = certs_authority_new("between", ours);
    const struct certs_authority *const issuers[] = {ours, theirs, NULL, between};
    const struct certs_options options = {
        .issuer = issuers[server_rows[_i].issuer],
        .sans = server_rows[_i].sans,
        .common_name = server_rows[_i].common_name,
        .usage = server_rows[_i].usage,
        .from_seconds = server_rows[_i].from_seconds,
        .until_seconds = server_rows[_i].until_seconds,
        .rsa_bits = server_rows[_i].rsa_bits,
    };
    struct berth_tls *tls = load(NULL, "ours.pem");
    struct berth_error err;
    EchoResponse *resp;

    certs_issue("server", &options);
    start(BERTH_TLS_CLIENTS_ANY, NULL, 0);
    resp = call_with(tls, server_rows[_i].server_name, ECHO_PATH("Unary"), &err);
    ck_assert_msg(!resp == server_rows[_i].refused, "%s", err.text);
    if (!resp) {
        ck_assert_int_eq(err.reason, BERTH_REASON_PEER_UNAVAILABLE);
        ck_assert_uint_eq(atomic_load(&server.echo.n_entered), 0);
    }
    echo_response_free(resp);
    echo_server_stop(&server, 1000);
    berth_tls_free(tls);
    certs_authority_free(between);
}
END_TEST

/* ---------------------------------------------------- the client's certificate */

#define PEER_URI "spiffe://berth/dataplane"
#define PEER_DNS "binding.suite.example"
static const char *const peer_sans[] = {PEER_URI, PEER_DNS};

/* Each row: what the client shows to a server with this rule, and who it then is. */
static const struct {
    enum berth_tls_clients clients;
    enum { NONE, BY_OURS, BY_THEIRS, BY_ITSELF } shown;
    const char *sans, *common_name, *usage;
    int from_seconds, until_seconds;
    enum { NOT_IN, STRANGER, PEER } is;
    const char *name;
} client_rows[] = {
    {BERTH_TLS_CLIENTS_ANY, .shown = NONE, .is = STRANGER, .name = ""},
    {BERTH_TLS_CLIENTS_ANY, .shown = BY_OURS, .sans = "URI:" PEER_URI, .is = STRANGER,
     .name = ""}, /* nobody asked, so nothing was proved */
    {BERTH_TLS_CLIENTS_MAY_SHOW, .shown = NONE, .is = STRANGER, .name = ""},
    {BERTH_TLS_CLIENTS_MAY_SHOW, .shown = BY_OURS, .sans = "URI:" PEER_URI, .is = PEER,
     .name = PEER_URI},
    {BERTH_TLS_CLIENTS_MAY_SHOW, .shown = BY_THEIRS, .sans = "URI:" PEER_URI, .is = NOT_IN},
    {BERTH_TLS_CLIENTS_MAY_SHOW, .shown = BY_ITSELF, .sans = "URI:" PEER_URI, .is = NOT_IN},
    {BERTH_TLS_CLIENTS_MUST_SHOW, .shown = NONE, .is = NOT_IN},
    {BERTH_TLS_CLIENTS_MUST_SHOW, .shown = BY_THEIRS, .sans = "URI:" PEER_URI, .is = NOT_IN},
    {BERTH_TLS_CLIENTS_MUST_SHOW, .shown = BY_ITSELF, .sans = "URI:" PEER_URI, .is = NOT_IN},
    {BERTH_TLS_CLIENTS_MUST_SHOW, .shown = BY_OURS, .sans = "URI:" PEER_URI,
     .from_seconds = -2 * HOUR, .until_seconds = -HOUR, .is = NOT_IN},
    {BERTH_TLS_CLIENTS_MUST_SHOW, .shown = BY_OURS, .sans = "URI:" PEER_URI,
     .from_seconds = HOUR, .until_seconds = 2 * HOUR, .is = NOT_IN},
    {BERTH_TLS_CLIENTS_MUST_SHOW, .shown = BY_OURS, .sans = "URI:" PEER_URI,
     .usage = "serverAuth", .is = NOT_IN},
    {BERTH_TLS_CLIENTS_MUST_SHOW, .shown = BY_OURS, .sans = "URI:" PEER_URI,
     .usage = "clientAuth", .is = PEER, .name = PEER_URI},
    {BERTH_TLS_CLIENTS_MUST_SHOW, .shown = BY_OURS, .sans = "DNS:" PEER_DNS, .is = PEER,
     .name = PEER_DNS},
    {BERTH_TLS_CLIENTS_MUST_SHOW, .shown = BY_OURS, .sans = "DNS:Binding.SUITE.example",
     .is = PEER, .name = "Binding.SUITE.example"},
    {BERTH_TLS_CLIENTS_MUST_SHOW, .shown = BY_OURS,
     .sans = "URI:spiffe://other/x,DNS:other.example,DNS:" PEER_DNS, .is = PEER,
     .name = PEER_DNS},
    {BERTH_TLS_CLIENTS_MUST_SHOW, .shown = BY_OURS,
     .sans = "DNS:other.example,URI:spiffe://other/x", .is = STRANGER,
     .name = "spiffe://other/x"},
    {BERTH_TLS_CLIENTS_MUST_SHOW, .shown = BY_OURS, .sans = "DNS:other.example", .is = STRANGER,
     .name = "other.example"},
    {BERTH_TLS_CLIENTS_MUST_SHOW, .shown = BY_OURS, .sans = "URI:" PEER_URI "/x",
     .is = STRANGER, .name = PEER_URI "/x"},
    {BERTH_TLS_CLIENTS_MUST_SHOW, .shown = BY_OURS, .sans = "URI:SPIFFE://berth/dataplane",
     .is = STRANGER, .name = "SPIFFE://berth/dataplane"},
    {BERTH_TLS_CLIENTS_MUST_SHOW, .shown = BY_OURS, .sans = "DNS:*.suite.example",
     .is = STRANGER, .name = "*.suite.example"},
    {BERTH_TLS_CLIENTS_MUST_SHOW, .shown = BY_OURS, .sans = "DNS:" PEER_URI, .is = STRANGER,
     .name = PEER_URI}, /* a URI's text as a DNS name */
    {BERTH_TLS_CLIENTS_MUST_SHOW, .shown = BY_OURS, .sans = "URI:" PEER_DNS, .is = STRANGER,
     .name = PEER_DNS}, /* and the other way round */
    {BERTH_TLS_CLIENTS_MUST_SHOW, .shown = BY_OURS, .sans = "email:x@" PEER_DNS, .is = STRANGER,
     .name = ""},
    {BERTH_TLS_CLIENTS_MUST_SHOW, .shown = BY_OURS, .sans = "IP:127.0.0.1", .is = STRANGER,
     .name = ""},
    {BERTH_TLS_CLIENTS_MUST_SHOW, .shown = BY_OURS, .common_name = PEER_DNS, .is = STRANGER,
     .name = ""}, /* a common name is no name */
};

/* Only a verified certificate with a listed name makes a peer; a bad one does not get in. */
START_TEST(client_certificate__each_kind__as_the_row_says)
{
    const struct certs_authority *const issuers[] = {NULL, ours, theirs, NULL};
    const struct certs_options options = {
        .issuer = issuers[client_rows[_i].shown],
        .sans = client_rows[_i].sans,
        .common_name = client_rows[_i].common_name,
        .usage = client_rows[_i].usage,
        .from_seconds = client_rows[_i].from_seconds,
        .until_seconds = client_rows[_i].until_seconds,
    };
    struct berth_tls *tls;
    struct berth_error err;
    EchoResponse *resp;

    issue_server();
    certs_issue("client", &options);
    tls = load(client_rows[_i].shown == NONE ? NULL : "client", "ours.pem");
    start(client_rows[_i].clients, peer_sans, BERTH_COUNT(peer_sans));

    resp = call_with(tls, NULL, ECHO_PATH("Unary"), &err);
    if (client_rows[_i].is == NOT_IN) {
        ck_assert_ptr_null(resp);
        ck_assert_int_eq(err.code, BERTH_UNAVAILABLE);
    } else {
        ck_assert_msg(resp != NULL, "%s", err.text);
        ck_assert_int_eq(resp->is_peer, client_rows[_i].is == PEER);
        ck_assert_str_eq(resp->peer_name, client_rows[_i].name);
    }
    echo_response_free(resp);

    resp = call_with(tls, NULL, ECHO_PATH("PeerOnly"), &err);
    ck_assert_int_eq(resp != NULL, client_rows[_i].is == PEER);
    if (client_rows[_i].is == STRANGER)
        ck_assert_int_eq(err.reason, BERTH_REASON_PEER_ONLY);
    echo_response_free(resp);
    echo_server_stop(&server, 1000);
    berth_tls_free(tls);
}
END_TEST

/* Without a list a good certificate is a name, and no more. */
START_TEST(client_certificate__no_list__no_peer)
{
    const struct certs_options options = {.issuer = ours, .sans = "URI:" PEER_URI};
    struct berth_error err;
    struct berth_tls *tls;
    EchoResponse *resp;

    issue_server();
    certs_issue("client", &options);
    tls = load("client", "ours.pem");
    start(BERTH_TLS_CLIENTS_MUST_SHOW, NULL, 0);
    resp = call_with(tls, NULL, ECHO_PATH("Unary"), &err);
    ck_assert_msg(resp && !resp->is_peer, "%s", err.text);
    ck_assert_str_eq(resp->peer_name, PEER_URI);
    echo_response_free(resp);
    echo_server_stop(&server, 1000);
    berth_tls_free(tls);
}
END_TEST

/* Over a unix socket a peer is named by its uid, over plain TCP nobody is. */
START_TEST(peer_name__without_tls__uid_or_nothing)
{
    const char *const targets[] = {"unix", "tcp"};
    char want[32] = "";
    struct berth_error err = {0};

    snprintf(want, sizeof want, "uid:%u", (unsigned)geteuid());
    for (size_t i = 0; i < BERTH_COUNT(targets); i++) {
        struct berth_channel *channel;
        EchoResponse *resp;

        echo_server_start(&server, NULL, i == 0 ? socket_path() : NULL);
        ck_assert(!berth_channel_new(server.address, NULL, &channel, &err));
        ck_assert(!echo_call(channel, ECHO_PATH("Unary"), NULL, NULL, &resp, &err));
        ck_assert_str_eq(resp->peer_name, i == 0 ? want : "");
        echo_response_free(resp);
        berth_channel_free(channel);
        echo_server_stop(&server, 1000);
    }
}
END_TEST

/* ------------------------------------------------------------- versions and mixtures */

static const struct {
    int min, max;
    const char *alpn, *agreed;
} version_rows[] = {
    {0, 0, NULL, "TLSv1.3"},
    {TLS1_2_VERSION, TLS1_2_VERSION, NULL, "TLSv1.2"},
    {TLS1_3_VERSION, TLS1_3_VERSION, NULL, "TLSv1.3"},
    {TLS1_1_VERSION, TLS1_1_VERSION, NULL, ""},
    {TLS1_VERSION, TLS1_VERSION, NULL, ""},
    {TLS1_VERSION, TLS1_2_VERSION, NULL, "TLSv1.2"},
    {0, 0, "http/1.1", ""},
    {0, 0, "", ""}, /* no ALPN: who knows what that client speaks */
};

/* TLS 1.2 and 1.3 are served, nothing older, and HTTP/2 only. */
START_TEST(versions__each__as_the_row_says)
{
    const struct tls_by_hand how = {.min_version = version_rows[_i].min,
                                    .max_version = version_rows[_i].max,
                                    .alpn = version_rows[_i].alpn};

    issue_server();
    start(BERTH_TLS_CLIENTS_MAY_SHOW, NULL, 0);
    ck_assert_str_eq(tls_by_hand(port_of(server.tls_address), &how), version_rows[_i].agreed);
    echo_server_stop(&server, 1000);
}
END_TEST

/* Both ways of speaking past each other end soon, and the server goes on. */
START_TEST(mixture__plaintext_and_tls__refused_soon)
{
    struct berth_tls *tls = load(NULL, "ours.pem");
    struct berth_channel *channel;
    struct berth_error err = {0};
    char address[sizeof server.tls_address];
    EchoResponse *resp;

    issue_server();
    start(BERTH_TLS_CLIENTS_ANY, NULL, 0);
    for (int i = 0; i < 2; i++) {
        const struct berth_channel_options options = {.tls = i ? tls : NULL};
        int64_t start_ms = berth_tick_ms();

        ck_assert(!berth_channel_new(i ? server.address : server.tls_address, &options,
                                     &channel, &err));
        ck_assert_int_eq(echo_call(channel, ECHO_PATH("Unary"), NULL, NULL, &resp, &err),
                         BERTH_UNAVAILABLE);
        ck_assert_int_eq(err.reason, BERTH_REASON_PEER_UNAVAILABLE);
        ck_assert_int_lt(berth_tick_ms() - start_ms, SOON_MS);
        berth_channel_free(channel);
    }
    snprintf(address, sizeof address, "%s", server.tls_address);
    resp = call_with(tls, NULL, ECHO_PATH("Unary"), &err);
    ck_assert_msg(resp != NULL, "%s", err.text);
    echo_response_free(resp);
    resp = call_with(NULL, NULL, ECHO_PATH("Unary"), &err);
    ck_assert_msg(resp != NULL, "%s", err.text);
    echo_response_free(resp);
    echo_server_stop(&server, 1000);
    berth_tls_free(tls);
}
END_TEST

/* ---------------------------------------------------------------------- bad files */

static const struct {
    const char *cert, *key, *authorities; /* names in the folder; NULL: none */
    const char *says;
} file_rows[] = {
    {"server.pem", "server.key", "ours.pem", NULL},
    {"server.pem", "server.key", NULL, NULL},
    {NULL, NULL, "ours.pem", NULL},
    {NULL, NULL, "both.pem", NULL},
    {NULL, NULL, NULL, "neither a certificate nor authorities"},
    {"server.pem", NULL, "ours.pem", "a certificate needs its key"},
    {NULL, "server.key", "ours.pem", "a certificate needs its key"},
    {"none.pem", "server.key", NULL, "none.pem: No such file or directory"},
    {"server.pem", "none.key", NULL, "none.key: No such file or directory"},
    {"server.pem", "server.key", "none.pem", "none.pem: No such file or directory"},
    {"server.pem", "other.key", NULL, "other.key: the private key is not that of"},
    {"empty.pem", "server.key", NULL, "empty.pem: holds no certificate"},
    {"server.pem", "empty.pem", NULL, "empty.pem: cannot read the private key"},
    {"server.pem", "server.key", "empty.pem", "empty.pem: holds no certificate"},
    {"noise.pem", "server.key", NULL, "noise.pem: cannot use the certificate"},
    {"server.pem", "noise.pem", NULL, "noise.pem: cannot read the private key"},
    {"server.pem", "server.key", "noise.pem", "noise.pem: cannot read a certificate"},
    {"server.key", "server.pem", NULL, "server.pem: cannot read the private key"},
    {"server.pem", "locked.key", NULL, "locked.key: cannot read the private key"},
    {"weak.pem", "weak.key", NULL, "weak.pem: cannot use the certificate"},
    {"", "server.key", NULL, "a certificate needs its key"},
    {".", "server.key", NULL, ".: Invalid argument"},
};

static void write_bad_files(void)
{
    const struct certs_options weak = {.issuer = ours, .sans = "IP:127.0.0.1", .rsa_bits = 512};
    const struct certs_options other = {.issuer = ours, .sans = "IP:127.0.0.1"};

    issue_server();
    certs_issue("other", &other);
    certs_issue("weak", &weak);
    certs_write("empty.pem", "");
    certs_write("noise.pem", "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n");
    certs_write("locked.key", "-----BEGIN ENCRYPTED PRIVATE KEY-----\nQUJD\n"
                              "-----END ENCRYPTED PRIVATE KEY-----\n");
    certs_copy("ours.pem", "both.pem");
}

/* What does not hold together is refused at the start, with the file's name. */
START_TEST(files__each_kind__as_the_row_says)
{
    const char *const names[] = {file_rows[_i].cert, file_rows[_i].key,
                                 file_rows[_i].authorities};
    const char *paths[3];
    struct berth_error err = {0};
    struct berth_tls *tls = NULL;
    enum berth_code code;

    write_bad_files();
    for (int i = 0; i < 3; i++)
        paths[i] = names[i] && *names[i] ? certs_path(names[i]) : names[i];
    code =
        berth_tls_new(&(struct berth_tls_options){paths[0], paths[1], paths[2], 0}, &tls, &err);
    if (!file_rows[_i].says) {
        ck_assert_msg(!code, "%s", err.text);
    } else {
        ck_assert_int_eq(code, BERTH_INVALID_ARGUMENT);
        ck_assert_msg(strstr(err.text, file_rows[_i].says) != NULL, "%s", err.text);
    }
    berth_tls_free(tls);
}
END_TEST

/* Servers and channels say what they lack. */
START_TEST(options__something_missing__refused)
{
    BERTH_AUTO(berth_tls_free) struct berth_tls *trust = load(NULL, "ours.pem");
    BERTH_AUTO(berth_tls_free) struct berth_tls *bare = NULL;
    struct berth_channel *channel;
    struct berth_server *idle;
    struct berth_loop *loop;
    struct berth_error err = {0};
    struct berth_server_options options = {.tls = trust};

    issue_server();
    bare = load("server", NULL);
    berth_rpc_init();
    ck_assert(!berth_loop_new(&loop, &err));
    options.loop = loop;
    ck_assert_int_eq(berth_server_new(&options, &idle, &err), BERTH_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(err.text, "needs a certificate"));
    options.tls = bare;
    options.tls_clients = BERTH_TLS_CLIENTS_MUST_SHOW;
    ck_assert_int_eq(berth_server_new(&options, &idle, &err), BERTH_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(err.text, "need authorities"));
    options.tls = NULL;
    ck_assert(!berth_server_new(&options, &idle, &err));
    ck_assert_int_eq(berth_server_listen_tls(idle, "127.0.0.1:0", NULL, &err),
                     BERTH_INVALID_ARGUMENT);
    berth_server_free(idle);
    options.tls = bare;
    options.tls_clients = BERTH_TLS_CLIENTS_ANY;
    ck_assert(!berth_server_new(&options, &idle, &err));
    ck_assert_int_eq(berth_server_listen_tls(idle, "unix:/tmp/x.sock", NULL, &err),
                     BERTH_INVALID_ARGUMENT);
    ck_assert(!berth_server_listen_tls(idle, "127.0.0.1:0", NULL, &err));
    berth_server_free(idle); /* never started */
    ck_assert_int_eq(berth_channel_new("127.0.0.1:1",
                                       &(struct berth_channel_options){.tls = bare}, &channel,
                                       &err),
                     BERTH_INVALID_ARGUMENT);
    berth_loop_free(loop);
    berth_rpc_done();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("common/rpc tls");
    TCase *tcase = tcase_create("tls");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, server_certificate__each_kind__as_the_row_says, 0,
                        (int)BERTH_COUNT(server_rows));
    tcase_add_loop_test(tcase, client_certificate__each_kind__as_the_row_says, 0,
                        (int)BERTH_COUNT(client_rows));
    tcase_add_test(tcase, client_certificate__no_list__no_peer);
    tcase_add_test(tcase, peer_name__without_tls__uid_or_nothing);
    tcase_add_loop_test(tcase, versions__each__as_the_row_says, 0,
                        (int)BERTH_COUNT(version_rows));
    tcase_add_test(tcase, mixture__plaintext_and_tls__refused_soon);
    tcase_add_loop_test(tcase, files__each_kind__as_the_row_says, 0,
                        (int)BERTH_COUNT(file_rows));
    tcase_add_test(tcase, options__something_missing__refused);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
