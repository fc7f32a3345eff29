/* server.c - the life of a server, and the way of a call to its method. */
#include <errno.h>
#include <grpc/grpc_security.h>
#include <stdio.h>
#include <time.h>

#include "common/rpc/frames.h"
#include "common/rpc/server.h"
#include "common/rpc/tls_sight.h"
#include "common/time/time.h"

enum {
    N_WORKERS = 32,
    N_PRIORITY_WORKERS = 4,
    MAX_QUEUED = 1024,
    MAX_CONNECTIONS = 1024,
    MAX_STREAMS = 2048,
    MEMORY_BYTES = 1 << 30,
    N_ASKED = 32, /* calls that the core may hand over before it is asked for more */
    /* A connection whose peer does not answer a ping is closed. */
    KEEPALIVE_MS = 60000,
    KEEPALIVE_TIMEOUT_PART = 3,
    /* Clients may ping this often, with or without calls; those that do it oftener, three
     * times, are sent away (ENHANCE_YOUR_CALM). Clients are told 10 s; this leaves room for
     * jitter. */
    PING_INTERVAL_MIN_MS = 9000,
    TLS_HANDSHAKE_MS = 10000, /* the core's own default is two minutes */
};

static grpc_arg int_arg(const char *key, int value)
{
    grpc_arg arg = {.type = GRPC_ARG_INTEGER, .key = (char *)(uintptr_t)key};

    arg.value.integer = value;
    return arg;
}

static void make_core(struct berth_server *server, const struct berth_server_options *options)
{
    int64_t keepalive_ms = options->keepalive_ms ? options->keepalive_ms : KEEPALIVE_MS;
    int64_t handshake_ms = options->handshake_ms ? options->handshake_ms : TLS_HANDSHAKE_MS;
    size_t memory_bytes = options->memory_bytes ? options->memory_bytes : MEMORY_BYTES;
    unsigned max_streams = options->max_streams ? options->max_streams : MAX_STREAMS;
    grpc_resource_quota *quota = grpc_resource_quota_create("berth-server");
    grpc_arg quota_arg = {.type = GRPC_ARG_POINTER,
                          .key = (char *)(uintptr_t)GRPC_ARG_RESOURCE_QUOTA};
    grpc_arg args[] = {
        quota_arg,
        int_arg(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, BERTH_RPC_MESSAGE_MAX),
        int_arg(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, BERTH_RPC_MESSAGE_MAX),
        int_arg(GRPC_ARG_MAX_METADATA_SIZE, BERTH_RPC_METADATA_MAX),
        int_arg(GRPC_ARG_HTTP2_BDP_PROBE, 0),
        int_arg(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, RPC_STREAM_WINDOW),
        int_arg(GRPC_ARG_MAX_CONCURRENT_STREAMS, (int)max_streams),
        int_arg(GRPC_ARG_KEEPALIVE_TIME_MS, (int)keepalive_ms),
        int_arg(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, (int)(keepalive_ms / KEEPALIVE_TIMEOUT_PART)),
        int_arg(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1),
        int_arg(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, PING_INTERVAL_MIN_MS),
        int_arg(GRPC_ARG_ENABLE_CHANNELZ, 0),
        int_arg(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, (int)handshake_ms),
        rpc_tls_door_arg(&server->door),
    };
    grpc_channel_args channel_args = {BERTH_COUNT(args), args};

    args[0].value.pointer.p = quota;
    args[0].value.pointer.vtable = grpc_resource_quota_arg_vtable();
    grpc_resource_quota_resize(quota, memory_bytes);
    server->core = grpc_server_create(&channel_args, NULL);
    grpc_resource_quota_unref(quota);
    grpc_server_register_completion_queue(server->core, rpc_queue(), NULL);
}

static unsigned or_default(unsigned value, unsigned otherwise)
{
    return value ? value : otherwise;
}

enum berth_code berth_server_new(const struct berth_server_options *options,
                                 struct berth_server **ret, struct berth_error *err)
{
    struct berth_server *server = calloc(1, sizeof *server);
    unsigned max_queued = or_default(options->max_queued, MAX_QUEUED);
    struct rpc_acceptor_options accept = {
        .loop = options->loop,
        .max_connections = or_default(options->max_connections, MAX_CONNECTIONS),
        .private_sockets = options->peers_only && options->n_peer_uids == 0,
        .peer_uids = options->peer_uids,
        .n_peer_uids = options->n_peer_uids,
        .door = &server->door,
    };
    pthread_condattr_t monotonic;
    enum berth_code code;

    if (!server)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    server->loop = options->loop;
    server->peers_only = options->peers_only;
    server->insecure_dev = options->insecure_dev;
    server->unknown.def.path = "unknown";
    pthread_mutex_init(&server->mutex, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&server->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    make_core(server, options);
    accept.server = server->core;

    code = rpc_acceptor_new(&accept, &server->acceptor, err);
    if (!code)
        code = rpc_tls_door_init(&server->door, options->tls, options->tls_clients, err);
    if (!code)
        code = rpc_peer_sans_init(&server->peer_sans, options->peer_sans, options->n_peer_sans,
                                  err);
    if (!code)
        code = berth_pool_new("rpc", or_default(options->n_workers, N_WORKERS), max_queued,
                              &server->pool, err);
    if (!code)
        code = berth_pool_new("rpc-prio",
                              or_default(options->n_priority_workers, N_PRIORITY_WORKERS),
                              max_queued, &server->priority_pool, err);
    if (code) {
        berth_server_free(server);
        return code;
    }
    *ret = server;
    return BERTH_OK;
}

enum berth_code rpc_server_add(struct berth_server *server, const struct berth_method *method,
                               void *service, struct berth_error *err)
{
    struct rpc_method **methods, *added;

    methods = realloc(server->methods, (server->n_methods + 1) * sizeof(struct rpc_method *));
    if (!methods)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    server->methods = methods;
    added = calloc(1, sizeof *added);
    if (!added)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    added->def = *method;
    added->service = service;
    methods[server->n_methods++] = added;
    return BERTH_OK;
}

enum berth_code berth_server_add(struct berth_server *server,
                                 const struct berth_method *methods, size_t n_methods,
                                 void *service, struct berth_error *err)
{
    for (size_t i = 0; i < n_methods; i++) {
        enum berth_code code;

        if (!methods[i].unary == !methods[i].open)
            return berth_fail(err, BERTH_REASON_INTERNAL_BUG,
                              "method %s needs exactly one of unary and open", methods[i].path);
        code = rpc_server_add(server, &methods[i], service, err);
        if (code)
            return code;
    }
    return BERTH_OK;
}

enum berth_code berth_server_listen(struct berth_server *server, const char *address,
                                    int *ret_port, struct berth_error *err)
{
    return rpc_acceptor_listen(server->acceptor, address, false, ret_port, err);
}

enum berth_code berth_server_listen_tls(struct berth_server *server, const char *address,
                                        int *ret_port, struct berth_error *err)
{
    return rpc_acceptor_listen(server->acceptor, address, true, ret_port, err);
}

/* ------------------------------------------------------------------ dispatch */

static int compare_path(const char *path, const char *text, size_t len)
{
    int order = strncmp(path, text, len);

    return order ? order : path[len] != 0;
}

static struct rpc_method *find_method(struct berth_server *server, grpc_slice path)
{
    const char *text = (const char *)GRPC_SLICE_START_PTR(path);
    size_t len = GRPC_SLICE_LENGTH(path), low = 0, high = server->n_methods;

    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = compare_path(server->methods[middle]->def.path, text, len);

        if (order == 0)
            return server->methods[middle];
        if (order > 0)
            high = middle;
        else
            low = middle + 1;
    }
    return &server->unknown;
}

/* Whether the call may go on to its handler. */
static enum berth_code admit(const struct berth_call *call, struct berth_error *err)
{
    const struct berth_server *server = call->server;
    unsigned flags = call->method->def.flags;

    if (call->method == &server->unknown) {
        char *path = grpc_slice_to_c_string(call->details.method);

        (void)berth_fail(err, BERTH_REASON_METHOD_UNKNOWN, "no such method: %.200s", path);
        gpr_free(path);
        return BERTH_UNIMPLEMENTED;
    }
    if (flags & RPC_METHOD_ALWAYS)
        return BERTH_OK;
    if (atomic_load(&server->draining))
        return berth_fail(err, BERTH_REASON_DRAINING, NULL);
    if ((server->peers_only || (flags & BERTH_METHOD_PEER_ONLY)) && !call->is_peer)
        return berth_fail(err, BERTH_REASON_PEER_ONLY, NULL);
    return BERTH_OK;
}

void berth_call_admit(struct berth_call *call, enum berth_code code,
                      const struct berth_error *err)
{
    if (code) {
        rpc_unary_finish(call, code, NULL, err);
        berth_call_unref(call);
    } else if (call->method->def.unary) {
        rpc_unary_begin(call);
    } else {
        rpc_stream_begin(call);
    }
}

static void on_new(void *owner, bool ok)
{
    struct berth_call *call = owner;
    struct berth_server *server = call->server;
    struct berth_error err = {0};
    struct rpc_method *method;
    enum berth_code code;

    pthread_mutex_lock(&server->mutex);
    server->n_asked--;
    if (ok)
        server->n_live++;
    else
        pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->mutex);
    if (!ok) { /* the server shuts down */
        berth_call_unref(call);
        return;
    }
    rpc_server_ask(server);
    method = find_method(server, call->details.method);
    call->method = method;
    atomic_fetch_add_explicit(&method->metrics.in_flight, 1, memory_order_relaxed);
    rpc_call_accept(call);
    code = admit(call, &err);
    if (!code && server->gate && !(method->def.flags & RPC_METHOD_ALWAYS))
        code = server->gate->enter(server->gate->arg, call, &err);
    if (code != BERTH_DEFERRED)
        berth_call_admit(call, code, &err);
}

void rpc_server_ask(struct berth_server *server)
{
    struct berth_call *call;

    if (atomic_load(&server->shutting))
        return;
    call = rpc_call_new(server);
    if (!call)
        return; /* one fewer is asked for from here on */
    pthread_mutex_lock(&server->mutex);
    server->n_asked++;
    pthread_mutex_unlock(&server->mutex);
    call->new_tag = (struct rpc_tag){.fn = on_new, .owner = call};
    RPC_TSAN_RELEASE(&call->new_tag);
    if (grpc_server_request_call(server->core, &call->core, &call->details, &call->metadata,
                                 rpc_queue(), rpc_queue(), &call->new_tag) != GRPC_CALL_OK) {
        pthread_mutex_lock(&server->mutex);
        server->n_asked--;
        pthread_mutex_unlock(&server->mutex);
        berth_call_unref(call);
    }
}

/* -------------------------------------------------------------- start and stop */

static int compare_methods(const void *a, const void *b)
{
    const struct rpc_method *const *left = a, *const *right = b;

    return strcmp((*left)->def.path, (*right)->def.path);
}

struct start_accepting {
    struct berth_server *server;
    struct berth_error err;
    enum berth_code code;
    bool done;
};

static void start_accepting(void *arg)
{
    struct start_accepting *start = arg;
    struct berth_server *server = start->server;

    start->code = rpc_acceptor_start(server->acceptor, &start->err);
    pthread_mutex_lock(&server->mutex);
    start->done = true;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->mutex);
}

static void stop_accepting(void *arg)
{
    struct berth_server *server = arg;

    rpc_acceptor_stop(server->acceptor);
    rpc_health_drain(server);
    if (server->on_drain)
        server->on_drain(server->on_drain_arg);
    pthread_mutex_lock(&server->mutex);
    server->acceptor_stopped = true;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->mutex);
}

enum berth_code berth_server_start(struct berth_server *server, struct berth_error *err)
{
    struct start_accepting start = {.server = server};
    enum berth_code code;

    qsort(server->methods, server->n_methods, sizeof(struct rpc_method *), compare_methods);
    for (size_t i = 1; i < server->n_methods; i++)
        if (strcmp(server->methods[i - 1]->def.path, server->methods[i]->def.path) == 0)
            return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "method %s is there twice",
                              server->methods[i]->def.path);
    code = rpc_tls_door_open(&server->door, server->core, err);
    if (code)
        return code;
    if (server->door.tls && !rpc_tls_sight_add(server->door.tls, &server->peer_sans))
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "too many servers with TLS");
    grpc_server_start(server->core);
    server->started = true;
    for (int i = 0; i < N_ASKED; i++)
        rpc_server_ask(server);

    berth_loop_post(server->loop, start_accepting, &start);
    pthread_mutex_lock(&server->mutex);
    while (!start.done)
        pthread_cond_wait(&server->changed, &server->mutex);
    pthread_mutex_unlock(&server->mutex);
    if (start.code && err)
        *err = start.err;
    return start.code;
}

static void on_shutdown(void *owner, bool ok)
{
    struct berth_server *server = owner;

    (void)ok;
    pthread_mutex_lock(&server->mutex);
    server->core_stopped = true;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->mutex);
}

static void wait_for_calls(struct berth_server *server, int64_t grace_ms)
{
    int64_t end_ms = berth_tick_ms() + grace_ms;
    struct timespec end = {.tv_sec = end_ms / 1000, .tv_nsec = end_ms % 1000 * 1000000};

    pthread_mutex_lock(&server->mutex);
    while (server->n_live > 0 &&
           pthread_cond_timedwait(&server->changed, &server->mutex, &end) != ETIMEDOUT) {
    }
    pthread_mutex_unlock(&server->mutex);
}

/* The core's own notice comes earlier than the end of the last call, and what it was asked for
 * comes back, too: the server is free to go when all three have. */
void berth_server_stop(struct berth_server *server, int64_t grace_ms)
{
    if (!server->started || server->stopped)
        return;
    server->stopped = true;
    atomic_store(&server->draining, true);
    berth_loop_post(server->loop, stop_accepting, server);
    pthread_mutex_lock(&server->mutex);
    while (!server->acceptor_stopped)
        pthread_cond_wait(&server->changed, &server->mutex);
    pthread_mutex_unlock(&server->mutex);

    wait_for_calls(server, grace_ms);
    atomic_store(&server->shutting, true);
    server->shutdown_tag = (struct rpc_tag){.fn = on_shutdown, .owner = server};
    RPC_TSAN_RELEASE(&server->shutdown_tag);
    grpc_server_shutdown_and_notify(server->core, rpc_queue(), &server->shutdown_tag);
    grpc_server_cancel_all_calls(server->core);
    pthread_mutex_lock(&server->mutex);
    while (!server->core_stopped || server->n_live > 0 || server->n_asked > 0)
        pthread_cond_wait(&server->changed, &server->mutex);
    pthread_mutex_unlock(&server->mutex);
}

struct berth_server *berth_server_free(struct berth_server *server)
{
    if (!server)
        return NULL;
    berth_server_stop(server, 0);
    berth_pool_free(server->pool);
    berth_pool_free(server->priority_pool);
    rpc_acceptor_free(server->acceptor);
    grpc_server_destroy(server->core);
    rpc_tls_sight_remove(server->door.tls, &server->peer_sans);
    rpc_tls_door_deinit(&server->door);
    rpc_peer_sans_deinit(&server->peer_sans);
    rpc_health_free(server->health);
    rpc_reflection_free(server->reflection);
    for (size_t i = 0; i < server->n_methods; i++)
        free(server->methods[i]);
    free(server->methods);
    pthread_cond_destroy(&server->changed);
    pthread_mutex_destroy(&server->mutex);
    free(server);
    return NULL;
}

void berth_server_on_drain(struct berth_server *server, void (*fn)(void *arg), void *arg)
{
    server->on_drain = fn;
    server->on_drain_arg = arg;
}

void berth_server_set_gate(struct berth_server *server, const struct berth_gate *gate)
{
    server->gate = gate;
}

bool berth_server_has_gate(const struct berth_server *server)
{
    return server->gate != NULL;
}

bool berth_server_stopping(const struct berth_server *server)
{
    return atomic_load(&server->draining);
}

struct berth_pool *berth_server_pool(struct berth_server *server)
{
    return server->pool;
}

/* ------------------------------------------------------------------- metrics */

static void gauge(struct rpc_text *text, const char *name, const char *kind, const char *help,
                  uint64_t value)
{
    rpc_text_add(text, "# HELP %s %s\n# TYPE %s %s\n%s %llu\n", name, help, name, kind, name,
                 (unsigned long long)value);
}

static void tls_metrics(struct rpc_text *text, struct berth_tls *tls)
{
    struct rpc_tls_stats stats = rpc_tls_stats(tls);

    gauge(text, "berth_tls_certificate_not_after_seconds", "gauge",
          "End of our certificate, seconds since the epoch.",
          (uint64_t)stats.not_after_ms / 1000);
    gauge(text, "berth_tls_reloads_total", "counter",
          "Times that changed certificates were taken up.", stats.n_reloads);
    gauge(text, "berth_tls_reload_failures_total", "counter",
          "Looks at changed certificates that could not be used.", stats.n_failures);
}

char *berth_server_metrics(struct berth_server *server)
{
    size_t n = server->n_methods + 1;
    const char **names = calloc(n, sizeof *names);
    struct rpc_metrics **metrics = calloc(n, sizeof(struct rpc_metrics *));
    struct rpc_text text = {0};

    for (size_t i = 0; names && metrics && i < n; i++) {
        struct rpc_method *method =
            i < server->n_methods ? server->methods[i] : &server->unknown;

        names[i] = method->def.path;
        metrics[i] = &method->metrics;
    }
    if (names && metrics) {
        rpc_metrics_text(&text, names, metrics, n);
        gauge(&text, "berth_rpc_connections", "gauge", "Connections open.",
              rpc_acceptor_connections(server->acceptor));
        gauge(&text, "berth_rpc_connections_refused_total", "counter",
              "Connections closed at accept.", rpc_acceptor_refused(server->acceptor));
        gauge(&text, "berth_rpc_connections_evicted_total", "counter",
              "Idle connections closed to make room.", rpc_acceptor_evicted(server->acceptor));
        gauge(&text, "berth_rpc_connections_cut_total", "counter",
              "Connections closed for floods of frames.", rpc_frames_cut());
        gauge(&text, "berth_rpc_queued", "gauge", "Calls waiting for a worker.",
              berth_pool_queued(server->pool) + berth_pool_queued(server->priority_pool));
        gauge(&text, "berth_rpc_queued_bytes", "gauge", "Size of their requests.",
              atomic_load(&server->queued_bytes));
        gauge(&text, "berth_rpc_unread_bytes", "gauge", "Size of answers not taken yet.",
              atomic_load(&server->unread_bytes));
        gauge(&text, "berth_rpc_overloaded_total", "counter", "Calls refused for want of room.",
              atomic_load(&server->n_overloaded));
        if (server->door.tls)
            tls_metrics(&text, server->door.tls);
    }
    free(names);
    free(metrics);
    return text.data;
}
