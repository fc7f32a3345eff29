/* ask.h - requests of ProcessService as struct adapter_ask: field rules, defaults, digest.
 * Pure. */
#pragma once

#include "services/adapter/data.h"

enum {
    ASK_TIMEOUT_DEFAULT_MS = 60 * 1000,
    ASK_TIMEOUT_MAX_MS = 24 * 60 * 60 * 1000,
    ASK_OUTPUT_DEFAULT = 1 << 20, /* RunRequest.max_output_bytes */
};

enum ask_method {
    ASK_RUN,
    ASK_EXEC,
    ASK_ATTACH,
    ASK_SEND_INPUT,
    ASK_SIGNAL,
    ASK_LIST_PROCESSES,
    ASK_N_METHODS
};

extern const ProtobufCMessageDescriptor *const ask_descriptors[ASK_N_METHODS];

/**
 * ask_from_request() - check a decoded request and say what it asks of the backend
 * @request: of the type ask_descriptors[method]; exec_id and cwd are filled in
 * @ret:     borrows from @request
 *
 * Errors: FIELD_INVALID; OUT_OF_MEMORY.
 */
BERTH_MUST_CHECK enum berth_code ask_from_request(enum ask_method method,
                                                  ProtobufCMessage *request,
                                                  struct adapter_ask *ret,
                                                  struct berth_error *err);
