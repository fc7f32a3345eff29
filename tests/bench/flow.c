/* flow.c - streams: one read to its end, one written, or many held open.
 *
 * read:  {"target", "path", "request", "metadata"}        -> bytes, messages, largest, seconds
 * write: the same and "prefix", "chunk", "n", "last"      -> bytes, messages, largest, seconds;
 *        sends request, n messages of prefix and chunk bytes, then last
 * hold:  {"targets", "path", "requests", "n"}: says "ready" when each has had its first
 * message, ends when standard input does */
#include <pthread.h>
#include <stdio.h>

#include "common/time/time.h"
#include "google/protobuf/empty.pb-c.h"
#include "tests/bench/load.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

struct flow {
    struct berth_channel *channel;
    const char *path;
    struct load_metadata metadata;
    struct berth_buf *first, *chunk, *last;
    int64_t left; /* chunks to send */
    bool writes, holds;

    struct berth_stream *stream;
    uint64_t bytes, messages, largest;
    bool had_first, ended; /* under mutex */
    struct berth_error err;
};

static void note(bool *flag)
{
    pthread_mutex_lock(&mutex);
    *flag = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

static void wait_for(const bool *flag)
{
    pthread_mutex_lock(&mutex);
    while (!*flag)
        pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
}

static void count(struct flow *flow, struct berth_buf *msg)
{
    size_t size = berth_buf_size(msg);

    flow->messages++;
    flow->bytes += size;
    if (size > flow->largest)
        flow->largest = size;
}

static void on_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct flow *flow = ctx;

    if (!msg)
        return;
    if (!flow->writes)
        count(flow, msg);
    berth_buf_unref(msg);
    if (!flow->had_first)
        note(&flow->had_first);
    berth_stream_read(stream);
}

static void on_written(void *ctx, struct berth_stream *stream)
{
    struct flow *flow = ctx;

    if (!flow->writes)
        return;
    if (flow->left > 0) {
        flow->left--;
        count(flow, flow->chunk);
        (void)berth_stream_write(stream, berth_buf_ref(flow->chunk));
    } else if (flow->last) {
        (void)berth_stream_write(stream, BERTH_STEAL(flow->last));
    } else {
        berth_stream_half_close(stream);
    }
}

static void on_closed(void *ctx, struct berth_stream *stream, const struct berth_status *status)
{
    struct flow *flow = ctx;

    (void)stream;
    if (status->code)
        (void)berth_status_to_error(status, &flow->err);
    flow->stream = NULL;
    if (flow->holds && !flow->had_first)
        load_fail("%s: %s", flow->path, flow->err.text);
    note(&flow->ended);
}

static const struct berth_stream_ops ops = {
    .message = on_message, .written = on_written, .closed = on_closed};

static struct berth_loop *loop;

static void begin(void *arg)
{
    struct flow *flow = arg;
    const struct berth_call_options options = {.metadata = flow->metadata.entries,
                                               .n_metadata = flow->metadata.n};

    flow->stream = berth_channel_stream(flow->channel, flow->path, &options, loop, &ops, flow);
    if (!flow->stream)
        load_fail("out of memory");
    (void)berth_stream_write(flow->stream, berth_buf_ref(flow->first));
    if (!flow->writes)
        berth_stream_half_close(flow->stream);
    berth_stream_read(flow->stream);
}

static void cancel(void *arg)
{
    struct flow *flow = arg;

    if (flow->stream)
        berth_stream_cancel(flow->stream);
}

static void loop_begin(void)
{
    struct berth_error err = {0};

    if (berth_loop_new(&loop, &err) || berth_loop_start(loop, "load", &err))
        load_fail("loop: %s", err.text);
}

static struct berth_buf *buf_of(const json_t *plan, const char *key)
{
    size_t size;
    uint8_t *bytes = load_bytes(plan, key, &size);
    struct berth_buf *buf = berth_buf_new(bytes, size);

    free(bytes);
    return buf;
}

static struct berth_buf *chunk_of(const json_t *plan)
{
    size_t prefix_size, size = (size_t)load_number(plan, "chunk");
    uint8_t *prefix = load_bytes(plan, "prefix", &prefix_size);
    uint8_t *bytes = malloc(prefix_size + size);
    struct berth_buf *buf;

    if (!bytes)
        load_fail("out of memory");
    memcpy(bytes, prefix, prefix_size);
    for (size_t i = 0; i < size; i++)
        bytes[prefix_size + i] = (uint8_t)(i * 2654435761u >> 13);
    buf = berth_buf_new(bytes, prefix_size + size);
    free(bytes);
    free(prefix);
    return buf;
}

static json_t *run(const json_t *plan, struct flow *flow)
{
    json_t *result;
    int64_t begin_ns;

    flow->channel = load_channel(load_text(plan, "target"));
    flow->path = load_text(plan, "path");
    flow->first = buf_of(plan, "request");
    load_metadata_init(&flow->metadata, plan);
    if (!berth_channel_ready(flow->channel, 5000))
        load_fail("%s: nobody answers", load_text(plan, "target"));
    loop_begin();
    begin_ns = berth_tick_ns();
    berth_loop_post(loop, begin, flow);
    wait_for(&flow->ended);
    if (flow->err.code)
        load_fail("%s: %s / %s: %s", flow->path, berth_code_name(flow->err.code),
                  berth_reason_name(flow->err.reason), flow->err.text);
    result = json_pack("{s:I,s:I,s:I,s:f}", "bytes", (json_int_t)flow->bytes, "messages",
                       (json_int_t)flow->messages, "largest", (json_int_t)flow->largest,
                       "seconds", (double)(berth_tick_ns() - begin_ns) / 1e9);
    berth_loop_free(loop);
    berth_buf_unref(flow->first);
    berth_buf_unref(flow->chunk);
    berth_buf_unref(flow->last);
    load_metadata_deinit(&flow->metadata);
    return result;
}

json_t *load_read(const json_t *plan)
{
    struct flow flow = {0};

    return run(plan, &flow);
}

json_t *load_write(const json_t *plan)
{
    struct flow flow = {.writes = true, .left = load_number(plan, "n")};

    flow.chunk = chunk_of(plan);
    if (load_text(plan, "last")[0] != 0)
        flow.last = buf_of(plan, "last");
    return run(plan, &flow);
}

json_t *load_hold(const json_t *plan)
{
    const json_t *requests = json_object_get(plan, "requests");
    size_t n = (size_t)load_number(plan, "n"), n_requests = json_array_size(requests);
    struct flow *flows = calloc(n ? n : 1, sizeof *flows);
    json_t *result;

    if (!flows || n_requests == 0)
        load_fail("nothing to hold");
    loop_begin();
    for (size_t i = 0; i < n; i++) {
        flows[i].channel = load_channel(load_text(plan, "target"));
        flows[i].path = load_text(plan, "path");
        flows[i].first = buf_of(json_array_get(requests, i % n_requests), "request");
        flows[i].holds = true;
        load_metadata_init(&flows[i].metadata, plan);
        berth_loop_post(loop, begin, &flows[i]);
    }
    for (size_t i = 0; i < n; i++)
        wait_for(&flows[i].had_first);
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    result = json_pack("{s:I}", "streams", (json_int_t)n);
    for (size_t i = 0; i < n; i++)
        berth_loop_post(loop, cancel, &flows[i]);
    for (size_t i = 0; i < n; i++) {
        wait_for(&flows[i].ended);
        berth_buf_unref(flows[i].first);
        load_metadata_deinit(&flows[i].metadata);
    }
    berth_loop_free(loop);
    free(flows);
    return result;
}
