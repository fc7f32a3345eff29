/* move.h - one MoveWorkspace in progress, shared by move.c (the streams, on the loop) and
 * move_work.c (the blob store, on a worker). */
#pragma once

#include "services/dataplane/blobs.h"
#include "services/dataplane/dataplane.h"

typedef Berth__Data__V1__MoveWorkspaceRequest MoveWorkspaceRequest;
typedef Berth__Data__V1__MoveWorkspaceResponse MoveWorkspaceResponse;

struct dp_move {
    struct dataplane *dp;
    struct berth_stream *caller;  /* NULL: closed */
    struct berth_stream *sandbox; /* NULL: not opened, or closed */
    struct dp_peer *adapter;
    unsigned slot;
    MoveWorkspaceRequest *req; /* owned; NULL until it came */
    int64_t not_after_ms;
    struct berth_timer *timer; /* not_after, silence */
    int64_t asked_tick_ms;     /* since when the adapter owes us something; 0: it does not */

    /* Work on the blob. While busy all below but stop belongs to the worker. */
    bool busy;
    void (*done)(struct dp_move *move); /* on the loop, when the work is over */
    void (*work)(struct dp_move *move);
    struct blob *blob;
    struct berth_buf *in;  /* export: what is written */
    struct berth_buf *out; /* import: what was read */
    bool all_read;
    MoveWorkspaceResponse result; /* files, lost, lost_count and blob_id, owned */
    bool has_result;
    enum berth_code code;
    struct berth_error err;

    /* The loop's. */
    struct berth_buf *next;   /* export: waits for the worker */
    bool sandbox_ok;          /* it ended well */
    bool sent_done;           /* import: the adapter has all of it */
    bool finished;            /* the caller has its status */
    struct berth_buf *answer; /* waits until the caller has taken what was before */
    int64_t told_tick_ms;
};

/* move_work.c: each sets code and err. */
void dp_move_create(struct dp_move *move); /* export: a new blob */
void dp_move_write(struct dp_move *move);  /* in, which is given back */
void dp_move_commit(struct dp_move *move);
void dp_move_open_blob(struct dp_move *move); /* import, and the first of it is read */
void dp_move_read(struct dp_move *move);
void dp_move_note(struct dp_move *move); /* that the import is through */
void dp_move_remove(struct dp_move *move);
void dp_move_close(struct dp_move *move); /* blob, however far it came */
/* What the adapter's last message says, into result; lost is taken. */
void dp_move_take_result(struct dp_move *move, uint64_t files, uint64_t lost_count,
                         Berth__Data__V1__SkippedFile ***lost, size_t *n_lost);
