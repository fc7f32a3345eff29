/* test_net.c - addresses, networks and names of a network policy. */
#include <check.h>
#include <stdlib.h>

#include "common/base/base.h"
#include "services/controlplane/net.h"

static const struct {
    const char *text;
    bool good;
} nets[] = {
    {"192.0.2.1", true},
    {"192.0.2.0/24", true},
    {"0.0.0.0/0", true},
    {"2001:db8::1", true},
    {"2001:db8::/32", true},
    {"::/0", true},
    {"255.255.255.255/32", true},
    {"::ffff:192.0.2.1", true},
    {"", false},
    {"192.0.2", false},
    {"192.0.2.1/33", false},
    {"192.0.2.1/24", false},
    {"192.0.2.0/", false},
    {"192.0.2.0/024", false},
    {"192.0.2.0/+8", false},
    {"192.0.2.256", false},
    {"0300.0.2.1", false},
    {"0x7f.0.0.1", false},
    {"2130706433", false},
    {"127.1", false},
    {"fe80::1%eth0", false},
    {"2001:db8::1/129", false},
    {"2001:db8::1/64", false},
    {" 192.0.2.1", false},
    {"192.0.2.1 ", false},
    {"example.org", false},
    {"192.0.2.0/24/8", false},
    {"::1::", false},
};

/* Only what means one thing is taken. */
START_TEST(cp_net_parse__spellings__strict)
{
    struct cp_net net;

    ck_assert_msg(cp_net_parse(nets[_i].text, &net) == nets[_i].good, "%s", nets[_i].text);
}
END_TEST

static const struct {
    const char *outer, *inner;
    bool covers, overlaps;
} pairs[] = {
    {"10.0.0.0/8", "10.1.2.3", true, true},
    {"10.1.2.3", "10.0.0.0/8", false, true},
    {"10.0.0.0/8", "10.0.0.0/8", true, true},
    {"10.0.0.0/9", "10.128.0.0/9", false, false},
    {"0.0.0.0/0", "192.0.2.0/24", true, true},
    {"0.0.0.0/0", "::1", false, false},
    {"::/0", "2001:db8::/32", true, true},
    {"2001:db8::/33", "2001:db8:8000::/33", false, false},
};

START_TEST(cp_net_covers__pairs__by_bits)
{
    struct cp_net outer, inner;

    ck_assert(cp_net_parse(pairs[_i].outer, &outer) && cp_net_parse(pairs[_i].inner, &inner));
    ck_assert(cp_net_covers(&outer, &inner) == pairs[_i].covers);
    ck_assert(cp_net_overlaps(&outer, &inner) == pairs[_i].overlaps);
    ck_assert(cp_net_overlaps(&inner, &outer) == pairs[_i].overlaps);
}
END_TEST

static const struct {
    const char *text;
    bool good;
} domains[] = {
    {"example.org", true},
    {"*.example.org", true},
    {"a", true},
    {"xn--bcher-kva.example", true},
    {"Example.org", true},
    {"", false},
    {".", false},
    {"example.org.", false},
    {"-a.org", false},
    {"a-.org", false},
    {"a..org", false},
    {"*", false},
    {"*.", false},
    {"a.*.org", false},
    {"**.org", false},
    {"1.2.3.4", false},
    {"a_b.org", false},
    {"a b.org", false},
    {"b\xc3\xbc.org", false},
    {"256.256.256.256", false},
};

START_TEST(cp_domain_valid__names__letters_digits_hyphens)
{
    ck_assert_msg(cp_domain_valid(domains[_i].text) == domains[_i].good, "%s",
                  domains[_i].text);
}
END_TEST

/* A label of 63 and a name of 253 are the longest. */
START_TEST(cp_domain_valid__too_long__refused)
{
    char name[300];

    memset(name, 'a', sizeof name);
    name[63] = 0;
    ck_assert(cp_domain_valid(name));
    name[63] = 'a';
    name[64] = 0;
    ck_assert(!cp_domain_valid(name));
    memset(name, 'a', sizeof name);
    for (size_t i = 50; i < sizeof name; i += 51)
        name[i] = '.';
    name[253] = 0;
    ck_assert(cp_domain_valid(name));
    name[253] = 'a';
    name[254] = 0;
    ck_assert(!cp_domain_valid(name));
}
END_TEST

START_TEST(cp_domain_covers__wildcards__only_below)
{
    ck_assert(cp_domain_covers("example.org", "EXAMPLE.org"));
    ck_assert(cp_domain_covers("*.example.org", "files.example.org"));
    ck_assert(cp_domain_covers("*.example.org", "*.files.example.org"));
    ck_assert(cp_domain_covers("*.example.org", "*.example.org"));
    ck_assert(!cp_domain_covers("*.example.org", "example.org"));
    ck_assert(!cp_domain_covers("*.example.org", "evilexample.org"));
    ck_assert(!cp_domain_covers("example.org", "files.example.org"));
    ck_assert(!cp_domain_covers("example.org", "*.example.org"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("controlplane/net");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int failed;

    tcase_add_loop_test(all, cp_net_parse__spellings__strict, 0, (int)BERTH_COUNT(nets));
    tcase_add_loop_test(all, cp_net_covers__pairs__by_bits, 0, (int)BERTH_COUNT(pairs));
    tcase_add_loop_test(all, cp_domain_valid__names__letters_digits_hyphens, 0,
                        (int)BERTH_COUNT(domains));
    tcase_add_test(all, cp_domain_valid__too_long__refused);
    tcase_add_test(all, cp_domain_covers__wildcards__only_below);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
