/* test_losses.c - what a session lost is told with the first answer that can say it, and the
 * control plane hears of it before that answer goes out. */
#include <check.h>
#include <stdio.h>

#include "common/time/time.h"
#include "tests/component/dataplane/rig.h"

typedef Berth__Control__V1__SandboxLoss SandboxLoss;
typedef Berth__Data__V1__ExecResponse ExecResponse;
typedef Berth__Data__V1__RunResponse RunResponse;
typedef Berth__Data__V1__WriteFileResponse WriteFileResponse;

static struct rig *rig;

/* What the adapter answers. */
static RunResponse ran;
static WriteFileResponse wrote;
static ExecResponse did;
static Berth__Data__V1__ProcessEvent event;
static Berth__Data__V1__Started started;
static Berth__Data__V1__Exited exited;

static void setup(void)
{
    rig = rig_new(NULL);
    berth__data__v1__run_response__init(&ran);
    berth__data__v1__write_file_response__init(&wrote);
    berth__data__v1__exec_response__init(&did);
    berth__data__v1__process_event__init(&event);
    berth__data__v1__started__init(&started);
    berth__data__v1__exited__init(&exited);
    ran.exec_id = (char *)"e1";
    did.event = &event;
    event.seq = 1;
    event.event_case = BERTH__DATA__V1__PROCESS_EVENT__EVENT_STARTED;
    event.started = &started;
    started.pid = 42;
    rig->resolves[0] = (struct resolve_step){.loss = 7};
}

static void teardown(void)
{
    rig_free(rig);
}

static void answer(const ProtobufCMessage *message, unsigned n)
{
    rig->steps[0] = (struct step){ACT_ANSWER, .n = n, .size = 100, .message = message};
}

static ProtobufCMessage *got(const struct caller *caller,
                             const ProtobufCMessageDescriptor *type)
{
    ProtobufCMessage *message = NULL;

    ck_assert_uint_ge(caller->n_messages, 1);
    ck_assert_int_eq(berth_buf_decode(type, caller->messages[0], &message, NULL), BERTH_OK);
    return message;
}

static void check_loss(const SandboxLoss *loss)
{
    ck_assert_ptr_nonnull(loss);
    ck_assert_uint_eq(loss->number, 7);
    ck_assert_int_eq(loss->outcome,
                     BERTH__CONTROL__V1__RESOLVE_OUTCOME__RESOLVE_OUTCOME_REPLACED);
    ck_assert_str_eq(loss->sandbox_id, "sb-0");
    ck_assert_uint_eq(loss->n_lost, 1);
    ck_assert_str_eq(loss->lost[0], "workspace");
}

/* Run and WriteFile say it in their answer, besides what the adapter said. */
START_TEST(run__loss__in_the_answer_and_reported)
{
    struct caller *caller;
    RunResponse *run;
    WriteFileResponse *write;

    answer(&ran.base, 1);
    caller = caller_new(rig, RUN, a_run("e1"), true, true, 0);
    ck_assert_int_eq(caller_wait(caller, NULL), BERTH_OK);
    run = (RunResponse *)got(caller, &berth__data__v1__run_response__descriptor);
    ck_assert_str_eq(run->exec_id, "e1");
    check_loss(run->loss);
    ck_assert_uint_eq(rig->n_told, 1);
    ck_assert_uint_eq(rig->told, 7);
    berth__data__v1__run_response__free_unpacked(run, NULL);
    caller_free(caller);

    rig->steps[0] = (struct step){ACT_COLLECT, .n = 1, .message = &wrote.base};
    caller = caller_new(rig, WRITE_FILE, a_write(), true, true, 0);
    ck_assert_int_eq(caller_wait(caller, NULL), BERTH_OK);
    write = (WriteFileResponse *)got(caller, &berth__data__v1__write_file_response__descriptor);
    check_loss(write->loss);
    ck_assert_uint_eq(rig->n_told, 2);
    berth__data__v1__write_file_response__free_unpacked(write, NULL);
    caller_free(caller);
}
END_TEST

/* What else changes a sandbox may be the first to meet a new one. */
START_TEST(change__loss__in_the_answer_and_reported)
{
    static char session[] = "s1", path[] = "/workspace/x", other[] = "/workspace/y";
    Berth__Common__V1__SessionRef ref = BERTH__COMMON__V1__SESSION_REF__INIT;
    Berth__Data__V1__MakeDirRequest make = BERTH__DATA__V1__MAKE_DIR_REQUEST__INIT;
    Berth__Data__V1__MakeDirResponse made = BERTH__DATA__V1__MAKE_DIR_RESPONSE__INIT;
    Berth__Data__V1__MoveRequest move = BERTH__DATA__V1__MOVE_REQUEST__INIT;
    Berth__Data__V1__MoveResponse moved = BERTH__DATA__V1__MOVE_RESPONSE__INIT;
    Berth__Data__V1__RemoveRequest remove = BERTH__DATA__V1__REMOVE_REQUEST__INIT;
    Berth__Data__V1__RemoveResponse removed = BERTH__DATA__V1__REMOVE_RESPONSE__INIT;
    const struct {
        const char *path;
        const ProtobufCMessage *req, *resp;
        size_t loss; /* where it is in the answer */
    } rows[] = {
        {MAKE_DIR, &make.base, &made.base, offsetof(Berth__Data__V1__MakeDirResponse, loss)},
        {MOVE, &move.base, &moved.base, offsetof(Berth__Data__V1__MoveResponse, loss)},
        {REMOVE, &remove.base, &removed.base, offsetof(Berth__Data__V1__RemoveResponse, loss)},
    };
    struct caller *caller;
    ProtobufCMessage *message;
    const SandboxLoss *loss;

    ref.tenant_id = ref.session_id = session;
    make.session = move.session = remove.session = &ref;
    make.path = move.source = remove.path = path;
    move.target = other;
    answer(rows[_i].resp, 1);
    caller = caller_new(rig, rows[_i].path, berth_buf_pack(rows[_i].req), true, true, 0);
    ck_assert_int_eq(caller_wait(caller, NULL), BERTH_OK);
    message = got(caller, rows[_i].resp->descriptor);
    memcpy(&loss, (char *)message + rows[_i].loss, sizeof loss);
    check_loss(loss);
    ck_assert_uint_eq(rig->n_told, 1);
    protobuf_c_message_free_unpacked(message, NULL);
    caller_free(caller);
}
END_TEST

/* Exec says it in `started`; what follows passes undecoded, in order, whatever the adapter's
 * status. */
START_TEST(exec__loss__in_started_only)
{
    struct caller *caller;
    ExecResponse *exec;
    struct berth_error err;

    answer(&did.base, 5);
    if (_i)
        rig->steps[0].reason = BERTH_REASON_OVERLOADED;
    caller = caller_new(rig, EXEC, an_exec("e1"), true, true, 0);
    ck_assert_int_eq(caller_wait(caller, &err), _i ? BERTH_RESOURCE_EXHAUSTED : BERTH_OK);
    ck_assert_uint_eq(caller->n_messages, 5);
    exec = (ExecResponse *)got(caller, &berth__data__v1__exec_response__descriptor);
    ck_assert_uint_eq(exec->event->seq, 1);
    ck_assert_uint_eq(exec->event->started->pid, 42);
    check_loss(exec->event->started->loss);
    ck_assert_uint_eq(rig->n_told, 1);
    berth__data__v1__exec_response__free_unpacked(exec, NULL);
    for (unsigned i = 1; i < 5; i++) {
        struct berth_buf *sent = some_bytes(100, 5 - i);

        ck_assert_uint_eq(berth_buf_size(caller->messages[i]), 100);
        ck_assert_mem_eq(berth_buf_data(caller->messages[i]), berth_buf_data(sent), 100);
        berth_buf_unref(sent);
    }
    caller_free(caller);
}
END_TEST

/* The one message of a stream that is over by the time the control plane has answered. */
START_TEST(exec__started_and_over_while_reporting__delivered)
{
    struct caller *caller;
    ExecResponse *exec;

    answer(&did.base, 1);
    rig->hold_told = true;
    caller = caller_new(rig, EXEC, an_exec("e1"), true, true, 0);
    WAIT_UNTIL(rig_count(rig, &rig->n_told) == 1);
    WAIT_UNTIL(rig_count(rig, &rig->n_open) == 0);
    ck_assert_uint_eq(rig_count(rig, &caller->n_messages), 0);
    pthread_mutex_lock(&rig->mutex);
    rig->release = true;
    pthread_mutex_unlock(&rig->mutex);
    ck_assert_int_eq(caller_wait(caller, NULL), BERTH_OK);
    exec = (ExecResponse *)got(caller, &berth__data__v1__exec_response__descriptor);
    check_loss(exec->event->started->loss);
    berth__data__v1__exec_response__free_unpacked(exec, NULL);
    caller_free(caller);
}
END_TEST

/* What cannot say it leaves it to be told: calls without a place, errors, a command that never
 * started, bytes that are no answer. They pass as they are. */
START_TEST(call__no_place_for_it__not_reported)
{
    struct caller *caller;

    answer(NULL, 1);
    caller = caller_new(rig, STAT, a_stat(), true, true, 0);
    ck_assert_int_eq(caller_wait(caller, NULL), BERTH_OK);
    ck_assert_uint_eq(caller->bytes, 100);
    caller_free(caller);

    rig->steps[0] = (struct step){ACT_ANSWER, .reason = BERTH_REASON_DISK_FULL};
    caller = caller_new(rig, RUN, a_run("e1"), true, true, 0);
    ck_assert_int_eq(caller_wait(caller, NULL), BERTH_RESOURCE_EXHAUSTED);
    caller_free(caller);

    event.event_case = BERTH__DATA__V1__PROCESS_EVENT__EVENT_EXITED;
    event.exited = &exited;
    answer(&did.base, 1);
    caller = caller_new(rig, EXEC, an_exec("e1"), true, true, 0);
    ck_assert_int_eq(caller_wait(caller, NULL), BERTH_OK);
    ck_assert_uint_eq(caller->n_messages, 1);
    caller_free(caller);

    answer(NULL, 3);
    caller = caller_new(rig, EXEC, an_exec("e1"), true, true, 0);
    ck_assert_int_eq(caller_wait(caller, NULL), BERTH_OK);
    ck_assert_uint_eq(caller->bytes, 300);
    caller_free(caller);
    ck_assert_uint_eq(rig->n_told, 0);
}
END_TEST

/* Nothing lost: the answer is passed on byte for byte, and nobody is asked. */
START_TEST(run__nothing_lost__nothing_said)
{
    struct caller *caller;

    rig->resolves[0] = (struct resolve_step){0};
    answer(NULL, 1);
    caller = caller_new(rig, RUN, a_run("e1"), true, true, 0);
    ck_assert_int_eq(caller_wait(caller, NULL), BERTH_OK);
    ck_assert_uint_eq(caller->bytes, 100);
    ck_assert_uint_eq(rig->n_told, 0);
    caller_free(caller);
}
END_TEST

/* The control plane does not hear: the caller is told all the same (and once more, later). */
START_TEST(run__report_fails__answered_all_the_same)
{
    struct caller *caller;
    RunResponse *run;

    rig->told_reason = BERTH_REASON_STORE_UNAVAILABLE;
    answer(&ran.base, 1);
    caller = caller_new(rig, RUN, a_run("e1"), true, true, 0);
    ck_assert_int_eq(caller_wait(caller, NULL), BERTH_OK);
    run = (RunResponse *)got(caller, &berth__data__v1__run_response__descriptor);
    check_loss(run->loss);
    berth__data__v1__run_response__free_unpacked(run, NULL);
    caller_free(caller);
}
END_TEST

/* A caller that leaves before the answer was not told; one that leaves during the report ends
 * everything. */
START_TEST(run__caller_gone__not_reported)
{
    struct caller *caller;

    rig->steps[0] = (struct step){ACT_STALL};
    caller = caller_new(rig, RUN, a_run("e1"), true, true, 0);
    WAIT_UNTIL(rig_count(rig, &rig->n_calls) == 1);
    caller_cancel(caller);
    caller_wait(caller, NULL);
    caller_free(caller);
    WAIT_UNTIL(rig_count(rig, &rig->n_open) == 0);
    ck_assert_uint_eq(rig_count(rig, &rig->n_told), 0);

    answer(&ran.base, 1);
    rig->hold_told = true;
    caller = caller_new(rig, RUN, a_run("e1"), true, true, 0);
    WAIT_UNTIL(rig_count(rig, &rig->n_told) == 1);
    caller_cancel(caller);
    caller_wait(caller, NULL);
    caller_free(caller);
    WAIT_UNTIL(atomic_load(&rig->dp->counters.streams) == 0);
}
END_TEST

/* Tried again elsewhere: what the second route says counts. */
START_TEST(run__repeated_at_a_new_sandbox__its_loss_told)
{
    struct caller *caller;
    RunResponse *run;

    rig->resolves[0] = (struct resolve_step){0};
    rig->resolves[1] = (struct resolve_step){.loss = 7, .sandbox_id = "sb-2"};
    rig->n_resolves = 2;
    rig->steps[0] = (struct step){ACT_ANSWER, .reason = BERTH_REASON_SANDBOX_NOT_FOUND};
    rig->steps[1] = (struct step){ACT_ANSWER, .n = 1, .message = &ran.base};
    rig->n_steps = 2;
    caller = caller_new(rig, RUN, a_run("e1"), true, true, 0);
    ck_assert_int_eq(caller_wait(caller, NULL), BERTH_OK);
    run = (RunResponse *)got(caller, &berth__data__v1__run_response__descriptor);
    check_loss(run->loss);
    berth__data__v1__run_response__free_unpacked(run, NULL);
    caller_free(caller);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("dataplane/losses");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(all, setup, teardown);
    tcase_set_timeout(all, 60);
    tcase_add_test(all, run__loss__in_the_answer_and_reported);
    tcase_add_loop_test(all, change__loss__in_the_answer_and_reported, 0, 3);
    tcase_add_loop_test(all, exec__loss__in_started_only, 0, 2);
    tcase_add_test(all, exec__started_and_over_while_reporting__delivered);
    tcase_add_test(all, call__no_place_for_it__not_reported);
    tcase_add_test(all, run__nothing_lost__nothing_said);
    tcase_add_test(all, run__report_fails__answered_all_the_same);
    tcase_add_test(all, run__caller_gone__not_reported);
    tcase_add_test(all, run__repeated_at_a_new_sandbox__its_loss_told);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
