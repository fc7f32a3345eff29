/* check.c - what a command may ask for, and what a broken call means. Pure but for random ids.
 */
#include "services/dataplane/dataplane.h"

#include <stdio.h>

#include "common/fields/fields.h"
#include "common/ids/ids.h"

enum { EXEC_ID_CHARS = 24 };

bool dp_session_is_reserved(const char *session_id)
{
    return strncmp(session_id, "sk.", 3) == 0;
}

bool dp_may_reach(const struct berth_principal *principal, bool is_peer, const char *session_id)
{
    return !dp_session_is_reserved(session_id) || is_peer ||
           (principal && principal->scope >= BERTH_SCOPE_INSTALL &&
            strcmp(principal->session_id, session_id) == 0);
}

enum berth_code dp_command_judge(Berth__Data__V1__Command *command, bool detach,
                                 const struct dp_policy *policy, int64_t *ret_timeout_ms,
                                 struct berth_error *err)
{
    int64_t timeout_ms = policy->timeout_ms, max_ms = policy->timeout_max_ms;
    enum berth_code code;

    if (command->account == BERTH__DATA__V1__ACCOUNT__ACCOUNT_ROOT && !policy->root)
        return berth_fail(err, BERTH_REASON_ROOT_REFUSED,
                          "command.account: ROOT needs root_commands of the config");
    if (command->timeout) {
        code = berth_check_duration("command.timeout", command->timeout->seconds,
                                    command->timeout->nanos, BERTH_DATA_TIMEOUT_MAX_MS,
                                    &timeout_ms, err);
        if (code)
            return code;
        if (max_ms > 0 && timeout_ms > max_ms)
            return berth_fail_field(err, "command.timeout",
                                    "at most %lld ms, the config's maximum", (long long)max_ms);
        if (timeout_ms == 0 && !detach)
            return berth_fail_field(err, "command.timeout", "0s (none) needs detach");
        *ret_timeout_ms = timeout_ms;
        return BERTH_OK;
    }

    /* The default is never over the maximum, and "none" is only for what is detached. */
    if (max_ms > 0 && (timeout_ms > max_ms || timeout_ms == 0))
        timeout_ms = max_ms;
    if (timeout_ms == 0 && !detach)
        timeout_ms = BERTH_DATA_TIMEOUT_MAX_MS;
    command->timeout = malloc(sizeof *command->timeout);
    if (!command->timeout)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    google__protobuf__duration__init(command->timeout);
    command->timeout->seconds = timeout_ms / 1000;
    command->timeout->nanos = (int32_t)(timeout_ms % 1000) * 1000000;
    *ret_timeout_ms = timeout_ms;
    return BERTH_OK;
}

enum berth_code dp_command_name(Berth__Data__V1__Command *command, struct berth_error *err)
{
    char *exec_id;

    if (command->exec_id[0] != 0)
        return BERTH_OK;
    exec_id = malloc(EXEC_ID_CHARS + 1);
    if (!exec_id)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    berth_id_base36(exec_id, EXEC_ID_CHARS);
    if (command->exec_id != protobuf_c_empty_string)
        free(command->exec_id);
    command->exec_id = exec_id;
    return BERTH_OK;
}

bool dp_reason_is_misrouted(enum berth_reason reason)
{
    switch (reason) {
    case BERTH_REASON_SANDBOX_PAUSED:
    case BERTH_REASON_SANDBOX_NOT_FOUND:
    case BERTH_REASON_SANDBOX_TERMINAL:
        return true;
    default:
        return false;
    }
}

bool dp_status_judge(unsigned flags, const struct berth_status *status, const char *detail,
                     struct berth_error *err)
{
    if (berth_status_has_reason(status))
        return true;

    switch (status->code) {
    case BERTH_NOT_FOUND:
    case BERTH_UNIMPLEMENTED:
        (void)berth_fail(err, BERTH_REASON_ADAPTER_UNAVAILABLE,
                         "what answers for the adapter does not know this call (%s)",
                         berth_code_name(status->code));
        break;
    case BERTH_DEADLINE_EXCEEDED:
        (void)berth_fail(err, BERTH_REASON_DEADLINE, NULL);
        break;
    case BERTH_RESOURCE_EXHAUSTED:
        (void)berth_fail(err, BERTH_REASON_MESSAGE_TOO_LARGE,
                         "a message to or from the adapter is too large");
        break;
    default:
        if (flags & DP_READ_ONLY)
            (void)berth_fail(err, BERTH_REASON_ADAPTER_UNAVAILABLE,
                             "the connection to the adapter broke");
        else
            (void)berth_fail(err, BERTH_REASON_OUTCOME_UNKNOWN,
                             "the connection to the adapter broke%s%s",
                             detail[0] != 0 ? ": " : "", detail);
    }
    return false;
}
