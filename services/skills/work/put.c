/* put.c - a skill's files into the sandbox, and out of it again. */
#include <errno.h>
#include <stdio.h>

#include "berth/data/v1/data.pb-c.h"
#include "common/messages/messages.h"
#include "common/time/time.h"
#include "services/skills/work/blame.h"
#include "services/skills/work/command.h"

#define WRITE_FILE "/berth.data.v1.FileService/WriteFile"
#define TAR PLAN_SCRATCH_DIR "/in/skill.tar"

enum {
    CHUNK = 1 << 20,
    CHUNK_HEAD = 8, /* tag and length of `data` in front of it */
    UPLOAD_BYTES_PER_MS = 1000,
    UPLOAD_SLACK_MS = 60000,
    UNPACK_MAX_MS = 10 * 60 * 1000,
    PLACE_TRIES = 3,
};

typedef Berth__Data__V1__WriteFileRequest WriteFileRequest;

/* A name is a folder of its own, and nothing else. */
static bool is_folder(const char *name)
{
    return *name && *name != '.' && !strchr(name, '/');
}

static struct berth_buf *pack_open(const struct work *work, uint64_t size)
{
    WriteFileRequest req = BERTH__DATA__V1__WRITE_FILE_REQUEST__INIT;
    Berth__Data__V1__WriteFileOpen open = BERTH__DATA__V1__WRITE_FILE_OPEN__INIT;

    open.session = (Berth__Common__V1__SessionRef *)&work->ref;
    open.turn_token = work->turn_token;
    open.path = (char *)TAR;
    open.mode = 0600;
    open.size_bytes = size;
    req.message_case = BERTH__DATA__V1__WRITE_FILE_REQUEST__MESSAGE_OPEN;
    req.open = &open;
    return berth_buf_pack(&req.base);
}

static struct berth_buf *pack_done(uint64_t size)
{
    WriteFileRequest req = BERTH__DATA__V1__WRITE_FILE_REQUEST__INIT;
    Berth__Data__V1__FileDone done = BERTH__DATA__V1__FILE_DONE__INIT;

    done.size_bytes = size;
    req.message_case = BERTH__DATA__V1__WRITE_FILE_REQUEST__MESSAGE_DONE;
    req.done = &done;
    return berth_buf_pack(&req.base);
}

/* The next piece of the file as a message of its own: field 2, bytes, read in place. */
static enum berth_code pack_piece(int fd, uint64_t offset, size_t size, struct berth_buf **ret,
                                  struct berth_error *err)
{
    uint8_t *data = malloc(CHUNK_HEAD + size), head[CHUNK_HEAD];
    size_t n_head = 0, left = size, got = 0;

    if (!data)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    head[n_head++] = 2 << 3 | 2;
    for (; left >= 0x80; left >>= 7)
        head[n_head++] = (uint8_t)(left | 0x80);
    head[n_head++] = (uint8_t)left;
    memcpy(data + CHUNK_HEAD - n_head, head, n_head);
    while (got < size) {
        ssize_t n = pread(fd, data + CHUNK_HEAD + got, size - got, (off_t)(offset + got));

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            free(data);
            return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "a skill's tar cannot be read");
        }
        got += (size_t)n;
    }
    *ret = berth_buf_take(data, CHUNK_HEAD - n_head, n_head + size);
    return *ret ? BERTH_OK : berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

static enum berth_code send_all(struct flow *flow, struct work *work, int fd, uint64_t size,
                                struct berth_error *err)
{
    enum berth_code code = flow_send(flow, pack_open(work, size), false, err);

    for (uint64_t offset = 0; !code && offset < size;) {
        size_t n = size - offset < CHUNK ? (size_t)(size - offset) : CHUNK;
        struct berth_buf *piece = NULL;

        code = pack_piece(fd, offset, n, &piece, err);
        if (!code)
            code = flow_send(flow, piece, false, err);
        offset += n;
    }
    return code ? code : flow_send(flow, pack_done(size), true, err);
}

static enum berth_code put_once(struct work *work, int fd, uint64_t size,
                                struct berth_error *err)
{
    int64_t end_tick =
        berth_tick_ms() + UPLOAD_SLACK_MS + (int64_t)(size / UPLOAD_BYTES_PER_MS);
    BERTH_AUTO(flow_free)
    struct flow *flow =
        flow_new(&work->patience, work->skills->dataplane, WRITE_FILE, end_tick);
    BERTH_AUTO(berth_buf_unref) struct berth_buf *msg = NULL;
    Berth__Data__V1__WriteFileResponse *resp = NULL;
    ProtobufCMessage *message = NULL;
    struct berth_buf *more = NULL;
    struct berth_error why = {0};
    enum berth_code code;

    if (!flow)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    code = send_all(flow, work, fd, size, err);
    /* A call that was refused midway says why at its end. */
    if (code == BERTH_UNAVAILABLE && flow_next(flow, 0, &more, &why) && err)
        *err = why;
    if (!code)
        code = flow_next(flow, 0, &msg, err);
    if (!code && !msg)
        code = berth_fail(err, BERTH_REASON_OUTCOME_UNKNOWN, "an upload ended without a word");
    if (!code)
        code = flow_next(flow, 0, &more, err);
    berth_buf_unref(more);
    if (!code)
        code = berth_buf_decode(&berth__data__v1__write_file_response__descriptor, msg,
                                &message, err);
    resp = (Berth__Data__V1__WriteFileResponse *)message;
    if (!code && resp->loss)
        code =
            berth_fail(err, BERTH_REASON_SANDBOX_NOT_FOUND, "the maintenance sandbox was lost");
    berth_message_free(message);
    return code;
}

/* Writing the same file again is the same: whoever is away for a moment is asked again. */
static enum berth_code put(struct work *work, int fd, uint64_t size, struct berth_error *err)
{
    int64_t pause_ms = 250;
    struct berth_error why = {0};
    enum berth_code code = BERTH_OK;

    for (int tries = 0; tries < PLACE_TRIES; tries++) {
        if (tries > 0) {
            code = flow_pause(&work->patience, pause_ms, INT64_MAX, &why);
            pause_ms *= 4;
            if (code)
                break;
        }
        code = put_once(work, fd, size, &why);
        if (code != BERTH_UNAVAILABLE && code != BERTH_UNKNOWN)
            break;
    }
    if (code && err)
        *err = why;
    return code;
}

static enum berth_code run_on_tree(struct work *work, const char *script, const char *doing,
                                   const char *name, const char *word, struct berth_error *err)
{
    const struct command command = {.is_bare = true, .timeout_ms = UNPACK_MAX_MS};
    struct command_end end = {0};
    enum berth_code code =
        command_run_script(work, &command, script, &end, err, name, word, (char *)NULL);
    char how[160];

    if (!code && !command_is_done(&end)) {
        if (blame_is_disk(end.tail))
            code = berth_fail(err, BERTH_REASON_DISK_FULL,
                              "%s a skill: no space left in the maintenance sandbox", doing);
        else
            code = berth_fail(err, BERTH_REASON_INTERNAL_BUG, "%s a skill %s: %.150s", doing,
                              command_tell(&end, how, sizeof how), end.tail);
    }
    command_end_deinit(&end);
    return code;
}

enum berth_code work_upload(struct work *work, const char *name, int tar_fd, uint64_t size,
                            struct berth_error *err)
{
    enum berth_code code;

    if (!is_folder(name))
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "no name of a folder");
    code = put(work, tar_fd, size, err);
    return code ? code : run_on_tree(work, work_unpack_sh, "unpacking", name, TAR, err);
}

enum berth_code work_remove(struct work *work, const char *name, struct berth_error *err)
{
    if (!is_folder(name))
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "no name of a folder");
    return run_on_tree(work, work_remove_sh, "removing", name, NULL, err);
}
