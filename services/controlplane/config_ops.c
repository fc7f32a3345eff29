#include "services/controlplane/config_ops.h"

#include <stdio.h>

#include "common/fields/fields.h"
#include "common/ids/ids.h"
#include "common/log/log.h"
#include "common/messages/messages.h"
#include "common/time/time.h"
#include "services/controlplane/backend.h"
#include "services/controlplane/policy.h"

typedef Berth__Backend__V1__GetInfoResponse GetInfoResponse;
typedef Berth__Control__V1__SandboxConfig SandboxConfig;

enum { ASK_EVERY_MS = 60000, ENDPOINT_SIZE = 2200 };

enum berth_code cp_check_config_ref(const char *tenant, const char *config_id,
                                    struct berth_error *err)
{
    enum berth_code code = berth_check_id("tenant_id", tenant, err);

    return code ? code : berth_check_id("config_id", config_id, err);
}

enum berth_code cp_check_page(const Berth__Common__V1__PageRequest *page, uint32_t *ret_size,
                              const char **ret_after, struct berth_error *err)
{
    enum berth_code code =
        berth_check_page_size("page.page_size", page ? page->page_size : 0, ret_size, err);

    *ret_after = page ? page->page_token : "";
    return code ? code : berth_check_id_or_empty("page.page_token", *ret_after, err);
}

enum berth_code cp_config_must_read(struct cp *cp, const char *tenant, const char *config_id,
                                    struct cp_config_read *ret, struct berth_error *err)
{
    enum berth_code code = cp_config_read(cp, tenant, config_id, ret, err);

    if (!code && !ret->config)
        code = berth_fail(err, BERTH_REASON_CONFIG_NOT_FOUND, "no config '%s'", config_id);
    return code;
}

enum berth_code cp_config_connect(struct cp *cp, struct cp_config *config,
                                  const Berth__Control__V1__Credentials *credentials,
                                  const char *traceparent, struct berth_error *err)
{
    static const ProtobufCBinaryData none = {0};
    ProtobufCBinaryData sealed = {0};
    uint8_t account[32];
    enum berth_code code;

    config->target = cp_config_make_target(config->settings, &none, NULL);
    if (!config->target)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    code = cp_config_seal(cp->keyring, config->target, credentials, &sealed, err);
    if (code)
        return code;
    config->target->sealed_credentials = sealed; /* taken */
    code = cp_config_mark(cp->keyring, config, credentials, err);
    if (code)
        return code;
    code = cp_backend_info(cp, config->target, traceparent, &config->info, err);
    if (!code)
        code = cp_config_account(config->settings->backend, config->settings->api_url,
                                 config->info->account_id, account, err);
    if (code)
        return code;
    if (!berth_set_bytes(&config->target->fingerprint, account, sizeof account))
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    berth_hex(config->doc.account, account, sizeof account);
    return BERTH_OK;
}

enum berth_code cp_config_capable(const struct cp_config *config, struct berth_error *err)
{
    const SandboxConfig *settings = config->settings;
    const Berth__Common__V1__Capabilities *caps = config->info->capabilities;

    if (settings->root_commands && !caps->root_commands)
        return cp_missing("root_commands", "config.root_commands", err);
    return cp_policy_check_capable(caps, settings->network, settings->timeouts,
                                   settings->resources, settings->n_volumes, err);
}

static bool set_time(Google__Protobuf__Timestamp **slot, int64_t now_ms)
{
    berth_message_free(*slot);
    *slot = berth_timestamp(now_ms);
    return *slot != NULL;
}

bool cp_config_stamp(SandboxConfig *settings, bool created)
{
    char etag[CP_ETAG_SIZE];
    int64_t now_ms = berth_now_ms();

    return berth_set_string(&settings->etag, berth_rev_new(etag)) &&
           set_time(&settings->update_time, now_ms) &&
           (!created || set_time(&settings->create_time, now_ms));
}

/* ------------------------------------------------------------------- refresh */

struct ask {
    struct cp *cp;
    struct cp_config *config;
};

static bool same_message(const void *a, const void *b)
{
    const ProtobufCMessage *x = a, *y = b;
    size_t size = protobuf_c_message_get_packed_size(x);
    BERTH_AUTO(free) uint8_t *p = malloc(size + 1), *q = malloc(size + 1);

    if (!p || !q || protobuf_c_message_get_packed_size(y) != size)
        return false;
    protobuf_c_message_pack(x, p);
    protobuf_c_message_pack(y, q);
    return memcmp(p, q, size) == 0;
}

/* What the adapter can do has changed. Another account behind the same target is not a change
 * of capabilities: it is told, and nothing is written. */
static void keep_info(struct cp *cp, struct cp_config *config, GetInfoResponse *info)
{
    struct cp_config_read read = {0};
    struct cp_config changed;
    struct berth_error err = {0};
    uint8_t account[32];
    bool applied = false;

    if (cp_config_account(config->settings->backend, config->settings->api_url,
                          info->account_id, account, &err) ||
        memcmp(account, config->target->fingerprint.data, sizeof account) != 0) {
        berth_warn("another account answers behind a config's target, keeping what is stored",
                   "tenant", config->tenant_id, "config", config->config_id);
        return;
    }
    if (cp_config_read(cp, config->tenant_id, config->config_id, &read, &err) == BERTH_OK &&
        read.config && strcmp(read.config->doc.state, "active") == 0) {
        changed = *read.config; /* borrows */
        changed.info = info;
        if (cp_config_store(cp, &read, &changed, "active", "capabilities", &applied, &err))
            berth_warn("new capabilities were not stored, trying again later", "error",
                       err.text);
    }
    cp_config_read_deinit(&read);
}

static void run_ask(void *arg)
{
    struct ask *ask = arg;
    GetInfoResponse *info = NULL;

    if (cp_backend_info(ask->cp, ask->config->target, NULL, &info, NULL) == BERTH_OK &&
        !same_message(info, ask->config->info))
        keep_info(ask->cp, ask->config, info);
    berth_message_free(info);
    cp_config_unref(ask->config);
    free(ask);
}

void cp_config_in_use(void *arg, struct cp_config *config)
{
    struct cp *cp = arg;
    int64_t tick = berth_tick_ms();
    char endpoint[ENDPOINT_SIZE];
    struct ask *ask;

    if (cp_verified_since(cp->verified, "info", config->tenant_id, config->config_id, "",
                          tick - ASK_EVERY_MS))
        return;
    cp_verified_note(cp->verified, "info", config->tenant_id, config->config_id, "", tick);
    ask = calloc(1, sizeof *ask);
    if (!ask)
        return;
    ask->cp = cp;
    ask->config = cp_config_ref(config);
    cp_backend_endpoint(endpoint, sizeof endpoint, config->target->backend,
                        config->target->api_url);
    if (cp_bulkhead_submit(cp->bulkhead, endpoint, run_ask, ask, NULL)) {
        cp_config_unref(ask->config);
        free(ask);
    }
}
