/* holder_bind.c - the steps that end in a binding: connect, adopt, create. */
#include "services/controlplane/holder_steps.h"

#include "common/messages/messages.h"
#include "common/records/deployment.h"
#include "common/time/time.h"
#include "services/controlplane/backend.h"
#include "services/controlplane/inbound.h"
#include "services/controlplane/names.h"
#include "services/controlplane/policy.h"
#include "services/controlplane/present.h"

typedef Berth__Backend__V1__ConnectSandboxRequest ConnectSandboxRequest;
typedef Berth__Backend__V1__ConnectSandboxResponse ConnectSandboxResponse;
typedef Berth__Backend__V1__CreateSandboxRequest CreateSandboxRequest;
typedef Berth__Backend__V1__CreateSandboxResponse CreateSandboxResponse;
typedef Berth__Binding__V1__Binding Binding;
typedef Berth__Binding__V1__CommitRequest CommitRequest;
typedef Berth__Common__V1__DataPlaneEndpoint DataPlaneEndpoint;
typedef Berth__Common__V1__Sandbox Sandbox;

#define BACKEND "/berth.backend.v1.BackendService/"

enum { EXISTS_MAX = 3, SANDBOX_ID_MAX = PLAN_ID_SIZE - 1 };

/* ---------------------------------------------------------------- connect, adopt */

static enum berth_code connect_sandbox(struct cp_holder *h, const char *sandbox_id,
                                       const Binding *known, ConnectSandboxResponse **ret,
                                       struct berth_error *err)
{
    ConnectSandboxRequest req = BERTH__BACKEND__V1__CONNECT_SANDBOX_REQUEST__INIT;
    DataPlaneEndpoint *endpoint = NULL;
    Google__Protobuf__Timestamp not_after;
    struct cp_policy policy = {0};
    int64_t left_ms;
    enum berth_code code;

    if (!cp_begin_call(h, &left_ms, &not_after, err))
        return BERTH_ABORTED;
    code = cp_policy_resolve(h->config->settings, h->grant->session->spec,
                             h->config->info->capabilities, &policy, err);
    if (!code && known)
        code = cp_open_endpoint(h->cp, cp_lock_ref(h->lock), known, &endpoint, err);
    if (!code) {
        req.target = h->config->target;
        req.sandbox_id = (char *)sandbox_id;
        req.timeouts = policy.timeouts;
        req.fence = cp_lock_grant(h->lock)->fence;
        req.not_after_time = &not_after;
        if (endpoint)
            req.traffic_token = (char *)cp_inbound_token(endpoint);
        code = cp_adapter_call(h, BACKEND "ConnectSandbox", &req.base,
                               &berth__backend__v1__connect_sandbox_response__descriptor,
                               left_ms, ret, err);
    }
    berth_message_free(endpoint);
    cp_policy_deinit(&policy);
    return code;
}

static bool usable(const Sandbox *sandbox, const DataPlaneEndpoint *endpoint,
                   const char *sandbox_id)
{
    return sandbox && endpoint && strcmp(sandbox->sandbox_id, sandbox_id) == 0 &&
           strlen(sandbox->sandbox_id) <= SANDBOX_ID_MAX &&
           sandbox->state == BERTH__COMMON__V1__SANDBOX_STATE__SANDBOX_STATE_RUNNING;
}

/* What a binding says of a sandbox that answers. Borrows; sealed is owned by the caller. */
static enum berth_code describe(struct cp_holder *h, Sandbox *sandbox,
                                const DataPlaneEndpoint *endpoint, Binding *ret,
                                ProtobufCBinaryData *sealed, struct berth_error *err)
{
    enum berth_code code = cp_seal_endpoint(h->cp, cp_lock_ref(h->lock), sandbox->sandbox_id,
                                            endpoint, sealed, err);

    if (code)
        return code;
    berth__binding__v1__binding__init(ret);
    ret->backend = h->config->target->backend;
    ret->config_id = (char *)h->config->config_id;
    ret->sandbox_id = sandbox->sandbox_id;
    ret->image = sandbox->image;
    ret->create_time = sandbox->create_time;
    ret->end_time = sandbox->end_time;
    ret->fence = cp_lock_grant(h->lock)->fence;
    ret->sealed_endpoint = *sealed;
    ret->account = h->config->target->fingerprint;
    ret->power = BERTH__BINDING__V1__POWER__POWER_RUNNING;
    return BERTH_OK;
}

static void note_verified(struct cp_holder *h, const char *sandbox_id)
{
    const Berth__Common__V1__SessionRef *ref = cp_lock_ref(h->lock);

    cp_verified_note(h->cp->verified, "", ref->tenant_id, ref->session_id, sandbox_id,
                     berth_tick_ms());
}

static enum berth_code patch_running(struct cp_holder *h, ConnectSandboxResponse *resp,
                                     struct berth_error *err)
{
    CommitRequest req = BERTH__BINDING__V1__COMMIT_REQUEST__INIT;
    Berth__Binding__V1__EventDraft draft = BERTH__BINDING__V1__EVENT_DRAFT__INIT;
    Berth__Binding__V1__EventDraft *drafts[] = {&draft};
    Berth__Binding__V1__EventDraft__AttributesEntry entry =
        BERTH__BINDING__V1__EVENT_DRAFT__ATTRIBUTES_ENTRY__INIT;
    Berth__Binding__V1__EventDraft__AttributesEntry *attribute = &entry;
    ProtobufCBinaryData sealed = {0};
    Binding change;
    enum berth_code code = describe(h, resp->sandbox, resp->endpoint, &change, &sealed, err);

    if (!code) {
        change.inbound_token_lost = resp->inbound_token_lost;
        req.change_case = BERTH__BINDING__V1__COMMIT_REQUEST__CHANGE_PATCH;
        req.patch = &change;
        req.memory_lost = resp->memory_lost;
        req.was_paused = resp->resumed && h->plan.decision == PLAN_DO_VERIFY;
        req.turn_token = (char *)h->turn_token;
        draft.kind = (char *)"REBUILD_DEFERRED";
        entry.key = (char *)"error";
        entry.value = h->export_error;
        draft.attributes = &attribute;
        draft.n_attributes = 1;
        req.events = drafts;
        req.n_events = h->plan.export_failed && h->plan.decision == PLAN_DO_REBUILD;
        code = cp_holder_commit(h, &req, false, &h->bound, err);
    }
    free(sealed.data);
    return code;
}

enum berth_code cp_step_connect(struct cp_holder *h, bool *ret_done, struct berth_error *err)
{
    ConnectSandboxResponse *resp = NULL;
    struct berth_error why;
    enum berth_code code =
        connect_sandbox(h, h->plan.sandbox_id, h->grant->binding, &resp, &why);

    if (code && cp_says_gone(&why, h->plan.sandbox_id)) {
        h->plan.seen = PLAN_SEEN_GONE;
        return BERTH_OK;
    }
    if (code) {
        if (err)
            *err = why;
        return code;
    }
    *ret_done = true;
    if (!usable(resp->sandbox, resp->endpoint, h->plan.sandbox_id)) {
        code = berth_fail(err, BERTH_REASON_SANDBOX_TRANSITIONING,
                          "it was connected and does not run");
    } else {
        h->outcome = resp->resumed && !h->plan.export_failed ? CP_RESUMED : CP_USED;
        note_verified(h, h->plan.sandbox_id);
        code = patch_running(h, resp, err);
    }
    berth_message_free(resp);
    return code;
}

static enum berth_code commit_bind(struct cp_holder *h, Binding *binding, bool memory_lost,
                                   int carry_outcome, struct berth_error *err)
{
    CommitRequest req = BERTH__BINDING__V1__COMMIT_REQUEST__INIT;
    Berth__Binding__V1__EventDraft *draft = NULL;
    Berth__Binding__V1__Carry carry = BERTH__BINDING__V1__CARRY__INIT;
    struct berth_error why;
    enum berth_code code = cp_draft_duplicates(h, binding->sandbox_id, &draft, err);

    if (code)
        return code;
    req.change_case = BERTH__BINDING__V1__COMMIT_REQUEST__CHANGE_BIND;
    req.bind = binding;
    req.carry_outcome = (Berth__Binding__V1__CarryOutcome)carry_outcome;
    if (carry_outcome == BERTH__BINDING__V1__CARRY_OUTCOME__CARRY_OUTCOME_UNPACKED) {
        carry.blob_id = (char *)cp_carry_blob(h);
        carry.lost_count = h->carry_lost;
        carry.lost_names = h->carry_names;
        req.carry = &carry;
    }
    req.memory_lost = memory_lost;
    req.turn_token = (char *)h->turn_token;
    req.events = &draft;
    req.n_events = draft != NULL;
    code = cp_holder_commit(h, &req, false, &h->bound, &why);
    berth_message_free(draft);
    if (code && why.reason == BERTH_REASON_SESSION_DELETED) {
        /* Deleted meanwhile: binding has condemned it instead, and the lock is still ours. */
        struct plan_intent intent = cp_new_intent(h, PLAN_INTENT_DELETE, binding->sandbox_id);

        plan_note_intent(&h->plan, &intent);
        h->create_sent = false;
        h->doomed = BERTH_REASON_SESSION_DELETED;
        return BERTH_OK;
    }
    if (code && err)
        *err = why;
    return code;
}

/* As it was listed; NULL: it was not, or is not paused. */
static Sandbox *find_paused(const struct cp_holder *h, const char *sandbox_id)
{
    for (size_t i = 0; i < h->n_found; i++)
        if (strcmp(h->found[i]->sandbox_id, sandbox_id) == 0 &&
            h->found[i]->state == BERTH__COMMON__V1__SANDBOX_STATE__SANDBOX_STATE_PAUSED)
            return h->found[i];
    return NULL;
}

/* A paused one sleeps on: it is bound as it is, and connected by who needs it. */
static enum berth_code adopt_paused(struct cp_holder *h, Sandbox *sandbox, bool *ret_done,
                                    struct berth_error *err)
{
    Binding binding = BERTH__BINDING__V1__BINDING__INIT, *known;
    uint8_t attempt[PLAN_ATTEMPT_SIZE];
    enum berth_code code;

    binding.backend = h->config->target->backend;
    binding.config_id = (char *)h->config->config_id;
    binding.sandbox_id = sandbox->sandbox_id;
    binding.image = sandbox->image;
    binding.create_time = sandbox->create_time;
    binding.end_time = sandbox->end_time;
    binding.fence = cp_lock_grant(h->lock)->fence;
    binding.account = h->config->target->fingerprint;
    binding.power = BERTH__BINDING__V1__POWER__POWER_PAUSED;
    binding.origin = BERTH__BINDING__V1__ORIGIN__ORIGIN_ADOPTED;
    code = cp_inbound_find(h->cp, cp_lock_ref(h->lock), sandbox->sandbox_id, &known, err);
    if (code)
        return code;
    if (known)
        binding.sealed_endpoint = known->sealed_endpoint;
    if (cp_tag_bytes(sandbox, CP_TAG_ATTEMPT, attempt, sizeof attempt))
        binding.attempt = (ProtobufCBinaryData){sizeof attempt, attempt};
    if (binding.image)
        binding.image->generation = cp_tag_number(sandbox, CP_TAG_GENERATION);
    h->outcome = CP_ADOPTED;
    code = commit_bind(h, &binding, false, 0, err);
    *ret_done = !h->doomed;
    berth_message_free(known);
    return code;
}

enum berth_code cp_step_adopt(struct cp_holder *h, const char *sandbox_id, bool *ret_done,
                              struct berth_error *err)
{
    bool waits = h->grant->carry && !*h->grant->carry->into_sandbox_id;
    Sandbox *paused = waits ? NULL : find_paused(h, sandbox_id);
    Binding *known = NULL;
    ConnectSandboxResponse *resp = NULL;
    ProtobufCBinaryData sealed = {0};
    uint8_t attempt[PLAN_ATTEMPT_SIZE];
    struct berth_error why;
    Binding binding;
    int carried = 0;
    enum berth_code code;

    if (paused)
        return adopt_paused(h, paused, ret_done, err);
    code = cp_inbound_find(h->cp, cp_lock_ref(h->lock), sandbox_id, &known, &why);
    if (!code)
        code = connect_sandbox(h, sandbox_id, known, &resp, &why);
    berth_message_free(known);
    if (code && cp_says_gone(&why, sandbox_id)) {
        plan_note_gone(&h->plan, sandbox_id);
        return BERTH_OK;
    }
    if (code) {
        if (err)
            *err = why;
        return code;
    }
    if (!usable(resp->sandbox, resp->endpoint, sandbox_id))
        code = berth_fail(err, BERTH_REASON_SANDBOX_TRANSITIONING,
                          "it was connected and does not run");
    if (!code)
        code = describe(h, resp->sandbox, resp->endpoint, &binding, &sealed, err);
    if (!code) {
        binding.origin = BERTH__BINDING__V1__ORIGIN__ORIGIN_ADOPTED;
        binding.inbound_token_lost = resp->inbound_token_lost;
        if (cp_tag_bytes(resp->sandbox, CP_TAG_ATTEMPT, attempt, sizeof attempt))
            binding.attempt = (ProtobufCBinaryData){sizeof attempt, attempt};
        if (binding.image)
            binding.image->generation = cp_tag_number(resp->sandbox, CP_TAG_GENERATION);
        h->outcome = CP_ADOPTED;
        code = cp_carry_in(h, resp->endpoint, cp_tag_number(resp->sandbox, CP_TAG_FENCE),
                           &carried, err);
        if (!code)
            code = commit_bind(h, &binding, resp->memory_lost, carried, err);
        *ret_done = !h->doomed;
    }
    if (!code && !h->doomed)
        note_verified(h, sandbox_id);
    if (!code && h->want == PLAN_ENSURE)
        cp_figure(&h->cp->figures, CP_FIGURE_DOUBLE_FOUND);
    free(sealed.data);
    berth_message_free(resp);
    return code;
}

/* -------------------------------------------------------------------- create */

/* One with this key is there: it is found by its tags, or by its id. */
static enum berth_code note_exists(struct cp_holder *h, const struct berth_error *why,
                                   struct berth_error *err)
{
    cp_figure(&h->cp->figures, CP_FIGURE_DOUBLE_EXISTS);
    if (++h->n_exists >= EXISTS_MAX) {
        if (err)
            *err = *why;
        return why->code;
    }
    h->plan.must_list = true;
    h->plan.listed = false;
    h->plan.n_candidates = 0;
    return BERTH_OK;
}

static enum berth_code bind_created(struct cp_holder *h, CreateSandboxRequest *req,
                                    CreateSandboxResponse *resp, struct berth_error *err)
{
    ProtobufCBinaryData sealed = {0};
    Binding binding;
    int carried = 0;
    enum berth_code code;

    if (!resp->sandbox || !usable(resp->sandbox, resp->endpoint, resp->sandbox->sandbox_id) ||
        !*resp->sandbox->sandbox_id)
        return berth_fail(err, BERTH_REASON_SANDBOX_TRANSITIONING,
                          "it was created and does not run");
    code = describe(h, resp->sandbox, resp->endpoint, &binding, &sealed, err);
    if (!code) {
        binding.image = req->image; /* as asked for, with its generation */
        binding.origin = BERTH__BINDING__V1__ORIGIN__ORIGIN_CREATED;
        binding.attempt = req->attempt;
        h->outcome = CP_CREATED;
        code = cp_inbound_keep(h->cp, cp_lock_ref(h->lock), binding.sandbox_id, resp->endpoint,
                               &sealed, binding.fence, err);
    }
    if (!code)
        code = cp_carry_in(h, resp->endpoint, req->fence, &carried, err);
    if (!code)
        code = commit_bind(h, &binding, false, carried, err);
    if (!code && !h->doomed)
        note_verified(h, resp->sandbox->sandbox_id);
    free(sealed.data);
    return code;
}

enum berth_code cp_step_create(struct cp_holder *h, bool *ret_done, struct berth_error *err)
{
    CreateSandboxRequest *req = NULL;
    CreateSandboxResponse *resp = NULL;
    Google__Protobuf__Timestamp not_after;
    struct berth_error why;
    int64_t left_ms;
    enum berth_code code = berth_epoch_check(h->cp->redis, err);

    if (!code)
        code = cp_make_create(h, &req, err);
    if (code)
        return code;
    if (!cp_begin_call(h, &left_ms, &not_after, err)) {
        berth_message_free(req);
        return BERTH_ABORTED;
    }
    req->not_after_time = &not_after;
    h->create_sent = true;
    code = cp_adapter_call(h, BACKEND "CreateSandbox", &req->base,
                           &berth__backend__v1__create_sandbox_response__descriptor, left_ms,
                           &resp, &why);
    if (cp_is_refusal(code))
        h->create_sent = false;
    if (!code) {
        code = bind_created(h, req, resp, err);
        *ret_done = !h->doomed;
    } else if (why.reason == BERTH_REASON_SANDBOX_EXISTS) {
        code = note_exists(h, &why, err);
    } else if (why.reason == BERTH_REASON_SNAPSHOT_NOT_FOUND) {
        code = cp_note_missing(h, &why, err);
    } else if (err) {
        *err = why;
    }
    req->not_after_time = NULL; /* ours */
    berth_message_free(req);
    berth_message_free(resp);
    return code;
}
