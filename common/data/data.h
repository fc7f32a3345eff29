/* data.h - the field rules of berth.data.v1, in one place for the data plane and every adapter.
 * Pure. Each rule stands as a comment at its field in data.proto. */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

#include "berth/data/v1/data.pb-c.h"
#include "common/errors/errors.h"

enum {
    BERTH_DATA_ARGS_MAX = 4096,
    BERTH_DATA_ARG_MAX =
        131071, /* bytes of one argument: the kernel's MAX_ARG_STRLEN less NUL */
    BERTH_DATA_ARGS_BYTES_MAX = 1 << 20,
    BERTH_DATA_ENV_MAX = 256,
    BERTH_DATA_ENV_VALUE_MAX = 64 << 10,
    BERTH_DATA_ENV_BYTES_MAX = 512 << 10,
    BERTH_DATA_CHUNK_MAX = 3 << 20,  /* bytes of stdin or file content in one message */
    BERTH_DATA_OUTPUT_MAX = 3 << 20, /* RunRequest.max_output_bytes */
    BERTH_DATA_DEPTH_MAX = 32,       /* ListDirRequest.depth */
    BERTH_DATA_PID_MAX = 4194304,
    BERTH_DATA_MODE_MAX = 07777,
};
#define BERTH_DATA_TIMEOUT_MAX_MS (366LL * 24 * 3600 * 1000)

/* What the first message of a call says about where it goes. Borrowed from that message. */
struct berth_data_request {
    const Berth__Common__V1__SessionRef *session;
    const char *turn_token;            /* "" = none, or the method takes none */
    Berth__Data__V1__Command *command; /* NULL: the method starts nothing */
    bool detach;
};

/**
 * berth_data_check() - check every field of the first message of a data plane call
 * @first: a request of ProcessService or FileService (Terminal and WatchDir are not known here)
 * @ret:   set on success; may be NULL
 *
 * WriteFile's first message must be its `open`.
 *
 * Errors: FIELD_INVALID naming field and rule; INTERNAL_BUG for a message type it does not
 * know.
 */
BERTH_MUST_CHECK enum berth_code berth_data_check(ProtobufCMessage *first,
                                                  struct berth_data_request *ret,
                                                  struct berth_error *err);

/* A command on its own: argv or shell, env, cwd, account, timeout, exec_id. field: where it
 * stands ("command"). detach false: a timeout of 0s is refused. */
BERTH_MUST_CHECK enum berth_code
berth_data_check_command(const char *field, const Berth__Data__V1__Command *command,
                         bool detach, struct berth_error *err);
