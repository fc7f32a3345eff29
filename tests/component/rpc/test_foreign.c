/* Runs foreign.py against the EchoService. Argument: the script. Exit code 77: it cannot run.
 */
#include <check.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>

#include "tests/component/rpc/echo.h"

enum { SKIP = 77 };

extern char **environ;
static const char *script;

static int run_python(const char *const *args)
{
    int status = -1;
    pid_t child;

    if (posix_spawn(&child, "/usr/bin/python3", NULL, NULL, (char *const *)args, environ) !=
            0 ||
        waitpid(child, &status, 0) != child)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Every kind of call, failures, limits and compression, as grpcio sees them. */
START_TEST(foreign__grpcio__promises_hold)
{
    struct echo_server server;

    echo_server_start(&server, NULL, NULL);
    ck_assert_int_eq(run_python((const char *const[]){"python3", script, server.address, NULL}),
                     0);
    echo_server_stop(&server, 1000);
}
END_TEST

int main(int argc, char **argv)
{
    Suite *suite = suite_create("common/rpc foreign");
    TCase *tcase = tcase_create("foreign");
    SRunner *runner;
    int failed;

    script = argc > 1 ? argv[1] : "";
    if (run_python((const char *const[]){"python3", "-c", "import grpc", NULL}) != 0) {
        puts("SKIP: python3-grpcio is not installed");
        return SKIP;
    }
    runner = srunner_create(suite);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, foreign__grpcio__promises_hold);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
