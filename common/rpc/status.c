#include "common/rpc/status.h"

#include <stdio.h>

#include "berth/common/v1/common.pb-c.h"

typedef Berth__Common__V1__Status WireStatus;
typedef Berth__Common__V1__ErrorInfo ErrorInfo;
typedef Berth__Common__V1__ErrorInfo__MetadataEntry MetadataEntry;

#define ERROR_INFO_TYPE "google.rpc.ErrorInfo"
#define ERROR_INFO_URL "type.googleapis.com/" ERROR_INFO_TYPE
#define DOMAIN "berth"

enum {
    N_ENTRIES_MAX = 9,
    NUMBER_SIZE = 24,
    INFO_SIZE = 2048, /* packed ErrorInfo: every member at its longest fits */
    OPERATION_MAX = 256,
    TEXT_SIZE = 64,
};

/* The metadata of one ErrorInfo under construction. */
struct entries {
    MetadataEntry entry[N_ENTRIES_MAX], *pointer[N_ENTRIES_MAX];
    size_t n;
};

static void put(struct entries *entries, const char *key, const char *value)
{
    MetadataEntry *entry = &entries->entry[entries->n];

    if (!value || !*value)
        return;
    berth__common__v1__error_info__metadata_entry__init(entry);
    entry->key = (char *)(uintptr_t)key;
    entry->value = (char *)(uintptr_t)value;
    entries->pointer[entries->n++] = entry;
}

static void put_number(struct entries *entries, const char *key, char buf[NUMBER_SIZE],
                       int64_t value)
{
    if (value == 0)
        return;
    snprintf(buf, NUMBER_SIZE, "%lld", (long long)value);
    put(entries, key, buf);
}

/* google.rpc.Status bytes with one ErrorInfo in it. */
static grpc_slice pack_details(enum berth_code code, const char *message,
                               enum berth_reason reason, struct entries *entries)
{
    ErrorInfo info = BERTH__COMMON__V1__ERROR_INFO__INIT;
    Google__Protobuf__Any any = GOOGLE__PROTOBUF__ANY__INIT, *anys = &any;
    WireStatus status = BERTH__COMMON__V1__STATUS__INIT;
    uint8_t info_bytes[INFO_SIZE];
    grpc_slice slice;

    info.reason = (char *)(uintptr_t)berth_reason_name(reason);
    info.domain = (char *)(uintptr_t)DOMAIN;
    info.n_metadata = entries->n;
    info.metadata = entries->pointer;
    if (berth__common__v1__error_info__get_packed_size(&info) > sizeof info_bytes)
        info.n_metadata = 0;
    any.type_url = (char *)(uintptr_t)ERROR_INFO_URL;
    any.value.data = info_bytes;
    any.value.len = berth__common__v1__error_info__pack(&info, info_bytes);
    status.code = (int32_t)code;
    status.message = (char *)(uintptr_t)message;
    status.n_details = 1;
    status.details = &anys;
    slice = grpc_slice_malloc(berth__common__v1__status__get_packed_size(&status));
    berth__common__v1__status__pack(&status, GRPC_SLICE_START_PTR(slice));
    return slice;
}

/* The reason of a failure that names none. */
static enum berth_reason default_reason(enum berth_code code)
{
    switch (code) {
    case BERTH_INTERNAL:
        return BERTH_REASON_INTERNAL_BUG;
    case BERTH_CANCELLED:
        return BERTH_REASON_CANCELLED;
    case BERTH_DEADLINE_EXCEEDED:
        return BERTH_REASON_DEADLINE;
    case BERTH_UNKNOWN:
        return BERTH_REASON_OUTCOME_UNKNOWN;
    default:
        return BERTH_REASON_NONE;
    }
}

void rpc_status_encode(enum berth_code code, const struct berth_error *err,
                       const char *operation, const char *request_id, struct rpc_status *ret)
{
    enum berth_reason reason = err ? err->reason : BERTH_REASON_NONE;
    char http[NUMBER_SIZE], retry[NUMBER_SIZE], path[OPERATION_MAX], internal[TEXT_SIZE];
    struct entries entries = {.n = 0};
    const char *message;

    *ret = (struct rpc_status){
        .code = code, .message = grpc_empty_slice(), .details = grpc_empty_slice()};
    if (code == BERTH_OK)
        return;
    if (reason != BERTH_REASON_NONE)
        ret->code = code = berth_reason_code(reason); /* a reason fixes its code */
    else
        reason = default_reason(code);

    message = err && *err->text ? err->text
              : reason          ? berth_reason_text(reason)
                                : berth_code_name(code);
    berth_error_set(path, sizeof path, *operation == '/' ? operation + 1 : operation);
    put(&entries, "operation", path);
    put(&entries, "request_id", request_id);
    if (code == BERTH_INTERNAL) {
        snprintf(internal, sizeof internal, "internal error (request %s)", request_id);
        message = internal;
    } else if (err) {
        put(&entries, "resource", err->resource);
        put(&entries, "field", err->field);
        put(&entries, "rule", err->rule);
        put(&entries, "backend", err->backend);
        put(&entries, "sandbox_id", err->sandbox_id);
        put_number(&entries, "http_status", http, err->http_status);
        put_number(&entries, "retry_after_ms", retry, err->retry_after_ms);
    }
    ret->message = grpc_slice_from_copied_string(message);
    if (reason != BERTH_REASON_NONE)
        ret->details = pack_details(code, message, reason, &entries);
}

void rpc_status_copy(const struct berth_status *status, struct rpc_status *ret)
{
    *ret = (struct rpc_status){
        .code = status->code,
        .message = grpc_slice_from_copied_string(status->message ? status->message : ""),
        .details = status->details ? grpc_slice_from_copied_buffer(
                                         (const char *)status->details, status->details_size)
                                   : grpc_empty_slice(),
    };
}

void rpc_status_deinit(struct rpc_status *status)
{
    grpc_slice_unref(status->message);
    grpc_slice_unref(status->details);
    status->message = status->details = grpc_empty_slice();
}

grpc_slice rpc_status_unsent_details(enum berth_reason reason, const char *message)
{
    struct entries entries = {.n = 0};

    return pack_details(berth_reason_code(reason), message, reason, &entries);
}

void rpc_status_view(grpc_status_code code, const char *message,
                     const grpc_metadata_array *trailing, struct berth_status *ret)
{
    *ret = (struct berth_status){.code = (enum berth_code)code, .message = message};
    for (size_t i = 0; i < trailing->count; i++) {
        const grpc_metadata *entry = &trailing->metadata[i];

        if (rpc_slice_is(entry->key, RPC_DETAILS_KEY)) {
            ret->details = GRPC_SLICE_START_PTR(entry->value);
            ret->details_size = GRPC_SLICE_LENGTH(entry->value);
            return;
        }
    }
}

/* ------------------------------------------------------------------ decoding */

static int64_t number(const char *text)
{
    char *end;
    long long value = strtoll(text, &end, 10);

    return *text && !*end && value > 0 ? value : 0;
}

static void take_entry(const MetadataEntry *entry, struct berth_error *err)
{
    const char *key = entry->key, *value = entry->value;

    if (strcmp(key, "resource") == 0)
        BERTH_ERROR_SET(err, resource, value);
    else if (strcmp(key, "field") == 0)
        BERTH_ERROR_SET(err, field, value);
    else if (strcmp(key, "rule") == 0)
        BERTH_ERROR_SET(err, rule, value);
    else if (strcmp(key, "backend") == 0)
        BERTH_ERROR_SET(err, backend, value);
    else if (strcmp(key, "sandbox_id") == 0)
        BERTH_ERROR_SET(err, sandbox_id, value);
    else if (strcmp(key, "http_status") == 0)
        err->http_status = (int)number(value);
    else if (strcmp(key, "retry_after_ms") == 0)
        err->retry_after_ms = number(value);
}

/* Fills err from our own ErrorInfo in the details. False: there is none that fits the code. */
static bool read_info(const Google__Protobuf__Any *any, const struct berth_status *from,
                      struct berth_error *err)
{
    const char *type = strrchr(any->type_url, '/');
    ProtobufCMessage *message;
    const ErrorInfo *info;
    enum berth_reason reason;
    bool fits;

    if (strcmp(type ? type + 1 : any->type_url, ERROR_INFO_TYPE) != 0 ||
        berth_decode(&berth__common__v1__error_info__descriptor, any->value.data,
                     any->value.len, &message, NULL))
        return false;
    info = (const ErrorInfo *)message;
    reason = berth_reason_from_name(info->reason);
    fits = strcmp(info->domain, DOMAIN) == 0 && reason != BERTH_REASON_NONE &&
           berth_reason_code(reason) == from->code;
    if (fits) {
        berth_fail(err, reason, "%s", from->message);
        for (size_t i = 0; err && i < info->n_metadata; i++)
            take_entry(info->metadata[i], err);
    }
    protobuf_c_message_free_unpacked(message, NULL);
    return fits;
}

static bool read_details(const struct berth_status *from, struct berth_error *err)
{
    ProtobufCMessage *message;
    const WireStatus *status;
    bool found = false;

    if (!from->details || berth_decode(&berth__common__v1__status__descriptor, from->details,
                                       from->details_size, &message, NULL))
        return false;
    status = (const WireStatus *)message;
    for (size_t i = 0; i < status->n_details && !found; i++)
        found = read_info(status->details[i], from, err);
    protobuf_c_message_free_unpacked(message, NULL);
    return found;
}

bool berth_status_has_reason(const struct berth_status *status)
{
    return read_details(status, NULL);
}

enum berth_code berth_status_to_error(const struct berth_status *status,
                                      struct berth_error *err)
{
    const char *text = status->message && *status->message ? status->message : "no text";

    if (status->code == BERTH_OK)
        return BERTH_OK;
    if (read_details(status, err))
        return status->code;
    switch (status->code) {
    case BERTH_CANCELLED:
        return berth_fail(err, BERTH_REASON_CANCELLED, "%s", text);
    case BERTH_DEADLINE_EXCEEDED:
        return berth_fail(err, BERTH_REASON_DEADLINE, "%s", text);
    case BERTH_RESOURCE_EXHAUSTED: /* the core's, about a message over the limit, or a reset */
        if (strstr(text, "larger than max"))
            return berth_fail(err, BERTH_REASON_MESSAGE_TOO_LARGE, "%s", text);
        return berth_fail(err, BERTH_REASON_OUTCOME_UNKNOWN, "bare %s: %s",
                          berth_code_name(status->code), text);
    case BERTH_NOT_FOUND: /* a proxy's, or a server that is not ours: it proves nothing */
    case BERTH_UNIMPLEMENTED:
        return berth_fail(err, BERTH_REASON_PEER_UNAVAILABLE, "bare %s: %s",
                          berth_code_name(status->code), text);
    default: /* UNAVAILABLE too: the connection broke with the call under way */
        return berth_fail(err, BERTH_REASON_OUTCOME_UNKNOWN, "bare %s: %s",
                          berth_code_name(status->code), text);
    }
}
