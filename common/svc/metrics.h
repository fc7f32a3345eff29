/* metrics.h - Prometheus text by HTTP, on loopback; for common/svc only. */
#pragma once

#include "common/svc/svc.h"

struct svc_metrics;

struct svc_metrics_source {
    const struct berth_service *service;
    void *state;                 /* the service, for its own metrics */
    struct berth_server *server; /* borrowed till free */
    const char *deployment;
};

/* Serves GET /metrics on address (a loopback address, see address.h) by a thread of its own.
 * Errors: FIELD_INVALID when the address cannot be listened on. */
BERTH_MUST_CHECK enum berth_code svc_metrics_new(const char *address,
                                                 const struct svc_metrics_source *source,
                                                 struct svc_metrics **ret,
                                                 struct berth_error *err);
struct svc_metrics *svc_metrics_free(struct svc_metrics *metrics); /* NULL is fine */
