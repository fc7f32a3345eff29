/* config_findings.c - the rules stop at the first fault, as a call does. To find the next one,
 * what is wrong is taken out and they are asked again: no rule stands here twice. */
#include "services/controlplane/config_findings.h"

#include <stdio.h>

#include "common/messages/messages.h"
#include "services/controlplane/config_apply.h"
#include "services/controlplane/config_check.h"
#include "services/controlplane/policy.h"

typedef Berth__Control__V1__CheckConfigResponse CheckConfigResponse;
typedef Berth__Control__V1__ConfigFinding ConfigFinding;
typedef Berth__Control__V1__SandboxConfig SandboxConfig;

enum {
    ERROR = BERTH__CONTROL__V1__FINDING_SEVERITY__FINDING_SEVERITY_ERROR,
    WARNING = BERTH__CONTROL__V1__FINDING_SEVERITY__FINDING_SEVERITY_WARNING
};

static bool add(CheckConfigResponse *out, int severity, const char *field, const char *rule,
                const char *reason, const char *capability)
{
    ConfigFinding *finding;

    if (out->n_findings >= CP_FINDINGS_MAX)
        return true;
    finding = berth_message_new(&berth__control__v1__config_finding__descriptor);
    if (!finding)
        return false;
    finding->severity = (Berth__Control__V1__FindingSeverity)severity;
    if (!berth_set_string(&finding->field, field) || !berth_set_string(&finding->rule, rule) ||
        !berth_set_string(&finding->reason, reason) ||
        !berth_set_string(&finding->capability, capability)) {
        berth_message_free(finding);
        return false;
    }
    return berth_add_message(&out->n_findings, &out->findings, finding);
}

bool cp_find_error(CheckConfigResponse *out, const struct berth_error *why)
{
    bool missing = why->reason == BERTH_REASON_CAPABILITY_MISSING;

    if (out->n_findings == 0 && !berth_set_string(&out->message, why->text))
        return false;
    return add(out, ERROR, why->field, why->rule[0] ? why->rule : why->text,
               berth_reason_name(why->reason), missing ? why->resource : "");
}

/* ----------------------------------------------------------------- taking out */

static void clear_value(void *message, const ProtobufCFieldDescriptor *field)
{
    void *at = (char *)message + field->offset, *none = NULL, *value;

    if (field->label == PROTOBUF_C_LABEL_REPEATED)
        return;
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
        (void)berth_set_string(at, "");
        break;
    case PROTOBUF_C_TYPE_MESSAGE:
        memcpy(&value, at, sizeof value);
        berth_message_free(value);
        memcpy(at, &none, sizeof none);
        break;
    case PROTOBUF_C_TYPE_BOOL:
    case PROTOBUF_C_TYPE_ENUM:
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_INT32:
        memset(at, 0, sizeof(uint32_t));
        break;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_INT64:
        memset(at, 0, sizeof(uint64_t));
        break;
    default:
        break;
    }
}

/* One entry of a list, or with at SIZE_MAX all of them. */
static void clear_entries(void *message, const ProtobufCFieldDescriptor *field, size_t at)
{
    size_t *n = (size_t *)((char *)message + field->quantifier_offset);
    void **list;

    memcpy(&list, (char *)message + field->offset, sizeof list);
    for (size_t i = *n; i-- > 0;) {
        if (at != SIZE_MAX && i != at)
            continue;
        if (field->type == PROTOBUF_C_TYPE_MESSAGE)
            berth_message_free(list[i]);
        else if (list[i] != protobuf_c_empty_string)
            free(list[i]);
        memmove(list + i, list + i + 1, (*n - i - 1) * sizeof *list);
        (*n)--;
    }
    if (*n == 0) { /* an empty list is none */
        void *none = NULL;

        free(list);
        memcpy((char *)message + field->offset, &none, sizeof none);
    }
}

/* Take out what a path names: "config.network.allow_out[2]". False: it names nothing here. */
static bool take_out(SandboxConfig *config, const char *path)
{
    void *message = config;

    if (strncmp(path, "config.", 7) != 0)
        return false;
    path += 7;
    for (;;) {
        const ProtobufCMessageDescriptor *type = ((ProtobufCMessage *)message)->descriptor;
        const ProtobufCFieldDescriptor *field;
        size_t len = strcspn(path, ".[");
        char name[64];
        void *next;

        snprintf(name, sizeof name, "%.*s", (int)(len < sizeof name ? len : 0), path);
        field = protobuf_c_message_descriptor_get_field_by_name(type, name);
        if (!field)
            return false;
        if (field->label == PROTOBUF_C_LABEL_REPEATED) {
            clear_entries(message, field,
                          path[len] == '[' ? strtoul(path + len + 1, NULL, 10) : SIZE_MAX);
            return true;
        }
        memcpy(&next, (char *)message + field->offset, sizeof next);
        if (!path[len] || field->type != PROTOBUF_C_TYPE_MESSAGE || !next) {
            clear_value(message, field);
            return true;
        }
        message = next;
        path += len + 1;
    }
}

/* What must be there is put there. */
static bool put_in(SandboxConfig *config, const char *field)
{
    if (strcmp(field, "config.tenant_id") == 0)
        return berth_set_string(&config->tenant_id, "t");
    if (strcmp(field, "config.config_id") == 0)
        return berth_set_string(&config->config_id, "c");
    if (strcmp(field, "config.backend") == 0)
        return berth_set_string(&config->backend, "none");
    return true;
}

static bool says_where(const char *field)
{
    static const char *const names[] = {"config.tenant_id", "config.backend",
                                        "config.api_url",   "config.domain",
                                        "config.proxy_url", "config.allow_private_endpoints",
                                        "config.options",   "config.credentials"};

    for (size_t i = 0; i < BERTH_COUNT(names); i++)
        if (strncmp(field, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

bool cp_find_faults(SandboxConfig *config, CheckConfigResponse *out, bool *ret_reachable)
{
    char before[96] = "";
    struct berth_error why;

    *ret_reachable = true;
    while (out->n_findings < CP_FINDINGS_MAX && cp_check_config(config, false, &why)) {
        if (!cp_find_error(out, &why))
            return false;
        if (says_where(why.field))
            *ret_reachable = false;
        if (strcmp(before, why.field) == 0 || !take_out(config, why.field) ||
            !put_in(config, why.field)) {
            *ret_reachable = false; /* it is still wrong, and nothing behind it was looked at */
            break;
        }
        /* A list may have more than one wrong entry: the next has moved to its place. */
        snprintf(before, sizeof before, "%s", strchr(why.field, '[') ? "" : why.field);
    }
    return true;
}

/* --------------------------------------------------------------- capabilities */

/* Which fields ask for a capability. */
static const struct {
    const char *capability;
    const char *fields[2];
} askers[] = {
    {"root_commands", {"config.root_commands"}},
    {"network.egress_switch", {"config.network.egress"}},
    {"network.inbound_switch", {"config.network.inbound"}},
    {"network.domains", {"config.network.allow_out"}},
    {"network.cidr", {"config.network.allow_out", "config.network.deny_out"}},
    {"network.dns_policy", {"config.network.dns"}},
    {"network.dns_servers", {"config.network.dns_servers"}},
    {"network.l7", {"config.network.rules"}},
    {"pause", {"config.timeouts.on_idle"}},
    {"disk_limit", {"config.resources.disk_bytes"}},
    {"resources", {"config.resources"}},
    {"volumes", {"config.volumes"}},
};

static enum berth_code check_capable(const SandboxConfig *config,
                                     const Berth__Common__V1__Capabilities *caps,
                                     struct berth_error *err)
{
    if (config->root_commands && !caps->root_commands)
        return cp_missing("root_commands", "config.root_commands", err);
    return cp_policy_check_capable(caps, config->network, config->timeouts, config->resources,
                                   config->n_volumes, err);
}

bool cp_find_missing(SandboxConfig *config, const Berth__Common__V1__Capabilities *caps,
                     CheckConfigResponse *out)
{
    struct berth_error why;
    size_t at = 0;

    while (at < BERTH_COUNT(askers) && check_capable(config, caps, &why)) {
        at = 0;
        while (at < BERTH_COUNT(askers) && strcmp(askers[at].capability, why.resource) != 0)
            at++;
        if (at < BERTH_COUNT(askers))
            berth_error_set(why.field, sizeof why.field, askers[at].fields[0]);
        if (!cp_find_error(out, &why))
            return false;
        for (size_t i = 0; at < BERTH_COUNT(askers) && i < 2 && askers[at].fields[i]; i++)
            (void)take_out(config, askers[at].fields[i]);
    }
    return true;
}

/* ------------------------------------------------------------------- warnings */

/* Not of what is wrong anyway. */
static bool warn(CheckConfigResponse *out, const char *field, const char *rule)
{
    for (size_t i = 0; i < out->n_findings; i++)
        if (strcmp(out->findings[i]->field, field) == 0)
            return true;
    return add(out, WARNING, field, rule, "", "");
}

static bool warn_of_cordon(const SandboxConfig *config, int64_t now_ms,
                           CheckConfigResponse *out)
{
    if (!config->cordoned)
        return true;
    if (!config->cordon_expire_time)
        return warn(out, "config.cordoned", "nothing new is made until somebody lifts it");
    if (berth_timestamp_ms(config->cordon_expire_time, 0) <= now_ms)
        return warn(out, "config.cordon_expire_time", "is over: the cordon does nothing");
    return true;
}

static bool warn_of_backend(const SandboxConfig *config,
                            const Berth__Common__V1__Capabilities *caps,
                            CheckConfigResponse *out)
{
    if (!(caps->pause && caps->pause->supported) &&
        !(config->timeouts && config->timeouts->on_idle) &&
        !add(out, WARNING, "config.timeouts.on_idle",
             "the backend cannot pause: what is idle is killed", "", "pause"))
        return false;
    return (caps->snapshots && caps->snapshots->supported) ||
           add(out, WARNING, "",
               "the backend has no snapshots: skills cannot be installed, and no session can "
               "be snapshotted",
               "", "snapshots");
}

bool cp_find_warnings(const SandboxConfig *config, const Berth__Common__V1__Capabilities *caps,
                      int64_t now_ms, CheckConfigResponse *out)
{
    int64_t idle_ms = config->timeouts ? berth_duration_ms(config->timeouts->idle, -1) : -1;
    int64_t max_ms = berth_duration_ms(config->command_timeout_max, 0);

    if (strncmp(config->api_url, "http://", 7) == 0 && !warn(out, "config.api_url",
                                                             "what is sent there, credentials "
                                                             "included, is not encrypted"))
        return false;
    if (idle_ms == 0 &&
        !warn(out, "config.timeouts.idle", "a sandbox runs until its session is deleted"))
        return false;
    if (!config->command_timeout && max_ms > 0 && max_ms < CP_COMMAND_TIMEOUT_DEFAULT_MS &&
        !warn(out, "config.command_timeout_max",
              "a command that names no timeout gets this one, not the default of 10 minutes"))
        return false;
    return warn_of_cordon(config, now_ms, out) && (!caps || warn_of_backend(config, caps, out));
}
