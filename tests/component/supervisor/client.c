/* client.c - the adapter's side of sup.sock, blocking. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "common/time/time.h"
#include "tests/component/supervisor/fake_box.h"

void client_open(struct client *client, const struct fake_box *box)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    *client = (struct client){.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    snprintf(address.sun_path, sizeof address.sun_path, "%s/sup.sock", box->dir);
    ck_assert_int_eq(connect(client->fd, (struct sockaddr *)&address, sizeof address), 0);
    fcntl(client->fd, F_SETFL, O_NONBLOCK);
}

void client_close(struct client *client)
{
    close(client->fd);
    wire_reader_deinit(&client->reader);
}

void client_send(struct client *client, struct wire_frame frame)
{
    size_t sent = 0;

    while (sent < frame.size) {
        ssize_t n = send(client->fd, frame.data + sent, frame.size - sent, MSG_NOSIGNAL);

        if (n < 0 && errno == EAGAIN) {
            struct pollfd pfd = {.fd = client->fd, .events = POLLOUT};

            ck_assert_int_eq(poll(&pfd, 1, CLIENT_WAIT_MS), 1);
            continue;
        }
        if (n < 0)
            break; /* the answer is there already */
        sent += (size_t)n;
    }
    free(frame.data);
}

enum wire_type client_next(struct client *client, const uint8_t **ret_payload, size_t *ret_size)
{
    int64_t until = berth_tick_ms() + CLIENT_WAIT_MS;
    enum wire_type type;

    for (;;) {
        enum wire_read got =
            wire_read(&client->reader, client->fd, &type, ret_payload, ret_size);
        struct pollfd pfd = {.fd = client->fd, .events = POLLIN};

        if (got == WIRE_READ_FRAME)
            return type;
        ck_assert_msg(got == WIRE_READ_AGAIN, "the supervisor closed the connection");
        ck_assert_msg(berth_tick_ms() < until, "no answer in time");
        poll(&pfd, 1, 100);
    }
}

static struct wire_start fill(const char *exec_id)
{
    struct wire_start start = {.timeout_ms = 60000};

    snprintf(start.exec_id, sizeof start.exec_id, "%s", exec_id);
    snprintf(start.digest, sizeof start.digest, "d-%s", exec_id);
    snprintf(start.cwd, sizeof start.cwd, "/tmp");
    return start;
}

struct wire_start command(const char *exec_id, const char *shell)
{
    struct wire_start start = fill(exec_id);

    start.shell = true;
    start.args = (struct wire_strings){1, shell, strlen(shell) + 1};
    return start;
}

struct wire_start program(const char *exec_id, const char *words)
{
    static char bytes[4096];
    struct wire_start start = fill(exec_id);

    snprintf(bytes, sizeof bytes, "%s", words);
    start.args = (struct wire_strings){1, bytes, strlen(words) + 1};
    for (char *at = bytes; *at; at++) {
        if (*at == ' ') {
            *at = 0;
            start.args.n++;
        }
    }
    return start;
}

void client_start(struct client *client, const struct wire_start *start)
{
    struct wire_frame frame;

    ck_assert_int_eq(wire_encode_start(start, &frame), 0);
    client_send(client, frame);
}

void client_attach(struct client *client, const char *exec_id, uint64_t after_seq)
{
    struct wire_attach attach = {.after_seq = after_seq};
    struct wire_frame frame;

    snprintf(attach.ref.exec_id, sizeof attach.ref.exec_id, "%s", exec_id);
    ck_assert_int_eq(wire_encode_attach(&attach, &frame), 0);
    client_send(client, frame);
}

static void add_output(struct outcome *outcome, const struct wire_output *output)
{
    enum wire_stream s = output->stream;
    char *bigger = realloc(outcome->data[s], outcome->size[s] + output->size + 1);

    ck_assert_ptr_nonnull(bigger);
    memcpy(bigger + outcome->size[s], output->data, output->size);
    outcome->size[s] += output->size;
    bigger[outcome->size[s]] = 0;
    outcome->data[s] = bigger;
    outcome->n_output++;
    ck_assert_uint_gt(output->seq, outcome->last_seq);
    outcome->last_seq = output->seq;
}

enum wire_type client_event(struct client *client, struct outcome *outcome)
{
    struct wire_truncated truncated;
    struct wire_heartbeat heartbeat;
    struct wire_output output;
    const uint8_t *payload;
    size_t size;
    enum wire_type type = client_next(client, &payload, &size);

    switch (type) {
    case WIRE_STARTED:
        ck_assert_int_eq(wire_decode_started(payload, size, &outcome->started, NULL), 0);
        outcome->has_started = true;
        break;
    case WIRE_OUTPUT:
        ck_assert_int_eq(wire_decode_output(payload, size, &output, NULL), 0);
        add_output(outcome, &output);
        break;
    case WIRE_TRUNCATED:
        ck_assert_int_eq(wire_decode_truncated(payload, size, &truncated, NULL), 0);
        outcome->dropped[truncated.stream] += truncated.dropped;
        outcome->n_truncated++;
        break;
    case WIRE_EXITED:
        ck_assert_int_eq(wire_decode_exited(payload, size, &outcome->exited, NULL), 0);
        ck_assert_uint_gt(outcome->exited.seq, outcome->last_seq);
        outcome->has_exited = true;
        break;
    case WIRE_HEARTBEAT:
        ck_assert_int_eq(wire_decode_heartbeat(payload, size, &heartbeat, NULL), 0);
        outcome->n_heartbeats++;
        break;
    case WIRE_ERROR:
        wire_decode_error(payload, size, &outcome->err);
        outcome->failed = true;
        break;
    default:
        ck_abort_msg("frame %d is no event", (int)type);
    }
    return type;
}

void client_drain(struct client *client, struct outcome *outcome)
{
    while (!outcome->has_exited && !outcome->failed)
        client_event(client, outcome);
}

void outcome_free(struct outcome *outcome)
{
    free(outcome->data[0]);
    free(outcome->data[1]);
    *outcome = (struct outcome){0};
}

struct outcome run(const struct fake_box *box, const struct wire_start *start)
{
    struct outcome outcome = {0};
    struct client client;

    client_open(&client, box);
    client_start(&client, start);
    client_drain(&client, &outcome);
    client_close(&client);
    return outcome;
}

int64_t send_input(const struct fake_box *box, const char *exec_id, uint64_t offset,
                   const char *data, size_t size, bool end_of_file)
{
    struct wire_input input = {.offset = offset,
                               .data = (const uint8_t *)data,
                               .size = size,
                               .end_of_file = end_of_file};
    struct berth_error err = {0};
    struct wire_frame frame;
    struct client client;
    const uint8_t *payload;
    uint64_t next = 0;
    size_t payload_size;

    snprintf(input.ref.exec_id, sizeof input.ref.exec_id, "%s", exec_id);
    ck_assert_int_eq(wire_encode_input(&input, &frame), 0);
    client_open(&client, box);
    client_send(&client, frame);
    if (client_next(&client, &payload, &payload_size) == WIRE_ERROR)
        wire_decode_error(payload, payload_size, &err);
    else
        ck_assert_int_eq(wire_decode_input_done(payload, payload_size, &next, NULL), 0);
    client_close(&client);
    return err.reason ? -(int64_t)err.reason : (int64_t)next;
}

bool send_signal(const struct fake_box *box, const char *exec_id, int signal, bool leader_only)
{
    struct wire_signal request = {.signal = signal, .leader_only = leader_only};
    struct wire_frame frame;
    struct client client;
    const uint8_t *payload;
    bool existed = false;
    size_t size;

    snprintf(request.ref.exec_id, sizeof request.ref.exec_id, "%s", exec_id);
    ck_assert_int_eq(wire_encode_signal(&request, &frame), 0);
    client_open(&client, box);
    client_send(&client, frame);
    ck_assert_int_eq(client_next(&client, &payload, &size), WIRE_SIGNAL_DONE);
    ck_assert_int_eq(wire_decode_signal_done(payload, size, &existed, NULL), 0);
    client_close(&client);
    return existed;
}

static bool has_ended(const struct fake_box *box, const char *exec_id)
{
    struct wire_process process;
    struct wire_frame list;
    struct client client;
    const uint8_t *payload;
    bool ended = false;
    size_t size;

    client_open(&client, box);
    ck_assert_int_eq(wire_encode_empty(WIRE_LIST, &list), 0);
    client_send(&client, list);
    while (client_next(&client, &payload, &size) == WIRE_PROCESS) {
        ck_assert_int_eq(wire_decode_process(payload, size, &process, NULL), 0);
        ended |= strcmp(process.exec_id, exec_id) == 0 && process.ended;
    }
    client_close(&client);
    return ended;
}

void wait_ended(const struct fake_box *box, const char *exec_id)
{
    int64_t until = berth_tick_ms() + CLIENT_WAIT_MS;

    while (!has_ended(box, exec_id)) {
        ck_assert_int_lt(berth_tick_ms(), until);
        poll(NULL, 0, 10);
    }
}
