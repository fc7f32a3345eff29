/* deployment.h - whose store is this, and is its index whole? (design section 1) */
#pragma once

#include "common/errors/errors.h"
#include "common/redis/redis.h"

/* Errors: FIELD_INVALID (deployment) for another deployment's store and for an empty one;
 * STORE_UNAVAILABLE. */
BERTH_MUST_CHECK enum berth_code berth_deployment_check(struct berth_redis *redis,
                                                        const char *deployment,
                                                        struct berth_error *err);
/* A deployment's first start: write its id and the epoch into an empty store. One that was cut
 * short may be repeated. Errors: FIELD_INVALID (init) for a store that is not empty;
 * STORE_UNAVAILABLE. */
BERTH_MUST_CHECK enum berth_code berth_deployment_init(struct berth_redis *redis,
                                                       const char *deployment,
                                                       struct berth_error *err);

/* What berth:epoch ends in once the index has been lost and recovered. */
#define BERTH_EPOCH_RECOVERED " recovered"
/* The index is lost now, or has been since the deployment began: absence in it proves less.
 * Errors: STORE_UNAVAILABLE. */
BERTH_MUST_CHECK enum berth_code berth_epoch_lost(struct berth_redis *redis, bool *ret,
                                                  struct berth_error *err);
/* BERTH_OK while berth:epoch is there. Errors: INDEX_RECOVERING, STORE_UNAVAILABLE. */
BERTH_MUST_CHECK enum berth_code berth_epoch_check(struct berth_redis *redis,
                                                   struct berth_error *err);
