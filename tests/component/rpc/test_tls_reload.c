/* Certificates that change while server and channels are at work. */
#include <check.h>
#include <poll.h>
#include <stdio.h>
#include <sys/stat.h>

#include "common/time/time.h"
#include "tests/component/rpc/certs.h"
#include "tests/component/rpc/client.h"
#include "tests/component/rpc/raw.h"

enum { HOUR = 3600, WAIT_MS = 10000, POLL_MS = 20, NEVER_MS = 3600 * 1000 };

static struct certs_authority *ours, *theirs;
static struct echo_server server;
static struct berth_tls *server_tls, *client_tls;
static struct berth_channel *channel;

static void issue(const char *name, const struct certs_authority *issuer, const char *sans)
{
    const struct certs_options options = {.issuer = issuer, .sans = sans};

    certs_issue(name, &options);
}

static struct berth_tls *load(const char *name, const char *authorities, int64_t poll_ms)
{
    char cert[32], key[32];
    struct berth_tls_options options = {.poll_ms = poll_ms};
    struct berth_error err = {0};
    struct berth_tls *tls;

    snprintf(cert, sizeof cert, "%s.pem", name);
    snprintf(key, sizeof key, "%s.key", name);
    options.cert = certs_path(cert);
    options.key = certs_path(key);
    options.authorities = authorities ? certs_path(authorities) : NULL;
    ck_assert_msg(!berth_tls_new(&options, &tls, &err), "%s", err.text);
    return tls;
}

/* A server that knows its clients by server-ca.pem, and a channel to it with client-ca.pem. */
static void start(int64_t poll_ms)
{
    struct berth_server_options options = {.tls_clients = BERTH_TLS_CLIENTS_MUST_SHOW};
    struct berth_channel_options how = {0};
    struct berth_error err = {0};

    certs_copy("ours.pem", "server-ca.pem");
    certs_copy("ours.pem", "client-ca.pem");
    issue("server", ours, "IP:127.0.0.1,DNS:first.example");
    issue("client", ours, "DNS:first.client");
    server_tls = options.tls = load("server", "server-ca.pem", poll_ms);
    client_tls = how.tls = load("client", "client-ca.pem", poll_ms);
    echo_server_start(&server, &options, NULL);
    ck_assert(!berth_channel_new(server.tls_address, &how, &channel, &err));
}

static void setup(void)
{
    certs_open();
    ours = certs_authority_new("ours", NULL);
    theirs = certs_authority_new("theirs", NULL);
}

static void teardown(void)
{
    channel = berth_channel_free(channel);
    if (server.echo.server)
        echo_server_stop(&server, 1000);
    berth_tls_free(server_tls);
    berth_tls_free(client_tls);
    certs_authority_free(ours);
    certs_authority_free(theirs);
    certs_close();
}

/* One call on channel of; the caller's name as the server saw it ("" where the call failed). */
static const char *name_by(struct berth_channel *of)
{
    const struct berth_call_options again = {.idempotent = true};
    static char name[64];
    struct berth_error err = {0};
    EchoResponse *resp;

    name[0] = 0;
    if (!echo_call(of, ECHO_PATH("Unary"), NULL, &again, &resp, &err))
        snprintf(name, sizeof name, "%s", resp->peer_name);
    echo_response_free(resp);
    return name;
}

/* A fresh connection by client_tls that wants server_name. */
static bool reaches(const char *server_name)
{
    const struct berth_channel_options how = {.tls = client_tls, .server_name = server_name};
    struct berth_channel *fresh;
    struct berth_error err = {0};
    bool reached;

    ck_assert(!berth_channel_new(server.tls_address, &how, &fresh, &err));
    reached = *name_by(fresh) != 0;
    berth_channel_free(fresh);
    return reached;
}

static bool metrics_say(const char *line)
{
    char *text = berth_server_metrics(server.echo.server);
    bool says = text && strstr(text, line);

    free(text);
    return says;
}

/* ------------------------------------------------------------------------ servers */

/* New connections see the new certificate, the one that stands goes on. */
START_TEST(server__certificate_changed__used_for_new_connections)
{
    start(NEVER_MS);
    ck_assert_str_eq(name_by(channel), "first.client");
    ck_assert(reaches("first.example"));
    ck_assert(!reaches("second.example"));
    issue("server", ours, "IP:127.0.0.1,DNS:second.example");
    berth_tls_reload(server_tls);
    ck_assert(reaches("second.example"));
    ck_assert(!reaches("first.example"));
    ck_assert_str_eq(name_by(channel), "first.client");
    ck_assert(metrics_say("\nberth_tls_reloads_total 1\n"));
    ck_assert(metrics_say("\nberth_tls_reload_failures_total 0\n"));
}
END_TEST

/* A certificate is enough to serve; others are taken up all the same. */
START_TEST(server__no_authorities__serves_and_reloads)
{
    struct berth_server_options options = {0};
    struct berth_channel_options how = {0};
    EchoResponse *resp;

    certs_copy("ours.pem", "client-ca.pem");
    issue("server", ours, "IP:127.0.0.1,DNS:first.example");
    issue("client", ours, "DNS:first.client");
    server_tls = options.tls = load("server", NULL, NEVER_MS);
    client_tls = how.tls = load("client", "client-ca.pem", NEVER_MS);
    echo_server_start(&server, &options, NULL);
    ck_assert(!berth_channel_new(server.tls_address, &how, &channel, NULL));
    ck_assert(!echo_call(channel, ECHO_PATH("Unary"), NULL, NULL, &resp, NULL));
    echo_response_free(resp);
    issue("server", theirs, "IP:127.0.0.1");
    berth_tls_reload(server_tls);
    ck_assert(metrics_say("\nberth_tls_reloads_total 1\n"));
}
END_TEST

/* Nobody has to say so: the files are looked at. */
START_TEST(server__certificate_changed__seen_by_itself)
{
    int64_t end_ms = berth_tick_ms() + WAIT_MS;

    start(POLL_MS);
    ck_assert(!reaches("second.example"));
    issue("server", ours, "IP:127.0.0.1,DNS:second.example");
    while (!reaches("second.example"))
        ck_assert_int_lt(berth_tick_ms(), end_ms);
}
END_TEST

/* Clients of an authority that is not trusted any more do not get in, those of the new one do.
 */
START_TEST(server__authorities_changed__clients_judged_by_the_new)
{
    start(NEVER_MS);
    ck_assert(reaches("first.example"));
    certs_copy("theirs.pem", "server-ca.pem");
    berth_tls_reload(server_tls);
    ck_assert(!reaches("first.example"));
    issue("client", theirs, "DNS:second.client");
    berth_tls_reload(client_tls);
    ck_assert(reaches("first.example"));
}
END_TEST

static bool answers(struct echo_client *client)
{
    EchoRequest req = ECHO_REQUEST_INIT;
    struct berth_buf *msg;
    bool answered;

    if (!echo_client_write_request(client, &req))
        return false;
    msg = echo_client_read(client);
    answered = msg != NULL;
    berth_buf_unref(msg);
    return answered;
}

/* A stream of a client whose authority is withdrawn ends, whoever speaks next, and at the
 * latest with a ping; one of an authority that stays goes on. */
START_TEST(server__authority_withdrawn__its_streams_cut_the_others_go_on)
{
    struct berth_server_options options = {.tls_clients = BERTH_TLS_CLIENTS_MUST_SHOW,
                                           .keepalive_ms = 1000};
    struct berth_channel_options how = {0};
    struct berth_tls *other_tls;
    struct berth_channel *other;
    struct echo_client speaks, stays;

    certs_join("ours.pem", "theirs.pem", "server-ca.pem");
    certs_copy("ours.pem", "client-ca.pem");
    issue("server", ours, "IP:127.0.0.1");
    issue("client", ours, "DNS:first.client");
    issue("other", theirs, "DNS:other.client");
    server_tls = options.tls = load("server", "server-ca.pem", NEVER_MS);
    client_tls = how.tls = load("client", "client-ca.pem", NEVER_MS);
    echo_server_start(&server, &options, NULL);
    ck_assert(!berth_channel_new(server.tls_address, &how, &channel, NULL));
    other_tls = how.tls = load("other", "client-ca.pem", NEVER_MS);
    ck_assert(!berth_channel_new(server.tls_address, &how, &other, NULL));
    echo_client_open(&speaks, channel, server.loop, ECHO_PATH("Bidi"), NULL);
    echo_client_open(&stays, other, server.loop, ECHO_PATH("Bidi"), NULL);
    ck_assert(answers(&speaks));
    ck_assert(answers(&stays));
    certs_copy("theirs.pem", "server-ca.pem");
    berth_tls_reload(server_tls);
    if (_i == 0)
        (void)answers(&speaks);
    ck_assert_int_ne(echo_client_wait(&speaks), BERTH_OK);
    ck_assert_str_eq(name_by(channel), "");
    ck_assert(answers(&stays));
    echo_client_deinit(&speaks);
    echo_client_deinit(&stays);
    berth_channel_free(other);
    berth_tls_free(other_tls);
}
END_TEST

/* A session of the time before is not taken up again: its certificate was judged by the old
 * rule. */
START_TEST(server__authorities_changed__old_session_not_resumed)
{
    SSL_SESSION *session = NULL;
    bool resumed = false;
    struct tls_by_hand how;
    uint16_t port;

    start(NEVER_MS);
    port = port_of(server.tls_address);
    how = (struct tls_by_hand){.cert = certs_path("client.pem"),
                               .key = certs_path("client.key"),
                               .ret_session = &session,
                               .ret_resumed = &resumed};
    ck_assert_str_eq(tls_by_hand(port, &how), "TLSv1.3");
    if (!session)
        return; /* the server offers none: nothing to resume */
    certs_copy("theirs.pem", "server-ca.pem");
    berth_tls_reload(server_tls);
    how.ret_session = NULL;
    how.session = session;
    ck_assert_str_eq(tls_by_hand(port, &how), "");
    ck_assert(!resumed);
    SSL_SESSION_free(session);
}
END_TEST

static void break_with_noise(void)
{
    certs_write("server.pem", "noise\n");
}

static void break_with_other_key(void)
{
    issue("spare", ours, "IP:127.0.0.1");
    certs_copy("spare.key", "server.key");
}

static void break_by_removal(void)
{
    (void)unlink(certs_path("server.key"));
}

static void break_authorities(void)
{
    certs_write("server-ca.pem", "");
}

static void break_with_expired(void)
{
    const struct certs_options options = {.issuer = ours,
                                          .sans = "IP:127.0.0.1,DNS:second.example",
                                          .from_seconds = -2 * HOUR,
                                          .until_seconds = -HOUR};

    certs_issue("server", &options);
}

static void break_with_future(void)
{
    const struct certs_options options = {.issuer = ours,
                                          .sans = "IP:127.0.0.1,DNS:second.example",
                                          .from_seconds = HOUR,
                                          .until_seconds = 2 * HOUR};

    certs_issue("server", &options);
}

static void (*const breaks[])(void) = {break_with_noise,   break_with_other_key,
                                       break_by_removal,   break_authorities,
                                       break_with_expired, break_with_future};

/* What cannot be used is not used, and once it is mended the new ones are. */
START_TEST(server__files_broken__old_kept_until_mended)
{
    start(NEVER_MS);
    breaks[_i]();
    berth_tls_reload(server_tls);
    ck_assert(metrics_say("\nberth_tls_reload_failures_total 1\n"));
    ck_assert(reaches("first.example"));
    berth_tls_reload(server_tls);
    ck_assert(reaches("first.example"));
    ck_assert(metrics_say("\nberth_tls_reloads_total 0\n"));
    certs_copy("ours.pem", "server-ca.pem");
    issue("server", ours, "IP:127.0.0.1,DNS:third.example");
    berth_tls_reload(server_tls);
    ck_assert(reaches("third.example"));
    ck_assert(metrics_say("\nberth_tls_reloads_total 1\n"));
}
END_TEST

/* Files that were touched, but say the same, change nothing. */
START_TEST(server__files_touched__nothing_changes)
{
    start(NEVER_MS);
    certs_copy("server.pem", "server.pem");
    certs_copy("server.key", "server.key");
    berth_tls_reload(server_tls);
    ck_assert(metrics_say("\nberth_tls_reloads_total 0\n"));
    ck_assert(metrics_say("\nberth_tls_reload_failures_total 0\n"));
    ck_assert(reaches("first.example"));
}
END_TEST

/* ----------------------------------------------------------------------- channels */

/* A channel shows its new certificate with the next call. */
START_TEST(channel__certificate_changed__shown_with_the_next_call)
{
    start(NEVER_MS);
    ck_assert_str_eq(name_by(channel), "first.client");
    issue("client", ours, "DNS:second.client");
    ck_assert_str_eq(name_by(channel), "first.client");
    berth_tls_reload(client_tls);
    ck_assert_str_eq(name_by(channel), "second.client");
    ck_assert(berth_channel_ready(channel, WAIT_MS));
}
END_TEST

/* What is under way stays on its connection and ends well. */
START_TEST(channel__certificate_changed__streams_go_on)
{
    EchoRequest req = ECHO_REQUEST_INIT;
    struct echo_client client;
    EchoResponse *resp;

    start(NEVER_MS);
    echo_client_open(&client, channel, server.loop, ECHO_PATH("Bidi"), NULL);
    for (int i = 0; i < 3; i++) {
        ck_assert(echo_client_write_request(&client, &req));
        resp = echo_client_read_response(&client);
        ck_assert_ptr_nonnull(resp);
        echo_response_free(resp);
        if (i == 0) {
            issue("client", ours, "DNS:second.client");
            berth_tls_reload(client_tls);
            ck_assert_str_eq(name_by(channel), "second.client");
        }
    }
    echo_client_half_close(&client);
    ck_assert_ptr_null(echo_client_read(&client));
    ck_assert_int_eq(echo_client_wait(&client), BERTH_OK);
    echo_client_deinit(&client);
}
END_TEST

/* A suite moves to another authority: both in the bundles, then the certificates, then the old
 * one out of the bundles. No call is lost. */
START_TEST(suite__authority_replaced__no_gap)
{
    start(NEVER_MS);
    ck_assert_str_eq(name_by(channel), "first.client");
    certs_join("ours.pem", "theirs.pem", "client-ca.pem");
    certs_join("ours.pem", "theirs.pem", "server-ca.pem");
    berth_tls_reload(client_tls);
    berth_tls_reload(server_tls);
    ck_assert_str_eq(name_by(channel), "first.client");
    issue("server", theirs, "IP:127.0.0.1");
    berth_tls_reload(server_tls);
    ck_assert_str_eq(name_by(channel), "first.client");
    issue("client", theirs, "DNS:second.client");
    berth_tls_reload(client_tls);
    ck_assert_str_eq(name_by(channel), "second.client");
    certs_copy("theirs.pem", "client-ca.pem");
    certs_copy("theirs.pem", "server-ca.pem");
    berth_tls_reload(server_tls);
    berth_tls_reload(client_tls);
    ck_assert_str_eq(name_by(channel), "second.client");
}
END_TEST

/* A server of an authority that is not trusted any more is not spoken to again. */
START_TEST(channel__authority_withdrawn__server_refused)
{
    start(NEVER_MS);
    ck_assert_str_eq(name_by(channel), "first.client");
    certs_copy("theirs.pem", "client-ca.pem");
    berth_tls_reload(client_tls);
    ck_assert_str_eq(name_by(channel), "");
}
END_TEST

/* Broken files cost a channel nothing. */
START_TEST(channel__files_broken__goes_on)
{
    start(NEVER_MS);
    certs_write("client.pem", "noise\n");
    certs_write("client-ca.pem", "noise\n");
    berth_tls_reload(client_tls);
    ck_assert_str_eq(name_by(channel), "first.client");
    ck_assert(reaches("first.example"));
}
END_TEST

struct caller {
    pthread_t thread;
    atomic_bool stop;
    unsigned n_calls, n_failed;
    struct berth_error err; /* of the last one that failed */
};

static void *call_on(void *arg)
{
    const struct berth_call_options again = {.idempotent = true};
    struct caller *caller = arg;
    struct berth_error err;
    EchoResponse *resp;

    while (!atomic_load(&caller->stop)) {
        caller->n_calls++;
        if (echo_call(channel, ECHO_PATH("Unary"), NULL, &again, &resp, &err))
            caller->n_failed++, caller->err = err;
        echo_response_free(resp);
    }
    return NULL;
}

/* Calls of several threads while certificates of both sides change under them: none fails. */
START_TEST(channel__changes_under_load__no_call_lost)
{
    struct caller callers[4] = {0};

    start(NEVER_MS);
    for (size_t i = 0; i < BERTH_COUNT(callers); i++)
        ck_assert_int_eq(pthread_create(&callers[i].thread, NULL, call_on, &callers[i]), 0);
    for (int i = 0; i < 20; i++) {
        issue("client", ours, "DNS:next.client");
        issue("server", ours, "IP:127.0.0.1");
        berth_tls_reload(server_tls);
        berth_tls_reload(client_tls);
        ck_assert_str_eq(name_by(channel), "next.client");
    }
    for (size_t i = 0; i < BERTH_COUNT(callers); i++) {
        atomic_store(&callers[i].stop, true);
        pthread_join(callers[i].thread, NULL);
        ck_assert_uint_gt(callers[i].n_calls, 0);
        ck_assert_msg(callers[i].n_failed == 0, "%u failed: %s", callers[i].n_failed,
                      callers[i].err.text);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("common/rpc tls reload");
    TCase *tcase = tcase_create("reload");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, server__certificate_changed__used_for_new_connections);
    tcase_add_test(tcase, server__no_authorities__serves_and_reloads);
    tcase_add_test(tcase, server__certificate_changed__seen_by_itself);
    tcase_add_test(tcase, server__authorities_changed__clients_judged_by_the_new);
    tcase_add_loop_test(tcase, server__authority_withdrawn__its_streams_cut_the_others_go_on, 0,
                        2);
    tcase_add_test(tcase, server__authorities_changed__old_session_not_resumed);
    tcase_add_loop_test(tcase, server__files_broken__old_kept_until_mended, 0,
                        (int)BERTH_COUNT(breaks));
    tcase_add_test(tcase, server__files_touched__nothing_changes);
    tcase_add_test(tcase, channel__certificate_changed__shown_with_the_next_call);
    tcase_add_test(tcase, channel__certificate_changed__streams_go_on);
    tcase_add_test(tcase, suite__authority_replaced__no_gap);
    tcase_add_test(tcase, channel__authority_withdrawn__server_refused);
    tcase_add_test(tcase, channel__files_broken__goes_on);
    tcase_add_test(tcase, channel__changes_under_load__no_call_lost);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
