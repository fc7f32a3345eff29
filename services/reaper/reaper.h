/* reaper.h - what the parts of berth-reaper share. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "berth/reaper/v1/reaper.pb-c.h"
#include "common/errors/errors.h"
#include "common/redis/redis.h"
#include "common/rpc/rpc.h"
#include "common/svc/adapters.h"
#include "common/svc/svc.h"
#include "services/reaper/leader.h"
#include "services/reaper/seen.h"
#include "services/reaper/verdict.h"

enum {
    REAPER_CALL_TIMEOUT_MS = 15000, /* of a call that reads */
    REAPER_SEEN_MAX = 1 << 17,
};

struct reaper_history;
struct reaper_usage;

struct reaper {
    const struct berth_runtime *runtime;
    struct berth_redis *redis;
    struct berth_channel *controlplane, *binding;
    struct berth_adapters adapters;
    struct reaper_limits limits;
    int64_t interval_ms, act_timeout_ms;
    uint32_t budget;
    atomic_bool store_checked;
    struct reaper_leader *leader;
    struct reaper_history *history;

    pthread_mutex_t sweeping; /* one sweep or plan at a time; guards the five below */
    struct reaper_seen *seen;
    uint64_t term;        /* of the leader, when seen began */
    uint64_t usage_term;  /* the same, when usage was read back */
    int64_t last_now_ms;  /* Redis' time of the last sweep, 0: none */
    int64_t last_tick_ms; /* and ours */

    pthread_t thread; /* of the periodic sweeps */
    bool started;
    pthread_mutex_t mutex; /* guards what is below */
    pthread_cond_t wake;
    bool stopping;

    pthread_mutex_t counting; /* guards what is below */
    struct reaper_usage *usage;
    struct {
        uint64_t deleted[REAPER_N_WHY], failed[REAPER_N_WHY];
        uint64_t orphans_found, duplicates_found;
        uint64_t adopted, paused, stilled, observed, duplicates_seen, untagged, orphans, sweeps,
            skipped;
        int64_t last_ms;
    } counts;
};

/* backend.c: calls to the peers. *ret is owned. parent may be NULL. */
BERTH_MUST_CHECK enum berth_code reaper_enter(struct reaper *reaper, struct berth_error *err);
BERTH_MUST_CHECK enum berth_code reaper_call(struct berth_channel *channel, const char *path,
                                             const ProtobufCMessage *req,
                                             const ProtobufCMessageDescriptor *resp_type,
                                             int64_t timeout_ms, void *ret,
                                             struct berth_error *err);
/* Errors: INTERNAL_BUG for a backend that nobody serves. */
BERTH_MUST_CHECK enum berth_code
reaper_adapter_call(struct reaper *reaper, const char *backend, const char *path,
                    const ProtobufCMessage *req, const ProtobufCMessageDescriptor *resp_type,
                    void *ret, struct berth_error *err);

/* main.c: the process is to end. */
bool reaper_is_stopping(struct reaper *reaper);

/* metrics.c */
char *reaper_metrics(struct reaper *reaper);

extern const struct berth_method reaper_methods[];
extern const size_t reaper_n_methods;
/* plan_rpc.c */
enum berth_code reaper_rpc_plan(void *service, struct berth_stream *stream,
                                const struct berth_stream_ops **ret_ops, void **ret_ctx,
                                struct berth_error *err);
