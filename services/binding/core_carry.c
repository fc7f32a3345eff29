/* core_carry.c - a workspace between two sandboxes of a session. The write that condemns the
 * first one notes that it was exported; the write that binds the next one says that it has it;
 * until that one is in use, and known to be by a replica, the tar is kept. In between nothing
 * is bound without it. */
#include "services/binding/core.h"

#include <stdio.h>

/* A sandbox that nobody knows any more. */
#define FORGOTTEN "forgotten"

bool binding_carry_waits(const struct binding_doc *doc)
{
    return doc->carry.set && !doc->carry.into[0];
}

enum berth_code binding_carry_out(struct binding_view *view, const char *sandbox_id,
                                  const struct binding_change *change, struct berth_error *err)
{
    struct binding_doc *doc = &view->doc;
    struct binding_carry *carry = &doc->carry;
    bool rebuild = doc->lock.op == BINDING_REBUILD;

    if (!doc->bound.set || strcmp(doc->bound.sandbox_id, sandbox_id) != 0)
        return berth_fail(err, BERTH_REASON_CONFLICT, "the sandbox is not the bound one");
    if (!rebuild && doc->lock.want != BINDING_WANT_IDLE)
        return berth_fail(err, BERTH_REASON_CONFLICT,
                          "the lock was not granted for what carries a workspace");
    json_decref(carry->json);
    *carry =
        (struct binding_carry){.set = true,
                               .cause = rebuild ? BINDING_LOSS_REBUILT : BINDING_LOSS_REAPED,
                               .lost_count = change->carry_lost_count,
                               .export_ms = view->now_ms};
    snprintf(carry->blob_id, sizeof carry->blob_id, "%s", change->carry_blob_id);
    snprintf(carry->lost_names, sizeof carry->lost_names, "%s",
             change->carry_lost_names ? change->carry_lost_names : "");
    snprintf(carry->sandbox_id, sizeof carry->sandbox_id, "%s", sandbox_id);
    binding_doc_touch(doc, BINDING_PART_CARRY);
    return BERTH_OK;
}

/* The import left more behind than the export; the loss was noted before. */
static void note_left(struct binding_doc *doc, const struct binding_change *change)
{
    struct binding_carry *carry = &doc->carry;

    if (change->carry_lost_count <= carry->lost_count)
        return;
    if (binding_loss_pending(doc)) {
        doc->loss.entries += change->carry_lost_count - carry->lost_count;
        binding_doc_touch(doc, BINDING_PART_LOSS);
    }
    carry->lost_count = change->carry_lost_count;
    snprintf(carry->lost_names, sizeof carry->lost_names, "%s",
             change->carry_lost_names ? change->carry_lost_names : "");
}

/* What was found in the blob store after the index had been lost: nobody knows any more what
 * sandbox it is from, but that what ran and was installed there is gone. */
static void find_again(struct binding_view *view, const char *sandbox_id,
                       const struct binding_change *change, struct binding_plan *plan)
{
    struct binding_doc *doc = &view->doc;
    struct binding_carry *carry = &doc->carry;

    binding_doc_drop_carry(doc);
    *carry = (struct binding_carry){.set = true,
                                    .cause = BINDING_LOSS_GONE,
                                    .lost_count = change->carry_lost_count,
                                    .export_ms = view->now_ms};
    snprintf(carry->blob_id, sizeof carry->blob_id, "%s", change->carry_blob_id);
    snprintf(carry->lost_names, sizeof carry->lost_names, "%s",
             change->carry_lost_names ? change->carry_lost_names : "");
    snprintf(carry->sandbox_id, sizeof carry->sandbox_id, FORGOTTEN);
    snprintf(carry->into, sizeof carry->into, "%s", sandbox_id);
    binding_doc_touch(doc, BINDING_PART_CARRY);
    binding_loss_note(view, BINDING_LOSS_GONE, FORGOTTEN, true, plan);
}

enum berth_code binding_carry_in(struct binding_view *view, const char *sandbox_id,
                                 const struct binding_change *change, struct binding_plan *plan,
                                 struct berth_error *err)
{
    struct binding_doc *doc = &view->doc;
    struct binding_carry *carry = &doc->carry;

    if (!carry->set && change->carry_outcome == BINDING_CARRY_UNPACKED && change->carry_blob_id)
        find_again(view, sandbox_id, change, plan);
    else if (!carry->set && change->carry_outcome == BINDING_CARRY_GONE)
        binding_loss_note(view, BINDING_LOSS_GONE, FORGOTTEN, false, plan);
    if (!binding_carry_waits(doc))
        return BERTH_OK;
    switch (change->carry_outcome) {
    case BINDING_CARRY_UNPACKED:
        snprintf(carry->into, sizeof carry->into, "%s", sandbox_id);
        note_left(doc, change);
        binding_doc_touch(doc, BINDING_PART_CARRY);
        return BERTH_OK;
    case BINDING_CARRY_GONE:
        binding_loss_note(view, carry->cause, carry->sandbox_id, false, plan);
        binding_doc_drop_carry(doc);
        return BERTH_OK;
    default:
        return berth_fail(err, BERTH_REASON_CONFLICT,
                          "the session's workspace waits to be unpacked");
    }
}

bool binding_carry_keeps(struct binding_view *view, const char *sandbox_id)
{
    struct binding_carry *carry = &view->doc.carry;

    if (!carry->set)
        return false;
    if (strcmp(carry->into, sandbox_id) == 0) { /* but what was done there since is not */
        carry->into[0] = 0;
        binding_doc_touch(&view->doc, BINDING_PART_CARRY);
        return false;
    }
    return !carry->into[0] && strcmp(carry->sandbox_id, sandbox_id) == 0;
}

enum berth_code binding_carry_confirm(struct binding_view *view, const char *blob_id,
                                      struct binding_plan *plan, struct berth_error *err)
{
    struct binding_doc *doc = &view->doc;

    if (doc->session.state == BINDING_STATE_NONE)
        return berth_fail(err, BERTH_REASON_SESSION_NOT_FOUND, NULL);
    if (!doc->carry.set || binding_carry_waits(doc) || strcmp(doc->carry.blob_id, blob_id) != 0)
        return berth_fail(err, BERTH_REASON_CONFLICT,
                          "the session's workspace is not known to be unpacked");
    binding_cut(view);
    binding_doc_touch(doc, BINDING_PART_CARRY);
    plan->durable = true;
    return BERTH_OK;
}

enum berth_code binding_carry_forget(struct binding_view *view, const char *blob_id,
                                     struct berth_error *err)
{
    struct binding_doc *doc = &view->doc;

    if (doc->session.state == BINDING_STATE_NONE)
        return berth_fail(err, BERTH_REASON_SESSION_NOT_FOUND, NULL);
    if (!doc->carry.set || binding_carry_waits(doc) || strcmp(doc->carry.blob_id, blob_id) != 0)
        return BERTH_OK;
    binding_cut(view);
    binding_doc_drop_carry(doc);
    return BERTH_OK;
}
