/* server.c - connections of the adapter: one request each, then its answers. */
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "common/time/time.h"
#include "services/adapter-local/spawner/engine.h"

enum {
    ACCEPTS_MAX = 64, /* in one go */
    EVENTS_MAX = 32,  /* sent to one reader in one go */
    LIST_MAX = 1024,  /* commands in one answer: what runs, then the newest results */
};

struct conn {
    struct server *server;
    struct conn *next, **slot;
    int fd;
    struct berth_watch *watch;
    bool wants_write;
    struct wire_reader in;
    bool asked;                /* the request was taken */
    bool owner;                /* by START: cancelling it ends the command */
    bool closing;              /* nothing follows what is being sent */
    struct berth_timer *timer; /* for the request, then between heartbeats */

    /* What is being sent: bytes of our own, then a chunk of a ring. */
    uint8_t *out; /* owned */
    size_t out_size, out_sent;
    const uint8_t *chunk;
    size_t chunk_size;
    struct reader_event event; /* done when all of it is sent */

    struct exec_reader reader;
    struct feed_request input;
};

struct server {
    struct engine *engine;
    struct berth_watch *watch;
    struct berth_timer *retry;
    struct conn *conns;
    unsigned n_conns;
};

#define CONTAINER_OF(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

static void pump(struct conn *conn);

static void conn_free(struct conn *conn)
{
    struct server *server = conn->server;

    *conn->slot = conn->next;
    if (conn->next)
        conn->next->slot = conn->slot;
    server->n_conns--;
    berth_timer_cancel(conn->timer);
    berth_loop_unwatch(conn->watch);
    reader_detach(&conn->reader);
    feed_cancel(&conn->input);
    wire_reader_deinit(&conn->in);
    closep(&conn->fd);
    free(conn->out);
    free(conn);
}

/* Answer with one last frame; taken. code: of the encoder. */
static void answer(struct conn *conn, int failed, struct wire_frame frame)
{
    conn->closing = true;
    if (failed) {
        /* No memory for an answer: the adapter sees a broken connection. */
        shutdown(conn->fd, SHUT_RDWR);
        return;
    }
    free(conn->out);
    conn->out = frame.data;
    conn->out_size = frame.size;
    conn->out_sent = 0;
}

static void answer_error(struct conn *conn, const struct berth_error *err)
{
    struct wire_frame frame = {0};

    answer(conn, wire_encode_error(err, &frame), frame);
}

/* Sends what is ready. 1: all of it; 0: the socket is full; -1: broken. */
static int flush(struct conn *conn)
{
    while (conn->out_sent < conn->out_size + conn->chunk_size) {
        struct iovec iov[2];
        struct msghdr msg = {.msg_iov = iov};
        size_t sent = conn->out_sent;
        ssize_t n;

        if (sent < conn->out_size) {
            iov[msg.msg_iovlen++] = (struct iovec){conn->out + sent, conn->out_size - sent};
            sent = conn->out_size;
        }
        if (sent - conn->out_size < conn->chunk_size)
            iov[msg.msg_iovlen++] =
                (struct iovec){(void *)(conn->chunk + (sent - conn->out_size)),
                               conn->chunk_size - (sent - conn->out_size)};
        n = sendmsg(conn->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -1;
        conn->out_sent += (size_t)n;
    }
    free(conn->out);
    conn->out = NULL;
    conn->out_size = conn->out_sent = conn->chunk_size = 0;
    conn->chunk = NULL;
    if (conn->event.kind != READER_NOTHING && conn->reader.exec)
        reader_done(&conn->reader, &conn->event);
    conn->event.kind = READER_NOTHING;
    return 1;
}

/* Append a frame (taken) to what is sent. */
static int append(struct conn *conn, struct wire_frame frame)
{
    uint8_t *bigger = conn->out ? realloc(conn->out, conn->out_size + frame.size) : frame.data;

    if (conn->out && bigger)
        memcpy(bigger + conn->out_size, frame.data, frame.size);
    if (conn->out)
        free(frame.data);
    if (!bigger)
        return -1;
    conn->out = bigger;
    conn->out_size += frame.size;
    return 0;
}

/* Started goes out with what follows it at once: of a collected command that is its end. */
static int prepare_started(struct conn *conn, const struct reader_event *event)
{
    const struct exec *exec = conn->reader.exec;
    struct wire_started started = {
        .pid = exec->inner_pid, .start_ms = exec->start_ms, .attached = conn->reader.attached};
    struct wire_frame frame = {0};

    memcpy(started.exec_id, exec->id, strlen(exec->id) + 1);
    if (wire_encode_started(&started, &frame))
        return -1;
    reader_done(&conn->reader, event);
    return append(conn, frame);
}

/* Make the next event ready to be sent. False: there is none, or no memory. */
static bool prepare(struct conn *conn)
{
    struct exec *exec = conn->reader.exec;
    struct reader_event event = reader_next(&conn->reader);
    struct wire_frame frame = {0};
    struct wire_output output;
    int failed = 0;

    if (event.kind == READER_STARTED) {
        failed = prepare_started(conn, &event);
        if (!failed)
            event = reader_next(&conn->reader);
    }
    switch (event.kind) {
    case READER_NOTHING:
        return conn->out_size > 0;
    case READER_STARTED: /* no memory */
        break;
    case READER_OUTPUT:
        output = (struct wire_output){.seq = event.chunk->seq,
                                      .stream = event.stream,
                                      .data = event.chunk->data,
                                      .size = event.chunk->size};
        frame.data = malloc(WIRE_OUTPUT_HEAD_SIZE);
        frame.size = WIRE_OUTPUT_HEAD_SIZE;
        failed = frame.data ? 0 : -1;
        if (!failed)
            wire_encode_output_head(&output, frame.data);
        conn->chunk = output.data;
        conn->chunk_size = failed ? 0 : output.size;
        break;
    case READER_TRUNCATED:
        failed = wire_encode_truncated(&event.truncated, &frame);
        break;
    case READER_EXITED:
        failed = wire_encode_exited(&exec->exited, &frame);
        conn->closing = true;
        break;
    }
    if (!failed)
        failed = append(conn, frame);
    if (failed) {
        conn->closing = true;
        conn->chunk_size = 0;
        shutdown(conn->fd, SHUT_RDWR);
        return false;
    }
    conn->event = event;
    return true;
}

static void want_write(struct conn *conn, bool wanted)
{
    if (wanted == conn->wants_write)
        return;
    conn->wants_write = wanted;
    berth_watch_set(conn->watch, wanted ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

static void heartbeat(void *arg)
{
    struct conn *conn = arg;
    struct wire_heartbeat beat = {.seq = conn->reader.cursor - 1, .now_ms = berth_now_ms()};
    struct wire_frame frame = {0};

    conn->timer = NULL;
    if (conn->out_size == 0 && wire_encode_heartbeat(&beat, &frame) == 0) {
        conn->out = frame.data;
        conn->out_size = frame.size;
    }
    pump(conn);
}

/* Send while the socket takes it and there is something. May free conn. */
static void pump(struct conn *conn)
{
    struct exec *exec = conn->reader.exec;
    bool moved = false, more = false;
    int sent = 1;

    for (int i = 0; i < EVENTS_MAX; i++) {
        if (conn->out_size > 0) {
            sent = flush(conn);
            moved = true;
            if (sent <= 0)
                break;
        }
        if (conn->closing) {
            conn_free(conn);
            return;
        }
        if (!conn->reader.exec || !prepare(conn))
            break;
        more = i + 1 == EVENTS_MAX;
    }
    if (sent < 0) {
        conn_free(conn);
        return;
    }
    /* EVENTS_MAX were sent: others have their turn before the socket calls again. */
    want_write(conn, sent == 0 || more);
    if (!conn->reader.exec)
        return;
    if (moved || !conn->timer) {
        berth_timer_cancel(conn->timer);
        conn->timer =
            berth_loop_timer(conn->server->engine->loop,
                             conn->server->engine->limits->heartbeat_ms, heartbeat, conn);
    }
    if (moved)
        output_watch(exec); /* it may have been held back for this reader */
}

static void wake(struct exec_reader *reader)
{
    struct conn *conn = CONTAINER_OF(reader, struct conn, reader);

    if (!conn->wants_write)
        pump(conn);
}

static enum berth_code check_awake(struct conn *conn, struct berth_error *err)
{
    if (engine_paused(conn->server->engine))
        return berth_fail(err, BERTH_REASON_SANDBOX_PAUSED, NULL);
    engine_touch(conn->server->engine);
    return BERTH_OK;
}

static enum berth_code find(struct conn *conn, const struct wire_ref *ref, struct exec **ret,
                            struct berth_error *err)
{
    *ret = engine_find(conn->server->engine, ref);
    if (*ret)
        return BERTH_OK;
    if (ref->exec_id[0] != 0)
        return berth_fail(err, BERTH_REASON_PROCESS_NOT_FOUND, "no command '%s'", ref->exec_id);
    return berth_fail(err, BERTH_REASON_PROCESS_NOT_FOUND, "no command with pid %u", ref->pid);
}

static enum berth_code on_start(struct conn *conn, const uint8_t *payload, size_t size,
                                struct berth_error *err)
{
    struct engine *engine = conn->server->engine;
    BERTH_AUTO(free) struct wire_start *start = malloc(sizeof *start);
    struct wire_ref ref = {0};
    struct exec *exec;
    enum berth_code code;
    bool repeated;

    if (!start)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    code = wire_decode_start(payload, size, start, err);
    if (code == BERTH_OK)
        code = check_awake(conn, err);
    if (code)
        return code;
    memcpy(ref.exec_id, start->exec_id, sizeof ref.exec_id);
    exec = engine_find(engine, &ref);
    repeated = exec != NULL;
    if (repeated && strcmp(exec->digest, start->digest) != 0)
        return berth_fail(err, BERTH_REASON_EXEC_ID_REUSED, "exec_id '%s' is another command",
                          exec->id);
    if (!repeated) {
        code = exec_start(engine, start, &exec, err);
        if (code)
            return code;
    }
    exec->abandoned = false;
    conn->owner = true;
    return reader_attach(&conn->reader, exec, 0, repeated, err);
}

static enum berth_code on_attach(struct conn *conn, const uint8_t *payload, size_t size,
                                 struct berth_error *err)
{
    struct wire_attach attach;
    struct exec *exec;
    enum berth_code code = wire_decode_attach(payload, size, &attach, err);

    if (code == BERTH_OK)
        code = check_awake(conn, err);
    if (code == BERTH_OK)
        code = find(conn, &attach.ref, &exec, err);
    return code ? code : reader_attach(&conn->reader, exec, attach.after_seq, true, err);
}

static void input_finished(struct feed_request *request, enum berth_code code,
                           uint64_t next_offset, const struct berth_error *err)
{
    struct conn *conn = CONTAINER_OF(request, struct conn, input);
    struct wire_frame frame = {0};

    if (code)
        answer_error(conn, err);
    else
        answer(conn, wire_encode_input_done(next_offset, &frame), frame);
    want_write(conn, true); /* sent by the loop: we are inside the command's own work */
}

static enum berth_code on_input(struct conn *conn, const uint8_t *payload, size_t size,
                                struct berth_error *err)
{
    struct wire_input input;
    struct exec *exec;
    enum berth_code code = wire_decode_input(payload, size, &input, err);

    if (code == BERTH_OK)
        code = check_awake(conn, err);
    if (code == BERTH_OK)
        code = find(conn, &input.ref, &exec, err);
    if (code)
        return code;
    conn->input.finished = input_finished;
    return feed_add(exec, &input, &conn->input, err);
}

static enum berth_code on_signal(struct conn *conn, const uint8_t *payload, size_t size,
                                 struct berth_error *err)
{
    struct wire_signal signal;
    struct wire_frame frame = {0};
    struct exec *exec;
    bool existed;
    enum berth_code code = wire_decode_signal(payload, size, &signal, err);

    if (code == BERTH_OK)
        code = check_awake(conn, err);
    if (code)
        return code;
    exec = engine_find(conn->server->engine, &signal.ref);
    existed = exec && exec_signal(exec, signal.signal, signal.leader_only);
    answer(conn, wire_encode_signal_done(existed, &frame), frame);
    return BERTH_OK;
}

static int append_process(struct conn *conn, const struct exec *exec)
{
    BERTH_AUTO(free) struct wire_process *process = malloc(sizeof *process);
    struct wire_frame frame = {0};

    if (!process)
        return -1;
    exec_describe(exec, process);
    return wire_encode_process(process, &frame) ? -1 : append(conn, frame);
}

static enum berth_code on_list(struct conn *conn, size_t size, struct berth_error *err)
{
    struct engine *engine = conn->server->engine;
    struct wire_frame frame = {0};
    unsigned n = 0;
    int failed = 0;

    if (size > 0)
        return berth_fail_field(err, "frame", "too long");
    for (int ended = 0; ended <= 1; ended++) {
        for (struct exec *exec = engine->newest; exec && n < LIST_MAX; exec = exec->prev) {
            if ((exec->state == EXEC_DONE) != ended)
                continue;
            failed |= append_process(conn, exec);
            n++;
        }
    }
    failed |= wire_encode_empty(WIRE_LIST_DONE, &frame);
    if (!failed)
        failed = append(conn, frame);
    if (failed)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    conn->closing = true;
    return BERTH_OK;
}

static void on_request(struct conn *conn, enum wire_type type, const uint8_t *payload,
                       size_t size)
{
    struct berth_error err = {0};
    enum berth_code code;

    conn->asked = true;
    conn->timer = berth_timer_cancel(conn->timer);
    switch (type) {
    case WIRE_START:
        code = on_start(conn, payload, size, &err);
        break;
    case WIRE_ATTACH:
        code = on_attach(conn, payload, size, &err);
        break;
    case WIRE_INPUT:
        code = on_input(conn, payload, size, &err);
        break;
    case WIRE_SIGNAL:
        code = on_signal(conn, payload, size, &err);
        break;
    case WIRE_LIST:
        code = on_list(conn, size, &err);
        break;
    default:
        code = berth_fail_field(&err, "frame", "not a request");
    }
    if (code)
        answer_error(conn, &err);
}

static void on_ready(void *arg, uint32_t events)
{
    struct conn *conn = arg;
    const uint8_t *payload;
    enum wire_type type;
    size_t size;

    while (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        enum wire_read got = wire_read(&conn->in, conn->fd, &type, &payload, &size);

        if (got == WIRE_READ_AGAIN)
            break;
        if (got == WIRE_READ_FRAME && !conn->asked) {
            on_request(conn, type, payload, size);
            continue;
        }
        if (got == WIRE_READ_FRAME && type == WIRE_CANCEL && conn->reader.exec && conn->owner)
            exec_abandon(conn->reader.exec);
        conn_free(conn);
        return;
    }
    pump(conn);
}

static void no_request(void *arg)
{
    struct conn *conn = arg;

    conn->timer = NULL;
    conn_free(conn);
}

static bool is_allowed(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof peer;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
           (peer.uid == 0 || peer.uid == geteuid());
}

static void take_connection(struct server *server, int fd)
{
    struct engine *engine = server->engine;
    struct conn *conn = NULL;

    if (server->n_conns < engine->limits->connections_max && is_allowed(fd))
        conn = calloc(1, sizeof *conn);
    if (!conn) {
        close(fd);
        return;
    }
    conn->server = server;
    conn->fd = fd;
    conn->reader.wake = wake;
    if (berth_loop_watch(engine->loop, fd, EPOLLIN, on_ready, conn, &conn->watch, NULL) !=
        BERTH_OK) {
        close(fd);
        free(conn);
        return;
    }
    conn->timer = berth_loop_timer(engine->loop, engine->limits->request_ms, no_request, conn);
    conn->next = server->conns;
    conn->slot = &server->conns;
    if (conn->next)
        conn->next->slot = &conn->next;
    server->conns = conn;
    server->n_conns++;
}

static void on_accept(void *arg, uint32_t events);

static void listen_again(void *arg)
{
    struct server *server = arg;

    server->retry = NULL;
    if (!server->watch &&
        berth_loop_watch(server->engine->loop, server->engine->env->listen_fd, EPOLLIN,
                         on_accept, server, &server->watch, NULL) != BERTH_OK)
        server->retry = berth_loop_timer(server->engine->loop, 1000, listen_again, server);
}

static void on_accept(void *arg, uint32_t events)
{
    struct server *server = arg;

    (void)events;
    for (int i = 0; i < ACCEPTS_MAX; i++) {
        int fd =
            accept4(server->engine->env->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd >= 0) {
            take_connection(server, fd);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            /* Not at once again: the loop would spin. */
            server->watch = berth_loop_unwatch(server->watch);
            server->retry = berth_loop_timer(server->engine->loop, 100, listen_again, server);
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return;
        }
    }
}

enum berth_code server_new(struct engine *engine, struct server **ret, struct berth_error *err)
{
    struct server *server = calloc(1, sizeof *server);
    enum berth_code code;

    if (!server)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    server->engine = engine;
    code = berth_loop_watch(engine->loop, engine->env->listen_fd, EPOLLIN, on_accept, server,
                            &server->watch, err);
    if (code) {
        free(server);
        return code;
    }
    *ret = server;
    return BERTH_OK;
}

bool server_idle(const struct server *server)
{
    return server->n_conns == 0;
}

struct server *server_free(struct server *server)
{
    if (!server)
        return NULL;
    while (server->conns)
        conn_free(server->conns);
    berth_timer_cancel(server->retry);
    berth_loop_unwatch(server->watch);
    free(server);
    return NULL;
}
