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
    fake_find(town.fake, box)->last_active_ms = 0;
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

static void open_patient(void)
{
    town_open(&town, &(struct town_options){.reapers = 1, .grace = "10m"});
}

int main(void)
{
    Suite *suite = suite_create("reaper/sweeps");
    TCase *sweeps = tcase_create("sweeps"), *scale = tcase_create("scale"),
          *timed = tcase_create("timed");
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
    tcase_add_checked_fixture(scale, open_patient, close_town);
    tcase_set_timeout(scale, 120);
    tcase_add_test(scale, sweep__ten_thousand__bounded);
    suite_add_tcase(suite, scale);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
