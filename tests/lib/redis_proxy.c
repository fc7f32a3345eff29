#include "tests/lib/redis_proxy.h"

#include <check.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { PAIRS_MAX = 64, CHUNK = 1 << 16 };

struct pair {
    int client, server;
    int doomed; /* its next reply is lost */
    char *held; /* bytes that do not go on yet; nobody is at the other end any more */
    size_t held_size;
};

static int open_socket(const char *path, int listening)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), status;

    ck_assert_int_ge(fd, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    status = listening ? bind(fd, (struct sockaddr *)&address, sizeof address)
                       : connect(fd, (struct sockaddr *)&address, sizeof address);
    if (status == 0 && listening)
        status = listen(fd, PAIRS_MAX);
    if (status == 0)
        return fd;
    close(fd);
    return -1;
}

static void drop(struct pair *pair)
{
    if (pair->client >= 0)
        close(pair->client);
    if (pair->server >= 0)
        close(pair->server);
    free(pair->held);
    *pair = (struct pair){.client = -1, .server = -1};
}

static void hold(struct pair *pair, const char *data, size_t size)
{
    pair->held = malloc(size);
    ck_assert_ptr_nonnull(pair->held);
    memcpy(pair->held, data, size);
    pair->held_size = size;
    close(pair->client);
    pair->client = -1;
}

static int send_all(int fd, const char *data, ssize_t size)
{
    while (size > 0) {
        ssize_t n = send(fd, data, (size_t)size, MSG_NOSIGNAL);

        if (n <= 0)
            return -1;
        data += n;
        size -= n;
    }
    return 0;
}

/* The word EVALSHA, not EVALSHA_RO. */
static int is_cas(const char *data, ssize_t size)
{
    return memmem(data, (size_t)size, "\r\nEVALSHA\r\n", 11) != NULL;
}

static void from_client(struct proxy *proxy, struct pair *pair)
{
    static char chunk[CHUNK];
    ssize_t n = recv(pair->client, chunk, sizeof chunk, 0);
    int loss = atomic_load(&proxy->loss);

    if (n > 0 && loss != PROXY_LOSE_NONE && is_cas(chunk, n)) {
        atomic_store(&proxy->loss, PROXY_LOSE_NONE);
        atomic_fetch_add(&proxy->lost, 1);
        if (loss == PROXY_LOSE_REQUEST) {
            drop(pair);
            return;
        }
        if (loss == PROXY_HOLD_REQUEST) {
            hold(pair, chunk, (size_t)n);
            return;
        }
        pair->doomed = 1;
    }
    if (n <= 0 || send_all(pair->server, chunk, n) < 0)
        drop(pair);
}

static void from_server(struct proxy *proxy, struct pair *pair)
{
    static char chunk[CHUNK];
    ssize_t n = recv(pair->server, chunk, sizeof chunk, 0);

    if (pair->client < 0) {
        drop(pair);
        atomic_fetch_add(&proxy->released, 1);
        return;
    }
    if (n <= 0 || pair->doomed || send_all(pair->client, chunk, n) < 0)
        drop(pair);
}

static void accept_one(struct proxy *proxy, struct pair *pairs)
{
    int client = accept(proxy->listener, NULL, NULL);
    int server = open_socket(proxy->target, 0);

    for (int i = 0; client >= 0 && server >= 0 && i < PAIRS_MAX; i++) {
        if (pairs[i].server >= 0)
            continue;
        pairs[i] = (struct pair){.client = client, .server = server};
        return;
    }
    if (client >= 0)
        close(client);
    if (server >= 0)
        close(server);
}

/* False: it was the end that was asked for. */
static int release_held(struct proxy *proxy, struct pair *pairs)
{
    char byte = 'x';

    if (read(proxy->stop[0], &byte, 1) != 1 || byte == 'x')
        return 0;
    for (int i = 0; i < PAIRS_MAX; i++)
        if (pairs[i].held)
            send_all(pairs[i].server, pairs[i].held, (ssize_t)pairs[i].held_size);
    return 1;
}

static void *run(void *arg)
{
    struct proxy *proxy = arg;
    struct pair pairs[PAIRS_MAX];

    for (int i = 0; i < PAIRS_MAX; i++)
        pairs[i] = (struct pair){.client = -1, .server = -1};
    for (;;) {
        struct pollfd fds[2 + 2 * PAIRS_MAX] = {{.fd = proxy->stop[0], .events = POLLIN},
                                                {.fd = proxy->listener, .events = POLLIN}};

        for (int i = 0; i < PAIRS_MAX; i++) {
            fds[2 + 2 * i] = (struct pollfd){.fd = pairs[i].client, .events = POLLIN};
            fds[3 + 2 * i] = (struct pollfd){.fd = pairs[i].server, .events = POLLIN};
        }
        poll(fds, 2 + 2 * PAIRS_MAX, -1);
        if (fds[0].revents && !release_held(proxy, pairs))
            break;
        for (int i = 0; i < PAIRS_MAX; i++) {
            if (pairs[i].client >= 0 && fds[2 + 2 * i].revents)
                from_client(proxy, &pairs[i]);
            if (pairs[i].server >= 0 && fds[3 + 2 * i].revents)
                from_server(proxy, &pairs[i]);
        }
        if (fds[1].revents)
            accept_one(proxy, pairs);
    }
    for (int i = 0; i < PAIRS_MAX; i++)
        drop(&pairs[i]);
    return NULL;
}

void proxy_start(struct proxy *proxy, const char *folder, const char *target)
{
    *proxy = (struct proxy){0};
    snprintf(proxy->path, sizeof proxy->path, "%s/proxy.sock", folder);
    snprintf(proxy->url, sizeof proxy->url, "unix:%s", proxy->path);
    snprintf(proxy->target, sizeof proxy->target, "%s", target);
    proxy->listener = open_socket(proxy->path, 1);
    ck_assert_int_ge(proxy->listener, 0);
    ck_assert_int_eq(pipe(proxy->stop), 0);
    ck_assert_int_eq(pthread_create(&proxy->thread, NULL, run, proxy), 0);
}

void proxy_release(struct proxy *proxy)
{
    int before = atomic_load(&proxy->released);

    ck_assert_int_eq(write(proxy->stop[1], "r", 1), 1);
    while (atomic_load(&proxy->released) == before)
        usleep(500);
}

void proxy_stop(struct proxy *proxy)
{
    ck_assert_int_eq(write(proxy->stop[1], "x", 1), 1);
    pthread_join(proxy->thread, NULL);
    close(proxy->listener);
    close(proxy->stop[0]);
    close(proxy->stop[1]);
    unlink(proxy->path);
}
