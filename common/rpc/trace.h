/* trace.h - request ids and W3C trace context. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { RPC_TRACEPARENT_SIZE = 56, RPC_REQUEST_ID_SIZE = 17 };

/* Fills both: a new request id; the caller's traceparent where it is well-formed (version 00),
 * else a new one. given may be NULL, it is not NUL-terminated. */
void rpc_trace_begin(const char *given, size_t given_size,
                     char traceparent[RPC_TRACEPARENT_SIZE],
                     char request_id[RPC_REQUEST_ID_SIZE]);
/* The 32 digits of the trace id. Writes and returns buf. */
const char *rpc_trace_id(const char *traceparent, char buf[33]);
