/* loss.c - the LossTold and ForgetCarry calls, and the operator's side of a loss: log lines and
 * figures. */
#include "services/binding/binding.h"

#include <stdio.h>

#include "common/fields/fields.h"
#include "common/log/log.h"
#include "services/binding/decode.h"
#include "services/binding/figures.h"

/* ---------------------------------------------------------------------- reporting */

void binding_report_loss(struct binding *binding, const struct binding_ref *ref,
                         const struct binding_view *view, const struct binding_plan *plan)
{
    if (plan->lost) {
        atomic_fetch_add(&binding->n_losses[plan->lost], 1);
        berth_warn("a session lost its sandbox or its memory, its next answer says so",
                   "tenant", ref->tenant_id, "session", ref->session_id, "sandbox",
                   view->doc.loss.sandbox_id, "cause", binding_loss_word(plan->lost));
    }
    if (plan->replaced) {
        atomic_fetch_add(&binding->n_replaced[plan->replaced], 1);
        berth_warn("a new sandbox stands in for a lost one, without what was in it", "tenant",
                   ref->tenant_id, "session", ref->session_id, "sandbox",
                   view->doc.bound.sandbox_id, "lost", view->doc.loss.sandbox_id, "cause",
                   binding_loss_word(plan->replaced));
    }
}

static void print_by_cause(FILE *out, const char *name, const char *help,
                           enum binding_loss_cause from, atomic_ullong *counters)
{
    fprintf(out, "# HELP berth_binding_%s %s\n# TYPE berth_binding_%s counter\n", name, help,
            name);
    for (enum binding_loss_cause cause = from; cause <= BINDING_LOSS_GONE; cause++)
        fprintf(out, "berth_binding_%s{cause=\"%s\"} %llu\n", name, binding_loss_word(cause),
                atomic_load(&counters[cause]));
}

char *binding_loss_metrics(struct binding *binding)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return NULL;
    print_by_cause(out, "losses_total", "Sandboxes (or their memory) that sessions lost.",
                   BINDING_LOSS_MEMORY, binding->n_losses);
    print_by_cause(out, "replacements_total",
                   "Sandboxes bound in place of a lost one, by why it was lost.",
                   BINDING_LOSS_REBUILT, binding->n_replaced);
    binding_figures_print(out, binding_store_figures(binding->store));
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

/* ----------------------------------------------------------------------- LossTold */

static enum berth_code rule(void *arg, struct binding_view *view, struct binding_plan *plan,
                            struct berth_error *err)
{
    const uint64_t *number = arg;

    (void)plan;
    return binding_loss_told(view, *number, err);
}

enum berth_code binding_rpc_loss_told(void *service, struct berth_call *call,
                                      const ProtobufCMessage *message,
                                      ProtobufCMessage **ret_resp, struct berth_error *err)
{
    const Berth__Binding__V1__LossToldRequest *req =
        (const Berth__Binding__V1__LossToldRequest *)message;
    struct binding *binding = service;
    Berth__Binding__V1__LossToldResponse *out;
    struct binding_ref ref;
    struct binding_view view;
    struct binding_plan plan = {0};
    uint64_t number = req->number;
    enum berth_code code = binding_decode_ref(req->session, &ref, err);

    (void)call;
    if (!code && number == 0)
        code = berth_fail_field(err, "number", "must be that of the loss");
    if (!code)
        code = binding_store_run(binding->store, &ref, rule, &number, &view, &plan, err);
    if (code)
        return code;
    binding_plan_deinit(&plan);
    binding_view_deinit(&view);
    out = malloc(sizeof *out);
    if (!out)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    berth__binding__v1__loss_told_response__init(out);
    *ret_resp = &out->base;
    return BERTH_OK;
}

/* -------------------------------------------------------------------- ForgetCarry */

static enum berth_code forget_rule(void *arg, struct binding_view *view,
                                   struct binding_plan *plan, struct berth_error *err)
{
    const Berth__Binding__V1__ForgetCarryRequest *req = arg;

    return req->confirm ? binding_carry_confirm(view, req->blob_id, plan, err)
                        : binding_carry_forget(view, req->blob_id, err);
}

enum berth_code binding_rpc_forget_carry(void *service, struct berth_call *call,
                                         const ProtobufCMessage *message,
                                         ProtobufCMessage **ret_resp, struct berth_error *err)
{
    const Berth__Binding__V1__ForgetCarryRequest *req =
        (const Berth__Binding__V1__ForgetCarryRequest *)message;
    struct binding *binding = service;
    Berth__Binding__V1__ForgetCarryResponse *out;
    struct binding_ref ref;
    struct binding_view view;
    struct binding_plan plan = {0};
    enum berth_code code = binding_decode_ref(req->session, &ref, err);

    (void)call;
    if (!code)
        code = berth_check_id("blob_id", req->blob_id, err);
    if (!code)
        code = binding_store_run(binding->store, &ref, forget_rule, (void *)req, &view, &plan,
                                 err);
    if (code)
        return code;
    binding_plan_deinit(&plan);
    binding_view_deinit(&view);
    out = malloc(sizeof *out);
    if (!out)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    berth__binding__v1__forget_carry_response__init(out);
    *ret_resp = &out->base;
    return BERTH_OK;
}
