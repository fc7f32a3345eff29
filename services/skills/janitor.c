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
    SETTLE_MS = 60000, /* after not_after: nothing of the build can land any more */
    PAGE_SIZE = 100,
    PAGES_MAX = 10000,
};

struct skills_janitor {
    struct skills *skills;
    int64_t interval_ms;
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

/* Write the row if it still is as it was seen. */
static enum berth_code write_if_same(struct skills *skills, const char *tenant,
                                     const char *config_id,
                                     const struct berth_snapshot_row *seen, const char *state,
                                     struct berth_error *err)
{
    struct berth_snapshot_row *row;
    struct ledger ledger = {0};
    bool applied;
    enum berth_code code = ledger_read(skills->redis, tenant, config_id, &ledger, err);

    if (code)
        return code;
    row = ledger_find(&ledger, seen->row_id);
    if (row && strcmp(row->state, seen->state) == 0) {
        if (state)
            snprintf(row->state, sizeof row->state, "%s", state);
        code = ledger_write(skills->redis, &ledger, row, state ? LEDGER_KEEP : LEDGER_REMOVE,
                            &applied, err); /* not applied: the next round looks again */
    }
    ledger_deinit(&ledger);
    return code;
}

/* What the build may have left behind, by the name that the ledger planned for it. */
static enum berth_code clean_abandoned(struct skills *skills, BackendTarget *target,
                                       const char *config_id,
                                       const struct berth_snapshot_row *row,
                                       struct berth_error *err)
{
    struct skills_found found;
    enum berth_code code = skills_find_by_name(skills, target, row->planned_name, &found, err);

    if (!code && found.snapshot_id[0])
        code = skills_delete_at(skills, target, found.snapshot_id, err);
    /* Before its time is over it may still appear: the row stays until then. */
    if (!code && berth_now_ms() > row->not_after_ms + SETTLE_MS)
        code = write_if_same(skills, target->tenant_id, config_id, row, NULL, err);
    return code;
}

static enum berth_code carry_on_delete(struct skills *skills, BackendTarget *target,
                                       const char *config_id,
                                       const struct berth_snapshot_row *row,
                                       struct berth_error *err)
{
    enum berth_code code = skills_delete_at(skills, target, row->snapshot_id, err);

    return code ? code : write_if_same(skills, target->tenant_id, config_id, row, NULL, err);
}

static enum berth_code look_at(struct skills *skills, BackendTarget *target,
                               const char *config_id, const struct berth_snapshot_row *row,
                               struct berth_error *err)
{
    if (!skills_same_account(target, row->account))
        return BERTH_OK; /* nothing there can be judged under another account */
    if (strcmp(row->state, "building") == 0 && berth_now_ms() > row->not_after_ms + SETTLE_MS)
        return write_if_same(skills, target->tenant_id, config_id, row, "abandoned", err);
    if (strcmp(row->state, "abandoned") == 0)
        return clean_abandoned(skills, target, config_id, row, err);
    /* Whoever began it may still be at it, and may be refused and take it back. */
    if (strcmp(row->state, "deleted") == 0 && row->snapshot_id[0] &&
        berth_now_ms() > row->not_after_ms)
        return carry_on_delete(skills, target, config_id, row, err);
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
        if (look_at(skills, target, target->config_id, &ledger.rows[i], &err))
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
