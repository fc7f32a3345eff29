#include "tests/component/rpc/client.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <time.h>

#include "common/time/time.h"

enum { WAIT_MS = 10000 };

enum berth_code echo_call(struct berth_channel *channel, const char *path, EchoRequest *req,
                          const struct berth_call_options *options, EchoResponse **ret_resp,
                          struct berth_error *err)
{
    EchoRequest empty = ECHO_REQUEST_INIT;
    ProtobufCMessage *response = NULL;
    enum berth_code code = berth_channel_call(channel, path, req ? &req->base : &empty.base,
                                              ECHO_RESPONSE_TYPE, options, &response, err);

    *ret_resp = (EchoResponse *)response;
    return code;
}

void echo_response_free(EchoResponse *response)
{
    if (response)
        protobuf_c_message_free_unpacked(&response->base, NULL);
}

/* ----------------------------------------------------------------- callbacks */

static void on_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct echo_client *client = ctx;

    (void)stream;
    pthread_mutex_lock(&client->mutex);
    if (msg) {
        ck_assert_uint_lt(client->n_messages - client->n_taken, BERTH_COUNT(client->messages));
        client->messages[client->n_messages++ % BERTH_COUNT(client->messages)] = msg;
    } else {
        client->n_ends++;
    }
    pthread_cond_broadcast(&client->changed);
    pthread_mutex_unlock(&client->mutex);
}

static void on_written(void *ctx, struct berth_stream *stream)
{
    struct echo_client *client = ctx;

    (void)stream;
    pthread_mutex_lock(&client->mutex);
    client->n_written++;
    pthread_cond_broadcast(&client->changed);
    pthread_mutex_unlock(&client->mutex);
}

static void on_closed(void *ctx, struct berth_stream *stream, const struct berth_status *status)
{
    struct echo_client *client = ctx;

    (void)stream;
    pthread_mutex_lock(&client->mutex);
    client->closed = true;
    client->stream = NULL;
    client->code = status->code;
    snprintf(client->text, sizeof client->text, "%s", status->message);
    (void)berth_status_to_error(status, &client->err);
    ck_assert_uint_le(status->details_size, sizeof client->details);
    if (status->details)
        memcpy(client->details, status->details, status->details_size);
    client->details_size = status->details_size;
    pthread_cond_broadcast(&client->changed);
    pthread_mutex_unlock(&client->mutex);
}

static const struct berth_stream_ops client_ops = {
    .message = on_message, .written = on_written, .closed = on_closed};

/* ------------------------------------------------------- steps on the loop */

struct step {
    struct echo_client *client;
    void (*fn)(struct step *step);
    struct berth_channel *channel;
    const char *path;
    const struct berth_call_options *options;
    struct berth_buf *msg;
    bool ok, done;
};

static void run_step(void *arg)
{
    struct step *step = arg;
    struct echo_client *client = step->client;

    step->fn(step);
    pthread_mutex_lock(&client->mutex);
    step->done = true;
    pthread_cond_broadcast(&client->changed);
    pthread_mutex_unlock(&client->mutex);
}

static void on_loop(struct step *step)
{
    struct echo_client *client = step->client;

    berth_loop_post(client->loop, run_step, step);
    pthread_mutex_lock(&client->mutex);
    while (!step->done)
        pthread_cond_wait(&client->changed, &client->mutex);
    pthread_mutex_unlock(&client->mutex);
}

static void step_open(struct step *step)
{
    step->client->stream = berth_channel_stream(step->channel, step->path, step->options,
                                                step->client->loop, &client_ops, step->client);
}

static void step_write(struct step *step)
{
    if (step->client->stream)
        step->ok = berth_stream_write(step->client->stream, step->msg);
    else
        berth_buf_unref(step->msg);
}

static void step_half_close(struct step *step)
{
    if (step->client->stream)
        berth_stream_half_close(step->client->stream);
}

static void step_cancel(struct step *step)
{
    if (step->client->stream)
        berth_stream_cancel(step->client->stream);
}

static void step_read(struct step *step)
{
    if (step->client->stream)
        berth_stream_read(step->client->stream);
}

/* With the mutex held. False: the time is over. */
static bool wait_until(struct echo_client *client, const struct timespec *end)
{
    return pthread_cond_timedwait(&client->changed, &client->mutex, end) != ETIMEDOUT;
}

static struct timespec end_after(int64_t ms)
{
    int64_t end_ms = berth_tick_ms() + ms;

    return (struct timespec){.tv_sec = end_ms / 1000, .tv_nsec = end_ms % 1000 * 1000000};
}

/* ----------------------------------------------------------------- functions */

void echo_client_open(struct echo_client *client, struct berth_channel *channel,
                      struct berth_loop *loop, const char *path,
                      const struct berth_call_options *options)
{
    struct step step = {.client = client, .fn = step_open};
    pthread_condattr_t monotonic;

    *client = (struct echo_client){.loop = loop};
    pthread_mutex_init(&client->mutex, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&client->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    step.channel = channel;
    step.path = path;
    step.options = options;
    on_loop(&step);
}

bool echo_client_write(struct echo_client *client, struct berth_buf *msg, int64_t wait_ms)
{
    struct step step = {.client = client, .fn = step_write, .msg = msg};
    struct timespec end = end_after(wait_ms);
    unsigned n_before;
    bool written;

    pthread_mutex_lock(&client->mutex);
    n_before = client->n_written;
    pthread_mutex_unlock(&client->mutex);
    on_loop(&step);
    if (!step.ok)
        return false;
    pthread_mutex_lock(&client->mutex);
    while (client->n_written == n_before && !client->closed && wait_until(client, &end)) {
    }
    written = client->n_written > n_before;
    pthread_mutex_unlock(&client->mutex);
    return written;
}

bool echo_client_write_request(struct echo_client *client, const EchoRequest *req)
{
    return echo_client_write(client, berth_buf_pack(&req->base), WAIT_MS);
}

void echo_client_half_close(struct echo_client *client)
{
    struct step step = {.client = client, .fn = step_half_close};

    on_loop(&step);
}

void echo_client_cancel(struct echo_client *client)
{
    struct step step = {.client = client, .fn = step_cancel};

    on_loop(&step);
}

struct berth_buf *echo_client_read(struct echo_client *client)
{
    struct step step = {.client = client, .fn = step_read};
    struct timespec end = end_after(WAIT_MS);
    struct berth_buf *msg = NULL;
    bool in_time = true;

    on_loop(&step);
    pthread_mutex_lock(&client->mutex);
    while (client->n_messages == client->n_taken && client->n_ends == 0 && !client->closed &&
           in_time)
        in_time = wait_until(client, &end);
    if (client->n_messages > client->n_taken)
        msg = client->messages[client->n_taken++ % BERTH_COUNT(client->messages)];
    pthread_mutex_unlock(&client->mutex);
    ck_assert_msg(in_time, "no message came");
    return msg;
}

EchoResponse *echo_client_read_response(struct echo_client *client)
{
    struct berth_buf *msg = echo_client_read(client);
    ProtobufCMessage *message = NULL;
    struct berth_error err = {0};

    if (!msg)
        return NULL;
    ck_assert_msg(!berth_buf_decode(ECHO_RESPONSE_TYPE, msg, &message, &err), "%s", err.text);
    berth_buf_unref(msg);
    return (EchoResponse *)message;
}

enum berth_code echo_client_wait(struct echo_client *client)
{
    struct timespec end = end_after(WAIT_MS);
    bool in_time = true;
    enum berth_code code;

    pthread_mutex_lock(&client->mutex);
    while (!client->closed && in_time)
        in_time = wait_until(client, &end);
    code = client->code;
    pthread_mutex_unlock(&client->mutex);
    ck_assert_msg(in_time, "the stream did not end");
    return code;
}

void echo_client_deinit(struct echo_client *client)
{
    echo_client_cancel(client);
    (void)echo_client_wait(client);
    while (client->n_taken < client->n_messages)
        berth_buf_unref(client->messages[client->n_taken++ % BERTH_COUNT(client->messages)]);
    pthread_cond_destroy(&client->changed);
    pthread_mutex_destroy(&client->mutex);
}

void wait_for_at_least(atomic_uint *value, unsigned wanted)
{
    int64_t end_ms = berth_tick_ms() + WAIT_MS;

    while (atomic_load(value) < wanted) {
        ck_assert_msg(berth_tick_ms() < end_ms, "waited for %u, have %u", wanted,
                      atomic_load(value));
        (void)poll(NULL, 0, 1);
    }
}

const char *socket_path(void)
{
    static char path[64];

    snprintf(path, sizeof path, "/tmp/berth-rpc-%d.sock", (int)getpid());
    return path;
}

void fill_payload(EchoRequest *req, size_t size, int c)
{
    req->payload.data = malloc(size);
    ck_assert_ptr_nonnull(req->payload.data);
    memset(req->payload.data, c, size);
    req->payload.len = size;
}
