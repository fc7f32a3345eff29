/* session_rpc.c - SessionService: decode, check, ask binding or resolve, encode. */
#include "common/fields/fields.h"
#include "common/messages/messages.h"
#include "services/controlplane/binding.h"
#include "services/controlplane/checks.h"
#include "services/controlplane/judge.h"
#include "services/controlplane/policy.h"
#include "services/controlplane/present.h"
#include "services/controlplane/resolve.h"

typedef Berth__Binding__V1__GetBindingResponse GetBindingResponse;
typedef Berth__Common__V1__SessionSpec SessionSpec;
typedef Berth__Control__V1__DeleteSessionRequest DeleteSessionRequest;
typedef Berth__Control__V1__PauseSessionRequest PauseSessionRequest;
typedef Berth__Control__V1__PauseSessionResponse PauseSessionResponse;
typedef Berth__Control__V1__ResolveSessionRequest ResolveSessionRequest;
typedef Berth__Control__V1__ResolveSessionResponse ResolveSessionResponse;
typedef Berth__Control__V1__ResumeSessionRequest ResumeSessionRequest;
typedef Berth__Control__V1__ResumeSessionResponse ResumeSessionResponse;
typedef Berth__Control__V1__Session Session;

#define HANDLER(name)                                                                          \
    static enum berth_code name(void *service, struct berth_call *call,                        \
                                const ProtobufCMessage *message, ProtobufCMessage **ret_resp,  \
                                struct berth_error *err)

/* ------------------------------------------------------------------- answers */

static Session *show(const struct cp_resolved *resolved)
{
    const struct cp_session_facts facts = {.stale = resolved->stale,
                                           .turn_running = resolved->turn_running};

    return cp_show_session(resolved->config, resolved->record, resolved->binding, &facts);
}

static bool add_lost(ResolveSessionResponse *out, const struct cp_resolved *resolved)
{
    return !resolved->loss ||
           (cp_add_lost(&out->n_lost, &out->lost, resolved->loss) &&
            (out->session->last_loss = cp_show_loss(resolved->loss)) != NULL);
}

static enum berth_code answer_resolve(struct cp *cp, const struct cp_resolved *resolved,
                                      ProtobufCMessage **ret, struct berth_error *err)
{
    static const Berth__Control__V1__ResolveOutcome outcomes[] = {
        [CP_USED] = BERTH__CONTROL__V1__RESOLVE_OUTCOME__RESOLVE_OUTCOME_USED,
        [CP_RESUMED] = BERTH__CONTROL__V1__RESOLVE_OUTCOME__RESOLVE_OUTCOME_RESUMED,
        [CP_CREATED] = BERTH__CONTROL__V1__RESOLVE_OUTCOME__RESOLVE_OUTCOME_CREATED,
        [CP_ADOPTED] = BERTH__CONTROL__V1__RESOLVE_OUTCOME__RESOLVE_OUTCOME_ADOPTED,
        [CP_REBUILT] = BERTH__CONTROL__V1__RESOLVE_OUTCOME__RESOLVE_OUTCOME_REBUILT,
        [CP_REPLACED] = BERTH__CONTROL__V1__RESOLVE_OUTCOME__RESOLVE_OUTCOME_REPLACED,
    };
    ResolveSessionResponse *out;

    (void)cp;
    if (resolved->outcome == CP_NOTHING_BOUND)
        return cp_no_sandbox(err);
    out = berth_message_new(&berth__control__v1__resolve_session_response__descriptor);
    if (!out || !(out->session = show(resolved)) || !add_lost(out, resolved)) {
        berth_message_free(out);
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    out->outcome = outcomes[resolved->outcome];
    out->spec_ignored = cp_spec_differs(resolved->spec, resolved->record->spec);
    *ret = &out->base;
    return BERTH_OK;
}

static enum berth_code answer_pause(struct cp *cp, const struct cp_resolved *resolved,
                                    ProtobufCMessage **ret, struct berth_error *err)
{
    PauseSessionResponse *out;

    (void)cp;
    if (resolved->outcome == CP_NOTHING_BOUND)
        return cp_no_sandbox(err);
    out = berth_message_new(&berth__control__v1__pause_session_response__descriptor);
    if (!out || !(out->session = show(resolved))) {
        berth_message_free(out);
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    *ret = &out->base;
    return BERTH_OK;
}

static enum berth_code answer_resume(struct cp *cp, const struct cp_resolved *resolved,
                                     ProtobufCMessage **ret, struct berth_error *err)
{
    ResumeSessionResponse *out;

    (void)cp;
    if (resolved->outcome == CP_NOTHING_BOUND)
        return cp_no_sandbox(err);
    out = berth_message_new(&berth__control__v1__resume_session_response__descriptor);
    if (!out || !(out->session = show(resolved))) {
        berth_message_free(out);
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    *ret = &out->base;
    return BERTH_OK;
}

static enum berth_code answer_delete(struct cp *cp, const struct cp_resolved *resolved,
                                     ProtobufCMessage **ret, struct berth_error *err)
{
    ProtobufCMessage *out =
        berth_message_new(&berth__control__v1__delete_session_response__descriptor);

    (void)cp;
    (void)resolved;
    if (!out)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    *ret = out;
    return BERTH_OK;
}

/* ----------------------------------------------------------- ResolveSession */

/* What a new session may not ask for does not matter to one that is there; one that never had a
 * sandbox would take it. */
static enum berth_code judge(struct cp *cp, const ResolveSessionRequest *req,
                             struct berth_error *err)
{
    GetBindingResponse *got = NULL;
    struct berth_error why, ignored;
    enum berth_code code = cp_judge_spec(cp, req->session->tenant_id, req->spec, &why);

    if (!code)
        return BERTH_OK;
    if (!cp_binding_get(cp, req->session, &got, &ignored) &&
        got->session->state == BERTH__COMMON__V1__SESSION_STATE__SESSION_STATE_ACTIVE &&
        !got->session->never_bound)
        code = BERTH_OK;
    berth_message_free(got);
    if (code && err)
        *err = why;
    return code;
}

static enum berth_code check_turn_token(const char *value, bool required,
                                        struct berth_error *err)
{
    return berth_check_text("turn_token", value, required ? 1 : 0, CP_TURN_TOKEN_MAX, err);
}

/* What names no config is of the one that the caller is bound to. */
static enum berth_code name_config(ResolveSessionRequest *req, const char *config_id,
                                   struct berth_error *err)
{
    if (!*config_id || (req->spec && *req->spec->config_id))
        return BERTH_OK;
    if (!req->spec)
        req->spec = berth_message_new(&berth__common__v1__session_spec__descriptor);
    return req->spec && berth_set_string(&req->spec->config_id, config_id)
               ? BERTH_OK
               : berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

HANDLER(resolve_session)
{
    struct cp *cp = service;
    const ResolveSessionRequest *req = (const ResolveSessionRequest *)message;
    struct cp_resolve_request request = {
        .session = req->session,
        .turn_token = req->turn_token,
        .failed_sandbox_id = "",
        .must_be_new = req->must_be_new,
        .recreate = req->recreate,
        .tells = true,
        .answer = answer_resolve,
        .quick = true,
    };
    enum berth_code code = cp_check_ref("session", req->session, berth_call_is_peer(call), err);

    (void)ret_resp;
    if (!code)
        code = berth_check_enum("mode", (int)req->mode, 2, true, err);
    if (!code)
        code = cp_check_spec("spec", req->spec, err);
    if (!code)
        code = check_turn_token(req->turn_token, false, err);
    if (!code)
        code = cp_enter_session(cp, req->session, berth_config_bound(call), true, false, err);
    if (!code)
        code = name_config((ResolveSessionRequest *)req, berth_config_bound(call), err);
    if (code)
        return code;
    request.spec = req->spec;
    request.want = req->mode == BERTH__CONTROL__V1__RESOLVE_MODE__RESOLVE_MODE_EXISTING
                       ? PLAN_EXISTING
                       : PLAN_ENSURE;
    if (request.want == PLAN_ENSURE && cp_spec_asks(req->spec)) {
        code = judge(cp, req, err);
        if (code)
            return code;
    }
    return cp_resolve(cp, call, &request, err);
}

/* ------------------------------------------------------ pause, resume, delete */

static enum berth_code act(struct cp *cp, struct berth_call *call,
                           const Berth__Common__V1__SessionRef *ref, enum plan_want want,
                           cp_answer_fn answer, struct berth_error *err)
{
    const struct cp_resolve_request request = {
        .session = ref,
        .want = want,
        .turn_token = "",
        .failed_sandbox_id = "",
        .answer = answer,
    };

    return cp_resolve(cp, call, &request, err);
}

/* A backend that cannot pause is known before anything is written; a session that is paused
 * stays as it is. */
static enum berth_code look_before_pause(struct cp *cp,
                                         const Berth__Common__V1__SessionRef *ref,
                                         ProtobufCMessage **ret_resp, struct berth_error *err)
{
    BERTH_AUTO(cp_config_unref) struct cp_config *config = NULL;
    const Berth__Common__V1__PauseCapability *pause;
    GetBindingResponse *got = NULL;
    enum berth_code code = cp_binding_get(cp, ref, &got, err);

    if (!code)
        code = cp_session_config(cp, got->session, &config, err);
    if (!code && config) {
        pause = config->info->capabilities->pause;
        if (!pause || !pause->supported)
            code = cp_missing("pause", "PauseSession", err);
    }
    if (!code && config && got->binding && got->n_intents == 0 &&
        got->binding->power == BERTH__BINDING__V1__POWER__POWER_PAUSED) {
        const struct cp_resolved resolved = {
            .record = got->session,
            .binding = got->binding,
            .config = config,
            .outcome = CP_PAUSED,
            .stale = got->stale,
            .turn_running = got->turn_running,
        };

        code = answer_pause(cp, &resolved, ret_resp, err);
    }
    berth_message_free(got);
    return code;
}

HANDLER(pause_session)
{
    struct cp *cp = service;
    const PauseSessionRequest *req = (const PauseSessionRequest *)message;
    enum berth_code code = cp_check_ref("session", req->session, berth_call_is_peer(call), err);

    if (!code)
        code = cp_enter_session(cp, req->session, berth_config_bound(call), false, true, err);
    if (!code)
        code = look_before_pause(cp, req->session, ret_resp, err);
    if (code || *ret_resp)
        return code;
    return act(cp, call, req->session, PLAN_PAUSE, answer_pause, err);
}

HANDLER(resume_session)
{
    struct cp *cp = service;
    const ResumeSessionRequest *req = (const ResumeSessionRequest *)message;
    enum berth_code code = cp_check_ref("session", req->session, berth_call_is_peer(call), err);

    (void)ret_resp;
    if (!code)
        code = cp_enter_session(cp, req->session, berth_config_bound(call), false, false, err);
    return code ? code : act(cp, call, req->session, PLAN_RESUME, answer_resume, err);
}

HANDLER(delete_session)
{
    struct cp *cp = service;
    const DeleteSessionRequest *req = (const DeleteSessionRequest *)message;
    enum berth_code code = cp_check_ref("session", req->session, berth_call_is_peer(call), err);

    (void)ret_resp;
    if (!code)
        code = cp_enter_session(cp, req->session, berth_config_bound(call), false, true, err);
    return code ? code : act(cp, call, req->session, PLAN_DELETE, answer_delete, err);
}

const struct berth_method cp_session_methods[] = {
    {"/berth.control.v1.SessionService/ResolveSession",
     &berth__control__v1__resolve_session_request__descriptor, .unary = resolve_session},
    {"/berth.control.v1.SessionService/PauseSession",
     &berth__control__v1__pause_session_request__descriptor, .unary = pause_session},
    {"/berth.control.v1.SessionService/ResumeSession",
     &berth__control__v1__resume_session_request__descriptor, .unary = resume_session},
    {"/berth.control.v1.SessionService/DeleteSession",
     &berth__control__v1__delete_session_request__descriptor, .unary = delete_session},
};
const size_t cp_n_session_methods = BERTH_COUNT(cp_session_methods);
