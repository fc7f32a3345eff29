/* The workers: bounded in number and queue. */
#include "common/pool/pool.h"

#include <check.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "common/time/time.h"

static struct berth_pool *pool;
static struct berth_error err;
static atomic_uint n_running, n_peak, n_done;
static atomic_bool release;

static void teardown(void)
{
    atomic_store(&release, true);
    pool = berth_pool_free(pool);
}

static void work(void *arg)
{
    unsigned running = atomic_fetch_add(&n_running, 1) + 1, peak = atomic_load(&n_peak);

    (void)arg;
    while (running > peak && !atomic_compare_exchange_weak(&n_peak, &peak, running)) {
    }
    while (!atomic_load(&release))
        (void)poll(NULL, 0, 1);
    atomic_fetch_sub(&n_running, 1);
    atomic_fetch_add(&n_done, 1);
}

static void wait_running(unsigned wanted)
{
    for (int64_t end_ms = berth_tick_ms() + 5000; atomic_load(&n_running) < wanted;) {
        ck_assert(berth_tick_ms() < end_ms);
        (void)poll(NULL, 0, 1);
    }
}

/* So many run at once, so many wait, and the next is refused without being called. */
START_TEST(berth_pool_submit__full__overloaded)
{
    ck_assert(!berth_pool_new("test", 3, 2, &pool, &err));
    for (int i = 0; i < 3; i++)
        ck_assert(!berth_pool_submit(pool, work, NULL, &err));
    wait_running(3);
    for (int i = 0; i < 2; i++)
        ck_assert(!berth_pool_submit(pool, work, NULL, &err));
    ck_assert_uint_eq(berth_pool_queued(pool), 2);
    ck_assert_int_eq(berth_pool_submit(pool, work, NULL, &err), BERTH_RESOURCE_EXHAUSTED);
    ck_assert_int_eq(err.reason, BERTH_REASON_OVERLOADED);
    berth_pool_submit_must(pool, work, NULL); /* what is promised is taken all the same */
    atomic_store(&release, true);
    pool = berth_pool_free(pool);
    ck_assert_uint_eq(atomic_load(&n_done), 6);
    ck_assert_uint_eq(atomic_load(&n_peak), 3);
}
END_TEST

/* A queue of no length serves as many as there are workers. */
START_TEST(berth_pool_submit__no_queue__workers_only)
{
    ck_assert(!berth_pool_new("test", 2, 0, &pool, &err));
    ck_assert(!berth_pool_submit(pool, work, NULL, &err));
    ck_assert(!berth_pool_submit(pool, work, NULL, &err));
    ck_assert_int_eq(berth_pool_submit(pool, work, NULL, &err), BERTH_RESOURCE_EXHAUSTED);
}
END_TEST

static void *submit_many(void *arg)
{
    struct berth_error mine;

    (void)arg;
    for (int i = 0; i < 1000; i++)
        if (berth_pool_submit(pool, work, NULL, &mine))
            abort();
    return NULL;
}

/* Everything that was taken is done before free returns, whoever submitted it. */
START_TEST(berth_pool_free__queued__done_first)
{
    pthread_t threads[4];

    atomic_store(&release, true);
    ck_assert(!berth_pool_new("test", 4, 10000, &pool, &err));
    for (size_t i = 0; i < BERTH_COUNT(threads); i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, submit_many, NULL), 0);
    for (size_t i = 0; i < BERTH_COUNT(threads); i++)
        pthread_join(threads[i], NULL);
    pool = berth_pool_free(pool);
    ck_assert_uint_eq(atomic_load(&n_done), 4000);
    ck_assert_ptr_null(berth_pool_free(NULL));
}
END_TEST

static void chain(void *arg)
{
    unsigned *left = arg;

    atomic_fetch_add(&n_done, 1);
    if (--*left > 0)
        berth_pool_submit_must(pool, chain, left);
}

/* Work may submit work, also while the pool ends. */
START_TEST(berth_pool_free__work_submits_work__done)
{
    unsigned left = 1000;

    ck_assert(!berth_pool_new("test", 1, 1, &pool, &err));
    ck_assert(!berth_pool_submit(pool, chain, &left, &err));
    pool = berth_pool_free(pool);
    ck_assert_uint_eq(atomic_load(&n_done), 1000);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("common/pool");
    TCase *tcase = tcase_create("pool");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(tcase, NULL, teardown);
    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, berth_pool_submit__full__overloaded);
    tcase_add_test(tcase, berth_pool_submit__no_queue__workers_only);
    tcase_add_test(tcase, berth_pool_free__queued__done_first);
    tcase_add_test(tcase, berth_pool_free__work_submits_work__done);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
