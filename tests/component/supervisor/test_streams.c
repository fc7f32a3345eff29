/* What goes through the pipes of a command: bytes exact, memory flat, nothing fed twice. */
#include <check.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>

#include "common/time/time.h"
#include "tests/component/supervisor/fake_box.h"

enum { MIB = 1 << 20 };

static struct fake_box box;

static void open_box(void)
{
    fake_box_open(&box, NULL, 0);
}

static void open_narrow_box(void)
{
    static struct engine_limits limits;

    limits = engine_default_limits;
    limits.ring_bytes = 128 << 10;
    limits.rings_bytes = 256 << 10;
    limits.ring_bytes_min = 32 << 10;
    limits.inputs_max = 2;
    fake_box_open(&box, &limits, 0);
}

static void close_box(void)
{
    fake_box_close(&box);
}

/* A character split over two writes, and one over the border of a read, come out as they went
 * in: bytes are bytes. */
START_TEST(output__character_split__bytes_identical)
{
    struct wire_start start = command("e1", "printf '\\xe2'; sleep 0.1; printf '\\x89\\xa4'");
    struct outcome got = run(&box, &start);

    ck_assert_uint_eq(got.size[0], 3);
    ck_assert_int_eq(memcmp(got.data[0], "\xe2\x89\xa4", 3), 0);
    ck_assert_uint_eq(got.n_output, 2);
    outcome_free(&got);

    start = command("e2", "head -c 65535 /dev/zero | tr '\\0' a; printf '\\xe2\\x89\\xa4'");
    got = run(&box, &start);
    ck_assert_uint_eq(got.size[0], 65538);
    ck_assert_int_eq(memcmp(got.data[0] + 65535, "\xe2\x89\xa4", 3), 0);
    outcome_free(&got);
}
END_TEST

/* Every byte value, NUL included. */
START_TEST(output__all_byte_values__exact)
{
    struct wire_start start = command(
        "e1", "python3 -c 'import sys; sys.stdout.buffer.write(bytes(range(256)) * 1000)'");
    struct outcome got = run(&box, &start);

    ck_assert_uint_eq(got.size[0], 256000);
    for (size_t i = 0; i < got.size[0]; i++)
        ck_assert_uint_eq((uint8_t)got.data[0][i], i % 256);
    outcome_free(&got);
}
END_TEST

/* 1 GB through a live reader: all of it arrives, memory stays flat. */
START_TEST(output__one_gb__all_there_and_memory_flat)
{
    enum { CHUNK = 1 << 16 };
    const uint64_t size = 1000000000;
    struct wire_start start = command("e1", "head -c 1000000000 /dev/zero");
    struct wire_output output;
    struct wire_exited exited;
    struct client client;
    const uint8_t *payload;
    enum wire_type type;
    uint64_t got = 0;
    size_t payload_size;
    long before = fake_box_rss_kib(&box), most = 0;
    int64_t began = berth_tick_ms();

    client_open(&client, &box);
    client_start(&client, &start);
    for (int i = 0;; i++) {
        type = client_next(&client, &payload, &payload_size);
        if (type == WIRE_EXITED)
            break;
        if (type == WIRE_STARTED)
            continue;
        ck_assert_int_eq(type, WIRE_OUTPUT);
        ck_assert_int_eq(wire_decode_output(payload, payload_size, &output, NULL), 0);
        got += output.size;
        if (i % 1000 == 0 && fake_box_rss_kib(&box) > most)
            most = fake_box_rss_kib(&box);
    }
    ck_assert_int_eq(wire_decode_exited(payload, payload_size, &exited, NULL), 0);
    ck_assert_uint_eq(got, size);
    ck_assert_uint_eq(exited.bytes[0], size);
    printf("1 GB in %lld ms, supervisor grew by %ld KiB\n",
           (long long)(berth_tick_ms() - began), most - before);
    ck_assert_int_le(MEMORY_COUNTS * (most - before), 8 << 10);
    client_close(&client);
}
END_TEST

/* A reader that does not read holds the command back; nothing is lost when it goes on. */
START_TEST(output__reader_stalls__command_waits)
{
    struct wire_start start = command("e1", "head -c 20000000 /dev/zero; echo end >&2");
    struct outcome got = {0};
    struct client client;
    long before = fake_box_rss_kib(&box);

    client_open(&client, &box);
    client_start(&client, &start);
    client_event(&client, &got);
    poll(NULL, 0, 500); /* the stall is what is tested */
    ck_assert_int_le(MEMORY_COUNTS * (fake_box_rss_kib(&box) - before), 4 << 10);
    client_drain(&client, &got);
    ck_assert_uint_eq(got.size[0], 20000000);
    ck_assert_uint_eq(got.n_truncated, 0);
    ck_assert_str_eq(got.data[1], "end\n");
    client_close(&client);
    outcome_free(&got);
}
END_TEST

/* Nobody reads: the command is not held back, the oldest is dropped and counted, the tail is
 * right. */
START_TEST(output__nobody_reads__oldest_dropped_and_counted)
{
    struct wire_start start = command("e1", "seq 1000000; echo x >&2");
    struct wire_frame cancel;
    struct outcome got = {0};
    struct client client;

    start.detach = true;
    client_open(&client, &box);
    client_start(&client, &start);
    ck_assert_int_eq(wire_encode_empty(WIRE_CANCEL, &cancel), 0);
    client_send(&client, cancel);
    client_close(&client);
    wait_ended(&box, "e1");
    client_open(&client, &box);
    client_attach(&client, "e1", 0);
    client_drain(&client, &got);
    client_close(&client);
    ck_assert_uint_gt(got.dropped[0], 0);
    ck_assert_uint_eq(got.dropped[0] + got.size[0], got.exited.bytes[0]);
    ck_assert_uint_eq(got.exited.bytes[0], 6888896);
    ck_assert_str_eq(got.data[0] + got.size[0] - 8, "1000000\n");
    ck_assert_str_eq(got.data[1], "x\n");
    ck_assert_uint_le(got.size[0], 128 << 10);
    outcome_free(&got);
}
END_TEST

/* yes for ever: bounded by the caller's limit, which is said at once and summed up at the end.
 */
START_TEST(output__over_the_limit__capped_and_said)
{
    struct wire_start start = command("e1", "yes");
    struct outcome got = {0};
    struct client client;

    start.max_output = 100000;
    start.timeout_ms = 1500;
    client_open(&client, &box);
    client_start(&client, &start);
    while (got.n_truncated == 0)
        client_event(&client, &got);
    ck_assert(!got.has_exited);
    ck_assert_uint_eq(got.size[0], 100000);
    client_drain(&client, &got);
    ck_assert_int_eq(got.exited.reason, WIRE_EXIT_TIMED_OUT);
    ck_assert_uint_eq(got.size[0], 100000);
    ck_assert_uint_eq(got.size[0] + got.dropped[0], got.exited.bytes[0]);
    ck_assert_uint_gt(got.exited.bytes[0], 1 << 20);
    client_close(&client);
    outcome_free(&got);
}
END_TEST

/* Collected output: head and tail of each stream, the rest counted; a repeat gets the same. */
START_TEST(output__collected__head_and_tail)
{
    struct wire_start start = command("e1", "seq 1000000; seq 1000000 >&2");
    struct outcome got, again;

    start.collect = true;
    start.max_output = 20000;
    got = run(&box, &start);
    ck_assert_int_eq(got.exited.exit_code, 0);
    for (int s = 0; s < WIRE_N_STREAMS; s++) {
        ck_assert_uint_eq(got.size[s] + got.dropped[s], 6888896);
        ck_assert_uint_ge(got.size[s], 20000);
        ck_assert_int_eq(strncmp(got.data[s], "1\n2\n3\n", 6), 0);
        ck_assert_str_eq(got.data[s] + got.size[s] - 8, "1000000\n");
    }
    again = run(&box, &start);
    ck_assert_uint_eq(again.size[0], got.size[0]);
    ck_assert_int_eq(memcmp(again.data[0], got.data[0], got.size[0]), 0);
    outcome_free(&got);
    outcome_free(&again);

    /* Within the limit nothing is missing, however small and mixed the writes are. */
    start = command("e2", "for i in $(seq 2000); do echo -n a; echo -n b >&2; done");
    start.collect = true;
    start.max_output = 2000;
    got = run(&box, &start);
    ck_assert_uint_eq(got.size[0], 2000);
    ck_assert_uint_eq(got.size[1], 2000);
    ck_assert_uint_eq(got.n_truncated, 0);
    outcome_free(&got);
}
END_TEST

/* stdin given with the start is fed whole, then ends. */
START_TEST(stdin__given__fed_exactly_then_ends)
{
    enum { SIZE = 3 * MIB };
    static uint8_t data[SIZE];
    struct wire_start start = command("e1", "md5sum");
    struct outcome got;

    memset(data, 'x', sizeof data);
    start.stdin_data = data;
    start.stdin_size = sizeof data;
    got = run(&box, &start);
    ck_assert_int_eq(got.exited.exit_code, 0);
    ck_assert_str_eq(got.data[0], "c1887f0c970afa48194adf7f5c504696  -\n");
    outcome_free(&got);
}
END_TEST

/* Input by pieces with offsets: what is repeated is not fed twice, a gap is refused, the end is
 * the end. */
START_TEST(input__repeated__not_fed_twice)
{
    struct wire_start start = command("e1", "cat");
    struct outcome got = {0};
    struct client client;

    start.keep_stdin_open = true;
    start.stdin_data = (const uint8_t *)"ab";
    start.stdin_size = 2;
    client_open(&client, &box);
    client_start(&client, &start);
    client_event(&client, &got);
    ck_assert_int_eq(send_input(&box, "e1", 2, "cde", 3, false), 5);
    ck_assert_int_eq(send_input(&box, "e1", 2, "cde", 3, false), 5);
    ck_assert_int_eq(send_input(&box, "e1", 4, "efg", 3, false), 7);
    ck_assert_int_eq(send_input(&box, "e1", 9, "x", 1, false), -BERTH_REASON_FIELD_INVALID);
    ck_assert_int_eq(send_input(&box, "e1", 7, "h", 1, true), 8);
    ck_assert_int_eq(send_input(&box, "e1", 7, "h", 1, true), 8);
    client_drain(&client, &got);
    ck_assert_str_eq(got.data[0], "abcdefgh");
    ck_assert_int_eq(got.exited.exit_code, 0);
    ck_assert_int_eq(send_input(&box, "e1", 0, "abcdefgh", 8, true), 8);
    ck_assert_int_eq(send_input(&box, "e1", 8, "i", 1, false), -BERTH_REASON_PROCESS_NOT_FOUND);
    ck_assert_int_eq(send_input(&box, "nix", 0, "i", 1, false),
                     -BERTH_REASON_PROCESS_NOT_FOUND);
    client_close(&client);
    outcome_free(&got);
}
END_TEST

/* Data after the end, or into a command that never took any, is refused. */
START_TEST(input__closed__refused)
{
    struct wire_start start = command("e1", "exec <&-; echo closed; sleep 300");
    struct outcome got = {0};
    struct client client;

    client_open(&client, &box);
    start.keep_stdin_open = true;
    client_start(&client, &start);
    while (got.n_output == 0)
        client_event(&client, &got);
    ck_assert_int_eq(send_input(&box, "e1", 0, "x", 1, false), -BERTH_REASON_STDIN_CLOSED);
    ck_assert_int_eq(send_input(&box, "e1", 0, "x", 1, false), -BERTH_REASON_STDIN_CLOSED);
    ck_assert(send_signal(&box, "e1", SIGKILL, false));
    client_drain(&client, &got);
    client_close(&client);
    outcome_free(&got);

    start = command("e2", "sleep 300");
    client_open(&client, &box);
    client_start(&client, &start);
    client_event(&client, &got);
    ck_assert_int_eq(send_input(&box, "e2", 0, "x", 1, false), -BERTH_REASON_STDIN_CLOSED);
    ck_assert(send_signal(&box, "e2", SIGKILL, false));
    client_drain(&client, &got);
    client_close(&client);
    outcome_free(&got);
}
END_TEST

static void begin_input(struct client *client, const char *exec_id, uint64_t offset,
                        const void *data, size_t size)
{
    struct wire_input input = {.offset = offset, .data = data, .size = size};
    struct wire_frame frame;

    snprintf(input.ref.exec_id, sizeof input.ref.exec_id, "%s", exec_id);
    ck_assert_int_eq(wire_encode_input(&input, &frame), 0);
    client_open(client, &box);
    client_send(client, frame);
}

/* A command that does not read: the call waits; a broken off one is completed by its repeat
 * without a byte doubled or lost; too many at once are refused. */
START_TEST(input__command_does_not_read__back_pressure)
{
    enum { SIZE = MIB };
    static uint8_t data[SIZE];
    struct wire_start start = command("e1", "echo up; read x < /tmp/berth-fifo; md5sum");
    struct wire_start make = command("e0", "rm -f /tmp/berth-fifo; mkfifo /tmp/berth-fifo"),
                      go = command("e9", "echo go > /tmp/berth-fifo; rm /tmp/berth-fifo");
    struct outcome got = run(&box, &make), went;
    struct client client, a, b, c;
    const uint8_t *payload;
    size_t size;

    outcome_free(&got);
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 7 + i / 256);
    start.keep_stdin_open = true;
    client_open(&client, &box);
    client_start(&client, &start);
    while (got.n_output == 0)
        client_event(&client, &got);
    begin_input(&a, "e1", 0, data, SIZE);
    begin_input(&b, "e1", 0, data, SIZE); /* a repeat of one that has not ended */
    begin_input(&c, "e1", 0, data, SIZE);
    ck_assert_int_eq(client_next(&c, &payload, &size), WIRE_ERROR);
    client_close(&c);
    client_close(&a); /* broken off in the middle */
    went = run(&box, &go);
    outcome_free(&went);
    ck_assert_int_eq(client_next(&b, &payload, &size), WIRE_INPUT_DONE);
    client_close(&b);
    ck_assert_int_eq(send_input(&box, "e1", SIZE, "", 0, true), SIZE);
    client_drain(&client, &got);
    ck_assert_str_eq(got.data[0] + 3, "85bfb9943e6f0cb09f0f52679e9eac2b  -\n");
    client_close(&client);
    outcome_free(&got);
}
END_TEST

/* /dev/stdout and /dev/stderr belong to the command's account. */
START_TEST(output__dev_stdout__can_be_opened)
{
    struct wire_start start = command("e1", "echo a > /dev/stdout; echo b > /dev/stderr");
    struct outcome got = run(&box, &start);

    ck_assert_str_eq(got.data[0], "a\n");
    ck_assert_str_eq(got.data[1], "b\n");
    outcome_free(&got);
}
END_TEST

/* Two readers: each gets everything. */
START_TEST(output__two_readers__both_get_all)
{
    struct wire_start start = command("e1", "sleep 0.2; seq 20000");
    struct outcome a = {0}, b = {0};
    struct client first, second;

    client_open(&first, &box);
    client_start(&first, &start);
    client_event(&first, &a);
    client_open(&second, &box);
    client_attach(&second, "e1", 0);
    client_drain(&second, &b);
    client_drain(&first, &a);
    ck_assert_uint_eq(a.size[0], 108894);
    ck_assert_uint_eq(b.size[0], 108894);
    client_close(&first);
    client_close(&second);
    outcome_free(&a);
    outcome_free(&b);
}
END_TEST

/* Garbage on the socket closes that connection and nothing else. */
START_TEST(socket__garbage__only_that_connection)
{
    struct wire_start start = command("e1", "echo fine");
    struct outcome got;

    for (int i = 0; i < 50; i++) {
        struct client client;
        uint8_t *junk = malloc(64);

        for (int j = 0; j < 64; j++)
            junk[j] = (uint8_t)(i * 37 + j * 11);
        if (i % 2)
            junk[0] = WIRE_VERSION;
        client_open(&client, &box);
        client_send(&client, (struct wire_frame){junk, 64});
        client_close(&client);
    }
    got = run(&box, &start);
    ck_assert_str_eq(got.data[0], "fine\n");
    outcome_free(&got);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("supervisor/streams");
    TCase *tcase = tcase_create("streams"), *narrow = tcase_create("small limits");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, open_box, close_box);
    tcase_add_test(tcase, output__character_split__bytes_identical);
    tcase_add_test(tcase, output__all_byte_values__exact);
    tcase_add_test(tcase, output__one_gb__all_there_and_memory_flat);
    tcase_add_test(tcase, output__reader_stalls__command_waits);
    tcase_add_test(tcase, output__over_the_limit__capped_and_said);
    tcase_add_test(tcase, output__collected__head_and_tail);
    tcase_add_test(tcase, stdin__given__fed_exactly_then_ends);
    tcase_add_test(tcase, input__repeated__not_fed_twice);
    tcase_add_test(tcase, input__closed__refused);
    tcase_add_test(tcase, output__dev_stdout__can_be_opened);
    tcase_add_test(tcase, output__two_readers__both_get_all);
    tcase_add_test(tcase, socket__garbage__only_that_connection);
    suite_add_tcase(suite, tcase);
    tcase_set_timeout(narrow, 120);
    tcase_add_checked_fixture(narrow, open_narrow_box, close_box);
    tcase_add_test(narrow, output__nobody_reads__oldest_dropped_and_counted);
    tcase_add_test(narrow, input__command_does_not_read__back_pressure);
    suite_add_tcase(suite, narrow);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
