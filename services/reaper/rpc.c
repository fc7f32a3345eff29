/* rpc.c - ReaperService but for PlanSweep, which is a stream (plan_rpc.c). */
#include "common/fields/fields.h"
#include "common/messages/messages.h"
#include "services/reaper/history.h"
#include "services/reaper/sweep.h"

typedef Berth__Reaper__V1__GetSweepRequest GetSweepRequest;
typedef Berth__Reaper__V1__GetSweepResponse GetSweepResponse;
typedef Berth__Reaper__V1__RunSweepRequest RunSweepRequest;
typedef Berth__Reaper__V1__RunSweepResponse RunSweepResponse;

enum { BUDGET_MAX = 100000 };

static enum berth_code check_run(const RunSweepRequest *req, struct berth_error *err)
{
    enum berth_code code = berth_check_id_or_empty("tenant_id", req->tenant_id, err);

    if (!code)
        code = berth_check_id_or_empty("config_id", req->config_id, err);
    if (!code && *req->config_id && !*req->tenant_id)
        code = berth_fail_field(err, "tenant_id", "must be given with config_id");
    if (!code && req->budget > BUDGET_MAX)
        code = berth_fail_field(err, "budget", "must be at most %d", BUDGET_MAX);
    return code;
}

/* Ended before it had looked at anything: who asked is told that, not of a sweep. */
static bool did_nothing(const Berth__Reaper__V1__Sweep *told)
{
    return *told->error &&
           told->seen + told->deleted + told->failed + told->adopted + told->paused == 0;
}

static enum berth_code run_sweep(void *service, struct berth_call *call,
                                 const ProtobufCMessage *message, ProtobufCMessage **ret_resp,
                                 struct berth_error *err)
{
    struct reaper *reaper = service;
    const RunSweepRequest *req = (const RunSweepRequest *)message;
    const struct sweep_request request = {.tenant_id = req->tenant_id,
                                          .config_id = req->config_id,
                                          .budget = req->budget ? req->budget : reaper->budget};
    Berth__Reaper__V1__SweepItem **items = NULL;
    RunSweepResponse *out;
    size_t n_items = 0;
    enum berth_code code = check_run(req, err);

    (void)call;
    if (code)
        return code;
    out = berth_message_new(&berth__reaper__v1__run_sweep_response__descriptor);
    if (!out)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    code = reaper_sweep(reaper, &request, &out->sweep, &items, &n_items, err);
    if (!code) {
        Berth__Reaper__V1__Sweep *told = out->sweep;

        out->sweep = berth_message_copy(told);
        reaper_history_add(reaper->history, told, items, n_items);
        if (!out->sweep)
            code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        else if (did_nothing(out->sweep))
            code = berth_fail(err, BERTH_REASON_PEER_UNAVAILABLE, "%s", out->sweep->error);
    }
    if (code)
        berth_message_free(out);
    else
        *ret_resp = &out->base;
    return code;
}

static enum berth_code get_sweep(void *service, struct berth_call *call,
                                 const ProtobufCMessage *message, ProtobufCMessage **ret_resp,
                                 struct berth_error *err)
{
    struct reaper *reaper = service;
    const GetSweepRequest *req = (const GetSweepRequest *)message;
    GetSweepResponse *out = NULL;
    enum berth_code code = berth_check_id_or_empty("sweep_id", req->sweep_id, err);

    (void)call;
    if (!code)
        code = reaper_history_get(reaper->history, req->sweep_id, &out, err);
    if (!code)
        *ret_resp = &out->base;
    return code;
}

const struct berth_method reaper_methods[] = {
    {"/berth.reaper.v1.ReaperService/GetSweep",
     &berth__reaper__v1__get_sweep_request__descriptor, .unary = get_sweep},
    {"/berth.reaper.v1.ReaperService/PlanSweep",
     &berth__reaper__v1__plan_sweep_request__descriptor, .open = reaper_rpc_plan},
    {"/berth.reaper.v1.ReaperService/RunSweep",
     &berth__reaper__v1__run_sweep_request__descriptor, .unary = run_sweep},
};
const size_t reaper_n_methods = BERTH_COUNT(reaper_methods);
