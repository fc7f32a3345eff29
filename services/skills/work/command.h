/* command.h - one command in the maintenance sandbox, from its start to its end. */
#pragma once

#include "services/skills/work/inside.h"

enum {
    COMMAND_SAID_MAX = 256 << 10,   /* bytes of one command's output that are said */
    COMMAND_PRINTED_MAX = 16 << 20, /* bytes that it may print */
    COMMAND_TAIL_MAX = 16 << 10,    /* kept of its end */
    COMMAND_CAPTURE_MAX = 8 << 20,
    COMMAND_INPUT_MAX = 2 << 20,
};

struct command {
    const char *const *argv;
    size_t n_argv;
    const char *directory; /* NULL: / */
    /* "NAME=value": defaults, then what the wish brought, then these; a later one replaces. */
    const char *const *defaults;
    size_t n_defaults;
    const struct skill_list *env[2]; /* NULL: none */
    bool as_user;                    /* else as root */
    bool is_bare;                    /* without the environment that the wish brought */
    bool is_quiet;                   /* say nothing of what it prints */
    const char *input;               /* stdin; NULL: none */
    size_t input_size;
    size_t capture_max; /* keep so much of stdout, and do not say it; more is GATE_FAILED.
                           0: stdout is said as stderr is */
    int64_t timeout_ms; /* 0: the wish's */
};

struct command_end {
    bool is_signaled; /* by a signal, or the kernel for lack of memory; else exit_code */
    int exit_code;
    int signal;
    char *message;  /* owned; of the backend, for a developer */
    char *captured; /* owned, with a NUL behind */
    size_t captured_size;
    char tail[COMMAND_TAIL_MAX + 1]; /* the end of what was printed and not captured */
    size_t tail_size;
};
void command_end_deinit(struct command_end *end);

/**
 * command_run() - run one to its end
 * @ret: zeroed; command_end_deinit() in any case
 *
 * BERTH_OK: the backend reported an end, whatever it was. A broken connection is mended, and
 * the command found again by its exec_id.
 *
 * Errors: CANCELLED; DEADLINE: its timeout; GATE_FAILED: it printed more than it may;
 * SANDBOX_NOT_FOUND: it ran in another sandbox than was opened; those of Exec.
 */
BERTH_MUST_CHECK enum berth_code command_run(struct work *work, const struct command *command,
                                             struct command_end *ret, struct berth_error *err);

/* A script of ours: "sh -c <script> berth <id of the work> words...". Exit code 97 is told as
 * SANDBOX_NOT_FOUND: this is not the sandbox that was opened. command->argv is not read.
 * Errors: as command_run(). */
BERTH_SENTINEL BERTH_MUST_CHECK enum berth_code
command_run_script(struct work *work, const struct command *command, const char *script,
                   struct command_end *ret, struct berth_error *err, ...);

/* Did it end well? */
bool command_is_done(const struct command_end *end);
/* "ended with 1", "was killed by signal 9 (...)". Returns buf. */
const char *command_tell(const struct command_end *end, char *buf, size_t size);
