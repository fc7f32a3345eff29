#include "common/auth/rules.h"

#include <string.h>

#define CONTROL "/berth.control.v1."
#define DATA "/berth.data.v1."
#define SKILLS "/berth.skills.v1."
#define REFLECTION "/ServerReflectionInfo"

#define ANY BERTH_SCOPE_NONE
#define READ BERTH_SCOPE_READ
#define USE BERTH_SCOPE_USE
#define INSTALL BERTH_SCOPE_INSTALL
#define ADMIN BERTH_SCOPE_ADMIN

enum {
    DEPTH_MAX = 16,

    PEER = BERTH_RULE_PEER,
    DEPLOYMENT = BERTH_RULE_DEPLOYMENT,
    NO_TENANT = BERTH_RULE_NO_TENANT,
    UNBOUND = BERTH_RULE_UNBOUND,
    CHECKED = BERTH_RULE_CHECKS_CONFIG,
    EVEN = BERTH_RULE_EVEN_DISABLED,
    OPERATION = BERTH_RULE_CHECKS_OPERATION,
};

/* In the order of strcmp(). A method without a line is refused to everybody. */
static const struct berth_rule rules[] = {
    {CONTROL "ConfigService/CheckConfig", ADMIN, 0},
    {CONTROL "ConfigService/CreateConfig", ADMIN, 0},
    {CONTROL "ConfigService/DeleteConfig", ADMIN, 0},
    {CONTROL "ConfigService/GetCapabilities", READ, CHECKED},
    {CONTROL "ConfigService/GetConfig", READ, 0},
    {CONTROL "ConfigService/ListConfigs", READ, UNBOUND},
    {CONTROL "ConfigService/UpdateConfig", ADMIN, 0},
    {CONTROL "ConfigService/VerifyConfig", ADMIN, 0},
    {CONTROL "EventService/WatchEvents", READ, 0},
    {CONTROL "InternalService/IntrospectToken", ADMIN, PEER},
    {CONTROL "InternalService/ListTargets", ADMIN, PEER},
    {CONTROL "InternalService/LossTold", ADMIN, PEER},
    {CONTROL "InternalService/RenewUse", ADMIN, PEER},
    {CONTROL "InternalService/ResolveRoute", ADMIN, PEER},
    {CONTROL "InternalService/SettleSession", ADMIN, PEER},
    {CONTROL "InternalService/WatchChanges", ADMIN, PEER},
    {CONTROL "SessionService/BeginTurn", USE, CHECKED},
    {CONTROL "SessionService/DeleteSession", USE, CHECKED | EVEN},
    {CONTROL "SessionService/EndTurn", USE, CHECKED | EVEN},
    {CONTROL "SessionService/GetSession", READ, CHECKED},
    {CONTROL "SessionService/ListSessions", READ, 0},
    {CONTROL "SessionService/PauseSession", USE, CHECKED | EVEN},
    {CONTROL "SessionService/RenewTurn", USE, CHECKED},
    {CONTROL "SessionService/ResolveSession", USE, CHECKED},
    {CONTROL "SessionService/ResumeSession", USE, CHECKED},
    {CONTROL "SessionService/UpdateSession", USE, CHECKED},
    {CONTROL "TemplateService/BuildTemplate", ADMIN, 0},
    {CONTROL "TemplateService/DeleteTemplate", ADMIN, 0},
    {CONTROL "TemplateService/GetTemplate", READ, 0},
    {CONTROL "TemplateService/ListTemplates", READ, 0},
    {CONTROL "TenantService/CreateTenant", ADMIN, DEPLOYMENT},
    {CONTROL "TenantService/CreateToken", ADMIN, UNBOUND},
    {CONTROL "TenantService/GetTenant", READ, UNBOUND},
    {CONTROL "TenantService/ListTenants", READ, DEPLOYMENT | NO_TENANT},
    {CONTROL "TenantService/ListTokens", ADMIN, UNBOUND},
    {CONTROL "TenantService/RevokeToken", ADMIN, UNBOUND},
    {CONTROL "TenantService/UpdateTenant", ADMIN, UNBOUND},
    {DATA "FileService/ListDir", READ, CHECKED},
    {DATA "FileService/MakeDir", USE, CHECKED},
    {DATA "FileService/Move", USE, CHECKED},
    {DATA "FileService/ReadFile", READ, CHECKED},
    {DATA "FileService/Remove", USE, CHECKED},
    {DATA "FileService/Stat", READ, CHECKED},
    {DATA "FileService/WatchDir", READ, 0},
    {DATA "FileService/WriteFile", USE, CHECKED},
    {DATA "InternalService/MoveWorkspace", ADMIN, PEER},
    {DATA "PortService/Forward", USE, 0},
    {DATA "PortService/GetPortEndpoint", USE, 0},
    {DATA "ProcessService/Attach", READ, CHECKED},
    {DATA "ProcessService/Exec", USE, CHECKED},
    {DATA "ProcessService/ListProcesses", READ, CHECKED},
    {DATA "ProcessService/Run", USE, CHECKED},
    {DATA "ProcessService/SendInput", USE, CHECKED},
    {DATA "ProcessService/Signal", USE, CHECKED},
    {DATA "ProcessService/Terminal", USE, 0},
    {DATA "WorkspaceService/CollectOutputs", READ, 0},
    {DATA "WorkspaceService/ExportWorkspace", READ, CHECKED},
    {DATA "WorkspaceService/ImportWorkspace", USE, CHECKED},
    {DATA "WorkspaceService/StageInputs", USE, 0},
    {SKILLS "SkillService/CancelOperation", INSTALL, OPERATION},
    {SKILLS "SkillService/FinishInstallation", INSTALL, OPERATION},
    {SKILLS "SkillService/GetOperation", READ, OPERATION},
    {SKILLS "SkillService/GetSkill", READ, CHECKED},
    {SKILLS "SkillService/InstallSkill", INSTALL, 0},
    {SKILLS "SkillService/ListSkills", READ, CHECKED},
    {SKILLS "SkillService/PruneSnapshots", INSTALL, 0},
    {SKILLS "SkillService/RebuildImage", INSTALL, 0},
    {SKILLS "SkillService/RollbackImage", INSTALL, 0},
    {SKILLS "SkillService/UninstallSkill", INSTALL, 0},
    {SKILLS "SkillService/WatchOperation", READ, OPERATION},
    {SKILLS "SnapshotService/CreateSnapshot", USE, CHECKED},
    {SKILLS "SnapshotService/DeleteSnapshot", USE, CHECKED},
    {SKILLS "SnapshotService/GetSnapshot", READ, CHECKED},
    {SKILLS "SnapshotService/ListSnapshots", READ, 0},
    {"/grpc.reflection.v1.ServerReflection" REFLECTION, ANY, NO_TENANT | EVEN},
    {"/grpc.reflection.v1alpha.ServerReflection" REFLECTION, ANY, NO_TENANT | EVEN},
};

const struct berth_rule *berth_rule_find(const char *path)
{
    size_t low = 0, high = BERTH_COUNT(rules);

    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = strcmp(rules[middle].path, path);

        if (order == 0)
            return &rules[middle];
        if (order > 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

enum berth_code berth_token_refuse(struct berth_error *err)
{
    return berth_fail(err, BERTH_REASON_TOKEN_INVALID, NULL);
}

static const char *scope_name(enum berth_scope scope)
{
    static const char *const names[] = {"none", "read", "use", "install", "admin"};

    return names[scope];
}

static bool is_bound(const struct berth_principal *principal)
{
    return principal->session_id[0] || principal->config_id[0];
}

static enum berth_code refuse_bound(const struct berth_principal *principal,
                                    struct berth_error *err)
{
    return berth_fail(err, BERTH_REASON_SCOPE_MISSING, "the token is good for one %s only",
                      principal->session_id[0] ? "session" : "config");
}

/* A tenant's token, where only the deployment's is good enough. */
static enum berth_code refuse_tenants(struct berth_error *err)
{
    return berth_fail(err, BERTH_REASON_SCOPE_MISSING,
                      "the token lacks the scope 'admin' of the deployment");
}

enum berth_code berth_rule_admit(const struct berth_rule *rule,
                                 const struct berth_principal *principal, int64_t now_ms,
                                 struct berth_error *err)
{
    if (principal->expire_ms && now_ms >= principal->expire_ms)
        return berth_token_refuse(err);
    if (principal->scope < rule->scope)
        return berth_fail(err, BERTH_REASON_SCOPE_MISSING, "the token lacks the scope '%s'",
                          scope_name(rule->scope));
    if ((rule->flags & DEPLOYMENT) && !principal->deployment)
        return refuse_tenants(err);
    if ((rule->flags & UNBOUND) && is_bound(principal))
        return refuse_bound(principal, err);
    if (principal->tenant_disabled && !(rule->flags & EVEN))
        return berth_fail(err, BERTH_REASON_TENANT_DISABLED, "tenant '%s' is disabled",
                          principal->tenant_id);
    return BERTH_OK;
}

/* ------------------------------------------------------------ what a request names */

/* The last one of each kind; NULL: none. */
struct named {
    const char *tenant, *session, *config, *alias, *snapshot, *operation;
};

struct walk {
    const struct berth_principal *principal;
    struct named named;
    struct berth_error *err;
};

static enum berth_code foreign(struct berth_error *err, enum berth_reason reason,
                               const char *what, const char *id)
{
    return what ? berth_fail(err, reason, "no %s '%s'", what, id)
                : berth_fail(err, reason, NULL);
}

static enum berth_code take(struct walk *walk, const char *name, const char *value)
{
    const struct berth_principal *who = walk->principal;

    if (strcmp(name, "tenant_id") == 0) {
        if (!who->deployment && strcmp(value, who->tenant_id) != 0)
            return foreign(walk->err, BERTH_REASON_TENANT_NOT_FOUND, "tenant", value);
        walk->named.tenant = value;
    } else if (strcmp(name, "session_id") == 0) {
        if (who->session_id[0] && strcmp(value, who->session_id) != 0)
            return foreign(walk->err, BERTH_REASON_SESSION_NOT_FOUND, NULL, NULL);
        walk->named.session = value;
    } else if (strcmp(name, "config_id") == 0) {
        if (who->config_id[0] && strcmp(value, who->config_id) != 0)
            return foreign(walk->err, BERTH_REASON_CONFIG_NOT_FOUND, "config", value);
        walk->named.config = value;
    } else if (strcmp(name, "alias") == 0) {
        walk->named.alias = value;
    } else if (strcmp(name, "snapshot_id") == 0) {
        walk->named.snapshot = value;
    } else if (strcmp(name, "operation_id") == 0) {
        walk->named.operation = value;
    }
    return BERTH_OK;
}

/* What is the deployment's own is asked for by a field of this name. */
static enum berth_code take_switch(struct walk *walk, const ProtobufCMessage *message,
                                   const ProtobufCFieldDescriptor *field)
{
    protobuf_c_boolean value;

    memcpy(&value, (const char *)message + field->offset, sizeof value);
    if (!value || walk->principal->deployment || strcmp(field->name, "deployment") != 0)
        return BERTH_OK;
    return refuse_tenants(walk->err);
}

static bool is_map_entry(const ProtobufCMessageDescriptor *type)
{
    return type->n_fields == 2 && strcmp(type->fields[0].name, "key") == 0;
}

static enum berth_code walk_message(struct walk *walk, const ProtobufCMessage *message,
                                    unsigned depth);

/* at: where the value stands (a pointer, for strings and messages). */
static enum berth_code walk_value(struct walk *walk, const ProtobufCFieldDescriptor *field,
                                  const void *at, unsigned depth)
{
    const void *value;

    memcpy(&value, at, sizeof value);
    if (!value)
        return BERTH_OK;
    if (field->type == PROTOBUF_C_TYPE_STRING)
        return *(const char *)value ? take(walk, field->name, value) : BERTH_OK;
    return walk_message(walk, value, depth + 1);
}

static enum berth_code walk_field(struct walk *walk, const ProtobufCMessage *message,
                                  const ProtobufCFieldDescriptor *field, unsigned depth)
{
    const char *at = (const char *)message + field->offset;
    const char *list;
    uint32_t chosen;
    size_t n;
    enum berth_code code = BERTH_OK;

    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        memcpy(&n, (const char *)message + field->quantifier_offset, sizeof n);
        memcpy(&list, at, sizeof list);
        for (size_t i = 0; !code && i < n; i++)
            code = walk_value(walk, field, list + i * sizeof(void *), depth);
        return code;
    }
    if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
        memcpy(&chosen, (const char *)message + field->quantifier_offset, sizeof chosen);
        if (chosen != field->id)
            return BERTH_OK;
    }
    return walk_value(walk, field, at, depth);
}

static enum berth_code walk_message(struct walk *walk, const ProtobufCMessage *message,
                                    unsigned depth)
{
    const ProtobufCMessageDescriptor *type = message->descriptor;
    enum berth_code code = BERTH_OK;

    if (depth > DEPTH_MAX)
        return berth_fail(walk->err, BERTH_REASON_FIELD_INVALID,
                          "the request is nested too deep");
    for (unsigned i = 0; !code && i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &type->fields[i];

        if (field->type == PROTOBUF_C_TYPE_STRING ||
            (field->type == PROTOBUF_C_TYPE_MESSAGE && !is_map_entry(field->descriptor)))
            code = walk_field(walk, message, field, depth);
        else if (field->type == PROTOBUF_C_TYPE_BOOL &&
                 field->label != PROTOBUF_C_LABEL_REPEATED)
            code = take_switch(walk, message, field);
    }
    return code;
}

/* ------------------------------------------------------------------------- judge */

/* What is named is the token's, as far as the names say. Is it enough? */
static enum berth_code judge_session_bound(const struct named *named,
                                           const struct berth_principal *principal,
                                           struct berth_error *err)
{
    if (named->session)
        return BERTH_OK;
    if (named->alias)
        return foreign(err, BERTH_REASON_SESSION_NOT_FOUND, NULL, NULL);
    if (named->snapshot)
        return foreign(err, BERTH_REASON_SNAPSHOT_NOT_FOUND, "snapshot", named->snapshot);
    if (named->config)
        return foreign(err, BERTH_REASON_CONFIG_NOT_FOUND, "config", named->config);
    return refuse_bound(principal, err);
}

static enum berth_code judge_config_bound(const struct berth_rule *rule,
                                          const struct named *named,
                                          const struct berth_principal *principal,
                                          struct berth_error *err)
{
    bool about_config = named->session || named->alias || named->snapshot;

    if (!about_config && !named->config)
        return refuse_bound(principal, err);
    if (!about_config || (rule->flags & CHECKED))
        return BERTH_OK;
    return named->snapshot && !named->session
               ? foreign(err, BERTH_REASON_SNAPSHOT_NOT_FOUND, "snapshot", named->snapshot)
               : foreign(err, BERTH_REASON_SESSION_NOT_FOUND, NULL, NULL);
}

enum berth_code berth_rule_judge(const struct berth_rule *rule,
                                 const struct berth_principal *principal,
                                 const ProtobufCMessage *request, struct berth_error *err)
{
    struct walk walk = {.principal = principal, .err = err};
    enum berth_code code;

    if (rule->flags & NO_TENANT)
        return BERTH_OK;
    code = walk_message(&walk, request, 0);
    if (code)
        return code;
    if (!principal->deployment && !walk.named.tenant)
        return berth_fail_field(err, "tenant_id", "must name a tenant");
    if (walk.named.operation && (rule->flags & OPERATION))
        return BERTH_OK;
    if (principal->session_id[0])
        code = judge_session_bound(&walk.named, principal, err);
    if (!code && principal->config_id[0])
        code = judge_config_bound(rule, &walk.named, principal, err);
    return code;
}
