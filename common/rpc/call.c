/* call.c - one call on the server: its life, and what a handler may ask about it. */
#include <limits.h>
#include <stdio.h>

#include "common/log/log.h"
#include "common/rpc/frames.h"
#include "common/rpc/server.h"
#include "common/time/time.h"

enum { LOGGED_PER_SECOND_MAX = 200 };

struct berth_call *rpc_call_new(struct berth_server *server)
{
    struct berth_call *call = calloc(1, sizeof *call);

    if (!call)
        return NULL;
    call->server = server;
    atomic_init(&call->refs, 1);
    grpc_call_details_init(&call->details);
    grpc_metadata_array_init(&call->metadata);
    return call;
}

struct berth_call *berth_call_ref(struct berth_call *call)
{
    atomic_fetch_add_explicit(&call->refs, 1, memory_order_relaxed);
    return call;
}

struct berth_call *berth_call_unref(struct berth_call *call)
{
    struct berth_server *server = call->server;
    bool accepted = call->method != NULL;

    if (atomic_fetch_sub_explicit(&call->refs, 1, memory_order_acq_rel) != 1)
        return NULL;
    if (call->user)
        call->release_user(call->user);
    if (accepted)
        rpc_frames_call_ended(call->fd, call->connection);
    if (call->request)
        protobuf_c_message_free_unpacked(call->request, NULL);
    if (call->received)
        grpc_byte_buffer_destroy(call->received);
    for (size_t i = 0; i < BERTH_COUNT(call->answer); i++) {
        if (call->answer[i])
            rpc_call_metadata_deinit(call->answer[i]);
        free(call->answer[i]);
    }
    grpc_metadata_array_destroy(&call->metadata);
    grpc_call_details_destroy(&call->details);
    if (call->core)
        grpc_call_unref(call->core);
    free(call->peer_name);
    free(call);
    if (!accepted)
        return NULL;
    pthread_mutex_lock(&server->mutex);
    if (--server->n_live == 0)
        pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->mutex);
    return NULL;
}

static char *name_uid(unsigned uid)
{
    char *name = NULL;

    if (uid == UINT_MAX || asprintf(&name, "uid:%u", uid) < 0)
        return NULL;
    return name;
}

/* "fd:17" says which connection it came over, see accept.h; only TLS has other names. */
static void identify(struct berth_call *call)
{
    struct berth_server *server = call->server;
    char *name = grpc_call_get_peer(call->core);
    bool has_fd = strncmp(name, "fd:", 3) == 0;
    int fd = has_fd ? (int)strtol(name + 3, NULL, 10) : -1;

    gpr_free(name);
    if (!has_fd) {
        call->peer_name = rpc_tls_caller(call->core, &server->peer_sans, &call->is_peer);
    } else if (fd >= rpc_peer_fd_base()) {
        call->is_peer = true;
        call->peer_name = name_uid(rpc_acceptor_peer_uid(server->acceptor, fd));
    }
    call->fd = has_fd && fd < rpc_peer_fd_base() ? fd : -1;
    call->connection = rpc_frames_call_begun(call->fd);
    call->is_peer = call->is_peer || server->insecure_dev;
}

void rpc_call_accept(struct berth_call *call)
{
    const char *given;
    size_t given_size = 0;

    call->start_ns = berth_tick_ns();
    identify(call);
    given = berth_call_metadata(call, "traceparent", &given_size);
    rpc_trace_begin(given, given_size, call->traceparent, call->request_id);
}

int64_t berth_call_left_ms(const struct berth_call *call)
{
    gpr_timespec deadline = gpr_convert_clock_type(call->details.deadline, GPR_CLOCK_MONOTONIC);
    int64_t left_ms;

    if (gpr_time_cmp(deadline, gpr_inf_future(GPR_CLOCK_MONOTONIC)) == 0)
        return INT64_MAX;
    left_ms = gpr_time_to_millis(gpr_time_sub(deadline, gpr_now(GPR_CLOCK_MONOTONIC)));
    return left_ms > 0 ? left_ms : 0;
}

bool berth_call_cancelled(const struct berth_call *call)
{
    return atomic_load(&call->cancelled);
}

bool berth_call_is_peer(const struct berth_call *call)
{
    return call->is_peer;
}

const char *berth_call_peer_name(const struct berth_call *call)
{
    return call->peer_name ? call->peer_name : "";
}

const void *berth_call_metadata(const struct berth_call *call, const char *key,
                                size_t *ret_size)
{
    return rpc_metadata_find(&call->metadata, key, ret_size);
}

size_t berth_call_metadata_count(const struct berth_call *call, const char *key)
{
    size_t n = 0;

    for (size_t i = 0; i < call->metadata.count; i++)
        n += rpc_slice_is(call->metadata.metadata[i].key, key);
    return n;
}

const char *berth_call_path(const struct berth_call *call)
{
    return call->method->def.path;
}

void berth_call_set_user(struct berth_call *call, void *user, void (*release)(void *user))
{
    call->user = user;
    call->release_user = release;
}

void *berth_call_user(const struct berth_call *call)
{
    return call->user;
}

enum berth_code berth_call_judge(struct berth_call *call, const ProtobufCMessage *request,
                                 struct berth_error *err)
{
    const struct berth_gate *gate = call->server->gate;

    return gate ? gate->judge(gate->arg, call, request, err) : BERTH_OK;
}

const char *berth_call_request_id(const struct berth_call *call)
{
    return call->request_id;
}

const char *berth_call_traceparent(const struct berth_call *call)
{
    return call->traceparent;
}

/* Who has to look: nobody (the caller's own doing), perhaps, or us. */
static enum berth_log_level level_of(enum berth_code code)
{
    switch (code) {
    case BERTH_INTERNAL:
    case BERTH_DATA_LOSS:
        return BERTH_LOG_ERROR;
    case BERTH_UNKNOWN:
    case BERTH_UNAVAILABLE:
    case BERTH_RESOURCE_EXHAUSTED:
    case BERTH_DEADLINE_EXCEEDED:
        return BERTH_LOG_WARN;
    default:
        return BERTH_LOG_INFO;
    }
}

/* False: the second's share of log lines is used up. *ret_missed: lines left out before. */
static bool may_log(struct berth_server *server, unsigned *ret_missed)
{
    int64_t second = berth_tick_ms() / 1000;
    bool may;

    pthread_mutex_lock(&server->mutex);
    *ret_missed = 0;
    if (second != server->log_second) {
        server->log_second = second;
        server->n_logged = 0;
        *ret_missed = server->n_not_logged;
        server->n_not_logged = 0;
    }
    may = server->n_logged < LOGGED_PER_SECOND_MAX;
    if (may)
        server->n_logged++;
    else
        server->n_not_logged++;
    pthread_mutex_unlock(&server->mutex);
    return may;
}

void rpc_call_note_end(struct berth_call *call, enum berth_code code,
                       const struct berth_error *err, const char *text)
{
    int64_t ns = berth_tick_ns() - call->start_ns;
    char ms[32], trace[33];
    unsigned n_missed;

    rpc_metrics_done((struct rpc_metrics *)&call->method->metrics, (unsigned)code, ns);
    if (code == BERTH_OK || !may_log(call->server, &n_missed))
        return;
    if (n_missed)
        berth_warn("too many failed calls to log, left out", "lines", BERTH_I64(n_missed));
    snprintf(ms, sizeof ms, "%.3f", (double)ns / 1e6);
    berth_log(level_of(code), "call failed", "method", call->method->def.path, "code",
              berth_code_name(code), "reason", berth_reason_name(err ? err->reason : 0),
              "resource", err ? err->resource : "", "text", text, "caller",
              berth_call_peer_name(call), "request_id", call->request_id, "trace",
              rpc_trace_id(call->traceparent, trace), "ms", ms, (char *)NULL);
}

enum berth_code berth_call_add_metadata(struct berth_call *call, enum berth_metadata_kind kind,
                                        const struct berth_metadata *entry,
                                        struct berth_error *err)
{
    struct rpc_call_metadata **answer = &call->answer[kind];

    if (!*answer && !(*answer = calloc(1, sizeof **answer)))
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if ((*answer)->n == RPC_CALL_METADATA_MAX)
        return berth_fail(err, BERTH_REASON_FIELD_INVALID, "more than %d entries of metadata",
                          RPC_CALL_METADATA_MAX);
    if (strncmp(entry->key, "grpc-", 5) == 0)
        return berth_fail(err, BERTH_REASON_FIELD_INVALID, "metadata '%.64s' is the protocol's",
                          entry->key);
    return rpc_call_metadata_add(*answer, entry, err);
}

void rpc_call_initial_op(const struct berth_call *call, grpc_op *op)
{
    struct rpc_call_metadata *answer = call->answer[BERTH_METADATA_INITIAL];

    *op = (grpc_op){.op = GRPC_OP_SEND_INITIAL_METADATA};
    if (!answer)
        return;
    op->data.send_initial_metadata.metadata = answer->entries;
    op->data.send_initial_metadata.count = answer->n;
}

void rpc_call_status_op(const struct berth_call *call, const struct rpc_status *status,
                        grpc_metadata *trailing, grpc_op *op)
{
    struct rpc_call_metadata *answer = call->answer[BERTH_METADATA_TRAILING];
    size_t n = answer ? answer->n : 0;

    *op = (grpc_op){.op = GRPC_OP_SEND_STATUS_FROM_SERVER};
    op->data.send_status_from_server.status = (grpc_status_code)status->code;
    op->data.send_status_from_server.status_details = (grpc_slice *)&status->message;
    if (answer)
        trailing = answer->entries;
    if (GRPC_SLICE_LENGTH(status->details) > 0)
        trailing[n++] =
            (grpc_metadata){.key = grpc_slice_from_static_string(RPC_DETAILS_KEY),
                            .value = status->details}; /* borrowed: not counted in answer->n */
    op->data.send_status_from_server.trailing_metadata = trailing;
    op->data.send_status_from_server.trailing_metadata_count = n;
}
