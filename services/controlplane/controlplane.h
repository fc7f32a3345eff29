/* controlplane.h - what every part of the control plane shares. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "berth/common/v1/common.pb-c.h"
#include "common/auth/auth.h"
#include "common/crypto/crypto.h"
#include "common/errors/errors.h"
#include "common/journal/records.h"
#include "common/redis/redis.h"
#include "common/rpc/rpc.h"
#include "common/svc/adapters.h"
#include "common/svc/svc.h"
#include "services/controlplane/bulkhead.h"
#include "services/controlplane/cache.h"
#include "services/controlplane/figures.h"
#include "services/controlplane/locks.h"
#include "services/controlplane/verified.h"

enum {
    CP_CAS_TRIES = 8, /* of a record's read, decide, write */
    CP_CALL_TIMEOUT_MS =
        10000, /* of a call to a peer that is not a create, connect or delete */
    CP_TURN_TOKEN_MAX = 256,
};

struct cp {
    const struct berth_runtime *runtime;
    char owner[65];             /* of the locks taken here: deployment, process */
    int64_t verify_interval_ms; /* of configs that name none */
    bool no_private_targets;    /* the operator's veto over allow_private_endpoints */
    int64_t resolve_timeout_ms; /* of a resolve without a deadline */
    struct berth_redis *redis;
    struct berth_keyring *keyring; /* changes while in use: keys.h */
    struct cp_keys *keys;
    struct berth_records *records;
    struct cp_recover *recover;
    struct berth_channel *binding;
    struct berth_channel *mover; /* the data plane, for workspaces; NULL: they do not move */
    struct berth_adapters adapters;
    struct cp_cache *cache;
    struct cp_bulkhead *bulkhead;
    struct cp_locks *locks;
    struct cp_verified *verified;
    struct berth_auth *auth;
    struct cp_changes *changes;
    struct cp_events *events;
    atomic_bool store_checked; /* the store is our deployment's */
    atomic_int background;     /* jobs that nobody waits for */
    struct cp_figures figures;
};

/* Every handler begins with one of these: the store is ours, the tenant is there and enabled.
 */
BERTH_MUST_CHECK enum berth_code cp_enter(struct cp *cp, struct berth_error *err);
BERTH_MUST_CHECK enum berth_code cp_enter_tenant(struct cp *cp, const char *tenant,
                                                 bool even_disabled, struct berth_error *err);
/* The same for a call about one session. only_config: the caller sees sessions of that config
 * alone ("": of all), others are SESSION_NOT_FOUND; then it costs a question to binding.
 * may_make: a session that is not there is fine. */
BERTH_MUST_CHECK enum berth_code cp_enter_session(struct cp *cp,
                                                  const Berth__Common__V1__SessionRef *ref,
                                                  const char *only_config, bool may_make,
                                                  bool even_disabled, struct berth_error *err);

/* One table per file of handlers. */
#define CP_METHODS(name)                                                                       \
    extern const struct berth_method cp_##name##_methods[];                                    \
    extern const size_t cp_n_##name##_methods
const struct berth_method *cp_methods(size_t *ret_n); /* all of them; static */
CP_METHODS(config);
CP_METHODS(config_check);
CP_METHODS(config_update);
CP_METHODS(tenant);
CP_METHODS(token);
CP_METHODS(session);
CP_METHODS(session_read);
CP_METHODS(turn);
CP_METHODS(template);
CP_METHODS(internal);
CP_METHODS(changes);
CP_METHODS(settle);
CP_METHODS(event);
