/* config_rpc.c - ConfigService: make, show and list configs, and what their backends can do. */
#include <stdio.h>

#include "common/fields/fields.h"
#include "common/ids/ids.h"
#include "common/messages/messages.h"
#include "common/time/time.h"
#include "services/controlplane/backend.h"
#include "services/controlplane/binding.h"
#include "services/controlplane/checks.h"
#include "services/controlplane/config_apply.h"
#include "services/controlplane/config_check.h"
#include "services/controlplane/config_ops.h"
#include "services/controlplane/config_store.h"
#include "services/controlplane/names.h"
#include "services/controlplane/policy.h"

typedef Berth__Control__V1__CreateConfigRequest CreateConfigRequest;
typedef Berth__Control__V1__CreateConfigResponse CreateConfigResponse;
typedef Berth__Control__V1__GetCapabilitiesRequest GetCapabilitiesRequest;
typedef Berth__Control__V1__GetCapabilitiesResponse GetCapabilitiesResponse;
typedef Berth__Control__V1__GetConfigRequest GetConfigRequest;
typedef Berth__Control__V1__GetConfigResponse GetConfigResponse;
typedef Berth__Control__V1__ListConfigsRequest ListConfigsRequest;
typedef Berth__Control__V1__ListConfigsResponse ListConfigsResponse;
typedef Berth__Control__V1__SandboxConfig SandboxConfig;

static enum berth_code no_memory(struct berth_error *err)
{
    return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

/* ------------------------------------------------------------- CreateConfig */

/* What a client may say, without its secrets, with an id, and nothing left open. */
static enum berth_code clean(const SandboxConfig *from, SandboxConfig **ret,
                             struct berth_error *err)
{
    SandboxConfig *out = berth_message_new(&berth__control__v1__sandbox_config__descriptor);
    char id[CP_CONFIG_ID_SIZE];
    unsigned changes;
    enum berth_code code;

    if (!out)
        return no_memory(err);
    if (!cp_config_slug(id, from->name) && !*from->config_id) {
        berth_message_free(out);
        return berth_fail_field(err, "config.name",
                                "must hold a letter or digit of ASCII, or "
                                "config_id must be given");
    }
    if (!berth_set_string(&out->config_id, *from->config_id ? from->config_id : id) ||
        !berth_set_string(&out->tenant_id, from->tenant_id) ||
        !berth_set_string(&out->backend, from->backend)) {
        berth_message_free(out);
        return no_memory(err);
    }
    code = cp_config_apply(out, from, NULL, &changes, err);
    if (!code && !cp_config_defaults(out))
        code = no_memory(err);
    if (code)
        berth_message_free(out);
    else
        *ret = out;
    return code;
}

static enum berth_code make(struct cp *cp, struct berth_call *call,
                            const CreateConfigRequest *req, struct cp_config *made,
                            struct berth_error *err)
{
    SandboxConfig *settings = made->settings;
    char actor[BERTH_ACTOR_SIZE];
    enum berth_code code;

    snprintf(made->tenant_id, sizeof made->tenant_id, "%s", settings->tenant_id);
    snprintf(made->config_id, sizeof made->config_id, "%s", settings->config_id);
    code = cp_config_connect(cp, made, req->config->credentials, berth_call_traceparent(call),
                             err);
    if (!code)
        code = cp_config_capable(made, err);
    if (!code && (!cp_config_stamp(settings, true) ||
                  !berth_set_string(&settings->created_by, berth_actor(call, actor))))
        code = no_memory(err);
    return code;
}

static CreateConfigResponse *answer_of(const struct cp_config *config)
{
    CreateConfigResponse *out =
        berth_message_new(&berth__control__v1__create_config_response__descriptor);

    if (!out || !(out->config = cp_config_show(config)))
        return berth_message_free(out);
    return out;
}

/* What tells two requests apart: all that a client may say, its secrets included. */
static enum berth_code begin_request(struct cp *cp, const CreateConfigRequest *req,
                                     const SandboxConfig *settings, struct cp_request *ret,
                                     CreateConfigResponse **ret_answer, struct berth_error *err)
{
    SandboxConfig said = *settings; /* borrows */
    ProtobufCMessage *answer = NULL;
    enum berth_code code;

    said.credentials = req->config->credentials;
    said.etag = said.created_by = (char *)protobuf_c_empty_string; /* not the client's words */
    said.create_time = said.update_time = NULL;
    code = cp_request_begin(cp, settings->tenant_id, "CreateConfig", req->request_id,
                            &said.base, &berth__control__v1__create_config_response__descriptor,
                            ret, &answer, err);
    if (!code)
        *ret_answer = (CreateConfigResponse *)answer;
    return code;
}

/* *ret: the answer; NULL: somebody else was faster, look again. */
static enum berth_code try_create(struct cp *cp, struct berth_call *call,
                                  const CreateConfigRequest *req, struct cp_config *made,
                                  CreateConfigResponse **ret, struct berth_error *err)
{
    struct cp_config_read read = {0};
    struct cp_request request;
    CreateConfigResponse *answer = NULL;
    bool applied = false;
    enum berth_code code =
        cp_config_read(cp, made->settings->tenant_id, made->settings->config_id, &read, err);

    /* In this order: both are written at once, so that what the request made is not somebody
     * else's. */
    if (!code)
        code = begin_request(cp, req, made->settings, &request, ret, err);
    if (code || *ret) {
        cp_config_read_deinit(&read);
        return code;
    }
    if (read.config)
        code = berth_fail(err, BERTH_REASON_CONFIG_EXISTS, "config '%s' exists",
                          read.config->config_id);
    if (!code && !made->info)
        code = make(cp, call, req, made, err);
    if (!code && !(answer = answer_of(made)))
        code = no_memory(err);
    if (!code)
        code = cp_config_store_new(cp, &read, made, &request, &answer->base, &applied, err);
    cp_config_read_deinit(&read);
    if (code || !applied)
        berth_message_free(answer);
    else
        *ret = answer;
    return code;
}

/* Inside the backend's bulkhead: it asks the adapter. */
CP_HANDLER(create_config_job)
{
    const CreateConfigRequest *req = (const CreateConfigRequest *)message;
    BERTH_AUTO(cp_config_unref) struct cp_config *made = calloc(1, sizeof *made);
    CreateConfigResponse *out = NULL;
    enum berth_code code;

    if (!made)
        return no_memory(err);
    made->refs = 1;
    code = clean(req->config, &made->settings, err);
    for (int i = 0; i < CP_CAS_TRIES && !code && !out; i++)
        code = try_create(service, call, req, made, &out, err);
    if (!code && !out)
        code = berth_fail(err, BERTH_REASON_CONFLICT, NULL);
    if (!code)
        *ret_resp = &out->base;
    return code;
}

CP_HANDLER(create_config)
{
    struct cp *cp = service;
    const CreateConfigRequest *req = (const CreateConfigRequest *)message;
    struct berth_channel *adapter = NULL;
    enum berth_code code = cp_check_config(req->config, false, err);

    (void)ret_resp;
    if (!code)
        code = cp_config_check_veto(req->config, cp->no_private_targets, err);
    if (!code)
        code = cp_check_request_id(req->request_id, err);
    if (!code)
        code = cp_adapter_find(cp, req->config->backend, &adapter, err);
    if (!code)
        code = cp_enter_tenant(cp, req->config->tenant_id, false, err);
    if (code)
        return code;
    return cp_defer(cp, call, message, req->config->backend, req->config->api_url,
                    create_config_job, err);
}

/* ------------------------------------------------------ GetConfig, ListConfigs */

CP_HANDLER(get_config)
{
    struct cp *cp = service;
    const GetConfigRequest *req = (const GetConfigRequest *)message;
    struct cp_config_read read = {0};
    GetConfigResponse *out;
    enum berth_code code = cp_check_config_ref(req->tenant_id, req->config_id, err);

    (void)call;
    if (!code)
        code = cp_enter_tenant(cp, req->tenant_id, false, err);
    if (!code)
        code = cp_config_must_read(cp, req->tenant_id, req->config_id, &read, err);
    if (code)
        return code;
    out = berth_message_new(&berth__control__v1__get_config_response__descriptor);
    if (!out || !(out->config = cp_config_show(read.config))) {
        berth_message_free(out);
        code = no_memory(err);
    } else {
        *ret_resp = &out->base;
    }
    cp_config_read_deinit(&read);
    return code;
}

static enum berth_code add_shown(struct cp *cp, const char *tenant, const char *config_id,
                                 ListConfigsResponse *out, struct berth_error *err)
{
    struct cp_config_read read = {0};
    enum berth_code code = cp_config_read(cp, tenant, config_id, &read, err);

    if (!code && read.config &&
        !berth_add_message(&out->n_configs, &out->configs, cp_config_show(read.config)))
        code = no_memory(err);
    cp_config_read_deinit(&read);
    return code;
}

CP_HANDLER(list_configs)
{
    struct cp *cp = service;
    const ListConfigsRequest *req = (const ListConfigsRequest *)message;
    BERTH_AUTO(berth_reply_free) struct berth_reply *ids = NULL;
    ListConfigsResponse *out;
    const char *after;
    uint32_t size = 0;
    enum berth_code code = berth_check_id("tenant_id", req->tenant_id, err);

    (void)call;
    if (!code)
        code = cp_check_page(req->page, &size, &after, err);
    if (!code)
        code = cp_enter_tenant(cp, req->tenant_id, false, err);
    if (!code)
        code = cp_config_ids(cp, req->tenant_id, after, size, &ids, err);
    if (code)
        return code;
    out = berth_message_new(&berth__control__v1__list_configs_response__descriptor);
    if (!out)
        return no_memory(err);
    for (size_t i = 0; !code && i < ids->n_items; i++)
        code = add_shown(cp, req->tenant_id, ids->items[i]->string, out, err);
    if (!code && ids->n_items == size &&
        !berth_set_string(&out->next_page_token, ids->items[size - 1]->string))
        code = no_memory(err);
    if (code)
        berth_message_free(out);
    else
        *ret_resp = &out->base;
    return code;
}

/* ---------------------------------------------------------- GetCapabilities */

static bool add_features(const Berth__Common__V1__Capabilities *caps,
                         GetCapabilitiesResponse *out)
{
    const struct {
        bool there;
        const char *name;
    } features[] = {
        {caps->commands, "commands"},
        {caps->files, "files"},
        {caps->terminal, "terminal"},
        {caps->watch, "watch"},
        {caps->pause && caps->pause->supported, "pause"},
        {caps->snapshots && caps->snapshots->supported, "snapshots"},
        {caps->templates_build, "templates"},
        {caps->volumes, "volumes"},
    };

    for (size_t i = 0; i < BERTH_COUNT(features); i++)
        if (features[i].there &&
            !berth_add_string(&out->n_features, &out->features, features[i].name))
            return false;
    return true;
}

static enum berth_code config_of(struct cp *cp, const GetCapabilitiesRequest *req,
                                 const char *only_config, struct cp_config **ret,
                                 struct berth_error *err)
{
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    Berth__Binding__V1__GetBindingResponse *got = NULL;
    enum berth_code code;

    if (req->of_case == BERTH__CONTROL__V1__GET_CAPABILITIES_REQUEST__OF_CONFIG_ID)
        return cp_cache_config(cp->cache, req->tenant_id, req->config_id, ret, err);
    ref.tenant_id = req->tenant_id;
    ref.session_id = req->session_id;
    code = cp_binding_get(cp, &ref, &got, err);
    if (!code)
        code = cp_session_config(cp, got->session, ret, err);
    if (!code && (!*ret || (*only_config && strcmp((*ret)->config_id, only_config) != 0)))
        code = berth_fail(err, BERTH_REASON_SESSION_NOT_FOUND, NULL);
    berth_message_free(got);
    return code;
}

static enum berth_code check_capabilities(const GetCapabilitiesRequest *req,
                                          struct berth_error *err)
{
    enum berth_code code = berth_check_id("tenant_id", req->tenant_id, err);

    if (code)
        return code;
    switch (req->of_case) {
    case BERTH__CONTROL__V1__GET_CAPABILITIES_REQUEST__OF_CONFIG_ID:
        return berth_check_id("config_id", req->config_id, err);
    case BERTH__CONTROL__V1__GET_CAPABILITIES_REQUEST__OF_SESSION_ID:
        return berth_check_id("session_id", req->session_id, err);
    default:
        return berth_fail_field(err, "config_id", "must be given, or a session_id");
    }
}

CP_HANDLER(get_capabilities)
{
    struct cp *cp = service;
    const GetCapabilitiesRequest *req = (const GetCapabilitiesRequest *)message;
    BERTH_AUTO(cp_config_unref) struct cp_config *config = NULL;
    GetCapabilitiesResponse *out;
    enum berth_code code = check_capabilities(req, err);

    if (!code)
        code = cp_enter_tenant(cp, req->tenant_id, false, err);
    if (!code)
        code = config_of(cp, req, berth_config_bound(call), &config, err);
    if (code)
        return code;
    out = berth_message_new(&berth__control__v1__get_capabilities_response__descriptor);
    if (!out || !berth_set_string(&out->backend, config->target->backend) ||
        !(out->capabilities = berth_message_copy(config->info->capabilities)) ||
        !add_features(config->info->capabilities, out)) {
        berth_message_free(out);
        return no_memory(err);
    }
    *ret_resp = &out->base;
    return BERTH_OK;
}

const struct berth_method cp_config_methods[] = {
    {"/berth.control.v1.ConfigService/CreateConfig",
     &berth__control__v1__create_config_request__descriptor, .unary = create_config},
    {"/berth.control.v1.ConfigService/GetConfig",
     &berth__control__v1__get_config_request__descriptor, .unary = get_config},
    {"/berth.control.v1.ConfigService/ListConfigs",
     &berth__control__v1__list_configs_request__descriptor, .unary = list_configs},
    {"/berth.control.v1.ConfigService/GetCapabilities",
     &berth__control__v1__get_capabilities_request__descriptor, .unary = get_capabilities},
};
const size_t cp_n_config_methods = BERTH_COUNT(cp_config_methods);
