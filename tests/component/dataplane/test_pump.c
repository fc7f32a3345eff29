#include <check.h>
#include <stdio.h>

#include "common/time/time.h"
#include "tests/component/dataplane/rig.h"

/* Two hops with a window of 1 MiB each, what each process holds, and the sockets. */
enum { PATH_MAX_BYTES = 4 << 20 };

static struct rig *rig;

static void setup(void)
{
    rig = rig_new(NULL);
}

static void teardown(void)
{
    rig_free(rig);
}

static void steps(unsigned n, const struct step *list)
{
    memcpy(rig->steps, list, n * sizeof *list);
    rig->n_steps = n;
}
#define STEPS(...)                                                                             \
    steps(sizeof((struct step[]){__VA_ARGS__}) / sizeof(struct step),                          \
          (struct step[]){__VA_ARGS__})

static void resolves(unsigned n, const struct resolve_step *list)
{
    memcpy(rig->resolves, list, n * sizeof *list);
    rig->n_resolves = n;
}
#define RESOLVES(...)                                                                          \
    resolves(sizeof((struct resolve_step[]){__VA_ARGS__}) / sizeof(struct resolve_step),       \
             (struct resolve_step[]){__VA_ARGS__})

static enum berth_code call(const char *path, struct berth_buf *first, struct berth_error *err)
{
    struct caller *caller = caller_new(rig, path, first, true, true, 0);
    enum berth_code code = caller_wait(caller, err);

    caller_free(caller);
    return code;
}

static ProtobufCMessage *first_of(unsigned i, const ProtobufCMessageDescriptor *type)
{
    ProtobufCMessage *message = NULL;

    ck_assert_int_eq(berth_buf_decode(type, rig->calls[i].first, &message, NULL), BERTH_OK);
    return message;
}

/* -------------------------------------------------------------- pass-through */

/* Messages of any bytes and size arrive in order, whole, and the status after them. */
START_TEST(pump__messages_from_the_adapter__exact)
{
    static const size_t sizes[] = {0, 1, 1000, 64 << 10, (4 << 20) - 1, 4 << 20};
    struct caller *caller;
    uint64_t sum;

    STEPS({ACT_ANSWER, .n = 7, .size = sizes[_i]});
    caller = caller_new(rig, READ_FILE, a_read(), true, true, 0);
    ck_assert_int_eq(caller_wait(caller, NULL), BERTH_OK);
    ck_assert_uint_eq(caller->n_messages, 7);
    ck_assert_uint_eq(caller->bytes, 7 * sizes[_i]);
    sum = 0;
    for (unsigned i = 7; i > 0; i--) {
        struct berth_buf *msg = some_bytes(sizes[_i], i);

        sum = sum_of(sum, berth_buf_data(msg), berth_buf_size(msg));
        berth_buf_unref(msg);
    }
    ck_assert_uint_eq(caller->sum, sum);
    caller_free(caller);
}
END_TEST

/* What the caller sends after the first message reaches the adapter undecoded, then the end. */
START_TEST(pump__messages_from_the_caller__exact)
{
    struct caller *caller;
    uint64_t sum = 0, bytes = 0;

    STEPS({ACT_COLLECT, .n = 1, .size = 10});
    caller = caller_new(rig, WRITE_FILE, a_write(), false, true, 0);
    for (unsigned i = 0; i < 40; i++) {
        struct berth_buf *msg = some_bytes(i * 5000 + 1, i);

        sum = sum_of(sum, berth_buf_data(msg), berth_buf_size(msg));
        bytes += berth_buf_size(msg);
        caller_send(caller, msg);
    }
    caller_half_close(caller);
    ck_assert_int_eq(caller_wait(caller, NULL), BERTH_OK);
    ck_assert_uint_eq(rig->adapter_in, bytes);
    ck_assert_uint_eq(rig->in_sum, sum);
    ck_assert_uint_eq(rig->n_half_closed, 1);
    ck_assert_uint_eq(caller->n_messages, 1);
    caller_free(caller);
}
END_TEST

/* The route travels as metadata, and the resolve says what kind of call it is. */
START_TEST(pump__route__reaches_adapter_and_mode_follows_method)
{
    ck_assert_int_eq(call(STAT, a_stat(), NULL), BERTH_OK);
    ck_assert_int_eq(rig->mode, BERTH__CONTROL__V1__RESOLVE_MODE__RESOLVE_MODE_EXISTING);
    ck_assert_str_eq(rig->calls[0].sandbox_id, "sb-1");
    ck_assert_str_eq(rig->calls[0].tenant, "default");
    ck_assert_uint_eq(rig->calls[0].fence, 7);
    ck_assert_int_eq(call(EXEC, an_exec("e1"), NULL), BERTH_OK);
    ck_assert_int_eq(rig->mode, BERTH__CONTROL__V1__RESOLVE_MODE__RESOLVE_MODE_ENSURE);
    ck_assert_str_eq(rig->turn_token, "turn-1");
    ck_assert_str_eq(rig->failed_sandbox_id, "");
}
END_TEST

/* An error of the adapter keeps code, text, reason and metadata, byte by byte. */
START_TEST(pump__rich_error__passed_on_exactly)
{
    struct caller *caller;
    struct berth_error err = {0};

    STEPS({ACT_ANSWER, .reason = BERTH_REASON_DISK_FULL, .sandbox_id = "sb-9"});
    caller = caller_new(rig, STAT, a_stat(), true, true, 0);
    ck_assert_int_eq(caller_wait(caller, &err), BERTH_RESOURCE_EXHAUSTED);
    ck_assert_str_eq(caller->status.message, "as the \"test\" says: \xc3\xa4");
    ck_assert_int_eq(err.reason, BERTH_REASON_DISK_FULL);
    ck_assert_str_eq(err.sandbox_id, "sb-9");
    caller_free(caller);

    /* After messages as well: they come first. */
    STEPS({ACT_ANSWER, .n = 3, .size = 100, .reason = BERTH_REASON_FILE_CHANGED});
    caller = caller_new(rig, READ_FILE, a_read(), true, true, 0);
    ck_assert_int_eq(caller_wait(caller, &err), BERTH_ABORTED);
    ck_assert_uint_eq(caller->n_messages, 3);
    ck_assert_int_eq(err.reason, BERTH_REASON_FILE_CHANGED);
    caller_free(caller);
}
END_TEST

/* A unary answer goes out with its status or not at all: an error after it is the error. */
START_TEST(pump__unary_answer_then_error__error_alone)
{
    struct caller *caller;

    STEPS({ACT_ANSWER, .n = 1, .size = 100, .reason = BERTH_REASON_DISK_FULL},
          {ACT_ANSWER, .n = 1, .size = 100});
    caller = caller_new(rig, RUN, a_run(""), true, true, 0);
    ck_assert_int_eq(caller_wait(caller, NULL), BERTH_RESOURCE_EXHAUSTED);
    ck_assert_uint_eq(caller->n_messages, 0);
    caller_free(caller);
    caller = caller_new(rig, RUN, a_run(""), true, true, 0);
    ck_assert_int_eq(caller_wait(caller, NULL), BERTH_OK);
    ck_assert_uint_eq(caller->bytes, 100);
    caller_free(caller);
}
END_TEST

/* A bare NOT_FOUND says nothing about sandboxes: unavailable, and no second resolve. */
START_TEST(pump__bare_not_found__unavailable_and_frees_nothing)
{
    struct berth_error err = {0};

    STEPS({ACT_ANSWER, .bare_code = BERTH_NOT_FOUND});
    ck_assert_int_eq(call(RUN, a_run(""), &err), BERTH_UNAVAILABLE);
    ck_assert_int_eq(err.reason, BERTH_REASON_ADAPTER_UNAVAILABLE);
    ck_assert_uint_eq(rig->n_resolved, 1);
}
END_TEST

/* --------------------------------------------------------------- back-pressure */

/* Bytes stop flowing: no change for a third of a second. */
static uint64_t settled(const uint64_t *value)
{
    uint64_t last = rig_get(rig, value), now;
    int64_t since = berth_tick_ms(), end = since + WAIT_MS;

    while (berth_tick_ms() - since < 300) {
        ck_assert_msg(berth_tick_ms() < end, "the flow never stops: %llu bytes",
                      (unsigned long long)last);
        usleep(2000);
        now = rig_get(rig, value);
        if (now != last)
            since = berth_tick_ms();
        last = now;
    }
    return last;
}

/* A caller that does not read stops the adapter when the windows are full, and goes on where it
 * stopped.
 */
START_TEST(pump__slow_reader__adapter_stopped_and_resumed)
{
    struct caller *caller;
    uint64_t stopped;

    STEPS({ACT_FLOOD});
    caller = caller_new(rig, READ_FILE, a_read(), true, false, 0);
    WAIT_UNTIL(rig_get(rig, &rig->adapter_out) > 0);
    stopped = settled(&rig->adapter_out);
    ck_assert_msg(stopped < PATH_MAX_BYTES, "%llu bytes on the way",
                  (unsigned long long)stopped);
    ck_assert_uint_eq(caller->n_messages, 0);
    caller_read_all(caller);
    WAIT_UNTIL(rig_get(rig, &rig->adapter_out) > stopped + (32 << 20));
    caller_free(caller);
    WAIT_UNTIL(rig_count(rig, &rig->n_open) == 0);
}
END_TEST

/* An adapter that does not read stops the caller when the windows are full. */
START_TEST(pump__slow_adapter__caller_stopped)
{
    struct caller *caller;
    uint64_t stopped;

    STEPS({ACT_STALL});
    caller = caller_new(rig, WRITE_FILE, a_write(), false, true, 0);
    caller_flood(caller);
    WAIT_UNTIL(rig_get(rig, &caller->sent_bytes) > CHUNK);
    stopped = settled(&caller->sent_bytes);
    ck_assert_msg(stopped < PATH_MAX_BYTES, "%llu bytes on the way",
                  (unsigned long long)stopped);
    caller_free(caller);
    WAIT_UNTIL(rig_count(rig, &rig->n_open) == 0);
}
END_TEST

/* ------------------------------------------------------------------- cancel */

/* The caller's cancel and its deadline reach the adapter. */
START_TEST(pump__caller_gives_up__adapter_cancelled)
{
    struct caller *caller;

    STEPS({ACT_ANSWER, .n = 1, .size = 10, .stay = true}, {ACT_STALL});
    caller = caller_new(rig, EXEC, an_exec("e1"), true, true, 0);
    WAIT_UNTIL(rig_count(rig, &caller->n_messages) == 1);
    caller_cancel(caller);
    ck_assert_int_eq(caller_wait(caller, NULL), BERTH_CANCELLED);
    WAIT_UNTIL(rig_count(rig, &rig->n_cancelled) == 1);
    caller_free(caller);

    caller = caller_new(rig, EXEC, an_exec("e2"), true, true, 200);
    ck_assert_int_eq(caller_wait(caller, NULL), BERTH_DEADLINE_EXCEEDED);
    WAIT_UNTIL(rig_count(rig, &rig->n_cancelled) == 2);
    caller_free(caller);
    WAIT_UNTIL(rig_count(rig, &rig->n_open) == 0);
}
END_TEST

/* A cancel while the route is still awaited opens nothing at the adapter. */
START_TEST(pump__cancel_while_resolving__nothing_started)
{
    struct caller *caller;

    RESOLVES({.wait = true});
    caller = caller_new(rig, RUN, a_run("e1"), true, true, 0);
    WAIT_UNTIL(rig_count(rig, &rig->n_resolved) == 1);
    caller = caller_free(caller);
    WAIT_UNTIL(atomic_load(&rig->dp->counters.streams) == 0);
    pthread_mutex_lock(&rig->mutex);
    rig->release = true;
    pthread_mutex_unlock(&rig->mutex);
    RESOLVES({0});
    ck_assert_int_eq(call(RUN, a_run("e2"), NULL), BERTH_OK);
    ck_assert_uint_eq(rig->n_calls, 1);
}
END_TEST

/* ------------------------------------------------------------------- repeats */

static const enum berth_reason misrouted[] = {
    BERTH_REASON_SANDBOX_PAUSED, BERTH_REASON_SANDBOX_NOT_FOUND, BERTH_REASON_SANDBOX_TERMINAL};

/* The adapter says the route is wrong: resolved once more, naming the sandbox that failed, and
 * the very same bytes are sent there. */
START_TEST(pump__sandbox_gone__resolved_and_sent_once_more)
{
    Berth__Data__V1__RunRequest *sent[2];

    STEPS({ACT_ANSWER, .reason = misrouted[_i], .sandbox_id = "sb-1"}, {ACT_ANSWER, .n = 1});
    RESOLVES({0}, {.sandbox_id = "sb-2"});
    ck_assert_int_eq(call(RUN, a_run(""), NULL), BERTH_OK);
    ck_assert_uint_eq(rig->n_resolved, 2);
    ck_assert_str_eq(rig->failed_sandbox_id, "sb-1");
    ck_assert_uint_eq(rig->n_calls, 2);
    ck_assert_str_eq(rig->calls[1].sandbox_id, "sb-2");
    for (unsigned i = 0; i < 2; i++)
        sent[i] = (void *)first_of(i, &berth__data__v1__run_request__descriptor);
    ck_assert_uint_ge(strlen(sent[0]->command->exec_id), 16);
    ck_assert_str_eq(sent[0]->command->exec_id, sent[1]->command->exec_id);
    for (unsigned i = 0; i < 2; i++)
        protobuf_c_message_free_unpacked(&sent[i]->base, NULL);
}
END_TEST

/* Once is enough: the second refusal is the answer. */
START_TEST(pump__sandbox_gone_twice__second_answer_passed_on)
{
    struct berth_error err = {0};

    STEPS({ACT_ANSWER, .reason = BERTH_REASON_SANDBOX_PAUSED, .sandbox_id = "sb-1"});
    ck_assert_int_eq(call(RUN, a_run(""), &err), BERTH_FAILED_PRECONDITION);
    ck_assert_int_eq(err.reason, BERTH_REASON_SANDBOX_PAUSED);
    ck_assert_uint_eq(rig->n_resolved, 2);
    ck_assert_uint_eq(rig->n_calls, 2);
}
END_TEST

/* After the first message of the adapter nothing is repeated, whatever it says. */
START_TEST(pump__sandbox_gone_after_output__not_repeated)
{
    struct berth_error err = {0};

    STEPS({ACT_ANSWER, .n = 1, .size = 5, .reason = BERTH_REASON_SANDBOX_NOT_FOUND});
    ck_assert_int_eq(call(EXEC, an_exec("e1"), &err), BERTH_NOT_FOUND);
    ck_assert_int_eq(err.reason, BERTH_REASON_SANDBOX_NOT_FOUND);
    ck_assert_uint_eq(rig->n_resolved, 1);
    ck_assert_uint_eq(rig->n_calls, 1);
}
END_TEST

/* Any other error is never a reason to send the call again. */
START_TEST(pump__other_error__not_repeated)
{
    STEPS({ACT_ANSWER, .reason = BERTH_REASON_SANDBOX_TRANSITIONING});
    ck_assert_int_eq(call(RUN, a_run(""), NULL), BERTH_UNAVAILABLE);
    STEPS({ACT_ANSWER, .bare_code = BERTH_UNAVAILABLE});
    ck_assert_int_eq(call(RUN, a_run(""), NULL), BERTH_UNKNOWN);
    ck_assert_uint_eq(rig->n_calls, 2);
}
END_TEST

/* A write whose first messages are all kept is repeated whole; nothing is lost or doubled. */
START_TEST(pump__write_refused_early__sent_again_whole)
{
    struct caller *caller;
    uint64_t sum = 0;

    STEPS({ACT_ANSWER, .reason = BERTH_REASON_SANDBOX_PAUSED}, {ACT_COLLECT, .n = 1});
    RESOLVES({0}, {.wait = true, .sandbox_id = "sb-2"});
    caller = caller_new(rig, WRITE_FILE, a_write(), false, true, 0);
    WAIT_UNTIL(rig_count(rig, &rig->n_resolved) == 2);
    for (unsigned i = 0; i < 20; i++) {
        struct berth_buf *msg = some_bytes(1000, i);

        sum = sum_of(sum, berth_buf_data(msg), berth_buf_size(msg));
        caller_send(caller, msg);
    }
    caller_half_close(caller);
    pthread_mutex_lock(&rig->mutex);
    rig->release = true;
    pthread_mutex_unlock(&rig->mutex);
    ck_assert_int_eq(caller_wait(caller, NULL), BERTH_OK);
    ck_assert_uint_eq(rig->adapter_in, 20 * 1000);
    ck_assert_uint_eq(rig->in_sum, sum);
    caller_free(caller);
}
END_TEST

/* A write that has gone too far to be kept is not repeated: the answer is passed on. */
START_TEST(pump__write_refused_late__not_repeated)
{
    struct caller *caller;
    struct berth_error err = {0};

    STEPS({ACT_COLLECT, .reason = BERTH_REASON_SANDBOX_PAUSED});
    caller = caller_new(rig, WRITE_FILE, a_write(), false, true, 0);
    for (unsigned i = 0; i < 20; i++)
        caller_send(caller, some_bytes(CHUNK, i));
    caller_half_close(caller);
    ck_assert_int_eq(caller_wait(caller, &err), BERTH_FAILED_PRECONDITION);
    ck_assert_uint_eq(rig->n_calls, 1);
    caller_free(caller);
}
END_TEST

/* --------------------------------------------------------------- peers away */

/* The adapter's connection breaks: what may have run is unknown, what only read is unavailable;
 * never an exit that nobody reported. */
START_TEST(pump__adapter_dies__outcome_unknown_or_unavailable)
{
    struct caller *run, *stat;
    struct berth_error err = {0};

    STEPS({ACT_STALL});
    run = caller_new(rig, EXEC, an_exec("e7"), true, true, 0);
    stat = caller_new(rig, STAT, a_stat(), true, true, 0);
    WAIT_UNTIL(rig_count(rig, &rig->n_calls) == 2);
    rig_adapter_kill(rig);
    ck_assert_int_eq(caller_wait(run, &err), BERTH_UNKNOWN);
    ck_assert_int_eq(err.reason, BERTH_REASON_OUTCOME_UNKNOWN);
    ck_assert_ptr_nonnull(strstr(err.text, "e7"));
    ck_assert_int_eq(caller_wait(stat, &err), BERTH_UNAVAILABLE);
    ck_assert_int_eq(err.reason, BERTH_REASON_ADAPTER_UNAVAILABLE);
    caller_free(run);
    caller_free(stat);
}
END_TEST

/* Without adapter or control plane the answer comes within a second, names who is away, and is
 * fine again when they are back. */
START_TEST(pump__peer_away__unavailable_within_a_second_then_back)
{
    struct berth_error err = {0};
    int64_t since;

    ck_assert_int_eq(call(RUN, a_run(""), NULL), BERTH_OK);
    rig_adapter_kill(rig);
    since = berth_tick_ms();
    ck_assert_int_eq(call(RUN, a_run(""), &err), BERTH_UNAVAILABLE);
    ck_assert_int_eq(err.reason, BERTH_REASON_ADAPTER_UNAVAILABLE);
    ck_assert_int_lt(berth_tick_ms() - since, 1000);
    rig_adapter_start(rig);
    WAIT_UNTIL(call(RUN, a_run(""), NULL) == BERTH_OK);

    rig_control_kill(rig);
    since = berth_tick_ms();
    ck_assert_int_eq(call(RUN, a_run(""), &err), BERTH_UNAVAILABLE);
    ck_assert_int_eq(err.reason, BERTH_REASON_PEER_UNAVAILABLE);
    ck_assert_int_lt(berth_tick_ms() - since, 1000);
    rig_control_start(rig);
    WAIT_UNTIL(call(RUN, a_run(""), NULL) == BERTH_OK);
}
END_TEST

/* The control plane's own errors are passed on as they are. */
START_TEST(pump__resolve_fails__passed_on)
{
    static const enum berth_reason reasons[] = {
        BERTH_REASON_STORE_UNAVAILABLE, BERTH_REASON_SESSION_NOT_FOUND,
        BERTH_REASON_TURN_EXPIRED, BERTH_REASON_LOCK_WAIT};
    struct berth_error err = {0};

    for (size_t i = 0; i < BERTH_COUNT(reasons); i++) {
        RESOLVES({.reason = reasons[i]});
        ck_assert_int_eq(call(RUN, a_run(""), &err), berth_reason_code(reasons[i]));
        ck_assert_int_eq(err.reason, reasons[i]);
    }
    ck_assert_uint_eq(rig->n_calls, 0);
}
END_TEST

/* A running stream does not notice that the control plane went away. */
START_TEST(pump__control_plane_dies__running_stream_goes_on)
{
    struct caller *caller;

    STEPS({ACT_FLOOD});
    caller = caller_new(rig, READ_FILE, a_read(), true, true, 0);
    WAIT_UNTIL(rig_get(rig, &caller->bytes) > 0);
    rig_control_kill(rig);
    WAIT_UNTIL(rig_get(rig, &caller->bytes) > 16 << 20);
    ck_assert(!caller_ended(caller));
    caller_free(caller);
}
END_TEST

/* ------------------------------------------------------------------- judging */

/* Bad first messages end here: the fault is named, nothing is resolved. */
START_TEST(pump__bad_first_message__refused_unresolved)
{
    struct berth_error err = {0};

    ck_assert_int_eq(call(RUN, berth_buf_new("\xff\xff\xff", 3), &err), BERTH_INVALID_ARGUMENT);
    ck_assert_int_eq(err.reason, BERTH_REASON_FIELD_INVALID);
    ck_assert_int_eq(call(RUN, berth_buf_new("", 0), &err), BERTH_INVALID_ARGUMENT);
    ck_assert_str_eq(err.field, "session");
    ck_assert_int_eq(call(WRITE_FILE, NULL, &err), BERTH_INVALID_ARGUMENT);
    ck_assert_uint_eq(rig->n_resolved, 0);
}
END_TEST

/* The config's default and maximum, and who may be root. */
START_TEST(pump__command_limits__filled_and_held)
{
    Berth__Data__V1__RunRequest *sent;
    Berth__Data__V1__RunRequest *req;
    ProtobufCMessage *message = NULL;
    struct berth_error err = {0};
    struct berth_buf *plain = a_run("e1");

    RESOLVES({.timeout_ms = 1500, .timeout_max_ms = 2000});
    ck_assert_int_eq(call(RUN, berth_buf_ref(plain), NULL), BERTH_OK);
    sent = (void *)first_of(0, &berth__data__v1__run_request__descriptor);
    ck_assert_ptr_nonnull(sent->command->timeout);
    ck_assert_int_eq(sent->command->timeout->seconds, 1);
    ck_assert_int_eq(sent->command->timeout->nanos, 500000000);
    ck_assert_str_eq(sent->command->exec_id, "e1");
    sent->command->timeout->seconds = 2;
    ck_assert_int_eq(call(RUN, berth_buf_pack(&sent->base), &err), BERTH_INVALID_ARGUMENT);
    ck_assert_str_eq(err.field, "command.timeout");
    protobuf_c_message_free_unpacked(&sent->base, NULL);

    ck_assert_int_eq(
        berth_buf_decode(&berth__data__v1__run_request__descriptor, plain, &message, NULL),
        BERTH_OK);
    req = (void *)message;
    req->command->account = BERTH__DATA__V1__ACCOUNT__ACCOUNT_ROOT;
    ck_assert_int_eq(call(RUN, berth_buf_pack(message), &err), BERTH_PERMISSION_DENIED);
    ck_assert_int_eq(err.reason, BERTH_REASON_ROOT_REFUSED);
    RESOLVES({.root = true}, {0});
    rig->n_resolved = 0;
    ck_assert_int_eq(call(RUN, berth_buf_pack(message), NULL), BERTH_OK);
    protobuf_c_message_free_unpacked(message, NULL);
    berth_buf_unref(plain);
    ck_assert_uint_eq(rig->n_calls, 2);
}
END_TEST

/* Routes that cannot be taken. */
START_TEST(pump__route_of_no_use__said_so)
{
    struct berth_error err = {0};

    RESOLVES({.kind = BERTH__COMMON__V1__DATA_PLANE_KIND__DATA_PLANE_KIND_ENVD});
    ck_assert_int_eq(call(RUN, a_run(""), &err), BERTH_UNIMPLEMENTED);
    ck_assert_int_eq(err.reason, BERTH_REASON_CAPABILITY_MISSING);
    RESOLVES({.backend = "cube"});
    ck_assert_int_eq(call(RUN, a_run(""), &err), BERTH_UNAVAILABLE);
    ck_assert_int_eq(err.reason, BERTH_REASON_ADAPTER_UNAVAILABLE);
    ck_assert_uint_eq(rig->n_calls, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("dataplane/pump");
    TCase *pump = tcase_create("pump");
    SRunner *runner;
    int failed;

    tcase_set_timeout(pump, 60);
    tcase_add_checked_fixture(pump, setup, teardown);
    tcase_add_loop_test(pump, pump__messages_from_the_adapter__exact, 0, 6);
    tcase_add_test(pump, pump__messages_from_the_caller__exact);
    tcase_add_test(pump, pump__route__reaches_adapter_and_mode_follows_method);
    tcase_add_test(pump, pump__rich_error__passed_on_exactly);
    tcase_add_test(pump, pump__unary_answer_then_error__error_alone);
    tcase_add_test(pump, pump__bare_not_found__unavailable_and_frees_nothing);
    tcase_add_test(pump, pump__slow_reader__adapter_stopped_and_resumed);
    tcase_add_test(pump, pump__slow_adapter__caller_stopped);
    tcase_add_test(pump, pump__caller_gives_up__adapter_cancelled);
    tcase_add_test(pump, pump__cancel_while_resolving__nothing_started);
    tcase_add_loop_test(pump, pump__sandbox_gone__resolved_and_sent_once_more, 0,
                        (int)BERTH_COUNT(misrouted));
    tcase_add_test(pump, pump__sandbox_gone_twice__second_answer_passed_on);
    tcase_add_test(pump, pump__sandbox_gone_after_output__not_repeated);
    tcase_add_test(pump, pump__other_error__not_repeated);
    tcase_add_test(pump, pump__write_refused_early__sent_again_whole);
    tcase_add_test(pump, pump__write_refused_late__not_repeated);
    tcase_add_test(pump, pump__adapter_dies__outcome_unknown_or_unavailable);
    tcase_add_test(pump, pump__peer_away__unavailable_within_a_second_then_back);
    tcase_add_test(pump, pump__resolve_fails__passed_on);
    tcase_add_test(pump, pump__control_plane_dies__running_stream_goes_on);
    tcase_add_test(pump, pump__bad_first_message__refused_unresolved);
    tcase_add_test(pump, pump__command_limits__filled_and_held);
    tcase_add_test(pump, pump__route_of_no_use__said_so);
    suite_add_tcase(suite, pump);

    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
