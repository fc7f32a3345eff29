/* command.c - Exec, its events, and Attach where the connection broke. */
#include "services/skills/work/command.h"

#include <stdarg.h>
#include <stdio.h>

#include "berth/data/v1/data.pb-c.h"
#include "common/messages/messages.h"
#include "common/time/time.h"
#include "services/skills/work/blame.h"

#define EXEC "/berth.data.v1.ProcessService/Exec"
#define ATTACH "/berth.data.v1.ProcessService/Attach"

enum {
    SAY_MAX = 4 << 10,    /* bytes said at once */
    QUIET_MAX_MS = 50000, /* three heartbeats */
    MEND_MAX_MS = 30000,  /* a broken connection stands again by then */
    MEND_EVERY_MS = 250,
    TIMEOUT_SLACK_MS = 60000, /* resolving, resuming, and the way back */
    EXEC_ID_SIZE = WORK_ID_SIZE + 12,
    WORDS_MAX = 16, /* of a script's arguments */
    NOT_OURS = 97,  /* the scripts' exit code in another sandbox */
};

typedef Berth__Data__V1__ExecRequest ExecRequest;
typedef Berth__Data__V1__ProcessEvent ProcessEvent;

struct running {
    struct work *work;
    const struct command *command;
    struct command_end *end;
    char exec_id[EXEC_ID_SIZE];
    char pending[SAY_MAX]; /* not said yet */
    size_t n_pending;
    uint64_t said_bytes, printed_bytes, unsaid_bytes;
    size_t capture_size; /* of the buffer */
    uint64_t seq;
    bool is_started, has_ended;
};

void command_end_deinit(struct command_end *end)
{
    free(end->message);
    free(end->captured);
    end->message = end->captured = NULL;
}

bool command_is_done(const struct command_end *end)
{
    return !end->is_signaled && end->exit_code == 0;
}

const char *command_tell(const struct command_end *end, char *buf, size_t size)
{
    if (end->is_signaled)
        snprintf(buf, size, "was killed by signal %d%s%.100s", end->signal,
                 end->message && *end->message ? ": " : "", end->message ? end->message : "");
    else
        snprintf(buf, size, "ended with exit code %d", end->exit_code);
    return buf;
}

/* ---------------------------------------------------------------------- its output */

static void say_pending(struct running *running)
{
    const struct work_wish *wish = &running->work->wish;

    blame_mask(running->pending, running->n_pending);
    if (running->n_pending > 0 && wish->say)
        wish->say(wish->arg, running->pending, running->n_pending);
    running->n_pending = 0;
}

/* Of a full one the whole lines, if there are any. */
static void say_lines(struct running *running)
{
    const char *line = memrchr(running->pending, '\n', running->n_pending);
    size_t n_rest = line ? (size_t)(running->pending + running->n_pending - line - 1) : 0;
    char rest[SAY_MAX];

    memcpy(rest, running->pending + running->n_pending - n_rest, n_rest);
    running->n_pending -= n_rest;
    say_pending(running);
    memcpy(running->pending, rest, n_rest);
    running->n_pending = n_rest;
}

static void keep_tail(struct command_end *end, const uint8_t *data, size_t size)
{
    size_t old = end->tail_size;

    if (size >= COMMAND_TAIL_MAX) {
        data += size - COMMAND_TAIL_MAX;
        size = COMMAND_TAIL_MAX;
        old = 0;
    } else if (old + size > COMMAND_TAIL_MAX) {
        size_t gone = old + size - COMMAND_TAIL_MAX;

        memmove(end->tail, end->tail + gone, old - gone);
        old -= gone;
    }
    memcpy(end->tail + old, data, size);
    end->tail_size = old + size;
    end->tail[end->tail_size] = 0;
}

static void take_output(struct running *running, const ProtobufCBinaryData *bytes)
{
    const uint8_t *data = bytes->data;
    size_t left = bytes->len;

    keep_tail(running->end, data, left);
    if (running->command->is_quiet)
        return;
    while (left > 0) {
        size_t room = SAY_MAX - running->n_pending;
        uint64_t may = COMMAND_SAID_MAX - running->said_bytes;
        size_t n = left < room ? left : room;

        if (may == 0) {
            running->unsaid_bytes += left;
            return;
        }
        n = n < may ? n : (size_t)may;
        memcpy(running->pending + running->n_pending, data, n);
        running->n_pending += n;
        running->said_bytes += n;
        data += n;
        left -= n;
        if (running->n_pending == SAY_MAX)
            say_lines(running);
    }
}

static enum berth_code capture(struct running *running, const ProtobufCBinaryData *bytes,
                               struct berth_error *err)
{
    struct command_end *end = running->end;
    size_t want = end->captured_size + bytes->len + 1;

    if (end->captured_size + bytes->len > running->command->capture_max)
        return berth_fail(err, BERTH_REASON_GATE_FAILED, "a check said more than %zu bytes",
                          running->command->capture_max);
    if (want > running->capture_size) {
        char *bigger = realloc(end->captured, want * 2);

        if (!bigger)
            return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        end->captured = bigger;
        running->capture_size = want * 2;
    }
    if (bytes->len > 0)
        memcpy(end->captured + end->captured_size, bytes->data, bytes->len);
    end->captured_size += bytes->len;
    end->captured[end->captured_size] = 0;
    return BERTH_OK;
}

/* What was left out of the middle, and then the end all the same. */
static void say_rest(struct running *running)
{
    const struct command_end *end = running->end;
    uint64_t left = running->unsaid_bytes;
    size_t n = end->tail_size < SAY_MAX ? end->tail_size : SAY_MAX;

    say_pending(running);
    if (left == 0)
        return;
    n = n < left ? n : (size_t)left;
    work_say(running->work, "[... %llu bytes left out ...]", (unsigned long long)(left - n));
    memcpy(running->pending, end->tail + end->tail_size - n, n);
    running->n_pending = n;
    say_pending(running);
}

/* ------------------------------------------------------------------------ its events */

static enum berth_code take_exit(struct running *running, const Berth__Data__V1__Exited *exited,
                                 struct berth_error *err)
{
    struct command_end *end = running->end;

    running->has_ended = true;
    say_rest(running);
    blame_mask(end->tail, end->tail_size);
    free(end->message);
    end->message = strdup(exited->message);
    switch (exited->reason) {
    case BERTH__DATA__V1__EXIT_REASON__EXIT_REASON_EXITED:
        end->exit_code = exited->exit_code;
        return BERTH_OK;
    case BERTH__DATA__V1__EXIT_REASON__EXIT_REASON_SIGNALED:
    case BERTH__DATA__V1__EXIT_REASON__EXIT_REASON_OUT_OF_MEMORY:
    case BERTH__DATA__V1__EXIT_REASON__EXIT_REASON_KILLED:
        end->is_signaled = true;
        end->signal = exited->signal;
        return BERTH_OK;
    case BERTH__DATA__V1__EXIT_REASON__EXIT_REASON_TIMED_OUT:
        return berth_fail(err, BERTH_REASON_DEADLINE, "the command was not done in time");
    case BERTH__DATA__V1__EXIT_REASON__EXIT_REASON_SPAWN_FAILED:
        end->exit_code = 127;
        return BERTH_OK;
    default:
        return berth_fail(err, BERTH_REASON_OUTCOME_UNKNOWN, "a command's end is not known");
    }
}

static enum berth_code take_event(struct running *running, const ProcessEvent *event,
                                  struct berth_error *err)
{
    const ProtobufCBinaryData *bytes = NULL;
    enum berth_code code = BERTH_OK;

    running->seq = event->seq > running->seq ? event->seq : running->seq;
    switch (event->event_case) {
    case BERTH__DATA__V1__PROCESS_EVENT__EVENT_STARTED:
        running->is_started = true;
        if (event->started && event->started->loss)
            return berth_fail(err, BERTH_REASON_SANDBOX_NOT_FOUND,
                              "the maintenance sandbox was lost");
        return BERTH_OK;
    case BERTH__DATA__V1__PROCESS_EVENT__EVENT_STDOUT:
        bytes = &event->stdout;
        break;
    case BERTH__DATA__V1__PROCESS_EVENT__EVENT_STDERR:
        bytes = &event->stderr;
        break;
    case BERTH__DATA__V1__PROCESS_EVENT__EVENT_EXITED:
        return event->exited ? take_exit(running, event->exited, err)
                             : berth_fail(err, BERTH_REASON_OUTCOME_UNKNOWN, NULL);
    case BERTH__DATA__V1__PROCESS_EVENT__EVENT_TRUNCATED:
        /* While nobody was attached. Of what is read by a machine nothing may be missing. */
        if (running->command->capture_max > 0)
            return berth_fail(err, BERTH_REASON_OUTCOME_UNKNOWN,
                              "output of a check was lost with the connection");
        return BERTH_OK;
    default: /* a heartbeat, or of a later version */
        return BERTH_OK;
    }
    if (bytes->len == 0)
        return BERTH_OK;
    running->printed_bytes += bytes->len;
    if (running->printed_bytes > COMMAND_PRINTED_MAX)
        return berth_fail(err, BERTH_REASON_GATE_FAILED,
                          "the command printed more than %d bytes", COMMAND_PRINTED_MAX);
    if (event->event_case == BERTH__DATA__V1__PROCESS_EVENT__EVENT_STDOUT &&
        running->command->capture_max > 0)
        code = capture(running, bytes, err);
    else
        take_output(running, bytes);
    return code;
}

/* Of Exec or Attach: one event each, in the field of the same number. */
static enum berth_code take_message(struct running *running, bool is_attached,
                                    struct berth_buf *msg, struct berth_error *err)
{
    const ProtobufCMessageDescriptor *type = is_attached
                                                 ? &berth__data__v1__attach_response__descriptor
                                                 : &berth__data__v1__exec_response__descriptor;
    ProtobufCMessage *message = NULL;
    const ProcessEvent *event;
    enum berth_code code = berth_buf_decode(type, msg, &message, err);

    if (code)
        return code;
    event = is_attached ? ((Berth__Data__V1__AttachResponse *)message)->event
                        : ((Berth__Data__V1__ExecResponse *)message)->event;
    if (event)
        code = take_event(running, event, err);
    berth_message_free(message);
    return code;
}

/* ----------------------------------------------------------------------- the request */

static bool set_env(Berth__Data__V1__Command *out, const char *name, const char *value)
{
    return berth_set_map(&out->n_env, &out->env,
                         &berth__data__v1__command__env_entry__descriptor, name, value);
}

static bool set_pairs(Berth__Data__V1__Command *out, const char *const *pairs, size_t n)
{
    bool ok = true;

    for (size_t i = 0; ok && i < n; i++) {
        const char *equals = strchr(pairs[i], '=');
        BERTH_AUTO(free) char *name = NULL;

        if (!equals)
            continue;
        name = strndup(pairs[i], (size_t)(equals - pairs[i]));
        ok = name && set_env(out, name, equals + 1);
    }
    return ok;
}

static bool set_wished(Berth__Data__V1__Command *out, json_t *env)
{
    const char *name;
    json_t *value;
    bool ok = true;

    json_object_foreach(env, name, value)
    {
        if (json_is_string(value))
            ok = ok && set_env(out, name, json_string_value(value));
    }
    return ok;
}

static ExecRequest *make_request(const struct running *running, int64_t timeout_ms)
{
    const struct command *command = running->command;
    const struct work *work = running->work;
    ExecRequest *req = berth_message_new(&berth__data__v1__exec_request__descriptor);
    Berth__Data__V1__Command *out = berth_message_new(&berth__data__v1__command__descriptor);
    bool ok = req && out;

    if (req)
        req->command = out;
    else
        berth_message_free(out);
    if (ok) {
        req->session = berth_message_copy(&work->ref);
        out->argv = berth_message_new(&berth__data__v1__argv__descriptor);
        out->run_case = BERTH__DATA__V1__COMMAND__RUN_ARGV;
        out->timeout = berth_duration(timeout_ms);
        out->account = command->as_user ? BERTH__DATA__V1__ACCOUNT__ACCOUNT_USER
                                        : BERTH__DATA__V1__ACCOUNT__ACCOUNT_ROOT;
        ok = req->session && out->argv && out->timeout &&
             berth_set_string(&req->turn_token, work->turn_token) &&
             berth_set_string(&out->exec_id, running->exec_id) &&
             berth_set_string(&out->cwd, command->directory ? command->directory : "/") &&
             set_pairs(out, command->defaults, command->n_defaults) &&
             (command->is_bare || set_wished(out, work->env));
    }
    for (size_t i = 0; ok && i < BERTH_COUNT(command->env); i++)
        ok = !command->env[i] ||
             set_pairs(out, (const char *const *)command->env[i]->items, command->env[i]->n);
    for (size_t i = 0; ok && i < command->n_argv; i++)
        ok = berth_add_string(&out->argv->n_args, &out->argv->args, command->argv[i]);
    if (ok && command->input_size > 0)
        ok = berth_set_bytes(&req->initial_stdin, command->input, command->input_size);
    return ok ? req : berth_message_free(req);
}

static struct berth_buf *pack_attach(const struct running *running)
{
    Berth__Data__V1__AttachRequest req = BERTH__DATA__V1__ATTACH_REQUEST__INIT;
    Berth__Data__V1__ProcessRef process = BERTH__DATA__V1__PROCESS_REF__INIT;

    process.key_case = BERTH__DATA__V1__PROCESS_REF__KEY_EXEC_ID;
    process.exec_id = (char *)running->exec_id;
    req.session = (Berth__Common__V1__SessionRef *)&running->work->ref;
    req.process = &process;
    req.after_seq = running->seq;
    return berth_buf_pack(&req.base);
}

/* ------------------------------------------------------------------------- the whole */

/* One call, to its end or until it breaks. */
static enum berth_code follow(struct running *running, const ExecRequest *req, int64_t end_tick,
                              bool *ret_broke, struct berth_error *err)
{
    bool attaches = running->is_started;
    BERTH_AUTO(flow_free)
    struct flow *flow = flow_new(&running->work->patience, running->work->skills->dataplane,
                                 attaches ? ATTACH : EXEC, end_tick);
    enum berth_code code;

    *ret_broke = false;
    if (!flow)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    code = flow_send(flow, attaches ? pack_attach(running) : berth_buf_pack(&req->base), true,
                     err);
    while (!code && !running->has_ended) {
        BERTH_AUTO(berth_buf_unref) struct berth_buf *msg = NULL;

        if (!flow_has_next(flow))
            say_pending(running);
        code = flow_next(flow, QUIET_MAX_MS, &msg, err);
        if (!code && !msg)
            code = berth_fail(err, BERTH_REASON_OUTCOME_UNKNOWN,
                              "the stream of a command ended before the command");
        *ret_broke = code == BERTH_UNAVAILABLE || code == BERTH_UNKNOWN;
        if (!code)
            code = take_message(running, attaches, msg, err);
    }
    if (running->has_ended)
        *ret_broke = false;
    return code;
}

enum berth_code command_run(struct work *work, const struct command *command,
                            struct command_end *ret, struct berth_error *err)
{
    int64_t timeout_ms = command->timeout_ms ? command->timeout_ms : work->wish.step_timeout_ms;
    int64_t end_tick = berth_tick_ms() + timeout_ms + TIMEOUT_SLACK_MS;
    struct running running = {.work = work, .command = command, .end = ret};
    struct berth_error why = {0};
    int64_t mend_tick = 0;
    enum berth_code code, waited;
    ExecRequest *req;
    bool broke;

    if (command->input_size > COMMAND_INPUT_MAX)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "%zu bytes of input",
                          command->input_size);
    snprintf(running.exec_id, sizeof running.exec_id, "%s-%u", work->id, ++work->n_commands);
    req = make_request(&running, timeout_ms);
    if (!req)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    for (;;) {
        uint64_t seq = running.seq;

        code = follow(&running, req, end_tick, &broke, &why);
        if (!code || !broke)
            break;
        if (mend_tick == 0 || running.seq > seq)
            mend_tick = berth_tick_ms() + MEND_MAX_MS;
        waited = flow_pause(&work->patience, MEND_EVERY_MS, mend_tick, NULL);
        if (waited == BERTH_CANCELLED)
            code = berth_fail(&why, BERTH_REASON_CANCELLED, "it was stopped");
        if (waited)
            break;
    }
    say_pending(&running);
    berth_message_free(req);
    if (why.reason == BERTH_REASON_PROCESS_NOT_FOUND)
        code = berth_fail(&why, BERTH_REASON_OUTCOME_UNKNOWN,
                          "the connection broke, and the command is known no more");
    if (code && err)
        *err = why;
    return code;
}

enum berth_code command_run_script(struct work *work, const struct command *command,
                                   const char *script, struct command_end *ret,
                                   struct berth_error *err, ...)
{
    const char *argv[WORDS_MAX + 5] = {"/bin/sh", "-c", script, "berth", work->id};
    struct command run = *command;
    const char *word;
    enum berth_code code;
    va_list words;

    run.argv = argv;
    run.n_argv = 5;
    va_start(words, err);
    while ((word = va_arg(words, const char *)) && run.n_argv < BERTH_COUNT(argv))
        argv[run.n_argv++] = word;
    va_end(words);
    code = command_run(work, &run, ret, err);
    if (!code && !ret->is_signaled && ret->exit_code == NOT_OURS)
        return berth_fail(err, BERTH_REASON_SANDBOX_NOT_FOUND,
                          "the maintenance sandbox is not the one that was opened");
    return code;
}
