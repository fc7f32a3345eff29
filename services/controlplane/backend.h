/* backend.h - calls to adapters. Blocking: on a worker, inside a bulkhead job. */
#pragma once

#include "berth/backend/v1/backend.pb-c.h"
#include "services/controlplane/controlplane.h"

/* The adapter of a backend. Errors: FIELD_INVALID: no such backend is known. */
BERTH_MUST_CHECK enum berth_code cp_adapter_find(struct cp *cp, const char *backend,
                                                 struct berth_channel **ret,
                                                 struct berth_error *err);

/* One call. traceparent: of the call this belongs to, or NULL. *ret_resp is owned.
 * Errors: the adapter's, with err->backend set. */
BERTH_MUST_CHECK enum berth_code cp_backend_call(struct cp *cp, const char *backend,
                                                 const char *path, const ProtobufCMessage *req,
                                                 const ProtobufCMessageDescriptor *resp_type,
                                                 int64_t timeout_ms, const char *traceparent,
                                                 void *ret_resp, struct berth_error *err);

BERTH_MUST_CHECK enum berth_code cp_backend_info(struct cp *cp,
                                                 const Berth__Common__V1__BackendTarget *target,
                                                 const char *traceparent,
                                                 Berth__Backend__V1__GetInfoResponse **ret,
                                                 struct berth_error *err);

/* The bulkhead's name for where a target's calls go. */
void cp_backend_endpoint(char *buf, size_t size, const char *backend, const char *api_url);

/* Nothing was done there: what was asked for is known not to take effect (protocol section 3:
 * a definite refusal). A time-out or a lost answer never is one. */
bool cp_is_refusal(enum berth_code code);
/* Proven gone, if asked under its own account: the sandbox itself, by our adapter's own word.
 */
bool cp_is_gone(const struct berth_error *err);

/* Answer a unary call later, from a worker, inside the bulkhead of the backend: fn is run as if
 * it were the handler. Returns BERTH_DEFERRED, or the error that the caller answers with. */
BERTH_MUST_CHECK enum berth_code cp_defer(struct cp *cp, struct berth_call *call,
                                          const ProtobufCMessage *req, const char *backend,
                                          const char *api_url, berth_unary_fn fn,
                                          struct berth_error *err);
