/* test_work.c - the steps of work.h against planes that misbehave: connections that break,
 * commands that flood, hang or end in no known way, answers that are no answers. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>

#include "common/time/time.h"
#include "services/skills/bundle/judge.h"
#include "tests/component/skills/fake_planes.h"
#include "tests/lib/packer.h"

enum { SOON_MS = 10000 };

static struct planes planes;
static struct bundle_verdict verdict;
static struct findings findings;
static struct berth_error err;
static int spool = -1;

static void set_up(void)
{
    planes_open(&planes);
    verdict = (struct bundle_verdict){0};
    findings = (struct findings){0};
    err = (struct berth_error){0};
}

static void tear_down(void)
{
    bundle_verdict_deinit(&verdict);
    findings_deinit(&findings);
    closep(&spool);
    spool = -1;
    planes_close(&planes);
}

/* "true", with stdout captured or said. */
static enum berth_code run(size_t capture_max, struct command_end *end)
{
    static const char *const argv[] = {"true"};
    const struct command command = {.argv = argv, .n_argv = 1, .capture_max = capture_max};

    *end = (struct command_end){0};
    return command_run(planes.work, &command, end, &err);
}

static const char *said(void)
{
    pthread_mutex_lock(&planes.mutex);
    planes.said[planes.n_said] = 0;
    pthread_mutex_unlock(&planes.mutex);
    return planes.said;
}

/* A skill with a script of each kind, and Python and Node packages. */
static void judge(void)
{
    static const struct pack_file files[] = {
        {.path = "SKILL.md", .content = "---\nname: s\ndescription: d\n---\n"},
        {.path = "a.py", .content = "x = 1\n"},
        {.path = "b.py", .content = "x = 1\n"},
        {.path = "c.js", .content = "1;\n"},
        {.path = "requirements.txt", .content = "six\n"},
        {.path = "package.json", .content = "{\"dependencies\": {\"left-pad\": \"1\"}}\n"},
    };
    size_t size;
    BERTH_AUTO(free)
    void *data = pack_archive(PACK_TAR, files, BERTH_COUNT(files), 1700000000, NULL, &size);
    const struct bundle_source source = {.fd = -1, .data = data, .size = size};

    spool = pack_spool();
    ck_assert_msg(!bundle_judge(&source, spool, NULL, NULL, &verdict, &err) &&
                      verdict.is_accepted,
                  "%s", err.text);
}

/* ------------------------------------------------------------------- session and turn */

/* One session, one turn, one sandbox that the turn names; deleted at the end. */
START_TEST(work_open__good_planes__one_turn_then_deleted)
{
    planes_work(&planes);
    ck_assert_str_eq(work_sandbox(planes.work), "box-1");
    ck_assert_uint_eq(work_generation(planes.work), 7);
    ck_assert(!work_host(planes.work)->has_uv);
    ck_assert(planes.was_root);
    ck_assert_uint_eq(planes_get(&planes, &planes.n_resolved), 2);
    ck_assert_uint_eq(planes_get(&planes, &planes.n_turns), 1);
    planes.work = work_close(planes.work, true);
    ck_assert_uint_eq(planes_get(&planes, &planes.n_deleted), 1);
    planes_work(&planes);
    planes.work = work_close(planes.work, false);
    ck_assert_uint_eq(planes_get(&planes, &planes.n_deleted), 1);
    ck_assert_uint_eq(planes_get(&planes, &planes.n_ended), 1);
}
END_TEST

/* Who is away for a moment is asked again, and a stop while waiting for him is obeyed. */
START_TEST(work_open__peer_away__asked_again_until_stopped)
{
    int64_t begin_tick;

    planes.n_refused = 2;
    planes_work(&planes);
    ck_assert_uint_eq(planes_get(&planes, &planes.n_resolved), 4);
    planes.work = work_close(planes.work, true);
    planes.n_refused = 1000;
    planes.stop = true;
    begin_tick = berth_tick_ms();
    ck_assert_int_eq(work_open(&planes.skills, &planes.wish, &planes.work, &err),
                     BERTH_CANCELLED);
    ck_assert_int_lt(berth_tick_ms() - begin_tick, 1500);
    planes.stop = false;
}
END_TEST

/* The turn is renewed by itself, and not after the end. */
START_TEST(work_keeper__lives__renews_until_freed)
{
    int64_t end_tick = berth_tick_ms() + SOON_MS;
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    struct work_keeper *keeper;
    unsigned n;

    ref.tenant_id = (char *)"t1";
    ref.session_id = (char *)"sk.1";
    keeper = work_keeper_new(&planes.skills, &ref, "turn-1", 5);
    while (planes_get(&planes, &planes.n_renewed) < 3 && berth_tick_ms() < end_tick)
        usleep(1000);
    work_keeper_free(keeper);
    n = planes_get(&planes, &planes.n_renewed);
    ck_assert_uint_ge(n, 3);
    usleep(50000);
    ck_assert_uint_eq(planes_get(&planes, &planes.n_renewed), n);
}
END_TEST

/* --------------------------------------------------------------------------- commands */

/* A connection that breaks in the middle: the command is found again, nothing is missing and
 * nothing comes twice. */
START_TEST(command_run__connection_breaks__attached_and_whole)
{
    struct command_end end;

    planes_work(&planes);
    planes_add(&planes, (struct fake_rule){
                            .word = "true", .act = FAKE_CUT, .out = "first half|second half."});
    ck_assert_int_eq(run(1000, &end), BERTH_OK);
    ck_assert_str_eq(end.captured, "first half|second half.");
    command_end_deinit(&end);
    ck_assert_int_eq(run(0, &end), BERTH_OK);
    ck_assert_str_eq(said(), "first half|second half.");
    command_end_deinit(&end);
    ck_assert_uint_eq(planes_get(&planes, &planes.n_attached), 2);
}
END_TEST

/* An end that nobody reported is never a good one: forgotten by the backend, or a stream that
 * ends as if all was said. */
START_TEST(command_run__no_end_reported__not_good)
{
    struct command_end end;

    planes_work(&planes);
    planes_add(&planes, (struct fake_rule){
                            .word = "true", .act = _i ? FAKE_MUTE : FAKE_LOST, .out = "x"});
    ck_assert_int_ne(run(0, &end), BERTH_OK);
    ck_assert_int_eq(err.reason, BERTH_REASON_OUTCOME_UNKNOWN);
    command_end_deinit(&end);
}
END_TEST

/* Refused because nobody is there: nothing was done, so it is done again, once. */
START_TEST(command_run__refused__repeated)
{
    struct command_end end;

    planes_work(&planes);
    planes_add(&planes, (struct fake_rule){.word = "true", .act = FAKE_AWAY, .times = 2});
    planes_add(&planes, (struct fake_rule){.word = "true", .exit_code = 3});
    ck_assert_int_eq(run(0, &end), BERTH_OK);
    ck_assert_int_eq(end.exit_code, 3);
    command_end_deinit(&end);
    ck_assert_uint_eq(planes_get(&planes, &planes.n_execs), 4); /* one is begin.sh's */
}
END_TEST

static void *stop_soon(void *arg)
{
    struct planes *stopped = arg;
    int64_t end_tick = berth_tick_ms() + SOON_MS;

    while (planes_get(stopped, &stopped->n_execs) < 2 && berth_tick_ms() < end_tick)
        usleep(1000);
    pthread_mutex_lock(&stopped->mutex);
    stopped->stop = true;
    pthread_mutex_unlock(&stopped->mutex);
    return NULL;
}

/* A command that hangs or floods: a stop is obeyed at once, and the command is cancelled. */
START_TEST(command_run__stopped__within_a_second)
{
    struct command_end end;
    pthread_t thread;
    int64_t begin_tick;

    planes_work(&planes);
    planes_add(&planes, (struct fake_rule){.word = "true", .act = FAKE_STALL});
    ck_assert_int_eq(pthread_create(&thread, NULL, stop_soon, &planes), 0);
    begin_tick = berth_tick_ms();
    ck_assert_int_eq(run(0, &end), BERTH_CANCELLED);
    ck_assert_int_lt(berth_tick_ms() - begin_tick, 1500);
    pthread_join(thread, NULL);
    while (planes_get(&planes, &planes.n_cancelled) == 0 &&
           berth_tick_ms() < begin_tick + SOON_MS)
        usleep(1000);
    ck_assert_uint_eq(planes_get(&planes, &planes.n_cancelled), 1);
    planes.stop = false;
    command_end_deinit(&end);
}
END_TEST

/* Output without end: the command is ended, and what is said stays small. */
START_TEST(command_run__flood__ended_and_little_said)
{
    struct command_end end;

    planes_work(&planes);
    planes_add(&planes, (struct fake_rule){.word = "true", .act = FAKE_FLOOD});
    ck_assert_int_ne(run(0, &end), BERTH_OK);
    ck_assert_int_eq(err.reason, BERTH_REASON_GATE_FAILED);
    ck_assert_uint_eq(end.tail_size, COMMAND_TAIL_MAX);
    command_end_deinit(&end);
    pthread_mutex_lock(&planes.mutex);
    ck_assert_uint_le(planes.n_said, COMMAND_SAID_MAX + 8192);
    pthread_mutex_unlock(&planes.mutex);
}
END_TEST

/* An answer for a machine that is too long is no answer. */
START_TEST(command_run__captured_too_much__refused)
{
    static char much[5000];
    struct command_end end;

    memset(much, 'x', sizeof much - 1);
    planes_work(&planes);
    planes_add(&planes, (struct fake_rule){.word = "true", .out = much});
    ck_assert_int_ne(run(4000, &end), BERTH_OK);
    ck_assert_int_eq(err.reason, BERTH_REASON_GATE_FAILED);
    command_end_deinit(&end);
    ck_assert_int_eq(run(sizeof much - 1, &end), BERTH_OK);
    ck_assert_uint_eq(end.captured_size, sizeof much - 1);
    command_end_deinit(&end);
}
END_TEST

/* Work is not gone on with in another sandbox: told with the start, or found by the script. */
START_TEST(command_run__other_sandbox__given_up)
{
    struct command_end end;

    planes_work(&planes);
    planes_add(&planes, (struct fake_rule){.word = "true", .act = FAKE_OTHER});
    ck_assert_int_ne(run(0, &end), BERTH_OK);
    ck_assert_int_eq(err.reason, BERTH_REASON_SANDBOX_NOT_FOUND);
    command_end_deinit(&end);
    planes_add(&planes, (struct fake_rule){.word = work_seal_sh, .exit_code = 97});
    ck_assert_int_ne(work_seal(planes.work, &err), BERTH_OK);
    ck_assert_int_eq(err.reason, BERTH_REASON_SANDBOX_NOT_FOUND);
}
END_TEST

/* ----------------------------------------------------------------------- upload */

/* One upload of all bytes, then one command, which has the name as a word of its own. */
START_TEST(work_upload__any_size__whole_in_two_calls)
{
    static const size_t sizes[] = {0, 1, 127, 128, 1 << 20, (5 << 20) + 77};
    size_t size = sizes[_i];
    int fd = pack_spool();
    uint64_t sum = 0;
    unsigned n_execs;

    for (size_t i = 0; i < size; i++)
        sum = sum * 31 + (uint8_t)(i * 7 >> 3);
    for (size_t i = 0; i < size;) {
        uint8_t part[4096];
        size_t n = 0;

        while (n < sizeof part && i < size)
            part[n++] = (uint8_t)(i++ * 7 >> 3);
        ck_assert_int_eq(write(fd, part, n), (ssize_t)n);
    }
    planes_work(&planes);
    n_execs = planes_get(&planes, &planes.n_execs);
    ck_assert_msg(!work_upload(planes.work, "a; 'b", fd, size, &err), "%s", err.text);
    ck_assert_uint_eq(planes.upload_bytes, size);
    ck_assert_uint_eq(planes.upload_sum, sum);
    ck_assert_uint_eq(planes_get(&planes, &planes.n_execs), n_execs + 1);
    ck_assert_ptr_nonnull(strstr(planes.last, " a; 'b /tmp/berth-install/in/skill.tar "));
    close(fd);
}
END_TEST

/* No space is told as that, whoever finds it; names that are no folder's are refused. */
START_TEST(work_upload__no_space__told)
{
    int fd = pack_spool();

    ck_assert_int_eq(ftruncate(fd, 8 << 20), 0);
    planes_work(&planes);
    planes.refuse_upload = true;
    ck_assert_int_ne(work_upload(planes.work, "s", fd, 8 << 20, &err), BERTH_OK);
    ck_assert_int_eq(err.reason, BERTH_REASON_DISK_FULL);
    planes.refuse_upload = false;
    planes_add(&planes, (struct fake_rule){.word = work_unpack_sh,
                                           .err = "tar: x: No space left on device\n",
                                           .exit_code = 2});
    ck_assert_int_ne(work_upload(planes.work, "s", fd, 8 << 20, &err), BERTH_OK);
    ck_assert_int_eq(err.reason, BERTH_REASON_DISK_FULL);
    ck_assert_int_ne(work_upload(planes.work, "../s", fd, 8 << 20, &err), BERTH_OK);
    ck_assert_int_ne(work_remove(planes.work, "", &err), BERTH_OK);
    ck_assert_int_ne(work_remove(planes.work, ".work", &err), BERTH_OK);
    close(fd);
}
END_TEST

/* ------------------------------------------------------------------- dependencies */

/* In order, as root, with what the config says over what the caller says over our own; the
 * first that fails is the last, and is told with the package's name. */
START_TEST(work_dependencies__one_fails__told_and_no_more)
{
    static const struct plan_policy policy = {.python_index_url = "https://i.example/simple"};
    json_t *env = json_pack("{s:s,s:s,s:s}", "PIP_RETRIES", "9", "KEY", "secret",
                            "PIP_INDEX_URL", "https://other.example");
    struct bundle_verdict again = {0};

    judge();
    planes.wish.env = env;
    planes_work(&planes);
    json_decref(env);
    ck_assert_int_eq(plan_make(&verdict.bundle, &verdict.skill, &policy, work_host(planes.work),
                               &findings, &again.plan, &err),
                     BERTH_OK);
    planes_add(&planes, (struct fake_rule){.word = "requirements.txt",
                                           .out = "Looking at https://me:secret2@i.example\n",
                                           .err = "ERROR: No matching distribution found for "
                                                  "six==<9>\n",
                                           .exit_code = 1});
    ck_assert_int_ne(work_dependencies(planes.work, &again.plan, &err), BERTH_OK);
    ck_assert_int_eq(err.reason, BERTH_REASON_DEPENDENCY_FAILED);
    ck_assert_msg(strstr(err.text, "of requirements.txt: 'six==") != NULL, "%s", err.text);
    ck_assert_ptr_null(strstr(err.text, "<9>"));
    ck_assert_ptr_nonnull(strstr(planes.env, "PIP_RETRIES=9 "));
    ck_assert_ptr_nonnull(strstr(planes.env, "KEY=secret "));
    ck_assert_ptr_nonnull(strstr(planes.env, "PIP_INDEX_URL=https://i.example/simple "));
    ck_assert_ptr_nonnull(strstr(planes.env, "TMPDIR=/opt/berth/.work/tmp "));
    ck_assert(planes.was_root);
    ck_assert_ptr_null(strstr(said(), "npm"));
    ck_assert_ptr_null(strstr(said(), "secret2"));
    ck_assert_ptr_nonnull(strstr(said(), "https://**********@i.example"));
    ck_assert_ptr_nonnull(strstr(said(), "$ python3 -m venv .venv\n"));
    plan_deinit(&again.plan);
}
END_TEST

/* apt-get update finds nobody and ends well: the package that is then not found is not blamed.
 */
START_TEST(work_dependencies__apt_without_network__network_blamed)
{
    struct skill skill = {.name = (char *)"s"};
    struct plan plan = {0};

    judge();
    ck_assert(skill_list_add(&skill.apt, "hello", 5));
    planes_work(&planes);
    ck_assert_int_eq(plan_make(&verdict.bundle, &skill, NULL, NULL, &findings, &plan, &err),
                     BERTH_OK);
    planes_add(&planes, (struct fake_rule){.word = "update",
                                           .err = "W: Temporary failure resolving x\n"});
    planes_add(&planes, (struct fake_rule){.word = "hello",
                                           .err = "E: Unable to locate package hello\n",
                                           .exit_code = 100});
    ck_assert_int_ne(work_dependencies(planes.work, &plan, &err), BERTH_OK);
    ck_assert_msg(strstr(err.text, "no package index could be reached") != NULL, "%s",
                  err.text);
    plan_deinit(&plan);
    skill_list_deinit(&skill.apt);
}
END_TEST

/* ----------------------------------------------------------------- seal, gate, clean */

/* A link that leads out, and a list that is cut off, stop it. */
START_TEST(work_seal__link_leads_out__refused)
{
    static const char good[] = "s/.venv/bin/python\0/usr/bin/python3\0s/lib\0.venv/lib";
    static const char bad[] = "s/a\0b\0s/x\0/etc/shadow";

    planes_work(&planes);
    planes_add(&planes,
               (struct fake_rule){
                   .word = work_seal_sh, .out = good, .out_size = sizeof good, .times = 1});
    ck_assert_msg(!work_seal(planes.work, &err), "%s", err.text);
    planes_add(&planes,
               (struct fake_rule){
                   .word = work_seal_sh, .out = bad, .out_size = sizeof bad, .times = 1});
    ck_assert_int_ne(work_seal(planes.work, &err), BERTH_OK);
    ck_assert_int_eq(err.reason, BERTH_REASON_GATE_FAILED);
    ck_assert_msg(strstr(err.text, "s/x -> /etc/shadow") != NULL, "%s", err.text);
    planes_add(&planes,
               (struct fake_rule){
                   .word = work_seal_sh, .out = good, .out_size = sizeof good - 4, .times = 1});
    ck_assert_int_ne(work_seal(planes.work, &err), BERTH_OK);
    planes_add(&planes, (struct fake_rule){.word = work_seal_sh, .exit_code = 1});
    ck_assert_int_ne(work_seal(planes.work, &err), BERTH_OK);
}
END_TEST

/* All that is wrong is told at once, by a user with a bare environment; a parser that dies has
 * judged nothing, and one that is not there is said to be missing. */
START_TEST(work_verify__all_wrong__all_told)
{
    static const char python[] = "0 bad 3 invalid syntax\0"
                                 "1 o";
    json_t *env = json_pack("{s:s}", "NODE_OPTIONS", "--require ./c.js");

    judge();
    planes.wish.env = env;
    planes_work(&planes);
    json_decref(env);
    planes_add(&planes, (struct fake_rule){.word = work_parse_py,
                                           .out = python,
                                           .out_size = sizeof python - 1,
                                           .exit_code = 139});
    planes_add(&planes, (struct fake_rule){.word = work_parse_js, .exit_code = 127});
    ck_assert_msg(!work_verify(planes.work, &verdict, &findings, &err), "%s", err.text);
    ck_assert(findings_has(&findings, FINDING_SCRIPT_SYNTAX));
    ck_assert_uint_eq(findings.list[0].line, 3);
    ck_assert(findings_has(&findings, FINDING_SCRIPT_UNJUDGED));
    ck_assert(findings_has(&findings, FINDING_SCRIPT_UNCHECKED));
    ck_assert(findings_has(&findings, FINDING_MANIFEST_CHANGED));
    ck_assert(findings_has(&findings, FINDING_DEPENDENCY_ABSENT));
    ck_assert_uint_eq(findings.counts[FINDING_ERROR], 5); /* two packages */
    ck_assert(!planes.was_root);
    ck_assert_ptr_null(strstr(planes.env, "NODE_OPTIONS"));
}
END_TEST

/* A size that is none, and a sandbox that does not come clean. */
START_TEST(work_clean__not_clean__refused)
{
    uint64_t bytes = 7;

    planes_work(&planes);
    ck_assert_int_ne(work_clean(planes.work, &bytes, &err), BERTH_OK);
    planes_add(&planes, (struct fake_rule){.word = work_clean_sh, .out = "4096\n", .times = 1});
    ck_assert_msg(!work_clean(planes.work, &bytes, &err), "%s", err.text);
    ck_assert_uint_eq(bytes, 4096);
    planes_add(&planes,
               (struct fake_rule){
                   .word = work_clean_sh, .out = "4096\n", .err = "rm: no\n", .exit_code = 1});
    ck_assert_int_ne(work_clean(planes.work, &bytes, &err), BERTH_OK);
    ck_assert_int_eq(err.reason, BERTH_REASON_GATE_FAILED);
    ck_assert_ptr_nonnull(strstr(err.text, "rm: no"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("work");
    TCase *tc = tcase_create("all");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, work_open__good_planes__one_turn_then_deleted);
    tcase_add_test(tc, work_open__peer_away__asked_again_until_stopped);
    tcase_add_test(tc, work_keeper__lives__renews_until_freed);
    tcase_add_test(tc, command_run__connection_breaks__attached_and_whole);
    tcase_add_loop_test(tc, command_run__no_end_reported__not_good, 0, 2);
    tcase_add_test(tc, command_run__refused__repeated);
    tcase_add_test(tc, command_run__stopped__within_a_second);
    tcase_add_test(tc, command_run__flood__ended_and_little_said);
    tcase_add_test(tc, command_run__captured_too_much__refused);
    tcase_add_test(tc, command_run__other_sandbox__given_up);
    tcase_add_loop_test(tc, work_upload__any_size__whole_in_two_calls, 0, 6);
    tcase_add_test(tc, work_upload__no_space__told);
    tcase_add_test(tc, work_dependencies__one_fails__told_and_no_more);
    tcase_add_test(tc, work_dependencies__apt_without_network__network_blamed);
    tcase_add_test(tc, work_seal__link_leads_out__refused);
    tcase_add_test(tc, work_verify__all_wrong__all_told);
    tcase_add_test(tc, work_clean__not_clean__refused);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
