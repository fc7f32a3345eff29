/* test_crashes.c - kill -9 of the control plane at every step, answers that are lost, creates
 * that land late: whatever happened, the next resolve ends with one sandbox, and with the right
 * one. */
#include <signal.h>
#include <stdio.h>

#include "tests/component/controlplane/town.h"

#define OUTCOME(name) BERTH__CONTROL__V1__RESOLVE_OUTCOME__RESOLVE_OUTCOME_##name
#define SANDBOX(name) BERTH__COMMON__V1__SANDBOX_STATE__SANDBOX_STATE_##name

static struct town town;

/* A short lease: the lock of a killed holder is waited for. */
static void open_town(void)
{
    town_open(&town, &(struct town_options){.lock_lease = "1s"});
}

static void open_unkeyed(void)
{
    town_open(&town, &(struct town_options){.lock_lease = "1s", .not_keyed = true});
}

static void close_town(void)
{
    town_close(&town);
}

/* Kill the control plane while n calls of a method are held, let them go, start it again. */
static void kill_while_held(void)
{
    fake_wait_held(town.fake, 1);
    process_kill(&town.planes[0]);
    fake_release(town.fake);
    process_start(&town.planes[0]);
    town_wait_ready(&town);
}

/* Every answer of the backend that a first resolve waits for, before and after it takes effect.
 */
static const struct {
    enum fake_act act;
    int outcome; /* of the next resolve */
} create_rows[] = {
    {FAKE_HOLD, OUTCOME(ADOPTED)}, /* in flight when its sender died: it lands */
    {FAKE_HOLD_AFTER, OUTCOME(ADOPTED)},
};

START_TEST(create__killed__one_sandbox_adopted)
{
    struct beside call;
    int outcome;

    fake_script(town.fake, FAKE_CREATE, create_rows[_i].act, 0, 1);
    beside_start(&call, &town, 0, "Resolve", "s1");
    kill_while_held();
    ck_assert_int_ne(beside_join(&call), BERTH_REASON_NONE);
    ck_assert_str_eq(town_box(&town, "s1", &outcome), "box-1");
    ck_assert_int_eq(outcome, create_rows[_i].outcome);
    ck_assert_uint_eq(fake_alive(town.fake), 1);
    ck_assert_str_eq(town_box(&town, "s1", &outcome), "box-1");
    ck_assert_int_eq(outcome, OUTCOME(USED));
}
END_TEST

/* The same on a backend that is not keyed: only the list tells. */
START_TEST(create__killed_not_keyed__one_sandbox_adopted)
{
    struct beside call;

    fake_script(town.fake, FAKE_CREATE, create_rows[_i].act, 0, 1);
    beside_start(&call, &town, 0, "Resolve", "s1");
    kill_while_held();
    ck_assert_int_ne(beside_join(&call), BERTH_REASON_NONE);
    ck_assert_str_eq(town_box(&town, "s1", NULL), "box-1");
    ck_assert_uint_eq(fake_alive(town.fake), 1);
}
END_TEST

/* The answer of a create is lost: told as unknown, and found by its attempt. */
START_TEST(create__answer_lost__unknown_then_adopted)
{
    int outcome;

    fake_script(town.fake, FAKE_CREATE, FAKE_LOSE, 0, 1);
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "s1", NULL, NULL, NULL),
                     BERTH_REASON_OUTCOME_UNKNOWN);
    ck_assert_str_eq(town_box(&town, "s1", &outcome), "box-1");
    ck_assert_int_eq(outcome, OUTCOME(ADOPTED));
    ck_assert_uint_eq(fake_count(town.fake, FAKE_CREATE), 1);
    ck_assert_uint_eq(fake_alive(town.fake), 1);
}
END_TEST

/* A late create on a keyed backend finds that there is one: never two. */
START_TEST(create__lands_late__keyed__never_two)
{
    char box[64];

    fake_script(town.fake, FAKE_CREATE, FAKE_LATE, 0, 1);
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "s1", NULL, NULL, NULL),
                     BERTH_REASON_OUTCOME_UNKNOWN);
    snprintf(box, sizeof box, "%s", town_box(&town, "s1", NULL));
    fake_land(town.fake);
    ck_assert_uint_eq(fake_alive(town.fake), 1);
    ck_assert_str_eq(town_box(&town, "s1", NULL), box);
}
END_TEST

/* A late create on a backend that is not keyed is waited for until it cannot land any more. */
START_TEST(create__lands_late__not_keyed__unsettled_until_the_horizon)
{
    struct berth_error err;
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    Berth__Control__V1__ResolveSessionRequest req =
        BERTH__CONTROL__V1__RESOLVE_SESSION_REQUEST__INIT;
    int outcome;

    fake_script(town.fake, FAKE_CREATE, FAKE_LATE, 0, 1);
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "s1", NULL, NULL, NULL),
                     BERTH_REASON_OUTCOME_UNKNOWN);
    ref.tenant_id = (char *)"t1";
    ref.session_id = (char *)"s1";
    req.session = &ref;
    ck_assert_int_eq(town_call(town.control[0],
                               "/berth.control.v1.SessionService/ResolveSession", &req,
                               &berth__control__v1__resolve_session_response__descriptor,
                               WAIT_MS, NULL, &err),
                     BERTH_REASON_CREATE_UNSETTLED);
    ck_assert_int_gt(err.retry_after_ms, 0);
    fake_land(town.fake);
    ck_assert_str_eq(town_box(&town, "s1", &outcome), "box-1");
    ck_assert_int_eq(outcome, OUTCOME(ADOPTED));
}
END_TEST

/* Past its horizon it is settled, and a new one is made. */
START_TEST(create__never_lands__not_keyed__made_anew_past_the_horizon)
{
    int64_t end_tick = berth_tick_ms() + WAIT_MS;
    enum berth_reason reason;

    fake_script(town.fake, FAKE_CREATE, FAKE_LATE, 0, 1);
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "s1", NULL, NULL, NULL),
                     BERTH_REASON_OUTCOME_UNKNOWN);
    do {
        reason = town_resolve(&town, 0, "t1", "s1", NULL, NULL, NULL);
        ck_assert(reason == BERTH_REASON_NONE || reason == BERTH_REASON_CREATE_UNSETTLED);
        ck_assert_int_lt(berth_tick_ms(), end_tick);
        usleep(20000);
    } while (reason);
    ck_assert_uint_eq(fake_alive(town.fake), 1);
    ck_assert_uint_eq(fake_count(town.fake, FAKE_CREATE), 2);
}
END_TEST

/* Killed in the middle of a pause: looked at, connected, and used as if nothing had been. */
START_TEST(pause__killed__next_resolve_runs)
{
    static const enum fake_act acts[] = {FAKE_HOLD, FAKE_HOLD_AFTER};
    struct beside call;

    (void)town_box(&town, "s1", NULL);
    fake_script(town.fake, FAKE_PAUSE, acts[_i], 0, 1);
    beside_start(&call, &town, 0, "Pause", "s1");
    kill_while_held();
    ck_assert_int_ne(beside_join(&call), BERTH_REASON_NONE);
    ck_assert_str_eq(town_box(&town, "s1", NULL), "box-1");
    ck_assert_int_eq(fake_only(town.fake)->state, SANDBOX(RUNNING));
    ck_assert_int_eq(town_act(&town, "Pause", "t1", "s1"), BERTH_REASON_NONE);
    ck_assert_int_eq(fake_only(town.fake)->state, SANDBOX(PAUSED));
}
END_TEST

/* Killed in the middle of a resume: the same sandbox. */
START_TEST(resume__killed__next_resolve_runs)
{
    static const enum fake_act acts[] = {FAKE_HOLD, FAKE_HOLD_AFTER};
    struct beside call;

    (void)town_box(&town, "s1", NULL);
    ck_assert_int_eq(town_act(&town, "Pause", "t1", "s1"), BERTH_REASON_NONE);
    fake_script(town.fake, FAKE_CONNECT, acts[_i], 0, 1);
    beside_start(&call, &town, 0, "Resume", "s1");
    kill_while_held();
    ck_assert_int_ne(beside_join(&call), BERTH_REASON_NONE);
    ck_assert_str_eq(town_box(&town, "s1", NULL), "box-1");
    ck_assert_uint_eq(fake_alive(town.fake), 1);
}
END_TEST

/* Killed in the middle of a delete: the session stays condemned, and a repeat ends it. */
START_TEST(delete__killed__condemned_and_finished_by_a_repeat)
{
    static const enum fake_act acts[] = {FAKE_HOLD, FAKE_HOLD_AFTER};
    struct beside call;

    (void)town_box(&town, "s1", NULL);
    fake_script(town.fake, FAKE_DELETE, acts[_i], 0, 1);
    beside_start(&call, &town, 0, "Delete", "s1");
    kill_while_held();
    ck_assert_int_ne(beside_join(&call), BERTH_REASON_NONE);
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "s1", NULL, NULL, NULL),
                     BERTH_REASON_SESSION_DELETED);
    ck_assert_int_eq(town_act(&town, "Delete", "t1", "s1"), BERTH_REASON_NONE);
    ck_assert_uint_eq(fake_alive(town.fake), 0);
}
END_TEST

/* A delete that the backend does not do is repeated by the next one, until it is. */
START_TEST(delete__backend_fails__unfinished_then_finished)
{
    (void)town_box(&town, "s1", NULL);
    fake_script(town.fake, FAKE_DELETE, FAKE_REFUSE, BERTH_REASON_BACKEND_TIMEOUT, 2);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(town_act(&town, "Delete", "t1", "s1"), BERTH_REASON_BACKEND_TIMEOUT);
    ck_assert_uint_eq(fake_alive(town.fake), 1);
    ck_assert_int_eq(town_act(&town, "Delete", "t1", "s1"), BERTH_REASON_NONE);
    ck_assert_uint_eq(fake_alive(town.fake), 0);
}
END_TEST

/* Deleted while its sandbox is being made: nothing is left of either. */
START_TEST(delete__while_created__both_gone)
{
    struct beside create, remove;
    enum berth_reason reason;

    fake_script(town.fake, FAKE_CREATE, FAKE_HOLD_AFTER, 0, 1);
    beside_start(&create, &town, 0, "Resolve", "s1");
    fake_wait_held(town.fake, 1);
    beside_start(&remove, &town, 0, "Delete", "s1");
    /* The state is DELETING before the lock is had. */
    for (int64_t end = berth_tick_ms() + WAIT_MS;
         !strstr(town_field(&town, "berth:{t1}:s/s1", "session"), "deleting") &&
         !strstr(town_field(&town, "berth:{t1}:s/s1", "session"), "DELETING");)
        ck_assert_int_lt(berth_tick_ms(), end);
    fake_release(town.fake);
    reason = beside_join(&create);
    ck_assert_msg(reason == BERTH_REASON_SESSION_DELETED, "%s", berth_reason_name(reason));
    ck_assert_int_eq(beside_join(&remove), BERTH_REASON_NONE);
    ck_assert_uint_eq(fake_alive(town.fake), 0);
}
END_TEST

/* Two sandboxes of one session at the backend: the oldest is adopted, none is deleted. */
START_TEST(adopt__duplicates__oldest_and_none_deleted)
{
    struct berth_reply *reply;
    int outcome;

    (void)town_box(&town, "s1", NULL);
    fake_clone(town.fake, "box-1");
    reply = redis_run(town.store, "DEL", "berth:{t1}:s/s1", NULL);
    berth_reply_free(reply);
    ck_assert_str_eq(town_box(&town, "s1", &outcome), "box-1");
    ck_assert_int_eq(outcome, OUTCOME(ADOPTED));
    ck_assert_uint_eq(fake_alive(town.fake), 2);
    ck_assert_uint_eq(fake_count(town.fake, FAKE_DELETE), 0);
}
END_TEST

/* The index lost the session: it is found again by its tags, with its sandbox. */
START_TEST(adopt__document_lost__same_sandbox)
{
    int outcome;

    (void)town_box(&town, "s1", NULL);
    berth_reply_free(redis_run(town.store, "DEL", "berth:{t1}:s/s1", NULL));
    ck_assert_str_eq(town_box(&town, "s1", &outcome), "box-1");
    ck_assert_int_eq(outcome, OUTCOME(ADOPTED));
    ck_assert_uint_eq(fake_alive(town.fake), 1);
}
END_TEST

/* A list that is not whole proves nothing: no create. */
START_TEST(adopt__incomplete_list__refused)
{
    town.fake->incomplete = true;
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "s1", NULL, NULL, NULL),
                     BERTH_REASON_BACKEND_UNAVAILABLE);
    ck_assert_uint_eq(fake_count(town.fake, FAKE_CREATE), 0);
    town.fake->incomplete = false;
    (void)town_box(&town, "s1", NULL);
}
END_TEST

/* A stalled holder: the lock is taken over, and its calls bear a fence that is refused. */
START_TEST(holder__stalled_past_its_lease__one_sandbox)
{
    struct beside first, second;

    fake_script(town.fake, FAKE_CREATE, FAKE_HOLD_AFTER, 0, 1);
    beside_start(&first, &town, 0, "Resolve", "s1");
    fake_wait_held(town.fake, 1);
    kill(town.planes[0].pid, SIGSTOP);
    beside_start(&second, &town, 1, "Resolve", "s1");
    ck_assert_int_eq(beside_join(&second), BERTH_REASON_NONE);
    ck_assert_str_eq(second.box, "box-1");
    kill(town.planes[0].pid, SIGCONT);
    fake_release(town.fake);
    ck_assert_int_eq(beside_join(&first), BERTH_REASON_NONE);
    ck_assert_str_eq(first.box, "box-1");
    ck_assert_uint_eq(fake_alive(town.fake), 1);
}
END_TEST

static void open_two(void)
{
    town_open(&town, &(struct town_options){.lock_lease = "1s", .planes = 2});
}

int main(void)
{
    Suite *suite = suite_create("controlplane/crashes");
    TCase *keyed = tcase_create("keyed"), *unkeyed = tcase_create("unkeyed");
    TCase *two = tcase_create("two");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(keyed, open_town, close_town);
    tcase_set_timeout(keyed, 60);
    tcase_add_loop_test(keyed, create__killed__one_sandbox_adopted, 0,
                        (int)BERTH_COUNT(create_rows));
    tcase_add_test(keyed, create__answer_lost__unknown_then_adopted);
    tcase_add_test(keyed, create__lands_late__keyed__never_two);
    tcase_add_loop_test(keyed, pause__killed__next_resolve_runs, 0, 2);
    tcase_add_loop_test(keyed, resume__killed__next_resolve_runs, 0, 2);
    tcase_add_loop_test(keyed, delete__killed__condemned_and_finished_by_a_repeat, 0, 2);
    tcase_add_test(keyed, delete__backend_fails__unfinished_then_finished);
    tcase_add_test(keyed, delete__while_created__both_gone);
    tcase_add_test(keyed, adopt__document_lost__same_sandbox);
    suite_add_tcase(suite, keyed);

    tcase_add_checked_fixture(unkeyed, open_unkeyed, close_town);
    tcase_set_timeout(unkeyed, 60);
    tcase_add_loop_test(unkeyed, create__killed_not_keyed__one_sandbox_adopted, 0,
                        (int)BERTH_COUNT(create_rows));
    tcase_add_test(unkeyed, create__lands_late__not_keyed__unsettled_until_the_horizon);
    tcase_add_test(unkeyed, create__never_lands__not_keyed__made_anew_past_the_horizon);
    tcase_add_test(unkeyed, adopt__duplicates__oldest_and_none_deleted);
    tcase_add_test(unkeyed, adopt__incomplete_list__refused);
    suite_add_tcase(suite, unkeyed);

    tcase_add_checked_fixture(two, open_two, close_town);
    tcase_set_timeout(two, 60);
    tcase_add_test(two, holder__stalled_past_its_lease__one_sandbox);
    suite_add_tcase(suite, two);

    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
