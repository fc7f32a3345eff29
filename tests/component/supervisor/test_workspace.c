/* Workspaces between a directory that stands for a sandbox's root and the blob store: the local
 * adapter and a data plane over real gRPC. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "tests/component/supervisor/move_rig.h"

typedef Berth__Data__V1__MoveWorkspaceResponse MoveWorkspaceResponse;

static void open_all(void)
{
    files_open();
    move_open();
    put_dir("/workspace", USER);
}

static void close_all(void)
{
    move_close();
    files_close();
}

static void shell(const char *command)
{
    char text[512];

    snprintf(text, sizeof text, "cd %s/workspace && %s", rig.root, command);
    FILE *out = popen(text, "r");
    ck_assert_int_eq(pclose(out), 0);
}

/* A fresh sandbox with an empty workspace. */
static void empty_workspace(void)
{
    shell("cd .. && rm -rf workspace");
    put_dir("/workspace", USER);
}

static enum berth_reason out_of(const char *blob)
{
    return move_it(&(struct move){.kind = MOVE_OUT, .blob = blob}, NULL);
}

static enum berth_reason into(const char *blob)
{
    return move_it(&(struct move){.kind = MOVE_IN, .blob = blob}, NULL);
}

static int count_blobs(void)
{
    DIR *dir = opendir(move_dir);
    int n = -2;

    if (!dir)
        return 0;
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static int count_half_blobs(void)
{
    DIR *dir = opendir(move_dir);
    const struct dirent *entry;
    int n = 0;

    while (dir && (entry = readdir(dir)))
        n += strncmp(entry->d_name, ".tmp-", 5) == 0;
    if (dir)
        closedir(dir);
    return n;
}

static bool has_lost(const MoveWorkspaceResponse *resp, const char *path)
{
    for (size_t i = 0; i < resp->n_lost; i++)
        if (strcmp(resp->lost[i]->path, path) == 0)
            return true;
    return false;
}

/* What there is comes back: content, mode, time, links, holes, attributes; owner: the user. */
START_TEST(move__out_and_in__same_workspace)
{
    MoveWorkspaceResponse *resp = NULL;
    struct stat st, other;
    char value[8];

    put_dir("/workspace/d", USER);
    put("/workspace/d/f", "content", USER, 0751);
    put("/workspace/roots", "root's, and readable", ROOT, 04644);
    ck_assert_int_eq(setxattr(host("/workspace/d/f"), "user.mark", "val\0ue", 6, 0), 0);
    ck_assert_int_eq(link(host("/workspace/d/f"), host("/workspace/hard")), 0);
    ck_assert_int_eq(symlink("/etc/passwd", host("/workspace/soft")), 0);
    put_dir("/workspace/input", USER);
    put("/workspace/input/i", "staged", USER, 0444);
    put("/workspace/sparse", "", USER, 0600);
    ck_assert_int_eq(truncate(host("/workspace/sparse"), 1LL << 36), 0);
    shell("touch -d 2001-02-03T04:05:06.123456789Z d/f d && chown -h 701000:701000 soft");
    ck_assert_int_eq(move_it(&(struct move){.kind = MOVE_OUT, .blob = "b"}, &resp), 0);
    ck_assert_uint_eq(resp->files, 9);
    ck_assert_uint_eq(resp->lost_count, 0);
    ck_assert_uint_eq(resp->done->sha256.len, 32);
    ck_assert_uint_eq(resp->done->size_bytes, resp->moved_bytes);
    protobuf_c_message_free_unpacked(&resp->base, NULL);
    empty_workspace();
    resp = NULL;
    ck_assert_int_eq(move_it(&(struct move){.kind = MOVE_IN, .blob = "b"}, &resp), 0);
    ck_assert_uint_eq(resp->files, 9);
    ck_assert_uint_eq(resp->lost_count, 0);
    protobuf_c_message_free_unpacked(&resp->base, NULL);

    ck_assert_int_eq(stat(host("/workspace/d/f"), &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0751);
    ck_assert_uint_eq(st.st_uid, USER);
    ck_assert_int_eq(st.st_mtim.tv_sec, 981173106);
    ck_assert_int_eq(st.st_mtim.tv_nsec, 123456789);
    ck_assert_int_eq(stat(host("/workspace/hard"), &other), 0);
    ck_assert_uint_eq(other.st_ino, st.st_ino);
    ck_assert_int_eq(getxattr(host("/workspace/d/f"), "user.mark", value, sizeof value), 6);
    ck_assert_mem_eq(value, "val\0ue", 6);
    ck_assert_int_eq(stat(host("/workspace/d"), &st), 0);
    ck_assert_int_eq(st.st_mtim.tv_sec, 981173106);
    ck_assert_int_eq(stat(host("/workspace/roots"), &st), 0);
    ck_assert_uint_eq(st.st_uid, USER);
    ck_assert_uint_eq(st.st_mode & 07777, 0644);
    ck_assert_int_eq(lstat(host("/workspace/soft"), &st), 0);
    ck_assert(S_ISLNK(st.st_mode));
    ck_assert_int_eq(stat(host("/workspace/input/i"), &st), 0);
    ck_assert_int_eq(stat(host("/workspace/sparse"), &st), 0);
    ck_assert_int_eq(st.st_size, 1LL << 36);
    ck_assert_int_lt(st.st_blocks, 1024);
    /* And once more over what is there. */
    ck_assert_int_eq(into("b"), 0);
    ck_assert_int_eq(count_entries("/workspace"), 6);
}
END_TEST

/* What a hostile workspace holds is named, and the rest is carried; nothing waits on it. */
START_TEST(move__hostile_workspace__told_and_survived)
{
    static const char *const lost[] = {"fifo", "device", "closed"};
    MoveWorkspaceResponse *resp = NULL;
    char path[64];

    put("/workspace/fine", "x", USER, 0644);
    put("/workspace/closed", "root's alone", ROOT, 0600);
    ck_assert_int_eq(mkfifo(host("/workspace/fifo"), 0666), 0);
    ck_assert_int_eq(mknod(host("/workspace/device"), S_IFCHR | 0666, makedev(1, 3)), 0);
    put_dir("/workspace/mine", USER);
    put("/workspace/mine/f", "mine", USER, 0);
    ck_assert_int_eq(chmod(host("/workspace/mine"), 0), 0);
    for (int i = 0; i < 100; i++) {
        snprintf(path, sizeof path, "/workspace/fifo%d", i);
        ck_assert_int_eq(mkfifo(host(path), 0666), 0);
    }
    shell("d=.; for i in $(seq 600); do mkdir d; cd d; done");
    shell("find . -depth -name d -exec chown 701000:701000 {} +");
    ck_assert_int_eq(move_it(&(struct move){.kind = MOVE_OUT, .blob = "b"}, &resp), 0);
    ck_assert_uint_eq(resp->n_lost, 64);
    ck_assert_uint_eq(resp->lost_count, 104);
    for (size_t i = 0; i < BERTH_COUNT(lost); i++)
        ck_assert_msg(resp->lost_count > 64 || has_lost(resp, lost[i]), "%s", lost[i]);
    protobuf_c_message_free_unpacked(&resp->base, NULL);
    empty_workspace();
    ck_assert_int_eq(into("b"), 0);
    expect_content("/workspace/fine", "x", 1);
    ck_assert_int_eq(chmod(host("/workspace/mine"), 0755), 0);
    ck_assert_int_eq(chmod(host("/workspace/mine/f"), 0644), 0);
    expect_content("/workspace/mine/f", "mine", 4);
    ck_assert_int_eq(access(host("/workspace/closed"), F_OK), -1);
    ck_assert_int_eq(access(host("/workspace/fifo"), F_OK), -1);
}
END_TEST

/* A tar that takes the workspace's own mode away leaves it to its user; one that is closed to
 * him is not said to be missing. */
START_TEST(move__workspace_itself_closed__stays_of_use)
{
    struct stat st;

    put("/workspace/f", "x", USER, 0644);
    ck_assert_int_eq(chmod(host("/workspace"), 0500), 0);
    ck_assert_int_eq(out_of("b"), 0);
    empty_workspace();
    ck_assert_int_eq(into("b"), 0);
    ck_assert_int_eq(stat(host("/workspace"), &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0700);
    expect_content("/workspace/f", "x", 1);
    ck_assert_int_eq(chmod(host("/workspace"), 0), 0);
    ck_assert_int_eq(out_of("c"), BERTH_REASON_FILE_ACCESS_DENIED);
    ck_assert_int_eq(into("b"), BERTH_REASON_FILE_ACCESS_DENIED);
    empty_workspace();
}
END_TEST

/* A workspace over the limit is refused by it, and leaves nothing in the store. */
START_TEST(move_out__too_large__refused_and_nothing_left)
{
    put("/workspace/big", "", USER, 0644);
    shell("head -c 9M /dev/urandom > big");
    ck_assert_int_eq(out_of("b"), BERTH_REASON_QUOTA_EXCEEDED);
    WAIT_FOR(count_blobs() == 0);
    ck_assert_int_eq(into("b"), BERTH_REASON_FILE_NOT_FOUND);
}
END_TEST

/* One byte that is not as it was written: the blob is not one, and says so. */
START_TEST(move_in__spoilt_blob__refused)
{
    char path[200];
    int fd;
    struct stat st;

    put("/workspace/f", "content", USER, 0644);
    ck_assert_int_eq(out_of("b"), 0);
    snprintf(path, sizeof path, "%s/b.tar", move_dir);
    fd = open(path, O_RDWR);
    ck_assert_int_eq(fstat(fd, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0600);
    ck_assert_int_eq(pwrite(fd, "X", 1, st.st_size / 2), 1);
    ck_assert_int_eq(into("b"), BERTH_REASON_FILE_CHANGED);
    ck_assert_int_eq(ftruncate(fd, st.st_size - 1), 0);
    ck_assert_int_eq(into("b"), BERTH_REASON_FILE_CHANGED);
    ck_assert_int_eq(ftruncate(fd, 3), 0);
    ck_assert_int_eq(into("b"), BERTH_REASON_FILE_CHANGED);
    close(fd);
}
END_TEST

/* Removing is repeatable, and takes along what older moves of the session have left. */
START_TEST(remove__blob_and_older_ones__gone)
{
    const struct move remove = {.kind = MOVE_REMOVE, .blob = "b2"};
    char text[256];

    put("/workspace/f", "content", USER, 0644);
    ck_assert_int_eq(out_of("b1"), 0);
    ck_assert_int_eq(out_of("b2"), 0);
    ck_assert_int_eq(out_of("b3"), 0);
    snprintf(text, sizeof text,
             "cd %s && touch -d 2001-01-01 b1.tar && touch -d 2001-01-02 b2.tar", move_dir);
    shell(text);
    ck_assert_int_eq(move_it(&remove, NULL), 0);
    ck_assert_int_eq(count_blobs(), 1);
    ck_assert_int_eq(into("b3"), 0);
    ck_assert_int_eq(move_it(&remove, NULL), 0);
    ck_assert_int_eq(move_it(&(struct move){.kind = MOVE_REMOVE, .blob = "b3"}, NULL), 0);
    ck_assert_int_eq(access(move_dir, F_OK), -1);
    ck_assert_int_eq(move_it(&remove, NULL), 0);
}
END_TEST

/* Not after its time, not under a fence that was overtaken, not out of a sandbox that is not.
 */
START_TEST(move__late_or_fenced_off__refused)
{
    const struct move late = {.kind = MOVE_OUT, .blob = "b", .not_after_ms = -1000};

    put("/workspace/f", "content", USER, 0644);
    ck_assert_int_eq(move_it(&late, NULL), BERTH_REASON_DEADLINE);
    ck_assert_int_eq(out_of("b"), 0);
    rig.fence = 5;
    ck_assert_int_eq(move_it(&(struct move){.kind = MOVE_IN, .blob = "b", .fence = 4}, NULL),
                     BERTH_REASON_FENCE_STALE);
    ck_assert_int_eq(move_it(&(struct move){.kind = MOVE_IN, .blob = "b", .fence = 5}, NULL),
                     0);
    ck_assert_int_eq(out_of("no such/id"), BERTH_REASON_FIELD_INVALID);
}
END_TEST

/* Given up at any moment: no half blob stays, and the next move is as good as the first. */
START_TEST(move__cancelled_at_any_moment__next_one_whole)
{
    const struct move out = {.kind = MOVE_OUT, .blob = "b"},
                      in = {.kind = MOVE_IN, .blob = "c"};

    put("/workspace/big", "", USER, 0644);
    shell("head -c 6M /dev/urandom > big && cp big ../same");
    ck_assert_int_eq(out_of("c"), 0);
    for (useconds_t us = 0; us < 16000; us += 2000) {
        struct move_call *call = move_begin(&out);

        usleep(us);
        (void)move_end(call, true, NULL);
        call = move_begin(&in);
        usleep(us);
        (void)move_end(call, true, NULL);
    }
    empty_workspace();
    ck_assert_int_eq(into("c"), 0);
    shell("cmp big ../same && rm ../same");
    WAIT_FOR(count_half_blobs() == 0);
}
END_TEST

/* Two move into one sandbox: the later one wins, and the earlier one writes nothing more. */
START_TEST(move_in__twice_at_once__only_the_later_goes_on)
{
    unsigned n_ok = 0;

    put("/workspace/big", "", USER, 0644);
    shell("head -c 6M /dev/urandom > big && cp big ../same");
    ck_assert_int_eq(out_of("b"), 0);
    for (int i = 0; i < 10; i++) {
        struct move_call *first =
            move_begin(&(struct move){.kind = MOVE_IN, .blob = "b", .fence = 7});
        struct move_call *second =
            move_begin(&(struct move){.kind = MOVE_IN, .blob = "b", .fence = 8});
        enum berth_reason one = move_end(first, false, NULL),
                          two = move_end(second, false, NULL);

        ck_assert(one == BERTH_REASON_NONE || one == BERTH_REASON_CONFLICT);
        ck_assert(two == BERTH_REASON_NONE ||
                  (two == BERTH_REASON_CONFLICT && one == BERTH_REASON_NONE));
        n_ok += two == BERTH_REASON_NONE;
        shell("cmp big ../same");
    }
    ck_assert_uint_gt(n_ok, 0);
    shell("rm ../same");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("adapter/workspace");
    TCase *tcase = tcase_create("move");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, open_all, close_all);
    tcase_add_test(tcase, move__out_and_in__same_workspace);
    tcase_add_test(tcase, move__hostile_workspace__told_and_survived);
    tcase_add_test(tcase, move__workspace_itself_closed__stays_of_use);
    tcase_add_test(tcase, move_out__too_large__refused_and_nothing_left);
    tcase_add_test(tcase, move_in__spoilt_blob__refused);
    tcase_add_test(tcase, remove__blob_and_older_ones__gone);
    tcase_add_test(tcase, move__late_or_fenced_off__refused);
    tcase_add_test(tcase, move__cancelled_at_any_moment__next_one_whole);
    tcase_add_test(tcase, move_in__twice_at_once__only_the_later_goes_on);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
