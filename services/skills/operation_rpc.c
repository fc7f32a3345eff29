/* operation_rpc.c - SkillService: changes of an image asked for, read and given up. */
#include "services/skills/operation_rpc.h"

#include <stdio.h>

#include "berth/control/v1/control.pb-c.h"
#include "common/crypto/crypto.h"
#include "common/fields/fields.h"
#include "common/messages/messages.h"
#include "services/skills/image.h"
#include "services/skills/operation_impl.h"

typedef Berth__Control__V1__GetCapabilitiesRequest GetCapabilitiesRequest;
typedef Berth__Control__V1__GetCapabilitiesResponse GetCapabilitiesResponse;
typedef Berth__Skills__V1__CancelOperationRequest CancelOperationRequest;
typedef Berth__Skills__V1__FinishInstallationRequest FinishInstallationRequest;
typedef Berth__Skills__V1__GetOperationRequest GetOperationRequest;
typedef Berth__Skills__V1__RebuildImageRequest RebuildImageRequest;
typedef Berth__Skills__V1__RollbackImageRequest RollbackImageRequest;
typedef Berth__Skills__V1__UninstallSkillRequest UninstallSkillRequest;

enum { REQUEST_ID_MAX = 128, MESSAGE_MAX = 1024, TOKEN_SIZE = 64 };

#define TYPE(name) (&berth__skills__v1__##name##__descriptor)
#define HANDLER(name)                                                                          \
    static enum berth_code name(void *service, struct berth_call *call,                        \
                                const ProtobufCMessage *message, ProtobufCMessage **ret_resp,  \
                                struct berth_error *err)

/* ----------------------------------------------------------------------- common */

static enum berth_code not_found(const char *operation_id, struct berth_error *err)
{
    return berth_fail(err, BERTH_REASON_OPERATION_NOT_FOUND, "no operation '%s'", operation_id);
}

enum berth_code operation_check_reach(const struct berth_call *call,
                                      const struct operation *operation,
                                      struct berth_error *err)
{
    const struct berth_principal *who = berth_principal_of(call);
    char session_id[sizeof operation->session_id];

    /* Of an ended one, too, whose session is gone: its installer learns how it ended. */
    snprintf(session_id, sizeof session_id, "sk.%s", operation->row_id);
    if (who && ((who->session_id[0] && strcmp(who->session_id, session_id) != 0) ||
                (who->config_id[0] && strcmp(who->config_id, operation->config_id) != 0)))
        return not_found(operation->operation_id, err);
    return BERTH_OK;
}

static enum berth_code check_capability(struct skills *skills, const struct berth_call *call,
                                        const char *tenant, const char *config_id,
                                        struct berth_error *err)
{
    GetCapabilitiesRequest req = BERTH__CONTROL__V1__GET_CAPABILITIES_REQUEST__INIT;
    GetCapabilitiesResponse *resp = NULL;
    enum berth_code code;

    req.tenant_id = (char *)tenant;
    req.of_case = BERTH__CONTROL__V1__GET_CAPABILITIES_REQUEST__OF_CONFIG_ID;
    req.config_id = (char *)config_id;
    code = skills_control_call(
        skills, call, "/berth.control.v1.ConfigService/GetCapabilities", &req.base,
        &berth__control__v1__get_capabilities_response__descriptor, &resp, err);
    if (code)
        return code;
    if (!resp->capabilities || !resp->capabilities->snapshots ||
        !resp->capabilities->snapshots->supported) {
        code = berth_fail(err, BERTH_REASON_CAPABILITY_MISSING,
                          "the backend lacks the capability snapshots");
        BERTH_ERROR_SET(err, resource, "snapshots");
    }
    berth_message_free(resp);
    return code;
}

enum berth_code operation_check_config(struct skills *skills, const struct berth_call *call,
                                       const char *tenant, const char *config_id,
                                       struct ledger *ret, struct berth_error *err)
{
    enum berth_code code = ledger_read(skills->redis, tenant, config_id, ret, err);

    if (code)
        return code;
    code = ledger_check_tenant(skills->redis, tenant, &ret->tenant, err);
    if (!code && (!ret->config.exists || strcmp(ret->config.state, "active") != 0))
        code = berth_fail(err, BERTH_REASON_CONFIG_NOT_FOUND, "no config '%s'", config_id);
    if (!code && !ret->config.account[0])
        code = berth_fail(err, BERTH_REASON_FINGERPRINT_EMPTY, NULL);
    if (!code)
        code = check_capability(skills, call, tenant, config_id, err);
    if (code)
        ledger_deinit(ret);
    return code;
}

/* What every change of an image is asked with. */
static enum berth_code check_change(const char *tenant, const char *config_id,
                                    const char *request_id, struct berth_error *err)
{
    enum berth_code code = berth_check_id("tenant_id", tenant, err);

    if (!code)
        code = berth_check_id("config_id", config_id, err);
    if (!code && *request_id)
        code = berth_check_text("request_id", request_id, 1, REQUEST_ID_MAX, err);
    if (!code && strlen(request_id) > REQUEST_ID_MAX)
        code = berth_fail_field(err, "request_id", "must be at most %d bytes", REQUEST_ID_MAX);
    return code;
}

static struct operation new_one(const struct berth_call *call, int kind, const char *tenant,
                                const char *config_id, const char *request_id)
{
    struct operation out = {.kind = kind};
    char actor[BERTH_ACTOR_SIZE];

    snprintf(out.tenant_id, sizeof out.tenant_id, "%s", tenant);
    snprintf(out.config_id, sizeof out.config_id, "%s", config_id);
    snprintf(out.request_id, sizeof out.request_id, "%s", request_id);
    snprintf(out.created_by, sizeof out.created_by, "%s", berth_actor(call, actor));
    return out;
}

/* What all of them begin with. *ret_is_repeat: operation is the earlier one, and the answer;
 * else *ret_ledger is filled. */
static enum berth_code begin(struct skills *skills, const struct berth_call *call,
                             struct operation *operation, struct ledger *ret_ledger,
                             bool *ret_is_repeat, struct berth_error *err)
{
    enum berth_code code = skills_enter(skills, err);

    *ret_is_repeat = false;
    if (!code)
        code = operation_repeat(skills, operation, NULL, ret_is_repeat, err);
    if (!code && !*ret_is_repeat)
        code = operation_check_config(skills, call, operation->tenant_id, operation->config_id,
                                      ret_ledger, err);
    return code;
}

/* The answers have the operation as their only field. operation is deinit'ed. */
static enum berth_code answer(struct operation *operation,
                              const ProtobufCMessageDescriptor *type,
                              ProtobufCMessage **ret_resp, struct berth_error *err)
{
    /* They all have the same layout. */
    Berth__Skills__V1__GetOperationResponse *out = berth_message_new(type);

    if (out)
        out->operation = operation_show(operation);
    operation_deinit(operation);
    if (!out || !out->operation) {
        berth_message_free(out);
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    *ret_resp = &out->base;
    return BERTH_OK;
}

static enum berth_code end(struct skills *skills, struct operation *operation, bool is_repeat,
                           const ProtobufCMessageDescriptor *type, ProtobufCMessage **ret_resp,
                           struct berth_error *err)
{
    enum berth_code code =
        is_repeat ? BERTH_OK : operation_queue(skills, operation, NULL, &is_repeat, err);

    return code ? code : answer(operation, type, ret_resp, err);
}

/* -------------------------------------------------------------------- uninstall */

/* In the image, or on its way into it. */
static enum berth_code check_skill(struct skills *skills, const struct ledger *ledger,
                                   const char *name, struct berth_error *err)
{
    BERTH_AUTO(json_decref) json_t *wanted = NULL;
    struct operation *list = NULL;
    size_t n = 0;
    bool found;
    enum berth_code code = image_wanted(ledger, &wanted, err);

    if (!code)
        code = operation_list(skills, ledger->tenant_id, ledger->config_id, &list, &n, err);
    if (code)
        return code;
    found = image_find(wanted, name) != NULL;
    for (size_t i = 0; i < n; i++)
        found = found || (list[i].kind == KIND(INSTALL) && !operation_has_ended(&list[i]) &&
                          strcmp(list[i].skill_name, name) == 0);
    operation_list_free(list, n);
    return found ? BERTH_OK
                 : berth_fail(err, BERTH_REASON_SKILL_NOT_FOUND, "no skill '%s'", name);
}

HANDLER(uninstall_skill)
{
    struct skills *skills = service;
    const UninstallSkillRequest *req = (const UninstallSkillRequest *)message;
    struct operation operation =
        new_one(call, KIND(UNINSTALL), req->tenant_id, req->config_id, req->request_id);
    struct ledger ledger = {0};
    bool is_repeat = false;
    enum berth_code code = check_change(req->tenant_id, req->config_id, req->request_id, err);

    if (!code)
        code = berth_check_text("name", req->name, 1, SKILL_NAME_MAX, err);
    snprintf(operation.skill_name, sizeof operation.skill_name, "%s", req->name);
    if (!code)
        code = begin(skills, call, &operation, &ledger, &is_repeat, err);
    if (!code && !is_repeat)
        code = check_skill(skills, &ledger, req->name, err);
    ledger_deinit(&ledger);
    return code ? code
                : end(skills, &operation, is_repeat, TYPE(uninstall_skill_response), ret_resp,
                      err);
}

/* --------------------------------------------------------------------- rollback */

static enum berth_code check_generation(const struct ledger *ledger, uint64_t generation,
                                        struct berth_error *err)
{
    if (generation == ledger->config.image.generation)
        return berth_fail_field(err, "generation", "must not be that of the live image");
    for (size_t i = 0; i < ledger->n_rows; i++) {
        const struct berth_snapshot_row *row = &ledger->rows[i];

        if (row->generation != generation || strcmp(row->origin, "skills") != 0 ||
            (strcmp(row->state, "superseded") != 0 && strcmp(row->state, "active") != 0))
            continue;
        if (strcmp(row->account, ledger->config.account) != 0)
            return berth_fail(err, BERTH_REASON_IMAGE_OWNER_MISMATCH,
                              "the snapshot lives in another account than the config has now");
        return BERTH_OK;
    }
    return berth_fail(err, BERTH_REASON_SNAPSHOT_NOT_FOUND,
                      "generation %llu is not kept (any more)", (unsigned long long)generation);
}

HANDLER(rollback_image)
{
    struct skills *skills = service;
    const RollbackImageRequest *req = (const RollbackImageRequest *)message;
    struct operation operation =
        new_one(call, KIND(ROLLBACK), req->tenant_id, req->config_id, req->request_id);
    struct ledger ledger = {0};
    bool is_repeat = false;
    enum berth_code code = check_change(req->tenant_id, req->config_id, req->request_id, err);

    if (!code && req->generation == 0)
        code = berth_fail_field(err, "generation", "must be at least 1");
    operation.from_generation = req->generation;
    if (!code)
        code = begin(skills, call, &operation, &ledger, &is_repeat, err);
    if (!code && !is_repeat)
        code = check_generation(&ledger, req->generation, err);
    ledger_deinit(&ledger);
    return code ? code
                : end(skills, &operation, is_repeat, TYPE(rollback_image_response), ret_resp,
                      err);
}

/* ---------------------------------------------------------------------- rebuild */

HANDLER(rebuild_image)
{
    struct skills *skills = service;
    const RebuildImageRequest *req = (const RebuildImageRequest *)message;
    struct operation operation =
        new_one(call, KIND(REBUILD), req->tenant_id, req->config_id, req->request_id);
    struct ledger ledger = {0};
    bool is_repeat = false;
    enum berth_code code = check_change(req->tenant_id, req->config_id, req->request_id, err);

    if (!code)
        code = begin(skills, call, &operation, &ledger, &is_repeat, err);
    ledger_deinit(&ledger);
    return code ? code
                : end(skills, &operation, is_repeat, TYPE(rebuild_image_response), ret_resp,
                      err);
}

/* ------------------------------------------------------- one operation, by its id */

static enum berth_code find(struct skills *skills, const struct berth_call *call,
                            const char *tenant, const char *operation_id, struct operation *ret,
                            struct berth_error *err)
{
    enum berth_code code = berth_check_id("tenant_id", tenant, err);

    if (!code)
        code = berth_check_id("operation_id", operation_id, err);
    if (!code)
        code = skills_enter(skills, err);
    if (!code)
        code = operation_read(skills, tenant, operation_id, ret, err);
    if (code)
        return code;
    code = operation_check_reach(call, ret, err);
    if (code)
        operation_deinit(ret);
    return code;
}

HANDLER(get_operation)
{
    const GetOperationRequest *req = (const GetOperationRequest *)message;
    struct operation operation;
    enum berth_code code =
        find(service, call, req->tenant_id, req->operation_id, &operation, err);

    return code ? code : answer(&operation, TYPE(get_operation_response), ret_resp, err);
}

HANDLER(cancel_operation)
{
    const CancelOperationRequest *req = (const CancelOperationRequest *)message;
    struct operation operation;
    enum berth_code code =
        find(service, call, req->tenant_id, req->operation_id, &operation, err);

    if (code)
        return code;
    operation_deinit(&operation);
    code = operation_cancel(service, req->tenant_id, req->operation_id, &operation, err);
    return code ? code : answer(&operation, TYPE(cancel_operation_response), ret_resp, err);
}

HANDLER(finish_installation)
{
    const FinishInstallationRequest *req = (const FinishInstallationRequest *)message;
    struct operation operation;
    enum berth_code code = BERTH_OK;

    if (*req->message)
        code = berth_check_text("message", req->message, 0, MESSAGE_MAX, err);
    if (!code && strlen(req->message) > MESSAGE_MAX)
        code = berth_fail_field(err, "message", "must be at most %d bytes", MESSAGE_MAX);
    if (!code)
        code = find(service, call, req->tenant_id, req->operation_id, &operation, err);
    if (code)
        return code;
    operation_deinit(&operation);
    code = operation_finish(service, req->tenant_id, req->operation_id, req->ok, req->message,
                            &operation, err);
    return code ? code : answer(&operation, TYPE(finish_installation_response), ret_resp, err);
}

/* ------------------------------------------------------------------------ token */

enum berth_code operation_make_token(struct skills *skills, const struct berth_call *call,
                                     const struct operation *operation, int64_t expire_ms,
                                     char secret[64], struct berth_error *err)
{
    Berth__Control__V1__CreateTokenRequest req = BERTH__CONTROL__V1__CREATE_TOKEN_REQUEST__INIT;
    Berth__Control__V1__CreateTokenResponse *resp = NULL;
    Berth__Control__V1__Token token = BERTH__CONTROL__V1__TOKEN__INIT;
    Berth__Control__V1__Scope scope = BERTH__CONTROL__V1__SCOPE__SCOPE_INSTALL;
    Google__Protobuf__Timestamp expire = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    enum berth_code code;

    expire.seconds = expire_ms / 1000;
    expire.nanos = (int32_t)(expire_ms % 1000) * 1000000;
    token.tenant_id = (char *)operation->tenant_id;
    token.session_id = (char *)operation->session_id;
    token.scopes = &scope;
    token.n_scopes = 1;
    token.expire_time = &expire;
    req.token = &token;
    code = skills_control_call(
        skills, call, "/berth.control.v1.TenantService/CreateToken", &req.base,
        &berth__control__v1__create_token_response__descriptor, &resp, err);
    if (code)
        return code;
    if (strlen(resp->secret) >= TOKEN_SIZE)
        code = berth_fail(err, BERTH_REASON_INTERNAL_BUG, "a token of an unknown form");
    else
        snprintf(secret, TOKEN_SIZE, "%s", resp->secret);
    if (*resp->secret)
        berth_wipe(resp->secret, strlen(resp->secret));
    berth_message_free(resp);
    return code;
}

const struct berth_method skills_operation_methods[] = {
    {"/berth.skills.v1.SkillService/UninstallSkill", TYPE(uninstall_skill_request),
     .unary = uninstall_skill},
    {"/berth.skills.v1.SkillService/RollbackImage", TYPE(rollback_image_request),
     .unary = rollback_image},
    {"/berth.skills.v1.SkillService/RebuildImage", TYPE(rebuild_image_request),
     .unary = rebuild_image},
    {"/berth.skills.v1.SkillService/GetOperation", TYPE(get_operation_request),
     .unary = get_operation},
    {"/berth.skills.v1.SkillService/CancelOperation", TYPE(cancel_operation_request),
     .unary = cancel_operation},
    {"/berth.skills.v1.SkillService/FinishInstallation", TYPE(finish_installation_request),
     .unary = finish_installation},
};
const size_t skills_n_operation_methods = BERTH_COUNT(skills_operation_methods);
