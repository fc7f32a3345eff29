#include "services/skills/janitor.h"

#include <stdio.h>
#include <time.h>

#include "berth/control/v1/control.pb-c.h"
#include "common/log/log.h"
#include "common/messages/messages.h"
#include "common/time/time.h"
#include "services/skills/ledger.h"

typedef Berth__Common__V1__BackendTarget BackendTarget;
typedef Berth__Control__V1__ListTargetsRequest ListTargetsRequest;
typedef Berth__Control__V1__ListTargetsResponse ListTargetsResponse;

enum {
    PAGE_SIZE = 100,
    PAGES_MAX = 10000,
    SWEEP_MS = 3600 * 1000,
};

struct skills_janitor {
    struct skills *skills;
    int64_t interval_ms;
    int64_t swept_tick; /* of the blob store; 0: never */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    bool stopping;
};

static bool is_stopping(struct skills_janitor *janitor)
{
    bool stopping;

    pthread_mutex_lock(&janitor->mutex);
    stopping = janitor->stopping;
    pthread_mutex_unlock(&janitor->mutex);
    return stopping;
}

/* ---------------------------------------------------------------------- one row */

/* The row as it is to be: gone (state NULL), or in another state, with the snapshot that was
 * found for it. */
struct outcome {
    const char *state;
    const struct skills_found *found; /* NULL: none */
};

/* Is it still as it was seen: nobody went on with it? */
static bool is_same(const struct berth_snapshot_row *now, const struct berth_snapshot_row *seen)
{
    return now && strcmp(now->state, seen->state) == 0 &&
           strcmp(now->owner, seen->owner) == 0 && now->beat_ms == seen->beat_ms;
}

static enum berth_code settle(struct skills *skills, const struct ledger *seen_in,
                              const struct berth_snapshot_row *seen,
                              const struct outcome *outcome, struct berth_error *err)
{
    struct berth_snapshot_row *row;
    struct ledger ledger = {0};
    bool applied;
    enum berth_code code =
        ledger_read(skills->redis, seen_in->tenant_id, seen_in->config_id, &ledger, err);

    if (code)
        return code;
    row = ledger_find(&ledger, seen->row_id);
    if (is_same(row, seen)) {
        enum ledger_change change = outcome->state ? LEDGER_KEEP : LEDGER_REMOVE;

        if (outcome->state)
            snprintf(row->state, sizeof row->state, "%s", outcome->state);
        if (outcome->state && strcmp(outcome->state, "superseded") == 0)
            row->supersede_ms = ledger.now_ms;
        if (outcome->found) {
            snprintf(row->snapshot_id, sizeof row->snapshot_id, "%s",
                     outcome->found->snapshot_id);
            row->size_bytes = outcome->found->size_bytes;
            change = LEDGER_PUBLISH;
        }
        /* Not applied: the next round looks again. */
        code = ledger_write(skills->records, &ledger, row, change, NULL, &applied, err);
    }
    ledger_deinit(&ledger);
    return code;
}

/* Its process is gone. What it made is published; where nothing is to be seen, a repeat of the
 * request may still carry on, until nothing can come any more. */
static enum berth_code settle_orphan(struct skills *skills, BackendTarget *target,
                                     const struct ledger *ledger,
                                     const struct berth_snapshot_row *row,
                                     struct berth_error *err)
{
    struct skills_found found;
    enum berth_code code = skills_find_by_name(skills, target, row->planned_name, &found, err);

    if (code)
        return code;
    if (found.snapshot_id[0] &&
        found.state == BERTH__COMMON__V1__SNAPSHOT_STATE__SNAPSHOT_STATE_READY)
        return settle(skills, ledger, row,
                      &(struct outcome){.state = "active", .found = &found}, err);
    if (ledger_is_settled(ledger, row))
        return settle(skills, ledger, row, &(struct outcome){.state = "abandoned"}, err);
    return BERTH_OK;
}

/* The snapshot goes, unless another row keeps it. */
static enum berth_code delete_unshared(struct skills *skills, BackendTarget *target,
                                       const struct ledger *ledger,
                                       const struct berth_snapshot_row *row,
                                       const char *snapshot_id, struct berth_error *err)
{
    struct berth_snapshot_row probe = *row;

    snprintf(probe.snapshot_id, sizeof probe.snapshot_id, "%s", snapshot_id);
    if (ledger_is_shared(ledger, &probe))
        return BERTH_OK;
    return skills_delete_at(skills, target, snapshot_id, NULL, err);
}

/* Will its operation come back for it? */
static bool is_queued(const struct ledger *ledger, const struct berth_snapshot_row *row)
{
    return row->operation_id[0] && strstr(ledger->queue, row->operation_id);
}

/* A skill image that its operation, begun again, finds by the ledger; without one it is over:
 * what is being made is given up, and what was made and is not live can be pruned. */
static enum berth_code settle_image(struct skills *skills, const struct ledger *ledger,
                                    const struct berth_snapshot_row *row,
                                    struct berth_error *err)
{
    bool queued = is_queued(ledger, row);

    if (ledger_is_orphan(ledger, row, skills->build_lease_ms) &&
        (!queued || ledger_is_settled(ledger, row)))
        return settle(skills, ledger, row, &(struct outcome){.state = "abandoned"}, err);
    if (strcmp(row->state, "active") == 0 && !queued && !ledger_is_live(ledger, row) &&
        ledger->now_ms - row->beat_ms > skills->build_lease_ms)
        return settle(skills, ledger, row, &(struct outcome){.state = "superseded"}, err);
    return BERTH_OK;
}

static bool is_image(const struct berth_snapshot_row *row)
{
    return strcmp(row->origin, "skills") == 0 &&
           (strcmp(row->state, "building") == 0 || strcmp(row->state, "active") == 0);
}

/* What the build may have left behind, by the name that the ledger planned for it. */
static enum berth_code clean_abandoned(struct skills *skills, BackendTarget *target,
                                       const struct ledger *ledger,
                                       const struct berth_snapshot_row *row,
                                       struct berth_error *err)
{
    struct skills_found found;
    enum berth_code code = skills_find_by_name(skills, target, row->planned_name, &found, err);

    if (!code && found.snapshot_id[0])
        code = delete_unshared(skills, target, ledger, row, found.snapshot_id, err);
    /* Before its time is over it may still appear: the row stays until then. */
    if (!code && ledger_is_settled(ledger, row))
        code = settle(skills, ledger, row, &(struct outcome){0}, err);
    return code;
}

static enum berth_code carry_on_delete(struct skills *skills, BackendTarget *target,
                                       const struct ledger *ledger,
                                       const struct berth_snapshot_row *row,
                                       struct berth_error *err)
{
    enum berth_code code = delete_unshared(skills, target, ledger, row, row->snapshot_id, err);

    return code ? code : settle(skills, ledger, row, &(struct outcome){0}, err);
}

static enum berth_code look_at(struct skills *skills, BackendTarget *target,
                               const struct ledger *ledger,
                               const struct berth_snapshot_row *row, struct berth_error *err)
{
    if (!skills_same_account(target, row->account))
        return BERTH_OK; /* nothing there can be judged under another account */
    if (is_image(row))
        return settle_image(skills, ledger, row, err);
    if (ledger_is_orphan(ledger, row, skills->build_lease_ms))
        return settle_orphan(skills, target, ledger, row, err);
    if (strcmp(row->state, "abandoned") == 0)
        return clean_abandoned(skills, target, ledger, row, err);
    /* Whoever began it may still be at it, and may be refused and take it back. */
    if (strcmp(row->state, "deleted") == 0 && row->snapshot_id[0] &&
        ledger->now_ms > row->not_after_ms)
        return carry_on_delete(skills, target, ledger, row, err);
    return BERTH_OK;
}

/* -------------------------------------------------------------------- one round */

static void look_at_config(struct skills_janitor *janitor, BackendTarget *target)
{
    struct skills *skills = janitor->skills;
    struct berth_error err = {0};
    struct ledger ledger = {0};

    if (ledger_read(skills->redis, target->tenant_id, target->config_id, &ledger, &err))
        return; /* the next round */
    for (size_t i = 0; i < ledger.n_rows && !is_stopping(janitor); i++)
        if (look_at(skills, target, &ledger, &ledger.rows[i], &err))
            berth_warn("a ledger row was not settled, trying again later", "tenant",
                       target->tenant_id, "config", target->config_id, "row",
                       ledger.rows[i].row_id, "error", err.text);
    ledger_deinit(&ledger);
}

static bool take_page(struct skills_janitor *janitor, ListTargetsRequest *req, char **token)
{
    ListTargetsResponse *page = NULL;
    bool more;

    if (skills_control_call(
            janitor->skills, NULL, "/berth.control.v1.InternalService/ListTargets", &req->base,
            &berth__control__v1__list_targets_response__descriptor, &page, NULL))
        return false; /* the next round */
    for (size_t i = 0; i < page->n_targets && !is_stopping(janitor); i++)
        if (page->targets[i]->target)
            look_at_config(janitor, page->targets[i]->target);
    more = *page->next_page_token && !is_stopping(janitor);
    free(*token);
    *token = strdup(page->next_page_token);
    berth_message_free(page);
    return more && *token;
}

static void run_round(struct skills_janitor *janitor)
{
    Berth__Common__V1__PageRequest page = BERTH__COMMON__V1__PAGE_REQUEST__INIT;
    ListTargetsRequest req = BERTH__CONTROL__V1__LIST_TARGETS_REQUEST__INIT;
    BERTH_AUTO(free) char *token = NULL;

    if (skills_enter(janitor->skills, NULL))
        return;
    req.page = &page;
    page.page_size = PAGE_SIZE;
    for (int i = 0; i < PAGES_MAX; i++) {
        page.page_token = token ? token : (char *)"";
        if (!take_page(janitor, &req, &token))
            break;
    }
}

static void *run(void *arg)
{
    struct skills_janitor *janitor = arg;

    pthread_mutex_lock(&janitor->mutex);
    while (!janitor->stopping) {
        struct timespec until;
        int status = 0;

        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += janitor->interval_ms / 1000;
        until.tv_nsec += janitor->interval_ms % 1000 * 1000000;
        if (until.tv_nsec >= 1000000000) {
            until.tv_sec++;
            until.tv_nsec -= 1000000000;
        }
        while (!janitor->stopping && status == 0)
            status = pthread_cond_timedwait(&janitor->wake, &janitor->mutex, &until);
        if (janitor->stopping)
            break;
        pthread_mutex_unlock(&janitor->mutex);
        run_round(janitor);
        if (!janitor->swept_tick || berth_tick_ms() - janitor->swept_tick > SWEEP_MS) {
            janitor->swept_tick = berth_tick_ms();
            skills_sweep(janitor->skills);
        }
        pthread_mutex_lock(&janitor->mutex);
    }
    pthread_mutex_unlock(&janitor->mutex);
    return NULL;
}

enum berth_code skills_janitor_new(struct skills *skills, int64_t interval_ms,
                                   struct skills_janitor **ret, struct berth_error *err)
{
    struct skills_janitor *janitor = calloc(1, sizeof *janitor);
    pthread_condattr_t attr;

    if (!janitor)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    janitor->skills = skills;
    janitor->interval_ms = interval_ms;
    pthread_mutex_init(&janitor->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&janitor->wake, &attr);
    pthread_condattr_destroy(&attr);
    if (pthread_create(&janitor->thread, NULL, run, janitor)) {
        free(janitor);
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, "no thread for the janitor");
    }
    *ret = janitor;
    return BERTH_OK;
}

struct skills_janitor *skills_janitor_free(struct skills_janitor *janitor)
{
    if (!janitor)
        return NULL;
    pthread_mutex_lock(&janitor->mutex);
    janitor->stopping = true;
    pthread_cond_signal(&janitor->wake);
    pthread_mutex_unlock(&janitor->mutex);
    pthread_join(janitor->thread, NULL);
    pthread_mutex_destroy(&janitor->mutex);
    pthread_cond_destroy(&janitor->wake);
    free(janitor);
    return NULL;
}
