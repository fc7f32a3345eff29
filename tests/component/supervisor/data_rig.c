#include "tests/component/supervisor/data_rig.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/stat.h>

#include "berth/common/v1/common.pb-c.h"
#include "services/adapter-local/carry.h"
#include "services/adapter-local/files.h"
#include "services/adapter-local/process.h"
#include "services/adapter/adapter.h"

enum { WAIT_S = 60 };

struct data_rig rig;
const struct adapter_file_ops *rig_files;
Berth__Common__V1__SessionRef rig_session = BERTH__COMMON__V1__SESSION_REF__INIT;

static struct berth_loop *server_loop, *client_loop;
static struct berth_server *server;
static struct berth_channel *channel;
static struct berth_runtime runtime;
static struct adapter_ops ops = {
    .backend = "local", .process = &local_process_ops, .workspace = &local_workspace_ops};
static struct adapter_service service = {.ops = &ops, .runtime = &runtime};

/* ------------------------------------------------- target.h, for the one sandbox */

static bool known(const char *id, struct berth_error *err)
{
    if (strcmp(id, "box") == 0)
        return true;
    (void)berth_fail(err, BERTH_REASON_SANDBOX_NOT_FOUND, NULL);
    return false;
}

enum berth_code local_open_dir(struct adapter *adapter, const char *id, int *ret_dir_fd,
                               struct berth_error *err)
{
    (void)adapter;
    if (!known(id, err))
        return err->code;
    *ret_dir_fd = open(rig.silent ? "/" : rig.box.dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_ge(*ret_dir_fd, 0);
    return BERTH_OK;
}

enum berth_code local_why_silent(struct adapter *adapter, const char *id,
                                 struct berth_error *err)
{
    (void)adapter;
    (void)id;
    return berth_fail(err, BERTH_REASON_SANDBOX_TERMINAL, NULL);
}

enum berth_code local_open_root(struct adapter *adapter, const char *id, struct local_root *ret,
                                struct berth_error *err)
{
    (void)adapter;
    if (!known(id, err))
        return err->code;
    ret->fd = open(rig.root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    ret->uid_base = FAKE_BOX_UID_BASE;
    return ret->fd >= 0 ? BERTH_OK : berth_fail(err, BERTH_REASON_INTERNAL_BUG, "root");
}

enum berth_code local_check_fence(struct adapter *adapter, const char *id, uint64_t fence,
                                  struct berth_error *err)
{
    (void)adapter;
    if (!known(id, err))
        return err->code;
    return fence >= rig.fence ? BERTH_OK : berth_fail(err, BERTH_REASON_FENCE_STALE, NULL);
}

/* ------------------------------------------------------------------------ server */

void rig_open(bool with_box)
{
    struct berth_server_options options = {.n_workers = 8};
    struct berth_error err = {0};

    rig = (struct data_rig){0};
    if (with_box)
        fake_box_open(&rig.box, NULL, 0);
    snprintf(rig.root, sizeof rig.root, "/tmp/berth-root-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(rig.root));
    ck_assert_int_eq(chmod(rig.root, 0755), 0);
    ck_assert_int_eq(chown(rig.root, FAKE_BOX_UID_BASE + 1000, FAKE_BOX_UID_BASE + 1000), 0);
    rig_session.tenant_id = (char *)"t";
    rig_session.session_id = (char *)"s";
    snprintf(rig.address, sizeof rig.address, "unix:%s.sock", rig.root);
    ck_assert(!berth_loop_new(&server_loop, &err));
    ck_assert(!berth_loop_start(server_loop, "server", &err));
    ck_assert(!berth_loop_new(&client_loop, &err));
    ck_assert(!berth_loop_start(client_loop, "client", &err));
    berth_rpc_init();
    ops.files = rig_files ? rig_files : &local_file_ops;
    options.loop = server_loop;
    ck_assert(!berth_server_new(&options, &server, &err));
    runtime.loop = server_loop;
    runtime.server = server;
    runtime.pool = berth_server_pool(server);
    ck_assert(!berth_server_add(server, adapter_process_methods, n_adapter_process_methods,
                                &service, &err));
    ck_assert(!berth_server_add(server, adapter_file_methods, n_adapter_file_methods, &service,
                                &err));
    ck_assert(!berth_server_add(server, adapter_workspace_methods, n_adapter_workspace_methods,
                                &service, &err));
    ck_assert(!berth_server_listen(server, rig.address, NULL, &err));
    ck_assert(!berth_server_start(server, &err));
    ck_assert(!berth_channel_new(rig.address, NULL, &channel, &err));
}

void rig_close(void)
{
    char command[256];

    channel = berth_channel_free(channel);
    berth_server_stop(server, 2000);
    server = berth_server_free(server);
    client_loop = berth_loop_free(client_loop);
    server_loop = berth_loop_free(server_loop);
    berth_rpc_done();
    if (rig.box.supervisor)
        fake_box_close(&rig.box);
    snprintf(command, sizeof command, "rm -rf --one-file-system %s %s.sock", rig.root,
             rig.root);
    FILE *rm = popen(command, "r");
    ck_assert_int_eq(pclose(rm), 0);
}

unsigned rig_ended(const char *path, const char *code)
{
    char key[160], *text = berth_server_metrics(server);
    const char *line;
    unsigned n = 0;

    snprintf(key, sizeof key, "berth_rpc_calls_total{method=\"%s\",code=\"%s\"} ", path, code);
    line = strstr(text, key);
    if (line)
        n = (unsigned)strtoul(line + strlen(key), NULL, 10);
    free(text);
    return n;
}

/* ------------------------------------------------------------------------ caller */

struct berth_metadata rig_route(const char *sandbox_id)
{
    static uint8_t packed[512];
    Berth__Common__V1__DataPlaneEndpoint endpoint =
        BERTH__COMMON__V1__DATA_PLANE_ENDPOINT__INIT;

    endpoint.kind = BERTH__COMMON__V1__DATA_PLANE_KIND__DATA_PLANE_KIND_ADAPTER;
    endpoint.sandbox_id = (char *)sandbox_id;
    endpoint.fence = 1;
    return (struct berth_metadata){
        "berth-route-bin", packed,
        berth__common__v1__data_plane_endpoint__pack(&endpoint, packed)};
}

ProtobufCMessage *rig_call(const char *path, const ProtobufCMessage *req,
                           const ProtobufCMessageDescriptor *type, struct berth_error *err)
{
    struct berth_metadata route = rig_route("box");
    struct berth_call_options options = {
        .metadata = &route, .n_metadata = 1, .timeout_ms = WAIT_S * 1000};
    ProtobufCMessage *resp = NULL;

    *err = (struct berth_error){0};
    if (berth_channel_call(channel, path, req, type, &options, &resp, err) != BERTH_OK)
        return NULL;
    return resp;
}

struct rig_stream {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct berth_stream *stream; /* on the loop */
    const char *path;
    struct berth_buf *arrived;
    bool wanted, ended_messages, written, closed;
    struct berth_buf *out;
    enum berth_code code;
    struct berth_error err;
    sem_t through;
};

static void on_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct rig_stream *s = ctx;

    (void)stream;
    pthread_mutex_lock(&s->mutex);
    s->arrived = msg;
    s->ended_messages = s->ended_messages || !msg;
    s->wanted = false;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
}

static void on_written(void *ctx, struct berth_stream *stream)
{
    struct rig_stream *s = ctx;

    (void)stream;
    pthread_mutex_lock(&s->mutex);
    s->written = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
}

static void on_closed(void *ctx, struct berth_stream *stream, const struct berth_status *status)
{
    struct rig_stream *s = ctx;

    (void)stream;
    pthread_mutex_lock(&s->mutex);
    s->code = status->code ? berth_status_to_error(status, &s->err) : BERTH_OK;
    s->closed = true;
    s->stream = NULL;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
}

static const struct berth_stream_ops stream_ops = {
    .message = on_message, .written = on_written, .closed = on_closed};

static void do_open(void *arg)
{
    struct rig_stream *s = arg;
    struct berth_metadata route = rig_route("box");
    struct berth_call_options options = {.metadata = &route, .n_metadata = 1};

    s->stream = berth_channel_stream(channel, s->path, &options, client_loop, &stream_ops, s);
    pthread_mutex_lock(&s->mutex);
    s->written = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
}

static void wait_for(struct rig_stream *s, const bool *flag)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WAIT_S;
    while (!*flag && !s->closed)
        ck_assert_int_eq(pthread_cond_timedwait(&s->changed, &s->mutex, &until), 0);
}

struct rig_stream *rig_stream_open(const char *path)
{
    struct rig_stream *s = calloc(1, sizeof *s);

    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->changed, NULL);
    sem_init(&s->through, 0, 0);
    s->path = path;
    berth_loop_post(client_loop, do_open, s);
    pthread_mutex_lock(&s->mutex);
    wait_for(s, &s->written);
    pthread_mutex_unlock(&s->mutex);
    return s;
}

static void do_send(void *arg)
{
    struct rig_stream *s = arg;

    struct berth_buf *out = BERTH_STEAL(s->out);

    sem_post(&s->through);
    if (!s->stream)
        berth_buf_unref(out);
    if (!s->stream || !berth_stream_write(s->stream, out))
        on_written(s, NULL);
}

void rig_stream_send(struct rig_stream *s, const ProtobufCMessage *msg)
{
    s->out = berth_buf_pack(msg);
    s->written = false;
    berth_loop_post(client_loop, do_send, s);
    while (sem_wait(&s->through) < 0) {
    }
    pthread_mutex_lock(&s->mutex);
    wait_for(s, &s->written);
    pthread_mutex_unlock(&s->mutex);
}

static void do_half_close(void *arg)
{
    struct rig_stream *s = arg;

    if (s->stream)
        berth_stream_half_close(s->stream);
}

void rig_stream_half_close(struct rig_stream *s)
{
    berth_loop_post(client_loop, do_half_close, s);
}

static void do_cancel(void *arg)
{
    struct rig_stream *s = arg;

    if (s->stream)
        berth_stream_cancel(s->stream);
}

void rig_stream_cancel(struct rig_stream *s)
{
    berth_loop_post(client_loop, do_cancel, s);
}

static void do_read(void *arg)
{
    struct rig_stream *s = arg;

    if (s->stream)
        berth_stream_read(s->stream);
}

static struct berth_buf *next_buf(struct rig_stream *s)
{
    struct timespec until;
    struct berth_buf *buf;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WAIT_S;
    pthread_mutex_lock(&s->mutex);
    if (!s->ended_messages && !s->closed) {
        s->wanted = true;
        berth_loop_post(client_loop, do_read, s);
        while (s->wanted && !s->closed)
            ck_assert_int_eq(pthread_cond_timedwait(&s->changed, &s->mutex, &until), 0);
    }
    buf = BERTH_STEAL(s->arrived);
    pthread_mutex_unlock(&s->mutex);
    return buf;
}

ProtobufCMessage *rig_stream_next(struct rig_stream *s, const ProtobufCMessageDescriptor *type)
{
    BERTH_AUTO(berth_buf_unref) struct berth_buf *buf = next_buf(s);
    ProtobufCMessage *message = NULL;

    if (buf)
        ck_assert_int_eq(berth_buf_decode(type, buf, &message, NULL), BERTH_OK);
    return message;
}

static void do_through(void *arg)
{
    struct rig_stream *s = arg;

    sem_post(&s->through);
}

enum berth_code rig_stream_end(struct rig_stream *s, struct berth_error *err)
{
    struct berth_buf *rest;
    enum berth_code code;

    /* The status comes behind the messages. */
    while ((rest = next_buf(s)))
        berth_buf_unref(rest);
    pthread_mutex_lock(&s->mutex);
    wait_for(s, &s->closed);
    pthread_mutex_unlock(&s->mutex);
    /* What was posted for it before has run when this has. */
    berth_loop_post(client_loop, do_through, s);
    while (sem_wait(&s->through) < 0) {
    }
    code = s->code;
    if (err)
        *err = s->err;
    pthread_mutex_destroy(&s->mutex);
    pthread_cond_destroy(&s->changed);
    free(s);
    return code;
}
