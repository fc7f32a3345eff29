#include "services/adapter-local/spawner/message.h"

#include <errno.h>
#include <sys/socket.h>

#include "common/json/json.h"

json_t *message_result(enum berth_code code, const struct berth_error *err)
{
    if (code == BERTH_OK)
        return json_pack("{s:b}", "ok", 1);
    return json_pack("{s:b, s:s, s:s, s:s, s:s, s:s, s:s}", "ok", 0, "reason",
                     berth_reason_name(err->reason), "text", err->text, "field", err->field,
                     "rule", err->rule, "sandbox_id", err->sandbox_id, "resource",
                     err->resource);
}

enum berth_code message_check(const json_t *answer, struct berth_error *err)
{
    struct berth_error theirs = {0};
    char reason[64] = "";

    if (json_is_true(json_object_get(answer, "ok")))
        return BERTH_OK;
    if (berth_json_get_str(answer, "reason", reason, sizeof reason, "", NULL) ||
        berth_json_get_str(answer, "text", theirs.text, sizeof theirs.text, "", NULL) ||
        berth_json_get_str(answer, "field", theirs.field, sizeof theirs.field, "", NULL) ||
        berth_json_get_str(answer, "rule", theirs.rule, sizeof theirs.rule, "", NULL) ||
        berth_json_get_str(answer, "resource", theirs.resource, sizeof theirs.resource, "",
                           NULL) ||
        berth_json_get_str(answer, "sandbox_id", theirs.sandbox_id, sizeof theirs.sandbox_id,
                           "", NULL) ||
        berth_reason_from_name(reason) == BERTH_REASON_NONE)
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG,
                          "the spawner's answer makes no sense");
    theirs.reason = berth_reason_from_name(reason);
    theirs.code = berth_reason_code(theirs.reason);
    if (err)
        *err = theirs;
    return theirs.code;
}

enum berth_code message_send(int fd, const json_t *json, struct berth_error *err)
{
    BERTH_AUTO(free) char *text = berth_json_format(json);
    size_t size = text ? strlen(text) : 0;
    ssize_t n;

    if (!text)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    if (size > MESSAGE_MAX - 1)
        return berth_fail(err, BERTH_REASON_MESSAGE_TOO_LARGE, "a message to the spawner");
    do
        n = send(fd, text, size, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EMSGSIZE)
        return berth_fail(err, BERTH_REASON_MESSAGE_TOO_LARGE, "a message to the spawner");
    if (n < 0)
        return berth_fail(err, BERTH_REASON_BACKEND_UNAVAILABLE,
                          "the local backend's spawner has ended; it is started again");
    return BERTH_OK;
}

enum berth_code message_receive(int fd, char *buf, json_t **ret, struct berth_error *err)
{
    ssize_t n;

    do
        n = recv(fd, buf, MESSAGE_MAX, 0);
    while (n < 0 && errno == EINTR);
    if (n == 0 || (n < 0 && errno == ECONNRESET)) {
        *ret = NULL;
        return BERTH_OK;
    }
    if (n < 0)
        return berth_fail(err, BERTH_REASON_BACKEND_UNAVAILABLE,
                          "nothing can be heard of the local backend's spawner: %s",
                          strerror(errno));
    return berth_json_parse(buf, (size_t)n, MESSAGE_MAX, ret, err);
}
