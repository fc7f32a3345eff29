/* resolve.h - from a session to what its caller may do with it: Acquire without a waiting
 * worker, then, where a lock was granted, the holder's work inside the backend's bulkhead, then
 * the answer. Resolve, route, pause, resume and delete all go this one way. */
#pragma once

#include "berth/binding/v1/binding.pb-c.h"
#include "berth/control/v1/control.pb-c.h"
#include "services/controlplane/controlplane.h"
#include "services/controlplane/holder.h"

struct cp_resolved;

/* Make the answer of what was resolved. *ret is owned by the runtime afterwards. */
typedef enum berth_code (*cp_answer_fn)(struct cp *cp, const struct cp_resolved *resolved,
                                        ProtobufCMessage **ret, struct berth_error *err);

/* All borrowed from the request, which lives until the answer. */
struct cp_resolve_request {
    const Berth__Common__V1__SessionRef *session;
    enum plan_want want;
    const char *turn_token;                     /* "": none */
    const char *failed_sandbox_id;              /* "": none */
    const Berth__Common__V1__SessionSpec *spec; /* of a new session; or NULL */
    bool must_be_new, must_exist, recreate;
    /* The reaper's wants: the config the sandbox was seen in, and the evidence. */
    const char *config_id; /* NULL: not the reaper's */
    const char *reap_sandbox_id;
    ProtobufCBinaryData reap_account;
    const Google__Protobuf__Timestamp *unless_active_after;
    bool calls_only; /* unless_active_after: what runs on by itself is no use */
    const Google__Protobuf__Timestamp *ends_soon_time; /* with PLAN_OBSERVE; or NULL */
    int64_t max_wait_ms; /* for the lock; 0: as long as the caller waits */
    bool tells; /* the answer has a place for what was lost, and its caller is a client */
    cp_answer_fn answer;
    bool quick; /* answer() never waits for anything */
};

/* What came of it. config may be NULL after a delete. */
struct cp_resolved {
    const Berth__Binding__V1__SessionRecord *record;
    const Berth__Binding__V1__Binding *binding; /* NULL: nothing is bound */
    const struct cp_config *config;
    const Berth__Common__V1__SessionSpec *spec; /* as asked for; or NULL */
    enum cp_outcome outcome;
    const Berth__Binding__V1__Loss *loss; /* not told yet; or NULL */
    bool stale, turn_running;
};

/* Returns BERTH_DEFERRED: the answer comes by itself. Or an error, to be answered at once. */
BERTH_MUST_CHECK enum berth_code cp_resolve(struct cp *cp, struct berth_call *call,
                                            const struct cp_resolve_request *request,
                                            struct berth_error *err);

/* NOT_FOUND / SANDBOX_NOT_FOUND for a session that has none. */
enum berth_code cp_no_sandbox(struct berth_error *err);
