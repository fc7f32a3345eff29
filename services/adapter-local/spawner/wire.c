/* wire.c - frames: header, JSON part, raw part. Decoding trusts nothing; see wire_read.c for
 * the reader. */
#include "services/adapter-local/spawner/wire.h"

#include <endian.h>

#include "common/json/json.h"

enum { SEQ_SIZE = 8, JSON_SIZE_SIZE = 4 };

static void put32(uint8_t *at, uint32_t value)
{
    value = htole32(value);
    memcpy(at, &value, sizeof value);
}

static void put64(uint8_t *at, uint64_t value)
{
    value = htole64(value);
    memcpy(at, &value, sizeof value);
}

static uint32_t get32(const uint8_t *at)
{
    uint32_t value;

    memcpy(&value, at, sizeof value);
    return le32toh(value);
}

static uint64_t get64(const uint8_t *at)
{
    uint64_t value;

    memcpy(&value, at, sizeof value);
    return le64toh(value);
}

static void put_header(uint8_t *at, enum wire_type type, size_t payload_size)
{
    at[0] = WIRE_VERSION;
    at[1] = (uint8_t)type;
    at[2] = at[3] = 0;
    put32(at + 4, (uint32_t)payload_size);
}

static int new_frame(enum wire_type type, size_t payload_size, struct wire_frame *ret)
{
    uint8_t *data;

    if (payload_size > WIRE_PAYLOAD_MAX)
        return -1;
    data = malloc(WIRE_HEADER_SIZE + payload_size);
    if (!data)
        return -1;
    put_header(data, type, payload_size);
    *ret = (struct wire_frame){data, WIRE_HEADER_SIZE + payload_size};
    return 0;
}

/* json (taken, may be NULL: out of memory), then up to three raw parts. */
static int encode_json(enum wire_type type, json_t *json, const struct wire_strings *a,
                       const struct wire_strings *b, const uint8_t *data, size_t data_size,
                       struct wire_frame *ret)
{
    BERTH_AUTO(free) char *text = json ? berth_json_format(json) : NULL;
    size_t text_size = text ? strlen(text) : 0;
    size_t a_size = a ? a->size : 0, b_size = b ? b->size : 0;
    uint8_t *at;

    json_decref(json);
    if (!text || new_frame(type, JSON_SIZE_SIZE + text_size + a_size + b_size + data_size, ret))
        return -1;
    at = ret->data + WIRE_HEADER_SIZE;
    put32(at, (uint32_t)text_size);
    at += JSON_SIZE_SIZE;
    memcpy(at, text, text_size);
    at += text_size;
    if (a_size)
        memcpy(at, a->bytes, a_size);
    at += a_size;
    if (b_size)
        memcpy(at, b->bytes, b_size);
    at += b_size;
    if (data_size)
        memcpy(at, data, data_size);
    return 0;
}

static json_t *ref_json(const struct wire_ref *ref)
{
    return json_pack("{s:s, s:I}", "exec_id", ref->exec_id, "pid", (json_int_t)ref->pid);
}

int wire_encode_start(const struct wire_start *start, struct wire_frame *ret)
{
    json_t *json = json_pack(
        "{s:s, s:s, s:s, s:b, s:b, s:b, s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:I}", "exec_id",
        start->exec_id, "digest", start->digest, "cwd", start->cwd, "shell", start->shell,
        "root", start->root, "keep_stdin_open", start->keep_stdin_open, "detach", start->detach,
        "collect", start->collect, "timeout_ms", (json_int_t)start->timeout_ms, "max_output",
        (json_int_t)start->max_output, "n_args", (json_int_t)start->args.n, "args_bytes",
        (json_int_t)start->args.size, "n_env", (json_int_t)start->env.n, "env_bytes",
        (json_int_t)start->env.size);

    return encode_json(WIRE_START, json, &start->args, &start->env, start->stdin_data,
                       start->stdin_size, ret);
}

int wire_encode_attach(const struct wire_attach *attach, struct wire_frame *ret)
{
    json_t *json = ref_json(&attach->ref);

    if (json)
        json_object_set_new(json, "after_seq", json_integer((json_int_t)attach->after_seq));
    return encode_json(WIRE_ATTACH, json, NULL, NULL, NULL, 0, ret);
}

int wire_encode_input(const struct wire_input *input, struct wire_frame *ret)
{
    json_t *json = ref_json(&input->ref);

    if (json) {
        json_object_set_new(json, "offset", json_integer((json_int_t)input->offset));
        json_object_set_new(json, "unchecked", json_boolean(input->unchecked));
        json_object_set_new(json, "end_of_file", json_boolean(input->end_of_file));
    }
    return encode_json(WIRE_INPUT, json, NULL, NULL, input->data, input->size, ret);
}

int wire_encode_signal(const struct wire_signal *signal, struct wire_frame *ret)
{
    json_t *json = ref_json(&signal->ref);

    if (json) {
        json_object_set_new(json, "signal", json_integer(signal->signal));
        json_object_set_new(json, "leader_only", json_boolean(signal->leader_only));
    }
    return encode_json(WIRE_SIGNAL, json, NULL, NULL, NULL, 0, ret);
}

int wire_encode_empty(enum wire_type type, struct wire_frame *ret)
{
    return new_frame(type, 0, ret);
}

int wire_encode_error(const struct berth_error *err, struct wire_frame *ret)
{
    json_t *json = json_pack("{s:s, s:s, s:s, s:s}", "reason", berth_reason_name(err->reason),
                             "text", err->text, "field", err->field, "rule", err->rule);

    return encode_json(WIRE_ERROR, json, NULL, NULL, NULL, 0, ret);
}

int wire_encode_started(const struct wire_started *started, struct wire_frame *ret)
{
    json_t *json = json_pack("{s:s, s:I, s:I, s:b}", "exec_id", started->exec_id, "pid",
                             (json_int_t)started->pid, "start_ms",
                             (json_int_t)started->start_ms, "attached", started->attached);

    return encode_json(WIRE_STARTED, json, NULL, NULL, NULL, 0, ret);
}

static json_t *exited_json(const struct wire_exited *exited)
{
    return json_pack("{s:I, s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:b, s:s}", "seq",
                     (json_int_t)exited->seq, "reason", (int)exited->reason, "exit_code",
                     exited->exit_code, "signal", exited->signal, "wall_us",
                     (json_int_t)exited->wall_us, "cpu_us", (json_int_t)exited->cpu_us,
                     "stdout_bytes", (json_int_t)exited->bytes[WIRE_STDOUT], "stderr_bytes",
                     (json_int_t)exited->bytes[WIRE_STDERR], "stream_held_open",
                     exited->stream_held_open, "message", exited->message);
}

int wire_encode_exited(const struct wire_exited *exited, struct wire_frame *ret)
{
    return encode_json(WIRE_EXITED, exited_json(exited), NULL, NULL, NULL, 0, ret);
}

int wire_encode_truncated(const struct wire_truncated *truncated, struct wire_frame *ret)
{
    uint8_t *at;

    if (new_frame(WIRE_TRUNCATED, 3 * SEQ_SIZE + 1, ret))
        return -1;
    at = ret->data + WIRE_HEADER_SIZE;
    put64(at, truncated->seq);
    put64(at + SEQ_SIZE, truncated->from_seq);
    put64(at + 2 * SEQ_SIZE, truncated->dropped);
    at[3 * SEQ_SIZE] = (uint8_t)truncated->stream;
    return 0;
}

int wire_encode_heartbeat(const struct wire_heartbeat *heartbeat, struct wire_frame *ret)
{
    if (new_frame(WIRE_HEARTBEAT, 2 * SEQ_SIZE, ret))
        return -1;
    put64(ret->data + WIRE_HEADER_SIZE, heartbeat->seq);
    put64(ret->data + WIRE_HEADER_SIZE + SEQ_SIZE, (uint64_t)heartbeat->now_ms);
    return 0;
}

int wire_encode_input_done(uint64_t next_offset, struct wire_frame *ret)
{
    if (new_frame(WIRE_INPUT_DONE, SEQ_SIZE, ret))
        return -1;
    put64(ret->data + WIRE_HEADER_SIZE, next_offset);
    return 0;
}

int wire_encode_signal_done(bool existed, struct wire_frame *ret)
{
    if (new_frame(WIRE_SIGNAL_DONE, 1, ret))
        return -1;
    ret->data[WIRE_HEADER_SIZE] = existed;
    return 0;
}

int wire_encode_process(const struct wire_process *process, struct wire_frame *ret)
{
    json_t *json = json_pack(
        "{s:s, s:s, s:I, s:b, s:b, s:b, s:I, s:I, s:I, s:I, s:I}", "exec_id", process->exec_id,
        "cwd", process->cwd, "pid", (json_int_t)process->pid, "shell", process->shell, "root",
        process->root, "detached", process->detached, "start_ms", (json_int_t)process->start_ms,
        "timeout_ms", (json_int_t)process->timeout_ms, "last_seq",
        (json_int_t)process->last_seq, "n_args", (json_int_t)process->args.n, "args_bytes",
        (json_int_t)process->args.size);

    if (json && process->ended)
        json_object_set_new(json, "exited", exited_json(&process->exited));
    return encode_json(WIRE_PROCESS, json, &process->args, NULL, NULL, 0, ret);
}

void wire_encode_output_head(const struct wire_output *output,
                             uint8_t ret[WIRE_OUTPUT_HEAD_SIZE])
{
    put_header(ret, WIRE_OUTPUT, SEQ_SIZE + 1 + output->size);
    put64(ret + WIRE_HEADER_SIZE, output->seq);
    ret[WIRE_HEADER_SIZE + SEQ_SIZE] = (uint8_t)output->stream;
}

/* --------------------------------------------------------------------- decode */

static enum berth_code bad(struct berth_error *err, const char *rule)
{
    return berth_fail_field(err, "frame", "%s", rule);
}

/* Members of one object, read one after another; the first failure sticks. */
struct members {
    json_t *json;
    enum berth_code code;
    struct berth_error *err;
};

static struct members open_json(const uint8_t *payload, size_t size, const uint8_t **ret_rest,
                                size_t *ret_rest_size, struct berth_error *err)
{
    struct members m = {.err = err};
    size_t text_size;

    if (size < JSON_SIZE_SIZE) {
        m.code = bad(err, "too short");
        return m;
    }
    text_size = get32(payload);
    if (text_size > size - JSON_SIZE_SIZE) {
        m.code = bad(err, "JSON part longer than the frame");
        return m;
    }
    m.code = berth_json_parse((const char *)payload + JSON_SIZE_SIZE, text_size, WIRE_JSON_MAX,
                              &m.json, err);
    *ret_rest = payload + JSON_SIZE_SIZE + text_size;
    *ret_rest_size = size - JSON_SIZE_SIZE - text_size;
    return m;
}

static void text(struct members *m, const char *key, char *buf, size_t size, const char *absent)
{
    if (m->code == BERTH_OK)
        m->code = berth_json_get_str(m->json, key, buf, size, absent, m->err);
}

static int64_t number(struct members *m, const char *key, int64_t min, int64_t max)
{
    int64_t value = 0;

    if (m->code == BERTH_OK)
        m->code = berth_json_get_int(m->json, key, min, max, 0, &value, m->err);
    return value;
}

static bool flag(struct members *m, const char *key)
{
    bool value = false;

    if (m->code == BERTH_OK)
        m->code = berth_json_get_bool(m->json, key, false, &value, m->err);
    return value;
}

static enum berth_code close_json(struct members *m)
{
    json_decref(m->json);
    return m->code;
}

/* Cut n strings of size bytes off the front of *rest. */
static struct wire_strings cut_strings(struct members *m, int64_t n, int64_t size,
                                       const uint8_t **rest, size_t *rest_size)
{
    struct wire_strings strings = {
        .n = (uint32_t)n, .bytes = (const char *)*rest, .size = (size_t)size};
    int64_t nuls = 0;

    if (m->code)
        return strings;
    if ((size_t)size > *rest_size) {
        m->code = bad(m->err, "strings longer than the frame");
        return strings;
    }
    for (int64_t i = 0; i < size; i++)
        nuls += (*rest)[i] == 0;
    if (nuls != n || (size > 0 && (*rest)[size - 1] != 0))
        m->code = bad(m->err, "not as many strings as announced");
    *rest += size;
    *rest_size -= (size_t)size;
    return strings;
}

static void read_ref(struct members *m, struct wire_ref *ret)
{
    text(m, "exec_id", ret->exec_id, sizeof ret->exec_id, "");
    ret->pid = (uint32_t)number(m, "pid", 0, UINT32_MAX);
}

enum berth_code wire_decode_start(const uint8_t *payload, size_t size, struct wire_start *ret,
                                  struct berth_error *err)
{
    struct wire_start start = {0};
    const uint8_t *rest = NULL;
    size_t rest_size = 0;
    struct members m = open_json(payload, size, &rest, &rest_size, err);
    int64_t n_args, args_size, n_env, env_size;

    text(&m, "exec_id", start.exec_id, sizeof start.exec_id, NULL);
    text(&m, "digest", start.digest, sizeof start.digest, NULL);
    text(&m, "cwd", start.cwd, sizeof start.cwd, NULL);
    start.shell = flag(&m, "shell");
    start.root = flag(&m, "root");
    start.keep_stdin_open = flag(&m, "keep_stdin_open");
    start.detach = flag(&m, "detach");
    start.collect = flag(&m, "collect");
    start.timeout_ms = number(&m, "timeout_ms", 0, INT64_MAX / 2);
    start.max_output = number(&m, "max_output", 0, INT64_MAX);
    n_args = number(&m, "n_args", 1, WIRE_ARGS_MAX);
    args_size = number(&m, "args_bytes", 1, WIRE_ARGS_BYTES_MAX + WIRE_ARGS_MAX);
    n_env = number(&m, "n_env", 0, WIRE_ARGS_MAX);
    env_size = number(&m, "env_bytes", 0, WIRE_ENV_BYTES_MAX);
    start.args = cut_strings(&m, n_args, args_size, &rest, &rest_size);
    start.env = cut_strings(&m, n_env, env_size, &rest, &rest_size);
    start.stdin_data = rest;
    start.stdin_size = rest_size;
    if (close_json(&m))
        return m.code;
    if (start.exec_id[0] == 0 || start.cwd[0] != '/' || (start.shell && start.args.n != 1))
        return bad(err, "exec_id, cwd or arguments missing");
    if (rest_size > WIRE_DATA_MAX)
        return bad(err, "too much stdin");
    if (start.collect && start.max_output == 0)
        return bad(err, "collect needs a limit");
    *ret = start;
    return BERTH_OK;
}

enum berth_code wire_decode_attach(const uint8_t *payload, size_t size, struct wire_attach *ret,
                                   struct berth_error *err)
{
    struct wire_attach attach = {0};
    const uint8_t *rest = NULL;
    size_t rest_size = 0;
    struct members m = open_json(payload, size, &rest, &rest_size, err);

    read_ref(&m, &attach.ref);
    attach.after_seq = (uint64_t)number(&m, "after_seq", 0, INT64_MAX);
    if (close_json(&m))
        return m.code;
    if (rest_size > 0)
        return bad(err, "too long");
    *ret = attach;
    return BERTH_OK;
}

enum berth_code wire_decode_input(const uint8_t *payload, size_t size, struct wire_input *ret,
                                  struct berth_error *err)
{
    struct wire_input input = {0};
    const uint8_t *rest = NULL;
    size_t rest_size = 0;
    struct members m = open_json(payload, size, &rest, &rest_size, err);

    read_ref(&m, &input.ref);
    input.offset = (uint64_t)number(&m, "offset", 0, INT64_MAX - WIRE_DATA_MAX);
    input.unchecked = flag(&m, "unchecked");
    input.end_of_file = flag(&m, "end_of_file");
    input.data = rest;
    input.size = rest_size;
    if (close_json(&m))
        return m.code;
    if (rest_size > WIRE_DATA_MAX)
        return bad(err, "too much data");
    *ret = input;
    return BERTH_OK;
}

enum berth_code wire_decode_signal(const uint8_t *payload, size_t size, struct wire_signal *ret,
                                   struct berth_error *err)
{
    struct wire_signal signal = {0};
    const uint8_t *rest = NULL;
    size_t rest_size = 0;
    struct members m = open_json(payload, size, &rest, &rest_size, err);

    read_ref(&m, &signal.ref);
    signal.signal = (int)number(&m, "signal", 1, 64);
    signal.leader_only = flag(&m, "leader_only");
    if (close_json(&m))
        return m.code;
    if (rest_size > 0 || signal.signal == 0)
        return bad(err, "signal missing, or too long");
    *ret = signal;
    return BERTH_OK;
}

enum berth_code wire_decode_started(const uint8_t *payload, size_t size,
                                    struct wire_started *ret, struct berth_error *err)
{
    struct wire_started started = {0};
    const uint8_t *rest = NULL;
    size_t rest_size = 0;
    struct members m = open_json(payload, size, &rest, &rest_size, err);

    text(&m, "exec_id", started.exec_id, sizeof started.exec_id, NULL);
    started.pid = (uint32_t)number(&m, "pid", 0, UINT32_MAX);
    started.start_ms = number(&m, "start_ms", 0, INT64_MAX);
    started.attached = flag(&m, "attached");
    if (close_json(&m))
        return m.code;
    *ret = started;
    return BERTH_OK;
}

static void read_exited(struct members *m, struct wire_exited *ret)
{
    ret->seq = (uint64_t)number(m, "seq", 0, INT64_MAX);
    ret->reason = (enum wire_reason)number(m, "reason", 1, WIRE_EXIT_SPAWN_FAILED);
    ret->exit_code = (int)number(m, "exit_code", 0, 255);
    ret->signal = (int)number(m, "signal", 0, 64);
    ret->wall_us = number(m, "wall_us", 0, INT64_MAX);
    ret->cpu_us = number(m, "cpu_us", 0, INT64_MAX);
    ret->bytes[WIRE_STDOUT] = (uint64_t)number(m, "stdout_bytes", 0, INT64_MAX);
    ret->bytes[WIRE_STDERR] = (uint64_t)number(m, "stderr_bytes", 0, INT64_MAX);
    ret->stream_held_open = flag(m, "stream_held_open");
    text(m, "message", ret->message, sizeof ret->message, "");
    /* An answer without a reason is no answer: nothing may read as "exited, code 0". */
    if (m->code == BERTH_OK && ret->reason == WIRE_REASON_NONE)
        m->code = bad(m->err, "no exit reason");
}

enum berth_code wire_decode_exited(const uint8_t *payload, size_t size, struct wire_exited *ret,
                                   struct berth_error *err)
{
    struct wire_exited exited = {0};
    const uint8_t *rest = NULL;
    size_t rest_size = 0;
    struct members m = open_json(payload, size, &rest, &rest_size, err);

    if (m.code == BERTH_OK)
        read_exited(&m, &exited);
    if (close_json(&m))
        return m.code;
    *ret = exited;
    return BERTH_OK;
}

enum berth_code wire_decode_output(const uint8_t *payload, size_t size, struct wire_output *ret,
                                   struct berth_error *err)
{
    if (size <= SEQ_SIZE + 1 || size > SEQ_SIZE + 1 + WIRE_OUTPUT_MAX ||
        payload[SEQ_SIZE] >= WIRE_N_STREAMS)
        return bad(err, "not an output frame");
    *ret = (struct wire_output){.seq = get64(payload),
                                .stream = (enum wire_stream)payload[SEQ_SIZE],
                                .data = payload + SEQ_SIZE + 1,
                                .size = size - SEQ_SIZE - 1};
    return BERTH_OK;
}

enum berth_code wire_decode_truncated(const uint8_t *payload, size_t size,
                                      struct wire_truncated *ret, struct berth_error *err)
{
    if (size != 3 * SEQ_SIZE + 1 || payload[3 * SEQ_SIZE] >= WIRE_N_STREAMS)
        return bad(err, "not a truncated frame");
    *ret = (struct wire_truncated){.seq = get64(payload),
                                   .from_seq = get64(payload + SEQ_SIZE),
                                   .dropped = get64(payload + 2 * SEQ_SIZE),
                                   .stream = (enum wire_stream)payload[3 * SEQ_SIZE]};
    return BERTH_OK;
}

enum berth_code wire_decode_heartbeat(const uint8_t *payload, size_t size,
                                      struct wire_heartbeat *ret, struct berth_error *err)
{
    if (size != 2 * SEQ_SIZE || get64(payload + SEQ_SIZE) > INT64_MAX)
        return bad(err, "not a heartbeat");
    *ret = (struct wire_heartbeat){.seq = get64(payload),
                                   .now_ms = (int64_t)get64(payload + SEQ_SIZE)};
    return BERTH_OK;
}

enum berth_code wire_decode_input_done(const uint8_t *payload, size_t size,
                                       uint64_t *ret_next_offset, struct berth_error *err)
{
    if (size != SEQ_SIZE)
        return bad(err, "not an answer to input");
    *ret_next_offset = get64(payload);
    return BERTH_OK;
}

enum berth_code wire_decode_signal_done(const uint8_t *payload, size_t size, bool *ret_existed,
                                        struct berth_error *err)
{
    if (size != 1 || payload[0] > 1)
        return bad(err, "not an answer to signal");
    *ret_existed = payload[0] == 1;
    return BERTH_OK;
}

enum berth_code wire_decode_process(const uint8_t *payload, size_t size,
                                    struct wire_process *ret, struct berth_error *err)
{
    struct wire_process process = {0};
    const uint8_t *rest = NULL;
    size_t rest_size = 0;
    struct members m = open_json(payload, size, &rest, &rest_size, err);
    int64_t n_args, args_size;

    text(&m, "exec_id", process.exec_id, sizeof process.exec_id, NULL);
    text(&m, "cwd", process.cwd, sizeof process.cwd, "");
    process.pid = (uint32_t)number(&m, "pid", 0, UINT32_MAX);
    process.shell = flag(&m, "shell");
    process.root = flag(&m, "root");
    process.detached = flag(&m, "detached");
    process.start_ms = number(&m, "start_ms", 0, INT64_MAX);
    process.timeout_ms = number(&m, "timeout_ms", 0, INT64_MAX);
    process.last_seq = (uint64_t)number(&m, "last_seq", 0, INT64_MAX);
    n_args = number(&m, "n_args", 0, WIRE_ARGS_MAX);
    args_size = number(&m, "args_bytes", 0, WIRE_SHOWN_MAX);
    process.args = cut_strings(&m, n_args, args_size, &rest, &rest_size);
    if (m.code == BERTH_OK && json_object_get(m.json, "exited")) {
        struct members inner = {.json = json_object_get(m.json, "exited"), .err = err};

        process.ended = true;
        read_exited(&inner, &process.exited);
        m.code = inner.code;
    }
    if (close_json(&m))
        return m.code;
    if (rest_size > 0)
        return bad(err, "too long");
    *ret = process;
    return BERTH_OK;
}

enum berth_code wire_decode_error(const uint8_t *payload, size_t size, struct berth_error *err)
{
    struct wire_error error = {0};
    const uint8_t *rest = NULL;
    size_t rest_size = 0;
    struct members m = open_json(payload, size, &rest, &rest_size, NULL);
    enum berth_reason reason;

    text(&m, "reason", error.reason, sizeof error.reason, NULL);
    text(&m, "text", error.text, sizeof error.text, "");
    text(&m, "field", error.field, sizeof error.field, "");
    text(&m, "rule", error.rule, sizeof error.rule, "");
    reason = m.code ? BERTH_REASON_NONE : berth_reason_from_name(error.reason);
    close_json(&m);
    if (reason == BERTH_REASON_NONE)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG,
                          "the supervisor's error is not readable");
    berth_fail(err, reason, "%s", error.text);
    BERTH_ERROR_SET(err, field, error.field);
    BERTH_ERROR_SET(err, rule, error.rule);
    return berth_reason_code(reason);
}
