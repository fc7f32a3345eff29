#include "tests/component/redis/peer.h"

#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { CLIENTS_MAX = 64, BUF_SIZE = 1 << 16 };

struct client {
    int fd;
    size_t size;
    char buf[BUF_SIZE];
};

#define HEX(c) c c c c c c c c c c c c c c c c c c c c
static const char INFO[] = "$200\r\n# Server\r\nrun_id:" HEX(
    "ab") "\r\n# Replication\r\nrole:master\r\n"
          "master_replid:" HEX("cd") "\r\nmaster_replid2:" HEX("00") "\r\n\r\n";
static const char SHA[] = "$40\r\n0123456789012345678901234567890123456789\r\n";

static void die(const char *what)
{
    perror(what);
    abort();
}

/* Bytes of the first whole command in buf, or 0. *ret_name: its first word. */
static size_t whole_command(const struct client *client, char name[32])
{
    const char *at = client->buf, *end = client->buf + client->size, *line;
    long n, len;

    if (client->size == 0 || !(line = memchr(at, '\n', client->size)))
        return 0;
    n = strtol(at + 1, NULL, 10);
    at = line + 1;
    for (long i = 0; i < n; i++) {
        if (at >= end || !(line = memchr(at, '\n', (size_t)(end - at))))
            return 0;
        len = strtol(at + 1, NULL, 10);
        at = line + 1;
        if (end - at < len + 2)
            return 0;
        if (i == 0)
            snprintf(name, 32, "%.*s", (int)(len < 31 ? len : 31), at);
        at += len + 2;
    }
    return (size_t)(at - client->buf);
}

static bool send_slowly(struct peer *peer, int fd, const char *bytes, size_t size)
{
    for (size_t done = 0; done < size;) {
        struct pollfd poller = {.fd = peer->stop_fd[0], .events = POLLIN};
        size_t part = peer->drip_ms ? 1 : size;

        if (peer->drip_ms && poll(&poller, 1, peer->drip_ms) != 0)
            return false;
        if (send(fd, bytes + done, part, MSG_NOSIGNAL) < 0)
            return false;
        done += part;
    }
    return true;
}

/* False: the connection is to be closed. */
static bool answer_one(struct peer *peer, int fd, const char *name)
{
    if (strcmp(name, "SCRIPT") == 0)
        return send(fd, SHA, sizeof SHA - 1, MSG_NOSIGNAL) > 0;
    if (strcmp(name, "INFO") == 0)
        return send(fd, INFO, sizeof INFO - 1, MSG_NOSIGNAL) > 0;
    if (strcmp(name, "AUTH") == 0 || strcmp(name, "SELECT") == 0)
        return send(fd, "+OK\r\n", 5, MSG_NOSIGNAL) > 0;
    peer->n_commands++;
    return send_slowly(peer, fd, peer->answer, peer->answer_size) && !peer->close_after;
}

static bool serve_client(struct peer *peer, struct client *client)
{
    ssize_t n = recv(client->fd, client->buf + client->size, BUF_SIZE - client->size, 0);
    char name[32] = "";
    size_t used;

    if (n <= 0)
        return false;
    client->size += (size_t)n;
    while ((used = whole_command(client, name)) > 0) {
        memmove(client->buf, client->buf + used, client->size - used);
        client->size -= used;
        if (!answer_one(peer, client->fd, name))
            return false;
    }
    return client->size < BUF_SIZE;
}

static void accept_client(struct peer *peer, struct client **clients, size_t *n_clients)
{
    int fd = accept4(peer->listen_fd, NULL, NULL, SOCK_CLOEXEC);

    if (fd < 0)
        return;
    peer->n_connections++;
    if (peer->refuse_logins || *n_clients == CLIENTS_MAX) {
        close(fd);
        return;
    }
    clients[*n_clients] = calloc(1, sizeof **clients);
    clients[(*n_clients)++]->fd = fd;
}

static void *run(void *arg)
{
    struct peer *peer = arg;
    struct client *clients[CLIENTS_MAX];
    size_t n_clients = 0;

    for (;;) {
        struct pollfd pollers[CLIENTS_MAX + 2] = {{.fd = peer->stop_fd[0], .events = POLLIN},
                                                  {.fd = peer->listen_fd, .events = POLLIN}};

        for (size_t i = 0; i < n_clients; i++)
            pollers[i + 2] = (struct pollfd){.fd = clients[i]->fd, .events = POLLIN};
        if (poll(pollers, n_clients + 2, -1) < 0)
            die("poll");
        if (pollers[0].revents)
            break;
        for (size_t i = n_clients; i-- > 0;) {
            if (!pollers[i + 2].revents || serve_client(peer, clients[i]))
                continue;
            close(clients[i]->fd);
            free(clients[i]);
            clients[i] = clients[--n_clients];
        }
        if (pollers[1].revents)
            accept_client(peer, clients, &n_clients);
    }
    for (size_t i = 0; i < n_clients; i++) {
        close(clients[i]->fd);
        free(clients[i]);
    }
    return NULL;
}

void peer_start(struct peer *peer)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (peer->answer && !peer->answer_size)
        peer->answer_size = strlen(peer->answer);
    snprintf(peer->folder, sizeof peer->folder, "/tmp/berth-peer-XXXXXX");
    if (!mkdtemp(peer->folder) || pipe2(peer->stop_fd, O_CLOEXEC) < 0)
        die("peer");
    snprintf(address.sun_path, sizeof address.sun_path, "%s/redis.sock", peer->folder);
    snprintf(peer->url, sizeof peer->url, "unix:%s", address.sun_path);
    peer->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (peer->listen_fd < 0 ||
        bind(peer->listen_fd, (struct sockaddr *)&address, sizeof address) < 0 ||
        listen(peer->listen_fd, CLIENTS_MAX) < 0)
        die("listen");
    if (pthread_create(&peer->thread, NULL, run, peer) != 0)
        die("thread");
}

void peer_stop(struct peer *peer)
{
    if (write(peer->stop_fd[1], "x", 1) != 1)
        die("stop");
    pthread_join(peer->thread, NULL);
    close(peer->stop_fd[0]);
    close(peer->stop_fd[1]);
    close(peer->listen_fd);
    unlink(peer->url + strlen("unix:"));
    rmdir(peer->folder);
}
