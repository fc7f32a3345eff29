/* test_sweeps.c - the reaper, told when to sweep, with a backend that does as it is told or
 * misbehaves; and what the control plane does at its word. */
#include <stdio.h>
#include <unistd.h>

#include "berth/reaper/v1/reaper.pb-c.h"
#include "tests/component/controlplane/town.h"

#define REAPER "/berth.reaper.v1.ReaperService/"
#define ACTION(name) BERTH__CONTROL__V1__SETTLE_ACTION__SETTLE_ACTION_##name
#define RESULT(name) BERTH__CONTROL__V1__SETTLE_RESULT__SETTLE_RESULT_##name
#define PAUSED BERTH__COMMON__V1__SANDBOX_STATE__SANDBOX_STATE_PAUSED

enum { GRACE_MS = 300, OLD_MS = 3600 * 1000, SCALE = 10000 };

typedef Berth__Reaper__V1__Sweep Sweep;

static struct town town;

static void open_town(void)
{
    town_open(&town, &(struct town_options){
                         .reapers = 2, .grace = "300ms", .verify = "0ms", .lock_lease = "1s"});
}

static void close_town(void)
{
    town_close(&town);
}

static enum berth_reason sweep_at(unsigned reaper, Sweep *ret)
{
    Berth__Reaper__V1__RunSweepRequest req = BERTH__REAPER__V1__RUN_SWEEP_REQUEST__INIT;
    Berth__Reaper__V1__RunSweepResponse *resp = NULL;
    enum berth_reason reason =
        town_call(town.reap[reaper], REAPER "RunSweep", &req,
                  &berth__reaper__v1__run_sweep_response__descriptor, 60000, &resp, NULL);

    if (!reason && ret)
        *ret = *resp->sweep; /* its numbers */
    berth_message_free(resp);
    return reason;
}

/* By whichever of the two leads. */
static Sweep sweep(void)
{
    Sweep told = BERTH__REAPER__V1__SWEEP__INIT;

    for (int64_t end = berth_tick_ms() + WAIT_MS; berth_tick_ms() < end; usleep(20000))
        for (unsigned i = 0; i < REAPERS; i++)
            if (town.reapers[i].pid && !sweep_at(i, &told))
                return told;
    ck_abort_msg("nobody leads");
    return told;
}

/* Sweeps until the grace of all that was there at the first one is over. */
static Sweep sweep_past_grace(void)
{
    int64_t end = berth_tick_ms() + 2 * GRACE_MS;
    Sweep told = sweep(), one;

    do {
        usleep(50000);
        one = sweep();
        told.deleted += one.deleted;
        told.adopted += one.adopted;
        told.failed += one.failed;
        told.configs_skipped += one.configs_skipped;
    } while (berth_tick_ms() < end);
    return told;
}

/* One that was made an hour ago, of a session and deployment. */
static const char *stray(const char *like, const char *tag, const char *value)
{
    struct fake_sandbox *box;

    fake_clone(town.fake, like);
    box = &town.fake->sandboxes[town.fake->n_sandboxes - 1];
    pthread_mutex_lock(&town.fake->mutex);
    box->create_ms = berth_now_ms() - OLD_MS;
    for (size_t i = 0; i < box->n_tags; i++)
        if (strcmp(box->tags[i][0], tag) == 0)
            snprintf(box->tags[i][1], sizeof box->tags[i][1], "%s", value);
    pthread_mutex_unlock(&town.fake->mutex);
    return box->id;
}

static const char *copy(const char *text)
{
    static char buf[4][64];
    static unsigned at;

    snprintf(buf[++at % 4], sizeof buf[0], "%s", text);
    return buf[at % 4];
}

/* A second sandbox of a bound session, and one of a deleted one: gone, but only after grace.
 * The bound one is what it was. */
START_TEST(sweep__evidence__deleted_after_grace_and_no_sooner)
{
    const char *bound = copy(town_box(&town, "a", NULL));
    const char *second = copy(stray(bound, "", "")), *deleted;

    ck_assert_int_eq(town_act(&town, "Delete", "t1", "a"), BERTH_REASON_NONE);
    ck_assert_uint_eq(fake_alive(town.fake), 0); /* both, by their tags */
    (void)second;
    bound = copy(town_box(&town, "b", NULL));
    second = copy(stray(bound, "", ""));
    deleted = copy(stray(bound, "berth.session", "a"));
    ck_assert_uint_eq(sweep().deleted, 0);
    ck_assert_ptr_nonnull(fake_find(town.fake, second));
    ck_assert_uint_eq(sweep_past_grace().deleted, 2);
    ck_assert_ptr_null(fake_find(town.fake, second));
    ck_assert_ptr_null(fake_find(town.fake, deleted));
    ck_assert_str_eq(town_box(&town, "b", NULL), bound);
}
END_TEST

/* A clock that was seen once does not go on after a leader's death: the next one begins anew.
 */
START_TEST(sweep__leader_killed__another_one_with_clocks_anew)
{
    const char *bound = copy(town_box(&town, "a", NULL));
    const char *second = copy(stray(bound, "", ""));
    unsigned leader;

    (void)sweep();
    leader = sweep_at(0, NULL) == BERTH_REASON_NONE ? 0 : 1;
    ck_assert_int_eq(sweep_at(1 - leader, NULL), BERTH_REASON_PEER_UNAVAILABLE);
    process_kill(&town.reapers[leader]);
    usleep(GRACE_MS * 1000);
    ck_assert_uint_eq(sweep().deleted, 0); /* the other one, as soon as the lease is over */
    ck_assert_ptr_nonnull(fake_find(town.fake, second));
    ck_assert_uint_eq(sweep_past_grace().deleted, 1);
}
END_TEST

/* Each way in which a list can be wrong: the pass is skipped, and nothing is touched. */
static const char *const wrong_lists[] = {"incomplete", "stuck", "refused",
                                          "another backend's"};

START_TEST(sweep__list_not_whole__nothing_touched)
{
    const char *wrong = wrong_lists[_i];
    const char *bound = copy(town_box(&town, "a", NULL));
    const char *second = copy(stray(bound, "", ""));
    Sweep told;

    if (strcmp(wrong, "incomplete") == 0)
        town.fake->incomplete = true;
    if (strcmp(wrong, "stuck") == 0)
        town.fake->list_stuck = true;
    if (strcmp(wrong, "refused") == 0)
        fake_script(town.fake, FAKE_LIST, FAKE_REFUSE, BERTH_REASON_BACKEND_UNAVAILABLE, 1000);
    if (strcmp(wrong, "another backend's") == 0)
        (void)stray(bound, "berth.backend", "e2b");
    told = sweep_past_grace();
    ck_assert_uint_gt(told.configs_skipped, 0);
    ck_assert_uint_eq(told.deleted + told.adopted, 0);
    ck_assert_ptr_nonnull(fake_find(town.fake, second));
    town.fake->incomplete = town.fake->list_stuck = false;
    fake_script(town.fake, FAKE_LIST, FAKE_OBEY, BERTH_REASON_NONE, 0);
}
END_TEST

/* Another deployment's is left; one of ours without a record is bound, not deleted; pages are
 * read to the end. */
START_TEST(sweep__foreign_and_unrecorded__left_and_adopted)
{
    const char *bound = copy(town_box(&town, "a", NULL));
    const char *foreign = copy(stray(bound, "berth.deployment", "another"));
    const char *lost = copy(stray(bound, "berth.session", "lost"));
    int outcome;
    Sweep told;

    town.fake->list_page = 1;
    told = sweep_past_grace();
    ck_assert_uint_eq(told.adopted, 1);
    ck_assert_uint_eq(told.deleted, 0);
    ck_assert_ptr_nonnull(fake_find(town.fake, foreign));
    ck_assert_str_eq(town_box(&town, "lost", &outcome), lost);
}
END_TEST

/* What is created while the list is on its way is bound by the time the bindings are read. */
START_TEST(sweep__list_answered_late__new_ones_seen_as_bound)
{
    struct beside call;

    (void)town_box(&town, "a", NULL);
    (void)sweep();
    fake_script(town.fake, FAKE_CREATE, FAKE_HOLD_AFTER, BERTH_REASON_NONE, 1);
    beside_start(&call, &town, 0, "Resolve", "slow");
    fake_wait_held(town.fake, 1);
    ck_assert_uint_eq(fake_alive(town.fake), 2);
    for (int i = 0; i < 3; i++) { /* it is there, nobody's, and young */
        Sweep told = sweep();

        ck_assert_uint_eq(told.deleted + told.adopted + told.failed, 0);
    }
    fake_release(town.fake);
    ck_assert_int_eq(beside_join(&call), BERTH_REASON_NONE);
    ck_assert_uint_eq(sweep_past_grace().deleted, 0);
    ck_assert_str_eq(town_box(&town, "slow", NULL), call.box);
}
END_TEST

/* Without a control plane there is nothing to look at: no sweep is told of, one sandbox seen or
 * not, and the next one is well. */
START_TEST(sweep__control_plane_away__unavailable)
{
    unsigned leader;

    (void)town_box(&town, "a", NULL);
    ck_assert_uint_eq(sweep().seen, 1);
    leader = sweep_at(0, NULL) == BERTH_REASON_NONE ? 0 : 1;
    process_kill(&town.planes[0]);
    ck_assert_int_eq(sweep_at(leader, NULL), BERTH_REASON_PEER_UNAVAILABLE);
    process_start(&town.planes[0]);
    town_wait_ready(&town);
    ck_assert_uint_eq(sweep().seen, 1);
}
END_TEST

/* While the index is not whole nothing is done, and nothing is taken for absent. */
START_TEST(sweep__epoch_missing__index_recovering)
{
    const char *bound = copy(town_box(&town, "a", NULL));
    const char *second = copy(stray(bound, "", ""));
    unsigned leader;

    (void)sweep();
    leader = sweep_at(0, NULL) == BERTH_REASON_NONE ? 0 : 1;
    town_lose_epoch(&town);
    usleep(2 * GRACE_MS * 1000);
    ck_assert_int_eq(sweep_at(leader, NULL), BERTH_REASON_INDEX_RECOVERING);
    ck_assert_ptr_nonnull(fake_find(town.fake, second));
    berth_reply_free(redis_run(town.store, "SET", "berth:epoch", "1", NULL));
}
END_TEST

/* ------------------------------------------------------------------- at its word */

static bool calls_only; /* of what settle() asks for */

static enum berth_reason settle(const char *session, int action, const char *box,
                                int64_t unless_ms, int *ret_result)
{
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    Google__Protobuf__Timestamp unless = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    Berth__Control__V1__ListTargetsRequest list =
        BERTH__CONTROL__V1__LIST_TARGETS_REQUEST__INIT;
    Berth__Control__V1__ListTargetsResponse *targets = NULL;
    Berth__Control__V1__SettleSessionRequest req =
        BERTH__CONTROL__V1__SETTLE_SESSION_REQUEST__INIT;
    Berth__Control__V1__SettleSessionResponse *resp = NULL;
    enum berth_reason reason;

    list.tenant_id = (char *)"t1";
    list.config_id = (char *)"c1";
    ck_assert_int_eq(town_call(town.control[0], "/berth.control.v1.InternalService/ListTargets",
                               &list, &berth__control__v1__list_targets_response__descriptor,
                               WAIT_MS, &targets, NULL),
                     BERTH_REASON_NONE);
    ref.tenant_id = (char *)"t1";
    ref.session_id = (char *)session;
    req.session = &ref;
    req.action = (Berth__Control__V1__SettleAction)action;
    req.config_id = (char *)"c1";
    req.sandbox_id = (char *)box;
    req.account = targets->targets[0]->target->fingerprint;
    unless.seconds = unless_ms / 1000;
    unless.nanos = (int32_t)(unless_ms % 1000 * 1000000);
    if (unless_ms)
        req.unless_active_after = &unless;
    req.calls_only = calls_only;
    reason = town_call(town.control[0], "/berth.control.v1.InternalService/SettleSession", &req,
                       &berth__control__v1__settle_session_response__descriptor, WAIT_MS, &resp,
                       NULL);
    *ret_result = resp ? (int)resp->result : 0;
    berth_message_free(resp);
    berth_message_free(targets);
    return reason;
}

/* Idle: paused where nobody used it; set going again where somebody did in between; not at all
 * under a turn. A kill is told as a loss by the next answer. */
START_TEST(settle__idle__rests_or_goes_on)
{
    const char *box = copy(town_box(&town, "a", NULL));
    int64_t now_ms = berth_now_ms() + 1000;
    int result, outcome;

    ck_assert_int_eq(settle("a", ACTION(IDLE_PAUSE), box, now_ms - OLD_MS, &result),
                     BERTH_REASON_NONE);
    ck_assert_int_eq(result, RESULT(NOTHING)); /* used since */
    ck_assert_int_eq(settle("a", ACTION(IDLE_PAUSE), box, now_ms, &result), BERTH_REASON_NONE);
    ck_assert_int_eq(result, RESULT(DONE));
    ck_assert_int_eq(fake_find(town.fake, box)->state, PAUSED);
    ck_assert_str_eq(town_box(&town, "a", NULL), box);

    fake_find(town.fake, box)->last_active_ms = now_ms + 1;
    for (int action = ACTION(IDLE_PAUSE); action <= ACTION(IDLE_KILL); action++) {
        ck_assert_int_eq(settle("a", action, box, now_ms, &result), BERTH_REASON_NONE);
        ck_assert_int_eq(result, RESULT(IN_USE));
        ck_assert_int_ne(fake_find(town.fake, box)->state, PAUSED);
        ck_assert_str_eq(town_box(&town, "a", &outcome), box);
        ck_assert_int_eq(outcome, BERTH__CONTROL__V1__RESOLVE_OUTCOME__RESOLVE_OUTCOME_USED);
    }
    /* What runs on by itself spares it from idling, not from the end of its lifetime. */
    fake_find(town.fake, box)->last_call_ms = now_ms - 1000;
    ck_assert_int_eq(settle("a", ACTION(IDLE_KILL), box, now_ms, &result), BERTH_REASON_NONE);
    ck_assert_int_eq(result, RESULT(IN_USE));
    calls_only = true;
    fake_find(town.fake, box)->last_call_ms = now_ms + 60001;
    ck_assert_int_eq(settle("a", ACTION(IDLE_KILL), box, now_ms + 60000, &result),
                     BERTH_REASON_NONE);
    ck_assert_int_eq(result, RESULT(IN_USE));
    fake_find(town.fake, box)->last_call_ms = now_ms - 1000;
    {
        const char *token = copy(town_begin(&town, "a"));

        ck_assert_int_eq(settle("a", ACTION(IDLE_KILL), box, now_ms, &result),
                         BERTH_REASON_NONE);
        ck_assert_int_eq(result, RESULT(NOTHING));
        ck_assert_int_eq(town_end_turn(&town, "a", token), BERTH_REASON_NONE);
    }
    ck_assert_int_eq(settle("a", ACTION(IDLE_KILL), box, now_ms + 60000, &result),
                     BERTH_REASON_NONE);
    ck_assert_int_eq(result, RESULT(DONE));
    ck_assert_uint_eq(fake_alive(town.fake), 0);
    (void)town_box(&town, "a", &outcome);
    ck_assert_int_eq(outcome, BERTH__CONTROL__V1__RESOLVE_OUTCOME__RESOLVE_OUTCOME_REPLACED);
}
END_TEST

/* Nothing without evidence: neither the bound one, nor one that no session is known to have
 * deleted, nor an active session. */
START_TEST(settle__no_evidence__nothing)
{
    const char *box = copy(town_box(&town, "a", NULL));
    const char *lost = copy(stray(box, "berth.session", "lost"));
    int result;

    ck_assert_int_eq(settle("a", ACTION(REAP), box, 0, &result), BERTH_REASON_NONE);
    ck_assert_int_eq(result, RESULT(NOTHING));
    ck_assert_int_eq(settle("lost", ACTION(REAP), lost, 0, &result), BERTH_REASON_NONE);
    ck_assert_int_eq(result, RESULT(NOTHING));
    ck_assert_int_eq(settle("a", ACTION(FINISH_DELETE), "", 0, &result), BERTH_REASON_NONE);
    ck_assert_int_eq(result, RESULT(NOTHING));
    ck_assert_int_eq(settle("a", ACTION(ADOPT), "", 0, &result), BERTH_REASON_NONE);
    ck_assert_int_eq(result, RESULT(NOTHING));
    ck_assert_uint_eq(fake_alive(town.fake), 2);
}
END_TEST

/* ------------------------------------------- what the backend did by itself */

/* The kinds of a session's events from `at` on, each followed by a space; those that were seen
 * later than they happened in front by a '*'. Static. */
static const char *kinds_of(const char *session, size_t *at)
{
    BERTH_AUTO(berth_reply_free)
    struct berth_reply *all = redis_run(town.store, "XRANGE", "berth:{t1}:ev", "-", "+", NULL);
    static char text[512];
    size_t len = 0;

    text[0] = 0;
    for (size_t i = *at; i < all->n_items; i++) {
        const struct berth_reply *fields = all->items[i]->items[1];
        const char *kind = "", *of = "";
        bool observed = false;

        for (size_t k = 0; k + 1 < fields->n_items; k += 2) {
            const char *name = fields->items[k]->string;

            if (strcmp(name, "kind") == 0)
                kind = fields->items[k + 1]->string;
            if (strcmp(name, "session") == 0)
                of = fields->items[k + 1]->string;
            observed = observed || strcmp(name, "observe_ms") == 0;
        }
        if (strcmp(of, session) == 0)
            len += (size_t)snprintf(text + len, sizeof text - len, "%s%s ", observed ? "*" : "",
                                    kind);
    }
    *at = all->n_items;
    return text;
}

static int power_of(const char *session)
{
    Session *got = NULL;
    int state;

    ck_assert_int_eq(town_get(&town, "t1", session, false, &got), BERTH_REASON_NONE);
    state = got->sandbox ? (int)got->sandbox->state : 0;
    berth_message_free(got);
    return state;
}

/* Paused and resumed by somebody else: told once each, and the session knows. Paused, it is
 * connected by the next resolve. */
START_TEST(sweep__paused_and_resumed_by_others__told_once)
{
    const int running = BERTH__COMMON__V1__SANDBOX_STATE__SANDBOX_STATE_RUNNING;
    const char *box = copy(town_box(&town, "a", NULL));
    size_t at = 0;
    int outcome;

    ck_assert_uint_eq(sweep().observed, 0);
    (void)kinds_of("a", &at);
    fake_set_state(town.fake, box, PAUSED);
    ck_assert_uint_eq(sweep().observed, 1);
    ck_assert_uint_eq(sweep().observed, 0);
    ck_assert_str_eq(kinds_of("a", &at), "*PAUSED ");
    ck_assert_int_eq(power_of("a"), PAUSED);
    fake_set_state(town.fake, box, running);
    ck_assert_uint_eq(sweep().observed, 1);
    ck_assert_uint_eq(sweep().observed, 0);
    ck_assert_str_eq(kinds_of("a", &at), "*RESUMED ");
    ck_assert_int_eq(power_of("a"), running);

    fake_set_state(town.fake, box, PAUSED);
    ck_assert_uint_eq(sweep().observed, 1);
    ck_assert_str_eq(town_box(&town, "a", &outcome), box);
    ck_assert_int_eq(outcome, BERTH__CONTROL__V1__RESOLVE_OUTCOME__RESOLVE_OUTCOME_RESUMED);
    ck_assert_uint_eq(sweep().observed, 0);
    ck_assert_str_eq(kinds_of("a", &at), "*PAUSED RESUMED ");

    /* Found by the next call, before any sweep: the same. */
    fake_set_state(town.fake, box, PAUSED);
    ck_assert_str_eq(town_box(&town, "a", &outcome), box);
    ck_assert_int_eq(outcome, BERTH__CONTROL__V1__RESOLVE_OUTCOME__RESOLVE_OUTCOME_RESUMED);
    ck_assert_uint_eq(sweep().observed, 0);
    ck_assert_str_eq(kinds_of("a", &at), "*PAUSED RESUMED ");
}
END_TEST

/* Killed by somebody else, gone or still listed as ended, the tenant's last one: a loss, told
 * as an event without any call, and by the next answer. */
START_TEST(sweep__killed_by_others__a_loss_told)
{
    const char *box = copy(town_box(&town, "a", NULL));
    size_t at = 0;
    int outcome;

    (void)kinds_of("a", &at);
    if (_i == 0)
        fake_kill(town.fake, box);
    else
        fake_set_state(town.fake, box,
                       BERTH__COMMON__V1__SANDBOX_STATE__SANDBOX_STATE_TERMINAL);
    ck_assert_uint_eq(sweep().observed, 1);
    ck_assert_uint_eq(sweep().observed, 0);
    ck_assert_str_eq(kinds_of("a", &at), "*LOST ");
    ck_assert_str_ne(town_box(&town, "a", &outcome), box);
    ck_assert_int_eq(outcome, BERTH__CONTROL__V1__RESOLVE_OUTCOME__RESOLVE_OUTCOME_REPLACED);
    ck_assert_str_eq(kinds_of("a", &at), "REPLACED ");
}
END_TEST

/* A list that lacks it proves nothing: it is asked for, and what answers is left as it is. */
START_TEST(sweep__not_listed__asked_for_and_kept)
{
    const char *box = copy(town_box(&town, "a", NULL));
    size_t at = 0;

    (void)kinds_of("a", &at);
    town.fake->forget_tags = true;
    fake_forget_calls(town.fake);
    ck_assert_uint_eq(sweep().observed, 0);
    ck_assert_uint_ge(fake_count(town.fake, FAKE_GET), 1);
    town.fake->forget_tags = false;
    fake_script(town.fake, FAKE_GET, FAKE_REFUSE, BERTH_REASON_BACKEND_UNAVAILABLE, 1);
    fake_set_state(town.fake, box, PAUSED);
    ck_assert_uint_eq(sweep().observed, 0); /* nobody could say */
    ck_assert_uint_eq(sweep().observed, 1);
    ck_assert_str_eq(kinds_of("a", &at), "*PAUSED ");
    ck_assert_str_eq(town_box(&town, "a", NULL), box);
}
END_TEST

/* Its backend ends it soon: told once, and again only for another end. */
START_TEST(sweep__about_to_end__told_once_for_each_end)
{
    struct fake_sandbox *box = fake_find(town.fake, copy(town_box(&town, "a", NULL)));
    size_t at = 0;

    (void)kinds_of("a", &at);
    box->warn_ms = 60000;
    box->end_ms = berth_now_ms() + 120000;
    ck_assert_uint_eq(sweep().observed, 0);
    for (int i = 0; i < 2; i++) {
        box->end_ms = berth_now_ms() + 50000;
        ck_assert_uint_eq(sweep().observed, 1);
        ck_assert_uint_eq(sweep().observed, 0);
        ck_assert_str_eq(kinds_of("a", &at), "ABOUT_TO_TIME_OUT ");
    }
}
END_TEST

/* One that runs beside the bound one rests while its grace goes on, and is told of once; the
 * bound one is not touched. */
START_TEST(sweep__second_one__rests_until_its_grace_is_over)
{
    const char *box = copy(town_box(&town, "a", NULL));
    const char *second = copy(stray(box, "", ""));
    size_t at = 0;

    (void)kinds_of("a", &at);
    ck_assert_uint_eq(sweep().paused, 0);
    usleep(2 * GRACE_MS * 1000);
    ck_assert_uint_eq(sweep().paused, 1);
    ck_assert_int_eq(fake_find(town.fake, second)->state, PAUSED);
    ck_assert_int_ne(fake_find(town.fake, box)->state, PAUSED);
    ck_assert_uint_eq(sweep().paused, 0);
    ck_assert_str_eq(kinds_of("a", &at), "DUPLICATE_FOUND ");
}
END_TEST

/* ------------------------------------------------------------------------ metrics */

/* The value of a line of /metrics; -1: there is none. */
static double value_of(const struct process *process, const char *line)
{
    BERTH_AUTO(free) char *text = process_metrics(process);
    char begin[160];
    const char *at;

    snprintf(begin, sizeof begin, "\n%s", line); /* not what HELP says of it */
    at = text ? strstr(text, begin) : NULL;
    return at ? strtod(at + strlen(begin), NULL) : -1;
}

/* What this costs: seconds and bytes for each config, the same after a restart of the reaper;
 * resolves by outcome, doubles that were not made, events, locks lost. */
START_TEST(metrics__what_this_costs__told_and_kept)
{
    static const char ran[] =
        "berth_sandbox_running_seconds_total{tenant=\"t1\",config=\"c1\"} ";
    static const char slept[] =
        "berth_sandbox_paused_seconds_total{tenant=\"t1\",config=\"c1\"} ";
    static const char *const resolves =
        "berth_controlplane_resolves_total{outcome=\"created\"} ";
    static const char of[] = "{tenant=\"t1\",config=\"c1\"} ";
    static const char *const kinds[] = {"sandbox", "snapshot"};
    struct process *reaper = &town.reapers[0], *plane = &town.planes[0];
    double ran_s, slept_s, byte_s[2];
    char line[128];

    (void)town_box(&town, "a", NULL);
    fake_set_state(town.fake, copy(town_box(&town, "b", NULL)), PAUSED);
    (void)stray(copy(town_box(&town, "a", NULL)), "", "");
    (void)stray(copy(town_box(&town, "a", NULL)), "berth.session", "lost");
    fake_find(town.fake, copy(town_box(&town, "a", NULL)))->disk_bytes = 3 << 20;
    for (int i = 0; i < 3; i++)
        fake_add_snapshot(town.fake, i ? i == 1 ? "two" : "three" : "one",
                          copy(town_box(&town, "a", NULL)));
    fake_add_snapshot(town.fake, "another's",
                      stray(copy(town_box(&town, "a", NULL)), "berth.deployment", "another"));
    (void)sweep();
    usleep(50000);
    (void)sweep();
    ran_s = value_of(reaper, ran);
    slept_s = value_of(reaper, slept);
    ck_assert_double_ge(slept_s, 0.05);
    ck_assert_double_ge(ran_s, 2.9 * slept_s);
    for (int i = 0; i < 2; i++) {
        snprintf(line, sizeof line, "berth_%s_stored_bytes%s", kinds[i], of);
        ck_assert_double_eq(value_of(reaper, line), i ? 3 * 4096 : 3 << 20);
        snprintf(line, sizeof line, "berth_%s_stored_byte_seconds_total%s", kinds[i], of);
        byte_s[i] = value_of(reaper, line);
        ck_assert_double_gt(byte_s[0], 0);
    }
    ck_assert_double_eq(value_of(reaper, "berth_reaper_orphans_found_total "), 1);
    ck_assert_double_eq(value_of(reaper, "berth_reaper_duplicates_found_total "), 1);
    ck_assert_double_eq(value_of(reaper, "berth_reaper_observed_total "), 1);
    process_kill(reaper);
    process_start(reaper);
    (void)sweep();
    ck_assert_double_ge(value_of(reaper, ran), ran_s);
    ck_assert_double_ge(value_of(reaper, slept), slept_s);
    for (int i = 0; i < 2; i++) {
        snprintf(line, sizeof line, "berth_%s_stored_byte_seconds_total%s", kinds[i], of);
        ck_assert_double_ge(value_of(reaper, line), byte_s[i]);
    }

    ck_assert_double_eq(value_of(plane, resolves), 2);
    fake_script(town.fake, FAKE_CREATE, FAKE_LOSE, 0, 1);
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "c", NULL, NULL, NULL),
                     BERTH_REASON_OUTCOME_UNKNOWN);
    (void)town_box(&town, "c", NULL);
    ck_assert_double_eq(
        value_of(plane, "berth_controlplane_doubles_prevented_total{by=\"found\"} "), 1);
    ck_assert_double_eq(
        value_of(&town.binding, "berth_binding_events_total{kind=\"ADOPTED\"} "), 1);
    ck_assert_double_eq(value_of(&town.binding, "berth_binding_locks_lost_total "), 0);
}
END_TEST

/* ------------------------------------------------------------------- keep alive */

static void open_timed(void)
{
    town_open(&town, &(struct town_options){.no_config = true});
    town.fake->timer = true;
}

static void make_config(void)
{
    Berth__Control__V1__CreateConfigRequest make =
        BERTH__CONTROL__V1__CREATE_CONFIG_REQUEST__INIT;
    SandboxConfig settings = BERTH__CONTROL__V1__SANDBOX_CONFIG__INIT;

    settings.tenant_id = (char *)"t1";
    settings.config_id = (char *)"c1";
    settings.backend = (char *)"local";
    make.config = &settings;
    ck_assert_int_eq(town_call(town.control[0], "/berth.control.v1.ConfigService/CreateConfig",
                               &make, &berth__control__v1__create_config_response__descriptor,
                               WAIT_MS, NULL, NULL),
                     BERTH_REASON_NONE);
}

static void set_end(const char *box, int64_t left_ms)
{
    pthread_mutex_lock(&town.fake->mutex);
    fake_find(town.fake, box)->end_ms = berth_now_ms() + left_ms;
    pthread_mutex_unlock(&town.fake->mutex);
}

/* Invariant 16: a turn pushes the end of a backend that has a timer, once less than half of the
 * idle time (30 min) is left; not before. */
START_TEST(begin_turn__backend_with_a_timer__end_pushed)
{
    SessionSpec spec = BERTH__COMMON__V1__SESSION_SPEC__INIT;
    const char *boxes[2];

    make_config();
    spec.config_id = (char *)"c1";
    for (int i = 0; i < 2; i++) {
        Resolved *resolved = NULL;

        ck_assert_int_eq(town_resolve(&town, 0, "t1", i ? "b" : "a", &spec, NULL, &resolved),
                         BERTH_REASON_NONE);
        boxes[i] = copy(resolved->session->sandbox->sandbox_id);
        berth_message_free(resolved);
    }
    set_end(boxes[0], 20 * 60000);
    set_end(boxes[1], 10 * 60000);
    fake_forget_calls(town.fake);
    (void)town_begin(&town, "a");
    (void)town_begin(&town, "b");
    for (int64_t end = berth_tick_ms() + WAIT_MS;
         fake_count(town.fake, FAKE_SET_TIMEOUT) + fake_count(town.fake, FAKE_GET) < 3;
         usleep(5000))
        ck_assert_int_lt(berth_tick_ms(), end);
    ck_assert_uint_eq(fake_count(town.fake, FAKE_SET_TIMEOUT), 1);
    ck_assert_int_gt(fake_find(town.fake, boxes[1])->end_ms, berth_now_ms() + 29 * 60000);
    ck_assert_int_lt(fake_find(town.fake, boxes[0])->end_ms, berth_now_ms() + 21 * 60000);
}
END_TEST

/* ------------------------------------------------------------------------- size */

static long memory_kib(pid_t pid)
{
    char path[48], line[256];
    long kib = 0;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, "VmHWM:", 6) == 0)
            kib = strtol(line + 6, NULL, 10);
    if (file)
        fclose(file);
    return kib;
}

/* Ten thousand that no session knows, each of which has to be asked for: bounded in time and
 * memory, and none of them touched. */
START_TEST(sweep__ten_thousand__bounded)
{
    int64_t begin;
    Sweep told;

    (void)town_box(&town, "a", NULL);
    town.fake->ghosts = SCALE;
    town.fake->list_page = 500;
    (void)sweep();
    begin = berth_tick_ms();
    told = sweep();
    fprintf(stderr, "sweep of %u: %lld ms, %ld KiB\n", told.seen,
            (long long)(berth_tick_ms() - begin), memory_kib(town.reapers[0].pid));
    ck_assert_uint_eq(told.seen, SCALE + 1);
    ck_assert_uint_eq(told.deleted, 0);
    ck_assert_uint_eq(told.configs_skipped, 0);
    if (!getenv("ASAN_OPTIONS") && !getenv("BERTH_SLOW")) {
        ck_assert_int_le(berth_tick_ms() - begin, 10000);
        ck_assert_int_le(memory_kib(town.reapers[0].pid), 64 * 1024);
    }
}
END_TEST

static void open_kept(void)
{
    town_open(&town, &(struct town_options){.reapers = 1,
                                            .grace = "300ms",
                                            .duplicate_grace = "1h",
                                            .metrics = true,
                                            .verify = "0ms",
                                            .lock_lease = "1s"});
}

static void open_patient(void)
{
    town_open(&town, &(struct town_options){.reapers = 1, .grace = "10m"});
}

int main(void)
{
    Suite *suite = suite_create("reaper/sweeps");
    TCase *sweeps = tcase_create("sweeps"), *scale = tcase_create("scale"),
          *timed = tcase_create("timed"), *kept = tcase_create("kept");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(sweeps, open_town, close_town);
    tcase_set_timeout(sweeps, 120);
    tcase_add_test(sweeps, sweep__evidence__deleted_after_grace_and_no_sooner);
    tcase_add_test(sweeps, sweep__leader_killed__another_one_with_clocks_anew);
    tcase_add_loop_test(sweeps, sweep__list_not_whole__nothing_touched, 0,
                        (int)BERTH_COUNT(wrong_lists));
    tcase_add_test(sweeps, sweep__foreign_and_unrecorded__left_and_adopted);
    tcase_add_test(sweeps, sweep__list_answered_late__new_ones_seen_as_bound);
    tcase_add_test(sweeps, sweep__epoch_missing__index_recovering);
    tcase_add_test(sweeps, sweep__control_plane_away__unavailable);
    tcase_add_test(sweeps, settle__idle__rests_or_goes_on);
    tcase_add_test(sweeps, settle__no_evidence__nothing);
    suite_add_tcase(suite, sweeps);
    tcase_add_checked_fixture(timed, open_timed, close_town);
    tcase_set_timeout(timed, 120);
    tcase_add_test(timed, begin_turn__backend_with_a_timer__end_pushed);
    suite_add_tcase(suite, timed);
    tcase_add_checked_fixture(kept, open_kept, close_town);
    tcase_set_timeout(kept, 120);
    tcase_add_test(kept, sweep__paused_and_resumed_by_others__told_once);
    tcase_add_loop_test(kept, sweep__killed_by_others__a_loss_told, 0, 2);
    tcase_add_test(kept, sweep__not_listed__asked_for_and_kept);
    tcase_add_test(kept, sweep__about_to_end__told_once_for_each_end);
    tcase_add_test(kept, sweep__second_one__rests_until_its_grace_is_over);
    tcase_add_test(kept, metrics__what_this_costs__told_and_kept);
    suite_add_tcase(suite, kept);
    tcase_add_checked_fixture(scale, open_patient, close_town);
    tcase_set_timeout(scale, 120);
    tcase_add_test(scale, sweep__ten_thousand__bounded);
    suite_add_tcase(suite, scale);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
