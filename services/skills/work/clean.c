/* clean.c - nothing is left in the sandbox but the image. */
#include <inttypes.h>
#include <stdio.h>

#include "services/skills/work/command.h"

enum { CLEAN_MAX_MS = 10 * 60 * 1000, CLEAN_SAID_MAX = 4096 };

enum berth_code work_clean(struct work *work, uint64_t *ret_bytes, struct berth_error *err)
{
    const struct command command = {.is_bare = true,
                                    .input = work->known,
                                    .input_size = strlen(work->known),
                                    .capture_max = CLEAN_SAID_MAX,
                                    .timeout_ms = CLEAN_MAX_MS};
    struct command_end end = {0};
    enum berth_code code =
        command_run_script(work, &command, work_clean_sh, &end, err, (char *)NULL);
    char how[160];
    uint64_t bytes;

    if (!code && !command_is_done(&end))
        code = berth_fail(err, BERTH_REASON_GATE_FAILED,
                          "the maintenance sandbox cannot be cleaned: it %s: %.150s",
                          command_tell(&end, how, sizeof how), end.tail);
    if (!code && (!end.captured || sscanf(end.captured, "%" SCNu64, &bytes) != 1))
        code = berth_fail(err, BERTH_REASON_GATE_FAILED, "the skills' tree has no size");
    if (!code)
        *ret_bytes = bytes;
    command_end_deinit(&end);
    return code;
}
