/* enter.c - what every call needs before anything else: our own store, and a tenant. */
#include "common/log/log.h"
#include "common/messages/messages.h"
#include "common/records/deployment.h"
#include "services/controlplane/binding.h"
#include "services/controlplane/controlplane.h"

/* A store that could not be reached at the start is judged at the first call that reaches it.
 */
enum berth_code cp_enter(struct cp *cp, struct berth_error *err)
{
    enum berth_code code;

    if (atomic_load_explicit(&cp->store_checked, memory_order_acquire))
        return BERTH_OK;
    code = berth_deployment_check(cp->redis, cp->runtime->deployment, err);
    if (code == BERTH_INVALID_ARGUMENT) {
        berth_log_error("the store is not this deployment's, serving nothing from it", "error",
                        err ? err->text : "");
        return berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE,
                          "the store is not this deployment's");
    }
    if (!code)
        atomic_store_explicit(&cp->store_checked, true, memory_order_release);
    return code;
}

enum berth_code cp_enter_tenant(struct cp *cp, const char *tenant, bool even_disabled,
                                struct berth_error *err)
{
    struct berth_tenant_doc doc;
    enum berth_code code = cp_enter(cp, err);

    if (!code)
        code = cp_cache_tenant(cp->cache, tenant, &doc, err);
    if (!code && doc.disabled && !even_disabled)
        code = berth_fail(err, BERTH_REASON_TENANT_DISABLED, "tenant '%s' is disabled", tenant);
    return code;
}

/* A tombstone has no config: only who may make the session anew may touch it. */
static enum berth_code check_config(struct cp *cp, const Berth__Common__V1__SessionRef *ref,
                                    const char *only_config, bool may_make,
                                    struct berth_error *err)
{
    Berth__Binding__V1__GetBindingResponse *got = NULL;
    struct berth_error why = {0};
    enum berth_code code = cp_binding_get(cp, ref, &got, &why);
    const Berth__Common__V1__SessionSpec *spec = code ? NULL : got->session->spec;

    if (code == BERTH_NOT_FOUND && may_make)
        code = BERTH_OK;
    else if (!code && (spec ? strcmp(spec->config_id, only_config) != 0 : !may_make))
        code = berth_fail(&why, BERTH_REASON_SESSION_NOT_FOUND, NULL);
    berth_message_free(got);
    if (code && err)
        *err = why;
    return code;
}

enum berth_code cp_enter_session(struct cp *cp, const Berth__Common__V1__SessionRef *ref,
                                 const char *only_config, bool may_make, bool even_disabled,
                                 struct berth_error *err)
{
    enum berth_code code = cp_enter_tenant(cp, ref->tenant_id, even_disabled, err);

    return code || !*only_config ? code : check_config(cp, ref, only_config, may_make, err);
}
