#include "services/controlplane/present.h"

#include <stdio.h>

#include "common/messages/messages.h"
#include "common/records/target.h"
#include "services/controlplane/config_check.h"
#include "services/controlplane/names.h"
#include "services/controlplane/policy.h"

typedef Berth__Binding__V1__Binding Binding;
typedef Berth__Binding__V1__Loss Loss;
typedef Berth__Binding__V1__SessionRecord SessionRecord;
typedef Berth__Common__V1__DataPlaneEndpoint DataPlaneEndpoint;
typedef Berth__Common__V1__Sandbox Sandbox;
typedef Berth__Control__V1__ResolveRouteResponse ResolveRouteResponse;
typedef Berth__Control__V1__SandboxLoss SandboxLoss;
typedef Berth__Control__V1__Session Session;

/* A copy where there is something to copy; false: no memory. */
static bool copy_into(void *slot, const void *message)
{
    void *copy;

    if (!message)
        return true;
    copy = berth_message_copy(message);
    memcpy(slot, &copy, sizeof copy);
    return copy != NULL;
}

/* ------------------------------------------------------------------ session */

static Berth__Common__V1__SandboxState state_of(Berth__Binding__V1__Power power)
{
    switch (power) {
    case BERTH__BINDING__V1__POWER__POWER_RUNNING:
        return BERTH__COMMON__V1__SANDBOX_STATE__SANDBOX_STATE_RUNNING;
    case BERTH__BINDING__V1__POWER__POWER_PAUSED:
        return BERTH__COMMON__V1__SANDBOX_STATE__SANDBOX_STATE_PAUSED;
    case BERTH__BINDING__V1__POWER__POWER_PAUSING:
        return BERTH__COMMON__V1__SANDBOX_STATE__SANDBOX_STATE_TRANSITIONING;
    default:
        return BERTH__COMMON__V1__SANDBOX_STATE__SANDBOX_STATE_UNKNOWN;
    }
}

static bool show_policy(const struct cp_config *config, const SessionRecord *record,
                        Sandbox *out)
{
    struct cp_policy policy;

    if (!config)
        return true;
    if (cp_policy_resolve(config->settings, record->spec, config->info->capabilities, &policy,
                          NULL))
        return false;
    out->timeouts = policy.timeouts;
    out->network = policy.network;
    out->resources = policy.resources;
    return true;
}

static Sandbox *show_sandbox(const struct cp_config *config, const SessionRecord *record,
                             const Binding *binding)
{
    Sandbox *out = berth_message_new(&berth__common__v1__sandbox__descriptor);

    if (!out)
        return NULL;
    out->state = state_of(binding->power);
    if (berth_set_string(&out->sandbox_id, binding->sandbox_id) &&
        berth_set_string(&out->backend, binding->backend) &&
        copy_into(&out->image, binding->image) &&
        copy_into(&out->create_time, binding->create_time) &&
        copy_into(&out->end_time, binding->end_time) && show_policy(config, record, out))
        return out;
    return berth_message_free(out);
}

bool cp_add_lost(size_t *n, char ***list, const Loss *loss)
{
    char left[96];

    snprintf(left, sizeof left,
             "workspace_entries: %llu under /workspace that could not be carried",
             (unsigned long long)loss->workspace_entries);
    return (!loss->memory ||
            berth_add_string(n, list, "memory: the processes that were running")) &&
           (!loss->workspace ||
            berth_add_string(n, list, "workspace: the files under /workspace")) &&
           (loss->workspace || !loss->workspace_entries || berth_add_string(n, list, left)) &&
           (!loss->packages ||
            berth_add_string(n, list, "packages: what was installed outside /workspace"));
}

SandboxLoss *cp_show_loss(const Loss *loss)
{
    static const Berth__Control__V1__ResolveOutcome outcomes[] = {
        [BERTH__BINDING__V1__LOSS_CAUSE__LOSS_CAUSE_MEMORY] =
            BERTH__CONTROL__V1__RESOLVE_OUTCOME__RESOLVE_OUTCOME_RESUMED,
        [BERTH__BINDING__V1__LOSS_CAUSE__LOSS_CAUSE_REBUILT] =
            BERTH__CONTROL__V1__RESOLVE_OUTCOME__RESOLVE_OUTCOME_REBUILT,
    };
    SandboxLoss *out = berth_message_new(&berth__control__v1__sandbox_loss__descriptor);

    if (!out)
        return NULL;
    out->number = loss->number;
    out->outcome = BERTH__CONTROL__V1__RESOLVE_OUTCOME__RESOLVE_OUTCOME_REPLACED;
    if ((size_t)loss->cause < BERTH_COUNT(outcomes) && outcomes[loss->cause])
        out->outcome = outcomes[loss->cause];
    if (cp_add_lost(&out->n_lost, &out->lost, loss) &&
        berth_set_string(&out->sandbox_id, loss->sandbox_id) &&
        copy_into(&out->lost_time, loss->lost_time) &&
        copy_into(&out->told_time, loss->told_time))
        return out;
    return berth_message_free(out);
}

Session *cp_show_session(const struct cp_config *config, const SessionRecord *record,
                         const Binding *binding, const struct cp_session_facts *facts)
{
    Session *out = berth_message_new(&berth__control__v1__session__descriptor);

    if (!out)
        return NULL;
    out->state = record->state;
    out->stale = facts->stale;
    out->turn_running = facts->turn_running;
    out->version = record->version;
    if (copy_into(&out->ref, record->ref) && copy_into(&out->spec, record->spec) &&
        copy_into(&out->create_time, record->create_time) &&
        berth_set_string(&out->alias, record->alias) &&
        berth_set_string(&out->created_by, record->created_by) &&
        (!facts->loss || (out->last_loss = cp_show_loss(facts->loss))) &&
        (!binding || (out->sandbox = show_sandbox(config, record, binding))))
        return out;
    return berth_message_free(out);
}

/* ----------------------------------------------------------------- endpoint */

static enum berth_code associated(const Berth__Common__V1__SessionRef *ref,
                                  const char *sandbox_id, uint8_t **ret, size_t *ret_size,
                                  struct berth_error *err)
{
    const char *const parts[] = {"endpoint", ref->tenant_id, ref->session_id, sandbox_id};

    return berth_associated(parts, BERTH_COUNT(parts), ret, ret_size, err);
}

enum berth_code cp_seal_endpoint(struct cp *cp, const Berth__Common__V1__SessionRef *ref,
                                 const char *sandbox_id, const DataPlaneEndpoint *endpoint,
                                 ProtobufCBinaryData *ret, struct berth_error *err)
{
    BERTH_AUTO(free) uint8_t *bound_to = NULL, *plain = NULL;
    DataPlaneEndpoint bare = *endpoint; /* borrows */
    size_t bound_to_size, size;
    enum berth_code code = associated(ref, sandbox_id, &bound_to, &bound_to_size, err);

    if (code)
        return code;
    bare.target = NULL;
    size = protobuf_c_message_get_packed_size(&bare.base);
    plain = malloc(size + 1);
    if (!plain)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    protobuf_c_message_pack(&bare.base, plain);
    code = berth_seal(cp->keyring, plain, size, bound_to, bound_to_size, &ret->data, &ret->len,
                      err);
    berth_wipe(plain, size);
    return code;
}

enum berth_code cp_reseal_endpoint(struct cp *cp, const Berth__Common__V1__SessionRef *ref,
                                   const Binding *binding, ProtobufCBinaryData *ret,
                                   struct berth_error *err)
{
    BERTH_AUTO(free) uint8_t *bound_to = NULL, *plain = NULL;
    size_t bound_to_size, size = 0;
    enum berth_code code = associated(ref, binding->sandbox_id, &bound_to, &bound_to_size, err);

    if (!code)
        code = berth_open_sealed(cp->keyring, binding->sealed_endpoint.data,
                                 binding->sealed_endpoint.len, bound_to, bound_to_size, &plain,
                                 &size, err);
    if (code)
        return code;
    code = berth_seal(cp->keyring, plain, size, bound_to, bound_to_size, &ret->data, &ret->len,
                      err);
    berth_wipe(plain, size);
    return code;
}

enum berth_code cp_open_endpoint(struct cp *cp, const Berth__Common__V1__SessionRef *ref,
                                 const Binding *binding, DataPlaneEndpoint **ret,
                                 struct berth_error *err)
{
    BERTH_AUTO(free) uint8_t *bound_to = NULL, *plain = NULL;
    size_t bound_to_size, size = 0;
    DataPlaneEndpoint *endpoint;
    enum berth_code code;

    if (binding->sealed_endpoint.len == 0) {
        endpoint = berth_message_new(&berth__common__v1__data_plane_endpoint__descriptor);
    } else {
        code = associated(ref, binding->sandbox_id, &bound_to, &bound_to_size, err);
        if (!code)
            code = berth_open_sealed(cp->keyring, binding->sealed_endpoint.data,
                                     binding->sealed_endpoint.len, bound_to, bound_to_size,
                                     &plain, &size, err);
        if (code)
            return berth_fail(err, BERTH_REASON_INTERNAL_BUG,
                              "the stored endpoint of sandbox %s does not open",
                              binding->sandbox_id);
        endpoint = (DataPlaneEndpoint *)protobuf_c_message_unpack(
            &berth__common__v1__data_plane_endpoint__descriptor, NULL, size, plain);
        berth_wipe(plain, size);
    }
    if (!endpoint || !berth_set_string(&endpoint->sandbox_id, binding->sandbox_id)) {
        berth_message_free(endpoint);
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    endpoint->fence = binding->fence;
    *ret = endpoint;
    return BERTH_OK;
}

static bool show_limits(const struct cp_config *config, ResolveRouteResponse *out)
{
    const Berth__Control__V1__SandboxConfig *settings = config->settings;
    int64_t max_ms =
        berth_duration_ms(settings->command_timeout_max, CP_COMMAND_TIMEOUT_MAX_DEFAULT_MS);
    int64_t timeout_ms = berth_duration_ms(settings->command_timeout, -1);

    if (timeout_ms < 0) {
        timeout_ms = CP_COMMAND_TIMEOUT_DEFAULT_MS;
        if (max_ms > 0 && timeout_ms > max_ms)
            timeout_ms = max_ms;
    }
    out->root_commands = settings->root_commands;
    out->command_timeout = berth_duration(timeout_ms);
    out->command_timeout_max = berth_duration(max_ms);
    return out->command_timeout && out->command_timeout_max;
}

enum berth_code cp_show_route(struct cp *cp, const struct cp_config *config,
                              const SessionRecord *record, const Binding *binding,
                              const Loss *loss, ResolveRouteResponse **ret,
                              struct berth_error *err)
{
    ResolveRouteResponse *out =
        berth_message_new(&berth__control__v1__resolve_route_response__descriptor);
    enum berth_code code;

    if (!out)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    code = cp_open_endpoint(cp, record->ref, binding, &out->endpoint, err);
    if (code) {
        berth_message_free(out);
        return code;
    }
    if (!out->endpoint->kind)
        out->endpoint->kind = config->info->data_plane;
    out->maintenance = cp_is_maintenance(record->ref->session_id);
    if (!copy_into(&out->endpoint->target, config->target) ||
        !copy_into(&out->capabilities, config->info->capabilities) ||
        (loss && !(out->loss = cp_show_loss(loss))) || !show_limits(config, out)) {
        berth_message_free(out);
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    *ret = out;
    return BERTH_OK;
}
