/* recover.h - the index after a loss (protocol section 3, RECOVERY). A thread looks once a
 * second at berth:epoch; while it is missing, and all journals are read back (common/journal),
 * one control plane lists every config once, binds what it finds to its sessions, and sets the
 * epoch. Until then binding creates and reaps nothing.
 *
 * The epoch is one for the whole deployment. A config whose backend cannot be listed must not
 * hold up everybody else: it is tried a few times, then marked (its tenant gets the field
 * `recovering`), the epoch is set, and it is tried again every few seconds. Until it is
 * through, sessions of its tenant that have no record answer INDEX_RECOVERING, for their
 * sandbox may be there; those that were found go on. `--recover-without TENANT/CONFIG` gives it
 * up. */
#pragma once

#include "services/controlplane/controlplane.h"

struct cp_recover;

/* Starts the thread. Errors: OVERLOADED. */
BERTH_MUST_CHECK enum berth_code cp_recover_new(struct cp *cp, struct cp_recover **ret,
                                                struct berth_error *err);
/* Ends it. NULL is fine. */
struct cp_recover *cp_recover_free(struct cp_recover *recover);

/* List one config, and bind every sandbox with valid tags that is not bound. Blocking. Safe at
 * any time: nothing is created, deleted or woken. *ret_adopted counts.
 * Errors: CONFIG_NOT_FOUND; BACKEND_UNAVAILABLE and others of the backend, where the list is
 * not whole; those of binding. */
BERTH_MUST_CHECK enum berth_code cp_recover_target(struct cp *cp, const char *tenant,
                                                   const char *config_id, uint32_t *ret_found,
                                                   uint32_t *ret_adopted,
                                                   struct berth_error *err);
