#include <check.h>
#include <dirent.h>
#include <stdio.h>

#include "common/time/time.h"
#include "tests/component/dataplane/rig.h"

enum {
    N_STREAMS = 1000,
    N_WARM = 100,
    KIB_MAX = 3 * 64
}; /* caller, data plane and adapter in one process */

static struct rig *rig;

static void teardown(void)
{
    rig_free(rig);
}

static void begin(const struct dataplane_options *options, struct step step)
{
    rig = rig_new(options);
    rig->steps[0] = step;
}

/* ---------------------------------------------------------------- use tokens */

/* A short call says nothing; an old one holds one token, renews it and gives it back. */
START_TEST(use__old_stream__one_token_renewed_and_returned)
{
    struct caller *caller;
    unsigned n_renewed;

    begin(&(struct dataplane_options){.use_after_ms = 100, .use_renew_ms = 100},
          (struct step){ACT_ANSWER, .n = 1, .size = 10});
    caller = caller_new(rig, RUN, a_run("e1"), true, true, 0);
    ck_assert_int_eq(caller_wait(caller, NULL), BERTH_OK);
    caller_free(caller);
    ck_assert_uint_eq(rig->n_renew + rig->n_end, 0);

    rig->steps[0].stay = true;
    caller = caller_new(rig, EXEC, an_exec("e2"), true, true, 0);
    WAIT_UNTIL(rig_count(rig, &rig->n_renew) >= 3);
    ck_assert_uint_eq(rig_count(rig, &rig->n_end), 0);
    ck_assert_uint_eq(rig_count(rig, &rig->n_tokens), 1);
    ck_assert_uint_eq(strlen(rig->use_token[0]), 32);
    ck_assert_str_eq(rig->use_sandbox_id, "sb-1");
    caller_free(caller);
    WAIT_UNTIL(rig_count(rig, &rig->n_end) == 1);
    n_renewed = rig_count(rig, &rig->n_renew);
    ck_assert_uint_eq(rig_count(rig, &rig->n_tokens), 1);

    /* Another stream, another token; and none of the first comes after its end. */
    caller = caller_new(rig, EXEC, an_exec("e3"), true, true, 0);
    WAIT_UNTIL(rig_count(rig, &rig->n_renew) > n_renewed + 1);
    ck_assert_uint_eq(rig_count(rig, &rig->n_tokens), 2);
    caller_free(caller);
    WAIT_UNTIL(rig_count(rig, &rig->n_end) == 2);
}
END_TEST

/* What the adapter says of the detached command from now on. */
static void list_says(const Berth__Data__V1__ListProcessesResponse *list,
                      enum berth_reason reason)
{
    pthread_mutex_lock(&rig->mutex);
    rig->n_steps = 1;
    rig->steps[0] = (struct step){ACT_ANSWER, .n = reason ? 0 : 1, .reason = reason,
                                  .message = &list->base};
    pthread_mutex_unlock(&rig->mutex);
}

/* A detached command's stream has ended: its token is held for as long as it runs, is given
 * back while the sandbox is paused, and for good when it has ended. */
START_TEST(use__detached_command__held_while_it_runs)
{
    Berth__Data__V1__ListProcessesResponse running =
        BERTH__DATA__V1__LIST_PROCESSES_RESPONSE__INIT;
    Berth__Data__V1__ListProcessesResponse ended =
        BERTH__DATA__V1__LIST_PROCESSES_RESPONSE__INIT;
    Berth__Data__V1__Process one = BERTH__DATA__V1__PROCESS__INIT, *list[] = {&one};
    unsigned n_renewed, n_calls;

    one.exec_id = (char *)"e1";
    running.n_processes = 1;
    running.processes = list;
    begin(&(struct dataplane_options){.use_after_ms = 50, .use_renew_ms = 50},
          (struct step){ACT_ANSWER, .n = 1, .size = 10, .stay = true});
    {
        struct caller *caller = caller_new(rig, EXEC, a_detached("e1", 60), true, true, 0);

        WAIT_UNTIL(rig_count(rig, &rig->n_renew) >= 1);
        list_says(&running, BERTH_REASON_NONE);
        caller_free(caller);
    }
    n_renewed = rig_count(rig, &rig->n_renew);
    WAIT_UNTIL(rig_count(rig, &rig->n_renew) >= n_renewed + 3 &&
               rig_count(rig, &rig->n_calls) >= 4);
    ck_assert_uint_eq(rig_count(rig, &rig->n_end), 0);
    ck_assert_uint_eq(rig_count(rig, &rig->n_tokens), 1);
    ck_assert_str_eq(rig->calls[1].sandbox_id, "sb-1");
    list_says(&running, BERTH_REASON_SANDBOX_PAUSED);
    WAIT_UNTIL(rig_count(rig, &rig->n_end) == 1);
    n_calls = rig_count(rig, &rig->n_calls);
    WAIT_UNTIL(rig_count(rig, &rig->n_calls) >= n_calls + 2);
    list_says(&running, BERTH_REASON_NONE);
    WAIT_UNTIL(rig_count(rig, &rig->n_tokens) == 2);
    list_says(&ended, BERTH_REASON_NONE);
    WAIT_UNTIL(rig_count(rig, &rig->n_end) == 2);
    WAIT_UNTIL(!rig->dp->n_lingers);
}
END_TEST

/* One without a time limit would hold it for ever: it has none once its stream has ended. Nor
 * has one whose end was told, nor one that is not detached. */
START_TEST(use__detached_for_ever_or_over__none)
{
    struct berth_buf *firsts[] = {a_detached("e1", 0), an_exec("e2"), a_detached("e3", 60)};

    begin(&(struct dataplane_options){.use_after_ms = 20, .use_renew_ms = 20},
          (struct step){ACT_ANSWER, .n = 1, .size = 10, .stay = true});
    for (unsigned i = 0; i < BERTH_COUNT(firsts); i++) {
        struct caller *caller;

        rig->steps[0].stay = i < 2;
        caller = caller_new(rig, EXEC, firsts[i], true, true, 0);
        if (i < 2)
            WAIT_UNTIL(rig_count(rig, &rig->n_tokens) == i + 1);
        else
            ck_assert_int_eq(caller_wait(caller, NULL), BERTH_OK);
        caller_free(caller);
        if (i < 2)
            WAIT_UNTIL(rig_count(rig, &rig->n_end) == i + 1);
        ck_assert_uint_eq(rig->dp->n_lingers, 0);
    }
    ck_assert_uint_eq(rig_count(rig, &rig->n_calls), BERTH_COUNT(firsts));
}
END_TEST

/* A control plane that fails or is away stops no stream, and is asked again. */
START_TEST(use__renewal_fails__stream_goes_on)
{
    struct caller *caller;

    begin(&(struct dataplane_options){.use_after_ms = 20, .use_renew_ms = 20},
          (struct step){ACT_ANSWER, .n = 1, .size = 10, .stay = true});
    rig->renew_reason = BERTH_REASON_STORE_UNAVAILABLE;
    caller = caller_new(rig, EXEC, an_exec("e1"), true, true, 0);
    WAIT_UNTIL(rig_count(rig, &rig->n_renew) >= 2);
    rig_control_kill(rig);
    WAIT_UNTIL(atomic_load(&rig->dp->counters.use_failures) >= 4);
    ck_assert(!caller_ended(caller));
    rig->renew_reason = BERTH_REASON_NONE;
    rig->n_renew = 0;
    rig_control_start(rig);
    WAIT_UNTIL(rig_count(rig, &rig->n_renew) >= 1);
    ck_assert(!caller_ended(caller));
    caller_free(caller);
    WAIT_UNTIL(rig_count(rig, &rig->n_end) == 1);
}
END_TEST

/* The end of the process gives the tokens back, and does not wait for a dead control plane. */
START_TEST(use__data_plane_ends__tokens_returned_or_given_up)
{
    struct caller *caller;
    int64_t since;

    begin(&(struct dataplane_options){.use_after_ms = 20, .use_renew_ms = 60000},
          (struct step){ACT_STALL});
    caller = caller_new(rig, EXEC, an_exec("e1"), true, true, 0);
    WAIT_UNTIL(rig_count(rig, &rig->n_renew) == 1);
    rig->front = berth_server_free(rig->front);
    caller_free(caller);
    since = berth_tick_ms();
    rig->dp = dataplane_free(rig->dp);
    ck_assert_int_lt(berth_tick_ms() - since, 3000);
    ck_assert_uint_eq(rig_count(rig, &rig->n_end), 1);
}
END_TEST

/* ------------------------------------------------------------------- limits */

/* An adapter that owes an answer for too long is given up. */
START_TEST(stall__silent_adapter__backend_timeout)
{
    struct caller *caller;
    struct berth_error err = {0};

    begin(&(struct dataplane_options){.stall_ms = 100}, (struct step){ACT_STALL});
    caller = caller_new(rig, STAT, a_stat(), true, true, 0);
    ck_assert_int_eq(caller_wait(caller, &err), BERTH_DEADLINE_EXCEEDED);
    ck_assert_int_eq(err.reason, BERTH_REASON_BACKEND_TIMEOUT);
    caller_free(caller);
    WAIT_UNTIL(rig_count(rig, &rig->n_cancelled) == 1);
}
END_TEST

/* A caller that is slow to read or to send is not the adapter's fault; nor is silence of a
 * command within its time. */
START_TEST(stall__slow_caller__goes_on)
{
    struct caller *reader, *writer, *command;
    int64_t until;

    begin(&(struct dataplane_options){.stall_ms = 400}, (struct step){ACT_FLOOD});
    rig->resolves[0].timeout_ms = 60000;
    reader = caller_new(rig, READ_FILE, a_read(), true, false, 0);
    WAIT_UNTIL(rig_count(rig, &rig->n_calls) == 1);
    rig->steps[0].act = ACT_COLLECT;
    writer = caller_new(rig, WRITE_FILE, a_write(), false, true, 0);
    WAIT_UNTIL(rig_count(rig, &rig->n_calls) == 2);
    rig->steps[0].act = ACT_STALL;
    command = caller_new(rig, EXEC, an_exec("e1"), true, true, 0);
    WAIT_UNTIL(rig_count(rig, &rig->n_calls) == 3);
    until = berth_tick_ms() + 1200;
    while (berth_tick_ms() < until) {
        ck_assert(!caller_ended(reader) && !caller_ended(writer) && !caller_ended(command));
        usleep(5000);
    }
    caller_half_close(writer);
    ck_assert_int_eq(caller_wait(writer, NULL), BERTH_OK);
    caller_free(reader);
    caller_free(writer);
    caller_free(command);
}
END_TEST

/* One call over max_streams is refused at once, and there is room again when one ends. */
START_TEST(limit__over_max_streams__overloaded_then_room)
{
    struct caller *held[3], *over;
    struct berth_error err = {0};

    begin(&(struct dataplane_options){.max_streams = 3}, (struct step){ACT_STALL});
    for (unsigned i = 0; i < 3; i++)
        held[i] = caller_new(rig, STAT, a_stat(), true, true, 0);
    WAIT_UNTIL(rig_count(rig, &rig->n_calls) == 3);
    over = caller_new(rig, STAT, a_stat(), true, true, 0);
    ck_assert_int_eq(caller_wait(over, &err), BERTH_RESOURCE_EXHAUSTED);
    ck_assert_int_eq(err.reason, BERTH_REASON_OVERLOADED);
    caller_free(over);
    caller_free(held[0]);
    WAIT_UNTIL(atomic_load(&rig->dp->counters.streams) == 2);
    rig->steps[0] = (struct step){ACT_ANSWER, .n = 1};
    over = caller_new(rig, STAT, a_stat(), true, true, 0);
    ck_assert_int_eq(caller_wait(over, NULL), BERTH_OK);
    caller_free(over);
    caller_free(held[1]);
    caller_free(held[2]);
}
END_TEST

/* ------------------------------------------------------------- many streams */

static unsigned count_threads(void)
{
    DIR *dir = opendir("/proc/self/task");
    unsigned n = 0;

    ck_assert_ptr_nonnull(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static long rss_kib(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    long pages = 0, resident = 0;

    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%ld %ld", &pages, &resident), 2);
    fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static void hold(struct caller **callers, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        callers[i] = caller_new(rig, EXEC, an_exec(""), true, true, 0);
    for (unsigned i = 0; i < n; i++)
        WAIT_UNTIL(rig_count(rig, &callers[i]->n_messages) == 1);
}

static void release(struct caller **callers, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        caller_free(callers[i]);
    WAIT_UNTIL(rig_count(rig, &rig->n_open) == 0);
    WAIT_UNTIL(atomic_load(&rig->dp->counters.streams) == 0);
}

/* 1,000 idle streams hold memory as promised and not one thread. */
START_TEST(streams__a_thousand_idle__no_threads_and_little_memory)
{
    static struct caller *callers[N_STREAMS];
    unsigned threads;
    long before;

    begin(NULL, (struct step){ACT_ANSWER, .n = 1, .size = 10, .stay = true});
    /* The pools, ours and the core's, fill up under load. */
    hold(callers, N_WARM);
    release(callers, N_WARM);
    threads = count_threads();
    before = rss_kib();
    hold(callers, N_STREAMS);
    /* The core's executor has at most two per processor, however many streams there are. */
    ck_assert_uint_le(count_threads(), threads + 2 * (unsigned)sysconf(_SC_NPROCESSORS_ONLN));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    ck_assert_int_lt((rss_kib() - before) / N_STREAMS, KIB_MAX);
#else
    (void)before;
#endif
    release(callers, N_STREAMS);
}
END_TEST

/* The figures are there, in the form that is scraped. */
START_TEST(metrics__after_a_call__counted)
{
    struct caller *caller;
    char *text;

    begin(NULL, (struct step){ACT_ANSWER, .n = 2, .size = 1000});
    caller = caller_new(rig, READ_FILE, a_read(), true, true, 0);
    ck_assert_int_eq(caller_wait(caller, NULL), BERTH_OK);
    caller_free(caller);
    text = dataplane_metrics(rig->dp);
    ck_assert_ptr_nonnull(strstr(text, "\nberth_dataplane_streams_total 1\n"));
    ck_assert_ptr_nonnull(strstr(text, "\nberth_dataplane_out_bytes_total 2000\n"));
    ck_assert_ptr_nonnull(strstr(text, "\nberth_dataplane_resolves_total 1\n"));
    ck_assert_ptr_nonnull(strstr(text, "\nberth_dataplane_retries_total 0\n"));
    free(text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("dataplane/streams");
    TCase *streams = tcase_create("streams");
    SRunner *runner;
    int failed;

    tcase_set_timeout(streams, 90);
    tcase_add_checked_fixture(streams, NULL, teardown);
    tcase_add_test(streams, use__old_stream__one_token_renewed_and_returned);
    tcase_add_test(streams, use__detached_command__held_while_it_runs);
    tcase_add_test(streams, use__detached_for_ever_or_over__none);
    tcase_add_test(streams, use__renewal_fails__stream_goes_on);
    tcase_add_test(streams, use__data_plane_ends__tokens_returned_or_given_up);
    tcase_add_test(streams, stall__silent_adapter__backend_timeout);
    tcase_add_test(streams, stall__slow_caller__goes_on);
    tcase_add_test(streams, limit__over_max_streams__overloaded_then_room);
    tcase_add_test(streams, streams__a_thousand_idle__no_threads_and_little_memory);
    tcase_add_test(streams, metrics__after_a_call__counted);
    suite_add_tcase(suite, streams);

    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
