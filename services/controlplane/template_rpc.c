/* template_rpc.c - TemplateService: forwarded to the adapter of the config, with its target. */
#include <stdio.h>

#include "common/fields/fields.h"
#include "common/messages/messages.h"
#include "services/controlplane/backend.h"
#include "services/controlplane/checks.h"
#include "services/controlplane/config_ops.h"
#include "services/controlplane/policy.h"
#include "services/controlplane/template_build.h"

typedef Berth__Control__V1__DeleteTemplateRequest DeleteTemplateRequest;
typedef Berth__Control__V1__GetTemplateRequest GetTemplateRequest;
typedef Berth__Control__V1__GetTemplateResponse GetTemplateResponse;
typedef Berth__Control__V1__ListTemplatesRequest ListTemplatesRequest;
typedef Berth__Control__V1__ListTemplatesResponse ListTemplatesResponse;

enum { PAGE_TOKEN_MAX = 4096, CALL_TIMEOUT_MS = 30000 };

#define TEMPLATES "/berth.backend.v1.TemplateService/"

static enum berth_code no_memory(struct berth_error *err)
{
    return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

/* The common beginning: the tenant, its config, then fn inside the backend's bulkhead. */
static enum berth_code defer(struct cp *cp, struct berth_call *call,
                             const ProtobufCMessage *message, const char *tenant,
                             const char *config_id, berth_unary_fn fn, struct berth_error *err)
{
    BERTH_AUTO(cp_config_unref) struct cp_config *config = NULL;
    enum berth_code code = cp_enter_tenant(cp, tenant, false, err);

    if (!code)
        code = cp_cache_config(cp->cache, tenant, config_id, &config, err);
    return code ? code
                : cp_defer(cp, call, message, config->target->backend, config->target->api_url,
                           fn, err);
}

/* ------------------------------------------------------------- ListTemplates */

CP_HANDLER(list_templates_job)
{
    struct cp *cp = service;
    const ListTemplatesRequest *req = (const ListTemplatesRequest *)message;
    BERTH_AUTO(cp_config_unref) struct cp_config *config = NULL;
    Berth__Backend__V1__ListTemplatesRequest ask =
        BERTH__BACKEND__V1__LIST_TEMPLATES_REQUEST__INIT;
    Berth__Backend__V1__ListTemplatesResponse *resp = NULL;
    ListTemplatesResponse *out;
    enum berth_code code =
        cp_cache_config(cp->cache, req->tenant_id, req->config_id, &config, err);

    if (code)
        return code;
    ask.target = config->target;
    ask.page = req->page;
    code = cp_backend_call(cp, config->target->backend, TEMPLATES "ListTemplates", &ask.base,
                           &berth__backend__v1__list_templates_response__descriptor,
                           CALL_TIMEOUT_MS, berth_call_traceparent(call), &resp, err);
    if (code)
        return code;
    out = berth_message_new(&berth__control__v1__list_templates_response__descriptor);
    if (!out || !berth_set_string(&out->next_page_token, resp->next_page_token)) {
        code = no_memory(err);
        berth_message_free(out);
    } else {
        out->n_templates = resp->n_templates;
        out->templates = BERTH_STEAL(resp->templates);
        resp->n_templates = 0;
        *ret_resp = &out->base;
    }
    berth_message_free(resp);
    return code;
}

CP_HANDLER(list_templates)
{
    const ListTemplatesRequest *req = (const ListTemplatesRequest *)message;
    uint32_t size;
    enum berth_code code = cp_check_config_ref(req->tenant_id, req->config_id, err);

    (void)ret_resp;
    if (!code)
        code = berth_check_page_size("page.page_size", req->page ? req->page->page_size : 0,
                                     &size, err);
    if (!code && req->page)
        code =
            berth_check_text("page.page_token", req->page->page_token, 0, PAGE_TOKEN_MAX, err);
    return code ? code
                : defer(service, call, message, req->tenant_id, req->config_id,
                        list_templates_job, err);
}

/* --------------------------------------------------------------- GetTemplate */

CP_HANDLER(get_template_job)
{
    struct cp *cp = service;
    const GetTemplateRequest *req = (const GetTemplateRequest *)message;
    BERTH_AUTO(cp_config_unref) struct cp_config *config = NULL;
    Berth__Backend__V1__GetTemplateRequest ask = BERTH__BACKEND__V1__GET_TEMPLATE_REQUEST__INIT;
    Berth__Backend__V1__GetTemplateResponse *resp = NULL;
    GetTemplateResponse *out;
    enum berth_code code =
        cp_cache_config(cp->cache, req->tenant_id, req->config_id, &config, err);

    if (code)
        return code;
    ask.target = config->target;
    ask.template_id = req->template_id;
    code = cp_backend_call(cp, config->target->backend, TEMPLATES "GetTemplate", &ask.base,
                           &berth__backend__v1__get_template_response__descriptor,
                           CALL_TIMEOUT_MS, berth_call_traceparent(call), &resp, err);
    if (code)
        return code;
    out = berth_message_new(&berth__control__v1__get_template_response__descriptor);
    if (out) {
        out->template_ = BERTH_STEAL(resp->template_);
        *ret_resp = &out->base;
    } else {
        code = no_memory(err);
    }
    berth_message_free(resp);
    return code;
}

static enum berth_code check_template(const char *tenant, const char *config_id,
                                      const char *template_id, struct berth_error *err)
{
    enum berth_code code = cp_check_config_ref(tenant, config_id, err);

    return code ? code : cp_check_image_id("template_id", template_id, false, err);
}

CP_HANDLER(get_template)
{
    const GetTemplateRequest *req = (const GetTemplateRequest *)message;
    enum berth_code code =
        check_template(req->tenant_id, req->config_id, req->template_id, err);

    (void)ret_resp;
    return code ? code
                : defer(service, call, message, req->tenant_id, req->config_id,
                        get_template_job, err);
}

/* ------------------------------------------------------------- DeleteTemplate */

CP_HANDLER(delete_template_job)
{
    struct cp *cp = service;
    const DeleteTemplateRequest *req = (const DeleteTemplateRequest *)message;
    BERTH_AUTO(cp_config_unref) struct cp_config *config = NULL;
    Berth__Backend__V1__DeleteTemplateRequest ask =
        BERTH__BACKEND__V1__DELETE_TEMPLATE_REQUEST__INIT;
    void *resp = NULL;
    enum berth_code code =
        cp_cache_config(cp->cache, req->tenant_id, req->config_id, &config, err);

    if (code)
        return code;
    ask.target = config->target;
    ask.template_id = req->template_id;
    code = cp_backend_call(cp, config->target->backend, TEMPLATES "DeleteTemplate", &ask.base,
                           &berth__backend__v1__delete_template_response__descriptor,
                           CALL_TIMEOUT_MS, berth_call_traceparent(call), &resp, err);
    berth_message_free(resp);
    if (code)
        return code;
    *ret_resp = berth_message_new(&berth__control__v1__delete_template_response__descriptor);
    return *ret_resp ? BERTH_OK : no_memory(err);
}

CP_HANDLER(delete_template)
{
    const DeleteTemplateRequest *req = (const DeleteTemplateRequest *)message;
    enum berth_code code =
        check_template(req->tenant_id, req->config_id, req->template_id, err);

    (void)ret_resp;
    return code ? code
                : defer(service, call, message, req->tenant_id, req->config_id,
                        delete_template_job, err);
}

const struct berth_method cp_template_methods[] = {
    {"/berth.control.v1.TemplateService/ListTemplates",
     &berth__control__v1__list_templates_request__descriptor, .unary = list_templates},
    {"/berth.control.v1.TemplateService/GetTemplate",
     &berth__control__v1__get_template_request__descriptor, .unary = get_template},
    {"/berth.control.v1.TemplateService/DeleteTemplate",
     &berth__control__v1__delete_template_request__descriptor, .unary = delete_template},
    {"/berth.control.v1.TemplateService/BuildTemplate",
     &berth__control__v1__build_template_request__descriptor, .open = cp_build_template},
};
const size_t cp_n_template_methods = BERTH_COUNT(cp_template_methods);
