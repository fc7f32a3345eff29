/* test_bulkhead.c - how much runs at once, who waits, and who is refused. */
#include <check.h>
#include <pthread.h>
#include <stdio.h>

#include "common/time/time.h"
#include "services/controlplane/bulkhead.h"
#include "services/controlplane/verified.h"

enum { WORKERS = 8, WAIT_MS = 10000 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool open_gate;
static unsigned running, most, done;

static void job(void *arg)
{
    unsigned *count = arg;

    pthread_mutex_lock(&mutex);
    running++;
    if (running > most)
        most = running;
    pthread_cond_broadcast(&changed);
    while (!open_gate)
        pthread_cond_wait(&changed, &mutex);
    running--;
    done++;
    if (count)
        ++*count;
    pthread_mutex_unlock(&mutex);
}

static void set_gate(bool open)
{
    pthread_mutex_lock(&mutex);
    open_gate = open;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

static void wait_running(unsigned n)
{
    pthread_mutex_lock(&mutex);
    while (running < n)
        pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
}

static struct cp_bulkhead *start(struct berth_pool **ret_pool, unsigned max_running,
                                 unsigned per_endpoint, unsigned max_queued)
{
    const struct cp_bulkhead_options options = {
        .max_running = max_running, .per_endpoint = per_endpoint, .max_queued = max_queued};
    struct cp_bulkhead *bulkhead;

    open_gate = false;
    running = most = done = 0;
    ck_assert_int_eq(berth_pool_new("t", WORKERS, 100, ret_pool, NULL), BERTH_OK);
    ck_assert_int_eq(cp_bulkhead_new(*ret_pool, &options, &bulkhead, NULL), BERTH_OK);
    return bulkhead;
}

/* One endpoint has so many at once, and another one still gets through. */
START_TEST(submit__endpoint_full__others_run)
{
    struct berth_pool *pool;
    struct cp_bulkhead *bulkhead = start(&pool, 6, 2, 0);
    unsigned n_running, n_queued;

    for (int i = 0; i < 10; i++)
        ck_assert_int_eq(cp_bulkhead_submit(bulkhead, "a", job, NULL, NULL), BERTH_OK);
    wait_running(2);
    ck_assert_int_eq(cp_bulkhead_submit(bulkhead, "b", job, NULL, NULL), BERTH_OK);
    wait_running(3);
    cp_bulkhead_count(bulkhead, &n_running, &n_queued);
    ck_assert_uint_eq(n_running, 3);
    ck_assert_uint_eq(n_queued, 8);
    set_gate(true);
    cp_bulkhead_free(bulkhead);
    ck_assert_uint_eq(done, 11);
    ck_assert_uint_eq(most, 3);
    berth_pool_free(pool);
}
END_TEST

/* All together leave workers free, however many endpoints there are. */
START_TEST(submit__many_endpoints__some_workers_free)
{
    struct berth_pool *pool;
    struct cp_bulkhead *bulkhead = start(&pool, 4, 2, 0);
    char name[8];

    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "%d", i);
        ck_assert_int_eq(cp_bulkhead_submit(bulkhead, name, job, NULL, NULL), BERTH_OK);
    }
    wait_running(4);
    set_gate(true);
    cp_bulkhead_free(bulkhead);
    ck_assert_uint_eq(done, 20);
    ck_assert_uint_eq(most, 4);
    berth_pool_free(pool);
}
END_TEST

/* A queue that is full refuses; the others take. */
START_TEST(submit__queue_full__overloaded)
{
    struct berth_pool *pool;
    struct cp_bulkhead *bulkhead = start(&pool, 4, 1, 2);
    struct berth_error err;

    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(cp_bulkhead_submit(bulkhead, "a", job, NULL, &err), BERTH_OK);
    ck_assert_int_eq(cp_bulkhead_submit(bulkhead, "a", job, NULL, &err),
                     BERTH_RESOURCE_EXHAUSTED);
    ck_assert_str_eq(berth_reason_name(err.reason), "OVERLOADED");
    ck_assert_int_eq(cp_bulkhead_submit(bulkhead, "b", job, NULL, &err), BERTH_OK);
    set_gate(true);
    cp_bulkhead_free(bulkhead);
    ck_assert_uint_eq(done, 4);
    berth_pool_free(pool);
}
END_TEST

/* What was seen is remembered from then on, for that sandbox only. */
START_TEST(verified__noted__since_then)
{
    struct cp_verified *verified = cp_verified_new();

    ck_assert(!cp_verified_since(verified, "", "t", "s", "b", 0));
    cp_verified_note(verified, "", "t", "s", "b", 100);
    ck_assert(cp_verified_since(verified, "", "t", "s", "b", 100));
    ck_assert(!cp_verified_since(verified, "", "t", "s", "b", 101));
    ck_assert(!cp_verified_since(verified, "", "t", "s", "b2", 100));
    ck_assert(!cp_verified_since(verified, "x", "t", "s", "b", 100));
    cp_verified_note(verified, "", "t", "s", "b", 50); /* never back */
    ck_assert(cp_verified_since(verified, "", "t", "s", "b", 100));
    cp_verified_free(verified);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("controlplane/bulkhead");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int failed;

    tcase_add_test(all, submit__endpoint_full__others_run);
    tcase_add_test(all, submit__many_endpoints__some_workers_free);
    tcase_add_test(all, submit__queue_full__overloaded);
    tcase_add_test(all, verified__noted__since_then);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
