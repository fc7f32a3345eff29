/* Clients that are not ours, in Python, against the EchoService. Arguments: foreign.py,
 * hoarder.py and tls_foreign.py. Exit code 77: they cannot run. */
#include <check.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>

#include "tests/component/rpc/certs.h"
#include "tests/component/rpc/client.h"

enum { SKIP = 77, MIB = 1 << 20 };

extern char **environ;
static const char *foreign, *hoarder, *tls_foreign;

static pid_t start_python(const char *const *args)
{
    pid_t child;

    if (posix_spawn(&child, "/usr/bin/python3", NULL, NULL, (char *const *)args, environ) != 0)
        return -1;
    return child;
}

static int wait_for(pid_t child)
{
    int status = -1;

    if (child < 0 || waitpid(child, &status, 0) != child)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Every kind of call, failures, limits and compression, as grpcio sees them. */
START_TEST(foreign__grpcio__promises_hold)
{
    struct echo_server server;
    const char *args[] = {"python3", foreign, server.address, NULL};

    echo_server_start(&server, NULL, NULL);
    ck_assert_int_eq(wait_for(start_python(args)), 0);
    echo_server_stop(&server, 1000);
}
END_TEST

/* Uploads that begin and never end are cut off when they have taken what they may, and the
 * server goes on. */
START_TEST(foreign__half_sent_messages__cut_off)
{
    const struct berth_server_options options = {.memory_bytes = 16 * MIB};
    struct echo_server server;
    const char *args[] = {"python3", hoarder, server.address, "100", "4000000", "20", NULL};
    const struct berth_call_options again = {.idempotent = true};
    struct berth_channel *channel;
    struct berth_error err = {0};
    EchoResponse *resp;

    echo_server_start(&server, &options, NULL);
    ck_assert_int_eq(wait_for(start_python(args)), 0);
    ck_assert(!berth_channel_new(server.address, NULL, &channel, &err));
    for (int i = 0; i < 10; i++) {
        ck_assert_msg(!echo_call(channel, ECHO_PATH("Unary"), NULL, &again, &resp, &err), "%s",
                      err.text);
        echo_response_free(resp);
    }
    berth_channel_free(channel);
    echo_server_stop(&server, 1000);
}
END_TEST

/* The same over TLS: versions, certificates, and who the caller is. */
START_TEST(foreign__tls__promises_hold)
{
    static const char *const sans[] = {"spiffe://berth/foreign"};
    struct certs_authority *ours, *theirs;
    struct berth_server_options options = {.tls_clients = BERTH_TLS_CLIENTS_MAY_SHOW,
                                           .peer_sans = sans,
                                           .n_peer_sans = BERTH_COUNT(sans)};
    struct certs_options certificate = {.sans = "IP:127.0.0.1"};
    struct berth_tls_options files;
    struct echo_server server;
    struct berth_error err = {0};
    const char *args[10] = {"python3", tls_foreign};

    certs_open();
    ours = certs_authority_new("ours", NULL);
    theirs = certs_authority_new("theirs", NULL);
    certificate.issuer = ours;
    certs_issue("server", &certificate);
    certificate.sans = "URI:spiffe://berth/foreign";
    certs_issue("client", &certificate);
    certificate.issuer = theirs;
    certs_issue("stranger", &certificate);
    files = (struct berth_tls_options){.cert = certs_path("server.pem"),
                                       .key = certs_path("server.key"),
                                       .authorities = certs_path("ours.pem")};
    ck_assert_msg(!berth_tls_new(&files, &options.tls, &err), "%s", err.text);
    echo_server_start(&server, &options, NULL);
    args[2] = server.tls_address;
    args[3] = certs_path("ours.pem");
    args[4] = certs_path("client.pem");
    args[5] = certs_path("client.key");
    args[6] = certs_path("stranger.pem");
    args[7] = certs_path("stranger.key");
    ck_assert_int_eq(wait_for(start_python(args)), 0);
    echo_server_stop(&server, 1000);
    berth_tls_free(options.tls);
    certs_authority_free(ours);
    certs_authority_free(theirs);
    certs_close();
}
END_TEST

int main(int argc, char **argv)
{
    const char *probe[] = {"python3", "-c", "import grpc", NULL};
    Suite *suite = suite_create("common/rpc foreign");
    TCase *tcase = tcase_create("foreign");
    SRunner *runner;
    int failed;

    foreign = argc > 3 ? argv[1] : "";
    hoarder = argc > 3 ? argv[2] : "";
    tls_foreign = argc > 3 ? argv[3] : "";
    if (wait_for(start_python(probe)) != 0) {
        puts("SKIP: python3-grpcio is not installed");
        return SKIP;
    }
    runner = srunner_create(suite);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, foreign__grpcio__promises_hold);
    tcase_add_test(tcase, foreign__tls__promises_hold);
    tcase_add_test(tcase, foreign__half_sent_messages__cut_off);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
