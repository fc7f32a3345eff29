#include "services/binding/decode.h"

#include <stdio.h>

#include "common/fields/fields.h"
#include "common/ids/ids.h"

static const int64_t SECONDS_MAX = 253402300799; /* the last second of the year 9999 */

static enum berth_code check_chars(const char *field, const char *value, size_t max_len,
                                   const char *allowed, bool optional, const char *rule,
                                   struct berth_error *err)
{
    size_t len = strlen(value);

    if (optional && len == 0)
        return BERTH_OK;
    if (len == 0 || len > max_len || strspn(value, allowed) != len)
        return berth_fail_field(err, field, "must be %s", rule);
    return BERTH_OK;
}

#define LOWER "abcdefghijklmnopqrstuvwxyz"
#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGIT "0123456789"

enum berth_code binding_check_token(const char *field, const char *value, bool optional,
                                    struct berth_error *err)
{
    return check_chars(field, value, BINDING_TOKEN_MAX, LOWER UPPER DIGIT "._-", optional,
                       "1 to 151 of [A-Za-z0-9._-]", err);
}

enum berth_code binding_check_alias(const char *field, const char *value,
                                    struct berth_error *err)
{
    if (strlen(value) != BINDING_ALIAS_LEN)
        return berth_fail_field(err, field, "must be %d of [a-z0-9]", BINDING_ALIAS_LEN);
    return check_chars(field, value, BINDING_ALIAS_LEN, LOWER DIGIT, false, "20 of [a-z0-9]",
                       err);
}

enum berth_code binding_check_sandbox_id(const char *field, const char *value, bool optional,
                                         struct berth_error *err)
{
    size_t len = 0;

    if (optional && !value[0])
        return BERTH_OK;
    while (value[len] >= '!' && value[len] <= '~')
        len++;
    if (value[len] || len == 0 || len > BINDING_SANDBOX_ID_MAX)
        return berth_fail_field(err, field, "must be 1 to %d visible ASCII characters",
                                BINDING_SANDBOX_ID_MAX);
    return BERTH_OK;
}

enum berth_code binding_check_spec(const char *field,
                                   const Berth__Common__V1__SessionSpec *spec,
                                   struct berth_error *err)
{
    char config[96];
    enum berth_code code;

    if (!spec)
        return BERTH_OK;
    snprintf(config, sizeof config, "%s.config_id", field);
    code = berth_check_id_or_empty(config, spec->config_id, err);
    if (code)
        return code;
    if (berth__common__v1__session_spec__get_packed_size(spec) > BINDING_SPEC_MAX)
        return berth_fail_field(err, field, "must be at most %d bytes", BINDING_SPEC_MAX);
    return BERTH_OK;
}

enum berth_code binding_decode_ref(const Berth__Common__V1__SessionRef *session,
                                   struct binding_ref *ret, struct berth_error *err)
{
    enum berth_code code = berth_check_present("session", session, err);

    if (!code)
        code = berth_check_id("session.tenant_id", session->tenant_id, err);
    if (!code)
        code = berth_check_id("session.session_id", session->session_id, err);
    if (code)
        return code;
    *ret = (struct binding_ref){session->tenant_id, session->session_id, ""};
    return BERTH_OK;
}

/* Bytes of exactly size (or none, when optional) as hex into buf[2 * size + 1]. */
static enum berth_code decode_fixed(const char *field, ProtobufCBinaryData bytes, size_t size,
                                    bool optional, char *buf, struct berth_error *err)
{
    if (optional && bytes.len == 0) {
        buf[0] = '\0';
        return BERTH_OK;
    }
    if (bytes.len != size)
        return berth_fail_field(err, field, "must be %zu bytes", size);
    berth_hex(buf, bytes.data, size);
    return BERTH_OK;
}

static enum berth_code decode_account(const char *field, ProtobufCBinaryData bytes, char *buf,
                                      struct berth_error *err)
{
    if (bytes.len > BINDING_ACCOUNT_MAX)
        return berth_fail_field(err, field, "must be at most %d bytes", BINDING_ACCOUNT_MAX);
    berth_hex(buf, bytes.data, bytes.len);
    return BERTH_OK;
}

/* Absent: 0. */
static enum berth_code decode_time(const char *field, const Google__Protobuf__Timestamp *time,
                                   int64_t *ret_ms, struct berth_error *err)
{
    *ret_ms = 0;
    if (!time)
        return BERTH_OK;
    if (time->seconds < 0 || time->seconds > SECONDS_MAX || time->nanos < 0 ||
        time->nanos > 999999999)
        return berth_fail_field(err, field, "must be a time after 1970");
    *ret_ms = time->seconds * 1000 + time->nanos / 1000000;
    return BERTH_OK;
}

enum berth_code binding_decode_lock(const Berth__Binding__V1__Lock *lock,
                                    struct binding_lock_ref *ret, struct berth_error *err)
{
    enum berth_code code = berth_check_present("lock", lock, err);

    if (!code)
        code = decode_fixed("lock.token", lock->token, BINDING_ATTEMPT_SIZE, false, ret->token,
                            err);
    if (code)
        return code;
    if (lock->fence == 0 || lock->fence > INT64_MAX)
        return berth_fail_field(err, "lock.fence", "must be that of the grant");
    ret->fence = lock->fence;
    return BERTH_OK;
}

enum berth_code binding_decode_lease(const char *field, const Google__Protobuf__Duration *lease,
                                     const struct binding_limits *limits, int64_t *ret_ms,
                                     struct berth_error *err)
{
    enum berth_code code;

    *ret_ms = 0;
    if (!lease)
        return BERTH_OK;
    code = berth_check_duration(field, lease->seconds, lease->nanos, limits->turn_max_ms,
                                ret_ms, err);
    if (!code && *ret_ms < limits->turn_min_ms)
        return berth_fail_field(err, field, "must be at least %lld ms",
                                (long long)limits->turn_min_ms);
    return code;
}

/* ----------------------------------------------------------------------- Acquire */

static enum berth_code decode_reap(const Berth__Binding__V1__AcquireRequest *req,
                                   struct binding_acquire_request *ret, struct berth_error *err)
{
    bool reap = ret->want.kind == BINDING_WANT_REAP || ret->want.kind == BINDING_WANT_IDLE ||
                ret->want.kind >= BINDING_WANT_OBSERVE;
    enum berth_code code;

    code = binding_check_sandbox_id("reap_sandbox_id", req->reap_sandbox_id, !reap, err);
    if (!code)
        code = decode_account("reap_account", req->reap_account, ret->reap_account, err);
    if (!code && (reap || req->reap_sandbox_id[0]) && req->reap_account.len == 0)
        code = berth_fail_field(err, "reap_account", "must be given");
    if (!code)
        code = decode_time("unless_active_after", req->unless_active_after,
                           &ret->want.unless_active_after_ms, err);
    return code;
}

enum berth_code binding_decode_acquire(const Berth__Binding__V1__AcquireRequest *req,
                                       struct binding_acquire_request *ret,
                                       struct berth_error *err)
{
    enum berth_code code;

    *ret = (struct binding_acquire_request){.want.kind = (enum binding_want_kind)req->want};
    code = binding_decode_ref(req->session, &ret->ref, err);
    if (!code)
        code = berth_check_enum("want", (int)req->want, BERTH__BINDING__V1__WANT__WANT_STILL,
                                false, err);
    if (!code)
        code = berth_check_text("owner", req->owner, 1, 128, err);
    if (!code)
        code = decode_fixed("attempt", req->attempt, BINDING_ATTEMPT_SIZE, false, ret->attempt,
                            err);
    if (!code)
        code = binding_check_token("turn_token", req->turn_token, true, err);
    if (!code && req->turn_token[0] && ret->want.kind > BINDING_WANT_EXISTING)
        code = berth_fail_field(err, "turn_token", "goes with ENSURE and EXISTING only");
    if (!code)
        code = binding_check_sandbox_id("failed_sandbox_id", req->failed_sandbox_id, true, err);
    if (!code)
        code = binding_check_spec("spec_if_new", req->spec_if_new, err);
    if (!code)
        code = berth_check_text("created_by", req->created_by, 0, 128, err);
    if (!code && req->seen_fence > INT64_MAX / 2)
        code = berth_fail_field(err, "seen_fence", "must be a fence");
    if (!code)
        code = decode_reap(req, ret, err);
    if (code)
        return code;
    if (req->spec_if_new)
        ret->ref.config_id = req->spec_if_new->config_id;
    ret->want.owner = req->owner;
    ret->want.attempt = ret->attempt;
    ret->want.turn_token = req->turn_token;
    ret->want.failed_sandbox_id = req->failed_sandbox_id;
    ret->want.spec_if_new = req->spec_if_new;
    ret->want.created_by = req->created_by;
    ret->want.reap_sandbox_id = req->reap_sandbox_id;
    ret->want.reap_account = ret->reap_account;
    ret->want.seen_fence = req->seen_fence;
    ret->want.must_be_new = req->must_be_new;
    ret->want.must_exist = req->must_exist;
    ret->want.recreate = req->recreate;
    ret->want.new_alias = berth_id_base36(ret->new_alias, BINDING_ALIAS_LEN);
    return BERTH_OK;
}

/* ------------------------------------------------------------------------ Commit */

/* Both changes hold a Binding; an error names the one it came in. */
#define AT(field) (patch ? "patch." field : "bind." field)

static enum berth_code decode_image(const Berth__Common__V1__Image *image, bool patch,
                                    struct binding_bound *ret, struct berth_error *err)
{
    enum berth_code code = BERTH_OK;

    if (!image)
        return BERTH_OK;
    if (image->generation > INT64_MAX)
        return berth_fail_field(err, AT("image.generation"), "is too large");
    ret->generation = image->generation;
    if (image->source_case == BERTH__COMMON__V1__IMAGE__SOURCE_TEMPLATE_ID) {
        code =
            binding_check_sandbox_id(AT("image.template_id"), image->template_id, false, err);
        snprintf(ret->template_id, sizeof ret->template_id, "%s", image->template_id);
    } else if (image->source_case == BERTH__COMMON__V1__IMAGE__SOURCE_SNAPSHOT_ID) {
        code =
            binding_check_sandbox_id(AT("image.snapshot_id"), image->snapshot_id, false, err);
        snprintf(ret->snapshot_id, sizeof ret->snapshot_id, "%s", image->snapshot_id);
    }
    return code;
}

static enum berth_code decode_bound(const Berth__Binding__V1__Binding *in, bool patch,
                                    struct binding_bound *ret, struct berth_error *err)
{
    enum berth_code code = berth_check_present(patch ? "patch" : "bind", in, err);

    if (!code)
        code = binding_check_sandbox_id(AT("sandbox_id"), in->sandbox_id, false, err);
    if (!code)
        code = check_chars(AT("backend"), in->backend, sizeof ret->backend - 1, LOWER DIGIT "-",
                           patch, "1 to 32 of [a-z0-9-]", err);
    if (!code)
        code = patch ? berth_check_id_or_empty(AT("config_id"), in->config_id, err)
                     : berth_check_id(AT("config_id"), in->config_id, err);
    if (!code)
        code = decode_image(in->image, patch, ret, err);
    if (!code)
        code = decode_fixed(AT("attempt"), in->attempt, BINDING_ATTEMPT_SIZE, true,
                            ret->attempt, err);
    if (!code)
        code = decode_account(AT("account"), in->account, ret->account, err);
    if (!code && in->sealed_endpoint.len > BINDING_ENDPOINT_MAX)
        code = berth_fail_field(err, AT("sealed_endpoint"), "must be at most %d bytes",
                                BINDING_ENDPOINT_MAX);
    if (!code)
        code = berth_check_enum(AT("origin"), (int)in->origin, BINDING_ADOPTED, patch, err);
    if (!code)
        code = berth_check_enum(AT("power"), (int)in->power, BINDING_PAUSED, true, err);
    if (!code)
        code = decode_time(AT("create_time"), in->create_time, &ret->create_ms, err);
    if (!code)
        code = decode_time(AT("end_time"), in->end_time, &ret->end_ms, err);
    if (code)
        return code;
    ret->origin = (enum binding_origin)in->origin;
    ret->power = (enum binding_power)in->power;
    ret->inbound_lost = in->inbound_token_lost;
    ret->endpoint = in->sealed_endpoint.data;
    ret->endpoint_size = in->sealed_endpoint.len;
    snprintf(ret->sandbox_id, sizeof ret->sandbox_id, "%s", in->sandbox_id);
    snprintf(ret->backend, sizeof ret->backend, "%s", in->backend);
    snprintf(ret->config_id, sizeof ret->config_id, "%s", in->config_id);
    return BERTH_OK;
}
#undef AT

static enum berth_code decode_intent(const Berth__Binding__V1__Intent *in,
                                     struct binding_intent *ret, struct berth_error *err)
{
    enum berth_code code = berth_check_present("intend", in, err);

    if (!code)
        code = berth_check_enum("intend.kind", (int)in->kind, BINDING_INTENT_PAUSE, false, err);
    if (!code)
        code = binding_check_sandbox_id("intend.sandbox_id", in->sandbox_id,
                                        (int)in->kind == BINDING_INTENT_CREATE, err);
    if (!code)
        code = decode_fixed("intend.attempt", in->attempt, BINDING_ATTEMPT_SIZE, true,
                            ret->attempt, err);
    if (!code)
        code = decode_account("intend.account", in->account, ret->account, err);
    if (!code)
        code =
            decode_time("intend.not_after_time", in->not_after_time, &ret->not_after_ms, err);
    if (code)
        return code;
    ret->kind = (enum binding_intent_kind)in->kind;
    snprintf(ret->sandbox_id, sizeof ret->sandbox_id, "%s", in->sandbox_id);
    return BERTH_OK;
}

static enum berth_code decode_change(const Berth__Binding__V1__CommitRequest *req,
                                     struct binding_commit_request *ret,
                                     struct berth_error *err)
{
    struct binding_change *change = &ret->change;

    switch (req->change_case) {
    case BERTH__BINDING__V1__COMMIT_REQUEST__CHANGE_BIND:
        change->kind = BINDING_CHANGE_BIND;
        return decode_bound(req->bind, false, &change->bound, err);
    case BERTH__BINDING__V1__COMMIT_REQUEST__CHANGE_GONE_SANDBOX_ID:
        change->kind = BINDING_CHANGE_GONE;
        change->sandbox_id = req->gone_sandbox_id;
        return binding_check_sandbox_id("gone_sandbox_id", req->gone_sandbox_id, false, err);
    case BERTH__BINDING__V1__COMMIT_REQUEST__CHANGE_PATCH:
        change->kind = BINDING_CHANGE_PATCH;
        return decode_bound(req->patch, true, &change->bound, err);
    case BERTH__BINDING__V1__COMMIT_REQUEST__CHANGE_INTEND:
        change->kind = BINDING_CHANGE_INTEND;
        return decode_intent(req->intend, &change->intent, err);
    case BERTH__BINDING__V1__COMMIT_REQUEST__CHANGE_SETTLED_ATTEMPT:
        change->kind = BINDING_CHANGE_SETTLED;
        change->attempt = ret->attempt;
        return decode_fixed("settled_attempt", req->settled_attempt, BINDING_ATTEMPT_SIZE,
                            false, ret->attempt, err);
    case BERTH__BINDING__V1__COMMIT_REQUEST__CHANGE_DELETE_SESSION:
        change->kind = BINDING_CHANGE_DELETE_SESSION;
        if (!req->delete_session)
            return berth_fail_field(err, "delete_session", "must be true");
        return BERTH_OK;
    default:
        return berth_fail_field(err, "change", "must be given");
    }
}

static enum berth_code decode_draft(const Berth__Binding__V1__EventDraft *in,
                                    struct binding_draft *ret, struct berth_error *err)
{
    json_t *attributes;
    enum berth_code code;

    code = check_chars("events.kind", in->kind, 40, UPPER "_", false, "1 to 40 of [A-Z_]", err);
    if (code)
        return code;
    if (in->n_attributes > 16)
        return berth_fail_field(err, "events.attributes", "must be at most 16");
    attributes = json_object();
    for (size_t i = 0; !code && i < in->n_attributes; i++) {
        const char *key = in->attributes[i]->key, *value = in->attributes[i]->value;

        code = berth_check_text("events.attributes.key", key, 1, 64, err);
        if (!code)
            code = berth_check_text("events.attributes.value", value, 0, 1024, err);
        if (!code && json_object_set_new(attributes, key, json_string(value)) < 0)
            code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    ret->kind = in->kind;
    ret->attributes = attributes;
    return code;
}

enum berth_code binding_decode_commit(const Berth__Binding__V1__CommitRequest *req,
                                      struct binding_commit_request *ret,
                                      struct berth_error *err)
{
    enum berth_code code;

    *ret = (struct binding_commit_request){0};
    code = binding_decode_ref(req->session, &ret->ref, err);
    if (!code)
        code = binding_decode_lock(req->lock, &ret->lock, err);
    if (!code)
        code = decode_change(req, ret, err);
    if (!code)
        code = binding_check_token("turn_token", req->turn_token, true, err);
    if (!code && req->carry)
        code = berth_check_id("carry.blob_id", req->carry->blob_id, err);
    if (!code && req->carry &&
        req->change_case != BERTH__BINDING__V1__COMMIT_REQUEST__CHANGE_INTEND &&
        req->change_case != BERTH__BINDING__V1__COMMIT_REQUEST__CHANGE_BIND)
        code = berth_fail_field(err, "carry", "only with intend or bind");
    if (!code && req->carry)
        code = berth_check_text("carry.lost_names", req->carry->lost_names, 0,
                                BINDING_NAMES_MAX, err);
    if (!code)
        code = berth_check_enum("carry_outcome", (int)req->carry_outcome, BINDING_CARRY_GONE,
                                true, err);
    if (!code)
        code =
            decode_time("ends_soon_time", req->ends_soon_time, &ret->change.ends_soon_ms, err);
    if (!code && req->n_events > BINDING_DRAFTS_MAX)
        code = berth_fail_field(err, "events", "must be at most %d", BINDING_DRAFTS_MAX);
    for (size_t i = 0; !code && i < req->n_events; i++) {
        code = decode_draft(req->events[i], &ret->drafts[i], err);
        ret->change.n_drafts = i + 1;
    }
    ret->change.token = ret->lock.token;
    ret->change.fence = ret->lock.fence;
    ret->change.keep_lock = req->keep_lock;
    ret->change.memory_lost = req->memory_lost;
    ret->change.carry_outcome = (enum binding_carry_outcome)req->carry_outcome;
    if (req->carry) {
        ret->change.carry_blob_id = req->carry->blob_id;
        ret->change.carry_lost_count = req->carry->lost_count;
        ret->change.carry_lost_names = req->carry->lost_names;
    }
    ret->change.landed = req->settled_landed;
    ret->change.was_paused = req->was_paused;
    ret->change.turn_token = req->turn_token;
    ret->change.drafts = ret->drafts;
    return code;
}

void binding_commit_request_deinit(struct binding_commit_request *request)
{
    for (size_t i = 0; i < request->change.n_drafts; i++)
        json_decref(request->drafts[i].attributes);
}
