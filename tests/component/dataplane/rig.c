#include "tests/component/dataplane/rig.h"

#include <check.h>
#include <stdio.h>

#include "common/time/time.h"

/* An order-dependent sum: any byte lost, doubled or moved changes it. */
uint64_t sum_of(uint64_t sum, const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        sum = (sum ^ data[i]) * 1099511628211ULL;
    return sum;
}

uint64_t rig_get(struct rig *rig, const uint64_t *value)
{
    uint64_t copy;

    pthread_mutex_lock(&rig->mutex);
    copy = *value;
    pthread_mutex_unlock(&rig->mutex);
    return copy;
}

unsigned rig_count(struct rig *rig, const unsigned *value)
{
    unsigned copy;

    pthread_mutex_lock(&rig->mutex);
    copy = *value;
    pthread_mutex_unlock(&rig->mutex);
    return copy;
}

struct berth_buf *some_bytes(size_t size, unsigned seed)
{
    uint8_t *data = malloc(size + 1);
    struct berth_buf *buf;

    for (size_t i = 0; i < size; i++)
        data[i] = (uint8_t)(seed = seed * 1103515245u + 12345u);
    buf = berth_buf_new(data, size);
    free(data);
    return buf;
}

/* ---------------------------------------------------------- control plane */

static char *copy_of(const char *text)
{
    char *copy = strdup(text);

    ck_assert_ptr_nonnull(copy);
    return copy;
}

static Google__Protobuf__Duration *duration_of(int64_t ms)
{
    Google__Protobuf__Duration *duration;

    if (ms == 0)
        return NULL;
    duration = calloc(1, sizeof *duration);
    google__protobuf__duration__init(duration);
    duration->seconds = ms / 1000;
    duration->nanos = (int32_t)(ms % 1000) * 1000000;
    return duration;
}

static enum berth_code resolve_route(void *service, struct berth_call *call,
                                     const ProtobufCMessage *message, ProtobufCMessage **ret,
                                     struct berth_error *err)
{
    struct rig *rig = service;
    const Berth__Control__V1__ResolveRouteRequest *req =
        (const Berth__Control__V1__ResolveRouteRequest *)message;
    Berth__Control__V1__ResolveRouteResponse *resp;
    Berth__Common__V1__DataPlaneEndpoint *endpoint;
    struct resolve_step step;
    unsigned n;

    pthread_mutex_lock(&rig->mutex);
    n = rig->n_resolved++;
    step = rig->resolves[n < rig->n_resolves ? n : rig->n_resolves - 1];
    rig->mode = req->mode;
    snprintf(rig->failed_sandbox_id, sizeof rig->failed_sandbox_id, "%s",
             req->failed_sandbox_id);
    snprintf(rig->turn_token, sizeof rig->turn_token, "%s", req->turn_token);
    while (step.wait && !rig->release && !berth_call_cancelled(call)) {
        pthread_mutex_unlock(&rig->mutex);
        usleep(500);
        pthread_mutex_lock(&rig->mutex);
    }
    pthread_mutex_unlock(&rig->mutex);

    if (step.reason)
        return berth_fail(err, step.reason, "as the test says");
    resp = calloc(1, sizeof *resp);
    berth__control__v1__resolve_route_response__init(resp);
    endpoint = resp->endpoint = calloc(1, sizeof *endpoint);
    berth__common__v1__data_plane_endpoint__init(endpoint);
    endpoint->kind = step.kind ? (Berth__Common__V1__DataPlaneKind)step.kind
                               : BERTH__COMMON__V1__DATA_PLANE_KIND__DATA_PLANE_KIND_ADAPTER;
    endpoint->sandbox_id = copy_of(step.sandbox_id ? step.sandbox_id : "sb-1");
    endpoint->fence = 7;
    endpoint->target = calloc(1, sizeof *endpoint->target);
    berth__common__v1__backend_target__init(endpoint->target);
    endpoint->target->backend = copy_of(step.backend ? step.backend : "local");
    endpoint->target->tenant_id = copy_of(req->session->tenant_id);
    if (step.loss) {
        resp->loss = calloc(1, sizeof *resp->loss);
        berth__control__v1__sandbox_loss__init(resp->loss);
        resp->loss->number = step.loss;
        resp->loss->outcome = BERTH__CONTROL__V1__RESOLVE_OUTCOME__RESOLVE_OUTCOME_REPLACED;
        resp->loss->sandbox_id = copy_of("sb-0");
        resp->loss->lost = calloc(1, sizeof *resp->loss->lost);
        resp->loss->lost[0] = copy_of("workspace");
        resp->loss->n_lost = 1;
    }
    resp->command_timeout = duration_of(step.timeout_ms);
    resp->command_timeout_max = duration_of(step.timeout_max_ms);
    resp->root_commands = step.root;
    resp->maintenance = step.maintenance;
    *ret = &resp->base;
    return BERTH_OK;
}

static enum berth_code renew_use(void *service, struct berth_call *call,
                                 const ProtobufCMessage *message, ProtobufCMessage **ret,
                                 struct berth_error *err)
{
    struct rig *rig = service;
    const Berth__Control__V1__RenewUseRequest *req =
        (const Berth__Control__V1__RenewUseRequest *)message;
    Berth__Control__V1__RenewUseResponse *resp;
    enum berth_reason reason;

    (void)call;
    pthread_mutex_lock(&rig->mutex);
    reason = rig->renew_reason;
    if (req->end)
        rig->n_end++;
    else
        rig->n_renew++;
    if (strcmp(rig->use_token[0], req->use_token) != 0) {
        memcpy(rig->use_token[1], rig->use_token[0], sizeof rig->use_token[0]);
        snprintf(rig->use_token[0], sizeof rig->use_token[0], "%s", req->use_token);
        rig->n_tokens++;
    }
    snprintf(rig->use_sandbox_id, sizeof rig->use_sandbox_id, "%s", req->sandbox_id);
    pthread_mutex_unlock(&rig->mutex);
    if (reason)
        return berth_fail(err, reason, "as the test says");
    resp = calloc(1, sizeof *resp);
    berth__control__v1__renew_use_response__init(resp);
    *ret = &resp->base;
    return BERTH_OK;
}

static enum berth_code loss_told(void *service, struct berth_call *call,
                                 const ProtobufCMessage *message, ProtobufCMessage **ret,
                                 struct berth_error *err)
{
    struct rig *rig = service;
    Berth__Control__V1__LossToldResponse *resp;
    enum berth_reason reason;

    pthread_mutex_lock(&rig->mutex);
    rig->n_told++;
    rig->told = ((const Berth__Control__V1__LossToldRequest *)message)->number;
    reason = rig->told_reason;
    while (rig->hold_told && !rig->release && !berth_call_cancelled(call)) {
        pthread_mutex_unlock(&rig->mutex);
        usleep(500);
        pthread_mutex_lock(&rig->mutex);
    }
    pthread_mutex_unlock(&rig->mutex);
    if (reason)
        return berth_fail(err, reason, "as the test says");
    resp = calloc(1, sizeof *resp);
    berth__control__v1__loss_told_response__init(resp);
    *ret = &resp->base;
    return BERTH_OK;
}

static const struct berth_method control_methods[] = {
    {"/berth.control.v1.InternalService/ResolveRoute",
     &berth__control__v1__resolve_route_request__descriptor, resolve_route, NULL,
     BERTH_METHOD_PEER_ONLY},
    {"/berth.control.v1.InternalService/RenewUse",
     &berth__control__v1__renew_use_request__descriptor, renew_use, NULL,
     BERTH_METHOD_PEER_ONLY},
    {"/berth.control.v1.InternalService/LossTold",
     &berth__control__v1__loss_told_request__descriptor, loss_told, NULL,
     BERTH_METHOD_PEER_ONLY},
};

/* ---------------------------------------------------------------- adapter */

struct served {
    struct rig *rig;
    struct step step;
    unsigned left; /* messages to write */
    bool first_in;
};

static void served_finish(struct served *served, struct berth_stream *stream)
{
    struct berth_error err = {0};

    if (served->step.bare_code) {
        const struct berth_status status = {.code = (enum berth_code)served->step.bare_code,
                                            .message = "bare"};
        berth_stream_finish_status(stream, &status);
        return;
    }
    if (served->step.reason) {
        (void)berth_fail(&err, served->step.reason, "as the \"test\" says: \xc3\xa4");
        if (served->step.sandbox_id)
            berth_error_set(err.sandbox_id, sizeof err.sandbox_id, served->step.sandbox_id);
    }
    berth_stream_finish(stream, err.code, &err);
}

static void served_write(struct served *served, struct berth_stream *stream, size_t size)
{
    const ProtobufCMessage *message =
        served->left == served->step.n ? served->step.message : NULL;
    struct berth_buf *msg = message ? berth_buf_pack(message) : some_bytes(size, served->left);

    pthread_mutex_lock(&served->rig->mutex);
    served->rig->adapter_out += size;
    pthread_mutex_unlock(&served->rig->mutex);
    ck_assert(berth_stream_write(stream, msg));
}

static void served_go_on(struct served *served, struct berth_stream *stream)
{
    switch (served->step.act) {
    case ACT_ANSWER:
        if (served->left > 0) {
            served_write(served, stream, served->step.size);
            served->left--;
        } else if (!served->step.stay) {
            served_finish(served, stream);
        }
        break;
    case ACT_FLOOD:
        served_write(served, stream, CHUNK);
        break;
    case ACT_COLLECT:
    case ACT_STALL:
        break;
    }
}

static void served_first(struct served *served, struct berth_stream *stream,
                         struct berth_buf *msg)
{
    struct rig *rig = served->rig;
    struct berth_call *call = berth_stream_call(stream);
    Berth__Common__V1__DataPlaneEndpoint *endpoint;
    struct adapter_call *log;
    size_t size = 0;
    const void *route = berth_call_metadata(call, "berth-route-bin", &size);

    ck_assert_ptr_nonnull(route);
    endpoint = berth__common__v1__data_plane_endpoint__unpack(NULL, size, route);
    ck_assert_ptr_nonnull(endpoint);
    pthread_mutex_lock(&rig->mutex);
    if (rig->n_calls < LOG_MAX) {
        log = &rig->calls[rig->n_calls];
        snprintf(log->sandbox_id, sizeof log->sandbox_id, "%s", endpoint->sandbox_id);
        snprintf(log->tenant, sizeof log->tenant, "%s", endpoint->target->tenant_id);
        log->fence = endpoint->fence;
        log->first = berth_buf_ref(msg);
    }
    served->step = rig->steps[rig->n_calls < rig->n_steps ? rig->n_calls : rig->n_steps - 1];
    rig->n_calls++;
    pthread_mutex_unlock(&rig->mutex);
    served->left = served->step.n;
    berth__common__v1__data_plane_endpoint__free_unpacked(endpoint, NULL);
    if (served->step.act == ACT_COLLECT)
        berth_stream_read(stream);
    else
        served_go_on(served, stream);
}

static void served_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct served *served = ctx;
    struct rig *rig = served->rig;

    if (!served->first_in) {
        served->first_in = true;
        if (msg)
            served_first(served, stream, msg);
        berth_buf_unref(msg);
        return;
    }
    if (!msg) {
        pthread_mutex_lock(&rig->mutex);
        rig->n_half_closed++;
        pthread_mutex_unlock(&rig->mutex);
        served->step.act = ACT_ANSWER;
        served->left = served->step.n;
        served_go_on(served, stream);
        return;
    }
    pthread_mutex_lock(&rig->mutex);
    rig->adapter_in += berth_buf_size(msg);
    rig->in_sum = sum_of(rig->in_sum, berth_buf_data(msg), berth_buf_size(msg));
    pthread_mutex_unlock(&rig->mutex);
    berth_buf_unref(msg);
    berth_stream_read(stream);
}

static void served_written(void *ctx, struct berth_stream *stream)
{
    served_go_on(ctx, stream);
}

static void served_cancelled(void *ctx, struct berth_stream *stream)
{
    struct served *served = ctx;
    struct berth_error err = {0};

    pthread_mutex_lock(&served->rig->mutex);
    served->rig->n_cancelled++;
    pthread_mutex_unlock(&served->rig->mutex);
    served->step.act = ACT_STALL;
    berth_stream_finish(stream, berth_fail(&err, BERTH_REASON_CANCELLED, NULL), &err);
}

static void served_closed(void *ctx, struct berth_stream *stream,
                          const struct berth_status *status)
{
    struct served *served = ctx;

    (void)stream;
    (void)status;
    pthread_mutex_lock(&served->rig->mutex);
    served->rig->n_open--;
    pthread_mutex_unlock(&served->rig->mutex);
    free(served);
}

static const struct berth_stream_ops served_ops = {.message = served_message,
                                                   .written = served_written,
                                                   .closed = served_closed,
                                                   .cancelled = served_cancelled};

static enum berth_code serve(void *service, struct berth_stream *stream,
                             const struct berth_stream_ops **ret_ops, void **ret_ctx,
                             struct berth_error *err)
{
    struct rig *rig = service;
    struct served *served = calloc(1, sizeof *served);

    (void)err;
    served->rig = rig;
    pthread_mutex_lock(&rig->mutex);
    rig->n_open++;
    pthread_mutex_unlock(&rig->mutex);
    *ret_ops = &served_ops;
    *ret_ctx = served;
    berth_stream_read(stream);
    return BERTH_OK;
}

#define SERVE(path, type)                                                                      \
    {                                                                                          \
        path, &berth__data__v1__##type##__descriptor, NULL, serve, 4                           \
    }
static const struct berth_method adapter_methods[] = {
    SERVE(RUN, run_request),
    SERVE(EXEC, exec_request),
    SERVE(ATTACH, attach_request),
    SERVE(LIST_PROCESSES, list_processes_request),
    SERVE(STAT, stat_request),
    SERVE(READ_FILE, read_file_request),
    SERVE(WRITE_FILE, write_file_request),
    SERVE(MAKE_DIR, make_dir_request),
    SERVE(MOVE, move_request),
    SERVE(REMOVE, remove_request),
};

/* --------------------------------------------------------------- start, end */

static struct berth_server *server_on(struct rig *rig, struct berth_loop *loop,
                                      const char *name, const struct berth_method *methods,
                                      size_t n_methods, void *service)
{
    const struct berth_server_options options = {.loop = loop, .n_workers = 4};
    struct berth_server *server = NULL;
    struct berth_error err = {0};
    char address[128];

    snprintf(address, sizeof address, "unix:%s/%s.sock", rig->dir, name);
    ck_assert_msg(!berth_server_new(&options, &server, &err) &&
                      !berth_server_add(server, methods, n_methods, service, &err) &&
                      !berth_server_listen(server, address, NULL, &err) &&
                      !berth_server_start(server, &err),
                  "%s: %s", name, err.text);
    return server;
}

void rig_adapter_start(struct rig *rig)
{
    rig->adapter = server_on(rig, rig->fake_loop, "adapter-local", adapter_methods,
                             BERTH_COUNT(adapter_methods), rig);
}

void rig_adapter_kill(struct rig *rig)
{
    rig->adapter = berth_server_free(rig->adapter);
}

void rig_control_start(struct rig *rig)
{
    rig->control = server_on(rig, rig->fake_loop, "controlplane", control_methods,
                             BERTH_COUNT(control_methods), rig);
}

void rig_control_kill(struct rig *rig)
{
    rig->control = berth_server_free(rig->control);
}

static enum berth_code connect_to(void *arg, struct berth_channel **ret,
                                  struct berth_error *err)
{
    const struct berth_channel_options options = {
        .unavailable = strstr(arg, "adapter") ? BERTH_REASON_ADAPTER_UNAVAILABLE
                                              : BERTH_REASON_PEER_UNAVAILABLE};

    return berth_channel_new(arg, &options, ret, err);
}

static struct dp_peer *peer_at(struct rig *rig, const char *name)
{
    static char addresses[4][128];
    static unsigned n;
    char *address = addresses[n++ % 4];
    struct dp_peer *peer = NULL;

    snprintf(address, sizeof addresses[0], "unix:%s/%s.sock", rig->dir, name);
    ck_assert_int_eq(dp_peer_new(connect_to, address, &peer, NULL), BERTH_OK);
    return peer;
}

struct rig *rig_new(const struct dataplane_options *options)
{
    struct rig *rig = calloc(1, sizeof *rig);
    struct berth_error err = {0};
    char address[128];

    berth_rpc_init();
    pthread_mutex_init(&rig->mutex, NULL);
    snprintf(rig->dir, sizeof rig->dir, "/tmp/berth-dp-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(rig->dir));
    ck_assert(!berth_loop_new(&rig->dp_loop, &err) &&
              !berth_loop_start(rig->dp_loop, "dp", &err));
    ck_assert(!berth_loop_new(&rig->fake_loop, &err) &&
              !berth_loop_start(rig->fake_loop, "fake", &err));
    ck_assert(!berth_loop_new(&rig->caller_loop, &err) &&
              !berth_loop_start(rig->caller_loop, "caller", &err));
    rig->n_steps = rig->n_resolves = 1; /* {0}: a route, and an empty OK answer */

    rig->options = options ? *options : (struct dataplane_options){0};
    rig->options.loop = rig->dp_loop;
#define DEFAULT(member, value)                                                                 \
    if (rig->options.member == 0)                                                              \
    rig->options.member = (value)
    DEFAULT(max_streams, 10000);
    DEFAULT(use_after_ms, 5000);
    DEFAULT(use_renew_ms, 60000);
    DEFAULT(resolve_timeout_ms, 20000);
    DEFAULT(stall_ms, 60000);
#undef DEFAULT
    rig_control_start(rig);
    rig_adapter_start(rig);
    ck_assert_int_eq(dataplane_new(&rig->options, peer_at(rig, "controlplane"), &rig->dp, &err),
                     0);
    ck_assert_int_eq(
        dataplane_add_backend(rig->dp, "local", peer_at(rig, "adapter-local"), &err), 0);
    rig->front = server_on(rig, rig->dp_loop, "dataplane", dataplane_methods,
                           n_dataplane_methods, rig->dp);
    snprintf(address, sizeof address, "unix:%s/dataplane.sock", rig->dir);
    ck_assert_int_eq(berth_channel_new(address, NULL, &rig->channel, &err), 0);
    return rig;
}

void rig_free(struct rig *rig)
{
    static const char *const sockets[] = {"controlplane", "adapter-local", "dataplane"};
    char path[128];

    berth_channel_free(rig->channel);
    berth_server_free(rig->front);
    dataplane_free(rig->dp);
    berth_server_free(rig->adapter);
    berth_server_free(rig->control);
    berth_loop_free(rig->caller_loop);
    berth_loop_free(rig->dp_loop);
    berth_loop_free(rig->fake_loop);
    for (unsigned i = 0; i < rig->n_calls && i < LOG_MAX; i++)
        berth_buf_unref(rig->calls[i].first);
    for (size_t i = 0; i < BERTH_COUNT(sockets); i++) {
        snprintf(path, sizeof path, "%s/%s.sock", rig->dir, sockets[i]);
        unlink(path);
    }
    ck_assert_int_eq(rmdir(rig->dir), 0);
    pthread_mutex_destroy(&rig->mutex);
    free(rig);
    berth_rpc_done();
}
