/* token_rpc.c - TenantService: tokens; and InternalService.IntrospectToken. */
#include <stdio.h>

#include "common/auth/introspect.h"
#include "common/crypto/crypto.h"
#include "common/fields/fields.h"
#include "common/messages/messages.h"
#include "common/time/time.h"
#include "services/controlplane/config_ops.h"
#include "services/controlplane/names.h"
#include "services/controlplane/token_store.h"

typedef Berth__Control__V1__CreateTokenRequest CreateTokenRequest;
typedef Berth__Control__V1__CreateTokenResponse CreateTokenResponse;
typedef Berth__Control__V1__IntrospectTokenRequest IntrospectTokenRequest;
typedef Berth__Control__V1__IntrospectTokenResponse IntrospectTokenResponse;
typedef Berth__Control__V1__ListTokensRequest ListTokensRequest;
typedef Berth__Control__V1__ListTokensResponse ListTokensResponse;
typedef Berth__Control__V1__RevokeTokenRequest RevokeTokenRequest;
typedef Berth__Control__V1__Token Token;

#define EXPIRE_MAX_MS ((int64_t)7258118400000) /* 2200-01-01 */

static enum berth_code no_memory(struct berth_error *err)
{
    return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

/* ---------------------------------------------------------------------- check */

/* A tenant's id as a field, or none for the deployment: the gate has seen that its own token
 * asks. */
static enum berth_code check_whose(const char *field, const char *tenant, bool deployment,
                                   struct berth_error *err)
{
    if (!deployment)
        return berth_check_id(field, tenant, err);
    return *tenant ? berth_fail_field(err, field, "must be empty with deployment") : BERTH_OK;
}

static const char *whose(const char *tenant, bool deployment)
{
    return deployment ? BERTH_DEPLOYMENT_TENANT : tenant;
}

static enum berth_code check_scopes(const Token *token, struct berth_error *err)
{
    enum berth_code code = BERTH_OK;

    if (token->n_scopes == 0 || token->n_scopes > BERTH_TOKEN_SCOPES_MAX)
        return berth_fail_field(err, "token.scopes", "must be 1 to %d", BERTH_TOKEN_SCOPES_MAX);
    for (size_t i = 0; !code && i < token->n_scopes; i++)
        code = berth_check_enum_entry("token.scopes", (int)token->scopes[i], BERTH_SCOPE_ADMIN,
                                      err);
    return code;
}

static enum berth_code check_expire(const Token *token, struct berth_error *err)
{
    const Google__Protobuf__Timestamp *time = token->expire_time;
    int64_t ms;

    if (!time)
        return BERTH_OK;
    ms = berth_timestamp_ms(time, 0);
    if (time->nanos < 0 || time->nanos > 999999999 || ms <= berth_now_ms() ||
        ms >= EXPIRE_MAX_MS)
        return berth_fail_field(err, "token.expire_time",
                                "must be later than now and before the year 2200");
    return BERTH_OK;
}

/* Those of the installer's own sessions are the installer's to give. */
static enum berth_code check_session(const Token *token, const struct berth_call *call,
                                     struct berth_error *err)
{
    enum berth_code code = berth_check_id_or_empty("token.session_id", token->session_id, err);

    if (!code && cp_is_maintenance(token->session_id) && !berth_call_is_peer(call)) {
        code = berth_fail(err, BERTH_REASON_RESERVED_KEY,
                          "token.session_id: sessions \"sk.\" belong to skill installations");
        BERTH_ERROR_SET(err, field, "token.session_id");
    }
    return code;
}

static enum berth_code check_create(const Token *token, const struct berth_call *call,
                                    struct berth_error *err)
{
    enum berth_code code = berth_check_present("token", token, err);

    if (!code)
        code = check_whose("token.tenant_id", token->tenant_id, token->deployment, err);
    if (!code)
        code = check_scopes(token, err);
    if (!code)
        code = check_session(token, call, err);
    if (!code)
        code = berth_check_id_or_empty("token.config_id", token->config_id, err);
    if (!code)
        code = check_expire(token, err);
    if (!code && token->deployment && (*token->session_id || *token->config_id))
        code =
            berth_fail_field(err, *token->session_id ? "token.session_id" : "token.config_id",
                             "must be empty with deployment");
    return code;
}

/* ----------------------------------------------------------------------- show */

static Token *show(const char *tenant, const struct berth_token_doc *doc)
{
    Token *out = berth_message_new(&berth__control__v1__token__descriptor);

    if (!out)
        return NULL;
    out->deployment = strcmp(tenant, BERTH_DEPLOYMENT_TENANT) == 0;
    out->scopes = calloc(doc->n_scopes, sizeof *out->scopes);
    if (out->scopes)
        out->n_scopes = doc->n_scopes;
    for (size_t i = 0; i < out->n_scopes; i++)
        out->scopes[i] = (Berth__Control__V1__Scope)doc->scopes[i];
    if (out->scopes && berth_set_string(&out->token_id, doc->token_id) &&
        berth_set_string(&out->tenant_id, out->deployment ? "" : tenant) &&
        berth_set_string(&out->session_id, doc->session_id) &&
        berth_set_string(&out->config_id, doc->config_id) &&
        berth_set_string(&out->created_by, doc->created_by) &&
        (out->create_time = berth_timestamp(doc->create_ms)) &&
        (!doc->expire_ms || (out->expire_time = berth_timestamp(doc->expire_ms))))
        return out;
    return berth_message_free(out);
}

/* --------------------------------------------------------------------- create */

static void fill(struct berth_token_doc *doc, const Token *from, const struct berth_call *call)
{
    char actor[BERTH_ACTOR_SIZE];

    *doc = (struct berth_token_doc){.n_scopes = (unsigned)from->n_scopes,
                                    .create_ms = berth_now_ms(),
                                    .expire_ms = berth_timestamp_ms(from->expire_time, 0)};
    for (unsigned i = 0; i < doc->n_scopes; i++)
        doc->scopes[i] = (int)from->scopes[i];
    snprintf(doc->session_id, sizeof doc->session_id, "%s", from->session_id);
    snprintf(doc->config_id, sizeof doc->config_id, "%s", from->config_id);
    snprintf(doc->created_by, sizeof doc->created_by, "%s", berth_actor(call, actor));
}

CP_HANDLER(create_token)
{
    struct cp *cp = service;
    const CreateTokenRequest *req = (const CreateTokenRequest *)message;
    struct berth_token_doc doc;
    char text[BERTH_TOKEN_SIZE] = "";
    CreateTokenResponse *out;
    const char *tenant;
    enum berth_code code = check_create(req->token, call, err);

    if (!code)
        code = cp_enter(cp, err);
    if (code)
        return code;
    tenant = whose(req->token->tenant_id, req->token->deployment);
    fill(&doc, req->token, call);
    code = cp_token_add(cp, tenant, req->e2b_shape, &doc, text, err);
    if (code)
        return code;
    out = berth_message_new(&berth__control__v1__create_token_response__descriptor);
    if (out && (out->token = show(tenant, &doc)) && berth_set_string(&out->secret, text)) {
        *ret_resp = &out->base;
    } else {
        berth_message_free(out);
        code = no_memory(err);
    }
    berth_wipe(text, sizeof text);
    return code;
}

/* --------------------------------------------------------------- list, revoke */

CP_HANDLER(list_tokens)
{
    struct cp *cp = service;
    const ListTokensRequest *req = (const ListTokensRequest *)message;
    BERTH_AUTO(free) struct berth_token_doc *list = NULL;
    ListTokensResponse *out;
    const char *after = "", *tenant = whose(req->tenant_id, req->deployment);
    uint32_t size = 0;
    size_t n = 0, i = 0;
    enum berth_code code = check_whose("tenant_id", req->tenant_id, req->deployment, err);

    (void)call;
    if (!code)
        code = cp_check_page(req->page, &size, &after, err);
    if (!code)
        code = cp_enter(cp, err);
    if (!code)
        code = cp_token_list(cp, tenant, &list, &n, err);
    if (code)
        return code;
    out = berth_message_new(&berth__control__v1__list_tokens_response__descriptor);
    if (!out)
        return no_memory(err);
    while (i < n && strcmp(list[i].token_id, after) <= 0)
        i++;
    for (; !code && i < n && out->n_tokens < size; i++)
        if (!berth_add_message(&out->n_tokens, &out->tokens, show(tenant, &list[i])))
            code = no_memory(err);
    if (!code && i < n && !berth_set_string(&out->next_page_token, list[i - 1].token_id))
        code = no_memory(err);
    if (code)
        berth_message_free(out);
    else
        *ret_resp = &out->base;
    return code;
}

static enum berth_code check_token_id(const char *token_id, struct berth_error *err)
{
    if (!berth_token_id_valid(token_id))
        return berth_fail_field(err, "token_id", "must be %d characters of [a-z0-9]",
                                BERTH_TOKEN_ID_LEN);
    return BERTH_OK;
}

CP_HANDLER(revoke_token)
{
    struct cp *cp = service;
    const RevokeTokenRequest *req = (const RevokeTokenRequest *)message;
    enum berth_code code = check_whose("tenant_id", req->tenant_id, req->deployment, err);

    (void)call;
    if (!code)
        code = check_token_id(req->token_id, err);
    if (!code)
        code = cp_enter(cp, err);
    if (!code)
        code = cp_token_remove(cp, whose(req->tenant_id, req->deployment), req->token_id, err);
    if (code)
        return code;
    *ret_resp = berth_message_new(&berth__control__v1__revoke_token_response__descriptor);
    return *ret_resp ? BERTH_OK : no_memory(err);
}

/* ----------------------------------------------------------------- introspect */

static enum berth_code not_found(struct berth_error *err)
{
    return berth_fail(err, BERTH_REASON_TOKEN_NOT_FOUND, NULL);
}

/* *ret_whole: the secret was given, and must be the right one. */
static enum berth_code check_introspect(const IntrospectTokenRequest *req,
                                        struct berth_token *ret, bool *ret_whole,
                                        struct berth_error *err)
{
    enum berth_code code = BERTH_OK;

    *ret_whole = *req->secret != 0;
    if (strlen(req->secret) > BERTH_TOKEN_SIZE)
        return berth_fail_field(err, "secret", "must be at most %d characters",
                                BERTH_TOKEN_SIZE);
    if (*req->secret && *req->token_id)
        return berth_fail_field(err, "token_id", "must be empty with secret");
    if (!*req->secret && !*req->token_id)
        return berth_fail_field(err, "secret", "must be given, or token_id");
    if (*req->token_id) {
        code = check_token_id(req->token_id, err);
        if (!code)
            memcpy(ret->id, req->token_id, sizeof ret->id);
    } else if (!berth_token_parse(req->secret, strlen(req->secret), ret)) {
        code = not_found(err);
    }
    return code;
}

CP_HANDLER(introspect_token)
{
    struct cp *cp = service;
    IntrospectTokenResponse *out;
    struct berth_principal found;
    struct berth_token token;
    bool there = false, whole;
    enum berth_code code =
        check_introspect((const IntrospectTokenRequest *)message, &token, &whole, err);

    (void)call;
    if (!code)
        code = cp_token_find(cp, token.id, &found, &there, err);
    if (!code && (!there || (whole && !berth_equal_secret(token.hash, found.token.hash,
                                                          sizeof token.hash))))
        code = not_found(err);
    if (code)
        return code;
    out = berth_introspect_encode(&found);
    if (!out)
        return no_memory(err);
    *ret_resp = &out->base;
    return BERTH_OK;
}

const struct berth_method cp_token_methods[] = {
    {"/berth.control.v1.TenantService/CreateToken",
     &berth__control__v1__create_token_request__descriptor, .unary = create_token},
    {"/berth.control.v1.TenantService/ListTokens",
     &berth__control__v1__list_tokens_request__descriptor, .unary = list_tokens},
    {"/berth.control.v1.TenantService/RevokeToken",
     &berth__control__v1__revoke_token_request__descriptor, .unary = revoke_token},
    {"/berth.control.v1.InternalService/IntrospectToken",
     &berth__control__v1__introspect_token_request__descriptor, .unary = introspect_token,
     .flags = BERTH_METHOD_PEER_ONLY},
};
const size_t cp_n_token_methods = BERTH_COUNT(cp_token_methods);
