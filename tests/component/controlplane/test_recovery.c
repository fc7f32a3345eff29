/* The index is lost: the control plane binds what it finds, and nothing else happens meanwhile.
 */
#include <stdio.h>

#include "tests/component/controlplane/town.h"

#define OUTCOME(name) BERTH__CONTROL__V1__RESOLVE_OUTCOME__RESOLVE_OUTCOME_##name
#define STATE(name) BERTH__COMMON__V1__SANDBOX_STATE__SANDBOX_STATE_##name

static struct town town;

static void open_town(void)
{
    const struct town_options options = {.planes = 2};

    town_open(&town, &options);
}

/* Neither keyed nor fenced, and with a horizon that is longer than the recovery takes. */
enum { HORIZON_MS = 4000, LEASE_MS = 1000 };

static void open_unfenced(void)
{
    const struct town_options options = {
        .not_keyed = true, .lock_lease = "1s", .create_horizon_ms = HORIZON_MS};

    town_open(&town, &options);
}

static void close_town(void)
{
    town_close(&town);
}

static void lose(void)
{
    berth_reply_free(redis_run(town.store, "FLUSHALL", NULL));
}

static bool has(const char *command, const char *key)
{
    struct berth_reply *reply = redis_run(town.store, command, key, NULL);
    bool there = reply->type == BERTH_REPLY_STRING || reply->n_items > 0;

    berth_reply_free(reply);
    return there;
}

static void wait_until(bool there, const char *command, const char *key)
{
    int64_t end_tick = berth_tick_ms() + WAIT_MS;

    while (has(command, key) != there) {
        ck_assert_msg(berth_tick_ms() < end_tick, "%s %s", command, key);
        usleep(2000);
    }
}

static enum berth_reason try_resolve(const char *session, char box[32], int *ret_outcome)
{
    Resolved *resolved = NULL;
    enum berth_reason reason = town_resolve(&town, 0, "t1", session, NULL, NULL, &resolved);

    if (reason)
        return reason;
    snprintf(box, 32, "%s", resolved->session->sandbox->sandbox_id);
    *ret_outcome = (int)resolved->outcome;
    berth_message_free(resolved);
    return BERTH_REASON_NONE;
}

static enum berth_reason list(size_t *ret_n)
{
    Berth__Control__V1__ListSessionsRequest req =
        BERTH__CONTROL__V1__LIST_SESSIONS_REQUEST__INIT;
    Berth__Control__V1__ListSessionsResponse *resp = NULL;
    enum berth_reason reason;

    req.tenant_id = (char *)"t1";
    reason = town_call(town.control[0], "/berth.control.v1.SessionService/ListSessions", &req,
                       &berth__control__v1__list_sessions_response__descriptor, WAIT_MS, &resp,
                       NULL);
    *ret_n = resp ? resp->n_sessions : 0;
    berth_message_free(resp);
    return reason;
}

/* Every sandbox is bound to its session again, under a higher fence and with its age; what
 * sleeps is not woken; nothing is created or deleted. */
START_TEST(recovery__index_lost__all_adopted_as_they_were)
{
    char boxes[5][32], box[32], session[8], token[48];
    uint64_t fence;
    int outcome;

    for (int i = 0; i < 5; i++) {
        snprintf(session, sizeof session, "s%d", i);
        snprintf(boxes[i], sizeof boxes[i], "%s", town_box(&town, session, NULL));
    }
    ck_assert_int_eq(town_act(&town, "Pause", "t1", "s4"), BERTH_REASON_NONE);
    fence = fake_find(town.fake, boxes[0])->fence;
    fake_forget_calls(town.fake);
    lose();
    wait_until(true, "GET", "berth:epoch");
    /* What the backend told at create, and never again, came from the journal. */
    snprintf(token, sizeof token, "traffic-%s", boxes[3]);
    ck_assert_str_eq(town.fake->last_token, token);
    for (int i = 0; i < 4; i++) {
        snprintf(session, sizeof session, "s%d", i);
        ck_assert_int_eq(try_resolve(session, box, &outcome), BERTH_REASON_NONE);
        ck_assert_str_eq(box, boxes[i]);
        ck_assert_int_eq(outcome, OUTCOME(USED));
    }
    ck_assert_uint_gt(fake_find(town.fake, boxes[0])->fence, fence);
    ck_assert_int_eq(fake_find(town.fake, boxes[4])->state, STATE(PAUSED));
    ck_assert_int_eq(try_resolve("s4", box, &outcome), BERTH_REASON_NONE);
    ck_assert_str_eq(box, boxes[4]);
    ck_assert_int_eq(outcome, OUTCOME(RESUMED));
    ck_assert_uint_eq(fake_count(town.fake, FAKE_CREATE), 0);
    ck_assert_uint_eq(fake_count(town.fake, FAKE_DELETE), 0);
    ck_assert_uint_eq(fake_count(town.fake, FAKE_PAUSE), 0);
}
END_TEST

/* While a journal is not read back nothing is adopted, made or denied, and no list is given as
 * if it were the truth, known as the tenant is; then all goes on. */
START_TEST(recovery__journal_missing__nothing_is_made)
{
    char box[32];
    int outcome;
    size_t n;

    (void)town_box(&town, "s1", NULL);
    ck_assert_int_eq(list(&n), BERTH_REASON_NONE);
    ck_assert_uint_eq(n, 1);
    fake_forget_calls(town.fake);
    process_kill(&town.planes[1]); /* its journal is known to the other's by now, or will be */
    berth_reply_free(redis_run(town.store, "FLUSHALL", NULL));
    berth_reply_free(redis_run(town.store, "HSET", "berth:recovery", "writer:away", "x", NULL));
    ck_assert_int_eq(list(&n), BERTH_REASON_INDEX_RECOVERING);
    wait_until(true, "HGETALL", "berth:{t1}:t");
    for (int i = 0; i < 20; i++) {
        ck_assert_int_eq(list(&n), BERTH_REASON_INDEX_RECOVERING);
        ck_assert_int_eq(try_resolve("s1", box, &outcome), BERTH_REASON_INDEX_RECOVERING);
        ck_assert_int_eq(try_resolve("new", box, &outcome), BERTH_REASON_INDEX_RECOVERING);
        usleep(20000);
    }
    ck_assert_uint_eq(fake_count(town.fake, FAKE_CREATE), 0);
    ck_assert(!has("GET", "berth:epoch"));
    process_start(&town.planes[1]);
    berth_reply_free(
        redis_run(town.store, "HSET", "berth:recovery", "restored:away", "x", NULL));
    wait_until(true, "GET", "berth:epoch");
    ck_assert_int_eq(try_resolve("s1", box, &outcome), BERTH_REASON_NONE);
    ck_assert_str_eq(box, "box-1");
}
END_TEST

/* A list that is not whole recovers nothing: who has no record waits for it, and no longer. */
START_TEST(recovery__config_not_listed__its_tenant_waits)
{
    char box[32];
    int outcome;

    (void)town_box(&town, "s1", NULL);
    pthread_mutex_lock(&town.fake->mutex);
    town.fake->incomplete = true;
    pthread_mutex_unlock(&town.fake->mutex);
    fake_forget_calls(town.fake);
    lose();
    wait_until(true, "GET", "berth:epoch");
    ck_assert(has("SMEMBERS", "berth:recovery:unlisted"));
    ck_assert_int_eq(try_resolve("s1", box, &outcome), BERTH_REASON_INDEX_RECOVERING);
    ck_assert_int_eq(try_resolve("new", box, &outcome), BERTH_REASON_INDEX_RECOVERING);
    ck_assert_int_eq(town_get(&town, "t1", "s1", false, NULL), BERTH_REASON_INDEX_RECOVERING);
    ck_assert_uint_eq(fake_count(town.fake, FAKE_CREATE), 0);
    pthread_mutex_lock(&town.fake->mutex);
    town.fake->incomplete = false;
    pthread_mutex_unlock(&town.fake->mutex);
    wait_until(false, "SMEMBERS", "berth:recovery:unlisted");
    ck_assert_int_eq(try_resolve("s1", box, &outcome), BERTH_REASON_NONE);
    ck_assert_str_eq(box, "box-1");
    ck_assert_str_eq(town_box(&town, "new", NULL), "box-2");
}
END_TEST

/* No fence refuses what was sent before the loss: nothing is adopted until it cannot take
 * effect any more. */
START_TEST(recovery__not_fenced__adopted_past_the_call_horizon)
{
    char box[32];
    int64_t lost_tick;
    int outcome;

    (void)town_box(&town, "s1", NULL);
    fake_forget_calls(town.fake);
    lost_tick = berth_tick_ms();
    lose();
    wait_until(true, "GET", "berth:epoch");
    ck_assert(has("SMEMBERS", "berth:recovery:unlisted"));
    ck_assert_int_eq(try_resolve("s1", box, &outcome), BERTH_REASON_INDEX_RECOVERING);
    wait_until(false, "SMEMBERS", "berth:recovery:unlisted");
    ck_assert_int_gt(berth_tick_ms() - lost_tick, LEASE_MS + HORIZON_MS);
    ck_assert_int_eq(try_resolve("s1", box, &outcome), BERTH_REASON_NONE);
    ck_assert_str_eq(box, "box-1");
    ck_assert_int_eq(outcome, OUTCOME(USED));
    ck_assert_uint_eq(fake_count(town.fake, FAKE_CREATE), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("controlplane/recovery");
    TCase *all = tcase_create("all"), *unfenced = tcase_create("unfenced");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(all, open_town, close_town);
    tcase_set_timeout(all, 90);
    tcase_add_test(all, recovery__index_lost__all_adopted_as_they_were);
    tcase_add_test(all, recovery__journal_missing__nothing_is_made);
    tcase_add_test(all, recovery__config_not_listed__its_tenant_waits);
    tcase_add_checked_fixture(unfenced, open_unfenced, close_town);
    tcase_set_timeout(unfenced, 90);
    tcase_add_test(unfenced, recovery__not_fenced__adopted_past_the_call_horizon);
    suite_add_tcase(suite, all);
    suite_add_tcase(suite, unfenced);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
