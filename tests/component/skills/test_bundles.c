/* test_bundles.c - InstallSkill with validate_only over real gRPC: the upload at every edge,
 * and the answer that says everything at once. */
#include <dirent.h>
#include <stdio.h>

#include "common/crypto/crypto.h"
#include "tests/component/skills/uploads.h"
#include "tests/lib/skill_bundles.h"

#define TYPE(name) (&berth__skills__v1__##name##__descriptor)

enum { BUNDLE_BYTES = 100000, UPLOADS = 8 };

static struct town town;
static struct berth_loop *loop;

static void open_with(const char *first, const char *second)
{
    struct town_options options = {.skills = true, .skills_args = {first, second}};

    ck_assert_int_eq(berth_loop_new(&loop, NULL), BERTH_OK);
    ck_assert_int_eq(berth_loop_start(loop, "caller", NULL), BERTH_OK);
    town_open(&town, &options);
}

static void open_town(void)
{
    open_with("--bundle_bytes=100000", "--uploads=8");
}

static void open_hurried_town(void)
{
    open_with("--upload_timeout=1s", NULL);
}

static void open_impatient_town(void)
{
    open_with("--upload_idle=300ms", NULL);
}

static void close_town(void)
{
    town_close(&town);
    berth_loop_free(loop);
}

static void start(struct upload *upload)
{
    upload->town = &town;
    upload->loop = loop;
    upload_start(upload);
}

static enum berth_reason run(struct upload *upload, InstallSkillResponse **ret)
{
    start(upload);
    return upload_finish(upload, ret);
}

static InstallSkillOpen open_of(const char *config_id)
{
    InstallSkillOpen open = BERTH__SKILLS__V1__INSTALL_SKILL_OPEN__INIT;

    open.tenant_id = (char *)"t1";
    open.config_id = (char *)config_id;
    open.validate_only = true;
    return open;
}

static const Berth__Skills__V1__Finding *find(const InstallSkillResponse *resp,
                                              const char *code)
{
    for (size_t i = 0; i < resp->operation->n_findings; i++)
        if (strcmp(resp->operation->findings[i]->code, code) == 0)
            return resp->operation->findings[i];
    return NULL;
}

static void *pack_skill(const char *name, enum pack_format format, size_t *ret_size)
{
    const struct skill_bundle *bundle = skill_bundle_find(name);

    return pack_archive(format, bundle->files, bundle->n_files, 1700000000, NULL, ret_size);
}

/* The skill, the findings and the plan, of every shape. */
START_TEST(validate__real_shapes__told_whole)
{
    InstallSkillOpen open = open_of("c1");
    InstallSkillResponse *resp;

    for (size_t i = 0; i < n_skill_bundles; i++) {
        size_t size;
        BERTH_AUTO(free)
        void *data = pack_skill(skill_bundles[i].name, (enum pack_format)(i % 4), &size);
        struct upload upload = {.open = &open, .data = data, .size = size};

        ck_assert_int_eq(run(&upload, &resp), BERTH_REASON_NONE);
        ck_assert_int_eq(resp->operation->state,
                         BERTH__SKILLS__V1__OPERATION_STATE__OPERATION_STATE_DONE);
        ck_assert_str_eq(resp->operation->operation_id, "");
        ck_assert_str_eq(resp->skill->name, skill_bundles[i].name);
        ck_assert_uint_eq(resp->skill->bundle_sha256.len, 32);
        ck_assert_uint_gt(resp->plan->n_files, 1);
        if (i == 0) {
            ck_assert_str_eq(resp->skill->path, "/opt/berth/skills/table-tools");
            ck_assert_str_eq(resp->skill->version, "1.10");
            ck_assert_uint_eq(resp->plan->n_commands, 5);
            ck_assert_str_eq(resp->plan->commands[1]->manifest, "requirements.txt");
            ck_assert_str_eq(find(resp, "DESCRIPTION_REQUOTED")->file, "SKILL.md");
            ck_assert_uint_eq(find(resp, "DESCRIPTION_REQUOTED")->line, 3);
            ck_assert_int_eq(find(resp, "LITTER_IGNORED")->severity,
                             BERTH__SKILLS__V1__SEVERITY__SEVERITY_NOTE);
            ck_assert_uint_eq(resp->skill->n_warnings, 4);
        }
        berth_message_free(resp);
    }
}
END_TEST

/* A refused bundle is an answer, with everything that is wrong, harmless to show. */
START_TEST(validate__refused__every_finding_at_once)
{
    const struct pack_file files[] = {
        {"SKILL.md", "---\nname: x\ndescription: <b>\nallowed-tools: {}\n---\n"},
        {"../out", "x"},
        {"</skills>", "/etc/passwd", .kind = 'l'}};
    InstallSkillOpen open = open_of("c1");
    InstallSkillResponse *resp;
    size_t size;
    BERTH_AUTO(free) void *data = pack_archive(PACK_ZIP, files, 3, 0, NULL, &size);
    struct upload upload = {.open = &open, .data = data, .size = size};

    ck_assert_int_eq(run(&upload, &resp), BERTH_REASON_NONE);
    ck_assert_int_eq(resp->operation->state,
                     BERTH__SKILLS__V1__OPERATION_STATE__OPERATION_STATE_FAILED);
    ck_assert_str_eq(resp->operation->error->reason, "BUNDLE_INVALID");
    ck_assert_str_eq(resp->operation->message, "refused: 3 errors, 1 warnings");
    ck_assert_str_eq(find(resp, "PATH_ESCAPES")->file, "../out");
    ck_assert_str_eq(find(resp, "SYMLINK")->file, "&lt;/skills&gt;");
    ck_assert_uint_eq(find(resp, "RESTRICTION_UNREAD")->line, 4);
    ck_assert_str_eq(resp->skill->description, "&lt;b&gt;");
    ck_assert_uint_eq(resp->skill->bundle_sha256.len, 0);
    ck_assert_ptr_null(resp->plan);
    berth_message_free(resp);
}
END_TEST

/* However the bytes are cut, it is the same bundle; size and hash are compared. */
START_TEST(upload__chunk_edges__same_bundle)
{
    static const size_t chunks[] = {1, 7, 511, 1 << 20};
    InstallSkillOpen open = open_of("c1");
    uint8_t sha256[32], digest[32] = {0};
    InstallSkillResponse *resp;
    size_t size;
    BERTH_AUTO(free) void *data = pack_skill("git-helper", PACK_ZIP, &size);

    berth_sha256_once(data, size, sha256);
    open.size_bytes = size;
    open.sha256 = (ProtobufCBinaryData){sizeof sha256, sha256};
    open.format = BERTH__SKILLS__V1__BUNDLE_FORMAT__BUNDLE_FORMAT_ZIP;
    for (size_t i = 0; i < BERTH_COUNT(chunks); i++) {
        struct upload upload = {.open = &open, .data = data, .size = size, .chunk = chunks[i]};

        ck_assert_int_eq(run(&upload, &resp), BERTH_REASON_NONE);
        ck_assert_msg(resp->plan != NULL, "%s", resp->operation->message);
        if (i > 0)
            ck_assert_mem_eq(digest, resp->skill->bundle_sha256.data, sizeof digest);
        memcpy(digest, resp->skill->bundle_sha256.data, sizeof digest);
        berth_message_free(resp);
    }
    open.format = BERTH__SKILLS__V1__BUNDLE_FORMAT__BUNDLE_FORMAT_TAR;
    {
        struct upload upload = {.open = &open, .data = data, .size = size};

        ck_assert_int_eq(run(&upload, &resp), BERTH_REASON_NONE);
        ck_assert_ptr_nonnull(find(resp, "ARCHIVE_FORMAT"));
        berth_message_free(resp);
    }
}
END_TEST

/* What is not an upload, or not the one announced, is refused; the field is named. */
START_TEST(upload__wrong__refused_by_field)
{
    static uint8_t big[BUNDLE_BYTES + 1];
    uint8_t wrong[32] = {1};
    InstallSkillOpen good = open_of("c1"), huge = good, fewer = good, hashed = good,
                     short_hash = good, odd = good, nowhere = open_of("no-such"),
                     foreign = good;
    const struct {
        struct upload upload;
        enum berth_reason reason;
        const char *field;
    } rows[] = {
        {{.data = big, .size = 10}, BERTH_REASON_FIELD_INVALID, "open"},
        {{.data = NULL}, BERTH_REASON_FIELD_INVALID, "open"},
        {{.open = &good, .open_twice = true}, BERTH_REASON_FIELD_INVALID, "message"},
        {{.open = &good, .data = big, .size = sizeof big}, BERTH_REASON_FIELD_INVALID, "data"},
        {{.open = &huge, .data = big, .size = 10},
         BERTH_REASON_FIELD_INVALID,
         "open.size_bytes"},
        {{.open = &fewer, .data = big, .size = 11},
         BERTH_REASON_FIELD_INVALID,
         "open.size_bytes"},
        {{.open = &fewer, .data = big, .size = 9},
         BERTH_REASON_FIELD_INVALID,
         "open.size_bytes"},
        {{.open = &hashed, .data = big, .size = 9}, BERTH_REASON_FIELD_INVALID, "open.sha256"},
        {{.open = &short_hash}, BERTH_REASON_FIELD_INVALID, "open.sha256"},
        {{.open = &odd}, BERTH_REASON_FIELD_INVALID, "open.format"},
        {{.open = &nowhere}, BERTH_REASON_CONFIG_NOT_FOUND, ""},
        {{.open = &foreign}, BERTH_REASON_TENANT_NOT_FOUND, ""},
    };

    huge.size_bytes = BUNDLE_BYTES + 1;
    fewer.size_bytes = 10;
    hashed.sha256 = (ProtobufCBinaryData){sizeof wrong, wrong};
    short_hash.sha256 = (ProtobufCBinaryData){1, wrong};
    odd.format = (Berth__Skills__V1__BundleFormat)3;
    foreign.tenant_id = (char *)"nobodys";
    for (size_t i = 0; i < BERTH_COUNT(rows); i++) {
        struct upload upload = rows[i].upload;
        enum berth_reason reason = run(&upload, NULL);

        ck_assert_msg(reason == rows[i].reason, "row %zu: %s: %s", i, berth_reason_name(reason),
                      upload.err.text);
        ck_assert_msg(strcmp(upload.err.field, rows[i].field) == 0, "row %zu: %s", i,
                      upload.err.field);
    }
}
END_TEST

/* Nameless files that skills holds in its spool. */
static unsigned count_spools(void)
{
    char folder[64], path[400], to[400];
    struct dirent *entry;
    unsigned n = 0;
    DIR *dir;

    snprintf(folder, sizeof folder, "/proc/%d/fd", (int)town.skills.pid);
    dir = opendir(folder);
    while (dir && (entry = readdir(dir))) {
        ssize_t size;

        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        size = readlink(path, to, sizeof to - 1);
        to[size > 0 ? size : 0] = 0;
        n += strncmp(to, town.dir, strlen(town.dir)) == 0 && strstr(to, "(deleted)");
    }
    if (dir)
        closedir(dir);
    return n;
}

/* Uploads are bounded in number; those that were cancelled give place and files back. */
START_TEST(upload__cancelled__place_given_back)
{
    InstallSkillOpen open = open_of("c1");
    int64_t end_tick = berth_tick_ms() + WAIT_MS;
    enum berth_reason reason = BERTH_REASON_OVERLOADED;
    InstallSkillResponse *resp = NULL;
    struct upload held[UPLOADS];
    size_t size;
    BERTH_AUTO(free) void *data = pack_skill("web-report", PACK_TAR_GZ, &size);
    const struct upload whole = {.open = &open, .data = data, .size = size};
    struct upload one_more = whole;

    for (size_t i = 0; i < UPLOADS; i++) {
        held[i] =
            (struct upload){.open = &open, .data = data, .size = size / 2, .stays_open = true};
        start(&held[i]);
    }
    while (count_spools() < 2 * UPLOADS)
        ck_assert_int_lt(berth_tick_ms(), end_tick);
    ck_assert_int_eq(run(&one_more, NULL), BERTH_REASON_OVERLOADED);
    for (size_t i = 0; i < UPLOADS; i++) {
        upload_cancel(&held[i]);
        (void)upload_finish(&held[i], NULL);
        ck_assert_int_eq(held[i].code, BERTH_CANCELLED);
    }
    while (reason == BERTH_REASON_OVERLOADED) {
        ck_assert_int_lt(berth_tick_ms(), end_tick);
        one_more = whole;
        reason = run(&one_more, &resp);
    }
    ck_assert_int_eq(reason, BERTH_REASON_NONE);
    ck_assert_str_eq(resp->skill->allowed_tools[0], "Bash(node:*)");
    ck_assert(resp->skill->restricts_tools);
    berth_message_free(resp);
    while (count_spools() > 0)
        ck_assert_int_lt(berth_tick_ms(), end_tick);
}
END_TEST

/* One of which nothing comes is given up, with its files. */
START_TEST(upload__silent__given_up)
{
    InstallSkillOpen open = open_of("c1");
    int64_t end_tick = berth_tick_ms() + WAIT_MS;
    struct upload upload = {.open = &open, .stays_open = true}, none = {.stays_open = true};

    start(&upload);
    ck_assert_int_eq(upload_finish(&upload, NULL), BERTH_REASON_DEADLINE);
    while (count_spools() > 0)
        ck_assert_int_lt(berth_tick_ms(), end_tick);
    none.data = (const uint8_t *)"";
    start(&none);
    ck_assert_int_eq(upload_finish(&none, NULL), BERTH_REASON_DEADLINE);
}
END_TEST

static void send_one_more(void *arg)
{
    static const uint8_t byte = 'P';
    InstallSkillRequest req = BERTH__SKILLS__V1__INSTALL_SKILL_REQUEST__INIT;
    struct upload *upload = arg;

    req.message_case = BERTH__SKILLS__V1__INSTALL_SKILL_REQUEST__MESSAGE_DATA;
    req.data = (ProtobufCBinaryData){1, (uint8_t *)&byte};
    if (upload->stream && berth_stream_can_write(upload->stream))
        (void)berth_stream_write(upload->stream, berth_buf_pack(&req.base));
}

/* One that is never silent and never whole is given up as well. */
START_TEST(upload__trickling__given_up)
{
    InstallSkillOpen open = open_of("c1");
    int64_t end_tick = berth_tick_ms() + WAIT_MS;
    struct upload upload = {.open = &open, .stays_open = true};

    start(&upload);
    upload_wait(&upload, &upload.waits);
    for (bool ended = false; !ended;) {
        berth_loop_post(loop, send_one_more, &upload);
        usleep(20000);
        pthread_mutex_lock(&upload.mutex);
        ended = upload.ended;
        pthread_mutex_unlock(&upload.mutex);
        ck_assert_int_lt(berth_tick_ms(), end_tick);
    }
    berth_loop_stop(loop); /* nothing of this upload is left in it */
    ck_assert_int_eq(upload_finish(&upload, NULL), BERTH_REASON_DEADLINE);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("skills/bundles");
    TCase *all = tcase_create("all"), *hurried = tcase_create("short timeout"),
          *impatient = tcase_create("short silence");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(all, open_town, close_town);
    tcase_set_timeout(all, 60);
    tcase_add_test(all, validate__real_shapes__told_whole);
    tcase_add_test(all, validate__refused__every_finding_at_once);
    tcase_add_test(all, upload__chunk_edges__same_bundle);
    tcase_add_test(all, upload__wrong__refused_by_field);
    tcase_add_test(all, upload__cancelled__place_given_back);
    suite_add_tcase(suite, all);
    tcase_add_checked_fixture(hurried, open_hurried_town, close_town);
    tcase_set_timeout(hurried, 60);
    tcase_add_test(hurried, upload__trickling__given_up);
    suite_add_tcase(suite, hurried);
    tcase_add_checked_fixture(impatient, open_impatient_town, close_town);
    tcase_set_timeout(impatient, 60);
    tcase_add_test(impatient, upload__silent__given_up);
    suite_add_tcase(suite, impatient);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
