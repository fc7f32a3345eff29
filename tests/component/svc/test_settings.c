/* The command line and the settings of a process: --check tells, nothing is started. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/base.h"
#include "tests/component/svc/process.h"

enum { DEADLINE_MS = 20000 };

static const char *tiny;
static struct process process;

/* Runs with up to three more words; the exit code. Output is in process.text. */
static int run(const char *name, const char *a, const char *b, const char *c)
{
    const char *argv[] = {tiny, a, b, c, NULL};
    int status;

    process_start(&process, name, argv);
    status = process_wait(&process, DEADLINE_MS);
    ck_assert_msg(WIFEXITED(status), "%s", process.text);
    return WEXITSTATUS(status);
}

static const struct {
    const char *word;
    const char *says; /* NULL: good */
} rows[] = {
    {"--listen=127.0.0.1:0", NULL},
    {"--listen=127.255.255.254:65535", NULL},
    {"--listen=[::1]:7400", NULL},
    {"--listen=unix:/tmp/x.sock", NULL},
    {"--listen=", NULL},
    {"--listen=0.0.0.0:7400", "listen: must be a loopback address"},
    {"--listen=[::]:7400", "listen: must be a loopback address"},
    {"--listen=*:7400", "listen: must be a loopback address"},
    {"--listen=:7400", "listen: must be a loopback address"},
    {"--listen=10.0.0.1:7400", "listen: must be a loopback address"},
    {"--listen=128.0.0.1:7400", "listen: must be a loopback address"},
    {"--listen=192.0.2.1:7400", "listen: must be a loopback address"},
    {"--listen=[::ffff:127.0.0.1]:7400", "listen: must be a loopback address"},
    {"--listen=[::ffff:0.0.0.0]:7400", "listen: must be a loopback address"},
    {"--listen=[fe80::1]:7400", "listen: must be a loopback address"},
    {"--listen=localhost:7400", "listen: must be a loopback address"},
    {"--listen=127.0.0.1.evil.example:7400", "listen: must be a loopback address"},
    {"--listen=127.1:7400", "listen: must be a loopback address"},
    {"--listen=2130706433:7400", "listen: must be a loopback address"},
    {"--listen=0x7f.0.0.1:7400", "listen: must be a loopback address"},
    {"--listen=127.0.0.1", "listen: must be a loopback address"},
    {"--listen=127.0.0.1:", "listen: must be a loopback address"},
    {"--listen=127.0.0.1:65536", "listen: must be a loopback address"},
    {"--listen=127.0.0.1:-1", "listen: must be a loopback address"},
    {"--listen=127.0.0.1:7400 ", "listen: must be a loopback address"},
    {"--listen=127.0.0.1:7400,0.0.0.0:7400", "listen: must be a loopback address"},
    {"--listen=::1:7400", "listen: must be a loopback address"},
    {"--listen=[::1:7400", "listen: must be a loopback address"},
    {"--listen=unix:relative", "listen: must be a loopback address"},
    {"--listen=unix:", "listen: must be a loopback address"},
    {"--listen=unix-abstract:x", "listen: must be a loopback address"},
    {"--listen=dns:///127.0.0.1:7400", "listen: must be a loopback address"},
    {"--metrics_listen=", NULL},
    {"--metrics-listen=127.0.0.1:0", NULL},
    {"--metrics-listen=0.0.0.0:7500", "metrics_listen: must be a loopback address"},
    {"--metrics-listen=unix:/tmp/m.sock", "metrics_listen: must be a loopback address"},
    {"--deployment=a", NULL},
    {"--deployment=a-1234567890123456789012345678901234567890123456789012345678901-", NULL},
    {"--deployment=a-12345678901234567890123456789012345678901234567890123456789012-",
     "deployment: must be 1 to 64"},
    {"--deployment=", "deployment: must be 1 to 64"},
    {"--deployment=A", "deployment: must be 1 to 64"},
    {"--deployment=a.b", "deployment: must be 1 to 64"},
    {"--deployment=a\"b", "deployment: must be 1 to 64"},
    {"--log_level=debug", NULL},
    {"--log_level=trace", "log_level: must be"},
    {"--peer_uids=", NULL},
    {"--peer_uids=0,65534,4294967294", NULL},
    {"--peer_uids=4294967295", "peer_uids: must be"}, /* (uid_t)-1: nobody at all */
    {"--peer_uids=99999999999", "peer_uids: must be"},
    {"--peer_uids=-1", "peer_uids: must be"},
    {"--peer_uids=1,", "peer_uids: must be"},
    {"--peer_uids=,1", "peer_uids: must be"},
    {"--peer_uids=1 2", "peer_uids: must be"},
    {"--peer_uids=root", "peer_uids: must be"},
    {"--workers=9", NULL},
    {"--workers=8", "workers: must be"},
    {"--workers=1025", "workers: must be"},
    {"--workers=-1", "workers: must be"},
    {"--drain=0s", NULL},
    {"--drain=1h", NULL},
    {"--drain=61m", "drain: must be at most 1h"},
    {"--drain=5", "drain: must be a duration"},
    {"--run_dir=/tmp", NULL},
    {"--run_dir=tmp", "run_dir: must be an absolute path"},
    {"--run_dir=", "run_dir: must be an absolute path"},
    {"--insecure_dev", NULL},
    {"--insecure-dev", NULL},
    {"--insecure-dev=false", NULL},
    {"--insecure-dev=maybe", "insecure_dev: must be true or false"},
    {"--ready_file=/x", NULL},
    {"--secret=", NULL},
    {"--secret=sesame", "secret: everybody can read the command line"},
    {"--unknown=1", "unknown: there is no such setting"},
    {"--listen", "listen: no value"},
    {"--config", "config: there is no such setting"},
    {"--config=/nonexistent", "/nonexistent: No such file"},
    {"--", "not an option"},
    {"listen=x", "not an option"},
    {"-x", "not an option"},
    {"", "not an option"},
};

/* Each setting's edges, with a text that names it; a refusal is exit code 2. */
START_TEST(check__each_setting__judged)
{
    int code = run("tiny", "--check", rows[_i].word, NULL);

    if (rows[_i].says) {
        ck_assert_int_eq(code, 2);
        ck_assert_msg(strstr(process.text, rows[_i].says) != NULL, "%s", process.text);
        ck_assert_ptr_null(strstr(process.text, "sesame"));
    } else {
        ck_assert_msg(code == 0, "%s", process.text);
        ck_assert_str_eq(process.text, "the settings are valid\n");
    }
}
END_TEST

/* An internal service has no TCP but for development, and then loopback only. */
START_TEST(check__internal_service__unix_socket_only)
{
    ck_assert_int_eq(run("internal", "--check", NULL, NULL), 0);
    ck_assert_int_eq(run("internal", "--check", "--listen=127.0.0.1:7403", NULL), 2);
    ck_assert_ptr_nonnull(strstr(process.text, "internal is internal"));
    ck_assert_int_eq(run("internal", "--check", "--listen=127.0.0.1:7403", "--insecure-dev"),
                     0);
    ck_assert_int_eq(run("internal", "--check", "--listen=0.0.0.0:7403", "--insecure-dev"), 2);
    ck_assert_int_eq(run("tiny", "--check", "--listen=0.0.0.0:7403", "--insecure-dev"), 2);
}
END_TEST

/* Every setting, own and common, is in the help. */
START_TEST(help__own_and_common__all_shown)
{
    static const char *const words[] = {"berth-tiny - a service for tests",
                                        "--listen=",
                                        "--metrics_listen=",
                                        "--run_dir=",
                                        "--deployment=",
                                        "--workers=",
                                        "--peer_uids=",
                                        "--insecure_dev=",
                                        "--drain=",
                                        "--log_level=",
                                        "--ready_file=",
                                        "--secret=",
                                        "127.0.0.1:47400",
                                        "127.0.0.1:47500"};

    ck_assert_int_eq(run("tiny", "--help", NULL, NULL), 0);
    for (size_t i = 0; i < BERTH_COUNT(words); i++)
        ck_assert_msg(strstr(process.text, words[i]) != NULL, "%s not in %s", words[i],
                      process.text);
    ck_assert_int_eq(run("tiny", "--version", NULL, NULL), 0);
    ck_assert_ptr_nonnull(strstr(process.text, "berth-tiny " BERTH_VERSION));
}
END_TEST

/* File, environment and command line together; a secret is set or unset, never shown. */
START_TEST(print_settings__all_sources__later_wins)
{
    char path[] = "/tmp/berth-svc-XXXXXX", word[64];
    static const char text[] =
        "{\"deployment\":\"file\",\"drain\":\"3s\",\"secret\":\"sesame\"}";
    int fd = mkstemp(path);

    ck_assert_int_eq(write(fd, text, sizeof text - 1), (ssize_t)sizeof text - 1);
    close(fd);
    setenv("BERTH_DEPLOYMENT", "environment", 1);
    setenv("BERTH_LOG_LEVEL", "warn", 1);
    snprintf(word, sizeof word, "--config=%s", path);
    ck_assert_int_eq(run("tiny", "--print-settings", word, "--log-level=error"), 0);
    unlink(path);
    ck_assert_ptr_nonnull(strstr(process.text, "deployment=environment\n"));
    ck_assert_ptr_nonnull(strstr(process.text, "log_level=error\n"));
    ck_assert_ptr_nonnull(strstr(process.text, "drain=3000ms\n"));
    ck_assert_ptr_nonnull(strstr(process.text, "secret=set\n"));
    ck_assert_ptr_null(strstr(process.text, "sesame"));
}
END_TEST

int main(int argc, char **argv)
{
    Suite *suite = suite_create("svc/settings");
    TCase *tcase = tcase_create("settings");
    SRunner *runner = srunner_create(suite);
    int failed;

    if (argc < 2)
        return EXIT_FAILURE;
    tiny = argv[1];
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, check__each_setting__judged, 0, (int)BERTH_COUNT(rows));
    tcase_add_test(tcase, check__internal_service__unix_socket_only);
    tcase_add_test(tcase, help__own_and_common__all_shown);
    tcase_add_test(tcase, print_settings__all_sources__later_wins);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
