/* chain_image.c - rows of the ledger, the snapshot, the flip, and what follows it. */
#include <stdio.h>

#include "berth/binding/v1/binding.pb-c.h"
#include "common/log/log.h"
#include "common/messages/messages.h"
#include "common/time/time.h"
#include "services/skills/chain_fault.h"
#include "services/skills/chain_run.h"

enum { MARK_TIMEOUT_MS = 60000 };

/* ------------------------------------------------------------------------ a new row */

/* The list of the image that is being made. */
static enum berth_code make_list(struct chain_run *run, uint64_t generation, int64_t now_ms,
                                 char **ret, struct berth_error *err)
{
    const struct operation *operation = &run->grant.operation;
    BERTH_AUTO(json_decref) json_t *list = json_deep_copy(run->plan.list);
    BERTH_AUTO(json_decref) json_t *warnings = json_array();

    if (!list || !warnings)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    for (size_t i = 0; i < json_array_size(operation->findings); i++) {
        json_t *finding = json_array_get(operation->findings, i);

        if (json_integer_value(json_object_get(finding, "severity")) ==
            BERTH__SKILLS__V1__SEVERITY__SEVERITY_WARNING)
            (void)json_array_append(warnings, finding);
    }
    for (size_t i = 0; i < run->plan.n_skills; i++) {
        json_t *skill;

        if (!run->plan.skills[i].is_new)
            continue;
        skill = image_skill(&run->plan.skills[i].verdict, warnings, operation->operation_id,
                            generation, now_ms);
        if (!skill || !image_put(list, json_incref(skill)) ||
            (operation->external_installer &&
             json_object_set_new(skill, "external", json_true()) < 0)) {
            json_decref(skill);
            return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        }
        json_decref(skill);
    }
    return image_format(list, ret, err);
}

static void fill_row(struct chain_run *run, const struct ledger *ledger, const struct making *m,
                     uint64_t skills_bytes, struct berth_snapshot_row *row)
{
    const struct operation *operation = &run->grant.operation;
    const struct chain_plan *plan = &run->plan;

    *row = (struct berth_snapshot_row){
        .generation = ledger->config.next_generation,
        .base_generation = plan->booted.generation,
        .image_bytes = plan->below_bytes,
        .skills_bytes = skills_bytes,
        .create_ms = ledger->now_ms,
        .beat_ms = ledger->now_ms,
        .not_after_ms = berth_now_ms() + run->skills->snapshot_timeout_ms,
    };
    snprintf(row->row_id, sizeof row->row_id, "%s", operation->row_id);
    snprintf(row->origin, sizeof row->origin, "skills");
    snprintf(row->state, sizeof row->state, "building");
    snprintf(row->owner, sizeof row->owner, "%s", run->skills->owner);
    snprintf(row->account, sizeof row->account, "%s", plan->account);
    snprintf(row->operation_id, sizeof row->operation_id, "%s", operation->operation_id);
    snprintf(row->created_by, sizeof row->created_by, "%s", operation->created_by);
    snprintf(row->source_session, sizeof row->source_session, "%s", operation->session_id);
    snprintf(row->source_sandbox, sizeof row->source_sandbox, "%s",
             m->route->endpoint->sandbox_id);
    if (!plan->from_base)
        snprintf(row->parent_snapshot_id, sizeof row->parent_snapshot_id, "%s",
                 plan->booted.snapshot_id);
    ledger_image_name(row->planned_name, operation->tenant_id, operation->config_id,
                      row->generation, row->row_id);
}

/* Is it still worth the backend's while? */
static enum berth_code check_claim(struct chain_run *run, const struct ledger *ledger,
                                   struct berth_error *err)
{
    const struct image_claim claim = {.operation_id = run->grant.operation.operation_id,
                                      .owner = run->grant.operation.owner,
                                      .booted = &run->plan.booted,
                                      .account = run->plan.account,
                                      .row_id = ""};

    switch (image_judge_flip(ledger, &claim)) {
    case IMAGE_MAY_FLIP:
        return BERTH_OK;
    case IMAGE_NO_CONFIG:
        return berth_fail(err, BERTH_REASON_CONFIG_NOT_FOUND, NULL);
    case IMAGE_LOCK_LOST:
        atomic_store(&run->lost, true);
        return berth_fail(err, BERTH_REASON_LOCK_LOST, NULL);
    case IMAGE_ACCOUNT_CHANGED:
        return berth_fail(err, BERTH_REASON_ACCOUNT_CHANGED,
                          "the config has another account now");
    default:
        return berth_fail(err, BERTH_REASON_GENERATION_MOVED, NULL);
    }
}

static enum berth_code try_row(struct chain_run *run, struct making *m, uint64_t skills_bytes,
                               bool *ret_applied, struct berth_error *err)
{
    const struct operation *operation = &run->grant.operation;
    BERTH_AUTO(free) char *list = NULL;
    struct ledger_quota quota = {0};
    struct ledger ledger = {0};
    uint32_t limit;
    enum berth_code code = ledger_read(run->skills->redis, operation->tenant_id,
                                       operation->config_id, &ledger, err);

    if (code)
        return code;
    limit = ledger.tenant.quotas.snapshots;
    code = check_claim(run, &ledger, err);
    if (!code && limit)
        code = making_check_limit(run->skills, operation->tenant_id, limit, &quota, err);
    if (!code) {
        fill_row(run, &ledger, m, skills_bytes, &m->row);
        code = make_list(run, m->row.generation, ledger.now_ms, &list, err);
    }
    if (!code)
        code = ledger_build_image(run->skills->records, &ledger, &m->row, list,
                                  limit ? &quota : NULL, ret_applied, err);
    ledger_deinit(&ledger);
    return code;
}

static enum berth_code write_new_row(struct chain_run *run, struct making *m,
                                     uint64_t skills_bytes, struct berth_error *err)
{
    struct operation *operation = &run->grant.operation;
    bool applied = false;
    enum berth_code code = BERTH_OK;

    for (int i = 0; !code && !applied && i < SK_CAS_TRIES; i++)
        code = try_row(run, m, skills_bytes, &applied, err);
    if (!code && !applied)
        code = berth_fail(err, BERTH_REASON_CONFLICT,
                          "too many others wrote to the config's ledger at once");
    if (code)
        return code;
    pthread_mutex_lock(&run->mutex);
    operation->generation = m->row.generation;
    pthread_mutex_unlock(&run->mutex);
    chain_fault(FAULT_ROW_WRITTEN);
    return chain_step(run, STEP(LEDGERED), 88, err);
}

enum berth_code chain_snapshot(struct chain_run *run, uint64_t skills_bytes,
                               struct berth_error *err)
{
    struct operation *operation = &run->grant.operation;
    Berth__Common__V1__SessionRef session = BERTH__COMMON__V1__SESSION_REF__INIT;
    const struct snapshot_wish wish = {.session = &session,
                                       .display_name = "",
                                       .request_id = "",
                                       .only_config = "",
                                       .actor = operation->created_by};
    struct making m = {.skills = run->skills, .wish = &wish};
    enum berth_code code;

    session.tenant_id = operation->tenant_id;
    session.session_id = operation->session_id;
    code = making_route(&m, err);
    if (!code && strcmp(m.route->endpoint->sandbox_id, work_sandbox(run->work)) != 0)
        code = berth_fail(err, BERTH_REASON_CONFLICT, "the maintenance sandbox was replaced");
    if (!code)
        code = write_new_row(run, &m, skills_bytes, err);
    if (code && m.row.row_id[0] && !atomic_load(&run->lost))
        making_give_up(&m);
    if (!code)
        code = making_build(&m, err);
    if (m.route)
        (void)making_renew_use(&m, true, NULL); /* it runs out by itself */
    berth_message_free(m.route);
    if (code)
        return code;
    chain_say(run, "snapshot %s, %llu bytes", m.row.snapshot_id,
              (unsigned long long)m.row.size_bytes);
    pthread_mutex_lock(&run->mutex);
    snprintf(operation->snapshot_id, sizeof operation->snapshot_id, "%s", m.row.snapshot_id);
    pthread_mutex_unlock(&run->mutex);
    chain_fault(FAULT_ACTIVE);
    return chain_step(run, STEP(SNAPSHOT_TAKEN), 94, err);
}

/* ------------------------------------------------------------- rows of other starts */

/* One write to a row in the state as it was seen. */
static enum berth_code change_row(struct chain_run *run, const char *row_id, const char *from,
                                  void (*change)(const struct ledger *ledger,
                                                 struct berth_snapshot_row *row,
                                                 const char *owner),
                                  struct berth_snapshot_row *ret, struct berth_error *err)
{
    const struct operation *operation = &run->grant.operation;

    for (int i = 0; i < SK_CAS_TRIES; i++) {
        struct ledger ledger = {0};
        struct berth_snapshot_row *row;
        bool applied = false;
        enum berth_code code = ledger_read(run->skills->redis, operation->tenant_id,
                                           operation->config_id, &ledger, err);

        if (code)
            return code;
        row = ledger_find(&ledger, row_id);
        if (!row || strcmp(row->state, from) != 0 ||
            strcmp(row->operation_id, operation->operation_id) != 0 ||
            ledger_is_live(&ledger, row)) {
            code = berth_fail(err, BERTH_REASON_CONFLICT, "the row is another's now");
        } else {
            change(&ledger, row, run->skills->owner);
            *ret = *row;
            code = ledger_write(run->skills->records, &ledger, row, LEDGER_KEEP, NULL, &applied,
                                err);
        }
        ledger_deinit(&ledger);
        if (code || applied)
            return code;
    }
    return berth_fail(err, BERTH_REASON_CONFLICT,
                      "too many others wrote to the config's ledger at once");
}

static void take_over(const struct ledger *ledger, struct berth_snapshot_row *row,
                      const char *owner)
{
    row->beat_ms = ledger->now_ms;
    snprintf(row->owner, sizeof row->owner, "%s", owner);
}

static void supersede(const struct ledger *ledger, struct berth_snapshot_row *row,
                      const char *owner)
{
    (void)owner;
    row->supersede_ms = ledger->now_ms;
    snprintf(row->state, sizeof row->state, "superseded");
}

void chain_drop_row(struct chain_run *run, const char *row_id)
{
    struct berth_snapshot_row row;
    struct berth_error err = {0};

    if (change_row(run, row_id, "active", supersede, &row, &err))
        berth_warn("a snapshot that is not used stays active", "row", row_id, "error",
                   err.text);
}

/* What the backend has made of it, by the planned name. */
static enum berth_code look(struct chain_run *run, const struct berth_snapshot_row *row,
                            struct skills_found *ret, struct berth_error *err)
{
    const struct operation *operation = &run->grant.operation;
    Berth__Common__V1__BackendTarget *target = NULL;
    enum berth_code code =
        skills_target(run->skills, operation->tenant_id, operation->config_id, &target, err);

    if (!code && skills_same_account(target, row->account))
        code = skills_find_by_name(run->skills, target, row->planned_name, ret, err);
    berth_message_free(target);
    return code;
}

enum berth_code chain_settle(struct chain_run *run, const struct ledger *ledger,
                             bool *ret_active, struct berth_error *err)
{
    struct operation *operation = &run->grant.operation;
    Berth__Common__V1__SessionRef session = BERTH__COMMON__V1__SESSION_REF__INIT;
    const struct snapshot_wish wish = {.session = &session};
    struct making m = {.skills = run->skills, .wish = &wish, .config_id = ledger->config_id};
    struct skills_found found = {0};
    enum berth_code code;

    session.tenant_id = operation->tenant_id;
    session.session_id = operation->session_id;
    *ret_active = false;
    code = change_row(run, operation->row_id, "building", take_over, &m.row, err);
    if (!code)
        code = look(run, &m.row, &found, err);
    if (code)
        return code;
    if (!found.snapshot_id[0] ||
        found.state != BERTH__COMMON__V1__SNAPSHOT_STATE__SNAPSHOT_STATE_READY) {
        /* What comes late is deleted by its name. */
        chain_say(run, "the snapshot of an earlier start is not there: beginning anew");
        making_give_up(&m);
        return BERTH_OK;
    }
    code = making_publish(&m, &found, err);
    if (code)
        return code;
    *ret_active = true;
    pthread_mutex_lock(&run->mutex);
    operation->generation = m.row.generation;
    snprintf(operation->snapshot_id, sizeof operation->snapshot_id, "%s", m.row.snapshot_id);
    pthread_mutex_unlock(&run->mutex);
    return chain_step(run, STEP(SNAPSHOT_TAKEN), 94, err);
}

/* ------------------------------------------------------------------------- the flip */

void chain_note_flip(struct chain_run *run, const struct berth_image_pointer *image)
{
    struct operation *operation = &run->grant.operation;

    pthread_mutex_lock(&run->mutex);
    run->flipped = true;
    run->image = *image;
    operation->generation = image->generation;
    snprintf(operation->row_id, sizeof operation->row_id, "%s", image->row_id);
    snprintf(operation->snapshot_id, sizeof operation->snapshot_id, "%s", image->snapshot_id);
    pthread_mutex_unlock(&run->mutex);
}

enum berth_code chain_flip(struct chain_run *run, const struct image_flip *flip,
                           struct berth_error *err)
{
    const struct operation *operation = &run->grant.operation;
    struct berth_image_pointer image;
    struct berth_error why = {0};
    enum berth_code code = chain_check(run, err);

    if (code)
        return code;
    code =
        image_flip(run->skills, operation->tenant_id, operation->config_id, flip, &image, &why);
    if (why.reason == BERTH_REASON_LOCK_LOST)
        atomic_store(&run->lost, true);
    if (code) {
        if (err)
            *err = why;
        return code;
    }
    chain_fault(FAULT_FLIP_WRITTEN);
    chain_note_flip(run, &image);
    chain_say(run, "generation %llu is live", (unsigned long long)image.generation);
    return BERTH_OK;
}

/* ------------------------------------------------------------------------- after it */

void chain_mark_stale(struct chain_run *run)
{
    struct operation *operation = &run->grant.operation;
    Berth__Binding__V1__MarkStaleRequest req = BERTH__BINDING__V1__MARK_STALE_REQUEST__INIT;
    const struct berth_call_options options = {.timeout_ms = MARK_TIMEOUT_MS};
    Berth__Binding__V1__MarkStaleResponse *marked;
    ProtobufCMessage *resp = NULL;
    struct berth_error err = {0};
    enum berth_code code;

    if (run->image.rebuild_before != run->image.generation)
        return; /* rollout: what is there stays as it is */
    req.tenant_id = operation->tenant_id;
    req.config_id = operation->config_id;
    req.generation = run->image.generation;
    code = berth_channel_call(
        run->skills->binding, "/berth.binding.v1.BindingService/MarkStale", &req.base,
        &berth__binding__v1__mark_stale_response__descriptor, &options, &resp, &err);
    marked = (Berth__Binding__V1__MarkStaleResponse *)resp;
    pthread_mutex_lock(&run->mutex);
    if (!code) {
        operation->sessions_marked = marked->sessions_marked;
        operation->sessions_not_marked = marked->sessions_not_marked;
    } else {
        snprintf(operation->reason, sizeof operation->reason, "%s",
                 berth_reason_name(err.reason));
        snprintf(operation->message, sizeof operation->message,
                 "the image is live; sessions were not told: %s", err.text);
    }
    pthread_mutex_unlock(&run->mutex);
    berth_message_free(resp);
}

enum berth_code chain_delete_session(struct chain_run *run, const char *session_id,
                                     struct berth_error *err)
{
    Berth__Control__V1__DeleteSessionRequest req =
        BERTH__CONTROL__V1__DELETE_SESSION_REQUEST__INIT;
    Berth__Common__V1__SessionRef session = BERTH__COMMON__V1__SESSION_REF__INIT;
    void *resp = NULL;
    enum berth_code code;

    session.tenant_id = run->grant.operation.tenant_id;
    session.session_id = (char *)session_id;
    req.session = &session;
    code = skills_control_call(
        run->skills, NULL, "/berth.control.v1.SessionService/DeleteSession", &req.base,
        &berth__control__v1__delete_session_response__descriptor, &resp, err);
    berth_message_free(resp);
    return code == BERTH_NOT_FOUND ? BERTH_OK : code;
}
