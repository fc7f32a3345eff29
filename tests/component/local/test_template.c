#include "tests/component/local/rig.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>

#include "common/ids/ids.h"
#include "common/time/time.h"
#include "services/adapter-local/spawner/io.h"

/* Builds with a mmdebstrap of our own, first in PATH: what it is asked to do, how its output is
 * shown, and what happens when it fails, hangs or is given up. */

static struct rig rig;
static char bin[64];

/* The last three arguments: codename, target, sources. */
static const char head[] = "#!/bin/sh\n"
                           "while [ $# -gt 3 ]; do shift; done\n"
                           "grep -q \"^deb .* $1 \" \"$3\" || { echo no sources; exit 3; }\n"
                           "mkdir -p \"$2/etc\" \"$2/usr/bin\"\n"
                           "echo \"I: running apt-get update...\"\n";

static void write_builder(const char *body)
{
    char text[2048];
    int dir = open(bin, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    snprintf(text, sizeof text, "%s%s", head, body);
    ck_assert_int_eq(io_replace(dir, "mmdebstrap", text, strlen(text), false, NULL), BERTH_OK);
    ck_assert_int_eq(fchmodat(dir, "mmdebstrap", 0755, 0), 0);
    close(dir);
}

/* Where a builder that hangs says who it is. */
static const char *pid_file(void)
{
    static char path[128];

    snprintf(path, sizeof path, "%s/pid", bin);
    return path;
}

static void setup(void)
{
    char path[512], random[9];

    snprintf(bin, sizeof bin, "/tmp/berth-bin-%s", berth_id_base36(random, 8));
    ck_assert_int_eq(mkdir(bin, 0755), 0);
    snprintf(path, sizeof path, "%s:%s", bin, getenv("PATH"));
    setenv("PATH", path, 1);
    unsetenv("BERTH_TEST_TEMPLATES");
    rig = (struct rig){0};
    rig_open(&rig);
}

static void teardown(void)
{
    rig_close(&rig);
    ck_assert_int_eq(io_remove_tree(AT_FDCWD, bin), 0);
}

struct shown {
    unsigned n_lines, percent, stop_at; /* stop_at 0: never */
    bool fell;
    char last[512];
};

static bool on_progress(void *arg, const char *step, unsigned percent, const char *message)
{
    struct shown *shown = arg;

    ck_assert_str_ne(step, "");
    shown->n_lines++;
    shown->fell = shown->fell || percent < shown->percent;
    shown->percent = percent;
    snprintf(shown->last, sizeof shown->last, "%s", message);
    return !shown->stop_at || shown->n_lines < shown->stop_at;
}

static enum berth_code build(struct shown *shown, int64_t limit_ms, struct berth_error *err)
{
    return spawn_client_call(rig.client, "build_template", json_pack("{s:s}", "name", "base"),
                             berth_tick_ms() + limit_ms, on_progress, shown, NULL, err);
}

static bool is_listed(const char *id)
{
    struct adapter_template *list = NULL;
    size_t n = 0;
    bool found = false;

    ck_assert_int_eq(template_list(&rig.store, &list, &n, NULL), BERTH_OK);
    for (size_t i = 0; i < n; i++)
        found = found || strcmp(list[i].id, id) == 0;
    free(list);
    return found;
}

/* It is built once, its progress shown and never falling, and sandboxes boot from it. */
START_TEST(build__base__shown_listed_and_booted)
{
    struct shown shown = {0}, again = {0};
    struct berth_error err = {0};
    char id[ADAPTER_ID_SIZE];

    write_builder("echo \"Setting up dash\"\necho \"Unpacking jq\"\necho \"Setting up jq\"\n"
                  "echo \"I: cleaning package lists\"\n");
    ck_assert_msg(build(&shown, 60000, &err) == BERTH_OK, "%s", err.text);
    ck_assert_uint_eq(shown.n_lines, 5);
    ck_assert(!shown.fell);
    ck_assert_uint_ge(shown.percent, 90);
    ck_assert(is_listed("base"));
    /* A second build finds it. */
    ck_assert_int_eq(build(&again, 60000, NULL), BERTH_OK);
    ck_assert_uint_eq(again.n_lines, 0);
    rig_make(&rig, &(struct rig_wish){.fence = 1, .template = "base"}, id);
}
END_TEST

/* A failure says what the builder said last, and leaves no template. */
START_TEST(build__builder_fails__its_last_words)
{
    struct shown shown = {0};
    struct berth_error err = {0};

    write_builder("echo \"E: no space for you\"\nexit 25\n");
    ck_assert_int_ne(build(&shown, 60000, &err), BERTH_OK);
    ck_assert_ptr_nonnull(strstr(err.text, "no space for you"));
    ck_assert(!is_listed("base"));
    write_builder("exit 0\n");
    ck_assert_int_eq(build(&shown, 60000, &err), BERTH_OK);
}
END_TEST

static bool no_builder(void *arg)
{
    char text[64];

    (void)arg;
    if (io_read(AT_FDCWD, pid_file(), text, sizeof text) <= 0)
        return false;
    return !rig_pid_lives((pid_t)strtol(text, NULL, 10));
}

static bool builder_runs(void *arg)
{
    char text[64];

    (void)arg;
    return io_read(AT_FDCWD, pid_file(), text, sizeof text) > 0;
}

#define HANG "echo $$ > \"${0%/*}/pid\"\nwhile :; do echo tick; sleep 0.05; done\n"

/* Given up by the caller: the builder is ended, and the next build starts afresh. */
START_TEST(build__cancelled__builder_ended)
{
    struct shown shown = {.stop_at = 5};
    struct berth_error err = {0};

    unlink(pid_file());
    write_builder(HANG);
    ck_assert_int_eq(build(&shown, 60000, &err), BERTH_CANCELLED);
    ck_assert(rig_until(no_builder, NULL, 10000));
    write_builder("exit 0\n");
    shown.stop_at = 0;
    ck_assert_msg(build(&shown, 60000, &err) == BERTH_OK, "%s", err.text);
    unlink(pid_file());
}
END_TEST

START_TEST(build__too_slow__timeout_and_builder_ended)
{
    struct shown shown = {0};
    struct berth_error err = {0};

    unlink(pid_file());
    write_builder(HANG);
    ck_assert_int_eq(build(&shown, 500, &err), BERTH_DEADLINE_EXCEEDED);
    ck_assert(rig_until(no_builder, NULL, 10000));
    ck_assert(!is_listed("base"));
    unlink(pid_file());
}
END_TEST

static void *build_in_background(void *arg)
{
    struct shown shown = {0};

    (void)arg;
    (void)!build(&shown, 60000, NULL);
    return NULL;
}

/* With the spawner the builder ends as well; the next spawner builds again. */
START_TEST(build__spawner_killed__builder_ended_and_built_again)
{
    pthread_t thread;

    unlink(pid_file());
    write_builder(HANG);
    ck_assert_int_eq(pthread_create(&thread, NULL, build_in_background, NULL), 0);
    ck_assert(rig_until(builder_runs, NULL, 10000));
    write_builder("exit 0\n");
    kill(-rig_spawner_pid(&rig), SIGKILL);
    pthread_join(thread, NULL);
    ck_assert(rig_until(no_builder, NULL, 10000));
    ck_assert(is_listed("base"));
    unlink(pid_file());
}
END_TEST

/* Something boots from it: it stays. */
START_TEST(delete_template__in_use__conflict)
{
    struct berth_error err = {0};
    char id[ADAPTER_ID_SIZE], snapshot[ADAPTER_ID_SIZE];

    rig_make(&rig, &(struct rig_wish){.fence = 1}, id);
    ck_assert_int_eq(rig_call(&rig, "delete_template",
                              json_pack("{s:s}", "template_id", "tiny"), NULL, &err),
                     BERTH_ABORTED);
    ck_assert_int_eq(err.reason, BERTH_REASON_CONFLICT);
    rig_snapshot(&rig, id, "one", snapshot);
    rig_delete(&rig, id, 1);
    ck_assert_int_eq(rig_call(&rig, "delete_template",
                              json_pack("{s:s}", "template_id", "tiny"), NULL, &err),
                     BERTH_ABORTED);
    ck_assert(is_listed("tiny"));
}
END_TEST

START_TEST(delete_template__unused__gone)
{
    BERTH_AUTO(json_decref) json_t *first = NULL;
    BERTH_AUTO(json_decref) json_t *again = NULL;

    ck_assert_int_eq(rig_call(&rig, "delete_template",
                              json_pack("{s:s}", "template_id", "tiny"), &first, NULL),
                     BERTH_OK);
    ck_assert(json_is_true(json_object_get(first, "existed")));
    ck_assert(!is_listed("tiny"));
    ck_assert_int_eq(rig_call(&rig, "delete_template",
                              json_pack("{s:s}", "template_id", "tiny"), &again, NULL),
                     BERTH_OK);
    ck_assert(json_is_false(json_object_get(again, "existed")));
}
END_TEST

START_TEST(build__unknown_recipe__capability_missing)
{
    struct berth_error err = {0};

    ck_assert_int_eq(
        rig_call(&rig, "build_template", json_pack("{s:s}", "name", "mine"), NULL, &err),
        BERTH_UNIMPLEMENTED);
    ck_assert_int_eq(err.reason, BERTH_REASON_CAPABILITY_MISSING);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("local/template");
    TCase *tcase = tcase_create("template");
    SRunner *runner;
    int failed;

    rig_main();
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, build__base__shown_listed_and_booted);
    tcase_add_test(tcase, build__builder_fails__its_last_words);
    tcase_add_test(tcase, build__cancelled__builder_ended);
    tcase_add_test(tcase, build__too_slow__timeout_and_builder_ended);
    tcase_add_test(tcase, build__spawner_killed__builder_ended_and_built_again);
    tcase_add_test(tcase, delete_template__in_use__conflict);
    tcase_add_test(tcase, delete_template__unused__gone);
    tcase_add_test(tcase, build__unknown_recipe__capability_missing);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    rig_finish();
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
