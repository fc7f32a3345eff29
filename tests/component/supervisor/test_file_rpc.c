/* FileService of the local backend over real gRPC, on a directory that stands for a sandbox's
 * root and belongs to its user. */
#include "tests/component/supervisor/file_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

/* Bytes in, the same bytes out, whatever they are and however many. */
START_TEST(write_read__any_bytes__exact)
{
    static const size_t sizes[] = {0, 1, 4, 256, 65536, (4 << 20) - 1, 4 << 20, (4 << 20) + 1};
    uint8_t *data = malloc((4 << 20) + 1);
    FileEntry *entry = NULL;
    struct stat st;

    for (size_t i = 0; i < (4 << 20) + 1; i++)
        data[i] = (uint8_t)(i ^ i >> 8);
    for (size_t i = 0; i < BERTH_COUNT(sizes); i++) {
        ck_assert_int_eq(write_it("/dir/sub/file", data, sizes[i], &plain), 0);
        expect_content("/dir/sub/file", data, sizes[i]);
    }
    memcpy(data, "\x89PNG", 4);
    ck_assert_int_eq(write_it("/png", data, 4, &plain), 0);
    expect_content("/png", "\x89PNG", 4);
    /* Its user's, with the usual mode, also the directories on the way. */
    ck_assert_int_eq(stat(host("/dir/sub/file"), &st), 0);
    ck_assert_uint_eq(st.st_uid, USER);
    ck_assert_uint_eq(st.st_gid, USER);
    ck_assert_uint_eq(st.st_mode & 07777, 0644);
    ck_assert_int_eq(stat(host("/dir/sub"), &st), 0);
    ck_assert_uint_eq(st.st_uid, USER);
    ck_assert_uint_eq(st.st_mode & 07777, 0755);
    ck_assert_int_eq(stat_it("/png", &entry), 0);
    ck_assert_uint_eq(entry->uid, 1000);
    ck_assert_str_eq(entry->owner, "user");
    ck_assert_uint_eq(entry->size_bytes, 4);
    ck_assert_uint_eq(entry->sha256.len, 32);
    free_entry(entry);
    ck_assert_int_eq(count_entries("/dir/sub"), 1);
    free(data);
}
END_TEST

/* Parts of a file, and ranges that lie outside. */
START_TEST(read__ranges__as_asked)
{
    uint8_t *got;
    size_t size;

    put("/f", "0123456789", USER, 0644);
    ck_assert_int_eq(read_it("/f", 3, 4, "", &got, &size), 0);
    ck_assert_uint_eq(size, 4);
    ck_assert_mem_eq(got, "3456", 4);
    free(got);
    ck_assert_int_eq(read_it("/f", 8, 100, "", &got, &size), 0);
    ck_assert_uint_eq(size, 2);
    free(got);
    ck_assert_int_eq(read_it("/f", 11, 0, "", &got, &size), 0);
    ck_assert_uint_eq(size, 0);
    free(got);
    ck_assert_int_eq(read_it("/f", UINT64_MAX, UINT64_MAX, "", &got, &size), 0);
    ck_assert_uint_eq(size, 0);
    free(got);
}
END_TEST

/* What does not end in a right done leaves nothing behind, and keeps the old file. */
START_TEST(write__not_finished__nothing_left)
{
    static const enum spoil spoils[] = {NO_DONE, BAD_HASH,    BAD_SIZE,
                                        CANCEL,  SECOND_OPEN, NO_OPEN};
    char data[100000];

    memset(data, 'n', sizeof data);
    put_dir("/d", USER);
    put("/d/f", "old", USER, 0644);
    for (size_t i = 0; i < BERTH_COUNT(spoils); i++) {
        struct write_how how = {.spoil = spoils[i], .chunk = 10000};
        enum berth_reason reason = write_it("/d/f", data, sizeof data, &how);

        ck_assert_int_ne(reason, BERTH_REASON_NONE);
        if (spoils[i] != CANCEL)
            ck_assert_int_eq(reason, BERTH_REASON_FIELD_INVALID);
        expect_content("/d/f", "old", 3);
    }
    for (int64_t until = berth_tick_ms() + 5000; count_entries("/d") != 1;)
        ck_assert_int_lt(berth_tick_ms(), until); /* the cancelled one cleans up by itself */
    ck_assert_int_eq(write_it("/d/f", "new", 3, &(struct write_how){.announced = 4}),
                     BERTH_REASON_FIELD_INVALID);
    expect_content("/d/f", "old", 3);
}
END_TEST

/* create_only and if_etag, for reading as well. */
START_TEST(write__conditions__kept)
{
    FileEntry *entry = NULL;
    char etag[64];
    struct stat st;

    ck_assert_int_eq(write_it("/c", "1", 1, &(struct write_how){.create_only = true}), 0);
    ck_assert_int_eq(write_it("/c", "2", 1, &(struct write_how){.create_only = true}),
                     BERTH_REASON_FILE_EXISTS);
    ck_assert_int_eq(stat_it("/c", &entry), 0);
    snprintf(etag, sizeof etag, "%s", entry->etag);
    free_entry(entry);
    ck_assert_int_eq(read_it("/c", 0, 0, etag, NULL, NULL), 0);
    ck_assert_int_eq(
        write_it("/c", "33", 2, &(struct write_how){.if_etag = etag, .mode = 0750}), 0);
    ck_assert_int_eq(stat(host("/c"), &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0750);
    ck_assert_int_eq(write_it("/c", "4", 1, &(struct write_how){.if_etag = etag}),
                     BERTH_REASON_FILE_CHANGED);
    ck_assert_int_eq(read_it("/c", 0, 0, etag, NULL, NULL), BERTH_REASON_FILE_CHANGED);
    ck_assert_int_eq(write_it("/no", "4", 1, &(struct write_how){.if_etag = etag}),
                     BERTH_REASON_FILE_CHANGED);
    expect_content("/c", "33", 2);
    /* The mode stays where none is given. */
    ck_assert_int_eq(write_it("/c", "5", 1, &plain), 0);
    ck_assert_int_eq(stat(host("/c"), &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0750);
}
END_TEST

/* Each row: a path that is no path. */
static const char *const bad_paths[] = {"",    "x",  "a/b", "//",      "/a//b",
                                        "/a/", "/.", "/..", "/a/../b", "/a/./b"};

START_TEST(paths__not_clean__refused)
{
    char longer[5000];

    for (size_t i = 0; i < BERTH_COUNT(bad_paths); i++) {
        ck_assert_int_eq(stat_it(bad_paths[i], NULL), BERTH_REASON_FIELD_INVALID);
        ck_assert_int_eq(read_it(bad_paths[i], 0, 0, "", NULL, NULL),
                         BERTH_REASON_FIELD_INVALID);
        ck_assert_int_eq(write_it(bad_paths[i], "x", 1, &plain), BERTH_REASON_FIELD_INVALID);
        ck_assert_int_eq(make_dir(bad_paths[i], NULL), BERTH_REASON_FIELD_INVALID);
        ck_assert_int_eq(move(bad_paths[i], "/x", false), BERTH_REASON_FIELD_INVALID);
        ck_assert_int_eq(remove_it(bad_paths[i], true, NULL), BERTH_REASON_FIELD_INVALID);
    }
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    longer[0] = '/';
    ck_assert_int_eq(stat_it(longer, NULL), BERTH_REASON_FIELD_INVALID);
    longer[257] = 0; /* one part of 256 */
    ck_assert_int_eq(stat_it(longer, NULL), BERTH_REASON_FIELD_INVALID);
    longer[256] = 0;
    ck_assert_int_eq(write_it(longer, "x", 1, &plain), 0);
    ck_assert_int_eq(stat_it("/", NULL), 0);
}
END_TEST

/* Links are followed inside, and lead nowhere else; a loop ends. */
START_TEST(links__out_of_the_root__clamped)
{
    FileEntry *entry = NULL;
    char outside[128];

    snprintf(outside, sizeof outside, "%s.secret", rig.root);
    FILE *file = fopen(outside, "w");
    fputs("secret", file);
    fclose(file);
    ck_assert_int_eq(symlink(outside, host("/abs")), 0);
    ck_assert_int_eq(symlink("../../../../../../../../etc", host("/up")), 0);
    ck_assert_int_eq(symlink("/", host("/self")), 0);
    ck_assert_int_eq(symlink("/proc/self/root", host("/magic")), 0);
    ck_assert_int_eq(symlink("loop2", host("/loop1")), 0);
    ck_assert_int_eq(symlink("loop1", host("/loop2")), 0);
    ck_assert_int_eq(read_it("/abs", 0, 0, "", NULL, NULL), BERTH_REASON_FILE_NOT_FOUND);
    ck_assert_int_eq(read_it("/up/passwd", 0, 0, "", NULL, NULL), BERTH_REASON_FILE_NOT_FOUND);
    ck_assert_int_eq(read_it("/magic/etc/passwd", 0, 0, "", NULL, NULL),
                     BERTH_REASON_FILE_NOT_FOUND);
    ck_assert_int_eq(read_it("/loop1", 0, 0, "", NULL, NULL), BERTH_REASON_NOT_A_FILE);
    ck_assert_int_eq(stat_it("/loop1/x", NULL), BERTH_REASON_NOT_A_FILE);
    ck_assert_int_eq(write_it("/self/self/self/f", "in", 2, &plain), 0);
    expect_content("/f", "in", 2);
    expect_content("/self/f", "in", 2);
    /* A link itself is shown, not what it names; writing replaces it. */
    ck_assert_int_eq(stat_it("/abs", &entry), 0);
    ck_assert_int_eq(entry->type, BERTH__DATA__V1__FILE_TYPE__FILE_TYPE_SYMLINK);
    ck_assert_str_eq(entry->link_target, outside);
    free_entry(entry);
    ck_assert_int_eq(write_it("/abs", "mine", 4, &plain), 0);
    expect_content("/abs", "mine", 4);
    ck_assert_int_eq(remove_it("/up", true, NULL), 0);
    ck_assert_int_eq(access("/etc/passwd", F_OK), 0);
    ck_assert_int_eq(access(outside, F_OK), 0);
    unlink(outside);
}
END_TEST

/* FIFO, socket, device: shown as other, never opened, never waited for. */
START_TEST(special_files__never_opened)
{
    static const char *const paths[] = {"/fifo", "/socket", "/null", "/disk"};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    int64_t began = berth_tick_ms();

    ck_assert_int_eq(mkfifo(host("/fifo"), 0666), 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", rig.root);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(mknod(host("/null"), S_IFCHR | 0666, makedev(1, 3)), 0);
    ck_assert_int_eq(mknod(host("/disk"), S_IFBLK | 0666, makedev(7, 0)), 0);
    for (size_t i = 0; i < BERTH_COUNT(paths); i++) {
        FileEntry *entry;

        ck_assert_int_eq(stat_it(paths[i], &entry), 0);
        ck_assert_int_eq(entry->type, BERTH__DATA__V1__FILE_TYPE__FILE_TYPE_OTHER);
        ck_assert_uint_eq(entry->sha256.len, 0);
        free_entry(entry);
        ck_assert_int_eq(read_it(paths[i], 0, 0, "", NULL, NULL), BERTH_REASON_NOT_A_FILE);
        ck_assert_int_eq(write_it(paths[i], "x", 1, &plain), BERTH_REASON_NOT_A_FILE);
    }
    ck_assert_int_eq(read_it("/", 0, 0, "", NULL, NULL), BERTH_REASON_NOT_A_FILE);
    ck_assert_int_eq(write_it("/", "x", 1, &plain), BERTH_REASON_NOT_A_FILE);
    ck_assert_int_lt(berth_tick_ms() - began, 10000);
    close(fd);
}
END_TEST

/* procfs and sysfs are no files of a sandbox. */
START_TEST(kernel_file_systems__refused)
{
    put_dir("/proc", ROOT);
    ck_assert_int_eq(mount("proc", host("/proc"), "proc", 0, NULL), 0);
    ck_assert_int_eq(stat_it("/proc", NULL), BERTH_REASON_FILE_ACCESS_DENIED);
    ck_assert_int_eq(read_it("/proc/1/environ", 0, 0, "", NULL, NULL),
                     BERTH_REASON_FILE_ACCESS_DENIED);
    ck_assert_int_eq(read_it("/proc/self/root/etc/passwd", 0, 0, "", NULL, NULL),
                     BERTH_REASON_NOT_A_FILE);
    ck_assert_int_eq(write_it("/proc/sysrq-trigger", "x", 1, &plain),
                     BERTH_REASON_FILE_ACCESS_DENIED);
    ck_assert_int_eq(remove_it("/proc", true, NULL), BERTH_REASON_FILE_ACCESS_DENIED);
    ck_assert_int_eq(umount(host("/proc")), 0);
}
END_TEST

/* Root's files are root's. */
START_TEST(permissions__of_the_user)
{
    put_dir("/etc", ROOT);
    put("/etc/shadow", "x", ROOT, 0600);
    put("/etc/passwd", "y", ROOT, 0644);
    ck_assert_int_eq(read_it("/etc/shadow", 0, 0, "", NULL, NULL),
                     BERTH_REASON_FILE_ACCESS_DENIED);
    ck_assert_int_eq(read_it("/etc/passwd", 0, 0, "", NULL, NULL), 0);
    ck_assert_int_eq(write_it("/etc/passwd", "x", 1, &plain), BERTH_REASON_FILE_ACCESS_DENIED);
    ck_assert_int_eq(write_it("/etc/new", "x", 1, &plain), BERTH_REASON_FILE_ACCESS_DENIED);
    ck_assert_int_eq(make_dir("/etc/d", NULL), BERTH_REASON_FILE_ACCESS_DENIED);
    ck_assert_int_eq(remove_it("/etc/passwd", false, NULL), BERTH_REASON_FILE_ACCESS_DENIED);
    ck_assert_int_eq(remove_it("/etc", true, NULL), BERTH_REASON_FILE_ACCESS_DENIED);
    ck_assert_int_eq(move("/etc/passwd", "/mine", false), BERTH_REASON_FILE_ACCESS_DENIED);
    ck_assert_int_eq(remove_it("/", true, NULL), BERTH_REASON_FILE_ACCESS_DENIED);
    ck_assert_int_eq(access(host("/etc/passwd"), F_OK), 0);
}
END_TEST

/* /workspace/input is read-only, by whatever way one comes; so is what holds it. */
START_TEST(input_dir__read_only)
{
    put_dir("/workspace", USER);
    put_dir("/workspace/input", USER);
    put("/workspace/input/a", "a", USER, 0644);
    put("/workspace/b", "b", USER, 0644);
    ck_assert_int_eq(symlink("input", host("/workspace/way")), 0);
    ck_assert_int_eq(symlink("/workspace/input", host("/way")), 0);
    ck_assert_int_eq(write_it("/workspace/input/x", "x", 1, &plain),
                     BERTH_REASON_PATH_READ_ONLY);
    ck_assert_int_eq(write_it("/workspace/input/d/x", "x", 1, &plain),
                     BERTH_REASON_PATH_READ_ONLY);
    ck_assert_int_eq(write_it("/workspace/way/x", "x", 1, &plain), BERTH_REASON_PATH_READ_ONLY);
    ck_assert_int_eq(write_it("/way/d/x", "x", 1, &plain), BERTH_REASON_PATH_READ_ONLY);
    ck_assert_int_eq(make_dir("/way/d", NULL), BERTH_REASON_PATH_READ_ONLY);
    ck_assert_int_eq(remove_it("/way/a", false, NULL), BERTH_REASON_PATH_READ_ONLY);
    ck_assert_int_eq(remove_it("/workspace/input", true, NULL), BERTH_REASON_PATH_READ_ONLY);
    ck_assert_int_eq(remove_it("/workspace", true, NULL), BERTH_REASON_PATH_READ_ONLY);
    ck_assert_int_eq(move("/workspace", "/w", false), BERTH_REASON_PATH_READ_ONLY);
    ck_assert_int_eq(move("/workspace/input/a", "/a", false), BERTH_REASON_PATH_READ_ONLY);
    ck_assert_int_eq(move("/workspace/b", "/way/b", false), BERTH_REASON_PATH_READ_ONLY);
    ck_assert_int_eq(count_entries("/workspace/input"), 1);
    expect_content("/workspace/input/a", "a", 1);
    ck_assert_int_eq(write_it("/workspace/input2", "x", 1, &plain), 0);
    ck_assert_int_eq(remove_it("/way", true, NULL), 0); /* the link itself is elsewhere */
}
END_TEST

/* 1 GiB each way: memory of the process stays flat. */
START_TEST(transfer__one_gib__flat)
{
    enum { CHUNK = 1 << 20, N = 1024 };
    struct rig_stream *stream = rig_stream_open(FILES("WriteFile"));
    Berth__Data__V1__WriteFileOpen open = BERTH__DATA__V1__WRITE_FILE_OPEN__INIT;
    Berth__Data__V1__FileDone done = BERTH__DATA__V1__FILE_DONE__INIT;
    Berth__Data__V1__ReadFileRequest req = BERTH__DATA__V1__READ_FILE_REQUEST__INIT;
    ProtobufCMessage *resp;
    uint8_t *block = calloc(1, CHUNK);
    ProtobufCBinaryData part = {CHUNK, block};
    struct rusage before, after;
    int64_t began = berth_tick_ms(), between;
    uint64_t got = 0;

    getrusage(RUSAGE_SELF, &before);
    open.session = &rig_session;
    open.path = (char *)"/big";
    send_message(stream, BERTH__DATA__V1__WRITE_FILE_REQUEST__MESSAGE_OPEN, &open);
    for (int i = 0; i < N; i++)
        send_message(stream, BERTH__DATA__V1__WRITE_FILE_REQUEST__MESSAGE_DATA, &part);
    done.size_bytes = (uint64_t)N * CHUNK;
    send_message(stream, BERTH__DATA__V1__WRITE_FILE_REQUEST__MESSAGE_DONE, &done);
    rig_stream_half_close(stream);
    ck_assert_int_eq(rig_stream_end(stream, NULL), BERTH_OK);
    between = berth_tick_ms();
    stream = rig_stream_open(FILES("ReadFile"));
    req.session = &rig_session;
    req.path = (char *)"/big";
    rig_stream_send(stream, &req.base);
    while ((resp = rig_stream_next(stream, DESCRIPTOR(read_file_response)))) {
        Berth__Data__V1__ReadFileResponse *read = (Berth__Data__V1__ReadFileResponse *)resp;

        if (read->message_case == BERTH__DATA__V1__READ_FILE_RESPONSE__MESSAGE_DATA)
            got += read->data.len;
        protobuf_c_message_free_unpacked(resp, NULL);
    }
    ck_assert_int_eq(rig_stream_end(stream, NULL), BERTH_OK);
    ck_assert_uint_eq(got, (uint64_t)N * CHUNK);
    getrusage(RUSAGE_SELF, &after);
    printf("1 GiB: written in %lld ms, read in %lld ms, grew by %ld KiB\n",
           (long long)(between - began), (long long)(berth_tick_ms() - between),
           after.ru_maxrss - before.ru_maxrss);
    /* Caller and server in one process. */
    ck_assert_int_le(MEMORY_COUNTS * (after.ru_maxrss - before.ru_maxrss), 64 << 10);
    free(block);
}
END_TEST

/* A full disk is said, early where the size was announced, and nothing is left. */
START_TEST(write__disk_full__said)
{
    int64_t until = berth_tick_ms() + 5000;
    uint8_t *data = calloc(1, 4 << 20);

    put_dir("/small", USER);
    ck_assert_int_eq(mount("t", host("/small"), "tmpfs", 0, "size=1m,mode=777"), 0);
    ck_assert_int_eq(write_it("/small/f", data, 4 << 20, &plain), BERTH_REASON_DISK_FULL);
    ck_assert_int_eq(write_it("/small/f", data, 10, &(struct write_how){.announced = 2 << 20}),
                     BERTH_REASON_DISK_FULL);
    ck_assert_int_eq(count_entries("/small"), 0);
    ck_assert_int_eq(write_it("/small/f", data, 1000, &plain), 0);
    while (umount(host("/small")) < 0) { /* the last file is closed after the answer */
        ck_assert_int_eq(errno, EBUSY);
        ck_assert_int_lt(berth_tick_ms(), until);
        poll(NULL, 0, 5);
    }
    free(data);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("adapter/files");
    TCase *tcase = tcase_create("files");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, files_open, files_close);
    tcase_add_test(tcase, write_read__any_bytes__exact);
    tcase_add_test(tcase, read__ranges__as_asked);
    tcase_add_test(tcase, write__not_finished__nothing_left);
    tcase_add_test(tcase, write__conditions__kept);
    tcase_add_test(tcase, paths__not_clean__refused);
    tcase_add_test(tcase, links__out_of_the_root__clamped);
    tcase_add_test(tcase, special_files__never_opened);
    tcase_add_test(tcase, kernel_file_systems__refused);
    tcase_add_test(tcase, permissions__of_the_user);
    tcase_add_test(tcase, input_dir__read_only);
    tcase_add_test(tcase, transfer__one_gib__flat);
    tcase_add_test(tcase, write__disk_full__said);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
