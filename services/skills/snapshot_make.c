/* snapshot_make.c - the request, its row of the ledger, and who carries it out. */
#include "services/skills/snapshot_make.h"

#include <stdio.h>

#include "common/ids/ids.h"
#include "common/log/log.h"
#include "common/messages/messages.h"
#include "common/time/time.h"
#include "services/skills/making.h"

typedef Berth__Backend__V1__CreateSnapshotResponse CreateSnapshotResponse;
typedef Berth__Common__V1__BackendTarget BackendTarget;
typedef Berth__Control__V1__ResolveRouteRequest ResolveRouteRequest;

enum { ID_MAX = 128 };

#define REQUEST_ID_KEPT_MS ((int64_t)24 * 60 * 60 * 1000)

/* ----------------------------------------------------------------- the ledger */

/* Somebody else, who took this build over, has brought it to its end. */
static bool is_done(const struct making *m, const struct berth_snapshot_row *there)
{
    return there && strcmp(there->state, "active") == 0 &&
           strcmp(there->snapshot_id, m->row.snapshot_id) == 0;
}

/* Read, change the row of a build of ours, write, as often as others write in between. */
enum berth_code making_change_row(struct making *m, enum ledger_change change,
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
        if (change == LEDGER_PUBLISH && is_done(m, there)) {
            applied = true;
        } else if (!there || strcmp(there->state, "building") != 0 ||
                   strcmp(there->owner, m->skills->owner) != 0) {
            code = berth_fail(err, BERTH_REASON_CONFLICT,
                              "another replica has taken this build over");
        } else {
            m->row.beat_ms = ledger.now_ms;
            code =
                ledger_write(m->skills->records, &ledger, &m->row, change, NULL, &applied, err);
        }
        ledger_deinit(&ledger);
        if (code || applied)
            return code;
    }
    return berth_fail(err, BERTH_REASON_CONFLICT,
                      "too many others wrote to the config's ledger at once");
}

enum berth_code making_beat(struct making *m, struct berth_error *err)
{
    return making_change_row(m, LEDGER_KEEP, err);
}

void making_give_up(struct making *m)
{
    struct berth_error err = {0};

    snprintf(m->row.state, sizeof m->row.state, "abandoned");
    if (making_change_row(m, LEDGER_KEEP, &err) && err.reason != BERTH_REASON_CONFLICT)
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

/* The snapshot is there: from here on sessions boot from it. */
enum berth_code making_publish(struct making *m, const struct skills_found *found,
                               struct berth_error *err)
{
    snprintf(m->row.snapshot_id, sizeof m->row.snapshot_id, "%s", found->snapshot_id);
    snprintf(m->row.state, sizeof m->row.state, "active");
    m->row.size_bytes = found->size_bytes;
    return making_change_row(m, LEDGER_PUBLISH, err);
}

enum berth_code making_build(struct making *m, struct berth_error *err)
{
    CreateSnapshotResponse *resp = NULL;
    struct skills_found found = {0};
    struct berth_error why = {0};
    enum berth_code code = making_ask_backend(m, &resp, &why);

    if (!code && resp->snapshot) {
        snprintf(found.snapshot_id, sizeof found.snapshot_id, "%s",
                 resp->snapshot->snapshot_id);
        found.size_bytes = resp->snapshot->size_bytes;
    } else if (!code) {
        code = berth_fail(&why, BERTH_REASON_INTERNAL_BUG, "no snapshot in the answer");
    } else if ((!skills_is_refusal(code) || why.reason == BERTH_REASON_CONFLICT) &&
               look_by_name(m, &found) == BERTH_OK) {
        code = BERTH_OK;
    }
    berth_message_free(resp);
    if (!code && (!found.snapshot_id[0] || strlen(found.snapshot_id) > ID_MAX))
        code = berth_fail(&why, BERTH_REASON_INTERNAL_BUG, "the snapshot has no proper id");
    if (!code)
        return making_publish(m, &found, err);
    making_give_up(m);
    if (err)
        *err = why;
    return code;
}

/* A build whose process is gone. Its call may still be at work: where the backend is keyed, the
 * same call for the same sandbox waits for that one and answers what it made; elsewhere only
 * time tells that nothing comes any more. */
static enum berth_code carry_on(struct making *m, bool settled, struct berth_error *err)
{
    struct skills_found found = {0};
    const char *sandbox_id = m->route->endpoint->sandbox_id;
    bool keyed =
        m->route->capabilities->keyed_create && strcmp(m->row.source_sandbox, sandbox_id) == 0;
    enum berth_code code;

    if (look_by_name(m, &found) == BERTH_OK)
        return making_publish(m, &found, err);
    if (!keyed && !settled) {
        code = berth_fail(err, BERTH_REASON_CONFLICT,
                          "the backend may still be at work for this request");
        if (err)
            err->retry_after_ms = m->skills->build_lease_ms;
        return code;
    }
    m->row.not_after_ms = berth_now_ms() + m->skills->snapshot_timeout_ms;
    snprintf(m->row.source_sandbox, sizeof m->row.source_sandbox, "%s", sandbox_id);
    code = making_change_row(m, LEDGER_KEEP, err);
    return code ? code : making_build(m, err);
}

/* ------------------------------------------------------------------ the request */

enum claim {
    CLAIM_DONE, /* m->row is the answer */
    CLAIM_NEW,
    CLAIM_TAKEN_OVER,
};

/* The row of the same request, if there is one that counts; NULL: none. */
static const struct berth_snapshot_row *find_request(const struct making *m,
                                                     const struct ledger *ledger)
{
    const char *request_id = m->wish->request_id;

    for (size_t i = 0; *request_id && i < ledger->n_rows; i++) {
        const struct berth_snapshot_row *row = &ledger->rows[i];

        if (strcmp(row->request_id, request_id) == 0 &&
            ledger->now_ms - row->create_ms <= REQUEST_ID_KEPT_MS &&
            (strcmp(row->state, "active") == 0 ||
             (strcmp(row->state, "building") == 0 &&
              skills_same_account(m->route->endpoint->target, row->account))))
            return row;
    }
    return NULL;
}

static enum berth_code check_repeat(const struct making *m, const struct ledger *ledger,
                                    const struct berth_snapshot_row *row,
                                    struct berth_error *err)
{
    enum berth_code code;

    if (strcmp(row->source_session, m->wish->session->session_id) != 0 ||
        strcmp(row->display_name, m->wish->display_name) != 0)
        return berth_fail(err, BERTH_REASON_REQUEST_ID_REUSED, NULL);
    if (strcmp(row->state, "active") == 0 ||
        ledger_is_orphan(ledger, row, m->skills->build_lease_ms))
        return BERTH_OK;
    code = berth_fail(err, BERTH_REASON_CONFLICT, "this request is being carried out");
    if (err)
        err->retry_after_ms = 1000;
    return code;
}

static void fill_row(struct making *m)
{
    const BackendTarget *target = m->route->endpoint->target;
    struct berth_snapshot_row *row = &m->row;

    *row = (struct berth_snapshot_row){.create_ms = berth_now_ms()};
    row->not_after_ms = row->create_ms + m->skills->snapshot_timeout_ms;
    berth_id_base36(row->row_id, LEDGER_ROW_ID_LEN);
    snprintf(row->owner, sizeof row->owner, "%s", m->skills->owner);
    snprintf(row->source_sandbox, sizeof row->source_sandbox, "%s",
             m->route->endpoint->sandbox_id);
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
    snprintf(row->parent_snapshot_id, sizeof row->parent_snapshot_id, "%s",
             m->parent.snapshot_id);
    row->base_generation = m->parent.generation;
}

/* What the sandbox has booted from, and so which skills are in its snapshot. Of another user's
 * snapshot: what that one stands on. Not to be had: not known. */
static void look_at_parent(struct making *m)
{
    Berth__Control__V1__GetSessionRequest req = BERTH__CONTROL__V1__GET_SESSION_REQUEST__INIT;
    Berth__Control__V1__GetSessionResponse *resp = NULL;
    const Berth__Common__V1__Sandbox *sandbox;

    req.key_case = BERTH__CONTROL__V1__GET_SESSION_REQUEST__KEY_SESSION;
    req.session = (Berth__Common__V1__SessionRef *)m->wish->session;
    if (skills_control_call(m->skills, NULL, "/berth.control.v1.SessionService/GetSession",
                            &req.base, &berth__control__v1__get_session_response__descriptor,
                            &resp, NULL))
        return;
    sandbox = resp->session ? resp->session->sandbox : NULL;
    if (sandbox && sandbox->image &&
        sandbox->image->source_case == BERTH__COMMON__V1__IMAGE__SOURCE_SNAPSHOT_ID &&
        strcmp(sandbox->sandbox_id, m->route->endpoint->sandbox_id) == 0 &&
        strlen(sandbox->image->snapshot_id) < sizeof m->parent.snapshot_id) {
        snprintf(m->parent.snapshot_id, sizeof m->parent.snapshot_id, "%s",
                 sandbox->image->snapshot_id);
        m->parent.generation = sandbox->image->generation;
    }
    berth_message_free(resp);
}

/* A user's snapshot of the same config, that the sandbox has booted from. */
static void look_at_grandparent(struct making *m, const struct ledger *ledger)
{
    for (size_t i = 0; m->parent.snapshot_id[0] && i < ledger->n_rows; i++)
        if (strcmp(ledger->rows[i].snapshot_id, m->parent.snapshot_id) == 0 &&
            strcmp(ledger->rows[i].origin, "user") == 0)
            m->parent.generation = ledger->rows[i].base_generation;
}

enum berth_code making_route(struct making *m, struct berth_error *err)
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

/* May the tenant have one more? Counted again where it seems full: one that was published while
 * we counted counts twice. */
enum berth_code making_check_limit(struct skills *skills, const char *tenant, uint32_t limit,
                                   struct ledger_quota *ret, struct berth_error *err)
{
    enum berth_code code = BERTH_OK;

    ret->n = limit;
    for (int i = 0; i < 2 && !code && ret->n >= limit; i++)
        code = ledger_count(skills->redis, tenant, ret, err);
    if (!code && ret->n >= limit)
        code = berth_fail(err, BERTH_REASON_QUOTA_EXCEEDED,
                          "snapshots: the tenant may have %u, and has %llu", limit,
                          (unsigned long long)ret->n);
    return code;
}

/* The row is ours, decided on one reading of the ledger: of two repeats at once one gets it. */
static enum berth_code claim(struct making *m, enum claim *ret_claim, bool *ret_settled,
                             struct berth_error *err)
{
    for (int i = 0; i < SK_CAS_TRIES; i++) {
        const struct berth_snapshot_row *row;
        struct ledger ledger = {0};
        struct ledger_quota quota = {0};
        bool applied = false, has_limit;
        enum berth_code code = ledger_read(m->skills->redis, m->wish->session->tenant_id,
                                           m->config_id, &ledger, err);

        if (code)
            return code;
        has_limit = ledger.tenant.quotas.snapshots > 0;
        row = find_request(m, &ledger);
        if (!ledger.config.exists || strcmp(ledger.config.state, "active") != 0)
            code =
                berth_fail(err, BERTH_REASON_CONFIG_NOT_FOUND, "no config '%s'", m->config_id);
        else if (row)
            code = check_repeat(m, &ledger, row, err);
        if (!code && row) {
            m->row = *row;
            *ret_settled = ledger_is_settled(&ledger, row);
            *ret_claim = CLAIM_TAKEN_OVER;
            if (strcmp(row->state, "active") == 0) {
                *ret_claim = CLAIM_DONE;
                applied = true;
            }
            snprintf(m->row.owner, sizeof m->row.owner, "%s", m->skills->owner);
        } else if (!code) {
            look_at_grandparent(m, &ledger);
            fill_row(m);
            *ret_claim = CLAIM_NEW;
            if (has_limit)
                code = making_check_limit(m->skills, m->wish->session->tenant_id,
                                          ledger.tenant.quotas.snapshots, &quota, err);
        }
        m->row.beat_ms = ledger.now_ms;
        if (!code && !applied)
            code = ledger_write(m->skills->records, &ledger, &m->row,
                                row ? LEDGER_KEEP : LEDGER_BUILD, has_limit ? &quota : NULL,
                                &applied, err);
        ledger_deinit(&ledger);
        if (code || applied)
            return code;
    }
    return berth_fail(err, BERTH_REASON_CONFLICT,
                      "too many others wrote to the config's ledger at once");
}

static enum berth_code make(struct making *m, struct berth_error *err)
{
    enum claim got = CLAIM_NEW;
    bool settled = false;
    enum berth_code code;

    look_at_parent(m);
    code = claim(m, &got, &settled, err);
    if (code || got == CLAIM_DONE)
        return code;
    code = making_renew_use(m, false, err);
    if (code && got == CLAIM_NEW)
        making_give_up(m);
    if (code)
        return code;
    code = got == CLAIM_NEW ? making_build(m, err) : carry_on(m, settled, err);
    (void)making_renew_use(m, true, NULL); /* it runs out by itself */
    return code;
}

enum berth_code snapshot_make(struct skills *skills, struct berth_call *call,
                              const struct snapshot_wish *wish, char ret_config[129],
                              struct berth_snapshot_row *ret_row, struct berth_error *err)
{
    struct making m = {.skills = skills, .call = call, .wish = wish};
    enum berth_code code = making_route(&m, err);

    if (!code)
        code = make(&m, err);
    if (!code) {
        snprintf(ret_config, 129, "%s", m.config_id);
        *ret_row = m.row;
    }
    berth_message_free(m.route);
    return code;
}
