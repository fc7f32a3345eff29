/* log.h - one JSON object per line on stderr. Safe to call from any thread. */
#pragma once

#include <stdint.h>

#include "common/base/base.h"

enum berth_log_level { BERTH_LOG_DEBUG, BERTH_LOG_INFO, BERTH_LOG_WARN, BERTH_LOG_ERROR };

/* Once, before threads: the service name that every line carries, and the lowest level written.
 */
void berth_log_setup(const char *service, enum berth_log_level lowest);

/* message is a constant sentence without values; values follow as key, value, ..., NULL, all
 * borrowed strings (a NULL value ends the list as well).
 * {"ts":...,"level":"info","svc":"binding","msg":message,...} */
BERTH_SENTINEL void berth_log(enum berth_log_level level, const char *message, ...);

#define berth_debug(...) berth_log(BERTH_LOG_DEBUG, __VA_ARGS__, (char *)NULL)
#define berth_info(...) berth_log(BERTH_LOG_INFO, __VA_ARGS__, (char *)NULL)
#define berth_warn(...) berth_log(BERTH_LOG_WARN, __VA_ARGS__, (char *)NULL)
#define berth_log_error(...) berth_log(BERTH_LOG_ERROR, __VA_ARGS__, (char *)NULL)

/* A number as a log value, living until the end of the enclosing block. */
#define BERTH_I64(value) berth_i64((char[24]){0}, (value))
const char *berth_i64(char buf[24], int64_t value);
