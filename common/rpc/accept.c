#include "common/rpc/accept.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "common/log/log.h"
#include "common/rpc/frames.h"
#include "common/rpc/tls_accept.h"
#include "common/time/time.h"

enum {
    LISTENERS_MAX = 8,
    BACKLOG = 512,
    ACCEPTS_PER_WAKE = 64,
    IDLE_MIN_MS = 1000,     /* before a silent connection may have to make room */
    PAUSE_MS = 50,          /* after an accept that failed for want of something */
    SWEEP_INTERVAL_MS = 50, /* between looks for connections that have gone */
    PRIVATE_MODE = 0600,
    PUBLIC_MODE = 0666,
    ADDRESS_SIZE = 128,
};

struct listener {
    struct rpc_acceptor *acceptor;
    int fd;
    bool tls;
    struct berth_watch *watch;
    struct berth_timer *pause;
    char path[sizeof((struct sockaddr_un *)0)->sun_path]; /* "" for TCP */
    ino_t inode;                                          /* of path */
};

struct connection { /* as handed to the core, which does not tell us when it closes it */
    int fd;
    ino_t inode;
};

struct rpc_acceptor {
    struct berth_loop *loop;
    grpc_server *server;
    struct rpc_tls_door *door;
    grpc_server_credentials *credentials; /* of connections without TLS */
    bool private_sockets;
    unsigned *peer_uids;
    size_t n_peer_uids;
    atomic_uint *uids; /* of peers' connections, max_connections of them, by descriptor */
    int spare_fd; /* given up to be able to accept, and so to close, when there are no others */
    struct listener listeners[LISTENERS_MAX];
    size_t n_listeners;
    atomic_uint_fast64_t n_refused, n_evicted;

    pthread_mutex_t mutex; /* all below */
    struct connection *connections;
    unsigned n_connections, max_connections;
    int64_t swept_tick_ms;
};

static enum berth_code fail_errno(struct berth_error *err, const char *address)
{
    return berth_fail(err, berth_reason_from_errno(errno), "listen on %s: %s", address,
                      strerror(errno));
}

static int open_spare(void)
{
    return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

enum berth_code rpc_acceptor_new(const struct rpc_acceptor_options *options,
                                 struct rpc_acceptor **ret, struct berth_error *err)
{
    struct rpc_acceptor *acceptor = calloc(1, sizeof *acceptor);

    if (!acceptor)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    acceptor->loop = options->loop;
    acceptor->server = options->server;
    acceptor->door = options->door;
    acceptor->private_sockets = options->private_sockets;
    acceptor->max_connections = options->max_connections;
    acceptor->n_peer_uids = options->n_peer_uids;
    acceptor->spare_fd = open_spare();
    pthread_mutex_init(&acceptor->mutex, NULL);
    acceptor->credentials = grpc_insecure_server_credentials_create();
    acceptor->connections = calloc(options->max_connections, sizeof(struct connection));
    acceptor->peer_uids = calloc(options->n_peer_uids + 1, sizeof(unsigned));
    acceptor->uids = calloc(options->max_connections, sizeof(atomic_uint));
    if (!acceptor->connections || !acceptor->peer_uids || !acceptor->uids) {
        rpc_acceptor_free(acceptor);
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    }
    if (options->n_peer_uids)
        memcpy(acceptor->peer_uids, options->peer_uids,
               options->n_peer_uids * sizeof(unsigned));
    *ret = acceptor;
    return BERTH_OK;
}

struct rpc_acceptor *rpc_acceptor_free(struct rpc_acceptor *acceptor)
{
    if (!acceptor)
        return NULL;
    rpc_acceptor_stop(acceptor); /* does nothing where that was done on the loop */
    closep(&acceptor->spare_fd);
    grpc_server_credentials_release(acceptor->credentials);
    pthread_mutex_destroy(&acceptor->mutex);
    free(acceptor->connections);
    free(acceptor->peer_uids);
    free(acceptor->uids);
    free(acceptor);
    return NULL;
}

/* ----------------------------------------------------------------- listening */

static void add_listener(struct rpc_acceptor *acceptor, int fd, const char *path, ino_t inode)
{
    struct listener *listener = &acceptor->listeners[acceptor->n_listeners++];

    *listener = (struct listener){.acceptor = acceptor, .fd = fd, .inode = inode};
    snprintf(listener->path, sizeof listener->path, "%s", path);
}

/* A stale socket file refuses connections; a live one accepts them (or its backlog is full). */
static bool somebody_listens(const struct sockaddr_un *address)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool listens;

    if (fd < 0)
        return false;
    listens =
        connect(fd, (const struct sockaddr *)address, sizeof *address) == 0 || errno == EAGAIN;
    close(fd);
    return listens;
}

/* Made under another name, with the right mode, then moved into place. */
static enum berth_code listen_unix(struct rpc_acceptor *acceptor, const char *path,
                                   struct berth_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX}, temporary = {.sun_family = AF_UNIX};
    struct stat info;
    int fd;

    if (snprintf(temporary.sun_path, sizeof temporary.sun_path, "%s.%d", path, (int)getpid()) >=
        (int)sizeof temporary.sun_path)
        return berth_fail(err, BERTH_REASON_FIELD_INVALID, "listen on unix:%s: path too long",
                          path);
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    if (lstat(path, &info) == 0 && !S_ISSOCK(info.st_mode))
        return berth_fail(err, BERTH_REASON_FIELD_INVALID, "listen on unix:%s: not a socket",
                          path);
    if (somebody_listens(&address))
        return berth_fail(err, BERTH_REASON_FIELD_INVALID,
                          "listen on unix:%s: somebody else listens there", path);

    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return fail_errno(err, path);
    (void)unlink(temporary.sun_path);
    if (bind(fd, (struct sockaddr *)&temporary, sizeof temporary) < 0 ||
        chmod(temporary.sun_path, acceptor->private_sockets ? PRIVATE_MODE : PUBLIC_MODE) < 0 ||
        lstat(temporary.sun_path, &info) < 0 || listen(fd, BACKLOG) < 0 ||
        rename(temporary.sun_path, path) < 0) {
        enum berth_code code = fail_errno(err, path);

        (void)unlink(temporary.sun_path);
        close(fd);
        return code;
    }
    add_listener(acceptor, fd, path, info.st_ino);
    return BERTH_OK;
}

/* "127.0.0.1:7400", "[::1]:0", "localhost:7400". False: neither. */
static bool parse_tcp(const char *text, struct sockaddr_storage *ret, socklen_t *ret_size)
{
    char host[ADDRESS_SIZE];
    const char *colon = strrchr(text, ':');
    size_t len = colon ? (size_t)(colon - text) : 0;
    struct sockaddr_in *v4 = (struct sockaddr_in *)ret;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret;
    unsigned long port;
    char *end;

    if (!colon || len == 0 || len >= sizeof host || colon[1] < '0' || colon[1] > '9')
        return false;
    port = strtoul(colon + 1, &end, 10);
    if (*end || port > UINT16_MAX)
        return false;
    memcpy(host, text, len);
    host[len] = 0;
    memset(ret, 0, sizeof *ret);
    if (host[0] == '[' && host[len - 1] == ']') {
        host[len - 1] = 0;
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons((uint16_t)port);
        *ret_size = sizeof *v6;
        return inet_pton(AF_INET6, host + 1, &v6->sin6_addr) == 1;
    }
    v4->sin_family = AF_INET;
    v4->sin_port = htons((uint16_t)port);
    *ret_size = sizeof *v4;
    return inet_pton(AF_INET, strcmp(host, "localhost") == 0 ? "127.0.0.1" : host,
                     &v4->sin_addr) == 1;
}

static enum berth_code listen_tcp(struct rpc_acceptor *acceptor, const char *text,
                                  int *ret_port, struct berth_error *err)
{
    struct sockaddr_storage address;
    socklen_t size;
    int fd, one = 1;

    if (!parse_tcp(text, &address, &size))
        return berth_fail(err, BERTH_REASON_FIELD_INVALID,
                          "listen on %s: expected <IP address>:<port> or unix:<path>", text);
    fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return fail_errno(err, text);
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (address.ss_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&address, size) < 0 || listen(fd, BACKLOG) < 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) < 0) {
        enum berth_code code = errno == EADDRINUSE
                                   ? berth_fail(err, BERTH_REASON_FIELD_INVALID,
                                                "listen on %s: %s", text, strerror(errno))
                                   : fail_errno(err, text);

        close(fd);
        return code;
    }
    add_listener(acceptor, fd, "", 0);
    if (ret_port)
        *ret_port =
            ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                                : ((struct sockaddr_in *)&address)->sin_port);
    return BERTH_OK;
}

enum berth_code rpc_acceptor_listen(struct rpc_acceptor *acceptor, const char *address,
                                    bool tls, int *ret_port, struct berth_error *err)
{
    enum berth_code code;

    if (acceptor->n_listeners == LISTENERS_MAX)
        return berth_fail(err, BERTH_REASON_FIELD_INVALID,
                          "listen on %s: more than %d addresses", address, LISTENERS_MAX);
    if (tls && !acceptor->door->tls)
        return berth_fail(err, BERTH_REASON_FIELD_INVALID,
                          "listen on %s: TLS needs a certificate", address);
    if (tls || strncmp(address, "unix:", 5) != 0) {
        code = listen_tcp(acceptor, address, ret_port, err);
        if (!code)
            acceptor->listeners[acceptor->n_listeners - 1].tls = tls;
        return code;
    }
    if (ret_port)
        *ret_port = 0;
    return listen_unix(acceptor, address + 5, err);
}

/* ---------------------------------------------------------------- connections */

static ino_t inode_of(int fd)
{
    struct stat info;

    return fstat(fd, &info) == 0 ? info.st_ino : 0;
}

/* With the mutex held: forget connections that the core has closed. */
static void sweep(struct rpc_acceptor *acceptor)
{
    unsigned n = 0;

    for (unsigned i = 0; i < acceptor->n_connections; i++)
        if (inode_of(acceptor->connections[i].fd) == acceptor->connections[i].inode)
            acceptor->connections[n++] = acceptor->connections[i];
    acceptor->n_connections = n;
    acceptor->swept_tick_ms = berth_tick_ms();
}

/* With the mutex held, at the cap: of the connections that have no call in progress, the one
 * that has been silent for longest makes room, so that those who do nothing cannot keep out
 * those who do. Its entry, or NULL: all are busy. */
static struct connection *evict(struct rpc_acceptor *acceptor)
{
    int64_t oldest_ms = berth_tick_ms() - IDLE_MIN_MS;
    struct connection *oldest = NULL;

    for (unsigned i = 0; i < acceptor->n_connections; i++) {
        int64_t since_ms = rpc_frames_idle_since_ms(acceptor->connections[i].fd);

        if (since_ms < oldest_ms) {
            oldest_ms = since_ms;
            oldest = &acceptor->connections[i];
        }
    }
    if (oldest && inode_of(oldest->fd) == oldest->inode) {
        (void)shutdown(oldest->fd, SHUT_RDWR); /* the core sees an end, and closes it */
        atomic_fetch_add(&acceptor->n_evicted, 1);
    }
    return oldest;
}

static bool note_connection(struct rpc_acceptor *acceptor, int fd)
{
    struct connection *entry = NULL;

    pthread_mutex_lock(&acceptor->mutex);
    if (acceptor->n_connections == acceptor->max_connections &&
        berth_tick_ms() - acceptor->swept_tick_ms >= SWEEP_INTERVAL_MS)
        sweep(acceptor);
    if (acceptor->n_connections < acceptor->max_connections)
        entry = &acceptor->connections[acceptor->n_connections++];
    else
        entry = evict(acceptor);
    if (entry)
        *entry = (struct connection){.fd = fd, .inode = inode_of(fd)};
    pthread_mutex_unlock(&acceptor->mutex);
    return entry != NULL;
}

unsigned rpc_acceptor_connections(struct rpc_acceptor *acceptor)
{
    unsigned n;

    pthread_mutex_lock(&acceptor->mutex);
    sweep(acceptor);
    n = acceptor->n_connections;
    pthread_mutex_unlock(&acceptor->mutex);
    return n;
}

uint64_t rpc_acceptor_refused(struct rpc_acceptor *acceptor)
{
    return atomic_load(&acceptor->n_refused);
}

uint64_t rpc_acceptor_evicted(struct rpc_acceptor *acceptor)
{
    return atomic_load(&acceptor->n_evicted);
}

static bool is_peer(const struct rpc_acceptor *acceptor, int fd, unsigned *ret_uid)
{
    struct ucred credentials;
    socklen_t size = sizeof credentials;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) < 0)
        return false;
    *ret_uid = credentials.uid;
    if (credentials.uid == 0 || credentials.uid == geteuid())
        return true;
    for (size_t i = 0; i < acceptor->n_peer_uids; i++)
        if (credentials.uid == acceptor->peer_uids[i])
            return true;
    return false;
}

/* Give the connection a number that says whether it is a peer's. -1: there is none left. */
static int place(int fd, bool peer)
{
    int placed;

    if ((fd >= rpc_peer_fd_base()) == peer)
        return fd;
    placed = fcntl(fd, F_DUPFD_CLOEXEC, peer ? rpc_peer_fd_base() : 0);
    close(fd);
    if (placed >= 0 && (placed >= rpc_peer_fd_base()) != peer) {
        close(placed);
        return -1;
    }
    return placed;
}

/* Peers' descriptors are the lowest free ones above the base: there are no more than slots, but
 * for a moment at the cap. */
static atomic_uint *uid_slot(struct rpc_acceptor *acceptor, int fd)
{
    int at = fd - rpc_peer_fd_base();

    return at >= 0 && (unsigned)at < acceptor->max_connections ? &acceptor->uids[at] : NULL;
}

unsigned rpc_acceptor_peer_uid(struct rpc_acceptor *acceptor, int fd)
{
    atomic_uint *slot = uid_slot(acceptor, fd);

    return slot ? atomic_load_explicit(slot, memory_order_relaxed) : UINT_MAX;
}

static void take_connection(struct listener *listener, int fd)
{
    struct rpc_acceptor *acceptor = listener->acceptor;
    atomic_uint *slot;
    unsigned uid = UINT_MAX;
    int one = 1;

    if (*listener->path == 0)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fd = place(fd, *listener->path != 0 && is_peer(acceptor, fd, &uid));
    if (fd < 0 || !note_connection(acceptor, fd)) {
        if (fd < 0) { /* no number left: for the next one to come */
            pthread_mutex_lock(&acceptor->mutex);
            (void)evict(acceptor);
            pthread_mutex_unlock(&acceptor->mutex);
        }
        closep(&fd);
        atomic_fetch_add(&acceptor->n_refused, 1);
        return;
    }
    rpc_frames_begin(fd, !listener->tls && fd < rpc_peer_fd_base());
    if (listener->tls) {
        rpc_tls_door_take(acceptor->door, fd);
        return;
    }
    slot = uid_slot(acceptor, fd);
    if (slot)
        atomic_store_explicit(slot, uid, memory_order_relaxed);
    grpc_server_add_channel_from_fd(acceptor->server, fd, acceptor->credentials);
}

static void resume(void *arg)
{
    struct listener *listener = arg;

    listener->pause = NULL;
    berth_watch_set(listener->watch, EPOLLIN);
}

static void pause_accepting(struct listener *listener)
{
    if (listener->pause)
        return;
    listener->pause = berth_loop_timer(listener->acceptor->loop, PAUSE_MS, resume, listener);
    if (listener->pause)
        berth_watch_set(listener->watch, 0);
}

/* Out of descriptors: close the spare one, accept with it, hang up. False: that failed, too. */
static bool shed(struct listener *listener)
{
    struct rpc_acceptor *acceptor = listener->acceptor;
    int fd;

    if (acceptor->spare_fd < 0)
        acceptor->spare_fd = open_spare();
    if (acceptor->spare_fd < 0)
        return false;
    close(acceptor->spare_fd);
    fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0) {
        close(fd);
        atomic_fetch_add(&acceptor->n_refused, 1);
    }
    acceptor->spare_fd = open_spare();
    return fd >= 0;
}

static void on_incoming(void *arg, uint32_t events)
{
    struct listener *listener = arg;

    (void)events;
    for (int i = 0; i < ACCEPTS_PER_WAKE; i++) {
        int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd >= 0) {
            take_connection(listener, fd);
            continue;
        }
        if (errno == EAGAIN)
            return;
        if (errno == EMFILE && shed(listener))
            continue;
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            pause_accepting(listener);
            return;
        }
        /* else: the connection broke before it was accepted */
    }
}

enum berth_code rpc_acceptor_start(struct rpc_acceptor *acceptor, struct berth_error *err)
{
    for (size_t i = 0; i < acceptor->n_listeners; i++) {
        struct listener *listener = &acceptor->listeners[i];
        enum berth_code code = berth_loop_watch(acceptor->loop, listener->fd, EPOLLIN,
                                                on_incoming, listener, &listener->watch, err);

        if (code)
            return code;
    }
    return BERTH_OK;
}

void rpc_acceptor_stop(struct rpc_acceptor *acceptor)
{
    for (size_t i = 0; i < acceptor->n_listeners; i++) {
        struct listener *listener = &acceptor->listeners[i];
        struct stat info;

        listener->watch = berth_loop_unwatch(listener->watch);
        listener->pause = berth_timer_cancel(listener->pause);
        if (*listener->path && lstat(listener->path, &info) == 0 &&
            info.st_ino == listener->inode)
            (void)unlink(listener->path);
        close(listener->fd);
    }
    acceptor->n_listeners = 0;
}
