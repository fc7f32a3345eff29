/* holder_list.c - the sandboxes of one session by their tags. Only a whole list says anything.
 */
#include <stdio.h>

#include "common/messages/messages.h"
#include "services/controlplane/backend.h"
#include "services/controlplane/holder_steps.h"
#include "services/controlplane/names.h"

typedef Berth__Backend__V1__ListSandboxesRequest ListSandboxesRequest;
typedef Berth__Backend__V1__ListSandboxesResponse ListSandboxesResponse;
typedef Berth__Common__V1__Sandbox Sandbox;

enum { PAGE_SIZE = 1000, PAGES_MAX = 1000, TOKEN_MAX = 4096 };

static bool is_ours(const struct cp_holder *h, const Sandbox *sandbox)
{
    const Berth__Common__V1__SessionRef *ref = cp_lock_ref(h->lock);

    return strcmp(cp_tag(sandbox, CP_TAG_DEPLOYMENT), h->cp->runtime->deployment) == 0 &&
           strcmp(cp_tag(sandbox, CP_TAG_TENANT), ref->tenant_id) == 0 &&
           strcmp(cp_tag(sandbox, CP_TAG_SESSION), ref->session_id) == 0;
}

/* What binding knows, or else this replica remembers. */
static bool was_last(const struct cp_holder *h, const char *sandbox_id)
{
    const Berth__Common__V1__SessionRef *ref = cp_lock_ref(h->lock);

    if (*h->grant->last_sandbox_id)
        return strcmp(h->grant->last_sandbox_id, sandbox_id) == 0;
    return cp_verified_since(h->cp->verified, "", ref->tenant_id, ref->session_id, sandbox_id,
                             1);
}

static void note(struct cp_holder *h, const Sandbox *sandbox)
{
    struct plan_candidate *candidate;

    for (size_t i = 0; i < h->plan.n_candidates; i++) /* a page may repeat what another had */
        if (strcmp(h->plan.candidates[i].sandbox_id, sandbox->sandbox_id) == 0)
            return;
    if (h->plan.n_candidates == PLAN_CANDIDATES_MAX) {
        h->more_found = true;
        return;
    }
    candidate = &h->plan.candidates[h->plan.n_candidates++];
    *candidate =
        (struct plan_candidate){.create_ms = berth_timestamp_ms(sandbox->create_time, 0)};
    snprintf(candidate->sandbox_id, sizeof candidate->sandbox_id, "%s", sandbox->sandbox_id);
    if (!cp_tag_bytes(sandbox, CP_TAG_ATTEMPT, candidate->attempt, PLAN_ATTEMPT_SIZE))
        memset(candidate->attempt, 0, PLAN_ATTEMPT_SIZE);
    candidate->runs = sandbox->state == BERTH__COMMON__V1__SANDBOX_STATE__SANDBOX_STATE_RUNNING;
    candidate->fence = sandbox->fence;
    for (size_t i = h->grant->n_named_sandbox_ids; i-- > 0;)
        if (strcmp(h->grant->named_sandbox_ids[i], sandbox->sandbox_id) == 0)
            candidate->named = (unsigned)i + 1;
    candidate->last = was_last(h, sandbox->sandbox_id);
}

void cp_take_candidates(struct cp_holder *h)
{
    for (size_t i = 0; i < h->n_found; i++)
        note(h, h->found[i]);
    h->plan.listed = !h->more_found;
}

static enum berth_code incomplete(const struct cp_holder *h, const char *why,
                                  struct berth_error *err)
{
    enum berth_code code =
        berth_fail(err, BERTH_REASON_BACKEND_UNAVAILABLE,
                   "the list of the session's sandboxes is not whole: %s", why);

    BERTH_ERROR_SET(err, backend, h->config->target->backend);
    return code;
}

static enum berth_code read_page(struct cp_holder *h, const ListSandboxesResponse *page,
                                 struct berth_error *err)
{
    if (!page->complete)
        return incomplete(h, "the backend says so", err);
    for (size_t i = 0; i < page->n_sandboxes; i++) {
        const Sandbox *sandbox = page->sandboxes[i];
        size_t len = strlen(sandbox->sandbox_id);

        if (!is_ours(h, sandbox)) {
            if (h->config->info->capabilities->metadata_filter)
                return incomplete(h, "it holds what was not asked for", err);
            continue;
        }
        if (len == 0 || len >= PLAN_ID_SIZE)
            return incomplete(h, "it holds a sandbox without a proper id", err);
        if (sandbox->state != BERTH__COMMON__V1__SANDBOX_STATE__SANDBOX_STATE_TERMINAL)
            note(h, sandbox);
    }
    return BERTH_OK;
}

static bool make_request(const struct cp_holder *h, ListSandboxesRequest *req)
{
    static const ProtobufCMessageDescriptor *const type =
        &berth__backend__v1__list_sandboxes_request__metadata_entry__descriptor;
    const Berth__Common__V1__SessionRef *ref = cp_lock_ref(h->lock);

    req->page = berth_message_new(&berth__common__v1__page_request__descriptor);
    req->target = berth_message_copy(h->config->target);
    if (!req->page || !req->target)
        return false;
    req->page->page_size = PAGE_SIZE;
    return berth_set_map(&req->n_metadata, &req->metadata, type, CP_TAG_DEPLOYMENT,
                         h->cp->runtime->deployment) &&
           berth_set_map(&req->n_metadata, &req->metadata, type, CP_TAG_TENANT,
                         ref->tenant_id) &&
           berth_set_map(&req->n_metadata, &req->metadata, type, CP_TAG_SESSION,
                         ref->session_id);
}

static enum berth_code list_page(struct cp_holder *h, ListSandboxesRequest *req, bool *ret_last,
                                 struct berth_error *err)
{
    ListSandboxesResponse *page = NULL;
    enum berth_code code = cp_backend_call(
        h->cp, h->config->target->backend, "/berth.backend.v1.BackendService/ListSandboxes",
        &req->base, &berth__backend__v1__list_sandboxes_response__descriptor,
        CP_CALL_TIMEOUT_MS, h->traceparent, &page, err);

    if (code)
        return code;
    code = read_page(h, page, err);
    *ret_last = !*page->next_page_token;
    if (!code && !*ret_last) {
        if (strlen(page->next_page_token) > TOKEN_MAX ||
            strcmp(page->next_page_token, req->page->page_token) == 0)
            code = incomplete(h, "its pages do not end", err);
        else if (!berth_set_string(&req->page->page_token, page->next_page_token))
            code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    berth_message_free(page);
    return code;
}

enum berth_code cp_list_candidates(struct cp_holder *h, struct berth_error *err)
{
    ListSandboxesRequest *req =
        berth_message_new(&berth__backend__v1__list_sandboxes_request__descriptor);
    enum berth_code code = BERTH_OK;
    bool last = false;

    h->plan.n_candidates = 0;
    h->more_found = false;
    if (!req || !make_request(h, req))
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    for (int pages = 0; !code && !last; pages++) {
        if (pages == PAGES_MAX)
            code = incomplete(h, "it has too many pages", err);
        else
            code = list_page(h, req, &last, err);
    }
    berth_message_free(req);
    return code;
}
