/* config_check_rpc.c - ConfigService: CheckConfig. */
#include "common/fields/fields.h"
#include "common/messages/messages.h"
#include "common/time/time.h"
#include "services/controlplane/backend.h"
#include "services/controlplane/config_apply.h"
#include "services/controlplane/config_check.h"
#include "services/controlplane/config_findings.h"
#include "services/controlplane/config_ops.h"

typedef Berth__Backend__V1__GetTemplateRequest GetTemplateRequest;
typedef Berth__Backend__V1__GetTemplateResponse GetTemplateResponse;
typedef Berth__Control__V1__CheckConfigRequest CheckConfigRequest;
typedef Berth__Control__V1__CheckConfigResponse CheckConfigResponse;
typedef Berth__Control__V1__Credentials Credentials;
typedef Berth__Control__V1__SandboxConfig SandboxConfig;

static enum berth_code no_memory(struct berth_error *err)
{
    return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

static enum berth_code check_template(struct cp *cp, struct berth_call *call,
                                      const struct cp_config *config, struct berth_error *err)
{
    GetTemplateRequest req = BERTH__BACKEND__V1__GET_TEMPLATE_REQUEST__INIT;
    GetTemplateResponse *resp = NULL;
    Berth__Common__V1__TemplateState state;
    enum berth_code code;

    req.target = config->target;
    req.template_id = config->settings->template_id;
    code = cp_backend_call(cp, config->target->backend,
                           "/berth.backend.v1.TemplateService/GetTemplate", &req.base,
                           &berth__backend__v1__get_template_response__descriptor,
                           CP_CALL_TIMEOUT_MS, berth_call_traceparent(call), &resp, err);
    if (code)
        return code == BERTH_UNIMPLEMENTED ? BERTH_OK : code; /* no catalogue: no word on it */
    state = resp->template_ ? resp->template_->state : 0;
    berth_message_free(resp);
    if (state != BERTH__COMMON__V1__TEMPLATE_STATE__TEMPLATE_STATE_READY)
        return berth_fail(err, BERTH_REASON_TEMPLATE_INVALID, "template '%s' is not ready",
                          config->settings->template_id);
    return BERTH_OK;
}

/* Whether the backend answers, who it says it is, what it can do, and whether it has the
 * template. config is what was left of the one that was asked about. */
static enum berth_code ask_backend(struct cp *cp, struct berth_call *call,
                                   struct cp_config *config, const Credentials *given,
                                   const struct cp_config *stored, CheckConfigResponse *out)
{
    Credentials *opened = NULL;
    struct berth_error why = {0};
    enum berth_code code = BERTH_OK;

    if (stored)
        code = cp_config_open(cp->keyring, stored->target, &opened, &why);
    if (!code)
        code = cp_config_connect(cp, config, stored ? opened : given,
                                 berth_call_traceparent(call), &why);
    cp_credentials_free(opened);
    if (!code && stored && strcmp(config->doc.account, stored->doc.account) != 0)
        code = berth_fail(&why, BERTH_REASON_ACCOUNT_CHANGED,
                          "another account answers than when the config was saved");
    if (code)
        return cp_find_error(out, &why) ? BERTH_OK : BERTH_RESOURCE_EXHAUSTED;
    if (check_template(cp, call, config, &why)) {
        if (!why.field[0])
            berth_error_set(why.field, sizeof why.field, "config.template_id");
        if (!cp_find_error(out, &why))
            return BERTH_RESOURCE_EXHAUSTED;
    }
    return BERTH_OK;
}

static bool find_veto(struct cp *cp, const SandboxConfig *config, CheckConfigResponse *out,
                      bool *reachable)
{
    struct berth_error why;

    if (cp_config_check_veto(config, cp->no_private_targets, &why) == BERTH_OK)
        return true;
    *reachable = false;
    return cp_find_error(out, &why);
}

static bool find_backend(struct cp *cp, const SandboxConfig *config, CheckConfigResponse *out,
                         bool *reachable)
{
    struct berth_channel *adapter = NULL;
    struct berth_error why;

    if (!*reachable || cp_adapter_find(cp, config->backend, &adapter, &why) == BERTH_OK)
        return true;
    *reachable = false;
    return cp_find_error(out, &why);
}

/* Only what is right at first sight is asked of the backend, so that its answer means this
 * config. */
static bool look(struct cp *cp, struct berth_call *call, const SandboxConfig *asked,
                 const struct cp_config *stored, CheckConfigResponse *out)
{
    BERTH_AUTO(cp_config_unref) struct cp_config *config = calloc(1, sizeof *config);
    const Berth__Common__V1__Capabilities *caps;
    SandboxConfig *rest;
    bool reachable, ok;

    if (!config)
        return false;
    config->refs = 1;
    config->settings = rest = berth_message_copy(asked);
    ok = rest && cp_find_faults(rest, out, &reachable) && cp_config_defaults(rest) &&
         find_veto(cp, rest, out, &reachable) && find_backend(cp, rest, out, &reachable) &&
         (!reachable || !ask_backend(cp, call, config, asked->credentials, stored, out));
    caps = config->info ? config->info->capabilities : NULL;
    ok = ok && (!caps || cp_find_missing(rest, caps, out)) &&
         cp_find_warnings(asked, caps, berth_now_ms(), out);
    if (rest) {
        cp_credentials_free(rest->credentials);
        rest->credentials = NULL;
    }
    return ok;
}

static enum berth_code answer(struct cp *cp, struct berth_call *call,
                              const CheckConfigRequest *req, const struct cp_config *stored,
                              ProtobufCMessage **ret_resp, struct berth_error *err)
{
    CheckConfigResponse *out =
        berth_message_new(&berth__control__v1__check_config_response__descriptor);
    struct berth_error why;
    bool found = out != NULL;

    if (found && !stored && strcmp(req->config->tenant_id, req->tenant_id) != 0 &&
        berth_fail_field(&why, "config.tenant_id", "must be the request's tenant_id"))
        found = cp_find_error(out, &why);
    if (!found || !look(cp, call, stored ? stored->settings : req->config, stored, out)) {
        berth_message_free(out);
        return no_memory(err);
    }
    out->ok = out->n_findings == 0 ||
              out->findings[0]->severity !=
                  BERTH__CONTROL__V1__FINDING_SEVERITY__FINDING_SEVERITY_ERROR;
    *ret_resp = &out->base;
    return BERTH_OK;
}

/* A fault of the config is an answer; a fault of ours is not. */
CP_HANDLER(check_config_job)
{
    struct cp *cp = service;
    const CheckConfigRequest *req = (const CheckConfigRequest *)message;
    struct cp_config_read read = {0};
    enum berth_code code = BERTH_OK;

    if (req->target_case == BERTH__CONTROL__V1__CHECK_CONFIG_REQUEST__TARGET_CONFIG_ID)
        code = cp_config_must_read(cp, req->tenant_id, req->config_id, &read, err);
    if (!code)
        code = answer(cp, call, req, read.config, ret_resp, err);
    cp_config_read_deinit(&read);
    return code;
}

static enum berth_code check_check(const CheckConfigRequest *req, struct berth_error *err)
{
    enum berth_code code = berth_check_id("tenant_id", req->tenant_id, err);

    if (code)
        return code;
    switch (req->target_case) {
    case BERTH__CONTROL__V1__CHECK_CONFIG_REQUEST__TARGET_CONFIG_ID:
        return berth_check_id("config_id", req->config_id, err);
    case BERTH__CONTROL__V1__CHECK_CONFIG_REQUEST__TARGET_CONFIG:
        return berth_check_present("config", req->config, err);
    default:
        return berth_fail_field(err, "config_id", "must be given, or a config");
    }
}

CP_HANDLER(check_config)
{
    struct cp *cp = service;
    const CheckConfigRequest *req = (const CheckConfigRequest *)message;
    BERTH_AUTO(cp_config_unref) struct cp_config *config = NULL;
    enum berth_code code = check_check(req, err);

    (void)ret_resp;
    if (!code)
        code = cp_enter_tenant(cp, req->tenant_id, false, err);
    if (code)
        return code;
    if (req->target_case == BERTH__CONTROL__V1__CHECK_CONFIG_REQUEST__TARGET_CONFIG)
        return cp_defer(cp, call, message, req->config->backend, req->config->api_url,
                        check_config_job, err);
    code = cp_cache_config(cp->cache, req->tenant_id, req->config_id, &config, err);
    return code ? code
                : cp_defer(cp, call, message, config->target->backend, config->target->api_url,
                           check_config_job, err);
}

const struct berth_method cp_config_check_methods[] = {
    {"/berth.control.v1.ConfigService/CheckConfig",
     &berth__control__v1__check_config_request__descriptor, .unary = check_config},
};
const size_t cp_n_config_check_methods = BERTH_COUNT(cp_config_check_methods);
