/* message.h - the JSON that adapter, spawner and supervisor exchange.
 *
 * Adapter to spawner, one SEQPACKET message each way on descriptor 3:
 *   {"id":7,"op":"create","deadline_ms":..., ...}   deadline_ms: milliseconds from now
 *   {"id":7,"ok":true, ...}  or  {"id":7,"ok":false,"reason":"DISK_FULL","text":"...", ...}
 *   {"id":7,"step":"packages","percent":30,"message":"..."}   before the answer, while it works
 * Supervisor to spawner, once, on a pipe: the same without id. */
#pragma once

#include <jansson.h>

#include "common/errors/errors.h"

enum { MESSAGE_MAX = 4 << 20 };

/* {"ok":true}, or {"ok":false,...} with what err holds. New reference; NULL: out of memory. */
json_t *message_result(enum berth_code code, const struct berth_error *err);
/* The reverse: fills err and returns its code when ok is not true. */
BERTH_MUST_CHECK enum berth_code message_check(const json_t *answer, struct berth_error *err);

/* Send one message (json stays the caller's). Errors: BACKEND_UNAVAILABLE (the peer is gone),
 * MESSAGE_TOO_LARGE, OUT_OF_MEMORY. */
BERTH_MUST_CHECK enum berth_code message_send(int fd, const json_t *json,
                                              struct berth_error *err);
/* Receive one; *ret NULL at the end of the stream. buf of MESSAGE_MAX bytes is the caller's. */
BERTH_MUST_CHECK enum berth_code message_receive(int fd, char *buf, json_t **ret,
                                                 struct berth_error *err);
