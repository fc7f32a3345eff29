/* address.h - which addresses a process may listen on and speak to; for common/svc only. */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "common/errors/errors.h"

/* "127.0.0.1:7400", "[::1]:0": only numeric addresses of the loopback interface.
 * Errors: FIELD_INVALID naming field. */
BERTH_MUST_CHECK enum berth_code svc_parse_loopback(const char *field, const char *text,
                                                    struct sockaddr_storage *ret,
                                                    struct berth_error *err);
/* As above, or "unix:/absolute/path"; with beyond also any other numeric address
 * ("0.0.0.0:7400"). */
BERTH_MUST_CHECK enum berth_code svc_check_listen(const char *field, const char *text,
                                                  bool beyond, struct berth_error *err);
bool svc_is_unix(const char *address);
/* A unix socket, a loopback address or "localhost:7403". */
bool svc_is_on_this_machine(const char *address);
