/* follow.h - the control plane's word on what has changed (InternalService.WatchChanges):
 * tokens that were revoked and tenants that were disabled are looked up anew at once. While
 * there is no word what is kept ages as ever. */
#pragma once

#include "common/auth/auth.h"

struct berth_follow;

/* All borrowed until berth_follow_free(). */
BERTH_MUST_CHECK enum berth_code
berth_follow_new(struct berth_channel *controlplane, struct berth_loop *loop,
                 struct berth_auth *auth, struct berth_follow **ret, struct berth_error *err);
/* From the first token on; later calls do nothing. Any thread. */
void berth_follow_begin(struct berth_follow *follow);
/* Not from the loop, which runs still, if begin was called. Before its auth. NULL is fine. */
struct berth_follow *berth_follow_free(struct berth_follow *follow);
BERTH_DEFINE_AUTO(struct berth_follow *, berth_follow_free)
