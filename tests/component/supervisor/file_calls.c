#include "tests/component/supervisor/file_calls.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>

#include "common/crypto/crypto.h"

void files_open(void)
{
    if (geteuid() != 0) {
        puts("SKIP: needs root");
        exit(77);
    }
    ck_assert_int_eq(unshare(CLONE_NEWNS), 0);
    ck_assert_int_eq(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    rig_open(false);
}

void files_close(void)
{
    rig_close();
}

/* ------------------------------------------------------------- the sandbox's side */

const char *host(const char *path)
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

void put(const char *path, const char *text, unsigned uid, mode_t mode)
{
    int fd = open(host(path), O_CREAT | O_WRONLY | O_TRUNC, 0600);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    fchmod(fd, mode);
    close(fd);
    own(path, uid);
}

void put_dir(const char *path, unsigned uid)
{
    ck_assert_int_eq(mkdir(host(path), 0755), 0);
    own(path, uid);
}

int count_entries(const char *path)
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

enum berth_reason stat_it(const char *path, FileEntry **ret)
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

void free_entry(FileEntry *entry)
{
    protobuf_c_message_free_unpacked(&entry->base, NULL);
}

enum berth_reason make_dir(const char *path, bool *ret_created)
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

enum berth_reason move(const char *source, const char *target, bool overwrite)
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

enum berth_reason remove_it(const char *path, bool recursive, bool *ret_existed)
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
enum berth_reason read_it(const char *path, uint64_t offset, uint64_t length,
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

void send_message(struct rig_stream *stream, int kind, void *member)
{
    Berth__Data__V1__WriteFileRequest msg = BERTH__DATA__V1__WRITE_FILE_REQUEST__INIT;

    msg.message_case = (Berth__Data__V1__WriteFileRequest__MessageCase)kind;
    if (kind == BERTH__DATA__V1__WRITE_FILE_REQUEST__MESSAGE_DATA)
        msg.data = *(ProtobufCBinaryData *)member;
    else
        msg.open = member; /* or done: one union */
    rig_stream_send(stream, &msg.base);
}

enum berth_reason write_it(const char *path, const void *data, size_t size,
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

const struct write_how plain;

void expect_content(const char *path, const void *data, size_t size)
{
    uint8_t *got;
    size_t got_size;

    ck_assert_int_eq(read_it(path, 0, 0, "", &got, &got_size), 0);
    ck_assert_uint_eq(got_size, size);
    ck_assert(memcmp(got, data, size) == 0);
    free(got);
}
