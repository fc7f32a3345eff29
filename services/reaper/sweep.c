#include "services/reaper/sweep.h"

#include <stdio.h>

#include "common/ids/ids.h"
#include "common/log/log.h"
#include "common/messages/messages.h"
#include "common/records/deployment.h"
#include "common/records/keys.h"
#include "common/time/time.h"
#include "services/reaper/usage.h"

typedef Berth__Reaper__V1__Sweep Sweep;
typedef Berth__Reaper__V1__SweepItem SweepItem;

enum { JUMP_MS = 5000, WHO_SIZE = 33 + SWEEP_ACCOUNT_HEX + 129, SWEEP_ID_BYTES = 8 };

static void deinit(struct sweep *sweep)
{
    for (size_t i = 0; i < sweep->n_boxes; i++)
        free(sweep->boxes[i].id);
    free(sweep->boxes);
    for (size_t i = 0; i < sweep->n_missing; i++)
        free(sweep->missing[i].id);
    free(sweep->missing);
    free(sweep->groups);
    for (size_t i = 0; i < sweep->n_targets; i++)
        berth_message_free(sweep->targets[i]);
    free(sweep->targets);
    free(sweep->snapshot_bytes);
    for (size_t i = 0; i < sweep->n_items; i++)
        berth_message_free(sweep->items[i]);
    free(sweep->items);
    berth_message_free(sweep->told);
}

static enum berth_code redis_now(struct reaper *reaper, int64_t *ret_now_ms,
                                 struct berth_error *err)
{
    const struct berth_redis_get get = {.key = BERTH_KEY_REAPER};
    struct berth_doc doc = {0};
    enum berth_code code = berth_redis_read(reaper->redis, &get, 1, ret_now_ms, &doc, err);

    if (!code)
        berth_doc_deinit(&doc);
    return code;
}

static enum berth_code check_leading(struct sweep *sweep, struct berth_error *err)
{
    struct reaper_leader *leader = sweep->reaper->leader;
    char name[65];

    sweep->term = reaper_leader_term(leader);
    if (!sweep->term && !sweep->request.dry)
        sweep->term = reaper_leader_try(leader);
    if (sweep->term || sweep->request.dry)
        return BERTH_OK;
    return berth_fail(err, BERTH_REASON_PEER_UNAVAILABLE,
                      "this replica does not lead, '%s' does",
                      reaper_leader_name(leader, name));
}

/* A new term, and a clock that jumped, begin all counting anew. */
static void set_clocks(struct sweep *sweep)
{
    struct reaper *reaper = sweep->reaper;
    int64_t drift_ms =
        (sweep->now_ms - reaper->last_now_ms) - (sweep->tick_ms - reaper->last_tick_ms);
    bool jumped = reaper->last_now_ms && (drift_ms > JUMP_MS || drift_ms < -JUMP_MS);

    if (jumped)
        berth_warn("the store's clock jumped, seeing everything for the first time", "by_ms",
                   BERTH_I64(drift_ms));
    if (jumped || reaper->term != sweep->term)
        reaper_seen_forget(reaper->seen);
    reaper->term = sweep->term;
    reaper->last_now_ms = sweep->now_ms;
    reaper->last_tick_ms = sweep->tick_ms;
}

static enum berth_code begin(struct sweep *sweep, struct berth_error *err)
{
    struct reaper *reaper = sweep->reaper;
    char id[2 * SWEEP_ID_BYTES + 1];
    enum berth_code code = reaper_enter(reaper, err);

    if (!code)
        code = check_leading(sweep, err);
    if (!code)
        code = berth_epoch_check(reaper->redis, err);
    if (!code)
        code = redis_now(reaper, &sweep->now_ms, err);
    if (code)
        return code;
    sweep->tick_ms = berth_tick_ms();
    sweep->left = sweep->request.budget;
    sweep->items_max = sweep->request.dry ? SWEEP_PLAN_MAX : SWEEP_ITEMS_MAX;
    if (!sweep->request.dry)
        set_clocks(sweep);
    sweep->told = berth_message_new(&berth__reaper__v1__sweep__descriptor);
    berth_id_hex(id, SWEEP_ID_BYTES);
    if (!sweep->told || !berth_set_string(&sweep->told->sweep_id, id) ||
        !berth_set_string(&sweep->told->leader, reaper_leader_self(reaper->leader)) ||
        !(sweep->told->start_time = berth_timestamp(sweep->now_ms)))
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    return BERTH_OK;
}

/* ---------------------------------------------------------------------- one box */

static bool is_ripe(struct sweep *sweep, const char *who, const struct reaper_verdict *verdict)
{
    struct reaper_seen *seen = sweep->reaper->seen;
    int plight = reaper_plight(verdict->why);
    int64_t tick_ms = berth_tick_ms();
    int64_t held_ms = sweep->request.dry ? reaper_seen_look(seen, who, plight, tick_ms)
                                         : reaper_seen_for(seen, who, plight, tick_ms);

    if (sweep->request.dry && sweep->term != sweep->reaper->term)
        held_ms = -1;
    return held_ms >= verdict->hold_ms && sweep->now_ms >= verdict->ripe_ms;
}

static void report_untagged(struct sweep *sweep, const char *who, const struct sweep_box *box)
{
    struct reaper_seen *seen = sweep->reaper->seen;
    int64_t tick_ms = berth_tick_ms();

    if (sweep->request.dry)
        return;
    if (reaper_seen_look(seen, who, REAPER_KEEP_UNTAGGED, tick_ms) < 0)
        berth_warn("a sandbox has no valid tags, leaving it alone", "sandbox", box->id,
                   "backend", sweep->groups[box->group].target->target->backend);
    (void)reaper_seen_for(seen, who, REAPER_KEEP_UNTAGGED, tick_ms);
}

/* Judged by what the lists say; once it would be done, by a closer look. */
static struct reaper_verdict judge(struct sweep *sweep, struct sweep_box *box, const char *who)
{
    const struct reaper_limits *limits = &sweep->reaper->limits;
    struct reaper_verdict verdict = reaper_judge(&box->facts, limits, sweep->now_ms);
    bool ripe = verdict.act && is_ripe(sweep, who, &verdict);

    if (!ripe && reaper_meanwhile(&box->facts, limits).act) {
        verdict = reaper_meanwhile(&box->facts, limits);
        ripe = is_ripe(sweep, who, &verdict);
    }
    if (ripe && !box->facts.bound_here && (sweep->left || sweep->request.dry)) {
        enum reaper_act act = verdict.act;

        sweep_look_closer(sweep, box);
        verdict = act == REAPER_ACT_STILL ? reaper_meanwhile(&box->facts, limits)
                                          : reaper_judge(&box->facts, limits, sweep->now_ms);
        ripe = verdict.act && is_ripe(sweep, who, &verdict);
    }
    if (verdict.act && !ripe) {
        verdict.act = REAPER_ACT_NONE;
        verdict.why = box->facts.bound_here ? REAPER_KEEP_BOUND : REAPER_KEEP_YOUNG;
    }
    return verdict;
}

/* Once for each, by this leader: what nobody owns, and what is beside the bound one. */
static void count_found(struct sweep *sweep, const struct sweep_box *box, const char *who)
{
    struct reaper *reaper = sweep->reaper;
    enum reaper_why why = reaper_judge(&box->facts, &reaper->limits, sweep->now_ms).why;
    int plight = reaper_plight(why);

    if (sweep->request.dry || (plight != 1 && why != REAPER_DUPLICATE) ||
        reaper_seen_look(reaper->seen, who, plight, berth_tick_ms()) >= 0)
        return;
    pthread_mutex_lock(&reaper->counting);
    if (why == REAPER_DUPLICATE)
        reaper->counts.duplicates_found++;
    else
        reaper->counts.orphans_found++;
    pthread_mutex_unlock(&reaper->counting);
}

static enum berth_code judge_box(struct sweep *sweep, struct sweep_box *box,
                                 struct berth_error *err)
{
    const struct sweep_group *group = &sweep->groups[box->group];
    struct sweep_act act = {
        .tenant = box->tenant,
        .session = box->session,
        .config = box->config,
        .sandbox_id = box->id,
        .account = &group->target->target->fingerprint,
        .age_ms = -1,
    };
    char who[WHO_SIZE];

    snprintf(who, sizeof who, "%s/%s/%s", group->target->target->backend, group->account,
             box->id);
    count_found(sweep, box, who);
    act.verdict = judge(sweep, box, who);
    if (box->facts.create_ms)
        act.age_ms =
            sweep->now_ms > box->facts.create_ms ? sweep->now_ms - box->facts.create_ms : 0;
    if (act.verdict.why == REAPER_KEEP_UNTAGGED)
        report_untagged(sweep, who, box);
    return sweep_do(sweep, &act, err);
}

/* What an unowned one is counted as, before its time has come, too. */
static void count_boxes(struct sweep *sweep)
{
    struct reaper *reaper = sweep->reaper;
    uint64_t orphans = 0, duplicates = 0, untagged = 0;

    for (size_t i = 0; i < sweep->n_boxes; i++) {
        const struct sweep_box *box = &sweep->boxes[i];
        enum reaper_why why = reaper_judge(&box->facts, &reaper->limits, sweep->now_ms).why;

        orphans += reaper_plight(why) == 1;
        duplicates += why == REAPER_DUPLICATE;
        untagged += why == REAPER_KEEP_UNTAGGED;
        if (box->facts.tags == REAPER_TAGS_OURS && !box->facts.ended)
            reaper_usage_add(reaper->usage, box->tenant, box->config, box->facts.sleeps,
                             box->disk_bytes);
    }
    reaper->counts.orphans = orphans;
    reaper->counts.duplicates_seen = duplicates;
    reaper->counts.untagged = untagged;
}

static bool is_whole(const struct sweep *sweep)
{
    return !*sweep->request.tenant_id && !sweep->request.dry;
}

static void sample(struct sweep *sweep)
{
    struct reaper *reaper = sweep->reaper;

    int64_t max_ms = 3 * reaper->interval_ms;

    if (!is_whole(sweep))
        return;
    pthread_mutex_lock(&reaper->counting);
    if (reaper->usage_term != sweep->term && sweep_load_usage(sweep, max_ms))
        reaper->usage_term = sweep->term;
    reaper_usage_begin(reaper->usage, sweep->tick_ms, max_ms);
    for (size_t i = 0; i < sweep->n_targets; i++)
        reaper_usage_keep(reaper->usage, sweep->targets[i]->target->tenant_id,
                          sweep->targets[i]->target->config_id);
    count_boxes(sweep);
    for (size_t i = 0; sweep->snapshot_bytes && i < sweep->n_targets; i++)
        reaper_usage_add_snapshots(reaper->usage, sweep->targets[i]->target->tenant_id,
                                   sweep->targets[i]->target->config_id,
                                   sweep->snapshot_bytes[i]);
    reaper_usage_end(reaper->usage);
    if (reaper->usage_term == sweep->term)
        sweep_save_usage(sweep);
    pthread_mutex_unlock(&reaper->counting);
}

/* ------------------------------------------------------------------------ whole */

static enum berth_code run(struct sweep *sweep, struct berth_error *err)
{
    enum berth_code code = sweep_list_targets(sweep, err);

    if (!code)
        code = sweep_due(sweep, err);
    if (!code)
        code = sweep_list_boxes(sweep, err);
    if (code)
        return code;
    sweep->told->seen = (uint32_t)sweep->n_boxes;
    sweep_find_owners(sweep);
    if (is_whole(sweep))
        sweep_list_snapshots(sweep);
    sample(sweep);
    code = sweep_observe(sweep, err);
    for (size_t i = 0; !code && i < sweep->n_boxes; i++) {
        if (!sweep_may_go_on(sweep))
            return berth_fail(err, BERTH_REASON_PEER_UNAVAILABLE,
                              "this replica does not lead any more");
        code = judge_box(sweep, &sweep->boxes[i], err);
    }
    if (!code && is_whole(sweep))
        reaper_seen_turn(sweep->reaper->seen);
    return code;
}

static void finish(struct sweep *sweep, const struct berth_error *why)
{
    struct reaper *reaper = sweep->reaper;
    int64_t took_ms = berth_tick_ms() - sweep->tick_ms;

    sweep->told->end_time = berth_timestamp(sweep->now_ms + took_ms);
    if (why->reason && !berth_set_string(&sweep->told->error, why->text))
        berth_warn("a sweep ended early", "error", why->text);
    if (sweep->request.dry)
        return;
    pthread_mutex_lock(&reaper->counting);
    reaper->counts.sweeps++;
    reaper->counts.skipped += sweep->told->configs_skipped;
    reaper->counts.last_ms = took_ms;
    pthread_mutex_unlock(&reaper->counting);
    berth_log(why->reason ? BERTH_LOG_WARN : BERTH_LOG_DEBUG,
              why->reason ? "a sweep ended early, trying again" : "sweep", "seen",
              BERTH_I64(sweep->told->seen), "deleted", BERTH_I64(sweep->told->deleted),
              "adopted", BERTH_I64(sweep->told->adopted), "ms", BERTH_I64(took_ms),
              why->reason ? "error" : (char *)NULL, why->text, (char *)NULL);
}

enum berth_code reaper_sweep(struct reaper *reaper, const struct sweep_request *request,
                             Sweep **ret_told, SweepItem ***ret_items, size_t *ret_n_items,
                             struct berth_error *err)
{
    struct sweep sweep = {.reaper = reaper, .request = *request};
    struct berth_error why = {0};
    enum berth_code code;

    pthread_mutex_lock(&reaper->sweeping);
    code = begin(&sweep, err);
    if (!code) {
        (void)run(&sweep, &why);
        finish(&sweep, &why);
        *ret_told = BERTH_STEAL(sweep.told);
        *ret_items = BERTH_STEAL(sweep.items);
        *ret_n_items = sweep.n_items;
        sweep.n_items = 0;
    }
    deinit(&sweep);
    pthread_mutex_unlock(&reaper->sweeping);
    return code;
}
