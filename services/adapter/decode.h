/* decode.h - requests of berth.backend.v1 as the structs of this folder; every field is checked
 * here and nowhere else. What comes back borrows from the message. */
#pragma once

#include "berth/backend/v1/backend.pb-c.h"
#include "services/adapter/adapter.h"

enum {
    ADAPTER_METADATA_MAX = 256,     /* pairs */
    ADAPTER_METADATA_KEY_MAX = 200, /* characters */
    ADAPTER_METADATA_VALUE_MAX = 1024,
    ADAPTER_ENV_MAX = 1024, /* pairs */
    ADAPTER_ENV_VALUE_MAX = 64 << 10,
    ADAPTER_ENV_BYTES_MAX = 512 << 10, /* names and values together */
    ADAPTER_ATTEMPT_MAX = 64,          /* bytes */
    ADAPTER_SNAPSHOT_NAME_MAX = 63     /* characters */
};

/* A whole create; free with decode_create_deinit(). */
struct decoded_create {
    struct adapter_create create;
    char attempt[ADAPTER_ATTEMPT_SIZE];
};
BERTH_MUST_CHECK enum berth_code
decode_create(const Berth__Backend__V1__CreateSandboxRequest *req, const char *backend,
              const struct adapter_info *info, struct decoded_create *ret,
              struct berth_error *err);
void decode_create_deinit(struct decoded_create *decoded);

/* Pairs that borrow: free the two arrays, not what they hold. */
void decode_pairs_deinit(struct adapter_pairs *pairs);
BERTH_MUST_CHECK enum berth_code
decode_snapshot_metadata(const Berth__Backend__V1__CreateSnapshotRequest *req,
                         struct adapter_pairs *ret, struct berth_error *err);
BERTH_MUST_CHECK enum berth_code
decode_metadata_filter(const Berth__Backend__V1__ListSandboxesRequest *req,
                       struct adapter_pairs *ret, struct berth_error *err);

/* Present, and of this backend. */
BERTH_MUST_CHECK enum berth_code decode_target(const Berth__Common__V1__BackendTarget *target,
                                               const char *backend, struct berth_error *err);
/* The clock is looked at here: a grant whose time is over fails with DEADLINE. */
BERTH_MUST_CHECK enum berth_code decode_grant(uint64_t fence,
                                              const Google__Protobuf__Timestamp *not_after,
                                              struct adapter_grant *ret,
                                              struct berth_error *err);
BERTH_MUST_CHECK enum berth_code decode_time(const char *field,
                                             const Google__Protobuf__Timestamp *time,
                                             int64_t *ret_ms, struct berth_error *err);
/* whole: idle, on_idle and auto_resume must be said. */
BERTH_MUST_CHECK enum berth_code decode_timeouts(const Berth__Common__V1__TimeoutPolicy *policy,
                                                 const struct adapter_info *info, bool whole,
                                                 struct adapter_timeouts *ret,
                                                 struct berth_error *err);
BERTH_MUST_CHECK enum berth_code decode_network(const Berth__Common__V1__NetworkPolicy *policy,
                                                const struct adapter_info *info,
                                                struct adapter_network *ret,
                                                struct berth_error *err);
BERTH_MUST_CHECK enum berth_code decode_snapshot_name(const char *field, const char *name,
                                                      struct berth_error *err);
/* CAPABILITY_MISSING with err->resource = capability. */
enum berth_code decode_missing(struct berth_error *err, const char *field,
                               const char *capability);
