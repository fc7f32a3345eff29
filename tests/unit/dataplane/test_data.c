#include <check.h>
#include <stdio.h>

#include "common/data/data.h"

/* Every row takes a valid request, spoils (or stretches to its limit) one field, and says which
 * field must be named; NULL: still valid. */

static char big[2 << 20]; /* 'x', cut to the length wanted by a NUL */
static uint8_t bytes[(3 << 20) + 1];
static Berth__Common__V1__SessionRef session;
static Berth__Data__V1__Argv argv;
static Berth__Data__V1__Command command;
static Berth__Data__V1__ProcessRef process;
static Google__Protobuf__Duration timeout;
static Berth__Common__V1__PageRequest page;
static char *args[BERTH_DATA_ARGS_MAX + 1];
static Berth__Data__V1__Command__EnvEntry env_entries[BERTH_DATA_ENV_MAX + 1];
static Berth__Data__V1__Command__EnvEntry *env[BERTH_DATA_ENV_MAX + 1];
static char env_names[BERTH_DATA_ENV_MAX + 1][8];

static char *xs(size_t n)
{
    memset(big, 'x', sizeof big - 1);
    big[n] = 0;
    return big;
}

static void setup(void)
{
    berth__common__v1__session_ref__init(&session);
    session.tenant_id = (char *)"default";
    session.session_id = (char *)"s-1";
    berth__data__v1__argv__init(&argv);
    args[0] = (char *)"/bin/true";
    argv.args = args;
    argv.n_args = 1;
    berth__data__v1__command__init(&command);
    command.run_case = BERTH__DATA__V1__COMMAND__RUN_ARGV;
    command.argv = &argv;
    berth__data__v1__process_ref__init(&process);
    process.key_case = BERTH__DATA__V1__PROCESS_REF__KEY_EXEC_ID;
    process.exec_id = (char *)"e-1";
    google__protobuf__duration__init(&timeout);
    timeout.seconds = 5;
    berth__common__v1__page_request__init(&page);
    for (size_t i = 0; i < BERTH_COUNT(env); i++) {
        berth__data__v1__command__env_entry__init(&env_entries[i]);
        snprintf(env_names[i], sizeof env_names[i], "V%zu", i);
        env_entries[i].key = env_names[i];
        env_entries[i].value = (char *)"";
        env[i] = &env_entries[i];
    }
    command.env = env;
}

/* ---------------------------------------------------------- parts of requests */

static void shell(char *text)
{
    command.run_case = BERTH__DATA__V1__COMMAND__RUN_SHELL;
    command.shell = text;
}

static void limits(int64_t seconds, int32_t nanos)
{
    timeout.seconds = seconds;
    timeout.nanos = nanos;
    command.timeout = &timeout;
}

static void fill_args(size_t n, char *value)
{
    for (size_t i = 0; i < n; i++)
        args[i] = value;
    argv.n_args = n;
}

static void fill_env(size_t n, char *value)
{
    for (size_t i = 0; i < n; i++)
        env_entries[i].value = value;
    command.n_env = n;
}

/* SPOIL(name, statements): a change to the shared parts. */
#define SPOIL(name, ...)                                                                       \
    static void name(void)                                                                     \
    {                                                                                          \
        __VA_ARGS__;                                                                           \
    }
SPOIL(nothing, (void)0)
SPOIL(tenant_empty, session.tenant_id = (char *)"")
SPOIL(tenant_charset, session.tenant_id = (char *)"a b")
SPOIL(tenant_utf8, session.tenant_id = (char *)"\xc3\xa4")
SPOIL(tenant_dots, session.tenant_id = (char *)"..")
SPOIL(tenant_128, session.tenant_id = xs(128))
SPOIL(tenant_129, session.tenant_id = xs(129))
SPOIL(session_empty, session.session_id = (char *)"")
SPOIL(session_slash, session.session_id = (char *)"a/b")
SPOIL(session_129, session.session_id = xs(129))
SPOIL(run_unset, command.run_case = BERTH__DATA__V1__COMMAND__RUN__NOT_SET)
SPOIL(args_none, argv.n_args = 0)
SPOIL(args_first_empty, args[0] = (char *)"")
SPOIL(args_most, fill_args(BERTH_DATA_ARGS_MAX, (char *)"x"))
SPOIL(args_more, fill_args(BERTH_DATA_ARGS_MAX + 1, (char *)"x"))
SPOIL(arg_longest, args[0] = xs(BERTH_DATA_ARG_MAX))
SPOIL(arg_longer, args[0] = xs(BERTH_DATA_ARG_MAX + 1))
SPOIL(args_fill_all, fill_args(8, xs(BERTH_DATA_ARG_MAX)))
SPOIL(args_over_all, fill_args(9, xs(BERTH_DATA_ARG_MAX)))
SPOIL(shell_empty, shell((char *)""))
SPOIL(shell_lines, shell((char *)"a\nb\tc"))
SPOIL(shell_longest, shell(xs(BERTH_DATA_ARG_MAX)))
SPOIL(shell_longer, shell(xs(BERTH_DATA_ARG_MAX + 1)))
SPOIL(env_most, fill_env(BERTH_DATA_ENV_MAX, (char *)"x"))
SPOIL(env_more, fill_env(BERTH_DATA_ENV_MAX + 1, (char *)"x"))
SPOIL(env_name_empty, fill_env(1, (char *)"x"); env_entries[0].key = (char *)"")
SPOIL(env_name_digit, fill_env(1, (char *)"x"); env_entries[0].key = (char *)"1A")
SPOIL(env_name_equals, fill_env(1, (char *)"x"); env_entries[0].key = (char *)"A=B")
SPOIL(env_name_long, fill_env(1, (char *)"x"); env_entries[0].key = xs(129))
SPOIL(env_twice, fill_env(2, (char *)"x"); env_entries[1].key = env_entries[0].key)
SPOIL(env_value_longest, fill_env(1, xs(BERTH_DATA_ENV_VALUE_MAX)))
SPOIL(env_value_longer, fill_env(1, xs(BERTH_DATA_ENV_VALUE_MAX + 1)))
SPOIL(env_over_all, fill_env(9, xs(BERTH_DATA_ENV_VALUE_MAX)))
SPOIL(cwd_root, command.cwd = (char *)"/")
SPOIL(cwd_relative, command.cwd = (char *)"a")
SPOIL(cwd_dots, command.cwd = (char *)"/a/../b")
SPOIL(account_root, command.account = BERTH__DATA__V1__ACCOUNT__ACCOUNT_ROOT)
SPOIL(account_unknown, command.account = (Berth__Data__V1__Account)3)
SPOIL(account_negative, command.account = (Berth__Data__V1__Account)-1)
SPOIL(timeout_short, limits(0, 1))
SPOIL(timeout_zero, limits(0, 0))
SPOIL(timeout_negative, limits(-1, 0))
SPOIL(timeout_nanos_negative, limits(1, -1))
SPOIL(timeout_nanos_huge, limits(1, 1000000000))
SPOIL(timeout_longest, limits(366LL * 86400, 0))
SPOIL(timeout_longer, limits(366LL * 86400, 1))
SPOIL(timeout_huge, limits(INT64_MAX, 0))
SPOIL(exec_id_128, command.exec_id = xs(128))
SPOIL(exec_id_129, command.exec_id = xs(129))
SPOIL(exec_id_charset, command.exec_id = (char *)"a b")
SPOIL(process_unset, process.key_case = BERTH__DATA__V1__PROCESS_REF__KEY__NOT_SET)
SPOIL(process_empty, process.exec_id = (char *)"")
SPOIL(process_charset, process.exec_id = (char *)"a\n")
#define PID(value)                                                                             \
    process.key_case = BERTH__DATA__V1__PROCESS_REF__KEY_PID;                                  \
    process.pid = (value)
SPOIL(pid_zero, PID(0))
SPOIL(pid_one, PID(1))
SPOIL(pid_largest, PID(BERTH_DATA_PID_MAX))
SPOIL(pid_larger, PID(BERTH_DATA_PID_MAX + 1))
SPOIL(pid_huge, PID(UINT32_MAX))

static const struct {
    void (*spoil)(void);
    const char *field;
} command_rows[] = {
    {nothing, NULL},
    {tenant_empty, "session.tenant_id"},
    {tenant_charset, "session.tenant_id"},
    {tenant_utf8, "session.tenant_id"},
    {tenant_dots, "session.tenant_id"},
    {tenant_128, NULL},
    {tenant_129, "session.tenant_id"},
    {session_empty, "session.session_id"},
    {session_slash, "session.session_id"},
    {session_129, "session.session_id"},
    {run_unset, "command.run"},
    {args_none, "command.argv"},
    {args_first_empty, "command.argv"},
    {args_most, NULL},
    {args_more, "command.argv"},
    {arg_longest, NULL},
    {arg_longer, "command.argv"},
    {args_fill_all, NULL},
    {args_over_all, "command.argv"},
    {shell_empty, "command.shell"},
    {shell_lines, NULL},
    {shell_longest, NULL},
    {shell_longer, "command.shell"},
    {env_most, NULL},
    {env_more, "command.env"},
    {env_name_empty, "command.env"},
    {env_name_digit, "command.env"},
    {env_name_equals, "command.env"},
    {env_name_long, "command.env"},
    {env_twice, "command.env"},
    {env_value_longest, NULL},
    {env_value_longer, "command.env"},
    {env_over_all, "command.env"},
    {cwd_root, NULL},
    {cwd_relative, "command.cwd"},
    {cwd_dots, "command.cwd"},
    {account_root, NULL},
    {account_unknown, "command.account"},
    {account_negative, "command.account"},
    {timeout_short, NULL},
    {timeout_zero, "command.timeout"},
    {timeout_negative, "command.timeout"},
    {timeout_nanos_negative, "command.timeout"},
    {timeout_nanos_huge, "command.timeout"},
    {timeout_longest, NULL},
    {timeout_longer, "command.timeout"},
    {timeout_huge, "command.timeout"},
    {exec_id_128, NULL},
    {exec_id_129, "command.exec_id"},
    {exec_id_charset, "command.exec_id"},
};

static void expect(ProtobufCMessage *message, const char *field)
{
    struct berth_data_request request = {.turn_token = "untouched"};
    struct berth_error err = {0};
    enum berth_code code = berth_data_check(message, &request, &err);

    if (field) {
        ck_assert_int_eq(code, BERTH_INVALID_ARGUMENT);
        ck_assert_int_eq(err.reason, BERTH_REASON_FIELD_INVALID);
        ck_assert_str_eq(err.field, field);
        ck_assert_str_ne(err.rule, "");
        ck_assert_str_eq(request.turn_token, "untouched");
    } else {
        ck_assert_msg(code == BERTH_OK, "%s", err.text);
        ck_assert_str_eq(request.session->session_id, session.session_id);
    }
}

static void make_run(Berth__Data__V1__RunRequest *run)
{
    berth__data__v1__run_request__init(run);
    run->session = &session;
    run->command = &command;
}

static void make_exec(Berth__Data__V1__ExecRequest *exec)
{
    berth__data__v1__exec_request__init(exec);
    exec->session = &session;
    exec->command = &command;
}

/* Run and Exec hold a command to the same rules, each at its edges. */
START_TEST(berth_data_check__command_edges__field_named)
{
    Berth__Data__V1__RunRequest run;
    Berth__Data__V1__ExecRequest exec;

    command_rows[_i].spoil();
    make_run(&run);
    expect(&run.base, command_rows[_i].field);
    make_exec(&exec);
    expect(&exec.base, command_rows[_i].field);
}
END_TEST

/* What stands beside the command: missing messages, tokens, sizes. */
START_TEST(berth_data_check__run_and_exec_fields__field_named)
{
    Berth__Data__V1__RunRequest run;
    Berth__Data__V1__ExecRequest exec;

    make_run(&run);
    run.session = NULL;
    expect(&run.base, "session");
    make_run(&run);
    run.command = NULL;
    expect(&run.base, "command");
    make_run(&run);
    run.turn_token = (char *)"no token";
    expect(&run.base, "turn_token");
    make_run(&run);
    run.stdin = (ProtobufCBinaryData){3 << 20, bytes};
    run.max_output_bytes = 3 << 20;
    expect(&run.base, NULL);
    run.stdin.len++;
    expect(&run.base, "stdin");
    run.stdin.len--;
    run.max_output_bytes++;
    expect(&run.base, "max_output_bytes");

    make_exec(&exec);
    exec.session = NULL;
    expect(&exec.base, "session");
    make_exec(&exec);
    exec.command = NULL;
    expect(&exec.base, "command");
    make_exec(&exec);
    exec.turn_token = xs(129);
    expect(&exec.base, "turn_token");
    make_exec(&exec);
    exec.max_output_bytes = UINT64_MAX;
    exec.initial_stdin = (ProtobufCBinaryData){(3 << 20) + 1, bytes};
    expect(&exec.base, "initial_stdin");
}
END_TEST

/* No time limit is for detached commands only, and what was said is handed on. */
START_TEST(berth_data_check__exec_detached__request_filled)
{
    Berth__Data__V1__ExecRequest exec;
    struct berth_data_request request;

    limits(0, 0);
    make_exec(&exec);
    exec.detach = true;
    exec.turn_token = (char *)"t1";
    ck_assert_int_eq(berth_data_check(&exec.base, &request, NULL), BERTH_OK);
    ck_assert_ptr_eq(request.session, &session);
    ck_assert_ptr_eq(request.command, &command);
    ck_assert_str_eq(request.turn_token, "t1");
    ck_assert(request.detach);
    exec.detach = false;
    ck_assert_int_eq(berth_data_check(&exec.base, NULL, NULL), BERTH_INVALID_ARGUMENT);
}
END_TEST

static const struct {
    void (*spoil)(void);
    const char *field;
} process_rows[] = {
    {nothing, NULL},
    {session_empty, "session.session_id"},
    {process_unset, "process.key"},
    {process_empty, "process.exec_id"},
    {process_charset, "process.exec_id"},
    {pid_zero, "process.pid"},
    {pid_one, NULL},
    {pid_largest, NULL},
    {pid_larger, "process.pid"},
    {pid_huge, "process.pid"},
};

/* Attach, SendInput and Signal name their command by the same rules. */
START_TEST(berth_data_check__process_edges__field_named)
{
    Berth__Data__V1__AttachRequest attach = BERTH__DATA__V1__ATTACH_REQUEST__INIT;
    Berth__Data__V1__SendInputRequest input = BERTH__DATA__V1__SEND_INPUT_REQUEST__INIT;
    Berth__Data__V1__SignalRequest sig = BERTH__DATA__V1__SIGNAL_REQUEST__INIT;

    process_rows[_i].spoil();
    attach.session = input.session = sig.session = &session;
    attach.process = input.process = sig.process = &process;
    sig.signal = 9;
    expect(&attach.base, process_rows[_i].field);
    expect(&input.base, process_rows[_i].field);
    expect(&sig.base, process_rows[_i].field);
    attach.process = input.process = sig.process = NULL;
    if (process_rows[_i].spoil != session_empty) {
        expect(&attach.base, "process");
        expect(&input.base, "process");
        expect(&sig.base, "process");
    }
}
END_TEST

/* Signals are 1..64, input is bounded. */
START_TEST(berth_data_check__signal_and_input_edges__field_named)
{
    Berth__Data__V1__SendInputRequest input = BERTH__DATA__V1__SEND_INPUT_REQUEST__INIT;
    Berth__Data__V1__SignalRequest sig = BERTH__DATA__V1__SIGNAL_REQUEST__INIT;
    static const int32_t bad[] = {0, -1, 65, INT32_MAX, INT32_MIN};

    sig.session = input.session = &session;
    sig.process = input.process = &process;
    for (size_t i = 0; i < BERTH_COUNT(bad); i++) {
        sig.signal = bad[i];
        expect(&sig.base, "signal");
    }
    sig.signal = 1;
    expect(&sig.base, NULL);
    sig.signal = 64;
    expect(&sig.base, NULL);
    input.data = (ProtobufCBinaryData){3 << 20, bytes};
    input.offset = UINT64_MAX;
    expect(&input.base, NULL);
    input.data.len++;
    expect(&input.base, "data");
}
END_TEST

static char path_longest[4097], path_longer[4098], part_longest[257], part_longer[258];
static const struct {
    const char *path;
    bool valid;
} path_rows[] = {
    {"/", true},          {"/a", true},          {"/a/b.c", true},     {"/\xc3\xa4", true},
    {"/...", true},       {path_longest, false}, {part_longest, true}, {"", false},
    {"a", false},         {"/a/", false},        {"//a", false},       {"/a//b", false},
    {"/.", false},        {"/..", false},        {"/a/./b", false},    {"/a/../b", false},
    {path_longer, false}, {part_longer, false},
};

/* One rule for paths, in every call that takes one. */
START_TEST(berth_data_check__path_edges__field_named)
{
    Berth__Data__V1__StatRequest stat = BERTH__DATA__V1__STAT_REQUEST__INIT;
    Berth__Data__V1__ListDirRequest list = BERTH__DATA__V1__LIST_DIR_REQUEST__INIT;
    Berth__Data__V1__MakeDirRequest make = BERTH__DATA__V1__MAKE_DIR_REQUEST__INIT;
    Berth__Data__V1__MoveRequest move = BERTH__DATA__V1__MOVE_REQUEST__INIT;
    Berth__Data__V1__RemoveRequest gone = BERTH__DATA__V1__REMOVE_REQUEST__INIT;
    Berth__Data__V1__ReadFileRequest read = BERTH__DATA__V1__READ_FILE_REQUEST__INIT;
    Berth__Data__V1__WriteFileRequest write = BERTH__DATA__V1__WRITE_FILE_REQUEST__INIT;
    Berth__Data__V1__WriteFileOpen open = BERTH__DATA__V1__WRITE_FILE_OPEN__INIT;
    const char *field = path_rows[_i].valid ? NULL : "path";
    char *path = (char *)path_rows[_i].path;

    memset(path_longest, 'x', sizeof path_longest - 1);
    memset(path_longer, 'x', sizeof path_longer - 1);
    for (size_t i = 0; i < sizeof path_longer - 1; i += 200) {
        if (i < sizeof path_longest - 1)
            path_longest[i] = '/';
        path_longer[i] = '/';
    }
    memset(part_longest, 'x', 256);
    memset(part_longer, 'x', 257);
    part_longest[0] = part_longer[0] = '/';
    if (path == path_longest) /* 4096 bytes are allowed */
        field = NULL;

    stat.session = list.session = make.session = move.session = &session;
    gone.session = read.session = open.session = &session;
    stat.path = list.path = make.path = gone.path = read.path = open.path = path;
    expect(&stat.base, field);
    expect(&list.base, field);
    expect(&make.base, field);
    expect(&gone.base, field);
    expect(&read.base, field);
    move.source = path;
    move.target = (char *)"/ok";
    expect(&move.base, field ? "source" : NULL);
    move.source = (char *)"/ok";
    move.target = path;
    expect(&move.base, field ? "target" : NULL);
    write.message_case = BERTH__DATA__V1__WRITE_FILE_REQUEST__MESSAGE_OPEN;
    write.open = &open;
    expect(&write.base, field ? "open.path" : NULL);
}
END_TEST

/* The other fields of the file calls. */
START_TEST(berth_data_check__file_fields__field_named)
{
    Berth__Data__V1__ListDirRequest list = BERTH__DATA__V1__LIST_DIR_REQUEST__INIT;
    Berth__Data__V1__ReadFileRequest read = BERTH__DATA__V1__READ_FILE_REQUEST__INIT;
    Berth__Data__V1__WriteFileRequest write = BERTH__DATA__V1__WRITE_FILE_REQUEST__INIT;
    Berth__Data__V1__WriteFileOpen open = BERTH__DATA__V1__WRITE_FILE_OPEN__INIT;
    Berth__Data__V1__ListProcessesRequest processes =
        BERTH__DATA__V1__LIST_PROCESSES_REQUEST__INIT;

    expect(&processes.base, "session");
    list.session = read.session = open.session = &session;
    list.path = read.path = open.path = (char *)"/workspace";
    list.depth = BERTH_DATA_DEPTH_MAX;
    list.page = &page;
    page.page_size = INT32_MAX;
    page.page_token = xs(8192);
    expect(&list.base, NULL);
    page.page_token = xs(8193);
    expect(&list.base, "page.page_token");
    page.page_token = (char *)"";
    page.page_size = -1;
    expect(&list.base, "page.page_size");
    page.page_size = 0;
    list.depth++;
    expect(&list.base, "depth");

    read.offset = read.length = UINT64_MAX;
    read.if_etag = xs(128);
    expect(&read.base, NULL);
    read.if_etag = xs(129);
    expect(&read.base, "if_etag");
    read.if_etag = (char *)"a\nb";
    expect(&read.base, "if_etag");

    expect(&write.base, "open");
    write.message_case = BERTH__DATA__V1__WRITE_FILE_REQUEST__MESSAGE_DATA;
    expect(&write.base, "open");
    write.message_case = BERTH__DATA__V1__WRITE_FILE_REQUEST__MESSAGE_OPEN;
    write.open = &open;
    open.mode = 07777;
    expect(&write.base, NULL);
    open.mode = 010000;
    expect(&write.base, "open.mode");
    open.mode = 0;
    open.if_etag = xs(129);
    expect(&write.base, "open.if_etag");
    open.if_etag = (char *)"";
    open.turn_token = (char *)"a b";
    expect(&write.base, "open.turn_token");
    open.turn_token = (char *)"";
    open.session = NULL;
    expect(&write.base, "open.session");
}
END_TEST

/* A message that has no rules here is a bug of ours, not of the caller. */
START_TEST(berth_data_check__unknown_type__internal)
{
    Berth__Data__V1__TerminalRequest other = BERTH__DATA__V1__TERMINAL_REQUEST__INIT;

    ck_assert_int_eq(berth_data_check(&other.base, NULL, NULL), BERTH_INTERNAL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("common/data");
    TCase *data = tcase_create("berth_data_check");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(data, setup, NULL);
    tcase_add_loop_test(data, berth_data_check__command_edges__field_named, 0,
                        (int)BERTH_COUNT(command_rows));
    tcase_add_test(data, berth_data_check__run_and_exec_fields__field_named);
    tcase_add_test(data, berth_data_check__exec_detached__request_filled);
    tcase_add_loop_test(data, berth_data_check__process_edges__field_named, 0,
                        (int)BERTH_COUNT(process_rows));
    tcase_add_test(data, berth_data_check__signal_and_input_edges__field_named);
    tcase_add_loop_test(data, berth_data_check__path_edges__field_named, 0,
                        (int)BERTH_COUNT(path_rows));
    tcase_add_test(data, berth_data_check__file_fields__field_named);
    tcase_add_test(data, berth_data_check__unknown_type__internal);
    suite_add_tcase(suite, data);

    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
