/* test_url.c - what a tenant may write where an endpoint is wanted. */
#include <check.h>
#include <stdio.h>

#include "common/http/url.h"
#include "tests/unit/http/spellings.h"

static struct berth_error err;
static struct berth_url url;

_Static_assert(BERTH_COUNT(spellings) >= 120, "as many as were asked for");

static const struct berth_url_rules WEB = {.schemes = BERTH_URL_HTTP | BERTH_URL_HTTPS};

static enum verdict judge(const char *text, struct berth_url_rules rules, bool allow_private)
{
    rules.allow_private = allow_private;
    switch (berth_url_parse("config.api_url", text, &rules, &url, &err)) {
    case BERTH_OK:
        return FINE;
    default:
        ck_assert_str_eq(err.field, "config.api_url");
        ck_assert_str_ne(err.rule, "");
        return err.reason == BERTH_REASON_ENDPOINT_REFUSED ? REFUSED : BAD;
    }
}

/* The table: what is let through, with the switch off and on. */
START_TEST(url_parse__spellings__judged)
{
    ck_assert_msg(judge(spellings[_i].url, WEB, false) == spellings[_i].off, "off: %s: %s",
                  spellings[_i].url, err.text);
    ck_assert_msg(judge(spellings[_i].url, WEB, true) == spellings[_i].on, "on: %s: %s",
                  spellings[_i].url, err.text);
}
END_TEST

/* Nothing that is refused with the switch on passes with it off. */
START_TEST(url_parse__switch_on__only_widens)
{
    ck_assert(spellings[_i].off != FINE || spellings[_i].on == FINE);
    ck_assert((spellings[_i].off == BAD) == (spellings[_i].on == BAD));
}
END_TEST

/* The parts, in the one form that is handed on. */
START_TEST(url_parse__parts__canonical)
{
    struct berth_url_rules rules = {.schemes = BERTH_URL_HTTPS | BERTH_URL_HTTP};
    char origin[BERTH_ORIGIN_SIZE];

    ck_assert_int_eq(judge("HTTPS://API.Example:8443/V1/?Q", rules, false), FINE);
    ck_assert_int_eq(url.scheme, BERTH_URL_HTTPS);
    ck_assert_str_eq(url.host, "api.example");
    ck_assert_uint_eq(url.port, 8443);
    ck_assert_str_eq(url.rest, "/V1/?Q");
    ck_assert_str_eq(berth_url_origin(origin, &url), "https://api.example:8443");

    ck_assert_int_eq(judge("http://[2606:4700:0::0:1]", rules, false), FINE);
    ck_assert_str_eq(url.host, "2606:4700::1");
    ck_assert(url.is_address);
    ck_assert_int_eq(url.address.family, AF_INET6);
    ck_assert_uint_eq(url.port, 80);
    ck_assert_str_eq(url.rest, "");
    ck_assert_str_eq(berth_url_origin(origin, &url), "http://[2606:4700::1]");

    ck_assert_int_eq(judge("https://8.8.8.8:443", rules, false), FINE);
    ck_assert_str_eq(berth_url_origin(origin, &url), "https://8.8.8.8");
    ck_assert_int_eq(judge("https://8.8.8.8:80", rules, false), FINE);
    ck_assert_str_eq(berth_url_origin(origin, &url), "https://8.8.8.8:80");
}
END_TEST

/* What failed leaves the caller's struct alone. */
START_TEST(url_parse__refused__output_untouched)
{
    ck_assert_int_eq(judge("https://api.example", WEB, false), FINE);
    ck_assert_int_eq(judge("https://127.0.0.1", WEB, false), REFUSED);
    ck_assert_str_eq(url.host, "api.example");
}
END_TEST

/* The rule that is named is the one that was broken. */
static const struct {
    const char *url, *rule;
} named[] = {
    {"http://api.example.", "a dot at its end"},
    {"http://127.0.0.1.", "a dot at its end"},
    {"http://127.1", "four plain decimal parts"},
    {"http://u@api.example", "no user or password"},
    {"http://api.example/#x", "no fragment"},
    {"http://api.example:0", "a port of 1 to 65535"},
    {"http://[fe80::1%25eth0]", "without a zone"},
    {"http://api%2eexample", "without percent-encoding"},
    {"http://api.example/%zz", "two hex digits"},
    {"http://a_b.example", "letters, digits and inner hyphens"},
    {"http://api.example/a b", "no space"},
    {"ftp://api.example", "begin with https:// or http://"},
    {"http://10.0.0.1", "10.0.0.1 is private: only with allow_private_endpoints"},
    {"http://localhost", "only with allow_private_endpoints"},
    {"http://[::ffff:a9fe:a9fe]", "cloud metadata: never allowed"},
    {"http://224.0.0.1", "224.0.0.1 is multicast: never allowed"},
};

START_TEST(url_parse__refused__rule_named)
{
    ck_assert_int_ne(judge(named[_i].url, WEB, false), FINE);
    ck_assert_msg(strstr(err.rule, named[_i].rule) != NULL, "%s: %s", named[_i].url, err.rule);
    ck_assert_ptr_nonnull(strstr(err.text, "config.api_url: "));
}
END_TEST

/* Lengths: of the whole, of a host, of a label. */
START_TEST(url_parse__lengths__bounded)
{
    char text[BERTH_URL_MAX + 2], host[300];
    int len = snprintf(text, sizeof text, "https://a.example/");

    memset(text + len, 'a', sizeof text - (size_t)len);
    text[BERTH_URL_MAX] = 0;
    ck_assert_int_eq(judge(text, WEB, false), FINE);
    text[BERTH_URL_MAX] = 'a';
    text[BERTH_URL_MAX + 1] = 0;
    ck_assert_int_eq(judge(text, WEB, false), BAD);

    memset(host, 'a', sizeof host);
    for (size_t i = 50; i < sizeof host; i += 50)
        host[i] = '.';
    host[253] = 0;
    snprintf(text, sizeof text, "https://%s", host);
    ck_assert_int_eq(judge(text, WEB, false), FINE);
    host[253] = 'a';
    host[254] = 0;
    snprintf(text, sizeof text, "https://%s", host);
    ck_assert_int_eq(judge(text, WEB, false), BAD);

    memset(host, 'a', 63);
    host[63] = 0;
    snprintf(text, sizeof text, "https://%s.example", host);
    ck_assert_int_eq(judge(text, WEB, false), FINE);
    snprintf(text, sizeof text, "https://%sa.example", host);
    ck_assert_int_eq(judge(text, WEB, false), BAD);
}
END_TEST

/* Where paths are put behind it: no query, and no way up. */
static const struct {
    const char *url;
    enum verdict base;
} bases[] = {
    {"https://a.example/v1", FINE},
    {"https://a.example/v1/", FINE},
    {"https://a.example/v1..2/.hidden/...", FINE},
    {"https://a.example?", BAD},
    {"https://a.example/v1?x=y", BAD},
    {"https://a.example/../x", BAD},
    {"https://a.example/v1/..", BAD},
    {"https://a.example/./x", BAD},
    {"https://a.example/%2e%2E/x", BAD},
    {"https://a.example/.%2e", BAD},
    {"https://a.example/%2e", BAD},
    {"https://a.example/%2e%2e%2e", FINE},
};

START_TEST(url_parse__base__no_query_and_no_dots)
{
    struct berth_url_rules rules = {.schemes = BERTH_URL_HTTPS, .base = true};

    ck_assert_msg(judge(bases[_i].url, rules, false) == bases[_i].base, "%s", bases[_i].url);
    rules.base = false;
    ck_assert_int_eq(judge(bases[_i].url, rules, false), FINE);
}
END_TEST

/* Other schemes only where the rules name them. */
static const struct {
    const char *url;
    unsigned schemes;
    enum verdict off, on;
} others[] = {
    {"socks5://a.example", BERTH_URL_SOCKS5, FINE, FINE},
    {"socks5://a.example:1080/", BERTH_URL_SOCKS5, FINE, FINE},
    {"socks5://10.0.0.1", BERTH_URL_SOCKS5, REFUSED, FINE},
    {"socks5://169.254.169.254", BERTH_URL_SOCKS5, REFUSED, REFUSED},
    {"socks5h://a.example", BERTH_URL_SOCKS5, BAD, BAD},
    {"http://a.example", BERTH_URL_HTTPS, BAD, BAD},
    {"unix:/run/docker.sock", BERTH_URL_UNIX, REFUSED, FINE},
    {"unix:run/docker.sock", BERTH_URL_UNIX, BAD, BAD},
    {"unix:///run/docker.sock", BERTH_URL_UNIX, BAD, BAD},
    {"unix:/run/../etc/x", BERTH_URL_UNIX, BAD, BAD},
    {"unix:/run/%2e", BERTH_URL_UNIX, BAD, BAD},
    {"unix:/", BERTH_URL_UNIX, REFUSED, FINE},
    {"unix:", BERTH_URL_UNIX, BAD, BAD},
};

START_TEST(url_parse__other_schemes__by_rule)
{
    struct berth_url_rules rules = {.schemes = others[_i].schemes};

    ck_assert_msg(judge(others[_i].url, rules, false) == others[_i].off, "%s", others[_i].url);
    ck_assert_msg(judge(others[_i].url, rules, true) == others[_i].on, "%s", others[_i].url);
}
END_TEST

/* Secrets that somebody put into a URL do not come back in the error. */
START_TEST(url_parse__refused__secret_not_quoted)
{
    static const char *const texts[] = {
        "https://user:hunter2@a.example",
        "https://169.254.169.254/?key=hunter2",
        "https://a.example/?key=hunter2#x",
        "https://localhost/hunter2",
        "https://a.example:hunter2/",
        "https://a.example/hunter2 ",
        "hunter2://a.example",
    };

    for (size_t i = 0; i < BERTH_COUNT(texts); i++) {
        ck_assert_int_ne(judge(texts[i], WEB, false), FINE);
        ck_assert_ptr_null(strstr(err.text, "hunter2"));
        ck_assert_ptr_null(strstr(err.rule, "hunter2"));
    }
}
END_TEST

static const struct {
    const char *text;
    enum verdict off, on;
} domains[] = {
    {"cube.app", FINE, FINE},
    {"e2b.app", FINE, FINE},
    {"sandboxes.Example", FINE, FINE},
    {"cube.internal", REFUSED, FINE},
    {"localhost", REFUSED, FINE},
    {"metadata.google.internal", REFUSED, REFUSED},
    {"127.0.0.1", BAD, BAD},
    {"a.127.0.0.1", BAD, BAD},
    {"[::1]", BAD, BAD},
    {"cube.app:80", BAD, BAD},
    {"*.cube.app", BAD, BAD},
    {".cube.app", BAD, BAD},
    {"cube.app.", BAD, BAD},
    {"cube.app/x", BAD, BAD},
    {"", BAD, BAD},
    {"a b", BAD, BAD},
    {"cube%2eapp", BAD, BAD},
    {"user@cube.app", BAD, BAD},
};

START_TEST(domain_check__spellings__judged)
{
    for (int on = 0; on < 2; on++) {
        enum berth_code code = berth_domain_check("config.domain", domains[_i].text, on, &err);
        enum verdict got = !code                                         ? FINE
                           : err.reason == BERTH_REASON_ENDPOINT_REFUSED ? REFUSED
                                                                         : BAD;

        ck_assert_msg(got == (on ? domains[_i].on : domains[_i].off), "%s", domains[_i].text);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http/url");
    TCase *all = tcase_create("all");
    int failed;

    tcase_add_loop_test(all, url_parse__spellings__judged, 0, (int)BERTH_COUNT(spellings));
    tcase_add_loop_test(all, url_parse__switch_on__only_widens, 0, (int)BERTH_COUNT(spellings));
    tcase_add_test(all, url_parse__parts__canonical);
    tcase_add_test(all, url_parse__refused__output_untouched);
    tcase_add_loop_test(all, url_parse__refused__rule_named, 0, (int)BERTH_COUNT(named));
    tcase_add_test(all, url_parse__lengths__bounded);
    tcase_add_loop_test(all, url_parse__base__no_query_and_no_dots, 0, (int)BERTH_COUNT(bases));
    tcase_add_loop_test(all, url_parse__other_schemes__by_rule, 0, (int)BERTH_COUNT(others));
    tcase_add_test(all, url_parse__refused__secret_not_quoted);
    tcase_add_loop_test(all, domain_check__spellings__judged, 0, (int)BERTH_COUNT(domains));
    suite_add_tcase(suite, all);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
