#include "tests/component/http/server.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HEAD_MAX = 4096, LINGER_MS = 1000 };

extern char **environ;

/* -------------------------------------------------------------------- network */

static bool run(char *const *argv)
{
    int status;
    pid_t pid;

    return posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ) == 0 &&
           waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    if (fd >= 0) {
        (void)!write(fd, text, strlen(text));
        close(fd);
    }
}

static bool unshare_net(void)
{
    char map[64];
    unsigned uid = getuid(), gid = getgid();

    if (unshare(CLONE_NEWNET) == 0)
        return true;
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
        return false;
    write_file("/proc/self/setgroups", "deny");
    snprintf(map, sizeof map, "0 %u 1", uid);
    write_file("/proc/self/uid_map", map);
    snprintf(map, sizeof map, "0 %u 1", gid);
    write_file("/proc/self/gid_map", map);
    return true;
}

bool net_enter(void)
{
    char *const up[] = {"ip", "link", "set", "lo", "up", NULL};
    char *const any4[] = {"ip", "route", "add", "local", "0.0.0.0/0", "dev", "lo", NULL};
    char *const any6[] = {"ip", "-6", "route", "add", "local", "::/0", "dev", "lo", NULL};

    signal(SIGPIPE, SIG_IGN);
    return unshare_net() && run(up) && run(any4) && run(any6);
}

/* ----------------------------------------------------------------- one connection */

bool say_bytes(struct peer *peer, const void *data, size_t size)
{
    const char *at = data;

    while (size > 0) {
        ssize_t n = peer->ssl ? SSL_write(peer->ssl, at, (int)size)
                              : send(peer->fd, at, size, MSG_NOSIGNAL);

        if (n <= 0)
            return false;
        at += n;
        size -= (size_t)n;
    }
    return true;
}

bool say(struct peer *peer, const char *text)
{
    return say_bytes(peer, text, strlen(text));
}

void linger(struct peer *peer)
{
    struct pollfd poll_fd = {.fd = peer->fd, .events = POLLIN};
    char buf[4096];

    while (poll(&poll_fd, 1, LINGER_MS) > 0 && recv(peer->fd, buf, sizeof buf, 0) > 0) {
    }
}

bool say_hello(struct peer *peer, const char *head)
{
    (void)head;
    return say(peer, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Test: yes\r\n\r\nhello");
}

static size_t hear(struct peer *peer, char *buf, size_t size)
{
    ssize_t n = peer->ssl ? SSL_read(peer->ssl, buf, (int)size) : recv(peer->fd, buf, size, 0);

    return n > 0 ? (size_t)n : 0;
}

/* One head; what follows it (a body) is read with it as far as it has come, and dropped. */
static bool hear_head(struct peer *peer, char *head)
{
    size_t len = 0;

    head[0] = 0;
    while (!strstr(head, "\r\n\r\n")) {
        size_t n = hear(peer, head + len, HEAD_MAX - 1 - len);

        if (n == 0)
            return false;
        len += n;
        head[len] = 0;
    }
    return true;
}

static void note(struct server *server, int fd, const char *head)
{
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&address;

    pthread_mutex_lock(&server->mutex);
    server->n_requests++;
    snprintf(server->last_head, sizeof server->last_head, "%s", head);
    if (getsockname(fd, (struct sockaddr *)&address, &size) == 0 &&
        address.ss_family == AF_INET6) {
        if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr))
            inet_ntop(AF_INET, in6->sin6_addr.s6_addr + 12, server->last_address,
                      sizeof server->last_address);
        else
            inet_ntop(AF_INET6, &in6->sin6_addr, server->last_address,
                      sizeof server->last_address);
    }
    pthread_mutex_unlock(&server->mutex);
}

static void *serve(void *arg)
{
    struct peer *peer = arg;
    struct server *server = peer->server;
    char *head = malloc(HEAD_MAX);

    if (server->tls) {
        peer->ssl = SSL_new(server->tls);
        SSL_set_fd(peer->ssl, peer->fd);
    }
    if (!peer->ssl || SSL_accept(peer->ssl) == 1) {
        while (hear_head(peer, head)) {
            note(server, peer->fd, head);
            if (!server->handle(peer, head))
                break;
        }
        if (peer->ssl)
            SSL_shutdown(peer->ssl);
    }
    SSL_free(peer->ssl);
    close(peer->fd);
    free(peer);
    free(head);
    pthread_mutex_lock(&server->mutex);
    server->n_open--;
    pthread_mutex_unlock(&server->mutex);
    return NULL;
}

/* ------------------------------------------------------------------------- server */

static void *accept_all(void *arg)
{
    struct server *server = arg;

    for (;;) {
        struct peer *peer;
        pthread_t thread;
        int fd = accept4(server->fd, NULL, NULL, SOCK_CLOEXEC);

        if (fd < 0)
            return NULL;
        peer = calloc(1, sizeof *peer);
        *peer = (struct peer){.fd = fd, .server = server};
        pthread_mutex_lock(&server->mutex);
        server->n_connections++;
        server->n_open++;
        pthread_mutex_unlock(&server->mutex);
        pthread_create(&thread, NULL, serve, peer);
        pthread_detach(thread);
    }
}

static int open_port(struct server *server, unsigned short port)
{
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, zero = 0;

    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    getsockname(fd, (struct sockaddr *)&address, &size);
    server->port = ntohs(address.sin6_port);
    return fd;
}

static int open_path(struct server *server, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    snprintf(server->path, sizeof server->path, "%s", path);
    unlink(path);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

void server_open(struct server *server, unsigned short port, const char *path, SSL_CTX *tls,
                 server_fn handle)
{
    *server = (struct server){.handle = handle, .tls = tls};
    pthread_mutex_init(&server->mutex, NULL);
    server->fd = path ? open_path(server, path) : open_port(server, port);
    ck_assert_int_eq(listen(server->fd, 128), 0);
    ck_assert_int_eq(pthread_create(&server->thread, NULL, accept_all, server), 0);
}

void server_close(struct server *server)
{
    bool open = true;

    shutdown(server->fd, SHUT_RDWR);
    pthread_join(server->thread, NULL);
    close(server->fd);
    if (*server->path)
        unlink(server->path);
    while (open) { /* connections end with their clients, or by linger() */
        pthread_mutex_lock(&server->mutex);
        open = server->n_open > 0;
        pthread_mutex_unlock(&server->mutex);
        sched_yield();
    }
}

unsigned server_requests(struct server *server)
{
    unsigned n;

    pthread_mutex_lock(&server->mutex);
    n = server->n_requests;
    pthread_mutex_unlock(&server->mutex);
    return n;
}

unsigned server_connections(struct server *server)
{
    unsigned n;

    pthread_mutex_lock(&server->mutex);
    n = server->n_connections;
    pthread_mutex_unlock(&server->mutex);
    return n;
}

void server_last(struct server *server, char address[64], char head[4096])
{
    pthread_mutex_lock(&server->mutex);
    if (address)
        memcpy(address, server->last_address, sizeof server->last_address);
    if (head)
        memcpy(head, server->last_head, sizeof server->last_head);
    pthread_mutex_unlock(&server->mutex);
}
