#include <check.h>
#include <stdio.h>

#include "common/base/base.h"
#include "services/adapter-local/spawner/sources.h"

static const struct {
    const char *what, *text;
    int deb822;
    unsigned n;
    const char *out;
} rows[] = {
    {"one line", "deb http://mirror/debian bookworm main\n", 0, 1,
     "deb http://mirror/debian bookworm  main\n"},
    {"options kept", "deb [signed-by=/k.gpg arch=amd64] http://m/d bookworm main contrib\n", 0,
     1, "deb [signed-by=/k.gpg arch=amd64] http://m/d bookworm  main contrib\n"},
    {"sources and comments left out",
     "# deb http://m bookworm main\ndeb-src http://m bookworm main\n", 0, 0, ""},
    {"third parties left out",
     "deb http://x stable main\ndeb http://y bookworm-backports main\n", 0, 0, ""},
    {"updates and security",
     "deb http://m bookworm-updates main\ndeb http://s bookworm-security main\n", 0, 2,
     "deb http://m bookworm-updates  main\ndeb http://s bookworm-security  main\n"},
    {"broken option", "deb [signed-by=/k http://m bookworm main\n", 0, 0, ""},
    {"stanza",
     "Types: deb\n# a comment\nURIs: http://m/debian\nSuites: bookworm bookworm-updates\n"
     "Components: main\nSigned-By: /usr/share/keyrings/k.gpg\n",
     1, 2,
     "deb [signed-by=/usr/share/keyrings/k.gpg] http://m/debian bookworm main\n"
     "deb [signed-by=/usr/share/keyrings/k.gpg] http://m/debian bookworm-updates main\n"},
    {"stanzas",
     "Types: deb deb-src\nURIs: http://a http://b\nSuites: bookworm\nComponents: main\n\n"
     "Types: deb\nURIs: http://node\nSuites: nodistro\nComponents: main\n",
     1, 2, "deb http://a bookworm main\ndeb http://b bookworm main\n"},
    {"disabled",
     "Types: deb\nEnabled: no\nURIs: http://a\nSuites: bookworm\nComponents: main\n", 1, 0, ""},
    {"key inside",
     "Types: deb\nURIs: http://a\nSuites: bookworm\nComponents: main\nSigned-By:\n "
     "-----BEGIN\n .\n",
     1, 1, "deb http://a bookworm main\n"},
    {"empty", "", 1, 0, ""},
    {"only colons", ":\n:::\n: :\n", 1, 0, ""},
};

START_TEST(sources_select__text__entries_of_the_release)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    unsigned n = sources_select(rows[_i].text, rows[_i].deb822, "bookworm", out);

    fclose(out);
    ck_assert_msg(n == rows[_i].n, "%s: %u", rows[_i].what, n);
    ck_assert_str_eq(text, rows[_i].out);
    free(text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("local/sources");
    TCase *tcase = tcase_create("sources");
    SRunner *runner;
    int failed;

    tcase_add_loop_test(tcase, sources_select__text__entries_of_the_release, 0,
                        (int)BERTH_COUNT(rows));
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
