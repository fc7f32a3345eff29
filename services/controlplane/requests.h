/* requests.h - what a request id was used for. For 24 hours the answer to the first request is
 * kept under it, written in the same compare-and-set as the record that the request made. */
#pragma once

#include <protobuf-c/protobuf-c.h>

#include "common/records/keys.h"
#include "services/controlplane/controlplane.h"

/* One use of a request id; without one (key "") everything here does nothing. */
struct cp_request {
    char key[BERTH_KEY_MAX];
    const char *method; /* static */
    char key_id[BERTH_KEY_ID_SIZE];
    char digest[65]; /* of the request, keyed: there may be secrets in it */
};

/**
 * cp_request_begin() - look whether an id was used before
 * @method:     whose ids they are, "CreateConfig"
 * @request_id: already checked; "": none
 * @message:    what tells two requests apart
 * @type:       of the answer
 * @ret_answer: the first answer, owned; NULL: not used before
 *
 * Errors: REQUEST_ID_REUSED for another message; STORE_UNAVAILABLE; OUT_OF_MEMORY.
 */
BERTH_MUST_CHECK enum berth_code
cp_request_begin(struct cp *cp, const char *tenant, const char *method, const char *request_id,
                 const ProtobufCMessage *message, const ProtobufCMessageDescriptor *type,
                 struct cp_request *ret, ProtobufCMessage **ret_answer,
                 struct berth_error *err);

/* Keep the answer, if nobody used the id meanwhile. Errors: OUT_OF_MEMORY. */
BERTH_MUST_CHECK enum berth_code cp_request_write(struct berth_cas *cas,
                                                  const struct cp_request *request,
                                                  const ProtobufCMessage *answer,
                                                  struct berth_error *err);
