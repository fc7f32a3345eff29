#include "tests/component/local/rig.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>

#include "common/time/time.h"
#include "services/adapter-local/spawner/io.h"

static struct rig rig;

static void setup(void)
{
    rig = (struct rig){0};
    rig_open(&rig);
}

static void teardown(void)
{
    rig_close(&rig);
}

static void refused(enum berth_code code, const struct berth_error *err,
                    enum berth_reason reason)
{
    ck_assert_msg(code == berth_reason_code(reason) && err->reason == reason,
                  "wanted %s, got %s: %s", berth_reason_name(reason),
                  berth_reason_name(err->reason), err->text);
}

static size_t n_sandboxes(void)
{
    char **names = NULL;
    size_t n = 0;

    ck_assert_int_eq(store_list(rig.store.sandboxes_fd, &names, &n, NULL), BERTH_OK);
    store_list_free(names, n);
    return n;
}

/* A repeat of the same attempt answers the first sandbox, however often. */
START_TEST(create__same_attempt__same_sandbox)
{
    char first[ADAPTER_ID_SIZE], again[ADAPTER_ID_SIZE];

    rig_make(&rig, &(struct rig_wish){.fence = 5}, first);
    for (int i = 0; i < 3; i++) {
        rig_make(&rig, &(struct rig_wish){.fence = 5}, again);
        ck_assert_str_eq(first, again);
    }
    ck_assert_uint_eq(n_sandboxes(), 1);
}
END_TEST

/* Another attempt is told whose sandbox is there. */
START_TEST(create__other_attempt__sandbox_exists_with_its_id)
{
    char id[ADAPTER_ID_SIZE], other[ADAPTER_ID_SIZE];
    struct berth_error err = {0};

    rig_make(&rig, &(struct rig_wish){.fence = 5}, id);
    refused(rig_create(&rig, &(struct rig_wish){.attempt = "bb", .fence = 6}, other, &err),
            &err, BERTH_REASON_SANDBOX_EXISTS);
    ck_assert_str_eq(err.sandbox_id, id);
    /* And from then on an earlier grant's create does not pass any more. */
    refused(rig_create(&rig, &(struct rig_wish){.fence = 5}, other, &err), &err,
            BERTH_REASON_FENCE_STALE);
}
END_TEST

/* Another key is another sandbox. */
START_TEST(create__other_key__another_sandbox)
{
    char id[ADAPTER_ID_SIZE], other[ADAPTER_ID_SIZE];

    rig_make(&rig, &(struct rig_wish){.key = "one", .fence = 5}, id);
    rig_make(&rig, &(struct rig_wish){.key = "two", .fence = 5}, other);
    ck_assert_str_ne(id, other);
}
END_TEST

/* A create of an earlier grant that was under way is fenced off, even its repeat. */
START_TEST(create__lower_fence__fence_stale)
{
    char id[ADAPTER_ID_SIZE];
    struct berth_error err = {0};

    rig_make(&rig, &(struct rig_wish){.fence = 5}, id);
    refused(rig_create(&rig, &(struct rig_wish){.attempt = "bb", .fence = 4}, id, &err), &err,
            BERTH_REASON_FENCE_STALE);
    refused(rig_create(&rig, &(struct rig_wish){.attempt = "aa", .fence = 4}, id, &err), &err,
            BERTH_REASON_FENCE_STALE);
}
END_TEST

/* The fence of a connect counts for later creates. */
START_TEST(create__fence_below_a_connects__fence_stale)
{
    char id[ADAPTER_ID_SIZE];
    struct berth_error err = {0};

    rig_make(&rig, &(struct rig_wish){.fence = 5}, id);
    ck_assert_int_eq(rig_call(&rig, "connect", rig_about(id, 9), NULL, NULL), BERTH_OK);
    refused(rig_create(&rig, &(struct rig_wish){.fence = 8}, id, &err), &err,
            BERTH_REASON_FENCE_STALE);
}
END_TEST

/* After a delete: the same attempt never makes a second one, a lower fence never passes, the
 * next grant does. */
START_TEST(create__after_delete__remembers)
{
    char id[ADAPTER_ID_SIZE], next[ADAPTER_ID_SIZE];
    struct berth_error err = {0};

    rig_make(&rig, &(struct rig_wish){.fence = 5}, id);
    rig_delete(&rig, id, 7);
    refused(rig_create(&rig, &(struct rig_wish){.attempt = "cc", .fence = 6}, next, &err), &err,
            BERTH_REASON_FENCE_STALE);
    refused(rig_create(&rig, &(struct rig_wish){.attempt = "aa", .fence = 7}, next, &err), &err,
            BERTH_REASON_SANDBOX_TERMINAL);
    ck_assert_str_eq(err.sandbox_id, id);
    ck_assert_uint_eq(n_sandboxes(), 0);
    rig_make(&rig, &(struct rig_wish){.attempt = "bb", .fence = 7}, next);
    ck_assert_str_ne(id, next);
    /* All of it survives a new spawner. */
    rig_stop(&rig);
    rig_start(&rig);
    refused(rig_create(&rig, &(struct rig_wish){.attempt = "cc", .fence = 6}, next, &err), &err,
            BERTH_REASON_FENCE_STALE);
}
END_TEST

static bool is_ended(void *arg)
{
    struct record record;
    bool ended;

    rig_record(&rig, arg, &record);
    ended = record.ended;
    record_deinit(&record);
    return ended;
}

/* A dead sandbox does not keep its session from getting another one; its own attempt is told.
 */
START_TEST(create__predecessor_dead__replaced_by_the_next_grant)
{
    char id[ADAPTER_ID_SIZE], next[ADAPTER_ID_SIZE];
    struct berth_error err = {0};
    struct record record;

    rig_make(&rig, &(struct rig_wish){.fence = 5}, id);
    rig_record(&rig, id, &record);
    kill(record.supervisor_pid, SIGKILL);
    ck_assert(rig_until(is_ended, id, 10000));
    refused(rig_create(&rig, &(struct rig_wish){.fence = 5}, next, &err), &err,
            BERTH_REASON_SANDBOX_TERMINAL);
    rig_make(&rig, &(struct rig_wish){.attempt = "bb", .fence = 6}, next);
    ck_assert_str_ne(id, next);
    ck_assert_uint_eq(n_sandboxes(), 1);
    ck_assert_str_eq(rig_leftovers(&rig, id, -1), "");
    record_deinit(&record);
}
END_TEST

static bool is_removed(void *arg)
{
    return faccessat(rig.store.sandboxes_fd, arg, F_OK, AT_SYMLINK_NOFOLLOW) < 0 &&
           rig_leftovers(&rig, arg, -1)[0] == 0;
}

/* The host lost its power before the records of a create were on the disk: what lies there is
 * no bar to the session's next sandbox, and goes. */
START_TEST(create__records_torn_by_a_power_cut__made_anew)
{
    static const char zeros[100];
    char id[ADAPTER_ID_SIZE], next[ADAPTER_ID_SIZE];
    struct record record;
    int fd;

    rig_make(&rig, &(struct rig_wish){.fence = 5, .egress = true}, id);
    rig_record(&rig, id, &record);
    rig_stop(&rig);
    kill(record.supervisor_pid, SIGKILL);
    record_deinit(&record);
    fd = io_open_dir(rig.store.sandboxes_fd, id);
    ck_assert_int_eq(io_replace(fd, "meta.json", "", 0, false, NULL), BERTH_OK);
    close(fd);
    ck_assert_int_eq(
        io_replace(rig.store.keys_fd, "key.json", zeros, sizeof zeros, false, NULL), BERTH_OK);
    rig_start(&rig);
    rig_make(&rig, &(struct rig_wish){.attempt = "bb", .fence = 6}, next);
    ck_assert_str_ne(id, next);
    ck_assert(rig_until(is_removed, id, 10000));
    ck_assert_int_eq(rig_state(&rig, next), ADAPTER_RUNNING);
    ck_assert_uint_eq(n_sandboxes(), 1);
}
END_TEST

/* Every change records its fence; a lower one is refused afterwards, an equal one passes. */
START_TEST(change__lower_fence__fence_stale)
{
    static const char *const ops[] = {"connect", "pause", "set_timeout", "set_network",
                                      "delete"};
    char id[ADAPTER_ID_SIZE];

    rig_make(&rig, &(struct rig_wish){.fence = 5}, id);
    ck_assert_int_eq(rig_call(&rig, "pause", rig_about(id, 8), NULL, NULL), BERTH_OK);
    for (size_t i = 0; i < BERTH_COUNT(ops); i++) {
        struct berth_error err = {0};

        refused(rig_call(&rig, ops[i], rig_about(id, 7), NULL, &err), &err,
                BERTH_REASON_FENCE_STALE);
        ck_assert_str_eq(err.sandbox_id, id);
    }
    ck_assert_int_eq(rig_state(&rig, id), ADAPTER_PAUSED);
    ck_assert_int_eq(rig_call(&rig, "connect", rig_about(id, 8), NULL, NULL), BERTH_OK);
    rig_delete(&rig, id, 8);
}
END_TEST

/* Nothing is done after not_after. */
START_TEST(change__not_after_passed__deadline_and_nothing_done)
{
    static const char *const ops[] = {"connect", "pause", "delete", "snapshot"};
    char id[ADAPTER_ID_SIZE];
    struct berth_error err = {0};
    int64_t past_ms = berth_now_ms() - 1000;

    refused(rig_create(&rig, &(struct rig_wish){.fence = 5, .not_after_ms = past_ms}, id, &err),
            &err, BERTH_REASON_DEADLINE);
    ck_assert_uint_eq(n_sandboxes(), 0);
    rig_make(&rig, &(struct rig_wish){.fence = 5, .not_after_ms = past_ms + 3600000}, id);
    for (size_t i = 0; i < BERTH_COUNT(ops); i++) {
        json_t *request = rig_about(id, 9);

        json_object_set_new(request, "not_after_ms", json_integer(past_ms));
        json_object_set_new(request, "name", json_string("late"));
        refused(rig_call(&rig, ops[i], request, NULL, &err), &err, BERTH_REASON_DEADLINE);
    }
    ck_assert_int_eq(rig_state(&rig, id), ADAPTER_RUNNING);
    /* Nor was the fence taken. */
    ck_assert_int_eq(rig_call(&rig, "connect", rig_about(id, 5), NULL, NULL), BERTH_OK);
}
END_TEST

/* An idle kill does not hit a sandbox that has been used since. */
START_TEST(delete__active_since__conflict)
{
    char id[ADAPTER_ID_SIZE];
    struct berth_error err = {0};
    json_t *request;

    rig_make(&rig, &(struct rig_wish){.fence = 5}, id);
    request = rig_about(id, 5);
    json_object_set_new(request, "unless_active_after_ms",
                        json_integer(berth_now_ms() - 60000));
    refused(rig_call(&rig, "delete", request, NULL, &err), &err, BERTH_REASON_CONFLICT);
    ck_assert_int_eq(rig_state(&rig, id), ADAPTER_RUNNING);
    request = rig_about(id, 5);
    json_object_set_new(request, "unless_active_after_ms",
                        json_integer(berth_now_ms() + 60000));
    ck_assert_int_eq(rig_call(&rig, "delete", request, NULL, &err), BERTH_OK);
}
END_TEST

/* ------------------------------------------------------------------------ races */

enum { RACERS = 8 };

struct racer {
    pthread_t thread;
    char attempt[8], id[ADAPTER_ID_SIZE];
    struct berth_error err;
    enum berth_code code;
};

static void *race(void *arg)
{
    struct racer *racer = arg;
    struct rig_wish wish = {.attempt = racer->attempt, .fence = 5};

    racer->code = rig_create(&rig, &wish, racer->id, &racer->err);
    return NULL;
}

/* Eight grants of one session at once: one sandbox, and all others know its id. */
START_TEST(create__racing_attempts__one_sandbox)
{
    struct racer racers[RACERS] = {0};
    const char *winner = NULL;
    int n_won = 0;

    for (int i = 0; i < RACERS; i++) {
        snprintf(racers[i].attempt, sizeof racers[i].attempt, "a%d", i);
        ck_assert_int_eq(pthread_create(&racers[i].thread, NULL, race, &racers[i]), 0);
    }
    for (int i = 0; i < RACERS; i++) {
        pthread_join(racers[i].thread, NULL);
        if (racers[i].code == BERTH_OK) {
            n_won++;
            winner = racers[i].id;
        }
    }
    ck_assert_int_eq(n_won, 1);
    for (int i = 0; i < RACERS; i++)
        if (racers[i].code != BERTH_OK) {
            refused(racers[i].code, &racers[i].err, BERTH_REASON_SANDBOX_EXISTS);
            ck_assert_str_eq(racers[i].err.sandbox_id, winner);
        }
    ck_assert_uint_eq(n_sandboxes(), 1);
}
END_TEST

/* One attempt asked eight times at once: one sandbox for all. */
START_TEST(create__racing_repeats__same_sandbox_for_all)
{
    struct racer racers[RACERS] = {0};

    for (int i = 0; i < RACERS; i++) {
        snprintf(racers[i].attempt, sizeof racers[i].attempt, "aa");
        ck_assert_int_eq(pthread_create(&racers[i].thread, NULL, race, &racers[i]), 0);
    }
    for (int i = 0; i < RACERS; i++) {
        pthread_join(racers[i].thread, NULL);
        ck_assert_msg(racers[i].code == BERTH_OK, "%s", racers[i].err.text);
        ck_assert_str_eq(racers[i].id, racers[0].id);
    }
    ck_assert_uint_eq(n_sandboxes(), 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("local/keys");
    TCase *tcase = tcase_create("keys");
    SRunner *runner;
    int failed;

    rig_main();
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, create__same_attempt__same_sandbox);
    tcase_add_test(tcase, create__other_attempt__sandbox_exists_with_its_id);
    tcase_add_test(tcase, create__other_key__another_sandbox);
    tcase_add_test(tcase, create__lower_fence__fence_stale);
    tcase_add_test(tcase, create__fence_below_a_connects__fence_stale);
    tcase_add_test(tcase, create__after_delete__remembers);
    tcase_add_test(tcase, create__predecessor_dead__replaced_by_the_next_grant);
    tcase_add_test(tcase, create__records_torn_by_a_power_cut__made_anew);
    tcase_add_test(tcase, change__lower_fence__fence_stale);
    tcase_add_test(tcase, change__not_after_passed__deadline_and_nothing_done);
    tcase_add_test(tcase, delete__active_since__conflict);
    tcase_add_test(tcase, create__racing_attempts__one_sandbox);
    tcase_add_test(tcase, create__racing_repeats__same_sandbox_for_all);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    rig_finish();
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
