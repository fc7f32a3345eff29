/* The server itself: who may connect and call, what it survives, how it ends. */
#include <check.h>
#include <poll.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "common/time/time.h"
#include "tests/component/rpc/client.h"
#include "tests/component/rpc/raw.h"

enum { NOBODY = 65534, N_FLOOD = 200, HANG_UP_MS = 5000 };

static struct echo_server server;
static struct berth_channel *channel;

static void start(const struct berth_server_options *options, const char *path)
{
    struct berth_error err = {0};

    echo_server_start(&server, options, path);
    ck_assert(!berth_channel_new(server.address, NULL, &channel, &err));
}

static void stop(void)
{
    channel = berth_channel_free(channel);
    echo_server_stop(&server, 1000);
}

/* Code of one call; *ret_peer: whether it was a peer's. */
static enum berth_code call(const char *path, bool *ret_peer, struct berth_error *err)
{
    EchoResponse *resp;
    enum berth_code code;

    *err = (struct berth_error){0};
    code = echo_call(channel, path, NULL, NULL, &resp, err);
    if (!code)
        *ret_peer = resp->is_peer;
    echo_response_free(resp);
    return code;
}

/* ------------------------------------------------------------------- peers */

/* Over TCP nobody is a peer; over a unix socket our own uid is. */
START_TEST(peers__tcp_and_unix__told_apart)
{
    struct berth_error err;
    bool peer = true;

    start(NULL, NULL);
    ck_assert(!call(ECHO_PATH("Unary"), &peer, &err));
    ck_assert(!peer);
    ck_assert_int_eq(call(ECHO_PATH("PeerOnly"), &peer, &err), BERTH_PERMISSION_DENIED);
    ck_assert_int_eq(err.reason, BERTH_REASON_PEER_ONLY);
    stop();
    start(NULL, socket_path());
    ck_assert(!call(ECHO_PATH("PeerOnly"), &peer, &err));
    ck_assert(peer);
    stop();
}
END_TEST

/* An internal server refuses everything to others, and with insecure_dev nothing. */
START_TEST(peers__internal_server__others_refused)
{
    struct berth_server_options options = {.peers_only = true};
    struct berth_error err;
    bool peer;

    start(&options, NULL);
    ck_assert_int_eq(call(ECHO_PATH("Unary"), &peer, &err), BERTH_PERMISSION_DENIED);
    ck_assert_int_eq(err.reason, BERTH_REASON_PEER_ONLY);
    ck_assert_uint_eq(atomic_load(&server.echo.n_entered), 0);
    stop();
    options.insecure_dev = true;
    start(&options, NULL);
    ck_assert(!call(ECHO_PATH("PeerOnly"), &peer, &err));
    ck_assert(peer);
    stop();
}
END_TEST

/* Runs in a child of another uid, forked before there was any thread. Exit code: of the call.
 */
static int call_as(uid_t uid, int ready, const char *path)
{
    char target[128], byte;
    struct berth_error err;
    bool peer = false;
    enum berth_code code;

    if (read(ready, &byte, 1) != 1 || setresuid(uid, uid, uid) < 0)
        return 100;
    berth_rpc_init();
    snprintf(target, sizeof target, "unix:%s", path);
    if (berth_channel_new(target, NULL, &channel, &err))
        return 101;
    code = call(ECHO_PATH("PeerOnly"), &peer, &err);
    return code ? (int)code : peer ? 0 : 102;
}

/* Each row: who is listed, how the socket is, what a caller of uid nobody gets. */
static const struct {
    bool listed, peers_only;
    int exit_code;
} uid_rows[] = {
    {false, false, BERTH_PERMISSION_DENIED},
    {true, false, BERTH_OK},
    {true, true, BERTH_OK},
    {false, true, BERTH_UNAVAILABLE}, /* mode 0600: it cannot even connect */
};

START_TEST(peers__other_uid__peer_only_when_listed)
{
    static const unsigned nobody[] = {NOBODY};
    const struct berth_server_options options = {.peers_only = uid_rows[_i].peers_only,
                                                 .peer_uids = nobody,
                                                 .n_peer_uids = uid_rows[_i].listed ? 1 : 0};
    char path[64];
    int ready[2], status = 0;
    pid_t child;

    if (geteuid() != 0)
        return;
    snprintf(path, sizeof path, "%s", socket_path());
    ck_assert_int_eq(pipe(ready), 0);
    child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0)
        _exit(call_as(NOBODY, ready[0], path));
    start(&options, path);
    ck_assert_int_eq(write(ready[1], "x", 1), 1);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(WEXITSTATUS(status), uid_rows[_i].exit_code);
    stop();
}
END_TEST

/* ----------------------------------------------------------- connections */

/* Over the cap connections are closed at once, and there is room again when one has gone. */
START_TEST(connections__over_cap__closed)
{
    const struct berth_server_options options = {.max_connections = 2};
    int fds[3];
    bool room = false;
    uint16_t port;

    start(&options, NULL);
    port = port_of(server.address);
    for (int i = 0; i < 3; i++) {
        fds[i] = raw_connect(port);
        ck_assert_int_ge(fds[i], 0);
    }
    ck_assert(hung_up(fds[2], HANG_UP_MS));
    close(fds[2]);
    close(fds[0]);
    for (int64_t end_ms = berth_tick_ms() + 5000; !room && berth_tick_ms() < end_ms;) {
        struct pollfd wait = {.events = POLLIN};
        char byte;

        wait.fd = raw_connect(port);
        ck_assert_int_ge(wait.fd, 0);
        /* A connection that is served begins with SETTINGS; a refused one just ends. */
        room = poll(&wait, 1, 5000) == 1 && recv(wait.fd, &byte, 1, 0) == 1;
        close(wait.fd);
    }
    ck_assert(room);
    close(fds[1]);
    stop();
}
END_TEST

/* Running out of descriptors costs connections, not the listener: the core's own would be
 * closed for good. */
START_TEST(connections__no_descriptors_left__listener_survives)
{
    struct rlimit limit, low;
    struct berth_error err;
    struct flood flood;
    bool peer;

    flood_fork(&flood, N_FLOOD);
    start(NULL, NULL);
    ck_assert(!call(ECHO_PATH("Unary"), &peer, &err));
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    low = limit;
    low.rlim_cur = 64;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
    flood_begin(&flood, port_of(server.address));
    ck_assert_msg(!call(ECHO_PATH("Unary"), &peer, &err), "%s", err.text);
    flood_end(&flood);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);

    /* A fresh connection is served again. */
    channel = berth_channel_free(channel);
    ck_assert(!berth_channel_new(server.address, NULL, &channel, &err));
    ck_assert_msg(!call(ECHO_PATH("Unary"), &peer, &err), "%s", err.text);
    stop();
}
END_TEST

/* Each row: what a stranger sends, and whether that is enough to cut it off. */
static const struct {
    size_t size;
    const char *bytes;
    bool cut_off;
} noises[] = {
    {18, "GET / HTTP/1.1\r\n\r\n", true},
    {6, "\x16\x03\x01\x02\x00\x01", false}, /* half a TLS record: may yet go on */
    {0, "", false},
    {33, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\x01\x00\x00\x00\x00\x01", true},
};

/* What is no HTTP/2 is cut off and disturbs nobody. */
START_TEST(connections__noise__nobody_disturbed)
{
    struct berth_error err;
    bool peer;
    int fd;

    start(NULL, NULL);
    fd = raw_connect(port_of(server.address));
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(send(fd, noises[_i].bytes, noises[_i].size, MSG_NOSIGNAL),
                     noises[_i].size);
    if (noises[_i].cut_off)
        ck_assert(hung_up(fd, HANG_UP_MS));
    ck_assert(!call(ECHO_PATH("Unary"), &peer, &err));
    close(fd);
    stop();
}
END_TEST

/* -------------------------------------------------------------- addresses */

static struct berth_server *idle_server(struct berth_loop **ret_loop)
{
    struct berth_server_options options = {0};
    struct berth_server *idle;
    struct berth_error err;

    berth_rpc_init();
    ck_assert(!berth_loop_new(ret_loop, &err));
    options.loop = *ret_loop;
    ck_assert(!berth_server_new(&options, &idle, &err));
    return idle;
}

static const char *const bad_addresses[] = {"",
                                            "7400",
                                            "127.0.0.1",
                                            "127.0.0.1:",
                                            "127.0.0.1:65536",
                                            "127.0.0.1:-1",
                                            "127.0.0.1:80x",
                                            "300.0.0.1:1",
                                            "[::1:1",
                                            "example.org:1",
                                            "unix:/nowhere/at/all.sock"};

/* An address that means nothing is refused before the start. */
START_TEST(listen__bad_address__refused)
{
    struct berth_loop *loop;
    struct berth_server *idle = idle_server(&loop);
    struct berth_error err = {0};

    ck_assert_int_ne(berth_server_listen(idle, bad_addresses[_i], NULL, &err), BERTH_OK);
    ck_assert_str_ne(err.text, "");
    berth_server_free(idle);
    berth_loop_free(loop);
    berth_rpc_done();
}
END_TEST

/* A port or a socket that somebody serves is not taken away. */
START_TEST(listen__in_use__refused)
{
    struct berth_loop *loop;
    struct berth_server *idle;
    struct berth_error err = {0};
    char unix_address[80];

    snprintf(unix_address, sizeof unix_address, "unix:%s", socket_path());
    start(NULL, socket_path());
    idle = idle_server(&loop);
    ck_assert_int_eq(berth_server_listen(idle, unix_address, NULL, &err),
                     BERTH_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(err.text, "somebody else listens"));
    berth_server_free(idle);
    berth_loop_free(loop);
    berth_rpc_done();
    stop();
}
END_TEST

/* A socket file that was left behind is replaced, and ours is removed at the end. */
START_TEST(listen__stale_socket__replaced)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct berth_error err;
    struct stat info;
    bool peer;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    strncpy(address.sun_path, socket_path(), sizeof address.sun_path - 1);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    close(fd);
    ck_assert_int_eq(stat(socket_path(), &info), 0);
    start(NULL, socket_path());
    ck_assert(!call(ECHO_PATH("Unary"), &peer, &err));
    ck_assert_int_eq(stat(socket_path(), &info), 0);
    ck_assert_uint_eq(info.st_mode & 0777, 0666);
    stop();
    ck_assert_int_ne(stat(socket_path(), &info), 0);
}
END_TEST

/* Anything but a socket stays. */
START_TEST(listen__other_file_there__refused)
{
    struct berth_loop *loop;
    struct berth_server *idle = idle_server(&loop);
    struct berth_error err = {0};
    char address[80];
    FILE *file = fopen(socket_path(), "w");

    ck_assert_ptr_nonnull(file);
    fclose(file);
    snprintf(address, sizeof address, "unix:%s", socket_path());
    ck_assert_int_eq(berth_server_listen(idle, address, NULL, &err), BERTH_INVALID_ARGUMENT);
    ck_assert_int_eq(access(socket_path(), F_OK), 0);
    (void)unlink(socket_path());
    berth_server_free(idle);
    berth_loop_free(loop);
    berth_rpc_done();
}
END_TEST

/* -------------------------------------------------------------------- ends */

struct caller {
    pthread_t thread;
    uint32_t hold_ms;
    enum berth_code code;
    struct berth_error err;
};

static void *caller_thread(void *arg)
{
    struct caller *caller = arg;
    EchoRequest req = ECHO_REQUEST_INIT;
    EchoResponse *resp;

    req.hold_ms = caller->hold_ms;
    caller->code = echo_call(channel, ECHO_PATH("Unary"), &req, NULL, &resp, &caller->err);
    echo_response_free(resp);
    return NULL;
}

static void *stopper_thread(void *arg)
{
    (void)arg;
    berth_server_stop(server.echo.server, 10000);
    return NULL;
}

/* While it drains, calls in progress go on, new ones are told, and it ends when they have. */
START_TEST(stop__calls_in_progress__finished)
{
    struct caller caller = {.hold_ms = 60000};
    struct berth_error err = {0};
    pthread_t stopper;
    bool peer;

    start(NULL, socket_path());
    ck_assert_int_eq(pthread_create(&caller.thread, NULL, caller_thread, &caller), 0);
    wait_for_at_least(&server.echo.n_entered, 1);
    ck_assert_int_eq(pthread_create(&stopper, NULL, stopper_thread, NULL), 0);
    for (int64_t end_ms = berth_tick_ms() + 5000;
         !berth_server_stopping(server.echo.server) && berth_tick_ms() < end_ms;)
        (void)poll(NULL, 0, 1);
    ck_assert_int_eq(call(ECHO_PATH("Unary"), &peer, &err), BERTH_UNAVAILABLE);
    ck_assert_int_eq(err.reason, BERTH_REASON_DRAINING);
    atomic_store(&server.echo.release, true);
    pthread_join(caller.thread, NULL);
    pthread_join(stopper, NULL);
    ck_assert_int_eq(caller.code, BERTH_OK);
    ck_assert_int_eq(call(ECHO_PATH("Unary"), &peer, &err), BERTH_UNAVAILABLE);
    ck_assert_int_eq(err.reason, BERTH_REASON_PEER_UNAVAILABLE);
    stop();
}
END_TEST

/* When the grace is over the rest is cancelled; its callers cannot know what was done. */
START_TEST(stop__grace_over__cancelled)
{
    struct caller caller = {.hold_ms = 60000};
    int64_t start_ms;

    start(NULL, socket_path());
    ck_assert_int_eq(pthread_create(&caller.thread, NULL, caller_thread, &caller), 0);
    wait_for_at_least(&server.echo.n_entered, 1);
    start_ms = berth_tick_ms();
    berth_server_stop(server.echo.server, 50);
    ck_assert_int_lt(berth_tick_ms() - start_ms, 5000);
    pthread_join(caller.thread, NULL);
    ck_assert_int_eq(caller.code, BERTH_UNKNOWN);
    ck_assert_int_eq(caller.err.reason, BERTH_REASON_OUTCOME_UNKNOWN);
    stop();
}
END_TEST

static void *late_start(void *arg)
{
    (void)arg;
    (void)poll(NULL, 0, 120);
    echo_server_start(&server, NULL, socket_path());
    return NULL;
}

/* A peer that is not there yet: at once UNAVAILABLE, or found by trying again if asked for. */
START_TEST(channel__peer_comes_late__retried_when_idempotent)
{
    const struct berth_channel_options named = {.unavailable =
                                                    BERTH_REASON_ADAPTER_UNAVAILABLE};
    const struct berth_call_options again = {.idempotent = true, .timeout_ms = 5000};
    struct berth_error err = {0};
    EchoResponse *resp;
    char target[80];
    pthread_t late;

    berth_rpc_init();
    snprintf(target, sizeof target, "unix:%s", socket_path());
    ck_assert(!berth_channel_new(target, &named, &channel, &err));
    ck_assert_int_eq(echo_call(channel, ECHO_PATH("Unary"), NULL, NULL, &resp, &err),
                     BERTH_UNAVAILABLE);
    ck_assert_int_eq(err.reason, BERTH_REASON_ADAPTER_UNAVAILABLE);
    ck_assert(!berth_channel_ready(channel, 20));
    ck_assert_int_eq(pthread_create(&late, NULL, late_start, NULL), 0);
    ck_assert_msg(!echo_call(channel, ECHO_PATH("Unary"), NULL, &again, &resp, &err), "%s",
                  err.text);
    echo_response_free(resp);
    pthread_join(late, NULL);
    ck_assert(berth_channel_ready(channel, 5000));
    stop();
    berth_rpc_done();
}
END_TEST

/* What was counted can be read. */
START_TEST(metrics__after_calls__counted)
{
    EchoRequest req = ECHO_REQUEST_INIT;
    struct berth_error err;
    EchoResponse *resp;
    char *text;
    bool peer;

    start(NULL, NULL);
    req.fail_reason = (char *)"DISK_FULL";
    for (int i = 0; i < 3; i++)
        ck_assert(!call(ECHO_PATH("Unary"), &peer, &err));
    ck_assert(echo_call(channel, ECHO_PATH("Unary"), &req, NULL, &resp, &err));
    text = berth_server_metrics(server.echo.server);
    ck_assert_ptr_nonnull(text);
#define LINE(method, rest) "{method=\"" ECHO_PATH(method) "\"" rest "\n"
    ck_assert_ptr_nonnull(
        strstr(text, "berth_rpc_calls_total" LINE("Unary", ",code=\"OK\"} 3")));
    ck_assert_ptr_nonnull(
        strstr(text, "berth_rpc_calls_total" LINE("Unary", ",code=\"RESOURCE_EXHAUSTED\"} 1")));
    ck_assert_ptr_nonnull(strstr(text, "berth_rpc_in_flight" LINE("Unary", "} 0")));
    ck_assert_ptr_nonnull(
        strstr(text, "berth_rpc_seconds_bucket" LINE("Unary", ",le=\"+Inf\"} 4")));
    ck_assert_ptr_nonnull(strstr(text, "berth_rpc_connections 1\n"));
    free(text);
    stop();
}
END_TEST

/* The same method twice is our mistake, found at the start. */
START_TEST(start__method_twice__refused)
{
    struct berth_loop *loop;
    struct berth_server *idle = idle_server(&loop);
    struct berth_error err = {0};

    ck_assert(!berth_server_add(idle, echo_methods, 1, NULL, &err));
    ck_assert(!berth_server_add(idle, echo_methods, 1, NULL, &err));
    ck_assert_int_eq(berth_server_start(idle, &err), BERTH_INTERNAL);
    berth_server_free(idle);
    berth_loop_free(loop);
    berth_rpc_done();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("common/rpc server");
    TCase *tcase = tcase_create("server");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, peers__tcp_and_unix__told_apart);
    tcase_add_test(tcase, peers__internal_server__others_refused);
    tcase_add_loop_test(tcase, peers__other_uid__peer_only_when_listed, 0,
                        (int)BERTH_COUNT(uid_rows));
    tcase_add_test(tcase, connections__over_cap__closed);
    tcase_add_test(tcase, connections__no_descriptors_left__listener_survives);
    tcase_add_loop_test(tcase, connections__noise__nobody_disturbed, 0,
                        (int)BERTH_COUNT(noises));
    tcase_add_loop_test(tcase, listen__bad_address__refused, 0,
                        (int)BERTH_COUNT(bad_addresses));
    tcase_add_test(tcase, listen__in_use__refused);
    tcase_add_test(tcase, listen__stale_socket__replaced);
    tcase_add_test(tcase, listen__other_file_there__refused);
    tcase_add_test(tcase, stop__calls_in_progress__finished);
    tcase_add_test(tcase, stop__grace_over__cancelled);
    tcase_add_test(tcase, channel__peer_comes_late__retried_when_idempotent);
    tcase_add_test(tcase, metrics__after_calls__counted);
    tcase_add_test(tcase, start__method_twice__refused);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
