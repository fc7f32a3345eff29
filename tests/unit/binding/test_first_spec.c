/* test_first_spec.c - what the creator of a session got wrong must not stick: as long as the
 * session never had a sandbox, and none can be on its way, the latest spec counts. */
#include "tests/unit/binding/bench.h"

#include <stdio.h>

typedef Berth__Common__V1__SessionSpec SessionSpec;

static struct bench bench;
static SessionSpec spec;
static Berth__Common__V1__Image image;

static void setup(void)
{
    bench_init(&bench);
    berth__common__v1__session_spec__init(&spec);
    berth__common__v1__image__init(&image);
    image.source_case = BERTH__COMMON__V1__IMAGE__SOURCE_TEMPLATE_ID;
    spec.image = &image;
}

static void teardown(void)
{
    bench_deinit(&bench);
}

/* An ENSURE that boots this template; NULL: without a spec. */
static struct outcome ensure(const char *attempt, const char *template_id)
{
    struct binding_want want = bench_want(BINDING_WANT_ENSURE, attempt);

    image.template_id = (char *)template_id;
    want.spec_if_new = template_id ? &spec : NULL;
    return bench_acquire(&bench, want);
}

/* What a create would boot, and the version of the spec. */
static const char *boots(uint64_t *ret_version)
{
    static char text[129];
    struct binding_image boot;
    struct binding_view view;

    bench_read(&bench, &view);
    binding_boot_image(&view, &boot);
    snprintf(text, sizeof text, "%s", boot.template_id ? boot.template_id : "");
    if (ret_version)
        *ret_version = view.doc.session.version;
    binding_doc_deinit(&view.doc);
    return text;
}

/* The create was refused: its intent is settled and the lock given back by one write. */
static void refused(const char *attempt, uint64_t fence)
{
    struct binding_change settled = bench_change(BINDING_CHANGE_SETTLED, attempt, fence);

    settled.attempt = attempt;
    ck_reason(bench_commit(&bench, settled).reason, "");
}

/* Refused for its template, tried again with another one: that one is booted. Without a spec
 * the old one stands, and the same spec again is no new version. */
START_TEST(ensure__after_a_refused_create__takes_the_new_spec)
{
    struct outcome got = ensure(ATTEMPT("1"), "tpyo");
    uint64_t version;

    refused(ATTEMPT("1"), got.fence);
    got = ensure(ATTEMPT("2"), NULL);
    ck_assert_str_eq(boots(&version), "tpyo");
    ck_assert_uint_eq(version, 1);
    refused(ATTEMPT("2"), got.fence);
    got = ensure(ATTEMPT("3"), "tpyo");
    (void)boots(&version);
    ck_assert_uint_eq(version, 1);
    refused(ATTEMPT("3"), got.fence);
    got = ensure(ATTEMPT("4"), "typo");
    ck_reason(got.reason, "");
    ck_assert_str_eq(boots(&version), "typo");
    ck_assert_uint_eq(version, 2);
    ck_assert(bench.indexed);
}
END_TEST

/* Each row: why a second spec does not count. */
static const char *const stays[] = {"create in flight", "create not settled", "bound",
                                    "had one",          "other config",       "older record"};

START_TEST(ensure__may_have_a_sandbox__spec_stays)
{
    const char *why = stays[_i];
    struct binding_change change;
    struct outcome got;

    got = ensure(ATTEMPT("1"), "first");
    ck_reason(got.reason, "");
    if (strcmp(why, "create in flight") == 0) {
        ck_assert_int_eq(ensure(ATTEMPT("2"), "second").decision, BINDING_DECIDE_WAIT);
    } else if (strcmp(why, "create not settled") == 0) {
        ck_reason(bench_abort(&bench, ATTEMPT("1"), got.fence).reason, "");
        ck_assert_int_eq(ensure(ATTEMPT("2"), "second").decision, BINDING_ADOPT_OR_CREATE);
    } else if (strcmp(why, "other config") == 0) {
        refused(ATTEMPT("1"), got.fence);
        spec.config_id = (char *)"c2";
        ck_reason(ensure(ATTEMPT("2"), "second").reason, "");
    } else if (strcmp(why, "older record") == 0) {
        char *mark = strstr(bench.value[BINDING_PART_SESSION], "never_bound");

        /* As a version that does not know the mark would have written it. */
        ck_assert_ptr_nonnull(mark);
        memcpy(mark, "other_bound", strlen("other_bound"));
        refused(ATTEMPT("1"), got.fence);
        ck_reason(ensure(ATTEMPT("2"), "second").reason, "");
    } else {
        change = bench_change(BINDING_CHANGE_BIND, ATTEMPT("1"), got.fence);
        change.bound = bench_bound("sb1", 0);
        ck_reason(bench_commit(&bench, change).reason, "");
        if (strcmp(why, "had one") == 0) {
            got = bench_acquire(&bench, bench_want(BINDING_WANT_RESUME, ATTEMPT("3")));
            change = bench_change(BINDING_CHANGE_GONE, ATTEMPT("3"), got.fence);
            change.sandbox_id = "sb1";
            ck_reason(bench_commit(&bench, change).reason, "");
        }
        ck_assert_int_eq(ensure(ATTEMPT("2"), "second").decision,
                         strcmp(why, "bound") == 0 ? BINDING_USE : BINDING_ADOPT_OR_CREATE);
    }
    ck_assert_str_eq(boots(NULL), "first");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("binding/first_spec");
    TCase *tc = tcase_create("first_spec");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, ensure__after_a_refused_create__takes_the_new_spec);
    tcase_add_loop_test(tc, ensure__may_have_a_sandbox__spec_stays, 0, (int)BERTH_COUNT(stays));
    suite_add_tcase(suite, tc);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
