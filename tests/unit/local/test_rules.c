#include <check.h>
#include <stdio.h>

#include "common/base/base.h"
#include "services/adapter-local/spawner/rules.h"

enum { HOUR_MS = 3600 * 1000, NOW = 1000 * 1000 * 1000 };

/* Every case of a create: what the key says, what became of its sandbox, who asks. */
static const struct {
    const char *what, *attempt, *id;
    uint64_t key_fence;
    int64_t delete_ms;
    enum key_sandbox sandbox;
    uint64_t sandbox_fence;
    const char *asked_attempt;
    uint64_t asked_fence;
    enum key_verdict verdict;
} rows[] = {
    {"new key", "", "", 0, 0, KEY_SANDBOX_ABSENT, 0, "a", 1, KEY_CREATE},
    {"new key, no fence", "", "", 0, 0, KEY_SANDBOX_ABSENT, 0, "a", 0, KEY_CREATE},
    {"repeat", "a", "s", 5, 0, KEY_SANDBOX_ALIVE, 5, "a", 5, KEY_SAME},
    {"repeat, higher fence", "a", "s", 5, 0, KEY_SANDBOX_ALIVE, 5, "a", 6, KEY_SAME},
    {"repeat, lower fence", "a", "s", 5, 0, KEY_SANDBOX_ALIVE, 5, "a", 4, KEY_STALE},
    {"repeat after a connect", "a", "s", 5, 0, KEY_SANDBOX_ALIVE, 9, "a", 8, KEY_STALE},
    {"repeat, sandbox dead", "a", "s", 5, 0, KEY_SANDBOX_DEAD, 5, "a", 5, KEY_GONE},
    {"repeat, half made", "a", "s", 5, 0, KEY_SANDBOX_ABSENT, 0, "a", 5, KEY_CREATE},
    {"repeat, deleted", "a", "s", 5, 1, KEY_SANDBOX_ABSENT, 0, "a", 5, KEY_GONE},
    {"other attempt", "a", "s", 5, 0, KEY_SANDBOX_ALIVE, 5, "b", 6, KEY_EXISTS},
    {"other attempt, same fence", "a", "s", 5, 0, KEY_SANDBOX_ALIVE, 5, "b", 5, KEY_EXISTS},
    {"other attempt, lower fence", "a", "s", 5, 0, KEY_SANDBOX_ALIVE, 5, "b", 4, KEY_STALE},
    {"other attempt, dead", "a", "s", 5, 0, KEY_SANDBOX_DEAD, 5, "b", 6, KEY_REPLACE},
    {"other attempt, dead, lower fence", "a", "s", 5, 0, KEY_SANDBOX_DEAD, 9, "b", 8,
     KEY_STALE},
    {"other attempt, half made", "a", "s", 5, 0, KEY_SANDBOX_ABSENT, 0, "b", 6, KEY_CREATE},
    {"other attempt, deleted", "a", "s", 5, 1, KEY_SANDBOX_ABSENT, 0, "b", 5, KEY_CREATE},
    {"deleted, lower fence", "a", "s", 5, 1, KEY_SANDBOX_ABSENT, 0, "b", 4, KEY_STALE},
    {"failed create", "a", "", 5, 0, KEY_SANDBOX_ABSENT, 0, "a", 5, KEY_CREATE},
    {"failed create, lower fence", "a", "", 5, 0, KEY_SANDBOX_ABSENT, 0, "b", 4, KEY_STALE},
};

START_TEST(rules_judge_create__every_case__as_the_table_says)
{
    struct key_record key = {.fence = rows[_i].key_fence, .delete_ms = rows[_i].delete_ms};
    enum key_verdict verdict;

    snprintf(key.attempt, sizeof key.attempt, "%s", rows[_i].attempt);
    snprintf(key.sandbox_id, sizeof key.sandbox_id, "%s", rows[_i].id);
    verdict = rules_judge_create(&key, rows[_i].sandbox, rows[_i].sandbox_fence,
                                 rows[_i].asked_fence, rows[_i].asked_attempt);
    ck_assert_msg(verdict == rows[_i].verdict, "%s: %d", rows[_i].what, verdict);
}
END_TEST

/* A key is kept 24 h after its sandbox was deleted, and as long as the sandbox is there. */
START_TEST(rules_key_expired__24_hours_after_delete__and_not_before)
{
    struct key_record deleted = {.sandbox_id = "s", .delete_ms = NOW};
    struct key_record alive = {.sandbox_id = "s"};
    struct key_record failed = {.fence = 1};

    ck_assert(!rules_key_expired(&deleted, KEY_SANDBOX_ABSENT, 0, NOW + 24 * HOUR_MS - 1));
    ck_assert(rules_key_expired(&deleted, KEY_SANDBOX_ABSENT, 0, NOW + 24 * HOUR_MS));
    ck_assert(!rules_key_expired(&alive, KEY_SANDBOX_ALIVE, 0, NOW + 1000LL * HOUR_MS));
    ck_assert(!rules_key_expired(&failed, KEY_SANDBOX_ABSENT, NOW, NOW + 24 * HOUR_MS - 1));
    ck_assert(rules_key_expired(&failed, KEY_SANDBOX_ABSENT, NOW, NOW + 24 * HOUR_MS));
}
END_TEST

START_TEST(rules_fence_passes__lower__refused)
{
    ck_assert(rules_fence_passes(5, 5));
    ck_assert(rules_fence_passes(5, 6));
    ck_assert(!rules_fence_passes(5, 4));
    ck_assert(rules_fence_passes(0, 0));
    ck_assert(!rules_fence_passes(UINT64_MAX, UINT64_MAX - 1));
}
END_TEST

START_TEST(rules_too_late__end_is_inclusive__0_is_never)
{
    ck_assert(!rules_too_late(0, NOW));
    ck_assert(!rules_too_late(NOW, NOW));
    ck_assert(rules_too_late(NOW, NOW + 1));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("local/rules");
    TCase *tcase = tcase_create("rules");
    SRunner *runner;
    int failed;

    tcase_add_loop_test(tcase, rules_judge_create__every_case__as_the_table_says, 0,
                        (int)BERTH_COUNT(rows));
    tcase_add_test(tcase, rules_key_expired__24_hours_after_delete__and_not_before);
    tcase_add_test(tcase, rules_fence_passes__lower__refused);
    tcase_add_test(tcase, rules_too_late__end_is_inclusive__0_is_never);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
