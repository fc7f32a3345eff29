/* log.c - lines are built on the stack and written by one write(2) of at most LINE_MAX_SIZE
 * bytes: atomic on a pipe, no lock, no allocation. What does not fit is cut, and says so. */
#include "common/log/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

#include "common/base/utf8.h"
#include "common/time/time.h"

enum {
    LINE_MAX_SIZE = 4096, /* PIPE_BUF */
    VALUE_MAX = 1024,     /* bytes of one value as written, more is cut with "..." */
    TAIL = 16             /* room for ,"cut":true}\n */
};

struct line {
    size_t size;
    bool full;
    char text[LINE_MAX_SIZE];
};

static char svc_name[32];
static enum berth_log_level lowest_level = BERTH_LOG_INFO;

void berth_log_setup(const char *service, enum berth_log_level lowest)
{
    snprintf(svc_name, sizeof svc_name, "%s", service);
    lowest_level = lowest;
}

static bool put(struct line *line, const char *bytes, size_t size)
{
    if (line->full || size > sizeof line->text - TAIL - line->size) {
        line->full = true;
        return false;
    }
    memcpy(line->text + line->size, bytes, size);
    line->size += size;
    return true;
}

/* One character as JSON writes it, into out[8]; returns how many input bytes it used. */
static size_t escape(const char *at, size_t left, char out[8])
{
    uint32_t point;
    size_t len = berth_utf8_step(at, left, &point);

    if (len == 0) {
        memcpy(out, "\xEF\xBF\xBD", 4); /* U+FFFD */
        return 1;
    }
    if (point == '"' || point == '\\')
        snprintf(out, 8, "\\%c", (char)point);
    else if (point == '\n')
        memcpy(out, "\\n", 3);
    else if (point < 0x20 || (point >= 0x7F && point < 0xA0))
        snprintf(out, 8, "\\u%04x", (unsigned)(point & 0xFF));
    else {
        memcpy(out, at, len);
        out[len] = 0;
    }
    return len;
}

static void put_string(struct line *line, const char *value)
{
    size_t left = strlen(value), start = line->size;

    put(line, "\"", 1);
    while (left > 0) {
        char out[8];
        size_t used = escape(value, left, out);

        if (line->size - start > VALUE_MAX - 8) {
            put(line, "...", 3);
            break;
        }
        if (!put(line, out, strlen(out)))
            break;
        value += used;
        left -= used;
    }
    put(line, "\"", 1);
}

static void put_member(struct line *line, const char *key, const char *value)
{
    size_t before = line->size;

    put(line, ",", 1);
    put_string(line, key);
    put(line, ":", 1);
    put_string(line, value);
    if (line->full)
        line->size = before; /* whole members only: the line stays JSON */
}

static void write_all(const char *text, size_t size)
{
    while (size > 0) {
        ssize_t n = write(STDERR_FILENO, text, size);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return; /* nobody reads: there is no place to say so */
        text += n;
        size -= (size_t)n;
    }
}

void berth_log(enum berth_log_level level, const char *message, ...)
{
    static const char *const names[] = {"debug", "info", "warn", "error"};
    int kept_errno = errno;
    struct line line;
    char ts[32];
    const char *key, *value;
    va_list args;

    if (level < lowest_level)
        return;
    berth_format_time(ts, berth_now_ms());
    line.full = false;
    line.size = (size_t)snprintf(line.text, sizeof line.text, "{\"ts\":\"%s\",\"level\":\"%s\"",
                                 ts, names[level]);
    put_member(&line, "svc", svc_name);
    put_member(&line, "msg", message);
    va_start(args, message);
    while ((key = va_arg(args, const char *)) && (value = va_arg(args, const char *)))
        put_member(&line, key, value);
    va_end(args);
    if (line.full) {
        memcpy(line.text + line.size, ",\"cut\":true", 11);
        line.size += 11;
    }
    memcpy(line.text + line.size, "}\n", 2);
    write_all(line.text, line.size + 2);
    errno = kept_errno;
}

const char *berth_i64(char buf[24], int64_t value)
{
    snprintf(buf, 24, "%lld", (long long)value);
    return buf;
}
