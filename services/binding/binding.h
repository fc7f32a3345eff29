/* binding.h - the service: what its handlers share. */
#pragma once

#include <stdatomic.h>

#include "common/rpc/rpc.h"
#include "services/binding/park.h"
#include "services/binding/store.h"

struct binding {
    struct berth_server *server; /* borrowed */
    struct berth_redis *redis;   /* owned, or NULL: somebody else's */
    struct binding_store *store;
    struct binding_park *park;
    int64_t max_wait_ms; /* for a lock, whatever the caller's deadline */

    /* Counters. */
    atomic_ullong n_used;    /* Acquires answered without a lock */
    atomic_ullong n_granted; /* ... with one */
    atomic_ullong n_waited;  /* ... that had to wait */
    atomic_ullong n_gave_up; /* ... in vain */
    atomic_ullong n_lost;    /* holders that found their lock lost */
    /* By cause, enum binding_loss_cause. */
    atomic_ullong n_losses[BINDING_LOSS_GONE + 1];
    atomic_ullong n_replaced[BINDING_LOSS_GONE + 1];
};

struct binding_options {
    struct binding_store_options store;
    struct berth_server *server; /* borrowed; tells whether the process is shutting down */
    struct berth_pool *pool;     /* borrowed; for looks of waiting callers */
    int64_t max_wait_ms;
    size_t max_waiters;
};

BERTH_MUST_CHECK enum berth_code binding_new(const struct binding_options *options,
                                             struct binding **ret, struct berth_error *err);
struct binding *binding_free(struct binding *binding);
BERTH_DEFINE_AUTO(struct binding *, binding_free)

/* Prometheus text; owned. */
char *binding_metrics(struct binding *binding);

extern const struct berth_method binding_methods[];
extern const size_t n_binding_methods;

/* Handlers in files of their own. */
enum berth_code binding_rpc_acquire(void *service, struct berth_call *call,
                                    const ProtobufCMessage *req, ProtobufCMessage **ret_resp,
                                    struct berth_error *err);
enum berth_code binding_rpc_list(void *service, struct berth_call *call,
                                 const ProtobufCMessage *req, ProtobufCMessage **ret_resp,
                                 struct berth_error *err);
enum berth_code binding_rpc_list_due(void *service, struct berth_call *call,
                                     const ProtobufCMessage *req, ProtobufCMessage **ret_resp,
                                     struct berth_error *err);
enum berth_code binding_rpc_find(void *service, struct berth_call *call,
                                 const ProtobufCMessage *req, ProtobufCMessage **ret_resp,
                                 struct berth_error *err);
enum berth_code binding_rpc_mark_stale(void *service, struct berth_call *call,
                                       const ProtobufCMessage *req, ProtobufCMessage **ret_resp,
                                       struct berth_error *err);

enum berth_code binding_rpc_forget_carry(void *service, struct berth_call *call,
                                         const ProtobufCMessage *req,
                                         ProtobufCMessage **ret_resp, struct berth_error *err);
enum berth_code binding_rpc_loss_told(void *service, struct berth_call *call,
                                      const ProtobufCMessage *req, ProtobufCMessage **ret_resp,
                                      struct berth_error *err);

/* Count and log what a write took from a session, or gave it instead. */
void binding_report_loss(struct binding *binding, const struct binding_ref *ref,
                         const struct binding_view *view, const struct binding_plan *plan);
/* Lines of the metrics; owned. NULL: no memory. */
char *binding_loss_metrics(struct binding *binding);

/* Something about the session has changed here: those who wait for it look again. */
void binding_wake(struct binding *binding, const struct binding_ref *ref);

/* A look for all who wait for one session; park calls it. */
struct binding_waiter *binding_look(void *ctx, const char *key, struct binding_waiter *waiters);
