#include "tests/component/skills/fake_planes.h"

#include <check.h>
#include <stdio.h>

#include "berth/data/v1/data.pb-c.h"
#include "common/messages/messages.h"

enum { CHUNK = 60000 };

#define NEW(type) berth_message_new(&berth__##type##__descriptor)

/* -------------------------------------------------------------------- control plane */

static enum berth_code resolve(void *service, struct berth_call *call,
                               const ProtobufCMessage *message, ProtobufCMessage **ret,
                               struct berth_error *err)
{
    struct planes *planes = service;
    Berth__Control__V1__ResolveSessionResponse *resp;
    Berth__Common__V1__Sandbox *sandbox;
    bool refused;

    (void)call;
    (void)message;
    pthread_mutex_lock(&planes->mutex);
    planes->n_resolved++;
    refused = planes->n_refused > 0;
    planes->n_refused -= refused;
    pthread_mutex_unlock(&planes->mutex);
    if (refused)
        return berth_fail(err, BERTH_REASON_QUARANTINE, NULL);
    resp = NEW(control__v1__resolve_session_response);
    resp->session = NEW(control__v1__session);
    sandbox = NEW(common__v1__sandbox);
    resp->session->sandbox = sandbox;
    sandbox->image = NEW(common__v1__image);
    sandbox->image->generation = 7;
    ck_assert(berth_set_string(&sandbox->sandbox_id, "box-1"));
    *ret = &resp->base;
    return BERTH_OK;
}

static enum berth_code begin_turn(void *service, struct berth_call *call,
                                  const ProtobufCMessage *message, ProtobufCMessage **ret,
                                  struct berth_error *err)
{
    struct planes *planes = service;
    Berth__Control__V1__BeginTurnResponse *resp = NEW(control__v1__begin_turn_response);

    (void)call;
    (void)message;
    (void)err;
    pthread_mutex_lock(&planes->mutex);
    planes->n_turns++;
    pthread_mutex_unlock(&planes->mutex);
    ck_assert(berth_set_string(&resp->turn_token, "turn-1"));
    *ret = &resp->base;
    return BERTH_OK;
}

#define COUNTED(name, type, counter)                                                           \
    static enum berth_code name(void *service, struct berth_call *call,                        \
                                const ProtobufCMessage *message, ProtobufCMessage **ret,       \
                                struct berth_error *err)                                       \
    {                                                                                          \
        struct planes *planes = service;                                                       \
        ProtobufCMessage *resp = NEW(control__v1__##type);                                     \
                                                                                               \
        (void)call;                                                                            \
        (void)message;                                                                         \
        (void)err;                                                                             \
        pthread_mutex_lock(&planes->mutex);                                                    \
        planes->counter++;                                                                     \
        pthread_mutex_unlock(&planes->mutex);                                                  \
        *ret = resp;                                                                           \
        return BERTH_OK;                                                                       \
    }
COUNTED(renew_turn, renew_turn_response, n_renewed)
COUNTED(end_turn, end_turn_response, n_ended)
COUNTED(delete_session, delete_session_response, n_deleted)

#define CONTROL(name, type, fn)                                                                \
    {                                                                                          \
        "/berth.control.v1.SessionService/" #name,                                             \
            &berth__control__v1__##type##_request__descriptor, fn, NULL, 0                     \
    }
static const struct berth_method control_methods[] = {
    CONTROL(ResolveSession, resolve_session, resolve),
    CONTROL(BeginTurn, begin_turn, begin_turn),
    CONTROL(RenewTurn, renew_turn, renew_turn),
    CONTROL(EndTurn, end_turn, end_turn),
    CONTROL(DeleteSession, delete_session, delete_session),
};

/* ----------------------------------------------------------------------- data plane */

struct served {
    struct planes *planes;
    struct fake_rule rule;
    bool is_attach, is_upload, is_first_in, is_gone;
    unsigned n_written;
    uint64_t seq;
};

static struct berth_buf *event(struct served *served, int kind, const void *data, size_t size)
{
    Berth__Data__V1__ExecResponse resp = BERTH__DATA__V1__EXEC_RESPONSE__INIT;
    Berth__Data__V1__ProcessEvent out = BERTH__DATA__V1__PROCESS_EVENT__INIT;
    Berth__Data__V1__Started started = BERTH__DATA__V1__STARTED__INIT;
    Berth__Data__V1__Exited exited = BERTH__DATA__V1__EXITED__INIT;
    Berth__Control__V1__SandboxLoss loss = BERTH__CONTROL__V1__SANDBOX_LOSS__INIT;
    const ProtobufCBinaryData bytes = {size, (uint8_t *)data};

    resp.event = &out;
    out.event_case = kind;
    out.seq = ++served->seq;
    if (kind == BERTH__DATA__V1__PROCESS_EVENT__EVENT_STARTED) {
        started.loss = served->rule.act == FAKE_OTHER ? &loss : NULL;
        out.started = &started;
    } else if (kind == BERTH__DATA__V1__PROCESS_EVENT__EVENT_STDOUT) {
        out.stdout = bytes;
    } else if (kind == BERTH__DATA__V1__PROCESS_EVENT__EVENT_STDERR) {
        out.stderr = bytes;
    } else {
        exited.reason = BERTH__DATA__V1__EXIT_REASON__EXIT_REASON_EXITED;
        exited.exit_code = served->rule.exit_code;
        out.exited = &exited;
    }
    return berth_buf_pack(&resp.base);
}

static void finish(struct berth_stream *stream, enum berth_reason reason)
{
    struct berth_error err = {0};

    berth_stream_finish(stream, reason ? berth_fail(&err, reason, NULL) : BERTH_OK, &err);
}

/* Step by step, each after the one before was written. */
static void go_on(struct served *served, struct berth_stream *stream)
{
    static const char much[CHUNK] = {'x'};
    const struct fake_rule *rule = &served->rule;
    const char *out = rule->out ? rule->out : "";
    size_t size = rule->out_size ? rule->out_size : strlen(out), half = size / 2;
    unsigned step = served->n_written++;
    struct berth_buf *msg = NULL;

    if (served->is_gone)
        return;
    if (rule->act == FAKE_AWAY ||
        (served->is_attach && (rule->act == FAKE_LOST || rule->act == FAKE_MUTE))) {
        finish(stream, served->is_attach ? BERTH_REASON_PROCESS_NOT_FOUND
                                         : BERTH_REASON_ADAPTER_UNAVAILABLE);
        return;
    }
    if (served->is_attach && step == 0)
        served->seq = 2; /* started, and half of stdout */
    if (!served->is_attach && step == 0)
        msg = event(served, BERTH__DATA__V1__PROCESS_EVENT__EVENT_STARTED, NULL, 0);
    else if (rule->act == FAKE_STALL)
        return;
    else if (rule->act == FAKE_FLOOD)
        msg = event(served, BERTH__DATA__V1__PROCESS_EVENT__EVENT_STDERR, much, CHUNK);
    else if (rule->act == FAKE_MUTE)
        finish(stream, BERTH_REASON_NONE);
    else if (!served->is_attach && (rule->act == FAKE_CUT || rule->act == FAKE_LOST)) {
        if (step == 1)
            msg = event(served, BERTH__DATA__V1__PROCESS_EVENT__EVENT_STDOUT, out, half);
        else
            finish(stream, BERTH_REASON_OUTCOME_UNKNOWN);
    } else if (step == (served->is_attach ? 0 : 1)) {
        msg = served->is_attach
                  ? event(served, BERTH__DATA__V1__PROCESS_EVENT__EVENT_STDOUT, out + half,
                          size - half)
                  : event(served, BERTH__DATA__V1__PROCESS_EVENT__EVENT_STDOUT, out, size);
    } else if (step == (served->is_attach ? 1 : 2)) {
        msg = event(served, BERTH__DATA__V1__PROCESS_EVENT__EVENT_STDERR,
                    rule->err ? rule->err : "", rule->err ? strlen(rule->err) : 0);
    } else if (step == (served->is_attach ? 2 : 3)) {
        msg = event(served, BERTH__DATA__V1__PROCESS_EVENT__EVENT_EXITED, NULL, 0);
    } else {
        finish(stream, BERTH_REASON_NONE);
    }
    if (msg)
        ck_assert(berth_stream_write(stream, msg));
}

static void note(struct planes *planes, const Berth__Data__V1__ExecRequest *req)
{
    const Berth__Data__V1__Command *command = req->command;
    size_t n = 0;

    ck_assert_str_eq(req->turn_token, "turn-1");
    for (size_t i = 0; i < command->argv->n_args && n < sizeof planes->last; i++)
        n += (size_t)snprintf(planes->last + n, sizeof planes->last - n, "%.300s ",
                              command->argv->args[i]);
    n = 0;
    planes->env[0] = 0;
    for (size_t i = 0; i < command->n_env && n < sizeof planes->env; i++)
        n += (size_t)snprintf(planes->env + n, sizeof planes->env - n, "%s=%s ",
                              command->env[i]->key, command->env[i]->value);
    planes->was_root = command->account == BERTH__DATA__V1__ACCOUNT__ACCOUNT_ROOT;
}

static bool matches(const struct fake_rule *rule, const Berth__Data__V1__ExecRequest *req)
{
    if (!rule->word)
        return true;
    for (size_t i = 0; i < req->command->argv->n_args; i++)
        if (strcmp(req->command->argv->args[i], rule->word) == 0)
            return true;
    return false;
}

static void begin(struct served *served, struct berth_buf *msg)
{
    struct planes *planes = served->planes;
    ProtobufCMessage *message = NULL;

    if (served->is_attach) {
        pthread_mutex_lock(&planes->mutex);
        planes->n_attached++;
        for (unsigned i = 0; i < planes->n_rules; i++) {
            enum fake_act act = planes->rules[i].act;

            if (act == FAKE_CUT || act == FAKE_LOST || act == FAKE_MUTE)
                served->rule = planes->rules[i];
        }
        pthread_mutex_unlock(&planes->mutex);
        return;
    }
    ck_assert_int_eq(
        berth_buf_decode(&berth__data__v1__exec_request__descriptor, msg, &message, NULL),
        BERTH_OK);
    pthread_mutex_lock(&planes->mutex);
    planes->n_execs++;
    note(planes, (Berth__Data__V1__ExecRequest *)message);
    served->rule = (struct fake_rule){.act = FAKE_EXIT};
    for (unsigned i = 0; i < planes->n_rules; i++) {
        struct fake_rule *rule = &planes->rules[i];

        if (rule->times == UINT32_MAX ||
            !matches(rule, (Berth__Data__V1__ExecRequest *)message))
            continue;
        served->rule = *rule;
        if (rule->times > 0 && --rule->times == 0)
            rule->times = UINT32_MAX;
        break;
    }
    pthread_mutex_unlock(&planes->mutex);
    berth_message_free(message);
}

static void take_upload(struct served *served, struct berth_stream *stream,
                        struct berth_buf *msg)
{
    struct planes *planes = served->planes;
    Berth__Data__V1__WriteFileResponse resp = BERTH__DATA__V1__WRITE_FILE_RESPONSE__INIT;
    Berth__Data__V1__WriteFileRequest *req;
    ProtobufCMessage *message = NULL;
    bool refused;

    if (!msg) {
        berth_stream_answer(stream, berth_buf_pack(&resp.base));
        return;
    }
    ck_assert_int_eq(
        berth_buf_decode(&berth__data__v1__write_file_request__descriptor, msg, &message, NULL),
        BERTH_OK);
    req = (Berth__Data__V1__WriteFileRequest *)message;
    pthread_mutex_lock(&planes->mutex);
    if (req->message_case == BERTH__DATA__V1__WRITE_FILE_REQUEST__MESSAGE_OPEN)
        planes->upload_bytes = planes->upload_sum = 0;
    if (req->message_case == BERTH__DATA__V1__WRITE_FILE_REQUEST__MESSAGE_DATA) {
        for (size_t i = 0; i < req->data.len; i++)
            planes->upload_sum = planes->upload_sum * 31 + req->data.data[i];
        planes->upload_bytes += req->data.len;
    }
    refused = planes->refuse_upload && planes->upload_bytes > 0;
    pthread_mutex_unlock(&planes->mutex);
    berth_message_free(message);
    if (refused)
        finish(stream, BERTH_REASON_DISK_FULL);
    else
        berth_stream_read(stream);
}

static void on_message(void *ctx, struct berth_stream *stream, struct berth_buf *msg)
{
    struct served *served = ctx;

    if (served->is_upload) {
        take_upload(served, stream, msg);
    } else if (!served->is_first_in && msg) {
        served->is_first_in = true;
        begin(served, msg);
        go_on(served, stream);
    }
    berth_buf_unref(msg);
}

static void on_written(void *ctx, struct berth_stream *stream)
{
    go_on(ctx, stream);
}

static void on_cancelled(void *ctx, struct berth_stream *stream)
{
    struct served *served = ctx;

    served->is_gone = true;
    pthread_mutex_lock(&served->planes->mutex);
    served->planes->n_cancelled++;
    pthread_mutex_unlock(&served->planes->mutex);
    finish(stream, BERTH_REASON_CANCELLED);
}

static void on_closed(void *ctx, struct berth_stream *stream, const struct berth_status *status)
{
    struct served *served = ctx;

    (void)stream;
    (void)status;
    pthread_mutex_lock(&served->planes->mutex);
    served->planes->n_open--;
    pthread_mutex_unlock(&served->planes->mutex);
    free(served);
}

static const struct berth_stream_ops ops = {.message = on_message,
                                            .written = on_written,
                                            .closed = on_closed,
                                            .cancelled = on_cancelled};

static enum berth_code open_call(void *service, struct berth_stream *stream,
                                 const struct berth_stream_ops **ret_ops, void **ret_ctx,
                                 struct berth_error *err)
{
    struct served *served = calloc(1, sizeof *served);
    const char *path = berth_call_path(berth_stream_call(stream));

    (void)err;
    ck_assert_ptr_nonnull(served);
    served->planes = service;
    served->is_attach = strstr(path, "/Attach");
    served->is_upload = strstr(path, "/WriteFile");
    pthread_mutex_lock(&served->planes->mutex);
    served->planes->n_open++;
    pthread_mutex_unlock(&served->planes->mutex);
    *ret_ops = &ops;
    *ret_ctx = served;
    berth_stream_read(stream);
    return BERTH_OK;
}

#define DATA(name, type)                                                                       \
    {                                                                                          \
        "/berth.data.v1." name, &berth__data__v1__##type##_request__descriptor, NULL,          \
            open_call, 0                                                                       \
    }
static const struct berth_method data_methods[] = {
    DATA("ProcessService/Exec", exec),
    DATA("ProcessService/Attach", attach),
    DATA("FileService/WriteFile", write_file),
};

/* ---------------------------------------------------------------------- the house */

static void say(void *arg, const void *data, size_t size)
{
    struct planes *planes = arg;

    pthread_mutex_lock(&planes->mutex);
    planes->n_says++;
    if (planes->n_said + size < sizeof planes->said) {
        memcpy(planes->said + planes->n_said, data, size);
        planes->n_said += size;
    }
    pthread_mutex_unlock(&planes->mutex);
}

static bool stopped(void *arg)
{
    struct planes *planes = arg;
    bool stop;

    pthread_mutex_lock(&planes->mutex);
    stop = planes->stop;
    pthread_mutex_unlock(&planes->mutex);
    return stop;
}

static struct berth_server *serve(struct planes *planes, const char *name,
                                  const struct berth_method *methods, size_t n_methods)
{
    const struct berth_server_options options = {.loop = planes->loop, .n_workers = 2};
    struct berth_server *server = NULL;
    struct berth_error err = {0};
    char address[128];

    snprintf(address, sizeof address, "unix:%s/%s.sock", planes->dir, name);
    ck_assert_msg(!berth_server_new(&options, &server, &err) &&
                      !berth_server_add(server, methods, n_methods, planes, &err) &&
                      !berth_server_listen(server, address, NULL, &err) &&
                      !berth_server_start(server, &err),
                  "%s: %s", name, err.text);
    return server;
}

void planes_open(struct planes *planes)
{
    *planes =
        (struct planes){.dir = "/tmp/berth-planes-XXXXXX", .mutex = PTHREAD_MUTEX_INITIALIZER};
    ck_assert_ptr_nonnull(mkdtemp(planes->dir));
    berth_rpc_init();
    ck_assert_int_eq(berth_loop_new(&planes->loop, NULL), BERTH_OK);
    ck_assert_int_eq(berth_loop_start(planes->loop, "planes", NULL), BERTH_OK);
    ck_assert_int_eq(berth_loop_new(&planes->caller_loop, NULL), BERTH_OK);
    ck_assert_int_eq(berth_loop_start(planes->caller_loop, "caller", NULL), BERTH_OK);
    planes->control =
        serve(planes, "controlplane", control_methods, BERTH_COUNT(control_methods));
    planes->data = serve(planes, "dataplane", data_methods, BERTH_COUNT(data_methods));
    planes->runtime =
        (struct berth_runtime){.loop = planes->caller_loop, .run_dir = planes->dir};
    planes->skills.runtime = &planes->runtime;
    ck_assert_int_eq(berth_peer_channel(&planes->runtime, "controlplane", "", NULL,
                                        &planes->skills.controlplane, NULL),
                     BERTH_OK);
    ck_assert_int_eq(berth_peer_channel(&planes->runtime, "dataplane", "", NULL,
                                        &planes->skills.dataplane, NULL),
                     BERTH_OK);
    planes->wish = (struct work_wish){.tenant_id = "t1",
                                      .config_id = "c1",
                                      .session_id = "sk.1",
                                      .step_timeout_ms = 20000,
                                      .say = say,
                                      .stopped = stopped,
                                      .arg = planes};
    planes_add(planes, (struct fake_rule){.word = work_begin_sh, .out = "no-uv\n1:23 "});
}

void planes_close(struct planes *planes)
{
    char path[128];

    planes->work = work_close(planes->work, true);
    berth_channel_free(planes->skills.controlplane);
    berth_channel_free(planes->skills.dataplane);
    berth_server_free(planes->control);
    berth_server_free(planes->data);
    berth_loop_free(planes->caller_loop);
    berth_loop_free(planes->loop);
    berth_rpc_done();
    snprintf(path, sizeof path, "%s/controlplane.sock", planes->dir);
    (void)unlink(path);
    snprintf(path, sizeof path, "%s/dataplane.sock", planes->dir);
    (void)unlink(path);
    ck_assert_int_eq(rmdir(planes->dir), 0);
}

void planes_add(struct planes *planes, struct fake_rule rule)
{
    pthread_mutex_lock(&planes->mutex);
    ck_assert_uint_lt(planes->n_rules, FAKE_RULES_MAX);
    planes->rules[planes->n_rules++] = rule;
    pthread_mutex_unlock(&planes->mutex);
}

void planes_work(struct planes *planes)
{
    struct berth_error err = {0};

    ck_assert_msg(!work_open(&planes->skills, &planes->wish, &planes->work, &err), "%s",
                  err.text);
}

unsigned planes_get(struct planes *planes, const unsigned *value)
{
    unsigned n;

    pthread_mutex_lock(&planes->mutex);
    n = *value;
    pthread_mutex_unlock(&planes->mutex);
    return n;
}
