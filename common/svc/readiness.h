/* readiness.h - asks the service once a second whether it can serve; for common/svc only. */
#pragma once

#include "common/svc/svc.h"

struct svc_readiness;

/* Sets the health of every service name by ready(), from a thread of its own; without a ready()
 * all serve at once. Errors: OUT_OF_MEMORY, OVERLOADED (no thread). */
BERTH_MUST_CHECK enum berth_code svc_readiness_new(const struct berth_service *service,
                                                   void *state, struct berth_server *server,
                                                   struct svc_readiness **ret,
                                                   struct berth_error *err);
/* No more questions; health stays as it is. NULL is fine. */
struct svc_readiness *svc_readiness_free(struct svc_readiness *readiness);
