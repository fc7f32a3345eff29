/* town.h - a small suite: a real redis-server, the real berth-binding, berth-skills and up to
 * two berth-controlplane, each a process of its own that can be killed, and a scripted adapter
 * in this one. Tenants "t1" and "t2", each with an active config "c1" that is its default. */
#pragma once

#include <check.h>
#include <stdbool.h>
#include <sys/types.h>

#include "common/messages/messages.h"
#include "common/rpc/rpc.h"
#include "common/time/time.h"
#include "tests/component/controlplane/fake_adapter.h"
#include "tests/lib/redis_proxy.h"
#include "tests/lib/redis_server.h"

#include "berth/binding/v1/binding.pb-c.h"
#include "berth/control/v1/control.pb-c.h"
#include "berth/skills/v1/skills.pb-c.h"

enum { PLANES = 2, REAPERS = 2, WAIT_MS = 20000 };

typedef Berth__Common__V1__SessionSpec SessionSpec;
typedef Berth__Control__V1__ResolveRouteResponse Route;
typedef Berth__Control__V1__ResolveSessionResponse Resolved;
typedef Berth__Control__V1__SandboxConfig SandboxConfig;
typedef Berth__Control__V1__Session Session;

struct process {
    pid_t pid; /* 0: not running */
    char name[32];
    char run_dir[96];
    const char *args[24];
    char texts[24][160];
    size_t n_args;
    int metrics_port; /* 0: none */
};

struct town {
    char dir[64];
    struct redis_server redis;
    struct proxy *proxy;       /* between the services and Redis; NULL: none */
    struct berth_redis *store; /* the test's own client */
    struct fake_adapter *fake;
    struct process binding, planes[PLANES], skills, reapers[REAPERS];
    struct berth_channel *control[PLANES]; /* by unix socket: a peer */
    struct berth_channel *outside;         /* to planes[0] by TCP: a stranger */
    struct berth_channel *bind;            /* to binding */
    struct berth_channel *snap;            /* to skills */
    struct berth_channel *reap[REAPERS];
};

struct town_options {
    unsigned planes; /* 0: 1 */
    bool skills;
    unsigned reapers;            /* that sweep only when they are told to */
    const char *grace;           /* of both kinds, of reapers */
    const char *duplicate_grace; /* NULL: the same */
    const char *build_lease;     /* of skills; NULL: 15s */
    const char *skills_args[4];  /* more of its settings; NULL: no more */
    const char *skills_program;  /* in place of berth-skills, under the build folder; or NULL */
    const char *lock_lease;      /* "": 60s */
    const char *verify;          /* verify_interval; NULL: 30s */
    const char *heartbeat;       /* event_heartbeat; NULL: 15s */
    int64_t redis_clock_ms;      /* the store's clock is ahead of everybody else's by that */
    bool not_keyed;              /* nor fenced */
    int64_t create_horizon_ms;
    bool no_config;      /* tenants only */
    bool metrics;        /* for town_metrics() */
    bool deaf;           /* no control plane hears of the other's changes */
    struct proxy *proxy; /* lives as long as the town; or NULL */
};

void town_open(struct town *town, const struct town_options *options);
/* Also checks that every process ended well, and that nothing was reported by a sanitizer. */
void town_close(struct town *town);

void process_start(struct process *process);
void process_kill(struct process *process); /* kill -9 */
/* SIGTERM; it must end well. */
void process_stop(struct process *process);
/* Until the process serves. */
void town_wait_ready(struct town *town);

/* One call to a control plane; the reason, NONE when it went well. *ret_resp may be NULL. */
enum berth_reason town_call(struct berth_channel *channel, const char *path, const void *req,
                            const ProtobufCMessageDescriptor *resp_type, int64_t timeout_ms,
                            void *ret_resp, struct berth_error *ret_err);

/* The same with a token; NULL: none. */
enum berth_reason town_call_as(struct berth_channel *channel, const char *secret,
                               const char *path, const void *req,
                               const ProtobufCMessageDescriptor *resp_type, int64_t timeout_ms,
                               void *ret_resp, struct berth_error *ret_err);
/* A new token as a peer may make it. wanted: what it shall be. secret: 64 bytes. */
enum berth_reason town_token(struct town *town, const Berth__Control__V1__Token *wanted,
                             char *secret, char ret_id[13]);
/* One of a tenant, for all its things; secret: 64 bytes. */
void town_tenant_token(struct town *town, const char *tenant, Berth__Control__V1__Scope scope,
                       char *secret);

/* ResolveSession. mode 0: ENSURE. token may be NULL, spec may be NULL. */
enum berth_reason town_resolve(struct town *town, unsigned plane, const char *tenant,
                               const char *session, const SessionSpec *spec, const char *token,
                               Resolved **ret);
/* The same, for what must go well: outcome and the sandbox (static text until the next call).
 */
const char *town_box(struct town *town, const char *session, int *ret_outcome);
enum berth_reason town_act(struct town *town, const char *verb, const char *tenant,
                           const char *session);
enum berth_reason town_get(struct town *town, const char *tenant, const char *session,
                           bool fresh, Session **ret);
/* A turn token, static. */
const char *town_begin(struct town *town, const char *session);
enum berth_reason town_end_turn(struct town *town, const char *session, const char *token);

/* A call that runs beside the test. */
struct beside {
    pthread_t thread;
    struct town *town;
    unsigned plane;
    char verb[32], session[64];
    enum berth_reason reason;
    struct berth_error err;
    char box[64];
    int outcome;
};
void beside_start(struct beside *call, struct town *town, unsigned plane, const char *verb,
                  const char *session);
enum berth_reason beside_join(struct beside *call);

/* What the process says at /metrics; owned. NULL: it does not answer. */
char *process_metrics(const struct process *process);
/* What it has logged so far; owned. */
char *process_log(const struct process *process);

/* The index counts as lost, and is not recovered: a journal that nobody has is waited for. */
void town_lose_epoch(struct town *town);
/* A field of a hash in Redis; static text, "" when absent. */
const char *town_field(struct town *town, const char *key, const char *field);
