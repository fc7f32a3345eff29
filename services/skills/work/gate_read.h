/* gate_read.h - what the gate's scripts answer: records "<number> ok|bad|odd <line> <text>",
 * each with a NUL behind it. Pure; the bytes come out of a sandbox. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gate_state {
    GATE_UNSAID, /* nothing was said of it: not judged */
    GATE_OK,
    GATE_BAD,
    GATE_ODD,
};

struct gate_record {
    enum gate_state state;
    unsigned line;
    const char *text; /* borrowed from the answer */
};

/**
 * gate_read() - one record for each of n
 * @text: the answer, with a NUL behind its size
 * @ret:  n records, all written
 *
 * False: something in it is no record, is cut off, is of none of the n, or is told twice. What
 * was not told then, or at all, is UNSAID.
 */
bool gate_read(const char *text, size_t size, struct gate_record *ret, size_t n);

/* The line that a shell's complaint names ("x.sh: 3: Syntax error", "x.sh: line 3: ..."); 0:
 * none. */
unsigned gate_shell_line(const char *text);

/**
 * gate_read_sums() - what `sha256sum -z` prints: "<64 hex digits>  <name>", each with a NUL
 *
 * @names: n, in the order asked; @ret: n sums. False: something is no such line, or one is
 * missing or another than was asked.
 */
bool gate_read_sums(const char *text, size_t size, const char *const *names, size_t n,
                    uint8_t (*ret)[32]);
