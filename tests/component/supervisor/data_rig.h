/* data_rig.h - ProcessService and FileService of the local backend in this process, on a unix
 * socket, for one made-up sandbox "box" (a fake_box and a directory as its root), and a caller.
 */
#pragma once

#include "berth/data/v1/data.pb-c.h"
#include "common/rpc/rpc.h"
#include "services/adapter/data.h"
#include "tests/component/supervisor/fake_box.h"

struct data_rig {
    struct fake_box box; /* when with_box */
    char root[64];       /* what the files are below; owned by the sandbox's user */
    char address[96];
    bool silent;    /* sup.sock is not there */
    uint64_t fence; /* that the sandbox has seen */
};
extern struct data_rig rig;

/* Set before rig_open(); NULL: the local backend's. */
extern const struct adapter_file_ops *rig_files;
void rig_open(bool with_box);
void rig_close(void);

/* The route metadata of sandbox id. */
struct berth_metadata rig_route(const char *sandbox_id);

/* How many calls of a method the server has ended with a code, "CANCELLED". */
unsigned rig_ended(const char *path, const char *code);

/* Fills in what every request needs. */
extern Berth__Common__V1__SessionRef rig_session;

/* A unary call; the response is owned, or NULL with *err set. */
ProtobufCMessage *rig_call(const char *path, const ProtobufCMessage *req,
                           const ProtobufCMessageDescriptor *type, struct berth_error *err);

/* A stream: what came in, and how it ended. */
struct rig_stream;
struct rig_stream *rig_stream_open(const char *path);
void rig_stream_send(struct rig_stream *stream, const ProtobufCMessage *msg);
void rig_stream_half_close(struct rig_stream *stream);
void rig_stream_cancel(struct rig_stream *stream);
/* The next message decoded; NULL: the stream has ended. Owned. */
ProtobufCMessage *rig_stream_next(struct rig_stream *stream,
                                  const ProtobufCMessageDescriptor *type);
/* Wait for the end; code of the status. Frees. */
enum berth_code rig_stream_end(struct rig_stream *stream, struct berth_error *err);
