/* Names of cases in BERTH_ONLY, separated by spaces, are the only ones that a test program
 * runs; those in BERTH_EXCEPT are left out. Linked into every user of libcheck, in the place of
 * its function that adds a case. */
#include <check.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void __real__tcase_add_test(TCase *tcase, const TTest *test, int signal, int status, int from,
                            int to);
void __wrap__tcase_add_test(TCase *tcase, const TTest *test, int signal, int status, int from,
                            int to);

static bool listed(const char *names, const char *name)
{
    size_t length = strlen(name);

    for (const char *at = names; (at = strstr(at, name)) != NULL; at += length)
        if ((at == names || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

void __wrap__tcase_add_test(TCase *tcase, const TTest *test, int signal, int status, int from,
                            int to)
{
    const char *only = getenv("BERTH_ONLY"), *except = getenv("BERTH_EXCEPT");

    if ((!only || listed(only, test->name)) && !(except && listed(except, test->name)))
        __real__tcase_add_test(tcase, test, signal, status, from, to);
}
