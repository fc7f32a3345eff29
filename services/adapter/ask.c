#include "services/adapter/ask.h"

#include <endian.h>

#include "common/crypto/crypto.h"
#include "common/data/data.h"
#include "common/fields/fields.h"
#include "common/ids/ids.h"

enum { EXEC_ID_CHARS = 20 };

#define OFFSET_MAX (INT64_MAX / 2)

const ProtobufCMessageDescriptor *const ask_descriptors[ASK_N_METHODS] = {
    [ASK_RUN] = &berth__data__v1__run_request__descriptor,
    [ASK_EXEC] = &berth__data__v1__exec_request__descriptor,
    [ASK_ATTACH] = &berth__data__v1__attach_request__descriptor,
    [ASK_SEND_INPUT] = &berth__data__v1__send_input_request__descriptor,
    [ASK_SIGNAL] = &berth__data__v1__signal_request__descriptor,
    [ASK_LIST_PROCESSES] = &berth__data__v1__list_processes_request__descriptor,
};

static void add_part(struct berth_sha256 *hash, const void *data, size_t size)
{
    uint64_t length = htobe64(size);

    berth_sha256_add(hash, &length, sizeof length);
    berth_sha256_add(hash, data, size);
}

static void add_text(struct berth_sha256 *hash, const char *text)
{
    add_part(hash, text, strlen(text));
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(Berth__Data__V1__Command__EnvEntry *const *)a)->key,
                  (*(Berth__Data__V1__Command__EnvEntry *const *)b)->key);
}

/* What is run, where, by whom and on what input; not for how long, and not how it is watched: a
 * repeat with less time left is still the same command. The order of env is no part of it. */
static enum berth_code set_digest(struct adapter_ask *ask, Berth__Data__V1__Command *command,
                                  struct berth_error *err)
{
    BERTH_AUTO(berth_sha256_free) struct berth_sha256 *hash = berth_sha256_new();
    uint8_t digest[32];

    if (!hash)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (command->run_case == BERTH__DATA__V1__COMMAND__RUN_SHELL) {
        add_text(hash, "shell");
        add_text(hash, command->shell);
    } else {
        add_text(hash, "argv");
        for (size_t i = 0; i < command->argv->n_args; i++)
            add_text(hash, command->argv->args[i]);
    }
    add_text(hash, "env");
    if (command->n_env > 1)
        qsort(command->env, command->n_env, sizeof command->env[0], by_name);
    for (size_t i = 0; i < command->n_env; i++) {
        add_text(hash, command->env[i]->key);
        add_text(hash, command->env[i]->value);
    }
    add_text(hash, "cwd");
    add_text(hash, command->cwd);
    add_text(hash,
             command->account == BERTH__DATA__V1__ACCOUNT__ACCOUNT_ROOT ? "root" : "user");
    add_part(hash, ask->data, ask->size);
    berth_sha256_end(hash, digest);
    berth_hex(ask->digest, digest, sizeof digest);
    return BERTH_OK;
}

static bool set_text(char **field, const char *value)
{
    char *copy = strdup(value);

    if (!copy)
        return false;
    if (*field != protobuf_c_empty_string)
        free(*field);
    *field = copy;
    return true;
}

static enum berth_code fill_in(Berth__Data__V1__Command *command, struct berth_error *err)
{
    char id[EXEC_ID_CHARS + 1];

    if (command->exec_id[0] == 0 &&
        !set_text(&command->exec_id, berth_id_base36(id, EXEC_ID_CHARS)))
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (command->cwd[0] == 0 && !set_text(&command->cwd, "/workspace"))
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (command->account == BERTH__DATA__V1__ACCOUNT__ACCOUNT_UNSPECIFIED)
        command->account = BERTH__DATA__V1__ACCOUNT__ACCOUNT_USER;
    return BERTH_OK;
}

static enum berth_code set_command(struct adapter_ask *ask, Berth__Data__V1__Command *command,
                                   struct berth_error *err)
{
    enum berth_code code = fill_in(command, err);

    if (code)
        return code;
    ask->kind = ADAPTER_ASK_START;
    ask->command = command;
    ask->exec_id = command->exec_id;
    ask->timeout_ms = ASK_TIMEOUT_DEFAULT_MS;
    if (command->timeout) {
        code = berth_check_duration("command.timeout", command->timeout->seconds,
                                    command->timeout->nanos, ASK_TIMEOUT_MAX_MS,
                                    &ask->timeout_ms, err);
        if (code)
            return code;
    }
    return set_digest(ask, command, err);
}

static void set_process(struct adapter_ask *ask, const Berth__Data__V1__ProcessRef *process)
{
    bool by_id = process->key_case == BERTH__DATA__V1__PROCESS_REF__KEY_EXEC_ID;

    ask->exec_id = by_id ? process->exec_id : "";
    ask->pid = by_id ? 0 : process->pid;
}

static enum berth_code from_run(ProtobufCMessage *message, struct adapter_ask *ask,
                                struct berth_error *err)
{
    Berth__Data__V1__RunRequest *req = (Berth__Data__V1__RunRequest *)message;

    ask->data = req->stdin.data;
    ask->size = req->stdin.len;
    ask->collect = req->max_output_bytes ? req->max_output_bytes : ASK_OUTPUT_DEFAULT;
    return set_command(ask, req->command, err);
}

static enum berth_code from_exec(ProtobufCMessage *message, struct adapter_ask *ask,
                                 struct berth_error *err)
{
    Berth__Data__V1__ExecRequest *req = (Berth__Data__V1__ExecRequest *)message;

    if (req->max_output_bytes > OFFSET_MAX)
        return berth_fail_field(err, "max_output_bytes", "at most 2^62 - 1");
    ask->data = req->initial_stdin.data;
    ask->size = req->initial_stdin.len;
    ask->keep_stdin_open = req->keep_stdin_open;
    ask->detach = req->detach;
    ask->max_output = req->max_output_bytes;
    return set_command(ask, req->command, err);
}

static enum berth_code from_attach(ProtobufCMessage *message, struct adapter_ask *ask,
                                   struct berth_error *err)
{
    Berth__Data__V1__AttachRequest *req = (Berth__Data__V1__AttachRequest *)message;

    if (req->after_seq > OFFSET_MAX)
        return berth_fail_field(err, "after_seq", "at most 2^62 - 1");
    ask->kind = ADAPTER_ASK_ATTACH;
    ask->after_seq = req->after_seq;
    set_process(ask, req->process);
    return BERTH_OK;
}

static enum berth_code from_send_input(ProtobufCMessage *message, struct adapter_ask *ask,
                                       struct berth_error *err)
{
    Berth__Data__V1__SendInputRequest *req = (Berth__Data__V1__SendInputRequest *)message;

    if (req->offset > OFFSET_MAX)
        return berth_fail_field(err, "offset", "at most 2^62 - 1");
    if (req->unchecked && req->offset > 0)
        return berth_fail_field(err, "offset", "0 with unchecked");
    ask->kind = ADAPTER_ASK_INPUT;
    ask->offset = req->offset;
    ask->unchecked = req->unchecked;
    ask->end_of_file = req->end_of_file;
    ask->data = req->data.data;
    ask->size = req->data.len;
    set_process(ask, req->process);
    return BERTH_OK;
}

static enum berth_code from_signal(ProtobufCMessage *message, struct adapter_ask *ask)
{
    Berth__Data__V1__SignalRequest *req = (Berth__Data__V1__SignalRequest *)message;

    ask->kind = ADAPTER_ASK_SIGNAL;
    ask->signal = req->signal;
    ask->leader_only = req->leader_only;
    set_process(ask, req->process);
    return BERTH_OK;
}

enum berth_code ask_from_request(enum ask_method method, ProtobufCMessage *request,
                                 struct adapter_ask *ret, struct berth_error *err)
{
    enum berth_code code = berth_data_check(request, NULL, err);

    if (code)
        return code;
    *ret = (struct adapter_ask){.exec_id = ""};
    switch (method) {
    case ASK_RUN:
        return from_run(request, ret, err);
    case ASK_EXEC:
        return from_exec(request, ret, err);
    case ASK_ATTACH:
        return from_attach(request, ret, err);
    case ASK_SEND_INPUT:
        return from_send_input(request, ret, err);
    case ASK_SIGNAL:
        return from_signal(request, ret);
    default:
        ret->kind = ADAPTER_ASK_LIST;
        return BERTH_OK;
    }
}
