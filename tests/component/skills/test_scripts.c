/* test_scripts.c - unpack.sh and seal.sh for real, in a folder of this machine in place of
 * /opt/berth. (Whole, in a sandbox: t0610.) */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "common/base/base.h"
#include "services/skills/work/inside.h"
#include "tests/lib/packer.h"

enum { SKIPPED = 77 };

static char dir[] = "/tmp/berth-scripts-XXXXXX";
static char place[64];

/* text with every piece replaced; owned. */
static char *replace(const char *text, const char *piece, const char *by)
{
    size_t size = strlen(text) * 2 + 1, n = 0;
    char *out = malloc(size);
    const char *at;

    ck_assert_ptr_nonnull(out);
    while ((at = strstr(text, piece))) {
        n += (size_t)snprintf(out + n, size - n, "%.*s%s", (int)(at - text), text, by);
        text = at + strlen(piece);
    }
    snprintf(out + n, size - n, "%s", text);
    return out;
}

/* Its exit code. Nothing outside of the folder is touched: no path of the sandbox is left in
 * the text, and nobody is killed. */
static int run(const char *script, const char *name, const char *tar)
{
    BERTH_AUTO(free) char *moved = replace(script, "/opt/berth", place);
    BERTH_AUTO(free) char *text = replace(moved, "\nquieten\n", "\n:\n");
    pid_t pid;
    int status;

    ck_assert_ptr_null(strstr(text, "\nforget\n"));
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR);

        dup2(null, STDIN_FILENO);
        dup2(null, STDOUT_FILENO);
        execl("/bin/sh", "sh", "-c", text, "berth", "id-1", name, tar, (char *)NULL);
        _exit(126);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void shell(const char *text)
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        execl("/bin/sh", "sh", "-ec", text, "test", place, (char *)NULL);
        _exit(126);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(status == 0, "%s", text);
}

static const char *path(const char *below)
{
    static char text[256];

    snprintf(text, sizeof text, "%s/%s", place, below);
    return text;
}

static void set_up(void)
{
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(place, sizeof place, "%s", dir);
    shell("mkdir -p \"$1/skills\" \"$1/.work/tmp\"; printf id-1 >\"$1/.work/id\"");
}

static void tear_down(void)
{
    shell("chmod -R u+w \"$1\"; rm -r \"$1\"");
}

static const char *write_tar(size_t cut)
{
    static char long_text[3000];
    static const struct pack_file files[] = {
        {.path = "s/SKILL.md", .content = "new"},
        {.path = "s/new", .content = long_text, .size = sizeof long_text}};
    static char name[256];
    size_t size;
    BERTH_AUTO(free)
    void *data = pack_archive(PACK_TAR, files, BERTH_COUNT(files), 1700000000, NULL, &size);
    int fd;

    snprintf(name, sizeof name, "%s", path("skill.tar"));
    fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    size = cut ? cut : size;
    ck_assert_int_eq(write(fd, data, size), (ssize_t)size);
    close(fd);
    return name;
}

/* A new one takes the old one's place as a whole; one that does not come whole leaves the old
 * one as it was; another sandbox is not touched. */
START_TEST(unpack__cut_off__old_one_stays)
{
    shell("mkdir \"$1/skills/s\"; echo old >\"$1/skills/s/old\"");
    ck_assert_int_ne(run(work_unpack_sh, "s", write_tar(3000)), 0);
    ck_assert_int_eq(access(path("skills/s/old"), F_OK), 0);
    ck_assert_int_ne(access(path("skills/s/SKILL.md"), F_OK), 0);
    ck_assert_int_eq(run(work_unpack_sh, "s", write_tar(0)), 0);
    ck_assert_int_ne(access(path("skills/s/old"), F_OK), 0);
    ck_assert_int_eq(access(path("skills/s/new"), F_OK), 0);
    ck_assert_int_ne(access(path(".work/new"), F_OK), 0);
    ck_assert_int_ne(access(path("skill.tar"), F_OK), 0);
    shell("printf other >\"$1/.work/id\"");
    ck_assert_int_eq(run(work_unpack_sh, "s", write_tar(0)), 97);
    ck_assert_int_eq(run(work_remove_sh, "s", NULL), 97);
    ck_assert_int_eq(access(path("skills/s/new"), F_OK), 0);
}
END_TEST

/* Rights of others, set-id bits and owners are taken away; a file that has another name
 * elsewhere becomes one of its own, and that other is not touched. */
START_TEST(seal__what_was_left__of_root_and_read_only)
{
    static const struct {
        const char *name;
        mode_t mode;
    } rows[] = {{"skills", 0555},       {"skills/s", 0555},      {"skills/s/dir", 0555},
                {"skills/s/run", 0555}, {"skills/s/text", 0444}, {"skills/s/hard", 0444},
                {"elsewhere", 0600}};
    struct stat about;

    shell("mkdir -p \"$1/skills/s/dir\"; cd \"$1/skills/s\"; touch run text \"$1/elsewhere\"; "
          "chmod 6711 run; chmod 606 text; chown 1000:1000 text dir; chmod 3777 dir; "
          "chmod 600 \"$1/elsewhere\"; ln \"$1/elsewhere\" hard; ln -s text link");
    ck_assert_int_eq(run(work_seal_sh, NULL, NULL), 0);
    for (size_t i = 0; i < BERTH_COUNT(rows); i++) {
        ck_assert_int_eq(lstat(path(rows[i].name), &about), 0);
        ck_assert_msg((about.st_mode & 07777) == rows[i].mode, "%s: %o", rows[i].name,
                      about.st_mode & 07777);
        ck_assert_uint_eq(about.st_uid + about.st_gid, 0);
    }
    shell("mkfifo \"$1/skills/s/fifo\"");
    ck_assert_int_ne(run(work_seal_sh, NULL, NULL), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scripts");
    TCase *tc = tcase_create("all");
    SRunner *runner;
    int failed;

    if (geteuid() != 0) {
        printf("SKIP: needs root: owners are changed\n");
        return SKIPPED;
    }
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, unpack__cut_off__old_one_stays);
    tcase_add_test(tc, seal__what_was_left__of_root_and_read_only);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
