/* test_address.c - the edges of every range, and what hides inside an address. */
#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/un.h>

#include "common/http/address.h"

static struct berth_error err;

enum { PUB = BERTH_ADDRESS_PUBLIC, PRIV = BERTH_ADDRESS_PRIVATE, NEV = BERTH_ADDRESS_NEVER };

/* First and last of each range, and their neighbours. */
static const struct {
    const char *text;
    int klass;
} rows[] = {
    {"0.0.0.0", NEV},
    {"0.255.255.255", NEV},
    {"1.0.0.0", PUB},
    {"9.255.255.255", PUB},
    {"10.0.0.0", PRIV},
    {"10.255.255.255", PRIV},
    {"11.0.0.0", PUB},
    {"100.63.255.255", PUB},
    {"100.64.0.0", PRIV},
    {"100.100.100.199", PRIV},
    {"100.100.100.200", NEV},
    {"100.100.100.201", PRIV},
    {"100.127.255.255", PRIV},
    {"100.128.0.0", PUB},
    {"126.255.255.255", PUB},
    {"127.0.0.0", PRIV},
    {"127.255.255.255", PRIV},
    {"128.0.0.0", PUB},
    {"168.63.129.15", PUB},
    {"168.63.129.16", NEV},
    {"168.63.129.17", PUB},
    {"169.253.255.255", PUB},
    {"169.254.0.0", NEV},
    {"169.254.255.255", NEV},
    {"169.255.0.0", PUB},
    {"172.15.255.255", PUB},
    {"172.16.0.0", PRIV},
    {"172.31.255.255", PRIV},
    {"172.32.0.0", PUB},
    {"191.255.255.255", PUB},
    {"192.0.0.0", NEV},
    {"192.0.0.255", NEV},
    {"192.0.1.0", PUB},
    {"192.0.2.0", NEV},
    {"192.0.2.255", NEV},
    {"192.0.3.0", PUB},
    {"192.88.98.255", PUB},
    {"192.88.99.0", NEV},
    {"192.88.100.0", PUB},
    {"192.167.255.255", PUB},
    {"192.168.0.0", PRIV},
    {"192.168.255.255", PRIV},
    {"192.169.0.0", PUB},
    {"198.17.255.255", PUB},
    {"198.18.0.0", PRIV},
    {"198.19.255.255", PRIV},
    {"198.20.0.0", PUB},
    {"198.51.99.255", PUB},
    {"198.51.100.0", NEV},
    {"198.51.100.255", NEV},
    {"198.51.101.0", PUB},
    {"203.0.112.255", PUB},
    {"203.0.113.0", NEV},
    {"203.0.114.0", PUB},
    {"223.255.255.255", PUB},
    {"224.0.0.0", NEV},
    {"239.255.255.255", NEV},
    {"240.0.0.0", NEV},
    {"255.255.255.254", NEV},
    {"255.255.255.255", NEV},

    {"::", NEV},
    {"::1", PRIV},
    {"::2", NEV},
    {"::ffff:ffff", NEV},
    {"::1:0:0", NEV},
    {"::fffe:8.8.8.8", NEV},
    {"::ffff:8.8.8.8", PUB},
    {"::ffff:0:8.8.8.8", PUB},
    {"::ffff:1:8.8.8.8", NEV},
    {"64:ff9b::8.8.8.8", PUB},
    {"64:ff9b::1:8.8.8.8", NEV}, /* beyond the /96: nobody's */
    {"64:ff9b::169.254.169.254", NEV},
    {"64:ff9b::192.168.1.1", PRIV},
    {"64:ff9b::240.0.0.1", NEV},
    {"64:ff9b:1::", PRIV},
    {"64:ff9b:1:ffff:ffff:ffff:ffff:ffff", NEV},
    {"64:ff9b:2::1", NEV},
    {"100::", NEV},
    {"1fff:ffff::", NEV},
    {"2000::", PUB},
    {"2001::", NEV}, /* Teredo by 0.0.0.0 */
    {"2001:0:808:808::f7f7:f7f7", PUB},
    {"2001:1::1", NEV},
    {"2001:2::1", PRIV},
    {"2001:2:1::1", NEV},
    {"2001:10::1", NEV},
    {"2001:1ff:ffff::1", NEV},
    {"2001:200::1", PUB},
    {"2001:db7:ffff::1", PUB},
    {"2001:db8::", NEV},
    {"2001:db8:ffff::1", NEV},
    {"2001:db9::1", PUB},
    {"2002:808:808::1", PUB},
    {"2002:a00::1", PRIV},
    {"2002:e000:1::1", NEV},
    {"2003::1", PUB},
    {"2606:4700::1", PUB},
    {"3ffe:ffff::1", PUB},
    {"3fff::1", NEV},
    {"3fff:fff:ffff::1", NEV},
    {"3fff:1000::1", PUB},
    {"4000::1", NEV},
    {"fbff::1", NEV},
    {"fc00::", PRIV},
    {"fd00:ec1:ffff::1", PRIV},
    {"fd00:ec2::", NEV},
    {"fd00:ec2:ffff::1", NEV},
    {"fd00:ec3::1", PRIV},
    {"fd20:ce::253", PRIV},
    {"fd20:ce::254", NEV},
    {"fd00:42::42", NEV},
    {"fd00:42::43", PRIV},
    {"fd00:c1::a9fe:a9fe", NEV},
    {"fd00:a9fe:a9fe::1", NEV},
    {"fd00:100::100:200", NEV},
    {"fdff:ffff::1", PRIV},
    {"fe00::1", NEV},
    {"fe80::", NEV},
    {"febf:ffff::1", NEV},
    {"fec0::1", NEV},
    {"feff:ffff::1", NEV},
    {"ff00::", NEV},
    {"ffff::1", NEV},
    {"2606:4700::5efe:8.8.8.8", PUB},
    {"2606:4700::5efe:10.0.0.1", PRIV},
    {"2606:4700::200:5efe:169.254.1.1", NEV},
    {"2606:4700::400:5efe:10.0.0.1", PUB}, /* no ISATAP: another flag */
    {"fd00::5efe:169.254.1.1", NEV},
};

START_TEST(address_judge__edges__known)
{
    struct berth_address address;

    ck_assert_msg(berth_address_parse(rows[_i].text, &address), "%s", rows[_i].text);
    ck_assert_msg((int)berth_address_judge(&address).klass == rows[_i].klass, "%s is %s",
                  rows[_i].text, berth_address_judge(&address).what);
}
END_TEST

/* Every IPv4 address, sampled: inside each wrapping it is at least as forbidden as bare. */
START_TEST(address_judge__wrapped__never_better)
{
    static const struct {
        const char *text;
        unsigned at;
        uint8_t mask;
    } wraps[] = {{"::ffff:0:0", 12, 0},
                 {"::ffff:0:0:0", 12, 0},
                 {"64:ff9b::", 12, 0},
                 {"64:ff9b:1::", 12, 0},
                 {"2002::", 2, 0},
                 {"2001:0:808:808::", 12, 0xff},
                 {"2606::5efe:0:0", 12, 0},
                 {"fd00::200:5efe:0:0", 12, 0},
                 {"::", 12, 0}};

    for (size_t w = 0; w < BERTH_COUNT(wraps); w++) {
        struct berth_address outer;

        ck_assert(berth_address_parse(wraps[w].text, &outer));
        for (uint32_t n = 0; n < 65536; n++) {
            uint32_t bits = n * 65537U ^ n << 7;
            struct berth_address inner = {.family = AF_INET,
                                          .bytes = {(uint8_t)(bits >> 24),
                                                    (uint8_t)(bits >> 16), (uint8_t)(bits >> 8),
                                                    (uint8_t)bits}};

            /* Local NAT64 has 0.x as padding: private then. */
            if (inner.bytes[0] == 0)
                continue;
            for (int i = 0; i < 4; i++)
                outer.bytes[wraps[w].at + (unsigned)i] = inner.bytes[i] ^ wraps[w].mask;
            ck_assert_int_ge(berth_address_judge(&outer).klass,
                             berth_address_judge(&inner).klass);
        }
    }
}
END_TEST

START_TEST(address_check__classes__by_switch)
{
    struct berth_address address;

    ck_assert(berth_address_parse("10.0.0.1", &address));
    ck_assert_int_eq(berth_address_check("f", &address, true, &err), BERTH_OK);
    ck_assert_int_eq(berth_address_check("f", &address, false, &err), BERTH_INVALID_ARGUMENT);
    ck_assert_int_eq(err.reason, BERTH_REASON_ENDPOINT_REFUSED);
    ck_assert_str_eq(err.field, "f");
    ck_assert_str_eq(err.rule, "10.0.0.1 is private: only with allow_private_endpoints");
    ck_assert_str_eq(err.text, "f: 10.0.0.1 is private: only with allow_private_endpoints");
    ck_assert(berth_address_parse("::ffff:169.254.169.254", &address));
    ck_assert_int_eq(berth_address_check("f", &address, true, &err), BERTH_INVALID_ARGUMENT);
    ck_assert_str_eq(err.rule, "::ffff:169.254.169.254 is cloud metadata: never allowed");
    ck_assert_int_eq(berth_address_check("f", &address, true, NULL), BERTH_INVALID_ARGUMENT);
}
END_TEST

START_TEST(address_parse__other_notations__refused)
{
    static const char *const texts[] = {
        "",           "1",        "127.1",     "0x7f.0.0.1", "0177.0.0.1",  "1.2.3.4.",
        "1.2.3.4 ",   " 1.2.3.4", "1.2.3.256", "::1%lo",     "[::1]",       "fe80::1%25eth0",
        "1.2.3.4:80", "::1::",    "12345::",   "::1.2.3",    "example.org", "01.2.3.4"};
    struct berth_address address = {.family = 42};

    for (size_t i = 0; i < BERTH_COUNT(texts); i++)
        ck_assert_msg(!berth_address_parse(texts[i], &address), "%s", texts[i]);
    ck_assert_int_eq(address.family, 42);
}
END_TEST

/* What the kernel will be handed, taken apart again. */
START_TEST(address_from_sockaddr__families__known)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0xa9fea9fe)};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct sockaddr_un un = {.sun_family = AF_UNIX, .sun_path = "/x"};
    struct berth_address address = {0};
    char text[BERTH_ADDRESS_TEXT_SIZE];

    ck_assert(berth_address_from_sockaddr((struct sockaddr *)&in, &address));
    ck_assert_str_eq(berth_address_format(text, &address), "169.254.169.254");
    ck_assert(berth_address_from_sockaddr((struct sockaddr *)&in6, &address));
    ck_assert_str_eq(berth_address_format(text, &address), "::1");
    ck_assert(!berth_address_from_sockaddr((struct sockaddr *)&un, &address));
    address.family = AF_UNIX;
    ck_assert_int_eq(berth_address_judge(&address).klass, BERTH_ADDRESS_NEVER);
    ck_assert_str_eq(berth_address_format(text, &address), "");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http/address");
    TCase *all = tcase_create("all");
    int failed;

    tcase_set_timeout(all, 60);
    tcase_add_loop_test(all, address_judge__edges__known, 0, (int)BERTH_COUNT(rows));
    tcase_add_test(all, address_judge__wrapped__never_better);
    tcase_add_test(all, address_check__classes__by_switch);
    tcase_add_test(all, address_parse__other_notations__refused);
    tcase_add_test(all, address_from_sockaddr__families__known);
    suite_add_tcase(suite, all);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
