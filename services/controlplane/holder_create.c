/* holder_create.c - the one create call of a grant: key, fence, attempt, tags, image,
 * environment, and everything that could be left open said explicitly. */
#include "common/messages/messages.h"
#include "common/time/time.h"
#include "services/controlplane/environment.h"
#include "services/controlplane/heal.h"
#include "services/controlplane/holder_steps.h"
#include "services/controlplane/names.h"
#include "services/controlplane/policy.h"

typedef Berth__Backend__V1__CreateSandboxRequest CreateSandboxRequest;
typedef Berth__Common__V1__SessionSpec SessionSpec;

static bool set_volumes(const struct cp_holder *h, const SessionSpec *spec,
                        CreateSandboxRequest *req)
{
    bool own = spec && spec->n_volumes > 0;
    size_t n = own ? spec->n_volumes : h->config->settings->n_volumes;
    Berth__Common__V1__VolumeMount **from = own ? spec->volumes : h->config->settings->volumes;

    for (size_t i = 0; i < n; i++)
        if (!berth_add_message(&req->n_volumes, &req->volumes, berth_message_copy(from[i])))
            return false;
    return true;
}

static bool set_identity(const struct cp_holder *h, const SessionSpec *spec,
                         CreateSandboxRequest *req)
{
    const Berth__Common__V1__SessionRef *ref = cp_lock_ref(h->lock);
    const Berth__Binding__V1__Lock *grant = cp_lock_grant(h->lock);
    char key[CP_UNIQUE_KEY_SIZE];
    const struct cp_tags tags = {
        .deployment = h->cp->runtime->deployment,
        .tenant = ref->tenant_id,
        .session = ref->session_id,
        .config = h->config->config_id,
        .backend = h->config->target->backend,
        .account_hex = h->config->doc.account,
        .generation = req->image->generation,
        .fence = grant->fence,
        .attempt = grant->token.data,
        .attempt_size = grant->token.len,
        .create_ms = berth_now_ms(),
    };

    cp_unique_key(key, h->cp->runtime->deployment, ref->tenant_id, ref->session_id);
    req->fence = grant->fence;
    return berth_set_string(&req->unique_key, key) &&
           berth_set_bytes(&req->attempt, grant->token.data, grant->token.len) &&
           cp_set_tags(req, &tags, spec);
}

enum berth_code cp_make_create(const struct cp_holder *h, CreateSandboxRequest **ret,
                               struct berth_error *err)
{
    const SessionSpec *spec = h->grant->session->spec;
    CreateSandboxRequest *req;
    struct cp_policy policy;
    enum berth_code code;

    if (!h->grant->boot_image || !h->grant->boot_image->source_case)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "binding names no image to boot");
    code = cp_policy_resolve(h->config->settings, spec, h->config->info->capabilities, &policy,
                             err);
    if (code)
        return code;
    req = berth_message_new(&berth__backend__v1__create_sandbox_request__descriptor);
    if (!req) {
        cp_policy_deinit(&policy);
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    req->network = policy.network;
    req->timeouts = policy.timeouts;
    req->resources = policy.resources;
    req->target = berth_message_copy(h->config->target);
    req->image = berth_message_copy(h->grant->boot_image);
    if (!req->target || !req->image || !set_identity(h, spec, req) ||
        !cp_set_environment(req, h->config->settings, spec, cp_lock_ref(h->lock)) ||
        !set_volumes(h, spec, req)) {
        berth_message_free(req);
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    *ret = req;
    return BERTH_OK;
}

enum berth_code cp_note_missing(struct cp_holder *h, const struct berth_error *why,
                                struct berth_error *err)
{
    const Berth__Common__V1__SessionSpec *spec = h->grant->session->spec;
    const Berth__Common__V1__Image *image = h->grant->boot_image;
    enum berth_code code;

    if ((spec && spec->image && spec->image->source_case) ||
        image->source_case != BERTH__COMMON__V1__IMAGE__SOURCE_SNAPSHOT_ID) {
        if (err)
            *err = *why;
        return why->code;
    }
    code = cp_heal_image(h->cp, h->config, image->snapshot_id, err);
    return code ? code
                : berth_fail(err, BERTH_REASON_CONFLICT, "the image of the config is missing");
}
