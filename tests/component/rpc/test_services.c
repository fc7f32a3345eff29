/* Health and reflection, as any client of theirs sees them. */
#include <check.h>
#include <stdio.h>

#include "grpc/health/v1/health.pb-c.h"
#include "grpc/reflection/v1/reflection.pb-c.h"
#include "tests/component/rpc/client.h"

typedef Grpc__Health__V1__HealthCheckRequest HealthCheckRequest;
typedef Grpc__Health__V1__HealthCheckResponse HealthCheckResponse;
typedef Grpc__Reflection__V1__ServerReflectionRequest ReflectionRequest;
typedef Grpc__Reflection__V1__ServerReflectionResponse ReflectionResponse;

#define HEALTH_PATH(method) "/grpc.health.v1.Health/" method
#define ASKED(name) GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##name
#define ANSWER(name) GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_##name

enum { UNKNOWN_SERVICE = 3, SERVING = 1, NOT_SERVING = 2, N_WATCHES = 100 };

static struct echo_server server;
static struct berth_channel *channel;
static struct berth_loop *loop;

static void setup(void)
{
    /* One worker each: what waits may not hold any. Over TCP nobody is a peer. */
    const struct berth_server_options options = {
        .n_workers = 1, .n_priority_workers = 1, .peers_only = true};
    struct berth_error err = {0};

    echo_server_start(&server, &options, NULL);
    ck_assert(!berth_loop_new(&loop, &err));
    ck_assert(!berth_loop_start(loop, "client-loop", &err));
    ck_assert(!berth_channel_new(server.address, NULL, &channel, &err));
}

static void setup_public(void)
{
    struct berth_error err = {0};

    echo_server_start(&server, NULL, NULL);
    ck_assert(!berth_loop_new(&loop, &err));
    ck_assert(!berth_loop_start(loop, "client-loop", &err));
    ck_assert(!berth_channel_new(server.address, NULL, &channel, &err));
}

static void teardown(void)
{
    channel = berth_channel_free(channel);
    loop = berth_loop_free(loop);
    echo_server_stop(&server, 1000);
}

/* ------------------------------------------------------------------ health */

/* Serving status of a service, or minus the code of the failure. */
static int check(const char *service, struct berth_error *err)
{
    HealthCheckRequest req = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    ProtobufCMessage *resp;
    enum berth_code code;
    int status;

    req.service = (char *)(uintptr_t)service;
    code = berth_channel_call(channel, HEALTH_PATH("Check"), &req.base,
                              &grpc__health__v1__health_check_response__descriptor, NULL, &resp,
                              err);
    if (code)
        return -(int)code;
    status = (int)((HealthCheckResponse *)resp)->status;
    protobuf_c_message_free_unpacked(resp, NULL);
    return status;
}

/* The process is alive as soon as it answers, its services as they say; what nobody has ever
 * named is NOT_FOUND (which our own client takes for "unavailable": it proves nothing). */
START_TEST(check__each_service__own_state)
{
    struct berth_error err = {0};

    ck_assert_int_eq(check("", &err), SERVING);
    ck_assert_int_eq(check("berth.testing.v1.EchoService", &err), -BERTH_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(err.text, "bare NOT_FOUND"));
    berth_health_set(server.echo.server, "berth.testing.v1.EchoService", false);
    ck_assert_int_eq(check("berth.testing.v1.EchoService", &err), NOT_SERVING);
    berth_health_set(server.echo.server, "berth.testing.v1.EchoService", true);
    ck_assert_int_eq(check("berth.testing.v1.EchoService", &err), SERVING);
}
END_TEST

static void watch(struct echo_client *client, const char *service)
{
    HealthCheckRequest req = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;

    req.service = (char *)(uintptr_t)service;
    echo_client_open(client, channel, loop, HEALTH_PATH("Watch"), NULL);
    ck_assert(echo_client_write(client, berth_buf_pack(&req.base), 5000));
    echo_client_half_close(client);
}

/* The next status, or 0 at the end. */
static int watched(struct echo_client *client)
{
    struct berth_buf *msg = echo_client_read(client);
    ProtobufCMessage *resp;
    struct berth_error err;
    int status;

    if (!msg)
        return 0;
    ck_assert(!berth_buf_decode(&grpc__health__v1__health_check_response__descriptor, msg,
                                &resp, &err));
    berth_buf_unref(msg);
    status = (int)((HealthCheckResponse *)resp)->status;
    protobuf_c_message_free_unpacked(resp, NULL);
    return status;
}

/* A watch tells the state now and every change. */
START_TEST(watch__changes__told)
{
    struct echo_client client;

    watch(&client, "late");
    ck_assert_int_eq(watched(&client), UNKNOWN_SERVICE);
    berth_health_set(server.echo.server, "late", true);
    ck_assert_int_eq(watched(&client), SERVING);
    berth_health_set(server.echo.server, "other", true);
    berth_health_set(server.echo.server, "late", true);
    berth_health_set(server.echo.server, "late", false);
    ck_assert_int_eq(watched(&client), NOT_SERVING);
    echo_client_deinit(&client);
}
END_TEST

/* Watches hold no worker: with one worker, a hundred of them, and calls besides. */
START_TEST(watch__many__no_worker_held)
{
    static struct echo_client clients[N_WATCHES];
    struct berth_error err = {0};

    for (size_t i = 0; i < N_WATCHES; i++) {
        watch(&clients[i], "");
        ck_assert_int_eq(watched(&clients[i]), SERVING);
    }
    ck_assert_int_eq(check("", &err), SERVING);
    for (size_t i = 0; i < N_WATCHES; i++)
        echo_client_deinit(&clients[i]);
}
END_TEST

static void *stopper_thread(void *arg)
{
    berth_server_stop(arg, 10000);
    return NULL;
}

/* A draining server says NOT_SERVING to watchers and sends them away, and does not wait. */
START_TEST(watch__drain__not_serving_then_end)
{
    struct echo_client client;
    pthread_t stopper;

    watch(&client, "");
    ck_assert_int_eq(watched(&client), SERVING);
    ck_assert_int_eq(pthread_create(&stopper, NULL, stopper_thread, server.echo.server), 0);
    ck_assert_int_eq(watched(&client), NOT_SERVING);
    ck_assert_int_eq(watched(&client), 0);
    ck_assert_int_eq(echo_client_wait(&client), BERTH_UNAVAILABLE);
    ck_assert_int_eq(client.err.reason, BERTH_REASON_DRAINING);
    pthread_join(stopper, NULL);
    echo_client_deinit(&client);
}
END_TEST

/* -------------------------------------------------------------- reflection */

static const char *const versions[] = {
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"};

static ReflectionResponse *ask(struct echo_client *client, const ReflectionRequest *req)
{
    struct berth_buf *msg;
    ProtobufCMessage *resp;
    struct berth_error err = {0};

    ck_assert(echo_client_write(client, berth_buf_pack(&req->base), 5000));
    msg = echo_client_read(client);
    ck_assert_ptr_nonnull(msg);
    ck_assert_msg(
        !berth_buf_decode(&grpc__reflection__v1__server_reflection_response__descriptor, msg,
                          &resp, &err),
        "%s", err.text);
    berth_buf_unref(msg);
    return (ReflectionResponse *)resp;
}

static void done(ReflectionResponse *resp)
{
    protobuf_c_message_free_unpacked(&resp->base, NULL);
}

/* All services are listed, health and reflection among them. */
START_TEST(reflection__list__all_services)
{
    ReflectionRequest req = GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__INIT;
    struct echo_client client;
    ReflectionResponse *resp;

    echo_client_open(&client, channel, loop, versions[_i], NULL);
    req.message_request_case = ASKED(LIST_SERVICES);
    req.list_services = (char *)"*";
    resp = ask(&client, &req);
    ck_assert_int_eq(resp->message_response_case, ANSWER(LIST_SERVICES_RESPONSE));
    ck_assert_uint_eq(resp->list_services_response->n_service, 4);
    ck_assert_str_eq(resp->list_services_response->service[0]->name,
                     "berth.testing.v1.EchoService");
    ck_assert_str_eq(resp->list_services_response->service[1]->name, "grpc.health.v1.Health");
    done(resp);
    echo_client_half_close(&client);
    ck_assert_ptr_null(echo_client_read(&client));
    ck_assert_int_eq(echo_client_wait(&client), BERTH_OK);
    echo_client_deinit(&client);
}
END_TEST

/* Each row: a symbol, and how many files its description takes. 0: there is none. */
static const struct {
    const char *symbol;
    size_t n_files;
} symbol_rows[] = {
    {"berth.testing.v1.EchoService", 1},
    {"berth.testing.v1.EchoService.Bidi", 1},
    {"berth.testing.v1.EchoRequest", 1},
    {"berth.testing.v1.EchoRequest.hold_ms", 1},
    {"berth.testing.v1.EchoRequest.LabelsEntry", 1},
    {"grpc.health.v1.HealthCheckResponse.ServingStatus", 1},
    {"grpc.health.v1.HealthCheckResponse.SERVING", 1},
    {"grpc.reflection.v1alpha.ServerReflection", 1},
    {"berth.testing.v1.Echo", 0},
    {"berth.testing.v1", 0},
    {"", 0},
};

START_TEST(reflection__symbols__file_or_not_found)
{
    ReflectionRequest req = GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__INIT;
    struct echo_client client;

    echo_client_open(&client, channel, loop, versions[_i], NULL);
    req.message_request_case = ASKED(FILE_CONTAINING_SYMBOL);
    for (size_t i = 0; i < BERTH_COUNT(symbol_rows); i++) {
        ReflectionResponse *resp;

        req.file_containing_symbol = (char *)(uintptr_t)symbol_rows[i].symbol;
        resp = ask(&client, &req);
        if (symbol_rows[i].n_files) {
            ck_assert_int_eq(resp->message_response_case, ANSWER(FILE_DESCRIPTOR_RESPONSE));
            ck_assert_uint_eq(resp->file_descriptor_response->n_file_descriptor_proto,
                              symbol_rows[i].n_files);
        } else {
            ck_assert_int_eq(resp->message_response_case, ANSWER(ERROR_RESPONSE));
            ck_assert_int_eq(resp->error_response->error_code, BERTH_NOT_FOUND);
        }
        done(resp);
    }
    echo_client_deinit(&client);
}
END_TEST

/* Files by name; extensions, of which there are none; and an empty question. */
START_TEST(reflection__other_questions__answered)
{
    Grpc__Reflection__V1__ExtensionRequest extension =
        GRPC__REFLECTION__V1__EXTENSION_REQUEST__INIT;
    ReflectionRequest req = GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__INIT;
    struct echo_client client;
    ReflectionResponse *resp;

    echo_client_open(&client, channel, loop, versions[_i], NULL);
    req.message_request_case = ASKED(FILE_BY_FILENAME);
    req.file_by_filename = (char *)"grpc/health/v1/health.proto";
    resp = ask(&client, &req);
    ck_assert_int_eq(resp->message_response_case, ANSWER(FILE_DESCRIPTOR_RESPONSE));
    done(resp);
    req.file_by_filename = (char *)"no/such.proto";
    resp = ask(&client, &req);
    ck_assert_int_eq(resp->error_response->error_code, BERTH_NOT_FOUND);
    ck_assert_str_eq(resp->original_request->file_by_filename, "no/such.proto");
    done(resp);

    req.message_request_case = ASKED(ALL_EXTENSION_NUMBERS_OF_TYPE);
    req.all_extension_numbers_of_type = (char *)"berth.testing.v1.EchoRequest";
    resp = ask(&client, &req);
    ck_assert_int_eq(resp->message_response_case, ANSWER(ALL_EXTENSION_NUMBERS_RESPONSE));
    ck_assert_uint_eq(resp->all_extension_numbers_response->n_extension_number, 0);
    done(resp);
    req.message_request_case = ASKED(FILE_CONTAINING_EXTENSION);
    extension.containing_type = (char *)"berth.testing.v1.EchoRequest";
    extension.extension_number = 100;
    req.file_containing_extension = &extension;
    resp = ask(&client, &req);
    ck_assert_int_eq(resp->error_response->error_code, BERTH_NOT_FOUND);
    done(resp);

    req.message_request_case = ASKED(_NOT_SET);
    resp = ask(&client, &req);
    ck_assert_int_eq(resp->error_response->error_code, BERTH_INVALID_ARGUMENT);
    done(resp);
    echo_client_deinit(&client);
}
END_TEST

/* An internal server shows its contracts to peers only. */
START_TEST(reflection__internal_server__peers_only)
{
    struct echo_client client;

    echo_client_open(&client, channel, loop, versions[_i], NULL);
    echo_client_half_close(&client);
    ck_assert_int_eq(echo_client_wait(&client), BERTH_PERMISSION_DENIED);
    echo_client_deinit(&client);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("common/rpc services");
    TCase *internal = tcase_create("internal"), *public = tcase_create("public");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(internal, setup, teardown);
    tcase_set_timeout(internal, 60);
    tcase_add_test(internal, check__each_service__own_state);
    tcase_add_test(internal, watch__changes__told);
    tcase_add_test(internal, watch__many__no_worker_held);
    tcase_add_test(internal, watch__drain__not_serving_then_end);
    tcase_add_loop_test(internal, reflection__internal_server__peers_only, 0, 2);
    suite_add_tcase(suite, internal);
    tcase_add_checked_fixture(public, setup_public, teardown);
    tcase_set_timeout(public, 60);
    tcase_add_loop_test(public, reflection__list__all_services, 0, 2);
    tcase_add_loop_test(public, reflection__symbols__file_or_not_found, 0, 2);
    tcase_add_loop_test(public, reflection__other_questions__answered, 0, 2);
    suite_add_tcase(suite, public);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
