/* feed.c - what a command is fed: its first stdin, then SendInput calls one after another. A
 * call is answered when the command's pipe has taken all of it, so the pipe is the only buffer.
 * Offsets count from the first byte of the first stdin. */
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/stat.h>

#include "services/adapter-local/spawner/engine.h"

enum { USER_ID = 1000 };

static void close_pipe(struct exec_feed *feed)
{
    feed->watch = berth_loop_unwatch(feed->watch);
    closep(&feed->fd);
    feed->fd = -1;
}

static void drop_initial(struct exec *exec)
{
    exec->engine->input_bytes -= exec->feed.initial_size;
    free(exec->feed.initial);
    exec->feed.initial = NULL;
    exec->feed.initial_size = 0;
}

int feed_open(struct exec *exec, const struct wire_start *start, int *ret_child_fd)
{
    struct engine *engine = exec->engine;
    struct exec_feed *feed = &exec->feed;
    unsigned owner = engine->env->uid_base + (exec->root ? 0 : USER_ID);
    int fds[2];

    feed->keep_open = start->keep_stdin_open;
    if (start->stdin_size == 0 && !start->keep_stdin_open) {
        *ret_child_fd = engine->null_fd;
        return 0;
    }
    if (engine->input_bytes + start->stdin_size > engine->limits->input_bytes)
        return ENOBUFS;
    if (start->stdin_size > 0) {
        feed->initial = malloc(start->stdin_size);
        if (!feed->initial)
            return ENOMEM;
        memcpy(feed->initial, start->stdin_data, start->stdin_size);
        feed->initial_size = start->stdin_size;
        engine->input_bytes += start->stdin_size;
    }
    if (pipe2(fds, O_CLOEXEC) < 0)
        return errno;
    *ret_child_fd = fds[0];
    feed->fd = fds[1];
    if (fchown(fds[0], owner, owner) < 0 || fcntl(fds[1], F_SETFL, O_NONBLOCK) < 0)
        return errno;
    return 0;
}

static void unlink_request(struct feed_request *request)
{
    struct exec *exec = request->exec;
    struct exec_feed *feed = &exec->feed;
    struct feed_request **link;

    for (link = &feed->first; *link != request; link = &(*link)->next) {
    }
    *link = request->next;
    if (feed->last == &request->next)
        feed->last = link;
    feed->n_waiting--;
    exec->engine->input_bytes -= request->size;
    free(request->data);
    request->data = NULL;
    request->exec = NULL;
}

static void end_request(struct feed_request *request, enum berth_code code,
                        const struct berth_error *err)
{
    uint64_t fed = request->exec->feed.fed;

    unlink_request(request);
    request->finished(request, code, fed, err);
}

static void fail_all(struct exec *exec, enum berth_reason reason, const char *text)
{
    struct berth_error err = {0};
    enum berth_code code = berth_fail(&err, reason, "%s", text);

    while (exec->feed.first)
        end_request(exec->feed.first, code, &err);
}

enum pump { PUMP_DONE, PUMP_FULL, PUMP_BROKEN };

/* Write data[*done..size) as far as the pipe takes it. */
static enum pump push(struct exec_feed *feed, const uint8_t *data, size_t size, size_t *done)
{
    while (*done < size) {
        ssize_t n = write(feed->fd, data + *done, size - *done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return PUMP_FULL;
        if (n < 0)
            return PUMP_BROKEN;
        *done += (size_t)n;
        feed->fed += (uint64_t)n;
    }
    return PUMP_DONE;
}

/* The first waiting request. PUMP_DONE: it was answered. */
static enum pump pump_request(struct exec *exec, struct feed_request *request)
{
    struct exec_feed *feed = &exec->feed;
    struct berth_error err = {0};
    enum berth_code code;
    enum pump got;

    if (!request->begun) {
        request->begun = true;
        if (!request->unchecked && request->offset > feed->fed) {
            /* What was to come before it was given up. */
            code = berth_fail_field(&err, "offset", "at most %llu, where the input is",
                                    (unsigned long long)feed->fed);
            end_request(request, code, &err);
            return PUMP_DONE;
        }
        if (!request->unchecked) {
            uint64_t repeated = feed->fed - request->offset;

            request->done = repeated < request->size ? (size_t)repeated : request->size;
        }
    }
    if (request->done < request->size && feed->fd < 0) {
        code = berth_fail(&err, BERTH_REASON_STDIN_CLOSED, "the input ended at offset %llu",
                          (unsigned long long)feed->fed);
        end_request(request, code, &err);
        return PUMP_DONE;
    }
    got = push(feed, request->data, request->size, &request->done);
    if (got == PUMP_DONE) {
        if (request->end_of_file)
            close_pipe(feed);
        end_request(request, BERTH_OK, NULL);
    }
    return got;
}

static void on_room(void *arg, uint32_t events)
{
    (void)events;
    feed_pump(arg);
}

void feed_pump(struct exec *exec)
{
    struct exec_feed *feed = &exec->feed;
    enum pump got = PUMP_DONE;

    if (exec->state == EXEC_SPAWNING)
        return;
    if (feed->initial) {
        size_t done = (size_t)feed->fed;

        got = push(feed, feed->initial, feed->initial_size, &done);
    }
    if (got == PUMP_DONE && feed->initial)
        drop_initial(exec);
    if (got == PUMP_DONE && !feed->keep_open)
        close_pipe(feed);
    while (got == PUMP_DONE && feed->first)
        got = pump_request(exec, feed->first);
    if (got == PUMP_BROKEN) {
        feed->broken = true;
        close_pipe(feed);
        drop_initial(exec);
        fail_all(exec, BERTH_REASON_STDIN_CLOSED, "the command has closed its input");
    } else if (got == PUMP_FULL && !feed->watch) {
        if (berth_loop_watch(exec->engine->loop, feed->fd, EPOLLOUT, on_room, exec,
                             &feed->watch, NULL) != BERTH_OK)
            fail_all(exec, BERTH_REASON_OUT_OF_MEMORY, "out of memory");
    } else if (got == PUMP_DONE) {
        feed->watch = berth_loop_unwatch(feed->watch);
    }
}

/* Where the input will be when all that waits has been fed. */
static uint64_t planned_end(const struct exec_feed *feed)
{
    uint64_t end = feed->initial ? feed->initial_size : feed->fed;

    for (const struct feed_request *r = feed->first; r; r = r->next) {
        uint64_t last = r->unchecked ? end + r->size - r->done : r->offset + r->size;

        if (last > end)
            end = last;
    }
    return end;
}

enum berth_code feed_add(struct exec *exec, const struct wire_input *input,
                         struct feed_request *request, struct berth_error *err)
{
    struct engine *engine = exec->engine;
    struct exec_feed *feed = &exec->feed;
    bool all_repeated = !input->unchecked && input->offset + input->size <= feed->fed;

    if (exec->state >= EXEC_ENDING && !all_repeated)
        return berth_fail(err, BERTH_REASON_PROCESS_NOT_FOUND, "the command has ended");
    if (!input->unchecked && input->offset > planned_end(feed))
        return berth_fail_field(err, "offset", "at most %llu, where the input is",
                                (unsigned long long)planned_end(feed));
    if (feed->broken && !all_repeated)
        return berth_fail(err, BERTH_REASON_STDIN_CLOSED, "the command has closed its input");
    if (feed->n_waiting >= engine->limits->inputs_max ||
        engine->input_bytes + input->size > engine->limits->input_bytes)
        return berth_fail(err, BERTH_REASON_OVERLOADED, "too much input waits for commands");
    request->data = NULL;
    if (input->size > 0) {
        request->data = malloc(input->size);
        if (!request->data)
            return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
        memcpy(request->data, input->data, input->size);
    }
    engine->input_bytes += input->size;
    request->exec = exec;
    request->next = NULL;
    request->size = input->size;
    request->offset = input->offset;
    request->unchecked = input->unchecked;
    request->end_of_file = input->end_of_file;
    request->begun = false;
    request->done = 0;
    *feed->last = request;
    feed->last = &request->next;
    feed->n_waiting++;
    feed_pump(exec);
    return BERTH_OK;
}

void feed_cancel(struct feed_request *request)
{
    struct exec *exec = request->exec;

    if (!exec)
        return;
    unlink_request(request);
    feed_pump(exec); /* the next one may have its turn */
}

void feed_close(struct exec *exec)
{
    close_pipe(&exec->feed);
    if (exec->feed.initial)
        drop_initial(exec);
    fail_all(exec, BERTH_REASON_PROCESS_NOT_FOUND, "the command has ended");
}
