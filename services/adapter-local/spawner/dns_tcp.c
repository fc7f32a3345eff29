/* dns_tcp.c - the forwarder's TCP half: a connection is passed on to an upstream as it is. */
#include <errno.h>
#include <sys/epoll.h>

#include "services/adapter-local/spawner/dns_impl.h"

enum { BUFFER_SIZE = 4096 };

/* Bytes on their way in one direction. */
struct pipe_buffer {
    uint8_t data[BUFFER_SIZE];
    size_t start, end;
    bool closed; /* the source sends no more */
    bool passed; /* and the sink was told */
};

struct end {
    int fd;
    struct berth_watch *watch;
};

struct dns_stream {
    struct dns *dns;
    unsigned slot, n_tried;
    struct end client, upstream;
    struct pipe_buffer to_upstream, to_client;
    struct berth_timer *timer;
};

static void end_close(struct end *end)
{
    end->watch = berth_loop_unwatch(end->watch);
    if (end->fd >= 0)
        close(end->fd);
    end->fd = -1;
}

void dns_stream_close(struct dns_stream *stream)
{
    end_close(&stream->client);
    end_close(&stream->upstream);
    berth_timer_cancel(stream->timer);
    stream->dns->streams[stream->slot] = NULL;
    free(stream);
}

/* False: the connection is broken. */
static bool fill(struct pipe_buffer *buffer, int fd)
{
    ssize_t n;

    if (buffer->closed || buffer->start != buffer->end)
        return true;
    n = recv(fd, buffer->data, sizeof buffer->data, 0);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    buffer->closed = n == 0;
    buffer->start = 0;
    buffer->end = (size_t)n;
    return true;
}

static bool drain(struct pipe_buffer *buffer, int fd)
{
    while (buffer->start != buffer->end) {
        ssize_t n =
            send(fd, buffer->data + buffer->start, buffer->end - buffer->start, MSG_NOSIGNAL);

        if (n < 0)
            return errno == EAGAIN || errno == EINTR;
        buffer->start += (size_t)n;
    }
    if (buffer->closed && !buffer->passed) {
        buffer->passed = true;
        shutdown(fd, SHUT_WR);
    }
    return true;
}

static uint32_t wanted(const struct pipe_buffer *in, const struct pipe_buffer *out)
{
    return (in->start == in->end && !in->closed ? EPOLLIN : 0U) |
           (out->start != out->end ? EPOLLOUT : 0U);
}

static void on_event(void *arg, uint32_t events);
static void on_connect(void *arg, uint32_t events);

static void move(struct dns_stream *s)
{
    bool ok = fill(&s->to_upstream, s->client.fd) && drain(&s->to_upstream, s->upstream.fd) &&
              fill(&s->to_client, s->upstream.fd) && drain(&s->to_client, s->client.fd);

    if (!ok || (s->to_client.closed && s->to_client.start == s->to_client.end)) {
        dns_stream_close(s);
        return;
    }
    berth_watch_set(s->client.watch, wanted(&s->to_upstream, &s->to_client));
    berth_watch_set(s->upstream.watch, wanted(&s->to_client, &s->to_upstream));
}

static void on_event(void *arg, uint32_t events)
{
    struct dns_stream *s = arg;

    if (events & EPOLLERR ||
        (events & EPOLLHUP && s->to_upstream.closed && s->to_client.closed))
        dns_stream_close(s);
    else
        move(s);
}

/* Connect to the next upstream; nothing was sent to an earlier one. */
static void dial(struct dns_stream *s)
{
    while (s->n_tried < dns_refresh(s->dns)) {
        const struct dns_upstream *to = &s->dns->upstreams[s->n_tried++];

        end_close(&s->upstream);
        s->upstream.fd =
            socket(to->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (s->upstream.fd < 0 ||
            (connect(s->upstream.fd, (const struct sockaddr *)&to->address, to->size) < 0 &&
             errno != EINPROGRESS))
            continue;
        if (berth_loop_watch(s->dns->loop, s->upstream.fd, EPOLLOUT, on_connect, s,
                             &s->upstream.watch, NULL) == BERTH_OK)
            return;
    }
    dns_stream_close(s);
}

static void on_connect(void *arg, uint32_t events)
{
    struct dns_stream *s = arg;
    socklen_t size = sizeof(int);
    int failure = 0;

    (void)events;
    if (getsockopt(s->upstream.fd, SOL_SOCKET, SO_ERROR, &failure, &size) < 0 || failure) {
        dial(s);
        return;
    }
    s->upstream.watch = berth_loop_unwatch(s->upstream.watch);
    if (berth_loop_watch(s->dns->loop, s->upstream.fd, EPOLLIN, on_event, s, &s->upstream.watch,
                         NULL) ||
        berth_loop_watch(s->dns->loop, s->client.fd, EPOLLIN, on_event, s, &s->client.watch,
                         NULL))
        dns_stream_close(s);
}

static void on_timeout(void *arg)
{
    struct dns_stream *s = arg;

    s->timer = NULL;
    dns_stream_close(s);
}

void dns_tcp_accept(void *arg, uint32_t events)
{
    struct dns *dns = arg;
    struct dns_stream *s;
    unsigned slot = 0;
    int fd = accept4(dns->tcp_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    (void)events;
    if (fd < 0)
        return;
    while (slot < DNS_STREAMS_MAX && dns->streams[slot])
        slot++;
    s = slot == DNS_STREAMS_MAX ? NULL : calloc(1, sizeof *s);
    if (!s) {
        close(fd);
        return;
    }
    s->dns = dns;
    s->slot = slot;
    s->client.fd = fd;
    s->upstream.fd = -1;
    dns->streams[slot] = s;
    s->timer = berth_loop_timer(dns->loop, DNS_STREAM_MS, on_timeout, s);
    if (s->timer)
        dial(s);
    else
        dns_stream_close(s);
}
