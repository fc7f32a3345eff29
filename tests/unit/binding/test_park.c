#include "services/binding/park.h"

#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "common/time/time.h"

enum { WAIT_MS = 10000, KEYS = 4 };

/* One who waits. */
struct guest {
    struct binding_waiter waiter;
    int key;
    int number;
    atomic_int answered; /* 1: granted, 2: gave up */
};

/* A world of locks that are free or not, and who was let in, in order. */
struct world {
    struct binding_park *park;
    struct berth_pool *pool;
    atomic_int free[KEYS];    /* how many may be let in */
    atomic_int looking[KEYS]; /* looks at once: never more than one */
    atomic_int overlaps;
    atomic_int looks;
    pthread_mutex_t mutex;
    int order[4096];
    int n_order;
};

static void leave(struct world *world, struct guest *guest, int how)
{
    pthread_mutex_lock(&world->mutex);
    if (how == 1 && world->n_order < (int)BERTH_COUNT(world->order))
        world->order[world->n_order++] = guest->number;
    pthread_mutex_unlock(&world->mutex);
    atomic_store(&guest->answered, how);
}

static struct binding_waiter *look(void *ctx, const char *key, struct binding_waiter *waiters)
{
    struct world *world = ctx;
    int k = key[0] - '0';
    struct binding_waiter *left = NULL, **end = &left;

    atomic_fetch_add(&world->looks, 1);
    if (atomic_fetch_add(&world->looking[k], 1) != 0)
        atomic_fetch_add(&world->overlaps, 1);
    while (waiters) {
        struct guest *guest = (struct guest *)waiters;

        waiters = waiters->next;
        if (berth_tick_ms() >= guest->waiter.give_up_tick) {
            leave(world, guest, 2);
        } else if (atomic_load(&world->free[k]) > 0) {
            atomic_fetch_sub(&world->free[k], 1);
            leave(world, guest, 1);
        } else {
            guest->waiter.next = NULL;
            *end = &guest->waiter;
            end = &guest->waiter.next;
        }
    }
    atomic_fetch_sub(&world->looking[k], 1);
    return left;
}

static void open_world(struct world *world, size_t max_waiters, int64_t first_ms,
                       int64_t most_ms)
{
    *world = (struct world){0};
    pthread_mutex_init(&world->mutex, NULL);
    ck_assert_int_eq(berth_pool_new("park", 4, 64, &world->pool, NULL), BERTH_OK);
    ck_assert_int_eq(
        binding_park_new(&(struct binding_park_options){.pool = world->pool,
                                                        .look = look,
                                                        .ctx = world,
                                                        .first_ms = first_ms,
                                                        .most_ms = most_ms,
                                                        .max_waiters = max_waiters},
                         &world->park, NULL),
        BERTH_OK);
}

static void close_world(struct world *world)
{
    int64_t until = berth_tick_ms() + WAIT_MS;

    ck_assert_int_eq(atomic_load(&world->overlaps), 0);
    /* Answered is not yet counted. */
    while (binding_park_count(world->park) > 0 && berth_tick_ms() < until)
        usleep(200);
    ck_assert_uint_eq(binding_park_count(world->park), 0);
    binding_park_free(world->park);
    berth_pool_free(world->pool);
    pthread_mutex_destroy(&world->mutex);
}

static enum berth_code add(struct world *world, struct guest *guest, int key, int64_t patience)
{
    char name[8];

    snprintf(name, sizeof name, "%d", key);
    guest->key = key;
    guest->waiter.give_up_tick = berth_tick_ms() + patience;
    return binding_park_add(world->park, name, &guest->waiter, NULL);
}

static void await(struct guest *guest, int how)
{
    int64_t until = berth_tick_ms() + WAIT_MS;

    while (!atomic_load(&guest->answered) && berth_tick_ms() < until)
        usleep(200);
    ck_assert_int_eq(atomic_load(&guest->answered), how);
}

/* Those who wait for one lock get it in the order they came. */
START_TEST(park__one_lock_many_waiters__first_come_first_served)
{
    enum { N = 200 };
    static struct guest guests[N];
    struct world world;

    memset(guests, 0, sizeof guests);
    open_world(&world, N, 1, 5);
    for (int i = 0; i < N; i++) {
        guests[i].number = i;
        ck_assert_int_eq(add(&world, &guests[i], 0, WAIT_MS), BERTH_OK);
    }
    for (int i = 0; i < N; i++) {
        atomic_fetch_add(&world.free[0], 1);
        binding_park_kick(world.park, "0");
    }
    for (int i = 0; i < N; i++)
        await(&guests[i], 1);
    for (int i = 0; i < N; i++)
        ck_assert_int_eq(world.order[i], i);
    ck_assert(!binding_park_has(world.park, "0"));
    close_world(&world);
}
END_TEST

/* Without a kick (the lock was freed by another replica) it is seen all the same. */
START_TEST(park__freed_elsewhere__seen_by_looking_again)
{
    struct guest guest = {0};
    struct world world;

    open_world(&world, 8, 1, 10);
    ck_assert_int_eq(add(&world, &guest, 0, WAIT_MS), BERTH_OK);
    while (atomic_load(&world.looks) < 5)
        usleep(200);
    ck_assert(binding_park_has(world.park, "0"));
    atomic_fetch_add(&world.free[0], 1);
    await(&guest, 1);
    close_world(&world);
}
END_TEST

/* A kick wakes at once, however long the pause between looks has become. */
START_TEST(park__kicked__looks_at_once)
{
    struct guest guest = {0};
    struct world world;
    int64_t begin;

    open_world(&world, 8, 60000, 60000);
    ck_assert_int_eq(add(&world, &guest, 0, 10 * WAIT_MS), BERTH_OK);
    atomic_fetch_add(&world.free[0], 1);
    begin = berth_tick_ms();
    binding_park_kick(world.park, "1"); /* nobody there */
    ck_assert_int_eq(atomic_load(&guest.answered), 0);
    binding_park_kick(world.park, "0");
    await(&guest, 1);
    ck_assert_int_lt(berth_tick_ms() - begin, WAIT_MS);
    close_world(&world);
}
END_TEST

/* Who gives up sooner than the next look is looked for in time, behind others, too. */
START_TEST(park__patience_ends__told_in_time)
{
    struct guest patient = {0}, hasty = {0};
    struct world world;
    int64_t begin = berth_tick_ms(), took;

    open_world(&world, 8, 60000, 60000);
    ck_assert_int_eq(add(&world, &patient, 0, 10 * WAIT_MS), BERTH_OK);
    ck_assert_int_eq(add(&world, &hasty, 0, 50), BERTH_OK);
    await(&hasty, 2);
    took = berth_tick_ms() - begin;
    ck_assert_int_ge(took, 50);
    ck_assert_int_lt(took, WAIT_MS);
    ck_assert_int_eq(atomic_load(&patient.answered), 0);
    atomic_fetch_add(&world.free[0], 1);
    binding_park_kick(world.park, "0");
    await(&patient, 1);
    close_world(&world);
}
END_TEST

/* There is room for so many and no more; one who leaves makes room. */
START_TEST(park__full__refused)
{
    struct guest guests[3] = {0};
    struct world world;

    open_world(&world, 2, 1, 5);
    ck_assert_int_eq(add(&world, &guests[0], 0, WAIT_MS), BERTH_OK);
    ck_assert_int_eq(add(&world, &guests[1], 1, WAIT_MS), BERTH_OK);
    ck_assert_int_eq(add(&world, &guests[2], 2, WAIT_MS), BERTH_RESOURCE_EXHAUSTED);
    atomic_fetch_add(&world.free[0], 1);
    await(&guests[0], 1);
    while (binding_park_count(world.park) > 1)
        usleep(200);
    ck_assert_int_eq(add(&world, &guests[2], 2, WAIT_MS), BERTH_OK);
    atomic_fetch_add(&world.free[1], 1);
    atomic_fetch_add(&world.free[2], 1);
    await(&guests[1], 1);
    await(&guests[2], 1);
    close_world(&world);
}
END_TEST

struct crowd {
    struct world *world;
    struct guest *guests;
    int n;
    unsigned seed;
};

static void *come_and_go(void *arg)
{
    struct crowd *crowd = arg;

    for (int i = 0; i < crowd->n; i++) {
        int key = rand_r(&crowd->seed) % KEYS;
        char name[8];

        snprintf(name, sizeof name, "%d", key);
        ck_assert_int_eq(add(crowd->world, &crowd->guests[i], key, WAIT_MS), BERTH_OK);
        if (rand_r(&crowd->seed) % 2)
            binding_park_kick(crowd->world->park, name);
        atomic_fetch_add(&crowd->world->free[key], 1);
        binding_park_kick(crowd->world->park, name);
    }
    return NULL;
}

/* Many threads, many locks: everybody is answered once, and no session is looked at twice at
 * the same time. */
START_TEST(park__crowd__each_answered_once)
{
    enum { THREADS = 8, EACH = 400 };
    static struct guest guests[THREADS * EACH];
    struct crowd crowds[THREADS];
    pthread_t threads[THREADS];
    struct world world;

    memset(guests, 0, sizeof guests);
    open_world(&world, THREADS * EACH, 1, 5);
    for (int i = 0; i < THREADS; i++) {
        crowds[i] = (struct crowd){&world, guests + i * EACH, EACH, (unsigned)i + 1};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, come_and_go, &crowds[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS * EACH; i++)
        await(&guests[i], 1);
    ck_assert_int_eq(world.n_order, THREADS * EACH);
    close_world(&world);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("binding/park");
    TCase *tc = tcase_create("park");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, park__one_lock_many_waiters__first_come_first_served);
    tcase_add_test(tc, park__freed_elsewhere__seen_by_looking_again);
    tcase_add_test(tc, park__kicked__looks_at_once);
    tcase_add_test(tc, park__patience_ends__told_in_time);
    tcase_add_test(tc, park__full__refused);
    tcase_add_test(tc, park__crowd__each_answered_once);
    suite_add_tcase(suite, tc);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
