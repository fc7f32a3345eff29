/* file_rpc.h - what the files of FileService share. */
#pragma once

#include "services/adapter/adapter.h"
#include "services/adapter/data.h"

/* The streams: file_read.c, file_write.c. */
enum berth_code file_open_read(void *service, struct berth_stream *stream,
                               const struct berth_stream_ops **ret_ops, void **ret_ctx,
                               struct berth_error *err);
enum berth_code file_open_write(void *service, struct berth_stream *stream,
                                const struct berth_stream_ops **ret_ops, void **ret_ctx,
                                struct berth_error *err);

/* Work of a stream on the pool: at most one job at a time, then back to the loop. */
struct file_job {
    struct berth_pool *pool;
    struct berth_loop *loop;
    bool busy;
    void (*work)(void *arg); /* on a worker */
    void (*done)(void *arg); /* on the loop; may start the next, or free what holds the job */
    void *arg;
};
/* first: may be refused (OVERLOADED); later ones of a stream that was let in are not. */
BERTH_MUST_CHECK enum berth_code file_job_start(struct file_job *job, bool first,
                                                void (*work)(void *arg),
                                                void (*done)(void *arg),
                                                struct berth_error *err);
