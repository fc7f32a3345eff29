/* client.h - a client of the EchoService for tests: calls, and streams that a test can wait on.
 */
#pragma once

#include <pthread.h>

#include "tests/component/rpc/echo.h"

/* One blocking call; req may be NULL. Returns the code; on BERTH_OK *ret_resp is owned. */
enum berth_code echo_call(struct berth_channel *channel, const char *path, EchoRequest *req,
                          const struct berth_call_options *options, EchoResponse **ret_resp,
                          struct berth_error *err);
void echo_response_free(EchoResponse *response);

/* A client stream whose callbacks only take notes. Functions may be called from the test. */
struct echo_client {
    struct berth_loop *loop;
    struct berth_stream *stream;
    pthread_mutex_t mutex; /* all below */
    pthread_cond_t changed;
    struct berth_buf *messages[64];                  /* the last ones received */
    unsigned n_messages, n_taken, n_written, n_ends; /* n_ends: .message(NULL) */
    bool closed;
    enum berth_code code;
    char text[512];
    struct berth_error err; /* the status as an error */
    uint8_t details[4096];
    size_t details_size;
};

void echo_client_open(struct echo_client *client, struct berth_channel *channel,
                      struct berth_loop *loop, const char *path,
                      const struct berth_call_options *options);
/* Write one message (taken) and wait until it is out of our hands; false after wait_ms or when
 * the stream has ended. */
bool echo_client_write(struct echo_client *client, struct berth_buf *msg, int64_t wait_ms);
bool echo_client_write_request(struct echo_client *client, const EchoRequest *req);
void echo_client_half_close(struct echo_client *client);
void echo_client_cancel(struct echo_client *client);
/* Read one message; NULL: there are no more. Fails the test after 10 s. */
struct berth_buf *echo_client_read(struct echo_client *client);
EchoResponse *echo_client_read_response(struct echo_client *client);
/* Wait for .closed; fails the test after 10 s. Returns the code. */
enum berth_code echo_client_wait(struct echo_client *client);
void echo_client_deinit(struct echo_client *client); /* cancels and waits first */

/* Poll until *value is at least wanted; fails the test after 10 s. */
void wait_for_at_least(atomic_uint *value, unsigned wanted);
/* A socket path of this process; static. */
const char *socket_path(void);
/* "<len> bytes of c" as payload; free() data. */
void fill_payload(EchoRequest *req, size_t size, int c);
