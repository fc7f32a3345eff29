/* errors.h - one error value for the whole suite, from errno up to the gRPC status. */
#pragma once

#include <stdint.h>

#include "common/base/base.h"

/* Same numbers as the gRPC status codes, so the RPC edge needs no table. */
enum berth_code {
    BERTH_OK = 0,
    BERTH_CANCELLED = 1,
    BERTH_UNKNOWN = 2,
    BERTH_INVALID_ARGUMENT = 3,
    BERTH_DEADLINE_EXCEEDED = 4,
    BERTH_NOT_FOUND = 5,
    BERTH_ALREADY_EXISTS = 6,
    BERTH_PERMISSION_DENIED = 7,
    BERTH_RESOURCE_EXHAUSTED = 8,
    BERTH_FAILED_PRECONDITION = 9,
    BERTH_ABORTED = 10,
    BERTH_OUT_OF_RANGE = 11,
    BERTH_UNIMPLEMENTED = 12,
    BERTH_INTERNAL = 13,
    BERTH_UNAVAILABLE = 14,
    BERTH_DATA_LOSS = 15,
    BERTH_UNAUTHENTICATED = 16,
    /* Not a failure: the handler answers later (common/rpc). Never leaves the process. */
    BERTH_DEFERRED = 1000,
};

enum berth_reason {
    BERTH_REASON_NONE = 0,
#define REASON(name, code, text) BERTH_REASON_##name,
#include "common/errors/reasons.def"
#undef REASON
    BERTH_N_REASONS
};

/* Owned by the caller, usually on its stack. Fixed size: reporting "out of memory" must not
 * itself allocate. Untouched on success. Members but code, reason and text are "" or 0 where
 * not known; they travel as ErrorInfo metadata under their own names. */
struct berth_error {
    enum berth_code code;
    enum berth_reason reason;
    char text[384];      /* for a developer, no secrets; cut with "..." when too long */
    char resource[160];  /* name of the thing the error is about */
    char field[96];      /* proto path of the offending field, "session.tenant_id" */
    char rule[160];      /* the rule it breaks */
    char backend[24];    /* local, docker, ... */
    char sandbox_id[80]; /* the backend's id */
    int http_status;     /* of the backend, where it spoke HTTP */
    int64_t retry_after_ms;
};

/* Fill err (may be NULL) and return the code that belongs to the reason. All other members
 * are cleared. fmt NULL: use the reason's own text. */
enum berth_code berth_fail(struct berth_error *err, enum berth_reason reason, const char *fmt,
                           ...) BERTH_PRINTF(3, 4);

/* FIELD_INVALID for one field: text becomes "<field>: <rule>". Returns INVALID_ARGUMENT. */
enum berth_code berth_fail_field(struct berth_error *err, const char *field,
                                 const char *rule_fmt, ...) BERTH_PRINTF(3, 4);

/* Put context in front of the text ("load config: ...") and pass the code on. */
enum berth_code berth_wrap(struct berth_error *err, enum berth_code code, const char *fmt, ...)
    BERTH_PRINTF(3, 4);

/* Copy into one of the fixed members, cut with "..." when too long. NULL counts as "". */
void berth_error_set(char *member, size_t size, const char *value);
#define BERTH_ERROR_SET(err, member, value)                                                    \
    do {                                                                                       \
        if (err)                                                                               \
            berth_error_set((err)->member, sizeof(err)->member, (value));                      \
    } while (0)

/* "LOCK_LOST"; "" for BERTH_REASON_NONE. Static string. */
const char *berth_reason_name(enum berth_reason reason);
/* BERTH_REASON_NONE when the name is unknown or NULL. */
enum berth_reason berth_reason_from_name(const char *name);
enum berth_code berth_reason_code(enum berth_reason reason);
const char *berth_reason_text(enum berth_reason reason);

/* "INVALID_ARGUMENT"; "CODE_<n>" never: unknown numbers give "UNKNOWN". Static string. */
const char *berth_code_name(enum berth_code code);

/* A reason for an errno of a file operation (ENOENT: FILE_NOT_FOUND, ENOSPC: DISK_FULL, ...).
 */
enum berth_reason berth_reason_from_errno(int error_number);
