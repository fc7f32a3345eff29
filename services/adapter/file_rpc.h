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

/* A message that is nothing but file content: field 2 (bytes) of ReadFileResponse and
 * WriteFileRequest. These are most of what goes through, so they are neither packed nor
 * unpacked. */
enum { FILE_HEADER_MAX = 6 };
/* Writes tag and length of size bytes so that they end at end[-1]. Returns how many. */
size_t file_header_before(uint8_t *end, size_t size);
/* How a message of size bytes begins, head_size of them, FILE_HEADER_MAX being enough: is it
 * exactly one such field? Returns where the content begins; 0: it is something else. */
size_t file_header_size(const uint8_t *head, size_t head_size, size_t size);

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
