/* Unary calls: what comes back, and every way not to get it. */
#include <check.h>
#include <poll.h>
#include <stdio.h>

#include "common/time/time.h"
#include "tests/component/rpc/client.h"

static struct echo_server server;
static struct berth_channel *channel;

static void start(const struct berth_server_options *options)
{
    struct berth_error err = {0};

    echo_server_start(&server, options, socket_path());
    ck_assert(!berth_channel_new(server.address, NULL, &channel, &err));
}

static void setup(void)
{
    start(NULL);
}

static void setup_narrow(void)
{
    const struct berth_server_options options = {.n_workers = 1, .max_queued = 1};

    start(&options);
}

static void teardown(void)
{
    channel = berth_channel_free(channel);
    echo_server_stop(&server, 1000);
}

static enum berth_code call(const char *path, EchoRequest *req, int64_t timeout_ms,
                            EchoResponse **ret, struct berth_error *err)
{
    const struct berth_call_options options = {.timeout_ms = timeout_ms};

    *err = (struct berth_error){0};
    return echo_call(channel, path, req, &options, ret, err);
}

/* A text goes there and back, and a unix socket of our own uid is a peer. */
START_TEST(unary__text__comes_back)
{
    EchoRequest req = ECHO_REQUEST_INIT;
    struct berth_error err;
    EchoResponse *resp;

    req.text = (char *)"hello \xc3\xa9";
    ck_assert_msg(!call(ECHO_PATH("Unary"), &req, 0, &resp, &err), "%s", err.text);
    ck_assert_str_eq(resp->text, "hello \xc3\xa9");
    ck_assert(resp->is_peer);
    ck_assert_int_gt(resp->left_ms, 50000);
    ck_assert_int_le(resp->left_ms, 60000);
    echo_response_free(resp);
}
END_TEST

/* Metadata that ends in -bin carries any bytes; a traceparent is passed on as it came. */
START_TEST(unary__metadata__arrives)
{
    static const char bytes[] = "\0\xff\n,=",
                      trace[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const struct berth_metadata metadata[] = {{"echo-bin", bytes, sizeof bytes},
                                              {"traceparent", trace, sizeof trace - 1}};
    const struct berth_call_options options = {.metadata = metadata, .n_metadata = 2};
    struct berth_error err = {0};
    EchoResponse *resp;

    ck_assert(!echo_call(channel, ECHO_PATH("Unary"), NULL, &options, &resp, &err));
    ck_assert_uint_eq(resp->metadata.len, sizeof bytes);
    ck_assert_mem_eq(resp->metadata.data, bytes, sizeof bytes);
    ck_assert_str_eq(resp->traceparent, trace);
    echo_response_free(resp);
}
END_TEST

/* A path is needed for the call alone: its memory may be used for another one. */
START_TEST(unary__path_overwritten__later_calls_fine)
{
    struct berth_error err;
    EchoResponse *resp;
    char *path = strdup(ECHO_PATH("Unary"));

    for (int i = 0; i < 10; i++) {
        snprintf(path, sizeof ECHO_PATH("Unary"), "%s",
                 i % 2 ? ECHO_PATH("Unary") : ECHO_PATH("Nope_"));
        ck_assert_int_eq(call(path, NULL, 0, &resp, &err),
                         i % 2 ? BERTH_OK : BERTH_UNIMPLEMENTED);
        echo_response_free(resp);
    }
    free(path);
    ck_assert(!call(ECHO_PATH("Unary"), NULL, 0, &resp, &err));
    echo_response_free(resp);
}
END_TEST

/* Each row is no W3C traceparent; a new one takes its place. */
static const char *const bad_traces[] = {
    "",
    "00",
    "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
    "00-00000000000000000000000000000000-b7ad6b7169203331-01",
    "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0g",
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more"};

START_TEST(unary__bad_traceparent__replaced)
{
    const struct berth_metadata metadata = {"traceparent", bad_traces[_i],
                                            strlen(bad_traces[_i])};
    const struct berth_call_options options = {.metadata = &metadata, .n_metadata = 1};
    struct berth_error err = {0};
    EchoResponse *resp;

    ck_assert(!echo_call(channel, ECHO_PATH("Unary"), NULL, &options, &resp, &err));
    ck_assert_uint_eq(strlen(resp->traceparent), 55);
    ck_assert_str_ne(resp->traceparent, bad_traces[_i]);
    echo_response_free(resp);
}
END_TEST

/* Metadata of 60 KiB passes, as a sealed target may need; over the limit the call fails. */
START_TEST(unary__large_metadata__limit_64_kib)
{
    static char big[80 << 10];
    struct berth_metadata metadata = {"echo-bin", big, 44 << 10}; /* 59 KiB in base64 */
    const struct berth_call_options options = {.metadata = &metadata, .n_metadata = 1};
    struct berth_error err = {0};
    EchoResponse *resp;

    memset(big, 0xa5, sizeof big);
    ck_assert_msg(!echo_call(channel, ECHO_PATH("Unary"), NULL, &options, &resp, &err), "%s",
                  err.text);
    ck_assert_uint_eq(resp->metadata.len, 44 << 10);
    echo_response_free(resp);
    metadata.size = sizeof big;
    ck_assert(echo_call(channel, ECHO_PATH("Unary"), NULL, &options, &resp, &err));
}
END_TEST

/* Metadata that HTTP/2 does not allow is refused before it is sent. */
START_TEST(unary__metadata_not_allowed__field_invalid)
{
    static const struct berth_metadata bad[] = {{"Upper", "x", 1}, {"text", "a\nb", 3}};
    const struct berth_call_options options = {.metadata = &bad[_i], .n_metadata = 1};
    struct berth_error err = {0};
    EchoResponse *resp;

    ck_assert_int_eq(echo_call(channel, ECHO_PATH("Unary"), NULL, &options, &resp, &err),
                     BERTH_INVALID_ARGUMENT);
    ck_assert_uint_eq(atomic_load(&server.echo.n_entered), 0);
}
END_TEST

/* A failure arrives with reason, text and what is known of it. */
static const char *const all_kinds[] = {ECHO_PATH("Unary"), ECHO_PATH("Deferred"),
                                        ECHO_PATH("Evented")};

START_TEST(unary__failure__arrives_whole)
{
    EchoRequest req = ECHO_REQUEST_INIT;
    struct berth_error err;
    EchoResponse *resp;

    req.text = (char *)"broken";
    req.fail_reason = (char *)"LOCK_LOST";
    ck_assert_int_eq(call(all_kinds[_i], &req, 0, &resp, &err), BERTH_ABORTED);
    ck_assert_int_eq(err.reason, BERTH_REASON_LOCK_LOST);
    ck_assert_str_eq(err.text, "as asked: broken");
    ck_assert_str_eq(err.resource, "things/1");
    ck_assert_str_eq(err.sandbox_id, "sb-1");
    ck_assert_int_eq(err.retry_after_ms, 250);
}
END_TEST

/* What went wrong inside is for the log; the caller gets a request id to ask about. */
START_TEST(unary__internal__text_is_kept_back)
{
    EchoRequest req = ECHO_REQUEST_INIT;
    struct berth_error err;
    EchoResponse *resp;

    req.text = (char *)"password is hunter2";
    req.fail_reason = (char *)"INTERNAL_BUG";
    ck_assert_int_eq(call(all_kinds[_i], &req, 0, &resp, &err), BERTH_INTERNAL);
    ck_assert_int_eq(err.reason, BERTH_REASON_INTERNAL_BUG);
    ck_assert_int_eq(strncmp(err.text, "internal error (request ", 24), 0);
    ck_assert_uint_eq(strlen(err.text), 24 + 16 + 1);
    ck_assert_str_eq(err.resource, "");
}
END_TEST

/* Deferred answers come from another thread. */
START_TEST(unary__deferred__answered_later)
{
    EchoRequest req = ECHO_REQUEST_INIT;
    struct berth_error err;
    EchoResponse *resp;

    req.text = (char *)"later";
    req.hold_ms = 20;
    ck_assert_msg(!call(ECHO_PATH("Deferred"), &req, 0, &resp, &err), "%s", err.text);
    ck_assert_str_eq(resp->text, "later");
    echo_response_free(resp);
}
END_TEST

/* At the deadline the caller has its answer and the handler is told. */
START_TEST(unary__deadline__both_sides_know)
{
    EchoRequest req = ECHO_REQUEST_INIT;
    int64_t start_ms = berth_tick_ms(), took_ms;
    struct berth_error err;
    EchoResponse *resp;

    req.hold_ms = 60000; /* the handler returns when it is cancelled */
    ck_assert_int_eq(call(ECHO_PATH("Unary"), &req, 200, &resp, &err), BERTH_DEADLINE_EXCEEDED);
    took_ms = berth_tick_ms() - start_ms;
    ck_assert_int_eq(err.reason, BERTH_REASON_DEADLINE);
    ck_assert_int_ge(took_ms, 180);
    ck_assert_int_lt(took_ms, 2000);
}
END_TEST

/* What no method has is said to be unknown, at once, for calls of any kind. */
START_TEST(unary__unknown_method__unimplemented)
{
    struct berth_error err;
    EchoResponse *resp;

    ck_assert_int_eq(call("/berth.testing.v1.EchoService/Nope", NULL, 0, &resp, &err),
                     BERTH_UNIMPLEMENTED);
    ck_assert_int_eq(err.reason, BERTH_REASON_METHOD_UNKNOWN);
    ck_assert_int_eq(call("/berth.testing.v1.EchoService/Unaryy", NULL, 0, &resp, &err),
                     BERTH_UNIMPLEMENTED);
    ck_assert_int_eq(call("/", NULL, 0, &resp, &err), BERTH_UNIMPLEMENTED);
}
END_TEST

/* A message of exactly 4 MiB passes both ways, one byte more does not. */
START_TEST(unary__message_size__limit_4_mib)
{
    EchoRequest req = ECHO_REQUEST_INIT;
    struct berth_error err;
    EchoResponse *resp;
    size_t overhead;

    fill_payload(&req, BERTH_RPC_MESSAGE_MAX, 'x');
    req.response_bytes = 1;
    overhead = protobuf_c_message_get_packed_size(&req.base) - BERTH_RPC_MESSAGE_MAX;
    req.payload.len -= overhead;
    ck_assert_msg(!call(ECHO_PATH("Unary"), &req, 0, &resp, &err), "%s", err.text);
    echo_response_free(resp);
    req.payload.len++;
    ck_assert_int_eq(call(ECHO_PATH("Unary"), &req, 0, &resp, &err), BERTH_RESOURCE_EXHAUSTED);
    ck_assert_int_eq(err.reason, BERTH_REASON_MESSAGE_TOO_LARGE);
    free(req.payload.data);

    req = (EchoRequest)ECHO_REQUEST_INIT;
    req.response_bytes = BERTH_RPC_MESSAGE_MAX + 1;
    ck_assert_int_eq(call(ECHO_PATH("Unary"), &req, 0, &resp, &err), BERTH_RESOURCE_EXHAUSTED);
    ck_assert_int_eq(err.reason, BERTH_REASON_MESSAGE_TOO_LARGE);
}
END_TEST

/* ----------------------------------------------------------------- crowds */

struct crowd {
    pthread_t thread;
    const char *path;
    int64_t hold_ms;
    enum berth_code code;
    struct berth_error err;
};

static void *crowd_thread(void *arg)
{
    struct crowd *one = arg;
    EchoRequest req = ECHO_REQUEST_INIT;
    EchoResponse *resp;

    req.hold_ms = (uint32_t)one->hold_ms;
    one->code = call(one->path, &req, 0, &resp, &one->err);
    echo_response_free(resp);
    return NULL;
}

static void crowd_start(struct crowd *one, const char *path, int64_t hold_ms)
{
    *one = (struct crowd){.path = path, .hold_ms = hold_ms};
    ck_assert_int_eq(pthread_create(&one->thread, NULL, crowd_thread, one), 0);
}

/* Until the server's metrics hold this text; fails the test after 10 s. */
static void wait_for_line(const char *line)
{
    bool found = false;

    for (int64_t end_ms = berth_tick_ms() + 10000; !found; (void)poll(NULL, 0, 1)) {
        char *metrics = berth_server_metrics(server.echo.server);

        found = metrics && strstr(metrics, line);
        free(metrics);
        ck_assert_msg(berth_tick_ms() < end_ms, "not seen: %s", line);
    }
}

/* With one worker and one place in the queue, two of eight calls are served, six are told. */
START_TEST(unary__queue_full__overloaded)
{
    struct crowd crowd[8];
    unsigned n_ok = 0, n_refused = 0;

    crowd_start(&crowd[0], ECHO_PATH("Unary"), 60000);
    wait_for_at_least(&server.echo.n_entered, 1);
    for (size_t i = 1; i < BERTH_COUNT(crowd); i++)
        crowd_start(&crowd[i], ECHO_PATH("Unary"), 0);
    wait_for_line("berth_rpc_overloaded_total 6\n");
    atomic_store(&server.echo.release, true);
    for (size_t i = 0; i < BERTH_COUNT(crowd); i++) {
        pthread_join(crowd[i].thread, NULL);
        n_ok += crowd[i].code == BERTH_OK;
        n_refused += crowd[i].err.reason == BERTH_REASON_OVERLOADED;
    }
    ck_assert_uint_eq(n_ok, 2);
    ck_assert_uint_eq(n_refused, 6);
}
END_TEST

/* The priority lane is served while every ordinary worker is busy. */
START_TEST(unary__workers_busy__priority_lane_served)
{
    struct crowd busy;
    struct berth_error err;
    EchoResponse *resp;

    crowd_start(&busy, ECHO_PATH("Unary"), 60000);
    wait_for_at_least(&server.echo.n_entered, 1);
    ck_assert_msg(!call(ECHO_PATH("Priority"), NULL, 5000, &resp, &err), "%s", err.text);
    echo_response_free(resp);
    atomic_store(&server.echo.release, true);
    pthread_join(busy.thread, NULL);
    ck_assert_int_eq(busy.code, BERTH_OK);
}
END_TEST

/* A quick method needs no worker: it is served while all are busy and the queue is full. */
START_TEST(unary__queue_full__quick_method_served)
{
    struct crowd crowd[2];
    struct berth_error err;
    EchoResponse *resp;

    crowd_start(&crowd[0], ECHO_PATH("Unary"), 60000);
    wait_for_at_least(&server.echo.n_entered, 1);
    crowd_start(&crowd[1], ECHO_PATH("Unary"), 0);
    wait_for_line("berth_rpc_queued 1\n");
    ck_assert_msg(!call(ECHO_PATH("Quick"), NULL, 5000, &resp, &err), "%s", err.text);
    echo_response_free(resp);
    atomic_store(&server.echo.release, true);
    for (size_t i = 0; i < BERTH_COUNT(crowd); i++) {
        pthread_join(crowd[i].thread, NULL);
        ck_assert_int_eq(crowd[i].code, BERTH_OK);
    }
}
END_TEST

/* A channel's own limit refuses before anything is sent. */
START_TEST(unary__channel_limit__overloaded)
{
    const struct berth_channel_options options = {.max_in_flight = 1};
    struct berth_channel *limited, *whole = channel;
    struct crowd busy;
    struct berth_error err = {0};
    EchoResponse *resp;

    ck_assert(!berth_channel_new(server.address, &options, &limited, &err));
    channel = limited;
    crowd_start(&busy, ECHO_PATH("Unary"), 60000);
    wait_for_at_least(&server.echo.n_entered, 1);
    ck_assert_int_eq(call(ECHO_PATH("Unary"), NULL, 0, &resp, &err), BERTH_RESOURCE_EXHAUSTED);
    ck_assert_int_eq(err.reason, BERTH_REASON_OVERLOADED);
    atomic_store(&server.echo.release, true);
    pthread_join(busy.thread, NULL);
    ck_assert(!call(ECHO_PATH("Unary"), NULL, 0, &resp, &err));
    echo_response_free(resp);
    channel = whole;
    berth_channel_free(limited);
}
END_TEST

static void *hammer(void *arg)
{
    struct berth_error err;
    EchoResponse *resp;

    for (int i = 0; i < 200; i++) {
        enum berth_code code =
            call(i % 2 ? ECHO_PATH("Unary") : ECHO_PATH("Deferred"), NULL, 0, &resp, &err);

        if (code)
            atomic_fetch_add((atomic_uint *)arg, 1);
        echo_response_free(resp);
    }
    return NULL;
}

/* One channel serves many threads at once. */
START_TEST(unary__many_threads__all_answered)
{
    pthread_t threads[16];
    atomic_uint n_failed = 0;

    for (size_t i = 0; i < BERTH_COUNT(threads); i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, hammer, &n_failed), 0);
    for (size_t i = 0; i < BERTH_COUNT(threads); i++)
        pthread_join(threads[i], NULL);
    ck_assert_uint_eq(atomic_load(&n_failed), 0);
}
END_TEST

/* ------------------------------------------------------------------- async */

struct tally {
    atomic_uint n_done, n_ok;
    struct berth_error err;
};

static void on_done(void *arg, enum berth_code code, ProtobufCMessage *resp,
                    const struct berth_error *err)
{
    struct tally *tally = arg;

    if (code)
        tally->err = *err;
    else
        atomic_fetch_add(&tally->n_ok, 1);
    if (resp)
        protobuf_c_message_free_unpacked(resp, NULL);
    atomic_fetch_add(&tally->n_done, 1);
}

/* A thousand calls wait without a thread each. */
START_TEST(async__many__all_done_on_pool)
{
    EchoRequest req = ECHO_REQUEST_INIT;
    struct tally tally = {0};

    for (int i = 0; i < 1000; i++)
        berth_channel_call_async(channel, ECHO_PATH("Unary"), &req.base, ECHO_RESPONSE_TYPE,
                                 NULL, server.echo.later, on_done, &tally);
    wait_for_at_least(&tally.n_done, 1000);
    ck_assert_uint_eq(atomic_load(&tally.n_ok), 1000);
}
END_TEST

struct chain {
    pthread_t thread; /* that the last end was seen by */
    bool elsewhere;   /* and another one by another */
    unsigned n_left;
    atomic_uint n_ended;
};

static void chain_next(struct chain *chain);

static void on_link(void *arg, enum berth_code code, ProtobufCMessage *resp,
                    const struct berth_error *err)
{
    struct chain *chain = arg;

    ck_assert_msg(!code, "%s", err->text);
    protobuf_c_message_free_unpacked(resp, NULL);
    if (atomic_load(&chain->n_ended) > 0 && !pthread_equal(chain->thread, pthread_self()))
        chain->elsewhere = true;
    chain->thread = pthread_self();
    if (--chain->n_left > 0)
        chain_next(chain);
    atomic_fetch_add(&chain->n_ended, 1);
}

static void chain_next(struct chain *chain)
{
    EchoRequest req = ECHO_REQUEST_INIT;

    berth_channel_call_async(channel, ECHO_PATH("Quick"), &req.base, ECHO_RESPONSE_TYPE, NULL,
                             NULL, on_link, chain);
}

/* Without a pool the end is told where it is seen, and the next call can be made there. */
START_TEST(async__no_pool__calls_from_the_callback)
{
    struct chain chain = {.n_left = 200};

    chain_next(&chain);
    wait_for_at_least(&chain.n_ended, 200);
    ck_assert(!chain.elsewhere);
    ck_assert(!pthread_equal(chain.thread, pthread_self()));
}
END_TEST

/* A failure reaches the callback as it would reach a waiting caller. */
START_TEST(async__failure__error_in_callback)
{
    EchoRequest req = ECHO_REQUEST_INIT;
    struct tally tally = {0};

    req.fail_reason = (char *)"SESSION_NOT_FOUND";
    berth_channel_call_async(channel, ECHO_PATH("Unary"), &req.base, ECHO_RESPONSE_TYPE, NULL,
                             server.echo.later, on_done, &tally);
    wait_for_at_least(&tally.n_done, 1);
    ck_assert_int_eq(tally.err.reason, BERTH_REASON_SESSION_NOT_FOUND);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("common/rpc unary");
    TCase *plain = tcase_create("unary"), *narrow = tcase_create("narrow");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(plain, setup, teardown);
    tcase_set_timeout(plain, 60);
    tcase_add_test(plain, unary__text__comes_back);
    tcase_add_test(plain, unary__metadata__arrives);
    tcase_add_test(plain, unary__path_overwritten__later_calls_fine);
    tcase_add_loop_test(plain, unary__bad_traceparent__replaced, 0,
                        (int)BERTH_COUNT(bad_traces));
    tcase_add_test(plain, unary__large_metadata__limit_64_kib);
    tcase_add_loop_test(plain, unary__metadata_not_allowed__field_invalid, 0, 2);
    tcase_add_loop_test(plain, unary__failure__arrives_whole, 0, (int)BERTH_COUNT(all_kinds));
    tcase_add_loop_test(plain, unary__internal__text_is_kept_back, 0,
                        (int)BERTH_COUNT(all_kinds));
    tcase_add_test(plain, unary__deferred__answered_later);
    tcase_add_test(plain, unary__deadline__both_sides_know);
    tcase_add_test(plain, unary__unknown_method__unimplemented);
    tcase_add_test(plain, unary__message_size__limit_4_mib);
    tcase_add_test(plain, unary__channel_limit__overloaded);
    tcase_add_test(plain, unary__many_threads__all_answered);
    tcase_add_test(plain, async__many__all_done_on_pool);
    tcase_add_test(plain, async__no_pool__calls_from_the_callback);
    tcase_add_test(plain, async__failure__error_in_callback);
    suite_add_tcase(suite, plain);
    tcase_add_checked_fixture(narrow, setup_narrow, teardown);
    tcase_set_timeout(narrow, 60);
    tcase_add_test(narrow, unary__queue_full__overloaded);
    tcase_add_test(narrow, unary__queue_full__quick_method_served);
    tcase_add_test(narrow, unary__workers_busy__priority_lane_served);
    suite_add_tcase(suite, narrow);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
