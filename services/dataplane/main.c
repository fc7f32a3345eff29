/* dataplane - commands and files of a session.
 *
 * Called by tenants, skills and the gateway. Calls the control plane (ResolveRoute, RenewUse)
 * and the adapters whose backends have no data plane of their own.
 *
 * methods.c lists the calls; first.c takes a call to its route, pump.c from there to its
 * status; check.c and route.c hold the rules; use.c keeps a sandbox from being taken away under
 * a stream; peer.c spreads streams over connections; service.c is the rest. */
#include "common/auth/follow.h"
#include "common/auth/introspect.h"
#include "common/svc/svc.h"
#include "grpc/health/v1/health.pb-c.h"
#include "services/dataplane/blobs.h"
#include "services/dataplane/dataplane.h"

enum { READY_WAIT_MS = 500, BLOB_MAX_MIN = 1 << 20 };

struct dataplane_config {
    char *controlplane;
    char *adapter_local;
    char *adapter_docker;
    int64_t max_streams;
    int64_t use_after;
    int64_t use_renew;
    int64_t resolve_timeout;
    int64_t stall_timeout;
    char *blob_dir;
    int64_t blob_max;
    int64_t blob_keep;
};

#define KEY(field, type, value, doc)                                                           \
    {                                                                                          \
#field, BERTH_CONFIG_##type, offsetof(struct dataplane_config, field), value, doc      \
    }

static const struct berth_config_key keys[] = {
    KEY(controlplane, STR, "", "address of the control plane; empty: its socket in run_dir"),
    KEY(adapter_local, STR, "", "address of the local adapter; empty: its socket in run_dir"),
    KEY(adapter_docker, STR, "", "address of the docker adapter; empty: its socket in run_dir"),
    KEY(max_streams, INT, "10000", "calls at once; more are refused as OVERLOADED"),
    KEY(use_after, MS, "5s", "age from which a call holds a use token"),
    KEY(use_renew, MS, "60s", "how often a use token is renewed (it lives two minutes)"),
    KEY(resolve_timeout, MS, "2m", "longest wait for a session's sandbox to be ready"),
    KEY(stall_timeout, MS, "2m", "longest silence of an adapter that owes an answer"),
    KEY(blob_dir, STR, "",
        "where workspaces lie between two sandboxes of a session, ours alone and the same for "
        "all "
        "data planes; empty: workspaces are not moved"),
    KEY(blob_max, BYTES, "16GiB", "of one workspace, as a tar"),
    KEY(blob_keep, MS, "30d",
        "after that a workspace that nobody fetched is removed; 0: never"),
};
#undef KEY

/* One peer: who, where. */
struct peer_address {
    const struct berth_runtime *runtime;
    const char *peer;
    char *target;
    enum berth_reason unavailable;
};

struct service {
    struct dataplane *dp;
    struct berth_introspect introspect;
    struct berth_auth *auth;
    struct berth_follow *follow;
    struct peer_address controlplane, local, docker;
};

static enum berth_code connect_peer(void *arg, struct berth_channel **ret,
                                    struct berth_error *err)
{
    const struct peer_address *address = arg;
    struct berth_channel_options options = {.unavailable = address->unavailable};

    return berth_peer_channel(address->runtime, address->peer, address->target, &options, ret,
                              err);
}

static void service_free(struct service *service)
{
    if (!service)
        return;
    berth_follow_free(service->follow);
    berth_auth_free(service->auth);
    dataplane_free(service->dp);
    free(service->controlplane.target);
    free(service->local.target);
    free(service->docker.target);
    free(service);
}
BERTH_DEFINE_AUTO(struct service *, service_free)

static enum berth_code add_adapter(struct service *service, const char *backend,
                                   struct peer_address *address, struct berth_error *err)
{
    struct dp_peer *adapter = NULL;
    enum berth_code code = dp_peer_new(connect_peer, address, &adapter, err);

    if (code)
        return berth_wrap(err, code, "%s", address->peer);
    return dataplane_add_backend(service->dp, backend, adapter, err);
}

static enum berth_code make_gate(struct service *service, const struct berth_runtime *runtime,
                                 struct berth_error *err)
{
    const struct berth_auth_options options = {
        .look = berth_introspect_look, .arg = &service->introspect, .loop = runtime->loop};
    enum berth_code code = berth_auth_new(&options, &service->auth, err);

    service->introspect = (struct berth_introspect){
        .controlplane = dp_peer_channel(service->dp->controlplane), .pool = runtime->pool};
    if (!code)
        code = berth_follow_new(service->introspect.controlplane, runtime->loop, service->auth,
                                &service->follow, err);
    if (code)
        return code;
    service->introspect.follow = service->follow;
    berth_server_set_gate(runtime->server, berth_auth_gate(service->auth));
    return BERTH_OK;
}

static enum berth_code open_blobs(struct service *service, const struct dataplane_config *c,
                                  struct berth_error *err)
{
    const struct blobs_options options = {
        .dir = c->blob_dir, .max_bytes = (uint64_t)c->blob_max, .keep_ms = c->blob_keep};
    struct blobs *blobs = NULL;
    enum berth_code code;

    if (!*c->blob_dir)
        return BERTH_OK;
    if (c->blob_max < BLOB_MAX_MIN)
        return berth_fail_field(err, "blob_max", "must be at least 1MiB");
    code = blobs_new(&options, &blobs, err);
    if (!code)
        dataplane_set_blobs(service->dp, blobs);
    return code;
}

static enum berth_code start(const void *config, const struct berth_runtime *runtime,
                             void **ret_service, struct berth_error *err)
{
    const struct dataplane_config *c = config;
    const struct dataplane_options options = {.loop = runtime->loop,
                                              .pool = runtime->pool,
                                              .max_streams = c->max_streams,
                                              .use_after_ms = c->use_after,
                                              .use_renew_ms = c->use_renew,
                                              .resolve_timeout_ms = c->resolve_timeout,
                                              .stall_ms = c->stall_timeout};
    BERTH_AUTO(service_free) struct service *service = calloc(1, sizeof *service);
    struct dp_peer *controlplane = NULL;
    enum berth_code code;

    if (!service)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    service->controlplane = (struct peer_address){
        runtime, "controlplane", strdup(c->controlplane), BERTH_REASON_PEER_UNAVAILABLE};
    service->local = (struct peer_address){runtime, "adapter-local", strdup(c->adapter_local),
                                           BERTH_REASON_ADAPTER_UNAVAILABLE};
    service->docker = (struct peer_address){
        runtime, "adapter-docker", strdup(c->adapter_docker), BERTH_REASON_ADAPTER_UNAVAILABLE};
    if (!service->controlplane.target || !service->local.target || !service->docker.target)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);

    code = dp_peer_new(connect_peer, &service->controlplane, &controlplane, err);
    if (code)
        return berth_wrap(err, code, "controlplane");
    code = dataplane_new(&options, controlplane, &service->dp, err);
    if (code) {
        dp_peer_free(controlplane);
        return code;
    }
    code = add_adapter(service, "local", &service->local, err);
    if (code == BERTH_OK)
        code = add_adapter(service, "docker", &service->docker, err);
    if (code == BERTH_OK)
        code = make_gate(service, runtime, err);
    if (code == BERTH_OK)
        code = open_blobs(service, c, err);
    if (code)
        return code;
    /* What the handlers of dataplane_methods get. */
    *ret_service = service->dp;
    service->dp->owner = BERTH_STEAL(service);
    return BERTH_OK;
}

/* Ready when the control plane says that it can resolve (which takes Redis, too). */
static enum berth_code ready(void *arg, struct berth_error *err)
{
    const struct dataplane *dp = arg;
    Grpc__Health__V1__HealthCheckRequest req = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    const struct berth_call_options options = {.timeout_ms = READY_WAIT_MS};
    ProtobufCMessage *resp = NULL;
    enum berth_code code;
    bool serving;

    req.service = (char *)(uintptr_t) "berth.control.v1.InternalService";
    code = berth_channel_call(dp_peer_channel(dp->controlplane), "/grpc.health.v1.Health/Check",
                              &req.base, &grpc__health__v1__health_check_response__descriptor,
                              &options, &resp, err);
    if (code)
        return berth_wrap(err, code, "control plane");
    serving = ((Grpc__Health__V1__HealthCheckResponse *)resp)->status ==
              GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING;
    protobuf_c_message_free_unpacked(resp, NULL);
    if (!serving)
        return berth_fail(err, BERTH_REASON_PEER_UNAVAILABLE, "the control plane is not ready");
    return BERTH_OK;
}

static char *metrics(void *arg)
{
    return dataplane_metrics(arg);
}

static void stop(void *arg)
{
    service_free(((struct dataplane *)arg)->owner);
}

int main(int argc, char **argv)
{
    static const char *const services[] = {
        "berth.data.v1.ProcessService", "berth.data.v1.FileService",
        "berth.data.v1.WorkspaceService", "berth.data.v1.InternalService"};
    const struct berth_service service = {
        .name = "dataplane",
        .doc = "commands and files of a session",
        .port = 7401,
        .keys = keys,
        .n_keys = BERTH_COUNT(keys),
        .config_size = sizeof(struct dataplane_config),
        .methods = dataplane_methods,
        .n_methods = n_dataplane_methods,
        .services = services,
        .n_services = BERTH_COUNT(services),
        .start = start,
        .ready = ready,
        .metrics = metrics,
        .stop = stop,
    };

    return berth_service_main(&service, argc, argv);
}
