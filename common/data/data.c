/* data.c - the field rules of berth.data.v1. One function per request, one table. */
#include "common/data/data.h"

#include <stdio.h>

#include "common/fields/fields.h"

enum {
    FIELD_MAX = 96,
    ETAG_MAX = 128,
    PAGE_TOKEN_MAX = 8192,
    SIGNAL_MAX = 64,
    ENV_NAME_MAX = 128
};

typedef enum berth_code (*check_fn)(ProtobufCMessage *message, struct berth_data_request *ret,
                                    struct berth_error *err);

static enum berth_code check_session(const Berth__Common__V1__SessionRef *session,
                                     const char *prefix, struct berth_data_request *ret,
                                     struct berth_error *err)
{
    char field[FIELD_MAX];
    enum berth_code code;

    snprintf(field, sizeof field, "%ssession", prefix);
    code = berth_check_present(field, session, err);
    if (code)
        return code;
    snprintf(field, sizeof field, "%ssession.tenant_id", prefix);
    code = berth_check_id(field, session->tenant_id, err);
    if (code)
        return code;
    snprintf(field, sizeof field, "%ssession.session_id", prefix);
    code = berth_check_id(field, session->session_id, err);
    if (code)
        return code;
    ret->session = session;
    return BERTH_OK;
}

static enum berth_code check_turn(const char *field, const char *turn_token,
                                  struct berth_data_request *ret, struct berth_error *err)
{
    enum berth_code code = berth_check_id_or_empty(field, turn_token, err);

    if (code == BERTH_OK)
        ret->turn_token = turn_token;
    return code;
}

static enum berth_code check_size(const char *field, size_t size, size_t max,
                                  struct berth_error *err)
{
    if (size > max)
        return berth_fail_field(err, field, "at most %zu bytes", max);
    return BERTH_OK;
}

static enum berth_code check_args(const char *field, const Berth__Data__V1__Argv *argv,
                                  struct berth_error *err)
{
    size_t total = 0;

    if (argv->n_args < 1 || argv->n_args > BERTH_DATA_ARGS_MAX)
        return berth_fail_field(err, field, "1..%d arguments", BERTH_DATA_ARGS_MAX);
    if (argv->args[0][0] == 0)
        return berth_fail_field(err, field, "the first argument must not be empty");
    for (size_t i = 0; i < argv->n_args; i++) {
        size_t size = strlen(argv->args[i]);

        if (size > BERTH_DATA_ARG_MAX)
            return berth_fail_field(err, field, "at most %d bytes each", BERTH_DATA_ARG_MAX);
        total += size + 1;
    }
    if (total > BERTH_DATA_ARGS_BYTES_MAX)
        return berth_fail_field(err, field, "at most %d bytes together",
                                BERTH_DATA_ARGS_BYTES_MAX);
    return BERTH_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static enum berth_code check_env(const char *field, const Berth__Data__V1__Command *command,
                                 struct berth_error *err)
{
    const char *names[BERTH_DATA_ENV_MAX];
    size_t total = 0;
    enum berth_code code;

    if (command->n_env > BERTH_DATA_ENV_MAX)
        return berth_fail_field(err, field, "at most %d entries", BERTH_DATA_ENV_MAX);
    for (size_t i = 0; i < command->n_env; i++) {
        const Berth__Data__V1__Command__EnvEntry *entry = command->env[i];
        size_t value_size = strlen(entry->value);

        code = berth_check_env_name(field, entry->key, err);
        if (code)
            return code;
        if (strlen(entry->key) > ENV_NAME_MAX)
            return berth_fail_field(err, field, "names of at most %d characters", ENV_NAME_MAX);
        if (value_size > BERTH_DATA_ENV_VALUE_MAX)
            return berth_fail_field(err, field, "values of at most %d bytes",
                                    BERTH_DATA_ENV_VALUE_MAX);
        total += value_size;
        names[i] = entry->key;
    }
    if (total > BERTH_DATA_ENV_BYTES_MAX)
        return berth_fail_field(err, field, "at most %d bytes together",
                                BERTH_DATA_ENV_BYTES_MAX);
    if (command->n_env > 1)
        qsort(names, command->n_env, sizeof names[0], compare_names);
    for (size_t i = 1; i < command->n_env; i++) {
        if (strcmp(names[i - 1], names[i]) == 0)
            return berth_fail_field(err, field, "each name once");
    }
    return BERTH_OK;
}

enum berth_code berth_data_check_command(const char *prefix,
                                         const Berth__Data__V1__Command *command, bool detach,
                                         struct berth_error *err)
{
    char field[FIELD_MAX];
    enum berth_code code;
    int64_t timeout_ms;

    code = berth_check_present(prefix, command, err);
    if (code)
        return code;

    switch (command->run_case) {
    case BERTH__DATA__V1__COMMAND__RUN_ARGV:
        snprintf(field, sizeof field, "%s.argv", prefix);
        code = check_args(field, command->argv, err);
        break;
    case BERTH__DATA__V1__COMMAND__RUN_SHELL:
        snprintf(field, sizeof field, "%s.shell", prefix);
        if (command->shell[0] == 0 || strlen(command->shell) > BERTH_DATA_ARG_MAX)
            code = berth_fail_field(err, field, "1..%d bytes", BERTH_DATA_ARG_MAX);
        break;
    default:
        snprintf(field, sizeof field, "%s.run", prefix);
        code = berth_fail_field(err, field, "one of argv and shell must be set");
    }
    if (code)
        return code;

    snprintf(field, sizeof field, "%s.env", prefix);
    code = check_env(field, command, err);
    if (code)
        return code;
    if (command->cwd[0] != 0) {
        snprintf(field, sizeof field, "%s.cwd", prefix);
        code = berth_check_path(field, command->cwd, err);
        if (code)
            return code;
    }
    snprintf(field, sizeof field, "%s.account", prefix);
    code = berth_check_enum(field, command->account, BERTH__DATA__V1__ACCOUNT__ACCOUNT_ROOT,
                            true, err);
    if (code)
        return code;
    if (command->timeout) {
        snprintf(field, sizeof field, "%s.timeout", prefix);
        code = berth_check_duration(field, command->timeout->seconds, command->timeout->nanos,
                                    BERTH_DATA_TIMEOUT_MAX_MS, &timeout_ms, err);
        if (code)
            return code;
        if (timeout_ms == 0 && !detach)
            return berth_fail_field(err, field, "0s (none) needs detach");
    }
    snprintf(field, sizeof field, "%s.exec_id", prefix);
    return berth_check_id_or_empty(field, command->exec_id, err);
}

static enum berth_code check_process(const Berth__Data__V1__ProcessRef *process,
                                     struct berth_error *err)
{
    enum berth_code code = berth_check_present("process", process, err);

    if (code)
        return code;
    switch (process->key_case) {
    case BERTH__DATA__V1__PROCESS_REF__KEY_EXEC_ID:
        return berth_check_id("process.exec_id", process->exec_id, err);
    case BERTH__DATA__V1__PROCESS_REF__KEY_PID:
        if (process->pid < 1 || process->pid > BERTH_DATA_PID_MAX)
            return berth_fail_field(err, "process.pid", "1..%d", BERTH_DATA_PID_MAX);
        return BERTH_OK;
    default:
        return berth_fail_field(err, "process.key", "one of exec_id and pid must be set");
    }
}

static enum berth_code check_etag(const char *field, const char *etag, struct berth_error *err)
{
    return berth_check_text(field, etag, 0, ETAG_MAX, err);
}

static enum berth_code check_run(ProtobufCMessage *message, struct berth_data_request *ret,
                                 struct berth_error *err)
{
    const Berth__Data__V1__RunRequest *req = (const Berth__Data__V1__RunRequest *)message;
    enum berth_code code;

    code = check_session(req->session, "", ret, err);
    if (code == BERTH_OK)
        code = check_turn("turn_token", req->turn_token, ret, err);
    if (code == BERTH_OK)
        code = berth_data_check_command("command", req->command, false, err);
    if (code == BERTH_OK)
        code = check_size("stdin", req->stdin.len, BERTH_DATA_CHUNK_MAX, err);
    if (code)
        return code;
    if (req->max_output_bytes > BERTH_DATA_OUTPUT_MAX)
        return berth_fail_field(err, "max_output_bytes", "at most %d", BERTH_DATA_OUTPUT_MAX);
    ret->command = req->command;
    return BERTH_OK;
}

static enum berth_code check_exec(ProtobufCMessage *message, struct berth_data_request *ret,
                                  struct berth_error *err)
{
    const Berth__Data__V1__ExecRequest *req = (const Berth__Data__V1__ExecRequest *)message;
    enum berth_code code;

    code = check_session(req->session, "", ret, err);
    if (code == BERTH_OK)
        code = check_turn("turn_token", req->turn_token, ret, err);
    if (code == BERTH_OK)
        code = berth_data_check_command("command", req->command, req->detach, err);
    if (code == BERTH_OK)
        code = check_size("initial_stdin", req->initial_stdin.len, BERTH_DATA_CHUNK_MAX, err);
    if (code)
        return code;
    ret->command = req->command;
    ret->detach = req->detach;
    return BERTH_OK;
}

static enum berth_code check_attach(ProtobufCMessage *message, struct berth_data_request *ret,
                                    struct berth_error *err)
{
    const Berth__Data__V1__AttachRequest *req = (const Berth__Data__V1__AttachRequest *)message;
    enum berth_code code = check_session(req->session, "", ret, err);

    return code ? code : check_process(req->process, err);
}

static enum berth_code check_send_input(ProtobufCMessage *message,
                                        struct berth_data_request *ret, struct berth_error *err)
{
    const Berth__Data__V1__SendInputRequest *req =
        (const Berth__Data__V1__SendInputRequest *)message;
    enum berth_code code = check_session(req->session, "", ret, err);

    if (code == BERTH_OK)
        code = check_process(req->process, err);
    return code ? code : check_size("data", req->data.len, BERTH_DATA_CHUNK_MAX, err);
}

static enum berth_code check_signal(ProtobufCMessage *message, struct berth_data_request *ret,
                                    struct berth_error *err)
{
    const Berth__Data__V1__SignalRequest *req = (const Berth__Data__V1__SignalRequest *)message;
    enum berth_code code = check_session(req->session, "", ret, err);

    if (code == BERTH_OK)
        code = check_process(req->process, err);
    if (code)
        return code;
    if (req->signal < 1 || req->signal > SIGNAL_MAX)
        return berth_fail_field(err, "signal", "1..%d", SIGNAL_MAX);
    return BERTH_OK;
}

static enum berth_code check_list_processes(ProtobufCMessage *message,
                                            struct berth_data_request *ret,
                                            struct berth_error *err)
{
    const Berth__Data__V1__ListProcessesRequest *req =
        (const Berth__Data__V1__ListProcessesRequest *)message;
    enum berth_code code = check_session(req->session, "", ret, err);

    return code ? code : berth_check_id_or_empty("exec_id", req->exec_id, err);
}

static enum berth_code check_stat(ProtobufCMessage *message, struct berth_data_request *ret,
                                  struct berth_error *err)
{
    const Berth__Data__V1__StatRequest *req = (const Berth__Data__V1__StatRequest *)message;
    enum berth_code code = check_session(req->session, "", ret, err);

    return code ? code : berth_check_path("path", req->path, err);
}

static enum berth_code check_list_dir(ProtobufCMessage *message, struct berth_data_request *ret,
                                      struct berth_error *err)
{
    const Berth__Data__V1__ListDirRequest *req =
        (const Berth__Data__V1__ListDirRequest *)message;
    enum berth_code code = check_session(req->session, "", ret, err);
    uint32_t size;

    if (code == BERTH_OK)
        code = berth_check_path("path", req->path, err);
    if (code)
        return code;
    if (req->depth > BERTH_DATA_DEPTH_MAX)
        return berth_fail_field(err, "depth", "at most %d", BERTH_DATA_DEPTH_MAX);
    if (!req->page)
        return BERTH_OK;
    code = berth_check_page_size("page.page_size", req->page->page_size, &size, err);
    return code ? code
                : check_size("page.page_token", strlen(req->page->page_token), PAGE_TOKEN_MAX,
                             err);
}

static enum berth_code check_make_dir(ProtobufCMessage *message, struct berth_data_request *ret,
                                      struct berth_error *err)
{
    const Berth__Data__V1__MakeDirRequest *req =
        (const Berth__Data__V1__MakeDirRequest *)message;
    enum berth_code code = check_session(req->session, "", ret, err);

    if (code == BERTH_OK)
        code = check_turn("turn_token", req->turn_token, ret, err);
    return code ? code : berth_check_path("path", req->path, err);
}

static enum berth_code check_move(ProtobufCMessage *message, struct berth_data_request *ret,
                                  struct berth_error *err)
{
    const Berth__Data__V1__MoveRequest *req = (const Berth__Data__V1__MoveRequest *)message;
    enum berth_code code = check_session(req->session, "", ret, err);

    if (code == BERTH_OK)
        code = check_turn("turn_token", req->turn_token, ret, err);
    if (code == BERTH_OK)
        code = berth_check_path("source", req->source, err);
    return code ? code : berth_check_path("target", req->target, err);
}

static enum berth_code check_remove(ProtobufCMessage *message, struct berth_data_request *ret,
                                    struct berth_error *err)
{
    const Berth__Data__V1__RemoveRequest *req = (const Berth__Data__V1__RemoveRequest *)message;
    enum berth_code code = check_session(req->session, "", ret, err);

    if (code == BERTH_OK)
        code = check_turn("turn_token", req->turn_token, ret, err);
    return code ? code : berth_check_path("path", req->path, err);
}

static enum berth_code check_read_file(ProtobufCMessage *message,
                                       struct berth_data_request *ret, struct berth_error *err)
{
    const Berth__Data__V1__ReadFileRequest *req =
        (const Berth__Data__V1__ReadFileRequest *)message;
    enum berth_code code = check_session(req->session, "", ret, err);

    if (code == BERTH_OK)
        code = berth_check_path("path", req->path, err);
    return code ? code : check_etag("if_etag", req->if_etag, err);
}

static enum berth_code check_write_file(ProtobufCMessage *message,
                                        struct berth_data_request *ret, struct berth_error *err)
{
    const Berth__Data__V1__WriteFileRequest *req =
        (const Berth__Data__V1__WriteFileRequest *)message;
    const Berth__Data__V1__WriteFileOpen *open;
    enum berth_code code;

    if (req->message_case != BERTH__DATA__V1__WRITE_FILE_REQUEST__MESSAGE_OPEN)
        return berth_fail_field(err, "open", "the first message must be open");
    open = req->open;
    code = check_session(open->session, "open.", ret, err);
    if (code == BERTH_OK)
        code = check_turn("open.turn_token", open->turn_token, ret, err);
    if (code == BERTH_OK)
        code = berth_check_path("open.path", open->path, err);
    if (code)
        return code;
    if (open->mode > BERTH_DATA_MODE_MAX)
        return berth_fail_field(err, "open.mode", "0..0%o", (unsigned)BERTH_DATA_MODE_MAX);
    return check_etag("open.if_etag", open->if_etag, err);
}

static enum berth_code check_export(ProtobufCMessage *message, struct berth_data_request *ret,
                                    struct berth_error *err)
{
    const Berth__Data__V1__ExportWorkspaceRequest *req =
        (const Berth__Data__V1__ExportWorkspaceRequest *)message;

    return check_session(req->session, "", ret, err);
}

static enum berth_code check_import(ProtobufCMessage *message, struct berth_data_request *ret,
                                    struct berth_error *err)
{
    const Berth__Data__V1__ImportWorkspaceRequest *req =
        (const Berth__Data__V1__ImportWorkspaceRequest *)message;
    enum berth_code code;

    if (req->message_case != BERTH__DATA__V1__IMPORT_WORKSPACE_REQUEST__MESSAGE_OPEN)
        return berth_fail_field(err, "open", "the first message must be open");
    code = check_session(req->open->session, "open.", ret, err);
    return code ? code : check_turn("open.turn_token", req->open->turn_token, ret, err);
}

static enum berth_code check_workspace_move(ProtobufCMessage *message,
                                            struct berth_data_request *ret,
                                            struct berth_error *err)
{
    const Berth__Data__V1__MoveWorkspaceRequest *req =
        (const Berth__Data__V1__MoveWorkspaceRequest *)message;
    enum berth_code code = check_session(req->session, "", ret, err);

    if (code == BERTH_OK)
        code = berth_check_id_or_empty("blob_id", req->blob_id, err);
    if (!code && (req->up_to_fence != 0) == (*req->blob_id != 0))
        code = berth_fail_field(err, "blob_id", "must be set, or up_to_fence in its place");
    if (!code && req->up_to_fence &&
        req->direction_case != BERTH__DATA__V1__MOVE_WORKSPACE_REQUEST__DIRECTION_IMPORT_INTO)
        code = berth_fail_field(err, "up_to_fence", "only with import_into");
    if (code == BERTH_OK)
        code = berth_check_present("not_after_time", req->not_after_time, err);
    if (code)
        return code;
    switch (req->direction_case) {
    case BERTH__DATA__V1__MOVE_WORKSPACE_REQUEST__DIRECTION_EXPORT_FROM:
        return berth_check_id("export_from.sandbox_id", req->export_from->sandbox_id, err);
    case BERTH__DATA__V1__MOVE_WORKSPACE_REQUEST__DIRECTION_IMPORT_INTO:
        return berth_check_id("import_into.sandbox_id", req->import_into->sandbox_id, err);
    case BERTH__DATA__V1__MOVE_WORKSPACE_REQUEST__DIRECTION_REMOVE:
        return req->remove ? BERTH_OK : berth_fail_field(err, "remove", "not false");
    default:
        return berth_fail_field(err, "direction",
                                "one of export_from, import_into and remove must be set");
    }
}

static const struct {
    const ProtobufCMessageDescriptor *type;
    check_fn check;
} checks[] = {
    {&berth__data__v1__run_request__descriptor, check_run},
    {&berth__data__v1__exec_request__descriptor, check_exec},
    {&berth__data__v1__attach_request__descriptor, check_attach},
    {&berth__data__v1__send_input_request__descriptor, check_send_input},
    {&berth__data__v1__signal_request__descriptor, check_signal},
    {&berth__data__v1__list_processes_request__descriptor, check_list_processes},
    {&berth__data__v1__stat_request__descriptor, check_stat},
    {&berth__data__v1__list_dir_request__descriptor, check_list_dir},
    {&berth__data__v1__make_dir_request__descriptor, check_make_dir},
    {&berth__data__v1__move_request__descriptor, check_move},
    {&berth__data__v1__remove_request__descriptor, check_remove},
    {&berth__data__v1__read_file_request__descriptor, check_read_file},
    {&berth__data__v1__write_file_request__descriptor, check_write_file},
    {&berth__data__v1__export_workspace_request__descriptor, check_export},
    {&berth__data__v1__import_workspace_request__descriptor, check_import},
    {&berth__data__v1__move_workspace_request__descriptor, check_workspace_move},
};

enum berth_code berth_data_check(ProtobufCMessage *first, struct berth_data_request *ret,
                                 struct berth_error *err)
{
    struct berth_data_request request = {.turn_token = ""};
    enum berth_code code;

    for (size_t i = 0; i < BERTH_COUNT(checks); i++) {
        if (checks[i].type != first->descriptor)
            continue;
        code = checks[i].check(first, &request, err);
        if (code == BERTH_OK && ret)
            *ret = request;
        return code;
    }
    return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "no rules for %s",
                      first->descriptor->name);
}
