/* depend.c - the commands of a plan, and why one of them failed. */
#include <stdio.h>

#include "services/skills/bundle/text.h"
#include "services/skills/work/blame.h"
#include "services/skills/work/command.h"

enum { SHOWN_MAX = 160 };

/* For tools that are not told otherwise. What they make for themselves lies on the disk, not
 * in a /tmp that may be memory, and goes with WORK_DIR; a network that is not there is found
 * out in seconds. */
static const char *const own_env[] = {
    "TMPDIR=" WORK_DIR "/tmp",
    "XDG_CACHE_HOME=" WORK_DIR "/cache",
    "npm_config_cache=" WORK_DIR "/cache/npm",
    "npm_config_fetch_retries=2",
    "npm_config_fetch_retry_mintimeout=500",
    "npm_config_fetch_retry_maxtimeout=5000",
    "npm_config_progress=false",
    "PIP_NO_CACHE_DIR=1",
    "PIP_RETRIES=2",
    "PIP_PROGRESS_BAR=off",
    "UV_NATIVE_TLS=true",
    "UV_SYSTEM_CERTS=true",
    "UV_NO_PROGRESS=1",
    "UV_HTTP_RETRIES=2",
    "PYTHONUNBUFFERED=1",
};

static const char *step_name(enum plan_step step)
{
    switch (step) {
    case PLAN_APT:
        return "Debian packages";
    case PLAN_VENV:
        return "the Python environment";
    case PLAN_TOOL:
        return "uv, for a uv.lock";
    case PLAN_PYTHON:
        return "Python packages";
    case PLAN_NODE:
        return "Node packages";
    case PLAN_CHECK:
        return "the Python packages together";
    }
    return "";
}

static void say_command(struct work *work, const struct plan_command *command)
{
    char line[1024] = "";
    size_t n = 0;

    for (size_t i = 0; i < command->argv.n && n < sizeof line - 1; i++) {
        const char *word = command->argv.items[i];
        int len = strchr(word, '\n') ? snprintf(line + n, sizeof line - n, " ...")
                                     : snprintf(line + n, sizeof line - n, " %s", word);

        n += len > 0 ? (size_t)len : 0;
    }
    work_say(work, "$%s", line);
}

static enum berth_code tell_failure(const struct plan_command *command,
                                    const struct command_end *end, bool was_offline,
                                    struct berth_error *err)
{
    BERTH_AUTO(free) char *package = NULL;
    BERTH_AUTO(free) char *line = NULL;
    const char *manifest = *command->manifest ? command->manifest : "";
    struct blame blame;
    char how[160];

    blame_read(end->tail, end->tail_size, &blame);
    if (was_offline && blame.kind == BLAME_NO_PACKAGE)
        blame.kind = BLAME_NO_NETWORK;
    if (blame.kind == BLAME_OTHER && end->is_signaled && end->signal == 9)
        blame.kind = BLAME_MEMORY;
    package = text_show(blame.package, strlen(blame.package), SHOWN_MAX, false);
    line = text_show(blame.line, strlen(blame.line), SHOWN_MAX, false);
    if (!package || !line)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    (void)berth_fail(err, BERTH_REASON_DEPENDENCY_FAILED, "%s%s%s%s%s%s%s: %s (%s)",
                     step_name(command->step), *manifest ? " of " : "", manifest,
                     *package ? ": " : "", *package ? "'" : "", package, *package ? "'" : "",
                     blame_text(blame.kind), *line ? line : command_tell(end, how, sizeof how));
    BERTH_ERROR_SET(err, resource, package);
    return BERTH_FAILED_PRECONDITION;
}

static enum berth_code run_one(struct work *work, const struct plan *plan,
                               const struct plan_command *planned, bool *was_offline,
                               struct berth_error *err)
{
    struct command command = {
        .argv = (const char *const *)planned->argv.items,
        .n_argv = planned->argv.n,
        .directory = planned->directory,
        .defaults = own_env,
        .n_defaults = BERTH_COUNT(own_env),
        .env = {&plan->env, &planned->env},
    };
    struct command_end end = {0};
    struct berth_error why = {0};
    enum berth_code code;

    say_command(work, planned);
    code = command_run(work, &command, &end, &why);
    if (code == BERTH_DEADLINE_EXCEEDED)
        code = berth_fail(err, BERTH_REASON_DEADLINE, "%s%s%s: not done in %lld s",
                          step_name(planned->step), *planned->manifest ? " of " : "",
                          planned->manifest, (long long)work->wish.step_timeout_ms / 1000);
    else if (why.reason == BERTH_REASON_GATE_FAILED)
        code = berth_fail(err, BERTH_REASON_DEPENDENCY_FAILED, "%s: %s",
                          step_name(planned->step), why.text);
    else if (code && err)
        *err = why;
    if (!code && !command_is_done(&end))
        code = tell_failure(planned, &end, *was_offline, err);
    else if (!code && planned->step == PLAN_APT)
        *was_offline = blame_is_offline(end.tail, end.tail_size);
    command_end_deinit(&end);
    return code;
}

enum berth_code work_dependencies(struct work *work, const struct plan *plan,
                                  struct berth_error *err)
{
    bool was_offline = false; /* apt-get update found nobody, which is no failure to it */
    enum berth_code code = BERTH_OK;

    for (size_t i = 0; !code && i < plan->n_commands; i++)
        code = run_one(work, plan, &plan->commands[i], &was_offline, err);
    return code;
}
