/* main.h - the end of each test program: run one case and turn it into an exit code. */
#pragma once

#include <check.h>
#include <stdlib.h>

static inline int run_case(const char *suite_name, TCase *tcase)
{
    Suite *suite = suite_create(suite_name);
    SRunner *runner = srunner_create(suite);
    int failed;

    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
