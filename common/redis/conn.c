/* conn.c - one connection. The sockets never block: every wait has the call's own deadline,
 * which blocking hiredis contexts cannot give (their time-out starts anew with every byte). */
#include <errno.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>

#include "common/redis/internal.h"
#include "common/time/time.h"

enum {
    REPLY_MAX = 64 << 20, /* bytes of all replies of one exchange */
    READ_SIZE = 16 << 10,
    HANDSHAKE_MAX = 8 /* commands */
};

bool redis_wait_for(int fd, short events, int64_t until_tick)
{
    struct pollfd poller = {.fd = fd, .events = events};

    for (;;) {
        int64_t left = until_tick - berth_tick_ms();
        int n = poll(&poller, 1, left > 0 ? (int)(left > 60000 ? 60000 : left) : 0);

        if (n > 0 || (n < 0 && errno != EINTR))
            return true; /* errors show at the next read or write */
        if (left <= 0)
            return false;
    }
}

/* ------------------------------------------------------------------- connecting */

static int connect_to(const struct sockaddr *address, socklen_t size, int64_t until_tick)
{
    BERTH_AUTO(close)
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int error = 0, on = 1, taken;
    socklen_t error_size = sizeof error;

    if (fd < 0)
        return -1;
    if (address->sa_family != AF_UNIX) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    }
    /* A unix socket whose backlog is full says EAGAIN: nobody is accepting there. */
    if (connect(fd, address, size) < 0) {
        if (errno != EINPROGRESS && errno != EINTR)
            return -1;
        if (!redis_wait_for(fd, POLLOUT, until_tick)) {
            errno = ETIMEDOUT;
            return -1;
        }
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_size) < 0 || error) {
            errno = error ? error : errno;
            return -1;
        }
    }
    taken = fd;
    fd = -1;
    return taken;
}

static enum berth_code unreachable(const struct redis_address *address, const char *why,
                                   struct berth_error *err)
{
    char text[512];

    snprintf(text, sizeof text, "redis at %s: %s", address->shown, why);
    redis_log_error(text);
    return berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE, "redis cannot be reached");
}

static enum berth_code connect_tcp(const struct redis_address *address, int64_t until_tick,
                                   int *ret_fd, struct berth_error *err)
{
    struct redis_endpoints found;
    int fd = -1, error = redis_look_up(address, until_tick, &found);

    if (error)
        return unreachable(address, gai_strerror(error), err);
    for (size_t i = 0; i < found.n && fd < 0; i++)
        fd = connect_to((const struct sockaddr *)&found.at[i].address, found.at[i].size,
                        until_tick);
    if (fd < 0)
        return unreachable(address, strerror(errno), err);
    *ret_fd = fd;
    return BERTH_OK;
}

static enum berth_code connect_unix(const struct redis_address *address, int64_t until_tick,
                                    int *ret_fd, struct berth_error *err)
{
    int fd = connect_to((const struct sockaddr *)&address->un, sizeof address->un, until_tick);

    if (fd < 0)
        return unreachable(address, strerror(errno), err);
    *ret_fd = fd;
    return BERTH_OK;
}

/* -------------------------------------------------------------------- handshake */

static const char *const sources[REDIS_N_SCRIPTS] = {redis_read_lua, redis_cas_lua,
                                                     redis_cas_full_lua};

static enum berth_code keep_sha(struct redis_conn *conn, enum redis_script script,
                                const struct berth_reply *reply, struct berth_error *err)
{
    if (redis_reply_error(reply))
        return redis_map_error(redis_reply_error(reply), err);
    if (reply->type != BERTH_REPLY_STRING || reply->size != 40)
        return berth_fail(err, BERTH_REASON_STORE_UNAVAILABLE,
                          "redis: SCRIPT LOAD gave no SHA");
    memcpy(conn->sha[script], reply->string, 41);
    return BERTH_OK;
}

enum berth_code redis_load_script(struct redis_conn *conn, enum redis_script script,
                                  int64_t until_tick, struct berth_error *err)
{
    const char *argv[] = {"SCRIPT", "LOAD", sources[script]};
    const struct redis_command command = {3, argv, NULL};
    BERTH_AUTO(berth_reply_free) struct berth_reply *reply = NULL;
    bool sent;
    enum berth_code code =
        redis_conn_exchange(conn, &command, 1, until_tick, &reply, &sent, err);

    return code ? code : keep_sha(conn, script, reply, err);
}

/* What is said first on a connection; borrows from the login. */
struct greeting {
    const char *words[HANDSHAKE_MAX][3];
    struct redis_command commands[HANDSHAKE_MAX];
    size_t n;
};

static void say(struct greeting *greeting, size_t argc, const char *first, const char *second,
                const char *third)
{
    const char **words = greeting->words[greeting->n];

    words[0] = first;
    words[1] = second;
    words[2] = third;
    greeting->commands[greeting->n++] = (struct redis_command){argc, words, NULL};
}

static void say_who(struct greeting *greeting, const struct redis_login *login)
{
    if (login->password && login->username)
        say(greeting, 3, "AUTH", login->username, login->password);
    else if (login->password)
        say(greeting, 2, "AUTH", login->password, NULL);
}

/* Sends it in one trip; replies[greeting->n], none of them an error. It also proves that the
 * server answers at all: a stopped process still accepts connections. */
static enum berth_code greet(struct redis_conn *conn, const struct redis_login *login,
                             const struct greeting *greeting, int64_t until_tick,
                             struct berth_reply **replies, struct berth_error *err)
{
    struct berth_error why = {0};
    enum berth_code code;
    bool sent;

    if (greeting->n == 0)
        return BERTH_OK;
    code = redis_conn_exchange(conn, greeting->commands, greeting->n, until_tick, replies,
                               &sent, &why);
    if (why.reason == BERTH_REASON_STORE_UNAVAILABLE)
        return berth_fail(err, why.reason, "%s", why.text);
    if (code)
        return unreachable(login->address, "no answer to the login", err);
    for (size_t i = 0; i < greeting->n && !code; i++)
        if (redis_reply_error(replies[i]))
            code = redis_map_error(redis_reply_error(replies[i]), err);
    if (!code)
        return BERTH_OK;
    for (size_t i = 0; i < greeting->n; i++)
        replies[i] = berth_reply_free(replies[i]);
    /* Whatever it is, there is no store to speak to. */
    return code == BERTH_UNAVAILABLE ? code
                                     : unreachable(login->address, "the login failed", err);
}

static enum berth_code shake_hands(struct redis_conn *conn, const struct redis_login *login,
                                   int64_t until_tick, struct berth_error *err)
{
    struct greeting greeting = {.n = 0};
    struct berth_reply *replies[HANDSHAKE_MAX] = {NULL};
    enum berth_code code;
    size_t at = 0;
    char db[12];

    say_who(&greeting, login);
    snprintf(db, sizeof db, "%u", login->address->db);
    if (login->address->db > 0)
        say(&greeting, 2, "SELECT", db, NULL);
    at = greeting.n;
    for (int i = 0; i < REDIS_N_SCRIPTS; i++)
        say(&greeting, 3, "SCRIPT", "LOAD", sources[i]);
    say(&greeting, 3, "INFO", "server", "replication");
    code = greet(conn, login, &greeting, until_tick, replies, err);
    if (code)
        return code;
    for (int i = 0; i < REDIS_N_SCRIPTS && !code; i++)
        code = keep_sha(conn, (enum redis_script)i, replies[at + (size_t)i], err);
    if (!code && (replies[greeting.n - 1]->type != BERTH_REPLY_STRING ||
                  !redis_identity_parse(replies[greeting.n - 1]->string, &conn->who)))
        code = unreachable(login->address, "it does not say who it is (INFO)", err);
    for (size_t i = 0; i < greeting.n; i++)
        berth_reply_free(replies[i]);
    return code;
}

static enum berth_code connect_conn(const struct redis_login *login, int64_t until_tick,
                                    struct redis_conn **ret, struct berth_error *err)
{
    const struct redis_address *address = login->address;
    struct redis_conn *conn = calloc(1, sizeof *conn);
    enum berth_code code;

    if (!conn)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    conn->fd = -1;
    conn->reader = redis_reader_new();
    if (!conn->reader)
        code = berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    else if (address->is_unix)
        code = connect_unix(address, until_tick, &conn->fd, err);
    else
        code = connect_tcp(address, until_tick, &conn->fd, err);
    if (!code && login->tls && !address->is_unix)
        code = redis_tls_open(login->tls, address->host, conn->fd, until_tick, &conn->ssl, err);
    if (code)
        redis_conn_close(conn);
    else
        *ret = conn;
    return code;
}

enum berth_code redis_conn_open(const struct redis_login *login, int64_t until_tick,
                                struct redis_conn **ret, struct berth_error *err)
{
    struct redis_conn *conn = NULL;
    enum berth_code code = connect_conn(login, until_tick, &conn, err);

    if (code)
        return code;
    code = shake_hands(conn, login, until_tick, err);
    if (code)
        redis_conn_close(conn);
    else
        *ret = conn;
    return code;
}

enum berth_code redis_conn_dial(const struct redis_login *login, int64_t until_tick,
                                struct redis_conn **ret, struct berth_error *err)
{
    struct berth_reply *replies[HANDSHAKE_MAX] = {NULL};
    struct greeting greeting = {.n = 0};
    struct redis_conn *conn = NULL;
    enum berth_code code = connect_conn(login, until_tick, &conn, err);

    if (code)
        return code;
    say_who(&greeting, login);
    code = greet(conn, login, &greeting, until_tick, replies, err);
    berth_reply_free(replies[0]);
    if (code)
        redis_conn_close(conn);
    else
        *ret = conn;
    return code;
}

struct redis_conn *redis_conn_close(struct redis_conn *conn)
{
    if (!conn)
        return NULL;
    redis_tls_close(conn->ssl);
    if (conn->fd >= 0)
        close(conn->fd);
    if (conn->reader)
        redisReaderFree(conn->reader);
    free(conn);
    return NULL;
}

bool redis_conn_is_stale(const struct redis_conn *conn)
{
    struct pollfd poller = {.fd = conn->fd, .events = POLLIN | POLLRDHUP};

    return poll(&poller, 1, 0) != 0;
}

/* --------------------------------------------------------------------- exchange */

static char *join(const struct redis_command *commands, size_t n, size_t *ret_size,
                  size_t *ret_first_size)
{
    char *all = NULL;
    size_t size = 0;

    for (size_t i = 0; i < n; i++) {
        char *one = NULL, *more;
        int one_size = redisFormatCommandArgv(
            &one, (int)commands[i].argc, (const char **)commands[i].argv, commands[i].sizes);

        more = one_size > 0 ? realloc(all, size + (size_t)one_size) : NULL;
        if (!more) {
            redisFreeCommand(one);
            free(all);
            return NULL;
        }
        all = more;
        memcpy(all + size, one, (size_t)one_size);
        redisFreeCommand(one);
        size += (size_t)one_size;
        if (i == 0)
            *ret_first_size = size;
    }
    *ret_size = size;
    return all;
}

/* 0, or the errno that stopped it; *ret_done bytes are out of our hands either way. */
static int send_all(const struct redis_conn *conn, const char *bytes, size_t size,
                    int64_t until_tick, size_t *ret_done)
{
    *ret_done = 0;
    while (*ret_done < size) {
        const char *at = bytes + *ret_done;
        short events = POLLOUT;
        ssize_t n = conn->ssl ? redis_tls_send(conn->ssl, at, size - *ret_done, &events)
                              : send(conn->fd, at, size - *ret_done, MSG_NOSIGNAL);

        if (n >= 0)
            *ret_done += (size_t)n;
        else if (errno == EAGAIN && !redis_wait_for(conn->fd, events, until_tick))
            return ETIMEDOUT;
        else if (errno != EAGAIN && errno != EINTR)
            return errno;
    }
    return 0;
}

/* NULL, or why there is no further reply. *io_room: bytes that may still come. */
static const char *receive_one(struct redis_conn *conn, int64_t until_tick, size_t *io_room,
                               struct berth_reply **ret)
{
    char buf[READ_SIZE];

    for (;;) {
        void *reply = NULL;
        short events = POLLIN;
        ssize_t n;

        if (redisReaderGetReply(conn->reader, &reply) != REDIS_OK)
            return "the answer makes no sense, or is too large";
        if (reply) {
            *ret = reply;
            return NULL;
        }
        n = conn->ssl ? redis_tls_recv(conn->ssl, buf, sizeof buf, &events)
                      : recv(conn->fd, buf, sizeof buf, 0);
        if (n == 0)
            return "the connection was closed";
        if (n < 0 && errno == EAGAIN && !redis_wait_for(conn->fd, events, until_tick))
            return "no answer in time";
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return "the connection broke";
        if (n < 0)
            continue;
        if ((size_t)n > *io_room)
            return "the answer is too large";
        *io_room -= (size_t)n;
        if (redisReaderFeed(conn->reader, buf, (size_t)n) != REDIS_OK)
            return "out of memory for the answer";
    }
}

/* A server that refuses and hangs up has said why; the rest of the answers does not come. */
static enum berth_code hung_up(struct redis_conn *conn, const struct berth_reply *first,
                               bool sent, const char *why, struct berth_error *err)
{
    BERTH_AUTO(berth_reply_free) struct berth_reply *late = NULL;
    size_t room = READ_SIZE;
    const char *refused;

    if (!first && receive_one(conn, 0, &room, &late) == NULL)
        first = late;
    refused = first ? redis_reply_error(first) : NULL;
    if (refused)
        return redis_map_error(refused, err);
    return berth_fail(err, sent ? BERTH_REASON_OUTCOME_UNKNOWN : BERTH_REASON_STORE_UNAVAILABLE,
                      "redis: %s", why);
}

enum berth_code redis_conn_exchange(struct redis_conn *conn,
                                    const struct redis_command *commands, size_t n,
                                    int64_t until_tick, struct berth_reply **ret,
                                    bool *ret_sent, struct berth_error *err)
{
    size_t size, first_size = 0, done = 0, room = REPLY_MAX, n_got = 0;
    BERTH_AUTO(free) char *bytes = join(commands, n, &size, &first_size);
    const char *why = NULL;
    enum berth_code code;
    int error;

    *ret_sent = false;
    if (!bytes)
        return berth_fail(err, BERTH_REASON_OUT_OF_MEMORY, NULL);
    error = send_all(conn, bytes, size, until_tick, &done);
    *ret_sent = done >= first_size;
    if (error)
        why = "the connection broke while sending";
    while (!why && n_got < n) {
        why = receive_one(conn, until_tick, &room, &ret[n_got]);
        if (!why)
            n_got++;
    }
    if (!why)
        return BERTH_OK;
    conn->broken = true;
    code = hung_up(conn, n_got > 0 ? ret[0] : NULL, *ret_sent, why, err);
    for (; n_got > 0; n_got--)
        ret[n_got - 1] = berth_reply_free(ret[n_got - 1]);
    return code;
}
