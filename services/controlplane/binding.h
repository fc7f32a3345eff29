/* binding.h - the calls to berth-binding that more than one handler makes. Blocking. */
#pragma once

#include "berth/binding/v1/binding.pb-c.h"
#include "services/controlplane/controlplane.h"

/* One call. *ret is owned. idempotent: tried again where nothing was done. */
BERTH_MUST_CHECK enum berth_code cp_binding_call(struct cp *cp, struct berth_call *call,
                                                 const char *path, const ProtobufCMessage *req,
                                                 const ProtobufCMessageDescriptor *resp_type,
                                                 bool idempotent, void *ret,
                                                 struct berth_error *err);

/* The session as it stands; (*ret)->session is not NULL. Errors: SESSION_NOT_FOUND. */
BERTH_MUST_CHECK enum berth_code cp_binding_get(struct cp *cp,
                                                const Berth__Common__V1__SessionRef *ref,
                                                Berth__Binding__V1__GetBindingResponse **ret,
                                                struct berth_error *err);

/* A client has been told of a loss. */
BERTH_MUST_CHECK enum berth_code cp_loss_told(struct cp *cp,
                                              const Berth__Common__V1__SessionRef *ref,
                                              uint64_t number, struct berth_error *err);

/* The config of a record; *ret NULL for a tombstone, which has none. */
BERTH_MUST_CHECK enum berth_code
cp_session_config(struct cp *cp, const Berth__Binding__V1__SessionRecord *record,
                  struct cp_config **ret, struct berth_error *err);
