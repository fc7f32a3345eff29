#include "common/auth/introspect.h"

#include <stdio.h>

#include "common/auth/follow.h"
#include "common/messages/messages.h"

typedef Berth__Control__V1__IntrospectTokenRequest IntrospectTokenRequest;
typedef Berth__Control__V1__IntrospectTokenResponse IntrospectTokenResponse;
typedef Berth__Control__V1__Token Token;

/* Less than the 5 s in which a revoked token must be gone. */
enum { TIMEOUT_MS = 2000 };

static bool copy(char *to, size_t size, const char *from)
{
    return snprintf(to, size, "%s", from) < (int)size;
}

enum berth_code berth_introspect_decode(const IntrospectTokenResponse *resp,
                                        struct berth_principal *ret, struct berth_error *err)
{
    const Token *token = resp->token;
    struct berth_principal out = {.tenant_disabled = resp->tenant_disabled,
                                  .calls_per_second = resp->requests_per_second,
                                  .max_commands = resp->concurrent_commands};

    if (!token || !berth_token_id_valid(token->token_id) ||
        resp->secret_sha256.len != BERTH_TOKEN_HASH_SIZE ||
        !token->deployment != (*token->tenant_id != 0) ||
        !copy(out.tenant_id, sizeof out.tenant_id, token->tenant_id) ||
        !copy(out.session_id, sizeof out.session_id, token->session_id) ||
        !copy(out.config_id, sizeof out.config_id, token->config_id))
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "IntrospectToken answered nonsense");
    memcpy(out.token.id, token->token_id, sizeof out.token.id);
    memcpy(out.token.hash, resp->secret_sha256.data, sizeof out.token.hash);
    out.deployment = token->deployment;
    out.expire_ms = berth_timestamp_ms(token->expire_time, 0);
    for (size_t i = 0; i < token->n_scopes; i++) {
        enum berth_scope scope = (enum berth_scope)token->scopes[i];

        if (scope > out.scope && scope <= BERTH_SCOPE_ADMIN)
            out.scope = scope;
    }
    *ret = out;
    return BERTH_OK;
}

static Token *encode_token(const struct berth_principal *principal)
{
    Token *out = berth_message_new(&berth__control__v1__token__descriptor);

    if (!out)
        return NULL;
    out->deployment = principal->deployment;
    out->scopes = malloc(sizeof *out->scopes);
    if (out->scopes) {
        out->scopes[0] = (Berth__Control__V1__Scope)principal->scope;
        out->n_scopes = 1;
    }
    if (out->scopes && berth_set_string(&out->token_id, principal->token.id) &&
        berth_set_string(&out->tenant_id, principal->tenant_id) &&
        berth_set_string(&out->session_id, principal->session_id) &&
        berth_set_string(&out->config_id, principal->config_id) &&
        (!principal->expire_ms || (out->expire_time = berth_timestamp(principal->expire_ms))))
        return out;
    return berth_message_free(out);
}

IntrospectTokenResponse *berth_introspect_encode(const struct berth_principal *principal)
{
    IntrospectTokenResponse *out =
        berth_message_new(&berth__control__v1__introspect_token_response__descriptor);

    if (out && (out->token = encode_token(principal)) &&
        berth_set_bytes(&out->secret_sha256, principal->token.hash,
                        sizeof principal->token.hash)) {
        out->tenant_disabled = principal->tenant_disabled;
        out->requests_per_second = principal->calls_per_second;
        out->concurrent_commands = principal->max_commands;
        return out;
    }
    return berth_message_free(out);
}

static void on_answer(void *arg, enum berth_code code, ProtobufCMessage *resp,
                      const struct berth_error *why)
{
    struct berth_auth_look *look = arg;
    struct berth_principal found;
    struct berth_error err = {0};

    if (code && why->reason == BERTH_REASON_TOKEN_NOT_FOUND) {
        berth_auth_found(look, BERTH_OK, NULL, NULL);
        return;
    }
    if (code)
        err = *why;
    else
        code = berth_introspect_decode((const IntrospectTokenResponse *)resp, &found, &err);
    berth_message_free(resp);
    berth_auth_found(look, code, code ? NULL : &found, &err);
}

void berth_introspect_look(void *arg, const char *token_id, struct berth_auth_look *look)
{
    struct berth_introspect *introspect = arg;
    const struct berth_call_options options = {.timeout_ms = TIMEOUT_MS, .idempotent = true};
    IntrospectTokenRequest req = BERTH__CONTROL__V1__INTROSPECT_TOKEN_REQUEST__INIT;

    if (introspect->follow)
        berth_follow_begin(introspect->follow);
    req.token_id = (char *)token_id;
    berth_channel_call_async(introspect->controlplane,
                             "/berth.control.v1.InternalService/IntrospectToken", &req.base,
                             &berth__control__v1__introspect_token_response__descriptor,
                             &options, introspect->pool, on_answer, look);
}
