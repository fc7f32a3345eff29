/* making.c - the backend's part of a snapshot, and what is kept alive while it lasts. */
#include "services/skills/making.h"

#include <stdio.h>
#include <time.h>

#include "common/log/log.h"
#include "common/messages/messages.h"
#include "common/time/time.h"

typedef Berth__Backend__V1__CreateSnapshotRequest CreateSnapshotRequest;
typedef Berth__Backend__V1__CreateSnapshotResponse CreateSnapshotResponse;
typedef Berth__Control__V1__RenewUseRequest RenewUseRequest;

enum {
    RENEW_USE_MS = 40000, /* of a lease of two minutes */
    BEATS_PER_LEASE = 3,
};

/* -------------------------------------------------------------------- use token */

enum berth_code making_renew_use(struct making *m, bool end, struct berth_error *err)
{
    RenewUseRequest req = BERTH__CONTROL__V1__RENEW_USE_REQUEST__INIT;
    void *resp = NULL;
    enum berth_code code;

    req.session = (Berth__Common__V1__SessionRef *)m->wish->session;
    req.use_token = m->row.row_id;
    req.sandbox_id = m->route->endpoint->sandbox_id;
    req.end = end;
    code = skills_control_call(m->skills, NULL, "/berth.control.v1.InternalService/RenewUse",
                               &req.base, &berth__control__v1__renew_use_response__descriptor,
                               &resp, err);
    berth_message_free(resp);
    return code;
}

/* ------------------------------------------------------ the call, kept alive */

struct waiter {
    pthread_mutex_t mutex;
    pthread_cond_t done;
    bool over;
    enum berth_code code;
    ProtobufCMessage *resp;
    struct berth_error err;
};

static void on_snapshot(void *arg, enum berth_code code, ProtobufCMessage *resp,
                        const struct berth_error *err)
{
    struct waiter *waiter = arg;

    pthread_mutex_lock(&waiter->mutex);
    waiter->over = true;
    waiter->code = code;
    waiter->resp = resp;
    if (err)
        waiter->err = *err;
    pthread_cond_signal(&waiter->done);
    pthread_mutex_unlock(&waiter->mutex);
}

/* False: it is not over yet after so long. */
static bool wait_for(struct waiter *waiter, int64_t ms)
{
    struct timespec until;
    int status = 0;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&waiter->mutex);
    while (!waiter->over && status == 0)
        status = pthread_cond_timedwait(&waiter->done, &waiter->mutex, &until);
    pthread_mutex_unlock(&waiter->mutex);
    return status == 0;
}

/* The backend may take minutes; the sandbox stays protected for as long, and the row ours. */
static void wait_for_backend(struct making *m, struct waiter *waiter)
{
    int64_t renewed_tick = berth_tick_ms();

    while (!wait_for(waiter, m->skills->build_lease_ms / BEATS_PER_LEASE)) {
        struct berth_error err = {0};

        if (making_beat(m, &err))
            berth_warn("a build could not give its sign of life", "row", m->row.row_id, "error",
                       err.text);
        if (berth_tick_ms() - renewed_tick < RENEW_USE_MS)
            continue;
        renewed_tick = berth_tick_ms();
        if (making_renew_use(m, false, NULL))
            berth_warn("a use token was not renewed, trying again", "session",
                       m->wish->session->session_id);
    }
    pthread_mutex_lock(&waiter->mutex); /* on_snapshot has let go of it */
    pthread_mutex_unlock(&waiter->mutex);
}

static enum berth_code call_backend(struct making *m, const CreateSnapshotRequest *req,
                                    CreateSnapshotResponse **ret, struct berth_error *err)
{
    const struct berth_call_options options = {.timeout_ms = m->skills->snapshot_timeout_ms};
    struct berth_channel *channel =
        berth_adapters_find(&m->skills->adapters, req->target->backend);
    struct waiter waiter = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    pthread_condattr_t attr;

    if (!channel)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "no adapter for backend '%s'",
                          req->target->backend);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&waiter.done, &attr);
    pthread_condattr_destroy(&attr);
    berth_channel_call_async(channel, "/berth.backend.v1.SnapshotService/CreateSnapshot",
                             &req->base,
                             &berth__backend__v1__create_snapshot_response__descriptor,
                             &options, m->skills->runtime->pool, on_snapshot, &waiter);
    wait_for_backend(m, &waiter);
    pthread_cond_destroy(&waiter.done);
    if (waiter.code) {
        if (err)
            *err = waiter.err;
        BERTH_ERROR_SET(err, backend, req->target->backend);
        return waiter.code;
    }
    *ret = (CreateSnapshotResponse *)waiter.resp;
    return BERTH_OK;
}

static bool set_tag(CreateSnapshotRequest *req, const char *key, const char *value)
{
    return berth_set_map(
        &req->n_metadata, &req->metadata,
        &berth__backend__v1__create_snapshot_request__metadata_entry__descriptor, key, value);
}

enum berth_code making_ask_backend(struct making *m, CreateSnapshotResponse **ret,
                                   struct berth_error *err)
{
    CreateSnapshotRequest *req =
        berth_message_new(&berth__backend__v1__create_snapshot_request__descriptor);
    enum berth_code code = BERTH_OK;

    if (!req || !(req->target = berth_message_copy(m->route->endpoint->target)) ||
        !(req->not_after_time = berth_timestamp(m->row.not_after_ms)) ||
        !berth_set_string(&req->sandbox_id, m->route->endpoint->sandbox_id) ||
        !berth_set_string(&req->name, m->row.planned_name) ||
        !set_tag(req, "berth.deployment", m->skills->runtime->deployment) ||
        !set_tag(req, "berth.tenant", m->wish->session->tenant_id) ||
        !set_tag(req, "berth.session", m->wish->session->session_id) ||
        !set_tag(req, "berth.config", m->config_id) ||
        !set_tag(req, "berth.row", m->row.row_id) ||
        !set_tag(req, "berth.kind",
                 strcmp(m->row.origin, "skills") == 0 ? "skill-image" : "snapshot"))
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (!code) {
        req->fence = m->route->endpoint->fence;
        if (atomic_fetch_add(&m->skills->n_calls, 1) >= m->skills->max_calls)
            code = berth_fail(err, BERTH_REASON_OVERLOADED, "%u backend calls are under way",
                              m->skills->max_calls);
        else
            code = call_backend(m, req, ret, err);
        atomic_fetch_sub(&m->skills->n_calls, 1);
    }
    berth_message_free(req);
    return code;
}
