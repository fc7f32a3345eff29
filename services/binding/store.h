/* store.h - sessions in Redis: one read, one compare-and-set, and what to do when its outcome
 * is not known. Knows the keys; knows no rule. Thread-safe. */
#pragma once

#include "common/redis/redis.h"
#include "services/binding/core.h"

struct binding_store;

struct binding_store_options {
    struct berth_redis *redis; /* borrowed for the life of the store */
    const char *deployment;    /* the operator's id of it */
    struct binding_limits limits;
    int64_t quarantine_ms; /* how long after a failover or a jump of the clock */
    int64_t unsure_ms;     /* how long after it turns may still be unknown; 0: no longer */
};

BERTH_MUST_CHECK enum berth_code binding_store_new(const struct binding_store_options *options,
                                                   struct binding_store **ret,
                                                   struct berth_error *err);
struct binding_store *binding_store_free(struct binding_store *store);
BERTH_DEFINE_AUTO(struct binding_store *, binding_store_free)
const struct binding_limits *binding_store_limits(const struct binding_store *store);
/* The events it has written. */
struct binding_figures *binding_store_figures(struct binding_store *store);
struct berth_redis *binding_store_redis(const struct binding_store *store);

/* The store may be served from: it answers and is this deployment's. Not an error here: the
 * index is not whole (berth:epoch); what creates is then refused call by call.
 * Errors: STORE_UNAVAILABLE; with *ret_wrong (may be NULL) set where it is another's. */
BERTH_MUST_CHECK enum berth_code binding_store_ready(struct binding_store *store,
                                                     bool *ret_wrong, struct berth_error *err);

/* Which session, and the config to look at when it is not pinned to one yet ("": the tenant's
 * default). Borrowed. */
struct binding_ref {
    const char *tenant_id;
    const char *session_id;
    const char *config_id;
};

/**
 * binding_store_read() - tenant, session and its config, with Redis' time, in one round trip
 * @ret: to be deinit'ed on success; ref stays borrowed by it
 *
 * Errors: STORE_UNAVAILABLE; INTERNAL_BUG (a document does not validate).
 */
BERTH_MUST_CHECK enum berth_code binding_store_read(struct binding_store *store,
                                                    const struct binding_ref *ref,
                                                    struct binding_view *ret,
                                                    struct berth_error *err);
void binding_view_deinit(struct binding_view *view);
/* The same, without the tenant, for many sessions that the index has under config_id, in few
 * trips; ret_views: n. */
BERTH_MUST_CHECK enum berth_code
binding_store_read_many(struct binding_store *store, const char *tenant_id,
                        const char *config_id, const char *const *session_ids, size_t n,
                        struct binding_view *ret_views, struct berth_error *err);

/* One operation: edits view->doc and fills plan. Called again with fresh documents when
 * somebody else was faster; must leave arg as it was. */
typedef enum berth_code (*binding_rule_fn)(void *arg, struct binding_view *view,
                                           struct binding_plan *plan, struct berth_error *err);

/**
 * binding_store_decide() - run a rule on a view and write what it wants, once
 * @ret_again: somebody else was faster; view is fresh, plan is empty, decide again
 *
 * Absence is not a fact: what a rule does not find while the index is not whole is answered
 * with INDEX_RECOVERING. After a failure view must be thrown away.
 *
 * Errors: those of the rule; INDEX_RECOVERING; QUARANTINE; STORE_UNAVAILABLE (nothing was
 * written); OUTCOME_UNKNOWN (and it could not be settled).
 */
BERTH_MUST_CHECK enum berth_code
binding_store_decide(struct binding_store *store, const struct binding_ref *ref,
                     struct binding_view *view, binding_rule_fn rule, void *arg,
                     struct binding_plan *plan, bool *ret_again, struct berth_error *err);

/* Read and decide until it is through. view and plan are to be deinit'ed on success.
 * Errors: as above; CONFLICT when others were faster for too long. */
BERTH_MUST_CHECK enum berth_code
binding_store_run(struct binding_store *store, const struct binding_ref *ref,
                  binding_rule_fn rule, void *arg, struct binding_view *view,
                  struct binding_plan *plan, struct berth_error *err);

enum { BINDING_TOGETHER_MAX = 60 };

/**
 * binding_store_run_together() - one rule on many sessions, by one read and one compare-and-set
 * @session_ids: of those that the index has under config_id, at most BINDING_TOGETHER_MAX
 * @ret_done: false: nothing was written, since one of them was written meanwhile, or wants more
 *            than to be written: binding_store_run() each
 * @ret_written: those that were written
 *
 * For a rule that decides on no more than the session and its config.
 *
 * Errors: STORE_UNAVAILABLE (nothing was written); OUTCOME_UNKNOWN (and it could not be
 * settled); INTERNAL_BUG.
 */
BERTH_MUST_CHECK enum berth_code
binding_store_run_together(struct binding_store *store, const char *tenant_id,
                           const char *config_id, const char *const *session_ids, size_t n,
                           binding_rule_fn rule, void *arg, bool *ret_done, size_t *ret_written,
                           struct berth_error *err);

/* Fail with a NOT_FOUND reason; or with INDEX_RECOVERING, while absence may not be believed. */
enum berth_code binding_store_absent(struct binding_store *store, enum berth_reason reason,
                                     struct berth_error *err);

/* A failover, a restart or a jump of the clock was seen a moment ago. */
bool binding_store_quarantined(struct binding_store *store);
