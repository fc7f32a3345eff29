/* config_store.h - configs in Redis: read one whole, write one by compare-and-set, and the
 * two-step closing that a change of identity and a delete need. Blocking. */
#pragma once

#include "services/controlplane/controlplane.h"
#include "services/controlplane/requests.h"

/* A config with its rows, and its tenant, as read in one trip. */
struct cp_config_read {
    struct cp_config *config; /* owned; NULL: there is none */
    char rev[17];             /* of the config's key; "": absent */
    struct berth_tenant_doc tenant;
};
void cp_config_read_deinit(struct cp_config_read *read);

/* Errors: TENANT_NOT_FOUND, STORE_UNAVAILABLE, INTERNAL_BUG. Not CONFIG_NOT_FOUND. */
BERTH_MUST_CHECK enum berth_code cp_config_read(struct cp *cp, const char *tenant,
                                                const char *config_id,
                                                struct cp_config_read *ret,
                                                struct berth_error *err);

/* Write config over what was read, with an event. change: "created", "updated", ... state: as
 * in the document. *ret_applied false: somebody else was faster; read again. Errors:
 * STORE_UNAVAILABLE, OUTCOME_UNKNOWN, OUT_OF_MEMORY. */
BERTH_MUST_CHECK enum berth_code cp_config_store(struct cp *cp,
                                                 const struct cp_config_read *read,
                                                 const struct cp_config *config,
                                                 const char *state, const char *change,
                                                 bool *ret_applied, struct berth_error *err);
/* The same for one that was not there, with the answer to the request that makes it. */
BERTH_MUST_CHECK enum berth_code
cp_config_store_new(struct cp *cp, const struct cp_config_read *read,
                    const struct cp_config *config, const struct cp_request *request,
                    const ProtobufCMessage *answer, bool *ret_applied, struct berth_error *err);
/* Remove it. */
BERTH_MUST_CHECK enum berth_code cp_config_remove(struct cp *cp,
                                                  const struct cp_config_read *read,
                                                  bool *ret_applied, struct berth_error *err);

/* Close the config for new sessions (state "deleting"), then look whether anything uses it.
 * What was read is read again. On BERTH_OK nothing does, and nothing will until it is stored
 * again; otherwise it is open again. Errors: CONFIG_IN_USE, CONFLICT, STORE_UNAVAILABLE,
 * OUTCOME_UNKNOWN. */
BERTH_MUST_CHECK enum berth_code cp_config_close(struct cp *cp, struct cp_config_read *read,
                                                 struct berth_error *err);

/* At most size config ids of the tenant behind after ("": from the first), in order. */
BERTH_MUST_CHECK enum berth_code cp_config_ids(struct cp *cp, const char *tenant,
                                               const char *after, uint32_t size,
                                               struct berth_reply **ret,
                                               struct berth_error *err);

/* All tenants, sorted: the hint, so that some may not be there any more. */
BERTH_MUST_CHECK enum berth_code cp_tenant_ids(struct cp *cp, struct berth_reply **ret,
                                               struct berth_error *err);
