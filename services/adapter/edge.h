/* edge.h - what the handlers of this folder do alike. */
#pragma once

#include "berth/common/v1/common.pb-c.h"
#include "services/adapter/adapter.h"

enum {
    EDGE_CALL_MS = 60 * 1000,      /* where the caller sets no deadline */
    EDGE_COPY_MS = 30 * 60 * 1000, /* snapshots */
    EDGE_BUILD_MS = 2 * 60 * 60 * 1000
};

/* The tick by which a call must be done. */
int64_t edge_deadline(const struct berth_call *call, int64_t default_ms);

/* Add to err which backend and, where it is not said yet, which sandbox ("" = none). */
enum berth_code edge_failed(const struct adapter_service *service, const char *sandbox_id,
                            enum berth_code code, struct berth_error *err);

/* resp (taken; NULL: out of memory) is the answer. whole: all its members could be made. */
enum berth_code edge_answer(ProtobufCMessage *resp, ProtobufCMessage **ret_resp,
                            struct berth_error *err);
enum berth_code edge_answer_whole(ProtobufCMessage *resp, bool whole,
                                  ProtobufCMessage **ret_resp, struct berth_error *err);

/* target and sandbox_id. */
BERTH_MUST_CHECK enum berth_code
edge_check_sandbox(const struct adapter_service *service,
                   const Berth__Common__V1__BackendTarget *target, const char *sandbox_id,
                   struct berth_error *err);
/* Absent: the first page. The token is the last id of the page before. */
BERTH_MUST_CHECK enum berth_code edge_check_page(const Berth__Common__V1__PageRequest *page,
                                                 uint32_t *ret_size, const char **ret_after,
                                                 struct berth_error *err);
