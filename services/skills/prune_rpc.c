/* prune_rpc.c - SkillService.PruneSnapshots: snapshots of superseded skill images. */
#include <stdio.h>

#include "berth/control/v1/control.pb-c.h"
#include "common/fields/fields.h"
#include "common/messages/messages.h"
#include "common/time/time.h"
#include "services/skills/catalog.h"
#include "services/skills/operation_impl.h"
#include "services/skills/prune.h"

typedef Berth__Control__V1__ListSessionsRequest ListSessionsRequest;
typedef Berth__Control__V1__ListSessionsResponse ListSessionsResponse;
typedef Berth__Skills__V1__PruneItem PruneItem;
typedef Berth__Skills__V1__PruneSnapshotsRequest PruneSnapshotsRequest;
typedef Berth__Skills__V1__PruneSnapshotsResponse PruneSnapshotsResponse;

enum { PAGE_SIZE = 1000, PAGES_MAX = 10000 };

#define DAY_MS ((int64_t)24 * 60 * 60 * 1000)
#define RETENTION_MS (7 * DAY_MS)
#define RETENTION_MAX_MS (3650 * DAY_MS)

struct pruning {
    struct skills *skills;
    const struct berth_call *call;
    const PruneSnapshotsRequest *req;
    int64_t retention_ms;
    json_t *used;   /* owned: object, snapshot id -> true: sessions and other configs name it */
    json_t *wanted; /* owned: array of generations that rollbacks are to publish */
    int64_t running_since_ms; /* of the operation under way; 0: none */
};

static enum berth_code no_memory(struct berth_error *err)
{
    return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

/* ---------------------------------------------------------------------- who uses it */

static bool note(json_t *used, const char *snapshot_id)
{
    return !*snapshot_id || json_object_set_new(used, snapshot_id, json_true()) == 0;
}

static bool note_image(json_t *used, const Berth__Common__V1__Image *image)
{
    return !image || image->source_case != BERTH__COMMON__V1__IMAGE__SOURCE_SNAPSHOT_ID ||
           note(used, image->snapshot_id);
}

static bool note_session(json_t *used, const Berth__Control__V1__Session *session)
{
    return note_image(used, session->spec ? session->spec->image : NULL) &&
           note_image(used, session->sandbox ? session->sandbox->image : NULL);
}

/* Of all sessions of the tenant: those of other configs may name it, too. */
static enum berth_code note_sessions(struct pruning *p, struct berth_error *err)
{
    Berth__Common__V1__PageRequest page = BERTH__COMMON__V1__PAGE_REQUEST__INIT;
    ListSessionsRequest req = BERTH__CONTROL__V1__LIST_SESSIONS_REQUEST__INIT;
    BERTH_AUTO(free) char *token = NULL;
    enum berth_code code = BERTH_OK;
    bool more = true;

    req.tenant_id = p->req->tenant_id;
    req.page = &page;
    page.page_size = PAGE_SIZE;
    for (int i = 0; !code && more; i++) {
        ListSessionsResponse *resp = NULL;

        page.page_token = token ? token : (char *)"";
        code = skills_control_call(
            p->skills, p->call, "/berth.control.v1.SessionService/ListSessions", &req.base,
            &berth__control__v1__list_sessions_response__descriptor, &resp, err);
        if (code)
            break;
        for (size_t k = 0; !code && k < resp->n_sessions; k++)
            if (!note_session(p->used, resp->sessions[k]))
                code = no_memory(err);
        more = *resp->next_page_token != 0;
        if (!code && more && i == PAGES_MAX)
            code = berth_fail(err, BERTH_REASON_INTERNAL_BUG, "the sessions do not end");
        free(token);
        token = strdup(resp->next_page_token);
        if (!code && !token)
            code = no_memory(err);
        berth_message_free(resp);
    }
    return code;
}

/* Rows and pointers of the tenant's other configs. */
static enum berth_code note_configs(struct pruning *p, struct berth_error *err)
{
    BERTH_AUTO(berth_reply_free) struct berth_reply *configs = NULL;
    enum berth_code code = ledger_configs(p->skills->redis, p->req->tenant_id, &configs, err);

    for (size_t i = 0; !code && i < configs->n_items; i++) {
        const char *config_id = configs->items[i]->string;
        struct ledger ledger = {0};

        if (strcmp(config_id, p->req->config_id) == 0)
            continue;
        code = ledger_read(p->skills->redis, p->req->tenant_id, config_id, &ledger, err);
        if (code)
            break;
        if (!note(p->used, ledger.config.image.snapshot_id))
            code = no_memory(err);
        for (size_t k = 0; !code && k < ledger.n_rows; k++)
            if (!note(p->used, ledger.rows[k].snapshot_id))
                code = no_memory(err);
        ledger_deinit(&ledger);
    }
    return code;
}

/* What a rollback that waits or runs would publish, and what was live when the present
 * operation began: its maintenance session may stand on it. */
static enum berth_code note_operations(struct pruning *p, struct berth_error *err)
{
    struct operation *list = NULL;
    size_t n = 0;
    enum berth_code code =
        operation_list(p->skills, p->req->tenant_id, p->req->config_id, &list, &n, err);

    for (size_t i = 0; !code && i < n; i++) {
        if (operation_has_ended(&list[i]))
            continue;
        if (list[i].state == STATE(RUNNING))
            p->running_since_ms = list[i].create_ms;
        if (list[i].from_generation > 0 &&
            json_array_append_new(p->wanted,
                                  json_integer((json_int_t)list[i].from_generation)) < 0)
            code = no_memory(err);
    }
    operation_list_free(list, n);
    return code;
}

static enum berth_code note_all(struct pruning *p, struct berth_error *err)
{
    enum berth_code code = BERTH_OK;

    json_decref(p->used);
    json_decref(p->wanted);
    p->used = json_object();
    p->wanted = json_array();
    p->running_since_ms = 0;
    if (!p->used || !p->wanted)
        return no_memory(err);
    code = note_operations(p, err);
    if (!code)
        code = note_configs(p, err);
    return code ? code : note_sessions(p, err);
}

static bool is_named(const struct pruning *p, const char *snapshot_id, uint64_t generation)
{
    if (json_object_get(p->used, snapshot_id))
        return true;
    for (size_t i = 0; i < json_array_size(p->wanted); i++)
        if ((uint64_t)json_integer_value(json_array_get(p->wanted, i)) == generation)
            return true;
    return false;
}

static bool is_used(const struct pruning *p, const struct berth_snapshot_row *row)
{
    return is_named(p, row->snapshot_id, row->generation) ||
           (p->running_since_ms && row->supersede_ms >= p->running_since_ms);
}

/* ------------------------------------------------------------------------- one row */

static enum prune_verdict judge(const struct pruning *p, const struct ledger *ledger,
                                const struct berth_snapshot_row *row)
{
    return prune_judge(ledger, row, p->retention_ms, is_used(p, row));
}

/* The row's state becomes another one, if it is still `from`; condemn: and it may still go.
 * *ret_done false: it is not what it was. */
static enum berth_code set_state(const struct pruning *p, const char *row_id, const char *from,
                                 const char *to, int64_t not_after_ms, bool *ret_done,
                                 struct berth_error *err)
{
    *ret_done = false;
    for (int i = 0; i < SK_CAS_TRIES; i++) {
        struct ledger ledger = {0};
        struct berth_snapshot_row *row;
        bool applied = false;
        enum berth_code code =
            ledger_read(p->skills->redis, p->req->tenant_id, p->req->config_id, &ledger, err);

        if (code)
            return code;
        row = ledger_find(&ledger, row_id);
        if (!row || strcmp(row->state, from) != 0 ||
            (strcmp(to, "deleted") == 0 && judge(p, &ledger, row) != PRUNE_SUPERSEDED)) {
            ledger_deinit(&ledger);
            return BERTH_OK;
        }
        snprintf(row->state, sizeof row->state, "%s", *to ? to : from);
        row->not_after_ms = not_after_ms;
        code = ledger_write(p->skills->records, &ledger, row, *to ? LEDGER_KEEP : LEDGER_REMOVE,
                            NULL, &applied, err);
        ledger_deinit(&ledger);
        if (code || applied) {
            *ret_done = !code;
            return code;
        }
    }
    return berth_fail(err, BERTH_REASON_CONFLICT, NULL);
}

/* The snapshot itself stays while another row names it. */
static enum berth_code delete_unshared(const struct pruning *p,
                                       Berth__Common__V1__BackendTarget *target,
                                       const char *row_id, const char *snapshot_id,
                                       struct berth_error *err)
{
    struct ledger ledger = {0};
    const struct berth_snapshot_row *row;
    bool shared;
    enum berth_code code =
        ledger_read(p->skills->redis, p->req->tenant_id, p->req->config_id, &ledger, err);

    if (code)
        return code;
    row = ledger_find(&ledger, row_id);
    shared = row && ledger_is_shared(&ledger, row);
    ledger_deinit(&ledger);
    return shared ? BERTH_OK : skills_delete_at(p->skills, target, snapshot_id, NULL, err);
}

/* Condemned before: nothing boots from it any more. Whatever does not end here is carried on by
 * the janitor. */
static bool delete_one(const struct pruning *p, Berth__Common__V1__BackendTarget *target,
                       const char *row_id, PruneItem *item)
{
    struct berth_error err = {0}, why = {0};
    bool done;
    enum berth_code code = delete_unshared(p, target, row_id, item->snapshot_id, &err);

    if (code) {
        if (skills_is_refusal(code) && code != BERTH_UNAVAILABLE)
            (void)set_state(p, row_id, "deleted", "superseded", berth_now_ms(), &done, &why);
        return berth_set_string(&item->error, err.text);
    }
    code = set_state(p, row_id, "deleted", "", berth_now_ms(), &done, &err);
    item->deleted = !code;
    return !code || berth_set_string(&item->error, err.text);
}

/* ------------------------------------------------------------------------ all rows */

static int compare_rows(const void *a, const void *b)
{
    const struct berth_snapshot_row *x = a, *y = b;

    return x->generation < y->generation ? -1 : x->generation > y->generation;
}

static PruneItem *show(const struct berth_snapshot_row *row, enum prune_verdict verdict)
{
    PruneItem *out = berth_message_new(&berth__skills__v1__prune_item__descriptor);

    if (!out)
        return NULL;
    out->generation = row->generation;
    out->size_bytes = row->size_bytes;
    if (berth_set_string(&out->snapshot_id, row->snapshot_id) &&
        berth_set_string(&out->reason, prune_reason(verdict)))
        return out;
    return berth_message_free(out);
}

/* One item for each row of a skill image; ret_rows: the row of each. */
static enum berth_code look(const struct pruning *p, struct ledger *ledger,
                            PruneSnapshotsResponse *out, char (**ret_rows)[33],
                            struct berth_error *err)
{
    char(*rows)[33] = calloc(ledger->n_rows + 1, sizeof *rows);

    if (!rows)
        return no_memory(err);
    qsort(ledger->rows, ledger->n_rows, sizeof *ledger->rows, compare_rows);
    for (size_t i = 0; i < ledger->n_rows; i++) {
        const struct berth_snapshot_row *row = &ledger->rows[i];
        enum prune_verdict verdict = judge(p, ledger, row);

        if (verdict == PRUNE_NOT_OURS)
            continue;
        snprintf(rows[out->n_items], sizeof *rows, "%s", row->row_id);
        if (!berth_add_message(&out->n_items, &out->items, show(row, verdict))) {
            free(rows);
            return no_memory(err);
        }
    }
    *ret_rows = rows;
    return BERTH_OK;
}

static bool goes(const PruneItem *item)
{
    return strcmp(item->reason, prune_reason(PRUNE_SUPERSEDED)) == 0 && !*item->error;
}

/* Nothing boots from them from here on. Who came to name one in between is looked for once
 * more, and gets it back. */
static enum berth_code condemn(struct pruning *p, PruneSnapshotsResponse *out, char (*rows)[33],
                               struct berth_error *err)
{
    enum berth_code code = BERTH_OK;
    bool done;

    for (size_t i = 0; !code && i < out->n_items; i++) {
        PruneItem *item = out->items[i];

        if (!goes(item))
            continue;
        code = set_state(p, rows[i], "superseded", "deleted",
                         berth_now_ms() + SK_CALL_TIMEOUT_MS, &done, err);
        if (!code && !done && !berth_set_string(&item->error, "it has changed meanwhile"))
            code = no_memory(err);
    }
    if (!code)
        code = note_all(p, err);
    for (size_t i = 0; !code && i < out->n_items; i++) {
        PruneItem *item = out->items[i];

        if (!goes(item) || !is_named(p, item->snapshot_id, item->generation))
            continue;
        code = set_state(p, rows[i], "deleted", "superseded", berth_now_ms(), &done, err);
        if (!code && !berth_set_string(&item->reason, prune_reason(PRUNE_IN_USE)))
            code = no_memory(err);
    }
    return code;
}

static enum berth_code delete_all(struct pruning *p, PruneSnapshotsResponse *out,
                                  char (*rows)[33], struct berth_error *err)
{
    Berth__Common__V1__BackendTarget *target = NULL;
    bool any = false;
    enum berth_code code = BERTH_OK;

    for (size_t i = 0; i < out->n_items; i++)
        any = any || goes(out->items[i]);
    if (!any)
        return BERTH_OK;
    code = skills_target(p->skills, p->req->tenant_id, p->req->config_id, &target, err);
    if (!code)
        code = condemn(p, out, rows, err);
    for (size_t i = 0; !code && i < out->n_items; i++)
        if (goes(out->items[i]) && !delete_one(p, target, rows[i], out->items[i]))
            code = no_memory(err);
    berth_message_free(target);
    return code;
}

static enum berth_code prune(struct pruning *p, PruneSnapshotsResponse *out,
                             struct berth_error *err)
{
    BERTH_AUTO(free) void *owned = NULL;
    char(*rows)[33] = NULL;
    struct ledger ledger = {0};
    enum berth_code code =
        ledger_read(p->skills->redis, p->req->tenant_id, p->req->config_id, &ledger, err);

    if (code)
        return code;
    code = ledger_check_tenant(p->skills->redis, p->req->tenant_id, &ledger.tenant, err);
    if (!code && !ledger.config.exists)
        code =
            berth_fail(err, BERTH_REASON_CONFIG_NOT_FOUND, "no config '%s'", p->req->config_id);
    if (!code)
        code = note_all(p, err);
    if (!code)
        code = look(p, &ledger, out, &rows, err);
    owned = rows;
    ledger_deinit(&ledger);
    return code || p->req->dry_run ? code : delete_all(p, out, rows, err);
}

static enum berth_code prune_snapshots(void *service, struct berth_call *call,
                                       const ProtobufCMessage *message,
                                       ProtobufCMessage **ret_resp, struct berth_error *err)
{
    const PruneSnapshotsRequest *req = (const PruneSnapshotsRequest *)message;
    struct pruning p = {
        .skills = service, .call = call, .req = req, .retention_ms = RETENTION_MS};
    PruneSnapshotsResponse *out;
    enum berth_code code = berth_check_id("tenant_id", req->tenant_id, err);

    if (!code)
        code = berth_check_id("config_id", req->config_id, err);
    if (!code && req->retention)
        code = berth_check_duration("retention", req->retention->seconds, req->retention->nanos,
                                    RETENTION_MAX_MS, &p.retention_ms, err);
    if (!code)
        code = skills_enter(service, err);
    if (code)
        return code;
    out = berth_message_new(&berth__skills__v1__prune_snapshots_response__descriptor);
    code = out ? prune(&p, out, err) : no_memory(err);
    json_decref(p.used);
    json_decref(p.wanted);
    if (code)
        berth_message_free(out);
    else
        *ret_resp = &out->base;
    return code;
}

const struct berth_method skills_prune_methods[] = {
    {"/berth.skills.v1.SkillService/PruneSnapshots",
     &berth__skills__v1__prune_snapshots_request__descriptor, .unary = prune_snapshots},
};
const size_t skills_n_prune_methods = BERTH_COUNT(skills_prune_methods);
