/* test_image.c - when an image may be made live, how an operation goes on, what an image
 * holds, and the store of bundles and logs. */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "common/ids/ids.h"
#include "common/time/time.h"
#include "services/skills/blobs.h"
#include "services/skills/image.h"
#include "tests/lib/skill_bundles.h"

#define OP "op1"
#define ACCOUNT "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define OTHER "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define DAY_MS ((int64_t)24 * 3600 * 1000)

/* ------------------------------------------------------------------------ the rules */

static struct berth_snapshot_row rows[2];
static struct ledger ledger;
static struct berth_image_pointer booted;

/* Everything as it is when a flip may be: generation 3 is live and was booted, row r4 of
 * operation op1 is active, the lock is ours. */
static void set_up(void)
{
    memset(rows, 0, sizeof rows);
    booted = (struct berth_image_pointer){
        .snapshot_id = "snap-3", .generation = 3, .row_id = "r3", .account = ACCOUNT};
    rows[0] = (struct berth_snapshot_row){.row_id = "r3",
                                          .origin = "skills",
                                          .state = "active",
                                          .snapshot_id = "snap-3",
                                          .generation = 3,
                                          .account = ACCOUNT,
                                          .operation_id = "op0"};
    rows[1] = (struct berth_snapshot_row){.row_id = "r4",
                                          .origin = "skills",
                                          .state = "active",
                                          .snapshot_id = "snap-4",
                                          .generation = 4,
                                          .base_generation = 3,
                                          .account = ACCOUNT,
                                          .operation_id = OP};
    ledger =
        (struct ledger){.config = {.exists = true,
                                   .state = "active",
                                   .account = ACCOUNT,
                                   .image = booted,
                                   .next_generation = 5},
                        .rows = rows,
                        .n_rows = 2,
                        .lock = (char *)"{\"op\":\"op1\",\"owner\":\"me\",\"until_ms\":9}"};
}

static enum image_verdict judge(void)
{
    const struct image_claim claim = {.operation_id = OP,
                                      .owner = "me",
                                      .booted = &booted,
                                      .account = ACCOUNT,
                                      .row_id = "r4"};

    return image_judge_flip(&ledger, &claim);
}

/* Each thing that the flip compares, changed by itself, refuses it. */
START_TEST(judge_flip__one_thing_changed__refused)
{
    ck_assert_int_eq(judge(), IMAGE_MAY_FLIP);
    ledger.config.image.generation = 4;
    ck_assert_int_eq(judge(), IMAGE_MOVED);
    set_up();
    snprintf(ledger.config.image.snapshot_id, 8, "snap-x");
    ck_assert_int_eq(judge(), IMAGE_MOVED);
    set_up();
    ledger.config.image = (struct berth_image_pointer){0};
    ck_assert_int_eq(judge(), IMAGE_MOVED);
    set_up();
    ledger.lock = (char *)"{\"op\":\"op1\",\"owner\":\"somebody\",\"until_ms\":9}";
    ck_assert_int_eq(judge(), IMAGE_LOCK_LOST);
    ledger.lock = (char *)"{\"op\":\"op2\",\"owner\":\"me\",\"until_ms\":9}";
    ck_assert_int_eq(judge(), IMAGE_LOCK_LOST);
    ledger.lock = (char *)"";
    ck_assert_int_eq(judge(), IMAGE_LOCK_LOST);
    set_up();
    snprintf(ledger.config.account, sizeof ledger.config.account, OTHER);
    ck_assert_int_eq(judge(), IMAGE_ACCOUNT_CHANGED);
    ledger.config.account[0] = 0;
    ck_assert_int_eq(judge(), IMAGE_ACCOUNT_CHANGED);
    set_up();
    snprintf(ledger.config.state, sizeof ledger.config.state, "deleting");
    ck_assert_int_eq(judge(), IMAGE_NO_CONFIG);
    set_up();
    snprintf(ledger.config.image.operation_id, 4, OP);
    ledger.lock = (char *)"";
    ck_assert_int_eq(judge(), IMAGE_IS_FLIPPED);
}
END_TEST

/* A row that is not there, not active, without a snapshot or another operation's makes no
 * image. */
START_TEST(judge_flip__row_not_active__refused)
{
    static const char *const states[] = {"building", "superseded", "deleted", "abandoned"};

    for (size_t i = 0; i < BERTH_COUNT(states); i++) {
        set_up();
        snprintf(rows[1].state, sizeof rows[1].state, "%s", states[i]);
        ck_assert_int_eq(judge(), IMAGE_ROW_LOST);
    }
    set_up();
    rows[1].snapshot_id[0] = 0;
    ck_assert_int_eq(judge(), IMAGE_ROW_LOST);
    set_up();
    rows[1].operation_id[0] = 'x';
    ck_assert_int_eq(judge(), IMAGE_ROW_LOST);
    set_up();
    ledger.n_rows = 1;
    ck_assert_int_eq(judge(), IMAGE_ROW_LOST);
}
END_TEST

/* After a crash: what the ledger says decides, in every state that it can be found in. */
START_TEST(judge_start__each_state__goes_on_from_the_ledger)
{
    ck_assert_int_eq(image_judge_start(&ledger, OP, ""), IMAGE_START_ANEW);
    ck_assert_int_eq(image_judge_start(&ledger, OP, "r9"), IMAGE_START_ANEW);
    ck_assert_int_eq(image_judge_start(&ledger, OP, "r3"), IMAGE_START_ANEW); /* another's */
    ck_assert_int_eq(image_judge_start(&ledger, OP, "r4"), IMAGE_START_FLIP);
    ledger.config.image.generation = 7; /* somebody was faster, or it was healed */
    ck_assert_int_eq(image_judge_start(&ledger, OP, "r4"), IMAGE_START_ANEW);
    set_up();
    snprintf(ledger.config.account, sizeof ledger.config.account, OTHER);
    ck_assert_int_eq(image_judge_start(&ledger, OP, "r4"), IMAGE_START_ANEW);
    set_up();
    snprintf(rows[1].state, sizeof rows[1].state, "building");
    rows[1].snapshot_id[0] = 0;
    ck_assert_int_eq(image_judge_start(&ledger, OP, "r4"), IMAGE_START_SETTLE);
    snprintf(rows[1].state, sizeof rows[1].state, "abandoned");
    ck_assert_int_eq(image_judge_start(&ledger, OP, "r4"), IMAGE_START_ANEW);
    snprintf(ledger.config.image.operation_id, 4, OP);
    ck_assert_int_eq(image_judge_start(&ledger, OP, "r4"), IMAGE_START_ENDED);
    ck_assert_int_eq(image_judge_start(&ledger, OP, ""), IMAGE_START_ENDED);
}
END_TEST

/* Layers beyond what the skills are worth, or beyond all measure, are built anew. */
START_TEST(is_bloated__grown_past_a_limit__from_base)
{
    struct image_growth growth = {.factor = 4, .slack_bytes = 100, .max_bytes = 0};
    struct berth_snapshot_row live = {.image_bytes = 499, .skills_bytes = 100};

    ck_assert(!image_is_bloated(&live, &growth));
    live.image_bytes = 504;
    ck_assert(image_is_bloated(&live, &growth));
    growth.factor = 0;
    ck_assert(!image_is_bloated(&live, &growth));
    growth.max_bytes = 503;
    ck_assert(image_is_bloated(&live, &growth));
    live.skills_bytes = 400; /* they are worth it */
    ck_assert(!image_is_bloated(&live, &growth));
    live = (struct berth_snapshot_row){0}; /* not known */
    growth.factor = 4;
    ck_assert(!image_is_bloated(&live, &growth));
}
END_TEST

/* Several rows may name one snapshot: it is kept for the last of them, and the live one. */
START_TEST(ledger__rows_that_share_a_snapshot__known)
{
    ck_assert(!ledger_is_shared(&ledger, &rows[0]));
    snprintf(rows[1].snapshot_id, sizeof rows[1].snapshot_id, "snap-3");
    ck_assert(ledger_is_shared(&ledger, &rows[0]));
    snprintf(rows[1].state, sizeof rows[1].state, "deleted");
    ck_assert(!ledger_is_shared(&ledger, &rows[0]));
    ck_assert(ledger_is_live(&ledger, &rows[0]));
    ledger.config.image.snapshot_id[0] = 0; /* it is gone; what it held is wanted still */
    ck_assert(ledger_is_live(&ledger, &rows[0]));
    ck_assert(!ledger_is_live(&ledger, &rows[1]));
    ck_assert_ptr_eq(ledger_find_generation(&ledger, 3), &rows[0]);
    ck_assert_ptr_null(ledger_find_generation(&ledger, 0));
}
END_TEST

/* Names fit the backend's rule, whatever the ids. */
START_TEST(image_name__longest__below_64)
{
    char name[LEDGER_NAME_SIZE], id[129];

    memset(id, 'x', 128);
    id[128] = 0;
    ledger_image_name(name, id, id, 123456789, "0123456789abcdef");
    ck_assert_uint_lt(strlen(name), 64);
    ck_assert_ptr_nonnull(strstr(name, "-g123456789-0123456789abcdef"));
    ck_assert_int_eq(strncmp(name, "berth-sk-", 9), 0);
}
END_TEST

/* ------------------------------------------------------------------------- the list */

static void judge_bundle(const char *name, struct bundle_verdict *ret)
{
    const struct skill_bundle *skill = skill_bundle_find(name);
    size_t size;
    BERTH_AUTO(free)
    void *data = pack_archive(PACK_TAR, skill->files, skill->n_files, 1700000000, NULL, &size);
    const struct bundle_source source = {.fd = -1, .data = data, .size = size};

    *ret = (struct bundle_verdict){0};
    ck_assert_int_eq(bundle_judge(&source, pack_spool(), NULL, NULL, ret, NULL), BERTH_OK);
    ck_assert(ret->is_accepted);
}

static void end_bundle(struct bundle_verdict *verdict)
{
    close(verdict->bundle.spool_fd);
    bundle_verdict_deinit(verdict);
}

/* In order, one of a name, and shown as SKILL.md said it. */
START_TEST(list__put_find_remove__one_of_each_name)
{
    json_t *list = json_array(), *warnings = json_pack("[{s:s,s:s,s:s,s:i}]", "code", "X",
                                                       "file", "f", "message", "m", "line", 3);
    struct bundle_verdict verdict;
    Berth__Skills__V1__Skill *shown;
    char *text = NULL;

    judge_bundle(skill_bundles[0].name, &verdict);
    ck_assert(image_put(list, json_pack("{s:s}", "name", "zz")));
    ck_assert(image_put(list, json_pack("{s:s}", "name", "zz")));
    ck_assert(image_put(list, image_skill(&verdict, warnings, OP, 4, 1000)));
    ck_assert_uint_eq(json_array_size(list), 2);
    shown = image_show("t", "c", image_find(list, verdict.skill.name));
    ck_assert_str_eq(shown->name, verdict.skill.name);
    ck_assert_str_eq(shown->operation_id, OP);
    ck_assert_uint_eq(shown->generation, 4);
    ck_assert_uint_eq(shown->bundle_sha256.len, 32);
    ck_assert_int_eq(memcmp(shown->bundle_sha256.data, verdict.digest, 32), 0);
    ck_assert_uint_eq(shown->n_warnings, 1);
    ck_assert_uint_eq(shown->warnings[0]->line, 3);
    ck_assert_uint_gt(strlen(shown->description), 0);
    protobuf_c_message_free_unpacked(&shown->base, NULL);
    ck_assert_int_eq(image_format(list, &text, NULL), BERTH_OK);
    free(text);
    ck_assert(image_remove(list, verdict.skill.name));
    ck_assert(!image_remove(list, verdict.skill.name));
    for (int i = 0; i < LEDGER_SKILLS_MAX; i++)
        ck_assert(image_put(list, json_pack("{s:o}", "name", json_sprintf("s%d", i))));
    ck_assert_int_eq(image_format(list, &text, NULL), BERTH_RESOURCE_EXHAUSTED);
    json_decref(warnings);
    json_decref(list);
    end_bundle(&verdict);
}
END_TEST

/* -------------------------------------------------------------------------- the store */

static char folder[64];
static struct skills_blobs *blobs;

static void open_store(void)
{
    char command[16];

    snprintf(folder, sizeof folder, "/tmp/berth-test-blobs-%s", berth_id_base36(command, 12));
    ck_assert_int_eq(skills_blobs_new(folder, &blobs, NULL), BERTH_OK);
}

static void remove_tree(int parent, const char *name)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;

    while (dir && (entry = readdir(dir)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            unlinkat(fd, entry->d_name, 0) < 0)
            remove_tree(fd, entry->d_name);
    if (dir)
        closedir(dir);
    unlinkat(parent, name, AT_REMOVEDIR);
}

static void close_store(void)
{
    blobs = skills_blobs_free(blobs);
    remove_tree(AT_FDCWD, folder);
}

static bool keep_it(void *arg, const char *digest)
{
    return strcmp(digest, arg) == 0;
}

/* What is put in is judged the same when it is taken out: same content, same name. */
START_TEST(blobs__put_and_open__same_bundle)
{
    struct bundle_verdict verdict, again = {0};
    char digest[65];
    uint64_t size;
    int fd;

    judge_bundle(skill_bundles[0].name, &verdict);
    berth_hex(digest, verdict.digest, 32);
    ck_assert_int_eq(skills_blobs_open(blobs, "t1", digest, &fd, &size, NULL), BERTH_NOT_FOUND);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(
            skills_blobs_put(blobs, "t1", &verdict.bundle, verdict.skill.name, digest, NULL),
            BERTH_OK);
    ck_assert_int_eq(skills_blobs_open(blobs, "t2", digest, &fd, &size, NULL), BERTH_NOT_FOUND);
    ck_assert_int_eq(skills_blobs_open(blobs, "t1", digest, &fd, &size, NULL), BERTH_OK);
    ck_assert_int_eq(bundle_judge(&(struct bundle_source){.fd = fd, .size = size}, pack_spool(),
                                  NULL, NULL, &again, NULL),
                     BERTH_OK);
    ck_assert(again.is_accepted);
    ck_assert_int_eq(memcmp(again.digest, verdict.digest, 32), 0);
    ck_assert_str_eq(again.skill.name, verdict.skill.name);
    close(fd);
    end_bundle(&again);
    end_bundle(&verdict);
}
END_TEST

/* What is named, or young, stays; the rest goes, and the folder with the last of it. */
START_TEST(blobs__sweep__only_old_and_unnamed)
{
    struct bundle_verdict verdict;
    int64_t later_ms = berth_now_ms() + DAY_MS;
    char digest[65];
    uint64_t size;
    int fd;

    judge_bundle(skill_bundles[0].name, &verdict);
    berth_hex(digest, verdict.digest, 32);
    ck_assert_int_eq(skills_blobs_put(blobs, "t1", &verdict.bundle, "x", digest, NULL),
                     BERTH_OK);
    skills_log_add(blobs, "t1", "op1", "hello ", 6);
    skills_log_add(blobs, "t1", "op1", "world", 5);
    ck_assert_int_eq(skills_log_open(blobs, "t1", "op1", &fd, &size, NULL), BERTH_OK);
    close(fd);
    ck_assert_uint_eq(size, 11);
    ck_assert_uint_eq(skills_blobs_sweep(blobs, "t1", 0, 0, keep_it, (void *)""), 0);
    ck_assert_uint_eq(skills_blobs_sweep(blobs, "t1", later_ms, 0, keep_it, digest), 0);
    ck_assert_uint_eq(skills_blobs_sweep(blobs, "t1", later_ms, later_ms, keep_it, (void *)""),
                      2);
    ck_assert_int_eq(skills_blobs_open(blobs, "t1", digest, &fd, &size, NULL), BERTH_NOT_FOUND);
    ck_assert_int_eq(skills_log_open(blobs, "t1", "op1", &fd, &size, NULL), BERTH_NOT_FOUND);
    end_bundle(&verdict);
}
END_TEST

/* A folder that others may look into is not used. */
START_TEST(blobs__open_to_others__refused)
{
    struct skills_blobs *other;
    struct berth_error err = {0};

    ck_assert_int_eq(chmod(folder, 0755), 0);
    ck_assert_int_eq(skills_blobs_new(folder, &other, &err), BERTH_INVALID_ARGUMENT);
    ck_assert_str_eq(err.field, "blob_dir");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("skills/image");
    TCase *rules = tcase_create("rules"), *store = tcase_create("store");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(rules, set_up, NULL);
    tcase_add_test(rules, judge_flip__one_thing_changed__refused);
    tcase_add_test(rules, judge_flip__row_not_active__refused);
    tcase_add_test(rules, judge_start__each_state__goes_on_from_the_ledger);
    tcase_add_test(rules, is_bloated__grown_past_a_limit__from_base);
    tcase_add_test(rules, ledger__rows_that_share_a_snapshot__known);
    tcase_add_test(rules, image_name__longest__below_64);
    tcase_add_test(rules, list__put_find_remove__one_of_each_name);
    suite_add_tcase(suite, rules);
    tcase_add_checked_fixture(store, open_store, close_store);
    tcase_add_test(store, blobs__put_and_open__same_bundle);
    tcase_add_test(store, blobs__sweep__only_old_and_unnamed);
    tcase_add_test(store, blobs__open_to_others__refused);
    suite_add_tcase(suite, store);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
