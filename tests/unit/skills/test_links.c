/* test_links.c - where links of a skill may lead. */
#include <check.h>
#include <stdlib.h>

#include "common/base/base.h"
#include "services/skills/work/links.h"

static const struct {
    const char *path, *target;
    enum link_verdict verdict;
} rows[] = {
    {"pdf/.venv/bin/python3", "/usr/bin/python3", LINK_SYSTEM},
    {"pdf/.venv/bin/python", "python3", LINK_INSIDE},
    {"pdf/.venv/lib64", "lib", LINK_INSIDE},
    {"pdf/node_modules/.bin/x", "../x/cli.js", LINK_INSIDE},
    {"pdf/a", ".", LINK_INSIDE},
    {"pdf/a/b", "..", LINK_INSIDE},
    {"pdf/a/b", "./../c", LINK_INSIDE},
    {"pdf/a", "/opt/berth/skills/pdf/b", LINK_INSIDE},
    {"pdf/a", "/opt//berth/./skills/pdf", LINK_INSIDE},
    {"pdf/a", "/dev/null", LINK_SYSTEM},
    {"pdf/a", "/etc/ssl/certs/ca-certificates.crt", LINK_SYSTEM},
    {"pdf/a", "../../../../usr/bin/env", LINK_SYSTEM},
    {"pdf/a", "../../../../../../../../usr/bin/env", LINK_SYSTEM},
    /* out of the skill, by any spelling */
    {"pdf/a", "..", LINK_OUTSIDE},
    {"pdf/a", "../pdf2/x", LINK_OUTSIDE},
    {"pdf/a", "../pdf-tools", LINK_OUTSIDE},
    {"pdf/a", "/opt/berth/skills/pdf-tools/x", LINK_OUTSIDE},
    {"pdf/a", "/opt/berth/skills", LINK_OUTSIDE},
    {"pdf/a", "/opt/berth/.work/id", LINK_OUTSIDE},
    {"pdf/a", "/etc/shadow", LINK_OUTSIDE},
    {"pdf/a", "/etc/ssl/certs/../../shadow", LINK_WINDING},
    {"pdf/a", "/usr/../etc/shadow", LINK_WINDING},
    {"pdf/a", "/usr", LINK_OUTSIDE},
    {"pdf/a", "/usrlocal/x", LINK_OUTSIDE},
    {"pdf/a", "/", LINK_OUTSIDE},
    {"pdf/a", "/proc/self/root", LINK_OUTSIDE},
    {"pdf/a", "/workspace/x", LINK_OUTSIDE},
    {"pdf/a", "/tmp/x", LINK_OUTSIDE},
    {"pdf/a", "/home/user/x", LINK_OUTSIDE},
    {"pdf/a", "/dev/nullx", LINK_OUTSIDE},
    {"pdf/a/b", "../../x", LINK_OUTSIDE},
    /* "up" of a link is not what its text says */
    {"pdf/a", "b/../../x", LINK_WINDING},
    {"pdf/a", "b/..", LINK_WINDING},
    {"pdf/a", "./b/./../c", LINK_WINDING},
    /* a skill that is a link itself */
    {"pdf", "/usr/share/pdf", LINK_OUTSIDE},
    {"pdf", "other", LINK_OUTSIDE},
    {"pdf/a", "", LINK_OUTSIDE},
};

/* Each spelling, and what it comes to. */
START_TEST(link_judge__every_spelling__inside_system_or_neither)
{
    enum link_verdict got = link_judge(rows[_i].path, rows[_i].target);

    ck_assert_msg(got == rows[_i].verdict, "%s -> %s: %d, not %d", rows[_i].path,
                  rows[_i].target, (int)got, (int)rows[_i].verdict);
}
END_TEST

/* One that is longer than any path is outside. */
START_TEST(link_judge__endless__outside)
{
    static char target[20000];

    memset(target, 'a', sizeof target - 1);
    ck_assert_int_eq(link_judge("pdf/a", target), LINK_OUTSIDE);
    for (size_t i = 0; i + 3 < sizeof target; i += 3)
        memcpy(target + i, "../", 3);
    ck_assert_int_eq(link_judge("pdf/a", target), LINK_OUTSIDE);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("links");
    TCase *tc = tcase_create("all");
    SRunner *runner;
    int failed;

    tcase_add_loop_test(tc, link_judge__every_spelling__inside_system_or_neither, 0,
                        (int)BERTH_COUNT(rows));
    tcase_add_test(tc, link_judge__endless__outside);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
