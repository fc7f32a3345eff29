/* ProcessService of the local backend over real gRPC, against a supervisor in a fake box. */
#include <check.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>

#include "common/time/time.h"
#include "tests/component/supervisor/data_rig.h"

#define PROCESS(name) "/berth.data.v1.ProcessService/" name

typedef Berth__Data__V1__RunRequest RunRequest;
typedef Berth__Data__V1__RunResponse RunResponse;
typedef Berth__Data__V1__ExecRequest ExecRequest;
typedef Berth__Data__V1__ExecResponse ExecResponse;

static void open_rig(void)
{
    rig_open(true);
}

/* A request and the command in it. */
struct run_request {
    RunRequest req;
    Berth__Data__V1__Command command;
    Google__Protobuf__Duration timeout;
};

static void init_command(Berth__Data__V1__Command *command, const char *exec_id,
                         const char *shell)
{
    berth__data__v1__command__init(command);
    command->run_case = BERTH__DATA__V1__COMMAND__RUN_SHELL;
    command->shell = (char *)shell;
    command->exec_id = (char *)exec_id;
    command->cwd = (char *)"/tmp";
}

static void init_run(struct run_request *run, const char *exec_id, const char *shell)
{
    berth__data__v1__run_request__init(&run->req);
    init_command(&run->command, exec_id, shell);
    google__protobuf__duration__init(&run->timeout);
    run->req.session = &rig_session;
    run->req.command = &run->command;
}

static RunResponse *run_it(struct run_request *run, struct berth_error *err)
{
    return (RunResponse *)rig_call(PROCESS("Run"), &run->req.base,
                                   &berth__data__v1__run_response__descriptor, err);
}

static void free_run(RunResponse *resp)
{
    protobuf_c_message_free_unpacked(&resp->base, NULL);
}

/* Run gives exit, output and, when asked, text. */
START_TEST(run__command__exit_output_text)
{
    struct run_request run;
    struct berth_error err;
    RunResponse *resp;

    init_run(&run, "", "printf 'a\\xffb'; printf '\\xe2\\x89' >&2; exit 9");
    run.req.text = true;
    resp = run_it(&run, &err);
    ck_assert_msg(resp != NULL, "%s", err.text);
    ck_assert_int_eq(resp->exited->reason, BERTH__DATA__V1__EXIT_REASON__EXIT_REASON_EXITED);
    ck_assert_int_eq(resp->exited->exit_code, 9);
    ck_assert_uint_eq(resp->stdout.len, 3);
    ck_assert_mem_eq(resp->stdout.data,
                     "a\xff"
                     "b",
                     3);
    ck_assert_str_eq(resp->stdout_text, "a\xef\xbf\xbd"
                                        "b");
    ck_assert_uint_eq(resp->stderr.len, 2);
    ck_assert_uint_gt(strlen(resp->exec_id), 10);
    ck_assert(!resp->stdout_truncated && !resp->stderr_truncated);
    ck_assert(resp->exited->wall_time && resp->exited->cpu_time);
    free_run(resp);
}
END_TEST

/* yes under a timeout: head and tail within the limit, cut said, killed is a result. */
START_TEST(run__yes__bounded_and_said)
{
    struct run_request run;
    struct berth_error err;
    RunResponse *resp;

    init_run(&run, "y1", "echo first; yes \xe2\x89\xa4");
    run.command.timeout = &run.timeout;
    run.timeout.nanos = 700000000;
    run.req.max_output_bytes = 10000;
    run.req.text = true;
    resp = run_it(&run, &err);
    ck_assert_msg(resp != NULL, "%s", err.text);
    ck_assert_int_eq(resp->exited->reason, BERTH__DATA__V1__EXIT_REASON__EXIT_REASON_TIMED_OUT);
    ck_assert(resp->stdout_truncated && !resp->stderr_truncated);
    ck_assert_uint_le(resp->stdout.len, 10000);
    ck_assert_uint_ge(resp->stdout.len, 9990);
    ck_assert_uint_gt(resp->exited->stdout_bytes, 1000000);
    ck_assert_mem_eq(resp->stdout.data, "first\n\xe2\x89\xa4", 9);
    ck_assert_ptr_nonnull(strstr(resp->stdout_text, "bytes left out ...]\n"));
    ck_assert_ptr_null(strstr(resp->stdout_text, "\xef\xbf\xbd"));
    free_run(resp);
    /* A repeat is the same command: the same result, and it does not run again. */
    resp = run_it(&run, &err);
    ck_assert_int_eq(resp->exited->reason, BERTH__DATA__V1__EXIT_REASON__EXIT_REASON_TIMED_OUT);
    ck_assert_uint_ge(resp->stdout.len, 9990);
    free_run(resp);
    run.command.shell = (char *)"true";
    ck_assert_ptr_null(run_it(&run, &err));
    ck_assert_int_eq(err.reason, BERTH_REASON_EXEC_ID_REUSED);
}
END_TEST

/* The largest response there may be fits into a message, with and without text. */
START_TEST(run__much_output__fits_into_a_message)
{
    struct run_request run;
    struct berth_error err;

    for (int text = 0; text <= 1; text++) {
        RunResponse *resp;

        init_run(&run, "",
                 "head -c 4000000 /dev/zero | tr '\\0' '\\377'; "
                 "head -c 4000000 /dev/zero | tr '\\0' '\\377' >&2");
        run.req.max_output_bytes = 3 << 20;
        run.req.text = text;
        resp = run_it(&run, &err);
        ck_assert_msg(resp != NULL, "%s", err.text);
        ck_assert(resp->stdout_truncated && resp->stderr_truncated);
        ck_assert_uint_ge(resp->stdout.len, text ? 700 << 10 : 1700 << 10);
        ck_assert_uint_eq(resp->stdout.len, resp->stderr.len);
        if (text)
            ck_assert_uint_gt(strlen(resp->stderr_text), 900 << 10);
        free_run(resp);
    }
}
END_TEST

/* stdin, environment, account and what cannot be started. */
START_TEST(run__stdin_env_root_and_failure__as_asked)
{
    struct run_request run;
    struct berth_error err;
    RunResponse *resp;
    Berth__Data__V1__Command__EnvEntry entry = BERTH__DATA__V1__COMMAND__ENV_ENTRY__INIT,
                                       *entries[] = {&entry};

    init_run(&run, "", "cat; echo $X; id -u");
    entry.key = (char *)"X";
    entry.value = (char *)"\xc3\xa4 $Y";
    run.command.n_env = 1;
    run.command.env = entries;
    run.command.account = BERTH__DATA__V1__ACCOUNT__ACCOUNT_ROOT;
    run.req.stdin = (ProtobufCBinaryData){3, (uint8_t *)"in\n"};
    resp = run_it(&run, &err);
    ck_assert_msg(resp != NULL, "%s", err.text);
    ck_assert_uint_eq(resp->stdout.len, 11);
    ck_assert_mem_eq(resp->stdout.data, "in\n\xc3\xa4 $Y\n0\n", 11);
    free_run(resp);

    init_run(&run, "", "true");
    run.command.cwd = (char *)"/nowhere";
    resp = run_it(&run, &err);
    ck_assert_int_eq(resp->exited->reason,
                     BERTH__DATA__V1__EXIT_REASON__EXIT_REASON_SPAWN_FAILED);
    ck_assert_ptr_nonnull(strstr(resp->exited->message, "/nowhere"));
    free_run(resp);
}
END_TEST

/* Each row: what is wrong with a request. */
static void no_session(RunRequest *r)
{
    r->session = NULL;
}
static void no_command(RunRequest *r)
{
    r->command = NULL;
}
static void empty_shell(RunRequest *r)
{
    r->command->shell = (char *)"";
}
static void neither(RunRequest *r)
{
    r->command->run_case = BERTH__DATA__V1__COMMAND__RUN__NOT_SET;
}
static void relative_cwd(RunRequest *r)
{
    r->command->cwd = (char *)"tmp";
}
static void bad_account(RunRequest *r)
{
    r->command->account = (Berth__Data__V1__Account)7;
}
static void negative_timeout(RunRequest *r)
{
    static Google__Protobuf__Duration d = GOOGLE__PROTOBUF__DURATION__INIT;

    d.seconds = -1;
    r->command->timeout = &d;
}
static void no_timeout(RunRequest *r)
{
    static Google__Protobuf__Duration d = GOOGLE__PROTOBUF__DURATION__INIT;

    r->command->timeout = &d; /* 0 = none, and Run is not detached */
}
static void long_timeout(RunRequest *r)
{
    static Google__Protobuf__Duration d = GOOGLE__PROTOBUF__DURATION__INIT;

    d.seconds = 24 * 3600;
    d.nanos = 1;
    r->command->timeout = &d;
}
static void huge_timeout(RunRequest *r)
{
    static Google__Protobuf__Duration d = GOOGLE__PROTOBUF__DURATION__INIT;

    d.seconds = INT64_MAX;
    r->command->timeout = &d;
}
static void bad_exec_id(RunRequest *r)
{
    r->command->exec_id = (char *)"a/b";
}
static void much_output(RunRequest *r)
{
    r->max_output_bytes = (3 << 20) + 1;
}

static const struct {
    void (*spoil)(RunRequest *req);
    const char *field;
} bad_rows[] = {{no_session, "session"},
                {no_command, "command"},
                {empty_shell, "command.shell"},
                {neither, "command.run"},
                {relative_cwd, "command.cwd"},
                {bad_account, "command.account"},
                {negative_timeout, "command.timeout"},
                {no_timeout, "command.timeout"},
                {long_timeout, "command.timeout"},
                {huge_timeout, "command.timeout"},
                {bad_exec_id, "command.exec_id"},
                {much_output, "max_output_bytes"}};

START_TEST(run__bad_field__refused_by_name)
{
    for (size_t i = 0; i < BERTH_COUNT(bad_rows); i++) {
        struct run_request run;
        struct berth_error err;

        init_run(&run, "", "true");
        bad_rows[i].spoil(&run.req);
        ck_assert_ptr_null(run_it(&run, &err));
        ck_assert_int_eq(err.reason, BERTH_REASON_FIELD_INVALID);
        ck_assert_str_eq(err.field, bad_rows[i].field);
    }
}
END_TEST

/* 200 times at once cat without stdin: end-of-file at once. */
static void *cat_many(void *arg)
{
    (void)arg;
    for (int i = 0; i < 25; i++) {
        struct run_request run;
        struct berth_error err;
        RunResponse *resp;

        init_run(&run, "", "cat");
        resp = run_it(&run, &err);
        ck_assert_msg(resp != NULL, "%s", err.text);
        ck_assert_int_eq(resp->exited->exit_code, 0);
        ck_assert_uint_eq(resp->stdout.len, 0);
        free_run(resp);
    }
    return NULL;
}

START_TEST(run__cat_in_parallel__never_hangs)
{
    pthread_t threads[20];

    for (size_t i = 0; i < BERTH_COUNT(threads); i++)
        pthread_create(&threads[i], NULL, cat_many, NULL);
    for (size_t i = 0; i < BERTH_COUNT(threads); i++)
        pthread_join(threads[i], NULL);
}
END_TEST

/* ------------------------------------------------------------------------ Exec */

static struct rig_stream *exec_open(const char *exec_id, const char *shell, bool detach,
                                    bool keep_stdin_open)
{
    struct rig_stream *stream = rig_stream_open(PROCESS("Exec"));
    ExecRequest req = BERTH__DATA__V1__EXEC_REQUEST__INIT;
    Google__Protobuf__Duration timeout = GOOGLE__PROTOBUF__DURATION__INIT;
    Berth__Data__V1__Command command;

    init_command(&command, exec_id, shell);
    req.session = &rig_session;
    req.command = &command;
    command.timeout = &timeout;
    timeout.seconds = 600;
    req.detach = detach;
    req.keep_stdin_open = keep_stdin_open;
    rig_stream_send(stream, &req.base);
    rig_stream_half_close(stream);
    return stream;
}

static ExecResponse *next_event(struct rig_stream *stream)
{
    return (ExecResponse *)rig_stream_next(stream, &berth__data__v1__exec_response__descriptor);
}

static void expect_started(struct rig_stream *stream, bool attached)
{
    ExecResponse *resp = next_event(stream);

    ck_assert_ptr_nonnull(resp);
    ck_assert_int_eq(resp->event->event_case, BERTH__DATA__V1__PROCESS_EVENT__EVENT_STARTED);
    ck_assert(!!resp->event->started->attached == attached);
    ck_assert_uint_gt(resp->event->started->pid, 0);
    ck_assert_uint_eq(resp->event->seq, 1);
    protobuf_c_message_free_unpacked(&resp->base, NULL);
}

/* Sizes until the end; *ret_code is the exit code. */
static void drain(struct rig_stream *stream, size_t ret_size[2], int *ret_code)
{
    ExecResponse *resp;

    ret_size[0] = ret_size[1] = 0;
    *ret_code = -1;
    while ((resp = next_event(stream))) {
        switch (resp->event->event_case) {
        case BERTH__DATA__V1__PROCESS_EVENT__EVENT_STDOUT:
            ret_size[0] += resp->event->stdout.len;
            break;
        case BERTH__DATA__V1__PROCESS_EVENT__EVENT_STDERR:
            ret_size[1] += resp->event->stderr.len;
            break;
        case BERTH__DATA__V1__PROCESS_EVENT__EVENT_EXITED:
            *ret_code = resp->event->exited->exit_code;
            break;
        default:
            break;
        }
        protobuf_c_message_free_unpacked(&resp->base, NULL);
    }
}

/* 1 GB through gRPC: exact, memory flat. */
START_TEST(exec__one_gb__exact_and_flat)
{
    struct rig_stream *stream = exec_open("g1", "head -c 1000000000 /dev/zero", false, false);
    struct rusage before, after;
    int64_t began = berth_tick_ms();
    size_t size[2];
    int code;

    getrusage(RUSAGE_SELF, &before);
    expect_started(stream, false);
    drain(stream, size, &code);
    ck_assert_int_eq(code, 0);
    ck_assert_uint_eq(size[0], 1000000000);
    ck_assert_int_eq(rig_stream_end(stream, NULL), BERTH_OK);
    getrusage(RUSAGE_SELF, &after);
    printf("1 GB by Exec: %lld ms, grew by %ld KiB\n", (long long)(berth_tick_ms() - began),
           after.ru_maxrss - before.ru_maxrss);
    ck_assert_int_le(MEMORY_COUNTS * (after.ru_maxrss - before.ru_maxrss), 32 << 10);
}
END_TEST

/* A detached command survives its caller; Attach gets the rest. */
START_TEST(exec__detached__attach_gets_it)
{
    struct rig_stream *stream =
        exec_open("d1", "for i in 1 2 3 4 5; do echo $i; sleep 0.1; done; exit 4", true, false);
    Berth__Data__V1__AttachRequest req = BERTH__DATA__V1__ATTACH_REQUEST__INIT;
    Berth__Data__V1__ProcessRef ref = BERTH__DATA__V1__PROCESS_REF__INIT;
    struct berth_error err;
    size_t size[2];
    int code;

    expect_started(stream, false);
    rig_stream_cancel(stream);
    ck_assert_int_eq(rig_stream_end(stream, &err), BERTH_CANCELLED);
    req.session = &rig_session;
    req.process = &ref;
    ref.key_case = BERTH__DATA__V1__PROCESS_REF__KEY_EXEC_ID;
    ref.exec_id = (char *)"d1";
    stream = rig_stream_open(PROCESS("Attach"));
    rig_stream_send(stream, &req.base);
    expect_started(stream, true);
    drain(stream, size, &code);
    ck_assert_int_eq(code, 4);
    ck_assert_uint_eq(size[0], 10);
    ck_assert_int_eq(rig_stream_end(stream, NULL), BERTH_OK);
    ref.exec_id = (char *)"d2";
    stream = rig_stream_open(PROCESS("Attach"));
    rig_stream_send(stream, &req.base);
    ck_assert_int_eq(rig_stream_end(stream, &err), BERTH_NOT_FOUND);
    ck_assert_int_eq(err.reason, BERTH_REASON_PROCESS_NOT_FOUND);
}
END_TEST

static int64_t feed(const char *exec_id, uint64_t offset, const char *text, bool end,
                    struct berth_error *err)
{
    Berth__Data__V1__SendInputRequest req = BERTH__DATA__V1__SEND_INPUT_REQUEST__INIT;
    Berth__Data__V1__ProcessRef ref = BERTH__DATA__V1__PROCESS_REF__INIT;
    Berth__Data__V1__SendInputResponse *resp;
    int64_t next;

    ref.key_case = BERTH__DATA__V1__PROCESS_REF__KEY_EXEC_ID;
    ref.exec_id = (char *)exec_id;
    req.session = &rig_session;
    req.process = &ref;
    req.offset = offset;
    req.end_of_file = end;
    req.data = (ProtobufCBinaryData){strlen(text), (uint8_t *)text};
    resp = (Berth__Data__V1__SendInputResponse *)rig_call(
        PROCESS("SendInput"), &req.base, &berth__data__v1__send_input_response__descriptor,
        err);
    if (!resp)
        return -1;
    next = (int64_t)resp->next_offset;
    protobuf_c_message_free_unpacked(&resp->base, NULL);
    return next;
}

/* SendInput feeds once, Signal says whether there was anybody, ListProcesses shows both. */
START_TEST(input_signal_list__running_command__work)
{
    struct rig_stream *stream = exec_open("i1", "cat; echo end", false, true);
    Berth__Data__V1__SignalRequest kill = BERTH__DATA__V1__SIGNAL_REQUEST__INIT;
    Berth__Data__V1__SignalResponse *killed;
    Berth__Data__V1__ListProcessesRequest list = BERTH__DATA__V1__LIST_PROCESSES_REQUEST__INIT;
    Berth__Data__V1__ListProcessesResponse *listed;
    Berth__Data__V1__ProcessRef ref = BERTH__DATA__V1__PROCESS_REF__INIT;
    struct berth_error err;
    size_t size[2];
    int code;

    expect_started(stream, false);
    ck_assert_int_eq(feed("i1", 0, "abc", false, &err), 3);
    ck_assert_int_eq(feed("i1", 0, "abc", false, &err), 3);
    ck_assert_int_eq(feed("i1", 7, "x", false, &err), -1);
    ck_assert_int_eq(err.reason, BERTH_REASON_FIELD_INVALID);
    ck_assert_str_eq(err.field, "offset");
    list.session = &rig_session;
    listed = (Berth__Data__V1__ListProcessesResponse *)rig_call(
        PROCESS("ListProcesses"), &list.base,
        &berth__data__v1__list_processes_response__descriptor, &err);
    ck_assert_ptr_nonnull(listed);
    ck_assert_uint_eq(listed->n_processes, 1);
    ck_assert_str_eq(listed->processes[0]->exec_id, "i1");
    ck_assert_str_eq(listed->processes[0]->command->shell, "cat; echo end");
    ck_assert_ptr_null(listed->processes[0]->exited);
    protobuf_c_message_free_unpacked(&listed->base, NULL);
    ck_assert_int_eq(feed("i1", 3, "d", true, &err), 4);
    drain(stream, size, &code);
    ck_assert_uint_eq(size[0], 8);
    ck_assert_int_eq(code, 0);
    ck_assert_int_eq(rig_stream_end(stream, NULL), BERTH_OK);

    kill.session = &rig_session;
    kill.process = &ref;
    ref.key_case = BERTH__DATA__V1__PROCESS_REF__KEY_EXEC_ID;
    ref.exec_id = (char *)"i1";
    kill.signal = SIGTERM;
    killed = (Berth__Data__V1__SignalResponse *)rig_call(
        PROCESS("Signal"), &kill.base, &berth__data__v1__signal_response__descriptor, &err);
    ck_assert(!killed->existed);
    protobuf_c_message_free_unpacked(&killed->base, NULL);
    kill.signal = 65;
    ck_assert_ptr_null(rig_call(PROCESS("Signal"), &kill.base,
                                &berth__data__v1__signal_response__descriptor, &err));
    ck_assert_str_eq(err.field, "signal");
}
END_TEST

/* A paused sandbox answers at once; one that is gone, and a supervisor that dies meanwhile,
 * too: an exit code is never made up. */
START_TEST(exec__sandbox_away__said_at_once)
{
    struct run_request run;
    struct berth_error err;
    struct rig_stream *stream;
    int64_t began = berth_tick_ms();

    init_run(&run, "", "true");
    fake_box_freeze(&rig.box, true);
    ck_assert_ptr_null(run_it(&run, &err));
    ck_assert_int_eq(err.reason, BERTH_REASON_SANDBOX_PAUSED);
    fake_box_freeze(&rig.box, false);
    ck_assert_int_lt(berth_tick_ms() - began, 1000);
    rig.silent = true;
    ck_assert_ptr_null(run_it(&run, &err));
    ck_assert_int_eq(err.reason, BERTH_REASON_SANDBOX_TERMINAL);
    rig.silent = false;

    stream = exec_open("k1", "echo up; sleep 300", false, false);
    expect_started(stream, false);
    kill(rig.box.supervisor, SIGSTOP); /* so that it cannot say good-bye */
    kill(rig.box.supervisor, SIGKILL);
    ck_assert_int_eq(rig_stream_end(stream, &err), BERTH_UNKNOWN);
    ck_assert_int_eq(err.reason, BERTH_REASON_OUTCOME_UNKNOWN);
}
END_TEST

static void close_rig(void)
{
    rig_close();
}

/* A killed supervisor is not waited for as a good one. */
static void close_broken_rig(void)
{
    struct fake_box box = rig.box;

    kill(box.init, SIGKILL);
    rig.box.supervisor = 0;
    rig_close();
    fake_box_bury(&box);
}

/* Without a route, or with a wrong one, nothing is done. */
START_TEST(route__missing__refused)
{
    struct berth_channel *channel = NULL;
    struct berth_metadata route = {"berth-route-bin", "\xff\xff", 2};
    struct berth_call_options options = {.metadata = &route, .n_metadata = 0};
    struct run_request run;
    struct berth_error err = {0};
    ProtobufCMessage *resp;

    ck_assert(!berth_channel_new(rig.address, NULL, &channel, &err));
    init_run(&run, "", "true");
    for (int i = 0; i < 3; i++) {
        if (i == 2)
            route = rig_route("other");
        ck_assert_int_ne(berth_channel_call(channel, PROCESS("Run"), &run.req.base,
                                            &berth__data__v1__run_response__descriptor,
                                            &options, &resp, &err),
                         BERTH_OK);
        ck_assert_int_eq(err.reason,
                         i < 2 ? BERTH_REASON_FIELD_INVALID : BERTH_REASON_SANDBOX_NOT_FOUND);
        options.n_metadata = 1;
    }
    berth_channel_free(channel);
}
END_TEST

/* `true` by Run, one after another. */
START_TEST(run__true__quick)
{
    enum { N = 300 };
    int64_t best = INT64_MAX, sum = 0;

    for (int i = 0; i < N; i++) {
        struct run_request run;
        struct berth_error err;
        RunResponse *resp;
        int64_t began = berth_tick_ns(), took;
        Berth__Data__V1__Argv argv = BERTH__DATA__V1__ARGV__INIT;
        char *args[] = {(char *)"true"};

        init_run(&run, "", "");
        argv.n_args = 1;
        argv.args = args;
        run.command.run_case = BERTH__DATA__V1__COMMAND__RUN_ARGV;
        run.command.argv = &argv;
        resp = run_it(&run, &err);
        took = (berth_tick_ns() - began) / 1000;
        ck_assert_ptr_nonnull(resp);
        free_run(resp);
        best = took < best ? took : best;
        sum += took;
    }
    printf("true by Run: mean %lld us, best %lld us\n", (long long)sum / N, (long long)best);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("adapter/process");
    TCase *tcase = tcase_create("process"), *broken = tcase_create("broken");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, open_rig, close_rig);
    tcase_add_test(tcase, run__command__exit_output_text);
    tcase_add_test(tcase, run__yes__bounded_and_said);
    tcase_add_test(tcase, run__much_output__fits_into_a_message);
    tcase_add_test(tcase, run__stdin_env_root_and_failure__as_asked);
    tcase_add_test(tcase, run__bad_field__refused_by_name);
    tcase_add_test(tcase, run__cat_in_parallel__never_hangs);
    tcase_add_test(tcase, exec__one_gb__exact_and_flat);
    tcase_add_test(tcase, exec__detached__attach_gets_it);
    tcase_add_test(tcase, input_signal_list__running_command__work);
    tcase_add_test(tcase, route__missing__refused);
    tcase_add_test(tcase, run__true__quick);
    suite_add_tcase(suite, tcase);
    tcase_set_timeout(broken, 120);
    tcase_add_checked_fixture(broken, open_rig, close_broken_rig);
    tcase_add_test(broken, exec__sandbox_away__said_at_once);
    suite_add_tcase(suite, broken);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
