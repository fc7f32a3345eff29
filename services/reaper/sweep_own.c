/* sweep_own.c - whose the sandboxes are: the bindings of each tenant, read after the lists, so
 * that what was bound meanwhile is seen as bound. */
#include <stdio.h>

#include "common/log/log.h"
#include "common/messages/messages.h"
#include "services/reaper/sweep.h"

typedef Berth__Binding__V1__Binding Binding;
typedef Berth__Binding__V1__BoundSession BoundSession;
typedef Berth__Binding__V1__GetBindingResponse GetBindingResponse;
typedef Berth__Binding__V1__ListBindingsResponse ListBindingsResponse;
typedef Berth__Binding__V1__SessionRecord SessionRecord;

static int compare(const char *tenant_a, const char *session_a, const char *tenant_b,
                   const char *session_b)
{
    int order = strcmp(tenant_a, tenant_b);

    return order ? order : strcmp(session_a, session_b);
}

static int compare_boxes(const void *a, const void *b)
{
    const struct sweep_box *one = a, *two = b;

    return compare(one->tenant, one->session, two->tenant, two->session);
}

/* The first box at or behind a session. */
static size_t first_box(const struct sweep *sweep, const char *tenant, const char *session)
{
    size_t low = 0, high = sweep->n_boxes;

    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct sweep_box *box = &sweep->boxes[middle];

        if (compare(box->tenant, box->session, tenant, session) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_of(const struct sweep_box *box, const char *tenant, const char *session)
{
    return strcmp(box->tenant, tenant) == 0 && strcmp(box->session, session) == 0;
}

static enum reaper_session session_of(const SessionRecord *record)
{
    switch (record ? record->state : 0) {
    case BERTH__COMMON__V1__SESSION_STATE__SESSION_STATE_ACTIVE:
        return REAPER_ACTIVE;
    case BERTH__COMMON__V1__SESSION_STATE__SESSION_STATE_DELETING:
        return REAPER_DELETING;
    case BERTH__COMMON__V1__SESSION_STATE__SESSION_STATE_DELETED:
        return REAPER_DELETED;
    default:
        return REAPER_UNREADABLE;
    }
}

static void note_owner(const struct sweep *sweep, struct sweep_box *box,
                       const SessionRecord *record, const Binding *binding)
{
    struct reaper_facts *facts = &box->facts;
    char account[SWEEP_ACCOUNT_HEX];

    facts->session = session_of(record);
    facts->elsewhere =
        record && record->spec && strcmp(record->spec->config_id, box->config) != 0;
    facts->bound = binding != NULL;
    if (!binding)
        return;
    sweep_account_hex(account, &binding->account);
    facts->same_account = strcmp(account, sweep->groups[box->group].account) == 0;
    facts->bound_here = facts->same_account && strcmp(binding->sandbox_id, box->id) == 0;
    facts->paused = binding->power == BERTH__BINDING__V1__POWER__POWER_PAUSED;
    facts->pausing = binding->power == BERTH__BINDING__V1__POWER__POWER_PAUSING;
    facts->told_ms = berth_timestamp_ms(binding->told_end_time, 0);
}

static enum berth_code note_row(struct sweep *sweep, const BoundSession *row,
                                struct berth_error *err)
{
    const Berth__Common__V1__SessionRef *ref = row->session ? row->session->ref : NULL;
    int64_t active_ms = berth_timestamp_ms(row->active_time, 0);
    bool found = false;

    if (!ref)
        return BERTH_OK;
    for (size_t i = first_box(sweep, ref->tenant_id, ref->session_id);
         i < sweep->n_boxes && is_of(&sweep->boxes[i], ref->tenant_id, ref->session_id); i++) {
        struct sweep_box *box = &sweep->boxes[i];

        note_owner(sweep, box, row->session, row->binding);
        box->facts.in_use = row->protected_ || row->turn_running;
        if (active_ms > box->facts.active_ms)
            box->facts.active_ms = active_ms;
        if (active_ms > box->facts.call_ms)
            box->facts.call_ms = active_ms;
        found = found || box->facts.bound_here;
    }
    return found ? BERTH_OK : sweep_note_missing(sweep, ref, row, err);
}

static enum berth_code read_rows(struct sweep *sweep, const char *tenant,
                                 struct berth_error *err)
{
    Berth__Common__V1__PageRequest page = BERTH__COMMON__V1__PAGE_REQUEST__INIT;
    Berth__Binding__V1__ListBindingsRequest req =
        BERTH__BINDING__V1__LIST_BINDINGS_REQUEST__INIT;
    BERTH_AUTO(free) char *token = NULL;
    enum berth_code code = BERTH_OK;

    req.tenant_id = (char *)tenant;
    req.page = &page;
    page.page_size = SWEEP_PAGE;
    for (int pages = 0; !code && (pages == 0 || *token); pages++) {
        ListBindingsResponse *resp = NULL;

        if (pages == SWEEP_PAGES_MAX)
            return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "the list does not end");
        page.page_token = token ? token : (char *)"";
        code =
            reaper_call(sweep->reaper->binding, "/berth.binding.v1.BindingService/ListBindings",
                        &req.base, &berth__binding__v1__list_bindings_response__descriptor,
                        REAPER_CALL_TIMEOUT_MS, &resp, err);
        if (code)
            return code;
        for (size_t i = 0; !code && i < resp->n_sessions; i++)
            code = note_row(sweep, resp->sessions[i], err);
        free(token);
        token = strdup(resp->next_page_token);
        if (!code && !token)
            code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        berth_message_free(resp);
    }
    return code;
}

static bool names(const GetBindingResponse *got, const char *sandbox_id)
{
    for (size_t i = 0; i < got->n_intents; i++)
        if (got->intents[i]->kind == BERTH__BINDING__V1__INTENT_KIND__INTENT_KIND_DELETE &&
            strcmp(got->intents[i]->sandbox_id, sandbox_id) == 0)
            return true;
    return false;
}

void sweep_look_closer(struct sweep *sweep, struct sweep_box *box)
{
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    Berth__Binding__V1__GetBindingRequest req = BERTH__BINDING__V1__GET_BINDING_REQUEST__INIT;
    GetBindingResponse *got = NULL;
    struct berth_error err = {0};
    enum berth_code code;

    ref.tenant_id = (char *)box->tenant;
    ref.session_id = (char *)box->session;
    req.session = &ref;
    code = reaper_call(sweep->reaper->binding, "/berth.binding.v1.BindingService/GetBinding",
                       &req.base, &berth__binding__v1__get_binding_response__descriptor,
                       REAPER_CALL_TIMEOUT_MS, &got, &err);
    if (code) {
        box->facts.session =
            err.reason == BERTH_REASON_SESSION_NOT_FOUND ? REAPER_NO_RECORD : REAPER_UNREADABLE;
        box->facts.bound = box->facts.bound_here = false;
        return;
    }
    note_owner(sweep, box, got->session, got->binding);
    box->facts.condemned = names(got, box->id);
    box->facts.in_use = got->protected_ || got->turn_running;
    berth_message_free(got);
}

static void find_of_tenant(struct sweep *sweep, const char *tenant)
{
    size_t first = first_box(sweep, tenant, ""), end = first;
    struct berth_error err = {0};

    while (end < sweep->n_boxes && strcmp(sweep->boxes[end].tenant, tenant) == 0)
        end++;
    if (read_rows(sweep, tenant, &err)) {
        berth_warn("the bindings of a tenant cannot be read, leaving it alone", "tenant",
                   tenant, "error", err.text);
        for (size_t i = first; i < end; i++)
            sweep->boxes[i].facts.session = REAPER_UNREADABLE;
        return;
    }
    for (size_t i = first; i < end; i++) {
        struct sweep_box *box = &sweep->boxes[i];

        if (box->facts.tags != REAPER_TAGS_OURS || box->facts.session != REAPER_UNREADABLE)
            continue;
        box->facts.session = REAPER_NO_RECORD; /* or a tombstone */
        if (box->facts.ended)
            sweep_look_closer(sweep, box);
    }
}

void sweep_find_owners(struct sweep *sweep)
{
    if (sweep->n_boxes)
        qsort(sweep->boxes, sweep->n_boxes, sizeof *sweep->boxes, compare_boxes);
    /* Each tenant that has a config: also one whose sandboxes are all gone. */
    for (size_t i = 0; i < sweep->n_targets; i++) {
        const char *tenant = sweep->targets[i]->target->tenant_id;

        if (i == 0 || strcmp(tenant, sweep->targets[i - 1]->target->tenant_id) != 0)
            find_of_tenant(sweep, tenant);
    }
}
