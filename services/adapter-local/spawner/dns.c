#include "services/adapter-local/spawner/dns.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/epoll.h>

#include "common/ids/ids.h"
#include "services/adapter-local/spawner/dns_impl.h"
#include "services/adapter-local/spawner/io.h"

enum {
    HEADER_SIZE = 12,
    QUERY_SIZE_MAX = 1232, /* what fits everywhere; longer questions come by TCP */
    ANSWER_SIZE_MAX = 4096,
    BATCH = 32, /* datagrams per turn of the loop */
    PORT = 53,
    RESOLV_CONF_MAX = 16384
};

/* One question on its way. */
struct dns_query {
    struct dns *dns;
    unsigned slot, n_tried;
    int fd;
    struct berth_watch *watch;
    struct berth_timer *timer;
    struct sockaddr_in client;
    uint8_t client_id[2], id[2]; /* the client's, and ours towards the upstream */
    uint8_t data[QUERY_SIZE_MAX];
    size_t size;
};

/* ---------------------------------------------------------------- upstreams */

/* "1.2.3.4", "1.2.3.4:5353", "::1", "[::1]:5353", "fe80::1%eth0" (refused: needs a scope). */
static bool parse_upstream(const char *text, size_t len, struct dns_upstream *ret)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)&ret->address;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&ret->address;
    char host[64];
    unsigned port = PORT;
    char *colon, end;

    if (len == 0 || len >= sizeof host)
        return false;
    snprintf(host, sizeof host, "%.*s", (int)len, text);
    memset(&ret->address, 0, sizeof ret->address);
    colon = strrchr(host, ':');
    if (host[0] == '[') {
        char *bracket = strchr(host, ']');

        if (!bracket || (bracket[1] && sscanf(bracket + 1, ":%5u%c", &port, &end) != 1))
            return false;
        *bracket = 0;
        memmove(host, host + 1, strlen(host));
    } else if (colon && strchr(host, ':') == colon) {
        if (sscanf(colon + 1, "%5u%c", &port, &end) != 1)
            return false;
        *colon = 0;
    }
    if (port == 0 || port > UINT16_MAX)
        return false;
    if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)port);
        ret->size = sizeof *v4;
        return true;
    }
    if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons((uint16_t)port);
        ret->size = sizeof *v6;
        return true;
    }
    return false;
}

static void add_upstream(struct dns *dns, const char *text, size_t len)
{
    if (dns->n_upstreams < DNS_UPSTREAMS_MAX &&
        parse_upstream(text, len, &dns->upstreams[dns->n_upstreams]))
        dns->n_upstreams++;
}

static void read_resolv_conf(struct dns *dns)
{
    BERTH_AUTO(free) char *text = malloc(RESOLV_CONF_MAX);
    int fd = open(dns->resolv_conf, O_RDONLY | O_CLOEXEC); /* may be a link to elsewhere */
    ssize_t n = fd < 0 || !text ? -1 : read(fd, text, RESOLV_CONF_MAX - 1);

    if (fd >= 0)
        close(fd);
    if (n < 0)
        return; /* being replaced, perhaps: keep what we have */
    text[n] = 0;
    dns->n_upstreams = 0;
    for (char *line = text; *line;) {
        size_t len = strcspn(line, "\n");

        if (len > 11 && strncmp(line, "nameserver", 10) == 0 && strchr(" \t", line[10])) {
            char *value = line + 10 + strspn(line + 10, " \t");

            add_upstream(dns, value, strcspn(value, " \t\r\n#;"));
        }
        line += len + (line[len] == '\n');
    }
}

unsigned dns_refresh(struct dns *dns)
{
    struct stat st;

    if (dns->fixed || stat(dns->resolv_conf, &st) < 0)
        return dns->n_upstreams;
    if (st.st_ino != dns->read_ino || st.st_mtim.tv_sec != dns->read_mtime.tv_sec ||
        st.st_mtim.tv_nsec != dns->read_mtime.tv_nsec) {
        dns->read_ino = st.st_ino;
        dns->read_mtime = st.st_mtim;
        read_resolv_conf(dns);
    }
    return dns->n_upstreams;
}

/* ------------------------------------------------------------------ queries */

static void end_try(struct dns_query *q)
{
    q->watch = berth_loop_unwatch(q->watch);
    q->timer = berth_timer_cancel(q->timer);
    if (q->fd >= 0)
        close(q->fd);
    q->fd = -1;
}

static void end_query(struct dns_query *q)
{
    end_try(q);
    q->dns->queries[q->slot] = NULL;
    free(q);
}

static void answer(struct dns_query *q, uint8_t *data, size_t size)
{
    memcpy(data, q->client_id, sizeof q->client_id);
    (void)!sendto(q->dns->udp_fd, data, size, MSG_DONTWAIT, (struct sockaddr *)&q->client,
                  sizeof q->client);
}

static void answer_failure(struct dns_query *q)
{
    q->data[2] = (q->data[2] & 0x79) | 0x80; /* an answer; opcode and recursion wish as asked */
    q->data[3] = 0x82;                       /* recursion is available; server failure */
    answer(q, q->data, q->size);
}

static void on_reply(void *arg, uint32_t events);
static void on_timeout(void *arg);

/* Ask the next upstream, or give up. */
static void try_next(struct dns_query *q)
{
    struct dns *dns = q->dns;
    unsigned n = dns_refresh(dns);

    end_try(q);
    while (q->n_tried < n) {
        const struct dns_upstream *to = &dns->upstreams[q->n_tried++];

        q->fd = socket(to->address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        berth_random(q->id, sizeof q->id);
        memcpy(q->data, q->id, sizeof q->id);
        /* Connected: only this upstream's datagrams come in, and its absence shows as an error.
         */
        if (q->fd >= 0 &&
            connect(q->fd, (const struct sockaddr *)&to->address, to->size) == 0 &&
            send(q->fd, q->data, q->size, 0) == (ssize_t)q->size &&
            berth_loop_watch(dns->loop, q->fd, EPOLLIN, on_reply, q, &q->watch, NULL) ==
                BERTH_OK) {
            q->timer = berth_loop_timer(dns->loop, DNS_TRY_MS, on_timeout, q);
            if (q->timer)
                return;
        }
        end_try(q);
    }
    answer_failure(q);
    end_query(q);
}

static void on_timeout(void *arg)
{
    struct dns_query *q = arg;

    q->timer = NULL;
    try_next(q);
}

static void on_reply(void *arg, uint32_t events)
{
    struct dns_query *q = arg;
    uint8_t data[ANSWER_SIZE_MAX];
    ssize_t n = recv(q->fd, data, sizeof data, 0);

    (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n < 0) {
        try_next(q);
        return;
    }
    /* Somebody guesses: wait on for the real one. */
    if (n < HEADER_SIZE || memcmp(data, q->id, sizeof q->id) != 0 || !(data[2] & 0x80))
        return;
    answer(q, data, (size_t)n);
    end_query(q);
}

static void take_query(struct dns *dns, const uint8_t *data, size_t size,
                       const struct sockaddr_in *client)
{
    struct dns_query *q;
    unsigned slot = 0;

    if (size < HEADER_SIZE || size > QUERY_SIZE_MAX || data[2] & 0x80)
        return;
    while (slot < DNS_QUERIES_MAX && dns->queries[slot])
        slot++;
    if (slot == DNS_QUERIES_MAX)
        return;
    q = calloc(1, sizeof *q);
    if (!q)
        return;
    q->dns = dns;
    q->slot = slot;
    q->fd = -1;
    q->client = *client;
    memcpy(q->client_id, data, sizeof q->client_id);
    memcpy(q->data, data, size);
    q->size = size;
    dns->queries[slot] = q;
    try_next(q);
}

static void on_query(void *arg, uint32_t events)
{
    struct dns *dns = arg;
    uint8_t data[QUERY_SIZE_MAX + 1];

    (void)events;
    for (int i = 0; i < BATCH; i++) {
        struct sockaddr_in client;
        socklen_t size = sizeof client;
        ssize_t n = recvfrom(dns->udp_fd, data, sizeof data, MSG_DONTWAIT,
                             (struct sockaddr *)&client, &size);

        if (n < 0)
            return;
        take_query(dns, data, (size_t)n, &client);
    }
}

/* -------------------------------------------------------------------- life */

static int bind_socket(int type, const struct in_addr *address, int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int on = 1;

    to.sin_addr = *address;
    if (fd < 0)
        return -1;
    /* FREEBIND: with egress closed the address is not there, and it comes and goes. */
    if (setsockopt(fd, SOL_IP, IP_FREEBIND, &on, sizeof on) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
        bind(fd, (struct sockaddr *)&to, sizeof to) < 0 ||
        (type == SOCK_STREAM && listen(fd, DNS_STREAMS_MAX) < 0)) {
        int number = errno;

        close(fd);
        errno = number;
        return -1;
    }
    return fd;
}

static void start(void *arg)
{
    struct dns *dns = arg;

    /* Without memory for a watch, names do not resolve; the sandbox itself lives on. */
    (void)!berth_loop_watch(dns->loop, dns->udp_fd, EPOLLIN, on_query, dns, &dns->udp_watch,
                            NULL);
    (void)!berth_loop_watch(dns->loop, dns->tcp_fd, EPOLLIN, dns_tcp_accept, dns,
                            &dns->tcp_watch, NULL);
}

enum berth_code dns_new(struct berth_loop *loop, const char *address, int port,
                        const char *upstreams, const char *resolv_conf, struct dns **ret,
                        struct berth_error *err)
{
    struct dns *dns = calloc(1, sizeof *dns);
    struct sockaddr_in bound;
    socklen_t size = sizeof bound;
    struct in_addr in;

    if (!dns)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    dns->loop = loop;
    dns->resolv_conf = resolv_conf;
    dns->fixed = *upstreams != 0;
    dns->udp_fd = dns->tcp_fd = -1;
    while (*upstreams) {
        size_t len = strcspn(upstreams, " ");

        add_upstream(dns, upstreams, len);
        upstreams += len + strspn(upstreams + len, " ");
    }
    if (inet_pton(AF_INET, address, &in) != 1) {
        dns_free(dns);
        return berth_fail(err, BERTH_REASON_INTERNAL_BUG, "name forwarder: bad address");
    }
    dns->udp_fd = bind_socket(SOCK_DGRAM, &in, port);
    if (dns->udp_fd >= 0 && getsockname(dns->udp_fd, (struct sockaddr *)&bound, &size) == 0) {
        dns->port = ntohs(bound.sin_port);
        dns->tcp_fd = bind_socket(SOCK_STREAM, &in, dns->port);
    }
    if (dns->tcp_fd < 0) {
        enum berth_code code =
            io_fail(err, "bind the name forwarder to %s port %d", address, port);

        dns_free(dns);
        return code;
    }
    berth_loop_post(loop, start, dns);
    *ret = dns;
    return BERTH_OK;
}

int dns_port(const struct dns *dns)
{
    return dns->port;
}

struct dns *dns_free(struct dns *dns)
{
    if (!dns)
        return NULL;
    for (size_t i = 0; i < DNS_QUERIES_MAX; i++)
        if (dns->queries[i])
            end_query(dns->queries[i]);
    for (size_t i = 0; i < DNS_STREAMS_MAX; i++)
        if (dns->streams[i])
            dns_stream_close(dns->streams[i]);
    berth_loop_unwatch(dns->udp_watch);
    berth_loop_unwatch(dns->tcp_watch);
    if (dns->udp_fd >= 0)
        close(dns->udp_fd);
    if (dns->tcp_fd >= 0)
        close(dns->tcp_fd);
    free(dns);
    return NULL;
}
