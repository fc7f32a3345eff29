#include <check.h>
#include <stdio.h>

#include "tests/component/rpc/echo.h"

static struct echo_server server;
static struct berth_channel *channel;
static char path[64];

static void setup(void)
{
    struct berth_error err = {0};
    snprintf(path, sizeof path, "/tmp/berth-rpc-%d.sock", (int)getpid());
    echo_server_start(&server, NULL, path);
    ck_assert(!berth_channel_new(server.address, NULL, &channel, &err));
}

static void teardown(void)
{
    channel = berth_channel_free(channel);
    echo_server_stop(&server, 1000);
}

START_TEST(unary__text__comes_back)
{
    EchoRequest req = ECHO_REQUEST_INIT;
    ProtobufCMessage *resp;
    struct berth_error err = {0};
    enum berth_code code;

    req.text = (char *)"hello";
    code = berth_channel_call(channel, ECHO_PATH("Unary"), &req.base, ECHO_RESPONSE_TYPE, NULL,
                              &resp, &err);
    ck_assert_msg(!code, "%s", err.text);
    ck_assert_str_eq(((EchoResponse *)resp)->text, "hello");
    ck_assert(((EchoResponse *)resp)->is_peer);
    protobuf_c_message_free_unpacked(resp, NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("common/rpc unary");
    TCase *tcase = tcase_create("unary");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, unary__text__comes_back);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
