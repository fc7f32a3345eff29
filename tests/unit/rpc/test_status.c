/* Errors to statuses and back, and what bare statuses are taken for. */
#include <check.h>

#include "berth/common/v1/common.pb-c.h"
#include "common/rpc/status.h"

#define SET(member, value) berth_error_set(err.member, sizeof err.member, value)

static struct rpc_status wire;
static char text[1024];

static void teardown(void)
{
    rpc_status_deinit(&wire);
}

static void encode(enum berth_code code, const struct berth_error *err)
{
    char *message;

    rpc_status_encode(code, err, "/pkg.Service/Method", "0123456789abcdef", &wire);
    message = grpc_slice_to_c_string(wire.message);
    berth_error_set(text, sizeof text, message);
    gpr_free(message);
}

static enum berth_code decode(struct berth_error *err)
{
    struct berth_status status = {.code = wire.code, .message = text};

    if (GRPC_SLICE_LENGTH(wire.details)) {
        status.details = GRPC_SLICE_START_PTR(wire.details);
        status.details_size = GRPC_SLICE_LENGTH(wire.details);
    }
    *err = (struct berth_error){0};
    return berth_status_to_error(&status, err);
}

/* Every reason but INTERNAL_BUG comes back as it was, with all that is known. */
START_TEST(status__each_reason__round_trip)
{
    struct berth_error err = {0}, back;
    enum berth_reason reason = (enum berth_reason)_i;

    (void)berth_fail(&err, reason, "about '%s'", "it");
    SET(resource, "sessions/t/s");
    SET(field, "session.tenant_id");
    SET(rule, "1..128 characters");
    SET(backend, "local");
    SET(sandbox_id, "sb-1");
    err.http_status = 502;
    err.retry_after_ms = 1500;
    encode(err.code, &err);
    ck_assert_int_eq(decode(&back), berth_reason_code(reason));
    ck_assert_int_eq(back.reason, reason);
    if (reason == BERTH_REASON_INTERNAL_BUG) {
        ck_assert_str_eq(back.text, "internal error (request 0123456789abcdef)");
        ck_assert_str_eq(back.resource, "");
        ck_assert_int_eq(back.http_status, 0);
    } else {
        ck_assert_int_eq(memcmp(&back, &err, sizeof err), 0);
    }
}
END_TEST

/* Members at their longest still fit. */
START_TEST(status__long_members__whole)
{
    struct berth_error err = {0}, back;
    char big[1000];

    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = 0;
    (void)berth_fail(&err, BERTH_REASON_CONFLICT, "%s", big);
    SET(resource, big);
    SET(field, big);
    SET(rule, big);
    SET(backend, big);
    SET(sandbox_id, big);
    err.retry_after_ms = INT64_MAX;
    encode(err.code, &err);
    (void)decode(&back);
    ck_assert_int_eq(memcmp(&back, &err, sizeof err), 0);
}
END_TEST

/* The reason decides the code, whatever the handler returned. */
START_TEST(status__code_against_reason__reason_wins)
{
    struct berth_error err = {0}, back;

    (void)berth_fail(&err, BERTH_REASON_LOCK_LOST, NULL);
    encode(BERTH_NOT_FOUND, &err);
    ck_assert_int_eq(decode(&back), BERTH_ABORTED);
}
END_TEST

/* Without an error there is still a status. */
START_TEST(status__no_error__code_kept)
{
    struct berth_error back;

    encode(BERTH_CANCELLED, NULL);
    ck_assert_int_eq(decode(&back), BERTH_CANCELLED);
    ck_assert_int_eq(back.reason, BERTH_REASON_CANCELLED);
    rpc_status_deinit(&wire);
    encode(BERTH_INTERNAL, NULL);
    ck_assert_int_eq(decode(&back), BERTH_INTERNAL);
    rpc_status_deinit(&wire);
    encode(BERTH_OK, NULL);
    ck_assert_int_eq(decode(&back), BERTH_OK);
}
END_TEST

/* Each row: a status from somebody who does not know our reasons, and what it means to us. A
 * bare NOT_FOUND or UNIMPLEMENTED frees nothing. */
static const struct {
    int code;
    enum berth_reason reason;
    const char *text;
} bare_rows[] = {
    {BERTH_CANCELLED, BERTH_REASON_CANCELLED},
    {BERTH_UNKNOWN, BERTH_REASON_OUTCOME_UNKNOWN},
    {BERTH_INVALID_ARGUMENT, BERTH_REASON_OUTCOME_UNKNOWN},
    {BERTH_DEADLINE_EXCEEDED, BERTH_REASON_DEADLINE},
    {BERTH_NOT_FOUND, BERTH_REASON_PEER_UNAVAILABLE},
    {BERTH_RESOURCE_EXHAUSTED, BERTH_REASON_MESSAGE_TOO_LARGE,
     "Received message larger than max (5 vs. 4)"},
    {BERTH_RESOURCE_EXHAUSTED, BERTH_REASON_OUTCOME_UNKNOWN,
     "Received RST_STREAM with error code 11"},
    {BERTH_FAILED_PRECONDITION, BERTH_REASON_OUTCOME_UNKNOWN},
    {BERTH_UNIMPLEMENTED, BERTH_REASON_PEER_UNAVAILABLE},
    {BERTH_INTERNAL, BERTH_REASON_OUTCOME_UNKNOWN},
    {BERTH_UNAVAILABLE, BERTH_REASON_OUTCOME_UNKNOWN},
    {99, BERTH_REASON_OUTCOME_UNKNOWN},
};

START_TEST(berth_status_to_error__bare__nothing_freed)
{
    struct berth_status status = {.code = (enum berth_code)bare_rows[_i].code,
                                  .message = bare_rows[_i].text};
    struct berth_error err = {0};

    ck_assert_int_eq(berth_status_to_error(&status, &err),
                     berth_reason_code(bare_rows[_i].reason));
    ck_assert_int_eq(err.reason, bare_rows[_i].reason);
    ck_assert(!berth_status_has_reason(&status));
}
END_TEST

/* Details count only when they are ours: our domain, a reason we know, and the code that
 * belongs to it. */
static const struct {
    const char *url, *domain, *reason;
    enum berth_code code;
    bool ours;
} detail_rows[] = {
    {"type.googleapis.com/google.rpc.ErrorInfo", "berth", "SANDBOX_NOT_FOUND", BERTH_NOT_FOUND,
     true},
    {"google.rpc.ErrorInfo", "berth", "SANDBOX_NOT_FOUND", BERTH_NOT_FOUND, true},
    {"type.googleapis.com/google.rpc.ErrorInfo", "example", "SANDBOX_NOT_FOUND",
     BERTH_NOT_FOUND, false},
    {"type.googleapis.com/google.rpc.ErrorInfo", "berth", "NO_SUCH_REASON", BERTH_NOT_FOUND,
     false},
    {"type.googleapis.com/google.rpc.ErrorInfo", "berth", "LOCK_LOST", BERTH_NOT_FOUND, false},
    {"type.googleapis.com/google.rpc.Help", "berth", "SANDBOX_NOT_FOUND", BERTH_NOT_FOUND,
     false},
    {"", "berth", "SANDBOX_NOT_FOUND", BERTH_NOT_FOUND, false},
};

START_TEST(berth_status_to_error__foreign_details__ignored)
{
    Berth__Common__V1__ErrorInfo info = BERTH__COMMON__V1__ERROR_INFO__INIT;
    Google__Protobuf__Any any = GOOGLE__PROTOBUF__ANY__INIT, *list = &any;
    Berth__Common__V1__Status message = BERTH__COMMON__V1__STATUS__INIT;
    struct berth_status status = {.code = detail_rows[_i].code, .message = "text"};
    struct berth_error err = {0};
    uint8_t packed_info[256], packed[512];

    info.domain = (char *)(uintptr_t)detail_rows[_i].domain;
    info.reason = (char *)(uintptr_t)detail_rows[_i].reason;
    any.type_url = (char *)(uintptr_t)detail_rows[_i].url;
    any.value.data = packed_info;
    any.value.len = berth__common__v1__error_info__pack(&info, packed_info);
    message.n_details = 1;
    message.details = &list;
    status.details = packed;
    status.details_size = berth__common__v1__status__pack(&message, packed);
    ck_assert_int_eq(berth_status_has_reason(&status), detail_rows[_i].ours);
    (void)berth_status_to_error(&status, &err);
    ck_assert_int_eq(err.reason == BERTH_REASON_SANDBOX_NOT_FOUND, detail_rows[_i].ours);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("common/rpc status");
    TCase *tcase = tcase_create("status");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(tcase, NULL, teardown);
    tcase_add_loop_test(tcase, status__each_reason__round_trip, 1, BERTH_N_REASONS);
    tcase_add_test(tcase, status__long_members__whole);
    tcase_add_test(tcase, status__code_against_reason__reason_wins);
    tcase_add_test(tcase, status__no_error__code_kept);
    tcase_add_loop_test(tcase, berth_status_to_error__bare__nothing_freed, 0,
                        (int)BERTH_COUNT(bare_rows));
    tcase_add_loop_test(tcase, berth_status_to_error__foreign_details__ignored, 0,
                        (int)BERTH_COUNT(detail_rows));
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
