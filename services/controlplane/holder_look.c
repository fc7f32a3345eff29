/* holder_look.c - the steps that write down what backends did by themselves, and those about a
 * sandbox beside the bound one. */
#include <stdio.h>

#include "common/log/log.h"
#include "common/messages/messages.h"
#include "services/controlplane/holder_steps.h"

typedef Berth__Binding__V1__Binding Binding;
typedef Berth__Binding__V1__CommitRequest CommitRequest;
typedef Berth__Binding__V1__EventDraft EventDraft;

enum { OTHERS_SIZE = 1000 }; /* of an attribute's 1024 characters */

static EventDraft *new_draft(const char *others)
{
    static const ProtobufCMessageDescriptor *const type =
        &berth__binding__v1__event_draft__attributes_entry__descriptor;
    EventDraft *draft = berth_message_new(&berth__binding__v1__event_draft__descriptor);

    if (draft && berth_set_string(&draft->kind, "DUPLICATE_FOUND") &&
        berth_set_map(&draft->n_attributes, &draft->attributes, type, "others", others))
        return draft;
    return berth_message_free(draft);
}

enum berth_code cp_draft_duplicates(const struct cp_holder *h, const char *bound_id,
                                    EventDraft **ret, struct berth_error *err)
{
    char others[OTHERS_SIZE] = "";
    size_t len = 0;

    *ret = NULL;
    for (size_t i = 0; i < h->plan.n_candidates; i++) {
        const char *id = h->plan.candidates[i].sandbox_id;

        if (strcmp(id, bound_id) == 0 || len + strlen(id) + 2 > sizeof others)
            continue;
        len += (size_t)snprintf(others + len, sizeof others - len, "%s%s", len ? "," : "", id);
    }
    if (!len)
        return BERTH_OK;
    *ret = new_draft(others);
    return *ret ? BERTH_OK : berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

/* A patch of the bound one that says nothing. Borrows. */
static void begin_patch(const struct cp_holder *h, CommitRequest *req, Binding *change)
{
    change->sandbox_id = (char *)h->plan.sandbox_id;
    change->fence = cp_lock_grant(h->lock)->fence;
    change->account = h->config->target->fingerprint;
    req->change_case = BERTH__BINDING__V1__COMMIT_REQUEST__CHANGE_PATCH;
    req->patch = change;
}

enum berth_code cp_step_note(struct cp_holder *h, struct berth_error *err)
{
    CommitRequest req = BERTH__BINDING__V1__COMMIT_REQUEST__INIT;
    Binding change = BERTH__BINDING__V1__BINDING__INIT;
    Google__Protobuf__Timestamp end = GOOGLE__PROTOBUF__TIMESTAMP__INIT;

    end.seconds = h->ends_soon_ms / 1000;
    end.nanos = (int32_t)(h->ends_soon_ms % 1000 * 1000000);
    begin_patch(h, &req, &change);
    change.power = h->plan.seen == PLAN_SEEN_PAUSED ? BERTH__BINDING__V1__POWER__POWER_PAUSED
                                                    : BERTH__BINDING__V1__POWER__POWER_RUNNING;
    if (h->ends_soon_ms)
        req.ends_soon_time = &end;
    h->outcome = CP_OBSERVED;
    return cp_holder_commit(h, &req, false, &h->bound, err);
}

enum berth_code cp_step_still_other(struct cp_holder *h, const char *sandbox_id,
                                    struct berth_error *err)
{
    struct berth_error why = {0};
    bool gone = false;
    enum berth_code code = cp_holder_pause(h, sandbox_id, &gone, &why);

    if (gone) {
        plan_note_gone(&h->plan, sandbox_id);
        if (h->plan.want == PLAN_STILL)
            return berth_fail(err, BERTH_REASON_SANDBOX_NOT_FOUND, NULL);
        return BERTH_OK;
    }
    if (code && (h->plan.want == PLAN_STILL || why.reason == BERTH_REASON_LOCK_LOST)) {
        if (err)
            *err = why;
        return code;
    }
    if (code) /* the sweep tries again, what is adopted does not wait for it */
        berth_warn("a second sandbox of a session could not be paused", "session",
                   cp_lock_ref(h->lock)->session_id, "sandbox", sandbox_id, "error", why.text);
    plan_note_stilled(&h->plan, sandbox_id);
    return BERTH_OK;
}

enum berth_code cp_step_tell_other(struct cp_holder *h, const char *sandbox_id,
                                   struct berth_error *err)
{
    CommitRequest req = BERTH__BINDING__V1__COMMIT_REQUEST__INIT;
    Binding change = BERTH__BINDING__V1__BINDING__INIT;
    EventDraft *draft = new_draft(sandbox_id);
    enum berth_code code;

    if (!draft)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    begin_patch(h, &req, &change);
    req.events = &draft;
    req.n_events = 1;
    h->outcome = CP_PAUSED;
    code = cp_holder_commit(h, &req, false, &h->bound, err);
    berth_message_free(draft);
    return code;
}
