/* test_denied.c - what sandboxes may never reach and what tenants' endpoints may never be are
 * two lists, one in the kernel's words: they may not drift apart. */
#include <check.h>
#include <stdint.h>
#include <stdio.h>

#include "common/http/address.h"
#include "services/adapter-local/spawner/nft.h"

enum { NETS_MAX = 64 };

struct net {
    uint32_t base, mask;
};

static struct net nets[NETS_MAX];
static size_t n_nets;

static void read_rules(void)
{
    char *rules = nft_rules("t", "p", "10.213.0.0/16", NULL, 0), *save = NULL, *list;

    ck_assert_ptr_nonnull(rules);
    list = strstr(rules, "ip daddr { ");
    ck_assert_ptr_nonnull(list);
    list += strlen("ip daddr { ");
    list[strcspn(list, "}")] = 0;
    for (char *text = strtok_r(list, ", ", &save); text; text = strtok_r(NULL, ", ", &save)) {
        unsigned a, b, c, d, bits = 32;

        ck_assert_int_ge(sscanf(text, "%3u.%3u.%3u.%3u/%2u", &a, &b, &c, &d, &bits), 4);
        ck_assert_uint_lt(n_nets, NETS_MAX);
        nets[n_nets++] =
            (struct net){a << 24 | b << 16 | c << 8 | d, bits ? UINT32_MAX << (32 - bits) : 0};
    }
    free(rules);
}

static enum berth_address_class class_of(uint32_t bits)
{
    struct berth_address address = {.family = AF_INET,
                                    .bytes = {(uint8_t)(bits >> 24), (uint8_t)(bits >> 16),
                                              (uint8_t)(bits >> 8), (uint8_t)bits}};

    return berth_address_judge(&address).klass;
}

static bool is_denied(uint32_t bits)
{
    for (size_t i = 0; i < n_nets; i++)
        if ((bits & nets[i].mask) == nets[i].base)
            return true;
    return false;
}

/* Nothing that a sandbox is denied is public to an endpoint. */
START_TEST(denied_networks__first_and_last__not_public)
{
    read_rules();
    ck_assert_uint_ge(n_nets, 10);
    for (size_t i = 0; i < n_nets; i++) {
        ck_assert_int_ne(class_of(nets[i].base), BERTH_ADDRESS_PUBLIC);
        ck_assert_int_ne(class_of(nets[i].base | ~nets[i].mask), BERTH_ADDRESS_PUBLIC);
    }
}
END_TEST

/* And the other way round, but for ranges that lead nowhere: documentation, benchmarks,
 * protocol assignments, the 6to4 relays, and the reserved end, none of which is anybody's host.
 */
START_TEST(endpoints_refused__denied_to_sandboxes)
{
    static const struct net nowhere[] = {
        {0xc0000000, 0xffffff00}, {0xc0000200, 0xffffff00}, {0xc0586300, 0xffffff00},
        {0xc6120000, 0xfffe0000}, {0xc6336400, 0xffffff00}, {0xcb007100, 0xffffff00},
        {0xf0000000, 0xf0000000},
    };

    read_rules();
    for (uint32_t net = 0; net < 1 << 24; net += 5) {
        uint32_t bits = net << 8 | (net * 37 & 0xff);
        bool excused = false;

        for (size_t i = 0; i < BERTH_COUNT(nowhere); i++)
            excused |= (bits & nowhere[i].mask) == nowhere[i].base;
        if (!excused && class_of(bits) != BERTH_ADDRESS_PUBLIC)
            ck_assert_msg(is_denied(bits), "%08x", bits);
    }
    ck_assert(is_denied(0xa9fea9fe) && is_denied(0xa83f8110) && is_denied(0xc00000c0) &&
              is_denied(0x646464c8));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("local/denied");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int failed;

    tcase_set_timeout(all, 60);
    tcase_add_test(all, denied_networks__first_and_last__not_public);
    tcase_add_test(all, endpoints_refused__denied_to_sandboxes);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
