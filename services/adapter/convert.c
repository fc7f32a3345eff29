#include "services/adapter/convert.h"

#include <stdio.h>

#include "common/base/utf8.h"
#include "common/fields/fields.h"

typedef Berth__Data__V1__ProcessEvent ProcessEvent;

static void set_duration(Google__Protobuf__Duration *to, int64_t us)
{
    google__protobuf__duration__init(to);
    to->seconds = us / 1000000;
    to->nanos = (int32_t)(us % 1000000) * 1000;
}

static void set_time(Google__Protobuf__Timestamp *to, int64_t ms)
{
    google__protobuf__timestamp__init(to);
    to->seconds = ms / 1000;
    to->nanos = (int32_t)(ms % 1000) * 1000000;
}

static Google__Protobuf__Duration *new_duration(int64_t us)
{
    Google__Protobuf__Duration *duration = calloc(1, sizeof *duration);

    if (duration)
        set_duration(duration, us);
    return duration;
}

static Google__Protobuf__Timestamp *new_time(int64_t ms)
{
    Google__Protobuf__Timestamp *time = calloc(1, sizeof *time);

    if (time)
        set_time(time, ms);
    return time;
}

/* Without the parts that need memory. */
static void set_exited(Berth__Data__V1__Exited *to, const struct adapter_exited *exited)
{
    berth__data__v1__exited__init(to);
    to->reason = exited->reason;
    to->exit_code = exited->exit_code;
    to->signal = exited->signal;
    to->stdout_bytes = exited->stdout_bytes;
    to->stderr_bytes = exited->stderr_bytes;
    to->stream_held_open = exited->stream_held_open;
}

struct berth_buf *convert_event(const struct adapter_event *event)
{
    Berth__Data__V1__ExecResponse response = BERTH__DATA__V1__EXEC_RESPONSE__INIT;
    ProcessEvent inner = BERTH__DATA__V1__PROCESS_EVENT__INIT;
    Berth__Data__V1__Started started = BERTH__DATA__V1__STARTED__INIT;
    Berth__Data__V1__Truncated truncated = BERTH__DATA__V1__TRUNCATED__INIT;
    Berth__Data__V1__Exited exited;
    Google__Protobuf__Timestamp time;
    Google__Protobuf__Duration wall, cpu;

    response.event = &inner;
    inner.seq = event->seq;
    switch (event->kind) {
    case ADAPTER_EVENT_STARTED:
        started.exec_id = (char *)event->exec_id;
        started.pid = event->pid;
        set_time(&time, event->start_ms);
        started.start_time = &time;
        started.attached = event->attached;
        inner.event_case = BERTH__DATA__V1__PROCESS_EVENT__EVENT_STARTED;
        inner.started = &started;
        break;
    case ADAPTER_EVENT_OUTPUT:
        inner.event_case = event->stream == ADAPTER_STDOUT
                               ? BERTH__DATA__V1__PROCESS_EVENT__EVENT_STDOUT
                               : BERTH__DATA__V1__PROCESS_EVENT__EVENT_STDERR;
        inner.stdout = (ProtobufCBinaryData){event->size, (uint8_t *)event->data};
        break;
    case ADAPTER_EVENT_TRUNCATED:
        truncated.from_seq = event->from_seq;
        truncated.dropped_bytes = event->dropped;
        inner.event_case = BERTH__DATA__V1__PROCESS_EVENT__EVENT_TRUNCATED;
        inner.truncated = &truncated;
        break;
    case ADAPTER_EVENT_EXITED:
        set_exited(&exited, event->exited);
        set_duration(&wall, event->exited->wall_us);
        set_duration(&cpu, event->exited->cpu_us);
        exited.wall_time = &wall;
        exited.cpu_time = &cpu;
        exited.message = (char *)event->exited->message;
        inner.event_case = BERTH__DATA__V1__PROCESS_EVENT__EVENT_EXITED;
        inner.exited = &exited;
        break;
    default:
        set_time(&time, event->now_ms);
        inner.event_case = BERTH__DATA__V1__PROCESS_EVENT__EVENT_HEARTBEAT;
        inner.heartbeat = &time;
        break;
    }
    return berth_buf_pack(&response.base);
}

Berth__Data__V1__Exited *convert_exited(const struct adapter_exited *exited)
{
    Berth__Data__V1__Exited *to = calloc(1, sizeof *to);

    if (!to)
        return NULL;
    set_exited(to, exited);
    to->wall_time = new_duration(exited->wall_us);
    to->cpu_time = new_duration(exited->cpu_us);
    to->message = strdup(exited->message);
    if (to->wall_time && to->cpu_time && to->message)
        return to;
    if (!to->message)
        to->message = (char *)protobuf_c_empty_string;
    protobuf_c_message_free_unpacked(&to->base, NULL);
    return NULL;
}

static bool set_string(char **to, const char *value)
{
    char *copy = strdup(value);

    if (copy)
        *to = copy;
    return copy != NULL;
}

static bool set_argv(Berth__Data__V1__Command *command, const struct adapter_process *process)
{
    Berth__Data__V1__Argv *argv = calloc(1, sizeof *argv);

    if (!argv)
        return false;
    berth__data__v1__argv__init(argv);
    command->run_case = BERTH__DATA__V1__COMMAND__RUN_ARGV;
    command->argv = argv;
    argv->args = calloc(process->n_args, sizeof *argv->args);
    if (!argv->args)
        return false;
    for (; argv->n_args < process->n_args; argv->n_args++) {
        const char *arg = process->args[argv->n_args];

        /* Cut somewhere, maybe within a character. */
        argv->args[argv->n_args] = berth_utf8_lossy(arg, strlen(arg));
        if (!argv->args[argv->n_args])
            return false;
    }
    return true;
}

static bool set_command(Berth__Data__V1__Command *command,
                        const struct adapter_process *process)
{
    command->account = process->root ? BERTH__DATA__V1__ACCOUNT__ACCOUNT_ROOT
                                     : BERTH__DATA__V1__ACCOUNT__ACCOUNT_USER;
    command->timeout = new_duration(process->timeout_ms * 1000);
    if (!command->timeout || !set_string(&command->cwd, process->cwd) ||
        !set_string(&command->exec_id, process->exec_id))
        return false;
    if (process->n_args == 0)
        return true;
    if (!process->shell)
        return set_argv(command, process);
    command->shell = berth_utf8_lossy(process->args[0], strlen(process->args[0]));
    if (command->shell)
        command->run_case = BERTH__DATA__V1__COMMAND__RUN_SHELL;
    return command->shell != NULL;
}

Berth__Data__V1__Process *convert_process(const struct adapter_process *process)
{
    Berth__Data__V1__Process *to = calloc(1, sizeof *to);
    bool good;

    if (!to)
        return NULL;
    berth__data__v1__process__init(to);
    to->pid = process->pid;
    to->detached = process->detached;
    to->last_seq = process->last_seq;
    to->start_time = new_time(process->start_ms);
    to->command = calloc(1, sizeof *to->command);
    good = to->start_time && to->command && set_string(&to->exec_id, process->exec_id);
    if (to->command)
        berth__data__v1__command__init(to->command);
    good = good && set_command(to->command, process);
    if (good && process->exited) {
        to->exited = convert_exited(process->exited);
        good = to->exited != NULL;
    }
    if (good)
        return to;
    protobuf_c_message_free_unpacked(&to->base, NULL);
    return NULL;
}

char *convert_escaped(const char *bytes)
{
    size_t len = strlen(bytes), at = 0;
    char *text = malloc(4 * len + 1), *to = text;
    uint32_t point;

    if (!text)
        return NULL;
    while (at < len) {
        size_t step = berth_utf8_step(bytes + at, len - at, &point);

        if (step == 0) {
            to += snprintf(to, 5, "\\x%02X", (uint8_t)bytes[at]);
            at++;
        } else if (bytes[at] == '\\') {
            *to++ = '\\';
            *to++ = '\\';
            at++;
        } else {
            memcpy(to, bytes + at, step);
            to += step;
            at += step;
        }
    }
    *to = 0;
    return text;
}

static bool set_path(Berth__Data__V1__FileEntry *to, const char *path)
{
    size_t size = strlen(path);

    if (berth_utf8_valid(path, size))
        return set_string(&to->path, path);
    to->raw_path.data = malloc(size);
    if (!to->raw_path.data)
        return false;
    memcpy(to->raw_path.data, path, size);
    to->raw_path.len = size;
    to->path = convert_escaped(path);
    if (!to->path)
        to->path = (char *)protobuf_c_empty_string;
    return to->path != protobuf_c_empty_string;
}

static bool set_link(Berth__Data__V1__FileEntry *to, const char *target)
{
    char *text =
        berth_utf8_valid(target, strlen(target)) ? strdup(target) : convert_escaped(target);

    if (text)
        to->link_target = text;
    return text != NULL;
}

static bool set_owner(Berth__Data__V1__FileEntry *to, uint32_t uid)
{
    enum { USER_ID = 1000 };

    return uid == 0         ? set_string(&to->owner, "root")
           : uid == USER_ID ? set_string(&to->owner, "user")
                            : true;
}

static bool set_sha256(Berth__Data__V1__FileEntry *to, const uint8_t sha256[32])
{
    to->sha256.data = malloc(32);
    if (!to->sha256.data)
        return false;
    memcpy(to->sha256.data, sha256, 32);
    to->sha256.len = 32;
    return true;
}

Berth__Data__V1__FileEntry *convert_file(const struct adapter_file *file)
{
    Berth__Data__V1__FileEntry *to = calloc(1, sizeof *to);
    int64_t rest = file->modify_ns % 1000000000;

    if (!to)
        return NULL;
    berth__data__v1__file_entry__init(to);
    to->type = (Berth__Data__V1__FileType)file->type;
    to->size_bytes = file->size_bytes;
    to->mode = file->mode;
    to->uid = file->uid;
    to->gid = file->gid;
    to->modify_time = new_time(0);
    if (to->modify_time) {
        to->modify_time->seconds = file->modify_ns / 1000000000 - (rest < 0);
        to->modify_time->nanos = (int32_t)(rest < 0 ? rest + 1000000000 : rest);
    }
    if (to->modify_time && set_path(to, file->path) && set_owner(to, file->uid) &&
        (!file->link_target || set_link(to, file->link_target)) &&
        (!file->etag[0] || set_string(&to->etag, file->etag)) &&
        (!file->has_sha256 || set_sha256(to, file->sha256)))
        return to;
    protobuf_c_message_free_unpacked(&to->base, NULL);
    return NULL;
}
