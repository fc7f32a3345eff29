/* Streams of every kind, straight and through a relay: content, back-pressure, and ends. */
#include <check.h>
#include <poll.h>
#include <stdio.h>

#include "tests/component/rpc/client.h"
#include "tests/component/rpc/relay.h"

enum { CHUNK = 1 << 20, N_RACES = 200 };

static struct echo_server server;
static struct relay relay;
static struct berth_channel *channel;
static struct berth_loop *loop;
static struct echo_client client;

static void setup(void)
{
    struct berth_error err = {0};

    echo_server_start(&server, NULL, socket_path());
    relay_start(&relay, server.address);
    ck_assert(!berth_loop_new(&loop, &err));
    ck_assert(!berth_loop_start(loop, "client-loop", &err));
    ck_assert(!berth_channel_new(server.address, NULL, &channel, &err));
}

static void setup_relayed(void)
{
    struct berth_error err = {0};

    setup();
    channel = berth_channel_free(channel);
    ck_assert(!berth_channel_new(relay.address, NULL, &channel, &err));
}

static void teardown(void)
{
    channel = berth_channel_free(channel);
    relay_stop(&relay);
    loop = berth_loop_free(loop);
    echo_server_stop(&server, 1000);
}

static void open_client(const char *path)
{
    echo_client_open(&client, channel, loop, path, NULL);
}

static bool write_text(const char *text, uint32_t count)
{
    EchoRequest req = ECHO_REQUEST_INIT;

    req.text = (char *)(uintptr_t)text;
    req.count = count;
    return echo_client_write_request(&client, &req);
}

/* A unary method is a stream of one message each way. */
START_TEST(stream__unary_method__one_message_each_way)
{
    EchoResponse *resp;

    open_client(ECHO_PATH("Unary"));
    ck_assert(write_text("one", 0));
    echo_client_half_close(&client);
    resp = echo_client_read_response(&client);
    ck_assert_ptr_nonnull(resp);
    ck_assert_str_eq(resp->text, "one");
    echo_response_free(resp);
    ck_assert_ptr_null(echo_client_read(&client));
    ck_assert_int_eq(echo_client_wait(&client), BERTH_OK);
    echo_client_deinit(&client);
}
END_TEST

/* Messages of a server stream come in order, then the status. */
START_TEST(stream__server__all_in_order)
{
    EchoResponse *resp;

    open_client(ECHO_PATH("Server"));
    ck_assert(write_text("x", 100));
    echo_client_half_close(&client);
    for (uint32_t i = 1; i <= 100; i++) {
        resp = echo_client_read_response(&client);
        ck_assert_ptr_nonnull(resp);
        ck_assert_uint_eq(resp->count, i);
        echo_response_free(resp);
    }
    ck_assert_ptr_null(echo_client_read(&client));
    ck_assert_int_eq(echo_client_wait(&client), BERTH_OK);
    echo_client_deinit(&client);
}
END_TEST

/* A stream that fails midway gives what it had, then the whole error. */
START_TEST(stream__server_fails__messages_then_error)
{
    EchoRequest req = ECHO_REQUEST_INIT;

    req.count = 3;
    req.text = (char *)"midway";
    req.fail_reason = (char *)"FILE_CHANGED";
    open_client(ECHO_PATH("Server"));
    ck_assert(echo_client_write_request(&client, &req));
    echo_client_half_close(&client);
    for (int i = 0; i < 3; i++)
        echo_response_free(echo_client_read_response(&client));
    ck_assert_uint_eq(client.n_messages, 3);
    ck_assert_ptr_null(echo_client_read(&client));
    ck_assert_int_eq(echo_client_wait(&client), BERTH_ABORTED);
    ck_assert_int_eq(client.err.reason, BERTH_REASON_FILE_CHANGED);
    ck_assert_str_eq(client.text, "as asked: midway");
    ck_assert_str_eq(client.err.resource, "things/1");
    echo_client_deinit(&client);
}
END_TEST

/* A client stream is counted whole before it is answered. */
START_TEST(stream__client__one_answer)
{
    EchoResponse *resp;

    open_client(ECHO_PATH("Client"));
    for (int i = 0; i < 50; i++)
        ck_assert(write_text("part", 0));
    echo_client_half_close(&client);
    resp = echo_client_read_response(&client);
    ck_assert_ptr_nonnull(resp);
    ck_assert_uint_eq(resp->count, 50);
    echo_response_free(resp);
    ck_assert_int_eq(echo_client_wait(&client), BERTH_OK);
    ck_assert_uint_eq(atomic_load(&server.echo.n_half_closed), 1);
    echo_client_deinit(&client);
}
END_TEST

/* Chunks of 1 MiB go both ways byte for byte. */
START_TEST(stream__bidi_chunks__exact)
{
    uint8_t *bytes = malloc(CHUNK);

    ck_assert_ptr_nonnull(bytes);
    open_client(ECHO_PATH("Bidi"));
    for (unsigned i = 0; i < 20; i++) {
        struct berth_buf *msg;

        for (size_t k = 0; k < CHUNK; k++)
            bytes[k] = (uint8_t)(k * 31 + k / 4096 + i);
        ck_assert(echo_client_write(&client, berth_buf_new(bytes, CHUNK), 10000));
        msg = echo_client_read(&client);
        ck_assert_ptr_nonnull(msg);
        ck_assert_uint_eq(berth_buf_size(msg), CHUNK);
        ck_assert_int_eq(memcmp(berth_buf_data(msg), bytes, CHUNK), 0);
        berth_buf_unref(msg);
    }
    echo_client_half_close(&client);
    ck_assert_ptr_null(echo_client_read(&client));
    ck_assert_int_eq(echo_client_wait(&client), BERTH_OK);
    echo_client_deinit(&client);
    free(bytes);
}
END_TEST

/* A reader that stops reading stops the writer after a bounded number of messages, and nothing
 * is lost when it goes on. */
START_TEST(stream__reader_stops__writer_waits)
{
    EchoRequest req = ECHO_REQUEST_INIT;
    unsigned n_before = 0, n_now;

    req.count = 1000;
    req.response_bytes = 64 << 10;
    open_client(ECHO_PATH("Server"));
    ck_assert(echo_client_write_request(&client, &req));
    echo_client_half_close(&client);
    echo_response_free(echo_client_read_response(&client));
    do { /* until it has stood still for a while */
        n_before = atomic_load(&server.echo.n_written);
        (void)poll(NULL, 0, 200);
        n_now = atomic_load(&server.echo.n_written);
    } while (n_now != n_before);
    ck_assert_uint_lt(n_now, 250); /* of 64 MB at most 16 MB are on their way */
    for (int i = 1; i < 1000; i++)
        echo_response_free(echo_client_read_response(&client));
    ck_assert_uint_eq(client.n_messages, 1000);
    ck_assert_ptr_null(echo_client_read(&client));
    ck_assert_int_eq(echo_client_wait(&client), BERTH_OK);
    echo_client_deinit(&client);
}
END_TEST

/* A server that does not read stops an uploading client. */
START_TEST(stream__server_stops_reading__uploader_waits)
{
    unsigned n = 0;
    uint8_t *bytes = calloc(1, 64 << 10);

    open_client(ECHO_PATH("Bidi")); /* reads on when we read, which we do not */
    while (n < 1000 && echo_client_write(&client, berth_buf_new(bytes, 64 << 10), 500))
        n++;
    ck_assert_uint_lt(n, 500);
    echo_client_cancel(&client);
    ck_assert_int_eq(echo_client_wait(&client), BERTH_CANCELLED);
    wait_for_at_least(&server.echo.n_closed, 1);
    echo_client_deinit(&client);
    free(bytes);
}
END_TEST

/* When the caller cancels, the handler is told once, and the call ends as CANCELLED. */
START_TEST(stream__client_cancels__handler_told)
{
    EchoRequest req = ECHO_REQUEST_INIT;

    req.count = 100000;
    req.response_bytes = 4096;
    open_client(ECHO_PATH("Server"));
    ck_assert(echo_client_write_request(&client, &req));
    for (int i = 0; i < 3; i++)
        echo_response_free(echo_client_read_response(&client));
    echo_client_cancel(&client);
    ck_assert_int_eq(echo_client_wait(&client), BERTH_CANCELLED);
    wait_for_at_least(&server.echo.n_closed, 1);
    ck_assert_uint_eq(atomic_load(&server.echo.n_cancelled), 1);
    ck_assert_int_eq(atomic_load(&server.echo.last_closed), BERTH_CANCELLED);
    echo_client_deinit(&client);
}
END_TEST

/* The deadline ends a stream on both sides. */
START_TEST(stream__deadline__both_sides_know)
{
    const struct berth_call_options options = {.timeout_ms = 400};

    echo_client_open(&client, channel, loop, ECHO_PATH("Bidi"), &options);
    ck_assert(write_text("x", 0));
    ck_assert_int_eq(echo_client_wait(&client), BERTH_DEADLINE_EXCEEDED);
    wait_for_at_least(&server.echo.n_closed, 1);
    ck_assert_int_eq(atomic_load(&server.echo.last_closed), BERTH_CANCELLED);
    ck_assert_uint_eq(atomic_load(&server.echo.n_half_closed), 0);
    echo_client_deinit(&client);
}
END_TEST

/* An upload that is cut off must never look like one that is complete. */
START_TEST(stream__upload_cut_off__never_a_half_close)
{
    for (unsigned i = 0; i < N_RACES; i++) {
        open_client(ECHO_PATH("Client"));
        ck_assert(write_text("part", 0));
        echo_client_cancel(&client);
        (void)echo_client_wait(&client);
        echo_client_deinit(&client);
    }
    open_client(ECHO_PATH("Client"));
    ck_assert(write_text("whole", 0));
    echo_client_half_close(&client);
    echo_response_free(echo_client_read_response(&client));
    ck_assert_int_eq(echo_client_wait(&client), BERTH_OK);
    echo_client_deinit(&client);
    wait_for_at_least(&server.echo.n_half_closed, 1);
    ck_assert_uint_eq(atomic_load(&server.echo.n_half_closed), 1);
}
END_TEST

/* Once responses flow the two can be told apart by time only; that nearly always does. */
START_TEST(stream__bidi_cut_off__hardly_ever_a_half_close)
{
    for (unsigned i = 0; i < N_RACES; i++) {
        open_client(ECHO_PATH("Bidi"));
        ck_assert(write_text("part", 0));
        berth_buf_unref(echo_client_read(&client));
        echo_client_cancel(&client);
        (void)echo_client_wait(&client);
        echo_client_deinit(&client);
    }
    wait_for_at_least(&server.echo.n_closed, N_RACES);
    ck_assert_uint_lt(atomic_load(&server.echo.n_half_closed), N_RACES / 10);
}
END_TEST

/* An open handler that refuses ends the call with its error. */
START_TEST(stream__open_refuses__error)
{
    const struct berth_metadata metadata = {"refuse", "1", 1};
    const struct berth_call_options options = {.metadata = &metadata, .n_metadata = 1};

    echo_client_open(&client, channel, loop, ECHO_PATH("Bidi"), &options);
    echo_client_half_close(&client);
    ck_assert_int_eq(echo_client_wait(&client), BERTH_RESOURCE_EXHAUSTED);
    ck_assert_int_eq(client.err.reason, BERTH_REASON_QUOTA_EXCEEDED);
    ck_assert_uint_eq(atomic_load(&server.echo.n_closed), 0);
    echo_client_deinit(&client);
}
END_TEST

/* The first message is read before the handler is asked, and kept until it asks. */
START_TEST(stream__handler_asks_late__all_of_it_and_not_before)
{
    const struct berth_metadata late = {"late", "x", 1};
    const struct berth_call_options options = {.metadata = &late, .n_metadata = 1};
    EchoResponse *resp;

    echo_client_open(&client, channel, loop, ECHO_PATH("Client"), &options);
    ck_assert(write_text("one", 0));
    ck_assert(write_text("two", 0));
    echo_client_half_close(&client);
    resp = echo_client_read_response(&client);
    ck_assert_ptr_nonnull(resp);
    ck_assert_str_eq(resp->text, "two");
    ck_assert_uint_eq(resp->count, 2);
    echo_response_free(resp);
    ck_assert_int_eq(echo_client_wait(&client), BERTH_OK);
    echo_client_deinit(&client);
}
END_TEST

/* A handler that never asks ends its call when it likes, and the message is let go. */
START_TEST(stream__handler_never_asks__ends_all_the_same)
{
    const struct berth_metadata never = {"never", "x", 1};
    const struct berth_call_options options = {.metadata = &never, .n_metadata = 1};

    echo_client_open(&client, channel, loop, ECHO_PATH("Client"), &options);
    ck_assert(write_text("one", 0));
    ck_assert_int_eq(echo_client_wait(&client), BERTH_OK);
    ck_assert_uint_eq(atomic_load(&server.echo.n_half_closed), 0);
    echo_client_deinit(&client);
}
END_TEST

/* Text that is not UTF-8 stops at the guard, for unary and for evented methods. */
static const char *const guarded[] = {ECHO_PATH("Unary"), ECHO_PATH("Server"),
                                      ECHO_PATH("Evented")};

START_TEST(stream__bad_utf8__field_invalid)
{
    static const uint8_t bytes[] = {0x0a, 2, 0xff, 0xfe};

    open_client(guarded[_i]);
    ck_assert(echo_client_write(&client, berth_buf_new(bytes, sizeof bytes), 5000));
    echo_client_half_close(&client);
    ck_assert_int_eq(echo_client_wait(&client), BERTH_INVALID_ARGUMENT);
    ck_assert_int_eq(client.err.reason, BERTH_REASON_FIELD_INVALID);
    ck_assert_str_eq(client.err.field, "text");
    echo_client_deinit(&client);
}
END_TEST

/* A call without its message is the caller's mistake. */
START_TEST(stream__no_request__invalid_argument)
{
    open_client(guarded[_i == 2 ? 0 : _i]);
    echo_client_half_close(&client);
    ck_assert_int_eq(echo_client_wait(&client), BERTH_INVALID_ARGUMENT);
    echo_client_deinit(&client);
}
END_TEST

/* A method that nobody has: at once, although the client has not half-closed. */
START_TEST(stream__unknown_method__unimplemented)
{
    open_client(ECHO_PATH("Missing"));
    echo_client_half_close(&client);
    ck_assert_int_eq(echo_client_wait(&client), BERTH_UNIMPLEMENTED);
    ck_assert_int_eq(client.err.reason, BERTH_REASON_METHOD_UNKNOWN);
    echo_client_deinit(&client);
}
END_TEST

/* Through a relay a status arrives exactly: code, text and details. */
START_TEST(relay__status__exact)
{
    struct echo_client direct;
    struct berth_channel *straight;
    EchoRequest req = ECHO_REQUEST_INIT;
    struct berth_error err = {0};

    req.fail_reason = (char *)"SANDBOX_TERMINAL";
    req.text = (char *)"\xe2\x82\xac 100% of it";
    ck_assert(!berth_channel_new(server.address, NULL, &straight, &err));
    for (int i = 0; i < 2; i++) {
        struct echo_client *one = i ? &client : &direct;

        echo_client_open(one, i ? channel : straight, loop, ECHO_PATH("Server"), NULL);
        ck_assert(echo_client_write_request(one, &req));
        echo_client_half_close(one);
        ck_assert_int_eq(echo_client_wait(one), BERTH_NOT_FOUND);
        ck_assert_int_eq(one->err.reason, BERTH_REASON_SANDBOX_TERMINAL);
        ck_assert_str_eq(one->err.sandbox_id, "sb-1");
    }
    ck_assert_str_eq(client.text, direct.text);
    ck_assert_uint_eq(client.details_size, direct.details_size);
    echo_client_deinit(&client);
    echo_client_deinit(&direct);
    berth_channel_free(straight);
}
END_TEST

/* A relay whose upstream cannot be reached says so with a reason: nothing was done. Where it
 * would be is not told. */
START_TEST(relay__upstream_gone__unavailable)
{
    echo_server_stop(&server, 0);
    open_client(ECHO_PATH("Server"));
    (void)write_text("x", 1);
    ck_assert_int_eq(echo_client_wait(&client), BERTH_UNAVAILABLE);
    ck_assert_int_eq(client.err.reason, BERTH_REASON_PEER_UNAVAILABLE);
    ck_assert_str_eq(client.err.text, berth_reason_text(BERTH_REASON_PEER_UNAVAILABLE));
    echo_client_deinit(&client);
    echo_server_start(&server, NULL, socket_path());
}
END_TEST

static void add_both_ways(TCase *tcase)
{
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, stream__unary_method__one_message_each_way);
    tcase_add_test(tcase, stream__server__all_in_order);
    tcase_add_test(tcase, stream__server_fails__messages_then_error);
    tcase_add_test(tcase, stream__client__one_answer);
    tcase_add_test(tcase, stream__bidi_chunks__exact);
    tcase_add_test(tcase, stream__reader_stops__writer_waits);
    tcase_add_test(tcase, stream__server_stops_reading__uploader_waits);
    tcase_add_test(tcase, stream__client_cancels__handler_told);
    tcase_add_test(tcase, stream__deadline__both_sides_know);
    tcase_add_test(tcase, stream__upload_cut_off__never_a_half_close);
    tcase_add_test(tcase, stream__bidi_cut_off__hardly_ever_a_half_close);
    tcase_add_test(tcase, stream__unknown_method__unimplemented);
}

int main(void)
{
    Suite *suite = suite_create("common/rpc streams");
    TCase *straight = tcase_create("straight"), *relayed = tcase_create("relayed");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(straight, setup, teardown);
    add_both_ways(straight);
    tcase_add_test(straight, stream__open_refuses__error);
    tcase_add_test(straight, stream__handler_asks_late__all_of_it_and_not_before);
    tcase_add_test(straight, stream__handler_never_asks__ends_all_the_same);
    tcase_add_loop_test(straight, stream__bad_utf8__field_invalid, 0,
                        (int)BERTH_COUNT(guarded));
    tcase_add_loop_test(straight, stream__no_request__invalid_argument, 0, 2);
    suite_add_tcase(suite, straight);
    tcase_add_checked_fixture(relayed, setup_relayed, teardown);
    add_both_ways(relayed);
    tcase_add_test(relayed, relay__status__exact);
    tcase_add_test(relayed, relay__upstream_gone__unavailable);
    suite_add_tcase(suite, relayed);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
