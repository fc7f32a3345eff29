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
/* Is the message exactly one such field? *ret_data is borrowed from bytes. */
bool file_data_view(const uint8_t *bytes, size_t size, const uint8_t **ret_data,
                    size_t *ret_size);

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
