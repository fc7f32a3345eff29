#include "tests/component/skills/uploads.h"

static struct berth_buf *next_message(struct upload *upload)
{
    InstallSkillRequest req = BERTH__SKILLS__V1__INSTALL_SKILL_REQUEST__INIT;
    unsigned n = upload->n_messages++, opens = upload->open ? 1 + upload->open_twice : 0;

    if (n < opens) {
        req.message_case = BERTH__SKILLS__V1__INSTALL_SKILL_REQUEST__MESSAGE_OPEN;
        req.open = (InstallSkillOpen *)upload->open;
        return berth_buf_pack(&req.base);
    }
    if (upload->sent == upload->size)
        return NULL;
    req.message_case = BERTH__SKILLS__V1__INSTALL_SKILL_REQUEST__MESSAGE_DATA;
    req.data.data = (uint8_t *)upload->data + upload->sent;
    req.data.len = upload->size - upload->sent < upload->chunk ? upload->size - upload->sent
                                                               : upload->chunk;
    upload->sent += req.data.len;
    return berth_buf_pack(&req.base);
}

static void set(struct upload *upload, bool *flag)
{
    pthread_mutex_lock(&upload->mutex);
    *flag = true;
    pthread_mutex_unlock(&upload->mutex);
}

static void on_written(void *ctx, struct berth_stream *stream)
{
    struct upload *upload = ctx;
    struct berth_buf *msg = next_message(upload);

    if (msg)
        (void)berth_stream_write(stream, msg);
    else if (upload->stays_open)
        set(upload, &upload->waits);
    else
        berth_stream_half_close(stream);
}

static void on_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct upload *upload = ctx;

    if (msg) {
        upload->answer = msg;
        berth_stream_read(stream);
    }
}

static void on_closed(void *ctx, struct berth_stream *stream, const struct berth_status *status)
{
    struct upload *upload = ctx;

    (void)stream;
    upload->stream = NULL;
    upload->code = status->code ? berth_status_to_error(status, &upload->err) : BERTH_OK;
    set(upload, &upload->ended);
}

static void begin(void *arg)
{
    static const struct berth_stream_ops ops = {
        .message = on_message, .written = on_written, .closed = on_closed};
    const struct berth_call_options options = {.timeout_ms = WAIT_MS};
    struct upload *upload = arg;

    upload->stream =
        berth_channel_stream(upload->town->snap, INSTALL, &options, upload->loop, &ops, upload);
    ck_assert_ptr_nonnull(upload->stream);
    on_written(upload, upload->stream);
    berth_stream_read(upload->stream);
}

void upload_start(struct upload *upload)
{
    pthread_mutex_init(&upload->mutex, NULL);
    if (!upload->chunk)
        upload->chunk = 64 << 10;
    berth_loop_post(upload->loop, begin, upload);
}

void upload_wait(struct upload *upload, const bool *flag)
{
    int64_t end_tick = berth_tick_ms() + WAIT_MS;

    for (bool is_set = false; !is_set;) {
        pthread_mutex_lock(&upload->mutex);
        is_set = *flag || upload->ended;
        pthread_mutex_unlock(&upload->mutex);
        ck_assert_int_lt(berth_tick_ms(), end_tick);
        if (!is_set)
            usleep(1000);
    }
}

static void cancel(void *arg)
{
    struct upload *upload = arg;

    if (upload->stream)
        berth_stream_cancel(upload->stream);
}

void upload_cancel(struct upload *upload)
{
    berth_loop_post(upload->loop, cancel, upload);
}

enum berth_reason upload_finish(struct upload *upload, InstallSkillResponse **ret)
{
    ProtobufCMessage *message = NULL;

    upload_wait(upload, &upload->ended);
    if (upload->answer && !upload->code)
        ck_assert_int_eq(
            berth_buf_decode(&berth__skills__v1__install_skill_response__descriptor,
                             upload->answer, &message, NULL),
            BERTH_OK);
    berth_buf_unref(upload->answer);
    pthread_mutex_destroy(&upload->mutex);
    if (upload->code)
        return upload->err.reason;
    ck_assert_ptr_nonnull(message);
    if (ret)
        *ret = (InstallSkillResponse *)message;
    else
        berth_message_free(message);
    return BERTH_REASON_NONE;
}
