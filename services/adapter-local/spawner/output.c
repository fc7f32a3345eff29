/* output.c - what a command prints: out of the pipes, into the rings, to the readers. A reader
 * that does not keep up holds the command back; where nobody reads, the oldest is dropped. The
 * pipes are read to their end whatever happens, so that nobody gets SIGPIPE. */
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "services/adapter-local/spawner/engine.h"

enum {
    READS_MAX = 4,  /* in one go, then others have their turn */
    CHUNKS_MIN = 8, /* what is kept has at least so many pieces: the oldest goes, not all */
    USER_ID = 1000,
};

/* The share of one command in the memory for output. */
static size_t share(const struct exec *exec)
{
    const struct engine_limits *limits = exec->engine->limits;
    size_t n = exec->engine->n_running > 0 ? exec->engine->n_running : 1;
    size_t size = limits->rings_bytes / n;

    return size < limits->ring_bytes_min ? limits->ring_bytes_min : size;
}

/* Bytes kept of a command that is not collected. */
static size_t kept_max(const struct exec *exec)
{
    size_t max = share(exec), limit = exec->engine->limits->ring_bytes;

    return max < limit ? max : limit;
}

int output_open(struct exec *exec, int ret_child_fds[WIRE_N_STREAMS])
{
    unsigned owner = exec->engine->env->uid_base + (exec->root ? 0 : USER_ID);

    if (exec->collect && exec->max_output > share(exec) / WIRE_N_STREAMS)
        exec->max_output = share(exec) / WIRE_N_STREAMS;
    for (int s = 0; s < WIRE_N_STREAMS; s++) {
        int fds[2];

        if (pipe2(fds, O_CLOEXEC) < 0)
            return errno;
        exec->out[s].fd = fds[0];
        ret_child_fds[s] = fds[1];
        /* Its own, so that /dev/stdout and /dev/stderr can be opened. */
        if (fchown(fds[1], owner, owner) < 0 || fcntl(fds[0], F_SETFL, O_NONBLOCK) < 0)
            return errno;
        if (exec->collect)
            exec->out[s].ring.head_bytes = exec->max_output / 2;
        exec->out[s].ring.join_max = kept_max(exec) / CHUNKS_MIN;
        if (exec->out[s].ring.join_max > RING_CHUNK_MAX)
            exec->out[s].ring.join_max = RING_CHUNK_MAX;
    }
    return 0;
}

static bool has_live_reader(const struct exec *exec)
{
    return exec->readers && !exec->collect;
}

/* Bytes of a stream that the slowest reader has not taken. */
static uint64_t unread(const struct exec *exec, int s)
{
    uint64_t most = 0;

    for (const struct exec_reader *reader = exec->readers; reader; reader = reader->next) {
        uint64_t end = exec->out[s].ring.kept_end;

        if (end > reader->pos[s] && end - reader->pos[s] > most)
            most = end - reader->pos[s];
    }
    return most;
}

static bool may_read(const struct exec *exec, int s)
{
    if (exec->out[s].fd < 0 || exec->state == EXEC_SPAWNING)
        return false;
    return exec->state != EXEC_RUNNING || !has_live_reader(exec) ||
           unread(exec, s) < exec->engine->limits->unread_bytes;
}

static void close_stream(struct exec_stream *stream)
{
    stream->watch = berth_loop_unwatch(stream->watch);
    closep(&stream->fd);
    stream->fd = -1;
    stream->must_read = 0;
}

/* Bytes of n that are kept under the caller's limit. */
static size_t under_cap(const struct exec *exec, const struct ring *ring, size_t n)
{
    uint64_t room;

    if (exec->max_output == 0 || exec->collect)
        return n;
    room = ring->total < exec->max_output ? exec->max_output - ring->total : 0;
    return n < room ? n : (size_t)room;
}

static void take(struct exec *exec, struct exec_stream *stream, const uint8_t *data,
                 size_t size)
{
    /* Collected streams are told apart anyway: their chunks need no common order. */
    bool may_join = exec->collect || exec->last_out == stream;
    size_t kept = under_cap(exec, &stream->ring, size);

    if (kept > 0) {
        ring_append(&stream->ring, data, kept, &exec->next_seq, may_join);
        exec->last_out = stream;
    }
    if (kept < size)
        ring_skip(&stream->ring, size - kept);
}

/* Read what there is, up to some amount. Returns true if anything changed. */
static bool read_stream(struct exec *exec, struct exec_stream *stream, int max_reads)
{
    uint8_t *buf = exec->engine->scratch;
    bool changed = false;

    for (int i = 0; i < max_reads && stream->fd >= 0; i++) {
        ssize_t got = read(stream->fd, buf, sizeof exec->engine->scratch);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN) {
            stream->must_read = 0;
            break;
        }
        changed = true;
        if (got <= 0) {
            close_stream(stream);
            break;
        }
        stream->must_read -=
            (uint64_t)got < stream->must_read ? (uint64_t)got : stream->must_read;
        if (exec->state != EXEC_DONE)
            take(exec, stream, buf, (size_t)got);
        if (!may_read(exec, (int)(stream - exec->out)))
            break;
        if ((size_t)got < sizeof exec->engine->scratch && exec->state == EXEC_RUNNING)
            break; /* most likely empty now; the loop says when it is not */
    }
    return changed;
}

static void on_output(void *arg, uint32_t events)
{
    struct exec_stream *stream = arg;
    struct exec *exec = stream->exec;
    bool was_finished = output_finished(exec);

    (void)events;
    read_stream(exec, stream, READS_MAX);
    if (exec->state == EXEC_DONE) {
        /* Drained to nowhere until the last child has let go of it. */
        if (!was_finished && output_finished(exec))
            exec->engine->n_running--;
        return;
    }
    output_trim(exec);
    output_watch(exec);
    output_wake(exec);
    exec_settle(exec);
}

void output_watch(struct exec *exec)
{
    struct engine *engine = exec->engine;

    for (int s = 0; s < WIRE_N_STREAMS; s++) {
        struct exec_stream *stream = &exec->out[s];
        bool wanted = may_read(exec, s);

        /* Not watched at all otherwise: the end of a pipe cannot be masked out. */
        if (!wanted && stream->watch)
            stream->watch = berth_loop_unwatch(stream->watch);
        else if (wanted && !stream->watch &&
                 berth_loop_watch(engine->loop, stream->fd, EPOLLIN, on_output, stream,
                                  &stream->watch, NULL) != BERTH_OK)
            engine_need_tick(engine); /* no memory just now: the tick tries again */
    }
}

void output_end(struct exec *exec)
{
    for (int s = 0; s < WIRE_N_STREAMS; s++) {
        struct exec_stream *stream = &exec->out[s];
        int n = 0;

        if (stream->fd < 0)
            continue;
        if (ioctl(stream->fd, FIONREAD, &n) == 0 && n > 0)
            stream->must_read = (uint64_t)n;
        read_stream(exec, stream, READS_MAX);
    }
    output_trim(exec);
    output_watch(exec);
}

bool output_finished(const struct exec *exec)
{
    return exec->out[WIRE_STDOUT].fd < 0 && exec->out[WIRE_STDERR].fd < 0;
}

bool output_held_open(const struct exec *exec)
{
    return !output_finished(exec);
}

static void count_held(struct exec *exec)
{
    size_t held = ring_held(&exec->out[0].ring) + ring_held(&exec->out[1].ring);

    exec->engine->held = exec->engine->held - exec->held + held;
    exec->held = held;
}

void output_close(struct exec *exec)
{
    for (int s = 0; s < WIRE_N_STREAMS; s++) {
        close_stream(&exec->out[s]);
        ring_clear(&exec->out[s].ring);
    }
    count_held(exec);
}

void output_trim(struct exec *exec)
{
    struct ring *out = &exec->out[WIRE_STDOUT].ring, *errs = &exec->out[WIRE_STDERR].ring;
    size_t max = kept_max(exec), held;
    uint64_t keep_seq = UINT64_MAX;

    if (exec->collect) {
        ring_keep_tail(out, exec->max_output - out->head_bytes);
        ring_keep_tail(errs, exec->max_output - errs->head_bytes);
    } else {
        for (const struct exec_reader *reader = exec->readers; reader; reader = reader->next) {
            if (reader->cursor < keep_seq)
                keep_seq = reader->cursor;
        }
        /* The stream that prints more gives way first. */
        held = ring_held(out) + ring_held(errs);
        if (held > max) {
            struct ring *larger = ring_held(out) >= ring_held(errs) ? out : errs;
            size_t over = held - max;

            ring_shrink(larger, over < ring_held(larger) ? ring_held(larger) - over : 0,
                        keep_seq);
        }
    }
    count_held(exec);
    if (exec->engine->held > exec->engine->limits->rings_bytes)
        engine_squeeze(exec->engine);
}

void output_wake(struct exec *exec)
{
    struct exec_reader *next;

    for (struct exec_reader *reader = exec->readers; reader; reader = next) {
        next = reader->next;
        reader->wake(reader);
    }
}
