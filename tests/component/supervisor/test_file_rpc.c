/* FileService of the local backend over real gRPC, on a directory that stands for a sandbox's
 * root and belongs to its user. */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

#include "common/crypto/crypto.h"
#include "common/time/time.h"
#include "tests/component/supervisor/data_rig.h"

#define FILES(name) "/berth.data.v1.FileService/" name
#define DESCRIPTOR(type) &berth__data__v1__##type##__descriptor

enum { USER = FAKE_BOX_UID_BASE + 1000, ROOT = FAKE_BOX_UID_BASE };

typedef Berth__Data__V1__FileEntry FileEntry;

static void open_rig(void)
{
    if (geteuid() != 0) {
        puts("SKIP: needs root");
        exit(77);
    }
    ck_assert_int_eq(unshare(CLONE_NEWNS), 0);
    ck_assert_int_eq(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    rig_open(false);
}

static void close_rig(void)
{
    rig_close();
}

/* ------------------------------------------------------------- the sandbox's side */

static const char *host(const char *path)
{
    static char buf[8][4400];
    static int i;

    i = (i + 1) % 8;
    snprintf(buf[i], sizeof buf[i], "%s%s", rig.root, path);
    return buf[i];
}

static void own(const char *path, unsigned uid)
{
    ck_assert_int_eq(lchown(host(path), uid, uid), 0);
}

static void put(const char *path, const char *text, unsigned uid, mode_t mode)
{
    int fd = open(host(path), O_CREAT | O_WRONLY | O_TRUNC, 0600);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    fchmod(fd, mode);
    close(fd);
    own(path, uid);
}

static void put_dir(const char *path, unsigned uid)
{
    ck_assert_int_eq(mkdir(host(path), 0755), 0);
    own(path, uid);
}

static int count_entries(const char *path)
{
    DIR *dir = opendir(host(path));
    int n = -2; /* . and .. */

    ck_assert_ptr_nonnull(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

/* -------------------------------------------------------------------- the calls */

static enum berth_reason stat_it(const char *path, FileEntry **ret)
{
    Berth__Data__V1__StatRequest req = BERTH__DATA__V1__STAT_REQUEST__INIT;
    Berth__Data__V1__StatResponse *resp;
    struct berth_error err;

    req.session = &rig_session;
    req.path = (char *)path;
    req.with_sha256 = true;
    resp = (Berth__Data__V1__StatResponse *)rig_call(FILES("Stat"), &req.base,
                                                     DESCRIPTOR(stat_response), &err);
    if (!resp)
        return err.reason;
    if (ret)
        *ret = BERTH_STEAL(resp->entry);
    protobuf_c_message_free_unpacked(&resp->base, NULL);
    return BERTH_REASON_NONE;
}

static void free_entry(FileEntry *entry)
{
    protobuf_c_message_free_unpacked(&entry->base, NULL);
}

static enum berth_reason make_dir(const char *path, bool *ret_created)
{
    Berth__Data__V1__MakeDirRequest req = BERTH__DATA__V1__MAKE_DIR_REQUEST__INIT;
    Berth__Data__V1__MakeDirResponse *resp;
    struct berth_error err;

    req.session = &rig_session;
    req.path = (char *)path;
    resp = (Berth__Data__V1__MakeDirResponse *)rig_call(FILES("MakeDir"), &req.base,
                                                        DESCRIPTOR(make_dir_response), &err);
    if (!resp)
        return err.reason;
    if (ret_created)
        *ret_created = resp->created;
    protobuf_c_message_free_unpacked(&resp->base, NULL);
    return BERTH_REASON_NONE;
}

static enum berth_reason move(const char *source, const char *target, bool overwrite)
{
    Berth__Data__V1__MoveRequest req = BERTH__DATA__V1__MOVE_REQUEST__INIT;
    struct berth_error err;
    ProtobufCMessage *resp;

    req.session = &rig_session;
    req.source = (char *)source;
    req.target = (char *)target;
    req.overwrite = overwrite;
    resp = rig_call(FILES("Move"), &req.base, DESCRIPTOR(move_response), &err);
    if (!resp)
        return err.reason;
    ck_assert_str_eq(((Berth__Data__V1__MoveResponse *)resp)->entry->path, target);
    protobuf_c_message_free_unpacked(resp, NULL);
    return BERTH_REASON_NONE;
}

static enum berth_reason remove_it(const char *path, bool recursive, bool *ret_existed)
{
    Berth__Data__V1__RemoveRequest req = BERTH__DATA__V1__REMOVE_REQUEST__INIT;
    Berth__Data__V1__RemoveResponse *resp;
    struct berth_error err;

    req.session = &rig_session;
    req.path = (char *)path;
    req.recursive = recursive;
    resp = (Berth__Data__V1__RemoveResponse *)rig_call(FILES("Remove"), &req.base,
                                                       DESCRIPTOR(remove_response), &err);
    if (!resp)
        return err.reason;
    if (ret_existed)
        *ret_existed = resp->existed;
    protobuf_c_message_free_unpacked(&resp->base, NULL);
    return BERTH_REASON_NONE;
}

/* Owned content; *ret_size; reason otherwise. Checks entry, done and hash. */
static enum berth_reason read_it(const char *path, uint64_t offset, uint64_t length,
                                 const char *if_etag, uint8_t **ret, size_t *ret_size)
{
    struct rig_stream *stream = rig_stream_open(FILES("ReadFile"));
    Berth__Data__V1__ReadFileRequest req = BERTH__DATA__V1__READ_FILE_REQUEST__INIT;
    Berth__Data__V1__ReadFileResponse *resp;
    struct berth_error err = {0};
    uint8_t *data = malloc(1), digest[32];
    size_t size = 0;
    int n = 0;
    bool done = false;

    req.session = &rig_session;
    req.path = (char *)path;
    req.offset = offset;
    req.length = length;
    req.if_etag = (char *)if_etag;
    rig_stream_send(stream, &req.base);
    rig_stream_half_close(stream);
    while ((resp = (Berth__Data__V1__ReadFileResponse *)rig_stream_next(
                stream, DESCRIPTOR(read_file_response)))) {
        switch (resp->message_case) {
        case BERTH__DATA__V1__READ_FILE_RESPONSE__MESSAGE_ENTRY:
            ck_assert_int_eq(n, 0);
            break;
        case BERTH__DATA__V1__READ_FILE_RESPONSE__MESSAGE_DATA:
            ck_assert(!done);
            data = realloc(data, size + resp->data.len + 1);
            memcpy(data + size, resp->data.data, resp->data.len);
            size += resp->data.len;
            break;
        default:
            done = true;
            berth_sha256_once(data, size, digest);
            ck_assert_uint_eq(resp->done->size_bytes, size);
            ck_assert_uint_eq(resp->done->sha256.len, 32);
            ck_assert_mem_eq(resp->done->sha256.data, digest, 32);
        }
        n++;
        protobuf_c_message_free_unpacked(&resp->base, NULL);
    }
    if (rig_stream_end(stream, &err) != BERTH_OK) {
        free(data);
        return err.reason;
    }
    ck_assert(done);
    if (ret) {
        *ret = data;
        *ret_size = size;
    } else {
        free(data);
    }
    return BERTH_REASON_NONE;
}

/* How a WriteFile is to be spoiled. */
enum spoil { GOOD, NO_DONE, BAD_HASH, BAD_SIZE, CANCEL, SECOND_OPEN, NO_OPEN };

struct write_how {
    bool create_only;
    const char *if_etag;
    uint32_t mode;
    size_t chunk;
    uint64_t announced;
    enum spoil spoil;
};

static void send_message(struct rig_stream *stream, int kind, void *member)
{
    Berth__Data__V1__WriteFileRequest msg = BERTH__DATA__V1__WRITE_FILE_REQUEST__INIT;

    msg.message_case = (Berth__Data__V1__WriteFileRequest__MessageCase)kind;
    if (kind == BERTH__DATA__V1__WRITE_FILE_REQUEST__MESSAGE_DATA)
        msg.data = *(ProtobufCBinaryData *)member;
    else
        msg.open = member; /* or done: one union */
    rig_stream_send(stream, &msg.base);
}

static enum berth_reason write_it(const char *path, const void *data, size_t size,
                                  const struct write_how *how)
{
    struct rig_stream *stream = rig_stream_open(FILES("WriteFile"));
    Berth__Data__V1__WriteFileOpen open = BERTH__DATA__V1__WRITE_FILE_OPEN__INIT;
    Berth__Data__V1__FileDone done = BERTH__DATA__V1__FILE_DONE__INIT;
    Berth__Data__V1__WriteFileResponse *resp;
    size_t chunk = how->chunk ? how->chunk : 1 << 20;
    struct berth_error err = {0};
    uint8_t digest[32];

    open.session = &rig_session;
    open.path = (char *)path;
    open.mode = how->mode;
    open.create_only = how->create_only;
    open.if_etag = (char *)(how->if_etag ? how->if_etag : "");
    open.size_bytes = how->announced;
    if (how->spoil != NO_OPEN)
        send_message(stream, BERTH__DATA__V1__WRITE_FILE_REQUEST__MESSAGE_OPEN, &open);
    for (size_t at = 0; at < size; at += chunk) {
        ProtobufCBinaryData part = {size - at < chunk ? size - at : chunk,
                                    (uint8_t *)data + at};

        send_message(stream, BERTH__DATA__V1__WRITE_FILE_REQUEST__MESSAGE_DATA, &part);
    }
    if (how->spoil == SECOND_OPEN)
        send_message(stream, BERTH__DATA__V1__WRITE_FILE_REQUEST__MESSAGE_OPEN, &open);
    berth_sha256_once(data, size, digest);
    digest[0] ^= how->spoil == BAD_HASH;
    done.size_bytes = size + (how->spoil == BAD_SIZE);
    done.sha256 = (ProtobufCBinaryData){32, digest};
    if (how->spoil == CANCEL)
        rig_stream_cancel(stream);
    else if (how->spoil != NO_DONE)
        send_message(stream, BERTH__DATA__V1__WRITE_FILE_REQUEST__MESSAGE_DONE, &done);
    rig_stream_half_close(stream);
    resp = (Berth__Data__V1__WriteFileResponse *)rig_stream_next(
        stream, DESCRIPTOR(write_file_response));
    if (resp) {
        ck_assert_uint_eq(resp->entry->size_bytes, size);
        ck_assert_str_eq(resp->entry->path, path);
        protobuf_c_message_free_unpacked(&resp->base, NULL);
    }
    return rig_stream_end(stream, &err) == BERTH_OK ? BERTH_REASON_NONE : err.reason;
}

static const struct write_how plain;

static void expect_content(const char *path, const void *data, size_t size)
{
    uint8_t *got;
    size_t got_size;

    ck_assert_int_eq(read_it(path, 0, 0, "", &got, &got_size), 0);
    ck_assert_uint_eq(got_size, size);
    ck_assert(memcmp(got, data, size) == 0);
    free(got);
}

/* ------------------------------------------------------------------------- tests */

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

/* MakeDir and Move in the cases people meet. */
START_TEST(make_dir_and_move__usual_cases)
{
    bool created;

    ck_assert_int_eq(make_dir("/a/b/c", &created), 0);
    ck_assert(created);
    ck_assert_int_eq(make_dir("/a/b/c", &created), 0);
    ck_assert(!created);
    put("/a/f", "f", USER, 0644);
    ck_assert_int_eq(make_dir("/a/f", NULL), BERTH_REASON_FILE_EXISTS);
    ck_assert_int_eq(make_dir("/a/f/g", NULL), BERTH_REASON_NOT_A_DIRECTORY);
    ck_assert_int_eq(move("/a/f", "/a/g", false), 0);
    put("/a/f", "f", USER, 0644);
    ck_assert_int_eq(move("/a/f", "/a/g", false), BERTH_REASON_FILE_EXISTS);
    ck_assert_int_eq(move("/a/f", "/a/g", true), 0);
    ck_assert_int_eq(move("/a/f", "/a/h", false), BERTH_REASON_FILE_NOT_FOUND);
    ck_assert_int_eq(move("/a/g", "/no/h", false), BERTH_REASON_FILE_NOT_FOUND);
    ck_assert_int_eq(move("/a", "/a/b/d", false), BERTH_REASON_FIELD_INVALID);
    ck_assert_int_eq(move("/a/g", "/a/b", true), BERTH_REASON_NOT_A_FILE);
    ck_assert_int_eq(make_dir("/e", NULL), 0);
    ck_assert_int_eq(move("/e", "/a/b", true), BERTH_REASON_DIRECTORY_NOT_EMPTY);
    ck_assert_int_eq(move("/e", "/a/g", true), BERTH_REASON_NOT_A_DIRECTORY);
    ck_assert_int_eq(move("/a", "/z", false), 0);
    ck_assert_int_eq(stat_it("/z/b/c", NULL), 0);
}
END_TEST

/* Remove: absent is an answer, full needs recursive, 10,000 levels deep is no matter. */
START_TEST(remove__cases_and_deep_tree)
{
    bool existed;
    int fd;

    ck_assert_int_eq(remove_it("/no", false, &existed), 0);
    ck_assert(!existed);
    ck_assert_int_eq(remove_it("/no/such/dir", true, &existed), 0);
    ck_assert(!existed);
    put_dir("/d", USER);
    put("/d/f", "f", USER, 0644);
    ck_assert_int_eq(symlink("/", host("/d/link")), 0);
    put("/other", "o", USER, 0644);
    ck_assert_int_eq(remove_it("/d", false, &existed), BERTH_REASON_DIRECTORY_NOT_EMPTY);
    ck_assert_int_eq(remove_it("/d", true, &existed), 0);
    ck_assert(existed);
    ck_assert_int_eq(stat_it("/d", NULL), BERTH_REASON_FILE_NOT_FOUND);
    expect_content("/other", "o", 1);

    put_dir("/deep", USER);
    fd = open(host("/deep"), O_PATH | O_DIRECTORY);
    for (int i = 0; i < 10000; i++) {
        int next;

        ck_assert_int_eq(mkdirat(fd, "d", 0755), 0);
        ck_assert_int_eq(fchownat(fd, "d", USER, USER, 0), 0);
        next = openat(fd, "d", O_PATH | O_DIRECTORY);
        close(fd);
        fd = next;
    }
    close(fd);
    ck_assert_int_eq(remove_it("/deep", true, &existed), 0);
    ck_assert_int_eq(access(host("/deep"), F_OK), -1);
}
END_TEST

/* ---------------------------------------------------------------------- ListDir */

static int list_page(const char *path, uint32_t depth, int32_t size, char token[8200],
                     char (*ret_paths)[300], int max)
{
    Berth__Data__V1__ListDirRequest req = BERTH__DATA__V1__LIST_DIR_REQUEST__INIT;
    Berth__Common__V1__PageRequest page = BERTH__COMMON__V1__PAGE_REQUEST__INIT;
    Berth__Data__V1__ListDirResponse *resp;
    struct berth_error err;
    int n;

    req.session = &rig_session;
    req.path = (char *)path;
    req.depth = depth;
    req.page = &page;
    page.page_size = size;
    page.page_token = token;
    resp = (Berth__Data__V1__ListDirResponse *)rig_call(FILES("ListDir"), &req.base,
                                                        DESCRIPTOR(list_dir_response), &err);
    if (!resp)
        return -(int)err.reason;
    n = (int)resp->n_entries;
    for (int i = 0; i < n && i < max; i++)
        snprintf(ret_paths[i], sizeof ret_paths[i], "%s", resp->entries[i]->path);
    snprintf(token, 8200, "%s", resp->next_page_token);
    protobuf_c_message_free_unpacked(&resp->base, NULL);
    return n;
}

/* Pages of every size give every entry once, in order, also below. */
START_TEST(list__pages__each_entry_once)
{
    static char whole[3000][300], part[1001][300];
    static const int sizes[] = {1, 7, 50, 1000};
    char token[8200] = "", path[64];
    int n, all = 0;

    put_dir("/l", USER);
    for (int i = 0; i < 40; i++) {
        snprintf(path, sizeof path, "/l/d%d", i);
        put_dir(path, USER);
        for (int j = 0; j < i; j++) {
            snprintf(path, sizeof path, "/l/d%d/f%d", i, j);
            put(path, "x", USER, 0644);
        }
    }
    put("/l/d1.txt", "x", USER, 0644); /* sorts behind what is in d1 */
    do {
        n = list_page("/l", 2, 1000, token, whole + all, 1000);
        ck_assert_int_ge(n, 0);
        all += n;
    } while (token[0]);
    ck_assert_int_eq(all, 40 + 780 + 1);
    ck_assert_str_eq(whole[0], "/l/d0");
    ck_assert_str_eq(whole[1], "/l/d1");
    ck_assert_str_eq(whole[2], "/l/d1/f0");
    ck_assert_str_eq(whole[3], "/l/d1.txt");
    for (size_t s = 0; s < BERTH_COUNT(sizes); s++) {
        int got = 0;

        token[0] = 0;
        do {
            n = list_page("/l", 2, sizes[s], token, part, 1001);
            ck_assert_int_ge(n, 1);
            ck_assert_int_le(n, sizes[s]);
            for (int i = 0; i < n; i++)
                ck_assert_str_eq(part[i], whole[got + i]);
            got += n;
        } while (token[0]);
        ck_assert_int_eq(got, all);
    }
    token[0] = 0;
    ck_assert_int_eq(list_page("/l", 0, 1000, token, part, 1001), 41);
    ck_assert_str_eq(token, "");
    snprintf(token, sizeof token, "zz");
    ck_assert_int_eq(list_page("/l", 1, 10, token, part, 10), -BERTH_REASON_FIELD_INVALID);
    token[0] = 0;
    ck_assert_int_eq(list_page("/l", 33, 10, token, part, 10), -BERTH_REASON_FIELD_INVALID);
    ck_assert_int_eq(list_page("/l", 1, -1, token, part, 10), -BERTH_REASON_FIELD_INVALID);
    ck_assert_int_eq(list_page("/l/d1.txt", 1, 10, token, part, 10),
                     -BERTH_REASON_NOT_A_DIRECTORY);
    ck_assert_int_eq(list_page("/no", 1, 10, token, part, 10), -BERTH_REASON_FILE_NOT_FOUND);
}
END_TEST

/* Names that are not UTF-8 are shown, escaped and whole; paging goes over them. */
START_TEST(list__names_that_are_no_text__shown)
{
    Berth__Data__V1__ListDirRequest req = BERTH__DATA__V1__LIST_DIR_REQUEST__INIT;
    Berth__Data__V1__ListDirResponse *resp;
    struct berth_error err;
    char token[8200] = "", part[2][300];

    put_dir("/n", USER);
    put("/n/\xff\x01z", "x", USER, 0644);
    put("/n/a\\b", "x", USER, 0644);
    put("/n/\xff\xfe", "x", USER, 0644);
    req.session = &rig_session;
    req.path = (char *)"/n";
    resp = (Berth__Data__V1__ListDirResponse *)rig_call(FILES("ListDir"), &req.base,
                                                        DESCRIPTOR(list_dir_response), &err);
    ck_assert_ptr_nonnull(resp);
    ck_assert_uint_eq(resp->n_entries, 3);
    ck_assert_str_eq(resp->entries[0]->path, "/n/a\\b");
    ck_assert_uint_eq(resp->entries[0]->raw_path.len, 0);
    ck_assert_str_eq(resp->entries[1]->path, "/n/\\xFF\x01z");
    ck_assert_uint_eq(resp->entries[1]->raw_path.len, 6);
    ck_assert_mem_eq(resp->entries[1]->raw_path.data, "/n/\xff\x01z", 6);
    ck_assert_str_eq(resp->entries[2]->path, "/n/\\xFF\\xFE");
    protobuf_c_message_free_unpacked(&resp->base, NULL);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(list_page("/n", 1, 1, token, part, 2), 1);
    ck_assert_str_eq(token, "");
    ck_assert_str_eq(part[0], "/n/\\xFF\\xFE");
}
END_TEST

/* A page is bounded in bytes as well: long names do not burst a message. */
START_TEST(list__long_names__pages_fit_into_messages)
{
    static char part[1001][300];
    char token[8200] = "", path[300];
    int n, all = 0, pages = 0;

    put_dir("/long", USER);
    for (int i = 0; i < 3000; i++) {
        snprintf(path, sizeof path, "/long/%04d", i);
        memset(path + 10, '\xff', 245);
        path[255] = 0;
        put(path, "", USER, 0644);
    }
    do {
        n = list_page("/long", 1, 1000, token, part, 1001);
        ck_assert_int_ge(n, 1);
        all += n;
        pages++;
    } while (token[0]);
    ck_assert_int_eq(all, 3000);
    ck_assert_int_ge(pages, 3);
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
    ck_assert_int_le(after.ru_maxrss - before.ru_maxrss, 64 << 10);
    free(block);
}
END_TEST

/* A full disk is said, early where the size was announced, and nothing is left. */
START_TEST(write__disk_full__said)
{
    uint8_t *data = calloc(1, 4 << 20);

    put_dir("/small", USER);
    ck_assert_int_eq(mount("t", host("/small"), "tmpfs", 0, "size=1m,mode=777"), 0);
    ck_assert_int_eq(write_it("/small/f", data, 4 << 20, &plain), BERTH_REASON_DISK_FULL);
    ck_assert_int_eq(write_it("/small/f", data, 10, &(struct write_how){.announced = 2 << 20}),
                     BERTH_REASON_DISK_FULL);
    ck_assert_int_eq(count_entries("/small"), 0);
    ck_assert_int_eq(write_it("/small/f", data, 1000, &plain), 0);
    ck_assert_int_eq(umount(host("/small")), 0);
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
    tcase_add_checked_fixture(tcase, open_rig, close_rig);
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
    tcase_add_test(tcase, make_dir_and_move__usual_cases);
    tcase_add_test(tcase, remove__cases_and_deep_tree);
    tcase_add_test(tcase, list__pages__each_entry_once);
    tcase_add_test(tcase, list__names_that_are_no_text__shown);
    tcase_add_test(tcase, list__long_names__pages_fit_into_messages);
    tcase_add_test(tcase, transfer__one_gib__flat);
    tcase_add_test(tcase, write__disk_full__said);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
