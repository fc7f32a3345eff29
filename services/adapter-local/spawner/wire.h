/* wire.h - frames between the adapter and the supervisor of one sandbox, over the unix stream
 * socket sup.sock.
 *
 * One connection carries one request and its answers. A frame is a header of WIRE_HEADER_SIZE
 * bytes - version, type, two zero bytes, size of the payload (32 bits, little endian) - and the
 * payload. Payloads of requests and of rare answers begin with the size (32 bits) of a JSON
 * object; raw bytes follow it. Output and heartbeats are binary. Integers are little endian.
 * Unknown JSON members are skipped: a supervisor may be older or younger than the adapter. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/errors/errors.h"

enum { WIRE_VERSION = 1, WIRE_HEADER_SIZE = 8 };

enum {
    WIRE_ID_SIZE = 129,            /* exec_id with NUL */
    WIRE_DIGEST_SIZE = 65,         /* hex of a SHA-256 with NUL */
    WIRE_CWD_SIZE = 4097,          /* with NUL */
    WIRE_TEXT_SIZE = 384,          /* messages for a developer, with NUL */
    WIRE_ARGS_MAX = 4096,          /* arguments, or environment entries */
    WIRE_ARGS_BYTES_MAX = 1 << 20, /* arguments with their NULs, less one each */
    WIRE_ENV_BYTES_MAX = 640 << 10,
    WIRE_DATA_MAX = 3 << 20,     /* stdin in one frame */
    WIRE_OUTPUT_MAX = 256 << 10, /* output in one frame */
    WIRE_JSON_MAX = 64 << 10,
    WIRE_PAYLOAD_MAX = 6 << 20, /* of any frame */
};

enum wire_type {
    /* Requests. */
    WIRE_START = 1,  /* answers: STARTED, then events up to EXITED; or ERROR */
    WIRE_ATTACH = 2, /* the same */
    WIRE_INPUT = 3,  /* INPUT_DONE or ERROR, once all of it was taken by the command */
    WIRE_SIGNAL = 4, /* SIGNAL_DONE or ERROR */
    WIRE_LIST = 5,   /* PROCESS for each, then LIST_DONE */
    WIRE_CANCEL = 6, /* after START or ATTACH: the caller has given up; no answer */
    /* Answers. */
    WIRE_ERROR = 32,
    WIRE_STARTED = 33,
    WIRE_OUTPUT = 34,
    WIRE_TRUNCATED = 35,
    WIRE_EXITED = 36,
    WIRE_HEARTBEAT = 37,
    WIRE_INPUT_DONE = 38,
    WIRE_SIGNAL_DONE = 39,
    WIRE_PROCESS = 40,
    WIRE_LIST_DONE = 41,
};

enum wire_stream { WIRE_STDOUT = 0, WIRE_STDERR = 1, WIRE_N_STREAMS = 2 };

/* Numbers of berth.data.v1.ExitReason. */
enum wire_reason {
    WIRE_REASON_NONE = 0,
    WIRE_EXIT_EXITED = 1,
    WIRE_EXIT_SIGNALED = 2,
    WIRE_EXIT_TIMED_OUT = 3,
    WIRE_EXIT_OUT_OF_MEMORY = 4,
    WIRE_EXIT_KILLED = 5,
    WIRE_EXIT_SPAWN_FAILED = 6,
};

/* Strings one behind the other, each with its NUL. Borrowed. */
struct wire_strings {
    uint32_t n;
    const char *bytes;
    size_t size;
};

/* Start a command. args holds one string when shell is set. */
struct wire_start {
    char exec_id[WIRE_ID_SIZE];    /* never empty */
    char digest[WIRE_DIGEST_SIZE]; /* of what was asked: another one is another command */
    char cwd[WIRE_CWD_SIZE];
    bool shell, root, keep_stdin_open, detach;
    bool collect; /* events only when it has ended; head and tail of max_output are kept */
    int64_t timeout_ms;            /* 0 = none */
    int64_t max_output;            /* bytes per stream; 0 = no limit; never with collect */
    struct wire_strings args, env; /* env: "NAME=value" */
    const uint8_t *stdin_data;     /* borrowed */
    size_t stdin_size;
};

/* Names a command: by exec_id, or where that is "" by its pid inside the sandbox. */
struct wire_ref {
    char exec_id[WIRE_ID_SIZE];
    uint32_t pid;
};

struct wire_attach {
    struct wire_ref ref;
    uint64_t after_seq;
};

struct wire_input {
    struct wire_ref ref;
    uint64_t offset;
    bool unchecked, end_of_file;
    const uint8_t *data; /* borrowed */
    size_t size;
};

struct wire_signal {
    struct wire_ref ref;
    int signal;
    bool leader_only;
};

struct wire_error {
    char reason[40]; /* name of a reason of reasons.def */
    char text[WIRE_TEXT_SIZE];
    char field[96], rule[160];
};

struct wire_started {
    char exec_id[WIRE_ID_SIZE];
    uint32_t pid;
    int64_t start_ms; /* wall clock */
    bool attached;
};

struct wire_output {
    uint64_t seq;
    enum wire_stream stream;
    const uint8_t *data; /* borrowed */
    size_t size;
};

/* dropped bytes of one stream are missing; events from_seq..seq are not kept any more. */
struct wire_truncated {
    uint64_t seq, from_seq, dropped;
    enum wire_stream stream;
};

struct wire_exited {
    uint64_t seq;
    enum wire_reason reason;
    int exit_code, signal;
    int64_t wall_us, cpu_us;
    uint64_t bytes[WIRE_N_STREAMS]; /* printed in all, kept or not */
    bool stream_held_open;
    char message[WIRE_TEXT_SIZE];
};

struct wire_heartbeat {
    uint64_t seq;   /* of the last event */
    int64_t now_ms; /* wall clock */
};

/* One command of LIST. args is what was asked, cut to WIRE_SHOWN_MAX bytes. */
enum { WIRE_SHOWN_MAX = 2048 };
struct wire_process {
    char exec_id[WIRE_ID_SIZE];
    char cwd[WIRE_CWD_SIZE];
    uint32_t pid;
    bool shell, root, detached, ended;
    int64_t start_ms, timeout_ms;
    uint64_t last_seq;
    struct wire_exited exited; /* when ended */
    struct wire_strings args;
};

/* --------------------------------------------------------------------- encode */

/* A whole frame, owned: free(data). */
struct wire_frame {
    uint8_t *data;
    size_t size;
};

/* Each returns 0, or -1 without memory. */
int wire_encode_start(const struct wire_start *start, struct wire_frame *ret);
int wire_encode_attach(const struct wire_attach *attach, struct wire_frame *ret);
int wire_encode_input(const struct wire_input *input, struct wire_frame *ret);
int wire_encode_signal(const struct wire_signal *signal, struct wire_frame *ret);
int wire_encode_empty(enum wire_type type,
                      struct wire_frame *ret); /* LIST, CANCEL, LIST_DONE */
int wire_encode_error(const struct berth_error *err, struct wire_frame *ret);
int wire_encode_started(const struct wire_started *started, struct wire_frame *ret);
int wire_encode_truncated(const struct wire_truncated *truncated, struct wire_frame *ret);
int wire_encode_exited(const struct wire_exited *exited, struct wire_frame *ret);
int wire_encode_heartbeat(const struct wire_heartbeat *heartbeat, struct wire_frame *ret);
int wire_encode_input_done(uint64_t next_offset, struct wire_frame *ret);
int wire_encode_signal_done(bool existed, struct wire_frame *ret);
int wire_encode_process(const struct wire_process *process, struct wire_frame *ret);

/* What stands in front of the data of an OUTPUT frame; data is sent from where it lies. */
enum { WIRE_OUTPUT_HEAD_SIZE = WIRE_HEADER_SIZE + 9 };
void wire_encode_output_head(const struct wire_output *output,
                             uint8_t ret[WIRE_OUTPUT_HEAD_SIZE]);

/* --------------------------------------------------------------------- decode */

/* Payloads are borrowed, and what the results point to lies in them.
 * Errors: FIELD_INVALID; OUT_OF_MEMORY. */
BERTH_MUST_CHECK enum berth_code wire_decode_start(const uint8_t *payload, size_t size,
                                                   struct wire_start *ret,
                                                   struct berth_error *err);
BERTH_MUST_CHECK enum berth_code wire_decode_attach(const uint8_t *payload, size_t size,
                                                    struct wire_attach *ret,
                                                    struct berth_error *err);
BERTH_MUST_CHECK enum berth_code wire_decode_input(const uint8_t *payload, size_t size,
                                                   struct wire_input *ret,
                                                   struct berth_error *err);
BERTH_MUST_CHECK enum berth_code wire_decode_signal(const uint8_t *payload, size_t size,
                                                    struct wire_signal *ret,
                                                    struct berth_error *err);
BERTH_MUST_CHECK enum berth_code wire_decode_started(const uint8_t *payload, size_t size,
                                                     struct wire_started *ret,
                                                     struct berth_error *err);
BERTH_MUST_CHECK enum berth_code wire_decode_output(const uint8_t *payload, size_t size,
                                                    struct wire_output *ret,
                                                    struct berth_error *err);
BERTH_MUST_CHECK enum berth_code wire_decode_truncated(const uint8_t *payload, size_t size,
                                                       struct wire_truncated *ret,
                                                       struct berth_error *err);
BERTH_MUST_CHECK enum berth_code wire_decode_exited(const uint8_t *payload, size_t size,
                                                    struct wire_exited *ret,
                                                    struct berth_error *err);
BERTH_MUST_CHECK enum berth_code wire_decode_heartbeat(const uint8_t *payload, size_t size,
                                                       struct wire_heartbeat *ret,
                                                       struct berth_error *err);
BERTH_MUST_CHECK enum berth_code wire_decode_input_done(const uint8_t *payload, size_t size,
                                                        uint64_t *ret_next_offset,
                                                        struct berth_error *err);
BERTH_MUST_CHECK enum berth_code wire_decode_signal_done(const uint8_t *payload, size_t size,
                                                         bool *ret_existed,
                                                         struct berth_error *err);
BERTH_MUST_CHECK enum berth_code wire_decode_process(const uint8_t *payload, size_t size,
                                                     struct wire_process *ret,
                                                     struct berth_error *err);
/* An ERROR frame becomes *err, and its code is returned; INTERNAL_BUG if it cannot be read. */
enum berth_code wire_decode_error(const uint8_t *payload, size_t size, struct berth_error *err);

/* ---------------------------------------------------------------------- reader */

/* Frames out of a non-blocking socket. {0} is ready for use; wire_reader_deinit() frees. */
struct wire_reader {
    uint8_t *buf;
    size_t size, have, used; /* allocated; bytes in it; of them, given out by the last call */
};

enum wire_read {
    WIRE_READ_FRAME, /* *ret_* set, borrowed until the next call */
    WIRE_READ_AGAIN, /* no whole frame yet: come back when the socket is readable */
    WIRE_READ_END,   /* the peer has closed, between two frames */
    WIRE_READ_BROKEN /* closed within a frame, not our protocol, or no memory */
};

enum wire_read wire_read(struct wire_reader *reader, int fd, enum wire_type *ret_type,
                         const uint8_t **ret_payload, size_t *ret_size);
/* Is a whole frame in the buffer already (the socket may stay silent)? */
bool wire_reader_ready(const struct wire_reader *reader);
void wire_reader_deinit(struct wire_reader *reader);
