/* Boxes with small limits: what happens at each of them. */
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

#include "common/time/time.h"
#include "tests/component/supervisor/fake_box.h"

static struct fake_box box;

static void open_quick_box(void)
{
    static struct engine_limits limits;

    limits = engine_default_limits;
    limits.orphan_ms = 300;
    limits.heartbeat_ms = 100;
    limits.kept_ms = 1;
    limits.running_max = 4;
    fake_box_open(&box, &limits, 0);
}

static void open_forgetful_box(void)
{
    static struct engine_limits limits;

    limits = engine_default_limits;
    limits.kept_max = 3;
    fake_box_open(&box, &limits, 0);
}

static void open_ticking_box(void)
{
    static struct engine_limits limits;

    limits = engine_default_limits;
    limits.tick_ms = 20;
    fake_box_open(&box, &limits, 0);
}

static void open_small_box(void)
{
    fake_box_open(&box, NULL, 64 << 20);
}

static void close_box(void)
{
    fake_box_close(&box);
}

static void wait_for_count(int n)
{
    int64_t until = berth_tick_ms() + 10000;

    while (fake_box_count(&box) != n) {
        ck_assert_msg(berth_tick_ms() < until, "%d processes, not %d", fake_box_count(&box), n);
        poll(NULL, 0, 5);
    }
}

static int64_t ms_of(struct timespec time)
{
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* A command that runs keeps its sandbox in use, though nobody calls: also the first, of which
 * nothing is ever heard again. */
START_TEST(active__left_running__used_and_not_called)
{
    struct wire_start start = command("e1", "sleep 300");
    struct outcome got = {0};
    struct client client;
    struct stat called, now;
    char path[128];
    int64_t until = berth_tick_ms() + 10000;

    start.detach = true;
    client_open(&client, &box);
    client_start(&client, &start);
    client_event(&client, &got);
    client_close(&client);
    outcome_free(&got);
    snprintf(path, sizeof path, "%s/active", box.dir);
    ck_assert_int_eq(stat(path, &called), 0);
    do {
        ck_assert_msg(berth_tick_ms() < until, "it counts as unused");
        poll(NULL, 0, 5);
        ck_assert_int_eq(stat(path, &now), 0);
    } while (ms_of(now.st_mtim) < ms_of(called.st_mtim) + 100);
    ck_assert_int_le(ms_of(now.st_atim), ms_of(called.st_mtim));
}
END_TEST

/* Caller gone for good: the command is ended after a while; taken over by a repeat: it is not.
 */
START_TEST(cancel__nobody_takes_over__killed)
{
    struct wire_start start = command("e1", "echo up; sleep 300");
    struct wire_frame cancel;
    struct outcome got = {0};
    struct client client;

    client_open(&client, &box);
    client_start(&client, &start);
    client_event(&client, &got);
    ck_assert_int_eq(wire_encode_empty(WIRE_CANCEL, &cancel), 0);
    client_send(&client, cancel);
    client_close(&client);
    outcome_free(&got);

    client_open(&client, &box);
    client_start(&client, &start);
    while (got.n_heartbeats < 8) /* longer than the time it would have had */
        client_event(&client, &got);
    ck_assert(!got.has_exited && got.started.attached);
    ck_assert_int_eq(wire_encode_empty(WIRE_CANCEL, &cancel), 0);
    client_send(&client, cancel);
    client_close(&client);
    outcome_free(&got);
    wait_for_count(1);
    got = run(&box, &start); /* what is left of it says why */
    ck_assert_int_eq(got.exited.reason, WIRE_EXIT_KILLED);
    ck_assert_ptr_nonnull(strstr(got.exited.message, "its caller went away"));
    ck_assert_str_eq(got.data[WIRE_STDOUT], "up\n");
    outcome_free(&got);
}
END_TEST

/* Silent streams have heartbeats; the number of commands is bounded. */
START_TEST(start__too_many__overloaded)
{
    struct client clients[4];
    struct outcome got = {0};
    struct wire_start start;

    for (int i = 0; i < 4; i++) {
        start = command("x", "sleep 300");
        snprintf(start.exec_id, sizeof start.exec_id, "s%d", i);
        client_open(&clients[i], &box);
        client_start(&clients[i], &start);
        client_event(&clients[i], &got);
    }
    start = command("one-more", "true");
    got = run(&box, &start);
    ck_assert_int_eq(got.err.reason, BERTH_REASON_OVERLOADED);
    outcome_free(&got);
    for (int i = 0; i < 4; i++)
        client_close(&clients[i]);
    for (int i = 0; i < 4; i++) {
        snprintf(start.exec_id, sizeof start.exec_id, "s%d", i);
        ck_assert(send_signal(&box, start.exec_id, SIGKILL, false));
    }
    wait_for_count(1);
}
END_TEST

/* Killed for lack of memory is told as such, and the sandbox lives. */
START_TEST(memory__hog__told_as_out_of_memory)
{
    struct wire_start start = program("e1", "python3 -c a=b'x'*1000000000");
    struct outcome got = run(&box, &start);

    ck_assert_int_eq(got.exited.reason, WIRE_EXIT_OUT_OF_MEMORY);
    ck_assert_int_eq(got.exited.signal, 0);
    outcome_free(&got);
    start = command("e2", "kill -9 $$");
    got = run(&box, &start);
    ck_assert_int_eq(got.exited.reason, WIRE_EXIT_SIGNALED);
    outcome_free(&got);
    start = command("e3", "python3 -c 'a=b\"x\"*1000000000'; exit $?");
    got = run(&box, &start);
    ck_assert_int_eq(got.exited.reason, WIRE_EXIT_EXITED);
    ck_assert_int_eq(got.exited.exit_code, 137);
    ck_assert_ptr_nonnull(strstr(got.exited.message, "out of memory"));
    outcome_free(&got);
}
END_TEST

/* There are only so many results; the oldest are forgotten, and their exec_id is free again. */
START_TEST(exec_id__more_results_than_are_kept__oldest_forgotten)
{
    struct outcome got = {0};
    struct client client;

    for (int i = 0; i < 6; i++) {
        char id[8], text[16];
        struct wire_start start;

        snprintf(id, sizeof id, "e%d", i);
        snprintf(text, sizeof text, "exit %d", i);
        start = command(id, text);
        got = run(&box, &start);
        outcome_free(&got);
    }
    client_open(&client, &box);
    client_attach(&client, "e0", 0);
    got = (struct outcome){0};
    client_drain(&client, &got);
    ck_assert_str_eq(berth_reason_name(got.err.reason), "PROCESS_NOT_FOUND");
    outcome_free(&got);
    client_close(&client);
    client_open(&client, &box);
    client_attach(&client, "e5", 0);
    got = (struct outcome){0};
    client_drain(&client, &got);
    ck_assert_int_eq(got.exited.exit_code, 5);
    outcome_free(&got);
    client_close(&client);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("supervisor/limits");
    TCase *quick = tcase_create("small limits"), *forgetful = tcase_create("few results"),
          *small = tcase_create("little memory"), *ticking = tcase_create("much upkeep");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_set_timeout(quick, 60);
    tcase_add_checked_fixture(quick, open_quick_box, close_box);
    tcase_add_test(quick, cancel__nobody_takes_over__killed);
    tcase_add_test(quick, start__too_many__overloaded);
    suite_add_tcase(suite, quick);
    tcase_set_timeout(forgetful, 60);
    tcase_add_checked_fixture(forgetful, open_forgetful_box, close_box);
    tcase_add_test(forgetful, exec_id__more_results_than_are_kept__oldest_forgotten);
    suite_add_tcase(suite, forgetful);
    tcase_set_timeout(small, 60);
    tcase_add_checked_fixture(small, open_small_box, close_box);
    tcase_add_test(small, memory__hog__told_as_out_of_memory);
    suite_add_tcase(suite, small);
    tcase_set_timeout(ticking, 60);
    tcase_add_checked_fixture(ticking, open_ticking_box, close_box);
    tcase_add_test(ticking, active__left_running__used_and_not_called);
    suite_add_tcase(suite, ticking);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
