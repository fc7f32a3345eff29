/* test_token_doc.c - the stored document of a token. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/records/token_doc.h"

#define ID "abcdefgh0123"
#define HASH "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

/* What was written is read again. */
START_TEST(token_doc__format_and_parse__the_same)
{
    struct berth_token_doc doc = {.token_id = ID,
                                  .hash = {1, 2, 255},
                                  .scopes = {1, 4},
                                  .n_scopes = 2,
                                  .session_id = "s1",
                                  .config_id = "c1",
                                  .create_ms = 5,
                                  .expire_ms = 6,
                                  .created_by = "peer/uid:0"};
    struct berth_token_doc got;
    char *json = berth_token_doc_format(&doc);

    ck_assert_ptr_nonnull(json);
    ck_assert_int_eq(berth_token_doc_parse(ID, json, &got, NULL), BERTH_OK);
    ck_assert_str_eq(got.token_id, ID);
    ck_assert_mem_eq(got.hash, doc.hash, 32);
    ck_assert_uint_eq(got.n_scopes, 2);
    ck_assert_int_eq(got.scopes[1], 4);
    ck_assert_str_eq(got.session_id, "s1");
    ck_assert_str_eq(got.config_id, "c1");
    ck_assert_int_eq(got.create_ms, 5);
    ck_assert_int_eq(got.expire_ms, 6);
    ck_assert_str_eq(got.created_by, "peer/uid:0");
    free(json);
}
END_TEST

/* Documents that are not whole are an error, never "no such token" and never one for all. */
static const char *const broken[] = {
    "",
    "[]",
    "{}",
    "{\"sha256\":\"" HASH "\"}",
    "{\"sha256\":\"" HASH "\",\"scopes\":[]}",
    "{\"sha256\":\"" HASH "\",\"scopes\":[0]}",
    "{\"sha256\":\"" HASH "\",\"scopes\":[5]}",
    "{\"sha256\":\"" HASH "\",\"scopes\":[\"admin\"]}",
    "{\"sha256\":\"" HASH "\",\"scopes\":[1,1,1,1,1]}",
    "{\"sha256\":\"" HASH "\",\"scopes\":[4],\"session\":7}",
    "{\"sha256\":\"" HASH "\",\"scopes\":[4],\"expire_ms\":-1}",
    "{\"sha256\":\"" HASH "\",\"scopes\":[4],\"expire_ms\":\"never\"}",
    "{\"sha256\":\"" HASH "0\",\"scopes\":[4]}",
    "{\"sha256\":\"zz112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\","
    "\"scopes\":[4]}",
    "{\"scopes\":[4]}",
};

START_TEST(token_doc_parse__broken__internal_bug)
{
    struct berth_token_doc got = {.n_scopes = 77};

    ck_assert_int_eq(berth_token_doc_parse(ID, broken[_i], &got, NULL), BERTH_INTERNAL);
    ck_assert_uint_eq(got.n_scopes, 77);
}
END_TEST

/* Members of a later version are let be. */
START_TEST(token_doc_parse__unknown_member__fine)
{
    struct berth_token_doc got;

    ck_assert_int_eq(berth_token_doc_parse(
                         ID, "{\"sha256\":\"" HASH "\",\"scopes\":[4],\"new\":{}}", &got, NULL),
                     BERTH_OK);
    ck_assert_int_eq(berth_token_doc_parse("short", "{}", &got, NULL), BERTH_INTERNAL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("auth/token_doc");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int failed;

    tcase_add_test(all, token_doc__format_and_parse__the_same);
    tcase_add_loop_test(all, token_doc_parse__broken__internal_bug, 0,
                        (int)(sizeof broken / sizeof broken[0]));
    tcase_add_test(all, token_doc_parse__unknown_member__fine);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed > 0;
}
