/* test_answers.c - servers that answer well, badly, slowly, endlessly or not at all. */
#include <check.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common/http/http.h"
#include "common/time/time.h"
#include "tests/component/http/names.h"
#include "tests/component/http/server.h"

enum { QUICK_MS = 400, BOUND_MS = 4000 };

static struct berth_http *http;
static struct berth_http_client *client;
static struct berth_http_response response;
static struct berth_error err;
static struct server server;
static char base[64];

static void pause_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, NULL);
}

static bool endless_body(struct peer *peer, const char *head)
{
    char block[4096];

    (void)head;
    memset(block, 'x', sizeof block);
    say(peer, "HTTP/1.1 200 OK\r\n\r\n");
    while (say_bytes(peer, block, sizeof block)) {
    }
    return false;
}

static bool endless_head(struct peer *peer, const char *head)
{
    (void)head;
    say(peer, "HTTP/1.1 200 OK\r\n");
    while (say(peer, "X-Filler: 0123456789012345678901234567890123456789\r\n")) {
    }
    return false;
}

static bool endless_line(struct peer *peer, const char *head)
{
    (void)head;
    say(peer, "HTTP/1.1 200 OK\r\nX-Filler: ");
    while (say(peer, "0123456789012345678901234567890123456789")) {
    }
    return false;
}

static bool endless_continue(struct peer *peer, const char *head)
{
    (void)head;
    while (say(peer, "HTTP/1.1 100 Continue\r\nX-A: b\r\n\r\n")) {
    }
    return false;
}

static bool drip_head(struct peer *peer, const char *head)
{
    (void)head;
    while (say(peer, "H"))
        pause_ms(50);
    return false;
}

static bool drip_headers(struct peer *peer, const char *head)
{
    (void)head;
    say(peer, "HTTP/1.1 200 OK\r\n");
    while (say(peer, "X: y\r\n"))
        pause_ms(50);
    return false;
}

static bool drip_body(struct peer *peer, const char *head)
{
    (void)head;
    say(peer, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
    while (say(peer, "x"))
        pause_ms(50);
    return false;
}

/* Half-closes and hears the rest: to close with a body unread is a reset, and takes the answer.
 * The end leaves in the answer's own segment: nobody takes the connection for one to be used
 * again. */
static bool say_and_close(struct peer *peer, const char *text)
{
    setsockopt(peer->fd, IPPROTO_TCP, TCP_CORK, &(int){1}, sizeof(int));
    say(peer, text);
    shutdown(peer->fd, SHUT_WR);
    linger(peer);
    return false;
}

static bool say_and_hang(struct peer *peer, const char *text)
{
    say(peer, text);
    linger(peer);
    linger(peer);
    return false;
}

/* By the path: "/3" does as row 3 says. */
static bool by_row(struct peer *peer, const char *head);

enum {
    UNAVAILABLE = BERTH_REASON_BACKEND_UNAVAILABLE,
    TIMEOUT = BERTH_REASON_BACKEND_TIMEOUT,
    UNKNOWN = BERTH_REASON_OUTCOME_UNKNOWN,
    TOO_LARGE = BERTH_REASON_MESSAGE_TOO_LARGE,
    FINE = BERTH_REASON_NONE,
};

static const struct {
    const char *name;
    server_fn act; /* or what to say, and then close or hang */
    const char *say, *say_hang;
    int get, post; /* reasons */
} rows[] = {
    {"endless body", endless_body, .get = TOO_LARGE, .post = UNKNOWN},
    {"endless head", endless_head, .get = TOO_LARGE, .post = UNKNOWN},
    {"endless line", endless_line, .get = UNAVAILABLE, .post = UNKNOWN}, /* libcurl's limit */
    {"endless 100", endless_continue, .get = TOO_LARGE, .post = UNKNOWN},
    {"drip of a status line", drip_head, .get = UNAVAILABLE, .post = UNKNOWN},
    {"drip of headers", drip_headers, .get = TIMEOUT, .post = TIMEOUT},
    {"drip of a body", drip_body, .get = TIMEOUT, .post = TIMEOUT},
    {"nothing, hangs", .say_hang = "", .get = TIMEOUT, .post = TIMEOUT},
    {"half a status line", .say_hang = "HTTP/1.1 2", .get = TIMEOUT, .post = TIMEOUT},
    {"half a body, hangs", .say_hang = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
     .get = TIMEOUT, .post = TIMEOUT},
    {"nothing, closes", .say = "", .get = UNAVAILABLE, .post = UNKNOWN},
    {"closes in the head", .say = "HTTP/1.1 200 OK\r\nX-A: b\r\nX-", .get = FINE, .post = FINE},
    {"closes in the body", .say = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
     .get = UNAVAILABLE, .post = UNKNOWN},
    {"closes in a chunk",
     .say = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf",
     .get = UNAVAILABLE, .post = UNKNOWN},
    {"closes between chunks",
     .say = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
     .get = UNAVAILABLE, .post = UNKNOWN},
    {"chunk size no number",
     .say = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\nhalf",
     .get = UNAVAILABLE, .post = UNKNOWN},
    {"chunk size too long",
     .say = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffffff\r\nhalf",
     .get = UNAVAILABLE, .post = UNKNOWN},
    {"chunk longer than said",
     .say = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhalf\r\n0\r\n\r\n",
     .get = UNAVAILABLE, .post = UNKNOWN},
    {"garbage", .say = "\x01\x02\x03garbage\r\n\r\n", .get = UNAVAILABLE, .post = UNKNOWN},
    {"another protocol", .say = "220 mail.example ESMTP\r\n", .get = UNAVAILABLE,
     .post = UNKNOWN},
    {"HTTP/0.9", .say = "<html>hello</html>", .get = UNAVAILABLE, .post = UNKNOWN},
    {"negative length", .say = "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
     .get = UNAVAILABLE, .post = UNKNOWN},
    {"length no number", .say = "HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\nhello",
     .get = UNAVAILABLE, .post = UNKNOWN},
    {"status no number", .say = "HTTP/1.1 abc OK\r\nContent-Length: 5\r\n\r\nhello",
     .get = UNAVAILABLE, .post = UNKNOWN},
    {"status 099", .say = "HTTP/1.1 099 OK\r\nContent-Length: 5\r\n\r\nhello",
     .get = UNAVAILABLE, .post = UNKNOWN},
    {"no length, closes", .say = "HTTP/1.1 200 OK\r\n\r\nhello", .get = FINE, .post = FINE},
    {"1xx, then 200",
     .say = "HTTP/1.1 103 Hints\r\nX-A: early\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: "
            "5\r\n\r\nhello",
     .get = FINE, .post = FINE},
    {"500", .say = "HTTP/1.1 500 No\r\nContent-Length: 5\r\n\r\nhello", .get = FINE,
     .post = FINE},
};

static bool by_row(struct peer *peer, const char *head)
{
    size_t row = (size_t)strtoul(strchr(head, '/') + 1, NULL, 10);

    if (row >= BERTH_COUNT(rows))
        return say_hello(peer, head);
    if (rows[row].act)
        return rows[row].act(peer, head);
    return rows[row].say ? say_and_close(peer, rows[row].say)
                         : say_and_hang(peer, rows[row].say_hang);
}

static void open_with(server_fn handle)
{
    struct berth_http_target target = {.allow_private = true};

    server_open(&server, 0, NULL, NULL, handle);
    snprintf(base, sizeof base, "http://127.0.0.1:%u/", server.port);
    ck_assert_int_eq(berth_http_new(NULL, &http, &err), BERTH_OK);
    ck_assert_int_eq(berth_http_client_new(http, &target, &client, &err), BERTH_OK);
}

static void open_rows(void)
{
    names_clear();
    open_with(by_row);
}

static void close_all(void)
{
    client = berth_http_client_free(client);
    http = berth_http_free(http);
    berth_http_response_deinit(&response);
    server_close(&server);
}

static enum berth_reason ask(struct berth_http_request request)
{
    char url[128];

    if (!request.url || strncmp(request.url, "http:", 5) != 0) {
        snprintf(url, sizeof url, "%s%s", base, request.url ? request.url : "");
        request.url = url;
    }
    request.method = request.method ? request.method : "GET";
    request.total_ms = request.total_ms ? request.total_ms : QUICK_MS;
    berth_http_response_deinit(&response);
    return berth_http_call(client, &request, &response, &err) ? err.reason : BERTH_REASON_NONE;
}

/* Each row, asked by GET and by POST: in bounded time, with the right kind of error, which says
 * nothing of path, headers and body. And the next call works. */
START_TEST(call__misbehaving_server__bounded_and_named)
{
    struct berth_http_header secret = {"Authorization", "Bearer hunter2"};
    char path[64];

    snprintf(path, sizeof path, "%d?key=hunter2", _i);
    for (int post = 0; post < 2; post++) {
        int64_t begin_ms = berth_tick_ms();
        enum berth_reason reason =
            ask((struct berth_http_request){.method = post ? "POST" : "GET",
                                            .url = path,
                                            .headers = &secret,
                                            .n_headers = 1,
                                            .body = "hunter2",
                                            .body_size = post ? 7 : 0,
                                            .max_body_size = 65536});

        ck_assert_msg((int)reason == (post ? rows[_i].post : rows[_i].get), "%s %d: %s: %s",
                      rows[_i].name, post, berth_reason_name(reason), err.text);
        ck_assert_int_lt(berth_tick_ms() - begin_ms, BOUND_MS);
        ck_assert_ptr_null(strstr(err.text, "hunter2"));
        if (reason)
            ck_assert_ptr_nonnull(strstr(err.text, "http://127.0.0.1:"));
    }
    ck_assert_msg(ask((struct berth_http_request){.url = "99"}) == BERTH_REASON_NONE, "%s",
                  err.text);
    ck_assert_str_eq(response.body, "hello");
}
END_TEST

/* A silence inside an answer ends it long before the whole has run out. */
START_TEST(call__idle__ended_by_the_idle_limit)
{
    int64_t begin_ms = berth_tick_ms();

    ck_assert_int_eq(
        ask((struct berth_http_request){.url = "7", .total_ms = 60000, .idle_ms = 1000}),
        BERTH_REASON_BACKEND_TIMEOUT);
    ck_assert_int_lt(berth_tick_ms() - begin_ms, 6000);
}
END_TEST

/* Nobody there: nothing was sent, whatever the method. */
START_TEST(call__refused_connection__unavailable)
{
    ck_assert_int_eq(
        ask((struct berth_http_request){.method = "POST", .url = "http://127.0.0.1:1/"}),
        BERTH_REASON_BACKEND_UNAVAILABLE);
    ck_assert_int_eq(
        ask((struct berth_http_request){.method = "POST", .url = "http://nobody.example/"}),
        BERTH_REASON_BACKEND_UNAVAILABLE);
}
END_TEST

/* A resolver that takes its time does not take the caller's. */
START_TEST(call__slow_resolver__bounded)
{
    static const char *const answers[] = {"127.0.0.1"};
    int64_t begin_ms = berth_tick_ms();

    names_set("slow.example", answers, 1);
    names_delay(2000);
    ck_assert_int_eq(
        ask((struct berth_http_request){.method = "POST", .url = "http://slow.example/"}),
        BERTH_REASON_BACKEND_UNAVAILABLE);
    ck_assert_int_lt(berth_tick_ms() - begin_ms, 1500);
}
END_TEST

/* Exactly as much as is allowed is allowed. */
static bool nine_bytes(struct peer *peer, const char *head)
{
    (void)head;
    return say(peer, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n123456789");
}

START_TEST(call__body_limit__to_the_byte)
{
    open_with(nine_bytes);
    ck_assert_int_eq(ask((struct berth_http_request){.max_body_size = 9}), BERTH_REASON_NONE);
    ck_assert_uint_eq(response.body_size, 9);
    ck_assert_str_eq(response.body, "123456789");
    ck_assert_int_eq(ask((struct berth_http_request){.max_body_size = 8}),
                     BERTH_REASON_MESSAGE_TOO_LARGE);
    ck_assert_int_eq(err.http_status, 200);
    close_all();
}
END_TEST

/* ----------------------------------------------------------------- what is sent */

static bool echo_head(struct peer *peer, const char *head)
{
    char answer[8192];

    snprintf(answer, sizeof answer, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s",
             strlen(head), strncmp(head, "HEAD", 4) == 0 ? "" : head);
    say(peer, answer);
    return false;
}

static const struct {
    const char *method, *body, *first, *length;
} sent[] = {
    {"GET", NULL, "GET / HTTP/1.1\r\n", NULL},
    {"DELETE", NULL, "DELETE / HTTP/1.1\r\n", NULL},
    {"POST", NULL, "POST / HTTP/1.1\r\n", "Content-Length: 0\r\n"},
    {"POST", "{}", "POST / HTTP/1.1\r\n", "Content-Length: 2\r\n"},
    {"PUT", "{}", "PUT / HTTP/1.1\r\n", "Content-Length: 2\r\n"},
    {"PATCH", "{}", "PATCH / HTTP/1.1\r\n", "Content-Length: 2\r\n"},
    {"DELETE", "{}", "DELETE / HTTP/1.1\r\n", "Content-Length: 2\r\n"},
};

START_TEST(call__methods_and_headers__as_given_and_no_more)
{
    struct berth_http_header headers[] = {{"X-API-Key", "k"}, {"X-Empty", ""}};

    open_with(echo_head);
    ck_assert_int_eq(
        ask((struct berth_http_request){.method = sent[_i].method,
                                        .body = sent[_i].body,
                                        .body_size = sent[_i].body ? strlen(sent[_i].body) : 0,
                                        .headers = headers,
                                        .n_headers = 2}),
        BERTH_REASON_NONE);
    ck_assert_int_eq(strncmp(response.body, sent[_i].first, strlen(sent[_i].first)), 0);
    ck_assert_ptr_nonnull(strstr(response.body, "\r\nX-API-Key: k\r\n"));
    ck_assert_ptr_nonnull(strstr(response.body, "\r\nX-Empty:\r\n"));
    ck_assert_ptr_nonnull(strstr(response.body, "\r\nUser-Agent: berth/"));
    ck_assert_ptr_null(strstr(response.body, "Expect"));
    ck_assert_ptr_null(strstr(response.body, "Content-Type"));
    ck_assert_ptr_null(strstr(response.body, "Accept-Encoding"));
    ck_assert((strstr(response.body, "Content-Length") != NULL) == (sent[_i].length != NULL));
    if (sent[_i].length)
        ck_assert_ptr_nonnull(strstr(response.body, sent[_i].length));
    ck_assert_int_eq(ask((struct berth_http_request){.method = "HEAD"}), BERTH_REASON_NONE);
    ck_assert_uint_eq(response.body_size, 0);
    close_all();
}
END_TEST

/* What could end a head or lie about a length is not sent. */
START_TEST(call__header_injection__refused)
{
    static const struct berth_http_header bad[] = {
        {"X-A", "b\r\nX-C: d"},
        {"X-A", "b\nX-C: d"},
        {"X-A\r\nX-B", "c"},
        {"X A", "b"},
        {"", "b"},
        {"X-A:", "b"},
        {"X-A", "\x7f"},
        {"Content-Length", "0"},
        {"transfer-encoding", "chunked"},
        {"Connection", "close"},
    };

    for (size_t i = 0; i < BERTH_COUNT(bad); i++)
        ck_assert_int_eq(ask((struct berth_http_request){.headers = &bad[i], .n_headers = 1}),
                         BERTH_REASON_INTERNAL_BUG);
    ck_assert_int_eq(ask((struct berth_http_request){.method = "GET / HTTP/1.1\r\nX:"}),
                     BERTH_REASON_INTERNAL_BUG);
    ck_assert_int_eq(ask((struct berth_http_request){.url = "a b"}),
                     BERTH_REASON_FIELD_INVALID);
    ck_assert_int_eq(ask((struct berth_http_request){.url = "a\r\nX-B: c"}),
                     BERTH_REASON_FIELD_INVALID);
    ck_assert_uint_eq(server_connections(&server), 0);
}
END_TEST

/* ------------------------------------------------------------- pooled connections */

static bool once_then_close(struct peer *peer, const char *head)
{
    if (strncmp(head, "GET /first", 10) == 0)
        return say_hello(peer, head);
    return false; /* the second request on it, and any retry, is read and not answered */
}

/* A connection that the server closes when the request has arrived: libcurl would send it once
 * more on its own. One that is not repeatable is sent once. */
START_TEST(call__pooled_connection_lost__never_sent_twice)
{
    open_with(once_then_close);
    ck_assert_int_eq(ask((struct berth_http_request){.url = "first"}), BERTH_REASON_NONE);
    ck_assert_int_eq(ask((struct berth_http_request){
                         .method = "POST", .url = "create", .body = "{}", .body_size = 2}),
                     BERTH_REASON_OUTCOME_UNKNOWN);
    ck_assert_uint_eq(server_requests(&server), 2);
    ck_assert_int_eq(ask((struct berth_http_request){.url = "first"}), BERTH_REASON_NONE);
    ck_assert_int_eq(ask((struct berth_http_request){.method = "DELETE", .url = "x"}),
                     BERTH_REASON_OUTCOME_UNKNOWN);
    ck_assert_uint_eq(server_requests(&server), 4);
    ck_assert_int_eq(ask((struct berth_http_request){.url = "first"}), BERTH_REASON_NONE);
    ck_assert_int_eq(ask((struct berth_http_request){.url = "read"}),
                     BERTH_REASON_BACKEND_UNAVAILABLE);
    close_all();
}
END_TEST

/* Twenty calls, one connection. */
START_TEST(call__again__connection_kept)
{
    for (int i = 0; i < 20; i++)
        ck_assert_int_eq(ask((struct berth_http_request){.url = "99"}), BERTH_REASON_NONE);
    ck_assert_uint_eq(server_connections(&server), 1);
}
END_TEST

/* -------------------------------------------------------------------- cancelling */

static atomic_int asked;

static bool soon_cancelled(void *arg)
{
    (void)arg;
    return atomic_fetch_add(&asked, 1) >= 1;
}

START_TEST(call__cancelled__ends_at_once)
{
    int64_t begin_ms = berth_tick_ms();

    ck_assert_int_eq(ask((struct berth_http_request){
                         .url = "7", .total_ms = 60000, .cancelled = soon_cancelled}),
                     BERTH_REASON_CANCELLED);
    ck_assert_int_lt(berth_tick_ms() - begin_ms, 900);
    ck_assert_int_eq(ask((struct berth_http_request){.url = "99"}), BERTH_REASON_NONE);
}
END_TEST

/* --------------------------------------------------------------------- statuses */

static const struct {
    int status;
    enum berth_reason repeatable, once;
} statuses[] = {
    {200, BERTH_REASON_NONE, BERTH_REASON_NONE},
    {204, BERTH_REASON_NONE, BERTH_REASON_NONE},
    {302, BERTH_REASON_BACKEND_UNAVAILABLE, BERTH_REASON_BACKEND_UNAVAILABLE},
    {400, BERTH_REASON_FIELD_INVALID, BERTH_REASON_FIELD_INVALID},
    {401, BERTH_REASON_BACKEND_AUTHENTICATION, BERTH_REASON_BACKEND_AUTHENTICATION},
    {403, BERTH_REASON_BACKEND_AUTHENTICATION, BERTH_REASON_BACKEND_AUTHENTICATION},
    {404, BERTH_REASON_BACKEND_UNAVAILABLE, BERTH_REASON_BACKEND_UNAVAILABLE},
    {408, BERTH_REASON_BACKEND_TIMEOUT, BERTH_REASON_BACKEND_TIMEOUT},
    {429, BERTH_REASON_BACKEND_CAPACITY, BERTH_REASON_BACKEND_CAPACITY},
    {500, BERTH_REASON_BACKEND_UNAVAILABLE, BERTH_REASON_OUTCOME_UNKNOWN},
    {501, BERTH_REASON_CAPABILITY_MISSING, BERTH_REASON_CAPABILITY_MISSING},
    {502, BERTH_REASON_BACKEND_UNAVAILABLE, BERTH_REASON_OUTCOME_UNKNOWN},
    {503, BERTH_REASON_BACKEND_UNAVAILABLE, BERTH_REASON_BACKEND_UNAVAILABLE},
    {504, BERTH_REASON_BACKEND_TIMEOUT, BERTH_REASON_BACKEND_TIMEOUT},
};

START_TEST(check_status__each__neutral_reason)
{
    static const struct {
        const char *text;
        int64_t ms;
    } afters[] = {
        {"7", 7000}, {"99999999999", 3600000}, {"Wed, 21 Oct", 0}, {"-1", 0}, {"", 0}};
    struct berth_http_header after = {"retry-after", "7"};
    struct berth_http_response answer = {
        .status = statuses[_i].status, .headers = &after, .n_headers = 1};

    memset(&err, 0, sizeof err);
    (void)!berth_http_check_status(&answer, "list", true, &err);
    ck_assert_int_eq(err.reason, statuses[_i].repeatable);
    (void)!berth_http_check_status(&answer, "create", false, &err);
    ck_assert_int_eq(err.reason, statuses[_i].once);
    if (err.reason)
        ck_assert_int_eq(err.http_status, statuses[_i].status);
    answer.status = 429;
    for (size_t i = 0; i < BERTH_COUNT(afters); i++) {
        after.value = afters[i].text;
        (void)!berth_http_check_status(&answer, "create", false, &err);
        ck_assert_int_eq(err.retry_after_ms, afters[i].ms);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http/answers");
    TCase *row_case = tcase_create("rows"), *own = tcase_create("own");
    SRunner *runner;
    int failed;

    if (!net_enter()) {
        puts("SKIP: no network namespace of its own");
        return 77;
    }
    tcase_add_checked_fixture(row_case, open_rows, close_all);
    tcase_set_timeout(row_case, 60);
    tcase_add_loop_test(row_case, call__misbehaving_server__bounded_and_named, 0,
                        (int)BERTH_COUNT(rows));
    tcase_add_test(row_case, call__idle__ended_by_the_idle_limit);
    tcase_add_test(row_case, call__refused_connection__unavailable);
    tcase_add_test(row_case, call__slow_resolver__bounded);
    tcase_add_test(row_case, call__header_injection__refused);
    tcase_add_test(row_case, call__again__connection_kept);
    tcase_add_test(row_case, call__cancelled__ends_at_once);
    tcase_set_timeout(own, 60);
    tcase_add_test(own, call__body_limit__to_the_byte);
    tcase_add_loop_test(own, call__methods_and_headers__as_given_and_no_more, 0,
                        (int)BERTH_COUNT(sent));
    tcase_add_test(own, call__pooled_connection_lost__never_sent_twice);
    tcase_add_loop_test(own, check_status__each__neutral_reason, 0, (int)BERTH_COUNT(statuses));
    suite_add_tcase(suite, row_case);
    suite_add_tcase(suite, own);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
