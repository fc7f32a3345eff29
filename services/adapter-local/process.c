/* process.c - one connection to sup.sock per request, on the loop. The supervisor does all the
 * work (spawner/server.c); here are frames in and events out. */
#include "services/adapter-local/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "common/time/time.h"
#include "services/adapter-local/spawner/wire.h"
#include "services/adapter-local/target.h"

enum {
    CONNECT_RETRY_MS = 5,  /* the supervisor's backlog is full */
    CONNECT_MAX_MS = 5000, /* then it is given up */
    SILENCE_MAX_MS = 60000 /* four heartbeats */
};

struct adapter_request {
    struct adapter *adapter;
    struct berth_loop *loop;
    const struct adapter_sink *sink;
    void *ctx;
    enum adapter_ask_kind kind;
    char sandbox_id[ADAPTER_ROUTE_ID_SIZE];

    int dir_fd, fd;
    bool connected;
    struct berth_watch *watch;
    uint32_t watched; /* events watched for; 0: not watched */
    struct berth_timer *timer;
    int64_t begun_tick_ms, heard_tick_ms;

    struct wire_frame out;
    size_t sent;
    struct wire_reader in;
    bool wanted;  /* one event, please */
    bool pumping; /* inside pump(): close() leaves the rest to it */
    bool over;    /* the last event was given */
    bool closed;
    bool any_event;
};

static void pump(struct adapter_request *request);

static void request_free(struct adapter_request *request)
{
    berth_timer_cancel(request->timer);
    berth_loop_unwatch(request->watch);
    closep(&request->fd);
    closep(&request->dir_fd);
    free(request->out.data);
    wire_reader_deinit(&request->in);
    free(request);
}

static void fail(struct adapter_request *request, enum berth_code code,
                 const struct berth_error *err)
{
    request->over = true;
    request->wanted = false;
    request->sink->failed(request->ctx, code, err);
}

/* The connection is of no use any more. */
static void fail_broken(struct adapter_request *request, const char *why)
{
    bool harmless = request->kind == ADAPTER_ASK_LIST ||
                    (request->kind == ADAPTER_ASK_ATTACH && !request->any_event);
    struct berth_error err = {0};
    enum berth_code code;

    /* Half a request is no request to the supervisor. */
    if (request->sent < request->out.size || harmless)
        code = berth_fail(&err, BERTH_REASON_BACKEND_UNAVAILABLE,
                          "the sandbox's supervisor: %s", why);
    else
        code =
            berth_fail(&err, BERTH_REASON_OUTCOME_UNKNOWN, "the sandbox's supervisor: %s", why);
    berth_error_set(err.sandbox_id, sizeof err.sandbox_id, request->sandbox_id);
    fail(request, code, &err);
}

/* --------------------------------------------------------------------- requests */

static int encode_start(const struct adapter_ask *ask, struct wire_frame *ret)
{
    const Berth__Data__V1__Command *command = ask->command;
    BERTH_AUTO(free) struct wire_start *start = calloc(1, sizeof *start);
    BERTH_AUTO(free) char *strings = NULL;
    bool shell = command->run_case == BERTH__DATA__V1__COMMAND__RUN_SHELL;
    size_t n_args = shell ? 1 : command->argv->n_args, size = 0;
    char *const *args = shell ? (char *const *)&command->shell : command->argv->args;
    char *at;

    for (size_t i = 0; i < n_args; i++)
        size += strlen(args[i]) + 1;
    for (size_t i = 0; i < command->n_env; i++)
        size += strlen(command->env[i]->key) + strlen(command->env[i]->value) + 2;
    strings = malloc(size);
    if (!start || !strings)
        return -1;
    at = strings;
    for (size_t i = 0; i < n_args; i++)
        at = stpcpy(at, args[i]) + 1;
    start->args = (struct wire_strings){(uint32_t)n_args, strings, (size_t)(at - strings)};
    start->env.bytes = at;
    for (size_t i = 0; i < command->n_env; i++) {
        at = stpcpy(at, command->env[i]->key);
        *at++ = '=';
        at = stpcpy(at, command->env[i]->value) + 1;
    }
    start->env.n = (uint32_t)command->n_env;
    start->env.size = (size_t)(at - start->env.bytes);
    snprintf(start->exec_id, sizeof start->exec_id, "%s", command->exec_id);
    snprintf(start->digest, sizeof start->digest, "%s", ask->digest);
    snprintf(start->cwd, sizeof start->cwd, "%s", command->cwd);
    start->shell = shell;
    start->root = command->account == BERTH__DATA__V1__ACCOUNT__ACCOUNT_ROOT;
    start->keep_stdin_open = ask->keep_stdin_open;
    start->detach = ask->detach;
    start->collect = ask->collect > 0;
    start->timeout_ms = ask->timeout_ms;
    start->max_output = (int64_t)(ask->collect ? ask->collect : ask->max_output);
    start->stdin_data = ask->data;
    start->stdin_size = ask->size;
    return wire_encode_start(start, ret);
}

static void set_ref(struct wire_ref *ref, const struct adapter_ask *ask)
{
    snprintf(ref->exec_id, sizeof ref->exec_id, "%s", ask->exec_id);
    ref->pid = ask->pid;
}

static int encode(const struct adapter_ask *ask, struct wire_frame *ret)
{
    struct wire_attach attach = {.after_seq = ask->after_seq};
    struct wire_input input = {.offset = ask->offset,
                               .unchecked = ask->unchecked,
                               .end_of_file = ask->end_of_file,
                               .data = ask->data,
                               .size = ask->size};
    struct wire_signal signal = {.signal = ask->signal, .leader_only = ask->leader_only};

    switch (ask->kind) {
    case ADAPTER_ASK_START:
        return encode_start(ask, ret);
    case ADAPTER_ASK_ATTACH:
        set_ref(&attach.ref, ask);
        return wire_encode_attach(&attach, ret);
    case ADAPTER_ASK_INPUT:
        set_ref(&input.ref, ask);
        return wire_encode_input(&input, ret);
    case ADAPTER_ASK_SIGNAL:
        set_ref(&signal.ref, ask);
        return wire_encode_signal(&signal, ret);
    default:
        return wire_encode_empty(WIRE_LIST, ret);
    }
}

/* ------------------------------------------------------------------------ events */

static void give(struct adapter_request *request, const struct adapter_event *event, bool last)
{
    request->wanted = false;
    request->over = last;
    request->any_event = true;
    request->sink->event(request->ctx, event);
}

static void set_exited(struct adapter_exited *to, const struct wire_exited *from)
{
    *to = (struct adapter_exited){.reason = (Berth__Data__V1__ExitReason)from->reason,
                                  .exit_code = from->exit_code,
                                  .signal = from->signal,
                                  .wall_us = from->wall_us,
                                  .cpu_us = from->cpu_us,
                                  .stdout_bytes = from->bytes[WIRE_STDOUT],
                                  .stderr_bytes = from->bytes[WIRE_STDERR],
                                  .stream_held_open = from->stream_held_open,
                                  .message = from->message};
}

static enum berth_code on_started(struct adapter_request *request, const uint8_t *payload,
                                  size_t size, struct berth_error *err)
{
    struct wire_started started;
    struct adapter_event event = {.kind = ADAPTER_EVENT_STARTED, .seq = 1};
    enum berth_code code = wire_decode_started(payload, size, &started, err);

    if (code)
        return code;
    event.exec_id = started.exec_id;
    event.pid = started.pid;
    event.start_ms = started.start_ms;
    event.attached = started.attached;
    give(request, &event, false);
    return BERTH_OK;
}

static enum berth_code on_output(struct adapter_request *request, const uint8_t *payload,
                                 size_t size, struct berth_error *err)
{
    struct wire_output output;
    struct adapter_event event = {.kind = ADAPTER_EVENT_OUTPUT};
    enum berth_code code = wire_decode_output(payload, size, &output, err);

    if (code)
        return code;
    event.seq = output.seq;
    event.stream = output.stream == WIRE_STDOUT ? ADAPTER_STDOUT : ADAPTER_STDERR;
    event.data = output.data;
    event.size = output.size;
    give(request, &event, false);
    return BERTH_OK;
}

static enum berth_code on_truncated(struct adapter_request *request, const uint8_t *payload,
                                    size_t size, struct berth_error *err)
{
    struct wire_truncated truncated;
    struct adapter_event event = {.kind = ADAPTER_EVENT_TRUNCATED};
    enum berth_code code = wire_decode_truncated(payload, size, &truncated, err);

    if (code)
        return code;
    event.seq = truncated.seq;
    event.from_seq = truncated.from_seq;
    event.dropped = truncated.dropped;
    event.stream = truncated.stream == WIRE_STDOUT ? ADAPTER_STDOUT : ADAPTER_STDERR;
    give(request, &event, false);
    return BERTH_OK;
}

static enum berth_code on_exited(struct adapter_request *request, const uint8_t *payload,
                                 size_t size, struct berth_error *err)
{
    struct wire_exited wire;
    struct adapter_exited exited;
    struct adapter_event event = {.kind = ADAPTER_EVENT_EXITED, .exited = &exited};
    enum berth_code code = wire_decode_exited(payload, size, &wire, err);

    if (code)
        return code;
    set_exited(&exited, &wire);
    event.seq = wire.seq;
    give(request, &event, true);
    return BERTH_OK;
}

static enum berth_code on_process(struct adapter_request *request, const uint8_t *payload,
                                  size_t size, struct berth_error *err)
{
    BERTH_AUTO(free) struct wire_process *wire = malloc(sizeof *wire);
    const char *args[WIRE_SHOWN_MAX];
    struct adapter_exited exited;
    struct adapter_process process;
    struct adapter_event event = {.kind = ADAPTER_EVENT_PROCESS, .process = &process};
    enum berth_code code;
    const char *at;

    if (!wire)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    code = wire_decode_process(payload, size, wire, err);
    if (code)
        return code;
    at = wire->args.bytes;
    for (uint32_t i = 0; i < wire->args.n; i++, at += strlen(at) + 1)
        args[i] = at;
    process = (struct adapter_process){.exec_id = wire->exec_id,
                                       .cwd = wire->cwd,
                                       .pid = wire->pid,
                                       .shell = wire->shell,
                                       .root = wire->root,
                                       .detached = wire->detached,
                                       .args = args,
                                       .n_args = wire->args.n,
                                       .start_ms = wire->start_ms,
                                       .timeout_ms = wire->timeout_ms,
                                       .last_seq = wire->last_seq};
    if (wire->ended) {
        set_exited(&exited, &wire->exited);
        process.exited = &exited;
    }
    give(request, &event, false);
    return BERTH_OK;
}

static enum berth_code on_simple(struct adapter_request *request, enum wire_type type,
                                 const uint8_t *payload, size_t size, struct berth_error *err)
{
    struct adapter_event event = {.kind = ADAPTER_EVENT_LIST_DONE};
    struct wire_heartbeat heartbeat;
    enum berth_code code = BERTH_OK;

    switch (type) {
    case WIRE_HEARTBEAT:
        code = wire_decode_heartbeat(payload, size, &heartbeat, err);
        event.kind = ADAPTER_EVENT_HEARTBEAT;
        if (code == BERTH_OK) {
            event.seq = heartbeat.seq;
            event.now_ms = heartbeat.now_ms;
        }
        break;
    case WIRE_INPUT_DONE:
        event.kind = ADAPTER_EVENT_INPUT_DONE;
        code = wire_decode_input_done(payload, size, &event.next_offset, err);
        break;
    case WIRE_SIGNAL_DONE:
        event.kind = ADAPTER_EVENT_SIGNAL_DONE;
        code = wire_decode_signal_done(payload, size, &event.existed, err);
        break;
    case WIRE_LIST_DONE:
        break;
    default:
        return berth_fail_field(err, "frame", "not an answer");
    }
    if (code == BERTH_OK)
        give(request, &event, type != WIRE_HEARTBEAT);
    return code;
}

/* Which answers a request may get. */
static bool fits(enum adapter_ask_kind kind, enum wire_type type)
{
    switch (type) {
    case WIRE_STARTED:
    case WIRE_OUTPUT:
    case WIRE_TRUNCATED:
    case WIRE_EXITED:
    case WIRE_HEARTBEAT:
        return kind == ADAPTER_ASK_START || kind == ADAPTER_ASK_ATTACH;
    case WIRE_INPUT_DONE:
        return kind == ADAPTER_ASK_INPUT;
    case WIRE_SIGNAL_DONE:
        return kind == ADAPTER_ASK_SIGNAL;
    case WIRE_PROCESS:
    case WIRE_LIST_DONE:
        return kind == ADAPTER_ASK_LIST;
    default:
        return type == WIRE_ERROR;
    }
}

static void on_frame(struct adapter_request *request, enum wire_type type,
                     const uint8_t *payload, size_t size)
{
    struct berth_error err = {0};
    enum berth_code code;

    if (!fits(request->kind, type)) {
        fail_broken(request, "an answer to another request");
        return;
    }
    switch (type) {
    case WIRE_ERROR:
        code = wire_decode_error(payload, size, &err);
        berth_error_set(err.sandbox_id, sizeof err.sandbox_id, request->sandbox_id);
        fail(request, code, &err);
        return;
    case WIRE_STARTED:
        code = on_started(request, payload, size, &err);
        break;
    case WIRE_OUTPUT:
        code = on_output(request, payload, size, &err);
        break;
    case WIRE_TRUNCATED:
        code = on_truncated(request, payload, size, &err);
        break;
    case WIRE_EXITED:
        code = on_exited(request, payload, size, &err);
        break;
    case WIRE_PROCESS:
        code = on_process(request, payload, size, &err);
        break;
    default:
        code = on_simple(request, type, payload, size, &err);
        break;
    }
    if (code)
        fail_broken(request, err.text);
}

/* -------------------------------------------------------------------- connection */

static void on_ready(void *arg, uint32_t events);
static void on_timer(void *arg);

static void watch(struct adapter_request *request, uint32_t events)
{
    if (events == request->watched)
        return;
    if (events == 0 || request->fd < 0) {
        /* Not watched at all: the end of a socket cannot be masked out. */
        request->watch = berth_loop_unwatch(request->watch);
        request->watched = 0;
        return;
    }
    if (request->watch) {
        berth_watch_set(request->watch, events);
    } else if (berth_loop_watch(request->loop, request->fd, events, on_ready, request,
                                &request->watch, NULL) != BERTH_OK) {
        fail_broken(request, "out of memory");
        return;
    }
    request->watched = events;
}

/* 0 or an errno. */
static int try_connect(struct adapter_request *request)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    /* By descriptor: the state directory's path may be longer than a socket's may. */
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/sup.sock",
             request->dir_fd);
    if (connect(request->fd, (struct sockaddr *)&address, sizeof address) < 0)
        return errno;
    request->connected = true;
    closep(&request->dir_fd);
    request->dir_fd = -1;
    return 0;
}

/* Returns false when the connection is broken. */
static bool push(struct adapter_request *request)
{
    while (request->sent < request->out.size) {
        ssize_t n = send(request->fd, request->out.data + request->sent,
                         request->out.size - request->sent, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK;
        request->sent += (size_t)n;
    }
    free(request->out.data);
    request->out.data = NULL;
    return true;
}

static void pull(struct adapter_request *request)
{
    const uint8_t *payload;
    enum wire_type type;
    size_t size;

    while (request->wanted && !request->over && !request->closed) {
        switch (wire_read(&request->in, request->fd, &type, &payload, &size)) {
        case WIRE_READ_FRAME:
            request->heard_tick_ms = berth_tick_ms();
            on_frame(request, type, payload, size);
            break;
        case WIRE_READ_AGAIN:
            return;
        default:
            fail_broken(request, "the connection broke");
            break;
        }
    }
}

static void pump(struct adapter_request *request)
{
    uint32_t events = 0;

    if (request->pumping)
        return;
    request->pumping = true;
    if (request->connected && !request->over && !request->closed) {
        /* A refusal may come before the whole request is out, so look for answers first. */
        pull(request);
        if (!request->over && !request->closed && !push(request))
            pull(request); /* its last words */
        if (request->wanted)
            events |= EPOLLIN;
        if (request->sent < request->out.size)
            events |= EPOLLOUT;
    }
    request->pumping = false;
    if (request->closed) {
        request_free(request);
        return;
    }
    if (!request->over)
        watch(request, events);
    else
        watch(request, 0);
}

static void on_ready(void *arg, uint32_t events)
{
    struct adapter_request *request = arg;

    (void)events;
    if (!request->wanted && request->sent == request->out.size)
        watch(request, 0); /* nobody takes anything just now */
    else
        pump(request);
}

static void fail_unreachable(struct adapter_request *request, int why)
{
    struct berth_error err = {0};
    enum berth_code code;

    if (why == EAGAIN)
        code = berth_fail(&err, BERTH_REASON_OVERLOADED,
                          "the sandbox's supervisor takes no more connections");
    else
        code = local_why_silent(request->adapter, request->sandbox_id, &err);
    fail(request, code, &err);
}

static void on_timer(void *arg)
{
    struct adapter_request *request = arg;
    int64_t now = berth_tick_ms(), after = SILENCE_MAX_MS;
    int why;

    request->timer = NULL;
    request->pumping = true; /* a close() from a callback waits until we are through */
    if (!request->connected) {
        why = try_connect(request);
        after = why ? CONNECT_RETRY_MS : SILENCE_MAX_MS;
        if (why && (why != EAGAIN || now - request->begun_tick_ms > CONNECT_MAX_MS))
            fail_unreachable(request, why);
        request->heard_tick_ms = now;
    } else if (request->wanted && now - request->heard_tick_ms >= SILENCE_MAX_MS &&
               (request->kind == ADAPTER_ASK_START || request->kind == ADAPTER_ASK_ATTACH)) {
        fail_broken(request, "silent for too long");
    }
    request->pumping = false;
    if (!request->over && !request->closed)
        request->timer = berth_loop_timer(request->loop, after, on_timer, request);
    pump(request);
}

/* ---------------------------------------------------------------------------- ops */

static enum berth_code ask_supervisor(struct adapter *adapter, struct berth_loop *loop,
                                      const struct adapter_route *route,
                                      const struct adapter_ask *ask,
                                      const struct adapter_sink *sink, void *ctx,
                                      struct adapter_request **ret, struct berth_error *err)
{
    struct adapter_request *request = calloc(1, sizeof *request);
    enum berth_code code;
    int why = 0;

    if (!request)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    request->adapter = adapter;
    request->loop = loop;
    request->sink = sink;
    request->ctx = ctx;
    request->kind = ask->kind;
    request->dir_fd = request->fd = -1;
    request->begun_tick_ms = request->heard_tick_ms = berth_tick_ms();
    snprintf(request->sandbox_id, sizeof request->sandbox_id, "%s", route->sandbox_id);
    code = local_open_dir(adapter, route->sandbox_id, &request->dir_fd, err);
    if (code == BERTH_OK && encode(ask, &request->out))
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (code == BERTH_OK) {
        request->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (request->fd < 0)
            code = berth_fail(err, BERTH_REASON_OVERLOADED, "no more descriptors");
    }
    if (code == BERTH_OK) {
        why = try_connect(request);
        if (why && why != EAGAIN)
            code = local_why_silent(adapter, route->sandbox_id, err);
    }
    if (code == BERTH_OK) {
        request->timer =
            berth_loop_timer(loop, why ? CONNECT_RETRY_MS : SILENCE_MAX_MS, on_timer, request);
        if (!request->timer)
            code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    if (code) {
        request_free(request);
        return code;
    }
    *ret = request;
    return BERTH_OK;
}

static void next(struct adapter_request *request)
{
    if (request->over)
        return;
    request->wanted = true;
    pump(request);
}

static void close_request(struct adapter_request *request, bool given_up)
{
    struct wire_frame cancel = {0};

    if (given_up && request->kind == ADAPTER_ASK_START && request->connected &&
        !request->over && request->sent == request->out.size &&
        wire_encode_empty(WIRE_CANCEL, &cancel) == 0) {
        /* The supervisor has read the request, so there is room for these few bytes. */
        (void)!send(request->fd, cancel.data, cancel.size, MSG_NOSIGNAL | MSG_DONTWAIT);
        free(cancel.data);
    }
    request->closed = true;
    if (!request->pumping)
        request_free(request);
}

const struct adapter_process_ops local_process_ops = {
    .ask = ask_supervisor, .next = next, .close = close_request};
