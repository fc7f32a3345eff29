/* skills.h - what the parts of berth-skills share. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "berth/common/v1/common.pb-c.h"
#include "common/auth/follow.h"
#include "common/auth/introspect.h"
#include "common/errors/errors.h"
#include "common/journal/records.h"
#include "common/redis/redis.h"
#include "common/rpc/rpc.h"
#include "common/svc/adapters.h"
#include "common/svc/svc.h"

enum {
    SK_CALL_TIMEOUT_MS = 30000, /* of a call that makes nothing big */
    SK_CAS_TRIES = 8,
};

struct skills_blobs;
struct skills_chain;
struct skills_janitor;
struct skills_watches;

struct skills {
    const struct berth_runtime *runtime;
    struct berth_redis *redis;
    struct berth_key_source key_source; /* of the journal's keys; strings of the settings */
    struct berth_keyring *keyring;      /* NULL: no journal */
    struct stat keys_seen;              /* of their file */
    struct berth_records *records;
    struct berth_channel *controlplane;
    struct berth_channel *dataplane; /* for maintenance sessions; NULL in some tests */
    struct berth_channel *binding;   /* to tell sessions of a new image */
    struct berth_adapters adapters;
    int64_t snapshot_timeout_ms; /* of the backend's call that makes one */
    int64_t build_lease_ms;      /* a build without a sign of life for so long is taken over */
    char owner[33];              /* this process, in rows that it builds */
    unsigned max_calls;          /* backend calls at once */
    atomic_uint n_calls;
    const char *spool;     /* folder for uploads; the settings' */
    uint64_t bundle_bytes; /* of an upload, at most */
    int64_t upload_idle_ms, upload_timeout_ms;
    unsigned max_uploads;
    atomic_uint n_uploads;
    atomic_bool store_checked;
    struct skills_blobs *blobs; /* NULL: blob_dir is not set, nothing can be installed */
    struct skills_chain *chain; /* NULL in some tests */
    struct skills_janitor *janitor;
    struct skills_watches *watches; /* of operations */
    struct berth_introspect introspect;
    struct berth_auth *auth;
    struct berth_follow *follow;
};

/* The store is ours. Every handler begins with it. */
BERTH_MUST_CHECK enum berth_code skills_enter(struct skills *skills, struct berth_error *err);

/* keys.c: SIGHUP, and once a second. Errors: FIELD_INVALID; those of the journal. */
BERTH_MUST_CHECK enum berth_code skills_keys_reload(struct skills *skills,
                                                    struct berth_error *err);
void skills_keys_look(struct skills *skills);

/* backend.c: calls to the peers. *ret is owned. */
BERTH_MUST_CHECK enum berth_code
skills_control_call(struct skills *skills, const struct berth_call *call, const char *path,
                    const ProtobufCMessage *req, const ProtobufCMessageDescriptor *resp_type,
                    void *ret, struct berth_error *err);
/* Errors: OVERLOADED when max_calls are under way; the adapter's, with err->backend set. */
BERTH_MUST_CHECK enum berth_code
skills_adapter_call(struct skills *skills, const struct berth_call *call, const char *backend,
                    const char *path, const ProtobufCMessage *req,
                    const ProtobufCMessageDescriptor *resp_type, int64_t timeout_ms, void *ret,
                    struct berth_error *err);

/* Is this (64 hex digits) the account of the target? Nothing is proven under another one. */
bool skills_same_account(const Berth__Common__V1__BackendTarget *target, const char *account);

/* Nothing was done (design 2.2): the row may be given up at once. */
bool skills_is_refusal(enum berth_code code);

/* The target of a config, by InternalService.ListTargets. Owned. Errors: CONFIG_NOT_FOUND. */
BERTH_MUST_CHECK enum berth_code skills_target(struct skills *skills, const char *tenant,
                                               const char *config_id,
                                               Berth__Common__V1__BackendTarget **ret,
                                               struct berth_error *err);

/* The snapshot at the backend that bears this very name, of a whole list. *ret_id is "" when
 * there is none. state and size of the one found. Errors: BACKEND_UNAVAILABLE where the list is
 * not whole; the adapter's. */
struct skills_found {
    char snapshot_id[129];
    int state; /* SnapshotState */
    uint64_t size_bytes;
};
BERTH_MUST_CHECK enum berth_code skills_find_by_name(struct skills *skills,
                                                     Berth__Common__V1__BackendTarget *target,
                                                     const char *name, struct skills_found *ret,
                                                     struct berth_error *err);
/* Delete one at the backend; one that is not there is fine. *ret_in_use (may be NULL): what
 * stands on it keeps its files. */
BERTH_MUST_CHECK enum berth_code skills_delete_at(struct skills *skills,
                                                  Berth__Common__V1__BackendTarget *target,
                                                  const char *snapshot_id, bool *ret_in_use,
                                                  struct berth_error *err);

extern const struct berth_method skills_snapshot_methods[];
extern const size_t skills_n_snapshot_methods;
