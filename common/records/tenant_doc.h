/* tenant_doc.h - the document of a tenant, berth:{<tenant>}:t, as more than one service reads
 * it.
 *
 * HASH fields, all written by the control plane: rev; tenant (JSON: quotas, times, the request
 * that made it); default_config (a config id, "" = none); disabled ("0" or "1");
 * max_sessions, max_calls and max_commands (decimal; of quotas, for binding and the gates).
 * default_config stands as a field of its own so that one server-side read can go on to the
 * config's key. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/errors/errors.h"
#include "common/redis/redis.h"

/* 0 everywhere: no limit. */
struct berth_tenant_quotas {
    uint32_t sessions;
    uint32_t running_sandboxes;
    uint32_t snapshots;
    uint64_t stored_bytes;
    uint32_t concurrent_commands;
    uint32_t requests_per_second;
};

struct berth_tenant_doc {
    bool exists;
    bool disabled; /* every call of its users is refused with TENANT_DISABLED */
    char rev[17];
    char default_config[129]; /* "" = none */
    struct berth_tenant_quotas quotas;
    int64_t create_ms, update_ms;
    char create_request_id[129]; /* "" = none; counts for 24 h after create_ms */
    char created_by[129];
};

/* The fields to ask Redis for: the hash holds the tenant's tokens, too (token_doc.h). */
extern const char *const berth_tenant_fields[];
extern const size_t berth_n_tenant_fields;

/* A document that is not there: BERTH_OK, everything zero.
 * Errors: INTERNAL_BUG when the document does not validate (unknown members are fine). */
BERTH_MUST_CHECK enum berth_code berth_tenant_doc_parse(const struct berth_doc *doc,
                                                        struct berth_tenant_doc *ret,
                                                        struct berth_error *err);
/* JSON of the `tenant` field; owned. NULL: no memory. */
char *berth_tenant_doc_format(const struct berth_tenant_doc *tenant);
