/* holder.h - carries out what plan.h says, under the session's lock: calls to the adapter, each
 * with fence and not_after, and the commits between them. Blocking: inside a bulkhead job. */
#pragma once

#include "berth/binding/v1/binding.pb-c.h"
#include "services/controlplane/controlplane.h"
#include "services/controlplane/plan.h"

enum cp_outcome {
    CP_USED,
    CP_RESUMED,
    CP_CREATED,
    CP_ADOPTED,
    CP_REBUILT,
    CP_REPLACED,
    CP_PAUSED,
    CP_DELETED,
    CP_NOTHING_BOUND,
    CP_REAPED,
    CP_OBSERVED,
};

enum { CP_BLOB_ID_SIZE = 64 };

struct cp_holder {
    /* Borrowed for the length of the run. */
    struct cp *cp;
    const struct cp_config *config;
    struct cp_lock *lock;
    const Berth__Binding__V1__AcquireResponse *grant;
    const char *traceparent;
    const char *turn_token;        /* "" : none */
    const char *failed_sandbox_id; /* "" : none */
    enum plan_want want;
    /* With PLAN_ADOPT: the sandboxes of the session, as a whole list of its config had them;
     * none: they are asked for. */
    Berth__Common__V1__Sandbox *const *found;
    size_t n_found;
    int64_t unless_active_after_ms; /* idle: not if it was used later than that */
    bool calls_only;                /* what runs on by itself is no use */
    const char *other_sandbox_id;   /* with PLAN_STILL; else NULL */
    int64_t ends_soon_ms;           /* observe: tell that it ends then; 0: nothing to tell */

    /* Results. */
    enum cp_outcome outcome;            /* of this run; what was lost before is not in it */
    Berth__Binding__V1__Binding *bound; /* owned; what is bound now, or NULL */
    Berth__Binding__V1__Loss *loss;     /* owned; what is to be told, or NULL */

    /* Of the run. */
    struct plan_state plan;
    int64_t clock_ms; /* Redis' time at the grant, and ours when the run began */
    int64_t clock_tick;
    bool create_sent;              /* and not refused: it may take effect */
    bool released;                 /* the lock was given back by a commit */
    bool more_found;               /* more sandboxes than candidates have room for */
    char blob_id[CP_BLOB_ID_SIZE]; /* of the workspace that was exported here, or found */
    bool blob_found;               /* binding has forgotten it */
    uint64_t carry_lost;           /* what it had to leave behind */
    char carry_names[257];         /* the first few of it */
    char export_error[256];        /* why it could not be exported */
    unsigned n_exists;             /* SANDBOX_EXISTS so far */
    enum berth_reason doomed;      /* answer this once everything condemned is gone */
};

/* Do what the grant asks for. The lock is given back in binding (in the background after a
 * failure), not dropped.
 * Errors: LOCK_LOST and CONFLICT: acquire again; everything else is the answer. */
BERTH_MUST_CHECK enum berth_code cp_holder_run(struct cp_holder *holder,
                                               struct berth_error *err);
void cp_holder_deinit(struct cp_holder *holder);

/* Give the lock back in the background. never_sent: the create intent of this grant may go,
 * too. */
void cp_release(struct cp *cp, const Berth__Common__V1__SessionRef *ref,
                const Berth__Binding__V1__Lock *lock, bool never_sent);
