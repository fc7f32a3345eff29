/* process_rpc.c - ProcessService: one message in, events of the backend out. Evented: nothing
 * here blocks, and nothing is asked for before what was there has been taken. */
#include <stdio.h>

#include "common/fields/fields.h"
#include "services/adapter/adapter.h"
#include "services/adapter/ask.h"
#include "services/adapter/collect.h"
#include "services/adapter/convert.h"
#include "services/adapter/data.h"

enum {
    RESPONSE_MAX = 3584 << 10,     /* bytes of a whole Run or ListProcesses response */
    RESPONSE_MAX_TEXT = 1536 << 10 /* of stdout and stderr when their texts go along */
};

/* One call. */
struct process_call {
    const struct adapter_service *service;
    struct berth_stream *stream;
    enum ask_method method;
    struct adapter_request *request; /* NULL: not asked, or over */
    bool ended;                      /* a status was set */
    struct berth_buf *held;          /* the next one, while a write is in flight */
    bool held_last;
    enum berth_code failure; /* finish with it when what came before is out */
    struct berth_error failure_err;
    /* Run */
    struct collect out[2];
    Berth__Data__V1__RunResponse *run;
    bool text;
    /* ListProcesses */
    Berth__Data__V1__ListProcessesResponse *list;
    size_t list_size;
    char only[BERTH_ID_MAX + 1]; /* "": all */
};

static void call_free(struct process_call *call)
{
    collect_deinit(&call->out[0]);
    collect_deinit(&call->out[1]);
    berth_buf_unref(call->held);
    if (call->run)
        protobuf_c_message_free_unpacked(&call->run->base, NULL);
    if (call->list)
        protobuf_c_message_free_unpacked(&call->list->base, NULL);
    free(call);
}

static const struct adapter_process_ops *ops_of(const struct process_call *call)
{
    return call->service->ops->process;
}

static void close_request(struct process_call *call, bool given_up)
{
    if (call->request)
        ops_of(call)->close(call->request, given_up);
    call->request = NULL;
}

static void finish(struct process_call *call, enum berth_code code,
                   const struct berth_error *err)
{
    if (call->ended)
        return;
    call->ended = true;
    close_request(call, false);
    berth_stream_finish(call->stream, code, err);
}

static void finish_no_memory(struct process_call *call)
{
    struct berth_error err = {0};
    enum berth_code code = berth_fail(&err, BERTH_REASON_OUT_OF_MEMORY, NULL);

    finish(call, code, &err);
}

/* buf: taken; NULL: out of memory. last: nothing follows but the status. */
static void send(struct process_call *call, struct berth_buf *buf, bool last)
{
    if (!buf) {
        finish_no_memory(call);
        return;
    }
    if (last)
        close_request(call, false);
    if (!berth_stream_can_write(call->stream)) {
        call->held = buf;
        call->held_last = last;
        return;
    }
    if (last) {
        call->ended = true;
        berth_stream_answer(call->stream, buf);
        return;
    }
    berth_stream_write(call->stream, buf);
    /* One more is fetched while this one is on its way, and no more than one. */
    if (call->request)
        ops_of(call)->next(call->request);
}

/* ------------------------------------------------------------------------- Run */

static bool set_block(ProtobufCBinaryData *to, uint8_t *block, size_t size)
{
    to->data = block; /* owned by the response from here on */
    to->len = size;
    return block != NULL;
}

/* Bytes each stream may have so that both fit into max. */
static void share(const struct collect out[2], size_t max, size_t ret_max[2])
{
    size_t have[2] = {out[0].head_size + out[0].tail_size, out[1].head_size + out[1].tail_size};

    for (int s = 0; s < 2; s++)
        ret_max[s] = have[1 - s] <= max / 2 ? max - have[1 - s] : max / 2;
}

static bool fill_run(struct process_call *call, const struct adapter_event *event)
{
    Berth__Data__V1__RunResponse *run = call->run;
    ProtobufCBinaryData *blocks[2] = {&run->stdout, &run->stderr};
    char **texts[2] = {&run->stdout_text, &run->stderr_text};
    protobuf_c_boolean *cut[2] = {&run->stdout_truncated, &run->stderr_truncated};
    size_t max[2], size, gap_at[2];
    uint64_t missing[2];

    run->exited = convert_exited(event->exited);
    if (!run->exited)
        return false;
    share(call->out, call->text ? RESPONSE_MAX_TEXT : RESPONSE_MAX, max);
    for (int s = 0; s < 2; s++) {
        uint8_t *block = collect_take(&call->out[s], max[s], &size, &gap_at[s], &missing[s]);

        if (!set_block(blocks[s], block, block ? size : 0))
            return false;
        *cut[s] = missing[s] > 0;
    }
    if (!call->text)
        return true;
    for (int s = 0; s < 2; s++) {
        char *text = collect_text(blocks[s]->data, blocks[s]->len, gap_at[s], missing[s],
                                  (RESPONSE_MAX - run->stdout.len - run->stderr.len) / 2);

        if (!text)
            return false;
        *texts[s] = text;
    }
    return true;
}

static void on_run_event(struct process_call *call, const struct adapter_event *event)
{
    switch (event->kind) {
    case ADAPTER_EVENT_OUTPUT:
        collect_add(&call->out[event->stream], event->data, event->size);
        break;
    case ADAPTER_EVENT_TRUNCATED:
        collect_gap(&call->out[event->stream], event->dropped);
        break;
    case ADAPTER_EVENT_EXITED:
        send(call, fill_run(call, event) ? berth_buf_pack(&call->run->base) : NULL, true);
        return;
    default:
        break;
    }
    ops_of(call)->next(call->request);
}

static bool begin_run(struct process_call *call, const Berth__Data__V1__RunRequest *req,
                      const struct adapter_ask *ask)
{
    size_t max = ask->collect < 2 ? 2 : (size_t)ask->collect;

    collect_init(&call->out[0], max);
    collect_init(&call->out[1], max);
    call->text = req->text;
    call->run = calloc(1, sizeof *call->run);
    if (!call->run)
        return false;
    berth__data__v1__run_response__init(call->run);
    call->run->exec_id = strdup(ask->exec_id);
    if (!call->run->exec_id)
        call->run->exec_id = (char *)protobuf_c_empty_string;
    return call->run->exec_id != protobuf_c_empty_string;
}

/* --------------------------------------------------------------- ListProcesses */

static bool begin_list(struct process_call *call,
                       const Berth__Data__V1__ListProcessesRequest *req)
{
    snprintf(call->only, sizeof call->only, "%s", req->exec_id);
    call->list = calloc(1, sizeof *call->list);
    if (call->list)
        berth__data__v1__list_processes_response__init(call->list);
    return call->list != NULL;
}

static bool add_process(struct process_call *call, const struct adapter_process *process)
{
    Berth__Data__V1__ListProcessesResponse *list = call->list;
    Berth__Data__V1__Process *entry, **bigger;
    size_t size;

    if (call->only[0] && strcmp(process->exec_id, call->only) != 0)
        return true;
    entry = convert_process(process);
    size = entry ? protobuf_c_message_get_packed_size(&entry->base) + 8 : 0;
    if (!entry)
        return false;
    if (call->list_size + size > RESPONSE_MAX) {
        /* Those that run come first, then the newest: what is left out is old. */
        protobuf_c_message_free_unpacked(&entry->base, NULL);
        return true;
    }
    bigger = realloc(list->processes, (list->n_processes + 1) * sizeof *bigger);
    if (!bigger) {
        protobuf_c_message_free_unpacked(&entry->base, NULL);
        return false;
    }
    list->processes = bigger;
    list->processes[list->n_processes++] = entry;
    call->list_size += size;
    return true;
}

static void on_list_event(struct process_call *call, const struct adapter_event *event)
{
    if (event->kind == ADAPTER_EVENT_LIST_DONE) {
        send(call, berth_buf_pack(&call->list->base), true);
    } else if (event->kind != ADAPTER_EVENT_PROCESS || add_process(call, event->process)) {
        ops_of(call)->next(call->request);
    } else {
        finish_no_memory(call);
    }
}

/* ----------------------------------------------------------------------- events */

static void on_event(void *ctx, const struct adapter_event *event)
{
    struct process_call *call = ctx;
    Berth__Data__V1__SendInputResponse input = BERTH__DATA__V1__SEND_INPUT_RESPONSE__INIT;
    Berth__Data__V1__SignalResponse signal = BERTH__DATA__V1__SIGNAL_RESPONSE__INIT;

    switch (call->method) {
    case ASK_RUN:
        on_run_event(call, event);
        break;
    case ASK_LIST_PROCESSES:
        on_list_event(call, event);
        break;
    case ASK_SEND_INPUT:
        input.next_offset = event->next_offset;
        send(call, berth_buf_pack(&input.base), true);
        break;
    case ASK_SIGNAL:
        signal.existed = event->existed;
        send(call, berth_buf_pack(&signal.base), true);
        break;
    default:
        send(call, convert_event(event), event->kind == ADAPTER_EVENT_EXITED);
        break;
    }
}

static void on_failed(void *ctx, enum berth_code code, const struct berth_error *err)
{
    struct process_call *call = ctx;

    if (!call->held) {
        finish(call, code, err);
        return;
    }
    call->failure = code;
    call->failure_err = *err;
}

static const struct adapter_sink sink = {on_event, on_failed};

/* ----------------------------------------------------------------------- streams */

static enum berth_code begin(struct process_call *call, ProtobufCMessage *request,
                             struct berth_error *err)
{
    struct adapter_route route;
    struct adapter_ask ask;
    enum berth_code code;
    bool good = true;

    code = adapter_route_read(berth_stream_call(call->stream), call->service->ops->backend,
                              &route, err);
    if (code == BERTH_OK)
        code = ask_from_request(call->method, request, &ask, err);
    if (code)
        return code;
    if (call->method == ASK_RUN)
        good = begin_run(call, (const Berth__Data__V1__RunRequest *)request, &ask);
    else if (call->method == ASK_LIST_PROCESSES)
        good = begin_list(call, (const Berth__Data__V1__ListProcessesRequest *)request);
    if (!good)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    code = ops_of(call)->ask(call->service->adapter, berth_stream_loop(call->stream), &route,
                             &ask, &sink, call, &call->request, err);
    if (code)
        return code;
    ops_of(call)->next(call->request);
    return BERTH_OK;
}

static void on_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct process_call *call = ctx;
    ProtobufCMessage *request = NULL;
    struct berth_error err = {0};
    enum berth_code code;

    (void)stream;
    if (!msg) {
        code = berth_fail_field(&err, "request", "must be there");
    } else {
        code = berth_buf_decode(ask_descriptors[call->method], msg, &request, &err);
        berth_buf_unref(msg);
    }
    if (code == BERTH_OK)
        code = begin(call, request, &err);
    if (request)
        protobuf_c_message_free_unpacked(request, NULL);
    if (code)
        finish(call, code, &err);
}

static void on_written(void *ctx, struct berth_stream *stream)
{
    struct process_call *call = ctx;

    (void)stream;
    if (call->held && !call->ended)
        send(call, BERTH_STEAL(call->held), call->held_last);
    else if (call->failure)
        finish(call, call->failure, &call->failure_err);
}

static void on_cancelled(void *ctx, struct berth_stream *stream)
{
    struct process_call *call = ctx;
    struct berth_error err = {0};
    enum berth_code code = berth_fail(&err, BERTH_REASON_CANCELLED, NULL);

    (void)stream;
    close_request(call, true);
    finish(call, code, &err);
}

static void on_closed(void *ctx, struct berth_stream *stream, const struct berth_status *status)
{
    struct process_call *call = ctx;

    (void)stream;
    (void)status;
    close_request(call, true);
    call_free(call);
}

static const struct berth_stream_ops stream_ops = {.message = on_message,
                                                   .written = on_written,
                                                   .closed = on_closed,
                                                   .cancelled = on_cancelled};

static enum berth_code open_call(void *service, enum ask_method method,
                                 struct berth_stream *stream,
                                 const struct berth_stream_ops **ret_ops, void **ret_ctx,
                                 struct berth_error *err)
{
    struct process_call *call = calloc(1, sizeof *call);

    if (!call)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    call->service = service;
    call->stream = stream;
    call->method = method;
    *ret_ops = &stream_ops;
    *ret_ctx = call;
    berth_stream_read(stream);
    return BERTH_OK;
}

#define METHODS                                                                                \
    METHOD(Run, ASK_RUN, run)                                                                  \
    METHOD(Exec, ASK_EXEC, exec)                                                               \
    METHOD(Attach, ASK_ATTACH, attach)                                                         \
    METHOD(SendInput, ASK_SEND_INPUT, send_input)                                              \
    METHOD(Signal, ASK_SIGNAL, signal)                                                         \
    METHOD(ListProcesses, ASK_LIST_PROCESSES, list_processes)

#define METHOD(name, method, type)                                                             \
    static enum berth_code open_##type(void *service, struct berth_stream *stream,             \
                                       const struct berth_stream_ops **ret_ops,                \
                                       void **ret_ctx, struct berth_error *err)                \
    {                                                                                          \
        return open_call(service, method, stream, ret_ops, ret_ctx, err);                      \
    }
METHODS
#undef METHOD

#define METHOD(name, method, type)                                                             \
    {"/berth.data.v1.ProcessService/" #name, &berth__data__v1__##type##_request__descriptor,   \
     NULL, open_##type, BERTH_METHOD_PEER_ONLY},
const struct berth_method adapter_process_methods[] = {METHODS};
#undef METHOD
const size_t n_adapter_process_methods = BERTH_COUNT(adapter_process_methods);
