/* recover_list.c - one config: listed once, whole; then session by session the holder's
 * adoption. */
#include <stdio.h>

#include "common/fields/fields.h"
#include "common/ids/ids.h"
#include "common/log/log.h"
#include "common/messages/messages.h"
#include "common/time/time.h"
#include "services/controlplane/backend.h"
#include "services/controlplane/binding.h"
#include "services/controlplane/config.h"
#include "services/controlplane/holder.h"
#include "services/controlplane/names.h"
#include "services/controlplane/recover.h"

typedef Berth__Backend__V1__ListSandboxesRequest ListSandboxesRequest;
typedef Berth__Backend__V1__ListSandboxesResponse ListSandboxesResponse;
typedef Berth__Binding__V1__AcquireRequest AcquireRequest;
typedef Berth__Binding__V1__AcquireResponse AcquireResponse;
typedef Berth__Common__V1__Sandbox Sandbox;
typedef Berth__Common__V1__SessionRef SessionRef;
typedef Berth__Common__V1__SessionSpec SessionSpec;

enum { PAGE_SIZE = 1000, PAGES_MAX = 1000, TOKEN_MAX = 4096, ID_MAX = 128, ADOPT_TRIES = 3 };

struct list {
    struct cp *cp;
    const struct cp_config *config;
    Sandbox **sandboxes; /* those of the config's sessions; owned */
    size_t n;
};

static void list_deinit(struct list *list)
{
    for (size_t i = 0; i < list->n; i++)
        berth_message_free(list->sandboxes[i]);
    free(list->sandboxes);
}

/* Its tags name a session of this config. */
static bool is_ours(const struct list *list, const Sandbox *sandbox)
{
    size_t len = strlen(sandbox->sandbox_id);

    return len > 0 && len <= ID_MAX &&
           sandbox->state != BERTH__COMMON__V1__SANDBOX_STATE__SANDBOX_STATE_TERMINAL &&
           strcmp(cp_tag(sandbox, CP_TAG_DEPLOYMENT), list->cp->runtime->deployment) == 0 &&
           strcmp(cp_tag(sandbox, CP_TAG_TENANT), list->config->tenant_id) == 0 &&
           strcmp(cp_tag(sandbox, CP_TAG_CONFIG), list->config->config_id) == 0 &&
           berth_check_id("session", cp_tag(sandbox, CP_TAG_SESSION), NULL) == BERTH_OK;
}

static enum berth_code take_page(struct list *list, ListSandboxesResponse *page,
                                 struct berth_error *err)
{
    Sandbox **more;

    if (!page->complete)
        return berth_fail(err, BERTH_REASON_BACKEND_UNAVAILABLE, "the list is not whole");
    more = realloc(list->sandboxes, (list->n + page->n_sandboxes + 1) * sizeof *more);
    if (!more)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    list->sandboxes = more;
    for (size_t i = 0; i < page->n_sandboxes; i++) {
        if (!is_ours(list, page->sandboxes[i]))
            continue;
        list->sandboxes[list->n++] = page->sandboxes[i];
        page->sandboxes[i] = page->sandboxes[--page->n_sandboxes];
        i--;
    }
    return BERTH_OK;
}

static enum berth_code take_all(struct list *list, ListSandboxesRequest *req,
                                struct berth_error *err)
{
    enum berth_code code = BERTH_OK;
    bool last = false;

    for (int pages = 0; !code && !last; pages++) {
        ListSandboxesResponse *page = NULL;

        if (pages == PAGES_MAX)
            return berth_fail(err, BERTH_REASON_BACKEND_UNAVAILABLE, "too many pages");
        code = cp_backend_call(list->cp, list->config->target->backend,
                               "/berth.backend.v1.BackendService/ListSandboxes", &req->base,
                               &berth__backend__v1__list_sandboxes_response__descriptor,
                               CP_CALL_TIMEOUT_MS, NULL, &page, err);
        if (code)
            return code;
        code = take_page(list, page, err);
        last = !*page->next_page_token;
        if (!code && !last && strlen(page->next_page_token) > TOKEN_MAX)
            code = berth_fail(err, BERTH_REASON_BACKEND_UNAVAILABLE, "a bad page token");
        if (!code && !last && !berth_set_string(&req->page->page_token, page->next_page_token))
            code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        berth_message_free(page);
    }
    return code;
}

static enum berth_code list_config(struct list *list, struct berth_error *err)
{
    static const ProtobufCMessageDescriptor *const type =
        &berth__backend__v1__list_sandboxes_request__metadata_entry__descriptor;
    ListSandboxesRequest *req =
        berth_message_new(&berth__backend__v1__list_sandboxes_request__descriptor);
    enum berth_code code = BERTH_OK;

    if (req) {
        req->page = berth_message_new(&berth__common__v1__page_request__descriptor);
        req->target = berth_message_copy(list->config->target);
    }
    if (!req || !req->page || !req->target ||
        !berth_set_map(&req->n_metadata, &req->metadata, type, CP_TAG_DEPLOYMENT,
                       list->cp->runtime->deployment) ||
        !berth_set_map(&req->n_metadata, &req->metadata, type, CP_TAG_TENANT,
                       list->config->tenant_id))
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (!code) {
        req->page->page_size = PAGE_SIZE;
        code = take_all(list, req, err);
    }
    berth_message_free(req);
    return code;
}

/* ------------------------------------------------------------------------- adopt */

static int by_session(const void *a, const void *b)
{
    const Sandbox *const *x = a, *const *y = b;

    return strcmp(cp_tag(*x, CP_TAG_SESSION), cp_tag(*y, CP_TAG_SESSION));
}

/* The highest fence that was ever at work on them: the grant's is higher. */
static uint64_t highest_fence(Sandbox *const *found, size_t n)
{
    uint64_t fence = 0;

    for (size_t i = 0; i < n; i++)
        if (cp_tag_number(found[i], CP_TAG_FENCE) > fence)
            fence = cp_tag_number(found[i], CP_TAG_FENCE);
    return fence;
}

/* Users' labels are tags, too. */
static bool fill_spec(SessionSpec *spec, const struct cp_config *config, const Sandbox *sandbox)
{
    if (!berth_set_string(&spec->config_id, config->config_id))
        return false;
    for (size_t i = 0; i < sandbox->n_metadata; i++)
        if (strncmp(sandbox->metadata[i]->key, "u.", 2) == 0 &&
            !berth_set_map(&spec->n_labels, &spec->labels,
                           &berth__common__v1__session_spec__labels_entry__descriptor,
                           sandbox->metadata[i]->key + 2, sandbox->metadata[i]->value))
            return false;
    return true;
}

static enum berth_code hold(struct list *list, const SessionRef *ref, AcquireResponse *grant,
                            int64_t sent_tick, Sandbox *const *found, size_t n,
                            bool *ret_adopted, struct berth_error *err)
{
    struct cp_lock *lock = cp_lock_hold(list->cp->locks, ref, grant->lock, sent_tick);
    struct cp_holder holder = {
        .cp = list->cp,
        .config = list->config,
        .lock = lock,
        .grant = grant,
        .turn_token = "",
        .failed_sandbox_id = "",
        .want = PLAN_ADOPT,
        .found = found,
        .n_found = n,
    };
    enum berth_code code;

    if (!lock) {
        cp_release(list->cp, ref, grant->lock, true);
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    code = cp_holder_run(&holder, err);
    *ret_adopted = !code && holder.outcome == CP_ADOPTED;
    cp_holder_deinit(&holder);
    cp_lock_drop(lock);
    return code;
}

static enum berth_code try_adopt(struct list *list, SessionRef *ref, SessionSpec *spec,
                                 Sandbox *const *found, size_t n, bool *ret_adopted,
                                 struct berth_error *err)
{
    AcquireRequest req = BERTH__BINDING__V1__ACQUIRE_REQUEST__INIT;
    AcquireResponse *grant = NULL;
    uint8_t attempt[PLAN_ATTEMPT_SIZE];
    int64_t sent_tick = berth_tick_ms();
    enum berth_code code;

    berth_random(attempt, sizeof attempt);
    req.session = ref;
    req.want = BERTH__BINDING__V1__WANT__WANT_ADOPT;
    req.owner = list->cp->owner;
    req.attempt = (ProtobufCBinaryData){sizeof attempt, attempt};
    req.spec_if_new = spec;
    req.created_by = (char *)"recovery";
    req.seen_fence = highest_fence(found, n);
    code =
        cp_binding_call(list->cp, NULL, "/berth.binding.v1.BindingService/Acquire", &req.base,
                        &berth__binding__v1__acquire_response__descriptor, true, &grant, err);
    if (!code && grant->lock)
        code = hold(list, ref, grant, sent_tick, found, n, ret_adopted, err);
    berth_message_free(grant);
    return code;
}

static enum berth_code adopt(struct list *list, Sandbox *const *found, size_t n,
                             bool *ret_adopted, struct berth_error *err)
{
    SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    SessionSpec *spec = berth_message_new(&berth__common__v1__session_spec__descriptor);
    struct berth_error why = {0};
    enum berth_code code = BERTH_OK;
    bool again = true;

    ref.tenant_id = (char *)list->config->tenant_id;
    ref.session_id = (char *)cp_tag(found[0], CP_TAG_SESSION);
    if (!spec || !fill_spec(spec, list->config, found[0])) {
        code = berth_fail(&why, BERTH_REASON_OUT_OF_MEMORY, NULL);
        again = false;
    }
    for (int i = 0; again && i < ADOPT_TRIES; i++) {
        why = (struct berth_error){0};
        code = try_adopt(list, &ref, spec, found, n, ret_adopted, &why);
        again = why.reason == BERTH_REASON_LOCK_LOST || why.reason == BERTH_REASON_CONFLICT;
    }
    berth_message_free(spec);
    if (code)
        return berth_fail(err, why.reason, "session '%s': %s", cp_tag(found[0], CP_TAG_SESSION),
                          why.text);
    return BERTH_OK;
}

enum berth_code cp_recover_target(struct cp *cp, const char *tenant, const char *config_id,
                                  uint32_t *ret_found, uint32_t *ret_adopted,
                                  struct berth_error *err)
{
    BERTH_AUTO(cp_config_unref) struct cp_config *config = NULL;
    struct list list = {.cp = cp};
    struct berth_error why = {0}, first = {0};
    enum berth_code code;

    *ret_found = *ret_adopted = 0;
    cp_cache_forget(cp->cache, tenant, config_id);
    code = cp_cache_config(cp->cache, tenant, config_id, &config, err);
    if (code)
        return code;
    list.config = config;
    code = list_config(&list, &first);
    if (!code && list.n > 0)
        qsort(list.sandboxes, list.n, sizeof *list.sandboxes, by_session);
    for (size_t i = 0, n; !code && i < list.n; i += n) {
        bool adopted = false;

        for (n = 1;
             i + n < list.n && by_session(&list.sandboxes[i], &list.sandboxes[i + n]) == 0; n++)
            ;
        /* One that cannot be adopted holds up none of the others. */
        if (adopt(&list, list.sandboxes + i, n, &adopted, &why) && !first.code)
            first = why;
        *ret_adopted += adopted;
        if (i == 0 && why.reason == BERTH_REASON_CREATE_UNSETTLED)
            break; /* too early for all of them */
    }
    *ret_found = (uint32_t)list.n;
    list_deinit(&list);
    if (first.code && err)
        *err = first;
    return first.code;
}
