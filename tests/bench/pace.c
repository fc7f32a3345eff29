/* pace.c - berth-bench-pace callback | plain: what "rival load" does, by common/rpc.
 *
 * Per line "TARGET CALLS SECONDS" of standard input one line "CALLS_PER_SECOND P50_US".
 * callback: as the rival, the next call is made where the last one's end is seen. plain: one
 * call in flight is a blocking one, more are evented, as in the data plane. */
#include <pthread.h>
#include <stdio.h>

#include "berth/common/v1/common.pb-c.h"
#include "common/rpc/rpc.h"
#include "common/time/time.h"
#include "tests/bench/relay.h"

enum { SAMPLES_MAX = 1 << 20, LINE_SIZE = 256, US = 1000, NS_PER_S = 1000000000 };

static struct {
    struct berth_loop *loop;
    struct berth_channel *channel;
    Berth__Common__V1__SessionRef request;
    int64_t end_ns;
    float *micros;
    size_t n;
    pthread_mutex_t mutex; /* of left */
    pthread_cond_t changed;
    unsigned left;
} pace = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

struct lane {
    int64_t begin_ns;
    bool answered;
};

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "berth-bench-pace: %s: %s\n", what, why);
    exit(EXIT_FAILURE);
}

static void note(int64_t begin_ns, int64_t now_ns)
{
    if (pace.n < SAMPLES_MAX)
        pace.micros[pace.n] = (float)(now_ns - begin_ns) / US;
    pace.n++;
}

static void end_lane(void)
{
    pthread_mutex_lock(&pace.mutex);
    if (--pace.left == 0)
        pthread_cond_broadcast(&pace.changed);
    pthread_mutex_unlock(&pace.mutex);
}

/* lanes are freed. */
static void wait_for_lanes(struct lane *lanes)
{
    pthread_mutex_lock(&pace.mutex);
    while (pace.left > 0)
        pthread_cond_wait(&pace.changed, &pace.mutex);
    pthread_mutex_unlock(&pace.mutex);
    free(lanes);
}

/* ----------------------------------------------------------------- evented */

static void start(struct lane *lane);

static void on_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct lane *lane = ctx;
    ProtobufCMessage *answer = NULL;

    if (!msg)
        return;
    if (berth_buf_decode(&berth__common__v1__session_ref__descriptor, msg, &answer, NULL))
        fail("echo", "the answer cannot be read");
    protobuf_c_message_free_unpacked(answer, NULL);
    berth_buf_unref(msg);
    lane->answered = true;
    berth_stream_read(stream);
}

static void on_closed(void *ctx, struct berth_stream *stream, const struct berth_status *status)
{
    struct lane *lane = ctx;
    int64_t now_ns = berth_tick_ns();

    (void)stream;
    if (status->code || !lane->answered)
        fail("echo", status->message);
    note(lane->begin_ns, now_ns);
    if (now_ns < pace.end_ns)
        start(lane);
    else
        end_lane();
}

static const struct berth_stream_ops ops = {.message = on_message, .closed = on_closed};

static void start(struct lane *lane)
{
    const struct berth_call_options options = {0};
    struct berth_stream *stream;

    lane->begin_ns = berth_tick_ns();
    lane->answered = false;
    stream = berth_channel_stream(pace.channel, BENCH_ECHO, &options, pace.loop, &ops, lane);
    if (!stream)
        fail("echo", "out of memory");
    (void)berth_stream_write_last(stream, berth_buf_pack(&pace.request.base));
    berth_stream_read(stream);
}

static void start_posted(void *arg)
{
    start(arg);
}

static void run_evented(unsigned calls)
{
    struct lane *lanes = calloc(calls, sizeof *lanes);

    if (!lanes)
        fail("lanes", "out of memory");
    pace.left = calls;
    for (unsigned i = 0; i < calls; i++)
        berth_loop_post(pace.loop, start_posted, &lanes[i]);
    wait_for_lanes(lanes);
}

/* --------------------------------------------------------------- callbacks */

static void call(struct lane *lane);

static void on_done(void *arg, enum berth_code code, ProtobufCMessage *resp,
                    const struct berth_error *err)
{
    struct lane *lane = arg;
    int64_t now_ns = berth_tick_ns();

    if (code)
        fail("echo", err->text);
    note(lane->begin_ns, now_ns); /* one thread sees all ends */
    protobuf_c_message_free_unpacked(resp, NULL);
    if (now_ns < pace.end_ns)
        call(lane);
    else
        end_lane();
}

static void call(struct lane *lane)
{
    lane->begin_ns = berth_tick_ns();
    berth_channel_call_async(pace.channel, BENCH_ECHO, &pace.request.base,
                             &berth__common__v1__session_ref__descriptor, NULL, NULL, on_done,
                             lane);
}

static void run_callbacks(unsigned calls)
{
    struct lane *lanes = calloc(calls, sizeof *lanes);

    if (!lanes)
        fail("lanes", "out of memory");
    pace.left = calls;
    for (unsigned i = 0; i < calls; i++)
        call(&lanes[i]);
    wait_for_lanes(lanes);
}

/* ---------------------------------------------------------------- blocking */

static void run_blocking(void)
{
    int64_t now_ns = berth_tick_ns();

    while (now_ns < pace.end_ns) {
        int64_t begin_ns = now_ns;
        ProtobufCMessage *answer = NULL;
        struct berth_error err = {0};

        if (berth_channel_call(pace.channel, BENCH_ECHO, &pace.request.base,
                               &berth__common__v1__session_ref__descriptor, NULL, &answer,
                               &err))
            fail("echo", err.text);
        protobuf_c_message_free_unpacked(answer, NULL);
        now_ns = berth_tick_ns();
        note(begin_ns, now_ns);
    }
}

static int compare(const void *a, const void *b)
{
    float left = *(const float *)a, right = *(const float *)b;

    return (left > right) - (left < right);
}

static void run(const char *line, bool callback)
{
    char target[128];
    struct berth_error err = {0};
    unsigned calls;
    double seconds, took;
    int64_t begin_ns;
    size_t n;

    if (sscanf(line, "%127s %u %lf", target, &calls, &seconds) != 3 || calls == 0)
        fail("not a line", line);
    if (berth_channel_new(target, NULL, &pace.channel, &err))
        fail(target, err.text);
    if (!berth_channel_ready(pace.channel, 5000))
        fail(target, "nobody answers");
    pace.n = 0;
    begin_ns = berth_tick_ns();
    pace.end_ns = begin_ns + (int64_t)(seconds * NS_PER_S);
    if (callback)
        run_callbacks(calls);
    else if (calls == 1)
        run_blocking();
    else
        run_evented(calls);
    took = (double)(berth_tick_ns() - begin_ns) / NS_PER_S;
    n = pace.n < SAMPLES_MAX ? pace.n : SAMPLES_MAX;
    qsort(pace.micros, n, sizeof *pace.micros, compare);
    printf("%.1f %.2f\n", (double)pace.n / took, n ? (double)pace.micros[n / 2] : 0);
    fflush(stdout);
    pace.channel = berth_channel_free(pace.channel);
}

int main(int argc, char **argv)
{
    bool callback = argc == 2 && strcmp(argv[1], "callback") == 0;
    struct berth_error err = {0};
    char line[LINE_SIZE];

    if (!callback && !(argc == 2 && strcmp(argv[1], "plain") == 0)) {
        fputs("usage: berth-bench-pace callback|plain\n", stderr);
        return EXIT_FAILURE;
    }
    berth_rpc_init();
    pace.micros = calloc(SAMPLES_MAX, sizeof *pace.micros);
    if (!pace.micros || berth_loop_new(&pace.loop, &err) ||
        berth_loop_start(pace.loop, "pace", &err))
        fail("start", err.text);
    berth__common__v1__session_ref__init(&pace.request);
    pace.request.tenant_id = (char *)(uintptr_t) "default";
    pace.request.session_id = (char *)(uintptr_t) "bench-echo-00000";
    while (fgets(line, sizeof line, stdin))
        run(line, callback);
    berth_loop_free(pace.loop);
    free(pace.micros);
    berth_rpc_done();
    return EXIT_SUCCESS;
}
