/* status.h - struct berth_error to and from the status of a call on the wire. */
#pragma once

#include "common/rpc/core.h"

#define RPC_DETAILS_KEY "grpc-status-details-bin"

/* A status ready to be sent. Slices are owned; message may be empty, details too. */
struct rpc_status {
    enum berth_code code;
    grpc_slice message;
    grpc_slice details;
};

/* What the caller is told. INTERNAL: no text of ours, only the request id. code is used where
 * err names no reason. err may be NULL. */
void rpc_status_encode(enum berth_code code, const struct berth_error *err,
                       const char *operation, const char *request_id, struct rpc_status *ret);
void rpc_status_copy(const struct berth_status *status, struct rpc_status *ret);
void rpc_status_deinit(struct rpc_status *status);

/* A status that was received, borrowing from its parts. text: room for the message. */
void rpc_status_view(grpc_status_code code, const char *message,
                     const grpc_metadata_array *trailing, struct berth_status *ret);

/* Details that say: nothing was done. For a call that never reached its peer. */
grpc_slice rpc_status_unsent_details(enum berth_reason reason, const char *message);
