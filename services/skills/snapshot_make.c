#include "services/skills/snapshot_make.h"

#include <stdio.h>
#include <time.h>

#include "berth/backend/v1/backend.pb-c.h"
#include "berth/control/v1/control.pb-c.h"
#include "common/ids/ids.h"
#include "common/log/log.h"
#include "common/messages/messages.h"
#include "common/time/time.h"

typedef Berth__Backend__V1__CreateSnapshotRequest CreateSnapshotRequest;
typedef Berth__Backend__V1__CreateSnapshotResponse CreateSnapshotResponse;
typedef Berth__Common__V1__BackendTarget BackendTarget;
typedef Berth__Control__V1__RenewUseRequest RenewUseRequest;
typedef Berth__Control__V1__ResolveRouteRequest ResolveRouteRequest;
typedef Berth__Control__V1__ResolveRouteResponse Route;

enum {
    RENEW_USE_MS = 40000, /* of a lease of two minutes */
    SETTLE_MS = 60000,    /* after not_after a build is given up */
    ID_MAX = 128,
};

#define REQUEST_ID_KEPT_MS ((int64_t)24 * 60 * 60 * 1000)

/* One that is being made. */
struct making {
    struct skills *skills;
    struct berth_call *call;
    const struct snapshot_wish *wish;
    Route *route; /* owned */
    const char *config_id;
    struct berth_snapshot_row row;
};

/* -------------------------------------------------------------------- use token */

static enum berth_code renew_use(struct making *m, bool end, struct berth_error *err)
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

/* False: it is not over yet after a while. */
static bool wait_a_while(struct waiter *waiter)
{
    struct timespec until;
    int status = 0;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += RENEW_USE_MS / 1000;
    pthread_mutex_lock(&waiter->mutex);
    while (!waiter->over && status == 0)
        status = pthread_cond_timedwait(&waiter->done, &waiter->mutex, &until);
    pthread_mutex_unlock(&waiter->mutex);
    return status == 0;
}

static struct berth_channel *channel_of(struct skills *skills, const char *backend)
{
    for (size_t i = 0; i < skills->n_adapters; i++)
        if (strcmp(skills->adapters[i].backend, backend) == 0)
            return skills->adapters[i].channel;
    return NULL;
}

/* The backend may take minutes; the sandbox stays protected for as long. */
static enum berth_code call_backend(struct making *m, const CreateSnapshotRequest *req,
                                    CreateSnapshotResponse **ret, struct berth_error *err)
{
    const struct berth_call_options options = {.timeout_ms = m->skills->snapshot_timeout_ms};
    struct berth_channel *channel = channel_of(m->skills, req->target->backend);
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
    while (!wait_a_while(&waiter))
        if (renew_use(m, false, NULL))
            berth_warn("a use token was not renewed, trying again", "session",
                       m->wish->session->session_id);
    pthread_mutex_lock(&waiter.mutex); /* on_snapshot has let go of it */
    pthread_mutex_unlock(&waiter.mutex);
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

static enum berth_code ask_backend(struct making *m, CreateSnapshotResponse **ret,
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
        !set_tag(req, "berth.row", m->row.row_id) || !set_tag(req, "berth.kind", "snapshot"))
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

/* ----------------------------------------------------------------- the ledger */

/* Read, change the row, write, as often as others write in between. A row that is not
 * `building` any more was given up meanwhile. */
static enum berth_code change_row(struct making *m, enum ledger_change change,
                                  struct berth_error *err)
{
    for (int i = 0; i < SK_CAS_TRIES; i++) {
        struct ledger ledger = {0};
        const struct berth_snapshot_row *there;
        bool applied = false;
        enum berth_code code = ledger_read(m->skills->redis, m->wish->session->tenant_id,
                                           m->config_id, &ledger, err);

        if (code)
            return code;
        there = ledger_find(&ledger, m->row.row_id);
        if (change == LEDGER_BUILD
                ? !ledger.config.exists || strcmp(ledger.config.state, "active") != 0
                : !there || strcmp(there->state, "building") != 0)
            code = change == LEDGER_BUILD
                       ? berth_fail(err, BERTH_REASON_CONFIG_NOT_FOUND, "no config '%s'",
                                    m->config_id)
                       : berth_fail(err, BERTH_REASON_CONFLICT, "the build was given up");
        else
            code = ledger_write(m->skills->redis, &ledger, &m->row, change, &applied, err);
        ledger_deinit(&ledger);
        if (code || applied)
            return code;
    }
    return berth_fail(err, BERTH_REASON_CONFLICT, NULL);
}

static void give_up(struct making *m)
{
    struct berth_error err = {0};

    snprintf(m->row.state, sizeof m->row.state, "abandoned");
    if (change_row(m, LEDGER_KEEP, &err) && err.reason != BERTH_REASON_CONFLICT)
        berth_warn("a ledger row stays `building` until the janitor sees it", "row",
                   m->row.row_id, "error", err.text);
}

/* The answer did not come: the list knows by the planned name. */
static enum berth_code look_by_name(struct making *m, struct skills_found *ret)
{
    struct berth_error ignored;
    enum berth_code code = skills_find_by_name(m->skills, m->route->endpoint->target,
                                               m->row.planned_name, ret, &ignored);

    if (!code && ret->state != BERTH__COMMON__V1__SNAPSHOT_STATE__SNAPSHOT_STATE_READY)
        code = BERTH_UNKNOWN;
    return code;
}

static enum berth_code build(struct making *m, struct berth_error *err)
{
    CreateSnapshotResponse *resp = NULL;
    struct skills_found found = {0};
    struct berth_error why = {0};
    enum berth_code code = ask_backend(m, &resp, &why);

    if (!code && resp->snapshot) {
        snprintf(found.snapshot_id, sizeof found.snapshot_id, "%s",
                 resp->snapshot->snapshot_id);
        found.size_bytes = resp->snapshot->size_bytes;
    } else if (!code) {
        code = berth_fail(&why, BERTH_REASON_INTERNAL_BUG, "no snapshot in the answer");
    } else if (!skills_is_refusal(code) && look_by_name(m, &found) == BERTH_OK) {
        code = BERTH_OK;
    }
    berth_message_free(resp);
    if (!code && (!found.snapshot_id[0] || strlen(found.snapshot_id) > ID_MAX))
        code = berth_fail(&why, BERTH_REASON_INTERNAL_BUG, "the snapshot has no proper id");
    if (code) {
        give_up(m);
        if (err)
            *err = why;
        return code;
    }
    snprintf(m->row.snapshot_id, sizeof m->row.snapshot_id, "%s", found.snapshot_id);
    snprintf(m->row.state, sizeof m->row.state, "active");
    m->row.size_bytes = found.size_bytes;
    return change_row(m, LEDGER_PUBLISH, err);
}

/* ------------------------------------------------------------------ the request */

/* A row of the same request. *ret_found: *row is the answer. */
static enum berth_code find_request(struct making *m, bool *ret_found, struct berth_error *err)
{
    const struct snapshot_wish *wish = m->wish;
    int64_t now_ms = berth_now_ms();
    struct ledger ledger = {0};
    enum berth_code code;

    if (!*wish->request_id)
        return BERTH_OK;
    code = ledger_read(m->skills->redis, wish->session->tenant_id, m->config_id, &ledger, err);
    for (size_t i = 0; !code && !*ret_found && i < ledger.n_rows; i++) {
        const struct berth_snapshot_row *row = &ledger.rows[i];

        if (strcmp(row->request_id, wish->request_id) != 0 ||
            now_ms - row->create_ms > REQUEST_ID_KEPT_MS ||
            (strcmp(row->state, "active") != 0 && strcmp(row->state, "building") != 0))
            continue;
        if (strcmp(row->source_session, wish->session->session_id) != 0 ||
            strcmp(row->display_name, wish->display_name) != 0) {
            code = berth_fail(err, BERTH_REASON_REQUEST_ID_REUSED, NULL);
        } else if (strcmp(row->state, "active") == 0) {
            m->row = *row;
            *ret_found = true;
        } else if (now_ms < row->not_after_ms + SETTLE_MS) {
            code = berth_fail(err, BERTH_REASON_CONFLICT, "this request is being carried out");
            if (err)
                err->retry_after_ms = 1000;
        } /* else: a build that died; the janitor cleans it, this one begins anew */
    }
    ledger_deinit(&ledger);
    return code;
}

static void fill_row(struct making *m)
{
    const BackendTarget *target = m->route->endpoint->target;
    struct berth_snapshot_row *row = &m->row;

    *row = (struct berth_snapshot_row){.create_ms = berth_now_ms()};
    row->not_after_ms = row->create_ms + m->skills->snapshot_timeout_ms;
    berth_id_base36(row->row_id, LEDGER_ROW_ID_LEN);
    snprintf(row->origin, sizeof row->origin, "user");
    snprintf(row->state, sizeof row->state, "building");
    ledger_planned_name(row->planned_name, m->wish->session->tenant_id, m->config_id,
                        row->row_id);
    if (target->fingerprint.len == 32)
        berth_hex(row->account, target->fingerprint.data, 32);
    snprintf(row->display_name, sizeof row->display_name, "%s", m->wish->display_name);
    snprintf(row->source_session, sizeof row->source_session, "%s",
             m->wish->session->session_id);
    snprintf(row->request_id, sizeof row->request_id, "%s", m->wish->request_id);
    snprintf(row->created_by, sizeof row->created_by, "%s", m->wish->actor);
}

static enum berth_code resolve_route(struct making *m, struct berth_error *err)
{
    ResolveRouteRequest req = BERTH__CONTROL__V1__RESOLVE_ROUTE_REQUEST__INIT;
    enum berth_code code;

    req.session = (Berth__Common__V1__SessionRef *)m->wish->session;
    req.mode = BERTH__CONTROL__V1__RESOLVE_MODE__RESOLVE_MODE_EXISTING;
    req.only_config = (char *)m->wish->only_config;
    code = skills_control_call(
        m->skills, m->call, "/berth.control.v1.InternalService/ResolveRoute", &req.base,
        &berth__control__v1__resolve_route_response__descriptor, &m->route, err);
    if (code)
        return code;
    if (!m->route->endpoint || !m->route->endpoint->target || !m->route->capabilities)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "a route without a target");
    m->config_id = m->route->endpoint->target->config_id;
    if (!m->route->capabilities->snapshots || !m->route->capabilities->snapshots->supported) {
        code = berth_fail(err, BERTH_REASON_CAPABILITY_MISSING,
                          "CreateSnapshot: the backend lacks the capability snapshots");
        BERTH_ERROR_SET(err, resource, "snapshots");
    }
    return code;
}

static enum berth_code make_new(struct making *m, struct berth_error *err)
{
    enum berth_code code;

    fill_row(m);
    code = renew_use(m, false, err);
    if (code)
        return code;
    code = change_row(m, LEDGER_BUILD, err);
    if (!code)
        code = build(m, err);
    (void)renew_use(m, true, NULL); /* it runs out by itself */
    return code;
}

enum berth_code snapshot_make(struct skills *skills, struct berth_call *call,
                              const struct snapshot_wish *wish, char ret_config[129],
                              struct berth_snapshot_row *ret_row, struct berth_error *err)
{
    struct making m = {.skills = skills, .call = call, .wish = wish};
    bool found = false;
    enum berth_code code = resolve_route(&m, err);

    if (!code)
        code = find_request(&m, &found, err);
    if (!code && !found)
        code = make_new(&m, err);
    if (!code) {
        snprintf(ret_config, 129, "%s", m.config_id);
        *ret_row = m.row;
    }
    berth_message_free(m.route);
    return code;
}
