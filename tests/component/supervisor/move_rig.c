#include "tests/component/supervisor/move_rig.h"

#include <semaphore.h>
#include <stdio.h>

#include "services/dataplane/blobs.h"

typedef Berth__Data__V1__MoveWorkspaceResponse MoveWorkspaceResponse;

char move_dir[128];

static char dir[64], address[96];
static struct berth_loop *loop;
static struct berth_server *server;
static struct berth_channel *channel;
static struct dataplane *dp;

static enum berth_code connect_to(void *arg, struct berth_channel **ret,
                                  struct berth_error *err)
{
    return berth_channel_new(arg, NULL, ret, err);
}

static struct dp_peer *peer(char *target)
{
    struct dp_peer *made;
    struct berth_error err;

    ck_assert(!dp_peer_new(connect_to, target, &made, &err));
    return made;
}

void move_open(void)
{
    struct dataplane_options options = {
        .max_streams = 100, .use_after_ms = 60000, .use_renew_ms = 60000, .stall_ms = 20000};
    struct berth_server_options server_options = {.n_workers = 8};
    struct blobs_options store = {.dir = dir, .max_bytes = MOVE_BLOB_MAX};
    struct blobs *blobs;
    struct berth_error err = {0};

    snprintf(dir, sizeof dir, "/tmp/berth-blobs-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(address, sizeof address, "unix:%s.sock", dir);
    snprintf(move_dir, sizeof move_dir, "%s/%s/%s", dir, rig_session.tenant_id,
             rig_session.session_id);
    ck_assert(!berth_loop_new(&loop, &err));
    ck_assert(!berth_loop_start(loop, "dataplane", &err));
    server_options.loop = loop;
    ck_assert(!berth_server_new(&server_options, &server, &err));
    options.loop = loop;
    options.pool = berth_server_pool(server);
    ck_assert(!dataplane_new(&options, peer((char *)"unix:/nowhere"), &dp, &err));
    ck_assert(!dataplane_add_backend(dp, "local", peer(rig.address), &err));
    ck_assert_msg(!blobs_new(&store, &blobs, &err), "%s", err.text);
    dataplane_set_blobs(dp, blobs);
    ck_assert(!berth_server_add(server, dataplane_methods, n_dataplane_methods, dp, &err));
    ck_assert(!berth_server_listen(server, address, NULL, &err));
    ck_assert(!berth_server_start(server, &err));
    ck_assert(!berth_channel_new(address, NULL, &channel, &err));
}

void move_close(void)
{
    char command[200];

    channel = berth_channel_free(channel);
    berth_server_stop(server, 5000);
    dp = dataplane_free(dp);
    server = berth_server_free(server);
    loop = berth_loop_free(loop);
    snprintf(command, sizeof command, "rm -rf %s %s.sock", dir, dir);
    FILE *rm = popen(command, "r");
    ck_assert_int_eq(pclose(rm), 0);
}

/* ------------------------------------------------------------------------- calls */

struct move_call {
    struct berth_stream *stream;
    struct berth_buf *first, *last;
    sem_t closed, cancelled;
    enum berth_code code;
    struct berth_error err;
};

static void on_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct move_call *call = ctx;

    if (!msg)
        return;
    berth_buf_unref(call->last);
    call->last = msg;
    berth_stream_read(stream);
}

static void on_written(void *ctx, struct berth_stream *stream)
{
    (void)ctx;
    (void)stream;
}

static void on_closed(void *ctx, struct berth_stream *stream, const struct berth_status *status)
{
    struct move_call *call = ctx;

    (void)stream;
    call->stream = NULL;
    if (status->code)
        call->code = berth_status_to_error(status, &call->err);
    sem_post(&call->closed);
}

static const struct berth_stream_ops ops = {
    .message = on_message, .written = on_written, .closed = on_closed};

static void do_begin(void *arg)
{
    struct move_call *call = arg;
    const struct berth_call_options options = {.timeout_ms = 60000};

    call->stream = berth_channel_stream(channel, "/berth.data.v1.InternalService/MoveWorkspace",
                                        &options, loop, &ops, call);
    (void)berth_stream_write_last(call->stream, call->first);
    berth_stream_read(call->stream);
}

struct move_call *move_begin(const struct move *move)
{
    Berth__Data__V1__MoveWorkspaceRequest req = BERTH__DATA__V1__MOVE_WORKSPACE_REQUEST__INIT;
    Berth__Common__V1__DataPlaneEndpoint endpoint =
        BERTH__COMMON__V1__DATA_PLANE_ENDPOINT__INIT;
    Berth__Common__V1__BackendTarget target = BERTH__COMMON__V1__BACKEND_TARGET__INIT;
    Google__Protobuf__Timestamp not_after = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    int64_t until_ms = berth_now_ms() + (move->not_after_ms ? move->not_after_ms : 60000);
    struct move_call *call = calloc(1, sizeof *call);

    target.backend = (char *)"local";
    endpoint.kind = BERTH__COMMON__V1__DATA_PLANE_KIND__DATA_PLANE_KIND_ADAPTER;
    endpoint.sandbox_id = (char *)"box";
    endpoint.target = &target;
    endpoint.fence = move->fence ? move->fence : 1;
    not_after.seconds = until_ms / 1000;
    not_after.nanos = (int32_t)(until_ms % 1000) * 1000000;
    req.session = &rig_session;
    req.blob_id = (char *)move->blob;
    req.not_after_time = &not_after;
    if (move->kind == MOVE_OUT) {
        req.direction_case = BERTH__DATA__V1__MOVE_WORKSPACE_REQUEST__DIRECTION_EXPORT_FROM;
        req.export_from = &endpoint;
    } else if (move->kind == MOVE_IN) {
        req.direction_case = BERTH__DATA__V1__MOVE_WORKSPACE_REQUEST__DIRECTION_IMPORT_INTO;
        req.import_into = &endpoint;
    } else {
        req.direction_case = BERTH__DATA__V1__MOVE_WORKSPACE_REQUEST__DIRECTION_REMOVE;
        req.remove = true;
    }
    call->first = berth_buf_pack(&req.base);
    sem_init(&call->closed, 0, 0);
    sem_init(&call->cancelled, 0, 0);
    berth_loop_post(loop, do_begin, call);
    return call;
}

static void do_cancel(void *arg)
{
    struct move_call *call = arg;

    if (call->stream)
        berth_stream_cancel(call->stream);
    sem_post(&call->cancelled);
}

enum berth_reason move_end(struct move_call *call, bool cancel, MoveWorkspaceResponse **ret)
{
    enum berth_reason reason;
    ProtobufCMessage *message = NULL;

    if (cancel)
        berth_loop_post(loop, do_cancel, call);
    while (cancel && sem_wait(&call->cancelled) < 0) {
    }
    while (sem_wait(&call->closed) < 0) {
    }
    reason = call->err.reason;
    if (call->last)
        ck_assert(!berth_buf_decode(&berth__data__v1__move_workspace_response__descriptor,
                                    call->last, &message, &call->err));
    ck_assert_msg(call->code || (message && ((MoveWorkspaceResponse *)message)->done),
                  "it ended without done");
    if (ret && message)
        *ret = (MoveWorkspaceResponse *)message;
    else if (message)
        protobuf_c_message_free_unpacked(message, NULL);
    berth_buf_unref(call->last);
    free(call);
    return reason;
}

enum berth_reason move_it(const struct move *move, MoveWorkspaceResponse **ret)
{
    return move_end(move_begin(move), false, ret);
}
