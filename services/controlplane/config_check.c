#include "services/controlplane/config_check.h"

#include <stdio.h>

#include "common/fields/fields.h"
#include "common/http/url.h"
#include "common/messages/messages.h"
#include "services/controlplane/checks.h"
#include "services/controlplane/controlplane.h"

typedef Berth__Control__V1__SandboxConfig SandboxConfig;
typedef Berth__Control__V1__Credentials Credentials;

enum { PEM_MAX = 64 * 1024, KEY_MAX = 4096, OPTION_MAX = 1024, ETAG_MAX = 64 };

/* ------------------------------------------------------------------- checks */

/* In an update (partial) the private switch may be one that is stored already: then only what
 * no switch allows is refused here, and the merged config by cp_config_check_endpoint(). */
static enum berth_code check_urls(const SandboxConfig *config, bool allow_private,
                                  struct berth_error *err)
{
    struct berth_url_rules api = {
        .schemes = BERTH_URL_HTTP | BERTH_URL_HTTPS | BERTH_URL_UNIX,
        .base = true,
        .allow_private = allow_private,
    };
    struct berth_url_rules proxy = api;
    struct berth_url url;
    enum berth_code code = BERTH_OK;

    proxy.schemes = BERTH_URL_HTTP | BERTH_URL_HTTPS | BERTH_URL_SOCKS5;
    if (*config->api_url)
        code = berth_url_parse("config.api_url", config->api_url, &api, &url, err);
    if (!code && *config->domain)
        code = berth_domain_check("config.domain", config->domain, allow_private, err);
    if (!code && *config->proxy_url)
        code = berth_url_parse("config.proxy_url", config->proxy_url, &proxy, &url, err);
    return code;
}

enum berth_code cp_config_check_endpoint(const SandboxConfig *config, struct berth_error *err)
{
    return check_urls(config, config->allow_private_endpoints, err);
}

/* Multi-line text: PEM. */
static enum berth_code check_pem(const char *field, const char *value, struct berth_error *err)
{
    size_t len = strlen(value);

    if (len > PEM_MAX)
        return berth_fail_field(err, field, "must be at most %d bytes", PEM_MAX);
    if (len > 0 && value[0] != '*' && !strstr(value, "-----BEGIN "))
        return berth_fail_field(err, field, "must be PEM");
    return BERTH_OK;
}

static enum berth_code check_credentials(const Credentials *credentials,
                                         struct berth_error *err)
{
    enum berth_code code;

    if (!credentials)
        return BERTH_OK;
    code =
        berth_check_text("config.credentials.api_key", credentials->api_key, 0, KEY_MAX, err);
    if (!code)
        code = check_pem("config.credentials.ca_pem", credentials->ca_pem, err);
    if (!code)
        code =
            check_pem("config.credentials.client_cert_pem", credentials->client_cert_pem, err);
    if (!code)
        code = check_pem("config.credentials.client_key_pem", credentials->client_key_pem, err);
    return code;
}

static enum berth_code check_backend(const char *value, bool partial, struct berth_error *err)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
    size_t len = strlen(value);

    if (len == 0 && partial)
        return BERTH_OK;
    if (len == 0 || len > 32 || strspn(value, allowed) != len)
        return berth_fail_field(err, "config.backend",
                                "must be 1 to 32 characters of [a-z0-9-]");
    return BERTH_OK;
}

static enum berth_code check_endpoint(const SandboxConfig *config, bool partial,
                                      struct berth_error *err)
{
    enum berth_code code = check_backend(config->backend, partial, err);

    if (!code)
        code = check_urls(config, partial || config->allow_private_endpoints, err);
    if (!code && config->n_options > CP_OPTIONS_MAX)
        code = berth_fail_field(err, "config.options", "must have at most %d entries",
                                CP_OPTIONS_MAX);
    for (size_t i = 0; !code && i < config->n_options; i++) {
        code = berth_check_label_key("config.options", config->options[i]->key, err);
        if (!code)
            code = berth_check_text("config.options", config->options[i]->value, 0, OPTION_MAX,
                                    err);
    }
    return code ? code : check_credentials(config->credentials, err);
}

static enum berth_code check_ids(const SandboxConfig *config, bool partial,
                                 struct berth_error *err)
{
    enum berth_code code = berth_check_id("config.tenant_id", config->tenant_id, err);

    if (!code)
        code = partial ? berth_check_id("config.config_id", config->config_id, err)
                       : berth_check_id_or_empty("config.config_id", config->config_id, err);
    if (!code)
        code = berth_check_text("config.name", config->name, 0, CP_CONFIG_NAME_MAX, err);
    if (!code && !*config->config_id && !*config->name)
        code =
            berth_fail_field(err, "config.config_id", "must be given where there is no name");
    if (!code)
        code = berth_check_text("config.etag", config->etag, 0, ETAG_MAX, err);
    return code;
}

static enum berth_code check_duration(const char *field,
                                      const Google__Protobuf__Duration *value, int64_t max_ms,
                                      int64_t *ret_ms, struct berth_error *err)
{
    if (!value)
        return BERTH_OK;
    return berth_check_duration(field, value->seconds, value->nanos, max_ms, ret_ms, err);
}

static enum berth_code check_times(const SandboxConfig *config, struct berth_error *err)
{
    const Google__Protobuf__Timestamp *end = config->cordon_expire_time;
    int64_t verify_ms, timeout_ms = -1, max_ms = -1;
    enum berth_code code = check_duration("config.verify_interval", config->verify_interval,
                                          CP_DAY_MS, &verify_ms, err);

    if (!code)
        code = check_duration("config.command_timeout", config->command_timeout, 30 * CP_DAY_MS,
                              &timeout_ms, err);
    if (!code)
        code = check_duration("config.command_timeout_max", config->command_timeout_max,
                              30 * CP_DAY_MS, &max_ms, err);
    if (!code && timeout_ms >= 0 && max_ms > 0 && (timeout_ms == 0 || timeout_ms > max_ms))
        code = berth_fail_field(err, "config.command_timeout",
                                "must be at most command_timeout_max");
    if (!code && end &&
        (end->seconds < 0 || end->nanos < 0 || end->nanos > 999999999 ||
         end->seconds > 253402300799))
        code = berth_fail_field(err, "config.cordon_expire_time",
                                "must be a time up to year 9999");
    return code;
}

static enum berth_code check_ca_pems(const SandboxConfig *config, struct berth_error *err)
{
    enum berth_code code = BERTH_OK;

    if (config->n_sandbox_ca_pems > CP_CA_PEMS_MAX)
        return berth_fail_field(err, "config.sandbox_ca_pems", "must have at most %d entries",
                                CP_CA_PEMS_MAX);
    for (size_t i = 0; !code && i < config->n_sandbox_ca_pems; i++)
        code = check_pem("config.sandbox_ca_pems", config->sandbox_ca_pems[i], err);
    if (!code && config->n_sandbox_ca_pems > 0) {
        code = berth_fail(err, BERTH_REASON_CAPABILITY_MISSING,
                          "config.sandbox_ca_pems: no backend serves this yet");
        BERTH_ERROR_SET(err, resource, "sandbox_ca_pems");
    }
    return code;
}

enum berth_code cp_check_config(const SandboxConfig *config, bool partial,
                                struct berth_error *err)
{
    size_t env_bytes = 0;
    enum berth_code code = berth_check_present("config", config, err);

    if (!code)
        code = check_ids(config, partial, err);
    if (!code)
        code = check_endpoint(config, partial, err);
    if (!code)
        code = cp_check_image_id("config.template_id", config->template_id, true, err);
    if (!code)
        code = cp_check_network("config.network", config->network, err);
    if (!code)
        code = cp_check_timeouts("config.timeouts", config->timeouts, err);
    if (!code)
        code = cp_check_resources("config.resources", config->resources, err);
    if (!code)
        code = cp_check_volumes("config.volumes", config->volumes, config->n_volumes, err);
    if (!code && config->n_env > CP_ENV_MAX)
        code = berth_fail_field(err, "config.env", "must have at most %d entries", CP_ENV_MAX);
    for (size_t i = 0; !code && i < config->n_env; i++)
        code = cp_check_env("config.env", config->env[i]->key, config->env[i]->value,
                            &env_bytes, err);
    if (!code)
        code = berth_check_enum("config.rollout", (int)config->rollout, 2, true, err);
    if (!code)
        code = berth_check_enum("config.workspace_on_rebuild",
                                (int)config->workspace_on_rebuild, 2, true, err);
    if (!code)
        code = check_times(config, err);
    return code ? code : check_ca_pems(config, err);
}

/* -------------------------------------------------------------------- update */

enum field_kind {
    FIELD_COPY,        /* a client's */
    FIELD_POLICY,      /* a client's, asks something of the backend */
    FIELD_TARGET,      /* a client's, part of the target */
    FIELD_ENDPOINT,    /* a client's, credentials are bound to it */
    FIELD_IMMUTABLE,   /* may be repeated */
    FIELD_CREDENTIALS, /* sealed apart */
    FIELD_SERVER,      /* passed over */
};

static const struct {
    const char *name;
    enum field_kind kind;
} fields[] = {
    {"config_id", FIELD_IMMUTABLE},
    {"tenant_id", FIELD_IMMUTABLE},
    {"backend", FIELD_IMMUTABLE},
    {"name", FIELD_COPY},
    {"api_url", FIELD_ENDPOINT},
    {"domain", FIELD_ENDPOINT},
    {"proxy_url", FIELD_ENDPOINT},
    {"allow_private_endpoints", FIELD_ENDPOINT},
    {"options", FIELD_TARGET},
    {"credentials", FIELD_CREDENTIALS},
    {"credentials_set", FIELD_SERVER},
    {"fingerprint", FIELD_SERVER},
    {"template_id", FIELD_COPY},
    {"network", FIELD_POLICY},
    {"timeouts", FIELD_POLICY},
    {"resources", FIELD_POLICY},
    {"volumes", FIELD_POLICY},
    {"env", FIELD_COPY},
    {"rollout", FIELD_COPY},
    {"workspace_on_rebuild", FIELD_COPY},
    {"verify_interval", FIELD_COPY},
    {"image", FIELD_SERVER},
    {"etag", FIELD_SERVER},
    {"create_time", FIELD_SERVER},
    {"update_time", FIELD_SERVER},
    {"created_by", FIELD_SERVER},
    {"cordoned", FIELD_COPY},
    {"cordon_expire_time", FIELD_COPY},
    {"root_commands", FIELD_POLICY},
    {"command_timeout", FIELD_COPY},
    {"command_timeout_max", FIELD_COPY},
    {"sandbox_ca_pems", FIELD_COPY},
};

static const ProtobufCFieldDescriptor *descriptor_of(const char *name)
{
    return protobuf_c_message_descriptor_get_field_by_name(
        &berth__control__v1__sandbox_config__descriptor, name);
}

static size_t value_size(const ProtobufCFieldDescriptor *field)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_BOOL:
        return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_ENUM:
        return sizeof(int);
    default: /* strings, messages and lists: pointers */
        return sizeof(void *);
    }
}

static bool is_set(const SandboxConfig *config, const ProtobufCFieldDescriptor *field)
{
    static const char zeros[sizeof(void *)];
    const char *at = (const char *)config + field->offset;

    if (field->label == PROTOBUF_C_LABEL_REPEATED)
        return *(const size_t *)((const char *)config + field->quantifier_offset) > 0;
    if (field->type == PROTOBUF_C_TYPE_STRING)
        return **(char *const *)at != 0;
    return memcmp(at, zeros, value_size(field)) != 0;
}

/* Swap one field between two messages of the same type: each still owns what it holds. */
static void swap_field(SandboxConfig *a, SandboxConfig *b,
                       const ProtobufCFieldDescriptor *field)
{
    char buf[sizeof(void *)];
    char *x = (char *)a + field->offset, *y = (char *)b + field->offset;
    size_t size = value_size(field);

    memcpy(buf, x, size);
    memcpy(x, y, size);
    memcpy(y, buf, size);
    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        size_t *n = (size_t *)((char *)a + field->quantifier_offset);
        size_t *m = (size_t *)((char *)b + field->quantifier_offset);
        size_t keep = *n;

        *n = *m;
        *m = keep;
    }
}

static enum berth_code check_immutable(const SandboxConfig *into, const SandboxConfig *from,
                                       const ProtobufCFieldDescriptor *field,
                                       struct berth_error *err)
{
    const char *old = *(char *const *)((const char *)into + field->offset);
    const char *new = *(char *const *)((const char *)from + field->offset);
    char buf[64];

    if (!*new || strcmp(old, new) == 0)
        return BERTH_OK;
    snprintf(buf, sizeof buf, "config.%s", field->name);
    return berth_fail_field(err, buf, "cannot be changed");
}

static enum berth_code apply_field(SandboxConfig *into, SandboxConfig *copy, size_t at,
                                   unsigned *changes, struct berth_error *err)
{
    const ProtobufCFieldDescriptor *field = descriptor_of(fields[at].name);

    switch (fields[at].kind) {
    case FIELD_SERVER:
        return BERTH_OK;
    case FIELD_IMMUTABLE:
        return check_immutable(into, copy, field, err);
    case FIELD_CREDENTIALS:
        *changes |= CP_CHANGE_ANY | CP_CHANGE_TARGET | CP_CHANGE_CREDENTIALS;
        return BERTH_OK;
    case FIELD_ENDPOINT:
        *changes |= CP_CHANGE_ENDPOINT | CP_CHANGE_TARGET;
        break;
    case FIELD_TARGET:
        *changes |= CP_CHANGE_TARGET;
        break;
    case FIELD_POLICY:
        *changes |= CP_CHANGE_POLICY;
        break;
    case FIELD_COPY:
        break;
    }
    *changes |= CP_CHANGE_ANY;
    swap_field(into, copy, field);
    return BERTH_OK;
}

static enum berth_code apply_path(SandboxConfig *into, SandboxConfig *copy, const char *name,
                                  unsigned *changes, struct berth_error *err)
{
    for (size_t i = 0; i < BERTH_COUNT(fields); i++)
        if (strcmp(fields[i].name, name) == 0)
            return apply_field(into, copy, i, changes, err);
    return berth_fail_field(err, "update_mask", "'%.40s' is not a field of a config", name);
}

enum berth_code cp_config_check_mask(const Google__Protobuf__FieldMask *mask,
                                     struct berth_error *err)
{
    if (!mask || (mask->n_paths == 1 && strcmp(mask->paths[0], "*") == 0))
        return BERTH_OK;
    for (size_t i = 0; i < mask->n_paths; i++) {
        size_t k = 0;

        while (k < BERTH_COUNT(fields) && strcmp(fields[k].name, mask->paths[i]) != 0)
            k++;
        if (k == BERTH_COUNT(fields))
            return berth_fail_field(err, "update_mask", "'%.40s' is not a field of a config",
                                    mask->paths[i]);
    }
    return BERTH_OK;
}

static bool names_path(const Google__Protobuf__FieldMask *mask, const char *path, size_t before)
{
    for (size_t i = 0; i < before; i++)
        if (strcmp(mask->paths[i], path) == 0)
            return true;
    return false;
}

enum berth_code cp_config_apply(SandboxConfig *into, const SandboxConfig *from,
                                const Google__Protobuf__FieldMask *mask, unsigned *ret_changes,
                                struct berth_error *err)
{
    bool all_set = !mask || mask->n_paths == 0;
    bool all = mask && mask->n_paths == 1 && strcmp(mask->paths[0], "*") == 0;
    SandboxConfig *copy = berth_message_copy(from);
    enum berth_code code = BERTH_OK;
    unsigned changes = 0;

    if (!copy)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    for (size_t i = 0; !code && (all || all_set) && i < BERTH_COUNT(fields); i++)
        if (fields[i].kind == FIELD_IMMUTABLE || is_set(from, descriptor_of(fields[i].name)) ||
            (all && fields[i].kind != FIELD_CREDENTIALS))
            code = apply_field(into, copy, i, &changes, err);
    for (size_t i = 0; !code && !all && !all_set && i < mask->n_paths; i++)
        if (!names_path(mask, mask->paths[i], i)) /* a path named twice counts once */
            code = apply_path(into, copy, mask->paths[i], &changes, err);
    cp_credentials_free(copy->credentials);
    copy->credentials = NULL;
    berth_message_free(copy);
    if (!code)
        *ret_changes = changes;
    return code;
}

bool cp_config_defaults(SandboxConfig *config)
{
    if (!config->rollout)
        config->rollout = BERTH__CONTROL__V1__ROLLOUT__ROLLOUT_NEXT_TURN;
    if (!config->workspace_on_rebuild)
        config->workspace_on_rebuild =
            BERTH__CONTROL__V1__WORKSPACE_ON_REBUILD__WORKSPACE_ON_REBUILD_CARRY;
    return *config->template_id || berth_set_string(&config->template_id, CP_TEMPLATE_DEFAULT);
}

static bool keeps(const char *given)
{
    return strspn(given, "*") == strlen(given); /* "" and "***" */
}

bool cp_credentials_merge(Credentials *stored, const Credentials *given)
{
    if (!given)
        return true;
    return (keeps(given->api_key) || berth_set_string(&stored->api_key, given->api_key)) &&
           (keeps(given->ca_pem) || berth_set_string(&stored->ca_pem, given->ca_pem)) &&
           (keeps(given->client_cert_pem) ||
            berth_set_string(&stored->client_cert_pem, given->client_cert_pem)) &&
           (keeps(given->client_key_pem) ||
            berth_set_string(&stored->client_key_pem, given->client_key_pem));
}
