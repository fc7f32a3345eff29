/* session_read_rpc.c - SessionService: what is read and changed without the session's lock. */
#include <stdio.h>

#include "common/fields/fields.h"
#include "common/ids/ids.h"
#include "common/messages/messages.h"
#include "common/records/deployment.h"
#include "services/controlplane/backend.h"
#include "services/controlplane/binding.h"
#include "services/controlplane/checks.h"
#include "services/controlplane/judge.h"
#include "services/controlplane/policy.h"
#include "services/controlplane/present.h"

typedef Berth__Backend__V1__GetSandboxRequest GetSandboxRequest;
typedef Berth__Backend__V1__GetSandboxResponse GetSandboxResponse;
typedef Berth__Binding__V1__BoundSession BoundSession;
typedef Berth__Binding__V1__FindSessionRequest FindSessionRequest;
typedef Berth__Binding__V1__FindSessionResponse FindSessionResponse;
typedef Berth__Binding__V1__GetBindingResponse GetBindingResponse;
typedef Berth__Binding__V1__ListBindingsRequest ListBindingsRequest;
typedef Berth__Binding__V1__ListBindingsResponse ListBindingsResponse;
typedef Berth__Common__V1__SessionRef SessionRef;
typedef Berth__Common__V1__SessionSpec SessionSpec;
typedef Berth__Control__V1__GetSessionRequest GetSessionRequest;
typedef Berth__Control__V1__GetSessionResponse GetSessionResponse;
typedef Berth__Control__V1__ListSessionsRequest ListSessionsRequest;
typedef Berth__Control__V1__ListSessionsResponse ListSessionsResponse;
typedef Berth__Control__V1__Session Session;
typedef Berth__Control__V1__UpdateSessionRequest UpdateSessionRequest;
typedef Berth__Control__V1__UpdateSessionResponse UpdateSessionResponse;

enum { ALIAS_LEN = 20, PAGE_TOKEN_MAX = 512, LIST_PAGES_MAX = 20, STATES_MAX = 16 };

#define HANDLER(name)                                                                          \
    static enum berth_code name(void *service, struct berth_call *call,                        \
                                const ProtobufCMessage *message, ProtobufCMessage **ret_resp,  \
                                struct berth_error *err)

static enum berth_code no_memory(struct berth_error *err)
{
    return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

/* --------------------------------------------------------------- GetSession */

static enum berth_code find_alias(struct cp *cp, struct berth_call *call, const char *tenant,
                                  const char *alias, SessionRef **ret, struct berth_error *err)
{
    FindSessionRequest req = BERTH__BINDING__V1__FIND_SESSION_REQUEST__INIT;
    FindSessionResponse *found;
    enum berth_code code;

    req.tenant_id = (char *)tenant;
    req.alias = (char *)alias;
    code = cp_binding_call(cp, call, "/berth.binding.v1.BindingService/FindSession", &req.base,
                           &berth__binding__v1__find_session_response__descriptor, false,
                           &found, err);
    if (code)
        return code;
    *ret = BERTH_STEAL(found->session);
    berth_message_free(found);
    return *ret ? BERTH_OK : berth_fail(err, BERTH_REASON_SESSION_NOT_FOUND, NULL);
}

static enum berth_code check_get(const GetSessionRequest *req, bool peer,
                                 struct berth_error *err)
{
    size_t len;

    switch (req->key_case) {
    case BERTH__CONTROL__V1__GET_SESSION_REQUEST__KEY_SESSION:
        if (*req->tenant_id)
            return berth_fail_field(err, "tenant_id", "must be empty unless alias is given");
        return cp_check_ref("session", req->session, peer, err);
    case BERTH__CONTROL__V1__GET_SESSION_REQUEST__KEY_ALIAS:
        len = strlen(req->alias);
        if (len != ALIAS_LEN ||
            strspn(req->alias, "abcdefghijklmnopqrstuvwxyz0123456789") != len)
            return berth_fail_field(err, "alias", "must be %d characters of [a-z0-9]",
                                    ALIAS_LEN);
        return berth_check_id("tenant_id", req->tenant_id, err);
    default:
        return berth_fail_field(err, "session", "must be given, or an alias");
    }
}

/* What the backend says now, over what binding remembers. */
static enum berth_code refresh(struct cp *cp, struct berth_call *call,
                               const struct cp_config *config, Session *session,
                               struct berth_error *err)
{
    GetSandboxRequest req = BERTH__BACKEND__V1__GET_SANDBOX_REQUEST__INIT;
    Berth__Common__V1__Sandbox *shown = session->sandbox;
    GetSandboxResponse *resp = NULL;
    struct berth_error why;
    enum berth_code code;

    req.target = config->target;
    req.sandbox_id = shown->sandbox_id;
    code = cp_backend_call(cp, config->target->backend,
                           "/berth.backend.v1.BackendService/GetSandbox", &req.base,
                           &berth__backend__v1__get_sandbox_response__descriptor,
                           CP_CALL_TIMEOUT_MS, berth_call_traceparent(call), &resp, &why);
    if (code && cp_is_gone(&why)) {
        shown->state = BERTH__COMMON__V1__SANDBOX_STATE__SANDBOX_STATE_TERMINAL;
        return BERTH_OK;
    }
    if (code || !resp->sandbox) {
        berth_message_free(resp);
        if (code && err)
            *err = why;
        return code ? code
                    : berth_fail(err, BERTH_REASON_INTERNAL_BUG, "no sandbox in the answer");
    }
    berth_message_free(shown);
    session->sandbox = BERTH_STEAL(resp->sandbox);
    berth_message_free(resp);
    return BERTH_OK;
}

static enum berth_code load(struct cp *cp, struct berth_call *call,
                            const GetSessionRequest *req, GetBindingResponse **ret,
                            struct cp_config **ret_config, struct berth_error *err)
{
    const char *only = berth_config_bound(call);
    SessionRef *found = NULL;
    enum berth_code code = BERTH_OK;

    if (req->key_case == BERTH__CONTROL__V1__GET_SESSION_REQUEST__KEY_ALIAS)
        code = find_alias(cp, call, req->tenant_id, req->alias, &found, err);
    if (!code)
        code = cp_binding_get(cp, found ? found : req->session, ret, err);
    berth_message_free(found);
    if (!code && *only &&
        (!(*ret)->session->spec || strcmp((*ret)->session->spec->config_id, only) != 0))
        code = berth_fail(err, BERTH_REASON_SESSION_NOT_FOUND, NULL);
    if (!code)
        code = cp_session_config(cp, (*ret)->session, ret_config, err);
    return code;
}

static enum berth_code respond(struct cp *cp, struct berth_call *call,
                               const GetBindingResponse *got, const struct cp_config *config,
                               bool fresh, ProtobufCMessage **ret_resp, struct berth_error *err)
{
    const struct cp_session_facts facts = {
        .stale = got->stale, .turn_running = got->turn_running, .loss = got->loss};
    GetSessionResponse *out =
        berth_message_new(&berth__control__v1__get_session_response__descriptor);
    enum berth_code code = BERTH_OK;

    if (!out || !(out->session = cp_show_session(config, got->session, got->binding, &facts)))
        code = no_memory(err);
    else if (fresh && out->session->sandbox && config)
        code = refresh(cp, call, config, out->session, err);
    if (code)
        berth_message_free(out);
    else
        *ret_resp = &out->base;
    return code;
}

/* Inside the backend's bulkhead. */
HANDLER(get_session_fresh)
{
    BERTH_AUTO(cp_config_unref) struct cp_config *config = NULL;
    GetBindingResponse *got = NULL;
    enum berth_code code =
        load(service, call, (const GetSessionRequest *)message, &got, &config, err);

    if (!code)
        code = respond(service, call, got, config, true, ret_resp, err);
    berth_message_free(got);
    return code;
}

HANDLER(get_session)
{
    BERTH_AUTO(cp_config_unref) struct cp_config *config = NULL;
    struct cp *cp = service;
    const GetSessionRequest *req = (const GetSessionRequest *)message;
    GetBindingResponse *got = NULL;
    enum berth_code code = check_get(req, berth_call_is_peer(call), err);

    if (!code)
        code = cp_enter_tenant(cp, *req->tenant_id ? req->tenant_id : req->session->tenant_id,
                               false, err);
    if (!code)
        code = load(cp, call, req, &got, &config, err);
    if (!code && req->fresh && got->binding && config)
        code = cp_defer(cp, call, message, config->target->backend, config->target->api_url,
                        get_session_fresh, err);
    else if (!code)
        code = respond(cp, call, got, config, false, ret_resp, err);
    berth_message_free(got);
    return code;
}

/* ------------------------------------------------------------- ListSessions */

static enum berth_code check_list(const ListSessionsRequest *req, uint32_t *ret_size,
                                  struct berth_error *err)
{
    enum berth_code code = berth_check_id("tenant_id", req->tenant_id, err);

    if (!code)
        code = berth_check_id_or_empty("config_id", req->config_id, err);
    if (!code)
        code = berth_check_page_size("page.page_size", req->page ? req->page->page_size : 0,
                                     ret_size, err);
    if (!code && req->page)
        code =
            berth_check_text("page.page_token", req->page->page_token, 0, PAGE_TOKEN_MAX, err);
    if (!code && req->n_labels > CP_LABELS_MAX)
        code = berth_fail_field(err, "labels", "must have at most %d entries", CP_LABELS_MAX);
    for (size_t i = 0; !code && i < req->n_labels; i++) {
        code = berth_check_label_key("labels", req->labels[i]->key, err);
        if (!code)
            code =
                berth_check_text("labels", req->labels[i]->value, 0, CP_LABEL_VALUE_MAX, err);
    }
    if (!code && req->n_states > STATES_MAX)
        code = berth_fail_field(err, "states", "must have at most %d entries", STATES_MAX);
    for (size_t i = 0; !code && i < req->n_states; i++)
        code = berth_check_enum_entry("states", (int)req->states[i], 5, err);
    return code;
}

static bool has_labels(const SessionSpec *spec, const ListSessionsRequest *req)
{
    for (size_t i = 0; i < req->n_labels; i++) {
        bool found = false;

        for (size_t k = 0; spec && k < spec->n_labels; k++)
            if (strcmp(spec->labels[k]->key, req->labels[i]->key) == 0)
                found = strcmp(spec->labels[k]->value, req->labels[i]->value) == 0;
        if (!found)
            return false;
    }
    return true;
}

static bool has_state(const Session *session, const ListSessionsRequest *req)
{
    for (size_t i = 0; i < req->n_states; i++)
        if (session->sandbox && session->sandbox->state == req->states[i])
            return true;
    return req->n_states == 0;
}

/* One entry, where it is wanted. */
static enum berth_code take(struct cp *cp, const BoundSession *from,
                            const ListSessionsRequest *req, ListSessionsResponse *out,
                            struct berth_error *err)
{
    BERTH_AUTO(cp_config_unref) struct cp_config *config = NULL;
    const struct cp_session_facts facts = {.stale = from->stale,
                                           .turn_running = from->turn_running};
    Session *session;
    enum berth_code code;

    if (!from->session || !from->session->ref ||
        from->session->kind == BERTH__BINDING__V1__SESSION_KIND__SESSION_KIND_MAINTENANCE ||
        !has_labels(from->session->spec, req))
        return BERTH_OK;
    code = cp_session_config(cp, from->session, &config, err);
    if (code && code != BERTH_NOT_FOUND)
        return code;
    session = cp_show_session(config, from->session, from->binding, &facts);
    if (session && !has_state(session, req)) {
        berth_message_free(session);
        return BERTH_OK;
    }
    return berth_add_message(&out->n_sessions, &out->sessions, session) ? BERTH_OK
                                                                        : no_memory(err);
}

static enum berth_code take_page(struct cp *cp, struct berth_call *call,
                                 const ListSessionsRequest *req, ListBindingsRequest *ask,
                                 ListSessionsResponse *out, struct berth_error *err)
{
    ListBindingsResponse *page;
    enum berth_code code = cp_binding_call(
        cp, call, "/berth.binding.v1.BindingService/ListBindings", &ask->base,
        &berth__binding__v1__list_bindings_response__descriptor, false, &page, err);

    if (code)
        return code;
    for (size_t i = 0; !code && i < page->n_sessions; i++)
        code = take(cp, page->sessions[i], req, out, err);
    if (!code && !berth_set_string(&out->next_page_token, page->next_page_token))
        code = no_memory(err);
    berth_message_free(page);
    return code;
}

HANDLER(list_sessions)
{
    struct cp *cp = service;
    const ListSessionsRequest *req = (const ListSessionsRequest *)message;
    Berth__Common__V1__PageRequest page = BERTH__COMMON__V1__PAGE_REQUEST__INIT;
    ListBindingsRequest ask = BERTH__BINDING__V1__LIST_BINDINGS_REQUEST__INIT;
    ListSessionsResponse *out;
    uint32_t size = 0;
    enum berth_code code = check_list(req, &size, err);

    if (!code)
        code = cp_enter_tenant(cp, req->tenant_id, false, err);
    if (code)
        return code;
    out = berth_message_new(&berth__control__v1__list_sessions_response__descriptor);
    if (!out ||
        !berth_set_string(&out->next_page_token, req->page ? req->page->page_token : "")) {
        berth_message_free(out);
        return no_memory(err);
    }
    ask.tenant_id = req->tenant_id;
    ask.config_id = req->config_id;
    ask.page = &page;
    /* Filters thin pages out: go on until one is full, or for a while. */
    for (int i = 0; !code && i < LIST_PAGES_MAX && out->n_sessions < size; i++) {
        BERTH_AUTO(free) char *token = strdup(out->next_page_token);

        page.page_size = (int32_t)(size - out->n_sessions);
        page.page_token = token ? token : (char *)"";
        code = token ? take_page(cp, call, req, &ask, out, err) : no_memory(err);
        if (!*out->next_page_token)
            break;
    }
    /* After the pages: what was lost meanwhile is not told as nothing. */
    if (!code)
        code = berth_epoch_check(cp->redis, err);
    if (code)
        berth_message_free(out);
    else
        *ret_resp = &out->base;
    return code;
}

/* ------------------------------------------------------------ UpdateSession */

static enum berth_code check_update(const UpdateSessionRequest *req, bool peer,
                                    struct berth_error *err)
{
    enum berth_code code = berth_check_present("session", req->session, err);

    if (!code)
        code = cp_check_ref("session.ref", req->session->ref, peer, err);
    if (!code)
        code = cp_check_spec("session.spec", req->session->spec, err);
    if (!code && (!req->update_mask || req->update_mask->n_paths == 0))
        code = berth_fail_field(err, "update_mask", "must name what is to be changed");
    return code;
}

/* Swap lists between the stored spec and a copy of the client's: each still owns what it holds.
 */
#define SWAP(a, b)                                                                             \
    do {                                                                                       \
        __typeof__(a) keep = (a);                                                              \
        (a) = (b);                                                                             \
        (b) = keep;                                                                            \
    } while (0)

static enum berth_code apply(SessionSpec *into, SessionSpec *from, const char *path,
                             struct berth_error *err)
{
    if (strcmp(path, "spec.labels") == 0) {
        SWAP(into->labels, from->labels);
        SWAP(into->n_labels, from->n_labels);
    } else if (strcmp(path, "spec.env") == 0) {
        SWAP(into->env, from->env);
        SWAP(into->n_env, from->n_env);
    } else if (strcmp(path, "spec.timeouts") == 0) {
        SWAP(into->timeouts, from->timeouts);
    } else if (strcmp(path, "spec.network") == 0) {
        return cp_missing("network.live_update", "update_mask", err);
    } else {
        return berth_fail_field(err, "update_mask",
                                "may name spec.labels, spec.env and spec.timeouts");
    }
    return BERTH_OK;
}

/* An unknown path is told before anything is looked up. */
static enum berth_code check_mask(const Google__Protobuf__FieldMask *mask,
                                  struct berth_error *err)
{
    SessionSpec into = BERTH__COMMON__V1__SESSION_SPEC__INIT;
    SessionSpec from = BERTH__COMMON__V1__SESSION_SPEC__INIT;
    enum berth_code code = BERTH_OK;

    for (size_t i = 0; !code && i < mask->n_paths; i++)
        code = apply(&into, &from, mask->paths[i], err);
    return code;
}

static enum berth_code merge(const GetBindingResponse *got, const UpdateSessionRequest *req,
                             SessionSpec **ret, struct berth_error *err)
{
    static const SessionSpec empty = BERTH__COMMON__V1__SESSION_SPEC__INIT;
    const Google__Protobuf__FieldMask *mask = req->update_mask;
    SessionSpec *spec = berth_message_copy(got->session->spec);
    SessionSpec *from = berth_message_copy(req->session->spec ? req->session->spec : &empty);
    enum berth_code code = spec && from ? BERTH_OK : no_memory(err);

    for (size_t i = 0; !code && i < mask->n_paths; i++) {
        bool named = false;

        for (size_t k = 0; k < i; k++)
            named = named || strcmp(mask->paths[k], mask->paths[i]) == 0;
        if (!named) /* twice is once */
            code = apply(spec, from, mask->paths[i], err);
    }
    berth_message_free(from);
    if (code)
        berth_message_free(spec);
    else
        *ret = spec;
    return code;
}

static enum berth_code store(struct cp *cp, struct berth_call *call,
                             const UpdateSessionRequest *req, const GetBindingResponse *got,
                             SessionSpec *spec, struct berth_error *err)
{
    Berth__Binding__V1__UpdateSessionRequest ask =
        BERTH__BINDING__V1__UPDATE_SESSION_REQUEST__INIT;
    void *resp = NULL;
    enum berth_code code;

    ask.session = req->session->ref;
    ask.version = req->session->version ? req->session->version : got->session->version;
    ask.spec = spec;
    code = cp_binding_call(cp, call, "/berth.binding.v1.BindingService/UpdateSession",
                           &ask.base, &berth__binding__v1__update_session_response__descriptor,
                           false, &resp, err);
    berth_message_free(resp);
    return code;
}

static enum berth_code update(struct cp *cp, struct berth_call *call,
                              const UpdateSessionRequest *req, struct berth_error *err)
{
    BERTH_AUTO(cp_config_unref) struct cp_config *config = NULL;
    GetBindingResponse *got = NULL;
    SessionSpec *spec = NULL;
    enum berth_code code = cp_binding_get(cp, req->session->ref, &got, err);

    if (!code &&
        (got->session->state != BERTH__COMMON__V1__SESSION_STATE__SESSION_STATE_ACTIVE ||
         !got->session->spec))
        code = berth_fail(err, BERTH_REASON_SESSION_DELETED, NULL);
    if (!code)
        code = merge(got, req, &spec, err);
    if (!code)
        code = cp_session_config(cp, got->session, &config, err);
    if (!code && config)
        code = cp_judge_wishes(config, spec, err);
    if (!code)
        code = store(cp, call, req, got, spec, err);
    berth_message_free(got);
    berth_message_free(spec);
    return code;
}

HANDLER(update_session)
{
    BERTH_AUTO(cp_config_unref) struct cp_config *config = NULL;
    struct cp *cp = service;
    const UpdateSessionRequest *req = (const UpdateSessionRequest *)message;
    struct cp_session_facts facts;
    GetBindingResponse *got = NULL;
    UpdateSessionResponse *out = NULL;
    enum berth_code code = check_update(req, berth_call_is_peer(call), err);

    if (!code)
        code = check_mask(req->update_mask, err);
    if (!code)
        code = cp_enter_session(cp, req->session->ref, berth_config_bound(call), false, false,
                                err);
    if (!code)
        code = update(cp, call, req, err);
    if (!code)
        code = cp_binding_get(cp, req->session->ref, &got, err);
    if (!code)
        code = cp_session_config(cp, got->session, &config, err);
    if (!code) {
        facts =
            (struct cp_session_facts){.stale = got->stale, .turn_running = got->turn_running};
        out = berth_message_new(&berth__control__v1__update_session_response__descriptor);
        if (!out ||
            !(out->session = cp_show_session(config, got->session, got->binding, &facts)))
            code = no_memory(err);
    }
    berth_message_free(got);
    if (code)
        berth_message_free(out);
    else
        *ret_resp = &out->base;
    return code;
}

const struct berth_method cp_session_read_methods[] = {
    {"/berth.control.v1.SessionService/GetSession",
     &berth__control__v1__get_session_request__descriptor, .unary = get_session},
    {"/berth.control.v1.SessionService/ListSessions",
     &berth__control__v1__list_sessions_request__descriptor, .unary = list_sessions},
    {"/berth.control.v1.SessionService/UpdateSession",
     &berth__control__v1__update_session_request__descriptor, .unary = update_session},
};
const size_t cp_n_session_read_methods = BERTH_COUNT(cp_session_read_methods);
