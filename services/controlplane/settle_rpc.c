/* settle_rpc.c - InternalService.SettleSession: what the reaper wants done to one session. It
 * goes the way of every resolve: Acquire, then the holder. */
#include "common/fields/fields.h"
#include "common/messages/messages.h"
#include "services/controlplane/checks.h"
#include "services/controlplane/resolve.h"

typedef Berth__Control__V1__SettleSessionRequest SettleSessionRequest;
typedef Berth__Control__V1__SettleSessionResponse SettleSessionResponse;

enum {
    SANDBOX_ID_MAX = 128,
    ACCOUNT_MAX = 32,
    REASON_MAX = 64,
    WAIT_MS = 2000, /* for a lock: whoever holds it is at work on the session */
};

#define ACTION(name) BERTH__CONTROL__V1__SETTLE_ACTION__SETTLE_ACTION_##name
#define RESULT(name) BERTH__CONTROL__V1__SETTLE_RESULT__SETTLE_RESULT_##name

static int result_of(enum cp_outcome outcome)
{
    switch (outcome) {
    case CP_ADOPTED:
    case CP_PAUSED:
    case CP_DELETED:
    case CP_REAPED:
    case CP_OBSERVED:
        return RESULT(DONE);
    case CP_NOTHING_BOUND:
        return RESULT(NOTHING);
    default: /* set going again */
        return RESULT(IN_USE);
    }
}

static enum berth_code answer_settle(struct cp *cp, const struct cp_resolved *resolved,
                                     ProtobufCMessage **ret, struct berth_error *err)
{
    SettleSessionResponse *out =
        berth_message_new(&berth__control__v1__settle_session_response__descriptor);

    (void)cp;
    if (out && resolved->binding &&
        !berth_set_string(&out->sandbox_id, resolved->binding->sandbox_id))
        out = berth_message_free(out);
    if (!out)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    out->result = (Berth__Control__V1__SettleResult)result_of(resolved->outcome);
    *ret = &out->base;
    return BERTH_OK;
}

static enum berth_code check(const SettleSessionRequest *req, struct berth_error *err)
{
    bool needs_sandbox = req->action != ACTION(ADOPT) && req->action != ACTION(FINISH_DELETE);
    enum berth_code code = cp_check_ref("session", req->session, true, err);

    if (!code)
        code = berth_check_enum("action", (int)req->action, ACTION(STILL), false, err);
    if (!code)
        code = berth_check_id("config_id", req->config_id, err);
    if (!code)
        code =
            berth_check_text("sandbox_id", req->sandbox_id, needs_sandbox, SANDBOX_ID_MAX, err);
    if (!code && (req->account.len > ACCOUNT_MAX || (*req->sandbox_id && !req->account.len)))
        code = berth_fail_field(err, "account", "must be 1 to %d bytes", ACCOUNT_MAX);
    if (!code && req->unless_active_after &&
        berth_timestamp_ms(req->unless_active_after, 0) <= 0)
        code = berth_fail_field(err, "unless_active_after", "must be after 1970");
    if (!code && req->ends_soon_time && berth_timestamp_ms(req->ends_soon_time, 0) <= 0)
        code = berth_fail_field(err, "ends_soon_time", "must be after 1970");
    return code ? code : berth_check_text("reason", req->reason, 0, REASON_MAX, err);
}

/* Not under another account than the sandbox was seen in. */
static enum berth_code check_account(struct cp *cp, const SettleSessionRequest *req,
                                     struct berth_error *err)
{
    BERTH_AUTO(cp_config_unref) struct cp_config *config = NULL;
    const ProtobufCBinaryData *now;
    enum berth_code code =
        cp_cache_config(cp->cache, req->session->tenant_id, req->config_id, &config, err);

    if (code || !req->account.len)
        return code;
    now = &config->target->fingerprint;
    if (now->len != req->account.len || memcmp(now->data, req->account.data, now->len) != 0)
        return berth_fail(err, BERTH_REASON_ACCOUNT_CHANGED, NULL);
    return BERTH_OK;
}

static enum plan_want want_of(int action)
{
    switch (action) {
    case ACTION(ADOPT):
        return PLAN_ADOPT;
    case ACTION(REAP):
        return PLAN_REAP;
    case ACTION(IDLE_PAUSE):
        return PLAN_IDLE_PAUSE;
    case ACTION(IDLE_KILL):
        return PLAN_IDLE_KILL;
    case ACTION(OBSERVE):
        return PLAN_OBSERVE;
    case ACTION(STILL):
        return PLAN_STILL;
    default:
        return PLAN_DELETE;
    }
}

static enum berth_code settle_session(void *service, struct berth_call *call,
                                      const ProtobufCMessage *message,
                                      ProtobufCMessage **ret_resp, struct berth_error *err)
{
    struct cp *cp = service;
    const SettleSessionRequest *req = (const SettleSessionRequest *)message;
    struct cp_resolve_request request = {
        .session = req->session,
        .turn_token = "",
        .failed_sandbox_id = "",
        .config_id = req->config_id,
        .reap_sandbox_id = req->sandbox_id,
        .reap_account = req->account,
        .unless_active_after = req->unless_active_after,
        .ends_soon_time = req->ends_soon_time,
        .calls_only = req->calls_only,
        .max_wait_ms = WAIT_MS,
        .answer = answer_settle,
    };
    enum berth_code code = check(req, err);

    (void)ret_resp;
    if (!code)
        code = cp_enter(cp, err);
    if (!code)
        code = check_account(cp, req, err);
    if (code)
        return code;
    request.want = want_of((int)req->action);
    return cp_resolve(cp, call, &request, err);
}

const struct berth_method cp_settle_methods[] = {
    {"/berth.control.v1.InternalService/SettleSession",
     &berth__control__v1__settle_session_request__descriptor, .unary = settle_session,
     .flags = BERTH_METHOD_PEER_ONLY},
};
const size_t cp_n_settle_methods = BERTH_COUNT(cp_settle_methods);
