#include <check.h>

#include "services/adapter-local/spawner/net.h"

static const struct {
    const char *text;
    bool good;
} cidrs[] = {
    {"10.213.0.0/16", true},
    {"10.0.0.0/8", true},
    {"192.168.7.0/28", true},
    {"10.213.0.1/16", false},
    {"10.213.0.0/29", false},
    {"10.213.0.0/7", false},
    {"10.213.0.0", false},
    {"10.213.0.0/", false},
    {"10.213.0.0/16x", false},
    {"10.213.0.0/016", false},
    {"", false},
    {"/16", false},
    {"fd00::/64", false},
    {"10.213.0/16", false},
    {"10.213.0.0/-6", false},
    {"10.213.0.0.0.0.0.0.0.0.0/16", false},
};

START_TEST(net_parse_cidr__text__accepted_or_refused)
{
    struct net_cidr cidr;
    struct berth_error err = {0};
    enum berth_code code = net_parse_cidr(cidrs[_i].text, &cidr, &err);

    ck_assert_msg((code == BERTH_OK) == cidrs[_i].good, "'%s'", cidrs[_i].text);
    if (!cidrs[_i].good)
        ck_assert_str_eq(err.field, "network_cidr");
}
END_TEST

/* Each slot has a /30 of its own, the last one ends where the network does. */
START_TEST(net_pair_of__slots__disjoint_and_inside)
{
    struct net_cidr cidr;
    struct net_pair first, second, last;

    ck_assert_int_eq(net_parse_cidr("10.213.0.0/16", &cidr, NULL), BERTH_OK);
    ck_assert_uint_eq(net_slots(&cidr), 16384);
    net_pair_of(&cidr, 0, &first);
    net_pair_of(&cidr, 1, &second);
    net_pair_of(&cidr, net_slots(&cidr) - 1, &last);
    ck_assert_str_eq(first.gateway_text, "10.213.0.1");
    ck_assert_str_eq(first.address_text, "10.213.0.2");
    ck_assert_str_eq(second.gateway_text, "10.213.0.5");
    ck_assert_str_eq(last.address_text, "10.213.255.254");
}
END_TEST

/* Loopback is an interface of this host. */
START_TEST(net_check_free__network_in_use__refused_naming_the_interface)
{
    struct net_cidr cidr = {127U << 24, 16};
    struct berth_error err = {0};

    ck_assert_int_eq(net_check_free(&cidr, &err), BERTH_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(err.text, "lo"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("local/net");
    TCase *tcase = tcase_create("net");
    SRunner *runner;
    int failed;

    tcase_add_loop_test(tcase, net_parse_cidr__text__accepted_or_refused, 0,
                        (int)BERTH_COUNT(cidrs));
    tcase_add_test(tcase, net_pair_of__slots__disjoint_and_inside);
    tcase_add_test(tcase, net_check_free__network_in_use__refused_naming_the_interface);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
