/* Clients that are not ours, in Python, against the EchoService. Arguments: foreign.py and
 * hoarder.py. Exit code 77: they cannot run. */
#include <check.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>

#include "tests/component/rpc/client.h"

enum { SKIP = 77, MIB = 1 << 20 };

extern char **environ;
static const char *foreign, *hoarder;

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

int main(int argc, char **argv)
{
    const char *probe[] = {"python3", "-c", "import grpc", NULL};
    Suite *suite = suite_create("common/rpc foreign");
    TCase *tcase = tcase_create("foreign");
    SRunner *runner;
    int failed;

    foreign = argc > 2 ? argv[1] : "";
    hoarder = argc > 2 ? argv[2] : "";
    if (wait_for(start_python(probe)) != 0) {
        puts("SKIP: python3-grpcio is not installed");
        return SKIP;
    }
    runner = srunner_create(suite);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, foreign__grpcio__promises_hold);
    tcase_add_test(tcase, foreign__half_sent_messages__cut_off);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
