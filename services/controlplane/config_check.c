#include "services/controlplane/config_check.h"

#include <stdio.h>

#include "common/fields/fields.h"
#include "common/http/url.h"
#include "common/messages/messages.h"
#include "services/controlplane/checks.h"
#include "services/controlplane/config_apply.h"
#include "services/controlplane/controlplane.h"

typedef Berth__Control__V1__SandboxConfig SandboxConfig;
typedef Berth__Control__V1__Credentials Credentials;

enum {
    PEM_MAX = 64 * 1024,
    KEY_MAX = 4096,
    OPTION_MAX = 1024,
    ETAG_MAX = 64,
    NO_PROXY_MAX = 1024,
};

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

/* Where installations get packages from: dialled out of a sandbox, judged all the same. */
static enum berth_code check_skill_urls(const SandboxConfig *config, bool allow_private,
                                        struct berth_error *err)
{
    const struct berth_url_rules rules = {.schemes = BERTH_URL_HTTP | BERTH_URL_HTTPS,
                                          .base = true,
                                          .allow_private = allow_private};
    const Berth__Control__V1__SkillPolicy *policy = config->skills;
    struct berth_url url;
    enum berth_code code = BERTH_OK;

    if (policy && *policy->python_index_url)
        code = berth_url_parse("config.skills.python_index_url", policy->python_index_url,
                               &rules, &url, err);
    if (!code && policy && *policy->npm_registry)
        code = berth_url_parse("config.skills.npm_registry", policy->npm_registry, &rules, &url,
                               err);
    if (!code && policy && *policy->proxy_url)
        code = berth_url_parse("config.skills.proxy_url", policy->proxy_url, &rules, &url, err);
    return code;
}

enum berth_code cp_config_check_endpoint(const SandboxConfig *config, struct berth_error *err)
{
    enum berth_code code = check_urls(config, config->allow_private_endpoints, err);

    return code ? code : check_skill_urls(config, config->allow_private_endpoints, err);
}

enum berth_code cp_config_check_veto(const SandboxConfig *config, bool never,
                                     struct berth_error *err)
{
    enum berth_code code;

    if (!never || !config->allow_private_endpoints)
        return BERTH_OK;
    code = berth_fail(err, BERTH_REASON_ENDPOINT_REFUSED,
                      "config.allow_private_endpoints: the operator of this deployment lets no "
                      "config reach private addresses (allow_private_targets=never)");
    BERTH_ERROR_SET(err, field, "config.allow_private_endpoints");
    return code;
}

/* Multi-line text: PEM. */
static enum berth_code check_pem(const char *field, const char *value, struct berth_error *err)
{
    size_t len = strlen(value);

    if (len > PEM_MAX)
        return berth_fail_field(err, field, "must be at most %d bytes", PEM_MAX);
    if (len > 0 && !cp_is_masked(value) && !strstr(value, "-----BEGIN "))
        return berth_fail_field(err, field, "must be PEM");
    return BERTH_OK;
}

static enum berth_code check_credentials(const Credentials *credentials, bool partial,
                                         struct berth_error *err)
{
    enum berth_code code = BERTH_OK;

    for (size_t i = 0; !code && credentials && i < CP_CREDENTIALS_MEMBERS; i++) {
        const char *value = *cp_credentials_member((Credentials *)credentials, i);
        char field[64];

        snprintf(field, sizeof field, "config.credentials.%s", cp_credentials_members[i]);
        if (i == 0) /* api_key; the others are PEM */
            code = berth_check_text(field, value, 0, KEY_MAX, err);
        else
            code = check_pem(field, value, err);
        if (!code && !partial && cp_is_masked(value))
            code = berth_fail_field(err, field,
                                    "must not be masked: there is no stored value to keep");
    }
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
    return code ? code : check_credentials(config->credentials, partial, err);
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
        BERTH_ERROR_SET(err, field, "config.sandbox_ca_pems");
    }
    return code;
}

/* A folder of the sandbox; "": none. */
static enum berth_code check_folder(const char *field, const char *value,
                                    struct berth_error *err)
{
    enum berth_code code = *value ? berth_check_path(field, value, err) : BERTH_OK;

    return code || strcmp(value, "/") != 0 ? code
                                           : berth_fail_field(err, field, "must be below /");
}

static enum berth_code check_skills(const SandboxConfig *config, bool partial,
                                    struct berth_error *err)
{
    static const char hosts[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,:*/_-[]";
    const Berth__Control__V1__SkillPolicy *policy = config->skills;
    size_t len = policy ? strlen(policy->no_proxy) : 0;
    enum berth_code code = BERTH_OK;

    if (!policy)
        return BERTH_OK;
    code = check_skill_urls(config, partial || config->allow_private_endpoints, err);
    if (!code && (len > NO_PROXY_MAX || strspn(policy->no_proxy, hosts) != len))
        code = berth_fail_field(err, "config.skills.no_proxy",
                                "must be at most %d characters of [A-Za-z0-9.,:*/_-] and []",
                                NO_PROXY_MAX);
    if (!code)
        code = check_folder("config.skills.wheel_dir", policy->wheel_dir, err);
    if (!code)
        code = check_folder("config.skills.npm_cache_dir", policy->npm_cache_dir, err);
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
    if (!code)
        code = check_skills(config, partial, err);
    return code ? code : check_ca_pems(config, err);
}
