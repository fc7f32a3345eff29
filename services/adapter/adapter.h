/* adapter.h - what a sandbox backend must do, as one table of functions. The services in this
 * folder check every field, call the table and encode what it answers;
 * services/adapter-<backend> fills it. */
#pragma once

#include "common/errors/errors.h"
#include "common/loop/loop.h"
#include "common/rpc/rpc.h"
#include "common/svc/svc.h"
#include "services/adapter/data.h"
#include "services/adapter/types.h"

struct adapter; /* one backend, made by services/adapter-<backend>/ */

/* What the backend can do (Capabilities and GetInfoResponse of the protos). Constant sentences
 * of the backend; never wishes. */
struct adapter_info {
    int isolation;     /* Isolation */
    int timeout_model; /* TimeoutModel */
    int data_plane;    /* DataPlaneKind */
    bool commands, files, watch, terminal, root_commands;
    bool pause, pause_keeps_memory, pause_frees_host_memory, pause_auto_resume;
    bool snapshots, snapshot_keeps_memory, snapshot_source_must_run, snapshot_names_listed,
        snapshot_host_bound;
    bool egress_switch, inbound_switch, cidr, domains, l7, live_update, dns_policy, dns_servers;
    bool volumes, templates_build, keyed_create, metadata_filter, rollback, resources, fenced;
    bool disk_limit;
    struct adapter_resources max_resources;
    int64_t create_horizon_ms;
    char account_id[64];
};

/* Strings and arrays are borrowed for the length of the call. not_after_ms: wall clock, 0 =
 * none. */
struct adapter_create {
    struct adapter_image image;
    const char *unique_key;
    uint64_t fence;
    const char *attempt; /* hex, 1..64 bytes of it */
    int64_t not_after_ms;
    struct adapter_pairs metadata, env;
    struct adapter_network network;
    struct adapter_timeouts timeouts;
    struct adapter_resources resources;
};

/* A change of one sandbox, as its caller stands to it. */
struct adapter_removed {
    bool existed;
    bool in_use; /* what stands on it keeps its files */
};
struct adapter_grant {
    uint64_t fence;       /* lower than the highest seen: FENCE_STALE */
    int64_t not_after_ms; /* wall clock, 0 = none; past: OUTCOME is "nothing done", DEADLINE */
};

/* Called again and again while a template is built; from the calling thread. False: give up. */
typedef bool (*adapter_progress_fn)(void *arg, const char *step, unsigned percent,
                                    const char *message);

/* Every call may block until tick deadline_ms (berth_tick_ms()), and may come from any thread.
 * Outputs are set on BERTH_OK only. A member that a backend cannot serve is NULL: the service
 * answers CAPABILITY_MISSING. */
struct adapter_ops {
    const char *backend; /* "local"; BackendTarget.backend must say the same */

    void (*info)(struct adapter *adapter, struct adapter_info *ret);
    /* Can it serve right now? For readiness. */
    enum berth_code (*ready)(struct adapter *adapter, struct berth_error *err);

    /* Errors: SANDBOX_EXISTS (err->sandbox_id), FENCE_STALE, TEMPLATE_INVALID,
     * SNAPSHOT_NOT_FOUND, BACKEND_CAPACITY, DISK_FULL, SANDBOX_TERMINAL (this attempt's sandbox
     * is deleted), DEADLINE. */
    enum berth_code (*create)(struct adapter *adapter, const struct adapter_create *want,
                              int64_t deadline_ms, struct adapter_sandbox *ret,
                              struct berth_error *err);
    /* Resumes. timeouts may be NULL: as they are. */
    enum berth_code (*connect)(struct adapter *adapter, const char *id,
                               const struct adapter_grant *grant,
                               const struct adapter_timeouts *timeouts, int64_t deadline_ms,
                               struct adapter_sandbox *ret, bool *ret_resumed,
                               struct berth_error *err);
    enum berth_code (*get)(struct adapter *adapter, const char *id, int64_t deadline_ms,
                           struct adapter_sandbox *ret, struct berth_error *err);
    /* All of them, ordered by id; *ret is owned: adapter_sandbox_deinit each, free. Those that
     * are being deleted are left out. */
    enum berth_code (*list)(struct adapter *adapter, int64_t deadline_ms,
                            struct adapter_sandbox **ret, size_t *ret_n, bool *ret_complete,
                            struct berth_error *err);
    enum berth_code (*pause)(struct adapter *adapter, const char *id,
                             const struct adapter_grant *grant, int64_t deadline_ms,
                             struct adapter_sandbox *ret, struct berth_error *err);
    enum berth_code (*set_timeout)(struct adapter *adapter, const char *id,
                                   const struct adapter_grant *grant,
                                   const struct adapter_timeouts *timeouts, bool extend_only,
                                   int64_t deadline_ms, struct adapter_sandbox *ret,
                                   struct berth_error *err);
    enum berth_code (*set_network)(struct adapter *adapter, const char *id,
                                   const struct adapter_grant *grant,
                                   const struct adapter_network *network, int64_t deadline_ms,
                                   struct adapter_sandbox *ret, struct berth_error *err);
    /* unless_active_after_ms: 0 = always. Active since then: CONFLICT. */
    enum berth_code (*destroy)(struct adapter *adapter, const char *id,
                               const struct adapter_grant *grant,
                               int64_t unless_active_after_ms, int64_t deadline_ms,
                               bool *ret_existed, struct berth_error *err);

    enum berth_code (*snapshot)(struct adapter *adapter, const char *id, const char *name,
                                const struct adapter_pairs *metadata,
                                const struct adapter_grant *grant, int64_t deadline_ms,
                                struct adapter_snapshot *ret, struct berth_error *err);
    /* Ordered by id; *ret is owned: adapter_snapshot_deinit() each, and free(). */
    enum berth_code (*list_snapshots)(struct adapter *adapter, int64_t deadline_ms,
                                      struct adapter_snapshot **ret, size_t *ret_n,
                                      bool *ret_complete, struct berth_error *err);
    enum berth_code (*delete_snapshot)(struct adapter *adapter, const char *id,
                                       const struct adapter_grant *grant, int64_t deadline_ms,
                                       struct adapter_removed *ret, struct berth_error *err);

    enum berth_code (*list_templates)(struct adapter *adapter, int64_t deadline_ms,
                                      struct adapter_template **ret, size_t *ret_n,
                                      struct berth_error *err);
    enum berth_code (*build_template)(struct adapter *adapter, const char *name,
                                      adapter_progress_fn progress, void *arg,
                                      int64_t deadline_ms, struct adapter_template *ret,
                                      struct berth_error *err);
    enum berth_code (*delete_template)(struct adapter *adapter, const char *id,
                                       int64_t deadline_ms, bool *ret_existed,
                                       struct berth_error *err);

    /* Of a backend with data plane ADAPTER. */
    const struct adapter_process_ops *process;
    const struct adapter_file_ops *files;
    const struct adapter_workspace_ops *workspace;
};

/* The service object behind every handler of this folder: what start() of an adapter's main.c
 * hands to svc. */
struct adapter_service {
    const struct adapter_ops *ops;
    struct adapter *adapter;
    const struct berth_runtime *runtime;
};

/* BackendService; SnapshotService and TemplateService. Peers only. */
extern const struct berth_method adapter_backend_methods[];
extern const size_t n_adapter_backend_methods;
extern const struct berth_method adapter_catalog_methods[];
extern const size_t n_adapter_catalog_methods;
