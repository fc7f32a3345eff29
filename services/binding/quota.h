/* quota.h - how many sessions a tenant has, against how many it may have. */
#pragma once

#include <stdint.h>

#include "common/redis/redis.h"

/**
 * binding_quota_check() - may the tenant have one session more?
 * @ret_rev: of berth:{t}:q as it was before we counted: who adds one expects it and makes it
 * new, so that nobody else can have added one since; 17 bytes
 *
 * Errors: QUOTA_EXCEEDED; STORE_UNAVAILABLE.
 */
BERTH_MUST_CHECK enum berth_code binding_quota_check(struct berth_redis *redis,
                                                     const char *tenant_id,
                                                     uint32_t max_sessions, char *ret_rev,
                                                     struct berth_error *err);
