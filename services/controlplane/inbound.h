/* inbound.h - tokens that let calls into a sandbox, where the backend tells them at create and
 * never again. They are in the session's endpoint, which is lost with the index; so they are
 * kept in the journal, sealed, before the sandbox is bound (F18). */
#pragma once

#include "berth/binding/v1/binding.pb-c.h"
#include "services/controlplane/controlplane.h"

/* Borrowed; "": none. */
const char *cp_inbound_token(const Berth__Common__V1__DataPlaneEndpoint *endpoint);
/* Nothing to do without a token. fence: of the lock it was made or sealed anew under.
 * Errors: as of berth_records_keep(). */
BERTH_MUST_CHECK enum berth_code
cp_inbound_keep(struct cp *cp, const Berth__Common__V1__SessionRef *ref, const char *sandbox_id,
                const Berth__Common__V1__DataPlaneEndpoint *endpoint,
                const ProtobufCBinaryData *sealed, uint64_t fence, struct berth_error *err);
/* The sandbox is gone. Best effort: a token is of no use without it. */
void cp_inbound_drop(struct cp *cp, const Berth__Common__V1__SessionRef *ref, uint64_t fence);
/* What was read back from the journals for this sandbox, as if it were bound: *ret is owned,
 * NULL where there is nothing. Errors: STORE_UNAVAILABLE. */
BERTH_MUST_CHECK enum berth_code
cp_inbound_find(struct cp *cp, const Berth__Common__V1__SessionRef *ref, const char *sandbox_id,
                Berth__Binding__V1__Binding **ret, struct berth_error *err);
