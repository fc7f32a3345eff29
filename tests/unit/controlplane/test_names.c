/* test_names.c - keys, tags and ids that the control plane makes. */
#include <check.h>
#include <stdio.h>

#include "common/messages/messages.h"
#include "services/controlplane/names.h"

typedef Berth__Backend__V1__CreateSandboxRequest CreateSandboxRequest;

/* 32 hex digits, the same every time, and different for every part. */
START_TEST(unique_key__parts__deterministic_and_apart)
{
    char a[CP_UNIQUE_KEY_SIZE], b[CP_UNIQUE_KEY_SIZE];

    cp_unique_key(a, "dep", "t", "s");
    ck_assert_uint_eq(strspn(a, "0123456789abcdef"), 32);
    cp_unique_key(b, "dep", "t", "s");
    ck_assert_str_eq(a, b);
    cp_unique_key(b, "de", "pt", "s");
    ck_assert_str_ne(a, b);
    cp_unique_key(b, "dep", "t2", "s");
    ck_assert_str_ne(a, b);
    cp_unique_key(b, "dep", "t", "s2");
    ck_assert_str_ne(a, b);
}
END_TEST

/* What a caller put under a reserved name is overwritten. */
START_TEST(set_tags__reserved_name_taken__overwritten)
{
    CreateSandboxRequest *req =
        berth_message_new(&berth__backend__v1__create_sandbox_request__descriptor);
    Berth__Common__V1__Sandbox box = BERTH__COMMON__V1__SANDBOX__INIT;
    const uint8_t attempt[16] = {0xab};
    uint8_t read[16];
    const struct cp_tags tags = {.deployment = "dep",
                                 .tenant = "t",
                                 .session = "sk.1",
                                 .config = "c",
                                 .backend = "local",
                                 .account_hex = "00",
                                 .generation = 7,
                                 .fence = UINT64_MAX,
                                 .attempt = attempt,
                                 .attempt_size = sizeof attempt,
                                 .create_ms = 5};

    ck_assert(
        berth_set_map(&req->n_metadata, &req->metadata,
                      &berth__backend__v1__create_sandbox_request__metadata_entry__descriptor,
                      "berth.tenant", "victim"));
    ck_assert(cp_set_tags(req, &tags, NULL));
    box.metadata = (Berth__Common__V1__Sandbox__MetadataEntry **)req->metadata;
    box.n_metadata = req->n_metadata;
    ck_assert_uint_eq(req->n_metadata, 12);
    ck_assert_str_eq(cp_tag(&box, "berth.tenant"), "t");
    ck_assert_str_eq(cp_tag(&box, "berth.kind"), "maintenance");
    ck_assert_str_eq(cp_tag(&box, "berth.fence"), "18446744073709551615");
    ck_assert_uint_eq(cp_tag_number(&box, "berth.generation"), 7);
    ck_assert(cp_tag_bytes(&box, "berth.attempt", read, sizeof read));
    ck_assert_mem_eq(read, attempt, sizeof attempt);
    ck_assert_str_eq(cp_tag(&box, "none"), "");
    ck_assert(!cp_tag_bytes(&box, "berth.tenant", read, sizeof read));
    ck_assert_uint_eq(cp_tag_number(&box, "berth.tenant"), 0);
    berth_message_free(req);
}
END_TEST

static const struct {
    const char *name, *slug; /* NULL: none */
} slugs[] = {
    {"Local", "local"},      {"My first Config!", "my-first-config"},
    {"a__b..c", "a__b..c"},  {"--x--", "x"},
    {"a \xc3\xa4 b", "a-b"}, {"", NULL},
    {"\xc3\xa4", NULL},      {"..", NULL},
    {"!!!", NULL},
};

START_TEST(config_slug__names__an_id_or_none)
{
    char id[CP_CONFIG_ID_SIZE];

    ck_assert(cp_config_slug(id, slugs[_i].name) == (slugs[_i].slug != NULL));
    if (slugs[_i].slug)
        ck_assert_str_eq(id, slugs[_i].slug);
}
END_TEST

START_TEST(hex_bytes__bad_digits__refused)
{
    uint8_t bytes[2];

    ck_assert(cp_hex_bytes("0aff", bytes, 2) && bytes[0] == 0x0a && bytes[1] == 0xff);
    ck_assert(!cp_hex_bytes("0af", bytes, 2));
    ck_assert(!cp_hex_bytes("0aff0", bytes, 2));
    ck_assert(!cp_hex_bytes("0aFF", bytes, 2));
    ck_assert(!cp_hex_bytes("0agf", bytes, 2));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("controlplane/names");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int failed;

    tcase_add_test(all, unique_key__parts__deterministic_and_apart);
    tcase_add_test(all, set_tags__reserved_name_taken__overwritten);
    tcase_add_loop_test(all, config_slug__names__an_id_or_none, 0, (int)BERTH_COUNT(slugs));
    tcase_add_test(all, hex_bytes__bad_digits__refused);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
