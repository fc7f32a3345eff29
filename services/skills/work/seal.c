/* seal.c - the skills' tree made read-only, and the links in it judged. */
#include "services/skills/bundle/text.h"
#include "services/skills/work/command.h"
#include "services/skills/work/links.h"

enum { SEAL_MAX_MS = 10 * 60 * 1000, SHOWN_MAX = 100, SAID_MAX = 50 };

static const char *link_text(enum link_verdict verdict)
{
    return verdict == LINK_WINDING ? "takes a way that cannot be told from its text"
                                   : "leads out of its skill";
}

/* "path NUL target NUL" of each. */
static enum berth_code judge_links(struct work *work, const char *text, size_t size,
                                   struct berth_error *err)
{
    const char *end = text + size;
    enum berth_code code = BERTH_OK;
    size_t n_bad = 0;

    while (text < end) {
        const char *path = text, *target, *stop;
        enum link_verdict verdict;

        target = memchr(path, 0, (size_t)(end - path));
        stop = target ? memchr(target + 1, 0, (size_t)(end - target - 1)) : NULL;
        if (!stop)
            return berth_fail(err, BERTH_REASON_GATE_FAILED,
                              "the list of links is cut off in the middle");
        target++;
        text = stop + 1;
        verdict = link_judge(path, target);
        if (verdict == LINK_INSIDE || verdict == LINK_SYSTEM)
            continue;
        if (++n_bad <= SAID_MAX) {
            BERTH_AUTO(free) char *from = text_show(path, strlen(path), SHOWN_MAX, false);
            BERTH_AUTO(free) char *to = text_show(target, strlen(target), SHOWN_MAX, false);

            if (!from || !to)
                return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
            work_say(work, "the link %s -> %s %s", from, to, link_text(verdict));
            if (n_bad == 1)
                code = berth_fail(err, BERTH_REASON_GATE_FAILED, "the link %s -> %s %s", from,
                                  to, link_text(verdict));
        }
    }
    if (n_bad > 1)
        work_say(work, "%zu links lead out of their skills", n_bad);
    return code;
}

enum berth_code work_seal(struct work *work, struct berth_error *err)
{
    const struct command command = {.is_bare = true,
                                    .input = work->known,
                                    .input_size = strlen(work->known),
                                    .capture_max = COMMAND_CAPTURE_MAX,
                                    .timeout_ms = SEAL_MAX_MS};
    struct command_end end = {0};
    enum berth_code code =
        command_run_script(work, &command, work_seal_sh, &end, err, (char *)NULL);
    char how[160];

    if (!code && !command_is_done(&end))
        code = berth_fail(err, BERTH_REASON_GATE_FAILED,
                          "the skills' tree cannot be sealed: it %s: %.150s",
                          command_tell(&end, how, sizeof how), end.tail);
    if (!code)
        code = judge_links(work, end.captured ? end.captured : "", end.captured_size, err);
    command_end_deinit(&end);
    return code;
}
