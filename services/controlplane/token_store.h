/* token_store.h - tokens in Redis: the documents in the tenant's hash, and berth:token/<id>,
 * which says whose a token is. */
#pragma once

#include "common/auth/auth.h"
#include "common/records/token_doc.h"
#include "services/controlplane/controlplane.h"

enum { CP_TOKENS_MAX = 1000 };

/* Whose token is it? *ret_found false: there is none, or it has expired. tenant in the
 * principal is "" for one of the deployment. Errors: INDEX_RECOVERING (none, and the store may
 * have been lost), STORE_UNAVAILABLE, INTERNAL_BUG. */
BERTH_MUST_CHECK enum berth_code cp_token_find(struct cp *cp, const char *token_id,
                                               struct berth_principal *ret, bool *ret_found,
                                               struct berth_error *err);
/* For berth_auth_options.look; arg is the struct cp. */
void cp_token_look(void *arg, const char *token_id, struct berth_auth_look *look);

/* tenant below: an id, or BERTH_DEPLOYMENT_TENANT. */

/* Store a new one: its id is made here, until it is one that nobody has; text gets the secret.
 * Errors: TENANT_NOT_FOUND; QUOTA_EXCEEDED over CP_TOKENS_MAX; CONFLICT. */
BERTH_MUST_CHECK enum berth_code cp_token_add(struct cp *cp, const char *tenant, bool e2b_shape,
                                              struct berth_token_doc *doc,
                                              char text[BERTH_TOKEN_SIZE],
                                              struct berth_error *err);
/* Errors: TENANT_NOT_FOUND, TOKEN_NOT_FOUND, CONFLICT. */
BERTH_MUST_CHECK enum berth_code cp_token_remove(struct cp *cp, const char *tenant,
                                                 const char *token_id, struct berth_error *err);
/* All of them by id; *ret is owned. */
BERTH_MUST_CHECK enum berth_code cp_token_list(struct cp *cp, const char *tenant,
                                               struct berth_token_doc **ret, size_t *ret_n,
                                               struct berth_error *err);
