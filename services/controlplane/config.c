#include "services/controlplane/config.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>

#include "common/ids/ids.h"
#include "common/json/json.h"
#include "common/messages/messages.h"
#include "common/records/keys.h"
#include "common/records/message_json.h"
#include "common/records/target.h"
#include "services/controlplane/config_apply.h"
#include "services/controlplane/names.h"

typedef Berth__Control__V1__SandboxConfig SandboxConfig;
typedef Berth__Control__V1__Credentials Credentials;
typedef Berth__Common__V1__BackendTarget BackendTarget;

enum { SETTINGS_MAX = 4 << 20, ROW_PREFIX_LEN = 4 };

#define FOR_EVER_MS INT64_C(253402300799000) /* the end of the year 9999 */

const char *const cp_config_fields[] = {"rev",
                                        "settings",
                                        "state",
                                        "account",
                                        "keyed",
                                        "fenced",
                                        "create_horizon_ms",
                                        "template",
                                        "credentials",
                                        "info",
                                        "secrets",
                                        "image",
                                        "next_generation"};
const size_t cp_n_config_fields = BERTH_COUNT(cp_config_fields);

struct cp_config *cp_config_ref(struct cp_config *config)
{
    __atomic_add_fetch(&config->refs, 1, __ATOMIC_RELAXED);
    return config;
}

struct cp_config *cp_config_unref(struct cp_config *config)
{
    if (!config || __atomic_sub_fetch(&config->refs, 1, __ATOMIC_ACQ_REL) > 0)
        return NULL;
    berth_message_free(config->settings);
    berth_message_free(config->info);
    berth_message_free(config->target);
    free(config);
    return NULL;
}

/* ------------------------------------------------------------------- decode */

static enum berth_code broken(const struct berth_doc *doc, const char *field,
                              const struct berth_error *why, struct berth_error *err)
{
    return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "%s: %s: %s", doc->key, field,
                      why ? why->text : "does not validate");
}

static enum berth_code read_message(const struct berth_doc *doc, const char *field,
                                    const ProtobufCMessageDescriptor *type, void *ret,
                                    struct berth_error *err)
{
    BERTH_AUTO(json_decref) json_t *json = NULL;
    const char *text = berth_doc_get(doc, field);
    ProtobufCMessage *message;
    struct berth_error why;

    if (berth_json_parse(text, strlen(text), SETTINGS_MAX, &json, &why) ||
        berth_message_from_json(json, type, &message, &why))
        return broken(doc, field, &why, err);
    memcpy(ret, &message, sizeof message);
    return BERTH_OK;
}

static enum berth_code read_secrets(const struct berth_doc *doc, struct cp_config *config,
                                    struct berth_error *err)
{
    BERTH_AUTO(json_decref) json_t *json = NULL;
    const char *text = berth_doc_get(doc, "secrets");
    struct berth_error why;

    if (!*text)
        return BERTH_OK;
    if (berth_json_parse(text, strlen(text), SETTINGS_MAX, &json, &why) ||
        berth_json_get_str(json, "fingerprint", config->secrets_mark,
                           sizeof config->secrets_mark, "", &why))
        return broken(doc, "secrets", &why, err);
    for (size_t i = 0; i < CP_CREDENTIALS_MEMBERS; i++)
        if (json_is_true(json_object_get(json, cp_credentials_members[i])))
            config->secrets_members |= 1U << i;
    return BERTH_OK;
}

static char *secrets_text(const struct cp_config *config)
{
    BERTH_AUTO(json_decref)
    json_t *json = json_pack("{s:s}", "fingerprint", config->secrets_mark);

    for (size_t i = 0; json && i < CP_CREDENTIALS_MEMBERS; i++)
        if (config->secrets_members & 1U << i)
            json_object_set_new(json, cp_credentials_members[i], json_true());
    return json ? berth_json_format(json) : NULL;
}

static enum berth_code count_queue(const struct berth_doc *doc, struct cp_config *config,
                                   struct berth_error *err)
{
    const char *text = berth_doc_get(doc, "queue");
    BERTH_AUTO(json_decref) json_t *queue = *text ? json_loads(text, 0, NULL) : json_array();

    if (!json_is_array(queue))
        return broken(doc, "queue", NULL, err);
    config->operations = json_array_size(queue);
    return BERTH_OK;
}

static enum berth_code count_rows(const struct berth_doc *doc, struct cp_config *config,
                                  struct berth_error *err)
{
    for (size_t i = 0; i < doc->n_fields; i++) {
        struct berth_snapshot_row row;
        enum berth_code code;

        if (strncmp(doc->fields[i].name, "row:", ROW_PREFIX_LEN) != 0)
            continue;
        code = berth_snapshot_row_parse(doc->fields[i].value, &row, err);
        if (code)
            return berth_wrap(err, code, "%s: %s", doc->key, doc->fields[i].name);
        if (strcmp(row.state, "deleted") != 0 && strcmp(row.state, "abandoned") != 0)
            config->live_snapshots++;
    }
    return BERTH_OK;
}

static void read_sealed(const struct berth_doc *doc, ProtobufCBinaryData *ret)
{
    for (size_t i = 0; i < doc->n_fields; i++)
        if (strcmp(doc->fields[i].name, "credentials") == 0)
            *ret = (ProtobufCBinaryData){.len = doc->fields[i].size,
                                         .data = (uint8_t *)doc->fields[i].value};
}

enum berth_code cp_config_decode(const struct berth_doc *doc, const char *tenant,
                                 const char *config_id, struct cp_config **ret,
                                 struct berth_error *err)
{
    BERTH_AUTO(cp_config_unref) struct cp_config *config = NULL;
    ProtobufCBinaryData sealed = {0};
    uint8_t account[32];
    enum berth_code code;

    if (!doc->exists || !berth_doc_has(doc, "settings"))
        return berth_fail(err, BERTH_REASON_CONFIG_NOT_FOUND, "no config '%s'", config_id);
    config = calloc(1, sizeof *config);
    if (!config)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    config->refs = 1;
    snprintf(config->tenant_id, sizeof config->tenant_id, "%s", tenant);
    snprintf(config->config_id, sizeof config->config_id, "%s", config_id);
    code = berth_config_doc_parse(doc, &config->doc, err);
    if (!code)
        code = read_message(doc, "settings", &berth__control__v1__sandbox_config__descriptor,
                            &config->settings, err);
    if (!code)
        code = read_message(doc, "info", &berth__backend__v1__get_info_response__descriptor,
                            &config->info, err);
    if (!code)
        code = read_secrets(doc, config, err);
    if (!code)
        code = count_rows(doc, config, err);
    if (!code)
        code = count_queue(doc, config, err);
    if (code)
        return code;
    if (!config->info->capabilities)
        return broken(doc, "info", NULL, err);
    if (!cp_hex_bytes(config->doc.account, account, sizeof account))
        return broken(doc, "account", NULL, err);
    read_sealed(doc, &sealed);
    config->target = cp_config_make_target(config->settings, &sealed, account);
    if (!config->target)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    *ret = BERTH_STEAL(config);
    return BERTH_OK;
}

/* -------------------------------------------------------------------- write */

static char *message_text(const void *message)
{
    BERTH_AUTO(json_decref) json_t *json = berth_message_to_json(message);

    return json ? berth_json_format(json) : NULL;
}

enum berth_code cp_config_write(struct berth_cas *cas, const struct cp_config *config,
                                const char *state, struct berth_error *err)
{
    BERTH_AUTO(free) char *settings = message_text(config->settings);
    BERTH_AUTO(free) char *info = message_text(config->info);
    BERTH_AUTO(free) char *secrets = secrets_text(config);
    const ProtobufCBinaryData *sealed = &config->target->sealed_credentials;
    char key[BERTH_KEY_MAX], rev[17], account[CP_ACCOUNT_HEX_SIZE], horizon[24], cordon[24];
    int64_t cordon_ms =
        config->settings->cordoned
            ? berth_timestamp_ms(config->settings->cordon_expire_time, FOR_EVER_MS)
            : 0;

    if (!settings || !info || !secrets)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    berth_key_config(key, config->tenant_id, config->config_id);
    snprintf(horizon, sizeof horizon, "%" PRId64,
             berth_duration_ms(config->info->create_horizon, 0));
    snprintf(cordon, sizeof cordon, "%" PRId64, cordon_ms);
    berth_cas_write(
        cas, "HSET", key, "rev", berth_rev_new(rev), "settings", settings, "state", state,
        "account", cp_account_hex(account, &config->target->fingerprint), "keyed",
        config->info->capabilities->keyed_create ? "1" : "0", "fenced",
        config->info->fenced ? "1" : "0", "create_horizon_ms", horizon, "cordon_until_ms",
        cordon, "rollout",
        config->settings->rollout == BERTH__CONTROL__V1__ROLLOUT__ROLLOUT_NEW_SESSIONS
            ? "new_sessions"
            : "next_turn",
        "template", config->settings->template_id, "info", info, "secrets", secrets, NULL);
    if (sealed->len > 0)
        berth_cas_hset(cas, key, "credentials", sealed->data, sealed->len);
    else
        berth_cas_write(cas, "HDEL", key, "credentials", NULL);
    return BERTH_OK;
}

/* --------------------------------------------------------------------- show */

static bool show_image(const struct cp_config *config, SandboxConfig *out)
{
    const struct berth_image_pointer *image = &config->doc.image;
    uint8_t account[32];
    char hex[CP_ACCOUNT_HEX_SIZE] = "";
    bool ok;

    if (!image->snapshot_id[0] && !image->generation)
        return true;
    out->image = berth_message_new(&berth__control__v1__image_pointer__descriptor);
    if (!out->image)
        return false;
    out->image->generation = image->generation;
    out->image->usable = berth_image_usable(&config->doc);
    if (cp_hex_bytes(image->account, account, sizeof account))
        berth_hex(hex, account, sizeof account);
    ok = berth_set_string(&out->image->snapshot_id, image->snapshot_id) &&
         berth_set_string(&out->image->base_template_id, image->base_template_id) &&
         berth_set_string(&out->image->fingerprint, hex) &&
         (!image->build_ms || (out->image->build_time = berth_timestamp(image->build_ms)));
    if (ok && !out->image->usable)
        ok = berth_set_string(&out->image->unusable_reason,
                              image->snapshot_id[0] ? "the image lives in another account"
                              : image->row_id[0]
                                  ? "the image was not there any more at its backend"
                                  : "no image is published");
    return ok;
}

SandboxConfig *cp_config_show(const struct cp_config *config)
{
    SandboxConfig *out = berth_message_copy(config->settings);

    if (!out)
        return NULL;
    out->credentials_set = config->target->sealed_credentials.len > 0;
    if (config->read_ms &&
        config->read_ms >= berth_timestamp_ms(out->cordon_expire_time, FOR_EVER_MS))
        out->cordoned = false; /* it is over */
    for (size_t i = 0; i < CP_CREDENTIALS_MEMBERS; i++)
        if ((config->secrets_members & 1U << i) &&
            !berth_add_string(&out->n_credentials_members, &out->credentials_members,
                              cp_credentials_members[i]))
            return berth_message_free(out);
    if (!berth_set_string(&out->config_id, config->config_id) ||
        !berth_set_string(&out->tenant_id, config->tenant_id) ||
        !berth_set_string(&out->fingerprint, config->doc.account) ||
        !berth_set_string(&out->credentials_fingerprint, config->secrets_mark) ||
        !show_image(config, out))
        return berth_message_free(out);
    return out;
}

/* ---------------------------------------------------------- target, account */

static bool copy_options(const SandboxConfig *settings, BackendTarget *target)
{
    for (size_t i = 0; i < settings->n_options; i++)
        if (!berth_set_map(&target->n_options, &target->options,
                           &berth__common__v1__backend_target__options_entry__descriptor,
                           settings->options[i]->key, settings->options[i]->value))
            return false;
    return true;
}

BackendTarget *cp_config_make_target(const SandboxConfig *settings,
                                     const ProtobufCBinaryData *sealed, const uint8_t *account)
{
    BackendTarget *target = berth_message_new(&berth__common__v1__backend_target__descriptor);

    if (!target)
        return NULL;
    target->allow_private = settings->allow_private_endpoints;
    if (berth_set_string(&target->config_id, settings->config_id) &&
        berth_set_string(&target->tenant_id, settings->tenant_id) &&
        berth_set_string(&target->backend, settings->backend) &&
        berth_set_string(&target->api_url, settings->api_url) &&
        berth_set_string(&target->domain, settings->domain) &&
        berth_set_string(&target->proxy_url, settings->proxy_url) &&
        copy_options(settings, target) &&
        berth_set_bytes(&target->sealed_credentials, sealed->data, sealed->len) &&
        (!account || berth_set_bytes(&target->fingerprint, account, 32)))
        return target;
    return berth_message_free(target);
}

enum berth_code cp_config_account(const char *backend, const char *api_url,
                                  const char *account_id, uint8_t ret[32],
                                  struct berth_error *err)
{
    const char *const parts[] = {backend, account_id, *api_url ? api_url : account_id};

    if (!*account_id)
        return berth_fail(err, BERTH_REASON_FINGERPRINT_EMPTY,
                          "the adapter for backend %s names no account", backend);
    berth_fingerprint(parts, BERTH_COUNT(parts), ret);
    return BERTH_OK;
}

/* -------------------------------------------------------------- credentials */

static bool is_empty(const Credentials *credentials)
{
    return !credentials || (!*credentials->api_key && !*credentials->ca_pem &&
                            !*credentials->client_cert_pem && !*credentials->client_key_pem);
}

enum berth_code cp_config_seal(const struct berth_keyring *keyring, const BackendTarget *target,
                               const Credentials *credentials, ProtobufCBinaryData *ret_sealed,
                               struct berth_error *err)
{
    BERTH_AUTO(free) uint8_t *associated = NULL, *plain = NULL;
    size_t associated_size, plain_size;
    enum berth_code code;

    if (is_empty(credentials)) {
        *ret_sealed = (ProtobufCBinaryData){0};
        return BERTH_OK;
    }
    code = berth_target_associated(target, &associated, &associated_size, err);
    if (code)
        return code;
    plain_size = protobuf_c_message_get_packed_size(&credentials->base);
    plain = malloc(plain_size + 1);
    if (!plain)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    protobuf_c_message_pack(&credentials->base, plain);
    code = berth_seal(keyring, plain, plain_size, associated, associated_size,
                      &ret_sealed->data, &ret_sealed->len, err);
    berth_wipe(plain, plain_size);
    return code;
}

enum berth_code cp_config_open(const struct berth_keyring *keyring, const BackendTarget *target,
                               Credentials **ret, struct berth_error *err)
{
    BERTH_AUTO(free) uint8_t *associated = NULL, *plain = NULL;
    size_t associated_size, plain_size = 0;
    Credentials *credentials;
    enum berth_code code;

    if (target->sealed_credentials.len == 0) {
        credentials = berth_message_new(&berth__control__v1__credentials__descriptor);
    } else {
        code = berth_target_associated(target, &associated, &associated_size, err);
        if (code)
            return code;
        code = berth_open_sealed(keyring, target->sealed_credentials.data,
                                 target->sealed_credentials.len, associated, associated_size,
                                 &plain, &plain_size, err);
        if (code)
            return code;
        credentials = (Credentials *)protobuf_c_message_unpack(
            &berth__control__v1__credentials__descriptor, NULL, plain_size, plain);
        berth_wipe(plain, plain_size);
    }
    if (!credentials)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    *ret = credentials;
    return BERTH_OK;
}

enum berth_code cp_config_mark(const struct berth_keyring *keyring, struct cp_config *config,
                               const Credentials *credentials, struct berth_error *err)
{
    const char *tenant = config->settings->tenant_id;
    size_t tenant_size = strlen(tenant) + 1, size;
    BERTH_AUTO(free) uint8_t *data = NULL;
    uint8_t mac[32];
    bool there;

    config->secrets_mark[0] = 0;
    config->secrets_members = 0;
    if (is_empty(credentials))
        return BERTH_OK;
    size = tenant_size + protobuf_c_message_get_packed_size(&credentials->base);
    data = malloc(size);
    if (!data)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    memcpy(data, tenant, tenant_size);
    protobuf_c_message_pack(&credentials->base, data + tenant_size);
    there = berth_keyring_mac(keyring, "", "credentials fingerprint", data, size, mac);
    berth_wipe(data, size);
    if (!there)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    berth_hex(config->secrets_mark, mac, (CP_MARK_SIZE - 1) / 2);
    for (size_t i = 0; i < CP_CREDENTIALS_MEMBERS; i++)
        if (**cp_credentials_member((Credentials *)credentials, i))
            config->secrets_members |= 1U << i;
    return BERTH_OK;
}

static void wipe(char *secret)
{
    if (secret != protobuf_c_empty_string)
        berth_wipe(secret, strlen(secret));
}

void *cp_credentials_free(Credentials *credentials)
{
    if (credentials) {
        wipe(credentials->api_key);
        wipe(credentials->ca_pem);
        wipe(credentials->client_cert_pem);
        wipe(credentials->client_key_pem);
        protobuf_c_message_free_unpacked(&credentials->base, NULL);
    }
    return NULL;
}
