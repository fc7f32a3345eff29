#include "tests/component/local/rig.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "common/time/time.h"
#include "services/adapter-local/spawner/io.h"

/* kill -9 of the spawner and of everything that works for it, at one moment after another. What
 * a caller is told afterwards must be true, and nothing may be left over. */

enum { STEPS = 14, STEP_US = 1500 };

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

static size_t count(int dir_fd, const char *prefix)
{
    DIR *dir = fdopendir(io_open_dir(dir_fd, "."));
    struct dirent *entry;
    size_t n = 0;

    ck_assert_ptr_nonnull(dir);
    while ((entry = readdir(dir)))
        n += strncmp(entry->d_name, prefix, strlen(prefix)) == 0 &&
             strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(dir);
    return n;
}

/* Visible ones: what a kill cut short before it had a lock goes a little later. */
static size_t n_records(void)
{
    char **names = NULL;
    size_t n = 0;

    ck_assert_int_eq(store_list(rig.store.sandboxes_fd, &names, &n, NULL), BERTH_OK);
    store_list_free(names, n);
    return n;
}

/* The operations' processes are in the spawner's group; supervisors are not. */
static void kill_all(void)
{
    pid_t pid = rig_spawner_pid(&rig);

    if (pid > 0)
        kill(-pid, SIGKILL);
}

static void kill_after(int step)
{
    nanosleep(&(struct timespec){.tv_nsec = step * STEP_US * 1000L}, NULL);
    kill_all();
}

/* ------------------------------------------------- the spawner dies, we live on */

struct caller {
    pthread_t thread;
    const char *op;
    struct rig_wish wish; /* of a create */
    json_t *request;      /* of anything else */
    char id[ADAPTER_ID_SIZE];
    struct berth_error err;
    enum berth_code code;
};

static void *call(void *arg)
{
    struct caller *caller = arg;

    if (strcmp(caller->op, "create") == 0)
        caller->code = rig_create(&rig, &caller->wish, caller->id, &caller->err);
    else
        caller->code = rig_call(&rig, caller->op, caller->request, NULL, &caller->err);
    return NULL;
}

static bool is_ready(void *arg)
{
    (void)arg;
    return spawn_client_ready(rig.client, NULL) == BERTH_OK;
}

static void call_and_kill(struct caller *caller, int step)
{
    ck_assert(rig_until(is_ready, NULL, 20000));
    ck_assert_int_eq(pthread_create(&caller->thread, NULL, call, caller), 0);
    kill_after(step);
    pthread_join(caller->thread, NULL);
    ck_assert_msg(caller->code == BERTH_OK, "step %d: %s: %s", step, caller->op,
                  caller->err.text);
}

/* The create is asked again of the next spawner: one sandbox, and it runs. */
START_TEST(create__spawner_killed__asked_again_and_one_sandbox)
{
    for (int step = 0; step < STEPS; step++) {
        struct caller caller = {.op = "create",
                                .wish = {.fence = (uint64_t)step + 1, .egress = step & 1}};
        char attempt[16];

        snprintf(attempt, sizeof attempt, "a%d", step);
        caller.wish.attempt = attempt;
        call_and_kill(&caller, step);
        ck_assert_int_eq(rig_state(&rig, caller.id), ADAPTER_RUNNING);
        ck_assert_uint_eq(n_records(), 1);
        rig_delete(&rig, caller.id, (uint64_t)step + 1);
    }
}
END_TEST

static bool is_released(void *arg)
{
    return rig_leftovers(&rig, arg, -1)[0] == 0;
}

START_TEST(delete__spawner_killed__finished)
{
    for (int step = 0; step < STEPS; step++) {
        struct caller caller = {.op = "delete"};
        char id[ADAPTER_ID_SIZE], attempt[16];

        snprintf(attempt, sizeof attempt, "a%d", step);
        rig_make(&rig,
                 &(struct rig_wish){
                     .attempt = attempt, .fence = (uint64_t)step + 1, .egress = step & 1},
                 id);
        caller.request = rig_about(id, (uint64_t)step + 1);
        call_and_kill(&caller, step / 2);
        ck_assert_msg(rig_until(is_released, id, 5000), "step %d: %s", step,
                      rig_leftovers(&rig, id, -1));
    }
}
END_TEST

START_TEST(pause_and_connect__spawner_killed__as_asked)
{
    char id[ADAPTER_ID_SIZE];

    rig_make(&rig, &(struct rig_wish){.fence = 1}, id);
    for (int step = 0; step < STEPS; step++) {
        struct caller caller = {.op = step & 1 ? "connect" : "pause",
                                .request = rig_about(id, (uint64_t)step + 2)};

        call_and_kill(&caller, step / 4);
        ck_assert_int_eq(rig_state(&rig, id), step & 1 ? ADAPTER_RUNNING : ADAPTER_PAUSED);
    }
}
END_TEST

static int fill(void *arg)
{
    char block[4096];

    (void)arg;
    memset(block, 'x', sizeof block);
    for (int i = 0; i < 200; i++) {
        char path[64];
        int fd;

        snprintf(path, sizeof path, "/workspace/f%d", i);
        fd = open(path, O_CREAT | O_WRONLY, 0600);
        for (int k = 0; k < 16; k++)
            if (write(fd, block, sizeof block) < 0)
                return 1;
        close(fd);
    }
    return 0;
}

static bool is_thawed(void *arg)
{
    struct cgroup group = rig_group(&rig, arg);

    return !cgroup_is_frozen(&group);
}

static bool nothing_half_made(void *arg)
{
    (void)arg;
    return count(rig.store.snapshots_fd, ".build-") == 0;
}

/* In the middle of the copy: the sandbox is let go on, what was half copied goes, and the
 * repeat makes one whole snapshot. */
START_TEST(snapshot__spawner_killed__thawed_and_one_snapshot)
{
    char id[ADAPTER_ID_SIZE];

    rig_make(&rig, &(struct rig_wish){.fence = 1}, id);
    ck_assert_int_eq(rig_inside(&rig, id, RIG_USER, fill, NULL), 0);
    for (int step = 0; step < STEPS; step++) {
        struct caller caller = {.op = "snapshot", .request = rig_about(id, 1)};
        char name[16];

        snprintf(name, sizeof name, "s%d", step);
        json_object_set_new(caller.request, "name", json_string(name));
        call_and_kill(&caller, step * 2);
        ck_assert(rig_until(is_thawed, id, 10000));
        ck_assert_int_eq(rig_state(&rig, id), ADAPTER_RUNNING);
    }
    ck_assert_uint_eq(count(rig.store.snapshots_fd, "snap-"), STEPS);
    /* Mostly at once. Killed between a directory and its lock: by the first sweep that finds it
     * ten seconds old, and there is one a minute. */
    ck_assert(rig_until(nothing_half_made, NULL, 90000));
}
END_TEST

/* -------------------------------------------------- the adapter dies with it all */

/* A process that is the adapter: its own client and spawner; killed with everything it started
 * that is not a sandbox. */
static _Noreturn void be_adapter(const struct caller *caller, int ready_fd)
{
    struct caller own = *caller;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    rig_start(&rig);
    (void)!write(ready_fd, "r", 1);
    call(&own);
    for (;;)
        pause();
}

static void run_and_kill(const struct caller *caller, int step)
{
    pid_t adapter, spawner = 0;
    char path[64], text[256], byte;
    int fds[2];

    rig_stop(&rig);
    ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
    fflush(stdout);
    adapter = fork();
    if (adapter == 0)
        be_adapter(caller, fds[1]);
    close(fds[1]);
    ck_assert_int_eq(read(fds[0], &byte, 1), 1);
    close(fds[0]);
    snprintf(path, sizeof path, "/proc/%ld/task/%ld/children", (long)adapter, (long)adapter);
    if (io_read(AT_FDCWD, path, text, sizeof text) > 0)
        spawner = (pid_t)strtol(text, NULL, 10);
    ck_assert_int_gt(spawner, 0);
    nanosleep(&(struct timespec){.tv_nsec = step * 4 * STEP_US * 1000L}, NULL);
    kill(adapter, SIGKILL);
    kill(-spawner, SIGKILL);
    ck_assert_int_eq(waitpid(adapter, NULL, 0), adapter);
    rig_start(&rig);
}

/* Whatever moment it was: the repeat of the same attempt gets one running sandbox. */
START_TEST(create__adapter_killed__repeat_gets_one_sandbox)
{
    for (int step = 0; step < STEPS; step++) {
        struct caller caller = {.op = "create",
                                .wish = {.fence = (uint64_t)step + 1, .egress = step & 1}};
        char attempt[16], id[ADAPTER_ID_SIZE];

        snprintf(attempt, sizeof attempt, "b%d", step);
        caller.wish.attempt = attempt;
        run_and_kill(&caller, step);
        rig_make(&rig, &caller.wish, id);
        ck_assert_int_eq(rig_state(&rig, id), ADAPTER_RUNNING);
        rig_delete(&rig, id, (uint64_t)step + 1);
        ck_assert_uint_eq(n_records(), 0);
    }
}
END_TEST

static bool all_settled(void *arg)
{
    struct cgroup_host *host = arg;
    char path[512];

    snprintf(path, sizeof path, "%s/berth-%s", host->unified, rig.store.tag);
    return n_records() == 0 && access(path, F_OK) < 0;
}

/* Nobody repeats it: what was half made goes by itself, what was made stays. */
START_TEST(create__adapter_killed_and_not_repeated__made_or_gone)
{
    size_t n_made = 0;

    for (int step = 0; step < STEPS; step++) {
        struct caller caller = {.op = "create", .wish = {.fence = 1, .egress = step & 1}};
        char key[16];

        snprintf(key, sizeof key, "key%d", step);
        caller.wish.key = key;
        run_and_kill(&caller, step);
    }
    /* Each of them runs or is gone before long. */
    for (int64_t deadline_ms = berth_tick_ms() + 20000; berth_tick_ms() < deadline_ms;) {
        char **ids = NULL;
        size_t n = 0, n_settled = 0;

        ck_assert_int_eq(store_list(rig.store.sandboxes_fd, &ids, &n, NULL), BERTH_OK);
        for (size_t i = 0; i < n; i++) {
            struct record record;

            if (record_load(&rig.store, ids[i], &record, NULL))
                continue;
            n_settled += record_alive(&rig.store, &record);
            record_deinit(&record);
        }
        store_list_free(ids, n);
        n_made = n_settled;
        if (n_settled == n)
            break;
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    ck_assert_uint_eq(n_made, n_records());
    printf("%zu of %d creates were through when all was killed\n", n_made, STEPS);
    while (n_records() > 0) {
        char **ids = NULL;
        size_t n = 0;

        ck_assert_int_eq(store_list(rig.store.sandboxes_fd, &ids, &n, NULL), BERTH_OK);
        for (size_t i = 0; i < n; i++)
            rig_delete(&rig, ids[i], 1);
        store_list_free(ids, n);
    }
    ck_assert_msg(rig_until(all_settled, &rig.host, 20000), "%zu records left", n_records());
}
END_TEST

/* ----------------------------------------------------- the supervisor dies, we live on */

/* Each row: what it has said when it is killed. */
static const char *const words[] = {"", "echo 4194303 >&3",
                                    "echo 4194303 >&3; printf '{\"ok' >&3",
                                    "echo 4194303 >&3; echo '{\"ok\":true}' >&3"};

/* Control groups of sandboxes. */
static size_t n_groups(void)
{
    char name[32], path[512];
    char **names = NULL;
    size_t n = 0, found = 0;
    BERTH_AUTO(close) int fd = -1;
    struct stat st;

    store_cgroup_name(&rig.store, name);
    snprintf(path, sizeof path, "%s/%s", rig.host.unified, name);
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ck_assert_int_eq(store_list(fd, &names, &n, NULL), BERTH_OK);
    for (size_t i = 0; i < n; i++)
        found += fstatat(fd, names[i], &st, 0) == 0 && S_ISDIR(st.st_mode);
    store_list_free(names, n);
    return found;
}

/* A create in which the supervisor is killed did not happen: nothing is left of it, and the
 * same attempt makes a sandbox. */
START_TEST(create__supervisor_killed__unavailable_and_nothing_left)
{
    char id[ADAPTER_ID_SIZE], path[128];
    struct berth_error err = {0};
    FILE *script;

    snprintf(path, sizeof path, "%s/supervisor", rig.dir);
    script = fopen(path, "we");
    ck_assert_ptr_nonnull(script);
    fprintf(script, "#!/bin/sh\n%s\nkill -9 $$\n", words[_i]);
    fclose(script);
    ck_assert_int_eq(chmod(path, 0700), 0);
    rig_stop(&rig);
    rig.supervisor = path;
    rig_start(&rig);
    ck_assert_int_eq(rig_create(&rig, &(struct rig_wish){.fence = 1}, id, &err),
                     BERTH_UNAVAILABLE);
    ck_assert_int_eq(err.reason, BERTH_REASON_BACKEND_UNAVAILABLE);
    ck_assert_uint_eq(count(rig.store.sandboxes_fd, ""), 0);
    ck_assert_uint_eq(n_groups(), 0);
    rig_stop(&rig);
    rig.supervisor = NULL;
    rig_start(&rig);
    rig_make(&rig, &(struct rig_wish){.fence = 1}, id);
    ck_assert_int_eq(rig_state(&rig, id), ADAPTER_RUNNING);
}
END_TEST

static bool is_terminal(void *arg)
{
    return rig_state(&rig, arg) == ADAPTER_TERMINAL;
}

static bool is_settled(void *arg)
{
    struct record record;
    bool ended;

    rig_record(&rig, arg, &record);
    ended = record.ended;
    record_deinit(&record);
    return ended;
}

static bool no_records(void *arg)
{
    (void)arg;
    return n_records() == 0;
}

/* One that died and that nobody asks for any more goes after a while, its files with it, and
 * not before; its attempt makes no other one even then. */
START_TEST(sweep__dead_for_long__files_go_and_the_attempt_is_known)
{
    char id[ADAPTER_ID_SIZE], again[ADAPTER_ID_SIZE];
    struct rig_wish wish = {.fence = 1};
    struct berth_error err = {0};
    struct record record;

    rig_make(&rig, &wish, id);
    rig_record(&rig, id, &record);
    kill(record.supervisor_pid, SIGKILL);
    record_deinit(&record);
    ck_assert(rig_until(is_terminal, id, 10000));
    ck_assert(rig_until(is_settled, id, 10000));
    rig_stop(&rig);
    rig_start(&rig); /* sweeps at once */
    rig_make(&rig, &(struct rig_wish){.key = "other", .fence = 1}, again);
    rig_delete(&rig, again, 1);
    ck_assert_uint_eq(n_records(), 1);
    rig_stop(&rig);
    rig.ended_keep_ms = 1;
    rig_start(&rig);
    ck_assert(rig_until(no_records, NULL, 10000));
    ck_assert_int_eq(rig_create(&rig, &wish, again, &err), BERTH_NOT_FOUND);
    ck_assert_int_eq(err.reason, BERTH_REASON_SANDBOX_TERMINAL);
    rig_make(&rig, &(struct rig_wish){.attempt = "ab", .fence = 2}, again);
}
END_TEST

/* ------------------------------------------------ the operation dies, the supervisor lives on
 */

/* A supervisor as create.c starts it: what it says, and where it is told to go on. */
static pid_t start_supervisor(const char *id, int *ret_status_fd, int *ret_go_fd)
{
    const char *path = getenv("BERTH_LOCAL_SUPERVISOR");
    int status[2], go[2];
    pid_t pid;

    ck_assert_int_eq(pipe2(status, O_CLOEXEC), 0);
    ck_assert_int_eq(pipe2(go, O_CLOEXEC), 0);
    pid = fork();
    if (pid == 0) {
        int status_fd = fcntl(status[1], F_DUPFD, 10), go_fd = fcntl(go[0], F_DUPFD, 10);

        dup2(status_fd, 3);
        dup2(go_fd, 4); /* in the place of the slot's lock */
        dup2(go_fd, 5);
        syscall(SYS_close_range, 6, ~0U, 0);
        execl(path, "berth-local-supervisor", rig.store.path, id, "9999", (char *)NULL);
        _exit(127);
    }
    ck_assert_int_gt(pid, 0);
    close(status[1]);
    close(go[0]);
    *ret_status_fd = status[0];
    *ret_go_fd = go[1];
    return pid;
}

/* It begins before its sandbox is on record. Where the record never comes it must not try. */
START_TEST(supervisor__never_told_to_go_on__ends_without_a_word)
{
    BERTH_AUTO(close) int dir_fd = io_make_dir(rig.store.sandboxes_fd, ".new-orphan", 0700);
    BERTH_AUTO(close) int lock_fd = io_make_lock(dir_fd);
    int status_fd, go_fd, ended = -1;
    char word;
    pid_t pid;

    ck_assert_int_ge(lock_fd, 0);
    pid = start_supervisor(".new-orphan", &status_fd, &go_fd);
    close(go_fd);
    ck_assert_int_eq(read(status_fd, &word, 1), 0);
    ck_assert_int_eq(waitpid(pid, &ended, 0), pid);
    ck_assert_msg(WIFEXITED(ended) && WEXITSTATUS(ended) == 1, "status %x", (unsigned)ended);
    close(status_fd);
    ck_assert_int_eq(io_remove_tree(rig.store.sandboxes_fd, ".new-orphan"), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("local/crash");
    TCase *tcase = tcase_create("crash");
    SRunner *runner;
    int failed;

    rig_main();
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 240);
    tcase_add_test(tcase, create__spawner_killed__asked_again_and_one_sandbox);
    tcase_add_test(tcase, delete__spawner_killed__finished);
    tcase_add_test(tcase, pause_and_connect__spawner_killed__as_asked);
    tcase_add_test(tcase, snapshot__spawner_killed__thawed_and_one_snapshot);
    tcase_add_test(tcase, create__adapter_killed__repeat_gets_one_sandbox);
    tcase_add_test(tcase, create__adapter_killed_and_not_repeated__made_or_gone);
    tcase_add_loop_test(tcase, create__supervisor_killed__unavailable_and_nothing_left, 0,
                        (int)BERTH_COUNT(words));
    tcase_add_test(tcase, sweep__dead_for_long__files_go_and_the_attempt_is_known);
    tcase_add_test(tcase, supervisor__never_told_to_go_on__ends_without_a_word);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    rig_finish();
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
