/* present.h - a session and the way to its sandbox, as the control plane answers them. */
#pragma once

#include "berth/binding/v1/binding.pb-c.h"
#include "berth/control/v1/control.pb-c.h"
#include "services/controlplane/controlplane.h"

/* What is told of a session besides its record and binding. */
struct cp_session_facts {
    bool stale;
    bool turn_running;
    const Berth__Binding__V1__Loss *loss; /* the last one, where it is to be shown; or NULL */
};

/* Owned. NULL: no memory. */
Berth__Control__V1__SandboxLoss *cp_show_loss(const Berth__Binding__V1__Loss *loss);
/* What was lost, in words, behind what is in the list. False: no memory. */
bool cp_add_lost(size_t *n, char ***list, const Berth__Binding__V1__Loss *loss);

/* config NULL: the sandbox is shown without its policies. binding NULL: nothing is bound.
 * Owned. NULL: no memory. No endpoint, no token. */
Berth__Control__V1__Session *cp_show_session(const struct cp_config *config,
                                             const Berth__Binding__V1__SessionRecord *record,
                                             const Berth__Binding__V1__Binding *binding,
                                             const struct cp_session_facts *facts);

/* Seal an adapter's endpoint for binding to keep: without its target, which the config gives.
 */
BERTH_MUST_CHECK enum berth_code
cp_seal_endpoint(struct cp *cp, const Berth__Common__V1__SessionRef *ref,
                 const char *sandbox_id, const Berth__Common__V1__DataPlaneEndpoint *endpoint,
                 ProtobufCBinaryData *ret, struct berth_error *err);
/* The same endpoint under the key that seals now; *ret is owned. Errors: BACKEND_AUTHENTICATION
 * where it does not open. */
BERTH_MUST_CHECK enum berth_code cp_reseal_endpoint(struct cp *cp,
                                                    const Berth__Common__V1__SessionRef *ref,
                                                    const Berth__Binding__V1__Binding *binding,
                                                    ProtobufCBinaryData *ret,
                                                    struct berth_error *err);
/* And open it again; owned. An empty one gives an endpoint with nothing but the sandbox. */
BERTH_MUST_CHECK enum berth_code cp_open_endpoint(struct cp *cp,
                                                  const Berth__Common__V1__SessionRef *ref,
                                                  const Berth__Binding__V1__Binding *binding,
                                                  Berth__Common__V1__DataPlaneEndpoint **ret,
                                                  struct berth_error *err);

/* The route to the bound sandbox. loss: what is to be told, or NULL. *ret is owned. */
BERTH_MUST_CHECK enum berth_code cp_show_route(struct cp *cp, const struct cp_config *config,
                                               const Berth__Binding__V1__SessionRecord *record,
                                               const Berth__Binding__V1__Binding *binding,
                                               const Berth__Binding__V1__Loss *loss,
                                               Berth__Control__V1__ResolveRouteResponse **ret,
                                               struct berth_error *err);
