/* first.c - a call before anything goes to the adapter: its first message is decoded and
 * checked, the session resolved, the command judged by what the route allows, and named. */
#include "services/dataplane/stream.h"

#include "common/auth/auth.h"
#include "common/fields/fields.h"
#include "common/messages/messages.h"

/* Complete the command and pack it, once: a repeat sends the very same bytes. */
static enum berth_code judge_first(struct dp_stream *s, const struct dp_policy *policy,
                                   struct berth_error *err)
{
    enum berth_code code;
    int64_t timeout_ms;

    if (!s->command)
        return BERTH_OK;
    code = dp_command_judge(s->command, s->detach, policy, &timeout_ms, err);
    if (code)
        return code;
    s->stall_ms = timeout_ms ? timeout_ms + s->dp->options.stall_ms : 0;
    s->limited = timeout_ms > 0;
    s->kept[0] = berth_buf_unref(s->kept[0]);
    s->kept[0] = berth_buf_pack(s->first);
    if (!s->kept[0]) {
        s->n_kept = 0;
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    if (berth_buf_size(s->kept[0]) > BERTH_RPC_MESSAGE_MAX)
        return berth_fail(err, BERTH_REASON_MESSAGE_TOO_LARGE, NULL);
    return BERTH_OK;
}

static void resolve_failed(struct dp_stream *s, enum berth_code code,
                           const struct berth_status *status, const struct berth_error *why)
{
    struct berth_error err = {0};

    atomic_fetch_add_explicit(&s->dp->counters.resolve_failures, 1, memory_order_relaxed);
    if (!status) {
        dp_stream_fail(s, code, why);
        return;
    }
    if (berth_status_has_reason(status)) {
        dp_stream_pass(s, status);
        return;
    }
    /* Nothing of the caller's was started: whatever broke here is safe to repeat. */
    if (status->code == BERTH_DEADLINE_EXCEEDED)
        (void)berth_fail(&err, BERTH_REASON_RESUME_TIMEOUT,
                         "the session's sandbox was not ready in time");
    else
        (void)berth_fail(&err, BERTH_REASON_PEER_UNAVAILABLE,
                         "the control plane cannot be reached");
    dp_stream_fail(s, err.code, &err);
}

static void resolved(void *arg, enum berth_code code, ProtobufCMessage *resp,
                     const struct berth_status *status, const struct berth_error *why)
{
    struct dp_stream *s = arg;
    struct dp_route route = {0};
    struct berth_error err = {0};

    s->resolve = NULL;
    if (code) {
        resolve_failed(s, code, status, why);
        dp_stream_free_if_over(s);
        return;
    }
    code = dp_route_decode(s->dp, (const Berth__Control__V1__ResolveRouteResponse *)resp,
                           &route, &err);
    protobuf_c_message_free_unpacked(resp, NULL);
    if (code == BERTH_OK)
        code = judge_first(s, &route.policy, &err);
    dp_stream_drop_first(s);
    berth_message_free(s->loss);
    s->loss = BERTH_STEAL(route.loss);
    if (code == BERTH_OK)
        code = dp_stream_open_sandbox(s, &route, &err);
    dp_route_deinit(&route);
    if (code)
        dp_stream_fail(s, code, &err);
    dp_stream_free_if_over(s);
}

void dp_stream_resolve(struct dp_stream *s)
{
    struct berth_call_options options = {.timeout_ms = s->dp->options.resolve_timeout_ms,
                                         .parent = berth_stream_call(s->caller)};
    struct berth_error err = {0};

    if (s->repeated) {
        free(s->route_req->failed_sandbox_id);
        s->route_req->failed_sandbox_id = BERTH_STEAL(s->sandbox_id);
    }
    atomic_fetch_add_explicit(&s->dp->counters.resolves, 1, memory_order_relaxed);
    s->resolve = dp_unary_start(
        s->dp, s->dp->controlplane, "/berth.control.v1.InternalService/ResolveRoute",
        &s->route_req->base, &berth__control__v1__resolve_route_response__descriptor, &options,
        resolved, s, &err);
    if (!s->resolve)
        dp_stream_fail(s, err.code, &err);
}

static Berth__Control__V1__ResolveRouteRequest *
route_req_new(const struct berth_data_request *request, Berth__Control__V1__ResolveMode mode,
              const char *only_config)
{
    Berth__Control__V1__ResolveRouteRequest *req = calloc(1, sizeof *req);

    if (!req)
        return NULL;
    berth__control__v1__resolve_route_request__init(req);
    req->mode = mode;
    req->turn_token = strdup(request->turn_token);
    req->failed_sandbox_id = strdup("");
    req->only_config = strdup(only_config);
    req->session = calloc(1, sizeof *req->session);
    if (req->session) {
        berth__common__v1__session_ref__init(req->session);
        req->session->tenant_id = strdup(request->session->tenant_id);
        req->session->session_id = strdup(request->session->session_id);
    }
    if (!req->turn_token || !req->failed_sandbox_id || !req->only_config || !req->session ||
        !req->session->tenant_id || !req->session->session_id) {
        berth__control__v1__resolve_route_request__free_unpacked(req, NULL);
        return NULL;
    }
    return req;
}

/* One more command of a tenant with a limit: s is among the streams already. */
static enum berth_code check_limit(const struct dp_stream *s, struct berth_error *err)
{
    const struct berth_principal *principal = berth_principal_of(berth_stream_call(s->caller));
    const char *tenant = s->route_req->session->tenant_id;
    size_t n = 0;

    if (!principal || principal->deployment || !principal->max_commands)
        return BERTH_OK;
    for (const struct dp_stream *other = s->dp->streams; other; other = other->next)
        n += other != s && other->exec_id && other->route_req && !other->finished &&
             strcmp(other->route_req->session->tenant_id, tenant) == 0;
    if (n < principal->max_commands)
        return BERTH_OK;
    return berth_fail(err, BERTH_REASON_QUOTA_EXCEEDED,
                      "concurrent_commands: the tenant may have %u, and has %zu",
                      principal->max_commands, n);
}

enum berth_code dp_stream_take_first(struct dp_stream *s, struct berth_buf *msg,
                                     struct berth_error *err)
{
    struct berth_data_request request;
    enum berth_code code;

    s->kept[0] = msg;
    s->n_kept = 1;
    s->repeatable = true;
    atomic_fetch_add_explicit(&s->dp->counters.bytes_in, berth_buf_size(msg),
                              memory_order_relaxed);
    code = berth_buf_decode(s->method->request, msg, &s->first, err);
    if (code == BERTH_OK)
        code = berth_call_judge(berth_stream_call(s->caller), s->first, err);
    if (code == BERTH_OK)
        code = berth_data_check(s->first, &request, err);
    if (code)
        return code;
    if (!dp_may_reach(berth_principal_of(berth_stream_call(s->caller)),
                      berth_call_is_peer(berth_stream_call(s->caller)),
                      request.session->session_id))
        return berth_fail(err, BERTH_REASON_RESERVED_KEY,
                          "session_id: sk.* is for services of the suite");
    if (request.command) {
        code = dp_command_name(request.command, err);
        if (code)
            return code;
        s->exec_id = strdup(request.command->exec_id);
        if (!s->exec_id)
            return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    s->command = request.command;
    s->detach = request.detach;
    s->route_req = route_req_new(&request, s->method->mode,
                                 berth_config_bound(berth_stream_call(s->caller)));
    if (!s->route_req)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    return s->exec_id ? check_limit(s, err) : BERTH_OK;
}
