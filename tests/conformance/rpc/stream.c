#include "tests/conformance/rpc/stream.h"

#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "tests/conformance/rpc/service.h"

enum { WAIT_S = 20 };

struct wire_stream {
    struct berth_loop *loop;
    struct berth_channel *channel;
    const char *path;
    struct berth_call_options options;
    struct berth_stream *stream; /* the loop's; NULL once closed */
    struct berth_buf *out;       /* on its way to the loop */

    pthread_mutex_t mutex; /* all below */
    pthread_cond_t changed;
    struct berth_buf *message;
    bool has_message, no_more, closed, done;
    unsigned n_written;
    struct wire_end end;
};

static void note(struct wire_stream *wire, bool *flag)
{
    pthread_mutex_lock(&wire->mutex);
    *flag = true;
    pthread_cond_broadcast(&wire->changed);
    pthread_mutex_unlock(&wire->mutex);
}

/* With the mutex held. False: it took too long. */
static bool wait_changed(struct wire_stream *wire)
{
    struct timespec end;

    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += WAIT_S;
    return pthread_cond_timedwait(&wire->changed, &wire->mutex, &end) == 0;
}

/* --------------------------------------------------------- on the loop thread */

static void on_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct wire_stream *wire = ctx;

    (void)stream;
    pthread_mutex_lock(&wire->mutex);
    wire->message = msg;
    wire->has_message = msg != NULL;
    wire->no_more = !msg;
    pthread_cond_broadcast(&wire->changed);
    pthread_mutex_unlock(&wire->mutex);
}

static void on_written(void *ctx, struct berth_stream *stream)
{
    struct wire_stream *wire = ctx;

    (void)stream;
    pthread_mutex_lock(&wire->mutex);
    wire->n_written++;
    pthread_cond_broadcast(&wire->changed);
    pthread_mutex_unlock(&wire->mutex);
}

static void on_closed(void *ctx, struct berth_stream *stream, const struct berth_status *status)
{
    struct wire_stream *wire = ctx;
    const uint8_t *value;
    size_t size = 0;

    wire->stream = NULL;
    wire->end.code = status->code;
    snprintf(wire->end.message, sizeof wire->end.message, "%s", status->message);
    value = berth_stream_metadata(stream, BERTH_METADATA_INITIAL, INTEROP_INITIAL_KEY, &size);
    if (value)
        snprintf(wire->end.initial, sizeof wire->end.initial, "%.*s", (int)size,
                 (const char *)value);
    value = berth_stream_metadata(stream, BERTH_METADATA_TRAILING, INTEROP_TRAILING_KEY, &size);
    for (size_t i = 0; value && i < size && 2 * i + 3 < sizeof wire->end.trailing; i++)
        snprintf(wire->end.trailing + 2 * i, 3, "%02x", value[i]);
    note(wire, &wire->closed);
}

static const struct berth_stream_ops ops = {
    .message = on_message, .written = on_written, .closed = on_closed};

static void do_open(void *arg)
{
    struct wire_stream *wire = arg;

    wire->stream =
        berth_channel_stream(wire->channel, wire->path, &wire->options, wire->loop, &ops, wire);
    note(wire, &wire->done);
}

static void do_write(void *arg)
{
    struct wire_stream *wire = arg;
    struct berth_buf *msg = BERTH_STEAL(wire->out);

    if (wire->stream)
        (void)berth_stream_write(wire->stream, msg);
    else
        berth_buf_unref(msg);
    note(wire, &wire->done);
}

static void do_half_close(void *arg)
{
    struct wire_stream *wire = arg;

    if (wire->stream)
        berth_stream_half_close(wire->stream);
    note(wire, &wire->done);
}

static void do_read(void *arg)
{
    struct wire_stream *wire = arg;

    if (wire->stream)
        berth_stream_read(wire->stream);
    note(wire, &wire->done);
}

static void do_cancel(void *arg)
{
    struct wire_stream *wire = arg;

    if (wire->stream)
        berth_stream_cancel(wire->stream);
    note(wire, &wire->done);
}

/* ------------------------------------------------------ on the waiting thread */

static void on_loop(struct wire_stream *wire, berth_loop_fn fn)
{
    wire->done = false;
    berth_loop_post(wire->loop, fn, wire);
    pthread_mutex_lock(&wire->mutex);
    while (!wire->done)
        pthread_cond_wait(&wire->changed, &wire->mutex);
    pthread_mutex_unlock(&wire->mutex);
}

struct wire_stream *wire_open(struct berth_channel *channel, struct berth_loop *loop,
                              const char *path, const struct berth_call_options *options)
{
    struct wire_stream *wire = calloc(1, sizeof *wire);

    if (!wire)
        return NULL;
    wire->loop = loop;
    wire->channel = channel;
    wire->path = path;
    wire->options = *options;
    pthread_mutex_init(&wire->mutex, NULL);
    pthread_cond_init(&wire->changed, NULL);
    on_loop(wire, do_open);
    return wire;
}

bool wire_write(struct wire_stream *wire, const ProtobufCMessage *message)
{
    unsigned n = wire->n_written;
    bool written, in_time = true;

    wire->out = berth_buf_pack(message);
    on_loop(wire, do_write);
    pthread_mutex_lock(&wire->mutex);
    while (wire->n_written == n && !wire->closed && in_time)
        in_time = wait_changed(wire);
    written = wire->n_written != n;
    pthread_mutex_unlock(&wire->mutex);
    return written;
}

void wire_half_close(struct wire_stream *wire)
{
    on_loop(wire, do_half_close);
}

void wire_begin(struct wire_stream *wire)
{
    on_loop(wire, do_read);
}

void wire_cancel(struct wire_stream *wire)
{
    on_loop(wire, do_cancel);
}

struct berth_buf *wire_read(struct wire_stream *wire)
{
    struct berth_buf *message;
    bool in_time = true;

    on_loop(wire, do_read);
    pthread_mutex_lock(&wire->mutex);
    while (!wire->has_message && !wire->no_more && !wire->closed && in_time)
        in_time = wait_changed(wire);
    message = BERTH_STEAL(wire->message);
    wire->has_message = false;
    pthread_mutex_unlock(&wire->mutex);
    return message;
}

bool wire_end(struct wire_stream *wire, struct wire_end *ret)
{
    struct berth_buf *left;
    bool in_time = true;

    while ((left = wire_read(wire)))
        berth_buf_unref(left);
    pthread_mutex_lock(&wire->mutex);
    while (!wire->closed && in_time)
        in_time = wait_changed(wire);
    pthread_mutex_unlock(&wire->mutex);
    if (!in_time) /* the loop may still use it: left to the end of the process */
        return false;
    *ret = wire->end;
    pthread_mutex_destroy(&wire->mutex);
    pthread_cond_destroy(&wire->changed);
    free(wire);
    return true;
}
