/* test_blobs.c - a blob whose name was lost with the index is found again, and only by whom it
 * is for. */
#include <check.h>
#include <stdio.h>
#include <unistd.h>

#include "services/dataplane/blobs.h"

static char dir[64];
static struct blobs *blobs;
static Berth__Common__V1__SessionRef session;

static void setup(void)
{
    struct blobs_options options = {.dir = dir, .max_bytes = 1 << 20};

    snprintf(dir, sizeof dir, "/tmp/berth-blobs-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    ck_assert_int_eq(blobs_new(&options, &blobs, NULL), BERTH_OK);
    berth__common__v1__session_ref__init(&session);
    session.tenant_id = (char *)"t1";
    session.session_id = (char *)"s1";
}

/* What was left would make it fail. */
static void teardown(void)
{
    blobs_free(blobs);
    ck_assert_int_eq(rmdir(dir), 0);
}

static void put(const char *id)
{
    struct blob *blob = NULL;

    ck_assert_int_eq(blob_create(blobs, &session, id, &blob, NULL), BERTH_OK);
    ck_assert_int_eq(blob_write(blob, "x", 1, NULL), BERTH_OK);
    ck_assert_int_eq(blob_commit(blob, INT64_MAX, NULL), BERTH_OK);
    blob_close(blob);
}

/* "": none. */
static const char *found(uint64_t up_to_fence, const char *into)
{
    static char id[BLOB_ID_SIZE];
    enum berth_code code = blob_find(blobs, &session, up_to_fence, into, id, NULL);

    ck_assert(!code || code == BERTH_NOT_FOUND);
    return code ? "" : id;
}

static void unpack(const char *id, const char *into)
{
    struct blob *blob = NULL;

    ck_assert_int_eq(blob_open(blobs, &session, id, &blob, NULL), BERTH_OK);
    ck_assert_int_eq(blob_note_unpacked(blob, into, NULL), BERTH_OK);
    blob_close(blob);
}

/* That of the highest fence; what was made before it was exported has a workspace of its own.
 */
START_TEST(blob_find__several__the_last_that_is_older_than_the_sandbox)
{
    ck_assert_str_eq(found(UINT64_MAX, "b"), "");
    put("0000000000000005-aa");
    put("000000000000000c-aa");
    put("unnamed");
    ck_assert_str_eq(found(UINT64_MAX, "b"), "000000000000000c-aa");
    ck_assert_str_eq(found(0xc, "b"), "000000000000000c-aa");
    ck_assert_str_eq(found(0xb, "b"), "0000000000000005-aa");
    ck_assert_str_eq(found(4, "b"), "");
    session.session_id = (char *)"s2";
    ck_assert_str_eq(found(UINT64_MAX, "b"), "");
    session.session_id = (char *)"s1";
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(blob_remove(blobs, &session,
                                     (const char *[]){"unnamed", "000000000000000c-aa",
                                                      "0000000000000005-aa"}[i],
                                     NULL),
                         BERTH_OK);
}
END_TEST

/* Never into the same sandbox twice: it has been worked in since. Into another one, again. */
START_TEST(blob_find__unpacked__not_into_the_same)
{
    put("0000000000000005-aa");
    unpack("0000000000000005-aa", "b");
    ck_assert_str_eq(found(9, "b"), "");
    ck_assert_str_eq(found(9, "c"), "0000000000000005-aa");
    unpack("0000000000000005-aa", "c");
    ck_assert_str_eq(found(9, "c"), "");
    ck_assert_int_eq(blob_remove(blobs, &session, "0000000000000005-aa", NULL), BERTH_OK);
    ck_assert_str_eq(found(9, "d"), "");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("dataplane/blobs");
    TCase *tcase = tcase_create("blobs");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, blob_find__several__the_last_that_is_older_than_the_sandbox);
    tcase_add_test(tcase, blob_find__unpacked__not_into_the_same);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
