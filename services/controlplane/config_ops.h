/* config_ops.h - what the handlers of ConfigService share. */
#pragma once

#include "services/controlplane/config_store.h"

#define CP_HANDLER(name)                                                                       \
    static enum berth_code name(void *service, struct berth_call *call,                        \
                                const ProtobufCMessage *message, ProtobufCMessage **ret_resp,  \
                                struct berth_error *err)

/* Both ids, as fields tenant_id and config_id. */
BERTH_MUST_CHECK enum berth_code cp_check_config_ref(const char *tenant, const char *config_id,
                                                     struct berth_error *err);
/* Page tokens are the last id of the page before; *ret_after is borrowed from page. */
BERTH_MUST_CHECK enum berth_code cp_check_page(const Berth__Common__V1__PageRequest *page,
                                               uint32_t *ret_size, const char **ret_after,
                                               struct berth_error *err);

/* As cp_config_read(); no config is CONFIG_NOT_FOUND. */
BERTH_MUST_CHECK enum berth_code cp_config_must_read(struct cp *cp, const char *tenant,
                                                     const char *config_id,
                                                     struct cp_config_read *ret,
                                                     struct berth_error *err);

/* Fill info and target of a config from its settings: seal the credentials, ask the adapter,
 * and compute the account. info and target must be NULL before. Blocking: in the bulkhead.
 * Errors: the adapter's; FINGERPRINT_EMPTY; OUT_OF_MEMORY. */
BERTH_MUST_CHECK enum berth_code
cp_config_connect(struct cp *cp, struct cp_config *config,
                  const Berth__Control__V1__Credentials *credentials, const char *traceparent,
                  struct berth_error *err);

/* Can the backend do what the settings ask for? Errors: CAPABILITY_MISSING. */
BERTH_MUST_CHECK enum berth_code cp_config_capable(const struct cp_config *config,
                                                   struct berth_error *err);

/* A new etag and update_time; created: create_time, too. False: no memory. */
bool cp_config_stamp(Berth__Control__V1__SandboxConfig *settings, bool created);

/* A config was read because it is in use: ask its adapter once a minute what it can do, and
 * keep what has changed. In the background. For cp_cache_options.in_use; arg is the struct cp.
 */
void cp_config_in_use(void *arg, struct cp_config *config);
