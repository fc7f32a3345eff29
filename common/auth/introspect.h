/* introspect.h - looking tokens up for services other than the control plane, which is asked,
 * and which tells of changes, so that what was revoked is out at once. */
#pragma once

#include "berth/control/v1/control.pb-c.h"
#include "common/auth/auth.h"

/* For berth_auth_options.arg; lives until berth_auth_free(). */
struct berth_introspect {
    struct berth_channel *controlplane;
    struct berth_pool *pool;     /* where answers are taken */
    struct berth_follow *follow; /* or NULL: entries only age */
};

/* For berth_auth_options.look; arg is the struct berth_introspect. */
void berth_introspect_look(void *arg, const char *token_id, struct berth_auth_look *look);

/* Errors: INTERNAL_BUG for an answer that does not validate. */
BERTH_MUST_CHECK enum berth_code
berth_introspect_decode(const Berth__Control__V1__IntrospectTokenResponse *resp,
                        struct berth_principal *ret, struct berth_error *err);
/* And the way there. Owned; NULL: no memory. */
Berth__Control__V1__IntrospectTokenResponse *
berth_introspect_encode(const struct berth_principal *principal);
