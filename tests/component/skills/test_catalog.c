/* test_catalog.c - over gRPC: what a session has is asked of the image that it runs; which
 * snapshots go. */
#include <stdio.h>

#include "common/records/config_doc.h"
#include "tests/component/controlplane/town.h"

#define SKILLS "/berth.skills.v1.SkillService/"
#define CONFIG "berth:{t1}:c/c1"
#define TYPE(name) (&berth__skills__v1__##name##__descriptor)

typedef Berth__Skills__V1__ListSkillsResponse ListSkillsResponse;
typedef Berth__Skills__V1__PruneSnapshotsResponse PruneSnapshotsResponse;

static struct town town;

static void open_town(void)
{
    town_open(&town, &(struct town_options){.skills = true});
}

static void close_town(void)
{
    town_close(&town);
}

/* ------------------------------------------------------------------------ ledger */

static void write_row(unsigned generation, const char *state, int64_t supersede_ms)
{
    struct berth_snapshot_row row = {
        .origin = "skills", .generation = generation, .supersede_ms = supersede_ms};
    char field[48], snapshot[32], place[64], *text;

    snprintf(row.row_id, sizeof row.row_id, "r%u", generation);
    snprintf(snapshot, sizeof snapshot, "img-%u", generation);
    snprintf(row.snapshot_id, sizeof row.snapshot_id, "%s", snapshot);
    snprintf(row.state, sizeof row.state, "%s", state);
    snprintf(row.account, sizeof row.account, "%s", town_field(&town, CONFIG, "account"));
    snprintf(field, sizeof field, "row:%s", row.row_id);
    text = berth_snapshot_row_format(&row);
    berth_reply_free(redis_run(town.store, "HSET", CONFIG, field, text, NULL));
    free(text);
    snprintf(place, sizeof place, "c1/%s", row.row_id);
    berth_reply_free(
        redis_run(town.store, "HSET", "berth:{t1}:i/snapshot", snapshot, place, NULL));
}

/* The generation is live, with skills of these names. */
static void publish(unsigned generation, const char *first, const char *second)
{
    struct berth_image_pointer image = {.generation = generation};
    char list[256], field[48], *text;

    for (unsigned i = 1; i < generation; i++)
        write_row(i, "superseded", 1);
    write_row(generation, "active", 0);
    snprintf(image.snapshot_id, sizeof image.snapshot_id, "img-%u", generation);
    snprintf(image.row_id, sizeof image.row_id, "r%u", generation);
    snprintf(image.account, sizeof image.account, "%s", town_field(&town, CONFIG, "account"));
    snprintf(list, sizeof list, "[{\"name\":\"%s\",\"generation\":%u}%s%s%s]", first,
             generation, second ? ",{\"name\":\"" : "", second ? second : "",
             second ? "\"}" : "");
    snprintf(field, sizeof field, "skills:r%u", generation);
    text = berth_image_pointer_format(&image);
    berth_reply_free(redis_run(town.store, "HSET", CONFIG, "image", text, field, list, NULL));
    free(text);
}

/* -------------------------------------------------------------------------- list */

/* Names with commas between, static; "" and the reason. */
static const char *list(const char *tenant, const char *config, const char *session,
                        const char *token, ListSkillsResponse **ret,
                        enum berth_reason *ret_reason)
{
    static char names[256];
    Berth__Skills__V1__ListSkillsRequest req = BERTH__SKILLS__V1__LIST_SKILLS_REQUEST__INIT;
    ListSkillsResponse *resp = NULL;

    req.tenant_id = (char *)tenant;
    req.of_case = config ? BERTH__SKILLS__V1__LIST_SKILLS_REQUEST__OF_CONFIG_ID
                         : BERTH__SKILLS__V1__LIST_SKILLS_REQUEST__OF_SESSION_ID;
    if (config)
        req.config_id = (char *)config;
    else
        req.session_id = (char *)session;
    *ret_reason = town_call_as(town.snap, token, SKILLS "ListSkills", &req,
                               TYPE(list_skills_response), WAIT_MS, &resp, NULL);
    names[0] = 0;
    for (size_t i = 0; !*ret_reason && i < resp->n_skills; i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? "," : "",
                 resp->skills[i]->name);
    if (ret)
        *ret = resp;
    else
        berth_message_free(resp);
    return names;
}

static void expect(const char *config, const char *session, const char *names,
                   uint64_t generation, bool not_bound)
{
    ListSkillsResponse *resp = NULL;
    enum berth_reason reason;
    const char *got = list("t1", config, session, NULL, &resp, &reason);

    ck_assert_msg(!reason, "%s", berth_reason_name(reason));
    ck_assert_str_eq(got, names);
    ck_assert_uint_eq(resp->generation, generation);
    ck_assert_int_eq(resp->not_bound, not_bound);
    berth_message_free(resp);
}

/* A skill published while a session runs is not said to be in it. */
START_TEST(list__published_meanwhile__session_has_what_it_booted)
{
    Berth__Skills__V1__GetSkillRequest get = BERTH__SKILLS__V1__GET_SKILL_REQUEST__INIT;

    expect("c1", NULL, "", 0, false);
    (void)town_box(&town, "plain", NULL);
    publish(1, "pdf", NULL);
    (void)town_box(&town, "s1", NULL);
    publish(2, "docx", "pdf");
    expect("c1", NULL, "docx,pdf", 2, false);
    expect(NULL, "plain", "", 0, false);
    expect(NULL, "s1", "pdf", 1, false);
    get.tenant_id = (char *)"t1";
    get.session_id = (char *)"s1";
    get.name = (char *)"docx";
    ck_assert_int_eq(town_call(town.snap, SKILLS "GetSkill", &get, TYPE(get_skill_response),
                               WAIT_MS, NULL, NULL),
                     BERTH_REASON_SKILL_NOT_FOUND);
    get.session_id = (char *)"";
    get.config_id = (char *)"c1";
    ck_assert_int_eq(town_call(town.snap, SKILLS "GetSkill", &get, TYPE(get_skill_response),
                               WAIT_MS, NULL, NULL),
                     BERTH_REASON_NONE);
}
END_TEST

/* A user's snapshot holds what its sandbox held; without a sandbox it is what would boot. */
START_TEST(list__own_snapshot_or_no_sandbox__as_it_is)
{
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    Berth__Skills__V1__CreateSnapshotRequest make =
        BERTH__SKILLS__V1__CREATE_SNAPSHOT_REQUEST__INIT;
    Berth__Skills__V1__CreateSnapshotResponse *made = NULL;
    SessionSpec spec = BERTH__COMMON__V1__SESSION_SPEC__INIT;
    Berth__Common__V1__Image image = BERTH__COMMON__V1__IMAGE__INIT;

    publish(1, "pdf", NULL);
    (void)town_box(&town, "s1", NULL);
    ref.tenant_id = (char *)"t1";
    ref.session_id = (char *)"s1";
    make.session = &ref;
    ck_assert_int_eq(town_call(town.snap, "/berth.skills.v1.SnapshotService/CreateSnapshot",
                               &make, TYPE(create_snapshot_response), WAIT_MS, &made, NULL),
                     BERTH_REASON_NONE);
    publish(2, "docx", "pdf");
    image.source_case = BERTH__COMMON__V1__IMAGE__SOURCE_SNAPSHOT_ID;
    image.snapshot_id = made->snapshot->snapshot_id;
    spec.image = &image;
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "s2", &spec, NULL, NULL), BERTH_REASON_NONE);
    expect(NULL, "s2", "pdf", 1, false);
    fake_script(town.fake, FAKE_CREATE, FAKE_REFUSE, BERTH_REASON_BACKEND_CAPACITY, 1);
    ck_assert_int_eq(town_resolve(&town, 0, "t1", "s3", NULL, NULL, NULL),
                     BERTH_REASON_BACKEND_CAPACITY);
    expect(NULL, "s3", "docx,pdf", 2, true);
    berth_message_free(made);
}
END_TEST

/* Pages, and what is refused. */
START_TEST(list__pages_and_strangers__told_and_refused)
{
    Berth__Skills__V1__ListSkillsRequest req = BERTH__SKILLS__V1__LIST_SKILLS_REQUEST__INIT;
    Berth__Common__V1__PageRequest page = BERTH__COMMON__V1__PAGE_REQUEST__INIT;
    Berth__Control__V1__Token token = BERTH__CONTROL__V1__TOKEN__INIT;
    Berth__Control__V1__Scope scope = BERTH__CONTROL__V1__SCOPE__SCOPE_READ;
    ListSkillsResponse *resp = NULL;
    enum berth_reason reason;
    char secret[64];

    publish(1, "docx", "pdf");
    (void)town_box(&town, "s1", NULL);
    req.tenant_id = (char *)"t1";
    req.of_case = BERTH__SKILLS__V1__LIST_SKILLS_REQUEST__OF_CONFIG_ID;
    req.config_id = (char *)"c1";
    req.page = &page;
    page.page_size = 1;
    page.page_token = (char *)"docx";
    ck_assert_int_eq(town_call(town.snap, SKILLS "ListSkills", &req, TYPE(list_skills_response),
                               WAIT_MS, &resp, NULL),
                     BERTH_REASON_NONE);
    ck_assert_uint_eq(resp->n_skills, 1);
    ck_assert_str_eq(resp->skills[0]->name, "pdf");
    ck_assert_str_eq(resp->next_page_token, "");
    berth_message_free(resp);
    (void)list("t1", "none", NULL, NULL, NULL, &reason);
    ck_assert_int_eq(reason, BERTH_REASON_CONFIG_NOT_FOUND);
    (void)list("t1", NULL, "none", NULL, NULL, &reason);
    ck_assert_int_eq(reason, BERTH_REASON_SESSION_NOT_FOUND);
    (void)list("t2", NULL, "s1", NULL, NULL, &reason);
    ck_assert_int_eq(reason, BERTH_REASON_SESSION_NOT_FOUND);
    token.tenant_id = (char *)"t1";
    token.config_id = (char *)"c2";
    token.scopes = &scope;
    token.n_scopes = 1;
    ck_assert_int_eq(town_token(&town, &token, secret, NULL), BERTH_REASON_NONE);
    (void)list("t1", NULL, "s1", secret, NULL, &reason);
    ck_assert_int_eq(reason, BERTH_REASON_SESSION_NOT_FOUND);
}
END_TEST

/* ------------------------------------------------------------------------- prune */

/* "<generation>:<reason>[!]" of each, with commas; "!": deleted. Static. */
static const char *prune(int64_t retention_s, bool dry_run)
{
    static char text[512];
    Berth__Skills__V1__PruneSnapshotsRequest req =
        BERTH__SKILLS__V1__PRUNE_SNAPSHOTS_REQUEST__INIT;
    Google__Protobuf__Duration retention = GOOGLE__PROTOBUF__DURATION__INIT;
    PruneSnapshotsResponse *resp = NULL;
    enum berth_reason reason;

    req.tenant_id = (char *)"t1";
    req.config_id = (char *)"c1";
    req.dry_run = dry_run;
    req.retention = &retention;
    retention.seconds = retention_s;
    reason = town_call(town.snap, SKILLS "PruneSnapshots", &req, TYPE(prune_snapshots_response),
                       WAIT_MS, &resp, NULL);
    ck_assert_msg(!reason, "%s", berth_reason_name(reason));
    text[0] = 0;
    for (size_t i = 0; i < resp->n_items; i++) {
        const Berth__Skills__V1__PruneItem *item = resp->items[i];

        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%llu:%s%s%s", i ? "," : "",
                 (unsigned long long)item->generation, item->reason, item->deleted ? "!" : "",
                 item->error);
    }
    berth_message_free(resp);
    return text;
}

/* Only what was superseded long ago and nobody names; a dry run says so and does nothing. */
START_TEST(prune__each_generation__what_nobody_names)
{
    publish(1, "pdf", NULL);
    (void)town_box(&town, "s1", NULL); /* runs generation 1 */
    publish(4, "pdf", NULL);
    write_row(3, "superseded", berth_now_ms());
    ck_assert_str_eq(prune(3600, true), "1:IN_USE,2:SUPERSEDED,3:TOO_YOUNG,4:LIVE");
    ck_assert_uint_eq(fake_count(town.fake, FAKE_DELETE_SNAPSHOT), 0);
    ck_assert_str_eq(prune(3600, false), "1:IN_USE,2:SUPERSEDED!,3:TOO_YOUNG,4:LIVE");
    ck_assert_uint_eq(fake_count(town.fake, FAKE_DELETE_SNAPSHOT), 1);
    ck_assert_str_eq(prune(3600, false), "1:IN_USE,3:TOO_YOUNG,4:LIVE");
    ck_assert_int_eq(town_act(&town, "Delete", "t1", "s1"), BERTH_REASON_NONE);
    ck_assert_str_eq(prune(0, false), "1:SUPERSEDED!,3:SUPERSEDED!,4:LIVE");
    ck_assert_str_eq(town_field(&town, "berth:{t1}:i/snapshot", "img-1"), "");
    ck_assert_str_eq(town_field(&town, CONFIG, "skills:r1"), "");
}
END_TEST

/* What a waiting rollback would publish stays; what the backend refuses is kept and said. */
START_TEST(prune__wanted_again_or_refused__kept)
{
    Berth__Skills__V1__RollbackImageRequest req =
        BERTH__SKILLS__V1__ROLLBACK_IMAGE_REQUEST__INIT;
    char lock[128];

    publish(3, "pdf", NULL);
    snprintf(lock, sizeof lock, "{\"op\":\"x\",\"owner\":\"test\",\"until_ms\":%lld}",
             4102444800000LL);
    berth_reply_free(redis_run(town.store, "HSET", CONFIG, "lock", lock, NULL));
    req.tenant_id = (char *)"t1";
    req.config_id = (char *)"c1";
    req.generation = 1;
    ck_assert_int_eq(town_call(town.snap, SKILLS "RollbackImage", &req,
                               TYPE(rollback_image_response), WAIT_MS, NULL, NULL),
                     BERTH_REASON_NONE);
    fake_script(town.fake, FAKE_DELETE_SNAPSHOT, FAKE_REFUSE, BERTH_REASON_CONFIG_IN_USE, 1);
    ck_assert_ptr_nonnull(strstr(prune(0, false), "1:IN_USE,2:SUPERSEDEDas the test"));
    ck_assert_str_eq(prune(0, false), "1:IN_USE,2:SUPERSEDED!,3:LIVE");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("catalog");
    TCase *all = tcase_create("catalog");
    SRunner *runner;
    int failed;

    tcase_set_timeout(all, 120);
    tcase_add_checked_fixture(all, open_town, close_town);
    tcase_add_test(all, list__published_meanwhile__session_has_what_it_booted);
    tcase_add_test(all, list__own_snapshot_or_no_sandbox__as_it_is);
    tcase_add_test(all, list__pages_and_strangers__told_and_refused);
    tcase_add_test(all, prune__each_generation__what_nobody_names);
    tcase_add_test(all, prune__wanted_again_or_refused__kept);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
