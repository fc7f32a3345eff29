/* plan_rpc.c - PlanSweep: a dry sweep on a worker, then its items one by one, as fast as the
 * caller takes them. */
#include "common/fields/fields.h"
#include "common/messages/messages.h"
#include "services/reaper/sweep.h"

typedef Berth__Reaper__V1__PlanSweepRequest PlanSweepRequest;
typedef Berth__Reaper__V1__SweepItem SweepItem;

/* On the loop; while working is set the worker has request, code, err and items. */
struct plan {
    struct reaper *reaper;
    struct berth_loop *loop;
    struct berth_stream *caller; /* NULL: gone */
    ProtobufCMessage *request;
    bool working, finished;
    enum berth_code code;
    struct berth_error err;
    SweepItem **items;
    size_t n_items, n_sent;
};

static void free_if_over(struct plan *plan)
{
    if (plan->caller || plan->working)
        return;
    for (size_t i = 0; i < plan->n_items; i++)
        berth_message_free(plan->items[i]);
    free(plan->items);
    berth_message_free(plan->request);
    free(plan);
}

static void finish(struct plan *plan, enum berth_code code, const struct berth_error *err)
{
    if (plan->caller && !plan->finished)
        berth_stream_finish(plan->caller, code, err);
    plan->finished = true;
}

static void send_next(struct plan *plan)
{
    Berth__Reaper__V1__PlanSweepResponse resp = BERTH__REAPER__V1__PLAN_SWEEP_RESPONSE__INIT;
    struct berth_buf *msg;

    if (!plan->caller || plan->finished)
        return;
    if (plan->n_sent == plan->n_items) {
        finish(plan, BERTH_OK, NULL);
        return;
    }
    resp.item = plan->items[plan->n_sent++];
    msg = berth_buf_pack(&resp.base);
    if (!msg)
        finish(plan, berth_fail(&plan->err, BERTH_REASON_OUT_OF_MEMORY, NULL), &plan->err);
    else
        (void)berth_stream_write(plan->caller, msg);
}

static void worked(void *arg)
{
    struct plan *plan = arg;

    plan->working = false;
    if (plan->code)
        finish(plan, plan->code, &plan->err);
    else
        send_next(plan);
    free_if_over(plan);
}

static void work(void *arg)
{
    struct plan *plan = arg;
    const PlanSweepRequest *req = (const PlanSweepRequest *)plan->request;
    const struct sweep_request request = {.tenant_id = req->tenant_id,
                                          .config_id = req->config_id,
                                          .dry = true,
                                          .with_kept = req->with_kept,
                                          .budget = UINT32_MAX};
    Berth__Reaper__V1__Sweep *told = NULL;

    plan->code = berth_check_id_or_empty("tenant_id", req->tenant_id, &plan->err);
    if (!plan->code)
        plan->code = berth_check_id_or_empty("config_id", req->config_id, &plan->err);
    if (!plan->code && *req->config_id && !*req->tenant_id)
        plan->code = berth_fail_field(&plan->err, "tenant_id", "must be given with config_id");
    if (!plan->code)
        plan->code = reaper_sweep(plan->reaper, &request, &told, &plan->items, &plan->n_items,
                                  &plan->err);
    if (!plan->code && *told->error)
        plan->code = berth_fail(&plan->err, BERTH_REASON_PEER_UNAVAILABLE, "%s", told->error);
    berth_message_free(told);
    berth_loop_post(plan->loop, worked, plan);
}

static void on_request(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct plan *plan = ctx;
    struct berth_error err = {0};
    enum berth_code code;

    if (!msg) {
        if (!plan->request)
            finish(plan, berth_fail_field(&err, "request", "there was none"), &err);
        return;
    }
    code = berth_buf_decode(&berth__reaper__v1__plan_sweep_request__descriptor, msg,
                            &plan->request, &err);
    berth_buf_unref(msg);
    if (!code) {
        plan->working = true;
        code = berth_pool_submit(plan->reaper->runtime->pool, work, plan, &err);
        plan->working = code == BERTH_OK;
    }
    if (code)
        finish(plan, code, &err);
    else
        berth_stream_read(stream); /* the half-close */
}

static void on_written(void *ctx, struct berth_stream *stream)
{
    (void)stream;
    send_next(ctx);
}

static void on_cancelled(void *ctx, struct berth_stream *stream)
{
    struct berth_error err = {0};

    (void)stream;
    finish(ctx, berth_fail(&err, BERTH_REASON_CANCELLED, NULL), &err);
}

static void on_closed(void *ctx, struct berth_stream *stream, const struct berth_status *status)
{
    struct plan *plan = ctx;

    (void)stream;
    (void)status;
    plan->caller = NULL;
    free_if_over(plan);
}

static const struct berth_stream_ops ops = {
    .message = on_request,
    .written = on_written,
    .closed = on_closed,
    .cancelled = on_cancelled,
};

enum berth_code reaper_rpc_plan(void *service, struct berth_stream *stream,
                                const struct berth_stream_ops **ret_ops, void **ret_ctx,
                                struct berth_error *err)
{
    struct plan *plan = calloc(1, sizeof *plan);

    if (!plan)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    plan->reaper = service;
    plan->loop = berth_stream_loop(stream);
    plan->caller = stream;
    *ret_ops = &ops;
    *ret_ctx = plan;
    berth_stream_read(stream);
    return BERTH_OK;
}
