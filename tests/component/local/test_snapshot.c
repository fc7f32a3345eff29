#include "tests/component/local/rig.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>

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

static int put(const char *path, const char *text, mode_t mode)
{
    int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);

    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) ||
        fchmod(fd, mode) < 0)
        return -1;
    return close(fd);
}

static bool holds(const char *path, const char *text)
{
    char buf[256];

    return io_read(AT_FDCWD, path, buf, sizeof buf) >= 0 && strcmp(buf, text) == 0;
}

/* Everything a file system layer must carry. Runs as root of the sandbox. */
static int change_files(void *arg)
{
    (void)arg;
    if (put("/etc/new", "new\n", 0640) < 0 || put("/workspace/exec", "x", 06755) < 0)
        return 1;
    if (unlink("/etc/base-file") < 0) /* a whiteout */
        return 2;
    if (mkdir("/usr/bin2", 0711) < 0 || rename("/usr/bin", "/usr/moved") < 0 ||
        mkdir("/usr/bin", 0755) < 0) /* a moved and an opaque directory */
        return 3;
    if (symlink("../etc/new", "/usr/link") < 0 || link("/etc/new", "/etc/hard") < 0 ||
        mkfifo("/usr/fifo", 0604) < 0)
        return 4;
    if (setxattr("/etc/new", "user.note", "yes", 3, 0) < 0)
        return 5;
    if (chown("/workspace/exec", 1000, 1001) < 0 || chmod("/workspace/exec", 04711) < 0)
        return 6;
    return 0;
}

static int check_files(void *arg)
{
    struct stat one, two;
    char text[64];

    (void)arg;
    if (!holds("/etc/new", "new\n") || access("/etc/base-file", F_OK) == 0)
        return 1;
    if (access("/usr/moved", F_OK) < 0 || access("/usr/bin", F_OK) < 0)
        return 2;
    if (readlink("/usr/link", text, sizeof text) != 10 || memcmp(text, "../etc/new", 10) != 0)
        return 3;
    if (stat("/etc/new", &one) < 0 || stat("/etc/hard", &two) < 0 || one.st_ino != two.st_ino ||
        (one.st_mode & 07777) != 0640)
        return 4;
    if (getxattr("/etc/new", "user.note", text, sizeof text) != 3)
        return 5;
    if (stat("/workspace/exec", &one) < 0 || one.st_uid != 1000 || one.st_gid != 1001 ||
        (one.st_mode & 07777) != 04711)
        return 6;
    if (stat("/usr/fifo", &one) < 0 || !S_ISFIFO(one.st_mode))
        return 7;
    return 0;
}

/* A sandbox from a snapshot holds what the other one held: files, owners, modes, removals,
 * moves. */
START_TEST(snapshot__changed_files__same_in_the_copy)
{
    char id[ADAPTER_ID_SIZE], snapshot[ADAPTER_ID_SIZE], copy[ADAPTER_ID_SIZE];

    rig_make(&rig, &(struct rig_wish){.fence = 1}, id);
    ck_assert_int_eq(rig_inside(&rig, id, RIG_ROOT, change_files, NULL), 0);
    ck_assert_int_eq(rig_inside(&rig, id, RIG_ROOT, check_files, NULL), 0);
    rig_snapshot(&rig, id, "one", snapshot);
    ck_assert_int_eq(rig_state(&rig, id), ADAPTER_RUNNING);
    rig_make(&rig, &(struct rig_wish){.key = "copy", .fence = 1, .snapshot = snapshot}, copy);
    ck_assert_int_eq(rig_inside(&rig, copy, RIG_ROOT, check_files, NULL), 0);
    /* Neither sees what the other does from here on. */
    rig_delete(&rig, id, 1);
    ck_assert_int_eq(rig_inside(&rig, copy, RIG_ROOT, check_files, NULL), 0);
}
END_TEST

static int write_pair(void *arg)
{
    (void)arg;
    for (unsigned i = 0;; i++) {
        char text[16];
        int one = open("/workspace/one", O_CREAT | O_WRONLY | O_TRUNC, 0600);
        int two = open("/workspace/two", O_CREAT | O_WRONLY | O_TRUNC, 0600);

        snprintf(text, sizeof text, "%u", i);
        if (one < 0 || two < 0 || write(one, text, strlen(text)) < 0 ||
            write(two, text, strlen(text)) < 0)
            return 1;
        close(one);
        close(two);
    }
}

static int check_pair(void *arg)
{
    char one[16] = "", two[16] = "";
    long a, b;

    (void)arg;
    if (io_read(AT_FDCWD, "/workspace/one", one, sizeof one) < 0 ||
        io_read(AT_FDCWD, "/workspace/two", two, sizeof two) < 0)
        return 1;
    a = strtol(one, NULL, 10);
    b = strtol(two, NULL, 10);
    /* Frozen between any two system calls: at most one step apart, or just emptied. */
    return !one[0] || !two[0] || a == b || a == b + 1 ? 0 : 2;
}

static bool pair_is_there(void *arg)
{
    char path[512];

    rig_path(&rig, arg, "workspace/two", path);
    return access(path, F_OK) == 0;
}

/* A writer at full speed is caught at one moment, and goes on. */
START_TEST(snapshot__live_writer__one_moment)
{
    char id[ADAPTER_ID_SIZE];
    pid_t pid;

    rig_make(&rig, &(struct rig_wish){.fence = 1}, id);
    pid = rig_start_inside(&rig, id, RIG_USER, write_pair, NULL);
    ck_assert(rig_until(pair_is_there, id, 5000));
    for (int i = 0; i < 5; i++) {
        char snapshot[ADAPTER_ID_SIZE], copy[ADAPTER_ID_SIZE], name[16];

        snprintf(name, sizeof name, "s%d", i);
        rig_snapshot(&rig, id, name, snapshot);
        rig_make(&rig, &(struct rig_wish){.key = name, .fence = 1, .snapshot = snapshot}, copy);
        ck_assert_int_eq(rig_inside(&rig, copy, RIG_ROOT, check_pair, NULL), 0);
    }
    ck_assert(rig_pid_lives(pid));
}
END_TEST

/* A paused sandbox can be taken, too, and stays paused. */
START_TEST(snapshot__paused_sandbox__stays_paused)
{
    char id[ADAPTER_ID_SIZE], snapshot[ADAPTER_ID_SIZE];

    rig_make(&rig, &(struct rig_wish){.fence = 1}, id);
    ck_assert_int_eq(rig_call(&rig, "pause", rig_about(id, 1), NULL, NULL), BERTH_OK);
    rig_snapshot(&rig, id, "one", snapshot);
    ck_assert_int_eq(rig_state(&rig, id), ADAPTER_PAUSED);
    ck_assert(cgroup_is_frozen(
        &(struct cgroup){.host = &rig.host, .store = rig_group(&rig, id).store, .id = id}));
}
END_TEST

/* A repeat after a lost answer finds the first; another sandbox's name is taken. */
START_TEST(snapshot__same_name__same_snapshot_or_conflict)
{
    char id[ADAPTER_ID_SIZE], other[ADAPTER_ID_SIZE];
    char one[ADAPTER_ID_SIZE], two[ADAPTER_ID_SIZE];
    struct berth_error err = {0};
    json_t *request;

    rig_make(&rig, &(struct rig_wish){.fence = 1}, id);
    rig_make(&rig, &(struct rig_wish){.key = "other", .fence = 1}, other);
    rig_snapshot(&rig, id, "one", one);
    rig_snapshot(&rig, id, "one", two);
    ck_assert_str_eq(one, two);
    request = rig_about(other, 1);
    json_object_set_new(request, "name", json_string("one"));
    ck_assert_int_eq(rig_call(&rig, "snapshot", request, NULL, &err), BERTH_ABORTED);
    ck_assert_int_eq(err.reason, BERTH_REASON_CONFLICT);
}
END_TEST

static int step_file(void *arg)
{
    char path[64];

    snprintf(path, sizeof path, "/workspace/%d", *(int *)arg);
    return put(path, "step", 0600) < 0;
}

static int check_steps(void *arg)
{
    for (int i = 0; i < *(int *)arg; i++) {
        char path[64];

        snprintf(path, sizeof path, "/workspace/%d", i);
        if (!holds(path, "step"))
            return 1;
    }
    return holds("/etc/base-file", "from the image\n") ? 0 : 2;
}

/* Snapshots of snapshots, deeper than the kernel would like: flattened on the way, nothing
 * lost. */
START_TEST(snapshot__deep_chain__flattened)
{
    char id[ADAPTER_ID_SIZE], snapshot[ADAPTER_ID_SIZE] = "";
    const int depth = STORE_LAYERS_MAX + 3;
    size_t most = 0;

    for (int i = 0; i < depth; i++) {
        struct snapshot_record record;
        struct rig_wish wish = {.fence = (uint64_t)i + 1,
                                .attempt = i & 1 ? "a1" : "a2",
                                .snapshot = snapshot[0] ? snapshot : NULL};
        char name[16];

        rig_make(&rig, &wish, id);
        ck_assert_int_eq(rig_inside(&rig, id, RIG_USER, step_file, &i), 0);
        snprintf(name, sizeof name, "s%d", i);
        rig_snapshot(&rig, id, name, snapshot);
        rig_delete(&rig, id, (uint64_t)i + 1);
        ck_assert_int_eq(snapshot_load(&rig.store, snapshot, &record, NULL), BERTH_OK);
        most = record.n_layers > most ? record.n_layers : most;
        snapshot_record_deinit(&record);
    }
    ck_assert_uint_eq(most, STORE_LAYERS_MAX);
    rig_make(&rig, &(struct rig_wish){.key = "last", .fence = 1, .snapshot = snapshot}, id);
    ck_assert_int_eq(rig_inside(&rig, id, RIG_ROOT, check_steps, &(int){depth}), 0);
}
END_TEST

/* Deleting a snapshot hides it, and does not pull the files from under those who boot from it.
 */
START_TEST(delete_snapshot__in_use__files_stay)
{
    BERTH_AUTO(json_decref) json_t *answer = NULL;
    char id[ADAPTER_ID_SIZE], snapshot[ADAPTER_ID_SIZE], copy[ADAPTER_ID_SIZE];
    struct berth_error err = {0};

    rig_make(&rig, &(struct rig_wish){.fence = 1}, id);
    ck_assert_int_eq(rig_inside(&rig, id, RIG_ROOT, change_files, NULL), 0);
    rig_snapshot(&rig, id, "one", snapshot);
    rig_make(&rig, &(struct rig_wish){.key = "copy", .fence = 1, .snapshot = snapshot}, copy);
    ck_assert_int_eq(rig_call(&rig, "delete_snapshot",
                              json_pack("{s:s, s:i}", "snapshot_id", snapshot, "fence", 9),
                              &answer, NULL),
                     BERTH_OK);
    ck_assert(json_is_true(json_object_get(answer, "existed")));
    ck_assert(json_is_true(json_object_get(answer, "in_use")));
    ck_assert_int_eq(
        rig_create(&rig, &(struct rig_wish){.key = "no", .fence = 1, .snapshot = snapshot}, id,
                   &err),
        BERTH_NOT_FOUND);
    ck_assert_int_eq(err.reason, BERTH_REASON_SNAPSHOT_NOT_FOUND);
    ck_assert_int_eq(rig_inside(&rig, copy, RIG_ROOT, check_files, NULL), 0);
    /* Again: it is gone already. */
    ck_assert_int_eq(rig_call(&rig, "delete_snapshot",
                              json_pack("{s:s, s:i}", "snapshot_id", snapshot, "fence", 9),
                              NULL, NULL),
                     BERTH_OK);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("local/snapshot");
    TCase *tcase = tcase_create("snapshot");
    SRunner *runner;
    int failed;

    rig_main();
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 180);
    tcase_add_test(tcase, snapshot__changed_files__same_in_the_copy);
    tcase_add_test(tcase, snapshot__live_writer__one_moment);
    tcase_add_test(tcase, snapshot__paused_sandbox__stays_paused);
    tcase_add_test(tcase, snapshot__same_name__same_snapshot_or_conflict);
    tcase_add_test(tcase, snapshot__deep_chain__flattened);
    tcase_add_test(tcase, delete_snapshot__in_use__files_stay);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    rig_finish();
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
