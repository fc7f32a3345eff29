/* checks.h - the rules of the shared messages that configs and sessions carry: everything that
 * can be said without knowing the backend. Pure. prefix is the proto path of the message
 * ("config", "spec"); all fail with FIELD_INVALID unless said otherwise. */
#pragma once

#include <stdbool.h>

#include "berth/common/v1/common.pb-c.h"
#include "common/errors/errors.h"

enum {
    CP_LABELS_MAX = 64,
    CP_LABEL_VALUE_MAX = 256,
    CP_ENV_MAX = 256,
    CP_ENV_VALUE_MAX = 32 * 1024,
    CP_ENV_BYTES_MAX = 128 * 1024,
    CP_VOLUMES_MAX = 16,
    CP_NETWORK_ENTRIES_MAX = 256,
    CP_DNS_SERVERS_MAX = 8,
    CP_RULES_MAX = 64,
    CP_HEADER_MAX = 128,
    CP_HEADER_VALUE_MAX = 8192,
    CP_IMAGE_ID_MAX = 128,
    CP_REQUEST_ID_MAX = 128,
};

#define CP_DAY_MS ((int64_t)24 * 60 * 60 * 1000)
#define CP_TIMEOUT_MAX_MS (365 * CP_DAY_MS)
#define CP_MEMORY_MIN_BYTES ((uint64_t)16 << 20)

/* Both ids of a session. reserved_ok: `sk.*` may be named (RESERVED_KEY otherwise). */
BERTH_MUST_CHECK enum berth_code cp_check_ref(const char *field,
                                              const Berth__Common__V1__SessionRef *ref,
                                              bool reserved_ok, struct berth_error *err);
/* A template or snapshot id: 1..128 of [A-Za-z0-9._:/-], between slashes never nothing, "." or
 * ".."; empty_ok: or "". */
BERTH_MUST_CHECK enum berth_code cp_check_image_id(const char *field, const char *value,
                                                   bool empty_ok, struct berth_error *err);
/* "" or 1..128 bytes of text, as field request_id. */
BERTH_MUST_CHECK enum berth_code cp_check_request_id(const char *value,
                                                     struct berth_error *err);
/* Exactly one source, no generation. */
BERTH_MUST_CHECK enum berth_code cp_check_image(const char *prefix,
                                                const Berth__Common__V1__Image *image,
                                                struct berth_error *err);
/* Errors: RESERVED_KEY for "berth." keys. */
BERTH_MUST_CHECK enum berth_code
cp_check_labels(const char *field, Berth__Common__V1__SessionSpec__LabelsEntry *const *labels,
                size_t n_labels, struct berth_error *err);
/* One variable. Errors: RESERVED_KEY for "BERTH_" names. */
BERTH_MUST_CHECK enum berth_code cp_check_env(const char *field, const char *name,
                                              const char *value, size_t *total_bytes,
                                              struct berth_error *err);
/* Errors: NETWORK_POLICY_INVALID where the parts are fine and the whole makes no sense;
 * CAPABILITY_MISSING for rules, which nothing serves yet. */
BERTH_MUST_CHECK enum berth_code
cp_check_network(const char *prefix, const Berth__Common__V1__NetworkPolicy *network,
                 struct berth_error *err);
BERTH_MUST_CHECK enum berth_code
cp_check_timeouts(const char *prefix, const Berth__Common__V1__TimeoutPolicy *timeouts,
                  struct berth_error *err);
BERTH_MUST_CHECK enum berth_code
cp_check_resources(const char *prefix, const Berth__Common__V1__Resources *resources,
                   struct berth_error *err);
BERTH_MUST_CHECK enum berth_code
cp_check_volumes(const char *field, Berth__Common__V1__VolumeMount *const *volumes,
                 size_t n_volumes, struct berth_error *err);
/* Everything above, for what a session asks for. */
BERTH_MUST_CHECK enum berth_code cp_check_spec(const char *prefix,
                                               const Berth__Common__V1__SessionSpec *spec,
                                               struct berth_error *err);
