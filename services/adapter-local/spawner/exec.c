/* exec.c - the life of one command: SPAWNING, RUNNING, ENDING, DONE. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include "common/time/time.h"
#include "services/adapter-local/spawner/engine.h"

enum {
    OOM_EXIT_CODE = 137, /* a shell's way to say that its child was killed */
    EMPTY_MS = 2,        /* a process leaves its cgroup a moment after it was waited for */
};

#define PATH_VAR "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* What a command finds in its environment unless the sandbox or the caller says otherwise. */
static const char *const user_defaults[] = {PATH_VAR,       "HOME=/home/user", "USER=user",
                                            "LOGNAME=user", "SHELL=/bin/bash", "LANG=C.UTF-8"};
static const char *const root_defaults[] = {PATH_VAR,       "HOME=/root",      "USER=root",
                                            "LOGNAME=root", "SHELL=/bin/bash", "LANG=C.UTF-8"};

/* Where a session's user installs packages is no place that root loads code from. */
static const char *const overlay_vars[] = {"BERTH_PATH", "PYTHONUSERBASE", "PYTHONPATH",
                                           "NODE_PATH", "NPM_CONFIG_PREFIX"};

/* Arguments and environment of the child; the arrays are owned, the strings borrowed but for
 * path_var. */
struct child_strings {
    char **args, **vars;
    char *path_var;
    const char *path;
};

static void child_strings_deinit(struct child_strings *strings)
{
    free(strings->args);
    free(strings->vars);
    free(strings->path_var);
}

static void set_var(char **vars, size_t *n, const char *var)
{
    size_t len = strcspn(var, "=");

    for (size_t i = 0; i < *n; i++) {
        if (strncmp(vars[i], var, len) == 0 && vars[i][len] == '=') {
            vars[i] = (char *)var;
            return;
        }
    }
    vars[(*n)++] = (char *)var;
}

static const char *get_var(char *const *vars, size_t n, const char *name)
{
    size_t len = strlen(name);

    for (size_t i = 0; i < n; i++)
        if (strncmp(vars[i], name, len) == 0 && vars[i][len] == '=')
            return vars[i] + len + 1;
    return "";
}

static bool is_overlay_var(const char *var)
{
    for (size_t i = 0; i < BERTH_COUNT(overlay_vars); i++) {
        size_t len = strlen(overlay_vars[i]);

        if (strncmp(var, overlay_vars[i], len) == 0 && var[len] == '=')
            return true;
    }
    return false;
}

/* The commands of a skill and of the overlay first, as /etc/profile.d/berth.sh has it. */
static bool set_path(struct child_strings *ret, size_t *n)
{
    const char *path = get_var(ret->vars, *n, "PATH");
    const char *overlay = get_var(ret->vars, *n, "BERTH_PATH");
    const char *skill = get_var(ret->vars, *n, "BERTH_SKILL_DIR");
    char bins[2 * 4096 + 64] = "";

    if (strlen(skill) > 4096)
        skill = "";
    if (*skill)
        snprintf(bins, sizeof bins, "%s/.venv/bin:%s/node_modules/.bin:", skill, skill);
    if (*bins || *overlay) {
        if (asprintf(&ret->path_var, "PATH=%s%s%s%s", bins, overlay, *overlay ? ":" : "",
                     path) < 0) {
            ret->path_var = NULL;
            return false;
        }
        set_var(ret->vars, n, ret->path_var);
        path = ret->path_var + 5;
    }
    ret->path = path;
    return true;
}

static bool child_strings_init(struct child_strings *ret, const struct engine *engine,
                               const struct wire_start *start)
{
    const char *const *defaults = start->root ? root_defaults : user_defaults;
    size_t n_defaults = BERTH_COUNT(user_defaults), n_sandbox = 0, n = 0;
    const char *at;

    while (engine->env->environ && engine->env->environ[n_sandbox])
        n_sandbox++;
    ret->path_var = NULL;
    ret->args = calloc((size_t)start->args.n + 4, sizeof *ret->args);
    ret->vars = calloc(n_defaults + n_sandbox + start->env.n + 1, sizeof *ret->vars);
    if (!ret->args || !ret->vars) {
        child_strings_deinit(ret);
        return false;
    }
    if (start->shell) {
        ret->args[n++] = (char *)"/bin/bash";
        ret->args[n++] = (char *)"-l";
        ret->args[n++] = (char *)"-c";
    }
    at = start->args.bytes;
    for (uint32_t i = 0; i < start->args.n; i++, at += strlen(at) + 1)
        ret->args[n++] = (char *)at;
    n = 0;
    for (size_t i = 0; i < n_defaults; i++)
        set_var(ret->vars, &n, defaults[i]);
    for (size_t i = 0; i < n_sandbox; i++)
        if (!start->root || !is_overlay_var(engine->env->environ[i]))
            set_var(ret->vars, &n, engine->env->environ[i]);
    at = start->env.bytes;
    for (uint32_t i = 0; i < start->env.n; i++, at += strlen(at) + 1)
        set_var(ret->vars, &n, at);
    if (start->root) {
        ret->path = get_var(ret->vars, n, "PATH");
        return true;
    }
    if (!set_path(ret, &n)) {
        child_strings_deinit(ret);
        return false;
    }
    return true;
}

/* Keep what LIST shows: whole arguments are cut off at WIRE_SHOWN_MAX bytes. */
static bool keep_shown(struct exec *exec, const struct wire_strings *args)
{
    size_t size = args->size < WIRE_SHOWN_MAX ? args->size : WIRE_SHOWN_MAX;

    exec->shown = malloc(size);
    if (!exec->shown)
        return false;
    memcpy(exec->shown, args->bytes, size);
    exec->shown[size - 1] = 0;
    exec->shown_args = (struct wire_strings){.bytes = exec->shown, .size = size};
    for (size_t i = 0; i < size; i++)
        exec->shown_args.n += exec->shown[i] == 0;
    return true;
}

static struct exec *exec_new(struct engine *engine, const struct wire_start *start)
{
    struct exec *exec = calloc(1, sizeof *exec);

    if (!exec)
        return NULL;
    exec->engine = engine;
    exec->tree.fd = exec->tree.events_fd = exec->tree.cpu_fd = -1;
    exec->status_fd = exec->feed.fd = -1;
    exec->feed.last = &exec->feed.first;
    for (int s = 0; s < WIRE_N_STREAMS; s++) {
        exec->out[s].fd = -1;
        exec->out[s].exec = exec;
    }
    exec->id = strdup(start->exec_id);
    exec->cwd = strdup(start->cwd);
    memcpy(exec->digest, start->digest, sizeof exec->digest);
    exec->root = start->root;
    exec->shell = start->shell;
    exec->detach = start->detach;
    exec->collect = start->collect;
    exec->timeout_ms = start->timeout_ms;
    exec->max_output = (uint64_t)start->max_output;
    exec->next_seq = 2; /* 1 is Started */
    exec->cpu_us = -1;
    if (!exec->id || !exec->cwd || !keep_shown(exec, &start->args)) {
        exec_free(exec);
        return NULL;
    }
    return exec;
}

/* Cut text to what a message may hold, at the border of a character. */
static void set_message(struct exec *exec, const char *text)
{
    size_t len = strlen(text);

    if (len >= sizeof exec->exited.message) {
        len = sizeof exec->exited.message - 1;
        while (len > 0 && ((uint8_t)text[len] & 0xC0) == 0x80)
            len--;
    }
    memcpy(exec->exited.message, text, len);
    exec->exited.message[len] = 0;
}

/* Of an ended command: its processes are gone, or stay behind. */
static void let_go_of_tree(struct exec *exec)
{
    struct engine *engine = exec->engine;
    struct tree tree = exec->tree;

    if (tree_populated(&tree)) {
        engine_linger(engine, tree.name);
        return;
    }
    exec->tree.fd = exec->tree.events_fd = exec->tree.cpu_fd = -1;
    engine_give_tree(engine, &tree);
}

static void on_empty(void *arg)
{
    struct exec *exec = arg;

    exec->empty = NULL;
    let_go_of_tree(exec);
}

void exec_tidy(struct exec *exec)
{
    if (exec->state == EXEC_DONE && !exec->empty && exec->tree.fd >= 0 &&
        !tree_populated(&exec->tree))
        tree_close(&exec->tree);
}

/* The result stands. */
static void finish(struct exec *exec)
{
    struct engine *engine = exec->engine;
    int64_t cpu_us = tree_cpu_us(&exec->tree);

    exec->exited.seq = exec->next_seq++;
    exec->exited.wall_us = (berth_tick_ns() - exec->start_tick_ns) / 1000;
    /* The cgroup counts the whole tree, but may be behind by what was used last. */
    if (cpu_us < exec->cpu_us)
        cpu_us = exec->cpu_us;
    exec->exited.cpu_us = cpu_us > 0 ? cpu_us : 0;
    for (int s = 0; s < WIRE_N_STREAMS; s++)
        exec->exited.bytes[s] = exec->out[s].ring.total;
    exec->exited.stream_held_open = output_held_open(exec);
    exec->state = EXEC_DONE;
    exec->done_tick_ms = berth_tick_ms();
    engine->n_kept++;
    if (output_finished(exec))
        engine->n_running--;
    exec->timeout = berth_timer_cancel(exec->timeout);
    exec->grace = berth_timer_cancel(exec->grace);
    exec->orphan = berth_timer_cancel(exec->orphan);
    feed_close(exec);
    /* When the answer is out. */
    exec->empty = berth_loop_timer(engine->loop, EMPTY_MS, on_empty, exec);
    if (!exec->empty)
        let_go_of_tree(exec);
    output_watch(exec);
    engine_need_tick(engine);
    output_wake(exec); /* the command may be gone by now */
}

static void fail_spawn(struct exec *exec)
{
    char text[2 * WIRE_TEXT_SIZE];
    const char *about = launch_step_text(exec->failure.value);
    const char *name = exec->shell ? "/bin/bash" : exec->shown;

    if (exec->failure.value == LAUNCH_STEP_CWD)
        snprintf(text, sizeof text, "%s '%.200s': %s", about, exec->cwd,
                 strerror(exec->failure.error));
    else if (exec->failure.value == LAUNCH_STEP_EXEC)
        snprintf(text, sizeof text, "%s '%.200s': %s", about, name,
                 strerror(exec->failure.error));
    else
        snprintf(text, sizeof text, "%s: %s", about, strerror(exec->failure.error));
    exec->exited.reason = WIRE_EXIT_SPAWN_FAILED;
    set_message(exec, text);
    tree_kill(&exec->tree);
    output_close(exec);
    finish(exec);
}

static void set_result(struct exec *exec)
{
    const struct supervisor_env *env = exec->engine->env;
    int64_t kills = box_oom_kills(&exec->engine->box);
    bool starved = kills > exec->oom_before && kills > exec->engine->oom_told;
    struct wire_exited *exited = &exec->exited;

    if (WIFEXITED(exec->status)) {
        exited->reason = WIRE_EXIT_EXITED;
        exited->exit_code = WEXITSTATUS(exec->status);
        starved = starved && exited->exit_code == OOM_EXIT_CODE;
    } else {
        exited->reason = WIRE_EXIT_SIGNALED;
        exited->signal = WTERMSIG(exec->status);
        starved = starved && exited->signal == SIGKILL;
        if (exec->kill_reason != WIRE_REASON_NONE && exited->signal == SIGKILL)
            exited->reason = exec->kill_reason;
        else if (starved)
            exited->reason = WIRE_EXIT_OUT_OF_MEMORY;
    }
    if (exited->reason == WIRE_EXIT_SIGNALED && exited->signal == SIGKILL &&
        box_init_dying(env->init_pid)) {
        exited->reason = WIRE_EXIT_KILLED;
        set_message(exec, "the sandbox has ended");
    }
    if (exec->kill_reason == WIRE_REASON_NONE && starved) {
        exec->engine->oom_told++;
        if (exited->reason == WIRE_EXIT_OUT_OF_MEMORY)
            exited->signal = 0;
        set_message(exec, "the kernel killed a process of the sandbox: out of memory");
    }
    if (exited->reason == WIRE_EXIT_KILLED && exec->unclaimed)
        set_message(exec, "its caller went away (or the service in between did), and no "
                          "repeat of its exec_id took it over");
    if (exited->reason == WIRE_EXIT_TIMED_OUT)
        set_message(exec, "the timeout has passed; the whole tree was killed");
}

static void on_grace(void *arg)
{
    struct exec *exec = arg;

    exec->grace = NULL;
    exec->grace_over = true;
    exec_settle(exec);
}

static void main_process_ended(struct exec *exec)
{
    exec->state = EXEC_ENDING;
    exec->timeout = berth_timer_cancel(exec->timeout);
    set_result(exec);
    output_end(exec);
    if (!output_finished(exec)) {
        exec->grace = berth_loop_timer(exec->engine->loop, exec->engine->limits->grace_ms,
                                       on_grace, exec);
        exec->grace_over = !exec->grace;
    }
    exec_settle(exec);
}

void exec_settle(struct exec *exec)
{
    bool fetched =
        exec->out[WIRE_STDOUT].must_read == 0 && exec->out[WIRE_STDERR].must_read == 0;

    if (exec->state == EXEC_ENDING && (output_finished(exec) || (exec->grace_over && fetched)))
        finish(exec);
}

/* The status pipe is at its end: the program runs, or never will. */
static void launched(struct exec *exec)
{
    exec->status_watch = berth_loop_unwatch(exec->status_watch);
    closep(&exec->status_fd);
    exec->status_fd = -1;
    if (exec->failure.kind == LAUNCH_FAILED) {
        fail_spawn(exec);
        return;
    }
    if (exec->inner_pid == 0) {
        /* Something killed it on the way, most likely our own timeout or cancel. */
        tree_kill(&exec->tree);
        output_close(exec);
        exec->exited.reason = exec->kill_reason ? exec->kill_reason : WIRE_EXIT_SPAWN_FAILED;
        if (exec->kill_reason)
            exec->exited.signal = SIGKILL;
        set_message(exec, "killed before the program ran");
        finish(exec);
        return;
    }
    exec->started = true;
    exec->state = EXEC_RUNNING;
    feed_pump(exec);
    output_watch(exec);
    if (exec->reaped)
        main_process_ended(exec);
    else
        output_wake(exec);
}

static void on_status(void *arg, uint32_t events)
{
    struct exec *exec = arg;
    struct launch_record record;
    ssize_t got;

    (void)events;
    for (;;) {
        got = read(exec->status_fd, &record, sizeof record);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN)
            return;
        if (got != (ssize_t)sizeof record)
            break;
        if (record.kind == LAUNCH_INNER) {
            exec->inner_pid = (uint32_t)record.value;
        } else if (exec->failure.kind == 0) {
            exec->failure = record;
        }
    }
    launched(exec);
}

void exec_reaped(struct exec *exec, int status, const struct rusage *usage)
{
    exec->pid = 0;
    exec->reaped = true;
    exec->status = status;
    exec->cpu_us = (int64_t)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1000000 +
                   usage->ru_utime.tv_usec + usage->ru_stime.tv_usec;
    if (exec->state == EXEC_RUNNING)
        main_process_ended(exec);
}

static void kill_all(struct exec *exec, enum wire_reason reason)
{
    if (exec->kill_reason == WIRE_REASON_NONE && !exec->reaped)
        exec->kill_reason = reason;
    tree_kill(&exec->tree);
}

static void on_timeout(void *arg)
{
    struct exec *exec = arg;
    int64_t frozen_ms = engine_frozen_ms(exec->engine) - exec->frozen_before_ms;
    int64_t ran_ms = (berth_tick_ns() - exec->start_tick_ns) / 1000000 - frozen_ms;

    exec->timeout = NULL;
    if (ran_ms >= exec->timeout_ms) {
        kill_all(exec, WIRE_EXIT_TIMED_OUT);
        return;
    }
    /* The time a sandbox is paused is not the command's. */
    exec->timeout =
        berth_loop_timer(exec->engine->loop, exec->timeout_ms - ran_ms, on_timeout, exec);
    if (!exec->timeout)
        kill_all(exec, WIRE_EXIT_TIMED_OUT);
}

static void on_orphan(void *arg)
{
    struct exec *exec = arg;

    exec->orphan = NULL;
    exec->unclaimed = exec->kill_reason == WIRE_REASON_NONE;
    kill_all(exec, WIRE_EXIT_KILLED);
}

void exec_readers_changed(struct exec *exec)
{
    bool orphan = exec->abandoned && !exec->detach && !exec->readers && !exec->reaped;

    if (!orphan)
        exec->orphan = berth_timer_cancel(exec->orphan);
    else if (!exec->orphan)
        exec->orphan = berth_loop_timer(exec->engine->loop, exec->engine->limits->orphan_ms,
                                        on_orphan, exec);
    if (orphan && !exec->orphan)
        on_orphan(exec);
}

void exec_abandon(struct exec *exec)
{
    exec->abandoned = true;
}

bool exec_signal(struct exec *exec, int signal, bool leader_only)
{
    if (leader_only) {
        /* Not waited for yet, so the number is still its own. */
        if (exec->pid == 0 || !exec->started || kill(exec->pid, signal) < 0)
            return false;
        if (signal == SIGKILL && exec->kill_reason == WIRE_REASON_NONE)
            exec->kill_reason = WIRE_EXIT_KILLED;
        return true;
    }
    if (signal != SIGKILL)
        return tree_signal(&exec->tree, signal) > 0;
    if (!tree_populated(&exec->tree))
        return false;
    kill_all(exec, WIRE_EXIT_KILLED);
    return true;
}

/* Everything that can fail is made here; on failure the caller undoes it by exec_free(). */
static int spawn(struct exec *exec, const struct wire_start *start)
{
    struct engine *engine = exec->engine;
    struct child_strings strings = {0};
    int child_out[WIRE_N_STREAMS] = {-1, -1}, child_in = -1;
    int why;

    if (!child_strings_init(&strings, engine, start))
        return ENOMEM;
    why = engine_take_tree(engine, &exec->tree);
    if (!why)
        why = output_open(exec, child_out);
    if (!why)
        why = feed_open(exec, start, &child_in);
    if (!why) {
        struct launch how = {.env = engine->env,
                             .tree = &exec->tree,
                             .args = strings.args,
                             .vars = strings.vars,
                             .path = strings.path,
                             .cwd = exec->cwd,
                             .root = exec->root,
                             .ignored = &engine->ignored,
                             .own_pids_fd = engine->own_pids_fd,
                             .stdin_fd = child_in,
                             .stdout_fd = child_out[WIRE_STDOUT],
                             .stderr_fd = child_out[WIRE_STDERR]};

        why = launch(&how, &exec->status_fd, &exec->pid);
    }
    child_strings_deinit(&strings);
    if (child_in != engine->null_fd)
        closep(&child_in);
    closep(&child_out[WIRE_STDOUT]);
    closep(&child_out[WIRE_STDERR]);
    return why;
}

static enum berth_code check_room(const struct engine *engine, struct berth_error *err)
{
    if (engine->n_running >= engine->limits->running_max)
        return berth_fail(err, BERTH_REASON_OVERLOADED, "%u commands run in this sandbox",
                          engine->n_running);
    if (engine->n_lingering >= engine->limits->lingering_max)
        return berth_fail(err, BERTH_REASON_OVERLOADED,
                          "%u ended commands left processes behind", engine->n_lingering);
    return BERTH_OK;
}

enum berth_code exec_start(struct engine *engine, const struct wire_start *start,
                           struct exec **ret, struct berth_error *err)
{
    enum berth_code code = check_room(engine, err);
    struct exec *exec;
    int why;

    if (code)
        return code;
    /* Its namespace may let one more in for a moment, to be killed. */
    if (box_init_dying(engine->env->init_pid))
        return berth_fail(err, BERTH_REASON_SANDBOX_TERMINAL, NULL);
    engine_make_room(engine);
    exec = exec_new(engine, start);
    if (!exec)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    exec->start_ms = berth_now_ms();
    exec->start_tick_ns = berth_tick_ns();
    exec->frozen_before_ms = engine_frozen_ms(engine);
    exec->oom_before = box_oom_kills(&engine->box);
    if (engine->n_running == 0)
        engine->oom_told = exec->oom_before;
    why = spawn(exec, start);
    if (why) {
        exec_free(exec);
        if (box_init_dying(engine->env->init_pid))
            return berth_fail(err, BERTH_REASON_SANDBOX_TERMINAL, NULL);
        if (why == ENOMEM)
            return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        return berth_fail(
            err, why == ENOBUFS ? BERTH_REASON_OVERLOADED : BERTH_REASON_BACKEND_CAPACITY,
            "start a command: %s",
            why == EAGAIN
                ? "the sandbox is at its limit of processes (resources.max_processes); "
                  "Signal 9 to the exec_id of an ended command ends what that left behind"
                : strerror(why));
    }
    engine_add(engine, exec);
    engine->n_running++;
    engine_need_tick(engine); /* its sandbox is in use from here on */
    /* For its end only, which is always told: what stands in it can wait until then, and the
     * child is not slowed down by waking us. */
    code = berth_loop_watch(engine->loop, exec->status_fd, 0, on_status, exec,
                            &exec->status_watch, err);
    if (code == BERTH_OK && exec->timeout_ms > 0) {
        exec->timeout = berth_loop_timer(engine->loop, exec->timeout_ms, on_timeout, exec);
        if (!exec->timeout)
            code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    if (code) {
        /* It runs already, and cannot be watched: it must not. */
        tree_kill(&exec->tree);
        engine->n_running--;
        engine_remove(engine, exec);
        return code;
    }
    *ret = exec;
    return BERTH_OK;
}

void exec_describe(const struct exec *exec, struct wire_process *ret)
{
    *ret = (struct wire_process){.pid = exec->inner_pid,
                                 .shell = exec->shell,
                                 .root = exec->root,
                                 .detached = exec->detach,
                                 .ended = exec->state == EXEC_DONE,
                                 .start_ms = exec->start_ms,
                                 .timeout_ms = exec->timeout_ms,
                                 .last_seq = exec->next_seq - 1,
                                 .exited = exec->exited,
                                 .args = exec->shown_args};
    memcpy(ret->exec_id, exec->id, strlen(exec->id) + 1);
    memcpy(ret->cwd, exec->cwd, strlen(exec->cwd) + 1);
}

void exec_free(struct exec *exec)
{
    berth_timer_cancel(exec->timeout);
    berth_timer_cancel(exec->grace);
    berth_timer_cancel(exec->orphan);
    if (exec->empty) {
        berth_timer_cancel(exec->empty);
        let_go_of_tree(exec);
    }
    berth_loop_unwatch(exec->status_watch);
    closep(&exec->status_fd);
    output_close(exec);
    feed_close(exec);
    tree_close(&exec->tree);
    if (exec->state != EXEC_DONE && exec->tree.name[0] != 0 &&
        !tree_remove(exec->tree.box_fd, exec->tree.name))
        engine_linger(exec->engine, exec->tree.name);
    free(exec->id);
    free(exec->cwd);
    free(exec->shown);
    free(exec);
}
