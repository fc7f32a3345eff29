/* test_quotas.c - what a tenant may have is not gone over, whoever asks at once. */
#include <stdio.h>

#include "tests/component/controlplane/town.h"

enum { LIMIT = 3, RACERS = 8 };

static struct town town;

static void open_town(void)
{
    town_open(&town, &(struct town_options){.planes = 2, .skills = true});
}

static void close_town(void)
{
    town_close(&town);
}

static void limit(uint32_t sessions, uint32_t snapshots)
{
    Berth__Control__V1__UpdateTenantRequest req =
        BERTH__CONTROL__V1__UPDATE_TENANT_REQUEST__INIT;
    Berth__Control__V1__Tenant tenant = BERTH__CONTROL__V1__TENANT__INIT;
    Berth__Control__V1__Quotas quotas = BERTH__CONTROL__V1__QUOTAS__INIT;
    Google__Protobuf__FieldMask mask = GOOGLE__PROTOBUF__FIELD_MASK__INIT;
    char *paths[] = {(char *)"quotas"};

    mask.paths = paths;
    mask.n_paths = BERTH_COUNT(paths);
    req.update_mask = &mask;
    quotas.sessions = sessions;
    quotas.snapshots = snapshots;
    tenant.tenant_id = (char *)"t1";
    tenant.quotas = &quotas;
    req.tenant = &tenant;
    ck_assert_int_eq(town_call(town.control[0], "/berth.control.v1.TenantService/UpdateTenant",
                               &req, &berth__control__v1__update_tenant_response__descriptor,
                               WAIT_MS, NULL, NULL),
                     BERTH_REASON_NONE);
}

/* Sessions, at two control planes at once; a deleted one makes room, the other tenant is not
 * concerned, and what is there is used as before. */
START_TEST(sessions__raced__never_more_than_the_limit)
{
    struct beside calls[RACERS];
    char name[32], made[32] = "";
    enum berth_reason reason;
    int64_t deadline;
    unsigned n = 0;

    limit(LIMIT, 0);
    for (unsigned i = 0; i < RACERS; i++) {
        snprintf(name, sizeof name, "s%u", i);
        beside_start(&calls[i], &town, i % 2, "Resolve", name);
    }
    for (unsigned i = 0; i < RACERS; i++) {
        reason = beside_join(&calls[i]);
        if (reason == BERTH_REASON_NONE) {
            n++;
            snprintf(made, sizeof made, "s%u", i);
            continue;
        }
        ck_assert_int_eq(reason, BERTH_REASON_QUOTA_EXCEEDED);
        ck_assert_str_eq(calls[i].err.text, "sessions: the tenant may have 3, and has 3");
    }
    ck_assert_uint_eq(n, LIMIT);
    ck_assert_uint_eq(fake_alive(town.fake), LIMIT);
    ck_assert_int_eq(town_resolve(&town, 1, "t1", made, NULL, NULL, NULL), BERTH_REASON_NONE);
    ck_assert_int_eq(town_resolve(&town, 1, "t2", "s1", NULL, NULL, NULL), BERTH_REASON_NONE);
    ck_assert_int_eq(town_resolve(&town, 1, "t1", "more", NULL, NULL, NULL),
                     BERTH_REASON_QUOTA_EXCEEDED);
    ck_assert_int_eq(town_act(&town, "Delete", "t1", made), BERTH_REASON_NONE);
    ck_assert_int_eq(town_resolve(&town, 1, "t1", "more", NULL, NULL, NULL), BERTH_REASON_NONE);
    limit(0, 0);
    /* The other control plane hears of the change a moment later. */
    for (deadline = berth_tick_ms() + WAIT_MS;
         (reason = town_resolve(&town, 1, "t1", "most", NULL, NULL, NULL)) ==
             BERTH_REASON_QUOTA_EXCEEDED &&
         berth_tick_ms() < deadline;)
        ;
    ck_assert_int_eq(reason, BERTH_REASON_NONE);
}
END_TEST

static enum berth_reason snapshot(const char *session, char ret_id[129],
                                  struct berth_error *ret_err)
{
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    Berth__Skills__V1__CreateSnapshotRequest req =
        BERTH__SKILLS__V1__CREATE_SNAPSHOT_REQUEST__INIT;
    Berth__Skills__V1__CreateSnapshotResponse *resp = NULL;
    enum berth_reason reason;

    ref.tenant_id = (char *)"t1";
    ref.session_id = (char *)session;
    req.session = &ref;
    reason = town_call(town.snap, "/berth.skills.v1.SnapshotService/CreateSnapshot", &req,
                       &berth__skills__v1__create_snapshot_response__descriptor, WAIT_MS, &resp,
                       ret_err);
    if (!reason && ret_id)
        snprintf(ret_id, 129, "%s", resp->snapshot->snapshot_id);
    berth_message_free(resp);
    return reason;
}

struct racer {
    pthread_t thread;
    enum berth_reason reason;
    struct berth_error err;
};

static void *race(void *arg)
{
    struct racer *racer = arg;

    racer->reason = snapshot("s1", NULL, &racer->err);
    return NULL;
}

/* Snapshots: those that are being made count, those that could not be made do not. */
START_TEST(snapshots__raced__never_more_than_the_limit)
{
    Berth__Skills__V1__DeleteSnapshotRequest del =
        BERTH__SKILLS__V1__DELETE_SNAPSHOT_REQUEST__INIT;
    struct racer racers[RACERS];
    unsigned n = 0;
    char id[129];

    (void)town_box(&town, "s1", NULL);
    limit(0, LIMIT);
    fake_script(town.fake, FAKE_SNAPSHOT, FAKE_REFUSE, BERTH_REASON_DISK_FULL, 1);
    ck_assert_int_eq(snapshot("s1", NULL, NULL), BERTH_REASON_DISK_FULL);
    ck_assert_int_eq(snapshot("s1", id, NULL), BERTH_REASON_NONE);
    for (unsigned i = 0; i < RACERS; i++)
        ck_assert_int_eq(pthread_create(&racers[i].thread, NULL, race, &racers[i]), 0);
    for (unsigned i = 0; i < RACERS; i++) {
        pthread_join(racers[i].thread, NULL);
        n += racers[i].reason == BERTH_REASON_NONE;
        if (racers[i].reason != BERTH_REASON_NONE) {
            ck_assert_int_eq(racers[i].reason, BERTH_REASON_QUOTA_EXCEEDED);
            ck_assert_int_eq(
                strncmp(racers[i].err.text, "snapshots: the tenant may have 3", 32), 0);
        }
    }
    ck_assert_uint_eq(n, LIMIT - 1);
    ck_assert_uint_eq(fake_snapshots_alive(town.fake), LIMIT);
    del.tenant_id = (char *)"t1";
    del.snapshot_id = id;
    ck_assert_int_eq(town_call(town.snap, "/berth.skills.v1.SnapshotService/DeleteSnapshot",
                               &del, &berth__skills__v1__delete_snapshot_response__descriptor,
                               WAIT_MS, NULL, NULL),
                     BERTH_REASON_NONE);
    ck_assert_int_eq(snapshot("s1", NULL, NULL), BERTH_REASON_NONE);
    ck_assert_int_eq(snapshot("s1", NULL, NULL), BERTH_REASON_QUOTA_EXCEEDED);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("controlplane/quotas");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(all, open_town, close_town);
    tcase_set_timeout(all, 60);
    tcase_add_test(all, sessions__raced__never_more_than_the_limit);
    tcase_add_test(all, snapshots__raced__never_more_than_the_limit);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
