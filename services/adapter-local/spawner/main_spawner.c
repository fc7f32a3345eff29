/* berth-local-spawner - does what needs fork for berth-adapter-local, which has threads and
 * never forks. Started by it, speaks with it on descriptor 3 (message.h), ends with it;
 * sandboxes do not.
 *
 * The first message is "open" with the settings; then each operation runs in a child of its
 * own, which answers by itself, so nothing here waits for anything but messages and children.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "common/json/json.h"
#include "common/time/time.h"
#include "services/adapter-local/spawner/io.h"
#include "services/adapter-local/spawner/message.h"
#include "services/adapter-local/spawner/nft.h"
#include "services/adapter-local/spawner/spawner.h"

enum {
    SOCKET_FD = 3,
    SOCKET_BUFFER = 8 << 20,
    CHILDREN_MAX = 64,
    LATER_NICE = 10, /* of what an operation leaves to be done behind its answer */
    N_OWN_FDS = 3,   /* socket, signals, rules; then the supervisors' */
    SWEEP_EVERY_MS = 60000,
    SWEEP_SOON_MS = 300, /* after something died: others may die along with it */
    MEASURE_SHARE = 10,  /* of a processor at most one part in so many is spent on measuring */
    MEASURE_MAX_MS = 24 * 3600 * 1000,
    ENDED_KEEP_DEFAULT_MS = 24 * 3600 * 1000,
    DEADLINE_DEFAULT_MS = 60000,
    DEADLINE_MAX_MS = 24 * 3600 * 1000
};

static const struct {
    const char *name;
    operation_fn fn;
} operations[] = {
    {"create", spawner_create},
    {"connect", spawner_connect},
    {"pause", spawner_pause},
    {"set_timeout", spawner_set_timeout},
    {"set_network", spawner_set_network},
    {"delete", spawner_delete},
    {"snapshot", spawner_snapshot},
    {"delete_snapshot", spawner_delete_snapshot},
    {"build_template", spawner_build_template},
    {"delete_template", spawner_delete_template},
};

struct loop {
    struct spawner spawner;
    bool opened;
    int signal_fd, rules_fd;
    struct child {
        pid_t pid;  /* 0: free */
        int64_t id; /* of the operation it answers */
        bool cancel_with_us;
    } children[CHILDREN_MAX];
    pid_t sweeper;         /* 0: none */
    int64_t next_sweep_ms; /* tick */
    pid_t measurer;        /* 0: none */
    int64_t measure_every_ms, measure_begin_ms, next_measure_ms;
    /* Supervisors an earlier spawner started are not our children: watched by pidfd. */
    int *watched;
    size_t n_watched;
    char *buf; /* of MESSAGE_MAX */
};

static bool respond(int fd, const struct operation *op, enum berth_code code,
                    const struct berth_error *err)
{
    BERTH_AUTO(json_decref) json_t *answer = message_result(code, err);

    if (!answer || json_object_set_new(answer, "id", json_integer(op->id)) < 0)
        return false;
    if (!code && op->answer && json_object_update(answer, op->answer) < 0)
        return false;
    return message_send(fd, answer, NULL) == BERTH_OK;
}

bool spawner_progress(const struct spawner *spawner, const struct operation *op,
                      const char *step, unsigned percent, const char *message)
{
    BERTH_AUTO(json_decref)
    json_t *line = json_pack("{s:I, s:s, s:i, s:s}", "id", (json_int_t)op->id, "step", step,
                             "percent", (int)percent, "message", message);

    /* NULL: a program's output that is not UTF-8. Not worth more than a missing line. */
    return !line || message_send(spawner->socket_fd, line, NULL) == BERTH_OK;
}

/* Every operation copies this process's page tables: what libnftables left of its two
 * megabytes goes back. */
static void stay_small(void)
{
    malloc_trim(0);
}

/* --------------------------------------------------------------------- open */

static enum berth_code open_spawner(struct loop *loop, const json_t *request,
                                    struct berth_error *err)
{
    struct spawner *s = &loop->spawner;
    char state_dir[STORE_PATH_MAX], template_dirs[4096];
    enum berth_code code;

    code = berth_json_get_str(request, "state_dir", state_dir, sizeof state_dir, "", err);
    if (!code)
        code = berth_json_get_str(request, "template_dirs", template_dirs, sizeof template_dirs,
                                  "", err);
    if (!code)
        code = berth_json_get_str(request, "network_cidr", s->cidr_text, sizeof s->cidr_text,
                                  "", err);
    if (!code)
        code = berth_json_get_str(request, "resolvers", s->resolvers, sizeof s->resolvers, "",
                                  err);
    if (!code)
        code = berth_json_get_str(request, "slots_dir", s->slots_dir, sizeof s->slots_dir, "",
                                  err);
    if (!code)
        code = berth_json_get_str(request, "supervisor", s->supervisor_path,
                                  sizeof s->supervisor_path, "", err);
    if (!code)
        code = berth_json_get_int(request, "measure_every_ms", 1, MEASURE_MAX_MS,
                                  MEASURE_MAX_MS, &loop->measure_every_ms, err);
    if (!code)
        code = berth_json_get_int(request, "ended_keep_ms", 0, INT64_MAX, ENDED_KEEP_DEFAULT_MS,
                                  &s->ended_keep_ms, err);
    if (!code)
        code = net_parse_cidr(s->cidr_text, &s->cidr, err);
    if (!code && (s->slots_dir[0] != '/' || s->supervisor_path[0] != '/'))
        code = berth_fail(err, BERTH_REASON_FIELD_INVALID,
                          "slots_dir and supervisor must be absolute paths");
    if (!code)
        code = store_open(state_dir, template_dirs, &s->store, err);
    if (code)
        return code;
    store_cgroup_name(&s->store, s->cgroup_name);
    store_link_name(&s->store, -1, s->prefix);
    snprintf(s->table, sizeof s->table, "berth_%s", s->store.tag);
    code = cgroup_discover_self(&s->host, err);
    if (!code)
        code = spawner_probe(s, err);
    if (!code)
        code = host_prepare_forwarding(s, err);
    if (!code)
        code = host_install_rules(s, err);
    return code;
}

/* Supervisors that live already. */
static void watch_living(struct loop *loop)
{
    struct store *store = &loop->spawner.store;
    char **ids = NULL;
    size_t n = 0;

    if (store_list(store->sandboxes_fd, &ids, &n, NULL))
        return;
    loop->watched = calloc(n + 1, sizeof *loop->watched);
    for (size_t i = 0; loop->watched && i < n; i++) {
        struct record record;

        if (record_load(store, ids[i], &record, NULL))
            continue;
        if (record_alive(store, &record)) {
            int fd = (int)syscall(SYS_pidfd_open, record.supervisor_pid, 0);

            if (fd >= 0)
                loop->watched[loop->n_watched++] = fd;
        }
        record_deinit(&record);
    }
    store_list_free(ids, n);
}

static void handle_open(struct loop *loop, struct operation *op)
{
    struct berth_error err = {0};
    enum berth_code code = loop->opened
                               ? berth_fail(&err, BERTH_REASON_INTERNAL_BUG, "opened twice")
                               : open_spawner(loop, op->request, &err);

    if (!code) {
        loop->opened = true;
        loop->next_measure_ms = berth_tick_ms() + loop->measure_every_ms;
        loop->rules_fd = nft_watch();
        watch_living(loop);
        op->answer = json_pack("{s:s}", "uuid", loop->spawner.store.uuid);
    }
    (void)respond(SOCKET_FD, op, code, &err);
    json_decref(op->answer);
    op->answer = NULL;
    stay_small();
}

/* --------------------------------------------------------------- operations */

static void on_cancel(int signal_number)
{
    (void)signal_number;
    io_cancelled = 1;
}

/* In the child: nothing of the parent's loop is used any more. */
static void become_worker(struct loop *loop, const char *name)
{
    sigset_t none;

    /* Without SA_RESTART: io_run() wakes up. */
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = on_cancel}, NULL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    close(loop->signal_fd);
    if (loop->rules_fd >= 0)
        close(loop->rules_fd);
    for (size_t i = 0; i < loop->n_watched; i++)
        close(loop->watched[i]);
    prctl(PR_SET_NAME, name, 0, 0, 0);
}

static _Noreturn void run_operation(struct loop *loop, struct operation *op, operation_fn fn)
{
    struct berth_error err = {0};
    enum berth_code code;

    become_worker(loop, "berth-op");
    op->answer = json_object();
    code = op->answer ? fn(&loop->spawner, op, &err)
                      : berth_fail(&err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    (void)respond(SOCKET_FD, op, code, &err);
    /* The adapter need not wait for the rest, nor hang on because of it. */
    close(SOCKET_FD);
    if (op->afterwards) {
        /* What is removed is waited for by nobody, what is made in its place may be. */
        (void)setpriority(PRIO_PROCESS, 0, LATER_NICE);
        op->afterwards(&loop->spawner);
    }
    _exit(0);
}

/* No answer to this; the operation itself answers CANCELLED, if it was in time. */
static void handle_cancel(struct loop *loop, const json_t *request)
{
    int64_t id;

    if (berth_json_get_int(request, "cancel_id", 1, INT64_MAX, 1, &id, NULL))
        return;
    for (size_t i = 0; i < CHILDREN_MAX; i++)
        if (loop->children[i].pid && loop->children[i].id == id)
            kill(loop->children[i].pid, SIGTERM);
}

static void handle(struct loop *loop, json_t *request)
{
    struct operation op = {.request = request};
    struct berth_error err = {0};
    operation_fn fn = NULL;
    size_t slot = 0;
    int64_t left_ms;
    char name[32];
    pid_t pid;

    if (berth_json_get_int(request, "id", 0, INT64_MAX, 0, &op.id, &err) ||
        berth_json_get_str(request, "op", name, sizeof name, "", &err) ||
        berth_json_get_int(request, "deadline_ms", 0, DEADLINE_MAX_MS, DEADLINE_DEFAULT_MS,
                           &left_ms, &err)) {
        (void)respond(SOCKET_FD, &op, err.code, &err);
        return;
    }
    op.deadline_ms = berth_tick_ms() + left_ms;
    if (strcmp(name, "open") == 0) {
        handle_open(loop, &op);
        return;
    }
    if (strcmp(name, "cancel") == 0) {
        handle_cancel(loop, request);
        return;
    }
    for (size_t i = 0; loop->opened && i < BERTH_COUNT(operations); i++)
        if (strcmp(name, operations[i].name) == 0)
            fn = operations[i].fn;
    while (slot < CHILDREN_MAX && loop->children[slot].pid)
        slot++;
    if (!fn || slot == CHILDREN_MAX) {
        (void)respond(SOCKET_FD, &op,
                      fn ? berth_fail(&err, BERTH_REASON_OVERLOADED, NULL)
                         : berth_fail(&err, BERTH_REASON_INTERNAL_BUG, "unknown operation"),
                      &err);
        return;
    }
    pid = fork();
    if (pid == 0)
        run_operation(loop, &op, fn);
    if (pid < 0)
        (void)respond(SOCKET_FD, &op, io_fail(&err, "fork"), &err);
    else
        loop->children[slot] = (struct child){
            .pid = pid, .id = op.id, .cancel_with_us = fn == spawner_build_template};
}

/* --------------------------------------------------------------------- loop */

/* Every delete ends a supervisor, too; one sweep is enough for many. */
static void sweep_soon(struct loop *loop)
{
    int64_t soon_ms = berth_tick_ms() + SWEEP_SOON_MS;

    if (soon_ms < loop->next_sweep_ms)
        loop->next_sweep_ms = soon_ms;
}

static void start_sweep(struct loop *loop)
{
    if (loop->sweeper || !loop->opened)
        return;
    loop->next_sweep_ms = berth_tick_ms() + SWEEP_EVERY_MS;
    loop->sweeper = fork();
    if (loop->sweeper == 0) {
        become_worker(loop, "berth-sweep");
        close(SOCKET_FD);
        spawner_sweep(&loop->spawner);
        _exit(0);
    }
    if (loop->sweeper < 0)
        loop->sweeper = 0;
}

/* It yields to everybody, and does not outlive us. */
static void start_measuring(struct loop *loop)
{
    enum { WHO_PROCESS = 1, CLASS_IDLE = 3 << 13, LAST = 19 };

    loop->measure_begin_ms = berth_tick_ms();
    loop->next_measure_ms = loop->measure_begin_ms + loop->measure_every_ms;
    loop->measurer = fork();
    if (loop->measurer == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        become_worker(loop, "berth-measure");
        close(SOCKET_FD);
        (void)setpriority(PRIO_PROCESS, 0, LAST);
        (void)syscall(SYS_ioprio_set, WHO_PROCESS, 0, CLASS_IDLE);
        spawner_measure(&loop->spawner);
        _exit(0);
    }
    if (loop->measurer < 0)
        loop->measurer = 0;
}

/* What cost much is not begun anew at once. By the time it used: behind everybody else on a
 * busy machine it may take any time, and costs nobody anything. */
static void measured(struct loop *loop, const struct rusage *usage)
{
    int64_t now_ms = berth_tick_ms(), took_ms = now_ms - loop->measure_begin_ms;
    int64_t used_ms = (int64_t)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1000 +
                      (usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) / 1000;
    int64_t rest_ms = MEASURE_SHARE * used_ms > took_ms ? MEASURE_SHARE * used_ms : took_ms;

    loop->measurer = 0;
    if (loop->next_measure_ms < now_ms + rest_ms)
        loop->next_measure_ms = now_ms + rest_ms;
}

static void reap(struct loop *loop)
{
    struct signalfd_siginfo info;
    struct rusage usage;
    pid_t pid;
    int status;

    while (read(loop->signal_fd, &info, sizeof info) > 0)
        ;
    while ((pid = wait4(-1, &status, WNOHANG, &usage)) > 0) {
        bool known = pid == loop->sweeper || pid == loop->measurer;

        if (pid == loop->sweeper)
            loop->sweeper = 0;
        if (pid == loop->measurer)
            measured(loop, &usage);
        for (size_t i = 0; i < CHILDREN_MAX && !known; i++)
            if (loop->children[i].pid == pid) {
                loop->children[i].pid = 0;
                /* One that was killed may have left something half done. */
                if (!WIFEXITED(status))
                    sweep_soon(loop);
                known = true;
            }
        /* A supervisor: we are the subreaper of what our children start. */
        if (!known)
            sweep_soon(loop);
    }
}

/* False: the adapter is gone. */
static bool receive(struct loop *loop)
{
    BERTH_AUTO(json_decref) json_t *request = NULL;
    struct berth_error err = {0};

    if (message_receive(SOCKET_FD, loop->buf, &request, &err)) {
        fprintf(stderr, "berth-local-spawner: %s\n", err.text);
        return err.reason != BERTH_REASON_BACKEND_UNAVAILABLE;
    }
    if (!request)
        return false;
    handle(loop, request);
    return true;
}

static void wait_once(struct loop *loop, struct pollfd *polls)
{
    int64_t now_ms = berth_tick_ms();
    /* The end of the one that is at work wakes us. */
    int64_t left =
        loop->opened && !loop->sweeper ? loop->next_sweep_ms - now_ms : SWEEP_EVERY_MS;

    if (loop->opened && !loop->measurer && loop->next_measure_ms - now_ms < left)
        left = loop->next_measure_ms - now_ms;
    polls[0] = (struct pollfd){.fd = SOCKET_FD, .events = POLLIN};
    polls[1] = (struct pollfd){.fd = loop->signal_fd, .events = POLLIN};
    polls[2] = (struct pollfd){.fd = loop->rules_fd, .events = POLLIN};
    for (size_t i = 0; i < loop->n_watched; i++)
        polls[N_OWN_FDS + i] = (struct pollfd){.fd = loop->watched[i], .events = POLLIN};
    (void)poll(polls, N_OWN_FDS + loop->n_watched, left < 0 ? 0 : (int)left);
    for (size_t i = loop->n_watched; i > 0; i--) {
        if (!polls[N_OWN_FDS - 1 + i].revents)
            continue;
        sweep_soon(loop);
        close(loop->watched[i - 1]);
        loop->watched[i - 1] = loop->watched[--loop->n_watched];
    }
}

/* Somebody flushed them all: sandboxes must not be without for long. */
static void restore_rules(struct loop *loop)
{
    struct berth_error err = {0};

    if (host_install_rules(&loop->spawner, &err))
        fprintf(stderr, "berth-local-spawner: packet rules are gone: %s\n", err.text);
    stay_small();
}

static int run(struct loop *loop)
{
    struct pollfd *polls = NULL;
    size_t room = 0;

    for (;;) {
        if (room < loop->n_watched + N_OWN_FDS || !polls) {
            struct pollfd *more =
                realloc(polls, (room = loop->n_watched + N_OWN_FDS) * sizeof *polls);

            if (!more) {
                free(polls);
                return 1;
            }
            polls = more;
        }
        wait_once(loop, polls);
        if (polls[1].revents)
            reap(loop);
        if (polls[2].revents && nft_watch_lost(loop->rules_fd, loop->spawner.table))
            restore_rules(loop);
        if (polls[0].revents && !receive(loop))
            break;
        if (loop->opened && berth_tick_ms() >= loop->next_sweep_ms)
            start_sweep(loop);
        if (loop->opened && !loop->measurer && berth_tick_ms() >= loop->next_measure_ms)
            start_measuring(loop);
    }
    free(polls);
    /* Sandboxes in the making are finished, a template nobody waits for is not. */
    for (size_t i = 0; i < CHILDREN_MAX; i++)
        if (loop->children[i].pid && loop->children[i].cancel_with_us)
            kill(loop->children[i].pid, SIGTERM);
    return 0;
}

int main(int argc, char **argv)
{
    static struct loop loop = {.spawner = {.socket_fd = SOCKET_FD}, .rules_fd = -1};
    int size = SOCKET_BUFFER, result;
    sigset_t set;

    (void)argv;
    if (argc != 1 || fcntl(SOCKET_FD, F_SETFD, FD_CLOEXEC) < 0) {
        fprintf(stderr, "usage: started by berth-adapter-local, its socket on descriptor 3\n");
        return 2;
    }
    umask(077);
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    loop.signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    (void)setsockopt(SOCKET_FD, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size);
    loop.buf = malloc(MESSAGE_MAX);
    if (loop.signal_fd < 0 || !loop.buf)
        return 1;
    result = run(&loop);
    free(loop.buf);
    free(loop.watched);
    if (loop.opened) {
        host_leave(&loop.spawner);
        store_close(&loop.spawner.store);
    }
    return result;
}
