/* test_replicas.c - Redis with replicas: nothing is promised that no replica has, and what a
 * failover has forgotten does not tear anything down. */
#include <stdio.h>

#include "common/time/time.h"
#include "tests/component/binding/house.h"

static struct house house;

static enum berth_reason turn_call(int replica, const char *path,
                                   const ProtobufCMessageDescriptor *type, const char *session,
                                   const char *token)
{
    /* RenewTurn and EndTurn have the same fields. */
    Berth__Binding__V1__RenewTurnRequest renew = BERTH__BINDING__V1__RENEW_TURN_REQUEST__INIT;
    Berth__Binding__V1__EndTurnRequest end = BERTH__BINDING__V1__END_TURN_REQUEST__INIT;
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    bool ends = strstr(path, "EndTurn") != NULL;

    ref.tenant_id = (char *)"t1";
    ref.session_id = (char *)session;
    renew.session = end.session = &ref;
    renew.turn_token = end.turn_token = (char *)token;
    return house_call(&house, replica, path, ends ? &end.base : &renew.base, type, 0, NULL);
}

static enum berth_reason renew_turn(int replica, const char *session, const char *token)
{
    return turn_call(replica, METHOD("RenewTurn"),
                     &berth__binding__v1__renew_turn_response__descriptor, session, token);
}

static enum berth_reason end_turn(int replica, const char *session, const char *token)
{
    return turn_call(replica, METHOD("EndTurn"),
                     &berth__binding__v1__end_turn_response__descriptor, session, token);
}

static enum berth_reason confirm_carry(const char *session, const char *blob_id)
{
    Berth__Binding__V1__ForgetCarryRequest req = BERTH__BINDING__V1__FORGET_CARRY_REQUEST__INIT;
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;

    ref.tenant_id = (char *)"t1";
    ref.session_id = (char *)session;
    req.session = &ref;
    req.blob_id = (char *)blob_id;
    req.confirm = true;
    return house_call(&house, 0, METHOD("ForgetCarry"), &req.base,
                      &berth__binding__v1__forget_carry_response__descriptor, 0, NULL);
}

static struct grant acquire(const char *session, unsigned attempt)
{
    return house_acquire(&house, 0, (struct want){session, .attempt = attempt});
}

/* A lock on a session with a sandbox. */
static struct grant verify(const char *session, const char *box, unsigned attempt)
{
    return house_acquire(&house, 0, (struct want){session, .attempt = attempt, .failed = box});
}

static struct grant acquire_for(int kind, const char *session, unsigned attempt)
{
    return house_acquire(&house, 0, (struct want){session, .kind = kind, .attempt = attempt});
}

/* --------------------------------------------------------------- not confirmed */

/* The replica stops: whatever a side effect would follow from is not granted, but it may be
 * asked for again, and is there once the replica is; what protects and renews goes on. */
START_TEST(replica__stopped__not_confirmed_is_not_granted)
{
    struct redis_server replica;
    char port[16], token[160], other[160];
    const char *extra[] = {"--replicaof", "127.0.0.1", port, "--repl-diskless-sync-delay",
                           "0",           NULL};
    struct grant made, kept, got;

    house_open(&house, &(struct house_options){
                           .redis = {.tcp = true}, .wait_replicas = 1, .command_ms = 600});
    house_ask(&house, "CONFIG", "SET", "repl-diskless-sync-delay", "0", NULL);
    snprintf(port, sizeof port, "%d", house.server.port);
    redis_server_start(&replica, &(struct redis_server_options){.extra = extra});
    await(acquire("made", 1).reason == BERTH_REASON_NONE);
    made = acquire("made", 1);
    kept = acquire("kept", 1);
    ck_reason(kept.reason, "");
    for (int i = 0; i < 2; i++) {
        static const char *const names[] = {"s", "going"};

        got = acquire(names[i], 1);
        ck_reason(house_bind(&house, 0, names[i], &got, names[i]), "");
    }
    ck_reason(house_begin(&house, 0, "s", "before", token), "");
    ck_assert_str_eq(
        house_acquire(&house, 0, (struct want){"s", .attempt = 7, .turn_token = token}).bound,
        "s");

    /* A workspace that was carried into s: the tar may go once that is confirmed. */
    house_ask(&house, "HSET", "berth:{t1}:s/s", "carry",
              "{\"blob_id\":\"b\",\"sandbox_id\":\"old\",\"into\":\"s\",\"cause\":\"rebuilt\"}",
              NULL);
    ck_reason(confirm_carry("s", "another"), "CONFLICT");
    ck_reason(confirm_carry("s", "b"), "");

    redis_server_pause(&replica);
    ck_reason(acquire("new", 1).reason, "OUTCOME_UNKNOWN");
    ck_reason(confirm_carry("s", "b"), "OUTCOME_UNKNOWN");
    ck_reason(house_bind(&house, 0, "made", &made, "box"), "OUTCOME_UNKNOWN");
    ck_reason(house_begin(&house, 0, "s", "t", other), "OUTCOME_UNKNOWN");
    ck_reason(acquire_for(BINDING_WANT_DELETE, "going", 9).reason, "OUTCOME_UNKNOWN");
    ck_assert_str_eq(
        house_acquire(&house, 1, (struct want){"s", .attempt = 8, .turn_token = token}).bound,
        "s");
    ck_reason(renew_turn(0, "s", token), "");
    ck_reason(house_renew_lock(&house, 0, "kept", &kept, NULL), "");

    redis_server_resume(&replica);
    await((got = acquire("new", 1)).reason == BERTH_REASON_NONE);
    ck_assert_int_eq(got.decision, BINDING_ADOPT_OR_CREATE);
    ck_reason(house_bind(&house, 0, "made", &made, "box"), "");
    ck_reason(house_begin(&house, 0, "s", "t", other), "");
    ck_assert_int_eq(acquire_for(BINDING_WANT_DELETE, "going", 9).decision, BINDING_DELETE);
    redis_server_stop(&replica);
    house_close(&house);
}
END_TEST

/* ------------------------------------------------------------------- a failover */

struct set {
    struct redis_server replica;
    struct redis_sentinel sentinel;
    char url[64], port[16];
    const char *extra[6];
};

static void open_set(struct set *set)
{
    struct redis_server master;

    redis_server_start(&master, &(struct redis_server_options){.tcp = true});
    redis_sentinel_start(&set->sentinel, &master, NULL, 0);
    snprintf(set->url, sizeof set->url, "sentinel:m@127.0.0.1:%d", set->sentinel.port);
    snprintf(set->port, sizeof set->port, "%d", master.port);
    memcpy(set->extra,
           (const char *[]){"--replicaof", "127.0.0.1", set->port, "--repl-diskless-sync-delay",
                            "0", NULL},
           sizeof set->extra);
    house_open(&house, &(struct house_options){.outside = &master,
                                               .url = set->url,
                                               .quarantine_ms = 2500,
                                               .command_ms = 800});
    house_ask(&house, "CONFIG", "SET", "repl-diskless-sync-delay", "0", NULL);
    redis_server_start(&set->replica,
                       &(struct redis_server_options){.tcp = true, .extra = set->extra});
}

/* All that was written so far is at the replica. */
static void sync_replica(void)
{
    int64_t until_tick = berth_tick_ms() + WAIT_MS;

    do {
        ck_assert_int_lt(berth_tick_ms(), until_tick);
        house_ask(&house, "SET", "berth:synced", "1", NULL);
    } while (strcmp(house_ask(&house, "WAIT", "1", "300", NULL), "1") != 0);
}

/* From here on the replica hears nothing of the master. */
static void cut_off(const struct set *set)
{
    BERTH_AUTO(berth_redis_free)
    struct berth_redis *client =
        redis_server_client(&set->replica, &(struct berth_redis_options){.any_role = true});

    berth_reply_free(redis_run(client, "REPLICAOF", "NO", "ONE", NULL));
}

static void close_set(struct set *set)
{
    house_close(&house);
    redis_sentinel_stop(&set->sentinel);
    redis_server_stop(&set->replica);
}

/* The last writes are forgotten: a turn, a lock, a delete, a create. Who held them goes on;
 * what is bound is used; nothing new is made and nothing torn down until the quarantine is
 * over. */
START_TEST(failover__last_writes_forgotten__holders_and_turns_go_on)
{
    static const char *const names[] = {"s", "locked", "paused", "going"};
    struct grant locked, created;
    struct set set;
    char token[160];

    open_set(&set);
    for (size_t i = 0; i < BERTH_COUNT(names); i++)
        house_make(&house, names[i], names[i]);
    sync_replica();
    cut_off(&set);
    ck_reason(house_begin(&house, 0, "s", "t", token), "");
    locked = verify("locked", "locked", 5);
    ck_assert_int_eq(locked.decision, BINDING_VERIFY);
    created = acquire("new", 1);
    ck_assert_int_eq(created.decision, BINDING_ADOPT_OR_CREATE);
    redis_server_kill(&house.server);
    redis_sentinel_move(&set.sentinel, &set.replica, NULL);

    /* The service of the other replica has not spoken to the store before: it is as one that
     * has just started, and learns of the failover all the same. */
    await(renew_turn(1, "s", token) == BERTH_REASON_NONE);
    await(house_renew_lock(&house, 0, "locked", &locked, NULL) == BERTH_REASON_NONE);
    ck_assert_str_eq(acquire("s", 6).bound, "s");
    ck_assert(house_acquire(&house, 1, (struct want){"s", .attempt = 7, .turn_token = token})
                  .protected);
    ck_reason(house_bind(&house, 0, "locked", &locked, "locked"), "");
    ck_reason(acquire("fresh", 8).reason, "QUARANTINE");
    ck_reason(house_acquire(&house, 1, (struct want){"fresh", .attempt = 8}).reason,
              "QUARANTINE");
    /* Its record is gone with it: nothing to hold on to. */
    ck_reason(house_renew_lock(&house, 0, "new", &created, NULL), "LOCK_LOST");
    ck_assert_int_eq(acquire_for(BINDING_WANT_PAUSE, "paused", 9).decision, BINDING_PAUSE);
    ck_assert_int_eq(acquire_for(BINDING_WANT_DELETE, "going", 10).decision, BINDING_DELETE);

    await(acquire("fresh", 8).decision == BINDING_ADOPT_OR_CREATE);
    /* The turn that was taken up again counts as any other. */
    ck_reason(end_turn(0, "s", token), "");
    ck_reason(renew_turn(0, "s", token), "TURN_EXPIRED");
    close_set(&set);
}
END_TEST

/* ----------------------------------------------------------------- a full store */

/* At its memory limit the store loses no lock: what began goes on to its end, what is new is
 * refused with a reason that names the memory. */
START_TEST(store__full__nothing_new_and_no_lock_lost)
{
    struct grant holder, held, going;
    char token[160], other[160];

    house_open(&house, NULL);
    house_make(&house, "s", "sb");
    house_make(&house, "going", "g");
    ck_reason(house_begin(&house, 0, "s", "t", token), "");
    holder = acquire("new", 1);
    held = acquire("held", 1);
    house_ask(&house, "CONFIG", "SET", "maxmemory", "1", NULL);

    ck_reason(acquire("another", 1).reason, "STORE_UNAVAILABLE");
    ck_reason(house_begin(&house, 0, "s", "u", other), "STORE_UNAVAILABLE");
    ck_assert_str_eq(acquire("s", 2).bound, "sb");
    ck_reason(house_renew_lock(&house, 0, "new", &holder, NULL), "");
    ck_reason(renew_turn(0, "s", token), "");
    ck_reason(house_bind(&house, 0, "new", &holder, "box"), "");
    ck_reason(house_abort(&house, 0, "held", &held), "");
    ck_reason(end_turn(0, "s", token), "");
    going = acquire_for(BINDING_WANT_DELETE, "going", 3);
    ck_assert_int_eq(going.decision, BINDING_DELETE);
    ck_reason(house_gone(&house, 0, "going", &going, "g", true), "");
    ck_reason(house_tombstone(&house, 0, "going", &going), "");

    house_ask(&house, "CONFIG", "SET", "maxmemory", "0", NULL);
    ck_assert_int_eq(acquire("another", 1).decision, BINDING_ADOPT_OR_CREATE);
    house_close(&house);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("binding/replicas");
    TCase *tc = tcase_create("replicas");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, replica__stopped__not_confirmed_is_not_granted);
    tcase_add_test(tc, failover__last_writes_forgotten__holders_and_turns_go_on);
    tcase_add_test(tc, store__full__nothing_new_and_no_lock_lost);
    suite_add_tcase(suite, tc);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
