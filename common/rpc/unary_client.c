/* unary_client.c - calls of one message each way: with a waiting thread, and without. */
#include <poll.h>

#include "common/ids/ids.h"
#include "common/rpc/channel.h"

enum {
    TIMEOUT_DEFAULT_MS = 60000,
    N_RETRIES_MAX = 3,
    BACKOFF_FIRST_MS = 50, /* doubled each time, and up to half of it more */
};

/* One call, over all its attempts. */
struct unary {
    struct berth_channel *channel;
    const ProtobufCMessageDescriptor *resp_type;
    const char *path;
    struct berth_buf *body;
    struct rpc_call_metadata metadata;
    gpr_timespec deadline;
    unsigned n_retries_left;

    /* the attempt under way */
    grpc_call *core;
    grpc_metadata_array initial, trailing;
    grpc_status_code code;
    grpc_slice message;
    grpc_byte_buffer *received;
    struct rpc_tag tag;
};

struct async { /* what berth_channel_call_async() keeps */
    struct unary unary;
    char *path;              /* for another attempt */
    struct berth_pool *pool; /* NULL: done is called where the end is seen */
    berth_done_fn done;
    void *arg;
    struct berth_work work;
    struct rpc_delay delay;
    enum berth_code code; /* a failure before anything was sent */
    struct berth_error err;
};

static enum berth_code enter(struct berth_channel *channel, struct berth_error *err)
{
    unsigned n = atomic_fetch_add(&channel->in_flight, 1) + 1;

    if (channel->max_in_flight && n > channel->max_in_flight) {
        atomic_fetch_sub(&channel->in_flight, 1);
        return berth_fail(err, BERTH_REASON_OVERLOADED, "%u calls to this peer are in flight",
                          channel->max_in_flight);
    }
    return BERTH_OK;
}

static void leave(struct berth_channel *channel)
{
    atomic_fetch_sub(&channel->in_flight, 1);
}

static enum berth_code unary_init(struct unary *unary, struct berth_channel *channel,
                                  const char *path, const ProtobufCMessage *req,
                                  const ProtobufCMessageDescriptor *resp_type,
                                  const struct berth_call_options *options,
                                  struct berth_error *err)
{
    enum berth_code code = rpc_call_metadata_init(&unary->metadata, options, err);

    if (code)
        return code;
    unary->channel = channel;
    unary->path = path;
    unary->resp_type = resp_type;
    unary->deadline = rpc_deadline(rpc_call_timeout_ms(options, TIMEOUT_DEFAULT_MS));
    unary->n_retries_left = options && options->idempotent ? N_RETRIES_MAX : 0;
    unary->body = berth_buf_pack(req);
    if (!unary->body)
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    else if (berth_buf_size(unary->body) > BERTH_RPC_MESSAGE_MAX)
        code = berth_fail(err, BERTH_REASON_MESSAGE_TOO_LARGE,
                          "the request has %zu bytes, more than %d",
                          berth_buf_size(unary->body), BERTH_RPC_MESSAGE_MAX);
    if (!code)
        return BERTH_OK;
    rpc_call_metadata_deinit(&unary->metadata);
    unary->body = berth_buf_unref(unary->body);
    return code;
}

static void unary_deinit(struct unary *unary)
{
    rpc_call_metadata_deinit(&unary->metadata);
    unary->body = berth_buf_unref(unary->body);
}

static void attempt_start(struct unary *unary, grpc_completion_queue *queue)
{
    grpc_byte_buffer *bytes = rpc_buf_bytes(unary->body);
    grpc_op ops[6] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA},  {.op = GRPC_OP_SEND_MESSAGE},
        {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT}, {.op = GRPC_OP_RECV_INITIAL_METADATA},
        {.op = GRPC_OP_RECV_MESSAGE},           {.op = GRPC_OP_RECV_STATUS_ON_CLIENT},
    };

    grpc_metadata_array_init(&unary->initial);
    grpc_metadata_array_init(&unary->trailing);
    unary->message = grpc_empty_slice();
    ops[0].data.send_initial_metadata.count = unary->metadata.n;
    ops[0].data.send_initial_metadata.metadata = unary->metadata.entries;
    ops[1].data.send_message.send_message = bytes;
    ops[3].data.recv_initial_metadata.recv_initial_metadata = &unary->initial;
    ops[4].data.recv_message.recv_message = &unary->received;
    ops[5].data.recv_status_on_client.trailing_metadata = &unary->trailing;
    ops[5].data.recv_status_on_client.status = &unary->code;
    ops[5].data.recv_status_on_client.status_details = &unary->message;
    unary->core = rpc_channel_create_call(unary->channel, queue, unary->path, unary->deadline);
    rpc_start_batch(unary->core, ops, BERTH_COUNT(ops), &unary->tag);
    grpc_byte_buffer_destroy(bytes);
}

static enum berth_code read_response(struct unary *unary, ProtobufCMessage **ret_resp,
                                     struct berth_error *err)
{
    struct berth_buf *buf;
    enum berth_code code;

    if (!unary->received)
        return berth_fail(err, BERTH_REASON_OUTCOME_UNKNOWN, "status OK, but no response");
    buf = rpc_buf_take(BERTH_STEAL(unary->received));
    if (!buf)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    code = berth_buf_decode(unary->resp_type, buf, ret_resp, err);
    berth_buf_unref(buf);
    if (code) /* it was done, whatever is wrong with the answer */
        return berth_fail(err, BERTH_REASON_OUTCOME_UNKNOWN, "the response is not a valid %s",
                          unary->resp_type->name);
    return BERTH_OK;
}

static enum berth_code read_status(struct unary *unary, struct berth_error *err)
{
    char *message = grpc_slice_to_c_string(unary->message);
    struct berth_status status;
    enum berth_code code;

    rpc_status_view(unary->code, message, &unary->trailing, &status);
    if (status.code == BERTH_UNAVAILABLE && !status.details &&
        !rpc_call_was_sent(unary->channel, unary->core)) {
        code = berth_fail(err, unary->channel->unavailable, "%s",
                          rpc_channel_unsent(unary->channel, message));
    } else {
        code = berth_status_to_error(&status, err);
        if (err && err->reason == BERTH_REASON_PEER_UNAVAILABLE && !status.details)
            err->reason = unary->channel->unavailable;
    }
    gpr_free(message);
    return code;
}

/* The result of an attempt that is over. */
static enum berth_code attempt_finish(struct unary *unary, ProtobufCMessage **ret_resp,
                                      struct berth_error *err)
{
    enum berth_code code = unary->code == GRPC_STATUS_OK ? read_response(unary, ret_resp, err)
                                                         : read_status(unary, err);

    if (unary->received)
        grpc_byte_buffer_destroy(BERTH_STEAL(unary->received));
    grpc_slice_unref(unary->message);
    grpc_metadata_array_destroy(&unary->initial);
    grpc_metadata_array_destroy(&unary->trailing);
    grpc_call_unref(unary->core);
    unary->core = NULL;
    return code;
}

/* How long to wait before another attempt; negative: there is none. */
static int64_t retry_wait_ms(struct unary *unary, enum berth_code code)
{
    unsigned n_done = N_RETRIES_MAX - unary->n_retries_left;
    int64_t wait_ms = BACKOFF_FIRST_MS << n_done, left_ms;
    uint8_t random;

    if (code != BERTH_UNAVAILABLE || unary->n_retries_left == 0)
        return -1;
    berth_random(&random, 1);
    wait_ms += wait_ms * random / (2 * UINT8_MAX);
    left_ms = gpr_time_to_millis(gpr_time_sub(unary->deadline, gpr_now(GPR_CLOCK_MONOTONIC)));
    if (wait_ms >= left_ms)
        return -1;
    unary->n_retries_left--;
    return wait_ms;
}

enum berth_code berth_channel_call(struct berth_channel *channel, const char *path,
                                   const ProtobufCMessage *req,
                                   const ProtobufCMessageDescriptor *resp_type,
                                   const struct berth_call_options *options,
                                   ProtobufCMessage **ret_resp, struct berth_error *err)
{
    struct rpc_pluck_queue *queue;
    struct berth_error local;
    struct unary unary = {0};
    enum berth_code code;

    if (!err)
        err = &local;
    code = enter(channel, err);
    if (code)
        return code;
    code = unary_init(&unary, channel, path, req, resp_type, options, err);
    if (code) {
        leave(channel);
        return code;
    }
    queue = rpc_pluck_take();
    if (!queue)
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    while (queue) {
        int64_t wait_ms;

        attempt_start(&unary, queue->core);
        (void)grpc_completion_queue_pluck(queue->core, &unary.tag,
                                          gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
        RPC_TSAN_ACQUIRE(&unary.tag);
        code = attempt_finish(&unary, ret_resp, err);
        wait_ms = retry_wait_ms(&unary, code);
        if (wait_ms < 0)
            break;
        (void)poll(NULL, 0, (int)wait_ms);
        grpc_channel_reset_connect_backoff(channel->core);
    }
    if (queue)
        rpc_pluck_give(queue);
    unary_deinit(&unary);
    leave(channel);
    return code;
}

/* ---------------------------------------------------------- without waiting */

/* The last step. */
static void deliver(void *arg)
{
    struct async *async = arg;
    ProtobufCMessage *resp = NULL;
    enum berth_code code = async->code;

    if (!code && async->unary.core)
        code = attempt_finish(&async->unary, &resp, &async->err);
    async->done(async->arg, code, resp, code ? &async->err : NULL);
    if (async->unary.channel) {
        unary_deinit(&async->unary);
        leave(async->unary.channel);
        berth_channel_free(async->unary.channel);
        rpc_client_call_ended();
    }
    free(async->path);
    free(async);
}

static void submit(struct async *async)
{
    if (async->pool)
        berth_pool_submit_entry_must(async->pool, &async->work, deliver, async);
    else
        deliver(async);
}

static void on_attempt(void *owner, bool ok);

static void try_again(void *owner)
{
    struct async *async = owner;

    grpc_channel_reset_connect_backoff(async->unary.channel->core);
    attempt_start(&async->unary, rpc_queue());
}

/* On the client thread. Only a failed attempt that may be repeated is looked at here. */
static void on_attempt(void *owner, bool ok)
{
    struct async *async = owner;
    struct unary *unary = &async->unary;

    (void)ok;
    if (unary->code == GRPC_STATUS_UNAVAILABLE && unary->n_retries_left > 0) {
        ProtobufCMessage *none = NULL;
        enum berth_code code = attempt_finish(unary, &none, &async->err);
        int64_t wait_ms = retry_wait_ms(unary, code);

        if (wait_ms >= 0) {
            rpc_client_delay(&async->delay, wait_ms, try_again, async);
            return;
        }
        async->code = code;
    }
    submit(async);
}

void berth_channel_call_async(struct berth_channel *channel, const char *path,
                              const ProtobufCMessage *req,
                              const ProtobufCMessageDescriptor *resp_type,
                              const struct berth_call_options *options, struct berth_pool *pool,
                              berth_done_fn done, void *arg)
{
    struct async *async = calloc(1, sizeof *async);
    struct berth_error err;

    if (!async) {
        (void)berth_fail(&err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        done(arg, err.code, NULL, &err);
        return;
    }
    async->pool = pool;
    async->done = done;
    async->arg = arg;
    async->path = strdup(path);
    async->code = async->path ? enter(channel, &async->err)
                              : berth_fail(&async->err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (!async->code) {
        async->code = unary_init(&async->unary, channel, async->path, req, resp_type, options,
                                 &async->err);
        if (async->code)
            leave(channel);
    }
    if (async->code) {
        async->unary.channel = NULL;
        submit(async);
        return;
    }
    rpc_channel_ref(channel);
    rpc_client_call_begun();
    async->unary.tag = (struct rpc_tag){.fn = on_attempt, .owner = async};
    attempt_start(&async->unary, rpc_queue());
}
