/* A sandbox that swaps a directory for a symbolic link while the host works in it: no file call
 * may ever leave its root. BERTH_RACE_TRIES: tries per call (20000, so 140000 in all). */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "services/adapter-local/files.h"
#include "tests/component/supervisor/data_rig.h"

enum { USER = FAKE_BOX_UID_BASE + 1000 };

static const struct adapter_route route = {.sandbox_id = "box"};

static char outside[128], secret[160];
static struct stat secret_st;
static pid_t attacker;
static long tries, reached;

static bool never(void *arg)
{
    (void)arg;
    return false;
}

static const struct adapter_patience patient = {never, NULL};

/* Owned by the sandbox's user, like everything an attacker makes. */
static void make_inside(void)
{
    int fd;

    if (mkdir("d", 0777) == 0)
        (void)!chown("d", USER, USER);
    fd = open("d/f", O_CREAT | O_WRONLY | O_NOFOLLOW, 0666);
    if (fd >= 0) {
        (void)!fchown(fd, USER, USER);
        (void)!write(fd, "inside-", 7);
        close(fd);
    }
}

/* "d" is a directory, then one link or another, in turn, as fast as it goes. */
static void attack(void)
{
    const char *targets[] = {outside, "/", "../../../../../../../..", "."};
    char up[256];

    snprintf(up, sizeof up, "../../../../../../../../..%s", outside);
    targets[2] = up;
    signal(SIGTERM, SIG_DFL);
    if (chdir(rig.root) < 0 || chdir("w") < 0)
        _exit(1);
    for (unsigned i = 0;; i++) {
        make_inside();
        (void)!symlink(targets[i % 3], "link");
        if (renameat2(AT_FDCWD, "link", AT_FDCWD, "d", RENAME_EXCHANGE) == 0) {
            /* the directory is called "link" now */
            renameat2(AT_FDCWD, "link", AT_FDCWD, "d", RENAME_EXCHANGE);
        }
        unlink("link");
    }
}

static void open_arena(void)
{
    const char *wanted = getenv("BERTH_RACE_TRIES");
    char path[128];
    int fd;

    if (geteuid() != 0) {
        puts("SKIP: needs root");
        exit(77);
    }
    tries = wanted ? strtol(wanted, NULL, 10) : 20000;
    rig_open(false);
    snprintf(outside, sizeof outside, "%s.out", rig.root);
    ck_assert_int_eq(mkdir(outside, 0777), 0);
    ck_assert_int_eq(chmod(outside, 0777), 0); /* only the root protects it */
    snprintf(secret, sizeof secret, "%s/f", outside);
    fd = open(secret, O_CREAT | O_WRONLY, 0666);
    ck_assert_int_eq(write(fd, "SECRET", 6), 6);
    fchmod(fd, 0666);
    fstat(fd, &secret_st);
    close(fd);
    snprintf(path, sizeof path, "%s/w", rig.root);
    ck_assert_int_eq(mkdir(path, 0777), 0);
    ck_assert_int_eq(chown(path, USER, USER), 0);
    reached = 0;
    fflush(NULL);
    attacker = fork();
    if (attacker == 0)
        attack();
}

static int count_outside(void)
{
    char command[256], line[32] = "";
    FILE *pipe;

    snprintf(command, sizeof command, "ls -A %s | wc -l", outside);
    pipe = popen(command, "r");
    ck_assert_ptr_nonnull(fgets(line, sizeof line, pipe));
    pclose(pipe);
    return (int)strtol(line, NULL, 10);
}

/* Nothing outside was touched, and the attack was one: some tries met the real directory. */
static void close_arena(void)
{
    char command[256], content[8] = "";
    int fd = open(secret, O_RDONLY);

    kill(attacker, SIGKILL);
    waitpid(attacker, NULL, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(read(fd, content, sizeof content), 6);
    ck_assert_str_eq(content, "SECRET");
    close(fd);
    ck_assert_int_eq(count_outside(), 1);
    ck_assert_int_gt(reached, 0);
    snprintf(command, sizeof command, "rm -rf %s", outside);
    FILE *rm = popen(command, "r");
    pclose(rm);
    rig_close();
}

/* Without protection the attack succeeds: a path joined on the host leaks within a moment. */
START_TEST(control__path_on_the_host__leaks)
{
    char path[128], buf[8];
    long leaks = 0;

    snprintf(path, sizeof path, "%s/w/d/f", rig.root);
    for (long i = 0; i < 1000000 && leaks == 0; i++) {
        int fd = open(path, O_RDONLY | O_NOFOLLOW);

        if (fd >= 0 && read(fd, buf, 6) == 6 && memcmp(buf, "SECRET", 6) == 0)
            leaks++;
        closep(&fd);
    }
    ck_assert_int_gt(leaks, 0);
    reached = 1;
}
END_TEST

START_TEST(stat__raced__stays_inside)
{
    for (long i = 0; i < tries; i++) {
        struct adapter_file file;

        if (local_file_ops.stat(NULL, &route, "/w/d/f", false, &patient, &file, NULL))
            continue;
        ck_assert_uint_ne(file.size_bytes, 6);
        adapter_file_deinit(&file);
        reached++;
    }
}
END_TEST

START_TEST(list__raced__stays_inside)
{
    for (long i = 0; i < tries; i++) {
        struct adapter_list list;

        if (local_file_ops.list(NULL, &route, "/w", 3, "", 100, &patient, &list, NULL))
            continue;
        for (size_t f = 0; f < list.n; f++)
            ck_assert_uint_ne(list.files[f].size_bytes, 6);
        reached += list.n > 1;
        adapter_list_deinit(&list);
        if (local_file_ops.list(NULL, &route, "/w/d", 1, "", 100, &patient, &list, NULL))
            continue;
        for (size_t f = 0; f < list.n; f++)
            ck_assert_uint_ne(list.files[f].size_bytes, 6);
        adapter_list_deinit(&list);
    }
}
END_TEST

START_TEST(read__raced__stays_inside)
{
    for (long i = 0; i < tries; i++) {
        struct adapter_reader *reader;
        struct adapter_file file;
        uint8_t buf[16] = {0};
        size_t size = 0;

        if (local_file_ops.open_read(NULL, &route, "/w/d/f", 0, 0, "", &reader, &file, NULL))
            continue;
        if (local_file_ops.read(reader, buf, sizeof buf, &size, NULL) == BERTH_OK)
            ck_assert(memcmp(buf, "SECRET", 6) != 0);
        local_file_ops.close_read(reader);
        adapter_file_deinit(&file);
        reached++;
    }
}
END_TEST

START_TEST(write__raced__stays_inside)
{
    for (long i = 0; i < tries; i++) {
        struct adapter_write_open open = {.path = i % 2 ? "/w/d/f" : "/w/d/new/g",
                                          .if_etag = ""};
        struct adapter_writer *writer;
        struct adapter_file file;

        if (local_file_ops.open_write(NULL, &route, &open, &writer, NULL))
            continue;
        (void)!local_file_ops.write(writer, &(struct iovec){(void *)(uintptr_t) "written", 7},
                                    1, NULL);
        if (local_file_ops.commit(writer, &file, NULL) == BERTH_OK) {
            adapter_file_deinit(&file);
            reached++;
        }
        local_file_ops.close_write(writer);
    }
}
END_TEST

START_TEST(make_dir__raced__stays_inside)
{
    for (long i = 0; i < tries; i++) {
        char path[64];
        struct adapter_file file;
        bool created;

        snprintf(path, sizeof path, "/w/d/m%ld/n", i % 50);
        if (local_file_ops.make_dir(NULL, &route, path, &file, &created, NULL))
            continue;
        adapter_file_deinit(&file);
        reached++;
    }
}
END_TEST

START_TEST(move__raced__stays_inside)
{
    for (long i = 0; i < tries; i++) {
        struct adapter_file file;

        if (local_file_ops.move(NULL, &route, i % 2 ? "/w/d/f" : "/w/d/f2",
                                i % 2 ? "/w/d/f2" : "/w/d/f", true, &file, NULL))
            continue;
        ck_assert_uint_ne(file.size_bytes, 6);
        adapter_file_deinit(&file);
        reached++;
    }
}
END_TEST

START_TEST(remove__raced__stays_inside)
{
    for (long i = 0; i < tries; i++) {
        bool existed = false;

        if (local_file_ops.remove(NULL, &route, i % 2 ? "/w/d" : "/w/d/f", i % 2, &patient,
                                  &existed, NULL) == BERTH_OK)
            reached += existed;
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("adapter/file races");
    TCase *tcase = tcase_create("races");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_set_timeout(tcase, 1200);
    tcase_add_checked_fixture(tcase, open_arena, close_arena);
    tcase_add_test(tcase, control__path_on_the_host__leaks);
    tcase_add_test(tcase, stat__raced__stays_inside);
    tcase_add_test(tcase, list__raced__stays_inside);
    tcase_add_test(tcase, read__raced__stays_inside);
    tcase_add_test(tcase, write__raced__stays_inside);
    tcase_add_test(tcase, make_dir__raced__stays_inside);
    tcase_add_test(tcase, move__raced__stays_inside);
    tcase_add_test(tcase, remove__raced__stays_inside);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
