/* fake_internal.h - what the parts of the fake adapter share. */
#pragma once

#include "tests/component/controlplane/fake_adapter.h"

#define NEW(name) berth_message_new(&berth__backend__v1__##name##__descriptor)
#define HANDLER(name)                                                                          \
    static enum berth_code name(void *service, struct berth_call *call,                        \
                                const ProtobufCMessage *message, ProtobufCMessage **ret_resp,  \
                                struct berth_error *err)

#define METHOD(service, name, type, fn)                                                        \
    {                                                                                          \
        "/berth.backend.v1." service "/" name,                                                 \
            &berth__backend__v1__##type##_request__descriptor, .unary = (fn)                   \
    }

/* Called with the mutex held: logs the call and takes what the script says. */
struct fake_script fake_begin(struct fake_adapter *fake, enum fake_method method,
                              const char *sandbox_id, uint64_t fence,
                              const Google__Protobuf__Timestamp *not_after);
/* Called with the mutex held: how the call ends once it was done. */
enum berth_code fake_end(struct fake_adapter *fake, const struct fake_script *script,
                         struct berth_error *err);
enum berth_code fake_not_found(const char *id, struct berth_error *err);

extern const struct berth_method fake_catalog_methods[];
extern const size_t fake_n_catalog_methods;
