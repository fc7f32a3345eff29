/* core_loss.c - what a session loses unasked: noted by the write that frees its binding,
 * pending until a client was told. */
#include "services/binding/core.h"

#include <stdio.h>

bool binding_loss_pending(const struct binding_doc *doc)
{
    return doc->loss.set && !doc->loss.told_ms;
}

void binding_loss_note(struct binding_view *view, enum binding_loss_cause cause,
                       const char *sandbox_id, bool carried, struct binding_plan *plan)
{
    struct binding_doc *doc = &view->doc;
    struct binding_loss *loss = &doc->loss;

    if (!binding_loss_pending(doc)) {
        uint64_t number = loss->number;

        json_decref(loss->json);
        *loss = (struct binding_loss){.set = true, .number = number};
    }
    loss->number++;
    loss->lost_ms = view->now_ms;
    if (cause > loss->cause)
        loss->cause = cause;
    loss->memory = true;
    if (cause != BINDING_LOSS_MEMORY) {
        loss->workspace = loss->workspace || !carried;
        loss->entries += carried ? doc->carry.lost_count : 0;
        loss->packages = true;
        loss->open = cause;
    }
    snprintf(loss->sandbox_id, sizeof loss->sandbox_id, "%s", sandbox_id);
    binding_doc_touch(doc, BINDING_PART_LOSS);
    plan->lost = cause;
}

void binding_loss_close(struct binding_doc *doc)
{
    if (!doc->loss.open)
        return;
    doc->loss.open = BINDING_LOSS_NONE;
    binding_doc_touch(doc, BINDING_PART_LOSS);
}

enum berth_code binding_loss_told(struct binding_view *view, uint64_t number,
                                  struct berth_error *err)
{
    struct binding_doc *doc = &view->doc;

    if (doc->session.state == BINDING_STATE_NONE)
        return berth_fail(err, BERTH_REASON_SESSION_NOT_FOUND, NULL);
    if (!binding_loss_pending(doc) || doc->loss.number != number)
        return BERTH_OK;
    binding_cut(view);
    doc->loss.told_ms = view->now_ms;
    binding_doc_touch(doc, BINDING_PART_LOSS);
    return BERTH_OK;
}
