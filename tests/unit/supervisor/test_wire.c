#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>

#include "services/adapter-local/spawner/wire.h"

static const uint8_t *payload_of(const struct wire_frame *frame, size_t *ret_size)
{
    *ret_size = frame->size - WIRE_HEADER_SIZE;
    return frame->data + WIRE_HEADER_SIZE;
}

/* A command comes out as it went in. */
START_TEST(wire_start__encoded__decoded_the_same)
{
    static const char args[] = "printf\0\0a b\nc\0\xc3\xa4", env[] = "A=1\0B=";
    struct wire_start start = {.exec_id = "e", .digest = "d", .cwd = "/w", .timeout_ms = 5},
                      got;
    struct wire_frame frame;
    const uint8_t *payload;
    size_t size;

    start.args = (struct wire_strings){4, args, sizeof args};
    start.env = (struct wire_strings){2, env, sizeof env};
    start.stdin_data = (const uint8_t *)"\0x";
    start.stdin_size = 2;
    start.detach = start.root = true;
    ck_assert_int_eq(wire_encode_start(&start, &frame), 0);
    payload = payload_of(&frame, &size);
    ck_assert_int_eq(wire_decode_start(payload, size, &got, NULL), BERTH_OK);
    ck_assert_uint_eq(got.args.n, 4);
    ck_assert_mem_eq(got.args.bytes, args, sizeof args);
    ck_assert_uint_eq(got.env.n, 2);
    ck_assert_mem_eq(got.env.bytes, env, sizeof env);
    ck_assert_uint_eq(got.stdin_size, 2);
    ck_assert_mem_eq(got.stdin_data, "\0x", 2);
    ck_assert(got.detach && got.root && !got.shell && !got.keep_stdin_open);
    ck_assert_int_eq(got.timeout_ms, 5);
    ck_assert_str_eq(got.cwd, "/w");
    free(frame.data);
}
END_TEST

/* Every cut of a frame is refused, and no cut is read beyond. */
START_TEST(wire_start__cut_anywhere__refused)
{
    struct wire_start start = {.exec_id = "e", .digest = "d", .cwd = "/w"}, got;
    struct wire_frame frame;

    start.args = (struct wire_strings){1, "true", 5};
    ck_assert_int_eq(wire_encode_start(&start, &frame), 0);
    for (size_t size = 0; size < frame.size - WIRE_HEADER_SIZE; size++) {
        uint8_t *copy = malloc(size + 1); /* exact, so that a sanitizer sees one byte more */

        memcpy(copy, frame.data + WIRE_HEADER_SIZE, size);
        copy = realloc(copy, size ? size : 1);
        ck_assert_int_ne(wire_decode_start(copy, size, &got, NULL), BERTH_OK);
        free(copy);
    }
    free(frame.data);
}
END_TEST

/* Each row: an EXITED payload's JSON, and whether it may be believed. */
static const struct {
    const char *json;
    bool good;
} exited_rows[] = {
    {"{\"seq\":3,\"reason\":1,\"exit_code\":7}", true},
    {"{\"seq\":3,\"reason\":1,\"exit_code\":7,\"new\":[1]}", true},
    {"{\"seq\":3,\"exit_code\":0}", false}, /* never "exited, code 0" by default */
    {"{\"seq\":3,\"reason\":0,\"exit_code\":0}", false},
    {"{\"seq\":3,\"reason\":7}", false},
    {"{\"seq\":3,\"reason\":1,\"exit_code\":256}", false},
    {"{\"seq\":3,\"reason\":1,\"exit_code\":-1}", false},
    {"{\"seq\":-3,\"reason\":1}", false},
    {"{\"seq\":3,\"reason\":\"1\"}", false},
    {"{\"seq\":3,\"reason\":1", false},
    {"[]", false},
    {"", false},
};

START_TEST(wire_exited__rows__as_expected)
{
    const char *json = exited_rows[_i].json;
    uint8_t payload[256] = {(uint8_t)strlen(json)};
    struct wire_exited got;

    memcpy(payload + 4, json, strlen(json));
    ck_assert_int_eq(wire_decode_exited(payload, 4 + strlen(json), &got, NULL) == BERTH_OK,
                     exited_rows[_i].good);
}
END_TEST

/* An error keeps its reason, text, field and rule; an unknown reason is ours to explain. */
START_TEST(wire_error__round_trip__same_reason)
{
    struct berth_error err = {0}, got = {0};
    struct wire_frame frame;
    const uint8_t *payload;
    size_t size;

    berth_fail_field(&err, "offset", "at most %d", 5);
    ck_assert_int_eq(wire_encode_error(&err, &frame), 0);
    payload = payload_of(&frame, &size);
    ck_assert_int_eq(wire_decode_error(payload, size, &got), BERTH_INVALID_ARGUMENT);
    ck_assert_str_eq(got.field, "offset");
    ck_assert_str_eq(got.rule, "at most 5");
    ck_assert_str_eq(got.text, err.text);
    free(frame.data);
    ck_assert_int_eq(wire_decode_error((const uint8_t *)"\2\0\0\0{}", 6, &got), BERTH_INTERNAL);
    ck_assert_int_eq(wire_decode_error(NULL, 0, &got), BERTH_INTERNAL);
}
END_TEST

static int file_with(const void *data, size_t size)
{
    int fd = memfd_create("frames", MFD_CLOEXEC);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, data, size), (ssize_t)size);
    lseek(fd, 0, SEEK_SET);
    return fd;
}

/* Frames that arrive byte by byte, or many at once, come out one by one. */
START_TEST(wire_read__any_pieces__same_frames)
{
    struct wire_reader reader = {0};
    struct wire_frame a, b;
    const uint8_t *payload;
    enum wire_type type;
    uint64_t next;
    size_t size;
    int fds[2];

    ck_assert_int_eq(pipe2(fds, O_NONBLOCK), 0);
    ck_assert_int_eq(wire_encode_input_done(77, &a), 0);
    ck_assert_int_eq(wire_encode_empty(WIRE_LIST, &b), 0);
    for (size_t i = 0; i < a.size; i++) {
        ck_assert_int_eq(wire_read(&reader, fds[0], &type, &payload, &size), WIRE_READ_AGAIN);
        ck_assert_int_eq(write(fds[1], a.data + i, 1), 1);
    }
    ck_assert_int_eq(write(fds[1], b.data, b.size), (ssize_t)b.size);
    ck_assert_int_eq(write(fds[1], a.data, a.size), (ssize_t)a.size);
    close(fds[1]);
    ck_assert_int_eq(wire_read(&reader, fds[0], &type, &payload, &size), WIRE_READ_FRAME);
    ck_assert_int_eq(type, WIRE_INPUT_DONE);
    ck_assert_int_eq(wire_decode_input_done(payload, size, &next, NULL), BERTH_OK);
    ck_assert_uint_eq(next, 77);
    ck_assert(wire_reader_ready(&reader));
    ck_assert_int_eq(wire_read(&reader, fds[0], &type, &payload, &size), WIRE_READ_FRAME);
    ck_assert_int_eq(type, WIRE_LIST);
    ck_assert_uint_eq(size, 0);
    ck_assert_int_eq(wire_read(&reader, fds[0], &type, &payload, &size), WIRE_READ_FRAME);
    ck_assert_int_eq(type, WIRE_INPUT_DONE);
    ck_assert(!wire_reader_ready(&reader));
    ck_assert_int_eq(wire_read(&reader, fds[0], &type, &payload, &size), WIRE_READ_END);
    wire_reader_deinit(&reader);
    close(fds[0]);
    free(a.data);
    free(b.data);
}
END_TEST

/* Each row: a header that must not be followed. */
static const uint8_t bad_headers[][WIRE_HEADER_SIZE] = {
    {0, WIRE_LIST, 0, 0, 0, 0, 0, 0},         /* version */
    {2, WIRE_LIST, 0, 0, 0, 0, 0, 0},         /* version */
    {1, 0, 0, 0, 0, 0, 0, 0},                 /* type */
    {1, 99, 0, 0, 0, 0, 0, 0},                /* type */
    {1, WIRE_LIST, 1, 0, 0, 0, 0, 0},         /* reserved */
    {1, WIRE_LIST, 0, 0, 255, 255, 255, 255}, /* size */
    {1, WIRE_OUTPUT, 0, 0, 10, 0, 4, 0},      /* one more than output may have */
    {1, WIRE_START, 0, 0, 1, 0, 0x60, 0},     /* one more than anything may have */
};

START_TEST(wire_read__bad_header__broken)
{
    struct wire_reader reader = {0};
    const uint8_t *payload;
    enum wire_type type;
    size_t size;
    int fd = file_with(bad_headers[_i], WIRE_HEADER_SIZE);

    ck_assert_int_eq(wire_read(&reader, fd, &type, &payload, &size), WIRE_READ_BROKEN);
    wire_reader_deinit(&reader);
    close(fd);
}
END_TEST

/* The end within a frame is not an end. */
START_TEST(wire_read__cut_frame__broken)
{
    struct wire_reader reader = {0};
    struct wire_frame frame;
    const uint8_t *payload;
    enum wire_type type;
    size_t size;

    ck_assert_int_eq(wire_encode_input_done(1, &frame), 0);
    for (size_t cut = 1; cut < frame.size; cut++) {
        int fd = file_with(frame.data, cut);

        ck_assert_int_eq(wire_read(&reader, fd, &type, &payload, &size), WIRE_READ_BROKEN);
        wire_reader_deinit(&reader);
        close(fd);
    }
    free(frame.data);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("supervisor/wire");
    TCase *tcase = tcase_create("wire");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_test(tcase, wire_start__encoded__decoded_the_same);
    tcase_add_test(tcase, wire_start__cut_anywhere__refused);
    tcase_add_loop_test(tcase, wire_exited__rows__as_expected, 0,
                        (int)BERTH_COUNT(exited_rows));
    tcase_add_test(tcase, wire_error__round_trip__same_reason);
    tcase_add_test(tcase, wire_read__any_pieces__same_frames);
    tcase_add_loop_test(tcase, wire_read__bad_header__broken, 0, (int)BERTH_COUNT(bad_headers));
    tcase_add_test(tcase, wire_read__cut_frame__broken);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
