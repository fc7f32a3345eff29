/* config_update_rpc.c - ConfigService: change and delete configs. */
#include <stdio.h>

#include "common/fields/fields.h"
#include "common/messages/messages.h"
#include "services/controlplane/backend.h"
#include "services/controlplane/checks.h"
#include "services/controlplane/config_apply.h"
#include "services/controlplane/config_check.h"
#include "services/controlplane/config_ops.h"
#include "services/controlplane/policy.h"

typedef Berth__Control__V1__Credentials Credentials;
typedef Berth__Control__V1__DeleteConfigRequest DeleteConfigRequest;
typedef Berth__Control__V1__SandboxConfig SandboxConfig;
typedef Berth__Control__V1__UpdateConfigRequest UpdateConfigRequest;
typedef Berth__Control__V1__UpdateConfigResponse UpdateConfigResponse;

enum { ETAG_MAX = 64, MASK_MAX = 64 };

static enum berth_code no_memory(struct berth_error *err)
{
    return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

static enum berth_code check_etag(const struct cp_config *config, const char *etag,
                                  struct berth_error *err)
{
    if (*etag && strcmp(etag, config->settings->etag) != 0)
        return berth_fail(err, BERTH_REASON_ETAG_MISMATCH, "config '%s' has etag %s",
                          config->config_id, config->settings->etag);
    return BERTH_OK;
}

/* ------------------------------------------------------------- UpdateConfig */

/* A changed copy of what was read. info and target are NULL where the adapter has to be asked.
 */
static enum berth_code change(const struct cp_config *old, const UpdateConfigRequest *req,
                              struct cp_config **ret, unsigned *ret_changes,
                              struct berth_error *err)
{
    BERTH_AUTO(cp_config_unref) struct cp_config *config = calloc(1, sizeof *config);
    enum berth_code code;

    if (!config)
        return no_memory(err);
    *config = *old;
    config->refs = 1;
    config->info = NULL;
    config->target = NULL;
    config->settings = berth_message_copy(old->settings);
    if (!config->settings)
        return no_memory(err);
    code = cp_config_apply(config->settings, req->config, req->update_mask, ret_changes, err);
    if (!code && ((*ret_changes & CP_CHANGE_ENDPOINT) || config->settings->skills))
        code = cp_config_check_endpoint(config->settings, err);
    if (!code && !cp_config_defaults(config->settings))
        code = no_memory(err);
    if (!code) /* the whole: what was sent may contradict what is stored */
        code = cp_check_config(config->settings, true, err);
    if (code)
        return code;
    if (!(*ret_changes & CP_CHANGE_TARGET)) {
        config->info = berth_message_copy(old->info);
        config->target = berth_message_copy(old->target);
        if (!config->info || !config->target)
            return no_memory(err);
    }
    *ret = BERTH_STEAL(config);
    return BERTH_OK;
}

/* Credentials do not follow the config to another endpoint: whoever may change an address must
 * not learn a key by it. Each that is stored has to be given anew, or taken away by name. */
static enum berth_code check_given_anew(const struct cp_config *old, const Credentials *given,
                                        unsigned changes, struct berth_error *err)
{
    static const Credentials none = BERTH__CONTROL__V1__CREDENTIALS__INIT;
    bool told = false; /* of a config that was stored before members were */

    for (size_t i = 0; i < CP_CREDENTIALS_MEMBERS; i++) {
        const char *value = *cp_credentials_member((Credentials *)(given ? given : &none), i);
        bool named = changes & (unsigned)CP_CHANGE_MEMBER << i;
        bool taken = named || (changes & CP_CHANGE_CREDENTIALS);
        char field[64];

        told = told || (taken && *value && !cp_is_masked(value));
        if (!(old->secrets_members & 1U << i) ||
            (taken && !cp_is_masked(value) && (*value || named)))
            continue;
        snprintf(field, sizeof field, "config.credentials.%s", cp_credentials_members[i]);
        return berth_fail_field(err, field,
                                "must be given again when api_url, domain, proxy_url or "
                                "allow_private_endpoints change");
    }
    if (!old->secrets_members && !told)
        return berth_fail_field(err, "config.credentials",
                                "must be given again when api_url, domain, proxy_url or "
                                "allow_private_endpoints change");
    return BERTH_OK;
}

static enum berth_code merge_credentials(struct cp *cp, const struct cp_config *old,
                                         const Credentials *given, unsigned changes,
                                         Credentials **ret, struct berth_error *err)
{
    Credentials *stored = NULL;
    enum berth_code code;

    if ((changes & CP_CHANGE_ENDPOINT) && old->target->sealed_credentials.len > 0) {
        code = check_given_anew(old, given, changes, err);
        if (!code &&
            !(stored = berth_message_new(&berth__control__v1__credentials__descriptor)))
            code = no_memory(err);
    } else {
        code = cp_config_open(cp->keyring, old->target, &stored, err);
    }
    if (!code && !cp_credentials_merge(stored, given, changes)) {
        cp_credentials_free(stored);
        code = no_memory(err);
    }
    if (!code)
        *ret = stored;
    return code;
}

/* None of the values was changed: the fingerprint stays, whatever key made it. */
static bool nothing_given(const Credentials *given, unsigned changes)
{
    for (size_t i = 0; i < CP_CREDENTIALS_MEMBERS; i++) {
        const char *value = given ? *cp_credentials_member((Credentials *)given, i) : "";

        if (changes & (unsigned)CP_CHANGE_MEMBER << i ? !cp_is_masked(value)
                                                      : *value && !cp_is_masked(value))
            return false;
    }
    return true;
}

static enum berth_code connect_again(struct cp *cp, struct berth_call *call,
                                     const struct cp_config *old, struct cp_config *config,
                                     const UpdateConfigRequest *req, unsigned changes,
                                     struct berth_error *err)
{
    Credentials *credentials = NULL;
    enum berth_code code =
        merge_credentials(cp, old, req->config->credentials, changes, &credentials, err);

    if (!code)
        code = cp_config_connect(cp, config, credentials, berth_call_traceparent(call), err);
    if (!code && old->secrets_mark[0] && nothing_given(req->config->credentials, changes))
        snprintf(config->secrets_mark, sizeof config->secrets_mark, "%s", old->secrets_mark);
    cp_credentials_free(credentials);
    return code;
}

/* One try. *ret_ask: the adapter has to be asked, and may_ask is false. */
static enum berth_code try_update(struct cp *cp, struct berth_call *call,
                                  const UpdateConfigRequest *req, bool may_ask, bool *ret_ask,
                                  bool *ret_applied, struct cp_config **ret,
                                  struct berth_error *err)
{
    BERTH_AUTO(cp_config_unref) struct cp_config *config = NULL;
    struct cp_config_read read = {0};
    unsigned changes = 0;
    bool other_identity;
    enum berth_code code =
        cp_config_must_read(cp, req->config->tenant_id, req->config->config_id, &read, err);

    if (!code)
        code = check_etag(read.config, req->config->etag, err);
    if (!code)
        code = change(read.config, req, &config, &changes, err);
    if (!code)
        code = cp_config_check_veto(config->settings, cp->no_private_targets, err);
    if (!code && (changes & CP_CHANGE_TARGET)) {
        *ret_ask = !may_ask;
        if (may_ask)
            code = connect_again(cp, call, read.config, config, req, changes, err);
    }
    if (code || *ret_ask) {
        cp_config_read_deinit(&read);
        return code;
    }
    if (changes & (CP_CHANGE_TARGET | CP_CHANGE_POLICY))
        code = cp_config_capable(config, err);
    /* Sandboxes and snapshots live where they were made; none must be left behind there. */
    other_identity = (changes & CP_CHANGE_ENDPOINT) ||
                     strcmp(config->doc.account, read.config->doc.account) != 0;
    if (!code && other_identity)
        code = cp_config_close(cp, &read, err);
    if (!code && !cp_config_stamp(config->settings, false))
        code = no_memory(err);
    if (!code)
        code = cp_config_store(cp, &read, config, "active", "updated", ret_applied, err);
    cp_config_read_deinit(&read);
    if (!code)
        *ret = BERTH_STEAL(config);
    return code;
}

static enum berth_code update(struct cp *cp, struct berth_call *call,
                              const UpdateConfigRequest *req, bool may_ask, bool *ret_ask,
                              ProtobufCMessage **ret_resp, struct berth_error *err)
{
    BERTH_AUTO(cp_config_unref) struct cp_config *config = NULL;
    UpdateConfigResponse *out;
    bool applied = false;
    enum berth_code code = BERTH_OK;

    for (int i = 0; i < CP_CAS_TRIES && !code && !applied && !*ret_ask; i++) {
        config = cp_config_unref(config);
        code = try_update(cp, call, req, may_ask, ret_ask, &applied, &config, err);
    }
    if (code || *ret_ask)
        return code;
    if (!applied)
        return berth_fail(err, BERTH_REASON_CONFLICT, NULL);
    out = berth_message_new(&berth__control__v1__update_config_response__descriptor);
    if (!out || !(out->config = cp_config_show(config))) {
        berth_message_free(out);
        return no_memory(err);
    }
    *ret_resp = &out->base;
    return BERTH_OK;
}

CP_HANDLER(update_config_job)
{
    bool ask = false;

    return update(service, call, (const UpdateConfigRequest *)message, true, &ask, ret_resp,
                  err);
}

static enum berth_code check_update(const UpdateConfigRequest *req, struct berth_error *err)
{
    enum berth_code code = cp_check_config(req->config, true, err);

    if (!code && req->update_mask && req->update_mask->n_paths > MASK_MAX)
        code = berth_fail_field(err, "update_mask", "must have at most %d paths", MASK_MAX);
    if (!code)
        code = cp_config_check_mask(req->update_mask, err);
    return code;
}

CP_HANDLER(update_config)
{
    BERTH_AUTO(cp_config_unref) struct cp_config *config = NULL;
    struct cp *cp = service;
    const UpdateConfigRequest *req = (const UpdateConfigRequest *)message;
    bool ask = false;
    enum berth_code code = check_update(req, err);

    if (!code)
        code = cp_enter_tenant(cp, req->config->tenant_id, false, err);
    if (!code)
        code = update(cp, call, req, false, &ask, ret_resp, err);
    if (code || !ask)
        return code;
    code = cp_cache_config(cp->cache, req->config->tenant_id, req->config->config_id, &config,
                           err);
    return code ? code
                : cp_defer(cp, call, message, config->target->backend, config->target->api_url,
                           update_config_job, err);
}

/* ------------------------------------------------------------- DeleteConfig */

static enum berth_code try_delete(struct cp *cp, const DeleteConfigRequest *req,
                                  bool *ret_applied, struct berth_error *err)
{
    struct cp_config_read read = {0};
    enum berth_code code = cp_config_must_read(cp, req->tenant_id, req->config_id, &read, err);

    if (!code)
        code = check_etag(read.config, req->etag, err);
    if (!code && strcmp(read.tenant.default_config, req->config_id) == 0)
        code = berth_fail(err, BERTH_REASON_CONFIG_IN_USE, "it is the tenant's default config");
    if (!code)
        code = cp_config_close(cp, &read, err);
    if (!code)
        code = cp_config_remove(cp, &read, ret_applied, err);
    cp_config_read_deinit(&read);
    return code;
}

CP_HANDLER(delete_config)
{
    struct cp *cp = service;
    const DeleteConfigRequest *req = (const DeleteConfigRequest *)message;
    bool applied = false;
    enum berth_code code = cp_check_config_ref(req->tenant_id, req->config_id, err);

    (void)call;
    if (!code)
        code = berth_check_text("etag", req->etag, 0, ETAG_MAX, err);
    if (!code && req->force)
        code = cp_missing("config.force_delete", "force", err);
    if (!code)
        code = cp_enter_tenant(cp, req->tenant_id, false, err);
    for (int i = 0; i < CP_CAS_TRIES && !code && !applied; i++) {
        code = try_delete(cp, req, &applied, err);
        if (code == BERTH_ABORTED && err->reason == BERTH_REASON_CONFLICT)
            code = BERTH_OK; /* somebody wrote in between: look again */
    }
    if (!code && !applied)
        code = berth_fail(err, BERTH_REASON_CONFLICT, NULL);
    if (code)
        return code;
    *ret_resp = berth_message_new(&berth__control__v1__delete_config_response__descriptor);
    return *ret_resp ? BERTH_OK : no_memory(err);
}

const struct berth_method cp_config_update_methods[] = {
    {"/berth.control.v1.ConfigService/UpdateConfig",
     &berth__control__v1__update_config_request__descriptor, .unary = update_config},
    {"/berth.control.v1.ConfigService/DeleteConfig",
     &berth__control__v1__delete_config_request__descriptor, .unary = delete_config},
};
const size_t cp_n_config_update_methods = BERTH_COUNT(cp_config_update_methods);
