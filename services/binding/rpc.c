/* rpc.c - BindingService: decode, check, ask core, store, encode. No rules live here. */
#include "services/binding/binding.h"

#include <stdio.h>

#include "common/fields/fields.h"
#include "common/ids/ids.h"
#include "services/binding/decode.h"
#include "services/binding/encode.h"

enum berth_code binding_new(const struct binding_options *options, struct binding **ret,
                            struct berth_error *err)
{
    BERTH_AUTO(binding_free) struct binding *binding = calloc(1, sizeof *binding);
    enum berth_code code;

    if (!binding)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    binding->server = options->server;
    binding->max_wait_ms = options->max_wait_ms;
    code = binding_store_new(&options->store, &binding->store, err);
    if (!code)
        code = binding_park_new(
            &(struct binding_park_options){.pool = options->pool,
                                           .look = binding_look,
                                           .ctx = binding,
                                           .max_waiters = options->max_waiters},
            &binding->park, err);
    if (code)
        return code;
    *ret = BERTH_STEAL(binding);
    return BERTH_OK;
}

struct binding *binding_free(struct binding *binding)
{
    if (!binding)
        return NULL;
    binding_park_free(binding->park);
    binding_store_free(binding->store);
    berth_redis_free(binding->redis);
    free(binding);
    return NULL;
}

char *binding_metrics(struct binding *binding)
{
    BERTH_AUTO(free) char *losses = binding_loss_metrics(binding);
    char *text = NULL;
    int len;

    len = asprintf(
        &text,
        "# HELP berth_binding_acquires_total Acquires by how they were answered.\n"
        "# TYPE berth_binding_acquires_total counter\n"
        "berth_binding_acquires_total{answer=\"used\"} %llu\n"
        "berth_binding_acquires_total{answer=\"granted\"} %llu\n"
        "berth_binding_acquires_total{answer=\"gave_up\"} %llu\n"
        "# HELP berth_binding_lock_waits_total Acquires that had to wait for a lock.\n"
        "# TYPE berth_binding_lock_waits_total counter\n"
        "berth_binding_lock_waits_total %llu\n"
        "# HELP berth_binding_locks_lost_total Holders that found their lock lost: what they "
        "did under it did not "
        "count. From 0 with each process.\n"
        "# TYPE berth_binding_locks_lost_total counter\n"
        "berth_binding_locks_lost_total %llu\n"
        "# HELP berth_binding_waiters Callers that wait for a lock now.\n"
        "# TYPE berth_binding_waiters gauge\n"
        "berth_binding_waiters %zu\n"
        "# HELP berth_binding_quarantine 1 while nothing is created after a failover.\n"
        "# TYPE berth_binding_quarantine gauge\n"
        "berth_binding_quarantine %d\n%s",
        atomic_load(&binding->n_used), atomic_load(&binding->n_granted),
        atomic_load(&binding->n_gave_up), atomic_load(&binding->n_waited),
        atomic_load(&binding->n_lost), binding_park_count(binding->park),
        binding_store_quarantined(binding->store), losses ? losses : "");
    return len < 0 ? NULL : text;
}

/* An empty message of a type, heap-built. NULL: no memory. */
static void *new_message(const ProtobufCMessageDescriptor *type)
{
    ProtobufCMessage *message = malloc(type->sizeof_message);

    if (message)
        protobuf_c_message_init(type, message);
    return message;
}

static enum berth_code no_memory(struct berth_error *err)
{
    return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
}

/* Give message (taken) as the answer if it is whole. */
static enum berth_code reply(void *message, bool whole, ProtobufCMessage **ret_resp,
                             struct berth_error *err)
{
    if (message && whole) {
        *ret_resp = message;
        return BERTH_OK;
    }
    if (message)
        protobuf_c_message_free_unpacked(message, NULL);
    return no_memory(err);
}

/* -------------------------------------------------------------------- under the lock */

struct commit_arg {
    const struct binding_change *change;
    enum berth_reason *refused;
};

static enum berth_code commit_rule(void *arg, struct binding_view *view,
                                   struct binding_plan *plan, struct berth_error *err)
{
    const struct commit_arg *commit_arg = arg;

    return binding_commit(view, commit_arg->change, plan, commit_arg->refused, err);
}

static enum berth_code run_commit(struct binding *binding,
                                  const struct binding_commit_request *request,
                                  ProtobufCMessage **ret_resp, struct berth_error *err)
{
    enum berth_reason refused = BERTH_REASON_NONE;
    struct commit_arg arg = {&request->change, &refused};
    Berth__Binding__V1__CommitResponse *out;
    struct binding_view view;
    struct binding_plan plan = {0};
    bool whole = true;
    enum berth_code code;

    code =
        binding_store_run(binding->store, &request->ref, commit_rule, &arg, &view, &plan, err);
    if (code)
        return code;
    binding_report_loss(binding, &request->ref, &view, &plan);
    if (!request->change.keep_lock)
        binding_wake(binding, &request->ref);
    if (refused) {
        code = berth_fail(err, refused,
                          "the sandbox was condemned: the session is being "
                          "deleted");
    } else {
        out = new_message(&berth__binding__v1__commit_response__descriptor);
        if (out && view.doc.bound.set) {
            out->binding = binding_encode_bound(&view.doc.bound, true);
            whole = out->binding != NULL;
        }
        if (out && whole && binding_loss_pending(&view.doc)) {
            out->loss = binding_encode_loss(&view.doc.loss);
            whole = out->loss != NULL;
        }
        code = reply(out, whole, ret_resp, err);
    }
    binding_plan_deinit(&plan);
    binding_view_deinit(&view);
    return code;
}

static enum berth_code commit(void *service, struct berth_call *call,
                              const ProtobufCMessage *req, ProtobufCMessage **ret_resp,
                              struct berth_error *err)
{
    struct binding *binding = service;
    struct binding_commit_request request;
    struct berth_error why = {0};
    enum berth_code code;

    (void)call;
    code =
        binding_decode_commit((const Berth__Binding__V1__CommitRequest *)req, &request, &why);
    if (!code)
        code = run_commit(binding, &request, ret_resp, &why);
    binding_commit_request_deinit(&request);
    if (code && why.reason == BERTH_REASON_LOCK_LOST)
        atomic_fetch_add(&binding->n_lost, 1);
    if (code && err)
        *err = why;
    return code;
}

static enum berth_code abort_rule(void *arg, struct binding_view *view,
                                  struct binding_plan *plan, struct berth_error *err)
{
    const struct binding_lock_ref *lock = arg;

    return binding_abort(view, lock->token, lock->fence, plan, err);
}

static enum berth_code abort_lock(void *service, struct berth_call *call,
                                  const ProtobufCMessage *message, ProtobufCMessage **ret_resp,
                                  struct berth_error *err)
{
    const Berth__Binding__V1__AbortRequest *req =
        (const Berth__Binding__V1__AbortRequest *)message;
    struct binding *binding = service;
    struct binding_lock_ref lock;
    struct binding_ref ref;
    struct binding_view view;
    struct binding_plan plan = {0};
    enum berth_code code = binding_decode_ref(req->session, &ref, err);

    (void)call;
    if (!code)
        code = binding_decode_lock(req->lock, &lock, err);
    if (!code)
        code = binding_store_run(binding->store, &ref, abort_rule, &lock, &view, &plan, err);
    if (code)
        return code;
    binding_wake(binding, &ref);
    binding_plan_deinit(&plan);
    binding_view_deinit(&view);
    return reply(new_message(&berth__binding__v1__abort_response__descriptor), true, ret_resp,
                 err);
}

static enum berth_code renew_lock_rule(void *arg, struct binding_view *view,
                                       struct binding_plan *plan, struct berth_error *err)
{
    const struct binding_lock_ref *lock = arg;

    return binding_renew_lock(view, lock->token, lock->fence, plan, err);
}

static enum berth_code renew_lock(void *service, struct berth_call *call,
                                  const ProtobufCMessage *message, ProtobufCMessage **ret_resp,
                                  struct berth_error *err)
{
    const Berth__Binding__V1__RenewLockRequest *req =
        (const Berth__Binding__V1__RenewLockRequest *)message;
    struct binding *binding = service;
    Berth__Binding__V1__RenewLockResponse *out;
    struct binding_lock_ref lock;
    struct binding_ref ref;
    struct binding_view view;
    struct binding_plan plan = {0};
    struct berth_error why = {0};
    enum berth_code code = binding_decode_ref(req->session, &ref, &why);

    (void)call;
    if (!code)
        code = binding_decode_lock(req->lock, &lock, &why);
    if (!code)
        code =
            binding_store_run(binding->store, &ref, renew_lock_rule, &lock, &view, &plan, &why);
    if (code) {
        if (why.reason == BERTH_REASON_LOCK_LOST)
            atomic_fetch_add(&binding->n_lost, 1);
        if (err)
            *err = why;
        return code;
    }
    out = new_message(&berth__binding__v1__renew_lock_response__descriptor);
    if (out)
        out->lock = binding_encode_lock(&view);
    binding_plan_deinit(&plan);
    binding_view_deinit(&view);
    return reply(out, out && out->lock, ret_resp, err);
}

/* ------------------------------------------------------------------------- records */

static enum berth_code get_rule(void *arg, struct binding_view *view, struct binding_plan *plan,
                                struct berth_error *err)
{
    (void)arg;
    (void)plan;
    if (view->doc.session.state == BINDING_STATE_NONE)
        return berth_fail(err, BERTH_REASON_SESSION_NOT_FOUND, NULL);
    return BERTH_OK;
}

static enum berth_code get_binding(void *service, struct berth_call *call,
                                   const ProtobufCMessage *message, ProtobufCMessage **ret_resp,
                                   struct berth_error *err)
{
    const Berth__Binding__V1__GetBindingRequest *req =
        (const Berth__Binding__V1__GetBindingRequest *)message;
    struct binding *binding = service;
    struct binding_ref ref;
    struct binding_view view;
    struct binding_plan plan = {0};
    enum berth_code code = binding_decode_ref(req->session, &ref, err);

    (void)call;
    if (!code)
        code = binding_store_run(binding->store, &ref, get_rule, NULL, &view, &plan, err);
    if (code)
        return code;
    code = binding_encode_get(&ref, &view, ret_resp, err);
    binding_plan_deinit(&plan);
    binding_view_deinit(&view);
    return code;
}

static enum berth_code update_rule(void *arg, struct binding_view *view,
                                   struct binding_plan *plan, struct berth_error *err)
{
    const Berth__Binding__V1__UpdateSessionRequest *req = arg;

    return binding_update_session(view, req->version, req->spec, plan, err);
}

static enum berth_code update_session(void *service, struct berth_call *call,
                                      const ProtobufCMessage *message,
                                      ProtobufCMessage **ret_resp, struct berth_error *err)
{
    const Berth__Binding__V1__UpdateSessionRequest *req =
        (const Berth__Binding__V1__UpdateSessionRequest *)message;
    struct binding *binding = service;
    Berth__Binding__V1__UpdateSessionResponse *out;
    struct binding_ref ref;
    struct binding_view view;
    struct binding_plan plan = {0};
    enum berth_code code = binding_decode_ref(req->session, &ref, err);

    (void)call;
    if (!code)
        code = berth_check_present("spec", req->spec, err);
    if (!code)
        code = binding_check_spec("spec", req->spec, err);
    if (!code)
        code = binding_store_run(binding->store, &ref, update_rule, (void *)req, &view, &plan,
                                 err);
    if (code)
        return code;
    out = new_message(&berth__binding__v1__update_session_response__descriptor);
    if (out)
        out->session = binding_encode_record(&ref, &view.doc);
    binding_plan_deinit(&plan);
    binding_view_deinit(&view);
    return reply(out, out && out->session, ret_resp, err);
}

static enum berth_code reseal_rule(void *arg, struct binding_view *view,
                                   struct binding_plan *plan, struct berth_error *err)
{
    const Berth__Binding__V1__ResealEndpointRequest *req = arg;

    (void)plan;
    return binding_reseal(view, req->sealed_before.data, req->sealed_before.len,
                          req->sealed_endpoint.data, req->sealed_endpoint.len, err);
}

static enum berth_code check_sealed(const char *field, size_t size, struct berth_error *err)
{
    if (size == 0 || size > BINDING_ENDPOINT_MAX)
        return berth_fail_field(err, field, "must have 1 to %d bytes", BINDING_ENDPOINT_MAX);
    return BERTH_OK;
}

static enum berth_code reseal_endpoint(void *service, struct berth_call *call,
                                       const ProtobufCMessage *message,
                                       ProtobufCMessage **ret_resp, struct berth_error *err)
{
    const Berth__Binding__V1__ResealEndpointRequest *req =
        (const Berth__Binding__V1__ResealEndpointRequest *)message;
    struct binding *binding = service;
    struct binding_ref ref;
    struct binding_view view;
    struct binding_plan plan = {0};
    enum berth_code code = binding_decode_ref(req->session, &ref, err);

    (void)call;
    if (!code)
        code = check_sealed("sealed_before", req->sealed_before.len, err);
    if (!code)
        code = check_sealed("sealed_endpoint", req->sealed_endpoint.len, err);
    if (!code)
        code = binding_store_run(binding->store, &ref, reseal_rule, (void *)req, &view, &plan,
                                 err);
    if (code)
        return code;
    binding_plan_deinit(&plan);
    binding_view_deinit(&view);
    return reply(new_message(&berth__binding__v1__reseal_endpoint_response__descriptor), true,
                 ret_resp, err);
}

/* --------------------------------------------------------------------------- turns */

struct turn_arg {
    const char *id; /* of the turn, or its token */
    const char *sandbox_id;
    const char *secret;
    int64_t lease_ms;
    bool end;
};

static enum berth_code begin_rule(void *arg, struct binding_view *view,
                                  struct binding_plan *plan, struct berth_error *err)
{
    const struct turn_arg *turn = arg;

    return binding_begin_turn(view, turn->id, turn->lease_ms, turn->secret, plan, err);
}

static enum berth_code renew_rule(void *arg, struct binding_view *view,
                                  struct binding_plan *plan, struct berth_error *err)
{
    const struct turn_arg *turn = arg;

    return binding_renew_turn(view, turn->id, plan, err);
}

static enum berth_code end_rule(void *arg, struct binding_view *view, struct binding_plan *plan,
                                struct berth_error *err)
{
    const struct turn_arg *turn = arg;

    return binding_end_turn(view, turn->id, plan, err);
}

static enum berth_code use_rule(void *arg, struct binding_view *view, struct binding_plan *plan,
                                struct berth_error *err)
{
    const struct turn_arg *turn = arg;

    return binding_renew_use(view, turn->id, turn->sandbox_id, turn->end, plan, err);
}

/* Run a rule whose answer is an end (and for begin a token). */
static enum berth_code run_turn(struct binding *binding, const struct binding_ref *ref,
                                binding_rule_fn rule, struct turn_arg *arg, char *ret_token,
                                int64_t *ret_expire_ms, struct berth_error *err)
{
    struct binding_view view;
    struct binding_plan plan = {0};
    enum berth_code code = binding_store_run(binding->store, ref, rule, arg, &view, &plan, err);

    if (code)
        return code;
    if (ret_token)
        memcpy(ret_token, plan.turn_token, sizeof plan.turn_token);
    if (ret_expire_ms)
        *ret_expire_ms = plan.expire_ms;
    binding_plan_deinit(&plan);
    binding_view_deinit(&view);
    return BERTH_OK;
}

static enum berth_code begin_turn(void *service, struct berth_call *call,
                                  const ProtobufCMessage *message, ProtobufCMessage **ret_resp,
                                  struct berth_error *err)
{
    const Berth__Binding__V1__BeginTurnRequest *req =
        (const Berth__Binding__V1__BeginTurnRequest *)message;
    struct binding *binding = service;
    char secret[BINDING_SECRET_LEN + 1], token[BINDING_TOKEN_MAX + 1];
    struct turn_arg arg = {.id = req->turn_id,
                           .secret = berth_id_base36(secret, BINDING_SECRET_LEN)};
    Berth__Binding__V1__BeginTurnResponse *out;
    struct binding_ref ref;
    int64_t expire_ms = 0;
    enum berth_code code = binding_decode_ref(req->session, &ref, err);

    (void)call;
    if (!code)
        code = berth_check_id("turn_id", req->turn_id, err);
    if (!code)
        code = binding_decode_lease("lease", req->lease, binding_store_limits(binding->store),
                                    &arg.lease_ms, err);
    if (!code)
        code = run_turn(binding, &ref, begin_rule, &arg, token, &expire_ms, err);
    if (code)
        return code;
    out = new_message(&berth__binding__v1__begin_turn_response__descriptor);
    if (!out)
        return no_memory(err);
    out->turn_token = strdup(token);
    if (!out->turn_token)
        out->turn_token = (char *)protobuf_c_empty_string;
    out->expire_time = binding_encode_time(expire_ms);
    return reply(out, out->turn_token[0] && out->expire_time, ret_resp, err);
}

static enum berth_code renew_turn(void *service, struct berth_call *call,
                                  const ProtobufCMessage *message, ProtobufCMessage **ret_resp,
                                  struct berth_error *err)
{
    const Berth__Binding__V1__RenewTurnRequest *req =
        (const Berth__Binding__V1__RenewTurnRequest *)message;
    struct turn_arg arg = {.id = req->turn_token};
    Berth__Binding__V1__RenewTurnResponse *out;
    struct binding_ref ref;
    int64_t expire_ms = 0;
    enum berth_code code = binding_decode_ref(req->session, &ref, err);

    (void)call;
    if (!code)
        code = binding_check_token("turn_token", req->turn_token, false, err);
    if (!code)
        code = run_turn(service, &ref, renew_rule, &arg, NULL, &expire_ms, err);
    if (code)
        return code;
    out = new_message(&berth__binding__v1__renew_turn_response__descriptor);
    if (out)
        out->expire_time = binding_encode_time(expire_ms);
    return reply(out, out && out->expire_time, ret_resp, err);
}

static enum berth_code end_turn(void *service, struct berth_call *call,
                                const ProtobufCMessage *message, ProtobufCMessage **ret_resp,
                                struct berth_error *err)
{
    const Berth__Binding__V1__EndTurnRequest *req =
        (const Berth__Binding__V1__EndTurnRequest *)message;
    struct turn_arg arg = {.id = req->turn_token};
    struct binding_ref ref;
    enum berth_code code = binding_decode_ref(req->session, &ref, err);

    (void)call;
    if (!code)
        code = binding_check_token("turn_token", req->turn_token, false, err);
    if (!code)
        code = run_turn(service, &ref, end_rule, &arg, NULL, NULL, err);
    if (code)
        return code;
    return reply(new_message(&berth__binding__v1__end_turn_response__descriptor), true,
                 ret_resp, err);
}

static enum berth_code renew_use(void *service, struct berth_call *call,
                                 const ProtobufCMessage *message, ProtobufCMessage **ret_resp,
                                 struct berth_error *err)
{
    const Berth__Binding__V1__RenewUseRequest *req =
        (const Berth__Binding__V1__RenewUseRequest *)message;
    struct turn_arg arg = {
        .id = req->use_token, .sandbox_id = req->sandbox_id, .end = req->end};
    Berth__Binding__V1__RenewUseResponse *out;
    struct binding_ref ref;
    int64_t expire_ms = 0;
    enum berth_code code = binding_decode_ref(req->session, &ref, err);

    (void)call;
    if (!code)
        code = berth_check_id("use_token", req->use_token, err);
    if (!code)
        code = binding_check_sandbox_id("sandbox_id", req->sandbox_id, req->end, err);
    if (!code)
        code = run_turn(service, &ref, use_rule, &arg, NULL, &expire_ms, err);
    if (code)
        return code;
    out = new_message(&berth__binding__v1__renew_use_response__descriptor);
    if (out)
        out->expire_time = binding_encode_time(expire_ms);
    return reply(out, out && out->expire_time, ret_resp, err);
}

#define METHOD(name, type, handler, more)                                                      \
    {                                                                                          \
        .path = "/berth.binding.v1.BindingService/" name,                                      \
        .request = &berth__binding__v1__##type##_request__descriptor, .unary = handler,        \
        .flags = BERTH_METHOD_PEER_ONLY | (more)                                               \
    }

const struct berth_method binding_methods[] = {
    METHOD("Acquire", acquire, binding_rpc_acquire, 0),
    METHOD("Commit", commit, commit, BERTH_METHOD_PRIORITY),
    METHOD("Abort", abort, abort_lock, BERTH_METHOD_PRIORITY),
    METHOD("RenewLock", renew_lock, renew_lock, BERTH_METHOD_PRIORITY),
    METHOD("GetBinding", get_binding, get_binding, 0),
    METHOD("ListBindings", list_bindings, binding_rpc_list, 0),
    METHOD("RenewUse", renew_use, renew_use, 0),
    METHOD("ListDue", list_due, binding_rpc_list_due, 0),
    METHOD("BeginTurn", begin_turn, begin_turn, 0),
    METHOD("RenewTurn", renew_turn, renew_turn, 0),
    METHOD("EndTurn", end_turn, end_turn, BERTH_METHOD_PRIORITY),
    METHOD("ForgetCarry", forget_carry, binding_rpc_forget_carry, BERTH_METHOD_PRIORITY),
    METHOD("LossTold", loss_told, binding_rpc_loss_told, BERTH_METHOD_PRIORITY),
    METHOD("UpdateSession", update_session, update_session, 0),
    METHOD("ResealEndpoint", reseal_endpoint, reseal_endpoint, 0),
    METHOD("FindSession", find_session, binding_rpc_find, 0),
    METHOD("MarkStale", mark_stale, binding_rpc_mark_stale, 0),
};
const size_t n_binding_methods = BERTH_COUNT(binding_methods);
