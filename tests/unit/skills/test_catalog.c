/* test_catalog.c - which skills are shown how, which snapshots may go, and SKILL.md out of a
 * stored bundle. */
#include "tests/unit/base/main.h"

#include <stdio.h>

#include "common/ids/ids.h"
#include "common/messages/messages.h"
#include "services/skills/blobs.h"
#include "services/skills/bundle/judge.h"
#include "services/skills/catalog.h"
#include "services/skills/image.h"
#include "services/skills/prune.h"
#include "tests/lib/skill_bundles.h"

#define KIND(name) BERTH__SKILLS__V1__OPERATION_KIND__OPERATION_KIND_##name
#define OP_STATE(name) BERTH__SKILLS__V1__OPERATION_STATE__OPERATION_STATE_##name
#define STATE(name) BERTH__SKILLS__V1__SKILL_STATE__SKILL_STATE_##name
#define DAY_MS ((int64_t)24 * 60 * 60 * 1000)

/* ------------------------------------------------------------------------- merge */

/* Each skill of "in" is in the image; the operations are told in the order of
 * operation_list(). */
static const struct {
    const char *what;
    int kind, op_state;
    const char *skill;
    int wanted; /* state of `skill`; 0: it is not shown */
    bool has_error;
} merges[] = {
    {"installs a new one", KIND(INSTALL), OP_STATE(QUEUED), "new", STATE(INSTALLING), false},
    {"is installing one", KIND(INSTALL), OP_STATE(RUNNING), "new", STATE(INSTALLING), false},
    {"could not install it", KIND(INSTALL), OP_STATE(FAILED), "new", STATE(FAILED), true},
    {"another version comes", KIND(INSTALL), OP_STATE(RUNNING), "in", STATE(READY), false},
    {"another did not come", KIND(INSTALL), OP_STATE(FAILED), "in", STATE(READY), true},
    {"goes", KIND(UNINSTALL), OP_STATE(QUEUED), "in", STATE(REMOVING), false},
    {"did not go", KIND(UNINSTALL), OP_STATE(FAILED), "in", STATE(READY), true},
    {"was cancelled", KIND(INSTALL), OP_STATE(CANCELLED), "new", 0, false},
    {"is about no skill", KIND(REBUILD), OP_STATE(RUNNING), "", 0, false},
};

START_TEST(catalog_merge__each_row__as_the_table_says)
{
    for (size_t i = 0; i < BERTH_COUNT(merges); i++) {
        struct operation operation = {.kind = merges[i].kind,
                                      .state = merges[i].op_state,
                                      .operation_id = "op1",
                                      .reason = "DEADLINE"};
        json_t *list = json_pack("[{s:s}]", "name", "in");
        struct catalog_skill *all;
        int state = 0;
        size_t n;

        snprintf(operation.skill_name, sizeof operation.skill_name, "%s", merges[i].skill);
        all = catalog_merge(list, &operation, 1, &n);
        ck_assert_ptr_nonnull(all);
        for (size_t k = 0; k < n; k++) {
            Berth__Skills__V1__Skill *shown = catalog_show("t", "c", &all[k]);

            ck_assert_ptr_nonnull(shown);
            if (strcmp(shown->name, merges[i].skill) == 0) {
                state = (int)shown->state;
                ck_assert_msg((*shown->error != 0) == merges[i].has_error, "%s: error '%s'",
                              merges[i].what, shown->error);
                ck_assert_str_eq(shown->operation_id, "op1");
            }
            berth_message_free(shown);
        }
        ck_assert_msg(state == merges[i].wanted, "%s: %d", merges[i].what, state);
        free(all);
        json_decref(list);
    }
}
END_TEST

/* By name, each once; what runs or waits tells more than what failed before. */
START_TEST(catalog_merge__several_of_one_skill__one_line)
{
    struct operation operations[2] = {
        {.kind = KIND(UNINSTALL),
         .state = OP_STATE(QUEUED),
         .skill_name = "b",
         .operation_id = "later"},
        {.kind = KIND(INSTALL),
         .state = OP_STATE(FAILED),
         .skill_name = "b",
         .operation_id = "earlier"},
    };
    json_t *list = json_pack("[{s:s},{s:s}]", "name", "c", "name", "b");
    size_t n;
    struct catalog_skill *all = catalog_merge(list, operations, 2, &n);

    ck_assert_uint_eq(n, 2);
    ck_assert_str_eq(all[0].name, "b");
    ck_assert_str_eq(all[0].operation->operation_id, "later");
    ck_assert_str_eq(all[1].name, "c");
    free(all);
    json_decref(list);
}
END_TEST

/* ------------------------------------------------------------------------- prune */

static struct berth_snapshot_row prunable(void)
{
    return (struct berth_snapshot_row){.row_id = "r1",
                                       .snapshot_id = "snap-1",
                                       .origin = "skills",
                                       .state = "superseded",
                                       .account = "aa",
                                       .generation = 1,
                                       .supersede_ms = 0};
}

/* All that keeps a snapshot, one at a time. */
START_TEST(prune_judge__each_obstacle__kept)
{
    struct berth_snapshot_row rows[2] = {prunable(), {.row_id = "r2", .state = "active"}};
    struct ledger ledger = {.config = {.account = "aa", .image = {.row_id = "r2"}},
                            .rows = rows,
                            .n_rows = 2,
                            .now_ms = 8 * DAY_MS};
    struct berth_snapshot_row *row = &rows[0];

    ck_assert_int_eq(prune_judge(&ledger, row, 7 * DAY_MS, false), PRUNE_SUPERSEDED);
    ck_assert_int_eq(prune_judge(&ledger, row, 7 * DAY_MS, true), PRUNE_IN_USE);
    ck_assert_int_eq(prune_judge(&ledger, row, 8 * DAY_MS + 1, false), PRUNE_TOO_YOUNG);
    snprintf(ledger.config.account, sizeof ledger.config.account, "bb");
    ck_assert_int_eq(prune_judge(&ledger, row, 0, false), PRUNE_ACCOUNT_CHANGED);
    snprintf(ledger.config.account, sizeof ledger.config.account, "aa");
    snprintf(rows[1].snapshot_id, sizeof rows[1].snapshot_id, "snap-1");
    ck_assert_int_eq(prune_judge(&ledger, row, 0, false), PRUNE_SHARED);
    /* Both have had their time: the older row goes first, then the other one. */
    ledger.config.image.row_id[0] = 0;
    rows[1] = prunable();
    rows[1].generation = 2;
    snprintf(rows[1].row_id, sizeof rows[1].row_id, "r2");
    ck_assert_int_eq(prune_judge(&ledger, row, 0, false), PRUNE_SUPERSEDED);
    ck_assert_int_eq(prune_judge(&ledger, &rows[1], 0, false), PRUNE_SHARED);
    snprintf(row->state, sizeof row->state, "deleted");
    ck_assert_int_eq(prune_judge(&ledger, &rows[1], 0, false), PRUNE_SUPERSEDED);
    snprintf(row->state, sizeof row->state, "superseded");
    snprintf(ledger.config.image.snapshot_id, sizeof ledger.config.image.snapshot_id, "snap-1");
    ck_assert_int_eq(prune_judge(&ledger, row, 0, false), PRUNE_LIVE);
    rows[1].snapshot_id[0] = ledger.config.image.snapshot_id[0] = 0;
    snprintf(ledger.config.image.row_id, sizeof ledger.config.image.row_id, "r1");
    ck_assert_int_eq(prune_judge(&ledger, row, 0, false), PRUNE_LIVE);
    ledger.config.image.row_id[0] = 0;
    snprintf(row->state, sizeof row->state, "active");
    ck_assert_int_eq(prune_judge(&ledger, row, 0, false), PRUNE_LIVE);
    snprintf(row->state, sizeof row->state, "building");
    ck_assert_int_eq(prune_judge(&ledger, row, 0, false), PRUNE_BUILDING);
    snprintf(row->state, sizeof row->state, "deleted");
    ck_assert_int_eq(prune_judge(&ledger, row, 0, false), PRUNE_CONDEMNED);
    snprintf(row->state, sizeof row->state, "abandoned");
    ck_assert_int_eq(prune_judge(&ledger, row, 0, false), PRUNE_NOT_OURS);
    *row = prunable();
    snprintf(row->origin, sizeof row->origin, "user");
    ck_assert_int_eq(prune_judge(&ledger, row, 0, false), PRUNE_NOT_OURS);
}
END_TEST

/* ------------------------------------------------------------------ instructions */

/* What stands behind the frontmatter of the stored SKILL.md, whatever else the bundle has. */
START_TEST(catalog_instructions__stored_bundle__markdown_of_skill_md)
{
    static const struct pack_file files[] = {
        {"A/SKILL.md", "---\nname: not-this\ndescription: d\n---\nwrong\n", 0, 0, 0, false},
        {"SKILL.md", "---\nname: demo\ndescription: d\n---\n\n# Do it\n\nso <b>\n", 0, 0, 0,
         false},
        {"z.txt", "z", 0, 0, 0, false},
    };
    char dir[] = "/tmp/berth-catalog-XXXXXX", command[64], hex[65];
    struct bundle_verdict verdict = {0};
    struct bundle_source source = {0};
    struct skills skills = {0};
    char *text = NULL;
    struct berth_error err = {0};
    int spool = pack_spool();
    size_t size;
    void *archive = pack_archive(PACK_TAR, files, BERTH_COUNT(files), 0, NULL, &size);

    ck_assert_ptr_nonnull(mkdtemp(dir));
    source = (struct bundle_source){.fd = -1, .data = archive, .size = size};
    ck_assert_int_eq(bundle_judge(&source, spool, NULL, NULL, &verdict, NULL), BERTH_OK);
    ck_assert(verdict.is_accepted);
    berth_hex(hex, verdict.digest, sizeof verdict.digest);
    ck_assert_int_eq(skills_blobs_new(dir, &skills.blobs, NULL), BERTH_OK);
    ck_assert_int_eq(
        skills_blobs_put(skills.blobs, "t1", &verdict.bundle, verdict.skill.name, hex, NULL),
        BERTH_OK);
    ck_assert_msg(catalog_instructions(&skills, "t1", hex, "demo", &text, &err) == BERTH_OK,
                  "%s", err.text);
    ck_assert_str_eq(text, "# Do it\n\nso <b>");
    free(text);
    (void)!catalog_instructions(&skills, "t2", hex, "demo", &text, &err);
    ck_assert_int_eq(err.reason, BERTH_REASON_FILE_NOT_FOUND);
    skills_blobs_free(skills.blobs);
    bundle_verdict_deinit(&verdict);
    close(spool);
    free(archive);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    ck_assert_int_eq(pclose(popen(command, "r")), 0);
}
END_TEST

int main(void)
{
    TCase *all = tcase_create("catalog");

    tcase_add_test(all, catalog_merge__each_row__as_the_table_says);
    tcase_add_test(all, catalog_merge__several_of_one_skill__one_line);
    tcase_add_test(all, prune_judge__each_obstacle__kept);
    tcase_add_test(all, catalog_instructions__stored_bundle__markdown_of_skill_md);
    return run_case("catalog", all);
}
