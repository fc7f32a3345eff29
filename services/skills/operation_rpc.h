/* operation_rpc.h - operations as the API shows them, and what its methods have in common. */
#pragma once

#include "berth/skills/v1/skills.pb-c.h"
#include "services/skills/ledger.h"
#include "services/skills/operation.h"

/* Owned; NULL: no memory. */
Berth__Skills__V1__SkillOperation *operation_show(const struct operation *operation);

/* Is the operation one that the caller's token is good for? To another one it is as if it were
 * not there. Errors: OPERATION_NOT_FOUND. */
BERTH_MUST_CHECK enum berth_code operation_check_reach(const struct berth_call *call,
                                                       const struct operation *operation,
                                                       struct berth_error *err);

/* The config as it stands, where its image may be changed: it is there, has an account, and its
 * backend can make snapshots. *ret is to be deinit'ed. Errors: CONFIG_NOT_FOUND,
 * TENANT_NOT_FOUND, TENANT_DISABLED, FINGERPRINT_EMPTY, CAPABILITY_MISSING; those of the peers.
 */
BERTH_MUST_CHECK enum berth_code
operation_check_config(struct skills *skills, const struct berth_call *call, const char *tenant,
                       const char *config_id, struct ledger *ret, struct berth_error *err);

/* WatchOperation's. Free it after the server has stopped. */
BERTH_MUST_CHECK enum berth_code
skills_watches_new(struct skills *skills, struct skills_watches **ret, struct berth_error *err);
struct skills_watches *skills_watches_free(struct skills_watches *watches); /* NULL is fine */

extern const struct berth_method skills_watch_methods[];
extern const size_t skills_n_watch_methods;
extern const struct berth_method skills_operation_methods[];
extern const size_t skills_n_operation_methods;
