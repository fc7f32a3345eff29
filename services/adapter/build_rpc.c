#include "services/adapter/build_rpc.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "berth/backend/v1/backend.pb-c.h"
#include "common/fields/fields.h"
#include "common/time/time.h"
#include "services/adapter/adapter.h"
#include "services/adapter/decode.h"
#include "services/adapter/edge.h"
#include "services/adapter/encode.h"

typedef Berth__Backend__V1__BuildTemplateRequest BuildTemplateRequest;
typedef Berth__Backend__V1__BuildTemplateResponse BuildTemplateResponse;

enum { NAME_MAX_LEN = 63 };

/* What is shown of the progress: the latest, when the caller is slow. */
struct shown {
    char step[64], message[256];
    unsigned percent;
    bool fresh; /* not sent yet */
};

/* One build. The worker and the stream each hold it; the last to go frees it. */
struct build {
    const struct adapter_service *service;
    struct berth_loop *loop;
    char name[NAME_MAX_LEN + 1];
    int64_t deadline_ms;
    atomic_int n_holders;
    atomic_bool given_up;

    pthread_mutex_t lock; /* of shown and posted */
    struct shown shown;
    bool posted;

    /* On the loop only. */
    struct berth_stream *stream; /* NULL once closed */
    bool over, last_written;
    enum berth_code code;
    struct berth_error err;
    struct adapter_template built;
};

static void release(struct build *build)
{
    if (atomic_fetch_sub(&build->n_holders, 1) > 1)
        return;
    pthread_mutex_destroy(&build->lock);
    free(build);
}

static struct berth_buf *pack_progress(const struct shown *shown)
{
    BuildTemplateResponse resp = BERTH__BACKEND__V1__BUILD_TEMPLATE_RESPONSE__INIT;
    BERTH_AUTO(free) char *message = berth_utf8_lossy(shown->message, strlen(shown->message));

    if (!message)
        return NULL;
    resp.step = (char *)shown->step;
    resp.percent = shown->percent;
    resp.message = message;
    return berth_buf_pack(&resp.base);
}

static struct berth_buf *pack_template(const struct adapter_template *built)
{
    BuildTemplateResponse resp = BERTH__BACKEND__V1__BUILD_TEMPLATE_RESPONSE__INIT;
    struct berth_buf *buf;

    resp.template_ = encode_template(built);
    if (!resp.template_)
        return NULL;
    resp.step = "done";
    resp.percent = 100;
    buf = berth_buf_pack(&resp.base);
    protobuf_c_message_free_unpacked(&resp.template_->base, NULL);
    return buf;
}

static void send(struct build *build, struct berth_buf *buf)
{
    if (buf)
        (void)berth_stream_write(build->stream, buf);
    else
        berth_stream_finish(build->stream,
                            berth_fail(&build->err, BERTH_REASON_OUT_OF_MEMORY, NULL),
                            &build->err);
}

/* On the loop: send what is fresh, then the end. */
static void pump(struct build *build)
{
    struct shown shown;

    if (!build->stream || !berth_stream_can_write(build->stream))
        return;
    pthread_mutex_lock(&build->lock);
    shown = build->shown;
    build->shown.fresh = false;
    pthread_mutex_unlock(&build->lock);
    if (shown.fresh) {
        send(build, pack_progress(&shown));
    } else if (build->over && build->code == BERTH_OK && !build->last_written) {
        build->last_written = true;
        send(build, pack_template(&build->built));
    } else if (build->over) {
        berth_stream_finish(build->stream, build->code, &build->err);
    }
}

static void on_posted(void *arg)
{
    struct build *build = arg;

    pthread_mutex_lock(&build->lock);
    build->posted = false;
    pthread_mutex_unlock(&build->lock);
    pump(build);
}

/* ------------------------------------------------------------------ the worker */

static bool on_progress(void *arg, const char *step, unsigned percent, const char *message)
{
    struct build *build = arg;
    bool post;

    pthread_mutex_lock(&build->lock);
    snprintf(build->shown.step, sizeof build->shown.step, "%s", step);
    snprintf(build->shown.message, sizeof build->shown.message, "%s", message);
    build->shown.percent = percent;
    build->shown.fresh = true;
    post = !build->posted;
    build->posted = true;
    pthread_mutex_unlock(&build->lock);
    if (post)
        berth_loop_post(build->loop, on_posted, build);
    return !atomic_load(&build->given_up);
}

/* Posted after every progress, so that nothing of this build comes later. */
static void on_over(void *arg)
{
    struct build *build = arg;

    build->over = true;
    pump(build);
    release(build);
}

static void work(void *arg)
{
    struct build *build = arg;
    const struct adapter_ops *ops = build->service->ops;

    build->code = ops->build_template(build->service->adapter, build->name, on_progress, build,
                                      build->deadline_ms, &build->built, &build->err);
    (void)edge_failed(build->service, "", build->code, &build->err);
    berth_loop_post(build->loop, on_over, build);
}

/* ------------------------------------------------------------------ the stream */

static enum berth_code check(struct build *build, const BuildTemplateRequest *req,
                             struct berth_error *err)
{
    enum berth_code code = decode_target(req->target, build->service->ops->backend, err);

    if (!code)
        code = berth_check_id("name", req->name, err);
    if (!code && strlen(req->name) > NAME_MAX_LEN)
        code = berth_fail_field(err, "name", "must be at most %d characters", NAME_MAX_LEN);
    if (!code && !build->service->ops->build_template)
        code = decode_missing(err, "name", "templates_build");
    /* A recipe of the caller's own needs a backend that says so; none does yet. */
    if (!code && req->recipe)
        code = decode_missing(err, "recipe", "templates_build.recipe");
    if (!code)
        snprintf(build->name, sizeof build->name, "%s", req->name);
    return code;
}

static enum berth_code begin(struct build *build, struct berth_buf *msg,
                             struct berth_error *err)
{
    ProtobufCMessage *message = NULL;
    enum berth_code code;

    code = berth_buf_decode(&berth__backend__v1__build_template_request__descriptor, msg,
                            &message, err);
    if (code)
        return code;
    code = check(build, (const BuildTemplateRequest *)message, err);
    protobuf_c_message_free_unpacked(message, NULL);
    if (code)
        return code;
    build->deadline_ms = edge_deadline(berth_stream_call(build->stream), EDGE_BUILD_MS);
    atomic_fetch_add(&build->n_holders, 1);
    code = berth_pool_submit(build->service->runtime->pool, work, build, err);
    if (code)
        release(build);
    return code;
}

static void on_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct build *build = ctx;
    struct berth_error err = {0};
    enum berth_code code;

    if (!msg) {
        berth_stream_finish(stream, berth_fail_field(&err, "name", "must be given"), &err);
        return;
    }
    code = begin(build, msg, &err);
    berth_buf_unref(msg);
    if (code)
        berth_stream_finish(stream, edge_failed(build->service, "", code, &err), &err);
}

static void on_written(void *ctx, struct berth_stream *stream)
{
    (void)stream;
    pump(ctx);
}

static void on_closed(void *ctx, struct berth_stream *stream, const struct berth_status *status)
{
    struct build *build = ctx;

    (void)stream;
    (void)status;
    build->stream = NULL;
    atomic_store(&build->given_up, true);
    release(build);
}

static void on_cancelled(void *ctx, struct berth_stream *stream)
{
    struct build *build = ctx;
    struct berth_error err = {0};

    atomic_store(&build->given_up, true);
    berth_stream_finish(stream, berth_fail(&err, BERTH_REASON_CANCELLED, NULL), &err);
}

enum berth_code build_template_open(void *service, struct berth_stream *stream,
                                    const struct berth_stream_ops **ret_ops, void **ret_ctx,
                                    struct berth_error *err)
{
    static const struct berth_stream_ops ops = {.message = on_message,
                                                .written = on_written,
                                                .closed = on_closed,
                                                .cancelled = on_cancelled};
    struct build *build = calloc(1, sizeof *build);

    if (!build)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    pthread_mutex_init(&build->lock, NULL);
    build->service = service;
    build->stream = stream;
    build->loop = berth_stream_loop(stream);
    atomic_store(&build->n_holders, 1);
    *ret_ops = &ops;
    *ret_ctx = build;
    berth_stream_read(stream);
    return BERTH_OK;
}
