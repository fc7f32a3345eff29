/* test_snapshots.c - snapshots of sessions: the ledger, booting from one, who may, and what a
 * build that died leaves behind. */
#include <signal.h>
#include <stdio.h>

#include "common/records/config_doc.h"
#include "tests/component/controlplane/town.h"

#define SNAPSHOTS "/berth.skills.v1.SnapshotService/"
#define TYPE(name) (&berth__skills__v1__##name##__descriptor)

typedef Berth__Skills__V1__CreateSnapshotRequest CreateSnapshotRequest;
typedef Berth__Skills__V1__CreateSnapshotResponse CreateSnapshotResponse;

enum { SHORT_LEASE_MS = 1500 };

static struct town town;

static void open_impatient_town(void)
{
    town_open(&town, &(struct town_options){.skills = true, .build_lease = "1500ms"});
}

static void open_other_town(void)
{
    town_open(&town, &(struct town_options){.skills = true, .not_keyed = true});
}

static void open_town(void)
{
    town_open(&town, &(struct town_options){.skills = true});
}

static void close_town(void)
{
    town_close(&town);
}

/* Its id (static text); "" and the reason when it failed. */
static const char *snapshot(const char *tenant, const char *session, const char *request_id,
                            enum berth_reason *ret_reason)
{
    static char id[129];
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    CreateSnapshotRequest req = BERTH__SKILLS__V1__CREATE_SNAPSHOT_REQUEST__INIT;
    CreateSnapshotResponse *resp = NULL;
    enum berth_reason reason;

    ref.tenant_id = (char *)tenant;
    ref.session_id = (char *)session;
    req.session = &ref;
    req.request_id = (char *)request_id;
    req.display_name = (char *)"mine";
    reason = town_call(town.snap, SNAPSHOTS "CreateSnapshot", &req,
                       TYPE(create_snapshot_response), WAIT_MS, &resp, NULL);
    id[0] = 0;
    if (!reason) {
        ck_assert_int_eq(resp->snapshot->state,
                         BERTH__SKILLS__V1__LEDGER_STATE__LEDGER_STATE_ACTIVE);
        ck_assert_int_eq(strncmp(resp->snapshot->planned_name, "berth-us-", 9), 0);
        ck_assert_uint_lt(strlen(resp->snapshot->planned_name), 64);
        snprintf(id, sizeof id, "%s", resp->snapshot->snapshot_id);
    }
    berth_message_free(resp);
    if (ret_reason)
        *ret_reason = reason;
    else
        ck_assert_msg(!reason, "%s", berth_reason_name(reason));
    return id;
}

static enum berth_reason on_one(const char *verb, const char *tenant, const char *id)
{
    /* Get and Delete have the same two fields. */
    Berth__Skills__V1__GetSnapshotRequest req = BERTH__SKILLS__V1__GET_SNAPSHOT_REQUEST__INIT;
    char path[96];

    req.tenant_id = (char *)tenant;
    req.snapshot_id = (char *)id;
    snprintf(path, sizeof path, SNAPSHOTS "%sSnapshot", verb);
    return town_call(town.snap, path, &req, TYPE(get_snapshot_response), WAIT_MS, NULL, NULL);
}

static size_t count(const char *tenant)
{
    Berth__Skills__V1__ListSnapshotsRequest req =
        BERTH__SKILLS__V1__LIST_SNAPSHOTS_REQUEST__INIT;
    Berth__Skills__V1__ListSnapshotsResponse *resp = NULL;
    size_t n;

    req.tenant_id = (char *)tenant;
    ck_assert_int_eq(town_call(town.snap, SNAPSHOTS "ListSnapshots", &req,
                               TYPE(list_snapshots_response), WAIT_MS, &resp, NULL),
                     BERTH_REASON_NONE);
    n = resp->n_snapshots;
    berth_message_free(resp);
    return n;
}

static enum berth_reason boot(const char *tenant, const char *session, const char *snapshot_id)
{
    SessionSpec spec = BERTH__COMMON__V1__SESSION_SPEC__INIT;
    Berth__Common__V1__Image image = BERTH__COMMON__V1__IMAGE__INIT;

    image.source_case = BERTH__COMMON__V1__IMAGE__SOURCE_SNAPSHOT_ID;
    image.snapshot_id = (char *)snapshot_id;
    spec.image = &image;
    return town_resolve(&town, 0, tenant, session, &spec, NULL, NULL);
}

/* DeleteSnapshot of one that is there: whether something stands on it. */
static bool delete_used(const char *id)
{
    Berth__Skills__V1__DeleteSnapshotRequest req =
        BERTH__SKILLS__V1__DELETE_SNAPSHOT_REQUEST__INIT;
    Berth__Skills__V1__DeleteSnapshotResponse *resp = NULL;
    bool in_use;

    req.tenant_id = (char *)"t1";
    req.snapshot_id = (char *)id;
    ck_assert_int_eq(town_call(town.snap, SNAPSHOTS "DeleteSnapshot", &req,
                               TYPE(delete_snapshot_response), WAIT_MS, &resp, NULL),
                     BERTH_REASON_NONE);
    in_use = resp->in_use;
    berth_message_free(resp);
    return in_use;
}

/* Made, shown, listed, booted from, deleted. */
START_TEST(snapshot__whole_life__told_as_it_is)
{
    char id[129];

    (void)town_box(&town, "s1", NULL);
    snprintf(id, sizeof id, "%s", snapshot("t1", "s1", "", NULL));
    ck_assert_str_eq(id, "snap-1");
    ck_assert_int_eq(on_one("Get", "t1", id), BERTH_REASON_NONE);
    ck_assert_uint_eq(count("t1"), 1);
    ck_assert_int_eq(boot("t1", "s2", id), BERTH_REASON_NONE);
    ck_assert_str_eq(fake_find(town.fake, "box-2")->snapshot_id, id);
    ck_assert(delete_used(id));
    ck_assert_uint_eq(fake_snapshots_alive(town.fake), 0);
    ck_assert_uint_eq(count("t1"), 0);
    ck_assert_int_eq(on_one("Get", "t1", id), BERTH_REASON_SNAPSHOT_NOT_FOUND);
    ck_assert_int_eq(on_one("Delete", "t1", id), BERTH_REASON_SNAPSHOT_NOT_FOUND);
    ck_assert_int_eq(boot("t1", "s3", id), BERTH_REASON_SNAPSHOT_NOT_FOUND);
    ck_assert_uint_eq(fake_alive(town.fake), 2);
    ck_assert_int_eq(boot("t1", "s2", id), BERTH_REASON_NONE); /* it has its sandbox */
    ck_assert(!delete_used(snapshot("t1", "s1", "", NULL)));
}
END_TEST

/* Another tenant's snapshot boots nothing, is not shown and cannot be deleted. */
START_TEST(snapshot__other_tenant__not_found)
{
    char id[129];
    enum berth_reason reason;

    (void)town_box(&town, "s1", NULL);
    snprintf(id, sizeof id, "%s", snapshot("t1", "s1", "", NULL));
    ck_assert_int_eq(boot("t2", "thief", id), BERTH_REASON_SNAPSHOT_NOT_FOUND);
    ck_assert_int_eq(on_one("Get", "t2", id), BERTH_REASON_SNAPSHOT_NOT_FOUND);
    ck_assert_int_eq(on_one("Delete", "t2", id), BERTH_REASON_SNAPSHOT_NOT_FOUND);
    ck_assert_uint_eq(count("t2"), 0);
    (void)snapshot("t2", "s1", "", &reason);
    ck_assert_int_eq(reason, BERTH_REASON_SESSION_NOT_FOUND);
    ck_assert_uint_eq(fake_snapshots_alive(town.fake), 1);
    ck_assert_uint_eq(fake_alive(town.fake), 1);
}
END_TEST

/* A snapshot of one account boots nothing in another. */
START_TEST(snapshot__other_account__owner_mismatch)
{
    Berth__Control__V1__CreateConfigRequest req =
        BERTH__CONTROL__V1__CREATE_CONFIG_REQUEST__INIT;
    SandboxConfig config = BERTH__CONTROL__V1__SANDBOX_CONFIG__INIT;
    SessionSpec spec = BERTH__COMMON__V1__SESSION_SPEC__INIT;
    Berth__Common__V1__Image image = BERTH__COMMON__V1__IMAGE__INIT;

    (void)town_box(&town, "s1", NULL);
    image.source_case = BERTH__COMMON__V1__IMAGE__SOURCE_SNAPSHOT_ID;
    image.snapshot_id = (char *)snapshot("t1", "s1", "", NULL);
    spec.image = &image;
    snprintf(town.fake->account_id, sizeof town.fake->account_id, "store-2");
    config.tenant_id = (char *)"t1";
    config.config_id = (char *)"c2";
    config.backend = (char *)"local";
    req.config = &config;
    ck_assert_int_eq(town_call(town.control[0], "/berth.control.v1.ConfigService/CreateConfig",
                               &req, &berth__control__v1__create_config_response__descriptor,
                               WAIT_MS, NULL, NULL),
                     BERTH_REASON_NONE);
    spec.config_id = (char *)"c2";
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "s2", &spec, NULL, NULL),
                     BERTH_REASON_IMAGE_OWNER_MISMATCH);
}
END_TEST

/* The same request again gets the first answer. */
START_TEST(create__same_request_id__one_snapshot)
{
    enum berth_reason reason;
    char id[129];

    (void)town_box(&town, "s1", NULL);
    (void)town_box(&town, "s2", NULL);
    snprintf(id, sizeof id, "%s", snapshot("t1", "s1", "r1", NULL));
    ck_assert_str_eq(snapshot("t1", "s1", "r1", NULL), id);
    ck_assert_uint_eq(fake_snapshots_alive(town.fake), 1);
    (void)snapshot("t1", "s2", "r1", &reason);
    ck_assert_int_eq(reason, BERTH_REASON_REQUEST_ID_REUSED);
    ck_assert_str_ne(snapshot("t1", "s1", "r2", NULL), id);
}
END_TEST

/* No session, no sandbox, no capability: said, and no row is left. */
START_TEST(create__impossible__refused_without_a_row)
{
    enum berth_reason reason;

    (void)snapshot("t1", "never", "", &reason);
    ck_assert_int_eq(reason, BERTH_REASON_SESSION_NOT_FOUND);
    ck_assert_uint_eq(count("t1"), 0);
    ck_assert_uint_eq(fake_count(town.fake, FAKE_SNAPSHOT), 0);
}
END_TEST

static bool no_rows(void)
{
    struct berth_reply *reply = redis_run(town.store, "HKEYS", "berth:{t1}:c/c1", NULL);
    bool none = true;

    for (size_t i = 0; i < reply->n_items; i++)
        none = none && strncmp(reply->items[i]->string, "row:", 4) != 0;
    berth_reply_free(reply);
    return none;
}

/* A refusal of the backend abandons the row; nothing of it is seen. */
START_TEST(create__backend_refuses__row_abandoned)
{
    enum berth_reason reason;

    (void)town_box(&town, "s1", NULL);
    fake_script(town.fake, FAKE_SNAPSHOT, FAKE_REFUSE, BERTH_REASON_DISK_FULL, 1);
    (void)snapshot("t1", "s1", "r1", &reason);
    ck_assert_int_eq(reason, BERTH_REASON_DISK_FULL);
    ck_assert_uint_eq(count("t1"), 0);
    ck_assert(!no_rows());
    /* The same request may be tried again. */
    ck_assert_str_eq(snapshot("t1", "s1", "r1", NULL), "snap-1");
}
END_TEST

/* A lost answer is looked up by the planned name. */
START_TEST(create__answer_lost__found_by_name)
{
    (void)town_box(&town, "s1", NULL);
    fake_script(town.fake, FAKE_SNAPSHOT, FAKE_LOSE, 0, 1);
    ck_assert_str_eq(snapshot("t1", "s1", "", NULL), "snap-1");
    ck_assert_uint_eq(count("t1"), 1);
}
END_TEST

static void *create_beside(void *arg)
{
    enum berth_reason *reason = arg;

    (void)snapshot("t1", "s1", "r1", reason);
    return NULL;
}

/* One that is under way at the backend. hold: before or after the backend did it. */
static pthread_t begin_one(enum fake_act hold, enum berth_reason *ret_reason)
{
    pthread_t thread;

    (void)town_box(&town, "s1", NULL);
    fake_script(town.fake, FAKE_SNAPSHOT, hold, 0, 1);
    ck_assert_int_eq(pthread_create(&thread, NULL, create_beside, ret_reason), 0);
    fake_wait_held(town.fake, 1);
    return thread;
}

/* ... and its process is killed; what the backend has in hand goes on. */
static void kill_one(enum fake_act hold)
{
    enum berth_reason reason;
    pthread_t thread = begin_one(hold, &reason);

    process_kill(&town.skills);
    pthread_join(thread, NULL);
    ck_assert_int_ne(reason, BERTH_REASON_NONE);
}

/* The one build in the ledger, changed: no sign of life for long, and past: its time is over.
 */
static void age_build(bool past)
{
    struct berth_reply *reply = redis_run(town.store, "HGETALL", "berth:{t1}:c/c1", NULL);

    for (size_t i = 0; i + 1 < reply->n_items; i += 2) {
        struct berth_snapshot_row row;
        char *aged;

        if (strncmp(reply->items[i]->string, "row:", 4) != 0)
            continue;
        ck_assert_int_eq(berth_snapshot_row_parse(reply->items[i + 1]->string, &row, NULL),
                         BERTH_OK);
        row.beat_ms = 1;
        if (past)
            row.not_after_ms = 1;
        aged = berth_snapshot_row_format(&row);
        berth_reply_free(redis_run(town.store, "HSET", "berth:{t1}:c/c1",
                                   reply->items[i]->string, aged, NULL));
        free(aged);
    }
    berth_reply_free(reply);
}

/* The repeat carries on under the planned name, although the first call is still at work. */
START_TEST(create__service_killed__repeat_takes_over)
{
    enum berth_reason reason;

    kill_one(FAKE_HOLD);
    process_start(&town.skills);
    town_wait_ready(&town);
    (void)snapshot("t1", "s1", "r1", &reason);
    ck_assert_int_eq(reason, BERTH_REASON_CONFLICT); /* it may only be slow */
    ck_assert_uint_eq(fake_count(town.fake, FAKE_SNAPSHOT), 1);
    age_build(false);
    ck_assert_str_eq(snapshot("t1", "s1", "r1", NULL), "snap-1");
    fake_release(town.fake);
    ck_assert_str_eq(snapshot("t1", "s1", "r1", NULL), "snap-1");
    ck_assert_uint_eq(fake_snapshots_alive(town.fake), 1);
    ck_assert_uint_eq(count("t1"), 1);
}
END_TEST

/* Where the backend is not keyed nothing is sent twice: what was made is found, or waited for.
 */
START_TEST(create__service_killed_not_keyed__found_or_waited_for)
{
    int64_t end_tick = berth_tick_ms() + WAIT_MS;
    enum berth_reason reason;

    kill_one(FAKE_HOLD);
    age_build(false);
    process_start(&town.skills);
    town_wait_ready(&town);
    (void)snapshot("t1", "s1", "r1", &reason);
    ck_assert_int_eq(reason, BERTH_REASON_CONFLICT);
    ck_assert_uint_eq(fake_count(town.fake, FAKE_SNAPSHOT), 1);
    fake_release(town.fake);
    while (fake_snapshots_alive(town.fake) == 0) {
        ck_assert_int_lt(berth_tick_ms(), end_tick);
        usleep(10000);
    }
    age_build(false);
    ck_assert_str_eq(snapshot("t1", "s1", "r1", NULL), "snap-1");
    ck_assert_uint_eq(fake_count(town.fake, FAKE_SNAPSHOT), 1);
}
END_TEST

/* Nobody repeats: what the backend has made is published by the janitor all the same. */
START_TEST(create__service_killed__published_by_janitor)
{
    int64_t end_tick = berth_tick_ms() + WAIT_MS;

    kill_one(FAKE_HOLD_AFTER);
    fake_release(town.fake);
    age_build(false);
    process_start(&town.skills);
    town_wait_ready(&town);
    while (on_one("Get", "t1", "snap-1") != BERTH_REASON_NONE) {
        ck_assert_int_lt(berth_tick_ms(), end_tick);
        usleep(10000);
    }
    ck_assert_int_eq(boot("t1", "s2", "snap-1"), BERTH_REASON_NONE);
    ck_assert_uint_eq(count("t1"), 1);
}
END_TEST

/* ... and a build of which nothing can come any more is given up. */
START_TEST(create__service_killed_nothing_made__given_up)
{
    int64_t end_tick = berth_tick_ms() + WAIT_MS;

    kill_one(FAKE_HOLD);
    age_build(true);
    process_start(&town.skills);
    town_wait_ready(&town);
    while (!no_rows()) {
        ck_assert_int_lt(berth_tick_ms(), end_tick);
        usleep(10000);
    }
    ck_assert_str_eq(snapshot("t1", "s1", "r1", NULL), "snap-1");
}
END_TEST

/* A row given up while the answer was out: what comes late is found by its name and deleted. */
START_TEST(create__answer_and_list_lost__cleaned_by_name)
{
    int64_t end_tick = berth_tick_ms() + WAIT_MS;
    enum berth_reason reason;

    (void)town_box(&town, "s1", NULL);
    fake_script(town.fake, FAKE_LIST_SNAPSHOTS, FAKE_REFUSE, BERTH_REASON_BACKEND_UNAVAILABLE,
                1);
    fake_script(town.fake, FAKE_SNAPSHOT, FAKE_LOSE, 0, 1);
    (void)snapshot("t1", "s1", "", &reason);
    ck_assert_int_eq(reason, BERTH_REASON_OUTCOME_UNKNOWN);
    while (fake_snapshots_alive(town.fake) > 0) {
        ck_assert_int_lt(berth_tick_ms(), end_tick);
        usleep(10000);
    }
    ck_assert_uint_eq(count("t1"), 0);
}
END_TEST

static int64_t beat_of_build(void)
{
    struct berth_reply *reply = redis_run(town.store, "HGETALL", "berth:{t1}:c/c1", NULL);
    struct berth_snapshot_row row = {0};

    for (size_t i = 0; i + 1 < reply->n_items; i += 2)
        if (strncmp(reply->items[i]->string, "row:", 4) == 0)
            ck_assert_int_eq(berth_snapshot_row_parse(reply->items[i + 1]->string, &row, NULL),
                             BERTH_OK);
    berth_reply_free(reply);
    return row.beat_ms;
}

/* A build that takes several leases is not taken from a process that lives. */
START_TEST(create__slow_backend__stays_its_owners)
{
    enum berth_reason reason, first;
    pthread_t thread = begin_one(FAKE_HOLD, &first);
    int64_t end_tick = berth_tick_ms() + WAIT_MS, begun_ms = beat_of_build();

    while (beat_of_build() - begun_ms < 2 * SHORT_LEASE_MS) {
        (void)snapshot("t1", "s1", "r1", &reason);
        ck_assert_int_eq(reason, BERTH_REASON_CONFLICT);
        ck_assert_int_lt(berth_tick_ms(), end_tick);
        usleep(10000);
    }
    ck_assert_uint_eq(fake_count(town.fake, FAKE_SNAPSHOT), 1);
    fake_release(town.fake);
    pthread_join(thread, NULL);
    ck_assert_int_eq(first, BERTH_REASON_NONE);
    ck_assert_str_eq(snapshot("t1", "s1", "r1", NULL), "snap-1");
}
END_TEST

/* A backend that refuses a delete keeps the snapshot bootable; one that does not answer leaves
 * it condemned, and the janitor finishes it. */
START_TEST(delete__backend_refuses_or_fails__kept_or_finished)
{
    int64_t end_tick = berth_tick_ms() + WAIT_MS;
    char id[129];

    (void)town_box(&town, "s1", NULL);
    snprintf(id, sizeof id, "%s", snapshot("t1", "s1", "", NULL));
    fake_script(town.fake, FAKE_DELETE_SNAPSHOT, FAKE_REFUSE, BERTH_REASON_CONFIG_IN_USE, 1);
    ck_assert_int_eq(on_one("Delete", "t1", id), BERTH_REASON_CONFIG_IN_USE);
    ck_assert_int_eq(boot("t1", "s2", id), BERTH_REASON_NONE);
    fake_script(town.fake, FAKE_DELETE_SNAPSHOT, FAKE_REFUSE, BERTH_REASON_BACKEND_TIMEOUT, 1);
    ck_assert_int_eq(on_one("Delete", "t1", id), BERTH_REASON_BACKEND_TIMEOUT);
    ck_assert_int_eq(boot("t1", "s3", id), BERTH_REASON_SNAPSHOT_NOT_FOUND);
    while (!no_rows()) {
        ck_assert_int_lt(berth_tick_ms(), end_tick);
        usleep(10000);
    }
    ck_assert_uint_eq(fake_snapshots_alive(town.fake), 0);
}
END_TEST

/* A config whose snapshots live cannot be deleted. */
START_TEST(delete_config__with_snapshots__in_use)
{
    Berth__Control__V1__DeleteConfigRequest req =
        BERTH__CONTROL__V1__DELETE_CONFIG_REQUEST__INIT;
    Berth__Control__V1__CreateConfigRequest make =
        BERTH__CONTROL__V1__CREATE_CONFIG_REQUEST__INIT;
    SandboxConfig config = BERTH__CONTROL__V1__SANDBOX_CONFIG__INIT;
    SessionSpec spec = BERTH__COMMON__V1__SESSION_SPEC__INIT;
    char id[129];

    config.tenant_id = (char *)"t1";
    config.config_id = (char *)"c2";
    config.backend = (char *)"local";
    make.config = &config;
    ck_assert_int_eq(town_call(town.control[0], "/berth.control.v1.ConfigService/CreateConfig",
                               &make, &berth__control__v1__create_config_response__descriptor,
                               WAIT_MS, NULL, NULL),
                     BERTH_REASON_NONE);
    spec.config_id = (char *)"c2";
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "s1", &spec, NULL, NULL), BERTH_REASON_NONE);
    snprintf(id, sizeof id, "%s", snapshot("t1", "s1", "", NULL));
    ck_assert_int_eq(town_act(&town, "Delete", "t1", "s1"), BERTH_REASON_NONE);
    req.tenant_id = (char *)"t1";
    req.config_id = (char *)"c2";
    ck_assert_int_eq(town_call(town.control[0], "/berth.control.v1.ConfigService/DeleteConfig",
                               &req, &berth__control__v1__delete_config_response__descriptor,
                               WAIT_MS, NULL, NULL),
                     BERTH_REASON_CONFIG_IN_USE);
    ck_assert_int_eq(on_one("Delete", "t1", id), BERTH_REASON_NONE);
    ck_assert_int_eq(town_call(town.control[0], "/berth.control.v1.ConfigService/DeleteConfig",
                               &req, &berth__control__v1__delete_config_response__descriptor,
                               WAIT_MS, NULL, NULL),
                     BERTH_REASON_NONE);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("skills/snapshots");
    TCase *all = tcase_create("all"), *impatient = tcase_create("short lease");
    TCase *other = tcase_create("not keyed");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(all, open_town, close_town);
    tcase_set_timeout(all, 60);
    tcase_add_test(all, snapshot__whole_life__told_as_it_is);
    tcase_add_test(all, snapshot__other_tenant__not_found);
    tcase_add_test(all, snapshot__other_account__owner_mismatch);
    tcase_add_test(all, create__same_request_id__one_snapshot);
    tcase_add_test(all, create__impossible__refused_without_a_row);
    tcase_add_test(all, create__backend_refuses__row_abandoned);
    tcase_add_test(all, create__answer_lost__found_by_name);
    tcase_add_test(all, create__service_killed__repeat_takes_over);
    tcase_add_test(all, create__service_killed__published_by_janitor);
    tcase_add_test(all, create__service_killed_nothing_made__given_up);
    tcase_add_test(all, create__answer_and_list_lost__cleaned_by_name);
    tcase_add_test(all, delete__backend_refuses_or_fails__kept_or_finished);
    tcase_add_test(all, delete_config__with_snapshots__in_use);
    suite_add_tcase(suite, all);
    tcase_add_checked_fixture(other, open_other_town, close_town);
    tcase_set_timeout(other, 60);
    tcase_add_test(other, create__service_killed_not_keyed__found_or_waited_for);
    suite_add_tcase(suite, other);
    tcase_add_checked_fixture(impatient, open_impatient_town, close_town);
    tcase_set_timeout(impatient, 60);
    tcase_add_test(impatient, create__slow_backend__stays_its_owners);
    suite_add_tcase(suite, impatient);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
