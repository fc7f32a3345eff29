/* address.h - which addresses a process without TLS may listen on; for common/svc only. */
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include "common/errors/errors.h"

/* "127.0.0.1:7400", "[::1]:0": only numeric addresses of the loopback interface.
 * Errors: FIELD_INVALID naming field. */
BERTH_MUST_CHECK enum berth_code svc_parse_loopback(const char *field, const char *text,
                                                    struct sockaddr_storage *ret,
                                                    struct berth_error *err);
/* As above, or "unix:/absolute/path". */
BERTH_MUST_CHECK enum berth_code svc_check_listen(const char *field, const char *text,
                                                  struct berth_error *err);
