#include "services/adapter-local/spawner/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "common/time/time.h"

enum {
    TOUCH_MS = 1000, /* last use is recorded at most this often */
};

const struct engine_limits engine_default_limits = {
    .running_max = 1024,
    .kept_max = 2048,
    .kept_ms = 10 * 60 * 1000,
    .ring_bytes = 1 << 20,
    .ring_bytes_min = 64 << 10,
    .rings_bytes = 32 << 20,
    .unread_bytes = 512 << 10,
    .input_bytes = 32 << 20,
    .inputs_max = 16,
    .lingering_max = 4096,
    .connections_max = 4096,
    .grace_ms = 200,
    .orphan_ms = 2000,
    .heartbeat_ms = 15000,
    .request_ms = 10000,
    .tick_ms = 5000,
};

static unsigned bucket_of(const char *id)
{
    uint32_t hash = 2166136261u; /* FNV-1a */

    for (; *id; id++)
        hash = (hash ^ (uint8_t)*id) * 16777619u;
    return hash % ENGINE_BUCKETS;
}

struct exec *engine_find(const struct engine *engine, const struct wire_ref *ref)
{
    if (ref->exec_id[0] == 0) {
        /* The newest one: process ids come back. */
        for (struct exec *exec = engine->newest; exec; exec = exec->prev) {
            if (exec->inner_pid == ref->pid && ref->pid != 0)
                return exec;
        }
        return NULL;
    }
    for (struct exec *exec = engine->buckets[bucket_of(ref->exec_id)]; exec;
         exec = exec->bucket_next) {
        if (strcmp(exec->id, ref->exec_id) == 0)
            return exec;
    }
    return NULL;
}

void engine_add(struct engine *engine, struct exec *exec)
{
    struct exec **bucket = &engine->buckets[bucket_of(exec->id)];

    exec->bucket_next = *bucket;
    *bucket = exec;
    exec->prev = engine->newest;
    exec->next = NULL;
    if (engine->newest)
        engine->newest->next = exec;
    else
        engine->oldest = exec;
    engine->newest = exec;
}

void engine_remove(struct engine *engine, struct exec *exec)
{
    struct exec **link = &engine->buckets[bucket_of(exec->id)];

    while (*link != exec)
        link = &(*link)->bucket_next;
    *link = exec->bucket_next;
    if (exec->prev)
        exec->prev->next = exec->next;
    else
        engine->oldest = exec->next;
    if (exec->next)
        exec->next->prev = exec->prev;
    else
        engine->newest = exec->prev;
    if (exec->state == EXEC_DONE)
        engine->n_kept--;
    exec_free(exec);
}

/* A stream that a child still holds is read on, so the command stays. */
static bool removable(const struct exec *exec)
{
    return exec->state == EXEC_DONE && !exec->readers && output_finished(exec);
}

/* Results older than age_ms; all of them can be asked for until then. */
static void drop_old(struct engine *engine, int64_t age_ms)
{
    int64_t now = berth_tick_ms();
    struct exec *next;

    for (struct exec *exec = engine->oldest; exec; exec = next) {
        next = exec->next;
        if (removable(exec) && now - exec->done_tick_ms >= age_ms)
            engine_remove(engine, exec);
    }
}

void engine_make_room(struct engine *engine)
{
    struct exec *next;

    for (struct exec *exec = engine->oldest; exec && engine->n_kept > engine->limits->kept_max;
         exec = next) {
        next = exec->next;
        if (removable(exec))
            engine_remove(engine, exec);
    }
}

void engine_squeeze(struct engine *engine)
{
    for (struct exec *exec = engine->oldest; exec && engine->held > engine->limits->rings_bytes;
         exec = exec->next) {
        if (removable(exec))
            output_close(exec);
    }
}

static void died(struct engine *engine, pid_t pid, int status, const struct rusage *usage)
{
    for (struct exec *exec = engine->newest; exec; exec = exec->prev) {
        if (exec->pid == pid) {
            exec_reaped(exec, status, usage);
            return;
        }
    } /* anything else is no command: what was needed to make the sandbox */
}

/* The kernel kills whatever else was in the sandbox. */
static void init_ended(struct engine *engine)
{
    engine->init_gone = true;
    for (struct exec *exec = engine->oldest; exec; exec = exec->next) {
        if (!exec->reaped && exec->kill_reason == WIRE_REASON_NONE)
            exec->kill_reason = WIRE_EXIT_KILLED;
    }
    engine->ended(engine->ended_arg);
}

static void on_sigchld(void *arg, uint32_t events)
{
    struct engine *engine = arg;
    struct signalfd_siginfo discard;
    struct rusage usage;
    int status;

    (void)events;
    while (read(engine->sigchld_fd, &discard, sizeof discard) > 0) {
    }
    for (;;) {
        siginfo_t info = {0};

        /* Look first: nobody but us may wait for these, and all are waited for by number. */
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0)
            break;
        if (wait4(info.si_pid, &status, WNOHANG, &usage) != info.si_pid)
            continue;
        if (info.si_pid == engine->env->init_pid) {
            init_ended(engine);
        } else {
            died(engine, info.si_pid, status, &usage);
        }
    }
}

static void read_frozen(struct engine *engine)
{
    bool frozen = box_frozen(&engine->box);
    int64_t now = berth_tick_ms();

    if (frozen && !engine->frozen)
        engine->frozen_since_ms = now;
    if (!frozen && engine->frozen)
        engine->frozen_total_ms += now - engine->frozen_since_ms;
    engine->frozen = frozen;
}

static void on_cgroup_event(void *arg, uint32_t events)
{
    struct engine *engine = arg;
    char buf[256];

    (void)events;
    if (pread(engine->events_fd, buf, sizeof buf, 0) < 0 && errno == ENODEV)
        engine->events_watch = berth_loop_unwatch(engine->events_watch); /* it is removed */
    read_frozen(engine);
}

bool engine_paused(const struct engine *engine)
{
    return box_frozen(&engine->box);
}

int64_t engine_frozen_ms(const struct engine *engine)
{
    return engine->frozen_total_ms +
           (engine->frozen ? berth_tick_ms() - engine->frozen_since_ms : 0);
}

void engine_touch(struct engine *engine)
{
    int64_t now = berth_tick_ms();

    if (now - engine->touched_tick_ms < TOUCH_MS || engine->env->active_fd < 0)
        return;
    engine->touched_tick_ms = now;
    futimens(engine->env->active_fd, NULL);
}

/* Nothing idles away under a running command, but it is no call that came for it; and while it
 * is frozen it does not run. */
static void touch_running(const struct engine *engine)
{
    const struct timespec times[] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_NOW}};

    if (engine->env->active_fd >= 0)
        futimens(engine->env->active_fd, times);
}

int engine_take_tree(struct engine *engine, struct tree *ret)
{
    if (engine->n_spare == 0)
        return tree_make(engine->env->box_fd, ++engine->n_trees, ret);
    *ret = engine->spare[--engine->n_spare];
    return 0;
}

/* The first command, for which somebody has waited since the create, finds one. Where this
 * fails that command makes its own, and says why it cannot. */
static void make_first_tree(struct engine *engine)
{
    struct tree tree;

    if (tree_make(engine->env->box_fd, ++engine->n_trees, &tree) == 0)
        engine_give_tree(engine, &tree);
}

void engine_give_tree(struct engine *engine, struct tree *tree)
{
    if (engine->n_spare < ENGINE_SPARES && tree_recycle(tree)) {
        engine->spare[engine->n_spare++] = *tree;
        return;
    }
    tree_close(tree);
    if (!tree_remove(tree->box_fd, tree->name))
        engine_linger(engine, tree->name);
}

static void sweep_lingering(struct engine *engine)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < engine->n_lingering; i++) {
        if (!tree_remove(engine->env->box_fd, engine->lingering[i]))
            memmove(engine->lingering[kept++], engine->lingering[i], TREE_NAME_SIZE);
    }
    engine->n_lingering = kept;
}

void engine_linger(struct engine *engine, const char *name)
{
    engine_need_tick(engine);
    if (engine->n_lingering == engine->cap_lingering) {
        unsigned cap = engine->cap_lingering ? 2 * engine->cap_lingering : 16;
        void *bigger = realloc(engine->lingering, cap * sizeof *engine->lingering);

        if (!bigger)
            return; /* it goes with the sandbox */
        engine->lingering = bigger;
        engine->cap_lingering = cap;
    }
    memcpy(engine->lingering[engine->n_lingering++], name, TREE_NAME_SIZE);
}

static void on_tick(void *arg)
{
    struct engine *engine = arg;

    engine->tick = NULL;
    if (engine->n_running > 0 && !engine_paused(engine))
        touch_running(engine);
    sweep_lingering(engine);
    drop_old(engine, engine->limits->kept_ms);
    engine_make_room(engine);
    for (struct exec *exec = engine->oldest; exec; exec = exec->next) {
        output_watch(exec);
        exec_tidy(exec);
    }
    if (engine->oldest || engine->n_lingering > 0)
        engine_need_tick(engine);
}

void engine_need_tick(struct engine *engine)
{
    if (!engine->tick)
        engine->tick = berth_loop_timer(engine->loop, engine->limits->tick_ms, on_tick, engine);
}

static enum berth_code fail_errno(struct berth_error *err, const char *what)
{
    return berth_fail(err, berth_reason_from_errno(errno), "%s: %s", what, strerror(errno));
}

/* SIGCHLD by descriptor; SIGPIPE never. */
static enum berth_code take_signals(struct engine *engine, struct berth_error *err)
{
    struct sigaction action;
    sigset_t set;

    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&engine->ignored);
    for (int i = 1; i < NSIG; i++) {
        if (sigaction(i, NULL, &action) == 0 && action.sa_handler == SIG_IGN)
            sigaddset(&engine->ignored, i);
    }
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return fail_errno(err, "block SIGCHLD");
    engine->sigchld_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (engine->sigchld_fd < 0)
        return fail_errno(err, "signalfd");
    return berth_loop_watch(engine->loop, engine->sigchld_fd, EPOLLIN, on_sigchld, engine,
                            &engine->sigchld_watch, err);
}

static enum berth_code watch_box(struct engine *engine, struct berth_error *err)
{
    if (engine->env->box_fd < 0)
        return BERTH_OK;
    engine->events_fd = openat(engine->env->box_fd, "cgroup.events", O_RDONLY | O_CLOEXEC);
    if (engine->events_fd < 0)
        return fail_errno(err, "cgroup.events");
    read_frozen(engine);
    return berth_loop_watch(engine->loop, engine->events_fd, EPOLLPRI, on_cgroup_event, engine,
                            &engine->events_watch, err);
}

enum berth_code engine_new(const struct supervisor_env *env, const struct engine_limits *limits,
                           void (*ended)(void *arg), void *arg, struct engine **ret,
                           struct berth_error *err)
{
    struct engine *engine = calloc(1, sizeof *engine);
    enum berth_code code;

    if (!engine)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    engine->env = env;
    engine->limits = limits;
    engine->loop = env->loop;
    engine->ended = ended;
    engine->ended_arg = arg;
    engine->sigchld_fd = engine->events_fd = engine->own_pids_fd = -1;
    box_files_open(env->box_fd, env->memory_fd, env->memory_is_v2, &engine->box);
    engine->oom_told = box_oom_kills(&engine->box);
    engine->null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    engine->own_pids_fd = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
    if (engine->null_fd < 0)
        code = fail_errno(err, "/dev/null");
    else if (engine->own_pids_fd < 0)
        code = fail_errno(err, "our process namespace");
    else
        code = take_signals(engine, err);
    if (code == BERTH_OK)
        code = watch_box(engine, err);
    if (code == BERTH_OK)
        make_first_tree(engine);
    if (code) {
        engine_free(engine);
        return code;
    }
    *ret = engine;
    return BERTH_OK;
}

struct engine *engine_free(struct engine *engine)
{
    if (!engine)
        return NULL;
    while (engine->oldest)
        engine_remove(engine, engine->oldest);
    berth_timer_cancel(engine->tick);
    berth_loop_unwatch(engine->sigchld_watch);
    berth_loop_unwatch(engine->events_watch);
    closep(&engine->null_fd);
    closep(&engine->own_pids_fd);
    closep(&engine->sigchld_fd);
    closep(&engine->events_fd);
    box_files_close(&engine->box);
    while (engine->n_spare > 0) {
        struct tree *tree = &engine->spare[--engine->n_spare];

        tree_close(tree);
        (void)tree_remove(tree->box_fd, tree->name);
    }
    free(engine->lingering);
    free(engine);
    return NULL;
}
