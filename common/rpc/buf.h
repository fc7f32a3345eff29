/* buf.h - the side of struct berth_buf that faces the core. */
#pragma once

#include "common/rpc/core.h"

/* Takes the bytes of a received message; bytes is destroyed. NULL: out of memory. */
struct berth_buf *rpc_buf_take(grpc_byte_buffer *bytes);
/* The same bytes (not copied) for sending; the caller destroys the result. */
grpc_byte_buffer *rpc_buf_bytes(const struct berth_buf *buf);
/* The guard alone: may a message of this type be unpacked from it? Remembered. */
BERTH_MUST_CHECK enum berth_code rpc_buf_check(const ProtobufCMessageDescriptor *type,
                                               struct berth_buf *buf, struct berth_error *err);

/* guard.c: the scan that comes before unpacking. */
BERTH_MUST_CHECK enum berth_code rpc_guard_scan(const ProtobufCMessageDescriptor *type,
                                                const uint8_t *data, size_t size,
                                                struct berth_error *err);
/* guard.c: unpacking what has been scanned, on a budget. */
BERTH_MUST_CHECK enum berth_code rpc_guard_unpack(const ProtobufCMessageDescriptor *type,
                                                  const uint8_t *data, size_t size,
                                                  ProtobufCMessage **ret,
                                                  struct berth_error *err);
