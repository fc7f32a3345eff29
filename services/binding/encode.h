/* encode.h - own structs to messages of BindingService. Each message is heap-built as by
 * unpack; NULL: no memory. */
#pragma once

#include "services/binding/core.h"
#include "services/binding/store.h"

#include "berth/binding/v1/binding.pb-c.h"

/* NULL also where there is no record. */
Berth__Binding__V1__SessionRecord *binding_encode_record(const struct binding_ref *ref,
                                                         const struct binding_doc *doc);
Berth__Binding__V1__Binding *binding_encode_bound(const struct binding_bound *bound,
                                                  bool with_endpoint);
Berth__Common__V1__SessionRef *binding_encode_ref(const char *tenant_id,
                                                  const char *session_id);
Google__Protobuf__Timestamp *binding_encode_time(int64_t wall_ms);
Berth__Binding__V1__Lock *binding_encode_lock(const struct binding_view *view);
/* loss->set. */
Berth__Binding__V1__Loss *binding_encode_loss(const struct binding_loss *loss);

/* Whole answers. Errors: OUT_OF_MEMORY. */
BERTH_MUST_CHECK enum berth_code
binding_encode_acquire(const struct binding_ref *ref, const struct binding_view *view,
                       const struct binding_plan *plan, const char *turn_token,
                       ProtobufCMessage **ret_resp, struct berth_error *err);
BERTH_MUST_CHECK enum berth_code binding_encode_get(const struct binding_ref *ref,
                                                    const struct binding_view *view,
                                                    ProtobufCMessage **ret_resp,
                                                    struct berth_error *err);
/* One row of a list. */
Berth__Binding__V1__BoundSession *binding_encode_row(const struct binding_ref *ref,
                                                     const struct binding_view *view);
