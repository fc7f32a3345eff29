#include "services/adapter-local/spawn_client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "common/json/json.h"
#include "common/log/log.h"
#include "common/time/time.h"
#include "services/adapter-local/spawner/message.h"

enum {
    SOCKET_BUFFER = 8 << 20,
    OPEN_MS = 60000,   /* for the probe, and for starting again */
    GRACE_MS = 2000,   /* beyond an operation's own deadline */
    BACK_OFF_MS = 200, /* doubled after each start that fails */
    BACK_OFF_MAX_MS = 5000,
    STOP_MS = 5000,
    LINES_MAX = 64 /* of progress kept for a slow caller; older ones are dropped */
};

/* An operation somebody waits for. On the waiting thread's stack, linked while it waits. */
struct pending {
    struct pending *next;
    int64_t id, deadline_ms;
    json_t *request;
    bool sent;      /* to the spawner that lives now */
    bool ever_sent; /* to any: it may have been done, or be going on */
    pthread_cond_t changed;
    json_t *lines[LINES_MAX]; /* progress, oldest first */
    size_t n_lines;
    json_t *answer; /* NULL: not yet */
};

struct spawn_client {
    char *program;
    json_t *open;
    char uuid[40];
    int stop_fd; /* eventfd: the thread is to end */
    pthread_t thread;

    pthread_mutex_t lock; /* of all below */
    int socket_fd;        /* -1: no spawner */
    bool ready;
    bool failing;  /* the last try to start it failed: nobody waits for the next */
    char why[256]; /* of not being ready */
    int64_t next_id;
    unsigned restarts;
    struct pending *pending;

    /* The thread's own. */
    pid_t pid;
    int pid_fd;
    char *buf;
};

/* -------------------------------------------------------------------- process */

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static int spawn(const char *program, int fd, pid_t *ret_pid)
{
    char *const argv[] = {(char *)"berth-local-spawner", NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none, all;
    int result;

    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, fd, 3);
    posix_spawnattr_init(&attr);
    /* A group of its own: a Ctrl-C meant for us must not end it before us. */
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                        POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    result = posix_spawn(ret_pid, program, &actions, &attr, argv, environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    return result;
}

/* Receive one message of the new spawner, which has nothing to say but its answer to "open". */
static enum berth_code await_open(struct spawn_client *client, int fd, json_t **ret,
                                  struct berth_error *err)
{
    struct pollfd polls[] = {{.fd = fd, .events = POLLIN},
                             {.fd = client->pid_fd, .events = POLLIN}};
    int n;

    do
        n = poll(polls, 2, OPEN_MS);
    while (n < 0 && errno == EINTR);
    if (n == 0)
        return berth_fail(err, BERTH_REASON_BACKEND_TIMEOUT,
                          "the spawner did not answer in %d s", OPEN_MS / 1000);
    if (!(polls[0].revents & POLLIN))
        return berth_fail(err, BERTH_REASON_BACKEND_UNAVAILABLE, "the spawner ended at once");
    return message_receive(fd, client->buf, ret, err);
}

static enum berth_code open_store(struct spawn_client *client, int fd, struct berth_error *err)
{
    BERTH_AUTO(json_decref) json_t *answer = NULL;
    enum berth_code code = message_send(fd, client->open, err);
    char uuid[sizeof client->uuid];

    if (!code)
        code = await_open(client, fd, &answer, err);
    if (!code && !answer)
        code = berth_fail(err, BERTH_REASON_BACKEND_UNAVAILABLE, "the spawner ended at once");
    if (!code)
        code = message_check(answer, err);
    if (!code)
        code = berth_json_get_str(answer, "uuid", uuid, sizeof uuid, "", err);
    if (!code && client->uuid[0] && strcmp(client->uuid, uuid) != 0)
        code = berth_fail(err, BERTH_REASON_INTERNAL_BUG, "the store is another one now");
    if (!code)
        memcpy(client->uuid, uuid, sizeof uuid);
    return code;
}

static void reap(struct spawn_client *client, int signal_number)
{
    if (client->pid <= 0)
        return;
    if (signal_number)
        kill(client->pid, signal_number);
    while (waitpid(client->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    client->pid = 0;
    close_fd(&client->pid_fd);
}

static enum berth_code start(struct spawn_client *client, int *ret_fd, struct berth_error *err)
{
    int size = SOCKET_BUFFER, fds[2], result;
    enum berth_code code;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
        return berth_fail(err, BERTH_REASON_BACKEND_UNAVAILABLE, "socketpair: %s",
                          strerror(errno));
    (void)setsockopt(fds[0], SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size);
    result = spawn(client->program, fds[1], &client->pid);
    close(fds[1]);
    if (result) {
        client->pid = 0;
        close(fds[0]);
        return berth_fail(err, BERTH_REASON_BACKEND_UNAVAILABLE, "start %s: %s",
                          client->program, strerror(result));
    }
    client->pid_fd = (int)syscall(SYS_pidfd_open, client->pid, 0);
    code = open_store(client, fds[0], err);
    if (code) {
        close(fds[0]);
        reap(client, SIGKILL);
        return code;
    }
    *ret_fd = fds[0];
    return BERTH_OK;
}

/* ------------------------------------------------------------------- messages */

/* With the lock held. Sending cannot block for long: the spawner only forks. */
static bool send_pending(struct spawn_client *client, struct pending *pending)
{
    int64_t left_ms = pending->deadline_ms - berth_tick_ms();
    struct berth_error err = {0};

    pending->sent = true;
    if (json_object_set_new(pending->request, "deadline_ms",
                            json_integer(left_ms > 0 ? left_ms : 0)) < 0)
        return false;
    if (message_send(client->socket_fd, pending->request, &err) == BERTH_OK) {
        pending->ever_sent = true;
        return true;
    }
    if (err.reason == BERTH_REASON_BACKEND_UNAVAILABLE)
        pending->sent = false; /* the next spawner gets it */
    else
        pending->answer = message_result(err.code, &err);
    pthread_cond_signal(&pending->changed);
    return false;
}

static struct pending *find(struct spawn_client *client, const json_t *message)
{
    int64_t id;

    if (berth_json_get_int(message, "id", 1, INT64_MAX, 1, &id, NULL))
        return NULL;
    for (struct pending *at = client->pending; at; at = at->next)
        if (at->id == id)
            return at;
    return NULL; /* nobody waits any more */
}

/* message: taken. */
static void deliver(struct spawn_client *client, json_t *message)
{
    struct pending *pending;

    pthread_mutex_lock(&client->lock);
    pending = find(client, message);
    if (pending && json_object_get(message, "ok") && !pending->answer) {
        pending->answer = json_incref(message);
        pthread_cond_signal(&pending->changed);
    } else if (pending && json_object_get(message, "step")) {
        if (pending->n_lines == LINES_MAX) {
            json_decref(pending->lines[0]);
            memmove(pending->lines, pending->lines + 1,
                    (LINES_MAX - 1) * sizeof pending->lines[0]);
            pending->n_lines--;
        }
        pending->lines[pending->n_lines++] = json_incref(message);
        pthread_cond_signal(&pending->changed);
    }
    pthread_mutex_unlock(&client->lock);
    json_decref(message);
}

/* ----------------------------------------------------------------- the thread */

static void set_down(struct spawn_client *client, const char *why, bool failing)
{
    pthread_mutex_lock(&client->lock);
    client->ready = false;
    client->failing = failing;
    close_fd(&client->socket_fd);
    snprintf(client->why, sizeof client->why, "%.255s", why);
    for (struct pending *at = client->pending; at; at = at->next) {
        at->sent = false;
        pthread_cond_signal(&at->changed);
    }
    pthread_mutex_unlock(&client->lock);
}

static void set_up(struct spawn_client *client, int fd)
{
    pthread_mutex_lock(&client->lock);
    client->socket_fd = fd;
    client->ready = true;
    client->failing = false;
    client->restarts++;
    for (struct pending *at = client->pending; at; at = at->next)
        if (!at->sent && !at->answer && !send_pending(client, at))
            break;
    pthread_mutex_unlock(&client->lock);
}

/* True: stop was asked for. */
static bool stopped_within(struct spawn_client *client, int64_t wait_ms)
{
    struct pollfd polled = {.fd = client->stop_fd, .events = POLLIN};

    return poll(&polled, 1, (int)wait_ms) > 0;
}

/* False: stop was asked for. */
static bool restart(struct spawn_client *client)
{
    int64_t wait_ms = BACK_OFF_MS;

    for (bool again = false;; again = true) {
        struct berth_error err = {0};
        int fd;

        if (start(client, &fd, &err) == BERTH_OK) {
            berth_warn("the spawner had ended, started it again", "store", client->uuid);
            set_up(client, fd);
            return true;
        }
        berth_log_error("the spawner cannot be started, trying again", "why", err.text);
        set_down(client, err.text, again);
        if (stopped_within(client, wait_ms))
            return false;
        wait_ms = wait_ms * 2 > BACK_OFF_MAX_MS ? BACK_OFF_MAX_MS : wait_ms * 2;
    }
}

static void *run(void *arg)
{
    struct spawn_client *client = arg;

    for (;;) {
        struct pollfd polls[] = {{.fd = client->socket_fd, .events = POLLIN},
                                 {.fd = client->pid_fd, .events = POLLIN},
                                 {.fd = client->stop_fd, .events = POLLIN}};
        struct berth_error err = {0};
        json_t *message = NULL;

        if (poll(polls, 3, -1) < 0 && errno != EINTR)
            return NULL;
        if (polls[2].revents)
            return NULL;
        if (polls[0].revents & POLLIN) {
            if (message_receive(client->socket_fd, client->buf, &message, &err))
                berth_log_error("a message of the spawner was dropped", "why", err.text);
            if (message) {
                deliver(client, message);
                continue;
            }
        }
        /* Its children hold the socket, too: its own end is what counts. */
        if (polls[1].revents || polls[0].revents & (POLLHUP | POLLERR)) {
            set_down(client, "the spawner has ended", false);
            reap(client, SIGKILL);
            if (!restart(client))
                return NULL;
        }
    }
}

/* ----------------------------------------------------------------------- life */

enum berth_code spawn_client_new(const char *program, json_t *open, struct spawn_client **ret,
                                 struct berth_error *err)
{
    struct spawn_client *client = calloc(1, sizeof *client);
    enum berth_code code;

    if (!client) {
        json_decref(open);
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    client->open = open;
    client->socket_fd = client->pid_fd = -1;
    client->next_id = 1;
    client->program = strdup(program);
    client->buf = malloc(MESSAGE_MAX);
    client->stop_fd = eventfd(0, EFD_CLOEXEC);
    pthread_mutex_init(&client->lock, NULL);
    if (!client->program || !client->buf || client->stop_fd < 0 ||
        json_object_set_new(open, "op", json_string("open")) < 0 ||
        json_object_set_new(open, "id", json_integer(0)) < 0)
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    else
        code = start(client, &client->socket_fd, err);
    if (!code && pthread_create(&client->thread, NULL, run, client) != 0) {
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, "start a thread");
    } else if (!code) {
        client->ready = true;
        *ret = client;
        return BERTH_OK;
    }
    close_fd(&client->socket_fd);
    reap(client, SIGKILL);
    client->ready = false;
    close_fd(&client->stop_fd);
    pthread_mutex_destroy(&client->lock);
    json_decref(client->open);
    free(client->program);
    free(client->buf);
    free(client);
    return code;
}

/* It ends by itself when it sees us gone; one that does not is killed. */
static void await_end(struct spawn_client *client)
{
    struct pollfd polled = {.fd = client->pid_fd, .events = POLLIN};

    if (client->pid > 0)
        reap(client, poll(&polled, 1, STOP_MS) > 0 ? 0 : SIGKILL);
}

struct spawn_client *spawn_client_free(struct spawn_client *client)
{
    uint64_t one = 1;

    if (!client)
        return NULL;
    (void)!write(client->stop_fd, &one, sizeof one);
    pthread_join(client->thread, NULL);
    if (client->socket_fd >= 0)
        shutdown(client->socket_fd, SHUT_RDWR);
    close_fd(&client->socket_fd);
    await_end(client);
    close_fd(&client->stop_fd);
    pthread_mutex_destroy(&client->lock);
    json_decref(client->open);
    free(client->program);
    free(client->buf);
    free(client);
    return NULL;
}

const char *spawn_client_store(const struct spawn_client *client)
{
    return client->uuid;
}

unsigned spawn_client_restarts(struct spawn_client *client)
{
    unsigned n;

    pthread_mutex_lock(&client->lock);
    n = client->restarts;
    pthread_mutex_unlock(&client->lock);
    return n;
}

enum berth_code spawn_client_ready(struct spawn_client *client, struct berth_error *err)
{
    enum berth_code code = BERTH_OK;

    pthread_mutex_lock(&client->lock);
    if (!client->ready)
        code = berth_fail(err, BERTH_REASON_BACKEND_UNAVAILABLE, "%s", client->why);
    pthread_mutex_unlock(&client->lock);
    return code;
}

/* ---------------------------------------------------------------------- calls */

/* With the lock held; lets go of it while the caller looks at a line. False: cancel. */
static bool show_lines(struct spawn_client *client, struct pending *pending,
                       spawn_progress_fn progress, void *arg)
{
    bool go_on = true;

    while (pending->n_lines > 0) {
        json_t *line = pending->lines[0];
        char step[64] = "", message[512] = "";
        int64_t percent = 0;

        pending->n_lines--;
        memmove(pending->lines, pending->lines + 1, pending->n_lines * sizeof line);
        pthread_mutex_unlock(&client->lock);
        if (go_on && progress &&
            !berth_json_get_str(line, "step", step, sizeof step, "", NULL) &&
            !berth_json_get_int(line, "percent", 0, 100, 0, &percent, NULL) &&
            !berth_json_get_str(line, "message", message, sizeof message, "", NULL))
            go_on = progress(arg, step, (unsigned)percent, message);
        json_decref(line);
        pthread_mutex_lock(&client->lock);
    }
    return go_on;
}

static void wait_until(struct spawn_client *client, struct pending *pending, int64_t until_ms)
{
    struct timespec until = {.tv_sec = until_ms / 1000, .tv_nsec = until_ms % 1000 * 1000000};

    (void)pthread_cond_timedwait(&pending->changed, &client->lock, &until);
}

static void cancel(struct spawn_client *client, const struct pending *pending)
{
    BERTH_AUTO(json_decref)
    json_t *message = json_pack("{s:i, s:s, s:I}", "id", 0, "op", "cancel", "cancel_id",
                                (json_int_t)pending->id);

    if (message && client->socket_fd >= 0)
        (void)!message_send(client->socket_fd, message, NULL);
}

static void unlink_pending(struct spawn_client *client, struct pending *pending)
{
    struct pending **at = &client->pending;

    while (*at && *at != pending)
        at = &(*at)->next;
    if (*at)
        *at = pending->next;
}

/* With the lock held: until there is an answer, or no more time. */
static void await(struct spawn_client *client, struct pending *pending,
                  spawn_progress_fn progress, void *arg)
{
    bool cancelled = false;

    while (!pending->answer && !client->failing &&
           berth_tick_ms() < pending->deadline_ms + GRACE_MS) {
        if (pending->n_lines == 0)
            wait_until(client, pending, pending->deadline_ms + GRACE_MS);
        if (!show_lines(client, pending, progress, arg) && !cancelled) {
            cancelled = true;
            cancel(client, pending);
        }
    }
}

enum berth_code spawn_client_call(struct spawn_client *client, const char *op, json_t *request,
                                  int64_t deadline_ms, spawn_progress_fn progress, void *arg,
                                  json_t **ret_answer, struct berth_error *err)
{
    struct pending pending = {.deadline_ms = deadline_ms, .request = request};
    char why[sizeof client->why];
    pthread_condattr_t attr;
    enum berth_code code;

    if (!request || json_object_set_new(request, "op", json_string(op)) < 0) {
        json_decref(request);
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&pending.changed, &attr);
    pthread_condattr_destroy(&attr);

    pthread_mutex_lock(&client->lock);
    pending.id = client->next_id++;
    if (json_object_set_new(request, "id", json_integer(pending.id)) == 0) {
        pending.next = client->pending;
        /* Taken out again below. */
        /* cppcheck-suppress autoVariables */
        client->pending = &pending;
        /* Where there is no spawner just now, the next one gets it. */
        if (client->socket_fd >= 0)
            (void)send_pending(client, &pending);
        await(client, &pending, progress, arg);
        unlink_pending(client, &pending);
    }
    memcpy(why, client->why, sizeof why);
    pthread_mutex_unlock(&client->lock);

    if (pending.answer)
        code = message_check(pending.answer, err);
    else if (pending.sent)
        code = berth_fail(err, BERTH_REASON_BACKEND_TIMEOUT, "%s took too long", op);
    else if (pending.ever_sent)
        code = berth_fail(err, BERTH_REASON_OUTCOME_UNKNOWN,
                          "the local backend's spawner ended during %s: %s", op, why);
    else
        code = berth_fail(err, BERTH_REASON_BACKEND_UNAVAILABLE,
                          "the local backend has no spawner yet: %s", why);
    if (!code && ret_answer)
        *ret_answer = json_incref(pending.answer);
    for (size_t i = 0; i < pending.n_lines; i++)
        json_decref(pending.lines[i]);
    json_decref(pending.answer);
    json_decref(request);
    pthread_cond_destroy(&pending.changed);
    return code;
}
