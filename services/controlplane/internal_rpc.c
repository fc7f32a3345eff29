/* internal_rpc.c - InternalService, for the suite's own services only: routes, use tokens,
 * losses told, targets. */
#include <stdio.h>

#include "common/fields/fields.h"
#include "common/messages/messages.h"
#include "services/controlplane/binding.h"
#include "services/controlplane/checks.h"
#include "services/controlplane/config_check.h"
#include "services/controlplane/config_ops.h"
#include "services/controlplane/keep_alive.h"
#include "services/controlplane/present.h"
#include "services/controlplane/resolve.h"

typedef Berth__Control__V1__ConfigTarget ConfigTarget;
typedef Berth__Control__V1__ListTargetsRequest ListTargetsRequest;
typedef Berth__Control__V1__ListTargetsResponse ListTargetsResponse;
typedef Berth__Control__V1__LossToldRequest LossToldRequest;
typedef Berth__Control__V1__RenewUseRequest RenewUseRequest;
typedef Berth__Control__V1__RenewUseResponse RenewUseResponse;
typedef Berth__Control__V1__ResolveRouteRequest ResolveRouteRequest;

enum { SANDBOX_ID_MAX = 128, CONFIG_PAGE = 256, TARGETS_TOKEN_MAX = 260 };

/* ------------------------------------------------------------- ResolveRoute */

static enum berth_code answer_route(struct cp *cp, const struct cp_resolved *resolved,
                                    ProtobufCMessage **ret, struct berth_error *err)
{
    Berth__Control__V1__ResolveRouteResponse *route;
    enum berth_code code;

    if (resolved->outcome == CP_NOTHING_BOUND || !resolved->binding)
        return cp_no_sandbox(err);
    code = cp_show_route(cp, resolved->config, resolved->record, resolved->binding,
                         resolved->loss, &route, err);
    if (!code)
        *ret = &route->base;
    return code;
}

CP_HANDLER(resolve_route)
{
    struct cp *cp = service;
    const ResolveRouteRequest *req = (const ResolveRouteRequest *)message;
    struct cp_resolve_request request = {
        .session = req->session,
        .turn_token = req->turn_token,
        .failed_sandbox_id = req->failed_sandbox_id,
        .answer = answer_route,
        .quick = true,
    };
    enum berth_code code = cp_check_ref("session", req->session, true, err);

    (void)ret_resp;
    if (!code)
        code = berth_check_enum("mode", (int)req->mode, 2, true, err);
    if (!code)
        code = berth_check_text("turn_token", req->turn_token, 0, CP_TURN_TOKEN_MAX, err);
    if (!code)
        code = berth_check_text("failed_sandbox_id", req->failed_sandbox_id, 0, SANDBOX_ID_MAX,
                                err);
    if (!code)
        code = berth_check_id_or_empty("only_config", req->only_config, err);
    if (!code)
        code = cp_enter_session(cp, req->session, req->only_config, false, false, err);
    if (code)
        return code;
    request.want = req->mode == BERTH__CONTROL__V1__RESOLVE_MODE__RESOLVE_MODE_EXISTING
                       ? PLAN_EXISTING
                       : PLAN_ENSURE;
    request.must_exist = true; /* a call of the data plane never makes a session */
    return cp_resolve(cp, call, &request, err);
}

/* ----------------------------------------------------------------- RenewUse */

static enum berth_code check_use(const RenewUseRequest *req, struct berth_error *err)
{
    enum berth_code code = cp_check_ref("session", req->session, true, err);

    if (!code)
        code = berth_check_id("use_token", req->use_token, err);
    return code ? code
                : berth_check_text("sandbox_id", req->sandbox_id, req->end ? 0 : 1,
                                   SANDBOX_ID_MAX, err);
}

CP_HANDLER(renew_use)
{
    struct cp *cp = service;
    const RenewUseRequest *req = (const RenewUseRequest *)message;
    Berth__Binding__V1__RenewUseRequest ask = BERTH__BINDING__V1__RENEW_USE_REQUEST__INIT;
    Berth__Binding__V1__RenewUseResponse *resp = NULL;
    RenewUseResponse *out;
    enum berth_code code = check_use(req, err);

    if (!code)
        code = cp_enter(cp, err);
    if (code)
        return code;
    ask.session = req->session;
    ask.use_token = req->use_token;
    ask.sandbox_id = req->sandbox_id;
    ask.end = req->end;
    code =
        cp_binding_call(cp, call, "/berth.binding.v1.BindingService/RenewUse", &ask.base,
                        &berth__binding__v1__renew_use_response__descriptor, true, &resp, err);
    if (code)
        return code;
    if (!req->end)
        cp_keep_alive(cp, req->session, berth_timestamp_ms(resp->expire_time, 0));
    out = berth_message_new(&berth__control__v1__renew_use_response__descriptor);
    if (out) {
        out->expire_time = BERTH_STEAL(resp->expire_time);
        *ret_resp = &out->base;
    } else {
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    berth_message_free(resp);
    return code;
}

/* ----------------------------------------------------------------- LossTold */

CP_HANDLER(loss_told)
{
    struct cp *cp = service;
    const LossToldRequest *req = (const LossToldRequest *)message;
    enum berth_code code = cp_check_ref("session", req->session, true, err);

    (void)call;
    if (!code && req->number == 0)
        code = berth_fail_field(err, "number", "must be that of the loss");
    if (!code)
        code = cp_enter(cp, err);
    if (!code)
        code = cp_loss_told(cp, req->session, req->number, err);
    if (code)
        return code;
    *ret_resp = berth_message_new(&berth__control__v1__loss_told_response__descriptor);
    return *ret_resp ? BERTH_OK : berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

/* -------------------------------------------------------------- ListTargets */

/* A page token is "<tenant>/<config>" of the last one told; neither id holds a '/'. */
struct cursor {
    char tenant[129], config[129];
};

static enum berth_code read_cursor(const char *token, struct cursor *ret,
                                   struct berth_error *err)
{
    const char *slash = strchr(token, '/');

    *ret = (struct cursor){0};
    if (!*token)
        return BERTH_OK;
    if (!slash || slash - token >= (int)sizeof ret->tenant ||
        strlen(slash + 1) >= sizeof ret->config)
        return berth_fail_field(err, "page.page_token", "must be one that was answered");
    snprintf(ret->tenant, sizeof ret->tenant, "%.*s", (int)(slash - token), token);
    snprintf(ret->config, sizeof ret->config, "%s", slash + 1);
    if (berth_check_id("page.page_token", ret->tenant, err))
        return BERTH_INVALID_ARGUMENT;
    return berth_check_id("page.page_token", ret->config, err);
}

static ConfigTarget *show_target(const struct cp_config *config)
{
    ConfigTarget *out = berth_message_new(&berth__control__v1__config_target__descriptor);

    if (out && (out->config = cp_config_show(config)) &&
        (out->target = berth_message_copy(config->target)))
        return out;
    return berth_message_free(out);
}

static enum berth_code add_target(struct cp *cp, const char *tenant, const char *config_id,
                                  ListTargetsResponse *out, struct berth_error *err)
{
    struct cp_config_read read = {0};
    enum berth_code code = cp_config_read(cp, tenant, config_id, &read, err);

    if (!code && read.config &&
        cp_config_check_veto(read.config->settings, cp->no_private_targets, NULL) == BERTH_OK &&
        !berth_add_message(&out->n_targets, &out->targets, show_target(read.config)))
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    cp_config_read_deinit(&read);
    return code;
}

/* Configs of one tenant behind after, until the page is full. *ret_full: there may be more. */
static enum berth_code add_tenant(struct cp *cp, const char *tenant, const char *after,
                                  uint32_t size, ListTargetsResponse *out, bool *ret_full,
                                  struct berth_error *err)
{
    char last[129];
    enum berth_code code = BERTH_OK;

    snprintf(last, sizeof last, "%s", after);
    while (!code && !*ret_full) {
        BERTH_AUTO(berth_reply_free) struct berth_reply *ids = NULL;

        code = cp_config_ids(cp, tenant, last, CONFIG_PAGE, &ids, err);
        if (code || ids->n_items == 0)
            break;
        for (size_t i = 0; !code && i < ids->n_items && !*ret_full; i++) {
            char token[TARGETS_TOKEN_MAX];

            snprintf(last, sizeof last, "%s", ids->items[i]->string);
            code = add_target(cp, tenant, last, out, err);
            *ret_full = out->n_targets >= size;
            snprintf(token, sizeof token, "%s/%s", tenant, last);
            if (!code && *ret_full && !berth_set_string(&out->next_page_token, token))
                code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        }
    }
    return code;
}

static enum berth_code list_all(struct cp *cp, const struct cursor *from, uint32_t size,
                                ListTargetsResponse *out, struct berth_error *err)
{
    BERTH_AUTO(berth_reply_free) struct berth_reply *tenants = NULL;
    enum berth_code code = cp_tenant_ids(cp, &tenants, err);
    bool full = false;

    for (size_t i = 0; !code && !full && i < tenants->n_items; i++) {
        const char *tenant = tenants->items[i]->string;
        int order = strcmp(tenant, from->tenant);

        if (order < 0)
            continue;
        code = add_tenant(cp, tenant, order == 0 ? from->config : "", size, out, &full, err);
        if (code == BERTH_NOT_FOUND) /* named by the hint only */
            code = BERTH_OK;
    }
    return code;
}

static enum berth_code check_targets(const ListTargetsRequest *req, uint32_t *ret_size,
                                     struct cursor *ret_cursor, struct berth_error *err)
{
    enum berth_code code = berth_check_page_size(
        "page.page_size", req->page ? req->page->page_size : 0, ret_size, err);

    if (!code)
        code = read_cursor(req->page ? req->page->page_token : "", ret_cursor, err);
    if (!code)
        code = berth_check_id_or_empty("tenant_id", req->tenant_id, err);
    if (!code)
        code = berth_check_id_or_empty("config_id", req->config_id, err);
    if (!code && *req->config_id && !*req->tenant_id)
        code = berth_fail_field(err, "tenant_id", "must be given with config_id");
    return code;
}

CP_HANDLER(list_targets)
{
    struct cp *cp = service;
    const ListTargetsRequest *req = (const ListTargetsRequest *)message;
    ListTargetsResponse *out;
    struct cursor cursor;
    uint32_t size = 0;
    bool full = false;
    enum berth_code code = check_targets(req, &size, &cursor, err);

    (void)call;
    if (!code)
        code = cp_enter(cp, err);
    if (code)
        return code;
    out = berth_message_new(&berth__control__v1__list_targets_response__descriptor);
    if (!out)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (*req->config_id)
        code = add_target(cp, req->tenant_id, req->config_id, out, err);
    else if (*req->tenant_id)
        code = add_tenant(cp, req->tenant_id,
                          strcmp(cursor.tenant, req->tenant_id) == 0 ? cursor.config : "", size,
                          out, &full, err);
    else
        code = list_all(cp, &cursor, size, out, err);
    if (code)
        berth_message_free(out);
    else
        *ret_resp = &out->base;
    return code;
}

const struct berth_method cp_internal_methods[] = {
    {"/berth.control.v1.InternalService/ResolveRoute",
     &berth__control__v1__resolve_route_request__descriptor, .unary = resolve_route,
     .flags = BERTH_METHOD_PEER_ONLY},
    {"/berth.control.v1.InternalService/RenewUse",
     &berth__control__v1__renew_use_request__descriptor, .unary = renew_use,
     .flags = BERTH_METHOD_PEER_ONLY | BERTH_METHOD_PRIORITY},
    {"/berth.control.v1.InternalService/LossTold",
     &berth__control__v1__loss_told_request__descriptor, .unary = loss_told,
     .flags = BERTH_METHOD_PEER_ONLY | BERTH_METHOD_PRIORITY},
    {"/berth.control.v1.InternalService/ListTargets",
     &berth__control__v1__list_targets_request__descriptor, .unary = list_targets,
     .flags = BERTH_METHOD_PEER_ONLY},
};
const size_t cp_n_internal_methods = BERTH_COUNT(cp_internal_methods);
