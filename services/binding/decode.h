/* decode.h - requests of BindingService to own structs; the only code that checks their fields.
 * All fail with FIELD_INVALID naming the field. Strings stay borrowed from the request. */
#pragma once

#include "services/binding/core.h"
#include "services/binding/store.h"

#include "berth/binding/v1/binding.pb-c.h"

enum { BINDING_DRAFTS_MAX = 16 };

BERTH_MUST_CHECK enum berth_code
binding_decode_ref(const Berth__Common__V1__SessionRef *session, struct binding_ref *ret,
                   struct berth_error *err);

struct binding_lock_ref {
    char token[2 * BINDING_ATTEMPT_SIZE + 1];
    uint64_t fence;
};
BERTH_MUST_CHECK enum berth_code binding_decode_lock(const Berth__Binding__V1__Lock *lock,
                                                     struct binding_lock_ref *ret,
                                                     struct berth_error *err);

/* want points into the struct itself: do not copy it. */
struct binding_acquire_request {
    struct binding_ref ref;
    struct binding_want want;
    char attempt[2 * BINDING_ATTEMPT_SIZE + 1];
    char reap_account[2 * BINDING_ACCOUNT_MAX + 1];
    char new_alias[BINDING_ALIAS_LEN + 1];
};
BERTH_MUST_CHECK enum berth_code
binding_decode_acquire(const Berth__Binding__V1__AcquireRequest *req,
                       struct binding_acquire_request *ret, struct berth_error *err);

/* change points into the struct itself: do not copy it. */
struct binding_commit_request {
    struct binding_ref ref;
    struct binding_change change;
    struct binding_lock_ref lock;
    char attempt[2 * BINDING_ATTEMPT_SIZE + 1];
    struct binding_draft drafts[BINDING_DRAFTS_MAX];
};
/* ret is to be deinit'ed, also after a failure. */
BERTH_MUST_CHECK enum berth_code
binding_decode_commit(const Berth__Binding__V1__CommitRequest *req,
                      struct binding_commit_request *ret, struct berth_error *err);
void binding_commit_request_deinit(struct binding_commit_request *request);

/* 1..151 of [A-Za-z0-9._-]; optional: or "". */
BERTH_MUST_CHECK enum berth_code binding_check_token(const char *field, const char *value,
                                                     bool optional, struct berth_error *err);
/* 1..128 visible ASCII characters; optional: or "". */
BERTH_MUST_CHECK enum berth_code binding_check_sandbox_id(const char *field, const char *value,
                                                          bool optional,
                                                          struct berth_error *err);
BERTH_MUST_CHECK enum berth_code binding_check_spec(const char *field,
                                                    const Berth__Common__V1__SessionSpec *spec,
                                                    struct berth_error *err);
BERTH_MUST_CHECK enum berth_code binding_check_alias(const char *field, const char *value,
                                                     struct berth_error *err);
/* *ret_ms 0: absent, which means the default. */
BERTH_MUST_CHECK enum berth_code binding_decode_lease(const char *field,
                                                      const Google__Protobuf__Duration *lease,
                                                      const struct binding_limits *limits,
                                                      int64_t *ret_ms, struct berth_error *err);
