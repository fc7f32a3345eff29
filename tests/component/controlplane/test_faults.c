/* test_faults.c - peers that are away: UNAVAILABLE within a second, nothing torn down, and well
 * again without a restart. And many callers at once. */
#include <signal.h>
#include <stdio.h>

#include "tests/component/controlplane/town.h"

#define OUTCOME(name) BERTH__CONTROL__V1__RESOLVE_OUTCOME__RESOLVE_OUTCOME_##name

static struct town town;

static void open_town(void)
{
    town_open(&town, &(struct town_options){.planes = 2});
}

static void open_verifying(void)
{
    town_open(&town, &(struct town_options){.verify = "0ms"});
}

enum { HOUR_MS = 3600 * 1000 };

/* Seen from the store, the replica is late by that. */
static void open_late(void)
{
    town_open(&town, &(struct town_options){.redis_clock_ms = 8 * HOUR_MS});
}

static void close_town(void)
{
    town_close(&town);
}

/* Where Redis is is no caller's business. */
static void tells_no_address(const struct berth_error *err)
{
    ck_assert_msg(!strstr(err->text, town.redis.folder) && !strstr(err->text, "unix:") &&
                      !strstr(err->text, ".sock"),
                  "%s", err->text);
}

/* A resolve that fails as UNAVAILABLE, soon. */
static void unavailable(const char *session)
{
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    Berth__Control__V1__ResolveSessionRequest req =
        BERTH__CONTROL__V1__RESOLVE_SESSION_REQUEST__INIT;
    int64_t tick = berth_tick_ms();
    struct berth_error err;
    enum berth_reason reason;

    ref.tenant_id = (char *)"t1";
    ref.session_id = (char *)session;
    req.session = &ref;
    reason = town_call(town.control[0], "/berth.control.v1.SessionService/ResolveSession", &req,
                       &berth__control__v1__resolve_session_response__descriptor, WAIT_MS, NULL,
                       &err);
    ck_assert_msg(reason && err.code == BERTH_UNAVAILABLE, "%s: %s", berth_reason_name(reason),
                  err.text);
    tells_no_address(&err);
    /* One second is promised; two for a machine that is busy with other tests. */
    ck_assert_int_lt(berth_tick_ms() - tick, 2000);
}

static void resolves_again(const char *session, const char *box)
{
    int64_t end_tick = berth_tick_ms() + WAIT_MS;
    Resolved *resolved = NULL;

    while (town_resolve(&town, 0, "t1", session, NULL, NULL, &resolved))
        ck_assert_int_lt(berth_tick_ms(), end_tick);
    if (box)
        ck_assert_str_eq(resolved->session->sandbox->sandbox_id, box);
    berth_message_free(resolved);
}

/* The adapter is away: what needs it fails at once, what does not goes on, nothing is lost. */
START_TEST(adapter__away__unavailable_then_well)
{
    (void)town_box(&town, "s1", NULL);
    fake_stop(town.fake);
    unavailable("s2");
    ck_assert_str_eq(town_box(&town, "s1", NULL), "box-1"); /* seen a moment ago */
    ck_assert_int_eq(town_act(&town, "Pause", "t1", "s1"), BERTH_REASON_ADAPTER_UNAVAILABLE);
    ck_assert_int_eq(town_act(&town, "Delete", "t1", "s2"), BERTH_REASON_ADAPTER_UNAVAILABLE);
    fake_start(town.fake);
    resolves_again("s1", "box-1");
    ck_assert_int_eq(town_act(&town, "Delete", "t1", "s2"), BERTH_REASON_NONE);
    ck_assert_uint_eq(fake_alive(town.fake), 1);
}
END_TEST

/* Many failed creates leave no heap of intents behind. */
START_TEST(adapter__away_for_long__no_intents_pile_up)
{
    fake_stop(town.fake);
    for (int i = 0; i < 80; i++)
        unavailable("s1");
    fake_start(town.fake);
    resolves_again("s1", NULL);
    ck_assert_uint_eq(fake_alive(town.fake), 1);
}
END_TEST

/* A token that nobody has asked for yet: it cannot be looked up. */
static void token_unavailable(const char *secret)
{
    Berth__Control__V1__GetTenantRequest req = BERTH__CONTROL__V1__GET_TENANT_REQUEST__INIT;
    struct berth_error err;

    req.tenant_id = (char *)"t1";
    ck_assert_int_eq(
        town_call_as(town.outside, secret, "/berth.control.v1.TenantService/GetTenant", &req,
                     &berth__control__v1__get_tenant_response__descriptor, WAIT_MS, NULL, &err),
        BERTH_REASON_STORE_UNAVAILABLE);
    tells_no_address(&err);
}

/* Redis is away, or hangs: UNAVAILABLE within a second, nothing torn down, well again; and
 * nobody is told where it is. */
START_TEST(redis__away__unavailable_then_well)
{
    char secret[64];

    (void)town_box(&town, "s1", NULL);
    town_tenant_token(&town, "t1", BERTH__CONTROL__V1__SCOPE__SCOPE_READ, secret);
    if (_i == 0)
        redis_server_kill(&town.redis);
    else
        redis_server_pause(&town.redis);
    unavailable("s1");
    unavailable("s2");
    token_unavailable(secret);
    ck_assert_int_ne(town_act(&town, "Pause", "t1", "s1"), BERTH_REASON_NONE);
    if (_i == 0)
        redis_server_again(&town.redis);
    else
        redis_server_resume(&town.redis);
    /* (A new one has to wait: another server than before means quarantine.) */
    resolves_again("s1", "box-1");
    ck_assert_uint_eq(fake_count(town.fake, FAKE_DELETE), 0);
    ck_assert_uint_eq(fake_alive(town.fake), 1);
}
END_TEST

/* Binding is away: the same. */
START_TEST(binding__away__unavailable_then_well)
{
    (void)town_box(&town, "s1", NULL);
    process_kill(&town.binding);
    unavailable("s1");
    process_start(&town.binding);
    resolves_again("s1", "box-1");
}
END_TEST

/* The index is not whole: nothing is created, and a tenant that cannot be found is not denied.
 */
START_TEST(epoch__missing__nothing_created)
{
    town_lose_epoch(&town);
    unavailable("s1");
    ck_assert_uint_eq(fake_count(town.fake, FAKE_CREATE), 0);
    ck_assert_int_eq(town_act(&town, "Delete", "t9", "s1"), BERTH_REASON_INDEX_RECOVERING);
    berth_reply_free(redis_run(town.store, "SET", "berth:epoch", "1", NULL));
    resolves_again("s1", NULL);
}
END_TEST

/* A sandbox that the backend has lost, paused or killed by itself is found out by the look that
 * is due, and never handed out. */
START_TEST(verify__sandbox_changed_at_the_backend__seen)
{
    int outcome;

    (void)town_box(&town, "s1", NULL);
    fake_set_state(town.fake, "box-1", BERTH__COMMON__V1__SANDBOX_STATE__SANDBOX_STATE_PAUSED);
    ck_assert_str_eq(town_box(&town, "s1", &outcome), "box-1");
    ck_assert_int_eq(outcome, OUTCOME(RESUMED));
    fake_kill(town.fake, "box-1");
    ck_assert_str_eq(town_box(&town, "s1", &outcome), "box-2");
    ck_assert_int_eq(outcome, OUTCOME(REPLACED));
    fake_set_state(town.fake, "box-2", BERTH__COMMON__V1__SANDBOX_STATE__SANDBOX_STATE_UNKNOWN);
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "s1", NULL, NULL, NULL),
                     BERTH_REASON_SANDBOX_TRANSITIONING);
    ck_assert_uint_eq(fake_alive(town.fake), 1);
    ck_assert_uint_eq(fake_count(town.fake, FAKE_DELETE), 0);
}
END_TEST

/* A 404 that is not our adapter's word about this sandbox frees nothing. */
START_TEST(verify__foreign_not_found__frees_nothing)
{
    (void)town_box(&town, "s1", NULL);
    fake_script(town.fake, FAKE_GET, FAKE_REFUSE, BERTH_REASON_CONFIG_NOT_FOUND, 4);
    ck_assert_int_ne(town_resolve(&town, 0, "t1", "s1", NULL, NULL, NULL), BERTH_REASON_NONE);
    fake_script(town.fake, FAKE_GET, FAKE_OBEY, 0, 0);
    ck_assert_str_eq(town_box(&town, "s1", NULL), "box-1");
    ck_assert_uint_eq(fake_count(town.fake, FAKE_CREATE), 1);
}
END_TEST

/* ----------------------------------------------------------------------- race */

enum { THREADS = 50, CALLS = 20 };

struct racer {
    pthread_t thread;
    unsigned plane;
    unsigned created, failed, other;
    const char *session;
};

static void *race(void *arg)
{
    struct racer *racer = arg;

    for (int i = 0; i < CALLS; i++) {
        Resolved *resolved = NULL;

        if (town_resolve(&town, racer->plane, "t1", racer->session, NULL, NULL, &resolved)) {
            racer->failed++;
            continue;
        }
        racer->created += resolved->outcome == OUTCOME(CREATED);
        racer->other += strcmp(resolved->session->sandbox->sandbox_id, "box-1") != 0;
        berth_message_free(resolved);
    }
    return NULL;
}

/* Two control planes resolve one new session 1,000 times at once: one sandbox, one create. */
START_TEST(resolve__thousand_at_once__one_sandbox)
{
    static struct racer racers[THREADS];
    unsigned created = 0, failed = 0, other = 0;

    for (unsigned i = 0; i < THREADS; i++) {
        racers[i] = (struct racer){.plane = i % 2, .session = "raced"};
        ck_assert_int_eq(pthread_create(&racers[i].thread, NULL, race, &racers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(racers[i].thread, NULL);
        created += racers[i].created;
        failed += racers[i].failed;
        other += racers[i].other;
    }
    ck_assert_uint_eq(failed, 0);
    ck_assert_uint_eq(other, 0);
    ck_assert_uint_eq(created, 1);
    ck_assert_uint_eq(fake_alive(town.fake), 1);
    ck_assert_uint_eq(fake_count(town.fake, FAKE_CREATE), 1);
}
END_TEST

/* A backend that answers nothing holds at most 16 calls; everything else goes on. */
START_TEST(backend__hangs__others_served)
{
    enum { MANY = 60 };
    static struct beside calls[MANY];
    char name[16];
    int64_t tick;

    (void)town_box(&town, "warm", NULL);
    fake_script(town.fake, FAKE_CREATE, FAKE_HOLD, 0, MANY);
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "s%d", i);
        beside_start(&calls[i], &town, 0, "Resolve", name);
    }
    fake_wait_held(town.fake, 16);
    tick = berth_tick_ms();
    for (int i = 0; i < 20; i++) {
        Session *session = NULL;

        (void)town_box(&town, "warm", NULL);
        ck_assert_int_eq(town_get(&town, "t1", "warm", false, &session), BERTH_REASON_NONE);
        berth_message_free(session);
    }
    ck_assert_int_lt(berth_tick_ms() - tick, 5000);
    ck_assert_uint_eq(fake_count(town.fake, FAKE_CREATE), 1 + 16);
    for (int i = 0; i < MANY; i++) { /* whoever comes next is not held */
        fake_script(town.fake, FAKE_CREATE, FAKE_OBEY, 0, 0);
        fake_release(town.fake);
    }
    for (int i = 0; i < MANY; i++)
        ck_assert_int_eq(beside_join(&calls[i]), BERTH_REASON_NONE);
    ck_assert_uint_eq(fake_alive(town.fake), 1 + MANY);
}
END_TEST

/* Whatever a replica's own clock says, its calls end by the store's, as the lock does. */
START_TEST(create__own_clock_eight_hours_late__ends_by_the_stores)
{
    int64_t late_ms, create_ms = 0;

    (void)town_box(&town, "s1", NULL);
    for (size_t i = 0; i < town.fake->n_calls; i++)
        if (town.fake->calls[i].method == FAKE_CREATE)
            create_ms = town.fake->calls[i].not_after_ms;
    late_ms = create_ms - berth_now_ms();
    ck_assert_int_gt(late_ms, 7 * HOUR_MS);
    ck_assert_int_lt(late_ms, 9 * HOUR_MS);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("controlplane/faults");
    TCase *all = tcase_create("all"), *verifying = tcase_create("verifying");
    TCase *late = tcase_create("late");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(all, open_town, close_town);
    tcase_set_timeout(all, 90);
    tcase_add_test(all, adapter__away__unavailable_then_well);
    tcase_add_test(all, adapter__away_for_long__no_intents_pile_up);
    tcase_add_loop_test(all, redis__away__unavailable_then_well, 0, 2);
    tcase_add_test(all, binding__away__unavailable_then_well);
    tcase_add_test(all, epoch__missing__nothing_created);
    tcase_add_test(all, resolve__thousand_at_once__one_sandbox);
    tcase_add_test(all, backend__hangs__others_served);
    suite_add_tcase(suite, all);
    tcase_add_checked_fixture(verifying, open_verifying, close_town);
    tcase_set_timeout(verifying, 60);
    tcase_add_test(verifying, verify__sandbox_changed_at_the_backend__seen);
    tcase_add_test(verifying, verify__foreign_not_found__frees_nothing);
    suite_add_tcase(suite, verifying);
    tcase_add_checked_fixture(late, open_late, close_town);
    tcase_set_timeout(late, 60);
    tcase_add_test(late, create__own_clock_eight_hours_late__ends_by_the_stores);
    suite_add_tcase(suite, late);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
