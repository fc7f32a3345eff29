#include "common/errors/errors.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

static const struct {
    const char *name;
    enum berth_code code;
    const char *text;
} reasons[BERTH_N_REASONS] = {
    [BERTH_REASON_NONE] = {"", BERTH_UNKNOWN, "unknown error"},
#define REASON(name, code, text) [BERTH_REASON_##name] = {#name, BERTH_##code, text},
#include "common/errors/reasons.def"
#undef REASON
};

static void mark_cut(char *buf, size_t size, int wanted)
{
    if (wanted >= 0 && (size_t)wanted >= size)
        memcpy(buf + size - 4, "...", 4);
}

static void BERTH_PRINTF(3, 0) put(char *buf, size_t size, const char *fmt, va_list args)
{
    mark_cut(buf, size, vsnprintf(buf, size, fmt, args));
}

static unsigned known(enum berth_reason reason)
{
    unsigned index = (unsigned)reason;

    return index < BERTH_N_REASONS ? index : BERTH_REASON_NONE;
}

enum berth_code berth_fail(struct berth_error *err, enum berth_reason reason, const char *fmt,
                           ...)
{
    unsigned index = known(reason);
    va_list args;

    if (!err)
        return reasons[index].code;
    memset(err, 0, sizeof *err);
    err->code = reasons[index].code;
    err->reason = reason;
    if (!fmt) {
        berth_error_set(err->text, sizeof err->text, reasons[index].text);
        return err->code;
    }
    va_start(args, fmt);
    put(err->text, sizeof err->text, fmt, args);
    va_end(args);
    return err->code;
}

enum berth_code berth_fail_field(struct berth_error *err, const char *field,
                                 const char *rule_fmt, ...)
{
    va_list args;

    if (!err)
        return BERTH_INVALID_ARGUMENT;
    memset(err, 0, sizeof *err);
    err->code = BERTH_INVALID_ARGUMENT;
    err->reason = BERTH_REASON_FIELD_INVALID;
    berth_error_set(err->field, sizeof err->field, field);
    va_start(args, rule_fmt);
    put(err->rule, sizeof err->rule, rule_fmt, args);
    va_end(args);
    mark_cut(err->text, sizeof err->text,
             snprintf(err->text, sizeof err->text, "%s: %s", err->field, err->rule));
    return err->code;
}

enum berth_code berth_wrap(struct berth_error *err, enum berth_code code, const char *fmt, ...)
{
    char inner[sizeof err->text], outer[sizeof err->text];
    va_list args;

    if (!err)
        return code;
    memcpy(inner, err->text, sizeof inner);
    va_start(args, fmt);
    put(outer, sizeof outer, fmt, args);
    va_end(args);
    mark_cut(err->text, sizeof err->text,
             snprintf(err->text, sizeof err->text, "%s: %s", outer, inner));
    return code;
}

void berth_error_set(char *member, size_t size, const char *value)
{
    mark_cut(member, size, snprintf(member, size, "%s", value ? value : ""));
}

const char *berth_reason_name(enum berth_reason reason)
{
    return reasons[known(reason)].name;
}

enum berth_reason berth_reason_from_name(const char *name)
{
    if (!name || !*name)
        return BERTH_REASON_NONE;
    for (unsigned i = 1; i < BERTH_N_REASONS; i++)
        if (strcmp(reasons[i].name, name) == 0)
            return (enum berth_reason)i;
    return BERTH_REASON_NONE;
}

enum berth_code berth_reason_code(enum berth_reason reason)
{
    return reasons[known(reason)].code;
}

const char *berth_reason_text(enum berth_reason reason)
{
    return reasons[known(reason)].text;
}

const char *berth_code_name(enum berth_code code)
{
    static const char *const names[] = {
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    };

    return (unsigned)code < BERTH_COUNT(names) ? names[code] : "UNKNOWN";
}

enum berth_reason berth_reason_from_errno(int error_number)
{
    switch (error_number) {
    case ENOENT:
        return BERTH_REASON_FILE_NOT_FOUND;
    case EEXIST:
        return BERTH_REASON_FILE_EXISTS;
    case ENOTDIR:
        return BERTH_REASON_NOT_A_DIRECTORY;
    case EISDIR:
    case ELOOP:
    case ENXIO:
        return BERTH_REASON_NOT_A_FILE;
    case ENOTEMPTY:
        return BERTH_REASON_DIRECTORY_NOT_EMPTY;
    case EACCES:
    case EPERM:
        return BERTH_REASON_FILE_ACCESS_DENIED;
    case EROFS:
        return BERTH_REASON_PATH_READ_ONLY;
    case ENOSPC:
    case EDQUOT:
        return BERTH_REASON_DISK_FULL;
    case ENOMEM:
        return BERTH_REASON_OUT_OF_MEMORY;
    case ENAMETOOLONG:
    case EINVAL:
        return BERTH_REASON_FIELD_INVALID;
    case EMFILE:
    case ENFILE:
    case EAGAIN:
        return BERTH_REASON_OVERLOADED;
    default:
        return BERTH_REASON_INTERNAL_BUG;
    }
}
