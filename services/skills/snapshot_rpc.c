/* snapshot_rpc.c - SnapshotService: users' snapshots. Decode, check, ask the ledger, encode. */
#include <stdio.h>

#include "berth/skills/v1/skills.pb-c.h"
#include "common/fields/fields.h"
#include "common/messages/messages.h"
#include "common/time/time.h"
#include "services/skills/ledger.h"
#include "services/skills/skills.h"
#include "services/skills/snapshot_make.h"

typedef Berth__Skills__V1__CreateSnapshotRequest CreateSnapshotRequest;
typedef Berth__Skills__V1__CreateSnapshotResponse CreateSnapshotResponse;
typedef Berth__Skills__V1__DeleteSnapshotRequest DeleteSnapshotRequest;
typedef Berth__Skills__V1__GetSnapshotRequest GetSnapshotRequest;
typedef Berth__Skills__V1__GetSnapshotResponse GetSnapshotResponse;
typedef Berth__Skills__V1__ListSnapshotsRequest ListSnapshotsRequest;
typedef Berth__Skills__V1__ListSnapshotsResponse ListSnapshotsResponse;
typedef Berth__Skills__V1__SnapshotRecord SnapshotRecord;

enum { DISPLAY_NAME_MAX = 64, REQUEST_ID_MAX = 128, ID_MAX = 128 };

#define HANDLER(name)                                                                          \
    static enum berth_code name(void *service, struct berth_call *call,                        \
                                const ProtobufCMessage *message, ProtobufCMessage **ret_resp,  \
                                struct berth_error *err)

static enum berth_code no_memory(struct berth_error *err)
{
    return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

/* ----------------------------------------------------------------- show, check */

static Berth__Skills__V1__LedgerState state_of(const char *state)
{
    static const char *const names[] = {
        [BERTH__SKILLS__V1__LEDGER_STATE__LEDGER_STATE_BUILDING] = "building",
        [BERTH__SKILLS__V1__LEDGER_STATE__LEDGER_STATE_ACTIVE] = "active",
        [BERTH__SKILLS__V1__LEDGER_STATE__LEDGER_STATE_SUPERSEDED] = "superseded",
        [BERTH__SKILLS__V1__LEDGER_STATE__LEDGER_STATE_DELETED] = "deleted",
        [BERTH__SKILLS__V1__LEDGER_STATE__LEDGER_STATE_ABANDONED] = "abandoned",
    };

    for (size_t i = 1; i < BERTH_COUNT(names); i++)
        if (strcmp(names[i], state) == 0)
            return (Berth__Skills__V1__LedgerState)i;
    return BERTH__SKILLS__V1__LEDGER_STATE__LEDGER_STATE_UNSPECIFIED;
}

static Berth__Skills__V1__SnapshotOrigin origin_of(const char *origin)
{
    return strcmp(origin, "skills") == 0
               ? BERTH__SKILLS__V1__SNAPSHOT_ORIGIN__SNAPSHOT_ORIGIN_SKILLS
               : BERTH__SKILLS__V1__SNAPSHOT_ORIGIN__SNAPSHOT_ORIGIN_USER;
}

static SnapshotRecord *show(const char *tenant, const char *config_id,
                            const struct berth_snapshot_row *row)
{
    SnapshotRecord *out = berth_message_new(&berth__skills__v1__snapshot_record__descriptor);

    if (!out)
        return NULL;
    out->origin = origin_of(row->origin);
    out->state = state_of(row->state);
    out->generation = row->generation;
    out->size_bytes = row->size_bytes;
    if (berth_set_string(&out->snapshot_id, row->snapshot_id) &&
        berth_set_string(&out->tenant_id, tenant) &&
        berth_set_string(&out->config_id, config_id) &&
        berth_set_string(&out->planned_name, row->planned_name) &&
        berth_set_string(&out->parent_snapshot_id, row->parent_snapshot_id) &&
        berth_set_string(&out->fingerprint, row->account) &&
        berth_set_string(&out->display_name, row->display_name) &&
        berth_set_string(&out->row_id, row->row_id) &&
        berth_set_string(&out->created_by, row->created_by) &&
        (out->create_time = berth_timestamp(row->create_ms)) &&
        (!row->supersede_ms || (out->supersede_time = berth_timestamp(row->supersede_ms))))
        return out;
    return berth_message_free(out);
}

static enum berth_code check_snapshot_id(const char *value, struct berth_error *err)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:/-";
    size_t len = strlen(value);

    if (len == 0 || len > ID_MAX || strspn(value, allowed) != len)
        return berth_fail_field(err, "snapshot_id",
                                "must be 1 to %d characters of [A-Za-z0-9._:/-]", ID_MAX);
    return BERTH_OK;
}

static enum berth_code check_ref(const Berth__Common__V1__SessionRef *ref, bool peer,
                                 struct berth_error *err)
{
    enum berth_code code = berth_check_present("session", ref, err);

    if (!code)
        code = berth_check_id("session.tenant_id", ref->tenant_id, err);
    if (!code)
        code = berth_check_id("session.session_id", ref->session_id, err);
    if (!code && !peer && strncmp(ref->session_id, "sk.", 3) == 0) {
        code = berth_fail(err, BERTH_REASON_RESERVED_KEY,
                          "session.session_id: sessions \"sk.\" belong to skill installations");
        BERTH_ERROR_SET(err, field, "session.session_id");
    }
    return code;
}

/* The caller is bound to another config. */
static bool is_out_of_reach(const struct berth_call *call, const char *config_id)
{
    const char *only = berth_config_bound(call);

    return *only && strcmp(only, config_id) != 0;
}

/* A row that a tenant may see. */
static bool is_visible(const struct berth_snapshot_row *row)
{
    return strcmp(row->state, "deleted") != 0 && strcmp(row->state, "abandoned") != 0;
}

/* -------------------------------------------------------------- CreateSnapshot */

HANDLER(create_snapshot)
{
    struct skills *skills = service;
    const CreateSnapshotRequest *req = (const CreateSnapshotRequest *)message;
    char actor[BERTH_ACTOR_SIZE];
    const struct snapshot_wish wish = {.session = req->session,
                                       .display_name = req->display_name,
                                       .request_id = req->request_id,
                                       .only_config = berth_config_bound(call),
                                       .actor = berth_actor(call, actor)};
    struct berth_snapshot_row row;
    CreateSnapshotResponse *out;
    char config_id[129];
    enum berth_code code = check_ref(req->session, berth_call_is_peer(call), err);

    if (!code)
        code = berth_check_text("display_name", req->display_name, 0, DISPLAY_NAME_MAX, err);
    if (!code && *req->request_id)
        code = berth_check_text("request_id", req->request_id, 1, REQUEST_ID_MAX, err);
    if (!code && strlen(req->request_id) > REQUEST_ID_MAX)
        code = berth_fail_field(err, "request_id", "must be at most %d bytes", REQUEST_ID_MAX);
    if (!code)
        code = skills_enter(skills, err);
    if (!code)
        code = snapshot_make(skills, call, &wish, config_id, &row, err);
    if (code)
        return code;
    out = berth_message_new(&berth__skills__v1__create_snapshot_response__descriptor);
    if (!out || !(out->snapshot = show(req->session->tenant_id, config_id, &row))) {
        berth_message_free(out);
        return no_memory(err);
    }
    *ret_resp = &out->base;
    return BERTH_OK;
}

/* ----------------------------------------------------------------- GetSnapshot */

/* The ledger of the snapshot's config and its row in it. */
static enum berth_code find(struct skills *skills, const char *tenant, const char *snapshot_id,
                            struct ledger *ret, struct berth_snapshot_row **ret_row,
                            struct berth_error *err)
{
    char config_id[129], row_id[33];
    enum berth_code code =
        ledger_locate(skills->redis, tenant, snapshot_id, config_id, row_id, err);

    if (!code)
        code = ledger_read(skills->redis, tenant, config_id, ret, err);
    if (code)
        return code;
    *ret_row = ledger_find(ret, row_id);
    if (!*ret_row || strcmp((*ret_row)->snapshot_id, snapshot_id) != 0) {
        ledger_deinit(ret);
        return berth_fail(err, BERTH_REASON_SNAPSHOT_NOT_FOUND, "no snapshot '%s'",
                          snapshot_id);
    }
    return BERTH_OK;
}

HANDLER(get_snapshot)
{
    struct skills *skills = service;
    const GetSnapshotRequest *req = (const GetSnapshotRequest *)message;
    struct berth_snapshot_row *row;
    struct ledger ledger = {0};
    GetSnapshotResponse *out;
    enum berth_code code = berth_check_id("tenant_id", req->tenant_id, err);

    if (!code)
        code = check_snapshot_id(req->snapshot_id, err);
    if (!code)
        code = skills_enter(skills, err);
    if (!code)
        code = find(skills, req->tenant_id, req->snapshot_id, &ledger, &row, err);
    if (!code && (!is_visible(row) || is_out_of_reach(call, ledger.config_id)))
        code = berth_fail(err, BERTH_REASON_SNAPSHOT_NOT_FOUND, "no snapshot '%s'",
                          req->snapshot_id);
    if (!code) {
        out = berth_message_new(&berth__skills__v1__get_snapshot_response__descriptor);
        if (out && (out->snapshot = show(req->tenant_id, ledger.config_id, row))) {
            *ret_resp = &out->base;
        } else {
            berth_message_free(out);
            code = no_memory(err);
        }
    }
    ledger_deinit(&ledger);
    return code;
}

/* --------------------------------------------------------------- ListSnapshots */

/* A page token is "<config>/<row>" of the last one told. */
struct cursor {
    char config[129], row[129];
};

static enum berth_code read_cursor(const char *token, struct cursor *ret,
                                   struct berth_error *err)
{
    const char *slash = strchr(token, '/');

    *ret = (struct cursor){0};
    if (!*token)
        return BERTH_OK;
    if (!slash || slash - token > ID_MAX || strlen(slash + 1) > ID_MAX)
        return berth_fail_field(err, "page.page_token", "must be one that was answered");
    snprintf(ret->config, sizeof ret->config, "%.*s", (int)(slash - token), token);
    snprintf(ret->row, sizeof ret->row, "%s", slash + 1);
    if (berth_check_id("page.page_token", ret->config, err))
        return BERTH_INVALID_ARGUMENT;
    return berth_check_id("page.page_token", ret->row, err);
}

static int compare_rows(const void *a, const void *b)
{
    const struct berth_snapshot_row *x = a, *y = b;

    return strcmp(x->row_id, y->row_id);
}

static bool is_wanted(const struct berth_snapshot_row *row, const ListSnapshotsRequest *req)
{
    return is_visible(row) && (!req->origin || origin_of(row->origin) == req->origin);
}

/* Rows of one config behind after, until the page is full. */
static enum berth_code add_config(struct skills *skills, const char *config_id,
                                  const char *after, const ListSnapshotsRequest *req,
                                  uint32_t size, ListSnapshotsResponse *out, bool *ret_full,
                                  struct berth_error *err)
{
    struct ledger ledger = {0};
    enum berth_code code = ledger_read(skills->redis, req->tenant_id, config_id, &ledger, err);

    if (code)
        return code;
    qsort(ledger.rows, ledger.n_rows, sizeof *ledger.rows, compare_rows);
    for (size_t i = 0; !code && i < ledger.n_rows && !*ret_full; i++) {
        const struct berth_snapshot_row *row = &ledger.rows[i];
        char token[300];

        if (strcmp(row->row_id, after) <= 0 || !is_wanted(row, req))
            continue;
        if (!berth_add_message(&out->n_snapshots, &out->snapshots,
                               show(req->tenant_id, config_id, row)))
            code = no_memory(err);
        *ret_full = out->n_snapshots >= size;
        snprintf(token, sizeof token, "%s/%s", config_id, row->row_id);
        if (!code && *ret_full && !berth_set_string(&out->next_page_token, token))
            code = no_memory(err);
    }
    ledger_deinit(&ledger);
    return code;
}

static enum berth_code list(struct skills *skills, const ListSnapshotsRequest *req,
                            const struct cursor *from, uint32_t size,
                            ListSnapshotsResponse *out, struct berth_error *err)
{
    BERTH_AUTO(berth_reply_free) struct berth_reply *configs = NULL;
    bool full = false;
    enum berth_code code = ledger_configs(skills->redis, req->tenant_id, &configs, err);

    for (size_t i = 0; !code && !full && i < configs->n_items; i++) {
        const char *config_id = configs->items[i]->string;
        int order = strcmp(config_id, from->config);

        if (order < 0 || (*req->config_id && strcmp(config_id, req->config_id) != 0))
            continue;
        code = add_config(skills, config_id, order == 0 ? from->row : "", req, size, out, &full,
                          err);
    }
    return code;
}

static enum berth_code check_list(const ListSnapshotsRequest *req, uint32_t *ret_size,
                                  struct cursor *ret_cursor, struct berth_error *err)
{
    enum berth_code code = berth_check_id("tenant_id", req->tenant_id, err);

    if (!code)
        code = berth_check_id_or_empty("config_id", req->config_id, err);
    if (!code)
        code = berth_check_enum("origin", (int)req->origin, 2, true, err);
    if (!code)
        code = berth_check_page_size("page.page_size", req->page ? req->page->page_size : 0,
                                     ret_size, err);
    return code ? code : read_cursor(req->page ? req->page->page_token : "", ret_cursor, err);
}

HANDLER(list_snapshots)
{
    struct skills *skills = service;
    const ListSnapshotsRequest *req = (const ListSnapshotsRequest *)message;
    struct ledger ledger = {0};
    ListSnapshotsResponse *out;
    struct cursor cursor;
    uint32_t size = 0;
    enum berth_code code = check_list(req, &size, &cursor, err);

    (void)call;
    if (!code)
        code = skills_enter(skills, err);
    if (!code) /* of no config: for the tenant's sake */
        code = ledger_read(skills->redis, req->tenant_id,
                           *req->config_id ? req->config_id : "-", &ledger, err);
    if (!code)
        code = ledger_check_tenant(skills->redis, req->tenant_id, &ledger.tenant, err);
    if (!code && *req->config_id && !ledger.config.exists)
        code = berth_fail(err, BERTH_REASON_CONFIG_NOT_FOUND, "no config '%s'", req->config_id);
    ledger_deinit(&ledger);
    if (code)
        return code;
    out = berth_message_new(&berth__skills__v1__list_snapshots_response__descriptor);
    if (!out)
        return no_memory(err);
    code = list(skills, req, &cursor, size, out, err);
    if (code)
        berth_message_free(out);
    else
        *ret_resp = &out->base;
    return code;
}

/* -------------------------------------------------------------- DeleteSnapshot */

/* A row as it was before its state was changed. */
struct seen {
    char config_id[129], account[65], state[16];
    bool shared; /* another row keeps the snapshot */
};

static void note_seen(const struct ledger *ledger, const struct berth_snapshot_row *row,
                      struct seen *ret)
{
    snprintf(ret->config_id, sizeof ret->config_id, "%s", ledger->config_id);
    snprintf(ret->account, sizeof ret->account, "%s", row->account);
    snprintf(ret->state, sizeof ret->state, "%s", row->state);
    ret->shared = ledger_is_shared(ledger, row);
}

/* One change of the row, as often as others write in between. state NULL: it goes.
 * not_after_ms: until then a call of ours may be on its way, and the janitor keeps away; -1: as
 * it is. */
static enum berth_code set_state(struct skills *skills, const char *tenant,
                                 const char *snapshot_id, const char *state,
                                 int64_t not_after_ms, struct seen *ret,
                                 struct berth_error *err)
{
    for (int i = 0; i < SK_CAS_TRIES; i++) {
        struct berth_snapshot_row *row;
        struct ledger ledger = {0};
        bool applied = false;
        enum berth_code code = find(skills, tenant, snapshot_id, &ledger, &row, err);

        if (code)
            return code;
        note_seen(&ledger, row, ret);
        if (ledger_is_live(&ledger, row)) {
            code = berth_fail(err, BERTH_REASON_CONFIG_IN_USE, "it is the image of config '%s'",
                              ledger.config_id);
        } else if (state && strcmp(row->state, state) == 0 && not_after_ms < 0) {
            applied = true;
        } else {
            if (state)
                snprintf(row->state, sizeof row->state, "%s", state);
            if (not_after_ms >= 0)
                row->not_after_ms = not_after_ms;
            code = ledger_write(skills->records, &ledger, row,
                                state ? LEDGER_KEEP : LEDGER_REMOVE, NULL, &applied, err);
        }
        ledger_deinit(&ledger);
        if (code || applied)
            return code;
    }
    return berth_fail(err, BERTH_REASON_CONFLICT, NULL);
}

static enum berth_code delete_at_backend(struct skills *skills, const char *tenant,
                                         const struct seen *seen, const char *snapshot_id,
                                         bool *ret_in_use, struct berth_error *err)
{
    Berth__Common__V1__BackendTarget *target = NULL;
    enum berth_code code = BERTH_OK;

    if (seen->shared) { /* only this row goes */
        *ret_in_use = true;
        return BERTH_OK;
    }
    code = skills_target(skills, tenant, seen->config_id, &target, err);
    if (!code && !skills_same_account(target, seen->account))
        code = berth_fail(err, BERTH_REASON_ACCOUNT_CHANGED,
                          "the snapshot lives in another account than the config has now");
    if (!code)
        code = skills_delete_at(skills, target, snapshot_id, ret_in_use, err);
    berth_message_free(target);
    return code;
}

/* Condemned first, so that nothing boots from it any more; a refusal of the backend (a sandbox
 * stands on it) takes that back. Anything else leaves it condemned: a repeat goes on. */
static enum berth_code delete_one(struct skills *skills, const char *tenant,
                                  const char *snapshot_id, bool *ret_in_use,
                                  struct berth_error *err)
{
    struct berth_error why = {0};
    struct seen before, seen;
    enum berth_code code = set_state(skills, tenant, snapshot_id, "deleted",
                                     berth_now_ms() + SK_CALL_TIMEOUT_MS, &before, err);

    if (code)
        return code;
    code = delete_at_backend(skills, tenant, &before, snapshot_id, ret_in_use, err);
    if (code) {
        bool refused = skills_is_refusal(code) && code != BERTH_UNAVAILABLE;
        bool superseded = strcmp(before.state, "superseded") == 0;

        (void)set_state(skills, tenant, snapshot_id,
                        !refused     ? "deleted"
                        : superseded ? "superseded"
                                     : "active",
                        berth_now_ms(), &seen, NULL);
        return code;
    }
    code = set_state(skills, tenant, snapshot_id, NULL, -1, &seen, &why);
    if (code == BERTH_NOT_FOUND) /* the janitor, or a repeat of this call, was faster */
        return BERTH_OK;
    if (code && err)
        *err = why;
    return code;
}

/* A snapshot never moves to another config. */
static enum berth_code check_reach(struct skills *skills, const struct berth_call *call,
                                   const DeleteSnapshotRequest *req, struct berth_error *err)
{
    char config_id[129], row_id[33];
    enum berth_code code =
        ledger_locate(skills->redis, req->tenant_id, req->snapshot_id, config_id, row_id, err);

    if (!code && is_out_of_reach(call, config_id))
        code = berth_fail(err, BERTH_REASON_SNAPSHOT_NOT_FOUND, "no snapshot '%s'",
                          req->snapshot_id);
    return code;
}

HANDLER(delete_snapshot)
{
    struct skills *skills = service;
    const DeleteSnapshotRequest *req = (const DeleteSnapshotRequest *)message;
    Berth__Skills__V1__DeleteSnapshotResponse *out;
    bool in_use = false;
    enum berth_code code = berth_check_id("tenant_id", req->tenant_id, err);

    if (!code)
        code = check_snapshot_id(req->snapshot_id, err);
    if (!code)
        code = skills_enter(skills, err);
    if (!code && *berth_config_bound(call))
        code = check_reach(skills, call, req, err);
    if (!code)
        code = delete_one(skills, req->tenant_id, req->snapshot_id, &in_use, err);
    if (code)
        return code;
    out = berth_message_new(&berth__skills__v1__delete_snapshot_response__descriptor);
    if (!out)
        return no_memory(err);
    out->in_use = in_use;
    *ret_resp = &out->base;
    return BERTH_OK;
}

const struct berth_method skills_snapshot_methods[] = {
    {"/berth.skills.v1.SnapshotService/CreateSnapshot",
     &berth__skills__v1__create_snapshot_request__descriptor, .unary = create_snapshot},
    {"/berth.skills.v1.SnapshotService/GetSnapshot",
     &berth__skills__v1__get_snapshot_request__descriptor, .unary = get_snapshot},
    {"/berth.skills.v1.SnapshotService/ListSnapshots",
     &berth__skills__v1__list_snapshots_request__descriptor, .unary = list_snapshots},
    {"/berth.skills.v1.SnapshotService/DeleteSnapshot",
     &berth__skills__v1__delete_snapshot_request__descriptor, .unary = delete_snapshot},
};
const size_t skills_n_snapshot_methods = BERTH_COUNT(skills_snapshot_methods);
