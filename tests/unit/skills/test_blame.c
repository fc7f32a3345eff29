/* test_blame.c - why an installer failed: what pip, uv, npm and apt really print. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/base.h"
#include "services/skills/work/blame.h"

static const struct {
    const char *text;
    enum blame_kind kind;
    const char *package;
} rows[] = {
    {"ERROR: Could not find a version that satisfies the requirement nosuch (from versions: "
     "none)\nERROR: No matching distribution found for nosuch\n",
     BLAME_NO_PACKAGE, "nosuch"},
    {"ERROR: No matching distribution found for six==99.9\n", BLAME_NO_PACKAGE, "six==99.9"},
    /* Without a network pip says so first, and the same as above last. */
    {"WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError('<x>: "
     "Failed to establish a new connection: [Errno -3] Temporary failure in name "
     "resolution')': "
     "/simple/six/\nERROR: Could not find a version that satisfies the requirement six (from "
     "versions: none)\nERROR: No matching distribution found for six\n",
     BLAME_NO_NETWORK, ""},
    {"ERROR: Cannot install -r r (line 1) and urllib3==1.20 because these package versions "
     "have "
     "conflicting dependencies.\nERROR: ResolutionImpossible: for help visit x\n",
     BLAME_CONFLICT, "-r"},
    {"error: subprocess-exited-with-error\n  | exit code: 1\nerror: "
     "metadata-generation-failed\n",
     BLAME_BUILD, ""},
    {"  ERROR: Failed building wheel for pycairo\nERROR: Could not build wheels for pycairo, "
     "which is required to install pyproject.toml-based projects\n",
     BLAME_BUILD, "pycairo"},
    {"error: Failed to fetch: https://i.example/simple/six/\n  cause: error sending request\n  "
     "cause: client error (Connect)\n  cause: invalid peer certificate: UnknownIssuer\n",
     BLAME_CERTIFICATE, ""},
    {"  x No solution found when resolving dependencies:\n  Because nosuch was not found in "
     "the "
     "package registry and you require nosuch, we can conclude\n",
     BLAME_NO_PACKAGE, "nosuch"},
    {"error: Unable to find lockfile at `uv.lock`, but `--frozen` was provided.\n", BLAME_LOCK,
     ""},
    {"npm ERR! code E404\nnpm ERR! 404 Not Found - GET https://r.example/nosuch-zz\nnpm ERR! "
     "404 \nnpm ERR! 404  'nosuch-zz@^1' is not in this registry.\nnpm ERR! A complete log\n",
     BLAME_NO_PACKAGE, "nosuch-zz"},
    {"npm ERR! code ETARGET\nnpm ERR! notarget No matching version found for left-pad@^99.\n",
     BLAME_NO_PACKAGE, "left-pad@^99"},
    {"npm ERR! code ENOTCACHED\nnpm ERR! request to https://r.example/left-pad failed: cache "
     "mode is 'only-if-cached' but no cached response is available.\n",
     BLAME_NO_PACKAGE, "left-pad"},
    {"npm ERR! code EAI_AGAIN\nnpm ERR! request to https://r.example/left-pad failed, reason: "
     "getaddrinfo EAI_AGAIN r.example\n",
     BLAME_NO_NETWORK, ""},
    {"npm ERR! code EUSAGE\nnpm ERR! \nnpm ERR! `npm ci` can only install packages when your "
     "package.json and package-lock.json are in sync.\nnpm ERR! Missing: left-pad@1.3.0\n",
     BLAME_LOCK, ""},
    {"npm ERR! code 3\nnpm ERR! path /opt/berth/skills/x/node_modules/@scope/dep\nnpm ERR! "
     "command failed\nnpm ERR! command sh -c exit 3\n",
     BLAME_BUILD, "@scope/dep"},
    {"Building dependency tree...\nE: Unable to locate package nosuchpkg\n", BLAME_NO_PACKAGE,
     "nosuchpkg"},
    {"E: Version '99' for 'hello' was not found\n", BLAME_NO_PACKAGE, "hello"},
    {"E: Package 'hello' has no installation candidate\n", BLAME_NO_PACKAGE, "hello"},
    {"tar: x: Cannot write: No space left on device\nerror: x\n", BLAME_DISK, ""},
    {"ERROR: something else\n", BLAME_OTHER, ""},
    {"", BLAME_OTHER, ""},
    {"\n\n", BLAME_OTHER, ""},
};

/* Each tool's own words: the kind and the package's name. */
START_TEST(blame__real_output__kind_and_package)
{
    struct blame blame;

    blame_read(rows[_i].text, strlen(rows[_i].text), &blame);
    ck_assert_msg(blame.kind == rows[_i].kind, "row %d: kind %d for %s", _i, (int)blame.kind,
                  rows[_i].text);
    ck_assert_str_eq(blame.package, rows[_i].package);
}
END_TEST

/* A name and a line without end are cut, and what is no text does no harm. */
START_TEST(blame__endless_line__cut)
{
    enum { SIZE = 20000 };
    static char text[SIZE + 1];
    struct blame blame;

    memset(text, 'a', SIZE);
    memcpy(text, "ERROR: No matching distribution found for ", 42);
    text[SIZE - 1] = (char)0xff;
    blame_read(text, SIZE, &blame);
    ck_assert_int_eq(blame.kind, BLAME_NO_PACKAGE);
    ck_assert_uint_eq(strlen(blame.package), BLAME_PACKAGE_MAX);
    ck_assert_uint_eq(strlen(blame.line), BLAME_LINE_MAX);
    memset(text, 0, SIZE);
    blame_read(text, SIZE, &blame);
    ck_assert_int_eq(blame.kind, BLAME_OTHER);
}
END_TEST

/* apt-get update ends well without a network: it is heard all the same. */
START_TEST(blame__update_without_network__heard)
{
    const char text[] = "W: Failed to fetch http://d.example/InRelease  Temporary failure "
                        "resolving 'd.example'\nW: Some index files failed to download.\n";

    ck_assert(blame_is_offline(text, sizeof text - 1));
    ck_assert(!blame_is_offline("Fetched 15.8 MB in 4s\n", 22));
}
END_TEST

/* Who one is in front of an index is not said. */
START_TEST(blame_mask__names_in_urls__gone)
{
    static const struct {
        const char *text, *masked;
    } masks[] = {
        {"GET https://u:p@i.example/x 'ssh://t@h' end",
         "GET https://***@i.example/x 'ssh://*@h' end"},
        {"https://u:p@w@host", "https://*****@host"},
        {"https://i.example/x@y a://b", "https://i.example/x@y a://b"},
        {"https://u:p", "https://u:p"},
        {"://", "://"},
        {"", ""},
    };

    for (size_t i = 0; i < BERTH_COUNT(masks); i++) {
        char text[128];

        snprintf(text, sizeof text, "%s", masks[i].text);
        blame_mask(text, strlen(text));
        ck_assert_str_eq(text, masks[i].masked);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("blame");
    TCase *tc = tcase_create("all");
    SRunner *runner;
    int failed;

    tcase_add_loop_test(tc, blame__real_output__kind_and_package, 0, (int)BERTH_COUNT(rows));
    tcase_add_test(tc, blame__endless_line__cut);
    tcase_add_test(tc, blame_mask__names_in_urls__gone);
    tcase_add_test(tc, blame__update_without_network__heard);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
