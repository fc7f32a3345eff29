/* test_token.c - what a token looks like, and what only looks like one. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "common/auth/token.h"
#include "common/crypto/crypto.h"

#define ID "abcdefgh0123"
#define SECRET "abcdefghijklmnopqrstuvwxyz0123456789abcd"
#define HEX40 "0123456789abcdef0123456789abcdef01234567"

static const char good[] = "brt_" ID "_" SECRET;

/* Texts that are not tokens. */
static const char *const bad[] = {
    "",
    "brt_",
    "e2b_",
    ID,
    "brt_" ID "_",
    "brt_" ID SECRET,
    "BRT_" ID "_" SECRET,
    "brt_" ID "_" SECRET "a",
    "brt_" ID "-" SECRET,
    "brt-" ID "_" SECRET,
    " brt_" ID "_" SECRET,
    "brt_" ID "_" SECRET " ",
    "brt_" ID "_" SECRET "\n",
    "brt_abcdefgh012_" SECRET,
    "brt_ABCDEFGH0123_" SECRET,
    "brt_abcdefgh\xc3\xa9_3_" SECRET,
    "brt_" ID "_ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789abcd",
    "brt_" ID "_abcdefghijklmnopqrstuvwxyz0123456789abc/",
    "e2b_" HEX40 "0",
    "e2b_0123456789abcdef0123456789abcdef0123456",
    "e2b_0123456789ABCDEF0123456789abcdef01234567",
    "e2b_g123456789abcdef0123456789abcdef01234567",
    "xyz_" HEX40,
};

START_TEST(token_parse__not_a_token__refused)
{
    struct berth_token token;

    memset(&token, 7, sizeof token);
    ck_assert(!berth_token_parse(bad[_i], strlen(bad[_i]), &token));
    ck_assert_int_eq(token.id[0], 7);
}
END_TEST

/* A NUL in the middle is not the end of a token. */
START_TEST(token_parse__embedded_nul__refused)
{
    char text[sizeof good];
    struct berth_token token;

    for (size_t i = 0; i < sizeof good - 1; i++) {
        memcpy(text, good, sizeof text);
        text[i] = 0;
        ck_assert(!berth_token_parse(text, sizeof text - 1, &token));
    }
}
END_TEST

/* Both shapes give their id, and the hash is of all of it. */
START_TEST(token_parse__both_shapes__id_and_hash)
{
    struct berth_token token;
    uint8_t hash[32];

    ck_assert(berth_token_parse(good, sizeof good - 1, &token));
    ck_assert_str_eq(token.id, ID);
    berth_sha256_once(good, sizeof good - 1, hash);
    ck_assert_mem_eq(token.hash, hash, sizeof hash);
    ck_assert(berth_token_parse("e2b_" HEX40, 44, &token));
    ck_assert_str_eq(token.id, "0123456789ab");
}
END_TEST

static const struct {
    const char *value;
    bool ok;
} headers[] = {
    {"Bearer brt_" ID "_" SECRET, true},
    {"bearer brt_" ID "_" SECRET, true},
    {"BEARER e2b_" HEX40, true},
    {"brt_" ID "_" SECRET, false},
    {"Bearer", false},
    {"Bearer ", false},
    {"Bearer  brt_" ID "_" SECRET, false},
    {"Bearer\tbrt_" ID "_" SECRET, false},
    {"Basic brt_" ID "_" SECRET, false},
    {"Bearer brt_" ID "_" SECRET ",Bearer brt_" ID "_" SECRET, false},
    {"Bearer brt_" ID "_" SECRET " ", false},
};

START_TEST(token_parse_header__each_form__as_the_table_says)
{
    struct berth_token token;

    ck_assert(berth_token_parse_header(headers[_i].value, strlen(headers[_i].value), &token) ==
              headers[_i].ok);
}
END_TEST

/* What is made can be parsed, is of the shape asked for, and is never the same twice. */
START_TEST(token_make__many__all_different_and_valid)
{
    char last[BERTH_TOKEN_SIZE] = "", text[BERTH_TOKEN_SIZE];
    struct berth_token made, parsed;

    for (int i = 0; i < 200; i++) {
        berth_token_make(_i, text, &made);
        ck_assert_int_eq(strncmp(text, _i ? "e2b_" : "brt_", 4), 0);
        ck_assert(berth_token_parse(text, strlen(text), &parsed));
        ck_assert_mem_eq(&made, &parsed, sizeof made);
        ck_assert(berth_token_id_valid(made.id));
        ck_assert_str_ne(text, last);
        memcpy(last, text, sizeof last);
    }
}
END_TEST

/* An id is twelve characters of one kind. */
START_TEST(token_id_valid__wrong__refused)
{
    ck_assert(berth_token_id_valid(ID));
    ck_assert(!berth_token_id_valid(""));
    ck_assert(!berth_token_id_valid("abcdefgh012"));
    ck_assert(!berth_token_id_valid("abcdefgh01234"));
    ck_assert(!berth_token_id_valid("abcdefgh012/"));
    ck_assert(!berth_token_id_valid("ABCDEFGH0123"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("auth/token");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int failed;

    tcase_add_loop_test(all, token_parse__not_a_token__refused, 0,
                        (int)(sizeof bad / sizeof bad[0]));
    tcase_add_test(all, token_parse__embedded_nul__refused);
    tcase_add_test(all, token_parse__both_shapes__id_and_hash);
    tcase_add_loop_test(all, token_parse_header__each_form__as_the_table_says, 0,
                        (int)(sizeof headers / sizeof headers[0]));
    tcase_add_loop_test(all, token_make__many__all_different_and_valid, 0, 2);
    tcase_add_test(all, token_id_valid__wrong__refused);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed > 0;
}
