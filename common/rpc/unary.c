/* unary.c - calls of one message each way, served by the workers. */
#include "common/rpc/buf.h"
#include "common/rpc/server.h"

enum {
    QUEUED_BYTES_MAX = 64 << 20,
    UNREAD_BYTES_MAX = 256 << 20, /* beyond it, answers of more than SMALL are not given */
    SMALL = 4 << 10,
};

static void on_finished(void *owner, bool ok)
{
    struct berth_call *call = owner;

    (void)ok; /* the caller may have gone: nothing is left to do about it */
    atomic_fetch_sub(&call->server->unread_bytes, call->unread_size);
    berth_call_unref(call);
}

static void on_close(void *owner, bool ok)
{
    struct berth_call *call = owner;

    (void)ok;
    if (call->core_cancelled)
        atomic_store(&call->cancelled, true);
    berth_call_unref(call);
}

/* A caller may open thousands of calls and read no answer: those wait in the core. */
static bool may_wait(struct berth_call *call, size_t size)
{
    atomic_size_t *unread = &call->server->unread_bytes;

    if (atomic_fetch_add(unread, size) + size <= UNREAD_BYTES_MAX || size <= SMALL) {
        call->unread_size = size;
        return true;
    }
    atomic_fetch_sub(unread, size);
    return false;
}

void rpc_unary_finish(struct berth_call *call, enum berth_code code,
                      const ProtobufCMessage *response, const struct berth_error *err)
{
    struct berth_buf *body = NULL;
    grpc_byte_buffer *bytes = NULL;
    struct berth_error failure;
    struct rpc_status status;
    grpc_metadata trailing;
    grpc_op ops[3];
    size_t n = 0;

    if (code == BERTH_OK && response)
        body = berth_buf_pack(response);
    if (code == BERTH_OK && !body) {
        code = berth_fail(&failure,
                          response ? BERTH_REASON_OUT_OF_MEMORY : BERTH_REASON_INTERNAL_BUG,
                          response ? NULL : "the handler gave no response");
        err = &failure;
    } else if (body && berth_buf_size(body) > BERTH_RPC_MESSAGE_MAX) {
        code = berth_fail(&failure, BERTH_REASON_MESSAGE_TOO_LARGE,
                          "the response has %zu bytes, more than %d", berth_buf_size(body),
                          BERTH_RPC_MESSAGE_MAX);
        err = &failure;
        body = berth_buf_unref(body);
    }
    if (body && !may_wait(call, berth_buf_size(body))) {
        code = berth_fail(&failure, BERTH_REASON_OVERLOADED, "too many answers are not read");
        err = &failure;
        body = berth_buf_unref(body);
    }
    rpc_status_encode(code, err, call->method->def.path, call->request_id, &status);
    rpc_call_note_end(call, status.code, err, err ? err->text : "");
    rpc_call_initial_op(call, &ops[n++]);
    if (body) {
        bytes = rpc_buf_bytes(body);
        ops[n] = (grpc_op){.op = GRPC_OP_SEND_MESSAGE};
        ops[n++].data.send_message.send_message = bytes;
    }
    rpc_call_status_op(call, &status, &trailing, &ops[n++]);
    call->finish_tag = (struct rpc_tag){.fn = on_finished, .owner = berth_call_ref(call)};
    rpc_start_batch(call->core, ops, n, &call->finish_tag);
    if (bytes)
        grpc_byte_buffer_destroy(bytes);
    berth_buf_unref(body);
    rpc_status_deinit(&status);
}

static enum berth_code decode_request(struct berth_call *call, struct berth_error *err)
{
    struct berth_buf *buf = rpc_buf_take(BERTH_STEAL(call->received));
    enum berth_code code;

    if (!buf)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    code = berth_buf_decode(call->method->def.request, buf, &call->request, err);
    berth_buf_unref(buf);
    return code;
}

/* On a worker, or of a quick method on the queue's thread. Takes one ref. */
static void serve(void *arg)
{
    struct berth_call *call = arg;
    const struct rpc_method *method = call->method;
    ProtobufCMessage *response = NULL;
    struct berth_error err = {0};
    enum berth_code code;

    atomic_fetch_sub(&call->server->queued_bytes, call->queued_size);
    if (atomic_load(&call->cancelled))
        code = berth_fail(&err, BERTH_REASON_CANCELLED, "gone before a worker was free");
    else
        code = decode_request(call, &err);
    if (!code)
        code = berth_call_judge(call, call->request, &err);
    if (!code)
        code = method->def.unary(method->service, call, call->request, &response, &err);
    if (code != BERTH_DEFERRED && !atomic_exchange(&call->answered, true))
        rpc_unary_finish(call, code, response, &err);
    if (response)
        protobuf_c_message_free_unpacked(response, NULL);
    berth_call_unref(call);
}

void berth_call_answer(struct berth_call *call, enum berth_code code, ProtobufCMessage *resp,
                       const struct berth_error *err)
{
    if (!atomic_exchange(&call->answered, true))
        rpc_unary_finish(call, code, resp, err);
    if (resp)
        protobuf_c_message_free_unpacked(resp, NULL);
    berth_call_unref(call);
}

static void on_request(void *owner, bool ok)
{
    struct berth_call *call = owner;
    struct berth_server *server = call->server;
    unsigned flags = call->method->def.flags;
    bool priority = flags & BERTH_METHOD_PRIORITY;
    struct berth_error err = {0};
    enum berth_code code = BERTH_OK;

    if (!ok || !call->received)
        code = atomic_load(&call->cancelled)
                   ? berth_fail(&err, BERTH_REASON_CANCELLED, NULL)
                   : berth_fail(&err, BERTH_REASON_FIELD_INVALID, "no request message");
    if (!code && (flags & BERTH_METHOD_QUICK)) {
        serve(call);
        return;
    }
    if (!code) {
        call->queued_size = grpc_byte_buffer_length(call->received);
        if (atomic_fetch_add(&server->queued_bytes, call->queued_size) + call->queued_size >
                QUEUED_BYTES_MAX &&
            !priority)
            code = berth_fail(&err, BERTH_REASON_OVERLOADED, "too many bytes are queued");
        else
            code = berth_pool_submit_entry(priority ? server->priority_pool : server->pool,
                                           &call->work, serve, call, &err);
        if (!code)
            return;
        atomic_fetch_sub(&server->queued_bytes, call->queued_size);
        atomic_fetch_add(&server->n_overloaded, 1);
    }
    rpc_unary_finish(call, code, NULL, &err);
    berth_call_unref(call);
}

void rpc_unary_begin(struct berth_call *call)
{
    grpc_op close = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};
    grpc_op receive = {.op = GRPC_OP_RECV_MESSAGE};

    close.data.recv_close_on_server.cancelled = &call->core_cancelled;
    call->close_tag = (struct rpc_tag){.fn = on_close, .owner = berth_call_ref(call)};
    rpc_start_batch(call->core, &close, 1, &call->close_tag);
    receive.data.recv_message.recv_message = &call->received;
    call->receive_tag = (struct rpc_tag){.fn = on_request, .owner = call};
    rpc_start_batch(call->core, &receive, 1, &call->receive_tag);
}
