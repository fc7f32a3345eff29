/* mover.h - workspaces by way of the data plane's MoveWorkspace. Blocking: on a worker. */
#pragma once

#include "berth/binding/v1/binding.pb-c.h"
#include "berth/data/v1/data.pb-c.h"
#include "services/controlplane/controlplane.h"

enum cp_direction { CP_MOVE_OUT, CP_MOVE_IN, CP_MOVE_REMOVE };

struct cp_move {
    enum cp_direction direction;
    const Berth__Common__V1__SessionRef *session;
    const Berth__Common__V1__DataPlaneEndpoint *endpoint; /* whole; NULL with REMOVE */
    const char *blob_id;                                  /* NULL: what is found, with IN */
    uint64_t up_to_fence;                                 /* that it was exported under */
    const struct cp_lock *lock; /* given up when it is lost; NULL: needs none */
    const char *traceparent;    /* or NULL */
};

/* *ret is owned, the last message of the move.
 * Errors: of MoveWorkspace; LOCK_LOST; DRAINING. */
BERTH_MUST_CHECK enum berth_code cp_move(struct cp *cp, const struct cp_move *move,
                                         Berth__Data__V1__MoveWorkspaceResponse **ret,
                                         struct berth_error *err);

/* The sandbox that it was unpacked into is in use: the tar may go. In the background, once in a
 * while; never blocks. */
void cp_carry_used(struct cp *cp, const Berth__Common__V1__SessionRef *session,
                   const Berth__Binding__V1__Carry *carry);
