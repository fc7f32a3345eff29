/* loss.c - what a session lost (its sandbox was replaced, perhaps under a running turn) is told
 * with the first answer that has a place for it. The control plane hears of it before the
 * answer goes out, so that the next one does not tell it again; where it does not hear, or the
 * caller is gone by then, the next one does. */
#include "services/dataplane/stream.h"

#include "berth/data/v1/data.pb-c.h"
#include "common/log/log.h"
#include "common/messages/messages.h"

enum { TELL_TIMEOUT_MS = 2000 };

/* Where the answer says it; NULL: nowhere (a command that never started). */
static Berth__Control__V1__SandboxLoss **place_of(ProtobufCMessage *message)
{
    Berth__Data__V1__ProcessEvent *event;

    if (message->descriptor != &berth__data__v1__exec_response__descriptor) {
        const ProtobufCFieldDescriptor *field =
            protobuf_c_message_descriptor_get_field_by_name(message->descriptor, "loss");

        return field ? (Berth__Control__V1__SandboxLoss **)(void *)((char *)message +
                                                                    field->offset)
                     : NULL;
    }
    event = ((Berth__Data__V1__ExecResponse *)message)->event;
    if (!event || event->event_case != BERTH__DATA__V1__PROCESS_EVENT__EVENT_STARTED)
        return NULL;
    return &event->started->loss;
}

/* held, with the loss in it. False: it is as it was. */
static bool put_into_held(struct dp_stream *s)
{
    Berth__Control__V1__SandboxLoss **place;
    ProtobufCMessage *message = NULL;
    struct berth_buf *packed = NULL;

    if (berth_buf_decode(s->method->response, s->held, &message, NULL))
        return false;
    place = place_of(message);
    if (place) {
        berth_message_free(*place);
        *place = s->loss; /* borrowed, to be packed */
        packed = berth_buf_pack(message);
        *place = NULL;
    }
    berth_message_free(message);
    if (!packed || berth_buf_size(packed) > BERTH_RPC_MESSAGE_MAX) {
        berth_buf_unref(packed);
        return false;
    }
    berth_buf_unref(s->held);
    s->held = packed;
    return true;
}

static void on_told(void *arg, enum berth_code code, ProtobufCMessage *resp,
                    const struct berth_status *status, const struct berth_error *err)
{
    struct dp_stream *s = arg;

    if (code)
        berth_warn("what a session lost is told, and will be told again", "session",
                   s->route_req->session->session_id, "error",
                   status ? status->message : err->text);
    berth_message_free(resp);
    s->telling = NULL;
    s->loss = berth_message_free(s->loss);
    dp_stream_told(s);
}

bool dp_stream_tell_loss(struct dp_stream *s)
{
    const struct berth_call_options options = {.timeout_ms = TELL_TIMEOUT_MS,
                                               .parent = berth_stream_call(s->caller)};
    Berth__Control__V1__LossToldRequest req = BERTH__CONTROL__V1__LOSS_TOLD_REQUEST__INIT;
    struct berth_error err;

    if (!s->loss || !(s->method->flags & DP_TELLS_LOSS) || !put_into_held(s))
        return false;
    atomic_fetch_add_explicit(&s->dp->counters.losses_told, 1, memory_order_relaxed);
    req.session = s->route_req->session;
    req.number = s->loss->number;
    s->telling = dp_unary_start(
        s->dp, s->dp->controlplane, "/berth.control.v1.InternalService/LossTold", &req.base,
        &berth__control__v1__loss_told_response__descriptor, &options, on_told, s, &err);
    if (!s->telling)
        berth_warn("what a session lost is told, and will be told again", "session",
                   s->route_req->session->session_id, "error", err.text);
    return s->telling != NULL;
}
