/* move_work.c - MoveWorkspace's side of the blob store. On workers, one job of a move at a
 * time. */
#include "berth/data/v1/data.pb-c.h"
#include "common/messages/messages.h"
#include "services/dataplane/move.h"

enum {
    CHUNK_SIZE = 1 << 20,
    HEADER_MAX = 6,
    TAR_TAG = 2 << 3 | 2, /* ImportWorkspaceRequest.tar_data, length-delimited */
    OUT_TAG = 1 << 3 | 2  /* ExportWorkspaceResponse.tar_data */
};

void dp_move_create(struct dp_move *move)
{
    move->code = blob_create(move->dp->blobs, move->req->session, move->req->blob_id,
                             &move->blob, &move->err);
}

void dp_move_take_result(struct dp_move *move, uint64_t files, uint64_t lost_count,
                         Berth__Data__V1__SkippedFile ***lost, size_t *n_lost)
{
    move->result.files = files;
    move->result.lost_count = lost_count;
    move->result.lost = BERTH_STEAL(*lost);
    move->result.n_lost = *n_lost;
    *n_lost = 0;
    move->has_result = true;
}

/* How a message that is nothing but tar_data begins; 0: it is something else. */
static size_t header_size(const struct berth_buf *msg)
{
    struct iovec pieces[HEADER_MAX];
    size_t n = berth_buf_pieces(msg, 0, pieces, HEADER_MAX), size = 0, length = 0;
    uint8_t head[HEADER_MAX];

    for (size_t i = 0; i < n; i++)
        for (size_t at = 0; at < pieces[i].iov_len && size < sizeof head; at++)
            head[size++] = ((const uint8_t *)pieces[i].iov_base)[at];
    if (size < 2 || head[0] != OUT_TAG)
        return 0;
    for (size_t at = 1; at < size; at++) {
        length |= (size_t)(head[at] & 0x7f) << 7 * (at - 1);
        if (!(head[at] & 0x80))
            return length == berth_buf_size(msg) - at - 1 ? at + 1 : 0;
    }
    return 0;
}

/* Such a message, undecoded: most of what goes through is. */
static void write_content(struct dp_move *move, size_t header)
{
    /* In one piece: the core's own are so small that each would cost a call. */
    const uint8_t *bytes = berth_buf_data(move->in);

    if (!bytes)
        move->code = berth_fail(&move->err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    else if (move->has_result)
        move->code =
            berth_fail(&move->err, BERTH_REASON_INTERNAL_BUG, "a tar goes on behind its end");
    else
        move->code = blob_write(move->blob, bytes + header, berth_buf_size(move->in) - header,
                                &move->err);
    move->in = berth_buf_unref(move->in);
}

void dp_move_write(struct dp_move *move)
{
    size_t header = header_size(move->in);
    ProtobufCMessage *message = NULL;
    Berth__Data__V1__ExportWorkspaceResponse *resp;

    if (header > 0) {
        write_content(move, header);
        return;
    }
    move->code = berth_buf_decode(&berth__data__v1__export_workspace_response__descriptor,
                                  move->in, &message, &move->err);
    move->in = berth_buf_unref(move->in);
    if (move->code)
        return;
    resp = (Berth__Data__V1__ExportWorkspaceResponse *)message;
    switch (resp->message_case) {
    case BERTH__DATA__V1__EXPORT_WORKSPACE_RESPONSE__MESSAGE_TAR_DATA:
        move->code = move->has_result ? berth_fail(&move->err, BERTH_REASON_INTERNAL_BUG,
                                                   "a tar goes on behind its end")
                                      : blob_write(move->blob, resp->tar_data.data,
                                                   resp->tar_data.len, &move->err);
        break;
    case BERTH__DATA__V1__EXPORT_WORKSPACE_RESPONSE__MESSAGE_DONE:
        if (resp->done->size_bytes != blob_size(move->blob))
            move->code = berth_fail(&move->err, BERTH_REASON_INTERNAL_BUG,
                                    "an adapter counts other bytes than it sent");
        else
            dp_move_take_result(move, resp->files, resp->lost_count, &resp->lost,
                                &resp->n_lost);
        break;
    default:
        move->code = berth_fail(&move->err, BERTH_REASON_INTERNAL_BUG,
                                "an adapter sent an empty part of a workspace");
    }
    protobuf_c_message_free_unpacked(message, NULL);
}

void dp_move_commit(struct dp_move *move)
{
    move->code = blob_commit(move->blob, move->not_after_ms, &move->err);
}

/* A message that is nothing but tar_data, made where it will be sent from. */
void dp_move_read(struct dp_move *move)
{
    uint8_t *bytes = malloc(HEADER_MAX + CHUNK_SIZE), length[HEADER_MAX];
    size_t size = 0, left, n = 0;

    if (!bytes) {
        move->code = berth_fail(&move->err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        return;
    }
    move->code = blob_read(move->blob, bytes + HEADER_MAX, CHUNK_SIZE, &size, &move->err);
    if (move->code || size == 0) {
        move->all_read = !move->code;
        free(bytes);
        return;
    }
    for (left = size; left >= 0x80; left >>= 7)
        length[n++] = (uint8_t)((left & 0x7f) | 0x80);
    length[n++] = (uint8_t)left;
    memcpy(bytes + HEADER_MAX - n, length, n);
    bytes[HEADER_MAX - n - 1] = TAR_TAG;
    move->out = berth_buf_take(bytes, HEADER_MAX - n - 1, n + 1 + size);
    if (!move->out)
        move->code = berth_fail(&move->err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

/* What the caller names, or, where it has forgotten that, what there is. */
static enum berth_code find_blob(struct dp_move *move, const char **ret)
{
    MoveWorkspaceRequest *req = move->req;
    char id[BLOB_ID_SIZE];
    enum berth_code code;

    *ret = req->blob_id;
    if (!req->up_to_fence)
        return BERTH_OK;
    code = blob_find(move->dp->blobs, req->session, req->up_to_fence,
                     req->import_into->sandbox_id, id, &move->err);
    if (code)
        return code;
    *ret = move->result.blob_id = strdup(id);
    return *ret ? BERTH_OK : berth_fail(&move->err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

void dp_move_open_blob(struct dp_move *move)
{
    const char *id;

    move->code = find_blob(move, &id);
    if (!move->code)
        move->code =
            blob_open(move->dp->blobs, move->req->session, id, &move->blob, &move->err);
    if (!move->code)
        dp_move_read(move);
}

void dp_move_note(struct dp_move *move)
{
    move->code = blob_note_unpacked(move->blob, move->req->import_into->sandbox_id, &move->err);
}

void dp_move_remove(struct dp_move *move)
{
    move->code =
        blob_remove(move->dp->blobs, move->req->session, move->req->blob_id, &move->err);
}

void dp_move_close(struct dp_move *move)
{
    blob_close(BERTH_STEAL(move->blob));
}
