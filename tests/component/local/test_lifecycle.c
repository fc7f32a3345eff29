#include "tests/component/local/rig.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

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

/* A counter shared with a process in a sandbox: does it run? */
static atomic_uint *counter;

static int count(void *arg)
{
    atomic_uint *shared = arg;

    for (;;) {
        atomic_fetch_add(shared, 1);
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    }
    return 0;
}

static void start_counter(const char *id)
{
    counter = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(counter, MAP_FAILED);
    rig_start_inside(&rig, id, RIG_USER, count, counter);
}

static bool counts_on(void *arg)
{
    return atomic_load(counter) > *(unsigned *)arg;
}

static bool counts(int limit_ms)
{
    unsigned before = atomic_load(counter);

    return rig_until(counts_on, &before, limit_ms);
}

/* Created means usable: init runs, the record says so, and what was asked for is kept. */
START_TEST(create__new_key__sandbox_runs)
{
    char id[ADAPTER_ID_SIZE];
    struct record record;

    rig_make(&rig, &(struct rig_wish){.fence = 7}, id);
    ck_assert_int_eq(rig_state(&rig, id), ADAPTER_RUNNING);
    rig_record(&rig, id, &record);
    ck_assert_uint_eq(record.fence, 7);
    ck_assert_str_eq(adapter_pairs_get(&record.metadata, "berth.session"), "s1");
    ck_assert_str_eq(adapter_pairs_get(&record.env, "NAME"), "value");
    ck_assert_int_eq(record.timeouts.idle_ms, 1000);
    ck_assert_uint_eq(record.resources.memory_bytes, 256 << 20);
    ck_assert(rig_pid_lives(record.supervisor_pid));
    ck_assert(rig_pid_lives(record.init_pid));
    record_deinit(&record);
}
END_TEST

/* A template that is not there is the caller's mistake, and leaves nothing. */
START_TEST(create__unknown_template__template_invalid)
{
    struct berth_error err = {0};
    char id[ADAPTER_ID_SIZE];

    ck_assert_int_eq(
        rig_create(&rig, &(struct rig_wish){.fence = 1, .template = "none"}, id, &err),
        BERTH_INVALID_ARGUMENT);
    ck_assert_int_eq(err.reason, BERTH_REASON_TEMPLATE_INVALID);
    /* The key is free for the same attempt. */
    rig_make(&rig, &(struct rig_wish){.fence = 1}, id);
}
END_TEST

START_TEST(create__unknown_snapshot__snapshot_not_found)
{
    struct berth_error err = {0};
    char id[ADAPTER_ID_SIZE];

    ck_assert_int_eq(
        rig_create(&rig, &(struct rig_wish){.fence = 1, .snapshot = "snap-none"}, id, &err),
        BERTH_NOT_FOUND);
    ck_assert_int_eq(err.reason, BERTH_REASON_SNAPSHOT_NOT_FOUND);
}
END_TEST

/* Pause stops every process where it is, connect lets it go on: memory is kept. */
START_TEST(pause__running_process__stands_still_until_connect)
{
    char id[ADAPTER_ID_SIZE];

    rig_make(&rig, &(struct rig_wish){.fence = 1}, id);
    start_counter(id);
    ck_assert(counts(5000));
    ck_assert_int_eq(rig_call(&rig, "pause", rig_about(id, 1), NULL, NULL), BERTH_OK);
    ck_assert_int_eq(rig_state(&rig, id), ADAPTER_PAUSED);
    ck_assert(!counts(50));
    /* Again: the same. */
    ck_assert_int_eq(rig_call(&rig, "pause", rig_about(id, 1), NULL, NULL), BERTH_OK);
    ck_assert_int_eq(rig_call(&rig, "connect", rig_about(id, 1), NULL, NULL), BERTH_OK);
    ck_assert_int_eq(rig_state(&rig, id), ADAPTER_RUNNING);
    ck_assert(counts(5000));
}
END_TEST

/* Frozen by somebody else: not put right behind his back, but by the next connect, which says
 * so. */
START_TEST(freeze__by_others__until_connect)
{
    char id[ADAPTER_ID_SIZE];
    struct cgroup group;
    json_t *answer = NULL;

    rig_make(&rig, &(struct rig_wish){.fence = 1}, id);
    group = rig_group(&rig, id);
    start_counter(id);
    ck_assert(counts(5000));
    ck_assert_int_eq(cgroup_freeze(&group, true, berth_tick_ms() + 5000, NULL), BERTH_OK);
    ck_assert(!record_freeze_marked(&rig.store, id));
    rig_stop(&rig);
    rig_start(&rig); /* with a sweep */
    ck_assert(!counts(300));
    ck_assert_int_eq(rig_call(&rig, "connect", rig_about(id, 1), &answer, NULL), BERTH_OK);
    ck_assert(json_is_true(json_object_get(answer, "resumed")));
    json_decref(answer);
    ck_assert(counts(5000));
    ck_assert(!record_freeze_marked(&rig.store, id));
}
END_TEST

/* The kernel's part of freeze and thaw takes 5 ms at most (median of 20). */
static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x < y ? -1 : x > y;
}

START_TEST(freeze__running_process__within_5_ms)
{
    char id[ADAPTER_ID_SIZE];
    int64_t freeze_ns[20], thaw_ns[20];
    struct cgroup group;

    rig_make(&rig, &(struct rig_wish){.fence = 1}, id);
    group = rig_group(&rig, id);
    start_counter(id);
    ck_assert(counts(5000));
    for (size_t i = 0; i < BERTH_COUNT(freeze_ns); i++) {
        int64_t start_ns = berth_tick_ns(), frozen_ns;

        ck_assert_int_eq(cgroup_freeze(&group, true, berth_tick_ms() + 5000, NULL), BERTH_OK);
        frozen_ns = berth_tick_ns();
        ck_assert_int_eq(cgroup_freeze(&group, false, berth_tick_ms() + 5000, NULL), BERTH_OK);
        freeze_ns[i] = frozen_ns - start_ns;
        thaw_ns[i] = berth_tick_ns() - frozen_ns;
    }
    qsort(freeze_ns, BERTH_COUNT(freeze_ns), sizeof freeze_ns[0], compare);
    qsort(thaw_ns, BERTH_COUNT(thaw_ns), sizeof thaw_ns[0], compare);
    printf("freeze %.2f ms, thaw %.2f ms (medians)\n", (double)freeze_ns[10] / 1e6,
           (double)thaw_ns[10] / 1e6);
    ck_assert_int_le(freeze_ns[10], 5000000);
    ck_assert_int_le(thaw_ns[10], 5000000);
}
END_TEST

/* Delete works from running and from paused, and leaves nothing behind. */
START_TEST(delete__running_or_paused__leaves_nothing)
{
    char id[ADAPTER_ID_SIZE];
    struct record record;

    rig_make(&rig, &(struct rig_wish){.fence = 1, .egress = _i & 2, .inbound = true}, id);
    rig_record(&rig, id, &record);
    start_counter(id);
    if (_i & 1)
        ck_assert_int_eq(rig_call(&rig, "pause", rig_about(id, 1), NULL, NULL), BERTH_OK);
    rig_delete(&rig, id, 1);
    ck_assert_str_eq(rig_leftovers(&rig, id, record.slot), "");
    ck_assert(!rig_pid_lives(record.supervisor_pid));
    ck_assert(!rig_pid_lives(record.init_pid));
    record_deinit(&record);
}
END_TEST

/* What is not there is deleted already; a strange id as well. */
START_TEST(delete__absent__succeeds)
{
    static const char *const ids[] = {"nosuchsandbox", "..", ".", "", "a/b", "../../etc"};

    for (size_t i = 0; i < BERTH_COUNT(ids); i++) {
        json_t *answer = NULL;

        ck_assert_int_eq(rig_call(&rig, "delete", rig_about(ids[i], 1), &answer, NULL),
                         BERTH_OK);
        ck_assert(json_is_false(json_object_get(answer, "existed")));
        json_decref(answer);
    }
}
END_TEST

static bool trash_is_empty(void *arg)
{
    char **names = NULL;
    size_t n = 0;

    (void)arg;
    ck_assert_int_eq(store_list(rig.store.trash_fd, &names, &n, NULL), BERTH_OK);
    store_list_free(names, n);
    return n == 0;
}

/* Files go in the background, soon, however they were made. */
START_TEST(delete__hostile_files__removed_in_the_background)
{
    char id[ADAPTER_ID_SIZE], path[512], deep[512];
    int fd;

    rig_make(&rig, &(struct rig_wish){.fence = 1}, id);
    rig_path(&rig, id, "d", path);
    ck_assert_int_eq(mkdir(path, 0000), 0);
    fd = open(path, O_RDONLY | O_DIRECTORY);
    for (int i = 0; i < 300; i++) {
        int next;

        ck_assert_int_eq(mkdirat(fd, "0123456789012345678901234567890123456789", 0000), 0);
        next = io_open_dir(fd, "0123456789012345678901234567890123456789");
        close(fd);
        fd = next;
        ck_assert_int_ge(fd, 0);
    }
    close(fd);
    rig_path(&rig, id, "fifo", deep);
    ck_assert_int_eq(mkfifo(deep, 0600), 0);
    rig_path(&rig, id, "link", deep);
    ck_assert_int_eq(symlink("/etc", deep), 0);
    rig_delete(&rig, id, 1);
    ck_assert(rig_until(trash_is_empty, NULL, 10000));
    ck_assert_int_eq(access("/etc/passwd", F_OK), 0);
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

/* The death of the supervisor, or of init, is the end of the sandbox; it shows at once, and
 * what it held on the host is let go without anybody asking. */
START_TEST(supervisor__killed__terminal_and_released)
{
    char id[ADAPTER_ID_SIZE];
    struct berth_error err = {0};
    struct record record;

    rig_make(&rig, &(struct rig_wish){.fence = 1, .egress = true}, id);
    start_counter(id);
    rig_record(&rig, id, &record);
    kill(_i ? record.init_pid : record.supervisor_pid, SIGKILL);
    ck_assert(rig_until(is_ended, id, 10000));
    ck_assert_int_eq(rig_state(&rig, id), ADAPTER_TERMINAL);
    ck_assert(!counts(30));
    ck_assert_int_eq(rig_call(&rig, "connect", rig_about(id, 1), NULL, &err), BERTH_NOT_FOUND);
    ck_assert_int_eq(err.reason, BERTH_REASON_SANDBOX_TERMINAL);
    ck_assert_str_eq(err.sandbox_id, id);
    rig_delete(&rig, id, 1);
    ck_assert_str_eq(rig_leftovers(&rig, id, record.slot), "");
    record_deinit(&record);
}
END_TEST

/* Seen dead before any sweep has run. */
START_TEST(supervisor__killed__state_shows_at_once)
{
    char id[ADAPTER_ID_SIZE];
    struct record record;

    rig_make(&rig, &(struct rig_wish){.fence = 1}, id);
    rig_record(&rig, id, &record);
    kill(rig_spawner_pid(&rig), SIGSTOP);
    kill(record.supervisor_pid, SIGKILL);
    for (int i = 0; i < 1000 && rig_pid_lives(record.supervisor_pid); i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    ck_assert_int_eq(rig_state(&rig, id), ADAPTER_TERMINAL);
    kill(rig_spawner_pid(&rig), SIGCONT);
    record_deinit(&record);
}
END_TEST

/* A hog is killed inside its limit; the sandbox and the host live on. */
static int eat(void *arg)
{
    (void)arg;
    for (size_t total = 0; total < 1UL << 30; total += 1 << 20) {
        char *part = malloc(1 << 20);

        if (!part)
            return 1;
        memset(part, 1, 1 << 20);
    }
    return 0;
}

static int fork_many(void *arg)
{
    int n = 0;

    (void)arg;
    while (n < 200) {
        pid_t pid = fork();

        if (pid < 0)
            return errno == EAGAIN ? n : 250;
        if (pid == 0)
            for (;;)
                pause();
        n++;
    }
    return 200;
}

/* Processes of these tests enter by hand, not by the supervisor's thread: into v1 groups, too.
 */
struct limited {
    int (*fn)(void *arg);
    int procs_fd[CGROUP_N_CONTROLLERS];
    int n;
};

static int run_limited(void *arg)
{
    struct limited *limited = arg;

    return limited->fn(NULL);
}

static int in_limits(const char *id, int (*fn)(void *arg))
{
    struct limited limited = {.fn = fn};
    char path[512];
    static const char *const names[] = {"memory", "pids"};
    int result;

    /* This process joins, its child inherits, then it leaves again. */
    for (size_t i = 0; i < BERTH_COUNT(names); i++) {
        snprintf(path, sizeof path, "/sys/fs/cgroup/%s/berth-%s/%s/cgroup.procs", names[i],
                 rig.store.tag, id);
        if (access(path, F_OK) == 0)
            ck_assert_int_eq(io_write(AT_FDCWD, path, "0"), 0);
    }
    result = rig_inside(&rig, id, RIG_ROOT, run_limited, &limited);
    for (size_t i = 0; i < BERTH_COUNT(names); i++) {
        snprintf(path, sizeof path, "/sys/fs/cgroup/%s/cgroup.procs", names[i]);
        if (access(path, F_OK) == 0)
            ck_assert_int_eq(io_write(AT_FDCWD, path, "0"), 0);
    }
    return result;
}

START_TEST(limits__memory_hog__killed_alone)
{
    char id[ADAPTER_ID_SIZE];

    rig_make(&rig, &(struct rig_wish){.fence = 1, .memory = 64 << 20}, id);
    ck_assert_int_eq(in_limits(id, eat), -1);
    ck_assert_int_eq(rig_state(&rig, id), ADAPTER_RUNNING);
}
END_TEST

START_TEST(limits__fork_bomb__stops_at_the_limit)
{
    char id[ADAPTER_ID_SIZE];
    int n;

    rig_make(&rig, &(struct rig_wish){.fence = 1, .processes = 32}, id);
    n = in_limits(id, fork_many);
    ck_assert_int_ge(n, 16);
    ck_assert_int_le(n, 32);
    ck_assert_int_eq(rig_state(&rig, id), ADAPTER_RUNNING);
}
END_TEST

/* A spawner that comes again finds what runs and asks nobody to start over. */
START_TEST(spawner__started_again__sandboxes_go_on)
{
    char id[ADAPTER_ID_SIZE];

    rig_make(&rig, &(struct rig_wish){.fence = 1}, id);
    start_counter(id);
    rig_stop(&rig);
    ck_assert(counts(5000));
    rig_start(&rig);
    ck_assert_int_eq(rig_state(&rig, id), ADAPTER_RUNNING);
    ck_assert_int_eq(rig_call(&rig, "pause", rig_about(id, 1), NULL, NULL), BERTH_OK);
    ck_assert(!counts(30));
    rig_stop(&rig);
    rig_start(&rig);
    ck_assert_int_eq(rig_state(&rig, id), ADAPTER_PAUSED);
    ck_assert(!counts(30));
}
END_TEST

/* One that it did not start itself is watched as well. */
START_TEST(spawner__started_again__sees_a_later_death)
{
    char id[ADAPTER_ID_SIZE];
    struct record record;

    rig_make(&rig, &(struct rig_wish){.fence = 1}, id);
    rig_record(&rig, id, &record);
    rig_stop(&rig);
    rig_start(&rig);
    kill(record.supervisor_pid, SIGKILL);
    ck_assert(rig_until(is_ended, id, 10000));
    record_deinit(&record);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("local/lifecycle");
    TCase *tcase = tcase_create("lifecycle");
    SRunner *runner;
    int failed;

    rig_main();
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, create__new_key__sandbox_runs);
    tcase_add_test(tcase, create__unknown_template__template_invalid);
    tcase_add_test(tcase, create__unknown_snapshot__snapshot_not_found);
    tcase_add_test(tcase, pause__running_process__stands_still_until_connect);
    tcase_add_test(tcase, freeze__by_others__until_connect);
    tcase_add_test(tcase, freeze__running_process__within_5_ms);
    tcase_add_loop_test(tcase, delete__running_or_paused__leaves_nothing, 0, 4);
    tcase_add_test(tcase, delete__absent__succeeds);
    tcase_add_test(tcase, delete__hostile_files__removed_in_the_background);
    tcase_add_loop_test(tcase, supervisor__killed__terminal_and_released, 0, 2);
    tcase_add_test(tcase, supervisor__killed__state_shows_at_once);
    tcase_add_test(tcase, limits__memory_hog__killed_alone);
    tcase_add_test(tcase, limits__fork_bomb__stops_at_the_limit);
    tcase_add_test(tcase, spawner__started_again__sandboxes_go_on);
    tcase_add_test(tcase, spawner__started_again__sees_a_later_death);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    rig_finish();
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
