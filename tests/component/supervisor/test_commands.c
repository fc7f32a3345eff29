/* Commands in a sandbox of bare namespaces: how they start, end and are found again. */
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>

#include "common/time/time.h"
#include "tests/component/supervisor/fake_box.h"

enum { SPARE_FDS = 4 * 3 }; /* ENGINE_SPARES, and what each keeps open */

static struct fake_box box;

static void open_box(void)
{
    fake_box_open(&box, NULL, 0);
}

static void close_box(void)
{
    fake_box_close(&box);
}

/* Wait until the box holds n processes and no more. */
static void wait_for_count(int n)
{
    int64_t until = berth_tick_ms() + 10000;

    while (fake_box_count(&box) != n) {
        ck_assert_msg(berth_tick_ms() < until, "%d processes, not %d", fake_box_count(&box), n);
        poll(NULL, 0, 5);
    }
}

/* A program runs as uid 1000 in its own session, without privileges, and its code comes back.
 */
START_TEST(start__plain_program__runs_confined)
{
    struct wire_start start =
        command("e1", "id -u; id -g; id -G; pwd; cat /proc/self/status | grep -E "
                      "'^(NoNewPrivs|CapPrm|CapEff|SigBlk|SigIgn):'; ls /proc/self/fd; "
                      "ulimit -c; umask; echo err >&2; exit 7");
    struct outcome got = run(&box, &start);

    ck_assert(got.has_started && got.has_exited);
    ck_assert_int_eq(got.exited.reason, WIRE_EXIT_EXITED);
    ck_assert_int_eq(got.exited.exit_code, 7);
    ck_assert_str_eq(got.data[WIRE_STDERR], "err\n");
    ck_assert_str_eq(got.data[WIRE_STDOUT], "1000\n1000\n1000\n/tmp\n"
                                            "SigBlk:\t0000000000000000\n"
                                            "SigIgn:\t0000000000000000\n"
                                            "CapPrm:\t0000000000000000\n"
                                            "CapEff:\t0000000000000000\n"
                                            "NoNewPrivs:\t1\n"
                                            "0\n1\n2\n3\n0\n0022\n");
    ck_assert_uint_eq(got.exited.bytes[WIRE_STDERR], 4);
    ck_assert(!got.exited.stream_held_open);
    outcome_free(&got);
}
END_TEST

/* Arguments go in as they are, without a shell; the environment is the caller's over the
 * sandbox's over the defaults. */
START_TEST(start__argv_and_env__exact)
{
    static const char args[] = "printf\0%s|\0a b\0$HOME\0\0*\0\xc3\xa4\0'\"\\";
    static const char env[] = "BERTH_TEST=own\0X=a=b\0HOME=/h";
    struct wire_start start = program("e1", "x"), show;
    struct outcome got;

    start.args = (struct wire_strings){8, args, sizeof args};
    got = run(&box, &start);
    ck_assert_str_eq(got.data[0], "a b|$HOME||*|\xc3\xa4|'\"\\|");
    outcome_free(&got);

    show = program("e2", "env");
    show.env = (struct wire_strings){3, env, sizeof env};
    got = run(&box, &show);
    ck_assert_ptr_nonnull(strstr(got.data[0], "BERTH_TEST=own\n"));
    ck_assert_ptr_nonnull(strstr(got.data[0], "X=a=b\n"));
    ck_assert_ptr_nonnull(strstr(got.data[0], "HOME=/h\n"));
    ck_assert_ptr_nonnull(strstr(got.data[0], "PATH=/usr/local/sbin:"));
    ck_assert_ptr_null(strstr(got.data[0], "BERTH_TEST=box"));
    outcome_free(&got);
}
END_TEST

/* root is the sandbox's, not the host's. */
START_TEST(start__root__of_the_sandbox_only)
{
    struct wire_start start = command("e1", "id -u; cat /proc/self/uid_map; "
                                            "touch /etc/berth-was-here && echo leak; exit 0");
    struct outcome got;

    start.root = true;
    got = run(&box, &start);
    ck_assert_ptr_nonnull(strstr(got.data[0], "0\n         0     700000      65536\n"));
    ck_assert_ptr_null(strstr(got.data[0], "leak"));
    outcome_free(&got);
}
END_TEST

/* Commands are born into the sandbox, and the supervisor stays where it was. */
START_TEST(start__any__supervisor_stays_outside)
{
    static const char *const names[] = {"pid_for_children", "pid", "user", "mnt", "net"};
    struct wire_start start =
        command("e1", "grep -E '^(PPid|NSpid):' /proc/$$/status; cat /proc/1/status | head -1");
    struct outcome got = run(&box, &start);
    char text[64];

    /* No parent in there, and one number: its namespace is that of /proc. */
    snprintf(text, sizeof text, "PPid:\t0\nNSpid:\t%u\n", got.started.pid);
    ck_assert_int_eq(strncmp(got.data[0], text, strlen(text)), 0);
    outcome_free(&got);
    for (size_t i = 0; i < BERTH_COUNT(names); i++) {
        char path[64], theirs[64] = "", ours[64] = "";

        snprintf(path, sizeof path, "/proc/%d/ns/%s", box.supervisor, names[i]);
        ck_assert_int_gt(readlink(path, theirs, sizeof theirs - 1), 0);
        snprintf(path, sizeof path, "/proc/self/ns/%s", names[i]);
        ck_assert_int_gt(readlink(path, ours, sizeof ours - 1), 0);
        ck_assert_str_eq(theirs, ours);
    }
}
END_TEST

/* What cannot be started is said so, never by an exit code of a shell. */
START_TEST(start__impossible__spawn_failed)
{
    static const struct {
        const char *words, *cwd, *message;
    } rows[] = {
        {"/no/such", "/tmp", "the program '/no/such': No such file or directory"},
        {"no-such-program", "/tmp", "the program 'no-such-program': No such file or directory"},
        {"/etc/passwd", "/tmp", "the program '/etc/passwd': Permission denied"},
        {"true", "/no/dir", "the working directory '/no/dir': No such file or directory"},
        {"true", "/root", "the working directory '/root': Permission denied"},
        {"true", "/etc/passwd", "the working directory '/etc/passwd': Not a directory"}};

    for (size_t i = 0; i < BERTH_COUNT(rows); i++) {
        struct wire_start start = program("x", rows[i].words);
        struct outcome got;

        snprintf(start.exec_id, sizeof start.exec_id, "e%zu", i);
        snprintf(start.cwd, sizeof start.cwd, "%s", rows[i].cwd);
        got = run(&box, &start);
        ck_assert(got.has_exited && !got.has_started);
        ck_assert_int_eq(got.exited.reason, WIRE_EXIT_SPAWN_FAILED);
        ck_assert_str_eq(got.exited.message, rows[i].message);
        ck_assert_int_eq(got.exited.exit_code, 0);
        outcome_free(&got);
    }
    wait_for_count(1);
}
END_TEST

/* A background child that keeps stdout open does not hold the answer back, and lives on. */
START_TEST(exit__background_child_holds_stream__told_within_grace)
{
    struct wire_start start = command("e1", "sleep 300 & echo done");
    int64_t began = berth_tick_ms();
    struct outcome got = run(&box, &start);

    ck_assert_int_eq(got.exited.reason, WIRE_EXIT_EXITED);
    ck_assert_int_eq(got.exited.exit_code, 0);
    ck_assert_str_eq(got.data[0], "done\n");
    ck_assert(got.exited.stream_held_open);
    ck_assert_int_lt(berth_tick_ms() - began, 2000);
    ck_assert_int_eq(fake_box_count(&box), 2);
    /* A signal still finds what it left behind. */
    ck_assert(send_signal(&box, "e1", SIGKILL, false));
    wait_for_count(1);
    ck_assert(!send_signal(&box, "e1", SIGKILL, false));
    outcome_free(&got);
}
END_TEST

/* What a child prints after the answer goes nowhere; it is not killed by SIGPIPE for it. */
START_TEST(exit__child_prints_on__no_sigpipe)
{
    struct wire_start start = command(
        "e1", "rm -f /tmp/berth-pipe; (for i in $(seq 40); do head -c 65536 /dev/zero || "
              "exit 1; sleep 0.01; done; touch /tmp/berth-pipe) & exit 0");
    struct wire_start look = command("x", "test -e /tmp/berth-pipe && rm /tmp/berth-pipe");
    int64_t until = berth_tick_ms() + 15000;
    struct outcome got = run(&box, &start);

    ck_assert(got.exited.stream_held_open);
    outcome_free(&got);
    for (int i = 0;; i++) {
        snprintf(look.exec_id, sizeof look.exec_id, "look%d", i);
        got = run(&box, &look);
        if (got.exited.exit_code == 0)
            break;
        outcome_free(&got);
        ck_assert_int_lt(berth_tick_ms(), until);
    }
    outcome_free(&got);
    wait_for_count(1);
}
END_TEST

/* 500 times cat without stdin, 50 at a time: end-of-file at once, every time. */
START_TEST(stdin__absent__end_of_file_500_times)
{
    enum { ROUNDS = 10, AT_ONCE = 50 };
    static struct client clients[AT_ONCE];

    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < AT_ONCE; i++) {
            struct wire_start start = program("x", "cat");

            snprintf(start.exec_id, sizeof start.exec_id, "c%d-%d", round, i);
            client_open(&clients[i], &box);
            client_start(&clients[i], &start);
        }
        for (int i = 0; i < AT_ONCE; i++) {
            struct outcome got = {0};

            client_drain(&clients[i], &got);
            ck_assert_int_eq(got.exited.reason, WIRE_EXIT_EXITED);
            ck_assert_int_eq(got.exited.exit_code, 0);
            ck_assert_uint_eq(got.exited.bytes[0], 0);
            client_close(&clients[i]);
            outcome_free(&got);
        }
    }
}
END_TEST

/* The timeout takes the whole tree: a child that ignores TERM, one that left by setsid and a
 * double fork, and a storm of them. */
START_TEST(timeout__tree_that_hides__all_gone)
{
    struct wire_start start = command(
        "e1",
        "trap '' TERM; (setsid sh -c 'trap \"\" TERM; (setsid sleep 300 &) ; sleep 300' &); "
        "for i in 1 2 3 4 5 6 7 8; do (while :; do (exec true); done) & done; "
        "while :; do :; done");
    int64_t began = berth_tick_ms();
    struct outcome got;

    start.timeout_ms = 500;
    got = run(&box, &start);
    ck_assert_int_eq(got.exited.reason, WIRE_EXIT_TIMED_OUT);
    ck_assert_int_eq(got.exited.signal, SIGKILL);
    ck_assert_int_eq(got.exited.exit_code, 0);
    ck_assert_int_ge(berth_tick_ms() - began, 500);
    ck_assert_int_lt(berth_tick_ms() - began, 5000);
    ck_assert_int_gt(got.exited.cpu_us, 0);
    ck_assert_int_ge(got.exited.wall_us, 500000);
    outcome_free(&got);
    wait_for_count(1);
}
END_TEST

/* A repeat while it runs attaches; after its end it gets the kept result; nothing runs twice.
 */
START_TEST(exec_id__repeated__runs_once)
{
    struct wire_start start =
        command("e1", "echo x >> /tmp/berth-once; sleep 0.3; wc -l < /tmp/berth-once; exit 3");
    struct wire_start clean = command("e0", "rm -f /tmp/berth-once");
    struct outcome got = run(&box, &clean), first = {0}, second = {0};
    struct client a, b;

    outcome_free(&got);
    client_open(&a, &box);
    client_start(&a, &start);
    client_event(&a, &first);
    client_open(&b, &box);
    client_start(&b, &start);
    client_drain(&b, &second);
    client_drain(&a, &first);
    ck_assert(!first.started.attached);
    ck_assert(second.started.attached);
    ck_assert_uint_eq(first.started.pid, second.started.pid);
    ck_assert_str_eq(first.data[0], "1\n");
    ck_assert_str_eq(second.data[0], "1\n");
    ck_assert_int_eq(first.exited.exit_code, 3);
    client_close(&a);
    client_close(&b);
    got = run(&box, &start);
    ck_assert(got.started.attached);
    ck_assert_str_eq(got.data[0], "1\n");
    ck_assert_int_eq(got.exited.exit_code, 3);
    ck_assert_uint_eq(got.exited.seq, first.exited.seq);
    outcome_free(&got);
    outcome_free(&first);
    outcome_free(&second);
    got = run(&box, &clean); /* kept, too: it does not run again */
    outcome_free(&got);
    clean = command("e9", "rm -f /tmp/berth-once");
    got = run(&box, &clean);
    outcome_free(&got);
}
END_TEST

/* Another command under the same exec_id is refused. */
START_TEST(exec_id__other_command__reused)
{
    struct wire_start start = command("e1", "true");
    struct outcome got = run(&box, &start);

    outcome_free(&got);
    start.digest[0] = 'o';
    got = run(&box, &start);
    ck_assert(got.failed);
    ck_assert_int_eq(got.err.reason, BERTH_REASON_EXEC_ID_REUSED);
    outcome_free(&got);
}
END_TEST

/* The command goes on when the adapter dies, nobody gets SIGPIPE, and the rest is still there.
 */
START_TEST(adapter_gone__command_goes_on__rest_after_attach)
{
    struct wire_start start =
        command("e1", "for i in $(seq 200); do echo line $i; sleep 0.005; "
                      "done; echo end >&2");
    struct outcome first = {0}, second = {0};
    struct client client;
    uint64_t after;

    client_open(&client, &box);
    client_start(&client, &start);
    while (first.n_output < 5)
        client_event(&client, &first);
    after = first.last_seq;
    client_close(&client);

    client_open(&client, &box);
    client_attach(&client, "e1", after);
    client_drain(&client, &second);
    client_close(&client);
    ck_assert_int_eq(second.exited.reason, WIRE_EXIT_EXITED);
    ck_assert_uint_eq(second.n_truncated, 0);
    ck_assert(!second.has_started); /* it has that one */
    ck_assert_uint_eq(first.size[0] + second.size[0], second.exited.bytes[0]);
    ck_assert_ptr_nonnull(strstr(second.data[0], "line 200\n"));
    ck_assert_str_eq(second.data[1], "end\n");
    outcome_free(&first);
    outcome_free(&second);
}
END_TEST

/* Attach to what was never there, and ahead of what there is. */
START_TEST(attach__nonsense__refused)
{
    struct wire_start start = command("e1", "true");
    struct outcome got = run(&box, &start);
    struct client client;
    uint64_t last = got.exited.seq;

    outcome_free(&got);
    client_open(&client, &box);
    client_attach(&client, "other", 0);
    client_drain(&client, &got);
    ck_assert_int_eq(got.err.reason, BERTH_REASON_PROCESS_NOT_FOUND);
    client_close(&client);
    outcome_free(&got);
    client_open(&client, &box);
    client_attach(&client, "e1", last + 1);
    client_drain(&client, &got);
    ck_assert_int_eq(got.err.reason, BERTH_REASON_SEQ_EXPIRED);
    client_close(&client);
    outcome_free(&got);
    client_open(&client, &box);
    client_attach(&client, "e1", last - 1);
    client_drain(&client, &got);
    ck_assert(got.has_exited && !got.has_started);
    client_close(&client);
    outcome_free(&got);
}
END_TEST

/* Signals reach the leader, or everybody; a signal's death is told as such. */
START_TEST(signal__leader_and_tree__as_asked)
{
    struct wire_start start = command("e1", "trap 'echo usr; exit 4' USR1; echo up; "
                                            "while :; do sleep 0.01; done");
    struct outcome got = {0};
    struct client client;

    client_open(&client, &box);
    client_start(&client, &start);
    while (got.n_output == 0)
        client_event(&client, &got);
    ck_assert(send_signal(&box, "e1", SIGUSR1, true));
    client_drain(&client, &got);
    ck_assert_int_eq(got.exited.exit_code, 4);
    ck_assert_str_eq(got.data[0], "up\nusr\n");
    client_close(&client);
    outcome_free(&got);

    start = command("e2", "sleep 300 & echo up; wait");
    client_open(&client, &box);
    client_start(&client, &start);
    while (got.n_output == 0)
        client_event(&client, &got);
    ck_assert(send_signal(&box, "e2", SIGTERM, false));
    client_drain(&client, &got);
    ck_assert_int_eq(got.exited.reason, WIRE_EXIT_SIGNALED);
    ck_assert_int_eq(got.exited.signal, SIGTERM);
    client_close(&client);
    outcome_free(&got);
    wait_for_count(1);

    start = command("e3", "sleep 300 & echo up; wait");
    client_open(&client, &box);
    client_start(&client, &start);
    while (got.n_output == 0)
        client_event(&client, &got);
    ck_assert(send_signal(&box, "e3", SIGKILL, false));
    client_drain(&client, &got);
    ck_assert_int_eq(got.exited.reason, WIRE_EXIT_KILLED);
    client_close(&client);
    outcome_free(&got);
    wait_for_count(1);
    ck_assert(!send_signal(&box, "never", SIGKILL, false));
}
END_TEST

/* A crash of its own is a signal, not an exit code of 128 and something. */
START_TEST(exit__own_crash__signaled)
{
    struct wire_start start = command("e1", "kill -SEGV $$");
    struct outcome got = run(&box, &start);

    ck_assert_int_eq(got.exited.reason, WIRE_EXIT_SIGNALED);
    ck_assert_int_eq(got.exited.signal, SIGSEGV);
    outcome_free(&got);
}
END_TEST

/* A detached command does not care. */
START_TEST(cancel__detached__goes_on)
{
    struct wire_start start = command("e1", "sleep 1; echo done");
    struct wire_frame cancel;
    struct outcome got = {0};
    struct client client;

    start.detach = true;
    start.timeout_ms = 0;
    client_open(&client, &box);
    client_start(&client, &start);
    client_event(&client, &got);
    ck_assert_int_eq(wire_encode_empty(WIRE_CANCEL, &cancel), 0);
    client_send(&client, cancel);
    client_close(&client);
    outcome_free(&got);
    client_open(&client, &box);
    client_attach(&client, "e1", 0);
    client_drain(&client, &got);
    ck_assert_str_eq(got.data[0], "done\n");
    ck_assert_int_eq(got.exited.exit_code, 0);
    client_close(&client);
    outcome_free(&got);
}
END_TEST

/* A paused sandbox answers at once; time paused is not taken from a command's timeout. */
START_TEST(paused__start_refused__timeout_stands_still)
{
    struct wire_start start = command("e1", "sleep 1; echo late"),
                      other = command("e2", "true");
    struct outcome got = {0};
    struct client client;
    int64_t began;

    start.timeout_ms = 1800;
    client_open(&client, &box);
    client_start(&client, &start);
    client_event(&client, &got);
    fake_box_freeze(&box, true);
    began = berth_tick_ms();
    {
        struct outcome refused = run(&box, &other);

        ck_assert_int_eq(refused.err.reason, BERTH_REASON_SANDBOX_PAUSED);
        outcome_free(&refused);
    }
    ck_assert_int_lt(berth_tick_ms() - began, 500);
    poll(NULL, 0, 2500); /* longer than its timeout: the pause itself is what is measured */
    fake_box_freeze(&box, false);
    client_drain(&client, &got);
    ck_assert_int_eq(got.exited.reason, WIRE_EXIT_EXITED);
    ck_assert_str_eq(got.data[0], "late\n");
    client_close(&client);
    outcome_free(&got);
    got = run(&box, &other);
    ck_assert_int_eq(got.exited.exit_code, 0);
    outcome_free(&got);
}
END_TEST

/* The end of the sandbox is the end of its commands, and their readers are told. */
START_TEST(sandbox_ends__commands_killed__told)
{
    struct wire_start start = command("e1", "sleep 300");
    struct outcome got = {0};
    struct client client;

    client_open(&client, &box);
    client_start(&client, &start);
    client_event(&client, &got);
    kill(box.init, SIGKILL);
    client_drain(&client, &got);
    ck_assert_int_eq(got.exited.reason, WIRE_EXIT_KILLED);
    client_close(&client);
    outcome_free(&got);
}
END_TEST

/* The next command after the sandbox's end is told of the end, not of what it led to. */
START_TEST(start__sandbox_ended__sandbox_terminal)
{
    struct wire_start start = program("e1", "true");
    int64_t until = berth_tick_ms() + 10000;
    struct client idle;
    struct outcome got;

    client_open(&idle, &box); /* while somebody is there, the supervisor stays for a moment */
    got = run(&box, &start);
    outcome_free(&got);
    kill(box.init, SIGKILL);
    while (!box_init_dying(box.init))
        ck_assert_int_lt(berth_tick_ms(), until);
    start = program("e2", "true");
    got = run(&box, &start);
    ck_assert(got.failed);
    ck_assert_str_eq(berth_reason_name(got.err.reason), "SANDBOX_TERMINAL");
    outcome_free(&got);
    client_close(&idle);
}
END_TEST

/* Of a collected command nothing comes before its end, then all of it in order. */
START_TEST(collect__running__silent_until_the_end)
{
    struct wire_start start = command("e1", "echo out; read line; exit 4");
    struct outcome got = {0};
    struct client client;
    struct pollfd polled;

    start.collect = true;
    start.max_output = 1000;
    start.keep_stdin_open = true;
    client_open(&client, &box);
    client_start(&client, &start);
    wait_for_count(2);
    polled = (struct pollfd){.fd = client.fd, .events = POLLIN};
    ck_assert_int_eq(poll(&polled, 1, 50), 0);
    ck_assert_int_ge(send_input(&box, "e1", 0, "\n", 1, true), 0);
    client_drain(&client, &got);
    ck_assert(got.has_started && got.has_exited);
    ck_assert_str_eq(got.data[WIRE_STDOUT], "out\n");
    ck_assert_int_eq(got.exited.exit_code, 4);
    outcome_free(&got);
    client_close(&client);
}
END_TEST

/* LIST shows what runs and what is kept. */
START_TEST(list__running_and_ended__both)
{
    struct wire_start start = command("e1", "exit 5"), sleeper = program("e2", "sleep 300");
    struct outcome got = run(&box, &start);
    struct wire_process process;
    struct wire_frame list;
    struct client a, client;
    const uint8_t *payload;
    enum wire_type type;
    size_t size;
    int n = 0;

    outcome_free(&got);
    client_open(&a, &box);
    client_start(&a, &sleeper);
    client_event(&a, &got);
    client_open(&client, &box);
    ck_assert_int_eq(wire_encode_empty(WIRE_LIST, &list), 0);
    client_send(&client, list);
    while ((type = client_next(&client, &payload, &size)) == WIRE_PROCESS) {
        ck_assert_int_eq(wire_decode_process(payload, size, &process, NULL), 0);
        if (strcmp(process.exec_id, "e2") == 0) {
            ck_assert(!process.ended);
            ck_assert_uint_eq(process.pid, got.started.pid);
            ck_assert_uint_eq(process.args.n, 2);
            ck_assert_str_eq(process.args.bytes, "sleep");
        } else {
            ck_assert(process.ended && process.shell);
            ck_assert_int_eq(process.exited.exit_code, 5);
        }
        n++;
    }
    ck_assert_int_eq(type, WIRE_LIST_DONE);
    ck_assert_int_eq(n, 2);
    client_close(&client);
    client_close(&a);
    outcome_free(&got);
}
END_TEST

/* The next command gets the cgroup of the last one, and none of its time. */
START_TEST(exit__cgroup_served_before__own_cpu_time)
{
    struct wire_start busy =
        command("busy", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done");
    struct wire_start idle = program("x", "true");
    struct outcome got = run(&box, &busy);
    int64_t busy_us = got.exited.cpu_us;

    ck_assert_msg(busy_us > 20000, "%lld us, wall %lld us, exit %d, signal %d, reason %d: %s",
                  (long long)busy_us, (long long)got.exited.wall_us, got.exited.exit_code,
                  got.exited.signal, (int)got.exited.reason, got.exited.message);
    outcome_free(&got);
    for (int i = 0; i < 8; i++) {
        snprintf(idle.exec_id, sizeof idle.exec_id, "i%d", i);
        got = run(&box, &idle);
        ck_assert_int_gt(got.exited.cpu_us, 0);
        ck_assert_int_lt(got.exited.cpu_us, busy_us / 2);
        outcome_free(&got);
        poll(NULL, 0, 5);
    }
}
END_TEST

/* 1000 commands leave no process behind, and of descriptors only those of the few cgroups that
 * wait for another command; and they are quick. */
START_TEST(soak__many_commands__nothing_left)
{
    struct wire_start start = program("x", "true");
    struct outcome got = run(&box, &start);
    int64_t worst = 0, sum = 0, until;
    int before;

    outcome_free(&got);
    before = fake_box_fds(&box) + SPARE_FDS;
    for (int i = 0; i < 1000; i++) {
        int64_t began = berth_tick_ns(), took;

        snprintf(start.exec_id, sizeof start.exec_id, "t%d", i);
        got = run(&box, &start);
        took = (berth_tick_ns() - began) / 1000;
        ck_assert_int_eq(got.exited.exit_code, 0);
        outcome_free(&got);
        sum += took;
        worst = took > worst ? took : worst;
    }
    until = berth_tick_ms() + 5000;
    printf("true: mean %lld us, worst %lld us\n", (long long)sum / 1000, (long long)worst);
    while (fake_box_fds(&box) > before) { /* the last connection is being closed */
        ck_assert_int_lt(berth_tick_ms(), until);
        poll(NULL, 0, 5);
    }
    wait_for_count(1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("supervisor/commands");
    TCase *tcase = tcase_create("commands");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, open_box, close_box);
    tcase_add_test(tcase, start__plain_program__runs_confined);
    tcase_add_test(tcase, start__argv_and_env__exact);
    tcase_add_test(tcase, start__root__of_the_sandbox_only);
    tcase_add_test(tcase, start__any__supervisor_stays_outside);
    tcase_add_test(tcase, start__impossible__spawn_failed);
    tcase_add_test(tcase, exit__background_child_holds_stream__told_within_grace);
    tcase_add_test(tcase, exit__child_prints_on__no_sigpipe);
    tcase_add_test(tcase, stdin__absent__end_of_file_500_times);
    tcase_add_test(tcase, timeout__tree_that_hides__all_gone);
    tcase_add_test(tcase, exec_id__repeated__runs_once);
    tcase_add_test(tcase, exec_id__other_command__reused);
    tcase_add_test(tcase, adapter_gone__command_goes_on__rest_after_attach);
    tcase_add_test(tcase, attach__nonsense__refused);
    tcase_add_test(tcase, signal__leader_and_tree__as_asked);
    tcase_add_test(tcase, exit__own_crash__signaled);
    tcase_add_test(tcase, cancel__detached__goes_on);
    tcase_add_test(tcase, paused__start_refused__timeout_stands_still);
    tcase_add_test(tcase, sandbox_ends__commands_killed__told);
    tcase_add_test(tcase, start__sandbox_ended__sandbox_terminal);
    tcase_add_test(tcase, collect__running__silent_until_the_end);
    tcase_add_test(tcase, list__running_and_ended__both);
    tcase_add_test(tcase, exit__cgroup_served_before__own_cpu_time);
    tcase_add_test(tcase, soak__many_commands__nothing_left);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
