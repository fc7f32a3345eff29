/* health.c - grpc.health.v1: Check by a worker of the priority lane, Watch by callbacks. */
#include "common/rpc/server.h"

#include "grpc/health/v1/health.pb-c.h"

typedef Grpc__Health__V1__HealthCheckRequest HealthCheckRequest;
typedef Grpc__Health__V1__HealthCheckResponse HealthCheckResponse;
typedef Grpc__Health__V1__HealthCheckResponse__ServingStatus ServingStatus;

#define STATUS(name) GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__##name

enum { SERVICES_MAX = 64 };

struct watch { /* one Watch call; loop thread */
    struct rpc_health *health;
    struct berth_stream *stream;
    char *service; /* NULL: the request has not come yet */
    ServingStatus told;
    struct watch *next, **slot;
};

struct rpc_health {
    struct berth_server *server;
    struct watch *watches; /* loop thread */
    struct berth_post post;

    pthread_mutex_t mutex; /* all below */
    bool posted;           /* post is on its way */
    bool closed;           /* nothing more may be posted */
    struct {
        char *name;
        bool serving;
    } services[SERVICES_MAX];
    size_t n_services;
};

static ServingStatus status_of(struct rpc_health *health, const char *service)
{
    ServingStatus status = STATUS(SERVICE_UNKNOWN);

    pthread_mutex_lock(&health->mutex);
    for (size_t i = 0; i < health->n_services; i++)
        if (strcmp(health->services[i].name, service) == 0)
            status = health->services[i].serving && !berth_server_stopping(health->server)
                         ? STATUS(SERVING)
                         : STATUS(NOT_SERVING);
    pthread_mutex_unlock(&health->mutex);
    return status;
}

static enum berth_code check(void *service, struct berth_call *call,
                             const ProtobufCMessage *message, ProtobufCMessage **ret_resp,
                             struct berth_error *err)
{
    const HealthCheckRequest *req = (const HealthCheckRequest *)message;
    ServingStatus status = status_of(service, req->service);
    HealthCheckResponse *response;

    (void)call;
    if (status == STATUS(SERVICE_UNKNOWN)) { /* none of our reasons: a plain NOT_FOUND */
        *err = (struct berth_error){.code = BERTH_NOT_FOUND, .text = "unknown service"};
        return BERTH_NOT_FOUND;
    }
    response = malloc(sizeof *response);
    if (!response)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    grpc__health__v1__health_check_response__init(response);
    response->status = status;
    *ret_resp = &response->base;
    return BERTH_OK;
}

/* --------------------------------------------------------------------- Watch */

static void tell(struct watch *watch)
{
    HealthCheckResponse response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    struct berth_buf *buf;

    if (!watch->service || !berth_stream_can_write(watch->stream))
        return;
    response.status = status_of(watch->health, watch->service);
    if (response.status == watch->told)
        return;
    watch->told = response.status;
    buf = berth_buf_pack(&response.base);
    if (buf)
        (void)berth_stream_write(watch->stream, buf);
    else
        berth_stream_cancel(watch->stream);
}

static void watch_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct watch *watch = ctx;
    struct berth_error err = {0};
    ProtobufCMessage *request;
    enum berth_code code;

    if (!msg) {
        code = berth_fail(&err, BERTH_REASON_FIELD_INVALID, "no request message");
        berth_stream_finish(stream, code, &err);
        return;
    }
    code = berth_buf_decode(&grpc__health__v1__health_check_request__descriptor, msg, &request,
                            &err);
    berth_buf_unref(msg);
    if (!code) {
        watch->service = strdup(((HealthCheckRequest *)request)->service);
        protobuf_c_message_free_unpacked(request, NULL);
        if (!watch->service)
            code = berth_fail(&err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    if (code)
        berth_stream_finish(stream, code, &err);
    else
        tell(watch);
}

/* The last word: NOT_SERVING, and away. */
static void send_away(struct watch *watch)
{
    struct berth_error err;
    enum berth_code code = berth_fail(&err, BERTH_REASON_DRAINING, NULL);

    tell(watch);
    berth_stream_finish(watch->stream, code, &err);
}

static void watch_written(void *ctx, struct berth_stream *stream)
{
    struct watch *watch = ctx;

    (void)stream;
    if (berth_server_stopping(watch->health->server))
        send_away(watch);
    else
        tell(watch); /* it may have changed meanwhile */
}

static void watch_closed(void *ctx, struct berth_stream *stream,
                         const struct berth_status *status)
{
    struct watch *watch = ctx;

    (void)stream;
    (void)status;
    *watch->slot = watch->next;
    if (watch->next)
        watch->next->slot = watch->slot;
    free(watch->service);
    free(watch);
}

static const struct berth_stream_ops watch_ops = {
    .message = watch_message, .written = watch_written, .closed = watch_closed};

static enum berth_code open_watch(void *service, struct berth_stream *stream,
                                  const struct berth_stream_ops **ret_ops, void **ret_ctx,
                                  struct berth_error *err)
{
    struct rpc_health *health = service;
    struct watch *watch;

    if (berth_server_stopping(health->server))
        return berth_fail(err, BERTH_REASON_DRAINING, NULL);
    watch = calloc(1, sizeof *watch);
    if (!watch)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    *watch = (struct watch){
        .health = health, .stream = stream, .next = health->watches, .slot = &health->watches};
    if (watch->next)
        watch->next->slot = &watch->next;
    health->watches = watch;
    *ret_ops = &watch_ops;
    *ret_ctx = watch;
    berth_stream_read(stream);
    return BERTH_OK;
}

static void tell_all(void *arg)
{
    struct rpc_health *health = arg;

    pthread_mutex_lock(&health->mutex);
    health->posted = false;
    pthread_mutex_unlock(&health->mutex);
    for (struct watch *watch = health->watches; watch; watch = watch->next)
        tell(watch);
}

void rpc_health_drain(struct berth_server *server)
{
    struct rpc_health *health = server->health;

    if (!health)
        return;
    pthread_mutex_lock(&health->mutex);
    health->closed = true;
    pthread_mutex_unlock(&health->mutex);
    for (struct watch *watch = health->watches; watch; watch = watch->next)
        if (!watch->service || berth_stream_can_write(watch->stream))
            send_away(watch); /* else when the write in flight is over */
}

/* ------------------------------------------------------------------- set up */

void berth_health_set(struct berth_server *server, const char *service, bool serving)
{
    struct rpc_health *health = server->health;
    bool changed = false;
    size_t i = 0;

    if (!health)
        return;
    pthread_mutex_lock(&health->mutex);
    while (i < health->n_services && strcmp(health->services[i].name, service) != 0)
        i++;
    if (i == health->n_services && i < SERVICES_MAX) {
        health->services[i].name = strdup(service);
        if (health->services[i].name) {
            health->services[i].serving = !serving; /* so that it counts as a change */
            health->n_services++;
        }
    }
    if (i < health->n_services) {
        changed = health->services[i].serving != serving;
        health->services[i].serving = serving;
    }
    if (changed && !health->posted && !health->closed) {
        health->posted = true;
        berth_loop_post_entry(server->loop, &health->post, tell_all, health);
    }
    pthread_mutex_unlock(&health->mutex);
}

enum berth_code berth_health_add(struct berth_server *server, struct berth_error *err)
{
    static const struct berth_method methods[] = {
        {"/grpc.health.v1.Health/Check", &grpc__health__v1__health_check_request__descriptor,
         check, NULL, BERTH_METHOD_QUICK | RPC_METHOD_ALWAYS},
        {"/grpc.health.v1.Health/Watch", &grpc__health__v1__health_check_request__descriptor,
         NULL, open_watch, RPC_METHOD_ALWAYS},
    };
    struct rpc_health *health = calloc(1, sizeof *health);

    if (!health)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    health->server = server;
    pthread_mutex_init(&health->mutex, NULL);
    server->health = health;
    berth_health_set(server, "", true);
    return berth_server_add(server, methods, BERTH_COUNT(methods), health, err);
}

void rpc_health_free(struct rpc_health *health)
{
    if (!health)
        return;
    for (size_t i = 0; i < health->n_services; i++)
        free(health->services[i].name);
    pthread_mutex_destroy(&health->mutex);
    free(health);
}
