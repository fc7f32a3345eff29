/* upload.c - InstallSkill's stream: open, data, ..., half-close. One message is in hand at a
 * time: a worker writes it while nothing else is asked for, so an upload holds one message of
 * memory, whatever its size. The worker that judges is told when the caller goes away. */
#include "services/skills/upload.h"

#include <errno.h>
#include <stdatomic.h>

#include "common/crypto/crypto.h"
#include "common/fields/fields.h"
#include "common/messages/messages.h"
#include "services/skills/policy.h"

typedef Berth__Skills__V1__InstallSkillRequest InstallSkillRequest;
typedef Berth__Skills__V1__InstallSkillOpen InstallSkillOpen;

enum {
    REQUEST_ID_MAX = 128,
    SHA256_SIZE = 32,
    FORMAT_MAX = 2,
    TIME_LIMIT_MAX_MS = 24 * 3600 * 1000,
    ENV_MAX = 50,
    ENV_VALUE_MAX = 8192,
};

struct upload {
    struct skills *skills;
    struct berth_stream *stream; /* NULL: closed */
    InstallSkillRequest *first;  /* owned: the open */
    struct skills_bundle bundle;
    struct berth_sha256 *hash;
    struct berth_buf *msg; /* in hand: the worker's while busy */
    struct berth_buf *answer;
    struct berth_timer *idle;  /* runs while a message is waited for */
    struct berth_timer *whole; /* runs until the last one is there */
    bool counted;              /* among skills->n_uploads */
    bool busy;                 /* a worker has it */
    bool ended;                /* a status or the answer is out */
    atomic_bool stop;          /* the worker shall know */
    void (*work)(struct upload *upload);
    struct berth_work job;
    struct berth_post back;
    enum berth_code code; /* of the worker */
    struct berth_error err;
};

static void upload_free(struct upload *upload)
{
    bundle_verdict_deinit(&upload->bundle.verdict);
    if (upload->bundle.fd >= 0)
        close(upload->bundle.fd);
    if (upload->bundle.spool_fd >= 0)
        close(upload->bundle.spool_fd);
    if (upload->first)
        protobuf_c_message_free_unpacked(&upload->first->base, NULL);
    if (upload->counted)
        atomic_fetch_sub(&upload->skills->n_uploads, 1);
    berth_sha256_free(upload->hash);
    berth_buf_unref(upload->msg);
    berth_buf_unref(upload->answer);
    free(upload);
}

static void stop_timers(struct upload *upload)
{
    upload->idle = berth_timer_cancel(upload->idle);
    upload->whole = berth_timer_cancel(upload->whole);
}

static void fail(struct upload *upload, enum berth_code code, const struct berth_error *err)
{
    upload->ended = true;
    atomic_store(&upload->stop, true);
    stop_timers(upload);
    if (upload->stream)
        berth_stream_finish(upload->stream, code, err);
}

/* --------------------------------------------------------------------- on a worker */

static void work_open(struct upload *upload)
{
    const char *folder = upload->skills->spool;

    upload->code = skills_install_check(upload->skills, upload->bundle.open, &upload->err);
    if (!upload->code)
        upload->code = bundle_spool_open(folder, &upload->bundle.fd, &upload->err);
    if (!upload->code)
        upload->code = bundle_spool_open(folder, &upload->bundle.spool_fd, &upload->err);
}

static enum berth_code write_data(struct upload *upload, const uint8_t *data, size_t size,
                                  struct berth_error *err)
{
    while (size > 0) {
        ssize_t n = pwrite(upload->bundle.fd, data, size, (off_t)upload->bundle.size);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return berth_fail(err,
                              n < 0 ? berth_reason_from_errno(errno) : BERTH_REASON_DISK_FULL,
                              "write the upload: %s", n < 0 ? strerror(errno) : "no room");
        berth_sha256_add(upload->hash, data, (size_t)n);
        upload->bundle.size += (uint64_t)n;
        data += n;
        size -= (size_t)n;
    }
    return BERTH_OK;
}

static enum berth_code take_data(struct upload *upload, const InstallSkillRequest *req,
                                 struct berth_error *err)
{
    uint64_t announced = upload->bundle.open->size_bytes;
    uint64_t size = upload->bundle.size + req->data.len;

    if (req->message_case != BERTH__SKILLS__V1__INSTALL_SKILL_REQUEST__MESSAGE_DATA)
        return berth_fail_field(err, "message", "must be data after open");
    if (announced && size > announced)
        return berth_fail_field(err, "open.size_bytes", "more than %llu bytes have come",
                                (unsigned long long)announced);
    if (size > upload->skills->bundle_bytes)
        return berth_fail_field(err, "data", "at most %llu bytes, the limit of a bundle",
                                (unsigned long long)upload->skills->bundle_bytes);
    return write_data(upload, req->data.data, req->data.len, err);
}

static void work_data(struct upload *upload)
{
    ProtobufCMessage *message = NULL;

    upload->code = berth_buf_decode(&berth__skills__v1__install_skill_request__descriptor,
                                    upload->msg, &message, &upload->err);
    if (upload->code)
        return;
    upload->code = take_data(upload, (const InstallSkillRequest *)message, &upload->err);
    protobuf_c_message_free_unpacked(message, NULL);
}

static enum berth_code check_whole(struct upload *upload, struct berth_error *err)
{
    const InstallSkillOpen *open = upload->bundle.open;

    berth_sha256_end(upload->hash, upload->bundle.sha256);
    if (open->size_bytes && open->size_bytes != upload->bundle.size)
        return berth_fail_field(err, "open.size_bytes", "must be %llu, as many as were sent",
                                (unsigned long long)upload->bundle.size);
    if (open->sha256.len && memcmp(open->sha256.data, upload->bundle.sha256, SHA256_SIZE) != 0)
        return berth_fail_field(err, "open.sha256", "must be the SHA-256 of what was sent");
    return BERTH_OK;
}

static enum berth_code judge(struct upload *upload, struct berth_error *err)
{
    static const enum bundle_format formats[] = {BUNDLE_FORMAT_ANY, BUNDLE_FORMAT_ZIP,
                                                 BUNDLE_FORMAT_TAR};
    struct skills_bundle *bundle = &upload->bundle;
    const struct bundle_source source = {.fd = bundle->fd,
                                         .size = bundle->size,
                                         .format = formats[bundle->open->format],
                                         .stop = &upload->stop};
    Berth__Skills__V1__InstallSkillResponse *answer = NULL;
    struct skills_policy policy = {0};
    enum berth_code code = check_whole(upload, err);

    if (!code)
        code = skills_policy_read(upload->skills, bundle->open->tenant_id,
                                  bundle->open->config_id, &policy, err);
    if (!code)
        code =
            bundle_judge(&source, bundle->spool_fd, &policy.plan, NULL, &bundle->verdict, err);
    if (!code)
        code = skills_install_answer(upload->skills, bundle, &answer, err);
    if (!code && !(upload->answer = berth_buf_pack(&answer->base)))
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    berth_message_free(answer);
    skills_policy_deinit(&policy);
    return code;
}

static void work_judge(struct upload *upload)
{
    upload->code = judge(upload, &upload->err);
}

/* ------------------------------------------------------------------------ the loop */

static void on_idle(void *arg)
{
    struct upload *upload = arg;
    struct berth_error err = {0};
    enum berth_code code =
        berth_fail(&err, BERTH_REASON_DEADLINE, "nothing of the bundle has come for %lld ms",
                   (long long)upload->skills->upload_idle_ms);

    upload->idle = NULL;
    fail(upload, code, &err);
}

static void on_late(void *arg)
{
    struct upload *upload = arg;
    struct berth_error err = {0};
    enum berth_code code =
        berth_fail(&err, BERTH_REASON_DEADLINE, "the bundle was not there within %lld ms",
                   (long long)upload->skills->upload_timeout_ms);

    upload->whole = NULL;
    if (!upload->ended)
        fail(upload, code, &err);
}

static void receive(struct upload *upload)
{
    upload->idle = berth_loop_timer(berth_stream_loop(upload->stream),
                                    upload->skills->upload_idle_ms, on_idle, upload);
    berth_stream_read(upload->stream);
}

static void on_back(void *arg)
{
    struct upload *upload = arg;

    upload->busy = false;
    upload->msg = berth_buf_unref(upload->msg);
    if (!upload->stream) {
        upload_free(upload);
    } else if (upload->ended) {
        return;
    } else if (upload->code) {
        fail(upload, upload->code, &upload->err);
    } else if (upload->answer) {
        upload->ended = true;
        berth_stream_answer(upload->stream, BERTH_STEAL(upload->answer));
    } else {
        receive(upload);
    }
}

static void on_worker(void *arg)
{
    struct upload *upload = arg;

    upload->work(upload);
    berth_loop_post_entry(upload->skills->runtime->loop, &upload->back, on_back, upload);
}

/* first: may be refused (OVERLOADED). */
static enum berth_code start(struct upload *upload, bool first,
                             void (*work)(struct upload *upload), struct berth_error *err)
{
    struct berth_pool *pool = upload->skills->runtime->pool;
    enum berth_code code = BERTH_OK;

    upload->work = work;
    upload->busy = true;
    if (first)
        code = berth_pool_submit_entry(pool, &upload->job, on_worker, upload, err);
    else
        berth_pool_submit_entry_must(pool, &upload->job, on_worker, upload);
    if (code)
        upload->busy = false;
    return code;
}

static enum berth_code check_env(const InstallSkillOpen *open, struct berth_error *err)
{
    enum berth_code code = BERTH_OK;

    if (open->n_env > ENV_MAX)
        return berth_fail_field(err, "open.env", "must be at most %d variables", ENV_MAX);
    for (size_t i = 0; !code && i < open->n_env; i++) {
        code = berth_check_env_name("open.env", open->env[i]->key, err);
        if (!code && strlen(open->env[i]->value) > ENV_VALUE_MAX)
            code = berth_fail_field(err, "open.env", "must be at most %d bytes each",
                                    ENV_VALUE_MAX);
    }
    return code;
}

static enum berth_code check_open(const struct skills *skills, const InstallSkillOpen *open,
                                  struct berth_error *err)
{
    int64_t time_limit_ms;
    enum berth_code code = berth_check_id("open.tenant_id", open->tenant_id, err);

    if (!code)
        code = berth_check_id("open.config_id", open->config_id, err);
    if (!code)
        code = berth_check_enum("open.format", (int)open->format, FORMAT_MAX, true, err);
    if (!code && open->size_bytes > skills->bundle_bytes)
        code = berth_fail_field(err, "open.size_bytes",
                                "must be at most %llu, the limit of a bundle",
                                (unsigned long long)skills->bundle_bytes);
    if (!code && open->sha256.len && open->sha256.len != SHA256_SIZE)
        code = berth_fail_field(err, "open.sha256", "must be %d bytes, or none", SHA256_SIZE);
    if (!code && open->time_limit)
        code = berth_check_duration("open.time_limit", open->time_limit->seconds,
                                    open->time_limit->nanos, TIME_LIMIT_MAX_MS, &time_limit_ms,
                                    err);
    if (!code)
        code = check_env(open, err);
    if (!code && *open->request_id)
        code = berth_check_text("open.request_id", open->request_id, 1, REQUEST_ID_MAX, err);
    if (!code && strlen(open->request_id) > REQUEST_ID_MAX)
        code = berth_fail_field(err, "open.request_id", "must be at most %d bytes",
                                REQUEST_ID_MAX);
    return code;
}

static enum berth_code take_open(struct upload *upload, struct berth_buf *msg,
                                 struct berth_error *err)
{
    ProtobufCMessage *message = NULL;
    enum berth_code code;

    if (!msg)
        return berth_fail_field(err, "open", "must be the first message");
    code = berth_buf_decode(&berth__skills__v1__install_skill_request__descriptor, msg,
                            &message, err);
    if (code)
        return code;
    upload->first = (InstallSkillRequest *)message;
    if (upload->first->message_case != BERTH__SKILLS__V1__INSTALL_SKILL_REQUEST__MESSAGE_OPEN ||
        !upload->first->open)
        return berth_fail_field(err, "open", "must be the first message");
    code = check_open(upload->skills, upload->first->open, err);
    if (code)
        return code;
    if (atomic_fetch_add(&upload->skills->n_uploads, 1) >= upload->skills->max_uploads) {
        atomic_fetch_sub(&upload->skills->n_uploads, 1);
        return berth_fail(err, BERTH_REASON_OVERLOADED, "%u uploads are under way",
                          upload->skills->max_uploads);
    }
    upload->counted = true;
    upload->bundle.open = upload->first->open;
    upload->hash = berth_sha256_new();
    if (!upload->hash)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    return start(upload, true, work_open, err);
}

static void on_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct upload *upload = ctx;
    struct berth_error err = {0};
    enum berth_code code = BERTH_OK;

    (void)stream;
    upload->idle = berth_timer_cancel(upload->idle);
    if (upload->ended) {
        berth_buf_unref(msg);
        return;
    }
    if (!upload->first) {
        code = take_open(upload, msg, &err);
        berth_buf_unref(msg);
    } else {
        if (!msg)
            stop_timers(upload);
        upload->msg = msg;
        code = start(upload, false, msg ? work_data : work_judge, &err);
    }
    if (code)
        fail(upload, code, &err);
}

static void on_cancelled(void *ctx, struct berth_stream *stream)
{
    struct berth_error err = {0};
    enum berth_code code = berth_fail(&err, BERTH_REASON_CANCELLED, NULL);

    (void)stream;
    fail(ctx, code, &err);
}

static void on_closed(void *ctx, struct berth_stream *stream, const struct berth_status *status)
{
    struct upload *upload = ctx;

    (void)stream;
    (void)status;
    upload->stream = NULL;
    stop_timers(upload);
    if (!upload->busy)
        upload_free(upload);
}

static const struct berth_stream_ops stream_ops = {
    .message = on_message, .closed = on_closed, .cancelled = on_cancelled};

enum berth_code skills_open_install(void *service, struct berth_stream *stream,
                                    const struct berth_stream_ops **ret_ops, void **ret_ctx,
                                    struct berth_error *err)
{
    struct upload *upload = calloc(1, sizeof *upload);

    if (!upload)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    upload->skills = service;
    upload->stream = stream;
    upload->bundle.fd = upload->bundle.spool_fd = -1;
    (void)berth_actor(berth_stream_call(stream), upload->bundle.actor);
    *ret_ops = &stream_ops;
    *ret_ctx = upload;
    upload->whole = berth_loop_timer(berth_stream_loop(stream),
                                     upload->skills->upload_timeout_ms, on_late, upload);
    receive(upload);
    return BERTH_OK;
}
