#include "services/controlplane/checks.h"

#include <stdbool.h>
#include <stdio.h>

#include "common/fields/fields.h"
#include "common/http/address.h"
#include "google/protobuf/duration.pb-c.h"
#include "services/controlplane/net.h"

enum { FIELD_SIZE = 96 };

static const char *path(char buf[FIELD_SIZE], const char *prefix, const char *name)
{
    if (snprintf(buf, FIELD_SIZE, "%s.%s", prefix, name) >= FIELD_SIZE)
        buf[FIELD_SIZE - 1] = 0; /* cut: no path of ours is that long */
    return buf;
}

static const char *path_at(char buf[FIELD_SIZE], const char *prefix, const char *name,
                           size_t at)
{
    if (snprintf(buf, FIELD_SIZE, "%s.%s[%zu]", prefix, name, at) >= FIELD_SIZE)
        buf[FIELD_SIZE - 1] = 0;
    return buf;
}

static enum berth_code check_count(const char *field, size_t n, size_t max,
                                   struct berth_error *err)
{
    if (n > max)
        return berth_fail_field(err, field, "must have at most %zu entries", max);
    return BERTH_OK;
}

enum berth_code cp_check_ref(const char *field, const Berth__Common__V1__SessionRef *ref,
                             bool reserved_ok, struct berth_error *err)
{
    char buf[FIELD_SIZE];
    enum berth_code code = berth_check_present(field, ref, err);

    if (!code)
        code = berth_check_id(path(buf, field, "tenant_id"), ref->tenant_id, err);
    if (!code)
        code = berth_check_id(path(buf, field, "session_id"), ref->session_id, err);
    if (!code && !reserved_ok && strncmp(ref->session_id, "sk.", 3) == 0) {
        code = berth_fail(err, BERTH_REASON_RESERVED_KEY,
                          "%s: sessions \"sk.\" belong to skill installations", buf);
        BERTH_ERROR_SET(err, field, buf);
    }
    return code;
}

/* Ids with slashes are names in a registry, never paths: no part is empty, "." or "..". */
static bool is_plain_path(const char *value)
{
    size_t len;

    for (;; value += len + 1) {
        len = strcspn(value, "/");
        if (len == 0 || (len <= 2 && strspn(value, ".") >= len))
            return false;
        if (!value[len])
            return true;
    }
}

enum berth_code cp_check_image_id(const char *field, const char *value, bool empty_ok,
                                  struct berth_error *err)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:/-";
    size_t len = value ? strlen(value) : 0;

    if (len == 0 && empty_ok)
        return BERTH_OK;
    if (len == 0 || len > CP_IMAGE_ID_MAX || strspn(value, allowed) != len)
        return berth_fail_field(err, field, "must be 1 to %d characters of [A-Za-z0-9._:/-]",
                                CP_IMAGE_ID_MAX);
    if (!is_plain_path(value))
        return berth_fail_field(err, field,
                                "must have no empty part, '.' or '..' between slashes");
    return BERTH_OK;
}

enum berth_code cp_check_request_id(const char *value, struct berth_error *err)
{
    if (strlen(value) > CP_REQUEST_ID_MAX)
        return berth_fail_field(err, "request_id", "must be at most %d bytes",
                                CP_REQUEST_ID_MAX);
    return berth_check_text("request_id", value, 0, CP_REQUEST_ID_MAX, err);
}

enum berth_code cp_check_image(const char *prefix, const Berth__Common__V1__Image *image,
                               struct berth_error *err)
{
    char buf[FIELD_SIZE];

    if (!image)
        return BERTH_OK;
    if (image->generation)
        return berth_fail_field(err, path(buf, prefix, "generation"), "must not be set here");
    switch (image->source_case) {
    case BERTH__COMMON__V1__IMAGE__SOURCE_TEMPLATE_ID:
        return cp_check_image_id(path(buf, prefix, "template_id"), image->template_id, false,
                                 err);
    case BERTH__COMMON__V1__IMAGE__SOURCE_SNAPSHOT_ID:
        return cp_check_image_id(path(buf, prefix, "snapshot_id"), image->snapshot_id, false,
                                 err);
    default:
        return berth_fail_field(err, prefix, "must name a template or a snapshot");
    }
}

enum berth_code cp_check_labels(const char *field,
                                Berth__Common__V1__SessionSpec__LabelsEntry *const *labels,
                                size_t n_labels, struct berth_error *err)
{
    enum berth_code code = check_count(field, n_labels, CP_LABELS_MAX, err);

    for (size_t i = 0; !code && i < n_labels; i++) {
        code = berth_check_label_key(field, labels[i]->key, err);
        if (!code && strncmp(labels[i]->key, "berth.", 6) == 0) {
            code = berth_fail(err, BERTH_REASON_RESERVED_KEY,
                              "%s: keys \"berth.\" are Berth's own", field);
            BERTH_ERROR_SET(err, field, field);
        }
        if (!code)
            code = berth_check_text(field, labels[i]->value, 0, CP_LABEL_VALUE_MAX, err);
    }
    return code;
}

enum berth_code cp_check_env(const char *field, const char *name, const char *value,
                             size_t *total_bytes, struct berth_error *err)
{
    size_t len = value ? strlen(value) : 0;
    enum berth_code code = berth_check_env_name(field, name, err);

    if (code)
        return code;
    if (strncmp(name, "BERTH_", 6) == 0) {
        code = berth_fail(err, BERTH_REASON_RESERVED_KEY,
                          "%s: names \"BERTH_\" are Berth's own", field);
        BERTH_ERROR_SET(err, field, field);
        return code;
    }
    *total_bytes += strlen(name) + len + 2;
    if (len > CP_ENV_VALUE_MAX)
        return berth_fail_field(err, field, "a value must be at most %d bytes",
                                CP_ENV_VALUE_MAX);
    if (*total_bytes > CP_ENV_BYTES_MAX)
        return berth_fail_field(err, field, "must be at most %d bytes in all",
                                CP_ENV_BYTES_MAX);
    return BERTH_OK;
}

/* ------------------------------------------------------------------ network */

static enum berth_code check_list(const char *prefix, const char *name, char *const *entries,
                                  size_t n, size_t max, bool domains_ok, bool *ret_has_domain,
                                  struct berth_error *err)
{
    char buf[FIELD_SIZE];
    struct cp_net net;
    enum berth_code code = check_count(path(buf, prefix, name), n, max, err);

    for (size_t i = 0; !code && i < n; i++) {
        if (cp_net_parse(entries[i], &net))
            continue;
        if (domains_ok && cp_domain_valid(entries[i]))
            *ret_has_domain = true;
        else
            code =
                berth_fail_field(err, path_at(buf, prefix, name, i),
                                 domains_ok ? "must be an address, a CIDR network without host "
                                              "bits, a domain or *.domain"
                                            : "must be an address or a CIDR network without "
                                              "host bits");
    }
    return code;
}

static bool denies_all(const Berth__Common__V1__NetworkPolicy *network)
{
    for (size_t i = 0; i < network->n_deny_out; i++)
        if (strcmp(network->deny_out[i], "0.0.0.0/0") == 0)
            return true;
    return false;
}

static bool allows(const Berth__Common__V1__NetworkPolicy *network,
                   const struct cp_net *address)
{
    struct cp_net net;

    for (size_t i = 0; i < network->n_allow_out; i++)
        if (cp_net_parse(network->allow_out[i], &net) && cp_net_covers(&net, address))
            return true;
    return false;
}

static bool is_public(const struct cp_net *net)
{
    struct berth_address address = {.family = net->family};

    memcpy(address.bytes, net->address, sizeof address.bytes);
    return berth_address_judge(&address).klass == BERTH_ADDRESS_PUBLIC;
}

static enum berth_code check_dns_servers(const char *prefix,
                                         const Berth__Common__V1__NetworkPolicy *network,
                                         struct berth_error *err)
{
    char buf[FIELD_SIZE];
    enum berth_code code = check_count(path(buf, prefix, "dns_servers"), network->n_dns_servers,
                                       CP_DNS_SERVERS_MAX, err);

    for (size_t i = 0; !code && i < network->n_dns_servers; i++) {
        struct cp_net net;

        path_at(buf, prefix, "dns_servers", i);
        if (!cp_net_parse(network->dns_servers[i], &net) ||
            strchr(network->dns_servers[i], '/'))
            code = berth_fail_field(err, buf, "must be an address");
        else if (!is_public(&net) && !allows(network, &net))
            code = berth_fail_field(err, buf, "a private address needs an entry in allow_out");
    }
    return code;
}

static bool is_token(const char *text)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
        "!#$%&'*+-.^_`|~";

    return strspn(text, allowed) == strlen(text);
}

static enum berth_code check_injection(const char *prefix,
                                       const Berth__Common__V1__HeaderInjection *inject,
                                       struct berth_error *err)
{
    char buf[FIELD_SIZE];
    size_t len = strlen(inject->header);
    enum berth_code code = BERTH_OK;

    if (len == 0 || len > CP_HEADER_MAX || !is_token(inject->header))
        code = berth_fail_field(err, path(buf, prefix, "header"),
                                "must be 1 to %d characters of an HTTP token", CP_HEADER_MAX);
    if (!code)
        code = berth_check_text(path(buf, prefix, "value"), inject->value, 0,
                                CP_HEADER_VALUE_MAX, err);
    if (!code && inject->sealed_value.len > 0)
        code = berth_fail_field(err, path(buf, prefix, "sealed_value"), "must not be set here");
    if (!code)
        code = berth_check_text(path(buf, prefix, "format"), inject->format, 0, 256, err);
    if (!code && *inject->format && !strstr(inject->format, "${SECRET}"))
        code = berth_fail_field(err, path(buf, prefix, "format"), "must hold ${SECRET}");
    return code;
}

static enum berth_code check_method(const char *field, const char *method,
                                    struct berth_error *err)
{
    size_t len = strlen(method);

    if (len == 0 || len > 32 || strspn(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != len)
        return berth_fail_field(err, field, "must be an HTTP method in capitals");
    return BERTH_OK;
}

static enum berth_code check_matcher(const char *prefix,
                                     const Berth__Common__V1__EgressRule *rule,
                                     struct berth_error *err)
{
    char buf[FIELD_SIZE];
    enum berth_code code = berth_check_id_or_empty(path(buf, prefix, "name"), rule->name, err);

    if (!code && !cp_domain_valid(rule->host))
        code = berth_fail_field(err, path(buf, prefix, "host"), "must be a domain or *.domain");
    if (!code && *rule->scheme && strcmp(rule->scheme, "http") != 0 &&
        strcmp(rule->scheme, "https") != 0)
        code =
            berth_fail_field(err, path(buf, prefix, "scheme"), "must be http, https or empty");
    if (!code && rule->port > 65535)
        code = berth_fail_field(err, path(buf, prefix, "port"), "must be 0 to 65535");
    if (!code)
        code = check_count(path(buf, prefix, "methods"), rule->n_methods, 16, err);
    for (size_t i = 0; !code && i < rule->n_methods; i++)
        code = check_method(path_at(buf, prefix, "methods", i), rule->methods[i], err);
    if (!code && *rule->path && (rule->path[0] != '/' || strlen(rule->path) > 1024))
        code = berth_fail_field(err, path(buf, prefix, "path"),
                                "must begin with / and have at most 1024 bytes");
    return code;
}

static enum berth_code check_rule(const char *prefix, const Berth__Common__V1__EgressRule *rule,
                                  struct berth_error *err)
{
    char buf[FIELD_SIZE];
    enum berth_code code = check_matcher(prefix, rule, err);

    if (!code)
        code = check_count(path(buf, prefix, "inject"), rule->n_inject, 16, err);
    if (!code && rule->n_inject > 0 && rule->deny)
        code = berth_fail_field(err, buf, "must be empty in a rule that denies");
    for (size_t i = 0; !code && i < rule->n_inject; i++)
        code = check_injection(path_at(buf, prefix, "inject", i), rule->inject[i], err);
    return code;
}

static enum berth_code check_rules(const char *prefix,
                                   const Berth__Common__V1__NetworkPolicy *network,
                                   struct berth_error *err)
{
    char buf[FIELD_SIZE];
    enum berth_code code =
        check_count(path(buf, prefix, "rules"), network->n_rules, CP_RULES_MAX, err);

    for (size_t i = 0; !code && i < network->n_rules; i++)
        code = check_rule(path_at(buf, prefix, "rules", i), network->rules[i], err);
    if (!code && network->n_rules > 0) {
        code = berth_fail(err, BERTH_REASON_CAPABILITY_MISSING,
                          "%s.rules: no backend serves egress rules yet", prefix);
        BERTH_ERROR_SET(err, resource, "network.l7");
        BERTH_ERROR_SET(err, field, path(buf, prefix, "rules"));
    }
    return code;
}

enum berth_code cp_check_network(const char *prefix,
                                 const Berth__Common__V1__NetworkPolicy *network,
                                 struct berth_error *err)
{
    char buf[FIELD_SIZE];
    bool has_domain = false;
    enum berth_code code;

    if (!network)
        return BERTH_OK;
    code = berth_check_enum(path(buf, prefix, "egress"), (int)network->egress, 2, true, err);
    if (!code)
        code =
            berth_check_enum(path(buf, prefix, "inbound"), (int)network->inbound, 2, true, err);
    if (!code)
        code = berth_check_enum(path(buf, prefix, "dns"), (int)network->dns, 3, true, err);
    if (!code)
        code = check_list(prefix, "allow_out", network->allow_out, network->n_allow_out,
                          CP_NETWORK_ENTRIES_MAX, true, &has_domain, err);
    if (!code)
        code = check_list(prefix, "deny_out", network->deny_out, network->n_deny_out,
                          CP_NETWORK_ENTRIES_MAX, false, &has_domain, err);
    if (!code)
        code = check_dns_servers(prefix, network, err);
    if (!code)
        code = check_rules(prefix, network, err);
    if (!code && has_domain && network->egress != BERTH__COMMON__V1__SWITCH__SWITCH_CLOSED &&
        !denies_all(network)) {
        code =
            berth_fail(err, BERTH_REASON_NETWORK_POLICY_INVALID,
                       "%s.allow_out: a domain only means something when egress is CLOSED or "
                       "deny_out has 0.0.0.0/0",
                       prefix);
        BERTH_ERROR_SET(err, field, path(buf, prefix, "allow_out"));
    }
    return code;
}

/* ----------------------------------------------- timeouts, resources, volumes */

static enum berth_code check_timeout(const char *prefix, const char *name,
                                     const Google__Protobuf__Duration *duration, int64_t max_ms,
                                     int64_t *ret_ms, struct berth_error *err)
{
    char buf[FIELD_SIZE];

    *ret_ms = -1;
    if (!duration)
        return BERTH_OK;
    return berth_check_duration(path(buf, prefix, name), duration->seconds, duration->nanos,
                                max_ms, ret_ms, err);
}

enum berth_code cp_check_timeouts(const char *prefix,
                                  const Berth__Common__V1__TimeoutPolicy *timeouts,
                                  struct berth_error *err)
{
    char buf[FIELD_SIZE];
    int64_t idle_ms, ignored;
    enum berth_code code;

    if (!timeouts)
        return BERTH_OK;
    code = check_timeout(prefix, "idle", timeouts->idle, CP_TIMEOUT_MAX_MS, &idle_ms, err);
    if (!code && idle_ms > 0 && idle_ms < 1000)
        code =
            berth_fail_field(err, path(buf, prefix, "idle"), "must be 0 or at least 1 second");
    if (!code)
        code = berth_check_enum(path(buf, prefix, "on_idle"), (int)timeouts->on_idle, 2, true,
                                err);
    if (!code)
        code = berth_check_enum(path(buf, prefix, "auto_resume"), (int)timeouts->auto_resume, 2,
                                true, err);
    if (!code)
        code = check_timeout(prefix, "max_lifetime", timeouts->max_lifetime, CP_TIMEOUT_MAX_MS,
                             &ignored, err);
    if (!code)
        code = check_timeout(prefix, "max_paused", timeouts->max_paused, CP_TIMEOUT_MAX_MS,
                             &ignored, err);
    if (!code)
        code = check_timeout(prefix, "warn_before", timeouts->warn_before, CP_DAY_MS, &ignored,
                             err);
    return code;
}

enum berth_code cp_check_resources(const char *prefix,
                                   const Berth__Common__V1__Resources *resources,
                                   struct berth_error *err)
{
    char buf[FIELD_SIZE];

    if (!resources)
        return BERTH_OK;
    if (resources->cpu_millis > 1024000)
        return berth_fail_field(err, path(buf, prefix, "cpu_millis"),
                                "must be at most 1024000");
    if (resources->memory_bytes && (resources->memory_bytes < CP_MEMORY_MIN_BYTES ||
                                    resources->memory_bytes > (uint64_t)1 << 46))
        return berth_fail_field(err, path(buf, prefix, "memory_bytes"),
                                "must be 0 or 16 MiB to 64 TiB");
    if (resources->disk_bytes > (uint64_t)1 << 50)
        return berth_fail_field(err, path(buf, prefix, "disk_bytes"), "must be at most 1 PiB");
    if (resources->max_processes > 4194304)
        return berth_fail_field(err, path(buf, prefix, "max_processes"),
                                "must be at most 4194304");
    if (resources->max_open_files > 1073741816)
        return berth_fail_field(err, path(buf, prefix, "max_open_files"),
                                "must be at most 1073741816");
    return BERTH_OK;
}

static bool reserved_path(const char *where)
{
    static const char skills[] = "/opt/berth";
    size_t len = strlen(where);

    /* The tree itself, below it, or above it: "/", "/opt". */
    return strcmp(where, "/") == 0 ||
           (strncmp(where, skills, len) == 0 && (skills[len] == '/' || skills[len] == 0)) ||
           strncmp(where, "/opt/berth/", sizeof "/opt/berth/" - 1) == 0;
}

enum berth_code cp_check_volumes(const char *field,
                                 Berth__Common__V1__VolumeMount *const *volumes,
                                 size_t n_volumes, struct berth_error *err)
{
    char buf[FIELD_SIZE];
    enum berth_code code = check_count(field, n_volumes, CP_VOLUMES_MAX, err);

    for (size_t i = 0; !code && i < n_volumes; i++) {
        snprintf(buf, sizeof buf, "%s[%zu].volume", field, i);
        code = berth_check_id(buf, volumes[i]->volume, err);
        snprintf(buf, sizeof buf, "%s[%zu].path", field, i);
        if (!code)
            code = berth_check_path(buf, volumes[i]->path, err);
        if (!code && reserved_path(volumes[i]->path))
            code = berth_fail_field(err, buf, "must be neither above nor inside /opt/berth");
        for (size_t k = 0; !code && k < i; k++)
            if (strcmp(volumes[k]->path, volumes[i]->path) == 0)
                code = berth_fail_field(err, buf, "must be named once");
    }
    return code;
}

enum berth_code cp_check_spec(const char *prefix, const Berth__Common__V1__SessionSpec *spec,
                              struct berth_error *err)
{
    char buf[FIELD_SIZE];
    size_t env_bytes = 0;
    enum berth_code code;

    if (!spec)
        return BERTH_OK;
    code = berth_check_id_or_empty(path(buf, prefix, "config_id"), spec->config_id, err);
    if (!code)
        code = cp_check_image(path(buf, prefix, "image"), spec->image, err);
    if (!code)
        code = cp_check_labels(path(buf, prefix, "labels"), spec->labels, spec->n_labels, err);
    if (!code)
        code = check_count(path(buf, prefix, "env"), spec->n_env, CP_ENV_MAX, err);
    for (size_t i = 0; !code && i < spec->n_env; i++)
        code = cp_check_env(path(buf, prefix, "env"), spec->env[i]->key, spec->env[i]->value,
                            &env_bytes, err);
    if (!code)
        code = cp_check_network(path(buf, prefix, "network"), spec->network, err);
    if (!code)
        code = cp_check_timeouts(path(buf, prefix, "timeouts"), spec->timeouts, err);
    if (!code)
        code = cp_check_resources(path(buf, prefix, "resources"), spec->resources, err);
    if (!code)
        code =
            cp_check_volumes(path(buf, prefix, "volumes"), spec->volumes, spec->n_volumes, err);
    return code;
}
