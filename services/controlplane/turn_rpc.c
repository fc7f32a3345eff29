/* turn_rpc.c - SessionService: turns. Binding owns them. */
#include "common/fields/fields.h"
#include "common/ids/ids.h"
#include "common/messages/messages.h"
#include "services/controlplane/binding.h"
#include "services/controlplane/checks.h"
#include "services/controlplane/keep_alive.h"

#include "berth/control/v1/control.pb-c.h"

typedef Berth__Control__V1__BeginTurnRequest BeginTurnRequest;
typedef Berth__Control__V1__BeginTurnResponse BeginTurnResponse;
typedef Berth__Control__V1__EndTurnRequest EndTurnRequest;
typedef Berth__Control__V1__RenewTurnRequest RenewTurnRequest;
typedef Berth__Control__V1__RenewTurnResponse RenewTurnResponse;

enum { MADE_ID_BYTES = 8 };

#define LEASE_MIN_MS 60000
#define LEASE_MAX_MS CP_DAY_MS

#define HANDLER(name)                                                                          \
    static enum berth_code name(void *service, struct berth_call *call,                        \
                                const ProtobufCMessage *message, ProtobufCMessage **ret_resp,  \
                                struct berth_error *err)

static enum berth_code check_begin(const BeginTurnRequest *req, bool peer,
                                   struct berth_error *err)
{
    int64_t lease_ms = LEASE_MIN_MS;
    enum berth_code code = cp_check_ref("session", req->session, peer, err);

    if (!code)
        code = berth_check_id_or_empty("turn_id", req->turn_id, err);
    if (!code && req->lease)
        code = berth_check_duration("lease", req->lease->seconds, req->lease->nanos,
                                    LEASE_MAX_MS, &lease_ms, err);
    if (!code && lease_ms < LEASE_MIN_MS)
        code = berth_fail_field(err, "lease", "must be 1 minute to 24 hours");
    return code;
}

HANDLER(begin_turn)
{
    struct cp *cp = service;
    const BeginTurnRequest *req = (const BeginTurnRequest *)message;
    Berth__Binding__V1__BeginTurnRequest ask = BERTH__BINDING__V1__BEGIN_TURN_REQUEST__INIT;
    Berth__Binding__V1__BeginTurnResponse *resp = NULL;
    char made_id[2 * MADE_ID_BYTES + 1];
    BeginTurnResponse *out;
    enum berth_code code = check_begin(req, berth_call_is_peer(call), err);

    if (!code)
        code = cp_enter_session(cp, req->session, berth_config_bound(call), false, false, err);
    if (code)
        return code;
    ask.session = req->session;
    ask.turn_id = *req->turn_id ? req->turn_id : berth_id_hex(made_id, MADE_ID_BYTES);
    ask.lease = req->lease;
    code =
        cp_binding_call(cp, call, "/berth.binding.v1.BindingService/BeginTurn", &ask.base,
                        &berth__binding__v1__begin_turn_response__descriptor, true, &resp, err);
    if (code)
        return code;
    cp_keep_alive(cp, req->session, berth_timestamp_ms(resp->expire_time, 0));
    out = berth_message_new(&berth__control__v1__begin_turn_response__descriptor);
    if (!out || !berth_set_string(&out->turn_token, resp->turn_token)) {
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        berth_message_free(out);
    } else {
        out->expire_time = BERTH_STEAL(resp->expire_time);
        *ret_resp = &out->base;
    }
    berth_message_free(resp);
    return code;
}

static enum berth_code check_token(const Berth__Common__V1__SessionRef *ref, const char *token,
                                   bool peer, struct berth_error *err)
{
    enum berth_code code = cp_check_ref("session", ref, peer, err);

    return code ? code : berth_check_text("turn_token", token, 1, CP_TURN_TOKEN_MAX, err);
}

HANDLER(renew_turn)
{
    struct cp *cp = service;
    const RenewTurnRequest *req = (const RenewTurnRequest *)message;
    Berth__Binding__V1__RenewTurnRequest ask = BERTH__BINDING__V1__RENEW_TURN_REQUEST__INIT;
    Berth__Binding__V1__RenewTurnResponse *resp = NULL;
    RenewTurnResponse *out;
    enum berth_code code =
        check_token(req->session, req->turn_token, berth_call_is_peer(call), err);

    if (!code)
        code = cp_enter_session(cp, req->session, berth_config_bound(call), false, false, err);
    if (code)
        return code;
    ask.session = req->session;
    ask.turn_token = req->turn_token;
    code =
        cp_binding_call(cp, call, "/berth.binding.v1.BindingService/RenewTurn", &ask.base,
                        &berth__binding__v1__renew_turn_response__descriptor, true, &resp, err);
    if (code)
        return code;
    cp_keep_alive(cp, req->session, berth_timestamp_ms(resp->expire_time, 0));
    out = berth_message_new(&berth__control__v1__renew_turn_response__descriptor);
    if (out) {
        out->expire_time = BERTH_STEAL(resp->expire_time);
        *ret_resp = &out->base;
    } else {
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    berth_message_free(resp);
    return code;
}

HANDLER(end_turn)
{
    struct cp *cp = service;
    const EndTurnRequest *req = (const EndTurnRequest *)message;
    Berth__Binding__V1__EndTurnRequest ask = BERTH__BINDING__V1__END_TURN_REQUEST__INIT;
    void *resp = NULL;
    enum berth_code code =
        check_token(req->session, req->turn_token, berth_call_is_peer(call), err);

    if (!code)
        code = cp_enter_session(cp, req->session, berth_config_bound(call), false, true, err);
    if (code)
        return code;
    ask.session = req->session;
    ask.turn_token = req->turn_token;
    code =
        cp_binding_call(cp, call, "/berth.binding.v1.BindingService/EndTurn", &ask.base,
                        &berth__binding__v1__end_turn_response__descriptor, true, &resp, err);
    berth_message_free(resp);
    if (code)
        return code;
    *ret_resp = berth_message_new(&berth__control__v1__end_turn_response__descriptor);
    return *ret_resp ? BERTH_OK : berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

const struct berth_method cp_turn_methods[] = {
    {"/berth.control.v1.SessionService/BeginTurn",
     &berth__control__v1__begin_turn_request__descriptor, .unary = begin_turn},
    {"/berth.control.v1.SessionService/RenewTurn",
     &berth__control__v1__renew_turn_request__descriptor, .unary = renew_turn},
    {"/berth.control.v1.SessionService/EndTurn",
     &berth__control__v1__end_turn_request__descriptor, .unary = end_turn,
     .flags = BERTH_METHOD_PRIORITY},
};
const size_t cp_n_turn_methods = BERTH_COUNT(cp_turn_methods);
