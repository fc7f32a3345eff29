/* A process from start to end: health, reflection, metrics, sockets, signals. */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <ftw.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "common/rpc/rpc.h"
#include "common/time/time.h"
#include "tests/component/svc/process.h"

#include "berth/reaper/v1/reaper.pb-c.h"
#include "grpc/health/v1/health.pb-c.h"
#include "grpc/reflection/v1/reflection.pb-c.h"
#include "tests/lib/port.h"

typedef Grpc__Health__V1__HealthCheckRequest HealthRequest;
typedef Grpc__Health__V1__HealthCheckResponse HealthResponse;
typedef Grpc__Reflection__V1__ServerReflectionRequest ReflectionRequest;
typedef Grpc__Reflection__V1__ServerReflectionResponse ReflectionResponse;

enum { DEADLINE_MS = 20000, SERVING = 1, NOT_SERVING = 2 };

#define SERVICE "berth.reaper.v1.ReaperService"

static const char *tiny;
static char folder[] = "/tmp/berth-svc-XXXXXX";
static char run_dir[64], ready_file[64], hold_file[64], target[96];
static int port, metrics_port;
static struct process process;
static struct berth_channel *channel;

static void touch(const char *path)
{
    FILE *file = fopen(path, "w");

    ck_assert_ptr_nonnull(file);
    fclose(file);
}

/* Starts the service with up to three more words; does not wait. */
static void begin(struct process *where, const char *name, const char *a, const char *b,
                  const char *c)
{
    char words[6][128];
    const char *argv[] = {tiny,     words[0], words[1], words[2], words[3],
                          words[4], a,        b,        c,        NULL};

    snprintf(words[0], sizeof words[0], "--run_dir=%s", run_dir);
    snprintf(words[1], sizeof words[1], "--listen=127.0.0.1:%d", port);
    snprintf(words[2], sizeof words[2], "--metrics_listen=127.0.0.1:%d", metrics_port);
    snprintf(words[3], sizeof words[3], "--ready_file=%s", ready_file);
    snprintf(words[4], sizeof words[4], "--hold_file=%s", hold_file);
    process_start(where, name, argv);
}

static void start_tiny(const char *a, const char *b, const char *c)
{
    begin(&process, "tiny", a, b, c);
    ck_assert_msg(process_expect(&process, "\"msg\":\"ready\"", DEADLINE_MS), "%s",
                  process.text);
}

static void setup(void)
{
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(run_dir, sizeof run_dir, "%s/run", folder);
    snprintf(ready_file, sizeof ready_file, "%s/ready", folder);
    snprintf(hold_file, sizeof hold_file, "%s/hold", folder);
    snprintf(target, sizeof target, "unix:%s/tiny.sock", run_dir);
    port = test_port();
    metrics_port = test_port();
    berth_rpc_init();
    ck_assert_int_eq(berth_channel_new(target, NULL, &channel, NULL), BERTH_OK);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st;
    (void)kind;
    (void)where;
    return remove(path);
}

static void teardown(void)
{
    channel = berth_channel_free(channel);
    berth_rpc_done();
    if (process.pid > 0) {
        kill(process.pid, SIGKILL);
        process_wait(&process, DEADLINE_MS);
    }
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* Ends the service by a signal; the exit status as by waitpid(). */
static int end_tiny(int number)
{
    kill(process.pid, number);
    return process_wait(&process, DEADLINE_MS);
}

/* ---------------------------------------------------------------------------- health */

/* SERVING, NOT_SERVING, or minus the code of the failure. */
static int ask_health(struct berth_channel *of, const char *service)
{
    HealthRequest req = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    const struct berth_call_options options = {.timeout_ms = 5000};
    ProtobufCMessage *resp = NULL;
    enum berth_code code;
    int status;

    req.service = (char *)service;
    code = berth_channel_call(of, "/grpc.health.v1.Health/Check", &req.base,
                              &grpc__health__v1__health_check_response__descriptor, &options,
                              &resp, NULL);
    if (code)
        return -(int)code;
    status = (int)((HealthResponse *)resp)->status;
    protobuf_c_message_free_unpacked(resp, NULL);
    return status;
}

static void await_health(const char *service, int wanted)
{
    int64_t until_tick = berth_tick_ms() + DEADLINE_MS;

    while (ask_health(channel, service) != wanted) {
        ck_assert_int_lt(berth_tick_ms(), until_tick);
        poll(NULL, 0, 10);
    }
}

/* "" lives from the start; a service name follows ready(), each way, and the log says so. */
START_TEST(health__ready_file_comes_and_goes__followed)
{
    start_tiny(NULL, NULL, NULL);
    ck_assert_int_eq(ask_health(channel, ""), SERVING);
    ck_assert_int_eq(ask_health(channel, SERVICE), NOT_SERVING);
    ck_assert_int_lt(ask_health(channel, "no.such.Service"), 0);
    touch(ready_file);
    await_health(SERVICE, SERVING);
    unlink(ready_file);
    await_health(SERVICE, NOT_SERVING);
    ck_assert_int_eq(ask_health(channel, ""), SERVING);
    ck_assert_int_eq(WEXITSTATUS(end_tiny(SIGTERM)), 0);
    ck_assert_ptr_nonnull(strstr(process.text, "\"msg\":\"serving\""));
    ck_assert_ptr_nonnull(strstr(process.text, "no ready file"));
}
END_TEST

/* The same by TCP as by the unix socket. */
START_TEST(listen__public_service__unix_and_tcp)
{
    char address[32];
    struct berth_channel *tcp = NULL;

    start_tiny(NULL, NULL, NULL);
    snprintf(address, sizeof address, "127.0.0.1:%d", port);
    ck_assert_int_eq(berth_channel_new(address, NULL, &tcp, NULL), BERTH_OK);
    ck_assert_int_eq(ask_health(tcp, ""), SERVING);
    berth_channel_free(tcp);
    ck_assert_int_eq(WEXITSTATUS(end_tiny(SIGINT)), 0);
    ck_assert_ptr_nonnull(strstr(process.text, "\"signal\":\"SIGINT\""));
}
END_TEST

/* ------------------------------------------------------------------------ reflection */

struct listing {
    char names[1024];
    atomic_bool closed;
    struct berth_loop *loop;
};

static void on_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct listing *listing = ctx;
    ProtobufCMessage *message = NULL;
    ReflectionResponse *resp;

    if (!msg)
        return;
    if (berth_buf_decode(&grpc__reflection__v1__server_reflection_response__descriptor, msg,
                         &message, NULL) == BERTH_OK) {
        resp = (ReflectionResponse *)message;
        for (size_t i = 0;
             resp->list_services_response && i < resp->list_services_response->n_service; i++) {
            strncat(listing->names, resp->list_services_response->service[i]->name,
                    sizeof listing->names - strlen(listing->names) - 1);
            strncat(listing->names, "\n", sizeof listing->names - strlen(listing->names) - 1);
        }
        protobuf_c_message_free_unpacked(message, NULL);
    }
    berth_buf_unref(msg);
    berth_stream_half_close(stream);
    berth_stream_read(stream);
}

static void on_written(void *ctx, struct berth_stream *stream)
{
    (void)ctx;
    (void)stream;
}

static void on_closed(void *ctx, struct berth_stream *stream, const struct berth_status *status)
{
    struct listing *listing = ctx;

    (void)stream;
    (void)status;
    listing->closed = true;
}

static void ask_reflection(void *arg)
{
    static const struct berth_stream_ops ops = {
        .message = on_message, .written = on_written, .closed = on_closed};
    static const struct berth_call_options options = {.timeout_ms = 10000};
    ReflectionRequest req = GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__INIT;
    struct listing *listing = arg;
    struct berth_stream *stream = berth_channel_stream(
        channel, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", &options,
        listing->loop, &ops, listing);

    req.message_request_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_LIST_SERVICES;
    req.list_services = (char *)"";
    berth_stream_read(stream);
    berth_stream_write(stream, berth_buf_pack(&req.base));
}

/* The service, health and both reflections are listed. */
START_TEST(reflection__list_services__all_there)
{
    static const char *const names[] = {SERVICE "\n", "grpc.health.v1.Health\n",
                                        "grpc.reflection.v1.ServerReflection\n",
                                        "grpc.reflection.v1alpha.ServerReflection\n"};
    struct listing listing = {0};
    int64_t until_tick = berth_tick_ms() + DEADLINE_MS;

    start_tiny(NULL, NULL, NULL);
    ck_assert_int_eq(berth_loop_new(&listing.loop, NULL), BERTH_OK);
    ck_assert_int_eq(berth_loop_start(listing.loop, "test", NULL), BERTH_OK);
    berth_loop_post(listing.loop, ask_reflection, &listing);
    while (!listing.closed && berth_tick_ms() < until_tick)
        poll(NULL, 0, 5);
    for (size_t i = 0; i < BERTH_COUNT(names); i++)
        ck_assert_msg(strstr(listing.names, names[i]) != NULL, "%s not in %s", names[i],
                      listing.names);
    berth_loop_free(listing.loop);
}
END_TEST

/* --------------------------------------------------------------------------- metrics */

/* One HTTP exchange as raw text; *answer is cut to its size. */
static void http(const char *request, char *answer, size_t size)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons((uint16_t)metrics_port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval timeout = {.tv_sec = 10};
    size_t done = 0;
    ssize_t n;

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(send(fd, request, strlen(request), MSG_NOSIGNAL),
                     (ssize_t)strlen(request));
    shutdown(fd, SHUT_WR);
    while (done < size - 1 && (n = recv(fd, answer + done, size - 1 - done, 0)) > 0)
        done += (size_t)n;
    answer[done] = 0;
    close(fd);
}

/* Process, build, own and per-method metrics in Prometheus' text form. */
START_TEST(metrics__scraped__process_methods_and_own)
{
    static char answer[64 << 10];
    static const char *const words[] = {"HTTP/1.1 200",
                                        "text/plain; version=0.0.4",
                                        "process_cpu_seconds_total ",
                                        "process_resident_memory_bytes ",
                                        "process_open_fds ",
                                        "process_threads ",
                                        "process_start_time_seconds ",
                                        "berth_build_info{service=\"tiny\"",
                                        "deployment=\"dev\"} 1",
                                        "tiny_own 42",
                                        "/grpc.health.v1.Health/Check"};

    start_tiny(NULL, NULL, NULL);
    ck_assert_int_eq(ask_health(channel, ""), SERVING);
    http("GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", answer,
         sizeof answer);
    for (size_t i = 0; i < BERTH_COUNT(words); i++)
        ck_assert_msg(strstr(answer, words[i]) ||
                          (i == BERTH_COUNT(words) - 1 && strstr(answer, "Health")),
                      "%s not in %s", words[i], answer);
}
END_TEST

static const struct {
    const char *request, *status;
} http_rows[] = {
    {"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "HTTP/1.1 404"},
    {"GET /metrics/../etc/passwd HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
     "HTTP/1.1 404"},
    {"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
     "HTTP/1.1 404"},
    {"DELETE /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "HTTP/1.1 404"},
    {"HEAD /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "HTTP/1.1 200"},
    {"GET /metrics?x=y HTTP/1.0\r\n\r\n", "HTTP/1.0 200"},
    {"nonsense\r\n\r\n", ""},
    {"GET /metrics HTTP/1.1\r\n", ""},
    {"", ""},
};

/* Other paths, methods and nonsense are answered or dropped, and the process lives on. */
START_TEST(metrics__other_requests__refused)
{
    static char answer[64 << 10];

    start_tiny(NULL, NULL, NULL);
    for (size_t i = 0; i < BERTH_COUNT(http_rows); i++) {
        http(http_rows[i].request, answer, sizeof answer);
        ck_assert_msg(strncmp(answer, http_rows[i].status, strlen(http_rows[i].status)) == 0 ||
                          strncmp(answer, "HTTP/1.1", 8) == 0,
                      "%s: %s", http_rows[i].request, answer);
        if (*http_rows[i].status)
            ck_assert_ptr_nonnull(strstr(answer, http_rows[i].status + 9));
    }
    http("GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", answer,
         sizeof answer);
    ck_assert_ptr_nonnull(strstr(answer, "tiny_own 42"));
}
END_TEST

/* ----------------------------------------------------------------------------- sockets */

/* run_dir is made, 0755; the socket in it goes with kill -9 and is replaced at the next start.
 */
START_TEST(run_dir__absent_or_stale_socket__made_anew)
{
    struct stat st;

    start_tiny(NULL, NULL, NULL);
    ck_assert_int_eq(stat(run_dir, &st), 0);
    ck_assert_int_eq(st.st_mode & 07777, 0755);
    ck_assert(WIFSIGNALED(end_tiny(SIGKILL)));
    start_tiny(NULL, NULL, NULL);
    ck_assert_int_eq(ask_health(channel, ""), SERVING);
}
END_TEST

/* Others may write the folder: they could put a socket of their own there. */
START_TEST(run_dir__writable_by_others__refused)
{
    ck_assert_int_eq(mkdir(run_dir, 0700), 0);
    ck_assert_int_eq(chmod(run_dir, 0777), 0);
    begin(&process, "tiny", NULL, NULL, NULL);
    ck_assert_int_eq(WEXITSTATUS(process_wait(&process, DEADLINE_MS)), 1);
    ck_assert_ptr_nonnull(strstr(process.text, "others may write it"));
}
END_TEST

/* A second instance does not take the first one's socket away. */
START_TEST(run_dir__socket_in_use__second_refuses)
{
    static struct process second;

    start_tiny(NULL, NULL, NULL);
    begin(&second, "tiny", "--listen=", "--metrics_listen=", NULL);
    ck_assert_int_eq(WEXITSTATUS(process_wait(&second, DEADLINE_MS)), 1);
    ck_assert_ptr_nonnull(strstr(second.text, "cannot start"));
    ck_assert_int_eq(ask_health(channel, ""), SERVING);
}
END_TEST

/* What start() says is what the log and the exit code say. */
START_TEST(start__fails__exit_status_and_log)
{
    begin(&process, "tiny", "--broken", NULL, NULL);
    ck_assert_int_eq(WEXITSTATUS(process_wait(&process, DEADLINE_MS)), 1);
    ck_assert_ptr_nonnull(strstr(process.text, "\"level\":\"error\""));
    ck_assert_ptr_nonnull(strstr(process.text, "told to be broken"));
    ck_assert_ptr_null(strstr(process.text, "tiny stopped"));
}
END_TEST

/* A metrics port in use is said, and what was built before is taken down. */
START_TEST(start__metrics_port_taken__refused)
{
    char word[64];

    snprintf(word, sizeof word, "--metrics_listen=127.0.0.1:%d", port);
    begin(&process, "tiny", word, NULL, NULL);
    ck_assert_int_eq(WEXITSTATUS(process_wait(&process, DEADLINE_MS)), 1);
    ck_assert_ptr_nonnull(strstr(process.text, "metrics_listen: cannot listen"));
    ck_assert_ptr_nonnull(strstr(process.text, "tiny stopped"));
}
END_TEST

/* Development mode is loud. */
START_TEST(insecure_dev__internal_on_tcp__warned)
{
    char address[32];
    struct berth_channel *tcp = NULL;

    begin(&process, "internal", "--insecure-dev", NULL, NULL);
    ck_assert(process_expect(&process, "\"msg\":\"ready\"", DEADLINE_MS));
    ck_assert_ptr_nonnull(strstr(process.text, "\"level\":\"warn\""));
    ck_assert_ptr_nonnull(strstr(process.text, "insecure_dev is on"));
    snprintf(address, sizeof address, "127.0.0.1:%d", port);
    ck_assert_int_eq(berth_channel_new(address, NULL, &tcp, NULL), BERTH_OK);
    ck_assert_int_eq(ask_health(tcp, ""), SERVING);
    berth_channel_free(tcp);
}
END_TEST

/* ----------------------------------------------------------------------------- signals */

struct sweep {
    int64_t timeout_ms; /* 0: DEADLINE_MS */
    enum berth_code code;
    struct berth_error err;
    atomic_bool done;
};

static void *call_sweep(void *arg)
{
    Berth__Reaper__V1__GetSweepRequest req = BERTH__REAPER__V1__GET_SWEEP_REQUEST__INIT;
    struct sweep *sweep = arg;
    const struct berth_call_options options = {
        .timeout_ms = sweep->timeout_ms ? sweep->timeout_ms : DEADLINE_MS};
    ProtobufCMessage *resp = NULL;

    sweep->code = berth_channel_call(channel, "/" SERVICE "/GetSweep", &req.base,
                                     &berth__reaper__v1__get_sweep_response__descriptor,
                                     &options, &resp, &sweep->err);
    if (resp)
        protobuf_c_message_free_unpacked(resp, NULL);
    sweep->done = true;
    return NULL;
}

/* Waits until one call is being served: the metrics count it. */
static void await_in_progress(void)
{
    int64_t until_tick = berth_tick_ms() + DEADLINE_MS;
    static char answer[64 << 10];

    do {
        ck_assert_int_lt(berth_tick_ms(), until_tick);
        poll(NULL, 0, 20);
        http("GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", answer,
             sizeof answer);
    } while (!strstr(answer, "in_flight{method=\"/" SERVICE "/GetSweep\"} 1"));
}

/* SIGTERM: the call in progress ends well, new ones are refused, the exit status is 0. */
START_TEST(sigterm__call_in_progress__drained)
{
    struct sweep sweep = {0}, late = {.timeout_ms = 200};
    int64_t until_tick;
    pthread_t thread;

    touch(hold_file);
    start_tiny(NULL, NULL, NULL);
    ck_assert_int_eq(pthread_create(&thread, NULL, call_sweep, &sweep), 0);
    await_in_progress();
    kill(process.pid, SIGTERM);
    ck_assert(process_expect(&process, "draining", DEADLINE_MS));
    until_tick = berth_tick_ms() + DEADLINE_MS;
    do { /* the word comes a moment before the deed: a call in between is held like the first */
        ck_assert_int_lt(berth_tick_ms(), until_tick);
        call_sweep(&late);
    } while (late.code == BERTH_DEADLINE_EXCEEDED);
    ck_assert_msg(late.code == BERTH_UNAVAILABLE, "%d %s", late.code, late.err.text);
    ck_assert(!sweep.done);
    unlink(hold_file);
    ck_assert_int_eq(WEXITSTATUS(process_wait(&process, DEADLINE_MS)), 0);
    pthread_join(thread, NULL);
    ck_assert_msg(sweep.code == BERTH_OK, "%s", sweep.err.text);
    ck_assert_ptr_nonnull(strstr(process.text, "tiny stopped"));
    ck_assert_ptr_nonnull(strstr(process.text, "\"msg\":\"stopped\""));
}
END_TEST

/* A call longer than the drain is cancelled: the process does not wait for ever. */
START_TEST(sigterm__call_longer_than_drain__cancelled)
{
    struct sweep sweep = {0};
    pthread_t thread;
    int64_t begin_tick;

    touch(hold_file);
    start_tiny("--drain=300ms", NULL, NULL);
    ck_assert_int_eq(pthread_create(&thread, NULL, call_sweep, &sweep), 0);
    await_in_progress();
    begin_tick = berth_tick_ms();
    ck_assert_int_eq(WEXITSTATUS(end_tiny(SIGTERM)), 0);
    ck_assert_int_ge(berth_tick_ms() - begin_tick, 300);
    ck_assert_int_lt(berth_tick_ms() - begin_tick, 10000);
    pthread_join(thread, NULL);
    ck_assert_int_ne(sweep.code, BERTH_OK);
}
END_TEST

/* Who cannot wait for the drain signals again. */
START_TEST(sigterm__twice__ends_at_once)
{
    struct sweep sweep = {0};
    pthread_t thread;
    int status;

    touch(hold_file);
    start_tiny("--drain=1h", NULL, NULL);
    ck_assert_int_eq(pthread_create(&thread, NULL, call_sweep, &sweep), 0);
    await_in_progress();
    kill(process.pid, SIGTERM);
    ck_assert(process_expect(&process, "draining", DEADLINE_MS));
    status = end_tiny(SIGTERM);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    pthread_join(thread, NULL);
}
END_TEST

/* Nothing to do: the end is at once, although the drain would allow more. */
START_TEST(sigterm__idle__ends_at_once)
{
    int64_t begin_tick;

    start_tiny("--drain=1h", NULL, NULL);
    ck_assert_int_eq(ask_health(channel, ""), SERVING);
    begin_tick = berth_tick_ms();
    ck_assert_int_eq(WEXITSTATUS(end_tiny(SIGTERM)), 0);
    ck_assert_int_lt(berth_tick_ms() - begin_tick, 5000);
}
END_TEST

int main(int argc, char **argv)
{
    Suite *suite = suite_create("svc/life");
    TCase *tcase = tcase_create("life");
    SRunner *runner = srunner_create(suite);
    int failed;

    if (argc < 2)
        return EXIT_FAILURE;
    tiny = argv[1];
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, health__ready_file_comes_and_goes__followed);
    tcase_add_test(tcase, listen__public_service__unix_and_tcp);
    tcase_add_test(tcase, reflection__list_services__all_there);
    tcase_add_test(tcase, metrics__scraped__process_methods_and_own);
    tcase_add_test(tcase, metrics__other_requests__refused);
    tcase_add_test(tcase, run_dir__absent_or_stale_socket__made_anew);
    tcase_add_test(tcase, run_dir__writable_by_others__refused);
    tcase_add_test(tcase, run_dir__socket_in_use__second_refuses);
    tcase_add_test(tcase, start__fails__exit_status_and_log);
    tcase_add_test(tcase, start__metrics_port_taken__refused);
    tcase_add_test(tcase, insecure_dev__internal_on_tcp__warned);
    tcase_add_test(tcase, sigterm__call_in_progress__drained);
    tcase_add_test(tcase, sigterm__call_longer_than_drain__cancelled);
    tcase_add_test(tcase, sigterm__twice__ends_at_once);
    tcase_add_test(tcase, sigterm__idle__ends_at_once);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
