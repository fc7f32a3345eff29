/* encode.h - the structs of this folder as messages of berth.common.v1, heap-built as by
 * unpack. NULL: out of memory. */
#pragma once

#include "berth/backend/v1/backend.pb-c.h"
#include "services/adapter/adapter.h"

Berth__Common__V1__Sandbox *encode_sandbox(const char *backend,
                                           const struct adapter_sandbox *sandbox);
Berth__Common__V1__Snapshot *encode_snapshot(const struct adapter_snapshot *snapshot);
Berth__Common__V1__Template *encode_template(const struct adapter_template *info);
/* For a backend with data plane ADAPTER. The target goes along without its credentials. */
Berth__Common__V1__DataPlaneEndpoint *
encode_endpoint(const Berth__Common__V1__BackendTarget *target, const char *sandbox_id,
                uint64_t fence);
Berth__Backend__V1__GetInfoResponse *encode_info(const char *backend,
                                                 const struct adapter_info *info);
/* Replace the empty string a fresh message has there; false: out of memory. */
bool encode_string(char **member, const char *value);
