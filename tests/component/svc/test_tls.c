/* TLS by the settings: what goes together, what is served with it, and certificates that change
 * while the process runs. */
#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "common/svc/svc.h"
#include "common/time/time.h"
#include "tests/component/rpc/certs.h"
#include "tests/component/svc/process.h"

#include "berth/reaper/v1/reaper.pb-c.h"
#include "tests/lib/port.h"

enum { DEADLINE_MS = 20000, WORDS_MAX = 8 };

#define URI "spiffe://berth/controlplane"
#define SANS_33 "a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a"
#define TEN "1234567890"
#define HUNDRED TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN

static const char *tiny;
static struct process process;
static struct certs_authority *ours;

static void setup(void)
{
    const struct certs_options server = {
        .sans = "IP:127.0.0.1,DNS:localhost,URI:spiffe://berth/internal", .issuer = NULL};
    struct certs_options mine = server;

    certs_open();
    ours = certs_authority_new("ca", NULL);
    mine.issuer = ours;
    certs_issue("server", &mine);
    mine.sans = "URI:" URI;
    certs_issue("peer", &mine);
    mine.sans = "URI:spiffe://berth/somebody";
    certs_issue("other", &mine);
    berth_rpc_init();
}

static void teardown(void)
{
    if (process.pid > 0) {
        kill(process.pid, SIGKILL);
        process_wait(&process, DEADLINE_MS);
    }
    berth_rpc_done();
    certs_authority_free(ours);
    certs_close();
}

/* Splits words at spaces and starts; "@x" at the end of a word becomes the path of file x. */
static void begin(const char *name, const char *words)
{
    static char texts[WORDS_MAX][512];
    const char *argv[WORDS_MAX + 2] = {tiny};
    size_t n = 0;

    while (*words) {
        size_t len = strcspn(words, " "), at = 0;

        ck_assert_uint_lt(n, WORDS_MAX);
        while (at < len && words[at] != '@')
            at++;
        if (at < len) {
            char file[32];

            snprintf(file, sizeof file, "%.*s", (int)(len - at - 1), words + at + 1);
            snprintf(texts[n], sizeof texts[n], "%.*s%s", (int)at, words, certs_path(file));
        } else {
            snprintf(texts[n], sizeof texts[n], "%.*s", (int)len, words);
        }
        argv[1 + n] = texts[n];
        n++;
        words += len + (words[len] == ' ');
    }
    process_start(&process, name, argv);
}

/* ---------------------------------------------------------------------- settings */

#define PAIR "--tls_cert=@server.pem --tls_key=@server.key "
#define MUTUAL PAIR "--tls_ca=@ca.pem "
static const struct {
    const char *name, *words;
    const char *says; /* NULL: good */
} rows[] = {
    {"tiny", PAIR, NULL},
    {"tiny", MUTUAL, NULL},
    {"tiny", MUTUAL "--peer_sans=" URI ",binding.example", NULL},
    {"tiny", MUTUAL "--peer_sans=" HUNDRED HUNDRED TEN TEN TEN TEN TEN "12345", NULL},
    {"tiny", MUTUAL "--tls-require-client --listen=0.0.0.0:7400", NULL},
    {"tiny", MUTUAL "--tls-require-client --listen=[::]:7400", NULL},
    {"tiny", MUTUAL "--tls-require-client --listen=192.0.2.1:7400", NULL},
    {"tiny", PAIR "--listen=[::1]:7400", NULL},
    {"tiny", PAIR "--listen=unix:/tmp/x.sock", NULL},
    {"tiny", "--tls_cert=@server.pem", "tls_key: must be set where tls_cert is"},
    {"tiny", "--tls_key=@server.key", "tls_cert: must be set where tls_key is"},
    {"tiny", "--tls_ca=@ca.pem", "tls_cert: must be set where tls_ca is"},
    {"tiny", PAIR "--peer_sans=a", "tls_ca: must be set where peer_sans is"},
    {"tiny", PAIR "--tls_require_client", "tls_ca: must be set where tls_require_client is"},
    {"tiny", MUTUAL "--peer_sans=a,", "peer_sans: must be at most 32"},
    {"tiny", MUTUAL "--peer_sans=,a", "peer_sans: must be at most 32"},
    {"tiny", MUTUAL "--peer_sans=a,,b", "peer_sans: must be at most 32"},
    {"tiny", MUTUAL "--peer_sans=*.suite.example", "peer_sans: must be at most 32"},
    {"tiny",
     MUTUAL "--peer_sans=b\xc3\xbc"
            "cher.example",
     "peer_sans: must be at most 32"},
    {"tiny", MUTUAL "--peer_sans=" SANS_33, "peer_sans: must be at most 32"},
    {"tiny", MUTUAL "--peer_sans=" HUNDRED HUNDRED TEN TEN TEN TEN TEN "123456",
     "peer_sans: must be at most 32"},
    {"tiny", PAIR "--listen=0.0.0.0:7400", NULL},
    {"tiny", MUTUAL "--listen=0.0.0.0:7400", NULL},
    {"tiny", "--listen=0.0.0.0:7400", "listen: must be a loopback address"},
    {"tiny", PAIR "--listen=0.0.0.0:7400 --insecure_dev",
     "listen: must be on this machine where insecure_dev"},
    {"tiny", MUTUAL "--tls-require-client --listen=0.0.0.0:7400 --insecure_dev",
     "listen: must be on this machine where insecure_dev"},
    {"tiny", PAIR "--listen=localhost:7400", "listen: must be a numeric address"},
    {"tiny", PAIR "--listen=0.0.0.0", "listen: must be a numeric address"},
    {"tiny", PAIR "--listen=*:7400", "listen: must be a numeric address"},
    {"tiny", MUTUAL "--metrics_listen=0.0.0.0:7500", "metrics_listen: must be a loopback"},
    {"tiny", "--tls_cert=@none.pem --tls_key=@server.key", "none.pem: No such file"},
    {"tiny", "--tls_cert=@server.pem --tls_key=@peer.key", "the private key is not that of"},
    {"tiny", PAIR "--tls_ca=@server.key", "server.key: holds no certificate"},
    {"internal", MUTUAL "--peer_sans=" URI " --listen=0.0.0.0:7403", NULL},
    {"internal", MUTUAL "--peer_sans=" URI, NULL},
    {"internal", PAIR "--listen=127.0.0.1:7403", "listen: internal is internal"},
    {"internal", MUTUAL "--listen=127.0.0.1:7403", "tls_ca and peer_sans"},
    {"internal", MUTUAL "--listen=0.0.0.0:7403", "tls_ca and peer_sans"},
    {"internal", MUTUAL "--listen=0.0.0.0:7403 --insecure_dev", "listen: must be on this"},
    {"internal", PAIR "--listen=127.0.0.1:7403 --insecure_dev", NULL},
};

/* What does not go together is refused by the name of the setting that has to change. */
START_TEST(check__settings_of_tls__judged)
{
    char words[1024];
    int status;

    snprintf(words, sizeof words, "--check %s", rows[_i].words);
    begin(rows[_i].name, words);
    status = process_wait(&process, DEADLINE_MS);
    ck_assert_msg(WIFEXITED(status), "%s", process.text);
    ck_assert_msg(WEXITSTATUS(status) == (rows[_i].says ? 2 : 0), "%s", process.text);
    ck_assert_msg(strstr(process.text, rows[_i].says ? rows[_i].says : "valid\n") != NULL, "%s",
                  process.text);
}
END_TEST

/* --------------------------------------------------------------- a running service */

/* name NULL: no TLS. */
static enum berth_code get_sweep(const char *target, const char *name, struct berth_error *err)
{
    Berth__Reaper__V1__GetSweepRequest req = BERTH__REAPER__V1__GET_SWEEP_REQUEST__INIT;
    const struct berth_call_options options = {.timeout_ms = 5000};
    struct berth_channel_options how = {0};
    BERTH_AUTO(berth_tls_free) struct berth_tls *tls = NULL;
    struct berth_channel *channel;
    ProtobufCMessage *resp = NULL;
    enum berth_code code;
    char cert[32], key[32];

    *err = (struct berth_error){0};
    if (name) {
        struct berth_tls_options files = {.authorities = certs_path("ca.pem")};

        snprintf(cert, sizeof cert, "%s.pem", name);
        snprintf(key, sizeof key, "%s.key", name);
        if (*name) {
            files.cert = certs_path(cert);
            files.key = certs_path(key);
        }
        ck_assert_msg(!berth_tls_new(&files, &tls, err), "%s", err->text);
        how.tls = tls;
    }
    ck_assert(!berth_channel_new(target, &how, &channel, err));
    code = berth_channel_call(channel, "/berth.reaper.v1.ReaperService/GetSweep", &req.base,
                              &berth__reaper__v1__get_sweep_response__descriptor, &options,
                              &resp, err);
    berth_channel_free(channel);
    if (resp)
        protobuf_c_message_free_unpacked(resp, NULL);
    return code;
}

/* Starts name with mutual TLS on loopback; fills both targets. */
static void start(const char *name, char tcp[32], char unix_socket[128])
{
    char words[1024];
    int port = test_port();

    snprintf(tcp, 32, "127.0.0.1:%d", port);
    snprintf(unix_socket, 128, "unix:%s/%s.sock", certs_path("run"), name);
    snprintf(words, sizeof words,
             MUTUAL "--peer_sans=" URI " --run_dir=@run --metrics_listen= --listen=%s", tcp);
    begin(name, words);
    ck_assert_msg(process_expect(&process, "\"msg\":\"ready\"", DEADLINE_MS), "%s",
                  process.text);
}

static void end_well(void)
{
    kill(process.pid, SIGTERM);
    ck_assert_int_eq(process_wait(&process, DEADLINE_MS), 0);
    ck_assert_int_eq(rmdir(certs_path("run")), 0);
}

/* An internal service on TCP: peers by certificate, nobody else; its unix socket as ever. */
START_TEST(serve__internal_with_mutual_tls__listed_peers_only)
{
    struct berth_error err;
    char tcp[32], unix_socket[128];

    start("internal", tcp, unix_socket);
    ck_assert_msg(!get_sweep(tcp, "peer", &err), "%s", err.text);
    ck_assert_int_eq(get_sweep(tcp, "other", &err), BERTH_PERMISSION_DENIED);
    ck_assert_int_eq(err.reason, BERTH_REASON_PEER_ONLY);
    ck_assert_int_eq(get_sweep(tcp, "", &err), BERTH_UNAVAILABLE);
    ck_assert_int_eq(get_sweep(tcp, NULL, &err), BERTH_UNAVAILABLE);
    ck_assert_msg(!get_sweep(unix_socket, NULL, &err), "%s", err.text);
    ck_assert(process_expect(&process, "\"caller\":\"spiffe://berth/somebody\"", DEADLINE_MS));
    end_well();
}
END_TEST

/* A public one asks for no certificate, but takes no plaintext. */
START_TEST(serve__public_with_tls__certificate_not_needed)
{
    struct berth_error err;
    char tcp[32], unix_socket[128];

    start("tiny", tcp, unix_socket);
    ck_assert_msg(!get_sweep(tcp, "", &err), "%s", err.text);
    ck_assert_msg(!get_sweep(tcp, "other", &err), "%s", err.text);
    ck_assert_int_eq(get_sweep(tcp, NULL, &err), BERTH_UNAVAILABLE);
    ck_assert_msg(!get_sweep(unix_socket, NULL, &err), "%s", err.text);
    end_well();
}
END_TEST

static unsigned count(const char *text, const char *word)
{
    unsigned n = 0;

    for (; (text = strstr(text, word)); text += strlen(word))
        n++;
    return n;
}

/* Handshakes that fail are told of, but strangers cannot fill our disk with it. */
START_TEST(serve__many_bad_handshakes__log_stays_short)
{
    enum { N_BAD = 500, LINES_PER_SECOND = 10 };
    int64_t start_ms = berth_tick_ms();
    char tcp[32], unix_socket[128];
    struct berth_error err;
    int64_t seconds;

    start("tiny", tcp, unix_socket);
    for (int i = 0; i < N_BAD; i++) {
        struct sockaddr_in address = {
            .sin_family = AF_INET,
            .sin_port = htons((uint16_t)strtoul(strchr(tcp, ':') + 1, NULL, 10)),
            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        char byte;

        ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
        ck_assert_int_eq(send(fd, "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL), 18);
        while (recv(fd, &byte, 1, 0) > 0)
            ;
        close(fd);
    }
    ck_assert_msg(!get_sweep(tcp, "", &err), "%s", err.text);
    seconds = (berth_tick_ms() - start_ms) / 1000 + 2;
    end_well();
    ck_assert_uint_gt(count(process.text, "grpc core reports an error"), 0);
    ck_assert_uint_le(count(process.text, "grpc core reports an error"),
                      (unsigned)seconds * LINES_PER_SECOND);
}
END_TEST

/* At SIGHUP the files are looked at; broken ones are told of and not used. */
START_TEST(hangup__changed_files__used_unless_broken)
{
    const struct certs_options next = {.issuer = ours, .sans = "IP:127.0.0.1"};
    struct berth_error err;
    char tcp[32], unix_socket[128];

    start("tiny", tcp, unix_socket);
    certs_write("server.pem", "not a certificate\n");
    kill(process.pid, SIGHUP);
    ck_assert_msg(process_expect(&process, "new certificates cannot be used", DEADLINE_MS),
                  "%s", process.text);
    ck_assert_msg(strstr(process.text, "server.pem: holds no certificate") != NULL, "%s",
                  process.text);
    ck_assert_msg(!get_sweep(tcp, "", &err), "%s", err.text);
    certs_issue("server", &next);
    kill(process.pid, SIGHUP);
    ck_assert_msg(process_expect(&process, "new certificates are in use", DEADLINE_MS), "%s",
                  process.text);
    ck_assert_msg(!get_sweep(tcp, "", &err), "%s", err.text);
    end_well();
}
END_TEST

/* ------------------------------------------------------------------ channels to peers */

static const struct {
    const char *target;
    bool mutual, insecure_dev, refused, tls;
} channel_rows[] = {
    {"unix:/tmp/x.sock", false, false, false, false},
    {"unix:/tmp/x.sock", true, false, false, false},
    {"", true, false, false, false},
    {"127.0.0.1:7403", false, false, false, false},
    {"[::1]:7403", false, false, false, false},
    {"localhost:7403", false, false, false, false},
    {"binding.example:7403", false, false, true, false},
    {"192.0.2.1:7403", false, false, true, false},
    {"0.0.0.0:7403", false, false, true, false},
    {"dns:///127.0.0.1:7403", false, false, true, false},
    {"localhost.example:7403", false, false, true, false},
    {"192.0.2.1:7403", false, true, false, false},
    {"192.0.2.1:7403", true, false, false, true},
};

/* No word goes to another machine in plaintext. */
START_TEST(peer_channel__each_target__plaintext_on_this_machine_only)
{
    const struct berth_tls_options files = {.cert = certs_path("peer.pem"),
                                            .key = certs_path("peer.key"),
                                            .authorities = certs_path("ca.pem")};
    struct berth_runtime runtime = {.run_dir = "/tmp",
                                    .insecure_dev = channel_rows[_i].insecure_dev};
    struct berth_channel *channel = NULL;
    struct berth_error err = {0};
    enum berth_code code;

    ck_assert(!berth_tls_new(&files, &runtime.tls, &err));
    runtime.mutual_tls = channel_rows[_i].mutual;
    code =
        berth_peer_channel(&runtime, "binding", channel_rows[_i].target, NULL, &channel, &err);
    if (channel_rows[_i].refused) {
        ck_assert_int_eq(code, BERTH_INVALID_ARGUMENT);
        ck_assert_msg(strstr(err.text, "tls_ca: must be set") != NULL, "%s", err.text);
    } else {
        ck_assert_msg(!code, "%s", err.text);
    }
    berth_channel_free(channel);
    berth_tls_free(runtime.tls);
}
END_TEST

/* A service's channel shows its certificate to the other one. */
START_TEST(peer_channel__mutual_tls__peer_at_the_other_end)
{
    const struct berth_tls_options files = {.cert = certs_path("peer.pem"),
                                            .key = certs_path("peer.key"),
                                            .authorities = certs_path("ca.pem")};
    struct berth_runtime runtime = {.run_dir = "/tmp", .mutual_tls = true};
    struct berth_channel *channel;
    struct berth_error err = {0};
    char tcp[32], unix_socket[128];

    start("internal", tcp, unix_socket);
    ck_assert(!berth_tls_new(&files, &runtime.tls, &err));
    ck_assert(!berth_peer_channel(&runtime, "internal", tcp, NULL, &channel, &err));
    ck_assert(berth_channel_ready(channel, 5000));
    berth_channel_free(channel);
    berth_tls_free(runtime.tls);
    end_well();
}
END_TEST

int main(int argc, char **argv)
{
    Suite *suite = suite_create("svc/tls");
    TCase *tcase = tcase_create("tls");
    SRunner *runner = srunner_create(suite);
    int failed;

    if (argc < 2)
        return EXIT_FAILURE;
    tiny = argv[1];
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, check__settings_of_tls__judged, 0, (int)BERTH_COUNT(rows));
    tcase_add_test(tcase, serve__internal_with_mutual_tls__listed_peers_only);
    tcase_add_test(tcase, serve__public_with_tls__certificate_not_needed);
    tcase_add_test(tcase, serve__many_bad_handshakes__log_stays_short);
    tcase_add_test(tcase, hangup__changed_files__used_unless_broken);
    tcase_add_loop_test(tcase, peer_channel__each_target__plaintext_on_this_machine_only, 0,
                        (int)BERTH_COUNT(channel_rows));
    tcase_add_test(tcase, peer_channel__mutual_tls__peer_at_the_other_end);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
