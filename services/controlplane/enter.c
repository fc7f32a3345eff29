/* enter.c - what every call needs before anything else: our own store, and a tenant. */
#include "common/log/log.h"
#include "common/records/deployment.h"
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
