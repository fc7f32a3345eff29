/* What a TLS listener survives: no descriptors, too many connections, handshakes without end.
 */
#include <check.h>
#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "common/time/time.h"
#include "tests/component/rpc/certs.h"
#include "tests/component/rpc/client.h"
#include "tests/component/rpc/raw.h"

enum {
    N_FLOOD = 200,
    LOW_NOFILE = 64,
    HANDSHAKE_MS = 500,
    HANG_UP_MS = 10000,
    N_HANDSHAKES = 200
};

static struct certs_authority *ours;
static struct echo_server server;
static struct berth_tls *server_tls, *client_tls;

static void setup(void)
{
    certs_open();
    ours = certs_authority_new("ours", NULL);
}

static void start(unsigned max_connections, int64_t handshake_ms)
{
    const struct certs_options certificate = {.issuer = ours, .sans = "IP:127.0.0.1"};
    struct berth_server_options options = {
        .max_connections = max_connections,
        .handshake_ms = handshake_ms,
        .tls_clients = BERTH_TLS_CLIENTS_MAY_SHOW,
    };
    struct berth_tls_options files = {.authorities = certs_path("ours.pem")};
    struct berth_error err = {0};

    certs_issue("server", &certificate);
    ck_assert(!berth_tls_new(&files, &client_tls, &err));
    files.cert = certs_path("server.pem");
    files.key = certs_path("server.key");
    ck_assert(!berth_tls_new(&files, &server_tls, &err));
    options.tls = server_tls;
    echo_server_start(&server, &options, NULL);
}

static void teardown(void)
{
    if (server.echo.server)
        echo_server_stop(&server, 1000);
    berth_tls_free(server_tls);
    berth_tls_free(client_tls);
    certs_authority_free(ours);
    certs_close();
}

static struct berth_channel *open_channel(bool tls)
{
    const struct berth_channel_options how = {.tls = tls ? client_tls : NULL};
    struct berth_channel *channel;
    struct berth_error err = {0};

    ck_assert(
        !berth_channel_new(tls ? server.tls_address : server.address, &how, &channel, &err));
    return channel;
}

static bool works(struct berth_channel *channel)
{
    struct berth_error err = {0};
    EchoResponse *resp;
    enum berth_code code = echo_call(channel, ECHO_PATH("Unary"), NULL, NULL, &resp, &err);

    echo_response_free(resp);
    return !code;
}

static bool works_afresh(bool tls)
{
    struct berth_channel *channel = open_channel(tls);
    bool working = works(channel);

    berth_channel_free(channel);
    return working;
}

static size_t n_descriptors(void)
{
    DIR *entries = opendir("/proc/self/fd");
    size_t n = 0;

    ck_assert_ptr_nonnull(entries);
    while (readdir(entries))
        n++;
    closedir(entries);
    return n;
}

/* ------------------------------------------------------------------- descriptors */

/* Running out of descriptors on either listener costs connections, and neither listener. */
START_TEST(connections__no_descriptors_left__both_listeners_survive)
{
    struct berth_channel *channels[2];
    struct rlimit limit, low;
    struct flood flood;

    flood_fork(&flood, N_FLOOD);
    start(0, 0);
    for (int tls = 0; tls < 2; tls++) {
        channels[tls] = open_channel(tls);
        ck_assert(works(channels[tls]));
        ck_assert(works(channels[tls]));
    }
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    low = limit;
    low.rlim_cur = LOW_NOFILE;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
    flood_begin(&flood, port_of(_i ? server.tls_address : server.address));
    for (int tls = 0; tls < 2; tls++)
        ck_assert(works(channels[tls]));
    flood_end(&flood);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int tls = 0; tls < 2; tls++) {
        ck_assert(works(channels[tls]));
        ck_assert(works_afresh(tls));
        berth_channel_free(channels[tls]);
    }
}
END_TEST

/* Nothing is left of connections that have come and gone, finished or not. */
START_TEST(connections__many_handshakes__nothing_left)
{
    const struct tls_by_hand how = {0};
    int64_t end_ms;
    size_t before;
    uint16_t port;

    start(0, 0);
    port = port_of(server.tls_address);
    ck_assert(works_afresh(true));
    ck_assert_str_eq(tls_by_hand(port, &how), "TLSv1.3");
    before = n_descriptors();
    for (int i = 0; i < N_HANDSHAKES; i++) {
        int fd = raw_connect(port);

        ck_assert_int_ge(fd, 0);
        if (i % 2)
            ck_assert_int_eq(send(fd, "\x16\x03\x01", 3, MSG_NOSIGNAL), 3);
        close(fd);
        ck_assert_str_eq(tls_by_hand(port, &how), "TLSv1.3");
    }
    for (end_ms = berth_tick_ms() + HANG_UP_MS; n_descriptors() > before;) {
        ck_assert_int_lt(berth_tick_ms(), end_ms);
        (void)poll(NULL, 0, 10);
    }
}
END_TEST

/* ------------------------------------------------------------------------- the cap */

/* Over the cap connections are closed at once, whatever they speak; then there is room again.
 */
START_TEST(connections__over_cap__closed)
{
    int64_t end_ms = berth_tick_ms() + HANG_UP_MS;
    uint16_t port;
    int fds[3];

    start(2, 0);
    port = port_of(server.tls_address);
    for (int i = 0; i < 3; i++) {
        fds[i] = raw_connect(port);
        ck_assert_int_ge(fds[i], 0);
    }
    ck_assert(hung_up(fds[2], HANG_UP_MS / 4));
    close(fds[2]);
    close(fds[0]);
    while (!works_afresh(true))
        ck_assert_int_lt(berth_tick_ms(), end_ms);
    close(fds[1]);
}
END_TEST

/* -------------------------------------------------------------------- slow clients */

static const struct {
    size_t size;
    const char *bytes;
} begins[] = {
    {0, ""},
    {3, "\x16\x03\x01"},             /* the head of a record */
    {6, "\x16\x03\x01\x02\x00\x01"}, /* and the head of a ClientHello */
};

/* Who does not finish the handshake is cut off when its time is over, and nobody else is. */
START_TEST(handshake__never_finished__cut_off_in_time)
{
    struct berth_channel *good;
    int64_t start_ms;
    int fd;

    start(0, HANDSHAKE_MS);
    good = open_channel(true);
    ck_assert(works(good));
    start_ms = berth_tick_ms();
    fd = raw_connect(port_of(server.tls_address));
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(send(fd, begins[_i].bytes, begins[_i].size, MSG_NOSIGNAL),
                     begins[_i].size);
    ck_assert(hung_up(fd, HANG_UP_MS));
    ck_assert_int_ge(berth_tick_ms() - start_ms, HANDSHAKE_MS / 2);
    close(fd);
    ck_assert(works(good));
    berth_channel_free(good);
}
END_TEST

/* A byte now and then buys no time. */
START_TEST(handshake__drop_by_drop__cut_off_in_time)
{
    static const char head[] = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    int64_t end_ms;
    bool cut_off = false;
    int fd;

    start(0, HANDSHAKE_MS);
    fd = raw_connect(port_of(server.tls_address));
    ck_assert_int_ge(fd, 0);
    end_ms = berth_tick_ms() + HANG_UP_MS;
    for (size_t i = 0; !cut_off && berth_tick_ms() < end_ms; i++) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        char byte = i < sizeof head - 1 ? head[i] : 0;

        cut_off = send(fd, &byte, 1, MSG_NOSIGNAL) < 0 || poll(&wait, 1, 100) == 1;
    }
    ck_assert(cut_off);
    close(fd);
    ck_assert(works_afresh(true));
}
END_TEST

/* Neither does a handshake with nothing behind it. */
START_TEST(handshake__silence_after_it__cut_off_in_time)
{
    const struct tls_by_hand silent = {.silent = true};
    int64_t start_ms;

    start(0, HANDSHAKE_MS);
    start_ms = berth_tick_ms();
    ck_assert_str_eq(tls_by_hand(port_of(server.tls_address), &silent), "TLSv1.3");
    ck_assert_int_lt(berth_tick_ms() - start_ms, HANG_UP_MS);
    ck_assert(works_afresh(true));
}
END_TEST

/* A server does not wait for handshakes when it is to stop. */
START_TEST(handshake__under_way__stop_does_not_wait)
{
    int64_t start_ms;
    int fds[16];

    start(0, 0);
    for (size_t i = 0; i < BERTH_COUNT(fds); i++) {
        fds[i] = raw_connect(port_of(server.tls_address));
        ck_assert_int_ge(fds[i], 0);
    }
    ck_assert(works_afresh(true));
    start_ms = berth_tick_ms();
    echo_server_stop(&server, 1000);
    ck_assert_int_lt(berth_tick_ms() - start_ms, 5000);
    for (size_t i = 0; i < BERTH_COUNT(fds); i++) {
        ck_assert(hung_up(fds[i], HANG_UP_MS));
        close(fds[i]);
    }
}
END_TEST

static const struct {
    size_t size;
    const char *bytes;
} noises[] = {
    {18, "GET / HTTP/1.1\r\n\r\n"},
    {24, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
    {9, "\x80\x2e\x01\x03\x01\x00\x15\x00\x00"},      /* as SSL 2 begins */
    {10, "\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00"}, /* a ClientHello without a body */
    {7, "\x15\x03\x01\x00\x02\x02\x28"},              /* an alert */
    {16, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"},
};

/* What is no TLS is cut off and disturbs nobody. */
START_TEST(handshake__noise__cut_off)
{
    int fd;

    start(0, 0);
    fd = raw_connect(port_of(server.tls_address));
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(send(fd, noises[_i].bytes, noises[_i].size, MSG_NOSIGNAL),
                     noises[_i].size);
    (void)shutdown(fd, SHUT_WR);
    ck_assert(hung_up(fd, HANG_UP_MS / 2));
    close(fd);
    ck_assert(works_afresh(true));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("common/rpc tls limits");
    TCase *tcase = tcase_create("limits");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, connections__no_descriptors_left__both_listeners_survive, 0, 2);
    tcase_add_test(tcase, connections__many_handshakes__nothing_left);
    tcase_add_test(tcase, connections__over_cap__closed);
    tcase_add_loop_test(tcase, handshake__never_finished__cut_off_in_time, 0,
                        (int)BERTH_COUNT(begins));
    tcase_add_test(tcase, handshake__drop_by_drop__cut_off_in_time);
    tcase_add_test(tcase, handshake__silence_after_it__cut_off_in_time);
    tcase_add_test(tcase, handshake__under_way__stop_does_not_wait);
    tcase_add_loop_test(tcase, handshake__noise__cut_off, 0, (int)BERTH_COUNT(noises));
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
