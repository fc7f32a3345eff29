/* holder_carry.c - the workspace at a rebuild and an idle kill: out of the bound sandbox before
 * it is condemned, and into the next one before that is bound. */
#include <inttypes.h>
#include <stdio.h>

#include "common/fields/fields.h"
#include "common/ids/ids.h"
#include "common/log/log.h"
#include "common/messages/messages.h"
#include "common/records/deployment.h"
#include "services/controlplane/backend.h"
#include "services/controlplane/holder_steps.h"
#include "services/controlplane/mover.h"
#include "services/controlplane/present.h"

typedef Berth__Common__V1__DataPlaneEndpoint DataPlaneEndpoint;
typedef Berth__Data__V1__MoveWorkspaceResponse MoveWorkspaceResponse;

/* What the data plane needs besides what the adapter said. Borrows. */
static DataPlaneEndpoint whole(const struct cp_holder *h, const DataPlaneEndpoint *endpoint)
{
    DataPlaneEndpoint out = *endpoint;

    if (!out.kind)
        out.kind = h->config->info->data_plane;
    out.target = h->config->target;
    out.fence = cp_lock_grant(h->lock)->fence;
    return out;
}

static enum berth_code move_workspace(struct cp_holder *h, enum cp_direction direction,
                                      const DataPlaneEndpoint *endpoint, const char *blob_id,
                                      uint64_t up_to_fence, MoveWorkspaceResponse **ret,
                                      struct berth_error *err)
{
    const DataPlaneEndpoint complete = whole(h, endpoint);
    const struct cp_move move = {.direction = direction,
                                 .session = cp_lock_ref(h->lock),
                                 .endpoint = &complete,
                                 .blob_id = blob_id,
                                 .up_to_fence = up_to_fence,
                                 .lock = h->lock,
                                 .traceparent = h->traceparent};

    return cp_move(h->cp, &move, ret, err);
}

/* Of an export, and of the import behind it, where that is more. */
static void note_left(struct cp_holder *h, const MoveWorkspaceResponse *resp)
{
    size_t at = 0;

    for (size_t i = 0; i < resp->n_lost; i++)
        berth_warn("a part of a workspace is not carried", "session",
                   cp_lock_ref(h->lock)->session_id, "path", resp->lost[i]->path, "reason",
                   resp->lost[i]->reason);
    if (resp->lost_count <= h->carry_lost)
        return;
    h->carry_lost = resp->lost_count;
    h->carry_names[0] = 0;
    for (size_t i = 0; i < resp->n_lost; i++) {
        const char *path = resp->lost[i]->path;
        size_t size = strlen(path) + (at > 0 ? 2 : 0);

        if (size >= sizeof h->carry_names - at ||
            berth_check_text("path", path, 1, sizeof h->carry_names, NULL))
            continue; /* too long, or not for an event */
        snprintf(h->carry_names + at, sizeof h->carry_names - at, "%s%s", at > 0 ? ", " : "",
                 path);
        at += size;
    }
}

static enum berth_code export_workspace(struct cp_holder *h, struct berth_error *err)
{
    const ProtobufCBinaryData *attempt = &cp_lock_grant(h->lock)->token;
    MoveWorkspaceResponse *resp = NULL;
    DataPlaneEndpoint *endpoint = NULL;
    char token[33];
    enum berth_code code =
        cp_open_endpoint(h->cp, cp_lock_ref(h->lock), h->grant->binding, &endpoint, err);

    if (code)
        return code;
    /* The fence in front, so that it is known again when nobody knows the name any more. */
    berth_hex(token, attempt->data, attempt->len);
    snprintf(h->blob_id, sizeof h->blob_id, "%016" PRIx64 "-%s", cp_lock_grant(h->lock)->fence,
             token);
    code = move_workspace(h, CP_MOVE_OUT, endpoint, h->blob_id, 0, &resp, err);
    h->carry_lost = 0;
    h->carry_names[0] = 0;
    if (!code)
        note_left(h, resp);
    berth_message_free(resp);
    berth_message_free(endpoint);
    return code;
}

/* Nobody writes while it is read, where the backend can freeze a sandbox: that turns have ended
 * does not end what they left running. */
enum berth_code cp_step_export(struct cp_holder *h, struct berth_error *err)
{
    const Berth__Common__V1__PauseCapability *pause = h->config->info->capabilities->pause;
    struct berth_error why = {0};
    enum berth_code code = BERTH_OK;

    if (!h->plan.paused && !h->plan.stilled && pause && pause->supported)
        code = cp_pause_sandbox(h, &why);
    if (!code && h->plan.seen == PLAN_SEEN_GONE)
        return BERTH_OK;
    if (!code)
        code = export_workspace(h, &why);
    h->plan.exported = !code;
    if (!code)
        return BERTH_OK;
    if (cp_is_gone(&why) &&
        (!why.sandbox_id[0] || strcmp(why.sandbox_id, h->plan.sandbox_id) == 0)) {
        h->plan.seen = PLAN_SEEN_GONE;
        return BERTH_OK;
    }
    if (why.reason == BERTH_REASON_LOCK_LOST || why.reason == BERTH_REASON_DRAINING) {
        if (err)
            *err = why;
        return code;
    }
    berth_warn("a workspace could not be exported, its sandbox stays", "session",
               cp_lock_ref(h->lock)->session_id, "sandbox", h->plan.sandbox_id, "error",
               why.text);
    berth_error_set(h->export_error, sizeof h->export_error, why.text);
    h->plan.export_failed = true;
    return BERTH_OK;
}

const char *cp_carry_blob(const struct cp_holder *h)
{
    const Berth__Binding__V1__Carry *carry = h->grant->carry;

    if (h->plan.exported || h->blob_found)
        return h->blob_id;
    return carry && !*carry->into_sandbox_id ? carry->blob_id : NULL;
}

/* A session that was made anew after the index was lost may have a workspace in the blob store
 * that nobody has told binding of. */
static bool may_be_forgotten(struct cp_holder *h, bool *ret, struct berth_error *err)
{
    *ret = false;
    if (!h->cp->mover || !h->grant->session || !h->grant->session->never_bound)
        return true;
    return berth_epoch_lost(h->cp->redis, ret, err) == BERTH_OK;
}

enum berth_code cp_carry_in(struct cp_holder *h, const DataPlaneEndpoint *endpoint,
                            uint64_t made_under, int *ret, struct berth_error *err)
{
    const char *blob_id = cp_carry_blob(h);
    MoveWorkspaceResponse *resp = NULL;
    struct berth_error why = {0};
    bool search = false;
    enum berth_code code;

    *ret = BERTH__BINDING__V1__CARRY_OUTCOME__CARRY_OUTCOME_UNSPECIFIED;
    if (!blob_id && !may_be_forgotten(h, &search, err))
        return BERTH_UNAVAILABLE;
    if (!blob_id && (!search || !made_under))
        return BERTH_OK;
    code = move_workspace(h, CP_MOVE_IN, endpoint, blob_id, made_under, &resp, &why);
    if (!code) {
        note_left(h, resp);
        *ret = BERTH__BINDING__V1__CARRY_OUTCOME__CARRY_OUTCOME_UNPACKED;
    }
    if (!code && !blob_id) {
        h->blob_found = true;
        snprintf(h->blob_id, sizeof h->blob_id, "%.63s", resp->blob_id);
        berth_warn("a workspace that was forgotten with the index is found again", "session",
                   cp_lock_ref(h->lock)->session_id, "blob", h->blob_id);
    }
    berth_message_free(resp);
    if (!code || (!blob_id && why.reason == BERTH_REASON_FILE_NOT_FOUND))
        return BERTH_OK;
    if (why.reason == BERTH_REASON_FILE_NOT_FOUND || why.reason == BERTH_REASON_FILE_CHANGED) {
        berth_warn("a workspace is lost on its way", "session",
                   cp_lock_ref(h->lock)->session_id, "blob", blob_id ? blob_id : "", "error",
                   why.text);
        *ret = BERTH__BINDING__V1__CARRY_OUTCOME__CARRY_OUTCOME_GONE;
        return BERTH_OK;
    }
    if (err)
        *err = why;
    return code;
}

void cp_carry_discard(struct cp_holder *h)
{
    const Berth__Binding__V1__Carry *carry = h->grant->carry;
    const struct cp_move move = {.direction = CP_MOVE_REMOVE,
                                 .session = cp_lock_ref(h->lock),
                                 .blob_id = carry ? carry->blob_id : "",
                                 .lock = h->lock};
    MoveWorkspaceResponse *resp = NULL;
    struct berth_error err;

    if (!carry || !h->cp->mover)
        return;
    if (cp_move(h->cp, &move, &resp, &err))
        berth_warn("the workspace of a deleted session is kept until it is old", "session",
                   cp_lock_ref(h->lock)->session_id, "blob", carry->blob_id, "error", err.text);
    berth_message_free(resp);
}
