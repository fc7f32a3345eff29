/* test_flow.c - many calls at once, and calls with callbacks on the loop: streams both ways
 * with pauses, and ends in the middle. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>

#include "common/http/http.h"
#include "common/loop/loop.h"
#include "tests/component/http/names.h"
#include "tests/component/http/server.h"

enum { THREADS = 8, CALLS = 60, STREAM_SIZE = 4 << 20, STREAMS = 200 };

static struct berth_loop *loop;
static struct berth_http *http;
static struct berth_http_client *client;
static struct berth_error err;
static struct server server;
static char base[64];

static atomic_size_t n_uploaded;

/* As far as the chunk of size 0. All it holds is 'x'. */
static void take_chunks(struct peer *peer, const char *begun)
{
    static const char last[] = "\r\n0\r\n\r\n";
    char buf[4096];
    size_t matched = 0, n = strlen(begun);

    snprintf(buf, sizeof buf, "%s", begun);
    for (;;) {
        for (size_t i = 0; i < n; i++) {
            atomic_fetch_add(&n_uploaded, buf[i] == 'x');
            matched = buf[i] == last[matched] ? matched + 1 : buf[i] == '\r';
            if (!last[matched])
                return;
        }
        n = (size_t)recv(peer->fd, buf, sizeof buf, 0);
        if (n == 0 || n > sizeof buf)
            return;
    }
}

static bool serve(struct peer *peer, const char *head)
{
    static char block[65536];

    if (strncmp(head, "GET /hang", 9) == 0) {
        say(peer, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
        linger(peer);
        return false;
    }
    if (strncmp(head, "GET /big", 8) == 0) {
        char line[128];

        snprintf(line, sizeof line, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n",
                 STREAM_SIZE);
        say(peer, line);
        for (int i = 0; i < STREAM_SIZE / (int)sizeof block; i++)
            if (!say_bytes(peer, block, sizeof block))
                return false;
        return true;
    }
    if (strncmp(head, "PUT ", 4) == 0) {
        take_chunks(peer, strstr(head, "\r\n\r\n") + 4);
        return say_hello(peer, head);
    }
    return say_hello(peer, head);
}

static void open_all(void)
{
    static const char *const answers[] = {"127.0.0.1"};
    struct berth_http_target target = {.allow_private = true};

    names_clear();
    names_set("api.example", answers, 1);
    server_open(&server, 0, NULL, NULL, serve);
    snprintf(base, sizeof base, "http://api.example:%u", server.port);
    ck_assert_int_eq(berth_loop_new(&loop, &err), BERTH_OK);
    ck_assert_int_eq(berth_loop_start(loop, "test", &err), BERTH_OK);
    ck_assert_int_eq(berth_http_new(loop, &http, &err), BERTH_OK);
    ck_assert_int_eq(berth_http_client_new(http, &target, &client, &err), BERTH_OK);
}

static void close_all(void)
{
    client = berth_http_client_free(client);
    http = berth_http_free(http);
    loop = berth_loop_free(loop);
    server_close(&server);
}

/* ---------------------------------------------------------------- from many threads */

static atomic_int n_fine, n_cancelled, n_other;

static bool at_once(void *arg)
{
    (void)arg;
    return true;
}

static void *call_often(void *arg)
{
    char url[128], hang[128];

    (void)arg;
    snprintf(url, sizeof url, "%s/x", base);
    snprintf(hang, sizeof hang, "%s/hang", base);
    for (int i = 0; i < CALLS; i++) {
        bool cancel = i % 20 == 7;
        struct berth_http_request request = {.method = "GET",
                                             .url = cancel ? hang : url,
                                             .cancelled = cancel ? at_once : NULL,
                                             .total_ms = 20000};
        struct berth_http_response response = {0};
        struct berth_error why;

        if (berth_http_call(client, &request, &response, &why) == BERTH_OK)
            atomic_fetch_add(strcmp(response.body, "hello") == 0 ? &n_fine : &n_other, 1);
        else
            atomic_fetch_add(why.reason == BERTH_REASON_CANCELLED ? &n_cancelled : &n_other, 1);
        berth_http_response_deinit(&response);
    }
    return NULL;
}

START_TEST(call__many_threads__each_its_own_answer)
{
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, call_often, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    ck_assert_int_eq(n_cancelled, THREADS * 3);
    ck_assert_int_eq(n_fine, THREADS * (CALLS - 3));
    ck_assert_int_eq(n_other, 0);
}
END_TEST

/* No more connections than the target allows; the others wait their turn. */
START_TEST(call__connection_limit__kept)
{
    struct berth_http_target target = {.allow_private = true, .max_connections = 2};
    pthread_t threads[THREADS];
    unsigned n_hung = THREADS * 3;

    client = berth_http_client_free(client);
    ck_assert_int_eq(berth_http_client_new(http, &target, &client, &err), BERTH_OK);
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, call_often, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    ck_assert_int_eq(n_other, 0);
    ck_assert_uint_le(server_connections(&server), 2 + n_hung);
}
END_TEST

/* ----------------------------------------------------------------------- on the loop */

struct flow {
    const char *path, *method;
    enum { GO_ON, PAUSE_OFTEN, STOP_IN_BODY, CANCEL_IN_BODY, STOP_AT_HEAD } manner;
    size_t to_send, sent;
    struct berth_http_exchange *exchange;
    size_t n_bytes, n_pauses, n_after_end;
    int status;
    bool done_called, head_called, ended;
    enum berth_reason reason;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    char url[128];
};

static void resume(void *arg)
{
    struct flow *flow = arg;

    if (!flow->done_called)
        berth_http_resume(flow->exchange);
}

static enum berth_http_flow on_head(void *arg, const struct berth_http_response *head)
{
    struct flow *flow = arg;

    flow->head_called = true;
    flow->status = head->status;
    return flow->manner == STOP_AT_HEAD ? BERTH_HTTP_STOP : BERTH_HTTP_GO;
}

static enum berth_http_flow on_data(void *arg, const void *data, size_t size)
{
    struct flow *flow = arg;

    (void)data;
    flow->n_after_end += flow->ended;
    if (flow->manner == PAUSE_OFTEN && flow->n_pauses < 50 &&
        flow->n_bytes / 65536 >= flow->n_pauses) {
        flow->n_pauses++;
        ck_assert_ptr_nonnull(berth_loop_timer(loop, 1, resume, flow));
        return BERTH_HTTP_PAUSE;
    }
    flow->n_bytes += size;
    if (flow->manner == STOP_IN_BODY)
        return BERTH_HTTP_STOP;
    if (flow->manner == CANCEL_IN_BODY) {
        flow->ended = true;
        berth_http_cancel(flow->exchange);
        berth_http_cancel(flow->exchange); /* twice is once */
        berth_http_resume(flow->exchange);
    }
    return BERTH_HTTP_GO;
}

static enum berth_http_flow on_wanted(void *arg, void *buf, size_t size, size_t *ret_size)
{
    struct flow *flow = arg;
    size_t left = flow->to_send - flow->sent;

    if (flow->manner == PAUSE_OFTEN && flow->n_pauses <= flow->sent / 65536) {
        flow->n_pauses++;
        ck_assert_ptr_nonnull(berth_loop_timer(loop, 1, resume, flow));
        return BERTH_HTTP_PAUSE;
    }
    *ret_size = left < size ? left : size;
    memset(buf, 'x', *ret_size);
    flow->sent += *ret_size;
    return BERTH_HTTP_GO;
}

static void on_done(void *arg, struct berth_http_response *response,
                    const struct berth_error *why)
{
    struct flow *flow = arg;

    ck_assert(!flow->done_called);
    ck_assert(!response->body || !why || why->reason);
    pthread_mutex_lock(&flow->mutex);
    flow->done_called = true;
    flow->reason = why ? why->reason : BERTH_REASON_NONE;
    pthread_cond_signal(&flow->changed);
    pthread_mutex_unlock(&flow->mutex);
}

static void begin(void *arg)
{
    struct flow *flow = arg;
    struct berth_http_request request = {.method = flow->method ? flow->method : "GET",
                                         .url = flow->url,
                                         .head = on_head,
                                         .sink = on_data,
                                         .source = flow->to_send ? on_wanted : NULL,
                                         .source_size = BERTH_HTTP_NO_LIMIT,
                                         .arg = flow,
                                         .total_ms = BERTH_HTTP_NO_LIMIT};
    struct berth_error why;

    ck_assert_int_eq(berth_http_start(client, &request, on_done, flow, &flow->exchange, &why),
                     BERTH_OK);
}

static void start(struct flow *flow)
{
    pthread_mutex_init(&flow->mutex, NULL);
    pthread_cond_init(&flow->changed, NULL);
    snprintf(flow->url, sizeof flow->url, "%s%s", base, flow->path);
    berth_loop_post(loop, begin, flow);
}

static void finish(struct flow *flow)
{
    pthread_mutex_lock(&flow->mutex);
    while (!flow->done_called)
        pthread_cond_wait(&flow->changed, &flow->mutex);
    pthread_mutex_unlock(&flow->mutex);
}

static void run(struct flow *flow)
{
    start(flow);
    finish(flow);
}

/* Every byte of a long answer, however often it is held up. */
START_TEST(start__paused_and_resumed__every_byte)
{
    struct flow flow = {.path = "/big", .manner = PAUSE_OFTEN};

    run(&flow);
    ck_assert_int_eq(flow.reason, BERTH_REASON_NONE);
    ck_assert_int_eq(flow.status, 200);
    ck_assert_uint_eq(flow.n_bytes, STREAM_SIZE);
    ck_assert_uint_ge(flow.n_pauses, 20);
}
END_TEST

/* A body as it comes, of unknown length and held up. */
START_TEST(start__source__sent_in_chunks)
{
    struct flow flow = {
        .path = "/up", .method = "PUT", .to_send = 1 << 20, .manner = PAUSE_OFTEN};
    char head[4096];

    run(&flow);
    ck_assert_int_eq(flow.reason, BERTH_REASON_NONE);
    ck_assert_uint_eq(flow.sent, flow.to_send);
    ck_assert_uint_eq(n_uploaded, flow.to_send);
    ck_assert_uint_ge(flow.n_pauses, 10);
    server_last(&server, NULL, head);
    ck_assert_ptr_nonnull(strstr(head, "Transfer-Encoding: chunked\r\n"));
    ck_assert_ptr_null(strstr(head, "Expect"));
}
END_TEST

/* Ends in the middle, each once, and nothing is called after them. */
START_TEST(start__ended_in_callbacks__done_once)
{
    static const int manners[] = {STOP_IN_BODY, CANCEL_IN_BODY, STOP_AT_HEAD};

    for (size_t i = 0; i < BERTH_COUNT(manners); i++) {
        struct flow flow = {.path = "/big", .manner = manners[i]};

        run(&flow);
        ck_assert_int_eq(flow.reason, BERTH_REASON_CANCELLED);
        ck_assert(flow.head_called);
        ck_assert_uint_eq(flow.n_after_end, 0);
    }
}
END_TEST

static void cancel(void *arg)
{
    struct flow *flow = arg;

    if (!flow->done_called)
        berth_http_cancel(flow->exchange);
}

/* Cancelled before the name is known, and the client given back at the same time. */
START_TEST(start__cancelled_while_looking_up__done_once)
{
    struct flow flow = {.path = "/big"};

    names_delay(200);
    start(&flow);
    berth_loop_post(loop, cancel, &flow);
    finish(&flow);
    ck_assert_int_eq(flow.reason, BERTH_REASON_CANCELLED);
    ck_assert(!flow.head_called);
    ck_assert_uint_eq(server_connections(&server), 0);
}
END_TEST

/* Many open streams and one thread; their client may go first. */
START_TEST(start__many_streams__client_freed_under_them)
{
    struct flow *flows = calloc(STREAMS, sizeof *flows);

    for (int i = 0; i < STREAMS; i++) {
        flows[i].path = i % 2 ? "/big" : "/hang";
        start(&flows[i]);
    }
    for (int i = 1; i < STREAMS; i += 2) {
        finish(&flows[i]);
        ck_assert_int_eq(flows[i].reason, BERTH_REASON_NONE);
        ck_assert_uint_eq(flows[i].n_bytes, STREAM_SIZE);
    }
    client = berth_http_client_free(client);
    for (int i = 0; i < STREAMS; i += 2)
        berth_loop_post(loop, cancel, &flows[i]);
    for (int i = 0; i < STREAMS; i += 2)
        finish(&flows[i]);
    http = berth_http_free(http);
    loop = berth_loop_free(loop); /* nothing of the flows is on it any more */
    free(flows);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http/flow");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int failed;

    if (!net_enter()) {
        puts("SKIP: no network namespace of its own");
        return 77;
    }
    tcase_add_checked_fixture(all, open_all, close_all);
    tcase_set_timeout(all, 120);
    tcase_add_test(all, call__many_threads__each_its_own_answer);
    tcase_add_test(all, call__connection_limit__kept);
    tcase_add_test(all, start__paused_and_resumed__every_byte);
    tcase_add_test(all, start__source__sent_in_chunks);
    tcase_add_test(all, start__ended_in_callbacks__done_once);
    tcase_add_test(all, start__cancelled_while_looking_up__done_once);
    tcase_add_test(all, start__many_streams__client_freed_under_them);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
