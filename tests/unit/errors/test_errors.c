#include <check.h>

#include "common/errors/errors.h"

/* A reason fixes its code, and the name goes both ways. */
START_TEST(berth_fail__reason__code_name_and_text)
{
    struct berth_error err = {0};

    ck_assert_int_eq(berth_fail(&err, BERTH_REASON_LOCK_LOST, "by %s", "b"), BERTH_ABORTED);
    ck_assert_int_eq(err.code, BERTH_ABORTED);
    ck_assert_str_eq(err.text, "by b");
    ck_assert_str_eq(berth_reason_name(err.reason), "LOCK_LOST");
    ck_assert_int_eq(berth_reason_from_name("LOCK_LOST"), BERTH_REASON_LOCK_LOST);
    ck_assert_int_eq(berth_reason_from_name("NO_SUCH"), BERTH_REASON_NONE);
    ck_assert_int_eq(berth_reason_from_name(NULL), BERTH_REASON_NONE);
}
END_TEST

/* Every reason has a code that is a failure, a name and a text. */
START_TEST(reasons__each__complete)
{
    enum berth_reason reason = (enum berth_reason)_i;

    ck_assert_int_ne(berth_reason_code(reason), BERTH_OK);
    ck_assert_str_ne(berth_reason_name(reason), "");
    ck_assert_str_ne(berth_reason_text(reason), "");
    ck_assert_int_eq(berth_reason_from_name(berth_reason_name(reason)), reason);
}
END_TEST

/* A field error names the field and the rule, in the text as well. */
START_TEST(berth_fail_field__named__field_and_rule)
{
    struct berth_error err = {0};

    ck_assert_int_eq(berth_fail_field(&err, "session.tenant_id", "1..%d characters", 128),
                     BERTH_INVALID_ARGUMENT);
    ck_assert_str_eq(err.field, "session.tenant_id");
    ck_assert_str_eq(err.rule, "1..128 characters");
    ck_assert_str_eq(err.text, "session.tenant_id: 1..128 characters");
}
END_TEST

/* wrap keeps the reason and cuts long text with an ellipsis. */
START_TEST(berth_wrap__long_text__cut)
{
    struct berth_error err = {0};
    char big[1000];

    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = 0;
    ck_assert_int_eq(berth_fail(&err, BERTH_REASON_LOCK_LOST, "%s", big), BERTH_ABORTED);
    ck_assert_uint_eq(strlen(err.text), sizeof err.text - 1);
    ck_assert_str_eq(err.text + strlen(err.text) - 3, "...");
    ck_assert_int_eq(berth_wrap(&err, err.code, "outer %d", 1), BERTH_ABORTED);
    ck_assert_int_eq(err.reason, BERTH_REASON_LOCK_LOST);
    ck_assert(strncmp(err.text, "outer 1: xxx", 12) == 0);
}
END_TEST

/* Callers that do not care may pass no buffer. */
START_TEST(berth_fail__no_buffer__code_only)
{
    ck_assert_int_eq(berth_fail(NULL, BERTH_REASON_DISK_FULL, NULL), BERTH_RESOURCE_EXHAUSTED);
    ck_assert_int_eq(berth_wrap(NULL, BERTH_ABORTED, "x"), BERTH_ABORTED);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("common/errors");
    TCase *tcase = tcase_create("errors");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_test(tcase, berth_fail__reason__code_name_and_text);
    tcase_add_loop_test(tcase, reasons__each__complete, 1, BERTH_N_REASONS);
    tcase_add_test(tcase, berth_fail_field__named__field_and_rule);
    tcase_add_test(tcase, berth_wrap__long_text__cut);
    tcase_add_test(tcase, berth_fail__no_buffer__code_only);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
